"""A next step of a study: the command of its file with other values (`--set`), or a call for a study without a file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from standfast.neighbourhoods import Neighbourhood, TableChanges
from standfast.neighbourhoods.naming import find_name
from standfast.report.step_calls import find_reach, list_reaches, write_minutes
from standfast.results import NextStep, StoredResults
from standfast.results.next_steps import METRIC_OF
from standfast.study.folders import LocalFolder

#: what `standfast run` notes of its own options
_OPTIONS = {"--preset", "--out", "--set", "--minutes"}
#: the key of a study beside what runs code as soon as it is opened
_TRUST = "trust"
#: a key of a study file with its new value; with a plus behind the key, with one more entry
Change = tuple[str, Any]


def write_study_step(
    results: StoredResults, study: Mapping[str, Any], step: NextStep
) -> str | None:
    """The line of a step; None where it cannot be written such that it runs.

    Args:
        results: of the study.
        study: as plain values.
        step: the step.
    """
    changes = _list_changes(study, step)
    if changes is None:
        return None
    origin = str(results.manifest.get("origin") or "")
    if Path(origin).suffix:
        return _write_command(results, origin, changes, step)
    # without changes there is a command, and its time; a call has none
    return _write_call(results, changes) if changes else None


def _list_changes(study: Mapping[str, Any], step: NextStep) -> list[Change] | None:
    """What a step changes in a study; None where the study leaves no room for it."""
    if step.kind == "samples":
        # without it all samples of the data are evaluated, and there are no more
        if "samples" not in study:
            return None
        return [("samples", step.samples)]
    if step.kind == "rest":
        return []
    if step.kind == "explainer":
        return [("explainers+", _write_explainer(step.instead))]
    if step.kind == "question":
        further = [METRIC_OF[kind] for kind in step.missing if kind in METRIC_OF]
        changes: list[Change] = [("metrics+", metric) for metric in further]
        if "checks" in step.missing:
            changes.append(("sanity", True))
        return changes
    if step.kind == "neighbourhood" and not _has_own_neighbourhood(study):
        entries = [_write_neighbourhood(change) for change in step.changes]
        if len(entries) == 1:
            return [("neighbourhood", entries[0])]
        return [("neighbourhood", entries)]
    return None


def _write_explainer(text: str) -> Any:
    """An explainer such as `"smoothgrad:times_input=true"` as an entry of a study file."""
    name, _, rest = text.partition(":")
    if not rest:
        return name
    options: dict[str, Any] = {}
    for part in rest.split(","):
        option, _, value = part.partition("=")
        if value in ("true", "false"):
            options[option] = value == "true"
        else:
            options[option] = value
    return {name: options}


def _has_own_neighbourhood(study: Mapping[str, Any]) -> bool:
    """Whether a metric has one of its own, which that of the study does not replace."""
    common = study.get("neighbourhood")
    for metric in (study.get("metrics") or {}).values():
        for options in metric.values():
            if isinstance(options, Mapping) and options.get("neighbourhood") not in (None, common):
                return True
    return False


def _write_neighbourhood(change: Neighbourhood) -> dict[str, Any]:
    """A neighbourhood as a study file has it."""
    name = find_name(type(change))
    if isinstance(change, TableChanges):
        return {name: {"changes": list_reaches(change)}}
    reach = find_reach(change)
    # a study file has no tuples
    if isinstance(reach, tuple):
        reach = list(reach)
    return {name: reach}


def _write_command(
    results: StoredResults, origin: str, changes: Sequence[Change], step: NextStep
) -> str:
    """The command of the user with the changes; the file stays as it is."""
    about = results.manifest.get("about") or {}
    command = str(about.get("command") or "")
    words = _read_command(command) or _find_command(results, origin)
    if results.summary.minutes is not None:
        minutes = write_minutes(results.summary.minutes, step)
        words = [*_leave_out(words, "--minutes"), "--minutes", minutes]
    if step.changes:
        stem = Path(words[2]).stem
        words = [*_leave_out(words, "--out"), "--out", f"results/{stem}-nearer"]
    for key, value in changes:
        words += ["--set", f"{key}={_write_flow(value)}"]
    return shlex.join(words)


def _read_command(command: str) -> list[str]:
    """The words of a command that ran a study; none if it does more, since results may be a stranger's.

    >>> _read_command("standfast run 'my study.yaml' --set seed=3"), _read_command("standfast run study.yaml; rm x")
    (['standfast', 'run', 'my study.yaml', '--set', 'seed=3'], [])
    """
    try:
        words = shlex.split(command)
    except ValueError:
        # a quotation mark without an end
        return []
    # two names, the file, and then each option with its value
    names = words[:2]
    options = words[3::2]
    values = words[4::2]
    has_file = len(words) > 2 and not words[2].startswith("-")
    is_of_options = set(options) <= _OPTIONS and len(options) == len(values)
    if names != ["standfast", "run"] or not has_file or not is_of_options:
        return []
    if any(_TRUST in value for value in values):
        return []
    return words


def _find_command(results: StoredResults, origin: str) -> list[str]:
    """The command that runs a study that Python has run."""
    words = ["standfast", "run", _shorten(origin)]
    address = _find_address(results)
    default = (Path("results") / Path(origin).stem).resolve()
    is_default = address is None or Path(address).resolve() == default
    if is_default:
        return words
    return [*words, "--out", str(address)]


def _leave_out(words: Sequence[str], option: str) -> list[str]:
    """A command without an option and its value."""
    if option not in words:
        return list(words)
    start = words.index(option)
    return [*words[:start], *words[start + 2 :]]


def _write_call(results: StoredResults, changes: Sequence[Change]) -> str | None:
    """A call of `run_study` for a study that was given as a mapping; `results` are these.

    A study that trusts files or modules is that of the user's session, since results may be a stranger's.
    """
    keys = [key for key, _ in changes]
    if any(key.endswith("+") for key in keys):
        return None
    address = _find_address(results)
    entries = ", ".join(f"{key!r}: {value!r}" for key, value in changes)
    if address is None or "neighbourhood" in keys:
        out = ""
    else:
        out = f", out={address!r}"
    if _has_trust(results.manifest["study"]):
        study = "study"
    else:
        study = "results.manifest['study']"
    return f"standfast.run_study({{**{study}, {entries}}}{out})"


def _has_trust(content: Any) -> bool:
    """Whether something in a study is trusted to run code."""
    if isinstance(content, Mapping):
        return bool(content.get(_TRUST)) or any(map(_has_trust, content.values()))
    return isinstance(content, list | tuple) and any(map(_has_trust, content))


def _find_address(results: StoredResults) -> str | None:
    """Where the results are; None for results in memory."""
    folder = getattr(results.store, "folder", None)
    if isinstance(folder, LocalFolder):
        return _shorten(str(folder.path))
    if folder is None:
        return None
    return str(folder.address)


def _shorten(path: str) -> str:
    """A path from the current folder on, where it is in it."""
    full = Path(path).resolve()
    current = Path.cwd()
    if full.is_relative_to(current):
        return str(full.relative_to(current))
    return path


def _write_flow(value: Any) -> str:
    """A value in one line of YAML.

    >>> _write_flow([{"brightness": 0.2}, {"jpeg": [30, 90]}]), _write_flow(True)
    ('[{brightness: 0.2}, {jpeg: [30, 90]}]', 'true')
    """
    if isinstance(value, Mapping):
        entries = [f"{_write_flow(key)}: {_write_flow(entry)}" for key, entry in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write_flow, value))}]"
    # JSON is YAML; plain words need no quotes
    is_word = isinstance(value, str) and value.isidentifier()
    if is_word:
        return str(value)
    return json.dumps(value, ensure_ascii=False)
