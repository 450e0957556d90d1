"""What becomes of rows that change: how far numbers can go, what parameters ask for, and the rows that come of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.neighbourhoods.copula import Copula
from standfast.neighbourhoods.rules import Rule
from standfast.neighbourhoods.tables.categories import CODE_TOLERANCE, Category
from standfast.neighbourhoods.tables.options import TableOptions
from standfast.neighbourhoods.tables.plan import ColumnPlan, find_lowest, fit_copula_of
from standfast.tensors import is_on_host

#: of a step: a bound that is a whole number of steps away stays so when inputs are standardised
_SLACK = 1e-4
#: tensors of a copula
_TENSORS_OF_COPULA = ("values", "levels", "weights", "root", "inverse")


class RowChanges:
    """The changes of M rows.

    Args:
        options: of the table.
        plan: what they mean for the columns.
        inputs: the clean rows `(M, F)`.
        bounds: of the inputs.

    Attributes:
        clean: the clean rows in the data's units, float64 `(M, F)`.
        columns: the columns of numbers that change. `relative`, whether their parameter is in percent (not with a
            step), and `step`, 0 for none, are `(m,)`.
        lower, upper: the bounds of the inputs, `(F,)`; `(M, F)` where they depend on the row.
        missing_codes: the number that stands for a missing cell of each column, float64 `(F,)`; NaN for none.
        is_missing: which cells of the clean rows are missing, bool `(M, F)`.
    """

    def __init__(
        self, options: TableOptions, plan: ColumnPlan, inputs: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> None:
        self.options = options
        self.plan = plan
        self.inputs = inputs
        self.bounds = bounds
        device = inputs.device
        self.mean = plan.mean.to(device)
        self.std = plan.std.to(device)
        self.clean = self.in_units(inputs)
        self.columns = [number.column for number in plan.numbers]
        relative = [number.relative for number in plan.numbers]
        self.relative = torch.tensor(relative, dtype=torch.bool, device=device)
        steps = [number.feature.step or 0.0 for number in plan.numbers]
        self.step = torch.tensor(steps, dtype=torch.float64, device=device)
        features = inputs.shape[1:]
        self.lower, self.upper = (
            torch.as_tensor(bound, device=device).double().expand(features) for bound in bounds
        )
        if options.missing is None:
            self.missing_codes = torch.full(features, math.nan, dtype=torch.float64, device=device)
        else:
            codes = []
            for code in options.missing:
                codes.append(math.nan if code is None else code)
            self.missing_codes = torch.tensor(codes, dtype=torch.float64).to(device)
        tolerance = CODE_TOLERANCE * self.missing_codes.abs().clamp(min=1)
        # false where the code is NaN
        self.is_missing = inputs.double() - self.missing_codes <= tolerance
        if options.lowest is not None and options.highest is not None:
            self._narrow_to_reference(options.lowest, options.highest)
        elif options.missing is not None:
            has_no_code = self.missing_codes.isnan()
            lowest_present = find_lowest(options).to(self.lower)
            self.lower = torch.where(has_no_code, self.lower, lowest_present)

    def _narrow_to_reference(self, lowest: Sequence[float], highest: Sequence[float]) -> None:
        """Narrow the bounds to the range of the reference and the row's own values: they become `(M, F)`."""
        least = self.lower.new_tensor(lowest)
        most = self.lower.new_tensor(highest)
        # the number of a missing cell lies below all others, and must not widen the limits
        present = torch.where(self.is_missing, least, self.inputs.double())
        # the row's own value stays possible, also outside of the range of the reference
        lowest_possible = torch.minimum(least, present)
        highest_possible = torch.maximum(most, present)
        self.lower = torch.maximum(self.lower, lowest_possible)
        self.upper = torch.minimum(self.upper, highest_possible)

    def select(self, rows: Tensor) -> RowChanges:
        """The changes of some of the rows."""
        return RowChanges(self.options, self.plan, self.inputs[rows], self.bounds)

    def in_units(self, rows: Tensor) -> Tensor:
        """Rows `(M, F)` in the data's units."""
        return rows.double() * self.std + self.mean

    def round_to_steps(self, change: Tensor) -> Tensor:
        """Changes `(M, m)` as multiples of the steps, the nearest ones; those without a step stay."""
        has_step = self.step > 0
        step = torch.where(has_step, self.step, 1.0)
        rounded = (change / step).round() * step
        return torch.where(has_step, rounded, change)

    def cut_to_steps(self, change: Tensor) -> Tensor:
        """Changes `(M, m)` as multiples of the steps, the next ones towards 0."""
        has_step = self.step > 0
        step = torch.where(has_step, self.step, 1.0)
        cut = (change / step).trunc() * step
        return torch.where(has_step, cut, change)

    @cached_property
    def clean_categories(self) -> list[Tensor]:
        """The indices of the clean rows' categories, `(M,)` each; -1 for those that are not known, or missing."""
        rows = self.inputs.double()
        indices = []
        for category in self.plan.categories:
            columns = list(category.columns)
            is_missing = self.is_missing[:, columns].any(1)
            index = category.find(rows)
            indices.append(torch.where(is_missing, -1, index))
        return indices

    @property
    def copula(self) -> Copula:
        """The copula of the data, on the device of the rows."""
        copula = fit_copula_of(self.options, self.inputs.shape[1])
        if is_on_host(self.inputs):
            return copula
        attributes = dict(vars(copula))
        for name in _TENSORS_OF_COPULA:
            attributes[name] = attributes[name].to(self.inputs.device)
        return Copula(**attributes)

    # Are these rows of the table?

    def check_rows(self) -> None:
        """Raise `ArgumentError` for rows that break a rule, up to rounding, or have a category that is not known."""
        for rule in (*self.plan.rules, *self.plan.definitions):
            self._check_rule(rule)
        for category, category_index in zip(
            self.plan.categories, self.clean_categories, strict=True
        ):
            self._check_category(category, category_index)

    def _check_rule(self, rule: Rule) -> None:
        precision = 64 * torch.finfo(torch.float32).eps  # tables are often stored in float32
        size = rule.measure_size(self.clean)
        # `input * std + mean` rounds in proportion to the mean, too
        if self.options.units is not None:
            means = self.mean.expand_as(self.clean)
            size = size + rule.measure_size(means)
        is_beyond = rule.find_excess(self.clean) > precision * size
        broken = is_beyond & ~self.has_missing_cell(rule)
        if not bool(broken.any()):
            return
        first = int(broken.nonzero()[0])
        names = self.options.columns or [f"x{column}" for column in range(self.clean.shape[1])]
        values = []
        for column in _list_columns(rule):
            values.append(f"{names[column]} = {self.clean[first, column]:g}")
        count = f"{int(broken.sum())} of {len(broken)} rows that break it"
        got = f"{count}; the first is row {first}: {', '.join(values)}"
        raise ArgumentError("inputs", f"rows that keep the rule {rule.text!r}", got)

    def _check_category(self, category: Category, category_index: Tensor) -> None:
        columns = list(category.columns)
        is_missing = self.is_missing[:, columns].any(1)
        unknown = (category_index < 0) & ~is_missing
        if bool(unknown.any()):
            first = int(unknown.nonzero()[0])
            cells = self.clean[first, columns].tolist()
            expected = f"rows with a known category of {category.name!r}"
            raise ArgumentError("inputs", expected, f"row {first}: {cells}")
        codes = category.codes.to(self.inputs.device)
        inside = self._are_inside(codes, columns)
        expected = f"all categories of {category.name!r} within the bounds"
        check(bool(inside.all()), "bounds", expected, "one outside")

    def _are_inside(self, codes: Tensor, columns: Sequence[int]) -> Tensor:
        """Whether codes `(K, C)` of columns lie within the bounds of some row, bool `(K, C)`."""
        slack = CODE_TOLERANCE * codes.abs()
        lower = self.lower[..., columns]
        upper = self.upper[..., columns]
        # limits of each row: a category has to be possible for one of them
        if lower.ndim > 1:
            lower = lower.amin(0)
            upper = upper.amax(0)
        return (codes >= lower - slack) & (codes <= upper + slack)

    def has_missing_cell(self, rule: Rule) -> Tensor:
        """Whether a cell of the rule is missing in the clean rows, bool `(M,)`."""
        columns = _list_columns(rule)
        return self.is_missing[:, columns].any(1)

    # How far can numbers go?

    def find_ranges(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest change of each number in the data's units, `(M, m)`, within the bounds.

        With a step, multiples of it.
        """
        clean = self.clean[:, self.columns]
        ends = self.plan.ends.to(clean.device)
        scale = torch.where(ends.percent, clean.abs() / 100, 1.0)
        low = torch.where(ends.free, ends.lowest_value - clean, ends.lowest_change * scale)
        high = torch.where(ends.free, ends.highest_value - clean, ends.highest_change * scale)
        lower_in_units = self.lower * self.std + self.mean
        upper_in_units = self.upper * self.std + self.mean
        room_below = lower_in_units[..., self.columns] - clean
        room_above = upper_in_units[..., self.columns] - clean
        # the clean value itself is always possible, so that a range contains 0
        low = torch.maximum(low, room_below).clamp(max=0)
        high = torch.minimum(high, room_above).clamp(min=0)
        has_step = self.step > 0
        step = torch.where(has_step, self.step, 1.0)
        first_multiple = (low / step - _SLACK).ceil() * step
        last_multiple = (high / step + _SLACK).floor() * step
        low = torch.where(has_step, first_multiple, low)
        high = torch.where(has_step, last_multiple, high)
        # a missing cell stays missing
        is_missing = self.is_missing[:, self.columns]
        return low.masked_fill(is_missing, 0.0), high.masked_fill(is_missing, 0.0)

    def limit_numbers(self) -> tuple[Tensor, Tensor]:
        """The limits of the parameters of numbers, `(M, m)`."""
        low, high = self.find_ranges()
        # half a step wider, so that the first and the last multiple are as probable as the others
        low = low - self.step / 2
        high = high + self.step / 2
        one_percent = self.clean[:, self.columns].abs() / 100
        is_in_percent = self.relative & (one_percent > 0)
        unit = torch.where(is_in_percent, one_percent, 1.0)
        ends = self.plan.ends.to(low.device)
        # a value of 0 does not change, whatever the percentage: so the parameter has all that the user said
        is_zero = self.relative & ~is_in_percent
        lower = torch.where(is_zero, ends.lowest_change, low / unit)
        upper = torch.where(is_zero, ends.highest_change, high / unit)
        return lower, upper

    # What do parameters ask for?

    def propose(self, parameters: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """What parameters `(M, D)` ask for.

        Returns:
            The changes of numbers in the data's units, `(M, m)`; the index of each category, `(M,)` each; and whether
            the copula allows the move, bool `(M,)`.
        """
        m = len(self.plan.numbers)
        values = parameters[:, :m].double()
        possible = torch.ones(len(parameters), dtype=torch.bool, device=parameters.device)
        if m == 0:
            change = values
        elif self.options.prior == "copula":
            change, possible = self._move_by_copula(values)
        else:
            change = self._change_numbers(values)
        chosen = []
        of_categories = parameters[:, m : m + len(self.plan.categories)].unbind(1)
        for category, clean, parameter in zip(
            self.plan.categories, self.clean_categories, of_categories, strict=True
        ):
            # -1 stands for no known category: `apply` keeps the cells of such a row
            index = clean.clamp(min=0)
            chosen.append(category.choose(index, parameter))
        return change, chosen, possible

    def _move_by_copula(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The changes of numbers `(M, m)`, and whether the move is possible, `(M,)`."""
        # the different rows, and which of them each row is: copies of one row stand together as a rule
        rows, copy = torch.unique_consecutive(self.inputs, dim=0, return_inverse=True)
        copula = self.copula
        continuous = list(self.plan.continuous)
        values = self.in_units(rows)[:, continuous]
        origin = copula.locate(values)
        change, possible = copula.move(origin.select(copy), shift)
        return self.round_to_steps(change), possible

    def _change_numbers(self, values: Tensor) -> Tensor:
        """The changes `(M, m)` that values of the parameters are, in steps and within the ranges."""
        size = self.clean[:, self.columns].abs()
        change = torch.where(self.relative, size * values / 100, values)
        low, high = self.find_ranges()
        rounded = self.round_to_steps(change)
        return torch.minimum(torch.maximum(rounded, low), high)

    # What comes of it?

    def apply(self, change: Tensor, chosen: Sequence[Tensor]) -> Tensor:
        """The rows `(M, F)`, as the model gets them, with changes `(M, m)` and categories; computed columns follow."""
        before = self.inputs.double()
        rows = before.clone()
        if self.columns:
            numbers = before[:, self.columns]
            moved = numbers + change / self.std[self.columns]
            lower = self.lower[..., self.columns]
            upper = self.upper[..., self.columns]
            moved = torch.minimum(torch.maximum(moved, lower), upper)
            is_missing = self.is_missing[:, self.columns]
            rows[:, self.columns] = torch.where(is_missing, numbers, moved)
        for category, clean, category_index in zip(
            self.plan.categories, self.clean_categories, chosen, strict=True
        ):
            columns = list(category.columns)
            # the inputs' own bits stay where nothing changes; a code may be rounded
            stays = (clean == category_index) | (clean < 0)
            codes = category.codes.to(rows.device)[category_index]
            rows[:, columns] = torch.where(stays[:, None], before[:, columns], codes)
        for rule in self.plan.definitions:
            # a computed column moves by what its terms moved, so that an unchanged row keeps its bits
            moved = rule.combine((rows - before) * self.std)
            rows = rows.clone()  # autograd needs what the rule was computed from
            moved = torch.where(self.has_missing_cell(rule), 0.0, moved)
            computed = rule.defines
            rows[:, computed] = before[:, computed] + moved / self.std[computed]
        return rows.to(self.inputs.dtype)

    def make_missing(self, rows: Tensor, parameters: Tensor) -> Tensor:
        """The rows with the cells missing whose uniform number is near 1, of those that can become missing."""
        columns = self.plan.can_become_missing
        if not columns:
            return rows
        rows = rows.clone()
        uniform = parameters[:, parameters.shape[1] - len(columns) :]
        for position, column in enumerate(columns):
            becomes_missing = uniform[:, position] > 1 - self.options.may_become_missing
            missing_code = self.missing_codes[column].to(rows)
            rows[:, column] = torch.where(becomes_missing, missing_code, rows[:, column])
        return rows

    def find_kept(self, rows: Tensor, change: Tensor) -> Tensor:
        """Whether rows with these changes keep all rules, bool `(M,)`.

        With a copula also the ranges, and computed columns the bounds; `propose` and `apply` have cut all else already.
        """
        kept = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if self.options.prior != "independent" and self.columns:
            low, high = self.find_ranges()
            slack = 1e-9 * (high - low)
            is_within = (change >= low - slack) & (change <= high + slack)
            kept &= is_within.all(1)
        units = self.in_units(rows)
        for rule in self.plan.rules:
            keeps_rule = rule.evaluate(units) <= self.allow(rule)
            kept &= keeps_rule | self.has_missing_cell(rule)
        for rule in self.plan.definitions:
            value = rows[:, rule.defines].double()
            lower = self.lower[..., rule.defines]
            upper = self.upper[..., rule.defines]
            is_within = (value >= lower) & (value <= upper)
            kept &= is_within | self.has_missing_cell(rule)
        return kept

    def allow(self, rule: Rule) -> Tensor:
        """What a rule's value may be at most: 0, or the clean row's own rounding error."""
        return rule.evaluate(self.clean).clamp(min=0)


def _list_columns(rule: Rule) -> list[int]:
    """The columns that a rule names, the one that it computes last."""
    columns = [column for column, _ in rule.terms]
    if rule.defines is None:
        return columns
    return [*columns, rule.defines]
