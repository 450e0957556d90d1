"""Perturbations that raise the loss of a classifier: projected gradient ascent, for training and for measuring.

Adversarial training minimises the loss of the worst input near each training input,

    min over w  of  E max { L(w, x + delta, y) : ||delta|| <= r, x + delta within the bounds },

with projected gradient ascent (PGD) for the maximum: from a random point of the ball, steps of one length along the
gradient's sign (maximum norm) or direction (2-norm), each followed by the nearest point of the ball within the bounds.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, "Towards deep learning models resistant to adversarial attacks"
(ICLR 2018), Eq. 2.1 and Sec. 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Bounds, L2Ball, LinfBall
from holdfast.tensors import rows_to
from holdfast.zoo.training.classifier import check_data, device_of, mode

Ball = L2Ball | LinfBall


@dataclass(frozen=True)
class Pgd:
    """Projected gradient ascent on the cross-entropy, with its options; `train_classifier` takes it as `perturb`.

    Args:
        ball: its norm and radius count; its distribution has no part in this.
        steps: at least 1.
        step: the length of each in the norm of the ball, above 0.
        bounds: of every input.

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
        check(0 < self.step < math.inf, "step", "a finite number above 0", self.step)

    def __call__(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Inputs like `inputs` (N, ...), each in its ball and the bounds, with a greater loss for `labels` (N,).

        The last point of the ascent, not the best on the way. `module` runs in eval mode, so without dropout and
        with fixed batch statistics; it has its modes back afterwards, and its parameters get no gradients.

        Raises `ArgumentError` when inputs and labels do not match or inputs are out of bounds.
        """
        check_data(inputs, labels)
        lower, upper = (torch.as_tensor(bound, dtype=inputs.dtype, device=inputs.device) for bound in self.bounds)
        inside = bool(((inputs >= lower) & (inputs <= upper)).all())
        check(inside, "inputs", "values within the bounds", "values outside of them")
        return self.ascent(module, inputs, labels, generator)

    def ascent(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """The same without the checks of the data, whose answers a device would have to be waited for."""
        lower, upper = (_like(bound, inputs) for bound in self.bounds)
        centre = inputs.detach()
        below, above = lower - centre, upper - centre
        delta = nearest_offset(self._start(centre, generator), self.ball, below, above)
        with mode(module, training=False):
            for _ in range(self.steps):
                ascent = self._direction(_gradient(module, centre + delta, labels))
                delta = nearest_offset(delta + self.step * ascent, self.ball, below, above)
        # centre + (bound - centre) may miss the bound by the last bit
        return torch.minimum(torch.maximum(centre + delta, lower), upper)

    def describe(self) -> str:
        """In words, for a card.

        >>> Pgd(L2Ball(radius=1.0), steps=10, step=0.5).describe()
        '10 steps of 0.5 of projected gradient ascent from a random point in the L2 ball of radius 1'
        """
        norm = "L2" if isinstance(self.ball, L2Ball) else "Linf"
        return (
            f"{self.steps} steps of {self.step:.3g} of projected gradient ascent from a random point"
            f" in the {norm} ball of radius {self.ball.radius:.3g}"
        )

    def _start(self, centre: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform on the ball, offsets like `centre`."""
        device, dtype = generator.device, centre.dtype
        if isinstance(self.ball, LinfBall):
            uniform = torch.rand(centre.shape, generator=generator, device=device, dtype=dtype)
            return self.ball.radius * (2 * uniform - 1).to(centre.device)
        normal = torch.randn(centre.shape, generator=generator, device=device, dtype=dtype)
        distance = torch.rand(len(centre), generator=generator, device=device, dtype=dtype)
        distance = self.ball.radius * distance ** (1 / centre[0].numel())
        return (rows_to(distance, normal) * _unit(normal)).to(centre.device)

    def _direction(self, gradient: Tensor) -> Tensor:
        """The step of length 1 in the norm of the ball that gains most, to first order."""
        return gradient.sign() if isinstance(self.ball, LinfBall) else _unit(gradient)


def pgd(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    ball: Ball,
    *,
    steps: int,
    step: float,
    generator: torch.Generator,
    bounds: Bounds = (-math.inf, math.inf),
) -> Tensor:
    """`Pgd(ball, steps, step, bounds)` at once: inputs (N, ...) in the ball whose loss for `labels` (N,) is greater.

    >>> inputs, labels = torch.full((1, 3), 0.5), torch.tensor([2])
    >>> options = {"steps": 5, "step": 0.1, "bounds": (0.0, 1.0), "generator": torch.Generator()}
    >>> pgd(nn.Identity(), inputs, labels, LinfBall(radius=0.2), **options)
    tensor([[0.7, 0.7, 0.3]])
    """
    return Pgd(ball, steps, step, bounds)(module, inputs, labels, generator)


def robust_accuracy(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    attack: Pgd,
    *,
    generator: torch.Generator,
    batch_size: int = 1000,
) -> float:
    """The share, in [0, 1], of `inputs` (N, ...) that are classified as `labels` (N,) before and after `attack`.

    An upper bound for the share that no perturbation in the ball changes: a stronger attack may find more.

    >>> attack = Pgd(LinfBall(radius=0.2), steps=10, step=0.1)
    >>> inputs, labels = torch.tensor([[1.0, 0.0], [0.5, 0.3], [0.0, 1.0]]), torch.tensor([0, 0, 0])
    >>> robust_accuracy(nn.Identity(), inputs, labels, attack, generator=torch.Generator())
    0.333
    """
    check_data(inputs, labels)
    check(batch_size >= 1, "batch_size", "at least 1", batch_size)
    device = device_of(module)
    correct = 0
    with mode(module, training=False):
        for batch, target in zip(torch.split(inputs, batch_size), torch.split(labels, batch_size), strict=True):
            clean, wanted = batch.to(device), target.to(device)
            worst = attack(module, clean, wanted, generator)
            with torch.no_grad():
                right = (module(clean).argmax(dim=1) == wanted) & (module(worst).argmax(dim=1) == wanted)
            correct += int(right.sum())
    return correct / len(inputs)


def nearest_offset(delta: Tensor, ball: Ball, below: Tensor, above: Tensor) -> Tensor:
    """The nearest points to `delta` (N, ...) in a ball around 0 within `below` <= 0 and `above` >= 0. Exact.

    In the 2-norm they are `clip(s delta)` with the greatest s <= 1 whose norm is at most the radius r: what the
    Karush-Kuhn-Tucker conditions say, s = 1 / (1 + multiplier). The squared norm of `clip(sqrt(t) delta)` is concave
    and piecewise linear in t, so Newton's steps from the left never pass r^2 and end after finitely many pieces.

    >>> nearest_offset(torch.tensor([[3.0, 4.0]]), L2Ball(radius=2.0), torch.tensor(-9.0), torch.tensor([1.0, 9.0]))
    tensor([[1.0000, 1.7321]])
    """
    if isinstance(ball, LinfBall):
        delta = delta.clamp(-ball.radius, ball.radius)
        return torch.minimum(torch.maximum(delta, below), above)
    clipped = torch.minimum(torch.maximum(delta, below), above)
    outside = clipped.flatten(1).norm(dim=1) > ball.radius
    if not bool(outside.any()):
        return clipped
    square = delta.flatten(1).square()
    limit = torch.where(delta > 0, above, below).expand_as(delta).flatten(1).square()
    wanted = torch.full((len(delta), 1), ball.radius**2, dtype=delta.dtype, device=delta.device)
    t = wanted / square.sum(dim=1, keepdim=True)
    for _ in range(square.shape[1] + 1):
        free = t * square < limit
        spent, slope = torch.where(free, 0.0, limit).sum(1, True), torch.where(free, square, 0.0).sum(1, True)
        before, t = t, torch.maximum(t, (wanted - spent) / slope.clamp(min=torch.finfo(delta.dtype).tiny))
        if bool((outside[:, None] <= (t <= before * (1 + 1e-6))).all()):
            break
    scale = torch.where(outside, t[:, 0].clamp(max=1).sqrt(), 1.0)
    nearest = torch.minimum(torch.maximum(rows_to(scale, delta) * delta, below), above)
    excess = nearest.flatten(1).norm(dim=1) / ball.radius if ball.radius > 0 else torch.ones_like(scale)
    return nearest / rows_to(excess.clamp(min=1), delta)  # the last bit


def _like(bound: float | Tensor, inputs: Tensor) -> Tensor:
    """As a tensor where and as `inputs` are; a number is written there, not copied."""
    if isinstance(bound, Tensor):
        return bound.to(inputs)
    return torch.full((), bound, dtype=inputs.dtype, device=inputs.device)


def _gradient(module: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """Of the cross-entropy of each of `points` (N, ...) by itself; nothing is added to the parameters' gradients."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        loss = F.cross_entropy(module(points), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, points)
    return gradient


def _unit(rows: Tensor) -> Tensor:
    """Each of `rows` (N, ...) divided by its 2-norm; 0 stays 0. Scaled first: squares of small numbers vanish."""
    tiny = torch.finfo(rows.dtype).tiny
    scaled = rows / rows_to(rows.flatten(1).abs().amax(dim=1).clamp(min=tiny), rows)
    return scaled / rows_to(scaled.flatten(1).norm(dim=1).clamp(min=tiny), rows)
