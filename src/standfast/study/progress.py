"""Show progress: a bar with the time left on a terminal and in a notebook, elsewhere a line every ten seconds."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from standfast.study.run import Progress

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_DRAWINGS = 0.3  # in a notebook, where each is a message to the browser


@contextlib.contextmanager
def show_bar(
    total: float, completed: float = 0.0, description: str = "starting"
) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar with the time left, if standard error is a terminal or this is a notebook.

    Gives a function with the keywords `completed`, `description`, `count` and `left` (the seconds left, None where they
    are not known; without it they follow from `completed`), which updates the bar; None without one.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Left(TimeRemainingColumn):
        """The time left as it was given, else as the bar estimates it."""

        def render(self, task: Any) -> Text:
            if "left" not in task.fields or task.finished:
                return super().render(task)
            left = task.fields["left"]
            return Text("-:--" if left is None else _clock(left), style="progress.remaining")

    if in_notebook():
        yield from _show_in_notebook(total, completed, description)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("elapsed, about"),
        Left(),
        TextColumn("left"),
        # on a narrow terminal, this column is shortened
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Bar(*columns, console=console, expand=True, speed_estimate_period=300) as bar:
        task = bar.add_task(description, total=total, completed=completed, count="")  # type: ignore[arg-type]
        yield partial(bar.update, task)


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook; IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _show_in_notebook(total: float, completed: float, description: str) -> Iterator[Callable[..., None]]:
    """One output of the cell that is replaced now and then; what is left of it is a line."""
    from IPython.display import HTML, display

    began, first = time.monotonic(), completed
    state: dict[str, Any] = {"completed": completed, "description": description, "count": ""}

    def draw(left: float | None) -> Any:
        share = min(max(state["completed"] / total, 0.0), 1.0) if total else 1.0
        words = f"{share:.0%} {state['count']}" + ("" if left is None else f", about {_clock(left)} left")
        words += f", {_clock(time.monotonic() - began)} elapsed: {state['description']}"
        return HTML(
            f"<progress max='1' value='{share:.4f}' style='width:16em'></progress> <small>{html.escape(words)}</small>"
        )

    handle, last = display(draw(None), display_id=True), time.monotonic()

    def update(**changes: Any) -> None:
        nonlocal last
        state.update(changes)
        now = time.monotonic()
        ended = state["completed"] >= total
        if now - last < _SECONDS_BETWEEN_DRAWINGS and not ended:
            return
        last, done = now, state["completed"] - first
        left = (now - began) * (total - state["completed"]) / done if done > 0 else None
        handle.update(draw(None if ended else state.get("left", left)))

    try:
        yield update
    finally:
        handle.update(draw(None))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


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
            nothing = progress.total == 0
            description = "" if nothing else progress.current + _failed(progress)
            share = 1.0 if nothing else progress.share
            update_bar(completed=share, description=description, count=_count(progress, began), left=progress.left)

        yield update


def _count(progress: Progress, began: float) -> str:
    """The number of jobs done, of all jobs, and the rate."""
    if progress.total == 0:
        return f"nothing to do: {progress.earlier} jobs were done before"
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
        if progress.total == 0:
            write(_count(progress, began))
            return
        left = "" if progress.left is None else f", about {progress.left:.0f} s left"
        write(
            f"{_count(progress, began)}, {progress.share:.0%}, {elapsed:.0f} s{left}{_failed(progress)}:"
            f" {progress.current}"
        )

    return update
