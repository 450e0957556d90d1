"""The problems of `estimators.py`, with known or measured answers, and the estimators that run on them."""

from __future__ import annotations

import functools
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safari_walk import safari_estimate
from scipy import integrate, special, stats
from torch import Tensor

import standfast
from standfast.algorithms import StandardNormal, SubsetSimulation
from standfast.explainers import get as get_explainer
from standfast.metrics.probe import Call, Probe
from standfast.metrics.safari.events import make_event
from standfast.neighbourhoods import Region

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "references"))
from exact import irwin_hall_log_sf

Score = Callable[[Tensor], Tensor]
CUT = 8.0  # standard deviations at which the walk's normal prior is truncated: 1e-15 lies beyond


@dataclass(frozen=True)
class Problem:
    """A score, the prior for our estimator, and the walk's region: the same distribution (truncated at `CUT`)."""

    score: Score
    prior: Region
    region: Region
    radius: float
    truth: float = math.nan  # ln P; NaN if it is measured by plain Monte Carlo, or not known
    measure: Callable[[Tensor], tuple[Tensor, Tensor]] | None = (
        None  # margin and similarity, for the model
    )


@dataclass(frozen=True)
class Case:
    """A problem by name; `kind` is `exact` or `model` (reference by plain Monte Carlo)."""

    name: str
    kind: str
    build: Callable[[], Problem]
    digit: int | None = None
    radius: float | None = None
    threshold: float | None = None

    @property
    def ground(self) -> str:
        """The digit and radius; cases with the same ones share their Monte Carlo samples."""
        return f"digit {self.digit}, radius {self.radius}"


def make_box(dimension: int) -> Region:
    """The uniform distribution on the unit box, in float32 as images are."""
    return standfast.LinfBall(0.5).around(torch.full((1, dimension), 0.5))


def sum_features(x: Tensor) -> Tensor:
    """The sum of the features in float64: `(N,)`."""
    return x.sum(1, dtype=torch.float64)


@functools.cache
def find_limit(dimension: int, exponent: int) -> float:
    """The sum that is exceeded with P = 10^-exponent, rounded to 1/1024: short fractions make the exact answer fast."""
    spread, log_probability = math.sqrt(dimension / 12), -exponent * math.log(10)
    t = dimension / 2 + spread * stats.norm.isf(math.exp(log_probability))
    t = round(1024 * t) / 1024
    for _ in range(5):  # Newton's method
        now, further = irwin_hall_log_sf(dimension, t), irwin_hall_log_sf(dimension, t + 1 / 16)
        t = round(1024 * (t + (log_probability - now) / (16 * (further - now)))) / 1024
    return t


def make_irwin_hall(dimension: int, exponent: int) -> Problem:
    """The sum of uniform features exceeds a limit, with P = 10^-exponent."""
    t, region = find_limit(dimension, exponent), make_box(dimension)
    return Problem(
        lambda x: sum_features(x) - t, region, region, 0.5, irwin_hall_log_sf(dimension, t)
    )


def make_two_stages() -> Problem:
    """An event in two stages: the sum of the first 50 features, and then the sum of the other 50."""
    a, b, region = find_limit(50, 4), find_limit(50, 5), make_box(100)
    truth = irwin_hall_log_sf(50, a) + irwin_hall_log_sf(50, b)

    def score(x: Tensor) -> Tensor:
        return torch.stack([sum_features(x[:, :50]) - a, sum_features(x[:, 50:]) - b], 1)

    return Problem(score, region, region, 0.5, truth)


def make_normal_problem(dimension: int, score: Score, truth: float) -> Problem:
    """A problem with standard normal input."""
    ball = standfast.LinfBall(CUT, "truncated_normal", 1.0)
    region = ball.around(torch.zeros(1, dimension, dtype=torch.float64))
    return Problem(score, StandardNormal(dimension), region, CUT, truth)


def make_half_space() -> Problem:
    """The sum of 200 normal features is large: P = 1e-12."""
    far = stats.norm.isf(1e-12)
    return make_normal_problem(200, lambda x: x.sum(1) / 200**0.5 - far, math.log(1e-12))


def make_two_tails() -> Problem:
    """The sum of 50 normal features is large, positive or negative: P = 1e-8."""
    far = stats.norm.isf(5e-9)
    return make_normal_problem(50, lambda x: (x.sum(1) / 50**0.5).abs() - far, math.log(1e-8))


