"""Coarse-to-fine reproductions: the paper's numbers in place, rows of data sets, verdicts both ways, tiny real runs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
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
from papers.base import (
    Column,
    Part,
    Reproduction,
    Scale,
    make_table,
    read_table,
    reproductions,
    spread_evenly,
)
from papers.coarse_to_fine import archives as coarse_archives
from papers.coarse_to_fine import explainers as coarse_explainers
from papers.coarse_to_fine import parts as coarse_parts
from papers.coarse_to_fine import synthetic as coarse
from papers.coarse_to_fine import training as coarse_training
from papers.coarse_to_fine.archives import FIGURE5_PART, SETS, train_networks
from papers.coarse_to_fine.explainers import PositiveNoise, TrainingReferences
from papers.coarse_to_fine.paper import NETWORKS, SIX, STARRED, read_cells, read_means
from papers.coarse_to_fine.synthetic import (
    CALIBRATED_PART,
    FIGURE4_PART,
    TABLE_E1_PART,
    compare_skewness,
    keeps_order,
)
from papers.coarse_to_fine.training import Recipe, train_or_load
from papers.printing import print_table
from standfast.data.dataset import Dataset
from standfast.data.root import data_root
from standfast.errors import ArgumentError
from standfast.metrics.coarse_to_fine.gate import apply_gate
from standfast.metrics.coarse_to_fine.summary import Curves
from standfast.study.file.spec import study_from
from standfast.zoo.networks.series_cnn import SeriesCNN

PARTS = (FIGURE4_PART, FIGURE5_PART, TABLE_E1_PART, CALIBRATED_PART)
OTHERS = ("random", "random, positive")


# ---- the paper's numbers ----


def test_typed_numbers_are_the_papers() -> None:
    """A few, typed again; and what all of them must meet."""
    assert read_cells("starred_auc_top")["Transformer, DS"] == "0.84 ± 0.25"
    assert read_cells("starred_auc_kurtosis")["CNN, KS"] == "0.97 ± 0.07"
    assert read_cells("starred_auc_skewness")["BiLSTM, GS"] == "0.47 ± 0.04"
    assert read_cells("starred_f1")["CNN, DL"] == "0.61 ± 0.09"
    for column in STARRED:
        assert len(read_cells(column)) == 18
        for network in NETWORKS:
            found = read_means(column, network)
            assert tuple(found) == SIX
            assert all(0 <= value <= 1 for value in found.values())
    for network in NETWORKS:
        coarse_, fine = read_means("starred_auc_top", network), read_means("starred_auc_kurtosis", network)
        assert min(coarse_, key=lambda name: coarse_[name]) == "KS"
        assert fine["KS"] > 0.5, "the known weakness"


# ---- studies ----


def test_all_names_are_registered() -> None:
    names = {f"coarse-{name}" for name in ("figure4", "figure5", "tableE1", "calibrated")}
    assert {name for name in reproductions.names() if name.startswith("coarse")} == names


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_studies_are_valid_and_full_ones_have_the_papers_settings(part: Part) -> None:
    assert part.study is not None
    for scale in base.SCALES:
        study = part.study(scale)
        found = study_from(study)
        assert (*SIX, *OTHERS) == tuple(found.explainers)[:8]
        (metric,) = found.metrics.values()
        assert (metric.value.samples, len(metric.value.fractions)) == (1, 11)
        assert part.departures(scale)
    full = part.study("full")
    assert full["repeats"] == 5
    assert "samples" not in full
    entries = {"segments": "pixels", "per_channel": True}
    assert full["explainers"]["SVS"] == {"shapley_sampling": {"permutations": 25, **entries}}
    assert full["explainers"]["KS"] == {"kernel_shap": {"samples": 25, **entries}}
    small = part.study("small")["explainers"]["SVS"]["shapley_sampling"]
    assert small["permutations"] * small["segments"] <= 400
    assert small["per_channel"] is True


def test_each_network_meets_its_own_data() -> None:
    study = study_from(coarse._study_e1("small"))
    assert study.repeats == 5
    pairs = study._pairs()
    assert len(pairs) == len(study.models) == 12
    assert all(model.endswith(f", {data}") for data, model in pairs)
    names = {model: entry.plain["name"] for model, entry in study.models.items()}
    assert names["CNN, no noise"] == "cnn-waves"
    assert names["Transformer, 15 dB"] == "transformer-waves15db"
    archives = study_from(coarse_archives._study("small"))
    assert len(archives.data) >= 8
    assert {f"{network}, {data}" for network in ("CNN", "BiLSTM") for data in archives.data} == set(archives.models)
    assert archives.models["CNN, PenDigits"].plain["options"]["num_classes"] == 10


# ---- explainers ----


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: TrainingReferences("deep_shap", ()), "sets"),
        (lambda: TrainingReferences("lime", ("a",)), "method"),  # type: ignore[arg-type]
        (lambda: TrainingReferences("deep_shap", ("a",), references=0), "references"),
    ],
)
def test_options_are_checked(make: Any, argument: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument


def some_series(seed: int, channels: int, steps: int, count: int = 40) -> Dataset:
    """Two classes with different means."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, channels, steps, generator=generator) + 2.0 * labels[:, None, None]
    return Dataset(f"some-{seed}", inputs, labels, ("low", "high"), (-math.inf, math.inf), {})


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Dataset]:
    """Sets by name in place of those on a disk."""
    sets = {f"ucr:{name}:{split}": some_series(seed, 1, steps, count)
            for name, seed, steps in (("A", 0, 12), ("B", 2, 9))
            for split, seed, count in (("train", seed, 33), ("test", seed + 1, 20))}  # fmt: skip

    class Loader:
        @staticmethod
        def load(name: str, *, download: bool = False) -> Dataset:
            return sets[name]

    coarse_explainers._load_references.cache_clear()
    for module in (base, coarse_training):
        monkeypatch.setattr(module, "data", Loader)
    return sets


