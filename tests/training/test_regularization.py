"""Norms of input gradients and input Hessians equal those of the matrices, built column by column."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import ArgumentError
from standfast.training.regularization import InputDerivatives

LABELS = torch.tensor([0, 2, 1, 2, 0, 1])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(activation: type[nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            nn.Conv1d(1, 4, 3),
            activation(),
            nn.Flatten(),
            nn.Linear(16, 8),
            activation(),
            nn.Linear(8, 3),
        ]
        return nn.Sequential(*layers).double()


def inputs(seed: int = 1) -> Tensor:
    return torch.randn(6, 1, 6, generator=seeded(seed), dtype=torch.float64)


def differentiate_loss(module: nn.Module, x: Tensor, labels: Tensor) -> InputDerivatives:
    x = x.detach().requires_grad_()
    return InputDerivatives(F.cross_entropy(module(x), labels, reduction="none"), x)


def exact(module: nn.Module, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """`||grad||_2` and `||H||_F` of each row by itself, with the whole Hessian: (N,) and (N,)."""
    gradients, hessians = [], []
    for row, label in zip(x, labels, strict=True):

        def loss(flat: Tensor, label: Tensor = label) -> Tensor:
            return F.cross_entropy(module(flat.reshape(1, *x.shape[1:])), label[None])

        gradients.append(torch.autograd.functional.jacobian(loss, row.flatten()).norm())
        hessians.append(torch.autograd.functional.hessian(loss, row.flatten()).norm())
    return torch.stack(gradients), torch.stack(hessians)


@pytest.mark.parametrize("activation", [nn.Softplus, nn.ReLU, nn.Tanh])
def test_gradient_norms_are_those_of_each_row(activation: type[nn.Module]) -> None:
    module = network(activation)
    expected, _ = exact(module, inputs(), LABELS)
    derivatives = differentiate_loss(module, inputs(), LABELS)
    torch.testing.assert_close(derivatives.compute_gradient_norms(), expected)


@pytest.mark.parametrize("activation", [nn.Softplus, nn.ReLU, nn.Tanh])
def test_squared_hessian_norms_are_unbiased(activation: type[nn.Module]) -> None:
    """The mean of 2,000 estimates with one probe is within 4.5 standard errors of the squared Frobenius norm."""
    module, probes = network(activation), 2000
    _, expected = exact(module, inputs(), LABELS)
    many = differentiate_loss(module, inputs().repeat(probes, 1, 1), LABELS.repeat(probes))
    each = many.compute_hessian_norms(1, seeded()).detach().reshape(probes, 6) ** 2
    error = each.std(dim=0) / math.sqrt(probes)
    assert bool(((each.mean(dim=0) - expected**2).abs() < 4.5 * error).all())
    # otherwise the assertion above would be trivial
    assert bool((error < 0.06 * expected**2).all())
    together = differentiate_loss(module, inputs(), LABELS).compute_hessian_norms(500, seeded(1))
    torch.testing.assert_close(together, expected, rtol=0.15, atol=0)


def test_rows_do_not_mix() -> None:
    """In eval mode a row's norms do not depend on the batch; in train mode batch statistics mix rows."""
    body = network(nn.Softplus)
    module = nn.Sequential(nn.BatchNorm1d(1).double(), *body)
    with torch.no_grad():
        module.train()(inputs())
    other = torch.cat([inputs()[:3], 5 * inputs(2)[3:]])
    for training, alike in ((False, True), (True, False)):
        module.train(training)
        one, two = (differentiate_loss(module, x, LABELS) for x in (inputs(), other))
        assert (
            torch.allclose(one.compute_gradient_norms()[:3], two.compute_gradient_norms()[:3])
            is alike
        )
        first, second = (each.compute_hessian_norms(1, seeded())[:3] for each in (one, two))
        assert torch.allclose(first, second) is alike


def test_the_gradient_for_training_is_right() -> None:
    """The gradient of the penalties by the parameters equals finite differences."""
    module = network(nn.Softplus)

    def penalty() -> Tensor:
        derivatives = differentiate_loss(module, inputs(), LABELS)
        return (
            derivatives.compute_gradient_norms().mean()
            + derivatives.compute_hessian_norms(3, seeded(5)).mean()
        )

    parameters = list(module.parameters())
    found = torch.autograd.grad(penalty(), parameters, allow_unused=True)
    assert found[-1] is not None
    for parameter, gradient in zip(parameters, found, strict=True):
        index, step = int(gradient.abs().argmax()), 1e-5
        with torch.no_grad():
            flat, values = parameter.view(-1), []
            for shift in (step, -2 * step):
                flat[index] += shift
                with torch.enable_grad():
                    values.append(float(penalty().detach()))
            flat[index] += step
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(
            float(gradient.flatten()[index]), rel=1e-5
        )


def test_at_zero_the_derivative_is_zero_and_not_nan() -> None:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.zero_()
    x, labels = torch.ones(2, 3), torch.tensor([0, 1])
    derivatives = differentiate_loss(module, x, labels)
    loss = (
        derivatives.compute_gradient_norms().sum()
        + derivatives.compute_hessian_norms(2, seeded()).sum()
    )
    assert float(loss.detach()) == 0
    torch.autograd.backward(loss)
    assert bool(torch.isfinite(module.weight.grad).all())


def test_a_linear_loss_has_no_curvature() -> None:
    x = torch.randn(4, 3, generator=seeded()).requires_grad_()
    weight = nn.Parameter(torch.ones(3))
    for losses in ((x @ weight), (x @ weight.detach())):
        derivatives = InputDerivatives(losses, x)
        assert derivatives.compute_hessian_norms(2, seeded()).tolist() == [0.0] * 4


def test_random_numbers_come_from_the_generator_only() -> None:
    derivatives = differentiate_loss(network(nn.Softplus), inputs(), LABELS)
    state = torch.get_rng_state()
    first = derivatives.compute_hessian_norms(1, seeded(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, derivatives.compute_hessian_norms(1, seeded(3)))
    assert not torch.equal(first, derivatives.compute_hessian_norms(1, seeded(4)))


def test_errors() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(ArgumentError, match="inputs: expected a tensor that requires a gradient"):
        InputDerivatives(x.sum(dim=1), x)
    x.requires_grad_()
    with pytest.raises(ArgumentError, match="losses: expected one for each of 2 inputs"):
        InputDerivatives(x.sum(), x)
    for probes in (0, 1.0, True):
        with pytest.raises(ArgumentError, match="probes: expected a whole number"):
            InputDerivatives(x.sum(dim=1), x).compute_hessian_norms(probes, seeded())
