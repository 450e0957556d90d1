"""Deep Taylor decomposition of single functions: equivalent forms give equal maps; errors."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from taylor_by_hand import NETWORKS, Function, Mean, Net, batch, by_hand, linear, of, seeded
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError
from standfast.explainers import DeepTaylor

MEANS: dict[str, Function] = {
    "mean": lambda z: z.mean((2, 3)),
    "sum": lambda z: torch.sum(z, dim=(2, 3)),
    "pool": lambda z: F.avg_pool2d(z, 3, 2, 1).flatten(1),
    "adaptive": lambda z: F.adaptive_avg_pool2d(z, 2).flatten(1),
    "bilinear": lambda z: F.interpolate(z, scale_factor=2, mode="bilinear").flatten(1),
    "area": lambda z: F.interpolate(input=z, size=3, mode="area").flatten(1),
}


@pytest.mark.parametrize("place", ["rectified", "signed", "first"])
@pytest.mark.parametrize("name", MEANS)
def test_means_distribute_in_proportion(name: str, place: str) -> None:
    conv = seeded(lambda: nn.Conv2d(2, 3, 2))[0]
    front = [] if place == "first" else [conv, nn.ReLU() if place == "rectified" else nn.Tanh()]
    mean, x = Mean(MEANS[name]), 2 * batch((2, 5, 5), 3) - 1
    wide = nn.Sequential(*front, mean)(x).shape[1]
    last = seeded(linear(wide, 3), seed=3)[0]
    module, target = nn.Sequential(*front, mean, last), int(last.weight.amax(1).argmax())
    maps = DeepTaylor()(of(module, (-1.0, 1.0)), x, target)
    assert float(maps.abs().max()) > 0
    for one, expected in zip(x, maps, strict=True):
        torch.testing.assert_close(by_hand(list(module), one, target, -1.0, 1.0), expected, rtol=1e-9, atol=1e-12)


class TwoLayers(nn.Module):
    """`last(relu(function(x, first(x))))`."""

    def __init__(self, function: Callable[[TwoLayers, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first, self.same, self.second, self.last = seeded(
            *(lambda: nn.Conv2d(2, 3, 3, padding=1), lambda: nn.Conv2d(3, 3, 3, padding=1)),
            *(lambda: nn.Linear(75, 75), lambda: nn.Linear(75, 3)),
        )
        generator = torch.Generator().manual_seed(4)
        self.scale = torch.rand(3, 1, 1, generator=generator, dtype=torch.float64) - 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.function(self, x)).flatten(1))


def maps_of(
    function: Callable[[TwoLayers, Tensor], Tensor], prepare: Callable[[TwoLayers], object] | None = None
) -> Tensor:
    module = TwoLayers(function)
    if prepare is not None:
        prepare(module)
    maps = DeepTaylor()(of(module, (-1.0, 1.0)), 2 * batch((2, 5, 5)) - 1, 1)
    assert float(maps.abs().max()) > 0
    return maps


def scaled(by: Callable[[TwoLayers], Tensor | float]) -> Callable[[TwoLayers], object]:
    def prepare(module: TwoLayers) -> None:
        with torch.no_grad():
            module.first.weight *= torch.as_tensor(by(module)).reshape(-1, 1, 1, 1)
            module.first.bias *= torch.as_tensor(by(module)).flatten()

    return prepare


SCALINGS: dict[str, tuple[Callable[[TwoLayers, Tensor], Tensor], Callable[[TwoLayers], Tensor | float]]] = {
    "number": (lambda m, x: -2 * m.first(x), lambda m: -2.0),
    "quotient": (lambda m, x: m.first(x) / -3, lambda m: -1 / 3),
    "in place": (lambda m, x: m.first(x).mul_(-2).div_(3.0), lambda m: -2 / 3),
    "channels": (lambda m, x: m.first(x) * m.scale, lambda m: m.scale),
    "channels before": (lambda m, x: m.scale * m.first(x), lambda m: m.scale),
    "twice": (lambda m, x: m.scale * m.first(x) * -1, lambda m: -m.scale),
    "difference": (lambda m, x: 0 - m.first(x), lambda m: -1.0),
    "difference, by a factor": (lambda m, x: torch.rsub(m.first(x), 0.0, alpha=2), lambda m: -2.0),
    "tensor before": (lambda m, x: torch.sub(0 * m.scale, m.first(x), alpha=3), lambda m: -3.0),
    "a zero-dimensional tensor": (lambda m, x: torch.mul(m.first(x), torch.tensor(-1.5)), lambda m: -1.5),
    "copied": (lambda m, x: -2 * F.dropout(m.first(x).clone(), training=False).contiguous(), lambda m: -2.0),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaling_is_merged_into_the_layer_before(name: str) -> None:
    function, by = SCALINGS[name]
    torch.testing.assert_close(maps_of(function), maps_of(lambda m, x: m.first(x), scaled(by)))


def pad_by_sum(a: Tensor, *pads: int) -> Tensor:
    """Pad with -1, by a sum."""
    return F.pad(a, pads) + F.pad(torch.zeros_like(a), pads, value=-1.0).detach()


def shift_below_zero(a: Tensor) -> Tensor:
    """Subtract 0.3 in place, through another view of the same memory."""
    a.view(-1)[:].sub_(0.3)
    return a


TWINS: dict[str, tuple[Callable[[TwoLayers, Tensor], Tensor], Callable[[TwoLayers, Tensor], Tensor]]] = {
    "rectifiers": (
        lambda m, x: m.same(F.relu(m.first(x))),
        lambda m, x: m.same(m.first(x).relu_()),
    ),
    "padding": (
        lambda m, x: m.first(x),
        lambda m, x: F.conv2d(F.pad(x, (1, 1, 1, 1)), m.first.weight, bias=m.first.bias),
    ),
    "hidden padding": (
        lambda m, x: m.same(F.relu(m.first(x))),
        lambda m, x: F.conv2d(F.pad(F.relu(m.first(x)), (1, 1, 1, 1), value=0.0), m.same.weight, m.same.bias),
    ),
    "negative padding": (
        lambda m, x: m.same(pad_by_sum(F.relu(m.first(x)), 1, 1, 1, 1))[..., 1:-1, 1:-1],
        lambda m, x: m.same(F.pad(F.relu(m.first(x)), (1, 1, 1, 1), value=-1.0))[..., 1:-1, 1:-1],
    ),
    "negative channels": (
        lambda m, x: m.same(pad_by_sum(F.relu(m.first(x))[:, :2], 0, 0, 0, 0, 0, 1)),
        lambda m, x: m.same(torch.cat([F.relu(m.first(x))[:, :2], -torch.ones_like(x[:, :1])], 1)),
    ),
    "written through a view": (
        lambda m, x: m.same(F.relu(m.first(x)) - 0.3),
        lambda m, x: m.same(shift_below_zero(F.relu(m.first(x)))),
    ),
    "channels apart": (
        lambda m, x: m.first(x),
        lambda m, x: m.first(torch.cat([x[:, :1], *x[:, 1:].split(1, 1)], dim=1)),
    ),
    "constant channels": (
        lambda m, x: m.same(torch.cat([x, torch.zeros_like(x[:, :1])], 1)),
        lambda m, x: F.conv2d(x, m.same.weight[:, :2], m.same.bias, padding=1),
    ),
    "in-place shift": (lambda m, x: m.first(x), lambda m, x: m.first(x.sub_(0.25).add_(0.25))),
    "values shifted and scaled": (lambda m, x: m.first(x), lambda m, x: m.first((3 - x) / 0.5 * -0.5 + 3)),
    "normalised input": (
        lambda m, x: m.first(x),
        lambda m, x: F.conv2d(
            F.batch_norm(x, *torch.tensor([[0.0, 0.0], [4.0, 4.0]]).double(), eps=0.0),
            2 * m.first.weight,
            m.first.bias,
            padding=1,
        ),
    ),
    "nearest": (
        lambda m, x: m.same(F.relu(m.first(x))),
        lambda m, x: m.same(F.max_pool2d(F.interpolate(F.relu(m.first(x)), scale_factor=2), 2)),
    ),
    "a layer that runs twice": (
        lambda m, x: m.same(F.relu(m.same(F.relu(m.first(x))))),
        lambda m, x: copy.deepcopy(m.same)(F.relu(m.same(F.relu(m.first(x))))),
    ),
    "rows one by one": (
        lambda m, x: m.same(F.relu(m.first(x))),
        lambda m, x: torch.stack([m.same(F.relu(m.first(row[None])))[0] for row in x]),
    ),
    "dropout": (
        lambda m, x: m.same(F.relu(m.first(x))),
        lambda m, x: m.same(nn.Dropout2d(inplace=True).eval()(F.relu(m.first(F.dropout(x, training=False))))),
    ),
    **{
        name: (lambda m, x: m.second(F.relu(m.first(x)).flatten(1)), function)
        for name, function in {
            "matmul": lambda m, x: F.relu(m.first(x)).flatten(1) @ m.second.weight.t() + m.second.bias,
            "the other side": lambda m, x: (m.second.weight @ F.relu(m.first(x)).flatten(1).t()).t() + m.second.bias,
            "mm": lambda m, x: torch.mm(F.relu(m.first(x)).view(len(x), -1), mat2=m.second.weight.t()) + m.second.bias,
            "addmm": lambda m, x: torch.addmm(m.second.bias, F.relu(m.first(x)).flatten(1), m.second.weight.t()),
            "addmm, by a factor": lambda m, x: torch.addmm(
                m.second.bias, F.relu(m.first(x)).flatten(1), m.second.weight.t() / -3, alpha=-3
            ),
            "the sign after it": lambda m, x: F.relu(m.first(x)).flatten(1) @ -m.second.weight.t() * -1 + m.second.bias,
        }.items()
    },
}


@pytest.mark.parametrize("name", TWINS)
def test_by_functions_and_not_by_layers(name: str) -> None:
    ours, theirs = TWINS[name]
    torch.testing.assert_close(maps_of(theirs), maps_of(ours))


def make_norm(layer: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A batch normalisation with scales of both signs."""
    norm, generator = kind(8).double(), torch.Generator().manual_seed(1)
    ranges = (norm.weight.data, -1, 1), (norm.bias.data, -0.5, 0.5), (norm.running_mean, -0.3, 0.3)
    for values, low, high in (*ranges, (norm.running_var, 0.5, 2)):
        values.uniform_(low, high, generator=generator)
    assert (norm.weight < 0).any()
    return norm


