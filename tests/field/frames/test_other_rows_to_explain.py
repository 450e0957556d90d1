"""Rows that are explained together: the numbers of each are those that it has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import standfast
from standfast import Table
from standfast.frames import make_model
from standfast.metrics.coarse_to_fine.replacement import make_gaussian_fields
from standfast.neighbourhoods import TableChanges
from standfast.tensors import mix64

N = 80
RNG = np.random.default_rng(0)
TRAIN = pd.DataFrame(
    {
        "income": np.where(np.arange(N) % 9 == 4, np.nan, RNG.normal(50, 10, N).round(1)),
        "children": RNG.integers(0, 4, N),
        "job": RNG.choice(["nurse", "cook", "clerk"], N),
        "owner": RNG.random(N) < 0.4,
        "grade": pd.Categorical(["low"] * N, categories=["low", "mid", "high"], ordered=True),
        "country": "DE",
        "active": True,
    }
)
#: the largest income of the reference: upwards, nothing but another row has more
ROW = TRAIN.iloc[[int(TRAIN["income"].argmax())]]
OTHERS = {
    "a large number": ROW.assign(income=500.0),
    "a low number": ROW.assign(income=10.0),
    "a missing cell": ROW.assign(income=np.nan),
    "an unknown category": ROW.assign(job="pilot"),
    "another cell in constant columns": ROW.assign(
        country="FR",
        active=False,
        grade=pd.Categorical(["high"], categories=["low", "mid", "high"], ordered=True),
    ),
    "everything": ROW.assign(income=400.0, children=9, job="pilot", country="FR", active=False),
}
METRICS = [
    "worst_case:budget=6",
    "aopc:samples=1",
    "max_sensitivity:samples=2",
    "corruption_curve:samples=1",
]
EXPLAINERS = [
    "lime:samples=12",
    "kernel_shap:samples=12",
    "shapley_sampling:permutations=2",
    "occlusion",
]


class Rule:
    """Probabilities that use each column."""

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        score = (
            (frame["income"].fillna(30.0) - 50) / 10
            + frame["children"] * 0.5
            + frame["owner"] * 1.0
        )
        score = (
            score
            - (frame["job"] == "nurse") * 1.2
            + frame["active"] * 0.3
            + (frame["country"] == "DE") * 0.2
        )
        share = 1 / (1 + np.exp(-score.to_numpy(dtype=float)))
        return np.stack([1 - share, share], axis=1)


def evaluate(rows: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """The values of the first row."""
    options |= {"sanity": False, "controls": False, "progress": False}
    result = standfast.evaluate(Rule(), EXPLAINERS, rows, METRICS, reference=TRAIN, **options)
    values = result.frame().to_pandas()
    of_first = values[values["sample"] == 0]
    return of_first.set_index(["label", "explainer"])["value"].astype(float).sort_index()


@pytest.mark.parametrize("changes", ["default", "named"])
def test_a_row_has_the_same_numbers_beside_any_others(changes: str) -> None:
    given = (
        {}
        if changes == "default"
        else {"neighbourhood": TableChanges({"income": 9, "children": 2})}
    )
    alone = evaluate(ROW, **given)
    assert alone.notna().mean() > 0.8
    rows = pd.concat([ROW, *OTHERS.values()])
    pd.testing.assert_series_equal(evaluate(rows, **given), alone, rtol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_other_rows_change_neither_what_may_change_nor_how_far(name: str) -> None:
    alone, together = Table.read(TRAIN, ROW), Table.read(TRAIN, pd.concat([ROW, OTHERS[name]]))
    assert list(alone.default_changes().changes) == ["income"]  # type: ignore[arg-type]
    assert together.default_changes().changes == alone.default_changes().changes
    assert torch.equal(together.rows, alone.rows)
    assert torch.equal(together.encode(ROW), alone.encode(ROW))
    for changes in (TableChanges({"income": "any"}), TableChanges("20%")):
        limits = [
            table.bind(changes).limit_parameters(table.encode(ROW), table.bounds)
            for table in (alone, together)
        ]
        assert torch.equal(limits[0].lower, limits[1].lower)
        assert torch.equal(limits[0].upper, limits[1].upper)


def test_a_change_reaches_the_range_of_the_reference_and_the_rows_own_value() -> None:
    highest = float(TRAIN["income"].max())
    beyond = ROW.assign(income=highest + 30)
    table = Table.read(TRAIN, pd.concat([ROW, beyond]))
    region = table.bind(TableChanges({"income": 5})).around(
        table.encode(pd.concat([ROW, beyond])), table.bounds
    )
    both = torch.arange(2)
    up = table.decode(region.perturb(torch.full((2, 1), 5.0, dtype=torch.float64), both))[
        "income"
    ].tolist()
    assert up == [highest, highest + 30]
    down = table.decode(region.perturb(torch.full((2, 1), -5.0, dtype=torch.float64), both))[
        "income"
    ].tolist()
    assert down == [highest - 5, highest + 25]


def test_noise_ends_at_the_range_of_the_reference() -> None:
    numbers = TRAIN[["children"]].assign(size=np.linspace(0, 1, N))
    far = numbers[:1].assign(children=1000, size=-50.0)
    noise = []
    for rows in (numbers[:1], pd.concat([numbers[:1], far])):
        table = Table.read(numbers, rows)
        model = make_model(SizeAlone(), table)
        first = table.encode(rows)[:1]
        draw = make_gaussian_fields(model, first)
        noise.append(draw(first, mix64(torch.arange(500))).clamp(*model.bounds))
    assert torch.equal(*noise)
    assert float(noise[0][:, 0].max()) == 3.0
    assert float(noise[0][:, 1].min()) == 0.0


class SizeAlone:
    def predict(self, frame: pd.DataFrame) -> Any:
        return frame["size"].to_numpy()


def test_a_row_far_below_the_reference_has_room_above_the_code_of_missing_cells() -> None:
    """The one case in which a row to explain moves this code."""
    table = Table.read(TRAIN, ROW.assign(income=-1e6))
    back = table.decode(table.encode(ROW.assign(income=-1e6)))
    assert back["income"].tolist() == [-1e6]
    assert table.decode(table.rows)["income"].isna().sum() == TRAIN["income"].isna().sum()
