"""Show progress: a bar with the time left on a terminal and in a notebook, elsewhere a line every ten seconds."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from standfast.study.run import Progress

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_DRAWINGS = 0.3  # in a notebook, where each is a message to the browser
#: draws a bar: the share that is done, the number of what is done, the seconds spent and left, and a description
_Draw = Callable[[float, str, float, float | None, str], None]


@contextlib.contextmanager
def show_bar(
    total: float, completed: float = 0.0, description: str = "starting"
) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar with the time left, if standard error is a terminal or this is a notebook.

    Gives a function with the keywords `completed`, `description`, `count` and `left` (the seconds left, None where they
    are not known; without it they follow from `completed`), which updates the bar; None without one.
    """
    with _draw_in_notebook() if in_notebook() else _draw_on_terminal() as draw:
        if draw is None:
            yield None
            return
        began, first = time.monotonic(), completed
        state: dict[str, Any] = {"completed": completed, "description": description, "count": ""}

        def update(**changes: Any) -> None:
            state.update(changes)
            spent, done, rest = time.monotonic() - began, state["completed"] - first, total - state["completed"]
            left = state.get("left", spent * rest / done if done > 0 else None)
            share = min(max(state["completed"] / total, 0.0), 1.0) if total else 1.0
            draw(share, state["count"], spent, left if share < 1 else None, state["description"])

        update()
        yield update


@contextlib.contextmanager
def _draw_on_terminal() -> Iterator[_Draw | None]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # on a narrow terminal, this column is shortened
    last = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("elapsed, about {task.fields[left]} left"),
        TextColumn("{task.description}", markup=False, table_column=last),
    )
    with Bar(*columns, console=console, expand=True) as bar:
        task = bar.add_task("", total=1.0, count="", left="-:--")

        def draw(share: float, count: str, spent: float, left: float | None, description: str) -> None:
            words = "-:--" if left is None else _clock(left)
            bar.update(task, completed=share, count=count, left=words, description=description)

        yield draw


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook; IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def _draw_in_notebook() -> Iterator[_Draw]:
    """One output of the cell that is replaced now and then; what is left of it is a line."""
    from IPython.display import HTML, display

    page, handle, last = "", display(HTML(""), display_id=True), 0.0

    def draw(share: float, count: str, spent: float, left: float | None, description: str) -> None:
        nonlocal page, last
        coming = "" if left is None else f", about {_clock(left)} left"
        words = html.escape(f"{share:.0%} {count}{coming}, {_clock(spent)} elapsed: {description}")
        page = f"<progress max='1' value='{share:.4f}' style='width:16em'></progress> <small>{words}</small>"
        if time.monotonic() - last >= _SECONDS_BETWEEN_DRAWINGS:
            last = time.monotonic()
            handle.update(HTML(page))

    try:
        yield draw
    finally:
        handle.update(HTML(page))


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
        began = last = time.monotonic()

        def update(progress: Progress) -> None:
            nonlocal last
            now, nothing = time.monotonic(), progress.total == 0
            count = _count(progress, now - began)
            words = progress.current + (f" ({progress.failed} failed)" if progress.failed else "")
            if update_bar is not None:
                share, words = (1.0, "") if nothing else (progress.share, words)
                update_bar(completed=share, description=words, count=count, left=progress.left)
            elif now - last >= _SECONDS_BETWEEN_LINES or progress.done >= progress.total:
                last = now
                left = "" if progress.left is None else f", about {progress.left:.0f} s left"
                rest = "" if nothing else f", {progress.share:.0%}, {now - began:.0f} s{left}: {words}"
                print(count + rest, file=sys.stderr, flush=True)

        yield update


def _count(progress: Progress, seconds: float) -> str:
    """The number of jobs done, of all jobs, and the rate."""
    if progress.total == 0:
        return f"nothing to do: {progress.earlier} jobs were done before"
    text = f"{progress.done}/{progress.total} jobs"
    if progress.done == 0:
        return text + (f" ({progress.earlier} were done before)" if progress.earlier else "")
    rate = progress.done / max(seconds, 1e-9)
    return f"{text}, {rate:.3g}/s" if rate >= 1 else f"{text}, {60 * rate:.3g}/min"
