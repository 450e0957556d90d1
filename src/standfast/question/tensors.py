"""Tensors, and data sets of them: inputs that are rows of numbers already."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from standfast.data import Dataset
from standfast.errors import check, warn_user
from standfast.model import Model
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.question.grid import LoadedModel, ModelSource, Samples
from standfast.question.inputs import Given, Inputs, kinds
from standfast.tensors import Bound, describe_bounds, describe_no_tensor, is_image, suggest_dtype

logger = logging.getLogger(__name__)

#: how far each pixel moves by default, in levels of a picture of 8 bits; the second where there is time for it
LEVELS = (8, 4)
#: how far each feature of other inputs moves by default, as a share of the range
SHARE = 0.1


@dataclass(frozen=True, eq=False)
class GivenTensors:
    """Inputs as a user hands them over, for a model that is there: their bounds are those of the model.

    Attributes:
        inputs: `(N, ...)`.
        dataset: that they are of; None for a tensor alone.
    """

    inputs: Any
    dataset: Dataset | None = None


@kinds.register("tensors")
@dataclass(eq=False)
class Tensors(Inputs):
    """Batches of numbers `(N, ...)`, and models of these."""

    name = "tensors"
    words = "tensors"
    forms = "a torch.Tensor or a Dataset"
    given = Samples

    @classmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        return isinstance(inputs, Tensor | Dataset)

    @classmethod
    def title(cls, inputs: Any) -> str:
        if isinstance(inputs, Dataset) and inputs.name:
            return inputs.name
        return super().title(inputs)

    @classmethod
    def give(cls, inputs: Any) -> GivenTensors:
        if isinstance(inputs, Dataset):
            return GivenTensors(inputs.inputs, inputs)
        return GivenTensors(inputs)

    @classmethod
    def read(cls, given: Given) -> Tensors:
        """As of a study file, whose data are samples and whose models are sources already; or from Python."""
        # data of a study file have bounds of their own
        if all(isinstance(data, Samples) for data in given.data.values()):
            return cls(dict(given.data), dict(given.models))
        ((data_name, data),) = given.data.items()
        about: dict[str, Any] = {}
        sources: dict[str, ModelSource] = {}
        models: list[Model] = []
        for name, raw_model in given.models.items():
            model = _make_model(raw_model, data, given.reference, about)
            models.append(model)
            sources[name] = LoadedModel(model)
        return cls({data_name: _make_samples(data, models[0])}, sources, about)

    def default_neighbourhood(self) -> tuple[Neighbourhood, str]:
        """Each pixel of images by 8/255 of its range, each feature of other inputs by a tenth."""
        return self._choose_ball(LEVELS[0])

    def default_neighbourhoods(self) -> list[tuple[Neighbourhood, str]]:
        """Of images also half as far."""
        if not self._hold_images:
            return [self.default_neighbourhood()]
        return [self._choose_ball(levels) for levels in LEVELS]

    @property
    def _hold_images(self) -> bool:
        return all(is_image(samples.inputs.shape[1:]) for samples in self.samples.values())

    def _choose_ball(self, levels: int) -> tuple[Neighbourhood, str]:
        """The ball that all data sets have, and what the report says of it."""
        # a set, so that data sets of one range have one ball
        balls = {
            choose_ball(samples.inputs, samples.bounds, levels) for samples in self.samples.values()
        }
        expected = "a neighbourhood, such as LinfBall(0.1): its default is a share of the range, the same for all data"
        check(
            len(balls) == 1,
            "neighbourhood",
            expected,
            "None, for data sets of different ranges or kinds",
        )
        ball = balls.pop()
        words = (
            f"each feature by up to {ball.radius:g}, a tenth of its range, because none was given"
        )
        if self._hold_images:
            several = any(len(list_ranges(samples.bounds)) > 1 for samples in self.samples.values())
            whose = "the smallest range of a channel" if several else "its range"
            words = f"each pixel by up to {levels}/255 of {whose}, because none was given"
        logger.info("neighbourhood: %s", words)
        return ball, words


def choose_ball(inputs: Tensor, bounds: tuple[Bound, Bound], levels: int = LEVELS[0]) -> LinfBall:
    """What metrics get where no neighbourhood is given: a share of the range of the inputs.

    Args:
        inputs: `(N, ...)`. Images (`is_image`) have so many of 255 levels; other inputs a tenth of the range.
        bounds: the smallest and the largest valid value: numbers, or tensors that broadcast against one input.
        levels: of images. Where channels have different ranges, of the smallest range.

    Raises:
        ArgumentError: the bounds are infinite, or the features have different ranges, but for the channels of images.

    >>> choose_ball(torch.zeros(1, 3, 8, 8), (0.0, 255.0)).radius
    8.0
    >>> choose_ball(torch.zeros(1, 5), (-1.0, 1.0)).radius
    0.2
    """
    ranges = list_ranges(bounds)
    holds_images = is_image(inputs.shape[1:])
    words = ", ".join(f"{width:g}" for width in ranges)
    check(
        all(map(math.isfinite, ranges)) and ranges[0] > 0 and (len(ranges) == 1 or holds_images),
        "neighbourhood",
        "a neighbourhood, such as LinfBall(0.1): its default is a share of the one finite range of all inputs",
        f"None, for ranges of {words}",
    )
    if holds_images:
        return LinfBall(ranges[0] * levels / 255)
    # six digits, so that 0.30000000000000004 is no radius in a report
    return LinfBall(float(f"{SHARE * ranges[0]:.6g}"))


def list_ranges(bounds: tuple[Bound, Bound]) -> list[float]:
    """The widths of the ranges of all features, with six digits: those that differ, the smallest first.

    >>> list_ranges((0.0, torch.tensor([1.0, 2.0, 1.0])))
    [1.0, 2.0]
    """
    lower, upper = (torch.as_tensor(bound) for bound in bounds)
    widths = (upper - lower).double().flatten().tolist()
    # six digits, as ranges of single precision differ in their last ones
    return sorted({float(f"{width:.6g}") for width in widths})


def _make_model(model: Any, data: GivenTensors, reference: Any, about: dict[str, Any]) -> Model:
    """A model, or one of a module alone, with the reference rows that were given beside it."""
    # a module has no bounds of its own
    if isinstance(model, nn.Module):
        bounds, about["bounds"] = _find_bounds(data)
        model = Model(model, bounds)
    hint = ""
    if hasattr(model, "predict"):
        hint = ", whose data are a data frame"
    if isinstance(model, list | tuple):
        hint = "; several models are in a mapping from names"
    got = f"{type(model).__name__}{hint}"
    check(isinstance(model, Model), "model", "a standfast Model or a torch.nn.Module", got)
    assert isinstance(model, Model)
    # a reference of the model's own wins
    if reference is not None and model.reference is None:
        return model.with_reference(model.check_inputs(reference, "reference"))
    return model


def _make_samples(data: GivenTensors, model: Model) -> Samples:
    """The inputs, with what a data set says of them, within the bounds of a model."""
    inputs = model.check_inputs(data.inputs)
    # a card's memory is for the model
    lower, upper = model.bounds
    samples = Samples(inputs.cpu(), bounds=(lower.cpu(), upper.cpu()))
    dataset = data.dataset
    if dataset is None:
        return samples
    further: Mapping[str, Tensor] = {"labels": dataset.labels, **dataset.extras}
    return replace(
        samples,
        extras={name: values.cpu() for name, values in further.items()},
        features=dataset.features,
        tokens=dataset.tokens,
        sample_names=dataset.sample_names,
        about={"classes": list(dataset.classes)},
    )


def _find_bounds(data: GivenTensors) -> tuple[tuple[Bound, Bound], str]:
    """The bounds for a module alone, and where they come from.

    Raises:
        ArgumentError: the inputs are no data set, and do not look like values in [0, 1].
    """
    if data.dataset is not None:
        source = (
            f"{describe_bounds(data.dataset.bounds)}, those of the data set {data.dataset.name}"
        )
        logger.info("bounds of the inputs: %s", source)
        return data.dataset.bounds, source
    inputs = data.inputs
    check(
        isinstance(inputs, Tensor),
        "inputs",
        "a torch.Tensor or a Dataset",
        describe_no_tensor(inputs),
    )
    got = f"{inputs.dtype}: {suggest_dtype(inputs, torch.float32)}"
    check(inputs.is_floating_point(), "inputs", "floating-point numbers", got)
    check(
        inputs.numel() > 0,
        "inputs",
        "a non-empty batch of shape (N, ...)",
        f"shape {tuple(inputs.shape)}",
    )
    least, most = (float(value) for value in inputs.aminmax())
    # values that reach the upper half, but nothing beyond, are most often scaled to [0, 1]
    check(
        least >= 0 and 0.5 < most <= 1,
        "bounds",
        "the range of all valid inputs, as in standfast.Model(net, bounds=(low, high)), because these inputs do not"
        " look like values in [0, 1]",
        f"a module alone, and inputs with values in [{least:g}, {most:g}]",
    )
    warn_user(
        f"bounds: taken as [0, 1], because all inputs lie in [{least:g}, {most:g}]; if other values are valid, say so"
        " with standfast.Model(net, bounds=(low, high))"
    )
    return (0.0, 1.0), f"[0, 1], assumed because all inputs lie in [{least:g}, {most:g}]"
