"""Shared parts of the coarse-to-fine reproductions: studies, rows for whole data sets, and judgements of sentences.

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
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import torch

from papers.base import Scale, call_function
from papers.coarse_to_fine.paper import SIX
from papers.reading import Verdict, all_hold, group_by_outcome
from standfast.metrics.coarse_to_fine.corruption_curve import FRACTIONS
from standfast.metrics.coarse_to_fine.gate import apply_gate, compare_curves
from standfast.metrics.coarse_to_fine.summary import CorruptionSummary, Curves, summarise
from standfast.presentation.base import format_number
from standfast.similarity.rank import kendall
from standfast.statistics.paired import midranks
from standfast.study.results import Results

#: random maps with about half of the entries positive, and with all entries positive
RANDOM, POSITIVE = "random", "random, positive"
METRIC = "corruption"
ROWS = 256  # rows forwarded at once on a CPU: as many as fit into the cache
REFERENCES = 20
RESAMPLES = 1000
#: shares k with columns of their own
SHOWN = (0.05, 0.25, 0.55, 0.95)
AGREES = 0.6  # two orders "mostly agree" from this rank correlation on: at most 3 of 15 pairs are reversed
_TRAINING = "papers.coarse_to_fine.explainers:TrainingReferences"
_Arrays = Mapping[str, np.ndarray[Any, Any]]
_ARRAYS = ("drop_top", "drop_bottom", "corrupted_share", "fractions")


# ---- studies ----


def make_explainers(scale: Scale, windows: int, orders: int, sets: Sequence[str] = ()) -> dict[str, Any]:
    """The six explainers of the paper, and random maps for the gates.

    Args:
        scale: in a full run every entry is a player, and there are 25 orders, Captum's default.
        windows, orders: options of Shapley value sampling in a small run.
        sets: names of the training sets for references, for several data sets; by default the synthetic series.
    """
    small = scale == "small"
    shared = {"background": {"data": "waves:train", "samples": REFERENCES}}
    references: dict[str, Any] = {"sets": list(sets), "references": REFERENCES}
    return {
        "IG": {"integrated_gradients": {"steps": 16 if small else 50}},
        "DL": "deeplift",
        "DS": call_function(_TRAINING, method="deep_shap", **references) if sets else {"deep_shap": shared},
        "GS": call_function(_TRAINING, method="gradient_shap", **references) if sets else {"gradient_shap": shared},
        "KS": {"kernel_shap": {"samples": 25, "segments": "pixels", "per_channel": True}},
        "SVS": make_shapley_sampling(orders, windows) if small else make_shapley_sampling(25),
        RANDOM: RANDOM,
        POSITIVE: {"function": "papers.coarse_to_fine.explainers:PositiveNoise"},
    }


def make_shapley_sampling(orders: int, windows: int | None = None) -> dict[str, Any]:
    """Shapley value sampling of at most that many windows of each channel, or of all entries for None."""
    segments = "pixels" if windows is None else windows
    return {"shapley_sampling": {"permutations": orders, "segments": segments, "per_channel": True}}


def make_study(title: str, count: int | None, repeats: int, **sections: Any) -> dict[str, Any]:
    """A study with the paper's corruption, on `count` series of each data set, or all for None."""
    return {
        "title": title,
        **({} if count is None else {"samples": count}),
        "samples_per_job": 50,
        "repeats": repeats,
        "metrics": {METRIC: {"name": "corruption_curve", "samples": 1}},
        **sections,
    }


# ---- rows for whole data sets ----


