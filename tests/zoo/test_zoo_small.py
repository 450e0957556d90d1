"""The small models for colour images: architectures and weights; random flips."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from standfast import zoo
from standfast.errors import ArgumentError
from standfast.training.classifier import random_flip
from standfast.zoo.networks.resnet import BasicBlock, ResNet18
from standfast.zoo.networks.small_cnn import SmallCNN


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def output_shapes(model: nn.Module, inputs: torch.Tensor) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name, part in model.named_modules():
        part.register_forward_hook(lambda _, __, output, name=name: shapes.update({name: tuple(output.shape)}))
    model(inputs)
    return shapes


# architectures


def test_resnet_has_the_published_size() -> None:
    assert parameters(ResNet18()) == 11_173_962
    model = ResNet18(num_classes=7, in_channels=1, width=8)
    assert parameters(model.stem) == 9 * 8 + 16
    assert parameters(model.stage1) == 4 * (9 * 8 * 8 + 16)
    assert parameters(model.stage2.block1) == 9 * 8 * 16 + 9 * 16 * 16 + 8 * 16 + 3 * 32  # plus the shortcut
    assert parameters(model.classifier) == 64 * 7 + 7
    with pytest.raises(ArgumentError, match="width: expected at least 1, got 0"):
        ResNet18(width=0)


def test_a_block_equals_its_formula() -> None:
    """It equals functional calls, with and without a change of shape."""
    generator = torch.Generator().manual_seed(0)
    for block, channels in ((BasicBlock(4, 4), 4), (BasicBlock(4, 6, stride=2), 4)):
        for part in block.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, generator=generator)
                nn.init.uniform_(part.running_var, 0.5, 2, generator=generator)
        block.eval()
        inputs = torch.randn(3, channels, 8, 8, generator=generator)

        def norm(features: torch.Tensor, layer: nn.BatchNorm2d) -> torch.Tensor:
            mean, spread = layer.running_mean[:, None, None], (layer.running_var + layer.eps).sqrt()[:, None, None]
            return (features - mean) / spread * layer.weight[:, None, None] + layer.bias[:, None, None]

        stride = block.conv1.stride
        hidden = norm(nn.functional.conv2d(inputs, block.conv1.weight, stride=stride, padding=1), block.norm1).clamp(0)
        hidden = norm(nn.functional.conv2d(hidden, block.conv2.weight, padding=1), block.norm2)
        short = inputs
        if isinstance(block.shortcut, nn.Sequential):
            projected = nn.functional.conv2d(inputs, block.shortcut.conv.weight, stride=stride)
            short = norm(projected, block.shortcut.norm)
        torch.testing.assert_close(block(inputs), (hidden + short).clamp(0))


def test_the_small_cnn_is_small_and_plain() -> None:
    model = SmallCNN()
    assert parameters(model) < 300_000
    kinds = [type(layer) for layer in model.features]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 3
    shapes = output_shapes(model, torch.zeros(2, 3, 32, 32))
    assert [shapes[f"features.pool{k}"][2:] for k in (1, 2, 3)] == [(16, 16), (8, 8), (4, 4)]
    assert shapes[""] == (2, 43)
    assert SmallCNN(num_classes=5, in_channels=1)(torch.zeros(1, 1, 32, 32)).shape == (1, 5)


# weights and cards


def test_the_batch_statistics_are_those_of_training() -> None:
    norms = [part for part in zoo.load("resnet18w16-cifar10").modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == 20
    for norm in norms:
        assert norm.num_batches_tracked > 1000
        assert norm.running_mean.abs().max() > 0
        assert norm.running_var.min() > 0
        assert not torch.equal(norm.running_var, torch.ones_like(norm.running_var))


# training


def test_random_flip_mirrors_whole_images_or_keeps_them() -> None:
    images = torch.rand(400, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    result = random_flip(images, torch.Generator().manual_seed(1))
    same = (result == images).flatten(1).all(1)
    mirrored = (result == images.flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 150 < mirrored.sum() < 250  # five standard deviations
    assert torch.equal(images, before)
    assert torch.equal(result, random_flip(images, torch.Generator().manual_seed(1)))
    assert not torch.equal(result, random_flip(images, torch.Generator().manual_seed(2)))
    with pytest.raises(ArgumentError, match="inputs: expected images"):
        random_flip(images[0], torch.Generator())
