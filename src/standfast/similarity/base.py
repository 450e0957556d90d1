"""What all similarities have in common, their registry, and similarities by name."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from standfast.errors import ArgumentError, StandfastError, check
from standfast.records import ConfigurationType, set_fields
from standfast.registry import Registry, build
from standfast.similarity.chance import ChanceLevel
from standfast.similarity.rows import check_pair
from standfast.tensors import is_on_host


@dataclass(frozen=True)
class Similarity(metaclass=ConfigurationType):
    """The base of similarities: how alike two attribution maps are, with the options as fields of a dataclass.

    A class has `compare` and, if maps may be moved back after a rotation or a shift, `compare_part`. It may have a
    faster `prepare`, and a level of `chance`.

    Attributes:
        name: the name it was requested by, including options.
        words: what it is called in a sentence; empty for its name.
        larger_is_closer: True if larger values mean more similar maps; False for a discrepancy.
        low: default threshold: explanations below it are "inconsistent". None if no threshold suits all maps.
        high: default threshold: explanations above it are "consistent".
        differentiable: whether gradients flow through it.
        ordinal: whether it compares the order of the features. A constant map has no order, so a metric skips an
            input with a constant map. (It also does this for every similarity that is no discrepancy.)
        range: the smallest and the largest value that it can take; a threshold lies between them.
    """

    name: ClassVar[str]
    words: ClassVar[str] = ""
    larger_is_closer: ClassVar[bool] = True
    low: ClassVar[float | None] = None
    high: ClassVar[float | None] = None
    differentiable: ClassVar[bool] = False
    #: whether exchanging the two maps changes nothing
    symmetric: ClassVar[bool] = True
    ordinal: ClassVar[bool] = False
    range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        values_of_options = {option.name: getattr(self, option.name) for option in fields(self)}
        changed = [
            f"{key}={value}"
            for key, value in values_of_options.items()
            if value != type(self).__dataclass_fields__[key].default
        ]
        if changed:
            set_fields(self, name=f"{type(self).name}:{','.join(changed)}")

    @abstractmethod
    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        """The similarity `(N,)` of two batches of maps `(N, ...)`; NaN for a row that holds a NaN or an infinity.

        Raises:
            ArgumentError: shapes, devices or types do not fit.
        """

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self._check(self.compare(a, b), a)

    def _check(self, result: Tensor, a: Tensor) -> Tensor:
        fits = False
        got: object = type(result).__name__
        if isinstance(result, Tensor):
            fits = result.shape == a.shape[:1]
            got = tuple(result.shape)
        expected = f"one number per row, shape {tuple(a.shape[:1])}"
        check(fits, f"similarity {self.name!r}", expected, got)
        return result

    def prepare(self, reference: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """A function that compares many maps with a few reference maps `(N, ...)`, with the bits of a call.

        What depends on the references alone is computed once, where the similarity allows it. The function takes maps
        `(M, ...)` of the references' dtype and, int64 `(M,)`, the number of the reference of each. It returns `(M,)`.

        Raises:
            ArgumentError: the reference or, in the function, the maps have another shape or dtype.

        >>> import torch
        >>> compare = get("pearson").prepare(torch.tensor([[1.0, 2.0, 4.0]]))
        >>> compare(torch.tensor([[1.0, 2.0, 4.0], [3.0, 2.0, 0.0]]), torch.tensor([0, 0]))
        tensor([ 1., -1.])
        """
        return lambda maps, rows: self(reference[rows], maps)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """The similarity `(N,)` of maps `(N, ...)` where `mask` is True, as if the other values were dropped.

        `mask` is bool, of the shape of the maps, and False somewhere in each row. A row without True may get any value.

        Raises:
            StandfastError: the similarity has no rule for this.
        """
        raise StandfastError(
            f"similarity {self.name!r} has no rule for a part of a map: its class has no compare_part"
        )

    def compare_masked(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """The similarity of maps where `mask` is True, such as the part that a rotation leaves in both images.

        Args:
            a: maps `(N, ...)`, as they are compared (`of_maps`).
            b: maps of the same shape.
            mask: bool, of a shape that broadcasts to that of the maps, or to that before `of_maps`.

        Returns:
            `(N,)`; NaN for a pair of which nothing is compared.

        Raises:
            ArgumentError: `mask` does not fit the maps.
            StandfastError: the similarity has no rule for this.

        >>> import torch
        >>> a, b = torch.tensor([[1.0, 2.0, 4.0, 9.0]]), torch.tensor([[1.0, 2.0, 4.0, -9.0]])
        >>> get("pearson").compare_masked(a, b, torch.tensor([[True, True, True, False]]))
        tensor([1.])
        """
        return self._check(self._compare_masked(a, b, mask), a)

    def _compare_masked(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        if isinstance(mask, Tensor) and mask.ndim == a.ndim + 1:
            mask = mask.all(1)
        fits = (
            isinstance(mask, Tensor)
            and mask.dtype == torch.bool
            and _broadcasts(mask.shape, a.shape)
        )
        if isinstance(mask, Tensor):
            got = f"{mask.dtype} of shape {tuple(mask.shape)}"
        else:
            got = type(mask).__name__
        check(fits, "mask", f"a bool tensor that broadcasts to {tuple(a.shape)}", got)
        check_pair(a, b)
        mask = mask.expand(a.shape)
        # A row that is compared as a whole takes the usual way, so that it has the same bits whatever the others are.
        whole = mask.flatten(1).all(1)
        if not is_on_host(whole):  # computing both takes less time than to ask which are needed
            has_part = mask.flatten(1).any(1)
            compared = torch.where(has_part, self.compare_part(a, b, mask), torch.nan)
            # what is not used must not bring NaN into a gradient
            usual = whole.reshape(-1, *[1] * (a.ndim - 1))
            usual_a = torch.where(usual, a, 0)
            usual_b = torch.where(usual, b, 0)
            kept = self.compare(usual_a, usual_b)
            return torch.where(whole, kept.to(compared.dtype), compared)
        if bool(whole.all()):
            return self.compare(a, b)
        part = (~whole).nonzero()[:, 0]
        rest = whole.nonzero()[:, 0]
        compared = self.compare_part(a[part], b[part], mask[part])
        has_part = mask[part].flatten(1).any(1)
        compared = torch.where(has_part, compared, torch.nan)
        if not len(rest):
            return compared
        compared_rest = self.compare(a[rest], b[rest])
        parted = torch.cat([compared, compared_rest.to(compared.dtype)])
        return parted[torch.cat([part, rest]).argsort()]

    def chance(self, a: Tensor, b: Tensor, draws: int = 32, seed: int = 0) -> ChanceLevel | None:
        """The expected similarity of maps with the values and supports of `a` and `b`, drawn onto places at random.

        Args:
            a, b: the maps as they are compared, `(N, H, W)`, `(N, T)` or `(N, C, H, W)`.
            draws: how many random draws, at least 2, where there is no closed form. The random numbers of a pair depend
                on its values and on `seed` only.
            seed: of the random numbers.

        Returns:
            The chance levels with their standard errors; None for a similarity that is not one of positions.

        Raises:
            ArgumentError: the maps do not fit the similarity.

        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> a, b = torch.rand(2, 1, 28, 28, generator=generator)
        >>> get("topk_intersection:k=100").chance(a, b)  # k of 784 positions
        ChanceLevel(value=tensor([0.13]), error=tensor([0.]))
        >>> get("lens_precision:k=100,w=1").chance(a, b).value, get("mse").chance(a, b)
        (tensor([0.68]), None)
        """
        return None

    def of_maps(self, maps: Tensor) -> Tensor:
        """The values that are compared, for maps `(N, C, H, W)`, `(N, C, T)` or `(N, F)`.

        These are the maps themselves or, for a similarity of positions, one value per position.

        >>> import torch
        >>> get("lens_precision").of_maps(torch.ones(2, 3, 5, 5)).shape
        torch.Size([2, 5, 5])
        >>> get("pearson").of_maps(torch.ones(2, 3, 5, 5)).shape
        torch.Size([2, 3, 5, 5])
        """
        return maps


@dataclass(frozen=True)
class Correlation(Similarity):
    """The base of similarities from -1 to 1."""

    low = 0.4
    high = 0.6
    range = (-1.0, 1.0)


@dataclass(frozen=True)
class Discrepancy(Similarity):
    """The base of distances: 0 for equal maps, larger for less similar ones; no threshold suits all maps."""

    larger_is_closer = False
    range = (0.0, math.inf)


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    reversed_shape = shape[::-1]
    return len(reversed_shape) <= len(wanted) and all(
        n in (1, most) for n, most in zip(reversed_shape, wanted[::-1], strict=False)
    )


similarities: Registry[type[Similarity]] = Registry(
    "similarity",
    "standfast.similarities",
    lambda entry: isinstance(entry, type) and issubclass(entry, Similarity),
    named=True,
)


def names() -> list[str]:
    """Names of all registered similarities, sorted."""
    return similarities.names()


def get(similarity: str | Similarity) -> Similarity:
    """The similarity for a name with or without options.

    Args:
        similarity: a name such as `"pearson"`; a name with options, such as `"ssim:window=11,gaussian=true"` or
            `"lens_distance:k=(10, 100),w=(0, 1)"`; or a `Similarity`, which is returned unchanged. A function of two
            maps is the method `compare` of a class.

    Raises:
        UnknownNameError: no similarity has that name.
        ArgumentError: an option is malformed, unknown, or invalid for every map.

    >>> get("topk_intersection:k=100").name
    'topk_intersection:k=100'
    >>> get("mse:kk=100")
    Traceback (most recent call last):
        ...
    standfast.errors.UnknownOptionError: kk: expected no options for mse, got kk=100
    """
    if isinstance(similarity, Similarity):
        return similarity
    if not isinstance(similarity, str):
        raise ArgumentError(
            "similarity", "a name or a Similarity (of a function, its class)", repr(similarity)
        )
    named = build(similarities, similarity)
    set_fields(named, name=similarity)
    return named
