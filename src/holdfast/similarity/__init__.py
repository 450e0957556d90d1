"""How alike are two attribution maps? Pure batched functions `(a, b) -> (N,)`, and a registry of them.

>>> import torch
>>> from holdfast import similarity
>>> similarity.names()
['cosine', 'kendall', 'mse', 'pearson', 'spearman', 'ssim', 'topk_intersection']
>>> top = similarity.get("topk_intersection:k=1")
>>> top(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[0.0, 3.0, 1.0]]))
tensor([1.])
>>> top.name, top.low, top.high
('topk_intersection:k=1', 0.4, 0.6)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.registry import Registry
from holdfast.similarity.pointwise import cosine, mse, pearson
from holdfast.similarity.rank import kendall, spearman, topk_intersection
from holdfast.similarity.rows import degenerate
from holdfast.similarity.structural import ssim

__all__ = [
    "Similarity",
    "SimilarityFunction",
    "cosine",
    "degenerate",
    "get",
    "kendall",
    "mse",
    "names",
    "pearson",
    "registry",
    "spearman",
    "ssim",
    "topk_intersection",
]

SimilarityFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Similarity:
    """A similarity function with what a metric has to know of it; call it as `similarity(a, b)`.

    Attributes:
        name: what it was asked for by, options included.
        function: maps `(N, ...)` and `(N, ...)` to `(N,)`.
        larger_is_closer: False for a discrepancy.
        low: default threshold of "inconsistent"; None where no number suits all maps.
        high: default threshold of "consistent".
        differentiable: whether gradients flow through it.
    """

    name: str
    function: SimilarityFunction
    larger_is_closer: bool = True
    low: float | None = None
    high: float | None = None
    differentiable: bool = False

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        result = self.function(a, b)
        check(
            isinstance(result, Tensor) and result.shape == a.shape[:1],
            f"similarity {self.name!r}",
            f"one number per row, shape {tuple(a.shape[:1])}",
            tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__,
        )
        return result


registry: Registry[Similarity] = Registry("similarity")
for _function in (pearson, cosine, ssim):
    registry.add(_function.__name__, Similarity(_function.__name__, _function, low=0.4, high=0.6, differentiable=True))
for _function in (spearman, kendall, topk_intersection):
    registry.add(_function.__name__, Similarity(_function.__name__, _function, low=0.4, high=0.6))
registry.add("mse", Similarity("mse", mse, larger_is_closer=False, differentiable=True))


def names() -> list[str]:
    """Names of all registered similarities, sorted."""
    return registry.names()


def get(similarity: str | Similarity | SimilarityFunction) -> Similarity:
    """The similarity that a name, with or without options, or a function stands for.

    Args:
        similarity: a `Similarity`, returned as it is; a name such as `"pearson"`, or one with options such as
            `"ssim:window=11,gaussian=true"`; or a function `(a, b) -> (N,)`, taken to be larger for more
            alike maps, not differentiable, without default thresholds. Build a `Similarity` to say otherwise.

    Raises:
        UnknownNameError: no similarity has that name.
        ArgumentError: an option is malformed or unknown.

    >>> get("topk_intersection:k=100").name
    'topk_intersection:k=100'
    >>> get("topk_intersection:kk=100")
    Traceback (most recent call last):
        ...
    holdfast.errors.ArgumentError: option of topk_intersection: expected one of k, got 'kk'
    """
    if isinstance(similarity, Similarity):
        return similarity
    if isinstance(similarity, str):
        return _from_text(similarity)
    if not callable(similarity):
        raise ArgumentError("similarity", "a name, a Similarity or a function", repr(similarity))
    for name in registry:
        if registry[name].function is similarity:
            return registry[name]
    return Similarity(getattr(similarity, "__name__", type(similarity).__name__), similarity)


def _from_text(text: str) -> Similarity:
    name, colon, rest = text.partition(":")
    entry = registry[name]
    if not colon:
        return entry
    known = list(inspect.signature(entry.function).parameters)[2:]
    options: dict[str, int | float | bool] = {}
    for part in rest.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        check(bool(equals and value), f"option of {name}", "the form key=value", repr(part))
        check(key in known, f"option of {name}", f"one of {', '.join(known) or '(it has none)'}", repr(key))
        check(key not in options, f"option of {name}", "each option once", repr(text))
        options[key] = _number(f"option {key} of {name}", value)
    return replace(entry, name=text, function=partial(entry.function, **options))


def _number(argument: str, value: str) -> int | float | bool:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for parse in (int, float):
        try:
            return parse(value)
        except ValueError:
            continue
    raise ArgumentError(argument, "a number, true or false", repr(value))
