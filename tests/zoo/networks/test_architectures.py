"""The zoo's architectures: published sizes layer by layer, the formulas of blocks, training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused
from small_networks import SMALL, drawn, fixed, noise
from torch import Tensor, nn

from standfast import zoo
from standfast.errors import UnknownNameError
from standfast.zoo import DLA34, VGG16, MobileNetV2, ResNet18, ResNet20, VisionTransformer, architectures
from standfast.zoo.networks import dla
from standfast.zoo.networks import mobilenet_v2 as v2
from standfast.zoo.networks.encoder import EncoderLayer

RECTIFIERS = {"resnet20": 19, "mobilenet_v2": 35, "vgg16": 13, "vgg16-plain": 15, "dla": 33}
RECTIFIERS |= {"resnet18": 17, "cnn": 6}
each = pytest.mark.parametrize("name", SMALL)

# as published for ImageNet
PUBLISHED: dict[str, Callable[..., nn.Module]] = {
    "mobilenet_v2": partial(MobileNetV2, num_classes=1000, strides=v2.PUBLISHED_STRIDES),
    "resnet18": ResNet18,
    "vgg16": partial(VGG16, num_classes=1000, batch_norm=False, hidden=4096, positions=7),
    "vit": partial(
        VisionTransformer, num_classes=1000, side=224, patch=16, width=768, layers=12, heads=12, feedforward=3072
    ),
    "dla": partial(DLA34, num_classes=1000, strides=dla.PUBLISHED_STRIDES, stem_kernel=7),
}


def of(table: dict[str, Any], name: str) -> Any:
    """The entry for this name, or for the name without its variant."""
    return table.get(name, table.get(name.partition("-")[0]))


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(make: Callable[..., nn.Module], side: int, **options: Any) -> tuple[dict[str, tuple[int, ...]], int]:
    """For one image of that size: the shape (C, H, W) after each layer, and the number of multiplications."""
    shapes: dict[str, tuple[int, ...]] = {}
    products = []
    with torch.device("meta"):
        model = make(**options).eval()

        def note(layer: nn.Module, _: Any, out: Tensor, *, name: str) -> None:
            shapes[name] = tuple(out.shape[1:])
            if isinstance(layer, nn.Conv2d | nn.Linear):
                products.append(out.numel() * layer.weight[0].numel())

        for name, layer in model.named_modules():
            layer.register_forward_hook(partial(note, name=name))
        model(torch.zeros(1, 3, side, side))
    return shapes, sum(products)


# names


def test_architectures_have_names() -> None:
    names = ["dla", "lenet5", "mobilenet_v2", "resnet18", "resnet20", "small_cnn", "vgg16", "vit"]
    series = ["bilstm", "series_cnn", "series_transformer"]
    assert architectures.names() == sorted(names + series)
    assert zoo.architectures is architectures
    for name in names + series:
        with torch.device("meta"):
            side = 28 if name == "lenet5" else 32
            model = architectures[name](num_classes=7, in_channels=2).eval()
            shape = (5, 2, 50) if name in series else (5, 2, side, side)
            assert model(torch.zeros(shape)).shape == (5, 7)
    with pytest.raises(UnknownNameError, match="architecture: expected .*did you mean 'resnet20'"):
        architectures["resnet_20"]


def test_options_are_checked() -> None:
    assert_refused(ResNet20, width=[0], shortcut=["C"])
    assert_refused(MobileNetV2, width_multiplier=[-1.0], strides=[(0,) * 8], activation=["gelu"])
    assert_refused(VGG16, width=[0], hidden=[-1], positions=[0])
    assert_refused(DLA34, width=[0], strides=[(1,) * 5], stem_kernel=[4])
    assert_refused(VisionTransformer, layers=[0], patch=[5], heads=[5], stem=[(8, 8, 8)])


# sizes


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (ResNet20, 269_722),  # He et al., Table 6: 0.27 million
        (partial(ResNet20, shortcut="B"), 269_722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64),
        (PUBLISHED["mobilenet_v2"], 3_504_872),
        (PUBLISHED["vgg16"], 138_357_544),
        (VGG16, 14_728_266),
        (PUBLISHED["vit"], 86_567_656),  # ViT-B/16 in torchvision and timm
        (PUBLISHED["dla"], 15_742_104),  # the authors' number, without the layers that they do not use
    ],
)
def test_published_numbers_of_parameters(make: Callable[..., nn.Module], count: int) -> None:
    with torch.device("meta"):
        assert parameters(make()) == count


@pytest.mark.parametrize(
    ("name", "options", "side", "millions"),
    [
        ("mobilenet_v2", {}, 224, 300),  # Sandler et al., Table 4
        ("mobilenet_v2", {"width_multiplier": 1.4}, 224, 585),
        ("dla", {}, 224, 3100),  # Yu et al., Table 2
        ("resnet18", {}, 32, 555),  # the version for small images
        ("vgg16", {}, 224, 15_500),  # Simonyan and Zisserman, as torchvision and timm count
    ],
)
def test_published_numbers_of_multiplications(name: str, options: dict[str, Any], side: int, millions: int) -> None:
    _, products = on_meta(PUBLISHED[name], side, **options)
    assert products / 1e6 == pytest.approx(millions, rel=0.015)  # as rounded there


@each
def test_each_rectifier_is_a_module_and_runs_once(name: str) -> None:
    model = SMALL[name]().eval()
    rectifiers = [part for part in model.modules() if isinstance(part, nn.ReLU | nn.ReLU6)]
    calls: list[nn.Module] = []
    for part in rectifiers:
        part.register_forward_hook(lambda module, *_: calls.append(module))
    model(torch.zeros(1, 3, 32, 32))
    assert len(calls) == len(rectifiers) == of(RECTIFIERS, name)
    assert set(calls) == set(rectifiers)
    assert not any(part.inplace for part in rectifiers)
    six = any(isinstance(part, nn.ReLU6) for part in rectifiers)
    assert six == (name == "mobilenet_v2")


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


def test_an_inverted_residual() -> None:
    """Sandler et al., Table 1; the last layer is linear; the input is added if the shape stays the same."""
    model: Any = fixed("mobilenet_v2")
    seen = activations(model, 20 * noise(2))
    for number, residual in ((2, True), (4, False), (5, True)):  # 4 halves the size
        block, before = model.features[number], seen[f"features.block{number - 1}"]
        hidden = F.conv2d(before, block.expand.conv.weight)
        assert hidden.shape[1] == 6 * before.shape[1]
        hidden = normalised(hidden, block.expand.norm).clamp(0, 6)
        assert (hidden == 6).any()
        stride = 1 if residual else 2
        hidden = F.conv2d(hidden, block.depthwise.conv.weight, stride=stride, padding=1, groups=hidden.shape[1])
        hidden = normalised(hidden, block.depthwise.norm).clamp(0, 6)
        out = normalised(F.conv2d(hidden, block.project.conv.weight), block.project.norm)
        torch.testing.assert_close(seen[f"features.block{number}"], out + before if residual else out)
        assert (out < 0).any()


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
    residual = normalised(F.conv2d(before, block.conv1.weight, stride=2, padding=1), block.norm1).clamp(0)
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
        before = normalised(F.conv2d(images, first.conv.weight, stride=2, padding=1), first.norm).clamp(0)
    size = before.shape[-1] // 8
    rows = before.unfold(2, size, size).unfold(3, size, size)  # (N, C, 8, 8, size, size)
    patches = torch.einsum("ncijab,wcab->nijw", rows, model.patch_embed.proj.weight) + model.patch_embed.proj.bias
    tokens = torch.cat([model.cls_token.expand(3, 1, 12), patches.flatten(1, 2)], 1) + model.pos_embed
    for block in model.blocks:
        theirs = nn.TransformerEncoderLayer(12, 2, 20, 0.0, "gelu", batch_first=True, norm_first=True)
        attention, feedforward = block.attention, block.feedforward
        pairs = [(theirs.norm1, block.norm1), (theirs.norm2, block.norm2), (theirs.linear1, feedforward.fc1)]
        pairs += [(theirs.linear2, feedforward.fc2), (theirs.self_attn.out_proj, attention.out)]
        for target, source in pairs:
            target.load_state_dict(source.state_dict())
        with torch.no_grad():
            theirs.self_attn.in_proj_weight.copy_(attention.queries_keys_values.weight)
            assert theirs.self_attn.in_proj_bias is not None
            theirs.self_attn.in_proj_bias.copy_(attention.queries_keys_values.bias)
        tokens = theirs(tokens)
    expected = model.norm(tokens[:, 0]) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(images), expected)
    assert torch.autograd.gradgradcheck(
        lambda image: model.double()(image)[:, 0], images[:1].double().requires_grad_(), atol=1e-3, fast_mode=True
    )


def drawn_vit(stem: tuple[int, ...]) -> nn.Module:
    """With large positions and class token, so that they matter, and batch statistics that are not the initial ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = VisionTransformer(width=12, layers=2, heads=2, feedforward=20, stem=stem)
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name in ("cls_token", "pos_embed") or "running" in name:
                nn.init.uniform_(value, 0.5, 1.5)
    return model


def test_tokens_without_a_word_get_no_attention() -> None:
    """As if they were not there: the other tokens are the same as without them."""
    torch.manual_seed(0)
    layer, tokens = EncoderLayer(6, heads=2, feedforward=8, activation=nn.GELU), torch.randn(2, 5, 6)
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
        constant = "project.norm.bias" in key or (name == "vgg16" and "conv" in key and "bias" in key)
        assert (float(slope.norm()) > 1e-9 * size**0.5) != constant, key
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3 / size)
    optimiser.step()
    assert (loss - loss_of(model, inputs, labels)).item() == pytest.approx(1e-3, rel=0.3)


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    torch.manual_seed(0)  # the same dropout
    return F.cross_entropy(model(inputs), labels)


def test_resnet18_has_the_options_of_the_bundled_weights() -> None:
    """The bundled weights were trained with these options."""
    assert parameters(ResNet18(width=16)) == 701_466
