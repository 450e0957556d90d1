"""`Grid`: the parts of a question by name, and which of them are combined; all inputs are rows of numbers here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from standfast.data.dataset import checked_names, checked_sample_names
from standfast.errors import check, check_integer
from standfast.explainers import Explainer
from standfast.metrics import Metric
from standfast.metrics.base import Ladder
from standfast.model import Bound, Model
from standfast.records import set_fields
from standfast.segments import FEWEST
from standfast.tasks import Task

#: so many inputs of each data set are run before there are jobs, to find out whether a model works, and what it answers
MOST_ANSWERS = 256
_ALL = slice(None)


class SamplesPart(NamedTuple):
    """Samples that a model runs together.

    Attributes:
        model: for these samples.
        rows: which ones.
        width: where they end, if inputs `(N, W)` have different lengths.
    """

    model: Model
    rows: slice
    width: int | None = None

    def take(self, inputs: Tensor) -> Tensor:
        """These of all inputs `(N, ...)`."""
        if self.width is None:
            return inputs[self.rows]
        return inputs[self.rows, : self.width]


class Reader(ABC):
    """Makes models of rows of numbers from models of what these rows stand for. It can be pickled.

    Attributes:
        words: what it makes them from, for errors about their options.
        expected: which entries of a study file give such a model, for errors.
    """

    words: ClassVar[str]
    expected: ClassVar[str]

    @classmethod
    @abstractmethod
    def takes(cls, model: object) -> bool:
        """Whether something may be such a model."""

    @abstractmethod
    def make_model(self, model: Any, task: Task | None, device: str) -> Model:
        """The model of rows.

        Args:
            model: as the user has it.
            task: what it answers; None for its own task.
            device: where it runs, if it can be moved.

        Raises:
            ArgumentError: it is none that can be asked.
            ModelError: it fails.
        """


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs to evaluate on, in memory.

    Attributes:
        inputs: `(N, ...)`, floating point, on the CPU.
        targets: what to explain, int64 `(N,)`, such as classes, or vectors `(N, D)`; None for the model's predictions.
        bounds: the valid values of an input, `(lower, upper)`: numbers, or tensors that broadcast against a sample.
        about: plain values for the manifest and the report, such as the origin of the data and the names of classes.
        extras: further tensors `(N, ...)` by name, on the CPU, for metrics that ask for them.
        features, tokens, sample_names: names for figures and cards, as of `standfast.data.Dataset`; results do not
            depend on them.
        lengths: of each sample of inputs `(N, W)` that end at different places, such as texts: it is evaluated without
            what is behind its end.
        reader: makes models that get something else in the place of the rows, such as data frames or texts; None for
            models that get the rows themselves.
    """

    inputs: Tensor
    targets: Tensor | None = None
    bounds: tuple[Bound, Bound] = (0.0, 1.0)
    about: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    features: tuple[str, ...] | None = None
    tokens: tuple[tuple[str, ...], ...] | None = field(default=None, repr=False)
    lengths: tuple[int, ...] | None = field(default=None, repr=False)
    reader: Reader | None = field(default=None, repr=False)
    sample_names: tuple[str, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shape = tuple(self.inputs.shape)
        check(
            self.inputs.ndim >= 2 and self.inputs.numel() > 0,
            "inputs",
            "a non-empty batch (N, ...)",
            shape,
        )
        if self.targets is not None:
            # a decision or a detection is a vector
            whole = self.targets.shape == shape[:1] and self.targets.dtype == torch.int64
            vectors = self.targets.shape[:1] == shape[:1] and self.targets.ndim == 2
            got = f"{self.targets.dtype} of shape {tuple(self.targets.shape)}"
            check(
                whole or vectors,
                "targets",
                f"int64 classes, one for each of the {shape[0]} inputs",
                got,
            )
        for name, values in self.extras.items():
            fits = isinstance(values, Tensor) and values.shape[:1] == shape[:1]
            if isinstance(values, Tensor):
                got = str(tuple(values.shape))
            else:
                got = type(values).__name__
            check(fits, f"extras[{name!r}]", f"a tensor of shape ({shape[0]}, ...)", got)
        set_fields(self, **checked_names(self.features, self.tokens, self.inputs))
        set_fields(self, sample_names=checked_sample_names(self.sample_names, len(self)))

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, by their numbers; empty where they are not known."""
        return tuple(map(str, self.about.get("classes") or ()))

    def split(self, model: Model, rows: slice = _ALL) -> list[SamplesPart]:
        """The rows that a model runs together: all of `rows`, or one at a time if it has further inputs."""
        numbers = range(*rows.indices(len(self)))
        # further inputs belong to single samples
        if model.extras:
            return [self._take_one(model, row) for row in numbers]
        if self.lengths is None:
            return [SamplesPart(model, rows)]
        parts = []
        for length, group in groupby(numbers, key=self.lengths.__getitem__):
            numbers_of_length = list(group)
            # shorter ones are skipped by the metrics, which expect so many features
            width = max(length, FEWEST)
            parts.append(
                SamplesPart(
                    model.with_width(width),
                    slice(numbers_of_length[0], numbers_of_length[-1] + 1),
                    width,
                )
            )
        return parts

    def split_answered(self, model: Model, rows: slice = _ALL) -> list[SamplesPart]:
        """The parts of `split` to which the model answers; all of them where it answers none."""
        parts = self.split(model, rows)
        return [part for part in parts if not part.model.refusal] or parts

    def find_first(self, model: Model, count: int = 1) -> SamplesPart:
        """The first samples, so many at most; of a model that takes one at a time the first to which it answers."""
        if not model.extras:
            return self.split(model, slice(0, count))[0]
        parts = (self._take_one(model, row) for row in range(len(self)))
        answered = (part for part in parts if not part.model.refusal)
        return next(answered, None) or self._take_one(model, 0)

    def _take_one(self, model: Model, row: int) -> SamplesPart:
        """One sample alone, with the further inputs that its model has."""
        own_model = model.for_sample(self.extras, row)
        rows = slice(row, row + 1)
        if self.lengths is None:
            return SamplesPart(own_model, rows)
        width = max(self.lengths[row], FEWEST)
        return SamplesPart(own_model.with_width(width), rows, width)


class ModelSource(ABC):
    """How a model is made, wherever a job runs: picklable, and the same on every machine.

    Attributes:
        about: plain values for the manifest and the report.
    """

    about: Mapping[str, Any]

    @abstractmethod
    def model(self, samples: Samples, device: str) -> Model:
        """The model, ready for these samples (their bounds) on `device` (`"auto"`, `"cpu"`, `"cuda:1"`)."""

    def load(self, reader: type[Reader]) -> Any:
        """The model as the user has it, for a kind of inputs whose rows need it to be read.

        Raises:
            ArgumentError: it is of another kind.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LoadedModel(ModelSource):
    """A model that is in memory already, with bounds and a device of its own."""

    ready: Model
    about: Mapping[str, Any] = field(default_factory=dict)

    def model(self, samples: Samples, device: str) -> Model:
        """The model itself; a copy on `device` if that is a certain GPU, such as `"cuda:1"`.

        Raises:
            ArgumentError: it decides by a class that these samples do not have.
        """
        ready = self.ready.with_class_names(samples.class_names)
        # a device without a number leaves a model where it is
        if ":" not in device or torch.device(device) == ready.device:
            return ready
        return ready.to(device)


class Tried(NamedTuple):
    """A model in memory that has answered for a data set, so that it need not be checked and asked again.

    Attributes:
        model: the model.
        inputs: all of them, checked, on the device of the model; None where they would take its memory.
        outputs: for the first of the inputs that it runs together; None where it fails for some of them.
    """

    model: Model
    inputs: Tensor | None
    outputs: Tensor | None


def is_text(name: str) -> bool:
    r"""Whether a text can be stored: it has no half of a surrogate pair.

    >>> is_text("caf\u00e9"), is_text("\ud800")
    (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class Extra(NamedTuple):
    """A metric in a further default neighbourhood, which is evaluated where there is time for it.

    Attributes:
        twin: the label of the same metric in the first one.
        metric: with its neighbourhood.
    """

    twin: str
    metric: Metric


def _check_names(names: Collection[object], part: str) -> None:
    """Raise `ArgumentError` unless there are names, and all of them can be shown and stored."""
    check(len(names) > 0, part, "at least one", "none")
    for name in names:
        is_name = isinstance(name, str) and bool(name.strip())
        check(is_name, part, "names that are texts, and not empty", repr(name))
    for name in map(str, names):
        got = f"half of a surrogate pair: {[name]!a}"
        check(is_text(name), part, "names that can be stored as UTF-8", got)


@dataclass(frozen=True)
class Freedom:
    """What nobody has asked for in so many words, and what may therefore be chosen where the time is limited.

    Attributes:
        ladders: cheaper settings of metrics whose options are not given, by label.
        controls: the names of the controls that are there by default.
        sanity: whether the sanity checks are there by default.
        extras: what may be added, by label.
    """

    ladders: Mapping[str, Ladder] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    sanity: bool = False
    extras: Mapping[str, Extra] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Grid:
    """Everything that a study evaluates: data x models x explainers x metrics x repeats.

    Attributes:
        data, models, explainers, metrics: by the names that tables and figures use.
        pairs: the combinations of data and models that are evaluated, `(data, model)`; None for all.
        seed: of all random numbers.
        repeats: how often everything is done, each time with other random numbers.
        samples_per_job: samples between two writes, on which results do not depend; None for as many as fit in memory
            and take about 20 seconds.
        device: where models run.
        controls: names of explainers that only metrics with `controls` evaluate.
        sanity: the checks of every explainer that is no control, which run once and first; None for none.
        paths: folders that `module:function` names were imported from, for workers elsewhere.
        about: plain facts about its parts, for the manifest.
        free: what may be chosen where the time is limited.
        isolated: the names of explainers with code that is not ours, which get workers of their own if there are any.
        tried: models that have answered already, by `(data, model)`; other processes do not get them.
    """

    data: Mapping[str, Samples]
    models: Mapping[str, ModelSource]
    explainers: Mapping[str, Explainer]
    metrics: Mapping[str, Metric]
    pairs: Sequence[tuple[str, str]] | None = None
    seed: int = 0
    repeats: int = 1
    samples_per_job: int | None = None
    device: str = "auto"
    controls: tuple[str, ...] = ()
    sanity: Metric | None = None
    paths: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    free: Freedom = field(default=Freedom(), repr=False)
    isolated: tuple[str, ...] = ()
    tried: Mapping[tuple[str, str], Tried] = field(default_factory=dict, repr=False)

    # models in memory are not sent twice, and a worker asks its own
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "tried": {}}

    def __post_init__(self) -> None:
        for part in ("data", "models", "explainers", "metrics"):
            _check_names(getattr(self, part), part)
        check_integer(self.repeats, "repeats")
        check_integer(self.samples_per_job, "samples_per_job", also=(None,))
        # what torch's generators take
        fits = -(2**63) <= self.seed < 2**64
        expected = "a whole number that a generator of torch takes, -2^63 to 2^64 - 1"
        check(fits, "seed", expected, self.seed)
        for data, model in self.pairs or ():
            is_there = data in self.data and model in self.models
            check(is_there, "pairs", "names of data and models", (data, model))
        for name in self.controls:
            check(name in self.explainers, "controls", "names of explainers", name)
        if self.sanity is not None:
            name = self.sanity.name
            expected = "labels other than that of the sanity checks"
            check(name not in self.metrics, "metrics", expected, repr(name))

    @property
    def measured(self) -> dict[str, Metric]:
        """What jobs evaluate, by label: the sanity checks, which come first, and the metrics."""
        if self.sanity is not None:
            checks = {self.sanity.name: self.sanity}
        else:
            checks = {}
        return {**checks, **self.metrics}

    def explainers_of(self, metric: Metric) -> list[str]:
        """The names of the explainers that a metric evaluates; if it fits none of them all, and their jobs say why."""
        names = [
            name
            for name, explainer in self.explainers.items()
            if name not in self.controls or metric.takes_control(explainer)
        ]
        fitting = [name for name in names if not metric.describe_misfit(self.explainers[name])]
        return fitting or names

    def misfits(self) -> dict[str, dict[str, str]]:
        """For each metric that cannot evaluate some of the explainers: why, by the names of these explainers."""
        misfits: dict[str, dict[str, str]] = {}
        for label, metric in self.metrics.items():
            left_out = set(self.explainers) - set(self.explainers_of(metric))
            reasons: dict[str, str] = {}
            for name, explainer in self.explainers.items():
                reason = metric.describe_misfit(explainer)
                if name in left_out and reason:
                    reasons[name] = reason
            if reasons:
                misfits[label] = reasons
        return misfits

    def combinations(self) -> list[tuple[str, str]]:
        """The `(data, model)` pairs that are evaluated."""
        if self.pairs is not None:
            return list(self.pairs)
        return [(data, model) for data in self.data for model in self.models]
