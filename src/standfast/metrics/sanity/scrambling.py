"""Maps of scrambled models, with which those of the model are compared."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers import Explainer, RandomisedExplainer
from standfast.metrics.sanity.samples import ExplainedSamples, centre_outputs, predict
from standfast.model import Model
from standfast.similarity import is_degenerate

#: how many scrambled models each sample is compared with
SCRAMBLED = 3
#: into how many groups samples are divided at most, each with scrambled models of its own
GROUPS = 10
#: how few samples make a group: with fewer, they hide how much scrambled models differ
GROUP_SIZE = 10
#: so many places of weights are drawn for a model at most, unless those of one group are more: 128 MB, and two seconds
PLACES = 1 << 24


@dataclass(frozen=True)
class ScrambledMaps:
    """What scrambled models explain.

    Attributes:
        maps: of each sample those of its scrambled models, `(SCRAMBLED, n, ...)`; zeros where a map is lost.
        lost: where there is no map that says something about scrambled weights, bool `(SCRAMBLED, n)`.
        groups: the number of each sample's group, `(n,)`: samples of one group have the same scrambled models.
    """

    maps: Tensor
    lost: Tensor
    groups: Tensor

    def average(self, values: Tensor) -> Tensor:
        """The mean over scrambled models `(n,)` of values `(SCRAMBLED, n)`; NaN where all maps are lost."""
        return values.masked_fill(self.lost, torch.nan).nanmean(0)


def divide_into_groups(x: Tensor, weights: int) -> Tensor:
    """The number of the group of each sample `(n,)`: neighbours are in different groups, which are of equal size.

    Args:
        x: the samples, `(n, ...)`.
        weights: of the model. Drawing the places of many takes seconds, for each scrambled model.
    """
    most = PLACES // (SCRAMBLED * max(weights, 1))
    groups = max(1, min(GROUPS, len(x) // GROUP_SIZE, most))
    return torch.arange(len(x), device=x.device) % groups


def explain_scrambled(samples: ExplainedSamples) -> ScrambledMaps | None:
    """The maps of scrambled models; None if the model cannot be scrambled, or none of them be explained."""
    x = samples.x
    if x[0].numel() < 3:  # two values are always correlated by 1 or -1
        return None
    weights = sum(parameter.numel() for parameter in samples.model.module.parameters())
    groups = divide_into_groups(x, weights)
    maps = samples.maps.new_full((SCRAMBLED, *samples.maps.shape), torch.nan)
    with contextlib.suppress(Exception):  # a module may refuse what another one accepts
        count = int(groups.max()) + 1
        for seed in range(SCRAMBLED * count):
            group, number = divmod(seed, SCRAMBLED)
            members = (groups == group).nonzero()[:, 0]
            explained = _explain_members(samples, members, seed)
            if explained is not None:
                maps[number, members] = explained.to(maps)
    if bool(maps.isnan().all()):
        return None
    numbers = maps.nan_to_num(0.0, 0.0, 0.0)
    # a map that gives up on scrambled weights says nothing about them
    is_constant = torch.stack([is_degenerate(of_number.nan_to_num()) for of_number in maps])
    is_finite = maps.flatten(2).isfinite().all(2)
    return ScrambledMaps(numbers, ~is_finite | is_constant, groups)


def _explain_members(samples: ExplainedSamples, members: Tensor, seed: int) -> Tensor | None:
    """The maps of one scrambled model of some samples; None if it answers as before.

    So does a model whose only parameter is a factor.
    """
    model = samples.model
    x = samples.x[members]
    shuffled = RandomisedExplainer(samples.explainer, seed=seed)
    explainer: Explainer
    if any(True for _ in model.module.parameters()):
        scrambled = model
        explainer = shuffled
        shuffling: contextlib.AbstractContextManager[None] = shuffled.shuffling(model.module)
    else:
        scrambled = _permute_columns(model, x, seed)
        explainer = samples.explainer
        shuffling = contextlib.nullcontext()
    with scrambled.session():
        with shuffling:
            logits = predict(scrambled, x)
        if _answers_alike(model, logits, samples.logits[members]):
            return None
        maps, _ = explainer.attribute_all(scrambled, x, samples.answers[members])
    samples.probe.charge(samples.rows[members], 2)
    return maps


def _answers_alike(model: Model, logits: Tensor, others: Tensor) -> bool:
    """Whether logits `(m, K)` are the same but for rounding, and for what no softmax sees."""
    centred = centre_outputs(model, logits)
    other = centre_outputs(model, others)
    scale = float(other.abs().max())
    return torch.allclose(centred, other, rtol=1e-4, atol=1e-4 * scale)


def _permute_columns(model: Model, x: Tensor, seed: int) -> Model:
    """A model that reads the features of an input in another order."""
    count = x[0].numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    # the identity would scramble nothing
    if count > 1 and bool((order == torch.arange(count)).all()):
        order = order.roll(1)
    order, preprocess = order.to(x.device), model.preprocess

    def permute(rows: Tensor) -> Tensor:
        moved = rows.flatten(1)[:, order].reshape(rows.shape)
        if preprocess is None:
            return moved
        return preprocess(moved)

    permuted = copy.copy(model)
    permuted.preprocess = permute
    permuted.fitting = set()
    return permuted
