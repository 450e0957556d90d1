"""What is chosen for a limited time, from costs that are known exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch

import standfast
from conftest import small_net
from standfast.metrics import Cost, Metric, metrics
from standfast.metrics.base import has_neighbourhood, list_cheaper
from standfast.metrics.sanity import make_checks
from standfast.question.grid import Extra, Freedom, Grid, LoadedModel, Samples
from standfast.registry import build
from standfast.study.forecast.choice import Choice, check_minutes, choose, describe_choice
from standfast.study.forecast.costs import ENOUGH
from standfast.study.forecast.estimate import Estimate, EstimateLine
from standfast.study.forecast.first_jobs import learn, sort_jobs
from standfast.study.forecast.left_out import MEASURED
from standfast.study.jobs import Job

LADDER = ({"samples": 10}, {"samples": 100})


@dataclass(frozen=True)
class Drawn(Metric):
    """A metric of which each sample takes one second for itself, and a hundredth for each copy."""

    name = "drawn"
    direction = "higher"

    samples: int = 1000

    def cost(self, classes: int | None = None) -> Cost:
        return Cost(predictions=0, explanations=1 + self.samples)

    def evaluate(self, call: Any) -> Any:
        raise NotImplementedError


def make_grid(
    count: int = 40, sanity: bool = True, ladder: Any = LADDER, controls: bool = True
) -> Grid:
    net = small_net((12,))
    explainers = {
        "saliency": standfast.explainers.get("saliency"),
        "random": standfast.explainers.get("random"),
    }
    labelled = {"drawn": Drawn()}
    return Grid(
        {"x": Samples(torch.rand(count, 12))},
        {"m": LoadedModel(standfast.Model(net, (0.0, 1.0), device="cpu"))},
        explainers,
        labelled,
        controls=("random",),
        sanity=make_checks(sanity, labelled),
        free=Freedom(
            ladders={"drawn": ladder} if ladder else {},
            controls=("random",) if controls else (),
            sanity=sanity,
        ),
    )


def estimate(grid: Grid) -> Estimate:
    """A sample takes 1 s and 0.01 s for each copy, with each explainer; its check 2 s."""
    count = len(grid.data["x"])
    lines = [
        EstimateLine(
            "x", "m", name, "drawn", 1, 0, count, 0, count * 11.0, basis="trial", start=count * 1.0
        )
        for name in grid.explainers
    ]
    if grid.sanity is not None:
        lines.append(
            EstimateLine(
                "x",
                "m",
                "saliency",
                "sanity",
                1,
                0,
                count,
                0,
                count * 2.0,
                basis="trial",
                start=0.0,
            )
        )
    return Estimate(tuple(lines))


def choose_for(grid: Grid, seconds: float, **options: Any) -> Choice | None:
    return choose(grid, estimate(grid), seconds / 60, seconds, **options)


def seconds_of(choice: Choice, grid: Grid) -> float:
    """What a choice takes, added up by hand."""
    copies = choice.settings.get("drawn", {"samples": 1000})["samples"]
    explainers = 2 if "random" in choice.controls or not grid.free.controls else 1
    checked = len(grid.data["x"]) if choice.checked is None else choice.checked
    checks = 2.0 * checked if grid.sanity is not None else 0.0
    return explainers * choice.samples["x"] * (1 + copies / 100) + checks


def test_with_enough_time_nothing_is_left_out() -> None:
    grid = make_grid()
    choice = choose_for(grid, 5000)
    assert choice is not None
    assert choice.settings == {}
    assert choice.samples == {"x": 40}
    assert (choice.controls, choice.checked) == (("random",), None)
    assert choice.seconds == pytest.approx(2 * 40 * 11 + 80)
    assert choice.whole == pytest.approx(2 * 40 * 11 + 80)


@pytest.mark.parametrize("seconds", [30, 60, 100, 150, 200, 300, 500, 700, 900, 1500])
def test_what_is_chosen_fits_and_one_sample_more_would_not(seconds: float) -> None:
    grid = make_grid()
    choice = choose_for(grid, seconds)
    assert choice is not None
    assert choice.seconds == pytest.approx(seconds_of(choice, grid))
    assert choice.seconds <= seconds
    if choice.samples["x"] < 40:
        copies = choice.settings.get("drawn", {"samples": 1000})["samples"]
        assert choice.seconds + 2 * (1 + copies / 100) > 0.85 * seconds


def test_settings_are_raised_only_while_enough_samples_fit() -> None:
    """With 100 copies 24 samples take 96 s, with 1,000 of them 528 s; checks of 40 samples 80 s."""
    for seconds, copies in ((150 / 0.85, 10), (270 / 0.85, 100), (620 / 0.85, 1000)):
        choice = choose_for(make_grid(), seconds)
        assert choice is not None
        assert choice.settings.get("drawn", {"samples": 1000})["samples"] == copies
        assert choice.samples["x"] >= ENOUGH


def test_more_time_never_means_less() -> None:
    """Neither fewer samples at the same settings, nor lower settings."""
    before: Choice | None = None
    for seconds in range(20, 2000, 20):
        choice = choose_for(make_grid(), seconds)
        assert choice is not None
        if before is not None:
            copies = [
                each.settings.get("drawn", {"samples": 1000})["samples"]
                for each in (before, choice)
            ]
            assert copies == sorted(copies)
            assert len(choice.controls) >= len(before.controls)
            if (
                copies[0] == copies[1]
                and choice.checked == before.checked
                and choice.controls == before.controls
            ):
                assert choice.samples["x"] >= before.samples["x"]
        before = choice


def test_controls_and_checks_are_left_out_last() -> None:
    """A sample takes 2 x 1.1 s, its check 2 s; 8 samples are checked at least."""
    kinds = []
    for seconds in (30.0, 20.0, 6.0, 2.0):
        choice = choose_for(make_grid(), seconds / 0.85)
        assert choice is not None
        kinds.append((choice.samples["x"], len(choice.controls), choice.checked))
    assert kinds == [(6, 1, 8), (1, 1, 8), (2, 1, 0), (1, 0, 0)]


def test_too_little_time_is_an_error_that_says_how_much_would_do() -> None:
    grid = make_grid()
    with pytest.raises(
        standfast.ArgumentError, match=r"minutes: expected at least about 0.018 for one sample"
    ) as error:
        choose_for(grid, 0.5)
    assert choose_for(grid, 0.018 * 60 / 0.85 + 0.1) is not None
    assert "got 0.00833" in str(error.value)


def test_what_was_asked_for_stays() -> None:
    """Configured metrics, named controls and a number of checked samples are never changed."""
    grid = make_grid(sanity=False, ladder=None, controls=False)
    choice = choose_for(grid, 100)
    assert choice is not None
    chosen = choice.apply(grid)
    assert choice.settings == {}
    assert chosen.metrics == grid.metrics
    assert list(chosen.explainers) == list(grid.explainers)
    assert choice.samples == {"x": int(0.85 * 100 / 22)}
    with pytest.raises(
        standfast.ArgumentError, match="minutes: expected at least about 0.37 for one sample"
    ):
        choose_for(grid, 20)


def test_an_earlier_choice_stays_until_all_its_samples_are_done() -> None:
    grid = make_grid()
    first = choose_for(grid, 170)
    assert first is not None
    earlier = first.describe(grid)
    again = choose_for(grid, 5000, earlier=earlier)
    assert again is not None
    assert again.settings == first.settings == {"drawn": {"samples": 10}}
    assert again.samples == {"x": 40}
    assert again.raised == ()
    higher = choose_for(grid, 5000, earlier=earlier, must_add=True)
    assert higher is not None
    assert (higher.settings, higher.raised) == ({}, ("drawn",))
    assert choose_for(grid, 100, earlier=earlier, must_add=True) is None
    whole = {**higher.describe(grid), "samples": {"x": [40, 40]}}
    assert choose_for(grid, 5000, earlier=whole, must_add=True) is None


def test_what_was_left_out_is_added_when_the_samples_are_done() -> None:
    """Controls and checks, where higher settings do not fit: 40 samples take 2 x 44 s, and their checks 80 s."""
    grid = make_grid()
    without = {
        "settings": {"drawn": {"samples": 10}},
        "controls": [],
        "checked": 0,
        "samples": {"x": [40, 40]},
    }
    choice = choose_for(grid, 100 / 0.85, earlier=without, must_add=True)
    assert choice is not None
    assert choice.raised == ()
    assert choice.controls == ("random",)
    assert choice.checked not in (0, None)
    assert choice.samples == {"x": 40}
    assert choose_for(grid, 10, earlier=without, must_add=True) is None


def test_samples_that_are_done_take_no_time_any_more() -> None:
    """39 of 40 samples are done: the last one is, and not one of forty."""
    grid = make_grid()
    earlier = {"settings": {"drawn": {"samples": 10}}, "controls": ["random"], "checked": None}
    choice = choose_for(grid, 4, earlier={**earlier, "samples": {"x": [39, 40]}})
    assert choice is not None
    assert choice.samples == {"x": 40}
    assert choice.seconds == pytest.approx(2 * 1.1)


def test_checks_of_all_samples_are_those_without_a_limit() -> None:
    """Two samples, fewer than checks pass anything with: the same checks, and the same identity."""
    for count in (2, 40):
        grid = make_grid(count)
        choice = choose_for(grid, 5000)
        assert choice is not None
        assert choice.checked is None
        assert choice.apply(grid).sanity == grid.sanity


def test_fewer_checks_are_said() -> None:
    grid = make_grid()
    choice = choose_for(grid, 100)
    assert choice is not None
    assert choice.checked is not None
    assert f"sanity checks with {choice.checked} instead of 40 samples" in describe_choice(
        grid, choice
    )


def test_models_take_turns_that_double() -> None:
    jobs = [
        Job("", "x", model, "e", "drawn", 0, start, start + 1, 1.0)
        for model in "ab"
        for start in range(8)
    ]
    order = [(job.model, job.start) for job in sort_jobs(jobs, ())]
    assert order[:4] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    turns = [model for model, _ in order]
    assert sum(first != second for first, second in pairwise(turns)) == 7
    assert sorted(order) == sorted((job.model, job.start) for job in jobs)
    unknown = [replace(job, label="p") for job in jobs if job.model == "a"]
    labels = [
        job.label
        for job in sort_jobs([*unknown, *jobs], ["p"])
        if (job.model, job.start) == ("a", 3)
    ]
    assert labels == ["drawn", "p"]


def test_several_workers_share_the_time() -> None:
    one, four = (choose_for(make_grid(), 100.0 / workers, workers=workers) for workers in (1, 4))
    assert one is not None
    assert four is not None
    assert (one.settings, one.samples) == (four.settings, four.samples)
    assert four.seconds == pytest.approx(one.seconds / 4)


def test_a_metric_of_unknown_cost_takes_no_time_of_the_plan() -> None:
    grid = make_grid(sanity=False)
    known = estimate(grid)
    lines = (
        *known.lines,
        EstimateLine("x", "m", "saliency", "p", 1, 0, 40, 0, math.nan, basis="unknown"),
    )
    choice = choose(grid, Estimate(lines), 1.0, 60.0)
    assert choice is not None
    assert choice.unknown == ("p",)
    assert choice.seconds == pytest.approx(seconds_of(choice, grid))


@pytest.mark.parametrize("minutes", [0, -1, math.nan, math.inf, "ten", True])
def test_minutes_are_a_number_above_0(minutes: Any) -> None:
    with pytest.raises(
        standfast.ArgumentError,
        match="minutes: expected a number above 0, or None for no limit, got",
    ):
        check_minutes(minutes)


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_ladders_ascend(name: str) -> None:
    """Each setting costs more than the one before and less than the metric's own; nothing that is given changes."""
    kind = metrics[name]
    needed = (
        {"neighbourhood": standfast.LinfBall(0.1)} if has_neighbourhood(kind, required=True) else {}
    )
    whole = build(metrics, name, needed)
    ladder = list_cheaper(whole, needed)
    configured = [*(replace(whole, **options) for options in ladder), whole]
    costs = [metric.cost(10).evaluations for metric in configured]
    assert all(first < second for first, second in pairwise(costs))
    assert list_cheaper(whole, ["preset"]) == ()
    for option in {option for options in ladder for option in options}:
        assert all(option not in options for options in list_cheaper(whole, [option]))


