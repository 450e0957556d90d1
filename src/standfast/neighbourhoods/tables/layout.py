"""The columns of a table by name: which of them belong together, which stay as they are, and which a rule computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from standfast.errors import ArgumentError, check
from standfast.neighbourhoods.rules import Rule, describe_unknown_column, read_rules
from standfast.neighbourhoods.tables.options import TableOptions


@dataclass(frozen=True)
class Layout:
    """The columns of a table.

    Attributes:
        names: of all columns.
        groups: the columns of each one-hot code, by its name.
        fixed: columns that stay as they are.
        rules: inequalities that every row keeps.
        definitions: rules that compute a column from others, in this order.
    """

    names: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    fixed: frozenset[int]
    rules: tuple[Rule, ...]
    definitions: tuple[Rule, ...]

    @cached_property
    def grouped(self) -> frozenset[int]:
        """The columns of all one-hot codes."""
        return frozenset(column for group in self.groups.values() for column in group)

    @cached_property
    def defined(self) -> frozenset[int]:
        """The columns that rules compute."""
        return frozenset(rule.defines for rule in self.definitions if rule.defines is not None)

    def find(self, name: str, option: str) -> int:
        """The index of a column; `ArgumentError` about the option that names one which is not there."""
        return _find_column(name, self._column_of, option)

    @cached_property
    def _column_of(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.names)}


def read_layout(options: TableOptions, count: int) -> Layout:
    """The layout of a table of so many columns, as its options say.

    Raises:
        ArgumentError: names or rules do not fit together.
    """
    names = options.columns or tuple(f"x{column}" for column in range(count))
    check(len(set(names)) == len(names), "columns", "names that differ", "a name twice")
    column_of = {name: column for column, name in enumerate(names)}
    groups = _read_groups(options, column_of)
    fixed = frozenset(_find_column(name, column_of, "fixed") for name in options.fixed)
    rules: list[Rule] = []
    definitions: list[Rule] = []
    for text in options.rules:
        for rule in read_rules(text, names):
            group = rules if rule.defines is None else definitions
            group.append(rule)
    layout = Layout(names, groups, fixed, tuple(rules), tuple(definitions))
    _check_definitions(layout)
    clash = sorted(names[column] for column in fixed & layout.defined)
    check(not clash, "fixed", "no column that a rule computes", clash)
    return layout


def _find_column(name: str, column_of: Mapping[str, int], option: str) -> int:
    if name not in column_of:
        expected, got = describe_unknown_column(name, list(column_of))
        raise ArgumentError(option, expected, got)
    return column_of[name]


def _read_groups(options: TableOptions, column_of: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The columns of each one-hot code, from the indices of columns by name."""
    groups: dict[str, tuple[int, ...]] = {}
    grouped: list[int] = []
    for group, members in options.one_hot.items():
        columns = [_find_column(name, column_of, "one_hot") for name in members]
        groups[group] = tuple(columns)
        grouped += columns
    are_different = len(set(grouped)) == len(grouped)
    check(are_different, "one_hot", "each column in one group only", "a column twice")
    clash = sorted(groups.keys() & column_of.keys())
    check(not clash, "one_hot", "names of groups that are no names of columns", clash)
    return groups


def _check_definitions(layout: Layout) -> None:
    """Columns are computed one after the other, so a rule may use only those that are computed before."""
    computed = [rule.defines for rule in layout.definitions]
    for number, rule in enumerate(layout.definitions):
        once = rule.defines not in computed[:number] and rule.defines not in layout.grouped
        expected = "each column computed by one rule, and none of a one-hot code"
        check(once, "rules", expected, repr(rule.text))
        used = {column for column, _ in rule.terms}
        ordered = used.isdisjoint(computed[number:])
        check(ordered, "rules", "a computed column used only in later rules", repr(rule.text))
