"""Linear rules between the columns of a table, read from text: `"debt <= 3 * income"`.

A rule is an inequality, `sum_j a_j x_j + c <= 0`, or a definition, `x_t = sum_j a_j x_j + c`. The text is parsed by
Python's own parser, and only numbers, names of columns, `+ - * /`, brackets and comparisons are accepted. It is never
evaluated as code.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from standfast.errors import ArgumentError

_FORMS = (
    "a linear rule between columns, such as 'debt <= 3 * income + 100' or 'total == rent + food'"
)
_QUOTED = re.compile(r"`([^`]*)`")
_LONGEST = 2000  # characters


@dataclass(frozen=True)
class Rule:
    """A rule between columns; `rows` below are in the units of the rule, `(M, F)`.

    Attributes:
        text: as the user wrote it.
        terms: columns and their coefficients a.
        constant: c.
        defines: the column x_t that the rule computes; None for an inequality.
    """

    text: str
    terms: tuple[tuple[int, float], ...]
    constant: float
    defines: int | None = None

    def evaluate(self, rows: Tensor) -> Tensor:
        """`sum_j a_j x_j + c`, `(M,)`: an inequality holds where this is at most 0, and a definition gives x_t.

        Each row is computed for itself, term by term, so that it does not depend on the other rows.
        """
        return self.combine(rows) + self.constant

    def combine(self, rows: Tensor) -> Tensor:
        """`sum_j a_j x_j`, `(M,)`."""
        total = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
        for column, factor in self.terms:
            total = total + factor * rows[:, column]
        return total

    def find_excess(self, rows: Tensor) -> Tensor:
        """How far the rule is from being kept, `(M,)`; at most 0 where it is kept."""
        value = self.evaluate(rows)
        if self.defines is None:
            return value
        return (rows[:, self.defines] - value).abs()

    def measure_size(self, rows: Tensor) -> Tensor:
        """The sum of the sizes of all terms, `(M,)`; rounding errors are in proportion to it."""
        total = torch.full((len(rows),), abs(self.constant), dtype=rows.dtype, device=rows.device)
        for column, factor in self.terms:
            total = total + (factor * rows[:, column]).abs()
        if self.defines is not None:
            total = total + rows[:, self.defines].abs()
        return total


def read_rules(text: object, columns: Sequence[str]) -> list[Rule]:
    """The rules that a text states: one, or several in a chain.

    Args:
        text: two or more sums, with `<=`, `>=` or `==` between them. A name with spaces stands in backquotes, as in
            ``"`mean radius` <= `worst radius`"``. With `==` one side is a single column, which is computed from the
            other side.
        columns: the names of the columns.

    Raises:
        ArgumentError: the text is no linear rule, or names a column that does not exist.

    >>> rule, = read_rules("debt <= 3 * income", ["income", "debt"])
    >>> rule.terms, rule.constant
    (((0, -3.0), (1, 1.0)), 0.0)
    >>> [rule.terms for rule in read_rules("0 <= debt <= 10", ["income", "debt"])]
    [((1, -1.0),), ((1, 1.0),)]
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ArgumentError("rules", _FORMS, repr(text)[:200])
    return _Reader(text, columns).read()


