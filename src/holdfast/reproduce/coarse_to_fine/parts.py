"""What the coarse-to-fine reproductions share: studies, rows for whole data sets, and what sentences are judged by.

Setting: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), Sec. 4 and
App. B to E. Series of the test set, the predicted class explained by its logit; positive relevance alone; one draw of
N(0, 1) at each k, as in the paper, and repeats with other draws. A number is of a data set, not of a sample: a row is
an explainer for a network, a data set and a repeat, made of the drops that the study has stored.

Starred numbers are rescaled to [0, 1] over the six explainers, `random` left out. Whether an explainer is above another
one by AUC_top is told by the paired BCa interval over samples of the mean of the repeats, as the gate is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import scipy

from holdfast.metrics.coarse_to_fine.corruption_curve import FRACTIONS
from holdfast.metrics.coarse_to_fine.gate import apply_gate, compare_curves
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary, Curves, summarise
from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Scale
from holdfast.reproduce.coarse_to_fine.paper import SIX
from holdfast.reproduce.reading import Verdict
from holdfast.reproduce.safari.parts import by_outcome
from holdfast.study.results import Results

#: random maps: half of their entries positive, and all of them
RANDOM, POSITIVE = "random", "random, positive"
METRIC = "corruption"
ROWS = 256  # forwarded at once where there is no GPU: they stay in the cache
REFERENCES = 20
RESAMPLES = 1000
#: shares k that have columns of their own
SHOWN = (0.05, 0.25, 0.55, 0.95)
AGREES = 0.6  # the rank correlation of two orders from which on we say that they mostly agree: 3 of 15 pairs turned
Outcomes = dict[str, bool | None]
_ENTRIES = "holdfast.reproduce.coarse_to_fine.explainers:EntryShapley"
_TRAINING = "holdfast.reproduce.coarse_to_fine.explainers:TrainingReferences"
_Arrays = Mapping[str, np.ndarray[Any, Any]]
_ARRAYS = ("drop_top", "drop_bottom", "corrupted_share", "fractions")


# ---- studies ----


def explainers_of(scale: Scale, players: int, orders: int, sets: Sequence[str] = ()) -> dict[str, Any]:
    """The six, and random maps for the gates.

    Args:
        scale: in a full run every entry is a player, and there are Captum's 25 orders.
        players, orders: of Shapley value sampling in a small run.
        sets: names of training sets for the references of several data sets; the synthetic series' own by default.
    """
    small = scale == "small"
    shared = {"background": {"data": "waves:train", "samples": REFERENCES}}
    references: dict[str, Any] = {"sets": list(sets), "references": REFERENCES}
    return {
        "IG": {"integrated_gradients": {"steps": 16 if small else 50}},
        "DL": "deeplift",
        "DS": _own(_TRAINING, method="deep_shap", **references) if sets else {"deep_shap": shared},
        "GS": _own(_TRAINING, method="gradient_shap", **references) if sets else {"gradient_shap": shared},
        "KS": _own(_ENTRIES, method="kernel_shap", samples=25),
        "SVS": sampled_shapley(orders, players) if small else sampled_shapley(25),
        RANDOM: RANDOM,
        POSITIVE: {"function": "holdfast.reproduce.coarse_to_fine.explainers:PositiveNoise"},
    }


def sampled_shapley(orders: int, players: int | None = None) -> dict[str, Any]:
    """Shapley value sampling of at most so many windows of single channels; of all entries for None."""
    options: dict[str, Any] = {"method": "shapley_sampling", "samples": orders}
    return _own(_ENTRIES, **options, **({} if players is None else {"players": players}))


def _own(kind: str, **options: Any) -> dict[str, Any]:
    return {"function": kind, "options": options}


def study_of(title: str, count: int | None, repeats: int, **sections: Any) -> dict[str, Any]:
    """A study with the paper's corruption; `count` series of each data set, None for all."""
    return {
        "title": title,
        **({} if count is None else {"samples": count}),
        "samples_per_job": 50,
        "repeats": repeats,
        "metrics": {METRIC: {"name": "corruption_curve", "samples": 1}},
        **sections,
    }


# ---- rows for whole data sets ----


