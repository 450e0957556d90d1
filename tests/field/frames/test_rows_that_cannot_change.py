"""A sample with nothing else in its neighbourhood is not stable: nothing was varied, and it does not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import standfast
from standfast.evaluation import Arguments
from standfast.neighbourhoods import Neighbourhood, TableChanges, Typos
from standfast.study.plan import make_plan

LOANS = pd.DataFrame({"income": np.linspace(1000.0, 9000.0, 40), "children": np.arange(40) % 4})
#: 2% of fewer than 50 children is no child, and 2% of no income is nothing
ROWS = pd.DataFrame({"income": [0.0, 3000.0, 0.0, 5000.0], "children": [3, 1, 0, 2]})
STILL = [True, False, True, False]
METRICS = [
    "worst_case:budget=20",
    "max_sensitivity:samples=5",
    "misinterpretation_probability:preset=quick",
]
CHANGES = TableChanges({"income": "2%", "children": "2%"})


class Rule:
    """Lends to those who earn enough for their children."""

    classes_ = np.array(["no", "yes"])

    def predict_proba(self, frame: pd.DataFrame) -> np.ndarray[Any, Any]:
        score = (
            frame["income"] / 3000
            - 0.3
            - frame["children"]
            + 0.5 * frame["income"] / 3000 * frame["children"]
        )
        yes = 1 / (1 + np.exp(-score.to_numpy(dtype=float)))
        return np.stack([1 - yes, yes], 1)


def evaluate(
    metrics: list[Any], rows: pd.DataFrame = ROWS, neighbourhood: TableChanges | None = CHANGES
) -> standfast.Results:
    options: dict[str, Any] = {
        "neighbourhood": neighbourhood,
        "sanity": False,
        "controls": False,
        "progress": False,
    }
    return standfast.evaluate(Rule(), "occlusion", rows, metrics, reference=LOANS, **options)


@pytest.mark.parametrize("metric", METRICS)
def test_such_rows_do_not_count(metric: str) -> None:
    frame = evaluate([metric]).samples.sort("sample")
    assert [status == "unvaried" for status in frame["status"]] == STILL
    assert [value is None or bool(np.isnan(value)) for value in frame["value"]] == STILL


def test_reasons_of_such_rows_have_nothing_that_varies() -> None:
    """Else each of their reasons would be named in all draws."""
    reasons = [standfast.metrics.get("reasons", neighbourhood=CHANGES, draws=30)]
    frame = evaluate(reasons, neighbourhood=None).samples.sort("sample")
    assert frame["varied_measurement"].to_list() == [not still for still in STILL]
    assert [value is None or bool(np.isnan(value)) for value in frame["value"]] == STILL


def test_the_median_is_that_of_the_others() -> None:
    of_all = evaluate(METRICS[:1]).summary.metrics[0].rows[0]
    of_others = (
        evaluate(METRICS[:1], ROWS[[not still for still in STILL]]).summary.metrics[0].rows[0]
    )
    assert of_all.value == of_others.value
    assert (of_all.counts.counted, of_all.counts.unvaried) == (2, 2)


def test_where_no_row_can_change_nothing_is_judged() -> None:
    results = evaluate(METRICS[:1], ROWS[STILL])
    assert results.summary.metrics[0].rows[0].has_nothing_varied
    assert not results.verdict().show


def list_identities(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, everything_moves: bool
) -> list[str]:
    asked: dict[str, Any] = {
        "reference": LOANS,
        "neighbourhood": CHANGES,
        "sanity": False,
        "controls": False,
    }
    asked |= {
        "model": Rule(),
        "explainers": "occlusion",
        "metrics": METRICS[:1],
        "samples_per_job": 1,
    }
    with monkeypatch.context() as patched:
        if everything_moves:
            patched.setattr(TableChanges, "find_movable", Neighbourhood.find_movable)
        plan = make_plan(Arguments(inputs=rows, **asked).ask().make_grid())
    return [job.identity for job in plan.jobs]


def test_stored_jobs_of_such_rows_are_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of earlier versions have them as stable; those of all other rows stay."""
    now = list_identities(ROWS, monkeypatch, everything_moves=False)
    before = list_identities(ROWS, monkeypatch, everything_moves=True)
    assert [a != b for a, b in zip(now, before, strict=True)] == STILL


def test_texts_without_a_word_that_could_be_another_one() -> None:
    model = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    texts = ["a b c d", "a great film indeed"]
    rows = standfast.question.texts.encode_texts(model.split(texts))
    change = Typos(shortest=3)
    assert change.find_movable(rows).tolist() == [False, True]
    found = standfast.evaluate(
        model,
        "occlusion",
        texts,
        ["worst_case:budget=20"],
        neighbourhood=change,
        sanity=False,
        controls=False,
        progress=False,
    )
    assert found.samples.sort("sample")["status"].to_list() == ["unvaried", "ok"]


def test_all_inputs_of_a_norm_ball_can_change() -> None:
    inputs = torch.rand(3, 5)
    region = standfast.LinfBall(0.1).around(inputs)
    assert region.find_movable().tolist() == [True, True, True]
