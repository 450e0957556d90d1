"""The report says what is stored: medians against NumPy, censoring, escaping, warnings, and a whole document."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import holdfast.report
from holdfast.errors import ArgumentError
from holdfast.report import Report, build_html
from holdfast.report.checks import contradictions
from holdfast.report.figures import _column, _threshold_as_read
from holdfast.report.gallery import picture, png, signed_picture, thin
from holdfast.report.results import Group, read
from holdfast.report.summary import median, number
from holdfast.study.store import Store

BALL = {"norm": "LinfBall", "radius": 0.1, "distribution": "uniform", "sigma": None}
COMMON = {"neighbourhood": BALL, "similarity": "pearson", "threshold": None, "explain": "predicted", "margin": "logit"}
WORST, WORST_CLASS = "worst_case: changed_explanation", "worst_case: changed_class"
PROB, PROB_CLASS = "probability: changed_explanation", "probability: changed_class"
PROB_MISS = "probability: misclassification"


def record(explainer: str, metric: str, label: str, event: str | None, **more: Any) -> dict[str, Any]:
    headline = {"worst_case": "similarity", "misinterpretation_probability": "log_probability"}.get(metric, "score")
    options = {"absolute": True, **COMMON, "event": event} if event else {"samples": 3}
    return {
        "explainer": explainer,
        "metric": metric,
        "label": label,
        "options": options,
        "headline": headline,
        "direction": "higher",
        "citation": "huang2023safari",
        "seconds": 1.5,
        **more,
    }


def base(status: list[str], start: int = 0) -> dict[str, Any]:
    n = len(status)
    return {
        "sample": range(start, start + n),
        "status": status,
        "targets": [3] * n,
        "model_evaluations": [100] * n,
        "degenerate": [0] * n,
        "nonfinite": [0] * n,
    }


class Builder:
    """A store made by hand."""

    def __init__(self, folder: Path) -> None:
        self.store, self.units = Store(folder), []  # type: ignore[var-annotated]
        self.explainers: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}

    def _name(self, unit: dict[str, Any]) -> str:
        self.explainers[unit["explainer"]] = {"name": unit["explainer"]}
        self.metrics[unit["label"]] = {"metric": unit["metric"], **unit["options"]}
        self.units.append(f"u{len(self.units):03d}")
        return self.units[-1]

    def worst(
        self,
        explainer: str,
        similarity: list[float],
        *,
        event: str = "changed_explanation",
        margin: list[float] | None = None,
        status: list[str] | None = None,
        shape: tuple[int, ...] = (1, 6, 6),
        start: int = 0,
        steps: int = 4,
    ) -> None:
        n, generator = len(similarity), torch.Generator().manual_seed(len(self.units))
        status = status or ["ok"] * n
        margin = margin or [-1.0] * n
        held = [(m < 0) == (event == "changed_explanation") for m in margin]
        ok = [s == "ok" for s in status]
        bad = [s < 0.4 if event == "changed_explanation" else s > 0.6 for s in similarity]
        frame = pl.DataFrame(
            {
                **base(status, start),
                "similarity": similarity,
                "margin": margin,
                "found": [h and o for h, o in zip(held, ok, strict=True)],
                "misinterpreted": [h and o and b for h, o, b in zip(held, ok, bad, strict=True)],
                "sens_max": [float("nan")] * n,
                "predicted": [5 if m >= 0 else 3 for m in margin],
            }
        )
        tensors = {k: torch.rand(n, *shape, generator=generator) for k in ("seeds", "inputs", "seed_maps", "maps")}
        line = torch.linspace(1, 0, steps, dtype=torch.float64).expand(n, steps).clone()
        line[~torch.tensor(ok)] = torch.nan
        tensors |= {
            "trace_evaluations": (10 * torch.arange(1, steps + 1)).expand(n, steps),
            "trace_similarity": line,
            "trace_margin": torch.tensor(margin)[:, None].expand(n, steps).double(),
        }
        unit = record(explainer, "worst_case", f"worst_case: {event}", event)
        self.store.write(self._name(unit), unit, frame, tensors)

    def probability(
        self,
        explainer: str,
        values: list[float],
        *,
        event: str = "changed_explanation",
        censored: list[bool] | None = None,
        status: list[str] | None = None,
        width: float = 0.5,
        stalled: bool = False,
    ) -> None:
        n = len(values)
        status, censored = status or ["ok"] * n, censored or [False] * n
        frame = pl.DataFrame(
            {
                **base(status),
                "log_probability": values,
                "std_error": [float("nan") if c else width / 1.96 for c in censored],
                "low": [float("-inf") if c else v - width for v, c in zip(values, censored, strict=True)],
                "high": [v if c else v + width for v, c in zip(values, censored, strict=True)],
                "censored": censored,
                "stalled": [stalled] * n,
            }
        )
        stage = [[1.0, 1.0, 2.0, float("nan")]] * n if event != "misclassification" else [[0.0, 0.0, 1.0, 0.0]] * n
        tensors = {
            "level_stage": torch.tensor(stage, dtype=torch.float64),
            "level_threshold": torch.tensor([[0.0, -0.2, 0.0, float("nan")]] * n, dtype=torch.float64),
            "level_log_probability": torch.tensor([[-1.0, -3.0, -5.0, float("nan")]] * n, dtype=torch.float64),
            "level_std_error": torch.tensor([[0.1, 0.2, 0.3, float("nan")]] * n, dtype=torch.float64),
        }
        unit = record(explainer, "misinterpretation_probability", f"probability: {event}", event)
        self.store.write(self._name(unit), unit, frame, tensors)

    def other(self, explainer: str, values: list[float | None]) -> None:
        unit = record(explainer, "new_metric", "new metric", None)
        self.store.write(self._name(unit), unit, pl.DataFrame({**base(["ok"] * len(values)), "score": values}), {})

    def failure(self, explainer: str, traceback: str) -> None:
        unit = record(explainer, "worst_case", WORST, "changed_explanation", samples=[0, 2], error="ValueError: no")
        self.store.write_failure(self._name(unit), unit, traceback)

    def page(self, **about: str) -> str:
        self.manifest(about)
        return build_html(self.store)

    def manifest(self, about: dict[str, str]) -> None:
        self.store.write_manifest(
            {
                "seed": 7,
                "samples": 4,
                "input_shape": [1, 6, 6],
                "bounds": [[0.0, 0.0], [1.0, 1.0]],
                "explainers": self.explainers,
                "metrics": self.metrics,
                "about": about,
                "units": self.units,
            }
        )


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def cell_text(page: str, explainer: str, label: str) -> str:
    found = re.search(rf'<td data-explainer="{re.escape(explainer)}" data-label="{re.escape(label)}">(.*?)</td>', page)
    assert found is not None
    return re.sub(r"<[^>]*>", " ", found[1])


class Checker(HTMLParser):
    """Every tag closed in order, every address within the document."""

    VOID = frozenset({"meta", "link", "img", "br", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.heads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = given.get(name)
            if address is not None and not address.startswith(("data:", "#")):
                self.problems.append(f"{tag} {name}={address[:60]}")
        if tag == "img" and not given.get("alt"):
            self.problems.append("img without alt")
        if "id" in given:
            self.ids.append(str(given["id"]))
        if str(given.get("href", "")).startswith("#"):
            self.targets.append(str(given["href"])[1:])
        if tag in ("script", "link", "iframe", "object") and tag != "script" and given.get("href") != "data:,":
            self.problems.append(tag)
        self.heads += [tag] if re.fullmatch(r"h\d", tag) else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> out of place")


def assert_whole(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.problems == []
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.targets) <= set(checker.ids)
    assert checker.heads.count("h1") == 1
    assert '<meta name="holdfast-report" content="complete">' in page.split("</head>")[0]
    assert page.splitlines()[-1] == "<!-- holdfast report: complete -->"
    assert "@import" not in page
    assert "url(" not in page.split("</head>")[0]


def test_medians_are_those_of_the_evaluated_samples(builder: Builder) -> None:
    kept = [0.9, 0.5, 0.1, -0.3, 0.7]
    builder.worst("first", kept[:3])
    builder.worst("first", [*kept[3:], -0.99], status=["ok", "ok", "degenerate"], start=3, steps=6)
    builder.worst("second", [0.25])
    page = builder.page()
    text = cell_text(page, "first", WORST)
    assert number(float(np.median(kept)), 3) in text
    assert "n = 5" in text
    assert "skipped: 1 degenerate" in text
    assert "misinterpreted: 2 of 5" in text
    assert "0.250" in cell_text(page, "second", WORST)
    assert "no interval" in cell_text(page, "second", WORST)
    assert "Not the same samples for all explainers" in page
    assert_whole(page)


def test_an_unflipped_class_does_not_enter_the_median(builder: Builder) -> None:
    builder.worst("a", [0.8, 0.99, 0.7], event="changed_class", margin=[0.5, -0.5, 1.0])
    text = cell_text(builder.page(), "a", WORST_CLASS)
    assert number(0.75, 3) in text
    assert "class changed: 2 of 3" in text
    assert "n = 2" in text


def test_the_event_decides_which_direction_is_robust(builder: Builder) -> None:
    builder.worst("a", [0.5])
    builder.worst("a", [0.5], event="changed_class", margin=[1.0])
    page = builder.page()
    heads = re.findall(r'<th scope="col"><span title="(\w+) is more robust">', page)
    assert heads == ["higher", "lower"]


def test_a_median_on_a_censored_value_is_at_most(builder: Builder) -> None:
    builder.probability("a", [-3.0, -20.0, -20.0], censored=[False, True, True], stalled=True)
    builder.probability("b", [-3.0, -5.0, -20.0], censored=[False, False, True])
    page = builder.page()
    a, b = cell_text(page, "a", PROB), cell_text(page, "b", PROB)
    assert "≤ −20.00" in a
    assert "censored: 2 of 3" in a
    assert "stalled: 3" in a
    assert "−5.00" in b
    assert "≤" not in b
    assert "each estimate: ± 0.50" in b
    assert "[below −20.00, −3.00]" in b


def test_a_high_censored_value_makes_the_median_a_bound() -> None:
    # a run that stalled early says "at most -2", so it may lie below the other two
    result = median(np.array([-2.0, -10.0, -20.0]), np.array([True, False, False]))
    assert result is not None
    assert result.value == -10.0
    assert not result.exact


def test_bootstrap_interval_agrees_with_an_independent_one() -> None:
    values = np.random.default_rng(3).normal(size=60)
    result = median(values)
    assert result is not None
    rng = np.random.default_rng(11)
    medians = [np.median(rng.choice(values, 60)) for _ in range(4000)]
    low, high = np.percentile(medians, [2.5, 97.5])
    assert result.low == pytest.approx(low, abs=0.1)
    assert result.high == pytest.approx(high, abs=0.1)


def test_unknown_metrics_fall_back_to_their_headline(builder: Builder) -> None:
    builder.other("a", [1.0, 2.0, 4.0, None, float("nan")])
    text = cell_text(builder.page(), "a", "new metric")
    assert text.split()[0] == "2"
    assert "2 without a number" in text


def test_all_samples_skipped_and_failed_units(builder: Builder) -> None:
    builder.worst("fine", [0.5, 0.6])
    builder.worst("skips", [0.0, 0.0], status=["degenerate", "nonfinite"])
    builder.probability("skips", [0.0, 0.0], censored=[True, True], status=["degenerate", "nonfinite"])
    builder.failure("broken", "Traceback: <b>no & good</b>")
    page = builder.page()
    for label in (WORST, PROB):
        text = cell_text(page, "skips", label)
        assert "nothing to take a median of" in text
        assert "skipped: 1 degenerate" in text
    assert "Traceback: &lt;b&gt;no &amp; good&lt;/b&gt;" in page
    assert "ValueError: no" in page
    assert "failed" in cell_text(page, "broken", WORST)
    assert "not computed" in cell_text(page, "fine", PROB)
    assert_whole(page)


def test_names_are_escaped(builder: Builder) -> None:
    builder.worst("<script>alert(1)</script>", [0.5, 0.6, 0.2])
    builder.probability("a&b $\\x_$ {{ 7*7 }} --> </svg>", [-1.0, -2.0, -3.0])
    page = builder.page(title="<i>t</i>", model="m'\"<", command="run --a '<x>'", note="n<")
    assert "<script>alert" not in page
    assert "</svg>" not in re.sub(r"<svg .*?</svg>", "", page, flags=re.DOTALL)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;i&gt;t&lt;/i&gt;" in page
    assert "{{ 7*7 }}" in page
    assert_whole(page)


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 5, 4), (2, 30), (9,), (4, 6, 6), (2, 3, 4, 5)], ids=str)
def test_inputs_of_every_shape_are_drawn(builder: Builder, shape: tuple[int, ...]) -> None:
    builder.worst("a", [0.3, 0.5], shape=shape)
    page = builder.page()
    assert page.count('alt="Worst input found') == 2
    assert_whole(page)


def test_the_same_results_give_the_same_bytes(builder: Builder, tmp_path: Path) -> None:
    builder.worst("a", [0.3, 0.5, 0.9, 0.2, 0.1])
    builder.worst("a", [0.8, 0.9, 0.7], event="changed_class", margin=[0.5, 0.2, 1.0])
    builder.probability("a", [-3.0, -20.0, -8.0], censored=[False, True, False])
    page = builder.page()
    assert build_html(builder.store) == page
    again = tmp_path / "deep" / "report.html"
    assert Report(tmp_path).to_html(again) == again
    assert again.read_text(encoding="utf-8") == page
    assert_whole(page)
    assert page.count("<svg") == 3 + 2 + 3


@pytest.mark.parametrize(
    ("event", "stored", "thresholds", "columns"),
    [
        ("changed_explanation", [1.0, 2.0], [-0.2, 0.0], [1, 1]),
        ("changed_explanation", [1.0, 1.0], [-0.2, 0.0], [1, 1]),
        ("changed_class", [0.0, 1.0, 1.0, 2.0], [-3.0, 0.0, -0.1, 0.0], [0, 0, 1, 1]),
        ("changed_class", [0.0, 2.0], [-3.0, 0.0], [0, 1]),
        ("misclassification", [0.0, 1.0], [-3.0, 0.0], [0, 0]),
    ],
)
def test_the_level_that_reaches_the_event_belongs_to_the_last_column(
    event: str, stored: list[float], thresholds: list[float], columns: list[int]
) -> None:
    frame = pl.DataFrame({**base(["ok"]), "censored": [False]})
    shown = {0: {"level_stage": np.array([*stored, np.nan]), "level_threshold": np.array([*thresholds, np.nan])}}
    group = Group("a", PROB, record("a", "misinterpretation_probability", PROB, event), frame, shown=shown)
    assert _column(group, 0)[:-1].tolist() == columns


@pytest.mark.parametrize(
    ("event", "similarity", "expected"),
    [
        ("changed_explanation", "pearson", [0.6, 0.4]),
        ("changed_class", "pearson", [0.4, 0.6]),
        ("changed_explanation", "mse", [0.8, 1.0]),
        ("changed_class", "mse", [1.2, 1.0]),
        ("misclassification", "pearson", [-0.2, 0.0]),
    ],
)
def test_levels_are_read_as_similarities(event: str, similarity: str, expected: list[float]) -> None:
    unit = record("a", "misinterpretation_probability", PROB, event)
    unit["options"] |= {"similarity": similarity, "threshold": 1.0 if similarity == "mse" else None}
    stage = 0 if event == "misclassification" else 1
    read_as = _threshold_as_read(Group("a", PROB, unit), stage, np.array([-0.2, 0.0]))
    np.testing.assert_allclose(read_as, expected)


def test_a_part_more_probable_than_the_whole_is_warned_of(builder: Builder) -> None:
    builder.probability("a", [-5.0, -9.0], event="changed_class")
    builder.probability("a", [-20.0, -8.8], event="misclassification", censored=[True, False])
    found = contradictions_of(builder)
    assert len(found) == 1
    assert found[0].startswith("a, sample 0:")
    assert "a, sample 0: ln P(probability: changed_class) is at least" in build_html(builder.store)


def test_a_search_that_fell_short_is_warned_of(builder: Builder) -> None:
    builder.worst("a", [0.7, 0.3, 0.7, 0.7])
    builder.probability("a", [-6.0, -6.0, -20.0, 0.0], censored=[False, False, True, True], status=["ok"] * 3 + ["x"])
    found = contradictions_of(builder)
    assert [text[:11] for text in found] == ["a, sample 0"]


def test_other_neighbourhoods_are_not_compared(builder: Builder) -> None:
    builder.worst("a", [0.7])
    builder.probability("a", [-6.0])
    path = builder.store.units / "u000.json"
    path.write_text(path.read_text().replace('"radius": 0.1', '"radius": 0.01'))
    assert contradictions_of(builder) == []


def contradictions_of(builder: Builder) -> list[str]:
    builder.manifest({})
    return contradictions(read(builder.store))


def test_units_in_any_order_are_sorted_by_sample(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.4], start=2)
    builder.worst("a", [0.1, 0.2], steps=2)
    builder.manifest({})
    (group,) = read(builder.store).of(WORST)
    assert group.samples == [0, 1, 2, 3]
    assert group.column("similarity").tolist() == [0.1, 0.2, 0.3, 0.4]
    assert [len(line) for line in group.lines["trace_similarity"]] == [2, 2, 4, 4]
    assert sorted(group.shown) == [0, 1, 2, 3]


def test_missing_units_and_an_empty_store_are_said(builder: Builder) -> None:
    assert "No results are stored yet" in builder.page()
    builder.units = ["never"]
    page = builder.page()
    assert "1 planned part has not been computed yet" in page
    assert_whole(page)


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"manifest\.json"):
        Report(tmp_path / "nothing").to_html(tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_frame_is_the_stores(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.5])
    builder.manifest({})
    assert Report(builder.store).frame().equals(builder.store.frame())


def test_pictures() -> None:
    import base64
    import io

    from PIL import Image

    rgb = np.linspace(0, 1, 4 * 5 * 3).reshape(4, 5, 3)
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(png(rgb).split(",")[1]))))
    np.testing.assert_array_equal(image, np.rint(rgb * 255))
    one = np.zeros((1, 2, 2))
    one[0, 0, 0], one[0, 1, 1] = 2.0, -1.0
    red, blue = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(signed_picture(s * one).split(",")[1])))) for s in (1, -1)
    )
    assert red[0, 0, 0] > red[0, 0, 2]
    assert blue[0, 0, 0] < blue[0, 0, 2]
    assert thin(np.ones((3, 500, 300))).shape == (3, 100, 60)
    assert picture(np.full((1, 2, 2), np.nan), 0.0, 1.0).startswith("data:image/png")
    assert signed_picture(np.zeros(4)).startswith("data:image/svg+xml")


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(-0.001, 2, "0.00"), (-1.5, 1, "−1.5"), (float("nan"), 2, "–"), (None, 2, "–"), (1e-9, None, "1e−09")],
)
def test_numbers_as_printed(value: float | None, decimals: int | None, text: str) -> None:
    assert number(value, decimals) == text


def test_matplotlib_and_jinja2_are_imported_only_when_a_page_is_built() -> None:
    package = Path(holdfast.report.__file__).parent
    for path in package.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {"matplotlib", "jinja2"} & {name.split(".")[0] for name in names}, path
            allowed = ("errors", "registry", "tensors", "similarity", "study.store", "report")
            ours = [name.removeprefix("holdfast.") for name in names if name.startswith("holdfast.")]
            assert all(name.startswith(allowed) for name in ours), path
