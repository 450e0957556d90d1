"""What everything registered must do, also what is registered later, without a line more here.

The checks themselves are in `standfast.testing`, for plug-ins to call. Plug-ins that are installed are checked as well.
(Neighbourhoods and searches have their contracts in `test_neighbourhood.py` and `test_searches.py`.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
import torch
from light import light_explainer, light_metric

import standfast
from standfast.metrics import Metric
from standfast.testing import (
    METRIC_CHECKS,
    SHAPES,
    check_batch_independence,
    check_explainer,
    check_result,
    check_similarity,
    small_net,
)


def list_checks() -> list[Any]:
    """Every check with every shape.

    What a result has depends on the shape of the inputs. Of the other checks one shape is quick, and the rest is slow.
    """
    checks = []
    for check in METRIC_CHECKS:
        for shape in SHAPES:
            is_quick = check is check_result or shape == "series"
            if check is check_batch_independence:
                # `test_bits_by_batches.py` has more batches than this check, of all shapes
                is_quick = False
            marks = [] if is_quick else [pytest.mark.slow]
            name = f"{check.__name__}-{shape}"
            checks.append(pytest.param(check, shape, id=name, marks=marks))
    return checks


@pytest.mark.parametrize(("check", "shape"), list_checks())
@pytest.mark.parametrize("name", standfast.metrics.names())
def test_metric(name: str, check: Callable[[Metric, tuple[int, ...]], None], shape: str) -> None:
    metric = light_metric(name)
    assert metric.name == name
    check(metric, SHAPES[shape])


def test_frames_of_all_metrics_can_be_put_below_each_other() -> None:
    x = torch.rand(2, *SHAPES["image"], generator=torch.Generator().manual_seed(1))
    model = standfast.Model(small_net(SHAPES["image"]), (0.0, 1.0), device="cpu")
    frames = [
        light_metric(name)(model, "saliency", x).frame() for name in standfast.metrics.names()
    ]
    assert len(pl.concat(frames, how="diagonal")) == 2 * len(frames)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", standfast.explainers.names())
def test_explainer(name: str, shape: str) -> None:
    explainer = light_explainer(name)
    of_layer = any(field.name == "layer" for field in dataclasses.fields(explainer))  # type: ignore[arg-type]
    if name == "edges" and shape == "flat":
        model = standfast.Model(small_net(SHAPES[shape]), (0.0, 1.0), device="cpu")
        with pytest.raises(standfast.ArgumentError, match="images or series"):
            explainer(model, torch.rand(2, *SHAPES[shape]))
        return
    if of_layer and shape == "flat":
        model = standfast.Model(small_net(SHAPES[shape]), (0.0, 1.0), device="cpu")
        with pytest.raises(standfast.StandfastError, match="layer"):
            explainer(model, torch.rand(2, *SHAPES[shape]))
        return
    check_explainer(explainer, [shape])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", standfast.similarity.names())
def test_similarity(name: str, shape: str) -> None:
    check_similarity(standfast.similarity.get(name), [shape])
