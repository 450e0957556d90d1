"""The moves of subset simulation keep the prior, reach every feature, and know what they have forgotten."""

from __future__ import annotations

import math

import pytest
import torch
from repeated_runs import repeat_prior
from scipy import stats
from torch import Tensor

from standfast.algorithms import StandardNormal, SubsetSimulation
from standfast.algorithms.rare_events.moves import GaussianMoves, RandomWalk, draw_blocks
from standfast.algorithms.rare_events.population import Population
from standfast.neighbourhoods import Region
from standfast.tensors import Streams

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(3,), (2, 6), (2, 4, 3)])
def test_moves_keep_the_normal_distribution(shape: tuple[int, ...]) -> None:
    """Without a level, every feature stays standard normal, and features stay independent."""
    streams = Streams([3, 4], CPU)
    state = streams.normal((4000, *shape), torch.float64)
    kernel = GaussianMoves(state)
    kernel.size[:] = 0.5
    kernel.share[:] = torch.linspace(0.05, 0.5, kernel.share.shape[1])
    for _ in range(12):
        kernel.begin_move()
        state, correction = kernel.propose(state, streams)
        assert correction == 0  # steps and their reverse are equally probable
    flat = state.flatten(2)
    for problem in flat:
        assert min(stats.kstest(feature.numpy(), "norm").pvalue for feature in problem.T) > 1e-4
        assert (torch.corrcoef(problem.T) - torch.eye(problem.shape[1])).abs().max() < 5 / 4000**0.5


