"""How often the intervals and decisions of reasons are right; prints the tables of `docs/reasons-statistics.md`.

python benchmarks/reasons/interval_coverage.py clusters --runs 2000
python benchmarks/reasons/interval_coverage.py means --runs 400
python benchmarks/reasons/interval_coverage.py decisions --runs 2000
python benchmarks/reasons/interval_coverage.py together --runs 2000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from other_intervals import (
    bet,
    beta_binomial,
    korn_graubard,
    max_bootstrap,
    pool_draws,
    student,
    take_one_draw,
)
from scipy.special import stdtrit

from standfast.statistics.clusters import clustered_intervals
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import (
    count_least_models,
    decide_reasons,
    schedule_looks,
    schedule_models,
)
from standfast.statistics.simultaneous import simultaneous_means

LEVEL = 0.95
RESAMPLES = 400
GOOD = 0.93  # a setting in which fewer intervals than this hold is listed
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def draw_constant(p: float) -> Draw:
    return lambda generator, size: np.full(size, p)


def draw_beta(mean: float, correlation: float) -> Draw:
    strength = 1 / correlation - 1
    return lambda generator, size: generator.beta(mean * strength, (1 - mean) * strength, size)


def draw_two(share: float, often: float, other: float) -> Draw:
    return lambda generator, size: np.where(generator.random(size) < share, often, other)


#: how the probability differs between models: its law and its mean
MODELS: dict[str, tuple[Draw, float]] = {
    "0.9 in every model": (draw_constant(0.9), 0.9),
    "0.97 in every model": (draw_constant(0.97), 0.97),
    "beta, mean 0.9, correlation 0.05": (draw_beta(0.9, 0.05), 0.9),
    "beta, mean 0.9, correlation 0.3": (draw_beta(0.9, 0.3), 0.9),
    "beta, mean 0.9, correlation 0.7": (draw_beta(0.9, 0.7), 0.9),
    "beta, mean 0.97, correlation 0.3": (draw_beta(0.97, 0.3), 0.97),
    "beta, mean 0.5, correlation 0.3": (draw_beta(0.5, 0.3), 0.5),
    "1 in 50% of models, else 0": (draw_two(0.5, 1, 0), 0.5),
    "1 in 90% of models, else 0": (draw_two(0.9, 1, 0), 0.9),
    "1 in 97% of models, else 0": (draw_two(0.97, 1, 0), 0.97),
    "0.995 in 80% of models, else 0": (draw_two(0.8, 0.995, 0), 0.796),
    "0.95 in 90% of models, else 0": (draw_two(0.9, 0.95, 0), 0.855),
    "1 in 80% of models, else 0.5": (draw_two(0.8, 1, 0.5), 0.9),
}
METHODS = {
    "here": clustered_intervals,
    "Korn-Graubard": korn_graubard,
    "one draw": take_one_draw,
    "betting": bet,
    "beta-binomial": beta_binomial,
    "Student": student,
    "pooled": pool_draws,
}
UNEVEN = 0  # in the place of draws for each model: a geometric number, 10 on average


def simulate_clusters(runs: int) -> None:
    """The share of intervals that hold, for every law, 5 numbers of models and 4 numbers of draws."""
    generator = np.random.default_rng(69)
    print(
        f"Lowest share of {runs} intervals that hold, of 20 settings: 5 numbers of models, 4 numbers of draws"
    )
    print("| law | " + " | ".join(METHODS) + " |\n| --- |" + " ---: |" * len(METHODS))
    widths: dict[str, list[float]] = {name: [] for name in METHODS}
    below = dict.fromkeys(METHODS, 0)
    listed = []
    for law, (draw, mean) in MODELS.items():
        worst = dict.fromkeys(METHODS, 1.0)
        for models in (5, 10, 20, 30, 60):
            for draws_of_each in (2, 10, 30, UNEVEN):
                draws = np.full((runs, models), draws_of_each)
                if draws_of_each == UNEVEN:
                    draws = generator.geometric(0.1, draws.shape)
                hits = generator.binomial(draws, draw(generator, draws.shape))
                for name, method in METHODS.items():
                    low, high = method(hits, draws, LEVEL)
                    if np.isnan(low).any():
                        continue
                    held = int(((low <= mean) & (mean <= high)).sum())
                    worst[name] = min(worst[name], held / runs)
                    widths[name].append(float((high - low).mean()))
                    below[name] += held / runs < GOOD
                    if name == "here" and is_bad(held, runs):
                        listed.append(
                            f"{law}, {models} models, {draws_of_each or 'uneven'} draws: {held / runs:.1%}"
                        )
        print(
            f"| {law} | " + " | ".join(f"{share:.1%}" for share in worst.values()) + " |",
            flush=True,
        )
    print("| settings below 93% | " + " | ".join(str(count) for count in below.values()) + " |")
    print(
        "| mean width | " + " | ".join(f"{np.mean(width):.2f}" for width in widths.values()) + " |"
    )
    print("settings below 93%, or whose upper limit is below 95%:", listed or "none")


def is_bad(held: int, runs: int) -> bool:
    return held / runs < GOOD or proportion_interval(held, runs, 0.95)[1] < LEVEL


def draw_rare(probability: float, noise: float) -> Draw:
    """Attributions of about 1 in some draws, and only noise in the others."""

    def draw(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
        matters = generator.random(size) < probability
        return matters * generator.normal(1, 0.3, size) + noise * generator.normal(size=size)

    return draw


def draw_spikes(probability: float, size: float) -> Draw:
    """Noise of deviation 1, and in some draws about so much more."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        matters = generator.random(shape) < probability
        return matters * generator.normal(size, 0.3 * size, shape) + generator.normal(size=shape)

    return draw


