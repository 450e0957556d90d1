"""What LIME and KernelSHAP share: copies of an input with coalitions of its features kept, and a linear fit to them.

The features of an input are its segments. A coalition is a set of features that keep their values; the others take the
baseline's. Which coalitions are looked at depends on the number of features alone, so the fit to the model's scores of
them is one matrix for all inputs with as many features: solved once, kept, and multiplied with each input's scores.
The rows of all inputs of a chunk go through the module as one flat batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers.base import Baseline, Explainer, baseline_of, check_baseline
from holdfast.gating import rows_of
from holdfast.model import ROW_ALIGNMENT, Classifier, padding_of
from holdfast.segments import How, LabelMap, Method, check_segments, segment, spatial_shape

Features = Method | Literal["pixels"] | int | Tensor
Output = Literal["probability", "logit"]
Segmentation = Literal["each", "fixed"]

# eigenvalues below this share of the largest are rounding: directions that no coalition tells anything about
_RANK_TOLERANCE = 1e-10
# numbers that are multiplied at once
_PRODUCTS = 1 << 22


@dataclass(frozen=True)
class Coalitions:
    """The coalitions for m features, and what makes attributions of their scores.

    Attributes:
        masks: which features each of R coalitions keeps, bool `(R, m)`; the first keeps all.
        fit: float64 `(m, R)`: attributions are `fit @ scores`.
    """

    masks: Tensor
    fit: Tensor

    def to(self, device: torch.device) -> Coalitions:
        """The same on another device."""
        return Coalitions(self.masks.to(device), self.fit.to(device))


@dataclass(frozen=True)
class CoalitionExplainer(Explainer):
    """An explainer whose attributions are linear in the scores of masked copies."""

    samples: int = 200
    segments: Features = "auto"
    baseline: Baseline = 0.0
    output: Output = "logit"
    seed: int = 0
    segmentation: Segmentation = "each"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fine = type(self.samples) is int and self.samples >= 2
        check(fine, "samples", "a whole number of at least 2", repr(self.samples))
        object.__setattr__(self, "segments", check_features(self.segments))
        check_baseline(self.baseline)
        check(self.output in get_args(Output), "output", f"one of {', '.join(get_args(Output))}", repr(self.output))
        check(type(self.seed) is int, "seed", "a whole number", repr(self.seed))
        ways = get_args(Segmentation)
        check(self.segmentation in ways, "segmentation", f"one of {', '.join(ways)}", repr(self.segmentation))

    @abstractmethod
    def coalitions(self, features: int, device: torch.device) -> Coalitions:
        """Those for inputs with that many features, always the same; at most `rows_per_input`."""

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with torch.no_grad():
            labels, counts = features_of(x.detach(), self.segments)
        return self._attribute(classifier, x, targets, labels, counts)

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """The undisturbed inputs' segments, int64 `(N, places)`, with `segmentation="fixed"`."""
        return features_of(inputs, self.segments)[0] if self.segmentation == "fixed" else None

    def attribute_copies(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._attribute(classifier, x, targets, fixed, (fixed.amax(1) + 1).tolist())

    def _attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            groups = {m: self.coalitions(m, x.device) for m in sorted(set(counts))}
            logits, owners, starts = _masked_logits(classifier, x.detach(), labels, counts, groups, self.baseline)
            at_x = logits[starts]
            classes = at_x.argmax(1) if targets is None else targets
            scores = _scores(logits, classes[owners], self.output)
            weights = scores.new_zeros(len(x), max(groups))
            for features, group in groups.items():
                members = torch.tensor([i for i, m in enumerate(counts) if m == features], device=x.device)
                own = torch.arange(len(group.masks), device=x.device)
                for part in torch.split(members, max(1, _PRODUCTS // group.fit.numel())):
                    block = scores[starts[part, None] + own]
                    # a matrix product's last bits depend on how many inputs there are, and on where they lie in memory
                    weights[part, :features] = (group.fit * block[:, None]).sum(2)
            maps = weights.gather(1, labels).reshape(len(x), *_with_channel(x))
            return maps.to(x.dtype).expand_as(x).contiguous(), at_x


def check_features(how: Features | LabelMap) -> How | Literal["pixels"]:
    """The same in a form that a frozen configuration can hold; raises `ArgumentError` for what is none."""
    if isinstance(how, str) and how == "pixels":
        return "pixels"
    try:
        return check_segments(how)
    except ArgumentError as error:
        raise ArgumentError("segments", f"'pixels', {error.expected}", error.got) from None


def features_of(x: Tensor, how: Features | LabelMap) -> tuple[Tensor, list[int]]:
    """Each place's feature, int64 `(N, places)`, and how many features each input has.

    >>> features_of(torch.zeros(1, 3, 2, 2), "pixels")
    (tensor([[0, 1, 2, 3]]), [4])
    """
    spatial = spatial_shape(x)
    if isinstance(how, LabelMap):
        # an explainer does not know where in the batch an input stands, so labels cannot differ between inputs
        check(how.shape == spatial, "segments", f"labels of shape {spatial}, the same for all inputs", how.shape)
    if isinstance(how, str) and how == "pixels":
        places = math.prod(spatial)
        check(places >= 2, "inputs", "at least 2 pixels to tell apart", places)
        return torch.arange(places, device=x.device).expand(len(x), places), [places] * len(x)
    cut = segment(x, how)
    return cut.labels.flatten(1), cut.count.tolist()


def _masked_logits(
    classifier: Classifier,
    x: Tensor,
    labels: Tensor,
    counts: list[int],
    groups: dict[int, Coalitions],
    baseline: Baseline,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits `(rows, K)` of all masked copies, one input after the other; whose they are; each input's first row."""
    # the masks of all groups, one below the other
    table = torch.cat([F.pad(group.masks, (0, max(groups) - m)) for m, group in groups.items()]).to(x.dtype)
    tops = dict(zip(groups, accumulate((len(g.masks) for g in groups.values()), initial=0), strict=False))
    sizes = [len(groups[m].masks) for m in counts]
    total = sum(sizes)
    rows, top = torch.tensor([sizes, [tops[m] for m in counts]], device=x.device)
    starts = rows.cumsum(0) - rows
    owners = torch.arange(len(x), device=x.device).repeat_interleave(rows, output_size=total)
    coalition = torch.arange(total, device=x.device) + (top - starts)[owners]
    other = baseline_of(baseline, x)
    spatial = _with_channel(x)
    budget = classifier.row_budget(x, max(sizes), "backward")  # the one that is halved where memory runs out
    size = budget - budget % ROW_ALIGNMENT if budget >= ROW_ALIGNMENT else budget
    found = []
    for start in range(0, total, size):
        whose, which = owners[start : start + size], coalition[start : start + size]
        used = len(whose)
        padding = padding_of(used, size)
        if padding:
            whose, which = (torch.cat([t, t[-1:].expand(padding)]) for t in (whose, which))
        # index_select copies whole rows, several times as fast as an index; so is lerp against where, and at 0 and 1 it
        # gives its ends to the bit
        kept = table.index_select(0, which).gather(1, labels.index_select(0, whose)).reshape(len(whose), *spatial)
        with rows_of(whose):
            found.append(classifier.forward(torch.lerp(other, x.index_select(0, whose), kept))[:used])
    return found[0] if len(found) == 1 else torch.cat(found), owners, starts


def _with_channel(x: Tensor) -> tuple[int, ...]:
    """The spatial shape, after an axis for channels where `x` has one."""
    return spatial_shape(x) if x.ndim == 2 else (1, *spatial_shape(x))


def _scores(logits: Tensor, classes: Tensor, output: Output) -> Tensor:
    """What is explained of each row, float64 `(rows,)`."""
    values = logits.double()
    if output == "probability":
        values = torch.softmax(values, 1)
    return values.gather(1, classes[:, None])[:, 0]


def least_squares(design: Tensor, weights: Tensor, ridge: float = 0.0) -> Tensor:
    """The matrix `(m, R)` from R values to `argmin_b sum over r of w_r (y_r - design_r b)^2 + ridge |b|^2`.

    Of several minima the smallest. Through the normal equations, on the smaller side; all float64.

    >>> design = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    >>> least_squares(design, torch.ones(3, dtype=torch.float64)) @ torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
    tensor([1.0000, 2.0000], dtype=torch.float64)
    """
    root = weights.sqrt()[:, None]
    rows = root * design
    wide = rows.shape[1] > rows.shape[0]
    gram = rows @ rows.T if wide else rows.T @ rows
    values, vectors = torch.linalg.eigh(gram)
    known = values > _RANK_TOLERANCE * values.amax()
    inverse: Tensor = (vectors * torch.where(known, 1 / (values + ridge), 0.0)) @ vectors.T
    return (rows.T @ inverse if wide else inverse @ rows.T) * root.T