def test_a_doubtful_forecast_is_no_error() -> None:
    """What follows from the time of the model alone may be three times too long."""
    grid = make_grid(sanity=False, controls=False)
    lines = tuple(replace(line, basis="model") for line in estimate(grid).lines)
    choice = choose(grid, Estimate(lines), 1.0 / 60, 1.0)
    assert choice is not None
    assert choice.samples == {"x": 1}
    with pytest.raises(standfast.ArgumentError, match="minutes"):
        choose(grid, Estimate(lines), 0.7 / 60, 0.7)


def test_a_further_default_neighbourhood_is_added_where_nothing_is_left_out() -> None:
    """All of it takes 880 s and checks 80 s; the same again in another neighbourhood 880 s."""
    extra = Extra("drawn", Drawn(999))
    grid = make_grid()
    grid = replace(grid, free=replace(grid.free, extras={"drawn: closer": extra}))
    for seconds, expected in ((960, ()), (1830, ()), (1850, ("drawn: closer",))):
        choice = choose_for(grid, seconds / 0.85)
        assert choice is not None
        assert choice.extras == expected
        assert choice.settings == {}
        chosen = choice.apply(grid)
        assert list(chosen.metrics) == ["drawn", *expected]
    assert choice is not None
    assert chosen.metrics["drawn: closer"] == Drawn(999)
    assert choice.seconds == pytest.approx(2 * 880 + 80)


