"""Which numbers of which submissions can be compared, and their comparison.

Two submissions are on one board if their data and their networks have the same digests, which includes the choice of
samples, the classes to explain and the bounds. Their numbers are in one column if the metric and all of its options are
the same, with the same seed and number of repeats, so that all explainers meet the same random numbers. Anything else
is another board or another column.

An explainer is one row, also if several submissions have the same configuration of it with the same numbers. If their
numbers differ, each is a row of its own.

The tests are those of a report: Friedman's, then Wilcoxon's on all pairs with Holm's correction, on the samples that
have a value for every explainer, at 5% for each column. There is no score over several columns. An explainer is a
control if standfast knows it as one; what a submission says of this does not count.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from standfast.errors import StandfastError
from standfast.evidence.repetition import IDENTITY
from standfast.explainers import explainers
from standfast.presentation.wording import is_random
from standfast.report.methods import flatten
from standfast.report.views import Contents
from standfast.study.results import COORDINATES, JOB_COLUMNS, Results
from standfast.study.store import digest
from standfast.tensors import Array
from standfast_board.submission import Submission, SubmittedArrays

#: options of a metric that do not change what is measured
_NO_OPTIONS = {"preset"}
#: what of the data, beside the inputs, must be the same
_DATA = IDENTITY["data"]
#: what of an explainer's rows must be the same in two submissions for them to be one row
_NUMBERS = ("repeat", "sample", "status", "value", "low", "high")


@dataclass(frozen=True)
class Column:
    """A configured metric of a board.

    Attributes:
        label: its name, which is unique on the board.
        about: metric, direction, citation and options, as stored.
        seed, repeats: of the random numbers.
        settings: options that another column of the same metric has with other values, in words.
    """

    label: str
    about: Mapping[str, Any]
    seed: int
    repeats: int
    settings: str = ""


@dataclass(frozen=True, eq=False)
class Row:
    """An explainer of a board.

    Attributes:
        name: which is unique on the board.
        about: its configuration, as stored.
        submissions: those that have it, with these numbers.
        control: whether standfast knows it as a control.
        sources: the submissions that have each column, by its label; the numbers are those of the first.
        ranked: whether it takes part in tests; False if the verification of all its submissions found other numbers.
        frames: its rows by the label of a column.
        arrays: its stored arrays by job; jobs have the names that are in the frames.
        jobs: records of its jobs.
    """

    name: str
    about: Mapping[str, Any]
    submissions: tuple[Submission, ...]
    sources: Mapping[str, tuple[Submission, ...]]
    control: bool
    ranked: bool
    frames: Mapping[str, pl.DataFrame] = field(repr=False)
    arrays: Mapping[str, Mapping[str, Array]] = field(repr=False)
    jobs: pl.DataFrame = field(repr=False)


@dataclass(frozen=True, eq=False)
class Board:
    """One data set and one network.

    Attributes:
        slug: a name for files.
        data, model: names, those of the first submission.
        about_data, about_model: what the first submission says of them.
        columns: the configured metrics.
        rows: the explainers, controls last.
        contents: the ranked rows, as a report reads them.
        unreadable: submissions whose numbers do not fit beside the others, with the reason; they have no row.
    """

    slug: str
    data: str
    model: str
    about_data: Mapping[str, Any]
    about_model: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    contents: Contents
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def submissions(self) -> list[Submission]:
        """The submissions that have rows, each once."""
        return list({each.digest: each for row in self.rows for each in row.submissions}.values())


def arrange_boards(
    submissions: Sequence[Submission], unranked: Collection[str] = (), verified: Collection[str] = ()
) -> list[Board]:
    """The boards of some submissions, sorted by the names of data and network.

    Args:
        submissions: in any order; the result does not depend on it.
        unranked: digests of submissions whose numbers are shown and not ranked.
        verified: digests of those that stay if others do not fit beside them.
    """
    places: dict[tuple[str, str], list[tuple[Submission, str, str]]] = {}
    for each in sorted(submissions, key=lambda one: (one.digest not in verified, one.title, one.digest)):
        for data, model in Contents(each.results).pairs:
            places.setdefault(_identify(each.manifest, data, model), []).append((each, data, model))
    boards = [_arrange(key, parts, set(unranked)) for key, parts in places.items()]
    return sorted(boards, key=lambda board: (board.data.lower(), board.model.lower(), board.slug))


def _identify(manifest: Mapping[str, Any], data: str, model: str) -> tuple[str, str]:
    """Digests of what two submissions must share: of the data with all that is fixed for them, and of the network."""
    about, network = manifest["data"][data], manifest["models"][model]
    # results of earlier versions have no digest of the network alone
    return digest([about.get(name) for name in _DATA]), str(network.get("network") or network["digest"])


def _arrange(key: tuple[str, str], parts: list[tuple[Submission, str, str]], unranked: set[str]) -> Board:
    first, data, model = parts[0]
    columns = _find_columns(parts)
    rows = _find_rows(parts, {key: column.label for key, column in columns.items()}, unranked)
    about = first.manifest["data"][data], first.manifest["models"][model]
    contents, left_out = _read(data, model, about, list(columns.values()), rows)
    rows = [row for row in rows if not row.ranked or row.name in contents.explainers]
    slug = f"{_slug(data)}-{_slug(model)}-{digest(list(key))[:8]}"
    return Board(slug, data, model, *about, tuple(columns.values()), tuple(rows), contents, left_out)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "x"


# Columns


def _key_of_column(manifest: Mapping[str, Any], label: str) -> str:
    about = manifest["metrics"][label]
    options = {name: value for name, value in about["options"].items() if name not in _NO_OPTIONS}
    # an installed metric has one direction; of another one, each submission says what it likes
    return digest([about["metric"], about["direction"], options, manifest["seed"], manifest["repeats"]])


def _find_columns(parts: Iterable[tuple[Submission, str, str]]) -> dict[str, Column]:
    """The columns by their key, with unique labels."""
    found: dict[str, Column] = {}
    for submission, data, model in parts:
        manifest, samples = submission.manifest, submission.results.samples
        here = samples.filter((pl.col("data") == data) & (pl.col("model") == model))["label"].unique().to_list()
        for label, about in manifest["metrics"].items():
            if label in here:
                column = Column(label, about, manifest["seed"], manifest["repeats"])
                found.setdefault(_key_of_column(manifest, label), column)
    groups: dict[str, list[str]] = {}
    for key, column in found.items():
        groups.setdefault(str(column.about["metric"]), []).append(key)
    labels: set[str] = set()
    for keys in groups.values():
        settings = _describe_differences([found[key] for key in keys])
        for key, setting in zip(keys, settings, strict=True):
            label = name = found[key].label
            if name in labels and setting:
                label = f"{name} ({setting})"
            number = 2
            while label in labels:
                label, number = f"{name} ({number})", number + 1
            labels.add(label)
            found[key] = dataclasses.replace(found[key], label=label, settings=setting)
    return found


def _describe_differences(columns: Sequence[Column]) -> list[str]:
    """For each of some columns of one metric: the options that are not the same in all of them, in words."""
    flat = [
        {**dict(flatten(dict(column.about["options"]))), "seed": str(column.seed), "repeats": str(column.repeats)}
        for column in columns
    ]
    names = [name for name in dict.fromkeys(key for each in flat for key in each) if name not in _NO_OPTIONS]
    differing = [name for name in names if len({each.get(name) for each in flat}) > 1]
    return [", ".join(f"{name} {each.get(name, 'none')}" for name in differing) for each in flat]


# Rows


def _find_rows(
    parts: Iterable[tuple[Submission, str, str]], labels: Mapping[str, str], unranked: set[str]
) -> list[Row]:
    """The explainers of all submissions; those with the same configuration and numbers are one."""
    groups: dict[str, list[Row]] = {}
    for submission, data, model in parts:
        for row in _read_rows(submission, data, model, labels, submission.digest not in unranked):
            about = [row.about, row.ranked, submission.manifest.get("code") if _is_own(row.about) else None]
            group = groups.setdefault(digest(about), [])
            same = next((place for place, other in enumerate(group) if _have_same_numbers(row, other)), None)
            if same is None:
                group.append(row)
            else:
                group[same] = _merge(group[same], row)
    rows = [row for group in groups.values() for row in group]
    taken: set[str] = set()
    named = []
    for row in rows:
        first = row.submissions[0]
        further = (f"{row.name} ({first.digest[:8]}, {number})" for number in itertools.count(2))  # names can be chosen
        names = (row.name, f"{row.name} ({first.title})", f"{row.name} ({first.digest[:8]})")
        name = next(each for each in itertools.chain(names, further) if each not in taken)
        taken.add(name)
        named.append(dataclasses.replace(row, name=name))
    return sorted(named, key=lambda row: row.control)


def _read_rows(submission: Submission, data: str, model: str, labels: Mapping[str, str], ranked: bool) -> Iterable[Row]:
    """The explainers of one submission, with the labels of the board's columns."""
    results, manifest = submission.results, submission.manifest
    here = (pl.col("data") == data) & (pl.col("model") == model)
    renamed = {label: labels.get(_key_of_column(manifest, label), "") for label in manifest["metrics"]}

    def take(frame: pl.DataFrame) -> pl.DataFrame:
        # two submissions may have the same job
        own = pl.lit(f"{submission.digest[:16]}:") + pl.col("job")
        return frame.filter(here).with_columns(own.alias("job"), pl.col("label").replace_strict(renamed))

    samples, jobs = take(results.samples), take(results.jobs)
    for name, about in manifest["explainers"].items():
        frames = samples.filter(pl.col("explainer") == name).partition_by("label", as_dict=True)
        records = jobs.filter(pl.col("explainer") == name)
        if frames:
            arrays = {job: results.artefacts(job.partition(":")[2]) for job in records["job"]}
            own = {str(label): frame for (label,), frame in frames.items()}
            yield Row(
                name,
                about,
                (submission,),
                dict.fromkeys(own, (submission,)),
                is_control(name, about),
                ranked,
                own,
                {job: found for job, found in arrays.items() if found},
                records,
            )


