"""Shared parts of the SAFARI reproductions: the setting, the smooth network, and the quantities with their verdicts.

Setting: Huang et al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023),
Sec. 6.1. Boxes of radius 0.3 on MNIST, as in the text (Table 5 says 0.1), with uniform noise. The similarity is the
Pearson correlation (PCC) of absolute attributions: below 0.4 an explanation is changed (F-hat), above 0.6 it is
unchanged (F-tilde). The explainer is Gradient x Input. The number of particles is not stated; 1000 follows from the
counts of Table 2. All populations of a run have one size, as in the paper (`first: 1.0` in the studies).

The paper's network is a LeNet-5 of tanh and average pooling on 32x32 pixels, whose maps change smoothly with the input.
Those of a LeNet-5 of ReLU and max-pooling jump. Parts describe a study of the latter; `on_both_networks` makes the
same study of the former.

ln P, the natural logarithm of the probability, is a bound if its run is censored or not resolved. The paper's means use
the floor as the value. Ours use the bound (`"bounded"`), and are then printed with `≤`. Differences between models or
explainers leave out bounds (`keep_exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from papers import files
from papers.base import Column, Part, Scale
from papers.reading import Outcomes, Pairs, all_above, all_separated
from standfast import data
from standfast.data.dataset import Dataset
from standfast.report import Results

RADIUS = 0.3
NATURAL, _SMOOTH_PREFIX = "lenet5-mnist", "lenet5-tanh-mnist-"
RECTIFIERS = "LeNet-5 of ReLU and max-pooling on 28x28 pixels (tanh and average pooling on 32x32)"
SMOOTH = "LeNet-5 of tanh and average pooling on 32x32 pixels, as in the paper, but trained by us"

make_part = partial(files.make_part, "safari")

#: digits of the test set that LeNet-5 classifies correctly, but not with a probability of 0.2% to 2% within the radius
_NEAR_BOUNDARY = (1033, 1748, 2582, 2052, 1716)
_NEAR_BOUNDARY_SMOOTH = (259, 659, 1984, 939, 358)


def digits_near_boundary(count: int, smooth: bool = False) -> Dataset:
    """The first `count` of a few digits whose class changes often enough for plain Monte Carlo.

    With `smooth`, digits at 32x32 pixels for the smooth network.
    """
    numbers = _NEAR_BOUNDARY_SMOOTH if smooth else _NEAR_BOUNDARY
    return data.load("mnist32:test" if smooth else "mnist:test").take(list(numbers[:count]))


# ---- the smooth network ----


def on_both_networks(*parts: Part) -> tuple[Part, ...]:
    """The parts on the paper's kind of network, trained in the same way, and then on the network of rectifiers."""
    rectified = [
        replace(part, departures=partial(_describe_departures, RECTIFIERS, part)) for part in parts
    ]
    return (*map(_on_smooth_network, parts), *rectified)


def _on_smooth_network(part: Part) -> Part:
    assert part.study is not None
    return replace(
        part,
        name=f"{part.name}-smooth",
        title=f"Smooth network. {part.title}",
        study=partial(_use_smooth_networks, part.study),
        departures=partial(_describe_departures, SMOOTH, part),
    )


def _describe_departures(network: str, part: Part, scale: Scale) -> str:
    return f"{network}; {part.departures(scale)}"


def _use_smooth_networks(
    make_study: Callable[[Scale], dict[str, Any]], scale: Scale
) -> dict[str, Any]:
    study = make_study(scale)
    models: dict[str, Any] = {}
    samples: dict[str, Any] = {}
    for label, entry in study["models"].items():
        plain = {entry: {}} if isinstance(entry, str) else entry
        models[_find_smooth(label)] = {
            _find_smooth(name): options for name, options in plain.items()
        }
    for label, entry in study["data"].items():
        if entry == "mnist:test":
            samples[label] = "mnist32:test"
        else:
            samples[label] = {**entry, "options": {**entry["options"], "smooth": True}}
    return {
        **study,
        "title": f"{study['title']}, smooth network",
        "models": models,
        "data": samples,
    }


def _find_smooth(name: str) -> str:
    """The smooth network that was trained in the same way; the natural one has no augmentation, as in the paper."""
    return (
        f"{_SMOOTH_PREFIX}plain" if name == NATURAL else name.replace(f"{NATURAL}-", _SMOOTH_PREFIX)
    )


# ---- quantities ----

