"""Explainers on the zoo's architectures: sums of relevance, default layers, ReLU6."""

from __future__ import annotations

import pytest
import torch
from small_networks import SMALL, drawn, fixed, noise
from torch import nn

import standfast

LAST_CONVOLUTION = {
    "resnet20": "stage3.block3.conv2",
    "bottlenecks": "features.head.conv",
    "vgg16": "features.conv13",
    "dla": "stage6.tree.root.conv",
    "resnet18": "stage4.block2.conv2",
}
each = pytest.mark.parametrize("name", SMALL)


@each
def test_deeplift_adds_up(name: str) -> None:
    """Attributions add up to the change of the logit, with sums, concatenations, maxima and ReLU6."""
    model = standfast.Model(fixed(name), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    inputs = noise(2)
    change = (model.logits(inputs) - model.logits(0 * inputs))[:, 3]
    torch.testing.assert_close(
        standfast.explainers.get("deeplift")(model, inputs, 3).sum((1, 2, 3)), change
    )


@each
def test_relevance_without_biases_adds_up(name: str) -> None:
    """Relevance adds up to the logit, with sums, concatenations and ReLU6."""
    network = drawn(name)
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.zero_()
            if isinstance(part, nn.BatchNorm2d | nn.Conv2d | nn.Linear) and part.bias is not None:
                part.bias.zero_()
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu", batch_size=64)
    inputs = noise(2)
    relevance = standfast.explainers.get("lrp", epsilon=1e-12)(model, inputs, 3)
    torch.testing.assert_close(
        relevance.sum((1, 2, 3)), model.logits(inputs)[:, 3], rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", LAST_CONVOLUTION)
def test_gradcam_uses_the_last_convolution(name: str) -> None:
    model = standfast.Model(fixed(name), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    inputs = noise(2)
    by_default = standfast.explainers.get("gradcam", relu=False)(model, inputs, 3)
    named = standfast.explainers.get("gradcam", relu=False, layer=LAST_CONVOLUTION[name])(
        model, inputs, 3
    )
    assert torch.equal(by_default, named)
