"""LENS: Table 3 (random perturbations), Table 4 (attacks and trainings), Table 7 (explainers).

Tables 1 and 9 are a survey of people, which a program cannot repeat; the departures of Table 4 quote it. Tables 2, 5, 6
and 8 need networks for ImageNet and Flower, and are not reproduced. All reproductions of LENS are registered here.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import polars.selectors as cs
from scipy.special import stdtrit

from papers.base import Part, Reproduction, reproductions
from papers.files import read_numbers
from papers.lens.chance import CHANCE_PART
from papers.lens.figures import FIGURE2, FIGURE4, FIGURE5, FIGURE10
from papers.lens.parts import (
    ATTACKED,
    ATTACKS,
    IG,
    INTERSECTION,
    PLAIN,
    PRECISION,
    RADII,
    SIX,
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
    all_above,
    all_hold,
    group_by_outcome,
    is_at_least,
    mean_interval,
    paired_differences,
)
from standfast.report import Results
from standfast.tensors import Array

TRAININGS = ("natural", "PGD", "IG-SUM-NORM")

# ---- Table 3: random perturbations, independent and universal ----

_TABLE3 = read_numbers("lens/table3.csv", keys=3)
_RANDOM = ("random", "universal random")
_COMPARED = {
    "top-k intersection": INTERSECTION,
    "Spearman's ρ": "lens_spearman:w=0",
    "Kendall's τ": "lens_kendall:w=0",
}
_LOCAL = {
    "1-LENS-prec@k": PRECISION,
    "1-LENS-Spearman": "lens_spearman:w=1",
    "1-LENS-Kendall": "lens_kendall:w=1",
}
_EACH = " of each draw"  # ends the name of a column with the values of all draws
_NOTICEABLE = 0.02  # our reading of "more effective"


def _average_draws(results: Results) -> pl.DataFrame:
    """One row for each image, with means over the draws (so intervals are over images), and lists of all draws."""
    values = cs.starts_with("topk_", "lens_", "label_kept")
    frame = results.samples.sort("repeat", maintain_order=True).with_columns(
        values.cast(pl.Float64)
    )
    groups = frame.group_by("data", "model", "explainer", "label", "sample", maintain_order=True)
    return groups.agg(pl.col("status").first(), values.mean(), values.name.suffix(_EACH))


def _read_draws(frame: pl.DataFrame, label: str, column: str) -> Array:
    """Values of integrated gradients by image and draw."""
    own = frame.filter(pl.col("label") == label, pl.col("explainer") == IG).sort("sample")
    if column + _EACH not in own.columns or not len(own):
        return np.empty((0, 0))
    return np.array(own[column + _EACH].to_list(), dtype=float)


def _is_more_effective(frame: pl.DataFrame, column: str) -> bool | None:
    """Whether universal signs reduce a similarity more, by an interval that includes the spread of images and draws."""
    independent, universal = (_read_draws(frame, label, column) for label in _RANDOM)
    if independent.shape != universal.shape or min(independent.shape) < 2:
        return None
    gap = independent - universal
    images, draws = gap.shape
    variance = gap.mean(1).var(ddof=1) / images + gap.mean(0).var(ddof=1) / draws
    reach = stdtrit(draws - 1, 0.975) * float(np.sqrt(variance))
    return is_at_least((float(gap.mean()), gap.mean() - reach, gap.mean() + reach), _NOTICEABLE)


def _judge_table3(frame: pl.DataFrame) -> list[Verdict]:
    effective = {
        heading: _is_more_effective(frame, column) for heading, column in _COMPARED.items()
    }
    smoothed: Outcomes = {}
    for label in _RANDOM:
        own = frame.filter(pl.col("explainer") == IG, pl.col("label") == label)
        for heading, name in (("Spearman's ρ", "lens_spearman"), ("Kendall's τ", "lens_kendall")):
            smoothed[f"{label}: {heading}"] = is_column_above(own, f"{name}:w=1", f"{name}:w=0")
    text = f"by {_NOTICEABLE} or more (our reading; the paper: 'sometimes')"
    return [
        *group_by_outcome(f"universal signs are the more effective attack, {text}", effective),
        *group_by_outcome(
            "1-smoothing increases rank correlations (the paper: under the top-t attack)", smoothed
        ),
    ]


def _note_draws(frame: pl.DataFrame) -> list[str]:
    notes = []
    for label in _RANDOM:
        means = ", ".join(
            f"{draw.mean():z.3f}" for draw in _read_draws(frame, label, INTERSECTION).T
        )
        notes.append(f"top-k intersection of {IG} for each draw of signs, {label}: {means}")
    return [*notes, *note_attacks(frame.filter(pl.col("explainer") == IG), "label")]


def _make_table3(data: str) -> Part:
    paper = quote_paper(
        _TABLE3, {f"{IG}, {label}": f"{TITLES[data]}, {IG}, {label}" for label in _RANDOM}
    )
    return make_part(
        f"table3-{data}",
        f"{TITLES[data]}, random signs of {RADII[data]}, naturally trained: mean [95% interval]",
        make_columns(_COMPARED | _LOCAL, paper),
        notes=_note_draws,
        verdicts=_judge_table3,
        rows=("explainer", "label"),
        prepare=_average_draws,
    )


# ---- Table 4: attacks and trainings ----


def _judge_table4(frame: pl.DataFrame) -> list[Verdict]:
    attacked = frame.filter(pl.col("label") == "top-k")
    found = [judge_factor(attacked.filter(pl.col("model") == "natural"), "natural, top-k")]
    for robust in ("IG-SUM-NORM", "PGD"):
        pairs = [(robust, "natural")]
        outcomes = {
            heading: all_above(attacked, pairs, column, "model")
            for heading, column in PLAIN.items()
        }
        found += group_by_outcome(
            f"{robust} is more robust than natural training (top-k attack)", outcomes
        )
    for attack, text, columns in (
        ("random", "random perturbations are weaker than the top-k attack", SIX),
        ("mass center", "the mass center attack is weaker than the top-k attack", PLAIN),
    ):
        if attack in frame["label"]:
            weaker: Outcomes = {}
            for training in TRAININGS:
                own = frame.filter(pl.col("model") == training)
                for heading, column in columns.items():
                    weaker[f"{training}: {heading}"] = all_above(
                        own, [(attack, "top-k")], column, "label"
                    )
            found += group_by_outcome(text, weaker)
    return found


def _make_table4(data: str, suffix: str = "") -> Part:
    rows = {
        f"{training}, {attack}": f"{TITLES[data]}, {training}, {attack}"
        for training in TRAININGS
        for attack in ATTACKS
    }
    # a digit has about 140 pixels that are not 0, fewer than the 200 of the attack
    t = ", t = 100" if suffix else ""
    return make_part(
        f"table4-{data}{suffix}",
        f"{TITLES[data]}, integrated gradients, radius {RADII[data]}, k = 100{t}: mean [95% interval]",
        make_columns(SIX, {} if suffix else quote_paper(ATTACKED, rows)),
        notes=lambda frame: note_attacks(frame, "model", "label"),
        verdicts=_judge_table4,
        rows=("model", "label"),
    )


# ---- Table 4 by the authors' script, and by other rules for ties ----

#: rules for the sets and windows, with the options of the similarities
_RULES = {
    "ours": "",
    "ties at random": ",ties=random",
    "no zeros": ",ties=undefined",
    "authors": ",protocol=authors",
}
_BOTH = "authors, attack too"  # sets and attack as in the script
_read_rules = repeat_rows(
    "rule",
    {rule: {name: name + option for name in SIX.values()} for rule, option in _RULES.items()},
)


def _split_rules(results: Results) -> pl.DataFrame:
    """The rows once for each rule, with its similarities under the names of ours."""
    theirs = pl.col("label").str.ends_with(", authors")
    return (
        _read_rules(results)
        .filter(~theirs | (pl.col("rule") == "authors"))
        .with_columns(
            pl.when(theirs).then(pl.lit(_BOTH)).otherwise("rule").alias("rule"),
            pl.col("label").str.split(", ").list.first().alias("attack"),
        )
    )


RULES_PART = make_part(
    "table4-mnist-rules",
    "MNIST, natural training, IG: the same maps by other rules, and the authors' attack: mean [95% interval]",
    make_columns(
        SIX,
        quote_paper(
            ATTACKED,
            {
                f"{attack}, {rule}": f"MNIST, natural, {attack}"
                for attack in ATTACKS
                for rule in (*_RULES, _BOTH)
            },
        ),
    ),
    rows=("attack", "rule"),
    prepare=_split_rules,
)

# ---- Table 7: explainers under random signs ----

_TABLE7 = read_numbers("lens/table7.csv", keys=3)
_EXPLAINERS = ("Simple Gradient", "Image x Gradient", "LRP", "DeepLIFT", "GradSHAP", IG)
_NEGLIGIBLE = 0.01  # our reading of "the same numbers": means differ by at most this


def _have_same_means(frame: pl.DataFrame, one: str, other: str) -> bool | None:
    outcomes = []
    for column in SIX.values():
        _, low, high = mean_interval(paired_differences(frame, one, other, column))
        outcomes.append(None if low != low else max(-low, high) <= _NEGLIGIBLE)
    return all_hold(outcomes)


def _judge_table7(frame: pl.DataFrame) -> list[Verdict]:
    diverse: Outcomes = {}
    alike: Outcomes = {}
    trained: Outcomes = {}
    for model in TRAININGS[:2]:
        own = frame.filter(pl.col("model") == model)
        alike[model] = _have_same_means(own, "LRP", "Image x Gradient")
        for heading in list(SIX)[4:]:
            diverse[f"{model}: {heading}"] = all_hold(
                is_column_above(own.filter(pl.col("explainer") == name), SIX[heading], INTERSECTION)
                for name in _EXPLAINERS
            )
    for name in _EXPLAINERS:
        own = frame.filter(pl.col("explainer") == name)
        trained[name] = all_above(own, [("PGD", "natural")], INTERSECTION, "model")
    return [
        *group_by_outcome(
            "locality and diversity together improve on top-k intersection, all explainers", diverse
        ),
        *group_by_outcome("PGD is more robust than natural training (top-k intersection)", trained),
        *group_by_outcome(
            f"LRP and Image x Gradient have the same numbers (within {_NEGLIGIBLE}, our reading)",
            alike,
        ),
    ]


def _make_table7(data: str) -> Part:
    rows = {
        f"{training}, {name}": f"{TITLES[data]}, {training}, {name}"
        for training in TRAININGS
        for name in _EXPLAINERS
    }
    return make_part(
        f"table7-{data}",
        f"{TITLES[data]}, explainers under random signs of size {RADII[data]}: mean [95% interval]",
        make_columns(SIX, quote_paper(_TABLE7, rows)),
        notes=lambda frame: note_attacks(frame.filter(pl.col("explainer") == IG), "model"),
        verdicts=_judge_table7,
        rows=("model", "explainer"),
    )


TABLE3_PARTS = tuple(map(_make_table3, TITLES))
TABLE4_PARTS = (
    _make_table4("mnist"),
    RULES_PART,
    _make_table4("mnist", "-t100"),
    _make_table4("fashionmnist"),
)
TABLE7_PARTS = (_make_table7("mnist"), _make_table7("fashionmnist"))

for _name, _title, _parts in (
    ("table3", "Table 3: random perturbations, independent and universal", TABLE3_PARTS),
    (
        "table4",
        "Table 4: attacks on integrated gradients, by training",
        (*TABLE4_PARTS, CHANCE_PART),
    ),
    ("table7", "Table 7: explainers under random perturbations", (*TABLE7_PARTS, CHANCE_PART)),
    ("figure2", "Fig. 2: similarity by the size of the perturbation", (*FIGURE2, CHANCE_PART)),
    ("figure4", "Fig. 4: the top-t attack by data set", FIGURE4),
    ("figure5", "Fig. 5: growth with the window", FIGURE5),
    ("figure10", "Fig. 10: from few pixels to many", FIGURE10),
    ("chance", "Similarities of unrelated maps (ours)", (CHANCE_PART,)),
):
    reproductions.add(f"lens-{_name}", Reproduction(f"LENS, {_title}", _parts))
