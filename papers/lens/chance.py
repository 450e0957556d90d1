"""The similarities of LENS's tables for unrelated maps: their chance level.

The windows around k pixels cover a large part of a map: 100 windows of 3 x 3 cover two thirds of 28 x 28 pixels, and
windows of diverse pixels cover more. So a locality-sensitive similarity must be compared with the value for unrelated
maps, which the paper does not give. The tables compare each pair with its own chance level
(`standfast.similarity.chance`). Here are the levels for three kinds of unrelated maps:

- independent noise, for the sizes of all tables of the paper;
- for our networks, the integrated gradients of an image, with those of the next image under random signs;
- noise on the same image: both maps are 0 where the image is 0, and have nothing else in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import torch

from papers.base import Column, Part, Scale, load_evenly
from papers.lens.paper import HEADINGS, TABLE4, TABLE5_NATURAL, TABLE6
from papers.lens.parts import FASHION, GTSRB, MNIST, ROWS, Setting
from papers.reading import Outcomes, Verdict, group_by_outcome, mean_interval
from standfast import data, explainers, zoo
from standfast.metrics.lens.attribution_objectives import RandomSign
from standfast.model import Model
from standfast.neighbourhoods import LinfBall
from standfast.similarity import LensProfile, lens_profile

#: side, k and w of the paper's tables and survey, and of our tables with k = 2% and w = 3 in place of ImageNet's
SIZES = ((28, 100, 1), (28, 15, 3), (32, 100, 1), (32, 20, 3), (128, 1000, 2), (128, 1000, 3), (227, 1000, 3))
_PAIRS: dict[Scale, int] = {"small": 60, "full": 1000}
_IMAGES: dict[Scale, int] = {"small": 100, "full": 860}
_FIELDS = ("intersection", "recall", "precision", "intersection_diverse", "recall_diverse", "precision_diverse")
_NOISE = "noise"
_CLEARLY = 0.05


def name_size(side: int, k: int, w: int) -> str:
    """The name of a row of the table."""
    return f"{side} x {side} k={k} w={w}"


def compare_unrelated_maps(
    side: int, k: Sequence[int], w: Sequence[int], count: int = 50, diverse: bool = True
) -> LensProfile:
    """Overlaps of pairs of maps of independent noise, `side` x `side`; every call uses the same maps."""
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(count, side, side, generator=generator) for _ in range(2))
    return lens_profile(first, second, k, w, diverse=diverse)


def _explain_next_images(setting: Setting, scale: Scale) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps of images, and of the next images under random signs, `(N, C, H, W)`."""
    count = min(_IMAGES[scale], setting.images)
    images = load_evenly(setting.data, count) if setting.ordered else data.load(setting.data)[:count]
    model = Model(
        zoo.load(setting.networks["natural"]), bounds=images.bounds, batch_size=ROWS if scale == "small" else "auto"
    )
    explainer = explainers.get("integrated_gradients", steps=32)
    inputs = images.inputs.to(model.device)
    targets = images.labels.to(model.device)
    region = LinfBall(setting.radius).around(inputs, model.bounds)
    perturbed = RandomSign().draw(region, 0)
    maps, others = (explainer(model, x, targets).abs() for x in (inputs, perturbed))
    return maps, others.roll(1, dims=0)


def _compare_noise_on_images(setting: Setting, count: int) -> LensProfile:
    """Overlaps of pairs of noise maps that are 0 where the image is 0, like products of attributions and inputs."""
    mask = data.load(setting.data)[:count].inputs.amax(1) > 0
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(mask.shape, generator=generator) * mask for _ in range(2))
    return lens_profile(first, second, [100], [1])


def _make_rows(kind: str, name: str, profile: LensProfile) -> pl.DataFrame:
    columns = {}
    for field in _FIELDS:
        values = getattr(profile, field)
        columns[field] = values.reshape(len(values), -1)[:, 0].double().tolist()
    frame = pl.DataFrame({"sample": range(len(profile.intersection)), **columns})
    return frame.with_columns(maps=pl.lit(kind), size=pl.lit(name), status=pl.lit("ok"))


def _measure(scale: Scale) -> Iterator[pl.DataFrame]:
    for side, k, w in SIZES:
        yield _make_rows(_NOISE, name_size(side, k, w), compare_unrelated_maps(side, [k], [w], _PAIRS[scale]))
    for setting in (MNIST, FASHION):
        name = name_size(setting.side, 100, 1)
        yield _make_rows(f"{_NOISE} on {setting.title}", name, _compare_noise_on_images(setting, _IMAGES[scale]))
    known = zoo.names()
    for setting in (MNIST, FASHION, GTSRB):
        if setting.networks["natural"] in known:
            maps, others = _explain_next_images(setting, scale)
            yield _make_rows(setting.title, name_size(setting.side, 100, 1), lens_profile(maps, others, [100], [1]))


#: the paper's numbers for naturally trained networks under the top-k attack, by the row to compare them with
_PAPER: Mapping[str, Sequence[float]] = {
    f"{_NOISE}, {name_size(128, 1000, 2)}": TABLE5_NATURAL["top-k"],
    f"{_NOISE}, {name_size(227, 1000, 3)}": TABLE6["top-k"],
    **{
        f"{setting.title}, {name_size(28, 100, 1)}": TABLE4[setting.title]["natural, top-k"]
        for setting in (MNIST, FASHION)
    },
}


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    tables = {"MNIST": TABLE4["MNIST"]["natural, top-k"], "Fashion-MNIST": TABLE4["Fashion-MNIST"]["natural, top-k"]}
    sizes = dict.fromkeys(tables, name_size(28, 100, 1))
    tables |= {"Flower": TABLE5_NATURAL["top-k"], "ImageNet": TABLE6["top-k"]}
    sizes |= {"Flower": name_size(128, 1000, 2), "ImageNet": name_size(227, 1000, 3)}
    for name, numbers in tables.items():
        noise = frame.filter(pl.col("maps") == _NOISE, pl.col("size") == sizes[name])
        for heading, field, value in zip(HEADINGS, _FIELDS, numbers, strict=True):
            _, low, high = mean_interval(noise[field].to_numpy())
            clearly_above = True if value >= high + _CLEARLY else False if value < low + _CLEARLY else None
            outcomes[f"{name} {heading.replace('1-', '')}"] = clearly_above
    text = f"the paper's IG under its top-k attack is at least {_CLEARLY} more similar than two maps of noise (ours)"
    return group_by_outcome(text, outcomes)


CHANCE_PART = Part(
    name="lens-chance",
    title="Unrelated maps: mean [95% interval]; in brackets the paper's IG under its top-k attack, natural training",
    study=None,
    columns=tuple(
        Column(heading.replace("1-LENS", "w-LENS"), field, paper={row: numbers[i] for row, numbers in _PAPER.items()})
        for i, (heading, field) in enumerate(zip(HEADINGS, _FIELDS, strict=True))
    ),
    departures=lambda scale: (
        "the paper has no such table; 'noise' is pairs of maps of independent uniform numbers; 'noise on' a data set is"
        " the same, set to 0 where the image is 0; the rows of data sets are integrated gradients of test images by our"
        " natural networks, with those of the next image under random signs"
    ),
    verdicts=_verdicts,
    rows=("maps", "size"),
    measure=lambda scale: pl.concat(_measure(scale)),
)
