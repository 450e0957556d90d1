"""A credit table with a known truth, as a CSV file, and which explanation of a decision may be shown to a customer.

    python examples/credit.py make credit.csv     write 2,000 rows with text, order, dates, flags and missing cells
    python examples/credit.py run credit.csv      fit a pipeline, evaluate, write report.html: about three minutes

The truth is a logistic model of five columns; `zodiac` has no effect. So a good explanation puts `zodiac` last.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import standfast
from standfast.neighbourhoods import TableChanges

TODAY = pd.Timestamp("2025-01-01")
JOBS = {"farmer": -0.6, "clerk": 0.2, "nurse": 0.5, "builder": -0.1}
EDUCATION = ["school", "training", "degree"]
SIGNS = ["aries", "leo", "libra", "pisces"]


def make_credit(rows: int, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Applications and the log-odds that they are paid back, `(rows,)`, by the true model."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": np.round(rng.lognormal(8.0, 0.4, rows)),
            "debt": np.round(rng.lognormal(8.5, 0.8, rows)),
            "job": rng.choice(list(JOBS), rows),
            "education": rng.choice(EDUCATION, rows, p=[0.3, 0.5, 0.2]),
            "since": TODAY - pd.to_timedelta(rng.integers(30, 5000, rows), unit="D"),
            "zodiac": rng.choice(SIGNS, rows),
        }
    )
    years = (TODAY - frame["since"]).dt.days / 365
    grade = frame["education"].map({name: place for place, name in enumerate(EDUCATION)})
    logit = (
        1.5 * np.log(frame["income"] / 3000)
        - 0.8 * np.log(frame["debt"] / 5000)
        + frame["job"].map(JOBS)
    )
    logit = logit + 0.4 * (grade - 1) + 0.12 * (years - 6)
    frame.loc[rng.random(rows) < 0.1, "debt"] = np.nan  # not told
    return frame, logit.to_numpy()


def count_days(dates: pd.DataFrame) -> pd.DataFrame:
    """Dates as days before today, which a model can take."""
    return dates.apply(lambda column: (TODAY - column).dt.days.astype(float))


def fit(frame: pd.DataFrame, paid: Any, seed: int = 0) -> Pipeline:
    """Boosted trees behind encoders; the trees take missing cells as they are."""
    from sklearn.preprocessing import FunctionTransformer

    encoders = ColumnTransformer(
        [
            (
                "names",
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                ["job", "zodiac"],
            ),
            ("order", OrdinalEncoder(categories=[EDUCATION]), ["education"]),
            ("dates", FunctionTransformer(count_days), ["since"]),
        ],
        remainder="passthrough",
    )
    trees = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.1, max_features=0.5, random_state=seed
    )
    return Pipeline([("encoders", encoders), ("trees", trees)]).fit(frame, paid)


def run(
    path: str, rows: int = 24, budget: int = 100, seeds: int = 5, **options: Any
) -> standfast.Results:
    """The results for the first rows of a file, of three pipelines that were trained with other seeds."""
    table = pd.read_csv(path, parse_dates=["since"])
    frame, paid = table.drop(columns="paid"), table["paid"]
    half = len(frame) // 2
    train, asked = frame[half:], frame[:rows]
    models = {f"trees#{seed}": fit(train, paid[half:], seed) for seed in range(3)}
    changes = TableChanges(
        {"income": "2%", "debt": "5%", "since": 30, "zodiac": "category"},
        may_become_missing=0.0,
    )
    metrics = {
        "worst case": standfast.metrics.WorstCase(changes, similarity="spearman", budget=budget),
        "seeds": standfast.metrics.SeedAgreement(seeds=seeds),
    }
    explainers = {
        "TreeSHAP": standfast.explainers.get("tree_shap"),
        "Shapley sampling": "shapley_sampling",
    }
    return standfast.evaluate(models, explainers, asked, metrics, reference=train, **options)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("path")
    given = parser.parse_args()
    if given.what == "make":
        frame, logit = make_credit(2000)
        paid = np.random.default_rng(1).random(len(frame)) < 1 / (1 + np.exp(-logit))
        frame.assign(paid=np.where(paid, "yes", "no")).to_csv(given.path, index=False)
    else:
        found = run(given.path)
        print(found)
        print(found.agreement().variance)
        print(found.to_html("report.html"))


if __name__ == "__main__":
    main()
