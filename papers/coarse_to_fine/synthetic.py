"""Coarse to fine: Fig. 4 (distributions), Table E.I (noise) and App. D (calibration) on the synthetic series.

Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024). The module `parts` has
what these reproductions share; Fig. 5 is in `archives`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Reproduction, Scale, if_small, reproductions
from papers.coarse_to_fine.archives import FIGURE5_PART
from papers.coarse_to_fine.paper import NETWORKS, SIX, STARRED, read_cells, read_means
from papers.coarse_to_fine.parts import (
    AGREES,
    ROWS,
    SHOWN,
    average_by_explainer,
    format_order,
    has_largest,
    is_last,
    judge_parts,
    kendall_tau,
    leads,
    make_explainers,
    make_rows,
    make_shapley_sampling,
    make_study,
    note_gates,
    orders_agree,
    split_rows,
)
from papers.reading import Outcomes, Verdict, group_by_outcome
from standfast.presentation.base import format_number
from standfast.study.results import Results

_PREFIXES = dict(zip(NETWORKS, ("cnn", "bilstm", "transformer"), strict=True))
_NOISES = {"no noise": "waves", "20 dB": "waves20db", "15 dB": "waves15db", "10 dB": "waves10db"}
_WINDOWS, _ORDERS = 50, 2  # Shapley value sampling in a small run: windows of 10 steps in each of 4 channels
#: an estimate of Shapley values that is mostly noise, in addition to the six explainers
ROUGH = "SVS, 1 order"
_CALIBRATED = "calibrated"
_HIGH = 0.5  # "high" for a number that is rescaled to [0, 1]


def _model(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "batch_size": ROWS, **more}


def _networks(results: Results) -> pl.DataFrame:
    """`make_rows` with a column for the network, the first word of a model's name."""
    frame = make_rows(results)
    return frame.with_columns(pl.col("model").str.split(", ").list.first().alias("network"))


def _starred(paper: bool = False) -> tuple[Column, ...]:
    return tuple(
        Column(heading, column, judged=False, decimals=2, spread="deviation", paper=read_cells(column) if paper else {})
        for column, heading in STARRED.items()
    )


def _plain(headings: dict[str, str]) -> tuple[Column, ...]:
    return tuple(
        Column(heading, column, judged=False, decimals=2, spread="deviation") for column, heading in headings.items()
    )


_ABSOLUTE = {
    "auc_top": "AUC_top",
    "f1_paper": "F1",
    "f1_framework": "F1, not held",
    "skewness": "mean skewness",
    "kurtosis": "mean ekurtosis",
    "share_above": "drop ≥ 0.5",
}
_GATES = (
    Column("gate", "gate", judged=False, decimals=2),
    Column("gate, positive", "gate_positive", judged=False, decimals=2),
)

_COMMON = (
    "smaller networks (their cards have the details); integrated gradients and DeepLIFT from a baseline of 0, DeepSHAP"
    " and GradientSHAP from 20 training series, KernelSHAP with 25 coalitions of all entries (Captum's default; the"
    " paper gives no settings, and the code of its framework uses noise as a baseline); the explainers' seeds are the"
    " same in all repeats, which differ only by the replacements"
)


def _departures(scale: Scale, count: int, repeats: int) -> str:
    text = (
        f"{count} test series (1500), {repeats} repeats (5), Shapley value sampling with {_ORDERS} orders of"
        f" {4 * _WINDOWS} windows of 10 steps of one channel (25 orders of 2000 entries), integrated gradients with 16"
        " steps (50)"
    )
    return if_small(scale, text) + _COMMON


# ---- Table E.I: noise ----

_COUNT_E1, _REPEATS_E1 = 40, 5


def _study_e1(scale: Scale) -> dict[str, Any]:
    return make_study(
        "Explainers on the synthetic series, without and with noise (Table E.I)",
        _COUNT_E1 if scale == "small" else None,
        _REPEATS_E1,
        data={noise: f"{kind}:test" for noise, kind in _NOISES.items()},
        models={
            f"{network}, {noise}": _model(f"{prefix}-{kind}", data=[noise])
            for network, prefix in _PREFIXES.items()
            for noise, kind in _NOISES.items()
        },
        explainers=make_explainers(scale, _WINDOWS, _ORDERS),
    )


