"""Boards: what is compared with what, the tests beside the numbers, and the site."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from submission_builder import OPTIONS, build, draw_values, seal, write
from typer.testing import CliRunner

from standfast import ArgumentError
from standfast.report.exports import summary
from standfast.statistics.comparison import Comparison
from standfast_board import BoardSite, Submission, Verification, build_site
from standfast_board.commands import app
from standfast_board.comparison import Board, arrange_boards
from standfast_board.submission import parse_submission


def read(*contents: dict[str, Any]) -> list[Submission]:
    return [parse_submission(seal(content)) for content in contents]


def compare(board: Board) -> Comparison:
    found = board.results.summary.find("d", "m", "senc")
    assert found is not None
    assert found.comparison is not None
    return found.comparison


def name_rows(board: Board) -> list[str]:
    return [row.name for row in board.rows]


# What is compared with what


def test_only_the_same_data_and_network_share_a_board() -> None:
    other_inputs = build(draw_values(), data="2" * 16, name="b")
    other_network = build(draw_values(), network="3" * 16, name="c")
    fewer = build(draw_values(11), name="d")
    other_classes = build(draw_values(), name="e")
    other_classes["manifest"]["data"]["d"] |= {"targets": "given", "targets_digest": "4" * 16}
    same = build(draw_values(), name="f")
    # the same network with another version of torch
    same["manifest"]["models"]["m"]["digest"] = "5" * 16
    boards = arrange_boards(
        read(build(draw_values()), other_inputs, other_network, fewer, other_classes, same)
    )
    names = sorted("".join(sorted(each.name for each in board.submissions)) for board in boards)
    assert names == ["b", "c", "d", "e", "fmine"]
    assert len({board.slug for board in boards}) == 5


def test_a_column_is_one_configuration_with_one_seed() -> None:
    values = draw_values()
    more = build(values, name="b", options={"senc": {**OPTIONS["senc"], "masks": 500}})
    preset = build(values, name="c", options={"senc": {**OPTIONS["senc"], "preset": "paper"}})
    seeded = build(values, name="d", seed=1)
    (board,) = arrange_boards(read(build(values), more, preset, seeded))
    assert [(column.label, column.settings) for column in board.columns] == [
        ("senc", "masks 500, seed 0"),
        ("senc (masks 100, seed 0)", "masks 100, seed 0"),
        ("senc (masks 100, seed 1)", "masks 100, seed 1"),
    ]


def test_labels_of_submitters_do_not_matter() -> None:
    values = draw_values()
    other = seal(build(values, name="b")).decode().replace('"senc"', '"SenC, mine"')
    (board,) = arrange_boards(read(build(values), json.loads(other)))
    (column,) = board.columns
    assert column.label in ("senc", "SenC, mine")
    assert name_rows(board) == ["lrp", "saliency", "deeplift", "random"]
    assert [len(row.submissions) for row in board.rows] == [2] * 4


def test_the_same_explainer_is_one_row_if_its_numbers_are_the_same() -> None:
    values, changed = draw_values(), draw_values()
    changed["senc"]["lrp"] = changed["senc"]["lrp"] + 0.01
    (board,) = arrange_boards(read(build(values), build(changed, name="other")))
    assert name_rows(board) == ["lrp", "lrp (other)", "saliency", "deeplift", "random"]
    comparison = compare(board)
    assert set(comparison.names) == {"lrp", "saliency", "deeplift", "lrp (other)"}
    # a submission with other columns adds them to the same rows
    worst = build({"worst": draw_values()["senc"]}, name="third")
    (board,) = arrange_boards(read(build(values), worst))
    row = board.rows[0]
    assert (row.name, len(row.submissions), sorted(row.sources)) == ("lrp", 2, ["senc", "worst"])


def test_boards_do_not_depend_on_the_order_of_submissions() -> None:
    changed = draw_values()
    changed["senc"]["lrp"] = changed["senc"]["lrp"] + 0.01
    some = read(
        build(draw_values()),
        build(changed, name="other"),
        build(draw_values(), data="2" * 16, name="b"),
    )
    first, second = arrange_boards(some), arrange_boards(some[::-1])
    assert [(board.slug, name_rows(board)) for board in first] == [
        (board.slug, name_rows(board)) for board in second
    ]


def test_what_a_submission_calls_a_control_does_not_count() -> None:
    content = build(draw_values())
    content["manifest"]["controls"] = ["lrp"]
    (board,) = arrange_boards(read(content))
    assert [row.name for row in board.rows if row.control] == ["random"]
    assert "lrp" in compare(board).names


def test_a_submission_that_does_not_fit_beside_the_others_is_left_out() -> None:
    def with_curves(name: str, points: int) -> dict[str, Any]:
        values = {each: own + points for each, own in draw_values(6)["senc"].items()}
        content = build({"senc": values}, name=name)
        content["manifest"]["metrics"]["senc"] |= {
            "metric": "corruption_curve",
            "options": {"order": ["top"]},
        }
        for job in content["jobs"]:
            own = (
                np.sort(np.random.default_rng(len(name)).random((6, points)), axis=1)
                .ravel()
                .tolist()
            )
            array = {"type": "float64", "shape": [6, points], "values": own}
            job["arrays"] = {"corrupted_share": array, "drop_top": array}
        return content

    good, bad = read(with_curves("good", 5), with_curves("bad", 7))
    (board,) = arrange_boards([good, bad], verified=[good.digest])
    assert "does not fit beside the others" in board.unreadable[bad.digest]
    assert {each.name for row in board.rows for each in row.submissions} == {"good"}
    # curves are compared up to the same share
    assert set(summary(board.results)["column"]) == {"common_drop"}


# The numbers beside the values


def holm(ps: list[float]) -> list[float]:
    """Holm's adjusted p-values, slowly."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(np.argsort(ps)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[at]))
        adjusted[at] = largest
    return adjusted


