"""Which numbers of which submissions can be compared, and their comparison.

Two submissions are on one board if their data and their networks have the same digests, which includes the choice of
samples, the classes to explain and the bounds. Their numbers are in one column if the metric and all of its options are
the same, with the same seed and number of repeats, so that all explainers meet the same random numbers. Anything else
is another board or another column.

An explainer is one row, also if several submissions have the same configuration of it with the same numbers. If their
numbers differ, each is a row of its own.

The tests are those of a report: Friedman's, then Wilcoxon's on all pairs with Holm's correction, on the samples that
have a value for every explainer, at 5% for each column. There is no score over several columns. An explainer is a
control if standfast knows it as one; what a submission says of this does not count. Where some explainers were checked
for sanity, only those that pass are ranked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from standfast import StandfastError, explainers
from standfast.metrics.sanity import RULES, SanityChecks
from standfast.report import Results
from standfast_board.submission import Array, Submission

#: options of a metric that do not change what is measured
_NO_OPTIONS = {"preset"}
#: what of the data must be the same
_DATA = ("digest", "samples", "bounds", "targets", "targets_digest", "extras")
#: what of an explainer's rows must be the same in two submissions for them to be one row
_NUMBERS = ("repeat", "sample", "status", "value", "low", "high")


@dataclass(frozen=True)
class Column:
    """A configured metric of a board.

    Attributes:
        label: its name, which is unique on the board.
        about: metric, direction and options, as stored.
        seed, repeats: of the random numbers.
        settings: options that another column of the same metric has with other values, in words.
    """

    label: str
    about: Mapping[str, Any]
    seed: int
    repeats: int
    settings: str = ""

    @property
    def options(self) -> dict[str, str]:
        """All that makes it this column, as texts."""
        own = dict(flatten(self.about["options"]))
        return {**own, "seed": str(self.seed), "repeats": str(self.repeats)}


@dataclass(frozen=True, eq=False)
class Row:
    """An explainer of a board.

    Attributes:
        name: which is unique on the board.
        about: its configuration, as stored.
        sources: the submissions that have each column, by its label; the numbers are those of the first.
        control: whether standfast knows it as a control.
        ranked: whether it takes part in tests; False if the verification of all its submissions found other numbers.
        samples, jobs: its rows of all columns, with the labels of the board.
        arrays: its stored arrays by job; jobs have the names that are in the frames.
        checks: its rows of the sanity checks; empty where its submission has none.
    """

    name: str
    about: Mapping[str, Any]
    sources: Mapping[str, tuple[Submission, ...]]
    control: bool
    ranked: bool
    samples: pl.DataFrame = field(repr=False)
    jobs: pl.DataFrame = field(repr=False)
    arrays: Mapping[str, Mapping[str, Array]] = field(repr=False)
    checks: pl.DataFrame = field(repr=False)

    @property
    def submissions(self) -> list[Submission]:
        """The submissions that have this explainer with these numbers, each once."""
        return list({each.digest: each for some in self.sources.values() for each in some}.values())


@dataclass(frozen=True, eq=False)
class Board:
    """One data set and one network.

    Attributes:
        slug: a name for files.
        data, model: names, those of the first submission.
        about_data, about_model: what the first submission says of them.
        columns: the configured metrics.
        rows: the explainers, controls last.
        results: the ranked rows as the results of one study.
        unreadable: submissions whose numbers do not fit beside the others, with the reason; they have no row.
    """

    slug: str
    data: str
    model: str
    about_data: Mapping[str, Any]
    about_model: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    results: Results
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def submissions(self) -> list[Submission]:
        """The submissions that have rows, each once."""
        return list({each.digest: each for row in self.rows for each in row.submissions}.values())


def arrange_boards(
    submissions: Sequence[Submission],
    unranked: Collection[str] = (),
    verified: Collection[str] = (),
) -> list[Board]:
    """The boards of some submissions, sorted by the names of data and network.

    Args:
        submissions: in any order; the result does not depend on it.
        unranked: digests of submissions whose numbers are shown and not ranked.
        verified: digests of those that stay if others do not fit beside them.
    """
    places: dict[str, list[tuple[Submission, str, str]]] = {}
    for each in sorted(
        submissions, key=lambda one: (one.digest not in verified, one.title, one.digest)
    ):
        for data, model in (
            each.results.samples.select("data", "model").unique(maintain_order=True).iter_rows()
        ):
            places.setdefault(_identify(each.manifest, data, model), []).append((each, data, model))
    boards = [_arrange(key, parts, unranked) for key, parts in places.items()]
    return sorted(boards, key=lambda board: (board.data.lower(), board.model.lower(), board.slug))


def flatten(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested options as pairs of texts.

    >>> list(flatten({"neighbourhood": {"radius": 0.1}, "masks": 100}))
    [('neighbourhood.radius', '0.1'), ('masks', '100')]
    """
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "default" if value is None else str(value)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _identify(manifest: Mapping[str, Any], data: str, model: str) -> str:
    """A digest of what two submissions must share: the data with all that is fixed for them, and the network."""
    about, network = manifest["data"][data], manifest["models"][model]
    return _digest(
        [[about.get(name) for name in _DATA], network.get("network") or network["digest"]]
    )


