"""The command `standfast train`: a training from names and options, with a checkpoint after each epoch.

At the end it writes the weights and a card, which describes the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
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
from standfast.study.progress import show_bar
from standfast.training.adversarial import Pgd, robust_accuracy
from standfast.training.classifier import accuracy, initialize, random_flip, random_noise_blocks, random_shift
from standfast.training.loop import OPTIMIZERS, Augmentation, Epoch, Training
from standfast.training.objective import Scheme
from standfast.training.schemes import Adversarial, Natural, schemes, spell_scheme
from standfast.zoo import architectures

augmentations: Registry[Augmentation | None] = Registry("augmentation")
augmentations.add("none", None)
augmentations.add("shift", random_shift)
augmentations.add("flip", random_flip)
augmentations.add("shift_flip", lambda inputs, generator: random_flip(random_shift(inputs, generator), generator))
augmentations.add("noise_blocks", random_noise_blocks)

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FORMAT, _DIGEST = 1, hashlib.sha256().digest_size
# options of an architecture that follow from the data
_OF_DATA = ("num_classes", "in_channels")


@dataclass(frozen=True)
class Plan:
    """A training, described by names and numbers.

    Args:
        model: an architecture of `standfast.zoo.architectures`, with the data's numbers of classes and channels; with
            options such as its width, `"series_cnn:width=32,stride=2"` or `"bilstm:units=(32,32)"`.
        data: a data set, such as "mnist" or "ucr:GunPoint". `<data>:train` is for training, `<data>:test` for the test
            accuracy. "mnist:train" means the same as "mnist".
        scheme: a scheme of `standfast.training.schemes`, or its text, such as `"pgd:radius=0.3,steps=7"`.
        epochs, batch_size, learning_rate, weight_decay: as for `standfast.training.classifier.train_classifier`.
        seed: of the initial weights and of all random numbers.
        augment: "none"; for images "shift" (by up to two pixels), "flip" (left to right) or "shift_flip"; for
            standardised series "noise_blocks".
        precision: "float32", "bfloat16" or "float16" (mixed, by `torch.autocast`), or "auto": bfloat16 on a GPU that
            supports it, but float32 if the scheme has derivatives in its loss.
        device: "auto" (a GPU if there is one), or one of torch's devices.
        optimizer: "adamw" or "radam".

    Raises:
        ArgumentError: an option out of range, or a device that is not here.
        UnknownNameError: an unknown model, augmentation or scheme.
        UnknownOptionError: the model does not have an option.

    >>> Plan("lenet5", "mnist", "pgd:radius=0.1", device="cpu").options()["scheme"]
    'pgd:radius=0.1'
    """

    model: str
    data: str
    scheme: Scheme | str = field(default_factory=Natural)
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
        _ = augmentations[self.augment]
        self._check_model()
        if isinstance(self.scheme, str):
            set_fields(self, scheme=build(schemes, self.scheme))
        set_fields(self, data=self.data.removesuffix(":train"))
        known = sorted(name.removesuffix(":train") for name in data.names() if name.endswith(":train"))
        archive = self.data.startswith("ucr:")
        expected = f"one of {', '.join(known)}, or ucr:<name>"
        check(self.data in known or archive, "data", expected, repr(self.data))
        check(self.optimizer in OPTIMIZERS, "optimizer", " or ".join(OPTIMIZERS), repr(self.optimizer))
        check(self.precision in ("auto", *PRECISIONS), "precision", f"auto, {', '.join(PRECISIONS)}", self.precision)
        check_integer(self.seed, "seed", 0)
        device, gpus = self._device(), torch.cuda.device_count() if torch.cuda.is_available() else 0
        fits = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < gpus)
        check(fits, "device", f"auto, cpu or one of the {gpus} GPUs that torch finds here", repr(self.device))

    def _check_model(self) -> None:
        takes = inspect.signature(architectures[self.architecture]).parameters
        known = [name for name in takes if name not in _OF_DATA]
        for option, value in self.model_options.items():
            if option not in known:
                raise UnknownOptionError(self.architecture, option, value, known)
        # one text for equal options
        texts = [f"{option}={value!r}" for option, value in sorted(self.model_options.items())]
        set_fields(self, model=":".join([self.architecture, *([",".join(texts)] if texts else [])]))

    @property
    def architecture(self) -> str:
        """The name of the architecture, without its options."""
        return self.model.partition(":")[0].strip()

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the architecture that differ from its defaults."""
        return parse_options(self.model.partition(":")[2], "model")

    def options(self) -> dict[str, Any]:
        """All that the result depends on, except versions; "auto" is replaced by its meaning on this machine."""
        precision = str(self._precision()).removeprefix("torch.")
        meant = {"scheme": spell_scheme(self.chosen_scheme), "precision": precision, "device": self._device().type}
        return {**vars(self), **meant}

    @property
    def chosen_scheme(self) -> Scheme:
        """The scheme, also if it was given as a text."""
        assert isinstance(self.scheme, Scheme)
        return self.scheme

    def training(self, training: Dataset) -> Training:
        """The training on this data, with new initial weights; no epoch has run yet."""
        device = self._device()

        def place(values: Tensor) -> Tensor:
            """To an accelerator all data is copied at once: copies of single batches would cost time."""
            return values if device.type == "cpu" else values.to(device)

        generator = torch.Generator().manual_seed(self.seed)
        module = initialize(self.module(len(training.classes), training.inputs.shape[1]), generator).to(device)
        needed = self.chosen_scheme.needs
        return Training(
            module,
            place(training.inputs),
            place(training.labels),
            epochs=self.epochs,
            generator=generator,
            scheme=self.chosen_scheme,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            augment=augmentations[self.augment],
            bounds=training.bounds,
            precision=self._precision(),
            optimizer=self.optimizer,
            extras={name: place(values) for name, values in training.extras.items() if name in needed},
        )

    def module(self, num_classes: int, in_channels: int) -> nn.Module:
        """The architecture, with weights from the global random state, which is restored.

        Raises:
            ArgumentError: a value of an option does not fit.
        """
        sizes = {"num_classes": num_classes, "in_channels": in_channels}
        try:
            with torch.random.fork_rng(devices=[]):
                return architectures[self.architecture](**sizes, **self.model_options)
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"options that {self.architecture} can have"
            raise ArgumentError("model", expected, f"{self.model}: {error}") from error

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.device(self.device)
        except RuntimeError as error:
            raise ArgumentError("device", "auto, cpu, cuda or cuda:1", repr(self.device)) from error

    def _precision(self) -> torch.dtype:
        if self.precision != "auto":
            return PRECISIONS[self.precision]
        fits = self._device().type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fits and not self.chosen_scheme.differentiates else torch.float32


