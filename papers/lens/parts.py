"""Shared parts of the LENS reproductions: settings of the data sets, studies, columns and verdicts.

Setting: Kamath, Mittal, Deshpande and Balasubramanian, "Rethinking robustness of model attributions" (AAAI 2024), App.
C. Attacks search a ball in the maximum norm from several starts; the result is the best point that keeps the class. The
labels are the targets, so misclassified samples are skipped. Maps are compared without signs, with channels summed.

Verdicts come from paired differences on the same samples with 95% intervals (`papers.reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from papers.base import LOAD_EVENLY, Column, Scale, call_function, if_small
from papers.lens.paper import HEADINGS, TRAININGS
from papers.reading import (
    Estimate,
    Outcomes,
    Verdict,
    all_above,
    group_by_outcome,
    is_above,
    is_at_least,
    mean_interval,
    mean_ratio,
)
from standfast import zoo
from standfast.metrics.lens.attribution_attack import name_chance
from standfast.presentation.base import format_number
from standfast.study.results import Results

ROWS = 256  # rows forwarded at once on a CPU: as many as fit into the cache
IG = "IG"
GUIDED = {"top-k": "top_k", "mass center": "mass_centre"}
ABOUT_TWICE = 1.5  # our reading of "roughly 2x"


@dataclass(frozen=True)
class Setting:
    """A data set with our networks, the paper's attack on it, and the sizes of a small run.

    Attributes:
        title: title of the data set, as in the paper.
        data: name of the data set for `standfast.data.load`.
        images: number of its images.
        networks: the zoo's name of the network for each training.
        radius, t, step, steps, restarts: options of the attack, App. C; for CIFAR-10, which the paper does not use,
            those of GTSRB.
        side: side of the maps, in pixels.
        small: images, steps (each twice as long) and starts of a small run.
        many: images of a small run without a search.
        ordered: whether images are sorted by class, so that a part must be evenly spread over the set.
        path_points: steps of integrated gradients in a small run that attacks them; a full run has 100.
    """

    title: str
    data: str
    images: int
    networks: Mapping[str, str]
    radius: float
    t: int
    step: float
    steps: int
    side: int
    small: tuple[int, int, int]
    many: int
    restarts: int = 3
    ordered: bool = False
    path_points: int = 10

    @property
    def name(self) -> str:
        """The name for parts and folders."""
        return self.title.lower().replace("-", "")

    @property
    def share(self) -> int:
        """The number of pixels that is the same share, 2%, as the paper's 1000 of ImageNet's 227 x 227."""
        return round(1000 / 227**2 * self.side**2)


def _networks(data: str, natural: str) -> dict[str, str]:
    return dict(zip(TRAININGS, (natural, f"lenet5-{data}-pgd", f"lenet5-{data}-ig-sum-norm"), strict=True))


_LENET: dict[str, Any] = {"step": 0.01, "steps": 100, "side": 28, "images": 10_000, "small": (40, 50, 2), "many": 200}
_COLOUR: dict[str, Any] = {"radius": 8 / 255, "t": 100, "step": 1 / 255, "steps": 50, "side": 32, "many": 60}
MNIST = Setting("MNIST", "mnist:test", networks=_networks("mnist", "lenet5-mnist-plain"), radius=0.3, t=200, **_LENET)
FASHION = Setting(
    "Fashion-MNIST",
    "fashion_mnist:test",
    networks=_networks("fashion-mnist", "lenet5-fashion-mnist"),
    radius=0.1,
    t=100,
    **_LENET,
)
GTSRB = Setting("GTSRB", "gtsrb:test", 860, {"natural": "cnn-gtsrb"}, small=(30, 15, 1), ordered=True, **_COLOUR)
CIFAR10 = Setting("CIFAR-10", "cifar10:test", 10_000, {"natural": "resnet20-cifar10"}, small=(16, 12, 1), **_COLOUR)


# ---- studies ----


def make_study(title: str, setting: Setting, count: int, networks: Iterable[str], **sections: Any) -> dict[str, Any]:
    """A study on `count` images of one data set, with labels as targets; `networks` are names of trainings."""
    count = min(count, setting.images)
    source: dict[str, Any] = {"name": setting.data}
    if setting.ordered:
        source = call_function(LOAD_EVENLY, name=setting.data, count=count)
    return {
        "title": title,
        "samples": count,
        "samples_per_job": 20,
        "data": {setting.title: {**source, "targets": "labels"}},
        "models": {name: {"name": setting.networks[name], "batch_size": ROWS} for name in networks},
        **sections,
    }


def make_integrated_gradients(scale: Scale, setting: Setting) -> dict[str, Any]:
    """Integrated gradients as an explainer of a study, with the number of steps for attacks through their gradient."""
    return {"name": "integrated_gradients", "steps": setting.path_points if scale == "small" else 100}


def make_attack(
    name: str, setting: Setting, scale: Scale, similarities: Sequence[str], radius: float | None = None
) -> dict[str, Any]:
    """An attack as a metric of a study, by the paper's name: `top-k`, `mass center`, `random`, `universal random`."""
    radius = setting.radius if radius is None else radius
    metric: dict[str, Any] = {
        "name": "attribution_attack",
        "neighbourhood": {"linf": radius},
        "similarities": list(similarities),
        "curve_k": [100],
        "curve_w": [1, 2, 3],
    }
    if name in GUIDED:
        small = scale == "small"
        metric["attack"] = f"top_k:t={setting.t}" if name == "top-k" else GUIDED[name]
        metric["steps"] = setting.small[1] if small else setting.steps
        step = 2 * setting.step if small else setting.step
        metric["step"] = min(step, radius / 2)  # longer steps would only jump between corners of the ball
        metric["restarts"] = setting.small[2] if small else setting.restarts
    else:
        metric["attack"] = {"random": "random_sign", "universal random": "universal"}[name]
    return metric


