"""`standfast.choose`: who leaves and why, what is confirmed on other samples, "none", resuming, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import standfast
from standfast.errors import ArgumentError
from standfast.question.arguments import Arguments
from standfast.question.grid import Freedom, Samples
from standfast.race import RaceOutcome, contest
from standfast.race.contest import Contest, RaceOptions
from standfast.race.jobs import Means
from standfast.race.running import RunningRace
from standfast.race.scope import RaceCosts, TimeFrame, choose_scope
from standfast.race.split import Split
from standfast.report import Results, load_results
from standfast.results.races import Entrant, Race, read_race
from standfast.study.executors import local
from standfast.study.forecast.choice import Choice
from standfast.study.forecast.costs import Costs
from standfast.study.forecast.estimate import Estimate, EstimateLine
from standfast.study.forecast.limited import TimeLimit
from standfast.study.store import Store

METRICS = ["worst_case:budget=10", "aopc:samples=1,steps=5"]
EXPLAINERS = ["saliency", "input_x_gradient"]
#: as many samples as a race needs: 16, and 8 for the confirmation
FEW = 24


@pytest.fixture(scope="module")
def digits() -> Any:
    return standfast.data.bundled("digits")[:36]


@pytest.fixture(scope="module")
def model() -> standfast.Model:
    return standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))


def copy_input(module: object, inputs: Tensor, targets: Tensor) -> Tensor:
    """A map that says nothing of the model."""
    return inputs.clone()


def same_map(module: object, inputs: Tensor, targets: Tensor) -> Tensor:
    """The same map for every input."""
    return (
        torch.linspace(0, 1, inputs[0].numel()).reshape(inputs[0].shape).expand_as(inputs).clone()
    )


def fail(module: object, inputs: Tensor, targets: Tensor) -> Tensor:
    raise RuntimeError("out of ideas")


@pytest.fixture(scope="module")
def raced(
    model: standfast.Model, digits: Any, tmp_path_factory: pytest.TempPathFactory
) -> RaceOutcome:
    """A race in a folder of its own."""
    explainers = {
        "saliency": "saliency",
        "input x gradient": "input_x_gradient",
        "copy": copy_input,
    }
    folder = tmp_path_factory.mktemp("race") / "results"
    return standfast.choose(
        model, digits[:FEW], explainers, METRICS, budget=1.0, out=folder, sanity=8, progress=False
    )


def test_race_and_confirmation_have_no_sample_in_common(raced: RaceOutcome) -> None:
    race = raced.race
    assert set(race.rows) & set(race.confirmation_rows) == set()
    assert sorted((*race.rows, *race.confirmation_rows)) == list(range(FEW))
    assert len(race.confirmation_rows) == 8
    assert raced.confirmation is not None
    assert raced.confirmation.manifest["data"]["digits"]["samples"] == 8


def test_a_map_that_says_nothing_leaves_by_the_checks(raced: RaceOutcome) -> None:
    entrant = raced.race.find("copy")
    assert entrant.left in ("check", "open check")
    assert entrant.question in ("model", "learned", "removal")
    stored = raced.results.frame()
    assert stored.filter(stored["explainer"] == "copy").height == 0  # no metric was measured for it


def test_what_is_chosen_may_be_shown_by_other_samples(raced: RaceOutcome) -> None:
    race, confirmation = raced.race, raced.race.confirmation
    assert confirmation is not None
    assert confirmation.explainer == race.leader == race.finalists[0].name
    assert confirmation.samples == 8
    assert raced.confirmation is not None
    verdict = raced.confirmation.verdict()
    assert (raced.chosen is not None) == (race.leader in verdict.show)
    assert (raced.explainer is not None) == (raced.chosen is not None)


def test_jobs_are_those_of_an_evaluation_of_the_same_samples(
    raced: RaceOutcome, model: standfast.Model, digits: Any
) -> None:
    """`evaluate` with these samples and this folder does not do them again."""
    rows = list(raced.race.rows)
    samples = dataclasses.replace(digits, inputs=digits.inputs[rows], labels=digits.labels[rows])
    explainers = {
        "saliency": "saliency",
        "input x gradient": "input_x_gradient",
        "copy": copy_input,
    }
    before = raced.results.store.statuses()
    found = standfast.evaluate(
        model,
        explainers,
        samples,
        METRICS,
        controls=False,
        sanity=8,
        out=raced.results.store.folder.address,
        progress=False,
    )
    assert found.run is not None
    assert found.run.earlier == len(before) > 0
    again = standfast.choose(
        model,
        digits[:FEW],
        explainers,
        METRICS,
        budget=1.0,
        out=raced.results.store.folder.address,
        sanity=8,
        progress=False,
    )
    assert again.race.plain() | {"seconds": 0} == raced.race.plain() | {"seconds": 0}


def test_a_race_that_was_ended_goes_on(
    raced: RaceOutcome,
    model: standfast.Model,
    digits: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a kill in the middle, the same call does only what is missing, and chooses the same."""
    explainers = {
        "saliency": "saliency",
        "input x gradient": "input_x_gradient",
        "copy": copy_input,
    }
    put, stored = Store.put, []

    def put_some(store: Store, packed: Any) -> None:
        if len(stored) == 5:
            raise KeyboardInterrupt
        stored.append(packed.job)
        put(store, packed)

    def ask() -> RaceOutcome:
        return standfast.choose(
            model,
            digits[:FEW],
            explainers,
            METRICS,
            budget=1.0,
            out=tmp_path,
            sanity=8,
            progress=False,
        )

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", put_some)
        with pytest.raises(KeyboardInterrupt):
            ask()
    times = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "jobs").iterdir()}
    assert len(times) == 5
    found = ask()
    for name, written in times.items():
        assert (tmp_path / "jobs" / name).stat().st_mtime_ns == written
    assert _without_times(found.race) == _without_times(raced.race)


