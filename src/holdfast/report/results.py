"""Stored units put together again: one `Group` for each explainer and metric label, its samples in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from holdfast import similarity
from holdfast.errors import HoldfastError
from holdfast.study.store import Store, Unit

#: arrays that are kept for all samples; they may differ in length from unit to unit
LINES = ("trace_evaluations", "trace_similarity", "trace_margin")
#: arrays that are kept for the first samples only
SHOWN = ("seeds", "inputs", "seed_maps", "maps")
CURVES = ("level_stage", "level_threshold", "level_log_probability", "level_std_error")
#: samples that galleries and curves show
SHOWN_SAMPLES = 4

Array = np.ndarray[Any, Any]


@dataclass
class Group:
    """What one explainer got from one configured metric.

    Attributes:
        explainer, label: who and what.
        record: of any of its units: metric, options, headline, direction, citation.
        frame: one row per sample, sorted by sample; None where no unit was done.
        lines: traces by name, one array for each row of `frame`.
        shown: for the first evaluated samples, pictures and curves by name.
        seconds: time taken by the units that were done.
    """

    explainer: str
    label: str
    record: dict[str, Any]
    frame: pl.DataFrame | None = None
    lines: dict[str, list[Array]] = field(default_factory=dict)
    shown: dict[int, dict[str, Array]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def options(self) -> dict[str, Any]:
        """The metric's configuration."""
        return dict(self.record.get("options") or {})

    @property
    def event(self) -> str | None:
        """The event, for metrics that have one."""
        event = self.options.get("event")
        return None if event is None else str(event)

    def column(self, name: str) -> Array:
        """A numeric column as float64, NaN for null; a column that is not there is all NaN."""
        assert self.frame is not None
        if name not in self.frame.columns:
            return np.full(len(self.frame), np.nan)
        return np.asarray(self.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=float)

    def flags(self, name: str) -> Array:
        """A column of flags as booleans; False where it is not there."""
        return np.asarray(self.column(name) == 1.0)

    @property
    def samples(self) -> list[int]:
        """Sample numbers, in order."""
        return [] if self.frame is None else [int(s) for s in self.frame["sample"]]

    @property
    def ok(self) -> Array:
        """Which samples were evaluated."""
        assert self.frame is not None
        return np.asarray([status == "ok" for status in self.frame["status"]], dtype=bool)


@dataclass
class Results:
    """Everything a report is made of.

    Attributes:
        manifest: as stored.
        explainers, labels: names, in the manifest's order.
        groups: by explainer and label; only those of which a unit was tried.
        failures: records of failed units.
        missing: units that the manifest lists and that were not tried yet.
    """

    manifest: dict[str, Any]
    explainers: list[str]
    labels: list[str]
    groups: dict[tuple[str, str], Group]
    failures: list[dict[str, Any]]
    missing: int

    def of(self, label: str) -> list[Group]:
        """The groups of a label that have rows, in the order of the explainers."""
        found = (self.groups.get((name, label)) for name in self.explainers)
        return [group for group in found if group is not None and group.frame is not None]

    def example(self, label: str) -> Group | None:
        """Any group of the label, for its configuration."""
        return next((g for (_, other), g in self.groups.items() if other == label), None)


def read(store: Store) -> Results:
    """All units of a store; one unit's pictures are in memory at a time."""
    manifest = store.manifest()
    explainers, labels = list(manifest.get("explainers", {})), list(manifest.get("metrics", {}))
    groups: dict[tuple[str, str], Group] = {}
    failures: list[dict[str, Any]] = []
    frames: dict[tuple[str, str], list[pl.DataFrame]] = {}
    tried = 0
    for unit in store:
        tried += 1
        name, label = str(unit.record["explainer"]), str(unit.record["label"])
        explainers += [name] if name not in explainers else []
        labels += [label] if label not in labels else []
        group = groups.setdefault((name, label), Group(name, label, unit.record))
        if unit.frame is None:
            failures.append(unit.record)
            continue
        group.seconds += float(unit.record.get("seconds") or 0.0)
        frames.setdefault((name, label), []).append(unit.frame)
        _keep(group, unit)
    for key, parts in frames.items():
        whole = pl.concat(parts, how="diagonal_relaxed").with_row_index("__row").sort("sample")
        order = whole["__row"].to_list()
        group = groups[key]
        group.frame = whole.drop("__row")
        group.lines = {n: [rows[i] for i in order] for n, rows in group.lines.items() if len(rows) == len(order)}
    return Results(manifest, explainers, labels, groups, failures, len(manifest["units"]) - tried)


def _keep(group: Group, unit: Unit) -> None:
    assert unit.frame is not None
    for name in LINES:
        if name in unit.tensors:
            group.lines.setdefault(name, []).extend(np.array(row, dtype=float) for row in unit.tensors[name])
    arrays = {name: unit.tensors[name] for name in (*SHOWN, *CURVES) if name in unit.tensors}
    if not arrays:
        return
    rows = zip(unit.frame["sample"].to_list(), unit.frame["status"].to_list(), strict=True)
    for row, (sample, status) in enumerate(rows):
        if status == "ok":
            group.shown[int(sample)] = {name: np.array(a[row]) for name, a in arrays.items()}
    for sample in sorted(group.shown)[SHOWN_SAMPLES:]:
        del group.shown[sample]


def larger_is_closer(options: dict[str, Any]) -> bool:
    """Whether the options' similarity grows as maps get more alike; assumed of one we do not know."""
    known = _known(options)
    return True if known is None else known.larger_is_closer


def threshold(options: dict[str, Any]) -> float | None:
    """The threshold in force: the given one, or the similarity's own for the event."""
    given = options.get("threshold")
    if given is not None:
        return float(given)
    known = _known(options)
    if known is None or options.get("event") == "misclassification":
        return None
    return known.low if options.get("event") == "changed_explanation" else known.high


def _known(options: dict[str, Any]) -> similarity.Similarity | None:
    try:
        return similarity.get(str(options.get("similarity")))
    except HoldfastError:
        return None
