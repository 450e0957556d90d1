"""Coarse and fine numbers over data sets: box plots for each model (Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standfast.metrics.coarse_to_fine.summary import summarise
from standfast.report.charts import Axis, Chart, Figure, Strip, Words, draw_values
from standfast.report.presentation.coarse_to_fine.drops import Drops, load_drops
from standfast.results.presentation import MetricResults

#: numbers, their titles, and whether they count only if the gate is passed
_NUMBERS = (
    ("auc_top", "AUC top", False),
    ("f1", "F1", False),
    ("auc_skewness", "AUC skew (absolute scale)", True),
    ("auc_kurtosis", "AUC kurt (absolute scale)", True),
)


def draw_boxes_over_data(views: Sequence[MetricResults]) -> list[Figure]:
    """Draw box plots for each model that was evaluated on several data sets."""
    found: list[Figure] = []
    models = list(dict.fromkeys(view.model for view in views))
    for model in models:
        own = [view for view in views if view.model == model]
        if len(own) < 2 or "top" not in (own[0].options.get("order") or ()):
            continue
        stored = {view.data: drops for view in own if (drops := load_drops(view)) is not None}
        name = model if len(models) > 1 else ""
        few = [drops for drops in stored.values() if not drops.enough]
        shown = [which for which in _NUMBERS if not (which[2] and few)]
        charts = [_draw_boxes(stored, own[0].explainers, name, *which) for which in shown]
        found += [chart for chart in charts if chart is not None]
        if few:
            fewest = min(few, key=lambda drops: drops.fewest)
            found.append(fewest.too_few(f"AUC skew and AUC kurt by data set{f', {name}' if name else ''}"))
    return found


def _draw_boxes(
    stored: dict[str, Drops], explainers: Sequence[str], model: str, key: str, title: str, fine: bool
) -> Chart | None:
    values: dict[str, dict[str, float]] = {}
    ungated, left_out = [], []
    for data, drops in stored.items():
        ungated += [data] if fine and not drops.gates else []
        for name, curves in drops.curves.items():
            value = getattr(summarise(curves, resamples=0), key)
            if fine and not drops.may_be_read(name):
                left_out.append(f"{name} on {data}")
            elif np.isfinite(value):
                values.setdefault(name, {})[data] = value
    caption = ""
    if fine:
        caption = "The scale is the same for all data sets."
        caption += f" Left out, as the gate is not passed: {', '.join(left_out)}." if left_out else ""
        caption += f" Without a gate, as `random` is missing: {', '.join(ungated)}." if ungated else ""
    of = f", {model}" if model else ""
    words = Words(
        f"{title} over {len(stored)} data sets{of}",
        caption,
        f"across-{key.replace('_', '-')}{f'-{model}' if model else ''}",
        f"{title} by data set{of}",
    )
    strips = [
        Strip(name, list(own), np.array(list(own.values())), np.zeros(len(own), dtype=bool))
        for name in explainers
        if (own := values.get(name))
    ]
    return draw_values(strips, explainers, Axis(title, "higher"), words, each="data set")
