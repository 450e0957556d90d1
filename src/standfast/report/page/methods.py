"""What a reader needs to repeat the study: facts, all options, costs, environment, publications."""

from __future__ import annotations

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
    known = [about or {} for about in (results.manifest.get("data") or {}).values()]
    embedded = any(about.get("tokens") and not about.get("texts") for about in known)
    found = []
    for metric in results.metrics.values():
        reach = describe_reach(metric.options, "number of the embedding" if embedded else "feature")
        found.append(f"moved {reach}" if reach else describe_transformation(metric.options))
    return list(dict.fromkeys(filter(None, found)))


def list_facts(results: StoredResults) -> list[tuple[str, str]]:
    """What was evaluated, as pairs of a word and its meaning."""
    manifest, about = results.manifest, results.manifest.get("about") or {}
    environment = manifest.get("environment") or {}
    computed = [
        f"{key} {environment[key]}"
        for key in ("standfast", "torch", "python")
        if environment.get(key)
    ]
    computed += [
        str(environment[key]) for key in ("gpu", "cpu", "machine") if environment.get(key)
    ][:1]
    facts = {
        key.capitalize(): value for key, value in about.items() if key not in ("title", "command")
    }
    ways = "; ".join(
        f"{name}: {metric.removal}" for name, metric in results.metrics.items() if metric.removal
    )
    facts |= {"Removal": ways} if ways else {}
    facts |= {"Data sets": ", ".join(results.data), "Models": ", ".join(results.models)}
    kept = dict.fromkeys(
        str(each["kept"]) for each in (manifest.get("models") or {}).values() if each.get("kept")
    )
    facts |= {"An answer is kept if it is": "; ".join(kept)}
    facts |= {
        "Explainers": ", ".join(results.explainers),
        "Inputs": "; ".join(list_changes(results)),
    }
    facts |= {
        "Accuracy": " ".join(say("accuracy", each) for each in results.summary.accuracies.values())
    }
    facts |= {"Repeats": manifest.get("repeats"), "Random seed": manifest.get("seed")}
    facts |= {"Computed with": ", ".join(computed)}
    return [(word, str(meaning)) for word, meaning in facts.items() if meaning not in (None, "")]


#: what the manifest says of a metric that is no option, or that is shown elsewhere
_NO_OPTIONS = ("options", "bibtex", "citation", "values", "controls")


def list_options(
    results: StoredResults,
) -> list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]:
    """Headings, each with names and their options as pairs of a dotted name and a text."""
    manifest = results.manifest
    metrics = []
    for name, metric in results.metrics.items():
        stored = {key: value for key, value in metric.stored.items() if key not in _NO_OPTIONS}
        metrics.append((name, flatten({"metric": metric.metric, **stored, **metric.options})))
    tables = [("Metrics", metrics)]
    for heading, names in (
        ("Explainers", results.explainers),
        ("Models", results.models),
        ("Data", results.data),
    ):
        entries = manifest.get(heading.lower()) or {}
        own = {name: _without_names(entries[name]) for name in names if entries.get(name)}
        tables.append((heading, [(name, flatten(options)) for name, options in own.items()]))
    if "choices" in results.jobs.columns:
        options = dict(tables[1][1])
        chosen = results.jobs.select("explainer", "choices", "model").unique().drop_nulls()
        for who, text, model in sorted(chosen.rows()):
            options.get(who, []).append(("chosen", f"{text} of {model}"))
    environment = flatten(manifest.get("environment") or {})
    environment = [(key, "none" if text == "default" else text) for key, text in environment]
    run = flatten(
        {
            key: manifest[key]
            for key in ("seed", "repeats", "samples_per_job", "device")
            if key in manifest
        }
    )
    tables.append(("Environment and run", [("environment", environment), ("run", run)]))
    return [
        (heading, [(name, pairs) for name, pairs in entries if pairs])
        for heading, entries in tables
    ]


def _without_names(options: Any) -> Any:
    """The options without the names of features and the words of samples and tasks, which are many."""
    if not isinstance(options, dict):
        return options
    return {
        key: value
        for key, value in options.items()
        if key not in ("features", "tokens", "columns", "words")
    }


def flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested options as pairs of a dotted name and a text.

    >>> flatten({"ball": {"radius": 0.1}, "threshold": None, "shape": [1, 8, 8]})
    [('ball.radius', '0.1'), ('threshold', 'default'), ('shape', '1, 8, 8')]
    """
    if isinstance(value, list) and not any(isinstance(entry, dict) for entry in value):
        return [(prefix, ", ".join(map(str, value)))]
    if isinstance(value, list):  # the parts of a composition
        value = {str(number): entry for number, entry in enumerate(value, 1)}
    if not isinstance(value, dict):
        return [(prefix, "default" if value is None else str(value))]
    pairs: list[tuple[str, str]] = []
    for key, inner in value.items():
        pairs += flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return pairs


def sum_costs(results: StoredResults) -> dict[tuple[str, str], tuple[int, float]]:
    """How many inputs were predicted and explained, and in how many seconds, by explainer and label."""
    if "model_evaluations" not in results.samples.columns:
        return {}
    place = ("explainer", "label")
    queries = results.samples.group_by(place).agg(
        pl.col("model_evaluations").filter(pl.col("model_evaluations") > 0).sum()
    )
    jobs = (
        results.jobs.filter(pl.col("status") == "done").group_by(place).agg(pl.col("seconds").sum())
    )
    found = queries.join(jobs, on=place, how="left")
    return {
        (who, label): (int(count), float(seconds or 0))
        for who, label, count, seconds in found.iter_rows()
    }


def list_publications(results: StoredResults) -> list[str]:
    """BibTeX entries, or keys where an entry is not known, without duplicates."""
    entries = {_find_publication(metric).strip() for metric in results.metrics.values()}
    return sorted(entry for entry in entries if entry)


def _find_publication(metric: ConfiguredMetric) -> str:
    """The publication's BibTeX entry, or what the manifest has of it."""
    kind = find_metric_class(metric.metric)
    entry = "" if kind is None else kind.bibtex
    return entry or str(metric.stored.get("bibtex") or metric.stored.get("citation") or "")


def count_rows(results: StoredResults) -> dict[tuple[str, str], dict[str, int]]:
    """For each label and explainer: how many rows there are, how many of each status, bounds, and errors."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in results.summary.rows:
        tally = found.setdefault((row.label, row.explainer), dict.fromkeys(COUNTED, 0))
        for key in ("rows", "evaluated", "counted", "bounds", "imprecise"):
            tally[key] += getattr(row.counts, key)
        for each in row.counts.uncounted:
            if each.status in tally:
                tally[each.status] += each.rows
        rows = results.metric_results(row.data, row.model, row.label).rows_for(row.explainer)
        for key, column in (("constant maps", "degenerate"), ("maps with NaN", "nonfinite")):
            values = read_numbers(rows, column)
            tally[key] += int(values[values > 0].sum())
    return found


def list_sample_failures(results: StoredResults) -> list[str]:
    """What metrics stored as the reasons why samples have no value, each once, with the name of the metric."""
    reasons = [
        f"{row.label}: {failure}"
        for row in results.summary.rows
        for uncounted in row.counts.uncounted
        for failure in uncounted.failures
    ]
    return list(dict.fromkeys(reasons))
