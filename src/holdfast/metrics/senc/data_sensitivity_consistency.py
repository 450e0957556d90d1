"""Data SenC: are prediction and explanation sensitive to the same parts of the input?

Problem: cut the input into m segments, switch random subsets of them off (K masks `M_i`, each segment kept with
probability p), and look at what becomes of the prediction and of the explanation:

    w_i = 1 - |P(x) - P(x_i)|      v_i = Spearman(e(x), e(x_i))      x_i = x where M_i keeps it, the baseline elsewhere

with P the probability of the originally predicted (or given) class. Segment k's sensitivity is what `w` or `v` owes to
its being kept, `S_k` (see `holdfast.algorithms.mask_sensitivity`), and `rho = Spearman(S^v, S^w)`, with the agreement
of the most sensitive one and three segments. Source: Tan, "Evaluating Sensitivity Consistency of Explanations" (WACV
2025), Sec. 3.2, Algorithm 1.

We depart from it in the estimator: the published sum is biased towards agreement (docs/senc-bias.md), so the default
is `"centred"`, and `rho_paper` says what the published one gives of the same masks. We add a null, an interval, and an
early stop. The paper's masking rate of 0.8 is read as 0.8 kept (`keep`). It says neither whether maps are compared with
their signs nor which class is explained at `x_i`; our reading is with signs (`absolute=False`), over all entries, and
the original class (`explain="origin"`).

`RandomExplainer` gives fresh noise for every mask, as the paper's baseline does, also where masks leave the same input.

Cost: `masks` predictions with explanation for each sample, and one for the sample itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.algorithms.masks.random_masks import (
    Consistency,
    consistency,
    draw_masks,
    look_schedule,
    settled,
)
from holdfast.algorithms.masks.resampling import Estimator
from holdfast.explainers import Explainer
from holdfast.explainers.base import Baseline, check_baseline, resolve_baseline
from holdfast.metrics.base import Metric, metrics, of_samples
from holdfast.metrics.probe import Explain, Probe
from holdfast.metrics.replaced_copies import ReplacedCopies
from holdfast.metrics.result import Result
from holdfast.metrics.senc.masking import Survival, published, told
from holdfast.metrics.senc.options import BIBTEX, CITATION, check_senc_options
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import Method, Segments, check_segments, segment
from holdfast.similarity import get as get_similarity
from holdfast.tensors import Streams, content_keys, draw_seed

_MASK_BITS = 1 << 24  # masks of a group of samples held at once: 16 MB, and four times that while they are drawn
_MAP_ELEMENTS = 1 << 22  # numbers in the maps that are compared at once: 16 MB
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class DataSencResult(Result):
    """Sensitivity consistency of each sample; `"degenerate"` too if prediction or explanation feels all segments alike.

    That includes weights that no mask changes, where the published sums still have an order, of chance. Such a sample
    has no interval, and by the centred estimator rho 0.

    Attributes:
        rho: Spearman's correlation of the two sensitivities over segments; NaN for skipped samples. `(N,)`
        low, high: 95% interval of rho over masks. `(N,)`
        p_value: one-sided, of rho under the null. `(N,)`
        null_low, null_high: between which 95% of rho lie when the explanation has nothing to do with the masks. `(N,)`
        rho_paper: what the published estimator gives with the same masks. `(N,)`
        top1, top3: share of the one and three most sensitive segments in common (Eq. 5). `(N,)`
        masks_used: masks with finite logits and explanation, `(N,)`.
        features: segments of each sample, `(N,)`.
        grid_fallback: superpixels could not be found, a grid stands in. `(N,)` bool
        prediction_sensitivity, explanation_sensitivity: `S_k`, `(N, m)`; NaN beyond a sample's own segments.
        segments: label maps, `(N, *spatial)`.
        origins, origin_maps: the samples and their explanations, `(N, ...)`.
    """

    rho: Tensor
    p_value: Tensor
    null_low: Tensor
    null_high: Tensor
    rho_paper: Tensor
    top1: Tensor
    top3: Tensor
    masks_used: Tensor
    features: Tensor
    grid_fallback: Tensor
    prediction_sensitivity: Tensor
    explanation_sensitivity: Tensor
    segments: Tensor
    origins: Tensor
    origin_maps: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Samples, explanations, segments and sensitivities: what the pictures are made of."""
        names = ("origins", "origin_maps", "segments", "prediction_sensitivity", "explanation_sensitivity")
        return {name: getattr(self, name).contiguous() for name in names}


