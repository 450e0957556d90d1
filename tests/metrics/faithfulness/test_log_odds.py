"""Log-odds score: a slow re-implementation, linear models in closed form, which samples count, what a study shows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from conftest import small_net
from standfast.metrics import LogOdds, LogOddsResult
from standfast.metrics.faithfulness import log_odds

SHAPES = {"grey": (1, 8, 9), "colour": (3, 8, 8), "series": (2, 17), "flat": (12,)}


def model(shape: tuple[int, ...], batch_size: int = 64) -> standfast.Model:
    return standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=batch_size)


def inputs(shape: tuple[int, ...], count: int = 4) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def linear(weights: torch.Tensor, bias: torch.Tensor) -> standfast.Model:
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.bias.copy_(bias)
    return standfast.Model(layer, (0.0, 1.0), device="cpu", batch_size=64)


def slowly(
    model: standfast.Model,
    explainer: str,
    x: torch.Tensor,
    other: int,
    fraction: float,
    baseline: float,
) -> tuple[float, float, set[int]]:
    """Log-odds of the sample `(1, ...)` and of the erased one, and which places were erased."""
    own = int(model.predict(x))
    of = {
        c: standfast.explainers.get(explainer)(model, x, c)[0].double().numpy()
        for c in (own, other)
    }
    difference = of[own] - of[other]
    flat = difference if difference.ndim == 1 else difference.reshape(len(difference), -1).sum(0)
    allowed = max(1, round(fraction * len(flat)))
    gone: set[int] = set()
    for place in sorted(range(len(flat)), key=lambda place: -flat[place]):
        if flat[place] > 0 and len(gone) < allowed:
            gone.add(place)
    erased = x[0].numpy().copy()
    view = erased.reshape(-1, len(flat))  # channels by places; one channel of flat features
    for place in gone:
        view[:, place] = baseline
    odds = []
    for each in (x[0], torch.from_numpy(erased)):
        p = model.logits(each[None])[0].double().softmax(0)
        odds.append(math.log(p[own]) - math.log(p[other]))
    return odds[0], odds[1], gone


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("explainer", ["input_x_gradient", "integrated_gradients"])
@pytest.mark.parametrize(
    "metric",
    [LogOdds(), LogOdds(fraction=0.5, baseline=0.3), LogOdds(fraction=0.001)],
    ids=["default", "half, grey", "one"],
)
def test_the_score_written_out(metric: LogOdds, explainer: str, shape: tuple[int, ...]) -> None:
    network, x = model(shape), inputs(shape)
    found = metric(network, explainer, x)
    second = network.logits(x).argsort(dim=1)[:, -2]
    assert torch.equal(found.towards[:, 0], second)
    for row in range(len(x)):
        before, after, gone = slowly(
            network,
            explainer,
            x[row : row + 1],
            int(second[row]),
            metric.fraction,
            float(metric.baseline or 0.0),  # type: ignore[arg-type]
        )
        assert set(found.erased_pixels[row, 0].flatten().nonzero()[:, 0].tolist()) == gone
        assert found.before[row, 0].item() == pytest.approx(before, abs=1e-5)
        assert found.after[row, 0].item() == pytest.approx(after, abs=1e-5)
        assert found.value[row].item() == pytest.approx(before - after, abs=1e-5)
        assert found.erased[row].item() == pytest.approx(len(gone) / math.prod(shape[1:] or shape))
        assert found.converted[row].item() == float(after < 0)
    assert found.model_evaluations.tolist() == [3] * 4


def test_a_linear_model_in_closed_form_and_no_other_choice_is_better() -> None:
    generator = torch.Generator().manual_seed(2)
    weights, x = torch.randn(4, 6, generator=generator), torch.rand(50, 6, generator=generator)
    model = linear(weights - weights.mean(1, keepdim=True), torch.zeros(4))
    weights = model.module.weight.detach()
    pairs = tuple(itertools.permutations(range(4), 2))
    found = LogOdds(pairs=pairs, fraction=0.5)(model, "input_x_gradient", x)
    own = model.predict(x).tolist()
    assert len(set(own)) >= 3
    for row, column in itertools.product(range(50), range(len(pairs))):
        first, other = pairs[column]
        value = found.per_pair[row, column].item()
        if first != own[row]:
            assert math.isnan(value)
            assert found.towards[row, column] == -1
            continue
        owed = ((weights[first] - weights[other]) * x[row]).double().numpy()
        top = np.sort(owed)[::-1][:3]
        assert value == pytest.approx(top[top > 0].sum(), abs=1e-5)
        every = [sum(owed[list(c)]) for n in range(4) for c in itertools.combinations(range(6), n)]
        assert value == pytest.approx(max(every), abs=1e-5)
    torch.testing.assert_close(found.value, found.per_pair.nanmean(1))
    assert found.model_evaluations.tolist() == [7] * 50


def test_only_the_pairs_first_classes_have_a_value(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:40].inputs
    predicted = lenet.predict(x)
    found = LogOdds(preset="paper")(lenet, "input_x_gradient", x)
    assert found.status == ("ok",) * 40
    belongs = torch.stack([predicted == c for c in (8, 8, 9, 4)], 1)
    assert belongs.any(0).all()
    assert torch.equal(found.per_pair.isfinite(), belongs)
    assert torch.equal(found.towards, torch.where(belongs, torch.tensor([3, 6, 1, 1]), -1))
    assert torch.equal(found.value.isfinite(), belongs.any(1))
    eights = predicted == 8
    torch.testing.assert_close(found.value[eights], found.per_pair[eights, :2].mean(1))
    assert found.erased[belongs.any(1)].max() <= 157 / 784  # as in the paper
    assert found.model_evaluations.tolist() == (1 + 2 * belongs.sum(1)).tolist()
    frame = found.frame()
    columns = ["log_odds_8_3", "log_odds_8_6", "log_odds_9_1", "log_odds_4_1"]
    assert set(columns) <= set(frame.columns)
    assert LogOdds.value_spec(found.options).select_valid(frame).height == int(belongs.any(1).sum())
    np.testing.assert_array_equal(frame.select(columns).to_numpy(), found.per_pair.numpy())
    wrong = LogOdds(preset="paper")(lenet, "input_x_gradient", x, (predicted + 1) % 10)
    assert wrong.status == ("misclassified",) * 40
    assert wrong.value.isnan().all()
    assert (wrong.towards == -1).all()


def test_maps_of_the_model_beat_random_pixels(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:60].inputs
    found = {
        name: LogOdds(preset="paper")(lenet, name, x)
        for name in ("integrated_gradients", "deeplift", "random", "centre")
    }
    median = {name: float(result.value.nanmedian()) for name, result in found.items()}
    assert median["integrated_gradients"] > median["random"] + 2
    assert median["deeplift"] > median["random"] + 2
    counted = found["random"].value.isfinite()
    for name in ("random", "centre"):  # they ignore the class, and erase as much as is allowed
        assert found[name].status == ("ok",) * 60
        assert (found[name].erased[counted] == 157 / 784).all()
    pixels = found["centre"].erased_pixels[counted].any(1)
    assert pixels[:, 8:20, 8:20].all()
    assert not pixels[:, :6].any()
    again = LogOdds(preset="paper")(lenet, "random", x)
    assert torch.equal(again.value.nan_to_num(), found["random"].value.nan_to_num())


def test_chunks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES["colour"]
    x, metric = (
        inputs(shape, 9),
        LogOdds(pairs=tuple(itertools.permutations(range(4), 2)), fraction=0.3),
    )

    def values(model: standfast.Model, x: torch.Tensor) -> torch.Tensor:
        result = metric(model, "integrated_gradients", x)
        assert isinstance(result, LogOddsResult)
        return torch.cat((result.per_pair, result.erased_pixels.flatten(1)), 1).nan_to_num(nan=-7.0)

    whole = values(model(shape), x)
    for elements in (1, 5 * x[0].numel()):
        monkeypatch.setattr(log_odds, "_ELEMENTS", elements)
        assert torch.equal(values(model(shape), x), whole)


def test_equal_differences_are_broken_by_the_sample_and_the_seed() -> None:
    def halves(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of class 0, 1 on the left; of all others, 0 everywhere."""
        left = torch.zeros_like(x)
        left[..., : x.shape[-1] // 2] = 1.0
        return left * (targets == 0).to(x.dtype)[:, None, None, None]

    net = linear(torch.zeros(2, 64), torch.tensor([1.0, 0.0])).module
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), net), (0.0, 1.0), device="cpu", batch_size=64
    )
    x, metric = inputs((1, 8, 8), 40), LogOdds(pairs=((0, 1),), fraction=0.25)

    def gone(name: str, seed: int) -> torch.Tensor:
        explainer = standfast.explainers.from_callable(halves, name=name)
        found = metric(model, explainer, x, generator=torch.Generator().manual_seed(seed))
        assert (found.erased == 0.25).all()
        return found.erased_pixels[:, 0]

    first = gone("a", 0)
    assert not first[..., 4:].any()
    assert torch.equal(first, gone("b", 0))
    assert not torch.equal(first, gone("a", 1))
    shares = first.double().mean(0)[:, :4]
    # a half on average; by position it would be 1 in the first rows and 0 in the others
    assert shares.min() > 0.2
    assert shares.max() < 0.8


