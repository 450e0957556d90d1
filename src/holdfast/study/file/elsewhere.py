"""Explainers of other packages in a study file: `{"captum:IntegratedGradients": {n_steps: 20}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ArgumentError, HoldfastError, UnknownNameError
from holdfast.explainers import Explainer, explainers
from holdfast.explainers import get as get_explainer
from holdfast.study.file.options import background_from, named, spelled
from holdfast.study.file.problems import Collector, Keys, Problem, Wrong, from_argument, raised, shown, unknown


def is_named_elsewhere(raw: object) -> bool:
    """Whether an entry names such an explainer, in any of the three forms of a name with options."""
    if isinstance(raw, Mapping):
        named_so = explainers.is_elsewhere(raw.get("explainer"))
        return named_so or (len(raw) == 1 and explainers.is_elsewhere(next(iter(raw))))
    return explainers.is_elsewhere(raw)


def explainer_elsewhere(raw: object) -> tuple[Explainer, dict[str, Any], Keys]:
    """The explainer, the entry as `{explainer: name, option: value}`, and where its options stand.

    Raises:
        Wrong: the package or the class is not there, or an option does not fit.

    >>> explainer_elsewhere({"captum:Saliency": {"abs": False}})[1:]
    ({'explainer': 'captum:Saliency', 'abs': False}, ('captum:Saliency',))
    """
    name = raw if isinstance(raw, str) else _name(raw)
    found = named(raw, "explainer", "an explainer", [name])
    problems, options = Collector(), {}
    for key, value in found.options.items():
        with problems.at(*found.at_options):
            if not isinstance(key, str):
                raise Wrong(Problem((), "the name of an option", shown(key)))
        with problems.at(*found.at_options, key):
            options[key] = background_from(value) if key == "background" else _value(value)
    problems.finish()
    try:
        explainer = get_explainer(name, **options)
    except ArgumentError as error:
        problem = from_argument(error, options)
        if isinstance(error, UnknownNameError):
            problem = unknown(
                error.argument, name.partition(":")[2], error.expected.removeprefix("one of ").split(", ")
            )
        at = found.at_options if problem.path else found.at_name
        raise Wrong(*Wrong(problem).under(*at)) from error
    except HoldfastError as error:
        raise Wrong(Problem(found.at_name, f"{name}, which is installed", str(error))) from error
    except Exception as error:  # a class of another package may raise anything
        raise Wrong(Problem(found.at_options, f"options that {name} accepts", raised(error))) from error
    plain = {key: spelled(options[key]) if key == "background" else value for key, value in found.options.items()}
    return explainer, {"explainer": name, **plain}, found.at_options


def _name(raw: object) -> str:
    assert isinstance(raw, Mapping)
    return str(raw["explainer"] if "explainer" in raw else next(iter(raw)))


def _value(raw: Any) -> Any:
    """Lists as tuples, as these packages want shapes; all else as it stands."""
    return tuple(_value(entry) for entry in raw) if isinstance(raw, list) else raw
