"""Kinds of inputs: tensors, data frames, texts. Each becomes rows of numbers, and so nothing else has to know them.

A kind of inputs is a subclass of `Inputs`. It says what data of its kind look like (`takes`, `given`), makes samples
and models of them (`read`), and how explainers, metrics and neighbourhoods have to be changed to fit. `evaluate` and
study files both go through it. Another package adds a kind with an entry point in the group `standfast.inputs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from standfast.errors import ArgumentError, StandfastError, check, warn_user
from standfast.explainers import Edges, Explainer, InputCopy, RandomExplainer, RandomisedExplainer
from standfast.explainers import get as get_explainer
from standfast.metrics import Metric
from standfast.model import Model, module_name
from standfast.neighbourhoods import Neighbourhood, check_neighbourhood
from standfast.question.grid import LoadedModel, ModelSource, Samples
from standfast.registry import Registry
from standfast.tensors import describe_no_tensor
from standfast.texts import find_text_box


class Places:
    """Where the parts of a question were written, for errors about them. In Python nowhere: errors are raised."""

    def at(self, section: str, name: str = "", key: str = "") -> AbstractContextManager[None]:
        """Errors inside are about one part.

        Args:
            section: `"data"`, `"models"`, `"explainers"`, `"metrics"` or `"controls"`.
            name: of the part; empty for all of the section.
            key: of an option of the part.
        """
        return nullcontext()

    def raise_errors(self) -> None:
        """Raise the errors that were collected, so that all are told at once."""


NOWHERE = Places()


@dataclass(frozen=True)
class Given:
    """The data and the models of a question, as they were given.

    Attributes:
        data: each of the type that its kind of inputs takes (`Inputs.given`).
        models: of any type in Python; in a study file sources, which say what is made where a job runs.
        pairs: which models meet which data, `(data, model)`; None for all.
        changes: neighbourhoods, and metrics that have one.
        reference: training rows; None where there are none.
        places: for errors.
    """

    data: Mapping[str, Any]
    models: Mapping[str, Any]
    pairs: Sequence[tuple[str, str]] | None = None
    changes: Sequence[Any] = ()
    reference: Any = None
    places: Places = NOWHERE

    def list_models_of(self, data_name: str) -> list[str]:
        """The names of the models that meet a data set."""
        if self.pairs is None:
            return list(self.models)
        return [model for data, model in self.pairs if data == data_name and model in self.models]


@dataclass(eq=False)
class Inputs(ABC):
    """All data sets of a question, which are of one kind, as samples; with the models that take them.

    Attributes:
        samples: by the name of the data.
        models: by name; an empty name is that of a model that has none of its own yet.
        about: plain facts for the report, such as what was assumed.
    """

    samples: dict[str, Samples]
    models: dict[str, ModelSource]
    about: dict[str, Any] = field(default_factory=dict)

    #: the name of the kind
    name: ClassVar[str]
    #: several data sets of this kind, in a word
    words: ClassVar[str]
    #: what a user hands over in Python, in a few words for errors; empty for `words`
    forms: ClassVar[str] = ""
    #: the type of data of this kind, as a study file and `give` have them
    given: ClassVar[type]

    @classmethod
    @abstractmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        """Whether inputs and models that a user hands over in Python are of this kind."""

    @classmethod
    def title(cls, inputs: Any) -> str:
        """What inputs are called that a user hands over without a name."""
        return "inputs"

    @classmethod
    @abstractmethod
    def give(cls, inputs: Any) -> Any:
        """Inputs that a user hands over, as `given`.

        Raises:
            ArgumentError: they cannot be used.
        """

    @classmethod
    @abstractmethod
    def read(cls, given: Given) -> Inputs:
        """Samples and models of data and models.

        Raises:
            ArgumentError: they do not fit each other.
            ModelError: a model fails.
        """

    def name_models(self, name: str) -> None:
        """Give a model that has no name this one, or else that of its module."""
        sources = self.models.items()
        self.models = {
            # a model without a name has an empty one
            name_of_source or name or _name_module(source): source
            for name_of_source, source in sources
        }

    def fit_explainer(self, explainer: Any) -> Explainer:
        """An explainer, its name or a function, as an explainer of these inputs.

        Raises:
            ArgumentError: there is no such explainer.
        """
        return get_explainer(explainer)

    def check_explainers(self, explainers: Iterable[Explainer]) -> None:  # noqa: B027
        """Raise `ArgumentError` for explainers that do not fit these inputs."""

    def fit_neighbourhood(self, neighbourhood: Neighbourhood) -> Neighbourhood:
        """A neighbourhood that knows what it needs of the inputs.

        Raises:
            ArgumentError: it is one of other inputs.
        """
        check_neighbourhood(neighbourhood)
        return neighbourhood

    def fit_metric(self, label: str, metric: Metric) -> dict[str, Metric]:
        """A metric that knows what it needs of the inputs; by label, as it may become several.

        Raises:
            ArgumentError: it does not fit these inputs.
        """
        return {label: metric}

    def choose_label(self, text: str, metric: Metric) -> str:
        """The label of a metric that was given by name, in a list."""
        return metric.own_label

    def check_model(self, model: Model, metrics: Iterable[Metric]) -> None:  # noqa: B027
        """Raise `ModelError` if a model cannot answer for what metrics make of the inputs."""

    @abstractmethod
    def default_neighbourhood(self) -> tuple[Neighbourhood, str]:
        """What metrics get that are given by name and need a neighbourhood; and what the report says of it.

        Raises:
            ArgumentError: nothing says how much inputs vary.
        """

    def default_neighbourhoods(self) -> list[tuple[Neighbourhood, str]]:
        """The default neighbourhood, and behind it those that are evaluated beside it where there is time for them."""
        return [self.default_neighbourhood()]

    def default_options(self, metric: type[Metric]) -> dict[str, Any]:
        """Options of a metric in the default neighbourhood, where they are not given either."""
        return {}

    def default_controls(
        self, explainers: Mapping[str, Explainer], models: Sequence[Model]
    ) -> dict[str, Explainer]:
        """The controls that fit all models and all inputs; none beside explainers that are nothing but controls.

        Args:
            explainers: by name. The first that is no control is also explained with shuffled weights.
            models: which are explained.
        """
        no_controls = [name for name, explainer in explainers.items() if not explainer.control]
        if not no_controls:
            return {}
        first_name = no_controls[0]
        controls: dict[str, Explainer] = {RandomExplainer().label: RandomExplainer()}
        # a copy of codes is no map, and words have no quantities
        if self.holds_quantities and all(find_text_box(model) is None for model in models):
            controls[InputCopy().label] = InputCopy()
        # columns of a table have no neighbours
        if all(samples.inputs.ndim > 2 for samples in self.samples.values()):
            controls[Edges().label] = Edges()
        # one model without weights would fail with this control
        have_weights = [next(model.module.parameters(), None) is not None for model in models]
        if all(have_weights):
            shuffled = RandomisedExplainer(explainers[first_name])
            controls[f"{RandomisedExplainer.name}:{first_name}"] = shuffled
        return controls

    @property
    def holds_quantities(self) -> bool:
        """Whether the numbers of an input say how much of something there is, so that a copy of them is a map."""
        return True


def _name_module(source: ModelSource) -> str:
    if isinstance(source, LoadedModel):
        return module_name(source.ready.module)
    return "model"


kinds: Registry[type[Inputs]] = Registry(
    "kind of inputs",
    "standfast.inputs",
    lambda kind: isinstance(kind, type) and issubclass(kind, Inputs),
    named=True,
)


def find_kind(inputs: object, models: Sequence[object]) -> type[Inputs]:
    """The kind of what a user hands over in Python; that of tensors where no other one takes it.

    Raises:
        ArgumentError: no kind takes it.
    """
    # last, because anything that is a tensor is taken there
    tensors = kinds["tensors"]
    others = list_other_kinds(tensors.name)
    for kind in [*others, tensors]:
        if kind.takes(inputs, models):
            return kind
    expected = join_forms([tensors, *others])
    raise ArgumentError("inputs", expected, _describe_no_inputs(inputs, models))


def _describe_no_inputs(inputs: object, models: Sequence[object]) -> str:
    """What a user handed over in the place of inputs, and what to do about it."""
    for model in models:
        is_estimator = hasattr(model, "predict") and not isinstance(model, Model)
        if is_estimator:
            name = type(model).__name__
            return f"{type(inputs).__name__} beside {name}, whose data are a data frame"
    return describe_no_tensor(inputs)


def join_forms(listed: Iterable[type[Inputs]]) -> str:
    """What a user may hand over of several kinds.

    >>> join_forms([kinds["tensors"]])
    'a torch.Tensor or a Dataset'
    """
    return "; or ".join(kind.forms or kind.words for kind in listed)


def list_other_kinds(name: str) -> list[type[Inputs]]:
    """The kinds beside the one of a name: first those of plug-ins that can be loaded, then those of this package."""
    # plug-ins first, as they know their own types better
    other_names = []
    for other in [*kinds.plugins, *kinds.names()]:
        if other != name:
            other_names.append(other)
    return _load_kinds(other_names)


def find_given_kind(data: object) -> type[Inputs] | None:
    """The kind whose `given` data are; None for anything else."""
    return next((kind for kind in _load_kinds(kinds.names()) if isinstance(data, kind.given)), None)


def _load_kinds(names: Iterable[str]) -> list[type[Inputs]]:
    """The kinds of these names, without plug-ins that cannot be loaded: they must not stop what is of another kind."""
    loaded: list[type[Inputs]] = []
    # a plug-in is both in the list of plug-ins and in that of names
    for name in dict.fromkeys(names):
        try:
            loaded.append(kinds[name])
        except StandfastError as error:
            warn_user(f"{error}. Inputs of this kind are not recognised")
    return loaded


def read_given(given: Given) -> Inputs:
    """Samples and models of data that are as their kind takes them.

    Raises:
        ArgumentError: data of several kinds, or what does not fit.
    """
    found_kinds = {name: find_given_kind(data) for name, data in given.data.items()}
    # tensors are what is left when nothing has another kind, also where no data could be loaded
    others = []
    for kind in found_kinds.values():
        if kind not in (None, kinds["tensors"]):
            others.append(kind)
    first = others[0] if others else kinds["tensors"]
    kept = dict(given.data)
    for name, kind in found_kinds.items():
        with given.places.at("data", name):
            if kind is not first:
                # errors are collected where they have places, so the rest is read without it
                del kept[name]
            expected = f"{first.words} alone, or none"
            check(kind is first, "data", expected, "both; make a study of each")
    return first.read(
        Given(kept, given.models, given.pairs, given.changes, given.reference, given.places)
    )
