"""Progress of a run: in a notebook one output that is replaced; and the time left, once it is known."""

from __future__ import annotations

import io
import math
import sys
import time
import types
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import standfast
from standfast.display import in_notebook, say_step
from standfast.study import worker
from standfast.study.jobs import Job
from standfast.study.progress import EtaEstimator, Progress, watch


class Handle:
    """What IPython's `display` gives for an output that can be replaced."""

    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, page: str) -> None:
        self.shown.append(page)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The outputs of a cell, with the two functions of IPython that are used."""
    pages: list[str] = []

    def display(page: str, display_id: bool) -> Handle:
        assert display_id
        pages.append(page)
        return Handle(pages)

    kernel, tools = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    shell: Any = type("ZMQInteractiveShell", (), {})()
    kernel.get_ipython = lambda: shell  # type: ignore[attr-defined]
    tools.HTML, tools.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", tools)
    return pages


def test_a_notebook_has_a_bar_and_clean_streams(
    shown: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_notebook()
    with watch() as update:
        assert update is not None
        for done in range(100):
            update(Progress(done, 100, done / 100, "worst_case: <saliency>"))
        update(Progress(100, 100, 1.0, "worst_case: <saliency>"))
    assert "value='0.0000'" in shown[1]
    assert "value='1.0000'" in shown[-1]
    assert "100% 100/100 jobs" in shown[-1]
    assert "&lt;saliency&gt;" in shown[-1]
    assert len(shown) < 10  # not one for each job: each is a message to the browser
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("standfast.display._SECONDS_BETWEEN_DRAWINGS", 0.0)
    with watch() as update:
        update(Progress(2, 100, 0.02, "aopc", left=75.0))
        assert "about 1:15 left" in shown[-1]


def test_a_run_with_a_limit_of_time_never_promises_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 hours of work, two minutes of ten are left: 80% is over, whatever part of the work is done."""
    monkeypatch.setattr("standfast.study.progress.time.monotonic", lambda: 1000.0)
    limited = Progress(3, 126, 0.07, "aopc: ig", left=30000.0, ends=1120.0)
    assert limited.describe(480.0, 470.0).startswith("80% 3/126 jobs, 0.383/min, 2:00 left at most")
    assert limited.share_at(480.0) == pytest.approx(0.8)
    soon = replace(limited, left=60.0, share=0.9)
    assert soon.describe(480.0, 470.0).startswith("90% 3/126 jobs, 0.383/min, about 1:00 left")
    unknown = replace(limited, left=None)
    assert "2:00 left at most" in unknown.describe(480.0, 470.0)
    overdue = replace(limited, ends=990.0)
    assert overdue.describe(480.0, 470.0).startswith(
        "100% 3/126 jobs, 0.383/min, 0:00 left at most"
    )
    ended = replace(limited, done=126, share=1.0)
    assert ended.share_at(480.0) == 1.0
    assert replace(limited, ends=math.inf).share_at(480.0) == 0.07


def make_job(name: str, label: str, work: float, explainer: str = "ig") -> Job:
    return Job(name, "", "", explainer, label, 0, 0, 1, work)


def test_the_time_left_is_that_of_the_metrics_to_come() -> None:
    """One slow job of little work first: a rate for all work would promise a hundred times too much."""
    now = 0.0
    slow_jobs = [make_job("s0", "slow", 1.0), make_job("s1", "slow", 1.0)]
    fast_jobs = [make_job("f0", "fast", 100.0), make_job("f1", "fast", 100.0)]
    eta = EtaEstimator([*slow_jobs, *fast_jobs], lambda: now)
    assert eta.estimate_left() is None
    eta.record(slow_jobs[0], 0.0)
    now = 10.0
    eta.record(slow_jobs[0], 1.0)
    assert eta.estimate_left() is None  # nearly all work is of another metric
    eta.record(fast_jobs[0], 0.0)
    now = 11.0
    eta.record(fast_jobs[0], 0.25)
    assert eta.estimate_left() is None  # it may still prepare itself
    now = 12.0
    eta.record(fast_jobs[0], 0.5)
    assert eta.estimate_left() == pytest.approx(10 + 2 + 4)
    eta.record(slow_jobs[1], 0.0)
    now = 22.0  # two at once share the time: both take twice as long
    eta.record(slow_jobs[1], 0.5)
    eta.record(fast_jobs[0], 1.0)
    # a finished job tells the pace of its kind
    assert eta.estimate_left() == pytest.approx(0.5 * 10 + 2 + 5)


def test_a_job_that_prepares_itself_promises_nothing() -> None:
    """Eight jobs of a minute; the first has explained a thousandth of what it will after 20 s, which was 5 hours."""
    now = 0.0
    jobs = [make_job(str(number), "worst_case", 1000.0) for number in range(8)]
    eta = EtaEstimator(jobs, lambda: now)
    eta.record(jobs[0], 0.0)
    for seconds, share in ((20.0, 0.001), (30.0, 0.1), (40.0, 0.4)):
        now = seconds
        eta.record(jobs[0], share)
        assert eta.estimate_left() is None
    now = 60.0
    eta.record(jobs[0], 1.0)
    assert eta.estimate_left() == pytest.approx(7 * 60)


