"""Robust attribution regularisation: integrated gradients of the loss between inputs and perturbed inputs.

Let l be the cross-entropy of an input x and its label, and x' a perturbed input. The integrated gradients of l on the
segment from x to x' attribute the change of the loss to features,

    IG_i(x, x')  =  (x'_i - x_i)  integral over a in [0, 1] of  d l(x + a (x' - x)) / d x_i,

and they add up to that change: sum IG(x, x') = l(x') - l(x). Robust attribution regularisation keeps them small for
every x' in a ball around x, with a size function s:

    min over w  of  E [ l(x) + weight max { s(IG(x, x')) : ||x' - x||_inf <= r, x' within the bounds } ]

IG-NORM takes s = ||.||_1. IG-SUM-NORM takes s = sum(.) + beta ||.||_1 with a weight of 1. By completeness this is
max { l(x') + beta ||IG(x, x')||_1 }, that is adversarial training with a penalty at the same x'. With beta = 0 it is
adversarial training.

The integral is computed by the trapezoid rule, whose points include both ends. So l(x') and l(x) need no further pass,
and the gradient at x, which is the same in every step of the ascent, is computed once. All other points of a batch are
forwarded in one pass. Projected gradient ascent approximates the maximum: it takes steps along the sign of the
derivative by x', which needs second derivatives of the loss (by differentiating twice; no Hessian is built).

Three things to know:

- ||IG||_1 has a kink wherever a feature of x' equals that of x. There its derivative is taken as 0, although any step
  may increase it. So the ascent starts from a uniform point of the ball within the bounds. A uniform point of the ball,
  clipped to the bounds, would leave about half of an image's background at its bound, where it equals x.
- A network of rectifiers is piecewise linear. Its second derivatives are those of automatic differentiation, through
  softmax and cross-entropy. For the sum over points this is the derivative almost everywhere. In the integral itself,
  the kinks that a segment crosses also move with x'; a sum over fixed points cannot see that.
- In train mode, dropout is drawn for each point of a segment separately, and batch statistics are those of all points
  together. The ascent runs in eval mode, where rows do not influence each other.

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

from standfast.errors import check_integer
from standfast.neighbourhoods import Bounds
from standfast.training.adversarial import compute_loss_gradient
from standfast.training.loop import set_mode


@dataclass(frozen=True, eq=False)
class LossPath:
    """The cross-entropy on the segments from N inputs to N perturbed inputs; all tensors have a graph.

    The points are at equal distances. The last one is the perturbed input. The first one is the input, unless its
    gradient was already known.
    """

    attributions: Tensor  # (N, ...): integrated gradients from the inputs to the perturbed ones
    losses: Tensor  # (N, points)
    logits: Tensor  # (N, points, classes)

    def norms(self) -> Tensor:
        """`||IG(x, x')||_1` of each row, `(N,)`."""
        return self.attributions.flatten(1).abs().sum(dim=1)


def compute_loss_path(
    module: Callable[[Tensor], Tensor],
    inputs: Tensor,
    perturbed: Tensor,
    labels: Tensor,
    *,
    points: int,
    at_inputs: Tensor | None = None,
) -> LossPath:
    """Integrated gradients of the cross-entropy for `labels` (N,) from `inputs` to `perturbed`, both (N, ...).

    One forward pass of all points together, and one backward pass whose graph is kept. So the result can be
    differentiated by the parameters, and by `perturbed` if it requires a gradient.

    Args:
        module: rows (R, ...) -> logits (R, classes), each row by itself.
        inputs: where the paths begin.
        perturbed: where they end.
        labels: classes, int64.
        points: of the trapezoid rule on each path, including both ends; at least 2.
        at_inputs: gradients of the loss at `inputs`, (N, ...), if they are known. Then the first point of a path is
            left out of the forward pass, and of `losses` and `logits`.

    Raises:
        ArgumentError: fewer than two points.

    >>> module = nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[0.0, 0.0], [1.0, 3.0]]))
    >>> inputs, labels = torch.zeros(1, 2), torch.tensor([0])
    >>> path = compute_loss_path(module, inputs, torch.ones(1, 2), labels, points=50)
    >>> path.attributions  # l = log(1 + exp(x_1 + 3 x_2)): they are a quarter and three quarters of its change
    tensor([[0.8313, 2.4938]], grad_fn=<...>)
    >>> path.losses[:, -1] - path.losses[:, 0]
    tensor([3.3250], grad_fn=<...>)
    """
    check_integer(points, "points", 2)
    # the gradient at the inputs is known, so their point is left out
    first = 0 if at_inputs is None else 1
    with torch.enable_grad():
        along = torch.arange(first, points, device=inputs.device, dtype=inputs.dtype) / (points - 1)
        along = along.reshape(1, -1, *[1] * (inputs.ndim - 1))
        # exact at both ends
        on_path = torch.lerp(inputs[:, None], perturbed[:, None], along)
        rows = on_path.flatten(0, 1)
        # a graph is needed also where only the parameters are to be differentiated
        if not rows.requires_grad:
            rows.requires_grad_()
        logits = module(rows)
        losses = F.cross_entropy(logits, labels.repeat_interleave(points - first), reduction="none")
        (gradient,) = torch.autograd.grad(
            losses.sum(), rows, create_graph=True, materialize_grads=True
        )
        gradient = gradient.reshape(len(inputs), points - first, *inputs.shape[1:])
        losses = losses.reshape(len(inputs), points - first)
        logits = logits.reshape(len(inputs), points - first, *logits.shape[1:])
        # the trapezoid rule gives both ends half of the weight
        if at_inputs is None:
            at_inputs = gradient[:, 0]
        ends = gradient[:, -1] + at_inputs
        between = gradient[:, 1 - first : -1]
        mean = (between.sum(dim=1) + ends / 2) / (points - 1)
        return LossPath((perturbed - inputs) * mean, losses, logits)


@dataclass(frozen=True)
class AttributionAscent:
    """Projected gradient ascent on `loss_weight l(x') + norm_weight ||IG(x, x')||_1` in a maximum-norm ball around x.

    Args:
        radius: of the ball, at least 0.
        steps: at least 1.
        step: the length of each step in every feature, at least 0.
        points: of the trapezoid rule, including both ends; at least 2. With 2, IG is half the sum of the gradients at
            both ends, times the perturbation.
        loss_weight: at least 0; it is 0 for IG-NORM and 1 for IG-SUM-NORM.
        norm_weight: at least 0.
        bounds: of every input.

    >>> attack = AttributionAscent(radius=0.2, steps=5, step=0.1, points=4, bounds=(0.0, 1.0))
    >>> inputs, labels = torch.full((1, 3), 0.5), torch.tensor([2])
    >>> attack.ascend(nn.Identity(), inputs, labels, torch.Generator().manual_seed(0))
    tensor([[0.7000, 0.7000, 0.3000]])
    """

    radius: float
    steps: int
    step: float
    points: int = 5
    loss_weight: float = 1.0
    norm_weight: float = 1.0
    bounds: Bounds = (-math.inf, math.inf)

    def ascend(
        self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Perturb `inputs` (N, ...) within the ball and the bounds, to increase the objective for `labels` (N,).

        Returns the last point of the ascent, which need not be the best one. `module` runs in eval mode. Its modes are
        restored afterwards, and its parameters get no gradients.
        """
        centre = inputs.detach()
        least, greatest = (
            bound.to(centre) if isinstance(bound, Tensor) else bound for bound in self.bounds
        )
        lower = (centre - self.radius).clamp(min=least)
        upper = (centre + self.radius).clamp(max=greatest)
        uniform = torch.rand(
            centre.shape, generator=generator, device=generator.device, dtype=centre.dtype
        )
        # between the bounds of the ball within the range: a clipped point would often equal the input
        perturbed = torch.lerp(lower, upper, uniform.to(centre.device))
        with set_mode(module, training=False):
            # once for all steps, as the input does not move
            at_inputs = (
                compute_loss_gradient(module, centre, labels) if self.norm_weight > 0 else None
            )
            for _ in range(self.steps):
                direction = self._differentiate(module, centre, perturbed, labels, at_inputs).sign()
                perturbed = torch.minimum(
                    torch.maximum(perturbed + self.step * direction, lower), upper
                )
        return perturbed

    def compute_objective(self, path: LossPath) -> Tensor:
        """`loss_weight l(x') + norm_weight ||IG(x, x')||_1` of each row, `(N,)`."""
        return self.loss_weight * path.losses[:, -1] + self.norm_weight * path.norms()

    def _differentiate(
        self,
        module: nn.Module,
        centre: Tensor,
        perturbed: Tensor,
        labels: Tensor,
        at_inputs: Tensor | None,
    ) -> Tensor:
        """The derivative of the objective by `perturbed`. Without the norm it needs no second derivative."""
        if at_inputs is None:
            return self.loss_weight * compute_loss_gradient(module, perturbed, labels)
        with torch.enable_grad():
            end = perturbed.detach().requires_grad_()
            path = compute_loss_path(
                module, centre, end, labels, points=self.points, at_inputs=at_inputs
            )
            (derivative,) = torch.autograd.grad(self.compute_objective(path).sum(), end)
        return derivative

    def describe(self) -> str:
        """The attack in words, for the card of a model.

        >>> AttributionAscent(radius=0.3, steps=40, step=0.01, points=10, norm_weight=0.1).describe()
        '40 steps of 0.01 of projected gradient ascent (10 points on the path) from a random point in the Linf ball...'
        """
        return (
            f"{self.steps} steps of {self.step:.3g} of projected gradient ascent ({self.points} points on the path)"
            f" from a random point in the Linf ball of radius {self.radius:.3g}"
        )
