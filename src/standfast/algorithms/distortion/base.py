"""What an attack is: a search for the nearest point at which the prediction has changed."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from standfast.algorithms.distortion.flat_inputs import bridge_flat_inputs
from standfast.algorithms.distortion.geometry import check_norm
from standfast.algorithms.distortion.minimal import MinimalDistortion
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.algorithms.subject import Subject
from standfast.errors import ArgumentError, check
from standfast.needs import Needs
from standfast.records import ConfigurationType
from standfast.registry import Registry, build
from standfast.tensors import Streams, draw_seed

# numbers in the points of a group of inputs: 32 MB, and an attack needs about ten times that
_ELEMENTS = 1 << 23


class Attack(metaclass=ConfigurationType):
    """A search for the least change of the free features that changes the prediction, for all inputs at once.

    Concrete attacks are frozen dataclasses with their options.
    """

    name: ClassVar[str]
    #: what the model must have, for lists
    needs: ClassVar[Needs] = Needs(gradients=True)
    #: how many points of each input it has in memory at once, for the size of groups
    points_in_memory: ClassVar[int] = 4

    def minimise(
        self,
        model: Subject,
        inputs: Tensor,
        targets: Tensor | int | None,
        free: Tensor | None,
        norm: float | str = 2,
        generator: torch.Generator | None = None,
        start: Tensor | None = None,
    ) -> MinimalDistortion:
        """`min ||delta||` so that `x + delta` has another answer, delta is 0 on fixed features, within the bounds.

        The result is an upper bound of the minimum. For an affine classifier `"fmn"` finds the minimum itself: with up
        to 129 classes always, and with more with a probability of at least `1 - 1e-6`.

        Source: c-Eval (Vu et al. 2021), Eq. 3 and 4.

        Args:
            model: the model.
            inputs: `(N, ...)` within the bounds.
            targets: classes y `(N,)`, or what another task explains; None for what is predicted. Where the model does
                not predict y at an input, its distortion is 0.
            free: bool, True where a feature may change: `(N, ...)`, or one channel for all channels. None: all may.
            norm: 2 or `"inf"`; `"alma"` and `"cw"` know the first only.
            generator: for attacks that draw random numbers; each input has a stream of its own, keyed by its content.
            start: points `(N, ...)` near which a solution may be, such as the solution for other fixed features.

        Raises:
            ArgumentError: arguments that do not fit.

        >>> from standfast.algorithms import get_attack
        >>> from standfast.model import Model
        >>> model = Model(torch.nn.Linear(3, 2), bounds=(-9.0, 9.0), device="cpu")
        >>> with torch.no_grad():
        ...     _ = model.module.weight.copy_(torch.tensor([[3.0, 4.0, 9.0], [0.0, 0.0, 0.0]]))
        ...     _ = model.module.bias.zero_()
        >>> x, free = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[True, True, False]])
        >>> get_attack("fmn").minimise(model, x, None, free).distortion  # 7 / |(3, 4)|
        tensor([1.40])
        """
        with torch.inference_mode(False):
            inputs = model.check_inputs(inputs)
            targets = model.check_targets(targets, inputs)
            return self.minimise_checked(model, inputs, targets, free, norm, generator, start)

    def minimise_checked(
        self,
        model: Subject,
        inputs: Tensor,
        answers: Tensor,
        free: Tensor | None,
        norm: float | str,
        generator: torch.Generator | None,
        start: Tensor | None = None,
    ) -> MinimalDistortion:
        """As `minimise`, for inputs that are checked, and the answers `(N, ...)` of the model's task to them."""
        order = check_norm(norm)
        with torch.inference_mode(False):
            free = _check_free(free, inputs)
            if start is not None:
                fits = isinstance(start, Tensor) and start.shape == inputs.shape
                check(
                    fits,
                    "start",
                    f"points of shape {tuple(inputs.shape)}",
                    getattr(start, "shape", start),
                )
                start = start.detach().to(inputs)
            seed = draw_seed(generator)
            size = max(1, _ELEMENTS // (inputs[0].numel() * self.points_in_memory))
            firsts = range(0, len(inputs), size)
            groups = [slice(first, first + size) for first in firsts]
            with model.session():
                spaces = [
                    FreeSpace(model, inputs[at], answers[at], free[at], order) for at in groups
                ]
                begins = [None if start is None else start[at].flatten(1) for at in groups]
                parts = [
                    _minimise(space, self, seed, begin)
                    for space, begin in zip(spaces, begins, strict=True)
                ]
        joined: dict[str, Tensor] = {}
        for field in dataclasses.fields(MinimalDistortion):
            values = [getattr(part, field.name) for part in parts]
            joined[field.name] = torch.cat(values)
        return MinimalDistortion(**joined)

    @abstractmethod
    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """Evaluate points of `space` and offer them to `nearest`.

        `streams` has a random stream for each input. The search may begin at `start`, flat points `(N, d)`, such as the
        solution for other fixed features.
        """

    @abstractmethod
    def expected_evaluations(self) -> int:
        """About how many inputs this predicts for each input, for progress bars and estimates."""

    def expected_for(self, classes: int | None) -> int:
        """`expected_evaluations` for a model of so many classes; None: not known."""
        return self.expected_evaluations()


attacks: Registry[type[Attack]] = Registry("attack")


def get_attack(attack: str | Attack) -> Attack:
    """An attack by its name, or by `"name:option=value,..."`; an attack itself is returned as it is.

    Raises:
        ArgumentError: an unknown name or option, a value out of range.
    """
    if isinstance(attack, Attack):
        return attack
    if not isinstance(attack, str):
        raise ArgumentError("attack", "a name or an Attack", repr(attack))
    return build(attacks, attack)


def _minimise(
    space: FreeSpace, attack: Attack, seed: int, start: Tensor | None
) -> MinimalDistortion:
    """One group; inputs that have changed already, or have no free feature, are left out of the attack."""
    flips = space.margin(space.x, space.rows) > 0
    distortion = torch.where(flips, 0.0, torch.inf).to(space.x.dtype)
    points = space.x.clone()
    was_found = flips.clone()
    second = distortion.clone()
    gradients = torch.zeros_like(space.evaluations)
    rows = (~flips & space.free.any(1)).nonzero().flatten()
    if len(rows):
        part = space.select(rows)
        nearest = Nearest(part)
        streams = Streams.for_rows(part.x, seed)
        if space.model.task.peaks:
            bridge_flat_inputs(part, nearest, streams)
        start_of_rows = None
        if start is not None:
            start_of_rows = start[rows]
        attack.run(part, nearest, streams, start_of_rows)
        distortion[rows] = torch.where(nearest.found, nearest.distortion, nearest.searched)
        points[rows] = nearest.points
        was_found[rows] = nearest.found
        second[rows] = nearest.second
        space.evaluations[rows] += part.evaluations
        gradients[rows] = part.gradients
    inputs = space.unflatten(points)
    return MinimalDistortion(distortion, inputs, was_found, second, space.evaluations, gradients)


def _check_free(free: Tensor | None, inputs: Tensor) -> Tensor:
    """The mask in the shape of the inputs; raises `ArgumentError` if it does not fit."""
    if free is None:
        return torch.ones_like(inputs, dtype=torch.bool)
    one = (len(inputs), 1, *inputs.shape[2:])
    fits = (
        isinstance(free, Tensor)
        and free.dtype == torch.bool
        and tuple(free.shape) in (tuple(inputs.shape), one)
    )
    if isinstance(free, Tensor):
        got = f"{free.dtype} of shape {tuple(free.shape)}"
    else:
        got = type(free).__name__
    if not fits:
        raise ArgumentError("free", f"a bool tensor of shape {tuple(inputs.shape)} or {one}", got)
    return free.to(inputs.device).expand(inputs.shape)
