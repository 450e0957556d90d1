"""Steps in place behind functions whose backward pass an explainer replaces: as the same network out of place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast
from standfast import explainers as hx

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": lambda z: F.leaky_relu(z, 0.1),
    "silu": F.silu,
    "tanh": torch.tanh,
    "max_pool": lambda z: F.max_pool2d(z, 3, 1, 1),
    "softplus": F.softplus,
}


def set_channel(out: Tensor, other: Tensor) -> Tensor:
    out[:, 0] = other[:, 1]
    return out


def add_slice(out: Tensor, other: Tensor) -> Tensor:
    out[:, 1:] += other[:, 1:]
    return out


# each in place, and with the same result out of place
STEPS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "+=": (lambda out, other: out.__iadd__(other), lambda out, other: out + other),
    "mul_": (lambda out, other: out.mul_(0.5), lambda out, other: out.mul(0.5)),
    "relu_": (lambda out, other: F.relu(out, inplace=True), lambda out, other: F.relu(out)),
    "clamp_": (lambda out, other: out.clamp_(min=0.2), lambda out, other: out.clamp(min=0.2)),
    "channel": (set_channel, lambda out, other: torch.cat([other[:, 1:2], out[:, 1:]], 1)),
    "slice": (add_slice, lambda out, other: torch.cat([out[:, :1], out[:, 1:] + other[:, 1:]], 1)),
}
EXPLAINERS = (
    *("deeplift", "deep_shap", "guided_backprop", "lrp", "attn_lrp", "deep_taylor", "fullgrad"),
    *(
        "lrp_epsilon_gamma_box",
        "lrp_epsilon_alpha2_beta1_flat",
        "gradcam:layer=b",
        "guided_gradcam:layer=b",
    ),
)


class Net(nn.Module):
    def __init__(self, function: str, step: str, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.step = FUNCTIONS[function], STEPS[step][0 if in_place else 1]
        self.a, self.b, self.head = (
            nn.Conv2d(2, 3, 3, padding=1),
            nn.Conv2d(3, 3, 3, padding=1),
            nn.Linear(3, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        other = self.function(self.a(x))
        out = self.step(self.function(self.b(other)), other)
        return self.head(F.relu(out).mean((2, 3)))  # type: ignore[no-any-return]


def explain(explainer: str, function: str, step: str, in_place: bool) -> Tensor | str:
    x = torch.rand(2, 2, 6, 6, generator=torch.Generator().manual_seed(3))
    model = standfast.Model(Net(function, step, in_place), (0.0, 1.0), device="cpu")
    try:
        return hx.get(explainer)(model, x, 1)
    except standfast.ModelError as error:
        return str(error)


def can_differentiate(function: str, step: str) -> bool:
    """Whether torch can: functions such as tanh keep their output for the backward pass."""
    try:
        Net(function, step, in_place=True)(torch.rand(2, 2, 6, 6)).sum().backward()
    except RuntimeError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("explainer", EXPLAINERS)
def test_in_place_as_out_of_place(explainer: str, step: str) -> None:
    """The same map; where there is no rule for the function or the step, a refusal that says so."""
    for function in FUNCTIONS:
        inside, outside = (explain(explainer, function, step, each) for each in (True, False))
        if isinstance(inside, str):
            assert "rule" in inside or (
                "inplace" in inside and not can_differentiate(function, step)
            ), function
            continue
        assert isinstance(outside, Tensor), function
        torch.testing.assert_close(inside, outside, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("step", STEPS)
def test_second_derivatives(step: str) -> None:
    """DeepLIFT's map with a graph, and that of a network with smooth rectifiers."""
    x = torch.rand(2, 2, 6, 6, generator=torch.Generator().manual_seed(3))
    for explainer in (hx.DeepLift(), hx.Saliency(absolute=False)):
        found = []
        for in_place in (True, False):
            model = standfast.Model(Net("relu", step, in_place), (0.0, 1.0), device="cpu")
            with model.session(), hx.smooth_relu(5.0):
                leaf = x.clone().requires_grad_(True)
                maps, _ = explainer.attribute(model, leaf, None, create_graph=True)
                found.append(torch.autograd.grad(maps.square().sum(), leaf)[0])
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
