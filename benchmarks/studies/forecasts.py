"""What `estimate` and a limit of minutes foretell, and what then happens, for ten questions.

    PYTHONPATH=. python benchmarks/studies/forecasts.py --out EMPTY [--minutes 2] [--only digits frame]
        [--part free] [--folder DIR]

Five kinds of inputs, each asked twice. With explicit options, the seconds of `standfast.estimate` are compared with
those that `standfast.evaluate` takes. With free ones, `evaluate(..., minutes=...)` says how many samples it will
evaluate; the table has how many there are when the time is up, and when that is. Seconds are those of the clock, so
the machine must be idle. Photographs need the packages of `papers/natural_changes/photos.py`, reviews those of
`examples/text.py`; DIR is a folder with these packages.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import standfast

#: the options that are given, and the same metrics without options
EXPLICIT = {"worst_case": "worst_case:budget=100", "aopc": "aopc:steps=30,samples=1"}
#: with explicit options, so many of the inputs that take long
FEW = {"photographs": 2, "reviews": 4}


def ask_digits() -> dict[str, Any]:
    """24 digits of 28 x 28."""
    digits = standfast.data.bundled("digits")[:24]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    return {"model": model, "explainers": ["saliency", "gradcam"], "inputs": digits.inputs}


def ask_photographs() -> dict[str, Any]:
    """Eight photographs of 224 x 224."""
    from papers.natural_changes.photos import load_lite0, load_recognised_photos

    photos = load_recognised_photos(8)
    model = standfast.Model(load_lite0(), bounds=(0.0, 1.0))
    return {
        "model": model,
        "explainers": ["gradcam", "integrated_gradients"],
        "inputs": photos.inputs,
    }


def ask_series() -> dict[str, Any]:
    """20 series of 4 x 500."""
    inputs = standfast.data.load("waves:test").inputs[:20].clamp(-10, 10)
    model = standfast.Model(standfast.zoo.load("cnn-waves"), bounds=(-10.0, 10.0))
    return {"model": model, "explainers": ["saliency", "input_x_gradient"], "inputs": inputs}


def ask_frame() -> dict[str, Any]:
    """100 rows of 30 columns, a forest behind a scaler."""
    data = load_breast_cancer(as_frame=True)
    frame: pd.DataFrame = data.data
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(30, random_state=0)).fit(
        frame, data.target
    )
    explainers = ["kernel_shap:samples=100", "occlusion"]
    return {
        "model": pipeline,
        "explainers": explainers,
        "inputs": frame[:100],
        "reference": frame[100:],
    }


def ask_reviews() -> dict[str, Any]:
    """100 film reviews, MiniLM."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import text as example

    model, texts = example.load()
    reviews = (texts * (100 // len(texts) + 1))[:100]
    return {"model": model, "explainers": ["input_x_gradient", "occlusion"], "inputs": reviews}


QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "digits": ask_digits,
    "photographs": ask_photographs,
    "series": ask_series,
    "frame": ask_frame,
    "reviews": ask_reviews,
}


def compare_explicit(name: str, question: dict[str, Any], folder: Path) -> None:
    """Seconds that are foretold, and those that everything takes."""
    metrics = list(EXPLICIT.values())
    question = {**question, "inputs": question["inputs"][: FEW.get(name)]}
    if name == "photographs":  # integrated gradients would take an hour
        question["explainers"] = ["gradcam", "saliency"]
    began = time.perf_counter()
    forecast = standfast.estimate(**question, metrics=metrics, sanity=False, controls=False)
    asking = time.perf_counter() - began
    began = time.perf_counter()
    standfast.evaluate(
        **question, metrics=metrics, sanity=False, controls=False, progress=False, out=folder / name
    )
    took = time.perf_counter() - began
    ratio = forecast.seconds / took
    print(
        f"| {name} | given | {asking:.1f} | {forecast.seconds:.0f} s | {took:.0f} s | {ratio:.2f} |",
        flush=True,
    )


def compare_free(name: str, question: dict[str, Any], minutes: float, folder: Path) -> None:
    """Samples that are foretold, those that are there when the time is up, and when that is."""
    began = time.perf_counter()
    results = standfast.evaluate(
        **question,
        metrics=list(EXPLICIT),
        minutes=minutes,
        progress=False,
        out=folder / f"{name}-free",
    )
    took = time.perf_counter() - began
    limit = results.manifest["limit"]
    ((foretold,), ((done, whole),)) = (
        limit["forecast"]["samples"].values(),
        limit["samples"].values(),
    )
    chosen = "; ".join(results.verdict().left_out) or "everything"
    samples = f"{foretold} of {whole} samples | {done} of {whole} after {took / 60:.1f} minutes"
    print(
        f"| {name} | {minutes:g} minutes: {chosen} | | {samples} | {done / max(foretold, 1):.2f} |",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Forecasts of time, and the truth.")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", default=list(QUESTIONS), choices=list(QUESTIONS))
    parser.add_argument(
        "--part", choices=("both", "given", "free"), default="both", help="which options"
    )
    parser.add_argument(
        "--folder", type=Path, nargs="*", default=[], help="with packages of weights"
    )
    parser.add_argument("--out", type=Path, required=True, help="an empty folder for results")
    options = parser.parse_args()
    sys.path[:0] = [str(folder) for folder in options.folder]
    warnings.filterwarnings("ignore")
    print(
        "| question | options | s to ask | foretold | true | ratio |\n| --- | --- | ---: | --- | --- | ---: |"
    )
    for kind in options.only:
        asked = QUESTIONS[kind]()
        if options.part != "free":
            compare_explicit(kind, asked, options.out)
        if options.part != "given":
            compare_free(kind, asked, options.minutes, options.out)
