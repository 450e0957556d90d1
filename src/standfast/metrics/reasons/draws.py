"""Draws: the explanation of an input once more, with another seed, another background, or a slightly changed input.

A source of variation is switched on by having it. An explainer without random numbers has no other seed, one that
averages over no rows has no other background, and without a neighbourhood the input stays as it is. One draw takes all
sources at random at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.explainers.adapters.base import ForeignExplainer, note_draws
from standfast.metrics.probe import Call, Probe
from standfast.model import Model
from standfast.neighbourhoods import Region
from standfast.records import Background
from standfast.statistics.reasons import ROUNDING
from standfast.tasks import measure_margin
from standfast.tensors import Array, seed_generators

#: what may be different in a draw of one model and one explainer
Source = Literal["seed", "background", "measurement"]
SOURCES: tuple[Source, ...] = get_args(Source)
#: of which the random numbers of several sources differ, whatever is switched on
_LARGEST_SEED = 2**31
#: other backgrounds that show whether there is one
_BACKGROUNDS_TRIED = 3
#: rooms of explainers that are computed here, and not by another package or by the user
_OUR_EXPLAINERS = tuple(
    f"standfast.explainers.{room}."
    for room in ("attention", "cam", "gradients", "perturbation", "propagation")
)
#: weights of each tensor, at least, and rows of the reference, at most, by which models are told apart
_WEIGHTS, _ANSWERED = 256, 8


class Setting(NamedTuple):
    """What a draw explains with.

    Attributes:
        seed: of the explainer, beside its own; 0 for its own.
        background: of the rows that are averaged over; 0 for those of the model.
        measurement: of the changed inputs.
    """

    seed: int
    background: int
    measurement: int


def number_model(model: Model) -> int:
    """A number of a model, which another one has with its own weights or answers.

    Draws of models that were trained again must not share their random numbers: a changed input in which a reason falls
    would make it fall in all of these models. The number is that of some of the weights; of a model without any, such
    as an estimator, that of answers to rows of the reference, to three digits, so that it is the same on all machines.
    Without such rows it is that of no model.

    >>> first, again = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    >>> number_model(Model(first, (0, 1))) == number_model(Model(again, (0, 1)))
    False
    """
    content = hashlib.sha256()
    weights = list(model.module.state_dict().values())
    for weight in weights:
        flat = weight.detach().flatten()
        content.update(flat[:: max(1, len(flat) // _WEIGHTS)].double().cpu().numpy().tobytes())
    if not weights and model.reference is not None:
        rows = model.reference.known[:_ANSWERED].to(model.device, model.dtype).clamp(*model.bounds)
        with torch.no_grad():
            (answers,) = model.map_rows(lambda part: (model.forward(part),), rows, evaluations=0)
        content.update(" ".join(f"{answer:.3g}" for answer in answers.flatten().tolist()).encode())
    return int.from_bytes(content.digest()[:7], "big")


def draw_settings(
    seed: int, varied: Sequence[Source], numbers: range, model: int = 0
) -> list[Setting]:
    """The settings of the draws with these numbers.

    No two draws have anything in common: neither those of one call, nor those in which other sources vary, nor those of
    another model. Two explainers of a model have the same draws.

    Args:
        seed: of the call.
        varied: the sources that are switched on.
        numbers: of the draws.
        model: its number, of `number_model`.
    """
    is_on = [source in varied for source in SOURCES]
    # each set of sources has a number of its own, so that no two sets share their draws
    number_of_set = sum(2**bit for bit, on in enumerate(is_on) if on)
    settings: list[Setting] = []
    for number in numbers:
        generator = np.random.default_rng([seed % 2**63, model, number_of_set, number])
        seeds = generator.integers(1, _LARGEST_SEED, size=len(SOURCES)).tolist()
        settings.append(Setting(*(drawn * on for drawn, on in zip(seeds, is_on, strict=True))))
    return settings


@dataclass(frozen=True)
class Drawn:
    """Explanations of n inputs in S draws.

    Attributes:
        maps: signed, at the places of the clean inputs, `(n, S, ...)`. NaN where they are not finite.
        kept: whether the answer is that of the clean input, bool `(n, S)`.
    """

    maps: Tensor
    kept: Tensor


class _Copies(NamedTuple):
    """Copies of n origins in S draws.

    Attributes:
        inputs: `(n, S, ...)`.
        points: of the region, from which they are made, `(n, S, ...)`; None where inputs stay as they are.
    """

    inputs: Tensor
    points: Tensor | None

    def select(self, draws: Sequence[int]) -> _Copies:
        """Those of some draws, by number."""
        numbers = list(draws)
        points = None
        if self.points is not None:
            points = self.points[:, numbers]
        return _Copies(self.inputs[:, numbers], points)


class Draws:
    """Explains the origins of a probe again and again.

    Args:
        call: the model, the explainer and the inputs.
        probe: of the call, without a region.
        region: where inputs may be changed to; None where they stay as they are.

    Attributes:
        varied: for each source that was tried whether it changes the map of an origin, bool `(P,)`.
    """

    def __init__(self, call: Call, probe: Probe, region: Region | None) -> None:
        self._call = call
        self._probe = probe
        self._region = region
        self._fixed = call.explainer.fixed_part(call.inputs)
        self.varied: dict[Source, Tensor] = {}

    def find_varied(self, sources: Sequence[Source]) -> list[Source]:
        """The sources among these that an explainer has.

        A seed is one if it draws random numbers, whether or not one other seed changes a map. A background is one if
        one of three others changes a map, since what is not used changes none.
        """
        rows = self._probe.usable()
        for source in sources:
            changes = torch.zeros(len(self._call.inputs), dtype=torch.bool, device=rows.device)
            if source == "measurement":
                if self._region is not None:
                    changes[rows] = self._region.find_movable()[rows]
            elif source == "seed" and len(rows):
                changes[rows] = draws_numbers(self._call, self._probe.targets, int(rows[0]))
            elif len(rows):
                changes[rows] = self._has_background(rows)
            self.varied[source] = changes
        return [source for source in sources if bool(self.varied[source].any())]

    def _has_background(self, rows: Tensor) -> Tensor:
        """Whether another background changes the map of each of these origins, bool `(n,)`."""
        explainer = self._call.explainer
        model = self._call.model
        changes = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        if model.reference is None and redraw_background(explainer, 1) is explainer:
            return changes
        for number in range(1, _BACKGROUNDS_TRIED + 1):
            drawn = self.explain(rows, [Setting(0, number, 0)])
            changes |= _differ(drawn.maps[:, 0], self._probe.maps[rows])
        return changes

    def explain(self, rows: Tensor, settings: Sequence[Setting]) -> Drawn:
        """Explain origins in several draws.

        Args:
            rows: the numbers of the origins, int64 `(n,)`.
            settings: of S draws. Those that differ in the changed inputs alone are explained together.
        """
        copies = self._make_copies(rows, settings)
        # the draws that are explained together, by number: those with one seed and one background
        draws_of_variants: dict[tuple[int, int], list[int]] = {}
        for draw, setting in enumerate(settings):
            draws_of_variants.setdefault((setting.seed, setting.background), []).append(draw)
        variants = [
            vary(self._call.explainer, self._call.model, seed, background)
            for seed, background in draws_of_variants
        ]
        maps: list[Tensor] = [torch.empty(0)] * len(settings)
        kept: list[Tensor] = [torch.empty(0)] * len(settings)
        with self._preparing(copies, variants):
            for variant, ((seed, _), draws) in zip(
                variants, draws_of_variants.items(), strict=True
            ):
                with seed_generators(seed, self._call.inputs.device):
                    drawn = self._explain_copies(*variant, rows, copies.select(draws))
                for number, draw in enumerate(draws):
                    maps[draw] = drawn.maps[:, number]
                    kept[draw] = drawn.kept[:, number]
        return Drawn(torch.stack(maps, 1), torch.stack(kept, 1))

    def _preparing(
        self, copies: _Copies, variants: Sequence[tuple[Explainer, Model]]
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, what several variants need of the copies may be computed once."""
        if len(variants) == 1:
            return contextlib.nullcontext()
        return self._call.explainer.preparing(
            self._call.model, copies.inputs.flatten(0, 1), variants
        )

    def _make_copies(self, rows: Tensor, settings: Sequence[Setting]) -> _Copies:
        """A copy of each origin for each draw."""
        points = self._sample(rows, settings)
        if points is None or self._region is None:
            inputs = self._call.inputs[rows][:, None]
            return _Copies(inputs.expand(-1, len(settings), *inputs.shape[2:]), None)
        changed = self._region.perturb(points.flatten(0, 1), rows.repeat_interleave(len(settings)))
        return _Copies(changed.reshape(*points.shape[:2], *changed.shape[1:]), points)

    def _sample(self, rows: Tensor, settings: Sequence[Setting]) -> Tensor | None:
        """A point of the neighbourhood of each origin for each draw, `(n, S, ...)`; None where inputs stay."""
        if self._region is None or not any(setting.measurement for setting in settings):
            return None
        region = self._region.select(rows)
        return torch.cat(
            [region.sample(1, region.streams(setting.measurement)) for setting in settings], dim=1
        )

    def _explain_copies(
        self, explainer: Explainer, model: Model, rows: Tensor, copies: _Copies
    ) -> Drawn:
        """Explain the copies of the origins with these numbers `(n,)`."""
        region = self._region
        count = copies.inputs.shape[1]
        origin = rows.repeat_interleave(count)
        targets = self._probe.targets[origin]
        flat_points = None
        fixed = None
        if copies.points is not None:
            flat_points = copies.points.flatten(0, 1)
            if self._fixed is not None:
                fixed = self._fixed[origin]
        maps, logits = explainer.attribute_all(model, copies.inputs.flatten(0, 1), targets, fixed)
        margin = measure_margin(model.task, logits, targets)
        finite = maps.flatten(1).isfinite().all(1) & logits.flatten(1).isfinite().all(1)
        if flat_points is not None and region is not None and region.aligns:
            maps, visible = region.align_maps(maps, flat_points, origin)
            maps = torch.where(visible, maps, 0.0)
        constant = maps.flatten(1).amax(1) == maps.flatten(1).amin(1)
        self._probe.count(origin, constant & finite, ~finite)
        shown = torch.where(finite.reshape(-1, *[1] * (maps.ndim - 1)), maps, torch.nan)
        shape = (len(rows), count)
        return Drawn(
            shown.detach().reshape(*shape, *maps.shape[1:]), (finite & (margin < 0)).reshape(shape)
        )


