"""The identities of the jobs of small studies of arrays, data frames and texts, which are planned and not run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch

import standfast
from standfast.explainers import get
from standfast.frames import Table
from standfast.frames.model import make_model
from standfast.metrics import Metric, WorstCase
from standfast.neighbourhoods import LinfBall, Neighbourhood, TableChanges, Typos
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.study.plan import Plan, make_plan


def change_all_columns(table: Table) -> TableChanges:
    """Changes of every column that has different cells, categories among them."""
    changes: dict[str, Any] = {}
    for column in table.columns:
        if column.kind in ("category", "flag"):
            changes[column.name] = {"categories": "data", "rate": 0.1}
        elif column.kind == "ordered":
            changes[column.name] = {"by": 1, "step": 1}
        elif column.kind in ("whole", "date"):
            changes[column.name] = {"by": max(1, round(0.1 * column.spread)), "step": 1}
        else:
            changes[column.name] = 0.1 * column.spread
    return table.bind(
        TableChanges(
            {column.name: changes[column.name] for column in table.columns if column.varies}
        )
    )


def plan_frame(
    estimator: Any,
    rows: pd.DataFrame,
    reference: pd.DataFrame,
    explainer: str = "occlusion",
    changes: Mapping[str, Any] | None = None,
    missing: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of worst cases for the rows of a frame."""
    table = Table.read(reference, rows, missing=missing)
    model = make_model(estimator, table)
    around = table.bind(TableChanges(changes)) if changes else change_all_columns(table)
    samples = Samples(table.encode(rows), bounds=table.bounds)
    return _plan(
        model, samples, explainer, WorstCase(around, similarity="spearman", budget=30), about
    )


def plan_arrays(function: Any, rows: Any, explainer: str = "occlusion") -> Plan:
    """The plan of worst cases for rows of numbers, of a function of arrays or of a module."""
    is_module = isinstance(function, torch.nn.Module)
    make = standfast.Model if is_module else standfast.Model.from_callable
    model = make(function, bounds=(0.0, 1.0))
    metric = WorstCase(LinfBall(0.1), similarity="spearman", budget=30)
    return _plan(model, Samples(torch.as_tensor(rows)), explainer, metric, None)


def plan_texts(
    model: standfast.TextModel,
    texts: Sequence[str],
    around: Neighbourhood | None = None,
    explainer: str = "occlusion",
) -> Plan:
    """The plan of worst cases for texts of the same number of words."""
    rows = model.encode(texts)
    ready = model.make_model(rows)
    lower, upper = ready.bounds
    samples = Samples(rows, bounds=(lower.cpu(), upper.cpu()))
    return _plan(ready, samples, explainer, WorstCase(around or Typos(rate=0.3), budget=30), None)


def _plan(
    model: standfast.Model,
    samples: Samples,
    explainer: str,
    metric: Metric,
    about: Mapping[str, Any] | None,
) -> Plan:
    source = LoadedModel(model, about or {})
    # else it depends on the time
    options: dict[str, Any] = {
        "device": "cpu",
        "samples_per_job": len(samples),
    }
    return make_plan(
        Grid({"d": samples}, {"m": source}, {"e": get(explainer)}, {"w": metric}, **options)
    )


def list_identities(plan: Plan) -> set[str]:
    """The identities of all jobs."""
    return {job.identity for job in plan.jobs}


def import_again(folder: Path, texts: Mapping[str, str], main: str) -> ModuleType:
    """The module `main` of a folder in which modules have these texts, as a new process would import it.

    The folder must be in `sys.path`, and `sys.dont_write_bytecode` be set, since edits follow each other quickly.
    """
    for name, text in texts.items():
        (folder / name).write_text(text)
        sys.modules.pop(Path(name).stem, None)
    importlib.invalidate_caches()
    torch.manual_seed(0)
    return importlib.import_module(main)
