"""The line that does a next step: a call of `evaluate` in full, or a command for results of a study file.

A call is written from what the manifest holds of the user's call. What has no code there, such as the model, the inputs
and the training rows, has the name of its argument.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from standfast.neighbourhoods import Neighbourhood, TableChanges
from standfast.neighbourhoods.naming import find_first_option, find_name
from standfast.results import NextStep, StoredResults
from standfast.results.next_steps import METRIC_OF
from standfast.spelling import spell
from standfast.study.folders import LocalFolder

#: how a training of the same network differs; docs/training.md has what it brought
_SCHEME = "standfast.training.schemes.GradientHessian(gradient_weight=0.0, hessian_weight=0.5)"
#: arguments of which there is one for each sample
_OF_SAMPLES = ("targets",)
#: the arguments that a line may name without making them
_SESSION_NAMES = ("model", "explainers", "inputs", "metrics", "reference", "controls", "targets", "results")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def write_line(results: StoredResults, step: NextStep) -> str | None:
    """The line of a step; None where it cannot be written such that it runs."""
    if step.kind == "training":
        return _write_training(results.manifest)
    study = results.manifest.get("study")
    if not study:
        return _write_call(results, step)
    changes = _list_changes(study, step)
    if changes is None:
        return None
    origin = str(results.manifest.get("origin") or "")
    if not Path(origin).suffix:
        return _write_study_call(results, changes)
    return _write_command(results, origin, changes, step)


def list_session_names(line: str) -> list[str]:
    """What a line takes from the session of the user.

    >>> list_session_names("standfast.evaluate(model, ['inputs'], inputs[:80], metrics, reference=reference)")
    ['model', 'inputs', 'metrics', 'reference']
    """
    code = _QUOTED.sub("''", line)
    values = re.findall(r"(?<![\w.])(\w+)(?![\w=])", code)
    return [name for name in (*_SESSION_NAMES, "train_inputs", "train_labels") if name in values]


def wrap_line(line: str, width: int, indent: str = "    ") -> list[str]:
    """A line of code in several that are not longer than the width, where they can be broken, and run as they are.

    A call is broken behind commas, and a command before options.

    >>> wrap_line("standfast.evaluate(model, ['saliency', 'lrp'], inputs[:80])", 40)
    ["standfast.evaluate(model, ['saliency',", "    'lrp'], inputs[:80])"]
    >>> wrap_line("standfast run study.yaml --set samples=80", 30)
    ['standfast run study.yaml \\\\', '    --set samples=80']
    """
    is_command = line.startswith("standfast ")
    parts = re.split(r" (?=--)", line) if is_command else _split_at_commas(line)
    end = " \\" if is_command else ""
    lines: list[str] = []
    current = ""
    for part in parts:
        longer = f"{current} {part}" if current.strip() else current + part
        if current.strip() and len(longer) + len(end) > width:
            lines.append(current + end)
            current = indent + part
        else:
            current = longer
    return [*lines, current]


def _split_at_commas(code: str) -> list[str]:
    """Code between those commas that are in no text."""
    quoted = [range(*found.span()) for found in _QUOTED.finditer(code)]
    cuts = [found.end() for found in re.finditer(", ", code) if not any(found.start() in text for text in quoted)]
    return [code[start:stop].rstrip() for start, stop in zip([0, *cuts], [*cuts, len(code)], strict=True)]


# A call


def _write_call(results: StoredResults, step: NextStep) -> str | None:
    """The user's call of `evaluate` with what the step changes."""
    call = results.manifest.get("call") or {}
    options = dict(call.get("options") or {})
    explainers = _write_explainers(call.get("explainers"), step)
    metrics = _write_metrics(call.get("metrics"), step)
    if explainers is None or metrics is None:
        return None
    count = _count_inputs(results, step)
    cut = "" if count is None else f"[:{count}]"
    for name in _OF_SAMPLES:
        if options.get(name) == name:
            options[name] = name + cut
    if "checks" in step.missing:
        options.pop("sanity", None)
    if step.changes:
        options["neighbourhood"] = _spell_changes(step.changes)
        options.pop("out", None)  # another question has a folder of its own
    minutes = results.summary.minutes
    if minutes is not None and step.kind == "samples":
        options["minutes"] = str(_add_minutes(minutes, step))
    arguments = ["model", explainers, f"inputs{cut}", metrics]
    arguments += [f"{name}={code}" for name, code in options.items()]
    return f"standfast.evaluate({', '.join(arguments)})"


