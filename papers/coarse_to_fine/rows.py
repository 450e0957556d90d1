"""What the tables of coarse to fine share: rows for whole data sets, columns, and judgements of sentences.

Setting: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), Sec. 4 and
App. B to E. Inputs are series of the test set. Explainers explain the logit of the predicted class, and only positive
relevance counts. There is one draw of N(0, 1) at each k, as in the paper; repeats have other draws. A number describes
a data set, not a sample: a row is an explainer for a network, a data set and a repeat, computed from the stored drops.

Starred numbers are rescaled to [0, 1] over the six explainers, without `random`. Whether an explainer is above another
by AUC_top follows from the paired BCa interval over samples, for means over repeats. The gate is judged the same way,
by areas up to the share of positions that the explainer and the random maps both replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl
import torch

from papers.base import Column
from papers.reading import Verdict, all_hold, group_by_outcome
from standfast.metrics.coarse_to_fine.corruption_curve import FRACTIONS
from standfast.report import Results
from standfast.similarity import Kendall
from standfast.statistics.corruption.gate import apply_gate
from standfast.statistics.corruption.moments import (
    compute_printed_f1,
    integrate_over_fractions,
)
from standfast.statistics.corruption.summary import CorruptionSummary, Curves, summarise
from standfast.statistics.curves import compute_area_up_to
from standfast.statistics.paired import midranks
from standfast.tensors import Array

#: IG, DeepLIFT, DeepSHAP, GradientSHAP, KernelSHAP, Shapley value sampling
SIX = ("IG", "DL", "DS", "GS", "KS", "SVS")
NETWORKS = ("CNN", "BiLSTM", "Transformer")
#: random maps with about half of the entries positive, and with all entries positive
RANDOM, POSITIVE = "random", "random, positive"
STARRED = {
    "AUC_top*": "starred_auc_top",
    "F1*": "starred_f1",
    "AUCSkew*": "starred_auc_skewness",
    "AUCKurt*": "starred_auc_kurtosis",
}
RESAMPLES = 1000
#: shares k with columns of their own
SHOWN = (0.05, 0.25, 0.55, 0.95)
AGREES = 0.6  # two orders "mostly agree" from this rank correlation on: at most 3 of 15 pairs are reversed

_Numbers = Mapping[str, Mapping[str, float | str]]


def make_columns(headings: Mapping[str, str], paper: _Numbers | None = None) -> tuple[Column, ...]:
    """Columns with the mean and the standard deviation, by heading."""
    return tuple(
        Column(
            heading, column, decimals=2, spread="deviation", paper=(paper or {}).get(heading, {})
        )
        for heading, column in headings.items()
    )


# ---- rows for whole data sets ----


def make_rows(results: Results) -> pl.DataFrame:
    """One row for each data set, network, repeat and explainer that has drops for all samples.

    Columns, in addition to those that identify a row and `network`, the first word of the model's name:

    - `auc_top`, `f1_paper`, `f1_framework`, `auc_skewness` and `auc_kurtosis`, on the absolute scale.
    - `starred_*`, rescaled over the six explainers.
    - `skewness`, `kurtosis` and `quartile`, means over k of the curves; `share_above`.
    - `drop 0.05`, `skewness 0.05`, ..., at a few k.
    - `rank` by `auc_top`; 1 is the best.

    These are computed from means over repeats, so they are the same for all repeats:

    - `above X` for each other explainer X: 1, -1, or 0 if the interval of AUC_top contains 0.
    - `gate`: 1 if the explainer is above `random` maps up to the share of positions that both replace.
    - `gate_positive`: 1 if its AUC_top is above that of random maps that are positive everywhere.
    - `skewness_low` and `skewness_high`, the ends of the interval of `auc_skewness`.
    """
    stored = _read_curves(results)
    rows: list[dict[str, Any]] = []
    for data, model in dict.fromkeys((data, model) for data, model, _ in stored):
        repeats = {
            repeat: curves for (d, m, repeat), curves in stored.items() if (d, m) == (data, model)
        }
        first = next(iter(repeats.values()))
        names = [name for name in first if all(name in curves for curves in repeats.values())]
        means = {
            name: average_curves([curves[name] for curves in repeats.values()]) for name in names
        }
        compared = _compare_means(means)
        for repeat, curves in repeats.items():
            for name, numbers in _summarise_repeat({name: curves[name] for name in names}).items():
                where = {
                    "data": data,
                    "model": model,
                    "explainer": name,
                    "label": "corruption",
                    "repeat": repeat,
                }
                rows.append({**where, "status": "ok", **numbers, **compared[name]})
    frame = pl.DataFrame(rows, infer_schema_length=None) if rows else results.samples.clear()
    return frame.with_columns(pl.col("model").str.split(", ").list.first().alias("network"))


def _read_curves(results: Results) -> dict[tuple[str, str, int], dict[str, Curves]]:
    """Curves by (data set, network, repeat) and by explainer, for the same samples in the same order."""
    found: dict[tuple[str, str, int], dict[str, Curves]] = {}
    # without the sanity checks
    own = results.jobs.filter(pl.col("label").is_in(list(results.metrics)))
    for (data, model, repeat), jobs in own.group_by("data", "model", "repeat", maintain_order=True):
        curves = found.setdefault((str(data), str(model), int(str(repeat))), {})
        for (explainer,), own in jobs.group_by("explainer", maintain_order=True):
            if (own["status"] == "done").all() and own["artefacts"].fill_null(False).all():
                parts = [results.artefacts(job) for job in own.sort("start")["job"]]
                top, bottom, share, fractions = (
                    np.concatenate([part[name] for part in parts])
                    for name in ("drop_top", "drop_bottom", "corrupted_share", "fractions")
                )
                curves[str(explainer)] = Curves(top, bottom, share, fractions[0])
    return found


def average_curves(curves: Sequence[Curves]) -> Curves:
    """The mean drop of each sample over repeats; the shares are the same in all repeats."""
    top, bottom = (
        np.mean([getattr(each, name) for each in curves], axis=0) for name in ("top", "bottom")
    )
    return Curves(top, bottom, curves[0].share, curves[0].fractions)


def _summarise_repeat(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """The numbers of a single repeat, by explainer."""
    numbers = {name: _list_numbers(each) for name, each in curves.items()}
    six = {name: each for name, each in curves.items() if name in SIX}
    if six:
        for name, starred in rescale_numbers(six).items():
            numbers[name] |= starred
        ranks = midranks(np.array([-numbers[name]["auc_top"] for name in six]))
        for name, rank in zip(six, ranks, strict=True):
            numbers[name]["rank"] = float(rank)
    return numbers


def score_measured_part(found: CorruptionSummary) -> float:
    """F1 without the factor 2, from areas that end at the last measured point, as the authors' program computes it."""
    areas = (
        compute_area_up_to(found.share, drop, found.share[-1])
        for drop in (found.mean_top, found.mean_bottom)
    )
    return float(compute_printed_f1(*areas))