def _arrange(
    key: str, parts: list[tuple[Submission, str, str]], unranked: Collection[str]
) -> Board:
    first, data, model = parts[0]
    columns = _find_columns(parts)
    labels = {key: column.label for key, column in columns.items()}
    about: dict[str, Any] = {
        "data": {data: first.manifest["data"][data]},
        "models": {model: first.manifest["models"][model]},
        "metrics": {column.label: column.about for column in columns.values()},
        "repeats": max(column.repeats for column in columns.values()),
    }
    rows = _find_rows(parts, labels, unranked)
    results, rows, left_out = _read(about, rows)
    return Board(
        f"{_slug(data)}-{_slug(model)}-{key[:8]}",
        data,
        model,
        about["data"][data],
        about["models"][model],
        tuple(columns.values()),
        tuple(rows),
        results,
        left_out,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "x"


# Columns


def _key_of_column(manifest: Mapping[str, Any], label: str) -> str:
    about = manifest["metrics"][label]
    options = {name: value for name, value in about["options"].items() if name not in _NO_OPTIONS}
    # an installed metric has one direction; of another one, each submission says what it likes
    return _digest(
        [about["metric"], about["direction"], options, manifest["seed"], manifest["repeats"]]
    )


def _find_columns(parts: Iterable[tuple[Submission, str, str]]) -> dict[str, Column]:
    """The columns by their key, with unique labels."""
    found: dict[str, Column] = {}
    for submission, data, model in parts:
        manifest, samples = submission.manifest, submission.results.samples
        here = set(samples.filter((pl.col("data") == data) & (pl.col("model") == model))["label"])
        for label, about in manifest["metrics"].items():
            if label in here:
                column = Column(label, about, manifest["seed"], manifest["repeats"])
                found.setdefault(_key_of_column(manifest, label), column)
    labels: set[str] = set()
    for key, column in found.items():
        alike = [
            other for other in found.values() if other.about["metric"] == column.about["metric"]
        ]
        settings = _describe_differences(column, alike)
        names = [column.label, f"{column.label} ({settings})"] if settings else [column.label]
        further = (f"{column.label} ({number})" for number in itertools.count(2))
        label = next(name for name in itertools.chain(names, further) if name not in labels)
        labels.add(label)
        found[key] = dataclasses.replace(column, label=label, settings=settings)
    return found


def _describe_differences(column: Column, alike: Sequence[Column]) -> str:
    """The options of a column that others of the same metric have with other values, in words."""
    every = [other.options for other in alike]
    names = [
        name
        for name in dict.fromkeys(name for each in every for name in each)
        if name not in _NO_OPTIONS
    ]
    differing = [name for name in names if len({each.get(name) for each in every}) > 1]
    return ", ".join(f"{name} {column.options.get(name, 'none')}" for name in differing)


# Rows


def _find_rows(
    parts: Iterable[tuple[Submission, str, str]],
    labels: Mapping[str, str],
    unranked: Collection[str],
) -> list[Row]:
    """The explainers of all submissions; those with the same configuration and numbers are one."""
    groups: dict[str, list[Row]] = {}
    for submission, data, model in parts:
        for row in _read_rows(submission, data, model, labels, submission.digest not in unranked):
            code = submission.manifest.get("code") if _find_kind(row.about) is None else None
            group = groups.setdefault(_digest([row.about, row.ranked, code]), [])
            same = next(
                (place for place, other in enumerate(group) if _have_same_numbers(row, other)), None
            )
            if same is None:
                group.append(row)
            else:
                group[same] = _merge(group[same], row)
    taken: set[str] = set()
    named = []
    for row in itertools.chain(*groups.values()):
        first = row.submissions[0]
        # names can be chosen
        further = (f"{row.name} ({first.digest[:8]}, {number})" for number in itertools.count(1))
        names = itertools.chain([row.name, f"{row.name} ({first.title})"], further)
        name = next(each for each in names if each not in taken)
        taken.add(name)
        named.append(dataclasses.replace(row, name=name))
    return sorted(named, key=lambda row: row.control)


def _read_rows(
    submission: Submission, data: str, model: str, labels: Mapping[str, str], ranked: bool
) -> Iterator[Row]:
    """The explainers of one submission, with the labels of the board's columns."""
    results, manifest = submission.results, submission.manifest
    here = (pl.col("data") == data) & (pl.col("model") == model)
    renamed = {
        label: labels.get(_key_of_column(manifest, label), "") for label in manifest["metrics"]
    }

    def take(frame: pl.DataFrame) -> pl.DataFrame:
        # two submissions may have the same job
        own = pl.lit(f"{submission.digest[:16]}:") + pl.col("job")
        return frame.filter(here).with_columns(
            own.alias("job"), pl.col("label").replace_strict(renamed)
        )

    metrics = pl.col("label") != SanityChecks.name
    samples, jobs = take(results.samples), take(results.jobs.filter(metrics))
    checks = results.sanity_rows.filter(here) if len(results.sanity_rows) else results.sanity_rows
    old = [
        name for name in checks.columns if name.endswith(tuple(f" {label}" for label in renamed))
    ]
    checks = checks.rename({name: _rename_reference(name, renamed) for name in old})
    for name, about in manifest["explainers"].items():
        rows, records = (frame.filter(pl.col("explainer") == name) for frame in (samples, jobs))
        if rows.height:
            sources = dict.fromkeys(rows["label"].unique(maintain_order=True), (submission,))
            arrays = {job: results.artefacts(job.partition(":")[2]) for job in records["job"]}
            own = checks.filter(pl.col("explainer") == name) if len(checks) else checks
            yield Row(
                name, about, sources, is_control(name, about), ranked, rows, records, arrays, own
            )


def _rename_reference(name: str, labels: Mapping[str, str]) -> str:
    """The name of a column of the sanity checks, which ends with the label of a metric, with the board's label."""
    own = max((label for label in labels if name.endswith(f" {label}")), key=len)
    return f"{name[: -len(own)]}{labels[own]}"


def _find_kind(about: Mapping[str, Any]) -> Any:
    """The class of a configured explainer; None if it is one of the user's, of which the configuration is not all."""
    try:
        return explainers.explainers[str(about.get("name"))]
    except StandfastError:
        return None


def is_control(name: str, about: Mapping[str, Any]) -> bool:
    """Whether standfast knows an explainer as a control: by its configuration, or as the one with random maps.

    >>> is_control("mine", {"name": "edges"}), is_control("mine", {"name": "lrp"})
    (True, False)
    """
    kind = _find_kind(about)
    return (
        name.partition(":")[0].strip().lower() == "random" if kind is None else bool(kind.control)
    )


def _have_same_numbers(one: Row, other: Row) -> bool:
    """Whether two rows have the same numbers in all columns that both have."""
    for label in one.sources.keys() & other.sources.keys():
        first, second = (
            _select_numbers(row.samples.filter(pl.col("label") == label)) for row in (one, other)
        )
        if not first.equals(second, null_equal=True):
            return False
    return True


def _select_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns that must be the same: values, intervals and flags."""
    flags = sorted(name for name, kind in frame.schema.items() if kind == pl.Boolean)
    # others are of other metrics
    flags = [name for name in flags if frame[name].null_count() < len(frame)]
    return frame.select(*_NUMBERS, *flags).sort("repeat", "sample")


def _merge(one: Row, other: Row) -> Row:
    """One row of two with the same numbers: the columns of both."""
    labels = list(dict.fromkeys([*one.sources, *other.sources]))
    new = pl.col("label").is_in([label for label in labels if label not in one.sources])
    return dataclasses.replace(
        one,
        sources={
            label: (*one.sources.get(label, ()), *other.sources.get(label, ())) for label in labels
        },
        samples=pl.concat([one.samples, other.samples.filter(new)], how="diagonal_relaxed"),
        jobs=pl.concat([one.jobs, other.jobs.filter(new)]),
        arrays={**other.arrays, **one.arrays},
    )


# Numbers


def _read(
    about: Mapping[str, Any], rows: Sequence[Row]
) -> tuple[Results, list[Row], dict[str, str]]:
    """The ranked rows as results, all rows that stay, and the submissions that do not fit beside the others.

    Each submission can be read on its own. Where all cannot be read together, because arrays have other shapes, they
    are added one by one.
    """
    kept = list(rows)
    left_out: dict[str, str] = {}
    try:
        return _combine(about, kept), kept, left_out
    except Exception:
        kept = [row for row in rows if not row.ranked]
    for row in rows:
        if row.ranked:
            try:
                _combine(about, [*kept, row])
                kept.append(row)
            except Exception as error:
                left_out[row.submissions[0].digest] = (
                    f"{row.name} does not fit beside the others: {error}"
                )
    kept.sort(key=lambda row: row.control)
    return _combine(about, kept), kept, left_out


def _combine(about: Mapping[str, Any], rows: Sequence[Row]) -> Results:
    """The ranked ones of some rows as the results of one study, whose numbers can be read."""
    ranked = [row for row in rows if row.ranked]
    manifest = {
        **about,
        "explainers": {row.name: row.about for row in ranked},
        "controls": [row.name for row in ranked if row.control],
        # where some are checked, the others are not ranked before they are
        "sanity": {"rules": RULES} if any(len(row.checks) for row in ranked) else None,
    }
    (data,), (model,) = about["data"], about["models"]
    samples, jobs = [], []
    arrays: dict[str, Mapping[str, Array]] = {}
    for row in ranked:
        place = {"data": data, "model": model, "explainer": row.name}
        own = [pl.lit(value).alias(name) for name, value in place.items()]
        samples.append(row.samples.with_columns(own))
        samples += [row.checks.with_columns(own)] if len(row.checks) else []
        jobs += row.jobs.with_columns(own).to_dicts()
        arrays.update(row.arrays)
    frame = pl.concat(samples, how="diagonal_relaxed") if samples else pl.DataFrame()
    found = Results.in_memory(manifest, frame, jobs, len(jobs), arrays)
    found.table()
    return found