#: heading: the configured metric, its column, whether larger values are more robust
QUANTITIES = {
    "sol_c (J)": ("worst c", "margin", False),
    "sol_F-hat (PCC)": ("worst F-hat", "similarity", True),
    "sol_F-tilde (PCC)": ("worst F-tilde", "similarity", False),
    "ln P_c": ("ln P c", "value", False),
    "ln P_F-hat": ("ln P F-hat", "value", False),
    "ln P_F-tilde": ("ln P F-tilde", "value", False),
    "sol_F-hat, gradient": ("worst F-hat, gradient", "similarity", True),
    "sol_F-hat, genetic": ("worst F-hat, genetic", "similarity", True),
}
HAT, TILDE = ("sol_F-hat (PCC)", "ln P_F-hat"), ("sol_F-tilde (PCC)", "ln P_F-tilde")
#: the quantities of tables of explainers
HEADINGS = ("sol_F-hat (PCC)", "sol_F-tilde (PCC)", "ln P_F-hat", "ln P_F-tilde")

_Paper = Mapping[str, Mapping[str, float | str]]
_Compare = Callable[[pl.DataFrame, Pairs, str], bool | None]


def make_columns(headings: Sequence[str], paper: _Paper | None = None) -> tuple[Column, ...]:
    """Columns of `QUANTITIES`, with the paper's numbers by heading and row."""
    return tuple(_make_column(heading, (paper or {}).get(heading, {})) for heading in headings)


def _make_column(heading: str, paper: Mapping[str, float | str]) -> Column:
    label, column, _ = QUANTITIES[heading]
    if column == "value":
        return log_probability_column(heading, metric=label, paper=paper)
    # if no class change was found, there is no solution; the similarity is that of the best other point
    where = {"found": True} if label == "worst F-tilde" else {}
    return Column(heading, column, metric=label, where=where, decimals=2, paper=paper)


def log_probability_column(heading: str, column: str = "value", **more: Any) -> Column:
    """A column for the mean of ln P, in which bounds count as values: of runs that are censored or not resolved."""
    return Column(heading, column, statistic="bounded", side="upper", decimals=2, **more)


def select_rows(frame: pl.DataFrame, heading: str) -> pl.DataFrame:
    """The rows of a quantity; for worst cases of F-tilde, only those with a solution."""
    label = QUANTITIES[heading][0]
    own = frame.filter(pl.col("label") == label)
    if label != "worst F-tilde":
        return own
    return own.filter(pl.col("found").fill_null(False)) if "found" in own.columns else own.clear()


def judge_order(
    frame: pl.DataFrame, pairs: Pairs, headings: Sequence[str], compare: _Compare = all_above
) -> Outcomes:
    """For each quantity, whether the first of each pair is more robust than the second, by `compare`."""
    outcomes = {}
    for heading in headings:
        _, column, higher = QUANTITIES[heading]
        ordered = pairs if higher else [(second, first) for first, second in pairs]
        outcomes[heading] = compare(select_rows(frame, heading), ordered, column)
    return outcomes


def is_clearly_above(
    frame: pl.DataFrame, pairs: Pairs, column: str, by: str, level: float
) -> bool | None:
    """Whether in each pair the first is above the second, by two tests; None if they disagree.

    One test compares the separate intervals of the means (`all_separated`), the other the interval of the paired
    differences (`all_above`).
    """
    separate, paired = (
        test(frame, pairs, column, by, level=level) for test in (all_separated, all_above)
    )
    return separate if separate == paired else None


def describe_found(frame: pl.DataFrame) -> list[str]:
    """For each model, the share of class changes that the search for F-tilde found."""
    own = frame.filter(pl.col("label") == "worst F-tilde")
    if "found" not in frame.columns or not len(own):
        return []
    shares = own.group_by("model", maintain_order=True).agg(pl.col("found").cast(pl.Float64).mean())
    texts = [f"{model} {share:.0%}" for model, share in shares.iter_rows() if share is not None]
    return [f"class changes found by the search for F-tilde: {', '.join(texts)}"]


# ---- what is read from results ----


def read_arrays(
    results: Results, *names: str
) -> dict[tuple[str, int], dict[str, np.ndarray[Any, Any]]]:
    """The stored arrays with these names, for each (job, sample) that has all of them."""
    found = {}
    for job in results.jobs.filter(pl.col("artefacts").fill_null(False)).iter_rows(named=True):
        arrays = results.artefacts(job["job"])
        if all(name in arrays for name in names):
            for row, sample in enumerate(range(job["start"], job["stop"])):
                found[job["job"], sample] = {name: arrays[name][row] for name in names}
    return found