def make_rows(results: Results) -> pl.DataFrame:
    """One row for each data set, network, repeat and explainer that has drops for all samples.

    Columns, in addition to those that identify a row:

    - `auc_top`, `auc_bottom`, `f1`, `f1_paper`, `f1_framework`, `auc_skewness` and `auc_kurtosis`, on the absolute
      scale.
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
        repeats = [repeat for d, m, repeat in stored if (d, m) == (data, model)]
        curves = [stored[data, model, repeat] for repeat in repeats]
        names = [name for name in curves[0] if all(name in each for each in curves)]
        compared_means = _compare_means({name: average_curves([each[name] for each in curves]) for name in names})
        for repeat, each in zip(repeats, curves, strict=True):
            for name, numbers in _summarise_repeat({name: each[name] for name in names}).items():
                where = {"data": data, "model": model, "explainer": name, "label": METRIC, "repeat": repeat}
                rows.append({**where, "status": "ok", **numbers, **compared_means[name]})
    return pl.DataFrame(rows, infer_schema_length=None) if rows else results.samples.clear()


def _read_curves(results: Results) -> dict[tuple[str, str, int], dict[str, Curves]]:
    """Curves by (data set, network, repeat) and by explainer, for the same samples in the same order."""
    found: dict[tuple[str, str, int], dict[str, dict[int, _Arrays]]] = {}
    jobs = results.jobs.filter(pl.col("status") == "done", pl.col("artefacts").fill_null(False))
    for job in jobs.iter_rows(named=True):
        arrays = results.artefacts(job["job"])
        if all(name in arrays for name in _ARRAYS):
            own = found.setdefault((job["data"], job["model"], job["repeat"]), {}).setdefault(job["explainer"], {})
            for row, sample in enumerate(range(job["start"], job["stop"])):
                own[sample] = {name: arrays[name][row] for name in _ARRAYS}
    curves = {}
    for key, explainers in found.items():
        samples = sorted(set.union(*(set(own) for own in explainers.values())))
        whole = {name: own for name, own in explainers.items() if len(own) == len(samples)}
        curves[key] = {name: Curves.from_stored([own[sample] for sample in samples]) for name, own in whole.items()}
    return curves


def average_curves(curves: Sequence[Curves]) -> Curves:
    """The mean drop of each sample over repeats; the shares are the same in all repeats."""
    top, bottom = (np.mean([getattr(each, name) for each in curves], axis=0) for name in ("top", "bottom"))
    return Curves(top, bottom, curves[0].share, curves[0].fractions)


def _summarise_repeat(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """The numbers of a single repeat, by explainer."""
    six = {name: each for name, each in curves.items() if name in SIX}
    starred = {name: each.starred for name, each in compare_curves(six, resamples=0).items()} if six else {}
    alone = {name: summarise(each, resamples=0) for name, each in curves.items()}
    ranks = dict(zip(six, midranks(np.array([-alone[name].auc_top for name in six])), strict=True))
    return {
        name: {
            **_list_numbers(alone[name]),
            **{f"starred_{key}": float(value) for key, value in starred.get(name, {}).items()},
            **({"rank": float(ranks[name])} if name in ranks else {}),
        }
        for name in curves
    }


def _list_numbers(found: CorruptionSummary) -> dict[str, float]:
    names = ("auc_top", "auc_bottom", "f1", "f1_paper", "f1_framework", "auc_skewness", "auc_kurtosis")
    numbers = {name: float(getattr(found, name)) for name in names}
    for name, curve in (("skewness", found.skewness), ("kurtosis", found.kurtosis), ("quartile", found.quantile)):
        numbers[name] = float(curve.mean())
    for k in SHOWN:
        index = FRACTIONS.index(k)
        for name, curve in (("drop", found.mean_top), ("skewness", found.skewness), ("kurtosis", found.kurtosis)):
            numbers[f"{name} {k:g}"] = float(curve[index])
    return {**numbers, "share_above": found.auc_share_above, "evaluated": float(found.samples)}


def _compare_means(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """Comparisons of means over repeats, from intervals over samples, by explainer."""
    rows: dict[str, dict[str, float]] = {name: {} for name in curves}
    for first, second in combinations(curves, 2):
        lead = apply_gate(curves[first], curves[second], to_common=False, resamples=RESAMPLES)
        sign = float((lead.low > 0) - (lead.high < 0))
        rows[first][f"above {second}"], rows[second][f"above {first}"] = sign, -sign
    for name, own in curves.items():
        row = rows[name]
        if name in SIX:
            if RANDOM in curves:
                row["gate"] = float(apply_gate(own, curves[RANDOM], resamples=RESAMPLES).passed)
            if f"above {POSITIVE}" in row:
                row["gate_positive"] = float(row[f"above {POSITIVE}"] > 0)
        low, high = summarise(own, resamples=RESAMPLES).interval("auc_skewness")
        row |= {"skewness_low": float(low), "skewness_high": float(high)}
    return rows


# ---- sentences ----


def is_above_others(frame: pl.DataFrame, firsts: Sequence[str], others: Iterable[str]) -> bool | None:
    """Whether each of `firsts` is above each of `others` by AUC_top, in rows of one network and data set."""
    outcomes: list[bool | None] = []
    for first in firsts:
        own = frame.filter(pl.col("explainer") == first)
        for other in others:
            column = f"above {other}"
            if other not in firsts:
                known = len(own) > 0 and column in frame.columns and own[column][0] is not None
                outcomes.append({1.0: True, -1.0: False}.get(float(own[column][0]) if known else 0.0))
    return all_hold(outcomes)


def leads(frame: pl.DataFrame, firsts: Sequence[str]) -> bool | None:
    """Whether `firsts` are above all others of the six explainers."""
    return is_above_others(frame, firsts, SIX)


def is_last(frame: pl.DataFrame, name: str) -> bool | None:
    """Whether all others of the six explainers are above this one."""
    return is_above_others(frame, [other for other in SIX if other != name], [name])


def has_largest(frame: pl.DataFrame, name: str, column: str) -> bool:
    """Whether this explainer has the largest mean over repeats of the six explainers."""
    found = average_by_explainer(frame, column)
    return name in found and all(found[name] > value for other, value in found.items() if other != name)


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
    """Judge a sentence for each network and data set (or each of `names`), with one verdict for each outcome."""
    return group_by_outcome(text, {key: holds(own) for key, own in split_rows(frame, *names).items()})


def kendall_tau(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's tau-b of two orders, over the explainers that both have; NaN if one of them has only ties.

    >>> kendall_tau({"IG": 1.0, "DL": 2.0, "DS": 3.0}, {"IG": 1.0, "DL": 3.0, "DS": 2.0})
    0.3333333333333333
    """
    names = [name for name in first if name in second]
    if len(names) < 2:
        return float("nan")
    values = torch.tensor([[each[name] for name in names] for each in (first, second)], dtype=torch.float64)
    if (values == values[:, :1]).all(1).any():
        return float("nan")
    return float(kendall(values[:1], values[1:]))


