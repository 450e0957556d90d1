"""Evaluate some of the jobs of an evidence pack, or of a study's results, again, and compare the numbers.

On a machine of the same type the numbers are the same to the last bit. Elsewhere kernels round differently, and one
comparison that comes out differently may send a search or a Markov chain elsewhere. Then a number is compared with the
stored interval of its sample, where there is one, and else by how far it is from the stored one.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from standfast.errors import ArgumentError, check, check_integer
from standfast.evidence.pack import verify_pack
from standfast.metrics.sanity import SanityChecks
from standfast.report import load_results
from standfast.results import StoredResults
from standfast.study.file.spec import study_from
from standfast.study.import_paths import importing_from
from standfast.study.jobs import Job
from standfast.study.plan import make_plan
from standfast.study.store import Store
from standfast.study.worker import Worker
from standfast.tensors import Array
from standfast.value_spec import read_numbers

Agreement = Literal["same bits", "within rounding", "within the interval", "different", "failed"]
_WORSE: tuple[Agreement, ...] = (
    "same bits",
    "within rounding",
    "within the interval",
    "different",
    "failed",
)
_ROUNDING = 1e-4  # relative to the largest stored value of the job
#: where a job belongs: two jobs with the same identity have the same places
_PLACES = ("data", "model", "explainer", "label", "repeat", "start", "stop")
#: what a manifest says of data and of models that must be the same here
_IDENTITY = {
    "data": ("digest", "samples", "bounds", "targets", "targets_digest", "extras"),
    "models": ("digest", "network"),
}
#: what a manifest says of reading the numbers of a metric
_READING = ("values", "controls")


@dataclass(frozen=True)
class Replay:
    """What `replay` found.

    Attributes:
        jobs: how each job that was evaluated again agrees with the stored one, by its coordinates.
        planned: how many jobs the pack has.
        changed: what is not the same here as when the results were made, such as a model; then no job is comparable.
        seed: of the choice of jobs.
    """

    jobs: dict[str, Agreement] = field(default_factory=dict)
    planned: int = 0
    changed: tuple[str, ...] = ()
    seed: int = 0

    @property
    def fine(self) -> bool:
        """Whether all that was evaluated agrees."""
        return (
            bool(self.jobs)
            and not self.changed
            and not {"different", "failed"} & set(self.jobs.values())
        )


def replay(
    path: str | Path,
    base: str | Path = ".",
    jobs: int = 5,
    seed: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Replay:
    """Evaluate a random sample of the jobs of a pack again.

    This imports the functions that the pack names, and runs them: the study's own ones, or any other that is installed.
    So do it only with a pack and with code that you trust.

    Args:
        path: the folder of the pack, which must verify.
        base: the folder that paths and functions of the study are relative to.
        jobs: how many jobs.
        seed: of the choice of jobs; None for a new one, which nobody who made the pack can have known.
        tell: is called with a line for each job.

    Raises:
        ArgumentError: no pack, or one that does not verify; results that come from no study file.
        StudyError: data, models or functions of the study are not here.
    """
    check_integer(jobs, "jobs")
    verified = verify_pack(path)
    intact = "a pack of which nothing was changed (see `standfast verify`)"
    # a changed pack could run any function
    check(verified.fine, "path", intact, f"{len(verified.problems)} problems")
    stored = load_results(Path(path) / "results")
    return repeat_jobs(stored, base, jobs, seed, tell)


def repeat_jobs(
    results: StoredResults,
    base: str | Path = ".",
    jobs: int = 5,
    seed: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Replay:
    """Evaluate a random sample of the jobs of a study's results again, as `replay`, and compare every number.

    Args:
        results: of a study file.
        base, jobs, seed, tell: as of `replay`, also that functions are imported and run.

    Raises:
        ArgumentError: results that come from no study file.
        StudyError: data, models or functions of the study are not here.
    """
    check_integer(jobs, "jobs")
    content = results.manifest.get("study")
    if not content:
        raise ArgumentError(
            "results",
            "results of a study file, which says how to make them again",
            "results of `evaluate`",
        )
    done = results.jobs.filter(pl.col("status") == "done")
    stored_places: dict[str, tuple[Any, ...]] = {}
    for row in done.iter_rows(named=True):
        coordinates = tuple(row[name] for name in _PLACES)
        stored_places[str(row["job"])] = coordinates
    grid = study_from(content, base).grid()
    # a seed that the author of a pack cannot know
    seed = secrets.randbits(32) if seed is None else seed
    # functions of the study are imported by their names
    with importing_from(grid.paths):
        plan = make_plan(grid, earlier=results.manifest)
        changed = _find_changes(results.manifest, plan.manifest)
        # identities could be written by hand, so the place is compared as well
        comparable = [
            job for job in plan.jobs if stored_places.get(job.identity) == _find_places(job)
        ]
        # without any there is nothing to repeat
        if not comparable:
            changed = changed or ("no job of the study is among the results",)
            return Replay(planned=results.planned, changed=changed, seed=seed)
        lost = len(stored_places) - len(comparable)
        # jobs that are not repeated must not be taken for agreement
        if lost > 0:
            changed += (f"{lost} of {len(stored_places)} jobs are not jobs of the study here",)
        count = min(jobs, len(comparable))
        chosen = random.Random(seed).sample(comparable, count)
        worker = Worker(plan.grid)
        agreements: dict[str, Agreement] = {}
        # a worker keeps one model, so those of a model follow each other
        for job in sorted(chosen, key=lambda job: (job.data, job.model)):
            name = _name(job)
            rows = _select_rows(results, job.identity)
            agreements[name] = _compare(worker, job, rows, results.artefacts(job.identity))
            tell(f"{name}: {agreements[name]}")
    return Replay(agreements, results.planned, changed, seed)


def _find_places(job: Job) -> tuple[object, ...]:
    return tuple(getattr(job, name) for name in _PLACES)


def _select_rows(results: StoredResults, job: str) -> pl.DataFrame:
    """The rows of a job, without the columns of other metrics, which have no values in it."""
    frames = [
        rows.filter(pl.col("job") == job)
        for rows in (results.samples, results.sanity_rows)
        if len(rows)
    ]
    # a job has rows in one of the two frames alone
    frame = max(frames, key=len).drop("job")
    # a column without values belongs to another metric
    return frame.select(
        column for column in frame.get_columns() if column.null_count() < len(column)
    )


def _name(job: Job) -> str:
    what = f"{job.label}, {job.explainer}, {job.model} on {job.data}"
    last = job.stop - 1
    return f"{what}, samples {job.start} to {last}, repeat {job.repeat}"


def _find_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Data, models, options and code that are not those of the results."""
    changes: list[str] = []
    for section in ("data", "models"):
        entries_then = then.get(section) or {}
        entries_now = now.get(section) or {}
        changes += _find_other_values(section, entries_then, entries_now)
    for section in ("explainers", "metrics"):
        entries_now = now.get(section) or {}
        for name, entry_then in (then.get(section) or {}).items():
            if _select_options(entry_then) != _select_options(entries_now.get(name)):
                changes.append(f"{section} {name!r}: other options")
    for key in ("seed", "repeats"):
        if then.get(key) != now.get(key):
            changes.append(f"{key}: {now.get(key)} here")
    changes += _find_other_controls(then, now)
    code_then = then.get("code") or {}
    code_now = now.get("code") or {}
    changes += [
        f"code {name!r}: changed"
        for name in sorted(code_then)
        if code_then[name] != code_now.get(name)
    ]
    return tuple(changes)


