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
import platform
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

import standfast
from standfast import ArgumentError
from standfast.evidence import repeat_jobs
from standfast_board.submission import Submission

State = Literal["verified", "differs", "not verified"]
_LEVEL = 0.05
#: so many digits of a digest say which submission is meant; anybody can make one with the same first 8
TRUSTED_DIGITS = 16
#: what looks like `package:name`, which can be a function, or a thing of another package
_REFERENCE = re.compile(r"^[^\s:]+:\S+$")


@dataclass(frozen=True)
class Verification:
    """What the verification of a submission found.

    Attributes:
        state: the state.
        reason: why nothing could be compared; empty unless the state is `"not verified"`.
        jobs: how each job that was evaluated again agrees with the submitted one, by its place.
        done: how many jobs the submission has.
        seed: of the choice of jobs.
        versions: with which standfast, torch and python it was verified.
    """

    state: State
    reason: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
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
        counts = ", ".join(
            f"{count} {kind}" for kind, count in sorted(Counter(self.jobs.values()).items())
        )
        drawn = f"{len(self.jobs)} of {self.done} jobs, drawn at random, were evaluated again: {counts}."
        if self.state == "differs":
            return f"Differs: {drawn}"
        return f"Verified: {drawn} With 95% confidence at most {math.ceil(100 * self.share)}% of its jobs differ."


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

    Raises:
        ArgumentError: something trusted is no digest.
    """
    check_trusted(trusted)
    content = submission.manifest.get("study")
    if not content:
        return Verification(
            "not verified", "its results are not of a study file, which says how to make them again"
        )
    named = find_foreign(content)
    if named and not any(submission.digest.startswith(start) for start in trusted):
        few = ", ".join(named[:3]) + (", ..." if len(named) > 3 else "")
        return Verification(
            "not verified", f"it names code that is run only if the submission is trusted ({few})"
        )
    try:
        return _repeat(submission, jobs, base, seed, tell)
    except (
        Exception,
        SystemExit,
    ) as error:
        # data that are not here, and whatever a trusted function raises
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = "; ".join(lines[:3]).rstrip(".") or type(error).__name__
        return Verification("not verified", f"it cannot be evaluated here: {problem}")


def check_trusted(trusted: Collection[str]) -> None:
    """Raise `ArgumentError` for what cannot be the start of a digest, or is too short to mean one submission."""
    for start in trusted:
        if not re.fullmatch(f"[0-9a-f]{{{TRUSTED_DIGITS},64}}", start):
            raise ArgumentError(
                "trusted", f"a digest, or its first {TRUSTED_DIGITS} digits or more", repr(start)
            )


def _repeat(
    submission: Submission,
    jobs: int,
    base: str | Path,
    seed: int | None,
    tell: Callable[[str], None],
) -> Verification:
    found = repeat_jobs(submission.results, base, jobs, seed, tell)
    versions = {
        "standfast": standfast.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    agreements = set(found.jobs.values())
    state: State = "verified"
    reason = ""
    if found.changed or not found.jobs:
        state, reason = (
            "not verified",
            f"not the same here: {'; '.join(found.changed[:3]) or 'nothing to compare'}",
        )
    elif "different" in agreements:
        state = "differs"
    elif "failed" in agreements:
        state, reason = "not verified", "a job could not be evaluated here"
    done = submission.results.jobs.height - len(submission.results.failures)
    return Verification(state, reason, found.jobs, done, found.seed, versions)


def find_foreign(content: Mapping[str, Any]) -> list[str]:
    """What a study names that is not standfast's own: functions, things of other packages and hubs, and downloads.

    Every text of the form `a:b` counts, except the names of data that standfast reads from files.

    >>> find_foreign({"data": {"d": "mnist:test"}, "explainers": ["lrp", "captum:Saliency"]})
    ['captum:Saliency']
    """
    found: list[str] = []
    known = {name.partition(":")[0] for name in standfast.data.names()} | {"ucr"}

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
