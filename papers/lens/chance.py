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

from collections.abc import Iterator

import polars as pl
import torch
from torch import Tensor

from papers.base import Column, Scale, load_evenly
from papers.lens.parts import ATTACKED, SIX, make_part, quote_paper
from papers.reading import Outcomes, Verdict, group_by_outcome, mean_interval
from standfast import data, explainers, zoo
from standfast.metrics.lens.attribution_objectives import RandomSign
from standfast.model import Model
from standfast.neighbourhoods import LinfBall
from standfast.similarity import LensProfile, lens_profile

#: side, k and w of the paper's tables and survey, and of our tables with k = 2% and w = 3 in place of ImageNet's
SIZES = (
    (28, 100, 1),
    (28, 15, 3),
    (32, 100, 1),
    (32, 20, 3),
    (128, 1000, 2),
    (128, 1000, 3),
    (227, 1000, 3),
)
PAIRS: dict[Scale, int] = {"small": 60, "full": 1000}
IMAGES: dict[Scale, int] = {"small": 100, "full": 860}
#: data set, network and radius of the signs, by the title of the data set
NETWORKS = {
    "MNIST": ("mnist:test", "lenet5-mnist-plain", 0.3),
    "Fashion-MNIST": ("fashion_mnist:test", "lenet5-fashion-mnist", 0.1),
    "GTSRB": ("gtsrb:test", "cnn-gtsrb", 8 / 255),
}
_FIELDS = (
    "intersection",
    "recall",
    "precision",
    "intersection_diverse",
    "recall_diverse",
    "precision_diverse",
)
_CLEARLY = 0.05
#: the sizes of the maps in the tables with the paper's numbers
_SIZES = {
    "MNIST": "28 x 28 k=100 w=1",
    "Fashion-MNIST": "28 x 28 k=100 w=1",
    "Flower": "128 x 128 k=1000 w=2",
    "ImageNet": "227 x 227 k=1000 w=3",
}


def compare_noise(masks: Tensor, k: int, w: int) -> LensProfile:
    """Overlaps of pairs of maps of independent noise, which are 0 where the masks `(N, H, W)` are.

    Noise on an image resembles the product of an attribution and the input. Every call uses the same numbers.
    """
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(masks.shape, generator=generator) * masks for _ in range(2))
    return lens_profile(first, second, [k], [w])


def explain_next_images(title: str, scale: Scale) -> tuple[Tensor, Tensor]:
    """Maps of images, and of the next images under random signs, `(N, C, H, W)`."""
    source, network, radius = NETWORKS[title]
    images = (
        load_evenly(source, IMAGES[scale])
        if title == "GTSRB"
        else data.load(source)[: IMAGES[scale]]
    )
    model = Model(
        zoo.load(network), bounds=images.bounds, batch_size=256 if scale == "small" else "auto"
    )
    explainer = explainers.get("integrated_gradients", steps=32)
    inputs, targets = images.inputs.to(model.device), images.labels.to(model.device)
    perturbed = RandomSign().draw(LinfBall(radius).around(inputs, model.bounds), 0)
    maps, others = (explainer(model, x, targets).abs() for x in (inputs, perturbed))
    return maps, others.roll(1, dims=0)


def _measure(scale: Scale) -> Iterator[pl.DataFrame]:
    for side, k, w in SIZES:
        noise = compare_noise(torch.ones(PAIRS[scale], side, side), k, w)
        yield _make_rows("noise", f"{side} x {side} k={k} w={w}", noise)
    for title in ("MNIST", "Fashion-MNIST"):
        images = data.load(NETWORKS[title][0])[: IMAGES[scale]].inputs.amax(1)
        yield _make_rows(f"noise on {title}", _SIZES[title], compare_noise(images > 0, 100, 1))
    for title in NETWORKS:
        maps, others = explain_next_images(title, scale)
        side = maps.shape[-1]
        yield _make_rows(
            title, f"{side} x {side} k=100 w=1", lens_profile(maps, others, [100], [1])
        )


def _make_rows(maps: str, size: str, profile: LensProfile) -> pl.DataFrame:
    columns = {field: getattr(profile, field).flatten().double().tolist() for field in _FIELDS}
    return pl.DataFrame(columns).with_columns(
        maps=pl.lit(maps), size=pl.lit(size), status=pl.lit("ok")
    )


def _judge_noise(frame: pl.DataFrame) -> list[Verdict]:
    outcomes: Outcomes = {}
    for title, size in _SIZES.items():
        noise = frame.filter(pl.col("maps") == "noise", pl.col("size") == size)
        for heading, field in zip(SIX, _FIELDS, strict=True):
            paper = float(ATTACKED[heading][f"{title}, natural, top-k"])
            _, low, high = mean_interval(noise[field].to_numpy())
            clearly = (
                True if paper >= high + _CLEARLY else False if paper < low + _CLEARLY else None
            )
            outcomes[f"{title} {heading.replace('1-', '')}"] = clearly
    text = f"the paper's IG under its top-k attack is at least {_CLEARLY} more similar than two maps of noise (ours)"
    return group_by_outcome(text, outcomes)


_ROWS = {
    f"{'noise' if title in ('Flower', 'ImageNet') else title}, {size}": f"{title}, natural, top-k"
    for title, size in _SIZES.items()
}
_NUMBERS = quote_paper(ATTACKED, _ROWS)

CHANCE_PART = make_part(
    "chance",
    "Unrelated maps: mean [95% interval]; beside it the paper's IG under its top-k attack, natural training",
    tuple(
        Column(heading.replace("1-LENS", "w-LENS"), field, paper=_NUMBERS[heading])
        for heading, field in zip(SIX, _FIELDS, strict=True)
    ),
    verdicts=_judge_noise,
    rows=("maps", "size"),
    study=None,
    measure=lambda scale: pl.concat(_measure(scale)),
)
