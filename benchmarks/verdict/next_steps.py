"""What next steps advise in five situations, and what they change when they are run as advised.

    python benchmarks/verdict/next_steps.py              all situations, in five minutes
    python benchmarks/verdict/next_steps.py table text   these alone
    python benchmarks/verdict/next_steps.py smoother     explainers and their smoother relatives on digits

Prints a Markdown table with a row for each step: why, what it was said to cost and what it took, and what became of the
explainers that it is about. A step that changed nothing has a row as well.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import standfast
from standfast.neighbourhoods import TableChanges, Typos
from standfast.race import RaceOutcome
from standfast.report import Results
from standfast.report.next_steps import PrintedStep
from standfast.results.next_steps import SMOOTHER

#: the names of a session, with what they stand for
Session = dict[str, Any]
#: the results of a situation, and the session in which they were made
Situation = tuple[Results, Session]
WORST = standfast.metrics.WorstCase


def evaluate_digits(weights: str, explainers: list[str], samples: int, radius: float) -> Situation:
    """Explainers of a network of digits, of which each pixel moves by up to a radius."""
    digits = standfast.data.bundled("digits")
    model = standfast.Model(standfast.zoo.load(weights), bounds=digits.bounds)
    metrics = {"worst": WORST(standfast.LinfBall(radius), budget=40), "aopc": "aopc:preset=quick"}
    found = standfast.evaluate(model, explainers, digits[:samples], metrics, progress=False)
    # what the network was not evaluated on is enough to train it a little further
    train = digits[100:]
    session = {
        "model": model,
        "train_inputs": train.inputs,
        "train_labels": train.labels,
        "inputs": digits,
    }
    return found, {**session, "evaluated": samples}


def all_bad() -> Situation:
    """A trained network, and changes that can be seen."""
    return evaluate_digits("lenet5-mnist-pgd", ["saliency"], 16, 0.1)


def all_undecided() -> Situation:
    """Few samples."""
    return evaluate_digits("lenet5-mnist", ["input_x_gradient", "deeplift", "gradcam"], 10, 8 / 255)


def six_explainers() -> Situation:
    """Six explainers on as many digits as show that one of them is good."""
    explainers = [
        "input_x_gradient",
        "gradcam",
        "guided_backprop",
        "deeplift",
        "lrp_epsilon_plus",
        "smoothgrad:samples=4,noise=0.1",
    ]
    return evaluate_digits("lenet5-mnist", explainers, 40, 8 / 255)


def table() -> Situation:
    """A data frame, in which other towns are tried."""
    rng = np.random.default_rng(0)
    rows = 600
    frame = pd.DataFrame(
        {
            "income": np.round(rng.lognormal(8, 0.4, rows)),
            "debt": np.round(rng.lognormal(8, 0.8, rows)),
            "age": rng.integers(18, 80, rows),
            "town": rng.choice(["Aston", "Barton", "Carlton", "Dalton"], rows),
        }
    )
    town = frame["town"].map({"Aston": -0.5, "Barton": 0.0, "Carlton": 0.3, "Dalton": 0.6})
    logit = (
        2 * np.log(frame["income"] / 3000)
        - np.log(frame["debt"] / 3000)
        + town
        + rng.normal(0, 0.3, rows)
    )
    encoder = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    pipeline = make_pipeline(
        encoder, RandomForestClassifier(30, min_samples_leaf=5, random_state=0)
    )
    pipeline.fit(frame[100:], (logit > 0)[100:])
    changes = TableChanges({"income": "2%", "debt": "2%", "town": "category"})
    metrics = {"worst": WORST(changes, absolute=False, budget=40), "aopc": "aopc:preset=quick"}
    reference = frame[100:]
    found = standfast.evaluate(
        pipeline,
        ["occlusion", "kernel_shap:samples=40"],
        frame[:16],
        metrics,
        reference=reference,
        progress=False,
    )
    return found, {"model": pipeline, "inputs": frame, "reference": reference, "evaluated": 16}


def text() -> Situation:
    """Sentences with typing errors."""
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    metrics = {"worst": WORST(Typos(rate=0.1), budget=30), "aopc": "aopc:preset=quick"}
    explainers = ["saliency", "integrated_gradients:steps=8"]
    found = standfast.evaluate(reader, explainers, texts[:12], metrics, progress=False)
    return found, {"model": reader, "inputs": texts, "evaluated": 12}


SITUATIONS: dict[str, Callable[[], Situation]] = {
    "all bad": all_bad,
    "all undecided": all_undecided,
    "six explainers": six_explainers,
    "table": table,
    "text": text,
}


def run_step(step: PrintedStep, found: Results, session: Session) -> Results | RaceOutcome:
    """The results after a step, run as it is printed."""
    inputs = session["inputs"]
    if step.kind not in ("samples", "race"):
        inputs = inputs[: session["evaluated"]]
    names = {"standfast": standfast, "torch": torch, **session, "inputs": inputs}
    done = eval(step.line, names)
    if isinstance(done, Results | RaceOutcome):
        return done
    # a network was trained further: the same question again
    stored = {label: metric.options for label, metric in found.metrics.items()}
    ball = standfast.LinfBall(stored["worst"]["neighbourhood"]["radius"])
    metrics = {"worst": WORST(ball, budget=stored["worst"]["budget"]), "aopc": "aopc:preset=quick"}
    explainers = [name for name in found.explainers if name not in found.explainers.controls]
    return standfast.evaluate(session["model"], explainers, inputs, metrics, progress=False)


def describe(results: Results, explainer: str) -> str:
    """What a verdict says of an explainer, with its medians by measures of stability."""
    verdict = results.verdict()
    open_ones = [ground.explainer for ground in verdict.undecided]
    refused = [ground.explainer for ground in verdict.refuse]
    state = "passes in part"
    for names, words in (
        (verdict.show, "may be shown"),
        (refused, "refused"),
        (open_ones, "undecided"),
    ):
        if explainer in names:
            state = words
    values = [
        f"{row.value:.2f}"
        for metric in results.summary.metrics
        if metric.metric.spec.asks == "stability"
        and (row := metric.find_row(explainer)) is not None
        and row.value is not None
    ]
    return f"{explainer}: {state} ({', '.join(values) or '-'})"


def say_what_became(step: PrintedStep, after: Results | RaceOutcome) -> str:
    """What became of the explainers that a step is about, or what a race has chosen."""
    if isinstance(after, RaceOutcome):
        return after.why
    about = [step.instead] if step.instead else list(step.explainers)
    return "; ".join(describe(after, explainer) for explainer in about)


def print_rows(name: str, situation: Callable[[], Situation]) -> None:
    """A row for each step of a situation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, session = situation()
        own = [
            explainer
            for explainer in found.explainers
            if explainer not in found.explainers.controls
        ]
        before = "; ".join(describe(found, explainer) for explainer in own)
        steps = found.next_steps()
        if not steps:
            print(f"| {name}: {before} | nothing | - | - | - |", flush=True)
        for step in steps:
            began = time.monotonic()
            after = run_step(step, found, session)
            took = time.monotonic() - began
            became = say_what_became(step, after)
            print(
                f"| {name}: {before} | {step.why}: `{step.line}` | {step.cost} | {took:.0f} s | {became} |",
                flush=True,
            )


