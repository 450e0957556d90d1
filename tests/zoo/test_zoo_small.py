"""The small models for colour images: architectures, weights, cards, every explainer on them; random flips."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_safetensors
from torch import nn

import standfast
from standfast import data, zoo
from standfast.errors import ArgumentError
from standfast.training.classifier import accuracy, initialize, random_flip, train_classifier
from standfast.zoo.networks.resnet import BasicBlock, ResNet18
from standfast.zoo.networks.small_cnn import SmallCNN

SCRIPTS = Path(__file__).parents[2] / "scripts"
MODELS = {"resnet18w16-cifar10": (10, 701466, "cifar10:test"), "cnn-gtsrb": (43, 184483, "gtsrb:test")}
each_model = pytest.mark.parametrize("name", MODELS)
EXPLAINERS = [name for name in standfast.explainers.names() if not name.startswith(("attention_", "transformer_"))]
#: fewer forward passes than by default
QUICK = {
    "extremal_perturbations": {"steps": 3},
    "kernel_shap": {"samples": 60},
    "lime": {"samples": 60},
    "rise": {"samples": 60},
    "shapley_sampling": {"permutations": 2},
}


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


def test_resnet_shapes() -> None:
    shapes = output_shapes(ResNet18(width=4), torch.zeros(2, 3, 32, 32))
    assert shapes["stem"] == shapes["stage1"] == (2, 4, 32, 32)
    assert [shapes[f"stage{k}"] for k in (2, 3, 4)] == [(2, 8, 16, 16), (2, 16, 8, 8), (2, 32, 4, 4)]
    assert shapes["model.flatten"] == (2, 32)
    assert shapes[""] == (2, 10)
    assert ResNet18(num_classes=4, in_channels=1, width=2)(torch.zeros(1, 1, 32, 32)).shape == (1, 4)


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


@pytest.mark.parametrize(("model", "count"), [(ResNet18(width=2), 17), (SmallCNN(), 6)], ids=["resnet", "cnn"])
def test_each_relu_is_called_once(model: nn.Module, count: int) -> None:
    calls: list[nn.Module] = []
    rectifiers = [part for part in model.modules() if isinstance(part, nn.ReLU)]
    for part in rectifiers:
        part.register_forward_hook(lambda module, *_: calls.append(module))
    model(torch.zeros(1, 3, 32, 32))
    assert len(rectifiers) == count
    assert calls == rectifiers
    assert not any(part.inplace for part in rectifiers)


# weights and cards


@each_model
def test_weights_and_card(name: str) -> None:
    model, card = zoo.load(name), zoo.card(name)
    classes, count, _ = MODELS[name]
    assert parameters(model) == card["parameters"] == count
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, classes)
    assert not any(part.training for part in model.modules())
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert {"data", "scheme", "epochs", "seed", "versions", "script", "licence", "storage"} <= card.keys()
    weights = (files("standfast.zoo") / "weights" / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == card["weights_sha256"]
    assert len(weights) <= 3_000_000
    stored = load_safetensors(weights)
    assert stored.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():  # the model has the stored weights
        assert torch.equal(tensor, stored[key].to(tensor.dtype))


def test_the_batch_statistics_are_those_of_training() -> None:
    norms = [part for part in zoo.load("resnet18w16-cifar10").modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == 20
    for norm in norms:
        assert norm.num_batches_tracked > 1000
        assert norm.running_mean.abs().max() > 0
        assert norm.running_var.min() > 0
        assert not torch.equal(norm.running_var, torch.ones_like(norm.running_var))


@each_model
@pytest.mark.parametrize("count", [250, pytest.param(None, marks=pytest.mark.slow)])
def test_the_accuracy_on_the_card_is_that_on_the_test_set(name: str, count: int | None) -> None:
    """On the first images within four standard errors, and on all of them but for rounding."""
    try:
        test = data.load(MODELS[name][2])
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    if f"{len(test):,} test images" not in zoo.card(name)["data"]:  # GTSRB comes in two sizes
        pytest.skip(f"the card's accuracy is on other data, here are {len(test)} test images")
    expected = zoo.card(name)["test_accuracy"]
    measured = accuracy(zoo.load(name), test.inputs[:count], test.labels[:count])
    rounding = 3.5 / len(test)  # for other processors
    assert measured == pytest.approx(
        expected, abs=rounding if count is None else 4 * (expected * (1 - expected) / count) ** 0.5
    )
    assert expected >= (0.65 if name == "resnet18w16-cifar10" else 0.82)


# explainers: all of them support residual sums, batch normalisation and averages


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """Two smooth pictures, (2, 3, 32, 32)."""
    coarse = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear").clamp(0, 1)


@pytest.mark.parametrize("explainer", EXPLAINERS)
@each_model
def test_every_explainer_explains_it(name: str, explainer: str, images: torch.Tensor) -> None:
    model = standfast.Model(zoo.load(name), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    maps = standfast.explainers.get(explainer, **QUICK.get(explainer, {}))(model, images)
    assert maps.shape == images.shape
    assert torch.isfinite(maps).all()
    if explainer != "gradcam":  # after its rectifier it may be zero everywhere
        assert (maps.flatten(1).abs().amax(1) > 0).all()


@each_model
def test_deeplift_adds_up(name: str, images: torch.Tensor) -> None:
    """Attributions add up to the change of the logit, also with residual sums; in double precision."""
    module = zoo.load(name).double()
    model, inputs = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=64), images.double()
    change = (model.logits(inputs) - model.logits(0 * inputs))[:, 3]
    torch.testing.assert_close(standfast.explainers.get("deeplift")(model, inputs, 3).sum((1, 2, 3)), change)


@each_model
def test_relevance_without_biases_adds_up(name: str, images: torch.Tensor) -> None:
    """Biases keep their share of relevance; without biases, all of the logit reaches the input."""
    module = zoo.load(name).double()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.zero_()
            if isinstance(part, nn.BatchNorm2d | nn.Conv2d | nn.Linear) and part.bias is not None:
                part.bias.zero_()
    model, inputs = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=64), images.double()
    relevance = standfast.explainers.get("lrp", epsilon=1e-12)(model, inputs, 3)
    torch.testing.assert_close(relevance.sum((1, 2, 3)), model.logits(inputs)[:, 3], rtol=1e-4, atol=1e-6)


def test_gradcam_uses_the_last_convolution(images: torch.Tensor) -> None:
    """Not that of a shortcut."""
    model = standfast.Model(zoo.load("resnet18w16-cifar10"), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    by_default = standfast.explainers.get("gradcam", relu=False)(model, images)
    named = standfast.explainers.get("gradcam", relu=False, layer="stage4.block2.conv2")(model, images)
    assert torch.equal(by_default, named)


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


@pytest.mark.parametrize("model", [ResNet18(num_classes=2, width=4), SmallCNN(num_classes=2)], ids=["resnet", "cnn"])
def test_they_learn(model: nn.Module) -> None:
    """They learn to distinguish bright from dark images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    inputs = torch.rand(64, 3, 32, 32, generator=generator) * 0.5 + labels[:, None, None, None] * 0.5
    train_classifier(initialize(model, generator), inputs, labels, epochs=25, batch_size=16, generator=generator)
    assert accuracy(model, inputs, labels) > 0.9


