"""c-Eval, its plot and near-affinity: closed forms on affine classifiers, repair, sharing, figures."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.algorithms import find_knee, get_attack
from standfast.algorithms.distortion import Attack
from standfast.errors import ArgumentError
from standfast.metrics import CEval, CEvalPlot, NearAffinity
from standfast.metrics.c_eval import fixed_features
from standfast.metrics.c_eval.fixed_distortion import Distortions, DistortionSearch
from standfast.report.presentation import presentation_of
from standfast.report.presentation.estimates import make_median_line

FEATURES = 12


@pytest.fixture(scope="module")
def affine() -> standfast.Model:
    """Two classes, so one boundary, far within the bounds."""
    module = nn.Linear(FEATURES, 2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        module.weight.copy_(torch.randn(2, FEATURES, generator=generator))
        module.bias.zero_()
    return standfast.Model(module, (-1e4, 1e4), device="cpu")


@pytest.fixture(scope="module")
def inputs() -> Tensor:
    return torch.randn(16, FEATURES, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def digits() -> Tensor:
    return standfast.data.bundled("digits").inputs[:12]


def slope(model: standfast.Model) -> np.ndarray:
    weight = model.module.weight.detach().double().numpy()  # type: ignore[union-attr, operator]
    return np.asarray(weight[1] - weight[0])


def test_affine_closed_form(affine: standfast.Model, inputs: Tensor) -> None:
    """`c(e) = margin / ||w on the rest||`, e the features with the largest attributions."""
    result = CEval(fraction=0.25)(affine, "input_x_gradient", inputs)
    maps = standfast.explainers.get("input_x_gradient")(affine, inputs)
    w, logits = slope(affine), affine.logits(inputs).double().numpy()
    for row in range(len(inputs)):
        top = np.argsort(-maps[row].numpy(), kind="stable")[:3]
        assert sorted(top) == result.mask[row].nonzero().flatten().tolist()
        margin = abs(logits[row, 0] - logits[row, 1])
        rest = np.delete(w, top)
        assert float(result.c[row]) == pytest.approx(margin / np.linalg.norm(rest), rel=1e-3)
        assert float(result.c_empty[row]) == pytest.approx(margin / np.linalg.norm(w), rel=1e-3)
        assert float(result.value[row]) == pytest.approx(
            np.linalg.norm(w) / np.linalg.norm(rest), rel=1e-3
        )
    assert result.found.all()
    assert (result.predicted != result.targets).all()


def test_near_affinity_of_an_affine_classifier_and_of_a_network(
    affine: standfast.Model, inputs: Tensor, lenet: standfast.Model, digits: Tensor
) -> None:
    """Eq. 11 holds for a plane without bounds, and not for a network."""
    plane = NearAffinity((0.25, 0.5, 0.75))(affine, "saliency", inputs)
    assert float(plane.value.max()) < 2e-3
    assert (plane.estimate / plane.c_empty[:, None]).flatten().tolist() == pytest.approx(
        [1.0] * 48, abs=2e-3
    )
    network = NearAffinity((0.3, 0.6), attack="fmn:steps=20,second=0,polish=4")(
        lenet, "saliency", digits[:2]
    )
    assert float(network.value.nanmedian()) > 0.02


@pytest.mark.parametrize("kind", [CEval, CEvalPlot, NearAffinity])
def test_the_estimate_of_evaluations_is_near_their_number(
    kind: type[CEval | CEvalPlot | NearAffinity], affine: standfast.Model, inputs: Tensor
) -> None:
    sizes = {} if kind is CEval else {"fractions": (0.2, 0.3, 0.5, 0.7, 0.9)}
    metric = kind(attack="alma:steps=20", **sizes)  # type: ignore[arg-type]
    result = metric(affine, "saliency", inputs[:4])
    # what explainers share, too
    spent = result.model_evaluations + getattr(result, "empty_evaluations", 0)
    ratio = spent / metric.cost().evaluations
    assert bool(((ratio > 0.8) & (ratio < 1.25)).all())


def test_the_best_features_give_the_largest_c(affine: standfast.Model, inputs: Tensor) -> None:
    """Held by size of weight, c is the largest that any set of that size can have; against all sets."""
    from itertools import combinations

    across = torch.from_numpy(np.abs(slope(affine))).float()
    best_map = standfast.explainers.from_callable(
        lambda model, x, y: across.expand(x.shape), name="across"
    )
    result = CEval(fraction=0.25)(affine, best_map, inputs[:2])
    w, logits = slope(affine), affine.logits(inputs[:2]).double().numpy()
    for row in range(2):
        margin = abs(logits[row, 0] - logits[row, 1])
        best = max(
            margin / np.linalg.norm(np.delete(w, list(e))) for e in combinations(range(FEATURES), 3)
        )
        assert float(result.c[row]) == pytest.approx(best, rel=1e-3)


def test_segments_of_no_sample() -> None:
    none = torch.zeros(0, 4, 4)
    assert fixed_features.fix_segments(none, none.long(), 0.5).shape == (0, 4, 4)


def test_fixed_pixels_and_segments_against_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(6, 5, 7, generator=generator) * 3).round() / 3
    labels = torch.randint(0, 8, (6, 5, 7), generator=generator)
    for fraction in (0.01, 0.1, 0.33, 0.9):
        count = max(1, round(fraction * 35))
        pixels = fixed_features.fix_pixels(scores, fraction)
        whole = fixed_features.fix_segments(scores, labels, fraction)
        assert torch.equal(
            fixed_features.fix_segments(scores, torch.zeros_like(labels), fraction), pixels
        )
        for row in range(6):
            order = sorted(range(35), key=lambda p, row=row: (-float(scores[row].flatten()[p]), p))[
                :count
            ]
            assert pixels[row].flatten().nonzero().flatten().tolist() == sorted(order)
            sums = {
                k: float(scores[row][labels[row] == k].double().sum())
                for k in set(labels[row].flatten().tolist())
            }
            ranked = sorted(sums, key=lambda k, sums=sums: (-round(sums[k], 9), k))
            own = labels[row].flatten().tolist()
            filled = sorted(
                range(35),
                key=lambda p, row=row: (ranked.index(own[p]), -float(scores[row].flatten()[p]), p),
            )
            assert whole[row].flatten().nonzero().flatten().tolist() == sorted(filled[:count])


def test_signs_channels_and_units() -> None:
    maps = torch.tensor([[[[1.0, -5.0], [2.0, 0.0]], [[1.0, 0.0], [-3.0, 0.5]]]])
    assert fixed_features.score_pixels(maps).flatten().tolist() == [2.0, -5.0, -1.0, 0.5]
    assert fixed_features.score_pixels(maps, absolute=True).flatten().tolist() == [
        2.0,
        5.0,
        5.0,
        0.5,
    ]
    mask = torch.tensor([[[True, False], [False, False]]])
    assert fixed_features.mark_free(mask, maps).sum().item() == 6


@pytest.mark.parametrize("attack", ["fmn:steps=3,rivals=1,second=0,polish=0,scatter=0", "gsa"])
def test_ratios_are_at_least_one_and_sweeps_never_fall(
    attack: str, lenet: standfast.Model, digits: Tensor
) -> None:
    """Also with attacks far from the minimum, whose c(empty) is repaired by what they find with less free."""
    sizes = (0.05, 0.1, 0.2, 0.4, 0.6)
    plot = CEvalPlot(sizes, attack=attack)(lenet, "saliency", digits)
    assert bool((plot.value[plot.found] >= 1).all())
    assert bool((plot.c_empty <= plot.curve[:, 0] + 1e-9)[plot.curve_found[:, 0]].all())
    assert bool((plot.curve.diff(dim=1) >= 0).all())
    if attack == "gsa":
        assert not plot.curve_found.all()  # so that this holds of bounds, too
        assert plot.low[plot.found].isnan().all()
    for row, (curve, found) in enumerate(zip(plot.curve, plot.curve_found, strict=True)):
        for k in range(len(sizes)):
            # the bound is what was found with fewer features fixed, not how far the search went
            if not found[k]:
                assert float(curve[k]) == max(
                    [float(plot.c_empty[row]), *curve[:k][found[:k]].tolist()]
                )
    assert bool(plot.knee[plot.censored].isnan().all())
    assert torch.equal(plot.censored, ~plot.curve_found.all(1))
    single, one = (
        kind(attack=attack)(lenet, "saliency", digits)
        for kind in (CEval, partial(CEvalPlot, (0.1,)))
    )
    assert torch.equal(single.c, one.curve[:, 0])
    assert torch.equal(single.c_empty, one.c_empty)


def test_c_empty_is_computed_once_for_all_explainers(
    monkeypatch: pytest.MonkeyPatch, digits: Tensor
) -> None:
    """And again when the weights have changed."""
    rows = []
    whole, checked = Attack.minimise, Attack.minimise_checked

    def counting(
        attack: Attack, model: standfast.Model, x: Tensor, y: Tensor, free: object, *args: Any
    ) -> object:
        if free is None:
            rows.append(len(x))
        return checked(attack, model, x, y, free, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Attack, "minimise_checked", counting)
    module = standfast.zoo.load("lenet5-mnist")
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    metric = CEval(attack="fmn:steps=4,rivals=1,second=0,polish=1")
    first = metric(model, "saliency", digits[:6])
    second = metric(model, "random", digits[2:9])
    assert rows == [6, 3]
    raw = whole(get_attack(metric.attack), model, digits[:9], None, None).distortion.double()
    # each repaired by its own c, and by nothing else
    for result, own in (
        (first, raw[:6]),
        (second, raw[2:9]),
    ):
        least = torch.minimum(own, torch.where(result.found, result.c, torch.inf))
        assert result.c_empty.tolist() == least.tolist()
    assert first.empty_evaluations.tolist()[2:] == second.empty_evaluations.tolist()[:4]
    alone = metric(
        standfast.Model(standfast.zoo.load("lenet5-mnist"), (0.0, 1.0), device="cpu"),
        "random",
        digits[2:9],
    )
    assert second.frame().equals(alone.frame())
    with torch.no_grad():
        next(module.parameters()).mul_(1.01)
    metric(model, "random", digits[:2])
    assert rows[-1] == 2


def test_nothing_found_is_a_lower_end(digits: Tensor) -> None:
    """A classifier of the first pixel alone cannot be flipped while that is held."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 2))
    with torch.no_grad():
        module[1].weight.zero_()  # type: ignore[union-attr, operator]
        module[1].weight[1, 0] = 4.0  # type: ignore[index]
        module[1].bias.copy_(torch.tensor([1.0, 0.0]))  # type: ignore[union-attr]
    classifier = standfast.Model(module, (0.0, 1.0), device="cpu")
    first = torch.zeros(1, 1, 28, 28)
    first[..., 0, 0] = 1.0
    explainer = standfast.explainers.from_callable(
        lambda model, x, y: first.expand(x.shape), name="first"
    )
    result = CEval()(classifier, explainer, digits[:3])
    assert result.c_empty.tolist() == pytest.approx([0.25] * 3, rel=1e-3)
    assert not result.found.any()
    assert result.c.tolist() == result.c_empty.tolist()
    assert result.value.tolist() == [1.0] * 3
    frame = result.frame()
    assert frame["bound"].to_list() == frame["censored"].to_list() == [True] * 3
    assert (frame["low"].to_list(), frame["high"].to_list()) == ([1.0] * 3, [np.inf] * 3)
    (missed,) = presentation_of(CEval.name).details(frame, CEval().options())
    assert (missed.value, missed.total) == (3, 3)
    near = NearAffinity((0.3,), attack="fmn:steps=5,second=5,polish=2,scatter=8")(
        classifier, explainer, digits[:3]
    )
    assert near.censored.all()
    assert not near.c_found.any()
    # that of the first pixel alone, so c_hat lies between 0.25 / sqrt(2) and 0.25
    assert near.c_rest_found.all()
    assert near.value.tolist() == pytest.approx([0.0] * 3, abs=2e-3)
    assert near.high.tolist() == pytest.approx([0.5 * np.log(2)] * 3, rel=0.05)
    assert near.estimate.isnan().all()
    assert near.frame()["bound"].all()
    skipped = NearAffinity((0.3,), attack="gsa:rounds=1")(
        classifier, explainer, digits[:2], 1 - classifier.predict(digits[:2])
    )
    assert "ok" not in skipped.status
    assert not skipped.c_rest_found.any()
    plot = CEvalPlot((0.1, 0.2, 0.3), attack="fmn:steps=5,second=5,polish=2,scatter=8")(
        classifier, explainer, digits[:3]
    )
    assert plot.value.tolist() == [1.0] * 3
    assert plot.frame()["bound"].all()
    assert plot.high.isinf().all()
    assert plot.knee.isnan().all()