def _write_explainers(given: Mapping[str, Any] | None, step: NextStep) -> str | None:
    """The explainers of a step; all of the user's where the line cannot choose among them."""
    codes: dict[str, str | None] = {}
    if given is not None:
        codes = {part["name"]: part["code"] for part in given["parts"]}
    chosen = {name: code for name, code in codes.items() if name in step.evaluated}
    is_known = len(chosen) == len(step.evaluated) and None not in chosen.values()
    if not is_known:
        return repr([step.instead]) if step.instead else "explainers"
    if step.instead:
        chosen[step.instead] = repr(step.instead)
    if given is not None and given["named"] and len(step.evaluated):
        entries = ", ".join(f"{name!r}: {code}" for name, code in chosen.items())
        return f"{{{entries}}}"
    return f"[{', '.join(map(str, chosen.values()))}]"


def _write_metrics(given: Mapping[str, Any] | None, step: NextStep) -> str | None:
    """The metrics of a step; None where one has to move to another neighbourhood and cannot."""
    further = [METRIC_OF[kind] for kind in step.missing if kind in METRIC_OF]
    if given is None or any(part["code"] is None for part in given["parts"]):
        return None if further or step.changes else "metrics"
    parts = [(part["name"], part["code"]) for part in given["parts"]]
    if step.changes:
        if any(part["placed"] and part["movable"] is None for part in given["parts"]):
            return None
        parts = [(part["name"], repr(part["movable"]) if part["placed"] else part["code"]) for part in given["parts"]]
    parts += [(name, repr(name)) for name in further]
    if given["named"]:
        entries = ", ".join(f"{name!r}: {code}" for name, code in parts)
        return f"{{{entries}}}"
    return f"[{', '.join(code for _, code in parts)}]"


def _count_inputs(results: StoredResults, step: NextStep) -> int | None:
    """How many inputs the call gets; None for all that it had."""
    if step.kind != "samples":
        return None
    available = max((available for _, available in results.limited_samples.values()), default=0)
    return None if step.samples <= available else step.samples


def _add_minutes(minutes: float, step: NextStep) -> int:
    """The minutes that the same call needs for more samples."""
    return math.ceil(minutes + (step.seconds or 0.0) / 60)


def _spell_changes(changes: Sequence[Neighbourhood]) -> str:
    codes = [_spell_change(change) for change in changes]
    return codes[0] if len(codes) == 1 else f"[{', '.join(codes)}]"


def _spell_change(change: Neighbourhood) -> str:
    """The code of a neighbourhood; columns of a table have their reach alone."""
    if isinstance(change, TableChanges):
        return f"standfast.neighbourhoods.TableChanges({_list_reaches(change)!r})"
    first = find_first_option(type(change))
    assert first is not None
    return f"standfast.neighbourhoods.{type(change).__name__}({spell(_find_reach(change, first))})"


def _list_reaches(change: TableChanges) -> dict[str, Any]:
    """How far each column moves."""
    assert isinstance(change.changes, Mapping)
    return {name: feature.by for name, feature in change.changes.items()}


def _find_reach(change: Neighbourhood, option: str) -> Any:
    """How far a change goes: one number where it is the same in both directions, or begins at nothing."""
    reach = getattr(change, option)
    if not isinstance(reach, tuple):
        return reach
    low, high = reach
    return high if low in (0, -high) else reach


def _write_training(manifest: Mapping[str, Any]) -> str | None:
    """A call that trains the network further; None for results of a study, whose networks are in files."""
    module = {"model": "model.module", "module": "model"}.get((manifest.get("call") or {}).get("model", ""))
    if module is None:
        return None
    options = f"scheme={_SCHEME}, epochs=6, generator=torch.Generator().manual_seed(0)"
    return f"standfast.training.classifier.train_classifier({module}, train_inputs, train_labels, {options})"


# A study


