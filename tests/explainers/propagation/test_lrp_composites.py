"""LRP's rules and composites equal the formulas, unit by unit, on explicit matrices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.propagation.relevance_rules import divide_stabilised

EPSILON, GAMMA = 1e-6, 0.25
NAMED = {
    "lrp_epsilon_plus": ("z_plus", "epsilon", None),
    "lrp_epsilon_plus_flat": ("z_plus", "epsilon", "flat"),
    "lrp_epsilon_alpha2_beta1": ("alpha2_beta1", "epsilon", None),
    "lrp_epsilon_alpha2_beta1_flat": ("alpha2_beta1", "epsilon", "flat"),
    "lrp_epsilon_gamma_box": ("gamma", "epsilon", "box of a convolution"),
    "deep_taylor": ("taylor", "taylor", "box"),
}


def randomise(module: nn.Module) -> nn.Module:
    """Weights, biases, scales, shifts and statistics of both signs."""
    generator = torch.Generator().manual_seed(5)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean = torch.randn(part.num_features, generator=generator)
            part.running_var = 0.5 + torch.rand(part.num_features, generator=generator)
            with torch.no_grad():
                part.weight.copy_(torch.randn(part.num_features, generator=generator))
                part.bias.copy_(torch.randn(part.num_features, generator=generator))
    return module.double().eval()


def images() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(3, 4, 2, groups=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
    )
    randomise(net)
    return net


def series() -> nn.Sequential:
    torch.manual_seed(1)
    net = nn.Sequential(
        *(
            nn.BatchNorm1d(2),
            nn.Conv1d(2, 3, 3),
            nn.ReLU(),
            nn.Conv1d(3, 4, 2, stride=2, bias=False),
        ),
        *(nn.BatchNorm1d(4), nn.LeakyReLU(), nn.Flatten(), nn.Linear(12, 3)),
    )
    randomise(net)
    return net


def table() -> nn.Sequential:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 3))
    randomise(net)
    return net


NETWORKS: dict[str, tuple[Callable[[], nn.Sequential], tuple[int, ...]]] = {
    "images": (images, (2, 6, 6)),
    "series": (series, (2, 9)),
    "table": (table, (6,)),
}


def explicit(function: Callable[[Tensor], Tensor], shape: torch.Size) -> tuple[Tensor, Tensor]:
    """The matrix `(outputs, inputs)` and the shift of an affine function of one sample, column by column."""
    size = int(torch.Size(shape).numel())
    shift = function(torch.zeros(1, *shape).double()).flatten()
    columns = [
        function(unit.reshape(1, *shape)).flatten() - shift for unit in torch.eye(size).double()
    ]
    return torch.stack(columns, 1), shift


def stabilise(z: float) -> float:
    return z + EPSILON if z >= 0 else z - EPSILON


def by_rule(
    rule: str, w: Tensor, b: Tensor, a: Tensor, relevance: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """One unit after the other, from the formulas of the papers."""
    found = torch.zeros_like(a)
    for row, shift, share in zip(w, b.tolist(), relevance.tolist(), strict=True):
        if rule == "epsilon":
            parts = row * a
            found += parts * share / stabilise(float(parts.sum()) + shift)
        elif rule == "taylor":
            above = (row * a).clamp(min=0)
            found += above * share / stabilise(float(above.sum()))
        elif rule in ("z_plus", "alpha2_beta1"):
            above, below = (row * a).clamp(min=0), (row * a).clamp(max=0)
            plus = above * share / stabilise(float(above.sum()) + max(shift, 0.0))
            minus = below * share / stabilise(float(below.sum()) + min(shift, 0.0))
            found += plus if rule == "z_plus" else 2 * plus - minus
        elif rule == "gamma":
            z = float((row * a).sum()) + shift
            favoured = row * a > 0 if z > 0 else row * a < 0
            parts = row * a * torch.where(favoured, 1 + GAMMA, 1.0)
            extra = GAMMA * (max(shift, 0.0) if z > 0 else min(shift, 0.0))
            found += parts * share / stabilise(float(parts.sum()) + shift + extra)
        elif rule == "flat":
            reached = (row != 0).double()
            found += reached * share / stabilise(float(reached.sum()))
        else:
            parts = row * a - row.clamp(min=0) * low - row.clamp(max=0) * high
            found += parts * share / stabilise(float(parts.sum()))
    return found


def by_hand(
    net: nn.Sequential,
    x: Tensor,
    target: int,
    convolution: str,
    dense: str,
    first: str | None,
    low: float,
    high: float,
) -> Tensor:
    """The map of one input `x`, layer by layer; a batch normalisation after a layer makes one affine map with it."""
    layers, steps = list(net), []
    a, ends, at = x[None], (torch.full_like(x, low)[None], torch.full_like(x, high)[None]), 0
    reads_input = True
    while at < len(layers):
        layer, function = layers[at], layers[at]
        at += 1
        weighted = isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear)
        if (
            weighted
            and at < len(layers)
            and isinstance(layers[at], nn.BatchNorm1d | nn.BatchNorm2d)
        ):
            function = nn.Sequential(layer, layers[at])
            at += 1
        kind = dense if isinstance(layer, nn.Linear) else convolution
        is_first = weighted and reads_input
        if is_first and first == "box of a convolution":
            kind = kind if isinstance(layer, nn.Linear) else "box"
        elif is_first and first:
            kind = first
        steps.append((layer, function, a, kind if weighted else "epsilon", *ends))
        a = function(a).detach()
        if weighted:
            reads_input = False
        elif reads_input:  # a normalisation of the input, which may exchange the ends
            both = [function(end).detach() for end in ends]
            ends = (torch.minimum(*both), torch.maximum(*both))
    relevance = torch.zeros_like(a)
    relevance[0, target] = a[0, target]
    for layer, function, before, rule, lower, upper in reversed(steps):
        if isinstance(layer, nn.ReLU | nn.Tanh | nn.LeakyReLU | nn.BatchNorm1d | nn.Flatten):
            relevance = relevance.reshape(before.shape)
            continue
        if isinstance(layer, nn.MaxPool2d):
            _, where = F.max_pool2d(before, layer.kernel_size, return_indices=True)
            flat = torch.zeros_like(before).flatten(2)
            relevance = flat.scatter_add(2, where.flatten(2), relevance.flatten(2)).reshape(
                before.shape
            )
            continue
        w, b = explicit(function, before[0].shape)
        found = by_rule(
            rule,
            w.detach(),
            b.detach(),
            before.flatten(),
            relevance.flatten(),
            lower.flatten(),
            upper.flatten(),
        )
        relevance = found.reshape(before.shape)
    return relevance[0]


def of(
    net: nn.Module,
    bounds: tuple[float, float] = (-1.0, 1.0),
    preprocess: Callable[[Tensor], Tensor] | None = None,
) -> standfast.Model:
    return standfast.Model(net, bounds, preprocess, device="cpu")


def draw(shape: tuple[int, ...], count: int = 2) -> Tensor:
    return (
        2
        * torch.rand(count, *shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        - 1
    )


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("network", NETWORKS)
def test_composites_equal_the_formulas_unit_by_unit(network: str, name: str) -> None:
    build, shape = NETWORKS[network]
    net, x = build(), draw(shape)
    maps = hx.get(name, epsilon=EPSILON)(of(net), x, 1)
    for one, expected in zip(x, maps, strict=True):
        found = by_hand(net, one, 1, *NAMED[name], -1.0, 1.0)
        torch.testing.assert_close(expected, found, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("rule", ["z_plus", "taylor", "alpha2_beta1", "gamma", "flat"])
def test_rules_of_linear_layers_and_other_stabilisers(rule: str) -> None:
    net, x = table(), draw((6,))
    maps = hx.get("lrp_composite", dense=rule)(of(net), x, 2)
    for one, expected in zip(x, maps, strict=True):
        torch.testing.assert_close(
            expected, by_hand(net, one, 2, "epsilon", rule, None, 0.0, 0.0), rtol=1e-7, atol=1e-9
        )
    assert not torch.allclose(hx.get("lrp_composite", dense=rule, epsilon=0.5)(of(net), x, 2), maps)


@pytest.mark.parametrize("epsilon", [0.0, 1e-40, 1e-9, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_stabilised_quotient_has_the_bits_of_its_formula(
    epsilon: float, dtype: torch.dtype
) -> None:
    z = torch.cat(
        [draw((500,)), 1e-9 * draw((500,)), torch.zeros(2, 20), -torch.zeros(2, 20)], 1
    ).to(dtype)
    relevance = draw(z.shape[1:]).to(dtype)
    divisor = torch.where(z >= 0, z + epsilon, z - epsilon)
    expected = torch.where(divisor == 0, 0.0, relevance / divisor)
    found = divide_stabilised(relevance, z, epsilon)
    assert found.dtype == dtype
    assert found.equal(expected)
    assert found.signbit().equal(expected.signbit())


def test_epsilon_everywhere_is_lrp() -> None:
    """Without batch normalisation, which `lrp` takes for a layer."""
    net, x = table(), draw((6,))
    ours = hx.get("lrp_composite", convolution="epsilon")(of(net), x)
    torch.testing.assert_close(ours, hx.LRP(epsilon=1e-6)(of(net), x))


class Residual(nn.Module):
    """Functions, also in place, a transposed and a grouped convolution, a residual sum, a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = (
            nn.Conv2d(2, 4, 3, padding=1, bias=False),
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
        )
        self.up, self.grouped = (
            nn.ConvTranspose2d(4, 4, 2, bias=False),
            nn.Conv2d(4, 4, 2, groups=2, bias=False),
        )
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu_(self.first(x.sub(0.1)))
        b = self.norm(self.second(a))
        b += self.second(a)
        b = self.grouped(self.norm(self.up(F.relu(b + a))))
        out: Tensor = self.last(F.adaptive_avg_pool2d(F.relu(b, inplace=True), 1).flatten(1))
        return out


