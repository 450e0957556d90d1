"""The report in a real browser, without a network: charts are drawn and answer, the table filters, a phone reads it."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_builder import PROB, Builder, base, study

from standfast.report import load_results, write_html
from standfast.results.formatting import format_probability

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
#: two pairs are enough of charts, and the samples of a metric fill a page of the table and a part of the next
PAIRS, SAMPLES = (("digits", "lenet"), ("series", "lenet")), 18
FIGURES = "document.querySelectorAll('figure.plot')"
#: the timers of a page keep their order, and are due twenty times as soon
QUICK_TIMERS = """
const start = window.setTimeout;
window.setTimeout = (then, delay, ...values) => start(then, delay / 20, ...values);
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    builder = study(folder / "results", SAMPLES, explainers=4, pairs=PAIRS)
    return write_html(
        builder.results(title="A study", command="standfast run study.toml"), folder / "report.html"
    )


class Tab:
    """A page with its complaints: errors, warnings of the console, and whatever was asked of the network."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on(
            "console",
            lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._requested)
        self.page.add_init_script(QUICK_TIMERS)
        self.page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            self.page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"asked for {request.url}")

    def unfold(self, which: str = "details") -> None:
        """Open folds, as a reader would with a click."""
        self.page.evaluate(
            "(which) => document.querySelectorAll(which).forEach((d) => { d.open = true })", which
        )

    def draw_all(self, step: int = 1) -> int:
        """Unfold everything and scroll to every chart, or every `step`-th, until it is drawn; how many there are."""
        self.unfold()
        count = int(self.page.evaluate(f"{FIGURES}.length"))
        for i in range(0, count, step):
            self.page.evaluate(f"{FIGURES}[{i}].scrollIntoView()")
            self.page.wait_for_function(f"{FIGURES}[{i}].dataset.drawn", timeout=20_000)
        return count

    def count(self) -> str:
        return str(self.page.locator("#count").inner_text())

    def column(self, title: str) -> list[str]:
        heads = self.page.locator("#samples thead th").all_inner_texts()
        place = [head.split("\n")[0].strip() for head in heads].index(title) + 1
        return list(
            self.page.locator(f"#samples tbody tr.row td:nth-child({place})").all_inner_texts()
        )

    def choose(self, name: str, label: str) -> None:
        self.page.select_option(f"#filters [name={name}]", label=label)
        self.settle()

    def write(self, name: str, text: str) -> None:
        self.page.fill(f"#filters [name={name}]", text)
        self.settle()

    def settle(self) -> None:
        """Wait for what the page does 120 ms after a change: a timer that is due later comes after it."""
        self.page.evaluate("new Promise((done) => setTimeout(done, 200))")


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Iterator[Tab]:
    tab = Tab(browser, report, viewport={"width": 1280, "height": 900})
    tab.unfold("#explorer")
    yield tab
    assert tab.complaints == []
    tab.context.close()


@pytest.fixture
def tab(opened: Tab) -> Tab:
    """The page with all filters reset."""
    opened.page.click("text=Reset")
    opened.settle()
    return opened


def test_filters_narrow_the_table_and_say_so(tab: Tab) -> None:
    rows = len(PAIRS) * 4 * 4 * SAMPLES
    assert tab.count() == f"Rows 1 to 100 of {rows} rows"
    assert len(tab.column("Sample")) == 100
    tab.choose("explainer", "Grad-CAM")
    assert tab.count() == f"Rows 1 to 100 of {rows // 4} of {rows} rows"
    assert set(tab.column("Explainer")) == {"Grad-CAM"}
    tab.choose("label", "new metric")
    tab.choose("data", "series")
    assert tab.count() == f"Rows 1 to 18 of 18 of {rows} rows"
    values = sorted(float(value.replace("−", "-")) for value in tab.column("Value"))
    tab.write("least", f"{(values[2] + values[3]) / 2}")
    tab.write("most", f"{(values[7] + values[8]) / 2}")
    assert tab.count() == f"Rows 1 to 5 of 5 of {rows} rows"
    tab.write("text", "no such thing")
    assert tab.count() == f"No row of {rows} fits"
    assert tab.column("Value") == []
    tab.page.click("text=Reset")
    assert tab.count() == f"Rows 1 to 100 of {rows} rows"
    tab.write("text", "not found")
    assert 0 < len(tab.column("Remarks")) < 100
    assert all("not found" in remark for remark in tab.column("Remarks"))


def test_probabilities_are_written_and_filtered_as_probabilities(tab: Tab, report: Path) -> None:
    tab.choose("label", PROB)
    tab.choose("data", "digits")
    shown = load_results(report.parent / "results").metric_results("digits", "lenet", PROB).frame
    shown = shown.filter(status="ok")
    words = [
        f"{'≤ ' * bound}{format_probability(value)}"
        for value, bound in shown.select("value", "bound").iter_rows()
    ]
    assert set(words) <= set(tab.column("Value"))
    tab.write("most", "0.01")  # as a share, and not as its logarithm
    few = {text for text in tab.column("Value") if text != "–"}
    assert few
    assert not {text for text in few if text.endswith("%") and float(text.strip("≤ %")) > 1.0}


def test_columns_sort_by_number_and_pages_turn(tab: Tab) -> None:
    tab.choose("label", "new metric")
    tab.page.click("#samples th button:has-text('Value')")
    rising = [float(value.replace("−", "-")) for value in tab.column("Value")]
    assert rising == sorted(rising)
    assert tab.page.locator("#samples th[aria-sort=ascending]").count() == 1
    tab.page.click("#pager >> text=Next")
    assert float(tab.column("Value")[0].replace("−", "-")) >= rising[-1]
    assert tab.count().startswith("Rows 101 to 144 of 144")
    tab.page.click("#samples th button:has-text('Value')")
    falling = [float(value.replace("−", "-")) for value in tab.column("Value")]
    assert falling == sorted(falling, reverse=True)


def test_the_filtered_rows_can_be_saved(tab: Tab, tmp_path: Path) -> None:
    tab.choose("label", "probability: changed_explanation")
    tab.choose("explainer", "saliency")
    with tab.page.expect_download() as waiting:
        tab.page.click("text=Save as CSV")
    waiting.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(PAIRS) * SAMPLES
    assert {row["explainer"] for row in rows} == {"saliency"}
    assert all(float(row["low"]) < float(row["value"]) <= float(row["high"]) for row in rows)


def test_all_charts_are_drawn_without_a_complaint(tab: Tab) -> None:
    count = tab.draw_all()
    # of each pair: medians and distributions, convergence, curves of levels
    assert count == len(PAIRS) * (4 * 2 + 2 + 3)
    drawn = tab.page.evaluate(
        f"""[...{FIGURES}].map((f) => [f.dataset.drawn, f.querySelectorAll('.chart svg').length,
        f.querySelectorAll('svg .role-mark path, svg .role-mark line').length])"""
    )
    assert {kind for kind, _, _ in drawn} == {"interactive"}
    assert {svgs for _, svgs, _ in drawn} == {1}
    assert all(marks >= 3 for _, _, marks in drawn)
    ids = tab.page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_a_phone_can_read_it(browser: Any, report: Path) -> None:
    tab = Tab(
        browser, report, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    tab.draw_all(step=7)
    page = tab.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.body.scrollWidth") <= 360
    too_wide = page.evaluate(
        f"[...{FIGURES}].filter((f) => f.querySelector('svg').getBoundingClientRect().right > innerWidth).length"
    )
    assert too_wide == 0
    sizes = page.evaluate(
        "[...document.querySelectorAll('.chart svg text')].map((t) => parseFloat(t.getAttribute('font-size')))"
    )
    assert min(sizes) >= 8
    assert sorted(sizes)[len(sizes) // 2] >= 11
    assert tab.complaints == []
    tab.context.close()


def test_without_scripts_everything_but_the_table_is_there(browser: Any, report: Path) -> None:
    tab = Tab(browser, report, viewport={"width": 1000, "height": 900}, java_script_enabled=False)
    assert (
        tab.page.locator("figure.plot svg").count() == tab.page.locator("figure.plot").count() > 0
    )
    tab.page.locator("#explorer > summary").click()
    assert "needs JavaScript" in tab.page.locator("#explorer").inner_text()
    tab.page.locator(".metric > summary").first.click()
    tab.page.locator(".metric figure.plot svg").first.scroll_into_view_if_needed()
    box = tab.page.locator(".metric figure.plot svg").first.bounding_box()
    assert box["width"] > 200
    assert box["height"] > 50
    tab.context.close()


def test_fifty_thousand_rows(browser: Any, tmp_path: Path) -> None:
    builder, rng, rows = Builder(tmp_path / "results"), np.random.default_rng(0), 12_500
    for name in ("a", "b", "c", "d"):
        frame = {**base(["ok"] * rows), "value": rng.normal(size=rows).tolist()}
        builder.job(name, "new_metric", "new metric", {}, frame)
    path = write_html(builder.results(), tmp_path / "report.html")
    assert path.stat().st_size < 4_000_000
    tab = Tab(browser, path, viewport={"width": 1280, "height": 900})
    tab.unfold("#explorer")
    assert tab.count() == "Rows 1 to 100 of 50,000 rows"
    tab.choose("explainer", "c")
    assert tab.count() == "Rows 1 to 100 of 12,500 of 50,000 rows"
    tab.page.click("#samples th button:has-text('Value')")
    values = [float(value.replace("−", "-")) for value in tab.column("Value")]
    assert values == sorted(values)
    assert tab.complaints == []
    tab.context.close()


def single(folder: Path, metrics: int = 5, explainers: int = 2, samples: int = 6) -> Path:
    """The report of one data set and model, with as many metrics as the table has room for."""
    builder, rng = Builder(folder / "results"), np.random.default_rng(3)
    for place in range(explainers):
        name = f"explainer number {place}"
        noise = rng.normal(0, 0.08, samples)
        builder.worst(name, (0.2 + 0.1 * place + noise).tolist(), shape=(1, 28, 28))
        builder.probability(name, np.maximum(-20.0, -1.0 - 2 * place + 10 * noise).tolist())
        for number in range(metrics - 2):
            frame = {**base(["ok"] * samples), "value": (place + number + noise).tolist()}
            builder.job(name, f"metric_{number}", f"metric {number}", {}, frame)
    return write_html(builder.results(title="One study", data="24 digits"), folder / "report.html")


def test_every_metric_is_reachable_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, single(tmp_path), viewport={"width": 1400, "height": 900})
    page = tab.page
    links = page.locator(".matrix thead a[href^='#metric']")
    assert links.count() == page.locator(".metric").count() == 5
    # on smaller screens the last metric is the furthest away
    for width, places in ((1400, range(5)), (820, [4]), (390, [4])):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("document.querySelectorAll('.metric').forEach((d) => { d.open = false })")
        for place in places:
            target = page.locator(links.nth(place).get_attribute("href"))
            assert not target.evaluate("(node) => node.open")
            links.nth(place).focus()
            page.keyboard.press("Enter")
            page.wait_for_function("(node) => node.open", arg=target.element_handle())
            top = target.bounding_box()["y"]
            assert 0 <= top < 600  # in sight, below the bar with the sections
    assert tab.complaints == []
    tab.context.close()


def test_on_paper_nothing_is_cut_and_metrics_are_open(browser: Any, report: Path) -> None:
    sheet = 703  # A4 without its margins, in CSS pixels
    tab = Tab(browser, report, viewport={"width": sheet, "height": 1000})
    page = tab.page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('.metric, .printed')].every((d) => d.open)")
    assert not page.locator("nav").is_visible()
    assert not page.locator("#explorer").is_visible()
    assert page.locator(".metric figure.plot").first.is_visible()
    assert page.locator("table.summary").first.is_visible()
    cut = page.evaluate(
        f"""[...document.querySelectorAll('table, figure, svg, img, pre, p')].filter((n) => n.getClientRects().length
        && n.getBoundingClientRect().right > {sheet + 1}).map((n) => n.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    assert page.evaluate("document.documentElement.scrollWidth") <= sheet
    scrolls = """[...document.querySelectorAll('.scroll')].map((n) => getComputedStyle(n))
        .filter((style) => style.overflowX !== 'visible' || style.maxHeight !== 'none').length"""
    assert page.evaluate(scrolls) == 0  # a table that would scroll on a screen is whole on paper
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate(
        "[...document.querySelectorAll('.metric, .printed')].some((d) => d.open)"
    )
    tab.context.close()


def write_texts(folder: Path) -> Path:
    """The report of a text of 512 words, one of which is changed, and of one in Hebrew."""
    tokens = [[f"word{place}" for place in range(512)], ["הסרט", " הזה", " טוב", "."]]
    maps = torch.full((2, 512), torch.nan)
    maps[0], maps[1, :4] = torch.linspace(-1, 1, 512), torch.ones(4)
    builder = Builder(folder)
    arrays = dict.fromkeys(("origins", "inputs", "origin_maps", "maps"), maps)
    more = {"swapped_words": ['{"200": "clever"}', '{"2": ""}']}
    builder.worst("lrp", [0.3, 0.5], arrays=arrays, more=more)
    builder.names["data"]["digits"] |= {"tokens": tokens, "texts": True}
    return write_html(builder.results(), folder / "report.html")


def test_long_texts_fold_without_scripts_and_others_run_from_right_to_left(
    browser: Any, tmp_path: Path
) -> None:
    path = write_texts(tmp_path)
    phone = Tab(browser, path, viewport={"width": 400, "height": 800}, java_script_enabled=False)
    phone.page.locator(".metric > summary").first.click()
    phone.page.locator(".metric .fold > summary:visible", has_text="Pictures").click()
    long, hebrew = (phone.page.locator(".gallery .drawing.words").nth(place) for place in range(2))
    whole = long.locator(".text").nth(1)
    assert whole.locator("span:visible").count() < 100
    assert whole.locator("ins").is_visible()
    long.locator("input").check()
    assert whole.locator("span:visible").count() == 512
    last = hebrew.locator(".text").nth(0).locator("span").last.bounding_box()
    first = hebrew.locator(".text").nth(0).locator("span").first.bounding_box()
    assert last["x"] < first["x"]
    assert hebrew.locator("del").count() == 1
    assert phone.complaints == []
    phone.context.close()


def test_the_table_finds_samples_by_their_words(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, write_texts(tmp_path), viewport={"width": 400, "height": 900})
    tab.unfold()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400
    tab.write("text", "הזה")
    assert tab.column("Sample") == ["1"]
    tab.page.click("#samples tbody tr.row td")
    assert "הסרט הזה טוב." in tab.page.locator("#samples tr.more").inner_text()
    tab.write("text", "clever")
    assert tab.column("Sample") == ["0"]
    tab.context.close()
