"""Reasons against known probabilities, and against a loop over draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.metrics import Reasons
from standfast.metrics.probe import Call
from standfast.metrics.reasons.draws import (
    Draws,
    draw_settings,
    draws_numbers,
    list_possible,
    number_model,
    redraw_background,
    reseed,
)
from standfast.metrics.reasons.places import mark_first
from standfast.neighbourhoods import LinfBall
from standfast.statistics.proportions import proportion_interval
from standfast.study.identity import Description
from standfast.tensors import draw_seed

ROWS = torch.rand(3, 5, generator=torch.Generator().manual_seed(0)).double()


def make_linear(weights: list[float]) -> standfast.Model:
    """A model whose class 1 has these weights, and whose class 0 has none."""
    layer = nn.Linear(len(weights), 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * len(weights), weights]))
        layer.bias.copy_(torch.tensor([0.0, 5.0]))
    return standfast.Model(layer, (-10.0, 10.0), device="cpu")


def explain_by(maps: Callable[[], list[float]]) -> Any:
    """An explainer whose map is that of a function, for every input of its own."""

    def explain(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.tensor([maps() for _ in inputs], dtype=inputs.dtype)

    return explain


def swap_sometimes() -> list[float]:
    """The third feature is behind the fourth one in three of ten draws, and the second turns its sign in one of ten."""
    third = 0.5 if float(torch.rand(())) < 0.3 else 1.5
    second = -2.0 if float(torch.rand(())) < 0.1 else 2.0
    return [3.0, second, third, 1.0, 0.1]


def test_probabilities_are_those_of_a_known_explainer() -> None:
    torch.manual_seed(0)  # of the clean maps, one of which is to be the usual one
    result = Reasons(top=3, draws=400, demand=0.9)(
        make_linear([1.0] * 5), explain_by(swap_sometimes), ROWS
    )
    assert bool(result.varied_seed.all())
    kept = result.answer_kept.double()
    named = (result.named_for / kept[:, None]).numpy()
    for row in range(len(ROWS)):
        if result.origin_map[row, 1] > 0 and result.origin_map[row, 2] > 1:
            assert named[row, 0] == 1.0
            assert named[row, 1] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / kept[row].item()))
            assert named[row, 2] == pytest.approx(0.7, abs=4 * np.sqrt(0.21 / kept[row].item()))
            assert result.value[row].item() == pytest.approx(
                0.63, abs=4 * np.sqrt(0.24 / kept[row].item())
            )
            break
    else:
        pytest.fail("no row has the usual map")


def test_draws_end_when_all_reasons_are_decided() -> None:
    sure = explain_by(lambda: [5.0, 4.0, 3.0 + float(torch.rand(())), 1.0, 0.1])
    result = Reasons(top=3)(make_linear([1.0] * 5), sure, ROWS)
    assert result.holding.tolist() == [3, 3, 3]
    assert result.looks.tolist() == [1, 1, 1]
    assert result.value.tolist() == [1.0, 1.0, 1.0]
    assert result.drawn.max().item() < 60
    doubtful = explain_by(lambda: [5.0, 4.0, 3.0 * float(torch.rand(())), 1.0, 0.1])
    decided = Reasons(top=3)(make_linear([1.0] * 5), doubtful, ROWS)
    third = decided.origin_map[:, 2] > 1
    assert decided.falling[third].tolist() == [1] * int(third.sum())
    assert decided.holding[third].tolist() == [2] * int(third.sum())


def test_a_reason_that_held_at_the_first_look_is_not_taken_back() -> None:
    """The first feature is missed only behind the draws of the first look; the second is doubtful."""
    draws = 0

    def name_less_often(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal draws
        draws += 1
        first_fails, second_fails = (torch.rand(2) < torch.tensor([0.3, 0.1])).tolist()
        first = 0.01 if first_fails and draws > 45 else 5.0
        second = 0.01 if second_fails and draws > 5 else 4.0
        return torch.tensor([[first, second, 1.0, 0.5, 0.1]] * len(inputs), dtype=inputs.dtype)

    result = Reasons(top=2, draws=200)(make_linear([1.0] * 5), name_less_often, ROWS[:1])
    assert result.looks.item() > 2
    assert result.named_for[0, 0].item() / result.answer_kept.item() < 0.9
    assert (result.holding.item(), result.falling.item()) == (1, 0)
    assert result.named_low is not None
    assert result.named_high is not None
    assert result.named_low[0, 0].item() >= 0.9
    assert result.named_low[0, 1].item() < 0.9 <= result.named_high[0, 1].item()
    assert result.named_low[0, 2:].tolist() == [0.0] * 3


def test_only_results_of_several_looks_have_another_version() -> None:
    several = (Reasons(), Reasons(top=4), Reasons(draws=50))
    once = (Reasons(draws=31), Reasons(draws=4), Reasons(top=30))
    assert [metric.revision for metric in (*several, *once)] == [2, 2, 2, 1, 1, 1]


def test_nothing_varies_without_a_source() -> None:
    result = Reasons()(make_linear([4.0, 3.0, 2.0, 1.0, 0.5]), "saliency", ROWS)
    assert result.status == ("ok",) * 3
    assert bool(result.value.isnan().all())
    assert result.drawn.tolist() == [0, 0, 0]
    assert not bool(
        result.varied_seed.any() | result.varied_background.any() | result.varied_measurement.any()
    )


def test_a_loop_over_draws_gives_the_same_counts() -> None:
    model = standfast.Model(small_net((6,)), (0.0, 1.0), device="cpu")
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(1))
    metric = Reasons(LinfBall(0.2), top=2, draws=25)
    result = metric(model, "smoothgrad:samples=3", x, generator=torch.Generator().manual_seed(3))
    explainer = standfast.explainers.get("smoothgrad", samples=3)
    targets = model.predict(x)
    origin = explainer(model, x, targets)
    region = metric.neighbourhood.around(x, model.bounds)  # type: ignore[union-attr]
    same = np.zeros(2)
    kept = np.zeros(2)
    seed = draw_seed(torch.Generator().manual_seed(3))
    for setting in draw_settings(seed, ["seed", "measurement"], range(25), number_model(model)):
        copies = region.sample(1, region.streams(setting.measurement))[:, 0]
        maps = reseed(explainer, setting.seed)(model, copies, targets)
        stays = (model.predict(copies) == targets).numpy()
        for row in range(2):
            first = [
                set(np.argsort(-np.abs(each[row].numpy()))[:2].tolist()) for each in (origin, maps)
            ]
            signs = all(maps[row][f].sign() == origin[row][f].sign() for f in first[0])
            kept[row] += stays[row]
            same[row] += stays[row] and first[0] == first[1] and signs
    assert result.answer_kept.tolist() == kept.tolist()
    assert result.value.tolist() == pytest.approx((same / kept).tolist())


def test_draws_that_change_the_answer_do_not_count() -> None:
    model = make_linear([4.0, 3.0, 2.0, 1.0, 0.5])
    x = torch.tensor([[0.0, 0.0, 0.0, 0.0, -9.9]]).double()  # its margin is 0.05
    result = Reasons(LinfBall(0.05), top=2, draws=30)(model, "saliency", x)
    assert 0 < result.answer_kept.item() < result.drawn.item() == 30
    assert result.value.item() == 1.0  # the map of a linear model is the same everywhere


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 3)])
def test_samples_do_not_depend_on_each_other(rows: slice) -> None:
    model = standfast.Model(small_net((5,)), (0.0, 1.0), device="cpu")
    x = ROWS.float()
    metric = Reasons(LinfBall(0.3), top=2, draws=30)
    whole, part = (metric(model, "smoothgrad:samples=3", inputs) for inputs in (x, x[rows]))
    assert whole.value[rows].tolist() == part.value.tolist()
    assert torch.equal(whole.named_for[rows], part.named_for)


def test_no_draw_is_made_twice() -> None:
    every = [
        setting
        for varied in (
            ["seed"],
            ["background"],
            ["seed", "background"],
            ["seed", "background", "measurement"],
        )
        for setting in draw_settings(7, varied, range(200))  # type: ignore[arg-type]
    ]
    numbers = [number for setting in every for number in setting if number]
    assert len(set(numbers)) == len(numbers)


def test_features_that_share_the_last_place_are_out_of_a_table_and_in_of_an_image() -> None:
    sizes = torch.tensor([[3.0, 2.0, 2.0 + 1e-9, 1.0], [1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 0.0, 0.0]])
    assert mark_first(sizes, 2, False).sum(1).tolist() == [1, 0, 1]
    assert mark_first(sizes, 2, True).sum(1).tolist() == [3, 4, 1]
    assert mark_first(sizes, 4, False).sum(1).tolist() == [4, 4, 1]


def test_a_constant_map_names_nothing() -> None:
    result = Reasons(top=2)(make_linear([1.0] * 5), explain_by(lambda: [1.0] * 5), ROWS)
    assert result.status == ("degenerate",) * 3


def test_speaking_for_leaves_out_what_speaks_against() -> None:
    maps = explain_by(lambda: [-5.0, 4.0, 3.0, -2.0, 1.0 + float(torch.rand(()))])
    result = Reasons(top=2, speaking="for", draws=20)(make_linear([1.0] * 5), maps, ROWS)
    assert result.named_for[0].tolist() == [0, 20, 20, 0, 0]
    assert result.named_against[0].tolist() == [0] * 5


def test_small_references_and_rows_of_the_explainer_are_drawn_with_replacement() -> None:
    few = torch.arange(20.0).reshape(10, 2).double()
    model = standfast.Model(nn.Linear(2, 2).double(), (-30.0, 30.0), device="cpu", reference=few)
    drawn = model.with_background(1).reference
    assert drawn is not None
    assert drawn.rows.shape == (10, 2)
    assert len(drawn.rows.unique(dim=0)) < 10
    own = redraw_background(standfast.explainers.KernelSHAP(background=few), 3).background
    assert {tuple(row) for row in own.inputs.tolist()} < {tuple(row) for row in few.tolist()}


def test_the_share_of_a_region_is_the_value_of_an_image() -> None:
    digits = standfast.data.bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    result = Reasons(LinfBall(0.05), draws=20)(model, "saliency", digits.inputs)
    marked = result.origin_map.abs() >= result.origin_map.abs().topk(78, dim=1).values[:, -1:]
    shares = (result.named_for + result.named_against).double() / 20
    expected = (shares * marked).sum(1) / marked.sum(1)
    assert result.value.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert bool(((result.low < result.value) & (result.value < result.high)).all())


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"demand": 1.0}, "demand"),
        ({"vary": "weather"}, "vary"),
        ({"vary": ()}, "vary"),
        ({"speaking": "x"}, "speaking"),
    ],
)
def test_options_are_checked(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(standfast.ArgumentError, match=argument):
        Reasons(**options)


def test_models_do_not_share_their_draws() -> None:
    """A changed input in which a reason falls makes it fall in every model with these weights, were it the same."""
    models = [make_linear([1.0, 1.0 + small, 1.0, 1.0, 1.0]) for small in (0.0, 1e-6)]
    metric = Reasons(LinfBall(0.3), top=2, draws=4)
    maps = [metric(model, "input_x_gradient", ROWS).draw_maps for model in (*models, models[0])]
    assert maps[0] is not None
    assert maps[1] is not None
    assert maps[2] is not None
    assert torch.equal(maps[0], maps[2])
    assert float((maps[0] - maps[1]).abs().amin(2).median()) > 1e-3


def test_estimators_are_told_apart_by_their_answers() -> None:
    def make_black_box(slope: float) -> standfast.Model:
        def predict(rows: Any) -> Any:
            risk = 1 / (1 + np.exp(-slope * rows.sum(1)))
            return np.stack([1 - risk, risk], axis=1)

        reference = torch.linspace(0, 1, 50).reshape(10, 5)
        return standfast.Model.from_callable(predict, (0.0, 1.0), reference=reference)

    numbers = [number_model(make_black_box(slope)) for slope in (1.0, 1.0, 1.1)]
    assert numbers[0] == numbers[1] != numbers[2]


def test_a_source_beside_which_nothing_differs_is_not_drawn_again() -> None:
    """What it does alone is what all sources do; beside another source its draws are the usual ones."""
    model = standfast.Model(small_net((6,)), (0.0, 1.0), device="cpu")
    inputs = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"top": 3, "draws": 20, "vary": ("measurement",)}
    beside = Reasons(LinfBall(0.05), only_beside=True, **options)
    single = beside(model, "saliency", inputs)
    assert single.drawn.tolist() == [0, 0]
    assert bool(single.value.isnan().all())
    assert not bool(single.varied.any())
    both = beside(model, "smoothgrad:samples=2", inputs)
    usual = Reasons(LinfBall(0.05), **options)(model, "smoothgrad:samples=2", inputs)
    assert both.drawn.tolist() == usual.drawn.tolist()
    assert torch.equal(both.value, usual.value)
    assert torch.equal(both.draw_maps, usual.draw_maps)
    assert not bool(both.varied_seed.any())  # it was tried, and is not drawn


def test_what_differs_beside_is_asked_of_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input has the same draws alone and in a batch with one that has another background."""
    model = standfast.Model(small_net((6,)), (0.0, 1.0), device="cpu")
    inputs = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    metric = Reasons(LinfBall(0.05), top=3, draws=20, vary=("measurement",), only_beside=True)

    def tell(draws: Draws, rows: Tensor) -> Tensor:
        return torch.isclose(draws._call.inputs[rows, 0], inputs[0, 0])

    monkeypatch.setattr(Draws, "_has_background", tell)
    together = metric(model, "saliency", inputs)
    assert together.drawn.tolist() == [20, 0]
    assert together.varied.tolist() == [True, False]
    apart = [metric(model, "saliency", inputs[row : row + 1]) for row in range(2)]
    assert [result.drawn.item() for result in apart] == [20, 0]
    assert torch.equal(together.draw_maps[0], apart[0].draw_maps[0])


