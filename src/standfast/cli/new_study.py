"""`standfast init`: a commented study file for a model and data, checked before it is written.

The model is run once on one sample, and every explainer explains it. So what the file names can be imported, the shapes
fit, and the inputs lie within the bounds.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from ruamel.yaml import YAML
from torch import nn

from standfast.cli.kinds import KINDS, first_sentence
from standfast.errors import ArgumentError, StandfastError, check, suggest_name
from standfast.model import Model
from standfast.study.file.document import StudyError
from standfast.study.file.imports import REFERENCE
from standfast.study.file.names import DATA, EXPLAINERS, METRICS, MODELS, Names, read_entry
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.spec import study_from
from standfast.study.grid import Grid, Samples

#: enough for paired tests to decide something
SAMPLES = 24
#: from this ratio of the standard deviations of two columns on, one radius cannot suit both
_UNEVEN = 20
#: how many samples show whether a model was trained
_MEASURED = 1000
#: bounds that all values of type float32 are within, to look at data whose bounds are not known yet
_WIDE = (-1e37, 1e37)


@dataclass(frozen=True)
class Source:
    """A model or data as the user names them, for a study file in `folder`.

    Attributes:
        label: in the study.
        options: what the study file says of it.
        name: of the zoo, a loader or a hub; empty for a file or a function.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def entry(self) -> Mapping[str, Any]:
        """The entry of the study file."""
        return {self.name: self.options} if self.name else self.options

    def with_bounds(self, bounds: tuple[float, float]) -> Source:
        """Data with these bounds.

        Raises:
            ArgumentError: data sets that have a name have bounds of their own.
        """
        check(not self.name, "--bounds", "none for a data set by name, which has its own", bounds)
        return replace(self, options={**self.options, "bounds": list(bounds)})

    def with_label(self, column: str) -> Source:
        """A table with its classes in this column.

        Raises:
            ArgumentError: the data are not a table.
        """
        check(str(self.options.get("path", "")).lower().endswith(".csv"), "--label", "a column of a .csv table", column)
        return replace(self, options={**self.options, "label": column})

    @property
    def lacks_weights(self) -> bool:
        """Whether it is a function that may return an untrained module."""
        return "function" in self.options and "weights" not in self.options

    def with_weights(self, path: str, folder: Path) -> Source:
        """A function with the file of weights for the module that it returns."""
        return replace(self, options={**self.options, "weights": os.path.relpath(path, folder)})


