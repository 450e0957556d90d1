"""Results for other programs: data frames, CSV, LaTeX tables, and numbers for experiment trackers.

`Results.samples` has a row for each sample, with all columns, and `summary` a row for each explainer and configured
metric, with the median and its interval. Both are frames of polars, which writes them as Parquet (`write_parquet`) and
makes frames of pandas (`to_pandas`).

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
>>> list(scalars(found))[:4]
['max_sens/saliency/count', 'max_sens/saliency/median', 'max_sens/saliency/low', 'max_sens/saliency/high']
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.exports.latex import to_latex
from standfast.report.next_steps import describe_steps
from standfast.report.sentences import describe_verdict
from standfast.results import StoredResults, SummaryRow
from standfast.results.tables import make_frame

__all__ = ["list_verdicts", "scalars", "summary", "to_csv", "to_json", "to_latex"]

#: how the name of a median goes on, by the bound that it is
_SIDES = {None: "", "upper": "_at_most", "lower": "_at_least", "unknown": "_unknown"}


def summary(results: StoredResults) -> pl.DataFrame:
    """One row per data set, model, explainer and configured metric.

    The columns are

    - `data`, `model`, `explainer`, `label`, `metric`;
    - `column`: which column of the samples was summarised; `better`: `"higher"`, `"lower"` or null;
    - `value`: the median over `count` samples; `low`, `high`: its interval, with the confidence `coverage`;
    - `bound`: `"upper"` if the median lies at or below `value`, `"lower"` if at or above it, `"unknown"`, or null;
    - `mean_rank` over samples;
    - `verdict`, `quality`, `sanity`, `against_controls`, `best_control`, `failure`: as in `Results.table`.
    """
    return make_frame(results.summary.rows)


def to_csv(frame: pl.DataFrame) -> str:
    """A frame as CSV with a header; null is an empty cell.

    A text that a spreadsheet would take for a formula, such as a name that begins with `=`, gets a `'` before it.

    >>> to_csv(pl.DataFrame({"explainer": ["=1+1"], "value": [-0.5]}))
    "explainer,value\\n'=1+1,-0.5\\n"
    """
    quoted = pl.col(pl.String).str.replace(r"^([=+\-@\t\r])", "'${1}")
    return frame.with_columns(quoted).write_csv()


def list_verdicts(results: StoredResults) -> list[dict[str, Any]]:
    """For each data set and model the verdict and its next steps, as values that JSON can hold.

    The keys are

    - `data`, `model`; `verdict`, in sentences;
    - `show`, `refuse`, `undecided`, `partial`, `unjudged`: names of explainers;
    - `next_steps`: a list of `kind`, `line`, `why`, `cost` (in words), `seconds` (null if they are not known),
      `explainers`, and `another_question`, for a step whose answer is none to what was asked.
    """
    listed: list[dict[str, Any]] = []
    for data, model in results.pairs:
        verdict = results.verdict(data, model)
        steps = [
            {
                "kind": step.kind,
                "line": step.line,
                "why": step.why,
                "cost": step.cost,
                "seconds": step.seconds,
                "explainers": list(step.explainers),
                "another_question": step.is_another_question,
            }
            for step in describe_steps(results, data, model)
        ]
        listed.append(
            {
                "data": data,
                "model": model,
                "verdict": describe_verdict(verdict),
                "show": list(verdict.show),
                "refuse": [ground.explainer for ground in verdict.refuse],
                "undecided": [ground.explainer for ground in verdict.undecided],
                "partial": [partial.explainer for partial in verdict.partial],
                "unjudged": list(verdict.unjudged),
                "next_steps": steps,
            }
        )
    return listed


def to_json(results: StoredResults) -> str:
    """`summary` and `list_verdicts` as one object of JSON; what is not finite is null."""
    frame = summary(results)
    rows = [_replace_infinite(row) for row in frame.iter_rows(named=True)]
    content = {"summary": rows, "verdicts": list_verdicts(results)}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _replace_infinite(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with null for what is not finite, which JSON does not have."""
    plain = dict(row)
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            plain[key] = None
    return plain


def scalars(results: StoredResults) -> dict[str, float]:
    """The summary's finite numbers by name, for experiment trackers, such as `mlflow.log_metrics(scalars(found))`.

    The names are `label/explainer/median`, `.../low`, `.../high`, `.../count` and `.../mean_rank`.
    They begin with the data set and the model where there are several of either.
    Characters that not all trackers accept become underscores.
    A median that is only bounded is called `median_at_most` or `median_at_least`.
    """
    rows = results.summary.rows
    several_data = len({row.data for row in rows}) > 1
    several_models = len({row.model for row in rows}) > 1
    named: dict[str, float] = {}
    for row in rows:
        parts = [row.label, row.explainer]
        if several_models:
            parts = [row.model, *parts]
        if several_data:
            parts = [row.data, *parts]
        # a slash would begin a group, and MLflow accepts no other signs
        allowed = [re.sub(r"[^A-Za-z0-9_\-. :]", "_", part) for part in parts if part]
        name = "/".join(allowed)
        named |= {f"{name}/{key}": value for key, value in _list_numbers(row).items()}
    return named


def _list_numbers(row: SummaryRow) -> dict[str, float]:
    """The finite numbers of a row by name."""
    estimate = row.estimate
    if estimate is None:
        return {"count": 0.0}
    numbers = {
        "count": float(estimate.count),
        f"median{_SIDES[estimate.bound]}": estimate.value,
        "mean_rank": row.mean_rank,
        "low": estimate.low,
        "high": estimate.high,
    }
    return {
        name: number
        for name, number in numbers.items()
        if number is not None and math.isfinite(number)
    }