def _list_changes(study: Mapping[str, Any], step: NextStep) -> dict[str, Any] | None:
    """What a step changes in a study, by key; a key with a plus gets one more entry. None where that is no step."""
    if step.kind == "samples":
        # without it all samples of the data are evaluated, and there are no more
        return {"samples": step.samples} if "samples" in study else None
    if step.instead:
        name, _, rest = step.instead.partition(":")
        options = dict(part.split("=") for part in rest.split(",") if part)
        return {"explainers+": {name: {key: value == "true" for key, value in options.items()}} if options else name}
    if step.missing:
        added: dict[str, Any] = {"metrics+": METRIC_OF[kind] for kind in step.missing if kind in METRIC_OF}
        return {**added, **({"sanity": True} if "checks" in step.missing else {})}
    own = study.get("neighbourhood")
    options_of_metrics = [options for metric in study["metrics"].values() for options in metric.values()]
    places = [each.get("neighbourhood") for each in options_of_metrics if isinstance(each, Mapping)]
    if any(place not in (None, own) for place in places):
        return None  # a metric has one of its own, which the study's does not replace
    changes = [{find_name(type(change)): _write_reach(change)} for change in step.changes]
    return {"neighbourhood": changes[0] if len(changes) == 1 else changes}


def _write_reach(change: Neighbourhood) -> Any:
    """The value of a neighbourhood in a study file."""
    if isinstance(change, TableChanges):
        return {"changes": _list_reaches(change)}
    first = find_first_option(type(change))
    assert first is not None
    reach = _find_reach(change, first)
    return list(reach) if isinstance(reach, tuple) else reach


def _write_command(results: StoredResults, origin: str, changes: Mapping[str, Any], step: NextStep) -> str:
    """The command of the user with the changes; the file stays as it is."""
    command = str((results.manifest.get("about") or {}).get("command") or "")
    words = shlex.split(command) if command.startswith("standfast run ") else _find_command(results, origin)
    minutes = results.summary.minutes
    if minutes is not None and step.kind == "samples":
        words = [*_leave_out(words, "--minutes"), "--minutes", str(_add_minutes(minutes, step))]
    if step.changes:
        stem = Path(words[2]).stem
        words = [*_leave_out(words, "--out"), "--out", f"results/{stem}-nearer"]
    for key, value in changes.items():
        words += ["--set", f"{key}={_write_flow(value)}"]
    return " ".join(map(shlex.quote, words))


def _find_command(results: StoredResults, origin: str) -> list[str]:
    """The command that runs a study that Python has run."""
    words = ["standfast", "run", _shorten(origin)]
    address = _find_address(results)
    is_default = address is None or Path(address).resolve() == (Path("results") / Path(origin).stem).resolve()
    return words if is_default else [*words, "--out", str(address)]


def _leave_out(words: Sequence[str], option: str) -> list[str]:
    """A command without an option and its value."""
    if option not in words:
        return list(words)
    place = words.index(option)
    return [*words[:place], *words[place + 2 :]]


def _write_study_call(results: StoredResults, changes: Mapping[str, Any]) -> str | None:
    """A call of `run_study` for a study that was given as a mapping; `results` are these."""
    if any(key.endswith("+") for key in changes):
        return None
    address = _find_address(results)
    entries = ", ".join(f"{key!r}: {value!r}" for key, value in changes.items())
    out = "" if address is None or "neighbourhood" in changes else f", out={address!r}"
    return f"standfast.run_study({{**results.manifest['study'], {entries}}}{out})"


def _find_address(results: StoredResults) -> str | None:
    """Where the results are; None for results in memory."""
    folder = getattr(results.store, "folder", None)
    if isinstance(folder, LocalFolder):
        return _shorten(str(folder.path))
    return None if folder is None else str(folder.address)


def _shorten(path: str) -> str:
    """A path from the current folder on, where it is in it."""
    full = Path(path).resolve()
    here = Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else path


def _write_flow(value: Any) -> str:
    """A value in one line of YAML.

    >>> _write_flow([{"brightness": 0.2}, {"jpeg": [30, 90]}]), _write_flow(True)
    ('[{brightness: 0.2}, {jpeg: [30, 90]}]', 'true')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_write_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_write_flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