def compute_cone_log_probability(dimension: int, length: float, threshold: float) -> float:
    """ln P(Pearson < threshold) for maps `m + noise`, where m has that length after centring, with normal noise.

    Centring leaves `dimension - 1` directions. The noisy map has the component `length + z` along m, and chi with
    `dimension - 2` degrees of freedom across it. So the event is `length + z < c chi` with `c = t / sqrt(1 - t^2)`,
    which is a noncentral t distribution. It is computed by quadrature, since library functions are inaccurate in its
    lower tail.
    """
    slope, degrees = threshold / math.sqrt(1 - threshold**2), dimension - 2

    def log_density(r: float) -> float:
        return float(special.log_ndtr(slope * r - length) + stats.chi.logpdf(r, degrees))

    grid = np.linspace(1e-3, 4 * math.sqrt(degrees) + length, 4001)
    peak = float(grid[np.argmax([log_density(r) for r in grid])])
    top = log_density(peak)
    value, _ = integrate.quad(
        lambda r: math.exp(log_density(r) - top),
        max(peak - 12, 0.0),
        peak + 12,
        epsabs=0,
        epsrel=1e-11,
        limit=400,
    )
    return top + math.log(value)


def make_linear_classifier() -> Problem:
    """Gradient x input of a linear classifier with weights +1 and -1; its map is the signed input, so P is exact."""
    dimension, threshold = 50, 0.1
    layer = torch.nn.Linear(dimension, 2).double()
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(dimension // 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([sign, -sign]))
        layer.bias.copy_(torch.tensor([1000.0, -1000.0]))  # the class cannot change
    x = sign * torch.linspace(-1.8, 1.8, dimension, dtype=torch.float64)
    model = standfast.Model(layer, bounds=(-100.0, 100.0), device="cpu", batch_size=1024)
    ball = standfast.LinfBall(CUT, "truncated_normal", 1.0)
    mapped = sign * x
    truth = compute_cone_log_probability(
        dimension, float((mapped - mapped.mean()).norm()), threshold
    )
    return make_explanation_problem(model, x[None], ball, threshold, absolute=False, truth=truth)


def make_explanation_problem(
    model: standfast.Model,
    x: Tensor,
    ball: standfast.LinfBall,
    threshold: float,
    absolute: bool = True,
    truth: float = math.nan,
) -> Problem:
    """`changed_explanation` of input x gradient, Pearson below the threshold, around one input."""
    explainer = get_explainer("input_x_gradient")
    event = make_event(
        "changed_explanation", standfast.similarity.get("pearson"), threshold, needs_threshold=True
    )
    with model.session():
        probe = Probe(Call(model, explainer, x), event.similarity, absolute=absolute)
    assert len(probe.usable()) == 1
    region = ball.around(x, model.bounds)

    def query(points: Tensor) -> Any:
        with model.session():
            return event.query(probe, points, torch.zeros(len(points), dtype=torch.int64))

    def measure(points: Tensor) -> tuple[Tensor, Tensor]:
        found = query(points)
        assert found.similarity is not None
        return found.margin, found.similarity

    return Problem(
        lambda points: event.scores(query(points)), region, region, ball.radius, truth, measure
    )


@functools.cache
def load_lenet() -> tuple[standfast.Model, Tensor]:
    """The bundled LeNet-5 and the first ten digits."""
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=256
    )
    return model, standfast.data.bundled("digits")[:10].inputs


def make_digit_case(digit: int, radius: float, threshold: float) -> Case:
    """The changed explanation of one digit, for maps of input x gradient."""

    def build() -> Problem:
        model, digits = load_lenet()
        return make_explanation_problem(
            model, digits[digit : digit + 1], standfast.LinfBall(radius), threshold
        )

    name = f"digit {digit}, radius {radius}, PCC < {threshold}"
    return Case(name, "model", build, digit, radius, threshold)


def make_exact_case(name: str, build: Callable[[], Problem]) -> Case:
    """A case with an exact answer; its problem is built once."""
    return Case(name, "exact", functools.cache(build))


CASES = [
    *(
        make_exact_case(f"Irwin-Hall, d = {d}, 1e-{k}", functools.partial(make_irwin_hall, d, k))
        for d in (50, 784)
        for k in (5, 10, 20)
    ),
    make_exact_case("half-space, d = 200, 1e-12", make_half_space),
    make_exact_case("two tails, d = 50, 1e-8", make_two_tails),
    make_exact_case("two stages, d = 100, 1e-4 x 1e-5", make_two_stages),
    make_exact_case("linear classifier, d = 50, PCC < 0.1", make_linear_classifier),
    make_digit_case(1, 0.3, 0.5),
    make_digit_case(0, 0.1, 0.865),
]


@dataclass(frozen=True)
class Run:
    """One run of an estimator. `low` and `high` are its claimed 95% interval; `failed` means without an estimate."""

    log_probability: float
    low: float
    high: float
    error: float
    evaluations: int
    failed: bool


