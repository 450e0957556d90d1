"""Decisions on requirements as a table, Markdown, JSON and JUnit XML, for people and for other programs."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from standfast.checks.decision import (
    Decisions,
    describe_estimate,
    describe_notes,
    describe_outcome,
    format_text,
)
from standfast.report.words import make_environment

if TYPE_CHECKING:
    import jinja2

#: the version of the JSON form
SCHEMA = 1


def format_markdown(decisions: Decisions) -> str:
    """A table for a pull request."""
    rows = [
        (decision, describe_estimate(decision), describe_notes(decision))
        for decision in decisions.decisions
    ]
    return fill_page(
        "check.md",
        "standfast.checks",
        outcome=describe_outcome(decisions),
        rows=rows,
        errors=decisions.errors,
    )


def fill_page(name: str, package: str = "standfast.evidence", **values: Any) -> str:
    """The text of a template of Markdown in a package, such as `"README.md"`, with its values.

    >>> fill_page("README.md", version="1", date="2026-11-27", title="a|b", decided=False)[17:84]
    'Made by standfast 1 on 2026-11-27 from the results of a study: a\\\\|b'
    """
    return _prepare_pages(package).get_template(name).render(values)


@cache
def _prepare_pages(package: str) -> jinja2.Environment:
    """Jinja for the Markdown of a package, which keeps what it has compiled."""
    # Markdown is no HTML; cells are escaped below
    pages = make_environment(autoescape=False, package=package)
    # escapes what comes from elsewhere, as Markdown needs it
    pages.filters["cell"] = escape_markdown
    return pages


def escape_markdown(text: str) -> str:
    """A text as a part of a line of Markdown or of a cell: no HTML, no links, no end of the cell.

    >>> print(escape_markdown("a|b\\n<script> [here](javascript:x)"))
    a\\|b &lt;script> [here]\\(javascript:x)
    """
    # the backslash first, or it would escape the signs that follow
    for old, new in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("`", "\\`"),
        ("](", "]\\("),
        ("&", "&amp;"),
        ("<", "&lt;"),
    ):
        text = text.replace(old, new)
    return " ".join(text.split())


def to_plain(decisions: Decisions) -> dict[str, Any]:
    """All decisions as plain values, for JSON."""
    rows = []
    for decision in decisions.decisions:
        estimate = decision.estimate
        sanity = decision.baseline_sanity
        row = dict(vars(decision))
        row["limit"] = _finite(decision.limit)
        if estimate is not None:
            row["estimate"] = {name: _finite(number) for name, number in vars(estimate).items()}
        if sanity is not None:
            row["baseline_sanity"] = asdict(sanity)
        rows.append(row)
    return {
        "standfast_check": SCHEMA,
        "outcome": decisions.outcome,
        "exit_code": decisions.exit_code,
        "look": decisions.look,
        "failed_jobs": decisions.failed,
        "errors": list(decisions.errors),
        "samples": decisions.samples,
        "decisions": rows,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None


def format_json(decisions: Decisions) -> str:
    """`to_plain` as text; open ends of intervals are null."""
    # NaN is refused, as other programs may not read it
    return json.dumps(to_plain(decisions), indent=1, allow_nan=False) + "\n"


def format_junit(decisions: Decisions) -> str:
    """JUnit XML: a failed requirement is a failure, an undecided one is skipped."""
    outcomes = [decision.outcome for decision in decisions.decisions]
    counts = {
        "tests": len(outcomes),
        "failures": outcomes.count("fail"),
        "skipped": outcomes.count("undecided"),
        "errors": decisions.failed,
    }
    attributes = {name: str(count) for name, count in counts.items()}
    suite = ET.Element("testsuite", {"name": "standfast check", **attributes})
    for decision in decisions.decisions:
        case_attributes = {
            "classname": _printable(f"standfast.{decision.metric}"),
            "name": _printable(decision.name),
        }
        case = ET.SubElement(suite, "testcase", case_attributes)
        text = _printable(
            # XML has no control characters
            "; ".join(filter(None, (describe_estimate(decision), describe_notes(decision))))
        )
        if decision.outcome == "fail":
            ET.SubElement(case, "failure", message=text)
        elif decision.outcome == "undecided":
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
    "text": lambda decisions: format_text(decisions) + "\n",
    "json": format_json,
    "junit": format_junit,
    "markdown": format_markdown,
}
