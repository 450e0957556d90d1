"""Log-odds score: does erasing what speaks for a class, rather than for another, turn the prediction towards it?

Problem: an input of class o is to become one of class t by erasing pixels. With maps S_o and S_t of the two classes,
the pixels with the largest S_o - S_t are erased, only those where it is positive, and no more than a fraction of all.
The score is what became of the log-odds of the two classes:

    [log p_o(x) - log p_t(x)] - [log p_o(x_erased) - log p_t(x_erased)]

a difference of logits; larger is better. Source: Shrikumar, Greenside and Kundaje, "Learning Important Features Through
Propagating Activation Differences" (DeepLIFT), ICML 2017, Sec. 4.1: MNIST, 8 to 3, 8 to 6, 9 to 1, 4 to 1, up to 20%
(157 pixels).

Equal differences are put in order at random, in the same way for all explainers; nothing else is drawn.
`RandomExplainer` and `CentreExplainer` ignore the class by design, so their S_o - S_t is 0: as baselines they erase as
much as is allowed, largest S_o first. Any other explainer that ignores the class has nothing to erase: "degenerate".

Cost: for each pair that a sample belongs to, one explanation and one prediction; and one explanation of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers import CentreExplainer, Explainer, RandomExplainer
from holdfast.explainers.base import Baseline, check_baseline, resolve_baseline
from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.positions import rank_with_random_ties, sum_channels
from holdfast.metrics.probe import Probe
from holdfast.metrics.replaced_copies import ReplacedCopies, sample_keys
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import spatial_shape
from holdfast.tensors import draw_seed

Pairs = tuple[tuple[int, int], ...]

_ELEMENTS = 1 << 22  # numbers in the maps that are compared at once: 16 MB


@dataclass(frozen=True)
class LogOddsResult(Result):
    """Changes of log-odds; a sample of a class that begins no pair is `"ok"` and has no value (NaN).

    `"degenerate"`: for each of the sample's pairs, S_o - S_t is the same at all pixels.

    Attributes:
        log_odds: mean of `per_pair` over the pairs that a sample belongs to; NaN if there is none, or it was skipped.
            `(N,)`
        converted: for which share of them the erased input has a larger logit of t than of o. `(N,)`
        erased: mean share of pixels erased. `(N,)`
        per_pair: the change for each pair, NaN where a sample does not belong to it. `(N, P)`
        before, after: the log-odds at the sample and at the erased input, likewise. `(N, P)`
        towards: class t, -1 likewise; int64 `(N, P)`.
        erased_pixels: which pixels were erased, bool `(N, P, *spatial)`.
    """

    log_odds: Tensor
    converted: Tensor
    erased: Tensor
    per_pair: Tensor
    before: Tensor
    after: Tensor
    towards: Tensor
    erased_pixels: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """What there is for each pair."""
        names = ("per_pair", "before", "after", "towards", "erased_pixels")
        return {name: getattr(self, name).contiguous() for name in names}

    def columns(self) -> dict[str, Any]:
        """See `Result`; with a column `log_odds_O_T` for every pair of classes."""
        pairs = columns_of_pairs(self.options)
        return {**super().columns(), **(dict(zip(pairs, self.per_pair.T.tolist(), strict=True)) if pairs else {})}


@metrics.register("log_odds")
@dataclass(frozen=True)
class LogOdds(Metric):
    """Change of the log-odds of two classes when the pixels that tell them apart are erased (Shrikumar et al. 2017).

    Args:
        pairs: classes `(o, t)`: a sample that is explained as an o is turned towards t. None: every sample towards the
            class with the second largest logit. The default is for digits.
        fraction: of all pixels, time steps or flat features, how many may be erased (rounded, at least one).
        baseline: what erased pixels become: a number, or one for each channel; within the bounds.

    Raises:
        ArgumentError: options out of range; in the call, classes that the model does not have, a baseline outside the
            bounds.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:6]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = LogOdds(pairs=None)(classifier, "input_x_gradient", digits.inputs)
    >>> result.per_pair.shape, bool((result.log_odds > 0).all()), bool((result.erased <= 157 / 784).all())
    (torch.Size([6, 1]), True, True)
    """

    name: ClassVar[str] = "log_odds"
    category: ClassVar[str] = "faithfulness"
    headline: ClassVar[str] = "log_odds"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "shrikumar2017deeplift"
    bibtex: ClassVar[str] = """@inproceedings{shrikumar2017deeplift,
  title     = {Learning Important Features Through Propagating Activation Differences},
  author    = {Shrikumar, Avanti and Greenside, Peyton and Kundaje, Anshul},
  booktitle = {Proceedings of the 34th International Conference on Machine Learning (ICML)},
  year      = {2017}
}"""

    pairs: Pairs | None = ((8, 3), (8, 6), (9, 1), (4, 1))
    fraction: float = 0.2
    baseline: Baseline = 0.0

    def __post_init__(self) -> None:
        expected = "None, or pairs of different classes such as ((8, 3), (9, 1)), each once"
        if self.pairs is not None:
            fine = isinstance(self.pairs, list | tuple) and len(self.pairs) > 0
            check(fine and all(map(_is_pair, self.pairs)), "pairs", expected, repr(self.pairs))
            pairs = tuple((int(o), int(t)) for o, t in self.pairs)
            check(len(set(pairs)) == len(pairs), "pairs", expected, repr(self.pairs))
            set_fields(self, pairs=pairs)
        fine = isinstance(self.fraction, int | float) and not isinstance(self.fraction, bool) and 0 < self.fraction <= 1
        check(fine, "fraction", "a number above 0, at most 1", repr(self.fraction))
        check_baseline(self.baseline)

    @classmethod
    def example(cls) -> LogOdds:
        """See `Metric`."""
        return cls(pairs=None)

    def expected_evaluations(self) -> int:
        """Explanations of both classes and the erased input; a sample belongs to one pair, as a rule, or to none."""
        return 3

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> LogOddsResult:
        """See `Metric`."""
        baseline = resolve_baseline(classifier, inputs, self.baseline)
        probe = Probe(classifier, explainer, inputs, targets)
        towards = self._towards(probe)
        rows, pair = (towards >= 0).nonzero().unbind(1)
        keys = sample_keys(inputs, draw_seed(generator))
        erase = _Eraser(probe, inputs, keys, baseline, self.fraction)
        shape = towards.shape
        before, after = torch.full((2, *shape), torch.nan, dtype=torch.float64, device=inputs.device)
        spatial = spatial_shape(inputs)
        gone = torch.zeros(*shape, *spatial, dtype=torch.bool, device=inputs.device)
        flat = torch.zeros(shape, dtype=torch.bool, device=inputs.device)
        size = max(1, _ELEMENTS // inputs[0].numel())
        for start in range(0, len(rows), size):
            row, column = rows[start : start + size], pair[start : start + size]
            other = towards[row, column]
            before[row, column] = _odds(probe.logits[row], probe.targets[row], other)
            pixels, flat[row, column], fine = erase.choose(row, other)
            gone[row, column] = pixels.reshape(-1, *spatial)
            after[row, column] = torch.where(fine, erase.odds(row, other, pixels), torch.nan)
        belongs = towards >= 0
        per_pair = before - after
        counted = per_pair.isfinite()
        pixels_gone = gone.flatten(2).double().mean(2)
        probe.skip(belongs.any(1) & (flat == belongs).all(1))
        log_odds = _mean(per_pair, counted)
        return LogOddsResult(
            **probe.common_fields(self),
            value=log_odds,
            log_odds=log_odds,
            converted=_mean((after < 0).double(), counted),
            erased=_mean(pixels_gone, counted),
            per_pair=per_pair,
            before=before,
            after=after,
            towards=towards,
            erased_pixels=gone,
        )

    def _towards(self, probe: Probe) -> Tensor:
        """Class t of each pair that each sample belongs to, else -1; int64 `(N, P)`."""
        own, classes = probe.targets, probe.logits.shape[1]
        usable = torch.zeros(len(own), dtype=torch.bool, device=own.device)
        usable[probe.usable()] = True
        if self.pairs is None:
            second = probe.logits.scatter(1, own[:, None], -torch.inf).argmax(1)
            return torch.where(usable, second, -1)[:, None]
        highest = max(max(pair) for pair in self.pairs)
        check(highest < classes, "pairs", f"classes from 0 to {classes - 1}, or None", self.pairs)
        first, second = torch.tensor(self.pairs, device=own.device).T
        return torch.where(usable[:, None] & (own[:, None] == first), second, -1)


class _Eraser:
    """Chooses what is to be erased, and looks at what is left; evaluations are counted in the probe."""

    def __init__(self, probe: Probe, inputs: Tensor, keys: Tensor, baseline: Tensor, fraction: float) -> None:
        self.probe, self.inputs, self.keys, self.baseline = probe, inputs, keys, baseline
        self.copies = ReplacedCopies(probe, inputs)
        self.most = max(1, round(fraction * math.prod(spatial_shape(inputs))))

    def choose(self, rows: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What to erase of the samples `rows` `(M,)` to get to the classes `other`, bool `(M, places)`.

        And where the maps do not tell pixels apart, and where they do and are finite, both bool `(M,)`.
        """
        probe = self.probe
        explainer, classifier = probe.explainer, probe.classifier

        def explain(x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
            return explainer.attribute(classifier, x, classes)

        mine = sum_channels(probe.maps[rows])
        if isinstance(explainer, RandomExplainer | CentreExplainer):
            theirs = mine.amin(1, keepdim=True)
        else:
            maps, _ = classifier.map_rows(
                explain, self.inputs[rows], other, rows_per_input=explainer.rows_per_input, kind="backward"
            )
            theirs = sum_channels(maps)
        difference = mine - theirs
        finite = torch.isfinite(difference).all(1)
        eps = torch.finfo(self.inputs.dtype).eps
        flat = finite & _same(difference, eps * torch.maximum(mine.abs(), theirs.abs()))
        probe.count(rows, flat, ~finite)
        fine = finite & ~flat
        chosen = (rank_with_random_ties(difference, self.keys[rows]) < self.most) & (difference > 0)
        return chosen & fine[:, None], flat, fine

    def odds(self, rows: Tensor, other: Tensor, pixels: Tensor) -> Tensor:
        """The log-odds of the samples `rows` `(M,)` without `pixels` `(M, P)`; NaN where they are not finite."""

        def score(logits: Tensor, owner: Tensor, pixels: Tensor, other: Tensor) -> Tensor:
            return _odds(logits, self.probe.targets[owner], other)

        def erase(owner: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            return pixels.to(self.inputs.dtype), self.baseline

        return self.copies.scores(score, erase, rows, pixels, other)


def _same(values: Tensor, rounding: Tensor) -> Tensor:
    """Whether all of each row of `values` `(M, m)` are the same but for rounding, which is of that size; `(M,)`."""
    return values.amax(1) - values.amin(1) <= 8 * rounding.amax(1)


def _odds(logits: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """`log p_own - log p_other`, float64 `(M,)`: the normalisation cancels."""
    odds = logits.double().gather(1, torch.stack((own, other), 1))
    found = odds[:, 0] - odds[:, 1]
    return torch.where(torch.isfinite(logits).all(1), found, torch.nan)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over the counted of each row, `(N,)`; NaN where there are none."""
    return torch.where(counted, values, 0.0).sum(1) / counted.sum(1)


def _is_pair(pair: object) -> bool:
    fine = isinstance(pair, list | tuple) and len(pair) == 2
    return fine and all(type(c) is int and c >= 0 for c in pair) and pair[0] != pair[1]  # type: ignore[attr-defined,index]


def columns_of_pairs(options: Mapping[str, Any]) -> list[str]:
    """What the frame calls the pairs; none where every sample has a pair of its own."""
    return [f"log_odds_{o}_{t}" for o, t in options.get("pairs") or ()]
