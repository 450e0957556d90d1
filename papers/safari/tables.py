"""SAFARI: Tables 1 (searches), 2 (efficiency) and 3 (training schemes), on MNIST. The other parts are registered here.

`papers.safari.parts` describes the setting. The paper's sentences are judged by paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Reproduction, Scale, if_small, reproductions
from papers.files import read_departures, read_numbers, study_file
from papers.reading import (
    Outcomes,
    Verdict,
    all_above,
    group_by_outcome,
    is_above,
    keep_exact,
    mean_interval,
)
from papers.safari.explainers import EXPLAINER_PART, SAMPLES_PART, SEGMENTATION_PART
from papers.safari.parts import (
    NATURAL,
    OURS,
    PAPER_SUBSET,
    describe_difference,
    is_clearly_above,
    keep_solved,
    log_probability_column,
    make_models,
    make_probability,
    make_study,
    make_worst_case,
    on_smooth_network,
    read_arrays,
)
from papers.safari.settings import CURVE_PART, ITERATION_PART, POPULATION_PART
from papers.safari.times import TIME_PART
from standfast.study.results import Results

_DEPARTURES = read_departures("safari/departures.yaml")

# ---- Table 1: the genetic algorithm against sampling ----

_PAPER1 = read_numbers("safari/table1.csv")
_COLUMNS1 = {"MSE": "similarity", "SENS_MAX": "sens_max", "SENS_LIPS": "sens_lips"}


def _search_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    sentences = (
        ("GA outperforms SMC w.r.t. all 3 metrics", ("genetic", "random")),
        ("block search outperforms GA (ours)", ("block", "genetic")),
        ("block search is at least as good as the white-box search (ours)", ("block", "gradient")),
    )
    found: list[Verdict] = []
    for text, pair in sentences:
        outcomes = {heading: all_above(frame, [pair], column, "label") for heading, column in _COLUMNS1.items()}
        found += group_by_outcome(text, outcomes)
    return found


SEARCH_PART = Part(
    name="safari-searches",
    title="Largest MSE of explanations, SENS_MAX and SENS_LIPS by search, equal evaluations: mean [95% interval]",
    study=study_file("safari/table1.yaml"),
    columns=tuple(
        Column(heading, column, decimals=None, paper=_PAPER1[heading]) for heading, column in _COLUMNS1.items()
    ),
    departures=_DEPARTURES["table1"],
    verdicts=_search_verdicts,
    rows=("label",),
)

# ---- Table 2: subset simulation against plain Monte Carlo ----

_SUBSET2: dict[Scale, dict[str, Any]] = {
    "small": {"particles": 200, "quantile": 0.1, "moves": 5},
    "full": {**PAPER_SUBSET, "particles": 2500},
}


def _efficiency(results: Results) -> pl.DataFrame:
    """Errors and numbers of samples, from the levels of each run."""
    frame = results.samples
    rows = []
    for (job, sample), arrays in read_arrays(results, "level_log_probability").items():
        line = arrays["level_log_probability"]
        steps = np.exp(np.diff(line[np.isfinite(line)], prepend=0.0))  # the conditional probabilities
        rows.append({"job": job, "sample": sample, "count": len(steps), "eq16": float(((1 - steps) / steps).sum())})
    found = pl.DataFrame(rows, schema={"job": pl.String, "sample": pl.Int64, "count": pl.Int64, "eq16": pl.Float64})
    options = {label: entry.get("options", {}) for label, entry in results.manifest["metrics"].items()}
    particles = pl.col("label").replace_strict(
        {label: own.get("particles") for label, own in options.items()}, return_dtype=pl.Int64
    )
    joined = frame.join(found, on=["job", "sample"], how="left").with_columns(particles.alias("particles"))
    known = joined.with_columns(
        (pl.col("eq16") / pl.col("particles")).alias("eq16"), (pl.col("std_error") ** 2).alias("delta2")
    )
    rare = (-pl.col("log_probability") + (1 - pl.col("log_probability").exp()).log()) / math.log(10)
    return known.with_columns(
        (pl.col("count") * pl.col("particles")).alias("samples_paper"),
        (rare - pl.col("eq16").log10()).alias("monte_carlo_paper"),
        (rare - pl.col("delta2").log10()).alias("monte_carlo"),
    ).with_columns((pl.col("monte_carlo") - pl.col("model_evaluations").log10()).alias("gain"))


def _efficiency_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    text = "SS requires fewer samples than SMC for achieving the same estimation errors (all evaluations counted)"
    outcomes: Outcomes = {}
    for event in ("F-hat", "F-tilde"):
        own = keep_exact(frame.filter(pl.col("label") == event), "gain")
        gain = own["gain"].to_numpy()
        outcomes[event] = is_above(mean_interval(gain), 0)
    return group_by_outcome(text, outcomes)


def _resolved(heading: str, column: str, decimals: int | None, **paper: float) -> Column:
    """A column over the samples whose ln P is no bound, with the paper's numbers for both events."""
    numbers = {"F-hat": paper.get("hat"), "F-tilde": paper.get("tilde")}
    known = {event: value for event, value in numbers.items() if value is not None}
    return Column(heading, column, where={"bound": False}, decimals=decimals, paper=known)


