"""How often `standfast check` decides wrongly, when it looks again and again at growing results.

Each run draws samples from a population whose number lies exactly at the limit, looks at 20, 40, 80, ... of them, and
stops at the first decision. At the limit every decision is as likely to be wrong as it can be: "fail" is wrong there,
and "pass" would be wrong for a population that is worse by any amount. Both shares together have to be below 5%.

    python benchmarks/reliability/error_rates.py --runs 2000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from standfast.statistics.decisions import (
    Outcome,
    count_met,
    estimate_mean,
    estimate_share,
    spend_level,
)

LOOKS = (20, 40, 80, 160, 320, 640)
LEVEL = 0.95
Draw = Callable[[np.random.Generator, int], np.ndarray]


def decide_share(values: np.ndarray, share: float, level: float) -> Outcome:
    """At least this share of values is 0 or above."""
    return estimate_share(*count_met(values, values, 0.0, "higher"), level).decide(share, "higher")


def decide_mean(values: np.ndarray, limit: float, level: float) -> Outcome:
    """The mean is at least the limit."""
    return estimate_mean(values, level).decide(limit, "higher")


def decide_probability(values: np.ndarray, share: float, level: float) -> Outcome:
    """At least this share of ln P, each known by an interval, is at most 0; `values` are (n, 2)."""
    counts = count_met(values[:, 0], values[:, 1], 0.0, "lower")
    return estimate_share(*counts, level, mistaken=0.025).decide(share, "higher")


def draw_probability(generator: np.random.Generator, count: int, spread: float) -> np.ndarray:
    """Intervals at 95% of ln P, whose standard error is 0.5; half of the true values are at most 0."""
    return _estimate(generator, spread * generator.normal(size=count))


def draw_hard_probability(generator: np.random.Generator, count: int, share: float) -> np.ndarray:
    """This share of the true values lies just within the limit, so some intervals lie beyond it; the rest far off."""
    return _estimate(generator, np.where(generator.random(count) < share, -1e-9, 99.0))


def _estimate(generator: np.random.Generator, truth: np.ndarray) -> np.ndarray:
    seen = truth + 0.5 * generator.normal(size=len(truth))
    return np.stack([seen - 1.96 * 0.5, seen + 1.96 * 0.5], axis=1)


CASES: dict[str, tuple[Draw, Callable[[np.ndarray, float, float], Outcome], float]] = {
    "share 0.5": (lambda g, n: g.random(n) - 0.5, decide_share, 0.5),
    "share 0.8": (lambda g, n: g.random(n) - 0.2, decide_share, 0.8),
    "share 0.95": (lambda g, n: g.random(n) - 0.05, decide_share, 0.95),
    "median, exponential": (lambda g, n: g.exponential(size=n) - np.log(2), decide_share, 0.5),
    "quantile 0.1, normal": (lambda g, n: g.normal(size=n) + 1.2815515655446004, decide_share, 0.9),
    "mean, normal": (lambda g, n: g.normal(size=n), decide_mean, 0.0),
    "mean, uniform": (lambda g, n: g.random(n), decide_mean, 0.5),
    "mean, beta(8, 2)": (lambda g, n: g.beta(8, 2, size=n), decide_mean, 0.8),
    "mean, exponential": (lambda g, n: g.exponential(size=n), decide_mean, 1.0),
    "mean, t(3)": (lambda g, n: g.standard_t(3, size=n), decide_mean, 0.0),
    "ln P, spread 5": (lambda g, n: draw_probability(g, n, 5.0), decide_probability, 0.5),
    "ln P, share 0.95 at the limit": (
        lambda g, n: draw_hard_probability(g, n, 0.95),
        decide_probability,
        0.95,
    ),
}


def measure(
    case: str, runs: int, seed: int = 0, looks: tuple[int, ...] = LOOKS, spend: bool = True
) -> dict[str, float]:
    """The shares of runs that pass, fail and stay undecided."""
    draw, decide, limit = CASES[case]
    found = {"pass": 0, "fail": 0, "undecided": 0}
    for run in range(runs):
        values = draw(np.random.default_rng([seed, run]), looks[-1])
        outcome: Outcome = "undecided"
        for look, count in enumerate(looks, 1):
            outcome = decide(values[:count], limit, spend_level(LEVEL, look) if spend else LEVEL)
            if outcome != "undecided":
                break
        found[outcome] += 1
    return {key: value / runs for key, value in found.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    print(
        f"{options.runs} runs, looks at {', '.join(map(str, LOOKS))} samples, level {LEVEL:.0%}\n"
    )
    print("| number at its limit | pass | fail | undecided | without correction: pass | fail |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        own, plain = (measure(case, options.runs, spend=spend) for spend in (True, False))
        cells = [own["pass"], own["fail"], own["undecided"], plain["pass"], plain["fail"]]
        print(
            f"| {case} | " + " | ".join(f"{100 * cell:.1f}%" for cell in cells) + " |", flush=True
        )


if __name__ == "__main__":
    main()
