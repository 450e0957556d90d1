"""`Findings`: what stored results say, as a table with the best of each metric, in the terminal and in notebooks.

`standfast.load_results` opens stored results as findings, and `Evaluation` prints those of its own.
"""

from __future__ import annotations

import dataclasses
import html
import math
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from standfast.errors import UnknownNameError, check
from standfast.report import Report
from standfast.report.page.failures import describe_failures as describe_failures
from standfast.report.page.failures import describe_misfits, shorten_error
from standfast.report.page.verdicts import decide, describe_controls, explain_ranks
from standfast.report.plots import Bar, Panel, plot_panels
from standfast.report.summary import estimate
from standfast.report.views import Contents
from standfast.report.words import collect_facts, words_of
from standfast.results import ValueSpec
from standfast.results.formatting import describe_probability, format_count
from standfast.results.presentation import find_best_median
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.paired import Interval, bootstrap_interval
from standfast.study.results import JOB_COLUMNS, Results
from standfast.study.results import load_results as load_stored
from standfast.study.store import ArraysInMemory, Store
from standfast.tensors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Statistic = Literal["median", "mean"]
#: what `Findings.table` has, in this order; those in `_OPTIONAL` only where they say something
TABLE = {
    **dict.fromkeys(("data", "model", "explainer", "metric"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("verdict", "better"), pl.String),
    "samples": pl.Int64,
    **dict.fromkeys(("against_controls", "best_control", "bound", "failure"), pl.String),
}
_OPTIONAL = ("data", "model", "against_controls", "best_control", "bound", "failure")
#: what `Findings.frame` has of all metrics, and the names of things of which there may be several
_CORE = ("explainer", "label", "sample", "value", "low", "high", "bound", "status")
_PLACES = ("data", "model", "repeat")
#: the first and the last columns of one metric's frame, of which polars prints four each
_FIRST = ("explainer", "label", "sample", "value", "low", "high", "status")
_LAST = ("metric", "data", "model", "repeat", "job")
_HEAD = 22  # characters
#: why a sample was skipped, in words
_STATUS = {
    "misclassified": "of which the model predicts another class",
    "degenerate": "with a constant map",
    "nonfinite": "with NaN or infinity",
}
_MARKS = {"best": "*", "tied": "="}
_SIGNS = {"upper": "<= ", "lower": ">= "}


@dataclass(frozen=True)
class Entry:
    """The numbers of one explainer by one configured metric, for one data set and model.

    Attributes:
        data, model, explainer, label, metric: names; a single `Result` has only the metric's.
        spec: how the metric's values are read.
        statistic: `"median"` or `"mean"` over samples. The value of a sample is the same statistic over its repeats.
        middle: the statistic with its interval; None where no sample counts.
        mean_rank: over the samples that have a value for every explainer, 1 is best; None where the metric does not
            rank explainers, or there is no such sample.
        decided: whether the paired tests show that some explainer is worse than the one with the best mean rank.
        best: whether it has the best mean rank; False unless `decided`.
        tied: whether it is not best, but the paired tests do not show that it is worse; False unless `decided`.
    """

    data: str
    model: str
    explainer: str
    label: str
    metric: str
    spec: ValueSpec
    statistic: Statistic
    middle: Interval | None
    mean_rank: float | None = None
    decided: bool = False
    best: bool = False
    tied: bool = False

    @property
    def verdict(self) -> str | None:
        """`"best"`, `"tied"`, `"worse"` or `"undecided"`; None where there is no other value to compare with."""
        if self.mean_rank is None:
            return None
        if not self.decided:
            return "undecided"
        return "best" if self.best else "tied" if self.tied else "worse"


@dataclass(frozen=True)
class Best:
    """The explainers that are best by one metric.

    Attributes:
        explainers: the one with the best mean rank, and all that the paired tests do not show to be worse, in the
            order of their mean ranks.
        shown: whether the tests, at 5%, show that all other explainers are worse; False if there are no others.
        samples: on how many samples they were compared.
    """

    explainers: tuple[str, ...]
    shown: bool
    samples: int


@dataclass(frozen=True, repr=False)
class Findings(Results):
    """Stored results, and what they say.

    `print` shows a table for each data set and model: a row per explainer, a column per metric, the median over samples
    with its 95% interval, and marks for the best. A notebook shows the same as HTML.
    """

    def __repr__(self) -> str:
        return f"Findings({self.scope()}; print it for the table)"

    def __str__(self) -> str:
        return format_text(self)

    def _repr_html_(self) -> str:
        return format_html(self)

    @classmethod
    def in_memory(
        cls,
        manifest: Mapping[str, Any],
        samples: pl.DataFrame,
        jobs: Sequence[Mapping[str, Any]],
        planned: int,
        arrays: Mapping[str, Mapping[str, Array]],
    ) -> Findings:
        """Results that are in no folder, such as those that somebody sent as one file.

        Args:
            manifest: the configuration, as the attribute `manifest`.
            samples: as the attribute `samples`.
            jobs: for each row of the attribute `jobs` its values by column; those that are missing are null.
            planned: the number of jobs of the study.
            arrays: the arrays of each job that has any, by name.

        >>> place = {"data": "d", "model": "m", "explainer": "lrp", "label": "AOPC", "metric": "aopc", "repeat": 0}
        >>> samples = pl.DataFrame([{**place, "sample": 0, "status": "ok", "value": 0.5, "job": "a"}])
        >>> job = {**place, "job": "a", "start": 0, "stop": 1, "status": "done"}
        >>> found = Findings.in_memory({"seed": 0}, samples, [job], 2, {"a": {"curve": np.zeros((1, 5))}})
        >>> found.missing, found.artefacts("a")["curve"].shape, found.table()["value"].to_list()
        (1, (1, 5), [0.5])
        """
        rows = [[job.get(name) for name in JOB_COLUMNS] for job in jobs]
        records = pl.DataFrame(rows, schema=JOB_COLUMNS, orient="row")
        return cls(ArraysInMemory(arrays), dict(manifest), samples, records, planned)

    @cached_property
    def contents(self) -> Contents:
        """The results as the report needs them."""
        return Contents(self)

    @property
    def comparisons(self) -> dict[tuple[str, str, str], Comparison]:
        """The paired tests behind the verdicts, by data, model and label."""
        return self.contents.comparisons

    @property
    def control_tests(self) -> dict[tuple[str, str, str], list[ControlTest]]:
        """The tests of explainers against the controls, by data, model and label."""
        return self.contents.control_tests

    def scope(self) -> str:
        """How much was evaluated, in a few words."""
        counts = [
            format_count(int(about.get("samples") or 0), "sample") for about in self.manifest.get("data", {}).values()
        ]
        failed = self.failures.height
        metrics = format_count(len(self.contents.label_names), "metric")
        words = f"{self.contents.count_explainers()} x {metrics}, {' + '.join(counts) or 'no samples'}"
        return words + (f", {format_count(failed, 'failed job')}" if failed else "")

    def frame(self, metric: str | None = None) -> pl.DataFrame:
        """A row for each explainer, metric, repeat and sample.

        Args:
            metric: only the rows of this one, by its label or its name, such as `"worst case"`, with all of its
                columns that have a value. By default all metrics, with the columns that all of them have. The attribute
                `samples` has all columns of all metrics.

        Returns:
            By default the columns `explainer`, `label` (of the metric), `sample`, `value`, `low`, `high`, `bound`
            (whether the value is only a bound) and `status`; and `data`, `model` and `repeat` where there are several.
            `value` is as stored. A metric whose stored values explainers cannot be compared by, such as the corruption
            curve, has one more column with those that the table uses (`common_drop`), among all columns of the metric.

        Raises:
            UnknownNameError: there is no such metric.
        """
        if metric is None:
            return self._core()
        frame = self.contents.samples
        first, last = ([name for name in names if name in frame.columns] for names in (_FIRST, _LAST))
        frame = frame.select(*first, pl.exclude(*first, *last), *last).filter(pl.col("label").is_in(self._find(metric)))
        return frame.select(column for column in frame.get_columns() if column.null_count() < max(len(column), 1))

    def _core(self) -> pl.DataFrame:
        """All rows, with the columns that all metrics have."""
        frame = self.samples
        if "label" not in frame.columns:
            return frame
        bound = np.zeros(len(frame), dtype=bool)
        labels = frame["label"].to_numpy()
        for name, label in self.contents.labels.items():
            rows = np.flatnonzero(labels == name)
            bound[rows] = label.spec.bounds(frame[rows])
        several = [name for name in _PLACES if name in frame.columns and frame[name].n_unique() > 1]
        frame = frame.with_columns(pl.Series("bound", bound, dtype=pl.Boolean))
        return frame.select(*(name for name in _CORE if name in frame.columns), *several)

    def _find(self, metric: str) -> list[str]:
        """The labels that a user's word for a metric stands for."""
        labels = self.contents.labels
        if metric in labels:
            return [metric]
        wanted = _simplify(metric)
        for found in (
            [label for label in labels if _simplify(label) == wanted],
            [label for label, known in labels.items() if _simplify(known.metric) == wanted],
        ):
            if found:
                return found
        raise UnknownNameError("metric", metric, labels)

    def table(self) -> pl.DataFrame:
        """A row for each explainer and metric.

        The columns are

        - `data`, `model`: only where there are several of them;
        - `explainer`, `metric` (its label);
        - `value`: the median over samples; `low`, `high`: its 95% interval (null or wider if there are few samples);
        - `verdict`: `"best"` (the best mean rank over the samples that all explainers have), `"tied"` (paired tests at
          5% do not show that it is worse than the best), `"worse"`, or `"undecided"` (the tests show no explainer to be
          worse than the best); null where there is nothing to compare;
        - `better`: whether a `"higher"` or a `"lower"` value is better, or null;
        - `samples`: how many samples count;
        - `against_controls`, `best_control`: only where controls were evaluated: `"beats"` (the tests show that the
          explainer is better than every control), `"worse"` (than some control) or `"undecided"`; and the control that
          it is furthest from beating;
        - `bound`: only where a median is not known exactly: it lies at or below (`"upper"`) or above (`"lower"`) the
          value;
        - `failure`: only where something failed: why.
        """
        rows = []
        against = {
            (*place, test.explainer): test for place, tests in self.contents.control_tests.items() for test in tests
        }
        for entry in list_entries(self.contents):
            middle = entry.middle
            test = against.get((entry.data, entry.model, entry.label, entry.explainer))
            number = None if middle is None or math.isnan(middle.value) else middle.value
            rows.append(
                {
                    **{name: getattr(entry, name) for name in ("data", "model", "explainer", "verdict")},
                    "metric": entry.label,
                    "value": number,
                    "low": None if middle is None else middle.low,
                    "high": None if middle is None else middle.high,
                    "better": entry.spec.direction,
                    "samples": 0 if middle is None else middle.count,
                    "against_controls": None if test is None else test.verdict,
                    "best_control": None if test is None else test.control,
                    "bound": None if middle is None else middle.bound,
                    "failure": None,
                }
            )
        have = {(row["data"], row["model"], row["metric"], row["explainer"]): row for row in rows}
        for job in self.failures.iter_rows(named=True):
            key = (job["data"], job["model"], job["label"], job["explainer"])
            row = have.setdefault(key, dict(zip(("data", "model", "metric", "explainer"), key, strict=True)))
            row.setdefault("samples", 0)
            row["failure"] = shorten_error(job["error"])
        found = pl.DataFrame(list(have.values()), schema=TABLE)
        several = {"data": len(self.contents.data) > 1, "model": len(self.contents.models) > 1}
        hidden = [name for name in _OPTIONAL if not several.get(name, bool(found[name].is_not_null().any()))]
        hidden += [name for name in ("data", "model") if not several[name] and name not in hidden]
        return found.drop(hidden)

    def best(self, data: str | None = None, model: str | None = None) -> dict[str, Best]:
        """The best explainers by each metric that ranks them, and whether the tests show it.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given.
        """
        pairs = self.contents.pairs
        for what, given, place in (("data", data, 0), ("model", model, 1)):
            names = list(dict.fromkeys(pair[place] for pair in pairs))
            check(given is None or given in names, what, f"one of {', '.join(names)}", repr(given))
            pairs = [pair for pair in pairs if given in (None, pair[place])]
        known = "; ".join(f"data={data!r}, model={model!r}" for data, model in pairs)
        check(len(pairs) <= 1, "data, model", f"one of several: {known}", "none")
        return {label: best for pair in pairs for label, best in self._best(*pair)}

    def _best(self, data: str, model: str) -> Iterator[tuple[str, Best]]:
        for label in self.contents.labels:
            comparison = self.contents.comparisons.get((data, model, label))
            if comparison is not None and comparison.count > 0:
                names = tuple(comparison.names[place] for place in comparison.winner_set)
                yield label, Best(names, comparison.decided, comparison.count)

    def plot(self, data: str | None = None, model: str | None = None) -> list[Axes]:
        """Draw a panel for each metric with matplotlib: the median and its interval for each explainer.

        Args:
            data, model: only these; by default all, in rows.

        Returns:
            The axes, a row of panels for each data set and model.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        rows = []
        for pair in self.contents.pairs:
            if data in (None, pair[0]) and model in (None, pair[1]):
                entries = [entry for entry in list_entries(self.contents) if (entry.data, entry.model) == pair]
                rows.append([_panel(label, entries, self.contents) for label in self.contents.labels])
        check(any(rows), "data, model", "names of the results", f"{data!r}, {model!r}")
        names = [self.contents.where(*pair) for pair in self.contents.pairs]
        return plot_panels([panel for row in rows for panel in row], names if len(rows) > 1 else ())

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report as one self-contained file, and return its path."""
        return Report(self).to_html(path)


def load_results(results: str | Path | Store) -> Findings:
    """Open the results in a folder or at an fsspec address.

    Raises:
        ArgumentError: there are none.
    """
    return as_findings(load_stored(results))


def as_findings(results: Results) -> Findings:
    """The same results, as findings."""
    if isinstance(results, Findings):
        return results
    return Findings(**{field.name: getattr(results, field.name) for field in dataclasses.fields(results)})


def list_entries(
    contents: Contents, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> list[Entry]:
    """All entries, in the study's order of data, models, metrics and explainers.

    The tests are those of the report: Friedman's, then Wilcoxon's on all pairs with Holm's correction, at 5%, on the
    samples that have a value for every explainer.

    Args:
        contents: of stored results.
        statistic: `"median"`, which may be censored and whose interval needs no assumption; or `"mean"`, with a BCa
            bootstrap interval, for values of which none is censored.
        labels: the configured metrics to take; all by default.

    Raises:
        ArgumentError: no such label; a mean of censored values.
    """
    names = list(contents.labels)
    for label in labels or ():
        check(label in names, "labels", f"some of {', '.join(names)}", repr(label))
    found: list[Entry] = []
    for data, model in contents.pairs:
        for name in labels or names:
            metric, spec = contents.labels[name].metric, contents.labels[name].spec
            group = [
                Entry(data, model, explainer, name, metric, spec, statistic, take_middle(spec, rows, statistic))
                for explainer in contents.explainers
                if len(rows := contents.rows(data, model, name, explainer))
            ]
            found += _add_ranks(group, contents.comparisons.get((data, model, name)))
    return found


def take_middle(spec: ValueSpec, rows: pl.DataFrame, statistic: Statistic) -> Interval | None:
    """The median or mean over the samples of one explainer's rows, with its interval; None where no sample counts."""
    if statistic == "median":
        return estimate(spec, rows)
    rows = spec.select_valid(rows)
    if not len(rows):
        return None
    bounds = spec.bounds(rows)
    expected = "'median' where values are censored: no mean is taken over bounds"
    check(not bounds.any(), "statistic", expected, f"'mean' of {spec.column}, {int(bounds.sum())} of it censored")
    value = pl.col(spec.column).cast(pl.Float64).mean()
    means = rows.group_by("sample", maintain_order=True).agg(value)[spec.column].to_numpy()
    return bootstrap_interval(np.asarray(means), "mean")


def _add_ranks(group: list[Entry], comparison: Comparison | None) -> list[Entry]:
    """Add ranks, and where the tests decide something, which entries are best or tied with the best."""
    if comparison is None or comparison.count == 0:
        return group
    found, first = [], comparison.mean_ranks[comparison.order[0]]
    winners = {comparison.names[place] for place in comparison.winner_set}
    for entry in group:
        if entry.explainer in comparison.names:
            rank = float(comparison.mean_ranks[comparison.names.index(entry.explainer)])
            won = comparison.decided and entry.explainer in winners
            best = won and rank == first
            entry = dataclasses.replace(
                entry, mean_rank=rank, decided=comparison.decided, best=best, tied=won and not best
            )
        found.append(entry)
    return found


def _panel(label: str, entries: Sequence[Entry], contents: Contents) -> Panel:
    bars = {entry.explainer: entry for entry in entries if entry.label == label}
    spec = contents.labels[label].spec
    found = []
    for name in contents.explainers:
        entry, control = bars.get(name), name in contents.controls
        middle = None if entry is None else entry.middle
        if entry is None or middle is None or math.isnan(middle.value):
            found.append(Bar(name, control=control))
        else:
            mark = _MARKS.get(entry.verdict or "")
            found.append(Bar(name, middle.value, middle.low, middle.high, middle.bound, mark, control))
    return Panel(label, spec.axis, spec.direction, tuple(found))


# The table in words


@dataclass(frozen=True)
class _Column:
    """One metric of one table: its heading, what its values are, and a cell and a verdict for each explainer."""

    label: str
    axis: str
    better: str
    cells: dict[str, str]
    verdicts: dict[str, str | None]


def _columns(findings: Findings, data: str, model: str) -> list[_Column]:
    entries = [entry for entry in list_entries(findings.contents) if (entry.data, entry.model) == (data, model)]
    total = int((findings.manifest.get("data") or {}).get(data, {}).get("samples") or 0)
    failed = {
        (job["label"], job["explainer"])
        for job in findings.failures.iter_rows(named=True)
        if (job["data"], job["model"]) == (data, model)
    }
    found = []
    for label, known in findings.contents.labels.items():
        own = {entry.explainer: entry for entry in entries if entry.label == label}
        cells = {}
        for name in findings.contents.explainers:
            entry, broken = own.get(name), (label, name) in failed
            cells[name] = "-" if entry is None else _cell(entry, total)
            if broken:
                cells[name] = "failed" if cells[name] == "-" else f"{cells[name]}, partly failed"
        verdicts = {name: entry.verdict for name, entry in own.items()}
        direction = known.spec.direction
        found.append(_Column(label, known.spec.axis, f"{direction} is better" if direction else "", cells, verdicts))
    return found


def _cell(entry: Entry, total: int) -> str:
    middle, decimals = entry.middle, entry.spec.decimals
    if middle is None:
        return "-"
    text = _SIGNS.get(middle.bound or "", "") + _number(middle.value, decimals)
    if entry.spec.axis == "ln P" and math.isfinite(middle.value):
        words = describe_probability(middle.value, "at most " if middle.bound == "upper" else "")
        text += f" ({words.replace('−', '-')})"
    if middle.low is not None and middle.high is not None:
        low, high = _number(middle.low, decimals), _number(middle.high, decimals)
        if math.isinf(middle.low) and middle.low_bound is not None:
            low = f"below {_number(middle.low_bound, decimals)}"
        if math.isinf(middle.high) and middle.high_bound is not None:
            high = f"above {_number(middle.high_bound, decimals)}"
        text += f" [{low}, {high}]"
    return text + (f" n={middle.count}" if middle.count < total else "")


def _number(value: float, decimals: int | None) -> str:
    """A number in ASCII; three digits where `decimals` is None."""
    if not math.isfinite(value):
        return "?" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if decimals is None:
        return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:z.3g}"
    return f"{value:z.{decimals}f}"


def _title(findings: Findings, data: str, model: str) -> str:
    count = int((findings.manifest.get("data") or {}).get(data, {}).get("samples") or 0)
    return f"{findings.contents.count_explainers()} of {model} on {format_count(count, 'sample')} of {data}"


def _notes(findings: Findings, data: str, model: str, columns: Sequence[_Column]) -> list[str]:
    """What the marks mean, and what the table does not show."""
    used = {verdict for column in columns for verdict in column.verdicts.values()}
    parts = ["* best: the best mean rank over the samples that all explainers have"] if "best" in used else []
    parts += ["= not shown to be worse than the best (paired tests at 5%)"] if "tied" in used else []
    notes = ["; ".join(parts) + "."] if parts else []
    found = findings.contents.comparisons.items()
    here = {label: comparison for (d, m, label), comparison in found if (d, m) == (data, model)}
    ranks = [(label, _explain_median(findings, data, model, label)) for label in here]
    notes += [f"{label}: {note}" for label, note in ranks if note]
    notes += _explain_values(findings, data, model)
    reasons: dict[str, list[str]] = {}
    for label, known in findings.contents.labels.items():
        if not len(findings.contents.frame(data, model, label)) or known.spec.direction is None:
            continue
        view = findings.contents.view(data, model, label)
        decision = decide(here.get(label), known.spec.direction, len(view.candidates))
        if decision.mark in ("open", "unable"):
            reasons.setdefault(decision.text, []).append(label)
        if warning := words_of(known.presentation).caution(collect_facts(known.presentation, view)):
            notes.append(f"{label}: {warning}")
    for reason, labels in reasons.items():
        which = "any metric" if len(labels) == len(columns) > 1 else ", ".join(labels)
        notes.append(f"No mark for {which}: {reason}")
    return [note.replace("−", "-") for note in [*notes, *_explain_counts(findings, data, model)]]


def _explain_values(findings: Findings, data: str, model: str) -> list[str]:
    """What the tests say of explainers and controls, and what to know of the values, a line for each metric."""
    contents = findings.contents
    lines = []
    for label, known in contents.labels.items():
        frame, spec = contents.frame(data, model, label), known.spec
        said = describe_controls(contents.control_tests.get((data, model, label), []), spec.decimals)
        lost = len(frame) and len(spec.select_valid(frame)) < len(frame.filter(pl.col("status") == "ok"))
        caution = spec.caution if said or lost or (known.compared and len(frame)) else ""
        words = " ".join(filter(None, (said, caution)))
        lines += [f"{label}: {words}"] if words else []
    return lines


def _explain_counts(findings: Findings, data: str, model: str) -> list[str]:
    """Why samples do not count, a line for each reason and for those whom it concerns."""
    contents = findings.contents
    found: dict[tuple[str, str], list[str]] = {}
    for label in contents.labels:
        frame = contents.frame(data, model, label)
        if not len(frame):
            continue
        concerned: dict[str, list[str]] = {}
        spec, keys = contents.labels[label].spec, ("explainer", "repeat", "sample")
        empty = frame.join(spec.select_valid(frame), on=keys, how="anti", maintain_order="left")
        for (name, status), rows in empty.group_by("explainer", "status", maintain_order=True):
            count = rows["sample"].n_unique()
            words = f"{format_count(count, 'sample')} {({**_STATUS, 'ok': spec.empty}).get(str(status), status)}"
            reasons = rows["failure"].unique().to_list() if "failure" in rows.columns else [None]
            words += f": {shorten_error(reasons[0])}" if len(reasons) == 1 and reasons[0] else ""
            concerned.setdefault(words, []).append(str(name))
        evaluated = frame["explainer"].n_unique()  # controls are not evaluated by every metric
        for words, names in concerned.items():
            who = "every explainer" if len(names) == evaluated > 1 else ", ".join(names)
            found.setdefault((words, who), []).append(label)
    return [
        f"Not counted for {who}: {words}" + ("." if len(where) == len(contents.labels) else f" ({', '.join(where)}).")
        for (words, who), where in found.items()
    ]


def _explain_median(findings: Findings, data: str, model: str, label: str) -> str:
    view = findings.contents.view(data, model, label)
    comparison = findings.contents.comparisons.get((data, model, label))
    return explain_ranks(view, *find_best_median(view), comparison)


def _endings(findings: Findings, hint: bool) -> list[str]:
    """What was assumed, what failed or is missing, and, if `hint`, how to go on."""
    assumed = (findings.manifest.get("about") or {}).get("default neighbourhood")
    lines = [f"Neighbourhood: {assumed}."] if assumed else []
    lines += [f"Left out: {line}." for line in describe_misfits(findings.manifest.get("misfits") or {})]
    lines += [f"Failed: {line}" for line in describe_failures(findings)]
    if findings.missing > 0:
        lines.append(f"{findings.missing} of {format_count(findings.planned, 'job')} were not run yet.")
    return [*lines, HINT] if hint and len(findings.samples) else lines


def _interval_words(findings: Findings) -> str:
    middles = [entry.middle for entry in list_entries(findings.contents) if entry.middle is not None]
    known = [middle.coverage for middle in middles if middle.low is not None]
    if not known:
        return "Median over samples"
    least = min(known)
    return f"Median over samples [{'95%' if least >= 0.945 else f'interval of at least {least:.0%}'}]"


HINT = ".table() has these numbers, .best() the best explainers, .plot() draws them, .to_html() writes the report."


def format_text(findings: Findings, width: int | None = None, hint: bool = True) -> str:
    """The tables as text, and how to go on in Python, if `hint`.

    Lines have at most `width` characters where possible; by default the width of the terminal.
    """
    width = shutil.get_terminal_size((100, 24)).columns if width is None else width
    lines = []
    for data, model in findings.contents.pairs:
        columns = _columns(findings, data, model)
        lines += [f"{_title(findings, data, model)}. {_interval_words(findings)}:", ""]
        lines += _format_blocks(columns, findings.contents.explainers, width, findings.contents.controls)
        notes = [line for note in _notes(findings, data, model, columns) for line in textwrap.wrap(note, width)]
        lines += [*notes, ""] if notes else []
    if not lines:
        lines = ["No results yet.", ""]
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines + [line for note in _endings(findings, hint) for line in wrapper.wrap(note)])


