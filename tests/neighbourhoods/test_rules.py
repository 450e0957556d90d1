"""Linear rules as text: what they mean, against Python's own arithmetic, and what is refused."""

from __future__ import annotations

import pytest
import torch
from refusals import assert_refused

from standfast.neighbourhoods.rules import read_rules

COLUMNS = ("income", "debt", "mean radius", "x")


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("debt <= 3 * income", "debt - 3 * income"),
        ("debt/4 - income*2 >= -1e2", "-100 - debt / 4 + income * 2"),
        ("-(income - 2*(debt + 5)) + debt <= +x", "-(income - 2 * (debt + 5)) + debt - x"),
        ("10 >= `mean radius` - x / 2", "radius - x / 2 - 10"),
        ("income <= 0.5", "income - 0.5"),
        ("2 * 3 * debt <= (4 / 2) * income + debt", "5 * debt - 2 * income"),
    ],
)
def test_an_inequality_is_what_python_computes(text: str, python: str) -> None:
    (rule,) = read_rules(text, COLUMNS)
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, value in zip(rows.tolist(), rule.find_excess(rows).tolist(), strict=True):
        names = dict(zip(("income", "debt", "radius", "x"), row, strict=True))
        assert value == pytest.approx(eval(python, {}, names))
    assert rule.defines is None
    assert rule.text == text


def test_definitions_and_chains() -> None:
    (rule,) = read_rules("x == income + 2 * debt - 3", COLUMNS)
    assert (rule.defines, rule.terms, rule.constant) == (3, ((0, 1.0), (1, 2.0)), -3.0)
    rows = torch.tensor([[1.0, 2.0, 0.0, 2.0], [1.0, 2.0, 0.0, 5.0]])
    assert rule.find_excess(rows).tolist() == [0.0, 3.0]
    assert rule.measure_size(rows).tolist() == [10.0, 13.0]
    (turned,) = read_rules("income + 2 * debt == x", COLUMNS)
    assert turned.defines == 3
    low, high = read_rules("0 <= debt <= income", COLUMNS)
    assert (low.terms, high.terms) == (((1, -1.0),), ((0, -1.0), (1, 1.0)))


def test_what_is_refused() -> None:
    comparisons = ["debt", "debt < income", "debt != income", "debt <="]
    terms = [
        "debt * income <= 3",
        "3 / debt <= 3",
        "debt / 0 <= 3",
        "debt ** 2 <= 3",
        "abs(debt) <= 3",
    ]
    values = [
        "__import__('os').system('true') <= debt",
        "debt <= 'a'",
        "debt <= True",
        "debt <= 1e999",
        3,
    ]
    columns = ["1 <= 2", "debt <= debt", "debts <= 3", "`mean radios` <= 3"]
    definitions = ["debt + income == 3 * x", "2 * debt == 3 * x", "debt == debt + 1"]
    long = ["-" * 1500 + "debt <= 3", "(" * 1500 + "debt" + ")" * 400 + " <= 3", "debt" * 1000]
    wrong = [*comparisons, *terms, *values, *columns, *definitions, *long]
    assert_refused(lambda rules: read_rules(rules, COLUMNS), rules=wrong)
