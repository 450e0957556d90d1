"""Progress on a terminal as a bar with the time left, elsewhere as a plain line now and then."""

from __future__ import annotations

import contextlib
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

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console.print)
        return
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left  {task.description}"),
    )
    with Bar(*columns, console=console, speed_estimate_period=300) as bar:
        task = bar.add_task("starting", total=1.0)

        def update(progress: Progress) -> None:
            failed = f" ({progress.failed} failed)" if progress.failed else ""
            bar.update(task, completed=progress.share, description=progress.current + failed)

        yield update


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
        failed = f", {progress.failed} failed" if progress.failed else ""
        write(
            f"{progress.done}/{progress.total} units, {progress.share:.0%}, {elapsed:.0f} s{left}{failed}:"
            f" {progress.current}"
        )

    return update
