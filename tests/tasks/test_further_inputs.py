"""Models with several inputs: one is changed and explained, the others go with their sample."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.data import Dataset
from standfast.errors import ArgumentError, ModelError
from standfast.question.metric_labels import name_metrics
from standfast.study.executors import Processes
from standfast.study.worker import _join

COUNT = 3


class WithAge(nn.Module):
    """Logits of an image, scaled and shifted by what is known of the patient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x: Tensor, age: Tensor, mask: Tensor) -> dict[str, Tensor]:
        assert len(x) == len(age) == len(mask)
        return {"logits": self.layer(torch.tanh(x.flatten(1) * mask)) * age[:, None]}


@pytest.fixture
def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    extras = {
        "age": 1 + torch.rand(COUNT, generator=generator),
        "mask": (torch.rand(COUNT, 16, generator=generator) < 0.7).float(),
    }
    inputs = torch.rand(COUNT, 1, 4, 4, generator=generator)
    return Dataset("patients", inputs, torch.zeros(COUNT).long(), ("a", "b", "c"), extras=extras)


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return WithAge()


METRICS = ["max_sensitivity:samples=5", "worst_case:budget=20", "aopc:steps=4,samples=2"]


def test_each_sample_gets_its_own(module: nn.Module, data: Dataset, tmp_path: Path) -> None:
    """As a model for each sample, in which its further inputs are constants."""
    model = standfast.Model(module, (0.0, 1.0), device="cpu", extras=("age", "mask"))
    explainers = [
        "saliency",
        "integrated_gradients:steps=8",
        "captum:Saliency",
        "occlusion",
        "gradient_shap:samples=4",
    ]
    found = standfast.evaluate(
        model,
        explainers,
        data,
        METRICS,
        sanity=False,
        controls=False,
        samples_per_job=2,
        progress=False,
    )
    assert found.failures == []
    frame, metrics = found.frame(), name_metrics(METRICS, standfast.LinfBall(8 / 255))
    for row in range(COUNT):
        extras = {name: values[row : row + 1] for name, values in data.extras.items()}

        def alone(inner: nn.Module, x: Tensor, extras: dict[str, Tensor] = extras) -> Tensor:
            given = {name: each.expand(len(x), *each.shape[1:]) for name, each in extras.items()}
            logits: Tensor = inner(x, **given)["logits"]
            return logits

        one = standfast.Model(module, (0.0, 1.0), device="cpu", forward=alone)
        for explainer, (label, metric) in itertools.product(explainers, metrics.items()):
            seed = torch.Generator().manual_seed(0)
            expected = metric(
                one, explainer, data.inputs[row : row + 1], generator=seed
            ).value.tolist()
            assert (
                frame.filter(sample=row, explainer=explainer, label=label)["value"].to_list()
                == expected
            )


@pytest.mark.usefixtures("quick_workers")
def test_workers_and_studies(module: nn.Module, data: Dataset, tmp_path: Path) -> None:
    model = standfast.Model(module, (0.0, 1.0), device="cpu", extras=("age", "mask"))
    options = {"sanity": True, "progress": False, "metrics": METRICS[:1]}
    here = standfast.evaluate(model, "saliency", data, **options)
    there = standfast.evaluate(model, "saliency", data, executor=Processes(1, threads=1), **options)
    assert here.failures == there.failures == []
    assert here.frame().equals(there.frame())


@pytest.mark.parametrize("kind", ["mixed", "half"])
def test_further_inputs_of_modules_in_half_precision(
    kind: str, module: nn.Module, data: Dataset
) -> None:
    options = {"mixed_precision": "bfloat16"} if kind == "mixed" else {}
    inner = module if kind == "mixed" else module.to(torch.bfloat16)
    model = standfast.Model(inner, (0.0, 1.0), device="cpu", extras=("age", "mask"), **options)
    found = standfast.evaluate(
        model, "saliency", data, METRICS[:1], sanity=False, controls=False, progress=False
    )
    assert found.failures == []


def test_curves_of_unequal_length_are_joined(module: nn.Module, data: Dataset) -> None:
    model = standfast.Model(module, (0.0, 1.0), device="cpu", extras=("age", "mask"))
    metrics = {"p": "misinterpretation_probability:event=misclassification,particles=64,first=1"}
    ball = standfast.LinfBall(0.3)
    options = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(
        model, "saliency", data, metrics, neighbourhood=ball, samples_per_job=5, **options
    )
    assert found.failures == []
    first = torch.ones(1, 2)
    joined = _join([first, torch.zeros(2, 3)])
    assert joined.shape == (3, 3)
    assert joined[0].isnan().tolist() == [False, False, True]


def test_what_is_missing_is_named(module: nn.Module, data: Dataset) -> None:
    model = standfast.Model(module, (0.0, 1.0), device="cpu", extras=("age", "masks"))
    with pytest.raises(
        ArgumentError, match="extras: expected one of age, .*'masks' .did you mean 'mask'"
    ):
        standfast.evaluate(model, "saliency", data, METRICS, progress=False)
    with pytest.raises(ModelError, match="expected age, masks beside its input, got none"):
        model.logits(data.inputs)