def read_board(folder: Path) -> str:
    """The page of the only board of a site."""
    (file,) = (folder / "boards").glob("*.html")
    return file.read_text()


def find_rows(page: str, section: str = "metric-1") -> dict[str, str]:
    """The rows of the table of one metric, as texts by the explainer's name."""
    part = page[page.index(f'id="{section}"') :]
    table = part[part.index("<tbody>") : part.index("</tbody>")]
    texts = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", f"<tr{row}")).strip()
        for row in table.split("<tr")[1:]
    ]
    return {text.split(" ", 1)[0]: html.unescape(text).replace(" ,", ",") for text in texts}


def test_tests_beside_the_best_and_the_controls_are_scipys_with_holms_correction(
    tmp_path: Path,
) -> None:
    values = draw_values()
    values["worst"] = values["senc"]
    build_site([write(tmp_path / "in", build(values))], tmp_path / "site")
    page = read_board(tmp_path / "site")
    assert page.count('<th scope="col">Beside the controls') == 1  # worst cases ask for no controls
    rows = find_rows(page)
    own = values["senc"]
    names = ["lrp", "saliency", "deeplift"]
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    raw = [float(stats.wilcoxon(own[a] - own[b], method="exact").pvalue) for a, b in pairs]
    adjusted = dict(zip(pairs, holm(raw), strict=True))
    ranks = dict(zip(names, stats.rankdata([own[n] for n in names], axis=0).mean(1), strict=True))
    best, other = ("lrp", "deeplift") if ranks["lrp"] > ranks["deeplift"] else ("deeplift", "lrp")
    gap = float(np.median(own["saliency"] - own[best]))
    p = adjusted.get((best, "saliency"), adjusted.get(("saliency", best), 1.0))
    assert p < 0.05 < adjusted["lrp", "deeplift"]
    assert f"worse than the best {gap:.3f}".replace("-", "−") in rows["saliency"]
    assert f"p = {p:.2g}, beside {best}" in rows["saliency"]
    assert "★" not in rows["saliency"]
    assert "not shown to be worse than the best" in rows[other]
    assert all("★" in rows[name] for name in (best, other))
    gaps = [own[n] - own["random"] for n in names]
    against = [
        float(stats.wilcoxon(each, alternative="greater", method="exact").pvalue) for each in gaps
    ]
    for name, adjusted_p in zip(names, holm(against), strict=True):
        text = "p < 0.001" if adjusted_p < 0.001 else f"p = {adjusted_p:.2g}"
        assert "better than every control" in rows[name]
        assert f"{text}, beside random" in rows[name]
    assert "control" in rows["random"]
    assert "★" not in rows["random"]


def test_nothing_is_best_where_nothing_is_decided(tmp_path: Path) -> None:
    site = build_site([write(tmp_path / "in", build(draw_values(5)))], tmp_path / "site")
    assert not any("★" in row for row in find_rows(read_board(site.folder)).values())
    assert "nothing decided" in (site.folder / "index.html").read_text()


