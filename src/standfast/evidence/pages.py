"""The pages of an evidence pack that are made from templates."""

from __future__ import annotations

from typing import Any

from standfast.checks.formats import escape_markdown
from standfast.report.words import make_environment


def fill_page(name: str, **values: Any) -> str:
    """The text of a template, such as `"README.md"`, with its values.

    >>> fill_page("README.md", version="1", date="2026-11-27", title="a|b", decided=False)[17:84]
    'Made by standfast 1 on 2026-11-27 from the results of a study: a\\\\|b'
    """
    pages = make_environment(autoescape=False, package="standfast.evidence")
    pages.filters["cell"] = escape_markdown  # escapes what comes from elsewhere, as Markdown needs it
    return pages.get_template(name).render(values)
