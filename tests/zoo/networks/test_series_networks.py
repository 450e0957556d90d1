"""Networks for series: sizes, formulas, and explainers on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.data import synthetic_waves
from standfast.errors import ModelError
from standfast.explainers import (
    LRP,
    DeepLift,
)
from standfast.training.classifier import initialize
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.encoder import SelfAttention
from standfast.zoo.networks.series_cnn import SeriesCNN
from standfast.zoo.networks.series_models import SERIES_MODELS
from standfast.zoo.networks.series_transformer import SeriesTransformer, encode_positions

SMALL: dict[str, Callable[..., nn.Module]] = {
    "cnn": partial(SeriesCNN, width=8, hidden=8),
    "bilstm": partial(BiLSTM, units=(6, 8), hidden=8, patch=2),
    "transformer": partial(SeriesTransformer, stem=(8, 8), layers=2, feedforward=16),
}
each = pytest.mark.parametrize("name", SMALL)


@cache
def randomise(name: str, double: bool = False) -> nn.Module:
    """Set weights twice as large as usual, so that the functions are clearly nonlinear."""
    with torch.random.fork_rng():
        module = initialize(SMALL[name](), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    return (module.double() if double else module).eval()


@cache
def series(rows: int = 8, seed: int = 0, double: bool = False) -> Tensor:
    inputs = synthetic_waves(rows, steps=60, block=12, seed=seed).inputs
    return inputs.double() if double else inputs


def classifier(name: str, batch_size: int = 64, double: bool = False) -> standfast.Model:
    bounds = (-math.inf, math.inf)
    return standfast.Model(
        randomise(name, double), bounds=bounds, device="cpu", batch_size=batch_size
    )


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# sizes and formulas


def test_published_sizes() -> None:
    conv = (4 * 11 + 1) * 128 + 2 * (128 * 11 + 1) * 128
    assert parameters(SeriesCNN()) == conv + (128 + 1) * 128 + (128 + 1) * 2
    lstms = sum(2 * 4 * unit * (seen + unit + 2) for seen, unit in ((4, 64), (64, 128), (128, 64)))
    dense = sum((2 * unit + 1) * unit for unit in (64, 128, 64))
    assert parameters(BiLSTM()) == lstms + dense + (64 + 1) * 256 + (256 + 1) * 2
    stem = (4 * 3 + 1) * 128 + (128 * 3 + 1) * 64
    layer = (64 + 1) * 3 * 64 + (64 + 1) * 64 + (64 + 1) * 256 + (256 + 1) * 64 + 2 * 2 * 64
    assert (
        parameters(SeriesTransformer()) == stem + 3 * layer + 2 * 64 + (64 + 1) * 64 + (64 + 1) * 2
    )


@pytest.mark.parametrize("make", [SeriesCNN, BiLSTM, SeriesTransformer, *SERIES_MODELS.values()])
def test_any_length_channels_and_classes(make: Callable[..., nn.Module]) -> None:
    for channels, classes, steps in ((1, 2, 24), (12, 9, 29), (4, 2, 100)):
        with torch.no_grad():
            module = make(num_classes=classes, in_channels=channels).eval()
            assert module(torch.zeros(3, channels, steps)).shape == (3, classes)


@pytest.mark.parametrize("name", sorted(SERIES_MODELS))
def test_small_networks_have_their_tokens(name: str) -> None:
    """At most 250 of 500 steps are left after the first layer, so that an epoch takes seconds on a CPU."""
    module = SERIES_MODELS[name]()
    assert 10_000 < parameters(module) < 60_000
    if isinstance(module, SeriesTransformer):
        assert module.features(torch.zeros(1, 4, 500)).shape == (1, 32, 125)
    if isinstance(module, BiLSTM):
        assert module.patch == 4


def test_the_attention_equals_that_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = SelfAttention(8, heads=4), nn.MultiheadAttention(8, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.queries_keys_values.weight)
        theirs.in_proj_bias.copy_(ours.queries_keys_values.bias)
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    tokens = torch.randn(2, 7, 8)
    assert torch.allclose(ours(tokens), theirs(tokens, tokens, tokens)[0], atol=1e-6)


def test_positions_are_sines_and_cosines() -> None:
    made = encode_positions(torch.zeros(1, 9, 6, dtype=torch.float64))
    for place in range(9):
        for pair in range(3):
            angle = place / 10000 ** (2 * pair / 6)
            assert made[place, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-5)
            assert made[place, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_positions_distinguish_the_order() -> None:
    """Without them the order of tokens has no influence."""
    module: Any = randomise("transformer")
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        tokens = module.features(series()).transpose(1, 2)
        assert torch.allclose(
            module.layers(tokens).mean(1), module.layers(tokens[:, order]).mean(1), atol=1e-5
        )
        placed = (own + encode_positions(own) for own in (tokens, tokens[:, order]))
        straight, shuffled = (
            module.classifier(module.norm(module.layers(own)).mean(1)) for own in placed
        )
        torch.testing.assert_close(module(series()), straight)
        assert float((straight - shuffled).abs().max()) > 1e-3


def test_the_lstm_equals_its_formula_in_both_directions() -> None:
    module = BiLSTM(units=(6,), hidden=8, patch=5).double().eval()
    x = series(3, double=True)
    lstm = module.lstms[0]
    # channels, then steps
    tokens = torch.stack([x[:, :, 5 * i : 5 * i + 5].flatten(1) for i in range(12)], dim=1)

    def read(order: range, suffix: str) -> Tensor:
        weights = [
            getattr(lstm, f"{kind}_l0{suffix}")
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        state = cell = torch.zeros(3, 6, dtype=torch.float64)
        states = {}
        for step in order:
            gates = tokens[:, step] @ weights[0].T + state @ weights[1].T + weights[2] + weights[3]
            enter, forget, content, leave = gates.chunk(4, dim=1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * content.tanh()
            state = states[step] = leave.sigmoid() * cell.tanh()
        return torch.stack([states[step] for step in range(12)], dim=1)

    both = torch.cat([read(range(12), ""), read(range(11, -1, -1), "_reverse")], dim=2)
    features = (both @ module.dense[0].fc.weight.T + module.dense[0].fc.bias).relu()  # type: ignore[index, union-attr]
    assert torch.allclose(module.classifier(features.mean(1)), module(x), atol=1e-10)


def test_patches_are_padded_with_zeros() -> None:
    x = series()[:, :, :57]
    module = randomise("bilstm")
    assert torch.equal(module(x), module(torch.cat([x, torch.zeros(8, 4, 1)], dim=2)))


def test_options_are_checked() -> None:
    assert_refused(SeriesCNN, kernel_size=[4], width=[0], dropout=[1.0], hidden=[0])
    assert_refused(BiLSTM, units=[()], patch=[0], hidden=[0])
    assert_refused(
        SeriesTransformer,
        stem=[(8, 9), ()],
        strides=[(1,), (0, 1)],
        dropout=[-0.1],
        feedforward=[0],
    )


# batches, gradients and bits


@each
@pytest.mark.parametrize("grad", [False, True])
def test_predictions_have_the_same_bits_with_and_without_a_graph(name: str, grad: bool) -> None:
    module = randomise(name)
    with torch.no_grad():
        plain = module(series(16))
    with torch.set_grad_enabled(grad):
        assert torch.equal(module(series(16).clone().requires_grad_(grad)).detach(), plain)


# explainers


@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
@pytest.mark.parametrize("name", ["bilstm", "transformer"])
def test_deeplift_uses_the_gradient_of_gates_and_attention(name: str) -> None:
    """If all ReLUs are far from their kinks, no rule applies, and DeepLIFT equals gradient x input."""
    module = SMALL[name]()
    module.load_state_dict(randomise(name).state_dict())
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv1d) and layer.bias is not None:
                layer.bias.fill_(100.0)
    shifted = standfast.Model(module, bounds=(-math.inf, math.inf), device="cpu", batch_size=64)
    x = series()
    lift = DeepLift()(shifted, x, 1)
    product = standfast.explainers.InputXGradient()(shifted, x, 1)
    assert float(product.abs().max()) > 0
    assert torch.allclose(lift, product, rtol=1e-3, atol=1e-6 * float(product.abs().max()))


@pytest.mark.parametrize("name", ["bilstm", "transformer"])
def test_lrp_refuses_gates_and_attention(name: str) -> None:
    with pytest.raises(ModelError, match="lrp"):
        LRP()(classifier(name), series())
