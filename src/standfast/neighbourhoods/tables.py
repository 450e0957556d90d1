"""Changes of the rows of a table: ranges in the data's units, steps, categories, and rules that every row keeps.

A row x has F columns. Some of them change, each by its own parameter; the others stay as they are.

- **A number** changes by an amount d within a range: `x + d`, or, for a range in percent, `x + |x| p / 100`. With a
  step, d is a multiple of it, and all possible multiples have the same probability. So a step of 1 keeps integers.
- **A category**, one column of codes or several columns of a one-hot code, is drawn by one uniform number u. The clean
  row's own category comes first, so u = 0 keeps it; the lengths of the intervals are the probabilities.
- **Rules**, such as `debt <= 3 * income`, hold for every perturbed row. A rule with `==` computes its column from the
  others: that column moves along, `x_t + sum_j a_j (x'_j - x_j)`.

Two priors say how the changes are distributed:

- `independent`: each parameter by itself, uniform on its range (or truncated normal around the clean row).
- `copula`: a move in the space of a Gaussian copula that is fitted to training data; `copula.py` has the formula. The
  parameters are the differences of uniform numbers from those that leave the row as it is. Categories are independent.

With a copula, ranges are limits: a row outside them is not possible, as if it broke a rule.

Parameters that break a rule or leave a range are not drawn (`satisfies_rules`), so probabilities are over rows that
keep them. A search may try such parameters. Then the row is moved back towards the clean one: the largest share of its
changes that keeps the rules, rounded to steps, with the new categories if they are possible, else with the clean ones.
The clean row keeps the rules; else it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check, is_number
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.choices import Choices
from standfast.neighbourhoods.copula import Copula, fit_copula
from standfast.neighbourhoods.plausibility import check_table, measure_plausibility
from standfast.neighbourhoods.rules import Rule, describe_unknown_column, read_rules
from standfast.neighbourhoods.transformations import Limits, Transformation, find_scale
from standfast.records import Background, ConfigurationType, FrozenMapping, set_fields
from standfast.tensors import is_on_host

TablePrior = Literal["independent", "copula"]
#: how a column changes, as the user writes it
Change = float | str | tuple[Any, ...] | Mapping[str, Any]

_CHANGES = (
    "a number, a text such as '2%', a pair from below 0 to above 0, 'any', 'category', or a mapping with by, step,"
    " categories, rate"
)
_OPTIONS = frozenset({"by", "step", "categories", "rate"})
_TAIL = 1e-6  # of the uniform numbers of a copula on each side, so that normal ones stay finite
#: of the largest share that keeps the rules; the first ones leave room for rounding, the others for steps
_RUNGS = (1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 1 - 1e-3, 0.75, 0.5, 0.25, 0.125, 0.0)
_SLACK = 1e-4  # of a step: a bound that is a whole number of steps away stays so when inputs are standardised
_SMALLEST_SHARE = 2.0**-20  # of the unit interval, in which float32 still has several numbers
_SAME = 2e-6  # two codes are the same category within this share of the largest code: rounding in float32


@dataclass(frozen=True)
class Feature(metaclass=ConfigurationType):
    """How one column, or one group of one-hot columns, may change.

    Args:
        by: of a number: r for -r to r, a pair `(low, high)` with low <= 0 <= high, each of them in the data's units, or
            texts such as `"2%"` for shares of the row's own value; `"any"` for every value between the smallest and the
            largest of the data.
        step: changes are multiples of it, in the data's units; 1 for integers.
        categories: of a category: `"data"` for all that the data has, with its frequencies (without data all of a
            one-hot code, equally probable), or a list of codes; of a data frame, of their names.
        rate: the probability that a category changes, from 0 to below 1; the others keep their proportions. None: the
            category is drawn by the frequencies, whatever it was.

    Raises:
        ArgumentError: a value of another kind.

    >>> Feature(by="2%").limits, Feature(by=(-1, 3), step=1).limits
    ((-2.0, 2.0), (-1.0, 3.0))
    """

    by: float | str | tuple[float | str, float | str] | None = None
    step: float | None = None
    categories: Literal["data"] | tuple[float | str, ...] | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.by, list):
            set_fields(self, by=tuple(self.by))
        if isinstance(self.categories, list):
            set_fields(self, categories=tuple(self.categories))
        one = (self.by is None) != (self.categories is None)
        check(
            one, "changes", "either by, for a number, or categories", f"by={self.by!r}, categories={self.categories!r}"
        )
        fits = self.step is None or (_is_number(self.step) and self.step > 0 and self.by is not None)
        check(fits, "step", "a number above 0, for a column that changes by a number", repr(self.step))
        fits = self.rate is None or (_is_number(self.rate) and 0 <= self.rate < 1 and self.by is None)
        check(fits, "rate", "a number from 0 to below 1, for categories", repr(self.rate))
        given = self.categories
        fits = given in (None, "data") or (isinstance(given, tuple) and len(given) > 0 and all(map(_is_code, given)))
        check(fits, "categories", "'data' or a list of codes or names", repr(given))
        if self.by is not None:
            _ = self.limits

    @property
    def percent(self) -> bool:
        """Whether the range is a share of the row's own value."""
        ends = self.by if isinstance(self.by, tuple) else (self.by,)
        return any(isinstance(end, str) and end.strip().endswith("%") for end in ends)

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest change; infinite for `"any"`."""
        if self.by == "any":
            return -math.inf, math.inf
        ends = self.by if isinstance(self.by, tuple) else (self.by,)
        numbers = [_read_end(end) for end in ends]
        same = len({isinstance(end, str) for end in ends}) == 1
        check(same and None not in numbers and len(ends) in (1, 2), "changes", _CHANGES, repr(self.by))
        if len(numbers) == 1:
            numbers = [-numbers[0], numbers[0]]  # type: ignore[operator]
        low, high = numbers
        assert low is not None
        assert high is not None
        check(low <= 0 <= high, "changes", _CHANGES, repr(self.by))
        return low, high

    def describe(self, name: str) -> str:
        """In words."""
        if self.by is None:
            return name
        if self.by == "any":
            words = f"{name} to any value of the data"
        else:
            (low, high), unit = self.limits, "%" if self.percent else ""
            words = f"{name} by {low:g}{unit} to {high:g}{unit}"
        return words + (f" in steps of {self.step:g}" if self.step else "")


@neighbourhoods.register("table")
@dataclass(frozen=True)
class TableChanges(Transformation):
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
        lowest: the smallest number of each column that is no missing cell. None: that of the data. Data frames bring
            it along.
        codes: how many categories without an order the numbers of each column stand for, from 0; 0 for a column of
            other numbers. Categories have no distance, also where they do not change. Data frames bring it along.
        may_become_missing: the probability with which a cell of each column that changes becomes missing.
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

    takes: ClassVar = "any"

    changes: Change
    columns: tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    one_hot: Mapping[str, tuple[str, ...]] = FrozenMapping({})
    rules: tuple[str, ...] = ()
    data: Background | Tensor | None = None
    units: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    prior: TablePrior = "independent"
    size: float = 0.25
    missing: tuple[float | None, ...] | None = None
    may_become_missing: float = 0.0
    lowest: tuple[float, ...] | None = None
    codes: tuple[int, ...] | None = None
    highest: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check(_is_number(self.size) and 0 < self.size <= 1, "size", "a number above 0 and at most 1", repr(self.size))
        if isinstance(self.rules, str):
            set_fields(self, rules=(self.rules,))
        for option in ("columns", "fixed", "rules"):
            names = getattr(self, option)
            fits = names is None or (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names))
            check(fits and (names is not None or option == "columns"), option, "a list of texts", repr(names))
            set_fields(self, **{option: None if names is None else tuple(names)})
        fits = isinstance(self.one_hot, Mapping) and all(
            isinstance(group, list | tuple) and len(group) > 1 for group in self.one_hot.values()
        )
        check(fits, "one_hot", "a mapping from names to lists of two or more columns", repr(self.one_hot))
        set_fields(self, one_hot=FrozenMapping({name: tuple(group) for name, group in self.one_hot.items()}))
        if self.units is not None:
            set_fields(self, units=_read_units(self.units))
        if self.data is not None:
            set_fields(self, data=_read_data(self.data))
        named = set(self.changes) if isinstance(self.changes, Mapping) else {"by"}
        if not named or not named <= _OPTIONS or named & set(self.columns or ()):
            assert isinstance(self.changes, Mapping)
            made: Any = FrozenMapping({str(name): _read_change(change) for name, change in self.changes.items()})
            check(not self.fixed, "fixed", "no columns, as changes names those that change", repr(self.fixed))
        else:
            made = _read_change(self.changes)
        set_fields(self, changes=made)
        independent = self.prior == "independent"
        unbound = self.columns is None and self.units is None and self.data is None  # a frame brings them along
        check(independent or self.data is not None or unbound, "data", "training rows, for prior 'copula'", None)
        rate = self.may_become_missing
        check(_is_number(rate) and 0 <= rate < 1, "may_become_missing", "a number from 0 to below 1", repr(rate))
        for option in ("missing", "lowest", "codes", "highest"):
            if getattr(self, option) is not None:
                set_fields(self, **{option: tuple(getattr(self, option))})
        categories = any(feature.categories for feature in self._features().values()) or len(self.one_hot) > 0
        plain = independent and not categories
        fits = self.distribution == "uniform" or plain
        check(fits, "distribution", "uniform, for categories and with a copula", self.distribution)
        features = self._count_features()
        if features is not None and (self.data is None or self._table.digest):
            _make_plan(self, features)  # says what does not fit

    def _count_features(self) -> int | None:
        """F, if an option tells it."""
        counts = {
            "columns": None if self.columns is None else len(self.columns),
            "missing": None if self.missing is None else len(self.missing),
            "lowest": None if self.lowest is None else len(self.lowest),
            "codes": None if self.codes is None else len(self.codes),
            "highest": None if self.highest is None else len(self.highest),
            "units": None if self.units is None else len(self.units[0]),
            "data": self.data.shape[1] if self.data is not None and len(self.data.shape) == 2 else None,
        }
        known = {option: count for option, count in counts.items() if count is not None}
        same = len(set(known.values())) <= 1
        words = ", ".join(f"{count} in {option}" for option, count in known.items())
        check(same, "columns", "as many columns everywhere", words)
        return next(iter(known.values()), None)

    def _features(self) -> dict[str, Feature]:
        """What changes, by the names of columns and groups."""
        named: Any = self.changes if isinstance(self.changes, Mapping) else {"every column": self.changes}
        return dict(named)

    @property
    def _table(self) -> Background:
        assert isinstance(self.data, Background)
        return self.data

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether all changes are numbers without steps."""
        smooth = all(feature.by is not None and not feature.step for feature in self._features().values())
        whole = not isinstance(self.changes, Mapping) and len(self.one_hot) > 0
        return smooth and not whole and not self.may_become_missing

    @property
    def chooses(self) -> bool:
        """Whether a category or a number with steps changes, or a cell may be lost; a copula moves numbers freely."""
        features = self._features().values()
        has_categories = len(self.one_hot) > 0 or any(feature.categories is not None for feature in features)
        has_steps = self.prior != "copula" and any(feature.step is not None for feature in features)
        return has_categories or has_steps or self.may_become_missing > 0

    @property
    def restricted(self) -> bool:  # type: ignore[override]
        """Whether there are rules, or ranges that cut a prior from data."""
        return bool(self.rules) or self.prior != "independent"

    def describe(self) -> str:
        """What changes, and the rules."""
        named = self._features()
        numbers = [feature.describe(name) for name, feature in named.items() if feature.by is not None]
        groups = [name for name, feature in named.items() if feature.by is None]
        words = [f"changed in {', '.join(numbers)}"] if numbers else []
        words += [f"given other categories of {', '.join(groups)}"] if groups else []
        text = " and ".join(words)
        if self.prior == "copula":
            text += f", by a move of size {self.size:g} in a Gaussian copula of the data"
        text += f", with cells lost with probability {self.may_become_missing:g}" if self.may_become_missing else ""
        return text + (f", such that {' and '.join(self.rules)}" if self.rules else "")

    def count_parameters(self, shape: Sequence[int]) -> int:
        """One for each column or group that changes."""
        plan = self._plan_for(shape)
        return len(plan.numbers) + len(plan.categories) + len(plan.losing)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """The names of the columns and groups."""
        plan = self._plan_for(shape)
        if self.prior == "copula":
            names = [f"{number.name} [copula, shift of a uniform number]" for number in plan.numbers]
        else:
            names = [f"{number.name} [{'%' if number.relative else 'change'}]" for number in plan.numbers]
        names += [f"{category.name} [uniform number]" for category in plan.categories]
        columns = self.columns or tuple(f"x{column}" for column in range(shape[0]))
        return dict(enumerate([*names, *(f"{columns[place]} [lost, uniform number]" for place in plan.losing)]))

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The ranges, cut by the bounds; of categories, the uniform numbers.

        Raises:
            ArgumentError: rows of another shape, rows that break a rule, or a category that is not known.
        """
        plan = self._plan(inputs)
        work = _Work(self, plan, inputs, bounds)
        work.check_rows()
        if self.prior == "copula":
            still = torch.special.ndtr(work.copula.locate(work.clean[:, list(plan.continuous)]).still)
            lower, upper = still.clamp(max=_TAIL) - still, still.clamp(min=1 - _TAIL) - still
        else:
            lower, upper = work.limit_numbers()
        unit = lower.new_zeros(len(inputs), len(plan.categories) + len(plan.losing))
        # float32 cannot tell very rare categories apart
        dtype = torch.float64 if self._find_smallest_share(plan) < _SMALLEST_SHARE else inputs.dtype
        lower, upper = (torch.cat(ends, 1).to(dtype) for ends in ([lower, unit], [upper, unit + 1]))
        return Limits(torch.zeros_like(lower), lower, upper, find_scale(lower, upper, self.distribution))

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """The steps of numbers, the categories that a row may have, and whether a cell is lost.

        With a copula, steps depend on all numbers together, so numbers have no candidates.
        """
        work = _Work(self, self._plan(inputs), inputs, bounds)
        choices = Choices.join([work.list_steps(), *work.list_categories(), work.list_losses()])
        # what others have made of a row may have other steps within the bounds, and other categories
        return replace(choices, complete=torch.zeros_like(choices.complete)) if before else choices

    @property
    def revision(self) -> int:
        """2 where float32 could not tell rare categories apart, of which parameters are float64 now."""
        features = self._count_features()
        if features is None or self.data is None or self._table.inputs.dtype != torch.float32:
            return super().revision
        return 2 if self._find_smallest_share(_make_plan(self, features)) < _SMALLEST_SHARE else super().revision

    def _find_smallest_share(self, plan: _Plan) -> float:
        """The smallest probability of a category, or of a cell to be lost."""
        shares = [1.0] if not plan.losing else [self.may_become_missing]
        for category in plan.categories:
            rate = 1.0 if category.rate is None else category.rate
            shares.append(rate * float(category.shares[category.shares > 0].min()))
        return min(shares)

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """The changed rows; those that would break a rule are moved back towards the clean ones."""
        work = _Work(self, self._plan(inputs), inputs, bounds)
        return work.lose(work.apply(*work.settle(*work.propose(parameters)[:2])), parameters)

    def effective_points(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """The changes of the row that was made: in steps, within the bounds, and moved back where a rule would break.

        A category that was moved back has the parameter 0, which stands for the row's own. The parameters of a copula
        say where a move leads, and the row that was made shows how far it went. So they stay as they are.
        """
        if self.prior != "independent":
            return parameters
        work = _Work(self, self._plan(inputs), inputs, bounds)
        asked, proposed, _ = work.propose(parameters)
        change, chosen = work.settle(asked, proposed)
        size = work.clean[:, work.columns].abs() / 100
        change = torch.where(work.relative & (size > 0), change / torch.where(size > 0, size, 1.0), change)
        m, end = change.shape[1], change.shape[1] + len(chosen)
        own = [
            torch.where(a == b, u, 0.0)
            for a, b, u in zip(chosen, proposed, parameters[:, m:end].unbind(1), strict=True)
        ]
        return torch.cat([change.to(parameters.dtype), *(column[:, None] for column in own), parameters[:, end:]], 1)

    def satisfies_rules(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Whether rows with these changes keep rules, ranges and bounds without being moved back."""
        work = _Work(self, self._plan(inputs), inputs, bounds)
        change, chosen, possible = work.propose(parameters)
        return work.find_kept(work.apply(change, chosen), change) & possible

    def measure_plausibility(self, inputs: Tensor, perturbed: Tensor) -> Tensor | None:
        """The share of the training rows that are at least as far from their nearest row; None without data."""
        if self.data is None:
            return None
        return measure_plausibility(perturbed, self._table, self._plan(inputs).groups, self._missing)

    def find_movable(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Which rows `(N, F)` can change at all, bool `(N,)`; not one whose numbers are 0, or too small for a step."""
        plan = self._plan(inputs)
        if plan.categories or plan.losing:
            return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        low, high = _Work(self, plan, inputs, bounds).find_ranges()
        return (high > low).any(1)

    def find_movable_numbers(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> dict[int, Tensor]:
        """In which rows `(N, F)` the number of a column can change at all, bool `(N,)`, for each column that may."""
        plan = self._plan(inputs)
        low, high = _Work(self, plan, inputs, bounds).find_ranges()
        movable = high > low
        return {number.column: movable[:, place] for place, number in enumerate(plan.numbers)}

    @property
    def _missing(self) -> tuple[float, ...] | None:
        """At or below which number a cell of each column is missing, minus infinity for none; None without a frame."""
        if self.missing is None or self.lowest is None:
            return None
        return tuple(-math.inf if code is None else code for code in self.missing)

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        self._plan_for(inputs.shape[1:])

    def _plan(self, inputs: Tensor) -> _Plan:
        return self._plan_for(inputs.shape[1:])

    def _plan_for(self, shape: Sequence[int]) -> _Plan:
        check(len(shape) == 1, "inputs", "rows of a table (N, F)", f"inputs of shape (N, {', '.join(map(str, shape))})")
        known = self._count_features()
        fits = known in (None, shape[0])
        check(fits, "inputs", f"rows of {known} columns", f"rows of {shape[0]}")
        return _make_plan(self, shape[0])


# What a configuration means for rows of F columns


@dataclass(frozen=True)
class _Number:
    name: str
    column: int
    feature: Feature

    @property
    def relative(self) -> bool:
        """Whether the parameter is in percent."""
        return self.feature.percent and not self.feature.step


@dataclass(frozen=True)
class _Category:
    """A category: `codes` `(K, C)` of its C columns, as the model gets them, and the probability of each, `(K,)`."""

    name: str
    columns: tuple[int, ...]
    codes: Tensor
    shares: Tensor
    rate: float | None

    def find(self, rows: Tensor) -> Tensor:
        """The number of the category of each row, `(M,)`; -1 for one that is not known."""
        scale = self.codes.abs().amax(0).clamp(min=1e-6)
        codes = self.codes.to(rows.device)
        distance = ((rows[:, None, list(self.columns)] - codes) / scale.to(rows.device)).abs().amax(2)
        least, place = distance.min(1)
        return torch.where(least <= _SAME, place, -1)

    def choose(self, own: Tensor, uniform: Tensor) -> Tensor:
        """The number of the category for uniform numbers `(M,)`, where `own` `(M,)` is the clean row's."""
        order, shares, ladder = self._divide_unit(own)
        place = (uniform.double()[:, None] >= ladder).sum(1)
        last = (shares > 0).long().cumsum(1).argmax(1)  # of those that have a probability
        place = torch.where(uniform <= 0, torch.zeros_like(place), torch.minimum(place, last))
        return order.gather(1, place[:, None])[:, 0]

    def list_points(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """How many categories can come of each row, `(M,)`, and uniform numbers that choose them, `(M, K)`.

        The row's own category, `own` `(M,)`, is the first one. Numbers beyond the count choose nothing new.
        """
        _, shares, ladder = self._divide_unit(own)
        below = torch.cat([torch.zeros_like(ladder[:, :1]), ladder[:, :-1]], dim=1)
        middles = (below + ladder) / 2
        middles[:, 0] = 0
        possible = shares > 0
        possible[:, 0] = True
        listed = possible.long().argsort(dim=1, descending=True, stable=True)
        return possible.sum(1), middles.gather(1, listed)

    def _divide_unit(self, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How categories share the interval from 0 to 1, for rows whose own category is `own` `(M,)`.

        Returns:
            The categories in the order of their parts, the own one first; their shares; where their parts end. Each is
            `(M, K)`.
        """
        shares = self.shares.to(own.device)
        order = torch.arange(len(shares), device=own.device).expand(len(own), -1)
        order = torch.where(order == 0, own[:, None], torch.where(order <= own[:, None], order - 1, order))
        sorted_shares = shares[order]
        if self.rate is not None:
            others = sorted_shares[:, 1:]
            whole = others.sum(1, keepdim=True)
            moved = torch.where(whole > 0, self.rate * others / whole.clamp(min=1e-300), 0.0)
            sorted_shares = torch.cat([1 - moved.sum(1, keepdim=True), moved], dim=1)
        ladder = sorted_shares.cumsum(1)
        return order, sorted_shares, ladder / ladder[:, -1:]


@dataclass(frozen=True)
class _Plan:
    """What changes and which rules hold, for rows of F columns.

    `groups` are the columns of all categories, `continuous` the columns of a copula; `mean` and `std` `(F,)`.
    `ends` `(m,)` of each number: the smallest and the largest change, the smallest and the largest value of the data,
    but for missing cells, whether changes are in percent, and whether any value of the data is possible.
    """

    numbers: tuple[_Number, ...]
    categories: tuple[_Category, ...]
    groups: tuple[tuple[int, ...], ...]
    rules: tuple[Rule, ...]
    definitions: tuple[Rule, ...]
    continuous: tuple[int, ...]
    mean: Tensor
    std: Tensor
    ends: tuple[Tensor, ...]
    #: columns whose cells may become missing
    losing: tuple[int, ...] = ()


@lru_cache(maxsize=16)
def _make_plan(changes: TableChanges, features: int) -> _Plan:
    names = changes.columns or tuple(f"x{column}" for column in range(features))
    check(len(set(names)) == len(names), "columns", "names that differ", "a name twice")
    places = {name: column for column, name in enumerate(names)}

    def find(name: str, option: str) -> int:
        if name not in places:
            raise ArgumentError(option, *describe_unknown_column(name, names))
        return places[name]

    groups = {name: tuple(find(each, "one_hot") for each in group) for name, group in changes.one_hot.items()}
    grouped = [column for group in groups.values() for column in group]
    check(len(set(grouped)) == len(grouped), "one_hot", "each column in one group only", "a column twice")
    clash = sorted(set(groups) & set(names))
    check(not clash, "one_hot", "names of groups that are no names of columns", clash)
    fixed = {find(name, "fixed") for name in changes.fixed}
    stated = [rule for text in changes.rules for rule in read_rules(text, names)]
    definitions = tuple(rule for rule in stated if rule.defines is not None)
    _check_definitions(definitions, grouped, names)
    defined = {rule.defines for rule in definitions}
    clash = sorted(names[column] for column in fixed & defined)
    check(not clash, "fixed", "no column that a rule computes", clash)
    if isinstance(changes.changes, Mapping):
        wanted: dict[str, Feature] = dict(changes.changes)
    else:
        assert isinstance(changes.changes, Feature)
        taken = {*fixed, *grouped, *defined}
        wanted = {name: changes.changes for name, column in places.items() if column not in taken}
        wanted |= {name: Feature(categories="data") for name, group in groups.items() if not set(group) & fixed}
    check(len(wanted) > 0, "changes", "at least one column that changes", "none")
    mean, std = (
        torch.tensor(part, dtype=torch.float64) for part in changes.units or ((0.0,) * features, (1.0,) * features)
    )
    numbers, categories = [], []
    for name, feature in wanted.items():
        if name not in groups:
            column = find(name, "changes")
            check(column not in grouped, "changes", f"the group of {name!r} in one_hot", repr(name))
            check(column not in defined, "changes", f"no change of {name!r}, which a rule computes", repr(name))
        if feature.categories is None:
            check(
                name not in groups, "changes", f"'category' for {name!r}, which is a group in one_hot", repr(feature.by)
            )
            needs = feature.by == "any" and changes.data is None
            check(not needs, "data", f"training rows, as {name!r} may have any value of the data", None)
            numbers.append(_Number(name, column, feature))
        else:
            group = groups.get(name) or (column,)
            categories.append(_make_category(changes, name, group, feature, mean, std))
    own = {category.columns for category in categories}
    coded = [(column,) for column, count in enumerate(changes.codes or ()) if count]
    every = tuple(dict.fromkeys([*groups.values(), *own, *coded]))
    apart = {column for group in every for column in group} | defined
    continuous = tuple(column for column in range(features) if column not in apart)
    rules = tuple(rule for rule in stated if rule.defines is None)
    if changes.data is not None:
        rows = torch.empty(1, features)
        check_table(rows, changes._table)
    missing = changes.missing or (None,) * features
    check(changes.prior == "independent" or changes.data is not None, "data", "training rows, for prior 'copula'", None)
    whole = changes.prior == "independent" or all(code is None for code in missing)
    check(whole, "prior", "'independent' for columns with missing cells", changes.prior)
    changed = [*(number.column for number in numbers), *(place for each in categories for place in each.columns)]
    losing = tuple(place for place in changed if changes.may_become_missing and missing[place] is not None)
    fits = not changes.may_become_missing or len(losing) == len(changed)
    check(fits, "may_become_missing", "0 without a number for missing cells", changes.may_become_missing)
    ends = _read_ends(numbers, changes.data, mean, std, missing)
    return _Plan(tuple(numbers), tuple(categories), every, rules, definitions, continuous, mean, std, ends, losing)


def _read_ends(
    numbers: Sequence[_Number],
    data: Background | Tensor | None,
    mean: Tensor,
    std: Tensor,
    missing: Sequence[float | None],
) -> tuple[Tensor, ...]:
    columns = [number.column for number in numbers]
    free = torch.tensor([number.feature.by == "any" for number in numbers], dtype=torch.bool)
    percent = torch.tensor([number.feature.percent for number in numbers], dtype=torch.bool)
    first, last = (
        torch.tensor([number.feature.limits[end] for number in numbers], dtype=torch.float64).nan_to_num(0.0, 0.0, 0.0)
        for end in (0, 1)
    )
    least = most = torch.zeros_like(first)
    if isinstance(data, Background) and columns:
        known = [_leave_missing(data.inputs.double()[:, column], missing[column]) for column in columns]
        least, most = (torch.stack([getattr(rows, end)() for rows in known]) for end in ("min", "max"))
        least, most = (end * std[columns] + mean[columns] for end in (least, most))
    return first, last, least, most, percent, free


def _leave_missing(cells: Tensor, code: float | None) -> Tensor:
    """The cells `(n,)` that are not missing; all of them if none is known."""
    known = cells if code is None else cells[cells > code]
    return known if len(known) else cells


def _check_definitions(definitions: Sequence[Rule], grouped: Sequence[int], names: Sequence[str]) -> None:
    later = [rule.defines for rule in definitions]
    for number, rule in enumerate(definitions):
        once = rule.defines not in later[:number] and rule.defines not in grouped
        check(once, "rules", "each column computed by one rule, and none of a one-hot code", repr(rule.text))
        ordered = not {column for column, _ in rule.terms} & set(later[number:])
        check(ordered, "rules", "a computed column used only in later rules", repr(rule.text))


def _make_category(
    changes: TableChanges, name: str, columns: tuple[int, ...], feature: Feature, mean: Tensor, std: Tensor
) -> _Category:
    """The category of a column, or of a one-hot group. A missing cell is no category: `_Work` keeps it."""
    chosen, one_hot = list(columns), name in changes.one_hot
    table = None if changes.data is None else changes._table.inputs.double()[:, chosen]
    if table is not None and changes.missing is not None and len(chosen) == 1:
        table = _leave_missing(table[:, 0], changes.missing[chosen[0]])[:, None]
    if isinstance(feature.categories, tuple):
        check(not one_hot, "categories", f"'data' for {name!r}, which is a one-hot code", repr(feature.categories))
        coded = all(_is_number(each) for each in feature.categories)
        check(coded, "categories", f"codes for {name!r}; names are for data frames", repr(feature.categories))
        codes = (torch.tensor(feature.categories, dtype=torch.float64)[:, None] - mean[chosen]) / std[chosen]
        shares = torch.ones(len(codes), dtype=torch.float64)
        if table is not None:
            scale = codes.abs().amax(0).clamp(min=1e-6)
            shares = (((table[:, None] - codes) / scale).abs().amax(2) <= _SAME).double().sum(0)
            check(
                bool(shares.sum() > 0), "categories", f"codes of {name!r} that the data has", repr(feature.categories)
            )
            if changes.missing is not None:  # of a frame: a row may have another category, to which no row moves
                count = 0 if changes.codes is None else changes.codes[chosen[0]]
                others = torch.arange(count).to(table)[:, None] if count else torch.unique(table, dim=0)
                others = others[~torch.isin(others[:, 0], codes[:, 0])]
                codes, shares = torch.cat([codes, others]), torch.cat([shares, shares.new_zeros(len(others))])
    elif table is not None and changes.codes is not None and changes.codes[chosen[0]]:
        # a row may have a category that the data does not have: it stays, and no other row moves to it
        codes = torch.arange(changes.codes[chosen[0]], dtype=torch.float64)[:, None]
        shares = (table == codes.T).double().sum(0)
    elif table is not None:
        codes, counts = torch.unique(table, dim=0, return_counts=True)
        shares = counts.double()
    else:
        check(one_hot, "data", f"training rows, or a list of codes, for the categories of {name!r}", None)
        codes = (torch.eye(len(chosen), dtype=torch.float64) - mean[chosen]) / std[chosen]
        shares = torch.ones(len(codes), dtype=torch.float64)
    return _Category(name, columns, codes, shares / shares.sum(), feature.rate)


@lru_cache(maxsize=8)
def _fit_copula(changes: TableChanges, features: int) -> Copula:
    plan = _make_plan(changes, features)
    table = changes._table.inputs.double() * plan.std + plan.mean
    moving = tuple(plan.continuous.index(number.column) for number in plan.numbers)
    discrete = tuple(number.feature.step is not None for number in plan.numbers)
    return fit_copula(table[:, list(plan.continuous)], moving, changes.size, discrete)


@lru_cache(maxsize=16)
def _find_least(changes: TableChanges) -> Tensor:
    """The smallest number of each column's cells that are not missing, `(F,)`; of 0 and above without data."""
    if changes.lowest is not None:
        return torch.tensor(changes.lowest, dtype=torch.float64)
    assert changes.missing is not None
    rows = changes._table.inputs.double() if changes.data is not None else None
    return torch.stack(
        [
            torch.zeros((), dtype=torch.float64) if rows is None else _leave_missing(rows[:, place], code).min()
            for place, code in enumerate(changes.missing)
        ]
    )


class _Work:
    """The changes of M rows. `clean` are the rows in the data's units, float64 `(M, F)`."""

    def __init__(self, changes: TableChanges, plan: _Plan, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        self.changes, self.plan, self.inputs, self.bounds = changes, plan, inputs, bounds
        self.mean, self.std = plan.mean.to(inputs.device), plan.std.to(inputs.device)
        self.clean = self._in_units(inputs)
        self.columns = [number.column for number in plan.numbers]
        relative = [number.relative for number in plan.numbers]
        self.relative = torch.tensor(relative, dtype=torch.bool, device=inputs.device)
        steps = [number.feature.step or 0.0 for number in plan.numbers]
        self.step = torch.tensor(steps, dtype=torch.float64, device=inputs.device)
        lower, upper = (torch.as_tensor(bound, device=inputs.device).double() for bound in bounds)
        features = inputs.shape[1:]
        self.lower, self.upper = lower.expand(features), upper.expand(features)
        #: which cells of the clean rows are missing, bool `(M, F)`; and the least number of a cell that is not
        self.empty = torch.zeros(inputs.shape, dtype=torch.bool, device=inputs.device)
        if changes.missing is not None:
            codes = torch.tensor([math.nan if code is None else code for code in changes.missing], dtype=torch.float64)
            self.codes = codes.to(inputs.device)
            self.empty = inputs.double() - self.codes <= _SAME * self.codes.abs().clamp(min=1)
        if changes.lowest is not None and changes.highest is not None:
            self._limit_to_reference(changes.lowest, changes.highest)
        elif changes.missing is not None:
            self.lower = torch.where(self.codes.isnan(), self.lower, _find_least(changes).to(self.lower))

    def _limit_to_reference(self, lowest: Sequence[float], highest: Sequence[float]) -> None:
        """Narrow the limits to the range of the reference and the row's own values: they become `(M, F)`."""
        least, most = (self.lower.new_tensor(ends) for ends in (lowest, highest))
        own = torch.where(self.empty, least, self.inputs.double())
        self.lower = torch.maximum(self.lower, torch.minimum(least, own))
        self.upper = torch.minimum(self.upper, torch.maximum(most, own))

    @cached_property
    def owns(self) -> list[Tensor]:
        """The numbers of the clean rows' categories, `(M,)` each; -1 for those that are not known, or missing."""
        found = [category.find(self.inputs.double()) for category in self.plan.categories]
        return [
            torch.where(self.empty[:, list(category.columns)].any(1), -1, own)
            for category, own in zip(self.plan.categories, found, strict=True)
        ]

    def select(self, rows: Tensor) -> _Work:
        return _Work(self.changes, self.plan, self.inputs[rows], self.bounds)

    def _in_units(self, rows: Tensor) -> Tensor:
        return rows.double() * self.std + self.mean

    @property
    def copula(self) -> Copula:
        found = _fit_copula(self.changes, self.inputs.shape[1])
        if is_on_host(self.inputs):
            return found
        moved = {
            name: getattr(found, name).to(self.inputs.device)
            for name in ("values", "levels", "weights", "root", "inverse")
        }
        return Copula(**{**vars(found), **moved})

    def check_rows(self) -> None:
        """Raise `ArgumentError` for rows that break a rule, up to rounding, or have a category that is not known."""
        precision = 64 * torch.finfo(torch.float32).eps  # tables are often stored in float32
        for rule in (*self.plan.rules, *self.plan.definitions):
            size = rule.measure_size(self.clean)
            if self.changes.units is not None:
                size = size + rule.measure_size(self.mean.expand_as(self.clean))
            broken = (rule.find_excess(self.clean) > precision * size) & ~self._lacks(rule)
            if bool(broken.any()):
                first = int(broken.nonzero()[0])
                used = [*(column for column, _ in rule.terms), *([] if rule.defines is None else [rule.defines])]
                names = self.changes.columns or [f"x{column}" for column in range(self.clean.shape[1])]
                values = ", ".join(f"{names[column]} = {self.clean[first, column]:g}" for column in used)
                got = f"{int(broken.sum())} of {len(broken)} rows that break it; the first is row {first}: {values}"
                raise ArgumentError("inputs", f"rows that keep the rule {rule.text!r}", got)
        for category, number in zip(self.plan.categories, self.owns, strict=True):
            unknown = (number < 0) & ~self.empty[:, list(category.columns)].any(1)
            if bool(unknown.any()):
                first = int(unknown.nonzero()[0])
                own = self.clean[first, list(category.columns)].tolist()
                raise ArgumentError("inputs", f"rows with a known category of {category.name!r}", f"row {first}: {own}")
            codes, chosen = category.codes.to(self.inputs.device), list(category.columns)
            inside = self._are_inside(codes, chosen)
            check(bool(inside.all()), "bounds", f"all categories of {category.name!r} within the bounds", "one outside")

    def _are_inside(self, codes: Tensor, columns: Sequence[int]) -> Tensor:
        """Whether codes `(K, C)` of columns lie within the limits of some row, bool `(K, C)`."""
        slack = _SAME * codes.abs()
        lower, upper = self.lower[..., columns], self.upper[..., columns]
        if lower.ndim > 1:
            lower, upper = lower.amin(0), upper.amax(0)
        return (codes >= lower - slack) & (codes <= upper + slack)

    def find_ranges(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest change of each number in the data's units, `(M, m)`, within the bounds.

        With a step, multiples of it.
        """
        own = self.clean[:, self.columns]
        first, last, least, most, percent, free = (end.to(own.device) for end in self.plan.ends)
        scale = torch.where(percent, own.abs() / 100, 1.0)
        low, high = torch.where(free, least - own, first * scale), torch.where(free, most - own, last * scale)
        lower, upper = (bound * self.std + self.mean for bound in (self.lower, self.upper))
        low = torch.maximum(low, lower[..., self.columns] - own).clamp(max=0)
        high = torch.minimum(high, upper[..., self.columns] - own).clamp(min=0)
        stepped, step = self.step > 0, torch.where(self.step > 0, self.step, 1.0)
        low = torch.where(stepped, (low / step - _SLACK).ceil() * step, low)
        high = torch.where(stepped, (high / step + _SLACK).floor() * step, high)
        empty = self.empty[:, self.columns]
        return low.masked_fill(empty, 0.0), high.masked_fill(empty, 0.0)

    def list_steps(self) -> Choices:
        """The steps of numbers; a number without steps has candidates only where it cannot change, namely itself."""
        low, high = self.find_ranges()
        step = torch.where(self.step > 0, self.step, 1.0)
        counts = torch.where(self.step > 0, ((high - low) / step).round().long() + 1, 0)
        counts = torch.where(high > low, counts, 1)
        if self.changes.prior == "copula":
            counts = torch.zeros_like(counts)
        clean = torch.where(counts > 0, (-low / step).round().long(), 0)
        ordered = torch.ones(len(self.columns), dtype=torch.bool, device=low.device)
        return Choices(counts, clean, ordered, lambda numbers: low[:, None] + step * numbers, self._all_rows)

    def list_categories(self) -> list[Choices]:
        """The categories that each row may have, for each parameter of a category."""
        return [
            self._list_category(category, own) for category, own in zip(self.plan.categories, self.owns, strict=True)
        ]

    def _list_category(self, category: _Category, own: Tensor) -> Choices:
        """The categories that rows may have whose `own` `(M,)` is given; -1, a missing cell, stays as it is."""
        counts, points = category.list_points(own.clamp(min=0))
        counts = torch.where(own < 0, 1, counts)[:, None]
        ordered = torch.zeros(1, dtype=torch.bool, device=own.device)

        def find_points(numbers: Tensor) -> Tensor:
            return points.gather(1, numbers[..., 0])[..., None]

        return Choices(counts, torch.zeros_like(counts), ordered, find_points, self._all_rows)

    def list_losses(self) -> Choices:
        """Whether each cell that may become missing is lost, if it is there."""
        counts = torch.where(self.empty[:, list(self.plan.losing)], 1, 2)
        ordered = torch.zeros(len(self.plan.losing), dtype=torch.bool, device=counts.device)
        lost = 1 - self.changes.may_become_missing / 2
        clean = torch.zeros_like(counts)
        return Choices(counts, clean, ordered, lambda numbers: lost * numbers.double(), self._all_rows)

    @property
    def _all_rows(self) -> Tensor:
        return torch.ones(len(self.inputs), dtype=torch.bool, device=self.inputs.device)

    def limit_numbers(self) -> tuple[Tensor, Tensor]:
        """The limits of the parameters of numbers, `(M, m)`."""
        low, high = self.find_ranges()
        low, high = low - self.step / 2, high + self.step / 2  # so that the first and the last have as much as others
        size = self.clean[:, self.columns].abs() / 100
        percent = self.relative & (size > 0)
        size = torch.where(percent, size, 1.0)
        first, last = (end.to(low.device) for end in self.plan.ends[:2])
        nothing = self.relative & ~percent  # a value of 0, of which all shares are 0
        return torch.where(nothing, first, low / size), torch.where(nothing, last, high / size)

    def _lacks(self, rule: Rule) -> Tensor:
        """Whether a cell of the rule is missing in the clean rows, bool `(M,)`."""
        used = [*(column for column, _ in rule.terms), *([] if rule.defines is None else [rule.defines])]
        return self.empty[:, used].any(1)

    def lose(self, rows: Tensor, parameters: Tensor) -> Tensor:
        """The rows without the cells that become missing: those whose uniform number is near 1."""
        if not self.plan.losing:
            return rows
        rows, rate = rows.clone(), self.changes.may_become_missing
        drawn = parameters[:, parameters.shape[1] - len(self.plan.losing) :]
        for place, column in enumerate(self.plan.losing):
            lost = drawn[:, place] > 1 - rate
            rows[:, column] = torch.where(lost, self.codes[column].to(rows), rows[:, column])
        return rows

    def propose(self, parameters: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """What parameters `(M, D)` ask for.

        Returns:
            The changes of numbers in the data's units, `(M, m)`; the number of each category, `(M,)` each; and whether
            the copula allows the move, bool `(M,)`.
        """
        m = len(self.plan.numbers)
        possible = torch.ones(len(parameters), dtype=torch.bool, device=parameters.device)
        owns = [own.clamp(min=0) for own in self.owns]
        values = parameters[:, :m].double()
        if self.changes.prior == "copula" and m:
            # the different rows, and which of them each row is: copies of one row stand together as a rule
            rows, copy = torch.unique_consecutive(self.inputs, dim=0, return_inverse=True)
            origin = self.copula.locate(self._in_units(rows)[:, list(self.plan.continuous)])
            change, possible = self.copula.move(origin.select(copy), values)
            change = self._round(change)
        elif m:
            change = torch.where(self.relative, self.clean[:, self.columns].abs() * values / 100, values)
            low, high = self.find_ranges()
            change = torch.minimum(torch.maximum(self._round(change), low), high)
        else:
            change = values
        pairs = zip(self.plan.categories, owns, strict=True)
        chosen = [category.choose(own, parameters[:, m + g]) for g, (category, own) in enumerate(pairs)]
        return change, chosen, possible

    def _round(self, change: Tensor) -> Tensor:
        step = torch.where(self.step > 0, self.step, 1.0)
        return torch.where(self.step > 0, (change / step).round() * step, change)

    def apply(self, change: Tensor, chosen: Sequence[Tensor]) -> Tensor:
        """The rows `(M, F)`, as the model gets them, with changes `(M, m)` and categories; computed columns follow."""
        before = self.inputs.double()
        rows = before.clone()
        if self.columns:
            moved = before[:, self.columns] + change / self.std[self.columns]
            lower, upper = self.lower[..., self.columns], self.upper[..., self.columns]
            moved = torch.minimum(torch.maximum(moved, lower), upper)
            rows[:, self.columns] = torch.where(self.empty[:, self.columns], before[:, self.columns], moved)
        for category, known, number in zip(self.plan.categories, self.owns, chosen, strict=True):
            group = list(category.columns)
            same = ((known == number) | (known < 0))[:, None]
            rows[:, group] = torch.where(same, before[:, group], category.codes.to(rows.device)[number])
        for rule in self.plan.definitions:
            moved = rule.combine((rows - before) * self.std)
            rows = rows.clone()
            moved = torch.where(self._lacks(rule), 0.0, moved)
            rows[:, rule.defines] = before[:, rule.defines] + moved / self.std[rule.defines]
        return rows.to(self.inputs.dtype)

    def settle(self, change: Tensor, chosen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Changes of numbers and categories that keep the rules: the given ones, or less of them."""
        broken = (~self.find_kept(self.apply(change, chosen), change)).nonzero()[:, 0]
        if len(broken) == 0:
            return change, chosen
        less, others = self.select(broken).repair(change[broken], [c[broken] for c in chosen])
        chosen = [c.index_copy(0, broken, other) for c, other in zip(chosen, others, strict=True)]
        return change.index_copy(0, broken, less), chosen

    def find_kept(self, rows: Tensor, change: Tensor) -> Tensor:
        """Whether rows with these changes keep all rules, ranges and bounds, bool `(M,)`."""
        kept = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if self.changes.prior != "independent" and self.columns:
            low, high = self.find_ranges()
            slack = 1e-9 * (high - low)
            kept &= ((change >= low - slack) & (change <= high + slack)).all(1)
        units = self._in_units(rows)
        for rule in self.plan.rules:
            kept &= (rule.evaluate(units) <= self._allow(rule)) | self._lacks(rule)
        for rule in self.plan.definitions:
            value = rows[:, rule.defines].double()
            lower, upper = self.lower[..., rule.defines], self.upper[..., rule.defines]
            kept &= ((value >= lower) & (value <= upper)) | self._lacks(rule)
        return kept

    def _allow(self, rule: Rule) -> Tensor:
        """What a rule's value may be at most: 0, or the clean row's own rounding error."""
        return rule.evaluate(self.clean).clamp(min=0)

    def repair(self, change: Tensor, chosen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Changes that keep the rules: the largest share of the given ones, and the clean categories if need be."""
        owns = [own.clamp(min=0) for own in self.owns]
        ways = [chosen] if not chosen else [chosen, owns]
        found, categories = torch.zeros_like(change), owns
        done = torch.zeros(len(change), dtype=torch.bool, device=change.device)
        for way in ways:
            share = self._find_share(change, way)
            for rung in (1.0, *_RUNGS) if way is owns else _RUNGS:
                part = (share * rung if rung < 1 else torch.ones_like(share))[:, None] * change
                step = torch.where(self.step > 0, self.step, 1.0)
                part = torch.where(self.step > 0, (part / step).trunc() * step, part)
                kept = self.find_kept(self.apply(part, way), part) & ~done
                found = torch.where(kept[:, None], part, found)
                categories = [torch.where(kept, new, old) for new, old in zip(way, categories, strict=True)]
                done = done | kept
                if bool(done.all()):
                    return found, categories
        return found, categories

    def _find_share(self, change: Tensor, chosen: Sequence[Tensor]) -> Tensor:
        """The largest share of the changes of numbers that keeps all rules, without steps, `(M,)`; all are linear."""
        share = torch.ones(len(change), dtype=torch.float64, device=change.device)

        def cut(start: Tensor, end: Tensor, most: Tensor, free: Tensor | bool = False) -> None:
            nonlocal share
            rises = (end > most) & (end > start) & torch.as_tensor(free, device=end.device).logical_not()
            allowed = (most - start) / torch.where(rises, end - start, 1.0)
            share = torch.where(rises, torch.minimum(share, allowed.clamp(min=0)), share)

        if self.changes.prior != "independent" and self.columns:
            low, high = self.find_ranges()
            for place in range(len(self.columns)):
                zero = torch.zeros_like(share)
                cut(zero, change[:, place], high[:, place])
                cut(zero, -change[:, place], -low[:, place])
        first, last = (self._in_units(self.apply(part, chosen)) for part in (torch.zeros_like(change), change))
        for rule in self.plan.rules:
            cut(rule.evaluate(first), rule.evaluate(last), self._allow(rule), self._lacks(rule))
        for rule in self.plan.definitions:
            column = rule.defines
            upper, lower = (
                bound[..., column] * self.std[column] + self.mean[column] for bound in (self.upper, self.lower)
            )
            cut(first[:, column], last[:, column], upper, self._lacks(rule))
            cut(-first[:, column], -last[:, column], -lower, self._lacks(rule))
        return share


# Reading options


def _is_number(value: object) -> bool:
    return is_number(value) and math.isfinite(value)


def _is_code(value: object) -> bool:
    return isinstance(value, str | bool) or _is_number(value)


def _read_end(end: object) -> float | None:
    """A number, or the number of a text in percent; None for anything else."""
    if isinstance(end, str) and end.strip().endswith("%"):
        try:
            number = float(end.strip()[:-1].strip("+ "))
        except ValueError:
            return None
        return number if math.isfinite(number) else None
    return float(end) if _is_number(end) else None  # type: ignore[arg-type]


def _read_change(change: object) -> Feature:
    if isinstance(change, Feature):
        return change
    if isinstance(change, Mapping):
        unknown = sorted(map(str, set(change) - _OPTIONS))
        check(not unknown, "changes", _CHANGES, f"{', '.join(unknown)} in {dict(change)!r}")
        return Feature(**{str(option): value for option, value in change.items()})
    if isinstance(change, str) and change == "category":
        return Feature(categories="data")
    fits = _is_number(change) or isinstance(change, str | tuple | list)
    check(fits, "changes", _CHANGES, repr(change))
    return Feature(by=change)  # type: ignore[arg-type]


def _read_units(units: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    words = "the mean and the standard deviation of each column, two lists of the same length"
    if isinstance(units, list | tuple):
        units = [part.tolist() if isinstance(part, Tensor) else part for part in units]
    fits = isinstance(units, list) and len(units) == 2 and all(isinstance(part, list | tuple) for part in units)
    check(fits and len(units[0]) == len(units[1]) > 0, "units", words, type(units).__name__)  # type: ignore[index]
    mean, std = (tuple(float(value) for value in part) for part in units)  # type: ignore[attr-defined]
    check(all(map(math.isfinite, (*mean, *std))) and min(std) > 0, "units", f"{words}, the latter above 0", "others")
    return mean, std


def _read_data(data: object) -> Background:
    if isinstance(data, Background):
        return data
    check(isinstance(data, Tensor), "data", "training rows (n, F)", type(data).__name__)
    try:
        return Background(data)  # type: ignore[arg-type]
    except ArgumentError as error:
        raise ArgumentError("data", "training rows (n, F), finite and floating point", error.got) from None
