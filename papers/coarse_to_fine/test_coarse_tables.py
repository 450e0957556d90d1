"""Coarse-to-fine reproductions: the paper's numbers in place, rows of data sets, verdicts both ways, tiny real runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from safetensors.torch import save_file
from torch import nn

import standfast
from papers import base
from papers.base import Column, Part, Reproduction, Scale, make_table, reproductions
from papers.coarse_to_fine import explainers, tables, training
from papers.coarse_to_fine.explainers import PositiveNoise, TrainingReferences
from papers.coarse_to_fine.rows import (
    NETWORKS,
    RESAMPLES,
    SIX,
    STARRED,
    agrees,
    compare_orders,
    is_above_others,
    is_last,
    make_rows,
)
from papers.coarse_to_fine.tables import (
    CALIBRATED_PART,
    FIGURE4_PART,
    FIGURE5_PART,
    TABLE_E1_PART,
    compare_skewness,
    keeps_order,
    read_means,
    train_networks,
)
from papers.coarse_to_fine.training import train_or_load
from papers.files import read_numbers, study_file
from papers.printing import print_table
from standfast.data.dataset import Dataset
from standfast.data.root import data_root
from standfast.errors import ArgumentError
from standfast.metrics.coarse_to_fine.corruption_curve import FRACTIONS
from standfast.statistics.corruption.gate import apply_gate
from standfast.statistics.corruption.summary import Curves
from standfast.study.file.spec import study_from
from standfast.zoo.networks.series_cnn import SeriesCNN

read_study = study_file("coarse_to_fine/studies/figure5.yaml")
PARTS = (FIGURE4_PART, FIGURE5_PART, TABLE_E1_PART, CALIBRATED_PART)
OTHERS = ("random", "random, positive")
ENTRIES = {"segments": "pixels", "per_channel": True}
SERIES = {
    "data": {"waves": "waves:test"},
    "metrics": {"corruption": {"corruption_curve": {"samples": 1}}},
    "sanity": False,
}
SMALL = {"width": 4, "stride": 4, "hidden": 4, "num_classes": 2, "in_channels": 4}


# ---- the paper's numbers ----


def test_numbers_are_the_papers() -> None:
    """A few, typed again; and what all of them must meet."""
    found = read_numbers("coarse_to_fine/tableE1.csv", keys=2)
    assert list(found) == list(STARRED)
    assert found["AUC_top*"]["Transformer, DS"] == "0.84 ± 0.25"
    assert found["AUCKurt*"]["CNN, KS"] == "0.97 ± 0.07"
    assert found["AUCSkew*"]["BiLSTM, GS"] == "0.47 ± 0.04"
    assert found["F1*"]["CNN, DL"] == "0.61 ± 0.09"
    for heading in STARRED:
        assert list(found[heading]) == [
            f"{network}, {name}" for network in NETWORKS for name in SIX
        ]
        assert all(
            0 <= value <= 1
            for network in NETWORKS
            for value in read_means(heading, network).values()
        )
    for network in NETWORKS:
        assert min(read_means("AUC_top*", network).items(), key=lambda pair: pair[1])[0] == "KS"
        assert read_means("AUCKurt*", network)["KS"] > 0.5, "the known weakness"


# ---- studies ----


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_full_studies_have_the_papers_settings(part: Part) -> None:
    assert part.study is not None
    assert part.name in {f"{name}" for name in reproductions.names()}
    for scale in base.SCALES:
        found = study_from(part.study(scale))
        assert (*SIX, *OTHERS) == tuple(found.explainers)[:8]
        (metric,) = found.metrics.values()
        assert (metric.value.samples, len(metric.value.fractions)) == (1, 11)
    full = part.study("full")
    assert full["repeats"] == 5
    assert "samples" not in full
    assert full["explainers"]["SVS"] == {"shapley_sampling": {"permutations": 25, **ENTRIES}}
    assert full["explainers"]["KS"] == {"kernel_shap": {"samples": 25, **ENTRIES}}


def test_each_network_meets_its_own_data() -> None:
    assert TABLE_E1_PART.study is not None
    study = study_from(TABLE_E1_PART.study("small"))
    assert study.repeats == 5
    pairs = study._pairs()
    assert len(pairs) == len(study.models) == 12
    assert all(model.endswith(f", {data}") for data, model in pairs)
    kinds = {"no noise": "waves", "20 dB": "waves20db", "15 dB": "waves15db", "10 dB": "waves10db"}
    for name, entry in study.models.items():
        network, noise = name.split(", ")
        assert entry.name == f"{network.lower()}-{kinds[noise]}"
    for scale, sets in (("small", 9), ("full", 11)):
        found = read_study(scale)  # type: ignore[arg-type]
        assert len(found["data"]) == sets
        networks = NETWORKS if scale == "full" else NETWORKS[:2]
        assert set(found["models"]) == {
            f"{network}, {data}" for network in networks for data in found["data"]
        }
        architectures = {
            "CNN": "series_cnn",
            "BiLSTM": "bilstm",
            "Transformer": "series_transformer",
        }
        for name, model in found["models"].items():
            network, data = name.split(", ")
            assert (model["data"], model["architecture"]) == ([data], architectures[network])
            assert model["weights"] == f"networks/{scale}/{network}-{data}.safetensors"
        for explainer in ("DS", "GS"):
            assert found["explainers"][explainer]["options"]["sets"] == [
                f"ucr:{name}:train" for name in found["data"]
            ]


# ---- explainers ----


def test_options_are_checked() -> None:
    for options, argument in (
        (("deep_shap", ()), "sets"),
        (("lime", "a"), "method"),
        (("deep_shap", "a", 0), "refer"),
    ):
        with pytest.raises(ArgumentError, match=argument):
            TrainingReferences(*options)  # type: ignore[arg-type]


def some_series(seed: int, steps: int, count: int) -> Dataset:
    """Two classes with different means."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, 1, steps, generator=generator) + 2.0 * labels[:, None, None]
    return Dataset(f"some-{seed}", inputs, labels, ("low", "high"), (-math.inf, math.inf), {})


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Dataset]:
    """Sets by name in place of those on a disk."""
    sets = {}
    for name, seed, steps in (("A", 0, 12), ("B", 2, 9)):
        sets[f"ucr:{name}:train"] = some_series(seed, steps, 33)
        sets[f"ucr:{name}:test"] = some_series(seed + 1, steps, 20)
    explainers._load_references.cache_clear()
    for module in (base, training):
        monkeypatch.setattr(module, "data", SimpleNamespace(load=sets.__getitem__))
    return sets


