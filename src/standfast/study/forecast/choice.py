"""What is evaluated in a limited time: which settings, how many samples, and what is left out.

What the user has asked for in so many words stays as it is: named explainers, metrics with their options, named
controls. The rest is chosen by what the trials measures: first everything has its cheapest settings; then the settings
that cost least are raised, as long as enough samples fit into the time. Controls and sanity checks are the last to be
left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from standfast.errors import ArgumentError, as_number, check
from standfast.metrics import Metric
from standfast.metrics.base import Ladder
from standfast.metrics.sanity import make_checks
from standfast.question.grid import Grid
from standfast.study.forecast.estimate import Estimate, Line, describe_seconds
from standfast.study.forecast.left_out import describe_left_out

#: settings are raised while so many samples fit into the time; more samples come before settings that cost more
ENOUGH = 24
#: sanity checks pass nothing with fewer samples
FEWEST_CHECKED = 8
#: the share of the time that sanity checks may take before they get fewer samples
_CHECKS = 1 / 3
#: by how much a time may be overestimated that follows from the time of the model alone
_DOUBT = 3.0
#: the share of the time that is planned; forecasts are not exact
_PLANNED = 0.85


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
        checked: how many samples the sanity checks have; None where they are as they were asked for, 0 for none.
        samples: how many samples of each data set will be evaluated, about, by the forecast.
        seconds: what is forecast for them.
        whole: seconds for all samples with all settings as they would be without a limit; NaN if that is not known.
        unknown: the labels of metrics whose cost is not known.
        extras: the labels of metrics in further default neighbourhoods, for which there is time.
        raised: the labels of metrics that have higher settings than in an earlier run, and so begin anew.
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

    def apply(self, grid: Grid) -> Grid:
        """The grid with what was chosen."""
        metrics = dict(grid.metrics)
        for label, options in self.settings.items():
            metrics[label] = replace(metrics[label], **options)
        for label in self.extras:
            metrics[label] = grid.free.extras[label].metric
        dropped = [name for name in grid.free.controls if name not in self.controls]
        sanity = grid.sanity
        if self.checked is not None:
            sanity = make_checks(self.checked or False, metrics)
        elif sanity is not None:
            sanity = make_checks(sanity.samples, metrics)  # type: ignore[attr-defined]
        return replace(
            grid,
            metrics=metrics,
            explainers={name: explainer for name, explainer in grid.explainers.items() if name not in dropped},
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
            "checked": self.checked,
            "extras": list(self.extras),
            "forecast": {"samples": dict(self.samples), "seconds": self.seconds},
            "seconds of all": None if math.isnan(self.whole) else self.whole,
            "unknown": list(self.unknown),
        }


def choose(
    grid: Grid,
    estimate: Estimate,
    minutes: float,
    seconds: float,
    *,
    workers: int = 1,
    earlier: Mapping[str, Any] | None = None,
    must_rise: bool = False,
) -> Choice | None:
    """What is evaluated in the seconds that are left of a limit.

    Args:
        grid: as it would be without a limit.
        estimate: of all its jobs.
        minutes: the limit.
        seconds: that are left of it.
        workers: how many share the jobs.
        earlier: what the manifest says of an earlier choice. Its settings stay, so that all that is done counts.
        must_rise: all samples are done with the earlier settings: choose higher ones.

    Returns:
        None if settings must rise, and no higher ones fit.

    Raises:
        ArgumentError: not one sample fits.
    """
    chooser = _Chooser(grid, estimate, workers)
    earlier_levels = None if earlier is None else chooser.find_levels(earlier.get("settings") or {})
    levels = earlier_levels or chooser.lowest_levels()
    checked = chooser.choose_checked(seconds, earlier)
    controls = grid.free.controls
    if earlier_levels is None or must_rise:
        levels = chooser.raise_levels(levels, checked, controls, _PLANNED * seconds)
    if must_rise and levels == earlier_levels:
        return None
    fitting = chooser.leave_out(levels, checked, controls, _PLANNED * seconds)
    if fitting is None:
        # a forecast is not exact, and so what may fit is tried
        least_checked = None if checked is None else 0
        least = chooser.sum_seconds(levels, least_checked, (), 1, at_least=True)
        needed = max((least - seconds) / 60 + minutes, 0.01)
        expected = f"at least about {needed:.2g} for one sample of this question"
        check(least <= seconds, "minutes", expected, f"{minutes:g}")
        fitting = least_checked, (), 1
    checked, kept_controls, count = fitting
    counts = {name: min(len(samples), count) for name, samples in grid.data.items()}
    needed_seconds = chooser.sum_seconds(levels, checked, kept_controls, count)
    extras: tuple[str, ...] = ()
    is_whole = chooser.is_whole(levels, checked, kept_controls, count)
    extra_seconds = chooser.sum_extra_seconds(kept_controls)
    if is_whole and needed_seconds + extra_seconds <= _PLANNED * seconds:
        extras = tuple(grid.free.extras)
        needed_seconds += extra_seconds
    raised: list[str] = []
    if earlier_levels is not None:
        raised = [label for label in levels if levels[label] > earlier_levels[label]]
    return Choice(
        minutes,
        chooser.list_settings(levels),
        tuple(kept_controls),
        checked,
        counts,
        needed_seconds,
        estimate.seconds / workers,
        tuple(estimate.unknown),
        tuple(raised),
        extras,
    )


#: by the label of a metric the place of its settings on its ladder; after the last one are its own
Levels = Mapping[str, int]


class _Chooser:
    """Adds up what an estimate says of settings, samples, controls and checks."""

    def __init__(self, grid: Grid, estimate: Estimate, workers: int) -> None:
        self.grid = grid
        self.workers = workers
        self.ladders: Mapping[str, Ladder] = grid.free.ladders
        checks = None if grid.sanity is None else grid.sanity.name
        self.check_lines = [line for line in estimate.lines if line.label == checks]
        self.lines = [line for line in estimate.lines if line.label != checks]
        self.longest = max(len(samples) for samples in grid.data.values())
        #: how many samples the checks have without a limit
        self.checked = 0
        if grid.sanity is not None and grid.sanity.samples_together is not None:
            self.checked = min(self.longest, grid.sanity.samples_together)

    def lowest_levels(self) -> Levels:
        """The cheapest settings of each metric."""
        return dict.fromkeys(self.ladders, 0)

    def find_levels(self, settings: Mapping[str, Mapping[str, Any]]) -> Levels:
        """The places of settings on their ladders."""
        levels: dict[str, int] = {}
        for label, ladder in self.ladders.items():
            chosen = settings.get(label)
            levels[label] = len(ladder)
            if chosen in ladder:
                levels[label] = ladder.index(chosen)
        return levels

    def list_settings(self, levels: Levels) -> dict[str, Mapping[str, Any]]:
        """The options at these places, without those that metrics have anyway."""
        settings: dict[str, Mapping[str, Any]] = {}
        for label, level in levels.items():
            if level < len(self.ladders[label]):
                settings[label] = self.ladders[label][level]
        return settings

    def sum_seconds(
        self,
        levels: Levels,
        checked: int | None,
        controls: Sequence[str],
        samples: float,
        at_least: bool = False,
    ) -> float:
        """Seconds for so many samples of each data set, and for the checks.

        With `at_least` those that it takes even if what was not measured is overestimated.
        """
        total = 0.0
        dropped = set(self.grid.free.controls) - set(controls)
        for line in self.lines:
            if line.explainer in dropped or math.isnan(line.seconds):
                continue
            length = len(self.grid.data[line.data])
            doubt = _DOUBT if at_least and line.basis == "model" else 1.0
            total += self._rescale(line, levels) * min(samples, length) / length / doubt
        share = 1.0
        if checked is not None:
            share = checked / max(self.checked, 1)
        for line in self.check_lines:
            if not math.isnan(line.seconds):
                total += share * line.seconds
        return total / self.workers

    def _rescale(self, line: Line, levels: Levels) -> float:
        """The seconds of a line with other settings of its metric."""
        level = levels.get(line.label)
        if level is None or level == len(self.ladders[line.label]):
            return line.seconds
        metric = self.grid.metrics[line.label]
        cheaper = replace(metric, **self.ladders[line.label][level])
        share = _count_beyond(cheaper) / max(_count_beyond(metric), 1)
        return line.start + share * (line.seconds - line.start)

    def is_whole(self, levels: Levels, checked: int | None, controls: Sequence[str], samples: int) -> bool:
        """Whether nothing is left out."""
        has_own_settings = all(level == len(self.ladders[label]) for label, level in levels.items())
        has_all_checks = checked is None or checked >= self.checked
        has_all_controls = set(controls) == set(self.grid.free.controls)
        return has_own_settings and has_all_checks and has_all_controls and samples >= self.longest

    def sum_extra_seconds(self, controls: Sequence[str]) -> float:
        """Seconds for all samples with the metrics that may be added, which take as long as their twins."""
        total = 0.0
        dropped = set(self.grid.free.controls) - set(controls)
        for extra in self.grid.free.extras.values():
            for line in self.lines:
                if line.label == extra.twin and line.explainer not in dropped and not math.isnan(line.seconds):
                    total += line.seconds
        return total / self.workers

    def count_samples(self, levels: Levels, checked: int | None, controls: Sequence[str], seconds: float) -> int:
        """How many samples of each data set fit into so many seconds."""
        few, many = 0, self.longest
        while few < many:
            middle = (few + many + 1) // 2
            if self.sum_seconds(levels, checked, controls, middle) <= seconds:
                few = middle
            else:
                many = middle - 1
        return few

    def leave_out(
        self, levels: Levels, checked: int | None, controls: Sequence[str], seconds: float
    ) -> tuple[int | None, Sequence[str], int] | None:
        """Which checks and controls stay, and how many samples fit; None if not one does.

        First checks get fewer samples, then controls are left out, or else the checks, and at last both.
        """
        fewer_checked = None if checked is None else min(checked, FEWEST_CHECKED)
        without_checks = None if checked is None else 0
        ways = [
            (checked, controls),
            (fewer_checked, controls),
            (fewer_checked, ()),
            (without_checks, controls),
            (without_checks, ()),
        ]
        for kept_checks, kept_controls in ways:
            count = self.count_samples(levels, kept_checks, kept_controls, seconds)
            if count >= 1:
                return kept_checks, kept_controls, count
        return None

    def choose_checked(self, seconds: float, earlier: Mapping[str, Any] | None) -> int | None:
        """How many samples are checked; None where that is not free."""
        if not self.grid.free.sanity or not self.checked:
            return None
        if earlier is not None and earlier.get("checked"):
            return min(int(earlier["checked"]), self.checked)
        whole = self.sum_seconds({}, self.checked, (), 0)
        if whole <= _CHECKS * seconds:
            return self.checked
        return max(min(FEWEST_CHECKED, self.checked), int(self.checked * _CHECKS * seconds / whole))

    def raise_levels(self, levels: Levels, checked: int | None, controls: Sequence[str], seconds: float) -> Levels:
        """Settings as high as they can be while enough samples fit; what costs least is raised first."""
        enough = min(self.longest, ENOUGH)
        raised = dict(levels)
        groups = self._list_groups()
        while True:
            best: tuple[float, dict[str, int]] | None = None
            for group in groups:
                label = group[0]
                if raised[label] == len(self.ladders[label]):
                    continue
                higher = {**raised, **dict.fromkeys(group, raised[label] + 1)}
                total = self.sum_seconds(higher, checked, controls, enough)
                if total <= seconds and (best is None or total < best[0]):
                    best = total, higher
            if best is None:
                return raised
            raised = best[1]

    def _list_groups(self) -> list[list[str]]:
        """The labels of a metric with the same ladder, such as in several neighbourhoods, are raised together."""
        groups: dict[tuple[str, str], list[str]] = {}
        for label, ladder in self.ladders.items():
            groups.setdefault((self.grid.metrics[label].name, repr(ladder)), []).append(label)
        return list(groups.values())


def _count_beyond(metric: Metric) -> int:
    """The evaluations of a sample beyond the explanation of itself."""
    return max(metric.cost(None).evaluations - 1, 0)


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
    text = f"in {_name_minutes(choice.minutes)}: {parts} (about {describe_seconds(choice.seconds)})"
    if choice.raised:
        labels = ", ".join(choice.raised)
        text += f"; new work, with higher settings than before: {labels}"
    return text


def _name_minutes(minutes: float) -> str:
    return f"{minutes:g} minute" + ("" if minutes == 1 else "s")
