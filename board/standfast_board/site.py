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
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from standfast.errors import check, warn_user
from standfast.findings import Entry, list_entries
from standfast.presentation import presentation_of
from standfast.presentation.base import format_number
from standfast.presentation.wording import format_count
from standfast.report.failures import describe_misfits
from standfast.report.html import allow_breaks, mark_up, split_columns
from standfast.report.methods import flatten
from standfast.report.overview import build_matrix, draw_medians
from standfast.report.render import render_for_page
from standfast.report.summary import Cell, describe_interval, summarise_rows
from standfast.report.verdicts import Answer, answer_question
from standfast.report.views import Label, show_unsafe
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.paired import Interval
from standfast.study.folders import write_atomically
from standfast_board.comparison import Board, Column, Row, arrange_boards
from standfast_board.submission import Submission, SubmissionError, find_files, read_submission
from standfast_board.verification import TRUSTED_DIGITS, State, Verification, verification_from, verify_submission

_SITE, _SCHEMA = "site.json", 1
_NOT_ASKED = Verification("not verified", "no verification was asked for")
_CLASSES: Mapping[State, str] = {"verified": "verified", "differs": "differs", "not verified": "unverified"}


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
    """A row of the table of one metric, ready for the page."""

    row: Row
    state: State
    cell: Cell
    remarks: tuple[str, ...]
    sort: float
    rank: float | None
    mark: str
    verdict: str
    difference: str
    controls: str
    against: str


@dataclass(frozen=True)
class Section:
    """One metric of a board, ready for the page."""

    column: Column
    label: Label
    answer: Answer
    ties: str
    options: Sequence[tuple[str, str]]
    chart: Any
    lines: Sequence[Line]
    unranked: Sequence[Line]
    id: str

    @property
    def best(self) -> str:
        """The explainers with a star, in words."""
        names = [line.row.name for line in self.lines if line.mark]
        if not names:
            return "nothing decided"
        first = [line.row.name for line in self.lines if line.mark and line.rank == self.lines[0].rank]
        rest = names[len(first) :]
        others = ", ".join(rest) if len(rest) <= 2 else f"{len(rest)} others"
        return " and ".join(first) + (f"; not shown to be worse: {others}" if rest else "")


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
    for start in trusted:
        digits = f"a digest, or its first {TRUSTED_DIGITS} digits or more"
        check(re.fullmatch(f"[0-9a-f]{{{TRUSTED_DIGITS},64}}", start) is not None, "trusted", digits, repr(start))
    folder = Path(out)
    before = _open_site(folder)
    found: dict[str, Submission] = {}
    problems: dict[str, str] = {}
    files = find_files(list(submissions))
    alike = Counter(file.name for file in files)
    for file in files:
        try:
            read = read_submission(file)
            if read.digest in found:
                raise SubmissionError(f"the same submission as {found[read.digest].title}")
            found[read.digest] = read
        except SubmissionError as error:
            name = file.name if alike[file.name] == 1 else str(file)
            problems[name] = str(error)
            tell(f"{name}: {error}")
    for start in trusted:
        if not any(digest.startswith(start) for digest in found):
            warn_user(f"trusted: {start} is the digest of none of these submissions")
    states = {}
    for key, each in found.items():
        states[key] = _look_up(before, key)
        # a new sample may miss the job that differed, so what differs stays so
        asked = verify and states[key].state != "differs"
        if asked and len(states[key].jobs) < min(verify, each.results.jobs.height):
            now = verify_submission(each, verify, base, trusted, seed, tell)
            tell(f"{each.title}: {now.text}")
            if now.state != "not verified" or states[key].state != "verified":
                states[key] = now
    try:
        boards, pages = _arrange_and_write(title, found, states, problems)
    except Exception:
        failing = {key: reason for key, each in found.items() if (reason := _find_error(each))}
        if not failing:
            raise
        for key, reason in failing.items():
            problems[found[key].title] = f"its pages cannot be written: {reason}"
            tell(f"{found[key].title}: {problems[found[key].title]}")
            del found[key], states[key]
        boards, pages = _arrange_and_write(title, found, states, problems)
    listing = {
        "standfast_board": _SCHEMA,
        "files": sorted(pages),
        "verifications": {**before.get("verifications", {}), **{k: s.as_dict() for k, s in states.items() if s.jobs}},
    }
    for name, content in pages.items():
        write_atomically(folder / name, content, lasting=False)
    for name in set(before.get("files", ())) - set(pages):
        (folder / name).unlink(missing_ok=True)
    write_atomically(folder / _SITE, (json.dumps(listing, indent=1, sort_keys=True) + "\n").encode())
    return BoardSite(folder, len(boards), {key: each.title for key, each in found.items()}, states, problems)


