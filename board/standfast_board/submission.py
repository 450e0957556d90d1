"""A submission: the results of a study in one file, which is read without running anything that is in it.

The file is JSON, also compressed with gzip where its name ends with `.gz`. It has

- who submits it, under which name, and a note;
- the manifest of the results: the study, the configuration of explainers and metrics, the digests of data, models and
  code, versions and machine;
- for each job the numbers of its samples (values, intervals, flags), and the arrays that a comparison of explainers
  needs, such as corruption curves;
- the jobs that failed, and a seal: the SHA-256 of the rest.

Numbers are as exact as the results themselves. Inputs, maps, texts and weights are not in it.

The seal shows that a file is damaged. It does not show who made the numbers: anybody can seal what they like.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from standfast import ArgumentError, StandfastError, load_results
from standfast.metrics.sanity import SanityChecks
from standfast.report import Results
from standfast.report.presentation import presentation_of
from standfast.report.words import words_of
from standfast.results import registered_spec

Array = np.ndarray[Any, Any]

SCHEMA = 1
#: how large a file may be, also when it is unpacked
LARGEST = 100_000_000
#: how many lists and objects there may be in a file; in memory each is many times larger than its two brackets
MOST_PARTS = 2_000_000
_KEY = "standfast_submission"
_STATUSES = ("ok", "misclassified", "no_answer", "degenerate", "nonfinite")
#: what a column of numbers can be; other columns are not submitted
_TYPES = {
    str(kind): kind
    for kind in (
        pl.Boolean,
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.UInt8,
        pl.Float32,
        pl.Float64,
        pl.String,
    )
}
#: what says where a row belongs, and with its job is the same for all rows of the job
_COORDINATES = ("data", "model", "explainer", "label", "metric", "repeat")
_PLACE = (*_COORDINATES, "job")
#: what of a manifest is not submitted: jobs are listed with their numbers, texts of samples are data, and a command and
#: the place of the study file have folders of whoever ran it. How the numbers of a metric are read is for the board to
#: say, by the metric that it has: a submission could turn a ranking round
_LEFT_OUT = {
    "manifest": ("schema", "jobs", "origin"),
    "data": ("tokens",),
    "metrics": ("values", "controls"),
    "about": ("command",),
}


class SubmissionError(StandfastError):
    """A file is no submission, or it is damaged; the message says what is wrong, and where."""


# What a file must look like

Name = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Options = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class _Open(BaseModel):
    """A part that may have further entries, which are shown and not used."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")


class _Data(_Open):
    samples: int = Field(ge=1)
    digest: Digest


class _Model(_Open):
    digest: Digest


class _Metric(_Open):
    metric: Name
    direction: Literal["higher", "lower"] | None
    options: Options
    citation: str = ""


class _Manifest(_Open):
    data: dict[Name, _Data] = Field(min_length=1)
    models: dict[Name, _Model] = Field(min_length=1)
    explainers: dict[Name, Options] = Field(min_length=1)
    metrics: dict[Name, _Metric] = Field(min_length=1)
    controls: list[Name] = []
    seed: int
    repeats: int = Field(ge=1)
    study: Options | None = None
    environment: Options = {}
    about: Options = {}
    code: dict[str, str] = {}


class _Stored(_Part):
    type: Literal[
        "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"
    ]
    shape: list[Annotated[int, Field(ge=0)]]
    values: list[Any]


class _Place(_Part):
    job: Digest
    data: Name
    model: Name
    explainer: Name
    label: Name
    repeat: int = Field(ge=0)
    start: int = Field(ge=0)
    stop: int


class _Job(_Place):
    seconds: float = Field(ge=0)
    values: dict[str, list[Any]]
    arrays: dict[str, _Stored] = {}


class _Failure(_Place):
    error: str


class _File(_Part):
    standfast_submission: Literal[1]
    name: Annotated[str, Field(max_length=200)]
    by: Annotated[str, Field(max_length=200)]
    note: Annotated[str, Field(max_length=5000)]
    manifest: _Manifest
    planned: int = Field(ge=1)
    columns: dict[Name, dict[str, str]]
    jobs: list[_Job] = Field(min_length=1)
    failed: list[_Failure]
    seal: str


# What a file is


@dataclass(frozen=True, eq=False)
class Submission:
    """The results of a study as they were submitted.

    Attributes:
        name, by, note: what it is called, who submits it, and anything else to say; each may be empty.
        results: configuration and numbers, as of `standfast.load_results`.
        digest: SHA-256 of the content, which stands for the submission.
        content: the file, not compressed.
    """

    name: str
    by: str
    note: str
    results: Results
    digest: str
    content: bytes = field(repr=False)

    def __repr__(self) -> str:
        return f"Submission({self.title!r}, {self.digest[:12]}, {self.results.jobs.height} jobs)"

    @property
    def title(self) -> str:
        """Its name, or that of its study, or the start of its digest."""
        return (
            self.name or str(self.manifest.get("about", {}).get("title") or "") or self.digest[:12]
        )

    @property
    def manifest(self) -> dict[str, Any]:
        """The configuration, the digests and the versions."""
        return self.results.manifest