@pytest.mark.parametrize("name", ["lrp_epsilon_gamma_box", "lrp_epsilon_alpha2_beta1_flat"])
def test_relevance_is_kept(name: str) -> None:
    """Without biases and shifts, the map adds up to the logit."""
    module, x = Residual().double(), draw((2, 6, 6), 5)
    module.norm.running_mean.zero_()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    model = of(module)
    maps = hx.get(name)(model, x, 0)
    if name == "lrp_epsilon_gamma_box":
        torch.testing.assert_close(maps.sum((1, 2, 3)), model.logits(x)[:, 0], rtol=1e-3, atol=1e-4)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert not any(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_box_is_that_of_the_preprocessed_input(sign: float) -> None:
    """Also if the preprocessing exchanges its ends."""
    net, x = table(), draw((6,)).abs()
    maps = hx.LRPComposite(first="box")(of(net, (0.0, 1.0), lambda x: sign * (3 * x - 1)), x, 1)
    for one, expected in zip(x, maps, strict=True):
        found = by_hand(
            net, sign * (3 * one - 1), 1, "epsilon", "epsilon", "box", *sorted((-sign, 2 * sign))
        )
        torch.testing.assert_close(expected, found, rtol=1e-7, atol=1e-9)
    with pytest.raises(ArgumentError, match="bounds: expected finite bounds"):
        hx.LRPEpsilonGammaBox()(of(net, (float("-inf"), 1.0)), x)
    with pytest.raises(ModelError, match="expected preprocess to keep inputs within"):
        hx.LRPEpsilonGammaBox()(of(net, preprocess=lambda x: x**2), x - 0.5)


# Deep Taylor decomposition, which keeps the sign of the logit


def make_rectifiers(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        part for a, b in pairwise(widths) for part in (nn.Linear(a, b, bias=False), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1]).double()


def test_a_negative_logit_reverses_the_sign() -> None:
    module, x = make_rectifiers(6, 40, 40, 3), draw((6,), 20)
    logits = module(x).detach()
    assert bool((logits < 0).any() & (logits > 0).any())
    for target in range(3):
        maps = hx.DeepTaylor()(of(module), x, target)
        torch.testing.assert_close(maps.sum(1), logits[:, target], rtol=1e-6, atol=0)
        assert (maps * logits[:, [target]] >= 0).all()


def test_relevance_of_a_unit_without_positive_contributions_is_lost() -> None:
    """A unit that is active only because of its positive bias."""
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
        module[0].bias.copy_(torch.tensor([0.5, -0.1]))
        module[2].weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    x = torch.tensor([[0.0, 0.0], [0.4, 0.2]], dtype=torch.float64)
    first, second = 1.1, 2 * 0.3
    expected = torch.tensor(
        [[0.0, 0.0], [first * 0.4 / 0.6 + second, first * 0.2 / 0.6]], dtype=torch.float64
    )
    torch.testing.assert_close(hx.DeepTaylor()(of(module, (0.0, 1.0)), x, 0), expected)


def test_relevance_of_digits_lies_near_their_strokes(
    digits: standfast.data.Dataset, lenet: standfast.Model
) -> None:
    x = digits[:8].inputs
    maps, logits = hx.DeepTaylor()(lenet, x), lenet.logits(x).amax(1)
    torch.testing.assert_close(maps.sum((1, 2, 3)), logits, rtol=1e-4, atol=0)
    assert (maps >= 0).all()
    inside = F.max_pool2d(x, 9, stride=1, padding=4) > 0
    assert (maps * ~inside).sum() < 0.1 * maps.sum()


def test_bad_options_are_named() -> None:
    assert_refused(
        hx.LRPComposite, convolution=["box"], first=["wsquare"], gamma=[-1], epsilon=["small"]
    )


def test_functions_without_a_rule_are_named() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2)).double()
    with pytest.raises(ModelError, match="'softmax'"):
        hx.LRPEpsilonPlus()(of(module), draw((4,)))
