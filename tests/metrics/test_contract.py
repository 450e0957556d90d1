"""What everything registered must do, also what comes later, without a line more here.

Every explainer, similarity and metric: the same result whatever the batch size, the order and the company; the same
again; inputs untouched; a radius of zero is the identity. (Neighbourhoods and searches have theirs in
`test_neighbourhood.py` and `test_searches.py`, over their registries as well.)
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import nn

import holdfast as hf
from conftest import SHAPES, small_net
from holdfast.metrics import Metric, Result
from holdfast.metrics.base import metrics
from holdfast.neighbourhood import neighbourhoods

EXPLAINERS = hf.explainers.names()
SIMILARITIES = hf.similarity.names()

#: explainers that take long by default, with less of what takes it
QUICK: dict[str, dict[str, Any]] = {"extremal_perturbations": {"steps": 4}, "rise": {"samples": 60}}

#: metrics whose examples draw nothing
DETERMINISTIC = ("c_eval", "c_eval_plot", "log_odds", "near_affinity", "relevance_localisation")
#: metrics that look at the inputs alone
UNDISTURBED = ("relevance_localisation",)
#: metrics of which a constant map is a result like others
CONSTANT = ("corruption_curve", "max_sensitivity", "local_lipschitz", "relevance_localisation")


def classifier(shape: tuple[int, ...] = (1, 8, 8), batch_size: int = 16, seed: int = 0) -> hf.Classifier:
    return hf.Classifier(small_net(shape, seed=seed), (0.0, 1.0), device="cpu", batch_size=batch_size)


def inputs(shape: tuple[int, ...] = (1, 8, 8), count: int = 5) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def example(name: str) -> Metric:
    return metrics[name].example()


def within(metric: Metric, ball: str, radius: float) -> Metric:
    """The metric with another neighbourhood, if it has one at all."""
    if not has_neighbourhood(metric):
        return metric
    return dataclasses.replace(metric, neighbourhood=neighbourhoods[ball](radius))  # type: ignore[call-arg]


def has_neighbourhood(metric: Metric) -> bool:
    return any(field.name == "neighbourhood" for field in dataclasses.fields(metric))


def per_sample(result: Result) -> dict[str, Any]:
    """All that a result says of each sample, in its order."""
    values: dict[str, Any] = {"status": list(result.status)}
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        rows = field.metadata.get("per_sample", True)
        if rows and isinstance(value, torch.Tensor) and value.shape[:1] == (len(result),):
            values[field.name] = value
    return values


def assert_same(a: dict[str, Any], b: dict[str, Any], order: list[int]) -> None:
    """Bit for bit, with row i of `a` where `order[i]` is in `b`."""
    assert a.keys() == b.keys()
    for name, left in a.items():
        right = b[name]
        if isinstance(left, list):
            assert left == [right[i] for i in order], name
        else:
            assert torch.equal(left.nan_to_num(nan=-7.0), right[order].nan_to_num(nan=-7.0)), name


# explainers


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", EXPLAINERS)
def test_explainer(name: str, shape: tuple[int, ...]) -> None:
    explainer, x = hf.explainers.get(name, **QUICK.get(name, {})), inputs(shape, 19)
    if name in ("gradcam", "guided_gradcam") and len(shape) == 1:
        with pytest.raises(hf.HoldfastError, match="layer"):
            explainer(classifier(shape), x)
        return
    before = x.clone()
    model = classifier(shape)
    maps = explainer(model, x)
    assert maps.shape == x.shape
    assert torch.isfinite(maps).all()
    assert not maps.requires_grad
    assert torch.equal(x, before)
    assert torch.equal(explainer(model, x), maps)
    assert torch.equal(explainer(classifier(shape, 64), x), maps)
    assert torch.equal(explainer(model, x.flip(0)).flip(0), maps)
    assert torch.equal(explainer(model, x[7:8])[0], maps[7])
    assert torch.allclose(explainer(classifier(shape, 1), x), maps, atol=1e-5)
    assert torch.equal(explainer(model, x, model.predict(x)), maps)
    assert all(p.requires_grad for p in model.module.parameters())
    assert not any(m._forward_hooks or m._backward_hooks for m in model.module.modules())


@pytest.mark.parametrize("name", EXPLAINERS)
def test_explainer_says_truly_whether_it_can_be_differentiated(name: str) -> None:
    explainer, model = hf.explainers.get(name), classifier()
    x = inputs().requires_grad_(True)
    with model.session():
        if not explainer.differentiable:
            with pytest.raises(hf.ArgumentError, match="create_graph"):
                explainer.attribute(model, x, None, create_graph=True)
            return
        with hf.explainers.smooth_relu():
            maps, _ = explainer.attribute(model, x, None, create_graph=True)
            (second,) = torch.autograd.grad((maps**2).sum(), x)
    assert torch.isfinite(second).all()
    assert second.abs().sum() > 0


# similarities


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarity(name: str, shape: tuple[int, ...]) -> None:
    similarity = hf.similarity.get(name)
    a, b = inputs(shape, 6) - 0.5, inputs(shape, 6).flip(0) - 0.5
    b[1], a[2], b[2] = a[1], 0.0, 0.0
    before = a.clone(), b.clone()
    values = similarity(a, b)
    assert values.shape == (6,)
    assert torch.isfinite(values).all()
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])
    if name not in ("lens_precision", "lens_recall"):  # each is the other where the maps are exchanged
        assert torch.allclose(similarity(b, a), values, atol=1e-6)
    assert torch.equal(similarity(a.flip(0), b.flip(0)).flip(0), values)
    assert torch.equal(similarity(a[3:4], b[3:4])[0], values[3])
    best = values[1]
    others = values[[0, 3, 4, 5]]
    assert (best >= others).all() if similarity.larger_is_closer else (best <= others).all()
    assert best.item() == pytest.approx(1.0 if similarity.larger_is_closer else 0.0, abs=1e-5)
    broken = a.clone()
    broken[0] = torch.nan
    assert torch.isnan(similarity(broken, b)[0])
    assert torch.equal(similarity(broken, b)[1:], values[1:])


# metrics


@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_does_not_depend_on_batch_size_order_or_company(name: str) -> None:
    metric, x = example(name), inputs()
    whole = per_sample(metric(classifier(), "input_x_gradient", x))
    for rows in (8, 64, 200):
        assert_same(per_sample(metric(classifier(batch_size=rows), "input_x_gradient", x)), whole, [0, 1, 2, 3, 4])
    assert_same(per_sample(metric(classifier(), "input_x_gradient", x.flip(0))), whole, [4, 3, 2, 1, 0])
    assert_same(per_sample(metric(classifier(), "input_x_gradient", x[2:3])), whole, [2])


@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_obeys_its_generator_and_leaves_all_else_alone(name: str) -> None:
    metric, x, model = example(name), inputs(), classifier()
    before, state = x.clone(), torch.random.get_rng_state()
    first = metric(model, "saliency", x, generator=torch.Generator().manual_seed(3))
    again = metric(model, "saliency", x, generator=torch.Generator().manual_seed(3))
    other = metric(model, "saliency", x, generator=torch.Generator().manual_seed(4))
    order = list(range(5))
    assert_same(per_sample(first), per_sample(again), order)
    if name not in DETERMINISTIC:
        assert not torch.equal(getattr(first, metric.headline), getattr(other, metric.headline))
    assert torch.equal(x, before)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.module.training
    assert all(p.requires_grad for p in model.module.parameters())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("ball", neighbourhoods.names())
@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_on_any_shape_and_neighbourhood(name: str, ball: str, shape: tuple[int, ...]) -> None:
    metric = within(example(name), ball, 0.2)
    result = metric(classifier(shape), "input_x_gradient", inputs(shape, 3))
    assert len(result) == 3
    frame = result.frame()
    assert frame.height == 3
    assert {"sample", "status", "targets", "model_evaluations", metric.headline} <= set(frame.columns)
    assert ((result.model_evaluations > 1) | (name in UNDISTURBED)).all()
    if not has_neighbourhood(metric):
        return
    still = within(metric, ball, 0.0)(classifier(shape), "input_x_gradient", inputs(shape, 3))
    assert torch.isfinite(getattr(still, metric.headline)).all()


@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_counts_what_goes_wrong_and_goes_on(name: str) -> None:
    """A NaN, a constant map, a wrong target: of one sample each, and the others get what they get alone."""

    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((1, 8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.net(x)
            blank = (x.flatten(1).amax(1) < 0.3)[:, None]  # dark inputs: constant logits, so an all-zero map
            broken = (x.flatten(1).amin(1) > 0.8)[:, None]  # bright ones: NaN
            constant = torch.arange(4.0).expand_as(out)
            return torch.where(broken, torch.nan, torch.where(blank, constant, out))

    model = hf.Classifier(Fragile(), (0.0, 1.0), device="cpu", batch_size=16)
    x = inputs(count=4)
    x[1], x[2] = 0.05, 0.95
    targets = torch.tensor([0, 3, 0, 0])
    targets[[0, 3]] = model.predict(x[[0, 3]])
    targets[3] = (targets[3] + 1) % 4
    metric = example(name)
    result = metric(model, "saliency", x, targets)
    expected = (
        "ok",
        "ok" if name in CONSTANT else "degenerate",
        "nonfinite",
        "misclassified",
    )
    assert result.status == expected
    alone = metric(model, "saliency", x[:1], targets[:1])
    found, expected_value = (getattr(each, metric.headline)[:1] for each in (result, alone))
    assert torch.allclose(found, expected_value, rtol=0, atol=0, equal_nan=True)
    assert result.frame()["status"].to_list() == list(expected)


@pytest.mark.parametrize("name", hf.metrics.names())
@pytest.mark.parametrize("ball", neighbourhoods.names())
def test_metric_with_nothing_to_evaluate(name: str, ball: str) -> None:
    model, x = classifier(), inputs(count=3)
    wrong = (model.predict(x) + 1) % 4
    metric = within(example(name), ball, 0.2)
    result = metric(model, "saliency", x, wrong)
    assert result.status == ("misclassified",) * 3
    assert result.frame().height == 3


@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_errors_name_the_argument(name: str) -> None:
    metric = example(name)
    with pytest.raises(hf.ArgumentError, match="expected one of .*did you mean 'saliency'"):
        metric(classifier(), "salience", inputs())
    with pytest.raises(hf.ArgumentError, match="classifier: expected a holdfast Classifier, got Sequential"):
        metric(small_net((1, 8, 8)), "saliency", inputs())  # type: ignore[arg-type]
    with pytest.raises(hf.ArgumentError, match="inputs: expected values within the bounds"):
        metric(classifier(), "saliency", inputs() + 1)
    with pytest.raises(hf.ArgumentError, match="targets: expected classes from 0 to 3"):
        metric(classifier(), "saliency", inputs(), 9)
    if has_neighbourhood(metric):
        with pytest.raises(hf.ArgumentError, match="neighbourhood: expected a LinfBall or an L2Ball, got float"):
            dataclasses.replace(metric, neighbourhood=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", hf.metrics.names())
def test_metric_describes_itself(name: str) -> None:
    metric = example(name)
    assert metric.name == name
    assert metric.direction in ("higher", "lower")
    assert metric.citation
    json.dumps(metric.options())
    assert not has_neighbourhood(metric) or metric.options()["neighbourhood"]["norm"] == "LinfBall"
    assert metric.expected_evaluations() > (0 if name in UNDISTURBED else 1)
