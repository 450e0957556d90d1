"""What the numbers of explainers measure, on a linear model whose contributions and slopes are known."""

from __future__ import annotations

import pytest
import torch

import standfast
from standfast.explainers import Explainer, get

WEIGHTS = torch.tensor([2.0, -1.0, 0.5])
#: of the first feature, contribution and slope have the same sign; of the second both are of other signs
POINT = torch.tensor([[0.5, -0.5, -0.25]])


def make_model() -> standfast.Model:
    """Two logits: 0, and the weighted sum; the baseline is 0."""
    layer = torch.nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.zeros(3), WEIGHTS]))
    reference = torch.zeros(2, 3)
    return standfast.Model(layer, bounds=(-1.0, 1.0), device="cpu", reference=reference)


def list_declaring() -> list[str]:
    """The explainers that declare signs and a measure, with signed options of those that have none by default."""
    declaring: list[str] = []
    for name in standfast.explainers.explainers.names():
        explainer = get(name)
        # Grad-CAM needs a layer with positions
        fits = explainer.has_signs and not explainer.control and "gradcam" not in name
        if fits and explainer.measures != "relevance":
            declaring.append(name)
    variants = ["saliency:absolute=false", "smoothgrad:times_input=true"]
    return [*declaring, *variants, "deeplift:times_input=false"]


def explain(explainer: Explainer) -> torch.Tensor:
    return explainer(make_model(), POINT, 1)[0]


@pytest.mark.parametrize("name", list_declaring())
def test_signs_are_those_of_contributions_or_of_slopes(name: str) -> None:
    explainer = get(name)
    values = explain(explainer)
    expected = {
        "contribution": WEIGHTS * POINT[0],
        "slope": WEIGHTS,
        "direction": WEIGHTS,
    }[explainer.measures]
    # LIME and coalitions of a few may give 0, but no other sign
    assert (values.sign() * expected.sign() >= 0).all()
    assert values.any()
    exact = explainer.scale_of_values == "logit" and explainer.measures != "direction"
    if exact and "smoothgrad:times" not in name and name != "context_cite":
        assert torch.allclose(values, expected, atol=1e-4)


def test_what_is_declared() -> None:
    measured = {
        name: (get(name).measures, get(name).scale_of_values)
        for name in ("saliency", "guided_backprop", "lrp", "occlusion", "kernel_shap")
    }
    assert measured == {
        "saliency": ("slope", "logit"),
        "guided_backprop": ("direction", "logit"),
        "lrp": ("relevance", "logit"),
        "occlusion": ("contribution", "probability"),
        "kernel_shap": ("contribution", "logit"),
    }
    assert get("smoothgrad:statistic=variance").measures == "relevance"
    assert get("kernel_shap:output=probability").scale_of_values == "probability"
    assert get("tree_shap").scale_of_values == "trees"


def test_methods_of_captum() -> None:
    pytest.importorskip("captum")
    measured = {
        name: get(f"captum:{name}").measures
        for name in ("Saliency", "InputXGradient", "IntegratedGradients", "GuidedBackprop")
    }
    assert measured == {
        "Saliency": "slope",
        "InputXGradient": "contribution",
        "IntegratedGradients": "contribution",
        "GuidedBackprop": "direction",
    }


@pytest.mark.parametrize("name", ["IntegratedGradients", "DeepLift"])
def test_what_captum_does_not_multiply_by_inputs_are_slopes(name: str) -> None:
    pytest.importorskip("captum")
    explainer = get(f"captum:{name}:multiply_by_inputs=false")
    assert explainer.measures == "slope"
    layer = make_model().module
    module = torch.nn.Sequential(layer)
    model = standfast.Model(module, bounds=(-1.0, 1.0), device="cpu")
    assert torch.allclose(explainer(model, POINT, 1)[0], WEIGHTS, atol=1e-4)


@pytest.mark.parametrize(("are_cut", "measured"), [(True, "contribution"), (False, "direction")])
def test_lime_measures_slopes_of_numbers_that_are_not_cut_into_ranges(
    are_cut: bool, measured: str
) -> None:
    """The sign of a coefficient of a number is that of the weight, whatever the sign of the number itself."""
    pytest.importorskip("lime")
    rows = 2 * torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) - 1
    explainer = standfast.explainers.from_lime(
        "tabular", training_data=rows, discretize_continuous=are_cut
    )
    assert explainer.measures == measured
    if not are_cut:
        assert (explain(explainer).sign() == WEIGHTS.sign()).all()
