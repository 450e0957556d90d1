"""LENS: Fig. 2 (size of the perturbation), Fig. 4 (data sets), Fig. 5 (windows), Fig. 10 (numbers of pixels)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import polars as pl

from papers.base import Column, Part, Scale
from papers.lens.chance import compare_unrelated_maps
from papers.lens.paper import ATTACKS, TABLE4, quote_survey
from papers.lens.parts import (
    CIFAR10,
    FASHION,
    GTSRB,
    IG,
    INTERSECTION,
    LOCAL,
    MNIST,
    PRECISION,
    RECALL,
    Setting,
    describe_budget,
    describe_networks,
    format_size,
    is_column_above,
    judge_chance,
    judge_factor,
    judge_never_below,
    make_attack,
    make_columns,
    make_integrated_gradients,
    make_study,
    note_attacks,
    repeat_rows,
    similarity_name,
)
from papers.reading import (
    Outcomes,
    Verdict,
    add_label_words,
    all_above,
    all_hold,
    group_by_outcome,
    is_at_least,
    mean_interval,
)
from standfast.metrics.lens.attribution_attack import name_chance

_SG = "SG"
_NATURAL = ("natural",)
_FULL = 1000  # images of a full run


def _natural_study(
    title: str, setting: Setting, scale: Scale, metrics: dict[str, Any], **sections: Any
) -> dict[str, Any]:
    explainers = {IG: make_integrated_gradients(scale, setting)}
    count = setting.small[0] if scale == "small" else _FULL
    return make_study(
        f"{title}, {setting.title}",
        setting,
        count,
        _NATURAL,
        **{"explainers": explainers, "metrics": metrics, **sections},
    )


def _departures(setting: Setting, scale: Scale, more: str) -> str:
    budget = describe_budget(setting, scale, f"{min(_FULL, setting.images)} in a full run")
    return f"{budget}{describe_networks(setting, 'natural')}{more}"


# ---- Fig. 2: similarity by the size of the perturbation ----

_SIZES2 = (0.125, 0.25, 0.5, 1.0)  # shares of the radius: for 8/255 they are 1/255, 2/255, 4/255 and 8/255


def _columns2(setting: Setting) -> dict[str, str]:
    k = setting.share
    return {
        "top-k intersection": similarity_name("intersection", k),
        "3-LENS-recall@k": similarity_name("recall", k, 3),
        "3-LENS-recall@k-div": similarity_name("recall", k, 3, diverse=True),
    }


def _radii(setting: Setting) -> list[float]:
    return [share * setting.radius for share in _SIZES2]


def _study2(setting: Setting, scale: Scale) -> dict[str, Any]:
    columns = tuple(_columns2(setting).values())
    return _natural_study(
        "Similarity by the size of the perturbation (Fig. 2)",
        setting,
        scale,
        {
            f"{name}, {format_size(r)}": make_attack(name, setting, scale, columns, r)
            for name in ATTACKS
            for r in _radii(setting)
        },
        explainers={_SG: "saliency", IG: make_integrated_gradients(scale, setting)},
    )


def _verdicts2(setting: Setting, frame: pl.DataFrame) -> list[Verdict]:
    names = _columns2(setting)
    intersection, recall, diverse = names.values()
    least, most = (format_size(r) for r in (_radii(setting)[0], _radii(setting)[-1]))
    falls: Outcomes = {}
    better: Outcomes = {}
    for explainer in (_SG, IG):
        own = frame.filter(pl.col("explainer") == explainer).with_columns(pl.lit("").alias("label"))
        for attack in ATTACKS:
            rows = own.filter(pl.col("attack") == attack)
            falls[f"{explainer} {attack}"] = all_above(rows, [(least, most)], intersection, "radius")
            each = [rows.filter(pl.col("radius") == format_size(r)) for r in _radii(setting)]
            better[f"{explainer} {attack}"] = all_hold(is_column_above(part, diverse, recall) for part in each)
    return [
        *group_by_outcome("top-k intersection drops with the size of the perturbation, even for random signs", falls),
        *group_by_outcome("locality with diversity is above locality alone, at every size", better),
        *judge_never_below(frame, {"3-LENS-recall@k": recall}, intersection, "top-k intersection"),
    ]


def _figure2(setting: Setting) -> Part:
    names = _columns2(setting)

    def notes(frame: pl.DataFrame) -> list[str]:
        chance = compare_unrelated_maps(setting.side, [setting.share], [3])
        means = [f"{getattr(chance, field).mean():z.2f}" for field in ("intersection", "recall", "recall_diverse")]
        return [f"unrelated maps (noise): {', '.join(means)}", *note_attacks(frame, "explainer", "radius", "attack")]

    return Part(
        name=f"lens-figure2-{setting.name}",
        title=f"{setting.title}, k = {setting.share}, by attack and radius: mean [95% interval]",
        study=partial(_study2, setting),
        columns=tuple(
            Column(f"{explainer} {heading}", name, where={"explainer": explainer}, decimals=2, chance=name_chance(name))
            for explainer in (_SG, IG)
            for heading, name in names.items()
        ),
        departures=lambda scale: _departures(
            setting,
            scale,
            f" (SqueezeNet, ImageNet); k = {setting.share} is the same share of pixels as 1000 of 227 x 227, with"
            " windows of 3 as in the paper; so unrelated maps have about the same values",
        ),
        notes=notes,
        verdicts=partial(_verdicts2, setting),
        rows=("attack", "radius"),
        prepare=lambda results: add_label_words(results.samples, "attack", "radius"),
    )


FIGURE2 = tuple(
    _figure2(replace(setting, small=small))
    for setting, small in ((MNIST, (24, 30, 1)), (FASHION, (24, 30, 1)), (GTSRB, (20, 10, 1)))
)

# ---- Fig. 4: data sets ----

_NEAR = 0.8  # share of the pixels; our reading of "< 20% of the samples"


def _verdicts4(setting: Setting, frame: pl.DataFrame) -> list[Verdict]:
    verdicts = [
        *judge_never_below(frame, LOCAL, INTERSECTION, "top-k intersection"),
        *judge_factor(frame, setting.title),
    ]
    if PRECISION in frame.columns:
        holds = is_at_least(mean_interval(frame[PRECISION].drop_nulls().to_numpy()), _NEAR)
        verdicts.append(("less than 20% of the top pixels moved by more than one (our reading)", setting.title, holds))
    return [*verdicts, *judge_chance({"": frame}, LOCAL)]


def _figure4(setting: Setting) -> Part:
    paper = TABLE4.get(setting.title, {}).get("natural, top-k")
    columns = {"top-k intersection": INTERSECTION, "1-LENS-recall@k": RECALL, "1-LENS-prec@k": PRECISION}
    return Part(
        name=f"lens-figure4-{setting.name}",
        title=f"{setting.title}, top-t attack (t = {setting.t}) of {format_size(setting.radius)}: mean [95% interval]",
        study=lambda scale: _natural_study(
            "The top-t attack on integrated gradients (Fig. 4)",
            setting,
            scale,
            {"top-k": make_attack("top-k", setting, scale, tuple(columns.values()))},
        ),
        columns=make_columns(columns, {} if paper is None else {IG: paper}),
        departures=lambda scale: _departures(
            setting, scale, "; the figure's numbers are those of Table 4" if paper else "; the figure prints no numbers"
        ),
        notes=lambda frame: [*note_attacks(frame, "label"), *([quote_survey()] if setting is MNIST else [])],
        verdicts=partial(_verdicts4, setting),
    )


FIGURE4 = tuple(_figure4(setting) for setting in (MNIST, FASHION, GTSRB, CIFAR10))

# ---- Fig. 5: windows ----

_WINDOWS = (0, 1, 2, 3, 4)


def _in_window(setting: Setting, diverse: bool, w: int) -> str:
    return similarity_name("precision", setting.share, w, diverse)


def _columns5(setting: Setting) -> dict[str, Any]:
    return {
        name: partial(_in_window, setting, name == "precision_diverse") for name in ("precision", "precision_diverse")
    }


def _verdicts5(frame: pl.DataFrame) -> list[Verdict]:
    grown: dict[str, Outcomes] = {"precision": {}, "precision_diverse": {}}
    steps = [(str(after), str(before)) for before, after in pairwise(_WINDOWS)]
    for column, outcomes in grown.items():
        for attack in ATTACKS:
            rows = frame.filter(pl.col("label") == attack)
            if column == "precision":
                means = rows.group_by("w").agg(pl.col(column).mean()).sort(pl.col("w").cast(pl.Int64))[column].to_list()
                outcomes[attack] = all(a <= b + 1e-9 for a, b in pairwise(means)) if len(means) > 1 else None
            else:
                outcomes[attack] = all_above(rows, steps, column, "w")
    wide = frame.filter(pl.col("w").is_in(["0", "3"]))
    gains = _gains(wide)
    most: Outcomes = {
        f"than {other}": all_above(gains, [("top-k", other)], "gain", "label") for other in ("mass center", "random")
    }
    return [
        *group_by_outcome("w-LENS-prec@k increases with w (true by construction)", grown["precision"]),
        *group_by_outcome("w-LENS-prec@k-div increases with w, at every step", grown["precision_diverse"]),
        *group_by_outcome("the top-t attack gains more from w (w = 3 minus w = 0)", most),
    ]


def _gains(frame: pl.DataFrame) -> pl.DataFrame:
    """The gain of each image and attack: the precision at w = 3 minus that at w = 0."""
    index = [name for name in ("data", "model", "explainer", "label", "repeat", "sample") if name in frame.columns]
    wide = frame.pivot(on="w", index=index, values="precision")
    if not {"0", "3"} <= set(wide.columns):
        return wide.clear().with_columns(pl.lit(None, dtype=pl.Float64).alias("gain"))
    return wide.with_columns((pl.col("3") - pl.col("0")).alias("gain"))


def _figure5(setting: Setting) -> Part:
    names = _columns5(setting)

    def notes(frame: pl.DataFrame) -> list[str]:
        chance = compare_unrelated_maps(setting.side, [setting.share], _WINDOWS)
        assert chance.precision_diverse is not None
        return [
            f"unrelated maps (noise), {name}, w = 0 to {_WINDOWS[-1]}: "
            + ", ".join(f"{value:z.2f}" for value in values[:, 0].mean(0).tolist())
            for name, values in (("prec", chance.precision), ("prec-div", chance.precision_diverse))
        ] + note_attacks(frame, "label")

    return Part(
        name=f"lens-figure5-{setting.name}",
        title=f"{setting.title}, integrated gradients, k = {setting.share}, by attack and window: mean [95% interval]",
        study=lambda scale: _natural_study(
            "Growth with the window (Fig. 5)",
            setting,
            scale,
            {
                attack: make_attack(
                    attack,
                    setting,
                    scale,
                    [name(w) for w in _WINDOWS for name in names.values() if w or name == names["precision"]],
                )
                for attack in ATTACKS
            },
        ),
        columns=make_columns({"w-LENS-prec@k": "precision", "w-LENS-prec@k-div": "precision_diverse"}, {}, decimals=2),
        departures=lambda scale: _departures(
            setting,
            scale,
            f" (SqueezeNet, ImageNet); k = {setting.share} is the same share of pixels as 1000 of 227 x 227; at w = 0"
            " both are top-k intersection; windows are not scaled with the image",
        ),
        notes=notes,
        verdicts=_verdicts5,
        rows=("label", "w"),
        prepare=repeat_rows(
            "w", _WINDOWS, {**names, "precision_diverse": lambda w: names["precision_diverse" if w else "precision"](w)}
        ),
    )


FIGURE5 = tuple(_figure5(setting) for setting in (MNIST, FASHION, GTSRB))

# ---- Fig. 10: numbers of pixels ----

_COUNTS = (10, 25, 50, 100, 200, 300)
_LARGE = 0.1  # our reading of "a large disparity": at least this difference


def _verdicts10(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    frames = {}
    for attack in ("top-k", "random"):
        gaps: list[bool | None] = []
        for k in _COUNTS:
            rows = frame.filter(pl.col("label") == attack, pl.col("k") == str(k))
            if not {"precision", "intersection"} <= set(rows.columns):
                continue
            gap = (rows["precision"] - rows["intersection"]).drop_nulls().to_numpy()
            gaps.append(is_at_least(mean_interval(gap), _LARGE))
            frames[f"{attack} {k}"] = rows
        outcomes[attack] = all_hold(gaps)
    text = f"a large disparity of intersection and 1-LENS-prec@k for all k (at least {_LARGE}, our reading)"
    return [
        *group_by_outcome(text, outcomes),
        *judge_chance(frames, {"1-LENS-prec@k": "precision"}),
    ]


def _figure10(setting: Setting) -> Part:
    names: dict[str, Any] = {
        "intersection": lambda k: similarity_name("intersection", k),
        "precision": lambda k: similarity_name("precision", k, 1),
    }
    paper = {
        f"{attack}, 100": TABLE4[setting.title][f"natural, {attack}"][:3:2] if setting.title in TABLE4 else ()
        for attack in ("top-k", "random")
    }

    def notes(frame: pl.DataFrame) -> list[str]:
        chance = compare_unrelated_maps(setting.side, _COUNTS, [1], diverse=False)
        means = [
            f"{k}: {a:z.2f}, {b:z.2f}"
            for k, a, b in zip(_COUNTS, chance.intersection.mean(0), chance.precision[:, :, 0].mean(0), strict=True)
        ]
        return [
            f"unrelated maps (noise), intersection and 1-LENS-prec by k: {'; '.join(means)}",
            *note_attacks(frame, "label"),
        ]

    return Part(
        name=f"lens-figure10-{setting.name}",
        title=f"{setting.title}, integrated gradients, by attack and k: mean [95% interval]",
        study=lambda scale: _natural_study(
            "From few pixels to many (Fig. 10)",
            setting,
            scale,
            {
                attack: make_attack(attack, setting, scale, [name(k) for k in _COUNTS for name in names.values()])
                for attack in ("top-k", "random")
            },
        ),
        columns=make_columns({"top-k intersection": "intersection", "1-LENS-prec@k": "precision"}, paper, decimals=2),
        departures=lambda scale: _departures(
            setting, scale, "; the figure prints no numbers, those at k = 100 are from Table 4; we chose the other k"
        ),
        notes=notes,
        verdicts=_verdicts10,
        rows=("label", "k"),
        prepare=repeat_rows("k", _COUNTS, names),
    )


FIGURE10 = tuple(_figure10(setting) for setting in (MNIST, FASHION, GTSRB))
