"""Is a report there and whole? Used by continuous integration after `make demo`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

LARGEST = 6_000_000  # bytes, of the demonstration's report


def problems(text: str) -> list[str]:
    """What is wrong with the page."""
    found = []
    if not text.rstrip().endswith("<!-- standfast report: complete -->"):
        found.append("it does not end with its last line")
    if 'name="standfast-report" content="complete"' not in text:
        found.append("its head is not marked as complete")
    for needed in (
        "integrated gradients",
        "input x gradient",
        "Grad-CAM",
        "<svg",
        "data:image/png",
        "vegaEmbed",
    ):
        if needed not in text:
            found.append(f"it lacks {needed!r}")
    if len(text.encode()) > LARGEST:
        found.append(f"it is larger than {LARGEST} bytes")
    for part in ("verdict", "comparison", "metrics", "reading", "explorer", "methods"):
        if not re.search(rf'<(?:section|details) id="{part}"', text):
            found.append(f"it lacks the section {part!r}")
    if not re.search(r'<p class="answer">[^<]*[a-z].*?<\/p>', text, flags=re.DOTALL):
        found.append("it answers no question")
    for content in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', text, flags=re.DOTALL
    ):
        try:
            json.loads(content)
        except ValueError as error:
            found.append(f"its data cannot be read: {error}")
    if re.search(r"""(?:\bsrc|<link[^>]*\bhref)=["']?(?:https?:)?//""", text):
        found.append("it loads something from outside")
    return found


def main() -> None:
    """Exit with a message where something is missing."""
    path = Path(sys.argv[1])
    if not path.exists():
        sys.exit(f"{path}: there is no report")
    if found := problems(path.read_text(encoding="utf-8")):
        sys.exit(f"{path}: " + "; ".join(found))


if __name__ == "__main__":
    main()
