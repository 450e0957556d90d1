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
from standfast.checks.values import SampleValues, read_mistaken, read_sample_values
from standfast.errors import ArgumentError, StandfastError, check
from standfast.files import read_file, write_atomically
from standfast.metrics.sanity import RULES
from standfast.report import load_results
from standfast.results import StoredResults
from standfast.results.sanity import Check, Sanity
from standfast.study.store import read_rows, tensor_digest

_VALUES = "values.parquet"
_ABOUT = "baseline.json"
_SCHEMA = 1
#: of the values
_COLUMNS = {
    **dict.fromkeys(("data", "model", "label", "explainer"), pl.String),
    "sample": pl.Int64,
    **dict.fromkeys(("low", "high"), pl.Float64),
}


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
        entry = _find_entry(self.about, "data", data)
        return int(entry.get("samples") or 0)

    def begins(self, data: str, inputs: Tensor) -> bool:
        """Whether its samples are the first ones of these inputs."""
        count = self.count_samples(data)
        # a baseline without samples begins nothing
        if not 0 < count <= len(inputs):
            return False
        digest = _find_entry(self.about, "data", data).get("digest")
        return tensor_digest(inputs[:count]) == digest

    def has_model(self, data: str, model: str, manifest: Mapping[str, Any]) -> bool:
        """Whether the model of a manifest is that of the baseline, with the same weights and answers."""
        data_now = (manifest.get("data") or {}).get(data, {})
        data_then = self.about["data"][data]
        # the same network may answer differently at other samples
        if data_now.get("digest") != data_then.get("digest"):
            return False
        network_now = _find_entry(manifest, "models", model).get("network")
        network_then = _find_entry(self.about, "models", model).get("network")
        return network_now is not None and network_now == network_then

    def has_rows(self, data: str, model: str, label: str, explainer: str) -> bool:
        """Whether it has values of an explainer by a metric."""
        rows = self._select(data, model, label, explainer)
        return len(rows) > 0

    def _select(self, data: str, model: str, label: str, explainer: str) -> pl.DataFrame:
        names = {"data": data, "model": model, "label": label, "explainer": explainer}
        conditions = [pl.col(column) == name for column, name in names.items()]
        return self.frame.filter(*conditions)

    def read_sanity(self, data: str, model: str, explainer: str) -> Sanity | None:
        """The sanity checks of an explainer; None without any, or if they have other rules than those of now."""
        # other rules decide otherwise, so the two could not be compared
        about_sanity = self.about.get("sanity") or {}
        if about_sanity.get("rules") != RULES:
            return None
        checks = self.about.get("checks") or {}
        stored = checks.get(data, {}).get(model, {}).get(explainer)
        if stored is None:
            return None
        return restore_sanity(stored)

    def values(
        self, data: str, model: str, label: str, explainer: str, results: StoredResults
    ) -> SampleValues:
        """The values of one explainer, if they were measured in the same way on the same data.

        Raises:
            ArgumentError: they were not, or there are none.
        """
        rows = self.find_rows(data, model, label, explainer, results.manifest)
        samples, low, high = (
            np.asarray(rows[column].to_numpy()) for column in ("sample", "low", "high")
        )
        mistaken = read_mistaken(results.metrics[label].spec)
        return SampleValues(samples, low, high, 0, mistaken)

    def find_rows(
        self, data: str, model: str, label: str, explainer: str, manifest: Mapping[str, Any]
    ) -> pl.DataFrame:
        """The rows of one explainer, if they were measured as the manifest says, on the same data.

        Raises:
            ArgumentError: they were not, or there are none.
        """
        self._check_measured("data", data, ("bounds",), manifest)
        self._check_measured("metrics", label, ("metric", "options"), manifest)
        self._check_measured("explainers", explainer, None, manifest)
        # data sets that begin with its samples were compared already
        if data not in (self.first or ()):
            self._check_samples(data, manifest)
        rows = self._select(data, model, label, explainer)
        # an explainer may have no value, such as one whose maps are all constant; a model that is missing is a mistake
        pairs = self.about.get("pairs") or []
        is_known = len(rows) > 0 or [data, model] in pairs
        what = ", ".join((data, model, label, explainer))
        check(is_known, "no_worse_than", f"a baseline with values of {what}", self.name)
        return rows

    def _check_measured(
        self, section: str, name: str, keys: tuple[str, ...] | None, manifest: Mapping[str, Any]
    ) -> None:
        """Check that the baseline and a manifest say the same of a data set, a metric or an explainer.

        Args:
            section: of both, such as `"metrics"`.
            name: in the section.
            keys: what must be the same; None for all.
            manifest: of results.
        """
        section_now = manifest.get(section) or {}
        section_then = self.about.get(section) or {}
        now = section_now.get(name)
        then = section_then.get(name)
        if then is None:
            raise ArgumentError("no_worse_than", f"a baseline with {section} {name!r}", self.name)
        if keys is not None:
            entries_now = now or {}
            now = {key: entries_now.get(key) for key in keys}
            then = {key: then.get(key) for key in keys}
        expected = f"a baseline with the same {section} {name!r} as these results"
        check(now == then, "no_worse_than", expected, f"{self.name}, which differs in it")

    def _check_samples(self, data: str, manifest: Mapping[str, Any]) -> None:
        """Check that the baseline was measured on the samples of a manifest."""
        now = _find_entry(manifest, "data", data)
        then = _find_entry(self.about, "data", data)
        expected = f"a baseline with the same data {data!r} as these results"
        if self.first is not None:
            expected += ", or with the first samples of them"
        counts = f"{then.get('samples')}, here {now.get('samples')}"
        got = f"{self.name}, which differs in the number of samples or in their values ({counts})"
        check(now.get("digest") == then.get("digest"), "no_worse_than", expected, got)


