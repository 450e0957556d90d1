"""What shows how far a call is moves while the call itself says nothing, and harms nothing."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.display import Count, show_activity, show_nothing, show_progress
from standfast.metrics import AOPC, MaxSensitivity

Lines = Callable[[], list[str]]

#: between two lines, which are ten seconds otherwise
INTERVAL = 0.01


class Slow(nn.Module):
    """A model that takes its time for each batch, and no processor's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(1.2 * INTERVAL)
        out: Tensor = self.layer(x)
        return out


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The lines on standard error, where they come soon after each other."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr("standfast.display._SECONDS_BETWEEN_LINES", INTERVAL)
    # what pytest captures cannot be read while another thread writes
    stream = io.StringIO()
    monkeypatch.setattr("standfast.display.sys", SimpleNamespace(**{**vars(sys), "stderr": stream}))
    place = 0

    def read() -> list[str]:
        """The lines that came since the last call, and are whole."""
        nonlocal place
        new = stream.getvalue()[place:]
        whole = new[: new.rfind("\n") + 1]
        place += len(whole)
        return whole.splitlines()

    return read


@pytest.fixture
def model() -> standfast.Model:
    torch.manual_seed(0)
    return standfast.Model(Slow(), bounds=(0.0, 1.0), device="cpu", batch_size=16)


def wait_for_lines(lines: Lines, count: int = 1) -> list[str]:
    """So many lines, or more."""
    shown: list[str] = []
    end = time.monotonic() + 30
    while len(shown) < count:
        assert time.monotonic() < end, "no line comes"
        time.sleep(INTERVAL)
        shown += lines()
    return shown


def test_lines_come_while_nothing_is_said(lines: Lines) -> None:
    began = time.monotonic()
    with show_progress(lambda seconds: (0.5, f"still here, {seconds > 0}")):
        shown = wait_for_lines(lines, 3)
    shown += lines()
    assert set(shown) == {"still here, True"}
    assert len(shown) <= (time.monotonic() - began) / INTERVAL
    time.sleep(3 * INTERVAL)
    assert lines() == []  # the thread has ended


def test_only_one_shows_itself(lines: Lines) -> None:
    with show_progress(lambda seconds: (0.5, "outer")), show_activity("inner"):
        shown = wait_for_lines(lines, 3)
    assert {*shown, *lines()} == {"outer"}
    with show_nothing(), show_activity("inner"):
        time.sleep(4 * INTERVAL)
    assert lines() == []
    with show_activity("long"):
        shown = wait_for_lines(lines)
    assert shown[0] == "long, 0:00 elapsed"


def test_another_thread_shows_its_own(lines: Lines) -> None:
    seen = threading.Event()

    def work() -> None:
        with show_activity("its own"):
            seen.wait(30)

    thread = threading.Thread(target=work)
    with show_nothing():
        thread.start()
        shown = wait_for_lines(lines)
        seen.set()
        thread.join()
    assert "its own, 0:00 elapsed" in shown


def test_what_cannot_be_shown_harms_nothing(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seconds: float) -> tuple[float, str]:
        raise ValueError("no words")

    with show_progress(fail, only_if_long=True):
        time.sleep(4 * INTERVAL)
    assert lines() == []
    monkeypatch.setattr("standfast.display.sys.stderr", None)  # as of a program without a console
    with show_progress(fail):
        pass


def test_a_count_says_of_how_many_where_that_is_known() -> None:
    count = Count("aopc", "evaluations", lambda: 2000)
    count.add_inputs(1500)
    count.add_rows(1600)
    words = "aopc: 1,500 of about 2,000 evaluations, the model ran on 1,600 rows, 1:15 elapsed"
    assert count.describe(75.0) == (0.75, words)
    count.add_inputs(1000)  # more than expected
    assert count.describe(75.0)[1].startswith("aopc: 2,500 evaluations, ")
    unknown = Count("aopc", "evaluations", lambda: 1 // 0)
    assert unknown.describe(1.0) == (0.0, "aopc: 0 evaluations, 0:01 elapsed")


def test_a_metric_called_directly_shows_how_far_it_is(model: standfast.Model, lines: Lines) -> None:
    metric = MaxSensitivity(standfast.LinfBall(0.1), samples=3)
    inputs = torch.rand(2, 6)
    result = metric(model, "integrated_gradients:steps=32", inputs)
    shown = lines()
    assert len(shown) >= 3
    assert all(
        line.startswith("max_sensitivity: ") and " of about 8 evaluations" in line for line in shown
    )
    counts = [line.partition("ran on ")[2].partition(" rows")[0].replace(",", "") for line in shown]
    rows = [int(count or 0) for count in counts]  # none are told before the first
    assert rows == sorted(rows)
    assert rows[-1] > rows[0]
    again = metric(model, "integrated_gradients:steps=32", inputs, progress=False)
    assert lines() == []
    assert torch.equal(result.value, again.value)


def test_an_explainer_called_directly_shows_how_far_it_is(
    model: standfast.Model, lines: Lines
) -> None:
    explainer = standfast.explainers.get("integrated_gradients:steps=64")
    inputs = torch.rand(2, 6)
    explainer(model, inputs)
    assert any("integrated_gradients: 0 of about 2 explanations" in line for line in lines())
    explainer(model, inputs, progress=False)
    assert lines() == []


def test_who_watches_the_model_shows_it_himself(model: standfast.Model, lines: Lines) -> None:
    counts: list[int] = []
    with model.watch(counts.append):
        AOPC()(model, "saliency", torch.rand(2, 6))
    assert lines() == []
    assert sum(counts) > 0
    assert not model.is_watched


@pytest.mark.parametrize("progress", [True, False])
def test_a_study_shows_its_jobs_alone(
    progress: bool, model: standfast.Model, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_CACHE", "off")
    metric = MaxSensitivity(standfast.LinfBall(0.1), samples=4)
    standfast.evaluate(
        model,
        ["saliency"],
        torch.rand(2, 6),
        [metric],
        sanity=False,
        controls=False,
        progress=progress,
    )
    shown = lines()
    assert bool(shown) == progress
    assert [
        line for line in shown if " jobs" not in line and not line.startswith("preparing: ")
    ] == []


def test_an_estimate_shows_what_is_tried(model: standfast.Model, lines: Lines) -> None:
    standfast.estimate(
        model, ["saliency"], torch.rand(2, 6), ["aopc"], sanity=False, controls=False, seconds=0.3
    )
    assert any(line.startswith("trying aopc with saliency, Slow on ") for line in lines())
    options = {"sanity": False, "controls": False, "seconds": 0.1, "progress": False}
    standfast.estimate(model, ["saliency"], torch.rand(2, 6), ["aopc"], **options)
    assert lines() == []
