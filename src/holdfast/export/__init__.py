"""Results for other programs: data frames, CSV and Parquet files, LaTeX tables, and numbers for experiment trackers.

Everything takes what `evaluate` or `run_study` returned, opened `Results`, a `Report`, or where results lie. Frames and
numbers are also to be had of the `Result` of one metric. What is exported has two forms:

- `"samples"`: one row per data, model, explainer, configured metric, repeat and sample, all columns;
- `"summary"`: one row per data, model, explainer and configured metric, a median (or mean) with its interval.

>>> import holdfast as hf
>>> digits = hf.data.bundled("digits")[:3]
>>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=digits.bounds)
>>> metric = hf.metrics.MaxSensitivity(hf.LinfBall(0.1), samples=3)
>>> found = hf.evaluate(classifier, ["saliency", "random"], digits.inputs, {"max_sens": metric}, progress=False)
>>> summary(found).select("explainer", "label", "count").rows()
[('saliency', 'max_sens', 3), ('random', 'max_sens', 3)]
>>> table_of_both = to_latex(found, caption="Sensitivity", label="tab:sensitivity")
>>> print(table_of_both.splitlines()[1])
\\begin{table}
>>> class Writer:  # or torch.utils.tensorboard.SummaryWriter()
...     def add_scalar(self, tag, value, step):
...         print(tag)
>>> _ = log_scalars(metric(classifier, hf.explainers.get("saliency"), digits.inputs), Writer())
max_sensitivity/median
max_sensitivity/low
max_sensitivity/high
max_sensitivity/count
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from holdfast.errors import MissingExtraError, check
from holdfast.export.latex import table
from holdfast.export.rows import Entry, Source, Statistic, entries, opened, summary_frame
from holdfast.export.trackers import Sink, scalars, send
from holdfast.metrics.result import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Entry",
    "Sink",
    "Source",
    "frame",
    "log_scalars",
    "summary",
    "to_csv",
    "to_latex",
    "to_pandas",
    "to_parquet",
]

What = Literal["samples", "summary"]


def summary(
    source: Source | Result, *, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> pl.DataFrame:
    """One row per data, model, explainer and configured metric.

    Columns: `data`, `model`, `explainer`, `label`, `metric`; `column`, the one of the samples that was summarised;
    `better` (`"higher"`, `"lower"` or null); `statistic`, its `value`, the interval from `low` to `high` with the
    confidence `coverage`, over `count` samples; `bound` (`"upper"`: the statistic lies at or below `value`, `"lower"`:
    at or above it, `"unknown"`); `mean_rank` over samples; `best` (none is surely better) and `tied` (not best, but by
    paired tests not shown to be worse).

    Args:
        source: the results.
        statistic: `"median"` or `"mean"` over samples.
        labels: the configured metrics to take; all by default.

    Raises:
        ArgumentError: no such label; a mean where values are censored.
    """
    return summary_frame(entries(source, statistic, labels))


def frame(source: Source | Result, what: What = "samples", statistic: Statistic = "median") -> pl.DataFrame:
    """The rows that `to_csv`, `to_parquet` and `to_pandas` export."""
    check(what in ("samples", "summary"), "what", "'samples' or 'summary'", repr(what))
    if what == "summary":
        return summary(source, statistic=statistic)
    return source.frame() if isinstance(source, Result) else opened(source).samples


def to_pandas(source: Source | Result, what: What = "samples", statistic: Statistic = "median") -> pd.DataFrame:
    """The rows as a pandas data frame; what is null here is NaN or None there."""
    try:
        for name in ("pandas", "pyarrow"):  # polars hands its columns over through Arrow
            importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("a pandas data frame", "export") from error
    return frame(source, what, statistic).to_pandas()


def to_csv(
    source: Source | Result, path: str | Path | None = None, what: What = "samples", statistic: Statistic = "median"
) -> str:
    """The rows as CSV with a header, UTF-8; null is empty, and NaN is NaN. Also written to `path`, if given."""
    text = frame(source, what, statistic).write_csv()
    if path is not None:
        _write(path, text.encode())
    return text


def to_parquet(
    source: Source | Result, path: str | Path, what: What = "samples", statistic: Statistic = "median"
) -> Path:
    """Write the rows as Parquet, which keeps the columns' types, and return where."""
    buffer = io.BytesIO()
    frame(source, what, statistic).write_parquet(buffer)
    return _write(path, buffer.getvalue())


def to_latex(
    source: Source,
    path: str | Path | None = None,
    *,
    statistic: Statistic = "median",
    labels: Sequence[str] | None = None,
    caption: str | None = None,
    label: str | None = None,
    intervals: bool = True,
) -> str:
    """A LaTeX table for the package booktabs: a row per explainer, a column per configured metric.

    Bold is the best point estimate, which need not mean much; a dagger marks those that paired tests do not show to be
    worse. Where values are bounds and none is surely the best, several are bold. The notes that say so, and over how
    many samples, are comments above the table, or part of the caption.

    Args:
        source: the results.
        path: also write it here.
        statistic: `"median"` or `"mean"` over samples.
        labels: the configured metrics to show; all by default.
        caption: wraps the table in a float with this caption; special characters are escaped.
        label: for `ref`, as `tab:robustness`.
        intervals: print them, in brackets.

    Raises:
        ArgumentError: no such label; nothing to show; a mean where values are censored.
    """
    text = table(entries(source, statistic, labels), caption, label, intervals)
    if path is not None:
        _write(path, text.encode())
    return text


def log_scalars(
    source: Source | Result,
    sink: Sink,
    *,
    step: int | None = None,
    statistic: Statistic = "median",
    labels: Sequence[str] | None = None,
    prefix: str = "",
) -> dict[str, float]:
    """Log the summary's numbers to an experiment tracker, and return them by name.

    Names are `label/explainer/median`, `.../low`, `.../high`, `.../count` and `.../mean_rank`, after data set and model
    where there are several of either; characters that not all trackers take become underscores. A median that is only
    bounded is named `median_at_most` or `median_at_least`; what is not finite is left out.

    Args:
        source: the results.
        sink: the module `mlflow` within a run; a `SummaryWriter` of TensorBoard; a run of Weights & Biases. Anything
            with `log_metrics(metrics, step=...)`, `add_scalar(tag, value, step)` or `log(data, step=...)`.
        step: of the training, if these results belong to one.
        statistic: `"median"` or `"mean"` over samples.
        labels: the configured metrics to log; all by default.
        prefix: put before every name, as `"holdfast/"`.

    Raises:
        ArgumentError: the sink has none of these methods.
    """
    named = {prefix + name: value for name, value in scalars(entries(source, statistic, labels)).items()}
    send(named, sink, step)
    return named


def _write(path: str | Path, content: bytes) -> Path:
    from holdfast.study.folders import write_atomically

    path = Path(path)
    write_atomically(path, content)
    return path
