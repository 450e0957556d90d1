"""What can be named: the kinds of things, the names of each kind, and a line about each name.

Registries are imported when they are asked for, because most of them import torch.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standfast.registry import Registry

#: the sections of a docstring, after which no more is said of what a thing is
_SECTIONS = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$|^>>> ", re.MULTILINE)
#: of a neighbourhood, in words
DEFAULT_REACH = "8/255 of a pixel's range, 2% of a number in a data frame"


@dataclass(frozen=True)
class Kind:
    """One kind of things that have names.

    Attributes:
        one: what a single thing is called.
        about: a line for lists of kinds.
        place: of the registry of the names, `"module:attribute"`.
        python, study: how a thing is used in Python (or on the command line) and in a study file, with its name as
            {name} and its class as {title}.
        elsewhere: where further names come from.
    """

    one: str
    about: str
    place: str
    python: str
    study: str = ""
    elsewhere: str = ""

    def load(self) -> Registry[Any]:
        """The registry of the names, which is imported."""
        registry: Registry[Any] = pkgutil.resolve_name(self.place)
        return registry

    def describe(self, name: str, entry: Any) -> str:
        """The text about an entry: its docstring; of a trained model, how it was trained."""
        if self.one == "model":
            return _describe_model(name)
        return docstring_of(entry)


def docstring_of(entry: Any) -> str:
    """The docstring of a class, a function, or a `partial` of one, without indentation."""
    return inspect.getdoc(getattr(entry, "func", entry)) or ""


def first_part(text: str) -> str:
    """The part of a docstring before its sections and examples.

    >>> first_part("A thing. With a rule.\\n\\nArgs:\\n    a: b.")
    'A thing. With a rule.'
    """
    section = _SECTIONS.search(text)
    if section:
        text = text[: section.start()]
    return text.strip()


def first_sentence(text: str) -> str:
    """The first sentence of a docstring in one line, without backticks.

    >>> first_sentence("The gradient of the `target`, e.g. a logit.\\nMore. And more.")
    'The gradient of the target, e.g. a logit.'
    """
    paragraph = " ".join(first_part(text).partition("\n\n")[0].split())
    # not behind abbreviations, and only before a capital letter, where a sentence begins
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<!al)(?<!Fig)(?<!Eq)\.(?= [A-Z`])", paragraph)
    if end:
        paragraph = paragraph[: end.end()]
    return paragraph.replace("`", "")


def _describe_model(name: str) -> str:
    from standfast.zoo import card

    facts = card(name)
    # without what follows in detail
    data = re.split("[,:]", str(facts["data"]))[0]
    scheme = re.split("[,:]", str(facts["scheme"]))[0]
    return f"{facts['architecture']} trained on {data}, scheme {scheme}, test accuracy {facts['test_accuracy']:.1%}."


def find_needs(kind: Kind, entry: Any) -> str:
    """What an entry needs, in a few words: options that must be given, and what it says of the model and the data."""
    if kind.one == "similarity":
        # these compare neighbouring positions, which tables do not have
        if hasattr(entry, "channels"):
            return "positions: maps of images or series"
        return ""
    if not isinstance(entry, type):
        return ""
    if dataclasses.is_dataclass(entry):
        options = dataclasses.fields(entry)
    else:
        options = ()
    required = [
        f.name for f in options if f.init and f.default is f.default_factory is dataclasses.MISSING
    ]
    neighbourhood_option = getattr(entry, "neighbourhood_option", "")  # which only metrics declare
    words = ""
    if required:
        noun = "options" if len(required) > 1 else "option"
        words = f"{noun} {', '.join(required)}"
    if neighbourhood_option in required:
        words += f" (in evaluate by default {DEFAULT_REACH})"
    needs = str(getattr(entry, "needs", ""))
    # schemes declare extras of the data set in the place of needs
    if kind is KINDS["schemes"]:
        scheme: Any = entry
        needs = ", ".join(f"the data set's extra {name}" for name in scheme.extras)
    return "; ".join(filter(None, (words, needs)))


#: by the word of `standfast list`
KINDS: Mapping[str, Kind] = {
    "metrics": Kind(
        "metric",
        "what is measured",
        "standfast.metrics.base:metrics",
        "standfast.evaluate(model, 'saliency', inputs, {name!r})",
        "metrics: [{name!r}]",
        "captum:NAME and quantus:NAME (extra peers), as captum:infidelity",
    ),
    "explainers": Kind(
        "explainer",
        "what makes the maps",
        "standfast.explainers:explainers",
        "standfast.explainers.get({name!r})",
        "explainers: [{name!r}]",
        "captum:, shap:, lime: and quantus:NAME (extra explainers), as captum:Saliency",
    ),
    "similarities": Kind(
        "similarity",
        "how alike two maps are",
        "standfast.similarity:similarities",
        "standfast.similarity.get({name!r})",
        "metrics: [{{worst_case: {{similarity: {name!r}}}}}]",
    ),
    "neighbourhoods": Kind(
        "neighbourhood",
        "where perturbed inputs may lie",
        "standfast.neighbourhoods:neighbourhoods",
        "standfast.neighbourhoods.{title}(...)",
        "neighbourhood: {{{name!r}: ...}}",
    ),
    "searches": Kind(
        "search",
        "how the worst input is searched for",
        "standfast.algorithms:searches",
        "standfast.metrics.WorstCase(standfast.LinfBall(0.1), search={name!r})",
        "metrics: [{{worst_case: {{search: {name!r}}}}}]",
    ),
    "attacks": Kind(
        "attack",
        "how c-Eval searches for the least distortion",
        "standfast.algorithms:attacks",
        "standfast.metrics.CEval(attack={name!r})",
        "metrics: [{{c_eval: {{attack: {name!r}}}}}]",
    ),
    "attribution_attacks": Kind(
        "attribution attack",
        "what attribution_attack does to a map",
        "standfast.metrics.lens.attribution_objectives:attribution_attacks",
        "standfast.metrics.AttributionAttack(standfast.LinfBall(0.1), attack={name!r})",
        "metrics: [{{attribution_attack: {{attack: {name!r}}}}}]",
    ),
    "tasks": Kind(
        "task",
        "what a model answers, if no classes",
        "standfast.tasks:tasks",
        "standfast.Model(module, bounds, task={name!r})",
        "models: {{mine: {{function: 'mymodule:build', task: {name}}}}}",
    ),
    "datasets": Kind(
        "data set",
        "digits, sentences and waves come with standfast; others are files, or downloads",
        "standfast.data:datasets",
        "standfast.data.load({name!r})",
        "data: [{name!r}]",
        "ucr:NAME:test, huggingface:OWNER/NAME:test and torchvision:NAME:test (extra data)",
    ),
    "models": Kind(
        "model",
        "trained models that come with standfast",
        "standfast.zoo:models",
        "standfast.zoo.load({name!r})",
        "models: [{name!r}]",
        "timm:NAME, torchvision:NAME and transformers:NAME (extra hub); of texts {transformers: FOLDER}",
    ),
    "architectures": Kind(
        "architecture",
        "networks that standfast train can train",
        "standfast.zoo:architectures",
        "standfast train --model {name} --data mnist",
        "models: [{{architecture: {name}, weights: model.safetensors}}]",
    ),
    "schemes": Kind(
        "training scheme",
        "how standfast train trains",
        "standfast.training.schemes:schemes",
        "standfast train --scheme {name}",
    ),
}


@dataclass(frozen=True)
class ListedName:
    """A name in a list."""

    name: str
    about: str
    needs: str = ""

    def format(self, width: int) -> str:
        """One line, the name in a column of `width` characters."""
        line = f"{self.name:{width}}  {self.about}"
        if self.needs:
            line += f"  [needs {self.needs}]"
        return line


def describe_names(kind: Kind) -> list[ListedName]:
    """A line for each name of a kind. Plug-ins are not imported for it."""
    registry = kind.load()
    lines = []
    for name in registry.names():
        # to import a plug-in may take seconds, or fail
        if name in registry.plugins:
            lines.append(ListedName(name, f"From the plug-in {registry.plugins[name].value}."))
        else:
            entry = registry[name]
            lines.append(
                ListedName(
                    name, first_sentence(kind.describe(name, entry)), find_needs(kind, entry)
                )
            )
    return lines
