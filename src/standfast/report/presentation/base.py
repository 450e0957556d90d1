"""`Presentation`: how the stored results of one metric are drawn and described, registered by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from standfast.errors import check
from standfast.registry import Registry
from standfast.results import MetricResults
from standfast.results.formatting import format_number
from standfast.tasks import CLASS_WORDS, TaskWords
from standfast.value_spec import Decimals


@dataclass(frozen=True)
class Detail:
    """A further number of an explainer, with a short name.

    Attributes:
        label: what it is.
        value: the number, or a count.
        total: of how many this is the count; None for a number.
        low, high: the ends of its interval, where it has one.
        decimals: of a number, as those of a `ValueSpec`.
    """

    label: str
    value: float
    total: int | None = None
    low: float | None = None
    high: float | None = None
    decimals: Decimals = 2

    @property
    def text(self) -> str:
        """Name and number.

        >>> Detail("found", 3, 9).text, Detail("slope", 0.5, low=0.1, high=2.0).text
        ('found: 3 of 9', 'slope: 0.50 [0.10, 2.00]')
        """
        if self.total is not None:
            return f"{self.label}: {self.value:.0f} of {self.total}"
        text = f"{self.label}: {format_number(self.value, self.decimals)}"
        if self.low is None or self.high is None:
            return text
        low = format_number(self.low, self.decimals)
        high = format_number(self.high, self.decimals)
        return f"{text} [{low}, {high}]"


@dataclass(frozen=True)
class Contradiction:
    """Numbers that contradict each other, which a macro of the metric's template puts into words.

    Attributes:
        macro: the name of the macro.
        facts: its argument.
    """

    macro: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Presentation:
    """How the stored results of one metric are drawn and described. The metric itself says how they are read.

    A presentation has no results of its own and computes none. Its methods get stored frames and arrays, and the stored
    options of the metric. This class shows the values, and is used for every metric without a presentation of its
    own. A subclass overrides the methods that it needs and is registered under the name of its metric:
    `@presentations.register("worst_case")` in standfast, an entry point of the group `standfast.presentations` in
    another package.

    Attributes:
        metric: the registered name of the metric.
        task: what the report calls scores and answers.
    """

    metric: str
    task: TaskWords = CLASS_WORDS

    #: the Jinja template with the sentences of the metric: its text, or the path of its file; empty for that of
    #: standfast with the metric's name. `standfast.report.words` describes what it may contain
    words: ClassVar[str | Path] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        moved = {"value_spec", "make_comparable"} & set(vars(cls))
        method = f"{cls.__qualname__}.{min(moved, default='')}"
        check(
            not moved,
            method,
            "no such method: the metric says how its values are read (Metric.value_spec)",
            "one",
        )

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """Numbers and names of one data set and model that the metric's template needs; none by default.

        Values under `"rules"` have dotted lines in the distribution over samples.
        """
        return {}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Further numbers of one explainer, which tables show below its value; `frame` has its evaluated samples."""
        return []

    def example(self, view: MetricResults) -> Any:
        """The most telling sample, as a row of a gallery: input, its map, the changed input, its map now, a caption.

        None by default.
        """
        return None

    def figures(self, view: MetricResults) -> Sequence[Any] | None:
        """Figures and tables of one data set and model; None, as by default, for the distribution over samples.

        Those that are None, and galleries without pictures, are left out.
        """
        return None

    def contradictions(
        self, view: MetricResults, others: Sequence[MetricResults]
    ) -> list[Contradiction]:
        """Where numbers contradict each other; nowhere by default.

        Args:
            view: of this metric.
            others: the views of all other configured metrics, of the same data and model.
        """
        return []


presentations: Registry[type[Presentation]] = Registry(
    "presentation",
    "standfast.presentations",
    lambda kind: isinstance(kind, type) and issubclass(kind, Presentation),
)


def presentation_of(metric: str, task: TaskWords = CLASS_WORDS) -> Presentation:
    """The presentation that is registered for a metric, for its package, or else the plain `Presentation`.

    Args:
        metric: the registered name of the metric, such as `"worst_case"` or `"quantus:Sparseness"`.
        task: what the report calls scores and answers.

    >>> type(presentation_of("worst_case")).__name__, type(presentation_of("of_another_computer")).__name__
    ('WorstCasePresentation', 'Presentation')
    """
    for name in (metric, metric.partition(":")[0]):
        if name in presentations:
            return presentations[name](metric, task)
    return Presentation(metric, task)
