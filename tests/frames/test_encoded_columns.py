"""Which of the user's columns an encoded column belongs to: against owners that are known, and mixtures of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.dummy import DummyRegressor
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from standfast import Table
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.adapters.frame_functions import FrameExplainer
from standfast.frames import find_frame_function, make_model, trials
from standfast.frames.encoded import Encoding, read_encoding
from standfast.frames.origins import trace_origins
from standfast.frames.trials import (
    Conflict,
    DigitReader,
    Trials,
    are_close,
    choose_rows,
    measure_rounding,
)

ROWS = 400


def make_frame() -> pd.DataFrame:
    """Numbers, whole numbers that are codes, texts with a rare one, a flag in 1% of the rows, dates."""
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.integers(0, 900, ROWS), unit="D")
    return pd.DataFrame(
        {
            "debt": rng.normal(size=ROWS),
            "size": rng.lognormal(size=ROWS),
            "shop": rng.integers(0, 40, ROWS),
            "town": rng.choice(["Bonn", "Kiel", "Ulm"], ROWS, p=[0.9, 0.09, 0.01]),
            "default": rng.random(ROWS) < 0.01,
            "since": pd.Timestamp("2020-01-01") + days,
        }
    )


FRAME = make_frame()
GAPS = FRAME[["debt", "size"]].mask(np.arange(ROWS)[:, None] % [7, 11] == 0)


def read(steps: Any, frame: Any, *others: Any) -> Encoding:
    """The encoding of steps that are fitted with a frame."""
    score = np.random.default_rng(1).normal(size=len(frame))
    fitted = make_pipeline(*steps, DummyRegressor()).fit(frame, score)
    function = find_frame_function(make_model(fitted, Table.read(frame, *others)))
    assert function is not None
    return read_encoding(function, "mine")


def one_hot() -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore")


def count_days(dates: Any) -> Any:
    return dates.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days)


#: steps, columns of the frame, and of which of these each encoded column is one
KNOWN: dict[str, tuple[Callable[[], list[Any]], list[str], list[int]]] = {
    "one-hot": (lambda: [one_hot()], ["town", "default", "shop"], [0] * 3 + [1] * 2 + [2] * 40),
    "one-hot without the first": (
        lambda: [OneHotEncoder(drop="first")],
        ["town", "default", "shop"],
        [0] * 2 + [1] + [2] * 39,
    ),
    "rare categories together": (
        lambda: [OneHotEncoder(min_frequency=60, handle_unknown="infrequent_if_exist")],
        ["town", "default"],
        [0] * 2 + [1] * 2,
    ),
    "bins": (
        lambda: [KBinsDiscretizer(40, encode="onehot-dense", strategy="uniform")],
        ["debt", "size"],
        [0] * 40 + [1] * 40,
    ),
    "splines": (lambda: [SplineTransformer(5)], ["debt", "size"], [0] * 7 + [1] * 7),
    "targets": (lambda: [TargetEncoder()], ["town", "shop"], [0, 1]),
    "logarithms": (
        lambda: [FunctionTransformer(np.log1p), StandardScaler()],
        ["size", "shop"],
        [0, 1],
    ),
    "a transformer with parts": (
        lambda: [
            ColumnTransformer(
                [
                    (
                        "texts",
                        make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot()),
                        ["town"],
                    ),
                    ("gone", "drop", ["debt"]),
                    ("days", FunctionTransformer(count_days), ["since"]),
                    (
                        "numbers",
                        make_union(StandardScaler(), KBinsDiscretizer(3)),
                        make_column_selector("size"),
                    ),
                ],
                remainder="passthrough",
                sparse_threshold=1.0,
                verbose_feature_names_out=False,
            ),
            VarianceThreshold(),
        ],
        ["debt", "size", "shop", "town", "default", "since"],
        [3] * 3 + [5] + [1] * 4 + [2, 4],
    ),
    "a selection": (
        lambda: [
            ColumnTransformer([("town", one_hot(), ["town"])], remainder=StandardScaler()),
            SelectKBest(f_regression, k="all"),
        ],
        ["debt", "town"],
        [1, 1, 1, 0],
    ),
    "principal components of one column": (
        lambda: [ColumnTransformer([("a", PCA(1), ["debt"]), ("b", "passthrough", ["size"])])],
        ["size", "debt"],
        [1, 0],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_each_encoded_column_has_its_owner(name: str) -> None:
    """Trials alone find it, and what scikit-learn says never contradicts."""
    make_steps, columns, owners = KNOWN[name]
    encoding = read(make_steps(), FRAME[columns])
    assert encoding.list_owners().tolist() == owners
    assert encoding.trials is not None
    assert encoding.trials.reader.columns_read.tolist() == owners
    if encoding.origins is not None:
        assert all(
            owner in possible for owner, possible in zip(owners, encoding.origins, strict=True)
        )


def test_marks_of_missing_cells_and_columns_of_polars() -> None:
    union = make_union(SimpleImputer(), MissingIndicator())
    assert read([union], GAPS).list_owners().tolist() == [0, 1, 0, 1]
    frame = pl.DataFrame({"shop": FRAME["shop"].to_numpy(), "debt": FRAME["debt"].to_numpy()})
    coded = ColumnTransformer([("shop", one_hot(), ["shop"])], remainder="passthrough")
    assert read([coded], frame).list_owners().tolist() == [0] * 40 + [1]


def combine(formula: Callable[[Any], Any]) -> FunctionTransformer:
    return FunctionTransformer(
        lambda frame: pd.DataFrame({"first": frame.iloc[:, 0], "both": formula(frame)})
    )


#: steps that mix columns, the columns of the frame, and two columns that are named
MIXED: dict[str, tuple[Any, list[str], str]] = {
    "a number times a rare flag": (
        combine(lambda f: f["debt"] * f["default"]),
        ["size", "debt", "default"],
        "default",
    ),
    "a product of three": (
        combine(lambda f: f["debt"] * f["size"] * f["default"]),
        ["shop", "debt", "size", "default"],
        "and",
    ),
    "two rare values": (
        combine(lambda f: 1.0 * ((f["town"] == "Ulm") & f["default"])),
        ["size", "town", "default"],
        "'town' and 'default'",
    ),
    "two corners": (
        combine(lambda f: 1.0 * ((f["debt"] > 2) & (f["size"] > 8))),
        ["shop", "debt", "size"],
        "'debt' and 'size'",
    ),
    "either of two": (
        combine(lambda f: 1.0 * ((f["town"] == "Ulm") ^ f["default"])),
        ["size", "town", "default"],
        "'town' and 'default'",
    ),
    "products": (
        PolynomialFeatures(2),
        ["debt", "size"],
        "'debt size', which depends on 'debt' and 'size'",
    ),
    "components": (PCA(2), ["debt", "size"], "'debt' and 'size'"),
    "lengths": (Normalizer(), ["debt", "size"], "'debt' and 'size'"),
    "one code for two columns": (
        FunctionTransformer(
            lambda f: np.eye(7)[
                [(len(t) + s) % 7 for t, s in zip(f["town"], f["shop"], strict=True)]
            ]
        ),
        ["town", "shop"],
        "'town' and 'shop'",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixtures_of_columns_are_refused_with_their_names(name: str) -> None:
    step, columns, words = MIXED[name]
    with pytest.raises(
        ArgumentError, match=r"\(kernel_shap needs none\), got .* which depends on "
    ) as caught:
        read([step], FRAME[columns])
    assert words in str(caught.value)


def test_neighbours_mix_only_where_a_cell_is_missing() -> None:
    with pytest.raises(ArgumentError, match="'debt', which depends on 'debt' and 'size'"):
        read([KNNImputer()], GAPS)
    assert read([KNNImputer()], GAPS.fillna(0.0)).list_owners().tolist() == [0, 1]


@pytest.mark.parametrize(
    "step", [lambda f: f - f.mean(), lambda f: f.rank(), lambda f: f.assign(rows=len(f))]
)
def test_columns_that_depend_on_other_rows_are_refused(step: Any) -> None:
    with pytest.raises(
        ArgumentError, match="each row alone.*depends on the other rows of the frame"
    ):
        read([FunctionTransformer(step)], FRAME[["debt", "size"]])


def test_steps_that_cannot_be_tried_are_refused_in_words() -> None:
    def refuse_rich_debtors(frame: pd.DataFrame) -> pd.DataFrame:
        if ((frame["debt"] > 0) & (frame["size"] > 1)).any():
            raise ValueError("no such customer")
        return frame

    poor = FRAME[["debt", "size"]][(FRAME["debt"] <= 0) | (FRAME["size"] <= 1)]
    with pytest.raises(
        ModelError, match="encode rows with any values of the reference, got ValueError: no such"
    ):
        read([FunctionTransformer(refuse_rich_debtors)], poor)
    function = find_frame_function(make_model(Loose(), Table.read(FRAME[["debt"]])))
    assert function is not None
    with pytest.raises(ArgumentError, match="a row of numbers of each of 16 rows, got shape"):
        read_encoding(function, "mine")
    texts = find_frame_function(make_model(Loose("texts"), Table.read(FRAME[["debt"]])))
    assert texts is not None
    with pytest.raises(
        ArgumentError, match=r"encode all columns as numbers .*, got could not convert"
    ):
        read_encoding(texts, "mine")


class Loose:
    """A pipeline that loses rows, or leaves texts."""

    def __init__(self, kind: str = "rows") -> None:
        self.kind = kind
        self.steps = [("itself", self.Step(kind)), ("zero", DummyRegressor())]

    class Step:
        def __init__(self, kind: str) -> None:
            self.kind = kind

        def transform(self, frame: Any) -> Any:
            return (
                np.zeros((len(frame) - 1, 1))
                if self.kind == "rows"
                else np.full((len(frame), 1), "text", object)
            )

    def predict(self, frame: Any) -> Any:
        return np.zeros(len(frame))


# Encoded columns that no row of the reference moves


def test_categories_that_only_the_training_rows_have_belong_to_their_column() -> None:
    """The encoder knows 40 shops, the reference has 3: the others are constant, and trees may split there."""
    coded = ColumnTransformer([("codes", one_hot(), ["shop", "town"])], remainder="passthrough")
    score = FRAME["debt"]
    fitted = make_pipeline(coded, DummyRegressor()).fit(FRAME[["debt", "shop", "town"]], score)
    few = FRAME[["debt", "shop", "town"]][FRAME["shop"].isin([3, 4, 9]) & (FRAME["town"] == "Bonn")]
    function = find_frame_function(make_model(fitted, Table.read(few)))
    assert function is not None
    encoding = read_encoding(function, "mine")
    assert encoding.list_owners().tolist() == [1] * 40 + [2] * 3 + [0]
    assert encoding.trials is not None
    # shops below 3 and above 9, all towns
    assert np.count_nonzero(encoding.trials.reader.columns_read < 0) == 33 + 3
    values = np.random.default_rng(0).normal(size=(2, 44))
    sums = np.stack([values[:, 43], values[:, :40].sum(1), values[:, 40:43].sum(1)], axis=1)
    np.testing.assert_allclose(encoding.sum_back(values), sums, rtol=1e-12)


def add_one(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(one=1.0)


def test_an_attribution_without_an_owner_is_refused_by_its_name() -> None:
    step = FunctionTransformer(
        add_one, feature_names_out=lambda _, names: np.array([*names, "one"])
    )
    encoding = read([step], FRAME[["debt", "size"]])
    assert encoding.list_owners().tolist() == [0, 1, -1]
    kept = np.array([[1.0, 2.0, 0.0], [3.0, -4.0, 1e-9]])
    np.testing.assert_array_equal(encoding.sum_back(kept), kept[:, :2])
    np.testing.assert_array_equal(encoding.sum_back(kept[..., None]), kept[:, :2, None])
    with pytest.raises(
        ArgumentError, match="got 0.3 for 'one', which no row that was tried changes"
    ):
        encoding.sum_back(np.array([[1.0, 2.0, 0.0], [3.0, -4.0, -0.3]]))


def test_a_function_of_the_users_loses_no_encoded_column() -> None:
    table = Table.read(FRAME[["debt", "size"]])
    fitted = make_pipeline(FunctionTransformer(add_one), DummyRegressor()).fit(
        FRAME[["debt", "size"]], FRAME["debt"]
    )
    model = make_model(fitted, table)
    with pytest.raises(ArgumentError, match="1 for encoded column 2, which no row"):
        FrameExplainer(lambda e, f, c: np.ones((len(f), 3)))(model, table.rows[:2])
    maps = FrameExplainer(lambda e, f, c: np.ones((len(f), 3)) * [1, 2, 0])(model, table.rows[:2])
    assert maps.tolist() == [[1, 2], [1, 2]]


def test_columns_that_a_function_names_may_have_any_order() -> None:
    frame = FRAME[["town", "debt"]]
    coded = ColumnTransformer(
        [("town", OneHotEncoder(sparse_output=False), ["town"])], remainder="passthrough"
    )
    model = make_model(
        make_pipeline(coded, DummyRegressor()).fit(frame, FRAME["debt"]), Table.read(frame)
    )
    names = [*coded.fit(frame).get_feature_names_out()]
    values = pd.Series([1.0, 2.0, 4.0, 8.0], index=names)
    for order in (names, names[::-1]):

        def explain(estimator: Any, part: Any, classes: Any, order: Any = order) -> Any:
            return pd.DataFrame([values[order]] * len(part))

        maps = FrameExplainer(explain)(model, Table.read(frame).rows[:3])
        assert maps.tolist() == [[7.0, 8.0]] * 3


def test_attributions_of_the_users_columns_need_no_encoding() -> None:
    """Behind products and texts too, where encoded columns could not be summed back."""
    frame = FRAME[["debt", "size"]]
    for step in (PolynomialFeatures(2), FunctionTransformer(lambda f: f.assign(kind="text"))):
        model = make_model(
            make_pipeline(step, DummyRegressor()).fit(frame, FRAME["debt"]), Table.read(frame)
        )
        maps = FrameExplainer(lambda e, f, c: f.to_numpy())(model, Table.read(frame).rows[:3])
        np.testing.assert_allclose(maps, frame[:3])


RARE = 0.123456


def test_values_that_only_explained_rows_have_are_tried() -> None:
    """A mark of one value, which no row of the reference has; alone, and times another column."""
    frame, rows = (
        FRAME.drop(columns=["town", "since"]),
        FRAME.drop(columns=["town", "since"])[:40].copy(),
    )
    rows.loc[rows.index[17], "debt"] = RARE
    table = Table.read(frame, rows)
    few = table.encode(rows)
    many = table.encode(pd.concat([frame] * 10 + [rows]))
    for explained in (few, many):
        encoding = read(
            [FunctionTransformer(lambda f: f.assign(mark=1.0 * (f["debt"] == RARE)))], frame, rows
        )
        assert encoding.list_owners().tolist() == [0, 1, 2, 3, -1]
        encoding.check_rows(explained)
        assert encoding.list_owners().tolist() == [0, 1, 2, 3, 0]
        encoding = read(
            [FunctionTransformer(lambda f: f.assign(mark=f["size"] * (f["debt"] == RARE)))],
            frame,
            rows,
        )
        with pytest.raises(
            ArgumentError, match="encoded column 4, which depends on 'debt' and 'size'"
        ):
            encoding.check_rows(explained)


def test_two_values_that_only_one_explained_row_has_together_are_tried() -> None:
    """A mark of both is like that of neither in each mixed row, so that its digits alone tell."""
    frame, row = FRAME[["debt", "size"]], pd.DataFrame({"debt": [RARE], "size": [RARE]})
    both = FunctionTransformer(
        lambda f: f.assign(mark=1.0 * ((f["debt"] == RARE) & (f["size"] == RARE)))
    )
    encoding = read([both], frame, row)
    with pytest.raises(ArgumentError, match="encoded column 2, which depends on 'debt' and 'size'"):
        encoding.check_rows(Table.read(frame, row).encode(row))


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_value_that_only_explained_rows_have_meets_both_values_of_a_flag(
    seed: int, flag: bool
) -> None:
    frame = FRAME[["debt", "size"]].assign(own=np.random.default_rng(seed).random(ROWS) < 0.5)
    row = pd.DataFrame({"debt": [RARE], "size": [1.0], "own": [flag]})
    encoding = read(
        [FunctionTransformer(lambda f: f.assign(both=(f["debt"] == RARE) & (f["own"] == flag)))],
        frame,
        row,
    )
    with pytest.raises(ArgumentError, match="encoded column 3, which depends on 'debt' and 'own'"):
        encoding.check_rows(Table.read(frame, row).encode(row))


@pytest.mark.parametrize("columns", [2, 3, 9])
def test_each_value_is_tried_beside_many_draws_of_the_other_cells(columns: int) -> None:
    """Codes of 300 values; the last code is one more where a flag is on. Without the flag, no column is refused."""
    value_lists = [np.arange(300.0), *[np.array([0.0, 1.0])] * (columns - 1)]
    rows = np.random.default_rng(0).integers(0, 2, (100, columns)).astype(float)

    def encode(cells: Any) -> Any:
        return cells + np.eye(columns)[0] * ((cells[:, :1] == 299) & (cells[:, 1:2] == 1))

    conflict = Trials(encode, rows, value_lists).conflict
    assert conflict is not None
    assert (conflict.encoded, conflict.columns) == (0, (0, 1))
    assert Trials(lambda cells: cells + 1, rows, value_lists).conflict is None


def test_copies_that_are_encoded_together_are_those_of_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one call there is room for all 16 copies of 256 rows, or for one; what is found is the same."""
    value_lists = [np.arange(6.0), np.arange(5.0), np.array([0.0, 1.0])]
    rows = np.random.default_rng(0).integers(0, 2, (100, 3)).astype(float)
    seen: list[dict[str, Any]] = []
    for cells in (2**23, 256 * 3):
        monkeypatch.setattr(trials, "_CELLS", cells)
        for is_mixed in (False, True):
            sizes: list[int] = []

            def encode(rows: Any, mixed: bool = is_mixed, sizes: list[int] = sizes) -> Any:
                sizes.append(len(rows))
                both = (rows[:, :1] == 5) & (rows[:, 1:2] == 4)
                return rows + mixed * np.eye(3)[0] * both

            tried = Trials(encode, rows, value_lists)
            seen.append({"conflict": tried.conflict, "rows": sum(sizes), "calls": len(sizes)})
    together, together_mixed, apart, apart_mixed = seen
    assert together["conflict"] is None
    assert apart["conflict"] is None
    assert together["rows"] == apart["rows"]
    assert apart["calls"] - together["calls"] == 15
    assert together_mixed["conflict"] == apart_mixed["conflict"] == Conflict(0, (0, 1))