@pytest.mark.parametrize("method", ["deep_shap", "gradient_shap"])
def test_references_come_from_the_set_of_that_shape(
    archive: Mapping[str, Dataset], method: Any
) -> None:
    torch.manual_seed(0)
    module = SeriesCNN(2, 1, width=4, hidden=4)
    model = standfast.Model(module, bounds=(-math.inf, math.inf), device="cpu", batch_size=64)
    explainer = TrainingReferences(method, ("ucr:A:train", "ucr:B:train"), references=4)
    for name in "AB":
        x = archive[f"ucr:{name}:test"].inputs[:3]
        references = archive[f"ucr:{name}:train"].inputs[[0, 8, 16, 24]]
        kind = {
            "deep_shap": standfast.explainers.DeepSHAP,
            "gradient_shap": standfast.explainers.GradientSHAP,
        }[method]
        assert torch.equal(explainer(model, x), kind(references)(model, x))
    with pytest.raises(ArgumentError, match="series of shape"):
        explainer(model, torch.zeros(2, 1, 7))
    with pytest.raises(ArgumentError, match="different shapes"):
        TrainingReferences(method, ("ucr:A:train", "ucr:A:test"))(model, torch.zeros(2, 1, 12))


def test_positive_noise_is_the_size_of_the_random_explainers() -> None:
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(8, 2)), bounds=(0.0, 1.0), device="cpu"
    )
    x = torch.rand(5, 2, 4)
    found = PositiveNoise()(model, x)
    assert bool((found > 0).all())
    assert torch.equal(found, standfast.explainers.get("random")(model, x).abs())


