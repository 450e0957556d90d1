"""Attacks on attributions: optima that are known, a plain loop as oracle, and what a result must hold."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import scipy.stats
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.metrics import AttributionAttack
from standfast.metrics.lens.attribution_objectives import (
    Lens,
    MassCentre,
    RandomSign,
    Target,
    TopK,
    Universal,
    attribution_attacks,
    get,
    mass_share,
)
from standfast.metrics.probe import Probe
from standfast.similarity.stored import name_above_chance, name_chance

BALL = standfast.LinfBall(0.1)
GUIDED = ("lens", "mass_centre", "target", "top_k")
BLIND = ("random_sign", "universal")


class Quadratic(nn.Module):
    """Logits `(sum of c_i x_i^2 / 2, floor)`: the gradient of the first is `c_i x_i`."""

    def __init__(self, coefficients: Tensor, floor: float = -10.0) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(coefficients)
        self.floor = floor

    def forward(self, x: Tensor) -> Tensor:
        value = (self.coefficients * x * x / 2).flatten(1).sum(1)
        return torch.stack([value, torch.full_like(value, self.floor)], dim=1)


def quadratic(
    shape: tuple[int, ...], seed: int = 0, floor: float = -10.0
) -> tuple[standfast.Model, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    module = Quadratic(0.5 + torch.rand(shape, generator=generator), floor)
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64)
    return model, 0.3 + 0.4 * torch.rand((3, *shape), generator=generator)


def top_mask(values: Tensor, k: int) -> Tensor:
    mask = torch.zeros_like(values.flatten(1), dtype=torch.bool)
    return mask.scatter_(
        1, values.flatten(1).argsort(dim=1, descending=True, stable=True)[:, :k], True
    ).view_as(values)


def near(mask: Tensor, w: int) -> Tensor:
    found = torch.zeros_like(mask)
    for n, i, j in mask.nonzero().tolist():
        found[n, max(i - w, 0) : i + w + 1, max(j - w, 0) : j + w + 1] = True
    return found


# what is known in closed form


def test_unrelated_maps_are_compared_as_the_attack_compares_them() -> None:
    maps = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    for absolute, expected in ((True, 1.0), (False, -1.0)):
        found = AttributionAttack(
            BALL, similarities=("cosine",), absolute=absolute
        ).compare_unrelated(maps, -maps)
        assert found.tolist() == pytest.approx([expected] * 2)


def test_shares_of_mass() -> None:
    maps = torch.tensor([[1.0, -2.0, 5.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert torch.allclose(mass_share(maps, mask), torch.tensor([3 / 8, 0.0]))


@pytest.mark.parametrize(
    "name", ["top_k:t=5", "lens:k=3,w=1,alone=0", "target:top=0.5,left=0,height=0.5,width=0.5"]
)
def test_the_optimum_of_a_share_of_mass_is_found(name: str) -> None:
    """The map is `c x`, so the least share of mass in a set is at `x - r` inside of it and `x + r` outside."""
    model, x = quadratic((1, 6, 6))
    maps = model.module.coefficients.detach()[0] * x[:, 0]
    wanted = torch.zeros(6, 6, dtype=torch.bool)
    wanted[3:, :3] = True
    inside = {
        "top_k": top_mask(maps, 5),
        "lens": near(top_mask(maps, 3), 1),
        "target": ~wanted.expand(3, 6, 6),
    }
    metric = AttributionAttack(
        standfast.LinfBall(0.1), name, steps=20, step=0.02, restarts=2, curve_k=(3,)
    )
    result = metric(model, "saliency", x)
    best = torch.where(inside[get(name).name][:, None], x - 0.1, x + 0.1)
    assert torch.allclose(result.inputs, best, atol=1e-6)
    assert result.found.all()
    assert result.label_kept.all()


def test_the_farthest_centre_of_mass_is_found() -> None:
    """A ratio of linear functions is largest at a corner of the box: all 64 are looked at."""
    model, x = quadratic((6,))
    coefficients = model.module.coefficients.detach()
    metric = AttributionAttack(
        standfast.LinfBall(0.1), "mass_centre", steps=25, step=0.02, restarts=6, curve_k=(2,), k=2
    )
    result = metric(model, "saliency", x)

    def centre(points: Tensor) -> Tensor:
        maps = (coefficients * points).abs()
        return (maps * torch.arange(6.0)).sum(-1) / maps.sum(-1)

    corners = torch.tensor(list(itertools.product((-0.1, 0.1), repeat=6)))
    for row in range(3):
        farthest = (centre(x[row] + corners) - centre(x[row])).abs().max()
        assert (centre(result.inputs[row]) - centre(x[row])).abs() == pytest.approx(
            farthest.item(), rel=1e-4
        )


def test_spans_of_a_target() -> None:
    image, series = torch.ones(1, 8, 8), torch.ones(1, 10)
    assert Target().state(image).nonzero().tolist() == [
        [0, i, j] for i in range(2) for j in range(2)
    ]
    assert Target(top=0.99, left=0.99, height=0.01, width=0.01).state(image).nonzero().tolist() == [
        [0, 7, 7]
    ]
    assert Target(left=0.5, width=0.3).state(series).nonzero()[:, 1].tolist() == [5, 6, 7]
    assert Target(left=0.29, width=0.01).state(torch.ones(1, 100)).nonzero()[:, 1].tolist() == [29]
    # at least one position
    assert Target(left=0.1, width=0.01).state(series).nonzero()[:, 1].tolist() == [1]


def test_a_window_of_nothing_makes_lens_the_top_k_attack() -> None:
    maps = torch.rand(4, 7, 7, generator=torch.Generator().manual_seed(0))
    moved = maps.flip(1)
    lens, top = Lens(k=9, w=0, alone=0), TopK(t=9)
    lonely = Lens(k=9, w=0)
    assert torch.allclose(
        lonely.goal(lonely.state(maps), moved), 1.3 * top.goal(top.state(maps), moved)
    )
    assert torch.equal(lens.goal(lens.state(maps), moved), top.goal(top.state(maps), moved))
    kept = (top_mask(maps, 9) & top_mask(moved, 9)).flatten(1).sum(1)
    share = (moved * top_mask(maps, 9)).flatten(1).sum(1) / moved.flatten(1).sum(1)
    assert torch.allclose(lens.score(lens.state(maps), moved), -2.0 * kept - share.double())
    assert torch.allclose(top.score(top.state(maps), moved), -1.0 * kept - share.double())


def test_lonely_positions_weigh_more() -> None:
    """The formula of the docstring, written out for a series."""
    before = torch.tensor([[0.0, 9.0, 0.0, 0.0, 0.0, 8.0, 0.0, 0.0]])
    # the largest two are both near the first
    after = torch.tensor([[5.0, 6.0, 1.0, 0.5, 0.25, 0.125, 2.0, 3.0]])
    attack = Lens(k=2, w=1, alone=0.7)
    lonely = {1: math.exp(-0.5), 5: 1.0}
    weights = [
        sum(1 + 0.7 * lonely[p] if abs(p - q) <= 1 else 0.0 for p in lonely) for q in range(8)
    ]
    expected = sum(w * a for w, a in zip(weights, after[0].tolist(), strict=True)) / after.sum()
    assert attack.goal(attack.state(before), after)[0] == pytest.approx(-expected.item(), rel=1e-5)


def test_points_are_judged_by_sets_and_mass_decides_ties() -> None:
    before = torch.tensor([[9.0, 8.0, 0.0, 0.0, 1.0, 2.0]])
    # one of two is kept, with most of the mass
    half = torch.tensor([[9.0, 0.0, 0.0, 0.0, 8.0, 2.0]])
    none = torch.tensor([[7.0, 7.0, 8.0, 8.0, 0.0, 0.0]])  # none is kept, with half of the mass
    less = torch.tensor([[1.0, 1.0, 8.0, 8.0, 0.0, 0.0]])
    attack = TopK(2)
    state = attack.state(before)
    assert attack.score(state, half) < attack.score(state, none) < attack.score(state, less)


def test_mass_centre_can_be_followed_from_the_seed_itself() -> None:
    maps = torch.rand(2, 5, 5, requires_grad=True)
    attack = MassCentre()
    (gradient,) = torch.autograd.grad(attack.goal(attack.state(maps.detach()), maps).sum(), maps)
    assert torch.isfinite(gradient).all()


# the loop that it is, written out


def loop(
    model: standfast.Model, x: Tensor, start: Tensor, t: int, radius: float, step: float, steps: int
) -> Tensor:
    """Ghorbani, Abid and Zou's iteration for gradient x input on one image, with softplus for the search."""
    target = model.logits(x).argmax(1)

    def share(z: Tensor, create_graph: bool) -> tuple[Tensor, Tensor, Tensor]:
        logits = model.module(z)
        (gradient,) = torch.autograd.grad(logits[0, target], z, create_graph=create_graph)
        values = (z * gradient).abs().sum(1)
        return values, (values / values.sum())[0], logits

    leaf = x.clone().requires_grad_(True)
    top = top_mask(share(leaf, False)[0].detach(), t)
    best, best_key = x, (t, 1.0)
    z = start
    for number in range(steps + 1):
        if number:
            leaf = z.clone().requires_grad_(True)
            with standfast.explainers.smooth_relu(10.0):
                _, mass, _ = share(leaf, True)
                (ascent,) = torch.autograd.grad(-(mass * top[0]).sum(), leaf)
            z = (z + step * ascent.sign()).clamp(x - radius, x + radius).clamp(0, 1)
        values, mass, logits = share(z.clone().requires_grad_(True), False)
        key = (int((top_mask(values.detach(), t) & top).sum()), (mass * top[0]).sum().item())
        # the radius is small enough for the class to hold throughout
        assert logits.argmax() == target
        if key < best_key:
            best, best_key = z, key
    return best


