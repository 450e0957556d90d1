"""A baseline: the values of stored results, frozen as a reference for later ones.

A baseline is a folder with two files: `values.parquet`, a row for each data set, model, metric, explainer and sample;
and `baseline.json`, which says what was measured and how, with the SHA-256 of the values. Its values do not change when
the results they come from do.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from standfast.checks.values import SampleValues, read_mistaken, read_values
from standfast.errors import ArgumentError, StandfastError, check
from standfast.files import read_file, write_atomically
from standfast.report import load_results
from standfast.results import StoredResults
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
        place = {"data": data, "model": model, "label": label, "explainer": explainer}
        found = self.frame
        for column, name in place.items():
            found = found.filter(pl.col(column) == name)
        what = ", ".join(place.values())
        check(len(found) > 0, "no_worse_than", f"a baseline with values of {what}", self.name)
        return found


def freeze_baseline(results: str | Path | StoredResults, out: str | Path) -> Path:
    """Store the values of results as a baseline, in a new folder.

    Args:
        results: a folder or an fsspec address of stored results, or opened ones.
        out: the folder of the baseline.

    Raises:
        ArgumentError: there are no results, or the folder has a baseline already.
    """
    opened, folder = results if isinstance(results, StoredResults) else load_results(results), Path(out)
    check(folder.is_dir() or not folder.exists(), "out", "a folder", f"{out}, a file")
    check(not (folder / _ABOUT).exists(), "out", "a folder without a baseline, since one does not change", str(out))
    rows = []
    for data, model in opened.pairs:
        for label, known in opened.metrics.items():
            view = opened.metric_results(data, model, label)
            for explainer in view.present:
                values = read_values(known.spec, view.rows_for(explainer))
                numbers = zip(values.samples.tolist(), values.low.tolist(), values.high.tolist(), strict=True)
                rows += [(data, model, label, explainer, *each) for each in numbers]
    check(bool(rows), "results", "results with values", repr(opened))
    names = {**dict.fromkeys(("data", "model", "label", "explainer"), pl.String), "sample": pl.Int64}
    frame = pl.DataFrame(rows, schema={**names, "low": pl.Float64, "high": pl.Float64}, orient="row")
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    content = buffer.getvalue()
    sections = ("data", "models", "explainers", "metrics", "seed", "repeats", "environment", "about")
    about = {
        "standfast_baseline": _SCHEMA,
        "sha256": hashlib.sha256(content).hexdigest(),
        **{section: opened.manifest.get(section) for section in sections},
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _VALUES, content)
    write_atomically(folder / _ABOUT, json.dumps(about, indent=1).encode())
    return folder


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
