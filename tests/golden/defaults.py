"""The defaults of everything that is registered, recorded: one that changes needs a new version of its class.

Record them with `python tests/golden/golden.py --write`.

Options at their defaults are no part of a job's identity. So a default that changes under the same version would mix
old results with new ones.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import standfast
from standfast.explainers import explainers
from standfast.metrics.base import metrics
from standfast.neighbourhoods import neighbourhoods
from standfast.registry import Registry
from standfast.study.identity import Description
from standfast.tasks import tasks

FILE = Path(__file__).with_name("defaults.json")
REGISTRIES: dict[str, Registry[Any]] = {
    "explainer": explainers,
    "metric": metrics,
    "neighbourhood": neighbourhoods,
    "task": tasks,
}


def list_defaults() -> dict[str, Any]:
    """For each class by `kind name`: its version, and the description of the default of each option that has one."""
    found = {}
    for kind, registry in REGISTRIES.items():
        for name in registry.names():
            entry = registry[name]
            if not dataclasses.is_dataclass(entry) or not entry.__module__.startswith(
                standfast.__name__
            ):
                continue
            options = {}
            for field in dataclasses.fields(entry):
                if field.default is not dataclasses.MISSING:
                    options[field.name] = str(Description(field.default).content)
                elif field.default_factory is not dataclasses.MISSING:
                    options[field.name] = str(Description(field.default_factory()).content)
            found[f"{kind} {name}"] = {"version": getattr(entry, "version", 1), "defaults": options}
    return found


def find_changes(now: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """Defaults that changed under the same version, options that lost theirs, and what is not recorded yet."""
    lines = [f"{name}: not recorded" for name in now if name not in recorded]
    for name, before in recorded.items():
        here = now.get(name)
        if here is None or here["version"] > before["version"]:
            continue
        for option, default in before["defaults"].items():
            if here["defaults"].get(option) != default:
                lines.append(
                    f"{name}: {option} was {default}, is {here['defaults'].get(option)}; raise its version"
                )
        lines += [
            f"{name}: {option} is not recorded"
            for option in here["defaults"]
            if option not in before["defaults"]
        ]
    return lines


def write_defaults() -> list[str]:
    """Record what is new, and the defaults of new versions; say what changed under the same version, which stays."""
    now, recorded = list_defaults(), json.loads(FILE.read_text())
    for name, before in recorded.items():
        if name in now and find_changes({name: now[name]}, {name: before}):
            now[name] = {**before, "defaults": {**now[name]["defaults"], **before["defaults"]}}
    FILE.write_text(json.dumps(now, indent=1) + "\n")
    return find_changes(list_defaults(), now)