def test_long_jobs_come_after_the_others_of_their_turn() -> None:
    """One that does not end takes nothing from them."""
    jobs = [
        Job(f"{name}{start}", "x", "m", name, "drawn", 0, start, start + 1, 1.0)
        for start in (0, 1)
        for name in "ab"
    ]
    order = sort_jobs(jobs, (), lambda job: job.explainer == "a")
    assert [job.identity for job in order] == ["b0", "a0", "b1", "a1"]


def test_the_first_jobs_correct_the_forecast_of_their_metric() -> None:
    """`saliency` took four times as long as was forecast; of the other explainer twice as long is expected."""
    grid = make_grid()
    forecast = estimate(grid)
    job = Job("first", "x", "m", "saliency", "drawn", 0, 0, 10, 1.0)
    corrected = learn(forecast, [job], {"first": 440.0}, lambda job: 110.0)
    seconds = {(line.label, line.explainer): line.seconds for line in corrected.lines}
    usual = {(line.label, line.explainer): line.seconds for line in forecast.lines}
    assert seconds["drawn", "saliency"] == pytest.approx(4 * usual["drawn", "saliency"])
    assert seconds["drawn", "random"] == pytest.approx(2 * usual["drawn", "random"])
    assert seconds["sanity", "saliency"] == pytest.approx(usual["sanity", "saliency"])


