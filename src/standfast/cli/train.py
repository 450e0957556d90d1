"""The command `standfast train`: a training from names and options, with a checkpoint after each epoch.

At the end it writes the weights and a card, which describes the model.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from standfast import data
from standfast.data import Dataset
from standfast.errors import (
    ArgumentError,
    ModelError,
    StandfastError,
    UnknownOptionError,
    check,
    check_integer,
    find_version,
)
from standfast.files import write_atomically
from standfast.records import set_fields
from standfast.registry import Registry, build, parse_options
from standfast.training.classifier import (
    accuracy,
    initialize,
    random_flip,
    random_noise_blocks,
    random_shift,
)
from standfast.training.loop import Augmentation, Epoch, Training
from standfast.training.objective import Scheme
from standfast.training.schemes import schemes, spell_scheme
from standfast.zoo import architectures

augmentations: Registry[Augmentation | None] = Registry("augmentation")
augmentations.add("none", None)
augmentations.add("shift", random_shift)
augmentations.add("flip", random_flip)
augmentations.add(
    "shift_flip", lambda inputs, generator: random_flip(random_shift(inputs, generator), generator)
)
augmentations.add("noise_blocks", random_noise_blocks)

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size
# options of an architecture that follow from the data
_OF_DATA = ("num_classes", "in_channels")


@dataclass(frozen=True)
class TrainingPlan:
    """A training, described by names and numbers.

    Args:
        model: an architecture of `standfast.zoo.architectures`, with the data's numbers of classes and channels; with
            options such as its width, `"series_cnn:width=32,stride=2"` or `"bilstm:units=(32,32)"`.
        data: a data set, such as "mnist" or "ucr:GunPoint". `<data>:train` is for training, `<data>:test` for the test
            accuracy.
        scheme: a scheme of `standfast.training.schemes` as a text, such as `"pgd:radius=0.3,steps=7"`.
        epochs, batch_size, learning_rate, weight_decay, optimizer: as for
            `standfast.training.classifier.train_classifier`.
        seed: of the initial weights and of all random numbers.
        augment: "none"; for images "shift" (by up to two pixels), "flip" (left to right) or "shift_flip"; for
            standardised series "noise_blocks".
        precision: "float32", "bfloat16" or "float16" (mixed, by `torch.autocast`), or "auto": bfloat16 on a GPU that
            supports it, but float32 if the scheme has derivatives in its loss.
        device: "auto" (a GPU if there is one), or one of torch's devices.

    Raises:
        ArgumentError: an option out of range, or a device that is not here.
        UnknownNameError: an unknown model, augmentation or scheme.
        UnknownOptionError: the model does not have an option.

    >>> TrainingPlan("lenet5", "mnist", "pgd:radius=0.1", device="cpu").options()["precision"]
    'float32'
    """

    model: str
    data: str
    scheme: str = "natural"
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    seed: int = 0
    augment: str = "none"
    precision: str = "auto"
    device: str = "auto"
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        # raises the error for an unknown name
        _ = augmentations[self.augment]
        takes = inspect.signature(architectures[self.architecture]).parameters
        options = [name for name in takes if name not in _OF_DATA]
        for option, value in self.model_options.items():
            if option not in options:
                raise UnknownOptionError(self.architecture, option, value, options)
        # one text for equal options
        texts = ",".join(
            f"{option}={value!r}" for option, value in sorted(self.model_options.items())
        )
        set_fields(
            self,
            scheme=spell_scheme(self.make_scheme()),
            model=f"{self.architecture}:{texts}".rstrip(":"),
        )
        check(
            self.precision in ("auto", *PRECISIONS),
            "precision",
            f"auto, {', '.join(PRECISIONS)}",
            self.precision,
        )
        check_integer(self.seed, "seed", 0)
        try:
            device = self._choose_device()
        except RuntimeError as error:
            # torch knows this only when the device is made
            raise ArgumentError("device", "auto, cpu, cuda or cuda:1", repr(self.device)) from error
        is_present = device.type == "cpu" or (device.index or 0) < torch.cuda.device_count()
        check(is_present, "device", "one that torch finds here", repr(self.device))

    @property
    def architecture(self) -> str:
        """The name of the architecture, without its options."""
        return self.model.partition(":")[0].strip()

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the architecture that differ from its defaults."""
        return parse_options(self.model.partition(":")[2], "model")

    @property
    def name(self) -> str:
        """What the files of the result are called."""
        scheme = self.scheme.partition(":")[0].replace("_", "-")
        # the parts become a name of files
        return "-".join(
            re.sub(r"[^\w.+]+", "-", part).strip("-") for part in (self.model, self.data, scheme)
        )

    def make_scheme(self) -> Scheme:
        """The scheme that its text describes."""
        return build(schemes, self.scheme)

    def options(self) -> dict[str, Any]:
        """All that the result depends on, except versions; "auto" is replaced by its meaning on this machine."""
        # a checkpoint of another precision or device would not continue with the same bits
        precision = str(self._choose_precision()).removeprefix("torch.")
        return {**vars(self), "precision": precision, "device": self._choose_device().type}

    def training(self, training: Dataset) -> Training:
        """The training on this data, with new initial weights; no epoch has run yet."""
        device = self._choose_device()
        scheme = self.make_scheme()

        def place(values: Tensor) -> Tensor:
            """To an accelerator all data is copied at once: copies of single batches would cost time."""
            if device.type == "cpu":
                return values
            return values.to(device)

        # one generator for weights, order and augmentation, so that a seed gives one model
        generator = torch.Generator().manual_seed(self.seed)
        module = initialize(
            self.module(len(training.classes), training.inputs.shape[1]), generator
        ).to(device)
        return Training(
            module,
            place(training.inputs),
            place(training.labels),
            epochs=self.epochs,
            generator=generator,
            scheme=scheme,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            augment=augmentations[self.augment],
            bounds=training.bounds,
            precision=self._choose_precision(),
            optimizer=self.optimizer,
            extras={
                name: place(values)
                for name, values in training.extras.items()
                if name in scheme.extras
            },
        )

    def module(self, num_classes: int, in_channels: int) -> nn.Module:
        """The architecture, with weights from the global random state, which is restored.

        Raises:
            ArgumentError: a value of an option does not fit.
        """
        sizes = {"num_classes": num_classes, "in_channels": in_channels}
        # weights are drawn here, and the user's generator stays as it is
        try:
            with torch.random.fork_rng(devices=[]):
                return architectures[self.architecture](**sizes, **self.model_options)
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"options that {self.architecture} can have"
            raise ArgumentError("model", expected, f"{self.model}: {error}") from error

    def _choose_device(self) -> torch.device:
        best = "cuda" if torch.cuda.is_available() else "cpu"
        name = best if self.device == "auto" else self.device
        return torch.device(name)

    def _choose_precision(self) -> torch.dtype:
        if self.precision != "auto":
            return PRECISIONS[self.precision]
        fits = self._choose_device().type == "cuda" and torch.cuda.is_bf16_supported()
        if fits and not self.make_scheme().differentiates:
            return torch.bfloat16
        return torch.float32


