"""Localisation: how much of an explanation's positive relevance lies where the class is known to be.

Problem: for each sample it is known which positions M carry the class: the blocks of a synthetic series, the object of
a rendered scene. With R the relevance of the P positions, and R+ its positive part,

    mass accuracy = sum over M of R+ / sum over all positions of R+
    rank accuracy = the share of the |M| most relevant positions that lie in M
    pointing hit  = whether the most relevant position lies in M

Sources: Arras, Osman and Samek, "CLEVR-XAI: a benchmark dataset for the ground truth evaluation of neural network
explanations", Information Fusion 81, 2022, Sec. 3.3 (relevance mass and rank accuracy); Zhang, Bargal, Lin, Brandt,
Shen and Sclaroff, "Top-down neural attention by excitation backprop", IJCV 126, 2018 (pointing game; ours has no
tolerance around M).

The chance level is |M| / P for all three. It is the expected value for a map whose values at all positions are
exchangeable, such as a map of `random`. The values of smooth maps, and of maps that follow edges, are not exchangeable:
compare with `random` and `centre`.

A map is compared with the ground truth of the task, not with the model. Low values are the explainer's fault only if
the model uses M, so the model must be right, and far better than chance.

A sample without positive relevance is flagged and counts with 0. Of positions with equal relevance the first one comes
first. A region that is empty or covers all positions says nothing: its sample is `"degenerate"`.

Cost for each sample: one prediction with explanation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.metrics.base import Metric, metrics
from standfast.metrics.positions import Unit, adapt_explainer, compute_relevance
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.needs import Needs
from standfast.records import SampleOption, set_fields
from standfast.similarity.rows import row_sum
from standfast.value_spec import ValueSpec

# numbers in the relevance that is sorted at a time: 16 MB, and about four times that on the way
_ELEMENTS = 1 << 22
_EXPECTED = "the region of each sample, bool (or 0 and 1)"

#: a function from inputs `(N, ...)` to their regions; each row depends on that row alone
FindRegions = Callable[[Tensor], Tensor]


@dataclass(frozen=True, init=False)
class Regions(SampleOption):
    """The true regions as an option of a frozen configuration: compared, hashed and written down by their digest.

    Args:
        regions: `(N, ...)`, or `(1, ...)` for one region for all samples; bool, or only 0 and 1. Copied.

    Raises:
        ArgumentError: the tensor does not have this form.

    >>> a, b = (Regions(torch.tensor([[True, False, True]])) for _ in range(2))
    >>> a == b, a.shape, a.tensor.tolist()
    (True, (1, 3), [[True, False, True]])
    """

    def __init__(self, regions: Tensor) -> None:
        got = f"{regions.dtype} of shape {tuple(regions.shape)}"
        check(
            regions.ndim >= 2 and regions.numel() > 0 and not regions.is_complex(),
            "regions",
            _EXPECTED,
            got,
        )
        if regions.dtype != torch.bool:
            is_flag = (regions == 0) | (regions == 1)
            check(bool(is_flag.all()), "regions", _EXPECTED, got)
        super().__init__(regions.to(torch.bool))

    def of_samples(self, inputs: Tensor, rows: slice) -> Regions:
        """The regions of the samples `rows` of all `inputs`; the same object if there is one region for all.

        >>> regions = Regions(torch.tensor([[0, 0, 1], [1, 0, 0]]))
        >>> regions.of_samples(torch.zeros(2, 3), slice(1, 2)).tensor.tolist()
        [[True, False, False]]
        """
        expand_regions(self.tensor, inputs)
        if len(self.tensor) == 1:
            return self
        return Regions(self.tensor[rows])


def expand_regions(regions: Tensor, inputs: Tensor) -> Tensor:
    """Expand regions to the shape of `inputs` `(N, C, *spatial)`, as a view on their device.

    Args:
        regions: `(N, C, *spatial)`, or `(N, 1, *spatial)` or `(N, *spatial)` for the same region in all channels; with
            1 for N, one region for all samples.
        inputs: the samples.

    Raises:
        ArgumentError: regions of another shape.

    >>> expand_regions(torch.tensor([[True, False]]), torch.zeros(3, 4, 2)).shape
    torch.Size([3, 4, 2])
    """
    count, *sample_shape = inputs.shape
    spatial = sample_shape[1:] or sample_shape
    shapes = list(
        dict.fromkeys((tuple(sample_shape), (1, *spatial)[-len(sample_shape) :], tuple(spatial)))
    )
    words = " or ".join(str((count, *shape)) for shape in shapes)
    has_shape = tuple(regions.shape[1:]) in shapes
    fits = has_shape and len(regions) in (1, count)
    expected = f"shape {words}, or 1 for the {count} samples"
    check(fits, "regions", expected, tuple(regions.shape))
    regions = regions.to(inputs.device)
    if regions.ndim != inputs.ndim:
        regions = regions[:, None]
    return regions.expand(inputs.shape)


@dataclass(frozen=True)
class LocalisationResult(Result):
    """How much relevance lies inside the regions; `"degenerate"` where a region is empty or covers all positions.

    Attributes:
        value: the share of the positive relevance that lies inside, in [0, 1]; NaN for skipped samples. `(N,)`
        rank_accuracy: the share of the |M| most relevant positions that lies inside; NaN for skipped samples. `(N,)`
        pointing_hit: whether the most relevant position lies inside; False for skipped samples. `(N,)` bool
        chance: |M| / P, the expected value of all three for a map of exchangeable values. `(N,)`
        region_size: |M|, how many positions lie inside. `(N,)` int
        positive_share: the share of all positions that have positive relevance; NaN for skipped samples. `(N,)`
        no_positive: whether no position has; then all three are 0. `(N,)` bool
        trivial_region: whether the region is empty or covers all positions. `(N,)` bool
    """

    rank_accuracy: Tensor
    pointing_hit: Tensor
    chance: Tensor
    region_size: Tensor
    positive_share: Tensor
    no_positive: Tensor
    trivial_region: Tensor


@metrics.register("relevance_localisation")
@dataclass(frozen=True)
class RelevanceLocalisation(Metric):
    """How much of the positive relevance lies inside the true region (relevance mass accuracy, Arras et al. 2022).

    Args:
        regions: where the class is known to be. One of: the name of one of the data set's `extras` (in a study, and in
            `standfast.evaluate` of a data set); a tensor in the order of the samples, bool (or 0 and 1); a function
            from inputs to such a tensor, in which each row depends on that row alone. The tensor has the shape of the
            inputs `(N, C, ...)`, or `(N, ...)` or `(N, 1, ...)` for the same region in all channels; with 1 for N, one
            region for all samples.
        unit: what counts as one position: an `"entry"`, of any channel; or a `"pixel"` (a time step) with all its
            channels. The relevance of a pixel is the sum over its channels, and it lies inside if any channel does.
        absolute: use the relevance without its sign, for explainers whose sign has no meaning.

    Raises:
        ArgumentError: options out of range; in the call, regions that do not fit the inputs, or a name outside of a
            study or a data set.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:4]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = RelevanceLocalisation(regions=digits.inputs > 0.5)  # the digit's ink
    >>> result = metric(model, "integrated_gradients", digits.inputs)
    >>> bool((result.value > result.chance).all()), result.pointing_hit.tolist()
    (True, [True, True, True, True])
    """

    name = "relevance_localisation"
    needs = Needs(other="regions: where the class is known to lie")
    evidence = "plausible"
    controls = True
    values = ValueSpec(
        "Relevance mass accuracy: the share of positive relevance inside the true region",
        "share of positive relevance inside",
        "higher",
        decimals=3,
        caution="The model need not use the region.",
    )
    citation = "arras2022clevr"
    mask_option = "regions"

    regions: str | Tensor | FindRegions = "regions"
    unit: Unit = "entry"
    absolute: bool = False

    def __post_init__(self) -> None:
        # becomes a value that can be compared, hashed and written down
        if isinstance(self.regions, Tensor):
            set_fields(self, regions=Regions(self.regions))
        named = isinstance(self.regions, str) and bool(self.regions)
        valid = named or isinstance(self.regions, Regions) or callable(self.regions)
        words = "the name of an extra of the data set, a tensor of regions, or a function"
        check(valid, "regions", words, repr(self.regions))

    @classmethod
    def example(cls) -> RelevanceLocalisation:
        return cls(_mark_first_half)

    def evaluate(self, call: Call) -> LocalisationResult:
        """Compare the relevance of each sample with its region."""
        inside = self._find_inside(call.inputs)
        probe = Probe(replace(call, explainer=adapt_explainer(call.explainer, self.unit)))
        size = inside.sum(1)
        positions = inside.shape[1]
        trivial = (size == 0) | (size == positions)
        probe.skip(trivial)
        rows = probe.usable()
        parts = []
        for part in torch.split(rows, max(1, _ELEMENTS // positions)):
            maps = probe.maps[part]
            if self.absolute:
                maps = maps.abs()
            relevance = compute_relevance(maps, self.unit)
            parts.append(localise_relevance(relevance, inside[part]))
        measured: dict[str, Tensor] = {}
        for name in parts[0]:
            measured[name] = torch.cat([part[name] for part in parts])
        return LocalisationResult(
            **probe.common_fields(self, **measured),
            chance=size.double() / positions,
            region_size=size,
            trivial_region=trivial,
        )

    def _find_inside(self, inputs: Tensor) -> Tensor:
        """Which positions are inside, bool `(N, P)`."""
        if isinstance(self.regions, str):
            words = (
                "regions; a name has a meaning only in a study, or in `standfast.evaluate`"
                " of a data set with extras"
            )
            raise ArgumentError("regions", words, repr(self.regions))
        if isinstance(self.regions, Regions):
            regions = self.regions.tensor
        else:
            assert callable(self.regions)  # since `__post_init__`
            labels = self.regions(inputs.clone())
            check(
                isinstance(labels, Tensor),
                "regions",
                "a function that returns regions",
                type(labels).__name__,
            )
            regions = Regions(labels).tensor
        regions = expand_regions(regions, inputs)
        if self.unit == "pixel" and inputs.ndim > 2:
            regions = regions.any(1)
        return regions.flatten(1)


def localise_relevance(relevance: Tensor, inside: Tensor) -> dict[str, Tensor]:
    """Fields of `LocalisationResult`: mass accuracy (`value`), rank accuracy and pointing game, one for each row.

    Args:
        relevance: of each position, `(N, P)`.
        inside: which positions are inside, bool `(N, P)`.

    >>> found = localise_relevance(torch.tensor([[3.0, 1.0, -5.0, 0.0]]), torch.tensor([[True, False, True, False]]))
    >>> found["value"].tolist(), found["rank_accuracy"].tolist(), found["pointing_hit"].tolist()
    ([0.75], [0.5], [True])
    """
    positive = relevance.double().clamp(min=0)
    largest = positive.amax(1)
    none = largest == 0
    # divided by the row's largest value, so that the sum of tiny values is not 0, and that of huge ones not infinite
    positive = positive / torch.where(none, 1.0, largest)[:, None]
    mass_inside = row_sum(torch.where(inside, positive, 0.0))
    mass_of_all = torch.where(none, 1.0, row_sum(positive))
    mass = mass_inside / mass_of_all
    order = relevance.argsort(dim=1, descending=True, stable=True)
    hits = inside.gather(1, order)
    size = inside.sum(1)
    positions = torch.arange(relevance.shape[1], device=relevance.device)
    among = positions < size[:, None]
    # an empty region is degenerate anyway, and must not divide by 0
    hits_among = (hits & among).sum(1).double()
    rank = hits_among / size.clamp(min=1)
    return {
        "value": mass,
        "rank_accuracy": torch.where(none, 0.0, rank),
        "pointing_hit": hits[:, 0] & ~none,
        "positive_share": (relevance > 0).sum(1).double() / relevance.shape[1],
        "no_positive": none,
    }


def _mark_first_half(inputs: Tensor) -> Tensor:
    """The first half of the last axis."""
    length = inputs.shape[-1]
    positions = torch.arange(length, device=inputs.device)
    is_in_first_half = positions < length // 2
    return is_in_first_half.expand(inputs.shape)
