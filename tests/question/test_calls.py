"""What the manifest holds of a call of `evaluate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch

import standfast
from standfast.explainers import Explainer
from standfast.question.arguments import Arguments
from standfast.question.calls import record_call


def record(
    explainers: Any = "lrp",
    metrics: Any = "aopc",
    further: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    model = options.pop("model", None)
    recorded = record_call(
        Arguments(model, explainers, torch.zeros(2, 1, 4, 4), metrics, **options), further or {}
    )
    assert json.loads(json.dumps(recorded)) == recorded
    return recorded


def test_explainers_are_recorded_as_they_were_given() -> None:
    assert record("lrp")["explainers"] == {
        "named": False,
        "parts": [{"name": "lrp", "code": "'lrp'"}],
    }
    lrp = standfast.explainers.LRP(epsilon=0.1)
    listed = record(["smoothgrad:samples=8", lrp])["explainers"]
    assert [part["code"] for part in listed["parts"]] == [
        "'smoothgrad:samples=8'",
        "standfast.explainers.LRP(epsilon=0.1)",
    ]
    assert [part["name"] for part in listed["parts"]] == ["smoothgrad:samples=8", lrp.label]
    named = record({"mine": lrp})["explainers"]
    assert (named["named"], named["parts"][0]["name"]) == (True, "mine")


def test_what_can_be_read_once_is_not_read() -> None:
    def generate() -> Iterator[Explainer]:
        raise AssertionError("it was read")
        yield

    recorded = record(generate(), generate())
    assert (recorded["explainers"], recorded["metrics"]) == (None, None)


def test_a_metric_without_its_neighbourhood_is_a_text() -> None:
    ball = standfast.LinfBall(0.1)
    metrics = [
        standfast.metrics.WorstCase(ball, budget=30, search="block"),
        standfast.metrics.WorstCase(ball),
        "worst_case:budget=9",
        "aopc",
        standfast.metrics.AOPC(),
        standfast.metrics.WorstCase(ball, similarity=standfast.similarity.get("ssim")),
    ]
    parts = record(metrics=metrics)["metrics"]["parts"]
    movable = ["worst_case:search=block,budget=30", "worst_case", "worst_case:budget=9", None, None]
    assert [part["movable"] for part in parts[:5]] == movable
    assert [part["placed"] for part in parts] == [True, True, True, False, False, True]
    for part in parts[:2]:
        moved = standfast.metrics.get(part["movable"], neighbourhood=ball)
        assert moved == eval(part["code"], {"standfast": standfast})


def test_other_arguments_are_code_or_their_names() -> None:
    assert record()["options"] == {}
    options = record(
        seed=3,
        controls=["random"],
        sanity=False,
        targets=torch.zeros(2, dtype=torch.int64),
        reference=torch.zeros(9, 1, 4, 4),
        neighbourhood=standfast.LinfBall(0.2),
        decision="P(yes) > 0.3",
        about={"model": "mine"},
        further={"out": "a folder"},
    )["options"]
    assert options == {
        "seed": "3",
        "controls": "['random']",
        "sanity": "False",
        "targets": "targets",
        "reference": "reference",
        "neighbourhood": "standfast.LinfBall(0.2)",
        "decision": "'P(yes) > 0.3'",
        "about": "{'model': 'mine'}",
        "out": "'a folder'",
    }


def test_the_kind_of_the_model_is_known() -> None:
    module = torch.nn.Linear(2, 2)
    assert [
        record(model=model)["model"]
        for model in (module, standfast.Model(module, (0, 1)), {"a": module})
    ] == [
        "module",
        "model",
        "models",
    ]
