"""What SAFARI's reproductions share: the setting, the study of one table, and columns read from names and curves.

Setting: Huang et al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023),
Sec. 6.1. Boxes of radius 0.3 on MNIST, as in the text (Table 5 says 0.1), noise uniform in them, PCC of absolute
attributions, below 0.4 for a changed explanation (F-hat) and above 0.6 for a kept one (F-tilde), Gradient x Input.

Names of configured metrics are words joined by ", ": `split_labels` makes columns of them, to be the rows of a table
or to pick a column's rows.

ln P at its floor (or on a plateau) is a bound. The paper's means take the floor for the value, and so do ours
(`"bounded"`), printed as `≤`; differences between models or explainers are those of ln P cut off at the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from holdfast import data
from holdfast.data.dataset import Dataset
from holdfast.metrics import WorstCase
from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Column, Scale
from holdfast.reproduce.reading import Verdict, all_above, all_apart, differences, interval
from holdfast.study.results import Results

RADIUS = 0.3
EVENTS = {"F-hat": "changed_explanation", "F-tilde": "changed_class", "c": "misclassification"}
NATURAL = "lenet5-mnist"
GRADIENT_X_INPUT = {"Gradient x Input": "input_x_gradient"}
_ROWS = 256  # forwarded at once where there is no GPU: they stay in the cache

#: Sec. 6.1; what does not stand there is the population of the probabilistic evaluation, from Table 2's counts
PAPER_GENETIC: dict[str, Any] = {"evaluations": 500_000, "search": {"genetic": {"population": 1000}}}
PAPER_SUBSET: dict[str, Any] = {"particles": 1000, "quantile": 0.1, "moves": 250, "floor": -100.0}

Prepare = Callable[[Results], pl.DataFrame]


#: digits of the test set that LeNet-5 recognises and would not with a probability of 0.2% to 1% within the radius
_NEAR_BOUNDARY = (1033, 1748, 2582, 2052, 1716)


def near_boundary(count: int) -> Dataset:
    """The first `count` of a few digits whose class changes often enough for plain Monte Carlo to tell."""
    return data.mnist("test").take(list(_NEAR_BOUNDARY[:count]))


def boundary_data(count: int) -> dict[str, Any]:
    """`near_boundary` as a study's data."""
    function = "holdfast.reproduce.safari.parts:near_boundary"
    return {"MNIST, near the boundary": {"function": function, "options": {"count": count}}}


def study_of(title: str, scale: Scale, count: int, **sections: Any) -> dict[str, Any]:
    """A study on the first `count` digits of the test set (or on `data`), Gradient x Input on the bundled LeNet-5."""
    content: dict[str, Any] = {
        "title": title,
        "samples": count,
        "samples_per_job": 20,
        "data": {"MNIST": "mnist:test"},
        "models": models_of(scale, NATURAL),
        "neighbourhood": {"linf": RADIUS},
        "explainers": GRADIENT_X_INPUT,
    }
    return {**content, **sections}


def models_of(scale: Scale, *names: str) -> dict[str, Any]:
    """Models of the zoo."""
    size = {"batch_size": _ROWS} if scale == "small" else {}
    return {name: {"name": name, **size} for name in names}


def worst(event: str, evaluations: int, search: str | Mapping[str, Any] = "block", **more: Any) -> dict[str, Any]:
    """A worst case, by the paper's name of the event, and by the evaluations of the search alone, as in the paper."""
    budget = evaluations + WorstCase.own_evaluations
    return {"name": "worst_case", "event": EVENTS[event], "budget": budget, "search": search, **more}


def probability(event: str, **options: Any) -> dict[str, Any]:
    """A probability of misinterpretation, by the paper's name of the event."""
    return {"name": "misinterpretation_probability", "event": EVENTS[event], **options}


def log_probability(heading: str, **more: Any) -> Column:
    """The mean of ln P, with the floor taken for what lies below it."""
    options: dict[str, Any] = {"statistic": "bounded", "censored": "censored", "side": "upper", "decimals": 2}
    return Column(heading, "log_probability", **{**options, **more})


def split_labels(*names: str) -> Prepare:
    """Columns `names` of the words in the labels, and `Results.samples` else."""
    return lambda results: with_words(results.samples, *names)


def with_words(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The rows with columns of the words in `label`.

    >>> with_words(pl.DataFrame({"label": ["F-hat, block"]}), "event", "search").row(0)
    ('F-hat, block', 'F-hat', 'block')
    """
    words = pl.col("label").str.split(", ")
    return frame.with_columns(words.list.get(i, null_on_oob=True).alias(name) for i, name in enumerate(names))


def curves(results: Results, *names: str) -> dict[tuple[str, int], dict[str, np.ndarray[Any, Any]]]:
    """Arrays by name of each (job, sample) that has them."""
    found = {}
    for job in results.jobs.filter(pl.col("artefacts").fill_null(False)).iter_rows(named=True):
        arrays = results.artefacts(job["job"])
        if all(name in arrays for name in names):
            for row, sample in enumerate(range(job["start"], job["stop"])):
                found[job["job"], sample] = {name: arrays[name][row] for name in names}
    return found


# ---- sentences ----


def clearly(
    frame: pl.DataFrame, pairs: Sequence[tuple[str, str]], column: str, by: str, level: float, higher: bool
) -> bool | None:
    """Whether in each pair the first is above (or not `higher`: below) the second.

    True where both the intervals of the means lie apart and the interval of the paired differences is on that side of
    0; False where both say the opposite of some pair; None otherwise.
    """
    turned = list(pairs) if higher else [(second, first) for first, second in pairs]
    both = [test(frame, turned, column, by, level=level) for test in (all_apart, all_above)]
    return both[0] if both[0] == both[1] else None


def solved(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of worst cases whose search found a point that meets the constraint."""
    return frame.filter(pl.col("found").fill_null(False)) if "found" in frame.columns else frame.clear()


def by_outcome(text: str, outcomes: Mapping[str, bool | None]) -> list[Verdict]:
    """One line for all columns in which a sentence holds, one for those where it does not, one for the undecided."""
    found: list[Verdict] = []
    for outcome in (True, False, None):
        headings = [heading for heading, holds in outcomes.items() if holds is outcome]
        found += [(text, ", ".join(headings), outcome)] if headings else []
    return found


def difference_note(frame: pl.DataFrame, above: str, below: str, column: str, by: str, level: float) -> str:
    """The mean paired difference with its interval, as words."""
    mean, low, high = interval(differences(frame, above, below, column, by), level)
    return f"{above} less {below} {format_number(mean)} [{format_number(low)}, {format_number(high)}]"


def scaled(scale: Scale, words: str) -> str:
    """What is smaller than in the paper, in a small run alone."""
    return f"{words}, " if scale == "small" else ""


OURS = "LeNet-5 of 99.4%, 28x28 pixels in [0, 1] (LeNet-5 of 99.1%, 32x32), the first digits of the test set (random)"
