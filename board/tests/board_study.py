"""A small study for the tests of submissions and verifications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import standfast

STUDY: dict[str, Any] = {
    "title": "Digits",
    "samples": 6,
    "samples_per_job": 3,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "input_x_gradient", "random"],
    "metrics": [
        {"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 3}},
        {"corruption_curve": {"samples": 2, "fractions": [0.2, 0.6, 1.0]}},
    ],
    "controls": False,
}


def run(folder: Path, **changes: Any) -> Path:
    """The folder with the results of the study."""
    standfast.run_study({**STUDY, **changes}, folder, progress=False)
    return folder