def test_maps_that_tell_nothing_or_are_not_finite() -> None:
    network, x = model((1, 8, 8)), inputs((1, 8, 8), 12)
    own = network.predict(x)
    kind = int(own.mode().values)
    others = [c for c in range(4) if c != kind]
    pairs = tuple((kind, c) for c in others)

    def explain(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        maps = x + targets[:, None, None, None] * x.square()
        maps[targets == others[0]] = torch.nan
        # differs by a constant
        maps[targets == others[1]] = (x + kind * x.square() - 3)[targets == others[1]]
        return maps

    explainer = standfast.explainers.from_callable(explain, name="odd")
    found = LogOdds(pairs=pairs)(network, explainer, x, torch.full((12,), kind))
    rows = own == kind
    assert rows.sum() >= 2
    assert [s for s, r in zip(found.status, rows.tolist(), strict=True) if r] == ["ok"] * int(
        rows.sum()
    )
    assert found.per_pair[rows][:, :2].isnan().all()
    assert found.after[rows][:, :2].isnan().all()
    assert found.per_pair[rows][:, 2].isfinite().all()
    assert torch.equal(found.value[rows], found.per_pair[rows][:, 2])
    assert (found.nonfinite[rows] == 1).all()
    assert (found.degenerate[rows] == 1).all()
    assert not found.erased_pixels[rows][:, :2].any()
    blind = standfast.explainers.from_callable(lambda module, x, targets: x, name="blind")
    for pairs_ in (pairs, None):
        same = LogOdds(pairs=pairs_)(network, blind, x)
        assert all(s == "degenerate" for s, r in zip(same.status, rows.tolist(), strict=True) if r)
        assert same.value[rows].isnan().all()


def test_errors_of_options() -> None:
    assert_refused(
        LogOdds,
        pairs=[(), ((8, 8),), ((8, 3, 1),), ((8, -3),), ((True, False),), 8],
        fraction=[0.0, True],
    )
    assert_refused(LogOdds, baseline=["black"])
    with pytest.raises(standfast.ArgumentError, match="each once, got"):
        LogOdds(pairs=((8, 3), (8, 3)))


def test_errors_of_the_call() -> None:
    def measure(**options: Any) -> LogOddsResult:
        return LogOdds(**options)(model((3, 8, 8)), "saliency", inputs((3, 8, 8)))

    assert_refused(measure, pairs=[((8, 3),)], baseline=[-1.0, (0.0, 1.0)])
    assert measure(baseline=(0.0, 0.5, 1.0)).value.isfinite().all()


def test_a_file_spells_pairs_as_lists() -> None:
    from standfast.study.file.options import configure

    metric = configure(LogOdds, "log_odds", {"pairs": [[8, 3], [4, 1]], "fraction": 0.1})
    assert metric == LogOdds(pairs=((8, 3), (4, 1)), fraction=0.1)
    plain = {"pairs": [[8, 3], [4, 1]], "fraction": 0.1, "baseline": None}
    assert metric.options() == {"preset": "standard", **plain}
    assert configure(LogOdds, "log_odds", {"pairs": None}).pairs is None
