"""A certified lower bound of the smallest change of an input that changes the predicted class.

Let `c = min |d|_p` such that `argmax f(x + d)` is another class, `d` is zero on the features that are held fixed, and
`x + d` lies within the model's bounds. An attack finds such a change, and its norm is an upper bound of c. This
module proves a lower bound: no change below a radius changes the class, so `lower <= c <= upper`. The proof bounds
all margins `f_y - f_j` (logit of the class less the logit of another class) over the permitted inputs, by
`standfast.algorithms.certified.linear_relaxation`. A search finds the largest radius with positive bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from standfast.algorithms.certified.linear_relaxation import (
    Method,
    PermittedInputs,
    bound_margins,
    bound_values,
)
from standfast.algorithms.certified.network_trace import TracedNetwork, trace_network
from standfast.algorithms.subject import Subject
from standfast.errors import ModelError, check

Norm = float | Literal["inf"]
_NUMBERS = 1 << 25  # float64 numbers that the values of all steps may take at once
_SMALLEST = 1e-7  # a radius below this share of the largest change, or of an affine function's bound, counts as 0
_TRIALS = 200  # the most radii that the search tries: if inputs are unbounded and all radii certified, it has no end


@dataclass(frozen=True)
class CertifiedDistortion:
    """Lower bounds for N inputs, on the model's device."""

    lower: Tensor
    """float64 `(N,)`: no permitted change of at most this norm changes the prediction; 0 to infinity."""

    unbounded: Tensor
    """bool `(N,)`: no permitted change of any norm changes the prediction, so `lower` is infinite."""


