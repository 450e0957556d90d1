"""The page: what the template is given, and the template filled in."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.report.checks import LISTED, contradictions
from holdfast.report.citations import BIBTEX
from holdfast.report.figures import ID_MARK, Drawing, box_plots, curves, traces
from holdfast.report.gallery import gallery
from holdfast.report.results import Group, Results, read
from holdfast.report.summary import cell, counted, number, quantity
from holdfast.study.store import Store

#: rows of the per-sample table; the rest is in the results folder
ROWS = 5000
#: samples with a curve of ln P
CURVES_SHOWN = 3


def build_html(store: Store) -> str:
    """The whole report as one HTML document that loads nothing from elsewhere; the same bytes for the same results."""
    import jinja2

    results = read(store)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("holdfast.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html").render(_context(results))


def _context(results: Results) -> dict[str, Any]:
    labels = [label for label in results.labels if results.example(label) is not None]
    quantities = {label: quantity(group) for label in labels if (group := results.example(label)) is not None}
    sections = [_section(results, label) for label in labels]
    shown = [name for name in results.explainers if any(name == key[0] for key in results.groups)]
    warnings = contradictions(results)
    table, left_out = _table(results)
    keys = {str(group.record.get("citation")) for group in results.groups.values()}
    events = {group.event for group in results.groups.values() if group.event}
    kinds = {what.kind for what in quantities.values()}
    return {
        "title": str(_about(results).get("title") or "How far the explanations hold"),
        "facts": _facts(results),
        "labels": labels,
        "quantities": quantities,
        "summary": [(name, [_cell(results, name, label) for label in labels]) for name in shown],
        "sections": sections,
        "inline": _Figures(),
        "uneven": _uneven(results),
        "warnings": warnings[:LISTED],
        "more_warnings": max(0, len(warnings) - LISTED),
        "failures": results.failures,
        "missing": results.missing,
        "oddities": _oddities(results),
        "table": table,
        "left_out": left_out,
        "table_explainers": list(dict.fromkeys(row["explainer"] for row in table)),
        "methods": [
            (label, _flat(results.manifest.get("metrics", {}).get(label) or _options(results, label)))
            for label in labels
        ],
        "explainer_methods": [(name, _flat(o)) for name, o in results.manifest.get("explainers", {}).items()],
        "costs": _costs(results),
        "bibtex": [BIBTEX[key] for key in sorted(keys) if key in BIBTEX],
        "command": _about(results).get("command"),
        "events": events,
        "kinds": kinds,
        "all_options": [_options(results, label) for label in labels],
    }


def _about(results: Results) -> dict[str, Any]:
    return dict(results.manifest.get("about") or {})


def _options(results: Results, label: str) -> dict[str, Any]:
    group = results.example(label)
    return {} if group is None else group.options


def _cell(results: Results, name: str, label: str) -> Any:
    group = results.groups.get((name, label))
    return None if group is None else cell(group)


def _facts(results: Results) -> list[tuple[str, str]]:
    """What was evaluated, in pairs of a word and its meaning."""
    manifest, about = results.manifest, _about(results)
    facts = [(key.capitalize(), str(about[key])) for key in ("model", "data", "created") if about.get(key)]
    shape = manifest.get("input_shape")
    if manifest.get("samples") is not None:
        size = "" if not shape else f", each of shape {' × '.join(map(str, shape))}"
        facts.append(("Samples", f"{manifest['samples']}{size}"))
    if bounds := manifest.get("bounds"):
        facts.append(("Values allowed", f"{number(bounds[0][0], None)} to {number(bounds[1][1], None)}"))
    places = [_neighbourhood(_options(results, label).get("neighbourhood")) for label in results.labels]
    if any(places):
        facts.append(("Neighbourhood", "; ".join(dict.fromkeys(p for p in places if p))))
    facts.append(("Explainers", str(len(results.explainers))))
    if manifest.get("seed") is not None:
        facts.append(("Random seed", str(manifest["seed"])))
    facts += [
        (key.capitalize(), str(value))
        for key, value in about.items()
        if key not in ("title", "model", "data", "created", "command") and value
    ]
    environment = dict(manifest.get("environment") or {})
    versions = [f"{key} {environment[key]}" for key in ("holdfast", "torch", "python") if environment.get(key)]
    where = environment.get("gpu") or environment.get("machine")
    facts.append(("Computed with", ", ".join([*versions, *([f"on {where}"] if where else [])])))
    return facts


def _neighbourhood(value: Any) -> str:
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    norm = {"LinfBall": "every feature moves by at most", "L2Ball": "Euclidean distance at most"}
    start = norm.get(str(value.get("norm")), f"{value.get('norm')}, radius")
    text = f"{start} {number(float(value.get('radius', float('nan'))), None)}"
    return f"{text} ({value['distribution']} noise)" if value.get("distribution") else text


def _uneven(results: Results) -> list[str]:
    """Labels whose medians were taken over different samples for different explainers."""
    uneven = []
    for label in results.labels:
        taken = {tuple(np.array(group.samples)[counted(group)].tolist()) for group in results.of(label)}
        if len(taken) > 1:
            uneven.append(label)
    return uneven


class _Figures:
    """Numbers the page's figures, so that their ids differ."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, drawing: Drawing) -> str:
        """The drawing's SVG, not to be escaped."""
        import markupsafe

        self.count += 1
        return markupsafe.Markup(drawing.source.replace(ID_MARK, f"figure{self.count}-"))