def leave_out_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of such a study takes longer than all else, and is tested in `test_corruption_figures.py`."""
    monkeypatch.setattr(
        standfast.Results, "to_html", lambda self, *args, **options: Path("report.html")
    )


# ---- rows for whole data sets ----


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> standfast.Results:
    """Two networks, one of which cannot be explained by one explainer, two repeats, several jobs."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    save_file(SeriesCNN(2, 4, width=4, stride=4, hidden=4).state_dict(), folder / "cnn.safetensors")
    model = {"architecture": "series_cnn", "options": SMALL, "weights": "cnn.safetensors"}
    explainers = {
        "IG": {"integrated_gradients": {"steps": 3}},
        "DL": "deeplift",
        "KS": {"kernel_shap": {"samples": 25, **ENTRIES}},
        "SVS": "attention_rollout",  # without attention it fails in the call
        "random": "random",
        "random, positive": {
            "function": "papers.coarse_to_fine.explainers:PositiveNoise",
            "trust": True,
        },
    }
    sizes = {"samples": 7, "samples_per_job": 3, "repeats": 2, "controls": False}
    study = {
        **SERIES,
        **sizes,
        "models": {"CNN": model, "CNN, calibrated": model},
        "explainers": explainers,
    }
    with pytest.warns(
        UserWarning, match=r"12 of \d+ jobs failed:\n  SVS failed for 1 of 1 metric: "
    ):
        return standfast.run_study(study_from(study, folder), folder / "out", progress=False)


def drops_of(
    run: standfast.Results, explainer: str, repeat: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a network's samples in their order, read by hand."""
    (label,) = run.metrics
    jobs = run.jobs.filter(model="CNN", explainer=explainer, repeat=repeat, label=label).sort(
        "start"
    )
    assert len(jobs) == 3
    arrays = [run.artefacts(job) for job in jobs["job"]]
    return {name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]}


def area_by_hand(share: np.ndarray[Any, Any], drop: np.ndarray[Any, Any]) -> float:
    xs, ys = [0.0, *share.mean(0), 1.0], [0.0, *drop.mean(0), drop.mean(0)[-1]]
    return float(np.trapezoid(ys, xs))


def test_rows_are_numbers_of_the_stored_drops(run: standfast.Results) -> None:
    frame = make_rows(run)
    assert set(frame["explainer"]) == {"IG", "DL", "KS", *OTHERS}, "what failed is left out"
    assert len(frame) == 2 * 2 * 5
    top = {}
    for repeat in range(2):
        for explainer in ("IG", "DL", "KS", "random"):
            arrays = drops_of(run, explainer, repeat)
            (row,) = frame.filter(model="CNN", explainer=explainer, repeat=repeat).rows(named=True)
            top[explainer, repeat] = area_by_hand(arrays["corrupted_share"], arrays["drop_top"])
            assert row["auc_top"] == pytest.approx(top[explainer, repeat])
            end = arrays["drop_top"].mean(0)[-1] * (1 - arrays["corrupted_share"].mean(0)[-1])
            bottom = area_by_hand(arrays["corrupted_share"], arrays["drop_bottom"])
            a, b = top[explainer, repeat], 1 - bottom
            assert row["f1_paper"] == pytest.approx(a * b / (a + b))
            # both orders end in the same copy, and the framework ends both there
            a, b = (
                a - end,
                b + end,
            )
            assert row["f1_framework"] == pytest.approx(a * b / (a + b))
            skewness = scipy.stats.skew(arrays["drop_top"], axis=0)
            assert row["skewness"] == pytest.approx(skewness.mean())
            assert row["skewness 0.55"] == pytest.approx(skewness[5])
            assert row["kurtosis 0.25"] == pytest.approx(
                scipy.stats.kurtosis(arrays["drop_top"][:, 2])
            )
            assert row["drop 0.95"] == pytest.approx(arrays["drop_top"][:, 9].mean())
        values = np.array([top[name, repeat] for name in ("IG", "DL", "KS")])
        starred = (values - values.min()) / np.ptp(values)
        own = frame.filter(model="CNN", repeat=repeat)
        skewness = np.array(
            [
                scipy.stats.skew(drops_of(run, name, repeat)["drop_top"])
                for name in ("IG", "DL", "KS")
            ]
        )
        # over explainers and shares together
        skewness = (skewness - skewness.min()) / np.ptp(skewness)
        area = 1 - np.trapezoid(skewness, FRACTIONS)
        fine = dict(zip(("IG", "DL", "KS"), (area - area.min()) / np.ptp(area), strict=True))
        for name, star, rank in zip(
            ("IG", "DL", "KS"), starred, scipy.stats.rankdata(-values), strict=True
        ):
            (row,) = own.filter(explainer=name).rows(named=True)
            assert row["starred_auc_top"] == pytest.approx(star), (
                "random maps are not among the compared"
            )
            assert row["rank"] == rank
            assert row["starred_auc_skewness"] == pytest.approx(fine[name])
        assert own.filter(pl.col("explainer").is_in(OTHERS))["starred_auc_top"].is_null().all()
    assert top["IG", 0] != top["IG", 1], "repeats see other noise"


