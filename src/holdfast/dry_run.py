"""`holdfast run --dry-run`: the grid, the jobs, and about how long they take, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.study.estimate import Line, estimate
from holdfast.study.plan import make_plan
from holdfast.study.store import Store

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.study.file.spec import Study


def dry_run(study: Study, out: str | Path) -> list[Line]:
    """Print what a run of `study` into `out` would do, and return it."""
    from rich.console import Console

    console = Console()
    plan = make_plan(study.grid())
    done = {job for job, status in Store(out).statuses().items() if status == "done"}
    with console.status("calibrating") as status:
        lines = estimate(plan, done, status.update)
    several = len(plan.grid.meetings()) > 1
    console.print(_table("metric", lambda line: line.label, lines, several, study.title))
    console.print(_table("explainer", lambda line: line.explainer, lines, several))
    grid = plan.grid
    samples = ", ".join(f"{len(found)} of {name}" for name, found in grid.data.items())
    say = partial(console.print, soft_wrap=True, highlight=False)
    say(f"samples: {samples}; {grid.samples_per_job} a job; repeats: {grid.repeats}; seed: {grid.seed}")
    jobs, before = len(plan.jobs), sum(line.done for line in lines)
    say(
        f"{jobs} jobs, {before} of them done; about {sum(line.evaluations for line in lines):,} model evaluations,"
        f" {duration(sum(line.seconds for line in lines))} for one worker like this process"
    )
    say(f"results would go to {out}")
    return lines


def _table(what: str, name: Callable[[Line], str], lines: Sequence[Line], several: bool, title: str = "") -> Table:
    """Sums over the lines of each metric, or of each explainer, for each data set and model."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*(("data", "model") if several else ()), what, title=title or None, box=box.SIMPLE_HEAD)
    for column in ("jobs", "done", "evaluations", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault((*((line.data, line.model) if several else ()), name(line)), []).append(line)
    for names, group in groups.items():
        jobs, done, evaluations = (sum(getattr(n, part) for n in group) for part in ("jobs", "done", "evaluations"))
        table.add_row(
            *map(Text, names), str(jobs), str(done), f"{evaluations:,}", duration(sum(n.seconds for n in group))
        )
    return table


def duration(seconds: float) -> str:
    """Seconds in words, two digits.

    >>> duration(0.4), duration(75), duration(8000), duration(400000)
    ('0.4 s', '1.2 min', '2.2 h', '4.6 days')
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