def test_bounds_are_marked(tmp_path: Path) -> None:
    content = build(draw_values())
    content["manifest"]["metrics"]["senc"] |= {"metric": "c_eval", "options": {}}
    content["columns"]["senc"]["bound"] = "Boolean"
    for job in content["jobs"]:
        job["values"]["bound"] = [job["explainer"] == "lrp"] * 12
    build_site([write(tmp_path / "in", content)], tmp_path / "site")
    rows = find_rows(read_board(tmp_path / "site"))
    assert rows["lrp"].startswith("lrp ≥ ")
    assert not rows["saliency"].startswith("saliency ≥ ")


# The site


def build_after(folder: Path, out: Path, known: dict[str, str], **options: Any) -> BoardSite:
    """A site after an earlier verification found these states, by the titles of submissions."""
    site = build_site([folder], out)
    assert {each.state for each in site.states.values()} == {"not verified"}
    found = {}
    for key, title in site.submissions.items():
        if title in known:
            jobs = {"a": "different" if known[title] == "differs" else "same bits"}
            found[key] = asdict(Verification(known[title], jobs=jobs, done=4, seed=3))  # type: ignore[arg-type]
    listing = json.loads((out / "site.json").read_text())
    (out / "site.json").write_text(json.dumps({**listing, "verifications": found}))
    return build_site([folder], out, **options)


def test_a_submission_that_differs_is_shown_and_not_ranked(tmp_path: Path) -> None:
    better = draw_values()
    better["senc"] = {"smoothgrad": better["senc"]["lrp"] + 9}
    folder = write(tmp_path / "in", build(draw_values()), build(better, name="too good"))
    site = build_after(folder, tmp_path / "site", {"too good": "differs", "mine": "verified"})
    rows = find_rows(read_board(site.folder))
    assert "not ranked: the verification found other numbers" in rows["smoothgrad"]
    assert list(rows)[-1] == "smoothgrad"
    assert "beside smoothgrad" not in read_board(site.folder)
    assert "not verified" not in rows["lrp"]
    found = CliRunner().invoke(app, ["build", str(folder), "--out", str(tmp_path / "site")])
    assert found.exit_code == 1
    assert "with other numbers than reported: 1" in found.output


def test_a_column_is_verified_only_if_its_own_submission_is(tmp_path: Path) -> None:
    values = draw_values()
    forged = {"worst": {"lrp": values["senc"]["lrp"] + 5, "random": values["senc"]["random"]}}
    folder = write(tmp_path / "in", build(values), build(forged, name="forger"))
    site = build_after(folder, tmp_path / "site", {"mine": "verified"})
    rows = [find_rows(read_board(site.folder), f"metric-{number}")["lrp"] for number in (1, 2)]
    assert ["not verified" in row for row in rows] == [False, True]
    assert "forger" not in rows[0]


def test_a_submission_that_differs_is_not_drawn_again_and_a_verified_one_stays(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "in", build(draw_values()), build(draw_values(gap=0.5), name="other"))
    known = {"other": "differs", "mine": "verified"}
    site = build_after(folder, tmp_path / "site", known, verify=3)
    assert {site.submissions[key]: each.state for key, each in site.states.items()} == known


def test_flags_are_numbers_too() -> None:
    values = {"worst": {"lrp": [0.1, 0.2, 0.3], "random": [0.1, 0.2, 0.4]}}
    flags = {"lrp": [True, False, True]}
    (board,) = arrange_boards(read(build(values), build(values, name="other", flags=flags)))
    assert name_rows(board) == ["lrp", "lrp (other)", "random"]


def test_names_that_somebody_chose_do_not_join_rows() -> None:
    values = {"senc": {"lrp": [0.1, 0.2, 0.3], "random": [0.1, 0.2, 0.4]}}
    other = build({"senc": {"lrp": [0.4, 0.5, 0.6], "random": [0.1, 0.2, 0.4]}}, name="b")
    (second,) = read(other)
    taken = {"senc": {"lrp (b)": [0.9, 0.9, 0.9], f"lrp ({second.digest[:8]}, 1)": [0.9, 0.9, 0.8]}}
    (board,) = arrange_boards(read(build(values, name="a"), build(taken, name="0"), other))
    assert len({row.name for row in board.rows}) == len(board.rows) == 5


