"""Norm balls: distributions against scipy and plain rejection, projection, and the map from Gaussian space."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import stats

from standfast.errors import ArgumentError
from standfast.neighbourhoods import (
    L2Ball,
    LinfBall,
    Neighbourhood,
    Region,
    Rotation,
    neighbourhoods,
)
from standfast.tensors import Streams

CENTRE = torch.tensor([[0.02, 0.5, 0.95, 0.3]])
BOUNDS = (0.0, 1.0)


def draw(region: Region, count: int, seed: int = 0) -> torch.Tensor:
    return region.sample(
        count, Streams([seed + p for p in range(len(region))], torch.device("cpu"))
    )


@pytest.fixture(params=["linf", "l2"])
def kind(request: pytest.FixtureRequest) -> type[Neighbourhood]:
    return neighbourhoods[request.param]


@pytest.mark.parametrize("distribution", ["uniform", "truncated_normal"])
def test_contract(kind: type[Neighbourhood], distribution: str) -> None:
    ball = kind(0.4, distribution)  # type: ignore[arg-type]
    x = torch.rand(3, 1, 2, 2)
    before = x.clone()
    region = ball.around(x, BOUNDS)
    samples = draw(region, 500)
    assert samples.shape == (3, 500, 1, 2, 2)
    assert region.contains(samples, slack=1e-6).all()
    assert torch.equal(x, before)
    assert torch.equal(draw(region, 500), samples)
    alone = ball.around(x[1:2], BOUNDS)
    assert torch.equal(alone.sample(500, Streams([1], torch.device("cpu")))[0], samples[1])
    outside = region.project(x[:, None] + 3 * torch.randn(3, 200, 1, 2, 2))
    assert region.contains(outside, slack=1e-6).all()
    assert torch.allclose(region.project(samples), samples, atol=1e-6)
    assert torch.equal(region.project(outside), outside)
    density = region.log_density(samples)
    assert torch.isfinite(density).all()
    assert torch.isinf(region.log_density(samples + 2)).all()


@pytest.mark.parametrize("distribution", ["uniform", "truncated_normal"])
def test_radius_zero_is_the_identity(kind: type[Neighbourhood], distribution: str) -> None:
    region = kind(0.0, distribution).around(CENTRE, BOUNDS)  # type: ignore[arg-type]
    assert torch.equal(draw(region, 5), CENTRE[:, None].expand(1, 5, 4))
    assert torch.equal(region.project(torch.rand(1, 5, 4)), CENTRE[:, None].expand(1, 5, 4))


def test_linf_uniform_is_uniform_in_every_feature() -> None:
    x = draw(LinfBall(0.1).around(CENTRE, BOUNDS), 20_000)[0].double()
    for feature, (low, high) in enumerate([(0.0, 0.12), (0.4, 0.6), (0.85, 1.0), (0.2, 0.4)]):
        assert stats.kstest(x[:, feature].numpy(), stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_linf_truncated_normal_is_scipys() -> None:
    x = draw(LinfBall(0.1, "truncated_normal", sigma=0.08).around(CENTRE, BOUNDS), 20_000)[
        0
    ].double()
    for feature, centre in enumerate(CENTRE[0].tolist()):
        low, high = max(centre - 0.1, 0.0), min(centre + 0.1, 1.0)
        law = stats.truncnorm((low - centre) / 0.08, (high - centre) / 0.08, centre, 0.08)
        assert stats.kstest(x[:, feature].numpy(), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [None, 0.15])
def test_l2_is_what_plain_rejection_gives(sigma: float | None) -> None:
    distribution = "uniform" if sigma is None else "truncated_normal"
    x = draw(L2Ball(0.4, distribution, sigma).around(CENTRE, BOUNDS), 20_000)[0].double()
    generator = torch.Generator().manual_seed(1)
    if sigma is None:
        y = CENTRE + 0.8 * (torch.rand(400_000, 4, generator=generator) - 0.5)
    else:
        y = CENTRE + sigma * torch.randn(400_000, 4, generator=generator)
    y = y[((y - CENTRE).norm(dim=1) <= 0.4) & ((y >= 0) & (y <= 1)).all(1)]
    for feature in range(4):
        assert stats.ks_2samp(x[:, feature].numpy(), y[:, feature].numpy()).pvalue > 1e-3
    distance = stats.ks_2samp((x - CENTRE).norm(dim=1).numpy(), (y - CENTRE).norm(dim=1).numpy())
    assert distance.pvalue > 1e-3


def measure(x: torch.Tensor, centre: torch.Tensor, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Of points `(n, d)` around a centre `(d,)`: (t / r)^d of the distance t, and the direction's first cosine."""
    offset = (x - centre).double()
    length = offset.norm(dim=1)
    return ((length / radius) ** x.shape[1]).numpy(), (offset[:, 0] / length).numpy()


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("features", [2, 3, 50, 784])
def test_l2_ball_that_no_bound_cuts_is_uniform(features: int, mapped: bool) -> None:
    """In its middle, at a corner that just touches the bounds, and beside a ball that they cut."""
    centres = torch.full((3, features), 0.5)
    centres[1], centres[2, 0] = 0.25, 0.05
    region, streams = L2Ball(0.25).around(centres, BOUNDS), Streams([1, 2, 3], torch.device("cpu"))
    count = 3000 if features < 700 else 300
    x = (
        region.from_gaussian(region.sample_gaussian(count, streams))
        if mapped
        else region.sample(count, streams)
    )
    for points, centre in zip(x[:2], centres[:2], strict=True):
        power, cosine = measure(points, centre, 0.25)
        assert stats.kstest(power, "uniform").pvalue > 1e-3
        # the first coordinate of a uniform direction
        assert (
            stats.kstest(
                (cosine + 1) / 2, stats.beta((features - 1) / 2, (features - 1) / 2).cdf
            ).pvalue
            > 1e-3
        )
        assert np.abs(power).max() <= 1 + 1e-6 * features
    assert region.contains(x, slack=1e-6).all()
    assert torch.isfinite(
        region.log_weight(region.from_gaussian(region.sample_gaussian(20, streams)))
    ).all()


