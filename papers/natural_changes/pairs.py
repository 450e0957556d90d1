"""The score of FASS: how alike the maps of an input and of a changed copy are, for pairs that keep the class.

Subramaniakuppusamy and Gajjar, "Feature Attribution Stability Suite: How Stable Are Post-Hoc Attributions?" (XAI4CV at
CVPR 2026, arXiv:2604.02532). For maps a and b of one class,

    FASS(a, b) = (SSIM(a, b) + Spearman(a, b) + Jaccard(a, b)) / 3

Jaccard is the number of positions that are among the k largest of both maps, divided by the number of those that are
among the k largest of one of them. Pairs whose class differs are left out, and the share of the others is reported.

The authors' notebooks make one value for each position, the mean absolute attribution over the channels. For SSIM they
scale each map to [0, 1]. This is done here, too. The paper states a window of 11 x 11 with equal weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from standfast import similarity
from standfast.errors import check, check_integer
from standfast.metrics.base import Cost, Metric
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.neighbourhoods import Neighbourhood, check_neighbourhood
from standfast.neighbourhoods.geometry import Rotation
from standfast.value_spec import Direction

PARTS = ("ssim", "spearman", "jaccard")


@dataclass(frozen=True)
class PairStabilityResult(Result):
    """The stability of each sample, over its pairs that keep the class.

    Attributes:
        ssim, spearman, jaccard: the parts of `value`, with maps moved back; NaN if no pair keeps the class. `(N,)`
        unaligned: FASS of the maps as they are; equal to `value` if the change moves nothing. `(N,)`
        unfiltered: FASS over all pairs, also those whose class changes, with maps moved back. `(N,)`
        kept: the share of pairs that keep the class, `(N,)`.
    """

    ssim: Tensor
    spearman: Tensor
    jaccard: Tensor
    unaligned: Tensor
    unfiltered: Tensor
    kept: Tensor


@dataclass(frozen=True)
class PairStability(Metric):
    """The mean of FASS over sampled pairs of an input and a changed copy that keep the class.

    Args:
        neighbourhood: the changes. One whose range is a single value, such as `Rotation((15, 15))`, makes one pair.
        samples: how many copies are drawn for each input.
        k: how many positions are compared by their overlap.
        window: side of the window of SSIM, odd.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> found = PairStability(standfast.LinfBall(0.0))(model, "saliency", digits.inputs)
    >>> found.value, found.kept
    (tensor([1., 1.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """

    name = "pair_stability"
    direction: ClassVar[Direction] = "higher"
    neighbourhood_option = "neighbourhood"

    neighbourhood: Neighbourhood
    samples: int = 1
    k: int = 100
    window: int = 11

    def __post_init__(self) -> None:
        check_neighbourhood(self.neighbourhood)
        check_integer(self.samples, "samples")
        check_integer(self.k, "k")
        similarity.get(f"ssim:window={self.window}")

    @classmethod
    def example(cls) -> PairStability:
        """A rotation by 15 degrees, as in the paper."""
        return cls(Rotation((15.0, 15.0)))

    def cost(self, classes: int | None = None) -> Cost:
        """The clean input and the copies."""
        return Cost(predictions=0, explanations=self.samples + 1)

    def evaluate(self, call: Call) -> PairStabilityResult:
        """Draw the copies, explain the class of the clean input at each, and compare."""
        inputs = call.inputs
        check(
            inputs.ndim == 4,
            "inputs",
            "images of shape (N, channels, height, width)",
            f"shape {tuple(inputs.shape)}",
        )
        region = self.neighbourhood.around(inputs, call.model.bounds)
        probe = Probe(call, region=region)
        probe.skip_constant(probe.reference)
        rows = probe.usable()
        sums: dict[str, Tensor] = {}
        if len(rows):
            own = region.select(rows)
            points = own.sample(self.samples, own.streams(call.seed))
            for draw in range(self.samples):  # one copy of every input at a time, for memory
                for name, found in self._score(probe, points[:, draw], rows).items():
                    sums[name] = sums.get(name, 0) + found

        def mean(name: str, over: str) -> Tensor:
            """The mean of a score over the pairs that are counted in `over`, NaN where there are none."""
            empty = torch.zeros(0, dtype=torch.float64, device=inputs.device)
            count = sums.get(over, empty)
            return probe.scatter_to_all(
                torch.where(count > 0, sums.get(name, empty) / count, torch.nan)
            )

        parts = {name: mean(name, "kept") for name in (*PARTS, "unaligned")}
        return PairStabilityResult(
            **probe.common_fields(self),
            value=torch.stack([parts[name] for name in PARTS]).mean(0),
            ssim=parts["ssim"],
            spearman=parts["spearman"],
            jaccard=parts["jaccard"],
            unaligned=parts["unaligned"],
            unfiltered=mean("unfiltered", "finite"),
            kept=mean("kept", "finite"),
        )

    def _score(self, probe: Probe, points: Tensor, rows: Tensor) -> Mapping[str, Tensor]:
        """The scores `(n,)` of one copy of each of n inputs, 0 for pairs that do not count."""
        seen = probe.query(points, rows, keep_maps=True, compare=False)
        assert seen.maps is not None
        assert seen.predicted is not None
        finite = torch.isfinite(seen.margin)
        kept = finite & (seen.predicted == probe.targets[rows])
        maps = seen.maps.nan_to_num()
        reference = _reduce(probe.reference[rows])
        raw = measure_pairs(reference, _reduce(maps), None, self.k, self.window)
        aligned, visible = raw, None
        if probe.region is not None and probe.region.aligns:
            moved, visible = probe.region.align_maps(maps, points, rows)
            aligned = measure_pairs(reference, _reduce(moved), visible[:, 0], self.k, self.window)
        found = {name: torch.where(kept, values, 0.0) for name, values in aligned.items()}
        found["unaligned"] = torch.where(kept, _average(raw), 0.0)
        found["unfiltered"] = torch.where(finite, _average(aligned), 0.0)
        return {**found, "kept": kept.double(), "finite": finite.double()}


def measure_pairs(
    a: Tensor, b: Tensor, seen: Tensor | None, k: int = 100, window: int = 11
) -> dict[str, Tensor]:
    """SSIM, Spearman's correlation and Jaccard's overlap of maps `(M, H, W)`, float64 `(M,)` each.

    Args:
        a, b: one value for each position, at least 0.
        seen: which positions are compared, bool `(M, H, W)`; None for all.
        k: how many of the largest positions overlap; at most as many as are seen.
        window: side of the window of SSIM.

    >>> a = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> {name: round(float(value), 6) for name, value in measure_pairs(a, 3 * a, None, k=10).items()}
    {'ssim': 1.0, 'spearman': 1.0, 'jaccard': 1.0}
    """
    if seen is None:
        seen = torch.ones_like(a, dtype=torch.bool)
    ssim, spearman, overlap = (
        similarity.get(name)
        for name in (f"ssim:window={window},data_range=1.0", "spearman", f"topk_intersection:k={k}")
    )
    one, other = (_scale(maps, seen)[:, None] for maps in (a, b))
    share = overlap.compare_masked(a.double(), b.double(), seen)
    return {
        "ssim": ssim.compare_masked(one, other, seen[:, None]).double(),
        "spearman": spearman.compare_masked(a, b, seen).double(),
        "jaccard": share / (2 - share),  # of sets of k, of which a share of them is in both
    }


def _average(parts: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([parts[name] for name in PARTS]).mean(0)


def _reduce(maps: Tensor) -> Tensor:
    """The mean absolute attribution `(M, H, W)` over the channels of maps `(M, C, H, W)`."""
    return maps.abs().mean(1)


def _scale(maps: Tensor, seen: Tensor) -> Tensor:
    """The seen values `(M, H, W)` of each map scaled to [0, 1]; constant maps become 0."""
    low = torch.where(seen, maps, torch.inf).amin((1, 2), keepdim=True)
    high = torch.where(seen, maps, -torch.inf).amax((1, 2), keepdim=True)
    width = torch.where(high > low, high - low, 1.0)
    return torch.where(seen, (maps - low) / width, 0.0)
