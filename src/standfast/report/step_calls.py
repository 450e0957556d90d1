"""A next step as a call of `evaluate`, or of a training, in full.

It is written from what the manifest holds of the user's call (`standfast.question.calls`). What has no code there, such
as the model, the inputs and the training rows, has the name of its argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from standfast.neighbourhoods import Neighbourhood, TableChanges
from standfast.neighbourhoods.naming import find_first_option
from standfast.question.spelling import spell
from standfast.results import NextStep, StoredResults
from standfast.results.given_call import GivenCall, GivenPart, GivenParts, read_call
from standfast.results.next_steps import METRIC_OF

#: how a training of the same network differs; docs/training.md has what it brought
_SCHEME = "standfast.training.schemes.GradientHessian(gradient_weight=0.0, hessian_weight=0.5)"
#: arguments of which there is one for each sample
_OF_SAMPLES = ("targets",)
#: what changes no number, and no user types for a next step
_NOT_TYPED = frozenset({"about", "workers", "samples_per_job"})
#: arguments of `evaluate` that `choose` has, too
_OF_A_RACE = ("reference", "neighbourhood", "targets", "decision", "seed")


def write_call(results: StoredResults, step: NextStep) -> str | None:
    """The user's call of `evaluate` with what the step changes; None where it cannot be written such that it runs."""
    call = read_call(results.manifest)
    explainers = _write_explainers(call.explainers, step)
    metrics = _write_metrics(call.metrics, step)
    if metrics is None:
        return None
    count = _count_inputs(results, step)
    cut = ""
    if count is not None:
        cut = f"[:{count}]"
    options = _change_options(call.options, step, cut)
    if results.summary.minutes is not None:
        options["minutes"] = write_minutes(results.summary.minutes, step)
    arguments = ["model", explainers, f"inputs{cut}", metrics]
    arguments += [f"{name}={code}" for name, code in options.items()]
    return f"standfast.evaluate({', '.join(arguments)})"


def write_race(results: StoredResults, step: NextStep) -> str | None:
    """A race of the usual explainers by the user's metrics; None for several models or data sets, or of a study."""
    call = read_call(results.manifest)
    metrics = _write_metrics(call.metrics, step)
    is_of_one_model = call.model in ("model", "module") and len(results.pairs) == 1
    if metrics is None or not is_of_one_model:
        return None
    data, _ = results.pairs[0]
    evaluated = results.summary.samples.get(data, 0)
    cut = ""
    if step.samples > evaluated:
        cut = f"[:{step.samples}]"
    options = _cut_to_samples(call.options, cut)
    arguments = ["model", f"inputs{cut}", f"metrics={metrics}"]
    for name in _OF_A_RACE:
        if name in options:
            arguments.append(f"{name}={options[name]}")
    return f"standfast.choose({', '.join(arguments)})"


def write_choice(call: GivenCall, changes: Mapping[str, str]) -> str:
    """The user's call of `choose` with what a step changes.

    Args:
        call: as it was.
        changes: the code of arguments; `samples`, the number of inputs; and `explainer`, the text of one more.
    """
    further = dict(changes)
    for name in ("samples", "explainer"):
        further.pop(name, None)
    cut = ""
    if "samples" in changes:
        cut = f"[:{changes['samples']}]"
    arguments = ["model", f"inputs{cut}"]
    for name, parts in (("explainers", call.explainers), ("metrics", call.metrics)):
        if parts is None or parts.parts:
            added = changes.get("explainer") if name == "explainers" else None
            code = _write_given(parts, name, added)
            arguments.append(f"{name}={code}")
    options = {**_cut_to_samples(call.options, cut), **further}
    arguments += [f"{name}={code}" for name, code in options.items()]
    return f"standfast.choose({', '.join(arguments)})"


def _write_given(call_parts: GivenParts | None, name: str, added: str | None) -> str:
    """The code of explainers or metrics, with one more; their name in the session of the user if one has no code."""
    if call_parts is not None:
        codes = [part.code for part in call_parts.parts]
    else:
        codes = []
    if call_parts is None or None in codes:
        if added is None:
            return name
        return f"[*{name}, {added!r}]"
    parts = [(part.name, str(part.code)) for part in call_parts.parts]
    if added is not None:
        parts.append((added, repr(added)))
    return _write_parts(parts, call_parts.are_named)


def write_training(results: StoredResults) -> str | None:
    """A call that trains the network further; None where several models were given, or models of a study."""
    kind = read_call(results.manifest).model
    if kind not in ("model", "module"):
        return None
    module = "model.module" if kind == "model" else "model"
    options = f"scheme={_SCHEME}, epochs=6, generator=torch.Generator().manual_seed(0)"
    return f"standfast.training.classifier.train_classifier({module}, train_inputs, train_labels, {options})"