def test_the_bound_of_what_is_not_found_has_a_limit_too(
    monkeypatch: pytest.MonkeyPatch, lenet: standfast.Model, digits: Tensor
) -> None:
    """c at the second size is at least that at the first one, of which an attack found 1, and 0.62 is the limit."""

    def make(c: list[float], second: list[float], found: list[bool]) -> Distortions:
        points = digits[:1, None].expand(1, len(c), *digits.shape[1:])
        columns = torch.tensor([c]), torch.tensor([found]), torch.tensor([second])
        return Distortions(*columns, points, torch.zeros(1, dtype=torch.int64))

    parts = [
        make([1.0, 1.0], [1.02, np.inf], [True, False]),
        make([1.0, 1.0], [1.0, 1.0], [True, True]),
    ]
    monkeypatch.setattr(DistortionSearch, "find_empty", lambda self: make([0.8], [0.8], [True]))
    monkeypatch.setattr(DistortionSearch, "find", lambda self, masks, empty: parts.pop(0))
    near = NearAffinity((0.3, 0.6))(lenet, "saliency", digits[:1])

    def deviate(*c: float) -> float:
        return abs(float(np.log(sum(x**-2 for x in c) ** -0.5 / 0.8)))

    assert near.high.item() == pytest.approx(
        (deviate(0.62, 1) + max(deviate(0.8, 1), deviate(1))) / 2, rel=1e-4
    )
    assert near.value.item() == pytest.approx((deviate(1, 1) + 0) / 2, rel=1e-6)


