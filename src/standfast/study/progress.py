"""How far a run is, and the time left, if it is known."""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from standfast.display import format_clock, hear_steps, show_progress
from standfast.study.jobs import Job

#: the time left is said after this share of the work, or after so many seconds; before, workers only start
_ENOUGH = 0.05
_LONG_ENOUGH = 20.0
#: a job tells the pace of its kind from this share on; before, it may still prepare what all of it needs
_TELLING = 0.5
#: of the seconds that are left, so large a part may be of metrics of which no job is done
_UNKNOWN_PART = 0.25
#: a kind of jobs: the label of the metric, and the explainer
_Kind = tuple[str, str]


@dataclass(frozen=True)
class Progress:
    """The state of a run.

    Attributes:
        done, total: the number of jobs of this run.
        share: the part of the expected work that is done, 0 to 1.
        current: what is done, or was done last.
        failed: the number of jobs that failed.
        earlier: the number of jobs that the store had before.
        left: about how many seconds are left; None while too little is known.
        ends: when the run ends, done or not, as `time.monotonic` counts.
    """

    done: int
    total: int
    share: float
    current: str
    failed: int = 0
    earlier: int = 0
    left: float | None = None
    ends: float = math.inf

    def describe_count(self, seconds: float) -> str:
        """The number of jobs done in so many seconds, of all jobs, and the rate."""
        if self.total == 0:
            return f"nothing to do: {self.earlier} jobs were done before"
        text = f"{self.done}/{self.total} jobs"
        if self.done == 0:
            if self.earlier:
                text += f" ({self.earlier} were done before)"
            return text
        rate = self.done / max(seconds, 1e-9)
        if rate >= 1:
            return f"{text}, {rate:.3g}/s"
        return f"{text}, {60 * rate:.3g}/min"

    def describe(self, elapsed: float, running: float) -> str:
        """All of it in words.

        Args:
            elapsed: seconds since the call.
            running: seconds since the first job began.

        >>> Progress(3, 12, 0.25, "aopc: saliency", left=90.0).describe(elapsed=32.0, running=30.0)
        '25% 3/12 jobs, 6/min, about 1:30 left, 0:32 elapsed: aopc: saliency'
        """
        count = self.describe_count(running)
        if self.total == 0:
            return count
        done = f"{self.share_at(elapsed):.0%} {count}"
        facts = [done, f"{format_clock(elapsed)} elapsed"]
        if self.done < self.total:
            facts.insert(1, self._describe_left())
        failed = ""
        if self.failed:
            failed = f" ({self.failed} failed)"
        return f"{', '.join(facts)}: {self.current}{failed}"

    def share_at(self, elapsed: float) -> float:
        """The share that is done: of the work, or of the time if that ends first.

        Args:
            elapsed: seconds since the call.
        """
        if self.ends == math.inf or self.done == self.total:
            return self.share
        return max(self.share, elapsed / (elapsed + self._rest))

    @property
    def _rest(self) -> float:
        """The seconds until the run ends, done or not."""
        return max(self.ends - time.monotonic(), 0.0)

    def _describe_left(self) -> str:
        """The time that is left, or that is left at most."""
        if self.left is not None and self.left <= self._rest:
            return f"about {format_clock(self.left)} left"
        if self.ends < math.inf:
            return f"{format_clock(self._rest)} left at most"
        return "time left not known yet"


@dataclass
class _Spent:
    """Work that is done, in the units of `Job.work`, and the seconds that it took."""

    work: float = 0.0
    seconds: float = 0.0

    @property
    def pace(self) -> float:
        """Seconds for one unit of work."""
        return self.seconds / self.work

    def add(self, more: _Spent) -> None:
        """Add what else was done."""
        self.work += more.work
        self.seconds += more.seconds


