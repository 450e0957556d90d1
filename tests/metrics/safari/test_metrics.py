"""The four metrics: closed forms, relations that hold whatever the model, peers, and plain Monte Carlo."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from standfast.algorithms import SubsetSimulation, UnitBox
from standfast.algorithms.rare_events.subset_sampling import plan_return
from standfast.errors import ArgumentError
from standfast.metrics import (
    LocalLipschitz,
    MaxSensitivity,
    Metric,
    MisinterpretationProbability,
    WorstCase,
)
from standfast.metrics.probe import Call, Probe
from standfast.tasks import Classification, measure_margin
from standfast.testing import SHAPES, small_net

BALL = standfast.LinfBall(0.2)


@pytest.fixture(scope="module")
def small() -> standfast.Model:
    """A network for many evaluations: where nothing hangs on what it has learned."""
    return standfast.Model(small_net(SHAPES["image"]), (0.0, 1.0), device="cpu", batch_size=128)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(3, *SHAPES["image"], generator=torch.Generator().manual_seed(1))


def linear_classifier(weights: torch.Tensor, bias: torch.Tensor | None = None) -> standfast.Model:
    """Logits `W x + b` for flat inputs: gradient x input of class y is `W_y * x`."""
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weights)
        layer.bias.copy_(torch.zeros(len(weights)) if bias is None else bias)
    return standfast.Model(layer, (0.0, 1.0), device="cpu", batch_size=256)


def test_margin_is_equation_1() -> None:
    logits = torch.randn(50, 5)
    targets = torch.randint(5, (50,))
    for row, (values, y) in enumerate(zip(logits.tolist(), targets.tolist(), strict=True)):
        others = [v for i, v in enumerate(values) if i != y]
        assert measure_margin(Classification(), logits, targets)[row].item() == pytest.approx(
            max(others) - values[y], abs=1e-6
        )
        odds = np.exp(values) / np.exp(values).sum()
        expected = max(np.delete(odds, y)) - odds[y]
        assert measure_margin(Classification(), logits, targets, "probability")[
            row
        ].item() == pytest.approx(expected, abs=1e-6)


def test_probability_margin_of_a_confident_model_still_orders() -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0], [25.0, 0.0, 0.0]])
    margin = measure_margin(Classification(), logits, torch.tensor([0, 0]), "probability")
    assert -1 < margin[0] < margin[1]


def test_tracked_sensitivity_is_there_for_every_event(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    for event in ("changed_explanation", "changed_class", "misclassification"):
        metric = WorstCase(BALL, event, budget=20, track_sensitivity=True)  # type: ignore[arg-type]
        found = metric(lenet, "saliency", digits[:2].inputs)
        assert (found.sens_max > 0).all()
        assert (found.sens_lips > 0).all()


def test_a_constant_map_has_a_sensitivity_unless_it_never_changes() -> None:
    """Zero is the best value that there is, and a map that is always the same explains nothing."""
    model = linear_classifier(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0]))
    x = torch.tensor([[0.5, 0.5], [0.2, 0.6]])
    metric = MaxSensitivity(BALL, samples=50)
    result = metric(model, "input_x_gradient", x)
    assert result.status == ("ok", "ok")
    assert (result.value > 0.1).all()

    def detached(
        module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        return torch.zeros_like(inputs)

    nothing = metric(model, standfast.explainers.get(detached), x)
    assert nothing.status == ("degenerate",) * 2
    assert nothing.frame()["value"].to_list() == [None, None]
    assert nothing.value.isnan().all()  # not 0, the best value
    worst = WorstCase(BALL, "changed_explanation", similarity="mse", search="random", budget=20)
    assert worst(model, standfast.explainers.get(detached), x).status == ("degenerate",) * 2
    assert worst(model, "input_x_gradient", x).status == ("ok", "ok")


class Unlimited(standfast.similarity.Similarity):
    """Of any size."""

    name = "unlimited"

    def compare(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.flatten(1).sum(1)


def test_a_threshold_that_a_similarity_cannot_reach_is_refused() -> None:
    """With it the event would be certain: ln P = 0, and no sample would be censored."""
    for metric in (WorstCase, MisinterpretationProbability):
        changed = partial(metric, BALL, "changed_explanation")
        assert_refused(changed, threshold=[2, -1.5, float("inf"), float("nan")])
        assert_refused(partial(changed, similarity="mse"), threshold=[-0.1])
    WorstCase(BALL, "changed_explanation", similarity="mse", threshold=40.0)
    WorstCase(BALL, "changed_explanation", similarity=Unlimited(), threshold=40.0)


def test_misclassification_of_a_linear_model_is_known() -> None:
    weights = torch.tensor([[1.0, -2.0, 0.5, 0.0], [-1.0, 1.0, 0.0, 2.0]])
    model = linear_classifier(weights, torch.tensor([1.5, 0.0]))
    x = torch.tensor([[0.6, 0.5, 0.5, 0.3]])
    assert model.predict(x).item() == 0
    difference = weights[1] - weights[0]
    # every feature stays 0.2 away from the bounds, so the best margin is that of a corner
    highest = (difference @ x[0] - 1.5 + 0.2 * difference.abs().sum()).item()
    worst = WorstCase(BALL, "misclassification", budget=600)(model, "saliency", x)
    assert worst.margin.item() == pytest.approx(highest, rel=1e-4)
    assert worst.found.item() == (highest >= 0)

    # J is a weighted sum of independent uniforms; its law by a large sample
    draws = 400_000
    steps = np.random.default_rng(0).uniform(-0.2, 0.2, (draws, 4)) @ difference.double().numpy()
    share = (steps + (difference @ x[0] - 1.5).item() >= 0).mean()
    assert 0.001 < share < 0.2
    error_of_law = math.sqrt((1 - share) / share / draws)
    for options in ({"particles": 1000}, {"method": "monte_carlo", "samples": 50_000}):
        found = MisinterpretationProbability(BALL, "misclassification", **options)(
            model, "saliency", x
        )
        error = math.hypot(found.std_error.item(), error_of_law)
        assert abs(found.log_probability.item() - math.log(share)) < 4 * error

    # an error is asked for by subset simulation alone
    for options, reached in (
        ({"particles": 1000, "error": 0.5}, True),
        ({"particles": 200, "error": 0.01, "budget": 20_000}, False),
        ({"particles": 1000, "error": None}, True),
        ({"method": "monte_carlo", "samples": 5000, "error": 1e-3}, True),
    ):
        found = MisinterpretationProbability(BALL, "misclassification", **options)(
            model, "saliency", x
        )
        assert found.resolved.item()
        assert found.error_reached.item() == reached


def _constant(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def _not_a_number(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, torch.nan)


@pytest.mark.parametrize(
    "metric",
    [
        MisinterpretationProbability(
            BALL,
            "misclassification",
            particles=20,
            first=1.0,
            moves=1,
            floor=-6.0,
            from_event=True,
        ),
        MisinterpretationProbability(BALL, "misclassification", method="monte_carlo", samples=500),
        *(
            WorstCase(BALL, "misclassification", search=name, budget=60)
            for name in ("auto", "gradient", "genetic")
        ),
    ],
    ids=lambda metric: str(metric.own_label),
)
def test_misclassification_is_the_same_number_for_every_explainer(metric: Metric) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    model, x = standfast.Model(net, (0.0, 1.0), device="cpu"), torch.rand(3, 4)
    columns = ["status", "value", "low", "high", "model_evaluations"]
    expected = metric(model, "saliency", x).frame().select(columns)
    assert set(expected["status"]) == {"ok"}
    for explainer in ("integrated_gradients", _constant, _not_a_number):
        assert metric(model, explainer, x).frame().select(columns).equals(expected)  # type: ignore[arg-type]
        assert metric.describe_misfit(standfast.explainers.get(explainer)) == ""  # type: ignore[arg-type]


def test_a_worst_case_of_the_class_still_shows_the_maps_of_its_explainer() -> None:
    model, x = linear_classifier(torch.tensor([[1.0, 0.0], [0.0, 1.0]])), torch.tensor([[0.7, 0.2]])
    worst = WorstCase(BALL, "misclassification", budget=60, track_sensitivity=True)(
        model, "input_x_gradient", x
    )
    torch.testing.assert_close(worst.origin_maps, torch.tensor([[0.7, 0.0]]))
    torch.testing.assert_close(worst.maps, worst.inputs * torch.tensor([[1.0, 0.0]]))
    assert worst.sens_max.item() == pytest.approx(0.2, rel=1e-3)
    assert WorstCase(BALL, budget=60)(model, _constant, x).status == ("degenerate",)


def test_explanation_of_a_linear_model_is_known() -> None:
    # the map is w * x, so the similarity within the box is a function of x that numpy can compute
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 6, generator=generator)
    model = linear_classifier(weights, torch.tensor([20.0, 0.0]))  # the class cannot change
    x = 0.3 + 0.4 * torch.rand(1, 6, generator=generator)
    w = weights[0].numpy()
    reference = np.abs(w * x[0].numpy())
    samples = x[0].numpy() + np.random.default_rng(0).uniform(-0.2, 0.2, (400_000, 6))
    maps = np.abs(w * samples)
    centred = maps - maps.mean(1, keepdims=True)
    similarity = (centred @ (reference - reference.mean())) / (
        np.linalg.norm(centred, axis=1) * np.linalg.norm(reference - reference.mean())
    )
    threshold = float(np.quantile(similarity, 0.001))
    metric = MisinterpretationProbability(
        BALL, "changed_explanation", threshold=threshold, particles=400
    )
    found = metric(model, "input_x_gradient", x)
    assert abs(found.log_probability.item() - math.log(0.001)) < 4 * math.hypot(
        found.std_error.item(), 0.05
    )
    worst = WorstCase(BALL, budget=1000)(model, "input_x_gradient", x)
    assert worst.similarity.item() < similarity.min() + 1e-3
    assert worst.similarity.item() <= 1
    got = np.corrcoef(np.abs(w * worst.inputs[0].numpy()), reference)[0, 1]
    assert worst.similarity.item() == pytest.approx(got, abs=1e-5)


def test_what_a_search_returns_is_scored_anew(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:3].inputs
    explainer = standfast.explainers.get("input_x_gradient")
    for event in ("changed_explanation", "changed_class", "misclassification"):
        worst = WorstCase(standfast.LinfBall(0.3), event, budget=150)(lenet, explainer, x)  # type: ignore[arg-type]
        assert ((worst.inputs - x).abs() <= 0.3 + 1e-6).all()
        assert ((worst.inputs >= 0) & (worst.inputs <= 1)).all()
        margin = measure_margin(Classification(), lenet.logits(worst.inputs), lenet.predict(x))
        assert torch.allclose(worst.margin, margin, atol=1e-4)
        maps = explainer(lenet, x).abs(), explainer(lenet, worst.inputs).abs()
        assert torch.allclose(worst.similarity, standfast.similarity.Pearson()(*maps), atol=1e-4)
        assert torch.allclose(worst.maps.abs(), maps[1], atol=1e-5)
        assert torch.equal(worst.predicted, lenet.predict(worst.inputs))
        held = margin < 0 if event == "changed_explanation" else margin >= 0
        assert torch.equal(worst.found, held)
        if event == "changed_explanation":
            assert torch.equal(worst.misinterpreted, held & (worst.similarity < 0.4))
        assert (worst.model_evaluations <= 152).all()
        assert (
            worst.trace.similarity.shape
            == worst.trace.margin.shape
            == (3, len(worst.trace.evaluations))
        )
        last = (
            worst.trace.margin[:, -1]
            if event == "misclassification"
            else worst.trace.similarity[:, -1]
        )
        assert torch.allclose(
            last.float(),
            worst.margin if event == "misclassification" else worst.similarity,
            atol=1e-4,
        )


@pytest.mark.parametrize("search", standfast.algorithms.searches.names())
@pytest.mark.parametrize("budget", [3, 4, 61])
def test_the_budget_is_kept_with_everything_counted(
    search: str, budget: int, lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    """The clean input, the search and the final check. The sign search leaves what is too little for a whole step."""
    # a grid is for few parameters
    nearby = standfast.neighbourhoods.Brightness(0.2) if search == "grid" else BALL
    metric = WorstCase(nearby, similarity="mse", search=search, budget=budget)
    result = metric(lenet, "saliency", digits[:3].inputs)
    assert (result.model_evaluations <= budget).all()
    assert (result.model_evaluations == budget).all() or search == "sign"
    assert metric.cost().evaluations == budget


@pytest.mark.parametrize("error", [None, 0.2])
def test_the_budget_of_a_probability_is_kept(
    error: float | None, lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    metric = MisinterpretationProbability(
        BALL, threshold=0.3, particles=20, error=error, budget=400
    )
    result = metric(lenet, "saliency", digits[:3].inputs)
    assert (result.model_evaluations <= 400).all()
    assert (result.model_evaluations > 200).all()
    assert result.low.tolist() == [-math.inf] * 3 or bool((result.low < result.high).all())
    unsure = ~result.resolved
    assert unsure.any()
    # what a ranking may use of it is the bound
    assert torch.equal(result.value[unsure], result.high[unsure])
    assert result.frame()["bound"].to_list() == (result.censored | unsure).tolist()


def test_the_estimate_of_a_probabilitys_evaluations_is_near_their_number() -> None:
    """For an event as rare as half of the floor says."""
    metric = MisinterpretationProbability(BALL, threshold=0.5, particles=40, moves=2, floor=-8.0)
    generator = torch.Generator().manual_seed(0)
    simulation = SubsetSimulation(particles=40, moves=2, first=metric.first)
    limit = 1 - math.exp(-4)
    found = [
        simulation.run(lambda x: x[:, 0] - limit, UnitBox(2), generator=generator) for _ in range(5)
    ]
    spent = [int(estimate.model_evaluations) for estimate in found]
    returning = plan_return(40, 2, round(4 / math.log(2)))[2] if metric.from_event else 0
    assert np.mean(spent) == pytest.approx(metric.cost().evaluations - returning, rel=0.2)


def test_a_lying_search_is_caught(digits: standfast.data.Dataset, lenet: standfast.Model) -> None:
    from dataclasses import dataclass

    from standfast.algorithms.searches.base import Search, SearchResult, Trace

    @dataclass(frozen=True)
    class Liar(Search):
        name = "liar"

        def run(self, objective, region, budget, seed, gradient=None):  # type: ignore[no-untyped-def]
            nothing = torch.full((len(region),), -5.0)
            trace = Trace(torch.tensor([1]), nothing[:, None], nothing[:, None])
            return SearchResult(torch.full_like(region.centre, 7.0), nothing, nothing, trace)

        def search(self, run, streams):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    x = digits[:2].inputs
    worst = WorstCase(BALL, search=Liar())(lenet, "saliency", x)
    assert ((worst.inputs - x).abs() <= 0.2 + 1e-6).all()
    assert (worst.similarity > -1).all()


def test_a_pcc_below_zero_is_inconsistent() -> None:
    # with D = 1 / PCC, as printed, a correlation of -0.5 would count as consistent (D = -2 < 1 / 0.6)
    from standfast.metrics.safari.events import make_event

    similarity = torch.tensor([-0.5, 0.01, 0.39, 0.5, 0.61, 0.9])
    keeps = torch.full((6,), -1.0)
    changed = make_event(
        "changed_explanation", standfast.similarity.get("pearson"), None, needs_threshold=True
    )
    assert changed.has_happened(similarity, keeps).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert not changed.has_happened(similarity, -keeps).any()
    kept = make_event(
        "changed_class", standfast.similarity.get("pearson"), None, needs_threshold=True
    )
    assert kept.has_happened(similarity, -keeps).tolist() == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    assert not kept.has_happened(similarity, keeps).any()
    error = make_event(
        "changed_explanation", standfast.similarity.get("mse"), 0.5, needs_threshold=True
    )
    assert error.has_happened(torch.tensor([0.4, 0.6]), torch.tensor([-1.0, -1.0])).tolist() == [
        False,
        True,
    ]


def test_scores_and_outcomes_agree_with_the_event() -> None:
    from standfast.metrics.probe import Measurement
    from standfast.metrics.safari.events import EVENTS, make_event

    generator = torch.Generator().manual_seed(0)
    margin = torch.randn(200, generator=generator)
    margin[:5] = 0.0
    for name in EVENTS:
        for similarity in ("pearson", "mse"):
            values = torch.rand(200, generator=generator)
            values[:10] = 0.5
            threshold = None if name == "misclassification" else 0.5
            event = make_event(
                name, standfast.similarity.get(similarity), threshold, needs_threshold=True
            )
            seen = Measurement(margin, values)
            assert torch.equal(
                (event.scores(seen) >= 0).all(1), event.has_happened(values, margin)
            ), (name, similarity)
            outcome = event.outcome(seen)
            feasible = margin < 0 if name == "changed_explanation" else margin >= 0
            if name != "misclassification":
                assert torch.equal(outcome.violation <= 0, feasible)


def test_a_sample_that_is_not_estimated_has_no_number(lenet: standfast.Model) -> None:
    x = standfast.data.bundled("digits")[:2].inputs
    metric = MisinterpretationProbability(standfast.LinfBall(0.1), method="monte_carlo", samples=50)
    found = metric(lenet, "saliency", x, (lenet.predict(x) + torch.tensor([0, 1])) % 10)
    assert found.status == ("ok", "misclassified")
    assert (found.censored[1], found.resolved[1], found.stalled[1]) == (True, False, False)
    assert bool(found.value[1].isnan())


def test_the_estimate_from_the_event_is_in_the_result(
    small: standfast.Model, images: torch.Tensor
) -> None:
    x = images[:1]
    common: dict[str, Any] = {"neighbourhood": standfast.LinfBall(0.3), "threshold": 0.35}
    plain = MisinterpretationProbability(**common, method="monte_carlo", samples=1000)
    simulation = {**common, "particles": 60, "moves": 2, "first": 2.0, "floor": -15.0}
    metric = MisinterpretationProbability(**simulation, from_event=True)
    exact, both = plain(small, "input_x_gradient", x), metric(small, "input_x_gradient", x)
    frame = both.frame()
    for name in ("from_prior", "from_event", "from_event_error"):
        assert frame[name].to_list() == pytest.approx(getattr(both, name).tolist(), nan_ok=True)
    reached = ~both.censored
    assert torch.equal(both.from_prior[reached], both.log_probability[reached])
    seen = reached & ~exact.censored
    assert seen.any()
    error = (both.from_event_error**2 + exact.std_error**2).sqrt()
    assert ((both.from_event - exact.log_probability).abs()[seen] < 4 * error[seen]).all()
    error = (both.std_error**2 + exact.std_error**2).sqrt()
    assert ((both.log_probability - exact.log_probability).abs()[seen] < 4 * error[seen]).all()
    without = MisinterpretationProbability(**simulation, error=None)
    alone = without(small, "input_x_gradient", x)
    # one does not change the other
    assert torch.equal(alone.from_prior[reached], both.from_prior[reached])
    assert alone.from_event.isnan().all()


@pytest.mark.parametrize("explainer", ["input_x_gradient", "deconvolution"])
def test_half_of_the_particles_that_go_back_start_at_a_worst_case(
    explainer: str,
    lenet: standfast.Model,
    digits: standfast.data.Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With and without gradients; and the event is known to exist where the simulation ends before it."""
    given: list[torch.Tensor | None] = []
    run = SubsetSimulation.run

    def watch(
        simulation: SubsetSimulation,
        score: Any,
        prior: Any,
        witnesses: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        given.append(witnesses)
        return run(simulation, score, prior, witnesses, *args, **kwargs)

    monkeypatch.setattr(SubsetSimulation, "run", watch)
    x, ball = digits[:2].inputs, standfast.LinfBall(0.3)
    options: dict[str, Any] = {
        "threshold": 0.55,
        "particles": 40,
        "moves": 1,
        "first": 1.0,
        "budget": 4000,
    }
    metric = MisinterpretationProbability(ball, floor=-1.0, from_event=True, **options)
    found = metric(lenet, explainer, x)
    (witnesses,) = given
    assert witnesses.shape == (2, 1, *x.shape[1:])
    probe = Probe(
        Call(lenet, standfast.explainers.get(explainer), x),
        "pearson",
        absolute=True,
        explain="predicted",
    )
    seen = probe.query(witnesses[:, 0])
    assert seen.similarity is not None
    happened = (seen.similarity < 0.55) & (seen.margin < 0)
    assert torch.equal(found.witnessed, happened)
    assert happened.any()
    assert found.censored.all()  # below the floor
    assert (found.model_evaluations <= 4000).all()
    plain = MisinterpretationProbability(ball, floor=-1.0, **options)(lenet, explainer, x)
    assert torch.equal(found.log_probability, plain.log_probability)
    # the clean input is one; the search may spend a sixteenth of the budget
    assert (found.model_evaluations - plain.model_evaluations <= 4000 // 16).all()
    assert not plain.witnessed.any()


def test_with_witnesses_a_sample_does_not_depend_on_its_batch(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    options: dict[str, Any] = {
        "particles": 10,
        "moves": 1,
        "first": 1.0,
        "floor": -4.0,
        "threshold": 0.3,
    }
    metric = MisinterpretationProbability(
        standfast.LinfBall(0.35), "changed_class", from_event=True, **options
    )
    x = digits[:3].inputs[[0, 2]]
    together, alone = metric(lenet, "input_x_gradient", x), metric(lenet, "input_x_gradient", x[1:])
    for name in (
        "log_probability",
        "from_event",
        "std_error",
        "witnessed",
        "model_evaluations",
        "extreme",
    ):
        assert torch.equal(
            getattr(together, name)[1:].nan_to_num(), getattr(alone, name).nan_to_num()
        ), name
    assert together.witnessed.any()


def test_half_precision_goes_back_to_the_prior(digits: standfast.data.Dataset) -> None:
    module = standfast.zoo.load("lenet5-mnist").to(torch.bfloat16)
    half = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    options: dict[str, Any] = {
        "threshold": 0.85,
        "particles": 20,
        "moves": 1,
        "first": 1.0,
        "floor": -15.0,
    }
    metric = MisinterpretationProbability(standfast.LinfBall(0.3), from_event=True, **options)
    found = metric(half, "input_x_gradient", digits[:1].inputs.to(torch.bfloat16))
    assert not found.censored.any()
    assert found.from_event.isfinite().all()


@pytest.mark.parametrize("budget", [41, 42, 44, 60])
def test_the_search_for_witnesses_leaves_the_simulation_its_first_population(
    budget: int, lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    metric = MisinterpretationProbability(
        BALL, threshold=0.5, particles=40, budget=budget, from_event=True
    )
    found = metric(lenet, "input_x_gradient", digits[:1].inputs)
    assert 41 <= int(found.model_evaluations) <= budget


def test_explain_origin_or_predicted_matters_only_where_the_class_flips(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[3:4].inputs
    found = WorstCase(standfast.LinfBall(0.3), "misclassification", budget=100)(
        lenet, "saliency", x
    )
    assert found.found.all()
    same = WorstCase(standfast.LinfBall(0.3), "misclassification", budget=100, explain="origin")(
        lenet, "saliency", x
    )
    assert torch.equal(same.inputs, found.inputs)
    assert not torch.equal(same.similarity, found.similarity)
    # what is stored of the search, for the samples that were searched
    lines = found.tensors()["trace_margin"]
    assert torch.equal(lines[found.traced], found.trace.margin.double())
    assert lines[found.traced].isfinite().all()


# sensitivity


def measure_distances(
    model: standfast.Model,
    x: torch.Tensor,
    perturbed: torch.Tensor,
    targets: torch.Tensor | None = None,
) -> torch.Tensor:
    """Distances of the maps of input x gradient at `perturbed` `(N, S, ...)` to those of `x`, `(N, S)`."""
    with model.session():
        probe = Probe(Call(model, standfast.explainers.get("input_x_gradient"), x, targets))
        origin = torch.arange(len(x)).repeat_interleave(perturbed.shape[1])
        distance = probe.query(perturbed.flatten(0, 1), origin, want_distance=True).distance
    return distance.reshape(perturbed.shape[:2])


def test_sensitivity_of_a_linear_model_is_known() -> None:
    weights = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 1.0, 0.0]])
    model = linear_classifier(weights, torch.tensor([10.0, 0.0]))
    x = torch.tensor([[0.5, 0.4, 0.6]])
    steps = np.array([[0.1, 0, 0], [0, 0.1, 0], [0.1, 0.1, 0.1]])
    perturbed = x[:, None] + torch.from_numpy(steps).float()
    for targets, slopes in ((None, [1, -2, 0.5]), (torch.tensor([1]), [-1, 1, 0])):
        expected = np.linalg.norm(steps * slopes, axis=1)
        assert measure_distances(model, x, perturbed, targets)[0].tolist() == pytest.approx(
            expected, rel=1e-5
        )
    # the largest over the box is at its corners, and the slope never exceeds the largest weight
    explainer, largest = (
        standfast.explainers.get("input_x_gradient"),
        0.2 * np.linalg.norm([1, 2, 0.5]),
    )
    sampled = MaxSensitivity(BALL, samples=4000)(model, explainer, x)
    assert sampled.value.item() == pytest.approx(largest, rel=0.05)
    normalised = MaxSensitivity(BALL, samples=4000, normalise=True)(model, explainer, x)
    assert normalised.value.item() == pytest.approx(
        sampled.value.item() / np.linalg.norm([0.5, 0.8, 0.3]), rel=1e-5
    )
    searched = WorstCase(
        BALL, similarity="mse", search="block", budget=402, absolute=False, track_sensitivity=True
    )
    assert searched(model, explainer, x).sens_max.item() == pytest.approx(largest, rel=1e-3)
    assert 1.9 < LocalLipschitz(BALL, samples=4000)(model, explainer, x).value.item() <= 2 + 1e-4


def test_sensitivity_is_captums_for_the_same_perturbations(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from captum.attr import InputXGradient
        from captum.metrics import sensitivity_max

    x = digits[:4].inputs
    noise = torch.empty(4, 6, 1, 28, 28).uniform_(
        -0.05, 0.05, generator=torch.Generator().manual_seed(0)
    )
    perturbed = (x[:, None] + noise).clamp(0, 1)
    targets = lenet.predict(x)

    def theirs_perturbed(inputs: torch.Tensor) -> torch.Tensor:
        assert inputs.shape[0] == 24
        return perturbed.flatten(0, 1)

    module = lenet.module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = sensitivity_max(
            InputXGradient(module).attribute,
            x,
            theirs_perturbed,
            n_perturb_samples=6,
            norm_ord="fro",
            target=targets,
        )
    norm = standfast.explainers.get("input_x_gradient")(lenet, x, targets).flatten(1).norm(dim=1)
    assert torch.allclose(
        measure_distances(lenet, x, perturbed, targets).amax(1) / norm, theirs, rtol=1e-4
    )


def test_a_search_finds_more_sensitivity_than_a_sample(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    # SAFARI, Table 1, in small
    x, ball = digits[:3].inputs, standfast.LinfBall(0.3)
    worst = WorstCase(
        ball, similarity="mse", search="block", budget=152, absolute=False, explain="origin"
    )
    searched = replace(worst, track_sensitivity=True)(lenet, "input_x_gradient", x)
    for kind, largest in (
        (MaxSensitivity, searched.sens_max),
        (LocalLipschitz, searched.sens_lips),
    ):
        sampled = kind(ball, samples=150)(lenet, "input_x_gradient", x)
        assert (largest > sampled.value).float().mean() > 0.6


def test_sampled_sensitivity_is_where_it_says(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    x = digits[:2].inputs
    result = MaxSensitivity(BALL, samples=20)(lenet, "saliency", x)
    assert result.inputs is not None
    explainer = standfast.explainers.get("saliency")
    targets = lenet.predict(x)
    distance = (
        (explainer(lenet, result.inputs, targets) - explainer(lenet, x)).flatten(1).norm(dim=1)
    )
    assert torch.allclose(distance, result.value, rtol=1e-4)


@pytest.mark.parametrize("kind", [WorstCase, MisinterpretationProbability])
def test_bad_options(kind: type) -> None:
    assert_refused(
        partial(kind, BALL),
        event=["changed"],
        similarity=["pearsn"],
        explain=["target"],
        margin=["odds"],
    )
    assert_refused(partial(kind, BALL), absolute=[1])
    assert_refused(partial(kind, BALL, event="misclassification"), threshold=[0.4])


def test_bad_options_of_one_metric() -> None:
    assert_refused(partial(WorstCase, BALL), search=["blok"], budget=[2])
    assert_refused(partial(MaxSensitivity, BALL), samples=[0], explain=["target"], normalise=[1])
    assert_refused(partial(MisinterpretationProbability, BALL), method=["mcmc"])
    with pytest.raises(ArgumentError, match="threshold: expected a number, since mse"):
        MisinterpretationProbability(BALL, similarity="mse")


def test_the_result_says_whether_gradients_were_followed(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    for explainer, search, followed in (
        ("input_x_gradient", "auto", True),
        ("input_x_gradient", "block", False),
        ("random", "auto", False),
    ):
        found = WorstCase(BALL, search=search, budget=30)(lenet, explainer, digits[:2].inputs)
        assert found.followed_gradients.tolist() == [followed] * 2, (explainer, search)


def test_white_box_search_refuses_what_has_no_derivative(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    with pytest.raises(standfast.ArgumentError, match="search: expected a black-box search"):
        WorstCase(BALL, search="gradient", budget=10)(lenet, "guided_backprop", digits[:1].inputs)
    with pytest.raises(standfast.ArgumentError, match="search: expected a black-box search"):
        WorstCase(BALL, search="gradient", similarity="kendall", budget=10)(
            lenet, "saliency", digits[:1].inputs
        )