def _arrange_and_write(
    title: str, found: Mapping[str, Submission], states: Mapping[str, Verification], problems: dict[str, str]
) -> tuple[list[Board], dict[str, bytes]]:
    """The boards and all pages; submissions that do not fit beside the others are added to the problems."""
    keys = {kind: [key for key, each in states.items() if each.state == kind] for kind in _CLASSES}
    boards = arrange_boards(list(found.values()), keys["differs"], keys["verified"])
    for board in boards:
        problems |= {found[key].title: reason for key, reason in board.unreadable.items()}
    return boards, _write_pages(title, boards, found, states, problems)


def _find_error(submission: Submission) -> str:
    """Why the pages of a submission cannot be written, also without the others; empty if they can."""
    try:
        _arrange_and_write("", {submission.digest: submission}, {submission.digest: _NOT_ASKED}, {})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _open_site(folder: Path) -> dict[str, Any]:
    """What the last build left in `site.json`; empty for a new site."""
    expected = "a new or an empty folder, or one that `standfast board` wrote"
    if not (folder / _SITE).is_file():
        empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        check(empty, "out", expected, str(folder))
        return {}
    try:
        content = json.loads((folder / _SITE).read_text(encoding="utf-8"))
        known = content["standfast_board"] == _SCHEMA
        names = all(_is_own(name) for name in content["files"])
        content["verifications"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        known = names = False
    check(known and names, "out", expected, f"{folder}, whose {_SITE} is another one")
    return dict(content)


def _is_own(name: str) -> bool:
    """Whether a name is one that this module gives to files."""
    parts = Path(name).parts
    return name == "index.html" or (len(parts) == 2 and parts[0] in ("boards", "submissions") and ".." not in parts)


def _look_up(before: Mapping[str, Any], key: str) -> Verification:
    try:
        return verification_from(before["verifications"][key])
    except (KeyError, TypeError):
        return _NOT_ASKED


# Pages


def _write_pages(
    title: str,
    boards: Sequence[Board],
    found: Mapping[str, Submission],
    states: Mapping[str, Verification],
    problems: Mapping[str, str],
) -> dict[str, bytes]:
    """All pages by their names."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader("standfast_board", "templates"),
                jinja2.PackageLoader("standfast.report", "templates"),
            ]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = allow_breaks
    environment.filters["marked"] = mark_up
    environment.filters["unbroken"] = _keep_together
    environment.filters["number"] = lambda value: format_number(value, 2)
    environment.globals |= {"states": states, "classes": _CLASSES}

    def render(template: str, **values: Any) -> bytes:
        return show_unsafe(environment.get_template(template).render(**values)).encode()

    files: dict[str, bytes] = {}
    summaries = []
    for board in boards:
        sections = [_make_section(board, column, number, states) for number, column in enumerate(board.columns, 1)]
        summaries.append((board, sections))
        matrix = build_matrix(board.contents, board.data, board.model)
        files[f"boards/{board.slug}.html"] = render(
            "board_page.html",
            board=board,
            sections=sections,
            matrix=matrix,
            groups=split_columns(matrix, list(board.contents.labels)),
            facts=_list_facts(board),
            ups="../",
        )
    of = {key: [board for board in boards if any(one.digest == key for one in board.submissions)] for key in found}
    for key, each in found.items():
        name = f"submissions/{key[:16]}"
        files[f"{name}.html"] = render(
            "submission_page.html",
            submission=each,
            state=states[key],
            boards=of[key],
            facts=_describe_submission(each),
            options=_list_options(each),
            study=_write_study(each),
            file=f"{key[:16]}.json",
            ups="../",
        )
        files[f"{name}.json"] = each.content
    files["index.html"] = render(
        "board_index.html",
        title=title,
        summaries=summaries,
        submissions=found,
        versions={key: _describe_versions(each) or "not stated" for key, each in found.items()},
        of=of,
        problems=problems,
        ups="",
    )
    return files


def state_of(row: Row, label: str, states: Mapping[str, Verification]) -> State:
    """The state of an explainer's numbers of one metric: verified if they are in a verified submission."""
    have = {states[each.digest].state for each in row.sources[label]}
    return "verified" if "verified" in have else "not verified" if "not verified" in have else "differs"


def _list_facts(board: Board) -> list[tuple[str, str]]:
    """What all entries of a board share."""
    data, model = board.about_data, board.about_model
    shape = " × ".join(str(each) for each in data.get("input_shape") or ())
    targets = "the labels" if data.get("targets") == "given" else "the network's own predictions"
    found = [
        ("Data", f"{format_count(data['samples'], 'sample')} of {board.data}" + (f", shape {shape}" if shape else "")),
        ("Digest of the inputs", str(data["digest"])),
        ("Classes explained", targets),
        ("Network", f"{board.model}" + (f" ({model['parameters']:,} parameters)" if _is_count(model) else "")),
        ("Digest of the network", str(model.get("network") or model["digest"])),
    ]
    versions = {_describe_versions(each) for each in board.submissions}
    return [*found, ("Computed with", "; ".join(sorted(filter(None, versions))) or "not stated")]


def _is_count(model: Mapping[str, Any]) -> bool:
    return isinstance(model.get("parameters"), int)


def _describe_versions(submission: Submission) -> str:
    about = submission.manifest.get("environment") or {}
    parts = [f"{key} {about[key]}" for key in ("standfast", "torch", "python") if about.get(key)]
    where = about.get("gpu") or about.get("cpu") or about.get("machine")
    return ", ".join(parts) + (f", on {', '.join(where) if isinstance(where, list) else where}" if where else "")


def _describe_submission(submission: Submission) -> list[tuple[str, str]]:
    manifest, results = submission.manifest, submission.results
    failed, missing = results.failures.height, results.missing
    jobs = f"{results.jobs.height - failed} of {results.planned} done"
    jobs += (f", {failed} failed" if failed else "") + (f", {missing} missing" if missing else "")
    about = manifest.get("about") or {}
    found = [
        ("Submitted by", submission.by or "not stated"),
        ("Note", submission.note),
        ("Study", str(about.get("title") or "")),
        ("Jobs", jobs),
        ("Left out", "; ".join(_list_left_out(manifest.get("misfits")))),
        ("Computed with", _describe_versions(submission)),
        ("Random seed", f"{manifest['seed']}, {manifest['repeats']} repeat{'s' if manifest['repeats'] != 1 else ''}"),
        ("SHA-256", submission.digest),
    ]
    return [(key, text) for key, text in found if text]


def _list_left_out(misfits: Any) -> list[str]:
    """Which explainers a metric could not evaluate; empty for anything else than a manifest has there."""
    entries = misfits if isinstance(misfits, Mapping) else {}
    reasons = {str(k): {str(n): str(r) for n, r in v.items()} for k, v in entries.items() if isinstance(v, Mapping)}
    return describe_misfits(reasons)


def _list_options(submission: Submission) -> list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]:
    """Headings, each with names and their options."""
    manifest = submission.manifest
    found = []
    for heading, key in (
        ("Metrics", "metrics"),
        ("Explainers", "explainers"),
        ("Data", "data"),
        ("Networks", "models"),
    ):
        entries = []
        for name, about in manifest[key].items():
            kept = {each: value for each, value in about.items() if each not in ("citation", "features", "classes")}
            kept = {**kept, **kept.pop("options", {})} if key == "metrics" else kept
            entries.append((name, flatten(kept)))
        found.append((heading, entries))
    code = [(name, text) for name, text in (manifest.get("code") or {}).items()]
    return [*found, *([("Digests of the submitter's code", [("code", code)])] if code else [])]