@pytest.mark.parametrize("method", ["deep_shap", "gradient_shap"])
def test_references_come_from_the_set_of_that_shape(archive: Mapping[str, Dataset], method: Any) -> None:
    torch.manual_seed(0)
    module = SeriesCNN(2, 1, width=4, hidden=4)
    model = standfast.Model(module, bounds=(-math.inf, math.inf), device="cpu", batch_size=64)
    explainer = TrainingReferences(method, ("ucr:A:train", "ucr:B:train"), references=4, samples=6, seed=3)
    for name in "AB":
        x = archive[f"ucr:{name}:test"].inputs[:3]
        references = archive[f"ucr:{name}:train"].inputs[[0, 8, 16, 24]]
        plain = {"deep_shap": standfast.explainers.DeepSHAP(references)}.get(
            method, standfast.explainers.GradientSHAP(references, samples=6, seed=3)
        )
        assert torch.equal(explainer(model, x), plain(model, x))
    with pytest.raises(ArgumentError, match="series of shape"):
        explainer(model, torch.zeros(2, 1, 7))
    with pytest.raises(ArgumentError, match="different shapes"):
        TrainingReferences(method, ("ucr:A:train", "ucr:A:test"))(model, torch.zeros(2, 1, 12))


def test_positive_noise_is_the_size_of_the_random_explainers() -> None:
    model = standfast.Model(nn.Sequential(nn.Flatten(), nn.Linear(8, 2)), bounds=(0.0, 1.0), device="cpu")
    x = torch.rand(5, 2, 4)
    found = PositiveNoise()(model, x)
    assert bool((found > 0).all())
    assert torch.equal(found, standfast.explainers.get("random")(model, x).abs())


def test_places_are_spread_evenly() -> None:
    assert spread_evenly(7, 7) == list(range(7)) == spread_evenly(7, 100)
    assert np.ptp(np.diff(spread_evenly(1000, 37))) <= 1