def rows_of(results: Results) -> pl.DataFrame:
    """A row for each data set, network, repeat and explainer that all its samples have drops of.

    Columns, beside coordinates: `auc_top`, `auc_bottom`, `f1`, `f1_paper`, `auc_skewness` and `auc_kurtosis` on the
    absolute scale; `starred_*` over the compared explainers; `skewness`, `kurtosis` and `quartile`, means over k of the
    raw curves; `share_above`; `drop 0.05`, `skewness 0.05`, ... at a few k; `rank` by `auc_top`, 1 the best. Of the
    means over repeats, the same for all of them: `above X` for each other explainer X (1, -1, or 0 where the interval
    does not tell), `gate` and `gate_positive` (1 where it is passed against `random` maps, and against those that are
    positive everywhere), `skewness_low` and `skewness_high`, the ends of `auc_skewness`.
    """
    stored = _stored(results)
    rows: list[dict[str, Any]] = []
    for data, model in dict.fromkeys((data, model) for data, model, _ in stored):
        repeats = [repeat for d, m, repeat in stored if (d, m) == (data, model)]
        curves = [stored[data, model, repeat] for repeat in repeats]
        names = [name for name in curves[0] if all(name in each for each in curves)]
        told = _told({name: mean_curves([each[name] for each in curves]) for name in names})
        for repeat, each in zip(repeats, curves, strict=True):
            for name, numbers in _numbers({name: each[name] for name in names}).items():
                where = {"data": data, "model": model, "explainer": name, "label": METRIC, "repeat": repeat}
                rows.append({**where, "status": "ok", **numbers, **told[name]})
    return pl.DataFrame(rows, infer_schema_length=None) if rows else results.samples.clear()


def _stored(results: Results) -> dict[tuple[str, str, int], dict[str, Curves]]:
    """Curves by data set, network and repeat, and by explainer; of the same samples in the same order."""
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


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """The mean drop of each sample over repeats; the shares are the same in all."""
    top, bottom = (np.mean([getattr(each, name) for each in curves], axis=0) for name in ("top", "bottom"))
    return Curves(top, bottom, curves[0].share, curves[0].fractions)


