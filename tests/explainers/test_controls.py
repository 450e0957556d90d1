"""Control explainers: edges equal scipy's, shuffled weights are those of a copy that is shuffled slowly."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor, nn

from standfast import explainers as hx
from standfast.errors import ArgumentError, UnknownNameError
from standfast.explainers.randomised import RandomisedExplainer
from standfast.metrics import ParameterSensitivityConsistency
from standfast.model import Model


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(48, 6),
            nn.ReLU(),
            nn.Linear(6, 4),
        )
    )


def classify(module: nn.Module) -> Model:
    return Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=64)


def images(count: int = 6) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(2, 9), (2, 5, 7), (1, 4, 5, 6)])
def test_edges_equal_scipy(shape: tuple[int, ...]) -> None:
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(2))
    model = classify(nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 2)))
    expected = np.empty(x.shape)
    for image, channel in np.ndindex(x.shape[:2]):
        plane = x[image, channel].double().numpy()
        slopes = [scipy.ndimage.sobel(plane, axis, mode="nearest") for axis in range(plane.ndim)]
        expected[image, channel] = np.sqrt(np.sum(np.square(slopes), axis=0))
    np.testing.assert_allclose(hx.Edges()(model, x).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_table_has_no_edges() -> None:
    with pytest.raises(
        ArgumentError,
        match=r"images or series .* need neighbours, got a table \(16, 4\)|neighbours",
    ):
        hx.Edges()(classify(nn.Linear(4, 2)), torch.rand(3, 4))


def shuffled_values(module: nn.Module, explainer: RandomisedExplainer) -> dict[str, Tensor]:
    """The parameters that the wrapped explainer meets."""
    found: dict[str, Tensor] = {}

    def look(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        found.update({name: p.detach().clone() for name, p in module.named_parameters()})
        return x

    RandomisedExplainer(hx.from_callable(look), explainer.layers, explainer.seed)(
        classify(module), images(), 0
    )
    return found


def test_maps_are_those_of_a_copy_with_shuffled_weights() -> None:
    module, x, t = network(), images(), torch.arange(6) % 4
    for inner in (hx.InputXGradient(), hx.IntegratedGradients(steps=3), hx.LRP()):
        control = RandomisedExplainer(inner, seed=3)
        twin = copy.deepcopy(module)
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter.copy_(shuffled_values(module, control)[name])
        assert torch.equal(control(classify(module), x, t), inner(classify(twin), x, t))
        assert not torch.equal(control(classify(module), x, t), inner(classify(module), x, t))


def test_every_parameter_keeps_its_values_in_another_order() -> None:
    module = network()
    values = shuffled_values(module, RandomisedExplainer(seed=1))
    other = shuffled_values(module, RandomisedExplainer(seed=2))
    for name, parameter in module.named_parameters():
        assert torch.equal(
            values[name].flatten().sort().values, parameter.detach().flatten().sort().values
        ), name
    weights = [
        name for name, parameter in module.named_parameters() if parameter.unique().numel() > 10
    ]
    assert len(weights) == 3
    for name in weights:
        assert not torch.equal(values[name], module.get_parameter(name))
        assert not torch.equal(values[name], other[name])


def test_the_cascade_begins_at_the_output_and_only_grows() -> None:
    module = network()
    layers = ["6", "4", "1", "0"]  # the batch normalisation counts, too
    whole = shuffled_values(module, RandomisedExplainer(seed=5))
    for count in range(1, 5):
        values = shuffled_values(module, RandomisedExplainer(layers=count, seed=5))
        for name, parameter in module.named_parameters():
            expected = whole[name] if name.partition(".")[0] in layers[:count] else parameter
            assert torch.equal(values[name], expected), (count, name)


def test_training_on_changes_the_maps() -> None:
    module, x = network(), images()
    control, model = RandomisedExplainer(), classify(module)
    for change in ("in place", "through its data", "another tensor"):
        first = control(model, x, 0)
        with torch.no_grad():
            if change == "in place":
                module[0].weight.mul_(2.0)
            elif change == "through its data":
                module[0].weight.data.mul_(2.0)
            else:
                module[0].weight.data = module[0].weight.data.flip(0)
        torch.testing.assert_close(
            control(model, x, 0), control(classify(copy.deepcopy(module)), x, 0)
        )
        assert not torch.allclose(control(model, x, 0), first), change


def test_segments_of_the_origin_reach_the_wrapped_explainer() -> None:
    inner = hx.LIME(samples=20, segmentation="fixed", segments="grid")
    control, x = RandomisedExplainer(inner), images()
    fixed = control.fixed_part(x)
    assert fixed is not None
    assert torch.equal(fixed, inner.fixed_part(x))  # type: ignore[arg-type]
    model = classify(network())
    with model.session():
        maps, logits = control.attribute_copies(model, x, None, fixed)
        again, _ = control.attribute(model, x, None)
    assert torch.equal(maps, again)
    assert torch.equal(logits, model.logits(x))


def test_masks_of_a_layer_act_on_the_shuffled_weights() -> None:
    """Else its maps would never change, and parameter SenC would give 0 without a comparison."""
    metric = ParameterSensitivityConsistency(layers=("4",), masks=60, permutations=9, resamples=9)
    result = metric(classify(network()), RandomisedExplainer(), images(2))
    assert result.method == "gated"
    assert (result.explanation_sensitivity[:, 0].nan_to_num().abs().amax(1) > 0).all()


def test_names() -> None:
    assert (
        hx.get("randomised:saliency") == hx.get("randomised") == RandomisedExplainer(hx.Saliency())
    )
    assert hx.get("randomised:integrated_gradients:steps=4") == RandomisedExplainer(
        hx.IntegratedGradients(steps=4)
    )
    assert hx.get("randomised", explainer="lrp", layers=1) == RandomisedExplainer(
        hx.LRP(), layers=1
    )
    assert hx.get("randomised:lrp").label == "randomised:lrp"
    for name, wrong in (
        ("randomised:salience", UnknownNameError),
        ("randomised:lrp:steps=1", ArgumentError),
    ):
        with pytest.raises(wrong, match="saliency" if "salience" in name else "an option of lrp"):
            hx.get(name)
    with pytest.raises(ArgumentError, match="parameters to shuffle"):
        hx.get("randomised")(classify(nn.Sequential(nn.Flatten())), images())
    assert {n for n in hx.names() if hx.explainers[n].control} == {
        *("random", "centre", "input_copy", "edges", "randomised")
    }
