"""AOPC: how fast does the prediction fall when regions are replaced in the order of the explanation?

Problem: cut the input into regions and score each by the sum of the map over it. Take the regions in the order of
their scores and replace one after the other: x^(0) = x, and x^(k) has the first k regions replaced by random values.
With f the score of the explained class, the area over the perturbation curve is

    AOPC_L = 1 / (L + 1) * mean over draws of  sum_{k=0}^{L} f(x^(0)) - f(x^(k))

Most relevant first ("MoRF"), a good map makes it large; least relevant first ("LeRF"), small. Source: Samek, Binder,
Montavon, Lapuschkin and Mueller, "Evaluating the visualization of what a deep neural network has learned", IEEE TNNLS
28(11), 2017: the definitions of region perturbation and of AOPC. There the mean also runs over a data set; here every
sample has a value of its own. They use 9x9 pixels, 100 steps, and uniform values.

What we add: the error that the finite number of draws leaves, and noise that is the same for all explainers. Equal
region scores are put in order at random, again the same for all explainers.

AOPC says how faithful a map is to the model, not whether it holds when the input moves. Inputs with regions replaced
by noise are like none the model was trained on, so part of every drop is due to that: compare with `RandomExplainer`.

Cost: `draws * steps` predictions for each sample, and one with explanation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check, check_integer
from holdfast.explainers import Explainer
from holdfast.explainers.base import Baseline, check_baseline, resolve_baseline
from holdfast.metrics.base import Metric, metrics, of_samples
from holdfast.metrics.faithfulness.regions import cut_regions, sum_over_regions
from holdfast.metrics.positions import rank_with_random_ties
from holdfast.metrics.probe import Probe
from holdfast.metrics.replaced_copies import (
    PerturbationCurves,
    ReplacedCopies,
    Score,
    draw_keys,
    sample_keys,
    scores_of,
)
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import Method, check_segments
from holdfast.tensors import draw_seed, hashed_uniform

#: samples behind a line of the figure
DRAWN = 500


@dataclass(frozen=True)
class AOPCResult(Result):
    """The area over the perturbation curve of each sample; `"degenerate"` too if all regions have the same score.

    Attributes:
        aopc: the mean of `curve` up to the sample's last step; NaN for skipped samples. Between -1 and 1 for
            probabilities. `(N,)`
        std_error: of `aopc`, from its spread over draws; NaN with a single draw. It is the noise's alone. `(N,)`
        score: `f(x^(0))`, the class's probability or logit at the sample itself. `(N,)`
        regions: regions of each sample. `(N,)`
        steps: how many of them were replaced in the end. `(N,)`
        grid_fallback: superpixels could not be found, a grid stands in. `(N,)` bool
        curve: `f(x^(0)) - f(x^(k))` for k from 0, averaged over draws; NaN after a sample's last step. `(N, L + 1)`
        noise_key: which noise a sample was given, `(N,)`: results with the same keys, shapes and `draws` saw the same
            values in the same places, whatever the explainer, and their differences are paired.
    """

    aopc: Tensor
    std_error: Tensor
    score: Tensor
    regions: Tensor
    steps: Tensor
    grid_fallback: Tensor
    curve: Tensor
    noise_key: Tensor = field(metadata={"per_sample": False})

    def tensors(self) -> dict[str, Tensor]:
        """The curves, and the keys of the noise."""
        return {"curve": self.curve.contiguous(), "noise_key": self.noise_key.contiguous()}


@metrics.register("aopc")
@dataclass(frozen=True)
class AOPC(Metric):
    """Area over the perturbation curve: how fast the prediction falls as regions are replaced (Samek et al. 2017).

    Args:
        region: how wide the cells are, in pixels or time steps; 1 for single pixels; None for a 25th of the shorter
            side, at least 2 (9x9 pixels of 224x224, 2x2 of 28x28), and each flat feature by itself.
        steps: regions to replace, L; all of them where there are fewer.
        draws: of the noise; 1 is enough for a constant.
        order: `"most"` relevant first (MoRF), or `"least"` (LeRF).
        replacement: `"uniform"` values within the classifier's bounds, or a `"constant"`, the baseline.
        baseline: the constant: a number, or one for each channel; within the bounds.
        absolute: regions are scored by the absolute map; the paper's have signs.
        score: of the explained class: its `"probability"` or its `"logit"`.
        segments: regions by another cut, instead of cells: a name, about how many, or a tensor of labels; see
            `holdfast.segments.segment`. Labels for each sample are in the order of the samples.

    Raises:
        ArgumentError: options out of range; in the call, cells too large for two of them, a baseline outside the
            bounds, uniform values within bounds that are infinite.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = AOPC(steps=20, draws=2)(classifier, "input_x_gradient", digits.inputs)
    >>> result.curve.shape, result.regions.tolist(), bool((result.aopc > 0).all())
    (torch.Size([2, 21]), [196, 196], True)
    """

    name: ClassVar[str] = "aopc"
    category: ClassVar[str] = "faithfulness"
    headline: ClassVar[str] = "aopc"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "samek2017evaluating"
    bibtex: ClassVar[str] = """@article{samek2017evaluating,
  title   = {Evaluating the Visualization of What a Deep Neural Network Has Learned},
  author  = {Samek, Wojciech and Binder, Alexander and Montavon, Gr{\\'e}goire and Lapuschkin, Sebastian and
             M{\\"u}ller, Klaus-Robert},
  journal = {IEEE Transactions on Neural Networks and Learning Systems},
  volume  = {28},
  number  = {11},
  pages   = {2660--2673},
  year    = {2017}
}"""

    region: int | None = None
    steps: int = 100
    draws: int = 5
    order: Literal["most", "least"] = "most"
    replacement: Literal["uniform", "constant"] = "uniform"
    baseline: Baseline = 0.0
    absolute: bool = False
    score: Score = "probability"
    segments: Method | int | Tensor | None = None

    def __post_init__(self) -> None:
        fine = self.region is None or (type(self.region) is int and self.region >= 1)
        check(fine, "region", "a whole number of at least 1, or None", repr(self.region))
        for name in ("steps", "draws"):
            value = getattr(self, name)
            check_integer(value, name)
        check(self.order in ("most", "least"), "order", "'most' or 'least' (relevant first)", repr(self.order))
        kinds = ("uniform", "constant")
        check(self.replacement in kinds, "replacement", "'uniform' or 'constant'", repr(self.replacement))
        check_baseline(self.baseline)
        check(isinstance(self.absolute, bool), "absolute", "True or False", repr(self.absolute))
        check(self.score in get_args(Score), "score", "'probability' or 'logit'", repr(self.score))
        if self.segments is not None:
            check(self.region is None, "region", "None where segments are given", repr(self.region))
            try:
                set_fields(self, segments=check_segments(self.segments))
            except ArgumentError as error:
                raise ArgumentError("segments", f"None (for cells), {error.expected}", error.got) from None

    @classmethod
    def example(cls) -> AOPC:
        """See `Metric`."""
        return cls(steps=6, draws=2)

    def for_samples(self, inputs: Tensor, rows: slice) -> AOPC:
        """See `Metric`: label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """The copies and the sample itself; fewer where there are fewer regions than steps."""
        return 1 + self._draws * self.steps

    @property
    def _draws(self) -> int:
        return self.draws if self.replacement == "uniform" else 1  # a constant is the same in every draw

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> AOPCResult:
        """See `Metric`."""
        constant = None
        if self.replacement == "constant":
            constant = resolve_baseline(classifier, inputs, self.baseline).expand(1, *inputs.shape[1:])
        else:
            finite = all(bool(torch.isfinite(bound).all()) for bound in classifier.bounds)
            check(finite, "replacement", "'constant', as the classifier's bounds are infinite", "'uniform'")
        assert not isinstance(self.segments, Tensor)  # since `__post_init__`
        cut = cut_regions(inputs, self.region, self.segments)
        probe = Probe(classifier, explainer, inputs, targets, absolute=self.absolute)
        scored = sum_over_regions(probe.reference, cut)
        probe.skip_constant(probe.reference)
        probe.skip(_constant(scored))
        keys = sample_keys(inputs, draw_seed(generator))
        order = rank_with_random_ties(-scored if self.order == "least" else scored, keys)
        steps = cut.count.clamp(max=self.steps)
        levels = torch.arange(1, min(self.steps, cut.width) + 1, device=inputs.device).expand(len(inputs), -1)
        each_draw = draw_keys(keys, self._draws)

        def values(rows: Tensor, draws: Tensor) -> Tensor:
            return draw_uniform(each_draw[rows, draws], inputs, classifier.bounds) if constant is None else constant

        curves = PerturbationCurves(
            ReplacedCopies(probe, inputs),
            positions=cut.labels[0].numel(),
            ranks=lambda rows: order[rows].gather(1, cut.labels[rows].flatten(1)).float(),
            counts=levels,
            wanted=(levels <= steps[:, None])[:, None],
            values=values,
            draws=self._draws,
            score=self.score,
        )
        start = scores_of(probe.logits, probe.targets, self.score)
        aopc, error = torch.full((2, len(inputs)), torch.nan, dtype=torch.float64, device=inputs.device)
        curve = torch.full((len(inputs), levels.shape[1] + 1), torch.nan, dtype=torch.float64, device=inputs.device)
        for rows, found in curves.scores(probe.usable()):
            drops = start[rows, None, None] - found[:, :, 0]
            curve[rows, 0], curve[rows, 1:] = 0.0, drops.nanmean(1)
            counted = levels[rows] <= steps[rows, None]
            ends = (steps[rows] + 1).double()
            # NaN before a sample's last step stays NaN in its sum: no score there was finite
            aopc[rows] = torch.where(counted, curve[rows, 1:], 0.0).sum(1) / ends
            each = torch.where(counted[:, None], drops, 0.0).sum(2) / ends[:, None]
            if self._draws > 1:
                # by hand: torch rounds `std` in another way for another number of rows
                variance = (each - each.mean(1, keepdim=True)).square().sum(1) / (self._draws - 1)
                error[rows] = (variance / self._draws).sqrt()
        return AOPCResult(
            **probe.common_fields(self),
            value=aopc,
            aopc=aopc,
            std_error=error,
            score=start,
            regions=cut.count,
            steps=steps,
            grid_fallback=cut.fallback,
            curve=curve,
            noise_key=keys,
        )


def draw_uniform(keys: Tensor, like: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Values uniform within the bounds, one draw for each of the `keys` `(m,)`, `(m, ...)` as the inputs `like`."""
    lower, upper = bounds
    shape = like.shape[1:]
    return lower + (upper - lower) * hashed_uniform(keys, shape.numel()).to(like.dtype).reshape(-1, *shape)


def _constant(scored: Tensor) -> Tensor:
    """Where all regions have the same score `(N, width)`, NaN where there is no region; bool `(N,)`."""
    missing = scored.isnan()
    return scored.masked_fill(missing, torch.inf).amin(1) >= scored.masked_fill(missing, -torch.inf).amax(1)
