"""Default changes of a frame: 2% of a number's value, which no other rows than those of the reference decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import standfast
from standfast import Table
from standfast.errors import ArgumentError
from standfast.neighbourhoods import TableChanges
from standfast.question.arguments import Arguments
from standfast.study.identity import Description

RNG = np.random.default_rng(0)
N = 200
LOANS = pd.DataFrame(
    {
        "income": RNG.normal(3000, 500, N),
        "amount": RNG.integers(500, 9000, N),
        "children": RNG.integers(0, 4, N),
        "town": RNG.choice(["Bonn", "Kiel", "Ulm"], N),
        "owner": RNG.random(N) < 0.4,
        "grade": pd.Categorical(
            RNG.choice(["low", "high"], N), categories=["low", "high"], ordered=True
        ),
        "opened": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), unit="D"),
        "year": RNG.integers(1930, 2010, N),
    }
)


class Rule:
    """The probability of a loan, by income and amount."""

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        score = (frame["income"] - 3000) / 500 - (frame["amount"] - 4000) / 2000
        share = 1 / (1 + np.exp(-score.to_numpy(dtype=float)))
        return np.stack([1 - share, share], axis=1)


def read_changes(reference: pd.DataFrame, *rows: pd.DataFrame) -> dict[str, Any]:
    changes: Any = Table.read(reference, *rows).default_changes().changes
    return {name: (feature.by, feature.step) for name, feature in changes.items()}


def test_explained_rows_do_not_widen_the_default() -> None:
    reference = pd.DataFrame({"income": RNG.normal(3000, 500, N), "age": RNG.normal(40, 10, N)})
    for incomes in ([3000.0], [3000.0, 60000.0]):
        rows = pd.DataFrame({"income": incomes, "age": [40.0] * len(incomes)})
        assert read_changes(reference, rows) == {"income": ("2%", None), "age": ("2%", None)}


def test_several_references_count_together() -> None:
    """As in a study with several tables, each of which has training rows."""
    parts = [pd.DataFrame({"x": [0.0, 2.0]}), pd.DataFrame({"x": [10.0, 12.0]})]
    table = Table.join(parts, [pd.DataFrame({"x": [1e6]})])
    assert len(table.rows) == 4
    assert table.columns[0].spread == pytest.approx(np.std([0.0, 2.0, 10.0, 12.0]))


def test_a_column_that_is_constant_in_the_reference_stays() -> None:
    reference = pd.DataFrame({"x": [1.0, 1.0, 1.0], "n": [2, 2, 2], "y": [1.0, 2.0, 3.0]})
    rows = pd.DataFrame({"x": [5.0], "n": [9], "y": [1.0]})
    assert set(Table.read(reference, rows).default_changes().changes) == {"y"}
    with pytest.raises(ArgumentError, match="reference: expected a number that can change by 2%"):
        Table.read(reference[["x"]], rows[["x"]]).default_changes()


def test_only_numbers_change_and_whole_ones_by_whole_steps() -> None:
    """Years lie so far from zero that 2% of them is more than they vary by."""
    tenth = float(np.floor(0.1 * LOANS["year"].std(ddof=0)))
    assert read_changes(LOANS) == {"income": ("2%", None), "amount": ("2%", 1), "year": (tenth, 1)}
    table = Table.read(LOANS)
    region = table.default_changes().around(table.rows, table.bounds)
    rows = torch.arange(N).repeat_interleave(20)
    drawn = region.sample(20, region.streams(0)).flatten(0, 1)
    moved = table.decode(region.perturb(drawn, rows))
    clean = LOANS.loc[rows.tolist()].reset_index(drop=True)
    for name in ("children", "town", "owner", "grade", "opened"):
        assert moved[name].tolist() == clean[name].tolist()
    for name in ("income", "amount"):
        reach = 0.02 * clean[name]
        distance = (moved[name] - clean[name]).abs()
        assert (distance <= reach + 1e-9).all()
        assert distance.max() > 0.9 * reach.max()
    assert 0 < (moved["year"] - clean["year"]).abs().max() <= tenth


def test_a_cell_of_zero_stays_and_so_does_a_number_that_is_too_small() -> None:
    rows = LOANS[:4].assign(income=[0.0, 0.0, 3000.0, 0.0], amount=[0, 49, 0, 50])[
        ["income", "amount"]
    ]
    table = Table.read(LOANS[["income", "amount"]], rows)
    changes = table.default_changes()
    encoded = table.encode(rows)
    assert changes.find_movable(encoded, table.bounds).tolist() == [False, False, True, True]
    region = changes.around(encoded, table.bounds)
    drawn = region.sample(50, region.streams(0))[0]
    assert bool((region.perturb(drawn, torch.zeros(50, dtype=torch.int64)) == encoded[0]).all())


def ask(*metrics: str, rows: pd.DataFrame = LOANS[:4], **options: Any) -> Any:
    return Arguments(Rule(), ["occlusion"], rows, list(metrics), reference=LOANS, **options).ask()


def test_the_report_says_what_changes_and_how_many_rows_cannot() -> None:
    words = "income and amount by up to 2% of their value, year by up to 2, because none was given"
    assert ask("worst_case").about == {"default neighbourhood": words}
    frame = LOANS[["income", "amount"]]
    rows = frame[:3].assign(income=[0.0, 0.0, 1.0], amount=[0, 3, 0])
    question = Arguments(Rule(), ["occlusion"], rows, ["worst_case"], reference=frame).ask()
    still = "income in 2 of 3 rows, amount in all rows; rows that cannot change: 2 of 3"
    words = f"none was given; numbers that stay (0, missing, or whole and too small): {still}"
    assert question.about["default neighbourhood"].endswith(words)


def test_whole_numbers_below_50_are_said_to_stay() -> None:
    """By 2% one of 49 moves by less than a step, and one of 50 by a step."""
    amounts = [18 + 53 * row // len(LOANS) for row in range(len(LOANS))]
    frame = pd.DataFrame({"income": LOANS["income"], "amount": amounts})
    rows = pd.DataFrame({"income": [2500.0, 2600.0, 2700.0], "amount": [30, 49, 50]})
    question = Arguments(Rule(), ["occlusion"], rows, ["worst_case"], reference=frame).ask()
    words = "none was given; numbers that stay (0, missing, or whole and too small): amount in 2 of 3 rows"
    assert question.about["default neighbourhood"].endswith(words)


NAMED = ["worst_case", "max_sensitivity", "misinterpretation_probability"]


@pytest.mark.parametrize("metric", NAMED)
def test_signs_count_by_default_and_only_there(metric: str) -> None:
    """What is said stays: `absolute`, and all of a metric in a neighbourhood of the user's."""
    own = TableChanges({"income": "2%"})
    (by_default,) = ask(metric).metrics.values()
    assert by_default.absolute is False
    (said,) = ask(f"{metric}:absolute=True").metrics.values()
    assert said.absolute is True
    (around,) = ask(metric, neighbourhood=own).metrics.values()
    assert around.absolute is type(around).absolute
    configured = standfast.metrics.get(metric, neighbourhood=own)
    (kept,) = (
        Arguments(Rule(), ["occlusion"], LOANS[:4], [configured], reference=LOANS)
        .ask()
        .metrics.values()
    )
    assert kept.absolute is type(kept).absolute
    assert Description(kept).content == Description(configured).content


def name_signs(estimator: Rule, frame: pd.DataFrame, classes: Tensor) -> Any:
    """An explanation whose signs depend on a digit of the income, and whose sizes do not."""
    signs = np.where(frame["income"].to_numpy() % 2 < 1, 1.0, -1.0)
    sizes = np.arange(1.0, frame.shape[1] + 1)
    return signs[:, None] * (sizes - sizes.mean() + 0.25)


def test_a_map_that_changes_its_sign_has_changed() -> None:
    values = []
    for metric in ("worst_case:budget=20", "worst_case:budget=20,absolute=True"):
        found = standfast.evaluate(
            Rule(),
            [name_signs],
            LOANS[:2],
            metric,
            reference=LOANS,
            controls=False,
            sanity=False,
            progress=False,
        )
        values.append(found.frame()["value"].to_list())
        answer = " ".join(str(found).split())
        assert answer.startswith(
            "Neighbourhood: income and amount by up to 2% of their value, year by up to 2, because"
        )
    assert values == [pytest.approx([-1.0] * 2), pytest.approx([1.0] * 2)]