def _find_other_values(
    section: str, entries_then: Mapping[str, Any], entries_now: Mapping[str, Any]
) -> Iterator[str]:
    """Data sets or models whose values, or what belongs to them, are not those of the results."""
    for name in entries_then:
        entry_then = entries_then[name] or {}
        entry_now = entries_now.get(name) or {}
        if entry_then.get("digest") != entry_now.get("digest"):
            other_digest = entry_now.get("digest")
            yield f"{section} {name!r}: other values (digest {other_digest} here)"
            continue  # then nothing else is comparable
        for key in _IDENTITY[section]:
            if _as_stored(entry_then.get(key)) != _as_stored(entry_now.get(key)):
                yield f"{section} {name!r}: another {key}"


def _find_other_controls(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Other controls than those of the results; there may be more, as a study has some by default."""
    stored_explainers = then.get("explainers") or {}
    controls_now = now.get("controls") or []
    controls = [name for name in controls_now if name in stored_explainers]
    if controls == (then.get("controls") or []):
        return []
    return [f"controls: {controls} here"]


def _select_options(about: object) -> object:
    """What the numbers of an explainer or a metric depend on, and not how they are read, which old manifests lack."""
    if not isinstance(about, Mapping):  # an explainer without options, as a text
        return _as_stored(about)
    options = {name: value for name, value in about.items() if name not in _READING}
    return _as_stored(options)


def _as_stored(value: object) -> object:
    """A value as it comes back from a file, with infinity and NaN as texts, which every JSON file can hold."""
    names = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
    # JSON has no names for these, and readers differ
    return json.loads(json.dumps(value, default=str), parse_constant=names.__getitem__)


def _compare(
    worker: Worker, job: Job, then: pl.DataFrame, arrays: Mapping[str, Array]
) -> Agreement:
    """Evaluate a job and compare its values, and those of its arrays that are stored, with the stored ones."""
    packed = worker.run(job)
    if packed.failed:
        return "failed"
    # through the store, so that both were written and read in the same way
    scratch = Store("memory://standfast-replay")
    scratch.put(packed)
    _, now = scratch.read(job.identity)
    arrays_now = scratch.read_artefacts(job.identity) if arrays else {}
    scratch.forget(job.identity)
    aligned = _align(then, now)
    if aligned is None:
        return "different"
    agreements: list[Agreement] = [_compare_rows(then, aligned)]
    for name, array in arrays.items():
        agreements.append(_compare_arrays(array, arrays_now.get(name)))
    # the worst part decides
    return max(agreements, key=_WORSE.index)


def _compare_rows(then: pl.DataFrame, now: pl.DataFrame) -> Agreement:
    """How two frames with the same columns agree."""
    if now.equals(then, null_equal=True):
        return "same bits"
    return compare_values(then, now)


def _align(then: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame | None:
    """The columns that are stored; None if one of them is missing now, or if one with values now is not stored."""
    others = now.drop(then.columns, strict=False)
    if any(column.null_count() < len(column) for column in others.get_columns()):
        return None
    if set(then.columns) <= set(now.columns):
        return now.select(then.columns)
    return None


def _compare_arrays(then: Array, now: Array | None) -> Agreement:
    """How two arrays agree."""
    if now is None or now.shape != then.shape:
        return "different"
    if now.dtype == then.dtype and now.tobytes() == then.tobytes():
        return "same bits"
    # types may differ where values do not
    numbers_then = np.asarray(then, dtype=float)
    numbers_now = np.asarray(now, dtype=float)
    slack = _find_slack(numbers_then)
    is_near = np.allclose(numbers_then, numbers_now, rtol=0, atol=slack, equal_nan=True)
    return "within rounding" if is_near else "different"


def _find_slack(stored: Array) -> float:
    """By how much numbers of a job may differ by rounding."""
    finite = np.abs(stored[np.isfinite(stored)])
    return _ROUNDING * float(finite.max(initial=0.0))


def compare_values(then: pl.DataFrame, now: pl.DataFrame) -> Agreement:
    """How the rows of the same samples agree, by value, interval and flags.

    A flag, such as whether a search found anything, must be the same. A value is within the interval if each of the two
    lies in the interval of the other one, because a stored interval can be as wide as its author likes.

    >>> then = pl.DataFrame({"sample": [0], "status": ["ok"], "value": [1.0], "low": [0.5], "high": [2.0]})
    >>> compare_values(then, then.with_columns(value=pl.lit(1.5)))
    'within the interval'
    """
    # a search that found something else is no matter of rounding
    if not _have_same_flags(then, now):
        return "different"
    names = ["value", "low", "high"]
    # every number of these is a value
    if "metric" in then.columns and (then["metric"] == SanityChecks.name).all():
        names += [
            name for name, kind in then.schema.items() if kind.is_float() and name not in names
        ]
    numbers_then = {name: read_numbers(then, name) for name in names}
    numbers_now = {name: read_numbers(now, name) for name in names}
    slack = _find_slack(numbers_then["value"])
    near = {
        name: np.isclose(numbers_now[name], numbers_then[name], rtol=0, atol=slack, equal_nan=True)
        for name in names
    }
    if all(near_rows.all() for near_rows in near.values()):
        return "within rounding"
    inside = _lie_inside(numbers_now["value"], numbers_then) & _lie_inside(
        numbers_then["value"], numbers_now
    )
    if (near["value"] | inside).all():
        return "within the interval"
    return "different"


def _have_same_flags(then: pl.DataFrame, now: pl.DataFrame) -> bool:
    """Whether the samples, their statuses and all flags are the same, also of the same type."""
    flags = [
        # a flag may have become a number
        name
        for name, kind in then.schema.items()
        if pl.Boolean in (kind, now.schema.get(name))
    ]
    keys = ["sample", "status", *flags]
    if now.height != then.height or not set(keys) <= set(now.columns):
        return False
    return now.select(keys).equals(then.select(keys))


def _lie_inside(values: Array, intervals: Mapping[str, Array]) -> Array:
    """Which values lie in the intervals of the same rows; none in one with an unknown end."""
    above, below = intervals["low"] <= values, values <= intervals["high"]
    return np.asarray(above & below)
