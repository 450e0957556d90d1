"""Numbers that the README and the documentation state about the code are true."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch

import standfast
from standfast.metrics import Metric
from standfast.metrics.base import PRESETS, has_neighbourhood
from standfast.statistics.paired import signed_rank

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PRESETS_HEADING = "Presets: an answer in seconds, or the paper's setting"
NOISE = 0.045  # of a share of 1000 trials: 3.5 standard errors


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its first two rows."""
    text = (
        (ROOT / page)
        .read_text(encoding="utf-8")
        .partition(f"\n## {heading}\n")[2]
        .partition("\n## ")[0]
    )
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if not set("".join(row)) <= set(" -:")][
        1:
    ]


def configured(kind: type[Metric], preset: str) -> Metric:
    options = {"neighbourhood": standfast.LinfBall(0.1)} if has_neighbourhood(kind) else {}
    return kind(**options, preset=preset)


def test_tables_of_presets() -> None:
    """The rows are in any order; a failure shows the row as it must be."""
    kinds = {name: standfast.metrics.metrics[name] for name in standfast.metrics.names()}
    costs, presets = [], []
    for name, kind in kinds.items():
        if kind.__module__.startswith("standfast."):
            counts = [configured(kind, preset).cost().evaluations for preset in PRESETS]
            costs.append([f"`{name}`", *(f"{count:,}" for count in counts)])
            for preset, options in kind.presets.items():
                words = ", ".join(f"`{option}={value!r}`" for option, value in options.items())
                presets.append([f"[{name}]({name}.md)", preset, words])
    assert sorted(table("docs/how-to/speed.md", "What costs how much")) == sorted(costs)
    assert sorted(table("docs/metrics/index.md", PRESETS_HEADING)) == sorted(presets)


def power(samples: int, share: float, level: float, trials: int = 1000) -> float:
    """How often the test finds a difference that favours A on this share of samples."""
    draws, effect = np.random.default_rng(1), NormalDist().inv_cdf(share)
    return float(
        np.mean(
            [signed_rank(draws.normal(effect, 1.0, samples))[0] <= level for _ in range(trials)]
        )
    )


@pytest.mark.parametrize(
    ("column", "pairs"),
    [
        (1, 1),
        pytest.param(2, 3, marks=pytest.mark.slow),
        pytest.param(3, 15, marks=pytest.mark.slow),
    ],
)
def test_sample_sizes_have_the_power_that_is_stated(column: int, pairs: int) -> None:
    rows = table("docs/how-to/choosing.md", "How many samples")
    assert len(rows) > 4
    for row in rows:
        share, samples = float(row[0].rstrip("%")) / 100, int(row[column])
        if samples <= 60:  # more would take long
            assert power(samples, share, 0.05 / pairs) >= 0.8 - NOISE, row
            assert power(samples - 1, share, 0.05 / pairs) <= 0.8 + NOISE, row


def test_smallest_numbers_of_samples() -> None:
    """Two-sided, the smallest p-value of n differences is two in 2 ** n; Holm's first step divides by the pairs."""
    text = (ROOT / "docs/how-to/choosing.md").read_text(encoding="utf-8")
    assert "6 samples for two explainers,\n  7 for three, 9 for five, 10 for six" in text
    for explainers, samples in ((2, 6), (3, 7), (5, 9), (6, 10)):
        pairs = explainers * (explainers - 1) // 2
        possible = [
            signed_rank(np.arange(1.0, n + 1))[0] * pairs <= 0.05 for n in (samples - 1, samples)
        ]
        assert possible == [False, True], explainers


def test_digits_of_the_readme_are_classified_correctly() -> None:
    (bounds,) = set(
        re.findall(
            r'bundled\("digits"\)\[(\d+):(\d+)\]  # 24 digits, all classified correctly', README
        )
    )
    digits = standfast.data.bundled("digits")[int(bounds[0]) : int(bounds[1])]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    assert len(digits) == 24
    assert torch.equal(model.predict(digits.inputs).cpu(), digits.labels)


@pytest.mark.slow
def test_caption_of_the_bent_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the README and the start page say of their picture is what the search finds, on any processor."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    numbers, pictures = importlib.import_module("docs_figures").bend_explanation()
    caption = README.partition("docs/figures/bent.png)")[2].partition("\n## ")[0]
    assert f'it says "{numbers["label"]}"' in caption
    assert f"{numbers['probability']:.1%}" in caption
    assert f"{numbers['probability of the perturbed digit']:.1%}" in caption
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for text in (caption, start):
        assert f"is about {numbers['correlation of the maps']:.1f}." in text
    assert (
        f'says "{numbers["label"]}" with {numbers["probability of the perturbed digit"]:.1%}'
        in start
    )
    assert numbers["largest change in grey levels"] <= 8.001
    assert "more than 8 of 255 grey levels" in caption
    assert "more than 8 of 255 grey levels" in start
    assert numbers["digits"] == numbers["digits classified correctly"] == 60
    words = " ".join(caption.split())
    assert (
        f"on 60 digits found a median correlation of {numbers['median correlation']:.2f}" in words
    )
    assert numbers["correlations below 0.4"] == 4
    assert "one below 0.4 on four of them" in words
    assert len(pictures) == 4


@pytest.mark.slow
def test_output_of_the_readme() -> None:
    """The medians, signs and marks that the README prints are those that its code finds."""
    code = (
        README.partition("## Ten lines of Python")[2]
        .partition("```python\n")[2]
        .partition("```")[0]
    )
    namespace: dict[str, object] = {}
    exec(code.partition("print(found)")[0], namespace)
    found = str(namespace["found"])
    shown = (
        README.partition("## Ten lines of Python")[2].partition("```text\n")[2].partition("```")[0]
    )
    for name in ("saliency", "input_x_gradient", "gradcam", "input_copy", "randomised:saliency"):
        ours, theirs = (re.findall(rf"^{name} .*$", text, re.M)[0] for text in (shown, found))
        assert re.findall("[a-z+o?x*=]+", ours) == re.findall("[a-z+o?x*=]+", theirs)
        numbers = [
            [float(number) for number in re.findall(r"[\d.]+", line)] for line in (ours, theirs)
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.01)


def test_page_on_reading_results_has_the_numbers_of_the_readme() -> None:
    page = (ROOT / "docs" / "reading-results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(\w+(?::\w+)?) .*(0\.\d+(?: [+o?x]\*?)?)$", page, re.M)
    assert len(rows) == 7
    for name, cell in rows:
        assert re.search(rf"^{name} .* {re.escape(cell)}$", README, re.M), name


def test_glossary_names_every_metric_and_every_reason_to_skip_a_sample() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    pages = {path.stem for path in (ROOT / "docs" / "metrics").glob("*.md")} - {
        "index",
        "attribution_attack",
    }
    linked = set(re.findall(r"\(metrics/(\w+)\.md[)#]", glossary))
    assert pages - linked - {"index"} == set()
    anchors = re.findall(r"\{#([\w-]+)\}", glossary)
    assert len(anchors) == len(set(anchors))
    assert {
        "misclassification",
        "degenerate",
        "nonfinite",
        "censored",
        "resolved",
        "stalled",
    } <= set(anchors)