def make_submission(
    results: str | Path | Results, out: str | Path, name: str = "", by: str = "", note: str = ""
) -> Submission:
    """Write the results of a study as a submission.

    Args:
        results: a folder or an fsspec address of stored results, or opened ones.
        out: the file, which ends with `.json`, or with `.json.gz` for a compressed one.
        name: what the board calls the submission; the title of the study by default.
        by: who submits it, as it is to be shown.
        note: anything that a reader should know.

    Returns:
        The submission, read back from the file.

    Raises:
        ArgumentError: no results, none that are done, or another ending.
        SubmissionError: the results cannot be submitted, such as those of an earlier version.
    """
    path = Path(out)
    if not path.name.endswith((".json", ".json.gz")):
        raise ArgumentError("out", "a file that ends with .json or .json.gz", str(out))
    findings = results if isinstance(results, Results) else load_results(results)
    done = findings.jobs.filter(pl.col("status") == "done")
    if not done.height:
        raise ArgumentError("results", "results with a job that is done", repr(findings))
    content = {
        _KEY: SCHEMA,
        "name": name,
        "by": by,
        "note": note,
        "manifest": _name_all_specials(_describe(findings.manifest)),
        "planned": findings.planned,
        **_list_jobs(findings, done),
        "failed": [
            {**_place_of(row), "error": str(row["error"]).strip().partition("\n")[0][:300]}
            for row in findings.failures
        ],
    }
    packed = _seal(content)
    if path.name.endswith(".gz"):  # without the time, so that the same results give the same file
        packed = gzip.compress(packed, mtime=0)
    try:
        made = parse_submission(packed)
    except SubmissionError as error:
        raise SubmissionError(f"these results cannot be submitted: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")  # an interruption leaves no half of a submission
    part.write_bytes(packed)
    part.replace(path)
    return made


def _describe(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a manifest that is submitted."""
    kept = {key: value for key, value in manifest.items() if key not in _LEFT_OUT["manifest"]}
    parts = (manifest.get("data") or {}).items()
    kept["data"] = {
        name: {k: v for k, v in about.items() if k not in _LEFT_OUT["data"]}
        for name, about in parts
    }
    about = manifest.get("about") or {}
    kept["about"] = {key: value for key, value in about.items() if key not in _LEFT_OUT["about"]}
    kept["metrics"] = _leave_out_readings(manifest.get("metrics") or {})
    return kept


def _leave_out_readings(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The metrics of a manifest without what it says about reading their numbers."""
    return {
        label: {key: value for key, value in about.items() if key not in _LEFT_OUT["metrics"]}
        for label, about in metrics.items()
    }


def _place_of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _Place.model_fields}


def _list_jobs(findings: Results, done: pl.DataFrame) -> dict[str, Any]:
    """The types of the columns of each label, and the numbers of each job."""
    columns: dict[str, dict[str, str]] = {}
    needed: dict[str, tuple[str, ...]] = {}
    every = [findings.samples, findings.sanity_rows]
    frames = [frame for whole in every if len(whole) for frame in whole.partition_by("label")]
    for frame in frames:
        label = frame["label"][0]
        kept = [
            c
            for c in frame.get_columns()
            if c.null_count() < len(c) or c.name in ("value", "low", "high")
        ]
        kept = [c for c in kept if c.name not in _PLACE and str(c.dtype) in _TYPES]
        columns[str(label)] = {column.name: str(column.dtype) for column in kept}
        metric = findings.metrics.get(str(label))
        needed[str(label)] = () if metric is None else metric.spec.compared_arrays
    rows = {
        key: rows
        for frame in frames
        for key, rows in frame.partition_by("job", as_dict=True).items()
    }
    jobs = []
    for record in done.iter_rows(named=True):
        label, job = record["label"], record["job"]
        frame = rows[(job,)]
        arrays = findings.artefacts(job) if needed[label] and record["artefacts"] else {}
        jobs.append(
            {
                **_place_of(record),
                "seconds": round(float(record["seconds"] or 0.0), 3),
                "values": {
                    name: _name_all_specials(frame[name].to_list()) for name in columns[label]
                },
                "arrays": {name: _store(arrays[name]) for name in needed[label] if name in arrays},
            }
        )
    return {"columns": columns, "jobs": jobs}


