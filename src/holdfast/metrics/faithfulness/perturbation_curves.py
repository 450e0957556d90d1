"""Replace parts of an input in the order of an explanation, and watch the class's score.

Shared by AOPC and the log-odds score: regions, their order, what stands where they were, and the curve of copies with
ever more of them gone. Nothing here depends on who else is in a batch: ties and noise come from keys, one of each
sample, made of the sample's content and the seed. So they do not depend on the explainer either, and differences
between explainers are differences of paired draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.metrics.probe import Probe
from holdfast.segments import How, Segments, segment, spatial_shape
from holdfast.tensors import content_keys, hashed_uniform, mix64

Score = Literal["probability", "logit"]

#: cells to the shorter side of an image, where nobody says how wide they are; 9x9 pixels of 224x224, as published
CELLS_TO_A_SIDE = 25
_ELEMENTS = 1 << 22  # numbers in the noise that is held at once: 16 MB, and some eight times that while it is drawn
_COPIES = 1 << 20  # perturbed copies that are numbered at once; far fewer are made at once
_SALT = 0xA09C


def sample_keys(inputs: Tensor, seed: int) -> Tensor:
    """A key for each of `inputs` `(N, ...)`, int64 `(N,)`: with it come a sample's ties and noise.

    Equal keys of two results say that both saw the same noise.
    """
    return content_keys(inputs, seed ^ _SALT)


def cells(inputs: Tensor, side: int | None) -> Segments:
    """Non-overlapping cells `side` places wide along every axis, the last ones narrower where it does not divide.

    Args:
        inputs: `(N, ...)`.
        side: in pixels or time steps; None for a 25th of the shorter side, at least 2. Flat features stand alone then.

    Raises:
        ArgumentError: fewer than two cells.

    >>> cells(torch.zeros(1, 1, 3, 4), 2).labels[0].tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]
    >>> cells(torch.zeros(1, 3, 224, 224), None).width, cells(torch.zeros(1, 1, 28, 28), None).width
    (625, 196)
    """
    spatial = spatial_shape(inputs)
    if side is None:
        side = 1 if inputs.ndim == 2 else max(2, round(min(spatial) / CELLS_TO_A_SIDE))
    labels = torch.zeros(spatial, dtype=torch.int64, device=inputs.device)
    total = 1
    for axis, length in enumerate(spatial):
        along = -(-length // side)
        place = torch.arange(length, device=inputs.device) // side
        labels = labels * along + place.reshape([-1 if a == axis else 1 for a in range(len(spatial))])
        total *= along
    check(total >= 2, "region", f"cells small enough that inputs of shape {spatial} have two of them", side)
    count = torch.full((len(inputs),), total, device=inputs.device)
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(labels.expand(len(inputs), *spatial), count, total, fallback)


def regions_of(inputs: Tensor, region: int | None, segments: How | None) -> Segments:
    """The regions of `inputs`: `segments` if they are given, else `cells`."""
    return cells(inputs, region) if segments is None else segment(inputs, segments)


def region_scores(maps: Tensor, cut: Segments) -> Tensor:
    """The sum of `maps` `(N, ...)` over each region, channels summed; float32 `(N, width)`, NaN for no region.

    Summed in float64 and rounded: what would be a tie but for the order of summation is one.
    """
    places = by_place(maps)
    sums = places.new_zeros(len(maps), cut.width).scatter_add_(1, cut.labels.flatten(1), places)
    there = torch.arange(cut.width, device=maps.device) < cut.count[:, None]
    return torch.where(there, sums, torch.nan).float()


def by_place(maps: Tensor) -> Tensor:
    """Maps `(N, ...)` with the channels summed, float64 `(N, places)`."""
    flat = maps.double().flatten(1)
    return flat if maps.ndim == 2 else flat.reshape(len(maps), maps.shape[1], -1).sum(1)


def ranks(scores: Tensor, keys: Tensor) -> Tensor:
    """The place of each score in its row, from 0 for the largest; ties at random, by the row's key; NaN comes last.

    Args:
        scores: `(N, m)`.
        keys: int64 `(N,)`.

    Returns:
        int64 `(N, m)`.

    >>> ranks(torch.tensor([[0.1, 0.3, float("nan"), 0.2]]), torch.tensor([5]))
    tensor([[2, 0, 3, 1]])
    """
    scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    shuffled = hashed_uniform(mix64(keys), scores.shape[1]).argsort(dim=1, stable=True)
    order = shuffled.gather(1, scores.gather(1, shuffled).argsort(dim=1, descending=True, stable=True))
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)


def uniform_noise(inputs: Tensor, keys: Tensor, first: int, draws: int, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Draws number `first` and following for `inputs` `(N, ...)`, uniform within the bounds; `(N, draws, ...)`."""
    numbers = torch.arange(first + 1, first + draws + 1, device=keys.device)
    each = mix64(keys[:, None] ^ mix64(numbers))
    lower, upper = bounds
    noise = hashed_uniform(each.flatten(), inputs[0].numel()).to(inputs.dtype)
    return lower + (upper - lower) * noise.reshape(len(inputs), draws, *inputs.shape[1:])


