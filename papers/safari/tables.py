"""SAFARI: Tables 1 (searches), 2 (efficiency) and 3 (training schemes), on MNIST. All tables are registered here.

`papers.safari.parts` describes the setting. The paper's sentences are judged by paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from papers.base import Column, Reproduction, reproductions
from papers.files import read_numbers
from papers.reading import (
    Outcomes,
    Verdict,
    all_above,
    group_by_outcome,
    is_above,
    keep_exact,
    mean_interval,
    paired_differences,
)
from papers.safari.cifar import ARCHITECTURE_PART
from papers.safari.explainers import EXPLAINER_PART, SAMPLES_PART, SEGMENTATION_PART
from papers.safari.imagenet import IMAGENET_PART
from papers.safari.parts import (
    QUANTITIES,
    describe_found,
    is_clearly_above,
    judge_order,
    log_probability_column,
    make_columns,
    make_part,
    on_both_networks,
    read_arrays,
    select_rows,
)
from papers.safari.settings import CURVE_PART, ITERATION_PART, POPULATION_PART
from papers.safari.times import TIME_PART
from standfast.report import Results
from standfast.results.formatting import format_number

# ---- Table 1: the genetic algorithm against sampling ----

_PAPER1 = read_numbers("safari/table1.csv")
_COLUMNS1 = {"MSE": "similarity", "SENS_MAX": "sens_max", "SENS_LIPS": "sens_lips"}


def _judge_searches(frame: pl.DataFrame) -> list[Verdict]:
    sentences = (
        ("GA outperforms SMC w.r.t. all 3 metrics", ("genetic", "random")),
        ("block search outperforms GA (ours)", ("block", "genetic")),
        ("block search is at least as good as the white-box search (ours)", ("block", "gradient")),
    )
    found: list[Verdict] = []
    for text, pair in sentences:
        outcomes = {
            heading: all_above(frame, [pair], column, "label")
            for heading, column in _COLUMNS1.items()
        }
        found += group_by_outcome(text, outcomes)
    return found


SEARCH_PART = make_part(
    "table1",
    "Largest MSE of explanations, SENS_MAX and SENS_LIPS by search, equal evaluations: mean [95% interval]",
    tuple(
        Column(heading, column, decimals=None, paper=_PAPER1[heading])
        for heading, column in _COLUMNS1.items()
    ),
    verdicts=_judge_searches,
    rows=("label",),
)

# ---- Table 2: subset simulation against plain Monte Carlo ----

_PAPER2 = read_numbers("safari/table2.csv")
_COLUMNS2 = (
    ("δ², Eq. 16", "eq16", 4),
    ("δ², ours", "delta2", 4),
    ("N_SS = N x levels", "samples_paper", 0),
    ("evaluations", "model_evaluations", 0),
    ("lg N_SMC, Eq. 16", "monte_carlo_paper", 2),
    ("lg N_SMC, ours", "monte_carlo", 2),
)


def _add_efficiency(results: Results) -> pl.DataFrame:
    """The samples with errors and numbers of samples, from the levels of each run."""
    metrics = results.manifest["metrics"]
    particles = {
        label: entry.get("options", {}).get("particles") for label, entry in metrics.items()
    }
    rows = []
    for (job, sample), arrays in read_arrays(results, "level_log_probability").items():
        line = arrays["level_log_probability"]
        # the conditional probabilities
        steps = np.exp(np.diff(line[np.isfinite(line)], prepend=0.0))
        rows.append(
            {
                "job": job,
                "sample": sample,
                "levels": len(steps),
                "odds": float(((1 - steps) / steps).sum()),
            }
        )
    levels = pl.DataFrame(
        rows, schema={"job": pl.String, "sample": pl.Int64, "levels": pl.Int64, "odds": pl.Float64}
    )
    size = pl.col("label").replace_strict(particles, return_dtype=pl.Int64)
    frame = results.samples.join(levels, on=["job", "sample"], how="left").with_columns(
        (pl.col("odds") / size).alias("eq16"),
        (pl.col("std_error") ** 2).alias("delta2"),
        (pl.col("levels") * size).alias("samples_paper"),
    )
    rare = (-pl.col("log_probability") + (1 - pl.col("log_probability").exp()).log()) / math.log(10)
    return frame.with_columns(
        (rare - pl.col("eq16").log10()).alias("monte_carlo_paper"),
        (rare - pl.col("delta2").log10()).alias("monte_carlo"),
    ).with_columns((pl.col("monte_carlo") - pl.col("model_evaluations").log10()).alias("gain"))


def _judge_efficiency(frame: pl.DataFrame) -> list[Verdict]:
    text = "SS requires fewer samples than SMC for achieving the same estimation errors (all evaluations counted)"
    outcomes: Outcomes = {}
    for event in ("F-hat", "F-tilde"):
        gain = keep_exact(frame.filter(pl.col("label") == event), "gain")["gain"].to_numpy()
        outcomes[event] = is_above(mean_interval(gain), 0)
    return group_by_outcome(text, outcomes)


EFFICIENCY_PART = make_part(
    "table2",
    "Subset simulation and plain Monte Carlo for the same error: mean [95% interval]",
    (
        log_probability_column("ln P", paper=_PAPER2["ln P"]),
        *(
            Column(
                heading,
                column,
                where={"bound": False},
                decimals=decimals,
                paper=_PAPER2.get(heading, {}),
            )
            for heading, column, decimals in _COLUMNS2
        ),
    ),
    prepare=_add_efficiency,
    verdicts=_judge_efficiency,
    rows=("label",),
)

# ---- Table 3: training schemes ----

SCHEMES = ("plain", "gradient", "hessian", "gradient-hessian", "pgd")
#: the network trained with perturbations of radius 0.1, the radius of Table 5
SMALL_PGD = "pgd-linf01"
_LEVEL3 = 0.9
_PAPER3 = read_numbers("safari/table3.csv")
_JUDGED3 = (*_PAPER3, "sol_F-hat, gradient")
_JUDGED3_SMALL = ("sol_c (J)", "sol_F-hat (PCC)", "sol_F-hat, gradient")


def _judge_schemes(frame: pl.DataFrame, headings: Sequence[str], pgd: str) -> list[Verdict]:
    sentences = (
        ("Hessian regularisation improves on plain training", "hessian", ("plain",)),
        ("adversarial training improves on plain training", pgd, ("plain",)),
        (
            "input Hessian is more effective than input gradient regularisation",
            "hessian",
            ("gradient",),
        ),
        (
            "adversarial training is the best (bold in the table)",
            pgd,
            ("gradient", "hessian", "gradient-hessian"),
        ),
    )
    compare = partial(is_clearly_above, by="model", level=_LEVEL3)
    found: list[Verdict] = []
    for text, better, others in sentences:
        pairs = [(better, other) for other in others]
        found += group_by_outcome(text, judge_order(frame, pairs, headings, compare))
    return found


def _describe_differences(
    frame: pl.DataFrame, headings: Sequence[str], schemes: Sequence[str]
) -> list[str]:
    """The mean paired differences of schemes and plain training, with intervals."""
    notes = []
    for heading in headings:
        own, column = select_rows(frame, heading), QUANTITIES[heading][1]
        texts = []
        for scheme in schemes:
            estimate = mean_interval(
                paired_differences(own, scheme, "plain", column, "model"), _LEVEL3
            )
            mean, low, high = map(format_number, estimate)
            texts.append(f"{scheme} minus plain {mean} [{low}, {high}]")
        notes.append(f"{heading}, paired: {'; '.join(texts)}")
    return [*notes, *describe_found(frame)]


SCHEME_PART = make_part(
    "table3",
    "Robustness of LeNet-5 by training scheme: mean [90% interval]",
    make_columns((*_JUDGED3, "sol_F-hat, genetic"), _PAPER3),
    notes=partial(_describe_differences, headings=_JUDGED3, schemes=SCHEMES[1:]),
    verdicts=partial(_judge_schemes, headings=_JUDGED3, pgd="pgd"),
    rows=("model",),
    level=_LEVEL3,
)

SMALL_RADIUS_PART = make_part(
    "table3-linf01",
    "The same at radius 0.1: mean [90% interval]",
    make_columns(_JUDGED3_SMALL),
    notes=partial(
        _describe_differences, headings=_JUDGED3_SMALL, schemes=(*SCHEMES[1:], SMALL_PGD)
    ),
    verdicts=partial(_judge_schemes, headings=_JUDGED3_SMALL, pgd=SMALL_PGD),
    rows=("model",),
    level=_LEVEL3,
)

for _name, _title, _parts in (
    ("table1", "Table 1: the genetic algorithm against sampling", on_both_networks(SEARCH_PART)),
    ("table2", "Table 2: sample efficiency", on_both_networks(EFFICIENCY_PART)),
    ("table3", "Table 3: training schemes", on_both_networks(SCHEME_PART, SMALL_RADIUS_PART)),
    ("table4", "Table 4: time of explanations", (TIME_PART,)),
    ("table6", "Table 6: LIME and SHAP", (SAMPLES_PART,)),
    ("table7", "Table 7: segmentation", (SEGMENTATION_PART,)),
    ("table8", "Table 8: architectures", (ARCHITECTURE_PART,)),
    ("table9", "Table 9: a network for ImageNet", (IMAGENET_PART,)),
    (
        "figure2",
        "Fig. 2 and 7: iterations and population",
        on_both_networks(ITERATION_PART, POPULATION_PART),
    ),
    (
        "figure3",
        "Fig. 3 and 8: probability against threshold and moves",
        on_both_networks(CURVE_PART),
    ),
    ("figure4", "Fig. 4: explainers", on_both_networks(EXPLAINER_PART)),
):
    reproductions.add(f"safari-{_name}", Reproduction(f"SAFARI, {_title}", _parts))
