"""Rare-event estimates, compared with exact answers, the paper's random walk, plain Monte Carlo and other packages.

python benchmarks/rare_events/compare.py [--runs 200] [--part PART], with the parts exact, stages, traps, cost, corner,
modes, particles, walk, model and peers.

`peers` compares OpenTURNS and UQpy (see `other_tools.py`); its default is 20 runs. It stores its runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import standfast
from standfast.algorithms import StandardNormal, SubsetSimulation, UnitBox
from standfast.algorithms.rare_events.estimate import RareEventEstimate
from standfast.metrics import MisinterpretationProbability
from standfast.neighbourhoods import Region

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "references"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "stand_ins"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "algorithms" / "rare_events"))
from other_tools import compare_tools
from test_rare_events import problems
from traps import THREE_MODES, TRAPS

from exact import irwin_hall_log_sf, irwin_hall_threshold


def count_covered(found: Sequence[RareEventEstimate], truth: float) -> int:
    """How many runs have a 95% interval that holds the true ln P."""
    bounds = np.array([estimate.interval()[0].tolist() for estimate in found])
    return int(((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).sum())


def compare_exact(runs: int) -> None:
    """Bias, spread relative to independent sampling at each level, and coverage of the 95% interval."""
    settings = [{}, {"quantile": 0.5, "moves": 10}, {"quantile": 0.1, "moves": 12}]
    for options in settings:
        quantile = options.get("quantile", 0.5)
        print(f"\nN = 1000, {options or 'defaults (quantile 0.5, moves 4)'}, {runs} runs")
        print(
            "| problem | mean error of ln P | sd | sd of independent levels | ratio | mean std_error | covered |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for problem in problems():
            generator = torch.Generator().manual_seed(7)
            found = [
                SubsetSimulation(**options).run(problem.score, problem.prior, generator=generator)
                for _ in range(runs)
            ]
            errors = np.array([e.log_probability.item() for e in found]) - problem.truth
            reported = np.array([e.std_error.item() for e in found])
            whole, rest = divmod(problem.truth, math.log(quantile))
            last = math.exp(rest)
            ideal = math.sqrt((whole * (1 - quantile) / quantile + (1 - last) / last) / 1000)
            covered = count_covered(found, problem.truth) / runs
            print(
                f"| {problem.name} | {errors.mean():+.3f} ± {errors.std() / runs**0.5:.3f} | {errors.std():.3f} |"
                f" {ideal:.3f} | {errors.std() / ideal:.2f} | {np.sqrt((reported**2).mean()):.3f} | {covered:.1%} |"
            )


def compare_stages(runs: int) -> None:
    """The sums of two halves of 100 uniform numbers, each above a threshold: few families are left in deep events."""
    print(f"\nN = 1000, defaults, {runs} runs")
    print(
        "| ln P | resolved | of these hold | of the others hold | median width | mean error of ln P | sd | families |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for first, second in ((32.0, 32.0), (35.0, 36.0), (38.0, 38.0)):
        truth = irwin_hall_log_sf(50, first) + irwin_hall_log_sf(50, second)
        limits = torch.tensor([first, second], dtype=torch.float64)
        found = [
            SubsetSimulation().run(
                lambda x, limits=limits: x.reshape(len(x), 2, 50).sum(2) - limits,
                UnitBox(100),
                generator=torch.Generator().manual_seed(seed),
            )
            for seed in range(runs)
        ]
        errors = np.array([e.log_probability.item() for e in found]) - truth
        families = np.median([e.levels[0].families[-1].item() for e in found])
        sure, unsure = (
            [e for e in found if bool(e.resolved) == resolved] for resolved in (True, False)
        )
        width = np.median([e.interval()[0].diff().item() for e in sure])
        print(
            f"| {truth:.1f} | {len(sure)} of {runs} | {count_covered(sure, truth)} | {count_covered(unsure, truth)} of"
            f" {len(unsure)} | {width:.2f} | {errors.mean():+.2f} ± {errors.std() / runs**0.5:.2f} |"
            f" {errors.std():.2f} | {families:.1f} |",
            flush=True,
        )


def compare_traps(runs: int) -> None:
    """Problems whose early levels mislead, with populations of one size and with larger first ones."""
    print(
        "\n| problem | d | first | error of ln P, median | rmse | interval holds | unresolved | evaluations per run |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for dimension in (2, 100, 300):
        for trap in TRAPS:
            d = max(dimension // trap.blocks, 1) * trap.blocks
            for first in (1.0, 32.0):
                generator = torch.Generator().manual_seed(5)
                found = [
                    SubsetSimulation(first=first).run(
                        trap.score, StandardNormal(d), generator=generator
                    )
                    for _ in range(runs)
                ]
                errors = np.array([e.log_probability.item() for e in found]) - trap.log_probability
                holds = count_covered(found, trap.log_probability)
                unresolved = sum(not bool(e.resolved) for e in found)
                evaluations = np.mean([e.model_evaluations.item() for e in found])
                print(
                    f"| {trap.name} | {d} | {first:g} | {np.median(errors):+.2f} | {np.sqrt((errors**2).mean()):.2f} |"
                    f" {holds} of {runs} | {unresolved} | {evaluations:,.0f} |",
                    flush=True,
                )


def compare_cost(runs: int) -> None:
    """What it costs to know P of a half-space, an Irwin-Hall sum and two tails, and how well it is known then."""
    print(
        "\n| P | problem | evaluations, mean | most | error of ln P, mean | sd | mean std_error | covered |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for p in (0.5, 3e-2, 1e-2, 1e-3, 1e-4, 1e-6, 1e-12):
        one, both, t = (
            stats.norm.isf(p),
            stats.norm.isf(p / 2),
            irwin_hall_threshold(50, math.log(p)),
        )
        cases = (
            (
                "half-space, d = 200",
                lambda x, one=one: x.sum(1) / 200**0.5 - one,
                StandardNormal(200),
                math.log(p),
            ),
            (
                "two tails, d = 50",
                lambda x, both=both: x[:, 0].abs() - both,
                StandardNormal(50),
                math.log(p),
            ),
            (
                "Irwin-Hall, d = 50",
                lambda x, t=t: x.sum(1) - t,
                UnitBox(50),
                irwin_hall_log_sf(50, t),
            ),
        )
        for name, score, prior, truth in cases:
            found = repeat(SubsetSimulation(), score, prior, runs)
            errors = np.array([e.log_probability.item() for e in found]) - truth
            spent = np.array([e.model_evaluations.item() for e in found])
            reported = np.mean([e.std_error.item() for e in found])
            print(
                f"| {p:g} | {name} | {spent.mean():,.0f} | {spent.max():,} | {errors.mean():+.3f} |"
                f" {errors.std():.3f} | {reported:.3f} | {count_covered(found, truth)} of {runs} |",
                flush=True,
            )


#: for boxes of so many features, how many of them must be near their upper end
CORNERS = ((20, 1), (20, 5), (20, 20), (200, 5), (200, 200))


def compare_corner(runs: int) -> None:
    """What an event in one corner of a box costs: several uniform features are all near their upper end."""
    print(
        "\n| features | near the end | P | evaluations, median | least | most | error of ln P, mean | sd | covered |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for features, near_the_end in CORNERS:
        for p in (6e-5, 1e-6):
            limit = 1 - p ** (1 / near_the_end)
            found = repeat(
                SubsetSimulation(),
                lambda x, count=near_the_end, limit=limit: x[:, :count].amin(1) - limit,
                UnitBox(features),
                runs,
            )
            errors = np.array([e.log_probability.item() for e in found]) - math.log(p)
            spent = np.array([e.model_evaluations.item() for e in found])
            print(
                f"| {features} | {near_the_end} | {p:g} | {np.median(spent):,.0f} | {spent.min():,} | {spent.max():,} |"
                f" {errors.mean():+.2f} | {errors.std():.2f} | {count_covered(found, math.log(p))} of {runs} |",
                flush=True,
            )


def compare_modes(runs: int) -> None:
    """Three modes of other steepness: how many intervals hold, in how many dimensions."""
    print(
        "\n| problem | d | interval holds | unresolved | error of ln P, median | evaluations per run |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for dimension in (20, 40, 80, 200):
        for trap in THREE_MODES:
            found = repeat(SubsetSimulation(), trap.score, StandardNormal(dimension), runs)
            errors = np.array([e.log_probability.item() for e in found]) - trap.log_probability
            unresolved = sum(not bool(e.resolved) for e in found)
            evaluations = np.mean([e.model_evaluations.item() for e in found])
            print(
                f"| {trap.name} | {dimension} | {count_covered(found, trap.log_probability)} of {runs} | {unresolved} |"
                f" {np.median(errors):+.2f} | {evaluations:,.0f} |",
                flush=True,
            )


def repeat(
    simulation: SubsetSimulation, score: Callable[[Tensor], Tensor], prior: Region, runs: int
) -> list[RareEventEstimate]:
    """The estimates of so many runs."""
    generator = torch.Generator().manual_seed(5)
    return [simulation.run(score, prior, generator=generator) for _ in range(runs)]


def compare_particles(runs: int) -> None:
    """A difficult event with few particles: the first MNIST test digit, radius 0.3, Pearson below 0.4."""
    x = standfast.data.load("mnist:test")[:1].inputs
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), batch_size=256)
    print(
        "\n| particles | first | ln P: smallest, median, largest | unresolved | interval holds -36 | evaluations |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for particles in (50, 100, 200, 400, 1000):
        for first in (1.0, 32.0):
            metric = MisinterpretationProbability(
                standfast.LinfBall(0.3), threshold=0.4, particles=particles, first=first
            )
            generator = torch.Generator().manual_seed(5)
            found = [metric(model, "input_x_gradient", x, generator=generator) for _ in range(runs)]
            values = sorted(f.log_probability.item() for f in found)
            holds = sum(f.low.item() <= -36 <= f.high.item() for f in found)
            unresolved = sum(not bool(f.resolved) for f in found)
            evaluations = np.mean([f.model_evaluations.item() for f in found])
            print(
                f"| {particles} | {first:g} | {values[0]:.1f}, {np.median(values):.1f}, {values[-1]:.1f} |"
                f" {unresolved} of {runs} | {holds} of {runs} | {evaluations:,.0f} |",
                flush=True,
            )


def compare_walk(_: int) -> None:
    """The paper's random walk with M = 250, and the Gaussian move, on the same events."""
    print(
        "\n| event | proposal | runs | mean error of ln P | root mean square error | evaluations per run |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    threshold = irwin_hall_threshold(50, math.log(1e-10))
    half = -math.log(1e-6)
    cases = [
        (
            "Irwin-Hall, d = 50, 1e-10",
            lambda x: x.sum(1) - threshold,
            UnitBox(50),
            irwin_hall_log_sf(50, threshold),
        ),
        ("corner, d = 784", lambda x: x[:, :2].prod(1) - 0.9992, UnitBox(784), None),
        (
            "half-space, d = 784, 1e-6",
            lambda x: x.sum(1) / 28 - 4.753424,
            StandardNormal(784),
            -half,
        ),
    ]
    for name, score, prior, truth in cases:
        if truth is None:  # P(U V > t) = 1 - t + t ln t
            t = 0.9992
            truth = math.log(1 - t + t * math.log(t))
        for proposal, options, runs in (
            ("gaussian, defaults", {}, 20),
            (
                "random walk, M = 250, quantile 0.1",
                {"proposal": "random_walk", "moves": 250, "quantile": 0.1},
                5,
            ),
        ):
            generator = torch.Generator().manual_seed(7)
            found = [
                SubsetSimulation(**options).run(score, prior, generator=generator)
                for _ in range(runs)
            ]
            errors = np.array([e.log_probability.item() for e in found]) - truth
            evaluations = np.mean([e.model_evaluations.item() for e in found])
            rms = np.sqrt((errors**2).mean())
            print(
                f"| {name} | {proposal} | {runs} | {errors.mean():+.2f} | {rms:.2f} | {evaluations:,.0f} |"
            )


def compare_model(samples: int) -> None:
    """Events with P between 1e-4 and 1e-2 on the bundled model: subset simulation and plain Monte Carlo."""
    digits = standfast.data.bundled("digits")[:10].inputs
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    ball, agree = standfast.LinfBall(0.3), 0
    print(
        "\n| digit | threshold | ln P, Monte Carlo | ln P, subset simulation | difference in combined errors |"
    )
    print("| --- | --- | --- | --- | --- |")
    pilot = MisinterpretationProbability(ball, threshold=-0.9, particles=1000, floor=-9.0)
    curves = pilot(model, "input_x_gradient", digits).levels
    for digit in range(10):
        levels = curves[digit]
        assert levels is not None
        pick = int((levels.log_probability - math.log(1e-3)).abs().argmin())
        threshold = -0.9 - levels.threshold[pick].item()
        x = digits[digit : digit + 1]
        plain = MisinterpretationProbability(
            ball, threshold=threshold, method="monte_carlo", samples=samples
        )
        subset = MisinterpretationProbability(ball, threshold=threshold)
        a = plain(model, "input_x_gradient", x, generator=torch.Generator().manual_seed(1))
        b = subset(model, "input_x_gradient", x, generator=torch.Generator().manual_seed(2))
        difference = (b.log_probability - a.log_probability).item()
        in_errors = difference / math.hypot(a.std_error.item(), b.std_error.item())
        agree += abs(in_errors) <= 3
        print(
            f"| {digit} | {threshold:.3f} | {a.log_probability.item():.3f} ± {a.std_error.item():.3f} |"
            f" {b.log_probability.item():.3f} ± {b.std_error.item():.3f} | {in_errors:+.1f} |",
            flush=True,
        )
    print(f"\nwithin three combined standard errors: {agree} of 10")


PARTS: dict[str, Callable[[int], None]] = {
    "exact": compare_exact,
    "stages": compare_stages,
    "traps": compare_traps,
    "cost": compare_cost,
    "corner": compare_corner,
    "modes": compare_modes,
    "walk": compare_walk,
    "model": compare_model,
}


def main() -> None:
    """Run all parts, or the part that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=None, help="200; 20 for the part `peers`")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--part", choices=[*PARTS, "particles", "peers"])
    options = parser.parse_args()
    runs = options.runs or 200
    for name, compare in PARTS.items():
        if options.part in (None, name):
            compare(options.samples if name == "model" else runs)
    if options.part == "particles":  # needs the MNIST test set
        compare_particles(runs)
    if options.part == "peers":
        compare_tools(options.runs or 20)


if __name__ == "__main__":
    main()