def test_a_transformer_that_says_something_else_is_refused() -> None:
    """As if it mixed up the slices of its parts."""
    frame = FRAME[["debt", "size"]]
    encoding = read(
        [ColumnTransformer([("a", "passthrough", ["debt"]), ("b", StandardScaler(), ["size"])])],
        frame,
    )
    assert encoding.origins == [frozenset({0}), frozenset({1})]
    swapped = Encoding(
        encoding.function, encoding.names, "mine", encoding.origins[::-1], encoding.trials
    )
    with pytest.raises(ArgumentError, match="made of 'size', which depends on 'debt'"):
        swapped.check_owners()


def test_origins_that_are_not_told() -> None:
    frame = FRAME[["debt", "size"]]
    assert (
        trace_origins([FunctionTransformer(lambda f: f)], ["debt", "size"], 2)
        == [frozenset({0, 1})] * 2
    )
    assert trace_origins([object(), object()], ["debt", "size"], 2) is None
    by_mask = ColumnTransformer(
        [("a", StandardScaler(), [True, False]), ("b", PCA(1), slice(1, 2))]
    ).fit(frame)
    assert trace_origins([by_mask], ["debt", "size"], 2) == [frozenset({0}), frozenset({1})]
    by_number = ColumnTransformer([("a", "passthrough", [1]), ("b", StandardScaler(), [-2])]).fit(
        frame.to_numpy()
    )
    assert trace_origins([by_number], ["debt", "size"], 2) == [frozenset({1}), frozenset({0})]