def test_what_intervals_tell_is_of_means_over_repeats(run: standfast.Results) -> None:
    frame = make_rows(run)
    curves = []
    for explainer in ("IG", "random"):
        one, other = (drops_of(run, explainer, repeat) for repeat in range(2))
        drop = (one["drop_top"] + other["drop_top"]) / 2
        curves.append(Curves(drop, None, one["corrupted_share"], one["fractions"][0]))
    expected = apply_gate(curves[0], curves[1], resamples=RESAMPLES)
    rows = frame.filter(model="CNN", explainer="IG")
    assert set(rows["gate"]) == {float(expected.passed)}
    assert set(rows["above random"]) == {float(expected.low > 0) - float(expected.high < 0)}
    back = frame.filter(model="CNN", explainer="random")
    assert set(back["above IG"]) == {-next(iter(set(rows["above random"])))}


# ---- sentences ----


def frame_of(
    values: Mapping[str, float],
    data: str = "waves",
    model: str = "CNN",
    **columns: Mapping[str, float],
) -> pl.DataFrame:
    """Rows with an AUC_top for each explainer. Differences of at least 0.05 are significant."""
    rows = []
    for name, value in values.items():
        row: dict[str, Any] = {
            "data": data,
            "model": model,
            "network": model.split(", ")[0],
            "explainer": name,
        }
        row |= {
            "repeat": 0,
            "status": "ok",
            "label": "corruption",
            "auc_top": value,
            "starred_auc_top": value,
        }
        for other, its in values.items():
            row[f"above {other}"] = float(np.sign(value - its)) if abs(value - its) >= 0.05 else 0.0
        rows.append({**row, **{column: float(own[name]) for column, own in columns.items()}})
    return pl.DataFrame(rows)


ORDER = {"IG": 0.5, "DL": 0.4, "DS": 0.8, "GS": 0.6, "KS": 0.1, "SVS": 0.9}


def outcomes_of(verdicts: Any, words: str) -> dict[str, bool | None]:
    return {
        heading: holds
        for text, where, holds in verdicts
        if words in text
        for heading in where.split("; ")
    }


def test_leaders_and_the_last() -> None:
    frame = frame_of(ORDER)
    assert [is_above_others(frame, firsts) for firsts in (("DS", "SVS"), ("SVS",), ("IG",))] == [
        True,
        True,
        False,
    ]
    assert is_above_others(frame_of({**ORDER, "DS": 0.88}), ("SVS",)) is None, "too close to tell"
    assert [is_last(frame, name) for name in ("KS", "DL")] == [True, False]
    assert is_last(frame.filter(pl.col("explainer") != "IG")) is None
    assert is_last(frame.clear()) is None


def test_orders_agree_by_kendalls_tau() -> None:
    turned = {name: -value for name, value in ORDER.items()}
    for fine, tau, holds in (
        (ORDER, 1.0, True),
        (turned, -1.0, False),
        (dict.fromkeys(SIX, 0.5), math.nan, None),
    ):
        found = compare_orders(frame_of(ORDER, starred_auc_skewness=fine))
        assert found == pytest.approx(tau, nan_ok=True)
        assert agrees(found) is holds


