"""Occlusion equals Captum's and a loop over windows, and is right on models with a known answer."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import captum.attr as ca
import pytest
import torch
from games import rand
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.explainers import Occlusion

KINDS = {**SHAPES, "colour": (3, 9, 11)}


@pytest.mark.parametrize(
    ("kind", "window", "stride"),
    [
        *(
            ("image", 3, 2),
            ("image", (8, 1), (5, 1)),
            ("image", 4, 4),
            ("image", 1, 1),
            ("colour", (4, 3), (3, 2)),
        ),
        *(("series", 5, 3), ("series", (16,), (4,)), ("flat", 1, 1), ("flat", 5, 2)),
    ],
)
def test_equals_captum(kind: str, window: Any, stride: Any) -> None:
    shape = KINDS[kind]
    module, x = small_net(shape).double().eval(), rand(5, *shape)
    t = torch.arange(5) % 4
    axes = len(shape) - (len(shape) > 1)
    sides, steps = ((n,) * axes if isinstance(n, int) else n for n in (window, stride))
    channels = shape[:1] if len(shape) > 1 else ()
    theirs = ca.Occlusion(module).attribute(
        x, sliding_window_shapes=channels + sides, strides=channels + steps, baselines=0.3, target=t
    )
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    ours = Occlusion(window, stride, baseline=0.3, output="logit")(model, x, t)
    # Captum's masks are float32
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-6, atol=1e-6)
    assert float(ours.abs().max()) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_loop_over_the_default_windows(kind: str) -> None:
    shape = KINDS[kind]
    module, x = small_net(shape).double().eval(), rand(3, *shape)
    spatial = shape[-1:] if len(shape) < 3 else shape[1:]
    axes = Occlusion().lay_out_windows(tuple(spatial), flat=len(shape) == 1)
    total, count = (
        torch.zeros(3, *spatial, dtype=torch.float64),
        torch.zeros(spatial, dtype=torch.float64),
    )
    with torch.no_grad():
        whole = module(x).softmax(1)[:, 2]
        for corner in product(*(range(0, n * stride, stride) for _, stride, n in axes)):
            place = tuple(
                slice(start, start + side) for start, (side, _, _) in zip(corner, axes, strict=True)
            )
            copy = x.clone()
            copy[(..., *place)] = 0.0
            total[(..., *place)] += (whole - module(copy).softmax(1)[:, 2]).reshape(
                3, *[1] * len(spatial)
            )
            count[place] += 1
    assert int(count.min()) >= 1
    expected = (total / count).reshape(3, *[1] * (len(shape) > 1), *spatial).expand_as(x)
    found = Occlusion()(standfast.Model(module, (0.0, 1.0), device="cpu"), x, 2)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_model_that_depends_on_one_pixel() -> None:
    class OnePixel(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 0, 4, 6], torch.zeros(len(x))], 1)

    x = torch.ones(2, 1, 10, 12)
    x[1] *= 0.5
    model = standfast.Model(OnePixel(), (0.0, 1.0), device="cpu")
    found = Occlusion(window=3, stride=1, output="logit")(model, x, 0)
    # the share of a position's windows that cover the pixel, times its value
    away = (torch.arange(10)[:, None] - 4).abs(), (torch.arange(12) - 6).abs()
    expected = (3 - away[0]).clamp(min=0) * (3 - away[1]).clamp(min=0) / 9
    torch.testing.assert_close(found, x * expected)


def test_options_out_of_range() -> None:
    assert_refused(
        Occlusion, window=[0, ()], stride=[1.5, (1, "2")], baseline=[float("inf")], output=["odds"]
    )


def test_windows_that_do_not_fit_the_inputs() -> None:
    def explain(**options: Any) -> Tensor:
        model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu")
        return Occlusion(**options)(model, rand(2, 1, 8, 8).float())

    assert_refused(explain, window=[9, (2, 2, 2)], baseline=[(0.0, 1.0)])
    assert_refused(partial(explain, window=2), stride=[3])


def test_rows_of_an_input_follow_from_its_shape() -> None:
    for shape, windows in (((3, 1, 28, 28), 169), ((3, 30), 30), ((3, 2, 40), 13)):
        rows: list[int] = []
        module = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape[1:]), 2))
        module.register_forward_hook(lambda _, inputs, __, rows=rows: rows.append(len(inputs[0])))
        model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=100_000)
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        with model.session():
            Occlusion().attribute_all(model, x.repeat(16, *[1] * (x.ndim - 1)), None)
        assert Occlusion().count_rows_of(x) == windows + 1
        assert max(rows) == 48 * (windows + 1)