def _write_study(submission: Submission) -> str:
    """The study as YAML; empty for results of no study file."""
    content = submission.manifest.get("study")
    if not content:
        return ""
    from ruamel.yaml import YAML

    written = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(content, written)
    return written.getvalue()


# The numbers of one metric


def _make_section(board: Board, column: Column, number: int, states: Mapping[str, Verification]) -> Section:
    contents, label = board.contents, board.contents.labels[column.label]
    key = (board.data, board.model, column.label)
    comparison = contents.comparisons.get(key)
    tests = {test.explainer: test for test in contents.control_tests.get(key, [])}
    entries = {
        entry.explainer: entry
        for entry in list_entries(contents, labels=[column.label])
        if (entry.data, entry.model) == key[:2]
    }
    here = [row for row in board.rows if column.label in row.frames]
    ranked = [row for row in here if row.ranked]
    lines = [
        _make_line(board, label, row, states, entries.get(row.name), comparison, tests.get(row.name)) for row in ranked
    ]
    lines.sort(key=lambda line: (line.row.control, math.inf if line.rank is None else line.rank))
    charts = dict(draw_medians(contents, board.data, board.model))
    decided = comparison is not None and comparison.count > 0
    return Section(
        column,
        label,
        answer_question(contents, label, board.data, board.model),
        comparison.sentence() if decided and comparison is not None else "",
        [
            ("metric", label.metric),
            *flatten(label.options),
            ("seed", str(column.seed)),
            ("repeats", str(column.repeats)),
        ],
        render_for_page(charts[column.label], number) if column.label in charts else None,
        lines,
        [_make_unranked_line(board, label, row) for row in here if not row.ranked],
        f"metric-{number}",
    )


