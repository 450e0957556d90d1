"""Max-sensitivity without `normalise` grows with the scale of the maps: explainers are not compared by it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import standfast
from standfast.checks import decide_requirements
from standfast.errors import ArgumentError
from standfast.study.file.entries import RequirementEntry

METRIC = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.05), samples=3)


@pytest.fixture(scope="module")
def found() -> standfast.Results:
    digits = standfast.data.bundled("digits")[:12]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    return standfast.evaluate(
        model,
        # the same maps on another scale
        {"small": _explain, "larger": _explain_larger},
        digits,
        {"sensitivity": METRIC},
        sanity=False,
        controls=False,
        progress=False,
    )


def _explain(module: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.enable_grad():
        leaves = inputs.detach().requires_grad_()
        logits = module(leaves).gather(1, targets[:, None]).sum()
        (gradient,) = torch.autograd.grad(logits, leaves)
    return gradient


def _explain_larger(module: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return 1000 * _explain(module, inputs, targets)


def test_no_explainer_is_ranked_judged_or_best(found: standfast.Results) -> None:
    (metric,) = found.summary.metrics
    small, large = metric.find_row("small"), metric.find_row("larger")
    assert small is not None
    assert large is not None
    assert large.value == pytest.approx(1000 * (small.value or 0), rel=1e-3)
    assert metric.decision.reason == "unranked"
    assert [(row.mean_rank, row.standing, row.quality) for row in metric.rows] == [
        (None, None, None)
    ] * 2
    assert metric.stars == {}
    assert found.best() == {}


def test_no_requirement_compares_them(found: standfast.Results) -> None:
    entry = RequirementEntry(metric="sensitivity", explainer="small", better_than="larger")
    with pytest.raises(ArgumentError, match="one that ranks explainers, for a comparison"):
        decide_requirements(found, [entry])