# ---- rows for whole data sets ----


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> standfast.evaluation.Evaluation:
    """Two networks, one of which cannot be explained by one explainer, two repeats, several jobs."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    save_file(SeriesCNN(2, 4, width=4, stride=4, hidden=4).state_dict(), folder / "cnn.safetensors")
    options = {"width": 4, "stride": 4, "hidden": 4, "num_classes": 2, "in_channels": 4}
    model = {"architecture": "series_cnn", "options": options, "weights": "cnn.safetensors"}
    explainers: dict[str, Any] = {
        "IG": {"integrated_gradients": {"steps": 3}},
        "DL": "deeplift",
        "KS": coarse_parts.make_explainers("small", 20, 2)["KS"],
        "SVS": {"deep_shap": {"background": [0.0, 0.0]}},  # two channels of four: fails in the call
        "random": "random",
        "random, positive": coarse_parts.make_explainers("small", 20, 2)["random, positive"],
    }
    study = coarse_parts.make_study(
        "tiny",
        7,
        2,
        data={"waves": "waves:test"},
        models={"CNN": model, "CNN, calibrated": model},
        explainers=explainers,
        samples_per_job=3,
    )
    with pytest.warns(UserWarning, match=r"12 of \d+ jobs failed:\n  SVS failed for 1 of 1 metric: "):
        return standfast.run_study(study_from(study, folder), folder / "out", progress=False)


def drops_of(run: standfast.evaluation.Evaluation, explainer: str, repeat: int) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a network's samples in their order, read by hand."""
    jobs = run.results.jobs.filter(
        pl.col("model") == "CNN", pl.col("explainer") == explainer, pl.col("repeat") == repeat
    ).sort("start")
    assert len(jobs) == 3
    arrays = [run.results.artefacts(job) for job in jobs["job"]]
    return {name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]}


def area_by_hand(share: np.ndarray[Any, Any], drop: np.ndarray[Any, Any]) -> float:
    xs, ys = [0.0, *share.mean(0), 1.0], [0.0, *drop.mean(0), drop.mean(0)[-1]]
    return float(np.trapezoid(ys, xs))


def test_rows_are_numbers_of_the_stored_drops(run: standfast.evaluation.Evaluation) -> None:
    frame = coarse_parts.make_rows(run.results)
    assert set(frame["explainer"]) == {"IG", "DL", "KS", *OTHERS}, "what failed is left out"
    assert len(frame) == 2 * 2 * 5
    top = {}
    for repeat in range(2):
        for explainer in ("IG", "DL", "KS", "random"):
            arrays = drops_of(run, explainer, repeat)
            (row,) = frame.filter(
                pl.col("model") == "CNN", pl.col("explainer") == explainer, pl.col("repeat") == repeat
            ).iter_rows(named=True)
            top[explainer, repeat] = area_by_hand(arrays["corrupted_share"], arrays["drop_top"])
            assert row["auc_top"] == pytest.approx(top[explainer, repeat])
            assert row["auc_bottom"] == pytest.approx(area_by_hand(arrays["corrupted_share"], arrays["drop_bottom"]))
            skewness = scipy.stats.skew(arrays["drop_top"], axis=0)
            assert row["skewness"] == pytest.approx(skewness.mean())
            assert row["skewness 0.55"] == pytest.approx(skewness[5])
            assert row["kurtosis 0.25"] == pytest.approx(scipy.stats.kurtosis(arrays["drop_top"][:, 2]))
            assert row["drop 0.95"] == pytest.approx(arrays["drop_top"][:, 9].mean())
            assert row["evaluated"] == 7
        values = np.array([top[name, repeat] for name in ("IG", "DL", "KS")])
        starred = (values - values.min()) / np.ptp(values)
        own = frame.filter(pl.col("model") == "CNN", pl.col("repeat") == repeat)
        for name, star, rank in zip(("IG", "DL", "KS"), starred, scipy.stats.rankdata(-values), strict=True):
            (row,) = own.filter(pl.col("explainer") == name).iter_rows(named=True)
            assert row["starred_auc_top"] == pytest.approx(star), "random maps are not among the compared"
            assert row["rank"] == rank
        assert own.filter(pl.col("explainer").is_in(OTHERS))["starred_auc_top"].is_null().all()
    assert top["IG", 0] != top["IG", 1], "repeats see other noise"


