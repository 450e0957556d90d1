"""A published table or figure as a study: run it, and print our numbers next to the paper's, with all departures.

A `Reproduction` is a list of parts. A part has one study, a description of the table made from its results, and the
numbers and sentences of the paper. The study is an ordinary one: `--study FOLDER` writes it as a file, which can be
changed and run with `standfast run`. `papers.files` reads studies and numbers from files. How a part's table is made:

- `Part.rows` names the columns of the results whose values are the rows: `("explainer",)`, `("model",)`, `("label",)`
  (configured metrics), several of them, such as `("model", "explainer")`, or a column that `Part.prepare` adds (a
  population, a threshold).
- `Part.columns` are our numbers. A `Column` selects its rows by `model`, `metric`, or `where={"event": "F-hat"}`. Its
  `paper` has the paper's numbers by row, which are printed beside ours. If `Part.rows` has several names, the names of
  rows are joined: `"VGG16, GradCAM"`.
- Values may be bounds (`Column.censored`). A median takes them into account and a mean leaves them out. `"bounded"` is
  the mean that papers print: every bound counts as the value (ln P at its floor), so the mean is a bound, too, and is
  printed with `≤` or `≥`.
- A similarity of unrelated maps is not 0. With `Column.chance` the table has a further number, corrected for it.
- Intervals have the confidence `Part.level`.
- Sentences of the paper are judged by a `Claim`, from a column's statistics by row, or by `Part.verdicts`, from the
  rows of all samples, for paired differences between explainers or models (`papers.reading`).
- `Part.make_files` makes files that a study needs and that we may not distribute, such as networks for some data sets.
- `Part.measure` is for parts that are no study, such as measurements of time. It returns a frame like the results of a
  study: the columns of the rows, `status`, and the columns with the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from ruamel.yaml import YAML

from papers.reading import Estimate, mean_ratio
from standfast import data
from standfast.data.dataset import Dataset
from standfast.errors import check
from standfast.evaluation import run_study
from standfast.registry import Registry
from standfast.report import Results
from standfast.similarity.chance import ROOM
from standfast.statistics.paired import Interval, Side, bootstrap_interval
from standfast.study.file.spec import study_from
from standfast.study.provenance import environment
from standfast.value_spec import read_flags

Scale = Literal["small", "full"]
SCALES = ("small", "full")
Spread = Literal["interval", "deviation", "quartiles"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that the numbers of one column can confirm or contradict.

    Attributes:
        text: the sentence.
        holds: from the column's means by row, whether the sentence holds; None if this is undecided.
    """

    text: str
    holds: Callable[[Mapping[str, float]], bool | None]


@dataclass(frozen=True)
class Column:
    """One of our numbers for each row: the mean or median over samples of a column of the results.

    Attributes:
        heading: the heading of the column.
        column: a column of `Results.samples`, or one that `Part.prepare` adds.
        model, metric: names of the model and of the configured metric, in a study with several.
        statistic: `"mean"` leaves out values that are bounds; `"median"` takes them into account; `"bounded"` is the
            mean in which bounds count as values, which is a bound of the mean.
        where: further columns, and the values that rows must have in them.
        censored: the column that is True for values that are bounds.
        side: `"lower"`: bounds are lower bounds of the true values; `"upper"`: upper bounds.
        paper: the paper's numbers by row.
        decimals: number of decimals of our numbers; with None, four significant digits.
        chance: the column with the chance level of each value, for a similarity with the largest value 1. The table
            then has (mean - chance) / (1 - chance), of the means of value and chance: 0 for unrelated maps, 1 for
            equal ones. There is no such number where chance is above 0.95.
        spread: what is printed with the statistic: its `"interval"`, the standard `"deviation"` of the values (± after
            a mean), or their `"quartiles"` (in brackets).
    """

    heading: str
    column: str
    model: str | None = None
    metric: str | None = None
    statistic: Literal["mean", "median", "bounded"] = "mean"
    where: Mapping[str, Any] = field(default_factory=dict)
    censored: str = "bound"
    side: Side = "lower"
    paper: Mapping[str, float | str] = field(default_factory=dict)
    decimals: int | None = 3
    chance: str | None = None
    spread: Spread = "interval"

    @property
    def key(self) -> str:
        """The name of this column in a table: the values that select its rows, then the name of `column`."""
        selected = (self.model, self.metric, *map(str, self.where.values()))
        parts = (*selected, self.column, None if self.statistic == "mean" else self.statistic)
        return " ".join(part for part in parts if part is not None)

    def select_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of `Results.samples` that belong to this column."""
        for name, wanted in {"model": self.model, "label": self.metric, **self.where}.items():
            if wanted is not None:
                frame = (
                    frame.filter(pl.col(name) == wanted) if name in frame.columns else frame.clear()
                )
        return frame

    def values(self, frame: pl.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The finite values that enter the statistic, and a mask of those that are bounds."""
        frame = self.select_rows(frame)
        if self.column not in frame.columns:
            return np.empty(0), np.empty(0, dtype=bool)
        frame = frame.filter(pl.col(self.column).cast(pl.Float64).is_finite().fill_null(False))
        bound = read_flags(frame, self.censored)
        kept = ~bound if self.statistic == "mean" else np.ones(len(frame), dtype=bool)
        return frame[self.column].to_numpy()[kept], bound[kept]

    def interval(self, frame: pl.DataFrame, level: float) -> tuple[Interval | None, int]:
        """The statistic with its interval, None without values; and the number of values."""
        values, bound = self.values(frame)
        if not len(values):
            return None, 0
        if self.spread != "interval":
            return _make_spread(values.astype(float), self.statistic, self.spread), len(values)
        if self.statistic != "bounded":
            return bootstrap_interval(values, self.statistic, bound, self.side, level), len(values)
        found = bootstrap_interval(values.astype(float), "mean", level=level)
        assert found is not None
        return replace(found, bound=self.side) if bound.any() else found, len(values)

    def above_chance(self, frame: pl.DataFrame, level: float) -> Estimate | None:
        """The mean corrected for chance, with its interval; None if that is not known, or if chance leaves no room."""
        if self.chance is None:
            return None
        frame = self.select_rows(frame)
        if not {self.column, self.chance} <= set(frame.columns):
            return None
        value, chance = (pl.col(name).cast(pl.Float64) for name in (self.column, self.chance))
        found = frame.select(above=value - chance, room=1 - chance).drop_nulls().drop_nans()
        if not len(found) or float(found["room"].to_numpy().mean()) < ROOM:
            return None
        return mean_ratio(found, "above", "room", level)


