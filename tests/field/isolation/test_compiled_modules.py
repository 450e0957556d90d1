"""Modules that keep their mode elsewhere than others, compiled ones and programs of TorchScript, are evaluated too."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import standfast
from standfast.study.guard import Guard, TorchFunctions

pytestmark = [
    # while torch compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
]

INPUTS = torch.rand(3, 6, generator=torch.Generator().manual_seed(1))


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()


def compile_network() -> nn.Module:
    return torch.compile(make_network(), backend="eager")  # type: ignore[return-value]


FORMS: dict[str, Callable[[], nn.Module]] = {
    "compiled": compile_network,
    "scripted": lambda: torch.jit.script(make_network()),
    "traced": lambda: torch.jit.trace(make_network(), INPUTS),
    "frozen": lambda: torch.jit.freeze(torch.jit.script(make_network())),
    "scripted part": lambda: nn.Sequential(torch.jit.script(make_network())).eval(),
}


def measure(module: nn.Module) -> list[float]:
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    explainers = ["saliency", "input_x_gradient"]
    results = standfast.evaluate(
        model, explainers, INPUTS, metric, sanity=False, controls=False, progress=False
    )
    assert results.failures == []
    return results.frame()["value"].to_list()


@pytest.mark.parametrize("form", FORMS)
def test_the_numbers_are_those_of_the_module(form: str) -> None:
    assert measure(FORMS[form]()) == pytest.approx(measure(make_network()), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "frozen"])  # which has no mode
def test_a_mode_that_an_explainer_leaves_is_undone(form: str) -> None:
    module = FORMS[form]()
    guard = Guard(standfast.Model(module, bounds=(0.0, 1.0), device="cpu"), INPUTS[:1])
    assert guard.clean_up("none")
    module.train()
    with pytest.warns(
        UserWarning, match=r"explainer 'culprit' has changed the model \(mode\); this was undone"
    ):
        assert guard.clean_up("culprit")
    assert not any(part.training for part in module.modules())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert guard.clean_up("none")


def test_a_first_compilation_is_no_change_by_an_explainer() -> None:
    """Torch then replaces the constructor of modules by one that calls it."""
    compile_network()(INPUTS)
    constructor = nn.Module.__init__
    functions = TorchFunctions(make_network())
    entries = next(entries for place, entries in functions.before if place is nn.Module)
    entries["__init__"] = inspect.getclosurevars(constructor).nonlocals["init"]
    assert functions.restore() == []
    assert nn.Module.__init__ is constructor