def test_what_intervals_tell_is_of_means_over_repeats(run: standfast.evaluation.Evaluation) -> None:
    frame = coarse_parts.make_rows(run.results)
    each = [drops_of(run, "IG", repeat) for repeat in range(2)]
    other = [drops_of(run, "random", repeat) for repeat in range(2)]
    curves = [
        Curves(
            np.mean([part["drop_top"] for part in parts], axis=0),
            None,
            parts[0]["corrupted_share"],
            parts[0]["fractions"][0],
        )
        for parts in (each, other)
    ]
    expected = apply_gate(curves[0], curves[1], resamples=coarse_parts.RESAMPLES)
    rows = frame.filter(pl.col("model") == "CNN", pl.col("explainer") == "IG")
    assert set(rows["gate"]) == {float(expected.passed)}
    assert set(rows["above random"]) == {float(expected.low > 0) - float(expected.high < 0)}
    back = frame.filter(pl.col("model") == "CNN", pl.col("explainer") == "random")
    assert set(back["above IG"]) == {-next(iter(set(rows["above random"])))}


def test_the_tables_print(
    run: standfast.evaluation.Evaluation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    for part in (FIGURE4_PART, TABLE_E1_PART, CALIBRATED_PART):
        table = read_table(part, run.results)
        print_table(table, "small")
        assert table.failures == 2 * 2 * 3
    printed = capsys.readouterr().out
    for words in ("± ", "0.73 ±", "Kendall's tau", "not demonstrably above", "Not as in the paper"):
        assert words in printed


# ---- sentences ----


def frame_of(
    values: Mapping[str, float],
    data: str = "waves",
    model: str = "CNN",
    repeats: int = 2,
    **columns: Mapping[str, float],
) -> pl.DataFrame:
    """Rows with an AUC_top for each explainer. Differences of at least 0.05 are significant."""
    rows = []
    for repeat in range(repeats):
        for name, value in values.items():
            row: dict[str, Any] = {"data": data, "model": model, "network": model.split(", ")[0], "explainer": name}
            row |= {"repeat": repeat, "status": "ok", "label": "corruption", "auc_top": value, "starred_auc_top": value}
            for other, its in values.items():
                if other != name:
                    row[f"above {other}"] = float(np.sign(value - its)) if abs(value - its) >= 0.05 else 0.0
            rows.append({**row, **{column: float(own[name]) for column, own in columns.items()}})
    return pl.DataFrame(rows)


ORDER = {"IG": 0.5, "DL": 0.4, "DS": 0.8, "GS": 0.6, "KS": 0.1, "SVS": 0.9}


def outcomes_of(verdicts: Any, words: str) -> dict[str, bool | None]:
    return {heading: holds for text, where, holds in verdicts if words in text for heading in where.split("; ")}


def test_leaders_and_the_last() -> None:
    frame = frame_of(ORDER)
    assert coarse_parts.leads(frame, ("DS", "SVS")) is True
    assert coarse_parts.leads(frame, ("SVS",)) is True
    assert coarse_parts.leads(frame, ("IG",)) is False
    assert coarse_parts.leads(frame_of({**ORDER, "DS": 0.88}), ("SVS",)) is None, "too close to tell"
    assert coarse_parts.is_last(frame, "KS") is True
    assert coarse_parts.is_last(frame, "DL") is False
    assert coarse_parts.is_last(frame.filter(pl.col("explainer") != "IG"), "KS") is None
    assert coarse_parts.is_last(frame.clear(), "KS") is None


def test_orders_agree_by_kendalls_tau() -> None:
    turned = {name: -value for name, value in ORDER.items()}
    for fine, expected in ((ORDER, True), (turned, False)):
        frame = frame_of(ORDER, starred_auc_skewness=fine)
        value, holds = coarse_parts.orders_agree(frame)
        assert value == pytest.approx(1.0 if expected else -1.0)
        assert holds is expected
    assert coarse_parts.format_order(frame_of(ORDER)).startswith("SVS 0.90, DS 0.80, GS")


def e1_frame(**changed: float) -> pl.DataFrame:
    parts = []
    kurtosis = {**dict.fromkeys(SIX, 0.1), "KS": changed.get("kurtosis", 0.9)}
    gates = {**dict.fromkeys(SIX, 1.0), "KS": changed.get("gate", 0.0)}
    for network in NETWORKS:
        for noise in ("no noise", "20 dB", "15 dB", "10 dB"):
            fine = {**ORDER, "SVS": ORDER["SVS"] if noise != changed.get("weak") else 0.7}
            values = {**ORDER, "KS": changed.get("last", ORDER["KS"])}
            parts.append(
                frame_of(
                    values,
                    noise,
                    f"{network}, {noise}",
                    starred_auc_skewness=fine,
                    starred_auc_kurtosis=kurtosis,
                    gate=gates,
                    gate_positive=gates,
                )
            )
    return pl.concat(parts)


def test_table_e1_verdicts_both_ways() -> None:
    good, bad = coarse._verdicts_e1(e1_frame()), coarse._verdicts_e1(e1_frame(kurtosis=0.2, gate=1.0, last=0.97))
    for words in (
        "lead (AUC_top, CNN)",
        "is first",
        "ranks last",
        "high AUCKurt*",
        "fails the gate",
        "not above random",
    ):
        assert set(outcomes_of(good, words).values()) == {True}, words
        assert set(outcomes_of(bad, words).values()) == {False}, words
    assert set(outcomes_of(good, "mostly agree").values()) == {True}
    assert outcomes_of(good, "most robust") == {"CNN, BiLSTM, Transformer": True}
    weak = coarse._verdicts_e1(e1_frame(weak="20 dB"))  # type: ignore[arg-type]
    assert outcomes_of(weak, "most robust") == {"CNN, BiLSTM, Transformer": None}
    table = make_table(TABLE_E1_PART, e1_frame())
    assert table.rows["network, explainer"].to_list()[:2] == ["CNN, IG", "CNN, DL"]
    assert table.rows["starred_auc_top (paper)"].to_list()[2] == "0.95 ± 0.05"
    assert table.rows["starred_auc_top"].to_list()[2] == pytest.approx(0.8)
    assert set(table.rows["samples"]) == {8}


def test_calibration_verdicts() -> None:
    ends: dict[str, Any] = {"skewness_low": dict.fromkeys(SIX, 0.5), "skewness_high": dict.fromkeys(SIX, 0.6)}
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
    assert keeps_order(with_order({name: value / 2 for name, value in ORDER.items()}), "CNN") is True
    assert keeps_order(with_order({**ORDER, "SVS": 0.79}), "CNN") is None, "turned, but too close to tell"
    assert keeps_order(with_order({**ORDER, "SVS": 0.2}), "CNN") is False
    assert keeps_order(plain, "CNN") is None


def test_a_gate_that_is_not_known_stops_nobody() -> None:
    frame = pl.DataFrame({"explainer": ["KS", "KS", "IG"], "gate": [0.0, 0.0, 1.0], "gate_positive": [None, None, 0.0]})
    assert [coarse.fails_gate(frame, name) for name in ("gate", "gate_positive", "other")] == [True, None, None]
    assert coarse.fails_gate(frame.with_columns(gate=1.0), "gate") is False
    assert coarse.fails_gate(frame[2:], "gate") is None


def test_figure_4_verdicts() -> None:
    skewness = {**dict.fromkeys(SIX, 0.5), "DS": -1.0, "DL": -0.5, "SVS": -0.7}
    fine = {**ORDER, "DS": 1.0}
    columns: dict[str, Any] = {"skewness": skewness, "starred_auc_skewness": fine, "starred_auc_kurtosis": fine}
    good = coarse._verdicts_4(frame_of({**ORDER, "DS": 1.0}, model="Transformer", **columns))
    assert all(holds for _, _, holds in good)
    columns = {"skewness": {**skewness, "DL": 0.9}, "starred_auc_skewness": {**fine, "KS": 1.2, "DS": 0.0}}
    bad = coarse._verdicts_4(frame_of({**ORDER, "KS": 1.0}, model="Transformer", **columns, starred_auc_kurtosis=ORDER))
    assert [holds for _, _, holds in bad] == [False] * len(bad)


def figure5_frame(best: str, sets: int = 6) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for place in range(sets):
        values = {name: value + 0.02 * rng.normal() for name, value in {**ORDER, best: 1.0}.items()}
        stars: dict[str, Any] = dict.fromkeys(STARRED, values)
        frame = frame_of(values, f"set {place}", "CNN", repeats=1, rank=dict.fromkeys(SIX, 1.0), **stars)
        parts.append(frame)
    return pl.concat(parts)


def test_figure_5_pairs_data_sets() -> None:
    good, bad = (coarse_archives._verdicts(figure5_frame(best)) for best in ("DS", "GS"))
    assert outcomes_of(good, "DS is the best over data sets, CNN") == {", ".join(STARRED.values()): True}
    assert outcomes_of(bad, "DS is the best over data sets, CNN") == {", ".join(STARRED.values()): False}
    assert set(outcomes_of(good, "ranks last").values()) == {True}
    table = make_table(FIGURE5_PART, figure5_frame("DS"))
    row = table.rows.row(2, named=True)
    values = figure5_frame("DS").filter(pl.col("explainer") == "DS")["auc_top"].to_numpy()
    assert row["network, explainer"] == "CNN, DS"
    assert row["auc_top median"] == pytest.approx(np.median(values))
    assert (row["auc_top median_low"], row["auc_top median_high"]) == pytest.approx(np.quantile(values, [0.25, 0.75]))


# ---- what is new in the frame of reproductions ----


def test_spreads_are_deviations_and_quartiles(capsys: pytest.CaptureFixture[str]) -> None:
    values = np.array([0.1, 0.4, 0.4, 0.9, 0.2])
    frame = pl.DataFrame({"explainer": ["a"] * 5, "status": ["ok"] * 5, "v": values, "bound": [False] * 5})
    columns = (
        Column("mean", "v", judged=False, spread="deviation", decimals=2),
        Column("median", "v", judged=False, spread="quartiles", statistic="median", decimals=2),
    )
    part = Part("p", "t", None, columns)
    table = make_table(part, frame)
    (row,) = table.rows.iter_rows(named=True)
    assert row["v"] == pytest.approx(values.mean())
    assert row["v_high"] - row["v"] == pytest.approx(values.std(ddof=1))
    assert (row["v median_low"], row["v median_high"]) == pytest.approx(np.quantile(values, [0.25, 0.75]))
    print_table(table, "small")
    printed = capsys.readouterr().out
    assert f"{values.mean():.2f} ± {values.std(ddof=1):.2f}" in printed
    assert "0.40 [0.20, 0.40]" in printed
    (alone,) = make_table(part, frame.head(1)).rows.iter_rows(named=True)
    assert alone["v_high"] == alone["v"] == 0.1


def test_what_a_study_names_is_made_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"width": 4, "stride": 4, "hidden": 4, "num_classes": 2, "in_channels": 4}
    model = {"architecture": "series_cnn", "options": options, "weights": "made/cnn.safetensors"}
    calls: list[tuple[str, Path]] = []

    def make_files(scale: Scale, folder: Path, progress: bool) -> list[str]:
        calls.append((scale, folder))
        (folder / "made").mkdir(parents=True, exist_ok=True)
        save_file(SeriesCNN(2, 4, width=4, stride=4, hidden=4).state_dict(), folder / "made/cnn.safetensors")
        return ["made a network"]

    def study(scale: Scale) -> dict[str, Any]:
        explainers = {"DL": "deeplift", "random": "random"}
        return coarse_parts.make_study(
            "t", 3, 1, data={"waves": "waves:test"}, models={"CNN": model}, explainers=explainers
        )

    part = Part("tiny", "t", study, (Column("AUC", "area_top", judged=False),), make_files=make_files)
    monkeypatch.setitem(reproductions._entries, "tiny", Reproduction("t", (part,)))
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
    archive: Mapping[str, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"width": 8, "layers": 1, "hidden": 8, "dropout": 0.0}
    recipe = Recipe("ucr:A", "series_cnn", options, steps=30, learning_rate=0.02)
    first, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    card = train_or_load(recipe, first, progress=True)
    assert card["test_accuracy"] > 0.8
    assert card["epochs"] == 30, "one step is an epoch of 33 series"
    assert "test accuracy" in capsys.readouterr().err
    assert train_or_load(recipe, again)["weights_sha256"] == card["weights_sha256"], "the same recipe, the same weights"
    kept = first.read_bytes()

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("trained again")

    with monkeypatch.context() as patched:
        patched.setattr(coarse_training, "train_classifier", never)
        assert train_or_load(recipe, first) == card
        with pytest.raises(AssertionError, match="trained again"):
            train_or_load(dataclasses.replace(recipe, seed=1), first)
        first.write_bytes(kept[:-1])
        with pytest.raises(AssertionError, match="trained again"):
            train_or_load(recipe, first)
        first.with_suffix(".json").write_text("{")
        with pytest.raises(AssertionError, match="trained again"):
            train_or_load(recipe, first)
    train_or_load(recipe, first)
    assert first.read_bytes() == kept
    assert json.loads(first.with_suffix(".json").read_text()) == card