def run_ours(problem: Problem, seed: int, **options: Any) -> Run:
    """Run standfast."""
    found = SubsetSimulation(**options).run(
        problem.score, problem.prior, generator=torch.Generator().manual_seed(seed)
    )
    low, high = found.interval()[0].tolist()
    return Run(
        found.log_probability.item(),
        low,
        high,
        found.std_error.item(),
        int(found.model_evaluations.item()),
        bool(found.censored.item()),
    )


def run_safari(problem: Problem, seed: int, **options: Any) -> Run:
    """Run the walk. The stages of a changed explanation are merged into one, as in the paper (Eq. 12)."""

    def score(x: Tensor) -> Tensor:
        values = problem.score(x)
        if problem.measure is None:
            return values
        return torch.where(values[:, 0] >= 0, values[:, 1], -math.inf)

    found = safari_estimate(score, problem.region, problem.radius, seed, **options)
    value, error = found.log_probability, found.delta
    return Run(
        value, value - 1.96 * error, value + 1.96 * error, error, found.evaluations, found.failed
    )


ESTIMATORS: dict[str, Callable[[Problem, int], Run]] = {
    "standfast": functools.partial(run_ours, first=1.0),
    "SAFARI, M = 10": functools.partial(run_safari, moves=10),
    "SAFARI, M = 50": functools.partial(run_safari, moves=50),
    "SAFARI, M = 250": functools.partial(run_safari, moves=250),
    "SAFARI, M = 50, width r/3": functools.partial(run_safari, moves=50, width=1 / 3),
    "SAFARI, M = 10, width r/3": functools.partial(run_safari, moves=10, width=1 / 3),
}
MONTE_CARLO, BLOCK = "plain Monte Carlo", 20_000


def make_seed(*names: object) -> int:
    """A seed that depends on the names of what is run, and on nothing else."""
    return zlib.crc32("|".join(map(str, names)).encode())


def count_monte_carlo_hits(cases: list[Case], block: int) -> dict[str, int]:
    """Hits in one block of samples, by case, for cases with one digit and radius."""
    problem = cases[0].build()
    assert problem.measure is not None
    streams = problem.region.streams(make_seed(cases[0].ground, MONTE_CARLO, block))
    hits = dict.fromkeys((case.name for case in cases), 0)
    for _ in range(0, BLOCK, 1000):
        margin, similarity = problem.measure(problem.region.sample(1000, streams)[0])
        for case in cases:
            hits[case.name] += int(((margin < 0) & (similarity < case.threshold)).sum())
    return hits


def list_runs(part: str) -> Iterator[tuple[str, str, int]]:
    """The cases and estimators of a part, each with its number of runs for `--runs 30`."""
    for case, runs in _plan_runs()[part].items():
        yield from ((case, estimator, count) for estimator, count in runs.items())


def _plan_runs() -> dict[str, dict[str, dict[str, int]]]:
    """Numbers of runs by part, case and estimator: many if a run takes a tenth of a second, few if it takes minutes."""
    cheap = dict(zip(COMPARED, (30, 10, 6, 2, 10, 6), strict=True))
    costly = dict(zip(COMPARED, (20, 6, 3, 1, 6, 3), strict=True))
    deep = {5: (8, 3, 3, 1, 4, 3), 10: (8, 3, 2, 1, 4, 2), 20: (5, 2, 1, 0, 3, 1)}
    pixels = {
        f"Irwin-Hall, d = 784, 1e-{k}": dict(zip(COMPARED, runs, strict=True))
        for k, runs in deep.items()
    }
    names = [case.name for case in CASES if case.kind == "exact"]
    slow = {name: costly for name in names if name.startswith(("half-space", "linear"))}
    return {
        "exact": {name: (pixels | slow).get(name, cheap) for name in names},
        "model": {
            "digit 1, radius 0.3, PCC < 0.5": dict(zip(COMPARED, (6, 3, 1, 1, 3, 1), strict=True))
            | {MONTE_CARLO: 10},
            "digit 0, radius 0.1, PCC < 0.865": dict(zip(COMPARED, (5, 2, 1, 0, 2, 1), strict=True))
            | {MONTE_CARLO: 12},
        },
    }


COMPARED = (
    "standfast",
    "SAFARI, M = 10",
    "SAFARI, M = 50",
    "SAFARI, M = 250",
    "SAFARI, M = 10, width r/3",
    "SAFARI, M = 50, width r/3",
)
#: the cases of `--quick`, which makes a tenth of the runs
QUICK = (
    "Irwin-Hall, d = 50, 1e-5",
    "Irwin-Hall, d = 50, 1e-10",
    "two tails, d = 50, 1e-8",
    "digit 1, radius 0.3, PCC < 0.5",
)
