"""A search for the options of a network for series and of its training, by Optuna (extra `timeseries`).

Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. C and Table C.I.
If the accuracy of a network is below 90%, the paper draws its options by the tree-structured Parzen estimator
(Bergstra, Bardenet, Bengio and Kegl, Algorithms for hyper-parameter optimization, NeurIPS 2011). The options are those
of the table. Difference: the learning rate is drawn on a logarithmic scale; on a linear scale, nine in ten would be
above 0.01. The search maximises the accuracy on held-out training data; the paper does not say which data it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from standfast.data import Dataset
from standfast.errors import MissingExtraError, UnknownNameError, as_number, check, check_integer
from standfast.training.classifier import accuracy, initialize, train_classifier
from standfast.training.loop import Augmentation, DivergedError
from standfast.training.objective import Scheme
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.series_cnn import SeriesCNN
from standfast.zoo.networks.series_transformer import SeriesTransformer

LEARNING_RATE = (1e-4, 0.1)
#: values of the options of the training and of all networks
COMMON: dict[str, tuple[float, ...]] = {
    "weight_decay": (0.0, 0.001, 0.002),
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "batch_size": (32, 64, 128),
}
#: values of the options of each network; `units` are those of all LSTMs, `mlp` is the width of the transformer's tokens
SPACES: dict[str, dict[str, tuple[int, ...]]] = {
    "series_cnn": {"layers": (3, 4), "width": (32, 64, 128, 256), "kernel_size": (3, 5, 7, 11, 15)},
    "bilstm": {"layers": (3, 4), "units": (32, 64, 128, 256)},
    "series_transformer": {
        "layers": (2, 3, 4),
        "heads": (2, 4, 8),
        "feedforward": (32, 64, 128, 256),
        "mlp": (32, 64, 128, 256),
    },
}
_TRAINING = ("learning_rate", "weight_decay", "batch_size")


@dataclass(frozen=True)
class TuningResult:
    """The result of a search.

    Attributes:
        model: the architecture's name.
        options: of the architecture, as arguments of its class.
        training: learning_rate, weight_decay and batch_size, as arguments of `train_classifier`.
        accuracy: on the held-out samples.
        trials: for each trial in order, its options and its accuracy (0 if training diverged).
    """

    model: str
    options: Mapping[str, Any]
    training: Mapping[str, float]
    accuracy: float
    trials: tuple[tuple[Mapping[str, float], float], ...]


def collect_architecture_options(model: str, drawn: Mapping[str, float]) -> dict[str, Any]:
    """Options drawn from `SPACES`, as arguments of the class of the architecture.

    >>> collect_architecture_options("bilstm", {"layers": 3, "units": 64, "dropout": 0.1, "learning_rate": 0.01})
    {'dropout': 0.1, 'units': (64, 64, 64)}
    >>> collect_architecture_options("series_transformer", {"layers": 2, "heads": 4, "feedforward": 32, "mlp": 64})
    {'layers': 2, 'heads': 4, 'feedforward': 32, 'stem': (128, 64), 'hidden': 64}
    """
    options = {name: value for name, value in drawn.items() if name not in _TRAINING}
    if model == "bilstm":
        units = (int(options.pop("units")),) * int(options.pop("layers"))
        return {**options, "units": units}
    if model == "series_transformer":
        width = int(options.pop("mlp"))
        return {**options, "stem": (128, width), "hidden": width}
    return options


def tune(
    model: str,
    data: Dataset,
    *,
    trials: int = 20,
    epochs: int = 20,
    seed: int = 0,
    held_out: float = 0.2,
    fixed: Mapping[str, Any] | None = None,
    scheme: Scheme | None = None,
    augment: Augmentation | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int, float], None] | None = None,
) -> TuningResult:
    """Draw options, train networks with them by RAdam, and return the options with the best held-out accuracy.

    On one machine, the same seed draws the same options. Each trial has its own seed for its initial weights.

    Args:
        model: "series_cnn", "bilstm" or "series_transformer".
        data: series to train on, without those for the final test.
        trials: how many combinations of options are tried, at least 1.
        epochs: of each training.
        seed: a whole number of at least 0.
        held_out: the share of `data`, drawn at random, on which the accuracy is measured; in (0, 1).
        fixed: options of the architecture that are not drawn, such as `{"stride": 2}`; they replace drawn ones.
        scheme: the loss to minimise, instead of the cross-entropy.
        augment: as for `train_classifier`.
        device: where it runs.
        progress: called after each trial with its number from 1 and its accuracy.

    Raises:
        ArgumentError: an argument out of its range, or a model that is not in `SPACES`.
        MissingExtraError: Optuna is not installed.
        ModelError: the scheme cannot train this network. (A training that diverges counts as accuracy 0.)

    >>> from standfast.data import synthetic_waves
    >>> tune("series_cnn", synthetic_waves(500), trials=3, epochs=2).options  # doctest: +SKIP
    {'dropout': 0.1, 'layers': 3, 'width': 64, 'kernel_size': 11}
    """
    if model not in SPACES:
        raise UnknownNameError("model", model, SPACES)
    for option, value in (("trials", trials), ("epochs", epochs)):
        check_integer(value, option)
    check(type(as_number(seed)) is int and 0 <= seed < 1 << 32, "seed", "a whole number from 0 to 2^32 - 1", seed)
    check(0 < held_out < 1, "held_out", "a share in (0, 1)", held_out)
    kept = round(len(data) * (1 - held_out))
    check(0 < kept < len(data), "data", "samples to train on and to hold out", f"{len(data)}")
    optuna = _import_optuna()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    training, validation = data.take(order[:kept]), data.take(order[kept:])
    done: list[tuple[Mapping[str, float], float]] = []

    def objective(trial: Any) -> float:
        drawn: dict[str, float] = {"learning_rate": trial.suggest_float("learning_rate", *LEARNING_RATE, log=True)}
        for name, choices in {**COMMON, **SPACES[model]}.items():
            drawn[name] = trial.suggest_categorical(name, list(choices))
        reached = measure(drawn)
        done.append((drawn, reached))
        if progress is not None:
            progress(len(done), reached)
        return reached

    def measure(drawn: Mapping[str, float]) -> float:
        generator = torch.Generator().manual_seed(seed + len(done))
        options = {**collect_architecture_options(model, drawn), **(fixed or {})}
        with torch.random.fork_rng(devices=[]):
            module = build_network(model, len(data.classes), data.inputs.shape[1], options)
        module = initialize(module, generator).to(device)
        try:
            train_classifier(
                module,
                training.inputs,
                training.labels,
                epochs=epochs,
                generator=generator,
                batch_size=int(drawn["batch_size"]),
                learning_rate=drawn["learning_rate"],
                weight_decay=drawn["weight_decay"],
                augment=augment,
                scheme=scheme,
                bounds=data.bounds,
                optimizer="radam",
                extras=training.extras,
            )
        except DivergedError:
            return 0.0
        return accuracy(module, validation.inputs, validation.labels)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    drawn, best = max(done, key=lambda each: each[1])  # the first of the best
    training_options = {name: drawn[name] for name in _TRAINING}
    return TuningResult(
        model, {**collect_architecture_options(model, drawn), **(fixed or {})}, training_options, best, tuple(done)
    )


def build_network(model: str, num_classes: int, in_channels: int, options: Mapping[str, Any]) -> nn.Module:
    """The architecture called `model`, with these options and random initial weights."""
    kinds: dict[str, Callable[..., nn.Module]] = {
        "series_cnn": SeriesCNN,
        "bilstm": BiLSTM,
        "series_transformer": SeriesTransformer,
    }
    return kinds[model](num_classes, in_channels, **options)


def _import_optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise MissingExtraError(f"the search for options ({error})", "timeseries") from error
