"""Grad-CAM on transformers: which layer it takes, and where the positions of tokens lie."""

from __future__ import annotations

import pytest
import torch
from small_transformers import SmallSwin, SmallViT
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ModelError
from standfast.zoo.networks.series_transformer import SeriesTransformer


def classify(module: nn.Module) -> standfast.Model:
    return standfast.Model(module, (0.0, 1.0), device="cpu")


def draw(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(4))


def explain_slowly(module: nn.Module, layer: str, x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The formula of Grad-CAM for one input, token by token: `sum_k A_tk mean_s dA_sk` for the patches `t`, `s`."""
    found: list[Tensor] = []
    handle = (
        module.eval()
        .get_submodule(layer)
        .register_forward_hook(lambda own, args, out: found.append(out))
    )
    score = module(x[None].requires_grad_(True))[0, 1]
    handle.remove()
    (gradient,) = torch.autograd.grad(score, found)
    tokens, gradient = (
        each[0].detach().reshape(-1, each.shape[-1]) for each in (found[0], gradient)
    )
    patches = range(len(tokens) - torch.Size(grid).numel(), len(tokens))
    alphas = [
        sum(float(gradient[s, k]) for s in patches) / len(patches) for k in range(tokens.shape[1])
    ]
    return torch.tensor(
        [sum(alpha * float(a) for alpha, a in zip(alphas, tokens[t], strict=True)) for t in patches]
    ).reshape(grid)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("decides", "registers"), [("class", 0), ("distilled", 2), ("mean", 0)])
def test_tokens_of_a_vision_transformer(decides: str, registers: int, fused: bool) -> None:
    module, x = SmallViT(decides, registers, fused), draw(2, 3, 12, 8)
    cam = hx.GradCAM(relu=False, interpolation="nearest")
    found = cam(classify(module), x, 1)
    for i in range(2):
        slow = (
            explain_slowly(module, "blocks.2.norm1", x[i], (3, 2))
            .repeat_interleave(4, 0)
            .repeat_interleave(4, 1)
        )
        torch.testing.assert_close(found[i], slow.expand(3, 12, 8), rtol=1e-4, atol=1e-6)
    named = hx.GradCAM(layer="blocks.1", relu=False, interpolation="nearest")(
        classify(module), x[:1], 1
    )
    slow = explain_slowly(module, "blocks.1", x[0], (3, 2))
    torch.testing.assert_close(named[0, 0, ::4, ::4], slow, rtol=1e-4, atol=1e-6)
    behind = hx.GradCAM(layer="blocks.2.norm2", relu=False)(classify(module), x, 1)
    assert bool((behind == 0).all()) == (decides != "mean")  # patches have no part in what follows


def test_grids_with_the_channels_last() -> None:
    module, x = SmallSwin(), draw(2, 3, 16, 16)
    found = hx.GradCAM(relu=False, interpolation="nearest")(classify(module), x, 1)
    assert torch.equal(
        found, hx.GradCAM("blocks.1.norm1", False, "nearest")(classify(module), x, 1)
    )
    for layer in ("blocks.1.norm1", "blocks.0", "norm"):
        found = hx.GradCAM(layer, False, "nearest")(classify(module), x, 1)
        for i in range(2):
            slow = explain_slowly(module, layer, x[i], (4, 4))
            torch.testing.assert_close(found[i, 0, ::4, ::4], slow, rtol=1e-4, atol=1e-6)


def test_tokens_of_a_series() -> None:
    torch.manual_seed(0)
    module = SeriesTransformer(stem=(8, 8), strides=(1, 2), layers=2, feedforward=8)
    x = draw(2, 4, 20)
    found = hx.GradCAM(relu=False, interpolation="nearest")(classify(module), x, 1)
    for i in range(2):
        slow = explain_slowly(module, "layers.1.norm1", x[i], (10,))
        torch.testing.assert_close(found[i, 0, ::2], slow, rtol=1e-4, atol=1e-6)
    convolution = hx.GradCAM(layer="features.conv2", relu=False)(classify(module), x, 1)
    assert not torch.allclose(convolution, found)


def test_guided_gradcam_of_a_vision_transformer() -> None:
    """There are no ReLUs, so the guided gradient is the plain one."""
    module, x = SmallViT(), draw(2, 3, 12, 8)
    gradient = hx.Saliency(absolute=False)(classify(module), x, 1)
    expected = gradient * hx.GradCAM()(classify(module), x, 1)
    torch.testing.assert_close(
        hx.GuidedGradCAM()(classify(module), x, 1), expected, rtol=1e-4, atol=1e-7
    )


class AttentionThenConvolution(nn.Module):
    """A hybrid whose last convolution runs behind the last attention; its layer normalisation is that of channels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.vit, self.norm = SmallViT(depth=1), nn.LayerNorm(12)
        self.last, self.head = nn.Conv2d(12, 5, 1), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.vit.blocks(self.vit.patch_embed(x).flatten(2).transpose(1, 2)))
        return self.head(self.last(tokens.transpose(1, 2).reshape(-1, 12, 3, 2)).mean((2, 3)))


class NormalisedConvolutions(nn.Module):
    """As ConvNeXt: layer normalisation between convolutions, and no attention."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        # not in the order of the calls
        self.last, self.first = (
            nn.Conv2d(6, 5, 1),
            nn.Conv2d(3, 6, 4, stride=4),
        )
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        grid = self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head(self.last(grid).mean((2, 3)))


@pytest.mark.parametrize(
    ("make", "layer"), [(AttentionThenConvolution, "last"), (NormalisedConvolutions, "last")]
)
def test_the_last_convolution_unless_attention_follows(make: type[nn.Module], layer: str) -> None:
    module, x = make(), draw(2, 3, 12, 8)
    found = hx.GradCAM(relu=False)(classify(module), x, 1)
    assert torch.equal(found, hx.GradCAM(layer=layer, relu=False)(classify(module), x, 1))


def test_errors() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(x).mean((1, 2)))

    x = draw(2, 3, 12, 8)
    with pytest.raises(ModelError, match="^gradcam needs a convolution, and this Mixed has none"):
        hx.GradCAM()(classify(Mixed()), x, 1)
    twice = SmallViT()
    twice.blocks[1] = twice.blocks[0]
    with pytest.raises(
        ModelError, match=r"expected layer 'blocks.0.norm1' to run once a forward pass, ran 2x"
    ):
        hx.GradCAM(layer="blocks.0.norm1")(classify(twice), x, 1)


class NormOnce(nn.Module):
    """Two attentions, and a layer normalisation before the first of them only."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.first, self.second = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.embed(x.transpose(1, 2)))
        for attention in (self.first, self.second):
            tokens = tokens + attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.head(tokens.mean(1))  # type: ignore[no-any-return]


def test_the_last_normalisation_before_the_last_attention_may_be_before_another_one() -> None:
    torch.manual_seed(0)
    model, x = standfast.Model(NormOnce(), (0.0, 1.0), device="cpu"), torch.rand(3, 4, 6)
    maps = hx.GradCAM(relu=False)(model, x, 1)
    assert torch.equal(maps, hx.GradCAM(layer="norm", relu=False)(model, x, 1))
    assert maps.any()
