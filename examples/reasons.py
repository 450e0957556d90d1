"""The reasons of declined applicants: which can be stated, and which would be others after the next training.

    python examples/reasons.py

5,000 generated applicants, a pipeline with LightGBM, and TreeSHAP. Twelve who are declined get a card each: with models
that were trained again on resampled rows, with other rows in the background, and with incomes and debts that are known
to within 2%. The first card is written as a page, `reasons.html`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import standfast
from standfast.neighbourhoods import TableChanges

ROWS, DECLINED = 5000, 12
RULE = "declined: P(default) > 0.35"
CHANGES = TableChanges({"income": "2%", "debt": "2%"})


def make_applicants(rows: int = ROWS, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Applicants, and who of them did not pay back."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": generator.lognormal(8.0, 0.5, rows).round(-1),
            "debt": generator.lognormal(7.0, 1.0, rows).round(-1),
            "age": generator.integers(18, 80, rows),
            "years employed": generator.integers(0, 30, rows),
            "cards": generator.integers(0, 7, rows),
            "late payments": generator.poisson(0.8, rows),
            "town": generator.choice(["Bonn", "Kiel", "Ulm"], rows),
            "purpose": generator.choice(["car", "house", "travel"], rows),
        }
    )
    log_odds = (
        -1.5 * np.log(frame["income"] / 3000)
        + 0.8 * np.log((frame["debt"] + 10) / 1000)
        + 0.7 * frame["late payments"]
        - 0.03 * (frame["age"] - 40)
        - 0.04 * frame["years employed"]
        + 0.4 * (frame["purpose"] == "travel")
        - 1.0
    )
    defaults = generator.random(rows) < 1 / (1 + np.exp(-log_odds))
    return frame, np.where(defaults, "default", "repaid")


def train(
    frame: pd.DataFrame, labels: np.ndarray[Any, Any], seed: int = 0, resample: bool = False
) -> Pipeline:
    """A pipeline that is fitted on all rows, or on rows drawn with replacement."""
    rows = np.arange(len(frame))
    if resample:
        rows = np.random.default_rng(seed).integers(0, len(frame), len(frame))
    encoder = make_column_transformer(
        (OrdinalEncoder(), ["town", "purpose"]), remainder="passthrough"
    )
    trees = LGBMClassifier(
        n_estimators=60,
        num_leaves=15,
        subsample=0.8,
        subsample_freq=1,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
    )
    return make_pipeline(encoder.set_output(transform="pandas"), trees).fit(
        frame.iloc[rows], labels[rows]
    )


def find_declined(model: Pipeline, frame: pd.DataFrame, count: int = DECLINED) -> pd.DataFrame:
    """The first applicants whose probability of a default is above the cut-off."""
    probabilities = model.predict_proba(frame)[:, list(model.classes_).index("default")]
    return frame[probabilities > 0.35].head(count)


def main(models: int = 42) -> None:
    """Print what can be stated of the declined applicants."""
    frame, labels = make_applicants()
    model = train(frame, labels)
    found = standfast.reasons(
        model,
        "tree_shap:background=reference",
        find_declined(model, frame),
        reference=frame,
        decision=RULE,
        measurement=CHANGES,
        retrain=lambda seed: train(frame, labels, seed, resample=True),
        models=models,
        draws=100,
    )
    print(found.to_text(0))
    for first in (1, 4):
        share = found.share_of_stated(first)
        print(
            f"the first {first} can be stated: {share.count} of {share.total} ({share.low:.0%} to {share.high:.0%})"
        )
    print("doubtful:", found.count_doubtful())
    found.to_html(Path("reasons.html"), 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