def test_explainers_of_ours_draw_numbers_by_a_seed_alone() -> None:
    """So one without a seed is not tried: a generator that it used would be a source that the card leaves out."""
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu")
    inputs = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    targets = model.predict(inputs)
    tried: list[str] = []
    for name in standfast.explainers.names():
        explainer = standfast.explainers.get(name)
        if "seed" in list_possible(explainer, model, is_measured=True):
            continue
        call = Call(model, explainer, inputs, targets)
        try:
            with model.naming(inputs), model.session():
                has_drawn = draws_numbers(call, targets, 0)
        except standfast.errors.StandfastError:
            continue  # it explains another kind of model
        assert not has_drawn, name
        tried.append(name)
    assert len(tried) >= 12
    # a function of the user may use any generator
    function = standfast.explainers.from_callable(explain_by(swap_sometimes))
    assert "seed" in list_possible(function, model, is_measured=False)


def test_a_card_of_one_source_costs_its_draws_alone() -> None:
    digits = standfast.data.bundled("digits")[:1]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    options: dict[str, Any] = {"measurement": LinfBall(0.02), "top": 4, "draws": 40}
    found = standfast.reasons(model, "saliency", digits, progress=False, **options)
    drawn = found.results.samples.group_by("label").agg(pl.col("drawn").sum())
    assert dict(drawn.iter_rows()) == {"reasons": 40}
    assert found.card().alone == ()
    of_random = standfast.reasons(model, "smoothgrad:samples=2", digits, progress=False, **options)
    drawn = of_random.results.samples.group_by("label").agg(pl.col("drawn").sum())
    assert dict(drawn.iter_rows()) == {
        "reasons": 40,
        "reasons: seed": 40,
        "reasons: measurement": 40,
    }
    assert [alone.source for alone in of_random.card().alone] == ["seed", "measurement"]


