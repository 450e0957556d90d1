"""Our metrics as functions in the style of `captum.metrics`: the values of our own calls."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import captum.attr
import pytest
import torch
from captum.metrics import sensitivity_max
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.integrations import captum as ours
from standfast.metrics import Metric
from standfast.metrics.base import metrics

BALL = standfast.LinfBall(0.1)


@pytest.fixture(autouse=True)
def captum_warns() -> Iterator[None]:
    """Captum's own: that it asks inputs for gradients."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"captum(\.|$)")
        yield


def rand(shape: tuple[int, ...] = (1, 8, 8), count: int = 4) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def net(shape: tuple[int, ...] = (1, 8, 8)) -> nn.Module:
    return small_net(shape).eval()


def direct(metric: Metric, model: nn.Module, x: Tensor, y: Any = None, seed: int = 0) -> Tensor:
    """Ours, with the same function in the same place: last bits decide between equal candidates of a search."""
    method = captum.attr.InputXGradient(model)
    explainer = standfast.explainers.from_callable(
        lambda module, x, t: method.attribute(x.requires_grad_(True), target=t)
    )
    classifier = standfast.Model(model, (0.0, 1.0), device="cpu")
    result = metric(classifier, explainer, x, y, generator=torch.Generator().manual_seed(seed))
    return result.value


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_every_metric_has_the_value_of_our_own_call(name: str) -> None:
    model, x, example = net(), rand(count=2), metrics[name].example()
    if name == "attribution_attack":  # its other attacks need gradients of the explanation
        example = dataclasses.replace(example, attack="random_sign")
    options = {field.name: getattr(example, field.name) for field in dataclasses.fields(example) if field.init}
    explain = captum.attr.InputXGradient(model).attribute
    scores = getattr(ours, name)(explain, x, bounds=(0.0, 1.0), seed=3, **options)
    assert isinstance(scores, Tensor)
    assert torch.allclose(scores.double(), direct(example, model, x, seed=3).double(), rtol=1e-6, equal_nan=True)


def test_options_that_decide_what_the_value_is() -> None:
    model, x = net(), rand()
    explain = captum.attr.InputXGradient(model).attribute
    curve = standfast.metrics.CorruptionCurve(fractions=(0.2, 0.6), order=("bottom",), samples=2)
    scores = ours.corruption_curve(explain, x, bounds=(0, 1), fractions=(0.2, 0.6), order=("bottom",), samples=2)
    assert scores.isfinite().all()
    assert torch.allclose(scores, direct(curve, model, x))
    event = {"neighbourhood": BALL, "event": "misclassification", "budget": 20}
    full = ours.worst_case(explain, x, bounds=(0, 1), **event, full=True)
    assert torch.equal(ours.worst_case(explain, x, bounds=(0, 1), **event), full.margin)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes_and_targets(shape: tuple[int, ...]) -> None:
    model, x = net(shape), rand(shape)
    y = model(x).argmax(1)
    metric = standfast.metrics.MaxSensitivity(BALL, samples=4)
    method = captum.attr.InputXGradient(model)
    wanted = direct(metric, model, x)
    for target in (None, y, y.tolist()):
        scores = ours.max_sensitivity(method.attribute, x, target, bounds=(0, 1), neighbourhood=BALL, samples=4)
        assert torch.allclose(scores, wanted, rtol=1e-6)
    alone = ours.max_sensitivity(method, x[1:2], int(y[1]), bounds=(0, 1), neighbourhood=BALL, samples=4)
    assert torch.equal(alone, scores[1:2])  # whoever else is in the batch


