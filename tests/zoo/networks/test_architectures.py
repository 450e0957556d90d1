"""The zoo's architectures: published sizes layer by layer, the formulas of blocks, training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused
from small_networks import SMALL, drawn, fixed, noise
from torch import Tensor, nn

from standfast import zoo
from standfast.errors import UnknownNameError
from standfast.zoo import (
    DLA34,
    VGG16,
    ResNet18,
    ResNet20,
    SmallCNN,
    VisionTransformer,
    architectures,
)
from standfast.zoo.networks.encoder import EncoderLayer
from standfast.zoo.networks.resnet import BasicBlock

RECTIFIERS = {"resnet20": 19, "vgg16": 13, "dla": 33, "resnet18": 17, "cnn": 6}
each = pytest.mark.parametrize("name", RECTIFIERS)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_multiplications(make: Callable[..., nn.Module]) -> int:
    """Those of convolutions and linear layers, for one image of 32 x 32."""
    products = []
    with torch.no_grad():
        model = make().eval()
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(
                    lambda own, _, out: products.append(out.numel() * own.weight[0].numel())
                )
        model(torch.zeros(1, 3, 32, 32))
    return sum(products)


# names


def test_architectures_have_names() -> None:
    names = ["dla", "lenet5", "resnet18", "resnet20", "small_cnn", "vgg16", "vit"]
    series = ["bilstm", "series_cnn", "series_transformer"]
    assert architectures.names() == sorted(names + series)
    assert zoo.architectures is architectures
    for name in names + series:
        with torch.no_grad():
            side = 28 if name == "lenet5" else 32
            model = architectures[name](num_classes=7, in_channels=2).eval()
            shape = (3, 2, 50) if name in series else (3, 2, side, side)
            assert model(torch.zeros(shape)).shape == (3, 7)
    with pytest.raises(UnknownNameError, match="architecture: expected .*did you mean 'resnet20'"):
        architectures["resnet_20"]


def test_options_are_checked() -> None:
    for make in (ResNet20, ResNet18, VGG16, DLA34):
        assert_refused(make, width=[0])
    assert_refused(ResNet20, activation=["gelu"])
    assert_refused(VisionTransformer, layers=[0], side=[30], heads=[5], stem=[(8, 8, 8)])


# sizes


@pytest.mark.parametrize(
    ("make", "count", "millions"),
    [
        (ResNet20, 269_722, 41),  # He et al., Table 6: 0.27 million
        (ResNet18, 11_173_962, 555),
        (VGG16, 14_728_266, 313),
        # the published network, with another stem and fewer classes; the authors' unused layers do not count
        (DLA34, 15_742_104 - 3 * 16 * (7**2 - 3**2) - 990 * 513, None),
    ],
)
def test_published_numbers_of_parameters_and_multiplications(
    make: Callable[..., nn.Module], count: int, millions: int | None
) -> None:
    assert parameters(make()) == count
    assert millions is None or count_multiplications(make) / 1e6 == pytest.approx(
        millions, rel=0.015
    )


@each
def test_each_rectifier_is_a_module_and_runs_once(name: str) -> None:
    model = SMALL[name]().eval()
    rectifiers = [part for part in model.modules() if isinstance(part, nn.ReLU)]
    calls: list[nn.Module] = []
    for part in rectifiers:
        part.register_forward_hook(lambda module, *_: calls.append(module))
    model(torch.zeros(1, 3, 32, 32))
    assert len(calls) == len(rectifiers) == RECTIFIERS[name]
    assert set(calls) == set(rectifiers)
    assert not any(part.inplace for part in rectifiers)


# formulas


def normalised(features: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    mean, variance = layer.running_mean, layer.running_var
    assert mean is not None
    assert variance is not None
    scale = layer.weight / (variance + layer.eps).sqrt()
    return (features - mean[:, None, None]) * scale[:, None, None] + layer.bias[:, None, None]


def activations(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    handles = [
        part.register_forward_hook(lambda _, __, out, name=name: found.update({name: out}))
        for name, part in model.named_modules()
    ]
    with torch.no_grad():
        model(inputs)
    for handle in handles:
        handle.remove()
    return found


def test_the_shortcut_without_parameters() -> None:
    """Every second pixel; new channels are zeros."""
    seen = activations(fixed("resnet20"), noise(2))
    before = seen["stage1"]
    expected = torch.cat([before[:, :, ::2, ::2], torch.zeros(2, 4, 16, 16)], 1)
    assert torch.equal(seen["stage2.block1.shortcut"], expected)
    assert torch.equal(seen["stage2.block1"], (seen["stage2.block1.norm2"] + expected).clamp(0))


@pytest.mark.parametrize(("channels", "stride"), [(4, 1), (6, 2)])
def test_a_residual_block(channels: int, stride: int) -> None:
    """With and without a change of shape."""
    generator = torch.Generator().manual_seed(0)
    block: Any = BasicBlock(4, channels, stride)
    for part in block.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, generator=generator)  # type: ignore[arg-type]
            nn.init.uniform_(part.running_var, 0.5, 2, generator=generator)  # type: ignore[arg-type]
    block.eval()
    inputs = torch.randn(3, 4, 8, 8, generator=generator)
    hidden = normalised(
        F.conv2d(inputs, block.conv1.weight, stride=stride, padding=1), block.norm1
    ).clamp(0)
    hidden = normalised(F.conv2d(hidden, block.conv2.weight, padding=1), block.norm2)
    short = inputs
    if stride == 2:
        short = normalised(
            F.conv2d(inputs, block.shortcut.conv.weight, stride=2), block.shortcut.norm
        )
    torch.testing.assert_close(block(inputs), (hidden + short).clamp(0))


def test_the_small_cnn_is_small_and_plain() -> None:
    model = SmallCNN()
    assert parameters(model) < 300_000
    assert [type(layer) for layer in model.features] == [
        nn.Conv2d,
        nn.ReLU,
        nn.Conv2d,
        nn.ReLU,
        nn.MaxPool2d,
    ] * 3
    assert SmallCNN(num_classes=5, in_channels=1)(torch.zeros(1, 1, 32, 32)).shape == (1, 5)


def test_trees_aggregate() -> None:
    """Yu et al., Section 3.2, for depth 2: the inner root aggregates two blocks, the outer root all of them."""
    model: Any = fixed("dla")
    seen, stage = activations(model, noise(2)), model.stage4
    before = seen["stage3"]
    pooled = before.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))

    def node(root: Any, *features: Tensor) -> Tensor:
        mixed = torch.einsum("kc,nchw->nkhw", root.conv.weight[:, :, 0, 0], torch.cat(features, 1))
        return normalised(mixed, root.norm).clamp(0)

    inner, outer = stage.tree.first, stage.tree.second
    block = inner.first
    residual = normalised(
        F.conv2d(before, block.conv1.weight, stride=2, padding=1), block.norm1
    ).clamp(0)
    residual = normalised(F.conv2d(residual, block.conv2.weight, padding=1), block.norm2)
    short = normalised(F.conv2d(pooled, block.shortcut.conv.weight), block.shortcut.norm)
    with torch.no_grad():
        one = (residual + short).clamp(0)
        two = inner.second(one)
        half = node(inner.root, two, one)
        three = outer.first(half)
        four = outer.second(three)
        torch.testing.assert_close(seen["stage4"], node(outer.root, four, three, half, pooled))


@pytest.mark.parametrize("stem", [(), (6,)])
def test_a_vision_transformer_by_torchs_own_layers(stem: tuple[int, ...]) -> None:
    """Dosovitskiy et al., equations 1 to 4: patches, class token, positions, encoder layers, the class token read."""
    model: Any = drawn_vit(stem).eval()
    images = noise(3).float()
    before = images
    if stem:  # one convolution of stride 2
        first = model.patch_embed.stem1
        before = normalised(
            F.conv2d(images, first.conv.weight, stride=2, padding=1), first.norm
        ).clamp(0)
    size = before.shape[-1] // 8
    rows = before.unfold(2, size, size).unfold(3, size, size)  # (N, C, 8, 8, size, size)
    patches = (
        torch.einsum("ncijab,wcab->nijw", rows, model.patch_embed.proj.weight)
        + model.patch_embed.proj.bias
    )
    tokens = (
        torch.cat([model.cls_token.expand(3, 1, 12), patches.flatten(1, 2)], 1) + model.pos_embed
    )
    for block in model.blocks:
        theirs = nn.TransformerEncoderLayer(
            12, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True
        )
        attention, feedforward = block.attention, block.feedforward
        pairs = [
            (theirs.norm1, block.norm1),
            (theirs.norm2, block.norm2),
            (theirs.linear1, feedforward.fc1),
        ]
        pairs += [(theirs.linear2, feedforward.fc2), (theirs.self_attn.out_proj, attention.out)]
        for target, source in pairs:
            target.load_state_dict(source.state_dict())
        with torch.no_grad():
            theirs.self_attn.in_proj_weight.copy_(attention.queries_keys_values.weight)
            theirs.self_attn.in_proj_bias.copy_(attention.queries_keys_values.bias)
        tokens = theirs(tokens)
    expected = model.norm(tokens[:, 0]) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(images), expected)
    assert torch.autograd.gradgradcheck(
        lambda image: model.double()(image)[:, 0],
        images[:1].double().requires_grad_(),
        atol=1e-3,
        fast_mode=True,
    )


def drawn_vit(stem: tuple[int, ...]) -> nn.Module:
    """With large positions and class token, so that they matter, and batch statistics that are not the initial ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = VisionTransformer(width=12, layers=2, heads=2, stem=stem)
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name in ("cls_token", "pos_embed") or "running" in name:
                nn.init.uniform_(value, 0.5, 1.5)
    return model


