"""Networks for sets of the UCR archive. They are trained when they are needed, because we may not distribute the sets.

The settings are the paper's (App. C): RAdam, batches of 64, and blocks of noise in the training series (Turbe et al.
2023), so that corrupted series resemble the training data. The caller chooses sizes and the number of steps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from standfast import data
from standfast.study.folders import write_atomically
from standfast.training.classifier import accuracy, initialize, random_noise_blocks, train_classifier
from standfast.zoo.networks.names import architectures


@dataclass(frozen=True)
class Recipe:
    """How to train a network for one set; the same recipe gives the same weights on one machine.

    Args:
        data: the name of the set; the network is trained on `<data>:train` and tested on `<data>:test`.
        architecture, options: an architecture of the zoo and its options; the data determine channels and classes.
        steps: number of steps of the optimiser, rounded up to whole epochs.
        learning_rate, weight_decay, batch_size, seed: options of `train_classifier`.
    """

    data: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 400
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 64
    seed: int = 0


def train_or_load(recipe: Recipe, file: Path, progress: bool = False) -> dict[str, Any]:
    """Train the network of a recipe into `file` (.safetensors), unless the file has it already; returns its card.

    The card, a JSON file in the same folder, has the recipe, `num_classes`, `in_channels`, `train_accuracy` and
    `test_accuracy`.

    Raises:
        MissingDataError: the set is not on this computer.
    """
    card_file = file.with_suffix(".json")
    card = _read_card(card_file, file, recipe)
    if card is not None:
        return card
    training, test = data.load(f"{recipe.data}:train"), data.load(f"{recipe.data}:test")
    sizes = {"num_classes": len(training.classes), "in_channels": int(training.inputs.shape[1])}
    generator = torch.Generator().manual_seed(recipe.seed)
    with torch.random.fork_rng(devices=[]):
        module = architectures[recipe.architecture](**sizes, **recipe.options)
    epochs = -(-recipe.steps // -(-len(training.inputs) // recipe.batch_size))
    train_classifier(
        initialize(module, generator),
        training.inputs,
        training.labels,
        epochs=epochs,
        generator=generator,
        augment=random_noise_blocks,
        optimizer="radam",
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
    )
    content = save({key: tensor.contiguous() for key, tensor in module.state_dict().items()})
    card = {
        "recipe": asdict(recipe),
        "epochs": epochs,
        **sizes,
        "train_accuracy": accuracy(module, training.inputs, training.labels),
        "test_accuracy": accuracy(module, test.inputs, test.labels),
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "torch": torch.__version__,
    }
    write_atomically(file, content)
    write_atomically(card_file, (json.dumps(card, indent=1) + "\n").encode())
    if progress:
        text = f"trained {file.stem}: {epochs} epochs, test accuracy {card['test_accuracy']:.1%}"
        print(text, file=sys.stderr, flush=True)
    return card


def _read_card(card_file: Path, file: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The card of a complete network with this recipe; None if there is none."""
    if not card_file.exists() or not file.exists():
        return None
    try:
        card: dict[str, Any] = json.loads(card_file.read_bytes())
    except ValueError:
        return None
    stored_form = json.loads(json.dumps(asdict(recipe)))
    complete = hashlib.sha256(file.read_bytes()).hexdigest() == card.get("weights_sha256")
    return card if complete and card.get("recipe") == stored_form else None
