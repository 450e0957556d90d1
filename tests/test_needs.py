"""What a metric or an explainer declares is a value, and is refused when it cannot mean anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, FailedModuleError
from standfast.explainers.base import Explainer
from standfast.metrics.base import Metric, PartOf
from standfast.metrics.probe import Probe
from standfast.metrics.result import Result
from standfast.model import Model
from standfast.needs import Needs


def make_metric(**declared: Any) -> type[Metric]:
    """A metric of half an input with an option `steps`, and what it declares."""

    @dataclass(frozen=True)
    class Halved(Metric):
        name = "halved"
        direction = "higher"
        steps: int = 3

        def evaluate(self, call: Any) -> Result:
            probe = Probe(call, similarity="cosine")
            return Result(
                **probe.common_fields(self), value=probe.query(call.inputs / 2).similarity
            )

    kind = type("Plugin", (Halved,), {"name": "plugin", **declared})
    return dataclass(frozen=True)(kind)


def sum_columns(rows: Any) -> Any:
    return torch.as_tensor(rows).flatten(1).softmax(1).numpy()


@pytest.mark.parametrize(
    "declared",
    [
        {"needs": "gradients of the model"},
        {"controls": "always"},
        {"takes_widths": 1},
        {"version": True},
        {"evidence": None},
        {"evidence": "exact"},
        {"removal_options": "steps"},
    ],
)
def test_a_declaration_of_another_type_is_refused_with_the_class(declared: dict[str, Any]) -> None:
    (name,) = declared
    with pytest.raises(ArgumentError) as caught:
        make_metric(**declared)
    assert caught.value.argument == f"Plugin.{name}"


@pytest.mark.parametrize(
    "declared",
    [
        {"removal_options": ("baselin",)},
        {"roles": {"step": "no effect"}},
        {"roles": {"steps": PartOf("how", only=("often",))}},
        {"presets": {"quick": {"stepps": 1}}},
        {"mask_option": "masks"},
    ],
)
def test_a_declaration_of_an_option_that_is_not_there_is_refused(declared: dict[str, Any]) -> None:
    (name,) = declared
    kind = make_metric(**declared)
    with pytest.raises(ArgumentError) as caught:
        kind()
    assert caught.value.argument == f"Plugin.{name}"


def test_declarations_that_fit_are_taken() -> None:
    metric = make_metric(
        needs=Needs(gradients=True),
        roles={"steps": "no effect"},
        presets={"quick": {"steps": 1}},
        controls=True,
    )
    assert metric(preset="quick").options()["steps"] == 1


@pytest.mark.parametrize(
    "needs",
    [Needs(gradients=True), Needs(gradients=True, other="of the model"), Needs(parameters=True)],
)
def test_a_metric_that_needs_a_module_refuses_a_function_before_any_work(needs: Needs) -> None:
    calls: list[int] = []

    def count(rows: Any) -> Any:
        calls.append(len(rows))
        return sum_columns(rows)

    model = Model.from_callable(count, (0.0, 1.0))
    with pytest.raises(ArgumentError) as caught:
        make_metric(needs=needs)()(model, "input_copy", torch.rand(2, 3))
    assert caught.value.argument == "model"
    assert calls == []
    assert make_metric()()(model, "input_copy", torch.rand(2, 3)).status == ("ok", "ok")


def test_weights_of_a_function_cannot_be_masked() -> None:
    model = Model.from_callable(sum_columns, (0.0, 1.0))
    metric = standfast.metrics.get("parameter_sensitivity_consistency")
    with pytest.raises(ArgumentError) as caught:
        metric(model, "occlusion", torch.rand(2, 3))
    assert caught.value.argument == "model"


def make_explainer(**declared: Any) -> type[Explainer]:
    class Zeros(Explainer):
        name = "zeros"

        def attribute(
            self, model: Any, x: Tensor, targets: Any, *, create_graph: bool = False
        ) -> Any:
            return torch.zeros_like(x), model.forward(x)

    return type("Plugin", (Zeros,), {"name": "plugin", **declared})


@pytest.mark.parametrize(
    "declared", [{"needs": "gradients"}, {"gateable": "yes"}, {"batches": "2"}]
)
def test_an_explainer_that_declares_another_type_is_refused(declared: dict[str, Any]) -> None:
    (name,) = declared
    with pytest.raises(ArgumentError) as caught:
        make_explainer(**declared)
    assert caught.value.argument == f"Plugin.{name}"


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("an error of the user's")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Model(Failing(), (0.0, 1.0), device="cpu"),
        lambda: Model.from_callable(lambda rows: {}["scores"], (0.0, 1.0)),
        lambda: Model.from_callable(lambda rows: "scores", (0.0, 1.0)),
    ],
)
def test_an_error_of_the_users_code_has_a_type_of_its_own(make: Callable[[], Model]) -> None:
    with pytest.raises(FailedModuleError):
        make().logits(torch.rand(2, 3))


def test_a_declaration_of_a_class_beside_the_base_is_checked_too() -> None:
    class Mixin:
        needs = "gradients"

    with pytest.raises(ArgumentError) as caught:
        type("Plugin", (Mixin, make_explainer()), {"name": "plugin 2"})
    assert caught.value.argument == "Plugin.needs"