def test_the_attack_is_the_loop_written_out(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:3].inputs
    attack = AttributionAttack(
        standfast.LinfBall(0.05), "top_k:t=60", steps=8, step=0.01, restarts=1
    )
    generator = torch.Generator().manual_seed(4)
    seed = standfast.tensors.draw_seed(torch.Generator().manual_seed(4))
    result = attack(lenet, "input_x_gradient", x, generator=generator)
    region = standfast.LinfBall(0.05).around(x, (0.0, 1.0))
    starts = region.project(region.sample(1, region.streams(seed)))[:, 0]
    kept = standfast.similarity.get("topk_intersection:k=60")
    explainer = standfast.explainers.get("input_x_gradient")
    for row in range(3):
        slow = loop(lenet, x[row : row + 1], starts[row : row + 1], 60, 0.05, 0.01, 8)
        # signs of tiny gradients differ by the last bit of other kernels: a few pixels, not the outcome
        assert (slow[0] - result.inputs[row]).abs().gt(1e-4).float().mean() < 0.05
        before, after = (explainer(lenet, z).abs() for z in (x[row : row + 1], slow))
        assert kept(before, after)[0] == pytest.approx(
            kept(before, result.maps[row : row + 1].abs())[0].item(), abs=0.051
        )


def test_the_authors_attack_is_their_loop_written_out(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    """From the clean digit, where the share of mass on 300 positions is 1 and its gradient 0; Kendall's tau decides."""
    x, radius, step, steps, t = digits[:2].inputs, 0.05, 0.01, 5, 300
    attack = AttributionAttack(
        standfast.LinfBall(radius),
        f"top_k:t={t}",
        steps,
        step,
        2,
        ("kendall",),
        beta=10,
        protocol="authors",
    )
    seed = standfast.tensors.draw_seed(torch.Generator().manual_seed(4))
    result = attack(lenet, "input_x_gradient", x, generator=torch.Generator().manual_seed(4))
    assert result.model_evaluations.tolist() == [attack.cost().evaluations] * 2
    region = standfast.LinfBall(radius).around(x, (0.0, 1.0))
    signs = torch.where(region.streams(seed).uniform((2, *x.shape[1:]), x.dtype) < 0.5, 1.0, -1.0)

    def explain(z: Tensor, create_graph: bool = False) -> Tensor:
        (gradient,) = torch.autograd.grad(lenet.module(z)[0, target], z, create_graph=create_graph)
        return (z * gradient).abs().sum(1)

    for row in range(2):
        target = int(lenet.predict(x[row : row + 1]))
        clean = explain(x[row : row + 1].clone().requires_grad_(True)).detach()
        top = top_mask(clean, t)
        assert clean[~top].abs().max() == 0
        taus = [1.0]
        for start in range(2):
            z = x[row : row + 1]
            for number in range(steps):
                leaf = z.clone().requires_grad_(True)
                with standfast.explainers.smooth_relu(10.0):
                    mass = explain(leaf, create_graph=True)
                    (ascent,) = torch.autograd.grad(-(mass * top).sum() / mass.sum(), leaf)
                sign = signs[row, start] if number == 0 else ascent.sign()[0]
                z = (z + step * sign).clamp(x[row] - radius, x[row] + radius).clamp(0, 1)
                tau = scipy.stats.kendalltau(
                    clean.ravel().numpy(),
                    explain(z.clone().requires_grad_(True)).detach().ravel().numpy(),
                ).statistic
                taus += [tau] if lenet.predict(z) == target else []
        # the signs of tiny gradients depend on the last bit
        assert result.value[row].item() == pytest.approx(min(taus), abs=0.02)


def test_starts_share_the_sharpnesses_and_the_better_one_wins(
    lenet: standfast.Model, digits: standfast.data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    gradient = Probe.gradient

    def record(self: Probe, objective: Any, x: Tensor, *columns: Tensor, beta: float) -> Tensor:
        used.append((beta, len(x)))
        return gradient(self, objective, x, *columns, beta=beta)

    monkeypatch.setattr(Probe, "gradient", record)
    x = digits[:3].inputs
    for restarts, expected in ((1, [(10.0, 3)]), (3, [(10.0, 6), (30.0, 3)])):
        used.clear()
        metric = AttributionAttack(BALL, "top_k:t=60", steps=1, restarts=restarts)
        result = metric(lenet, "saliency", x)
        assert [(pytest.approx(beta), rows) for beta, rows in used] == expected
        assert result.model_evaluations.tolist() == [metric.cost().evaluations] * 3
    assert AttributionAttack(BALL, beta=[20]).beta == (20,)
    assert AttributionAttack(BALL).beta == (10.0, 30.0)


# what a result holds


@pytest.mark.parametrize("name", [*GUIDED, *BLIND])
def test_results_hold_what_they_say(
    name: str, lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:5].inputs
    y = lenet.predict(x)
    names = (
        "lens_precision:k=100,w=1",
        "topk_intersection:k=100",
        "kendall",
        "mse",
        "topk_intersection:k=60,diverse=true,w=1",
    )
    metric = AttributionAttack(
        standfast.LinfBall(0.1),
        name,
        steps=4,
        restarts=2,
        similarities=names,
        k=100,
        curve_k=(20, 100),
    )
    result = metric(lenet, "saliency", x, y)
    assert result.names == names
    assert (result.inputs - x).abs().max() <= 0.1 + 1e-6
    assert result.inputs.min() >= 0
    assert result.inputs.max() <= 1
    assert torch.equal(result.label_kept, lenet.predict(result.inputs) == y)
    saliency = standfast.explainers.get("saliency")
    before, after = saliency(lenet, x, y), saliency(lenet, result.inputs, y)
    assert torch.allclose(after, result.maps, atol=1e-5)
    for column, similarity in enumerate(names):
        expected = standfast.similarity.get(similarity)
        assert torch.allclose(
            result.similarities[:, column],
            expected(before[:, 0], result.maps[:, 0].abs()),
            atol=1e-5,
        )
        assert result.frame()[similarity].to_list() == result.similarities[:, column].tolist()
        level = expected.chance(before[:, 0], result.maps[:, 0].abs())
        if level is None:
            assert result.chance[:, column].isnan().all()
            assert name_chance(similarity) not in result.frame().columns
        else:
            # a draw may depend on the last bit
            assert torch.allclose(result.chance[:, column], level.value, atol=0.02)
            corrected = standfast.similarity.correct_for_chance(
                result.similarities[:, column], result.chance[:, column]
            )
            assert result.frame()[name_above_chance(similarity)].to_list() == corrected.tolist()
    assert torch.equal(result.value, result.similarities[:, 0])
    assert torch.equal(result.kept, result.similarities[:, 1])
    assert (result.kept <= result.kept_within_1).all()
    assert (result.kept_within_1 <= result.kept_within_2).all()
    assert torch.equal(result.profile.precision[:, 1, 0], result.similarities[:, 0])
    spent = 2 if name in BLIND else 1 + 2 * (2 * 4 + 1) + 2
    assert result.model_evaluations.tolist() == [spent] * 5
    assert metric.cost().evaluations == spent
    assert all(len(array) == 5 for array in result.tensors().values())


def test_random_signs_differ_and_universal_ones_do_not(lenet: standfast.Model) -> None:
    x = torch.full((3, 1, 28, 28), 0.5) + 0.01 * torch.arange(3).reshape(3, 1, 1, 1)
    region = standfast.LinfBall(0.1).around(x, (0.0, 1.0))
    universal, single = (attack.draw(region, 7) - x for attack in (Universal(), RandomSign()))
    for offset in (universal, single):
        assert torch.allclose(offset.abs(), torch.full_like(offset, 0.1), atol=1e-6)
        assert 0.4 < (offset > 0).float().mean() < 0.6
    assert torch.equal(universal[0] > 0, universal[1] > 0)
    assert 0.4 < ((single[0] > 0) == (single[1] > 0)).float().mean() < 0.6
    assert not torch.equal(Universal().draw(region, 8), Universal().draw(region, 7))


def test_a_wrong_prediction_is_skipped_and_counted(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:4].inputs
    y = lenet.predict(x)
    y[2] = (y[2] + 1) % 10
    result = AttributionAttack.example()(lenet, "saliency", x, y)
    assert result.status == ("ok", "ok", "misclassified", "ok")
    assert torch.equal(result.inputs[2], x[2])
    assert not result.found[2]


def test_the_class_is_kept_where_it_hangs_by_a_thread() -> None:
    """Lowering the mass lowers the logit; at the clean input it is 0.05 above the other class."""
    model, x = quadratic((1, 6, 6), floor=0.0)
    logits = model.logits(x)[:, 0]
    for row in range(3):
        model.module.floor = float(logits[row]) - 0.05
        metric = AttributionAttack(
            standfast.LinfBall(0.2), "top_k:t=20", steps=15, restarts=2, curve_k=(5,)
        )
        result = metric(model, "saliency", x[row : row + 1])
        assert result.label_kept.all()
        assert (result.margin < 0).all()
        assert result.found.all()


def test_a_lost_class_is_won_back() -> None:
    """The goal leads across the boundary of the class, which a search that cannot turn back leaves behind."""
    model, x = quadratic((1, 6, 6), floor=0.0)
    x = x[:1]
    maps = model.module.coefficients.detach() * x
    low = model.logits(torch.where(top_mask(maps[0], 30)[None], x - 0.1, x))[0, 0].item()
    model.module.floor = 0.5 * (low + model.logits(x)[0, 0].item())
    metric = AttributionAttack(
        standfast.LinfBall(0.1), "top_k:t=30", steps=40, step=0.01, restarts=1, curve_k=(5,)
    )
    found = metric(model, "saliency", x)
    # the optimum lies at the boundary of the class: the steps go to and fro across it, and end close to it
    assert -0.15 < found.margin[0] < 0
    assert mass_share(found.maps[:, 0].abs(), top_mask(maps[0], 30)) < 0.97 * mass_share(
        maps[0], top_mask(maps[0], 30)
    )


def test_nothing_is_found_where_nothing_moves() -> None:
    """A linear model has the same gradient everywhere, so no point is better than the clean input."""
    layer = nn.Linear(6, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.arange(1.0, 7.0), torch.zeros(6)]))
        layer.bias.zero_()
    model = standfast.Model(layer, (0.0, 1.0), device="cpu", batch_size=16)
    x = torch.full((2, 6), 0.5)
    result = AttributionAttack(
        standfast.LinfBall(0.1), "top_k:t=2", steps=3, restarts=2, curve_k=(2,)
    )(model, "saliency", x)
    assert result.status == ("ok", "ok")
    assert result.label_kept.all()
    assert not result.found.any()
    assert torch.equal(result.inputs, x)