EFFICIENCY_PART = Part(
    name="safari-efficiency",
    title="Subset simulation and plain Monte Carlo for the same error: mean [95% interval]",
    study=lambda scale: make_study(
        "The cost of a rare event (Table 2)",
        scale,
        6 if scale == "small" else 10,
        samples_per_job=3,
        metrics={event: make_probability(event, **_SUBSET2[scale]) for event in ("F-hat", "F-tilde")},
    ),
    columns=(
        log_probability_column("ln P", paper={"F-hat": -12.25, "F-tilde": -24.63}),
        _resolved("δ², Eq. 16", "eq16", 4, hat=0.0184, tilde=0.0374),
        _resolved("δ², ours", "delta2", 4),
        _resolved("N_SS = N x levels", "samples_paper", 0, hat=15_000, tilde=27_500),
        _resolved("evaluations", "model_evaluations", 0),
        _resolved("lg N_SMC, Eq. 16", "monte_carlo_paper", 2, hat=7.05, tilde=12.13),
        _resolved("lg N_SMC, ours", "monte_carlo", 2),
    ),
    departures=lambda scale: (
        if_small(scale, "6 digits (10), 200 particles (2500), 5 moves (250)")
        + f"{OURS}; moves in Gaussian space; the paper's N_SS is particles x levels, without the moves of each level,"
        " 'evaluations' counts all; its δ² assumes that copies are independent (Eq. 16), ours uses genealogies; digits"
        " whose ln P is only a bound (not reached, or not resolved) are only in the column ln P"
    ),
    prepare=_efficiency,
    verdicts=_efficiency_verdicts,
    rows=("label",),
)

# ---- Table 3: training schemes ----

SCHEMES = ("plain", "gradient", "hessian", "gradient-hessian", "pgd")
#: the radius of Table 5, and the network trained with perturbations of this radius
SMALL_RADIUS, SMALL_PGD = 0.1, "pgd-linf01"
_PAPER3 = {
    "sol_c (J)": (22.43, 11.37, 10.59, 10.04, -0.16),
    "sol_F-hat (PCC)": (0.06, 0.10, 0.17, 0.20, 0.21),
    "sol_F-tilde (PCC)": (0.93, 0.92, 0.90, 0.90, 0.59),
    "ln P_c": (-24.28, -31.51, -33.36, -36.96, -84.15),
    "ln P_F-hat": (-3.87, -15.69, -21.27, -23.79, -28.67),
    "ln P_F-tilde": (-31.47, -44.96, -43.85, -46.19, -89.09),
}
#: heading: the configured metric, its column, whether larger values are more robust
_JUDGED3 = {
    "sol_c (J)": ("worst c", "margin", False),
    "sol_F-hat (PCC)": ("worst F-hat", "similarity", True),
    "sol_F-tilde (PCC)": ("worst F-tilde", "similarity", False),
    "ln P_c": ("ln P c", "value", False),
    "ln P_F-hat": ("ln P F-hat", "value", False),
    "ln P_F-tilde": ("ln P F-tilde", "value", False),
}
_WHITE_BOX = {"sol_F-hat, gradient": ("worst F-hat, gradient", "similarity", True)}
_LEVEL3 = 0.9


