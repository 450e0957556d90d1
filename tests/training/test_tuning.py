"""The search for options: the values of the table, what is drawn and returned; with a stand-in, and with Optuna."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refusals import assert_refused

from standfast.data import Dataset, synthetic_waves
from standfast.errors import ArgumentError, MissingExtraError, ModelError, UnknownNameError
from standfast.training import tuning
from standfast.training.calibration import Calibrated
from standfast.training.loop import DivergedError
from standfast.training.tuning import COMMON, SPACES, build_network, collect_architecture_options, tune

FIXED = {"series_cnn": {"width": 4, "hidden": 4}, "bilstm": {"units": (4,), "patch": 5}}


class StandIn:
    """Draws options by a seed, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.samplers = SimpleNamespace(TPESampler=lambda seed: seed)

    def create_study(self, direction: str, sampler: int) -> SimpleNamespace:
        assert direction == "maximize"
        self.generator = torch.Generator().manual_seed(sampler)
        return SimpleNamespace(optimize=self.optimize)

    def optimize(self, objective: Any, n_trials: int) -> None:
        trial = SimpleNamespace(suggest_float=self.suggest_float, suggest_categorical=self.suggest_categorical)
        for _ in range(n_trials):
            objective(trial)

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        self.asked.append((name, (low, high, log)))
        return float(low * (high / low) ** torch.rand((), generator=self.generator))

    def suggest_categorical(self, name: str, choices: list[float]) -> float:
        self.asked.append((name, tuple(choices)))
        return choices[int(torch.randint(len(choices), (), generator=self.generator))]


@pytest.fixture
def optuna(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "optuna", stand_in)
    return stand_in


@pytest.mark.parametrize("model", ["series_cnn", "bilstm"])
def test_the_best_options_are_returned(optuna: StandIn, model: str) -> None:
    waves = synthetic_waves(60, steps=50, block=15)
    seen: list[tuple[int, float]] = []
    found = tune(
        model,
        waves,
        trials=3,
        epochs=1,
        fixed=FIXED[model],
        progress=lambda number, value: seen.append((number, value)),
    )
    assert [number for number, _ in seen] == [1, 2, 3]
    assert [value for _, value in found.trials] == [value for _, value in seen]
    assert found.accuracy == max(value for _, value in seen)
    (drawn, _) = next(each for each in found.trials if each[1] == found.accuracy)
    assert dict(found.training) == {name: drawn[name] for name in ("learning_rate", "weight_decay", "batch_size")}
    assert found.options == {**collect_architecture_options(model, drawn), **FIXED[model]}
    spaces = {**COMMON, **SPACES[model], "learning_rate": (1e-4, 0.1, True)}
    assert dict(optuna.asked) == spaces
    again = tune(model, waves, trials=3, epochs=1, fixed=FIXED[model])
    assert again.trials == found.trials


def test_a_fifth_is_held_out(optuna: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    waves = synthetic_waves(50, steps=50, block=15)
    used: dict[str, Any] = {}

    def train(module: Any, inputs: Any, labels: Any, **options: Any) -> None:
        used.update(options, inputs=inputs)

    def measure(module: Any, inputs: Any, labels: Any) -> float:
        used["held"] = inputs
        return 0.5

    monkeypatch.setattr(tuning, "train_classifier", train)
    monkeypatch.setattr(tuning, "accuracy", measure)
    tune("series_cnn", waves, trials=1, fixed=FIXED["series_cnn"], seed=3)
    assert (len(used["inputs"]), len(used["held"]), used["optimizer"]) == (40, 10, "radam")
    both = torch.cat([used["inputs"], used["held"]])
    assert torch.equal(both.sum((1, 2)).sort().values, waves.inputs.sum((1, 2)).sort().values)
    assert not torch.equal(both, waves.inputs)
    assert len(used["extras"]["f_norm"]) == 40


def test_divergence_counts_as_a_trial_and_a_wrong_scheme_is_an_error(
    optuna: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves = synthetic_waves(40, steps=50, block=15)
    three = Dataset("three", waves.inputs, torch.arange(40) % 3, ("a", "b", "c"), waves.bounds, waves.extras)
    with pytest.raises(ModelError, match="calibrated: expected a module with two classes, got 3"):
        tune("series_cnn", three, trials=1, epochs=1, fixed=FIXED["series_cnn"], scheme=Calibrated())
    calls = []

    def train(module: Any, *arguments: Any, **options: Any) -> None:
        calls.append(options["learning_rate"])
        if len(calls) == 1:
            raise DivergedError("training diverged")

    monkeypatch.setattr(tuning, "train_classifier", train)
    monkeypatch.setattr(tuning, "accuracy", lambda *arguments: 0.25)
    found = tune("series_cnn", waves, trials=2, epochs=1, fixed=FIXED["series_cnn"])
    assert [reached for _, reached in found.trials] == [0.0, 0.25]
    assert found.training["learning_rate"] == calls[1]


@pytest.mark.parametrize("model", SPACES)
def test_extreme_options_give_a_network(model: str) -> None:
    for corner in (0, -1):
        drawn = {name: choices[corner] for name, choices in {**COMMON, **SPACES[model]}.items()}
        with torch.device("meta"):
            module = build_network(model, 3, 2, collect_architecture_options(model, drawn)).eval()
            assert module(torch.zeros(2, 2, 40)).shape == (2, 3)


def test_the_spaces_equal_the_papers_table() -> None:
    assert {name: len(choices) for name, choices in COMMON.items()} == {
        "weight_decay": 3,
        "dropout": 6,
        "batch_size": 3,
    }
    powers = (32, 64, 128, 256)
    assert SPACES["series_cnn"] == {"layers": (3, 4), "width": powers, "kernel_size": (3, 5, 7, 11, 15)}
    assert SPACES["bilstm"] == {"layers": (3, 4), "units": powers}
    assert SPACES["series_transformer"]["heads"] == (2, 4, 8)
    assert SPACES["series_transformer"]["mlp"] == SPACES["series_transformer"]["feedforward"] == powers


def test_arguments_are_checked(optuna: StandIn) -> None:
    def make(**options: object) -> object:
        return tune("series_cnn", synthetic_waves(10, steps=30, block=10), **options)

    assert_refused(make, trials=[0], epochs=[0], seed=[-1], held_out=[1.0])
    with pytest.raises(ArgumentError, match="data: expected samples to train on and to hold out"):
        make(held_out=0.01)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    waves = synthetic_waves(10, steps=30, block=10)
    with pytest.raises(UnknownNameError, match="did you mean 'series_cnn'"):
        tune("serie_cnn", waves)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"standfast\[timeseries\]"):
        tune("series_cnn", waves)


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_optuna_itself() -> None:
    waves = synthetic_waves(40, steps=50, block=15)
    found = tune("series_cnn", waves, trials=3, epochs=1, fixed=FIXED["series_cnn"])
    assert len(found.trials) == 3
    assert 1e-4 <= found.training["learning_rate"] <= 0.1