def describe_budget(setting: Setting, scale: Scale, full: str) -> str:
    """The smaller sizes of a small run of a guided attack; `full` describes the number of images of other runs."""
    count, steps, restarts = setting.small
    paper = f"{setting.steps} of {format_size(setting.step)}"
    text = (
        f"{count} images ({full}), {steps} steps of {format_size(2 * setting.step)} ({paper}), {restarts}"
        f" {'start' if restarts == 1 else 'starts'} ({setting.restarts}), {setting.path_points} steps of integrated"
        " gradients (the paper does not say how many; a full run has 100)"
    )
    return if_small(scale, text)


def format_size(size: float) -> str:
    """A radius or a step as text; small ones in units of 1/255.

    >>> format_size(8 / 255), format_size(0.0375)
    ('8/255', '0.0375')
    """
    units = size * 255
    return f"{units:.0f}/255" if units < 10 and abs(units - round(units)) < 1e-9 else f"{size:g}"


# ---- columns ----


def similarity_name(kind: str, k: int, w: int | None = None, diverse: bool = False) -> str:
    """The name of one of the paper's similarities.

    >>> similarity_name("intersection", 100), similarity_name("recall", 100, 1, diverse=True)
    ('topk_intersection:k=100', 'lens_recall:k=100,w=1,diverse=true')
    """
    name = "topk_intersection" if kind == "intersection" else f"lens_{kind}"
    options = [f"k={k}"]
    if diverse or kind != "intersection":
        options.append(f"w={w}")
    if diverse:
        options.append("diverse=true")
    return f"{name}:{','.join(options)}"


def six_similarities(k: int, w: int) -> tuple[str, ...]:
    """The similarities of Tables 4 and 7, in the order of `HEADINGS`."""
    kinds = ("intersection", "recall", "prec")
    return tuple(
        similarity_name("precision" if kind == "prec" else kind, k, w, diverse)
        for diverse in (False, True)
        for kind in kinds
    )


SIX = six_similarities(100, 1)
NAMED = dict(zip(HEADINGS, SIX, strict=True))
INTERSECTION, RECALL, PRECISION, DIVERSE, RECALL_DIVERSE, PRECISION_DIVERSE = SIX
LOCAL = {heading: NAMED[heading] for heading in HEADINGS[1:3]}
LOCAL_DIVERSE = {heading: NAMED[heading] for heading in HEADINGS[4:]}


def make_six_columns(paper: Mapping[str, Sequence[float]], names: Sequence[str] = SIX) -> tuple[Column, ...]:
    """Columns for the six similarities, with the paper's numbers by row."""
    return make_columns(dict(zip(HEADINGS, names, strict=True)), paper)


def make_columns(
    columns: Mapping[str, str], paper: Mapping[str, Sequence[float]], decimals: int = 3
) -> tuple[Column, ...]:
    """Columns by heading; `paper` has, for each row, the paper's numbers in the order of the columns.

    Each has a number corrected for chance, if the results have its chance level.
    """
    return tuple(
        Column(
            heading,
            name,
            paper={row: numbers[index] for row, numbers in paper.items() if index < len(numbers)},
            chance=name_chance(name),
            decimals=decimals,
        )
        for index, (heading, name) in enumerate(columns.items())
    )


