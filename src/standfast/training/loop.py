"""The training loop. It can stop between two epochs and continue later, with the same bits as without the stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ModelError, check, check_choice, check_integer, check_number
from standfast.neighbourhoods import Bounds
from standfast.training.objective import Natural, Scheme, TrainingBatch

Augmentation = Callable[[Tensor, torch.Generator], Tensor]

PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
OPTIMIZERS = ("adamw", "radam")


@dataclass(frozen=True)
class Epoch:
    """What `progress` gets after each epoch: means over the training batches of that epoch.

    With perturbed inputs, clean and perturbed inputs have the same weights as in the loss. The loss includes penalties.
    """

    number: int  # 1 .. epochs
    epochs: int
    loss: float
    accuracy: float


class DivergedError(ModelError):
    """The loss of a training is no longer finite."""


@dataclass(eq=False)
class Training:
    """The state of a training of `module` in place, between two epochs; `train_classifier` runs a whole one.

    It minimises the mean loss of the scheme. The learning rate increases linearly over the first tenth of the steps,
    and then decreases to zero on a half cosine. Batches are moved to the device of the module's parameters; the data
    may stay elsewhere.

    Args:
        module: inputs -> logits (N, classes). Training starts from its current weights.
        inputs: floating point, (N, ...), as the module takes them.
        labels: int64, (N,), each in 0 .. classes - 1.
        epochs: passes over the data, at least 1.
        generator: determines the order of the samples, dropout and `augment`. The global random state is restored
            afterwards. On one machine, the same generator state gives the same weights (on a GPU only as far as its
            kernels are deterministic).
        scheme: the loss to minimise, from `standfast.training.schemes`; by default the cross-entropy.
        batch_size: samples per step; the last batch of an epoch may be smaller.
        learning_rate: its peak, above 0.
        weight_decay: decoupled from the gradient, at least 0.
        augment: `(batch, generator) -> batch`, applied to every batch on the device of `inputs`.
        bounds: of every input; schemes that perturb inputs stay within them.
        precision: float32, or bfloat16 or float16 for mixed precision (`torch.autocast`; the weights stay float32).
        optimizer: "adamw", or "radam": Liu et al., On the variance of the adaptive learning rate and beyond (ICLR
            2020).
        extras: further values of each sample that the scheme needs, (N, ...) by name; see `standfast.data.Dataset`.
            Others are left out.

    Raises:
        ArgumentError: an argument is out of its range, or inputs and labels do not match.

    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs, labels = torch.randn(64, 2, generator=generator), torch.arange(64) % 2
    >>> training = Training(nn.Linear(2, 2), inputs, labels, epochs=2, generator=generator)
    >>> training.run()
    >>> training.epoch
    2
    """

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    _: KW_ONLY
    epochs: int
    generator: torch.Generator
    scheme: Scheme = field(default_factory=Natural)
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    augment: Augmentation | None = None
    bounds: Bounds = (-math.inf, math.inf)
    precision: torch.dtype = torch.float32
    optimizer: str = "adamw"
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # here, because a training can run for hours before it would fail
        check_data(self.inputs, self.labels)
        check_integer(self.epochs, "epochs")
        check_integer(self.batch_size, "batch_size")
        check_number(self.learning_rate, "learning_rate", above=0)
        check_number(self.weight_decay, "weight_decay", least=0)
        check(
            self.precision in PRECISIONS,
            "precision",
            "float32, bfloat16 or float16",
            self.precision,
        )
        check_choice(self.optimizer, "optimizer", OPTIMIZERS)
        check_bounds(self.inputs, self.bounds)
        parameters = [
            parameter for parameter in self.module.parameters() if parameter.requires_grad
        ]
        check(
            len(parameters) > 0,
            "module",
            "a module with parameters that require a gradient",
            "none",
        )
        self.extras = {name: self._check_extra(name) for name in self.scheme.extras}
        self.device = get_device(self.module)
        self.batches = math.ceil(len(self.inputs) / self.batch_size)  # in an epoch
        self.epoch = 0  # how many epochs are done
        options: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        # gradients of float16 underflow unless the loss is scaled
        is_half = self.precision == torch.float16
        self.descent: torch.optim.Optimizer
        if self.optimizer == "adamw":
            # the fused optimiser checks on the device whether a gradient overflowed; the others wait for the device
            fused = True if is_half and self.device.type == "cuda" else None
            self.descent = torch.optim.AdamW(parameters, **options, fused=fused)
        else:
            self.descent = torch.optim.RAdam(parameters, **options, decoupled_weight_decay=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=is_half)
        self._global: dict[str, Tensor] | None = (
            None  # the random state of dropout, after the first epoch
        )

    def _check_extra(self, name: str) -> Tensor:
        got = f"extras {', '.join(self.extras)}" if self.extras else "no extras"
        expected = f"values for each sample, which the scheme {self.scheme.name} needs"
        check(name in self.extras, f"extras[{name!r}]", expected, got)
        values = self.extras[name]
        count = len(self.inputs)
        check(
            values.shape[:1] == (count,),
            f"extras[{name!r}]",
            f"shape ({count}, ...)",
            tuple(values.shape),
        )
        return values

    def run(
        self,
        progress: Callable[[Epoch], None] | None = None,
        step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run the remaining epochs.

        Afterwards, also after an interruption, the train/eval mode of every submodule and the global random state are
        restored, and gradients are cleared.

        Args:
            progress: called after each epoch; it may call `state_dict`.
            step: called after each batch with the number of batches that are done and the number of all. It does not
                wait for the device.

        Raises:
            DivergedError: the loss is no longer finite; a `ModelError`.
        """
        try:
            with (
                set_mode(self.module, training=True),
                self._restore_random_state(),
                torch.enable_grad(),
            ):
                while self.epoch < self.epochs:
                    epoch = self._run_epoch(step)
                    # dropout of the next epoch goes on from here, also in another process
                    self._global = _get_global_state(self.device)
                    if progress is not None:
                        progress(epoch)
        finally:
            # gradients take as much memory as the weights
            self.descent.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """All that changes from epoch to epoch, at the end of the last epoch: tensors, numbers and texts only.

        The tensors are not copies. So write them to a file before training continues.
        """
        return {
            "epoch": self.epoch,
            "module": self.module.state_dict(),
            "optimizer": self.descent.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "global": self._global,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the epoch at which `state_dict` was called, in a training with the same arguments."""
        self.module.load_state_dict(state["module"])
        self.descent.load_state_dict(state["optimizer"])
        # a disabled scaler has no state
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        self._global, self.epoch = state["global"], state["epoch"]

    def _run_epoch(self, step: Callable[[int, int], None] | None) -> Epoch:
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), device=self.device)
        order = torch.randperm(
            len(self.inputs), generator=self.generator, device=self.generator.device
        )
        steps = self.epochs * self.batches
        for number, chosen in enumerate(
            torch.split(order, self.batch_size), self.epoch * self.batches
        ):
            batch = self._make_batch(chosen, number)
            # by hand, as a scheduler would be one more state to store
            for group in self.descent.param_groups:
                group["lr"] = self.learning_rate * compute_learning_rate_factor(number, steps)
            for index, part in enumerate(self.scheme.parts(batch)):
                if index == 0:
                    self.descent.zero_grad()
                # each part frees its graph before the next is made
                torch.autograd.backward(self.scaler.scale(part.loss))
                loss_sum += part.loss.detach() * len(batch.labels)
                correct += part.share * (part.logits.detach().argmax(dim=1) == batch.labels).sum()
            self.scaler.step(self.descent)
            self.scaler.update()
            if step is not None:
                step(number + 1, steps)
        self.epoch += 1
        # read once an epoch, as reading waits for the device
        mean_loss = float(loss_sum) / len(self.inputs)
        if not math.isfinite(mean_loss):
            raise DivergedError(f"training diverged: the loss of epoch {self.epoch} is {mean_loss}")
        return Epoch(self.epoch, self.epochs, mean_loss, float(correct) / len(self.inputs))

    def _make_batch(self, chosen: Tensor, number: int) -> TrainingBatch:
        inputs = self.inputs[chosen.to(self.inputs.device)]
        if self.augment is not None:
            inputs = self.augment(inputs, self.generator)
        labels = self.labels[chosen.to(self.labels.device)].to(self.device)
        epoch = (number + 1) / self.batches
        inputs = inputs.to(self.device)
        extras = {
            name: values[chosen.to(values.device)].to(self.device)
            for name, values in self.extras.items()
        }
        return TrainingBatch(
            self.module, inputs, labels, self.generator, epoch, self.bounds, self.precision, extras
        )

    @contextmanager
    def _restore_random_state(self) -> Iterator[None]:
        """Use the global random state of this training inside (at first seeded from its generator), and restore it."""
        if self._global is None:
            # initial weights and dropout draw from the global state
            with seed_from(self.generator, self.device):
                yield
            return
        cuda_devices = _list_cuda(self.device)
        with torch.random.fork_rng(devices=cuda_devices):
            torch.set_rng_state(self._global["cpu"])
            if "cuda" in self._global and cuda_devices:
                torch.cuda.set_rng_state(self._global["cuda"], self.device)
            yield


def _get_global_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def compute_learning_rate_factor(step: int, steps: int) -> float:
    """The factor of the learning rate: linear from near 0 to 1 over the first tenth of the steps, then a half cosine.

    >>> [round(compute_learning_rate_factor(step, 40), 2) for step in (0, 3, 4, 22, 39)]
    [0.25, 1.0, 1.0, 0.5, 0.0]
    """
    warm_up = max(1, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    # at least 1, where the warm-up takes all steps
    share = (step - warm_up) / max(1, steps - warm_up)
    return 0.5 * (1 + math.cos(math.pi * share))


def check_data(inputs: Tensor, labels: Tensor) -> None:
    """Raise `ArgumentError` unless `inputs` are floats (N, ...), N >= 1, and `labels` int64 (N,)."""
    check(
        inputs.ndim >= 2 and len(inputs) >= 1,
        "inputs",
        "a batch (N, ...), N >= 1",
        tuple(inputs.shape),
    )
    check(inputs.is_floating_point(), "inputs", "floating point numbers", inputs.dtype)
    check(labels.dtype == torch.int64, "labels", "int64", labels.dtype)
    expected = f"one label per input, shape ({len(inputs)},)"
    check(labels.shape == inputs.shape[:1], "labels", expected, tuple(labels.shape))


def measure_share(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    batch_size: int,
    is_right: Callable[[Tensor, Tensor], Tensor],
) -> float:
    """The share, in [0, 1], of `inputs` (N, ...) with `labels` (N,) for which a function of a batch is true, bool (B,).

    `module` is in eval mode, and batches are on its device.
    """
    check_data(inputs, labels)
    check_integer(batch_size, "batch_size")
    device = get_device(module)
    with set_mode(module, training=False):
        batches = zip(torch.split(inputs, batch_size), torch.split(labels, batch_size), strict=True)
        return sum(int(is_right(x.to(device), y.to(device)).sum()) for x, y in batches) / len(
            inputs
        )


def get_device(module: nn.Module) -> torch.device:
    """The device of the module's first parameter; the CPU if it has none."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


@contextmanager
def set_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Set all of `module` to train or eval mode inside; afterwards each submodule has its former mode."""
    before = [(submodule, submodule.training) for submodule in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        # each submodule may have had a mode of its own
        for submodule, was_training in before:
            submodule.training = was_training


@contextmanager
def seed_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed the global random state of the CPU and of `device` from `generator` inside, and restore it afterwards.

    Initial weights and dropout draw from that state.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=_list_cuda(device)):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _list_cuda(device: torch.device) -> list[torch.device]:
    """The device, if it has a random state of its own beside that of the CPU."""
    return [device] if device.type == "cuda" else []


def check_bounds(inputs: Tensor, bounds: Bounds) -> None:
    """Raise `ArgumentError` unless all `inputs` lie within the bounds."""
    lower, upper = (
        torch.as_tensor(bound, dtype=inputs.dtype, device=inputs.device) for bound in bounds
    )
    inside = bool(((inputs >= lower) & (inputs <= upper)).all())
    check(inside, "inputs", "values within the bounds", "values outside of them")