def is_control(name: str, about: Mapping[str, Any]) -> bool:
    """Whether standfast knows an explainer as a control, by its configuration.

    >>> is_control("mine", {"name": "edges"}), is_control("mine", {"name": "lrp"})
    (True, False)
    """
    try:
        return bool(explainers[str(about.get("name"))].control)
    except StandfastError:
        return is_random(name)


def _is_own(about: Mapping[str, Any]) -> bool:
    """Whether an explainer is one of the user's, so that its configuration does not say all."""
    try:
        return not bool(explainers[str(about.get("name"))])
    except StandfastError:
        return True


def _have_same_numbers(one: Row, other: Row) -> bool:
    """Whether two rows have the same numbers in all columns that both have."""
    for label in one.frames.keys() & other.frames.keys():
        first, second = (_select_numbers(row.frames[label]) for row in (one, other))
        if not first.equals(second, null_equal=True) or _join_arrays(one, label) != _join_arrays(other, label):
            return False
    return True


def _select_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns that must be the same: values, intervals and flags."""
    flags = sorted(name for name, kind in frame.schema.items() if kind == pl.Boolean)
    flags = [name for name in flags if frame[name].null_count() < len(frame)]  # others are of other metrics
    return frame.select(*_NUMBERS, *flags).sort("repeat", "sample")


def _join_arrays(row: Row, label: str) -> dict[tuple[int, str], bytes]:
    """The arrays of a column by repeat and name, however the samples were cut into jobs."""
    found: dict[tuple[int, str], bytes] = {}
    for job, repeat in row.jobs.filter(pl.col("label") == label).sort("start").select("job", "repeat").iter_rows():
        for name, array in row.arrays.get(job, {}).items():
            found[repeat, name] = found.get((repeat, name), b"") + array.tobytes()
    return found


def _merge(one: Row, other: Row) -> Row:
    """One row of two with the same numbers: the columns of both."""
    new = other.frames.keys() - one.frames.keys()
    jobs = other.jobs.filter(pl.col("label").is_in(list(new)))
    return dataclasses.replace(
        one,
        submissions=(*one.submissions, *other.submissions),
        sources={
            label: (*one.sources.get(label, ()), *other.sources.get(label, ()))
            for label in dict.fromkeys([*one.sources, *other.sources])
        },
        frames={**one.frames, **{label: other.frames[label] for label in other.frames if label in new}},
        arrays={**one.arrays, **{job: found for job, found in other.arrays.items() if job in set(jobs["job"])}},
        jobs=pl.concat([one.jobs, jobs]),
    )


# Numbers


def _read(
    data: str, model: str, about: tuple[Any, Any], columns: Sequence[Column], rows: Sequence[Row]
) -> tuple[Contents, dict[str, str]]:
    """The ranked rows as a report reads them, and the submissions that do not fit beside the others.

    Each submission can be read on its own. Where all cannot be read together, because arrays have other shapes, they
    are added one by one.
    """
    ranked = [row for row in rows if row.ranked]
    try:
        return _combine(data, model, about, columns, ranked), {}
    except Exception:
        kept: list[Row] = []
        left_out: dict[str, str] = {}
        for row in ranked:
            try:
                _combine(data, model, about, columns, [*kept, row])
                kept.append(row)
            except Exception as error:
                left_out[row.submissions[0].digest] = f"{row.name} does not fit beside the others: {error}"
        return _combine(data, model, about, columns, kept), left_out


def _combine(data: str, model: str, about: tuple[Any, Any], columns: Sequence[Column], rows: Sequence[Row]) -> Contents:
    manifest = {
        "data": {data: about[0]},
        "models": {model: about[1]},
        "explainers": {row.name: row.about for row in rows},
        "controls": [row.name for row in rows if row.control],
        "metrics": {column.label: column.about for column in columns},
        "repeats": max((column.repeats for column in columns), default=1),
    }
    place = {"data": data, "model": model}
    frames: list[pl.DataFrame] = []
    jobs: list[pl.DataFrame] = []
    arrays: dict[str, Mapping[str, Array]] = {}
    for row in rows:
        own = [pl.lit(value).alias(name) for name, value in {**place, "explainer": row.name}.items()]
        frames += [frame.with_columns(own) for frame in row.frames.values()]
        jobs.append(row.jobs.with_columns(own))
        arrays.update(row.arrays)
    samples = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    if frames:
        samples = samples.select(*COORDINATES, "sample", "status", pl.exclude(*COORDINATES, "sample", "status"))
    records = pl.concat(jobs) if jobs else pl.DataFrame(schema=JOB_COLUMNS)
    contents = Contents(Results(SubmittedArrays(arrays), manifest, samples, records, records.height))
    assert contents.comparisons is not None
    assert contents.control_tests is not None
    return contents
