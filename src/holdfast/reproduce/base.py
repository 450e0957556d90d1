"""A published table or figure as a study: run it, and print our numbers beside the paper's, with what differs.

A `Reproduction` is a list of parts; a part is one study, a reading of its results, and what the paper says. Its study
is an ordinary one: `holdfast reproduce NAME --study FOLDER` writes it down, to be changed and run with `holdfast run`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from holdfast.errors import check
from holdfast.evaluation import run_study
from holdfast.metrics.reading import number
from holdfast.registry import Registry
from holdfast.study.folders import write_atomically
from holdfast.study.results import Results
from holdfast.study.statistics import bootstrap_interval

Scale = Literal["small", "full"]
SCALES = ("small", "full")


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
        column: of `Results.samples`.
        judged: whether the paper's claims are looked at in this column.
        model, metric: of a study with several, the name of the model and of the configured metric.
        statistic: where values may be lower ends (`bound` in the results), a mean is that of the others alone; a median
            allows for anything from there up.
    """

    heading: str
    column: str
    judged: bool = True
    model: str | None = None
    metric: str | None = None
    statistic: Literal["mean", "median"] = "mean"

    @property
    def key(self) -> str:
        """What its numbers are called among a table's: the column's name, after the model's and the metric's."""
        parts = (self.model, self.metric, self.column, None if self.statistic == "mean" else self.statistic)
        return " ".join(part for part in parts if part is not None)

    def values(self, frame: pl.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Its finite values in rows of `Results.samples` that the statistic is taken over, and which are bounds."""
        for name, wanted in (("model", self.model), ("label", self.metric)):
            frame = frame if wanted is None else frame.filter(pl.col(name) == wanted)
        if self.column not in frame.columns:
            return np.empty(0), np.empty(0, dtype=bool)
        frame = frame.filter(pl.col(self.column).cast(pl.Float64).is_finite().fill_null(False))
        bound = frame["bound"].fill_null(False).to_numpy() if "bound" in frame.columns else np.zeros(len(frame), bool)
        kept = ~bound if self.statistic == "mean" else np.ones(len(frame), dtype=bool)
        return frame[self.column].to_numpy()[kept], bound[kept]


@dataclass(frozen=True)
class Part:
    """One study of a reproduction.

    Attributes:
        name: of the part, and of its results folder.
        title: above its table.
        study: the study for a scale, as a study file's content.
        columns: our numbers.
        paper: the paper's numbers by explainer; text where it gives a bound or a range.
        claims: the paper's sentences.
        differs: what is not as in the paper, for a scale.
        notes: more lines from the results, such as a share of small p-values.
        verdicts: the paper's sentences that means by row cannot tell: (sentence, where it is looked at, whether it
            holds), from the results.
    """

    name: str
    title: str
    study: Callable[[Scale], dict[str, Any]]
    columns: tuple[Column, ...]
    paper: Mapping[str, float | str]
    claims: tuple[Claim, ...] = ()
    differs: Callable[[Scale], str] = lambda scale: ""
    notes: Callable[[pl.DataFrame], Sequence[str]] = lambda frame: ()
    verdicts: Callable[[pl.DataFrame], Sequence[tuple[str, str, bool | None]]] = lambda frame: ()


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
        rows: `explainer`, `paper`, for each column (by its `key`) its mean and interval; and the number of samples, the
            most of any column.
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

    What is in the folders already is not computed again.
    """
    check(scale in SCALES, "scale", "small or full", repr(scale))
    tables = []
    for part in reproductions[name].parts:
        study = part.study(scale)
        if workers is not None:
            study = {**study, "executor": {"workers": workers}}
        found = run_study(
            study, out / f"{part.name}-{scale}", command=f"holdfast reproduce {name} --scale {scale}", progress=progress
        )
        tables.append(read_table(part, found.results))
        found.to_html(out / f"{part.name}-{scale}" / "report" / "index.html")
    return tables


def write_studies(name: str, scale: Scale, folder: Path) -> list[Path]:
    """The studies of a reproduction as study files, to be changed and run on their own."""
    from ruamel.yaml import YAML

    files = []
    for part in reproductions[name].parts:
        buffer = io.StringIO()
        YAML(typ="safe", pure=True).dump(part.study(scale), buffer)
        file = folder / f"{part.name}-{scale}.yaml"
        write_atomically(file, buffer.getvalue().encode())
        files.append(file)
    return files


def read_table(part: Part, results: Results) -> Table:
    """A part's table from its results: means over the evaluated samples, with 95% BCa intervals."""
    frame = results.samples.filter(pl.col("status") == "ok")
    rows: list[dict[str, Any]] = []
    means: dict[str, dict[str, float]] = {column.key: {} for column in part.columns}
    for explainer in results.manifest["explainers"]:
        own = frame.filter(pl.col("explainer") == explainer)
        row: dict[str, Any] = {"explainer": explainer, "paper": _paper(part.paper.get(explainer))}
        for column in part.columns:
            values, bounds = column.values(own)
            interval = bootstrap_interval(values, column.statistic, bounds, "lower") if len(values) else None
            mean = float("nan") if interval is None else interval.value
            means[column.key][explainer] = mean
            row[column.key] = mean
            row[f"{column.key}_low"] = None if interval is None else interval.low
            row[f"{column.key}_high"] = None if interval is None else interval.high
            row[f"{column.key}_bound"] = interval is not None and not interval.exact
            row["samples"] = max(row.get("samples", 0), len(values))
        rows.append(row)
    verdicts = [
        (claim.text, column.heading, claim.holds(means[column.key]))
        for claim in part.claims
        for column in part.columns
        if column.judged
    ]
    verdicts += part.verdicts(frame)
    return Table(part, pl.DataFrame(rows), verdicts, list(part.notes(frame)), results.failures.height)


def _paper(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else number(value, 3)


def print_table(table: Table, scale: Scale) -> None:
    """The table on the terminal, with what differs from the paper and which of its sentences hold."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console()
    part = table.part
    drawn = Drawn("explainer", title=part.title, box=box.SIMPLE_HEAD)
    for heading in ("paper", *(column.heading for column in part.columns), "n"):
        drawn.add_column(heading, justify="right")
    for row in table.rows.iter_rows(named=True):
        cells = [_cell(row, column.key) for column in part.columns]
        drawn.add_row(*map(Text, [row["explainer"], row["paper"], *cells, str(row["samples"])]))
    console.print(drawn)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    for text, heading, holds in table.verdicts:
        say(f"{ {True: 'holds', False: 'does not hold', None: 'undecided'}[holds] } ({heading}): {text}")
    for note in table.notes:
        say(note)
    if differs := part.differs(scale):
        say(f"Not as in the paper: {differs}")
    if table.failures:
        say(f"{table.failures} jobs failed; see the report")


def _cell(row: Mapping[str, Any], column: str) -> str:
    value, low, high = row[column], row[f"{column}_low"], row[f"{column}_high"]
    if value != value:
        return "–"
    said = f"{'≥ ' if row[f'{column}_bound'] else ''}{number(value, 3)}"
    return said if low is None or high is None else f"{said} [{number(low)}, {number(high)}]"
