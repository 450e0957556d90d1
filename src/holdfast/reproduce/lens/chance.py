"""What the similarities of LENS's tables give for maps that have nothing to do with each other.

A window around each of k pixels covers much of a map: 100 windows of 3 x 3 cover two thirds of 28 x 28 pixels, and
pixels that keep apart cover more. So a locality-sensitive similarity is to be read from what unrelated maps score on,
which the paper does not give. Two kinds of them: independent noise, for the sizes of all the paper's tables; and for
our networks the integrated gradients of an image with those of the next one under random signs. Between them stand maps
of noise on the same image: all that they share is where the image is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import polars as pl
import torch

from holdfast import data, explainers, zoo
from holdfast.metrics.lens.attribution_objectives import RandomSign
from holdfast.model import Classifier
from holdfast.neighbourhood import LinfBall
from holdfast.reproduce.base import Column, Part, Scale
from holdfast.reproduce.lens.paper import HEADINGS, TABLE4, TABLE5_NATURAL, TABLE6
from holdfast.reproduce.lens.parts import FASHION, GTSRB, MNIST, ROWS, Outcomes, Setting, evenly
from holdfast.reproduce.reading import Verdict, interval
from holdfast.reproduce.safari.parts import by_outcome
from holdfast.similarity import LensProfile, lens_profile

#: side, k, w of the paper's tables and survey, and of ours where k = 2% and w = 3 stand for ImageNet's
SIZES = ((28, 100, 1), (28, 15, 3), (32, 100, 1), (32, 20, 3), (128, 1000, 2), (128, 1000, 3), (227, 1000, 3))
_PAIRS: dict[Scale, int] = {"small": 60, "full": 1000}
_IMAGES: dict[Scale, int] = {"small": 100, "full": 860}
_FIELDS = ("intersection", "recall", "precision", "intersection_diverse", "recall_diverse", "precision_diverse")
_NOISE = "noise"
_CLEARLY = 0.05


def size_name(side: int, k: int, w: int) -> str:
    """As a row's name."""
    return f"{side} x {side} k={k} w={w}"


def unrelated(side: int, k: Sequence[int], w: Sequence[int], count: int = 50, diverse: bool = True) -> LensProfile:
    """Overlaps of pairs of maps of independent noise, `side` x `side`, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(count, side, side, generator=generator) for _ in range(2))
    return lens_profile(first, second, k, w, diverse=diverse)


@cache
def _noise_levels(side: int, k: int, w: int) -> tuple[float, ...]:
    found = unrelated(side, [k], [w], count=200)
    return tuple(float(getattr(found, field).double().mean()) for field in _FIELDS)


def noise_levels(side: int, k: int, w: int) -> dict[str, float]:
    """What unrelated maps score on average, in the paper's six columns."""
    return dict(zip(HEADINGS, _noise_levels(side, k, w), strict=True))


def above_noise(frame: pl.DataFrame, column: str, level: float) -> bool | None:
    """Whether the mean of a column is above that level, by its interval."""
    if column not in frame.columns:
        return None
    _, low, high = interval(frame[column].drop_nulls().drop_nans().to_numpy())
    return True if low > level else False if high < level else None


