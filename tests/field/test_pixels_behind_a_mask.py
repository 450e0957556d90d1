"""Relevance of pixels that the model multiplies by 0 before it shifts them: they have no influence, and get none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import standfast

EXPLAINERS = [
    *(
        "lrp",
        "lrp_epsilon_plus",
        "lrp_epsilon_plus_flat",
        "lrp_epsilon_alpha2_beta1",
        "lrp_epsilon_gamma_box",
    ),
    *("deep_taylor", "attn_lrp", "input_x_gradient"),
]
HIDDEN = slice(0, 8)


def multiply(x: Tensor) -> Tensor:
    mask = torch.ones_like(x)
    mask[:, :, HIDDEN] = 0
    return x * mask


def divide(x: Tensor) -> Tensor:
    large = torch.ones_like(x)
    large[:, :, HIDDEN] = torch.inf
    return x / large


def overwrite(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, :, HIDDEN] = 0
    return x


def multiply_in_place(x: Tensor) -> Tensor:
    mask = torch.ones_like(x)
    mask[:, :, HIDDEN] = 0
    x = x.clone()
    x *= mask
    return x


class Masked(nn.Module):
    def __init__(self, hide: object) -> None:
        super().__init__()
        self.network, self.hide = standfast.zoo.load("lenet5-mnist"), hide

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network((self.hide(x) - 0.1307) / 0.3081)
        return logits


@pytest.mark.parametrize("name", EXPLAINERS)
@pytest.mark.parametrize("hide", [multiply, divide, multiply_in_place, overwrite])
def test_hidden_pixels_get_no_relevance(name: str, hide: object) -> None:
    images = standfast.data.bundled("digits")[:3].inputs * 0.8 + 0.1
    model = standfast.Model(Masked(hide).eval(), bounds=(0.0, 1.0))
    maps = standfast.explainers.get(name)(model, images)
    assert float(maps.abs().sum()) > 0
    assert float(maps[:, :, HIDDEN].abs().max()) == 0
