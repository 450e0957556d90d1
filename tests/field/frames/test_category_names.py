"""A table with an unordered category: its names change, the pipeline is fitted again, and nothing else may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from planned_jobs import change_all_columns
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor

import standfast
from standfast import Model, Table
from standfast.frames import make_model
from standfast.metrics.coarse_to_fine.replacement import make_gaussian_fields
from standfast.neighbourhoods import TableChanges
from standfast.reference import CellCodes, make_reference
from standfast.tensors import mix64

FIRST, SECOND = ["a", "b", "c", "d", "e"], ["m", "z", "a", "q", "c"]
RNG = np.random.default_rng(0)
N = 300
KIND, X, Z = RNG.choice(list("abcde"), N), RNG.normal(size=N), RNG.normal(size=N)
Y = (X + 2 * (KIND == "a") - 2 * (KIND == "d") + 0.3 * RNG.normal(size=N) > 0).astype(int)


def make_frame(names: list[str], dtype: Any = None) -> pd.DataFrame:
    named = dict(zip("abcde", names, strict=True))
    return pd.DataFrame(
        {"job": pd.Series([named[kind] for kind in KIND], dtype=dtype), "x": X, "z": Z}
    )


def fit(frame: pd.DataFrame) -> Pipeline:
    encoder = ColumnTransformer(
        [("job", OneHotEncoder(sparse_output=False), ["job"])], remainder="passthrough"
    )
    return make_pipeline(encoder, LogisticRegression(solver="newton-cholesky")).fit(frame, Y)


def read(names: list[str], dtype: Any = None) -> tuple[Table, Model, Tensor]:
    frame = make_frame(names, dtype)
    table = Table.read(frame[20:], frame[:20])
    return table, make_model(fit(frame), table), table.encode(frame[:20])


EXPLAINERS = {
    "occlusion": {},
    "lime": {"samples": 400, "segments": "pixels"},
    "rise": {"samples": 40},
    "kernel_shap": {"samples": 60, "segments": "pixels"},
    "shapley_sampling": {"permutations": 3, "segments": "pixels"},
}
METRICS = {
    "log_odds": {},
    "aopc": {"samples": 3},
    "aopc of a constant": {"replacement": "constant"},
    "corruption_curve": {"samples": 3},
    "corruption_curve of a constant": {"replacement": "constant"},
    "data_sensitivity_consistency": {"masks": 30, "permutations": 19, "resamples": 10},
    "seed_agreement": {"seeds": 3},
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_names_of_categories_do_not_move_maps(name: str) -> None:
    maps = []
    for names in (FIRST, SECOND):
        _, model, rows = read(names)
        maps.append(standfast.explainers.get(name, **EXPLAINERS[name])(model, rows))
    torch.testing.assert_close(maps[0], maps[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", METRICS)
def test_names_of_categories_do_not_move_values(name: str) -> None:
    values = []
    for names in (FIRST, SECOND):
        _, model, rows = read(names)
        explainer = (
            "kernel_shap:samples=20,segments=pixels" if name == "seed_agreement" else "occlusion"
        )
        metric = standfast.metrics.get(name.partition(" ")[0], **METRICS[name])
        values.append(metric(model, explainer, rows).value)
    assert bool(values[0].isfinite().any())
    torch.testing.assert_close(values[0], values[1], atol=1e-6, rtol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["worst_case", "max_sensitivity", "misinterpretation_probability"])
def test_names_of_categories_do_not_move_what_is_searched_or_drawn(name: str) -> None:
    values = []
    for names in (FIRST, SECOND):
        table, model, rows = read(names)
        options: dict[str, Any] = {
            "worst_case": {"budget": 60},
            "max_sensitivity": {"samples": 6},
        }.get(name, {})
        if name == "misinterpretation_probability":
            options = {"method": "monte_carlo", "samples": 100}
        metric = standfast.metrics.get(name, neighbourhood=change_all_columns(table), **options)
        values.append(metric(model, "occlusion", rows[:4]).value)
    torch.testing.assert_close(values[0], values[1], atol=1e-6, rtol=0, equal_nan=True)


def test_removed_categories_are_the_most_frequent_one() -> None:
    frame = make_frame(FIRST)
    _, model, rows = read(FIRST)
    pipeline = fit(frame)
    frequent = frame["job"][20:].value_counts().idxmax()
    assert frequent != sorted(FIRST)[2]
    share = pipeline.predict_proba(frame[:20])
    explained = np.arange(20), share.argmax(1)
    fall = (share - pipeline.predict_proba(frame[:20].assign(job=frequent)))[explained]
    np.testing.assert_allclose(
        standfast.explainers.get("occlusion")(model, rows)[:, 0], fall, atol=1e-9
    )


@pytest.mark.parametrize("dtype", [None, object, "category"])
def test_rows_of_numbers_are_the_same_whatever_categories_are_called(dtype: Any) -> None:
    first, second = read(FIRST, dtype), read(SECOND, dtype)
    assert torch.equal(first[0].rows, second[0].rows)
    assert torch.equal(first[2], second[2])
    assert (
        dict(zip(FIRST, SECOND, strict=True))[first[0].columns[0].categories[0]]
        == second[0].columns[0].categories[0]
    )


def test_of_equally_frequent_categories_the_first_of_the_reference_stands_for_removed_ones() -> (
    None
):
    for names in (("b", "a", "c"), ("x", "y", "a"), ("z", "y", "x")):
        first, second, third = names
        reference = pl.DataFrame({"job": [third, first, second, first, second]})
        table = Table.read(reference, pl.DataFrame({"job": ["new"] * 9}))
        assert table.columns[0].categories == (first, second, third, "new")
        found = table.make_reference()
        assert table.decode(found.baseline[None])["job"].to_list() == [first]


def test_missing_cells_count_in_what_stands_for_removed_ones() -> None:
    """A missing cell where it is the most frequent cell of a category, or more than half of the numbers are missing."""
    frame = pl.DataFrame(
        {
            # as many as of b: a category comes first
            "job": [
                "a",
                None,
                None,
                None,
                "b",
                "b",
                "b",
            ],
            "town": ["a", None, None, None, "b", "b", "c"],
            "income": [None, None, None, 4.0, 1.0, 3.0, 2.0],  # the median of those that are there
            "debt": [None, None, None, None, 1.0, 3.0, 2.0],
            "size": pl.Series(
                ["s", "l", "l", None, None, "m", "s"], dtype=pl.Enum(["s", "m", "l"])
            ),
            "flag": [True, None, None, True, True, False, None],
        }
    )
    table = Table.read(frame)
    reference = table.make_reference()
    assert table.decode(reference.baseline[None]).rows() == [("b", None, 2.0, None, "m", True)]
    assert reference.mean[2:4].tolist() == [2.5, 2.0]
    assert reference.sd[2].item() == pytest.approx(np.std([4.0, 1.0, 3.0, 2.0]))


def test_a_reference_without_one_known_cell() -> None:
    reference = pl.DataFrame(
        {"income": [None, None], "job": [None, None]}, {"income": pl.Float64, "job": pl.String}
    )
    table = Table.read(reference, pl.DataFrame({"income": [3.0], "job": ["a"]}))
    found = table.make_reference()
    assert table.decode(found.baseline[None]).rows() == [(None, None)]
    assert bool(found.mean.isfinite().all())


def test_rows_without_codes_keep_their_reference() -> None:
    rows = torch.rand(40, 3)
    codes = CellCodes(("a", "b", "c"), (False,) * 3, (-np.inf,) * 3, (0.0,) * 3, (1.0,) * 3)
    plain, framed = make_reference(rows), make_reference(rows, codes)
    for name in ("rows", "baseline", "mean", "sd"):
        assert torch.equal(getattr(plain, name), getattr(framed, name))


def test_a_category_of_the_explained_rows_alone_is_no_reference() -> None:
    """It stays where rows have it, no other row moves to it, and it stands for nothing."""
    train, rows = make_frame(FIRST), make_frame(FIRST)[:2].assign(job=["new", "a"], x=[1e6, 0.0])
    table = Table.read(train, rows)
    assert len(table.rows) == N
    assert list(table.default_changes().changes) == ["x", "z"]  # type: ignore[arg-type]
    bound = table.bind(TableChanges({"job": "category"}))
    region = bound.around(table.encode(rows), table.bounds)
    drawn = region.sample(300, region.streams(0))
    moved = table.decode(region.perturb(drawn[1], torch.ones(300, dtype=torch.int64)))["job"]
    assert set(moved) == set(FIRST)


def test_noise_of_categories_is_drawn_from_the_reference() -> None:
    """Replaced cells of a category have its frequencies, and replaced numbers have those of known cells."""
    frame = make_frame(FIRST).assign(x=np.where(np.arange(N) % 3 == 0, np.nan, X))
    table = Table.read(frame)

    class Rule:
        def predict(self, rows: pd.DataFrame) -> Any:
            return rows["x"].fillna(0.0).to_numpy()

    model = make_model(Rule(), table)
    rows = table.encode(frame[:1]).expand(4000, 3)
    noise = table.decode(make_gaussian_fields(model, rows)(rows, mix64(torch.arange(4000))))
    shares = noise["job"].value_counts(normalize=True)
    for name, share in frame["job"].value_counts(normalize=True).items():
        assert abs(shares[name] - share) < 4 * np.sqrt(share * (1 - share) / 4000)
    assert not noise["x"].isna().any()
    assert noise["x"].min() >= frame["x"].min()
    assert abs(noise["x"].mean() - frame["x"].mean()) < 4 * frame["x"].std() / np.sqrt(4000) + 0.01
    assert abs(np.corrcoef(noise["x"], noise["z"])[0, 1]) < 4 / np.sqrt(4000)


def test_results_say_what_stands_for_a_removed_category() -> None:
    _, model, rows = read(FIRST)
    result = standfast.metrics.get("log_odds")(model, "occlusion", rows)
    assert result.choices["baseline"].startswith(
        "median of 280 rows, of categories the most frequent cell (job '"
    )


@pytest.mark.parametrize("name", ["tree_shap", "tree_shap:background=reference"])
def test_names_of_categories_do_not_move_values_of_trees(name: str) -> None:
    pytest.importorskip("shap")
    maps = []
    for names in (FIRST, SECOND):
        frame = make_frame(names)
        encoder = ColumnTransformer(
            [("job", OneHotEncoder(sparse_output=False), ["job"])], remainder="passthrough"
        )
        forest = RandomForestRegressor(
            n_estimators=3, max_depth=3, max_features=None, bootstrap=False, random_state=0
        )
        table = Table.read(frame[20:], frame[:20])
        model = make_model(make_pipeline(encoder, forest).fit(frame, Y + 0.1 * X), table)
        maps.append(standfast.explainers.get(name)(model, table.encode(frame[:5])))
    torch.testing.assert_close(maps[0], maps[1], atol=1e-6, rtol=0)
