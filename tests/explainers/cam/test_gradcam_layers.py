"""Which layer Grad-CAM takes by default: the last one with positions that feeds the logits."""

from __future__ import annotations

from typing import Any

import captum.attr as ca
import pytest
import torch
import torch.nn.functional as F
from small_transformers import SmallViT
from torch import Tensor, nn

import standfast
from standfast import explainers as hx

KINDS = {1: (nn.Conv1d, (2, 14)), 2: (nn.Conv2d, (2, 10, 12)), 3: (nn.Conv3d, (2, 6, 7, 8))}


class Net(nn.Module):
    """Features from `features(x)`, pooled over positions, and a linear head."""

    #: the layer to take, and one that is registered last
    right: str

    def __init__(self, width: int = 6, dims: int = 2) -> None:
        super().__init__()
        self.dims, self.conv = dims, KINDS[dims][0]
        self.a, self.b = self.conv(2, 6, 3), self.conv(6, width, 3, padding=1)
        self.build()
        self.head = nn.Linear(width, 4)

    def build(self) -> None: ...

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.b(F.relu(self.a(x))))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(2).mean(2))  # type: ignore[no-any-return]


class Plain(Net):
    right = "b"


class SqueezeAndExcitation(Net):
    """The gates are convolutions behind a global pooling, and are registered last."""

    right = "b"

    def build(self) -> None:
        self.squeeze, self.excite = self.conv(6, 3, 1), self.conv(3, 6, 1)

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        pooled = y.mean(tuple(range(2, y.ndim)), keepdim=True)
        return y * torch.sigmoid(self.excite(F.relu(self.squeeze(pooled))))