def draws_numbers(call: Call, targets: Tensor, row: int) -> bool:
    """Whether the explainer of a call draws random numbers, by a seed of its own or from the generators of the process.

    Every adapter of another package has a seed, whether or not the package draws; so it is tried.

    Args:
        call: within the session of its model.
        targets: what is explained, of all inputs.
        row: the number of an input that can be explained.
    """
    explainer = call.explainer
    if reseed(explainer, 1) is not explainer and not isinstance(explainer, ForeignExplainer):
        return True
    one = slice(row, row + 1)
    with seed_generators(0, call.inputs.device) as has_drawn, note_draws() as noted:
        explainer.attribute_all(call.model, call.inputs[one], targets[one])
        return has_drawn() or any(noted)


def list_possible(explainer: Explainer, model: Model, is_measured: bool) -> tuple[Source, ...]:
    """The sources that an explainer may have, as far as this is known before anything is explained.

    Args:
        explainer: as its inputs need it.
        model: with its reference.
        is_measured: whether the input may differ.

    >>> import standfast
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> [list_possible(standfast.explainers.get(name), model, True) for name in ("saliency", "smoothgrad")]
    [('measurement',), ('seed', 'measurement')]
    """
    # ours draw random numbers by a seed of their own, and others in any way
    is_ours = type(explainer).__module__.startswith(_OUR_EXPLAINERS)
    has_seed = reseed(explainer, 1) is not explainer
    has_rows = model.reference is not None or redraw_background(explainer, 1) is not explainer
    is_possible: dict[Source, bool] = {
        "seed": has_seed or not is_ours,
        "background": has_rows,
        "measurement": is_measured,
    }
    return tuple(source for source in SOURCES if is_possible[source])


