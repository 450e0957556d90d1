"""`TableChanges`, the neighbourhood of rows of a table; `__init__.py` has the formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.choices import Choices
from standfast.neighbourhoods.plausibility import measure_plausibility
from standfast.neighbourhoods.tables.candidates import list_candidates
from standfast.neighbourhoods.tables.features import Feature as Feature
from standfast.neighbourhoods.tables.options import TableOptions
from standfast.neighbourhoods.tables.plan import ColumnPlan, plan_columns
from standfast.neighbourhoods.tables.repair import settle
from standfast.neighbourhoods.tables.row_changes import RowChanges
from standfast.neighbourhoods.transformations import ParameterLimits, Transformation, find_scale

#: the part of the unit interval at each end that uniform numbers of a copula do not reach: normal scores stay finite
_TAIL = 1e-6
#: of the unit interval, in which float32 still has several numbers
_SMALLEST_SHARE = 2.0**-20


@neighbourhoods.register("table")
@dataclass(frozen=True)
class TableChanges(TableOptions):
    """Changed rows `(N, F)` of a table that keep given rules.

    Args:
        changes: what changes: a mapping from names of columns, or of groups in `one_hot`, to their changes; or one
            change for all columns that are not `fixed`, not defined by a rule and not in `one_hot`, whose groups then
            change as categories. A change is a number r for -r to r in the data's units, a pair `(low, high)` around 0,
            a text such as `"2%"` for a share of the row's own value, `"any"`, `"category"`, or a mapping with the
            options of `Feature`: `{"by": 3, "step": 1}`.
        columns: the names of all columns. None: they are called x0, x1 and so on.
        fixed: columns that stay as they are, where `changes` is for all.
        one_hot: groups of columns that hold one category together, by a name for each group.
        rules: linear rules between columns as text, with `<=`, `>=` or `==`: `"debt <= 3 * income"`. A name with spaces
            stands in backquotes. With `==`, one side is a single column, which is computed from the others.
        data: training rows `(n, F)` as the model gets them, for priors, categories, `"any"` and plausibility.
        units: where the model's inputs are standardised outside of the model: the mean and the standard deviation of
            each column, `(mean, std)`. Changes, rules and codes are then in the units `input * std + mean`, and `data`
            is standardised like the inputs. None: the inputs' own units.
        prior: `"independent"`, or `"copula"`, which needs `data`.
        size: how far rows move with a copula, from near 0 to 1, an independent draw.
        missing: the number that stands for a missing cell of each column, below all others, as all numbers below it do;
            None where it has none. A missing cell stays missing, no cell moves towards that number, and a rule with a
            missing cell does not hold the row back. Data frames bring it along.
        may_become_missing: the probability with which a cell of each column that changes becomes missing.
        lowest: the smallest number of each column that is no missing cell. None: that of the data. Data frames bring
            it along.
        codes: how many categories without an order the numbers of each column stand for, from 0; 0 for a column of
            other numbers. Categories have no distance, also where they do not change. Data frames bring it along.
        highest: the largest number of each column. With it, a change reaches numbers from `lowest` to `highest`, and
            the row's own. None: all numbers within the bounds. Data frames bring along what the reference has, so that
            rows to explain do not matter to each other.

    Raises:
        ArgumentError: something that does not fit; unknown columns; rows that break a rule themselves.

    >>> changes = TableChanges({"debt": 300, "age": {"by": 2, "step": 1}}, columns=("income", "debt", "age"),
    ...     rules=("debt <= 3 * income",))
    >>> region = changes.around(torch.tensor([[100.0, 200.0, 30.0]]))
    >>> region.perturb(torch.tensor([[50.0, 1.2], [300.0, 0.0]]), torch.tensor([0, 0]))
    tensor([[100.0000, 250.0000,  31.0000],
            [100.0000, 299.9999,  30.0000]])
    >>> region.contains(torch.tensor([[[50.0, 1.2], [300.0, 0.0]]]))
    tensor([[ True, False]])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.count_columns()
        if count is not None and (self.data is None or self.table.digest):
            plan_columns(self, count)  # says what does not fit

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether all changes are numbers without steps."""
        for feature in self.features.values():
            is_category = feature.by is None
            if is_category or feature.step:
                return False
        has_groups_too = not isinstance(self.changes, Mapping) and len(self.one_hot) > 0
        return not has_groups_too and not self.may_become_missing

    @property
    def chooses(self) -> bool:
        """Whether a category or a number with steps changes, or a cell may be lost; a copula moves numbers freely."""
        if self.one_hot or self.may_become_missing > 0:
            return True
        for feature in self.features.values():
            has_steps = self.prior != "copula" and feature.step is not None
            if has_steps or feature.categories is not None:
                return True
        return False

    @property
    def restricted(self) -> bool:  # type: ignore[override]
        """Whether there are rules, or ranges that cut a prior from data."""
        return bool(self.rules) or self.prior != "independent"

    def describe(self) -> str:
        """What changes, and the rules."""
        numbers = []
        groups = []
        for name, feature in self.features.items():
            if feature.by is None:
                groups.append(name)
            else:
                numbers.append(feature.describe(name))
        words = []
        if numbers:
            words.append(f"changed in {', '.join(numbers)}")
        if groups:
            words.append(f"given other categories of {', '.join(groups)}")
        text = " and ".join(words)
        if self.prior == "copula":
            text += f", by a move of size {self.size:g} in a Gaussian copula of the data"
        if self.may_become_missing:
            text += f", with cells lost with probability {self.may_become_missing:g}"
        if self.rules:
            text += f", such that {' and '.join(self.rules)}"
        return text

    def count_parameters(self, shape: Sequence[int]) -> int:
        """One for each column or group that changes, and one more for each cell that may become missing."""
        plan = self._plan_for(shape)
        return len(plan.numbers) + len(plan.categories) + len(plan.can_become_missing)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """The names of the columns and groups."""
        plan = self._plan_for(shape)
        names = []
        for number in plan.numbers:
            unit = "%" if number.relative else "change"
            if self.prior == "copula":
                unit = "copula, shift of a uniform number"
            names.append(f"{number.name} [{unit}]")
        names += [f"{category.name} [uniform number]" for category in plan.categories]
        columns = self.columns or tuple(f"x{column}" for column in range(shape[0]))
        names += [f"{columns[column]} [lost, uniform number]" for column in plan.can_become_missing]
        return dict(enumerate(names))

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> ParameterLimits:
        """The ranges, cut by the bounds; of categories, the uniform numbers.

        Raises:
            ArgumentError: rows of another shape, rows that break a rule, or a category that is not known.
        """
        plan = self._plan(inputs)
        rows = RowChanges(self, plan, inputs, bounds)
        rows.check_rows()
        if self.prior == "copula":
            # parameters are shifts from the uniform numbers Phi(xi) that leave the row as it is (`copula.py`)
            continuous = rows.clean[:, list(plan.continuous)]
            normal_if_still = rows.copula.locate(continuous).still
            uniform_if_still = torch.special.ndtr(normal_if_still)
            lower = uniform_if_still.clamp(max=_TAIL) - uniform_if_still
            upper = uniform_if_still.clamp(min=1 - _TAIL) - uniform_if_still
        else:
            lower, upper = rows.limit_numbers()
        others = len(plan.categories) + len(plan.can_become_missing)
        zeros = lower.new_zeros(len(inputs), others)
        # float32 cannot tell very rare categories apart
        if self._find_smallest_share(plan) < _SMALLEST_SHARE:
            dtype = torch.float64
        else:
            dtype = inputs.dtype
        lower = torch.cat([lower, zeros], 1).to(dtype)
        upper = torch.cat([upper, zeros + 1], 1).to(dtype)
        scale = find_scale(lower, upper, self.distribution)
        return ParameterLimits(torch.zeros_like(lower), lower, upper, scale)

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """The steps of numbers, the categories that a row may have, and whether a cell is lost."""
        choices = list_candidates(RowChanges(self, self._plan(inputs), inputs, bounds))
        # what others have made of a row may have other steps within the bounds, and other categories
        if before:
            return replace(choices, complete=torch.zeros_like(choices.complete))
        return choices

    @property
    def revision(self) -> int:
        """2 where float32 could not tell rare categories apart, of which parameters are float64 now."""
        count = self.count_columns()
        if count is None or self.data is None or self.table.inputs.dtype != torch.float32:
            return super().revision
        plan = plan_columns(self, count)
        if self._find_smallest_share(plan) < _SMALLEST_SHARE:
            return 2
        return super().revision

    def _find_smallest_share(self, plan: ColumnPlan) -> float:
        """The smallest probability of a category, or of a cell to be lost."""
        shares = [1.0]
        if plan.can_become_missing:
            shares.append(self.may_become_missing)
        for category in plan.categories:
            rate = 1.0 if category.rate is None else category.rate
            possible = category.shares[category.shares > 0]
            shares.append(rate * float(possible.min()))
        return min(shares)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The changed rows; those that would break a rule are moved back towards the clean ones."""
        rows = RowChanges(self, self._plan(inputs), inputs, bounds)
        change, chosen, _ = rows.propose(parameters)
        change, chosen = settle(rows, change, chosen)
        changed = rows.apply(change, chosen)
        return rows.make_missing(changed, parameters)

    def effective_points(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The changes of the row that was made: in steps, within the bounds, and moved back where a rule would break.

        A category that was moved back has the parameter 0, which stands for the row's own. The parameters of a copula
        say where a move leads, and the row that was made shows how far it went. So they stay as they are.
        """
        if self.prior != "independent":
            return parameters
        rows = RowChanges(self, self._plan(inputs), inputs, bounds)
        change, proposed, _ = rows.propose(parameters)
        change, chosen = settle(rows, change, proposed)
        percent = rows.clean[:, rows.columns].abs() / 100
        has_size = percent > 0
        in_percent = change / torch.where(has_size, percent, 1.0)
        change = torch.where(rows.relative & has_size, in_percent, change)
        m = change.shape[1]
        end = m + len(chosen)
        uniform = parameters[:, m:end].unbind(1)
        columns = [change.to(parameters.dtype)]
        for settled, asked_for, uniform_number in zip(chosen, proposed, uniform, strict=True):
            effective = torch.where(settled == asked_for, uniform_number, 0.0)
            columns.append(effective[:, None])
        return torch.cat([*columns, parameters[:, end:]], 1)

    def satisfies_rules(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Whether rows with these changes keep rules, ranges and bounds without being moved back."""
        rows = RowChanges(self, self._plan(inputs), inputs, bounds)
        change, chosen, possible = rows.propose(parameters)
        changed = rows.apply(change, chosen)
        return rows.find_kept(changed, change) & possible

    def measure_plausibility(self, inputs: Tensor, perturbed: Tensor) -> Tensor | None:
        """The share of training rows that are at least as far from their nearest row as the perturbed one from its own.

        None without data.
        """
        if self.data is None:
            return None
        return measure_plausibility(perturbed, self.table, self._plan(inputs).groups, self.edges)

    def find_movable(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Which rows `(N, F)` can change at all, bool `(N,)`; not one whose numbers are 0, or too small for a step."""
        plan = self._plan(inputs)
        if plan.categories or plan.can_become_missing:
            return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        low, high = RowChanges(self, plan, inputs, bounds).find_ranges()
        return (high > low).any(1)

    def find_movable_numbers(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> dict[int, Tensor]:
        """In which rows `(N, F)` the number of a column can change at all, bool `(N,)`, for each column that may."""
        plan = self._plan(inputs)
        low, high = RowChanges(self, plan, inputs, bounds).find_ranges()
        movable = high > low
        columns = [number.column for number in plan.numbers]
        return dict(zip(columns, movable.unbind(1), strict=True))

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        self._plan_for(inputs.shape[1:])

    def _plan(self, inputs: Tensor) -> ColumnPlan:
        return self._plan_for(inputs.shape[1:])

    def _plan_for(self, shape: Sequence[int]) -> ColumnPlan:
        check(
            len(shape) == 1,
            "inputs",
            "rows of a table (N, F)",
            f"inputs of shape (N, {', '.join(map(str, shape))})",
        )
        count = self.count_columns()
        check(
            count in (None, shape[0]), "inputs", f"rows of {count} columns", f"rows of {shape[0]}"
        )
        return plan_columns(self, shape[0])
