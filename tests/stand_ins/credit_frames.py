"""A small credit table with text, order, dates, whole numbers and missing cells, and a linear pipeline on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

START = pd.Timestamp("2020-01-01")
GRADES = ["low", "mid", "high"]


def make_frame(rows: int = 200, missing: bool = True) -> pd.DataFrame:
    """Rows with an index that does not begin at 0."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": np.round(rng.lognormal(10, 0.5, rows), 2),
            "age": rng.integers(18, 80, rows),
            "town": rng.choice(["Bonn", "Kiel", "Ulm"], rows, p=[0.5, 0.3, 0.2]),
            "grade": pd.Categorical(rng.choice(GRADES, rows), categories=GRADES, ordered=True),
            "opened": START + pd.to_timedelta(rng.integers(0, 1000, rows), unit="D"),
            "married": rng.random(rows) < 0.4,
        },
        index=np.arange(rows) * 3 + 100,
    )
    if missing:
        frame.loc[frame.index[::7], "income"] = np.nan
    return frame


def count_days(frame: Any) -> Any:
    """Dates as days, for a pipeline."""
    return frame.apply(lambda column: (column - START).dt.days.astype(float))


def make_encoders() -> ColumnTransformer:
    """One-hot, ordinal, scaled and imputed columns, with a mark for missing cells."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return ColumnTransformer(
        [
            ("towns", OneHotEncoder(handle_unknown="ignore"), ["town", "married"]),
            ("numbers", numbers, ["income", "age"]),
            ("grades", OrdinalEncoder(categories=[GRADES]), ["grade"]),
            (
                "dates",
                make_pipeline(
                    FunctionTransformer(count_days, feature_names_out="one-to-one"),
                    StandardScaler(),
                ),
                ["opened"],
            ),
        ]
    )


def score(frame: pd.DataFrame) -> Any:
    """What a customer is worth, without noise."""
    town = frame["town"].map({"Bonn": 0.0, "Kiel": 1.0, "Ulm": 2.5}).to_numpy(dtype=float)
    grade = frame["grade"].cat.codes.to_numpy(dtype=float)
    income = frame["income"].fillna(15_000).to_numpy() / 10_000
    return income + town + 0.5 * grade + frame["age"].to_numpy() / 40 + frame["married"].to_numpy()


def fit_linear(frame: pd.DataFrame) -> Pipeline:
    """A linear regression behind the encoders."""
    return Pipeline([("encoders", make_encoders()), ("model", LinearRegression())]).fit(
        frame, score(frame)
    )


def fit_logistic(frame: pd.DataFrame) -> Pipeline:
    """A logistic regression behind the encoders."""
    target = score(frame) > np.median(score(frame))
    names = np.where(target, "yes", "no")
    return Pipeline([("encoders", make_encoders()), ("model", LogisticRegression())]).fit(
        frame, names
    )


def explain_linear(pipeline: Pipeline, frame: Any, targets: Any) -> Any:
    """The attribution of each encoded column of a linear pipeline, against an encoded row of zeros."""
    encoded = np.asarray(pipeline[:-1].transform(frame), dtype=float)
    return encoded * pipeline[-1].coef_.reshape(-1)
