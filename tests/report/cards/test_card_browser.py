"""Cards in a real browser, without a network: one sheet of A4, and no scrolling sideways on a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from card_samples import (
    make_crowded,
    make_customer,
    make_image,
    make_passages,
    make_retrained,
    make_series,
    make_text,
    make_unvaried,
)

from standfast.report.cards import write_card
from standfast.results.reasons import Card

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    # playwright leaves a pipe and a loop to the garbage collector when its driver ends
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LONG = "With income 1,260 instead of 1,200, age is named in the place of town. " * 10
#: made when a test asks for one
CARDS: dict[str, Callable[[], Card]] = {
    "customer": make_customer,
    "coin": lambda: make_customer(60, 9),
    "retrained": make_retrained,
    "unvaried": make_unvaried,
    "image": make_image,
    "photo": lambda: make_image(224, 5018, 3),
    "series": lambda: make_series(6, 300),
    "text": make_text,
    "passages": make_passages,
    "long text": lambda: make_text([f"word{number}" for number in range(900)]),
    "crowded": lambda: replace(make_crowded(), answer="a class with a long name " * 4),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


#: the cards with the largest content of each kind; the others are shown by the slow tests
LARGEST = ("photo", "series", "long text", "crowded")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in LARGEST else pytest.mark.slow) for name in CARDS],
)
def test_a_card_prints_on_one_sheet_and_fits_every_screen(
    browser: Any, name: str, tmp_path: Path
) -> None:
    card = CARDS[name]()
    digests = dict.fromkeys(("model", "data", "retrained models", "explainer"), "0123456789abcdef")
    digests["software"] = "a package 1.2.3, " * 20
    path = write_card(
        card, tmp_path / "card.html", counter_example=LONG, comparison=LONG, digests=digests
    )
    page = browser.new_page(java_script_enabled=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    for width in (390, 820, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) == 1
    width_of_sheet, height_of_sheet = (
        float(side) for side in re.findall(rb"MediaBox\s*\[0 0 (\S+) (\S+)\]", printed)[0]
    )
    assert (width_of_sheet, height_of_sheet) == (
        pytest.approx(595, abs=1),
        pytest.approx(842, abs=1),
    )  # of A4, in points