@dataclass(frozen=True)
class Fitted:
    """The result of a training: weights and card."""

    weights: Path  # <name>.safetensors
    card: Mapping[str, Any]  # the content of <name>.json, in the same folder
    was_there: bool = False  # they existed before

    def study_entry(self) -> str:
        """The line for `models:` of a study file in the same folder as the weights."""
        sizes = {key: self.card[key] for key in _OF_DATA} | self.card.get("architecture_options", {})
        texts = (f"{key}: {list(v) if isinstance(v, tuple) else v}" for key, v in sizes.items())
        options = f"{{{', '.join(texts)}}}"
        return f"{{architecture: {self.card['architecture']}, options: {options}, weights: {self.weights.name}}}"


def fit(
    plan: Plan,
    out: str | Path,
    *,
    name: str | None = None,
    attack: str | None = None,
    restart: bool = False,
    download: bool = False,
    show: bool = False,
) -> Fitted:
    """Train a model, or continue an interrupted training of the same plan, and measure its accuracy.

    After every epoch it writes `<name>.checkpoint` into `out`, and at the end `<name>.safetensors` and `<name>.json`.
    An interruption does not change the bits of the result. A finished model of the same plan is not trained again.

    Args:
        plan: what to train.
        out: a folder.
        name: of the files; by default `<model>-<data>-<scheme>`, with dashes instead of other characters.
        attack: the text of a scheme "pgd": also measure the test accuracy after this attack.
        restart: remove files of that name first.
        download: fetch missing data.
        show: show progress on standard error.

    Raises:
        ArgumentError: files of that name were made with other options; `attack` is not a scheme "pgd".
        MissingDataError: the data is not here.
        ModelError: the architecture does not accept these inputs, or training diverged.
    """
    ascent = None if attack is None else _attack(attack)
    folder = Path(out)
    of_model = re.sub(r"[^\w.+]+", "-", plan.model).strip("-")
    name = name or f"{of_model}-{plan.data.replace(':', '-')}-{plan.chosen_scheme.name.replace('_', '-')}"
    fine = re.fullmatch(r"\w[\w.+-]*", name) is not None
    check(fine, "name", "letters, digits and . _ + - (a path goes into out)", repr(name))
    weights, card_file, checkpoint = (folder / f"{name}.{end}" for end in ("safetensors", "json", "checkpoint"))
    card = None if restart else _finished(card_file, weights, plan)
    was_there = card is not None
    if card is None:
        training, test = (data.load(f"{plan.data}:{split}", download=download) for split in ("train", "test"))
        run = plan.training(training)
        _try_out(plan, run)
        _writable(checkpoint)
        if restart:  # only after it is clear that training can begin
            for file in (card_file, weights, checkpoint):
                file.unlink(missing_ok=True)
        trained = _train(plan, run, checkpoint, show)
        state = {key: tensor.detach().cpu().contiguous() for key, tensor in trained.module.state_dict().items()}
        content = save_safetensors(state)
        write_atomically(weights, content)
        card = _card(name, plan, trained, training, test, content)
        _write_card(card_file, card)
    checkpoint.unlink(missing_ok=True)
    if ascent is not None:
        test = data.load(f"{plan.data}:test", download=download)
        measured = _under_attack(plan, weights, card, test, ascent.attack(test.bounds))
        if card.get("under_attack") != measured:
            card |= {"under_attack": measured}
            _write_card(card_file, card)
    return Fitted(weights, card, was_there)