def scores_of(logits: Tensor, classes: Tensor, score: Score) -> Tensor:
    """The classes' probabilities or logits, float64 `(M,)`; NaN where a logit is not finite."""
    logits = logits.double()
    values = (logits if score == "logit" else logits.softmax(1)).gather(1, classes[:, None])[:, 0]
    return torch.where(torch.isfinite(logits).all(1), values, torch.nan)


class PerturbationCurve:
    """Scores of copies of samples with their first regions replaced. For use inside `classifier.session()`.

    Args:
        probe: has the samples' targets; evaluations and what is not finite are counted there.
        inputs: the samples, `(N, ...)`.
        cut: their regions.
        order: the rank of each region, `(N, width)`.
        steps: how many regions are replaced in the end, `(N,)`.
        keys: of the noise, `(N,)`.
        baseline: what stands where regions were; None for uniform noise within the bounds.
        score: of the target's class.
    """

    def __init__(
        self,
        probe: Probe,
        inputs: Tensor,
        cut: Segments,
        order: Tensor,
        steps: Tensor,
        keys: Tensor,
        baseline: Tensor | None,
        score: Score,
    ) -> None:
        self.probe, self.inputs, self.cut, self.order = probe, inputs, cut, order
        self.steps, self.keys, self.baseline, self.score = steps, keys, baseline, score

    def scores(self, rows: Tensor, draws: int, most: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Groups of the samples `rows` with their scores after 1 to `most` replacements, float64 `(n, draws, most)`.

        NaN after a sample's own last step, and where the model was not finite.
        """
        size = self.inputs[0].numel()
        group = max(1, min(_ELEMENTS // (draws * size), _COPIES // (draws * most)))
        block = max(1, _ELEMENTS // size)
        for part in torch.split(rows, group) if len(rows) else ():
            blocks = [self._block(part, first, min(block, draws - first), most) for first in range(0, draws, block)]
            yield part, torch.cat(blocks, 1)

    def _block(self, part: Tensor, first: int, draws: int, most: int) -> Tensor:
        """Draws number `first` and following of the samples `part`, all copies in one stream of large batches."""
        inputs, classifier = self.inputs[part], self.probe.classifier
        place = self.order[part].gather(1, self.cut.labels[part].flatten(1))  # when each place goes
        targets, steps = self.probe.targets[part], self.steps[part]
        noise = None
        if self.baseline is None:
            noise = uniform_noise(inputs, self.keys[part], first, draws, classifier.bounds)
        spatial = self.cut.labels.shape[1:]
        channel = inputs.ndim - 1 > len(spatial)

        def look(_: Tensor, whose: Tensor, draw: Tensor, step: Tensor) -> tuple[Tensor]:
            gone = (place[whose] < step[:, None]).reshape(-1, *((1,) if channel else ()), *spatial)
            x = torch.where(gone, self.baseline if noise is None else noise[whose, draw], inputs[whose])  # type: ignore[arg-type]
            return (scores_of(classifier.forward(x), targets[whose], self.score),)

        wanted = (torch.arange(1, most + 1, device=part.device) <= steps[:, None])[:, None].expand(-1, draws, -1)
        whose, draw, step = wanted.nonzero().unbind(1)
        found = torch.full(wanted.shape, torch.nan, dtype=torch.float64, device=part.device)
        like = inputs[:1].expand(len(whose), *inputs.shape[1:])  # for its shape; it takes no memory
        with torch.no_grad():
            (values,) = classifier.map_rows(look, like, whose, draw, step + 1)
        found[wanted] = values
        self.probe.count(part[whose], torch.zeros_like(values, dtype=torch.bool), values.isnan())
        return found
