"""SAFARI: Table 8, explainers on four architectures for CIFAR-10.

The setting is that of `papers.safari.parts`, except the radius, 0.03, and the networks. A small run uses
narrow networks of the zoo. A full run uses networks of the published widths, from files that `standfast train` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import polars as pl

from papers.files import read_numbers
from papers.reading import Outcomes, Pairs, Verdict, all_hold, group_by_outcome
from papers.safari.parts import (
    HAT,
    HEADINGS,
    TILDE,
    describe_found,
    judge_order,
    make_columns,
    make_part,
)

EXPLAINERS = ("Gradient x Input", "Integrated Gradients", "GradCAM", "DeepLift")


def _judge(frame: pl.DataFrame) -> list[Verdict]:
    integrated = _find_first(frame, "Integrated Gradients", HAT)
    cam = _find_first(frame, "GradCAM", TILDE)
    always = {heading: all_hold(own.values()) for heading, own in integrated.items()}
    varies = {heading: _varies(frame, heading) for heading in TILDE}
    most = _mostly([holds for own in cam.values() for holds in own.values()])
    return [
        *group_by_outcome(
            "Integrated Gradients is the most robust for F-hat", _flatten(integrated)
        ),
        *group_by_outcome(
            "for all architectures, Integrated Gradients ranks first for F-hat", always
        ),
        *group_by_outcome("GradCAM is the most robust for F-tilde (our reading)", _flatten(cam)),
        (
            "in most cases (architectures and columns), GradCAM ranks first for F-tilde",
            "both",
            most,
        ),
        *group_by_outcome("robustness for F-tilde varies with the architecture", varies),
    ]


def _find_first(frame: pl.DataFrame, name: str, headings: Sequence[str]) -> dict[str, Outcomes]:
    """For each quantity and model, whether an explainer is more robust than all others."""
    pairs = [(name, other) for other in EXPLAINERS if other != name]
    return {heading: _judge_models(frame, pairs, heading) for heading in headings}


def _judge_models(frame: pl.DataFrame, pairs: Pairs, heading: str) -> Outcomes:
    outcomes = {}
    for model in frame["model"].unique(maintain_order=True):
        outcomes[model] = judge_order(frame.filter(pl.col("model") == model), pairs, [heading])[
            heading
        ]
    return outcomes


def _flatten(outcomes: dict[str, Outcomes]) -> Outcomes:
    return {
        f"{heading} {model}": holds
        for heading, own in outcomes.items()
        for model, holds in own.items()
    }


def _mostly(outcomes: Sequence[bool | None]) -> bool | None:
    """Whether more than half of the outcomes hold."""
    yes, no = outcomes.count(True), outcomes.count(False)
    return (
        True if 2 * yes > len(outcomes) else False if outcomes and 2 * no >= len(outcomes) else None
    )


def _varies(frame: pl.DataFrame, heading: str) -> bool | None:
    """Whether the order of two explainers clearly differs between two architectures."""
    orders = [
        set(_judge_models(frame, [pair], heading).values()) for pair in permutations(EXPLAINERS, 2)
    ]
    if any({True, False} <= order for order in orders):
        return True
    return None if any(None in order for order in orders) else False


ARCHITECTURE_PART = make_part(
    "table8",
    "Robustness of explainers by architecture, CIFAR-10: mean [95% interval]",
    make_columns(HEADINGS, read_numbers("safari/table8.csv", keys=2)),
    notes=describe_found,
    verdicts=_judge,
    rows=("model", "explainer"),
)