def repeat_rows(
    axis: str, values: Sequence[int], names: Mapping[str, Callable[[int], str]]
) -> Callable[[Results], pl.DataFrame]:
    """A function that repeats the rows for each value of `axis`, with the similarities that belong to the value.

    `names` maps the name of a new column to the function that gives the similarity's name for a value. The chance
    levels go with the similarities.
    """

    def prepare(results: Results) -> pl.DataFrame:
        frame = results.samples

        def copies(value: int) -> Iterator[pl.Expr]:
            for short, name in names.items():
                for new, old in ((short, name(value)), (name_chance(short), name_chance(name(value)))):
                    known = pl.col(old) if old in frame.columns else pl.lit(None, dtype=pl.Float64)
                    yield known.alias(new)

        return pl.concat(frame.with_columns(pl.lit(str(value)).alias(axis), *copies(value)) for value in values)

    return prepare


# ---- verdicts ----


def judge_groups(
    frame: pl.DataFrame,
    by: str,
    names: Iterable[str],
    columns: Iterable[str],
    pairs: Sequence[tuple[str, str]],
    over: str,
) -> Outcomes:
    """For each of `names` in the column `by` and each heading, whether in all pairs of `over` the first is above."""
    return {
        f"{name}: {heading}": all_above(frame.filter(pl.col(by) == name), pairs, NAMED[heading], over)
        for name in names
        for heading in columns
    }


def is_never_below(frame: pl.DataFrame, upper: Sequence[str], lower: str) -> bool | None:
    """Whether in every sample every `upper` column is at or above `lower`."""
    if not len(frame) or any(column not in frame.columns for column in (*upper, lower)):
        return None
    rows = frame.filter(pl.col(lower).is_finite().fill_null(False))
    return bool(rows.select(pl.all_horizontal((pl.col(c) >= pl.col(lower) - 1e-6).all() for c in upper)).item())


def judge_never_below(frame: pl.DataFrame, upper: Mapping[str, str], lower: str, name: str) -> list[Verdict]:
    """Judge `is_never_below` as a sentence, for columns by heading."""
    text = f"locality-sensitive similarities are at or above {name} (for every image; true by construction)"
    return group_by_outcome(
        text, {heading: is_never_below(frame, (column,), lower) for heading, column in upper.items()}
    )


def judge_factor(frame: pl.DataFrame, where: str) -> list[Verdict]:
    """Judge the paper's "roughly 2x": 1-LENS-prec@k divided by top-k intersection."""
    factor = mean_ratio(frame, PRECISION, INTERSECTION)
    holds = is_at_least(factor, ABOUT_TWICE)
    text = f"1-LENS-prec@k is roughly 2x top-k intersection (at least {ABOUT_TWICE}x, our reading)"
    return [(text, f"{where}: {format_estimate(factor)}x", holds)]


def is_column_above(frame: pl.DataFrame, first: str, second: str) -> bool | None:
    """Whether the mean of one column is above that of another, by the interval of differences on the same samples."""
    if any(column not in frame.columns for column in (first, second)):
        return None
    return is_above(mean_interval((frame[first] - frame[second]).drop_nulls().drop_nans().to_numpy()), 0)


def judge_chance(frames: Mapping[str, pl.DataFrame], columns: Mapping[str, str]) -> list[Verdict]:
    """Judge for each frame and each column, by heading, whether the similarity is above its chance level.

    Chance is that of unrelated maps of the same image: with as many positions, windows and supports.
    """
    outcomes: Outcomes = {
        f"{name} {heading}" if name else heading: is_column_above(frame, column, name_chance(column))
        for name, frame in frames.items()
        for heading, column in columns.items()
    }
    return group_by_outcome("maps are more similar than unrelated maps on the same pixels (ours)", outcomes)


def format_estimate(value: Estimate, decimals: int = 2) -> str:
    """A number with its interval as text."""
    middle, low, high = (format_number(part, decimals) for part in value)
    return f"{middle} [{low}, {high}]"


def describe_networks(setting: Setting, *trainings: str) -> str:
    """The zoo's names of the networks with their test accuracies, as text."""
    names = [setting.networks[training] for training in trainings]
    known = set(zoo.names())
    return ", ".join(f"{name} ({zoo.card(name)['test_accuracy']:.1%})" if name in known else name for name in names)


def note_attacks(frame: pl.DataFrame, *axes: str) -> list[str]:
    """Notes on images whose class a random perturbation changed, and for which an attack found no valid point."""
    notes = []
    for column, kind, text in (
        ("label_kept", ("random",), "images whose class changed; they are included in the table"),
        ("found", tuple(GUIDED), "images for which no perturbed point keeps the class (similarity 1)"),
    ):
        if column not in frame.columns:
            continue
        own = frame.filter(pl.any_horizontal(pl.col("label").str.contains(word) for word in kind))
        shares = own.group_by(*axes, maintain_order=True).agg(1 - pl.col(column).cast(pl.Float64).mean())
        lines = [f"{', '.join(map(str, row[:-1]))} {row[-1]:.0%}" for row in shares.iter_rows() if row[-1] > 0]
        notes += [f"{text}: {'; '.join(lines)}"] if lines else []
    return notes
