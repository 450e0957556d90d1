"""Networks whose first parameter has another type than their inputs: complex weights, whole numbers, flags, doubles."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.input_types import find_input_types


class Fourier(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.cfloat) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 5, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        filtered = torch.fft.irfft2(torch.fft.rfft2(x) * self.weight, s=(8, 8))
        return filtered.relu().flatten(1)[:, :3]


class FourierWithHead(Fourier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(super().forward(x))


class Codes(nn.Module):
    """A table of whole numbers or flags, kept as a frozen parameter, before the layers."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(table, requires_grad=False)
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1)) * self.scale.to(x.dtype)


class Quantised(nn.Module):
    """All weights are whole numbers with a scale; nothing is a parameter."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-9, 9, (3, 64), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(3, 1, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.flatten(1), self.codes * self.scale)


class Temperature(nn.Module):
    """A parameter beside the layers comes first, and has another type."""

    def __init__(self, dtype: torch.dtype, of_layers: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0, dtype=dtype))
        self.head = nn.Linear(64, 3).to(of_layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1)) / self.temperature.to(x.dtype)


class DoubleHead(nn.Module):
    """Its last layer computes with doubles."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(72, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu().flatten(1).double())


class Unusual(nn.Module):
    """Its own product of doubles and inputs comes before a layer of single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(64, 3)
        self.own = nn.Parameter(torch.rand(3, 64, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.own.T + self.scale.bias


MODULES = {
    "complex": (lambda: Fourier(), torch.float32),
    "complex doubles": (lambda: Fourier(torch.cdouble), torch.float64),
    "complex and a head": (lambda: FourierWithHead(), torch.float32),
    "int8": (lambda: Codes(torch.tensor([3], dtype=torch.int8)), torch.float32),
    "flags": (lambda: Codes(torch.tensor([True, False, True])), torch.float32),
    "buffers of whole numbers": (lambda: Quantised(torch.float32), torch.float32),
    "buffers of doubles": (lambda: Quantised(torch.float64), torch.float64),
    "nothing": (lambda: nn.Sequential(nn.Flatten(), nn.Softshrink()), torch.float32),
    "a double beside the layers": (lambda: Temperature(torch.float64), torch.float32),
    "a float beside doubles": (lambda: Temperature(torch.float32, torch.float64), torch.float64),
    "a head of doubles": (lambda: DoubleHead(), torch.float32),
    "doubles met first": (lambda: Unusual(), torch.float64),
    "windows of whole numbers": (
        lambda: nn.Sequential(nn.Flatten(), Codes(torch.tensor([1, 2, 3], dtype=torch.int64))),
        torch.float32,
    ),
}


@pytest.mark.parametrize(("make", "dtype"), MODULES.values(), ids=MODULES)
def test_logits_and_gradients_are_those_of_the_module(make: object, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = make()  # type: ignore[operator]
    x = torch.rand(4, 1, 8, 8, dtype=dtype)
    leaf = x.clone().requires_grad_(True)
    logits = module(leaf)
    (gradient,) = torch.autograd.grad(logits.max(1).values.sum(), leaf)
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    assert torch.allclose(model.logits(x).to(logits), logits, atol=1e-6)
    assert model.dtype == model.precision == dtype
    maps = standfast.explainers.get("saliency")(model, x)
    assert float((maps - gradient.abs()).abs().max()) < 1e-6


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_beside_single_precision(half: torch.dtype) -> None:
    """A scale in single precision beside layers in half precision: the layers get their inputs in half precision."""
    torch.manual_seed(0)
    module = Temperature(torch.float32, half)
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    x = torch.rand(4, 1, 8, 8)
    assert (model.precision, model.dtype) == (half, torch.float32)
    assert torch.equal(model.logits(x), module(x.to(half)).float())


def test_inputs_of_another_type_are_refused_as_before() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 1, 8, 8)
    with pytest.raises(
        ArgumentError, match=r"expected dtype torch\.float32 \(the module's\), got torch\.float64"
    ):
        standfast.Model(Codes(torch.tensor([3])), bounds=(0.0, 1.0), device="cpu").logits(
            x.double()
        )
    # which has doubles, but no use for these
    model = standfast.Model(DoubleHead(), bounds=(0.0, 1.0), device="cpu")
    for _ in range(2):
        with pytest.raises(ArgumentError, match="got torch.float64"):
            model.logits(x.double())


def test_a_type_is_tried_for_one_model_alone() -> None:
    torch.manual_seed(0)
    model = standfast.Model(Unusual(), bounds=(0.0, 1.0), device="cpu")
    other = model.of_score(torch.tensor([0]))
    model.logits(torch.rand(2, 64, dtype=torch.float64))
    assert (model.dtype, other.dtype) == (torch.float64, torch.float32)
    assert {bound.dtype for bound in model.bounds} == {torch.float64}


def test_types_in_their_order() -> None:
    """Layers come before parameters of their own, real numbers before parts of complex ones, and bytes count not."""
    assert find_input_types(Temperature(torch.float64)) == (torch.float32, torch.float64)
    assert find_input_types(FourierWithHead()) == (torch.float32,)
    assert find_input_types(Fourier(torch.cdouble)) == (torch.float64,)
    assert find_input_types(Quantised(torch.float64)) == (torch.float64, torch.float32)
    quantised = nn.Linear(2, 2, bias=False)
    quantised.weight = nn.Parameter(
        quantised.weight.detach().to(torch.float8_e4m3fn), requires_grad=False
    )
    assert find_input_types(nn.Sequential(quantised, nn.Linear(2, 2))) == (torch.float32,)
