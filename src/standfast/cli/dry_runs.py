"""`standfast run --dry-run`: print the grid, the jobs, and about what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from standfast.errors import ArgumentError
from standfast.evaluation import executor_of
from standfast.report.sentences import describe_misfits
from standfast.study.forecast.choice import advise, check_minutes, choose, limit_seconds
from standfast.study.forecast.estimate import (
    Estimate,
    EstimateLine,
    describe_seconds,
    list_marks,
    mark_seconds,
)
from standfast.study.forecast.trials import estimate_plan
from standfast.study.plan import make_plan
from standfast.study.progress import show_trials
from standfast.study.store import Store

if TYPE_CHECKING:
    from rich.table import Table

    from standfast.question.grid import Grid
    from standfast.study.file.spec import Study


def dry_run(study: Study, out: str | Path, minutes: float | None = None) -> Estimate:
    """Print what a run of `study` into `out` would do, and return the estimate.

    Args:
        study: which.
        out: where its results are.
        minutes: what would be chosen for so many of them is printed, too, and a column has what it takes; None for
            ten, without a column.
    """
    from rich.console import Console

    console = Console()
    limit = check_minutes(minutes)
    minutes = limit or 10.0
    with show_trials() as tell:
        asked_grid = study.grid()
        # as a run would cut them, so that what is done is found
        plan = make_plan(
            asked_grid, None, Store(out).earlier_manifest(), executor_of(study).at_once
        )
        done = set()
        for job, status in Store(out).statuses().items():
            if status == "done":
                done.add(job)
        forecast = estimate_plan(plan, done, tell)
    lines = forecast.lines
    several = len(plan.grid.combinations()) > 1
    in_time = None
    if limit is not None:
        in_time = _find_limited(asked_grid, forecast, limit)
    console.print(_table("metric", lambda line: line.label, lines, several, study.title, in_time))
    console.print(_table("explainer", lambda line: line.explainer, lines, several, in_time=in_time))
    grid = plan.grid
    samples = ", ".join(f"{len(data)} of {name}" for name, data in grid.data.items())
    # names of the user's could contain markup, and long lines would be cut
    say = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    sizes = {job.stop - job.start for job in plan.jobs}
    # the last job of a pool may be smaller
    sizes_in_words = " to ".join(str(size) for size in sorted({min(sizes), max(sizes)}))
    say(f"samples: {samples}; {sizes_in_words} a job; repeats: {grid.repeats}; seed: {grid.seed}")
    for words in list_marks(forecast):
        say(words)
    jobs = len(plan.jobs)
    before = sum(line.done for line in lines)
    say(
        f"{jobs} jobs, {before} of them done; about {forecast.evaluations:,} model evaluations,"
        f" {describe_seconds(forecast.seconds)} for one worker like this process"
    )
    if not math.isnan(forecast.memory):
        say(f"a worker takes up to {format_size(forecast.memory)} of memory")
    if forecast.unknown:
        say(f"not known: what {', '.join(forecast.unknown)} takes, which is random")
    say(advise(asked_grid, forecast, minutes))
    for text in forecast.describe_failures():
        say(text)
    for left_out in describe_misfits(plan.manifest["misfits"]):
        say(f"left out: {left_out}")
    say(f"results would go to {out}")
    return forecast


def _find_limited(
    grid: Grid, estimate: Estimate, minutes: float
) -> dict[EstimateLine, float] | None:
    """The seconds of each line in a limited time; None if nothing fits, which the advice says."""
    try:
        choice = choose(grid, estimate, minutes, 60 * minutes)
    except ArgumentError:
        return None
    if choice is None:
        return None
    return limit_seconds(grid, estimate, choice)


def _table(
    what: str,
    name: Callable[[EstimateLine], str],
    lines: Sequence[EstimateLine],
    several: bool,
    title: str = "",
    in_time: Mapping[EstimateLine, float] | None = None,
) -> Table:
    """A table with the sums over the lines of each metric, or of each explainer, for each data set and model.

    Args:
        what: the head of the first column.
        name: gives what the rows are for.
        lines: of the estimate.
        several: whether there are several data sets or models.
        title: above it.
        in_time: the seconds of each line in a limited time, for a column of their own.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    first_columns = ("data", "model") if several else ()
    table = Table(
        *first_columns,
        what,
        title=Text(title) if title else None,
        box=box.SIMPLE_HEAD,
    )
    heads = ["jobs", "done", "evaluations", "time", "memory"]
    if in_time is not None:
        heads.insert(4, "in the limit")
    for column in heads:
        table.add_column(column, justify="right", no_wrap=True)
    groups: dict[tuple[str, ...], list[EstimateLine]] = {}
    for line in lines:
        # a single data set and model need no columns
        pair = (line.data, line.model) if several else ()
        groups.setdefault((*pair, name(line)), []).append(line)
    for names, group in groups.items():
        jobs = sum(line.jobs for line in group)
        done = sum(line.done for line in group)
        costs = Estimate(tuple(group))
        time_words = mark_seconds(format_duration(costs.seconds), group)
        words = [f"{costs.evaluations:,}", time_words, format_size(costs.memory)]
        if in_time is not None:
            # NaN is not known, and has no place in a sum
            limited = []
            for line in group:
                if not math.isnan(in_time[line]):
                    limited.append(in_time[line])
            words.insert(2, format_duration(math.fsum(limited)))
        table.add_row(*map(Text, names), str(jobs), str(done), *words)
    return table


def format_size(count: float) -> str:
    """A number of bytes as a text with a suitable unit; empty for NaN.

    >>> format_size(3.2e9), format_size(4.1e8), format_size(float("nan"))
    ('3.2 GB', '410 MB', '')
    """
    if math.isnan(count):
        return ""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"


def format_duration(seconds: float) -> str:
    """Seconds as a text with a suitable unit.

    >>> format_duration(float("nan"))
    'fails'

    >>> format_duration(0.4), format_duration(75), format_duration(8000), format_duration(400000)
    ('0.4 s', '1.2 min', '2.2 h', '4.6 days')
    """
    if math.isnan(seconds):
        return "fails"
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
