"""`standfast.testing` finds what is wrong: metrics, explainers and similarities that each break one promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import standfast
from standfast.explainers import Explainer
from standfast.metrics import Cost, Metric, Probe, Result
from standfast.similarity import Similarity
from standfast.testing import (
    METRIC_CHECKS,
    SHAPES,
    check_explainer,
    check_metric,
    check_similarity,
    small_net,
)


@dataclass(frozen=True)
class Halved(Metric):
    """Keeps every promise: how similar the explanations of an input and of half of it are."""

    name = "halved"
    direction = "higher"
    factor: float = 0.5

    def evaluate(self, call: Any) -> Result:
        probe = Probe(call, similarity="cosine")
        found = probe.query(self.perturb(call.inputs, call.model)).similarity
        return self.finish(Result(**probe.common_fields(self), value=found))

    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        return inputs * self.factor

    def finish(self, result: Result) -> Result:
        return result


class OfTheBatch(Halved):
    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        return inputs * inputs.mean()


class GlobalNumbers(Halved):
    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        return inputs * torch.rand(1, *inputs.shape[1:])


class GlobalSeed(Halved):
    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        torch.manual_seed(0)
        return inputs * torch.rand(1, *inputs.shape[1:])


class LeavesAHook(Halved):
    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        model.module.register_forward_hook(lambda *_: None)
        return inputs * self.factor


class Uncounted(Halved):
    def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
        for _ in range(3):
            model.forward(inputs.repeat(30, *[1] * (inputs.ndim - 1)))
        return inputs * self.factor


@dataclass(frozen=True)
class OverBudget(Halved):
    budget_option = "budget"
    budget: int = 1


class OneNumber(Halved):
    def finish(self, result: Result) -> Result:
        return replace(result, value=result.value[:1])


class AlwaysFine(Halved):
    def finish(self, result: Result) -> Result:
        return replace(result, status=("ok",) * len(result))


class OneSided(Halved):
    def finish(self, result: Result) -> Result:
        return replace(result, low=result.value)


class UpsideDown(Halved):
    def finish(self, result: Result) -> Result:
        return replace(result, low=result.value + 1, high=result.value)


class HiddenOption(Halved):
    def options(self) -> dict[str, Any]:
        return {}


class OtherPreset(Halved):
    presets = {"fast": {}}  # type: ignore[dict-item] # noqa: RUF012


class LessThanNothing(Halved):
    def cost(self, classes: int | None = None) -> Cost:
        return Cost(predictions=-1, explanations=3)


def test_metric_that_keeps_every_promise() -> None:
    check_metric(Halved())


@pytest.mark.parametrize(
    "metric",
    [
        standfast.metrics.CorruptionCurve(fractions=(0.2, 0.6), order=("bottom",), samples=2),
        standfast.metrics.WorstCase(standfast.LinfBall(0.1), "misclassification", budget=12),
    ],
    ids=lambda metric: metric.name,
)
def test_options_that_decide_what_the_value_is(metric: Metric) -> None:
    check_metric(metric, ["flat"])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OfTheBatch, "value is the same for a sample alone"),
        (GlobalNumbers, "value is the same with a batch size of 8"),
        (GlobalSeed, "torch's global generator is left as it is"),
        (LeavesAHook, "hooks are removed"),
        (Uncounted, "model_evaluations counts the rows given to the model: 10 counted, 4.. given"),
        (OverBudget, "the budget of 1 model evaluations is kept, not exceeded by 1"),
        (OneNumber, "value has one number for each sample"),
        (
            AlwaysFine,
            "NaN from the model has the status nonfinite, not ok|a constant explanation has a value",
        ),
        (OneSided, "low and high are both there, or neither"),
        (UpsideDown, "low is not above high"),
        (HiddenOption, r"options\(\) has every field"),
        (OtherPreset, "the preset 'fast' is one of quick, standard, paper"),
        (LessThanNothing, "no number of cost is below 0"),
    ],
)
def test_metric_that_breaks_a_promise(kind: type[Halved], words: str) -> None:
    with pytest.raises(AssertionError, match=f"does not hold: ({words})"):
        check_metric(kind(), ["flat"])


def test_metric_for_images_only_is_checked_on_images_only() -> None:
    class Images(Halved):
        def perturb(self, inputs: Tensor, model: standfast.Model) -> Tensor:
            return inputs * 0.5 if inputs.ndim == 4 else inputs[:, :, None]

    check_metric(Images(), ["image"])
    with pytest.raises(standfast.ModelError):
        check_metric(Images(), ["series"])


@dataclass(frozen=True)
class Gradient(Explainer):
    """Keeps every promise, if `attribution` is a function of one input."""

    attribution: Callable[[Tensor], Tensor] = torch.square
    name = "gradient"
    differentiable = True

    def attribute(
        self, model: Any, x: Any, targets: Any, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        return self.attribution(x), model.forward(x)


@pytest.mark.parametrize(
    ("attribution", "words"),
    [
        (lambda x: x[..., :-1], r"maps have the shape of the inputs, \(17, 12\), not \(17, 11\)"),
        (lambda x: x - x.mean(), "maps are the same with another batch size"),
        (lambda x: x + torch.rand(x.shape), "maps are the same a second time"),
        (lambda x: x.sign() + 0 * x, "the derivative of the explanation is not 0"),
    ],
)
def test_explainer_that_breaks_a_promise(
    attribution: Callable[[Tensor], Tensor], words: str
) -> None:
    check_explainer(Gradient(), ["flat"])
    with pytest.raises(AssertionError, match=words):
        check_explainer(Gradient(attribution), ["flat"])


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs().flatten(1).amax(1)


def make_similarity(
    function: Callable[[Tensor, Tensor], Tensor], larger_is_closer: bool = True
) -> Similarity:
    members = {
        "name": "made",
        "larger_is_closer": larger_is_closer,
        "compare": lambda self, a, b: function(a, b),
    }
    kind: type[Similarity] = type("Made", (Similarity,), members)
    return kind()


@pytest.mark.parametrize(
    ("function", "larger_is_closer", "words"),
    [
        (distance, True, "equal maps have the best value"),
        (lambda a, b: 1 + distance(a, b), False, "equal maps have the value 0.0, not 1.0"),
        (lambda a, b: distance(a, b) / distance(a, 0 * a), False, "values are finite"),
        (
            lambda a, b: distance(a, b) + 0 * a.mean(),
            False,
            "NaN in one map does not change the values of others",
        ),
        (lambda a, b: distance(a.nan_to_num(), b), False, "a map with NaN has the value NaN"),
        (lambda a, b: distance(a, b) * b.std(), False, "a pair alone has the same value"),
        (lambda a, b: distance(a.zero_(), b.zero_()), False, "maps are not written into"),
    ],
)
def test_similarity_that_breaks_a_promise(
    function: Any, larger_is_closer: bool, words: str
) -> None:
    check_similarity(make_similarity(distance, larger_is_closer=False))
    with pytest.raises(AssertionError, match=words):
        check_similarity(make_similarity(function, larger_is_closer))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_small_net_is_the_same_for_the_same_seed(shape: tuple[int, ...]) -> None:
    state, x = torch.random.get_rng_state(), torch.ones(2, *shape)
    first, again, other = (small_net(shape, classes=3, seed=seed)(x) for seed in (0, 0, 1))
    assert first.shape == (2, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


class Elsewhere(Tensor):
    """A tensor that says that it is on a card."""

    device = torch.device("cuda")  # type: ignore[assignment]


@pytest.mark.parametrize(("change", "passes"), [(1e-6, True), (1e-2, False)])
def test_a_card_may_round_by_the_place_in_the_batch_and_a_cpu_may_not(
    change: float, passes: bool
) -> None:
    def compare(a: Tensor, b: Tensor) -> Tensor:
        values = standfast.similarity.get("cosine")(a.as_subclass(Tensor), b.as_subclass(Tensor))
        return values * (1 - change * torch.arange(len(values)))

    on_the_cpu = make_similarity(compare)
    on_a_card = make_similarity(lambda a, b: compare(a, b).as_subclass(Elsewhere))
    with pytest.raises(AssertionError, match="order of the pairs"):
        check_similarity(on_the_cpu, ["flat"])
    if passes:
        check_similarity(on_a_card, ["flat"])
    else:
        with pytest.raises(AssertionError, match="order of the pairs"):
            check_similarity(on_a_card, ["flat"])


@pytest.mark.parametrize("check", METRIC_CHECKS, ids=lambda check: check.__name__)
def test_every_check_takes_a_device(check: Callable[..., None]) -> None:
    metric = standfast.metrics.metrics["worst_case"].example()
    if check.__name__ == "check_description":  # it has no model
        check(metric, SHAPES["flat"], "meta")
        return
    with pytest.raises(standfast.ArgumentError, match="device"):
        check(metric, SHAPES["flat"], "meta")


def test_the_checks_of_explainers_and_similarities_take_a_device() -> None:
    with pytest.raises(standfast.ArgumentError, match="device"):
        check_explainer(standfast.explainers.get("saliency"), ["flat"], "meta")
    seen = []

    def compare(a: Tensor, b: Tensor) -> Tensor:
        seen.append(a.device.type)
        return a[:, 0]

    with pytest.raises(Exception, match="meta"):  # a comparison needs values
        check_similarity(make_similarity(compare), ["flat"], "meta")
    assert seen == ["meta"]