def test_a_bad_file_is_listed_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", build(draw_values()), build(draw_values()))
    (folder / "z.json").write_text("{")
    found = CliRunner().invoke(app, ["build", str(folder), "--out", str(tmp_path / "site")])
    assert found.exit_code == 1
    assert "submissions: 1, boards: 1" in found.output
    index = (tmp_path / "site" / "index.html").read_text()
    assert "<code>z.json</code>: it is no JSON" in index
    assert "<code>1.json</code>: the same submission as mine" in index


def nest(depth: int) -> dict[str, Any]:
    return {"a": nest(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    "wrong", [{"environment": {"cpu": 5}}, {"study": nest(800)}], ids=["processor", "brackets"]
)
def test_a_file_whose_pages_cannot_be_written_is_listed_and_the_rest_goes_on(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    content = build(draw_values(), name="odd")
    content["manifest"] |= wrong
    site = build_site(
        [write(tmp_path / "in", build(draw_values(gap=0.5)), content)], tmp_path / "site"
    )
    assert list(site.submissions.values()) == ["mine"]
    assert list(site.problems) == ["odd"]
    assert "its page cannot be written" in (site.folder / "index.html").read_text()


def test_the_same_submissions_give_the_same_bytes_and_old_pages_go(tmp_path: Path) -> None:
    one = write(tmp_path / "one", build(draw_values()))
    both = write(
        tmp_path / "both", build(draw_values()), build(draw_values(), data="2" * 16, name="b")
    )
    out = tmp_path / "site"
    build_site([both], out)
    (out / "boards" / "mine.txt").write_text("not ours")
    assert len(list((out / "boards").glob("*.html"))) == 2
    build_site([one], out)
    assert (out / "boards" / "mine.txt").exists()
    build_site([one], tmp_path / "again")
    files = [file for file in out.rglob("*") if file.is_file() and file.suffix != ".txt"]
    assert len(files) == 5  # index, site.json, a board, and a submission with its page
    for file in files:
        assert (tmp_path / "again" / file.relative_to(out)).read_bytes() == file.read_bytes()


def test_other_folders_are_not_touched(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", build(draw_values()))
    with pytest.raises(ArgumentError, match="out: expected a new or an empty folder"):
        build_site([folder], folder)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "site.json").write_text('{"standfast_board": 1, "verifications": {"a": 1}}')
    with pytest.raises(ArgumentError, match="whose site.json is another one"):
        build_site([folder], strange)
    assert (folder / "0.json").exists()


def test_names_are_texts(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    content = json.loads(
        seal(build(draw_values(), name=evil)).decode().replace('"lrp"', f'"{evil}"')
    )
    content |= {"by": evil, "note": f"{evil}\u202e"}
    content["manifest"]["about"] = {"title": evil}
    content["manifest"]["environment"] = {"standfast": evil, "gpu": [evil]}
    content["manifest"]["study"] = {"title": evil, "data": {evil: evil}}
    content["manifest"]["data"]["d"]["classes"] = [evil]
    content["manifest"]["code"] = {evil: evil}
    content["manifest"]["misfits"] = {"worst": {evil: evil}, "senc": 5}
    site = build_site([write(tmp_path / "in", content)], tmp_path / "site", title=evil)
    for file in site.folder.rglob("*.html"):
        page = file.read_text()
        assert evil not in page
        assert "\u202e" not in page
        assert len(re.findall("<script", page)) == 1
        assert not re.findall(
            r'(?:src|href)="(?!data:|\.\./|boards/|submissions/|[0-9a-f]{16}\.json)', page
        )


def test_pages_in_a_browser(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on this machine")
    site = build_site([write(tmp_path / "in", build(draw_values()))], tmp_path / "site")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_context(offline=True, viewport={"width": 390, "height": 800}).new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for file in site.folder.rglob("*.html"):
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            if file.parent.name == "boards":
                page.click("details.metric table thead th:nth-child(2) button")
                read = "rows => rows.map(r => Number(r.cells[1].dataset.sort))"
                names = page.eval_on_selector_all("details.metric tbody tr", read)
                assert names == sorted(names)
                page.click("details.metric table thead th:nth-child(2) button")
                assert (
                    page.get_attribute("details.metric thead th:nth-child(2)", "aria-sort")
                    == "descending"
                )
        browser.close()
    assert complaints == []
