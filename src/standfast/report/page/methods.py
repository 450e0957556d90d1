"""What a reader needs to repeat the study: facts, all options, costs, environment, publications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from standfast.report.sentences import say
from standfast.report.wording import describe_reach, describe_transformation
from standfast.results import ConfiguredMetric, StoredResults, find_metric_class
from standfast.value_spec import read_numbers

#: the columns of the table of what was counted, with their heads
COUNTED = {
    "rows": "Rows",
    "evaluated": "Evaluated",
    "misclassified": "Skipped: misclassified",
    "no_answer": "Skipped: no answer",
    "degenerate": "Skipped: degenerate",
    "nonfinite": "Skipped: nonfinite",
    "unvaried": "Skipped: nothing to vary",
    "counted": "In medians",
    "bounds": "Only bounds",
    "imprecise": "Error not reached",
    "constant maps": "Constant maps",
    "maps with NaN": "NaN",
}


def list_changes(results: StoredResults) -> list[str]:
    """How the inputs are changed, a few words for each way that a metric has."""
    embedded = False
    for about in (results.manifest.get("data") or {}).values():
        if about and about.get("tokens") and not about.get("texts"):
            embedded = True
    position = "number of the embedding" if embedded else "feature"
    changes = []
    for metric in results.metrics.values():
        reach = describe_reach(metric.options, position)
        if reach:
            changes.append(f"moved {reach}")
        else:
            changes.append(describe_transformation(metric.options))
    return list(dict.fromkeys(filter(None, changes)))


def list_facts(results: StoredResults) -> list[tuple[str, str]]:
    """What was evaluated, as pairs of a word and its meaning."""
    manifest = results.manifest
    facts: dict[str, Any] = {}
    for key, value in (manifest.get("about") or {}).items():
        if key not in ("title", "command"):
            facts[key.capitalize()] = value
    removals = [
        f"{name}: {metric.removal}" for name, metric in results.metrics.items() if metric.removal
    ]
    if removals:
        facts["Removal"] = "; ".join(removals)
    accuracies = results.summary.accuracies.values()
    facts |= {
        "Data sets": ", ".join(results.data),
        "Models": ", ".join(results.models),
        "An answer is kept if it is": "; ".join(_list_conditions(manifest)),
        "Explainers": ", ".join(results.explainers),
        "Inputs": "; ".join(list_changes(results)),
        "Accuracy": " ".join(say("accuracy", accuracy) for accuracy in accuracies),
        "Repeats": manifest.get("repeats"),
        "Random seed": manifest.get("seed"),
        "Computed with": ", ".join(_list_versions(manifest)),
    }
    pairs = []
    for word, meaning in facts.items():
        if meaning not in (None, ""):
            pairs.append((word, str(meaning)))
    return pairs


def _list_conditions(manifest: Mapping[str, Any]) -> list[str]:
    """What it means for each model that an answer is kept, each once."""
    models = (manifest.get("models") or {}).values()
    conditions = [str(model["kept"]) for model in models if model.get("kept")]
    return list(dict.fromkeys(conditions))


def _list_versions(manifest: Mapping[str, Any]) -> list[str]:
    """The packages of the computation, and the device that says the most of where it ran."""
    environment = manifest.get("environment") or {}
    names = [key for key in ("standfast", "torch", "python") if environment.get(key)]
    devices = [key for key in ("gpu", "cpu", "machine") if environment.get(key)]
    versions = [f"{key} {environment[key]}" for key in names]
    # the device that does the most
    for key in devices[:1]:
        versions.append(str(environment[key]))
    return versions


#: what the manifest says of a metric that is no option, or that is shown elsewhere
_NO_OPTIONS = ("options", "bibtex", "citation", "values", "controls")
#: options as pairs of a dotted name and a text
Pairs = list[tuple[str, str]]
#: the options of a table, by the names of what has them
Entries = list[tuple[str, Pairs]]


def list_options(results: StoredResults) -> list[tuple[str, Entries]]:
    """Headings, each with names and their options as pairs of a dotted name and a text."""
    tables = [
        ("Metrics", _list_metrics(results)),
        ("Explainers", _list_entries(results, "explainers", results.explainers)),
        ("Models", _list_entries(results, "models", results.models)),
        ("Data", _list_entries(results, "data", results.data)),
        ("Environment and run", _list_environment(results.manifest)),
    ]
    _add_choices(results, dict(tables)["Explainers"])
    # what has no options is left out
    shown = []
    for heading, entries in tables:
        with_options = [(name, pairs) for name, pairs in entries if pairs]
        shown.append((heading, with_options))
    return shown


def _list_metrics(results: StoredResults) -> Entries:
    entries = []
    for name, metric in results.metrics.items():
        stored = dict(metric.stored)
        for key in _NO_OPTIONS:
            stored.pop(key, None)
        options = {"metric": metric.metric, **stored, **metric.options}
        entries.append((name, flatten(options)))
    return entries


def _list_entries(results: StoredResults, key: str, names: Sequence[str]) -> Entries:
    """What the manifest says of explainers, models or data sets, of those of which it says anything."""
    stored = results.manifest.get(key) or {}
    entries = []
    for name in names:
        if stored.get(name):
            entries.append((name, flatten(_without_names(stored[name]))))
    return entries


def _add_choices(results: StoredResults, explainers: Entries) -> None:
    """Add what explainers have chosen by themselves, such as a layer, to their options."""
    if "choices" not in results.jobs.columns:
        return
    pairs_of = dict(explainers)
    chosen = results.jobs.select("explainer", "choices", "model").unique().drop_nulls()
    for explainer, text, model in sorted(chosen.rows()):
        if explainer in pairs_of:
            pairs_of[explainer].append(("chosen", f"{text} of {model}"))


def _list_environment(manifest: Mapping[str, Any]) -> Entries:
    environment = []
    for key, text in flatten(manifest.get("environment") or {}):
        environment.append((key, "none" if text == "default" else text))
    settings = ("seed", "repeats", "samples_per_job", "device")
    run = flatten({key: manifest[key] for key in settings if key in manifest})
    return [("environment", environment), ("run", run)]


def _without_names(options: Any) -> Any:
    """The options without the names of features and the words of samples and tasks, which are many."""
    if not isinstance(options, dict):
        return options
    return {
        key: value
        for key, value in options.items()
        if key not in ("features", "tokens", "columns", "words")
    }


def flatten(value: Any, prefix: str = "") -> Pairs:
    """Nested options as pairs of a dotted name and a text.

    >>> flatten({"ball": {"radius": 0.1}, "threshold": None, "shape": [1, 8, 8]})
    [('ball.radius', '0.1'), ('threshold', 'default'), ('shape', '1, 8, 8')]
    """
    has_parts = isinstance(value, list) and any(isinstance(entry, dict) for entry in value)
    if isinstance(value, list) and not has_parts:
        return [(prefix, ", ".join(map(str, value)))]
    if isinstance(value, list):
        # the parts of a composition have no names
        value = {str(number): entry for number, entry in enumerate(value, 1)}
    if not isinstance(value, dict):
        text = "default" if value is None else str(value)
        return [(prefix, text)]
    pairs: Pairs = []
    for key, inner in value.items():
        if prefix:
            name = f"{prefix}.{key}"
        else:
            name = str(key)
        pairs += flatten(inner, name)
    return pairs


def sum_costs(results: StoredResults) -> dict[tuple[str, str], tuple[int, float]]:
    """How many inputs were predicted and explained, and in how many seconds, by explainer and label."""
    if "model_evaluations" not in results.samples.columns:
        return {}
    keys = ("explainer", "label")
    evaluations = pl.col("model_evaluations")
    is_counted = evaluations.filter(evaluations > 0)
    queries = results.samples.group_by(keys).agg(is_counted.sum())
    done = results.jobs.filter(pl.col("status") == "done")
    seconds = pl.col("seconds").sum()
    seconds_of = done.group_by(keys).agg(seconds)
    costs = queries.join(seconds_of, on=keys, how="left")
    sums = {}
    for explainer, label, count, seconds in costs.iter_rows():
        sums[explainer, label] = (int(count), float(seconds or 0))
    return sums


def list_publications(results: StoredResults) -> list[str]:
    """BibTeX entries, or keys where an entry is not known, without duplicates."""
    entries = {_find_publication(metric).strip() for metric in results.metrics.values()}
    return sorted(entry for entry in entries if entry)


def _find_publication(metric: ConfiguredMetric) -> str:
    """The publication's BibTeX entry, or what the manifest has of it."""
    kind = find_metric_class(metric.metric)
    entry = ""
    if kind is not None:
        entry = kind.bibtex
    if entry:
        return entry
    return str(metric.stored.get("bibtex") or metric.stored.get("citation") or "")


