"""A published table or figure as a study: run it, and print our numbers beside the paper's, with what differs.

A `Reproduction` is a list of parts; a part is one study, a reading of its results, and what the paper says. Its study
is an ordinary one: `holdfast reproduce NAME --study FOLDER` writes it down, to be changed and run with `holdfast run`.
How a part's table is made:

- `Part.rows` names what its rows are: `("explainer",)`, `("model",)`, `("label",)` (configured metrics), several of
  them, `("model", "explainer")`, or any column that `Part.prepare` makes of the results (a population, a threshold).
- `Part.columns` are our numbers. A `Column` picks its rows with `model`, `metric`, or `where={"event": "F-hat"}`, and
  holds the paper's numbers by row in `paper`, printed beneath ours in the same cell; one number for each row, whatever
  the column, goes into `Part.paper`. Where a table has several axes, names of rows are joined: `"VGG16, GradCAM"`.
- Values may be bounds, as `Column.censored` says. A median allows for them, a mean leaves them out, and `"bounded"` is
  the mean that papers print: every bound taken for the value (ln P at its floor), which bounds the mean in turn and is
  printed as `≤` or `≥`.
- Intervals have the confidence `Part.level`.
- Sentences of the paper: a `Claim` sees a column's statistics by row; `Part.verdicts` and `notes` see the rows of all
  samples, for paired differences between explainers or models (`holdfast.reproduce.reading`).
- What a study needs and no installation has, such as networks for data that are not ours to pass on, `Part.before`
  makes in the folder that the study's paths are relative to.
- What is no study of metrics, such as times, is a `Part.measure`: it returns the frame that a study's results would
  give (`explainer`, `model` or whatever the rows are, `status`, and the columns), on whatever device there is.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from holdfast.errors import check
from holdfast.evaluation import run_study
from holdfast.presentation.base import format_number, read_flags
from holdfast.registry import Registry
from holdfast.statistics.paired import Interval, Side, bootstrap_interval
from holdfast.study.folders import write_atomically
from holdfast.study.provenance import environment
from holdfast.study.results import Results

Scale = Literal["small", "full"]
SCALES = ("small", "full")
Spread = Literal["interval", "deviation", "quartiles"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can bear out or not.

    Attributes:
        text: the sentence.
        holds: from the table's means by row, for one of its columns: whether it holds, or None where it cannot be said.
    """

    text: str
    holds: Callable[[Mapping[str, float]], bool | None]


@dataclass(frozen=True)
class Column:
    """One of our numbers for each row: the mean, or the median, over samples of a column of the results.

    Attributes:
        heading: what it is called.
        column: of `Results.samples`, or one that `Part.prepare` made.
        judged: whether the paper's claims are looked at in this column.
        model, metric: of a study with several, the name of the model and of the configured metric.
        statistic: where values may be bounds, a `"mean"` is that of the others alone, a `"median"` allows for anything
            beyond them, and `"bounded"` is the mean with bounds taken for values: a bound of the mean.
        where: further columns and the values that rows must have in them.
        censored: the column that says which values are bounds.
        side: `"lower"`: the true value is at or above a bound; `"upper"`: at or below.
        paper: the paper's numbers by row.
        decimals: printed of our numbers; four digits where None.
        spread: beside the statistic: its `"interval"`; or, as papers have it, how far the values lie apart, by their
            standard `"deviation"` (± after a mean) or their `"quartiles"` (in brackets).
    """

    heading: str
    column: str
    judged: bool = True
    model: str | None = None
    metric: str | None = None
    statistic: Literal["mean", "median", "bounded"] = "mean"
    where: Mapping[str, Any] = field(default_factory=dict)
    censored: str = "bound"
    side: Side = "lower"
    paper: Mapping[str, float | str] = field(default_factory=dict)
    decimals: int | None = 3
    spread: Spread = "interval"

    @property
    def key(self) -> str:
        """What its numbers are called among a table's: the column's name, after what picks its rows."""
        picked = (self.model, self.metric, *map(str, self.where.values()))
        parts = (*picked, self.column, None if self.statistic == "mean" else self.statistic)
        return " ".join(part for part in parts if part is not None)

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of `Results.samples` that it is about."""
        for name, wanted in {"model": self.model, "label": self.metric, **self.where}.items():
            if wanted is not None:
                frame = frame.filter(pl.col(name) == wanted) if name in frame.columns else frame.clear()
        return frame

    def values(self, frame: pl.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Its finite values in rows of `Results.samples` that the statistic is taken over, and which are bounds."""
        frame = self.rows(frame)
        if self.column not in frame.columns:
            return np.empty(0), np.empty(0, dtype=bool)
        frame = frame.filter(pl.col(self.column).cast(pl.Float64).is_finite().fill_null(False))
        bound = read_flags(frame, self.censored)
        kept = ~bound if self.statistic == "mean" else np.ones(len(frame), dtype=bool)
        return frame[self.column].to_numpy()[kept], bound[kept]

    def interval(self, frame: pl.DataFrame, level: float) -> tuple[Interval | None, int]:
        """The statistic and its interval over rows of `Results.samples`, None of nothing; and how many values."""
        values, bound = self.values(frame)
        if not len(values):
            return None, 0
        if self.spread != "interval":
            return _spread(values.astype(float), self.statistic, self.spread), len(values)
        if self.statistic != "bounded":
            return bootstrap_interval(values, self.statistic, bound, self.side, level), len(values)
        found = bootstrap_interval(values.astype(float), "mean", level=level)
        assert found is not None
        return replace(found, bound=self.side) if bound.any() else found, len(values)


