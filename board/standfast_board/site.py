"""The board as a static site: an index, a page for each data set and network, and one for each submission.

The pages load nothing from elsewhere and work when they are opened as files. The same submissions and verifications
give the same bytes.

    OUT/index.html                   all boards, all submissions, and the files that could not be read
    OUT/boards/<data-network>.html   explainers x metrics of one data set and network
    OUT/submissions/<digest>.html    configuration, digests and verification of one submission
    OUT/submissions/<digest>.json    the submission itself
    OUT/site.json                    the files of the site, and what verifications found, for the next build
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from ruamel.yaml import YAML

from standfast import ArgumentError
from standfast.report.exports import summary
from standfast.report.presentation import presentation_of
from standfast.report.words import words_of
from standfast.results import ValueSpec, format_number, registered_spec
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.paired import Interval
from standfast_board.comparison import Board, Column, Row, arrange_boards
from standfast_board.submission import Submission, SubmissionError, find_files, read_submission
from standfast_board.verification import State, Verification, check_trusted, verify_submission

_SITE, _SCHEMA = "site.json", 1
_NOT_ASKED = Verification("not verified", "no verification was asked for")


@dataclass(frozen=True)
class BoardSite:
    """What `build_site` made.

    Attributes:
        folder: of the site; `index.html` in it is the first page.
        boards: how many boards there are.
        submissions: the titles of the submissions, by digest.
        states: what is known of each submission, by digest.
        problems: why a file is not on the board, by its name; by its path, if several have that name.
    """

    folder: Path
    boards: int
    submissions: Mapping[str, str]
    states: Mapping[str, Verification]
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """An explainer in the table of one metric.

    Attributes:
        row: the explainer.
        state: of its numbers of this metric.
        number: its row of `standfast.report.exports.summary`.
        samples: how many samples were tried.
        verdict: `"best"`, `"tied"`, `"worse"`, `"undecided"`, or `"unranked"`.
        gap, p: the median of the paired differences from the best, and the p-value of their test; None for the best.
        test: beside the control that is hardest to beat; None where the metric asks for no controls.
    """

    row: Row
    state: State
    number: Mapping[str, Any]
    samples: int
    verdict: str
    gap: Interval | None
    p: float | None
    test: ControlTest | None


@dataclass(frozen=True)
class Section:
    """One metric of a board.

    Attributes:
        id: of the part of the page.
        column: the metric with its options.
        question: what it asks.
        spec: how its values are read.
        compared_by: another column than that of the reading, by which explainers are compared; empty for none.
        comparison: the tests; None where nothing can be compared.
        lines: the explainers, the best first, and controls last.
        unranked: the explainers of submissions whose verification found other numbers.
    """

    id: str
    column: Column
    question: str
    spec: ValueSpec
    compared_by: str
    comparison: Comparison | None
    lines: Sequence[Line]
    unranked: Sequence[Row]

    @property
    def best(self) -> str:
        """The best explainer and those that are not shown to be worse."""
        names = [line.row.name for line in self.lines if line.verdict in ("best", "tied")]
        return ", ".join(names) or "nothing decided"

    @property
    def span(self) -> tuple[float, float]:
        """The range of all medians and intervals that are finite numbers."""
        every = [line.number[name] for line in self.lines for name in ("low", "value", "high")]
        finite = [each for each in every if each is not None and math.isfinite(each)]
        return min(finite, default=0.0), max(finite, default=0.0)


def build_site(
    submissions: Iterable[str | Path],
    out: str | Path,
    title: str = "Which explanations hold?",
    verify: int = 0,
    base: str | Path = ".",
    trusted: Collection[str] = (),
    seed: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> BoardSite:
    """Write the board of some submissions as a static site.

    A file that is no submission is listed with the reason, and the others go on.

    Args:
        submissions: files and folders of them.
        out: a new or an empty folder, or that of an earlier site, which is replaced. What its verifications found is
            kept, by the digests of the submissions.
        title: of the index.
        verify: how many jobs of each submission are evaluated again, if no earlier verification compared as many.
        base, trusted, seed: as of `verify_submission`.
        tell: is called with a line for each submission and job.

    Raises:
        ArgumentError: no such files, a folder with something else in it, or something trusted that is no digest.
    """
    check_trusted(trusted)
    folder = Path(out)
    before = _read_verifications(folder)
    problems: dict[str, str] = {}
    found = _read_files(find_files(list(submissions)), problems)
    for start in trusted:
        if not any(digest.startswith(start) for digest in found):
            warnings.warn(
                f"trusted: {start} is the digest of none of these submissions", stacklevel=2
            )
    states = {}
    for key, each in found.items():
        states[key] = before.get(key, _NOT_ASKED)
        # a new sample may miss the job that differed, so what differs stays so
        asked = verify and states[key].state != "differs"
        if asked and len(states[key].jobs) < min(verify, each.results.jobs.height):
            now = verify_submission(each, verify, base, trusted, seed, tell)
            tell(f"{each.title}: {now.text}")
            if now.state != "not verified" or states[key].state != "verified":
                states[key] = now
    pages: dict[str, bytes] = {}
    for key, each in list(found.items()):
        try:
            pages |= _write_submission(each, states)
        except Exception as error:
            problems[each.title] = f"its page cannot be written: {type(error).__name__}: {error}"
            del found[key]
    keys = {
        state: [key for key in found if states[key].state == state]
        for state in ("differs", "verified")
    }
    boards = arrange_boards(list(found.values()), keys["differs"], keys["verified"])
    for board in boards:
        problems |= {found[key].title: reason for key, reason in board.unreadable.items()}
    sections = {board.slug: list_sections(board, states) for board in boards}
    for board in boards:
        page = _render("board_page.html", board=board, sections=sections[board.slug], ups="../")
        pages[f"boards/{board.slug}.html"] = page
    values = {
        "title": title,
        "boards": boards,
        "sections": sections,
        "submissions": found,
        "problems": problems,
        "states": states,
    }
    pages["index.html"] = _render("board_index.html", **values, ups="")
    for name, problem in problems.items():
        tell(f"{name}: {problem}")
    _write_site(folder, pages, {**before, **states})
    titles = {key: each.title for key, each in found.items()}
    return BoardSite(folder, len(boards), titles, {key: states[key] for key in found}, problems)


def _read_files(files: Sequence[Path], problems: dict[str, str]) -> dict[str, Submission]:
    """The submissions by their digest; what is wrong with a file is added to the problems."""
    found: dict[str, Submission] = {}
    alike = Counter(file.name for file in files)
    for file in files:
        try:
            read = read_submission(file)
            if read.digest in found:
                raise SubmissionError(f"the same submission as {found[read.digest].title}")
            found[read.digest] = read
        except SubmissionError as error:
            problems[file.name if alike[file.name] == 1 else str(file)] = str(error)
    return found


def _read_verifications(folder: Path) -> dict[str, Verification]:
    """What the verifications of the last build found, by digest; empty for a new site."""
    expected = "a new or an empty folder, or one that `standfast-board build` wrote"
    if not (folder / _SITE).is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ArgumentError("out", expected, str(folder))
        return {}
    try:
        content = json.loads((folder / _SITE).read_text(encoding="utf-8"))
        if content["standfast_board"] == _SCHEMA:
            return {key: Verification(**each) for key, each in content["verifications"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ArgumentError("out", expected, f"{folder}, whose {_SITE} is another one")


def _write_site(
    folder: Path, pages: Mapping[str, bytes], states: Mapping[str, Verification]
) -> None:
    """Write all pages and what verifications found, and remove the pages of an earlier site."""
    for name in ("boards", "submissions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in (folder / name).glob("*.*"):
            if file.suffix in (".html", ".json") and f"{name}/{file.name}" not in pages:
                file.unlink()
    for name, content in pages.items():
        (folder / name).write_bytes(content)
    listing = {
        "standfast_board": _SCHEMA,
        "verifications": {key: asdict(each) for key, each in states.items() if each.jobs},
    }
    (folder / _SITE).write_text(
        json.dumps(listing, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


# Pages


@cache
def _prepare_templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("standfast_board", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = format_number
    return environment


def _render(template: str, **values: Any) -> bytes:
    return show_unsafe(_prepare_templates().get_template(template).render(**values)).encode()


def _write_submission(
    submission: Submission, states: Mapping[str, Verification]
) -> dict[str, bytes]:
    """The page of a submission and the submission itself, by their names."""
    manifest, name = submission.manifest, submission.digest[:16]
    study = manifest.get("study") or {key: manifest[key] for key in ("explainers", "metrics")}
    values = {"submission": submission, "states": states, "configuration": _write_yaml(study)}
    page = _render("submission_page.html", **values, ups="../")
    return {f"submissions/{name}.html": page, f"submissions/{name}.json": submission.content}


def show_unsafe(text: str) -> str:
    r"""A text with control characters, halves of pairs and marks of direction as the codes that Python writes.

    >>> show_unsafe("a\u202eb")
    'a\\u202eb'
    """
    return "".join(
        each if each.isprintable() or each == "\n" else f"\\u{ord(each):04x}" for each in text
    )


def _write_yaml(content: Mapping[str, Any]) -> str:
    written = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(content, written)
    return written.getvalue()


# The numbers


def list_sections(board: Board, states: Mapping[str, Verification]) -> list[Section]:
    """The metrics of a board with the numbers of each explainer and what the tests say."""
    numbers: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in summary(board.results).iter_rows(named=True):
        numbers.setdefault(each["label"], {})[each["explainer"]] = each
    return [
        _make_section(board, column, f"metric-{place}", numbers.get(column.label, {}), states)
        for place, column in enumerate(board.columns, 1)
    ]


def _make_section(
    board: Board,
    column: Column,
    name: str,
    numbers: Mapping[str, Mapping[str, Any]],
    states: Mapping[str, Verification],
) -> Section:
    metric, options = column.about["metric"], dict(column.about["options"])
    spec = registered_spec(metric, options, column.about["direction"])
    key = (board.data, board.model, column.label)
    found = board.results.summary.find(*key)
    comparison = None if found is None else found.comparison
    tests = {} if found is None else {test.explainer: test for test in found.control_tests}
    lines = []
    for row in board.rows:
        number = numbers.get(row.name)
        if number is not None:
            samples = row.samples.filter(label=column.label)["sample"].n_unique()
            state = state_of(row, column.label, states)
            compared = _compare(row.name, number, comparison)
            lines.append(Line(row, state, number, samples, *compared, tests.get(row.name)))
    lines.sort(key=lambda line: (line.row.control, line.number["mean_rank"] or math.inf))
    compared_by = "".join({number["column"] for number in numbers.values()} - {spec.column})
    unranked = [row for row in board.rows if not row.ranked and column.label in row.sources]
    return Section(
        name,
        column,
        words_of(presentation_of(metric)).question(options, spec),
        spec,
        compared_by,
        comparison,
        lines,
        unranked,
    )


def _compare(
    name: str, number: Mapping[str, Any], comparison: Comparison | None
) -> tuple[str, Interval | None, float | None]:
    """The verdict on an explainer, its median difference from the best, and the p-value of their test."""
    if comparison is None or name not in comparison.names or comparison.count == 0:
        return "unranked", None, None
    place, best = comparison.names.index(name), comparison.order[0]
    verdict = "worse" if comparison.decided else "undecided"
    if number["verdict"] in ("best", "tied"):
        verdict = number["verdict"]
    if place == best:
        return verdict, None, None
    return verdict, comparison.differences[place][best], float(comparison.p_values[place, best])


def state_of(row: Row, label: str, states: Mapping[str, Verification]) -> State:
    """The state of an explainer's numbers of one metric: verified if they are in a verified submission."""
    have = {states[each.digest].state for each in row.sources[label]}
    return (
        "verified"
        if "verified" in have
        else "not verified"
        if "not verified" in have
        else "differs"
    )