def count_rows(results: StoredResults) -> dict[tuple[str, str], dict[str, int]]:
    """For each label and explainer: how many rows there are, how many of each status, bounds, and errors."""
    tallies: dict[tuple[str, str], dict[str, int]] = {}
    for row in results.summary.rows:
        none = dict.fromkeys(COUNTED, 0)
        tally = tallies.setdefault((row.label, row.explainer), none)
        for key in ("rows", "evaluated", "counted", "bounds", "imprecise"):
            tally[key] += getattr(row.counts, key)
        for uncounted in row.counts.uncounted:
            if uncounted.status in tally:
                tally[uncounted.status] += uncounted.rows
        view = results.metric_results(row.data, row.model, row.label)
        rows = view.rows_for(row.explainer)
        for key, column in (("constant maps", "degenerate"), ("maps with NaN", "nonfinite")):
            values = read_numbers(rows, column)
            tally[key] += int(values[values > 0].sum())
    return tallies


def list_sample_failures(results: StoredResults) -> list[str]:
    """What metrics stored as the reasons why samples have no value, each once, with the name of the metric."""
    reasons: dict[str, None] = {}
    for row in results.summary.rows:
        for uncounted in row.counts.uncounted:
            failures = [f"{row.label}: {failure}" for failure in uncounted.failures]
            reasons |= dict.fromkeys(failures)
    return list(reasons)
