"""What is evaluated in a limited time: which settings, how many samples, and what is left out.

What the user has asked for in so many words stays as it is: named explainers, metrics with their options, named
controls. The rest is chosen by what the trials measures: first everything has its cheapest settings; then the settings
that cost least are raised, as long as enough samples fit into the time. Controls and sanity checks are the last to be
left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from standfast.errors import ArgumentError, as_number, check
from standfast.metrics.sanity import make_checks
from standfast.question.grid import Grid
from standfast.study.forecast.costs import (
    Costs,
    Levels,
    Pair,
    count_checked,
    count_done,
    list_settings,
)
from standfast.study.forecast.estimate import Estimate, EstimateLine, describe_seconds
from standfast.study.forecast.left_out import LEFT_OUT_PAIRS, MEASURED, describe_left_out

#: the share of the time that is planned; forecasts are not exact
_PLANNED = 0.85
#: a metric with an explainer is dear if one sample takes more than this share of the time
_DEAR = 1 / 3


def check_minutes(minutes: object) -> float | None:
    """The minutes of a time limit; None for no limit.

    Raises:
        ArgumentError: they are no number above 0.
    """
    minutes = as_number(minutes)
    if minutes is None:
        return None
    fits = type(minutes) in (int, float) and 0 < float(minutes) < math.inf  # type: ignore[arg-type]
    check(fits, "minutes", "a number above 0, or None for no limit", repr(minutes))
    return float(minutes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Choice:
    """What is evaluated in a limited time.

    Attributes:
        minutes: the limit.
        settings: the options that were chosen for metrics, by label; those that are missing have their own.
        controls: the default controls that are evaluated.
        checked: how many samples the sanity checks have; None where they are as without a limit, 0 for none.
        samples: how many samples of each data set will be evaluated, about, by the forecast.
        seconds: what is forecast for them.
        whole: seconds for all samples with all settings as they would be without a limit; NaN if that is not known.
        unknown: the labels of metrics whose cost is not known.
        extras: the labels of metrics in further default neighbourhoods, for which there is time.
        raised: the labels of metrics that have higher settings than in an earlier run, and so begin anew.
        left_out: the label of a metric and the name of an explainer that are not evaluated together, as one sample
            takes too long.
    """

    minutes: float
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    checked: int | None = None
    samples: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    whole: float = math.nan
    unknown: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    left_out: tuple[Pair, ...] = ()

    def apply(self, grid: Grid) -> Grid:
        """The grid with what was chosen."""
        metrics = dict(grid.metrics)
        for label, options in self.settings.items():
            metrics[label] = replace(metrics[label], **options)
        for label in self.extras:
            metrics[label] = grid.free.extras[label].metric
        dropped = [name for name in grid.free.controls if name not in self.controls]
        sanity = grid.sanity
        # 0 stands for no checks at all
        if self.checked is not None:
            sanity = make_checks(self.checked or False, metrics)
        elif sanity is not None:
            sanity = make_checks(sanity.samples, metrics)  # type: ignore[attr-defined]
        return replace(
            grid,
            metrics=metrics,
            explainers={
                name: explainer
                for name, explainer in grid.explainers.items()
                if name not in dropped
            },
            controls=tuple(name for name in grid.controls if name not in dropped),
            sanity=sanity,
        )

    def describe(self, grid: Grid) -> dict[str, Any]:
        """What the manifest says of it.

        Args:
            grid: as it would be without a limit.
        """
        usual_settings: dict[str, dict[str, Any]] = {}
        for label, options in self.settings.items():
            usual_options = grid.metrics[label].options()
            usual_settings[label] = {name: usual_options[name] for name in options}
        dropped = [name for name in grid.free.controls if name not in self.controls]
        return {
            "minutes": self.minutes,
            "settings": {label: dict(options) for label, options in self.settings.items()},
            "without limit": usual_settings,
            "controls": list(self.controls),
            "left out controls": dropped,
            LEFT_OUT_PAIRS: [list(pair) for pair in self.left_out],
            "checked": self.checked,
            "checked without limit": count_checked(grid),
            "extras": list(self.extras),
            "forecast": {"samples": dict(self.samples), "seconds": self.seconds},
            # NaN is no JSON
            "seconds of all": None if math.isnan(self.whole) else self.whole,
            "unknown": list(self.unknown),
        }

    def adds_to(self, earlier: Mapping[str, Any]) -> bool:
        """Whether it has anything that an earlier choice, as its manifest says, has not."""
        earlier_controls = earlier.get("controls") or ()
        has_more_controls = bool(set(self.controls) - set(earlier_controls))
        earlier_extras = earlier.get("extras") or ()
        has_further_metrics = bool(set(self.extras) - set(earlier_extras))
        earlier_checked = earlier.get("checked")
        # None stands for all samples, so nothing can be more
        has_more_checks = earlier_checked is not None and (
            self.checked is None or self.checked > earlier_checked
        )
        earlier_left_out = {tuple(pair) for pair in earlier.get(LEFT_OUT_PAIRS) or ()}
        has_more_pairs = bool(earlier_left_out - set(self.left_out))
        return (
            bool(self.raised)
            or has_more_controls
            or has_further_metrics
            or has_more_checks
            or has_more_pairs
        )


def choose(
    grid: Grid,
    estimate: Estimate,
    minutes: float,
    seconds: float,
    *,
    workers: int = 1,
    earlier: Mapping[str, Any] | None = None,
    must_add: bool = False,
) -> Choice | None:
    """What is evaluated in the seconds that are left of a limit.

    Args:
        grid: as it would be without a limit.
        estimate: of all its jobs.
        minutes: the limit.
        seconds: that are left of it.
        workers: how many share the jobs.
        earlier: what the manifest says of an earlier choice. Its settings stay, so that all that is done counts. With
            `MEASURED` it has the seconds of its first jobs, of which the estimate has learned. Then metrics may be left
            out with explainers with which one sample takes too long.
        must_add: all of the earlier choice is done: choose higher settings, or what it has left out.

    Returns:
        None if something must be added, and nothing fits.

    Raises:
        ArgumentError: not one sample fits.
    """
    costs = Costs(grid, estimate, workers)
    start = _Start.find(costs, earlier, seconds, must_add)
    # then single pairs may be left out, as their time is known and no longer a guess
    has_learned = earlier is not None and MEASURED in earlier
    part = _choose_part(start, may_leave_out_pairs=has_learned)
    if part is None and must_add:
        return None
    # the least is tried all the same, as a forecast may be wrong
    if part is None:
        part = _find_least(start, minutes, seconds)
    levels = start.levels
    planned = start.planned
    done_seconds = start.done_seconds
    extras = part.find_extras(levels, planned)
    choice = Choice(
        minutes,
        list_settings(costs, levels),
        part.controls,
        part.checked,
        {name: min(len(samples), part.samples) for name, samples in grid.data.items()},
        # what is done counts, but takes no time any more
        max(part.sum_seconds(levels, extras) - done_seconds, 0.0),
        estimate.seconds / workers,
        tuple(estimate.unknown),
        _list_raised(levels, start.earlier_levels),
        extras,
        part.costs.left_out,
    )
    adds_nothing = must_add and not choice.adds_to(earlier or {})
    return None if adds_nothing else choice


@dataclass(frozen=True)
class _Start:
    """What is known before samples, controls and checks are chosen.

    Attributes:
        costs: without the metrics that an earlier choice has left out with some explainers.
        earlier_levels: the settings of the earlier choice; None if there is none.
        levels: the settings that are chosen.
        checked: how many samples the sanity checks should have (`Choice`).
        planned: the seconds that may be used, those of what is done with these settings among them.
        done_seconds: those of what is done, about.
        fewest: at least so many samples must fit.
    """

    costs: Costs
    earlier_levels: Levels | None
    levels: Levels
    checked: int | None
    planned: float
    done_seconds: float
    fewest: int

    @classmethod
    def find(
        cls, costs: Costs, earlier: Mapping[str, Any] | None, seconds: float, must_add: bool
    ) -> _Start:
        """What is known at the beginning, and after an earlier choice (`choose`)."""
        planned = _PLANNED * seconds
        checked = costs.choose_checked(seconds, earlier)
        if earlier is None:
            levels = costs.raise_levels(
                dict.fromkeys(costs.ladders, 0), checked, costs.grid.free.controls, planned
            )
            return cls(costs, None, levels, checked, planned, 0.0, 1)
        pairs = [(label, explainer) for label, explainer in earlier.get(LEFT_OUT_PAIRS) or ()]
        others = costs.without(pairs)
        earlier_levels = others.find_levels(earlier.get("settings") or {})
        levels = earlier_levels
        if must_add:
            levels = others.raise_levels(levels, checked, costs.grid.free.controls, planned)
        done_seconds = 0.0
        fewest = 1
        # higher settings are new work, so nothing that is done helps
        if levels == earlier_levels:
            # what is done with these settings takes no time any more, and stays
            done_seconds = max(others.sum_done(levels, earlier), earlier.get(MEASURED, 0.0))
            fewest = max(count_done(earlier), 1)
        # all pairs fit now, which the earlier choice has left out
        if must_add and pairs and _sum_pairs(costs, pairs, levels) <= planned:
            others = costs
            # the pairs are new, so of them nothing is done
            fewest = 1
        return cls(
            others, earlier_levels, levels, checked, planned + done_seconds, done_seconds, fewest
        )


def _list_raised(levels: Levels, earlier_levels: Levels | None) -> tuple[str, ...]:
    """The labels of metrics that have higher settings than before."""
    if earlier_levels is None:
        return ()
    return tuple(label for label in levels if levels[label] > earlier_levels[label])


@dataclass(frozen=True)
class _Part:
    """What of a grid is evaluated: metrics with explainers, samples, controls and checks.

    Attributes:
        costs: without the metrics that are left out with some explainers.
        checked: how many samples the sanity checks have (`Choice`).
        controls: the default controls.
        samples: how many of each data set.
    """

    costs: Costs
    checked: int | None
    controls: tuple[str, ...]
    samples: int

    def sum_seconds(self, levels: Levels, extras: Sequence[str] = ()) -> float:
        """What it takes, with the metrics in further neighbourhoods."""
        seconds = self.costs.sum_seconds(levels, self.checked, self.controls, self.samples)
        if extras:
            return seconds + self.costs.sum_extra_seconds(self.controls)
        return seconds

    def find_extras(self, levels: Levels, planned: float) -> tuple[str, ...]:
        """The metrics in further neighbourhoods, if nothing is left out and there is time for all of them."""
        extras = tuple(self.costs.grid.free.extras)
        is_whole = self.costs.is_whole(levels, self.checked, self.controls, self.samples)
        if is_whole and self.sum_seconds(levels, extras) <= planned:
            return extras
        return ()


def _choose_part(start: _Start, may_leave_out_pairs: bool) -> _Part | None:
    """What fits into the planned time; None if fewer samples than `start.fewest` do.

    Where pairs of metrics and explainers may be left out, there is always something: the first jobs are done, and the
    forecast of the rest may be wrong.
    """
    costs = _leave_out_pairs(start) if may_leave_out_pairs else start.costs
    controls = costs.grid.free.controls
    fitting = costs.leave_out(start.levels, start.checked, controls, start.planned, start.fewest)
    # the first jobs are done, so there is something to show
    if fitting is None and may_leave_out_pairs:
        return _Part(costs, costs.leave_out_checks(start.checked), (), start.fewest)
    if fitting is None:
        return None
    kept_checks, kept_controls, count = fitting
    return _Part(costs, kept_checks, tuple(kept_controls), count)


def _leave_out_pairs(start: _Start) -> Costs:
    """The costs without the metrics that take too long with some explainers.

    Checks and controls stay rather than what takes a third of the time for one sample. All else is left out only if
    nothing fits otherwise.
    """
    costs = start.costs
    levels = start.levels
    planned = start.planned
    controls = costs.grid.free.controls
    fewer_checked = costs.reduce_checks(start.checked)
    if costs.count_samples(levels, fewer_checked, controls, planned) < start.fewest:
        costs = costs.without(_find_dear(costs, levels, planned))
    while costs.leave_out(levels, start.checked, controls, planned, start.fewest) is None:
        # the last pair stays, or nothing would be evaluated
        pairs = costs.rank_pairs(levels)
        if len(pairs) < 2:
            break
        _, dearest = pairs[0]
        costs = costs.without([dearest])
    return costs


def _sum_pairs(costs: Costs, pairs: Collection[Pair], levels: Levels) -> float:
    """Seconds for one sample of each data set with some pairs."""
    return math.fsum(spent for spent, pair in costs.rank_pairs(levels) if pair in pairs)


def _find_dear(costs: Costs, levels: Levels, limit: float) -> list[Pair]:
    """The pairs of which one sample takes a large part of the time; never all of them."""
    dear = []
    for spent, pair in costs.rank_pairs(levels):
        if spent > _DEAR * limit:
            dear.append(pair)
    is_all = len(dear) == len(costs.rank_pairs(levels))
    # the cheapest stays, or nothing would be evaluated
    if is_all:
        return dear[:-1]
    return dear


def _find_least(start: _Start, minutes: float, seconds: float) -> _Part:
    """The least that can be evaluated: a forecast is not exact, and it may fit.

    Raises:
        ArgumentError: it takes longer, even if what was not measured is overestimated.
    """
    costs = start.costs
    least_checked = costs.leave_out_checks(start.checked)
    # what follows from the model alone may be overestimated by `_DOUBT`
    least = costs.sum_seconds(start.levels, least_checked, (), 1, at_least=True)
    needed = max((least - seconds) / 60 + minutes, 0.01)
    expected = f"at least about {needed:.2g} for one sample of this question"
    check(least <= seconds, "minutes", expected, f"{minutes:g}")
    return _Part(costs, least_checked, (), 1)


def limit_seconds(grid: Grid, estimate: Estimate, choice: Choice) -> dict[EstimateLine, float]:
    """The seconds of each line of an estimate that a choice needs; NaN where they are not known."""
    costs = Costs(grid, estimate, 1)
    levels = costs.find_levels(choice.settings)
    dropped = set(grid.free.controls) - set(choice.controls)
    seconds: dict[EstimateLine, float] = {}
    for line in estimate.lines:
        is_left_out = line.explainer in dropped or (line.label, line.explainer) in choice.left_out
        if is_left_out:
            seconds[line] = 0.0
        else:
            seconds[line] = costs.forecast_line(
                line, levels, choice.checked, choice.samples[line.data]
            )
    return seconds


def explain_nothing(
    grid: Grid,
    estimate: Estimate,
    earlier: Mapping[str, Any],
    minutes: float,
    seconds: float,
    workers: int,
) -> str:
    """Why nothing is added to an earlier choice that is done, and what would do.

    Args:
        grid: as it would be without a limit.
        estimate: of all its jobs.
        earlier: what the manifest says of the choice.
        minutes: the limit.
        seconds: that are left of it.
        workers: how many share the jobs.
    """
    costs = Costs(grid, estimate, workers)
    levels = costs.find_levels(earlier.get("settings") or {})
    checked = costs.choose_checked(seconds, earlier)
    reason = f"all that fits into {_name_minutes(minutes)} is done"
    higher = costs.find_cheapest_rise(levels, checked, grid.free.controls)
    if higher is None:
        return f"{reason}; give more minutes for what is left out"
    labels, needed_seconds = higher
    # the plan uses only a part of the time
    needed = describe_seconds(needed_seconds / _PLANNED)
    return f"{reason}: higher settings of {', '.join(labels)} are new work, and need about {needed}; give more minutes"


def advise(grid: Grid, estimate: Estimate, minutes: float) -> str:
    """What fits into so many minutes, in words."""
    try:
        choice = choose(grid, estimate, minutes, 60 * minutes)
    except ArgumentError as error:
        return f"in {_name_minutes(minutes)}: nothing, as one sample needs {error.expected}"
    assert choice is not None
    return describe_choice(grid, choice)


def describe_choice(grid: Grid, choice: Choice) -> str:
    """What is evaluated in the time, and what is left out."""
    counts: dict[str, list[int]] = {}
    for name, count in choice.samples.items():
        counts[name] = [count, len(grid.data[name])]
    left_out = describe_left_out({**choice.describe(grid), "samples": counts})
    parts = "; ".join(left_out) or "everything"
    limit = _name_minutes(choice.minutes)
    text = f"in {limit}: {parts} (about {describe_seconds(choice.seconds)})"
    if choice.raised:
        labels = ", ".join(choice.raised)
        text += f"; new work, with higher settings than before: {labels}"
    return text


def _name_minutes(minutes: float) -> str:
    noun = "minute" if minutes == 1 else "minutes"
    return f"{minutes:g} {noun}"
