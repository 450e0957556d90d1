"""What a race over explainers loses, and what it costs: on known populations, and on bundled networks.

    python benchmarks/choose/races.py simulated
    python benchmarks/choose/races.py real

The loss is the median value of the best explainer less that of the one that the race puts first. Of simulated races
both are on ten times the samples, and the cost is the number of values that were measured, in the race and of the first
on the samples that are kept, as a share of those of all on all samples. Beside it stands in how many of the same races
the loss is at most .02 of whoever is best by the median where all explainers are evaluated: on all samples, on those of
the race alone, and on as few as cost the same as the race. Of real races, all explainers are evaluated
afterwards on all samples by the metric that ranks; the cost is that of `Race.cost`, which has the checks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import standfast
from standfast.race import RaceOutcome
from standfast.statistics.elimination import RaceRules, count_first, make_ladder, run_race
from standfast.tensors import Array

RACES, LEVEL, BUDGET, MOST_LOSS = 200, 0.05, 0.25, 0.02


@dataclass(frozen=True)
class Population:
    """Values of explainers: the same samples are hard for all of them, and each differs by itself.

    Attributes:
        means: of each explainer, `(k,)`.
        common, own: standard deviations of what samples have in common, and of what is an explainer's own.
        kind: `"normal"`, or `"shares"`: the same as shares between 0 and 1, which are skewed near the ends.
    """

    means: Array
    common: float
    own: float
    kind: str

    @classmethod
    def draw(cls, generator: np.random.Generator) -> Population:
        """Five to twelve explainers: spread, crowded, or nearly equal."""
        count = int(generator.integers(5, 13))
        spread = float(generator.choice([0.15, 0.05, 0.015]))
        means = generator.normal(0.4, spread, count)
        common, own = generator.uniform(0.05, 0.2, 2)
        return cls(means, float(common), float(own), str(generator.choice(["normal", "shares"])))

    def sample(self, generator: np.random.Generator, count: int) -> Array:
        """Values `(count, k)`."""
        shape = (count, len(self.means))
        values = (
            self.means
            + generator.normal(0, self.common, (count, 1))
            + generator.normal(0, self.own, shape)
        )
        if self.kind == "shares":
            values = 1 / (1 + np.exp(-4 * (values - 0.5)))
        return np.asarray(values)


@dataclass(frozen=True)
class Simulated:
    """What one simulated race gave, and what evaluating all explainers on the first samples would have given.

    Attributes:
        loss, cost: of the race.
        is_best_lost: whether the best one left as a loser.
        loss_of_all: of the best by the median on all samples, at the full cost.
        loss_of_raced: the same on the samples of the race, without those that are kept.
        loss_at_same_cost: the same on as many samples as the budget pays for.
    """

    loss: float
    cost: float
    is_best_lost: bool
    loss_of_all: float
    loss_of_raced: float
    loss_at_same_cost: float


def simulate(samples: int, seed: int) -> Simulated:
    """One race, and what it is compared with."""
    generator = np.random.default_rng([samples, seed])
    population = Population.draw(generator)
    contestants = len(population.means)
    values = population.sample(generator, 10 * samples)
    kept = samples // 3
    ladder = make_ladder(count_first(contestants, 5, LEVEL / 2), samples - kept)
    budget = BUDGET * contestants * samples - kept
    rules = RaceRules(ladder, contestants, "higher", LEVEL / 2, (1.0,) * contestants, budget)
    finish = run_race(
        rules, lambda columns, count: (values[:count, columns], np.zeros((count, len(columns))))
    )
    medians = np.median(values, axis=0)

    def find_loss(count: int) -> float:
        """Of the best by the median on the first samples."""
        best = np.median(values[:count], axis=0).argmax()
        return float(medians.max() - medians[best])

    lost = [departure.column for departure in finish.departures if departure.why == "worse"]
    return Simulated(
        loss=float(medians.max() - medians[finish.order[0]]),
        cost=(finish.spent + kept) / (contestants * samples),
        is_best_lost=int(medians.argmax()) in lost,
        loss_of_all=find_loss(samples),
        loss_of_raced=find_loss(samples - kept),
        loss_at_same_cost=find_loss(int(budget / contestants)),
    )


def report_simulated(sizes: Sequence[int]) -> None:
    """A line for each number of samples."""
    print(
        "| samples | loss at most .02 | mean loss | largest | mean cost | largest | best left as worse |"
        " all on all samples | all on those of the race | all at the same cost |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for samples in sizes:
        races = [simulate(samples, seed) for seed in range(RACES)]
        losses = np.array([race.loss for race in races])
        costs = np.array([race.cost for race in races])
        lost = sum(race.is_best_lost for race in races)
        small = _count_small([race.loss for race in races])
        of_all = _count_small([race.loss_of_all for race in races])
        of_raced = _count_small([race.loss_of_raced for race in races])
        at_same_cost = _count_small([race.loss_at_same_cost for race in races])
        print(
            f"| {samples} | {small} of {RACES} | {losses.mean():.4f} | {losses.max():.3f} | {costs.mean():.0%} |"
            f" {costs.max():.0%} | {lost} | {of_all} | {of_raced} | {at_same_cost} |",
            flush=True,
        )


def _count_small(losses: Sequence[float]) -> int:
    return sum(loss <= MOST_LOSS for loss in losses)


@dataclass(frozen=True)
class Setting:
    """A model and its inputs.

    Attributes:
        name: for the table.
        model, inputs: as `choose` takes them.
        metrics: a measure of stability, and the one that ranks.
        options: further arguments of `choose`.
    """

    name: str
    model: Any
    inputs: Any
    metrics: Sequence[str]
    options: dict[str, Any]


IMAGES = ("worst_case:budget=10", "aopc:samples=1,steps=20")
SERIES = ("worst_case:budget=10", "corruption_curve:preset=quick")
TABLES = ("worst_case:budget=20", "corruption_curve")
TEXTS = ("worst_case:budget=10", "aopc:samples=1")


def make_digits(network: str, count: int) -> Setting:
    """A bundled network of digits."""
    model = standfast.Model(standfast.zoo.load(network), bounds=(0.0, 1.0))
    return Setting(network, model, standfast.data.bundled("digits")[:count], IMAGES, {})


def make_series(network: str, count: int) -> Setting:
    """A bundled network of made-up series."""
    waves = standfast.data.load("waves:test")[:count]
    model = standfast.Model(standfast.zoo.load(network), bounds=waves.bounds)
    return Setting(network, model, waves, SERIES, {"neighbourhood": standfast.LinfBall(0.1)})


def make_table(count: int) -> Setting:
    """Boosted trees of scikit-learn's data set of breast cancer."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import GradientBoostingClassifier

    frame, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    frame = frame.iloc[:, :10]
    train = frame.iloc[count:]
    model = GradientBoostingClassifier(random_state=0).fit(train, labels.iloc[count:])
    return Setting(
        "boosted trees, a table", model, frame.iloc[:count], TABLES, {"reference": train}
    )