def test_agrees_with_captum_s_own() -> None:
    """Captum draws from the whole of the ball, so the inputs stay away from the bounds."""
    model, x = net(), rand() * 0.6 + 0.2
    explain = captum.attr.Saliency(model).attribute
    mine = ours.max_sensitivity(explain, x, bounds=(0, 1), neighbourhood=BALL, samples=400, normalise=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = model(x).argmax(1)
        theirs = sensitivity_max(explain, x, perturb_radius=0.1, n_perturb_samples=400, target=y)
    assert torch.allclose(mine, theirs, rtol=0.2)  # two maxima of 400 draws


def test_options_of_the_explanation_and_of_the_call() -> None:
    model, x = net(), rand()
    seen: list[tuple[int, dict[str, Any]]] = []

    def explain(inputs: Tensor, target: Tensor, **more: Any) -> Tensor:
        seen.append((len(inputs), more))
        (found,) = torch.autograd.grad(model(inputs).gather(1, target[:, None]).sum(), inputs)
        return found * inputs

    options = {"bounds": (0, 1), "forward_func": model.forward, "neighbourhood": BALL, "samples": 40}
    scores = ours.max_sensitivity(explain, x, **options, explanation_kwargs={"n_steps": 3})
    assert torch.allclose(scores, direct(standfast.metrics.MaxSensitivity(BALL, samples=40), model, x), rtol=1e-5)
    assert all(more == {"n_steps": 3} for _, more in seen)
    assert max(rows for rows, _ in seen) > 64
    seen.clear()
    again = ours.max_sensitivity(explain, x, **options, max_examples_per_batch=16)
    assert torch.equal(again, scores)
    assert max(rows for rows, _ in seen) == 16
    seen.clear()
    ours.max_sensitivity(explain, x, **options, max_examples_per_batch=64, rows_per_input=4)
    assert max(rows for rows, _ in seen) == 16


def test_what_cannot_be_evaluated_is_nan_and_the_full_result_says_why() -> None:
    model, x = net(), rand()
    y = model(x).argmax(1)
    y[2] = (y[2] + 1) % 4
    explain = captum.attr.Saliency(model)
    options = {"bounds": (0, 1), "neighbourhood": BALL, "samples": 4}
    scores = ours.max_sensitivity(explain, x, y, **options)
    assert scores.isnan().tolist() == [False, False, True, False]
    result = ours.max_sensitivity(explain, x, y, **options, full=True)
    assert result.status == ("ok", "ok", "misclassified", "ok")


def test_the_module_and_the_generators_are_left_alone() -> None:
    model, x = net().train(), rand()
    before, state = x.clone(), torch.random.get_rng_state()
    explain = captum.attr.Saliency(model).attribute
    first = ours.local_lipschitz(explain, x, bounds=(0, 1), neighbourhood=BALL, seed=5)
    assert torch.equal(first, ours.local_lipschitz(explain, x, bounds=(0, 1), neighbourhood=BALL, seed=5))
    assert not torch.equal(first, ours.local_lipschitz(explain, x, bounds=(0, 1), neighbourhood=BALL, seed=6))
    assert torch.equal(x, before)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())


def test_through_a_noise_tunnel_the_module_is_found() -> None:
    model, x = net(), rand()
    tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(model))
    scores = ours.aopc(tunnel, x, bounds=(0, 1), steps=3, explanation_kwargs={"nt_samples": 2, "stdevs": 0.0})
    assert torch.allclose(scores, ours.aopc(captum.attr.Saliency(model), x, bounds=(0, 1), steps=3), atol=1e-6)


def test_errors() -> None:
    model, x = net(), rand()
    explain = captum.attr.Saliency(model).attribute
    with pytest.raises(standfast.ArgumentError, match="option of max_sensitivity: .*did you mean 'samples'"):
        ours.max_sensitivity(explain, x, bounds=(0, 1), neighbourhood=BALL, sample=4)
    with pytest.raises(standfast.ArgumentError, match=r"inputs: expected one tensor \(N, ...\), got tuple"):
        ours.aopc(explain, (x, x), bounds=(0, 1))
    with pytest.raises(standfast.ArgumentError, match="forward_func: expected a module, or a function to logits"):
        ours.aopc(lambda inputs, target: inputs, x, bounds=(0, 1))
    with pytest.raises(standfast.ArgumentError, match="explanation_func: expected a function"):
        ours.aopc("saliency", x, bounds=(0, 1))
    with pytest.raises(standfast.ModelError, match="expected attributions of one tensor, got 2"):
        ours.aopc(lambda inputs, target: (inputs, inputs), x, bounds=(0, 1), forward_func=model)
    with pytest.raises(AttributeError, match="max_sensitivit"):
        _ = ours.max_sensitivit
    assert ours.aopc.__doc__.startswith("Area over the perturbation curve")
    assert ours.aopc.__name__ == "aopc"
