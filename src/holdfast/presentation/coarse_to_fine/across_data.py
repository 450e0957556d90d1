"""Coarse and fine numbers over data sets: box plots, a panel for each model (Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.charts import Chart, Figure, Point, boxes
from holdfast.metrics.coarse_to_fine.summary import summarise
from holdfast.presentation.base import View
from holdfast.presentation.coarse_to_fine.drops import Drops, drops_of

#: numbers, what they are called, and whether they pass through the gate
_NUMBERS = (
    ("auc_top", "AUC top", False),
    ("f1", "F1", False),
    ("auc_skewness", "AUC skew (absolute scale)", True),
    ("auc_kurtosis", "AUC kurt (absolute scale)", True),
)


def boxes_over_data(views: Sequence[View]) -> list[Figure]:
    """Box plots for each model that has been evaluated on several data sets."""
    found: list[Figure] = []
    models = list(dict.fromkeys(view.model for view in views))
    for model in models:
        own = [view for view in views if view.model == model]
        if len(own) < 2 or "top" not in (own[0].options.get("order") or ()):
            continue
        stored = {view.data: drops for view in own if (drops := drops_of(view)) is not None}
        name = model if len(models) > 1 else ""
        charts = [_chart(stored, own[0].explainers, name, *which) for which in _NUMBERS]
        found += [chart for chart in charts if chart is not None]
    return found


def _chart(
    stored: dict[str, Drops], explainers: Sequence[str], model: str, key: str, title: str, fine: bool
) -> Chart | None:
    points, ungated = [], []
    for data, drops in stored.items():
        ungated += [data] if fine and not drops.gates else []
        for name, curves in drops.curves.items():
            value = getattr(summarise(curves, resamples=0), key)
            points.append(Point(name, data, value, not fine or drops.counts(name)))
    caption = ""
    if fine:
        caption = "Grey and not in the box: the gate is not passed there. The scale is the same for all data sets."
        caption += f" No gate, for want of `random`: {', '.join(ungated)}." if ungated else ""
    of = f", {model}" if model else ""
    return boxes(
        points,
        explainers,
        f"{title} over {len(stored)} data sets{of}",
        title,
        "higher",
        caption=caption,
        name=f"across-{key.replace('_', '-')}{f'-{model}' if model else ''}",
        heading=f"{title} by data set{of}",
    )
