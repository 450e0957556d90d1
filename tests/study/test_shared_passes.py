"""Passes that several explainers of a metric need are made once, and nothing else changes by that."""

from __future__ import annotations

import io

import polars as pl
import pytest
import torch
from safetensors.numpy import load
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.explainers import Explainer, from_callable, get
from standfast.explainers.shared_passes import PassMemory, offer_memory, recall_passes
from standfast.metrics import MaxSensitivity, Metric, WorstCase
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.study.plan import make_plan
from standfast.study.store import JobFiles
from standfast.study.worker import Worker

BALL = standfast.LinfBall(0.1)
INPUTS = torch.rand(3, *SHAPES["flat"], generator=torch.Generator().manual_seed(1))
NAMES = ("saliency", "input_x_gradient", "randomised:saliency", "random", "input_copy")


def count_rows(
    metric: Metric, explainers: dict[str, Explainer], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, JobFiles], dict[str, int]]:
    """The tables of all jobs, and the rows that the network has forwarded, for each explainer."""
    net, rows = small_net(SHAPES["flat"]), dict.fromkeys(explainers, 0)
    found = dict[str, JobFiles]()
    model = standfast.Model(net, (0.0, 1.0), device="cpu", batch_size=32)
    grid = Grid(
        {"d": Samples(INPUTS)},
        {"m": LoadedModel(model)},
        explainers,
        {"metric": metric},
        device="cpu",
    )
    running = [""]

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if running[0]:
            rows[running[0]] += len(args[0])

    handle = net.register_forward_pre_hook(note)
    plan = make_plan(grid)
    with monkeypatch.context() as patch:
        if not shared:
            patch.setattr(Worker, "_find_memory", lambda self, job: None)
        worker = Worker(plan.grid)
        for job in plan.jobs:
            running[0] = job.explainer
            found[job.explainer] = worker.run(job)
            running[0] = ""
    handle.remove()
    return found, rows


def read(packed: JobFiles) -> tuple[pl.DataFrame, dict[str, bytes]]:
    arrays = {} if packed.arrays is None else load(packed.arrays)
    return pl.read_parquet(io.BytesIO(packed.table)), {
        name: values.tobytes() for name, values in arrays.items()
    }


@pytest.mark.parametrize(
    "metric", [MaxSensitivity(BALL, 40), WorstCase(BALL, search="random", budget=60)], ids=str
)
def test_the_same_values_and_counts_with_fewer_passes(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainers = {name: get(name) for name in NAMES}
    together, fewer = count_rows(metric, explainers, True, monkeypatch)
    alone, all_rows = count_rows(metric, explainers, False, monkeypatch)
    for name in NAMES:
        (first, arrays), (second, others) = read(together[name]), read(alone[name])
        assert first.equals(second)
        assert arrays == others
    assert fewer["saliency"] == all_rows["saliency"]
    assert fewer["input_x_gradient"] < all_rows["input_x_gradient"] / 2  # its last point is its own
    assert fewer["randomised:saliency"] == all_rows["randomised:saliency"]
    assert fewer["random"] == all_rows["random"]
    assert fewer["input_copy"] < all_rows["input_copy"] / 2


def test_a_failing_explainer_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        raise ZeroDivisionError

    explainers = {
        "saliency": get("saliency"),
        "broken": from_callable(broken),
        "ixg": get("input_x_gradient"),
    }
    found, _ = count_rows(MaxSensitivity(BALL, 5), explainers, True, monkeypatch)
    assert {name: packed.failed for name, packed in found.items()} == {
        "saliency": False,
        "broken": True,
        "ixg": False,
    }


def test_another_weight_or_input_is_not_recalled() -> None:
    net = small_net(SHAPES["flat"])
    model, saliency, memory = (
        standfast.Model(net, (0.0, 1.0), device="cpu"),
        get("saliency"),
        PassMemory(),
    )
    with offer_memory(memory), model.session(), recall_passes():
        first, _ = saliency.attribute(model, INPUTS, None)
        again, _ = saliency.attribute(model, INPUTS.clone(), None)
        assert torch.equal(first, again)
        assert len(memory.found) == 1
        again.zero_()
        assert torch.equal(saliency.attribute(model, INPUTS, None)[0], first)
        assert not torch.equal(saliency.attribute(model, INPUTS + 0.1, None)[0], first)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(2.0)
        assert not torch.equal(saliency.attribute(model, INPUTS, None)[0], first)
