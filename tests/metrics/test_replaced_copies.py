"""The engine of replaced copies: against copies made one by one, its accounts, and what it does with little memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import standfast
from conftest import small_net
from standfast.metrics import AOPC, CorruptionCurve, replaced_copies
from standfast.metrics.coarse_to_fine import replacement
from standfast.metrics.positions import (
    Unit,
    compute_relevance,
    count_positions,
    rank_with_random_ties,
)
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import (
    PerturbationCurves,
    ReplacedCopies,
    make_draw_keys,
    make_sample_keys,
    replace_positions,
)

SHAPES = {"grey": (1, 8, 9), "colour": (3, 8, 8), "series": (2, 17), "flat": (12,)}


def inputs(shape: tuple[int, ...], count: int = 4) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("unit", ["entry", "pixel"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_positions_are_replaced_and_nothing_else(shape: tuple[int, ...], unit: Unit) -> None:
    x, values = inputs(shape), -inputs(shape)
    generator = torch.Generator().manual_seed(2)
    replaced = torch.rand(4, count_positions(x, unit), generator=generator) < 0.3
    spread = (
        replaced.reshape(4, *shape) if unit == "entry" else replaced.reshape(4, *shape[1:] or shape)
    )
    spread = spread if spread.ndim == x.ndim else spread[:, None]
    for put in (values, torch.tensor(0.25)):
        found = replace_positions(x.clone(), replaced.to(x.dtype), put)
        assert torch.equal(found, torch.where(spread, put, x))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_curves_are_those_of_copies_made_one_by_one(
    shape: tuple[int, ...], batch_size: int
) -> None:
    x, orders, levels, draws = inputs(shape), 2, 3, 2
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=batch_size)
    positions = count_positions(x, "pixel")
    generator = torch.Generator().manual_seed(3)
    ranks = torch.stack(
        [
            torch.stack([torch.randperm(positions, generator=generator) for _ in x])
            for _ in range(orders)
        ]
    )
    counts = torch.tensor([[1, 3, positions]] * 4)
    wanted = torch.rand(4, orders, levels, generator=generator) < 0.6
    values = torch.rand(4, draws, *shape, generator=generator)
    rows = torch.tensor([3, 1, 0])
    with model.session():
        probe = Probe(Call(model, standfast.explainers.get("saliency"), x))
        curves = PerturbationCurves(
            ReplacedCopies(probe, x),
            positions=positions,
            ranks=lambda rows: ranks[:, rows].flatten(0, 1).float(),
            counts=counts,
            wanted=wanted,
            values=lambda rows, draws: values[rows, draws],
            draws=draws,
            score="probability",
        )
        parts = list(curves.scores(rows))
    assert torch.equal(torch.cat([part for part, _ in parts]), rows)
    found = torch.cat([scores for _, scores in parts])
    assert found.shape == (3, draws, orders, levels)
    for place, row in enumerate(rows.tolist()):
        for draw, order, level in torch.cartesian_prod(
            *map(torch.arange, (draws, orders, levels))
        ).tolist():
            score = found[place, draw, order, level]
            if not wanted[row, order, level]:
                assert score.isnan()
                continue
            copy = x[row].reshape(-1, positions).clone()
            for position in range(positions):
                if ranks[order, row, position] < counts[row, level]:
                    copy[:, position] = values[row, draw].reshape(-1, positions)[:, position]
            logits = model.logits(copy.reshape(1, *shape)).double()
            assert score.item() == pytest.approx(
                logits.softmax(1)[0, probe.targets[row]].item(), abs=1e-6
            )
    copies = draws * wanted.flatten(1).sum(1)
    copies[2] = 0
    assert torch.equal(probe.evaluations, 1 + copies)


def test_copies_that_are_not_finite_are_counted() -> None:
    class Picky(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).masked_fill((x[:, :1] == 0), torch.nan)

    torch.manual_seed(0)
    model, x = standfast.Model(Picky(3, 2), (0.0, 1.0), device="cpu"), inputs((3,), 2)
    with model.session():
        probe = Probe(Call(model, standfast.explainers.get("saliency"), x))
        found = ReplacedCopies(probe, x).scores(
            lambda logits, owner, which: probe.measure_score(logits, owner, "logit"),
            lambda owner, which: (which, torch.tensor(0.0)),
            torch.tensor([0, 1, 1]),
            torch.eye(3)[[0, 1, 0]],
        )
    assert found.isnan().tolist() == [True, False, True]
    assert probe.common_fields(standfast.metrics.AOPC())["nonfinite"].tolist() == [1, 1]


METRICS = [AOPC(steps=16, samples=3), CorruptionCurve(fractions=(0.1, 0.29, 0.55, 1.0), samples=3)]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_noise_belongs_to_the_sample_and_the_seed_and_not_to_the_explainer(
    metric: AOPC | CorruptionCurve,
) -> None:
    model, x = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu"), inputs((1, 8, 8), 5)

    def doubled(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * standfast.explainers.get("saliency")(model, x, targets)

    one = metric(model, "saliency", x)
    two = metric(model, standfast.explainers.from_callable(doubled, name="doubled"), x)
    assert torch.equal(one.value, two.value)  # the same order and the same noise: the same bits
    assert torch.equal(one.std_error, two.std_error)
    other = metric(model, "random", x)
    assert torch.equal(one.noise_key, other.noise_key)
    assert not torch.equal(one.value, other.value)
    moved = metric(model, "saliency", x, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(moved.noise_key, one.noise_key)
    assert not torch.equal(moved.value, one.value)
    assert "noise_key" in one.tensors()
    assert "noise_key" not in one.frame().columns


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("shape", [SHAPES["colour"], SHAPES["flat"]])
def test_chunks_change_no_bit(
    metric: AOPC | CorruptionCurve, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu"), inputs(shape, 6)
    whole = metric(model, "input_x_gradient", x)
    for elements, copies in ((1, 1 << 20), (1 << 21, 1), (7 * x[0].numel(), 31)):
        monkeypatch.setattr(replacement, "_ELEMENTS", elements)
        monkeypatch.setattr(replaced_copies, "_ELEMENTS", elements)
        monkeypatch.setattr(replaced_copies, "_COPIES", copies)
        found = metric(model, "input_x_gradient", x)
        assert torch.equal(found.value, whole.value)
        assert torch.equal(found.std_error, whole.std_error)


class Greedy(nn.Linear):
    """Runs out of memory above some number of rows, as a GPU would."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