class EtaEstimator:
    """How many seconds are left, from the pace of the jobs that are done.

    The expected work counts forward passes, and metrics differ tenfold in what they do beside them. One rate for all
    would mislead for as long as the first metrics are slower or faster than those to come. The share that a running job
    tells can be far too small: a probability expects as many forward passes as it may need, and is often done after a
    hundredth of them; and a job that has just begun prepares what all of it needs. So a pace is that of finished jobs
    of the same metric and explainer, or else of the same metric, or else of a job that is half done.

    Args:
        jobs: those to be done.
        clock: gives seconds.
    """

    def __init__(self, jobs: Iterable[Job], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.began, self.last = clock, clock(), clock()
        self.running: defaultdict[Job, _Spent] = defaultdict(_Spent)
        self.finished: defaultdict[_Kind, _Spent] = defaultdict(_Spent)
        self.total: defaultdict[_Kind, float] = defaultdict(float)
        for job in jobs:
            self.total[_kind_of(job)] += job.work

    def record(self, job: Job, share: float) -> None:
        """Note that a share of a job is done; the time since the last note is that of all jobs that were running.

        A share of 0 says that the job begins.
        """
        now = self.clock()
        busy = list(self.running)
        if not busy and share > 0:  # it was done where nobody could say that it begins
            busy = [job]
        for running_job in busy:
            # the time is shared by all that ran, as nobody can say which took how much
            self.running[running_job].seconds += (now - self.last) / len(busy)
        self.last = now
        self.running[job].work = share * job.work
        # a running job is counted by its own share until it is done
        if share >= 1:
            spent = self.running.pop(job)
            self.finished[_kind_of(job)].add(spent)

    @property
    def share(self) -> float:
        """The share of all work that is done."""
        total = sum(self.total.values())
        finished, running = _add_up(self.finished.values()), _add_up(self.running.values())
        done = finished.work + running.work
        if total:
            return done / total
        return 0.0

    def estimate_left(self) -> float | None:
        """The seconds left; None unless most of them are for metrics whose pace is known."""
        is_early = self.share < _ENOUGH and self.last - self.began < _LONG_ENOUGH
        telling = self._list_telling()
        overall = _add_up(telling.values())
        if is_early or not overall.work:
            return None
        known_seconds = unknown_seconds = 0.0
        for kind, rest in self._find_rest().items():
            same_kind = telling.get(kind, _Spent())
            same_metric = _add_up(
                spent for (label, _), spent in telling.items() if label == kind[0]
            )
            if same_kind.work:
                known_seconds += rest * same_kind.pace
            elif same_metric.work:
                known_seconds += rest * same_metric.pace
            else:
                unknown_seconds += rest * overall.pace
        if unknown_seconds <= _UNKNOWN_PART * (known_seconds + unknown_seconds):
            return known_seconds + unknown_seconds
        # a guess for a large part would be none
        return None

    def _list_telling(self) -> dict[_Kind, _Spent]:
        """What jobs have taken that tell the pace of their kind: finished ones, or else those that are half done."""
        telling: defaultdict[_Kind, _Spent] = defaultdict(_Spent)
        for kind, spent in self.finished.items():
            telling[kind].add(spent)
        for job, spent in self.running.items():
            if _kind_of(job) not in self.finished and spent.work >= _TELLING * job.work:
                telling[_kind_of(job)].add(spent)
        return telling

    def _find_rest(self) -> dict[_Kind, float]:
        """The work of each kind that is left."""
        rest = dict(self.total)
        for kind, spent in self.finished.items():
            rest[kind] -= spent.work
        for job, spent in self.running.items():
            rest[_kind_of(job)] -= spent.work
        return {kind: work for kind, work in rest.items() if work > 0}


def _kind_of(job: Job) -> _Kind:
    return job.label, job.explainer


def _add_up(parts: Iterable[_Spent]) -> _Spent:
    total = _Spent()
    for spent in parts:
        total.add(spent)
    return total


class _Run:
    """What is shown of a run: that it is prepared, and then its progress."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.began = 0.0
        self.step = ""

    def note_step(self, words: str) -> None:
        """Note what is prepared."""
        self.step = words

    def describe(self, seconds: float) -> tuple[float, str]:
        """The share that is done, and words, so many seconds after the beginning."""
        if self.progress is None:
            step = ""
            if self.step:
                step = f" ({self.step})"
            words = f"preparing: models and explainers are asked{step}"
            return 0.0, f"{words}, {format_clock(seconds)} elapsed"
        nothing_to_do = self.progress.total == 0
        share = 1.0 if nothing_to_do else self.progress.share_at(seconds)
        return share, self.progress.describe(seconds, seconds - self.began)


@contextlib.contextmanager
def watch(show: bool = True) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows the progress of a run on standard error; None unless `show`.

    Inside the block, nothing else shows its progress.
    """
    run = _Run()
    began = time.monotonic()
    with hear_steps(run.note_step), show_progress(run.describe, show=show) as refresh:

        def update(progress: Progress) -> None:
            if run.progress is None:
                run.began = time.monotonic() - began
            run.progress = progress
            # the last line is shown whether or not it is due
            refresh(progress.done >= progress.total)

        yield update if show else None


@contextlib.contextmanager
def show_trials(show: bool = True) -> Iterator[Callable[[str], None]]:
    """A function that shows, on standard error, what is tried for an estimate; inside, nothing else shows itself."""
    tried = "preparing: models and explainers are asked"

    def describe(seconds: float) -> tuple[float, str]:
        return 0.0, f"{tried}, {format_clock(seconds)} elapsed"

    with show_progress(describe, show=show) as refresh:

        def tell(what: str) -> None:
            nonlocal tried
            tried = what
            refresh(False)

        yield tell