def draw_one_rare(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Noise, and one feature that is about 1 in 5% of the draws."""
    values = 0.02 * generator.normal(size=size)
    values[:, 0] += draw_rare(0.05, 0)(generator, (size[0], 1))[:, 0]
    return values


def draw_shares(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Attributions with the sum 1."""
    values = generator.lognormal(0, 1, size)
    return values / values.sum(1, keepdims=True)


def draw_lognormal(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return generator.lognormal(0, 1, size)


def draw_normal(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return generator.normal(size=size)


def draw_correlated(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return generator.normal(size=(size[0], 1)) + 0.5 * generator.normal(size=size)


def draw_heavy(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return generator.standard_t(3, size)


#: how attributions differ between draws: their law, how many features, and the mean
FEATURES: dict[str, tuple[Draw, int, float | np.ndarray]] = {
    "normal": (draw_normal, 20, 0.0),
    "normal, few features": (draw_normal, 5, 0.0),
    "correlated 0.8": (draw_correlated, 20, 0.0),
    "Student's t, 3 degrees": (draw_heavy, 20, 0.0),
    "lognormal": (draw_lognormal, 20, np.exp(0.5)),
    "lognormal, few features": (draw_lognormal, 5, np.exp(0.5)),
    "fixed sum": (draw_shares, 20, 1 / 20),
    "matters in 5%, else 0": (draw_rare(0.05, 0), 20, 0.05),
    "matters in 5%, few features": (draw_rare(0.05, 0), 5, 0.05),
    "matters in 20%, else 0": (draw_rare(0.2, 0), 20, 0.2),
    "matters in 5%, else noise": (draw_rare(0.05, 0.02), 20, 0.05),
    "matters in 5%, else noise, few features": (draw_rare(0.05, 0.02), 5, 0.05),
    "matters in 10%, else noise, few features": (draw_rare(0.1, 0.02), 5, 0.1),
    "matters in 20%, else noise, few features": (draw_rare(0.2, 0.02), 5, 0.2),
    "8 usual deviations in 10%, few features": (draw_spikes(0.1, 8.0), 5, 0.8),
    "matters in 2%, else noise, few features": (draw_rare(0.02, 0.02), 5, 0.02),
    "one of 20 matters in 5%, else noise": (draw_one_rare, 20, np.array([0.05] + [0.0] * 19)),
}
#: runs for one, where there are five features
CHEAP = 5


@dataclass
class SetTally:
    """What is right of sets of intervals, in sums over runs."""

    student: float = 0.0
    symmetric: float = 0.0
    all_hold: float = 0.0
    without_constant: float = 0.0
    unmarked: float = 0.0
    marked: float = 0.0
    width: float = 0.0
    symmetric_width: float = 0.0

    def add(self, values: np.ndarray, truth: float | np.ndarray, seed: int) -> None:
        """Count the intervals of draws `(R, F)`."""
        count, features = values.shape
        reach = (
            stdtrit(count - 1, 1 - (1 - LEVEL) / 2 / features) * values.std(0, ddof=1) / count**0.5
        )
        self.student += (np.abs(values.mean(0) - truth) <= reach).all()
        low, high = max_bootstrap(values, LEVEL, seed, RESAMPLES)
        self.symmetric += ((low <= truth) & (truth <= high)).all()
        means = simultaneous_means(values, LEVEL, seed=seed, resamples=RESAMPLES)
        holds = (means.low <= truth) & (truth <= means.high)
        self.all_hold += holds.all()
        holds |= means.low == means.high
        self.without_constant += holds.all()
        self.unmarked += (holds | means.few).all()
        self.marked += means.few.mean()
        if np.isfinite(high).all() and np.isfinite(means.high).all():
            self.symmetric_width += (high - low).mean()
            self.width += (means.high - means.low).mean()

    def describe(self, runs: int) -> str:
        """The shares as cells of a table."""
        counts = (self.student, self.symmetric, self.all_hold, self.without_constant, self.unmarked)
        wider = f"{self.width / self.symmetric_width:.2f}" if self.symmetric_width else ""
        return " | ".join(
            [*(f"{count / runs:.1%}" for count in counts), f"{self.marked / runs:.0%}", wider]
        )


def simulate_means(runs: int) -> None:
    """The share of draws in which the intervals of all features hold."""
    generator = np.random.default_rng(69)
    print(
        f"Share of {runs} sets of intervals that hold for all features, of {CHEAP * runs} where there are 5 features"
    )
    print(
        "| law | features | draws | Student | symmetric | all | without constant | without few, too | few | wider |"
    )
    print("| --- |" + " ---: |" * 9)
    for law, (draw, features, truth) in FEATURES.items():
        own_runs = CHEAP * runs if features == 5 else runs
        for count in (20, 50, 200):
            tally = SetTally()
            for run in range(own_runs):
                tally.add(draw(generator, (count, features)), truth, run)
            print(f"| {law} | {features} | {count} | {tally.describe(own_runs)} |", flush=True)


#: probabilities of four reasons; one reason has the last of them
REASONS = {
    "all 1": (1.0, 1.0, 1.0, 1.0),
    "all 0.99": (0.99, 0.99, 0.99, 0.99),
    "all 0.97": (0.97, 0.97, 0.97, 0.97),
    "one of 0.6": (1.0, 1.0, 1.0, 0.6),
    "one of 0.8": (1.0, 0.99, 0.97, 0.8),
    "all 0.9": (0.9, 0.9, 0.9, 0.9),
    "just below": (0.8999, 0.8999, 0.8999, 0.8999),
}
MOST = 800


def simulate_decisions(runs: int) -> None:
    """Draws until all reasons are decided, and the share of runs with a wrong decision."""
    print(
        f"Mean number of draws, of at most {MOST}; share of {runs} runs that decide all; share with a wrong decision"
    )
    print(
        "| reasons | schedule | "
        + " | ".join(REASONS)
        + " |\n| --- | --- |"
        + " ---: |" * len(REASONS)
    )
    for count in (1, 4):
        for name, looks in list_schedules(count):
            cells = [run_looks(looks, np.array(p[-count:]), runs) for p in REASONS.values()]
            print(f"| {count} | {name} | " + " | ".join(cells) + " |", flush=True)
    print("\nModels with 10 draws each, beta with correlation 0.3, of at most 120 models")
    print("| reasons | " + " | ".join(REASONS) + " |\n| --- |" + " ---: |" * len(REASONS))
    for count in (1, 4):
        looks = schedule_looks(120, reasons=count)
        cells = [
            run_looks(looks, np.array(p[-count:]), runs, draws_of_model=10)
            for p in REASONS.values()
        ]
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)


def list_schedules(reasons: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "here", schedule_looks(MOST, reasons=reasons)
    yield "50, 100, 200, ...", (50, 100, 200, 400, 800)
    yield "100, 200, ...", (100, 200, 400, 800)
    yield "50, 200, 800", (50, 200, 800)
    least = count_least_models(reasons=reasons)
    yield (
        "least x 1.5",
        tuple(round(least * 1.5**step) for step in range(20) if least * 1.5**step < MOST),
    )


def run_looks(
    looks: tuple[int, ...], p: np.ndarray, runs: int, draws_of_model: int | None = None
) -> str:
    """Draw until each reason is decided; a decision stays."""
    generator = np.random.default_rng(69)
    used = decided = wrong = 0
    for _ in range(runs):
        hits = draw_hits(generator, looks[-1], p, draws_of_model)
        open_reasons = dict(enumerate(p))
        mistaken = False
        for look, count in enumerate(looks, 1):
            used_here = count
            for reason in list(open_reasons):
                state = decide_at(hits[reason, :count], draws_of_model, look, len(p))
                if state != "undecided":
                    mistaken |= (state == "holds") != (open_reasons.pop(reason) >= 0.9)
            if not open_reasons:
                break
        used += used_here
        decided += not open_reasons
        wrong += mistaken
    return f"{used / runs:.0f}; {decided / runs:.0%}; {wrong / runs:.1%}"


def draw_hits(
    generator: np.random.Generator, most: int, p: np.ndarray, draws_of_model: int | None
) -> np.ndarray:
    """For each reason and draw whether it is named, or for each model in how many draws."""
    size = (len(p), most)
    if draws_of_model is None:
        return generator.random(size) < p[:, None]
    strength = 1 / 0.3 - 1
    inner = np.minimum(p, 1 - 1e-9)[:, None]
    return generator.binomial(
        draws_of_model, generator.beta(inner * strength, (1 - inner) * strength, size)
    )


_states: dict[tuple[object, ...], str] = {}


def decide_at(hits: np.ndarray, draws_of_model: int | None, look: int, reasons: int) -> str:
    """The state of one reason; remembered, since few counts occur."""
    if draws_of_model is not None:
        draws = np.full(len(hits), draws_of_model)
        return decide_reasons(hits[None], draws, look=look, reasons=reasons)[0].state
    key = (int(hits.sum()), len(hits), look, reasons)
    if key not in _states:
        _states[key] = decide_reasons(
            np.array([hits.sum()]), len(hits), look=look, reasons=reasons
        )[0].state
    return _states[key]


#: the probabilities of reasons that are drawn until they are decided
TOGETHER = (
    (1.0, 1.0, 1.0, 1.0),
    (0.99, 0.99, 0.99, 0.99),
    (0.97, 0.97, 0.97, 0.97),
    (0.95, 0.95, 0.95, 0.95),
    (0.9, 0.9, 0.9, 0.9),
    (1.0, 1.0, 1.0, 0.85),
    (1.0, 1.0, 1.0, 0.6),
    (1.0, 1.0, 0.95, 0.95),
    (1.0, 0.97, 0.8, 0.6),
    (0.97,),
    (0.95,),
    (0.9,),
    (0.85,),
    (0.5,),
)


def simulate_together(runs: int) -> None:
    """How often the interval of the share in which all reasons are named holds, where their states end the draws."""
    print("| probabilities | draws, apart | draws, nested | models, apart | models, nested |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for p in TOGETHER:
        schedules = (schedule_looks(400, reasons=len(p)), schedule_models(200, reasons=len(p)))
        cells = [
            f"{cover_together(looks, np.array(p), nested, runs):.1%}"
            for looks in schedules
            for nested in (False, True)
        ]
        print(f"| {', '.join(map(str, p))} | " + " | ".join(cells) + " |", flush=True)


def cover_together(looks: tuple[int, ...], p: np.ndarray, nested: bool, runs: int) -> float:
    """The share of runs whose interval holds; nested reasons fall in the same draws."""
    generator = np.random.default_rng(71)
    truth = p.min() if nested else p.prod()
    held = 0
    for _ in range(runs):
        chance = generator.random((1 if nested else len(p), looks[-1]))
        named = chance < p[:, None]
        draws = count_until_decided(named, looks)
        together = int(named[:, :draws].all(0).sum())
        low, high = proportion_interval(together, draws, LEVEL)
        held += low <= truth <= high
    return held / runs


def count_until_decided(named: np.ndarray, looks: tuple[int, ...]) -> int:
    """After how many draws each reason `(k, R)` is decided at a look, or the last look."""
    open_reasons = set(range(len(named)))
    for look, count in enumerate(looks, 1):
        for reason in list(open_reasons):
            if decide_at(named[reason, :count], None, look, len(named)) != "undecided":
                open_reasons.remove(reason)
        if not open_reasons:
            return count
    return looks[-1]


PARTS = {
    "clusters": simulate_clusters,
    "means": simulate_means,
    "decisions": simulate_decisions,
    "together": simulate_together,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--runs", type=int, default=2000)
    arguments = parser.parse_args()
    PARTS[arguments.part](arguments.runs)
