"""Integrated gradients of the loss and their maximum nearby: closed forms, Captum, enumeration, slow loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from captum.attr import IntegratedGradients
from scipy.integrate import quad_vec
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import ArgumentError
from standfast.training.attribution_regularization import (
    AttributionAscent,
    compute_loss_path,
)
from standfast.training.classifier import initialize
from standfast.training.objective import Scheme, TrainingBatch
from standfast.training.schemes import IgNorm, IgSumNorm

LABELS = torch.tensor([0, 1, 2, 0, 1])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 10), activation(), nn.Linear(10, 3))
    return initialize(module, seeded(4)).double()


def pair(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Five inputs (2, 3) and five perturbed ones."""
    inputs = torch.randn(5, 2, 3, generator=seeded(seed), dtype=torch.float64)
    return inputs, inputs + torch.randn(5, 2, 3, generator=seeded(seed + 1), dtype=torch.float64)


def compute_loss_attributions(module: nn.Module, *arguments: Tensor, points: int) -> Tensor:
    return compute_loss_path(module, *arguments, points=points).attributions


def losses_of(module: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(module(x), labels, reduction="none")


class Quadratic(nn.Module):
    """Two logits whose cross-entropy for class 0 is q(x) = c + b x + x A x / 2, above 0."""

    def __init__(self, a: Tensor, b: Tensor, c: float) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Parameter(a), nn.Parameter(b), c

    def value(self, x: Tensor) -> Tensor:
        return self.c + x @ self.b + ((x @ self.a) * x).sum(dim=1) / 2

    def forward(self, x: Tensor) -> Tensor:
        """log(1 + exp(z)) = q for z = log(exp(q) - 1)."""
        q = self.value(x)
        return torch.stack([torch.zeros_like(q), torch.log(torch.expm1(q))], dim=1)


# integrated gradients of the loss


def test_a_linear_network_by_quadrature() -> None:
    """IG_i = d_i integral of [A' (softmax(A x(a) + b) - e_y)]_i: by scipy, to ten digits."""
    module = initialize(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), seeded(1)).double()
    weight, bias = (parameter.detach().numpy() for parameter in module.parameters())
    inputs, perturbed = pair()
    found = compute_loss_attributions(module, inputs, perturbed, LABELS, points=6001).detach()
    for x, end, label, row in zip(
        inputs.flatten(1), perturbed.flatten(1), LABELS, found.flatten(1), strict=True
    ):
        way = (end - x).numpy()

        def gradient(a: float, x: Tensor = x, way=way, label: int = int(label)):
            z = weight @ (x.numpy() + a * way) + bias
            p = torch.from_numpy(z).softmax(0).numpy()
            p[label] -= 1
            return weight.T @ p

        expected = way * quad_vec(gradient, 0, 1, epsabs=1e-12)[0]
        torch.testing.assert_close(row, torch.from_numpy(expected), rtol=0, atol=2e-7)


@pytest.mark.parametrize("points", [2, 3, 7])
def test_a_quadratic_loss_is_exact_with_any_number_of_points(points: int) -> None:
    """The gradient is linear on the segment, for which the trapezoid rule is exact."""
    a, b = torch.tensor([[2.0, 0.7], [0.7, -1.0]]).double(), torch.tensor([0.3, 0.9]).double()
    module = Quadratic(a, b, 9.0)
    x, end = (
        torch.rand(4, 2, generator=seeded()).double(),
        torch.rand(4, 2, generator=seeded(1)).double(),
    )
    path = compute_loss_path(module, x, end, torch.zeros(4, dtype=torch.int64), points=points)
    torch.testing.assert_close(path.attributions, (end - x) * ((x + end) / 2 @ a + b))
    torch.testing.assert_close(path.losses[:, 0], module.value(x))
    torch.testing.assert_close(path.losses[:, -1], module.value(end))
    torch.testing.assert_close(path.attributions.sum(dim=1), module.value(end) - module.value(x))
    torch.testing.assert_close(path.norms(), path.attributions.abs().sum(dim=1))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_equal_to_captums_integrated_gradients_of_the_loss(activation: type[nn.Module]) -> None:
    """For the loss as a function, from x to x'. Captum's trapezoid weights add up to 1 - 1 / steps, ours to 1."""
    module, (inputs, perturbed) = network(activation), pair()
    theirs = IntegratedGradients(lambda x, labels: losses_of(module, x, labels))

    def captum(steps: int, method: str) -> Tensor:
        arguments = {
            "additional_forward_args": (LABELS.repeat(1),),
            "n_steps": steps,
            "method": method,
        }
        return theirs.attribute(perturbed.clone(), inputs, **arguments).detach()

    for steps in (2, 5, 30):
        found = compute_loss_attributions(module, inputs, perturbed, LABELS, points=steps).detach()
        torch.testing.assert_close(found, captum(steps, "riemann_trapezoid") * steps / (steps - 1))
    if activation is nn.Tanh:
        found = compute_loss_attributions(module, inputs, perturbed, LABELS, points=3001).detach()
        torch.testing.assert_close(found, captum(80, "gausslegendre"), rtol=1e-5, atol=1e-6)