def _differ(maps: Tensor, others: Tensor) -> Tensor:
    """Whether maps `(n, ...)` differ by more than rounding, bool `(n,)`."""
    flat = maps.flatten(1)
    other = others.flatten(1)
    slack = ROUNDING * other.abs().amax(1, keepdim=True)
    return ((flat - other).abs() > slack).any(1) | ~flat.isfinite().all(1)


def vary(explainer: Explainer, model: Model, seed: int, background: int) -> tuple[Explainer, Model]:
    """An explainer with another seed, and a model and an explainer with another background; 0 leaves both alone.

    Rows of the model's reference are drawn without replacement, as many as before. Where the explainer has rows of its
    own, or takes all that there are, they are drawn with replacement.

    >>> import standfast
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> vary(standfast.explainers.get("smoothgrad"), model, seed=2, background=0)[0].seed
    2
    """
    if seed:
        explainer = reseed(explainer, seed)
    if background:
        explainer = redraw_background(explainer, background)
        model = model.with_background(background)
    return explainer, model


def reseed(explainer: Explainer, seed: int) -> Explainer:
    """The explainer with another seed, and those within it; itself where it draws no random numbers.

    >>> from standfast.explainers import SmoothGrad
    >>> reseed(SmoothGrad(seed=4), 2).seed
    6
    """

    def change(option: str, value: object) -> object:
        is_seed = option == "seed" and type(value) is int
        return value + seed if is_seed else value  # type: ignore[operator]

    return change_options(explainer, change)


def redraw_background(explainer: Explainer, seed: int) -> Explainer:
    """The explainer whose own rows are drawn again with replacement; itself where it has none.

    >>> import torch
    >>> from standfast.explainers import KernelSHAP
    >>> rows = torch.arange(6.0).reshape(3, 2)
    >>> redraw_background(KernelSHAP(background=rows), 1).background.shape
    (3, 2)
    """

    def change(option: str, value: object) -> object:
        if not isinstance(value, Background):
            return value
        return Background(value.inputs[resample(len(value), seed)])

    return change_options(explainer, change)


def resample(count: int, seed: int) -> Array:
    """Numbers of `count` rows, drawn with replacement."""
    return np.random.default_rng(seed).integers(0, count, size=count)


def change_options(explainer: Explainer, change: Callable[[str, object], object]) -> Explainer:
    """The explainer with options, and those of explainers within it, as `change(name, value)` gives them."""
    changes: dict[str, Any] = {}
    options: tuple[dataclasses.Field[Any], ...] = ()
    if dataclasses.is_dataclass(explainer):
        options = dataclasses.fields(explainer)
    for option in options:
        value = getattr(explainer, option.name)
        changed: object
        if isinstance(value, Explainer):
            changed = change_options(value, change)
        else:
            changed = change(option.name, value)
        if changed is not value:
            changes[option.name] = changed
    return dataclasses.replace(explainer, **changes) if changes else explainer  # type: ignore[type-var]
