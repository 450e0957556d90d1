"""What a metric says of its options is declared: no code knows an option by its name alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import standfast
from standfast.data.bundled_samples import bundled
from standfast.errors import ArgumentError
from standfast.metrics.base import Cost, Metric, metrics, set_neighbourhood
from standfast.metrics.probe import Probe
from standfast.metrics.result import Result
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.neighbourhoods.naming import label_neighbourhoods
from standfast.question.arguments import Arguments
from standfast.question.metric_labels import name_metrics
from standfast.question.texts import Texts
from standfast.study.file.spec import study_from
from standfast.study.plan import make_plan
from standfast.testing import check_metric

SOURCE = Path(standfast.__file__).parent
#: reads of a name that options of metrics have, too, on things that are no metric
OTHERS = {
    ("frames/model.py", "threshold"): "a task",
    ("frames/wrappers.py", "steps"): "an estimator of scikit-learn",
    ("frames/wrappers.py", "estimator"): "an estimator of scikit-learn",
    ("tasks/thresholds.py", "threshold"): "an estimator of scikit-learn",
    ("tasks/sources.py", "steps"): "a pipeline of scikit-learn",
    ("metrics/lens/attribution_attack.py", "k"): "a similarity",
    ("zoo/hub.py", "mean"): "the processor of a model of a hub",
    ("explainers/adapters/text_explainers.py", "segments"): "an explainer",
    ("question/frames.py", "segments"): "an explainer",
}


class Registered:
    """Metrics under names for one test."""

    def __init__(self, **kinds: type[Metric]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        for name, kind in self.kinds.items():
            metrics.register(name)(kind)

    def __exit__(self, *error: object) -> None:
        for name in self.kinds:
            del metrics._entries[name]


@dataclass(frozen=True)
class Moved(Metric):
    """How similar maps stay in a neighbourhood that has a name of its own, within a number of evaluations."""

    name = "moved"
    direction = "higher"
    neighbourhood_option = "surroundings"
    budget_option = "most"

    surroundings: Neighbourhood
    most: int = 3

    @classmethod
    def example(cls) -> Moved:
        return cls(LinfBall(0.1))

    def cost(self, classes: int | None = None) -> Cost:
        return Cost(predictions=0, explanations=2)

    def evaluate(self, call: Any) -> Result:
        region = self.surroundings.around(call.inputs, call.model.bounds)
        probe = Probe(call, similarity="cosine", region=region)
        points = region.sample(1, region.streams(call.seed))[:, 0]
        usable = torch.arange(len(call.inputs))
        found = probe.query(points, usable).similarity
        return Result(**probe.common_fields(self), value=found)


@dataclass(frozen=True)
class Undeclared(Metric):
    name = "undeclared"
    direction = "higher"
    neighbourhood: Neighbourhood | None = None
    budget: str = "small"

    def evaluate(self, call: Any) -> Result:
        probe = Probe(call, similarity="cosine")
        return Result(**probe.common_fields(self), value=probe.query(call.inputs / 2).similarity)


@dataclass(frozen=True)
class Filled(Undeclared):
    name = "filled"
    removal_options = ("fill",)
    fill: float = 0.0


def _list_reads(path: Path) -> Iterator[tuple[str, int]]:
    """Names that a file asks of an object by `getattr` or `hasattr`, with their lines."""
    text = path.read_text(encoding="utf-8")
    if "getattr(" not in text and "hasattr(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Name)
            or len(node.args) < 2
        ):
            continue
        name = node.args[1]
        if node.func.id in ("getattr", "hasattr") and isinstance(name, ast.Constant):
            yield str(name.value), node.lineno


def test_no_option_of_a_metric_is_read_by_name() -> None:
    options: set[str] = set()
    for name in metrics.names():
        kind = metrics[name]
        if is_dataclass(kind) and kind.__module__.startswith("standfast.metrics."):
            options.update(option.name for option in fields(kind))
    assert {"neighbourhood", "budget", "baseline", "replacement"} <= options
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        for name, line in _list_reads(path):
            if name in options and (place, name) not in OTHERS:
                found.append(f"{place}:{line} reads {name!r} by name: declare it in Metric")
            used.add((place, name))
    assert found == []
    assert set(OTHERS) <= used, "exceptions that nothing needs"


@pytest.mark.parametrize("name", ["worst_case", "misinterpretation_probability"])
def test_a_declared_limit_is_the_options_own(name: str) -> None:
    metric = standfast.metrics.get(name, neighbourhood=LinfBall(0.1), budget=2000)
    assert metric.most_evaluations == 2000
    assert metric.neighbourhood_in_use == LinfBall(0.1)
    assert set_neighbourhood(metric, LinfBall(0.2)).neighbourhood_in_use == LinfBall(0.2)
    assert standfast.metrics.get("aopc").most_evaluations is None


def test_an_option_of_another_name_is_served_wherever_it_is_declared() -> None:
    check_metric(Moved(LinfBall(0.1)), ["flat"])
    digits = bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    with Registered(moved=Moved):
        assert name_metrics(["moved"], LinfBall(0.2)) == {"moved": Moved(LinfBall(0.2))}
        asked = Arguments(model, "saliency", digits, ["moved"], sanity=False).ask()
        assert asked.metrics == {"moved": Moved(LinfBall(8 / 255))}
        balls = (LinfBall(0.1), LinfBall(0.3))
        several = [{"linf": ball.radius} for ball in balls]
        content = {
            "data": {"d": "digits"},
            "models": {"m": "lenet5-mnist"},
            "explainers": ["saliency"],
        }
        study = study_from({**content, "neighbourhood": several, "metrics": ["moved"]})
        labels = [f"moved: {words}" for words in label_neighbourhoods(balls)]
        assert dict(study.ask().metrics) == dict(zip(labels, map(Moved, balls), strict=True))
        own = study_from({**content, "metrics": [{"moved": {"surroundings": {"linf": 0.3}}}]})
        assert dict(own.ask().metrics) == {"moved": Moved(LinfBall(0.3))}


@dataclass(frozen=True)
class Optional(Undeclared):
    """Works in a neighbourhood, and without."""

    name = "optional"
    neighbourhood_option = "neighbourhood"


@pytest.mark.parametrize("names", [["optional"], ["optional", "max_sensitivity:samples=2"]])
def test_a_neighbourhood_that_is_not_needed_is_the_same_in_a_file_and_in_a_call(
    names: list[str],
) -> None:
    """It has the default where another metric needs one, and is without where none does."""
    digits = bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    content = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["saliency"]}
    with Registered(optional=Optional):
        asked = Arguments(model, "saliency", digits, names, sanity=False).ask()
        study = study_from({**content, "metrics": names})
        assert dict(study.ask().metrics) == asked.metrics
        assert dict(study_from(study.plain()).ask().metrics) == asked.metrics
        (metric,) = (
            study_from({**content, "metrics": [{"optional": {"neighbourhood": None}}]})
            .ask()
            .metrics.values()
        )
    assert metric.neighbourhood_in_use is None
    assert (asked.metrics["optional"].neighbourhood_in_use is None) == (len(names) == 1)


def test_a_declared_limit_bounds_what_is_estimated() -> None:
    digits = bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    question = Arguments(
        model, "saliency", digits.inputs, [Undeclared()], sanity=False, controls=False
    ).ask()
    assert make_plan(question.make_grid()).jobs
    costs = standfast.estimate(
        model, "saliency", digits.inputs, [Undeclared()], sanity=False, controls=False
    )
    assert costs.evaluations > 0, "a budget that is a word is an option like others"


def test_a_neighbourhood_of_which_the_class_says_nothing_is_refused_when_it_is_made() -> None:
    assert Undeclared().neighbourhood_in_use is None
    with pytest.raises(ArgumentError) as caught:
        Undeclared(LinfBall(0.1))
    assert caught.value.argument == "Undeclared.neighbourhood_option"
    with pytest.raises(ArgumentError) as caught:
        Moved(0.1)  # type: ignore[arg-type]
    assert caught.value.argument == "surroundings"


@pytest.mark.parametrize("option", ["neighbourhood_option", "budget_option"])
def test_a_declaration_of_an_option_that_is_not_there_is_refused(option: str) -> None:
    kind = dataclass(frozen=True)(
        type("Plugin", (Undeclared,), {"name": "plugin", option: "radius"})
    )
    with pytest.raises(ArgumentError) as caught:
        kind()
    assert caught.value.argument == f"Plugin.{option}"


def test_texts_refuse_a_metric_whose_option_they_cannot_set() -> None:
    texts = Texts({}, {}, readers={})
    with pytest.raises(ArgumentError) as caught:
        texts.fit_metric("filled", Filled())
    assert caught.value.argument == "Filled.removal_options"
    assert "'fill'" in str(caught.value) or "fill" in caught.value.got