class SpatialGate(Net):
    """A gate with positions, which is computed from the features that it weights."""

    right = "b"

    def build(self) -> None:
        self.gate = self.conv(2, 1, 3, padding=1)

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        return y * torch.sigmoid(
            self.gate(torch.cat([y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1))
        )


class AuxiliaryHead(Net):
    """One head that runs in training alone, and one whose result is not returned."""

    right = "b"

    def build(self) -> None:
        self.unused, self.aside = self.conv(6, 4, 1), self.conv(6, 4, 1)

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        self.aside(y)
        return y + self.unused(y).mean() if self.training else y


class Projection(Net):
    """The shortcut of a residual block is a convolution that is registered, and runs, after the block's last one."""

    right = "c"

    def build(self) -> None:
        self.c, self.norm, self.down = (
            self.conv(6, 6, 3, padding=1),
            nn.GroupNorm(2, 6),
            self.conv(6, 6, 1),
        )

    def features(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        out = self.norm(self.c(F.relu(self.b(y))))
        out += self.down(y)
        return F.relu(out)


class Identity(Net):
    right = "b"

    def features(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return F.relu_(self.b(y) + y)


class Block(nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.one, self.two = (
            conv(6, 3, 1),
            nn.Sequential(conv(6, 4, 1), nn.ReLU(), conv(4, 5, 3, padding=1)),
        )
        self.pooled = conv(6, 2, 1)

    def forward(self, y: Tensor) -> Tensor:
        branches = [F.relu(self.one(y)), F.relu(self.two(y)), self.pooled(y + y.mean())]
        return torch.concat(branches, dim=1)


class Inception(Net):
    """Branches of different lengths, side by side."""

    right = "mixed"

    def __init__(self, dims: int = 2) -> None:
        super().__init__(10, dims)

    def build(self) -> None:
        self.mixed = Block(self.conv)

    def features(self, x: Tensor) -> Tensor:
        y = self.mixed(F.relu(self.a(x)))
        y.relu_()  # it may write into the concatenation
        return y


class DenseBlock(nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(6 + 2 * n, 2, 3, padding=1) for n in range(3))

    def forward(self, y: Tensor) -> Tensor:
        for layer in self.layers:
            y = torch.cat([y, layer(F.relu(y))], 1)
        return y


class Dense(Net):
    """Each layer adds channels to those of all layers before it, which are all there at the end."""

    right = "dense"

    def __init__(self, dims: int = 2) -> None:
        super().__init__(12, dims)

    def build(self) -> None:
        self.dense = DenseBlock(self.conv)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.dense(self.a(x)))


class Decoder(Net):
    """As a U-Net: coarse features are enlarged, and concatenated with fine ones; what is registered runs backwards."""

    right = "last"

    def build(self) -> None:
        up = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[self.dims]
        self.last, self.up, self.down = (
            self.conv(12, 6, 1),
            up(6, 6, 2, stride=2),
            self.conv(6, 6, 2, stride=2),
        )

    def features(self, x: Tensor) -> Tensor:
        fine = F.relu(self.b(self.a(F.pad(x, [1, 1] * self.dims))))
        fine = fine[(..., *[slice(0, 6)] * self.dims)]
        return F.relu(self.last(torch.cat([fine, self.up(F.relu(self.down(fine)))], dim=1)))


class Enlarged(Decoder):
    """A transposed convolution is a convolution; the skip is added."""

    right = "up"

    def features(self, x: Tensor) -> Tensor:
        fine = F.relu(self.b(self.a(F.pad(x, [1, 1] * self.dims))))
        fine = fine[(..., *[slice(0, 6)] * self.dims)]
        return F.relu(self.up(F.relu(self.down(fine))) + fine)


class Separable(Net):
    """As MobileNet: the last convolution has a kernel of one position, and its output has many."""

    right = "pointwise"

    def build(self) -> None:
        self.pointwise, self.depthwise = self.conv(6, 6, 1), self.conv(6, 6, 3, groups=6)

    def features(self, x: Tensor) -> Tensor:
        return F.relu6(self.pointwise(F.hardswish(self.depthwise(self.a(x)))))


class HeadOfConvolutions(Net):
    """The head is made of convolutions, behind the pooling."""

    right = "b"

    def build(self) -> None:
        self.fc = self.conv(6, 6, 1)

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        return self.fc(y.mean(tuple(range(2, y.ndim)), keepdim=True))  # type: ignore[no-any-return]


class SplitChannels(Net):
    """Parts of the output of one layer are concatenated again: it is still that layer's."""

    right = "b"

    def features(self, x: Tensor) -> Tensor:
        y = self.b(F.relu(self.a(x)))
        return torch.cat([F.relu(y[:, 3:]), torch.tanh(y[:, :3])], dim=-1 - self.dims)


NETS = (
    *(
        Plain,
        SqueezeAndExcitation,
        SpatialGate,
        AuxiliaryHead,
        Projection,
        Identity,
        Inception,
        Dense,
        Decoder,
    ),
    *(Enlarged, Separable, HeadOfConvolutions, SplitChannels),
)


def make(kind: type[Any], dims: int = 2) -> tuple[standfast.Model, Tensor]:
    torch.manual_seed(0)
    x = torch.rand(3, *KINDS[dims][1], generator=torch.Generator().manual_seed(1))
    return standfast.Model(kind(dims=dims), (0.0, 1.0), device="cpu"), x


@pytest.mark.parametrize(
    ("kind", "dims"),
    [*((kind, 2) for kind in NETS), *((kind, n) for kind in (Inception, Decoder) for n in (1, 3))],
)
def test_the_last_layer_with_positions_that_feeds_the_logits(kind: type[Net], dims: int) -> None:
    model, x = make(kind, dims)
    named = hx.GradCAM(kind.right, relu=False)(model, x, 1)
    assert float(named.flatten(1).std(1).min()) > 1e-7
    found = hx.GradCAM(relu=False)(model, x, 1)
    assert torch.equal(found, named)
    assert torch.equal(hx.GuidedGradCAM()(model, x, 1), hx.GuidedGradCAM(kind.right)(model, x, 1))
    if kind not in (Inception, Dense):  # whose parts are several layers
        captum = hx.from_captum(ca.LayerGradCam)(model, x, 1)
        assert torch.equal(captum, hx.from_captum(ca.LayerGradCam, layer=kind.right)(model, x, 1))
        torch.testing.assert_close(captum, found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [Inception, Dense, Projection])
def test_its_second_derivative_is_that_of_the_named_layer(kind: type[Net]) -> None:
    model, x = make(kind)
    found = []
    for layer in (None, kind.right):
        with model.session(), hx.smooth_relu(5.0):
            leaf = x.clone().requires_grad_(True)
            maps, _ = hx.GradCAM(layer, relu=False).attribute(model, leaf, None, create_graph=True)
            found.append(torch.autograd.grad(maps.square().sum(), leaf)[0])
    assert bool(found[0].any())
    torch.testing.assert_close(found[0], found[1])


class Shared(nn.Module):
    """One convolution runs twice; `apart` has a copy for the second run."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.head = nn.Conv2d(2, 6, 3), nn.Conv2d(6, 6, 3), nn.Linear(6, 4)
        self.again = nn.Conv2d(6, 6, 3) if apart else self.b
        self.again.load_state_dict(self.b.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.again(F.relu(self.b(F.relu(self.a(x)))))).mean((2, 3)))  # type: ignore[no-any-return]


def test_a_layer_that_runs_twice_is_taken_at_its_last_run() -> None:
    x = torch.rand(3, 2, 10, 12)
    shared, apart = (
        standfast.Model(Shared(each), (0.0, 1.0), device="cpu") for each in (False, True)
    )
    assert torch.equal(
        hx.GradCAM(relu=False)(shared, x, 1), hx.GradCAM("again", relu=False)(apart, x, 1)
    )


class Parallel(Net):
    """Two branches that are added."""

    def build(self) -> None:
        self.c = self.conv(6, 6, 5, padding=2)

    def features(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.b(y) + self.c(y)  # type: ignore[no-any-return]


class Towers(Net):
    """Two networks without a layer in common, the results of which meet behind the pooling."""

    def build(self) -> None:
        self.c = self.conv(2, 6, 5)

    def forward(self, x: Tensor) -> Tensor:
        short = F.relu(self.c(x)).flatten(2).mean(2)
        return self.head(super().features(x).flatten(2).mean(2) - short)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "taken", "beside"), [(Parallel, "c", "b"), (Towers, "b", "c")])
def test_parallel_branches_are_named(kind: type[Net], taken: str, beside: str) -> None:
    """Of the same length, the last one is taken, and else the longest one."""
    model, x = make(kind)
    with pytest.warns(UserWarning, match=f"layer '{taken}'.*'{beside}'"):
        found = hx.GradCAM(relu=False)(model, x, 1)
    assert torch.equal(found, hx.GradCAM(taken, relu=False)(model, x, 1))


def test_a_single_position_is_said_to_be_one() -> None:
    model, x = make(SqueezeAndExcitation)
    with pytest.warns(UserWarning, match="'excite' has a 1 x 1 grid"):
        maps = hx.GradCAM("excite", relu=False)(model, x, 1)
    assert float(maps.flatten(1).std(1).max()) < 1e-6
    torch.manual_seed(0)
    alone = nn.Sequential(
        nn.AvgPool1d(14), nn.Conv1d(2, 3, 1), nn.Conv1d(3, 3, 1), nn.Flatten(), nn.Linear(3, 2)
    )
    model, x = standfast.Model(alone, (0.0, 1.0), device="cpu"), torch.rand(3, 2, 14)
    with pytest.warns(UserWarning, match="'2' has a 1 grid"):
        hx.GradCAM()(model, x, 1)


class NoNorms(nn.Module):
    """A transformer without layer normalisation: the embedding of its patches is the only layer to take."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.attention = (
            nn.Conv2d(2, 8, 2, stride=2),
            nn.MultiheadAttention(8, 2, batch_first=True),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.head((tokens + self.attention(tokens, tokens, tokens)[0]).mean(1))  # type: ignore[no-any-return]


def test_transformers() -> None:
    model, x = standfast.Model(NoNorms(), (0.0, 1.0), device="cpu"), torch.rand(3, 2, 10, 12)
    assert torch.equal(
        hx.GradCAM(relu=False)(model, x, 1), hx.GradCAM("embed", relu=False)(model, x, 1)
    )

    class Aside(SmallViT):
        """The last attention that runs does not feed the logits."""

        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            self.blocks[0](self.patch_embed(x).flatten(2).transpose(1, 2))
            return logits  # type: ignore[no-any-return]

    torch.manual_seed(0)
    module = Aside(depth=2)
    model, x = standfast.Model(module, (0.0, 1.0), device="cpu"), torch.rand(2, 3, 12, 8)
    found = hx.GradCAM(relu=False)(model, x, 1)
    assert torch.equal(found, hx.GradCAM("blocks.1.norm1", relu=False)(model, x, 1))


def test_the_layer_is_in_results() -> None:
    model, x = make(SqueezeAndExcitation)
    metric = standfast.metrics.get(
        "max_sensitivity:samples=2", neighbourhood=standfast.LinfBall(0.1)
    )
    assert metric(model, "gradcam", x).choices == {"layer": "'b' (8 x 10 positions)"}
    assert metric(model, "saliency", x).choices == {}
    dense, _ = make(Dense)
    assert (
        "to 'dense.layers.2', 4 layers concatenated"
        in metric(dense, "guided_gradcam", x).choices["layer"]
    )
    layers = {"cam": "gradcam", "plain": "saliency", "captum": hx.from_captum(ca.LayerGradCam)}
    found = standfast.evaluate(model, layers, x, [metric], progress=False, controls=False)
    jobs = dict(found.jobs.select("explainer", "choices").unique().rows())
    assert jobs == {
        "cam": "layer 'b' (8 x 10 positions)",
        "plain": None,
        "captum": "layer 'b' (8 x 10 positions)",
    }


def test_a_named_layer_that_does_not_feed_the_logits_is_refused() -> None:
    model, x = make(AuxiliaryHead)
    for kind in (hx.GradCAM, hx.GuidedGradCAM):
        with pytest.raises(standfast.ModelError, match="no gradients by layer 'aside'"):
            kind("aside")(model, x, 1)
        with pytest.raises(
            standfast.ModelError, match="layer 'unused' to run once a forward pass, ran 0x"
        ):
            kind("unused")(model, x, 1)
    images = nn.Sequential(
        nn.Unflatten(1, (1, 2)), nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(39, 2)
    )
    series, x = standfast.Model(images, (0.0, 1.0), device="cpu"), torch.rand(3, 2, 14)
    with pytest.raises(standfast.ModelError, match="none with outputs .N, channels, positions"):
        hx.GradCAM()(series, x, 1)  # its outputs have another number of axes than the inputs
