"""Show progress: on a terminal as a bar with the time left, elsewhere as a line every ten seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from holdfast.study.run import Progress

_SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def show_bar(
    total: float, completed: float = 0.0, description: str = "starting"
) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar with the time left, if standard error is a terminal.

    Gives a function with the keywords `completed`, `description` and `count`, which updates the bar; None without one.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        # on a narrow terminal, this column is shortened
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Bar(*columns, console=console, expand=True, speed_estimate_period=300) as bar:
        task = bar.add_task(description, total=total, completed=completed, count="")  # type: ignore[arg-type]
        yield partial(bar.update, task)


@contextlib.contextmanager
def watch(show: bool = True) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows the progress of a run on standard error; None unless `show`."""
    if not show:
        yield None
        return
    with show_bar(1.0) as update_bar:
        if update_bar is None:
            yield _print_lines(lambda line: print(line, file=sys.stderr, flush=True))
            return
        began = time.monotonic()

        def update(progress: Progress) -> None:
            description = progress.current + _failed(progress)
            update_bar(completed=progress.share, description=description, count=_count(progress, began))

        yield update


def _count(progress: Progress, began: float) -> str:
    """The number of jobs done, of all jobs, and the rate."""
    text = f"{progress.done}/{progress.total} jobs"
    if progress.done == 0:
        return text + (f" ({progress.earlier} were done before)" if progress.earlier else "")
    rate = progress.done / max(time.monotonic() - began, 1e-9)
    return f"{text}, {rate:.3g}/s" if rate >= 1 else f"{text}, {60 * rate:.3g}/min"


def _failed(progress: Progress) -> str:
    return f" ({progress.failed} failed)" if progress.failed else ""


def _print_lines(write: Callable[[str], None]) -> Callable[[Progress], None]:
    began = last = time.monotonic()

    def update(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES and progress.done < progress.total:
            return
        last = now
        elapsed = now - began
        left = f", about {elapsed * (1 - progress.share) / progress.share:.0f} s left" if progress.share > 0.02 else ""
        write(
            f"{_count(progress, began)}, {progress.share:.0%}, {elapsed:.0f} s{left}{_failed(progress)}:"
            f" {progress.current}"
        )

    return update
