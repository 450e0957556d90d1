"""Training of a model in one call, its accuracy, and augmentations of images and series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import check
from standfast.training.loop import (
    Augmentation,
    Epoch,
    Training,
    get_device,
    measure_share,
    seed_from,
)

__all__ = [
    "Augmentation",
    "Epoch",
    "accuracy",
    "initialize",
    "random_flip",
    "random_noise_blocks",
    "random_shift",
    "train_classifier",
]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def initialize(module: ModuleT, generator: torch.Generator) -> ModuleT:
    """Draw new initial weights of `module` from `generator`, in place; returns `module`.

    Calls `reset_parameters` of every submodule that has it, so each layer keeps its own distribution.

    >>> a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> a = initialize(a, torch.Generator().manual_seed(0))
    >>> b = initialize(b, torch.Generator().manual_seed(0))
    >>> torch.equal(a.weight, b.weight)
    True
    """
    with seed_from(generator, get_device(module)):
        for submodule in module.modules():
            reset = getattr(submodule, "reset_parameters", None)
            # a layer of the user's may have an attribute of this name
            if callable(reset):
                reset()
    return module


def train_classifier(
    module: ModuleT,
    inputs: Tensor,
    labels: Tensor,
    *,
    progress: Callable[[Epoch], None] | None = None,
    **options: Any,
) -> ModuleT:
    """Train `module` in place on `inputs` (N, ...) and `labels` (N,), classes as integers; returns `module`.

    Args:
        module: inputs -> logits (N, classes). Training starts from its current weights: see `initialize`.
        inputs: floating point, (N, ...), as the module takes them.
        labels: int64, (N,), each in 0 .. classes - 1.
        progress: called after each epoch.
        options: those of `standfast.training.loop.Training`, of which `epochs` and `generator` are required.

    Raises:
        ArgumentError: an argument is out of its range, or inputs and labels do not match.
        ModelError: the loss is no longer finite (`standfast.training.loop.DivergedError`), or the scheme cannot
            train this module.

    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs = torch.randn(200, 2, generator=generator)
    >>> labels = (inputs.sum(dim=1) > 0).long()
    >>> module = initialize(nn.Linear(2, 2), generator)
    >>> module = train_classifier(module, inputs, labels, epochs=20, learning_rate=0.1, generator=generator)
    >>> accuracy(module, inputs, labels) > 0.95
    True
    """
    Training(module, inputs, labels, **options).run(progress)
    return module


def accuracy(module: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 1000) -> float:
    """The share, in [0, 1], of `inputs` (N, ...) whose largest logit is that of their label in `labels` (N,).

    It runs in eval mode without gradients, and restores the mode.

    Raises:
        ArgumentError: inputs and labels do not match.

    >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
    0.75
    """
    with torch.no_grad():
        return measure_share(
            module, inputs, labels, batch_size, lambda x, y: module(x).argmax(dim=1) == y
        )


def random_shift(inputs: Tensor, generator: torch.Generator, *, pixels: int = 2) -> Tensor:
    """Move each image of `inputs` (N, C, H, W) by up to `pixels` in each direction; zeros fill the border.

    Raises:
        ArgumentError: `inputs` do not have four dimensions, or `pixels` is below 0.

    >>> random_shift(torch.ones(2, 1, 5, 5), torch.Generator().manual_seed(0), pixels=1).shape
    torch.Size([2, 1, 5, 5])
    """
    check(inputs.ndim == 4, "inputs", "images (N, C, H, W)", tuple(inputs.shape))
    check(pixels >= 0, "pixels", "at least 0", pixels)
    count, _, height, width = inputs.shape
    offsets = torch.randint(
        # on the generator's device, whose numbers they are
        2 * pixels + 1,
        (2, count, 1),
        generator=generator,
        device=generator.device,
    )
    down, right = offsets.to(inputs.device)
    rows = down + torch.arange(height, device=inputs.device)  # (N, H)
    columns = right + torch.arange(width, device=inputs.device)  # (N, W)
    sample = torch.arange(count, device=inputs.device)
    padded = F.pad(inputs, (pixels, pixels, pixels, pixels))
    # the index moves the channels to the end: (N, H, W, C)
    sample = sample[:, None, None]
    moved = padded[sample, :, rows[:, :, None], columns[:, None, :]]
    return moved.movedim(-1, 1).contiguous()


def random_flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image of `inputs` (N, C, H, W) left to right, or keep it, with equal probability.

    Raises:
        ArgumentError: `inputs` do not have four dimensions.

    >>> random_flip(torch.ones(2, 1, 5, 5), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 5, 5])
    """
    check(inputs.ndim == 4, "inputs", "images (N, C, H, W)", tuple(inputs.shape))
    mirrored = torch.randint(
        2, (len(inputs), 1, 1, 1), generator=generator, device=generator.device
    )
    return torch.where(mirrored.to(inputs.device) == 1, inputs.flip(3), inputs)


def random_noise_blocks(
    inputs: Tensor,
    generator: torch.Generator,
    *,
    block: int = 7,
    most: float = 0.8,
    chance: float = 0.5,
) -> Tensor:
    """Replace random blocks of each series of `inputs` (N, C, T) by standard normal noise: for standardised inputs.

    A model that is trained with it knows series that an evaluation corrupts in this way: Turbe et al., Evaluation
    of post-hoc interpretability methods in time-series classification, Nature Machine Intelligence 5, 2023.

    A sample is changed with probability `chance`. Then a share s of it is replaced on average, where s is uniform in
    [0, `most`]. A block covers `block` steps of one channel, less at the ends. At each step the centre of a block is
    placed with probability `1 - (1 - s)^(1 / block)`. So a step that is not near an end is covered with probability s.

    Args:
        inputs: series.
        generator: of the random numbers.
        block: steps of a block, an odd number.
        most: the largest share of a sample that is replaced on average, in [0, 1).
        chance: the probability that a sample is changed.

    Raises:
        ArgumentError: `inputs` do not have three dimensions, or an option is out of range.

    >>> random_noise_blocks(torch.zeros(2, 3, 50), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 50])
    """
    check(inputs.ndim == 3, "inputs", "series (N, C, T)", tuple(inputs.shape))
    check(block >= 1 and block % 2 == 1, "block", "an odd number of at least 1", block)
    check(0 <= most < 1, "most", "a share in [0, 1)", most)
    check(0 <= chance <= 1, "chance", "a probability", chance)
    device = generator.device
    change, share = torch.rand(2, len(inputs), 1, 1, generator=generator, device=device)
    share = torch.where(change < chance, most * share, 0.0)
    # a step is covered by any of `block` centres, so each is placed with the root of the probability
    centres = torch.rand(inputs.shape, generator=generator, device=device) < 1 - (1 - share) ** (
        1 / block
    )
    covered = F.max_pool1d(centres.to(torch.float32), block, stride=1, padding=block // 2) > 0
    noise = torch.randn(inputs.shape, generator=generator, device=device)
    return torch.where(covered.to(inputs.device), noise.to(inputs), inputs)