# The trials themselves


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 9, 17])
def test_digits_say_which_column(columns: int) -> None:
    """Encoded columns are functions of one column, of two, or of none, and all are told apart."""
    rng = np.random.default_rng(columns)
    owners = rng.integers(0, columns, 12)
    others = (owners + rng.integers(1, max(2, columns), 12)) % columns

    def encode(cells: Any) -> Any:
        single = np.sin(cells[:, owners])
        double = cells[:, owners] * (cells[:, others] > 0.8)
        return np.concatenate([single, double, np.ones((len(cells), 1))], axis=1)

    reader = DigitReader(columns, 25)
    first, second = rng.random((2, 300, columns))
    for digit in range(reader.digits):
        mixed = np.where((np.arange(columns) >> digit) % 2 == 1, first, second)
        for one, other, mask in ((first, second, mixed), (second, first, first + second - mixed)):
            reader.add(
                np.full(300, digit), encode(one), encode(other), encode(mask), np.full(25, 1e-12)
            )
    assert reader.columns_read[:12].tolist() == owners.tolist()
    assert reader.columns_read[24] == -1
    assert reader.conflicts.tolist() == (list(range(12, 24)) if columns > 1 else [])


def test_every_value_of_every_column_is_tried_and_those_of_flags_often() -> None:
    frame = FRAME.assign(debt=FRAME["debt"].mask(FRAME.index == 5))
    table = Table.read(frame)
    rows = table.decode(choose_rows(table))
    for column in ("town", "default", "shop", "since"):
        assert set(rows[column]) >= set(frame[column])
    assert rows["default"].mean() > 0.1
    assert 1 < rows["debt"].isna().sum() < 20
    assert len(rows) == ROWS + (frame["since"].max() - frame["since"].min()).days + 1
    assert choose_rows(table).tolist() == choose_rows(table).tolist()


def test_many_different_numbers_are_met_by_their_quantiles_and_places() -> None:
    numbers = np.random.default_rng(0).permutation(np.arange(20_000) * 7)
    table = Table.read(pd.DataFrame({"zip": numbers, "one": 1.0}))
    tried = np.unique(choose_rows(table)[:, 0])
    assert len(tried) < 1000
    assert {0, 139_993} <= set(tried.tolist())
    assert np.diff(tried).max() < 139_993 / 100


def test_rounding_is_no_change() -> None:
    values = np.array([[1e6, 0.1, 3.0], [-1e6, 0.5, np.nan]])
    tolerance = measure_rounding(values)
    assert are_close(values, values * (1 + 1e-15), tolerance).all()
    assert are_close(
        values, values + np.array([[1e-9, 1e-9, 0], [0, 0, 0]]), tolerance
    ).tolist() == [
        [True, False, True],
        [True, True, True],
    ]
    single = np.array([[0.1], [0.7]], dtype=np.float32).astype(np.float64)
    assert are_close(single, single * (1 + 1e-6), measure_rounding(single)).all()