def _without_times(race: Race) -> dict[str, Any]:
    plain = race.plain()
    for entrant in plain["entrants"]:
        del entrant["seconds"]
    # the folder is a part of the call
    return {**plain, "seconds": 0, "call": {}}


def test_it_is_printed_and_stored(raced: RaceOutcome, tmp_path: Path) -> None:
    text = str(raced)
    assert raced.why.split()[0] in text
    for entrant in raced.race.entrants:
        assert entrant.name in text
    stored = json.loads(raced.to_json(tmp_path / "race.json").read_text())
    assert stored["chosen"] == raced.chosen
    assert Race.from_plain(stored) == raced.race
    store = Store(raced.results.store.folder.address)
    assert read_race(store) == load_results(store).race == raced.race
    frame = raced.frame()
    assert frame["explainer"].to_list() == [entrant.name for entrant in raced.race.entrants]


def test_its_page_is_that_of_its_results(
    raced: RaceOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on it is seen in `tests/cli/test_choose_command.py`: to write a page takes seconds."""
    written: list[tuple[Results, Path]] = []

    def write(results: Results, path: Path) -> Path:
        written.append((results, path))
        return path

    monkeypatch.setattr(Results, "to_html", write)
    assert raced.to_html(tmp_path / "report.html") == tmp_path / "report.html"
    assert written == [(raced.results, tmp_path / "report.html")]


def test_none_is_an_answer_where_all_fail_the_checks(model: standfast.Model, digits: Any) -> None:
    found = standfast.choose(
        model, digits[:FEW], {"copy": copy_input, "same": same_map}, METRICS, progress=False
    )
    assert found.chosen is None
    assert found.explainer is None
    assert {entrant.left for entrant in found.race.entrants} <= {"check"}
    assert found.race.leader is None
    assert found.confirmation is None
    assert "all 2 explainers fail the sanity checks" in found.why


def test_one_that_fails_does_not_end_the_race(model: standfast.Model, digits: Any) -> None:
    explainers = {"saliency": "saliency", "input x gradient": "input_x_gradient", "broken": fail}
    found = standfast.choose(
        model, digits[:FEW], explainers, METRICS, budget=1.0, sanity=8, progress=False
    )
    broken = found.race.find("broken")
    assert broken.left == "failed"
    assert "out of ideas" in str(broken.error)
    assert "out of ideas" in str(found)
    assert found.race.leader in ("saliency", "input x gradient")


def test_the_unstable_leave_and_all_bad_is_none(model: standfast.Model, digits: Any) -> None:
    """Within half of the range of every pixel no map holds."""
    metrics = [
        standfast.metrics.WorstCase(standfast.LinfBall(0.5), budget=30),
        "aopc:samples=1,steps=5",
    ]
    found = standfast.choose(
        model, digits[:FEW], EXPLAINERS, metrics, budget=1.0, sanity=8, progress=False
    )
    assert found.chosen is None


@pytest.mark.parametrize("minutes", [0, -1, math.nan, math.inf, "soon", True])
def test_wrong_minutes_are_refused(model: standfast.Model, digits: Any, minutes: Any) -> None:
    with pytest.raises(ArgumentError, match="minutes"):
        standfast.choose(model, digits, EXPLAINERS, METRICS, minutes=minutes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"explainers": ["saliency"]}, "at least two"),
        ({"explainers": ["saliency", "random"]}, "at least two"),
        ({"metrics": []}, "metrics"),
        ({"by": "worst"}, "by: expected the label"),
        ({"by": 3}, "by"),
        ({"budget": 0}, "budget"),
        ({"budget": 1.5}, "budget"),
        ({"budget": math.nan}, "budget"),
        ({"level": 0}, "level"),
        ({"level": 1.0}, "level"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_what_is_refused(
    model: standfast.Model, digits: Any, change: dict[str, Any], words: str
) -> None:
    arguments = {"explainers": EXPLAINERS, "metrics": METRICS, **change}
    with pytest.raises(ArgumentError, match=words):
        standfast.choose(model, digits, progress=False, **arguments)


def test_too_few_samples_are_refused(model: standfast.Model, digits: Any) -> None:
    with pytest.raises(ArgumentError, match=r"inputs: expected at least 24 samples.* got 23"):
        standfast.choose(model, digits[:23], EXPLAINERS, METRICS, progress=False)


def test_several_models_are_refused(model: standfast.Model, digits: Any) -> None:
    with pytest.raises(ArgumentError, match="one model"):
        standfast.choose({"a": model, "b": model}, digits, EXPLAINERS, METRICS, progress=False)


def test_a_split_is_nested_and_seeded() -> None:
    whole = Split.draw(60, seed=1, first=8)
    assert whole == Split.draw(60, seed=1, first=8) != Split.draw(60, seed=2, first=8)
    for used in (24, 30, 45):
        part = Split.draw(60, seed=1, first=8, used=used)
        assert part.race == whole.race[: len(part.race)]
        assert part.confirmation == whole.confirmation[: len(part.confirmation)]
        assert len(part.race) + len(part.confirmation) == used


def test_a_limited_time_chooses_settings_and_samples(
    model: standfast.Model, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a second call keeps the settings of the first, so that what is done counts."""
    label = "worst_case: changed_explanation"

    def choose_so_many(budget: int) -> RaceOutcome:
        def choose_settings(
            opening: object, plan: object, grid: Any, limit: TimeLimit
        ) -> tuple[Choice, int]:
            settings = {label: {"budget": budget}} if grid.free.ladders else {}
            return Choice(limit.minutes, settings, seconds=1.0), 24

        monkeypatch.setattr(contest._Opening, "_choose", choose_settings)
        metrics = ["worst_case", "aopc:samples=1,steps=5"]
        return standfast.choose(
            model, digits, EXPLAINERS, metrics, minutes=60, out=tmp_path, progress=False, sanity=8
        )

    first = choose_so_many(10)
    assert (first.race.minutes, first.race.samples, len(first.race.rows)) == (60, 24, 16)
    assert first.results.manifest["metrics"][label]["options"]["budget"] == 10
    assert any("16 of 24 samples" in part for part in first.race.left_out)
    assert (
        first.confirmation is None
        or first.confirmation.manifest["metrics"][label]["options"]["budget"] == 10
    )
    second = choose_so_many(20)
    assert second.results.manifest["metrics"][label]["options"]["budget"] == 10
    assert second.race.rows == first.race.rows


def test_a_race_that_was_out_of_time_goes_on_with_its_samples_however_slow_the_machine_is(
    model: standfast.Model, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting: list[int] = []

    def choose_settings(
        opening: object, plan: object, grid: object, limit: TimeLimit
    ) -> tuple[Choice, int]:
        if not fitting:
            raise ArgumentError("minutes", "about 9 or more", f"{limit.minutes:g}")
        return Choice(limit.minutes, {}, seconds=1.0), fitting[0]

    monkeypatch.setattr(contest._Opening, "_choose", choose_settings)

    def choose(minutes: float, *count: int) -> RaceOutcome:
        fitting[:] = count
        metrics = ["aopc:samples=1,steps=5"]
        return standfast.choose(
            model,
            digits,
            EXPLAINERS,
            metrics,
            minutes=minutes,
            out=tmp_path,
            progress=False,
            sanity=8,
        )

    with monkeypatch.context() as out_of_time:
        out_of_time.setattr(Means, "find_seconds", lambda self, kept=0.0: 0.0)
        first = choose(60, 24)
    assert (first.race.out_of_time, len(first.race.rows)) == (True, 16)
    for minutes in (30, 90):  # not one sample would fit now
        second = choose(minutes)
        assert second.race.rows == first.race.rows
        assert not second.race.out_of_time
        assert any("16 of" in part for part in second.race.left_out)
    fewer, more = choose(100, 24), choose(120, 30)
    assert fewer.race.rows == first.race.rows
    assert len(more.race.rows) == 20
    assert more.race.rows[:16] == first.race.rows


def test_a_race_without_time_says_so(
    model: standfast.Model, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Means, "find_seconds", lambda self, kept=0.0: 0.0)
    found = standfast.choose(
        model, digits[:FEW], EXPLAINERS, ["aopc:samples=1,steps=5"], minutes=60, progress=False
    )
    assert found.race.out_of_time
    assert (found.chosen, found.race.leader, found.confirmation) == (None, None, None)
    assert "the time was up before the first look" in found.why


@pytest.mark.parametrize("turned_away", [1, 2])
def test_who_leaves_as_unstable_at_a_look_without_an_end_is_out(
    model: standfast.Model, digits: Any, monkeypatch: pytest.MonkeyPatch, turned_away: int
) -> None:
    """The first of the first look is unstable at the second, and then the time is up before the ranking."""
    do, unstable = RunningRace._do, []

    def do_until_the_second_look(race: RunningRace, labels: Any, names: Any, count: int) -> bool:
        race._out_of_time = count > 8 and race.terms.label in labels
        return not race._out_of_time and do(race, labels, names, count)

    def leave_at_the_second_look(race: RunningRace, names: Any, count: int) -> None:
        for name in names[:turned_away] if count > 8 else ():
            unstable.append(name)
            race._left[name] = Entrant(name, "unstable", count, "worst_case")

    monkeypatch.setattr(RunningRace, "_do", do_until_the_second_look)
    monkeypatch.setattr(RunningRace, "_leave_by_stability", leave_at_the_second_look)
    metrics = ["worst_case:budget=4", "aopc:samples=1,steps=5"]
    found = standfast.choose(
        model, digits[:FEW], EXPLAINERS, metrics, budget=1.0, sanity=8, progress=False
    )
    assert len(unstable) == turned_away
    assert {entrant.name for entrant in found.race.entrants if entrant.left == "unstable"} == set(
        unstable
    )
    assert found.race.leader not in unstable
    assert found.race.confirmation is None or found.race.confirmation.explainer not in unstable
    if turned_away == 1:
        assert found.race.finalists[0].behind is None
    else:
        assert "all 2 explainers are unstable" in found.why


def test_a_time_that_is_too_short_is_refused_with_the_minutes_that_would_do(
    model: standfast.Model, digits: Any
) -> None:
    """That they do is seen below, as the speed of a machine changes while it is measured."""
    metrics = [standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=2000)]

    words = r"minutes: expected about (.*) or more, for a first look at 8 samples of 2 explainers and a confirmation"
    with pytest.raises(ArgumentError, match=words) as refused:
        standfast.choose(model, digits, EXPLAINERS, metrics, minutes=0.01, sanity=8, progress=False)
    matched = re.search(words, str(refused.value))
    assert matched is not None
    assert float(matched[1]) >= 0.1


def make_costs(seconds: float, ladder: tuple[Mapping[str, Any], ...] = ()) -> RaceCosts:
    """Two explainers and 60 samples, each of which takes so many seconds by one metric; a check takes 3 seconds."""
    digits = torch.zeros(60, 1, 2, 2)
    labels = {"checks": 3.0, "aopc": 60 * seconds}
    lines = [
        EstimateLine("d", "m", explainer, label, 1, 0, 60, 60, spent, basis="trial")
        for explainer in EXPLAINERS
        for label, spent in labels.items()
    ]
    sanity = SimpleNamespace(name="checks", samples_together=60)
    free = Freedom(ladders={"aopc": ladder} if ladder else {})
    metrics = {"aopc": standfast.metrics.AOPC()}
    samples = Samples(digits, None, None)
    grid = SimpleNamespace(
        data={"d": samples}, sanity=sanity, free=free, controls=(), metrics=metrics
    )
    costs = Costs(grid, Estimate(tuple(lines)), 1)  # type: ignore[arg-type]
    return RaceCosts.of(costs, ["aopc"], 0.25, 4, lambda count: 8)


def test_a_race_is_foretold_as_it_is_held() -> None:
    costs = make_costs(1.0)
    # checks of both, eight samples of both, eight of the leader and of its twin, and the checks of the leader
    assert costs.sum_seconds({}, 24) == pytest.approx(6 + 16 + 16 + 3)
    # a quarter of 120, with the 20 samples of the leader among them
    assert costs.sum_seconds({}, 60) == pytest.approx(6 + 16 + 40 + 3)
    dear = dataclasses.replace(costs, budget=1.0)
    assert dear.sum_seconds({}, 60) == pytest.approx(6 + (120 - 20) + 40 + 3)


def test_as_many_samples_as_the_time_allows() -> None:
    costs = make_costs(1.0)
    counts = {}
    for seconds in (45, 50, 55, 200):
        _, counts[seconds] = choose_scope(costs, TimeFrame(9.0, seconds / 0.85, 1.0), 24, 60)
        # what is planned is rounded
        one_more = costs.sum_seconds({}, counts[seconds] + 1)
        assert counts[seconds] == 60 or one_more > seconds - 1e-9
        assert costs.sum_seconds({}, counts[seconds]) <= seconds
    assert 24 <= counts[45] < counts[50] < counts[55] < counts[200] == 60
    # a forecast is not exact: what needs all of the time is tried with the fewest samples
    assert choose_scope(costs, TimeFrame(9.0, 41.5, 1.0), 24, 60) == ({}, 24)
    with pytest.raises(ArgumentError, match=r"minutes: expected about 1 or more, .* got 0.7"):
        choose_scope(costs, TimeFrame(0.7, 40.0, 2.0), 24, 60)


def test_the_minutes_of_the_error_suffice() -> None:
    for seconds in (1.0, 30.0, 500.0):
        frame = TimeFrame(0.1, 4.0, 1.0)
        minutes = frame.find_minutes(seconds)
        # costs are measured for a sixth of the time, and one second was spent before
        left = 60 * minutes - min(10.0, 10 * minutes) - 1.0
        assert TimeFrame(minutes, left, 0.0).planned >= seconds
        assert 0.85 * (left - 12) < seconds


def test_the_first_look_may_use_all_of_the_time(model: standfast.Model, digits: Any) -> None:
    """Nothing is kept for a confirmation before there is a leader."""
    shares: list[float] = []

    class Noting(Means):
        def find_seconds(self, kept: float = 0.0) -> float:
            shares.append(kept)
            return super().find_seconds(kept)

    arguments = Arguments(
        model=model,
        explainers=EXPLAINERS,
        inputs=digits[:FEW],
        metrics=["aopc:samples=1,steps=5"],
        sanity=8,
    )
    means = Noting(local(1), TimeLimit(60, time.monotonic()))
    held = Contest(arguments.ask(), RaceOptions(budget=1.0, minutes=60), means, {}).hold()
    assert held.race.leader is not None
    looks = len(held.race.ladder)
    assert looks > 1
    # checks and values of the first look; then that of the second one; at the end the confirmation
    assert shares[:2] == [0.0, 0.0]
    assert 0 < shares[2] <= 0.5
    assert shares[-1] == 0.0
