"""Projected gradient ascent and adversarial training; `tests/zoo/test_cards.py` attacks the bundled networks."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

from standfast import data, zoo
from standfast.errors import ArgumentError
from standfast.neighbourhoods import L2Ball, LinfBall
from standfast.training.adversarial import Ball, Pgd, project_offset
from standfast.training.classifier import accuracy

BALLS = [L2Ball(1.5), LinfBall(0.15)]
each_ball = pytest.mark.parametrize("ball", BALLS, ids=["l2", "linf"])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pgd(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    ball: Ball,
    generator: torch.Generator,
    **options,
) -> Tensor:
    return Pgd(ball, **options)(module, inputs, labels, generator)


def length(offsets: Tensor, ball: Ball) -> Tensor:
    """`(N,)`, in the norm of the ball."""
    return offsets.flatten(1).norm(dim=1, p=2 if isinstance(ball, L2Ball) else math.inf)


def losses(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return nn.functional.cross_entropy(module(inputs), labels, reduction="none")


# the nearest point


def test_the_projection_is_the_nearest_point() -> None:
    """It equals the Karush-Kuhn-Tucker point, found by bisection on the multiplier in double precision."""
    generator = seeded()
    delta = (
        torch.randn(200, 3, 5, generator=generator, dtype=torch.float64)
        * torch.logspace(-1, 2, 200)[:, None, None]
    )
    below = -torch.rand(200, 3, 5, generator=generator, dtype=torch.float64)
    above = torch.rand(200, 3, 5, generator=generator, dtype=torch.float64)
    above[:, 0], below[:, 1] = 0.0, -math.inf  # such as black pixels, and no bound
    ball = L2Ball(1.0)
    nearest = project_offset(delta, ball, below, above)
    low, high = torch.zeros(200, dtype=torch.float64), torch.ones(200, dtype=torch.float64)
    for _ in range(60):
        middle = (low + high) / 2
        too_far = length(torch.clamp(middle[:, None, None] * delta, below, above), ball) > 1
        low, high = torch.where(too_far, low, middle), torch.where(too_far, middle, high)
    torch.testing.assert_close(
        nearest, torch.clamp(low[:, None, None] * delta, below, above), atol=1e-6, rtol=1e-6
    )
    assert 20 < (length(nearest, ball) > 1 - 1e-6).sum() < 200  # both cases


@each_ball
def test_the_projection_of_a_point_in_the_ball_is_the_point(ball: Ball) -> None:
    delta = torch.rand(50, 7, generator=seeded()) * 0.2 - 0.1
    far = torch.tensor(9.0)
    assert torch.equal(project_offset(delta, ball, -far, far), delta)
    assert torch.equal(project_offset(0 * delta, ball, 0 * delta, 0 * delta), 0 * delta)


def test_a_ball_of_radius_0_is_its_centre() -> None:
    for ball in (L2Ball(0.0), LinfBall(0.0)):
        inputs = torch.rand(3, 4, generator=seeded())
        labels = torch.tensor([0, 1, 2])
        assert torch.equal(
            pgd(nn.Identity(), inputs, labels, ball, steps=2, step=0.1, generator=seeded()), inputs
        )


# the ascent


@each_ball
def test_perturbed_digits_are_in_the_ball_and_bounds_and_have_a_larger_loss(
    ball: Ball, digits: data.Dataset
) -> None:
    module, inputs, labels = zoo.load("lenet5-mnist"), digits.inputs[:60], digits.labels[:60]
    attack = Pgd(ball, steps=7, step=ball.radius / 4, bounds=(0.0, 1.0))
    perturbed = attack(module, inputs, labels, seeded())
    assert perturbed.shape == inputs.shape
    assert perturbed.min() >= 0
    assert perturbed.max() <= 1
    distance = length(perturbed - inputs, ball)
    assert (distance <= ball.radius * (1 + 1e-5)).all()
    # it reaches the sphere, although most pixels are at a bound
    assert (distance > 0.98 * ball.radius).all()
    assert (losses(module, perturbed, labels) > losses(module, inputs, labels)).all()
    assert accuracy(module, perturbed, labels) < 0.6 < accuracy(module, inputs, labels)
    random = inputs + project_offset(
        torch.randn(inputs.shape, generator=seeded()), ball, -inputs, 1 - inputs
    )
    assert losses(module, perturbed, labels).mean() > 3 * losses(module, random, labels).mean()


def test_on_a_linear_model_the_ascent_ends_at_the_exact_maximum() -> None:
    """Two classes: x + r w / |w| and x + r sign(w), with w from the label's weights to the other's."""
    module = nn.Linear(6, 2).double()
    inputs, labels = torch.randn(9, 6, generator=seeded(), dtype=torch.float64), torch.arange(9) % 2
    w = (module.weight[1 - labels] - module.weight[labels]).detach()
    options = {"steps": 60, "step": 0.4, "generator": seeded(1)}
    expected = inputs + 0.7 * w / w.norm(dim=1, keepdim=True)
    torch.testing.assert_close(pgd(module, inputs, labels, L2Ball(0.7), **options), expected)
    torch.testing.assert_close(
        pgd(module, inputs, labels, LinfBall(0.7), **options), inputs + 0.7 * w.sign()
    )


def test_with_a_feature_at_its_bound_the_other_features_use_the_whole_ball() -> None:
    """Weights (3, 4, 12) with the last feature at its bound: the direction is (3, 4) / 5."""
    module = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-3.0, -4.0, -12.0], [3.0, 4.0, 12.0]]))
    inputs, labels = torch.tensor([[0.2, 0.2, 1.0]]), torch.tensor([0])
    ended = pgd(
        module,
        inputs,
        labels,
        L2Ball(0.5),
        steps=100,
        step=0.5,
        bounds=(0.0, 1.0),
        generator=seeded(),
    )
    torch.testing.assert_close(ended, torch.tensor([[0.5, 0.6, 1.0]]))


def test_the_start_is_uniform_in_the_ball() -> None:
    """Measured by the distance from the centre; with a tiny step the ascent ends where it starts."""
    module, inputs, labels = (
        nn.Linear(3, 2),
        torch.zeros(4000, 3),
        torch.zeros(4000, dtype=torch.int64),
    )
    options = {"steps": 1, "step": 1e-9, "generator": seeded()}
    for ball in (L2Ball(2.0), LinfBall(2.0)):
        shares = (length(pgd(module, inputs, labels, ball, **options), ball) / 2.0) ** 3
        uniform = (torch.arange(4000) + 0.5) / 4000
        assert (shares.sort().values - uniform).abs().max() < 0.031  # Kolmogorov-Smirnov, 1 in 1000
        mean = pgd(module, inputs, labels, ball, **options).mean(0)
        assert (mean.abs() < 0.09).all()


@each_ball
def test_results_depend_on_the_generator_only(ball: Ball) -> None:
    module, inputs, labels = (
        nn.Linear(5, 3),
        torch.rand(8, 5, generator=seeded()),
        torch.arange(8) % 3,
    )
    state = torch.get_rng_state()
    attack = Pgd(ball, steps=1, step=0.01)
    first = attack(module, inputs, labels, seeded())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, attack(module, inputs, labels, seeded()))
    assert not torch.equal(first, attack(module, inputs, labels, seeded(1)))


def test_an_input_does_not_depend_on_the_others() -> None:
    module = nn.Linear(4, 2, bias=False).double()
    inputs, labels = torch.randn(6, 4, generator=seeded(), dtype=torch.float64), torch.arange(6) % 2
    options = {"ball": L2Ball(0.5), "steps": 50, "step": 0.5}
    together = pgd(module, inputs, labels, generator=seeded(), **options)
    alone = torch.cat(
        [
            pgd(module, inputs[i : i + 1], labels[i : i + 1], generator=seeded(), **options)
            for i in range(6)
        ]
    )
    torch.testing.assert_close(together, alone)


def test_a_step_has_its_length_even_if_the_gradient_is_tiny() -> None:
    """A gradient of 1e-25, whose square is 0, still has a direction."""
    module = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[15.0, 0, 0, 0], [-15.0, 0, 0, 0]]))
    inputs, labels = torch.tensor([[2.0, 0, 0, 0]]), torch.tensor([0])
    assert 0 < module(inputs).softmax(1)[0, 1] < 1e-25
    ends = [
        pgd(module, inputs, labels, L2Ball(0.5), steps=1, step=step, generator=seeded())
        for step in (0.01, 0.03)
    ]
    torch.testing.assert_close(
        ends[1] - ends[0], torch.tensor([[-0.02, 0, 0, 0]]), atol=1e-6, rtol=0
    )


class Spy(nn.Module):
    """A module with batch statistics and dropout, which records the mode of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)
        )
        self.modes: list[bool] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.modes.append(self.layers[2].training)
        return self.layers(inputs)