def _name_all_specials(value: Any) -> Any:
    """The same values with infinity and NaN as texts, which JSON does not have as numbers."""
    if isinstance(value, Mapping):
        return {key: _name_all_specials(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_name_all_specials(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _store(array: Array) -> dict[str, Any]:
    return {
        "type": str(array.dtype),
        "shape": list(array.shape),
        "values": _name_all_specials(array.ravel().tolist()),
    }


def _seal(content: Mapping[str, Any]) -> bytes:
    """The only bytes that this content has, with the SHA-256 of the rest at the end."""
    return _dump({**content, "seal": hashlib.sha256(_dump(content)).hexdigest()})


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


# Reading


def read_submission(path: str | Path) -> Submission:
    """The submission in a file. Nothing that is in the file is run.

    Raises:
        SubmissionError: the file cannot be read, is too large, damaged, or no submission.
    """
    try:
        with Path(path).open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        raise SubmissionError(f"the file cannot be read: {error.strerror or error}") from error
    return parse_submission(content)


def parse_submission(content: bytes) -> Submission:
    """The submission of these bytes, which may be compressed.

    Raises:
        SubmissionError: as `read_submission`.
    """
    content = _unpack(content)
    try:
        raw = json.loads(content, parse_constant=_refuse_constant)
        if not isinstance(raw, dict) or _KEY not in raw:
            raise SubmissionError("it is no submission, which has the key standfast_submission")
        if raw[_KEY] != SCHEMA:
            raise SubmissionError(
                f"it is a submission of version {raw[_KEY]!r}; this standfast reads version {SCHEMA}"
            )
        if _seal({name: value for name, value in raw.items() if name != "seal"}) != _dump(raw):
            raise SubmissionError("it was changed after it was written: its SHA-256 differs")
    except (ValueError, RecursionError) as error:
        raise SubmissionError(f"it is no JSON: {error or 'brackets within brackets'}") from error
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise SubmissionError(f"{where}: {first['msg']}{more}") from error
    results = _read_results(file, raw["manifest"])
    try:  # options and numbers that nobody can read are found here and not in the site
        results.table()
        for about in file.manifest.metrics.values():
            spec = registered_spec(about.metric, about.options, about.direction)
            words_of(presentation_of(about.metric)).question(about.options, spec)
    except Exception as error:
        raise SubmissionError(
            f"its numbers cannot be read: {type(error).__name__}: {error}"
        ) from error
    return Submission(file.name, file.by, file.note, results, file.seal, content)


def _unpack(content: bytes) -> bytes:
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SubmissionError(f"it cannot be unpacked: {error}") from error
    if len(content) > LARGEST:
        raise SubmissionError(f"it is larger than {LARGEST:,} bytes")
    if content.count(b"[") + content.count(b"{") > MOST_PARTS:
        raise SubmissionError(f"it has more than {MOST_PARTS:,} lists and objects")
    return content


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _read_results(file: _File, manifest: dict[str, Any]) -> Results:
    """The rows of all jobs as results."""
    types = {label: _read_types(label, columns) for label, columns in file.columns.items()}
    frames: dict[str, list[pl.DataFrame]] = {}
    records, arrays = [], {}
    for number, job in enumerate(file.jobs):
        where = f"jobs.{number}"
        _check_place(job, file, where)
        frames.setdefault(job.label, []).append(_read_rows(job, file, types, where))
        if job.arrays:
            arrays[job.job] = {
                name: _read_array(each, f"{where}.arrays.{name}")
                for name, each in job.arrays.items()
            }
            for name, array in arrays[job.job].items():
                if array.ndim < 1 or len(array) != job.stop - job.start:
                    raise SubmissionError(
                        f"{where}.arrays.{name}: expected {job.stop - job.start} rows"
                    )
        done = {"status": "done", "artefacts": bool(job.arrays), "seconds": job.seconds}
        records.append({**_record_of(job, file), **done})
    for number, failure in enumerate(file.failed):
        _check_place(failure, file, f"failed.{number}")
        records.append(
            {
                **_record_of(failure, file),
                "status": "failed",
                "artefacts": False,
                "error": failure.error,
            }
        )
    identities = [record["job"] for record in records]
    if len(set(identities)) < len(identities):
        raise SubmissionError("jobs: a job is there twice")
    place = {identity: index for index, identity in enumerate(identities)}
    samples = pl.concat([pl.concat(same) for same in frames.values()], how="diagonal_relaxed")
    samples = samples.sort(pl.col("job").replace_strict(place), "sample", maintain_order=True)
    if (
        samples.select("data", "model", "explainer", "label", "repeat", "sample")
        .is_duplicated()
        .any()
    ):
        raise SubmissionError("jobs: a sample is there twice for one explainer and metric")
    if file.planned < len(records):
        raise SubmissionError(f"planned: expected at least the {len(records)} jobs that are there")
    manifest = {**manifest, "metrics": _leave_out_readings(manifest["metrics"])}
    return Results.in_memory(manifest, samples, records, file.planned, arrays)


def _record_of(job: _Place, file: _File) -> dict[str, Any]:
    own = {name: getattr(job, name) for name in _Place.model_fields}
    known = file.manifest.metrics.get(job.label)
    return {**own, "metric": SanityChecks.name if known is None else known.metric}


def _read_types(label: str, columns: Mapping[str, str]) -> dict[str, Any]:
    if not {"sample", "status", "value"} <= set(columns):
        raise SubmissionError(f"columns.{label}: expected sample, status and value among them")
    for name, kind in columns.items():
        if kind not in _TYPES or name in _PLACE:
            raise SubmissionError(
                f"columns.{label}.{name}: {kind!r} is no type of a column of numbers"
            )
    if (
        columns["sample"] != "Int64"
        or columns["status"] != "String"
        or not columns["value"].startswith("Float")
    ):
        raise SubmissionError(
            f"columns.{label}: expected sample Int64, status String and value Float64"
        )
    return {name: _TYPES[kind] for name, kind in columns.items()}


def _check_place(job: _Place, file: _File, where: str) -> None:
    about = file.manifest
    known: dict[str, Collection[str]] = {
        "data": about.data,
        "model": about.models,
        "explainer": about.explainers,
        "label": [*about.metrics, SanityChecks.name],
    }
    for name, names in known.items():
        if getattr(job, name) not in names:
            raise SubmissionError(f"{where}.{name}: {getattr(job, name)!r} is not in the manifest")
    if not job.start < job.stop <= file.manifest.data[job.data].samples:
        raise SubmissionError(
            f"{where}: expected start below stop, and stop within the samples of {job.data}"
        )
    if job.repeat >= file.manifest.repeats:
        raise SubmissionError(f"{where}.repeat: expected less than {file.manifest.repeats}")


def _read_rows(
    job: _Job, file: _File, types: Mapping[str, Mapping[str, Any]], where: str
) -> pl.DataFrame:
    kinds = types.get(job.label)
    if kinds is None or set(job.values) != set(kinds):
        raise SubmissionError(
            f"{where}.values: expected the columns that are listed for {job.label!r}"
        )
    if {len(values) for values in job.values.values()} != {job.stop - job.start}:
        raise SubmissionError(
            f"{where}.values: expected {job.stop - job.start} values in each column"
        )
    columns = []
    for name, kind in kinds.items():
        try:
            values = _read_special(job.values[name]) if kind.is_float() else job.values[name]
            columns.append(pl.Series(name, values, kind, strict=True))
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise SubmissionError(
                f"{where}.values.{name}: expected values of the type {kind}"
            ) from error
    place = _record_of(job, file)
    frame = pl.DataFrame(columns)
    if frame["sample"].to_list() != list(range(job.start, job.stop)):
        raise SubmissionError(f"{where}.values.sample: expected {job.start} to {job.stop - 1}")
    if not frame["status"].is_in(_STATUSES).all():
        raise SubmissionError(f"{where}.values.status: expected {', '.join(_STATUSES)}")
    return frame.select(
        *(
            pl.lit(place[name], dtype=pl.Int32 if name == "repeat" else pl.String).alias(name)
            for name in _COORDINATES
        ),
        *kinds,
        pl.lit(job.job).alias("job"),
    )


def _read_special(values: list[Any]) -> list[float | None]:
    """Numbers with NaN and infinity; raises TypeError for anything else."""
    found: list[float | None] = []
    for value in values:
        if isinstance(value, str) and value in ("nan", "inf", "-inf"):
            found.append(float(value))
        elif value is None:
            found.append(None)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(float(value))
        else:
            raise TypeError(value)
    return found


def _read_array(stored: _Stored, where: str) -> Array:
    try:
        if stored.type.startswith("float"):
            values: list[Any] = [
                math.nan if value is None else value for value in _read_special(stored.values)
            ]
        else:
            values = stored.values
            if not all(
                isinstance(value, bool if stored.type == "bool" else int) for value in values
            ):
                raise TypeError
        return np.array(values, dtype=stored.type).reshape(stored.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise SubmissionError(
            f"{where}: expected {stored.type} values of the shape {stored.shape}"
        ) from error


def find_files(paths: list[str | Path]) -> list[Path]:
    """The files of submissions among these files and folders, sorted by name; a folder is searched at its top level.

    Raises:
        ArgumentError: there is no such file or folder.
    """
    found: list[Path] = []
    for each in map(Path, paths):
        if not each.exists():
            raise ArgumentError("submissions", "files or folders that exist", str(each))
        inside = each.iterdir() if each.is_dir() else ()
        found += (
            [each]
            if each.is_file()
            else [file for file in inside if file.name.endswith((".json", ".json.gz"))]
        )
    return sorted(dict.fromkeys(found), key=lambda file: (file.name, str(file)))