@metrics.register("data_sensitivity_consistency")
@dataclass(frozen=True)
class DataSensitivityConsistency(Metric):
    """Are prediction and explanation sensitive to the same parts of the input (data SenC, Tan 2025)?

    Args:
        segments: `"auto"` (superpixels of images, windows of series, columns of flat features), `"slic"`, `"grid"`,
            `"windows"`, `"columns"`, about how many segments, or a tensor of labels; see `holdfast.segments.segment`.
            Labels for each sample are in the order of the samples; a study cuts them into jobs with the samples.
        masks: for each sample; with a `tolerance` the most.
        keep: probability that a mask keeps a segment.
        baseline: what stands where a segment is off: a number, or one for each channel; within the bounds.
        estimator: `"centred"`, or `"paper"`, whose sum is biased: it comes out high whatever the explanation, as it
            mostly counts how often a segment was kept (docs/senc-bias.md).
        explain: at a masked input, explain the `"origin"`'s class or the one `"predicted"` there.
        absolute: compare absolute attributions; the paper does not say, signed ones are our reading.
        tolerance: stop drawing masks for a sample once its 95% interval reaches no further than this from rho.
        permutations: of the null.
        resamples: of the interval's bootstrap.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = DataSensitivityConsistency(masks=200)(classifier, "input_x_gradient", digits.inputs)
    >>> bool((result.rho.abs() <= 1).all()), result.segments.shape
    (True, torch.Size([2, 28, 28]))
    """

    name: ClassVar[str] = "data_sensitivity_consistency"
    headline: ClassVar[str] = "rho"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = CITATION
    bibtex: ClassVar[str] = BIBTEX

    segments: Method | int | Tensor = "auto"
    masks: int = 5000
    keep: float = 0.8
    baseline: Baseline = 0.0
    estimator: Estimator = "centred"
    explain: Explain = "origin"
    absolute: bool = False
    tolerance: float | None = None
    permutations: int = 999
    resamples: int = 500

    def __post_init__(self) -> None:
        # a tensor of labels becomes a value that can be compared, hashed and written down
        set_fields(self, segments=check_segments(self.segments))
        check_senc_options(self)
        check_baseline(self.baseline)

    @classmethod
    def example(cls) -> DataSensitivityConsistency:
        """See `Metric`."""
        return cls(masks=60, permutations=99, resamples=50)

    def for_samples(self, inputs: Tensor, rows: slice) -> DataSensitivityConsistency:
        """See `Metric`: label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """The masks and the sample itself."""
        return self.masks + 1

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> DataSencResult:
        """See `Metric`."""
        baseline = resolve_baseline(classifier, inputs, self.baseline)
        cut = segment(inputs, self.segments)
        probe = Probe(
            classifier,
            explainer,
            inputs,
            targets,
            get_similarity("spearman"),
            absolute=self.absolute,
            explain=self.explain,
        )
        masked = _MaskedCopies(probe, inputs, cut, baseline)
        found = _Table.of(len(inputs), cut.width, inputs.device)
        seed = draw_seed(generator)
        usable = probe.usable()
        group = max(1, _MASK_BITS // (self.masks * cut.width))
        for rows in torch.split(usable, group) if len(usable) else ():
            self._group(masked, rows, seed, found)
        probe.skip(found.flat)
        return DataSencResult(
            **probe.common_fields(self),
            value=found.rho,
            **{field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name != "flat"},
            features=cut.count,
            grid_fallback=cut.fallback,
            segments=cut.labels,
            origins=inputs,
            origin_maps=probe.maps,
        )

    def _group(self, masked: _MaskedCopies, rows: Tensor, seed: int, found: _Table) -> None:
        """Evaluate the samples `rows`; each stops on its own, and draws from streams of its own."""
        features = masked.cut.count[rows].cpu()
        inputs = masked.inputs[rows]
        streams = Streams(content_keys(inputs, seed).tolist(), _CPU)
        masks = draw_masks(self.masks, features, self.keep, streams).to(inputs.device)
        weights = torch.full((2, len(rows), self.masks), torch.nan, dtype=torch.float64, device=inputs.device)
        looks = [self.masks] if self.tolerance is None else look_schedule(self.masks)
        active, start = torch.arange(len(rows), device=inputs.device), 0
        for stop in looks:
            weights[:, active, start:stop] = masked.weights(rows[active], masks[active, start:stop], start)
            start = stop
            done = torch.ones_like(active, dtype=torch.bool)
            if stop < self.masks and self.tolerance is not None:
                early = self._compare(weights, masks, features, inputs, seed, active, stop, permutations=0)
                done = settled(early, self.tolerance)
            ready = active[done]
            if len(ready):
                seen = self._compare(weights, masks, features, inputs, seed, ready, stop, self.permutations)
                paper = published(weights[:, ready, :stop], masks[ready, :stop], features[ready.cpu()])
                found.fill(rows[ready], seen, paper)
            active = active[~done]
            if not len(active):
                return

    def _compare(
        self,
        weights: Tensor,
        masks: Tensor,
        features: Tensor,
        inputs: Tensor,
        seed: int,
        rows: Tensor,
        stop: int,
        permutations: int,
    ) -> Consistency:
        """The first `stop` masks of `rows`; always with the same random numbers."""
        own = weights[:, rows, :stop]
        seen = consistency(
            own[0],
            own[1],
            masks[rows, :stop],
            features=features[rows.cpu()],
            estimator=self.estimator,
            permutations=permutations,
            resamples=self.resamples,
            streams=Streams(content_keys(inputs[rows], seed ^ 0x5E2C).tolist(), _CPU),
        )
        return told(seen, own)


class _MaskedCopies:
    """Copies of samples under masks: how well prediction and explanation survive."""

    def __init__(self, probe: Probe, inputs: Tensor, cut: Segments, baseline: Tensor) -> None:
        self.probe, self.inputs, self.cut, self.baseline = probe, inputs, cut, baseline
        self.survival, self.copies = Survival(probe), ReplacedCopies(probe, inputs)

    def weights(self, rows: Tensor, masks: Tensor, first: int) -> Tensor:
        """Prediction and explanation weights `(2, n, K)` of the samples `rows` `(n,)` under their masks `(n, K, m)`.

        NaN where logits or explanation are not finite. The masks are numbered from `first`.
        """
        count, block = masks.shape[:2]
        total = count * block
        per_input = self.probe.explainer.rows_per_input
        chunk = self.probe.classifier.inputs_per_chunk(self.inputs, per_input, "backward", total)
        size = max(_MAP_ELEMENTS // self.inputs[0].numel() // chunk, 1) * chunk
        parts = []
        for start in range(0, total, size):
            number = torch.arange(start, min(start + size, total), device=rows.device)
            row, mask = number // block, number % block
            columns = rows[row], masks[row, mask], first + mask
            maps, logits = self.copies.run(
                self._explain, self._drop, *columns, rows_per_input=per_input, kind="backward"
            )
            parts.append(self.survival.weigh(rows[row], maps, logits))
        return torch.cat(parts, 1).reshape(2, count, block)

    def _drop(self, owner: Tensor, masks: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the segments that `masks` `(M, m)` do not keep."""
        dropped = (~masks).to(self.inputs.dtype)
        return dropped.gather(1, self.cut.labels.index_select(0, owner).flatten(1)), self.baseline

    def _explain(self, copies: Tensor, owner: Tensor, masks: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        return self.survival.explain(copies, self.probe.targets[owner], number + 1)


@dataclass
class _Table:
    """The columns of a result while they are filled; NaN (0 of counts) for samples that were skipped."""

    rho: Tensor
    low: Tensor
    high: Tensor
    p_value: Tensor
    null_low: Tensor
    null_high: Tensor
    rho_paper: Tensor
    top1: Tensor
    top3: Tensor
    masks_used: Tensor
    prediction_sensitivity: Tensor
    explanation_sensitivity: Tensor
    flat: Tensor

    @classmethod
    def of(cls, samples: int, width: int, device: torch.device) -> _Table:
        columns = {}
        for field in dataclasses.fields(cls):
            shape = (samples, width) if field.name.endswith("_sensitivity") else (samples,)
            columns[field.name] = torch.full(shape, torch.nan, dtype=torch.float64, device=device)
        count = torch.zeros(samples, dtype=torch.int64, device=device)
        return cls(**{**columns, "masks_used": count, "flat": count.bool()})

    def fill(self, rows: Tensor, seen: Consistency, paper: Tensor) -> None:
        (low, high), (null_low, null_high) = seen.interval.unbind(1), seen.null_band.unbind(1)
        columns = {
            **{name: getattr(seen, name) for name in ("rho", "p_value", "top1", "top3", "masks_used")},
            "low": low,
            "high": high,
            "null_low": null_low,
            "null_high": null_high,
            "rho_paper": paper,
            "flat": seen.degenerate,
        }
        for name, values in columns.items():
            column = getattr(self, name)
            column[rows] = values.to(column.dtype)
        width = seen.prediction_sensitivity.shape[1]
        self.prediction_sensitivity[rows, :width] = seen.prediction_sensitivity
        self.explanation_sensitivity[rows, :width] = seen.explanation_sensitivity
