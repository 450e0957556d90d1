"""Training on series: RAdam, noise blocks, the calibrated loss, further values of samples; also by a plan."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn
from torch.nn import functional as F
from typer.testing import CliRunner

from standfast import data
from standfast.cli import app, train
from standfast.cli.train import TrainingPlan
from standfast.data import Dataset, synthetic_waves
from standfast.errors import ArgumentError, ModelError
from standfast.registry import build
from standfast.training.calibration import Calibrated
from standfast.training.classifier import (
    accuracy,
    initialize,
    random_noise_blocks,
    train_classifier,
)
from standfast.training.objective import TrainingBatch
from standfast.training.schemes import Natural, schemes, spell_scheme
from standfast.zoo import architectures
from standfast.zoo.networks.series_cnn import SeriesCNN


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# optimisers


def problem(rows: int = 60) -> tuple[nn.Module, Tensor, Tensor]:
    inputs = torch.randn(rows, 3, generator=generator(1))
    return initialize(nn.Linear(3, 2), generator(2)), inputs, (inputs.sum(1) > 0).long()


def test_radam_equals_its_formula() -> None:
    """Liu et al. (2020), Algorithm 2, parameter by parameter, with decoupled weight decay."""
    module, inputs, labels = problem()
    ours = initialize(nn.Linear(3, 2), generator(2))
    rate, decay, epochs = 0.05, 0.1, 8
    shared: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": 60,
        "learning_rate": rate,
        "weight_decay": decay,
    }
    train_classifier(module, inputs, labels, generator=generator(), optimizer="radam", **shared)
    moments = {
        name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in ours.named_parameters()
    }
    longest = 2 / (1 - 0.999) - 1
    for step in range(1, epochs + 1):
        ours.zero_grad()
        F.cross_entropy(ours(inputs), labels).backward()
        lr = rate * (
            1.0 if step == 1 else 0.5 * (1 + math.cos(math.pi * (step - 2) / (epochs - 1)))
        )
        length = longest - 2 * step * 0.999**step / (1 - 0.999**step)
        with torch.no_grad():
            for name, parameter in ours.named_parameters():
                assert parameter.grad is not None
                first, second = moments[name]
                first.mul_(0.9).add_(0.1 * parameter.grad)
                second.mul_(0.999).add_(0.001 * parameter.grad**2)
                parameter.mul_(1 - lr * decay)
                mean = first / (1 - 0.9**step)
                if length > 5:
                    top = (length - 4) * (length - 2) * longest
                    rectified = math.sqrt(top / ((longest - 4) * (longest - 2) * length))
                    mean = rectified * mean / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
                parameter.sub_(lr * mean)
    for a, b in zip(module.parameters(), ours.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


# noise blocks


@pytest.mark.parametrize("block", [1, 7, 21])
def test_the_share_that_is_replaced(block: int) -> None:
    """The mean and spread of the share, away from the ends, are those of a uniform share in [0, most]."""
    made = random_noise_blocks(
        torch.zeros(4000, 1, 160), generator(), block=block, most=0.6, chance=1.0
    )
    inner = (made != 0).float()[:, 0, block:-block]
    assert float(inner.mean()) == pytest.approx(0.3, abs=0.015)
    places = inner.mean(0)
    assert float(places.std()) < 0.015
    if block == 1:  # shares of independent steps
        shares = inner.mean(1)
        wanted = 0.6**2 / 12 + float((shares * (1 - shares)).mean()) / inner.shape[1]
        assert float(shares.var()) == pytest.approx(wanted, rel=0.1)
    lone = (made[:, 0] != 0).float()
    runs = F.avg_pool1d(lone[:, None], block, 1)[:, 0] == 1
    covered = F.max_pool1d(F.pad(runs.float()[:, None], (block - 1, block - 1)), block, 1)[:, 0]
    whole = (lone == covered) | (torch.arange(160) < block) | (torch.arange(160) >= 160 - block)
    assert bool(whole.all())  # every noisy step is part of a whole block


def test_noise_is_standard_normal_and_other_steps_do_not_change() -> None:
    x = 100 + torch.arange(300.0).expand(500, 2, 300)
    made = random_noise_blocks(x, generator(), chance=0.25)
    changed = made != x
    assert abs(float(changed.any(2).any(1).float().mean()) - 0.25) < 4 * math.sqrt(
        0.25 * 0.75 / 500
    )
    values = made[changed]
    assert float(values.mean()) == pytest.approx(0, abs=0.05)
    assert float(values.std()) == pytest.approx(1, abs=0.05)
    assert not torch.equal(changed[:, 0], changed[:, 1])
    assert torch.equal(random_noise_blocks(x, generator(), chance=0.0), x)
    assert torch.equal(random_noise_blocks(x, generator(3)), random_noise_blocks(x, generator(3)))


def test_options_of_noise_blocks() -> None:
    series = torch.zeros(2, 1, 9)
    assert_refused(
        partial(random_noise_blocks, series, generator()), block=[4], most=[1.0], chance=[1.5]
    )
    assert_refused(partial(random_noise_blocks, generator=generator()), inputs=[series[..., None]])


# the calibrated loss


class Recording(Natural):
    """A scheme that records the further values of its samples."""

    extras = ("f_norm", "number")

    def parts(self, batch: TrainingBatch) -> Any:
        read_option.append(
            (batch.extra("f_norm"), batch.extra("number"), batch.inputs.detach().clone())
        )
        return super().parts(batch)


read_option: list[tuple[Tensor, Tensor, Tensor]] = []


def test_a_scheme_gets_its_values_in_the_order_of_the_batch() -> None:
    read_option.clear()
    module, inputs, labels = problem(50)
    extras = {"f_norm": inputs.sum(1), "number": torch.arange(50), "more": torch.zeros(3)}
    train_classifier(
        module,
        inputs,
        labels,
        epochs=2,
        generator=generator(),
        batch_size=16,
        scheme=Recording(),
        extras=extras,
    )
    assert [len(seen) for _, _, seen in read_option] == [16, 16, 16, 2] * 2
    for sums, numbers, seen in read_option:
        assert torch.equal(sums, seen.sum(1))
        assert torch.equal(inputs[numbers], seen)


def test_values_that_a_scheme_needs_must_be_there() -> None:
    module, inputs, labels = problem()
    start: dict[str, Any] = {"epochs": 1, "generator": generator(), "scheme": Calibrated()}
    with pytest.raises(ArgumentError, match="which the scheme calibrated needs, got no extras"):
        train_classifier(module, inputs, labels, **start)
    with pytest.raises(ArgumentError, match=r"extras\['f_norm'\]: expected .* got extras place"):
        train_classifier(module, inputs, labels, extras={"place": labels}, **start)
    with pytest.raises(
        ArgumentError, match=r"extras\['f_norm'\]: expected shape \(60, ...\), got \(59,\)"
    ):
        train_classifier(module, inputs, labels, extras={"f_norm": torch.zeros(59)}, **start)
    with pytest.raises(ArgumentError, match=r"extras\['f_norm'\]: expected values"):
        list(Calibrated().parts(TrainingBatch(module, inputs, labels, generator(), 1.0)))
    three = nn.Linear(3, 3)
    with pytest.raises(ModelError, match="calibrated: expected a module with two classes, got 3"):
        train_classifier(three, inputs, labels, extras={"f_norm": torch.zeros(60)}, **start)


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_the_calibrated_loss_equals_both_forms_of_the_paper(weight: float) -> None:
    """Eqs. D.1 and D.2 are one number, since the two probabilities add up to 1."""
    module, inputs, labels = problem(20)
    wanted = torch.rand(20, generator=generator(5))
    batch = TrainingBatch(module, inputs, labels, generator(), 1.0, extras={"f_norm": wanted})
    (part,) = Calibrated(weight).parts(batch)
    shares = module(inputs).softmax(1)
    entropy = -torch.stack(
        [shares[i, label].log() for i, label in enumerate(labels.tolist())]
    ).mean()
    for loss in (
        ((shares[:, 0] - (1 - wanted)) ** 2).mean(),
        ((shares[:, 1] - wanted) ** 2).mean(),
    ):
        assert torch.allclose(part.loss, entropy + weight * loss, atol=1e-6)
    assert torch.equal(part.logits, module(inputs))


@pytest.mark.parametrize("weight", [0.0, 1.0, 1.5, 10.0, 300.0])
@pytest.mark.parametrize("place", [0.05, 0.45, 0.5, 0.6, 0.9])
def test_the_minimum_of_the_loss(place: float, weight: float) -> None:
    """The scheme's loss by its slope on a grid of logits: with the paper's weight the minimum is at certainty."""

    class Same(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs

    logit = torch.linspace(-12, 12, 24001, dtype=torch.float64)
    logits = torch.stack([torch.zeros_like(logit), logit], dim=1).requires_grad_()
    labels = torch.full((len(logit),), int(place >= 0.5))
    extras = {"f_norm": torch.full_like(logit, place)}
    (part,) = Calibrated(weight).parts(
        TrainingBatch(Same(), logits, labels, generator(), 1.0, extras=extras)
    )
    (slopes,) = torch.autograd.grad(part.loss, logits)
    least = slopes[:, 1].cumsum(0).argmin()
    own = max(place, 1 - place)  # the target of the sample's own class
    best = 1.0 if weight == 0 else min(1.0, (own + math.sqrt(own**2 + 2 / weight)) / 2)
    assert float(logit[least].sigmoid()) == pytest.approx(
        best if place >= 0.5 else 1 - best, abs=1e-3
    )
    assert weight > 1 or best == 1


def test_the_scheme_by_name() -> None:
    assert build(schemes, "calibrated") == Calibrated()
    assert build(schemes, "calibrated:weight=0.5") == Calibrated(0.5)
    assert spell_scheme(Calibrated()) == "calibrated"
    assert spell_scheme(Calibrated(0.5)) == "calibrated:weight=0.5"
    assert "calibrated" in CliRunner().invoke(app, ["list", "schemes"]).output.split()


def test_options_of_the_scheme() -> None:
    for weight in (-1.0, math.inf, math.nan, True):
        with pytest.raises(ArgumentError, match="weight: expected a finite number of at least 0"):
            Calibrated(weight)


# by a plan


def small_waves(split: str, download: bool) -> Dataset:
    made = synthetic_waves({"train": 64, "test": 32}[split], steps=60, block=20, seed=len(split))
    return Dataset(
        f"small_waves:{split}", made.inputs, made.labels, made.classes, made.bounds, made.extras
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(architectures._entries, "little_cnn", partial(SeriesCNN, width=4, hidden=4))
    for split in ("train", "test"):
        monkeypatch.setitem(
            data.datasets._entries, f"small_waves:{split}", partial(small_waves, split)
        )


def plan(**changes: Any) -> TrainingPlan:
    options = {"epochs": 2, "batch_size": 16, "device": "cpu", "augment": "noise_blocks"} | changes
    return TrainingPlan("little_cnn", "small_waves", **options)


def test_a_plan_for_series(tmp_path: Path) -> None:
    card = train.fit(plan(scheme="calibrated", optimizer="radam"), tmp_path).card
    assert card["in_channels"] == 4
    assert "64 training and 32 test series" in card["data"]
    assert card["scheme"].startswith("calibrated: cross-entropy + 1 x")
    assert "RAdam" in card["scheme"]
    assert card["options"]["optimizer"] == "radam"
    assert card["options"]["augment"] == "noise_blocks"


def test_plans_take_sets_of_the_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    (tmp_path / "ucr").mkdir()
    numbers = np.random.default_rng(0)
    series = {
        f"X_{split}": numbers.normal(size=(24, 3, 20)).astype(np.float32)
        for split in ("train", "test")
    }
    labels = {f"y_{split}": np.arange(24) % 3 for split in ("train", "test")}
    np.savez(tmp_path / "ucr" / "Made.npz", **series, **labels, classes=np.array(["a", "b", "c"]))
    made = train.fit(
        TrainingPlan("little_cnn", "ucr:Made", epochs=1, device="cpu"), tmp_path / "out"
    )
    assert made.weights.name == "little_cnn-ucr-Made-natural.safetensors"
    assert train.fit(
        TrainingPlan("little_cnn", "ucr:Made", epochs=1, device="cpu"), tmp_path / "out"
    ).was_there
    card = made.card
    assert (card["num_classes"], card["in_channels"]) == (3, 3)
    assert card["data"].startswith("ucr:Made, 24 training and 24 test series")


@pytest.mark.slow
def test_a_small_network_learns_the_waves() -> None:
    """Far better than chance after a minute of training."""
    train, test = synthetic_waves(2000), synthetic_waves(500, seed=1)
    module = initialize(SeriesCNN(width=24, stride=2, hidden=24, dropout=0.0), generator())
    train_classifier(
        module,
        train.inputs,
        train.labels,
        epochs=12,
        generator=generator(),
        batch_size=32,
        learning_rate=6e-3,
        optimizer="radam",
        augment=partial(random_noise_blocks, chance=0.25),
    )
    assert accuracy(module, test.inputs, test.labels) > 0.8
