"""Make an evidence pack, and verify it.

A pack is a folder. `evidence.json` lists every other file with its size and SHA-256, and has its own SHA-256 in it. So
a change of any file, a missing one and an added one are found. Somebody who changes a file can write a new
`evidence.json` as well. So what follows from the jobs is made again from them: the summary, the samples, the decisions
and the outcome. `docs/how-to/evidence.md` says what a signature or a noted digest alone protects.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from standfast.checks.decision import Decisions
from standfast.checks.formats import FORMATS, fill_page
from standfast.checks.sequence import confirm_decisions, read_decisions
from standfast.errors import StandfastError, check
from standfast.evidence.cards import find_false_cards, write_cards
from standfast.evidence.crosswalk import write_crosswalk
from standfast.evidence.model_card import write_model_card
from standfast.evidence.numbers import (
    describe_false_readings,
    describe_false_samples,
    describe_false_summary,
    find_uncheckable,
)
from standfast.evidence.software import describe_software
from standfast.files import read_file, write_atomically
from standfast.report import build_html, exports, load_results
from standfast.results import StoredResults, verify_results
from standfast.study.store import LOOKS, MANIFEST

#: the list of the files, and its signature by another program, which may lie beside it
LIST = "evidence.json"
SIGNATURE = "evidence.json.sig"
_SCHEMA = 1
#: what was decided, by the format
_CHECKS = {"check.json": "json", "check.md": "markdown"}


@dataclass(frozen=True)
class PackVerification:
    """What `verify_pack` found.

    Attributes:
        digest: SHA-256 of `evidence.json`, which stands for the whole pack.
        files: how many files it lists.
        problems: what is wrong, by the name of the file.
        unconfirmed: decisions against a baseline that is not here, so that they were not made again.
        uncheckable: metrics whose rows of the summary need arrays that are not in the pack.
    """

    digest: str
    files: int
    problems: dict[str, str]
    unconfirmed: tuple[str, ...] = ()
    uncheckable: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether nothing was changed."""
        return not self.problems


def make_pack(
    results: str | Path | StoredResults, out: str | Path, arrays: bool = False
) -> PackVerification:
    """Make an evidence pack of stored results, in a new folder.

    Args:
        results: a folder or an fsspec address of stored results, or opened ones.
        out: the folder of the pack.
        arrays: also the stored arrays, which are the inputs, the maps and the curves of each sample; and with the
            metric `reasons` the cards of the weakest and the strongest decisions, which show inputs, too.

    Returns:
        The verification of the pack that was made.

    Raises:
        ArgumentError: no results, damaged ones, ones whose numbers do not give what was decided, a folder that is not
            empty.
    """
    opened = results if isinstance(results, StoredResults) else load_results(results)
    folder = Path(out)
    has_nothing = folder.is_dir() and not any(folder.iterdir())
    empty = not folder.exists() or has_nothing
    check(empty, "out", "a new or an empty folder", str(out))
    done = opened.jobs.height - len(opened.failures)
    check(done > 0, "results", "results with a job that is done", repr(opened))
    # a pack of damaged results would seal the damage
    stored = verify_results(opened.store)
    fine = "results of which every file is as it was written (see `standfast verify`)"
    check(not stored.damaged, "results", fine, f"{len(stored.damaged)} damaged files")
    decisions = read_decisions(opened)
    # a pack says what was decided, so the numbers have to give it
    confirmed = confirm_decisions(opened)
    numbers = "decisions that the stored numbers give (decide again: `standfast check`)"
    check(
        not confirmed.different,
        "results",
        numbers,
        f"others in {LOOKS}: {'; '.join(confirmed.different)}",
    )
    # before anything is written, so that an error leaves no half of a pack
    files = _write_parts(opened, decisions)
    if arrays:
        files |= write_cards(opened)
    _copy_results(opened, files, arrays)
    listed = {
        name: {"sha256": _digest(content), "bytes": len(content)}
        # sorted, so that the same results have the same list
        for name, content in sorted(files.items())
    }
    listing = _seal(
        {
            "standfast_evidence": _SCHEMA,
            "created": _now(),
            "results": _describe_results(opened),
            "outcome": None if decisions is None else decisions.outcome,
            "files": listed,
        }
    )
    for name, content in files.items():
        # the list, which is written last, makes the pack complete
        write_atomically(folder / name, content, lasting=False)
    write_atomically(folder / LIST, listing)
    # read back, as a disk may write something else
    return verify_pack(folder)