def fuse(layer: nn.Module, norm: nn.Module) -> nn.Module:
    """Layer and batch normalisation as one layer."""
    one, scale = copy.deepcopy(layer), (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
    ones = [1] * (layer.weight.ndim - 2)
    if isinstance(layer, nn.ConvTranspose2d):
        for rows, factors in zip(one.weight.data.chunk(layer.groups), scale.chunk(layer.groups), strict=True):
            rows *= factors.reshape(1, -1, *ones)
    else:
        one.weight.data *= scale.reshape(-1, 1, *ones)
    bias = 0 if layer.bias is None else layer.bias.detach()
    one.bias = nn.Parameter((bias - norm.running_mean) * scale + norm.bias.detach())
    return one


NORMED: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module], type[nn.Module]]] = {
    "linear": ((6,), lambda: nn.Linear(6, 8), nn.BatchNorm1d),
    "series": ((6, 9), lambda: nn.Conv1d(6, 8, 3), nn.BatchNorm1d),
    "images": ((6, 5, 5), lambda: nn.Conv2d(6, 8, 3, groups=2, bias=False), nn.BatchNorm2d),
    "volumes": ((6, 3, 3, 3), lambda: nn.Conv3d(6, 8, 2), nn.BatchNorm3d),
    "transposed": ((6, 3, 3), lambda: nn.ConvTranspose2d(6, 8, 2, stride=2, groups=2), nn.BatchNorm2d),
}