def e1_frame(**changed: Any) -> pl.DataFrame:
    gates = dict.fromkeys(SIX, 1.0) | {"KS": 0.0}
    parts = []
    for network in NETWORKS:
        for noise in ("no noise", "20 dB", "15 dB", "10 dB"):
            fine = {**ORDER, "SVS": ORDER["SVS"] if noise != changed.get("weak") else 0.7}
            values = {**ORDER, "KS": changed.get("last", ORDER["KS"])}
            parts.append(
                frame_of(
                    values, noise, f"{network}, {noise}", starred_auc_skewness=fine, gate=gates
                )
            )
    return pl.concat(parts)


def test_table_e1_verdicts_both_ways() -> None:
    good, bad = (TABLE_E1_PART.verdicts(frame) for frame in (e1_frame(), e1_frame(last=0.97)))
    for words in ("lead (AUC_top, CNN)", "is first", "ranks last"):
        assert set(outcomes_of(good, words).values()) == {True}, words
        assert set(outcomes_of(bad, words).values()) == {False}, words
    assert set(outcomes_of(good, "mostly agree").values()) == {True}
    for weak, expected in ((None, True), ("20 dB", None)):
        found = outcomes_of(TABLE_E1_PART.verdicts(e1_frame(weak=weak)), "most robust")
        assert found == {"CNN, BiLSTM, Transformer": expected}
    table = make_table(TABLE_E1_PART, e1_frame())
    assert table.rows["network, explainer"].to_list()[:2] == ["CNN, IG", "CNN, DL"]
    assert table.rows["starred_auc_top (paper)"].to_list()[2] == "0.95 ± 0.05"
    assert table.rows["starred_auc_top"].to_list()[2] == pytest.approx(0.8)
    assert set(table.rows["samples"]) == {4}
    paper = scipy.stats.kendalltau(
        *(list(read_means(name, "CNN").values()) for name in ("AUC_top*", "AUCSkew*"))
    )
    assert (
        f"no noise 1.00, 20 dB 1.00, 15 dB 1.00, 10 dB 1.00 (paper's means {paper.statistic:.2f})"
        in table.notes[0]
    )
    assert table.notes[3].endswith("Transformer 10 dB (KS)")
    assert "IG" not in table.notes[3]
    twice = pl.concat([e1_frame(), e1_frame().with_columns(repeat=pl.lit(1, pl.Int64))])
    assert "SVS 0.00 and 0.00" in TABLE_E1_PART.notes(twice)[4]


def test_calibration_verdicts() -> None:
    ends: dict[str, Any] = {
        "skewness_low": dict.fromkeys(SIX, 0.5),
        "skewness_high": dict.fromkeys(SIX, 0.6),
    }
    more: dict[str, Any] = {"skewness_low": {**dict.fromkeys(SIX, 0.7), "KS": 0.55, "DL": 0.1}}
    more["skewness_high"] = {**dict.fromkeys(SIX, 0.8), "KS": 0.65, "DL": 0.2}
    plain = frame_of(ORDER, **ends)

    def with_order(values: Mapping[str, float]) -> pl.DataFrame:
        return pl.concat([plain, frame_of(values, model="CNN, calibrated", **more)])

    skewed = compare_skewness(with_order(ORDER), "CNN")
    assert skewed == {
        **{f"CNN {name}": True for name in ("IG", "DS", "GS", "SVS")},
        "CNN DL": False,
        "CNN KS": None,
    }
    assert (
        keeps_order(with_order({name: value / 2 for name, value in ORDER.items()}), "CNN") is True
    )
    assert keeps_order(with_order({**ORDER, "SVS": 0.79}), "CNN") is None, (
        "turned, but too close to tell"
    )
    assert keeps_order(with_order({**ORDER, "SVS": 0.2}), "CNN") is False
    assert keeps_order(plain, "CNN") is None
    assert "CNN 1.00, BiLSTM –" in CALIBRATED_PART.notes(with_order(ORDER))[0]
    assert ("CNN", True) in [
        (where, holds) for _, where, holds in CALIBRATED_PART.verdicts(with_order(ORDER))
    ]