def _wrap_head(name: str) -> list[str]:
    """A name in short lines, which break at spaces and underscores and never within a word."""
    lines = textwrap.wrap(name.replace("_", "_ "), _HEAD, break_long_words=False, break_on_hyphens=False)
    return [line.replace("_ ", "_") for line in lines]


def _format_blocks(
    columns: Sequence[_Column], explainers: Sequence[str], width: int, controls: Sequence[str] = ()
) -> list[str]:
    """The table, with the columns that do not fit below the others, where controls without any number are left out."""
    first = max((len(name) for name in explainers), default=0)
    blocks: list[list[tuple[list[str], dict[str, str], int]]] = [[]]
    used = first
    for column in columns:
        head = [*_wrap_head(column.label), *_wrap_head(column.axis)]
        head += [f"({column.better})"] if column.better else []
        cells = {n: f"{cell} {_MARKS.get(column.verdicts.get(n) or '', ' ')}" for n, cell in column.cells.items()}
        wide = max(2 + max(map(len, head)), *map(len, cells.values()))
        if blocks[-1] and used + 2 + wide > width:
            blocks.append([])
            used = first
        used += 2 + wide
        blocks[-1].append((head, cells, wide))
    lines = []
    for block in blocks:
        height = max((len(head) for head, _, _ in block), default=0)
        for at in range(height):
            words = (head[at] if at < len(head) else "" for head, _, _ in block)
            parts = (f"  {word:>{wide - 2}}  " for word, (_, _, wide) in zip(words, block, strict=True))
            lines.append((" " * first + "".join(parts)).rstrip())
        for name in explainers:
            if name in controls and all(cells[name].strip() == "-" for _, cells, _ in block):
                continue
            lines.append(
                (f"{name:<{first}}" + "".join(f"  {cells[name]:>{wide}}" for _, cells, wide in block)).rstrip()
            )
        lines.append("")
    return lines


