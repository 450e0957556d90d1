"""The loop of a training, which can be left between two epochs and taken up again with the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, check
from holdfast.neighbourhood import Bounds
from holdfast.zoo.training.objective import Batch, Scheme

Augmentation = Callable[[Tensor, torch.Generator], Tensor]

PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
OPTIMIZERS = ("adamw", "radam")


@dataclass(frozen=True)
class Epoch:
    """What `progress` is told after each epoch: averages over the training batches as they were seen.

    With perturbed inputs, the same mix of clean and perturbed as in the loss; with penalties, these are in it.
    """

    number: int  # 1 .. epochs
    epochs: int
    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class BatchWithExtras(Batch):
    """A batch with what a scheme needs to know of each sample beside its label: see `Scheme.needs`."""

    extras: Mapping[str, Tensor] = field(default_factory=dict)  # (N, ...) each, on the device of the module


def extra_of(batch: Batch, name: str) -> Tensor:
    """What a scheme that `needs` it finds in its batch, `(N, ...)`."""
    check(isinstance(batch, BatchWithExtras) and name in batch.extras, f"extras[{name!r}]", "values (N, ...)", "none")
    assert isinstance(batch, BatchWithExtras)
    return batch.extras[name]


class DivergedError(ModelError):
    """The loss of a training is no longer finite."""


class Training:
    """A training of `module` in place, between two epochs. Arguments as for `train_classifier`, which runs one.

    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs, labels = torch.randn(64, 2, generator=generator), torch.arange(64) % 2
    >>> from holdfast.zoo.training.schemes import Natural
    >>> training = Training(nn.Linear(2, 2), inputs, labels, epochs=2, generator=generator, scheme=Natural())
    >>> training.run()
    >>> training.epoch
    2
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        *,
        epochs: int,
        generator: torch.Generator,
        scheme: Scheme,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.0,
        augment: Augmentation | None = None,
        bounds: Bounds = (-math.inf, math.inf),
        precision: torch.dtype = torch.float32,
        optimizer: str = "adamw",
        extras: Mapping[str, Tensor] | None = None,
    ) -> None:
        check_data(inputs, labels)
        check(epochs >= 1, "epochs", "at least 1", epochs)
        check(batch_size >= 1, "batch_size", "at least 1", batch_size)
        check(0 < learning_rate < math.inf, "learning_rate", "a finite number above 0", learning_rate)
        check(0 <= weight_decay < math.inf, "weight_decay", "a finite number of at least 0", weight_decay)
        check(precision in PRECISIONS, "precision", "float32, bfloat16 or float16", precision)
        check(optimizer in OPTIMIZERS, "optimizer", " or ".join(OPTIMIZERS), repr(optimizer))
        _check_bounds(inputs, bounds)
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        check(len(parameters) > 0, "module", "a module with parameters that require a gradient", "none")
        self.module, self.inputs, self.labels, self.epochs = module, inputs, labels, epochs
        self.generator, self.scheme, self.batch_size, self.augment = generator, scheme, batch_size, augment
        self.learning_rate, self.bounds, self.precision = learning_rate, bounds, precision
        self.extras = {name: _extra(name, scheme, extras or {}, len(inputs)) for name in needs_of(scheme)}
        self.device = device_of(module)
        self.batches = math.ceil(len(inputs) / batch_size)  # in an epoch
        self.epoch = 0  # how many are done
        half = precision == torch.float16
        # the fused optimiser reads on the device whether a gradient overflowed, the others ask from the host
        fused = True if half and self.device.type == "cuda" else None
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, fused=fused)
            if optimizer == "adamw"
            else torch.optim.RAdam(parameters, lr=learning_rate, weight_decay=weight_decay, decoupled_weight_decay=True)
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=half)
        self._global: dict[str, Tensor] | None = None  # the random state that dropout draws from, once it has begun

    def run(
        self,
        progress: Callable[[Epoch], None] | None = None,
        step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Do what is left.

        The train/eval mode of every submodule and the global random state are restored; gradients are cleared, also
        when it is interrupted.

        Args:
            progress: called after each epoch; `state_dict` may be taken there.
            step: called after each batch with how many are done and how many there are in all. Nothing comes back from
                the device for it.

        Raises:
            DivergedError: the loss is no longer finite; a `ModelError`.
        """
        try:
            with mode(self.module, training=True), self._random(), torch.enable_grad():
                while self.epoch < self.epochs:
                    done = self._epoch(step)
                    self._global = _global_state(self.device)
                    if progress is not None:
                        progress(done)
        finally:
            self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """All that changes from epoch to epoch, tensors, numbers and texts alone; of the end of the last epoch.

        Its tensors are those of the training itself: write it before going on.
        """
        return {
            "epoch": self.epoch,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "global": self._global,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, in a training with the same arguments."""
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        self._global, self.epoch = state["global"], state["epoch"]

    def _epoch(self, step: Callable[[int, int], None] | None) -> Epoch:
        loss_sum, correct = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        order = torch.randperm(len(self.inputs), generator=self.generator, device=self.generator.device)
        steps = self.epochs * self.batches
        for number, chosen in enumerate(torch.split(order, self.batch_size), self.epoch * self.batches):
            batch = self._batch(chosen, number)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate * learning_rate_factor(number, steps)
            for index, part in enumerate(self.scheme.parts(batch)):
                if index == 0:
                    self.optimizer.zero_grad()
                torch.autograd.backward(self.scaler.scale(part.loss))
                loss_sum += part.loss.detach() * len(batch.labels)
                correct += part.share * (part.logits.detach().argmax(dim=1) == batch.labels).sum()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if step is not None:
                step(number + 1, steps)
        self.epoch += 1
        mean_loss = float(loss_sum) / len(self.inputs)
        if not math.isfinite(mean_loss):
            raise DivergedError(f"training diverged: the loss of epoch {self.epoch} is {mean_loss}")
        return Epoch(self.epoch, self.epochs, mean_loss, float(correct) / len(self.inputs))

    def _batch(self, chosen: Tensor, number: int) -> Batch:
        inputs = self.inputs[chosen.to(self.inputs.device)]
        if self.augment is not None:
            inputs = self.augment(inputs, self.generator)
        labels = self.labels[chosen.to(self.labels.device)].to(self.device)
        epoch = (number + 1) / self.batches
        inputs = inputs.to(self.device)
        if not self.extras:
            return Batch(self.module, inputs, labels, self.generator, epoch, self.bounds, self.precision)
        extras = {name: values[chosen.to(values.device)].to(self.device) for name, values in self.extras.items()}
        return BatchWithExtras(
            self.module, inputs, labels, self.generator, epoch, self.bounds, self.precision, extras=extras
        )

    @contextmanager
    def _random(self) -> Iterator[None]:
        """The global random state of this training, from its generator at first; afterwards it is as before."""
        if self._global is None:
            with seeded_from(self.generator, self.device):
                yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.set_rng_state(self._global["cpu"])
            if "cuda" in self._global and self.device.type == "cuda":
                torch.cuda.set_rng_state(self._global["cuda"], self.device)
            yield


def _global_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def learning_rate_factor(step: int, steps: int) -> float:
    """Linear from near 0 to 1 over the first tenth of the steps, then a half cosine to 0.

    >>> [round(learning_rate_factor(step, 40), 2) for step in (0, 3, 4, 22, 39)]
    [0.25, 1.0, 1.0, 0.5, 0.0]
    """
    warm_up = max(1, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def check_data(inputs: Tensor, labels: Tensor) -> None:
    """Raise `ArgumentError` unless `inputs` are floats (N, ...), N >= 1, and `labels` int64 (N,)."""
    check(inputs.ndim >= 2 and len(inputs) >= 1, "inputs", "a batch (N, ...), N >= 1", tuple(inputs.shape))
    check(inputs.is_floating_point(), "inputs", "floating point numbers", inputs.dtype)
    check(labels.dtype == torch.int64, "labels", "int64", labels.dtype)
    check(
        labels.shape == inputs.shape[:1],
        "labels",
        f"one label per input, shape ({len(inputs)},)",
        tuple(labels.shape),
    )


def device_of(module: nn.Module) -> torch.device:
    """That of the first parameter; the CPU where there is none."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


@contextmanager
def mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Train or eval mode for all of `module`; each submodule has its own mode back afterwards."""
    before = [(submodule, submodule.training) for submodule in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for submodule, mode in before:
            submodule.training = mode


@contextmanager
def seeded_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """What draws from the global state of the CPU or `device` follows `generator`: initial weights, dropout.

    The global state itself is as before afterwards.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for each in cuda:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield


def needs_of(scheme: Scheme) -> tuple[str, ...]:
    """The names of the extras that a scheme needs of each sample, its `needs`; none for most."""
    needs: tuple[str, ...] = getattr(scheme, "needs", ())
    return needs


def _extra(name: str, scheme: Scheme, extras: Mapping[str, Tensor], count: int) -> Tensor:
    got = f"extras {', '.join(extras)}" if extras else "no extras"
    check(name in extras, f"extras[{name!r}]", f"what the scheme {scheme.name} needs of each sample", got)
    values = extras[name]
    check(values.shape[:1] == (count,), f"extras[{name!r}]", f"shape ({count}, ...)", tuple(values.shape))
    return values


def _check_bounds(inputs: Tensor, bounds: Bounds) -> None:
    lower, upper = (torch.as_tensor(bound, dtype=inputs.dtype, device=inputs.device) for bound in bounds)
    inside = bool(((inputs >= lower) & (inputs <= upper)).all())
    check(inside, "inputs", "values within the bounds", "values outside of them")
