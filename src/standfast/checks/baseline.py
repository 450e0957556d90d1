"""A baseline: the values of stored results, frozen as a reference for later ones.

A baseline is a folder with two files: `values.parquet`, a row for each data set, model, metric, explainer and sample;
and `baseline.json`, which says what was measured and how, with the SHA-256 of the values, and where each explainer
stands in the sanity checks. Its values do not change when the results they come from do.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from standfast.checks.obstacles import Frozen, find_obstacles
from standfast.checks.values import SampleValues, read_mistaken, read_values
from standfast.errors import ArgumentError, StandfastError, check
from standfast.files import read_file, write_atomically
from standfast.metrics.sanity import RULES
from standfast.report import load_results
from standfast.results import StoredResults
from standfast.results.sanity import Check, Sanity
from standfast.study.store import read_rows, tensor_digest

_VALUES, _ABOUT = "values.parquet", "baseline.json"
_SCHEMA = 1


@dataclass(frozen=True)
class Baseline:
    """A frozen reference.

    Attributes:
        name: its folder.
        about: what was measured: digests of data and models, options of metrics and explainers.
        frame: the values, with the bounds between which each lies.
        first: data sets of which it has the first samples, so that their number may be another; None if not known.
    """

    name: str
    about: dict[str, Any]
    frame: pl.DataFrame
    first: frozenset[str] | None = None

    def count_samples(self, data: str) -> int:
        """How many samples of a data set it has; 0 without the data set."""
        return int(((self.about.get("data") or {}).get(data) or {}).get("samples") or 0)

    def begins(self, data: str, inputs: Tensor) -> bool:
        """Whether its samples are the first ones of these inputs."""
        count = self.count_samples(data)
        about = (self.about.get("data") or {}).get(data) or {}
        return 0 < count <= len(inputs) and tensor_digest(inputs[:count]) == about.get("digest")

    def has_model(self, data: str, model: str, manifest: Mapping[str, Any]) -> bool:
        """Whether the model of a manifest is that of the baseline, with the same weights and answers."""
        if (manifest.get("data") or {}).get(data, {}).get("digest") != self.about["data"][data].get("digest"):
            return False  # answers at other samples
        now, then = (((about.get("models") or {}).get(model) or {}).get("network") for about in (manifest, self.about))
        return now is not None and now == then

    def has_rows(self, data: str, model: str, label: str, explainer: str) -> bool:
        """Whether it has values of an explainer by a metric."""
        return len(self._select(data, model, label, explainer)) > 0

    def _select(self, data: str, model: str, label: str, explainer: str) -> pl.DataFrame:
        place = {"data": data, "model": model, "label": label, "explainer": explainer}
        return self.frame.filter(*(pl.col(column) == name for column, name in place.items()))

    def read_sanity(self, data: str, model: str, explainer: str) -> Sanity | None:
        """The sanity checks of an explainer; None without any, or if they have other rules than those of now."""
        if (self.about.get("sanity") or {}).get("rules") != RULES:
            return None
        checks = self.about.get("checks") or {}
        stored = checks.get(data, {}).get(model, {}).get(explainer)
        return None if stored is None else restore_sanity(stored)

    def values(self, data: str, model: str, label: str, explainer: str, results: StoredResults) -> SampleValues:
        """The values of one explainer, if they were measured in the same way on the same data.

        Raises:
            ArgumentError: they were not, or there are none.
        """
        found = self.find_rows(data, model, label, explainer, results.manifest)
        samples, low, high = (np.asarray(found[name].to_numpy()) for name in ("sample", "low", "high"))
        return SampleValues(samples, low, high, 0, read_mistaken(results.metrics[label].spec))

    def find_rows(self, data: str, model: str, label: str, explainer: str, manifest: Mapping[str, Any]) -> pl.DataFrame:
        """The rows of one explainer, if they were measured as the manifest says, on the same data.

        Raises:
            ArgumentError: they were not, or there are none.
        """
        for section, name, keys in (
            ("data", data, ("bounds",)),
            ("metrics", label, ("metric", "options")),
            ("explainers", explainer, None),
        ):
            now, then = ((about.get(section) or {}).get(name) for about in (manifest, self.about))
            if then is None:
                raise ArgumentError("no_worse_than", f"a baseline with {section} {name!r}", self.name)
            now, then = ((each if keys is None else {k: (each or {}).get(k) for k in keys}) for each in (now, then))
            same = f"a baseline with the same {section} {name!r} as these results"
            check(now == then, "no_worse_than", same, f"{self.name}, which differs in it")
        if data not in (self.first or ()):
            now, then = ((about.get("data") or {}).get(data) or {} for about in (manifest, self.about))
            count, here = then.get("samples"), now.get("samples")
            same = f"a baseline with the same data {data!r} as these results"
            same += "" if self.first is None else ", or with the first samples of them"
            got = f"{self.name}, which differs in the number of samples or in their values ({count}, here {here})"
            check(now.get("digest") == then.get("digest"), "no_worse_than", same, got)
        found = self._select(data, model, label, explainer)
        # an explainer may have no value, such as one whose maps are all constant; a model that is missing is a mistake
        is_known = len(found) > 0 or [data, model] in (self.about.get("pairs") or [])
        what = ", ".join((data, model, label, explainer))
        check(is_known, "no_worse_than", f"a baseline with values of {what}", self.name)
        return found


def freeze_baseline(results: str | Path | StoredResults, out: str | Path) -> Path:
    """Store the values of results as a baseline, in a new folder.

    Args:
        results: a folder or an fsspec address of stored results, or opened ones.
        out: the folder of the baseline.

    Raises:
        ArgumentError: there are no results, or the folder has a baseline already.

    Warns:
        UserWarning: something in it can never pass, such as a metric with values of too few samples.
    """
    opened, folder = results if isinstance(results, StoredResults) else load_results(results), Path(out)
    check(folder.is_dir() or not folder.exists(), "out", "a folder", f"{out}, a file")
    check(not (folder / _ABOUT).exists(), "out", "a folder without a baseline, since one does not change", str(out))
    frozen = list(_read_all(opened))
    rows = [row for each in frozen for row in _list_rows(each)]
    check(bool(rows), "results", "results with values", repr(opened))
    names = {**dict.fromkeys(("data", "model", "label", "explainer"), pl.String), "sample": pl.Int64}
    frame = pl.DataFrame(rows, schema={**names, "low": pl.Float64, "high": pl.Float64}, orient="row")
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    content = buffer.getvalue()
    sections = ("data", "models", "pairs", "explainers", "metrics", "sanity", "seed", "repeats", "environment", "about")
    about = {
        "standfast_baseline": _SCHEMA,
        "sha256": hashlib.sha256(content).hexdigest(),
        **{section: opened.manifest.get(section) for section in sections},
        "checks": _describe_sanity(opened),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _VALUES, content)
    write_atomically(folder / _ABOUT, json.dumps(about, indent=1).encode())
    for sentence in find_obstacles(opened, frozen):
        warnings.warn(sentence, stacklevel=2)
    return folder


def _read_all(results: StoredResults) -> Iterator[Frozen]:
    """The values of all explainers by all metrics."""
    for data, model in results.pairs:
        for label, metric in results.metrics.items():
            view = results.metric_results(data, model, label)
            for explainer in view.present:
                values = read_values(metric.spec, view.rows_for(explainer))
                yield Frozen(data, model, metric, explainer, values)


def _list_rows(frozen: Frozen) -> list[tuple[str, str, str, str, int, float, float]]:
    place = (frozen.data, frozen.model, frozen.metric.name, frozen.explainer)
    values = frozen.values
    numbers = zip(values.samples.tolist(), values.low.tolist(), values.high.tolist(), strict=True)
    return [(*place, *sample) for sample in numbers]


def _describe_sanity(results: StoredResults) -> dict[str, dict[str, dict[str, Any]]]:
    """The sanity checks by data, model and explainer, as plain values."""
    checks: dict[str, dict[str, dict[str, Any]]] = {}
    for (data, model, explainer), sanity in results.sanity.items():
        checks.setdefault(data, {}).setdefault(model, {})[explainer] = asdict(sanity)
    return checks


def restore_sanity(stored: Mapping[str, Any]) -> Sanity:
    """Sanity checks from plain values."""
    return Sanity(tuple(Check(**check) for check in stored["checks"]))


def read_baseline(path: str | Path, folder: str | Path = ".") -> Baseline:
    """Open a baseline; a relative path is tried in `folder` first, and then where the process runs.

    Raises:
        ArgumentError: there is none.
        StandfastError: its values are not those that were frozen.
    """
    place = next((base for base in (Path(folder) / path, Path(path)) if (base / _ABOUT).is_file()), None)
    if place is None:
        raise ArgumentError("no_worse_than", "the folder of a baseline (`standfast baseline` makes one)", str(path))
    try:
        about = json.loads(read_file(place / _ABOUT))
        content = read_file(place / _VALUES)
        if hashlib.sha256(content).hexdigest() != about["sha256"]:
            raise StandfastError(f"{place}: the values are not those that were frozen (SHA-256 differs)")
        return Baseline(str(path), about, read_rows(content))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StandfastError(f"{place}: not a baseline that can be read: {error}") from error
