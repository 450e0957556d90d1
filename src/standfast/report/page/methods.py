"""What a reader needs to repeat the study: facts, all options, costs, environment, publications."""

from __future__ import annotations

from typing import Any

import polars as pl

from standfast.report.views import Contents
from standfast.report.wording import describe_reach, describe_transformation
from standfast.results.formatting import format_count, format_number
from standfast.results.presentation import read_numbers

_FACTS = ("title", "model", "data", "created", "command")


def describe_question(contents: Contents) -> str:
    """What was asked, in a sentence: how many explainers of which model, on which data, and how far inputs move.

    It is made from names and numbers of the manifest. Empty without results.
    """
    if not contents.pairs:
        return ""
    about = contents.manifest.get("about") or {}
    count = len(contents.explainers)
    models = [model for model in contents.models if any(model == own for _, own in contents.pairs)]
    data = [name for name in contents.data if any(name == own for own, _ in contents.pairs)]
    who = contents.explainers[0] if count == 1 else contents.count_explainers()
    model = about.get("model") if len(models) == 1 else None
    of = str(model or (models[0] if len(models) == 1 else f"{len(models)} models ({', '.join(models)})"))
    samples = [(contents.manifest.get("data") or {}).get(name, {}).get("samples") for name in data]
    if about.get("data"):
        on = str(about["data"])
    elif len(data) == 1:
        on = f"{format_count(samples[0], 'sample')} of {data[0]}" if samples[0] else data[0]
    else:
        on = f"{len(data)} data sets ({', '.join(data)})"
    words = any((contents.manifest.get("data") or {}).get(name, {}).get("tokens") for name in data)
    part = "number of the embedding" if words else "feature"
    options = [label.options for label in contents.labels.values()]
    reaches = list(dict.fromkeys(filter(None, (describe_reach(own, part) for own in options))))
    changes = list(dict.fromkeys(filter(None, map(describe_transformation, options))))
    text = f"{who} of {of}, on {on}."
    count = len(reaches) + len(changes)
    if count > 3:
        what = f"are changed in {count} different ways" if changes else f"move by {count} different amounts"
    else:
        moved = f"move {' or '.join(reaches)}" if reaches else ""
        what = " or ".join(filter(None, (moved, f"are {' or '.join(changes)}" if changes else "")))
    return f"{text} Inputs {what}." if what else text


def describe_study(contents: Contents) -> list[tuple[str, str]]:
    """What was evaluated, as pairs of a word and its meaning."""
    manifest, about = contents.manifest, contents.manifest.get("about") or {}
    found = [(key.capitalize(), str(about[key])) for key in ("model", "data", "created") if about.get(key)]
    for what, names, describe in (("Data", contents.data, _data), ("Models", contents.models, _model)):
        entries = manifest.get("data" if what == "Data" else "models") or {}
        texts = [describe(name, dict(entries.get(name) or {})) for name in names]
        word = what if what == "Data" or len(names) > 1 else "Model"
        if texts:
            found.append((f"{word} in detail" if about.get(word.lower()) else word, "; ".join(texts)))
    places = [_neighbourhood(label.options.get("neighbourhood")) for label in contents.labels.values()]
    if any(places):
        found.append(("Neighbourhood", "; ".join(dict.fromkeys(p for p in places if p))))
    found.append(("Explainers", ", ".join(contents.explainers) or "none"))
    if contents.repeats > 1:
        found.append(("Repeats", f"{contents.repeats}, each with other random numbers"))
    if manifest.get("seed") is not None:
        found.append(("Random seed", str(manifest["seed"])))
    found += [(key.capitalize(), str(value)) for key, value in about.items() if key not in _FACTS and value]
    environment = dict(manifest.get("environment") or {})
    versions = [f"{key} {environment[key]}" for key in ("standfast", "torch", "python") if environment.get(key)]
    where = environment.get("gpu") or environment.get("cpu") or environment.get("machine")
    if versions:
        found.append(("Computed with", ", ".join([*versions, *([f"on {where}"] if where else [])])))
    return found


def _data(name: str, stored: dict[str, Any]) -> str:
    parts = [format_count(stored["samples"], "sample")] if stored.get("samples") is not None else []
    if stored.get("input_shape"):
        parts.append(f"shape {' × '.join(map(str, stored['input_shape']))}")
    try:
        (low, _), (_, high) = stored["bounds"]
        parts.append(f"values {format_number(float(low), None)} to {format_number(float(high), None)}")
    except (KeyError, TypeError, ValueError):
        pass
    return f"{name} ({', '.join(parts)})" if parts else name