def test_figure_4_verdicts() -> None:
    for changed, expected in (({"DS": 1.0}, True), ({"KS": 1.0}, False)):
        found = FIGURE4_PART.verdicts(frame_of({**ORDER, **changed}, model="Transformer"))
        assert [(where, holds) for _, where, holds in found] == [("Transformer", expected)] * 2


def figure5_frame(best: str) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for place in range(6):
        values = {name: value + 0.02 * rng.normal() for name, value in {**ORDER, best: 1.0}.items()}
        stars: dict[str, Any] = dict.fromkeys(STARRED.values(), values)
        parts.append(frame_of(values, f"set {place}", "CNN", **stars))
    return pl.concat(parts)


def test_figure_5_pairs_data_sets() -> None:
    good, bad = (FIGURE5_PART.verdicts(figure5_frame(best)) for best in ("DS", "GS"))
    assert outcomes_of(good, "DS is the best over data sets, CNN") == {", ".join(STARRED): True}
    assert outcomes_of(bad, "DS is the best over data sets, CNN") == {", ".join(STARRED): False}
    assert set(outcomes_of(good, "ranks last").values()) == {True}
    assert outcomes_of(good, "mostly agree") == {"CNN 1.00": True}
    assert list(FIGURE5_PART.verdicts(figure5_frame("DS").clear())) == []
    table = make_table(FIGURE5_PART, figure5_frame("DS"))
    row = table.rows.row(2, named=True)
    values = figure5_frame("DS").filter(pl.col("explainer") == "DS")["auc_top"].to_numpy()
    assert row["network, explainer"] == "CNN, DS"
    assert row["auc_top median"] == pytest.approx(np.median(values))
    assert (row["auc_top median_low"], row["auc_top median_high"]) == pytest.approx(
        np.quantile(values, [0.25, 0.75])
    )


# ---- what is new in the frame of reproductions ----


def test_spreads_are_deviations_and_quartiles(capsys: pytest.CaptureFixture[str]) -> None:
    values = np.array([0.1, 0.4, 0.4, 0.9, 0.2])
    frame = pl.DataFrame(
        {"explainer": ["a"] * 5, "status": ["ok"] * 5, "v": values, "bound": [False] * 5}
    )
    median = Column("median", "v", spread="quartiles", statistic="median", decimals=2)
    part = Part("p", "t", None, (Column("mean", "v", spread="deviation", decimals=2), median))
    table = make_table(part, frame)
    (row,) = table.rows.iter_rows(named=True)
    assert row["v"] == pytest.approx(values.mean())
    assert row["v_high"] - row["v"] == pytest.approx(values.std(ddof=1))
    assert (row["v median_low"], row["v median_high"]) == pytest.approx(
        np.quantile(values, [0.25, 0.75])
    )
    print_table(table, "small")
    printed = capsys.readouterr().out
    assert f"{values.mean():.2f} ± {values.std(ddof=1):.2f}" in printed
    assert "0.40 [0.20, 0.40]" in printed
    (alone,) = make_table(part, frame.head(1)).rows.iter_rows(named=True)
    assert alone["v_high"] == alone["v"] == 0.1


def test_what_a_study_names_is_made_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Path]] = []

    def make_files(scale: Scale, folder: Path, progress: bool) -> list[str]:
        calls.append((scale, folder))
        (folder / "made").mkdir(parents=True, exist_ok=True)
        save_file(
            SeriesCNN(2, 4, width=4, stride=4, hidden=4).state_dict(),
            folder / "made/cnn.safetensors",
        )
        return ["made a network"]

    model = {"architecture": "series_cnn", "options": SMALL, "weights": "made/cnn.safetensors"}
    study = {**SERIES, "samples": 3, "models": {"CNN": model}, "explainers": ["deeplift", "random"]}
    part = Part(
        "tiny", "t", lambda scale: study, (Column("AUC", "area_top"),), make_files=make_files
    )
    monkeypatch.setitem(reproductions._entries, "tiny", Reproduction("t", (part,)))
    leave_out_pages(monkeypatch)
    (table,) = base.reproduce("tiny", "small", tmp_path / "out", progress=False)
    assert table.failures == 0
    assert table.notes == ["made a network"]
    assert calls == [("small", tmp_path / "out")]
    (file,) = base.write_studies("tiny", "small", tmp_path / "bare", make=False)
    assert len(calls) == 1
    (file,) = base.write_studies("tiny", "small", tmp_path / "studies")
    assert standfast.run_study(file, tmp_path / "again", progress=False).failures == []


