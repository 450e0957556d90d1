"""SAFARI: Fig. 4 (explainers), Tables 6 and 7 (LIME and SHAP), on MNIST."""

from __future__ import annotations

import math
from itertools import product

import polars as pl

from papers.files import read_numbers
from papers.reading import (
    Outcomes,
    Verdict,
    group_by_outcome,
    is_above,
    keep_exact,
    mean_interval,
    negate,
)
from papers.safari.parts import (
    HAT,
    HEADINGS,
    TILDE,
    judge_order,
    make_columns,
    make_part,
    select_rows,
)

# ---- Fig. 4: explainers ----

_GRADIENT, _GUIDED, _LRP = "Gradient x Input", "Guided Backprop", "LRP"
_IG, _DEEPLIFT = "Integrated Gradients", "DeepLift"
#: sentence, explainers that are more robust, explainers that are less so, quantities
_ORDERS4 = (
    (
        "DeepLift and IG outperform the others for F-hat",
        (_DEEPLIFT, _IG),
        (_GUIDED, _GRADIENT, _LRP),
        HAT,
    ),
    (
        "Guided Backprop and Gradient x Input below the others",
        (_DEEPLIFT, _IG, _LRP),
        (_GUIDED, _GRADIENT),
        HAT,
    ),
    (
        "Guided Backprop below all others (our reading)",
        (_DEEPLIFT, _IG, _LRP, _GRADIENT),
        (_GUIDED,),
        HAT,
    ),
    ("IG above Gradient x Input (our reading)", (_IG,), (_GRADIENT,), HAT),
    (
        "LRP shows better robustness than the others for F-tilde",
        (_LRP,),
        (_GRADIENT, _IG, _GUIDED, _DEEPLIFT),
        TILDE,
    ),
    (
        "DeepLift and IG are vulnerable to F-tilde",
        (_GUIDED, _GRADIENT, _LRP),
        (_DEEPLIFT, _IG),
        TILDE,
    ),
)


def _judge_explainers(frame: pl.DataFrame) -> list[Verdict]:
    found: list[Verdict] = []
    for text, above, below, headings in _ORDERS4:
        found += group_by_outcome(text, judge_order(frame, list(product(above, below)), headings))
    return found


EXPLAINER_PART = make_part(
    "figure4",
    "Robustness of explainers: mean [95% interval]",
    make_columns(HEADINGS),
    verdicts=_judge_explainers,
)

# ---- Tables 6 and 7: LIME and SHAP ----

_LIKELY = math.log(0.01)


def _judge_samples(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    for kind in ("LIME", "SHAP"):
        for heading, improved in judge_order(
            frame, [(f"{kind}+500", f"{kind}+50")], HEADINGS
        ).items():
            outcomes[f"{kind} {heading}"] = negate(improved)
    likely: Outcomes = {}
    own = keep_exact(select_rows(frame, "ln P_F-hat"), "value")
    for name in SAMPLES_PART.columns[0].paper:
        values = own.filter(pl.col("explainer") == name)["value"].to_numpy().astype(float)
        likely[name] = is_above(mean_interval(values), _LIKELY)
    return [
        *group_by_outcome(
            "LIME and SHAP lack robustness for F-hat (P above 1%, our reading)", likely
        ),
        *group_by_outcome("500 samples are not significantly more robust than 50", outcomes),
    ]


SAMPLES_PART = make_part(
    "table6",
    "Robustness of LIME and KernelSHAP by their number of samples: mean [95% interval]",
    make_columns(HEADINGS, read_numbers("safari/table6.csv")),
    verdicts=_judge_samples,
)


def _judge_segmentation(frame: pl.DataFrame) -> list[Verdict]:
    improved = judge_order(frame, [("fixed", "not fixed")], HEADINGS)
    hat = {heading: improved[heading] for heading in HAT}
    tilde = {heading: negate(improved[heading]) for heading in TILDE}
    sensitive = "segmentation is sensitive to noise: fixing it makes explanations more robust"
    ineffective = "fixing segmentation is not effective against F-tilde"
    return [*group_by_outcome(sensitive, hat), *group_by_outcome(ineffective, tilde)]


SEGMENTATION_PART = make_part(
    "table7",
    "Robustness of LIME with 200 samples, segments of each copy or of the clean input: mean [95% interval]",
    make_columns(HEADINGS, read_numbers("safari/table7.csv")),
    verdicts=_judge_segmentation,
)