# the augmentation for traffic signs


def test_distorted_images_are_valid_and_depend_on_the_generator() -> None:
    """Each image by itself, within [0, 1], and near the original, so that the class stays the same."""
    spec = importlib.util.spec_from_file_location("train_bundled", SCRIPTS / "train_bundled.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["train_bundled"] = script  # dataclasses need their module in sys.modules
    spec.loader.exec_module(script)
    blob = torch.zeros(64, 3, 32, 32)
    blob[:, :, 12:20, 12:20] = 0.5
    seen = script.distort(blob, torch.Generator().manual_seed(0))
    again = script.distort(blob, torch.Generator().manual_seed(0))
    assert torch.equal(seen, again)
    assert seen.shape == blob.shape
    assert bool(((seen >= 0) & (seen <= 1)).all())
    assert len({tuple(image.flatten().tolist()) for image in seen}) == 64
    mass = seen.sum(1).flatten(1)
    grid = torch.stack(torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")).flatten(1)
    centre = (mass[:, None] * grid).sum(2) / mass.sum(1, keepdim=True)
    away = (centre - 15.5).abs()
    assert float(away.max()) < 3.5  # 2.4 pixels, plus the effect of a rotation around the middle
    assert float(away.max()) > 1.5
    light = seen.amax((1, 2, 3))
    assert float(light.min()) > 0.5 * 0.25 * 0.9
    assert float(light.max()) > 0.9