@dataclass(frozen=True)
class Setting:
    """A model and its data, loaded and tried out.

    Attributes:
        folder: of the study file.
        model, data: as the file will name them.
        samples: the data, with their labels as targets where they have some.
        tried: the model as it was loaded, on the CPU.
        classes: how many logits it returns.
    """

    folder: Path
    model: Source
    data: Source
    samples: Samples
    tried: Model
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.samples.inputs.shape[1:])

    @property
    def range(self) -> float | None:
        """The width of the range of valid values; None if it is unbounded or differs between features."""
        lower, upper = (torch.as_tensor(bound) for bound in self.samples.bounds)
        width = upper - lower
        return float(width) if width.numel() == 1 and bool(torch.isfinite(width)) else None

    @property
    def bounds_assumed(self) -> bool:
        """Whether nothing says which values are valid, so that [0, 1] is a guess.

        Data sets know it, and so do pictures and other values of type uint8, which are scaled to it.
        """
        known = self.data.name or "bounds" in self.data.options or {"name", "images"} & set(self.samples.about)
        if known or not {"path", "function"} & set(self.samples.about):
            return False
        levels = 255 * self.samples.inputs
        return not torch.allclose(levels, levels.round(), rtol=0.0, atol=1e-3)

    @property
    def uneven_columns(self) -> str:
        """Where the columns of a table vary by very different amounts: which least and most, and by how much."""
        if len(self.shape) != 1 or len(self.samples) < 2:
            return ""
        spread = self.samples.inputs.std(dim=0)
        moving = spread.where(spread > 0, torch.inf)  # a constant column has no unit
        least, most = int(moving.argmin()), int(spread.argmax())
        if not moving[least] < spread[most] / _UNEVEN:
            return ""
        names = self.samples.features or [f"column {place}" for place in range(self.shape[0])]
        return f"{names[least]} varies by {spread[least]:.2g} and {names[most]} by {spread[most]:.2g}"

    def measure_accuracy(self) -> tuple[int, int, float] | None:
        """How many samples are predicted as labelled, of how many, and the share that needs no knowledge of inputs.

        At most 1000 samples, spread over the data; None without labels. That share is of the most frequent label.
        """
        labels = self.samples.targets
        if labels is None:
            return None
        rows = torch.linspace(0, len(labels) - 1, min(len(labels), _MEASURED)).round().long()
        correct = int((self.tried.predict(self.samples.inputs[rows]) == labels[rows]).sum())
        return correct, len(rows), max(1 / self.classes, float(labels[rows].bincount().max()) / len(rows))

    def describe_accuracy(self) -> tuple[str, str]:
        """The accuracy on the labels in words, and a warning of a model that may not be trained; each may be empty."""
        why = "no weights were given (--weights), so " if self.model.lacks_weights else ""
        found = self.measure_accuracy()
        if found is None:
            return "", f"{why}it may be untrained, and there are no labels that would show it" if why else ""
        correct, count, chance = found
        said = f"accuracy on the labels: {correct / count:.1%} of {count} samples"
        if correct > count * chance + 2 * math.sqrt(count * chance * (1 - chance)):
            return said, ""
        return said, f"{why}is it trained? Always naming the most frequent class is right for {chance:.1%}"

    def default_explainers(self) -> tuple[str, ...]:
        """Explainers that suit such a model and such inputs."""
        if not self.tried.differentiable:
            segments = "segments=pixels," if len(self.shape) == 1 else ""
            return (
                f"kernel_shap:{segments}samples=200",
                f"lime:{segments}samples=200,output=logit",
                "occlusion",
            )
        convolutions = any(isinstance(layer, nn.Conv1d | nn.Conv2d) for layer in self.tried.module.modules())
        if len(self.shape) == 1:
            return "saliency", "integrated_gradients", "kernel_shap:segments=pixels,samples=200"
        last = "gradcam" if convolutions and len(self.shape) > 1 else "input_x_gradient"
        return "saliency", "integrated_gradients", last

    def controls_for(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Controls that suit the model and the inputs; none if none of the metrics compares with controls."""
        known = KINDS["metrics"].load()
        names = [text.partition(":")[0] for text in metrics]
        if not any(known[name].controls for name in names if name in known):
            return ()
        edges, randomised = len(self.shape) > 1, self.tried.differentiable
        return ("random", "input_copy", *["edges"] * edges, *["randomised:saliency"] * randomised)

    def default_metrics(self) -> tuple[str, ...]:
        """Whether maps hold, by a search and by sampling, and whether the prediction rests on what they name."""
        return "worst_case", "max_sensitivity:normalise=True", "aopc" if len(self.shape) == 3 else "corruption_curve"

    def read_radius(self, text: str) -> float:
        """A radius from its text.

        Raises:
            ArgumentError: it is not a number above 0, or larger than the range of the inputs.
        """
        try:
            radius = float(text)
        except ValueError:
            radius = 0.0
        check(0 < radius < float("inf"), "--radius", "a number above 0", repr(text))
        expected = f"at most the range of the inputs, {self.range:g}" if self.range is not None else ""
        check(self.range is None or radius <= self.range, "--radius", expected, text)
        return radius

    def default_radius(self) -> float:
        """A tenth of the range; for tables and unbounded inputs a tenth of the standard deviation.

        For a table it is the median of the columns' standard deviations. A column may have a few far values, so that a
        tenth of its range is most of what it varies by.
        """
        x = self.samples.inputs.double()
        if len(self.shape) == 1 and len(x) > 1 and bool((x != x[0]).any()):
            spread = x.std(0)
            scale = float(spread[spread > 0].median())
        else:
            scale = self.range if self.range is not None else float(x.std())
        return float(f"{0.1 * scale:.2g}")


@dataclass(frozen=True)
class Plan:
    """What to evaluate in a setting.

    Attributes:
        explainers, metrics: names, options may follow as in `integrated_gradients:steps=16`.
        radius: of the neighbourhood, from `Setting.read_radius`.
        norm: of the neighbourhood.
        samples: how many.
        preset: of the metrics.
    """

    explainers: tuple[str, ...]
    metrics: tuple[str, ...]
    radius: float
    norm: Literal["linf", "l2"] = "linf"
    samples: int = SAMPLES
    preset: str = "quick"


def read_source(text: str, option: str, folder: Path, weights: str | None = None, trust: bool = False) -> Source:
    """What a user means by a text: a name, `module:function`, or a file, relative to the current folder.

    Args:
        text: as given.
        option: `"--model"` or `"--data"`.
        folder: of the study file; paths in it are relative to this.
        weights: a file for the module that a function returns.
        trust: open a file of torch.export, which can run code that is in it; or import a module from elsewhere.

    Raises:
        ArgumentError: none of these, or weights for something else than a function; a file of torch.export without
            trust.

    >>> read_source("digits", "--data", Path())
    Source(label='digits', options={}, name='digits')
    """
    names: Names = MODELS if option == "--model" else DATA
    is_function = _is_function(text, names) and not Path(text).exists()
    check(weights is None or is_function, "--weights", "none but for a module:function", weights)
    if names.knows(text):
        return Source(text, name=text)
    if Path(text).exists():
        exported = {"trust": True} if text.endswith(".pt2") else {}
        expected = "--trust for a .pt2 file, because opening a file of torch.export can run code that is in it"
        check(trust or not exported, option, expected, repr(text))
        return Source(Path(text).stem, {"path": os.path.relpath(text, folder), **exported})
    if is_function:
        found = Source(
            text.partition(":")[0].rpartition(".")[2], {"function": text, **({"trust": True} if trust else {})}
        )
        return found if weights is None else found.with_weights(weights, folder)
    word = "models" if option == "--model" else "datasets"
    expected = f"a name that `standfast list {word}` shows, a file, or module:function of a module beside the study"
    raise ArgumentError(option, expected, f"{text!r}{suggest_name(text, names.listed)}")


def read_names(text: str, option: str) -> tuple[str, ...]:
    """Names of explainers or metrics with commas between them; options of one follow its colon, and hold commas too.

    >>> read_names("saliency, lime:samples=9,seed=1,random", "--explainers")
    ('saliency', 'lime:samples=9,seed=1', 'random')

    Raises:
        ArgumentError: there is none, or one is unknown.
    """
    names = EXPLAINERS if option == "--explainers" else METRICS
    parts = tuple(filter(None, (part.strip() for part in re.split(r",(?!\s*\w+\s*=)", text))))
    check(len(parts) > 0, option, "at least one name", "none")
    for part in parts:
        if _is_function(part, names):
            continue
        try:
            read_entry(part, names)
        except StudyFieldError as error:
            (problem,) = error.problems
            raise ArgumentError(option, problem.expected, problem.got) from error
    return parts


def normalise_maps(metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics, with `normalise` where it makes explainers comparable and nothing is said of it.

    >>> normalise_maps(["max_sensitivity:samples=3", "local_lipschitz:normalise=False", "aopc"])
    ('max_sensitivity:samples=3,normalise=True', 'local_lipschitz:normalise=False', 'aopc')
    """
    known, found = KINDS["metrics"].load(), []
    for text in metrics:
        name, _, options = text.partition(":")
        missing = name in known and hasattr(known[name], "normalise") and "normalise" not in options
        found.append(f"{name}:{options}{',' if options else ''}normalise=True" if missing else text)
    return tuple(found)


def read_weights(text: str) -> str | None:
    """A file of weights; None for `"none"`.

    Raises:
        ArgumentError: there is no such file.
    """
    check(text == "none" or Path(text).is_file(), "--weights", "a file of weights, or none", repr(text))
    return None if text == "none" else text


def read_bounds(text: str) -> tuple[float, float]:
    """`"0,1"` as the lowest and the highest valid value.

    Raises:
        ArgumentError: the text is no such pair.

    >>> read_bounds("-1, 1")
    (-1.0, 1.0)
    """
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = 0.0, 0.0
    check(low < high, "--bounds", "the lowest and the highest valid value, as 0,1", repr(text))
    return low, high


def read_label(text: str, columns: Sequence[str]) -> str | None:
    """The column of a table with the classes; None for `"none"`.

    Raises:
        ArgumentError: there is no such column.
    """
    expected = f"one of its columns, {', '.join(columns)}, or none"
    check(text in (*columns, "none"), "--label", expected, f"{text!r}{suggest_name(text, columns)}")
    return text if text in columns else None


def _is_function(text: str, names: Names) -> bool:
    return re.fullmatch(REFERENCE, text) is not None and not names.knows(text)


def observe_range(model: Source, data: Source, folder: Path, samples: int | None) -> tuple[float, float] | None:
    """The least and the largest value of the data if they are not within the bounds that are known, else None.

    Raises:
        StudyError: the data cannot be loaded for another reason.
    """
    try:
        _load(model, data, folder, samples)
    except StudyError as error:
        if data.name or not any(problem.path[-1:] == ("bounds",) for problem in error.problems):
            raise
        wide = data.with_bounds(_WIDE)
        least, most = _load(model, wide, folder, samples).data[data.label].inputs.aminmax()
        return round_outwards(float(least), float(most))
    return None


def round_outwards(low: float, high: float) -> tuple[float, float]:
    """A range with few digits that holds the given one.

    >>> round_outwards(-2.36531, 2.00231)
    (-2.37, 2.01)
    """
    places = 2 - math.floor(math.log10(max(abs(low), abs(high), 1e-30)))
    unit = 10.0**-places
    return round(math.floor(low / unit) * unit, places), round(math.ceil(high / unit) * unit, places)


def _load(model: Source, data: Source, folder: Path, samples: int | None, check: bool = False) -> Grid:
    content = {
        "data": {data.label: dict(data.entry)},
        "models": {model.label: dict(model.entry)},
        "explainers": ["random"],
        "metrics": ["aopc"],
    }
    return study_from({**content, "samples": samples} if samples else content, folder).grid(check=check)


def try_setting(model: Source, data: Source, folder: Path, samples: int | None = None) -> Setting:
    """Load the data and run the model once.

    Args:
        model, data: from `read_source`.
        folder: of the study file.
        samples: how many to load, from the start; all by default.

    Raises:
        StudyError: they cannot be loaded, or do not fit each other.
    """
    try:
        labelled = replace(data, options={**data.options, "targets": "labels"})
        grid = _load(model, labelled, folder, samples, check=True)
    except StudyError:  # there are no labels, or they do not fit the model; or the error is raised again
        grid = _load(model, data, folder, samples, check=True)
    loaded = grid.data[data.label]
    tried = grid.models[model.label].model(loaded, "cpu")
    classes = tried.logits(loaded.inputs[:1]).shape[1]
    return Setting(folder, model, data, loaded, tried, classes)


def write_study(setting: Setting, plan: Plan, name: str = "study.yaml") -> tuple[str, dict[str, str]]:
    """The text of the study file `name`; it has been read again, and everything it names was tried.

    Returns:
        The text, and the explainers that fail on this model and are left out, each with the reason.

    Raises:
        ArgumentError: all explainers fail on this model.
        StudyError: names and options that do not fit.
    """
    text = "\n".join(_lines(setting, plan, name)) + "\n"
    grid = study_from(YAML(typ="safe").load(text), setting.folder).grid()
    left_out, fit = {}, []
    for given, (label, explainer) in zip(plan.explainers, grid.explainers.items(), strict=True):
        try:
            explainer(setting.tried, setting.samples.inputs[:1])
            fit.append(given)
        except Exception as error:  # an explainer of the user's may raise anything
            left_out[label] = f"{error}" if isinstance(error, StandfastError) else f"{type(error).__name__}: {error}"
    reasons = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
    check(bool(fit), "--explainers", "explainers that fit this model", reasons)
    if left_out:
        text = "\n".join(_lines(setting, replace(plan, explainers=tuple(fit)), name)) + "\n"
    return text, left_out


def _lines(setting: Setting, plan: Plan, name: str) -> Sequence[str]:
    model, data, samples = setting.model, setting.data, setting.samples
    lower, upper = (torch.as_tensor(bound) for bound in samples.bounds)
    within = f" in [{float(lower):g}, {float(upper):g}]" if lower.numel() == upper.numel() == 1 else ""
    if setting.bounds_assumed:
        within += ", which is assumed; if other values are valid, add bounds: [lowest, highest]"
    shape = f"({', '.join(map(str, setting.shape))}{',' if len(setting.shape) == 1 else ''})"
    share = f", {plan.radius / setting.range:.0%} of the range" if setting.range and plan.norm == "linf" else ""
    reach = "in every feature" if plan.norm == "linf" else "in Euclidean distance"
    return [
        "# A study of standfast, written by `standfast init`. Change it as you like.",
        "#",
        f"#     standfast run {name} --dry-run     what it will do, and about how long it takes",
        f"#     standfast run {name}               run it; the same command continues after an interruption",
        "",
        f"title: {json.dumps(f'Which explanations of {model.label} hold?', ensure_ascii=False)}",
        "seed: 0  # of all random numbers",
        f"samples: {plan.samples}  # of the data, from the start; fewer than about 20 decide little",
        f"preset: {plan.preset}  # quick, standard or paper: how much work goes into each answer",
        "",
        "data:",
        f"  {_key(data.label)}: {_flow(data)}  # inputs of shape {shape}{within}",
        "",
        "models:",
        f"  {_key(model.label)}: {_flow(model)}  # returns {setting.classes} logits",
        "",
        "explainers:  # more: `standfast list explainers`; their options: `standfast explain NAME`",
        *_items(plan.explainers, "explainers"),
        "",
        f"neighbourhood: {{{plan.norm}: {plan.radius:g}}}  # perturbed inputs differ by at most this {reach}{share}",
        "",
        "metrics:  # more: `standfast list metrics`",
        *_items(plan.metrics, "metrics"),
        "",
        "executor: {workers: auto}  # a process for each core, or for each GPU",
    ]


def _items(names: Sequence[str], kind: str) -> list[str]:
    """Entries of a list, each under a comment that says what it is."""
    lines = []
    for text in names:
        name = text.partition(":")[0]
        registry = KINDS[kind].load()
        if name in registry and name not in registry.plugins:
            words = first_sentence(KINDS[kind].describe(name, registry[name]))
            if getattr(registry[name], "control", False):
                words = f"Control, which says nothing about what the model has learned: {words[0].lower()}{words[1:]}"
            lines.append(f"  # {words}")
        function = _is_function(text, EXPLAINERS if kind == "explainers" else METRICS)
        lines.append(f"  - {_write({'function': text}) if function else _key(text)}")
    return lines


def _key(text: str) -> str:
    """A text as YAML reads it back as a text."""
    plain = re.fullmatch(r"[A-Za-z_][\w.-]*", text) and text.lower() not in ("y", "n", "yes", "no", "on", "off", "null")
    return text if plain else json.dumps(text, ensure_ascii=False)


def _flow(source: Source) -> str:
    if not source.name:
        return _write(source.options)
    return f"{{{_key(source.name)}: {_write(source.options)}}}" if source.options else _key(source.name)


def _write(entry: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()) + "}"
