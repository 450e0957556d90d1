"""What settings, samples, controls and checks cost together, by an estimate, and how many of them fit into a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from standfast.metrics import Metric
from standfast.metrics.base import Ladder
from standfast.question.grid import Grid
from standfast.study.forecast.estimate import Estimate, EstimateLine
from standfast.study.forecast.left_out import NOT_BEGUN
from standfast.study.jobs import Job

#: settings are raised while so many samples fit into the time; more samples come before settings that cost more
ENOUGH = 24
#: sanity checks pass nothing with fewer samples
FEWEST_CHECKED = 8
#: the share of the time that sanity checks may take before they get fewer samples
_CHECKS = 1 / 3
#: by how much a time may be overestimated that follows from the time of the model alone
_DOUBT = 3.0


def count_checked(grid: Grid) -> int:
    """How many samples the sanity checks have without a limit."""
    if grid.sanity is None or grid.sanity.samples_together is None:
        return 0
    most_samples = max(map(len, grid.data.values()))
    return min(most_samples, grid.sanity.samples_together)


def count_done(earlier: Mapping[str, Any]) -> int:
    """How many samples of each data set an earlier choice has evaluated, by what the manifest says."""
    # pairs that are not begun are not in the counts, so not one sample is complete
    if earlier.get(NOT_BEGUN):
        return 0
    pairs = (earlier.get("samples") or {}).values()
    counts = [done for done, _ in pairs]
    return min(counts, default=0)


#: by the label of a metric the place of its settings on its ladder; after the last one are its own
Levels = Mapping[str, int]
#: the label of a metric, and the name of an explainer
Pair = tuple[str, str]


class Costs:
    """Adds up what an estimate says of settings, samples, controls and checks.

    Attributes:
        grid: as it would be without a limit.
        estimate: of all its jobs.
        workers: how many share the jobs.
        left_out: the metrics that are not evaluated with some explainers.
    """

    def __init__(
        self, grid: Grid, estimate: Estimate, workers: int, left_out: Collection[Pair] = ()
    ) -> None:
        self.grid = grid
        self.estimate = estimate
        self.workers = workers
        self.left_out = tuple(left_out)
        self.ladders: Mapping[str, Ladder] = grid.free.ladders
        checks = None
        if grid.sanity is not None:
            checks = grid.sanity.name
        self.check_lines = [line for line in estimate.lines if line.label == checks]
        # the checks have samples of their own, and are left out in another way
        evaluated = [line for line in estimate.lines if line.label != checks]
        self.lines = [
            line for line in evaluated if (line.label, line.explainer) not in self.left_out
        ]
        self.longest = max(map(len, grid.data.values()))
        self.checked = count_checked(grid)
        self.may_leave_out_checks = grid.free.sanity and self.checked > 0

    def without(self, pairs: Collection[Pair]) -> Costs:
        """The costs of all else."""
        left_out = [*self.left_out, *pairs]
        return Costs(self.grid, self.estimate, self.workers, left_out)

    def find_levels(self, settings: Mapping[str, Mapping[str, Any]]) -> Levels:
        """The places of settings on their ladders."""
        levels: dict[str, int] = {}
        for label, ladder in self.ladders.items():
            chosen = settings.get(label)
            # after the last rung stand the metric's own settings
            levels[label] = len(ladder)
            if chosen in ladder:
                levels[label] = ladder.index(chosen)
        return levels

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
            share_of_samples = min(samples, length) / length
            total += self._rescale(line, levels) * share_of_samples / doubt
        share = _share_of(checked, self.checked)
        for line in self.check_lines:
            if not math.isnan(line.seconds):
                total += share * line.seconds
        return total / self.workers

    def _rescale(self, line: EstimateLine, levels: Levels) -> float:
        """The seconds of a line with other settings of its metric."""
        level = levels.get(line.label)
        # its own settings: the estimate is of these
        if level is None or level == len(self.ladders[line.label]):
            return line.seconds
        metric = self.grid.metrics[line.label]
        cheaper = replace(metric, **self.ladders[line.label][level])
        inputs = self.grid.data[line.data].inputs
        share = _count_beyond(cheaper, inputs) / max(_count_beyond(metric, inputs), 1)
        # the start is paid whatever the settings are
        return line.start + share * (line.seconds - line.start)

    def is_whole(
        self, levels: Levels, checked: int | None, controls: Sequence[str], samples: int
    ) -> bool:
        """Whether nothing is left out."""
        if self.left_out:
            return False
        own_levels = {label: len(self.ladders[label]) for label in levels}
        has_own_settings = dict(levels) == own_levels
        has_all_controls = set(controls) == set(self.grid.free.controls)
        return has_own_settings and checked is None and has_all_controls and samples >= self.longest

    def sum_extra_seconds(self, controls: Sequence[str]) -> float:
        """Seconds for all samples with the metrics that may be added, which take as long as their twins."""
        total = 0.0
        dropped = set(self.grid.free.controls) - set(controls)
        for extra in self.grid.free.extras.values():
            for line in self.lines:
                if (
                    line.label == extra.twin
                    and line.explainer not in dropped
                    and not math.isnan(line.seconds)
                ):
                    total += line.seconds
        return total / self.workers

    def count_samples(
        self, levels: Levels, checked: int | None, controls: Sequence[str], seconds: float
    ) -> int:
        """How many samples of each data set fit into so many seconds."""
        few = 0
        # more samples never take less time, so the largest number is found by halving
        many = self.longest
        while few < many:
            middle = (few + many + 1) // 2
            if self.sum_seconds(levels, checked, controls, middle) <= seconds:
                few = middle
            else:
                many = middle - 1
        return few

    def leave_out(
        self,
        levels: Levels,
        checked: int | None,
        controls: Sequence[str],
        seconds: float,
        fewest: int,
    ) -> tuple[int | None, Sequence[str], int] | None:
        """Which checks and controls stay, and how many samples fit; None if fewer than `fewest` do.

        First checks get fewer samples, then controls are left out, or else the checks, and at last both.
        """
        fewer_checked = self.reduce_checks(checked)
        without_checks = self.leave_out_checks(checked)
        # from what hurts least to what hurts most
        ways = [
            (checked, controls),
            (fewer_checked, controls),
            (fewer_checked, ()),
            (without_checks, controls),
            (without_checks, ()),
        ]
        for kept_checks, kept_controls in ways:
            count = self.count_samples(levels, kept_checks, kept_controls, seconds)
            if count >= fewest:
                return kept_checks, kept_controls, count
        return None

    def choose_checked(self, seconds: float, earlier: Mapping[str, Any] | None) -> int | None:
        """How many samples are checked; None for as many as without a limit."""
        # None also where there are no checks
        if not self.may_leave_out_checks:
            return None
        # an earlier choice stays, or its checks would be done again
        if earlier is not None and earlier.get("checked") != 0:
            checked: int | None = earlier.get("checked")
            return checked
        whole = self.sum_seconds({}, None, (), 0)
        if whole <= _CHECKS * seconds:
            return None
        return self._limit_checks(
            max(FEWEST_CHECKED, int(self.checked * _CHECKS * seconds / whole))
        )

    def reduce_checks(self, checked: int | None) -> int | None:
        """The fewest samples with which checks may pass something."""
        if not self.may_leave_out_checks:
            return checked
        most = self.checked if checked is None else checked
        return self._limit_checks(min(most, FEWEST_CHECKED))

    def leave_out_checks(self, checked: int | None) -> int | None:
        """No checks, where they may be left out."""
        return 0 if self.may_leave_out_checks else checked

    def _limit_checks(self, count: int) -> int | None:
        """So many samples; None where these are all, so that the checks are the same as without a limit."""
        return count if count < self.checked else None

    def sum_done(self, levels: Levels, earlier: Mapping[str, Any]) -> float:
        """Seconds that an earlier choice with these settings has taken, by the forecast."""
        done = count_done(earlier)
        if not done:
            return 0.0
        checked = earlier.get("checked")
        controls = earlier.get("controls") or ()
        return self.sum_seconds(levels, checked, controls, done)

    def rank_pairs(self, levels: Levels) -> list[tuple[float, Pair]]:
        """What each metric takes with each explainer for one sample of each data set; what takes longest comes first.

        Controls are left out together, not one by one.
        """
        seconds: dict[Pair, float] = {}
        for line in self.lines:
            if line.explainer in self.grid.controls or math.isnan(line.seconds):
                continue
            pair = line.label, line.explainer
            samples = len(self.grid.data[line.data])
            one_sample = self._rescale(line, levels) / samples / self.workers
            seconds[pair] = seconds.get(pair, 0.0) + one_sample
        ranked = [(spent, pair) for pair, spent in seconds.items()]
        return sorted(ranked, reverse=True)

    def forecast_line(
        self, line: EstimateLine, levels: Levels, checked: int | None, samples: int
    ) -> float:
        """Seconds of a line for so many samples; NaN if that is not known. Checks have samples of their own."""
        if line in self.check_lines:
            return line.seconds * _share_of(checked, self.checked)
        all_samples = len(self.grid.data[line.data])
        return self._rescale(line, levels) * samples / all_samples

    def find_cheapest_rise(
        self, levels: Levels, checked: int | None, controls: Sequence[str]
    ) -> tuple[list[str], float] | None:
        """The metrics whose next higher settings cost least, and seconds for enough samples; None if there are none."""
        enough = min(self.longest, ENOUGH)
        rises: list[tuple[float, list[str]]] = []
        for group in self._list_groups():
            level = levels[group[0]]
            if level < len(self.ladders[group[0]]):
                higher = {**levels, **dict.fromkeys(group, level + 1)}
                rises.append((self.sum_seconds(higher, checked, controls, enough), group))
        if not rises:
            return None
        # of equals, the first by name, so that the choice is the same every time
        seconds, labels = min(rises)
        return labels, seconds

    def raise_levels(
        self, levels: Levels, checked: int | None, controls: Sequence[str], seconds: float
    ) -> Levels:
        """Settings as high as they can be while enough samples fit; what costs least is raised first."""
        raised = dict(levels)
        while True:
            cheapest = self.find_cheapest_rise(raised, checked, controls)
            if cheapest is None:
                return raised
            labels, needed_seconds = cheapest
            if needed_seconds > seconds:
                return raised
            next_level = raised[labels[0]] + 1
            raised.update(dict.fromkeys(labels, next_level))

    def _list_groups(self) -> list[list[str]]:
        """The labels of a metric with the same ladder, such as in several neighbourhoods, are raised together."""
        groups: dict[tuple[str, str], list[str]] = {}
        for label, ladder in self.ladders.items():
            name = self.grid.metrics[label].name
            groups.setdefault((name, repr(ladder)), []).append(label)
        return list(groups.values())


def list_settings(costs: Costs, levels: Levels) -> dict[str, Mapping[str, Any]]:
    """The options at these places on the ladders, without those that metrics have anyway."""
    settings: dict[str, Mapping[str, Any]] = {}
    for label, level in levels.items():
        if level < len(costs.ladders[label]):
            settings[label] = costs.ladders[label][level]
    return settings


def _share_of(checked: int | None, all_checked: int) -> float:
    """The share of the checks' samples; None stands for all of them."""
    if checked is None:
        return 1.0
    return checked / max(all_checked, 1)


def _count_beyond(metric: Metric, inputs: Tensor) -> int:
    """The evaluations of one of these inputs `(N, ...)` beyond the explanation of itself."""
    # the explanation of the input itself is in the start already
    cost = metric.bind(inputs=inputs).cost(None)
    return max(cost.evaluations - 1, 0)


def forecast_job(costs: Costs, job: Job, levels: Levels, checked: int | None) -> float:
    """Seconds of a job; NaN if that is not known."""
    coordinates = job.data, job.model, job.explainer, job.label
    for line in [*costs.check_lines, *costs.lines]:
        if (line.data, line.model, line.explainer, line.label) == coordinates:
            return costs.forecast_line(line, levels, checked, job.stop - job.start)
    return math.nan
