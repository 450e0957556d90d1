"""How many samples a job has: enough to fill the batches of a metric whose evaluations wait for each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import standfast
from conftest import small_net
from standfast.evaluation import Arguments
from standfast.metrics import Metric, metrics
from standfast.model import ROW_ALIGNMENT
from standfast.study.jobs import count_passes
from standfast.study.plan import make_plan

BALL = standfast.LinfBall(0.1)


@pytest.fixture
def slow_model(monkeypatch: pytest.MonkeyPatch) -> standfast.Model:
    """So slow, as it is said to be, that no job has time for a second sample."""
    monkeypatch.setattr("standfast.study.plan._choose_pace", lambda *args: 0.005)
    return standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu")


def draw(count: int) -> Tensor:
    return torch.rand(count, 12, generator=torch.Generator().manual_seed(3))


def count_samples_of_jobs(
    model: standfast.Model, explainer: str, metric: str, count: int
) -> list[int]:
    """The samples of each job where the time allows one."""
    asked: dict[str, Any] = {"neighbourhood": BALL, "sanity": False, "controls": False}
    arguments = Arguments(
        model=model, explainers=explainer, inputs=draw(count), metrics=[metric], **asked
    )
    plan = make_plan(arguments.ask().make_grid(), seconds=0.001)
    return [job.stop - job.start for job in plan.jobs]


def test_steps_of_a_search_share_batches_between_samples(slow_model: standfast.Model) -> None:
    search = "worst_case:budget=20"
    assert count_samples_of_jobs(slow_model, "saliency", search, 16) == [8, 8]
    assert count_samples_of_jobs(slow_model, "saliency", search, 9) == [5, 4]


def test_a_single_sample_fills_the_batches_of_other_metrics(slow_model: standfast.Model) -> None:
    sampled, search = "max_sensitivity:samples=20", "worst_case:budget=20"
    assert count_samples_of_jobs(slow_model, "saliency", sampled, 3) == [1, 1, 1]
    # each explanation runs 30 rows
    assert count_samples_of_jobs(slow_model, "kernel_shap:samples=30", search, 3) == [1, 1, 1]


def count_rows(metric: Metric, samples: int) -> int:
    """How many rows the model runs for so many samples, with those that fill its batches."""
    rows: list[int] = []
    net = standfast.zoo.load("lenet5-mnist")
    net.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    model = standfast.Model(net, bounds=(0.0, 1.0), device="cpu")
    metric(model, "saliency", standfast.data.bundled("digits").inputs[:samples])
    return sum(rows)


@pytest.mark.parametrize("name", ["worst_case", "c_eval", "attribution_attack"])
def test_a_job_of_a_metric_that_takes_turns_costs_little_more_than_one_sample(name: str) -> None:
    assert metrics[name].takes_turns
    options = {"preset": "quick"}
    if metrics[name].neighbourhood_option:
        options["neighbourhood"] = BALL  # type: ignore[assignment]
    metric = standfast.metrics.get(name, **options)
    assert count_rows(metric, ROW_ALIGNMENT) < 2.5 * count_rows(metric, 1)


def test_an_explanation_from_predictions_alone_runs_no_model_backward() -> None:
    sampled, saliency = (
        standfast.explainers.get("kernel_shap:samples=30"),
        standfast.explainers.get("saliency"),
    )
    assert count_passes(sampled) == sampled.rows_per_input
    assert count_passes(saliency) == 3 * saliency.rows_per_input
