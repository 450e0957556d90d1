"""Gates on layers against weights that are masked in truth: every explainer, every kind of layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from light import light_explainer
from torch import Tensor, nn

import standfast
from standfast.gating import (
    find_gateable,
    gate,
    group_count,
    masked_weight,
    masked_weights,
    rows_of,
    select_layers,
    weight_layers,
)

#: not `randomised`, which decides by its explainer: it shuffles masked weights, while gates mask shuffled ones
GATEABLE = [
    name
    for name in standfast.explainers.names()
    if standfast.explainers.explainers[name].gateable is True
]
# the net has no attention
GATEABLE = [name for name in GATEABLE if not name.startswith("attention_")]


class Net(nn.Module):
    """Groups, strides, reflecting pads, a residual sum, a layer that runs twice, functional calls, in-place layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1, padding_mode="reflect")
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
        self.twice = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2)
        self.body = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(6, 5, 3, stride=2), nn.ReLU())
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(5 * 9, 12), nn.ReLU(), nn.Linear(12, 4, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = x + self.grouped(F.pad(x, (0, 0, 0, 0)))
        x = self.twice(F.relu(self.twice(x)))
        x = self.up(F.max_pool2d(x, 2))
        return self.head(self.body(x))  # type: ignore[no-any-return]


@pytest.fixture
def model() -> standfast.Model:
    torch.manual_seed(6)  # all layers matter, each by more than rounding does
    return standfast.Model(Net(), (0.0, 1.0), device="cpu", batch_size=10)


def masks_for(layer: nn.Module, count: int) -> Tensor:
    return torch.rand(count, group_count(layer), generator=torch.Generator().manual_seed(5)) < 0.7


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Parameters are afterwards the same objects over the same memory with the same bits; no hook is left."""
    before = {
        name: (id(p), p.data_ptr(), p._version, p.detach().clone())
        for name, p in module.named_parameters()
    }
    yield
    for name, p in module.named_parameters():
        assert (id(p), p.data_ptr(), p._version) == before[name][:3], name
        assert torch.equal(p, before[name][3]), name
    assert not any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules()
    )


def test_all_of_the_net_is_seen() -> None:
    names = ["stem", "grouped", "twice", "up", "body.1", "head.1", "head.3"]
    layers = weight_layers(Net())
    assert list(layers) == names
    assert [group_count(layer) for layer in layers.values()] == [8, 8, 8, 6, 5, 45, 12]


@pytest.mark.parametrize("target", [True, False], ids=["given", "predicted"])
@pytest.mark.parametrize("name", GATEABLE)
def test_gates_give_what_masked_weights_give(
    model: standfast.Model, name: str, target: bool
) -> None:
    """Also for rows that an explainer makes of its own, cut by a budget that fits no whole number of inputs."""
    explainer = light_explainer(name)
    x = torch.rand(5, 2, 8, 8, generator=torch.Generator().manual_seed(1))
    classes = torch.arange(5) % 4

    def explain(x: Tensor, masks: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        with gate(layer, masks):
            return explainer.attribute(model, x, classes if target else None)

    with unchanged(model.module), model.session():
        for layer in weight_layers(model.module).values():
            masks = masks_for(layer, 5)
            maps, logits = model.map_rows(
                explain, x, masks, classes, rows_per_input=explainer.rows_per_input, kind="backward"
            )
            expected = []
            for i, mask in enumerate(masks):
                with masked_weights(layer) as use:
                    use(mask)
                    expected.append(
                        explainer.attribute(
                            model, x[i : i + 1], classes[i : i + 1] if target else None
                        )
                    )
            wanted_maps, wanted_logits = (
                torch.cat(column) for column in zip(*expected, strict=True)
            )
            assert torch.allclose(logits, wanted_logits, atol=1e-6)
            assert torch.allclose(maps, wanted_maps, atol=1e-6, rtol=1e-4)
            with pytest.raises(AssertionError):  # and it does matter whose mask is whose
                assert torch.allclose(logits.flip(0), wanted_logits, atol=1e-6)


def test_the_explainers_that_read_weights_or_are_not_known_are_not_gated() -> None:
    assert {"lrp", "lrp_epsilon_plus", "deep_taylor", "deeplift"}.isdisjoint(GATEABLE)
    assert len(GATEABLE) == 21
    assert not standfast.explainers.from_callable(lambda module, x, y: x).gateable


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_every_convolution(dimensions: int, transposed: bool, groups: int, bias: bool) -> None:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dimensions}d")
    layer = kind(6, 9, 2, groups=groups, bias=bias)
    x, masks = torch.randn(4, 6, *[4] * dimensions), masks_for(layer, 4)
    with gate(layer, masks):
        seen = layer(x)
    for i, mask in enumerate(masks):
        with masked_weights(layer) as use:
            use(mask)
            assert torch.allclose(seen[i], layer(x[i : i + 1])[0], atol=1e-6)
        off = seen[i][~mask].flatten(1)
        assert (off == (layer.bias[~mask, None] if bias else 0.0)).all()  # to the bit


def test_linear_layer_over_positions_and_by_keyword() -> None:
    layer = nn.Linear(6, 3)
    x, masks = torch.randn(4, 5, 6), masks_for(layer, 4)
    with gate(layer, masks):
        seen, also = layer(x), layer(input=x)
    assert torch.equal(seen, also)
    for i, mask in enumerate(masks):
        assert torch.allclose(
            seen[i], F.linear(x[i], masked_weight(layer, mask), layer.bias), atol=1e-6
        )


def test_kept_channels_are_the_same_bits(model: standfast.Model) -> None:
    x = torch.rand(8, 2, 8, 8)
    with model.session(), torch.no_grad():
        for layer in weight_layers(model.module).values():
            with gate(layer, torch.ones(8, group_count(layer), dtype=torch.bool)):
                assert torch.equal(model.forward(x), model.forward(x))
                seen = model.forward(x)
            assert torch.equal(seen, model.forward(x))


def test_users_hooks_see_the_masked_layer() -> None:
    layer, seen = nn.Conv1d(1, 2, 1, bias=False), []
    handle = layer.register_forward_hook(lambda _m, _a, out: seen.append(out))
    with gate(layer, torch.tensor([[True, False]])):
        layer(torch.ones(1, 1, 3))
    handle.remove()
    assert (seen[0][0, 1] == 0).all()
    assert (seen[0][0, 0] != 0).all()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_model_is_as_it_was_after_an_error(
    model: standfast.Model, error: type[BaseException]
) -> None:
    layer = model.module.stem
    for context in (gate(layer, masks_for(layer, 8)), masked_weights(layer)):
        with unchanged(model.module), pytest.raises(error), context as use:
            if use is not None:
                whole = layer.weight.detach().clone()
                use(masks_for(layer, 1)[0])
                assert not torch.equal(layer.weight, whole)
            raise error
    with pytest.raises(error), rows_of(torch.tensor([0])):
        raise error
    with gate(layer, masks_for(layer, 8)), torch.no_grad():
        model.module(torch.rand(8, 2, 8, 8))  # the rows that were named are forgotten


def test_masks_and_rows_that_do_not_fit(model: standfast.Model) -> None:
    layer = model.module.head[1]
    with (
        pytest.raises(standfast.ArgumentError, match=r"masks: expected bool of shape \(N, 45\)"),
        gate(layer, torch.ones(2, 4)),
    ):
        pass
    with (
        pytest.raises(standfast.ModelError, match="expected 3 rows with 45 channels"),
        gate(layer, masks_for(layer, 3)),
    ):
        layer(torch.rand(4, 45))
    with gate(layer, masks_for(layer, 3)), rows_of(torch.tensor([2, 0, 0, 1])):
        assert layer(torch.rand(4, 45)).shape == (4, 12)


class Odd(nn.Module):
    """Layers that must not be gated: time first, rows folded, a weight used elsewhere, by name only, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Linear(6, 6)
        self.time_first = nn.Linear(6, 6)
        self.folded = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.also = nn.Linear(6, 6)
        self.also.weight = self.tied.weight
        self.by_name = nn.Linear(6, 6)
        self.unused = nn.Linear(6, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.plain(x))
        x = torch.tanh(self.time_first(x.transpose(0, 1))).transpose(0, 1)
        x = torch.tanh(self.folded(x.reshape(-1, 6))).reshape(x.shape)
        x = torch.tanh(self.tied(x)) + self.also(x)
        x = x + F.linear(x, self.by_name.weight)
        x = x + self.attention(x, x, x)[0]
        return self.normed(x).mean(1)  # type: ignore[no-any-return]


# also where the first axis has as many entries as there are rows
@pytest.mark.parametrize("steps", [3, 8, 16])
def test_gateable_finds_out_where_gates_would_lie(steps: int) -> None:
    torch.manual_seed(0)
    model = standfast.Model(Odd(), (-1.0, 1.0), device="cpu")
    layers = weight_layers(model.module)
    with unchanged(model.module), model.session():
        fit = find_gateable(model, torch.zeros(1, steps, 6), layers)
    assert fit == {"plain", "normed"}
    with (
        pytest.raises(standfast.ArgumentError, match="stores its weight"),
        masked_weights(layers["normed"]),
    ):
        pass


def test_gateable_accepts_ordinary_nets(model: standfast.Model) -> None:
    layers = weight_layers(model.module)
    with unchanged(model.module), model.session():
        assert find_gateable(model, torch.zeros(1, 2, 8, 8), layers) == set(layers)


def test_layers_are_selected_by_kind_and_name() -> None:
    module = nn.Sequential(nn.Conv1d(1, 1, 3), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(8, 2))
    assert list(select_layers(module, "all")) == ["1", "3"]
    assert list(select_layers(module, "conv")) == ["1"]
    assert list(select_layers(module, "first")) == ["1"]
    assert list(
        select_layers(nn.ModuleDict({"a": nn.Linear(2, 2), "first": nn.Linear(3, 2)}), "first")
    ) == ["first"]
    assert list(select_layers(module, ("3", "1"))) == ["3", "1"]
    assert list(select_layers(nn.Linear(3, 2), "all")) == ["module"]
    with pytest.raises(
        standfast.ArgumentError, match="at least two channels, got '0', which has 1"
    ):
        select_layers(module, ("0",))
    with pytest.raises(
        standfast.ArgumentError, match="stem, twice, up, got 'stemm' \\(did you mean 'stem'\\?\\)"
    ):
        select_layers(Net(), ("stemm",))
    with pytest.raises(
        standfast.ArgumentError, match="layers: expected 'conv' only for .* Sequential with 1"
    ):
        select_layers(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "conv")
    with pytest.raises(
        standfast.ArgumentError, match="Flatten with neither convolutions nor linear layers"
    ):
        select_layers(nn.Flatten(), "all")