def print_smoother() -> None:
    """A row for each explainer and radius: its median worst similarity, and that of its relative."""
    digits = standfast.data.bundled("digits")[:16]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    print(
        "| explainer | relative | radius | worst | of the relative | times as long |\n"
        "| --- | --- | --- | --- | --- | --- |"
    )
    for radius in (8 / 255, 0.1):
        metrics = {"worst": WORST(standfast.LinfBall(radius), budget=60)}
        for name, relative in SMOOTHER.items():
            found = standfast.evaluate(
                model, [name, relative.text], digits, metrics, controls=False, progress=False
            )
            words = [describe(found, each).partition(": ")[2] for each in (name, relative.text)]
            seconds = dict(
                found.jobs.group_by("explainer").agg(pl.col("seconds").sum()).iter_rows()
            )
            times = seconds[relative.text] / seconds[name]
            print(
                f"| {name} | {relative.text} | {radius:.3f} | {' | '.join(words)} | {times:.1f} |",
                flush=True,
            )


def print_training_cost() -> None:
    """How many times as long a step with a penalty on the curvature takes."""
    train = standfast.data.bundled("digits")
    seconds: dict[str, float] = {}
    schemes = standfast.training.schemes
    for scheme in (
        schemes.Natural(),
        schemes.GradientHessian(gradient_weight=0.0, hessian_weight=0.5),
    ):
        began = time.monotonic()
        standfast.training.classifier.train_classifier(
            standfast.zoo.load("lenet5-mnist"),
            train.inputs,
            train.labels,
            scheme=scheme,
            epochs=10,
            generator=torch.Generator().manual_seed(0),
        )
        seconds[scheme.name] = time.monotonic() - began
    print(f"\ntraining: {seconds['gradient_hessian'] / seconds['natural']:.1f} times as long")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("situations", nargs="*", help=f"of {', '.join(SITUATIONS)}; by default all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["STANDFAST_CACHE"] = "off"  # what is stored would take no time
    if "smoother" in options.situations:
        print_smoother()
        print_training_cost()
        return
    print(
        "| situation | advice | said to take | took | what became of it |\n| --- | --- | --- | --- | --- |"
    )
    for name in options.situations or SITUATIONS:
        print_rows(name, SITUATIONS[name])


if __name__ == "__main__":
    main()
