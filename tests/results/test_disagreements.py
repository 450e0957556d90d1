"""Explainers that are all fine but contradict each other are not "all can be trusted"."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import standfast
from standfast.report.sentences import describe_verdict
from standfast.results import ConfiguredMetric, ValueSpec
from standfast.results.agreement import Disagreement, find_disagreements, read_seed_maps
from standfast.results.sanity import Check, Sanity
from standfast.results.summary import Counts, MetricDecision, MetricSummary, Summary, SummaryRow
from standfast.results.verdict import Verdict, reach_verdict
from standfast.statistics.paired import Interval
from standfast.tensors import Array

Maps = dict[str, dict[int, Array]]


def draw_maps(noise: dict[str, float], features: int = 7, samples: int = 15) -> Maps:
    """Maps of three seeds whose order is common to all samples in part, each with a noise of its own."""
    rng = np.random.default_rng(3)
    common = np.linspace(1, 2, features)
    truth = common + rng.uniform(0, 1, size=(samples, features))
    maps: Maps = {}
    for name, size in noise.items():
        seeds = truth[:, None] + size * rng.normal(size=(samples, 3, features))
        maps[name] = dict(enumerate(seeds))
    return maps


def name_first(row: Array, top: int) -> set[int]:
    return set(sorted(range(len(row)), key=lambda at: -abs(row[at]))[:top])


def count_common(own: Array, other: Array, top: int) -> float:
    """How many first features two maps have in common, over all pairs of seeds."""
    return float(
        np.mean([len(name_first(a, top) & name_first(b, top)) for a in own for b in other])
    )


def find_slowly(maps: Maps, top: int) -> dict[tuple[str, str], tuple[float, float]]:
    """With sets: what is common to two maps of a sample, and to those of it and of the next five samples."""
    found = {}
    for first, second in itertools.combinations(maps, 2):
        samples = list(maps[first])
        same = [count_common(maps[first][at], maps[second][at], top) for at in samples]
        others = [
            count_common(
                maps[first][samples[at]], maps[second][samples[(at + shift) % len(samples)]], top
            )
            for shift in range(1, 6)
            for at in range(len(samples))
        ]
        common, chance = float(np.mean(same)), float(np.mean(others))
        if top - common > common - chance:
            found[first, second] = (common, chance)
    return found


@pytest.mark.parametrize("top", [1, 3, 4])
def test_a_pair_disagrees_where_it_is_nearer_to_maps_of_other_samples(top: int) -> None:
    maps = draw_maps({"a": 0.02, "b": 0.05, "c": 2.0, "d": 5.0})
    pairs = {
        (each.first, each.second): (each.common, each.chance)
        for each in find_disagreements(maps, top)
    }
    expected = find_slowly(maps, top)
    assert set(pairs) == set(expected)
    for names, numbers in expected.items():
        assert pairs[names] == pytest.approx(numbers)
    assert ("c", "d") in pairs
    assert ("a", "b") not in pairs


def test_three_of_four_features_are_a_disagreement_where_chance_is_more_than_two() -> None:
    """Seven features in random orders; the second explainer exchanges the fourth with the fifth one."""
    rng = np.random.default_rng(0)
    first = {at: rng.permuted(np.arange(1.0, 8.0))[None] for at in range(40)}
    second = {}
    for at, row in first.items():
        second[at] = np.where(row == 4, 3.0, np.where(row == 3, 4.0, row))
    (found,) = find_disagreements({"a": first, "b": second}, 4)
    assert (found.common, found.top) == (3.0, 4)
    assert 2 <= found.chance < 2.5
    # where chance alone gives less than two, three of four are more than half of the way
    apart = {at: np.roll(np.arange(1.0, 41.0), at)[None] for at in range(0, 40, 5)}
    near = {
        at: np.where(row == 37, 36.0, np.where(row == 36, 37.0, row)) for at, row in apart.items()
    }
    assert find_disagreements({"a": apart, "b": near}, 4) == ()
    assert find_disagreements({"a": first, "b": first}, 4) == ()


def test_the_first_pixels_of_images_are_no_disagreement() -> None:
    maps = draw_maps({"a": 5.0, "b": 5.0}, features=513)
    assert find_disagreements(maps, 3) == ()


def judge(disagreements: tuple[Disagreement, ...]) -> Verdict:
    rows = []
    passed = Sanity((Check("input", "passed"), Check("class", "passed")))
    metrics = []
    for label, asks in (("worst", "stability"), ("aopc", "faithfulness")):
        spec = ValueSpec(label, label, "higher", asks=asks)  # type: ignore[arg-type]
        value = Interval(0.9, 0.8, 0.95, 12, 0.96, None, (0.9, 0.9))
        rows = [
            SummaryRow(
                "d", "m", name, label, label, spec, value, counts=Counts(12, 12, 12), quality="good"
            )
            for name in ("shap", "lime")
        ]
        configured = ConfiguredMetric(label, label, {}, "higher", False, spec, {})
        metrics.append(
            MetricSummary(
                "d", "m", configured, tuple(rows), None, MetricDecision("open", "no difference")
            )
        )
    checks = {("d", "m", name): passed for name in ("shap", "lime")}
    names = ("shap", "lime")
    summary = Summary(("d",), ("m",), names, (), {"d": 12}, tuple(metrics), {}, 1, 0, 0, (), checks)
    return dataclasses.replace(reach_verdict(summary, "d", "m"), disagreements=disagreements)


def test_the_verdict_states_the_disagreement_with_its_number() -> None:
    agreed = describe_verdict(judge(()))
    assert "The maps of shap and lime can be trusted here" in agreed
    said = describe_verdict(judge((Disagreement("shap", "lime", 3.0, 4, 2.4),)))
    assert "can be trusted here:" not in said
    assert "not all can be trusted here" in said
    assert (
        "of the first 4 features, shap and lime have 3 in common (maps of different samples: 2.4)"
        in said
    )
    assert "how the maps of only one of shap and lime, and say which" in said
    more = describe_verdict(judge((Disagreement("shap", "lime", 3.0, 4, 2.4),) * 3))
    assert "and 2 other pairs likewise" in more


def test_stored_maps_of_a_table_tell_who_disagrees() -> None:
    """The verdict reads the maps that `seed_agreement` has stored, of those who may be shown."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    inputs = torch.rand(8, 8)
    model = standfast.Model(network, bounds=(0.0, 1.0))
    explainers = ["saliency", "input_x_gradient", "integrated_gradients:steps=8"]
    found = standfast.evaluate(
        model,
        explainers,
        inputs,
        ["seed_agreement:seeds=3"],
        sanity=False,
        controls=False,
        progress=False,
    )
    (data, name) = found.pairs[0]
    maps = {
        each: own
        for (_, each), own in read_seed_maps(
            [found.metric_results(data, name, "seed_agreement")]
        ).items()
    }
    disagreements = found._find_disagreements(data, name, explainers)
    assert {(each.first, each.second) for each in disagreements} == set(find_slowly(maps, 3))
    assert found._find_disagreements(data, name, explainers[:1]) == ()


def test_maps_that_a_search_has_stored_tell_it_too() -> None:
    """Nobody has to ask for `seed_agreement`: a worst case stores the maps of the inputs."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    inputs = torch.rand(8, 8)
    model = standfast.Model(network, bounds=(0.0, 1.0))
    explainers = ["saliency", "input_x_gradient", "integrated_gradients:steps=8"]
    metrics = ["aopc:steps=4,samples=1", "worst_case:budget=4"]
    options = {"sanity": False, "controls": False, "progress": False}
    results = standfast.evaluate(model, explainers, inputs, metrics, **options)
    (data, name) = results.pairs[0]
    seeds = standfast.evaluate(model, explainers, inputs, ["seed_agreement:seeds=3"], **options)
    maps = read_seed_maps([seeds.metric_results(data, name, "seed_agreement")])
    expected = find_slowly({explainer: of_seeds for (_, explainer), of_seeds in maps.items()}, 3)
    disagreements = results._find_disagreements(data, name, explainers)
    assert expected
    assert {(pair.first, pair.second) for pair in disagreements} == set(expected)