def test_a_bound_in_a_median_is_told() -> None:
    """Of three values the largest is unknown: a median stays; of two unknown ones it becomes a bound."""
    frame = pl.DataFrame({"c": [1.0, 2.0, 0.5], "c_empty": [0.5] * 3, "found": [True, True, False]})
    details = {
        each.label: each.value
        for each in presentation_of(CEval.name).details(frame, CEval().options())
    }
    assert details == {
        "no change found, so only a bound": 1,
        "median c, at least": 1.0,
        "median c(empty)": 0.5,
    }
    known = frame.with_columns(found=pl.lit(True))
    details = {
        each.label: each.value
        for each in presentation_of(CEval.name).details(known, CEval().options())
    }
    assert details == {"median c": 1.0, "median c(empty)": 0.5}
    for gaps, expected in (([0.1, 0.3, None], 20.0), ([0.1, None, None], math.inf)):
        *_, gap = presentation_of(CEval.name).details(
            frame.with_columns(search_gap=pl.Series(gaps)), CEval().options()
        )
        # without a number, another search found no change
        assert gap.value == pytest.approx(expected)


def test_a_curve_goes_on_where_the_median_is_known() -> None:
    """Of three samples the largest is unknown: the median is the second one, although the next value is infinite."""
    least = np.array([[1.0, 1.0, 1.0], [2.0, 3.0, 3.0], [4.0, 5.0, 5.0]])
    most = np.where([[True, True, False], [True, True, True], [True, False, False]], least, np.inf)
    line = make_median_line("a", np.arange(3), least, most)
    np.testing.assert_array_equal(line.y, [2.0, 3.0, np.nan])
    np.testing.assert_array_equal(line.low, [1.5, 2.0, 2.0])
    np.testing.assert_array_equal(line.high, [3.0, np.inf, np.inf])
    known = np.random.default_rng(0).normal(size=(24, 3))
    line = make_median_line("a", np.arange(3), known)
    assert np.allclose([line.low, line.y, line.high], np.quantile(known, [0.25, 0.5, 0.75], axis=0))


