"""What LENS's reproductions share: settings of the data sets, studies, columns, verdicts, maps that are unrelated.

Setting: Kamath, Mittal, Deshpande and Balasubramanian, "Rethinking robustness of model attributions" (AAAI 2024), App.
C. Attacks in the maximum norm ball, from several starts, best point that keeps the class; samples that the network
gets wrong are skipped, since the labels are the targets. Maps are compared without signs, channels summed.

Verdicts are those of paired differences on the same samples with 95% intervals (`holdfast.reproduce.reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from holdfast import data, zoo
from holdfast.data.dataset import Dataset
from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Column, Scale
from holdfast.reproduce.lens.paper import HEADINGS, TRAININGS
from holdfast.reproduce.reading import RESAMPLES, Verdict, all_above, interval
from holdfast.reproduce.safari.parts import by_outcome, scaled
from holdfast.study.results import Results

ROWS = 256  # forwarded at once where there is no GPU: they stay in the cache
IG = "IG"
GUIDED = {"top-k": "top_k", "mass center": "mass_center"}
ABOUT_TWICE = 1.5  # what we take "roughly 2x" for
Outcomes = dict[str, bool | None]


@dataclass(frozen=True)
class Setting:
    """A data set with our networks and the paper's attack on it, and how much of it a small run takes.

    Attributes:
        title: as in the paper.
        data: the loader's name; `images` of them there are.
        networks: the zoo's name for each training.
        radius, t, step, steps, restarts: of the attack, App. C; those of GTSRB for CIFAR-10, which the paper has not.
        side: of the maps, in pixels.
        small: images, steps (each twice as long) and starts of a small run.
        many: images of a small run without a search.
        ordered: whether images are stored class by class, so that a part of them is taken evenly.
        path_points: steps of integrated gradients in a small run that attacks them; a full one has 100.
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
        """Of its parts and folders."""
        return self.title.lower().replace("-", "")

    @property
    def share(self) -> int:
        """As many pixels as the paper's 1000 of ImageNet's 227 x 227: 2%."""
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