def _schemes(scale: Scale) -> dict[str, Any]:
    small = scale == "small"
    evaluations = 600 if small else 10_000
    genetic = {"genetic": {"population": 50 if small else 1000}}
    subset = {"particles": 100, "quantile": 0.25, "moves": 2} if small else PAPER_SUBSET
    cheap = {"particles": 100, "quantile": 0.25, "moves": 3} if small else PAPER_SUBSET  # without explanations
    return {
        **{f"worst {event}": make_worst_case(event, evaluations) for event in ("c", "F-hat", "F-tilde")},
        "worst F-hat, gradient": make_worst_case("F-hat", evaluations, "gradient"),
        "worst F-hat, genetic": make_worst_case("F-hat", evaluations if small else 500_000, genetic),
        "ln P c": make_probability("c", **cheap),
        **{f"ln P {event}": make_probability(event, **subset) for event in ("F-hat", "F-tilde")},
    }


def _scheme_models(scale: Scale, *schemes: str) -> dict[str, Any]:
    return make_models(scale, {scheme: f"{NATURAL}-{scheme}" for scheme in schemes})


def _schemes_column(heading: str) -> Column:
    label, column, _ = _JUDGED3[heading]
    paper = dict(zip(SCHEMES, _PAPER3[heading], strict=True))
    if column == "value":
        return log_probability_column(heading, metric=label, paper=paper)
    # if no class change was found, there is no solution; the similarity is that of the best other point
    where = {"found": True} if label == "worst F-tilde" else {}
    return Column(heading, column, metric=label, where=where, decimals=2, paper=paper)


