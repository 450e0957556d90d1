"""How often the reasons of each decision are named again."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from standfast.metrics.result import Result


@dataclass(frozen=True, repr=False)
class ReasonsResult(Result):
    """How often the reasons of each sample are named again.

    Attributes:
        value: the share of the draws that keep the answer in which the first features are the same, with the same
            signs, `(N,)`; of more than 20 reasons the mean share of them that is named again. NaN where nothing was
            varied, or no draw keeps the answer.
        low, high: its 95% interval, `(N,)`.
        same_order: the share in which they have the same order, too, `(N,)`.
        chance: the probability that an unrelated map names a reason, k / F, `(N,)`.
        reasons: how many features are named at the clean input, `(N,)`: fewer than k where others are 0 or tie.
        holding, falling: how many of them are decided, `(N,)`.
        drawn: draws with finite numbers, `(N,)`.
        answer_kept: those of them in which the model answers as at the clean input, `(N,)`.
        looks: how often the draws were looked at, `(N,)`.
        varied: whether there is anything that differs in the draws, bool `(N,)`.
        varied_seed, varied_background, varied_measurement: which sources there are, bool `(N,)`.
        few_samples: whether the explainer draws so few samples that the mean over its seeds is wrong, bool `(N,)`.
        answer_score: the probability of the answer, or the number by which it is compared, `(N,)`.
        origin_input: the clean inputs, `(N, ...)`.
        origin_map: of the clean inputs, one value for each feature, `(N, F)`.
        named_for, named_against: in how many of the draws that keep the answer a feature is among the first ones, and
            speaks for the answer, or against it, `(N, F)`.
        mean_map: the mean over these draws, `(N, F)`.
        named_low, named_high: the limits by which reasons are decided, after all looks, `(N, F)`; 0 and 1 of features
            that are no reasons. None of more than 20 reasons.
        draw_maps: of each draw, `(N, R, F)`; NaN where it was not made, or does not keep the answer. None for large
            maps.
    """

    stored = (
        "origin_input",
        "origin_map",
        "named_for",
        "named_against",
        "mean_map",
        "named_low",
        "named_high",
        "draw_maps",
    )

    same_order: Tensor
    chance: Tensor
    reasons: Tensor
    holding: Tensor
    falling: Tensor
    drawn: Tensor
    answer_kept: Tensor
    looks: Tensor
    varied: Tensor
    varied_seed: Tensor
    varied_background: Tensor
    varied_measurement: Tensor
    few_samples: Tensor
    answer_score: Tensor
    origin_input: Tensor = field(kw_only=True, metadata={"per_sample": False})
    origin_map: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_for: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_against: Tensor = field(kw_only=True, metadata={"per_sample": False})
    mean_map: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_low: Tensor | None = field(default=None, kw_only=True, metadata={"per_sample": False})
    named_high: Tensor | None = field(default=None, kw_only=True, metadata={"per_sample": False})
    draw_maps: Tensor | None = field(default=None, kw_only=True)
