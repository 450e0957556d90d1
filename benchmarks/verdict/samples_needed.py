"""How often the numbers of further samples hold that a verdict says: with how many of them it is decided.

    python benchmarks/verdict/samples_needed.py

A population of values has a known distance from what it is judged by. Of so many samples that do not decide, a number
of further samples is said (`count_more`, `count_more_against_controls`); then as many further ones are drawn, and it is
counted in how many cases they decide. The distance is drawn anew for each case, so that near ones, which take many
samples, are as frequent as far ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from standfast.results.quality import References, count_more, judge_stability
from standfast.results.verdict import Ground
from standfast.statistics.comparison import (
    ControlTest,
    compare_with_controls,
    count_more_against_controls,
)
from standfast.statistics.paired import bootstrap_interval
from standfast.tensors import Array
from standfast.value_spec import ValueSpec

SPEC = ValueSpec("Worst case", "similarity", "higher")
#: values above 0 are good, those below 0 bad
REFERENCES = References(1.0, -1.0, None, None)
SIZES = (10, 16, 24, 48)
#: more than so many times the samples is not said
FAR = 16


class Answer(NamedTuple):
    """What samples say: whether they decide, and else how many more would."""

    is_decided: bool
    needed: int | None


def judge_median(values: Array) -> Answer:
    """By a measure of stability: the interval of the median."""
    estimate = bootstrap_interval(values)
    quality = judge_stability(SPEC, estimate, REFERENCES)
    return Answer(quality != "undecided", count_more(SPEC, estimate, REFERENCES))


def judge_test(values: Array) -> Answer:
    """By a test against one control, whose values are 0."""
    columns = np.stack([values, np.zeros(len(values))], axis=1)
    test: ControlTest = compare_with_controls(columns, ["mine", "control"], ["control"], "higher")[
        0
    ]
    return Answer(test.verdict != "undecided", count_more_against_controls(test, 1))


class Question(NamedTuple):
    """By what is judged, the largest distance in standard deviations, and the kinds of values."""

    judge: Callable[[Array], Answer]
    most_distance: float
    kinds: tuple[str, ...]


#: the test compares ranks alone, which are the same for both kinds of values
QUESTIONS = {
    "median": Question(judge_median, 1.2, ("normal", "shares")),
    "test against a control": Question(judge_test, 0.8, ("normal",)),
}


def draw(generator: np.random.Generator, kind: str, distance: float, count: int) -> Array:
    """Values of which half lie above 0 if the distance is 0: normal, or shares, which are skewed near the ends."""
    values = distance + generator.normal(size=count)
    return np.asarray(values if kind == "normal" else 1 / (1 + np.exp(-2 * values)) - 0.5)


def simulate(question: str, kind: str, samples: int, seed: int) -> tuple[bool, bool] | None:
    """Whether a case is decided with the smaller and with the larger number; None if it needs no more, or too many."""
    judge, most_distance, _ = QUESTIONS[question]
    generator = np.random.default_rng([samples, seed, sorted(QUESTIONS).index(question)])
    distance = generator.uniform(-most_distance, most_distance)
    values = draw(generator, kind, distance, samples)
    answer = judge(values)
    if answer.is_decided or answer.needed is None or answer.needed > FAR * samples:
        return None
    between = Ground("mine", None, needed=answer.needed).needed_range
    assert between is not None
    values = np.concatenate([values, draw(generator, kind, distance, between[1])])
    few, many = (judge(values[: samples + more]).is_decided for more in between)
    return few, many


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="of each row")
    parser.add_argument("--only", default="", help="of these questions: " + ", ".join(QUESTIONS))
    options = parser.parse_args()
    print("| judged by | values | samples | cases | with the smaller | with the larger |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for question in [options.only] if options.only else QUESTIONS:
        every: list[tuple[bool, bool]] = []
        for kind in QUESTIONS[question].kinds:
            for samples in SIZES:
                outcomes = [
                    outcome
                    for seed in range(options.seeds)
                    if (outcome := simulate(question, kind, samples, seed)) is not None
                ]
                every += outcomes
                few, many = np.mean(outcomes, axis=0)
                row = f"| {question} | {kind} | {samples} | {len(outcomes)} | {few:.0%} | {many:.0%} |"
                print(row, flush=True)
        few, many = np.mean(every, axis=0)
        print(f"| {question} | all | | {len(every)} | {few:.0%} | {many:.0%} |", flush=True)


if __name__ == "__main__":
    main()