# ---- training ----


def test_networks_are_trained_once(
    archive: Mapping[str, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"width": 8, "hidden": 8, "dropout": 0.0, "num_classes": 2, "in_channels": 1}
    recipe = {
        "data": "ucr:A",
        "architecture": "series_cnn",
        "options": options,
        "steps": 60,
        "learning_rate": 0.01,
    }
    first, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    card = train_or_load(recipe, first)
    assert card["test_accuracy"] > 0.8
    assert card["epochs"] == 60, "one step is an epoch of 33 series"
    assert train_or_load(recipe, again)["weights_sha256"] == card["weights_sha256"], (
        "the same recipe, the same weights"
    )
    kept = first.read_bytes()

    with monkeypatch.context() as patched:
        patched.delattr(training, "train_classifier")
        assert train_or_load(recipe, first) == card
        with pytest.raises(NameError, match="train_classifier"):
            train_or_load({**recipe, "steps": 90}, first)
        first.write_bytes(kept[:-1])
        with pytest.raises(NameError, match="train_classifier"):
            train_or_load(recipe, first)
    train_or_load(recipe, first)
    assert first.read_bytes() == kept
    assert json.loads(first.with_suffix(".json").read_text()) == card


def test_public_sets_end_to_end(
    archive: Mapping[str, Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two small sets: trained, explained with references of their own, and read over both."""
    study = {**read_study("small"), "repeats": 2}
    model = {
        "architecture": "series_cnn",
        "options": {**SMALL, "in_channels": 1, "stride": 1},
        "batch_size": 64,
    }
    study |= {
        "data": {
            n: {
                "function": "papers.base:load_evenly",
                "trust": True,
                "options": {"name": f"ucr:{n}:test", "count": 3},
            }
            for n in "AB"
        },
        "models": {
            f"CNN, {n}": {**model, "data": [n], "weights": f"networks/CNN-{n}.safetensors"}
            for n in "AB"
        },
    }
    for name in ("DS", "GS"):
        study["explainers"][name]["options"]["sets"] = ["ucr:A:train", "ucr:B:train"]
    part = replace(FIGURE5_PART, study=lambda scale: study)
    monkeypatch.setattr(tables, "FIGURE5_PART", part)
    monkeypatch.setitem(tables._SMALL_TRAINING, "steps", 20)
    monkeypatch.setitem(reproductions._entries, "coarse-figure5", Reproduction("t", (part,)))
    leave_out_pages(monkeypatch)
    (table,) = base.reproduce("coarse-figure5", "small", tmp_path, progress=False)
    assert table.failures == 0
    assert table.rows["network, explainer"].to_list() == [
        f"CNN, {name}" for name in (*SIX, *OTHERS)
    ]
    assert set(table.rows["samples"]) == {2}, "two sets, repeats averaged"
    assert table.notes[-1].startswith("test accuracy, CNN: A ")
    assert train_networks("small", tmp_path, True) == table.notes[-1:]
    assert "network 2 of 2" in capsys.readouterr().err


@pytest.mark.skipif(not (data_root() / "ucr").is_dir(), reason="needs the sets of the UCR archive")
@pytest.mark.parametrize("name", read_study("full")["data"])
def test_sizes_of_the_public_sets(name: str) -> None:
    found = base.load_evenly(f"ucr:{name}:test", 12)
    assert len(found.inputs) == 12
    options = read_study("full")["models"][f"CNN, {name}"]["options"]
    assert options == {"in_channels": found.inputs.shape[1], "num_classes": len(found.classes)}