def _read_cell(label: Label, rows: pl.DataFrame, row: Row) -> tuple[Cell, tuple[str, ...]]:
    """The numbers of a row with the notes that say how far they count, and the metric's own remarks."""
    failed = row.jobs.filter((pl.col("label") == label.name) & (pl.col("status") == "failed")).height
    cell = summarise_rows(label, rows, failed) or Cell()
    remarks = tuple(label.remarks(rows.filter(pl.col("status") == "ok"))) if len(rows) else ()
    return replace(cell, notes=tuple(note for note in cell.notes if note not in remarks)), remarks


def _make_line(
    board: Board,
    label: Label,
    row: Row,
    states: Mapping[str, Verification],
    entry: Entry | None,
    comparison: Comparison | None,
    test: ControlTest | None,
) -> Line:
    rows = board.contents.rows(board.data, board.model, label.name, row.name)
    cell, remarks = _read_cell(label, rows, row)
    value = math.nan if entry is None or entry.middle is None else entry.middle.value
    verdict, difference = _describe_difference(row.name, entry, comparison, label.reading.decimals)
    controls, against = _describe_test(test, label.reading.decimals)
    mark = {"best": "★", "tied": "★"}.get((entry.verdict or "") if entry else "", "")
    rank = None if entry is None else entry.mean_rank
    return Line(
        row, state_of(row, label.name, states), cell, remarks, value, rank, mark, verdict, difference, controls, against
    )


def _make_unranked_line(board: Board, label: Label, row: Row) -> Line:
    """A row whose verification found other numbers. It is read on its own."""
    own = presentation_of(label.metric, label.stored.get("direction")).reading(label.options)
    if own.column == label.reading.column:
        cell, _ = _read_cell(label, row.frames[label.name], row)
    else:  # the others are compared by a number that depends on all explainers
        cell = Cell(notes=("not comparable on its own",))
    return Line(row, "differs", cell, (), math.nan, None, "", "not ranked", "", "", "")


def _describe_difference(
    name: str, entry: Entry | None, comparison: Comparison | None, decimals: int | None
) -> tuple[str, str]:
    """What the tests say of an explainer beside the best one, and the median difference from it."""
    if comparison is None or name not in comparison.names or comparison.count == 0:
        return "", ""
    place, best = comparison.names.index(name), comparison.order[0]
    verdict = {
        "best": "best mean rank",
        "tied": "not shown to be worse than the best",
        "worse": "worse than the best",
        "undecided": "no difference decided",
    }[(entry.verdict if entry else None) or "undecided"]
    if place == best:
        return verdict, ""
    gap = comparison.differences[place][best]
    p = _format_p(float(comparison.p_values[place, best]))
    return verdict, f"{_describe_gap(gap, decimals)}, {p}, beside {comparison.names[best]}"


def _describe_test(test: ControlTest | None, decimals: int | None) -> tuple[str, str]:
    if test is None:
        return "", ""
    words, p = {
        "beats": ("better than every control", test.p_beats),
        "worse": ("worse than a control", test.p_worse),
        "undecided": ("not shown to be better than every control", test.p_beats),
    }[test.verdict]
    return words, f"{_describe_gap(test.difference, decimals)}, {_format_p(p)}, beside {test.control}"


def _describe_gap(gap: Interval | None, decimals: int | None) -> str:
    """A median difference with its interval."""
    if gap is None or math.isnan(gap.value):
        return "difference not known"
    sign = {"upper": "≤ ", "lower": "≥ "}.get(gap.bound or "", "")
    plus = "+" if gap.value > 0 else ""
    text = f"{sign}{plus}{format_number(gap.value, decimals)}"
    return text if gap.low is None or gap.high is None else f"{text} {describe_interval(gap, decimals)}"


def _keep_together(text: str) -> str:
    r"""Text whose intervals, and whose equations such as `n = 16`, no line break divides.

    >>> _keep_together("[0.1, 0.2], n = 16")
    '[0.1,\xa00.2], n\xa0=\xa016'
    """
    return re.sub(r"\[[^\]]*\]| [=<] |^[≤≥] ", lambda found: found[0].replace(" ", "\u00a0"), text)


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
