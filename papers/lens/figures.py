"""LENS: Fig. 2 (size of the perturbation), Fig. 4 (data sets), Fig. 5 (windows), Fig. 10 (numbers of pixels)."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import polars as pl

from papers.base import Column, Part
from papers.lens.parts import (
    ATTACKED,
    ATTACKS,
    IG,
    PLAIN,
    PRECISION,
    RADII,
    SHARES,
    TITLES,
    is_column_above,
    judge_factor,
    make_columns,
    make_part,
    note_attacks,
    quote_paper,
    repeat_rows,
)
from papers.reading import (
    Outcomes,
    Verdict,
    add_label_words,
    all_above,
    all_hold,
    group_by_outcome,
    is_at_least,
    keep_exact,
    mean_interval,
)
from standfast.similarity.stored import name_chance

# ---- Fig. 2: similarity by the size of the perturbation ----

_SG = "SG"


def _judge_figure2(columns: dict[str, str], frame: pl.DataFrame) -> list[Verdict]:
    intersection, recall, diverse = columns.values()
    sizes = frame["radius"].unique(maintain_order=True).to_list()
    ends = [(sizes[0], sizes[-1])] if sizes else []
    falls: Outcomes = {}
    better: Outcomes = {}
    for explainer in (_SG, IG):
        own = frame.filter(pl.col("explainer") == explainer).with_columns(pl.lit("").alias("label"))
        for attack in ATTACKS:
            rows = own.filter(pl.col("attack") == attack)
            falls[f"{explainer} {attack}"] = all_above(rows, ends, intersection, "radius")
            better[f"{explainer} {attack}"] = all_hold(
                is_column_above(rows.filter(pl.col("radius") == size), diverse, recall)
                for size in sizes
            )
    return [
        *group_by_outcome(
            "top-k intersection drops with the size of the perturbation, even for random signs",
            falls,
        ),
        *group_by_outcome("locality with diversity is above locality alone, at every size", better),
    ]


def _make_figure2(data: str) -> Part:
    k = SHARES[data]
    columns = {
        "top-k intersection": f"topk_intersection:k={k}",
        "3-LENS-recall@k": f"lens_recall:k={k},w=3",
        "3-LENS-recall@k-div": f"lens_recall:k={k},w=3,diverse=true",
    }
    return make_part(
        f"figure2-{data}",
        f"{TITLES[data]}, k = {k}, by attack and radius: mean [95% interval]",
        tuple(
            Column(
                f"{explainer} {heading}",
                name,
                where={"explainer": explainer},
                decimals=2,
                chance=name_chance(name),
            )
            for explainer in (_SG, IG)
            for heading, name in columns.items()
        ),
        notes=lambda frame: note_attacks(frame, "explainer", "radius", "attack"),
        verdicts=partial(_judge_figure2, columns),
        rows=("attack", "radius"),
        prepare=lambda results: add_label_words(results.samples, "attack", "radius"),
    )


# ---- Fig. 4: data sets ----

_NEAR = 0.8  # share of the pixels; our reading of "< 20% of the samples"


def _judge_figure4(title: str, frame: pl.DataFrame) -> list[Verdict]:
    near = mean_interval(keep_exact(frame, PRECISION)[PRECISION].to_numpy())
    text = "less than 20% of the top pixels moved by more than one (our reading)"
    return [judge_factor(frame, title), (text, title, is_at_least(near, _NEAR))]


def _make_figure4(data: str) -> Part:
    title = TITLES[data]
    return make_part(
        f"figure4-{data}",
        f"{title}, top-t attack of {RADII[data]}: mean [95% interval]",
        make_columns(PLAIN, quote_paper(ATTACKED, {IG: f"{title}, natural, top-k"})),
        notes=lambda frame: note_attacks(frame, "label"),
        verdicts=partial(_judge_figure4, title),
    )


# ---- Fig. 5: windows ----

_WINDOWS = range(5)


def _judge_figure5(frame: pl.DataFrame) -> list[Verdict]:
    steps = [(str(after), str(before)) for before, after in pairwise(_WINDOWS)]
    grown = {
        attack: all_above(frame.filter(pl.col("label") == attack), steps, "precision_diverse", "w")
        for attack in ATTACKS
    }
    gains = _compute_gains(frame)
    most = {
        f"than {other}": all_above(gains, [("top-k", other)], "gain", "label")
        for other in ("mass center", "random")
    }
    return [
        *group_by_outcome("w-LENS-prec@k-div increases with w, at every step", grown),
        *group_by_outcome("the top-t attack gains more from w (w = 3 minus w = 0)", most),
    ]


def _compute_gains(frame: pl.DataFrame) -> pl.DataFrame:
    """The gain of each image and attack: the precision at w = 3 minus that at w = 0."""
    narrow, wide = (frame.filter(pl.col("w") == w) for w in ("0", "3"))
    both = wide.join(
        narrow, on=["data", "model", "explainer", "label", "repeat", "sample"], suffix=" at 0"
    )
    return both.with_columns((pl.col("precision") - pl.col("precision at 0")).alias("gain"))


def _make_figure5(data: str) -> Part:
    k = SHARES[data]
    names = {}
    for w in _WINDOWS:
        plain = f"lens_precision:k={k},w={w}"
        names[str(w)] = {
            "precision": plain,
            "precision_diverse": f"{plain},diverse=true" if w else plain,
        }
    return make_part(
        f"figure5-{data}",
        f"{TITLES[data]}, integrated gradients, k = {k}, by attack and window: mean [95% interval]",
        make_columns(
            {"w-LENS-prec@k": "precision", "w-LENS-prec@k-div": "precision_diverse"}, {}, decimals=2
        ),
        notes=lambda frame: note_attacks(frame, "label"),
        verdicts=_judge_figure5,
        rows=("label", "w"),
        prepare=repeat_rows("w", names),
    )


# ---- Fig. 10: numbers of pixels ----

_COUNTS = (10, 25, 50, 100, 200, 300)
_LARGE = 0.1  # our reading of "a large disparity": at least this difference


def _judge_figure10(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    for attack in ("top-k", "random"):
        own = frame.filter(pl.col("label") == attack)
        outcomes[attack] = all_hold(
            is_column_above(own.filter(pl.col("k") == str(k)), "precision", "intersection", _LARGE)
            for k in _COUNTS
        )
    text = f"a large disparity of intersection and 1-LENS-prec@k for all k (at least {_LARGE}, our reading)"
    return group_by_outcome(text, outcomes)


def _make_figure10(data: str) -> Part:
    paper = quote_paper(
        ATTACKED, {f"{attack}, 100": f"{TITLES[data]}, natural, {attack}" for attack in ATTACKS}
    )
    names = {
        str(k): {
            "intersection": f"topk_intersection:k={k}",
            "precision": f"lens_precision:k={k},w=1",
        }
        for k in _COUNTS
    }
    return make_part(
        f"figure10-{data}",
        f"{TITLES[data]}, integrated gradients, by attack and k: mean [95% interval]",
        make_columns(
            {"top-k intersection": "intersection", "1-LENS-prec@k": "precision"}, paper, decimals=2
        ),
        notes=lambda frame: note_attacks(frame, "label"),
        verdicts=_judge_figure10,
        rows=("label", "k"),
        prepare=repeat_rows("k", names),
    )


FIGURE2 = tuple(map(_make_figure2, SHARES))
FIGURE4 = tuple(map(_make_figure4, TITLES))
FIGURE5 = tuple(map(_make_figure5, SHARES))
FIGURE10 = tuple(map(_make_figure10, SHARES))
