"""A certified lower bound on the least change of an input that changes what a classifier predicts.

`c = min |d|_p` such that `argmax f(x + d)` is another class, `d` is zero on held features and `x + d` lies within the
classifier's bounds. An attack finds a change and so an upper bound of c; here every change below a radius is proved
harmless, so that `lower <= c <= upper`. The proof bounds all margins `f_y - f_j` over the permitted inputs
(`holdfast.algorithms.certified.linear_relaxation`); a search finds the largest radius for which the bounds stay
positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from holdfast.algorithms.certified.linear_relaxation import Method, Permitted, bound_values, margins
from holdfast.algorithms.certified.network_trace import Network, trace
from holdfast.algorithms.subject import Subject
from holdfast.errors import ModelError, check

Norm = float | Literal["inf"]
_NUMBERS = 1 << 25  # float64 numbers for the values of all steps at once
_SMALLEST = 1e-7  # of the largest change, or of what an affine function would need: a bound below this is 0
_LOOKS = 200  # without bounds to stop it, a search for a radius that never gives out would go on


@dataclass(frozen=True)
class CertifiedDistortion:
    """Bounds of N inputs; float64 and bool, on the classifier's device."""

    lower: Tensor
    """`(N,)`: no permitted change of at most this norm changes the prediction; 0 to infinity."""

    unbounded: Tensor
    """`(N,)`: no permitted change of any norm does, so `lower` is infinite."""


