"""The pages of an evidence pack that are made from templates."""

from __future__ import annotations

from typing import Any

from standfast.checks.formats import escape_markdown


def fill_page(name: str, **values: Any) -> str:
    """The text of a template, such as `"README.md"`, with its values.

    >>> fill_page("README.md", version="1", date="2026-11-27", title="a|b", decided=False)[17:84]
    'Made by standfast 1 on 2026-11-27 from the results of a study: a\\\\|b'
    """
    import jinja2

    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("standfast.evidence", "templates"),
        autoescape=False,  # `cell` escapes what comes from elsewhere, as Markdown needs it
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    pages.filters["cell"] = escape_markdown
    return pages.get_template(name).render(values)
