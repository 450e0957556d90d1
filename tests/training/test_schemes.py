"""Training schemes: each step descends on the scheme's formula, which is implemented again here."""

from __future__ import annotations

import copy
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import ArgumentError, UnknownNameError
from standfast.neighbourhoods import L2Ball, LinfBall
from standfast.registry import build
from standfast.training.adversarial import Pgd
from standfast.training.attribution_regularization import AttributionAscent, compute_loss_path
from standfast.training.classifier import accuracy, initialize, train_classifier
from standfast.training.loop import Training
from standfast.training.objective import Scheme, TrainingBatch
from standfast.training.schemes import (
    Adversarial,
    GradientHessian,
    IgNorm,
    IgSumNorm,
    Natural,
    schemes,
    spell_scheme,
)

Blobs = tuple[Tensor, Tensor]
ALL = [
    Natural(),
    GradientHessian(gradient_weight=0.3, hessian_weight=0.0),
    GradientHessian(gradient_weight=0.0, hessian_weight=0.2, probes=2),
    GradientHessian(gradient_weight=0.1, hessian_weight=0.2),
    Adversarial(radius=0.1, steps=3, clean_share=0.25),
    Adversarial(radius=0.15, norm="l2", steps=2, step=0.1, warm_up=1.5),
    IgNorm(radius=0.1, weight=0.5, steps=2, points=4, points_in_attack=3),
    IgSumNorm(
        radius=0.15, weight=0.3, steps=3, step=0.05, points=3, points_in_attack=2, warm_up=1.5
    ),
]
each_scheme = pytest.mark.parametrize("scheme", ALL, ids=spell_scheme)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network() -> nn.Sequential:
    return initialize(nn.Sequential(nn.Linear(4, 12), nn.Softplus(), nn.Linear(12, 3)), seeded())


@pytest.fixture
def blobs() -> Blobs:
    """Three clouds within [0, 1]^4."""
    labels = torch.arange(90) % 3
    centres = torch.tensor([[0.2, 0.2, 0.8, 0.5], [0.8, 0.3, 0.2, 0.5], [0.5, 0.8, 0.5, 0.5]])
    return (centres[labels] + 0.08 * torch.randn(90, 4, generator=seeded(1))).clamp(0, 1), labels


def batch_of(
    module: nn.Module, blobs: Blobs, precision: torch.dtype = torch.float32, epoch: float = 1.0
) -> TrainingBatch:
    return TrainingBatch(module, *blobs, seeded(7), epoch, (0.0, 1.0), precision)


def gradient_of(module: nn.Module, scheme: Scheme, batch: TrainingBatch) -> tuple[float, Tensor]:
    """The loss of a batch and its gradient by the parameters, as the loop sums them."""
    module.zero_grad()
    total = 0.0
    for part in scheme.parts(batch):
        torch.autograd.backward(part.loss)
        total += float(part.loss.detach())
    return total, torch.cat([parameter.grad.flatten() for parameter in module.parameters()])


# the formulae