def evenly(name: str, count: int) -> Dataset:
    """`count` images of a data set, evenly spread over it."""
    found = data.load(name)
    return found.take([row * len(found.inputs) // count for row in range(count)])


# ---- studies ----


def study_of(title: str, setting: Setting, count: int, networks: Iterable[str], **sections: Any) -> dict[str, Any]:
    """A study on `count` images of one data set, labels as targets, by the names of trainings."""
    count = min(count, setting.images)
    source: dict[str, Any] = {"name": setting.data}
    if setting.ordered:
        source = {"function": f"{__name__}:evenly", "options": {"name": setting.data, "count": count}}
    return {
        "title": title,
        "samples": count,
        "samples_per_job": 20,
        "data": {setting.title: {**source, "targets": "labels"}},
        "models": {name: {"name": setting.networks[name], "batch_size": ROWS} for name in networks},
        **sections,
    }


def integrated(scale: Scale, setting: Setting) -> dict[str, Any]:
    """Integrated gradients as an explainer of a study where an attack goes through them."""
    return {"name": "integrated_gradients", "steps": setting.path_points if scale == "small" else 100}


def attack_of(
    name: str, setting: Setting, scale: Scale, similarities: Sequence[str], radius: float | None = None
) -> dict[str, Any]:
    """A configured attack, by the paper's name: `top-k`, `mass center`, `random`, `universal random`."""
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
        metric["step"] = min(step, radius / 2)  # longer ones would only jump from corner to corner
        metric["restarts"] = setting.small[2] if small else setting.restarts
    else:
        metric["attack"] = {"random": "random_sign", "universal random": "universal"}[name]
    return metric


def budget_words(setting: Setting, scale: Scale, full: str) -> str:
    """What a small run of a guided attack has less of; `full` is said of the number of images."""
    count, steps, restarts = setting.small
    paper = f"{setting.steps} of {size_words(setting.step)}"
    words = (
        f"{count} images ({full}), {steps} steps of {size_words(2 * setting.step)} ({paper}), {restarts}"
        f" {'start' if restarts == 1 else 'starts'} ({setting.restarts}), {setting.path_points} steps of integrated"
        " gradients (the paper does not say how many; a full run has 100)"
    )
    return scaled(scale, words)


def size_words(size: float) -> str:
    """A radius or a step, small ones in units of 1/255.

    >>> size_words(8 / 255), size_words(0.0375)
    ('8/255', '0.0375')
    """
    units = size * 255
    return f"{units:.0f}/255" if units < 10 and abs(units - round(units)) < 1e-9 else f"{size:g}"


# ---- columns ----


def similarity(kind: str, k: int, w: int | None = None, diverse: bool = False) -> str:
    """The name of one of the paper's similarities.

    >>> similarity("intersection", 100), similarity("recall", 100, 1, diverse=True)
    ('topk_intersection:k=100', 'lens_recall:k=100,w=1,diverse=true')
    """
    name = "topk_intersection" if kind == "intersection" else f"lens_{kind}"
    options = [f"k={k}"]
    if diverse or kind != "intersection":
        options.append(f"w={w}")
    if diverse:
        options.append("diverse=true")
    return f"{name}:{','.join(options)}"


def six(k: int, w: int) -> tuple[str, ...]:
    """The similarities of Tables 4 and 7, in the order of `HEADINGS`."""
    kinds = ("intersection", "recall", "prec")
    return tuple(
        similarity("precision" if kind == "prec" else kind, k, w, diverse)
        for diverse in (False, True)
        for kind in kinds
    )


SIX = six(100, 1)
NAMED = dict(zip(HEADINGS, SIX, strict=True))
INTERSECTION, RECALL, PRECISION, DIVERSE, RECALL_DIVERSE, PRECISION_DIVERSE = SIX
LOCAL = {heading: NAMED[heading] for heading in HEADINGS[1:3]}
LOCAL_DIVERSE = {heading: NAMED[heading] for heading in HEADINGS[4:]}


def six_columns(paper: Mapping[str, Sequence[float]], names: Sequence[str] = SIX) -> tuple[Column, ...]:
    """Columns for them, with the paper's numbers by row."""
    return tuple(
        Column(heading, name, paper={row: numbers[place] for row, numbers in paper.items()})
        for place, (heading, name) in enumerate(zip(HEADINGS, names, strict=True))
    )


def long(
    axis: str, values: Sequence[int], names: Mapping[str, Callable[[int], str]]
) -> Callable[[Results], pl.DataFrame]:
    """Rows for each value of `axis`, from the similarities that were computed for each of them."""

    def prepare(results: Results) -> pl.DataFrame:
        frame = results.samples
        return pl.concat(
            frame.with_columns(
                pl.lit(str(value)).alias(axis),
                *(
                    pl.col(name(value)).alias(short) if name(value) in frame.columns else pl.lit(None).alias(short)
                    for short, name in names.items()
                ),
            )
            for value in values
        )

    return prepare


# ---- verdicts ----


def together(outcomes: Iterable[bool | None]) -> bool | None:
    """Of all of them: one that fails fails them, one that is undecided leaves them so."""
    told = list(outcomes)
    return False if False in told else True if told and all(told) else None


def by_group(
    frame: pl.DataFrame,
    by: str,
    names: Iterable[str],
    columns: Iterable[str],
    pairs: Sequence[tuple[str, str]],
    over: str,
) -> Outcomes:
    """For each of `names` in the column `by` and each heading: whether in all pairs of `over` the first is above."""
    return {
        f"{name}: {heading}": all_above(frame.filter(pl.col(by) == name), pairs, NAMED[heading], over)
        for name in names
        for heading in columns
    }


def never_below(frame: pl.DataFrame, upper: Sequence[str], lower: str) -> bool | None:
    """Whether every sample has every `upper` column at or above `lower`."""
    if not len(frame) or any(column not in frame.columns for column in (*upper, lower)):
        return None
    rows = frame.filter(pl.col(lower).is_finite().fill_null(False))
    return bool(rows.select(pl.all_horizontal((pl.col(c) >= pl.col(lower) - 1e-6).all() for c in upper)).item())


def never_below_verdict(frame: pl.DataFrame, upper: Mapping[str, str], lower: str, name: str) -> list[Verdict]:
    """`never_below` as a sentence, for columns by heading."""
    text = f"locality-sensitive similarities are at or above {name} (of every image; true by construction)"
    return by_outcome(text, {heading: never_below(frame, (column,), lower) for heading, column in upper.items()})


def factor_verdict(frame: pl.DataFrame, where: str) -> list[Verdict]:
    """The paper's "roughly 2x": 1-LENS-prec@k over top-k intersection."""
    factor = ratio(frame, PRECISION, INTERSECTION)
    holds = True if factor[1] >= ABOUT_TWICE else False if factor[2] < ABOUT_TWICE else None
    text = f"1-LENS-prec@k is roughly 2x top-k intersection (at least {ABOUT_TWICE}x, our reading)"
    return [(text, f"{where}: {words_of(factor)}x", holds)]


def columns_above(frame: pl.DataFrame, first: str, second: str) -> bool | None:
    """Whether the mean of one column is above another's, by the interval of differences on the same samples."""
    if any(column not in frame.columns for column in (first, second)):
        return None
    _, low, high = interval((frame[first] - frame[second]).drop_nulls().drop_nans().to_numpy())
    return True if low > 0 else False if high < 0 else None


def ratio(frame: pl.DataFrame, first: str, second: str, level: float = 0.95) -> tuple[float, float, float]:
    """The ratio of two columns' means with its percentile interval over samples; NaN of fewer than two."""
    nothing = (float("nan"),) * 3
    if any(column not in frame.columns for column in (first, second)):
        return nothing
    values = frame.select(first, second).drop_nulls().drop_nans().to_numpy().astype(float)
    if len(values) < 2 or values[:, 1].sum() <= 0:
        return nothing
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    spread = means[means[:, 1] > 0]
    low, high = np.quantile(spread[:, 0] / spread[:, 1], [(1 - level) / 2, (1 + level) / 2])
    return float(values[:, 0].mean() / values[:, 1].mean()), float(low), float(high)


def words_of(value: tuple[float, float, float], decimals: int = 2) -> str:
    """A number with its interval."""
    middle, low, high = (format_number(part, decimals) for part in value)
    return f"{middle} [{low}, {high}]"


def networks_of(setting: Setting, *trainings: str) -> str:
    """The zoo's names with their test accuracies, as words."""
    names = [setting.networks[training] for training in trainings]
    known = set(zoo.names())
    told = [f"{name} ({zoo.card(name)['test_accuracy']:.1%})" if name in known else name for name in names]
    return ", ".join(told)


def attack_notes(frame: pl.DataFrame, *axes: str) -> list[str]:
    """Where random perturbations lost the class, and where an attack found no point that keeps it."""
    notes = []
    for column, kind, words in (
        ("label_kept", ("random",), "images that lost their class, and stay in the table"),
        ("found", tuple(GUIDED), "images for which no disturbed point keeps the class (similarity 1)"),
    ):
        if column not in frame.columns:
            continue
        own = frame.filter(pl.any_horizontal(pl.col("label").str.contains(word) for word in kind))
        shares = own.group_by(*axes, maintain_order=True).agg(1 - pl.col(column).cast(pl.Float64).mean())
        told = [f"{', '.join(map(str, row[:-1]))} {row[-1]:.0%}" for row in shares.iter_rows() if row[-1] > 0]
        notes += [f"{words}: {'; '.join(told)}"] if told else []
    return notes
