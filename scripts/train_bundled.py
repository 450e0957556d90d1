"""Train the bundled models: weights (safetensors) and their card (JSON) in src/holdfast/zoo/weights/.

    HOLDFAST_DATA=<folder with mnist/> python scripts/train_bundled.py

LeNet-5 on MNIST: natural training (plain cross-entropy) on inputs in [0, 1], shifted by up to two pixels.
The same seed gives the same weights on one machine with one version of torch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from safetensors.torch import save

from holdfast import data
from holdfast.zoo.lenet import LeNet5
from holdfast.zoo.training import Epoch, accuracy, initialize, random_shift, train_classifier

WEIGHTS = Path(__file__).resolve().parents[1] / "src" / "holdfast" / "zoo" / "weights"
REQUIRED_ACCURACY = 0.985
BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 128, 4e-3, 0.01


def train_lenet5_mnist(epochs: int, seed: int, folder: Path) -> None:
    console = Console()
    train, test = data.mnist("train"), data.mnist("test")
    generator = torch.Generator().manual_seed(seed)
    module = initialize(LeNet5(), generator)
    with Progress(console=console) as bar:
        task = bar.add_task("lenet5-mnist", total=epochs)

        def show(epoch: Epoch) -> None:
            bar.update(task, advance=1)
            console.print(f"epoch {epoch.number}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.4f}")

        train_classifier(
            module,
            train.inputs,
            train.labels,
            epochs=epochs,
            generator=generator,
            augment=random_shift,
            progress=show,
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
        )
    reached = accuracy(module, test.inputs, test.labels)
    console.print(f"test accuracy {reached:.4f}")
    if reached < REQUIRED_ACCURACY:
        raise SystemExit(f"nothing written: test accuracy {reached:.4f} is below {REQUIRED_ACCURACY}")
    weights = save({name: tensor.contiguous() for name, tensor in module.state_dict().items()})
    card = {
        "name": "lenet5-mnist",
        "architecture": "LeNet5",
        "data": "MNIST, 60,000 training and 10,000 test images, inputs in [0, 1]",
        "scheme": "natural: cross-entropy, AdamW, linear warm-up and cosine, random shifts of up to 2 pixels",
        "epochs": epochs,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "weight_decay": WEIGHT_DECAY,
        "seed": seed,
        "test_accuracy": reached,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "versions": {"torch": version("torch"), "holdfast": version("holdfast")},
        "script": "scripts/train_bundled.py",
        "licence": "weights Apache-2.0; MNIST is by Y. LeCun and C. Cortes, CC BY-SA 3.0",
    }
    write(folder / "lenet5-mnist.safetensors", weights)
    write(folder / "lenet5-mnist.json", (json.dumps(card, indent=2) + "\n").encode())


def write(path: Path, content: bytes) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the bundled models.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=WEIGHTS, help="where the weights and the card go")
    arguments = parser.parse_args()
    train_lenet5_mnist(arguments.epochs, arguments.seed, arguments.folder)


if __name__ == "__main__":
    main()
