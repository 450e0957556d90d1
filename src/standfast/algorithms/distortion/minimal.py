"""The least change of the free features of an input that changes its prediction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.distortion.base import Attack, get
from standfast.algorithms.distortion.geometry import check_norm
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.algorithms.subject import Subject
from standfast.errors import ArgumentError, check
from standfast.tensors import Streams, draw_seed

_ELEMENTS = 1 << 23  # numbers in the points of a group of inputs: 32 MB, and an attack needs about ten times that


@dataclass(frozen=True)
class MinimalDistortion:
    """The nearest points found at which predictions have changed.

    Attributes:
        distortion: `||inputs' - inputs||`, an upper bound of the least one, `(N,)`. Where none was found, the largest
            distortion that was tried, or infinity where no feature is free; that is not a bound of the true minimum.
        inputs: the points, `(N, ...)`; the inputs themselves where none was found.
        found: bool `(N,)`.
        second: the second smallest distortion among the separate searches of the attack, `(N,)`; infinite where fewer
            than two of them found a change, or the attack has one only. If it is near `distortion`, two searches agree.
        model_evaluations: inputs predicted for each, int `(N,)`.
        gradient_evaluations: how many of these with a gradient, int `(N,)`.
    """

    distortion: Tensor
    inputs: Tensor
    found: Tensor
    second: Tensor
    model_evaluations: Tensor
    gradient_evaluations: Tensor

    @property
    def low(self) -> Tensor:
        """A lower 95% limit of the least distortion `(N,)`, see `estimate_lower_limit`; 0 where nothing is known."""
        return estimate_lower_limit(self.distortion, self.second)


def estimate_lower_limit(distortion: Tensor, second: Tensor, level: float = 0.95) -> Tensor:
    """A lower confidence limit of a minimum, from the two smallest values that separate searches have found.

        low = c - (c' - c) level / (1 - level),    not below 0

    for the smallest value c and the second smallest c'. It is 0 where there is no second value. The limit holds for
    values that are drawn independently from a density that does not vanish at the minimum. Searches are not quite like
    this: all of them may end in the same wrong place. So it is evidence, and no proof; `certified_distortion` proves a
    bound. `docs/c-eval.md` says how often the limit held against much longer searches.

    Source: Robson and Whitlock, "Estimation of a truncation point" (Biometrika 51, 1964).

    >>> estimate_lower_limit(torch.tensor([2.0, 2.0, 2.0]), torch.tensor([2.01, 2.5, torch.inf]))
    tensor([1.81, 0.00, 0.00])
    """
    gap = (second.double() - distortion.double()).clamp(min=0)
    low = (distortion.double() - gap * (level / (1 - level))).clamp(min=0)
    return torch.where(second.isfinite(), low, 0.0).to(distortion.dtype)


def minimal_distortion(
    model: Subject,
    inputs: Tensor,
    targets: Tensor | int | None,
    free: Tensor | None,
    norm: float | str = 2,
    attack: str | Attack = "fmn",
    generator: torch.Generator | None = None,
    start: Tensor | None = None,
) -> MinimalDistortion:
    """`min ||delta||` such that `argmax f(x + delta) != y`, delta is 0 on fixed features, x + delta within the bounds.

    An attack finds an upper bound of the minimum. For an affine classifier `"fmn"` finds the minimum itself: with up to
    129 classes always, and with more with a probability of at least `1 - 1e-6`.

    Source: c-Eval (Vu et al. 2021), Eq. 3 and 4.

    Args:
        model: the model.
        inputs: `(N, ...)` within the bounds.
        targets: classes y `(N,)`, or None for the predicted ones. Where the model does not predict y at an input, its
            distortion is 0.
        free: bool, True where a feature may change: `(N, ...)`, or one channel for all channels. None: all may.
        norm: 2 or `"inf"`.
        attack: `"fmn"`, `"alma"` and `"cw"` (2-norm only), `"ddn"`, `"iga"`, `"gsa"`, with options such as
            `"fmn:steps=200"`, or an `Attack`.
        generator: for attacks that draw random numbers; each input has a stream of its own, keyed by its content.
        start: points `(N, ...)` near which a solution may be, such as the solution for other fixed features.

    Raises:
        ArgumentError: arguments that do not fit.

    >>> from standfast.model import Model
    >>> model = Model(torch.nn.Linear(3, 2), bounds=(-9.0, 9.0), device="cpu")
    >>> with torch.no_grad():
    ...     _ = model.module.weight.copy_(torch.tensor([[3.0, 4.0, 9.0], [0.0, 0.0, 0.0]]))
    ...     _ = model.module.bias.zero_()
    >>> x, free = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[True, True, False]])
    >>> minimal_distortion(model, x, None, free).distortion  # 7 / |(3, 4)|
    tensor([1.40])
    """
    attack = get(attack)
    order = check_norm(norm)
    with torch.inference_mode(False):
        inputs = model.check_inputs(inputs)
        targets = model.check_targets(targets, inputs)
        free = _check_free(free, inputs)
        if start is not None:
            fits = isinstance(start, Tensor) and start.shape == inputs.shape
            check(fits, "start", f"points of shape {tuple(inputs.shape)}", getattr(start, "shape", start))
            start = start.detach().to(inputs)
        seed = draw_seed(generator)
        size = max(1, _ELEMENTS // (inputs[0].numel() * attack.points_in_memory))
        groups = [slice(first, first + size) for first in range(0, len(inputs), size)]
        with model.session():
            spaces = [FreeSpace(model, inputs[at], targets[at], free[at], order) for at in groups]
            begins = [None if start is None else start[at].flatten(1) for at in groups]
            parts = [_minimise(space, attack, seed, begin) for space, begin in zip(spaces, begins, strict=True)]
    fields = [field.name for field in dataclasses.fields(MinimalDistortion)]
    return MinimalDistortion(**{name: torch.cat([getattr(part, name) for part in parts]) for name in fields})


def _minimise(space: FreeSpace, attack: Attack, seed: int, start: Tensor | None) -> MinimalDistortion:
    """One group; inputs that have changed already, or have no free feature, are left out of the attack."""
    flips = space.margin(space.x, space.rows) > 0
    distortion = torch.where(flips, 0.0, torch.inf).to(space.x.dtype)
    points, found, second = space.x.clone(), flips.clone(), distortion.clone()
    gradients = torch.zeros_like(space.evaluations)
    rows = (~flips & space.free.any(1)).nonzero().flatten()
    if len(rows):
        part = space.select(rows)
        nearest = Nearest(part)
        attack.run(part, nearest, Streams.for_rows(part.x, seed), None if start is None else start[rows])
        distortion[rows] = torch.where(nearest.found, nearest.distortion, nearest.searched)
        points[rows], found[rows], second[rows] = nearest.points, nearest.found, nearest.second
        space.evaluations[rows] += part.evaluations
        gradients[rows] = part.gradients
    inputs = space.unflatten(points)
    return MinimalDistortion(distortion, inputs, found, second, space.evaluations, gradients)


def _check_free(free: Tensor | None, inputs: Tensor) -> Tensor:
    """The mask in the shape of the inputs; raises `ArgumentError` if it does not fit."""
    if free is None:
        return torch.ones_like(inputs, dtype=torch.bool)
    one = (len(inputs), 1, *inputs.shape[2:])
    fits = isinstance(free, Tensor) and free.dtype == torch.bool and tuple(free.shape) in (tuple(inputs.shape), one)
    got = f"{free.dtype} of shape {tuple(free.shape)}" if isinstance(free, Tensor) else type(free).__name__
    if not fits:
        raise ArgumentError("free", f"a bool tensor of shape {tuple(inputs.shape)} or {one}", got)
    return free.to(inputs.device).expand(inputs.shape)