def make_texts(count: int) -> Setting:
    """The bundled transformer of film reviews."""
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    return Setting("transformer-sentences, texts", reader, texts[:count], TEXTS, {})


def list_settings(count: int) -> list[Callable[[], Setting]]:
    """The ten races."""
    lenets = [f"lenet5-mnist{ending}" for ending in ("", "-plain", "-pgd", "-hessian", "-gradient")]
    digits = [lambda name=name: make_digits(name, count) for name in (*lenets, "vit-mnist")]
    series = [
        lambda name=name: make_series(name, count) for name in ("cnn-waves", "transformer-waves")
    ]
    return [*digits, *series, lambda: make_table(count), lambda: make_texts(count)]


def measure_loss(setting: Setting, found: RaceOutcome, folder: Path) -> tuple[float, str]:
    """The loss of the one that the race put first, on all samples, and who is best there."""
    names = [entrant.name for entrant in found.race.entrants]
    results = standfast.evaluate(
        setting.model,
        names,
        setting.inputs,
        [setting.metrics[-1]],
        controls=False,
        sanity=False,
        out=folder,
        progress=False,
        **setting.options,
    )
    summary = next(each for each in results.summary.metrics if each.label == found.race.label)
    values = {row.explainer: row.value for row in summary.rows if row.value is not None}
    sign = -1 if found.race.direction == "lower" else 1
    best = max(values, key=lambda name: sign * values[name])
    if found.race.leader is None:
        return float("nan"), best
    return abs(values[best] - values[found.race.leader]), best


def report_real(count: int, checked: int, only: str) -> None:
    """A line for each race."""
    warnings.simplefilter("ignore")
    print(
        "| model | explainers | first | outcome | best on all samples by value | loss | cost | seconds |"
    )
    print("| --- | ---: | --- | --- | --- | ---: | ---: | ---: |", flush=True)
    for make in list_settings(count):
        setting = make()
        if only not in ("", setting.name):
            continue
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = standfast.choose(
                setting.model,
                setting.inputs,
                metrics=list(setting.metrics),
                sanity=checked,
                out=Path(folder) / "race",
                progress=False,
                **setting.options,
            )
            seconds = time.process_time() - began
            loss, best = measure_loss(setting, found, Path(folder) / "all")
        race = found.race
        asked = [one for one in (race.confirmation, race.second) if one is not None]
        outcome = "; ".join(one.outcome for one in asked) or "nobody was left"
        leads = race.leader or "none"
        print(
            f"| {setting.name} | {len(race.entrants)} | {leads} | {outcome} | {best} | {loss:.3f} | {race.cost:.0%} |"
            f" {seconds:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["simulated", "real"])
    parser.add_argument("--samples", type=int, default=60, help="of real races")
    parser.add_argument(
        "--checked", type=int, default=20, help="of these, so many have sanity checks"
    )
    parser.add_argument("--only", default="", help="the real race of this name")
    arguments = parser.parse_args()
    if arguments.part == "simulated":
        report_simulated([100, 200, 300])
    else:
        report_real(arguments.samples, arguments.checked, arguments.only)


if __name__ == "__main__":
    main()