def test_at_least_one_place_stays_free(lenet: standfast.Model, digits: Tensor) -> None:
    result = CEval(attack="fmn:steps=2,second=0,polish=1,scatter=8", fraction=0.9999)(
        lenet, "saliency", digits[:2]
    )
    assert result.mask.sum((1, 2)).tolist() == [783, 783]
    assert bool(result.c.isfinite().all())
    assert bool((result.c >= result.c_empty).all())
    one = standfast.Model(nn.Linear(1, 2), (0.0, 1.0), device="cpu")
    with pytest.raises(ArgumentError, match="inputs: expected at least two places"):
        CEval.example()(one, "saliency", torch.ones(1, 1))


def test_the_interval_is_the_gap_between_searches(lenet: standfast.Model, digits: Tensor) -> None:
    """By hand: both distortions from their two best searches; and no ratio is outside of its interval."""
    metric = CEval(attack="fmn:steps=20,second=20,polish=4")
    result = metric(lenet, "saliency", digits[:6])
    assert result.high is not None
    known = result.low.isfinite()
    assert known.any()
    low = (result.c.double() * (1 - 19 * result.search_gap)).clamp(min=0)
    assert result.c_low.tolist() == pytest.approx(low.tolist(), rel=1e-4, abs=1e-5)
    expected = (low / result.c_empty.double()).clamp(min=1)
    assert result.low[known].tolist() == pytest.approx(expected[known].tolist(), rel=1e-4)
    assert bool((result.low <= result.value)[known].all())
    assert bool((result.high >= result.value)[known].all())
    assert bool((result.search_gap >= 0)[known].all())
    spec = CEval.value_spec(CEval().options())
    assert (spec.censored, spec.censored_side) == ("bound", "lower")


