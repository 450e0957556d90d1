"""Check a study: run it, decide its requirements, and evaluate more samples until they are decided.

Looking at growing results again and again, until they please, is no test. So the looks at a study's results are
counted in `looks.json` beside them, each takes its own part of the allowed error, and a requirement that was decided at
one look stays decided. A look at the same results as an earlier one is the same look. A model with other values is
another model: its looks are counted from 1, and no decision on the old one holds for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from standfast.checks.base import check_requirement, decide_with_baselines, read_baselines
from standfast.checks.baseline import Baseline
from standfast.checks.case import NO_BASELINE, find_misfit
from standfast.checks.decision import Decisions, RequirementDecision
from standfast.checks.looks import (
    describe_states,
    find_earlier,
    find_look,
    has_jobs,
    list_fields,
    number_states,
    read_looks,
    restore_decision,
)
from standfast.checks.sanity import hold_to_sanity
from standfast.errors import ArgumentError, StandfastError, check_integer
from standfast.errors import check as check_argument
from standfast.evaluation import default_folder, run_study
from standfast.metrics.sanity import SanityChecks
from standfast.question.grid import Grid
from standfast.report import load_results
from standfast.report.sentences import describe_failures
from standfast.results import StoredResults
from standfast.results.results import JOB_COLUMNS, SAMPLE_COLUMNS
from standfast.study.executors import Executor
from standfast.study.file.document import StudyError
from standfast.study.file.entries import RequirementEntry
from standfast.study.file.problems import Problem, StudyFieldError, errors_at
from standfast.study.file.spec import Study, load_study, study_from
from standfast.study.manifest import describe_grid
from standfast.study.store import LOOKS, Store, digest


def check(
    study: Study | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    until_decided: bool = False,
    most_samples: int | None = None,
    executor: Executor | None = None,
    minutes: float | None = None,
    progress: bool = True,
    tell: Callable[[Decisions], None] = lambda decisions: None,
) -> Decisions:
    """Run a study and decide its requirements.

    Args:
        study: a study file with `requirements`, its content as a mapping, or the result of `load_study`.
        out: a folder or an fsspec address for the results; by default `results/<name of the file>`.
        until_decided: evaluate twice as many samples, again and again, until all requirements are decided or there are
            no more samples.
        most_samples: of each data set at most; None for all.
        executor: does the jobs; None for the study's.
        minutes: how long the run may take (`evaluate`); None for what the study says. Not with `until_decided`.
        progress: show a progress bar.
        tell: is called with the decisions of each look.

    Returns:
        The decisions of the last look, with those that were made at earlier ones.

    Raises:
        StudyError: something in the file does not fit, or it has no requirements.
        ArgumentError: an option out of range, or no such baseline.

    >>> import standfast
    >>> study = {
    ...     "data": {"digits": "digits"},
    ...     "samples": 24,
    ...     "models": {"lenet": "lenet5-mnist"},
    ...     "explainers": ["input_x_gradient"],
    ...     "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 5}}],
    ...     "requirements": [{"metric": "max_sensitivity", "at_most": 100}],
    ... }
    >>> found = check(study, out="memory://checked", progress=False)
    >>> found.outcome, found.decisions[0].estimate.count
    ('pass', 24)
    """
    check_argument(
        isinstance(until_decided, bool), "until_decided", "True or False", repr(until_decided)
    )
    check_integer(most_samples, "most_samples", also=(None,))
    check_argument(
        until_decided or most_samples is None,
        "most_samples",
        "None without until_decided",
        most_samples,
    )
    study = _open_study(study)
    time_limit = study.minutes if minutes is None else minutes
    fits = time_limit is None or not until_decided
    check_argument(
        fits,
        "until_decided",
        "False with a time limit, which decides how many samples there are",
        "True",
    )
    if most_samples is not None:
        _check_most_samples(most_samples, study)
    # what does not fit is found now, and not after hours of evaluation
    baselines = _check_requirements(study)
    target = str(out or default_folder(study))
    # only then are more samples evaluated
    most = _count_samples(study, most_samples) if until_decided else None
    command = f"standfast check {study.name}"
    while True:
        results = run_study(
            study, target, executor=executor, minutes=minutes, progress=progress, command=command
        )
        decisions = _look(results, target, study, baselines)
        tell(decisions)
        # all samples, or no more than are wanted
        if most is None or study.samples is None or study.samples >= most:
            return decisions
        if not _can_more_samples_decide(decisions, results.manifest, study):
            return decisions
        # twice as many each time, so that few looks share the error
        study = _with_samples(study, min(2 * study.samples, most))


def _open_study(study: Study | Mapping[str, Any] | str | Path) -> Study:
    """A study with requirements.

    Raises:
        StudyError: something in the file does not fit, or it has no requirements.
    """
    if isinstance(study, Mapping):
        study = study_from(study)
    elif not isinstance(study, Study):
        study = load_study(study)
    if not study.requirements:
        raise StudyError(
            study.name, [Problem(("requirements",), "at least one requirement", "none")]
        )
    return study


def _check_most_samples(most_samples: int, study: Study) -> None:
    if study.samples is None:
        expected = "None where the study has all samples"
    else:
        expected = f"at least {study.samples}"
    fits = study.samples is not None and most_samples >= study.samples
    check_argument(fits, "most_samples", f"{expected}, as the study says", most_samples)


def _can_more_samples_decide(
    decisions: Decisions, manifest: Mapping[str, Any], study: Study
) -> bool:
    """Whether any decision is undecided for no other reason than too few samples."""
    for decision in decisions.decisions:
        if decision.outcome != "undecided" or find_misfit(
            manifest, decision.metric, decision.explainer
        ):
            continue
        # what waits for the checks is decided by no number of samples
        waits_for_checks = bool(decision.sanity) and decision.needed is None
        if not waits_for_checks and not _is_baseline_used_up(decision, study):
            return True
    return False


def _check_requirements(study: Study) -> dict[str, Baseline]:
    """The baselines that the requirements name, after a check that the study can decide each requirement.

    Raises:
        StudyError: it cannot.
        ArgumentError: there is no such baseline.
    """
    baselines = read_baselines(study.requirements, study.base)
    # a limit on values names nothing that the study does not say
    if all(entry.kind in ("at_least", "at_most") for entry in study.requirements):
        return baselines
    # nothing is run, as only names and numbers are compared
    grid = study.grid(check=False)
    baselines = {
        name: _find_first_samples(baseline, study, grid) for name, baseline in baselines.items()
    }
    no_samples = pl.DataFrame(schema=SAMPLE_COLUMNS)
    no_jobs = pl.DataFrame(schema=JOB_COLUMNS)
    no_results = StoredResults(
        Store("memory://requirements"), describe_grid(grid), no_samples, no_jobs, 0
    )
    errors: list[StudyFieldError] = []
    for index, entry in enumerate(study.requirements):
        with errors_at("requirements", index, keys=entry.known(), into=errors):
            check_requirement(no_results, entry, baselines.get(entry.no_worse_than or ""))
    if errors:
        raise study._document.error(problem for error in errors for problem in error.problems)
    return baselines


def _find_first_samples(baseline: Baseline, study: Study, grid: Grid) -> Baseline:
    """The baseline, with the data sets that begin with its samples."""
    first = []
    for name, samples in grid.data.items():
        inputs = samples.inputs
        # the samples of the study may be the first ones of the baseline, so the same number is loaded
        if baseline.count_samples(name) > len(inputs):
            with contextlib.suppress(StandfastError):
                longer_study = _with_samples(study, baseline.count_samples(name))
                longer_inputs = longer_study.grid(check=False).data[name].inputs
                if torch.equal(longer_inputs[: len(inputs)], inputs):
                    inputs = longer_inputs
        if baseline.begins(name, inputs):
            first.append(name)
    return dataclasses.replace(baseline, first=frozenset(first))


def _is_baseline_used_up(decision: RequirementDecision, study: Study) -> bool:
    """Whether all samples of the baseline were compared, so that more samples decide nothing."""
    count = decision.baseline_samples
    return count is not None and study.samples is not None and study.samples >= count


def _count_samples(study: Study, most: int | None) -> int | None:
    """How many samples of each data set the study can have; None where it has all of them already."""
    if study.samples is None:
        return None
    limits = [
        len(entry.value.load(study.base, None))
        for entry in study.data.values()
        # an entry with a number of its own does not grow
        if entry.value.samples is None
    ]
    if not limits:
        return None
    if most:
        limits.append(most)
    return min(limits)


def _with_samples(study: Study, samples: int) -> Study:
    """The same study with another number of samples."""
    changed = study.model_copy(update={"samples": samples})
    # a copy has no private attributes
    changed._document = study._document
    return changed


def read_decisions(results: StoredResults) -> Decisions | None:
    """The decisions of the look at these results; None if nobody looked.

    Raises:
        StandfastError: the file of the looks is damaged, or the results are others than at each look.
    """
    store = results.store
    looks = read_looks(store)
    requirements = _read_requirements(results)
    if not looks or not requirements:
        return None
    states = describe_states(results, digest(requirements))
    index = find_look(looks, states)
    if index is None:
        words = "the results have changed since their requirements were decided; run `standfast check` again"
        raise StandfastError(f"{store.folder.address}: {words}")
    decisions = Decisions(
        tuple(map(restore_decision, looks[index]["decisions"])),
        look=max(number_states(looks, states).values(), default=1),
        samples=max(_count_by_data(results).values(), default=0),
        failed=len(results.failures),
        errors=tuple(describe_failures(results.summary)),
    )
    return hold_to_sanity(decisions, results)


def _read_requirements(results: StoredResults) -> list[dict[str, Any]]:
    """The requirements of the study, as the manifest has them."""
    return (results.manifest.get("study") or {}).get("requirements") or []


@dataclasses.dataclass(frozen=True)
class DecisionConfirmation:
    """What `confirm_decisions` found, by the names of decisions.

    Attributes:
        different: those that the numbers do not give.
        unknown: those whose baseline is not at hand, or another one.
    """

    different: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def confirm_decisions(results: StoredResults, folder: str | Path = ".") -> DecisionConfirmation:
    """Decide again, from the stored numbers, what was decided at the look at these results.

    A decision that was made at an earlier look is decided on the samples of that look, as the part of the allowed error
    that it had.

    Args:
        results: of a study with requirements that `check` has looked at; of others nothing is confirmed.
        folder: that baselines are relative to.

    Raises:
        StandfastError: as of `read_decisions`.
    """
    if read_decisions(results) is None:
        return DecisionConfirmation()
    requirements = _read_requirements(results)
    entries = [_restore_requirement(requirement) for requirement in requirements]
    looks = read_looks(results.store)
    states = describe_states(results, digest(requirements))
    current = find_look(looks, states)
    assert current is not None  # as the decisions were read

    # read again, so that a look of an earlier version has all that a decision has now
    stored = [restore_decision(decision) for decision in looks[current]["decisions"]]
    decided = _decide_again(results, entries, number_states(looks, states), folder)
    unknown = {decision.name for decision in decided if decision.advice == NO_BASELINE}
    unconfirmed = _drop_confirmed(stored, decided)
    # a decision of an earlier look was made with its part of the error
    for look in looks[:current]:
        results_then = load_results(results.store, jobs=look["jobs"])
        decided_then = _decide_again(
            results_then, entries, number_states(looks, look["states"]), folder
        )
        unconfirmed = _drop_confirmed(unconfirmed, _select_kept(decided_then, look, results))
    names = [decision.name for decision in unconfirmed] + _list_not_stored(stored, decided)
    return DecisionConfirmation(
        different=tuple(name for name in names if name not in unknown),
        unknown=tuple(name for name in names if name in unknown),
    )


def _list_not_stored(
    stored: Sequence[RequirementDecision], decided: Sequence[RequirementDecision]
) -> list[str]:
    """The names of decisions that the numbers give and nobody stored."""
    stored_names = {decision.name for decision in stored}
    return [decision.name for decision in decided if decision.name not in stored_names]


def _restore_requirement(stored: Mapping[str, Any]) -> RequirementEntry:
    """A requirement of the manifest; a level that was derived from p is stored beside it, and no entry has both."""
    if "p" in stored:
        stored = {key: value for key, value in stored.items() if key != "level"}
    return RequirementEntry.model_validate(dict(stored))


def _select_kept(
    decisions: Sequence[RequirementDecision], look: Mapping[str, Any], results: StoredResults
) -> list[RequirementDecision]:
    """Of the decisions of an earlier look those that were kept: they decide, and their jobs are still those of now."""
    return [
        decision
        for decision in decisions
        if decision.outcome != "undecided" and has_jobs(look, results, decision)
    ]


def _drop_confirmed(
    stored: Sequence[RequirementDecision], decided: Sequence[RequirementDecision]
) -> list[RequirementDecision]:
    """The stored decisions that are not among those that were decided again."""
    decided_values = [list_fields(decision) for decision in decided]
    unconfirmed = []
    for decision in stored:
        stored_values = list_fields(decision)
        if not any(_is_near(stored_values, values) for values in decided_values):
            unconfirmed.append(decision)
    return unconfirmed


def _decide_again(
    results: StoredResults,
    entries: Sequence[RequirementEntry],
    numbers: Mapping[tuple[str, str], int],
    folder: str | Path,
) -> list[RequirementDecision]:
    """The decisions by the numbers alone; undecided where a baseline is not at hand, or another one."""
    baselines: dict[str, Baseline] = {}
    for entry in entries:
        with contextlib.suppress(StandfastError):
            baselines |= read_baselines([entry], folder)
    try:
        return list(decide_with_baselines(results, entries, numbers, baselines).decisions)
    except ArgumentError:
        # one of the baselines does not fit; without them the others are still decided
        return list(decide_with_baselines(results, entries, numbers, {}).decisions)


def _is_near(stored: object, decided: object) -> bool:
    """Whether two decisions as plain values are the same, but for the rounding of numbers."""
    if isinstance(stored, dict) and isinstance(decided, dict):
        return all(_is_near(stored.get(key), value) for key, value in decided.items())
    if isinstance(stored, list) and isinstance(decided, list):
        return len(stored) == len(decided) and all(map(_is_near, stored, decided))
    if isinstance(stored, float) and isinstance(decided, float):
        # another processor rounds otherwise
        return math.isclose(stored, decided, rel_tol=1e-9)
    return type(stored) is type(decided) and stored == decided


def _look(
    results: StoredResults, target: str, study: Study, baselines: Mapping[str, Baseline]
) -> Decisions:
    """Decide the requirements, count the look, and keep what was decided at an earlier one."""
    store = Store(target)
    looks = read_looks(store)
    requirements = digest(
        [entry.model_dump(mode="json", exclude_none=True) for entry in study.requirements]
    )
    states = describe_states(results, requirements)
    now = decide_with_baselines(
        results, study.requirements, number_states(looks, states), baselines
    )
    # a look at the same results is the same look
    earlier_looks = [look for look in looks if look["states"] != states]
    decisions = [
        find_earlier(earlier_looks, results, decision, requirements) or decision
        for decision in now.decisions
    ]
    look = {
        "states": states,
        "samples": _count_by_data(results),
        "jobs": _list_done_jobs(results),
        "decisions": [
            {"requirements": requirements, **list_fields(decision)} for decision in decisions
        ],
    }
    index = find_look(looks, states)
    if index is None:
        looks.append(look)
    else:
        looks[index] = look
    store.write_json(LOOKS, {"looks": looks})
    return hold_to_sanity(dataclasses.replace(now, decisions=tuple(decisions)), results)


def _list_done_jobs(results: StoredResults) -> list[str]:
    """The jobs that were done, without sanity checks, in the order of the manifest."""
    is_check = pl.col("label") == SanityChecks.name
    is_done = pl.col("status") == "done"
    checks = set(results.jobs.filter(is_check)["job"])
    done = set(results.jobs.filter(is_done)["job"]) - checks
    return [job for job in results.manifest["jobs"] if job in done]


def _count_by_data(results: StoredResults) -> dict[str, int]:
    """How many samples of each data set were evaluated."""
    return dict(results.summary.samples)