def _next_images(setting: Setting, scale: Scale) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps of images, and of the next ones under random signs, `(N, C, H, W)`."""
    count = min(_IMAGES[scale], setting.images)
    images = evenly(setting.data, count) if setting.ordered else data.load(setting.data)[:count]
    classifier = Classifier(
        zoo.load(setting.networks["natural"]), bounds=images.bounds, batch_size=ROWS if scale == "small" else "auto"
    )
    explainer = explainers.get("integrated_gradients", steps=32)
    inputs = images.inputs.to(classifier.device)
    targets = images.labels.to(classifier.device)
    region = LinfBall(setting.radius).around(inputs, classifier.bounds)
    moved = RandomSign().draw(region, setting.radius, 0)
    maps, others = (explainer(classifier, x, targets).abs() for x in (inputs, moved))
    return maps, others.roll(1, dims=0)


def _on_images(setting: Setting, count: int) -> LensProfile:
    """Overlaps of pairs of noise maps that are 0 wherever the same image is, as attributions times the input are."""
    mask = data.load(setting.data)[:count].inputs.amax(1) > 0
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(mask.shape, generator=generator) * mask for _ in range(2))
    return lens_profile(first, second, [100], [1])


def _rows(kind: str, name: str, profile: LensProfile) -> pl.DataFrame:
    columns = {}
    for field in _FIELDS:
        values = getattr(profile, field)
        columns[field] = values.reshape(len(values), -1)[:, 0].double().tolist()
    frame = pl.DataFrame({"sample": range(len(profile.intersection)), **columns})
    return frame.with_columns(maps=pl.lit(kind), size=pl.lit(name), status=pl.lit("ok"))


def _measured(scale: Scale) -> Iterator[pl.DataFrame]:
    for side, k, w in SIZES:
        yield _rows(_NOISE, size_name(side, k, w), unrelated(side, [k], [w], _PAIRS[scale]))
    for setting in (MNIST, FASHION):
        name = size_name(setting.side, 100, 1)
        yield _rows(f"{_NOISE} on {setting.title}", name, _on_images(setting, _IMAGES[scale]))
    known = zoo.names()
    for setting in (MNIST, FASHION, GTSRB):
        if setting.networks["natural"] in known:
            maps, others = _next_images(setting, scale)
            yield _rows(setting.title, size_name(setting.side, 100, 1), lens_profile(maps, others, [100], [1]))


#: the paper's naturally trained networks under its top-k attack, by the row that they are to be read from
_PAPER: Mapping[str, Sequence[float]] = {
    f"{_NOISE}, {size_name(128, 1000, 2)}": TABLE5_NATURAL["top-k"],
    f"{_NOISE}, {size_name(227, 1000, 3)}": TABLE6["top-k"],
    **{
        f"{setting.title}, {size_name(28, 100, 1)}": TABLE4[setting.title]["natural, top-k"]
        for setting in (MNIST, FASHION)
    },
}


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    tables = {"MNIST": TABLE4["MNIST"]["natural, top-k"], "Fashion-MNIST": TABLE4["Fashion-MNIST"]["natural, top-k"]}
    sizes = dict.fromkeys(tables, size_name(28, 100, 1))
    tables |= {"Flower": TABLE5_NATURAL["top-k"], "ImageNet": TABLE6["top-k"]}
    sizes |= {"Flower": size_name(128, 1000, 2), "ImageNet": size_name(227, 1000, 3)}
    for name, numbers in tables.items():
        noise = frame.filter(pl.col("maps") == _NOISE, pl.col("size") == sizes[name])
        for heading, field, value in zip(HEADINGS, _FIELDS, numbers, strict=True):
            _, low, high = interval(noise[field].to_numpy())
            clear = True if value >= high + _CLEARLY else False if value < low + _CLEARLY else None
            outcomes[f"{name} {heading.replace('1-', '')}"] = clear
    text = f"the paper's IG under its top-k attack is more alike than noise to noise, by {_CLEARLY} (ours)"
    return by_outcome(text, outcomes)


CHANCE_PART = Part(
    name="lens-chance",
    title="Unrelated maps: mean [95% interval]; in brackets the paper's IG under its top-k attack, natural training",
    study=None,
    columns=tuple(
        Column(
            heading.replace("1-LENS", "w-LENS"), field, paper={row: numbers[place] for row, numbers in _PAPER.items()}
        )
        for place, (heading, field) in enumerate(zip(HEADINGS, _FIELDS, strict=True))
    ),
    differs=lambda scale: (
        "the paper has no such table; 'noise' are pairs of maps of independent uniform numbers, 'noise on' a data set"
        " the same, set to 0 wherever the image is 0; the data sets are integrated gradients of test images of our"
        " natural networks with those of the next image under random signs"
    ),
    verdicts=_verdicts,
    rows=("maps", "size"),
    measure=lambda scale: pl.concat(_measured(scale)),
)
