"""A model and its data, tried out: what `standfast init` writes into a study, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from standfast.errors import ArgumentError
from standfast.explainers import get as get_explainer
from standfast.frames import Table
from standfast.model import Model
from standfast.neighbourhoods.tables import Feature
from standfast.question.frames import FrameReader
from standfast.question.grid import Samples
from standfast.question.tensors import LEVELS, choose_ball
from standfast.question.texts import TextReader
from standfast.study.file.options import plain_options
from standfast.tasks import Regression
from standfast.tensors import is_image

#: from this ratio of the standard deviations of two columns on, one radius cannot suit both
_UNEVEN = 20
#: how many samples show whether a model was trained
_MEASURED = 1000


@dataclass(frozen=True)
class NamedSource:
    """A model or data as the user names them.

    Attributes:
        label: in the study.
        options: what the study file says of it.
        name: of the zoo, a loader or a hub; empty for a file or a function.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def entry(self) -> str | dict[str, Any]:
        """The entry of the study file."""
        options = dict(self.options)
        if not self.name:
            return options
        if options:
            return {self.name: options}
        return self.name

    def with_option(self, key: str, value: Any) -> NamedSource:
        """The same with a further option."""
        return replace(self, options={**self.options, key: value})


@dataclass(frozen=True)
class StudySetting:
    """A model and its data, loaded and tried out.

    Attributes:
        model, data: as the file will name them.
        samples: the data, with their labels as targets where they have some.
        tried: the model as it was loaded, on the CPU.
        classes: how many logits it returns.
        observed: the bounds are those that the values have, since nothing says which are valid.
    """

    model: NamedSource
    data: NamedSource
    samples: Samples
    tried: Model
    classes: int
    observed: bool = False

    @property
    def table(self) -> Table | None:
        """Of data frames; None for other inputs."""
        reader = self.samples.reader
        if isinstance(reader, FrameReader):
            return reader.table
        return None

    @property
    def holds_texts(self) -> bool:
        """Whether the inputs are texts."""
        return isinstance(self.samples.reader, TextReader)

    @property
    def holds_images(self) -> bool:
        """Whether the inputs are taken as pictures."""
        return is_image(self.shape)

    @property
    def reach(self) -> str:
        """The radius as a share of the range, in words; empty where there is no range."""
        if self.range is None:
            return ""
        if self.holds_images:
            return f"{LEVELS[0]}/255"
        return f"{100 * self.radius / self.range:.0f}%"

    @property
    def returned(self) -> str:
        """What the model returns, in words."""
        task = self.tried.task
        if task.classes:
            return f"{self.classes} logits"
        return f"the outputs of the task {task.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.samples.inputs.shape[1:])

    @property
    def range(self) -> float | None:
        """The width of the range of valid values; None if it is unbounded or differs between features."""
        # numbers become tensors, so that both have a width
        lower, upper = (torch.as_tensor(bound) for bound in self.samples.bounds)
        width = upper - lower
        if width.numel() == 1 and bool(torch.isfinite(width)):
            return float(width)
        return None

    @property
    def bounds_assumed(self) -> bool:
        """Whether nothing says which values are valid, so that [0, 1] is a guess.

        Data sets know it, and so do pictures and other values of type uint8, which are scaled to it.
        """
        about = self.samples.about
        # images of whole numbers are scaled to [0, 1]
        scaled = "images" in about and "floats" not in about
        bounds_are_known = (
            self.data.name
            or "bounds" in self.data.options
            or {"name", "texts"} & set(about)
            or scaled
        )
        is_of_user = bool({"path", "function"} & set(about))
        if bounds_are_known or self.table is not None or not is_of_user:
            return False
        # values of 8 bits are multiples of 1/255, also after they were scaled
        levels = 255 * self.samples.inputs
        return not torch.allclose(levels, levels.round(), rtol=0.0, atol=1e-3)

    @property
    def explainers(self) -> tuple[str, ...]:
        """Explainers that suit such a model and such inputs; the study adds controls that fit."""
        if self.holds_texts:
            return "saliency", "integrated_gradients", "kernel_shap:samples=200"
        if self.table is not None:
            by_coalitions = "kernel_shap:samples=200", "occlusion"
            # it reads the trees of boosters, if it is installed
            reads_trees = find_spec("shap") is not None
            if reads_trees:
                return ("tree_shap", *by_coalitions)
            return by_coalitions
        # columns of a table have no segments
        has_columns = len(self.shape) == 1
        segments = "segments=pixels," if has_columns else ""
        kernel_shap = f"kernel_shap:{segments}samples=200"
        if not self.tried.differentiable:
            return kernel_shap, f"lime:{segments}samples=200,output=logit", "occlusion"
        if has_columns:
            return "saliency", "integrated_gradients", kernel_shap
        layers = self.tried.module.modules()
        convolutions = nn.Conv1d | nn.Conv2d
        has_convolutions = any(isinstance(layer, convolutions) for layer in layers)
        third = "gradcam" if has_convolutions else "input_x_gradient"
        return "saliency", "integrated_gradients", third

    def explain_one(self, name: str) -> None:
        """Explain the first sample by an explainer, which may raise an error."""
        get_explainer(name)(self.tried, self.samples.inputs[:1])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Whether maps hold, by a search and by sampling, and whether the prediction rests on what they name."""
        if self.table is not None:
            return "worst_case:absolute=False", "seed_agreement", "corruption_curve"
        if self.holds_texts:
            return "worst_case", "misinterpretation_probability", "aopc"
        faithfulness = "corruption_curve"
        if len(self.shape) == 3:
            faithfulness = "aopc"
        return ("worst_case", "max_sensitivity:normalise=True", faithfulness)

    @property
    def changes(self) -> dict[str, Any] | None:
        """How the columns of a data frame change; None for other inputs."""
        if self.table is None:
            return None
        try:
            features: Any = self.table.default_changes().changes
        except ArgumentError:  # no number can change
            # without numbers that vary, categories are what can change
            return {column.name: "category" for column in self.table.columns if column.varies}
        return {name: _write_feature(feature) for name, feature in features.items()}

    @property
    def radius(self) -> float:
        """Of images and series that of `evaluate`; of tables and unbounded inputs a tenth of the standard deviation.

        For a table it is the median of the columns' standard deviations. A column may have a few far values, so that a
        tenth of its range is most of what it varies by.
        """
        if self.holds_images and self.range is not None:
            return choose_ball(self.samples.inputs, self.samples.bounds).radius
        x = self.samples.inputs.double()
        # a constant table has no standard deviation
        varies = len(x) > 1 and bool((x != x[0]).any())
        if len(self.shape) == 1 and varies:
            spread = x.std(0)
            scale = float(spread[spread > 0].median())
        else:
            if self.range is not None:
                scale = self.range
            else:
                scale = float(x.std())
        # two digits, so that the file can be read
        return float(f"{0.1 * scale:.2g}")

    def describe(self) -> list[str]:
        """What was found, in lines; those of doubts begin with "warning: "."""
        if not self.holds_texts:
            shape = " x ".join(map(str, self.shape))
        else:
            shape = "texts"
        lines = [
            f"{self.model.label} takes the inputs of {self.data.label} ({shape}) and returns {self.returned}"
        ]
        lines += self._describe_accuracy()
        change = "if that is wrong, give --bounds=LOWEST,HIGHEST"
        if self.observed:
            lines.append(
                f"warning: valid values of an input: {self.data.options['bounds']}, as they occur; {change}"
            )
        elif self.bounds_assumed:
            lines.append(f"warning: valid values of an input: [0, 1] is assumed; {change}")
        return lines + self._describe_columns()

    def _describe_accuracy(self) -> list[str]:
        """The accuracy on at most 1000 samples, spread over the data; a warning of a model that may be untrained."""
        options = self.model.options
        labels = self.samples.targets
        lacks_weights = "function" in options and "weights" not in options
        why = "no weights were given (--weights), so " if lacks_weights else ""
        if not self.tried.task.classes:
            return self._describe_error()
        if labels is None:
            if why:
                return [
                    f"warning: {why}it may be untrained, and there are no labels that would show it"
                ]
            return []
        rows = _choose_rows(len(labels))
        labels_of_rows = labels[rows]
        is_correct = self.tried.predict(self.samples.inputs[rows]) == labels_of_rows
        correct = int(is_correct.sum())
        count = len(rows)
        # the more frequent class counts, as it is right for most samples
        most_frequent = float(labels_of_rows.bincount().max()) / count
        chance = max(1 / self.classes, most_frequent)
        lines = [f"accuracy on the labels: {correct / count:.1%} of {count} samples"]
        # two standard deviations above chance: less is no evidence of training
        deviation = math.sqrt(count * chance * (1 - chance))
        if correct <= count * chance + 2 * deviation:
            doubt = (
                f"is it trained? Always naming the most frequent class is right for {chance:.1%}"
            )
            lines.append(f"warning: {why}{doubt}")
        return lines

    def _describe_error(self) -> list[str]:
        """How far a regressor is from labels that are numbers, on at most 1000 samples spread over the data."""
        labels = self.samples.extras.get("labels")
        if not isinstance(self.tried.task, Regression) or labels is None:
            return []
        rows = _choose_rows(len(labels))
        labels_of_rows = labels[rows].double()
        outputs = self.tried.logits(self.samples.inputs[rows])
        predicted = outputs[:, 0].double()
        error = (predicted - labels_of_rows).abs().mean()
        naive = (labels_of_rows - labels_of_rows.median()).abs().mean()
        lines = [f"mean absolute error on the labels: {error:.4g} of {len(rows)} samples"]
        doubt = f"warning: is it trained? Always naming the median is wrong by {naive:.4g}"
        if error >= naive:
            return [*lines, doubt]
        return lines

    def _describe_columns(self) -> list[str]:
        """A warning if the columns of a table vary by very different amounts: which least and most, and by how much."""
        # numbers of a data frame have units of their own, and are no rows of one radius
        words = self.table is not None or self.holds_texts
        is_table = len(self.shape) == 1 and len(self.samples) > 1
        if not is_table or words:
            return []
        spread = self.samples.inputs.std(dim=0)
        moving = spread.where(spread > 0, torch.inf)  # a constant column has no unit
        least = int(moving.argmin())
        most = int(spread.argmax())
        if not moving[least] < spread[most] / _UNEVEN:
            return []
        numbered = [f"column {column}" for column in range(self.shape[0])]
        names = self.samples.features or numbered
        return [
            f"warning: {names[least]} varies by {spread[least]:.2g} and {names[most]} by {spread[most]:.2g} (standard"
            " deviations), but one radius holds for all columns; give the model scaled columns, and scale the table in"
            " the same way"
        ]


def _choose_rows(count: int) -> torch.Tensor:
    """The numbers of some samples, evenly spaced, by which a model is measured."""
    spaced = torch.linspace(0, count - 1, min(count, _MEASURED))
    return spaced.round().long()


def _write_feature(feature: Feature) -> Any:
    """How a file writes the change of a column: the amount alone where nothing else is set."""
    options = {}
    for name, value in plain_options(feature).items():
        if value is not None:
            options[name] = value
    # as most changes are a single amount
    if set(options) == {"by"}:
        return options["by"]
    return options
