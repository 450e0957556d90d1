"""Integrated gradients of the loss towards a perturbed input, and the inputs nearby that make them large.

With l the cross-entropy of an input x and its label, and x' a perturbed input, the integrated gradients of l on the
segment from x to x' say which features the change of the loss is put down to,

    IG_i(x, x')  =  (x'_i - x_i)  integral over a in [0, 1] of  d l(x + a (x' - x)) / d x_i,

and they add up to it: sum IG(x, x') = l(x') - l(x). Robust attribution regularisation keeps them small for every x' of
a ball around x, by a size function s and its maximum:

    min over w  of  E [ l(x) + weight max { s(IG(x, x')) : ||x' - x||_inf <= r, x' within the bounds } ]

IG-NORM takes s = ||.||_1. IG-SUM-NORM takes s = sum(.) + beta ||.||_1 with a weight of 1, which by completeness is
max { l(x') + beta ||IG(x, x')||_1 }: adversarial training and a penalty, at one and the same x'. With beta = 0 it is
adversarial training.

The integral is the trapezoid rule's, for it has both ends among its points: l(x') (and l(x)) come for free, and the
gradient at x is the same in every step of the ascent, so that it is taken once. All other points of a batch are one
forward pass. The maximum is what projected gradient ascent finds: steps along the sign of the derivative by x', which
needs second derivatives of the loss (differentiating twice; no Hessian is built).

Three things to know:

- ||IG||_1 has a kink wherever a feature of x' is that of x, where its derivative is taken as 0, though every move from
  there may raise it. So the ascent starts from a uniform point of the ball within the bounds, not from one of the ball
  that is cut off at the bounds: that would leave half the background of an image at its bound, where x is.
- A network of rectifiers is piecewise linear: its second derivatives are what automatic differentiation gives, those
  through softmax and cross-entropy. For the sum over points that is the derivative almost everywhere; in the integral
  itself the kinks that a segment crosses also move with x', which no sum over fixed points sees.
- In train mode, dropout draws anew for each point of a segment, and batch statistics are those of all points together.
  The ascent runs in eval mode, where every row stands for itself.

Sources: Chen, Wu, Rastogi, Liang and Jha, "Robust attribution regularization" (NeurIPS 2019); Sundararajan, Taly and
Yan, "Axiomatic attribution for deep networks" (ICML 2017), for integrated gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Bounds
from holdfast.zoo.training.classifier import check_data, mode


@dataclass(frozen=True, eq=False)
class LossPath:
    """The cross-entropy on the segments from N inputs to N perturbed ones; all with a graph.

    `points` are at equal distances and have the perturbed input as the last; the input is the first, unless its
    gradient was known beforehand.
    """

    attributions: Tensor  # (N, ...): integrated gradients from the inputs to the perturbed ones
    losses: Tensor  # (N, points)
    logits: Tensor  # (N, points, classes)

    def norms(self) -> Tensor:
        """`||IG(x, x')||_1` of each row, `(N,)`."""
        return self.attributions.flatten(1).abs().sum(dim=1)


def loss_path(
    logits_of: Callable[[Tensor], Tensor],
    inputs: Tensor,
    perturbed: Tensor,
    labels: Tensor,
    *,
    points: int,
    at_inputs: Tensor | None = None,
) -> LossPath:
    """Integrated gradients of the cross-entropy for `labels` (N,) from `inputs` to `perturbed`, both (N, ...).

    One forward pass of all points together, and one backward pass, whose graph is kept: the result can be
    differentiated by the parameters, and by `perturbed` where it requires a gradient.

    Args:
        logits_of: rows (R, ...) -> logits (R, classes), each row by itself: a module.
        inputs: the paths' beginnings.
        perturbed: their ends.
        labels: classes, int64.
        points: of the trapezoid rule on each path, both ends among them; at least 2.
        at_inputs: gradients of the loss at `inputs`, (N, ...), where they are known: the path's first point is then
            left out of the forward pass, and of `losses` and `logits`.

    >>> module = nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[0.0, 0.0], [1.0, 3.0]]))
    >>> inputs, labels = torch.zeros(1, 2), torch.tensor([0])
    >>> path = loss_path(module, inputs, torch.ones(1, 2), labels, points=50)
    >>> path.attributions  # l = log(1 + exp(x_1 + 3 x_2)): a quarter and three quarters of its change
    tensor([[0.8313, 2.4938]], grad_fn=<...>)
    >>> path.losses[:, -1] - path.losses[:, 0]
    tensor([3.3250], grad_fn=<...>)
    """
    _check_points("points", points)
    first = 0 if at_inputs is None else 1
    with torch.enable_grad():
        along = torch.arange(first, points, device=inputs.device, dtype=inputs.dtype) / (points - 1)
        along = along.reshape(1, -1, *[1] * (inputs.ndim - 1))
        rows = torch.lerp(inputs[:, None], perturbed[:, None], along).flatten(0, 1)  # exact at both ends
        if not rows.requires_grad:
            rows.requires_grad_()
        logits = logits_of(rows)
        losses = F.cross_entropy(logits, labels.repeat_interleave(points - first), reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), rows, create_graph=True, materialize_grads=True)
        gradient = gradient.reshape(len(inputs), points - first, *inputs.shape[1:])
        losses, logits = (rows.reshape(len(inputs), points - first, *rows.shape[1:]) for rows in (losses, logits))
        ends = gradient[:, -1] + (gradient[:, 0] if at_inputs is None else at_inputs)
        between = gradient[:, 1 - first : -1]
        mean = (between.sum(dim=1) + ends / 2) / (points - 1)
        return LossPath((perturbed - inputs) * mean, losses, logits)


def loss_attributions(
    module: nn.Module, inputs: Tensor, perturbed: Tensor, labels: Tensor, *, points: int = 50
) -> Tensor:
    """`IG(x, x')` of the cross-entropy of `module`, shaped like `inputs` (N, ...); in the mode that `module` is in.

    See `loss_path`. The graph reaches the parameters, and `perturbed` where it requires a gradient.

    Raises `ArgumentError` when inputs, perturbed inputs and labels do not match, or for fewer than two points.

    >>> module = nn.Linear(3, 2)
    >>> x = torch.ones(4, 3)
    >>> loss_attributions(module, x, x, torch.zeros(4, dtype=torch.int64)).abs().max().item()  # no way to go
    0.0
    """
    check_data(inputs, labels)
    check(perturbed.shape == inputs.shape, "perturbed", f"shape {tuple(inputs.shape)}", tuple(perturbed.shape))
    return loss_path(module, inputs, perturbed, labels, points=points).attributions


@dataclass(frozen=True)
class AttributionAscent:
    """Projected gradient ascent on `loss_weight l(x') + norm_weight ||IG(x, x')||_1` in a maximum-norm ball around x.

    Args:
        radius: of the ball, at least 0.
        steps: at least 1.
        step: the length of each in every feature, at least 0.
        points: of the trapezoid rule, both ends among them; at least 2. With 2, IG is half the sum of the gradients at
            both ends, times the perturbation.
        loss_weight: at least 0: 0 for IG-NORM, 1 for IG-SUM-NORM.
        norm_weight: at least 0.
        bounds: of every input.

    >>> ascent = AttributionAscent(radius=0.2, steps=5, step=0.1, points=4, bounds=(0.0, 1.0))
    >>> inputs, labels = torch.full((1, 3), 0.5), torch.tensor([2])
    >>> ascent(nn.Identity(), inputs, labels, torch.Generator().manual_seed(0))
    tensor([[0.7000, 0.7000, 0.3000]])
    """

    radius: float
    steps: int
    step: float
    points: int = 5
    loss_weight: float = 1.0
    norm_weight: float = 1.0
    bounds: Bounds = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        for option in ("radius", "step", "loss_weight", "norm_weight"):
            value = getattr(self, option)
            check(0 <= value < math.inf, option, "a finite number of at least 0", value)
        check_integer(self.steps, "steps")
        _check_points("points", self.points)

    def __call__(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Inputs like `inputs` (N, ...), each in its ball and the bounds, with a greater objective for `labels` (N,).

        The last point of the ascent, not the best on the way. `module` runs in eval mode; it has its modes back
        afterwards, and its parameters get no gradients.

        Raises `ArgumentError` when inputs and labels do not match or inputs are out of bounds.
        """
        check_data(inputs, labels)
        lower, upper = (torch.as_tensor(bound, dtype=inputs.dtype, device=inputs.device) for bound in self.bounds)
        inside = bool(((inputs >= lower) & (inputs <= upper)).all())
        check(inside, "inputs", "values within the bounds", "values outside of them")
        return self.ascent(module, inputs, labels, generator)

    def ascent(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """The same without the checks of the data, whose answers a device would have to be waited for."""
        centre = inputs.detach()
        least, greatest = (b.to(centre) if isinstance(b, Tensor) else b for b in self.bounds)
        lower, upper = (centre - self.radius).clamp(min=least), (centre + self.radius).clamp(max=greatest)
        uniform = torch.rand(centre.shape, generator=generator, device=generator.device, dtype=centre.dtype)
        perturbed = torch.lerp(lower, upper, uniform.to(centre.device))
        with mode(module, training=False):
            at_inputs = _gradient(module, centre, labels) if self.norm_weight > 0 else None
            for _ in range(self.steps):
                uphill = self._derivative(module, centre, perturbed, labels, at_inputs).sign()
                perturbed = torch.minimum(torch.maximum(perturbed + self.step * uphill, lower), upper)
        return perturbed

    def objective(self, path: LossPath) -> Tensor:
        """`loss_weight l(x') + norm_weight ||IG(x, x')||_1` of each row, `(N,)`."""
        return self.loss_weight * path.losses[:, -1] + self.norm_weight * path.norms()

    def _derivative(
        self, module: nn.Module, centre: Tensor, perturbed: Tensor, labels: Tensor, at_inputs: Tensor | None
    ) -> Tensor:
        """Of the objective, by `perturbed`. Without the norm, one first derivative is all of it."""
        if at_inputs is None:
            return self.loss_weight * _gradient(module, perturbed, labels)
        with torch.enable_grad():
            end = perturbed.detach().requires_grad_()
            path = loss_path(module, centre, end, labels, points=self.points, at_inputs=at_inputs)
            (derivative,) = torch.autograd.grad(self.objective(path).sum(), end)
        return derivative

    def describe(self) -> str:
        """In words, for a card.

        >>> AttributionAscent(radius=0.3, steps=40, step=0.01, points=10, norm_weight=0.1).describe()
        '40 steps of 0.01 of projected gradient ascent (10 points on the path) from a random point in the Linf ball...'
        """
        return (
            f"{self.steps} steps of {self.step:.3g} of projected gradient ascent ({self.points} points on the path)"
            f" from a random point in the Linf ball of radius {self.radius:.3g}"
        )


def _gradient(module: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """Of the cross-entropy of each of `points` (N, ...) by itself; nothing is added to the parameters' gradients."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        losses = F.cross_entropy(module(points), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(losses, points, materialize_grads=True)
    return gradient


def _check_points(option: str, points: int) -> None:
    check_integer(points, option, 2)