@dataclass(frozen=True)
class Fitted:
    """The result of a training: weights and card."""

    weights: Path  # <name>.safetensors
    card: Mapping[str, Any]  # the content of <name>.json, in the same folder
    was_there: bool = False  # they existed before

    def study_entry(self) -> str:
        """The line for `models:` of a study file in the same folder as the weights."""
        sizes = {key: self.card[key] for key in _OF_DATA} | self.card["architecture_options"]
        texts = (f"{key}: {list(v) if isinstance(v, tuple) else v}" for key, v in sizes.items())
        options = f"{{{', '.join(texts)}}}"
        return f"{{architecture: {self.card['architecture']}, options: {options}, weights: {self.weights.name}}}"


def fit(
    plan: TrainingPlan, out: str | Path, *, download: bool = False, show: bool = False
) -> Fitted:
    """Train a model, or continue an interrupted training of the same plan, and measure its accuracy.

    After every epoch it writes `<name>.checkpoint` into `out`, and at the end `<name>.safetensors` and `<name>.json`,
    where the name is made of model, data and scheme. An interruption does not change the bits of the result. A finished
    model of the same plan is not trained again.

    Args:
        plan: what to train.
        out: a folder.
        download: fetch missing data.
        show: print a line for each epoch on standard error.

    Raises:
        ArgumentError: files of that name were made with other options.
        MissingDataError: the data is not here.
        ModelError: the architecture does not accept these inputs, or training diverged.
    """
    folder = Path(out)
    weights, card_file, checkpoint = (
        folder / f"{plan.name}.{end}" for end in ("safetensors", "json", "checkpoint")
    )
    if card_file.exists() and weights.exists():
        return Fitted(weights, _read_card(card_file, weights, plan), was_there=True)
    training, test = (
        data.load(f"{plan.data}:{split}", download=download) for split in ("train", "test")
    )
    run = plan.training(training)
    # before the folder is made, so that an error leaves nothing behind
    _try_out(plan, run)
    folder.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        _continue(run, checkpoint, plan)
    if show and run.epoch:
        print(f"{run.epoch} of {run.epochs} epochs were done before", file=sys.stderr, flush=True)

    def keep(epoch: Epoch) -> None:
        content = io.BytesIO()
        # into memory first, because the digest has to stand before the content
        torch.save(
            {"format": _FORMAT, "options": plan.options(), "training": run.state_dict()}, content
        )
        # the digest is needed because torch reads damaged numbers without an error
        write_atomically(
            checkpoint, hashlib.sha256(content.getvalue()).digest() + content.getvalue()
        )
        if show:
            said = f"epoch {epoch.number} of {epoch.epochs}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.2%}"
            print(said, file=sys.stderr, flush=True)

    run.run(keep)
    content = save_safetensors(
        {key: values.detach().cpu().contiguous() for key, values in run.module.state_dict().items()}
    )
    card = _make_card(plan, run, test) | {"weights_sha256": hashlib.sha256(content).hexdigest()}
    # weights first: the card makes the model count as finished
    write_atomically(weights, content)
    write_atomically(card_file, (json.dumps(card, indent=2) + "\n").encode())
    # it would continue a training that is done
    checkpoint.unlink(missing_ok=True)
    return Fitted(weights, card)


