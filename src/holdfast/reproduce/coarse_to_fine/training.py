"""Networks for sets of the UCR archive, trained when they are needed: the sets are not ours to pass on.

The paper's settings (App. C): RAdam, batches of 64, blocks of noise in the training series (Turbe et al. 2023), so that
corrupted series are no news to the network. The sizes and the number of steps are the caller's.
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

from holdfast import data
from holdfast.study.folders import write_atomically
from holdfast.zoo.networks.names import architectures
from holdfast.zoo.training.classifier import accuracy, initialize, random_noise_blocks, train_classifier


@dataclass(frozen=True)
class Recipe:
    """How a network for one set is trained; the same recipe gives the same weights on one machine.

    Args:
        data: `<data>:train` is trained on, `<data>:test` measured on.
        architecture, options: of the zoo; channels and classes come from the data.
        steps: of the optimiser, about: rounded up to whole epochs.
        learning_rate, weight_decay, batch_size, seed: as for `train_classifier`.
    """

    data: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 400
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 64
    seed: int = 0


def trained(recipe: Recipe, file: Path, progress: bool = False) -> dict[str, Any]:
    """The card of the network in `file` (.safetensors), which is trained unless it is there already, from this recipe.

    The card lies beside it: the recipe, `num_classes` and `in_channels`, `train_accuracy` and `test_accuracy`.

    Raises:
        MissingDataError: the set is not here.
    """
    card_file = file.with_suffix(".json")
    card = _known(card_file, file, recipe)
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
        said = f"trained {file.stem}: {epochs} epochs, test accuracy {card['test_accuracy']:.1%}"
        print(said, file=sys.stderr, flush=True)
    return card


def _known(card_file: Path, file: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The card of a network that this recipe made and that is whole; None where there is none."""
    if not card_file.exists() or not file.exists():
        return None
    try:
        card: dict[str, Any] = json.loads(card_file.read_bytes())
    except ValueError:
        return None
    as_written = json.loads(json.dumps(asdict(recipe)))
    whole = hashlib.sha256(file.read_bytes()).hexdigest() == card.get("weights_sha256")
    return card if whole and card.get("recipe") == as_written else None
