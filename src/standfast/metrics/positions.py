"""Positions of an input: what counts as one, how relevant a map finds each of them, and which comes first."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.model import Model
from standfast.segments import spatial_shape
from standfast.similarity.rows import order_rows
from standfast.tensors import hashed_uniform, mix64

#: one position: an `"entry"` of any channel, or a `"pixel"` (a time step, a flat feature) with all its channels
Unit = Literal["entry", "pixel"]
#: which positions or regions come first: the most relevant, or the least relevant
Order = Literal["top", "bottom"]


def count_positions(inputs: Tensor, unit: Unit) -> int:
    """How many positions P each of `inputs` `(N, ...)` has.

    >>> inputs = torch.zeros(2, 3, 8, 9)
    >>> count_positions(inputs, "entry"), count_positions(inputs, "pixel")
    (216, 72)
    """
    if unit == "entry":
        return math.prod(inputs.shape[1:])
    return math.prod(spatial_shape(inputs))


def sum_channels(maps: Tensor) -> Tensor:
    """Maps `(N, ...)` with the channels summed, float64 `(N, pixels)`."""
    flat = maps.double().flatten(1)
    if maps.ndim == 2:
        return flat
    return flat.reshape(len(maps), maps.shape[1], -1).sum(1)


def compute_relevance(maps: Tensor, unit: Unit) -> Tensor:
    """The relevance `(N, P)` of each position in `maps` `(N, ...)`; that of a pixel is the sum over its channels.

    Sums are float64 and then rounded to float32, so that values stay tied when only the order of summation differs.

    >>> maps = torch.tensor([[[1.0, 2.0], [3.0, -4.0]]])
    >>> compute_relevance(maps, "entry").tolist(), compute_relevance(maps, "pixel").tolist()
    ([[1.0, 2.0, 3.0, -4.0]], [[4.0, -2.0]])
    """
    if unit == "entry":
        return maps.flatten(1)
    return sum_channels(maps).float()


def adapt_explainer(explainer: Explainer, unit: Unit) -> Explainer:
    """The explainer to evaluate: for single entries one whose maps differ between channels, if it has that option.

    >>> from standfast.explainers import KernelSHAP
    >>> [adapt_explainer(KernelSHAP(), unit).per_channel for unit in ("entry", "pixel")]
    [True, 'auto']
    """
    if unit == "entry":
        return explainer.for_entries()
    return explainer


def warn_of_coarse_maps(
    metric: str, model: Model, explainer: Explainer, maps: Tensor, unit: Unit
) -> None:
    """Warn, once for each model, if a metric replaces single entries but all channels have the same map."""
    if unit != "entry" or maps.ndim < 3 or maps.shape[1] < 2:
        return
    finite = maps[torch.isfinite(maps).flatten(1).all(1)]
    is_same = finite == finite[:, :1]
    if len(finite) and bool(is_same.all()) and bool((finite != 0).any()):
        if hasattr(explainer, "per_channel"):
            option = "give it per_channel=True, or "
        else:
            option = ""
        model.warn_once(
            f"{explainer.label}: its maps have the same value in all {maps.shape[1]} channels, but {metric} replaces"
            f" single entries (unit='entry'), always those of the first channel first; {option}replace pixels"
            " (unit='pixel')"
        )


def rank_with_random_ties(scores: Tensor, keys: Tensor) -> Tensor:
    """The rank of each score in its row, from 0 for the largest; NaN comes last.

    Args:
        scores: `(N, m)`.
        keys: int64 `(N,)`. Equal scores are put in order at random, by the key of their row.

    Returns:
        int64 `(N, m)`.

    >>> rank_with_random_ties(torch.tensor([[0.1, 0.3, float("nan"), 0.2]]), torch.tensor([5]))
    tensor([[2, 0, 3, 1]])
    """
    scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    # scores in a random order, sorted stably: ties stay in that order
    shuffled = order_rows(hashed_uniform(mix64(keys), scores.shape[1]))
    order = shuffled.gather(1, order_rows(-scores.gather(1, shuffled)))
    ranks = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, ranks)
