"""Is a report there and whole? Used by continuous integration after `make demo`."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main() -> None:
    """Exit with a message where something is missing."""
    path = Path(sys.argv[1])
    if not path.exists():
        sys.exit(f"{path}: there is no report")
    text = path.read_text()
    problems = []
    if not text.rstrip().endswith("<!-- holdfast report: complete -->"):
        problems.append("it does not end with its last line")
    if 'name="holdfast-report" content="complete"' not in text:
        problems.append("its head is not marked as complete")
    for needed in ("integrated gradients", "input x gradient", "Grad-CAM", "<svg", "data:image/png"):
        if needed not in text:
            problems.append(f"it lacks {needed!r}")
    if re.search(r"""(?:src|href)=["']https?://""", text):
        problems.append("it loads something from outside")
    if problems:
        sys.exit(f"{path}: " + "; ".join(problems))


if __name__ == "__main__":
    main()