def test_what_fits_no_map_is_refused_before_the_work(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    rows: list[int] = []
    lenet.check_repeatable(digits[:1].inputs)  # once for each module
    handle = lenet.module.register_forward_hook(lambda _, args, out: rows.append(len(out)))
    wrong: tuple[dict[str, Any], ...] = (
        {"similarities": ("topk_intersection:k=1000",)},
        {"attack": "top_k:t=1000"},
        {"k": 1000},
        {"curve_k": (5, 1000)},
    )
    for options in wrong:
        rows.clear()
        with pytest.raises(standfast.ArgumentError, match="^[a-z_]*k: expected .* got 1000"):
            AttributionAttack(**{"neighbourhood": BALL, "steps": 30, **options})(
                lenet, "saliency", digits[:1].inputs
            )
        assert sum(rows) <= 32
    handle.remove()


def test_constant_maps_are_degenerate_whatever_is_asked_for() -> None:
    layer = nn.Linear(6, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.ones(6), torch.zeros(6)]))
    model = standfast.Model(layer, (0.0, 1.0), device="cpu", batch_size=16)
    for first in ("mse", "pearson", "centre_of_mass", "lens_precision:k=2"):
        metric = AttributionAttack(BALL, "random_sign", similarities=(first,), k=2, curve_k=(2,))
        assert metric(model, "saliency", torch.full((2, 6), 0.5)).status == (
            "degenerate",
            "degenerate",
        )