def _try_out(plan: TrainingPlan, run: Training) -> None:
    """Forward one input, so that an architecture for another size of inputs gives a clear error."""
    shape = tuple(run.inputs.shape[1:])
    module = run.module
    try:
        with torch.no_grad():
            logits = module.eval()(run.inputs[:1].to(run.device))
    except RuntimeError as error:
        raise ModelError(
            f"{plan.architecture} does not take inputs of shape {shape}: {error}"
        ) from error
    check(
        logits.ndim == 2,
        "model",
        "one that gives (1, classes) for an input",
        f"{plan.model}: {tuple(logits.shape)}",
    )


def _continue(run: Training, checkpoint: Path, plan: TrainingPlan) -> None:
    """Load the state of the last epoch that was completed."""
    stored = checkpoint.read_bytes()
    digest = stored[:_DIGEST]
    content = stored[_DIGEST:]
    try:
        saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if hashlib.sha256(content).digest() != digest or saved["format"] != _FORMAT:
            raise ValueError("another content")
        options = dict(saved["options"])
        if options == plan.options():
            run.load_state_dict(saved["training"])
    except Exception as error:  # on another kind of file, the loader may raise any exception
        raise StandfastError(
            f"{checkpoint} is damaged, or no checkpoint of this version; delete it"
        ) from error
    # outside of the `try`, whose error is about damage
    _check_options(options, plan, checkpoint)


def _read_card(card_file: Path, weights: Path, plan: TrainingPlan) -> dict[str, Any]:
    """The card of a finished model of the same plan."""
    try:
        card: dict[str, Any] = json.loads(card_file.read_bytes())
        options = dict(card["options"])
        digest = card["weights_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise StandfastError(
            f"{card_file} is no card of a training; delete it and the weights"
        ) from error
    _check_options(options, plan, card_file)
    # another file of the same name could have replaced them
    if hashlib.sha256(weights.read_bytes()).hexdigest() != digest:
        raise StandfastError(f"{weights} is not what {card_file.name} describes; delete both")
    return card


def _check_options(stored: Mapping[str, Any], plan: TrainingPlan, file: Path) -> None:
    options = plan.options().items()
    changed = [
        f"{key} is {stored.get(key)} there and {value} now"
        for key, value in options
        if stored.get(key) != value
    ]
    expected = f"the options that {file} was made with (else another folder, or delete this file)"
    check(not changed, "options", expected, "; ".join(changed))


def _make_card(plan: TrainingPlan, run: Training, test: Dataset) -> dict[str, Any]:
    """All that is worth knowing of a model, but the digest of its weights."""
    options = plan.options()
    count = len(run.inputs)
    kind = "series" if test.inputs.ndim == 3 else "images"
    optimizer = {"adamw": "AdamW", "radam": "RAdam"}[plan.optimizer]
    return {
        "name": plan.name,
        "architecture": plan.architecture,
        "architecture_options": plan.model_options,
        "num_classes": len(test.classes),
        "in_channels": test.inputs.shape[1],
        "data": f"{plan.data}, {count:,} training and {len(test):,} test {kind}, inputs in {list(test.bounds)}",
        "scheme": f"{run.scheme.describe()}; {optimizer}, linear warm-up and cosine, augmentation: {plan.augment}",
        **{
            key: options[key]
            for key in ("epochs", "batch_size", "learning_rate", "weight_decay", "seed")
        },
        "train_accuracy": accuracy(run.module, run.inputs, run.labels),
        "test_accuracy": accuracy(run.module, test.inputs, test.labels),
        "parameters": sum(parameter.numel() for parameter in run.module.parameters()),
        "versions": {"torch": torch.__version__, "standfast": find_version()},
        "options": options,
    }