def _find_entry(about: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    """What a manifest or a baseline says of a data set or a model; empty if nothing."""
    entries = about.get(section) or {}
    return entries.get(name) or {}


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
    opened = results if isinstance(results, StoredResults) else load_results(results)
    folder = Path(out)
    check(folder.is_dir() or not folder.exists(), "out", "a folder", f"{out}, a file")
    # results that were compared once must stay comparable
    check(
        not (folder / _ABOUT).exists(),
        "out",
        "a folder without a baseline, since one does not change",
        str(out),
    )
    frozen = list(_read_all(opened))
    rows = [row for values in frozen for row in _list_rows(values)]
    check(bool(rows), "results", "results with values", repr(opened))
    frame = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    content = buffer.getvalue()
    sections = (
        "data",
        "models",
        "pairs",
        "explainers",
        "metrics",
        "sanity",
        "seed",
        "repeats",
        "environment",
        "about",
    )
    about = {
        "standfast_baseline": _SCHEMA,
        "sha256": hashlib.sha256(content).hexdigest(),
        **{section: opened.manifest.get(section) for section in sections},
        "checks": _describe_sanity(opened),
    }
    folder.mkdir(parents=True, exist_ok=True)
    # the values first, so that a folder with the list is complete
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
                rows = view.rows_for(explainer)
                values = read_sample_values(metric.spec, rows)
                yield Frozen(data, model, metric, explainer, values)


def _list_rows(frozen: Frozen) -> list[tuple[str, str, str, str, int, float, float]]:
    names = (frozen.data, frozen.model, frozen.metric.name, frozen.explainer)
    values = frozen.values
    columns = (values.samples.tolist(), values.low.tolist(), values.high.tolist())
    numbers = zip(*columns, strict=True)
    return [(*names, *sample) for sample in numbers]


def _describe_sanity(results: StoredResults) -> dict[str, dict[str, dict[str, Any]]]:
    """The sanity checks by data, model and explainer, as plain values."""
    checks: dict[str, dict[str, dict[str, Any]]] = {}
    for (data, model, explainer), sanity in results.sanity.items():
        of_models = checks.setdefault(data, {})
        of_explainers = of_models.setdefault(model, {})
        of_explainers[explainer] = asdict(sanity)
    return checks


def restore_sanity(stored: Mapping[str, Any]) -> Sanity:
    """Sanity checks from plain values."""
    checks = [Check(**check) for check in stored["checks"]]
    return Sanity(tuple(checks))


def read_baseline(path: str | Path, folder: str | Path = ".") -> Baseline:
    """Open a baseline; a relative path is tried in `folder` first, and then where the process runs.

    Raises:
        ArgumentError: there is none.
        StandfastError: its values are not those that were frozen.
    """
    folders = [
        candidate
        for candidate in (Path(folder) / path, Path(path))
        # a relative path of a study is meant from its folder, as `standfast check` runs anywhere
        if (candidate / _ABOUT).is_file()
    ]
    if not folders:
        raise ArgumentError(
            "no_worse_than", "the folder of a baseline (`standfast baseline` makes one)", str(path)
        )
    opened = folders[0]
    try:
        about = json.loads(read_file(opened / _ABOUT))
        content = read_file(opened / _VALUES)
        # the list has the digest, so a changed value is noticed
        if hashlib.sha256(content).hexdigest() != about["sha256"]:
            raise StandfastError(
                f"{opened}: the values are not those that were frozen (SHA-256 differs)"
            )
        return Baseline(str(path), about, read_rows(content))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # a file from elsewhere may be anything
        raise StandfastError(f"{opened}: not a baseline that can be read: {error}") from error