def test_blocks_are_rectangles_that_reach_every_pixel_equally() -> None:
    share, grid = torch.tensor([0.04, 0.25]), torch.Size((10, 8))
    inside, part = draw_blocks(
        share[:, None].repeat(1, 6), (3, 2), 20_000, grid, Streams([1, 2], CPU)
    )
    assert torch.bincount(part[0], minlength=6).tolist() == pytest.approx([20_000 / 6] * 6, rel=0.1)
    middles = torch.stack(
        [inside.any(3).float() @ torch.arange(10.0), inside.any(2).float() @ torch.arange(8.0)]
    )
    middles /= torch.stack([inside.any(3).sum(2), inside.any(2).sum(2)])
    for axis, place in enumerate((part // 2, part % 2)):  # parts are numbered row by row
        own = [middles[axis][place == k].mean() for k in range(3 - axis)]
        assert own == sorted(own)
    rows, columns = inside.any(3), inside.any(2)
    assert torch.equal(inside, rows[..., None] & columns[..., None, :])
    changes = (rows[..., 1:] != rows[..., :-1]).sum(2)
    assert changes.max() <= 2  # one run of rows, which may touch an edge
    tiny, _ = draw_blocks(torch.full((1, 1), 1e-6), (1, 1), 200, grid, Streams([1], CPU))
    assert set(tiny.sum((2, 3)).flatten().tolist()) == {1}  # at least one position
    for problem, wanted in zip(inside, share, strict=True):
        chance = problem.float().mean(0)
        assert chance.max() / chance.min() < 1.25  # the edges too
        assert 0.4 * wanted < chance.mean() < 1.5 * wanted


def refuse_all(count: int, grid: tuple[int, ...], levels: int) -> tuple[GaussianMoves, Streams]:
    """Moves after some levels of four moves each, all of which were refused."""
    streams = Streams([1], CPU)
    state = streams.normal((count, 1, *grid), torch.float32)
    kernel = GaussianMoves(state)
    for number in range(4 * levels):
        if number % 4 == 0:
            kernel.begin_level(state)
        kernel.begin_move()
        kernel.propose(state, streams)
        kernel.record(torch.zeros_like(state), torch.zeros(1, count, dtype=torch.bool))
        kernel.end_move()
    return kernel, streams


@pytest.mark.parametrize("grid", [(28, 28), (140,), (1, 140), (2, 1000), (8, 8, 8), (1, 12, 12)])
def test_blocks_can_become_single_positions(grid: tuple[int, ...]) -> None:
    """Also where one axis is much shorter than another."""
    kernel, streams = refuse_all(50, grid, levels=40)
    inside, _ = draw_blocks(kernel.share, kernel.parts, 2000, torch.Size(grid), streams)
    assert (inside.flatten(2).sum(2) == 1).float().mean() > 0.95


def test_few_particles_adapt_their_blocks_as_fast_as_many() -> None:
    """Parts with few steps follow the acceptance of all: 30 particles have two steps in a part."""
    few, many = (refuse_all(count, (28, 28), levels=4)[0].share for count in (30, 2000))
    assert few.flatten().tolist() == pytest.approx(many.flatten().tolist(), rel=1e-4)


def test_chunks_count_together() -> None:
    """All steps of a move adapt the sizes, not only those of its last chunk."""
    streams = Streams([1, 2], CPU)
    state = streams.normal((300, 1, 8, 8), torch.float64)
    kernel = GaussianMoves(state)
    expected = torch.zeros(2, 16)
    for _ in range(2):
        kernel.begin_move()
        for part in (slice(0, 200), slice(200, 300)):
            proposed = kernel.propose(state[:, part], streams)[0]
            accept = torch.zeros(proposed.shape[:2], dtype=torch.bool)
            kernel.record(proposed - state[:, part], accept)
            if kernel.kind == 1:
                expected += torch.stack([torch.bincount(own, minlength=16) for own in kernel.part])
        if kernel.kind == 1:
            assert torch.equal(kernel.tried_in_part, expected)
            assert expected.sum(1).tolist() == [300, 300]
        kernel.end_move()


def test_blocks_are_small_where_the_level_depends_on_them() -> None:
    """Of the 64 pixels in the middle at most 4 may change: blocks there shrink, those at the border stay large."""
    streams = Streams([1], CPU)
    state = streams.normal((600, 1, 16, 16), torch.float64)
    kernel = GaussianMoves(state)
    accepted, steps = torch.zeros(16), torch.zeros(16)
    for number in range(120):
        kernel.begin_move()
        proposed = kernel.propose(state, streams)[0]
        accept = (proposed != state)[..., 4:12, 4:12].sum((2, 3, 4)) <= 4
        if number > 100 and kernel.kind == 1:
            accepted += torch.bincount(kernel.part[accept], minlength=16)
            steps += torch.bincount(kernel.part[0], minlength=16)
        kernel.record(proposed - state, accept)
        kernel.end_move()
    shares = kernel.share.reshape(4, 4)
    middle, corners = shares[1:3, 1:3], shares[::3, ::3]
    assert middle.max() < 0.1 < 0.5 < corners.min(), shares
    rate = (accepted / steps).reshape(4, 4)
    assert 0.25 < rate[1:3, 1:3].min() <= rate[1:3, 1:3].max() < 0.45, rate  # the target is 0.35
    assert rate[::3, ::3].min() > 0.3  # even the largest blocks of a corner hardly reach the middle


def test_a_symmetric_event_of_one_feature() -> None:
    """Blocks that miss the feature are always accepted, and must not take the place of moves that change it."""
    ones = torch.ones(1, 3, 50)
    prior = Region(centre=0 * ones, lower=-ones, upper=ones)
    generator = torch.Generator().manual_seed(2)

    def score(x: Tensor) -> Tensor:
        return x.flatten(1)[:, 7].double().abs() - 1 + 1e-4

    found = SubsetSimulation(200, first=4).run(score, repeat_prior(prior, 25), generator=generator)
    truth = math.log(1e-4)
    errors = found.log_probability - truth
    low, high = found.interval().unbind(1)
    inside = int(((low <= truth) & (truth <= high)).sum())
    assert errors.square().mean().sqrt() < 0.7
    assert inside >= stats.binom.ppf(1e-3, 25, 0.95)


def test_few_particles_forget_a_finite_amount() -> None:
    """With two particles, the mean square of a feature's step may be more than twice the prior's variance."""
    streams = Streams([1], CPU)
    state = streams.normal((2, 1, 5, 5), torch.float64)
    kernel = GaussianMoves(state)
    kernel.size[:], kernel.share[:] = 1.0, 1.0
    for number in range(1, 5):
        kernel.begin_move()
        kernel.propose(state, streams)
        step = torch.full((1, 2, 1, 5, 5), 3.0)
        kernel.record(step, torch.ones(1, 2, dtype=torch.bool))
        kernel.end_move()
        assert -20 * number < kernel.memory.item() < 0


@pytest.mark.parametrize("width", [1e-3, 1.0, 1e3])
def test_a_random_walk_is_at_most_as_wide_as_its_box(width: float) -> None:
    """In units of the prior's standard deviation, `width / 12^0.5`; also if it begins with particles at one point."""
    centre = torch.zeros(1, 6, dtype=torch.float64)
    prior = Region(centre=centre, lower=centre, upper=centre + width)
    streams = prior.streams(0)
    population = Population(
        lambda x: x[:, 0], prior, torch.tensor([0]), streams, "random_walk", indexed=False
    )
    for begin in (
        lambda: population.draw(1000),
        lambda: population.place(centre[:, None] + torch.zeros(1, 10, 6)),
    ):
        begin()
        kernel = population.kernel
        assert isinstance(kernel, RandomWalk)
        assert kernel.scale.flatten().tolist() == pytest.approx([width / 12**0.5] * 6, rel=0.15)
        assert kernel.largest.item() == pytest.approx(12**0.5, rel=0.15)


def test_a_random_walk_wider_than_its_box_goes_on() -> None:
    """At levels that keep nine in ten, sizes would grow until they are infinite, and no step would be accepted."""
    corners = torch.tensor([[[0.0, 0.0, 0.5], [1.0, 1.0, 0.5]]], dtype=torch.float64)
    lower, upper = corners.unbind(1)  # the last feature is fixed
    prior = Region(centre=(lower + upper) / 2, lower=lower, upper=upper)
    walk = Population(
        lambda x: x[:, 0] - 1,
        prior,
        torch.tensor([0]),
        prior.streams(0),
        "random_walk",
        indexed=False,
    )
    walk.draw(20)
    for _ in range(5):
        accepted, memory = walk.move(300, torch.tensor([[0]]), torch.tensor([[-0.9]]))
        assert float(accepted) > 0.8
        assert bool(memory.isfinite())
    assert bool(walk.state.isfinite().all())


def test_a_random_walk_without_a_box_is_symmetric_and_counts_steps_in_standard_deviations() -> None:
    streams = Streams([1], CPU)
    state = streams.normal((4000, 3), torch.float64) * torch.tensor([1.0, 2.0, 0.5])
    kernel = RandomWalk(StandardNormal(3), state)
    kernel.begin_move()
    proposed, correction = kernel.propose(state, streams)
    step = (proposed - state)[0]
    assert correction == 0.0
    assert bool((step.abs() <= kernel.size.double() * kernel.scale[0]).all())
    assert bool((step.mean(0).abs() < 4 * step.std(0) / 4000**0.5).all())
    kernel.record(
        2 * kernel.scale.expand(1, 4000, 3).clone(), torch.ones(1, 4000, dtype=torch.bool)
    )
    assert (kernel.square / kernel.tried).flatten().tolist() == pytest.approx([4.0] * 3)
    before = kernel.size.clone()
    kernel.adapt(torch.tensor([0.234]), 1.0)
    assert torch.allclose(kernel.size, before)
    # a tenth of the features may have forgotten less
    kernel.lost[:], kernel.lost_in_blocks = 0.5, torch.arange(20.0).flip(0)[None]
    assert kernel.memory.item() == -2.5


def test_what_is_frozen_is_not_forgotten() -> None:
    """Blocks that may change one half of the picture only: the other half is remembered."""
    streams = Streams([1], CPU)
    state = streams.normal((500, 1, 8, 8), torch.float64)
    kernel = GaussianMoves(state)
    for number in range(60):
        kernel.begin_move()
        proposed = kernel.propose(state, streams)[0]
        changed = proposed != state
        accept = (
            ~changed[..., :4].any(dim=(2, 3, 4))
            if number % 2
            else torch.zeros(1, 500, dtype=torch.bool)
        )
        kernel.record(proposed - state, accept)
        kernel.end_move()
        state = torch.where(accept[..., None, None, None], proposed, state)
    assert kernel.memory.item() == 0
    assert kernel.lost_in_blocks[..., 4:].min() > 0.5