def _attack(text: str) -> Adversarial:
    scheme = build(schemes, text)
    if not isinstance(scheme, Adversarial):
        raise ArgumentError("attack", "pgd with its options, such as pgd:radius=0.3,steps=20", repr(text))
    return scheme


def _writable(checkpoint: Path) -> None:
    """Raise the system's error if the folder cannot be written, before the first epoch."""
    probe = checkpoint.with_suffix(".probe")
    write_atomically(probe, b"")
    probe.unlink()


def _train(plan: Plan, run: Training, checkpoint: Path, show: bool) -> Training:
    if checkpoint.exists():
        state = _stored(checkpoint, plan)
        try:
            run.load_state_dict(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise _unusable(checkpoint) from error
    with _watch(show, run) as (epoch_done, step_done):

        def keep(epoch: Epoch) -> None:
            content = io.BytesIO()
            torch.save({"format": _FORMAT, "options": plan.options(), "training": run.state_dict()}, content)
            # the digest is needed because torch reads damaged numbers without an error
            write_atomically(checkpoint, hashlib.sha256(content.getvalue()).digest() + content.getvalue())
            epoch_done(epoch)

        run.run(keep, step_done)
    return run


def _try_out(plan: Plan, run: Training) -> None:
    """Forward one input, so that an architecture for another size of inputs gives a clear error."""
    shape = tuple(run.inputs.shape[1:])
    module, training = run.module, run.module.training
    try:
        with torch.no_grad():
            logits = module.eval()(run.inputs[:1].to(run.device))
    except RuntimeError as error:
        raise ModelError(f"{plan.architecture} does not take inputs of shape {shape}: {error}") from error
    finally:
        module.train(training)
    if logits.ndim != 2:
        raise ModelError(f"{plan.model} gives {tuple(logits.shape)} for an input, not (1, classes)")


def _stored(checkpoint: Path, plan: Plan) -> dict[str, Any]:
    """The state in a checkpoint of the same plan."""
    stored = checkpoint.read_bytes()
    digest, content = stored[:_DIGEST], stored[_DIGEST:]
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        usable = hashlib.sha256(content).digest() == digest and found["format"] == _FORMAT
        usable &= isinstance(found["options"], dict) and isinstance(found["training"], dict)
    except Exception:  # on another kind of file, the loader may raise any exception
        usable = False
    if not usable:
        raise _unusable(checkpoint)
    _same(found["options"], plan, checkpoint)
    state: dict[str, Any] = found["training"]
    return state


def _unusable(checkpoint: Path) -> StandfastError:
    return StandfastError(f"{checkpoint} is damaged, or no checkpoint of this version; restart throws it away")


def _finished(card_file: Path, weights: Path, plan: Plan) -> dict[str, Any] | None:
    """The card of a finished model of the same plan; None if there is no such model."""
    if not card_file.exists() or not weights.exists():
        return None
    try:
        card: dict[str, Any] = json.loads(card_file.read_bytes())
        options = dict(card["options"])
    except (ValueError, KeyError, TypeError) as error:
        raise StandfastError(f"{card_file} is no card of a training; restart throws it and the weights away") from error
    _same(options, plan, card_file)
    if hashlib.sha256(weights.read_bytes()).hexdigest() != card.get("weights_sha256"):
        raise StandfastError(f"{weights} is not what {card_file.name} describes; restart throws both away")
    return card


def _same(stored: Mapping[str, Any], plan: Plan, file: Path) -> None:
    wanted = plan.options().items()
    changed = [f"{key} is {stored.get(key)} there and {value} now" for key, value in wanted if stored.get(key) != value]
    expected = f"the options that {file} was made with (else another folder or name, or restart)"
    check(not changed, "options", expected, "; ".join(changed))


def _card(name: str, plan: Plan, trained: Training, training: Dataset, test: Dataset, weights: bytes) -> dict[str, Any]:
    module, options = trained.module, plan.options()
    described = plan.chosen_scheme.describe()
    optimizer = {"adamw": "AdamW", "radam": "RAdam"}[plan.optimizer]
    kind = "series" if training.inputs.ndim == 3 else "images"
    return {
        "name": name,
        "architecture": plan.architecture,
        **({"architecture_options": plan.model_options} if plan.model_options else {}),
        "num_classes": len(training.classes),
        "in_channels": training.inputs.shape[1],
        "data": f"{plan.data}, {len(training):,} training and {len(test):,} test {kind}, inputs in {list(test.bounds)}",
        "scheme": f"{described}; {optimizer}, linear warm-up and cosine, augmentation: {plan.augment}",
        **{key: options[key] for key in ("epochs", "batch_size", "learning_rate", "weight_decay", "seed")},
        "train_accuracy": accuracy(module, training.inputs, training.labels),
        "test_accuracy": accuracy(module, test.inputs, test.labels),
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "versions": {"torch": torch.__version__, "standfast": find_version()},
        "options": options,
    }


def _under_attack(plan: Plan, weights: Path, card: Mapping[str, Any], test: Dataset, attack: Pgd) -> dict[str, Any]:
    module = plan.module(card["num_classes"], card["in_channels"])
    module.load_state_dict(load_safetensors(weights.read_bytes()))
    module.to(plan._device())
    generator = torch.Generator().manual_seed(0)
    reached = robust_accuracy(module, test.inputs, test.labels, attack, generator=generator)
    return {"attack": attack.describe(), "radius": attack.ball.radius, "seed": 0, "test_accuracy": reached}


def _write_card(file: Path, card: Mapping[str, Any]) -> None:
    write_atomically(file, (json.dumps(card, indent=2) + "\n").encode())


_Watchers = tuple[Callable[[Epoch], None], Callable[[int, int], None]]


@contextlib.contextmanager
def _watch(show: bool, run: Training) -> Iterator[_Watchers]:
    """Show progress: a bar on a terminal, else a line for each epoch.

    Gives the functions to call after each epoch and after each step.
    """
    if not show:
        yield (lambda epoch: None), (lambda done, total: None)
        return

    def line(epoch: Epoch) -> str:
        return f"epoch {epoch.number} of {epoch.epochs}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.2%}"

    if run.epoch:
        print(f"{run.epoch} of {run.epochs} epochs were done before", file=sys.stderr, flush=True)
    total = run.epochs * run.batches
    with show_bar(total, run.epoch * run.batches, f"epoch {run.epoch + 1}") as update:
        if update is None:
            yield (lambda epoch: print(line(epoch), file=sys.stderr, flush=True)), (lambda done, total: None)
        else:
            yield (lambda epoch: update(description=line(epoch))), (lambda done, total: update(completed=done))
