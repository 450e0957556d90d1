"""Plain training of a classifier: cross-entropy, AdamW, warm-up and cosine, all draws from one generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import ModelError, check

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Augmentation = Callable[[Tensor, torch.Generator], Tensor]
Perturbation = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Epoch:
    """What `progress` is told after each epoch: averages over the training batches as they were seen.

    With perturbed inputs, the same mix of clean and perturbed as in the loss.
    """

    number: int  # 1 .. epochs
    epochs: int
    loss: float
    accuracy: float


def initialize(module: ModuleT, generator: torch.Generator) -> ModuleT:
    """Draw the weights of `module` anew, in place, from `generator`; returns `module`.

    Calls `reset_parameters` of every submodule that has one, so each layer keeps its own scheme.

    >>> a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> a = initialize(a, torch.Generator().manual_seed(0))
    >>> b = initialize(b, torch.Generator().manual_seed(0))
    >>> torch.equal(a.weight, b.weight)
    True
    """
    with _seeded_from(generator, device_of(module)):
        for submodule in module.modules():
            reset = getattr(submodule, "reset_parameters", None)
            if callable(reset):
                reset()
    return module


def train_classifier(
    module: ModuleT,
    inputs: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    generator: torch.Generator,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    weight_decay: float = 0.0,
    augment: Augmentation | None = None,
    perturb: Perturbation | None = None,
    clean_share: float = 0.5,
    progress: Callable[[Epoch], None] | None = None,
) -> ModuleT:
    """Train `module` in place on `inputs` (N, ...) and `labels` (N,), classes as integers; returns `module`.

    Minimises the mean cross-entropy with AdamW. The learning rate climbs linearly to `learning_rate` over
    the first tenth of the steps and falls to zero on a half cosine. Batches go to the device of the module's
    parameters; the data may stay elsewhere.

    Args:
        module: inputs -> logits (N, classes). It starts from the weights it has: see `initialize`.
        inputs: floating point, (N, ...), as the module takes them.
        labels: int64, (N,), each in 0 .. classes - 1.
        epochs: passes over the data, at least 1.
        generator: the order of the samples, dropout and `augment` all follow from it. The global random
            state is as before afterwards; on one machine the same generator state gives the same weights
            (on a GPU only as far as its kernels are deterministic).
        batch_size: samples per step; the last batch of an epoch may be smaller.
        learning_rate: its peak, above 0.
        weight_decay: decoupled from the gradient, at least 0.
        augment: `(batch, generator) -> batch`, applied to every batch on the device of `inputs`.
        perturb: `(module, batch, labels, generator) -> batch`, after `augment`, on the device of the module: inputs
            to train on beside the batch, such as those of `holdfast.zoo.adversarial.Pgd`.
        clean_share: of the loss, in [0, 1], for the batch as it was; the rest is for the perturbed one. It has no
            effect without `perturb`.
        progress: called after each epoch.

    The train/eval mode of every submodule is restored; gradients are cleared.

    Raises:
        ArgumentError: an argument is out of its range, or inputs and labels do not match.
        ModelError: the loss is no longer finite.

    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs = torch.randn(200, 2, generator=generator)
    >>> labels = (inputs.sum(dim=1) > 0).long()
    >>> module = initialize(nn.Linear(2, 2), generator)
    >>> module = train_classifier(module, inputs, labels, epochs=20, learning_rate=0.1, generator=generator)
    >>> accuracy(module, inputs, labels) > 0.95
    True
    """
    check_data(inputs, labels)
    check(epochs >= 1, "epochs", "at least 1", epochs)
    check(batch_size >= 1, "batch_size", "at least 1", batch_size)
    check(0 < learning_rate < math.inf, "learning_rate", "a finite number above 0", learning_rate)
    check(0 <= weight_decay < math.inf, "weight_decay", "a finite number of at least 0", weight_decay)
    check(0 <= clean_share <= 1, "clean_share", "a share in [0, 1]", clean_share)
    device = device_of(module)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    check(len(parameters) > 0, "module", "a module with parameters that require a gradient", "none")
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    steps = epochs * math.ceil(len(inputs) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_factor(step, steps))
    with mode(module, training=True), _seeded_from(generator, device), torch.enable_grad():
        for number in range(1, epochs + 1):
            loss_sum, correct = torch.zeros((), device=device), torch.zeros((), device=device)
            order = torch.randperm(len(inputs), generator=generator, device=generator.device)
            for chosen in torch.split(order, batch_size):
                batch = inputs[chosen.to(inputs.device)]
                if augment is not None:
                    batch = augment(batch, generator)
                target = labels[chosen.to(labels.device)].to(device)
                batch = batch.to(device)
                seen = [(1.0, batch)]
                if perturb is not None:
                    seen = [(clean_share, batch), (1 - clean_share, perturb(module, batch, target, generator))]
                optimizer.zero_grad()
                for share, part in seen:
                    if share > 0:
                        logits = module(part)
                        loss = share * F.cross_entropy(logits, target)
                        torch.autograd.backward(loss)
                        loss_sum += loss.detach() * len(target)
                        correct += share * (logits.detach().argmax(dim=1) == target).sum()
                optimizer.step()
                schedule.step()
            mean_loss = float(loss_sum) / len(inputs)
            if not math.isfinite(mean_loss):
                raise ModelError(f"training diverged: the loss of epoch {number} is {mean_loss}")
            if progress is not None:
                progress(Epoch(number, epochs, mean_loss, float(correct) / len(inputs)))
        optimizer.zero_grad()
    return module


def accuracy(module: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 1000) -> float:
    """The share, in [0, 1], of `inputs` (N, ...) whose largest logit is that of their label in `labels` (N,).

    Runs in eval mode without gradients, and restores the mode. Raises `ArgumentError` when inputs and labels
    do not match.

    >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
    0.75
    """
    check_data(inputs, labels)
    check(batch_size >= 1, "batch_size", "at least 1", batch_size)
    device = device_of(module)
    correct = 0
    with mode(module, training=False), torch.no_grad():
        batches = zip(torch.split(inputs, batch_size), torch.split(labels, batch_size), strict=True)
        for batch, target in batches:
            correct += int((module(batch.to(device)).argmax(dim=1) == target.to(device)).sum())
    return correct / len(inputs)


def random_shift(inputs: Tensor, generator: torch.Generator, *, pixels: int = 2) -> Tensor:
    """Move each image of `inputs` (N, C, H, W) by up to `pixels` in each direction; zeros fill the border.

    Raises `ArgumentError` unless `inputs` has four dimensions and `pixels` is at least 0.

    >>> random_shift(torch.ones(2, 1, 5, 5), torch.Generator().manual_seed(0), pixels=1).shape
    torch.Size([2, 1, 5, 5])
    """
    check(inputs.ndim == 4, "inputs", "images (N, C, H, W)", tuple(inputs.shape))
    check(pixels >= 0, "pixels", "at least 0", pixels)
    count, _, height, width = inputs.shape
    offsets = torch.randint(2 * pixels + 1, (2, count, 1), generator=generator, device=generator.device)
    down, right = offsets.to(inputs.device)
    rows = down + torch.arange(height, device=inputs.device)  # (N, H)
    columns = right + torch.arange(width, device=inputs.device)  # (N, W)
    sample = torch.arange(count, device=inputs.device)
    padded = F.pad(inputs, (pixels, pixels, pixels, pixels))
    # the index brings the channels last: (N, H, W, C)
    moved = padded[sample[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved.movedim(-1, 1).contiguous()


def random_flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image of `inputs` (N, C, H, W) left to right, or leave it, with equal probability.

    Raises `ArgumentError` unless `inputs` has four dimensions.

    >>> random_flip(torch.ones(2, 1, 5, 5), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 5, 5])
    """
    check(inputs.ndim == 4, "inputs", "images (N, C, H, W)", tuple(inputs.shape))
    mirrored = torch.randint(2, (len(inputs), 1, 1, 1), generator=generator, device=generator.device)
    return torch.where(mirrored.to(inputs.device) == 1, inputs.flip(3), inputs)


def _learning_rate_factor(step: int, steps: int) -> float:
    """Linear from near 0 to 1 over the first tenth of the steps, then a half cosine to 0."""
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
def _seeded_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
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