def rescale_numbers(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """The starred numbers of each explainer: 0 for the least and 1 for the largest of all; 1/2 if all are equal.

    Skewness and kurtosis are first rescaled over all explainers and shares k together, and then integrated over k.
    Samples without all drops of all explainers are left out.
    """
    complete = np.all([each.find_complete() for each in curves.values()], axis=0)
    found = [summarise(each.select(complete), resamples=0) for each in curves.values()]
    skewness = _rescale(np.array([each.skewness for each in found]))
    kurtosis = _rescale(np.array([each.kurtosis for each in found]))
    fractions = found[0].fractions
    numbers = {
        "starred_auc_top": np.array([each.auc_top for each in found]),
        "starred_f1": np.array([each.f1 for each in found]),
        "starred_f1_framework": np.array([score_measured_part(each) for each in found]),
        "starred_auc_skewness": 1 - integrate_over_fractions(skewness, fractions),
        "starred_auc_kurtosis": integrate_over_fractions(kurtosis, fractions),
    }
    starred = {name: _rescale(values) for name, values in numbers.items()}
    return {
        name: {key: float(values[row]) for key, values in starred.items()}
        for row, name in enumerate(curves)
    }


def _rescale(values: Array) -> Array:
    """Values rescaled linearly, so that the least is 0 and the largest is 1; 1/2 if all are equal."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)


def _list_numbers(curves: Curves) -> dict[str, float]:
    found = summarise(curves, resamples=0)
    numbers = {
        name: float(getattr(found, name)) for name in ("auc_top", "auc_skewness", "auc_kurtosis")
    }
    numbers |= {"f1_paper": found.f1 / 2, "f1_framework": score_measured_part(found)}
    numbers["share_above"] = found.auc_share_above
    for name, curve in (
        ("skewness", found.skewness),
        ("kurtosis", found.kurtosis),
        ("quartile", found.quantile),
    ):
        numbers[name] = float(curve.mean())
    for k in SHOWN:
        index = FRACTIONS.index(k)
        for name, curve in (
            ("drop", found.mean_top),
            ("skewness", found.skewness),
            ("kurtosis", found.kurtosis),
        ):
            numbers[f"{name} {k:g}"] = float(curve[index])
    return numbers


def _compare_means(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """Comparisons of means over repeats, from intervals over samples, by explainer."""
    rows: dict[str, dict[str, float]] = {name: {} for name in curves}
    for first, second in combinations(curves, 2):
        lead = apply_gate(curves[first], curves[second], to_common=False, resamples=RESAMPLES)
        sign = float((lead.low > 0) - (lead.high < 0))
        rows[first][f"above {second}"], rows[second][f"above {first}"] = sign, -sign
    for name, own in curves.items():
        row = rows[name]
        if name in SIX and RANDOM in curves:
            row["gate"] = float(apply_gate(own, curves[RANDOM], resamples=RESAMPLES).passed)
        if name in SIX and POSITIVE in curves:
            row["gate_positive"] = float(row[f"above {POSITIVE}"] > 0)
        low, high = summarise(own, resamples=RESAMPLES).interval("auc_skewness")
        row |= {"skewness_low": float(low), "skewness_high": float(high)}
    return rows


# ---- sentences ----


def is_above_others(
    frame: pl.DataFrame, firsts: Sequence[str], others: Iterable[str] = SIX
) -> bool | None:
    """Whether each of `firsts` is above each of `others` by AUC_top, in rows of one network and data set."""
    outcomes: list[bool | None] = []
    for first, other in product(firsts, others):
        if other not in firsts:
            own = frame.filter(pl.col("explainer") == first)
            column = f"above {other}"
            sign = own[column][0] if len(own) and column in own.columns else None
            outcomes.append(sign > 0 if sign else None)
    return all_hold(outcomes)


def is_last(frame: pl.DataFrame, name: str = "KS") -> bool | None:
    """Whether all others of the six explainers are above this one."""
    return is_above_others(frame, [other for other in SIX if other != name], [name])


def average_by_explainer(frame: pl.DataFrame, column: str) -> dict[str, float]:
    """Means over rows for each of the six explainers, in their order."""
    if column not in frame.columns:
        return {}
    found = dict(frame.group_by("explainer").agg(pl.col(column).mean()).iter_rows())
    return {name: float(found[name]) for name in SIX if found.get(name) is not None}


def split_rows(frame: pl.DataFrame, *names: str) -> dict[str, pl.DataFrame]:
    """The rows of each network and data set, or of each combination of values of `names`, by these values."""
    groups = frame.partition_by(*(names or ("network", "data")), maintain_order=True, as_dict=True)
    return {" ".join(map(str, key)): own for key, own in groups.items()}


def judge_parts(
    text: str, frame: pl.DataFrame, holds: Callable[[pl.DataFrame], bool | None], *names: str
) -> list[Verdict]:
    """Judge a sentence for each network and data set, or each of `names`."""
    parts = split_rows(frame, *names) if len(frame) else {}
    return group_by_outcome(text, {key: holds(own) for key, own in parts.items()})


def kendall_tau(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's tau-b of two orders, over the explainers that both have; NaN if one of them has only ties.

    >>> kendall_tau({"IG": 1.0, "DL": 2.0, "DS": 3.0}, {"IG": 1.0, "DL": 3.0, "DS": 2.0})
    0.3333333333333333
    """
    names = [name for name in first if name in second]
    if len(names) < 2:
        return float("nan")
    values = torch.tensor(
        [[each[name] for name in names] for each in (first, second)], dtype=torch.float64
    )
    if (values == values[:, :1]).all(1).any():
        return float("nan")
    return float(Kendall()(values[:1], values[1:]))


def compare_orders(frame: pl.DataFrame) -> float:
    """Kendall's tau of the orders by AUC_top* (coarse) and by AUCSkew* (fine)."""
    return kendall_tau(
        *(average_by_explainer(frame, f"starred_auc_{name}") for name in ("top", "skewness"))
    )


def agrees(tau: float) -> bool | None:
    """Whether two orders mostly agree; None if tau is not known."""
    return None if np.isnan(tau) else tau >= AGREES


def note_gates(frame: pl.DataFrame) -> list[str]:
    """A note on explainers that are not demonstrably above random maps; their fine numbers do not count."""
    notes = []
    for column, text in (
        ("gate", "area up to the common share not demonstrably above that of random maps"),
        (
            "gate_positive",
            "AUC_top not demonstrably above that of random maps that are positive everywhere",
        ),
    ):
        if column in frame.columns:
            failed = (
                split_rows(frame.filter(pl.col(column) == 0)) if (frame[column] == 0).any() else {}
            )
            texts = [
                f"{key} ({', '.join(own['explainer'].unique(maintain_order=True))})"
                for key, own in failed.items()
            ]
            notes.append(f"{text}: {'; '.join(texts) or 'none'}")
    return notes