@pytest.mark.parametrize("mapped", [False, True])
def test_a_ball_has_the_same_points_beside_other_balls(mapped: bool) -> None:
    """Whether these are cut or not, in any order; a ball that is cut is drawn by rejection as if it were alone."""
    centres = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) * 0.2 + 0.4
    centres[1, 0], centres[3, 4] = 0.9, 0.1
    ball = L2Ball(0.3)

    def draw_all(rows: list[int]) -> torch.Tensor:
        region, streams = (
            ball.around(centres[rows], BOUNDS),
            Streams([10 + p for p in rows], torch.device("cpu")),
        )
        return region.sample_gaussian(40, streams) if mapped else region.sample(40, streams)

    whole = draw_all([0, 1, 2, 3, 4])
    for rows in ([0], [1], [3, 0], [4, 3, 2, 1, 0]):
        assert torch.equal(draw_all(rows), whole[rows])


def test_gaussian_map_and_density_agree() -> None:
    # a Metropolis ratio from log_density must be the one of the distribution that the map samples
    region = LinfBall(0.1, "truncated_normal", sigma=0.05).around(CENTRE, BOUNDS)
    x = draw(region, 2)
    expected = stats.norm(0, 0.05).logpdf((x - CENTRE).double().numpy()).sum(-1)[0]
    got = region.log_density(x)[0].double()
    assert (got[0] - got[1]).item() == pytest.approx(expected[0] - expected[1], rel=1e-4)


def test_select_keeps_each_problem() -> None:
    x = torch.rand(4, 6)
    region = L2Ball(0.3).around(x, BOUNDS)
    chosen = region.select([2, 0])
    assert torch.equal(chosen.centre, x[[2, 0]])
    assert chosen.sigma is not None
    assert torch.equal(chosen.sigma, region.sigma[[2, 0]])


def test_bad_arguments(kind: type[Neighbourhood]) -> None:
    assert_refused(kind, radius=[-1, "0.1", float("nan"), True])
    assert_refused(partial(kind, radius=1), distribution=["normal"], sigma=[0])


@pytest.mark.parametrize("none", [None, (-torch.inf, torch.inf)])
def test_no_bounds(kind: type[Neighbourhood], none: object) -> None:
    region = kind(0.4).around(CENTRE, none)  # type: ignore[call-arg,arg-type]
    assert torch.equal(region.lower, CENTRE - 0.4)
    assert torch.equal(region.upper, CENTRE + 0.4)
    turned = Rotation(10).around(torch.rand(1, 1, 3, 3), none)  # type: ignore[arg-type]
    assert [bound.item() for bound in turned.bounds] == [-torch.inf, torch.inf]


@pytest.mark.parametrize(
    "bounds", [0.5, (0.0,), (0.0, 0.5, 1.0), ("0", "1"), (0.0, None), (0.0, torch.ones(3)), "01"]
)
def test_bounds_of_another_kind_are_refused(kind: type[Neighbourhood], bounds: object) -> None:
    for around, inputs in (
        (kind(0.1).around, CENTRE),
        (Rotation(10).around, CENTRE.reshape(1, 1, 2, 2)),
    ):
        with pytest.raises(ArgumentError, match="bounds: expected a pair"):
            around(inputs, bounds)


def test_centre_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ArgumentError, match="inputs: expected values within the bounds"):
        LinfBall(0.1).around(CENTRE + 1, BOUNDS)


def test_points_of_a_ball_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For large inputs; the distribution is the same."""
    region = L2Ball(0.5).around(torch.full((1, 4), 0.5, dtype=torch.float64))
    monkeypatch.setattr("standfast.neighbourhoods.base._DRAWN", 4 * 50)
    x = region.sample(3000, Streams([1], torch.device("cpu")))
    assert x.shape == (1, 3000, 4)
    distance = (x[0] - 0.5).norm(dim=1)
    assert stats.kstest((distance / 0.5).numpy() ** 4, "uniform").pvalue > 1e-3


def test_a_ball_beyond_the_range_of_the_inputs_is_described() -> None:
    def words(
        ball: Neighbourhood, low: object = 0.0, high: object = 1.0, shape: tuple[int, ...] = (4, 2)
    ) -> str:
        return ball.describe_excess(shape, (torch.as_tensor(low), torch.as_tensor(high)))

    assert words(LinfBall(1.0)) == words(LinfBall(0.1)) == ""
    assert words(LinfBall(8)).endswith(
        "range of the inputs, [0, 1], so all valid inputs lie in it; was LinfBall(8/255) meant?"
    )
    assert "meant" not in words(LinfBall(300))
    assert "[-1, 1]" in words(LinfBall(4), -1.0, 1.0)
    assert "was LinfBall(0.0314) meant?" in words(LinfBall(4), -1.0, 1.0)  # 4/255 of a range of 2
    assert words(L2Ball(2.8)) == ""  # the diagonal of 8 features is 2.83
    assert "L2Ball(2.9)" in words(L2Ball(2.9))
    assert words(LinfBall(1e9), -torch.inf, torch.inf) == ""
    channels = torch.tensor([0.0, 0.0])[:, None], torch.tensor([1.0, 3.0])[:, None]
    assert words(LinfBall(2.0), *channels, shape=(2, 5)) == ""
    assert "[0, 3]" in words(LinfBall(4.0), *channels, shape=(2, 5))
