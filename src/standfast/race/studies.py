"""A race of the explainers of a study file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.errors import check
from standfast.evaluation import default_folder, executor_of
from standfast.race.contest import Contest, RaceOptions
from standfast.race.entry import RaceOutcome, make_outcome, print_left_out
from standfast.race.jobs import Means
from standfast.study.forecast.choice import check_minutes
from standfast.study.forecast.limited import TimeLimit
from standfast.study.import_paths import importing_from
from standfast.study.progress import watch

if TYPE_CHECKING:
    from standfast.study.file.spec import Study

#: the race of a study has a folder of its own, beside the results of all of it
_ENDING = "-choose"


def choose_by_study(
    study: Study | Mapping[str, Any] | str | Path,
    *,
    by: str | None = None,
    budget: float | None = None,
    level: float | None = None,
    minutes: float | None = None,
    workers: int | str | None = None,
    out: str | Path | None = None,
) -> RaceOutcome:
    """Choose one of the explainers of a study, with one model and one data set (`standfast.choose`).

    Args:
        study: a study file, its content as a mapping, or the result of `load_study`.
        by, budget, level: of the race, instead of what the section `choose` of the study says.
        minutes, workers: instead of what the study says.
        out: a folder or an fsspec address for the results; by default `results/<name of the file>-choose`.

    Raises:
        StudyError: something in the file does not fit.
        ArgumentError: it has several models or data sets; or as of `standfast.choose`.
    """
    from standfast.study.file.entries import ChooseEntry
    from standfast.study.file.spec import Study, load_study, study_from

    began = time.monotonic()
    if isinstance(study, Mapping):
        study = study_from(study)
    elif not isinstance(study, Study):
        study = load_study(study)
    entry = study.choose or ChooseEntry()
    if minutes is None:
        minutes = study.minutes
    limit = check_minutes(minutes)
    options = RaceOptions(
        entry.by if by is None else by,
        entry.budget if budget is None else budget,
        entry.level if level is None else level,
        limit,
    )
    check(study.repeats == 1, "repeats", "1 for a race", study.repeats)
    default = default_folder(study)
    if out is None:
        out = default.with_name(f"{default.name}{_ENDING}")
    with watch() as report_progress:
        question = study.ask()
        means = Means(
            executor_of(study, None, workers),
            None if limit is None else TimeLimit(limit, began),
            report_progress,
        )
        contest = Contest(question, options, means, {"title": study.title}, out, print_left_out)
        with importing_from(question.paths):
            return make_outcome(contest, contest.hold())