def test_rows_are_numbers_of_copies_and_memory_is_counted_in_inputs() -> None:
    torch.manual_seed(0)
    model = standfast.Model(Greedy(4, 3), (0.0, 1.0), device="cpu")
    x, owner = inputs((4,), 2), torch.arange(300) % 2
    seen = []

    def forward(owner: torch.Tensor) -> tuple[torch.Tensor]:
        logits = model.forward(x[owner])  # fails where there are too many
        seen.append(len(owner))
        return (logits,)

    with torch.no_grad(), model.session(), pytest.warns(UserWarning, match="memory ran out"):
        (found,) = model.map_rows(forward, owner, like=x)
    assert torch.equal(found, model.logits(x)[owner])
    assert max(seen) <= 20
    assert [key for key, _ in model._budgets] == [(4,)]


def test_keys_depend_on_content_seed_and_draw() -> None:
    x = inputs((3, 8), 3)
    x[2] = x[0]
    keys = make_sample_keys(x, 5)
    assert keys[0] == keys[2] != keys[1]
    assert (keys != make_sample_keys(x, 6)).all()
    draws = make_draw_keys(keys, 4)
    assert len(draws[:2].unique()) == 8
    assert torch.equal(make_draw_keys(keys, 2), draws[:, :2])


def test_relevance_of_pixels_is_summed_over_channels() -> None:
    maps = inputs((3, 4, 5)) - 0.5
    assert torch.equal(compute_relevance(maps, "entry"), maps.flatten(1))
    assert torch.allclose(compute_relevance(maps, "pixel"), maps.sum(1).flatten(1))
    flat = inputs((7,))
    assert torch.equal(compute_relevance(flat, "entry"), compute_relevance(flat, "pixel"))


def test_ranks_put_nan_last_whatever_the_key() -> None:
    scores = torch.tensor([[torch.nan, -torch.inf, 2.0, 1.0]]).expand(50, -1)
    ranks = rank_with_random_ties(scores, make_sample_keys(torch.arange(50.0)[:, None], 0))
    assert (ranks[:, 2] == 0).all()
    assert (ranks[:, 3] == 1).all()
    assert set(ranks[:, :2].flatten().tolist()) == {2, 3}
