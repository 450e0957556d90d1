"""How alike two attribution maps are: pure batched functions `(a, b) -> (N,)`, and a registry of them.

Some functions compare maps feature by feature, or by the order of the features. They accept maps of any shape. Others
use the positions of the values in the image or series (`local`, `profile`). For these, `Similarity.channels` says how
a map is reduced to one value per position before it is compared.

>>> import torch
>>> from standfast import similarity
>>> similarity.names()[:6]
['centre_of_mass', 'cosine', 'kendall', 'lens_distance', 'lens_kendall', 'lens_precision']
>>> similarity.names()[6:]
['lens_recall', 'lens_spearman', 'mse', 'pearson', 'spearman', 'ssim', 'topk_intersection']
>>> top = similarity.get("topk_intersection:k=1")
>>> top(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[0.0, 3.0, 1.0]]))
tensor([1.])
>>> top.name, top.low, top.high
('topk_intersection:k=1', 0.4, 0.6)
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from standfast.errors import ArgumentError, check, suggest_name
from standfast.registry import Registry
from standfast.similarity.chance import ChanceLevel, correct_for_chance, measure_chance
from standfast.similarity.diverse import top_k, top_k_diverse
from standfast.similarity.local import (
    centre_of_mass,
    lens_kendall,
    lens_precision,
    lens_recall,
    lens_spearman,
    mass_centre,
    topk_intersection,
)
from standfast.similarity.pointwise import CentredReference, cosine, mse, pearson
from standfast.similarity.profile import LensProfile, check_options, lens_distance, lens_profile
from standfast.similarity.rank import kendall, spearman
from standfast.similarity.ranked_reference import RankedReference
from standfast.similarity.rows import is_degenerate
from standfast.similarity.seen import compare_seen
from standfast.similarity.structural import ssim
from standfast.similarity.windows import Channels, dilate, per_position, smooth

__all__ = [
    "ChanceLevel",
    "Channels",
    "LensProfile",
    "Similarity",
    "SimilarityFunction",
    "centre_of_mass",
    "chance_level",
    "correct_for_chance",
    "cosine",
    "dilate",
    "get",
    "is_degenerate",
    "kendall",
    "lens_distance",
    "lens_kendall",
    "lens_precision",
    "lens_profile",
    "lens_recall",
    "lens_spearman",
    "mass_centre",
    "mse",
    "names",
    "pearson",
    "per_position",
    "similarities",
    "smooth",
    "spearman",
    "ssim",
    "top_k",
    "top_k_diverse",
    "topk_intersection",
]

SimilarityFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Similarity:
    """A similarity function with the properties that metrics use; call it as `similarity(a, b)`.

    Attributes:
        name: the name it was requested by, including options.
        function: compares two batches of maps `(N, ...)`; returns `(N,)`.
        larger_is_closer: True if larger values mean more similar maps; False for a discrepancy.
        low: default threshold: explanations below it are "inconsistent". None if no threshold suits all maps.
        high: default threshold: explanations above it are "consistent".
        differentiable: whether gradients flow through it.
        channels: how a map is reduced to one value per position before it is compared (`per_position`); None if maps
            are compared unchanged.
        ordinal: whether it compares the order of the features. A constant map has no order, so a metric skips an
            input with a constant map. (It also does this for every similarity that is no discrepancy.)
        range: the smallest and the largest value that it can take; a threshold lies between them.
    """

    name: str
    function: SimilarityFunction
    larger_is_closer: bool = True
    low: float | None = None
    high: float | None = None
    differentiable: bool = False
    channels: Channels | None = None
    ordinal: bool = False
    range: tuple[float, float] = (-math.inf, math.inf)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self._check(self.function(a, b), a)

    def _check(self, result: Tensor, a: Tensor) -> Tensor:
        check(
            isinstance(result, Tensor) and result.shape == a.shape[:1],
            f"similarity {self.name!r}",
            f"one number per row, shape {tuple(a.shape[:1])}",
            tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__,
        )
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
        if self.function is pearson:
            return CentredReference(reference).pearson
        if self.function is spearman:
            return RankedReference(reference).spearman
        return lambda maps, rows: self(reference[rows], maps)

    def compare_seen(self, a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
        """The similarity of maps on the part that is seen, as if the other values were dropped.

        `standfast.similarity.seen` has the rule of each function. For a function of your own, both maps are 0 where
        they are not seen.

        Args:
            a: maps `(N, ...)`, as they are compared (`of_maps`).
            b: maps of the same shape.
            seen: bool, of a shape that broadcasts to that of the maps, or to that before `of_maps`.

        Returns:
            `(N,)`; NaN for a pair of which nothing is seen.

        Raises:
            ArgumentError: `seen` does not fit the maps.

        >>> import torch
        >>> a, b = torch.tensor([[1.0, 2.0, 4.0, 9.0]]), torch.tensor([[1.0, 2.0, 4.0, -9.0]])
        >>> get("pearson").compare_seen(a, b, torch.tensor([[True, True, True, False]]))
        tensor([1.])
        """
        return self._check(compare_seen(self.function, a, b, seen), a)

    def of_maps(self, maps: Tensor) -> Tensor:
        """The values that are compared, for maps `(N, C, H, W)`, `(N, C, T)` or `(N, F)`.

        These are the maps themselves, or one value per position if `channels` is set.

        >>> import torch
        >>> get("lens_precision").of_maps(torch.ones(2, 3, 5, 5)).shape
        torch.Size([2, 5, 5])
        >>> get("pearson").of_maps(torch.ones(2, 3, 5, 5)).shape
        torch.Size([2, 3, 5, 5])
        """
        return maps if self.channels is None else per_position(maps, self.channels)


similarities: Registry[Similarity] = Registry(
    "similarity", "standfast.similarities", lambda entry: isinstance(entry, Similarity), named=True
)
_CORRELATION, _SHARE, _DISTANCE = (-1.0, 1.0), (0.0, 1.0), (0.0, math.inf)
for _function in (pearson, cosine, ssim, spearman, kendall):
    _differentiable = _function in (pearson, cosine, ssim)
    similarities.add(
        _function.__name__,
        Similarity(
            _function.__name__, _function, low=0.4, high=0.6, differentiable=_differentiable, range=_CORRELATION
        ),
    )
similarities.add("mse", Similarity("mse", mse, larger_is_closer=False, differentiable=True, range=_DISTANCE))
# Channels are summed with their signs. A metric that ignores signs passes absolute values, so it gets "abs_sum".
_OF_POSITIONS = (topk_intersection, lens_precision, lens_recall, lens_spearman, lens_kendall)
for _function in _OF_POSITIONS:
    _range = _CORRELATION if _function in (lens_spearman, lens_kendall) else _SHARE
    similarities.add(
        _function.__name__,
        Similarity(_function.__name__, _function, low=0.4, high=0.6, channels="sum", range=_range),
    )
for _function in (lens_distance, centre_of_mass):
    similarities.add(
        _function.__name__,
        Similarity(
            _function.__name__,
            _function,
            larger_is_closer=False,
            differentiable=_function is centre_of_mass,
            channels="sum",
            ordinal=_function is lens_distance,
            range=_DISTANCE,
        ),
    )


def names() -> list[str]:
    """Names of all registered similarities, sorted."""
    return similarities.names()


def get(similarity: str | Similarity | SimilarityFunction) -> Similarity:
    """The `Similarity` for a name, a name with options, or a function.

    Args:
        similarity: one of these:

            - a `Similarity`, which is returned unchanged.
            - a name such as `"pearson"`.
            - a name with options, such as `"ssim:window=11,gaussian=true"` or
              `"lens_precision:k=100,w=2,diverse=true,channels=max"`. Several numbers are joined by `+`:
              `"lens_distance:k=10+100,w=0+1"`.
            - a function `(a, b) -> (N,)`. If it is registered, its entry is returned. Otherwise it is assumed to be
              larger for more similar maps, not differentiable, and without default thresholds. For other properties
              make a `Similarity`.

    Raises:
        UnknownNameError: no similarity has that name.
        ArgumentError: an option is malformed, unknown, or invalid for every map.

    >>> get("topk_intersection:k=100").name
    'topk_intersection:k=100'
    >>> get("mse:kk=100")
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: option of mse: expected one of (it has none), got 'kk'
    """
    if isinstance(similarity, Similarity):
        return similarity
    if isinstance(similarity, str):
        return _from_text(similarity)
    if not callable(similarity):
        raise ArgumentError("similarity", "a name, a Similarity or a function", repr(similarity))
    for entry in similarities.loaded():  # with its direction and thresholds; its name may differ from the function's
        if entry.function is similarity:
            return entry
    return Similarity(getattr(similarity, "__name__", type(similarity).__name__), similarity)


def chance_level(
    similarity: str | Similarity | SimilarityFunction, a: Tensor, b: Tensor, draws: int = 32, seed: int = 0
) -> ChanceLevel | None:
    """The expected similarity of maps with the values and supports of `a` and `b`, drawn onto places at random.

    Args:
        similarity: `topk_intersection`, `lens_precision`, `lens_recall`, `lens_spearman` or `lens_kendall`, with any
            options, as for `get`.
        a, b: the maps as the similarity compares them, `(N, H, W)`, `(N, T)` or `(N, C, H, W)`.
        draws: how many random draws, at least 2, where there is no closed form. The random numbers of a pair depend on
            its values and on `seed` only.
        seed: of the random numbers.

    Returns:
        The chance levels with their standard errors; None for another similarity.

    Raises:
        ArgumentError: the maps do not fit the similarity, or an option is out of range.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> a, b = torch.rand(2, 1, 28, 28, generator=generator)
    >>> chance_level("topk_intersection:k=100", a, b)  # k of 784 positions
    ChanceLevel(value=tensor([0.13]), error=tensor([0.]))
    >>> chance_level("lens_precision:k=100,w=1", a, b).value, chance_level("mse", a, b)
    (tensor([0.68]), None)
    """
    return measure_chance(get(similarity).function, a, b, draws, seed)


def _from_text(text: str) -> Similarity:
    name, colon, rest = text.partition(":")
    entry = similarities[name]
    if not colon:
        return entry
    known = list(inspect.signature(entry.function).parameters)[2:]
    hints = _hints(entry.function)
    options: dict[str, Any] = {}
    for part in rest.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        check(bool(equals and value), f"option of {name}", "the form key=value", repr(part))
        check(
            key in known,
            f"option of {name}",
            f"one of {', '.join(known) or '(it has none)'}",
            repr(key) + suggest_name(key, known),
        )
        check(key not in options, f"option of {name}", "each option once", repr(text))
        options[key] = _value(f"option {key} of {name}", value, hints.get(key))
    if entry.function in (*_OF_POSITIONS, lens_distance, centre_of_mass):  # their options can be checked without a map
        check_options(**options)
    channels = options.get("channels", entry.channels)
    return replace(entry, name=text, function=partial(entry.function, **options), channels=channels)


def _hints(function: SimilarityFunction) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # the annotations of a user's function may not be resolvable
        return {}


def _value(argument: str, text: str, hint: Any) -> Any:
    """The value of an option's text: one of the option's words, a number, several numbers, true or false."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if words:
        check(text in words, argument, f"one of {', '.join(words)}", repr(text))
        return text
    value: Any = _number(text)
    several = any(get_origin(kind) is Sequence for kind in kinds)
    if value is None and several and "+" in text:
        numbers = [_number(part) for part in text.split("+")]
        value = None if None in numbers else tuple(numbers)
    expected = "a number, or several such as 10+100" if several else "a number, true or false"
    check(value is not None, argument, expected, repr(text))
    return value


def _number(text: str) -> int | float | bool | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