def verify_pack(path: str | Path) -> PackVerification:
    """Compare every file of a pack with its digest, and its decisions, tables and outcome with the numbers of its jobs.

    Raises:
        ArgumentError: no evidence pack.
    """
    folder = Path(path)
    check(
        (folder / LIST).is_file(), "path", f"an evidence pack, which has the file {LIST}", str(path)
    )
    content = read_file(folder / LIST)
    about, problems = _read_listing(content)
    listed: dict[str, Any] = about["files"]
    problems |= _find_changed_files(folder, listed)
    # what was changed is no evidence, and need not be parsed
    if problems:
        return PackVerification(_digest(content), len(listed), problems)
    try:
        results = load_results(folder / "results")
        unconfirmed = _decide_again(results, about, problems)
        uncheckable = find_uncheckable(results, listed)
        _make_tables_again(results, folder, listed, uncheckable, problems)
        problems |= find_false_cards(results, folder, listed)
    except Exception as error:  # somebody may have sealed anything
        if isinstance(error, StandfastError):
            problems["results"] = str(error)
        else:
            problems["results"] = f"cannot be read: {error!r}"
        return PackVerification(_digest(content), len(listed), problems)
    return PackVerification(_digest(content), len(listed), problems, unconfirmed, uncheckable)


def _read_listing(content: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """What `evidence.json` says, with an entry for each of the `files`, and what is wrong with it by its name."""
    problems: dict[str, str] = {}
    try:
        about = json.loads(content)
        if about.get("standfast_evidence") != _SCHEMA:
            problems[LIST] = f"not of version {_SCHEMA}"
        # only these bytes are allowed, so that nothing can hide in blanks or in an order
        without_seal = {name: value for name, value in about.items() if name != "seal"}
        if _seal(without_seal) != content:
            problems[LIST] = "changed: its own SHA-256 differs"
        return {**about, "files": dict(about["files"])}, problems
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return {"files": {}}, {LIST: f"damaged: {error}"}


def _find_changed_files(folder: Path, listed: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the files of a pack, by their names: changed, missing and added ones, and links."""
    problems: dict[str, str] = {}
    # `lstat`, as a link could lead to files that are not in the pack
    paths = sorted(folder.rglob("*"))
    modes = ((path, path.lstat().st_mode) for path in paths)
    present = {
        path.relative_to(folder).as_posix(): mode for path, mode in modes if not stat.S_ISDIR(mode)
    }
    for name, entry in listed.items():
        if name not in present:
            problems[name] = "missing"
        elif stat.S_ISREG(present[name]) and not _is_as_listed(folder / name, entry):
            problems[name] = "changed: its SHA-256 differs"
    for name, mode in present.items():
        if stat.S_ISLNK(mode):
            problems[name] = "a link to elsewhere"
        elif not stat.S_ISREG(mode):
            problems[name] = "neither a file nor a folder"
        elif name not in listed and name not in (LIST, SIGNATURE):
            problems[name] = "not listed: added later"
    return problems


def _make_tables_again(
    results: StoredResults,
    folder: Path,
    listed: Collection[str],
    uncheckable: Collection[str],
    problems: dict[str, str],
) -> None:
    """Make the tables of a pack again from its jobs, and add what differs to the problems."""
    checks: dict[str, Callable[[bytes], str]] = {
        "samples.parquet": lambda content: describe_false_samples(content, results),
        "summary.csv": lambda content: describe_false_summary(content, results, uncheckable),
    }
    # a table that is missing is told like one that differs
    for name, describe in checks.items():
        if name in listed:
            problem = describe(read_file(folder / name))
        else:
            problem = "missing"
        if problem:
            problems[name] = problem
    false_readings = describe_false_readings(results)
    if false_readings:
        problems[f"results/{MANIFEST}"] = false_readings


def _decide_again(
    results: StoredResults, about: Mapping[str, Any], problems: dict[str, str]
) -> tuple[str, ...]:
    """Decide the requirements again from the numbers of a pack, and add what differs to the problems.

    Args:
        results: in the pack.
        about: the content of `evidence.json`.
        problems: by the name of the file.

    Returns:
        The decisions that could not be made again.
    """
    listed: Mapping[str, Any] = about["files"]
    decisions = read_decisions(results)
    confirmed = confirm_decisions(results)
    outcome = None
    if decisions is not None:
        outcome = decisions.outcome
    if about.get("outcome") != outcome:
        problems[LIST] = f"its outcome is {about.get('outcome')}, and the decisions give {outcome}"
    elif about.get("results") != json.loads(json.dumps(_describe_results(results))):
        # through JSON, as numbers and tuples change there
        problems[LIST] = "its digests, seeds and numbers of jobs are not those of results/"
    if confirmed.different:
        problems[f"results/{LOOKS}"] = (
            f"not what the numbers give: {'; '.join(confirmed.different)}"
        )
    for name, form in _CHECKS.items():
        expected = None
        if decisions is not None:
            expected = _digest(FORMATS[form](decisions).encode())
        # no decisions, no file of decisions
        if (listed.get(name) or {}).get("sha256") != expected:
            problems[name] = f"not what results/{LOOKS} says"
    return confirmed.unknown


def _is_as_listed(file: Path, entry: object) -> bool:
    """Whether a file has the size and the SHA-256 of its entry."""
    # the size first, which costs nothing
    if not isinstance(entry, dict) or file.stat().st_size != entry.get("bytes"):
        return False
    with file.open("rb") as opened:
        content_digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return bool(content_digest == entry.get("sha256"))


def _write_parts(results: StoredResults, decisions: Decisions | None) -> dict[str, bytes]:
    """The files that are made for the pack, by name."""
    samples = io.BytesIO()
    results.samples.write_parquet(samples)
    files = {
        "report.html": build_html(results).encode(),
        "samples.parquet": samples.getvalue(),
        "summary.csv": exports.to_csv(exports.summary(results)).encode(),
        "MODEL_CARD.md": write_model_card(results, decisions).encode(),
        "CROSSWALK.md": write_crosswalk(results, decisions).encode(),
        "software.cdx.json": describe_software().encode(),
    }
    if decisions is not None:
        for name, form in _CHECKS.items():
            files[name] = FORMATS[form](decisions).encode()
    version = (results.manifest.get("environment") or {}).get("standfast", "?")
    title = (results.manifest.get("about") or {}).get("title") or ""
    about = {
        "version": version,
        # the day alone, since the list has the time
        "date": _now()[:10],
        "title": title,
        "decided": decisions is not None,
    }
    files["README.md"] = fill_page("README.md", **about).encode()
    return files


def _copy_results(results: StoredResults, files: dict[str, bytes], arrays: bool) -> None:
    """Add the stored results: the manifest, the jobs, the looks, and the arrays if they are wanted."""
    folder = results.store.folder
    names = ["manifest.json"]
    # arrays are inputs of the user's, which are only added on request
    parts = ("jobs", "artefacts") if arrays else ("jobs",)
    for part in parts:
        names += [f"{part}/{name}" for name in folder.names(part)]
    if folder.exists(LOOKS):
        names.append(LOOKS)
    for name in names:
        files[f"results/{name}"] = folder.read(name)


def _describe_results(results: StoredResults) -> dict[str, Any]:
    """Digests and seeds, from the manifest."""
    manifest = results.manifest
    return {
        "data": _list_digests(manifest, "data"),
        "models": _list_digests(manifest, "models"),
        "code": manifest.get("code") or {},
        "sanity": manifest.get("sanity"),
        "seed": manifest.get("seed"),
        "repeats": manifest.get("repeats"),
        "jobs": results.planned,
        "failed": len(results.failures),
        "missing": results.missing,
    }


def _list_digests(manifest: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The digest of each entry of a section, None where the manifest has none."""
    entries = manifest.get(section) or {}
    return {name: (about or {}).get("digest") for name, about in entries.items()}


def _seal(content: dict[str, Any]) -> bytes:
    """The only bytes that this content has: sorted, with the SHA-256 of the rest in it."""
    sealed = hashlib.sha256(_dump(content)).hexdigest()
    return _dump({**content, "seal": sealed})


def _dump(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True)
    return (text + "\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_pack(path: str | Path) -> bool:
    """Whether a folder is an evidence pack."""
    return (Path(path) / LIST).is_file()
