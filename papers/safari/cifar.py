"""SAFARI: Table 8, explainers on four architectures for CIFAR-10.

The setting is that of `papers.safari.parts`, except the radius, 0.03, and the networks. A small run uses
narrow networks of the zoo. A full run uses networks of the published widths, from files that `standfast train` makes
(`load_trained`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
from torch import nn

from papers.base import Part, Reproduction, Scale, call_function, if_small, reproductions
from papers.reading import Outcomes, Verdict, all_hold, group_by_outcome
from papers.safari.events import (
    HAT,
    HEADINGS,
    TILDE,
    is_more_robust,
    make_columns,
    make_metrics,
    select_rows,
)
from papers.safari.parts import PAPER_GENETIC, PAPER_SUBSET
from standfast import zoo
from standfast.zoo.networks.names import architectures
from standfast.zoo.programs import fill, read_weights

RADIUS = 0.03

# ---- the networks ----

#: by the paper's name: the zoo's small network, and the architecture of the published width
NETWORKS = {
    "ResNet20": ("resnet20-cifar10", "resnet20"),
    "MobileNetV2": ("mobilenetv2w025-cifar10", "mobilenet_v2"),
    "VGG16": ("vgg16w8-cifar10", "vgg16"),
    "DLA": ("dla34w2-cifar10", "dla"),
}
_ROWS = 64  # rows forwarded at once on a CPU: as many as fit into the cache
_FOLDER = "models"  # the folder of the networks that `standfast train` makes


def load_trained(architecture: str, weights: str) -> nn.Module:
    """A network of the published width for CIFAR-10, with weights from a file that `standfast train` made.

    Raises `MissingWeightsError`, with the command that makes the file, if it does not exist.
    """
    file = Path(weights)
    if not file.is_file():
        command = f"standfast train --model {architecture} --data cifar10 --augment shift_flip --epochs 100"
        raise zoo.MissingWeightsError(f"{weights} is missing; `{command}` makes it")
    module = architectures[architecture](num_classes=10)
    fill(module, read_weights(file.read_bytes()))
    return module


def _models(scale: Scale) -> dict[str, Any]:
    if scale == "small":
        known = zoo.names()
        return {own: {"name": name, "batch_size": _ROWS} for own, (name, _) in NETWORKS.items() if name in known}
    function = f"{__name__}:load_trained"
    return {
        own: call_function(function, architecture=a, weights=f"{_FOLDER}/{a}-cifar10-natural.safetensors")
        for own, (_, a) in NETWORKS.items()
    }


# ---- the study ----

_EXPLAINERS = ("Gradient x Input", "Integrated Gradients", "GradCAM", "DeepLift")
_STEPS: dict[Scale, int] = {"small": 5, "full": 50}  # steps of integrated gradients; Captum's default is 50
_SMALL: tuple[dict[str, Any], dict[str, Any]] = (
    {"evaluations": 200},
    {"particles": 30, "quantile": 0.25, "moves": 2, "floor": -20.0},
)
_IMAGES: dict[Scale, int] = {"small": 6, "full": 100}

_PAPER: dict[str, tuple[tuple[float, ...], ...]] = {
    "ResNet20": (
        (0.0166, 0.0375, 0.0044, 0.0212),
        (0.8562, 0.8308, 0.8079, 0.8551),
        (-20.32, -45.05, -35.93, -21.22),
        (-80.73, -87.64, -68.27, -81.81),
    ),
    "MobileNetV2": (
        (0.0552, 0.1167, 0.0523, 0.0712),
        (0.7689, 0.7885, 0.7085, 0.7707),
        (-12.75, -34.99, -16.01, -8.70),
        (-70.32, -62.19, -82.17, -68.38),
    ),
    "VGG16": (
        (0.0767, 0.1227, 0.1133, 0.0206),
        (0.7813, 0.8240, 0.8637, 0.8358),
        (-14.42, -53.48, -47.52, -44.25),
        (-59.74, -54.155, -49.90, -66.02),
    ),
    "DLA": (
        (0.0737, 0.0953, 0.0078, 0.0930),
        (0.7919, 0.8111, 0.2113, 0.7983),
        (-8.48, -28.69, -4.31, -9.77),
        (-39.57, -37.74, -77.57, -36.40),
    ),
}
PAPER_ROWS = {
    f"{network}, {explainer}": numbers
    for network, table in _PAPER.items()
    for explainer, numbers in zip(_EXPLAINERS, zip(*table, strict=True), strict=True)
}


def _study(scale: Scale) -> dict[str, Any]:
    explainers: dict[str, Any] = {
        "Gradient x Input": "input_x_gradient",
        "Integrated Gradients": {"name": "integrated_gradients", "steps": _STEPS[scale]},
        "GradCAM": "gradcam",
        "DeepLift": "deeplift",
    }
    return {
        "title": "Explainers on four architectures for CIFAR-10 (Table 8)",
        "samples": _IMAGES[scale],
        "samples_per_job": _IMAGES[scale] if scale == "small" else 10,
        "data": {"CIFAR-10": "cifar10:test"},
        "models": _models(scale),
        "neighbourhood": {"linf": RADIUS},
        "explainers": explainers,
        "metrics": make_metrics(*(_SMALL if scale == "small" else (PAPER_GENETIC, PAPER_SUBSET))),
    }


def _by_model(frame: pl.DataFrame, heading: str, pairs: Sequence[tuple[str, str]]) -> Outcomes:
    """For each model, whether in all pairs the first explainer is more robust."""
    models = frame["model"].unique(maintain_order=True).to_list()
    return {model: is_more_robust(frame.filter(pl.col("model") == model), heading, pairs) for model in models}


def _mostly(outcomes: Sequence[bool | None]) -> bool | None:
    """Whether more than half of the outcomes hold."""
    yes, no = outcomes.count(True), outcomes.count(False)
    return True if 2 * yes > len(outcomes) else False if outcomes and 2 * no >= len(outcomes) else None


def _varies(frame: pl.DataFrame, heading: str) -> bool | None:
    """Whether the order of two explainers clearly differs between two architectures."""
    orders = [set(_by_model(frame, heading, [pair]).values()) for pair in permutations(_EXPLAINERS, 2)]
    if any({True, False} <= order for order in orders):
        return True
    return False if orders and all(None not in order and order for order in orders) else None


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    if not len(frame):
        return []

    def is_first(name: str, headings: Sequence[str]) -> dict[str, Outcomes]:
        pairs = [(name, other) for other in _EXPLAINERS if other != name]
        return {heading: _by_model(frame, heading, pairs) for heading in headings}

    def flatten(outcomes: Mapping[str, Outcomes]) -> Outcomes:
        return {f"{heading} {model}": holds for heading, own in outcomes.items() for model, holds in own.items()}

    ig, cam = is_first("Integrated Gradients", HAT), is_first("GradCAM", TILDE)
    always = {heading: all_hold(own.values()) for heading, own in ig.items()}
    return [
        *group_by_outcome("Integrated Gradients is the most robust for F-hat", flatten(ig)),
        *group_by_outcome("for all architectures, Integrated Gradients ranks first for F-hat", always),
        *group_by_outcome("GradCAM is the most robust for F-tilde (our reading)", flatten(cam)),
        (
            "in most cases (architectures and columns), GradCAM ranks first for F-tilde",
            "both",
            _mostly(list(flatten(cam).values())),
        ),
        *group_by_outcome("robustness for F-tilde varies with the architecture", {h: _varies(frame, h) for h in TILDE}),
    ]


def _notes(frame: pl.DataFrame) -> list[str]:
    """Notes on the most robust explainers by the mean, and on the share of class changes that were found."""
    notes = []
    for heading, (_, column, higher) in HEADINGS.items():
        own = select_rows(frame, heading)
        if column not in own.columns or not len(own):
            continue
        means = own.group_by("model", "explainer", maintain_order=True).agg(pl.col(column).mean()).drop_nulls(column)
        best = means.sort(column, descending=higher, maintain_order=True).unique("model", maintain_order=True)
        tied = means.join(best, on=["model", column]).group_by("model", maintain_order=True).agg("explainer")
        leaders = {model: " and ".join(names) for model, names in tied.iter_rows()}
        models = [model for model in own["model"].unique(maintain_order=True) if model in leaders]
        notes.append(f"most robust by the mean, {heading}: " + ", ".join(f"{m} {leaders[m]}" for m in models))
    if "found" in frame.columns:
        own = frame.filter(pl.col("label") == "worst F-tilde")
        shares = own.group_by("model", maintain_order=True).agg(pl.col("found").cast(pl.Float64).mean())
        texts = [f"{model} {share:.0%}" for model, share in shares.iter_rows() if share is not None]
        notes.append(f"class changes found by the search for F-tilde: {', '.join(texts)}")
    return notes


def _departures(scale: Scale) -> str:
    cards = {own: zoo.card(name) for own, (name, _) in NETWORKS.items() if name in zoo.names()}
    accuracies = ", ".join(f"{own} {card['test_accuracy']:.1%}" for own, card in cards.items())
    settings, subset = _SMALL
    narrow = (
        f"networks of about a quarter of a million parameters, trained on 20000 images: {accuracies} (ResNet20 87.8%);"
        f" {_IMAGES[scale]} images (not stated), worst cases by block search of {settings['evaluations']} evaluations"
        f" (GA, 500000), {subset['particles']} particles with {subset['moves']} moves (250), ln P down to"
        f" {subset['floor']:g} (-100)"
    )
    published = f"{_IMAGES[scale]} images (not stated); networks by `standfast train`, from {_FOLDER}/"
    return (
        (if_small(scale, narrow) or f"{published}, ")
        + "the first images of the test set (random); subset simulation in Gaussian space; integrated gradients with"
        f" {_STEPS[scale]} steps (not stated); GradCAM at the last convolution, of 8x8 positions for ResNet20, 4x4 for"
        " MobileNetV2 and DLA, 2x2 for VGG16; sol_F-tilde only where a class change was found"
    )


ARCHITECTURE_PART = Part(
    name="safari-architectures",
    title="Robustness of explainers by architecture, CIFAR-10: mean [95% interval]",
    study=_study,
    columns=make_columns(PAPER_ROWS),
    departures=_departures,
    notes=_notes,
    verdicts=_verdicts,
    rows=("model", "explainer"),
)

reproductions.add("safari-table8", Reproduction("SAFARI, Table 8: architectures", (ARCHITECTURE_PART,)))
