"""LENS's reproductions: the paper's numbers in place, settings, verdicts on made-up results, and tiny real runs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import standfast
from papers.base import Part, load_evenly, make_table, read_table, reproductions
from papers.files import read_numbers
from papers.lens import chance
from papers.lens.chance import CHANCE_PART, compare_noise, explain_next_images
from papers.lens.figures import FIGURE2, FIGURE4, FIGURE5, FIGURE10
from papers.lens.parts import ATTACKED, SHARES, SIX, is_column_above
from papers.lens.tables import RULES_PART, TABLE3_PARTS, TABLE4_PARTS, TABLE7_PARTS
from papers.reading import mean_ratio
from papers.test_tables import outcomes
from standfast.data.root import data_root
from standfast.metrics.lens.attribution_objectives import RandomSign
from standfast.similarity import get as get_similarity
from standfast.similarity.stored import name_chance
from standfast.study.file.spec import study_from

NAMES = ("table3", "table4", "table7", "figure2", "figure4", "figure5", "figure10")
PARTS = [
    part
    for name in NAMES
    for part in reproductions[f"lens-{name}"].parts
    if part is not CHANCE_PART
]
SHARED: dict[str, Any] = {
    "data": "MNIST",
    "explainer": "IG",
    "repeat": 0,
    "status": "ok",
    "job": "a",
}
COLUMNS = tuple(SIX.values())
NEEDS_SIGNS = pytest.mark.skipif(not (data_root() / "gtsrb_small").is_dir(), reason="needs GTSRB")


def rows(values: dict[str, Any], **coordinates: Any) -> pl.DataFrame:
    """Rows of `Results.samples` for columns of values of samples 0, 1, ..."""
    columns = {name: np.asarray(column, dtype=float) for name, column in values.items()}
    count = len(next(iter(columns.values())))
    frame = pl.DataFrame({"sample": np.arange(count), **columns})
    return frame.with_columns(
        pl.lit(value).alias(name) for name, value in {**SHARED, **coordinates}.items()
    )


# ---- the paper's numbers, and its settings ----


def test_numbers_are_the_papers() -> None:
    """A few, typed again; and what all of them must meet."""
    seven = read_numbers("lens/table7.csv", keys=3)
    for numbers, row, expected in (
        (ATTACKED, "MNIST, natural, top-k", (0.4635, 0.6209, 0.9427, 0.1680, 0.6592, 0.8126)),
        (ATTACKED, "Fashion-MNIST, PGD, top-k", (0.7440, 0.9571, 0.9696, 0.3770, 0.8486, 0.8608)),
        (ATTACKED, "Flower, natural, top-k", (0.1789, 0.4091, 0.5128, 0.2355, 0.9482, 0.9560)),
        (ATTACKED, "ImageNet, natural, top-k", (0.0544, 0.2822, 0.3189, 0.0684, 0.7303, 0.7458)),
        (seven, "MNIST, PGD, LRP", (0.6887, 0.8590, 0.9791, 0.2786, 0.8669, 0.9557)),
        (
            seven,
            "Fashion-MNIST, natural, GradSHAP",
            (0.6075, 0.9208, 0.9377, 0.2641, 0.8391, 0.8717),
        ),
    ):
        assert tuple(numbers) == tuple(SIX)
        assert tuple(column[row] for column in numbers.values()) == expected
    assert (len(ATTACKED["top-k-div"]), len(seven["top-k-div"])) == (24, 24)
    for numbers in (ATTACKED, seven):
        for row in numbers["top-k-div"]:
            plain, recall, precision, *diverse = (float(column[row]) for column in numbers.values())
            assert 0 < plain <= max(recall, precision) < 1
            assert 0 < diverse[0] <= min(diverse[1:]) < 1
    three = read_numbers("lens/table3.csv", keys=3)
    assert [column["GTSRB, IG, universal random"] for column in three.values()] == [
        0.9293,
        0.9887,
        0.9243,
    ]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_full_studies_have_the_papers_settings(part: Part) -> None:
    """App. C: t, steps, size of a step, radius; three starts."""
    assert part.study is not None
    small, full = part.study("small"), part.study("full")
    assert full["samples"] > small["samples"]
    ((title, data),) = small["data"].items()
    options = data if "targets" in data else next(iter(data.values()))
    assert options["targets"] == "labels", "what the network gets wrong is skipped"
    settings = {"MNIST": (200, 100, 0.01, 0.3), "Fashion-MNIST": (100, 100, 0.01, 0.1)}
    t, steps, step, size = settings.get(title, (100, 50, 1 / 255, 8 / 255))
    for label, entry in full["metrics"].items():
        metric = entry["attribution_attack"]
        radius = metric["neighbourhood"]["linf"]
        assert radius == pytest.approx(size) or part.name.startswith("lens-figure2")
        if label.startswith("top-k"):
            assert metric["attack"] == f"top_k:t={100 if part.name.endswith('-t100') else t}"
            assert (metric["steps"], metric["restarts"]) == (steps, 3)
            assert metric["step"] == pytest.approx(min(step, radius / 2))
            cheap = small["metrics"][label]["attribution_attack"]
            assert cheap["steps"] * cheap["restarts"] < 300
    found = study_from(full)
    names = {
        get_similarity(name).name
        for entry in found.metrics.values()
        for name in entry.value.similarities
    }
    known = {column.column for column in part.columns}
    assert part in (*FIGURE5, *FIGURE10) or known <= {
        name.removesuffix(",protocol=authors") for name in names
    }
    for scale in ("small", "full"):
        for card in (standfast.zoo.card(next(iter(model))) for model in full["models"].values()):
            assert f"({card['test_accuracy']:.1%})" in part.departures(scale)  # type: ignore[arg-type]


def test_numbers_of_pixels_are_the_share_of_the_papers_1000() -> None:
    for name, side in (("mnist", 28), ("fashionmnist", 28), ("gtsrb", 32)):
        assert SHARES[name] == round(1000 / 227**2 * side**2)


@NEEDS_SIGNS
def test_signs_are_spread_over_the_classes() -> None:
    found = load_evenly("gtsrb:test", 43)
    assert len(found.inputs) == 43
    assert len(found.labels.unique()) > 35
    assert torch.equal(found.inputs[0], standfast.data.gtsrb("test").inputs[0])


# ---- what is read from results ----


def test_ratio_and_comparisons_of_columns() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0.3, 0.5, size=60)
    frame = rows({"a": 2 * low, "b": low, "c": low + 0.001 * rng.normal(size=60)})
    assert mean_ratio(frame, "a", "b") == pytest.approx((2.0, 2.0, 2.0)), (
        "proportional columns have no spread"
    )
    middle, least, most = mean_ratio(
        frame.with_columns(pl.Series("a", 2 * rng.permutation(low))), "a", "b"
    )
    # the delta method: var(log ratio) is the sum of both relative variances
    error = 2 * math.sqrt(2) * low.std() / low.mean() / math.sqrt(60)
    assert middle == pytest.approx(2.0)
    assert (most - least) / 2 == pytest.approx(1.96 * error, rel=0.25)
    for bad in (mean_ratio(frame.head(1), "a", "b"), mean_ratio(frame, "a", "nobody")):
        assert all(math.isnan(x) for x in bad)
    pairs = (("a", "b"), ("b", "a"), ("c", "b"), ("a", "nobody"))
    assert [is_column_above(frame, *pair) for pair in pairs] == [True, False, None, None]


def table4_frame(values: dict[str, float], lens: float = 1.2) -> pl.DataFrame:
    """Intersections by "training, attack"; LENS is `lens` times them."""
    rng = np.random.default_rng(1)
    image = 0.02 * rng.normal(size=30)
    parts = []
    for name, value in values.items():
        model, label = name.split(", ")
        own = value + image + 0.005 * rng.normal(size=30)
        columns = {
            column: own * (lens if place % 3 else 1.0) for place, column in enumerate(COLUMNS)
        }
        columns |= {name_chance(column): 0.68 + 0 * own for column in COLUMNS}
        parts.append(rows(columns, model=model, label=label))
    return pl.concat(parts)


NINE = {
    f"{model}, {attack}": base + more
    for model, base in (("natural", 0.3), ("PGD", 0.4), ("IG-SUM-NORM", 0.5))
    for attack, more in (("top-k", 0.0), ("mass center", 0.05), ("random", 0.1))
}


@pytest.mark.parametrize(("factor", "expected"), [(1.0, True), (-1.0, False), (0.0, None)])
def test_table_4_verdicts(factor: float, expected: bool | None) -> None:
    table = make_table(
        TABLE4_PARTS[0],
        table4_frame({name: 0.45 + factor * (n - 0.45) for name, n in NINE.items()}),
    )
    assert table.rows["model, metric"].to_list() == list(NINE)
    assert table.rows[f"{COLUMNS[2]} (paper)"].to_list()[0] == "0.9427"
    for words in (
        "IG-SUM-NORM is more",
        "PGD is more",
        "random perturbations are weaker",
        "mass center attack is",
    ):
        assert set(outcomes(table, words).values()) == {expected}
    assert len(outcomes(table, "random perturbations are weaker")) == 18
    without = {name: value for name, value in NINE.items() if not name.startswith("IG-SUM")}
    table_without = make_table(TABLE4_PARTS[3], table4_frame(without))
    assert set(outcomes(table_without, "IG-SUM-NORM is more robust").values()) == {None}
    above = table.rows[f"{COLUMNS[2]}_above"][0]
    assert above == pytest.approx((table.rows[COLUMNS[2]][0] - 0.68) / 0.32)


@pytest.mark.parametrize(
    ("factor", "expected"), [(2.2, True), (1.2, False), (1.505, None), (1.495, None)]
)
def test_the_factor_is_judged_by_its_interval(factor: float, expected: bool | None) -> None:
    frame = table4_frame(NINE, lens=factor)
    jitter = np.random.default_rng(2).normal(1.0, 0.02, size=len(frame))
    frame = frame.with_columns(
        (pl.col(COLUMNS[2]) * (jitter + 1 - jitter.mean())).alias(COLUMNS[2])
    )
    ((where, holds),) = [
        (where, h) for text, where, h in TABLE4_PARTS[0].verdicts(frame) if "roughly 2x" in text
    ]
    assert holds is expected
    numbers = re.fullmatch(r"natural, top-k: (\d\.\d\d) \[(\d\.\d\d), (\d\.\d\d)\]x", where)
    assert numbers is not None
    middle, low, high = map(float, numbers.groups())
    assert middle == pytest.approx(factor, abs=0.02)
    assert low < middle < high


def test_table_4_counts_what_was_lost() -> None:
    frame = table4_frame(NINE).with_columns(
        label_kept=pl.col("sample") > 2, found=pl.col("sample") > 5
    )
    lost, none = make_table(TABLE4_PARTS[0], frame).notes
    assert "natural, random 10%" in lost
    assert "top-k" not in lost
    assert "PGD, mass center 20%" in none


@pytest.mark.parametrize(
    ("shift", "expected"), [(-0.1, True), (0.1, False), (0.0, False), (-0.02, None)]
)
def test_table_3_compares_universal_and_independent_signs(
    shift: float, expected: bool | None
) -> None:
    rng = np.random.default_rng(3)
    part = TABLE3_PARTS[0]
    names = [column.column for column in part.columns]
    frame = pl.concat(
        rows(
            {
                name: 0.5 + move + (0.2 if "w=1" in name else 0.0) + 0.01 * rng.normal(size=20)
                for name in names
            },
            model="natural",
            label=label,
            repeat=repeat,
        )
        for label, move in (("random", 0.0), ("universal random", shift))
        for repeat in range(3)
    ).with_columns(label_kept=pl.col("sample") > 0)

    prepared = part.prepare(SimpleNamespace(samples=frame))  # type: ignore[arg-type]
    assert len(prepared) == 40, "one row for each image: draws are averaged"
    table = make_table(part, prepared)
    assert table.rows["explainer, metric"].to_list() == ["IG, random", "IG, universal random"]
    assert table.rows["samples"].to_list() == [20, 20]
    own = frame.filter(pl.col("label") == "random")
    assert table.rows[names[0]][0] == pytest.approx(own[names[0]].mean())
    assert table.rows[f"{names[1]} (paper)"].to_list() == ["0.5347", "0.4831"]
    assert set(outcomes(table, "universal signs").values()) == {expected}
    assert set(outcomes(table, "1-smoothing").values()) == {True}
    draws = [own.filter(pl.col("repeat") == repeat)[names[0]].mean() for repeat in range(3)]
    assert table.notes[0].endswith(", ".join(f"{mean:.3f}" for mean in draws))
    assert "random 5%; universal random 5%" in table.notes[2]


def test_table_7_verdicts_both_ways() -> None:
    for pgd, diverse, lrp, expected in ((0.1, 0.2, 0.0, True), (-0.1, -0.2, 0.05, False)):
        noise = 0.01 * np.random.default_rng(4).normal(size=20)
        parts = []
        for model, base in (("natural", 0.5), ("PGD", 0.5 + pgd)):
            for name in (
                "Simple Gradient",
                "Image x Gradient",
                "LRP",
                "DeepLIFT",
                "GradSHAP",
                "IG",
            ):
                own = base + noise + (lrp if name == "LRP" else 0.0)
                columns = {
                    column: own + (0.1 if place in (1, 2) else 0.0)
                    for place, column in enumerate(COLUMNS[:3])
                }
                columns |= {
                    column: own + (diverse if place else -0.3)
                    for place, column in enumerate(COLUMNS[3:])
                }
                parts.append(rows(columns, model=model, explainer=name, label="random"))
        table = make_table(TABLE7_PARTS[0], pl.concat(parts))
        assert table.rows["model, explainer"][0] == "natural, Simple Gradient"
        assert table.rows[f"{COLUMNS[0]} (paper)"][8] == "0.6887"
        for words in (
            "locality and diversity together",
            "PGD is more robust",
            "LRP and Image x Gradient",
        ):
            assert set(outcomes(table, words).values()) == {expected}


def test_figure_5_verdicts_both_ways() -> None:
    for growth, gain, expected in ((0.05, 0.1, True), (-0.05, 0.02, False)):
        rng = np.random.default_rng(5)
        parts = []
        for label, own in (("top-k", gain), ("mass center", 0.05), ("random", 0.05)):
            noise = 0.005 * rng.normal(size=20)
            for w in range(5):
                columns = {
                    "precision": 0.3 + own * w + noise,
                    "precision_diverse": 0.3 + growth * w + noise,
                }
                parts.append(rows(columns, model="natural", label=label, w=str(w)))
        frame = pl.concat(parts)
        table = make_table(FIGURE5[0], frame)
        assert table.rows["metric, w"].to_list()[:2] == ["top-k, 0", "top-k, 1"]
        assert set(outcomes(table, "at every step").values()) == {expected}
        assert set(outcomes(table, "gains more").values()) == {expected}


@pytest.mark.parametrize(("gap", "expected"), [(0.3, True), (0.05, False), (0.1, None)])
def test_figure_10_verdict(gap: float, expected: bool | None) -> None:
    rng = np.random.default_rng(6)
    parts = []
    for label in ("top-k", "random"):
        for k in (10, 25, 50, 100, 200, 300):
            own, more = 0.5 + 0.02 * rng.normal(size=20), 0.02 * rng.normal(size=20)
            columns = {"intersection": own, "precision": own + gap + more - more.mean()}
            parts.append(rows(columns, model="natural", label=label, k=str(k)))
    table = make_table(FIGURE10[0], pl.concat(parts))
    assert set(outcomes(table, "large disparity").values()) == {expected}
    at = table.rows["metric, k"].to_list().index("top-k, 100")
    assert table.rows["intersection (paper)"][at] == "0.4635"


def test_figures_2_and_4_verdicts_both_ways() -> None:
    names = [column.column for column in FIGURE2[0].columns[:3]]
    rng = np.random.default_rng(7)
    for direction, precision, expected in ((1.0, 0.95, True), (-1.0, 0.7, False)):
        parts = []
        for explainer in ("SG", "IG"):
            for attack in ("top-k", "mass center", "random"):
                for place, radius in enumerate(("0.0375", "0.075", "0.15", "0.3")):
                    own = 0.5 - direction * 0.05 * place + 0.005 * rng.normal(size=12)
                    columns = {
                        names[0]: own,
                        names[1]: own + 0.1,
                        names[2]: own + 0.1 + direction * 0.05,
                    }
                    where = {"attack": attack, "radius": radius, "label": f"{attack}, {radius}"}
                    parts.append(rows(columns, model="natural", explainer=explainer, **where))
        frame = pl.concat(parts)
        table = make_table(FIGURE2[0], frame)
        assert table.rows["attack, radius"][3] == "top-k, 0.3"
        assert set(outcomes(table, "drops with the size").values()) == {expected}
        assert set(outcomes(table, "at every size").values()) == {expected}
        values = np.full(20, 0.4) + 0.01 * rng.normal(size=20)
        columns = dict(
            zip(COLUMNS[:3], (values, values + 0.1, values + precision - 0.4), strict=True)
        )
        table = make_table(FIGURE4[0], rows(columns, model="natural", label="top-k"))
        assert outcomes(table, "moved by more than one")["MNIST"] is expected
        assert table.rows[f"{COLUMNS[1]} (paper)"][0] == "0.6209"


# ---- unrelated maps ----


@pytest.mark.parametrize(("side", "k", "w"), [(28, 100, 1), (32, 20, 3), (10, 5, 2)])
def test_unrelated_maps_score_what_combinatorics_says(side: int, k: int, w: int) -> None:
    """A position is near one of k random ones unless all of them lie outside of its window: hypergeometric."""
    positions = side * side
    reach = [min(i, w) + min(side - 1 - i, w) + 1 for i in range(side)]
    missed = [
        math.comb(positions - a * b, k) / math.comb(positions, k) for a in reach for b in reach
    ]
    found = compare_noise(torch.ones(400, side, side), k, w)
    near = 1 - sum(missed) / positions
    pairs = (
        (found.intersection[:, 0], k / positions),
        (found.precision[:, 0, 0], near),
        (found.recall[:, 0, 0], near),
    )
    for values, expected in pairs:
        error = float(values.double().std()) / 20
        assert float(values.double().mean()) == pytest.approx(expected, abs=4 * error + 1e-3)
    assert found.recall_diverse is not None
    assert float(found.recall_diverse.mean()) > float(found.recall.mean()), (
        "pixels with a minimum distance cover more"
    )


def test_the_papers_numbers_are_set_against_unrelated_maps() -> None:
    rng = np.random.default_rng(8)
    for level, expected in ((0.0, True), (0.99, False)):
        parts = []
        for size in ("28 x 28 k=100 w=1", "128 x 128 k=1000 w=2", "227 x 227 k=1000 w=3"):
            columns = {
                column.column: level + 0.001 * rng.normal(size=20) for column in CHANCE_PART.columns
            }
            parts.append(rows(columns, maps="noise", size=size))
        table = make_table(CHANCE_PART, pl.concat(parts))
        found = outcomes(table, "two maps of noise")
        assert found["ImageNet LENS-recall@k-div"] is expected
        assert found["MNIST top-k intersection"] is expected
    assert table.rows["recall_diverse (paper)"].to_list() == ["–", "0.9482", "0.7303"]


# ---- real, and tiny ----


def shrink(part: Part) -> dict[str, Any]:
    """The part's study on a few images with hardly any steps."""
    assert part.study is not None
    made = part.study("small")
    ((title, source),) = made["data"].items()
    samples = 4
    if title == "MNIST":
        samples = 2
        source = {"digits": {"targets": "labels"}}
    else:
        source["options"]["count"] = 4  # the network recognises two of them
    for entry in made["explainers"].values():
        if isinstance(entry, dict):
            entry["integrated_gradients"]["steps"] = 3
    for metric in made["metrics"].values():
        for options in metric.values():
            if "steps" in options:
                options.update(steps=1, restarts=1)
    return {
        **made,
        "data": {title: source},
        "samples": samples,
        "repeats": min(2, made.get("repeats", 1)),
    }