def test_an_interval_of_models_holds_where_the_measurement_alone_matters() -> None:
    """A reason that falls in one of five changed inputs, whatever the model: 40 models with 2 draws cover this."""
    inputs = torch.tensor([[0.5, 0.5]]).double()
    metric = Reasons(LinfBall(0.5), top=1, draws=2)
    hits: list[int] = []
    for number in range(40):
        result = metric(make_linear([1.0, 0.6 + 1e-4 * number]), "input_x_gradient", inputs)
        hits.append(int(result.named_for[0, 0]))
    # the first product is the larger one if u > 0.6 v, for u and v that are uniform: in 70%
    low, high = proportion_interval(sum(hits), 80, 0.999)
    assert low < 0.7 < high
    assert set(hits) == {0, 1, 2}


def test_of_many_reasons_an_unrelated_map_names_a_part() -> None:
    generator = torch.Generator().manual_seed(0)
    maps, others = torch.randn(2, 200, 1, 20, 20, generator=generator)
    found = Reasons(top=40).compare_unrelated(maps, others)
    assert found is not None
    # a tenth of the places, half of the signs
    assert float(found.mean()) == pytest.approx(0.05, abs=0.01)
    same = Reasons(top=40).compare_unrelated(maps, maps)
    assert same is not None
    assert bool((same == 1).all())


