"""Docstrings for the site, an extension of griffe: doctest examples become blocks of code. See mkdocs.yml."""

from __future__ import annotations

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Fences around every paragraph of a docstring that begins with `>>>`."""

    def on_instance(self, *, obj: griffe.Object, **options: Any) -> None:
        """Called for everything that has been read from source."""
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)


def fence_examples(text: str) -> str:
    r"""The text with its examples fenced.

    >>> fence_examples("Adds.\n\n>>> 1 + 1\n2")
    'Adds.\n\n\n```pycon\n>>> 1 + 1\n2\n```'
    """
    lines, inside = list[str](), False
    for line in [*text.splitlines(), ""]:
        begins = line.startswith(">>> ") and not inside
        if begins or (inside and not line.strip()):
            inside = begins
            lines += ["", "```pycon"] if begins else ["```"]
        lines.append(line)
    return "\n".join(lines[:-1])
