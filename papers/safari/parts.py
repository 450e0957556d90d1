"""Shared parts of the SAFARI reproductions: the setting, the study of one table, and columns from labels and curves.

Setting: Huang et al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023),
Sec. 6.1. Boxes of radius 0.3 on MNIST, as in the text (Table 5 says 0.1), with uniform noise. The similarity is the
Pearson correlation (PCC) of absolute attributions: below 0.4 an explanation is changed (F-hat), above 0.6 it is
unchanged (F-tilde). The explainer is Gradient x Input.

The paper's network is a LeNet-5 of tanh and average pooling on 32x32 pixels, whose maps change smoothly with the input.
Those of a LeNet-5 of ReLU and max-pooling jump. Parts describe a study of the latter; `on_smooth_network` makes the
same study of the former.

The label of a configured metric consists of words joined by ", ". `split_labels` makes columns of the words, which can
be the rows of a table or select a column's rows.

ln P, the natural logarithm of the probability, is a bound if its run is censored or not resolved. The paper's means use
the floor as the value. Ours use the bound (`"bounded"`), and are then printed with `≤`. Differences between models or
explainers leave out bounds (`keep_exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Scale, call_function
from papers.reading import add_label_words, all_above, all_separated, mean_interval, paired_differences
from standfast import data
from standfast.data.dataset import Dataset
from standfast.metrics import WorstCase
from standfast.presentation.base import format_number
from standfast.study.results import Results

RADIUS = 0.3
EVENTS = {"F-hat": "changed_explanation", "F-tilde": "changed_class", "c": "misclassification"}
NATURAL, _SMOOTH_PREFIX = "lenet5-mnist", "lenet5-tanh-mnist-"
RECTIFIERS = "LeNet-5 of ReLU and max-pooling on 28x28 pixels (tanh and average pooling on 32x32)"
SMOOTH = "LeNet-5 of tanh and average pooling on 32x32 pixels, as in the paper, but trained by us"
GRADIENT_X_INPUT = {"Gradient x Input": "input_x_gradient"}
_ROWS = 256  # rows forwarded at once on a CPU: as many as fit into the cache

#: Sec. 6.1; the number of particles is not stated there and follows from the counts of Table 2
PAPER_GENETIC: dict[str, Any] = {"evaluations": 500_000, "search": {"genetic": {"population": 1000}}}
PAPER_SUBSET: dict[str, Any] = {"particles": 1000, "quantile": 0.1, "moves": 250, "floor": -100.0}

Prepare = Callable[[Results], pl.DataFrame]


#: digits of the test set that LeNet-5 classifies correctly, but not with a probability of 0.2% to 2% within the radius
_NEAR_BOUNDARY = (1033, 1748, 2582, 2052, 1716)
_NEAR_BOUNDARY_SMOOTH = (259, 659, 1984, 939, 358)


def digits_near_boundary(count: int, smooth: bool = False) -> Dataset:
    """The first `count` of a few digits whose class changes often enough for plain Monte Carlo.

    With `smooth`, digits at 32x32 pixels for the smooth network.
    """
    numbers = _NEAR_BOUNDARY_SMOOTH if smooth else _NEAR_BOUNDARY
    return data.load("mnist32:test" if smooth else "mnist:test").take(list(numbers[:count]))


def make_boundary_data(count: int) -> dict[str, Any]:
    """`digits_near_boundary` as the data of a study."""
    return {"MNIST, near the boundary": call_function(f"{__name__}:digits_near_boundary", count=count)}


def make_study(title: str, scale: Scale, count: int, **sections: Any) -> dict[str, Any]:
    """A study on the first `count` digits of the test set, of Gradient x Input on the bundled LeNet-5.

    `sections` are further sections of the study; they replace these defaults.
    """
    content: dict[str, Any] = {
        "title": title,
        "samples": count,
        "samples_per_job": 20,
        "data": {"MNIST": "mnist:test"},
        "models": make_models(scale, {NATURAL: NATURAL}),
        "neighbourhood": {"linf": RADIUS},
        "explainers": GRADIENT_X_INPUT,
    }
    return {**content, **sections}


def make_models(scale: Scale, names: Mapping[str, str]) -> dict[str, Any]:
    """Models of the zoo as a section of a study, by the names that tables use."""
    size = {"batch_size": _ROWS} if scale == "small" else {}
    return {label: {"name": name, **size} for label, name in names.items()}


def _find_smooth(name: str) -> str:
    """The smooth network that was trained in the same way; the natural one has no augmentation, as in the paper."""
    return f"{_SMOOTH_PREFIX}plain" if name == NATURAL else name.replace(f"{NATURAL}-", _SMOOTH_PREFIX)


def on_smooth_network(part: Part) -> Part:
    """The same study of the LeNet-5 of tanh and average pooling, on 32x32 pixels, trained in the same way."""

    def make(scale: Scale) -> dict[str, Any]:
        assert part.study is not None
        study = part.study(scale)
        models = {
            _find_smooth(label): {**entry, "name": _find_smooth(entry["name"])}
            for label, entry in study["models"].items()
        }
        samples = {
            label: "mnist32:test"
            if entry == "mnist:test"
            else call_function(entry["function"], **entry["options"], smooth=True)
            for label, entry in study["data"].items()
        }
        return {**study, "title": f"{study['title']}, smooth network", "models": models, "data": samples}

    return replace(
        part,
        name=f"{part.name}-smooth",
        title=f"Smooth network. {part.title}",
        study=make,
        departures=lambda scale: part.departures(scale).replace(RECTIFIERS, SMOOTH),
    )


def make_worst_case(
    event: str, evaluations: int, search: str | Mapping[str, Any] = "block", **more: Any
) -> dict[str, Any]:
    """A worst case as a metric of a study, by the paper's name of the event.

    `evaluations` counts only those of the search, as in the paper.
    """
    budget = WorstCase.plan_budget(evaluations)
    return {"name": "worst_case", "event": EVENTS[event], "budget": budget, "search": search, **more}


def make_probability(event: str, **options: Any) -> dict[str, Any]:
    """A probability of misinterpretation as a metric of a study, by the paper's name of the event.

    All populations of a run have one size, as in the paper.
    """
    size = {} if options.get("method") == "monte_carlo" else {"first": 1.0}
    return {"name": "misinterpretation_probability", "event": EVENTS[event], **size, **options}


def log_probability_column(heading: str, column: str = "value", **more: Any) -> Column:
    """A column for the mean of ln P, in which bounds count as values: of runs that are censored or not resolved."""
    return Column(heading, column, statistic="bounded", side="upper", decimals=2, **more)


def split_labels(*names: str) -> Prepare:
    """A function that adds columns `names` with the words of the labels to `Results.samples`."""
    return lambda results: add_label_words(results.samples, *names)


def read_arrays(results: Results, *names: str) -> dict[tuple[str, int], dict[str, np.ndarray[Any, Any]]]:
    """The stored arrays with these names, for each (job, sample) that has all of them."""
    found = {}
    for job in results.jobs.filter(pl.col("artefacts").fill_null(False)).iter_rows(named=True):
        arrays = results.artefacts(job["job"])
        if all(name in arrays for name in names):
            for row, sample in enumerate(range(job["start"], job["stop"])):
                found[job["job"], sample] = {name: arrays[name][row] for name in names}
    return found


# ---- sentences ----


def is_clearly_above(
    frame: pl.DataFrame, pairs: Sequence[tuple[str, str]], column: str, by: str, level: float, higher: bool
) -> bool | None:
    """Whether in each pair the first is above the second (or below, if not `higher`), by two tests.

    One test compares the separate intervals of the means (`all_separated`), the other the interval of the paired
    differences (`all_above`). The result is None if the tests disagree.
    """
    ordered = list(pairs) if higher else [(second, first) for first, second in pairs]
    both = [test(frame, ordered, column, by, level=level) for test in (all_separated, all_above)]
    return both[0] if both[0] == both[1] else None


def keep_solved(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of worst cases whose search found a point that meets the constraint."""
    return frame.filter(pl.col("found").fill_null(False)) if "found" in frame.columns else frame.clear()


def describe_difference(frame: pl.DataFrame, above: str, below: str, column: str, by: str, level: float) -> str:
    """The mean paired difference with its interval, as text."""
    mean, low, high = mean_interval(paired_differences(frame, above, below, column, by), level)
    return f"{above} minus {below} {format_number(mean)} [{format_number(low)}, {format_number(high)}]"


OURS = f"{RECTIFIERS}, the first digits of the test set (random)"
