"""The sentences of a metric: macros of one Jinja template for each metric, filled with options and numbers.

The template of one of our metrics is `templates/metrics/` and its name. A presentation of another package gives its own
template by `Presentation.words`. A macro that a template does not define is that of
`templates/metrics/default.html`, where the macros and their arguments are described.

Names are escaped while a template is filled. Sentences are then returned as plain text, for the page, which escapes
them again, and for the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.errors import StandfastError
from standfast.report.wording import describe_transformation
from standfast.results import SummaryRow, ValueSpec
from standfast.results.formatting import (
    format_count,
    format_difference,
    format_estimate,
    format_number,
    format_rough,
    format_rough_duration,
    join_names,
    shorten_error,
)

if TYPE_CHECKING:
    import jinja2
    import markupsafe

    from standfast.report.presentation.base import Presentation


class Options(dict[str, Any]):
    """Stored options; one that is not there is None."""

    def __missing__(self, key: str) -> None:
        return None


class MetricWords:
    """The sentences of one metric, by its presentation."""

    def __init__(self, presentation: Presentation) -> None:
        environment = _environment()
        default = environment.get_template("metrics/default.html")
        template = _find_template(environment, presentation) or default
        arguments = {"task": presentation.task}
        self._modules = (template.make_module(arguments), default.make_module(arguments))
        self.presentation = presentation

    def _find(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise StandfastError(f"the template of {self.presentation.metric} has no macro {name!r}")

    def say(self, macro: str, *values: Any) -> str:
        """A macro with these values as plain text."""
        import markupsafe

        return markupsafe.Markup(self._find(macro)(*values)).striptags()

    def question(self, options: Any, spec: ValueSpec) -> str:
        """What the metric asks, as a short heading; by default what it measures."""
        return self.say("question", Options(options), spec)

    def verdict(self, facts: dict[str, Any]) -> str:
        """The answer of one data set and model, with the best and the worst explainer; empty without values.

        It describes these samples. Whether a difference is demonstrated is for a test to say, not for the verdict.
        """
        if facts["ranked"]:
            return self.say("verdict", facts)
        return ""

    def caution(self, facts: dict[str, Any]) -> str:
        """Why the explainers cannot be compared as they are; empty where they can."""
        return self.say("caution", facts)

    def remark(self, facts: dict[str, Any]) -> str:
        """What the verdict does not say; often empty."""
        return self.say("remark", facts)

    def guide(self, options: Any) -> markupsafe.Markup:
        """Terms and their meanings as HTML, the elements of a list of definitions."""
        import markupsafe

        return markupsafe.Markup(self._find("guide")(Options(options)))


def _find_template(
    environment: jinja2.Environment, presentation: Presentation
) -> jinja2.Template | None:
    """The template that a presentation brings, or ours for its metric; None without either."""
    words = presentation.words
    if isinstance(words, Path):
        return environment.from_string(words.read_text(encoding="utf-8"))
    if words:
        return environment.from_string(words)
    name = f"metrics/{presentation.metric}.html"
    if name not in environment.list_templates():
        return None
    return environment.get_template(name)


@cache
def words_of(presentation: Presentation) -> MetricWords:
    """The sentences of a metric."""
    return MetricWords(presentation)


def format_value(row: SummaryRow) -> str:
    """The estimate of a row."""
    return format_estimate(row.estimate, row.spec.decimals)


def name_classes(numbers: Sequence[int], names: Sequence[str]) -> list[str]:
    """The names of classes, or "class 3" where they have none."""
    answers = []
    for number in numbers:
        answers.append(names[number] if number < len(names) else f"class {number}")
    return answers


def make_environment(
    autoescape: bool = True, package: str = "standfast.report"
) -> jinja2.Environment:
    """Jinja with the folder `templates` of a package and the filters that put numbers and names into sentences."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        names=join_names,
        number=format_number,
        difference=format_difference,
        count=format_count,
        rough=format_rough,
        duration=format_rough_duration,
        short=shorten_error,
        transformation=describe_transformation,
        class_names=name_classes,
    )
    return environment


_environment = cache(make_environment)