def certified_distortion(
    classifier: Subject,
    inputs: Tensor,
    targets: Tensor | int | None = None,
    free: Tensor | None = None,
    *,
    norm: Norm = 2,
    method: Method = "crown",
    tolerance: float = 0.01,
    upper: Tensor | None = None,
) -> CertifiedDistortion:
    """Lower bounds of the least distortions of free features that make the class another one than the target.

    The bounds hold for the network as floating point evaluates it, with sums of products in any order and TF32 where
    torch's switches allow it on a CUDA device; not for algorithms that round more (Winograd's or Fourier
    convolutions). A tie counts as a change. They are as good as the relaxation: exact (up to `tolerance`) for affine
    classifiers, and further below c the deeper the network and the larger c. The relaxation's own float64 rounding is
    met by widening each bound by a relative 1e-11, not proved.

    Cost: some ten evaluations of the bounds; each carries a linear function of every open unit to the input. An input
    of LeNet-5 takes six to thirteen seconds of a CPU core.

    Args:
        classifier: a `holdfast.Classifier`. Its network may be made of linear and convolutional layers, batch
            normalisation, ReLU and leaky ReLU, max- and average-pooling, padding, reshaping, dropout and sums of two
            branches; so may its preprocessing. What it does must not depend on values but by these.
        inputs: `(N, ...)` within the classifier's bounds.
        targets: classes `(N,)`, the predicted ones for None. Inputs that are not of their target's class get 0.
        free: bool, broadcastable to the inputs: True where a feature may change; None for all.
        norm: 2 or infinity (also "inf"); of the change in the input's own units.
        method: "crown" carries linear bounds of every layer back to the input; "interval" does so for the margins
            only, between intervals carried forward: much faster, and much weaker.
        tolerance: of the search for the radius, relative, in (0, 1).
        upper: `(N,)` distortions known to change the class (or infinity), where the search stops: `lower` does not
            exceed it. To test one of the bounds by the other, leave it out.

    Raises:
        ArgumentError: arguments of the wrong type, shape or range.
        ModelError: a function without a relaxation, by name and layer; a module whose steps, done again, give other
            logits.

    Source: Zhang et al., "Efficient neural network robustness certification with general activation functions"
    (NeurIPS 2018), Theorem 3.2 and Corollary 3.3, and the search of Section 3.4; within bounds and with held features.

    >>> from holdfast.model import Classifier
    >>> module = torch.nn.Linear(3, 2)
    >>> _ = module.weight.data.copy_(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])), module.bias.data.zero_()
    >>> classifier, x = Classifier(module, bounds=(-9.0, 9.0), device="cpu"), torch.ones(1, 3)
    >>> certified_distortion(classifier, x).lower.item()  # the margin 7, the gradient's norm 5
    1.4
    >>> held = torch.tensor([False, True, True])
    >>> certified_distortion(classifier, x, free=held, norm="inf").lower.item()  # 7 / 4
    1.7
    """
    order = _order(norm)
    check(method in ("crown", "interval"), "method", "'crown' or 'interval'", repr(method))
    check(0 < tolerance < 1, "tolerance", "a number in (0, 1)", tolerance)
    inputs = classifier.check_inputs(inputs)
    targets = classifier.check_targets(targets, inputs)
    mask = _mask(free, inputs)
    ceiling = torch.full((len(inputs),), torch.inf, dtype=torch.float64, device=inputs.device)
    if upper is not None:
        shape = tuple(upper.shape) if isinstance(upper, Tensor) else type(upper).__name__
        check(shape == (len(inputs),), "upper", f"a tensor of shape ({len(inputs)},)", shape)
        ceiling = upper.detach().to(ceiling)
        check(bool((ceiling >= 0).all()), "upper", "distortions of at least 0", upper)
    network = _traced(classifier, inputs)
    low, high = (b.to(torch.float64).expand(inputs.shape[1:]).flatten() for b in classifier.bounds)
    centre = inputs.double().flatten(1)
    below, above = (torch.where(mask > 0, bound - centre, 0.0) for bound in (low, high))
    problem = _Problem(
        network=network,
        targets=targets,
        box=Permitted(centre, below, above, None),
        order=order,
        method=method,
        unit=torch.finfo(classifier.dtype).eps / 2,
        product=_product_error(classifier),
    )
    numbers = 3 * sum(node.shape.numel() for node in network.nodes)
    with torch.no_grad():
        chunks = torch.split(torch.arange(len(inputs), device=inputs.device), max(1, _NUMBERS // numbers))
        lower = torch.cat([_search(problem.select(rows), ceiling[rows], tolerance) for rows in chunks])
    return CertifiedDistortion(lower=lower, unbounded=torch.isinf(lower))


@dataclass(frozen=True)
class _Problem:
    """The permitted boxes of all inputs, and what is to be proved on them."""

    network: Network
    targets: Tensor
    box: Permitted
    order: float
    method: Method
    unit: float
    product: float

    def select(self, rows: Tensor) -> _Problem:
        box = Permitted(self.box.centre[rows], self.box.below[rows], self.box.above[rows], None)
        return replace(self, targets=self.targets[rows], box=box)

    def reach(self) -> Tensor:
        """The norm `(N,)` of the largest possible change."""
        furthest = torch.maximum(-self.box.below, self.box.above)
        size: Tensor = torch.linalg.vector_norm(furthest, self.order, 1)
        return size

    def margin(self, radius: Tensor) -> Tensor:
        """Lower bounds `(N,)` of the smallest margin for changes of norms up to `radius`."""
        r = radius[:, None]
        below, above = torch.maximum(self.box.below, -r), torch.minimum(self.box.above, r)
        permitted = Permitted(self.box.centre, below, above, radius if self.order == 2 else None)
        bounds = bound_values(self.network, permitted, self.method, self.unit, self.product)
        return margins(self.network, permitted, bounds, self.targets).amin(1)

    def first_order(self) -> tuple[Tensor, Tensor]:
        """Margins at the inputs, and the norms of change that would take an affine function to the boundary."""
        free = self.box.above > self.box.below
        with torch.enable_grad():
            x = self.box.centre.clone().requires_grad_(True)
            logits = self.network.logits(x.reshape(-1, *self.network.nodes[0].shape))
            own = logits.gather(1, self.targets[:, None])
            margin = (own - logits.scatter(1, self.targets[:, None], -torch.inf).amax(1, keepdim=True)).squeeze(1)
            (gradient,) = torch.autograd.grad(margin.sum(), x)
        dual = 2.0 if self.order == 2 else 1.0
        slope = torch.linalg.vector_norm(gradient * free, dual, 1)
        return margin.detach(), margin.detach() / slope.clamp(min=1e-12)


def _search(problem: _Problem, ceiling: Tensor, tolerance: float) -> Tensor:
    """The largest certified radius `(N,)` that the search meets, infinite where it is the whole box."""
    reach = problem.reach()
    limit = torch.minimum(reach, ceiling)
    margin, radius = problem.first_order()
    # a bracket: certified up to low, not at high; and the margins proved at its ends
    low, high = torch.zeros_like(limit), torch.full_like(limit, torch.inf)
    margin_low, margin_high = margin.clone(), torch.full_like(limit, -torch.inf)
    # a relaxed network gives out well before an affine one would
    smallest = _SMALLEST * torch.minimum(limit, radius)
    radius = torch.minimum(radius / 8, limit)
    settled = margin <= 0
    held = (reach == 0) & ~settled  # nothing may change; a tie in floating point needs no look
    low, settled = torch.where(held, torch.inf, low), settled | held | (limit == 0)
    step = 0
    while step < _LOOKS and not bool(settled.all()):
        rows = (~settled).nonzero().squeeze(1)
        proved = problem.select(rows).margin(radius[rows])
        good, bad = rows[proved > 0], rows[~(proved > 0)]
        low[good], margin_low[good] = radius[good], proved[proved > 0]
        high[bad], margin_high[bad] = radius[bad], proved[~(proved > 0)]
        settled = settled | (low >= limit) | (high <= low * (1 + tolerance)) | (high < smallest)
        radius = _next(low, high, margin_low, margin_high, limit, tolerance, halve=step % 3 == 2)
        step += 1
    return torch.where((low >= reach) & (reach <= ceiling) & (margin > 0), torch.inf, low)


def _next(
    low: Tensor, high: Tensor, margin_low: Tensor, margin_high: Tensor, limit: Tensor, tolerance: float, halve: bool
) -> Tensor:
    """Where to look next: twice or a quarter as far, or where a line through the margins meets zero, from below.

    From a certified end right below that point, one tolerance up. `halve` takes the middle of the bracket.
    """
    bounded = torch.isfinite(high)
    end = torch.where(bounded, high, 2 * limit)
    line = low + (end - low) * margin_low / (margin_low - margin_high).clamp(min=1e-300)
    wish = torch.maximum(line * (1 - tolerance / 2), low * (1 + 0.99 * tolerance))
    middle = (low + end) / 2
    wish = middle if halve else torch.where(wish < end, wish, middle)
    wish = torch.where(low > 0, wish, end / 4)
    return torch.where(bounded, wish, torch.minimum(torch.where(low > 0, 2 * low, limit), limit))


def _order(norm: Norm) -> float:
    known = norm == "inf" or (isinstance(norm, int | float) and not isinstance(norm, bool) and norm in (2, math.inf))
    check(known, "norm", "2 or infinity", repr(norm))
    return 2.0 if norm == 2 else math.inf


def _mask(free: Tensor | None, inputs: Tensor) -> Tensor:
    """1.0 where a feature may change, `(N, n)`."""
    if free is None:
        return torch.ones_like(inputs, dtype=torch.float64).flatten(1)
    got = f"{free.dtype} of shape {tuple(free.shape)}" if isinstance(free, Tensor) else type(free).__name__
    fits = isinstance(free, Tensor) and free.dtype == torch.bool and free.ndim <= inputs.ndim
    fits = fits and all(n in (1, m) for n, m in zip(reversed(free.shape), reversed(inputs.shape), strict=False))
    check(fits, "free", f"a bool tensor that broadcasts to {tuple(inputs.shape)}", got)
    return free.to(inputs.device).expand(inputs.shape).double().flatten(1)


def _traced(classifier: Subject, inputs: Tensor) -> Network:
    """The classifier's network; its logits, computed again by the rules, must be the classifier's."""
    with classifier.session():
        network = trace(classifier.forward, classifier.module, inputs[:1])
    expected = classifier.logits(inputs).double()
    chunks = torch.split(inputs, 256)
    with torch.no_grad():
        again = torch.cat([network.logits(chunk.double()) for chunk in chunks])
    off = (again - expected).abs().amax(1) / (1 + expected.abs().amax(1))
    # loose enough for float32 (and TF32): another branch of the module's code is off by more
    if not bool((off <= 0.01).all()):
        raise ModelError(
            f"module: expected the steps that it takes for one input to give its logits for all {len(inputs)}, got"
            f" logits that are off by up to {float(off.max()):.2g} of their size; its code may branch on values"
        )
    return network


def _product_error(classifier: Subject) -> float:
    """What TF32 adds to a product's relative error: both factors lose all but ten bits."""
    allowed = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return 2.0**-9 if classifier.device.type == "cuda" and classifier.dtype == torch.float32 and allowed else 0.0