def test_a_random_attack_may_lose_the_class() -> None:
    model, x = quadratic((1, 6, 6), floor=0.0)
    model.module.floor = float(model.logits(x)[:, 0].min()) - 1e-4
    results = [
        AttributionAttack(standfast.LinfBall(0.3), "random_sign", curve_k=(5,))(
            model, "saliency", x, generator=torch.Generator().manual_seed(seed)
        )
        for seed in range(8)
    ]
    kept = torch.stack([result.label_kept for result in results])
    assert kept.any()
    assert not kept.all()
    assert all(torch.equal(result.found, result.label_kept) for result in results)


def test_colour_images_and_series_are_compared_by_position() -> None:
    from conftest import small_net

    for shape in ((3, 8, 8), (2, 16)):
        model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)
        x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(2))
        for attack in ("top_k:t=4", "lens:k=4,w=1", "mass_centre", "target", "random_sign"):
            metric = AttributionAttack(
                BALL,
                attack,
                3,
                None,
                1,
                ("topk_intersection:k=4", "lens_recall:k=4,w=2"),
                k=4,
                curve_k=(4,),
            )
            result = metric(model, "saliency", x)
            before, after = (maps.abs().sum(1) for maps in (result.origin_maps, result.maps))
            assert torch.allclose(
                result.value, standfast.similarity.TopKIntersection(4)(before, after)
            )
            recall = standfast.similarity.LensRecall(4, 2)(before, after)
            assert torch.allclose(result.similarities[:, 1], recall)


