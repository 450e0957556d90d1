"""Our metrics as Quantus calls them: the same values as in our own calls, and in its `evaluate`."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from light import light_metric
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.integrations.quantus import QuantusMetric, explain_function
from standfast.metrics import Metric

BALL = standfast.LinfBall(0.1)
BOUNDS = (0.0, 1.0)
SENSITIVITY = standfast.metrics.MaxSensitivity(BALL, samples=4)


@pytest.fixture(scope="module")
def quantus() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("quantus")


def make(shape: tuple[int, ...] = (1, 8, 8), count: int = 5) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, inputs and the classes that it predicts."""
    model = small_net(shape).eval()
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))
    return model, x, model(x).argmax(1)


def gradient(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
    """Input times gradient, as Quantus wants it."""
    x = torch.as_tensor(np.asarray(inputs)).requires_grad_(True)
    chosen = model(x).gather(1, torch.as_tensor(np.asarray(targets)).long()[:, None]).sum()
    (found,) = torch.autograd.grad(chosen, x)
    return (found * x).detach().numpy()


def direct(metric: Metric, model: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> list[float]:
    classifier = standfast.Model(model, BOUNDS, device="cpu")
    explainer = standfast.explainers.from_callable(gradient)  # the very function that Quantus gets
    result = metric(classifier, explainer, x, y, generator=torch.Generator().manual_seed(seed))
    return result.value.double().tolist()


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_every_metric_has_the_value_of_our_own_call(name: str) -> None:
    model, x, y = make(count=3)
    example = light_metric(name)
    if name == "attribution_attack":  # its other attacks need gradients of the explanation
        example = dataclasses.replace(example, attack="random_sign")
    scores = QuantusMetric(example, BOUNDS, seed=3)(
        model, x.numpy(), y.numpy(), explain_func=gradient
    )
    assert scores == pytest.approx(
        direct(example, model, x, y, seed=3), rel=1e-4, abs=1e-6, nan_ok=True
    )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_quantus_evaluate_runs_ours_beside_its_own(
    shape: tuple[int, ...], quantus: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model, x, y = make(shape)
    together = {
        "theirs": quantus.MaxSensitivity(nr_samples=2, disable_warnings=True),
        "ours": QuantusMetric(SENSITIVITY, BOUNDS),
        "aopc": QuantusMetric("aopc:steps=5", BOUNDS),
    }
    found = quantus.evaluate(
        together, {"gradient": gradient}, model, x.numpy(), y.numpy(), explain_func_kwargs={}
    )
    assert "Error" not in capsys.readouterr().out
    assert found["gradient"]["ours"] == pytest.approx(direct(SENSITIVITY, model, x, y), rel=1e-4)
    aopc = direct(standfast.metrics.AOPC(steps=5), model, x, y)
    assert found["gradient"]["aopc"] == pytest.approx(aopc, rel=1e-4, abs=1e-6)
    assert len(found["gradient"]["theirs"]) == 5


def test_options_of_the_explanation_reach_it() -> None:
    model, x, y = make()
    seen: list[tuple[int, dict[str, Any]]] = []

    def noting(model: nn.Module, inputs: Any, targets: Any, **more: Any) -> np.ndarray[Any, Any]:
        seen.append((len(inputs), more))
        return gradient(model, inputs, targets)

    options = {"explain_func_kwargs": {"n_steps": 7}, "device": "cpu", "batch_size": 2}
    QuantusMetric(SENSITIVITY, BOUNDS)(model, x.numpy(), y.numpy(), explain_func=noting, **options)
    assert all(more == {"n_steps": 7} for _, more in seen)
    assert max(rows for rows, _ in seen) >= 20  # all copies at once


def test_what_cannot_be_evaluated_is_nan_and_the_result_says_why() -> None:
    model, x, y = make()
    y[2] = (y[2] + 1) % 4
    metric = QuantusMetric(SENSITIVITY, BOUNDS)
    scores = metric(model, x.numpy(), y.numpy(), explain_func=gradient)
    assert [bool(np.isnan(score)) for score in scores] == [False, False, True, False, False]
    assert metric.result.status == ("ok", "ok", "misclassified", "ok", "ok")


def test_options_that_make_no_sense_are_refused() -> None:
    model, x, y = make()

    def call(**options: Any) -> Any:
        given = {
            "model": model,
            "x_batch": x.numpy(),
            "y_batch": y.numpy(),
            "explain_func": gradient,
        } | options
        return QuantusMetric(SENSITIVITY, BOUNDS)(**given)

    assert_refused(
        call,
        softmax=[True],
        model_predict_kwargs=[{"a": 1}],
        custom_batch=[[1.0]],
        channel_first=[False],
    )
    assert_refused(call, explain_func=[None], model=[gradient], x_batch=[x.numpy() + 1])
    assert_refused(partial(QuantusMetric, bounds=BOUNDS), metric=["worst_cas"])


def test_our_explainers_for_their_metrics(quantus: Any) -> None:
    model, x, y = make()
    explain = explain_function("input_x_gradient", BOUNDS)
    assert np.allclose(
        explain(model, x.numpy(), y.numpy()), gradient(model, x.numpy(), y.numpy()), atol=1e-6
    )
    values = []
    for function in (explain, gradient):
        np.random.seed(0)  # noqa: NPY002
        theirs = quantus.MaxSensitivity(nr_samples=3, disable_warnings=True)
        values.append(theirs(model, x.numpy(), y.numpy(), explain_func=function))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
