"""benchmarks/rare_events: the published estimator, the exact answers, the tables and the command."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions

import standfast
from exact import irwin_hall_log_sf, irwin_hall_threshold

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "rare_events"))
import cases  # noqa: E402
import tables  # noqa: E402
from safari_walk import SafariEstimate, Window, compute_claimed_error, mask_stage, safari_estimate  # noqa: E402


def repeat(
    score: Callable[[torch.Tensor], torch.Tensor],
    region: Any,
    radius: float,
    runs: int,
    **options: Any,
) -> list[SafariEstimate]:
    return [safari_estimate(score, region, radius, seed, **options) for seed in range(runs)]


def check_mean(found: list[SafariEstimate], truth: float, allowance: float = 0.03) -> None:
    errors = np.array([e.log_probability for e in found]) - truth
    assert abs(errors.mean()) < 4 * errors.std(ddof=1) / len(errors) ** 0.5 + allowance


def test_claimed_error_is_equation_16() -> None:
    # shares 0.1, 0.1 and 0.35 of 1000: 0.9 / 100 + 0.9 / 100 + 0.65 / 350
    assert compute_claimed_error([0.1, 0.1, 0.35], 1000) == pytest.approx(0.1409154, abs=1e-6)
    assert compute_claimed_error([1.0], 1000) == 0
    (run,) = repeat(lambda x: x.sum(1) - 1.9, cases.make_box(2), 0.5, 1, moves=5)
    assert run.delta == pytest.approx(math.sqrt(sum((1 - p) / (p * 1000) for p in run.shares)))
    assert run.log_probability == pytest.approx(sum(map(math.log, run.shares)))
    assert run.evaluations == 1000 * (1 + 5 * (len(run.shares) - 1))


@pytest.mark.parametrize("width", [0.01, 0.13, 0.5])
def test_window_is_the_uniform_proposal_cut_to_the_ball(width: float) -> None:
    # against torch.distributions, feature by feature, on a ball that the bounds cut
    centre = torch.rand(
        1, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).round(decimals=1)
    region = standfast.LinfBall(0.3).around(centre, (0.0, 1.0))
    window = Window(region.lower, region.upper, 0.3)
    widths = torch.full((40, 1), width, dtype=torch.float64)
    x = region.sample(40, region.streams(1))[0]
    proposed = window.propose(x, widths, np.random.default_rng(0))

    def proposal(at: torch.Tensor) -> distributions.Uniform:
        return distributions.Uniform(
            torch.maximum(at - width, region.lower), torch.minimum(at + width, region.upper)
        )

    forth, back = proposal(x).log_prob(proposed).sum(1), proposal(proposed).log_prob(x).sum(1)
    assert torch.isfinite(forth).all()
    ratio = window.log_length(x, widths) - window.log_length(proposed, widths)
    assert torch.allclose(ratio, back - forth)
    share = (proposed - proposal(x).low) / (proposal(x).high - proposal(x).low)
    assert stats.kstest(share.flatten().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("adaptation", ["published", "pooled"])
def test_the_walk_is_right_where_it_mixes(adaptation: str) -> None:
    # a corner of the box, where the cut matters: without the ratio of Eq. 23, or with it upside down, this fails
    threshold = irwin_hall_threshold(2, math.log(1e-4))
    found = repeat(
        lambda x: x.sum(1) - threshold,
        cases.make_box(2),
        0.5,
        12,
        moves=40,
        width=1 / 3,
        adaptation=adaptation,
    )
    check_mean(found, irwin_hall_log_sf(2, threshold))
    assert not any(run.failed for run in found)


def test_the_walk_with_a_normal_prior_and_with_stages() -> None:
    ball = standfast.LinfBall(8.0, "truncated_normal", 1.0)
    region = ball.around(torch.zeros(1, 3, dtype=torch.float64))
    found = repeat(lambda x: x.sum(1) / 3**0.5 - 3.5, region, 8.0, 12, moves=60, width=0.1)
    check_mean(found, stats.norm.logsf(3.5))
    score = lambda x: torch.stack([x[:, 0] - 0.98, x[:, 1] - 0.95], 1)  # noqa: E731
    check_mean(
        repeat(score, cases.make_box(2), 0.5, 12, moves=40, width=1 / 3), math.log(0.02 * 0.05)
    )


def test_slow_mixing_makes_the_published_walk_low_and_sure_of_itself() -> None:
    problem = cases.make_irwin_hall(50, 5)
    found = repeat(problem.score, problem.region, problem.radius, 4, moves=10)
    errors = np.array([run.log_probability for run in found]) - problem.truth
    assert errors.mean() < -3
    assert max(run.delta for run in found) < 0.4
    runs = [cases.run_ours(problem, seed) for seed in range(5)]
    assert sum(run.low <= problem.truth <= run.high for run in runs) >= 3


def test_a_walk_that_ends_nowhere_has_failed() -> None:
    for score in (
        lambda x: -torch.ones(len(x)),
        lambda x: x[:, 0] - 2,
        lambda x: torch.full((len(x),), torch.nan),
    ):
        assert safari_estimate(score, cases.make_box(2), 0.5, 0, moves=2, floor=-10.0).failed
    scores = torch.tensor([[1.0, 2.0], [-1.0, 3.0]])
    assert mask_stage(scores, 1).tolist() == [2.0, -math.inf]


def test_exact_answer_of_the_linear_classifier() -> None:
    # the lower tail of a noncentral t, where scipy is accurate; and by sampling the maps
    for dimension, length, threshold in ((50, 8.0, 0.5), (10, 3.0, 0.3)):
        slope = threshold / math.sqrt(1 - threshold**2)
        library = stats.nct.logcdf(slope * math.sqrt(dimension - 2), dimension - 2, length)
        assert cases.compute_cone_log_probability(dimension, length, threshold) == pytest.approx(
            library, rel=1e-8
        )
    problem = cases.make_linear_classifier()
    assert -35 < problem.truth < -15
    direction = np.linspace(-1, 1, 12)
    maps = direction + np.random.default_rng(0).standard_normal((100_000, 12))
    centred = maps - maps.mean(1, keepdims=True)
    pearson = centred @ direction / np.linalg.norm(centred, axis=1) / np.linalg.norm(direction)
    expected = math.exp(
        cases.compute_cone_log_probability(12, float(np.linalg.norm(direction)), 0.1)
    )
    assert abs((pearson < 0.1).mean() - expected) < 4 * math.sqrt(expected / 100_000)


def test_problems_are_the_same_for_both_estimators() -> None:
    for case in cases.CASES:
        if case.kind != "exact" or "784" in case.name:
            continue
        problem = case.build()
        assert problem.truth < math.log(1e-4)
        points = [
            prior.sample(4000, prior.streams(3))[0] for prior in (problem.prior, problem.region)
        ]
        scores = [problem.score(each).reshape(4000, -1)[:, -1].numpy() for each in points]
        assert stats.ks_2samp(*scores).pvalue > 1e-4


def test_monte_carlo_hits_and_reference() -> None:
    case = cases.make_digit_case(1, 0.3, 0.72)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "BLOCK", 1000)
        hits = cases.count_monte_carlo_hits([case], 0)[case.name]
        assert hits == cases.count_monte_carlo_hits([case], 0)[case.name]
    metric = standfast.metrics.MisinterpretationProbability(
        standfast.LinfBall(0.3), threshold=0.72, method="monte_carlo", samples=2000
    )
    model, digits = cases.load_lenet()
    expected = metric(model, "input_x_gradient", digits[1:2]).log_probability.exp().item()
    assert 0.02 < expected < 0.98
    assert abs(hits / 1000 - expected) < 4 * math.sqrt(
        expected * (1 - expected) * (1 / 1000 + 1 / 2000)
    )
    blocks = [{"hits": 30, "evaluations": 1000}, {"hits": 10, "evaluations": 1000}]
    assert tables.compute_reference(blocks) == pytest.approx((math.log(0.02), math.sqrt(0.98 / 40)))
    assert math.isnan(tables.compute_reference([])[0])


def record(
    case: str, estimator: str, run: int, value: float, error: float, truth: float, **more: Any
) -> dict[str, Any]:
    bounds = {"low": value - 2 * error, "high": value + 2 * error}
    base = {
        "case": case,
        "estimator": estimator,
        "run": run,
        "log_probability": value,
        "error": error,
    }
    return (
        base
        | bounds
        | {"evaluations": 1000, "failed": False, "truth": truth, "seconds": 1.0}
        | more
    )


def test_summaries_by_hand() -> None:
    name, model = "Irwin-Hall, d = 50, 1e-5", "digit 1, radius 0.3, PCC < 0.5"
    records = [
        record(name, "standfast", run, value, 0.1, -10.0)
        for run, value in enumerate((-10.1, -9.9, -10.3))
    ]
    records.append(record(name, "standfast", 3, -100.0, math.nan, -10.0, failed=True))
    records += [
        record(model, "standfast", 0, -5.45, 0.1, math.nan),
        record(model, "standfast", 1, -5.0, 0.1, math.nan),
    ]
    records.append(
        {
            "case": model,
            "estimator": "plain Monte Carlo",
            "run": 0,
            "hits": 100,
            "evaluations": 14841,
        }
    )
    summaries = tables.summarise(records)
    row = summaries[name, "standfast"]
    assert (row.runs, row.failed, row.covered) == (4, 1, 2)
    assert row.errors.mean() == pytest.approx(-0.1)
    assert row.rmse == pytest.approx(math.sqrt(0.11 / 3))
    assert row.work == pytest.approx(1000 * 0.11 / 3)
    # against a reference of ln P = -5.00 with standard error 0.1: -5.45 with 0.2 to each side is not covered by less
    row = summaries[model, "standfast"]
    assert row.truth_error == pytest.approx(0.0997, abs=1e-3)
    assert row.covered == 1
    assert row.rmse == pytest.approx(math.sqrt(0.45**2 / 2 - row.truth_error**2), abs=1e-3)


NAMES = ("headline", "exact")


@pytest.mark.slow
def test_quick() -> None:
    command = [
        "benchmarks/rare_events/estimators.py",
        "--quick",
        "--cache",
        "build/estimators-quick.jsonl",
    ]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in NAMES:
        assert f"{name}:\n" in done.stdout