def test_brackets_hold(digits: Tensor) -> None:
    """`lower <= c`, on a network small enough to be quick; for an affine one both are the minimum."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 20), nn.ReLU(), nn.Linear(20, 10)
    )
    with torch.no_grad():
        module[2].weight.mul_(8)  # type: ignore[union-attr, operator]
        module[4].weight.mul_(8)  # type: ignore[union-attr, operator]
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    for norm in (2, "inf"):
        result = CEval(norm=norm, certify="crown", fraction=0.3)(model, "saliency", digits[:6])
        assert result.found.all()
        assert bool((result.certified_c > 0.05 * result.c).all())
        assert bool((result.certified_c <= result.c * 1.0001).all())
    plane = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(784, 3)), (0.0, 1.0), device="cpu"
    )
    result = CEval(certify="crown")(plane, "saliency", digits[:3])
    sure = result.found
    assert sure.any()
    assert (result.c / result.certified_c)[sure].tolist() == pytest.approx(
        [1.0] * int(sure.sum()), abs=0.02
    )


def test_knees() -> None:
    assert find_knee([0.1, 0.2, 0.4, 0.8], [1.0, 2.0, 2.2, 2.4]) == 1
    assert find_knee([0, 1, 2], [0.0, 1.0, 2.0]) is None
    assert find_knee([0, 1], [0.0, 1.0]) is None
    with pytest.raises(ArgumentError, match="x: expected increasing numbers"):
        find_knee([0, 0, 1], [0.0, 1.0, 2.0])


def test_bad_options_are_named() -> None:
    assert_refused(
        CEval, attack=["pgd"], fraction=[1.0], unit=["pixels"], segments=["slick"], norm=[3]
    )
    assert_refused(CEval, certify=[True], absolute=[1])
    assert_refused(CEvalPlot, fractions=[(0.2, 0.1)])
