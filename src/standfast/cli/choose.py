"""`standfast choose`: a race of explainers of a model and data from files, or of those of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from standfast.cli.new_study import read_bounds, read_task
from standfast.cli.reasons import load_setting, take_inputs
from standfast.race import RaceOutcome, choose, choose_by_study


def choose_from_files(
    model: str,
    data: str,
    samples: int | None,
    sources: Mapping[str, Any],
    options: Mapping[str, Any],
) -> RaceOutcome:
    """Race on a model and data from files.

    Args:
        model, data: as `standfast init` takes them.
        samples: take so many from the start of the data; None for all.
        sources: what else says how they are read: `weights`, `label`, `task`, `reference`, `bounds`, `trust`; None
            where they are not given.
        options: of `standfast.choose`; None where they are not given.

    Raises:
        ArgumentError: something is not there, or does not fit.
    """
    read = dict(sources)
    read["task"] = read_task(read["task"])
    if read["bounds"] is not None:
        read["bounds"] = list(read_bounds(read["bounds"]))
    setting = load_setting(model, data, **read)
    count = len(setting.samples)
    if samples is not None:
        count = min(samples, count)
    rows = list(range(count))
    loaded, inputs, reference = take_inputs(setting, rows)
    named_options = {name: value for name, value in options.items() if value is not None}
    return choose(loaded, inputs, reference=reference, **named_options)


def write_command(study: Path | None, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of the command with these options.

    >>> write_command(None, {"model": "lenet5-mnist", "metric": ["aopc"], "minutes": 5.0, "trust": True, "by": None})
    ('standfast', 'choose', '--model', 'lenet5-mnist', '--metric', 'aopc', '--minutes', '5', '--trust')
    """
    words = ["standfast", "choose"]
    if study is not None:
        words.append(str(study))
    for name, value in given.items():
        for entry in value if isinstance(value, list) else [value]:
            if entry is None or entry is False:
                continue
            words.append(f"--{name}")
            if entry is not True:
                words.append(f"{entry:g}" if isinstance(entry, float) else str(entry))
    return tuple(words)


def choose_in_study(study: Path, options: Mapping[str, Any]) -> RaceOutcome:
    """Race with the explainers of a study.

    Args:
        study: its file.
        options: `by`, `budget`, `level`, `minutes`, `workers` and `out`, in the place of what the file says; None where
            they are not given.

    Raises:
        StudyError: something in the file does not fit.
        ArgumentError: it has several models or data sets, or another option does not fit.
    """
    return choose_by_study(study, **options)
