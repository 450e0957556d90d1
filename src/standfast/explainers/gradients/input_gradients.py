"""Explainers that use gradients by the input: saliency, input x gradient, integrated gradients, SmoothGrad.

All of them are differentiable: with `create_graph=True`, their attributions can be differentiated by the input. For a
network of rectifiers this second derivative is zero almost everywhere; see `standfast.explainers.smooth_relu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import (
    BATCHES,
    BaselineOption,
    Explanation,
    GradientExplainer,
    Measure,
    Seed,
    choose_baseline,
    compute_input_gradient,
    compute_path_gradients,
    explainers,
)
from standfast.explainers.completeness import predict_mean, warn_of_gap
from standfast.model import Model
from standfast.records import AtLeastZero, Count
from standfast.tensors import send

Statistic = Literal["mean", "mean_square", "variance"]


@explainers.register("saliency")
@dataclass(frozen=True)
class Saliency(GradientExplainer):
    """The gradient of the target's logit: `|d f_t(x) / d x|`.

    Simonyan, Vedaldi and Zisserman, Deep inside convolutional networks, ICLR workshop 2014. One forward and one
    backward pass for each input; inputs and attributions `(N, ...)`.

    Args:
        absolute: take absolute values, as the paper and Captum do; `False` is the signed gradient.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> Saliency()(model, torch.tensor([[0.5, 0.5]]), 0)
    tensor([[1., 2.]])
    """

    absolute: bool = True

    @property
    def has_signs(self) -> bool | None:  # type: ignore[override]
        return not self.absolute

    name = "saliency"
    measures = "slope"
    plain_gradient = True
    at_inputs_alone = True

    @property
    def shared_pass(self) -> tuple[object, ...]:
        return ("gradient",)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        gradient, logits = compute_input_gradient(model, x, targets, create_graph)
        if self.absolute:
            gradient = gradient.abs()
        return gradient, logits


@explainers.register("input_x_gradient")
@dataclass(frozen=True)
class InputXGradient(GradientExplainer):
    """The input times the gradient of the target's logit: `x * d f_t(x) / d x`.

    Shrikumar, Greenside, Shcherbina and Kundaje, Not just a black box, 2016 (arXiv:1605.01713). Exact for a linear
    model: `w * x`. One forward and one backward pass for each input; inputs and attributions `(N, ...)`.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> InputXGradient()(model, torch.tensor([[0.5, 0.25]]), 0)
    tensor([[ 0.5000, -0.5000]])
    """

    name = "input_x_gradient"
    has_signs = True
    measures = "contribution"
    at_inputs_alone = True

    @property
    def shared_pass(self) -> tuple[object, ...]:
        return ("gradient",)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        gradient, logits = compute_input_gradient(model, x, targets, create_graph)
        with torch.set_grad_enabled(create_graph):
            return x * gradient, logits


@explainers.register("integrated_gradients")
@dataclass(frozen=True)
class IntegratedGradients(GradientExplainer):
    """The gradient, averaged on the straight path from a baseline to the input, times the difference of the two.

    `(x - b) * integral over a in [0, 1] of d f_t(b + a (x - b)) / d x`, by Gauss-Legendre quadrature of `steps` points.

    Sundararajan, Taly and Yan, Axiomatic attribution for deep networks, ICML 2017. Attributions add up to
    `f_t(x) - f_t(b)`, up to the error of the quadrature. If they miss more than 5% of that for more than half of the
    first inputs of a module, a `CompletenessWarning` says so, which costs one forward pass of the baseline.

    All points of a chunk are forwarded as one flat batch, together with the input itself (for its predicted class):
    `steps + 1` rows for each input. Equals Captum's by its default method, with the same steps and baseline.

    Args:
        steps: points on the path, at least 1.
        baseline: `b`: a number, or one for each channel. By default 0, and for tables the baseline of the model's
            reference.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> IntegratedGradients(steps=8, baseline=0.5)(model, torch.tensor([[1.0, 1.0]]), 0)
    tensor([[ 0.5000, -1.0000]])
    """

    steps: Count = 32
    baseline: BaselineOption = None
    name = "integrated_gradients"
    has_signs = True
    measures = "contribution"
    removal_options = ("baseline",)
    batches = BATCHES
    dial = "steps"
    draft_share = 0.125
    gap_cause = (
        "More steps may help, but not where codes of categories or thresholds have no gradient"
    )

    @property
    def rows_per_input(self) -> int:
        return self.steps + 1

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        along = (1, self.steps, *[1] * (x.ndim - 1))
        alphas, weights = (
            send(values, x.device, x.dtype).reshape(along)
            for values in _make_quadrature(self.steps)
        )
        with torch.set_grad_enabled(create_graph):
            baseline = choose_baseline(model, x, self.baseline)
            difference = x - baseline
            points = baseline + alphas * difference[:, None]
            gradients, logits = compute_path_gradients(model, x, points, targets, create_graph)
            return difference * (gradients * weights).sum(1), logits

    def check_maps(
        self, model: Model, x: Tensor, maps: Tensor, logits: Tensor, classes: Tensor
    ) -> None:
        baseline = choose_baseline(model, x, self.baseline)
        baseline = baseline.expand(1, *x.shape[1:])
        at_baseline = partial(predict_mean, model, logits, baseline)
        warn_of_gap(self, model, maps, logits, at_baseline, classes, share=0.5)


@lru_cache(maxsize=32)
def _make_quadrature(steps: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes in [0, 1] and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    # Gauss-Legendre's nodes lie in [-1, 1]: here they are moved to [0, 1], of half the length
    # from [-1, 1] to [0, 1]
    shares = 0.5 * (1 + nodes)
    halved = 0.5 * weights
    return tuple(shares.tolist()), tuple(halved.tolist())


@explainers.register("smoothgrad")
@dataclass(frozen=True)
class SmoothGrad(GradientExplainer):
    """The gradient at noisy copies of the input, averaged or by another statistic.

    `mean over k of M(x + e_k)`, `e_k ~ N(0, (noise * range)^2)`.

    The statistic is one of

    - the mean (SmoothGrad): Smilkov, Thorat, Kim, Viégas and Wattenberg, SmoothGrad: removing noise by adding noise,
      2017 (arXiv:1706.03825);
    - the mean square (SmoothGrad-squared), `mean over k of M(x + e_k)^2`: Hooker, Erhan, Kindermans and Kim, A
      benchmark for interpretability methods in deep neural networks, NeurIPS 2019;
    - the variance (VarGrad), `mean over k of (M(x + e_k) - mean over j of M(x + e_j))^2`: Adebayo, Gilmer, Goodfellow
      and Kim, Local explanation methods for deep neural networks lack sensitivity to parameter values, ICLR workshop
      2018.

    The noise is drawn once, from `seed`, and is the same for all inputs. So the explanation is a deterministic function
    of the input, and differentiable. Noisy copies are not clipped to the bounds. The target is the class predicted at
    `x` itself. Inputs and attributions `(N, ...)`; `samples + 1` rows for each input.

    Args:
        samples: noisy copies, at least 1.
        noise: standard deviation as a share of the range of the model's bounds, at least 0.
        absolute: take absolute values of `M` before the statistic.
        times_input: `M(z) = z * d f_t(z) / d z` instead of the gradient `d f_t(z) / d z`.
        seed: of the noise.
        statistic: `"mean"`, `"mean_square"` or `"variance"`. A variance needs at least 2 samples; it is divided by
            their number.

    Raises:
        ArgumentError: an option out of range; on a call, infinite bounds.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> SmoothGrad(samples=4)(model, torch.tensor([[1.0, 1.0]]), 0)
    tensor([[ 1., -2.]])
    >>> SmoothGrad(samples=4, statistic="mean_square")(model, torch.tensor([[1.0, 1.0]]), 0)
    tensor([[1., 4.]])
    """

    samples: Count = 16
    noise: AtLeastZero = 0.1
    absolute: bool = False
    times_input: bool = False
    seed: Seed = 0
    statistic: Statistic = "mean"
    name = "smoothgrad"
    plain_gradient = True
    batches = BATCHES
    dial = "samples"
    visits = "noisy copies, which leave the bounds and the codes of categories"

    @property
    def has_signs(self) -> bool | None:  # type: ignore[override]
        """A square and a variance have none either."""
        return not self.absolute and self.statistic == "mean"

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        """Slopes, or with `times_input` contributions; a square or a variance of them has another unit."""
        if self.statistic != "mean":
            return "relevance"
        return "contribution" if self.times_input else "slope"

    def __post_init__(self) -> None:
        fine = self.statistic != "variance" or self.samples >= 2
        check(fine, "samples", "at least 2 for a variance", repr(self.samples))

    @property
    def rows_per_input(self) -> int:
        return self.samples + 1

    @property
    def shared_pass(self) -> tuple[object, ...]:
        return ("noisy copies", self.samples, self.noise, self.seed)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        width = get_bounds_range(model)
        shape = (self.samples, *x.shape[1:])
        noise = draw_shared_noise(self.seed, shape, x.dtype, x.device)
        with torch.set_grad_enabled(create_graph):
            points = x[:, None] + self.noise * width * noise
            values, logits = compute_path_gradients(model, x, points, targets, create_graph)
            if self.times_input:
                values = values * points
            if self.absolute:
                values = values.abs()
            return self._summarise(values), logits

    def _summarise(self, values: Tensor) -> Tensor:
        """The statistic of `values` `(N, samples, ...)` over the noisy copies."""
        if self.statistic == "mean":
            return values.mean(1)
        # in two passes: the difference of two means would lose its digits
        if self.statistic == "variance":
            values = values - values.mean(1, keepdim=True)
        return values.square().mean(1)


def get_bounds_range(model: Model) -> Tensor:
    """The range `upper - lower` of the bounds, of which noise is a share.

    Raises:
        ArgumentError: the range is infinite.
    """
    lower, upper = model.bounds
    width = upper - lower
    if "range" not in model.fitting:
        fine = bool(torch.isfinite(width).all())
        check(fine, "bounds", "finite bounds (noise is a share of their range)", "infinite ones")
        model.fitting.add("range")
    return width


@lru_cache(maxsize=8)
def draw_shared_noise(
    seed: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Standard normal noise, drawn on the CPU so that it is the same on every device. Do not write to it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
