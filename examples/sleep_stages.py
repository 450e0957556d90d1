"""The sleep-stage classifiers of the package yasa, on synthetic rows of their features: does SHAP hold?

    python examples/sleep_stages.py          about two minutes; needs `pip install --no-deps yasa==0.8.1` and lightgbm

yasa (Vallat and Walker 2021) carries boosted trees for 65 features of an EEG. Its files are pickles of an old version.
They are not opened: the text of LightGBM's own model format is cut out of them, which runs no code.
The rows are random numbers with a common factor, and not sleep. So the numbers say how the method behaves on a real
model, and nothing about patients.
"""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import standfast
from standfast.neighbourhoods import TableChanges

FILE = "classifiers/clf_eeg_lgb_0.5.0.joblib"


def find_file() -> Path | None:
    """yasa's classifier of an EEG alone; None where yasa is not installed."""
    found = importlib.util.find_spec("yasa")  # which does not import it
    path = None if found is None or found.origin is None else Path(found.origin).parent / FILE
    return path if path is not None and path.exists() else None


def read_booster(path: Path) -> Any:
    """The booster of a file: the text from `tree` to the end of its parameters."""
    import lightgbm

    content = zlib.decompress(path.read_bytes())
    start, end = (
        content.index(b"tree\nversion="),
        content.index(b"end of parameters\n") + len(b"end of parameters\n"),
    )
    return lightgbm.Booster(model_str=content[start:end].decode())


def make_rows(names: list[str], rows: int, seed: int = 0) -> pd.DataFrame:
    """Standardised features that share a factor."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 1))
    return pd.DataFrame(0.6 * common + 0.8 * rng.normal(size=(rows, len(names))), columns=names)


def run(path: Path, rows: int = 20, budget: int = 100, **options: Any) -> standfast.Results:
    """TreeSHAP of the real model: its worst case for changes of a tenth of a standard deviation, and its seeds."""
    booster = read_booster(path)
    train = make_rows(booster.feature_name(), 400)
    metrics = {
        "worst case": standfast.metrics.WorstCase(
            TableChanges(0.1), similarity="spearman", budget=budget
        ),
        "seeds": standfast.metrics.SeedAgreement(seeds=5),
    }
    explainers = {"TreeSHAP": standfast.explainers.get("tree_shap"), "occlusion": "occlusion"}
    return standfast.evaluate(
        booster, explainers, train[:rows], metrics, reference=train, **options
    )


if __name__ == "__main__":
    model = find_file()
    if model is None:
        raise SystemExit("yasa is not installed: pip install --no-deps yasa==0.8.1")
    found = run(model)
    print(found)
    print(found.to_html("sleep.html"))
