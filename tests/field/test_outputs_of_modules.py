"""Modules as they are found in the field: the last activation and the shape of what they return."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ModelError
from standfast.tasks import Segmentation


@pytest.mark.parametrize(("task", "count"), [("binary", 1), ("multi_label", 4)])
def test_a_sigmoid_before_a_task_of_logits_is_noticed(task: str, count: int) -> None:
    """Otherwise each input is on side 1, and each label is on."""
    x = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, count), nn.Sigmoid())
    with torch.no_grad():
        module[1].weight *= 4
    model = standfast.Model(module, bounds=(0.0, 1.0), task=task)
    with pytest.warns(
        UserWarning, match=f"look like probabilities .*say task='{task}:output=probability'"
    ):
        model.predict(x)
    told = standfast.Model(module, bounds=(0.0, 1.0), task=f"{task}:output=probability")
    answers = told.predict(x)  # a warning would be an error
    on = answers[:, None] if answers.ndim == 1 else answers[:, 1:]
    assert torch.equal(on.bool(), module(x) >= 0.5)
    standfast.Model(module[:2], bounds=(0.0, 1.0), task=task).predict(x)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid()])
def test_probabilities_of_a_segmenter_are_noticed(last: nn.Module) -> None:
    """Otherwise the softmax is taken twice, and the region's mean probability is another one."""
    x = torch.rand(10, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Conv2d(3, 3, 3, padding=1)
    task = Segmentation(background=None)
    model = standfast.Model(nn.Sequential(network, last), bounds=(0.0, 1.0), task=task)
    with pytest.warns(
        UserWarning, match="look like probabilities; return logits, without softmax or sigmoid"
    ):
        model.predict(x)
    standfast.Model(network, bounds=(0.0, 1.0), task=task).predict(x)


class OfAPackage(nn.Module):
    """A segmenter that returns a dictionary, as those of torchvision do."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": self.layers(x)}


def test_a_sigmoid_within_a_dictionary_is_noticed() -> None:
    module = OfAPackage(nn.Conv2d(3, 1, 3, padding=1), nn.Sigmoid())
    with pytest.warns(UserWarning, match="return logits, without softmax or sigmoid"):
        standfast.Model(module, bounds=(0.0, 1.0), task="segmentation").predict(
            torch.rand(3, 3, 8, 8)
        )


def test_a_segmenter_of_one_channel_is_one_of_two_classes() -> None:
    """(N, 1, H, W) is the usual binary segmenter: the logits of paper and ink are 0 and z."""
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    one = nn.Conv2d(3, 1, 3, padding=1)

    def make_two(module: nn.Module, inputs: Tensor) -> Tensor:
        z = module(inputs)
        return torch.cat([torch.zeros_like(z), z], 1)

    by_one = standfast.Model(one, bounds=(0.0, 1.0), task="segmentation")
    by_two = standfast.Model(one, bounds=(0.0, 1.0), task="segmentation", forward=make_two)
    explainer = standfast.explainers.get("saliency")
    torch.testing.assert_close(explainer(by_one, x), explainer(by_two, x), rtol=0, atol=1e-6)
    assert torch.equal(by_one.predict(x), by_two.predict(x))


@pytest.mark.parametrize("task", ["classification", "binary", "multi_label"])
@pytest.mark.parametrize("channels", [1, 4])
def test_a_segmenter_without_its_task_leads_to_it(task: str, channels: int) -> None:
    module = nn.Conv2d(3, channels, 3, padding=1)
    model = standfast.Model(module, bounds=(0.0, 1.0), task=task)
    with pytest.raises(ModelError, match=re.escape("Model(..., task='segmentation')")):
        standfast.explainers.get("saliency")(model, torch.rand(4, 3, 8, 8))


def test_a_map_without_an_axis_of_classes_is_no_series() -> None:
    """(N, H, W) was read as H classes of W pixels."""
    module = nn.Sequential(nn.Conv2d(3, 1, 3, padding=1), nn.Flatten(1, 2))
    model = standfast.Model(module, bounds=(0.0, 1.0), task="segmentation")
    with pytest.raises(ModelError, match=re.escape("forward=lambda module, x: module(x)[:, None]")):
        model.predict(torch.rand(4, 3, 8, 8))


def test_functions_that_return_probabilities_are_noticed_by_many_numbers() -> None:
    """A function has no graph; eight different numbers within [0, 1], or 0 and 1 alone, are hardly logits."""
    rows = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    for function in (lambda x: x[:, 0], lambda x: (x[:, 0] > 0.5).astype(float)):
        with pytest.warns(UserWarning, match="say task='binary:output=probability'"):
            standfast.Model.from_callable(function, (0.0, 1.0), task="binary").predict(rows)
    for function in (lambda x: 2 * x[:, 0] - 0.5, lambda x: x[:, 0].round(1) * 0 + 0.25):
        standfast.Model.from_callable(function, (0.0, 1.0), task="binary").predict(rows)
