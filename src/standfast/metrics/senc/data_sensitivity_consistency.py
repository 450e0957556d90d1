"""Data SenC: are prediction and explanation sensitive to the same parts of the input?

Problem: cut the input x into m segments and switch random subsets of them off: K masks `M_i`, where each segment is
kept with probability p. Compare prediction and explanation of the masked input `x_i` with those of x:

    w_i = 1 - |P(x) - P(x_i)|      v_i = Spearman(e(x), e(x_i))      x_i = x where M_i keeps it, the baseline elsewhere

with P the probability of the predicted (or given) class of x. The sensitivity `S_k` of segment k is how much of `w` or
`v` depends on keeping it (see `standfast.algorithms.mask_sensitivity`). The result is `rho = Spearman(S^v, S^w)`, with
the agreement of the most sensitive one and three segments. Source: Tan, "Evaluating Sensitivity Consistency of
Explanations" (WACV 2025), Sec. 3.2, Algorithm 1.

We depart from it in the estimator: the published sum is biased (docs/senc-bias.md), so the default is
`"centred"`, and `rho_paper` is what the published one gives with the same masks. We add a null, an interval, and an
early stop. The paper's masking rate of 0.8 is read as 0.8 kept (`keep`). The paper does not say whether maps are
compared with their signs, nor which class is explained at `x_i`. Our reading is with signs (`absolute=False`), over all
entries, and the class of x (`explain="origin"`).

`RandomExplainer` gives fresh noise for every mask, as the paper's baseline does, even where masks give the same input.

Cost: `masks` predictions with explanation for each sample, and one for the sample itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from standfast.algorithms.masks.random_masks import draw_masks
from standfast.explainers.base import BaselineOption, resolve_baseline
from standfast.metrics.base import Cost, metrics
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import ReplacedCopies
from standfast.metrics.senc.masking import MaskedComparison
from standfast.metrics.senc.sensitivity_consistency import (
    CPU,
    NUMBERS,
    ConsistencyTable,
    MaskedGroup,
    SensitivityConsistency,
    SensitivityConsistencyResult,
)
from standfast.segments import Segments, SegmentsOption, segment
from standfast.tensors import Streams, content_keys, send


@dataclass(frozen=True)
class DataSencResult(SensitivityConsistencyResult):
    """Sensitivity consistency of each sample over the segments of the input.

    A sample is also `"degenerate"` if prediction or explanation is equally sensitive to all segments. This includes
    weights that no mask changes, where the published sums still order the segments, by chance. Such a sample has no
    interval, and by the centred estimator its rho is 0.

    The other attributes are those of `SensitivityConsistencyResult`.

    Attributes:
        features: segments of each sample, `(N,)`.
        grid_fallback: no superpixels were found, and a grid replaces them. `(N,)` bool
        segments: label maps, `(N, *spatial)`.
    """

    stored = (*SensitivityConsistencyResult.stored, "segments")

    features: Tensor
    grid_fallback: Tensor
    segments: Tensor


@metrics.register("data_sensitivity_consistency")
@dataclass(frozen=True)
class DataSensitivityConsistency(SensitivityConsistency):
    """Are prediction and explanation sensitive to the same parts of the input (data SenC, Tan 2025)?

    Args:
        segments: `"auto"` (superpixels of images, windows of series, columns of flat features), `"slic"`, `"grid"`,
            `"windows"`, `"columns"`, about how many segments, or a tensor of labels; see `standfast.segments.segment`.
            Labels for each sample are in the order of the samples; a study cuts them into jobs with the samples.
        baseline: what replaces a segment that is off: a number, or one for each channel; within the bounds. By default
            0, and for tables the baseline of the model's reference.

    `masks`, `keep` and the other options are those of `SensitivityConsistency`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = DataSensitivityConsistency(masks=200)(model, "input_x_gradient", digits.inputs)
    >>> bool((result.value.abs() <= 1).all()), result.segments.shape
    (True, torch.Size([2, 28, 28]))
    """

    name = "data_sensitivity_consistency"
    parts = "parts of the input"
    removal_options = ("baseline",)
    presets = {
        "quick": {"masks": 60, "permutations": 199, "resamples": 200},
        "paper": {"estimator": "paper"},
    }

    segments: SegmentsOption = "auto"
    baseline: BaselineOption = field(default=None, kw_only=True)

    @classmethod
    def example(cls) -> DataSensitivityConsistency:
        return cls(masks=60, permutations=99, resamples=50)

    def cost(self, classes: int | None = None) -> Cost:
        """The masks and the sample itself."""
        return Cost(predictions=0, explanations=self.masks + 1)

    def evaluate(self, call: Call) -> DataSencResult:
        """Draw masks for every sample, and compare the samples under their masks with those without."""
        inputs = call.inputs
        probe = self.make_probe(call)
        seed = call.seed
        assert not isinstance(self.segments, Tensor)  # since `__post_init__`
        cut = segment(inputs, self.segments)
        masked = _MaskedCopies(
            probe, inputs, cut, resolve_baseline(call.model, inputs, self.baseline)
        )
        table = ConsistencyTable.create(len(inputs), 1, cut.width, inputs.device)
        for rows in self.split_rows(probe.usable(), cut.width):
            features = cut.count[rows].cpu()
            samples = inputs[rows]
            masks = draw_masks(
                self.masks, features, self.keep, Streams(content_keys(samples, seed).tolist(), CPU)
            )
            self.evaluate_group(
                MaskedGroup(
                    rows, samples, send(masks, inputs.device), features, seed, masked.weights
                ),
                table,
            )
        probe.skip(table.degenerate[:, 0])
        return DataSencResult(
            **probe.common_fields(self),
            **{name: getattr(table, name)[:, 0] for name in NUMBERS[1:]},
            value=table.rho[:, 0],
            low=table.interval[:, 0, 0],
            high=table.interval[:, 0, 1],
            null_low=table.null_band[:, 0, 0],
            null_high=table.null_band[:, 0, 1],
            prediction_sensitivity=table.prediction_sensitivity[:, 0],
            explanation_sensitivity=table.explanation_sensitivity[:, 0],
            origins=inputs,
            origin_maps=probe.maps,
            features=cut.count,
            grid_fallback=cut.fallback,
            segments=cut.labels,
        )


class _MaskedCopies:
    """Copies of samples under masks: how similar prediction and explanation stay."""

    def __init__(self, probe: Probe, inputs: Tensor, cut: Segments, baseline: Tensor) -> None:
        self.probe = probe
        self.inputs = inputs
        self.cut = cut
        self.baseline = baseline
        self.comparison, self.copies = MaskedComparison(probe), ReplacedCopies(probe, inputs)

    def weights(self, rows: Tensor, masks: Tensor, first: int) -> Tensor:
        """Prediction and explanation weights `(2, n, K)` of the samples `rows` `(n,)` under their masks `(n, K, m)`.

        NaN where logits or explanation are not finite. The masks are numbered from `first`.
        """
        count, block = masks.shape[:2]
        total = count * block
        per_input = self.probe.explainer.count_rows_of(self.inputs)
        size = self.probe.choose_block_size(self.inputs, total)
        parts = []
        for start in range(0, total, size):
            number = torch.arange(start, min(start + size, total), device=rows.device)
            row = number // block
            mask = number % block
            columns = rows[row], masks[row, mask], first + mask
            maps, logits = self.copies.run(
                self._explain, self._drop, *columns, rows_per_input=per_input, kind="backward"
            )
            parts.append(self.comparison.weigh(rows[row], maps, logits))
        return torch.cat(parts, 1).reshape(2, count, block)

    def _drop(self, owner: Tensor, masks: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the segments that `masks` `(M, m)` do not keep."""
        dropped = (~masks).to(self.inputs.dtype)
        return dropped.gather(1, self.cut.labels.index_select(0, owner).flatten(1)), self.baseline

    def _explain(
        self, copies: Tensor, owner: Tensor, masks: Tensor, number: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.comparison.explain(copies, self.probe.targets[owner], number + 1)
