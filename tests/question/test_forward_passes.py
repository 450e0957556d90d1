"""Before the first metric runs, a model is asked little, and what was checked is handed on."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import standfast
from standfast.metrics import AOPC
from standfast.metrics.base import Metric
from standfast.question.arguments import Arguments
from standfast.study.plan import make_plan
from standfast.study.worker import Worker


class FirstMetricError(BaseException):
    """Ends an evaluation where its first metric would begin."""


def test_at_most_five_passes_for_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    network = standfast.zoo.load("lenet5-mnist")
    passes: list[int] = []
    network.register_forward_hook(lambda module, inputs, outputs: passes.append(len(inputs[0])))
    checks: list[int] = []
    check_inputs = standfast.Model.check_inputs

    def count_checks(model: standfast.Model, inputs: Any, *names: str) -> torch.Tensor:
        checks.append(len(inputs))
        return check_inputs(model, inputs, *names)

    before_metrics: list[int] = []

    def stop(*arguments: Any, **options: Any) -> None:
        before_metrics.extend(passes)  # what is undone afterwards takes a pass, too
        raise FirstMetricError

    monkeypatch.setattr(standfast.Model, "check_inputs", count_checks)
    monkeypatch.setattr(Metric, "__call__", stop)
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    digits = standfast.data.bundled("digits")[:4]
    with pytest.raises(FirstMetricError):
        standfast.evaluate(model, ["saliency"], digits, ["aopc"], progress=False)
    assert 0 < len(before_metrics) <= 5
    assert len(checks) <= 2


def test_other_processes_ask_again() -> None:
    """What was found in this process does not travel; a model that came from elsewhere has to prove what it is."""
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), bounds=(0.0, 1.0), device="cpu"
    )
    inputs = torch.rand(4, 1, 4, 4)
    plan = make_plan(
        Arguments(model, "saliency", inputs, AOPC(steps=2), sanity=False, controls=False)
        .ask()
        .make_grid()
    )
    assert list(plan.grid.tried) == [("inputs", "Sequential")]
    grid = pickle.loads(pickle.dumps(plan.grid))
    assert grid.tried == {}
    assert not Worker(grid).run(plan.jobs[0]).failed
    with torch.no_grad():
        grid.models["Sequential"].ready.module[1].weight += 1.0
    packed = Worker(grid).run(plan.jobs[0])
    assert packed.failed
    (error,) = pl.read_parquet(io.BytesIO(packed.table))["error"]
    assert "are not those of the model that the jobs were planned" in error


def test_a_model_that_is_not_finite_for_some_inputs_is_still_evaluated() -> None:
    """Only the first answer has to be a number; of others each has its status."""

    class Roots(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = x.flatten(1).sum(1)
            return torch.stack([(total - 2).sqrt(), total], 1)

    model = standfast.Model(Roots(), bounds=(0.0, 1.0), device="cpu")
    inputs = torch.ones(3, 1, 4, 4)
    inputs[1] = 0.0
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(model, "saliency", inputs, AOPC(steps=2), **options)
    assert found.samples.sort("sample")["status"].to_list()[1] == "nonfinite"
    with pytest.raises(standfast.ModelError, match="finite"):
        standfast.evaluate(model, "saliency", inputs[1:], AOPC(steps=2), **options)


def test_a_function_that_fails_for_one_row_does_not_end_the_evaluation() -> None:
    """The job of that row says so; a function that fails for the first row cannot be evaluated."""

    def refuse_large_numbers(rows: Any) -> Any:
        if (rows > 0.9).any():
            raise ValueError("no such row")
        return np.stack([rows[:, 0], 1 - rows[:, 0]], 1)

    model = standfast.Model.from_callable(refuse_large_numbers, bounds=(0.0, 1.0))
    rows = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.6, 1.0]])
    options: dict[str, Any] = {
        "sanity": False,
        "controls": False,
        "progress": False,
        "samples_per_job": 1,
    }
    with pytest.warns(UserWarning, match="1 of 2 jobs failed"):
        found = standfast.evaluate(
            model, "occlusion", rows, AOPC(steps=2, replacement="constant"), **options
        )
    assert found.samples["sample"].to_list() == [0]
    with pytest.raises(standfast.ModelError, match="no such row"):
        standfast.evaluate(model, "occlusion", rows.flip(0), AOPC(steps=2), **options)


def count_rows_before_metrics(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many texts the network reads before the first metric."""
    network = standfast.zoo.load("transformer-sentences")
    rows: list[int] = []
    network.register_forward_hook(lambda module, inputs, outputs: rows.append(len(outputs)))
    before_metrics: list[int] = []

    def stop(*arguments: Any, **options: Any) -> None:
        before_metrics.append(sum(rows))
        raise FirstMetricError

    monkeypatch.setattr(Metric, "__call__", stop)
    model = standfast.TextModel(network, standfast.data.word_vectors())
    metrics = ["worst_case:budget=4"]
    with pytest.raises(FirstMetricError):
        standfast.evaluate(model, ["occlusion"], texts, metrics, sanity=False, progress=False)
    return before_metrics[0]


def test_texts_of_many_lengths_are_asked_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each length is a batch, which is filled up to 16 rows; copies with typing errors are of one length."""
    words = [
        "a",
        "great",
        "film",
        "with",
        "good",
        "actors",
        "and",
        "some",
        "music",
        "that",
        "stays",
    ]
    of_one_length = [" ".join(words[start : start + 5]) for start in range(7)]
    of_seven_lengths = [" ".join(words[:count]) for count in range(5, 12)]
    one = count_rows_before_metrics(of_one_length, monkeypatch)
    seven = count_rows_before_metrics(of_seven_lengths, monkeypatch)
    assert 0 < one < seven <= one + 6 * 16