def _section(results: Results, label: str) -> dict[str, Any]:
    groups, names = results.of(label), results.explainers
    what = quantity(groups[0]) if groups else None
    found: dict[str, Any] = {"label": label, "what": what, "box": None, "trace": None, "curves": [], "gallery": []}
    if what is None:
        return found
    found["box"] = box_plots(groups, names)
    if what.kind == "worst":
        found["trace"] = traces(groups, names)
        found["gallery"] = gallery(results, label)
    if what.kind == "probability":
        samples = sorted({sample for group in groups for sample in group.shown})[:CURVES_SHOWN]
        drawings = [curves(groups, names, sample) for sample in samples]
        found["curves"] = [drawing for drawing in drawings if drawing is not None]
    return found


def _oddities(results: Results) -> list[tuple[str, str, int, int, int]]:
    """Explainer, label, evaluations, and how many had a constant explanation, or NaN, where any had."""
    out = []
    for group in results.groups.values():
        if group.frame is None:
            continue
        looked, constant, broken = (
            int(group.column(name)[group.column(name) > 0].sum())
            for name in ("model_evaluations", "degenerate", "nonfinite")
        )
        if constant or broken:
            out.append((group.explainer, group.label, looked, constant, broken))
    return out


def _costs(results: Results) -> list[tuple[str, list[str]]]:
    rows = []
    for name in results.explainers:
        cells = []
        for label in results.labels:
            group = results.groups.get((name, label))
            if group is None or group.frame is None:
                cells.append("–")
                continue
            looks = group.column("model_evaluations")
            cells.append(f"{int(looks[looks > 0].sum()):,} / {group.seconds:.1f} s")
        rows.append((name, cells))
    return rows


def _table(results: Results) -> tuple[list[dict[str, Any]], int]:
    """One row per explainer, label and sample, as text beside the number to sort by."""
    rows: list[dict[str, Any]] = []
    total = 0
    for label in results.labels:
        for group in results.of(label):
            assert group.frame is not None
            total += len(group.frame)
            if len(rows) < ROWS:
                rows += _rows(group)
    return rows[:ROWS], total - min(total, ROWS)


def _rows(group: Group) -> list[dict[str, Any]]:
    assert group.frame is not None
    what = quantity(group)
    columns = ("targets", "predicted", "similarity", "margin", "low", "high", "model_evaluations")
    values = {name: group.column(name) for name in (*columns, "degenerate", "nonfinite", what.column)}
    flags = {n: group.flags(n) for n in ("found", "misinterpreted", "censored", "stalled") if n in group.frame.columns}
    out = []
    for place, (sample, status) in enumerate(zip(group.samples, group.frame["status"].to_list(), strict=True)):
        at = {name: float(column[place]) for name, column in values.items()}
        ok, value = status == "ok", at[what.column]
        said: list[str] = [str(name) for name, flag in flags.items() if ok and flag[place]]
        if ok and "found" in flags and not flags["found"][place]:
            said.append("not found")
        said += [
            f"{number(at[n], 0)} {word}" for n, word in (("degenerate", "constant"), ("nonfinite", "NaN")) if at[n] > 0
        ]
        interval = ""
        if what.kind == "probability" and ok:
            interval = f"[{number(at['low'])}, {number(at['high'])}]"
        elif what.column == "similarity" and ok:
            interval = f"J = {number(at['margin'])}"
        bound = "≤ " if ok and what.kind == "probability" and "censored" in said else ""
        after = f" → {number(at['predicted'], 0)}" if ok and at["predicted"] == at["predicted"] else ""
        out.append(
            {
                "explainer": group.explainer,
                "label": group.label,
                "sample": sample,
                "status": status,
                "class": number(at["targets"], 0) + after,
                "value": bound + number(value, what.decimals) if ok else "–",
                "key": value if ok and value == value else "",
                "beside": interval,
                "said": ", ".join(said),
                "evaluations": number(at["model_evaluations"], 0),
            }
        )
    return out


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested options as pairs of a dotted name and a text."""
    if not isinstance(value, dict):
        return [(prefix, "default" if value is None else str(value))]
    pairs: list[tuple[str, str]] = []
    for key, inner in value.items():
        pairs += _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return pairs
