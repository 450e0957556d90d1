"""Evaluate some of the jobs of an evidence pack again, and compare the numbers.

On a machine of the same type the numbers are the same to the last bit. Elsewhere kernels round differently, and one
comparison that comes out differently may send a search or a Markov chain elsewhere. Then a number is compared with the
stored interval of its sample, where there is one, and else by how far it is from the stored one.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from holdfast.errors import ArgumentError, check, check_integer
from holdfast.evidence.pack import verify_pack
from holdfast.study.file.imports import importing_from
from holdfast.study.file.spec import study_from
from holdfast.study.plan import Job, make_plan
from holdfast.study.results import load_results
from holdfast.study.store import Store
from holdfast.study.worker import Worker

Agreement = Literal["same bits", "within rounding", "within the interval", "different", "failed"]
_ROUNDING = 1e-4  # relative to the largest stored value of the job


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
        return bool(self.jobs) and not self.changed and not {"different", "failed"} & set(self.jobs.values())


def replay(
    path: str | Path,
    base: str | Path = ".",
    jobs: int = 5,
    seed: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
    key: str | Path | None = None,
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
        key: a file with the public key (PEM) that must have signed the pack.

    Raises:
        ArgumentError: no pack, or one that does not verify; results that come from no study.
        StudyError: data, models or functions of the study are not here.
    """
    check_integer(jobs, "jobs")
    seed = secrets.randbits(32) if seed is None else seed
    verified = verify_pack(path, key)
    intact = "a pack of which nothing was changed (see `holdfast verify`)"
    check(verified.fine, "path", intact, f"{len(verified.problems)} problems")
    stored = load_results(Path(path) / "results")
    content = stored.manifest.get("study")
    if not content:
        raise ArgumentError(
            "path", "results of a study file, which says how to make them again", "results of `evaluate`"
        )
    study = study_from(content, base)
    grid = study.grid()
    with importing_from(grid.paths):
        plan = make_plan(grid)
        done = set(stored.jobs.filter(pl.col("status") == "done")["job"])
        known = [job for job in plan.jobs if job.identity in done]
        changed = _find_changes(stored.manifest, plan.manifest)
        if not known:
            return Replay(
                planned=stored.planned, changed=changed or ("no job of the study is among the results",), seed=seed
            )
        chosen = random.Random(seed).sample(known, min(jobs, len(known)))
        worker, found = Worker(grid), {}
        for job in sorted(chosen, key=lambda each: (each.data, each.model)):
            name = _name(job)
            found[name] = _compare(worker, job, stored.store)
            tell(f"{name}: {found[name]}")
    return Replay(found, stored.planned, changed, seed)


def _name(job: Job) -> str:
    where = f"{job.label}, {job.explainer}, {job.model} on {job.data}"
    return f"{where}, samples {job.start} to {job.stop - 1}, repeat {job.repeat}"


def _find_changes(then: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Data, models and code that are not those of the results."""
    found = []
    for section in ("data", "models"):
        for name, about in (then.get(section) or {}).items():
            here = (now.get(section) or {}).get(name) or {}
            if here.get("digest") != (about or {}).get("digest"):
                found.append(f"{section} {name!r}: other values (digest {here.get('digest')} here)")
    before, after = then.get("code") or {}, now.get("code") or {}
    found += [f"code {name!r}: changed" for name in sorted(before) if before[name] != after.get(name)]
    return tuple(found)


def _compare(worker: Worker, job: Job, store: Store) -> Agreement:
    """Evaluate a job and compare its values with the stored ones."""
    packed = worker.run(job)
    if packed.failed:
        return "failed"
    scratch = Store("memory://holdfast-replay")
    scratch.put(packed)
    _, now = scratch.read(job.identity)
    scratch.forget(job.identity)
    _, then = store.read(job.identity)
    if now.equals(then, null_equal=True):
        return "same bits"
    return compare_values(then, now)


def compare_values(then: pl.DataFrame, now: pl.DataFrame) -> Agreement:
    """How the values of the same samples agree.

    >>> then = pl.DataFrame({"sample": [0], "status": ["ok"], "value": [1.0], "low": [0.5], "high": [2.0]})
    >>> compare_values(then, then.with_columns(value=pl.lit(1.5)))
    'within the interval'
    """
    keys = ["sample", "status"]
    if now.height != then.height or not now.select(keys).equals(then.select(keys)):
        return "different"
    before, after = (frame["value"].cast(pl.Float64).fill_null(math.nan).to_list() for frame in (then, now))
    scale = max((abs(value) for value in before if math.isfinite(value)), default=0.0)
    near = [_is_near(a, b, _ROUNDING * scale) for a, b in zip(before, after, strict=True)]
    if all(near):
        return "within rounding"
    ends = [
        then[name].cast(pl.Float64).to_list() if name in then.columns else [None] * len(near)
        for name in ("low", "high")
    ]
    inside = [
        fine or (low is not None and high is not None and low <= value <= high)
        for fine, value, low, high in zip(near, after, *ends, strict=True)
    ]
    return "within the interval" if all(inside) else "different"


def _is_near(a: float, b: float, slack: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= slack
