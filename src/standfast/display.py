"""How far something is, on standard error: a bar on a terminal and in a notebook, elsewhere a line every ten seconds.

A thread keeps it moving, also while the work itself says nothing: a model may take minutes for one batch.
"""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

#: between two lines, where there is no bar; and until a call shows itself that is short most often
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_DRAWINGS = 0.5
#: of seconds since the beginning: the share that is done, 0 to 1, and words beside the bar, or in the line
Describe = Callable[[float], tuple[float, str]]
#: draws a bar with the share that is done, and words beside it
_Draw = Callable[[float, str], None]

#: whether this call is a part of one that shows its progress, or that was asked not to
_IS_SHOWN: ContextVar[bool] = ContextVar("standfast_progress_is_shown", default=False)


#: takes in words which part of the work is done, for what shows it; None where nobody asks
_HEAR_STEP: ContextVar[Callable[[str], None] | None] = ContextVar("standfast_step", default=None)


def say_step(words: str) -> None:
    """Say which part of a long work is done now, such as "model 3 of 40", to what shows the progress of it."""
    hear = _HEAR_STEP.get()
    if hear is not None:
        hear(words)


@contextlib.contextmanager
def hear_steps(hear: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, `hear` is called with what `say_step` says.

    >>> with hear_steps(print):
    ...     say_step("model 3 of 40")
    model 3 of 40
    """
    token = _HEAR_STEP.set(hear)
    try:
        yield
    finally:
        _HEAR_STEP.reset(token)


class Display:
    """What shows how far one call is.

    Args:
        describe: gives the share and the words.
        only_if_long: show nothing for the first ten seconds.
    """

    def __init__(self, describe: Describe, only_if_long: bool = False) -> None:
        self._describe = describe
        self._delay = _SECONDS_BETWEEN_LINES if only_if_long else 0.0
        # monotonic, so that a clock that is set while we run moves nothing
        self._began = self._last_line = time.monotonic()
        self._draw: _Draw | None = None
        self._is_open = False
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(
            target=self._keep_moving, name="standfast-progress", daemon=True
        )

    def start(self) -> None:
        """Begin to show, and keep it moving."""
        self.refresh()
        self._thread.start()

    def refresh(self, at_once: bool = False) -> None:
        """Show how far it is: in the bar, or in a line if the last one is old enough, or `at_once`."""
        with self._lock:
            now = time.monotonic()
            if self._ended.is_set() or now - self._began < self._delay:
                return
            # opened at the first drawing only, so that a call that is short never touches the terminal
            if not self._is_open:
                self._is_open = True
                context = _draw_in_notebook() if in_notebook() else _draw_on_terminal()
                self._draw = self._stack.enter_context(context)
            if self._draw is not None:
                self._draw(*self._describe(now - self._began))
            elif at_once or now - self._last_line >= _SECONDS_BETWEEN_LINES:
                self._last_line = now
                print(self._describe(now - self._began)[1], file=sys.stderr, flush=True)

    def end(self) -> None:
        """Show nothing any more. A bar stays as it was last."""
        self._ended.set()
        with self._lock:
            self._stack.close()

    def _keep_moving(self) -> None:
        while not self._ended.wait(min(_SECONDS_BETWEEN_DRAWINGS, _SECONDS_BETWEEN_LINES)):
            # a closed stream, or a describing function that fails, must not harm the work
            with contextlib.suppress(Exception):
                self.refresh()


@contextlib.contextmanager
def show_progress(
    describe: Describe, only_if_long: bool = False, show: bool = True
) -> Iterator[Callable[[bool], None]]:
    """Inside the block, show how far it is, and keep it moving.

    Nothing is shown within another block of the same thread, which shows it already or is not to be seen.

    Args:
        describe: gives the share that is done and words, at any time, from any thread.
        only_if_long: show nothing for the first ten seconds.
        show: False if nothing is shown, also not by what is called inside.

    Returns:
        A function that shows it again because something has changed; with True, also a line that is not due.
    """
    # without a terminal, as under pythonw, there is no standard error at all
    if not show or _IS_SHOWN.get() or sys.stderr is None:
        # set as well where nothing is shown, so that calls inside stay silent
        token = _IS_SHOWN.set(True)
        try:
            yield lambda at_once: None
        finally:
            _IS_SHOWN.reset(token)
        return
    token = _IS_SHOWN.set(True)
    display = Display(describe, only_if_long)
    try:
        display.start()
        yield display.refresh
    finally:
        display.end()
        _IS_SHOWN.reset(token)


def show_nothing() -> contextlib.AbstractContextManager[object]:
    """Inside the block, nothing shows its progress: whoever called shows it, such as another process."""
    return show_progress(lambda seconds: (0.0, ""), show=False)


@contextlib.contextmanager
def show_activity(words: str) -> Iterator[None]:
    """Inside the block, show `words` and the time since the beginning, if it takes long."""

    def describe(seconds: float) -> tuple[float, str]:
        return 0.0, f"{words}, {format_clock(seconds)} elapsed"

    with show_progress(describe, only_if_long=True):
        yield


class Count:
    """How many evaluations a call has made, of about how many.

    Args:
        title: of what is evaluated.
        unit: of what is counted, such as `"evaluations"`.
        expect: gives about how many there will be; where that is not known, it may fail.
    """

    def __init__(self, title: str, unit: str, expect: Callable[[], int]) -> None:
        self.title = title
        self.unit = unit
        self._expect = expect
        self.inputs = self.rows = 0

    def add_inputs(self, count: int) -> None:
        """Note that so many inputs more were evaluated (`Model.watch`)."""
        self.inputs += count

    def add_rows(self, count: int) -> None:
        """Note that the model has run on so many rows more (`Model.watch`): an input may take thousands."""
        self.rows += count

    def describe(self, seconds: float) -> tuple[float, str]:
        """The share that is done, and words."""
        try:
            expected = self._expect()
        except Exception:  # an option that only a study knows, such as a mask
            expected = 0
        of_expected = ""
        if expected >= max(1, self.inputs):
            of_expected = f" of about {expected:,}"
        evaluated = f"{self.inputs:,}{of_expected} {self.unit}"
        share = min(self.inputs / max(1, expected), 1.0)
        # none are counted where an explainer runs a part of the model, such as what follows the embeddings of tokens
        rows = ""
        if self.rows:
            rows = f", the model ran on {self.rows:,} rows"
        return share, f"{self.title}: {evaluated}{rows}, {format_clock(seconds)} elapsed"


@contextlib.contextmanager
def _draw_on_terminal() -> Iterator[_Draw | None]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # on a narrow terminal, the words are shortened
    words = TextColumn(
        "{task.description}",
        markup=False,
        table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
    )
    # what the user's code prints goes above the bar, but not if it goes into a file
    to_terminal = sys.stdout is not None and sys.stdout.isatty()
    with Bar(
        BarColumn(bar_width=16), words, console=console, expand=True, redirect_stdout=to_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=words)


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook; IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def _draw_in_notebook() -> Iterator[_Draw]:
    """One output of the cell that is replaced now and then; what is left of it is a line."""
    from IPython.display import HTML, display

    page = ""
    handle = display(HTML(""), display_id=True)
    last = 0.0

    def draw(share: float, words: str) -> None:
        nonlocal page, last
        bar = f"<progress max='1' value='{share:.4f}' style='width:16em'></progress>"
        page = f"{bar} <small>{html.escape(words)}</small>"
        if time.monotonic() - last >= _SECONDS_BETWEEN_DRAWINGS:  # each is a message to the browser
            last = time.monotonic()
            handle.update(HTML(page))

    try:
        yield draw
    finally:
        # the last one may have been left out, because it came too soon after the one before
        handle.update(HTML(page))


def format_clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> format_clock(75), format_clock(9000)
    ('1:15', '2:30:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"