def make_uneven(dear: float) -> tuple[Grid, Estimate]:
    """Two explainers; a sample takes 1 s of one, and `dear` seconds of the other, and the checks 40 s."""
    grid = make_grid(count=8, ladder=None)
    grid = replace(
        grid, explainers={**grid.explainers, "gradcam": standfast.explainers.get("gradcam")}
    )
    lines = [
        EstimateLine("x", "m", name, "drawn", 1, 0, 8, 0, 8 * each, basis="trial")
        for name, each in {"saliency": 1.0, "gradcam": dear, "random": 1.0}.items()
    ]
    lines.append(EstimateLine("x", "m", "saliency", "sanity", 1, 0, 8, 0, 40.0, basis="trial"))
    return grid, Estimate(tuple(lines))


def test_what_takes_too_long_for_a_sample_is_left_out_once_the_first_jobs_are_done() -> None:
    """Checks and the other explainer are worth more than a single sample."""
    grid, costs = make_uneven(dear=95.0)
    before = choose(grid, costs, 2, 120.0)
    assert before is not None
    assert before.left_out == ()
    earlier = {**before.describe(grid), "samples": {"x": [0, 8]}}
    after = choose(grid, costs, 2, 117.0, earlier={**earlier, MEASURED: 3.0})
    assert after is not None
    assert after.left_out == (("drawn", "gradcam"),)
    assert after.checked is None
    assert after.controls == ("random",)
    assert after.samples == {"x": 8}
    assert "no drawn of gradcam, of which not one sample fits into the time" in describe_choice(
        grid, after
    )


def test_what_fits_is_not_left_out() -> None:
    grid, costs = make_uneven(dear=20.0)
    earlier = {"controls": ["random"], "checked": None, "samples": {"x": [0, 8]}}
    after = choose(grid, costs, 2, 117.0, earlier={**earlier, MEASURED: 3.0})
    assert after is not None
    assert after.left_out == ()
    assert after.samples["x"] >= 1


def test_what_was_left_out_of_an_explainer_is_added_when_all_else_is_done() -> None:
    grid, costs = make_uneven(dear=95.0)
    earlier = {
        "controls": ["random"],
        "checked": None,
        "samples": {"x": [8, 8]},
        "left out pairs": [["drawn", "gradcam"]],
    }
    added = choose(grid, costs, 3, 150.0, earlier=earlier, must_add=True)
    assert added is not None
    assert added.left_out == ()
    assert choose(grid, costs, 1, 60.0, earlier=earlier, must_add=True) is None
