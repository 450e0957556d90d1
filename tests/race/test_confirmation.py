"""The confirmation of the runner-up where the leader fails, and the error that two claims share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import standfast
from standfast.race import RaceOutcome, confirming
from standfast.report import load_results
from standfast.results.quality import References
from standfast.results.races import Outcome, Race
from standfast.results.summary import SummaryRow
from standfast.statistics.comparison import ControlTest
from standfast.statistics.paired import Interval
from standfast.value_spec import ValueSpec

#: with eight samples for the first look nothing can be told apart
EXPLAINERS = ["integrated_gradients:steps=8", "integrated_gradients:steps=9"]
METRICS = ["aopc:samples=1,steps=10"]


def hold(
    monkeypatch: pytest.MonkeyPatch, outcomes: dict[int, Outcome], folder: Path
) -> RaceOutcome:
    """A race whose confirmations have these outcomes, by their number; others as they are."""
    asked: list[str] = []
    find = confirming._find_outcome

    def find_outcome(name: str, verdict: Any) -> Outcome:
        asked.append(name)
        return outcomes.get(len(asked)) or find(name, verdict)

    digits = standfast.data.bundled("digits")[:24]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(confirming, "_find_outcome", find_outcome)
        return standfast.choose(
            model, digits, EXPLAINERS, METRICS, sanity=False, out=folder, progress=False
        )


@pytest.mark.parametrize("of_second", ["confirmed", "refused"])
def test_the_runner_up_is_confirmed_where_the_leader_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_second: Outcome
) -> None:
    monkeypatch.setattr(confirming, "_holds_as_one_of", lambda *given: True)
    found = hold(monkeypatch, {1: "refused", 2: of_second}, tmp_path)
    race = found.race
    first, second = race.finalists
    assert race.confirmation is not None
    assert race.second is not None
    assert (race.confirmation.explainer, race.confirmation.outcome) == (first.name, "refused")
    assert (race.second.explainer, race.second.outcome) == (second.name, of_second)
    assert race.chosen == (second.name if of_second == "confirmed" else None)
    assert found.confirmation is not None
    # both are evaluated on the samples that the race has not used
    assert set(found.confirmation.explainers) >= {first.name, second.name}
    assert found.confirmation.manifest["data"]["digits"]["samples"] == 8
    assert f"{first.name} led the race, but is refused on 8 samples" in found.why
    expected = f"{second.name} is chosen" if of_second == "confirmed" else "None is chosen"
    assert found.why.startswith(expected)
    assert load_results(tmp_path).race == race == Race.from_plain(race.plain())
    # the same call does nothing again
    jobs = {file.name: file.stat().st_mtime_ns for file in tmp_path.rglob("jobs/*")}
    again = hold(monkeypatch, {1: "refused", 2: of_second}, tmp_path)
    assert again.race.second == race.second
    assert jobs == {file.name: file.stat().st_mtime_ns for file in tmp_path.rglob("jobs/*")}


@pytest.mark.parametrize("of_first", ["confirmed", "unjudged"])
def test_the_runner_up_is_not_asked_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_first: Outcome
) -> None:
    monkeypatch.setattr(confirming, "_holds_as_one_of", lambda *given: True)
    race = hold(monkeypatch, {1: of_first}, tmp_path).race
    assert len(race.finalists) == 2
    assert race.second is None
    assert race.confirmation is not None
    assert race.confirmation.outcome == of_first


def make_row(below: int, p_beats: float | None = None) -> tuple[SummaryRow, Any]:
    """Twenty values of which so many lie below the middle, or a test against controls; and results that hold them."""
    values = np.concatenate([np.full(below, 0.3), np.full(20 - below, 0.9)])
    frame = pl.DataFrame({"sample": range(20), "repeat": [0] * 20, "value": values})
    frame = frame.with_columns(pl.lit("ok").alias("status"))
    spec = ValueSpec("worst", "worst", "higher", asks="stability")
    references = None if p_beats is not None else References(1.0, 0.2, None, None)
    test = None
    if p_beats is not None:
        test = ControlTest("mine", "random", 20, None, 0.5, p_beats, 1.0, 0.05)
    row = SummaryRow(
        "d",
        "m",
        "mine",
        "worst",
        "worst_case",
        spec,
        Interval(0.9, 0.9, 0.9, 20, 0.96, None, (0.9, 0.9)),
        references=references,
        control_test=test,
        quality="good",
    )
    view = SimpleNamespace(rows_for=lambda name: frame)
    results = SimpleNamespace(
        metric_results=lambda *names: view,
        summary=SimpleNamespace(controls=("random",)),
        explainers=["mine", "random"],
    )
    return row, results


@pytest.mark.parametrize(
    ("below", "alone", "as_one_of_two"), [(4, True, True), (5, True, False), (6, False, False)]
)
def test_two_claims_share_the_error_of_an_interval(
    below: int, alone: bool, as_one_of_two: bool
) -> None:
    """Of 20 values, the sixth is the end of a 95% interval (0.959), and the fifth that of one with 97.5% (0.988)."""
    row, results = make_row(below)
    assert confirming._is_good(1, row, results) == alone
    assert confirming._is_good(2, row, results) == as_one_of_two


def test_two_claims_share_the_error_of_a_test() -> None:
    """A p-value of one explainer counts twice; one that is corrected for both already counts once."""
    for p_value, alone, as_one_of_two in ((0.02, True, True), (0.03, True, False)):
        row, results = make_row(0, p_value)
        assert confirming._is_good(1, row, results) == alone
        assert confirming._is_good(2, row, results) == as_one_of_two
        results.explainers.append("other")
        assert confirming._is_good(2, row, results) == alone
