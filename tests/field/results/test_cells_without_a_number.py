"""Explainers of which no sample has a value by a metric: what is printed says why their cells are empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from report_builder import GOOD, Builder
from torch import nn

import standfast
from standfast.report import Results


def read_words(results: Results, verbose: bool = False) -> str:
    """What is printed, without the breaks of lines."""
    return " ".join(results.to_text(verbose).split())


def evaluate_sure_model(inputs: torch.Tensor) -> Results:
    """A model whose class no attack changes, as its logits are those of class 0 whatever it sees."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with torch.no_grad():
        network[1].weight.mul_(0.01)
        network[1].bias.copy_(torch.tensor([3.0, 0, 0]))
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    explainers = ["saliency", "input_x_gradient"]
    return standfast.evaluate(
        model, explainers, inputs, ["c_eval"], sanity=False, controls=(), progress=False
    )


def test_c_eval_finds_no_change_of_the_class() -> None:
    results = evaluate_sure_model(
        torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    )
    frame = results.frame()
    assert frame["status"].to_list() == ["ok"] * 6
    assert frame["value"].to_list() == [None] * 6
    reason = "3 samples for which no change of the answer was found (c_eval)"
    sentence = f"Not counted for saliency, input_x_gradient: {reason}."
    assert sentence in read_words(results)
    assert read_words(results, verbose=True).count(sentence) == 1
    assert sentence in results._repr_html_()


def test_an_option_of_quantus_does_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("quantus", reason="needs Quantus: extra peers")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 3))
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    metric = standfast.metrics.get("quantus:FaithfulnessCorrelation")
    rows = torch.rand(4, 7)
    results = standfast.evaluate(
        model, ["saliency"], rows, [metric], sanity=False, controls=(), progress=False
    )
    reason = "'subset_size' must be smaller than input size. [224 >= 7]"
    assert (
        f"Not counted for saliency: 4 samples with NaN or infinity: ValueError: {reason}"
        in read_words(results)
    )
    page = (
        results.to_html(tmp_path / "report.html")
        .read_text()
        .replace("&#39;", "'")
        .replace("&gt;", ">")
    )
    assert f"<li>quantus:FaithfulnessCorrelation: ValueError: {reason}</li>" in page


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_a_cell_with_a_number_needs_no_reason(builder: Builder) -> None:
    """Samples that do not count beside others are in the long form alone, and so are controls."""
    skipped = ["degenerate"] * 12
    builder.worst("partly", GOOD, status=["ok"] * 11 + ["misclassified"])
    builder.worst("constant", GOOD, status=skipped)
    builder.worst("random", GOOD, status=skipped)
    builder.extra["controls"] = ["random"]
    results = builder.found()
    sentences = [
        sentence for sentence in read_words(results).split(". ") if "Not counted" in sentence
    ]
    assert len(sentences) == 1
    assert "Not counted for constant: 12 samples whose map has nothing to compare" in sentences[0]
    long = read_words(results, verbose=True)
    assert "Not counted for partly: 1 sample of which the model predicts another class" in long
    assert "Not counted for constant, random: 12 samples whose map has nothing to compare" in long


def test_one_of_several_reasons_is_said(builder: Builder) -> None:
    builder.worst(
        "a",
        GOOD,
        status=["nonfinite"] * 12,
        more={"failure": ["first"] * 5 + ["second"] * 4 + [None] * 3},
    )
    words = read_words(builder.found())
    assert "12 samples with NaN or infinity: first (and 1 other reason)" in words
