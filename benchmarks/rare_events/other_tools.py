"""Estimators of rare probabilities in other packages, side by side with ours: the part `peers` of `compare.py`.

OpenTURNS and UQpy are optional. A missing one is left out, with a sentence:

    pip install openturns UQpy "setuptools<81" "numpy<2.4"

UQpy 4.1 needs these versions: it imports `pkg_resources`, and assigns arrays of one element to numbers.

These get standard normal inputs, and our map from them to the problem's points. An event in two stages is one event for
them: the score is the smaller of the two. Every tool may use about the evaluations of one run of standfast with its
defaults; the functions `run_...` derive its options from this number.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Problem, Run, make_normal_problem, make_seed, run_ours, run_safari
from estimators import ROOT, Cache

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "references"))
from traps import TRAPS

CACHE = ROOT / "build" / "other_tools.jsonl"
SUMMARY_COLUMNS = (
    "| problems | tool | number | rmse of ln P: median (smallest to largest) | 95% interval holds | failed |"
    " evaluations / standfast's |"
)
PACKAGES = {"OpenTURNS": "openturns", "UQpy": "UQpy"}
# up to FLAT dimensions all tools are fast; above MANY a run of some takes minutes
FLAT, MANY = (
    3,
    100,
)
MOST_SAMPLES = 10_000  # of UQpy, whose time grows with the square of the number of chains
COLUMNS = "| problem | tool | runs | error of ln P, median | rmse | 95% interval holds | failed | evaluations |"


@dataclass(frozen=True)
class Setting:
    """A problem, and the evaluations that a run of each tool may use."""

    problem: Problem
    dimension: int
    budget: int

    @property
    def levels(self) -> int:
        """Levels of subset simulation that keep a tenth each."""
        return math.ceil(-self.problem.truth / math.log(10))

    def score(self, points: np.ndarray) -> np.ndarray:
        """Scores `(n,)` of standard normal points `(n, d)`."""
        prior = self.problem.prior
        z = torch.from_numpy(np.array(points, dtype=np.float64)).to(prior.dtype)
        values = self.problem.score(
            prior.from_gaussian(z.reshape(1, len(z), *prior.shape))[0]
        ).double()
        return values.reshape(len(z), -1).amin(1).numpy()


class Counter:
    """A limit state as other tools define it: failure is `value <= 0`. It counts its evaluations."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.evaluations = setting, 0

    def __call__(self, points: Any) -> np.ndarray:
        points = np.atleast_2d(np.asarray(points))
        self.evaluations += len(points)
        return -self.setting.score(points)


def make_run(probability: float, low: float, high: float, evaluations: int) -> Run:
    """A run from an estimate of P and its 95% interval. An estimate of 0 is a failed run: there is no ln P."""
    if not (math.isfinite(probability) and probability > 0):
        return Run(-math.inf, -math.inf, -math.inf, math.nan, evaluations, True)
    low = math.log(low) if low > 0 else -math.inf
    high = math.log(high) if math.isfinite(high) else math.inf
    return Run(math.log(probability), low, high, math.nan, evaluations, False)