def test_lens_goes_further_than_top_k(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    """Mass pushed out of the neighbourhood leaves less of it than mass pushed off the positions."""
    x = digits[:24].inputs
    found = {}
    for name in ("top_k:t=100", "lens:k=100,w=1"):
        metric = AttributionAttack(
            standfast.LinfBall(0.2),
            name,
            10,
            None,
            1,
            ("lens_recall:k=100,w=1", "lens_precision:k=100,w=1"),
        )
        found[name] = metric(lenet, "input_x_gradient", x).similarities.mean(1)
    better = found["top_k:t=100"] - found["lens:k=100,w=1"]
    assert better.mean() > 3 * better.std() / len(better) ** 0.5


# errors, names, studies


class Margin(standfast.similarity.Pearson):
    """Its name is a column of the result."""

    name = "margin"


class Mine(standfast.similarity.MSE):
    """A discrepancy that a report does not know."""

    name = "mine"


def test_options_are_checked() -> None:
    def make(**options: object) -> object:
        return AttributionAttack(**{"neighbourhood": BALL, **options})

    assert_refused(
        make,
        attack=["topk", 3],
        neighbourhood=[0.1, standfast.L2Ball(1.0)],
        steps=[0],
        restarts=[1.5],
    )
    assert_refused(make, step=[-1.0])
    assert_refused(
        make, similarities=[(), "pearson", ("pearson", "pearson"), (Margin(),), (Mine(),)]
    )
    assert_refused(
        make,
        k=[1.5],
        curve_k=[(0,)],
        curve_w=[(1.5,)],
        beta=[0.0, (10.0, -1.0), ()],
        protocol=["script"],
    )
    for attack in ("top_k:t=0", "lens:w=-1", "lens:alone=-1", "target:left=1.0", "target:width=0"):
        argument = attack.partition(":")[2].partition("=")[0]
        with pytest.raises(standfast.ArgumentError, match=f"^{argument}: expected"):
            make(attack=attack)
    with pytest.raises(standfast.ArgumentError, match="k"):
        make(similarities=("lens_precision:k=0",))


def test_what_cannot_be_differentiated_is_refused(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:1].inputs
    with pytest.raises(
        standfast.ArgumentError, match="attack: expected random_sign or universal, since"
    ):
        AttributionAttack.example()(lenet, "guided_backprop", x)
    assert AttributionAttack(BALL, "random_sign")(lenet, "guided_backprop", x).status == ("ok",)


def test_attacks_are_named() -> None:
    assert attribution_attacks.names() == sorted((*GUIDED, *BLIND))
    assert all(isinstance(get(name), attribution_attacks[name]) for name in (*GUIDED, *BLIND))
    assert get(TopK(3)) == TopK(3)
    assert dataclasses.replace(AttributionAttack.example(), attack=Lens(5, 2)).options()[
        "attack"
    ] == {
        "name": "lens",
        "k": 5,
        "w": 2,
        "alone": 0.3,
    }


def test_two_attacks_have_two_labels() -> None:
    from standfast.question.metric_labels import name_metrics

    attacks = [
        AttributionAttack(BALL, "top_k:t=5"),
        AttributionAttack(BALL, Lens(5, 2)),
        AttributionAttack(BALL, "top_k:t=9"),
    ]
    labels = [
        "attribution_attack: top_k",
        "attribution_attack: lens",
        "attribution_attack: top_k 2",
    ]
    assert list(name_metrics(attacks)) == labels


def test_what_leaves_the_value_alone() -> None:
    guided, blind = ({"attack": attack} for attack in ("top_k:t=5", {"name": "universal"}))
    assert not AttributionAttack.has_effect("k", guided)
    for option in ("steps", "step", "restarts", "beta", "protocol"):
        assert AttributionAttack.has_effect(option, guided)
        assert not AttributionAttack.has_effect(option, blind)