def certified_distortion(
    model: Subject,
    inputs: Tensor,
    targets: Tensor | int | None = None,
    free: Tensor | None = None,
    *,
    norm: Norm = 2,
    method: Method = "crown",
    tolerance: float = 0.01,
) -> CertifiedDistortion:
    """Lower bounds of the smallest distortions of free features after which the class is not the target.

    The bounds hold for the network in floating point: sums of products in any order, and TF32 where torch's switches
    allow it on a CUDA device. They do not hold for algorithms that round more (Winograd or Fourier convolutions).
    A tie between two classes counts as a change of class.
    The bounds are exact (up to `tolerance`) for affine classifiers. They are further below c for deeper networks and
    for larger c. The computation of the bounds itself rounds in float64: each bound is widened by a relative 1e-11 for
    this, which is not proved to be enough.

    Cost: about ten evaluations of the bounds. Each carries one linear function per unit of undecided sign back to the
    input. One input of LeNet-5 takes six to thirteen seconds on one CPU core.

    Args:
        model: a `standfast.Model`. Its network and its preprocessing may consist of linear and convolutional
            layers, batch normalisation, ReLU and leaky ReLU, max- and average-pooling, padding, reshaping, dropout and
            sums of two branches. Its code must not branch on values.
        inputs: `(N, ...)` within the model's bounds.
        targets: classes `(N,)`; None for the predicted classes. An input that is not of its target class gets 0.
        free: bool, broadcastable to the inputs: True for features that may change; None for all features.
        norm: norm of the change, in the units of the input: 2 or infinity (also "inf").
        method: "crown" carries linear bounds of every layer back to the input. "interval" uses intervals for all
            layers, and linear bounds for the margins only; it is much faster, and its bounds are much lower.
        tolerance: relative tolerance of the search for the radius, in (0, 1).

    Raises:
        ArgumentError: arguments of the wrong type, shape or range; a model of another task than classification.
        ModelError: the network calls a function without a relaxation (the message names the function and its layer),
            or the traced steps give other logits than the module.

    Source: Zhang et al., "Efficient neural network robustness certification with general activation functions"
    (NeurIPS 2018), Theorem 3.2, Corollary 3.3 and the search of Section 3.4. Here also the model's bounds and
    fixed features restrict the inputs.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(3, 2)
    >>> _ = module.weight.data.copy_(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])), module.bias.data.zero_()
    >>> model, x = Model(module, bounds=(-9.0, 9.0), device="cpu"), torch.ones(1, 3)
    >>> certified_distortion(model, x).lower.item()  # the margin 7, the gradient's norm 5
    1.4
    >>> free = torch.tensor([False, True, True])
    >>> certified_distortion(model, x, free=free, norm="inf").lower.item()  # 7 / 4
    1.7
    """
    order = _order(norm)
    check(method in ("crown", "interval"), "method", "'crown' or 'interval'", repr(method))
    check(0 < tolerance < 1, "tolerance", "a number in (0, 1)", tolerance)
    check(
        model.task.classes,
        "model",
        "a classification, as bounds are those of classes",
        f"the task {model.task.name}",
    )
    inputs = model.check_inputs(inputs)
    targets = model.check_targets(targets, inputs)
    mask = _mask(free, inputs)
    network = _trace_network(model, inputs)
    shape = inputs.shape[1:]
    low, high = (bound.to(torch.float64).expand(shape).flatten() for bound in model.bounds)
    centre = inputs.double().flatten(1)
    below, above = (torch.where(mask > 0, bound - centre, 0.0) for bound in (low, high))
    problem = _Problem(
        network=network,
        targets=targets,
        box=PermittedInputs(centre, below, above, None),
        order=order,
        method=method,
        # the unit roundoff is half of the distance between 1 and the next number
        unit=torch.finfo(model.precision).eps / 2,
        product=_product_error(model),
    )
    numbers = 3 * sum(node.shape.numel() for node in network.nodes)
    with torch.no_grad():
        chunks = torch.split(
            torch.arange(len(inputs), device=inputs.device), max(1, _NUMBERS // numbers)
        )
        radii = [_search(problem.select(rows), tolerance) for rows in chunks]
        lower = torch.cat(radii)
    return CertifiedDistortion(lower=lower, unbounded=torch.isinf(lower))


@dataclass(frozen=True)
class _Problem:
    """The permitted boxes of all inputs, with the network, the classes and the norm of the bounds."""

    network: TracedNetwork
    targets: Tensor
    box: PermittedInputs
    order: float
    method: Method
    unit: float
    product: float

    def select(self, rows: Tensor) -> _Problem:
        box = self.box
        part = PermittedInputs(box.centre[rows], box.below[rows], box.above[rows], None)
        return replace(self, targets=self.targets[rows], box=part)

    def reach(self) -> Tensor:
        """The norm `(N,)` of the largest possible change."""
        farthest = torch.maximum(-self.box.below, self.box.above)
        size: Tensor = torch.linalg.vector_norm(farthest, self.order, 1)
        return size

    def margin(self, radius: Tensor) -> Tensor:
        """Lower bounds `(N,)` of the smallest margin over all changes of norm up to `radius`."""
        r = radius[:, None]
        below = torch.maximum(self.box.below, -r)
        above = torch.minimum(self.box.above, r)
        # a ball of the maximum norm is a box
        ball = radius if self.order == 2 else None
        permitted = PermittedInputs(self.box.centre, below, above, ball)
        bounds = bound_values(self.network, permitted, self.method, self.unit, self.product)
        margins = bound_margins(self.network, permitted, bounds, self.targets)
        return margins.amin(1)

    def first_order(self) -> tuple[Tensor, Tensor]:
        """Margins at the inputs, and the norms of the changes that bring them to zero if the network is affine."""
        free = self.box.above > self.box.below
        target = self.targets[:, None]
        shape = self.network.nodes[0].shape
        with torch.enable_grad():
            x = self.box.centre.clone().requires_grad_(True)
            logits = self.network.logits(x.reshape(-1, *shape))
            logit = logits.gather(1, target)
            others = logits.scatter(1, target, -torch.inf)
            margin = (logit - others.amax(1, keepdim=True)).squeeze(1)
            (gradient,) = torch.autograd.grad(margin.sum(), x)
        # the dual norm: the 2-norm for 2, the 1-norm for the maximum norm
        dual = 2.0 if self.order == 2 else 1.0
        slope = torch.linalg.vector_norm(gradient * free, dual, 1)
        margin = margin.detach()
        return margin, margin / slope.clamp(min=1e-12)


def _search(problem: _Problem, tolerance: float) -> Tensor:
    """The largest certified radius `(N,)` that the search finds; infinite where it covers the whole box."""
    limit = problem.reach()
    margin, radius = problem.first_order()
    # a bracket: certified at low, not certified at high; and the margins proved at both ends
    low = torch.zeros_like(limit)
    high = torch.full_like(limit, torch.inf)
    margin_low = margin.clone()
    margin_high = torch.full_like(limit, -torch.inf)
    smallest = _SMALLEST * torch.minimum(limit, radius)
    # start well below the radius of an affine network: the relaxation certifies less
    radius = torch.minimum(radius / 8, limit)
    done = margin <= 0
    fixed = (limit == 0) & ~done  # no feature may change, so the class cannot change
    low = torch.where(fixed, torch.inf, low)
    done = done | fixed
    step = 0
    while step < _TRIALS and not bool(done.all()):
        rows = (~done).nonzero().squeeze(1)
        proved = problem.select(rows).margin(radius[rows])
        # NaN proves nothing
        is_proved = proved > 0
        good = rows[is_proved]
        bad = rows[~is_proved]
        low[good] = radius[good]
        margin_low[good] = proved[is_proved]
        high[bad] = radius[bad]
        margin_high[bad] = proved[~is_proved]
        is_near = high <= low * (1 + tolerance)
        done = done | (low >= limit) | is_near | (high < smallest)
        halve = step % 3 == 2
        radius = _next_radius(low, high, margin_low, margin_high, limit, tolerance, halve)
        step += 1
    covers_box = (low >= limit) & (margin > 0)
    return torch.where(covers_box, torch.inf, low)


def _next_radius(
    low: Tensor,
    high: Tensor,
    margin_low: Tensor,
    margin_high: Tensor,
    limit: Tensor,
    tolerance: float,
    halve: bool,
) -> Tensor:
    """The radius `(N,)` to try next.

    - No radius failed yet: twice the largest certified radius, at most `limit`.
    - No radius is certified yet: a quarter of the smallest one that failed.
    - Else the zero of the line through the margins at both ends of the bracket, less half a tolerance, but at least
      about one tolerance above the certified end. With `halve`, the middle of the bracket.
    """
    bounded = torch.isfinite(high)
    end = torch.where(bounded, high, 2 * limit)
    fall = (margin_low - margin_high).clamp(min=1e-300)
    line = low + (end - low) * margin_low / fall
    middle = (low + end) / 2
    if halve:
        trial = middle
    else:
        below_line = line * (1 - tolerance / 2)
        smallest_step = low * (1 + 0.99 * tolerance)
        trial = torch.maximum(below_line, smallest_step)
        trial = torch.where(trial < end, trial, middle)
    is_certified = low > 0
    trial = torch.where(is_certified, trial, end / 4)
    doubled = torch.where(is_certified, 2 * low, limit)
    return torch.where(bounded, trial, torch.minimum(doubled, limit))


def _order(norm: Norm) -> float:
    is_number = isinstance(norm, int | float) and not isinstance(norm, bool)
    is_norm = norm == "inf" or (is_number and norm in (2, math.inf))
    check(is_norm, "norm", "2 or infinity", repr(norm))
    return 2.0 if norm == 2 else math.inf


def _mask(free: Tensor | None, inputs: Tensor) -> Tensor:
    """1.0 where a feature may change, `(N, n)`."""
    if free is None:
        return torch.ones_like(inputs, dtype=torch.float64).flatten(1)
    fits = False
    got = type(free).__name__
    if isinstance(free, Tensor):
        fits = free.dtype == torch.bool and free.ndim <= inputs.ndim
        got = f"{free.dtype} of shape {tuple(free.shape)}"
        for n, m in zip(reversed(free.shape), reversed(inputs.shape), strict=False):
            fits = fits and n in (1, m)
    check(fits, "free", f"a bool tensor that broadcasts to {tuple(inputs.shape)}", got)
    return free.to(inputs.device).expand(inputs.shape).double().flatten(1)


def _trace_network(model: Subject, inputs: Tensor) -> TracedNetwork:
    """The model's network; raises `ModelError` if the logits of its rules are not the model's."""
    with model.session():
        network = trace_network(model.forward, model.module, inputs[:1])
    expected = model.logits(inputs).double()
    chunks = torch.split(inputs, 256)
    with torch.no_grad():
        again = torch.cat([network.logits(chunk.double()) for chunk in chunks])
    difference = (again - expected).abs().amax(1)
    error = difference / (1 + expected.abs().amax(1))
    # 0.01 is more than rounding in float32 or TF32, and less than the effect of another branch of the module's code
    if not bool((error <= 0.01).all()):
        raise ModelError(
            f"module: expected the steps traced for one input to give the logits of all {len(inputs)}, got logits"
            f" with relative errors of up to {float(error.max()):.2g}; the module's code may branch on values"
        )
    return network


def _product_error(model: Subject) -> float:
    """The relative error that TF32 adds to a product: it rounds both factors to ten bits."""
    allowed = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    is_on_card = model.device.type == "cuda" and model.dtype == torch.float32
    return 2.0**-9 if is_on_card and allowed else 0.0