def _spread(values: np.ndarray[Any, Any], statistic: str, spread: Spread) -> Interval:
    """The statistic, and the values one standard deviation off it (none of a single value), or the quartiles."""
    value = float(np.median(values) if statistic == "median" else values.mean())
    if spread == "quartiles":
        low, high = np.quantile(values, [0.25, 0.75])
    else:
        deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        low, high = value - deviation, value + deviation
    return Interval(value, float(low), float(high), len(values), 0.0, None, (value, value))


@dataclass(frozen=True)
class Part:
    """One study of a reproduction, or one measurement.

    Attributes:
        name: of the part, and of its results folder.
        title: above its table.
        study: the study for a scale, as a study file's content; None where there is a `measure`.
        columns: our numbers.
        paper: the paper's numbers by row, where it has one for each; text where it gives a bound or a range.
        claims: the paper's sentences.
        differs: what is not as in the paper, for a scale.
        notes: more lines from the results, such as a share of small p-values.
        verdicts: the paper's sentences that means by row cannot tell: (sentence, where it is looked at, whether it
            holds), from the results.
        rows: what the table's rows are: columns of the results, each combination of their values a row.
        level: the confidence of the intervals.
        prepare: the samples' rows with more columns, from the results; the rows as they are by default.
        measure: instead of a study, what returns the rows for a scale.
        before: makes the files that the study names, in the folder (its third argument: whether to show progress), if
            they are not there yet; returns what is to be said of them beneath the table.
    """

    name: str
    title: str
    study: Callable[[Scale], dict[str, Any]] | None
    columns: tuple[Column, ...]
    paper: Mapping[str, float | str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    differs: Callable[[Scale], str] = lambda scale: ""
    notes: Callable[[pl.DataFrame], Sequence[str]] = lambda frame: ()
    verdicts: Callable[[pl.DataFrame], Sequence[tuple[str, str, bool | None]]] = lambda frame: ()
    rows: tuple[str, ...] = ("explainer",)
    level: float = 0.95
    prepare: Callable[[Results], pl.DataFrame] = lambda results: results.samples
    measure: Callable[[Scale], pl.DataFrame] | None = None
    before: Callable[[Scale, Path, bool], Sequence[str]] | None = None

    @property
    def row_heading(self) -> str:
        """What the names of the rows are names of."""
        return ", ".join("metric" if axis == "label" else axis for axis in self.rows)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper.

    Attributes:
        title: which one.
        parts: its studies.
    """

    title: str
    parts: tuple[Part, ...]


reproductions: Registry[Reproduction] = Registry("reproduction")


@dataclass(frozen=True)
class Table:
    """What a part came to.

    Attributes:
        part: which.
        rows: the rows' names (under `Part.row_heading`), `paper`, for each column (by its `key`) its statistic, its
            interval and the paper's number; and the number of samples, the most of any column.
        verdicts: (claim, column heading, whether it holds).
        notes: further lines.
        failures: jobs that failed.
    """

    part: Part
    rows: pl.DataFrame
    verdicts: list[tuple[str, str, bool | None]]
    notes: list[str] = field(default_factory=list)
    failures: int = 0


def reproduce(
    name: str, scale: Scale, out: Path, *, workers: int | str | None = None, progress: bool = True
) -> list[Table]:
    """Run the parts of a reproduction, each into a folder of `out`, and read their tables.

    What studies have left in the folders already is not computed again; what a part measures is measured anew.
    """
    from holdfast.study.file.spec import study_from

    check(scale in SCALES, "scale", "small or full", repr(scale))
    tables = []
    for part in reproductions[name].parts:
        if part.measure is not None:
            tables.append(_measured(part, part.measure(scale), out / f"{part.name}-{scale}"))
            continue
        assert part.study is not None
        study: Any = part.study(scale)
        if workers is not None:
            study = {**study, "executor": {"workers": workers}}
        said: Sequence[str] = ()
        if part.before is not None:
            said = part.before(scale, out, progress)
            study = study_from(study, out)
        found = run_study(
            study, out / f"{part.name}-{scale}", command=f"holdfast reproduce {name} --scale {scale}", progress=progress
        )
        table = read_table(part, found.results)
        tables.append(replace(table, notes=[*table.notes, *said]))
        found.to_html(out / f"{part.name}-{scale}" / "report" / "index.html")
    return tables


def write_studies(name: str, scale: Scale, folder: Path, *, make: bool = True, progress: bool = False) -> list[Path]:
    """The studies of a reproduction as study files, to be changed and run on their own; measurements have none.

    With `make`, what a study names and no installation has (`Part.before`) is made beside them, where it is missing.
    """
    from ruamel.yaml import YAML

    files = []
    for part in reproductions[name].parts:
        if part.study is None:
            continue
        if part.before is not None and make:
            part.before(scale, folder, progress)
        buffer = io.StringIO()
        writer = YAML(typ="safe", pure=True)
        writer.width = 1 << 16  # names with spaces in them must not be parted
        writer.dump(part.study(scale), buffer)
        file = folder / f"{part.name}-{scale}.yaml"
        write_atomically(file, buffer.getvalue().encode())
        files.append(file)
    return files


def read_table(part: Part, results: Results) -> Table:
    """A part's table from its results: statistics over the evaluated samples (and repeats), with their intervals."""
    manifest = results.manifest
    order = {axis: list(manifest.get(f"{axis}s", ())) for axis in ("data", "model", "explainer")}
    order["label"] = list(manifest.get("metrics", ()))
    return table_of(part, part.prepare(results), order, results.failures.height)


def table_of(
    part: Part, frame: pl.DataFrame, order: Mapping[str, Sequence[str]] | None = None, failures: int = 0
) -> Table:
    """A part's table from rows like those of `Results.samples`.

    Args:
        part: which.
        frame: the rows; only those with the status "ok" count.
        order: all values of an axis of the table's rows, where they are known; by default those in the frame.
        failures: jobs that failed.
    """
    frame = frame.filter(pl.col("status") == "ok")
    rows: list[dict[str, Any]] = []
    values: dict[str, dict[str, float]] = {column.key: {} for column in part.columns}
    for name, own in _groups(part.rows, frame, order or {}):
        row: dict[str, Any] = {part.row_heading: name, "paper": _paper(part.paper.get(name))}
        for column in part.columns:
            interval, count = column.interval(own, part.level)
            value = float("nan") if interval is None else interval.value
            values[column.key][name] = value
            row[column.key] = value
            row[f"{column.key}_low"] = None if interval is None else interval.low
            row[f"{column.key}_high"] = None if interval is None else interval.high
            row[f"{column.key}_bound"] = interval is not None and not interval.exact
            row[f"{column.key} (paper)"] = _as_written(column.paper.get(name))
            row["samples"] = max(row.get("samples", 0), count)
        rows.append(row)
    verdicts = [
        (claim.text, column.heading, claim.holds(values[column.key]))
        for claim in part.claims
        for column in part.columns
        if column.judged
    ]
    verdicts += part.verdicts(frame)
    return Table(part, pl.DataFrame(rows), verdicts, list(part.notes(frame)), failures)


def _groups(
    axes: Sequence[str], frame: pl.DataFrame, order: Mapping[str, Sequence[str]]
) -> list[tuple[str, pl.DataFrame]]:
    """Names and rows of each combination of the axes' values; of several axes those that occur."""
    known = [order.get(axis) or _values(frame, axis) for axis in axes]
    found = []
    for names in product(*known):
        own = frame.filter(*(pl.col(axis) == name for axis, name in zip(axes, names, strict=True)))
        if len(axes) == 1 or len(own):
            found.append((", ".join(map(str, names)), own))
    return found


def _values(frame: pl.DataFrame, axis: str) -> list[Any]:
    return frame[axis].drop_nulls().unique(maintain_order=True).to_list() if axis in frame.columns else []


def _measured(part: Part, frame: pl.DataFrame, folder: Path) -> Table:
    """The table of a measurement, which is kept with what it was made on."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_atomically(folder / "measured.parquet", buffer.getvalue())
    write_atomically(folder / "environment.json", json.dumps(environment(), indent=1).encode())
    return table_of(part, frame)


def _paper(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else format_number(value, 3)


def _as_written(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:g}".replace("-", "−")
