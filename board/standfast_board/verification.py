"""Verify a submission: evaluate a random sample of its jobs again, and compare every number.

The submission names a study; data, models and functions are those of whoever verifies it. Functions are run only if the
submission is trusted. A submission has one of three states:

- *verified*: all jobs that were evaluated again agree;
- *differs*: some do not;
- *not verified*: nothing could be compared, for a reason that is given.

`Verification.share` says what agreement shows. If k of n jobs were drawn at random and all agree, then, with 95%
confidence, at most this share of the jobs differs: the largest D / n for which drawing no differing job had a
probability above 5%, C(n - D, k) / C(n, k) > 0.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from standfast import data
from standfast.errors import check_integer
from standfast.evidence.repetition import PLACES, Agreement, Replay, repeat_jobs
from standfast.study.file.spec import study_from
from standfast.study.provenance import environment
from standfast.tensors import Array
from standfast_board.submission import Submission

State = Literal["verified", "differs", "not verified"]
_LEVEL = 0.05
#: so many digits of a digest say which submission is meant; anybody can make one with the same first 8
TRUSTED_DIGITS = 16
#: what looks like `package:name`, which can be a function, or a thing of another package
_REFERENCE = re.compile(r"^[^\s:]+:\S+$")
_AGREEMENTS = ("same bits", "within rounding", "within the interval", "different", "failed")


@dataclass(frozen=True)
class Verification:
    """What the verification of a submission found.

    Attributes:
        state: the state.
        reason: why nothing could be compared; empty unless the state is `"not verified"`.
        jobs: how each job that was evaluated again agrees with the submitted one, by its place.
        done: how many jobs the submission has.
        seed: of the choice of jobs.
        versions: with what it was verified: standfast, torch, python, and the processor or the GPU.
    """

    state: State
    reason: str = ""
    jobs: Mapping[str, Agreement] = field(default_factory=dict)
    done: int = 0
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """At most this share of the jobs differs, with 95% confidence, if the state is `"verified"`; else 1.

        >>> jobs = {"a": "same bits", "b": "same bits"}
        >>> Verification("verified", jobs=jobs, done=2).share, Verification("verified", jobs=jobs, done=100).share
        (0.0, 0.77)
        """
        count, drawn = self.done, len(self.jobs)
        if self.state != "verified":
            return 1.0
        differing = 0
        while math.comb(count - differing - 1, drawn) > _LEVEL * math.comb(count, drawn):
            differing += 1
        return differing / count

    @property
    def text(self) -> str:
        """The state in a sentence."""
        if self.state == "not verified":
            return f"Not verified: {self.reason}."
        found = list(self.jobs.values())
        counts = ", ".join(f"{found.count(kind)} {_in_words(kind)}" for kind in _AGREEMENTS if kind in found)
        drawn = f"{len(found)} of {self.done} jobs, drawn at random, were evaluated again: {counts}."
        if self.state == "differs":
            return f"Differs: {drawn}"
        if len(found) == self.done:
            return f"Verified: {drawn}"
        return f"Verified: {drawn} With 95% confidence at most {math.ceil(100 * self.share)}% of its jobs differ."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)


def verification_from(raw: Mapping[str, Any]) -> Verification:
    """What `Verification.as_dict` wrote."""
    return Verification(**{name: raw[name] for name in Verification.__dataclass_fields__})


def _in_words(kind: Agreement) -> str:
    words = {
        "same bits": "with the same bits",
        "within rounding": "within rounding",
        "within the interval": "each within the other's interval",
        "different": "with other numbers",
        "failed": "could not be evaluated",
    }
    return words[kind]


def verify_submission(
    submission: Submission,
    jobs: int,
    base: str | Path = ".",
    trusted: Collection[str] = (),
    seed: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Verification:
    """Evaluate a random sample of a submission's jobs again.

    Args:
        submission: which was read from its file.
        jobs: how many jobs.
        base: the folder that paths and functions of the study are relative to.
        trusted: the starts of digests of submissions whose functions may be imported and run, 16 digits or more.
        seed: of the choice of jobs; None for a new one, which nobody who made the submission can have known.
        tell: is called with a line for each job.
    """
    check_integer(jobs, "jobs")
    content = submission.manifest.get("study")
    if not content:
        return Verification("not verified", "its results are not of a study file, which says how to make them again")
    named = find_foreign(content)
    if named and not is_trusted(submission, trusted):
        few = ", ".join(named[:3]) + (", ..." if len(named) > 3 else "")
        return Verification("not verified", f"it names code that is run only if the submission is trusted ({few})")
    try:
        return _judge(submission, _repeat(submission, content, jobs, base, seed, tell))
    except (Exception, SystemExit) as error:  # data that are not here, and whatever a trusted function raises
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = "; ".join(lines[:3]).rstrip(".") or type(error).__name__
        return Verification("not verified", f"it cannot be evaluated here: {problem}")


def is_trusted(submission: Submission, trusted: Collection[str]) -> bool:
    """Whether the digest of a submission is among the trusted ones, which may be given by their start."""
    return any(len(start) >= TRUSTED_DIGITS and submission.digest.startswith(start) for start in trusted)


def _repeat(
    submission: Submission,
    content: Mapping[str, Any],
    jobs: int,
    base: str | Path,
    seed: int | None,
    tell: Callable[[str], None],
) -> Replay:
    results = submission.results
    done = results.jobs.filter(pl.col("status") == "done")
    records = {str(row["job"]): tuple(row[name] for name in PLACES) for row in done.iter_rows(named=True)}

    def read(job: str) -> tuple[pl.DataFrame, Mapping[str, Array]]:
        frame = results.samples.filter(pl.col("job") == job).drop("job")
        # the columns of other metrics have no values here
        frame = frame.select(column for column in frame.get_columns() if column.null_count() < len(column))
        return frame, results.artefacts(job)

    study = study_from(content, base)
    return repeat_jobs(study, submission.manifest, records, read, results.planned, jobs, seed, tell)


def _judge(submission: Submission, found: Replay) -> Verification:
    done = submission.results.jobs.filter(pl.col("status") == "done").height
    about = environment()
    versions = {key: str(about[key]) for key in ("standfast", "torch", "python", "gpu", "cpu") if about.get(key)}
    agreements = set(found.jobs.values())
    state: State = "verified"
    reason = ""
    if found.changed or not found.jobs:
        state, reason = "not verified", f"not the same here: {'; '.join(found.changed[:3]) or 'nothing to compare'}"
    elif "different" in agreements:
        state = "differs"
    elif "failed" in agreements:
        state, reason = "not verified", "a job could not be evaluated here"
    return Verification(state, reason, found.jobs, done, found.seed, versions)


def find_foreign(content: Mapping[str, Any]) -> list[str]:
    """What a study names that is not standfast's own: functions, things of other packages and hubs, and downloads.

    Every text of the form `a:b` counts, except the names of data that standfast reads from files.

    >>> find_foreign({"data": {"d": "mnist:test"}, "explainers": ["lrp", "captum:Saliency"]})
    ['captum:Saliency']
    """
    found: list[str] = []
    known = {name.partition(":")[0] for name in data.names()} | {"ucr"}

    def look(value: Any, section: str) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                look(str(key), section)
                if key in ("trust", "download") and inner is not False:
                    found.append(f"{key}: {inner}")
                elif key == "function" and isinstance(inner, str):
                    found.append(inner)
                look(inner, section)
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner, section)
        elif isinstance(value, str) and _REFERENCE.match(value):
            own = section == "data" and value.partition(":")[0] in known
            found.extend([] if own else [value])

    for key, value in content.items():
        if key not in ("title", "executor"):
            look(value, str(key))
    return list(dict.fromkeys(found))
