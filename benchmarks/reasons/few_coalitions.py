"""How far KernelSHAP with few coalitions is from exact Shapley values in the mean over seeds.

    python benchmarks/reasons/few_coalitions.py --games 6

Games of 6, 8 and 12 features: additive, with pairs, with conjunctions, and networks. All 2^m coalitions are enumerated.
For each number of coalitions: the share of games in which the mean over 200 seeds is off by more than a tenth of the
largest value; in which an interval of this mean misses an exact value; how many reasons hold; how many of these are not
among the exact first four.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch

from standfast.explainers.perturbation.kernel_shap import KernelSHAP
from standfast.results.reasons import Wanted
from standfast.statistics.reasons import decide_reasons
from standfast.statistics.simultaneous import simultaneous_means

SEEDS, TOP, DEMAND = 200, 4, 0.9
WANTED = Wanted(TOP, DEMAND)
KINDS = ("additive", "pairs", "conjunctions", "network")
#: coalitions for each feature
RATIOS = (0.8, 1.5, 2.0, 3.0, 5.0, 10.0)


def make_game(kind: str, features: int, generator: np.random.Generator) -> np.ndarray:
    """The worth of each coalition, whose bits are its features, `(2^m,)`."""
    members = ((np.arange(2**features)[:, None] >> np.arange(features)) & 1).astype(float)
    additive = members @ generator.normal(size=features)
    if kind == "additive":
        return additive
    if kind == "pairs":
        weights = np.triu(generator.normal(size=(features, features)), 1)
        return additive + np.einsum("ri,ij,rj->r", members, weights, members)
    if kind == "conjunctions":
        worth = 0.3 * additive
        for _ in range(8):
            chosen = generator.choice(features, generator.integers(2, 6), replace=False)
            worth = worth + generator.normal() * members[:, chosen].prod(1)
        return worth
    weights = 1.5 * generator.normal(size=(features, 16))
    hidden = np.tanh(members @ weights - weights.sum(0) / 2 + generator.normal(size=16))
    return hidden @ generator.normal(size=16)


def enumerate_values(worth: np.ndarray, features: int) -> np.ndarray:
    """The exact Shapley values, `(m,)`."""
    coalitions = np.arange(2**features)
    sizes = np.array([number.bit_count() for number in range(2**features)])
    orders = [
        math.factorial(size) * math.factorial(features - size - 1) for size in range(features)
    ]
    chances = np.array(orders) / math.factorial(features)
    values = np.zeros(features)
    for feature in range(features):
        without = coalitions[(coalitions >> feature) & 1 == 0]
        added = worth[without | (1 << feature)] - worth[without]
        values[feature] = (chances[sizes[without]] * added).sum()
    return values


def estimate_values(worth: np.ndarray, features: int, samples: int, seed: int) -> np.ndarray:
    """What KernelSHAP makes of the game, `(m,)`."""
    explainer = KernelSHAP(samples=samples, seed=seed)
    coalitions = explainer.draw_coalitions(features, torch.device("cpu"))
    numbers = (coalitions.masks.numpy().astype(int) << np.arange(features)).sum(1)
    return coalitions.fit.numpy() @ worth[numbers]


def measure(features: int, samples: int, kind: str, games: int) -> tuple[int, int, int, int]:
    """Games with a large bias, games whose interval misses, reasons that hold, and those that hold wrongly."""
    generator = np.random.default_rng(3)
    biased = missed = held = wrong = 0
    for _ in range(games):
        worth = make_game(kind, features, generator)
        exact = enumerate_values(worth, features)
        clean, *drawn = (
            estimate_values(worth, features, samples, seed) for seed in range(SEEDS + 1)
        )
        maps = np.stack(drawn)
        means = simultaneous_means(maps, 0.95, resamples=300)
        slack = 1e-9 * np.abs(exact).max()
        biased += np.abs(maps.mean(0) - exact).max() > 0.1 * np.abs(exact).max()
        missed += ((exact < means.low - slack) | (exact > means.high + slack)).any()
        named, right = WANTED.sign_first(clean[None])[0], WANTED.sign_first(exact[None])[0]
        reasons = np.flatnonzero(named)
        hits = (WANTED.sign_first(maps)[:, reasons] == named[reasons]).sum(0)
        holds = [reason.state == "holds" for reason in decide_reasons(hits, SEEDS, DEMAND)]
        held += sum(holds)
        wrong += int((right[reasons] != named[reasons])[holds].sum())
    return biased, missed, held, wrong


def main(games: int) -> None:
    """Print the table, with a cell for each kind of game."""
    print(
        f"Of {games} games: off by a tenth; interval misses; reasons that hold; that hold wrongly"
    )
    print(
        "| features | coalitions | marked | "
        + " | ".join(KINDS)
        + " |\n| ---: | ---: | --- |"
        + " --- |" * len(KINDS)
    )
    for features in (6, 8, 12):
        for samples in (int(ratio * features) for ratio in RATIOS):
            is_marked = bool(
                KernelSHAP(samples=samples).has_too_few_samples(torch.zeros(1, features)).item()
            )
            counts = [measure(features, samples, kind, games) for kind in KINDS]
            cells = ["; ".join(map(str, each)) for each in counts]
            print(
                f"| {features} | {samples} | {'yes' if is_marked else ''} | "
                + " | ".join(cells)
                + " |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=6)
    main(parser.parse_args().games)
