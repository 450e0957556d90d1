"""Projected gradient ascent (PGD): perturbations that increase the loss, for adversarial training and for evaluation.

Adversarial training minimises the loss at the worst input near each training input,

    min over w  of  E max { L(w, x + delta, y) : ||delta|| <= r, x + delta within the bounds }.

PGD approximates the maximum. It starts from a random point of the ball and takes steps of a fixed length, along the
gradient's sign (maximum norm) or direction (2-norm). After each step it projects to the nearest point of the ball
within the bounds.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, "Towards deep learning models resistant to adversarial attacks"
(ICLR 2018), Eq. 2.1 and Sec. 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import check, check_integer, check_number
from standfast.neighbourhoods import Bounds, L2Ball, LinfBall
from standfast.tensors import broadcast_rows
from standfast.training.loop import check_bounds, check_data, measure_share, set_mode

Ball = L2Ball | LinfBall


@dataclass(frozen=True)
class Pgd:
    """Projected gradient ascent on the cross-entropy, with its options.

    Args:
        ball: its norm and radius are used; its distribution is not.
        steps: at least 1.
        step: the length of each step in the norm of the ball, above 0.
        bounds: of every input.

    Raises:
        ArgumentError: an option out of range.

    >>> attack = Pgd(L2Ball(radius=1.0), steps=10, step=0.5)
    >>> module = nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
    >>> generator = torch.Generator().manual_seed(0)
    >>> attack(module, torch.ones(1, 2), torch.tensor([0]), generator)  # (1, 1) - (3, 4) / 5
    tensor([[0.4, 0.2]])
    """

    ball: Ball
    steps: int
    step: float
    bounds: Bounds = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        check(isinstance(self.ball, Ball), "ball", "an L2Ball or a LinfBall", repr(self.ball))
        check_integer(self.steps, "steps")
        check_number(self.step, "step", above=0)

    def __call__(
        self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Perturb `inputs` (N, ...) within the ball and the bounds, to increase the loss for `labels` (N,).

        Returns the last point of the ascent, which need not be the best one. `module` runs in eval mode, that is
        without dropout and with fixed batch statistics. Its modes are restored afterwards, and its parameters get no
        gradients.

        Raises:
            ArgumentError: inputs and labels do not match, or inputs are out of bounds.
        """
        check_data(inputs, labels)
        check_bounds(inputs, self.bounds)
        return self.ascend(module, inputs, labels, generator)

    def ascend(
        self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        """The same without checks of the data: they would have to wait for the device."""
        lower, upper = (_to_tensor(bound, inputs) for bound in self.bounds)
        centre = inputs.detach()
        below = lower - centre
        above = upper - centre
        # a start outside of the bounds would be no perturbed input
        delta = project_offset(self._draw_start(centre, generator), self.ball, below, above)
        with set_mode(module, training=False):
            for _ in range(self.steps):
                gradient = compute_loss_gradient(module, centre + delta, labels)
                direction = self._choose_direction(gradient)
                # projected after each step, so that all gradients are those of allowed points
                delta = project_offset(delta + self.step * direction, self.ball, below, above)
        # centre + (bound - centre) may differ from the bound in the last bit
        return torch.minimum(torch.maximum(centre + delta, lower), upper)

    def describe(self) -> str:
        """The attack in words, for the card of a model.

        >>> Pgd(L2Ball(radius=1.0), steps=10, step=0.5).describe()
        '10 steps of 0.5 of projected gradient ascent from a random point in the L2 ball of radius 1'
        """
        norm = "L2" if isinstance(self.ball, L2Ball) else "Linf"
        return (
            f"{self.steps} steps of {self.step:.3g} of projected gradient ascent from a random point"
            f" in the {norm} ball of radius {self.ball.radius:.3g}"
        )

    def _draw_start(self, centre: Tensor, generator: torch.Generator) -> Tensor:
        """Random offsets of the shape of `centre`, uniform in the ball."""
        device = generator.device
        dtype = centre.dtype
        if isinstance(self.ball, LinfBall):
            uniform = torch.rand(centre.shape, generator=generator, device=device, dtype=dtype)
            # drawn where the generator is, so that its device decides the numbers and not that of the model
            direction = (2 * uniform - 1).to(centre.device)
            return self.ball.radius * direction
        normal = torch.randn(centre.shape, generator=generator, device=device, dtype=dtype)
        distance = torch.rand(len(centre), generator=generator, device=device, dtype=dtype)
        # the root makes points uniform in the volume, not along the radius
        features = centre[0].numel()
        distance = self.ball.radius * distance ** (1 / features)
        start = broadcast_rows(distance, normal) * _normalise(normal)
        return start.to(centre.device)

    def _choose_direction(self, gradient: Tensor) -> Tensor:
        """The step of length 1, in the norm of the ball, that increases the loss most to first order."""
        if isinstance(self.ball, LinfBall):
            return gradient.sign()
        return _normalise(gradient)


def robust_accuracy(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    attack: Pgd,
    *,
    generator: torch.Generator,
    batch_size: int = 1000,
) -> float:
    """The share, in [0, 1], of `inputs` (N, ...) that are classified as `labels` (N,) both before and after `attack`.

    This is an upper bound on the share of inputs whose class no perturbation in the ball changes: a stronger attack may
    change more of them.

    >>> attack = Pgd(LinfBall(radius=0.2), steps=10, step=0.1)
    >>> inputs, labels = torch.tensor([[1.0, 0.0], [0.5, 0.3], [0.0, 1.0]]), torch.tensor([0, 0, 0])
    >>> robust_accuracy(nn.Identity(), inputs, labels, attack, generator=torch.Generator())
    0.333
    """

    def is_robust(clean: Tensor, classes: Tensor) -> Tensor:
        perturbed = attack(module, clean, classes, generator)
        with torch.no_grad():
            is_right_before = module(clean).argmax(dim=1) == classes
            is_right_after = module(perturbed).argmax(dim=1) == classes
        return torch.logical_and(is_right_before, is_right_after)

    return measure_share(module, inputs, labels, batch_size, is_robust)


def project_offset(delta: Tensor, ball: Ball, below: Tensor, above: Tensor) -> Tensor:
    """Project `delta` (N, ...) to the nearest points of a ball around 0 within `below` <= 0 and `above` >= 0. Exact.

    In the 2-norm the nearest point is `clip(s delta)` with the largest s <= 1 for which its norm is at most the radius
    r. This follows from the Karush-Kuhn-Tucker conditions, with s = 1 / (1 + multiplier). The squared norm of
    `clip(sqrt(t) delta)` is concave and piecewise linear in t. So Newton's method from the left never exceeds r^2, and
    ends after finitely many steps.

    >>> project_offset(torch.tensor([[3.0, 4.0]]), L2Ball(radius=2.0), torch.tensor(-9.0), torch.tensor([1.0, 9.0]))
    tensor([[1.0000, 1.7321]])
    """
    if isinstance(ball, LinfBall):
        delta = delta.clamp(-ball.radius, ball.radius)
        return torch.minimum(torch.maximum(delta, below), above)
    clipped = torch.minimum(torch.maximum(delta, below), above)
    outside = clipped.flatten(1).norm(dim=1) > ball.radius
    # most points are inside, and need no search for the scale
    if not bool(outside.any()):
        return clipped
    scale = _find_scale(delta, ball.radius, below, above, outside)
    scaled = broadcast_rows(scale, delta) * delta
    nearest = torch.minimum(torch.maximum(scaled, below), above)
    excess = torch.ones_like(scale)
    if ball.radius > 0:
        excess = nearest.flatten(1).norm(dim=1) / ball.radius
    # rounding may exceed the radius in the last bit
    return nearest / broadcast_rows(excess.clamp(min=1), delta)


def _find_scale(
    delta: Tensor, radius: float, below: Tensor, above: Tensor, outside: Tensor
) -> Tensor:
    """The s of each row for which `clip(s delta)` has the norm `radius`, `(N,)`; 1 for rows that are not `outside`."""
    square = delta.flatten(1).square()
    bound = torch.where(delta > 0, above, below).expand_as(delta)
    limit = bound.flatten(1).square()
    goal = torch.full((len(delta), 1), radius**2, dtype=delta.dtype, device=delta.device)
    tiny = torch.finfo(delta.dtype).tiny
    t = goal / square.sum(dim=1, keepdim=True)  # the square of s
    # the squared norm is piecewise linear with one kink for each feature, so that many steps suffice
    for _ in range(square.shape[1] + 1):
        is_free = t * square < limit
        clipped_part = torch.where(is_free, 0.0, limit).sum(1, True)
        slope = torch.where(is_free, square, 0.0).sum(1, True)
        before = t
        # never below the last one: Newton's method from the left only grows, but for rounding
        next_t = (goal - clipped_part) / slope.clamp(min=tiny)
        t = torch.maximum(t, next_t)
        has_settled = t <= before * (1 + 1e-6)
        # of rows inside of the ball nothing is asked
        if bool((has_settled | ~outside[:, None]).all()):
            break
    scale = t[:, 0].clamp(max=1).sqrt()
    return torch.where(outside, scale, 1.0)


def _to_tensor(bound: float | Tensor, inputs: Tensor) -> Tensor:
    """The bound as a tensor with the device and dtype of `inputs`; a number is written there without a copy."""
    if isinstance(bound, Tensor):
        return bound.to(inputs)
    # a copy from the host would wait for the device
    return torch.full((), bound, dtype=inputs.dtype, device=inputs.device)


def compute_loss_gradient(module: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the cross-entropy of each of `points` (N, ...) by that point; parameters get no gradients."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        loss = F.cross_entropy(module(points), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, points, materialize_grads=True)
    return gradient


def _normalise(rows: Tensor) -> Tensor:
    """Each of `rows` (N, ...) divided by its 2-norm; 0 stays 0.

    Rows are scaled by their largest entry first, since squares of small numbers would become 0.
    """
    tiny = torch.finfo(rows.dtype).tiny
    largest = rows.flatten(1).abs().amax(dim=1).clamp(min=tiny)
    scaled = rows / broadcast_rows(largest, rows)
    norms = scaled.flatten(1).norm(dim=1).clamp(min=tiny)
    return scaled / broadcast_rows(norms, rows)
