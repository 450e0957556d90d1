"""Progress of a run in a notebook: one output that is replaced, and nothing on the streams."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from standfast.study import worker
from standfast.study.plan import Job
from standfast.study.progress import in_notebook, watch
from standfast.study.run import Pace, Progress


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
    monkeypatch.setattr("standfast.study.progress._SECONDS_BETWEEN_DRAWINGS", 0.0)
    with watch() as update:
        assert update is not None
        update(Progress(2, 100, 0.02, "aopc", left=75.0))
        assert "about 1:15 left" in shown[-1]


def test_the_time_left_is_that_of_the_metrics_to_come() -> None:
    """One slow job of little work first: a rate for all work would promise a hundred times too much."""
    now = 0.0
    jobs = [
        Job(f"{label} {n}", "", "", "ig", label, 0, n, n + 1, work)
        for label, work in (("slow", 1.0), ("fast", 100.0))
        for n in (0, 1)
    ]
    pace = Pace(jobs, lambda: now)
    assert pace.estimate_left() is None
    now = 10.0
    pace.record(jobs[0], 1.0)
    assert pace.estimate_left() is None  # nearly all work is of another metric
    now = 12.0
    pace.record(jobs[2], 0.5)
    pace.record(jobs[1], 0.0)
    assert pace.estimate_left() == pytest.approx(10 + 2 * 3)
    now = 22.0  # two at once share the time: both take twice as long
    pace.record(jobs[1], 0.5)
    assert pace.estimate_left() == pytest.approx(0.5 * 15 / 1.5 + 150 * 7 / 50)


def test_a_running_job_does_not_set_the_pace_of_a_metric_with_finished_ones() -> None:
    """A probability tells a hundredth of its expected work, and is done a moment later."""
    now = 0.0
    jobs = [Job(name, "", "", name, "probability", 0, 0, 1, 1000.0) for name in ("saliency", "ig")]
    pace = Pace(jobs, lambda: now)
    now = 2.0
    pace.record(jobs[0], 1.0)
    now = 12.0
    pace.record(jobs[1], 0.005)
    assert pace.estimate_left() == pytest.approx(995 * 2 / 1000)
    now = 13.0
    pace.record(jobs[1], 1.0)
    assert pace.estimate_left() == 0


def test_a_finished_run_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    nothing = Progress(0, 0, 0.0, "starting", 0, earlier=8)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with watch() as update:
        assert update is not None
        update(nothing)
    assert capfd.readouterr().err == "nothing to do: 8 jobs were done before\n"
    pages = request.getfixturevalue("shown")
    with watch() as update:
        assert update is not None
        update(nothing)
    assert "100% nothing to do: 8 jobs were done before" in pages[-1]
    assert "starting" not in pages[-1]


@pytest.mark.parametrize("fails", ["expect", "tell"])
def test_an_error_of_the_metric_belongs_to_its_job_and_one_of_the_bar_does_not(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_SHARES", 0.0)

    def fail(*_: float) -> int:
        raise ValueError(fails)

    expect, tell = (fail, lambda share: None) if fails == "expect" else (lambda: 10, fail)
    with pytest.raises(ValueError if fails == "expect" else worker._TellError, match=fails):
        worker._tell_share(expect, tell)(5)
