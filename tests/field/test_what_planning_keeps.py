"""What planning learns of a model that has answered already: how long a row takes, and no outputs for the whole run."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import standfast
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.question.question import try_model
from standfast.study.answers import ask_model
from standfast.study.plan import make_plan


class WholeNumbers(nn.Module):
    """Refuses what is no code of a category, as an embedding would."""

    def forward(self, x: Tensor) -> Tensor:
        if (x != x.round()).any():
            raise RuntimeError("no such code")
        return torch.stack([x.sum(1), -x.sum(1)], 1)


def test_a_model_that_refuses_noisy_copies_has_a_pace() -> None:
    model = standfast.Model(WholeNumbers(), (0.0, 3.0), device="cpu")
    rows = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]])
    answers = ask_model(model, rows, model.logits(rows))
    assert "noisy copies" not in answers.numbers
    assert math.isfinite(answers.pace)


def test_a_plan_keeps_no_outputs() -> None:
    """Those of segmentation are as large as images."""
    samples = Samples(torch.rand(3, 4, generator=torch.Generator().manual_seed(0)))
    source = LoadedModel(standfast.Model(nn.Linear(4, 3), (0.0, 1.0), device="cpu"))
    tried = try_model(source, samples, "x")
    assert tried.outputs is not None
    explainers = {"saliency": standfast.explainers.get("saliency")}
    metrics = {"aopc": standfast.metrics.AOPC(steps=2)}
    grid = Grid({"x": samples}, {"m": source}, explainers, metrics, tried={("x", "m"): tried})
    assert [answered.outputs for answered in make_plan(grid).grid.tried.values()] == [None]