@pytest.mark.parametrize("front", [[], [nn.Tanh()], [nn.Hardtanh(), nn.ReLU()]], ids=["first", "signed", "rectified"])
@pytest.mark.parametrize("name", NORMED)
def test_batch_normalisation_is_merged_into_the_layer_before(name: str, front: list[nn.Module]) -> None:
    """Also with negative scales, which reverse the sign of contributions."""
    shape, build, kind = NORMED[name]
    layer, x = seeded(build)[0], 2 * batch(shape) - 1
    norm = make_norm(layer, kind).eval()
    rest = [nn.ReLU(), nn.Flatten()]
    wide = nn.Sequential(layer, norm, *rest)(x).shape[1]
    last = seeded(lambda: nn.Linear(wide, 3), seed=2)[0]
    apart, one = (nn.Sequential(*front, *middle, *rest, last) for middle in ([layer, norm], [fuse(layer, norm)]))
    torch.testing.assert_close(apart(x), one(x))
    maps = DeepTaylor()(of(apart, (-1.0, 1.0)), x, 0)
    assert float(maps.abs().max()) > 0
    torch.testing.assert_close(maps, DeepTaylor()(of(one, (-1.0, 1.0)), x, 0))


def test_batch_normalisation_elsewhere_passes_relevance_on() -> None:
    conv, last = seeded(lambda: nn.Conv2d(2, 8, 2), lambda: nn.Linear(32, 3))
    norm = make_norm(conv, nn.BatchNorm2d).eval()
    x = batch((2, 3, 3))
    module = nn.Sequential(conv, nn.ReLU(), norm, nn.Flatten(), last)
    maps = DeepTaylor()(of(module), x, 0)
    a = module[:3](x).detach().flatten(1)
    terms = (a * last.weight.detach()[0]).clamp(min=0)
    share = (terms / terms.sum(1, keepdim=True) * module(x).detach()[:, :1]).reshape(5, 8, 2, 2)
    w = conv.weight.detach()
    q = [F.conv2d(x, w.clamp(min=0)), F.conv2d(x - 1, w.clamp(max=0))]
    ratio = share / (q[0] + q[1])
    expected = x * F.conv_transpose2d(ratio, w.clamp(min=0)) + (x - 1) * F.conv_transpose2d(ratio, w.clamp(max=0))
    torch.testing.assert_close(maps, expected)


