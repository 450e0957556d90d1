"""Decisions on requirements as a table, Markdown, JSON and JUnit XML, for people and for other programs."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from standfast.checks.decision import Decisions, describe_estimate, describe_notes, describe_outcome, format_text

#: the version of the JSON form
SCHEMA = 1


def format_markdown(found: Decisions) -> str:
    """A table for a pull request."""
    lines = [
        f"**{describe_outcome(found)}**",
        "",
        "| | requirement | explainer | data, model | found |",
        "|---|---|---|---|---|",
    ]
    marks = {"pass": "✅ pass", "fail": "❌ fail", "undecided": "❔ undecided"}
    for each in found.decisions:
        notes = describe_notes(each)
        cells = (
            marks[each.outcome],
            each.requirement,
            each.explainer,
            f"{each.data}, {each.model}",
            describe_estimate(each) + (f" ({notes})" if notes else ""),
        )
        lines.append("| " + " | ".join(escape_markdown(cell) for cell in cells) + " |")
    lines += ["", *(f"- {escape_markdown(error)}" for error in found.errors)] if found.errors else []
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """A text as a part of a line of Markdown or of a cell: no HTML, no links, no end of the cell.

    >>> print(escape_markdown("a|b\\n<script> [here](javascript:x)"))
    a\\|b &lt;script> [here]\\(javascript:x)
    """
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("`", "\\`"), ("](", "]\\("), ("&", "&amp;"), ("<", "&lt;")):
        text = text.replace(old, new)
    return " ".join(text.split())


def to_plain(found: Decisions) -> dict[str, Any]:
    """All decisions as plain values, for JSON."""
    decisions = []
    for each in found.decisions:
        estimate = None if each.estimate is None else {k: _finite(v) for k, v in vars(each.estimate).items()}
        content = {key: value for key, value in vars(each).items() if key != "estimate"}
        decisions.append({**content, "limit": _finite(each.limit), "estimate": estimate})
    return {
        "standfast_check": SCHEMA,
        "outcome": found.outcome,
        "exit_code": found.exit_code,
        "look": found.look,
        "failed_jobs": found.failed,
        "errors": list(found.errors),
        "samples": found.samples,
        "decisions": decisions,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None


def format_json(found: Decisions) -> str:
    """`to_plain` as text; open ends of intervals are null."""
    return json.dumps(to_plain(found), indent=1, allow_nan=False) + "\n"


def format_junit(found: Decisions) -> str:
    """JUnit XML: a failed requirement is a failure, an undecided one is skipped."""
    counts = {key: sum(each.outcome == key for each in found.decisions) for key in ("fail", "undecided")}
    numbers = {"tests": len(found.decisions), "failures": counts["fail"], "skipped": counts["undecided"]}
    numbers["errors"] = found.failed
    suite = ET.Element("testsuite", {"name": "standfast check", **{key: str(value) for key, value in numbers.items()}})
    for each in found.decisions:
        names = {"classname": f"standfast.{each.metric}", "name": each.name}
        case = ET.SubElement(suite, "testcase", {key: _printable(name) for key, name in names.items()})
        text = _printable("; ".join(filter(None, (describe_estimate(each), describe_notes(each)))))
        if each.outcome == "fail":
            ET.SubElement(case, "failure", message=text)
        elif each.outcome == "undecided":
            ET.SubElement(case, "skipped", message=f"undecided: {text}")
        ET.SubElement(case, "system-out").text = text
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML 1.0 has no control characters."""
    return "".join(char if char.isprintable() else "?" for char in text)


#: by the name of the format
FORMATS: dict[str, Callable[[Decisions], str]] = {
    "text": lambda found: format_text(found) + "\n",
    "json": format_json,
    "junit": format_junit,
    "markdown": format_markdown,
}