def _network(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    return frame.filter(pl.col("network") == name)


def fails_gate(frame: pl.DataFrame, column: str) -> bool | None:
    """Whether KernelSHAP fails a gate, in rows of one network and data set; None if the gate is not known."""
    if column not in frame.columns:
        return None
    gate = frame.filter(pl.col("explainer") == "KS")[column].drop_nulls()
    return bool((gate == 0).all()) if len(gate) else None


def _has_high_kurtosis(frame: pl.DataFrame) -> bool | None:
    found = average_by_explainer(frame, "starred_auc_kurtosis").get("KS")
    return None if found is None else found >= _HIGH


def _verdicts_e1(frame: pl.DataFrame) -> list[Verdict]:
    cnn = _network(frame, "CNN")
    found = judge_parts(
        "DeepSHAP and Shapley value sampling lead (AUC_top, CNN)", cnn, lambda own: leads(own, ("DS", "SVS"))
    )
    for network in NETWORKS[1:]:
        text = f"Shapley value sampling is first (AUC_top, {network})"
        found += judge_parts(text, _network(frame, network), lambda own: leads(own, ("SVS",)))
    found += judge_parts("KernelSHAP ranks last (AUC_top)", frame, lambda own: is_last(own, "KS"))
    found += judge_parts(f"KernelSHAP has a high AUCKurt* (at least {_HIGH:g})", frame, _has_high_kurtosis)
    text = "KernelSHAP fails the gate: it is not above random maps (ours)"
    found += judge_parts(text, frame, lambda own: fails_gate(own, "gate"))
    text = "KernelSHAP is not above random maps that are positive everywhere, as its maps almost are (ours)"
    found += judge_parts(text, frame, lambda own: fails_gate(own, "gate_positive"))
    text = f"coarse and fine orders mostly agree: Kendall's tau of AUC_top* and AUCSkew* at least {AGREES:g}"
    found += judge_parts(text, frame, lambda own: orders_agree(own)[1])
    most = {network: _most_robust(_network(frame, network)) for network in NETWORKS}
    return found + group_by_outcome("with noise Shapley value sampling is the most robust (AUCSkew*)", most)


def _most_robust(frame: pl.DataFrame) -> bool | None:
    """Whether Shapley value sampling has the largest AUCSkew* for each noise; None if it has only the largest mean."""
    noisy = frame.filter(pl.col("data") != "no noise")
    if not len(noisy):
        return None
    each = [has_largest(own, "SVS", "starred_auc_skewness") for own in split_rows(noisy).values()]
    return True if all(each) else None if has_largest(noisy, "SVS", "starred_auc_skewness") else False


def _order_notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    for network in NETWORKS:
        own = _network(frame, network)
        texts = [f"{data} {format_number(orders_agree(part)[0])}" for data, part in split_rows(own, "data").items()]
        paper = kendall_tau(read_means("starred_auc_top", network), read_means("starred_auc_skewness", network))
        notes.append(f"{network}, by AUC_top: {format_order(own)}")
        notes.append(
            f"{network}, Kendall's tau of coarse and fine: {', '.join(texts)} (paper's means {format_number(paper)})"
        )
    return [*notes, *note_gates(frame)]


def _spread_notes(frame: pl.DataFrame) -> list[str]:
    """Notes on how much of the spread comes from the random replacements, and how much from the noise of the data."""
    notes = []
    for network in NETWORKS:
        texts = []
        for name in SIX:
            rows = _network(frame, network).filter(pl.col("explainer") == name)
            groups = [part["starred_auc_top"].to_numpy() for part in split_rows(rows, "data").values() if len(rows)]
            if len(groups) > 1 and min(map(len, groups)) > 1:
                within = float(np.mean([group.std(ddof=1) for group in groups]))
                between = float(np.std([group.mean() for group in groups], ddof=1))
                texts.append(f"{name} {format_number(within)} and {format_number(between)}")
        if texts:
            notes.append(
                f"{network}, deviation of AUC_top* over repeats, and of its means over noises: {', '.join(texts)}"
            )
    return notes


TABLE_E1_PART = Part(
    name="coarse-tableE1",
    title="Table E.I: coarse and fine, over noise and repeats: mean ± standard deviation",
    study=_study_e1,
    columns=(*_starred(paper=True), *_plain({"starred_f1_framework": "F1*, not held"}), *_plain(_ABSOLUTE), *_GATES),
    departures=lambda scale: (
        _departures(scale, _COUNT_E1, _REPEATS_E1)
        + "; F1 holds the curves constant up to 1, as the paper's integrals do; the authors' program (Turbé et al."
        " 2023) does not hold them in F1: the columns “not held”"
    ),
    prepare=_networks,
    notes=lambda frame: [*_order_notes(frame), *_spread_notes(frame)],
    verdicts=_verdicts_e1,
    rows=("network", "explainer"),
)

# ---- Fig. 4: distributions ----

_COUNT_4, _REPEATS_4 = 100, 2


def _study_4(scale: Scale) -> dict[str, Any]:
    small = scale == "small"
    return make_study(
        "Distributions of the drop on the synthetic series (Fig. 4)",
        _COUNT_4 if small else None,
        _REPEATS_4 if small else 5,
        data={"waves": "waves:test"},
        models={network: _model(f"{prefix}-waves") for network, prefix in _PREFIXES.items()},
        explainers={**make_explainers(scale, _WINDOWS, _ORDERS), ROUGH: make_shapley_sampling(1, 2 * _WINDOWS)},
    )


def _verdicts_4(frame: pl.DataFrame) -> list[Verdict]:
    transformer = _network(frame, "Transformer")
    fine = {
        "AUCSkew*": has_largest(transformer, "DS", "starred_auc_skewness"),
        "AUCKurt*": has_largest(transformer, "DS", "starred_auc_kurtosis"),
    }
    found = judge_parts(
        "DeepSHAP is the best by AUC_top (the paper: Transformer)", frame, lambda own: leads(own, ("DS",)), "network"
    )
    found += group_by_outcome("Transformer: DeepSHAP is the best by fine numbers", fine if len(transformer) else {})
    text = "DS, DL and SVS have the lowest skewness (mean over k; the paper: Transformer)"
    found += judge_parts(text, frame, _has_lowest_three, "network")
    found += judge_parts("KernelSHAP is the worst by AUC_top", frame, lambda own: is_last(own, "KS"), "network")
    return found + judge_parts(
        "KernelSHAP is the worst by AUCSkew*", frame, lambda own: _is_smallest(own, "starred_auc_skewness"), "network"
    )


def _has_lowest_three(frame: pl.DataFrame) -> bool | None:
    found = average_by_explainer(frame, "skewness")
    if len(found) < len(SIX):
        return None
    return set(sorted(found, key=lambda name: found[name])[:3]) == {"DS", "DL", "SVS"}


def _is_smallest(frame: pl.DataFrame, column: str) -> bool | None:
    found = average_by_explainer(frame, column)
    return None if "KS" not in found else min(found, key=lambda name: found[name]) == "KS"


FIGURE4_PART = Part(
    name="coarse-figure4",
    title="Fig. 4: the drop along k, its skewness and excess kurtosis: mean ± standard deviation over repeats",
    study=_study_4,
    columns=(
        *_starred(),
        *_plain({f"drop {k:g}": f"drop, k = {k:g}" for k in SHOWN}),
        *_plain({f"skewness {k:g}": f"skewness, k = {k:g}" for k in SHOWN}),
        *_plain({f"kurtosis {k:g}": f"ekurtosis, k = {k:g}" for k in SHOWN}),
        *_plain({"quartile": "lower quartile"}),
        *_GATES,
    ),
    departures=lambda scale: (
        _departures(scale, _COUNT_4, _REPEATS_4)
        + "; the paper's figure shows the Transformer; the report has ridge plots"
    ),
    prepare=_networks,
    notes=_order_notes,
    verdicts=_verdicts_4,
    rows=("network", "explainer"),
)

# ---- App. D: calibration ----

_COUNT_D, _REPEATS_D = 60, 2


def _study_d(scale: Scale) -> dict[str, Any]:
    small = scale == "small"
    models = {}
    for network, prefix in _PREFIXES.items():
        models[network] = _model(f"{prefix}-waves")
        models[f"{network}, {_CALIBRATED}"] = _model(f"{prefix}-waves-{_CALIBRATED}")
    return make_study(
        "Networks with a calibrated loss (App. D)",
        _COUNT_D if small else None,
        _REPEATS_D if small else 5,
        data={"waves": "waves:test"},
        models=models,
        explainers=make_explainers(scale, _WINDOWS, _ORDERS),
    )


def _pair(frame: pl.DataFrame, network: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the calibrated network, and of the one without calibration."""
    own = frame.filter(pl.col("network") == network)
    return own.filter(pl.col("model") != network), own.filter(pl.col("model") == network)


def compare_skewness(frame: pl.DataFrame, network: str) -> dict[str, bool | None]:
    """Whether AUCSkew (absolute) is larger with calibration, by explainer; None where the intervals overlap."""
    calibrated, plain = _pair(frame, network)
    found: Outcomes = {}
    for name in SIX:
        rows = [part.filter(pl.col("explainer") == name) for part in (calibrated, plain)]
        if all(len(part) for part in rows):
            ends = [(float(part["skewness_low"][0]), float(part["skewness_high"][0])) for part in rows]
            (low, high), (other_low, other_high) = ends
            found[f"{network} {name}"] = True if low > other_high else False if high < other_low else None
    return found


def keeps_order(frame: pl.DataFrame, network: str) -> bool | None:
    """Whether all pairs have the same order by AUC_top; False if a pair is clearly reversed; else None."""
    calibrated, plain = _pair(frame, network)
    values = [average_by_explainer(part, "auc_top") for part in (calibrated, plain)]
    if not all(len(found) == len(SIX) for found in values):
        return None
    kept = True
    for first in SIX:
        for other in SIX:
            if other != first:
                column, own = f"above {other}", pl.col("explainer") == first
                signs = [part.filter(own)[column][0] for part in (calibrated, plain)]
                if signs[0] * signs[1] == -1:
                    return False
                kept &= (values[0][first] > values[0][other]) == (values[1][first] > values[1][other])
    return True if kept else None


def _verdicts_d(frame: pl.DataFrame) -> list[Verdict]:
    skewed: Outcomes = {}
    for network in NETWORKS:
        skewed |= compare_skewness(frame, network)
    found = group_by_outcome("calibration makes distributions more left-skewed (AUCSkew, absolute)", skewed)
    order = {network: keeps_order(frame, network) for network in NETWORKS}
    return found + group_by_outcome("calibration leaves the order of the explainers (AUC_top)", order)


def _notes_d(frame: pl.DataFrame) -> list[str]:
    notes = []
    for network in NETWORKS:
        calibrated, plain = _pair(frame, network)
        found = kendall_tau(average_by_explainer(calibrated, "auc_top"), average_by_explainer(plain, "auc_top"))
        notes.append(
            f"{network}: {format_order(plain)}; calibrated: {format_order(calibrated)}; tau {format_number(found)}"
        )
    return [*notes, *note_gates(frame)]


CALIBRATED_PART = Part(
    name="coarse-calibrated",
    title="App. D: with and without a calibrated loss: mean ± standard deviation over repeats",
    study=_study_d,
    columns=(
        *_starred(),
        *_plain({**_ABSOLUTE, "auc_skewness": "AUCSkew", "auc_kurtosis": "AUCKurt", "quartile": "lower quartile"}),
        *_GATES,
    ),
    departures=lambda scale: (
        _departures(scale, _COUNT_D, _REPEATS_D) + "; the paper shows only the Transformer, as ridge plots (Fig. D.I)"
    ),
    prepare=_networks,
    notes=_notes_d,
    verdicts=_verdicts_d,
    rows=("model", "explainer"),
)

for _name, _title, _part in (
    ("figure4", "Fig. 4: distributions of the drop, synthetic series", FIGURE4_PART),
    ("figure5", "Fig. 5: public data sets", FIGURE5_PART),
    ("tableE1", "Table E.I: noise", TABLE_E1_PART),
    ("calibrated", "App. D: calibration", CALIBRATED_PART),
):
    reproductions.add(f"coarse-{_name}", Reproduction(f"Coarse to fine, {_title}", (_part,)))
