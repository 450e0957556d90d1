"""`standfast init`: a commented study file for a model and data, checked before it is written.

The model is run once on one sample, and every explainer explains it. So what the file names can be imported, the shapes
fit, and the inputs lie within the bounds.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML
from torch import nn

from standfast.cli.kinds import KINDS, first_sentence
from standfast.errors import ArgumentError, StandfastError, check, suggest_name
from standfast.explainers import get as get_explainer
from standfast.frames import Table
from standfast.model import Model
from standfast.neighbourhoods.tables import Feature
from standfast.question.frames import FrameReader
from standfast.question.grid import Grid, Samples
from standfast.question.tensors import LEVELS, choose_ball
from standfast.question.texts import TextReader
from standfast.report.words import make_environment
from standfast.study.file.document import StudyError
from standfast.study.file.imports import REFERENCE
from standfast.study.file.names import DATA, MODELS, TASKS, Names
from standfast.study.file.options import plain_options, read_configured
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.spec import study_from
from standfast.tasks import Decision, Regression
from standfast.tasks.decision import is_rule
from standfast.tensors import is_image
from standfast.zoo.programs import PICKLES

#: enough for paired tests to decide something
SAMPLES = 24
#: from this ratio of the standard deviations of two columns on, one radius cannot suit both
_UNEVEN = 20
#: how many samples show whether a model was trained
_MEASURED = 1000
#: bounds that all values of type float32 are within, to look at data whose bounds are not known yet
_WIDE = (-1e37, 1e37)


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


def read_source(
    text: str, option: str, folder: Path, trust: bool = False, **options: Any
) -> NamedSource:
    """What a user means by a text: a name, `module:function`, or a file, relative to the current folder.

    Args:
        text: as given.
        option: `"--model"` or `"--data"`.
        folder: of the study file; paths in it are relative to this.
        trust: open a file of torch.export or a pickle, which can run code that is in it; or import a module from
            elsewhere.
        options: further keys of the entry; None for none.

    Raises:
        ArgumentError: none of these; weights for something else than a function; bounds or a label for a data set by
            name; a file of torch.export, or a pickle, without trust.

    >>> read_source("digits", "--data", Path())
    NamedSource(label='digits', options={}, name='digits')
    """
    names: Names = MODELS if option == "--model" else DATA
    path = Path(text)
    # a name wins over a file of the same name
    is_name = names.knows(text)
    is_spelled_so = re.fullmatch(REFERENCE, text) is not None
    is_function = is_spelled_so and not is_name and not path.exists()
    more = {key: value for key, value in options.items() if value is not None}
    may_have_weights = is_function or "weights" not in more
    expected = "none but for a module:function"
    check(may_have_weights, "--weights", expected, more.get("weights"))
    if is_name:
        _check_options_of_name(more)
        return NamedSource(text, more, text)
    # a folder with this file is a model of transformers
    if option == "--model" and (path / "config.json").is_file():
        entry = {"transformers": os.path.relpath(text, folder)}
        return NamedSource(path.resolve().name, entry | _with_trust(trust) | more)
    if path.exists():
        holds_code = text.endswith((".pt2", *PICKLES))
        expected = (
            f"--trust for a {path.suffix} file, because opening it can run code that is in it"
        )
        check(trust or not holds_code, option, expected, repr(text))
        # relative to the study, which may lie elsewhere
        entry = {"path": os.path.relpath(text, folder)}
        return NamedSource(path.stem, entry | _with_trust(holds_code) | more)
    if is_function:
        label = text.partition(":")[0].rpartition(".")[2]
        return NamedSource(label, {"function": text} | _with_trust(trust) | more)
    word = "models" if option == "--model" else "datasets"
    expected = f"a name that `standfast list {word}` shows, a file, or module:function of a module beside the study"
    raise ArgumentError(option, expected, f"{text!r}{suggest_name(text, names.listed)}")


def _check_options_of_name(options: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` for further keys of a data set by name, but for its task."""
    if options and set(options) != {"task"}:
        key, value = next(iter(options.items()))
        raise ArgumentError(f"--{key}", "none for a data set by name, which has its own", value)


def _with_trust(trust: bool) -> dict[str, Any]:
    """The key of an entry that is trusted."""
    if trust:
        return {"trust": True}
    return {}


def read_task(text: str | None) -> Any:
    """A task as a study file names it, from a text: as in a file, or the rule of a decision alone.

    Raises:
        ArgumentError: there is no such task, or an option of it is wrong.

    >>> read_task("binary:threshold=0.3"), read_task("declined: P(default) > 0.35")
    ('binary:threshold=0.3', {'decision': 'declined: P(default) > 0.35'})
    """
    if text is None:
        return None
    task = {Decision.name: text} if is_rule(text) else text
    try:
        read_configured(task, TASKS)
    except StudyFieldError as error:
        problem = error.problems[0]
        key_path = ".".join(map(str, problem.path))
        if key_path:
            got = f"{problem.got} ({key_path})"
        else:
            got = problem.got
        raise ArgumentError("--task", problem.expected, got) from None
    return task


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
        # fails the check below
        low = 0.0
        high = 0.0
    check(low < high, "--bounds", "the lowest and the highest valid value, as 0,1", repr(text))
    return low, high


