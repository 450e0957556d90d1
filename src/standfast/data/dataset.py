"""`Dataset`: labelled inputs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from standfast.errors import FINITE, check
from standfast.records import set_fields
from standfast.tensors import (
    Bound,
    describe_bounds,
    describe_no_tensor,
    read_bounds,
    suggest_dtype,
    suggest_layout,
)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs with their labels, the names of the classes and the range of the input values.

    A slice of a data set is a data set: a view of the same tensors.

    Args:
        name: of the data set.
        inputs: float32 `(N, ...)` within the bounds; images are `(N, C, H, W)`, series `(N, C, T)`, tables `(N, F)`.
        labels: int64 `(N,)`, each from 0 to the number of classes - 1.
        classes: the names of the classes.
        bounds: the smallest and the largest valid value of an input: numbers, or tensors that broadcast against one
            input, as for a `Model`, whose own bounds are accepted.
        extras: further tensors `(N, ...)` by name, for example the position of a block that carries the class. They are
            sliced with the samples.
        features: the names of the columns of a table, or of the channels of a series: one for each place of the second
            axis. Tables and figures show them.
        tokens: for embedded text `(N, dim, T)`: the words of each sample, at most T. They are sliced with the samples.
        sample_names: what the user calls each sample, such as the name of its file; sliced with the samples, too.

    Raises:
        ArgumentError: types or shapes do not match, a label names no class, or an input lies outside the bounds.

    >>> inputs = torch.tensor([0.0, 0.2, 0.4, 0.6]).reshape(4, 1, 1, 1)
    >>> shades = Dataset("shades", inputs, torch.tensor([0, 0, 1, 1]), ("dark", "light"))
    >>> len(shades), shades[1:3].labels.tolist()
    (4, [0, 1])
    >>> shades
    Dataset('shades', 4 x (1, 1, 1), 2 classes: dark, light, bounds [0, 1])
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    bounds: tuple[Bound, Bound] = (0.0, 1.0)
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    tokens: tuple[tuple[str, ...], ...] | None = None
    sample_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check(
            isinstance(self.inputs, Tensor),
            "inputs",
            "a torch.Tensor",
            describe_no_tensor(self.inputs),
        )
        fits = self.inputs.dtype == torch.float32
        check(
            fits,
            "inputs",
            "float32",
            f"{self.inputs.dtype}: {suggest_dtype(self.inputs, torch.float32)}",
        )
        check(self.inputs.ndim >= 2, "inputs", "shape (N, ...)", tuple(self.inputs.shape))
        fits = isinstance(self.labels, Tensor)
        got = f"{type(self.labels).__name__}: use torch.as_tensor(labels).long()"
        check(fits, "labels", "an int64 torch.Tensor", got)
        check(
            self.labels.dtype == torch.int64,
            "labels",
            "int64",
            f"{self.labels.dtype}: use labels.long()",
        )
        count = len(self.inputs)
        check(
            self.labels.shape == (count,), "labels", f"shape ({count},)", tuple(self.labels.shape)
        )
        # plain numbers where one bound is for all, so that data sets show and compare them as such
        bounds = []
        for bound in read_bounds(self.bounds):
            bounds.append(bound if bound.ndim else bound.item())
        set_fields(self, classes=_read_classes(self.classes), bounds=tuple(bounds))
        # an empty part of a data set is a data set, too, and has no smallest value
        if count > 0:
            self._check_values()
        for name, values in self.extras.items():
            fits = isinstance(values, Tensor) and values.shape[:1] == (count,)
            if isinstance(values, Tensor):
                got = str(tuple(values.shape))
            else:
                got = type(values).__name__
            check(fits, f"extras[{name!r}]", f"a tensor of shape ({count}, ...)", got)
        set_fields(self, **checked_names(self.features, self.tokens, self.inputs))
        set_fields(self, sample_names=checked_sample_names(self.sample_names, count))

    def _check_values(self) -> None:
        """Check that labels are classes, and inputs within the bounds."""
        least, most = (int(label) for label in self.labels.aminmax())
        last = len(self.classes) - 1
        check(least >= 0 and most <= last, "labels", f"classes 0 .. {last}", f"{least} .. {most}")
        check(bool(self.inputs.isfinite().all()), "inputs", FINITE, "NaN or infinity")
        low, high = self.bounds
        if isinstance(low, float) and isinstance(high, float):
            lowest, highest = self.inputs.aminmax()
        else:  # bounds of single features, which hold for these
            lowest = self.inputs.amin(0)
            highest = self.inputs.amax(0)
        is_above = bool((low <= lowest).all())
        is_below = bool((highest <= high).all())
        expected = f"values in {describe_bounds(self.bounds)}"
        got = describe_bounds((lowest, highest))
        check(is_above and is_below, "inputs", expected, got)

    def __repr__(self) -> str:
        shape = tuple(self.inputs.shape[1:])
        classes = f"{len(self.classes)} classes"
        if sum(map(len, self.classes)) <= 60:
            classes += ": " + ", ".join(self.classes)
        parts = [
            repr(self.name),
            f"{len(self)} x {shape}",
            classes,
            f"bounds {describe_bounds(self.bounds)}",
        ]
        if self.extras:
            parts.append(f"extras: {', '.join(self.extras)}")
        if self.features is not None:
            parts.append("features")
        if self.tokens is not None:
            parts.append("tokens")
        return f"Dataset({', '.join(parts)})"

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice) -> Dataset:
        check(isinstance(index, slice), "index", "a slice, such as 3:4", repr(index))
        rows = range(len(self))[index]
        # tensors take no negative steps
        if index.step is not None and index.step < 0:
            return self.take(rows)
        return self._select(lambda values: values[index], rows)

    def take(self, indices: Sequence[int] | Tensor) -> Dataset:
        """The samples at `indices` (M,), in that order; raises `ArgumentError` if an index is not in 0 .. N - 1."""
        # indices have to be where the tensors are
        chosen = torch.as_tensor(indices, device=self.labels.device)
        if chosen.numel() == 0:
            # an empty list becomes a tensor of floats
            return self[:0]
        check(chosen.ndim == 1, "indices", "a sequence of indices", f"shape {tuple(chosen.shape)}")
        check(chosen.dtype == torch.int64, "indices", "int64", chosen.dtype)
        least, most = (int(index) for index in chosen.aminmax())
        last = len(self) - 1
        inside = least >= 0 and most <= last
        check(inside, "indices", f"indices in 0 .. {last}", f"{least} .. {most}")

        def select(values: Tensor) -> Tensor:
            return values[chosen.to(values.device)]

        return self._select(select, chosen.tolist())

    def subset(self, n: int, per_class: bool = True) -> Dataset:
        """The first `n` samples of every class, or, with `per_class=False`, the first `n` of all, in order.

        Nothing is drawn at random: the same call returns the same samples. Raises `ArgumentError` if there are fewer
        than `n`.

        >>> inputs, labels = torch.zeros(5, 1, 1, 1), torch.tensor([0, 0, 1, 0, 1])
        >>> zeros = Dataset("zeros", inputs, labels, ("a", "b"))
        >>> zeros.subset(1).labels.tolist(), zeros.subset(3, per_class=False).labels.tolist()
        ([0, 1], [0, 0, 1])
        """
        check(n >= 1, "n", "at least 1", n)
        if not per_class:
            check(n <= len(self), "n", f"at most {len(self)}, the number of samples", n)
            return self[:n]
        classes = torch.arange(len(self.classes), device=self.labels.device)
        # (N, K)
        member = self.labels[:, None] == classes
        smallest = int(member.sum(dim=0).min())
        check(n <= smallest, "n", f"at most the {smallest} samples of the smallest class", n)
        # the running number of each sample within its class
        number = member.cumsum(dim=0)
        among_first = ((number <= n) & member).any(dim=1)
        return self.take(among_first.nonzero().squeeze(1))

    def pad(self, pixels: int) -> Dataset:
        """The same images with a border of `pixels` zeros on each side: inputs (N, C, H + 2 pixels, W + 2 pixels).

        Raises `ArgumentError` if the inputs are not images, if `pixels` is negative, or if zero is not within the
        bounds. Extras stay as they are.

        >>> ones = Dataset("ones", torch.ones(2, 1, 3, 3), torch.zeros(2, dtype=torch.int64), ("a",))
        >>> ones.pad(1).inputs.shape
        torch.Size([2, 1, 5, 5])
        """
        check(pixels >= 0, "pixels", "at least 0", pixels)
        check(self.inputs.ndim == 4, "inputs", "images (N, C, H, W)", tuple(self.inputs.shape))
        return replace(self, inputs=F.pad(self.inputs, [pixels] * 4))

    def _select(self, select: Callable[[Tensor], Tensor], rows: Sequence[int]) -> Dataset:
        """The samples of these rows, which `select` takes out of a tensor: as a view, where it can."""
        extras = {name: select(values) for name, values in self.extras.items()}
        tokens = None
        if self.tokens is not None:
            tokens = tuple(self.tokens[row] for row in rows)
        names = None
        if self.sample_names is not None:
            names = tuple(self.sample_names[row] for row in rows)
        return replace(
            self,
            inputs=select(self.inputs),
            labels=select(self.labels),
            extras=extras,
            tokens=tokens,
            sample_names=names,
        )


def checked_names(
    features: Sequence[str] | None, tokens: Sequence[Sequence[str]] | None, inputs: Tensor
) -> dict[str, Any]:
    """`features` and `tokens` as tuples, as `Dataset` holds them; each may be None.

    Args:
        features: a name for each place of the second axis of `inputs`.
        tokens: the words of each sample, at most as many as places on the last axis.
        inputs: `(N, ...)`.

    Raises:
        ArgumentError: another number of names, or names that are no texts.

    >>> checked_names(["age", "sex"], None, torch.zeros(4, 2))
    {'features': ('age', 'sex'), 'tokens': None}
    """
    if features is not None:
        _check_features(features, inputs)
    if tokens is not None:
        _check_tokens(tokens, inputs)
    if features is not None:
        features = tuple(features)
    if tokens is not None:
        tokens = tuple(map(tuple, tokens))
    return {"features": features, "tokens": tokens}


def checked_sample_names(names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """The names of `count` samples as a tuple; None where there are none.

    Raises:
        ArgumentError: another number of names, or names that are no texts.

    >>> checked_sample_names(["a.png", "b.png"], 2)
    ('a.png', 'b.png')
    """
    if names is None:
        return None
    fits = _are_texts(names) and len(names) == count
    expected = f"{count} names, one for each sample"
    check(fits, "sample_names", expected, _describe_names(names))
    return tuple(names)


def _describe_names(names: object) -> str:
    """How many names there are, for an error; a value that is no list of them as it is."""
    if isinstance(names, list | tuple):
        return str(len(names))
    return repr(names)


def _check_features(features: Sequence[str], inputs: Tensor) -> None:
    count, width = inputs.shape[:2]
    are_texts = _are_texts(features)
    fits = are_texts and len(features) == width
    got = _describe_names(features)
    if are_texts and not fits:
        # names for another axis most often mean channels that come last
        hint = suggest_layout(inputs, lambda x: x.shape[:2] == (count, len(features)))
        if hint:
            got += f" for {hint}"
    check(fits, "features", f"{width} names, one for each column or channel", got)


def _check_tokens(tokens: Sequence[Sequence[str]], inputs: Tensor) -> None:
    count = len(inputs)
    positions = inputs.shape[-1]
    fits = False
    got = type(tokens).__name__
    if isinstance(tokens, list | tuple):
        fits = len(tokens) == count
        got = f"{len(tokens)} samples"
    check(fits, "tokens", f"the words of {count} samples", got)
    for sample, words in enumerate(tokens):
        fits = _are_texts(words) and len(words) <= positions
        got = repr(words)
        if isinstance(words, list | tuple):
            got = f"{len(words)} words"
        expected = f"at most {positions} words, one for each position"
        check(fits, f"tokens[{sample}]", expected, got)


def _read_classes(classes: object) -> tuple[str, ...]:
    """The names of the classes as a tuple; a text alone would be a class for each of its letters."""
    expected = "the names of the classes, such as ('cat', 'dog')"
    fits = isinstance(classes, Iterable) and not isinstance(classes, str)
    names = tuple(classes) if fits else ()  # type: ignore[arg-type]
    check(fits and _are_texts(names), "classes", expected, repr(classes))
    return names


def _are_texts(values: object) -> bool:
    if not isinstance(values, list | tuple):
        return False
    return all(isinstance(value, str) for value in values)