def _make_spread(values: np.ndarray[Any, Any], statistic: str, spread: Spread) -> Interval:
    """The statistic with an interval of one standard deviation on each side, or with the quartiles as its ends."""
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
        name: name of the part and of its results folder.
        title: title of its table.
        study: returns the study for a scale, as the content of a study file; None if there is a `measure`.
        columns: our numbers.
        claims: the paper's sentences.
        departures: returns a text that lists what differs from the paper, for a scale.
        notes: returns further lines from the results, such as a share of small p-values.
        verdicts: judges sentences of the paper for which the means by row are not enough, from the results: (sentence,
            where it is judged, whether it holds).
        rows: columns of the results; each combination of their values is a row.
        level: confidence of the intervals.
        prepare: returns the rows of the samples, with further columns, from the results.
        measure: returns the rows for a scale, in place of a study.
        make_files: makes the files that the study names, if they do not exist; its arguments are the scale, the folder
            to which the study's paths are relative, and whether to show progress. It returns notes for the table.
    """

    name: str
    title: str
    study: Callable[[Scale], dict[str, Any]] | None
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...] = ()
    departures: Callable[[Scale], str] = lambda scale: ""
    notes: Callable[[pl.DataFrame], Sequence[str]] = lambda frame: ()
    verdicts: Callable[[pl.DataFrame], Sequence[tuple[str, str, bool | None]]] = lambda frame: ()
    rows: tuple[str, ...] = ("explainer",)
    level: float = 0.95
    prepare: Callable[[Results], pl.DataFrame] = lambda results: results.samples
    measure: Callable[[Scale], pl.DataFrame] | None = None
    make_files: Callable[[Scale, Path, bool], Sequence[str]] | None = None

    @property
    def row_heading(self) -> str:
        """The heading above the names of the rows."""
        return ", ".join("metric" if axis == "label" else axis for axis in self.rows)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper.

    Attributes:
        title: its title.
        parts: its parts.
    """

    title: str
    parts: tuple[Part, ...]


reproductions: Registry[Reproduction] = Registry("reproduction")


@dataclass(frozen=True)
class Table:
    """The table of a part.

    Attributes:
        part: the part.
        rows: one row per row of the table. Columns: its name (`Part.row_heading`), for each column (`key`) the
            statistic, its interval, the paper's number and the number above chance, and `samples`, the largest number
            of samples of any column.
        verdicts: (sentence, column heading, whether it holds).
        notes: further lines.
        failures: number of failed jobs.
    """

    part: Part
    rows: pl.DataFrame
    verdicts: list[tuple[str, str, bool | None]]
    notes: list[str] = field(default_factory=list)
    failures: int = 0


def reproduce(
    name: str,
    scale: Scale,
    out: Path,
    *,
    workers: int | str | None = None,
    progress: bool = True,
    show: Callable[[Table], None] = lambda table: None,
    command: str = "",
) -> list[Table]:
    """Run the parts of a reproduction, each in its own folder of `out`, and read their tables.

    Results of studies that are already in the folders are used again. Measurements are always repeated. `show` gets
    each table as soon as its part is done: parts can take hours, and a later one may fail. Reports print `command` as
    what made them.
    """
    check(scale in SCALES, "scale", "small or full", repr(scale))
    tables = []
    for part in reproductions[name].parts:
        folder = out / f"{part.name}-{scale}"
        if part.measure is not None:
            tables.append(_keep_measurement(part, part.measure(scale), folder))
            show(tables[-1])
            continue
        notes = part.make_files(scale, out, progress) if part.make_files is not None else ()
        assert part.study is not None
        content = part.study(scale)
        if workers is not None:
            content = {**content, "executor": {"workers": workers}}
        study = study_from(content, "." if part.make_files is None else out)
        found = run_study(study, folder, command=command, progress=progress)
        table = read_table(part, found)
        tables.append(replace(table, notes=[*table.notes, *notes]))
        show(tables[-1])
        found.to_html(folder / "report" / "index.html")
    return tables