def orders_agree(
    frame: pl.DataFrame, coarse: str = "starred_auc_top", fine: str = "starred_auc_skewness"
) -> tuple[float, bool | None]:
    """Kendall's tau of the orders by a coarse and by a fine number, and whether they mostly agree."""
    found = kendall_tau(average_by_explainer(frame, coarse), average_by_explainer(frame, fine))
    return found, None if np.isnan(found) else found >= AGREES


def format_order(frame: pl.DataFrame, column: str = "auc_top") -> str:
    """The explainers from the best to the worst, with their numbers.

    >>> format_order(pl.DataFrame({"explainer": ["IG", "DS"], "auc_top": [0.2, 0.5]}))
    'DS 0.50, IG 0.20'
    """
    found = sorted(average_by_explainer(frame, column).items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {format_number(value)}" for name, value in found)


def note_gates(frame: pl.DataFrame) -> list[str]:
    """A note on explainers that are not demonstrably above random maps; their fine numbers do not count."""
    notes = []
    whose = (
        ("gate", "area up to the common share not demonstrably above that of random maps"),
        ("gate_positive", "AUC_top not demonstrably above that of random maps that are positive everywhere"),
    )
    for column, text in whose:
        if column in frame.columns:
            failed = frame.filter(pl.col(column) == 0)
            groups = split_rows(failed) if len(failed) else {}
            names = [", ".join(own["explainer"].unique(maintain_order=True)) for own in groups.values()]
            texts = [f"{key} ({explainers})" for key, explainers in zip(groups, names, strict=True)]
            notes.append(f"{text}: {'; '.join(texts) or 'none'}")
    return notes