def test_public_sets_end_to_end(
    archive: Mapping[str, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two small sets: trained, explained with references of their own, and read over both."""
    monkeypatch.setattr(coarse_archives, "SETS", {"A": (1, 2), "B": (1, 2)})
    monkeypatch.setattr(coarse_archives, "_STEPS", 20)
    monkeypatch.setattr(coarse_archives, "_COUNT", 5)
    monkeypatch.setattr(coarse_archives, "_SMALL", {"CNN": {"width": 4, "layers": 1, "hidden": 4}})
    # the page of such a study takes longer than all else, and is tested in test_corruption_figures.py
    monkeypatch.setattr(standfast.evaluation.Evaluation, "to_html", lambda self, *args, **options: Path("report.html"))
    (table,) = base.reproduce("coarse-figure5", "small", tmp_path, progress=False)
    assert table.failures == 0
    assert table.rows["network, explainer"].to_list() == [f"CNN, {name}" for name in (*SIX, *OTHERS)]
    assert set(table.rows["samples"]) == {2}, "two sets, repeats averaged"
    assert any(note.startswith("test accuracy, CNN: A ") for note in table.notes)
    print_table(table, "small")
    assert "mean rank" in capsys.readouterr().out
    assert train_networks("small", tmp_path, True) == [note for note in table.notes if note.startswith("test accuracy")]
    assert "network 2 of 2" in capsys.readouterr().err


@pytest.mark.skipif(not (data_root() / "ucr").is_dir(), reason="needs the sets of the UCR archive")
@pytest.mark.parametrize("name", SETS)
def test_sizes_of_the_public_sets(name: str) -> None:
    found = base.load_evenly(f"ucr:{name}:test", 12)
    assert len(found.inputs) == 12
    assert (found.inputs.shape[1], len(found.classes)) == SETS[name]