def write_minutes(minutes: float, step: NextStep) -> str:
    """The limit of time of a step, from that of the results: longer where more is asked of the same explainers."""
    if step.kind in ("samples", "rest", "question"):
        further_minutes = (step.seconds or 0.0) / 60
        return str(math.ceil(minutes + further_minutes))
    return f"{minutes:g}"


def list_reaches(change: TableChanges) -> dict[str, Any]:
    """How far each column moves."""
    assert isinstance(change.changes, Mapping)
    return {name: feature.by for name, feature in change.changes.items()}


def find_reach(change: Neighbourhood) -> Any:
    """How far a change goes: one number where it is the same in both directions, or begins at nothing."""
    option = find_first_option(type(change))
    assert option is not None
    reach = getattr(change, option)
    if not isinstance(reach, tuple):
        return reach
    low, high = reach
    if low in (0, -high):
        return high
    return reach


def _write_explainers(given: GivenParts | None, step: NextStep) -> str:
    """The explainers of a step; all of the user's where the line cannot choose among them."""
    chosen = _choose_codes(given, step.evaluated)
    if chosen is None:
        if step.instead:
            return repr([step.instead])
        return "explainers"
    if step.instead:
        chosen[step.instead] = repr(step.instead)
    are_named = given is not None and given.are_named and bool(step.evaluated)
    return _write_parts(list(chosen.items()), are_named)


def _choose_codes(given: GivenParts | None, names: Sequence[str]) -> dict[str, str] | None:
    """The codes of explainers by name; None if one of them has none."""
    chosen: dict[str, str] = {}
    parts = () if given is None else given.parts
    for part in parts:
        if part.name in names and part.code is not None:
            chosen[part.name] = part.code
    if len(chosen) == len(names):
        return chosen
    return None


def _write_metrics(given: GivenParts | None, step: NextStep) -> str | None:
    """The metrics of a step; None where one has to move to another neighbourhood and cannot."""
    further = [METRIC_OF[kind] for kind in step.missing if kind in METRIC_OF]
    parts = None
    if given is not None:
        parts = _write_given_metrics(given, step)
    if given is None or parts is None:
        # the line names the user's metrics, and can neither add to them nor change them
        if further or step.changes:
            return None
        return "metrics"
    parts += [(name, repr(name)) for name in further]
    return _write_parts(parts, given.are_named)


def _write_given_metrics(given: GivenParts, step: NextStep) -> list[tuple[str, str]] | None:
    """The names and codes of the user's metrics; None if one of them has none."""
    parts = []
    for part in given.parts:
        code = _write_metric(part, step)
        if code is None:
            return None
        parts.append((part.name, code))
    return parts


def _write_metric(part: GivenPart, step: NextStep) -> str | None:
    """The code of a metric, without its neighbourhood where that changes; None if there is none."""
    if not (step.changes and part.is_placed):
        return part.code
    if part.movable is None:
        return None
    return repr(part.movable)


def _write_parts(parts: Sequence[tuple[str, str]], are_named: bool) -> str:
    """Codes as a mapping from names, or as a list."""
    if are_named:
        entries = ", ".join(f"{name!r}: {code}" for name, code in parts)
        return f"{{{entries}}}"
    codes = ", ".join(code for _, code in parts)
    return f"[{codes}]"


def _count_inputs(results: StoredResults, step: NextStep) -> int | None:
    """How many inputs the call gets; None for all that it had."""
    if step.kind != "samples":
        return None
    # with a time limit the call has had more inputs than were evaluated
    counts = [count for _, count in results.limited_samples.values()]
    available = max(counts, default=0)
    if step.samples <= available:
        return None
    return step.samples


def _change_options(given: Mapping[str, str], step: NextStep, cut: str) -> dict[str, str]:
    """The code of the other arguments.

    Args:
        given: that of the user's call.
        step: the step.
        cut: what is behind the inputs, and so behind other arguments of which there is one for each sample.
    """
    options = _cut_to_samples(given, cut)
    if "checks" in step.missing:
        options.pop("sanity", None)
    if step.changes:
        options["neighbourhood"] = _write_changes(step.changes)
        # another question has a folder of its own
        options.pop("out", None)
    return options


def _cut_to_samples(codes: Mapping[str, str], cut: str) -> dict[str, str]:
    """The code of arguments that a user would type, for as many samples as the inputs."""
    options = {name: code for name, code in codes.items() if name not in _NOT_TYPED}
    for name in _OF_SAMPLES:
        if options.get(name) == name:
            options[name] = name + cut
    return options


def _write_changes(changes: Sequence[Neighbourhood]) -> str:
    """The code of a neighbourhood, or of a list of several."""
    codes: list[str] = []
    for change in changes:
        if isinstance(change, TableChanges):
            reach = list_reaches(change)
        else:
            reach = find_reach(change)
        name = type(change).__name__
        codes.append(f"standfast.neighbourhoods.{name}({spell(reach)})")
    if len(codes) == 1:
        return codes[0]
    return f"[{', '.join(codes)}]"