def test_with_known_gradients_the_inputs_are_not_forwarded() -> None:
    module, (inputs, perturbed) = network(), pair()
    x = inputs.clone().requires_grad_()
    (at_inputs,) = torch.autograd.grad(losses_of(module, x, LABELS).sum(), x)
    for points in (2, 3, 9):
        rows: list[int] = []
        handle = module.register_forward_hook(
            lambda *arguments, rows=rows: rows.append(len(arguments[-1]))
        )
        whole = compute_loss_path(module, inputs, perturbed, LABELS, points=points)
        spared = compute_loss_path(
            module, inputs, perturbed, LABELS, points=points, at_inputs=at_inputs
        )
        handle.remove()
        assert rows == [5 * points, 5 * (points - 1)]
        torch.testing.assert_close(whole.attributions, spared.attributions)
        torch.testing.assert_close(whole.losses[:, 1:], spared.losses)
        torch.testing.assert_close(whole.logits[:, 1:], spared.logits)


def test_ends_are_exact() -> None:
    """The last point has the same bits as x', so that its logits are those of the perturbed input."""
    seen: list[Tensor] = []

    def look(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return x

    x, end = torch.rand(50, 3, generator=seeded()), torch.rand(50, 3, generator=seeded(1))
    compute_loss_path(look, x, end, torch.zeros(50, dtype=torch.int64), points=7)
    along = seen[0].reshape(50, 7, 3)
    assert torch.equal(along[:, 0], x)
    assert torch.equal(along[:, -1], end)


def test_a_constant_network_has_no_attributions() -> None:
    module = nn.Linear(1, 3)

    def biased(x: Tensor) -> Tensor:
        return module(torch.ones(len(x), 1))

    x, end = torch.rand(2, 4, generator=seeded()), torch.rand(2, 4, generator=seeded(1))
    path = compute_loss_path(biased, x, end, torch.tensor([0, 1]), points=3)
    assert float(path.norms().detach().sum()) == 0
    ascent = AttributionAscent(radius=0.1, steps=2, step=0.1)
    assert ascent.ascend(Wrapped(biased), x, torch.tensor([0, 1]), seeded()).shape == x.shape


class Wrapped(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


# derivatives of the norm


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.ReLU])
def test_the_derivative_by_the_perturbed_input(activation: type[nn.Module]) -> None:
    """The derivative of ||IG||_1 equals finite differences for each feature; also with rectifiers away from kinks."""
    module, (inputs, perturbed) = network(activation), pair()
    end = perturbed.clone().requires_grad_()
    (found,) = torch.autograd.grad(
        compute_loss_path(module, inputs, end, LABELS, points=4).norms().sum(), end
    )
    for index in range(6):
        shift = (
            torch.zeros(6, dtype=torch.float64)
            .index_fill(0, torch.tensor(index), 1e-6)
            .reshape(2, 3)
        )
        above, below = (
            compute_loss_path(module, inputs, perturbed + sign * shift, LABELS, points=4)
            .norms()
            .detach()
            for sign in (1, -1)
        )
        torch.testing.assert_close(
            found.flatten(1)[:, index], (above - below) / 2e-6, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize(
    "scheme", [IgNorm(weight=0.7, points=5, steps=1), IgSumNorm(weight=0.7, points=5, steps=1)]
)
def test_the_derivative_by_the_parameters(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """The derivative of the schemes' loss at a fixed x' equals finite differences."""
    module, (inputs, perturbed) = network(), pair()
    monkeypatch.setattr(AttributionAscent, "ascend", lambda *_: perturbed)

    def loss() -> Tensor:
        (part,) = scheme.parts(TrainingBatch(module, inputs, LABELS, seeded(), 1.0))
        return part.loss

    parameters = list(module.parameters())
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(loss(), parameters), strict=True
    ):
        index, values = int(gradient.abs().argmax()), []
        with torch.no_grad():
            flat = parameter.view(-1)
            for shift in (1e-6, -2e-6):
                flat[index] += shift
                values.append(float(loss().detach()))
            flat[index] += 1e-6
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(
            float(gradient.flatten()[index]), rel=1e-5
        )


# the ascent


def slow_ascent(
    ascent: AttributionAscent, module: nn.Module, inputs: Tensor, labels: Tensor, start: Tensor
) -> Tensor:
    """The ascent by loops over rows and points, with the derivative of the whole objective."""
    worst = []
    for x, label, end in zip(inputs, labels, start, strict=True):

        def loss(z: Tensor, label: Tensor = label) -> Tensor:
            return F.cross_entropy(module(z[None]), label[None])

        def objective(
            end: Tensor, x: Tensor = x, loss: Callable[[Tensor], Tensor] = loss
        ) -> Tensor:
            total = torch.zeros_like(x)
            for k in range(ascent.points):
                point = x + k / (ascent.points - 1) * (end - x)
                half = 0.5 if k in (0, ascent.points - 1) else 1.0
                total = total + half * torch.autograd.functional.jacobian(
                    loss, point, create_graph=True
                )
            attributions = (end - x) * total / (ascent.points - 1)
            return ascent.loss_weight * loss(end) + ascent.norm_weight * attributions.abs().sum()

        for _ in range(ascent.steps):
            end = end.detach().requires_grad_()
            (derivative,) = torch.autograd.grad(objective(end), end)
            lower, upper = ascent.bounds
            end = torch.clamp(
                end + ascent.step * derivative.sign(), x - ascent.radius, x + ascent.radius
            )
            end = end.clamp(lower, upper).detach()
        worst.append(end)
    return torch.stack(worst)


def starts(ascent: AttributionAscent, inputs: Tensor) -> Tensor:
    """The starts as the ascent draws them: uniform between the larger lower limit and the smaller upper limit."""
    lower = (inputs - ascent.radius).clamp(min=ascent.bounds[0])
    upper = (inputs + ascent.radius).clamp(max=ascent.bounds[1])
    return lower + torch.rand(inputs.shape, generator=seeded(3), dtype=inputs.dtype) * (
        upper - lower
    )


@pytest.mark.parametrize("weights", [(1.0, 0.1), (0.0, 1.0), (1.0, 4.0), (1.0, 0.0)])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_the_ascent_equals_the_formula(
    activation: type[nn.Module], weights: tuple[float, float]
) -> None:
    module = network(activation)
    inputs = torch.rand(5, 2, 3, generator=seeded(), dtype=torch.float64)
    ascent = AttributionAscent(0.3, 4, 0.15, 3, *weights, bounds=(0.0, 1.0))
    found = ascent.ascend(module, inputs, LABELS, seeded(3))
    torch.testing.assert_close(
        found, slow_ascent(ascent, module, inputs, LABELS, starts(ascent, inputs))
    )


def test_a_separable_quadratic_has_its_maximum_at_the_limits() -> None:
    """q = 9 + b x: IG_i = b_i d_i, so the loss is largest at sign(b) r, and the norm alone on the longer side."""
    b = torch.tensor([1.0, -0.5, 0.25, 0.0]).double()
    module = Quadratic(torch.zeros(4, 4).double(), b, 9.0)
    x, labels = torch.tensor([[0.5, 0.9, 0.1, 0.5]]).double(), torch.tensor([0])
    ascent = AttributionAscent(0.2, 20, 0.05, 3, 1.0, 0.1, (0.0, 1.0))
    end = ascent.ascend(module, x, labels, seeded())
    torch.testing.assert_close(end[:, :3], torch.tensor([[0.7, 0.7, 0.3]]).double())
    # the limits of the bounds, and the maximum of the loss
    free = AttributionAscent(0.2, 20, 0.05, 3, 0.0, 1.0)
    for seed in range(4):
        end = free.ascend(module, x, labels, seeded(seed))
        norm = compute_loss_attributions(module, x, end, labels, points=2).detach().abs().sum()
        assert float(norm) == pytest.approx(0.2 * 1.75)


def test_no_feature_starts_where_the_norm_has_its_kink() -> None:
    """With a clipped start, half of the features at a bound would stay there: |d_i| has no slope at 0."""
    x = torch.zeros(4, 500, dtype=torch.float64)
    b = torch.linspace(0.1, 1, 500, dtype=torch.float64)
    ascent = AttributionAscent(0.3, 10, 0.1, 2, 0.0, 1.0, (0.0, 1.0))
    end = ascent.ascend(
        Quadratic(torch.zeros(500, 500).double(), b, 9.0),
        x,
        torch.zeros(4, dtype=torch.int64),
        seeded(),
    )
    torch.testing.assert_close(end, torch.full_like(x, 0.3))


def test_the_ascent_stays_in_ball_and_bounds_and_changes_nothing_else() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), *network(nn.ReLU)[1:]).train()
    module[1].eval()
    inputs, bounds = torch.rand(5, 2, 3, generator=seeded(), dtype=torch.float64), (0.0, 1.0)
    modes: list[bool] = []
    module.register_forward_pre_hook(
        lambda part, _: modes.append(any(each.training for each in part.modules()))
    )
    before, state = inputs.clone(), torch.get_rng_state()
    for limits in (bounds, (torch.zeros(()), torch.ones(2, 3, dtype=torch.float64))):
        ascent = AttributionAscent(0.4, 6, 0.2, 3, bounds=limits)
        with torch.no_grad():
            end = ascent.ascend(module, inputs, LABELS, seeded())
        assert not end.requires_grad
        assert float((end - inputs).abs().max()) <= 0.4 + 1e-12
        assert float(end.min()) >= 0
        assert float(end.max()) <= 1
        assert torch.equal(end, ascent.ascend(module, inputs, LABELS, seeded()))
    assert torch.equal(inputs, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(modes)
    assert [part.training for part in module] == [True, False, True, True, True]
    assert all(parameter.grad is None for parameter in module.parameters())


# training


def test_a_path_has_two_ends() -> None:
    with pytest.raises(ArgumentError, match="points: expected a whole number of at least 2"):
        compute_loss_path(network(), *pair(), LABELS, points=1)