def try_setting(model: NamedSource, data: NamedSource, folder: Path) -> StudySetting:
    """Load the data and run the model once. Where values are outside of [0, 1] and nothing says which are valid, the
    bounds are those of the values.

    Args:
        model, data: from `read_source`.
        folder: of the study file.

    Raises:
        StudyError: they cannot be loaded, or do not fit each other.
    """
    observed = False
    try:
        # without bounds first: most inputs lie in [0, 1], as images do
        _load(model, data, folder)
    except StudyError as error:
        # only values outside of [0, 1] can be helped by other bounds
        ends = [problem.path[-1:] for problem in error.problems]
        outside = ("bounds",) in ends
        if data.name or "bounds" in data.options or not outside:
            raise
        # all values of float32 fit, so that the true range can be read
        wide = _load(model, data.with_option("bounds", list(_WIDE)), folder)
        least, most = wide.data[data.label].inputs.aminmax()
        bounds = list(round_outwards(float(least), float(most)))
        data, observed = data.with_option("bounds", bounds), True
    # labels are classes, which another task does not explain
    if "task" in model.options:
        labelled = data
    else:
        labelled = data.with_option("targets", "labels")
    try:
        grid = _load(model, labelled, folder, check=True)
    except StudyError:
        # there are no labels, or they do not fit the model; or the error is raised again
        grid = _load(model, data, folder, check=True)
    samples = grid.data[data.label]
    tried = grid.models[model.label].model(samples, "cpu")
    # texts are run by their own length
    if samples.lengths is None:
        tried = samples.split(tried, slice(0, 1))[0].model
    return StudySetting(
        model, data, samples, tried, tried.logits(samples.inputs[:1]).shape[1], observed
    )


def round_outwards(low: float, high: float) -> tuple[float, float]:
    """A range with few digits that holds the given one.

    >>> round_outwards(-2.36531, 2.00231)
    (-2.37, 2.01)
    """
    # two significant digits of the larger end
    largest = max(abs(low), abs(high), 1e-30)
    digits = 2 - math.floor(math.log10(largest))
    unit = 10.0**-digits
    below = math.floor(low / unit) * unit
    above = math.ceil(high / unit) * unit
    return round(below, digits), round(above, digits)


def _load(model: NamedSource, data: NamedSource, folder: Path, check: bool = False) -> Grid:
    entries = {"data": {data.label: data.entry}, "models": {model.label: model.entry}}
    # the cheapest explainer and metric, as only data and model are tried
    study = study_from({**entries, "explainers": ["random"], "metrics": ["aopc"]}, folder)
    return study.grid(check=check)


def write_study(setting: StudySetting, study: Path) -> tuple[str, dict[str, str]]:
    """The text of a study file; it has been read again, and everything it names was tried.

    Args:
        setting: from `try_setting`.
        study: the file that will be written.

    Returns:
        The text, and the explainers that fail on this model and are left out, each with the reason.

    Raises:
        StudyError: names and options that do not fit.
    """
    text = _fill(setting, setting.explainers, study)
    # read back from the text, so that what is written is what was tried
    grid = study_from(YAML(typ="safe").load(text), study.parent).grid()
    left_out = {}
    fit = []
    # controls are added by the study, and are no part of the file
    labels = [label for label in grid.explainers if label not in grid.controls]
    for written_explainer, label in zip(setting.explainers, labels, strict=True):
        try:
            grid.explainers[label](setting.tried, setting.samples.inputs[:1])
            fit.append(written_explainer)
        except Exception as error:  # a model of the user's may raise anything
            # our own errors say it without the name of a class
            is_ours = isinstance(error, StandfastError)
            if is_ours:
                left_out[label] = f"{error}"
            else:
                left_out[label] = f"{type(error).__name__}: {error}"
    return _fill(setting, fit, study), left_out


def _fill(setting: StudySetting, explainers: Sequence[str], study: Path) -> str:
    samples = setting.samples
    shape = setting.shape
    # only bounds that are one number for all features fit into the line
    bounds = []
    for bound in map(torch.as_tensor, samples.bounds):
        if bound.numel() == 1:
            bounds.append(float(bound))
    # YAML is no HTML
    environment = make_environment(autoescape=False, package="standfast.cli")
    environment.filters["flow"] = _flow
    # a tuple of one has a comma
    sides = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    return environment.get_template("study.yaml").render(
        study=study,
        model=setting.model,
        data=setting.data,
        samples=min(SAMPLES, len(samples)),
        shape=f"({sides})",
        bounds=bounds if len(bounds) == 2 else None,
        assumed=setting.observed or setting.bounds_assumed,
        returned=setting.returned,
        explainers=[(name, _describe(name, "explainers")) for name in explainers],
        changes=setting.changes,
        texts=setting.holds_texts,
        columns=shape[0],
        radius=setting.radius,
        reach=setting.reach,
        metrics=[(name, _describe(name, "metrics")) for name in setting.metrics],
    )


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


def _describe(text: str, kind: str) -> str:
    """What an entry is, for a comment above it."""
    entry = KINDS[kind].load()[text.partition(":")[0]]
    return first_sentence(KINDS[kind].describe(text, entry))


def _flow(value: object) -> str:
    """A value as YAML in one line.

    >>> _flow({"path": "a: b.npz", "bounds": [0, 1]}), _flow("yes")
    ("{path: 'a: b.npz', bounds: [0, 1]}", 'yes')
    """
    yaml = YAML()
    text = io.StringIO()
    yaml.default_flow_style = True
    # one line, however long it is
    yaml.width = 10**6
    yaml.dump(value, text)
    # a plain value ends with the mark for the end of a document
    return text.getvalue().removesuffix("...\n").strip()
