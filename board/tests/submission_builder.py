"""Submissions from plain numbers, without a study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from standfast.tensors import Array

#: digests of inputs and of a network
DATA, NETWORK = "0" * 16, "1" * 16
OPTIONS: dict[str, dict[str, Any]] = {
    "senc": {"masks": 100, "preset": "quick"},
    "worst": {"event": "changed_explanation", "similarity": "pearson", "budget": 50},
}
METRICS = {"senc": "data_sensitivity_consistency", "worst": "worst_case"}


def build(
    values: Mapping[str, Mapping[str, Sequence[float] | Array]],
    *,
    name: str = "mine",
    data: str = DATA,
    network: str = NETWORK,
    options: Mapping[str, Mapping[str, Any]] = OPTIONS,
    flags: Mapping[str, Sequence[bool]] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The content of a submission with these values: by label and explainer, one for each sample.

    `flags` has the column `found` of `"worst"` by explainer; True for all by default.
    """
    explainers = list(dict.fromkeys(name for each in values.values() for name in each))
    count = len(next(iter(next(iter(values.values())).values())))
    jobs = []
    columns = {}
    for label, own in values.items():
        columns[label] = {
            "sample": "Int64",
            "status": "String",
            **dict.fromkeys(("value", "low", "high"), "Float64"),
        }
        if label == "worst":
            columns[label] |= {"found": "Boolean", "misinterpreted": "Boolean"}
        for explainer, numbers in own.items():
            rows: dict[str, list[Any]] = {"sample": list(range(count)), "status": ["ok"] * count}
            rows |= {
                "value": list(map(float, numbers)),
                "low": [None] * count,
                "high": [None] * count,
            }
            if label == "worst":
                found = list((flags or {}).get(explainer, [True] * count))
                rows |= {"found": found, "misinterpreted": [False] * count}
            identity = hashlib.sha256(f"{label}/{explainer}/{numbers}".encode()).hexdigest()[:16]
            place: dict[str, Any] = {
                "data": "d",
                "model": "m",
                "explainer": explainer,
                "label": label,
                "repeat": 0,
            }
            place |= {"job": identity, "start": 0, "stop": count}
            jobs.append({**place, "seconds": 0.5, "values": rows, "arrays": {}})
    manifest = {
        "data": {
            "d": {
                "samples": count,
                "digest": data,
                "bounds": [[0.0, 0.0], [1.0, 1.0]],
                "targets": "predicted",
            }
        },
        "models": {"m": {"digest": network, "network": network}},
        "explainers": {each: {"name": each} for each in explainers},
        "controls": [],
        "metrics": {
            k: {"metric": METRICS[k], "direction": "higher", "options": dict(options[k])}
            for k in values
        },
        "seed": seed,
        "repeats": 1,
    }
    about = {"standfast_submission": 1, "name": name, "by": "somebody", "note": ""}
    return {
        **about,
        "manifest": manifest,
        "planned": len(jobs),
        "columns": columns,
        "jobs": jobs,
        "failed": [],
    }


def seal(content: Mapping[str, Any]) -> bytes:
    """The file of such a content."""
    kept = {key: value for key, value in content.items() if key != "seal"}
    return dump({**kept, "seal": hashlib.sha256(dump(kept)).hexdigest()})


def dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def write(folder: Path, *contents: Mapping[str, Any]) -> Path:
    """A folder with these submissions."""
    folder.mkdir(exist_ok=True, parents=True)
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_bytes(seal(content))
    return folder


def draw_values(count: int = 12, gap: float = 0.3) -> dict[str, dict[str, Array]]:
    """Values of SenC by explainer: the first is better than the second by about `gap`, the third about as good."""
    lrp, saliency, deeplift, random = np.random.default_rng(0).normal(size=(4, count)) * 0.05
    base = np.linspace(0.1, 0.5, count)
    better = base + gap
    return {
        "senc": {
            "lrp": better + lrp,
            "saliency": base + saliency,
            "deeplift": better + deeplift,
            "random": random,
        }
    }


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value at a place such as `jobs.0.start`."""

    def edit(content: dict[str, Any]) -> None:
        *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        place: Any = content
        for key in keys:
            place = place[key]
        place[last] = value

    return edit
