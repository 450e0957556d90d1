"""A page for each kind of data has the structure and the numbers that are stored, whatever its words are.

After a change on purpose, `python tests/report/test_stored_pages.py` stores them again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "stand_ins"))
from report_builder import Builder, assert_whole

FOLDER = Path(__file__).parent / "stored_pages"
SHAPES = {"images": (1, 6, 6), "series": (2, 12), "tables": (7,), "text": (3, 5), "words": (5,)}
#: elements of the structure, and those whose numbers count
PARTS = (
    "section",
    "details",
    "figure",
    "table",
    "article",
    "nav",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "img",
)
NUMBERS = ("td", "th", "dd")


def make_page(kind: str, folder: Path) -> str:
    """The report of three explainers and a control by three metrics."""
    builder, rng = Builder(folder), np.random.default_rng(0)
    for place, name in enumerate(("saliency", "lrp", "gradcam", "random")):
        noise = rng.normal(0, 0.08, 8)
        swaps = {"swapped_words": ['{"2": "good", "3": ""}'] * 8} if kind == "words" else None
        builder.worst(name, (0.2 + 0.2 * place + noise).tolist(), shape=SHAPES[kind], more=swaps)
        values = np.maximum(-20.0, -4.0 - 6 * place + 20 * noise)
        builder.probability(name, values.tolist(), censored=(values <= -20.0).tolist())
        builder.other(name, (place + noise).tolist())
    about = builder.names["data"]["digits"]
    about["features"] = (
        [f"name {place}" for place in range(7)] if kind in ("series", "tables") else []
    )
    about["tokens"] = [["not", "so", "bad", "at", "all"]] * 8 if kind in ("text", "words") else []
    about["texts"] = kind == "words"
    return builder.page()


class Outline(HTMLParser):
    """The structure of a page, indented, and the numbers in its tables, pictures and descriptions of charts."""

    def __init__(self) -> None:
        super().__init__()
        self.structure: list[str] = []
        self.numbers: list[float] = []
        self.open: list[str] = []
        self.reading = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a part of the structure, and numbers of attributes."""
        values = dict(attrs)
        drawing = "drawing" in (values.get("class") or "").split()
        if tag in PARTS or drawing:
            names = [tag, *(f".{each}" for each in (values.get("class") or "").split())]
            self.structure.append(
                "  " * len(self.open)
                + "".join(names)
                + (f"#{values['id']}" if "id" in values else "")
            )
        if tag in PARTS and tag != "img":
            self.open.append(tag)
        self.reading += tag in NUMBERS
        if "chart" in (values.get("class") or "").split():
            self._read(values.get("aria-label") or "")
        self._read(values.get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        """Close a part."""
        if tag in PARTS:
            self.open.pop()
        self.reading -= tag in NUMBERS

    def handle_data(self, data: str) -> None:
        """Note numbers of cells."""
        if self.reading:
            self._read(data)

    def _read(self, text: str) -> None:
        self.numbers += [
            float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))
        ]


def outline(page: str) -> dict[str, Any]:
    parser = Outline()
    parser.feed(page)
    return {"structure": parser.structure, "numbers": parser.numbers}


@pytest.mark.parametrize("kind", SHAPES)
def test_structure_and_numbers_are_the_stored_ones(kind: str, tmp_path: Path) -> None:
    page = make_page(kind, tmp_path)
    assert_whole(page)
    found = outline(page)
    stored = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    assert found["structure"] == stored["structure"]
    assert found["numbers"] == pytest.approx(stored["numbers"], rel=1e-6)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in SHAPES:
        with tempfile.TemporaryDirectory() as place:
            text = json.dumps(outline(make_page(each, Path(place))), indent=0, ensure_ascii=False)
        (FOLDER / f"{each}.json").write_text(
            re.sub(r"(?<=\d),\n", ", ", text) + "\n", encoding="utf-8"
        )
