"""The heat map of the agreement between explainers and between models, and the two-way table of seeds and models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from standfast.errors import ArgumentError
from standfast.report.charts import ExplainerTable, TableCell
from standfast.results import StoredResults
from standfast.results.agreement import MapAgreement, Measure, Pair
from standfast.results.formatting import format_number

#: what each measure is called
TITLES: dict[Measure, str] = {
    "kendall": "Kendall's tau",
    "overlap": "Top-{top} overlap",
    "signs": "Same signs",
}
#: what the chance level of two models, or of two data sets, is that of
_BY_CHANCE = {"model": "maps of different samples", "data": "features in a random order"}
#: more sources than this make a table that nobody reads
MOST = 24


@dataclass(frozen=True)
class HeatMap:
    """One measure as the template takes it.

    Attributes:
        title: of the measure.
        names: of the rows and columns.
        rows: of cells: the text, the share of the colour from 0 to 1, and the interval, the chance level and the number
            of samples in words.
        chance: the median chance level, as text.
        by_chance: what this is the level of.
    """

    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[tuple[str, float, str], ...], ...]
    chance: str
    by_chance: str


def list_agreements(results: StoredResults) -> list[dict[str, Any]]:
    """For each data set with stored maps of several sources: heat maps, and the table of trained models or None.

    For each model that meets several data sets with the same features the same of these.
    """
    if not len(results.samples):
        return []
    data_sets = [(results.agreement, data) for data in results.data]
    models = dict.fromkeys(model for _, model in results.pairs)
    over_data = [(results.agreement_of_data, model) for model in models]
    described = []
    for measure_agreement, name in (*data_sets, *over_data):
        try:
            agreement = measure_agreement(name)
        except ArgumentError:
            # no maps are stored (yet), or there is nothing to compare
            continue
        if 1 < len(agreement.sources) <= MOST:
            maps = [_make_map(agreement, measure, title) for measure, title in TITLES.items()]
            trained = _tabulate(agreement)
            described.append({"name": name, "of": agreement.of, "maps": maps, "trained": trained})
    return described


def _make_map(agreement: MapAgreement, measure: Measure, title: str) -> HeatMap:
    several = len({name for name, _ in agreement.sources}) > 1
    names = tuple(
        f"{explainer}, {name}" if several else explainer for name, explainer in agreement.sources
    )
    by_chance = _BY_CHANCE[agreement.of]
    indices = range(len(names))
    rows = []
    for row in indices:
        pairs = [agreement.find(row, column, measure) for column in indices]
        rows.append(tuple(_write(pair, by_chance) for pair in pairs))
    levels = [pair.chance for pair in agreement.pairs if pair.measure == measure]
    # a single sample has no other, and so no chance level
    finite = sorted(level for level in levels if not math.isnan(level))
    if finite:
        chance = format_number(finite[len(finite) // 2])
    else:
        chance = "–"
    return HeatMap(title.format(top=agreement.top), names, tuple(rows), chance, by_chance)


def _write(pair: Pair, by_chance: str) -> tuple[str, float, str]:
    if math.isnan(pair.median):
        # of inputs with too many numbers
        return "–", 0.0, "not computed"
    interval = _write_interval(pair.low, pair.high)
    if math.isnan(pair.chance):
        chance = ""
    else:
        chance = f"{by_chance} {format_number(pair.chance)}"
    parts = (interval, chance, f"{pair.samples} samples")
    words = ", ".join(filter(None, parts))
    level = min(max(pair.median, 0.0), 1.0)
    return format_number(pair.median), level, words


def _write_interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"[{format_number(low)}, {format_number(high)}]"


def _tabulate(agreement: MapAgreement) -> ExplainerTable | None:
    """The shares of the variance within and between trained models."""
    rows = []
    for row in agreement.variance.iter_rows(named=True):
        cells = []
        for name in ("within model", "between models"):
            low = row[f"{name}, low"]
            high = row[f"{name}, high"]
            cell = TableCell(format_number(row[name]), _write_interval(low, high))
            cells.append(cell)
        heading = f"{row['explainer']}, {row['model']} ({row['trained']} times)"
        rows.append((heading, cells))
    if not rows:
        return None
    columns = [
        ("Another seed", "of the explainer, the same model"),
        ("Another model", "trained again"),
    ]
    caption = "Variance of the maps as a share of their mean squared length; medians over samples, 95% intervals."
    return ExplainerTable(
        "What changes the map: the explainer's seed or the model's?", columns, rows, caption
    )
