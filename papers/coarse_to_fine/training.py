"""Networks for sets of the UCR archive. They are trained when they are needed, because we may not distribute the sets.

The settings are the paper's (App. C): RAdam, batches of 64, and blocks of noise in the training series (Turbe et al.
2023), so that corrupted series resemble the training data. The caller chooses sizes and the number of steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from standfast import data
from standfast.files import write_atomically
from standfast.training.classifier import (
    accuracy,
    initialize,
    random_noise_blocks,
    train_classifier,
)
from standfast.zoo import architectures

_BATCH = 64


def train_or_load(recipe: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Train the network of a recipe into `file` (.safetensors), unless the file has it already; returns its card.

    The same recipe gives the same weights on one machine. The card, a JSON file in the same folder, has the recipe,
    `train_accuracy` and `test_accuracy`.

    Args:
        recipe: `data`, the name of a set (the network is trained on `<data>:train` and tested on `<data>:test`);
            `architecture` of the zoo and its `options`; `steps` of the optimiser, rounded up to whole epochs;
            `learning_rate`, and `weight_decay` if there is one.
        file: where the weights are stored.

    Raises:
        MissingDataError: the set is not on this computer.
    """
    card_file = file.with_suffix(".json")
    if card_file.exists() and file.exists():
        known: dict[str, Any] = json.loads(card_file.read_bytes())
        complete = hashlib.sha256(file.read_bytes()).hexdigest() == known["weights_sha256"]
        if complete and known["recipe"] == recipe:
            return known
    training, test = (data.load(f"{recipe['data']}:{split}") for split in ("train", "test"))
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        module = architectures[recipe["architecture"]](**recipe["options"])
    epochs = -(-recipe["steps"] // -(-len(training.inputs) // _BATCH))
    train_classifier(
        initialize(module, generator),
        training.inputs,
        training.labels,
        epochs=epochs,
        generator=generator,
        augment=random_noise_blocks,
        optimizer="radam",
        batch_size=_BATCH,
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe.get("weight_decay", 0.0),
    )
    content = save({key: tensor.contiguous() for key, tensor in module.state_dict().items()})
    card = {
        "recipe": dict(recipe),
        "epochs": epochs,
        "train_accuracy": accuracy(module, training.inputs, training.labels),
        "test_accuracy": accuracy(module, test.inputs, test.labels),
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "torch": torch.__version__,
    }
    write_atomically(file, content)
    write_atomically(card_file, (json.dumps(card, indent=1) + "\n").encode())
    return card