def compute_by_formula(scheme: Scheme, module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The scheme's loss with derivatives row by row, and signs as the scheme draws them."""
    generator, losses = seeded(7), []
    if isinstance(scheme, Adversarial | IgNorm | IgSumNorm):
        share = min(1.0, 1.0 / scheme.warm_up) if scheme.warm_up else 1.0
        length = scheme.step if scheme.step is not None else 2.5 * scheme.radius / scheme.steps
    if isinstance(scheme, IgNorm | IgSumNorm):
        weights = (1.0, scheme.weight) if isinstance(scheme, IgSumNorm) else (0.0, 1.0)
        ball = share * scheme.radius, scheme.steps, share * length
        ascent = AttributionAscent(*ball, scheme.points_in_attack, *weights, (0.0, 1.0))
        worst = ascent.ascend(module, inputs, labels, generator)
        norms = compute_loss_path(module, inputs, worst, labels, points=scheme.points).norms()
        at = worst if isinstance(scheme, IgSumNorm) else inputs
        return F.cross_entropy(module(at), labels) + scheme.weight * norms.mean()
    if isinstance(scheme, Adversarial):
        ball = (LinfBall if scheme.norm == "linf" else L2Ball)(share * scheme.radius)
        worst = Pgd(ball, scheme.steps, share * length, (0.0, 1.0))(
            module, inputs, labels, generator
        )
        clean, perturbed = (F.cross_entropy(module(x), labels) for x in (inputs, worst))
        return scheme.clean_share * clean + (1 - scheme.clean_share) * perturbed
    probes = getattr(scheme, "probes", 1)
    drawn = [
        torch.randint(2, inputs.shape, generator=generator, dtype=torch.int8) for _ in range(probes)
    ]
    signs = torch.stack([2.0 * heads - 1 for heads in drawn], dim=1)  # (N, probes, 4)
    for row, label, vectors in zip(inputs, labels, signs, strict=True):

        def loss(x: Tensor, label: Tensor = label) -> Tensor:
            return F.cross_entropy(module(x[None]), label[None])

        gradient = torch.autograd.functional.jacobian(loss, row, create_graph=True)
        hessian = torch.autograd.functional.hessian(loss, row, create_graph=True)
        total = loss(row)
        if isinstance(scheme, GradientHessian):
            total = total + scheme.gradient_weight * gradient.norm()
            total = (
                total
                + scheme.hessian_weight * (vectors @ hessian).square().sum(dim=1).mean().sqrt()
            )
        losses.append(total)
    return torch.stack(losses).mean()


@each_scheme
def test_loss_and_gradient_are_those_of_the_formula(scheme: Scheme, blobs: Blobs) -> None:
    module = network()
    inputs, labels = blobs[0][:12], blobs[1][:12]
    loss, gradient = gradient_of(module, scheme, batch_of(module, (inputs, labels)))
    module.zero_grad()
    expected = compute_by_formula(scheme, module, inputs, labels)
    torch.autograd.backward(expected)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    wanted = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


@each_scheme
def test_shares_add_up_and_training_learns(scheme: Scheme, blobs: Blobs) -> None:
    module = network()
    assert sum(part.share for part in scheme.parts(batch_of(module, blobs))) == pytest.approx(1)
    read_option: list[float] = []
    options = {
        "epochs": 12,
        "batch_size": 15,
        "learning_rate": 0.03,
        "generator": seeded(),
        "bounds": (0.0, 1.0),
    }
    train_classifier(
        module,
        *blobs,
        scheme=scheme,
        progress=lambda epoch: read_option.append(epoch.accuracy),
        **options,
    )
    assert read_option[-1] > read_option[0]
    assert accuracy(module, *blobs) > 0.95
    assert all(parameter.grad is None for parameter in module.parameters())


def test_natural_is_training_without_a_scheme(blobs: Blobs) -> None:
    options = {"epochs": 2, "batch_size": 32}
    first = train_classifier(network(), *blobs, generator=seeded(), **options)
    second = train_classifier(network(), *blobs, generator=seeded(), scheme=Natural(), **options)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


def test_a_weight_of_zero_is_natural_training(blobs: Blobs) -> None:
    module = network()
    _, expected = gradient_of(module, Natural(), batch_of(module, blobs))
    for scheme in (GradientHessian(0.0, 0.0), IgNorm(weight=0)):
        torch.testing.assert_close(
            gradient_of(module, scheme, batch_of(module, blobs))[1], expected
        )


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        (Pgd, Adversarial(radius=0.3, steps=5, step=0.15, warm_up=2)),
        (AttributionAscent, IgNorm(radius=0.3, steps=5, warm_up=2)),
        (AttributionAscent, IgSumNorm(radius=0.3, steps=5, step=0.15, warm_up=2)),
    ],
)
def test_the_radius_warms_up(
    kind: Any, scheme: Scheme, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Radius and step increase linearly over the first two epochs, batch by batch."""
    seen: list[tuple[float, float]] = []
    ascend = kind.ascend

    def watched(self: Any, *arguments: Any) -> Tensor:
        seen.append((self.ball.radius if kind is Pgd else self.radius, self.step))
        return ascend(self, *arguments)

    monkeypatch.setattr(kind, "ascend", watched)
    train_classifier(network(), *blobs, epochs=3, batch_size=45, generator=seeded(), scheme=scheme)
    shares = [1 / 4, 2 / 4, 3 / 4, 1, 1, 1]
    assert seen == [(pytest.approx(0.3 * share), pytest.approx(0.15 * share)) for share in shares]


def test_no_scheme_runs_more_forward_passes_than_it_needs(blobs: Blobs) -> None:
    """The number of forward passes of a training step is that of the formula."""
    for scheme, passes in (
        (Natural(), 1),
        (GradientHessian(probes=3), 1),
        (Adversarial(steps=4), 5),
        (Adversarial(steps=4, clean_share=0.5), 6),
        (IgNorm(steps=4), 6),  # the gradient at the inputs, the steps, and the loss
        (IgSumNorm(steps=4), 6),
    ):
        calls: list[int] = []
        module = network()
        module.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        for part in scheme.parts(batch_of(module, blobs)):
            torch.autograd.backward(part.loss)
        assert len(calls) == passes


# precision


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@each_scheme
def test_mixed_precision_computes_nearly_the_same(
    scheme: Scheme, precision: torch.dtype, blobs: Blobs
) -> None:
    """The forward pass runs in mixed precision, parameters stay float32, the gradient is close to that of float32."""
    module, kinds = network(), []
    module[0].register_forward_hook(lambda *arguments: kinds.append(arguments[-1].dtype))
    if isinstance(scheme, Adversarial):
        # a tiny radius, so that different signs of gradients hardly matter
        scheme = Adversarial(radius=1e-4, norm=scheme.norm, clean_share=scheme.clean_share)
    if isinstance(scheme, IgNorm | IgSumNorm):
        scheme = replace(scheme, radius=1e-4, step=None)
    _, exact = gradient_of(module, scheme, batch_of(module, blobs))
    kinds.clear()
    _, mixed = gradient_of(module, scheme, batch_of(module, blobs, precision))
    assert set(kinds) == {precision}
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert float(F.cosine_similarity(exact, mixed, dim=0)) > 0.99
    assert float(mixed.norm() / exact.norm()) == pytest.approx(1, abs=0.1)


def test_gradients_that_overflow_are_skipped(blobs: Blobs) -> None:
    """With float16 the scale of the loss starts too high: steps are skipped, it is halved, training continues."""
    training = Training(
        network(),
        *blobs,
        epochs=1,
        batch_size=1,
        generator=seeded(),
        scheme=Natural(),
        precision=torch.float16,
    )
    before = [parameter.clone() for parameter in training.module.parameters()]
    training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    training.run()
    assert 1 <= training.scaler.get_scale() < 2.0**40
    after = list(training.module.parameters())
    assert all(bool(torch.isfinite(parameter).all()) for parameter in after)
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
@each_scheme
def test_training_on_a_gpu(scheme: Scheme, precision: torch.dtype, blobs: Blobs) -> None:
    """On the device, continued after an epoch, in every precision."""
    inputs, labels = (tensor.cuda() for tensor in blobs)
    options = {
        "epochs": 12,
        "batch_size": 15,
        "learning_rate": 0.03,
        "scheme": scheme,
        "bounds": (0.0, 1.0),
    }
    first = Training(
        network().cuda(), inputs, labels, generator=seeded(), precision=precision, **options
    )
    kept: list[dict[str, object]] = []
    first.run(lambda epoch: kept.append(copy.deepcopy(first.state_dict())))
    second = Training(
        network().cuda(), inputs, labels, generator=seeded(), precision=precision, **options
    )
    second.load_state_dict(kept[0])
    second.run()
    for module in (first.module, second.module):
        assert accuracy(module, inputs, labels) > 0.9


# names and options


def test_schemes_are_built_by_name_and_options() -> None:
    assert schemes.names() == [
        "calibrated",
        "gradient_hessian",
        "ig_norm",
        "ig_sum_norm",
        "natural",
        "pgd",
    ]
    assert build(schemes, "natural") == Natural()
    assert build(schemes, "pgd:radius=0.1,steps=3,norm=l2") == Adversarial(
        radius=0.1, steps=3, norm="l2"
    )
    assert build(schemes, "ig_sum_norm:radius=0.1,points_in_attack=3") == IgSumNorm(
        radius=0.1, points_in_attack=3
    )
    assert build(schemes, "gradient_hessian", {"probes": 2}) == GradientHessian(probes=2)
    for scheme in ALL:
        assert build(schemes, spell_scheme(scheme)) == scheme
        assert scheme.describe()
        with pytest.raises(FrozenInstanceError):
            scheme.weight = 1.0  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="did you mean 'gradient_hessian'"):
        build(schemes, "gradient_hesian")
    with pytest.raises(ArgumentError, match="expected an option of pgd: radius"):
        build(schemes, "pgd:radios=0.1")


def test_options_are_checked() -> None:
    def refuse(scheme: str, **wrong: list[object]) -> None:
        assert_refused(lambda **options: build(schemes, scheme, options), **wrong)

    refuse(
        "gradient_hessian", hessian_weight=[-1], gradient_weight=[True, "heavy"], probes=[0, 1.5]
    )
    refuse("pgd", radius=[0], norm=["l1"], steps=[0], step=[0], clean_share=[2], warm_up=[-1])
    refuse("ig_norm", weight=[-1], points=[1], radius=[-1])
    refuse("ig_sum_norm", points_in_attack=[1.5], steps=[0], step=[0], warm_up=["soon"])


def test_training_refuses_wrong_arguments(blobs: Blobs) -> None:
    options = {"epochs": 1, "generator": seeded()}
    with pytest.raises(ArgumentError, match="inputs: expected values within the bounds"):
        train_classifier(network(), *blobs, bounds=(0.0, 0.5), **options)
    with pytest.raises(ArgumentError, match="precision: expected float32, bfloat16 or float16"):
        train_classifier(network(), *blobs, precision=torch.float64, **options)


# stopping and continuing


@each_scheme
def test_a_continued_training_ends_with_the_same_bits(scheme: Scheme, blobs: Blobs) -> None:
    """Dropout, batch statistics, the optimiser's state and all random numbers continue as without a stop."""

    def start() -> Training:
        body = nn.Sequential(
            nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3)
        )
        generator = seeded(3)
        module = initialize(body, generator)
        optimizer = "radam" if isinstance(scheme, Natural) else "adamw"
        options = {"epochs": 4, "batch_size": 32, "optimizer": optimizer}
        return Training(module, *blobs, generator=generator, scheme=scheme, **options)

    whole, kept = start(), {}
    whole.run(lambda epoch: kept.update({epoch.number: copy.deepcopy(whole.state_dict())}))
    for number in (1, 3):
        torch.manual_seed(number)
        again = start()
        again.load_state_dict(kept[number])
        read_option: list[int] = []
        again.run(lambda epoch, read_option=read_option: read_option.append(epoch.number))
        assert read_option == list(range(number + 1, 5))
        for name, tensor in whole.module.state_dict().items():
            assert torch.equal(tensor, again.module.state_dict()[name]), name


def test_steps_are_reported(blobs: Blobs) -> None:
    read_option: list[tuple[int, int]] = []
    training = Training(
        network(), *blobs, epochs=2, batch_size=40, generator=seeded(), scheme=Natural()
    )
    training.run(step=lambda done, total: read_option.append((done, total)))
    assert read_option == [(done, 6) for done in range(1, 7)]
    assert math.ceil(90 / 40) == training.batches
