"""FullGrad: the decomposition adds up to the logit; the map equals a slow implementation of the paper's formula."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast
from standfast.explainers import FullGrad
from standfast.explainers.cam.full_grad import _compute_terms


def decompose(model: standfast.Model, x: Tensor, targets: Tensor | int) -> SimpleNamespace:
    """The terms of the input and of each layer's biases, which add up to the target's logits."""
    classes = torch.as_tensor(targets).expand(len(x))
    with model.session():
        product, terms, logits = _compute_terms(model, x, classes, create_graph=False)
    biases: dict[str, Tensor] = {}
    for name, _, bias in terms:
        biases[name] = biases.get(name, 0.0) + bias.flatten(1).sum(1)
    total = product.flatten(1).sum(1) + sum(biases.values())
    return SimpleNamespace(
        input=product, biases=biases, total=total, logits=logits.gather(1, classes[:, None])[:, 0]
    )


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Set biases and statistics to values that are not zero, so that they have an effect."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if name.endswith(("bias", "running_mean")):
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) - 0.5)
        elif name.endswith("running_var"):
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return module.double().eval()


class Images(nn.Module):
    """Convolutions with and without a bias, batch normalisation with and without weights, a sum, a layer twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.norm.weight.data.uniform_(0.5, 2.0)
        self.plain = nn.BatchNorm2d(6, affine=False)
        self.twice = nn.Conv2d(6, 6, 3, padding=1)
        self.bare = nn.Conv2d(6, 6, 1, bias=False)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        a = self.relu(self.norm(self.stem(x)))
        b = F.max_pool2d(F.leaky_relu(self.twice(a)), 2)
        b = self.plain(self.bare(b)) + F.avg_pool2d(a, 2)
        b = self.relu(self.up(self.relu(self.twice(b))))
        return self.head(F.avg_pool2d(b, 2))  # type: ignore[no-any-return]


def series() -> nn.Module:
    torch.manual_seed(1)
    body = [
        nn.Conv1d(3, 5, 3),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        nn.Conv1d(5, 4, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*body, nn.Linear(24, 3))


def flat() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(7, 12),
        nn.BatchNorm1d(12),
        nn.ReLU(),
        nn.Linear(12, 9),
        nn.ReLU(),
        nn.Linear(9, 3),
    )


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "images": (Images, (2, 8, 8)),
    "series": (series, (3, 16)),
    "flat": (flat, (7,)),
}


def batch(shape: tuple[int, ...], count: int = 6) -> Tensor:
    return torch.rand(
        count, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True], ids=["as it is", "normalised"])
def test_the_decomposition_is_complete(kind: str, scaled: bool) -> None:
    """The paper's Proposition 1; the shift of a normalisation counts as a bias."""
    build, shape = KINDS[kind]
    x, t = batch(shape), torch.arange(6) % 3
    mean = torch.linspace(0.2, 0.6, shape[0], dtype=torch.float64).reshape(
        -1, *[1] * (len(shape) - 1)
    )
    prepare = (lambda z: (z - mean) / 0.25) if scaled else None
    model = standfast.Model(randomise(build()), (0.0, 1.0), prepare, device="cpu", batch_size=16)
    found = decompose(model, x, t)
    torch.testing.assert_close(found.logits, model.logits(x).gather(1, t[:, None])[:, 0])
    torch.testing.assert_close(found.total, found.logits)
    assert ("preprocess" in found.biases) == scaled
    for name, bias in found.biases.items():  # all biases are needed
        assert float((found.total - bias - found.logits).abs().max()) > 1e-6, name
    gradient = standfast.explainers.InputXGradient()(model, x, t)
    torch.testing.assert_close(found.input, gradient)
    if kind == "images":
        layers = {"stem", "norm", "plain", "twice", "up", "head.1", "head.2", "head.4"}
        assert set(found.biases) - {"preprocess"} == layers


def test_branches_that_do_not_depend_on_the_input_count() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.constant = nn.Linear(7, 5), nn.Linear(2, 5)
            self.last = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            own = self.constant(torch.zeros(len(x), 2, dtype=x.dtype)).relu_()
            return self.last(torch.relu(self.first(x) + own))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = standfast.Model(randomise(Branch()), (0.0, 1.0), device="cpu")
    found = decompose(model, batch((7,)), 1)
    torch.testing.assert_close(found.total, found.logits)
    assert float(found.biases["constant"].abs().max()) > 0


def slow_map(maps: list[Tensor], size: tuple[int, ...], joint: bool) -> Tensor:
    """`sum over layers and channels of psi`, for one sample; maps `(channels, positions...)`."""
    total = torch.zeros(size, dtype=torch.float64)
    mode = {1: "linear", 2: "bilinear"}[len(size)]
    for layer in maps:
        for channel in layer.abs():
            whole = layer.abs() if joint else channel
            low, high = float(whole.min()), float(whole.max())
            rescaled = (
                (channel - low) / (high - low) if high - low > 1e-14 else torch.zeros_like(channel)
            )
            if rescaled.shape != size:
                rescaled = F.interpolate(
                    rescaled[None, None], size, mode=mode, align_corners=False
                )[0, 0]
            total += rescaled
    return total


