"""Where standfast's own metrics differ by design: which depend on the seed, and which can use a constant explanation.

The contract leaves both to the metric (`test_contract.py`), so a new metric needs no line here.
"""

from __future__ import annotations

import pytest
import torch
from light import light_metric
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.metrics import metrics

SHAPE = (1, 8, 8)
#: metrics whose examples draw no random numbers that change a value
SAME_FOR_ALL_SEEDS = (
    "c_eval",
    "c_eval_plot",
    "log_odds",
    "near_affinity",
    "relevance_localisation",
    "seed_agreement",
)
#: metrics that have a value for a constant explanation
WITH_CONSTANT_MAPS = ("corruption_curve", "relevance_localisation")
OWN = [
    name for name in standfast.metrics.names() if metrics[name].__module__.startswith("standfast.")
]


def model_and_inputs() -> tuple[standfast.Model, Tensor]:
    x = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))
    return standfast.Model(small_net(SHAPE), (0.0, 1.0), device="cpu", batch_size=16), x


@pytest.mark.parametrize("name", OWN)
def test_value_depends_on_the_seed(name: str) -> None:
    model, x = model_and_inputs()
    found = [
        light_metric(name)(
            model, "saliency", x, generator=torch.Generator().manual_seed(seed)
        ).value
        # a coarse value, such as a share of six pixels, can be the same for two seeds
        for seed in (
            3,
            7,
        )
    ]
    assert torch.equal(found[0].nan_to_num(), found[1].nan_to_num()) == (name in SAME_FOR_ALL_SEEDS)


class Constant(nn.Module):
    """The same logits for every input, so that every gradient is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net(SHAPE)

    def forward(self, x: Tensor) -> Tensor:
        return 0.0 * self.net(x) + torch.arange(4.0)


@pytest.mark.parametrize("name", OWN)
def test_constant_explanation(name: str) -> None:
    _, x = model_and_inputs()
    model = standfast.Model(Constant(), (0.0, 1.0), device="cpu", batch_size=16)
    wanted = "ok" if name in WITH_CONSTANT_MAPS else "degenerate"
    assert light_metric(name)(model, "saliency", x).status == (wanted,) * 5