def write_studies(
    name: str, scale: Scale, folder: Path, *, make: bool = True, progress: bool = False
) -> list[Path]:
    """Write the studies of a reproduction as study files; measurements have none.

    With `make`, files that the studies need (`Part.make_files`) are made in the same folder, if they are missing.
    """
    writer = YAML(typ="safe", pure=True)
    writer.width = 1 << 16  # no line breaks within names that contain spaces
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # rows keep their order
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for part in reproductions[name].parts:
        if part.study is None:
            continue
        if part.make_files is not None and make:
            part.make_files(scale, folder, progress)
        files.append(folder / f"{part.name}-{scale}.yaml")
        writer.dump(part.study(scale), files[-1])
    return files


def read_table(part: Part, results: Results) -> Table:
    """Make a part's table from its results: statistics over the evaluated samples (and repeats), with intervals."""
    manifest = results.manifest
    order = {axis: list(manifest.get(f"{axis}s", ())) for axis in ("data", "model", "explainer")}
    order["label"] = list(manifest.get("metrics", ()))
    return make_table(part, part.prepare(results), order, len(results.failures))


def make_table(
    part: Part,
    frame: pl.DataFrame,
    order: Mapping[str, Sequence[str]] | None = None,
    failures: int = 0,
) -> Table:
    """Make a part's table from rows like those of `Results.samples`.

    Args:
        part: the part.
        frame: the rows; only those with the status "ok" count.
        order: for a name of `Part.rows`, all its values in order; by default the values in the frame.
        failures: number of failed jobs.
    """
    frame = frame.filter(pl.col("status") == "ok")
    rows: list[dict[str, Any]] = []
    values: dict[str, dict[str, float]] = {column.key: {} for column in part.columns}
    for name, own in _group_rows(part.rows, frame, order or {}):
        row: dict[str, Any] = {part.row_heading: name}
        for column in part.columns:
            interval, count = column.interval(own, part.level)
            value = float("nan") if interval is None else interval.value
            values[column.key][name] = value
            row[column.key] = value
            row[f"{column.key}_low"] = None if interval is None else interval.low
            row[f"{column.key}_high"] = None if interval is None else interval.high
            row[f"{column.key}_bound"] = interval is not None and not interval.exact
            row[f"{column.key} (paper)"] = _format_paper(column.paper.get(name))
            if column.chance is not None:
                above = column.above_chance(own, part.level) or (None,) * 3
                for end, number in zip(("", "_low", "_high"), above, strict=True):
                    row[f"{column.key}_above{end}"] = number
            row["samples"] = max(row.get("samples", 0), count)
        rows.append(row)
    verdicts = [
        (claim.text, column.heading, claim.holds(values[column.key]))
        for claim in part.claims
        for column in part.columns
    ]
    verdicts += part.verdicts(frame)
    return Table(part, pl.DataFrame(rows), verdicts, list(part.notes(frame)), failures)


def _group_rows(
    axes: Sequence[str], frame: pl.DataFrame, order: Mapping[str, Sequence[str]]
) -> list[tuple[str, pl.DataFrame]]:
    """The name and the rows of each combination of values of `axes`; for several axes, only combinations with rows."""
    known = [order.get(axis) or _find_values(frame, axis) for axis in axes]
    found = []
    for names in product(*known):
        own = frame.filter(*(pl.col(axis) == name for axis, name in zip(axes, names, strict=True)))
        if len(axes) == 1 or len(own):
            found.append((", ".join(map(str, names)), own))
    return found


def _find_values(frame: pl.DataFrame, axis: str) -> list[Any]:
    return (
        frame[axis].drop_nulls().unique(maintain_order=True).to_list()
        if axis in frame.columns
        else []
    )


def _keep_measurement(part: Part, frame: pl.DataFrame, folder: Path) -> Table:
    """Store a measurement with a description of the machine, and make its table."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / "measured.parquet")
    (folder / "environment.json").write_text(json.dumps(environment(), indent=1))
    return make_table(part, frame)


def _format_paper(value: float | str | None) -> str:
    return (
        "–"
        if value is None
        else value
        if isinstance(value, str)
        else f"{value:zg}".replace("-", "−")
    )


def load_evenly(name: str, count: int) -> Dataset:
    """`count` samples of a data set, evenly spread over it, or all if it has fewer; some sets are sorted by class."""
    found = data.load(name)
    return found.take(spread_evenly(len(found), count))


def spread_evenly(total: int, count: int) -> list[int]:
    """`count` indices, evenly spread over `total`; all if `total` is smaller.

    >>> spread_evenly(10, 4), spread_evenly(2, 5)
    ([0, 2, 5, 7], [0, 1])
    """
    count = min(count, total)
    return [row * total // count for row in range(count)]
