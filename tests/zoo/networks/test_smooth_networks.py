"""Networks of smooth functions: sizes, second derivatives, maps without jumps, explainers, the bundled weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast import data
from standfast.errors import ArgumentError
from standfast.zoo import LeNet5, ResNet20
from standfast.zoo.networks.layers import find_activation

LENET: Callable[..., nn.Module] = partial(LeNet5, activation="tanh", pooling="average", side=32)
SMOOTH: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "lenet": (LENET, 1),
    "resnet20": (partial(ResNet20, width=4, activation="softplus"), 3),
}
each = pytest.mark.parametrize("name", SMOOTH)


def draw(name: str, **options: str) -> nn.Module:
    """A network in double precision with random weights, and batch statistics of its own."""
    make, channels = SMOOTH[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make(**options).double().train()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = None  # the plain average, so that no signal dies
        model(torch.rand(32, channels, 32, 32, dtype=torch.float64))
    return model.eval()


def image(name: str, rows: int = 1, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, SMOOTH[name][1], 32, 32, generator=generator, dtype=torch.float64)


def explain(module: nn.Module, explainer: str, inputs: Tensor) -> Tensor:
    classifier = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=64)
    return standfast.explainers.get(explainer)(classifier, inputs, 3)


# architectures


def test_lenet_has_one_size_and_two_sides() -> None:
    """Both sides are one network, since the border of 2 zeros is padding in one and input in the other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        small, large = LeNet5(activation="tanh", pooling="average").double(), LENET().double()
    assert sum(part.numel() for part in large.parameters()) == 61_706
    large.load_state_dict(small.state_dict())
    digits = torch.rand(
        3, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(large(nn.functional.pad(digits, [2] * 4)), small(digits))
    shapes = dict(large.features.named_children())
    assert list(shapes) == ["conv1", "tanh1", "pool1", "conv2", "tanh2", "pool2"]
    assert isinstance(shapes["pool2"], nn.AvgPool2d)
    assert large(torch.zeros(2, 1, 32, 32, dtype=torch.float64)).shape == (2, 10)


@each
def test_activations_change_the_functions_and_not_the_parameters(name: str) -> None:
    smooth, rectified = draw(name), draw(name, activation="relu")
    assert {key: value.shape for key, value in smooth.state_dict().items()} == {
        key: value.shape for key, value in rectified.state_dict().items()
    }
    assert not any(isinstance(part, nn.ReLU | nn.MaxPool2d) for part in smooth.modules())
    for part in smooth.modules():
        if isinstance(part, nn.Softplus):
            assert part.beta == 10


def test_options_are_checked() -> None:
    assert_refused(LeNet5, activation=["sigmoid"], pooling=["mean"], side=[30])
    assert isinstance(find_activation("tanh")(), nn.Tanh)


# smoothness


@each
def test_maps_change_continuously(name: str) -> None:
    """On ever shorter steps, the largest change of a map is ever smaller. That of a rectifier network jumps."""
    start, end = image(name), image(name, seed=2)

    def largest_step(module: nn.Module, steps: int) -> float:
        way = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[:, None, None, None] * 1e-2
        maps = explain(module, "saliency:absolute=False", start + way * (end - start))
        return float(maps.diff(dim=0).flatten(1).norm(dim=1).max() / maps[0].norm())

    smooth, rectified = draw(name), draw(name, activation="relu")
    ratio = largest_step(smooth, 80) / largest_step(smooth, 20)
    assert ratio == pytest.approx(0.25, abs=0.06)
    assert largest_step(rectified, 80) > 0.5 * largest_step(rectified, 20)


# explainers


def test_relevance_passes_through_a_softplus_unchanged() -> None:
    """As through a tanh: each unit's relevance is that of its output, by hand for two layers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 5), nn.Softplus(beta=10), nn.Linear(5, 4)).double()
    x = torch.rand(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, last = module[0], module[2]
    with torch.no_grad():
        z = first(x)
        hidden = module[1](z)
        # the share of each unit in the logit, whose relevance is itself
        relevance = hidden[0] * last.weight[3]
        shares = x[0] * first.weight / z[0][:, None] * relevance[:, None]
    torch.testing.assert_close(explain(module, "lrp", x)[0], shares.sum(0), rtol=1e-6, atol=1e-9)


def test_guided_backpropagation_is_the_gradient_without_rectifiers() -> None:
    module, x = draw("resnet20"), image("resnet20", rows=2)
    assert torch.equal(
        explain(module, "guided_backprop", x), explain(module, "saliency:absolute=False", x)
    )


# weights and cards


def test_padded_digits() -> None:
    digits, larger = data.bundled("digits"), data.load("digits32")
    assert larger.name == "digits32"
    assert larger.inputs.shape == (300, 1, 32, 32)
    assert torch.equal(larger.inputs[:, :, 2:-2, 2:-2], digits.inputs)
    assert float(larger.inputs.sum()) == pytest.approx(float(digits.inputs.sum()), rel=1e-6)
    assert torch.equal(larger.labels, digits.labels)
    assert digits.pad(0).inputs.shape == digits.inputs.shape
    with pytest.raises(ArgumentError, match="pixels: expected at least 0"):
        digits.pad(-1)
    with pytest.raises(ArgumentError, match="inputs: expected images"):
        data.Dataset("flat", torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), ("a",)).pad(1)
