"""The sentences of a metric: macros of one Jinja template for each metric, filled with options and numbers.

The template of one of our metrics is `templates/metrics/` and its name. A presentation of another package gives its own
template by `Presentation.words`. A macro that a template does not define is that of
`templates/metrics/default.html`, where the macros and their arguments are described.

Names are escaped while a template is filled. Sentences are then returned as plain text, for the page, which escapes
them again, and for the terminal.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.report.wording import describe_reach, describe_transformation
from standfast.results import MetricResults, Presentation
from standfast.results.formatting import format_count, format_number, format_odds, join_names

if TYPE_CHECKING:
    import jinja2
    import markupsafe


class Options(dict[str, Any]):
    """Stored options; one that is not there is None."""

    def __missing__(self, key: str) -> None:
        return None


class MetricWords:
    """The sentences of one metric, by its presentation."""

    def __init__(self, presentation: Presentation) -> None:
        import jinja2

        default, own = _environment().get_template("metrics/default.html"), presentation.words
        if isinstance(own, Path):
            template = _compile(own.read_text(encoding="utf-8"))
        elif own:
            template = _compile(own)
        else:
            name = f"metrics/{presentation.metric}.html"
            try:
                template = _environment().get_template(name)
            except jinja2.TemplateNotFound:
                template = default
        self._modules = (template.module, default.module)
        self.presentation = presentation

    def _find(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))

    def say(self, macro: str, *values: Any) -> str:
        """A macro with these values as plain text."""
        import markupsafe

        return markupsafe.Markup(self._find(macro)(*values)).striptags()

    def question(self, options: Any) -> str:
        """What the metric asks, as a short heading; by default what it measures."""
        if old := self._outdated("question"):
            return str(old(options))
        return self.say("question", Options(options), self.presentation.value_spec(options))

    def verdict(self, facts: dict[str, Any]) -> str:
        """The answer of one data set and model, with the best and the worst explainer; empty without values.

        It describes these samples. Whether a difference is demonstrated is for a test to say, not for the verdict.
        """
        if old := self._outdated("verdict"):
            return str(old(facts["results"]))
        return self.say("verdict", facts) if facts["ranked"] else ""

    def caution(self, facts: dict[str, Any]) -> str:
        """Why the explainers cannot be compared as they are; empty where they can."""
        if old := self._outdated("comparability_warning"):
            return str(old(facts["results"]))
        return self.say("caution", facts)

    def remark(self, facts: dict[str, Any]) -> str:
        """What the verdict does not say; often empty."""
        if old := self._outdated("reservations"):
            return " ".join(old(facts["results"]))
        return self.say("remark", facts)

    def guide(self, options: Any) -> markupsafe.Markup:
        """Terms and their meanings as HTML, the elements of a list of definitions."""
        import markupsafe

        if old := self._outdated("guide"):
            return _list_definitions(old(options))
        return markupsafe.Markup(self._find("guide")(Options(options)))

    @property
    def terms(self) -> dict[str, str]:
        """MetricWords, each with a meaning of a few words, which is shown where it first appears."""
        if old := self._outdated("terms"):
            return dict(old({}))
        return dict(self._find("terms"))

    def _outdated(self, name: str) -> Any:
        """A method with words in it, of a presentation that has no template yet."""
        own = getattr(type(self.presentation), name, None)
        return None if own is getattr(Presentation, name, None) else getattr(self.presentation, name)


def _list_definitions(entries: dict[str, str]) -> markupsafe.Markup:
    import markupsafe

    line = markupsafe.Markup("<div><dt>{}</dt><dd>{}</dd></div>")
    return markupsafe.Markup("").join(line.format(mark_up(term), mark_up(text)) for term, text in entries.items())


def mark_up(text: str) -> str:
    """Text as HTML, with `code` and *emphasis* as elements and everything else escaped.

    >>> str(mark_up("`a<b` is *not* less"))
    '<code>a&lt;b</code> is <em>not</em> less'
    """
    import markupsafe

    safe = str(markupsafe.escape(text))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return markupsafe.Markup(re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", safe))


@cache
def words_of(presentation: Presentation) -> MetricWords:
    """The sentences of a metric."""
    return MetricWords(presentation)


def collect_facts(presentation: Presentation, results: MetricResults) -> dict[str, Any]:
    """What the sentences of one data set and model are made of; `metrics/default.html` describes the entries."""
    headline, spec = presentation.headline(results), results.spec
    valid = spec.select_valid(results.frame)
    return {
        "results": results,
        "options": Options(results.options),
        "spec": spec,
        "ranked": results.rank() if headline is None else headline,
        "medians": results.rank(),
        "own": headline is not None,
        "reference": results.random_reference(),
        "several": any(len(spec.select_valid(results.evaluated(name))) > 1 for name in results.present),
        "bounds": int(spec.bounds(valid).sum()),
        "values": len(valid),
        **presentation.facts(results),
    }


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("standfast.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["names"] = join_names
    environment.filters["number"] = format_number
    environment.filters["odds"] = format_odds
    environment.filters["count"] = format_count
    environment.filters["transformation"] = describe_transformation
    environment.filters["reach"] = describe_reach
    return environment


@cache
def _compile(text: str) -> jinja2.Template:
    return _environment().from_string(text)
