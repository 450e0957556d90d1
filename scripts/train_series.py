"""Train the bundled networks for series: weights (safetensors) and their card (JSON) in src/standfast/zoo/weights/.

    python scripts/train_series.py cnn-waves

The data are made on the spot: `standfast.data.load("waves:train")` and `"waves:test"`. The settings are those of Wei,
Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. C: RAdam, batches of
64; the networks are smaller. In half of the series that the network sees, blocks are noise (`random_noise_blocks`),
so that series which an evaluation corrupts so are no news to it. With `--calibrated` the loss of App. D, as
`<name>-calibrated`, and with `--weight 10` beside it as `<name>-calibrated10`, which brings probabilities to their
places (see `standfast.training.calibration`); with `--data waves20db` and the like noisy series, as
`<model>-waves20db`. The same seed gives the same weights on one machine with one version of torch and as many threads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor
from train_bundled import WEIGHTS, write

from standfast import data
from standfast.data.waves import NOISES
from standfast.training.calibration import Calibrated
from standfast.training.classifier import (
    Epoch,
    accuracy,
    initialize,
    random_noise_blocks,
    train_classifier,
)
from standfast.training.schemes import Natural
from standfast.zoo.networks.series_models import SERIES_MODELS


@dataclass(frozen=True)
class Recipe:
    """How one network is trained."""

    architecture: str
    epochs: int
    learning_rate: float
    weight_decay: float = 0.0
    batch_size: int = 64
    required_accuracy: float = 0.9


RECIPES = {
    "cnn-waves": Recipe("SeriesCNN(width=32, stride=2, dropout=0.1, hidden=32)", 40, 4e-3),
    "bilstm-waves": Recipe("BiLSTM(units=(32, 32), patch=4, hidden=64)", 40, 4e-3),
    "transformer-waves": Recipe(
        "SeriesTransformer(stem=(32, 32), strides=(2, 2), layers=2, feedforward=64, dropout=0.1)",
        40,
        4e-3,
        weight_decay=1e-3,
    ),
}


def train(
    model: str,
    kind: str,
    calibrated: float | None,
    epochs: int | None,
    seed: int,
    samples: int | None,
    required: float | None,
    out: Path,
) -> None:
    recipe = RECIPES[model]
    epochs = recipe.epochs if epochs is None else epochs
    end = (
        ""
        if calibrated is None
        else "-calibrated"
        if calibrated == 1
        else f"-calibrated{calibrated:g}"
    )
    name = model.removesuffix("waves") + kind + end
    training, test = data.load(f"{kind}:train")[:samples], data.load(f"{kind}:test")
    print(
        f"{name}: {training.name}, {len(training)} series; {test.name}, {len(test)} series",
        flush=True,
    )
    generator = torch.Generator().manual_seed(seed)
    module = initialize(SERIES_MODELS[model](), generator)
    scheme = Natural() if calibrated is None else Calibrated(calibrated)
    began = time.perf_counter()

    def show(epoch: Epoch) -> None:
        each = (time.perf_counter() - began) / epoch.number
        print(
            f"epoch {epoch.number}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.4f}, {each:.1f} s",
            flush=True,
        )

    train_classifier(
        module,
        training.inputs,
        training.labels,
        epochs=epochs,
        generator=generator,
        augment=random_noise_blocks,
        scheme=scheme,
        optimizer="radam",
        extras=training.extras,
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        progress=show,
    )
    state = {key: prepare_for_storage(tensor) for key, tensor in module.state_dict().items()}
    module.load_state_dict(state)
    reached = accuracy(module, test.inputs, test.labels)  # of the weights as they are stored
    print(f"test accuracy {reached:.4f}", flush=True)
    needed = recipe.required_accuracy if required is None else required
    if reached < needed:
        raise SystemExit(f"nothing written: that is below {needed}")
    weights = save(state)
    about = f"synthetic waves ({kind}), {len(training):,} training and {len(test):,} test series, standardised"
    card = {
        "name": name,
        "architecture": recipe.architecture,
        "data": about,
        "scheme": f"{scheme.describe()}; RAdam, linear warm-up and cosine, blocks of noise in half of the series",
        "epochs": epochs,
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "seed": seed,
        "test_accuracy": reached,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "versions": {"torch": version("torch"), "standfast": version("standfast")},
        "script": "scripts/train_series.py",
        "licence": "weights Apache-2.0; the data are made by standfast",
        "storage": "matrices and kernels float16, the rest float32; a loaded model is float32",
    }
    write(out / f"{name}.safetensors", weights)
    write(out / f"{name}.json", (json.dumps(card, indent=2) + "\n").encode())


def prepare_for_storage(tensor: Tensor) -> Tensor:
    """A parameter or buffer as it is written."""
    return (
        tensor.half() if tensor.is_floating_point() and tensor.ndim >= 2 else tensor
    ).contiguous()


def main() -> None:
    """Train the models that are named."""
    parser = argparse.ArgumentParser(description="Train a bundled network for series.")
    parser.add_argument("model", choices=list(RECIPES))
    parser.add_argument("--data", default="waves", choices=list(NOISES))
    parser.add_argument("--calibrated", action="store_true", help="with the loss of App. D")
    parser.add_argument("--weight", type=float, default=1.0, help="of its squared distance")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--samples", type=int, help="train on so many only, to try something out")
    parser.add_argument(
        "--required", type=float, help="the test accuracy below which nothing is written"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="how many threads torch uses")
    parser.add_argument(
        "--folder", type=Path, default=WEIGHTS, help="where the weights and the card go"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train(
        options.model,
        options.data,
        options.weight if options.calibrated else None,
        options.epochs,
        options.seed,
        options.samples,
        options.required,
        options.folder,
    )


if __name__ == "__main__":
    main()