SUMMED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[float, float]]] = {
    "sum": (lambda a, b: a + b, (1, 1)),
    "difference": (lambda a, b: a - b, (1, -1)),
    "in place": (lambda a, b: (a * 1).add_(b, alpha=0.5), (1, 0.5)),
    "alpha": (lambda a, b: torch.sub(a, other=b, alpha=2), (1, -2)),
    "rsub": (lambda a, b: torch.rsub(b, a, alpha=3), (1, -3)),
    "broadcast": (lambda a, b: a + b[:, :1], (1, 1)),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", SUMMED)
def test_sums_distribute_in_proportion(name: str, signed: bool) -> None:
    """In proportion to hidden values; for the input, in proportion to its distance from the bounds."""
    function, (of_a, of_b) = SUMMED[name]
    weight = torch.tensor([[1.0, -2.0, 0.5, -0.3], [0.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    activation = torch.tanh if signed else F.relu

    hidden = Net(lambda x: F.linear(function(*activation(x).split(4, 1)), weight))
    direct = Net(lambda x: F.linear(function(*x.split(4, 1)), weight))
    low, high = -1.5, 2.0
    x = low + (high - low) * batch((8,), 20)
    a, b = activation(x).split(4, 1)
    b_wide = b[:, :1].expand(-1, 4) if name == "broadcast" else b
    y = of_a * a + of_b * b_wide
    torch.testing.assert_close(function(a, b), y)
    terms = (y * weight[0]).clamp(min=0)
    share = terms / terms.sum(1, keepdim=True).clamp(min=1e-300) * (y * weight[0]).sum(1, keepdim=True)
    parts = [(torch.where(y < 0, -1.0, 1.0) * term).clamp(min=0) for term in (of_a * a, of_b * b_wide)]
    of_each = [torch.where(share == 0, 0.0, share * part / (parts[0] + parts[1])) for part in parts]
    if name == "broadcast":
        of_each[1] = F.pad(of_each[1].sum(1, keepdim=True), (0, 3))
    maps = DeepTaylor()(of(hidden, (low, high)), x, 0)
    torch.testing.assert_close(maps, torch.cat(of_each, 1))

    a, b = x.split(4, 1)
    b_wide = b[:, :1].expand(-1, 4) if name == "broadcast" else b
    y = of_a * a + of_b * b_wide
    terms = (y * weight[0]).clamp(min=0)
    share = terms / terms.sum(1, keepdim=True).clamp(min=1e-300) * (y * weight[0]).sum(1, keepdim=True)
    parts = [a - low, of_b * (b_wide - (low if of_b > 0 else high))]
    of_each = [share * part / (parts[0] + parts[1]) for part in parts]
    if name == "broadcast":
        of_each[1] = F.pad(of_each[1].sum(1, keepdim=True), (0, 3))
    torch.testing.assert_close(DeepTaylor()(of(direct, (low, high)), x, 0), torch.cat(of_each, 1))


def test_concatenated_input_and_hidden_values() -> None:
    """Each by its own rule."""
    first, last = seeded(lambda: nn.Linear(4, 3), lambda: nn.Linear(7, 2))

    module, x = Net(lambda x: last(torch.cat([torch.tanh(first(x)), x], 1))), 3 * batch((4,)) - 1
    hidden, w, v = torch.tanh(first(x)).detach(), last.weight.detach()[0], first.weight.detach()
    q = torch.cat([(hidden * w[:3]).clamp(min=0), torch.where(w[3:] > 0, w[3:] * (x + 1), w[3:] * (x - 2))], 1)
    share = q / q.sum(1, keepdim=True) * last(torch.cat([hidden, x], 1)).detach()[:, :1]
    below = torch.where(v > 0, v * (x[:, None] + 1), v * (x[:, None] - 2))
    expected = share[:, 3:] + (below / below.sum(2, keepdim=True) * share[:, :3, None]).sum(1)
    torch.testing.assert_close(DeepTaylor()(of(module, (-1.0, 2.0)), x, 0), expected)


def test_hooks_of_the_user_change_nothing() -> None:
    """Layers with backward hooks pass on other tensor objects for the same values."""
    shape, build, kind = NORMED["images"]
    layer = seeded(build)[0]
    module = nn.Sequential(layer, make_norm(layer, kind), nn.ReLU(), nn.Flatten(), seeded(linear(72, 3))[0])
    x = 2 * batch(shape) - 1
    plain = DeepTaylor()(of(module, (-1.0, 1.0)), x, 0)
    handles = [part.register_full_backward_hook(lambda *_: None) for part in module]
    handles += [part.register_forward_hook(lambda *_: None) for part in module]
    assert torch.equal(DeepTaylor()(of(module, (-1.0, 1.0)), x, 0), plain)
    for handle in handles:
        handle.remove()


# ---------------------------------------------------------------- preprocessing, errors


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_preprocessing_moves_the_bounds(sign: float) -> None:
    """Also if it swaps the bounds; the map is that of the module's own inputs."""
    module, x = NETWORKS["images"][1](), batch((2, 6, 6))
    mean = torch.tensor([0.2, 0.7], dtype=torch.float64).reshape(2, 1, 1)
    std = sign * torch.tensor([0.5, 2.0], dtype=torch.float64).reshape(2, 1, 1)
    ends = torch.stack([(0 - mean) / std, (1 - mean) / std])
    maps = DeepTaylor()(of(module, preprocess=lambda x: (x - mean) / std), x, 1)
    torch.testing.assert_close(maps, DeepTaylor()(of(module, (ends.amin(0), ends.amax(0))), (x - mean) / std, 1))

    torch.testing.assert_close(DeepTaylor()(of(Net(lambda x: module((x - mean) / std))), x, 1), maps)


def test_errors_name_the_cause() -> None:
    x = batch((4,))
    layer = nn.Linear(4, 2).double().requires_grad_(False)
    unruled: dict[str, tuple[Function, str]] = {
        "softmax": (lambda x: layer(F.softmax(x, 1)), "'softmax'"),
        "gate": (lambda x: layer(x * torch.tanh(x)), "'mul'|'__mul__'"),
        "floor": (lambda x: layer(torch.div(x, 2, rounding_mode="floor")), "'div'"),
        "reciprocal": (lambda x: layer(1 / (x + 1)), "'__rtruediv__'|'reciprocal'|'__rdiv__'"),
        "sigmoid": (lambda x: layer(torch.sigmoid(x)), "'sigmoid'"),
        "statistics": (lambda x: layer(F.batch_norm(x, None, None, training=True)), "'batch_norm'"),
        "weights": (lambda x: F.linear(torch.ones_like(x), x[:2]).expand(len(x), -1), "'linear'"),
        "a sum of products": (lambda x: torch.addmm(x[:, :2], torch.ones_like(x), layer.weight.t()), "'addmm'"),
        "bicubic": (
            lambda x: layer(F.interpolate(x.reshape(-1, 1, 2, 2), size=2, mode="bicubic").flatten(1)),
            "'inter",
        ),
    }
    for function, name in unruled.values():
        with pytest.raises(ModelError, match=rf"deep_taylor: expected a module made of functions .* got ({name})"):
            DeepTaylor()(of(Net(function)), x, 0)
    with pytest.raises(ArgumentError, match="bounds: expected finite bounds of the model"):
        DeepTaylor()(of(layer, (0.0, float("inf"))), x, 0)
    with pytest.raises(ModelError, match="deep_taylor: expected preprocess to keep the shape"):
        DeepTaylor()(of(nn.Linear(2, 2), preprocess=lambda x: x[:, :2]), x, 0)
    with pytest.raises(ModelError, match="deep_taylor: expected preprocess to keep inputs within"):
        DeepTaylor()(of(layer, (-1.0, 1.0), preprocess=lambda x: x**2), x - 0.5, 0)
    with pytest.raises(ArgumentError, match="no derivative"):
        DeepTaylor().attribute(of(layer), x.requires_grad_(True), None, create_graph=True)
