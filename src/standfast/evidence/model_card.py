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
from standfast.checks.formats import fill_page, format_markdown
from standfast.report.sentences import describe_verdict, say
from standfast.report.wording import describe_changes
from standfast.results import StoredResults, SummaryRow
from standfast.results.formatting import format_confidence, format_count, format_estimate


def write_model_card(results: StoredResults, decisions: Decisions | None = None) -> str:
    """The section, with the metadata at its beginning."""
    rows = [row for row in results.summary.rows if row.estimate is not None]
    parts = []
    # sorted, so that the page does not depend on the order of the results
    pairs = {(row.data, row.model) for row in rows}
    for data, model in sorted(pairs):
        part = {
            "data": data,
            "model": model,
            "samples": format_count(results.summary.samples.get(data, 0), "sample"),
            "verdict": describe_verdict(results.verdict(data, model)),
            "rows": [_list_cells(row) for row in rows if (row.data, row.model) == (data, model)],
        }
        parts.append(part)
    return fill_page(
        "MODEL_CARD.md",
        metadata=_write_metadata(rows).rstrip(),
        changes=describe_changes(results),
        version=(results.manifest.get("environment") or {}).get("standfast", "?"),
        parts=parts,
        requirements=None if decisions is None else format_markdown(decisions).rstrip(),
        lost=len(results.failures) + results.missing,
        planned=results.planned,
    )


def _list_cells(row: SummaryRow) -> tuple[str, ...]:
    explainer = f"{row.explainer}{' (control)' * row.control}"
    quality = say("quality", row.quality) if row.quality else "-"
    return (
        row.label,
        explainer,
        _describe_value(row),
        row.spec.direction or "-",
        row.standing or "-",
        quality,
    )


def _describe_value(row: SummaryRow) -> str:
    estimate = row.estimate
    decimals = row.spec.decimals
    assert estimate is not None
    confidence = format_confidence(estimate, decimals)
    text = f"{format_estimate(estimate, decimals)} {confidence}".rstrip()
    return f"{text}, n = {estimate.count}"


def _write_metadata(rows: list[SummaryRow]) -> str:
    """A `model-index` as YAML: a result for each model and data set, a metric for each explainer and metric."""
    metrics: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        middle = row.estimate
        if middle is None or not math.isfinite(middle.value) or middle.bound is not None:
            continue  # the format has no place for a bound; the table has it
        coverage = None
        if middle.low is not None:
            coverage = _finite(middle.coverage)
        metric = {
            "type": row.metric,
            "name": f"{row.label} ({row.explainer})",
            "value": _finite(middle.value),
            "args": {
                "statistic": "median",
                "interval": [_finite(middle.low), _finite(middle.high)],
                "coverage": coverage,
                "samples": middle.count,
            },
        }
        metrics_of_model = metrics.setdefault(row.model, {})
        metrics_of_model.setdefault(row.data, []).append(metric)
    index = []
    for model, metrics_by_data in metrics.items():
        model_results = []
        for data, metrics_of_data in metrics_by_data.items():
            # the hub has no type for explanations
            task = {"type": "other", "name": "explanation of a classifier"}
            model_results.append(
                {"task": task, "dataset": {"name": data, "type": data}, "metrics": metrics_of_data}
            )
        index.append({"name": model, "results": model_results})
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump({"tags": ["explainability", "standfast"], "model-index": index}, text)
    return text.getvalue()


def _finite(value: float | None) -> float | None:
    # JSON and YAML of the hub have no infinity
    if value is None or not math.isfinite(value):
        return None
    # `z` writes no minus zero
    return float(f"{value:z.6g}")