def test_the_seed_of_an_adapter_counts_only_if_the_package_draws() -> None:
    """Every adapter has a seed; a function without random numbers has none to vary."""

    def explain(module: nn.Module, inputs: Any, targets: Any, noise: float = 0.0) -> Any:
        last = 1.0 + (noise and noise * np.random.rand())  # noqa: NPY002
        return np.array([[5.0, 4.0, 3.0, 2.0, last]] * len(inputs))

    fixed, noisy = (standfast.explainers.from_quantus(explain, noise=noise) for noise in (0.0, 1.0))
    model = make_linear([1.0] * 5)
    assert not Reasons(draws=5)(model, fixed, ROWS).varied_seed.any()
    assert Reasons(draws=5)(model, noisy, ROWS).varied_seed.all()


def test_images_cost_the_draws_that_are_made() -> None:
    """Of more than 20 reasons 60 draws are made, whatever their limit, and 5 explanations show what varies."""

    def count(metric: Reasons, *shape: int) -> int:
        return metric.bind(inputs=torch.zeros(2, *shape)).cost().explanations

    metric = Reasons(LinfBall(0.02))
    inputs = torch.rand(2, 1, 28, 28)
    assert count(metric, 30) == metric.cost().explanations == 405
    assert count(metric, 1, 28, 28) == 65
    assert metric.bind(inputs=inputs).bind(module=nn.Flatten()).cost().explanations == 65
    assert count(Reasons(LinfBall(0.02), top=20), 1, 28, 28) == 405
    assert Reasons(LinfBall(0.02), top=21).cost().explanations == 65
    assert count(Reasons(LinfBall(0.02), draws=50), 1, 28, 28) == 55
    bound = metric.bind(inputs=inputs)
    assert (bound, bound.options()) == (metric, metric.options())
    assert Description(bound).digest == Description(metric).digest
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(784, 2)), (0.0, 1.0), device="cpu"
    )
    result = metric(model, "input_x_gradient", inputs, progress=False)
    assert int(result.model_evaluations.max()) <= 65
    assert int(result.drawn.max()) == 60
