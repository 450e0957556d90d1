"""pydantic's errors in the words of a study file."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from holdfast.errors import ArgumentError
from holdfast.study.file.options import members
from holdfast.study.file.problems import Keys, Problem, listed, nearest, shown

#: what belongs under the keys that cannot be left out
REQUIRED = {
    "data": "data, such as {digits: digits}",
    "models": "models, such as {lenet: lenet5-mnist}",
    "explainers": "explainers, such as [saliency]",
    "metrics": "metrics, such as [max_sensitivity]",
}
_WORDS = {
    "dict_type": "a mapping from names to entries",
    "model_type": "a mapping",
    "string_type": "a text",
    "string_too_short": "a name",
    "invalid_key": "a name as text",
}


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """What pydantic found in the content of a `model`, in order."""
    return [_problem(details, model) for details in error.errors(include_url=False)]


def _problem(details: Any, model: type[BaseModel]) -> Problem:
    path: Keys = tuple(details["loc"])
    kind, came, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "study":
        return Problem(path, context["expected"], context["got"], context["near"], context["note"])
    if kind == "missing":
        return Problem(path, REQUIRED.get(str(path[-1]), f"{path[-1]} with a value"), "nothing")
    if path[-1:] == ("[key]",):
        return Problem(path[:-1], "a name as text", shown(path[-2]))
    if kind in ("extra_forbidden", "invalid_key"):
        if not isinstance(path[-1], str):
            return Problem(path[:-1], "keys as text", shown(path[-1]))
        known = list(_section(path[:-1], model).model_fields)
        return Problem(path, f"a known key ({listed(known)})", shown(path[-1]), near=nearest(path[-1], known))
    cause = context.get("error")
    if isinstance(cause, ArgumentError):
        return Problem(path, cause.expected, str(cause.got))
    words = _WORDS.get(kind) or str(details["msg"]).removeprefix("Input should be ").lower()
    return Problem(path, words, shown(came))


def _section(path: Keys, model: type[BaseModel]) -> type[BaseModel]:
    """The model of the section that a path leads to."""
    here: Any = model
    for key in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[str(key)].annotation
        else:  # a mapping from names to sections
            here = get_args(here)[-1]
        sections = [m for m in members(here) if isinstance(m, type) and issubclass(m, BaseModel)]
        here = sections[0] if sections else here
    return here if isinstance(here, type) and issubclass(here, BaseModel) else model
