"""`Metric`: one published evaluation. Frozen configuration; then data in the call."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeVar

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.explainers import get as get_explainer
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.neighbourhood import Neighbourhood
from holdfast.registry import Registry
from holdfast.segments import LabelMap, check_one_for_all
from holdfast.similarity import Similarity

M = TypeVar("M", bound="Metric")

#: the role of an option that leaves the headline as it is
NO_EFFECT: Final = "no effect"


@dataclass(frozen=True)
class PartOf:
    """The role of an option that has an effect only with some values of another option, and so belongs to it.

    Attributes:
        option: the other option.
        only: the names with which this one has an effect; or all, except
        unless: the names with which it has none.
    """

    option: str
    only: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


#: what an option means where configurations of a metric are compared
Role = PartOf | Literal["no effect"]


@dataclass(frozen=True)
class Metric(ABC):
    """`metric(classifier, explainer, inputs, targets=None, *, generator=None) -> Result`.

    Every sample draws from a random stream of its own, keyed by the generator's seed and the sample's content: a
    result does not depend on the batch size, the order of the samples or who else is in the batch. (Two equal
    samples get equal results.) Without a generator the seed is always the same.
    """

    name: ClassVar[str]
    #: whether an explainer with more or with less of `Result.value` is the better one
    direction: ClassVar[Literal["higher", "lower"]]
    #: the column with the same numbers as `value`, where the result has them under a name that says more
    headline: ClassVar[str] = "value"
    #: the key of the publication, and its BibTeX entry
    citation: ClassVar[str] = ""
    bibtex: ClassVar[str] = ""
    #: for a report that compares configurations: the options that do not always have an effect on the headline
    roles: ClassVar[Mapping[str, Role]] = {}

    @abstractmethod
    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> Result:
        """The evaluation itself, on checked arguments and inside the classifier's session."""

    def __call__(
        self,
        classifier: Classifier,
        explainer: Explainer | str,
        inputs: Tensor,
        targets: Tensor | int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Result:
        """Evaluate `explainer` on `inputs` `(N, ...)`.

        Args:
            classifier: the model, its bounds and device.
            explainer: an explainer or the name of one.
            inputs: the seeds, within the bounds.
            targets: classes `(N,)` to explain, or None for the model's own predictions. A seed that the model does
                not put into its target class is skipped, with status `"misclassified"`.
            generator: the seed is drawn from it.

        Raises:
            ArgumentError: for arguments that do not fit the classifier.
            ModelError: the module returns no logits.
        """
        check(isinstance(classifier, Classifier), "classifier", "a holdfast Classifier", type(classifier).__name__)
        explainer = get_explainer(explainer)
        with torch.inference_mode(False):
            inputs = classifier.check_inputs(inputs)
            check_one_for_all(explainer, inputs)
            checked = None if targets is None else classifier.check_targets(targets, inputs)
            with classifier.session():
                return self.evaluate(classifier, explainer, inputs, checked, generator)

    @classmethod
    @abstractmethod
    def example(cls) -> Metric:
        """A configuration that takes seconds, for trying it out and for the tests that every metric must pass."""

    def for_samples(self, inputs: Tensor, rows: slice) -> Metric:
        """What a study evaluates the samples `rows` of `inputs` `(N, ...)` with, where it cuts a data set into jobs.

        The metric itself, unless it holds something for each sample, of which these rows are then taken.

        Raises:
            ArgumentError: what it holds is for another number of samples.
        """
        return self

    def for_data(self, extras: Mapping[str, Tensor]) -> Metric:
        """What a study evaluates a data set with, of which `extras` `(N, ...)` are known beside its inputs.

        The metric itself, unless an option names one of them (`Dataset.extras`), which then takes the name's place.

        Raises:
            ArgumentError: there is none of that name, or it is not what the option wants.
        """
        return self

    @property
    def own_label(self) -> str:
        """What it is called where nobody gave it a name: its own, with its event if it has one."""
        event = getattr(self, "event", None)
        return self.name if event is None else f"{self.name}: {event}"

    def expected_evaluations(self) -> int:
        """About how many inputs this predicts and explains for each sample, for progress bars and estimates."""
        return 1

    def options(self) -> dict[str, Any]:
        """The configuration as plain values, for reports and files."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def has_effect(cls, option: str, options: Mapping[str, Any]) -> bool:
        """Whether the headline depends on an option, given all of them as `options()` has them."""
        role = cls.roles.get(option)
        if not isinstance(role, PartOf):
            return role != NO_EFFECT
        owner = options.get(role.option)
        name = str(owner.get("name") if isinstance(owner, Mapping) else owner).partition(":")[0]
        return name in role.only if role.only else name not in role.unless


def of_samples(metric: M, inputs: Tensor, rows: slice) -> M:
    """A metric whose option `segments` may be label maps of each sample, with those of some: `Metric.for_samples`."""
    segments = metric.segments  # type: ignore[attr-defined]
    if not isinstance(segments, LabelMap):
        return metric
    own = segments.of_samples(inputs, rows)
    return metric if own is segments else dataclasses.replace(metric, segments=own)  # type: ignore[call-arg]


metrics: Registry[type[Metric]] = Registry(
    "metric",
    "holdfast.metrics",
    lambda kind: isinstance(kind, type) and issubclass(kind, Metric),
    packages=dict.fromkeys(("captum", "quantus"), "holdfast.integrations.peers:peer_class"),
)


def plain(value: object) -> Any:
    """A configuration value as something that JSON can hold; a function by its name."""
    if isinstance(value, Similarity):
        return value.name
    if isinstance(value, Neighbourhood):
        return {"norm": type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": getattr(value, "name", type(value).__name__), **fields}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if callable(value):
        kind = value if hasattr(value, "__qualname__") else type(value)
        return f"{kind.__module__}:{kind.__qualname__}"
    return value if isinstance(value, int | float | str | bool | None) else repr(value)