def test_an_explainer_has_its_own_pace() -> None:
    """Of one that has not run yet, that of the others is taken."""
    now = 0.0
    jobs = [make_job(name, "aopc", 10.0, name[:2]) for name in ("ig0", "gc0", "ig1", "gc1", "lrp")]
    eta = EtaEstimator(jobs, lambda: now)
    now = 30.0
    eta.record(jobs[0], 1.0)
    now = 36.0
    eta.record(jobs[1], 1.0)
    assert eta.estimate_left() == pytest.approx(30 + 6 + 18)


def test_after_20_seconds_the_time_left_is_known_of_little_work() -> None:
    now = 0.0
    jobs = [Job(str(n), "", "", "ig", "aopc", 0, n, n + 1, 1.0) for n in range(100)]
    eta = EtaEstimator(jobs, lambda: now)
    for number in (0, 1):
        now += 12.0
        assert eta.estimate_left() is None
        eta.record(jobs[number], 1.0)
    assert (eta.share, eta.estimate_left()) == (0.02, 98 * 12.0)


def test_a_running_job_does_not_set_the_pace_of_a_metric_with_finished_ones() -> None:
    """A probability tells a hundredth of its expected work, and is done a moment later."""
    now = 0.0
    jobs = [Job(name, "", "", name, "probability", 0, 0, 1, 1000.0) for name in ("saliency", "ig")]
    eta = EtaEstimator(jobs, lambda: now)
    now = 2.0
    eta.record(jobs[0], 1.0)
    eta.record(jobs[1], 0.0)
    now = 12.0
    eta.record(jobs[1], 0.005)
    assert eta.estimate_left() == pytest.approx(995 * 2 / 1000)
    now = 13.0
    eta.record(jobs[1], 1.0)
    assert eta.estimate_left() == 0


def test_a_finished_run_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    nothing = Progress(0, 0, 0.0, "starting", 0, earlier=8)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with watch() as update:
        update(nothing)
    assert capfd.readouterr().err == "nothing to do: 8 jobs were done before\n"
    pages = request.getfixturevalue("shown")
    with watch() as update:
        update(nothing)
    assert "nothing to do: 8 jobs were done before" in pages[-1]
    assert "value='1.0000'" in pages[-1]
    assert "starting" not in pages[-1]


def test_an_error_of_the_metric_belongs_to_its_job_and_one_of_the_bar_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_SHARES", 0.0)

    def fail(*_: float) -> int:
        raise ValueError("no")

    worker._Share(lambda: 10, 1, fail).add_inputs(5)
    shares: list[float] = []
    worker._Share(lambda: 0, 1, shares.append).add_inputs(5)  # a metric that expects no evaluations
    assert shares == [0.99]
    with pytest.raises(ValueError, match="no"):
        worker._Share(fail, 1, lambda share: None).add_inputs(5)


def test_rows_move_the_share_within_one_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two explanations of 2,000 rows each, in batches of 500; more rows than expected are no more than one input."""
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_SHARES", 0.0)
    shares: list[float] = []
    share = worker._Share(lambda: 2, 2000, shares.append)
    for rows in (500, 500, 1000, 500):
        share.add_rows(rows)
    share.add_inputs(1)
    share.add_rows(500)
    assert shares == [0.125, 0.25, 0.5, 0.5, 0.5, 0.625]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error: what pytest captures of it cannot be read while another thread writes."""
    made = io.StringIO()
    monkeypatch.setattr("standfast.display.sys", SimpleNamespace(**{**vars(sys), "stderr": made}))
    return made


def wait_for_line(stream: io.StringIO, part: str = "") -> str:
    """The next line in which these words are."""
    place = len(stream.getvalue())
    end = time.monotonic() + 30
    while True:
        for line in stream.getvalue()[place:].splitlines():
            if line and part in line:
                return line
        assert time.monotonic() < end, "no line comes"
        time.sleep(0.01)


def test_what_is_prepared_is_said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr("standfast.display._SECONDS_BETWEEN_LINES", 0.01)
    say_step("nobody asks")
    with watch():
        first = wait_for_line(stream)
        say_step("retrained 12 on rows, 12 of 49")
        last = wait_for_line(stream, "retrained")
    assert first.startswith("preparing: models and explainers are asked, 0:00")
    assert "are asked (retrained 12 on rows, 12 of 49), 0:00 elapsed" in last


def test_each_of_several_models_is_said_while_a_run_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr("standfast.study.plan.say_step", said.append)
    models = {
        name: standfast.Model(torch.nn.Linear(3, 2), (0.0, 1.0), device="cpu") for name in "ab"
    }
    standfast.evaluate(
        models,
        "saliency",
        torch.rand(2, 3),
        "aopc",
        controls=False,
        sanity=False,
        progress=False,
    )
    assert [words.split(" on ")[0] for words in said] == ["a", "b"]
    assert [words.rpartition(", ")[2] for words in said] == ["1 of 2", "2 of 2"]


def test_a_run_that_says_nothing_has_a_line_all_the_same(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr("standfast.display._SECONDS_BETWEEN_LINES", 0.01)
    with watch() as update:
        assert update is not None
        for _ in range(2):
            assert wait_for_line(stream).startswith("preparing: ")
        update(Progress(0, 2, 0.0, "worst_case: ig"))
        for _ in range(2):
            line = wait_for_line(stream, "jobs")
            assert line.startswith("0% 0/2 jobs, time left not known yet, 0:0")
            assert line.endswith(" elapsed: worst_case: ig")
