"""The side by side with OpenTURNS and UQpy: what the tools are given, their budgets."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "rare_events"))
import cases  # noqa: E402
import other_tools  # noqa: E402

SMALL = other_tools.Setting(
    cases.make_normal_problem(
        2, lambda x: x.sum(1) / 2**0.5 - stats.norm.isf(1e-3), math.log(1e-3)
    ),
    2,
    20_000,
)


def test_normal_points_give_the_scores_of_the_problem() -> None:
    names = other_tools.list_problems()
    assert len(names) == 16
    for name in (
        "meatball, d = 100",
        "Irwin-Hall, d = 50, 1e-5",
        "two stages, d = 100, 1e-4 x 1e-5",
    ):
        problem = names[name]()
        setting = other_tools.Setting(problem, problem.prior.shape.numel(), 1000)
        points = np.random.default_rng(0).standard_normal((2000, setting.dimension))
        direct = problem.score(problem.prior.sample(2000, problem.prior.streams(0))[0]).reshape(
            2000, -1
        )
        assert stats.ks_2samp(setting.score(points), direct.amin(1).numpy()).pvalue > 1e-4
    count = other_tools.Counter(setting)
    assert (count(points) == -setting.score(points)).all()
    assert count.evaluations == 2000


def test_runs_from_estimates_of_p() -> None:
    run = other_tools.make_run(1e-3, -1e-4, 2e-3, 10)
    assert (run.log_probability, run.low, run.high) == pytest.approx(
        (math.log(1e-3), -math.inf, math.log(2e-3))
    )
    for nothing in (0.0, math.nan, math.inf):
        assert other_tools.make_run(nothing, 0.0, 0.0, 10).failed


def test_budgets() -> None:
    assert SMALL.levels == 3
    price = other_tools.measure_price(SMALL.problem, first=1.0)
    assert other_tools.run_one_size(SMALL, 1).evaluations == pytest.approx(20_000, rel=0.25)
    assert 5000 < price < 40_000
    # six moves at each of a few levels
    assert other_tools.run_walk(SMALL, 1).evaluations % 6000 == 1000


@pytest.mark.filterwarnings("ignore")  # UQpy imports pkg_resources
@pytest.mark.parametrize("name", list(other_tools.list_tools()))
def test_each_tool_is_near_on_an_easy_problem(name: str) -> None:
    tool = other_tools.list_tools()[name]
    if tool.package and importlib.util.find_spec(other_tools.PACKAGES[tool.package]) is None:
        pytest.skip(f"{tool.package} is not installed")
    run = tool.run(SMALL, 3)
    assert not run.failed
    assert run.log_probability == pytest.approx(math.log(1e-3), abs=1.5)
    assert run.low < run.log_probability < run.high
