"""Texts of one and two words beside others: they are skipped with a status, and the rest goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError

TEXTS = [
    "great",
    "a great film with a story",
    "dull film",
    "the plot is dull and long",
    "good music but bad acting",
    "no",
]
SHORT = [0, 2, 5]
PROBABILITY = "misinterpretation_probability"


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(5161, 8)  # as many as `word_vectors` has
        self.head = nn.Linear(8, 2)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        return self.head((self.words(ids).tanh() * present[..., None]).sum(1))


@pytest.fixture
def model() -> Any:
    return standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")


def make_metrics() -> dict[str, Any]:
    typos = standfast.neighbourhoods.Typos(rate=0.5)
    return {
        "worst": standfast.metrics.WorstCase(typos, budget=20),
        "probability": standfast.metrics.get(
            "misinterpretation_probability:method=monte_carlo,samples=20", neighbourhood=typos
        ),
        "aopc": "aopc",
        "curve": "corruption_curve",
        "odds": "log_odds",
        "seeds": "seed_agreement:seeds=3",
        "senc": "data_sensitivity_consistency:masks=30,permutations=19,resamples=10",
    }


EXPLAINERS = ["kernel_shap:samples=20", "occlusion"]


def test_the_rest_is_evaluated_as_without_them(model: Any) -> None:
    # of the checks of explainers is the next test
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(model, EXPLAINERS, TEXTS, make_metrics(), **options)
    assert not found.failures
    long = [text for place, text in enumerate(TEXTS) if place not in SHORT]
    alone = standfast.evaluate(model, EXPLAINERS, long, make_metrics(), **options)
    frame, expected = found.samples, alone.samples
    skipped = frame.filter(frame["sample"].is_in(SHORT))
    assert set(skipped["status"]) == {"degenerate"}
    assert skipped["value"].null_count() == len(skipped)
    order = ["metric", "explainer", "sample"]
    kept = frame.filter(~frame["sample"].is_in(SHORT)).sort(order)
    expected = expected.sort(order)
    assert len(skipped) == len(kept) == len(expected)
    for name in ("metric", "explainer", "status", "value", "low", "high"):
        assert kept[name].to_list() == expected[name].to_list(), name


def test_the_checks_of_explainers_and_the_report(model: Any, tmp_path: Path) -> None:
    found = standfast.evaluate(
        model, ["occlusion", "kernel_shap:samples=20"], TEXTS, "aopc", progress=False
    )
    assert not found.failures  # the checks compare samples with each other, and are one job for all
    assert found.sanity
    assert "3 samples whose map has nothing to compare" in found.to_text(verbose=True)
    found.to_html(tmp_path / "report.html")
    assert "of a text of fewer than three words" in (tmp_path / "report.html").read_text()


def test_texts_that_are_all_short(model: Any) -> None:
    with pytest.raises(
        ArgumentError, match="a text of at least 3 words, which .*, got texts of at most 2"
    ):
        standfast.evaluate(model, "occlusion", ["great", "dull film"], "aopc", progress=False)
    assert [
        len(pairs) for pairs in standfast.explain(model, "occlusion", ["great", "dull film"])
    ] == [1, 2]


def test_a_metric_alone(model: Any) -> None:
    """Two numbers are always correlated by 1 or -1, whatever they are."""
    rows = model.encode(["dull film", "great film"])
    metric = standfast.metrics.WorstCase(standfast.neighbourhoods.Typos(rate=0.5), budget=20)
    result = metric(model.make_model(rows), "occlusion", rows)
    assert result.status == ("degenerate", "degenerate")
    assert bool(result.value.isnan().all())