@pytest.mark.parametrize("rescale", ["channel", "layer"])
@pytest.mark.parametrize("scaled", [False, True], ids=["as it is", "normalised"])
def test_the_map_equals_the_papers_formula(
    rescale: Literal["channel", "layer"], scaled: bool
) -> None:
    """Each bias is a tensor with a number for each sample, channel and position, to differentiate by."""
    torch.manual_seed(3)
    first, norm, second, last = (
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 3, 3, stride=2),
        nn.Linear(12, 3),
    )
    module = randomise(nn.Sequential(first, norm, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), last))
    second.bias.data += 1.0  # otherwise no unit is active
    x = batch((2, 8, 8), 3)
    mean = torch.tensor([0.3, 0.6], dtype=torch.float64).reshape(2, 1, 1)
    prepare = (lambda z: (z - mean) / 0.5) if scaled else None
    model = standfast.Model(module, (0.0, 1.0), prepare, device="cpu")
    ours = FullGrad(rescale)(model, x, 1)
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    shifts = {
        "prepare": -mean / 0.5 if scaled else torch.zeros(2, 1, 1),
        "first": first.bias.reshape(-1, 1, 1),
        "norm": (norm.bias - norm.running_mean * scale).reshape(-1, 1, 1),
        "second": second.bias.reshape(-1, 1, 1),
    }
    for i in range(3):
        leaf = x[i].clone().requires_grad_(True)
        spread: dict[str, Tensor] = {}

        def add(name: str, z: Tensor) -> Tensor:
            spread[name] = shifts[name].detach().double().expand_as(z).clone().requires_grad_(True)  # noqa: B023
            return z + spread[name]  # noqa: B023

        a = add("prepare", leaf / 0.5 if scaled else leaf * 1)
        a = add("norm", scale.reshape(-1, 1, 1) * add("first", F.conv2d(a[None], first.weight)[0]))
        a = add("second", F.conv2d(torch.relu(a)[None], second.weight, stride=2)[0])
        score = F.linear(torch.relu(a).flatten(), last.weight, last.bias)[1]
        gradients = torch.autograd.grad(score, [leaf, *spread.values()])
        products = [
            v.detach() * g for v, g in zip([leaf, *spread.values()], gradients, strict=True)
        ]
        expected = slow_map(products, (8, 8), rescale == "layer")
        torch.testing.assert_close(ours[i], expected.expand(2, 8, 8))
        assert float(expected.max()) > 1


def test_flat_inputs_have_the_first_term_and_the_shift() -> None:
    module, x = randomise(flat()), batch((7,))
    mean = torch.linspace(0.1, 0.7, 7, dtype=torch.float64)
    plain = standfast.Model(module, (0.0, 1.0), device="cpu")
    shifted = standfast.Model(module, (0.0, 1.0), lambda z: z - mean, device="cpu")

    def psi(values: Tensor) -> Tensor:
        values = values.abs()
        low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
        return (values - low) / (high - low)

    gradient = standfast.explainers.Saliency(absolute=False)
    torch.testing.assert_close(FullGrad()(plain, x, 1), psi(x * gradient(plain, x, 1)))
    found = gradient(shifted, x, 1)
    torch.testing.assert_close(FullGrad()(shifted, x, 1), psi(x * found) + psi(-mean * found))


def test_a_series_is_upsampled_along_time() -> None:
    module, x = (
        randomise(
            nn.Sequential(nn.Conv1d(1, 1, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
        ),
        None,
    )
    x = batch((1, 16), 1)
    module[0].bias.data.fill_(3.0)  # every unit is active
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    bias_map = slow_map([3.0 * module[3].weight[1:2].detach()], (16,), False)
    first = slow_map([standfast.explainers.InputXGradient()(model, x, 1)[0]], (16,), False)
    torch.testing.assert_close(FullGrad()(model, x, 1)[0, 0], first + bias_map)


@pytest.mark.parametrize("rescale", ["channel", "layer"])
def test_maps_that_are_constant_up_to_rounding_add_nothing(
    rescale: Literal["channel", "layer"],
) -> None:
    """Averages pass the same gradient to all positions: rounding errors must not be rescaled to [0, 1]."""
    x = torch.zeros(2, 1, 6, 6)
    noise = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    for size in (1e-12, 1.0, 1e12):
        rounding = size * (1 + 4 * torch.finfo(torch.float32).eps * noise)
        assert torch.equal(FullGrad(rescale)._psi(rounding, x), torch.zeros_like(x))
        real = FullGrad(rescale)._psi(size * (1 + 1e-4 * noise), x)
        assert 2 < float(real.max()) <= 3


def test_errors() -> None:
    with pytest.raises(standfast.ArgumentError, match="rescale: expected .*channel.*layer"):
        FullGrad(rescale="image")  # type: ignore[arg-type]

    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(x.reshape(-1, 4)).reshape(len(x), -1, 3).mean(1)
            return out

    model = standfast.Model(Folded(), (0.0, 1.0), device="cpu")
    x = torch.rand(2, 5, 4)
    assert FullGrad()(model, x).shape == x.shape  # biases of linear layers are not in the map


def test_synchronised_batch_normalisation_counts_as_batch_normalisation() -> None:
    torch.manual_seed(0)
    net = randomise(
        nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)
        )
    )
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = decompose(standfast.Model(net, (0.0, 1.0), device="cpu"), x, 1)
    torch.testing.assert_close(found.total, found.logits)