def format_html(findings: Findings) -> str:
    """The tables as HTML for a notebook: no scripts, nothing from elsewhere, all names escaped."""
    parts = []
    for data, model in findings.contents.pairs:
        columns = _columns(findings, data, model)
        heads = "".join(
            f"<th style='text-align:right'>{html.escape(c.label)}<br><small style='font-weight:normal'>"
            f"{html.escape(c.axis)}{f'<br>{c.better}' if c.better else ''}</small></th>"
            for c in columns
        )
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            + "".join(_html_cell(column, name) for column in columns)
            + "</tr>"
            for name in findings.contents.explainers
        )
        title = f"{_title(findings, data, model)}. {_interval_words(findings)}."
        parts.append(
            f"<p>{html.escape(title)}</p><div style='overflow-x:auto'><table><thead><tr><th></th>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )
        parts += [f"<p><small>{html.escape(note)}</small></p>" for note in _notes(findings, data, model, columns)]
    parts += [f"<p>{html.escape(line)}</p>" for line in _endings(findings, hint=True)]
    return f"<div>{''.join(parts) or '<p>No results yet.</p>'}</div>"


def _html_cell(column: _Column, name: str) -> str:
    verdict = column.verdicts.get(name) or ""
    text = html.escape(column.cells[name]) + (f" {_MARKS[verdict]}" if verdict in _MARKS else "")
    return f"<td style='text-align:right;white-space:nowrap'>{f'<b>{text}</b>' if verdict == 'best' else text}</td>"


def _simplify(name: str) -> str:
    return " ".join(name.replace("_", " ").lower().split())
