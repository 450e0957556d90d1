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
from standfast.checks.formats import format_markdown
from standfast.findings import Entry, Findings, list_entries
from standfast.report.summary import describe_coverage
from standfast.results.formatting import describe_probability, format_count, format_number


def write_model_card(findings: Findings, decisions: Decisions | None = None) -> str:
    """The section, with the metadata at its beginning."""
    entries = [each for each in list_entries(findings.contents) if each.middle is not None]
    names = {(entry.data, entry.model) for entry in entries}
    lines = [
        "---",
        _write_metadata(findings, entries).rstrip(),
        "---",
        "",
        "## How far explanations can be trusted",
        "",
    ]
    samples = {name: int(about.get("samples") or 0) for name, about in (findings.manifest.get("data") or {}).items()}
    version = (findings.manifest.get("environment") or {}).get("standfast", "?")
    lines.append(
        f"Measured with standfast {version}. Values are medians over samples, with 95% intervals; where few samples"
        " give less, the confidence follows the interval. Each line says whether higher or lower values are better."
        " Intervals treat the samples as drawn at random from those of later use."
    )
    for data, model in sorted(names):
        own = [entry for entry in entries if (entry.data, entry.model) == (data, model)]
        lines += ["", f"### {_escape(model)} on {_escape(data)} ({format_count(samples.get(data, 0), 'sample')})", ""]
        lines += ["| metric | explainer | value | better | verdict |", "| --- | --- | --- | --- | --- |"]
        for entry in own:
            control = " (control)" if entry.explainer in findings.contents.controls else ""
            direction, verdict = entry.spec.direction or "-", entry.verdict or "-"
            cells = (entry.label, f"{entry.explainer}{control}", _describe_value(entry), direction, verdict)
            lines.append("| " + " | ".join(map(_escape, cells)) + " |")
    if decisions is not None:
        lines += ["", "### Requirements", "", format_markdown(decisions).rstrip()]
    lines += [
        "",
        "### Limits",
        "",
        "- The numbers hold for these samples, this model and these neighbourhoods. They say nothing about other data.",
        "- A map that is stable is not therefore right: compare with the controls, and read what each metric asks.",
        *_list_failures(findings),
    ]
    return "\n".join(lines) + "\n"


def _list_failures(findings: Findings) -> list[str]:
    lost = findings.failures.height + findings.missing
    return [f"- {lost} of {findings.planned} parts of the evaluation failed or are missing."] if lost else []


def _describe_value(entry: Entry) -> str:
    middle, decimals = entry.middle, entry.spec.decimals
    assert middle is not None
    sign = {"upper": "at most ", "lower": "at least "}.get(middle.bound or "", "")
    text = sign + format_number(middle.value, decimals)
    if entry.spec.log_probability and math.isfinite(middle.value):
        text = f"ln P {text}, {describe_probability(middle.value, sign)}"
    if middle.low is not None and middle.high is not None:
        text += f" [{format_number(middle.low, decimals)}, {format_number(middle.high, decimals)}]"
        text += describe_coverage(middle)
    return f"{text}, n = {middle.count}"


def _write_metadata(findings: Findings, entries: list[Entry]) -> str:
    """A `model-index` as YAML: a result for each model and data set, a metric for each explainer and metric."""
    models: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        models.setdefault(entry.model, {}).setdefault(entry.data, []).append(entry)
    index: list[dict[str, Any]] = []
    for model, by_data in models.items():
        results = []
        for data, own in by_data.items():
            metrics = []
            for entry in own:
                middle = entry.middle
                if middle is None or not math.isfinite(middle.value) or middle.bound is not None:
                    continue  # the format has no place for a bound; the table has it
                ends = [_finite(middle.low), _finite(middle.high)]
                coverage = None if middle.low is None else _finite(middle.coverage)
                interval = {"interval": ends, "coverage": coverage, "samples": middle.count}
                metrics.append(
                    {
                        "type": entry.metric,
                        "name": f"{entry.label} ({entry.explainer})",
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


def _escape(text: str) -> str:
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("\n", " ")):
        text = text.replace(old, new)
    return text
