"""The numbers of a study as a section of a model card: metadata in the format of Hugging Face, and Markdown.

The metadata are a `model-index`, which the hub reads from the beginning of a README.md. Source of the format: the model
card specification of huggingface_hub, version 1.
"""

from __future__ import annotations

import io
import math
from typing import Any

from ruamel.yaml import YAML

from standfast.checks.decision import Decisions
from standfast.checks.formats import escape_markdown, format_markdown
from standfast.report.sentences import say
from standfast.results import Results, SummaryRow
from standfast.results.formatting import format_count, format_coverage, format_estimate, format_interval


def write_model_card(results: Results, decisions: Decisions | None = None) -> str:
    """The section, with the metadata at its beginning."""
    rows = [row for row in results.summary.rows if row.estimate is not None]
    names = {(row.data, row.model) for row in rows}
    lines = [
        "---",
        _write_metadata(rows).rstrip(),
        "---",
        "",
        "## How far explanations can be trusted",
        "",
    ]
    version = (results.manifest.get("environment") or {}).get("standfast", "?")
    lines.append(
        f"Measured with standfast {version}. Values are medians over samples, with 95% intervals; where few samples"
        " give less, the confidence follows the interval. Each line says whether higher or lower values are better."
        " Intervals treat the samples as drawn at random from those of later use."
    )
    for data, model in sorted(names):
        samples = format_count(results.summary.samples.get(data, 0), "sample")
        lines += [
            "",
            f"### {escape_markdown(model)} on {escape_markdown(data)} ({samples})",
            "",
        ]
        lines += [escape_markdown(str(results.verdict(data, model))), ""]
        heads = ("metric", "explainer", "value", "better", "verdict", "quality")
        lines += [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
        for row in (row for row in rows if (row.data, row.model) == (data, model)):
            control = " (control)" if row.control else ""
            direction, verdict = row.spec.direction or "-", row.verdict or "-"
            quality = say("quality", row.quality) if row.quality else "-"
            cells = (row.label, f"{row.explainer}{control}", _describe_value(row), direction, verdict, quality)
            lines.append("| " + " | ".join(map(escape_markdown, cells)) + " |")
    if decisions is not None:
        lines += ["", "### Requirements", "", format_markdown(decisions).rstrip()]
    lines += [
        "",
        "### Limits",
        "",
        "- The numbers hold for these samples, this model and these neighbourhoods. They say nothing about other data.",
        "- A map that is stable is not therefore right: compare with the controls, and read what each metric asks.",
        *_list_failures(results),
    ]
    return "\n".join(lines) + "\n"


def _list_failures(results: Results) -> list[str]:
    lost = len(results.failures) + results.missing
    return [f"- {lost} of {results.planned} parts of the evaluation failed or are missing."] if lost else []


def _describe_value(row: SummaryRow) -> str:
    estimate, decimals = row.estimate, row.spec.decimals
    assert estimate is not None
    text = format_estimate(estimate, decimals)
    interval = format_interval(estimate, decimals)
    text += f" {interval}{format_coverage(estimate)}" if interval else ""
    return f"{text}, n = {estimate.count}"


def _write_metadata(rows: list[SummaryRow]) -> str:
    """A `model-index` as YAML: a result for each model and data set, a metric for each explainer and metric."""
    models: dict[str, dict[str, list[SummaryRow]]] = {}
    for row in rows:
        models.setdefault(row.model, {}).setdefault(row.data, []).append(row)
    index: list[dict[str, Any]] = []
    for model, by_data in models.items():
        results = []
        for data, own in by_data.items():
            metrics = []
            for row in own:
                middle = row.estimate
                if middle is None or not math.isfinite(middle.value) or middle.bound is not None:
                    continue  # the format has no place for a bound; the table has it
                ends = [_finite(middle.low), _finite(middle.high)]
                coverage = None if middle.low is None else _finite(middle.coverage)
                interval = {"interval": ends, "coverage": coverage, "samples": middle.count}
                metrics.append(
                    {
                        "type": row.metric,
                        "name": f"{row.label} ({row.explainer})",
                        "value": float(f"{middle.value:z.6g}"),
                        "args": {"statistic": "median", **interval},
                    }
                )
            if metrics:
                task = {"type": "other", "name": "explanation of a classifier"}
                results.append({"task": task, "dataset": {"name": data, "type": data}, "metrics": metrics})
        if results:
            index.append({"name": model, "results": results})
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump({"tags": ["explainability", "standfast"], "model-index": index}, text)
    return text.getvalue()


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:z.6g}")
