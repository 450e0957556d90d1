"""What can be named: the kinds of things, the names of each kind, and a line about each name.

Registries are imported when they are asked for, because most of them import torch.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from standfast.errors import UnknownNameError
from standfast.registry import Registry

#: the sections of a docstring, after which no more is said of what a thing is
_SECTIONS = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$|^>>> ", re.MULTILINE)


def _no_needs(name: str, entry: Any) -> str:
    return ""


@dataclass(frozen=True)
class Kind:
    """One kind of things that have names.

    Attributes:
        one: what a single thing is called.
        about: a line for lists of kinds.
        load: imports the registry of the names.
        describe: the text about an entry, from its name and itself; by default its docstring.
        needs: what an entry needs, in a few words; empty if nothing.
        elsewhere: where further names come from.
    """

    one: str
    about: str
    load: Callable[[], Registry[Any]]
    describe: Callable[[str, Any], str] = lambda name, entry: docstring_of(entry)
    needs: Callable[[str, Any], str] = _no_needs
    elsewhere: str = ""


def docstring_of(entry: Any) -> str:
    """The docstring of a class, a function, or a `partial` of one, without indentation."""
    return inspect.getdoc(getattr(entry, "func", entry)) or ""


def first_part(text: str) -> str:
    """The part of a docstring before its sections and examples.

    >>> first_part("A thing. With a rule.\\n\\nArgs:\\n    a: b.")
    'A thing. With a rule.'
    """
    found = _SECTIONS.search(text)
    return (text[: found.start()] if found else text).strip()


def first_sentence(text: str) -> str:
    """The first sentence of a docstring in one line, without backticks.

    >>> first_sentence("The gradient of the `target`, e.g. a logit.\\nMore. And more.")
    'The gradient of the target, e.g. a logit.'
    """
    paragraph = " ".join(first_part(text).partition("\n\n")[0].split())
    found = re.search(r"(?<!e\.g)(?<!i\.e)(?<!al)(?<!Fig)(?<!Eq)\.(?= [A-Z`])", paragraph)
    return (paragraph[: found.end()] if found else paragraph).replace("`", "")


def _metrics() -> Registry[Any]:
    from standfast import metrics  # the package, which registers them

    return metrics.base.metrics


def _explainers() -> Registry[Any]:
    from standfast.explainers import explainers

    return explainers


def _similarities() -> Registry[Any]:
    from standfast.similarity import similarities

    return similarities


def _neighbourhoods() -> Registry[Any]:
    from standfast.neighbourhoods import neighbourhoods

    return neighbourhoods


def _searches() -> Registry[Any]:
    from standfast.algorithms import searches

    return searches


def _attacks() -> Registry[Any]:
    from standfast.algorithms import attacks

    return attacks


def _attribution_attacks() -> Registry[Any]:
    from standfast.metrics.lens.attribution_objectives import attribution_attacks

    return attribution_attacks


def _datasets() -> Registry[Any]:
    from standfast.data import datasets

    return datasets


def _models() -> Registry[Any]:
    from standfast.zoo import models

    return models


def _architectures() -> Registry[Any]:
    from standfast.zoo.networks.names import architectures

    return architectures


def _schemes() -> Registry[Any]:
    from standfast.training.schemes import schemes

    return schemes


def _describe_model(name: str, entry: Any) -> str:
    from standfast.zoo import card

    found = card(name)
    data, scheme = (str(found[key]).partition(",")[0].partition(":")[0] for key in ("data", "scheme"))
    return f"{found['architecture']} trained on {data}, scheme {scheme}, test accuracy {found['test_accuracy']:.1%}."


#: of a neighbourhood, in words
DEFAULT_RADIUS = "one tenth of the range"


def _needs_of_class(name: str, entry: Any) -> str:
    """The options that must be given, and what the class says of the model and the data."""
    options = dataclasses.fields(entry) if dataclasses.is_dataclass(entry) else ()
    required = [f.name for f in options if f.init and f.default is f.default_factory is dataclasses.MISSING]
    given = f"option{'s' if len(required) > 1 else ''} {', '.join(required)}" if required else ""
    if "neighbourhood" in required:
        given += f" (in evaluate by default {DEFAULT_RADIUS})"
    needs = getattr(entry, "needs", "")
    if isinstance(needs, tuple):  # a training scheme's: further values of each sample
        needs = ", ".join(f"the data set's extra {name}" for name in needs)
    return "; ".join(filter(None, (given, needs)))


def _needs_of_similarity(name: str, entry: Any) -> str:
    return "positions: maps of images or series" if hasattr(entry, "channels") else ""


def _needs_of_data(name: str, entry: Any) -> str:
    from standfast.data import what_it_needs

    return what_it_needs(name)


#: by the word of `standfast list`
KINDS: Mapping[str, Kind] = {
    "metrics": Kind(
        "metric",
        "what is measured",
        _metrics,
        needs=_needs_of_class,
        elsewhere="captum:NAME and quantus:NAME (extra peers), as captum:infidelity",
    ),
    "explainers": Kind(
        "explainer",
        "what makes the maps",
        _explainers,
        needs=_needs_of_class,
        elsewhere="captum:, shap:, lime:, zennit:, grad_cam: and quantus:NAME (extra explainers), as captum:Saliency",
    ),
    "similarities": Kind("similarity", "how alike two maps are", _similarities, needs=_needs_of_similarity),
    "neighbourhoods": Kind("neighbourhood", "where perturbed inputs may lie", _neighbourhoods, needs=_needs_of_class),
    "searches": Kind("search", "how the worst input is searched for", _searches, needs=_needs_of_class),
    "attacks": Kind("attack", "how c-Eval searches for the least distortion", _attacks, needs=_needs_of_class),
    "attribution_attacks": Kind(
        "attribution attack", "what attribution_attack does to a map", _attribution_attacks, needs=_needs_of_class
    ),
    "datasets": Kind(
        "data set",
        "data that come with standfast or can be fetched",
        _datasets,
        needs=_needs_of_data,
        elsewhere="ucr:NAME:test, huggingface:OWNER/NAME:test and torchvision:NAME:test (extra data)",
    ),
    "models": Kind(
        "model",
        "trained models that come with standfast",
        _models,
        describe=_describe_model,
        elsewhere="timm:NAME, torchvision:NAME and transformers:NAME (extra hub)",
    ),
    "architectures": Kind("architecture", "networks that standfast train can train", _architectures),
    "schemes": Kind("training scheme", "how standfast train trains", _schemes, needs=_needs_of_class),
}


def get_kind(word: str) -> Kind:
    """The kind that `standfast list` calls `word`.

    Raises:
        UnknownNameError: there is none.
    """
    if word not in KINDS:
        raise UnknownNameError("kind", word, KINDS)
    return KINDS[word]


@dataclass(frozen=True)
class Line:
    """A name in a list."""

    name: str
    about: str
    needs: str = ""

    def format(self, width: int) -> str:
        """One line, the name in a column of `width` characters."""
        return f"{self.name:{width}}  {self.about}" + (f"  [needs {self.needs}]" if self.needs else "")


def describe_names(kind: Kind) -> list[Line]:
    """A line for each name of a kind. Plug-ins are not imported for it."""
    registry, lines = kind.load(), []
    for name in registry.names():
        if name in registry.plugins:
            lines.append(Line(name, f"From the plug-in {registry.plugins[name].value}."))
        else:
            entry = registry[name]
            lines.append(Line(name, first_sentence(kind.describe(name, entry)), kind.needs(name, entry)))
    return lines
