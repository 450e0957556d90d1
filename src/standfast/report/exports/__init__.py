"""Results for other programs: data frames, CSV and Parquet files, LaTeX tables, and numbers for experiment trackers.

Every function takes `Results`, which `evaluate`, `run_study` and `load_results` return, or the address of results.
`frame`, `summary` and the functions that use them also take the `Result` of one metric. There are two forms of export:

- `"samples"`: one row per data, model, explainer, configured metric, repeat and sample, all columns;
- `"summary"`: one row per data, model, explainer and configured metric, a median (or mean) with its interval.

>>> import standfast
>>> digits = standfast.data.bundled("digits")[:3]
>>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
>>> metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=3)
>>> options = {"controls": False, "progress": False}
>>> found = standfast.evaluate(model, ["saliency", "random"], digits.inputs, {"max_sens": metric}, **options)
>>> summary(found).select("explainer", "label", "count").rows()
[('saliency', 'max_sens', 3), ('random', 'max_sens', 3)]
>>> table_of_both = to_latex(found, caption="Sensitivity", label="tab:sensitivity")
>>> print(table_of_both.splitlines()[1])
\\begin{table}
>>> list(scalars(metric(model, standfast.explainers.get("saliency"), digits.inputs)))
['max_sensitivity/count', 'max_sensitivity/median', 'max_sensitivity/low', 'max_sensitivity/high']
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from standfast.errors import check
from standfast.metrics.result import Result
from standfast.report.exports.latex import format_table
from standfast.report.exports.rows import Source, list_rows, open_results
from standfast.results.summary import Statistic
from standfast.results.tables import make_frame

__all__ = [
    "Source",
    "frame",
    "scalars",
    "summary",
    "to_csv",
    "to_latex",
    "to_parquet",
]

What = Literal["samples", "summary"]


def summary(
    source: Source | Result, *, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> pl.DataFrame:
    """One row per data set, model, explainer and configured metric.

    The columns are

    - `data`, `model`, `explainer`, `label`, `metric`;
    - `column`: which column of the samples was summarised; `better`: `"higher"`, `"lower"` or null;
    - `statistic`, its `value` over `count` samples; `low`, `high`: its interval, with the confidence `coverage`;
    - `bound`: `"upper"` if the statistic lies at or below `value`, `"lower"` if at or above it, `"unknown"`, or null;
    - `mean_rank` over samples;
    - `verdict`, `quality`, `sanity`, `against_controls`, `best_control`, `failure`: as in `Results.table`.

    Args:
        source: the results.
        statistic: `"median"` or `"mean"` over samples.
        labels: which configured metrics; all by default.

    Raises:
        ArgumentError: no such label; a mean of censored values.
    """
    return make_frame(list_rows(source, statistic, labels))


def frame(source: Source | Result, what: What = "samples", statistic: Statistic = "median") -> pl.DataFrame:
    """The rows that `to_csv` and `to_parquet` export; `frame(source).to_pandas()` is a frame of pandas."""
    check(what in ("samples", "summary"), "what", "'samples' or 'summary'", repr(what))
    if what == "summary":
        return summary(source, statistic=statistic)
    return source.frame() if isinstance(source, Result) else open_results(source).samples


def to_csv(
    source: Source | Result, path: str | Path | None = None, what: What = "samples", statistic: Statistic = "median"
) -> str:
    """The rows as CSV with a header; null is an empty cell. The text is also written to `path` (UTF-8), if given.

    A text that a spreadsheet would take for a formula, such as a name that begins with `=`, gets a `'` before it.
    """
    quoted = pl.col(pl.String).str.replace(r"^([=+\-@\t\r])", "'${1}")
    text = frame(source, what, statistic).with_columns(quoted).write_csv()
    if path is not None:
        _write(path, text.encode())
    return text


def to_parquet(
    source: Source | Result, path: str | Path, what: What = "samples", statistic: Statistic = "median"
) -> Path:
    """Write the rows as Parquet, which keeps the types of the columns, and return the path."""
    buffer = io.BytesIO()
    frame(source, what, statistic).write_parquet(buffer)
    return _write(path, buffer.getvalue())


def to_latex(
    source: Source | Result,
    path: str | Path | None = None,
    *,
    statistic: Statistic = "median",
    labels: Sequence[str] | None = None,
    caption: str | None = None,
    label: str | None = None,
    intervals: bool = True,
) -> str:
    """A LaTeX table for the package booktabs: a row per explainer, a column per configured metric.

    The explainer with the best mean rank is bold, where paired tests show another to be worse. A dagger marks those
    that the tests do not show to be worse than it, a double dagger those that do not pass the sanity checks, which are
    not ranked. Notes with these meanings and the number of samples are comments
    above the table, or part of the caption. The table of a single `Result` has no column for the explainer, whose name
    it does not know.

    Args:
        source: the results.
        path: where to write the table, if anywhere.
        statistic: `"median"` or `"mean"` over samples.
        labels: which configured metrics; all by default.
        caption: puts the table into a float with this caption; special characters are escaped.
        label: for `\\ref`, such as `tab:robustness`; it needs a caption.
        intervals: whether to print intervals, in brackets.

    Raises:
        ArgumentError: no such label; no results; a mean of censored values.
    """
    text = format_table(list_rows(source, statistic, labels), caption, label, intervals)
    if path is not None:
        _write(path, text.encode())
    return text


def scalars(
    source: Source | Result, *, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> dict[str, float]:
    """The summary's finite numbers by name, for experiment trackers, such as `mlflow.log_metrics(scalars(found))`.

    The names are `label/explainer/median`, `.../low`, `.../high`, `.../count` and `.../mean_rank`.
    They begin with the data set and the model where there are several of either.
    Characters that not all trackers accept become underscores.
    A median that is only bounded is called `median_at_most` or `median_at_least`.

    Args:
        source: the results.
        statistic: `"median"` or `"mean"` over samples.
        labels: which configured metrics; all by default.
    """
    rows = list_rows(source, statistic, labels)
    many_data, many_models = len({row.data for row in rows}) > 1, len({row.model for row in rows}) > 1
    named: dict[str, float] = {}
    for row in rows:
        where = [row.data] * many_data + [row.model] * many_models + [row.label, row.explainer]
        # a slash would begin a group, and MLflow accepts no other signs
        name = "/".join(re.sub(r"[^A-Za-z0-9_\-. :]", "_", part) for part in where if part)
        named[f"{name}/count"] = 0.0 if row.estimate is None else float(row.estimate.count)
        if row.estimate is not None:
            side = {None: "", "upper": "_at_most", "lower": "_at_least", "unknown": "_unknown"}[row.estimate.bound]
            values = {f"{row.statistic}{side}": row.estimate.value, "mean_rank": row.mean_rank}
            values |= {"low": row.estimate.low, "high": row.estimate.high}
            known = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
            named |= {f"{name}/{key}": value for key, value in known.items()}
    return named


def _write(path: str | Path, content: bytes) -> Path:
    from standfast.files import write_atomically

    path = Path(path)
    write_atomically(path, content)
    return path
