"""Attacks on locality-sensitive similarities: several objectives, with the same radius, steps and restarts.

    python benchmarks/lens/attack.py [--images 100] [--steps 100] [--restarts 3] [--out results/lens_attack.json]

It attacks integrated gradients of naturally trained LeNet-5s on MNIST and Fashion-MNIST, with the paper's radii, steps
and k. For each attack it prints the mean top-100 intersection, 1-LENS-recall and 1-LENS-precision after the attack,
with 90% bootstrap intervals, and the paired differences to `top_k`. It compares the registered attacks `top_k` and
`lens` with other objectives:

- `membership`: the paper's idea, with 1-LENS itself as objective. Soft membership in the top k is a sigmoid of the
  distance of a value to the k-th largest. It is summed over N_w(S_k) (recall) and, as its maximum in each window, over
  S_k (precision).
- `log_membership`: the same for logarithms, whose gradients extend further from the threshold.
- `plain`: mass within the windows, with the same weight for isolated positions as for others.
- `wide`: mass within a window of two.
- `all_t`: mass around all t positions that `top_k` attacks.
- `outside`: mass around S_k, relative to the k largest values outside instead of all mass outside.
- `root`: square roots of the mass, which give small values more weight.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import standfast
from standfast.metrics import AttributionAttack
from standfast.metrics.lens.attribution_objectives import GuidedObjective, Lens, TopK, mass_share

SIMILARITIES = ("topk_intersection:k=100", "lens_recall:k=100,w=1", "lens_precision:k=100,w=1")
# data, network, radius, positions that top_k attacks: the paper's App. C
SETTINGS = {
    "mnist": ("lenet5-mnist-plain", 0.3, 200),
    "fashion_mnist": ("lenet5-fashion-mnist", 0.1, 100),
}


@dataclass(frozen=True)
class Around(Lens):
    """The registered attack with another goal; points on the way are evaluated in the same way."""

    formula: Callable[[Tensor, Tensor, Tensor, int], Tensor] | None = None

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        assert self.formula is not None
        assert isinstance(self.k, int)
        return -self.formula(state[:, 0], state[:, 1], maps, self.k)


def make_membership(
    logarithm: bool, softness: float
) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """The formula of soft membership in the top k."""

    def compute(top: Tensor, near: Tensor, maps: Tensor, k: int) -> Tensor:
        threshold = maps.flatten(1).topk(k).values[:, -1].detach()[:, None, None]
        excess = torch.log((maps + 1e-12) / threshold) if logarithm else maps / threshold - 1
        soft = torch.sigmoid(excess / softness)
        covered = F.max_pool2d(soft[:, None], 3, stride=1, padding=1)[:, 0]
        return ((soft * near).flatten(1).sum(1) + (covered * top).flatten(1).sum(1)) / k

    return compute


def compute_outside_share(top: Tensor, near: Tensor, maps: Tensor, k: int) -> Tensor:
    within, beyond = ((maps * mask).flatten(1).topk(k).values.sum(1) for mask in (near, ~near))
    return within / (within + beyond).clamp(min=1e-30)


def compute_root_share(top: Tensor, near: Tensor, maps: Tensor, k: int) -> Tensor:
    return mass_share((maps + 1e-9).sqrt(), near)


@dataclass(frozen=True)
class AllT(Lens):
    """Mass around all t positions; points on the way are evaluated with the top k."""

    name: ClassVar[str] = "lens"
    t: int = 200

    def state(self, reference: Tensor) -> Tensor:
        return torch.cat(
            [super().state(reference), Lens(k=self.t, w=self.w).state(reference)[:, 1:]], dim=1
        )

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        return -mass_share(maps, state[:, 2])


@dataclass(frozen=True)
class Wide(AllT):
    """Mass within a wider window; points on the way are evaluated with the usual window."""

    def state(self, reference: Tensor) -> Tensor:
        return torch.cat(
            [Lens.state(self, reference), Lens(k=self.k, w=2).state(reference)[:, 1:]], dim=1
        )


def list_attacks(t: int) -> dict[str, GuidedObjective]:
    """All attacks by name, `top_k` first."""
    return {
        "top_k": TopK(t),
        "top_k, t = 100": TopK(100),
        "lens": Lens(100, 1),
        "plain": Lens(100, 1, alone=0.0),
        "membership": Around(100, 1, formula=make_membership(False, 0.5)),
        "log_membership": Around(100, 1, formula=make_membership(True, 1.0)),
        "wide": Wide(100, 1),
        "all_t": AllT(100, 1, t=t if t != 100 else 200),
        "outside": Around(100, 1, formula=compute_outside_share),
        "root": Around(100, 1, formula=compute_root_share),
    }


def compute_interval(
    values: np.ndarray[Any, Any], level: float = 0.9
) -> tuple[float, float, float]:
    """The mean and its percentile bootstrap interval over images."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (4000, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(values.mean()), float(low), float(high)


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--path-points", type=int, default=16, help="steps of integrated gradients")
    parser.add_argument("--data", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--only", nargs="*", help="only these attacks, and top_k")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    explainer = standfast.explainers.get("integrated_gradients", steps=options.path_points)
    found: dict[str, Any] = {}
    for data in options.data:
        network, radius, t = SETTINGS[data]
        model = standfast.Model(standfast.zoo.load(network), bounds=(0.0, 1.0))
        images = standfast.data.load(f"{data}:test")[: options.images]
        print(
            f"\n{data}, {network}, radius {radius}, {options.restarts} x {options.steps} steps of 0.01"
        )
        print(
            "| attack | "
            + " | ".join(SIMILARITIES)
            + " | recall less top_k's | precision less top_k's | s |"
        )
        print("| --- " * (len(SIMILARITIES) + 4) + "|")
        first: np.ndarray[Any, Any] | None = None
        for name, attack in list_attacks(t).items():
            if options.only and name not in (*options.only, "top_k"):
                continue
            start = time.perf_counter()
            metric = AttributionAttack(
                standfast.LinfBall(radius),
                attack,
                options.steps,
                0.01,
                options.restarts,
                similarities=SIMILARITIES,
                curve_k=(100,),
            )
            result = metric(model, explainer, images.inputs, images.labels)
            ok = np.array([status == "ok" for status in result.status])
            values = result.similarities.cpu().numpy()[ok].astype(float)
            first = values if first is None else first
            numbers = [compute_interval(column) for column in values.T]
            paired = [compute_interval(column) for column in (values - first).T[1:]]
            found.setdefault(data, {})[name] = {
                "numbers": numbers,
                "paired": paired,
                "images": int(ok.sum()),
            }
            cells = [
                f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in (*numbers, *paired)
            ]
            print(
                f"| {name} | " + " | ".join(cells) + f" | {time.perf_counter() - start:.0f} |",
                flush=True,
            )
        print(f"{found[data]['top_k']['images']} images that the network gets right")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
