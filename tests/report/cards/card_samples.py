"""Cards by hand: draws of a customer, of retrained models, of an image, of a series and of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from standfast.results.reasons import Card, StoredDraws, Wanted, make_card
from standfast.tensors import Array

COLUMNS = {
    "income": "1,200",
    "debt": "9,400",
    "town": "Ulm",
    "age": "45",
    "years": "3",
    "cards": "2",
}
VALUES = np.array([-2.0, 3.0, 0.9, 0.8, 0.3, 0.1])
SPREAD = np.array([0.1, 0.1, 0.2, 0.15, 0.05, 0.05])


def draw(
    seed: int,
    maps: Array,
    wanted: Wanted,
    origin: Array | None = None,
    drawn: int | None = None,
    **changes: Any,
) -> StoredDraws:
    """Stored draws with these maps `(R, F)`."""
    signed = wanted.sign_first(maps) if len(maps) else np.zeros(maps.shape)
    fields: dict[str, Any] = {
        "model": "pipeline",
        "explainer": "tree_shap",
        "target": 1,
        "origin": maps.mean(0) if origin is None else origin,
        "named_for": (signed > 0).sum(0),
        "named_against": (signed < 0).sum(0),
        "mean": maps.mean(0) if len(maps) else np.zeros(maps.shape[1]),
        "maps": maps,
        "drawn": len(maps) if drawn is None else drawn,
        "kept": len(maps),
        "looks": 1,
        "varied": ("background", "measurement"),
    }
    return StoredDraws(**{**fields, **changes})


def draw_customer(seed: int, count: int, spread: float = 1.0, **changes: Any) -> StoredDraws:
    """Draws of a customer whose third reason is hardly larger than the fourth feature."""
    rng = np.random.default_rng(seed)
    maps = VALUES + spread * SPREAD * rng.normal(size=(count, len(VALUES)))
    return draw(seed, maps, Wanted(3, 0.9), VALUES, **changes)


def about(**changes: Any) -> dict[str, Any]:
    """What a card says of the customer beside the reasons."""
    fields: dict[str, Any] = {
        "data": "credit",
        "sample": 17,
        "answer": "P(default) > 0.35",
        "rule": "P(default) > 0.35",
        "score": 0.62,
        "unused": ("seed",),
        "columns": COLUMNS,
        "input": np.arange(6.0),
    }
    return {**fields, **changes}


def name_columns() -> list[tuple[str, str]]:
    return [(name, f"{name} {value}") for name, value in COLUMNS.items()]


def make_customer(count: int = 200, dropped: int = 0, **changes: Any) -> Card:
    """Income and debt hold, and town does not."""
    given = draw_customer(0, count, drawn=count + dropped)
    alone = {
        "background": draw_customer(1, 40, 0.1, varied=("background",)),
        "measurement": draw_customer(2, 40, 0.9, varied=("measurement",)),
    }
    return make_card(about(**changes), given, Wanted(3, 0.9), alone=alone, names=name_columns())  # type: ignore[arg-type]


def make_retrained(models: int = 8, otherwise: int = 1) -> Card:
    """Reasons of retrained models, of which some answer otherwise."""
    given = draw_customer(0, 40)
    shifts = np.random.default_rng(5).normal(size=(models, len(VALUES)))
    again: list[StoredDraws | None] = []
    for number in range(models):
        maps = VALUES + SPREAD * (
            2 * shifts[number] + np.random.default_rng(number).normal(size=(4, len(VALUES)))
        )
        own = draw(number, maps, Wanted(3, 0.9), VALUES + 2 * SPREAD * shifts[number])
        again.append(own if number >= otherwise else None)
    return make_card(about(), given, Wanted(3, 0.9), again, names=name_columns())


def make_unvaried() -> Card:
    """An explainer in which nothing varies."""
    given = draw_customer(0, 0, varied=())
    return make_card(
        about(unused=("seed", "background")), given, Wanted(3, 0.9), names=name_columns()
    )


def make_image(side: int = 28, top: int = 78, channels: int = 1, count: int = 60) -> Card:
    """A blob whose middle holds."""
    rows, columns = np.indices((side, side)) / side
    blob = np.exp(-((rows - 0.4) ** 2 + (columns - 0.5) ** 2) / 0.02)
    edge = -0.7 * np.exp(-((rows - 0.8) ** 2 + (columns - 0.7) ** 2) / 0.01)
    rng = np.random.default_rng(3)
    origin = (blob + edge).ravel()
    maps = origin + 0.1 * rng.normal(size=(count, side * side))
    wanted = Wanted(top, 0.9, shares_places=True)
    row = {"value": 0.8, "low": 0.78, "high": 0.83}
    given = draw(0, maps, wanted, origin, explainer="grad_cam", varied=("measurement",), row=row)
    picture = np.stack([blob + 0.2 * rows] * channels)
    return make_card(
        about(answer="class 3", rule="", unused=(), columns={}, input=picture), given, wanted
    )


def make_series(channels: int = 2, steps: int = 120) -> Card:
    """Two windows of a series, of which one holds."""
    rng = np.random.default_rng(4)
    time = np.arange(steps)
    origin = np.zeros((channels, steps))
    origin[0, 20:34] = 1.0
    origin[-1, 80:94] = -0.3
    maps = origin.ravel() + 0.12 * rng.normal(size=(60, channels * steps))
    wanted = Wanted(24, 0.9, shares_places=True)
    row = {"value": 0.7, "low": 0.68, "high": 0.73}
    given = draw(
        0, maps, wanted, origin.ravel(), explainer="occlusion", varied=("measurement",), row=row
    )
    lines = np.stack([np.sin(time / (5 + channel)) for channel in range(channels)])
    return make_card(
        about(answer="class 1", rule="", unused=(), columns={}, input=lines), given, wanted
    )


def make_text(
    words: Sequence[str] = ("a", "dull", "plot", "but", "good", "acting", "and", "good", "music"),
) -> Card:
    """A text whose strongest words hold."""
    rng = np.random.default_rng(6)
    origin = 0.05 * rng.normal(size=len(words))
    origin[[1, 4, 7]] = -2.0, 1.5, 0.3
    maps = origin + 0.12 * rng.normal(size=(200, len(words)))
    wanted = Wanted(3, 0.9)
    given = draw(0, maps, wanted, origin, explainer="kernel_shap", varied=("seed",))
    names = [(word, word) for word in words]
    fields = about(
        answer="class positive", rule="", unused=(), columns={}, input=np.zeros(len(words))
    )
    return make_card(fields, given, wanted, names=names)


PASSAGES = (
    "Halden is a small town on the river Orne.",
    "The bridge of Halden was designed by the engineer Marta Lindqvist.",
    "Its market is held on Saturdays.",
    "It is painted green every seven years.",
    "After four years of work the bridge was opened in 1931, and trains have never used it since then, as planned.",
    "Its market is held on Saturdays.",
    "Today the town has 8,000 inhabitants.",
    "The school was closed for two weeks.",
)


def make_passages() -> Card:
    """The context of an answer, as it is cut into sentences."""
    return make_text(PASSAGES)


def make_crowded(reasons: int = 20, features: int = 40) -> Card:
    """As many reasons as are decided, with long names."""
    rng = np.random.default_rng(7)
    origin = np.linspace(3, 0.1, features) * rng.choice([-1, 1], size=features)
    maps = origin + 0.2 * rng.normal(size=(200, features))
    wanted = Wanted(reasons, 0.9)
    given = draw(0, maps, wanted, origin, drawn=230, varied=("seed", "background", "measurement"))
    names = [
        f"months_since_the_last_late_payment_of_account_{number}" for number in range(features)
    ]
    columns = {name: f"{number * 1000:,}" for number, name in enumerate(names)}
    shifts = rng.normal(size=(12, features))
    again = [
        draw(n, origin + 0.1 * shifts[n] + 0.1 * rng.normal(size=(4, features)), wanted, origin)
        for n in range(12)
    ]
    card = make_card(
        about(columns=columns, input=np.arange(float(features))),
        given,
        wanted,
        again,
        alone={"background": given, "measurement": given, "seed": given},
        names=[(name, f"{name} {columns[name]}") for name in names],
    )
    return replace(
        card,
        notes=(
            "The reference has few rows.",
            "The input has a value that no row of the reference has.",
        ),
    )
