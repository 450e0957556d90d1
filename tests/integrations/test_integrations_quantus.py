"""Our metrics as Quantus metrics: the same values as in our own calls, Quantus's options, and its `evaluate`."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.metrics import Metric
from standfast.metrics.base import metrics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    quantus = pytest.importorskip("quantus")

from standfast.integrations import quantus as ours

BALL = standfast.LinfBall(0.1)


def rand(shape: tuple[int, ...] = (1, 8, 8), count: int = 5) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def net(shape: tuple[int, ...] = (1, 8, 8)) -> nn.Module:
    return small_net(shape).eval()


def gradient(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
    """Input times gradient, as Quantus wants it."""
    x = torch.as_tensor(np.asarray(inputs)).requires_grad_(True)
    chosen = model(x).gather(1, torch.as_tensor(np.asarray(targets)).long()[:, None]).sum()
    (found,) = torch.autograd.grad(chosen, x)
    return (found * x).detach().numpy()


def direct(metric: Metric, model: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    classifier = standfast.Model(model, (0.0, 1.0), device="cpu")
    explainer = standfast.explainers.from_callable(gradient)  # the very function that Quantus gets
    result = metric(classifier, explainer, x, y, generator=torch.Generator().manual_seed(seed))
    return result.value.double()


def same(scores: Any, wanted: Tensor) -> bool:
    """Up to the last bits: the same sums, in numpy and in torch."""
    return bool(torch.allclose(torch.tensor(scores, dtype=torch.float64), wanted, rtol=1e-4, atol=1e-6, equal_nan=True))


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_every_metric_has_the_value_of_our_own_call(name: str) -> None:
    model, x = net(), rand(count=3)
    y = model(x).argmax(1)
    example = metrics[name].example()
    if name == "attribution_attack":  # its other attacks need gradients of the explanation
        example = dataclasses.replace(example, attack="random_sign")
    wrapped = ours.metric(example, (0.0, 1.0), seed=3)
    assert isinstance(wrapped, quantus.metrics.base.Metric)
    wanted = direct(example, model, x, y, seed=3)
    scores = wrapped(model, x.numpy(), y.numpy(), explain_func=gradient, batch_size=2)
    assert same(scores, wanted)
    better = quantus.helpers.enums.ScoreDirection
    assert wrapped.score_direction is (better.HIGHER if example.direction == "higher" else better.LOWER)


def test_quantus_evaluate_runs_ours_beside_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    own = ours.metric("max_sensitivity", (0.0, 1.0), neighbourhood=BALL, samples=4)
    together = {
        "theirs": quantus.MaxSensitivity(nr_samples=2, disable_warnings=True),
        "ours": own,
        "aopc": ours.AOPC((0.0, 1.0), steps=5),
    }
    found = quantus.evaluate(together, {"gradient": gradient}, model, x.numpy(), y.numpy(), explain_func_kwargs={})
    assert "Error" not in capsys.readouterr().out
    assert same(found["gradient"]["ours"], direct(standfast.metrics.MaxSensitivity(BALL, samples=4), model, x, y))
    assert same(found["gradient"]["aopc"], direct(standfast.metrics.AOPC(steps=5), model, x, y))
    assert len(found["gradient"]["theirs"]) == 5


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes(shape: tuple[int, ...]) -> None:
    model, x = net(shape), rand(shape)
    y = model(x).argmax(1)
    metric = standfast.metrics.LocalLipschitz(BALL, samples=4)
    scores = ours.metric(metric, (0.0, 1.0))(model, x.numpy(), y.numpy(), explain_func=gradient, channel_first=True)
    assert same(scores, direct(metric, model, x, y))


def test_maps_with_one_channel_for_all() -> None:
    model, x = net((3, 8, 8)), rand((3, 8, 8))
    y = model(x).argmax(1)

    def summed(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
        return gradient(model, inputs, targets).sum(1)

    metric = standfast.metrics.MaxSensitivity(BALL, samples=4, normalise=True)
    explainer = standfast.explainers.from_callable(lambda m, x, t: gradient(m, x, t).sum(1, keepdims=True).repeat(3, 1))
    classifier, generator = standfast.Model(model, (0.0, 1.0), device="cpu"), torch.Generator().manual_seed(0)
    wanted = metric(classifier, explainer, x, y, generator=generator).value.double()
    assert same(ours.metric(metric, (0.0, 1.0))(model, x.numpy(), y.numpy(), explain_func=summed), wanted)


def test_an_option_of_ours_with_a_name_of_theirs_is_ours() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    wrapped = ours.metric("max_sensitivity", (0.0, 1.0), neighbourhood=BALL, samples=4, normalise=True)
    assert (wrapped.metric.normalise, wrapped.normalise) == (True, False)
    wanted = direct(standfast.metrics.MaxSensitivity(BALL, samples=4, normalise=True), model, x, y)
    assert same(wrapped(model, x.numpy(), y.numpy(), explain_func=gradient), wanted)
    assert not ours.metric("max_sensitivity", (0.0, 1.0), neighbourhood=BALL).metric.normalise


def test_a_batch_is_what_is_compared_with() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    metric = standfast.metrics.MaxSensitivity(BALL, samples=4)
    wrapped = ours.metric(metric, (0.0, 1.0))
    maps = gradient(model, x.numpy(), y.numpy())
    wanted = direct(metric, model, x, y)
    assert same(wrapped(model, x.numpy(), y.numpy(), maps, explain_func=gradient, batch_size=2), wanted)
    elsewhere = wrapped(model, x.numpy(), y.numpy(), maps + 1.0, explain_func=gradient)
    assert (torch.tensor(elsewhere) > wanted + 1).all()  # every map moves by 1 in each of 64 features


def test_a_batch_alone_is_enough_where_nothing_else_is_explained() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    maps = gradient(model, x.numpy(), y.numpy())
    alone = ours.AOPC((0.0, 1.0), steps=5)(model, x.numpy(), y.numpy(), maps)
    assert same(alone, direct(standfast.metrics.AOPC(steps=5), model, x, y))
    sensitivity = ours.MaxSensitivity((0.0, 1.0), neighbourhood=BALL)
    with pytest.raises(standfast.ModelError, match="explain_func: expected a function, because this metric also"):
        sensitivity(model, x.numpy(), y.numpy(), maps)


def test_a_batch_belongs_to_the_module_as_it_is() -> None:
    model, x = net(), rand(count=2)
    y = model(x).argmax(1)
    maps = gradient(model, x.numpy(), y.numpy())
    metric = standfast.metrics.ParameterSensitivityConsistency.example()  # explains the inputs with masked weights
    wrapped = ours.metric(metric, (0.0, 1.0))
    assert same(wrapped(model, x.numpy(), y.numpy(), maps, explain_func=gradient), direct(metric, model, x, y))
    with pytest.raises(standfast.ModelError, match="explain_func: expected a function"):
        wrapped(model, x.numpy(), y.numpy(), maps)


def test_signs_aggregates_and_explanation_options() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    seen: list[dict[str, Any]] = []

    def noting(model: nn.Module, inputs: Any, targets: Any, **more: Any) -> np.ndarray[Any, Any]:
        seen.append(more)
        return gradient(model, inputs, targets)

    settings = {"neighbourhood": BALL, "samples": 4}
    wrapped = ours.MaxSensitivity((0.0, 1.0), **settings, abs=True, return_aggregate=True)
    found = wrapped(
        model,
        x.numpy(),
        y.numpy(),
        explain_func=noting,
        explain_func_kwargs={"n_steps": 7},
        device="cpu",
        softmax=False,
    )
    wanted = direct(standfast.metrics.MaxSensitivity(BALL, samples=4, absolute=True), model, x, y)
    assert found == pytest.approx([float(wanted.mean())], rel=1e-4)
    assert all(more == {"n_steps": 7, "device": "cpu"} for more in seen)
    largest = ours.MaxSensitivity((0.0, 1.0), **settings, abs=True, return_aggregate=True, aggregate_func=np.max)
    (value,) = largest(model, x.numpy(), y.numpy(), explain_func=gradient)
    assert value == pytest.approx(float(wanted.max()), rel=1e-4)
    assert wrapped.all_evaluation_scores == found


def test_what_cannot_be_evaluated_is_nan_and_not_in_the_mean() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    y[2] = (y[2] + 1) % 4
    metric = standfast.metrics.MaxSensitivity(BALL, samples=4)
    scores = ours.metric(metric, (0.0, 1.0))(model, x.numpy(), y.numpy(), explain_func=gradient)
    assert [bool(np.isnan(score)) for score in scores] == [False, False, True, False, False]
    mean = ours.metric(metric, (0.0, 1.0), return_aggregate=True)
    (value,) = mean(model, x.numpy(), y.numpy(), explain_func=gradient)
    assert value == pytest.approx(np.nanmean(scores))
    assert [result.status[0] for result in mean.results] == ["ok"]


def test_one_call_of_the_explanation_for_all_perturbed_inputs() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    sizes: list[int] = []

    def noting(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
        sizes.append(len(inputs))
        return gradient(model, inputs, targets)

    ours.MaxSensitivity((0.0, 1.0), neighbourhood=BALL, samples=8)(model, x.numpy(), y.numpy(), explain_func=noting)
    assert sizes == [5, 40]  # the inputs, explained by Quantus itself; and all copies


def test_regions_for_each_sample_go_with_their_batch() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    labels = torch.stack([torch.arange(64).reshape(8, 8) // (8 if row % 2 else 16) for row in range(5)])
    metric = standfast.metrics.AOPC(steps=3, segments=labels)
    scores = ours.metric(metric, (0.0, 1.0))(model, x.numpy(), y.numpy(), explain_func=gradient, batch_size=2)
    assert same(scores, direct(metric, model, x, y))


def test_masks() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    masks = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(2)) > 0.5
    scores = ours.RelevanceLocalisation((0.0, 1.0))(
        model, x.numpy(), y.numpy(), s_batch=masks.numpy().astype(float), explain_func=gradient, batch_size=2
    )
    assert same(scores, direct(standfast.metrics.RelevanceLocalisation(masks), model, x, y))
    named = ours.metric(standfast.metrics.RelevanceLocalisation("object"), (0.0, 1.0))
    again = named(model, x.numpy(), y.numpy(), s_batch=masks.numpy(), explain_func=gradient)
    assert same(again, torch.tensor(scores, dtype=torch.float64))
    sensitivity = standfast.metrics.MaxSensitivity(BALL, samples=2)
    beside = ours.metric(sensitivity, (0.0, 1.0))
    assert same(
        beside(model, x.numpy(), y.numpy(), s_batch=masks.numpy(), explain_func=gradient),
        direct(sensitivity, model, x, y),
    )


def test_options_that_make_no_sense_are_refused() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1).numpy()
    metric = ours.MaxSensitivity((0.0, 1.0), neighbourhood=BALL, samples=2)

    def call(**options: Any) -> Any:
        return metric(model, x.numpy(), y, **{"explain_func": gradient, **options})

    assert_refused(
        call, softmax=[True], model_predict_kwargs=[{"a": 1}], custom_batch=[np.ones(5)], explain_func=[None]
    )
    last = partial(metric, model, np.moveaxis(x.numpy(), 1, -1), y, explain_func=gradient)
    assert_refused(last, channel_first=[False])
    configured = partial(ours.metric, standfast.metrics.MaxSensitivity(BALL))  # too late for ours
    for make in (ours.AOPC, configured):
        assert_refused(partial(make, (0.0, 1.0)), normalise=[True])
    with pytest.raises(standfast.ArgumentError, match="did you mean 'samples'"):
        ours.MaxSensitivity((0.0, 1.0), neighbourhood=BALL, sample=2)
    with pytest.raises(standfast.ArgumentError, match="x_batch: expected values within the bounds"):
        metric(model, x.numpy() + 1, y, explain_func=gradient)
    with pytest.raises(standfast.ArgumentError, match="did you mean 'worst_case'"):
        ours.metric("worst_cas", (0.0, 1.0))
    with pytest.raises(AttributeError, match="WorstCas"):
        _ = ours.WorstCas


def test_our_explainers_for_their_metrics() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    explain = ours.explain_function("input_x_gradient", (0.0, 1.0))
    assert np.allclose(explain(model, x.numpy(), y.numpy()), gradient(model, x.numpy(), y.numpy()), atol=1e-6)
    np.random.seed(0)  # noqa: NPY002
    theirs = quantus.MaxSensitivity(nr_samples=3, disable_warnings=True)
    values = theirs(model, x.numpy(), y.numpy(), explain_func=explain)
    np.random.seed(0)  # noqa: NPY002
    assert values == pytest.approx(theirs(model, x.numpy(), y.numpy(), explain_func=gradient), rel=1e-4)


def test_their_category_is_the_one_that_a_metric_declares() -> None:
    category = quantus.helpers.enums.EvaluationCategory
    assert ours.metric_class("worst_case").evaluation_category == category.ROBUSTNESS
    assert ours.metric_class("aopc").evaluation_category == category.FAITHFULNESS
    assert ours.metric_class("data_sensitivity_consistency").evaluation_category == category.NONE


def test_without_quantus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(ours, "import_module", missing)
    ours._make_class.cache_clear()
    with pytest.raises(standfast.MissingExtraError, match=r"pip install 'standfast\[peers\]'"):
        ours.metric_class("aopc")