TINY = [
    (TABLE3_PARTS[0], 4),
    (RULES_PART, 14),
    (TABLE7_PARTS[0], 14),
    (FIGURE2[0], 12),
    (FIGURE5[0], 15),
]


@pytest.mark.parametrize(
    ("part", "count"), [*TINY, pytest.param(FIGURE10[2], 12, marks=NEEDS_SIGNS)]
)
def test_tiny_runs_give_whole_tables(part: Part, count: int, tmp_path: Path) -> None:
    table = read_table(part, standfast.run_study(shrink(part), tmp_path, progress=False))
    assert table.failures == 0
    assert len(table.rows) == count
    defined = table.rows.filter(~pl.col(table.part.row_heading).str.ends_with("no zeros"))
    for column in part.columns:
        values = defined[column.key].to_numpy()
        assert np.isfinite(values).all(), column.heading
        assert (values <= 1).all()


@pytest.mark.skipif(
    not (data_root() / "fashion_mnist").is_dir(), reason="needs MNIST and Fashion-MNIST"
)
def test_measured_chance_has_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "SIZES", ((28, 100, 1), (28, 15, 3)))
    monkeypatch.setitem(chance.PAIRS, "small", 8)
    monkeypatch.setitem(chance.IMAGES, "small", 6)
    monkeypatch.setattr(
        chance, "explain_next_images", lambda title, scale: torch.rand(2, 3, 1, 28, 28).unbind(0)
    )
    assert CHANCE_PART.measure is not None
    table = make_table(CHANCE_PART, CHANCE_PART.measure("small"))
    assert table.rows["maps, size"][0] == "noise, 28 x 28 k=100 w=1"
    assert "MNIST, 28 x 28 k=100 w=1" in table.rows["maps, size"].to_list()
    assert table.rows["samples"][0] == 8
    on = table.rows.filter(pl.col("maps, size").str.starts_with("noise on MNIST"))
    strokes = (standfast.data.mnist("test")[:6].inputs > 0).flatten(1).sum(1).double()
    assert on["samples"][0] == 6
    # k of n pixels twice; where n is below k, all of them and the same zeros
    assert on["intersection"][0] == pytest.approx(
        float((100 / strokes).clamp(max=1).mean()), abs=0.03
    )
    assert np.isfinite(table.rows["precision_diverse"].to_numpy()).all()


@pytest.mark.skipif(not (data_root() / "mnist").is_dir(), reason="needs MNIST")
def test_maps_of_other_images_are_those_of_the_next_under_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(chance.IMAGES, "small", 3)
    maps, others = explain_next_images("MNIST", "small")
    images = standfast.data.mnist("test")[:3]
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist-plain"), bounds=(0.0, 1.0), device="cpu"
    )
    explainer = standfast.explainers.get("integrated_gradients", steps=32)
    assert torch.allclose(
        maps.cpu(), explainer(model, images.inputs, images.labels).abs(), atol=1e-6
    )
    moved = RandomSign().draw(standfast.LinfBall(0.3).around(images.inputs, model.bounds), 0)
    assert torch.allclose(
        others[0].cpu(), explainer(model, moved, images.labels).abs()[2], atol=1e-6
    )
