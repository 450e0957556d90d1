"""Progress on a terminal as a bar with the time left, elsewhere as a plain line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from holdfast.study.run import Progress

_SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def watch(show: bool = True) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows a run's progress on standard error; None where nothing shall be shown."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(lambda line: print(line, file=sys.stderr, flush=True))
        return
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        # the one that gives way on a narrow terminal
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Bar(*columns, console=console, expand=True, speed_estimate_period=300) as bar:
        task = bar.add_task("starting", total=1.0, count="")
        began = time.monotonic()

        def update(progress: Progress) -> None:
            said = progress.current + _failed(progress)
            bar.update(task, completed=progress.share, description=said, count=_count(progress, began))

        yield update


def _count(progress: Progress, began: float) -> str:
    """Jobs done of all, and how fast."""
    text = f"{progress.done}/{progress.total} jobs"
    if progress.done == 0:
        return text + (f" ({progress.earlier} were done before)" if progress.earlier else "")
    rate = progress.done / max(time.monotonic() - began, 1e-9)
    return f"{text}, {rate:.3g}/s" if rate >= 1 else f"{text}, {60 * rate:.3g}/min"


def _failed(progress: Progress) -> str:
    return f" ({progress.failed} failed)" if progress.failed else ""


def _lines(write: Callable[[str], None]) -> Callable[[Progress], None]:
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