def test_tokens_without_a_word_get_no_attention() -> None:
    """As if they were not there: the other tokens are the same as without them."""
    torch.manual_seed(0)
    layer, tokens = (
        EncoderLayer(6, heads=2, feedforward=8, activation=nn.GELU),
        torch.randn(2, 5, 6),
    )
    present = torch.tensor([[True, True, False, True, False], [False] * 5])
    out = layer(tokens, present)
    torch.testing.assert_close(out[:1, present[0]], layer(tokens[:1, present[0]]))
    assert out.isfinite().all()  # also where no token is present


# behaviour


@each
def test_gradients_reach_every_layer_and_a_step_lowers_the_loss(name: str) -> None:
    """The loss decreases as the gradient predicts. Biases before batch normalisation have no gradient."""
    model = drawn(name).train()
    inputs, labels = noise(16), torch.arange(16) % 10
    loss = loss_of(model, inputs, labels)
    loss.backward()
    slopes = {key: value.grad for key, value in model.named_parameters() if value.grad is not None}
    assert slopes.keys() == dict(model.named_parameters()).keys()
    size = sum(float(slope.square().sum()) for slope in slopes.values())
    for key, slope in slopes.items():
        constant = name == "vgg16" and "conv" in key and "bias" in key
        assert (float(slope.norm()) > 1e-9 * size**0.5) != constant, key
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3 / size)
    optimiser.step()
    assert (loss - loss_of(model, inputs, labels)).item() == pytest.approx(1e-3, rel=0.3)


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    torch.manual_seed(0)  # the same dropout
    return F.cross_entropy(model(inputs), labels)
