"""How far a run is: a bar on a terminal and in a notebook, elsewhere a line every ten seconds; and the time left."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from standfast.study.plan import Job

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_DRAWINGS = 0.3  # in a notebook, where each is a message to the browser
#: the time left is said after this share of the work, or after so many seconds; before, workers only start
_ENOUGH, _LONG_ENOUGH = 0.05, 20.0
#: draws a bar with the share that is done, and words beside it
_Draw = Callable[[float, str], None]


@dataclass(frozen=True)
class Progress:
    """The state of a run.

    Attributes:
        done, total: the number of jobs of this run.
        share: the part of the expected work that is done, 0 to 1.
        current: what was done last.
        failed: the number of jobs that failed.
        earlier: the number of jobs that the store had before.
        left: about how many seconds are left; None while too little is known.
    """

    done: int
    total: int
    share: float
    current: str
    failed: int = 0
    earlier: int = 0
    left: float | None = None

    def describe_count(self, seconds: float) -> str:
        """The number of jobs done in so many seconds, of all jobs, and the rate."""
        if self.total == 0:
            return f"nothing to do: {self.earlier} jobs were done before"
        text = f"{self.done}/{self.total} jobs"
        if self.done == 0:
            return text + (f" ({self.earlier} were done before)" if self.earlier else "")
        rate = self.done / max(seconds, 1e-9)
        return f"{text}, {rate:.3g}/s" if rate >= 1 else f"{text}, {60 * rate:.3g}/min"


@dataclass
class _Spent:
    """Work that is done, in the units of `Job.work`, and the seconds that it took."""

    work: float = 0.0
    seconds: float = 0.0


class EtaEstimator:
    """How many seconds are left, from the pace of each metric.

    The expected work counts forward passes, and metrics differ tenfold in what they do beside them. One rate for all
    would mislead for as long as the first metrics are slower or faster than those to come. The share that a running job
    tells can be far too small: a probability expects as many forward passes as it may need, and is often done after a
    hundredth of them. So the pace of a metric is that of its finished jobs, where there are any.

    Args:
        jobs: those to be done.
        clock: gives seconds.
    """

    def __init__(self, jobs: Iterable[Job], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.began, self.last = clock, clock(), clock()
        self.running: defaultdict[Job, _Spent] = defaultdict(_Spent)  # each that has told of itself
        # by the label of a metric: of all its jobs, and of those that are finished
        self.begun: defaultdict[str, _Spent] = defaultdict(_Spent)
        self.finished: defaultdict[str, _Spent] = defaultdict(_Spent)
        self.total: defaultdict[str, float] = defaultdict(float)
        for job in jobs:
            self.total[job.label] += job.work

    def record(self, job: Job, share: float) -> None:
        """Note that a share of a job is done; the time since the last note is that of all jobs that were running."""
        now, busy = self.clock(), list(self.running) or [job]
        for each in busy:
            self.running[each].seconds += (now - self.last) / len(busy)
            self.begun[each.label].seconds += (now - self.last) / len(busy)
        self.last, spent = now, self.running[job]
        self.begun[job.label].work += share * job.work - spent.work
        spent.work = share * job.work
        if share >= 1:
            self.finished[job.label].work += spent.work
            self.finished[job.label].seconds += spent.seconds
            del self.running[job]

    @property
    def share(self) -> float:
        """The share of all work that is done."""
        total = sum(self.total.values())
        return sum(spent.work for spent in self.begun.values()) / total if total else 0.0

    def estimate_left(self) -> float | None:
        """The seconds left; None unless most of them are for metrics whose pace is known."""
        known = unknown = 0.0
        done = sum(spent.work for spent in self.begun.values())
        seconds = sum(spent.seconds for spent in self.begun.values())
        for label, total in self.total.items():
            rest = total - self.begun[label].work
            pace = self.finished[label] if label in self.finished else self.begun[label]
            if pace.work:
                known += rest * pace.seconds / pace.work
            elif done:
                unknown += rest * seconds / done
        enough = self.share >= _ENOUGH or self.last - self.began >= _LONG_ENOUGH
        return known + unknown if enough and known >= unknown else None


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
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    with Bar(BarColumn(bar_width=16), words, console=console, expand=True) as bar:
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

    page, handle, last = "", display(HTML(""), display_id=True), 0.0

    def draw(share: float, words: str) -> None:
        nonlocal page, last
        bar = f"<progress max='1' value='{share:.4f}' style='width:16em'></progress>"
        page = f"{bar} <small>{html.escape(words)}</small>"
        if time.monotonic() - last >= _SECONDS_BETWEEN_DRAWINGS:
            last = time.monotonic()
            handle.update(HTML(page))

    try:
        yield draw
    finally:
        handle.update(HTML(page))


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(75), _clock(9000)
    ('1:15', '2:30:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextlib.contextmanager
def watch(show: bool = True) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows the progress of a run on standard error; None unless `show`."""
    if not show:
        yield None
        return
    with _draw_in_notebook() if in_notebook() else _draw_on_terminal() as draw:
        began = last = time.monotonic()

        def update(progress: Progress) -> None:
            nonlocal last
            now, nothing = time.monotonic(), progress.total == 0
            spent, count = now - began, progress.describe_count(now - began)
            words = progress.current + (f" ({progress.failed} failed)" if progress.failed else "")
            left = "" if progress.left is None else f", about {_clock(progress.left)} left"
            share, words = (1.0, "") if nothing else (progress.share, words)
            if draw is not None:
                draw(share, f"{share:.0%} {count}{left}, {_clock(spent)} elapsed: {words}")
            elif now - last >= _SECONDS_BETWEEN_LINES or progress.done >= progress.total:
                last = now
                rest = "" if nothing else f", {share:.0%}, {_clock(spent)}{left}: {words}"
                print(count + rest, file=sys.stderr, flush=True)

        if draw is not None:
            draw(0.0, "starting")
        yield update