class _Reader:
    """Reads one text."""

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        self.text = text
        self.columns = columns
        self.places = {name: number for number, name in enumerate(columns)}
        self.quoted: list[str] = []

    def read(self) -> list[Rule]:
        def hide(match: re.Match[str]) -> str:
            self.quoted.append(match[1])
            return f"__quoted_{len(self.quoted) - 1}__"

        try:
            # Python's parser knows no names with blanks, so quoted ones become names that it knows
            text = _QUOTED.sub(hide, self.text).strip()
            tree = ast.parse(text, mode="eval").body
            if not isinstance(tree, ast.Compare):
                self._refuse()
            sides = [self._read_sum(side) for side in (tree.left, *tree.comparators)]
        except ArgumentError:
            raise
        # what `ast.parse` raises for a text that is no expression, or too deep, or too large
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            self._refuse()
        for side in sides:
            if not all(map(math.isfinite, side.values())):
                self._refuse(", of finite numbers")
        rules = []
        left_sides = sides[:-1]
        right_sides = sides[1:]
        for left, relation, right in zip(left_sides, tree.ops, right_sides, strict=True):
            rules.append(self._relate(left, relation, right))
        return rules

    def _relate(self, left: dict[int, float], relation: ast.cmpop, right: dict[int, float]) -> Rule:
        # `==` computes a column, so one side must be that column alone, with a coefficient of 1
        if isinstance(relation, ast.Eq):
            for one, other in ((left, right), (right, left)):
                if len(one) == 1 and set(one.values()) == {1.0} and -1 not in one:
                    (column,) = one
                    if column in other:
                        self._refuse(", the computed column on one side only")
                    return self._make(other, column)
            self._refuse(", with == a single column on one side")
        if not isinstance(relation, ast.LtE | ast.GtE):
            self._refuse(", with <=, >= or ==")
        if isinstance(relation, ast.GtE):
            left, right = right, left
        difference = {}
        for column in sorted({*left, *right}):
            difference[column] = left.get(column, 0.0) - right.get(column, 0.0)
        rule = self._make(difference)
        if not rule.terms:
            self._refuse(", about at least one column")
        return rule

    def _make(self, parts: dict[int, float], defines: int | None = None) -> Rule:
        constant = parts.get(-1, 0.0)
        terms = []
        for column, factor in sorted(parts.items()):
            if column != -1 and factor:
                terms.append((column, factor))
        return Rule(self.text, tuple(terms), constant, defines)

    def _read_sum(self, node: ast.expr) -> dict[int, float]:
        """The coefficients of an expression by column; -1 stands for the constant."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return {-1: float(node.value)}  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return {self._find(node.id): 1.0}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            operand = self._read_sum(node.operand)
            return {column: sign * factor for column, factor in operand.items()}
        if isinstance(node, ast.BinOp):
            left = self._read_sum(node.left)
            right = self._read_sum(node.right)
            return self._combine(left, node.op, right)
        return self._refuse()

    def _combine(
        self, left: dict[int, float], operator: ast.operator, right: dict[int, float]
    ) -> dict[int, float]:
        """The coefficients of two sums that are added, or of which one is a number that scales the other."""
        if isinstance(operator, ast.Add | ast.Sub):
            sign = 1.0 if isinstance(operator, ast.Add) else -1.0
            total = {}
            for column in dict.fromkeys([*left, *right]):
                total[column] = left.get(column, 0.0) + sign * right.get(column, 0.0)
            return total
        # a product stays linear only if one side is a number
        if isinstance(operator, ast.Mult) and set(left) == {-1}:
            left, right = right, left
        if set(right) == {-1}:
            number = right[-1]
            if isinstance(operator, ast.Mult):
                return {column: factor * number for column, factor in left.items()}
            if isinstance(operator, ast.Div) and number:
                return {column: factor / number for column, factor in left.items()}
        return self._refuse()

    def _find(self, name: str) -> int:
        hidden = re.fullmatch(r"__quoted_(\d+)__", name)
        if hidden:
            number = int(hidden[1])
            if number < len(self.quoted):
                name = self.quoted[number]
        if name not in self.places:
            where = f" in {self.text!r}"
            expected, got = describe_unknown_column(name, self.columns, where)
            raise ArgumentError("rules", expected, got)
        return self.places[name]

    def _refuse(self, more: str = "") -> NoReturn:
        raise ArgumentError("rules", _FORMS + more, repr(self.text))


def describe_unknown_column(
    name: object, columns: Sequence[str], where: str = ""
) -> tuple[str, str]:
    """What was expected and what came, for the message about a column that does not exist."""
    listed = ", ".join(columns[:12])
    if len(columns) > 12:
        listed += ", ..."
    got = f"{name!r}{where}"
    near = difflib.get_close_matches(str(name), columns, n=1)
    if near:
        got += f" (did you mean {near[0]!r}?)"
    return f"names of columns ({listed})", got