@each_ball
def test_the_ascent_does_not_change_the_module_or_the_inputs(ball: Ball) -> None:
    module, inputs, labels = Spy(), torch.rand(6, 4, generator=seeded()), torch.arange(6) % 3
    module.layers[1].eval()
    torch.autograd.backward(module(inputs).sum())
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    state = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    before = inputs.clone()
    module.modes.clear()
    with torch.no_grad():
        perturbed = pgd(module, inputs, labels, ball, steps=3, step=0.05, generator=seeded())
    assert module.modes == [False] * 3
    assert [part.training for part in module.layers] == [True, False, True, True]
    assert torch.equal(inputs, before)
    assert not perturbed.requires_grad
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert parameter.requires_grad
        assert torch.equal(parameter.grad, gradient)
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[key])


def test_refusals() -> None:
    assert_refused(partial(Pgd, steps=5, step=0.1), ball=[0.3])
    assert_refused(partial(Pgd, L2Ball(1.0), step=0.1), steps=[0, 2.5])
    assert_refused(partial(Pgd, L2Ball(1.0), 5), step=[0.0, math.nan])
    assert_refused(attacked, inputs=[torch.full((2, 3), 1.1), torch.full((2, 3), math.nan)])
    with pytest.raises(ArgumentError, match="labels: expected one label per input"):
        attacked(torch.zeros(3, 3))


def attacked(inputs: Tensor) -> Tensor:
    attack = Pgd(L2Ball(1.0), steps=1, step=0.1, bounds=(0.0, 1.0))
    return attack(nn.Identity(), inputs, torch.tensor([0, 1]), seeded())


# training
