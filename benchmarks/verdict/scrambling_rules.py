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
from unittest import mock

import numpy as np
import polars as pl
import torch
from army_models import KINDS, Subject
from scramblings import MODELS
from torch import Tensor

from standfast.explainers import Explainer, RandomisedExplainer, get
from standfast.metrics import sanity
from standfast.metrics.sanity import SanityChecks
from standfast.results.sanity import MARGINS, decide_checks, find_luck
from standfast.results.sanity import _decide_mean as decide_mean
from standfast.tensors import Array

ALL_MODELS = {**{name: make for kind in KINDS.values() for name, make in kind.items()}, **MODELS}
#: the models on which scramblings of gradient x input come near passing, and two on which the trained model does hardly
DEFAULT = ["CBF", "logistic", "cancer", "topics lstm", "lstm", "products", "devices", "lenet"]
#: the first scrambling has this seed; those of the checks themselves are from 0 on
FIRST_SEED = 1000
#: draws of other scramblings for each scrambling, and for the trained model
DRAWS, TRAINED_DRAWS = 8, 100


@dataclass(frozen=True)
class Removals:
    """What an explainer marks: what the checks measure, the margins without it `(sizes, n)`, and its order `(n, d)`."""

    rows: pl.DataFrame
    margins: Tensor
    order: Tensor


@dataclass(frozen=True)
class Rule:
    """When *learned* is passed.

    Attributes:
        groups: of samples, each compared with three scramblings of its own.
        each: the least that the lower end of the interval against every single scrambling must reach; 0: anything.
        luck: the largest probability that a scrambling gets as far by luck.
        all: whether more than half of the removals must be won against every single scrambling.
    """

    groups: int
    each: float = 0.0
    luck: float = 1.0
    all: bool = False


RULES = {
    "the mean of 3": Rule(1),
    "each of 3 above 0.6": Rule(1, each=0.6),
    "each of 3 above 0.7": Rule(1, each=0.7),
    "3, luck 0.1": Rule(1, luck=0.1),
    "the mean of 15": Rule(5),
    "each of 15 beaten": Rule(5, all=True),
    "15, luck 0.1": Rule(5, luck=0.1),
    "15, luck 0.05": Rule(5, luck=0.05),
}
MOST_OTHERS = sanity.SCRAMBLED * max(rule.groups for rule in RULES.values())


def measure_removals(subject: Subject, explainer: Explainer) -> Removals:
    """What the checks measure, and the margins that they compare with those of scrambled models."""
    model, x = subject.model, subject.inputs
    with mock.patch.object(sanity, "SCRAMBLED", 0):  # these are drawn later
        rows = SanityChecks(samples=len(x), labels=subject.labels)(model, explainer, x).frame()
    with model.session():
        maps, logits = explainer.attribute_all(model, x, None)
        order = sanity._order(maps, sanity._draw_shuffles(x, 0)[:, 0])
        margins = sanity._measure_without(model, x, order, sanity._choose_numbers(x), logits.argmax(1))
    unusable = torch.from_numpy((rows["status"] != "ok").to_numpy())
    return Removals(rows, margins.masked_fill(unusable, torch.nan), order)


def measure_all(subject: Subject, count: int) -> list[Removals]:
    """Of the trained model, and of so many scramblings."""
    explainer = get("input_x_gradient")
    scrambled = [RandomisedExplainer(explainer, seed=FIRST_SEED + number) for number in range(count)]
    return [measure_removals(subject, each) for each in (explainer, *scrambled)]


def passes_all_other_checks(removals: Removals) -> bool:
    """Whether all checks are passed that do not compare with scrambled models."""
    others = (check for check in decide_checks(removals.rows).checks if check.question not in ("model", "learned"))
    return all(check.state in ("passed", "exempt", "remark") for check in others)


def compare(own: Removals, others: list[Removals], numbers: list[int]) -> tuple[Array, Array]:
    """The shares of removals that are won against others, and the gains, `(others, n)` each."""
    own_sets = [sanity._mark_first(own.order, number) for number in numbers]
    equal = [
        torch.stack(
            [
                (marked == sanity._mark_first(other.order, number)).all(1)
                for marked, number in zip(own_sets, numbers, strict=True)
            ]
        )
        for other in others
    ]
    margins = torch.stack([other.margins for other in others])
    wins, gains = sanity._compare_margins(own.margins, margins, torch.stack(equal))
    return wins.numpy(), gains.numpy()


def find_state(values: Array) -> tuple[str, float]:
    """What the interval of the mean decides on *learned*, and the interval's lower end."""
    check = decide_mean("learned", values[~np.isnan(values)], MARGINS["learned"][1], True)
    return check.state, -np.inf if check.low is None else check.low


def decide_rule(rule: Rule, wins: Array, gains: Array) -> bool:
    """Whether *learned* is passed against the first of the other scramblings."""
    groups = np.arange(wins.shape[1]) % rule.groups
    compared = (groups[:, None] * sanity.SCRAMBLED + np.arange(sanity.SCRAMBLED)).T  # (SCRAMBLED, n)
    own_wins, own_gains = (np.take_along_axis(values, compared, 0) for values in (wins, gains))
    if find_state(np.nanmean(own_wins, 0))[0] != "passed":
        return False
    if rule.each and min(find_state(values)[1] for values in own_wins) <= rule.each:
        return False
    if rule.all:
        shares = [np.nanmean(own_wins[:, groups == group], 1).min() for group in range(rule.groups)]
        return min(shares) > 0.5
    return rule.luck == 1 or find_luck(own_gains.T, groups) <= rule.luck


def draw_decisions(measured: list[Removals], own: int, numbers: list[int], draws: int) -> dict[str, float]:
    """For each rule the share of draws of other scramblings with which all checks are passed."""
    if not passes_all_other_checks(measured[own]):
        return dict.fromkeys(RULES, 0.0)
    passed = dict.fromkeys(RULES, 0)
    generator = np.random.default_rng(own)
    scramblings = [number for number in range(1, len(measured)) if number != own]
    for _ in range(draws):
        drawn = generator.permutation(scramblings)[:MOST_OTHERS]
        wins, gains = compare(measured[own], [measured[number] for number in drawn], numbers)
        for name, rule in RULES.items():
            passed[name] += decide_rule(rule, wins, gains)
    return {name: count / draws for name, count in passed.items()}


def load_or_measure(place: Path, subject: Subject, count: int) -> list[Removals]:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        torch.save(measure_all(subject, count), place)
    measured: list[Removals] = torch.load(place, weights_only=False)
    return measured


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
        numbers = sanity._choose_numbers(subject.inputs)
        trained = draw_decisions(measured, 0, numbers, TRAINED_DRAWS)
        scrambled = [draw_decisions(measured, own, numbers, DRAWS) for own in range(1, len(measured))]
        for name in RULES:
            share = float(np.mean([decisions[name] for decisions in scrambled]))
            print(f"{model:12s} {name:20s} scrambled {share:6.2%}, trained {trained[name]:4.0%}", flush=True)


if __name__ == "__main__":
    main()
