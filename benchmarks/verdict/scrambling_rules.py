"""By which rule scrambled weights pass *learned* least often, and trained ones most often.

    python benchmarks/verdict/scrambling_rules.py [--scramblings 120] [--samples 100] [--models CBF logistic ...]

Gradient x input of each scrambling of a model is measured once: its removals, and all other checks. Then every
scrambling is compared with others, drawn at random, as the sanity checks do; and so is the trained model. What is
printed is, for each rule, how often scramblings pass all checks, and how often the trained model does. So the
scramblings with which a map is compared vary here, while the checks themselves always draw the same ones.

Measurements are kept in the folder.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import torch
from army_models import KINDS, Subject
from scramblings import MODELS
from torch import Tensor

from standfast.explainers import Explainer, RandomisedExplainer, get
from standfast.metrics.sanity import SanityChecks, checks
from standfast.metrics.sanity.removal import (
    Removal,
    compare_margins,
    draw_shuffles,
    mark_first,
    order_features,
)
from standfast.metrics.sanity.scrambling import SCRAMBLED
from standfast.results.sanity import PASSING, decide_checks, decide_mean, find_luck
from standfast.tensors import Array

ALL_MODELS = {**{name: make for kind in KINDS.values() for name, make in kind.items()}, **MODELS}
#: models on which scramblings of gradient x input come near passing, and some on which the trained model hardly passes
DEFAULT = [
    "CBF",
    "reported",
    "logistic",
    "cancer",
    "topics lstm",
    "lstm",
    "devices",
    "pens",
    "products",
]
#: the first scrambling has this seed; those of the checks themselves are from 0 on
FIRST_SEED = 1000
#: draws of other scramblings for each scrambling, and for the trained model
DRAWS, TRAINED_DRAWS = 8, 200


@dataclass(frozen=True)
class Measured:
    """What is known of the maps of one explainer.

    Attributes:
        rows: what the checks measure, but for the comparison with scrambled models.
        margins: without what the maps mark, `(numbers, n)`.
        marked: the features that are removed, bool `(numbers, n, features)`.
    """

    rows: pl.DataFrame
    margins: Tensor
    marked: Tensor


@dataclass(frozen=True)
class Rule:
    """When *learned* is passed.

    Attributes:
        groups: of samples, each compared with three scramblings of its own.
        passing: what the lower end of the interval of the mean must reach.
        luck: the largest probability that a scrambling gets as far by luck.
        smallest: whether luck looks at the smallest removal alone, or else at the mean over all.
        each_beaten: whether more than half of the removals must be won against every single scrambling.
    """

    groups: int
    passing: float = PASSING["learned"]
    luck: float = 1.0
    smallest: bool = True
    each_beaten: bool = False


RULES = {
    "3": Rule(1),
    "3, luck 5%": Rule(1, luck=0.05),
    "15": Rule(5),
    "15, luck 5%": Rule(5, luck=0.05),
    "30": Rule(10),
    "30, each beaten": Rule(10, each_beaten=True),
    "30, luck 10%": Rule(10, luck=0.1),
    "30, luck 5%": Rule(10, luck=0.05),
    "30, luck 2%": Rule(10, luck=0.02),
    "30, luck 5% of all removals": Rule(10, luck=0.05, smallest=False),
    "30 above 0.65, luck 5%": Rule(10, passing=0.65, luck=0.05),
}
MOST_OTHERS = SCRAMBLED * max(rule.groups for rule in RULES.values())


def measure_removals(subject: Subject, explainer: Explainer) -> Measured:
    """What the checks measure, and the margins that they compare with those of scrambled models."""
    model, x = subject.model, subject.inputs
    with mock.patch.object(checks, "explain_scrambled", return_value=None):  # these are drawn later
        rows = SanityChecks(samples=len(x), labels=subject.labels)(model, explainer, x).frame()
    with model.session():
        maps, logits = explainer.attribute_all(model, x, None)
        removal = Removal(model, x, logits.argmax(1))
        order = order_features(maps, draw_shuffles(x, removal.features, 0)[:, 0])
        margins = removal.measure(order)
    unusable = torch.from_numpy((rows["status"] != "ok").to_numpy())
    marked = torch.stack([mark_first(order, number) for number in removal.numbers])
    return Measured(rows, margins.masked_fill(unusable, torch.nan), marked)


def measure_all(subject: Subject, count: int) -> list[Measured]:
    """Of the trained model, and of so many scramblings."""
    explainer = get("input_x_gradient")
    scrambled = [
        RandomisedExplainer(explainer, seed=FIRST_SEED + number) for number in range(count)
    ]
    return [measure_removals(subject, each) for each in (explainer, *scrambled)]


def passes_all_other_checks(measured: Measured) -> bool:
    """Whether all checks are passed that do not compare with scrambled models."""
    others = (
        check
        for check in decide_checks(measured.rows).checks
        if check.question not in ("model", "learned")
    )
    return all(check.state in ("passed", "exempt", "remark") for check in others)


@dataclass(frozen=True)
class Comparison:
    """A map against those of other scramblings.

    Attributes:
        wins: the shares of removals that are won, `(others, n)`.
        gains: how much more the margin falls by the smallest removal, `(others, n)`.
        mean_gains: the same over all removals.
    """

    wins: Array
    gains: Array
    mean_gains: Array


def compare(measured: Measured, others: list[Measured]) -> Comparison:
    margins = torch.stack([other.margins for other in others])
    is_equal = torch.stack([(measured.marked == other.marked).all(2) for other in others])
    wins, gains = compare_margins(measured.margins, margins, is_equal)
    mean_gains = (measured.margins - margins).nanmean(1)
    return Comparison(wins.numpy(), gains.numpy(), mean_gains.numpy())


def decide_rule(rule: Rule, comparison: Comparison) -> bool:
    """Whether *learned* is passed against the first of the other scramblings."""
    groups = np.arange(comparison.wins.shape[1]) % rule.groups
    scramblings = (groups[:, None] * SCRAMBLED + np.arange(SCRAMBLED)).T  # (SCRAMBLED, n)
    wins = np.take_along_axis(comparison.wins, scramblings, 0)
    of_samples = np.nanmean(wins, 0)
    check = decide_mean("learned", of_samples[~np.isnan(of_samples)])
    if check.low is None or check.low <= rule.passing:
        return False
    if rule.each_beaten:
        shares = [np.nanmean(wins[:, groups == group], 1).min() for group in range(rule.groups)]
        return min(shares) > 0.5
    gains = comparison.gains if rule.smallest else comparison.mean_gains
    return find_luck(np.take_along_axis(gains, scramblings, 0).T, groups) <= rule.luck


def draw_decisions(measured: list[Measured], number: int, draws: int) -> dict[str, float]:
    """For each rule the share of draws of other scramblings with which all checks are passed.

    Args:
        measured: the trained model, and then its scramblings.
        number: of the one that is compared.
        draws: how many.
    """
    if not passes_all_other_checks(measured[number]):
        return dict.fromkeys(RULES, 0.0)
    passed = dict.fromkeys(RULES, 0)
    generator = np.random.default_rng(number)
    others = [other for other in range(1, len(measured)) if other != number]
    for _ in range(draws):
        drawn = generator.permutation(others)[:MOST_OTHERS]
        comparison = compare(measured[number], [measured[other] for other in drawn])
        for name, rule in RULES.items():
            passed[name] += decide_rule(rule, comparison)
    return {name: count / draws for name, count in passed.items()}


def load_or_measure(place: Path, subject: Subject, count: int) -> list[Measured]:
    """What was measured; it is kept as plain values and tensors, so that reading it runs no code."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        kept = [
            {**vars(measured), "rows": measured.rows.to_dict(as_series=False)}
            for measured in measure_all(subject, count)
        ]
        torch.save(kept, place)
    read = torch.load(place, weights_only=True)
    return [Measured(**{**parts, "rows": read_rows(parts["rows"])}) for parts in read]


def read_rows(columns: dict[str, list[Any]]) -> pl.DataFrame:
    return pl.DataFrame(columns, infer_schema_length=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scramblings", type=int, default=120)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--models", nargs="*", default=DEFAULT, choices=list(ALL_MODELS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sanity_army")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for model in options.models:
        subject = ALL_MODELS[model](options.folder / "models", options.samples)
        place = options.folder / "removals" / f"{model} {options.scramblings} {options.samples}.pt"
        measured = load_or_measure(place, subject, options.scramblings)
        trained = draw_decisions(measured, 0, TRAINED_DRAWS)
        scrambled = [draw_decisions(measured, number, DRAWS) for number in range(1, len(measured))]
        for name in RULES:
            share = float(np.mean([decisions[name] for decisions in scrambled]))
            print(
                f"{model:12s} {name:28s} scrambled {share:6.2%}, trained {trained[name]:4.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