def _model(name: str, stored: dict[str, Any]) -> str:
    parts = [str(stored["module"])] if stored.get("module") else []
    if stored.get("parameters") is not None:
        parts.append(f"{int(stored['parameters']):,} parameters")
    return f"{name} ({', '.join(parts)})" if parts else name


def _neighbourhood(value: Any) -> str:
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    changed = describe_transformation({"neighbourhood": value})
    if changed:
        return f"{changed} ({str(value.get('distribution', 'uniform')).replace('_', ' ')} parameters)"
    norm = {"LinfBall": "every feature moves by at most", "L2Ball": "Euclidean distance at most"}
    start = norm.get(str(value.get("norm")), f"{value.get('norm')}, radius")
    radius = value.get("radius")
    text = f"{start} {format_number(float(radius), None) if isinstance(radius, int | float) else radius}"
    return f"{text} ({value['distribution']} noise)" if value.get("distribution") else text


def list_options(contents: Contents) -> list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]:
    """Headings, each with names and their options as pairs of a dotted name and a text."""
    manifest = contents.manifest
    metrics = []
    for name, label in contents.labels.items():
        stored = {key: value for key, value in label.stored.items() if key not in ("options", "bibtex", "citation")}
        metrics.append((name, flatten({"metric": label.metric, **stored, **label.options})))
    tables = [("Metrics", metrics)]
    jobs, columns = contents.results.jobs, ["explainer", "choices", "model"]
    chosen = sorted(jobs.select(columns).unique().drop_nulls().rows()) if "choices" in jobs.columns else []
    for heading, key, names in (
        ("Explainers", "explainers", contents.explainers),
        ("Models", "models", contents.models),
        ("Data", "data", contents.data),
    ):
        entries = manifest.get(key) or {}
        tables.append((heading, [(name, flatten(entries[name])) for name in names if entries.get(name)]))
    for name, pairs in tables[1][1]:
        pairs += [("chosen", f"{text} of {model}") for who, text, model in chosen if who == name]
    environment = [
        (key, "none" if text == "default" else text) for key, text in flatten(manifest.get("environment") or {})
    ]
    rest = {key: manifest[key] for key in ("seed", "repeats", "samples_per_job", "device") if key in manifest}
    tables.append(("Environment and run", [("environment", environment), ("run", flatten(rest))]))
    return [(heading, [(name, pairs) for name, pairs in entries if pairs]) for heading, entries in tables]


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


def sum_costs(contents: Contents) -> list[tuple[str, list[str]]]:
    """For each explainer and label: how many inputs were predicted and explained, and in how many seconds."""
    samples, jobs = contents.results.samples, contents.results.jobs
    rows = []
    for name in contents.explainers if samples.width else ():
        cells = []
        for label in contents.labels:
            here = (pl.col("explainer") == name) & (pl.col("label") == label)
            queries = read_numbers(samples.filter(here), "model_evaluations")
            seconds = read_numbers(jobs.filter(here & (pl.col("status") == "done")), "seconds")
            text = f"{int(queries[queries > 0].sum()):,} / {seconds[seconds > 0].sum():,.1f} s"
            cells.append(text if len(queries) else "–")
        rows.append((name, cells))
    return rows


def list_publications(contents: Contents) -> list[str]:
    """BibTeX entries, or keys where an entry is not known, without duplicates."""
    found = (label.bibtex.strip() for label in contents.labels.values())
    return list(dict.fromkeys(sorted(entry for entry in found if entry)))


def count_rows(contents: Contents) -> list[tuple[str, str, dict[str, int]]]:
    """For each label and explainer: how many rows there are, how many of each status, and how many are bounds."""
    found = []
    for name, label in contents.labels.items():
        frames = [contents.frame(data, model, name) for data, model in contents.pairs]
        frames = [frame for frame in frames if len(frame)]
        if not frames:
            continue
        whole = pl.concat(frames, how="diagonal_relaxed")
        for explainer in contents.explainers:
            rows = whole.filter(pl.col("explainer") == explainer)
            if not len(rows):
                continue
            status = dict(rows["status"].value_counts().iter_rows())
            counted = label.spec.select_valid(rows)
            maps = {key: read_numbers(rows, key) for key in ("degenerate", "nonfinite")}
            counts = {
                "rows": len(rows),
                "evaluated": int(status.get("ok", 0)),
                **{key: int(status.get(key, 0)) for key in ("misclassified", "degenerate", "nonfinite")},
                "in medians": len(counted),
                "bounds": int(label.spec.bounds(counted).sum()),
                **{f"maps {key}": int(values[values > 0].sum()) for key, values in maps.items()},
            }
            found.append((explainer, name, counts))
    return found