def _numbers(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """What a single repeat gives, by explainer."""
    six = {name: each for name, each in curves.items() if name in SIX}
    starred = {name: each.starred for name, each in compare_curves(six, resamples=0).items()} if six else {}
    alone = {name: summarise(each, resamples=0) for name, each in curves.items()}
    ranks = dict(zip(six, scipy.stats.rankdata([-alone[name].auc_top for name in six]), strict=True))
    return {
        name: {
            **_alone(alone[name]),
            **{f"starred_{key}": float(value) for key, value in starred.get(name, {}).items()},
            **({"rank": float(ranks[name])} if name in ranks else {}),
        }
        for name in curves
    }


def _alone(found: CorruptionSummary) -> dict[str, float]:
    names = ("auc_top", "auc_bottom", "f1", "f1_paper", "auc_skewness", "auc_kurtosis")
    numbers = {name: float(getattr(found, name)) for name in names}
    for name, curve in (("skewness", found.skewness), ("kurtosis", found.kurtosis), ("quartile", found.quantile)):
        numbers[name] = float(curve.mean())
    for k in SHOWN:
        place = FRACTIONS.index(k)
        for name, curve in (("drop", found.mean_top), ("skewness", found.skewness), ("kurtosis", found.kurtosis)):
            numbers[f"{name} {k:g}"] = float(curve[place])
    return {**numbers, "share_above": found.auc_share_above, "evaluated": float(found.samples)}


def _told(curves: Mapping[str, Curves]) -> dict[str, dict[str, float]]:
    """What intervals over samples tell of the means over repeats, by explainer."""
    rows: dict[str, dict[str, float]] = {name: {} for name in curves}
    for first, second in combinations(curves, 2):
        lead = apply_gate(curves[first], curves[second], resamples=RESAMPLES)
        sign = float((lead.low > 0) - (lead.high < 0))
        rows[first][f"above {second}"], rows[second][f"above {first}"] = sign, -sign
    for name, own in curves.items():
        row = rows[name]
        if name in SIX:
            passed = {key: row.get(f"above {by}") for key, by in (("gate", RANDOM), ("gate_positive", POSITIVE))}
            row |= {key: float(sign > 0) for key, sign in passed.items() if sign is not None}
        low, high = summarise(own, resamples=RESAMPLES).interval("auc_skewness")
        row |= {"skewness_low": float(low), "skewness_high": float(high)}
    return rows


# ---- sentences ----


def above(frame: pl.DataFrame, firsts: Sequence[str], others: Iterable[str]) -> bool | None:
    """Whether each of the first ones is above each other one by AUC_top, in rows of one network and data set."""
    told: list[float] = []
    for first in firsts:
        own = frame.filter(pl.col("explainer") == first)
        for other in others:
            column = f"above {other}"
            if other not in firsts:
                known = len(own) > 0 and column in frame.columns and own[column][0] is not None
                told.append(float(own[column][0]) if known else 0.0)
    return False if -1.0 in told else True if told and min(told) == 1.0 else None


def leads(frame: pl.DataFrame, firsts: Sequence[str]) -> bool | None:
    """Whether these are above all others of the six."""
    return above(frame, firsts, SIX)


def last(frame: pl.DataFrame, name: str) -> bool | None:
    """Whether all others of the six are above it."""
    return above(frame, [other for other in SIX if other != name], [name])


def largest(frame: pl.DataFrame, name: str, column: str) -> bool:
    """Whether the mean over repeats is the largest of the six."""
    found = means_of(frame, column)
    return name in found and all(found[name] > value for other, value in found.items() if other != name)


def means_of(frame: pl.DataFrame, column: str) -> dict[str, float]:
    """Means over rows by explainer, of the six in their order."""
    if column not in frame.columns:
        return {}
    found = dict(frame.group_by("explainer").agg(pl.col(column).mean()).iter_rows())
    return {name: float(found[name]) for name in SIX if found.get(name) is not None}


def parts_of(frame: pl.DataFrame, *names: str) -> dict[str, pl.DataFrame]:
    """The rows of each network and data set, or of each of `names`, by their names."""
    groups = frame.partition_by(*(names or ("network", "data")), maintain_order=True, as_dict=True)
    return {" ".join(map(str, key)): own for key, own in groups.items()}


def judged(text: str, frame: pl.DataFrame, holds: Callable[[pl.DataFrame], bool | None], *names: str) -> list[Verdict]:
    """A sentence for each network and data set (or each of `names`), those with the same outcome in one line."""
    return by_outcome(text, {key: holds(own) for key, own in parts_of(frame, *names).items()})


def tau(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's tau-b of two orders of the explainers that both have; NaN where one has ties alone.

    >>> tau({"IG": 1.0, "DL": 2.0, "DS": 3.0}, {"IG": 1.0, "DL": 3.0, "DS": 2.0})
    0.3333333333333333
    """
    names = [name for name in first if name in second]
    if len(names) < 2:
        return float("nan")
    return float(scipy.stats.kendalltau([first[name] for name in names], [second[name] for name in names]).statistic)


def orders_agree(
    frame: pl.DataFrame, coarse: str = "starred_auc_top", fine: str = "starred_auc_skewness"
) -> tuple[float, bool | None]:
    """Kendall's tau of the orders by a coarse and a fine number, and whether they mostly agree."""
    found = tau(means_of(frame, coarse), means_of(frame, fine))
    return found, None if np.isnan(found) else found >= AGREES


def said_order(frame: pl.DataFrame, column: str = "auc_top") -> str:
    """The explainers from the best to the worst.

    >>> said_order(pl.DataFrame({"explainer": ["IG", "DS"], "auc_top": [0.2, 0.5]}))
    'DS 0.50, IG 0.20'
    """
    found = sorted(means_of(frame, column).items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {format_number(value)}" for name, value in found)


def gate_note(frame: pl.DataFrame) -> list[str]:
    """Who is not demonstrably above random maps, and where: their fine numbers do not count."""
    notes = []
    for column, maps in (("gate", "random maps"), ("gate_positive", "random maps that are positive everywhere")):
        if column in frame.columns:
            failed = frame.filter(pl.col(column) == 0)
            groups = parts_of(failed) if len(failed) else {}
            told = [f"{key} ({', '.join(own['explainer'].unique(maintain_order=True))})" for key, own in groups.items()]
            notes.append(f"AUC_top not demonstrably above that of {maps}: {'; '.join(told) or 'none'}")
    return notes