def run_openturns(setting: Setting, seed: int, method: str) -> Run:
    """OpenTURNS' `SubsetSampling`, `NAIS` or cross entropy, with the confidence length that it returns."""
    import openturns

    openturns.Log.Show(openturns.Log.NONE)
    openturns.RandomGenerator.SetSeed(seed % 2**31)
    count = Counter(setting)
    function = openturns.PythonFunction(
        setting.dimension, 1, func_sample=lambda x: count(x)[:, None]
    )
    # independent coordinates, and not `Normal(d)`: its transformation takes d^2 operations for a point
    inputs = openturns.RandomVector(
        openturns.JointDistribution([openturns.Normal()] * setting.dimension)
    )
    event = openturns.ThresholdEvent(
        openturns.CompositeRandomVector(function, inputs), openturns.LessOrEqual(), 0.0
    )
    algorithm = getattr(openturns, method)(event)
    samples = setting.budget // setting.levels
    if method == "NAIS":  # its time grows with the square of the number of samples
        samples = min(samples, 4000 if setting.dimension <= FLAT else 1000)
    elif method != "SubsetSampling":
        # cross entropy keeps a quarter at each step, so it takes more steps
        samples = min(samples * 6 // 10, 30_000 if setting.dimension <= FLAT else 5000)
    algorithm.setBlockSize(500)
    algorithm.setMaximumOuterSampling(max(samples // 500, 1))
    algorithm.run()
    result = algorithm.getResult()
    probability, half = result.getProbabilityEstimate(), result.getConfidenceLength(0.95) / 2
    return make_run(probability, probability - half, probability + half, count.evaluations)


def run_uqpy(setting: Setting, seed: int) -> Run:
    """UQpy's `SubsetSimulation` with modified Metropolis-Hastings, and the coefficient of variation for chains."""
    from UQpy.distributions import Normal
    from UQpy.reliability import SubsetSimulation
    from UQpy.run_model import RunModel
    from UQpy.sampling import ModifiedMetropolisHastings

    # evaluates all points of a call at once; the original runs a script for each
    class Points(RunModel):
        def __init__(self) -> None:
            self.count, self.qoi_list = Counter(setting), []

        def run(self, samples: Any = None, **_: Any) -> None:
            self.qoi_list = list(self.count(samples))

    logging.getLogger("UQpy").setLevel(logging.ERROR)
    draws, model = np.random.RandomState(seed % 2**32), Points()
    size = min(setting.budget // setting.levels, MOST_SAMPLES) // 10 * 10
    chains = ModifiedMetropolisHastings(
        log_pdf_target=[Normal().log_pdf] * setting.dimension,
        dimension=setting.dimension,
        n_chains=size // 10,
        random_state=draws,
    )
    found = SubsetSimulation(
        model,
        sampling=chains,
        samples_init=draws.randn(size, setting.dimension),
        nsamples_per_subset=size,
        max_level=setting.levels + 20,
    )
    probability, spread = float(found.failure_probability), float(found.dependent_chains_CoV)
    half = 1.96 * spread * probability
    return make_run(probability, probability - half, probability + half, model.count.evaluations)


def run_one_size(setting: Setting, seed: int) -> Run:
    """standfast with populations of one size, the default until 2026-11-21, and more particles for the same price."""
    price = measure_price(setting.problem, first=1.0)
    return run_ours(
        setting.problem, seed, first=1.0, particles=max(round(1000 * setting.budget / price), 100)
    )


def run_walk(setting: Setting, seed: int) -> Run:
    """The walk of SAFARI's authors, N = 1000, with as many moves as the evaluations allow."""
    return run_safari(
        setting.problem, seed, moves=max(setting.budget // (1000 * setting.levels), 1)
    )


def measure_price(problem: Problem, **options: Any) -> int:
    """Evaluations of one run of standfast with 1000 particles."""
    return run_ours(problem, 0, **options).evaluations


@dataclass(frozen=True)
class Tool:
    """How a tool runs, in which package it is, and how many of the runs it makes on a problem of d dimensions."""

    run: Callable[[Setting, int], Run]
    package: str | None = None
    share: Callable[[int], float] = lambda d: 1.0 if d <= 200 else 0.3
    only_traps: bool = False


def list_tools() -> dict[str, Tool]:
    """The tools by name. Expensive ones make fewer runs, and none where a run takes minutes.

    A run of NAIS on the exact problem of 1e-20 did not end in minutes.
    """
    openturns = {
        "SubsetSampling": (
            "SubsetSampling",
            lambda d: 1.0 if d <= FLAT else 0.4 if d <= 200 else 0.0,
        ),
        "NAIS": ("NAIS", lambda d: 1.0 if d <= FLAT else 0.1 if d <= MANY else 0.0),
        "cross entropy": (
            "StandardSpaceCrossEntropyImportanceSampling",
            # with 100, one run raised, one did not end in minutes
            lambda d: 0.5 if d <= FLAT else 0.0,
        ),
    }
    return {
        "standfast": Tool(lambda setting, seed: run_ours(setting.problem, seed)),
        "standfast, `first=1`": Tool(run_one_size),
        "SAFARI's walk": Tool(run_walk),
        **{
            f"OpenTURNS {name}": Tool(
                functools.partial(run_openturns, method=method), "OpenTURNS", share, name == "NAIS"
            )
            for name, (method, share) in openturns.items()
        },
        "UQpy SubsetSimulation": Tool(run_uqpy, "UQpy", lambda d: 0.5 if d <= FLAT else 0.0),
    }


def list_problems() -> dict[str, Callable[[], Problem]]:
    """The exact problems of papers/safari/estimators.md and the traps in few and in many dimensions."""
    found: dict[str, Callable[[], Problem]] = {}
    for dimension in (2, 100):
        for trap in TRAPS:
            d = max(dimension // trap.blocks, 1) * trap.blocks
            make = functools.partial(make_normal_problem, d, trap.score, trap.log_probability)
            found[f"{trap.name}, d = {d}"] = make
    return found | {case.name: case.build for case in CASES if case.kind == "exact"}


def compare_tools(runs: int, cache_file: Path = CACHE) -> None:
    """Make the runs that are not stored yet, and print the table. Other problems than traps get 15% of `runs`."""
    warnings.simplefilter("ignore")
    tools = list_tools()
    for package, module in PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            print(f"{package} is not installed (`pip install {module}`), so its rows are left out.")
            tools = {name: tool for name, tool in tools.items() if tool.package != package}
    problems, cache = list_problems(), Cache(cache_file)
    misleading = tuple(trap.name for trap in TRAPS)  # the spread between runs is larger on these
    tasks: dict[tuple[str, str, int], float] = {}
    for name, build in problems.items():
        dimension = build().prior.shape.numel()
        for tool, how in tools.items():
            trap = name.startswith(misleading)
            share = how.share(dimension) * (1.0 if trap else 0.0 if how.only_traps else 0.15)
            count = math.ceil(runs * share)
            tasks.update({(name, tool, run): (run + 0.5) / count for run in range(count)})
    for key in sorted(tasks, key=lambda key: tasks[key]):
        if key not in cache.runs:
            cache.add(key, make_values(key, problems[key[0]], tools[key[1]]))
    print_table([cache.runs[key] for key in tasks])


@functools.cache
def make_setting(name: str, build: Callable[[], Problem]) -> Setting:
    """The problem of that name, with the evaluations of one run of standfast as its budget."""
    problem = build()
    return Setting(problem, problem.prior.shape.numel(), measure_price(problem))


def make_values(
    key: tuple[str, str, int], build: Callable[[], Problem], tool: Tool
) -> dict[str, Any]:
    """Make one run. An exception of a tool is a failed run."""
    setting, start = make_setting(key[0], build), time.process_time()
    try:
        run = tool.run(setting, make_seed(*key))
        values = vars(run) | {"truth": setting.problem.truth}
    except Exception as error:
        values = {
            "failed": True,
            "evaluations": 0,
            "truth": setting.problem.truth,
            "reason": repr(error)[:200],
        }
    return values | {"seconds": round(time.process_time() - start, 2)}


def print_table(records: list[dict[str, Any]]) -> None:
    """A row for each problem and tool, then one for each group of problems and tool."""
    rows: dict[tuple[str, str], Row] = {}
    for record in records:
        rows.setdefault((record["case"], record["estimator"]), Row([])).records.append(record)
    print(f"\n{COLUMNS}\n{'| --- ' * 8}|")
    last = None
    for (case, tool), row in rows.items():
        title, last = ("" if case == last else case), case
        accuracy = f"{np.median(row.errors):+.2f} | {row.rmse:.2f}" if len(row.errors) else "- | -"
        print(
            f"| {title} | {tool} | {len(row.records)} | {accuracy} | {row.holds} | {row.failed} |"
            f" {row.evaluations:,.0f} |"
        )
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for (case, tool), row in rows.items():
        groups.setdefault((name_group(case), tool), []).append((case, row))
    print(f"\n{SUMMARY_COLUMNS}\n{'| --- ' * 7}|")
    for (group, tool), found in sorted(
        groups.items(), key=lambda item: list(GROUPS).index(item[0][0])
    ):
        title, last = ("" if group == last else group), group
        errors = [row.rmse for _, row in found if len(row.errors)]
        runs, holds = sum(len(row.records) for _, row in found), sum(row.holds for _, row in found)
        price = [row.evaluations / rows[case, "standfast"].evaluations for case, row in found]
        accuracy = (
            f"{np.median(errors):.2f} ({min(errors):.2f} to {max(errors):.2f})" if errors else "-"
        )
        print(
            f"| {title} | {tool} | {len(found)} | {accuracy} | {holds / runs:.0%} of {runs} |"
            f" {sum(row.failed for _, row in found)} | {np.median(price):.2f} |"
        )


@dataclass(frozen=True)
class Row:
    """The runs of one tool on one problem. Failed ones have no error, and no interval that holds."""

    records: list[dict[str, Any]]

    @property
    def errors(self) -> np.ndarray:
        """Errors of ln P."""
        return np.array(
            [r["log_probability"] - r["truth"] for r in self.records if not r["failed"]]
        )

    @property
    def rmse(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt((self.errors**2).mean()))

    @property
    def holds(self) -> int:
        """How many intervals hold the true value."""
        return sum(r["low"] <= r["truth"] <= r["high"] for r in self.records if not r["failed"])

    @property
    def failed(self) -> int:
        """How many runs ended without an estimate."""
        return sum(r["failed"] for r in self.records)

    @property
    def evaluations(self) -> float:
        """Mean number of evaluations of the runs that ended; they are not known where a tool raised an exception."""
        known = [r["evaluations"] for r in self.records if "reason" not in r]
        return float(np.mean(known)) if known else math.nan


GROUPS = {
    "traps, d = 2 or 3": lambda trap, d: trap and d <= FLAT,
    "traps, d = 99 or 100": lambda trap, d: trap,
    "exact problems, d = 50 to 200": lambda trap, d: d <= 200,
    "exact problems, d = 784": lambda trap, d: True,
}


def name_group(case: str) -> str:
    """The group of a problem, by its name."""
    found = re.search(r"d = (\d+)", case)
    dimension = int(found.group(1)) if found else 0
    trap = case.startswith(tuple(trap.name for trap in TRAPS))
    return next(name for name, holds in GROUPS.items() if holds(trap, dimension))