def _rows_of(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """The rows of a configured metric; for worst cases of F-tilde, only those with a solution."""
    frame = frame.filter(pl.col("label") == label)
    return keep_solved(frame) if label == "worst F-tilde" else frame


_Judged = dict[str, tuple[str, str, bool]]


def _scheme_verdicts(frame: pl.DataFrame, judged: _Judged, pgd: str) -> list[Verdict]:
    plain, gradient, hessian, both = SCHEMES[:4]
    sentences = (
        ("Hessian regularisation improves on plain training", [(hessian, plain)]),
        ("adversarial training improves on plain training", [(pgd, plain)]),
        ("input Hessian is more effective than input gradient regularisation", [(hessian, gradient)]),
        ("adversarial training is the best (bold in the table)", [(pgd, other) for other in (gradient, hessian, both)]),
    )
    found: list[Verdict] = []
    for text, pairs in sentences:
        outcomes = {}
        for heading, (label, column, higher) in judged.items():
            own = _rows_of(frame, label)
            outcomes[heading] = is_clearly_above(own, pairs, column, "model", _LEVEL3, higher)
        found += group_by_outcome(text, outcomes)
    return found


def _scheme_notes(frame: pl.DataFrame, judged: _Judged, pgd: Sequence[str]) -> list[str]:
    notes = []
    for heading, (label, column, _) in judged.items():
        own = _rows_of(frame, label)
        others = (*SCHEMES[1:4], *pgd)
        texts = [describe_difference(own, scheme, SCHEMES[0], column, "model", _LEVEL3) for scheme in others]
        notes.append(f"{heading}, paired: {'; '.join(texts)}")
    own = frame.filter(pl.col("label") == "worst F-tilde")
    if "found" in frame.columns and len(own):
        shares = own.group_by("model", maintain_order=True).agg(pl.col("found").cast(pl.Float64).mean())
        texts = [f"{model} {share:.0%}" for model, share in shares.iter_rows()]
        notes.append(f"class changes found by the search for F-tilde: {', '.join(texts)}")
    return notes


SCHEME_PART = Part(
    name="safari-training",
    title="Robustness of LeNet-5 by training scheme: mean [90% interval]",
    study=lambda scale: make_study(
        "Training schemes and robustness (Table 3)",
        scale,
        6 if scale == "small" else 100,
        models=_scheme_models(scale, *SCHEMES),
        metrics=_schemes(scale),
    ),
    columns=(
        *map(_schemes_column, _JUDGED3),
        Column("sol_F-hat, gradient", "similarity", metric="worst F-hat, gradient", decimals=2),
        Column("sol_F-hat, genetic", "similarity", metric="worst F-hat, genetic", decimals=2),
    ),
    departures=lambda scale: (
        if_small(
            scale,
            "6 digits (100), 600 evaluations for each worst case, 100 particles with 2 moves (for ln P_c with 3)",
        )
        + ("10,000 evaluations for each worst case, 500,000 for the GA, " if scale == "full" else "")
        + f"{OURS}; worst cases by block search (GA),"
        " and also by the white-box search and by GA; subset simulation in Gaussian space; sol_F-tilde only where a"
        " class change was found; radius 0.3 as in the text (0.1 in Table 5)"
    ),
    notes=partial(_scheme_notes, judged={**_JUDGED3, **_WHITE_BOX}, pgd=SCHEMES[4:]),
    verdicts=partial(_scheme_verdicts, judged={**_JUDGED3, **_WHITE_BOX}, pgd=SCHEMES[4]),
    rows=("model",),
    level=_LEVEL3,
)

_JUDGED3_SMALL: _Judged = {
    "sol_c (J)": ("worst c", "margin", False),
    "sol_F-hat (PCC)": ("worst F-hat", "similarity", True),
    **_WHITE_BOX,
}

SMALL_RADIUS_PART = Part(
    name="safari-training-linf01",
    title=f"The same at radius {SMALL_RADIUS:g}: mean [90% interval]",
    study=lambda scale: make_study(
        f"Training schemes and robustness at radius {SMALL_RADIUS:g} (Table 3, with the radius of Table 5)",
        scale,
        40 if scale == "small" else 100,
        neighbourhood={"linf": SMALL_RADIUS},
        models=_scheme_models(scale, *SCHEMES, SMALL_PGD),
        metrics={name: _schemes(scale)[name] for name in ("worst c", "worst F-hat", "worst F-hat, gradient")},
    ),
    columns=tuple(
        Column(heading, column, metric=label, decimals=2) for heading, (label, column, _) in _JUDGED3_SMALL.items()
    ),
    departures=lambda scale: (
        if_small(scale, "40 digits (100), 600 evaluations for each worst case")
        + ("10,000 evaluations for each worst case, " if scale == "full" else "")
        + f"{OURS}; the paper has no numbers for this radius; {SMALL_PGD} was trained with perturbations of this"
        f" radius and is the network in the judged sentences; {SCHEMES[4]} was trained with 0.3"
    ),
    notes=partial(_scheme_notes, judged=_JUDGED3_SMALL, pgd=(*SCHEMES[4:], SMALL_PGD)),
    verdicts=partial(_scheme_verdicts, judged=_JUDGED3_SMALL, pgd=SMALL_PGD),
    rows=("model",),
    level=_LEVEL3,
)

_BOTH = ("table1", "table2", "table3", "figure2", "figure3", "figure4")
for _name, _title, _parts in (
    ("table1", "Table 1: the genetic algorithm against sampling", (SEARCH_PART,)),
    ("table2", "Table 2: sample efficiency", (EFFICIENCY_PART,)),
    ("table3", "Table 3: training schemes", (SCHEME_PART, SMALL_RADIUS_PART)),
    ("table4", "Table 4: time of explanations", (TIME_PART,)),
    ("table6", "Table 6: LIME and SHAP", (SAMPLES_PART,)),
    ("table7", "Table 7: segmentation", (SEGMENTATION_PART,)),
    ("figure2", "Fig. 2 and 7: iterations and population", (ITERATION_PART, POPULATION_PART)),
    ("figure3", "Fig. 3 and 8: probability against threshold and moves", (CURVE_PART,)),
    ("figure4", "Fig. 4: explainers", (EXPLAINER_PART,)),
):
    # first the paper's kind of network, then rectifiers
    _smooth = tuple(on_smooth_network(part) for part in _parts if _name in _BOTH)
    reproductions.add(f"safari-{_name}", Reproduction(f"SAFARI, {_title}", _smooth + _parts))
