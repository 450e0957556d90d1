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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from ruamel.yaml import YAML

from standfast.cli.kinds import KINDS, first_sentence
from standfast.cli.setting import NamedSource, StudySetting
from standfast.errors import ArgumentError, StandfastError, check, suggest_name
from standfast.question.grid import Grid
from standfast.report.words import make_environment
from standfast.study.file.document import StudyError
from standfast.study.file.imports import REFERENCE
from standfast.study.file.names import DATA, MODELS, TASKS, Names
from standfast.study.file.options import read_configured
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.spec import study_from
from standfast.tasks import Decision
from standfast.tasks.decision import is_rule
from standfast.zoo.programs import PICKLES

if TYPE_CHECKING:
    import jinja2

#: enough for paired tests to decide something
SAMPLES = 24
#: bounds that all values of type float32 are within, to look at data whose bounds are not known yet
_WIDE = (-1e37, 1e37)


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
    # a tuple of one has a comma
    sides = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    return _read_template().render(
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


@cache
def _read_template() -> jinja2.Template:
    # YAML is no HTML
    environment = make_environment(autoescape=False, package="standfast.cli")
    environment.filters["flow"] = _flow
    return environment.get_template("study.yaml")


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
