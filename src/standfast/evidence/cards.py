"""Cards of decisions in an evidence pack: of each explainer the weakest and the strongest ones.

A card shows the values of an input. So a pack has cards only with the arrays, which are the inputs themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from standfast.files import read_file
from standfast.report.cards import card_to_json, render_card
from standfast.results import StoredResults
from standfast.results.reasons import Card
from standfast.results.stored_reasons import METRIC, Place, read_card

#: so many of the weakest decisions of each explainer, and as many of the strongest
_SHOWN = 3


def write_cards(results: StoredResults) -> dict[str, bytes]:
    """The cards of a pack as pages and as JSON, by the names of their files; none without the metric `reasons`."""
    files: dict[str, bytes] = {}
    for name, card in _name_cards(results):
        files[f"{name}.json"] = _dump(card)
        files[f"{name}.html"] = render_card(card).encode()
    return files


def find_false_cards(
    results: StoredResults, folder: Path, listed: Mapping[str, object]
) -> dict[str, str]:
    """What is wrong with the cards of a pack: each is made again from the arrays of the pack."""
    # JSON alone: pages may change between versions
    names = []
    for name in listed:
        if name.startswith("cards/") and name.endswith(".json"):
            names.append(name)
    if not names:
        return {}
    expected = {f"{name}.json": _dump(card) for name, card in _name_cards(results)}
    problems = {name: "missing" for name in expected if name not in names}
    for name in names:
        if expected.get(name) != read_file(folder / name):
            problems[name] = "not what the stored draws give"
    return problems


def _name_cards(results: StoredResults) -> Iterator[tuple[str, Card]]:
    """The cards of a pack with their places in it, without the ends of files."""
    for number, card in enumerate(_read_cards(results), start=1):
        yield f"cards/{number:03}-sample-{card.sample}", card


def _dump(card: Card) -> bytes:
    return (
        json.dumps(card_to_json(card), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def _read_cards(results: StoredResults) -> Iterator[Card]:
    """The cards of the weakest and the strongest decisions of each data set, model and explainer."""
    label = next(
        (label for label, metric in results.metrics.items() if metric.metric == METRIC), None
    )
    if label is None:
        return
    for data, model in results.pairs:
        view = results.metric_results(data, model, label)
        for explainer in view.candidates:
            rows = (
                # cards show the first repeat, as all repeats explain the same input
                view.rows_for(explainer, repeat=0)
                .filter(pl.col("value").is_not_null())
                # by value, and by sample where values are equal, so that the same cards are chosen each time
                .sort("value", "sample")
            )
            samples = rows["sample"].to_list()
            # few samples are shown once each, and not twice
            if len(samples) <= 2 * _SHOWN:
                shown = samples
            else:
                shown = [*samples[:_SHOWN], *samples[-_SHOWN:]]
            for sample in shown:
                yield read_card(results, Place(data, model, explainer, sample))
