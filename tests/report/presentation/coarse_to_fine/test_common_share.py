"""Corruption curves of several explainers: values are compared up to the share of positions that all replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from report_builder import Builder, base
from torch import Tensor, nn

import standfast
from standfast.metrics import CorruptionCurve
from standfast.report import Results, exports
from standfast.statistics.curves import compute_area
from standfast.statistics.ranking import compare_controls

Array = np.ndarray[Any, Any]
FRACTIONS = np.array([0.25, 0.5, 1.0])
COMPARED = "Explainers are compared up to the share of positions that all of them replace in a sample (median "
FALLBACK = "Whole areas are compared, because the drops of some samples are missing or damaged."


def store(
    builder: Builder,
    name: str,
    last: Array,
    slope: Array,
    *,
    status: list[str] | None = None,
    arrays: bool = True,
    order: tuple[str, ...] = ("top", "bottom"),
    **where: Any,
) -> None:
    """Curves `slope * share`, whose last shares are `last`: quality is the slope, length the number of positions."""
    share = last[:, None] * FRACTIONS
    drop = slope[:, None] * share
    ok = np.array([each == "ok" for each in status or ["ok"] * len(last)])
    value = np.where(ok, compute_area(share, drop), np.nan)
    frame = {**base(status or ["ok"] * len(last), where.get("start", 0)), "value": value.tolist()}
    tensors = {"corrupted_share": torch.tensor(share)}
    tensors |= {f"drop_{each}": torch.tensor(np.where(ok[:, None], drop, np.nan)) for each in order}
    tensors["fractions"] = torch.tensor(FRACTIONS).expand(len(last), -1).contiguous()
    options = CorruptionCurve(fractions=tuple(FRACTIONS), order=order).options()  # type: ignore[arg-type]
    builder.job(
        name, "corruption_curve", "curve", options, frame, tensors if arrays else None, **where
    )


def opened(builder: Builder) -> Results:
    return builder.results()


@pytest.fixture(scope="module")
def run(digits: standfast.data.Dataset, lenet: standfast.Model) -> standfast.Results:
    """Integrated gradients, and random maps with few positive positions, beside random maps with many."""

    def few(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        maps = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(5)).to(inputs)
        return maps - maps.flatten(1).quantile(0.9, dim=1)[:, None, None, None]

    explainers: dict[str, Any] = {"ig": "integrated_gradients:steps=8", "few": few}
    metric = CorruptionCurve(samples=1)
    quiet: dict[str, Any] = {"sanity": False, "progress": False}
    # the maps of `few` depend on how many inputs come at once
    return standfast.evaluate(
        lenet, explainers, digits[:16], [metric], controls="random", samples_per_job=4, **quiet
    )


def test_fewer_positive_positions_alone_are_not_worse_than_random_maps(
    run: standfast.Results,
) -> None:
    label = "corruption_curve"
    metric = run.metrics[label]
    stored = CorruptionCurve.value_spec(metric.options)
    ((_, whole),) = compare_controls(run.samples, {label: stored}, ["random"]).items()
    assert {test.explainer: test.verdict for test in whole} == {"ig": "worse", "few": "worse"}
    table = run.table().rows_by_key("explainer", named=True, unique=True)
    assert table["ig"]["against_controls"] == "beats"
    assert table["few"]["against_controls"] == "undecided"
    assert run.best()[label].explainers == ("ig",)
    assert f"{label}: Better than every control: ig." in " ".join(run.to_text(verbose=True).split())


def test_exports_with_verdicts_and_plots_have_the_same_values(run: standfast.Results) -> None:
    table = run.table().select("explainer", "value", "low", "high").rows()
    assert exports.summary(run).select("explainer", "value", "low", "high").rows() == table
    assert exports.summary(run)["column"].unique().to_list() == ["common_drop"]
    frame = run.frame("corruption_curve")
    medians = dict(frame.group_by("explainer").agg(pl.col("common_drop").median()).iter_rows())
    assert {name: value for name, value, *_ in table} == pytest.approx(medians)
    assert frame["value"].to_list() == frame["area_top"].to_list()  # as stored


def slow_mean_drop(last: float, slope: float, end: float) -> float:
    """The mean of `slope * share` from 0 to `end`, by many small steps."""
    return (
        float(np.mean(slope * np.minimum((np.arange(1000) + 0.5) / 1000 * end, last)))
        if end
        else 0.0
    )


@pytest.mark.parametrize("order", [("top", "bottom"), ("bottom",)])
def test_each_sample_and_repeat_has_its_own_share(tmp_path: Path, order: tuple[str, ...]) -> None:
    builder, rng = Builder(tmp_path), np.random.default_rng(0)
    names, count = ("a", "b", "random"), 7
    last, slope = rng.uniform(0.1, 0.9, (2, 3, count)), rng.uniform(0.2, 1.0, (2, 3, count))
    last[0, 0, 2] = 0.0  # no positive relevance, which sets no share
    last[1, :, 3] = 0.0
    status = ["ok"] * 5 + ["degenerate", "ok"]
    for repeat in range(2):
        for place, name in enumerate(names):
            for rows in (slice(0, 4), slice(4, count)):
                own = status[rows] if (repeat, name) == (0, "a") else None
                lengths, slopes = last[repeat, place, rows], slope[repeat, place, rows]
                store(
                    builder,
                    name,
                    lengths,
                    slopes,
                    status=own,
                    order=order,
                    repeat=repeat,
                    start=rows.start,
                )
    findings = opened(builder)
    frame = findings.frame("curve").sort("repeat", "sample")
    for repeat, place in ((r, p) for r in range(2) for p in range(3)):
        rows = frame.filter(repeat=repeat, explainer=names[place])
        for sample in range(count):
            counts = [
                (r, p, s) != (0, 0, 5)
                for r, p, s in ((repeat, other, sample) for other in range(3))
            ]
            ends = [
                x for x, here in zip(last[repeat, :, sample], counts, strict=True) if here and x > 0
            ]
            if not counts[place]:
                assert rows["common_drop"][sample] is None
                continue
            end = min(ends, default=0.0)
            expected = slow_mean_drop(
                last[repeat, place, sample], slope[repeat, place, sample], end
            )
            assert rows["common_drop"][sample] == pytest.approx(expected, rel=1e-6)
            assert rows["common_share"][sample] == pytest.approx(end)
    assert {entry["better"] for entry in findings.table().to_dicts()} == {
        "higher" if "top" in order else "lower"
    }


def test_length_alone_ties(tmp_path: Path) -> None:
    builder, slope = Builder(tmp_path), np.linspace(0.5, 0.9, 12)
    for name, last in (("short", 0.1), ("long", 0.9), ("random", 0.5)):
        store(builder, name, np.full(12, last), slope)
    store(builder, "better", np.full(12, 0.2), slope + 0.1)
    findings = opened(builder)
    table = findings.table().rows_by_key("explainer", named=True, unique=True)
    verdicts = {name: table[name]["against_controls"] for name in ("short", "long", "better")}
    assert verdicts == {"short": "undecided", "long": "undecided", "better": "beats"}
    assert table["short"]["value"] == pytest.approx(table["long"]["value"])
    assert findings.best()["curve"].explainers == ("better",)


def remove_arrays(builder: Builder, folder: Path) -> None:
    (folder / "artefacts" / f"{builder.jobs[0]}.safetensors").unlink()


def damage_arrays(builder: Builder, folder: Path) -> None:
    path = folder / "artefacts" / f"{builder.jobs[0]}.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("spoil", [remove_arrays, damage_arrays])
def test_without_the_drops_of_one_explainer_whole_areas_are_compared(
    tmp_path: Path, spoil: Callable[[Builder, Path], None]
) -> None:
    """Of all data sets, so that a metric has one meaning everywhere; and it is said."""
    builder, slope = Builder(tmp_path), np.linspace(0.5, 0.9, 8)
    for data in ("one", "two"):
        for name, last in (("short", 0.1), ("long", 0.9), ("random", 0.5)):
            store(builder, name, np.full(8, last), slope, data=data)
    assert FALLBACK not in " ".join(builder.results().to_text(verbose=True).split())
    spoil(builder, tmp_path)
    findings = builder.results()
    text = " ".join(findings.to_text(verbose=True).split())
    assert "common_drop" not in findings.frame("curve").columns
    assert (text.count(FALLBACK), COMPARED in text) == (2, False)
    assert "More positive positions make the area larger." in text
    verdicts = dict(
        findings.table().filter(data="two").select("explainer", "against_controls").iter_rows()
    )
    assert verdicts == {"short": "worse", "long": "beats", "random": None}


def test_a_single_explainer_keeps_its_own_area(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    store(builder, "alone", np.full(3, 0.4), np.ones(3))
    findings = opened(builder)
    assert findings.table()["value"].to_list() == pytest.approx([0.4 * 0.4 / 2 + 0.6 * 0.4])
    assert FALLBACK not in " ".join(findings.to_text(verbose=True).split())


def test_each_file_of_arrays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(tmp_path)
    for name in ("a", "b", "random"):
        for start in (0, 2):
            store(builder, name, np.full(2, 0.4), np.ones(2), start=start)
    results, reads = builder.results(), []
    read = type(results.store).read_artefacts
    monkeypatch.setattr(
        type(results.store),
        "read_artefacts",
        lambda store, job: reads.append(job) or read(store, job),
    )
    findings = results
    assert repr(findings).startswith("Results(2 explainers and 1 control x 1 metric")
    assert reads == []
    _ = str(findings), findings.table(), findings.best(), findings.summary.agreements
    assert sorted(reads) == builder.jobs
