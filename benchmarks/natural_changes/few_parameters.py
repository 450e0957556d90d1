"""Worst cases and probabilities over one, two and three parameters, against dense grids that serve as the truth.

    python benchmarks/natural_changes/few_parameters.py [--images 20] [--evaluations 200] [--cache FOLDER]
        [--network lenet5-mnist] [PART ...]

The parts are `searches` (rotation: every registered search, and `scipy.optimize.direct`), `more` (two and three
parameters), `probability`, `coverage` and `waves` (sums of waves instead of a network); without a name all of them. The
images are bundled digits, with a margin of two pixels for networks of 32 x 32 pixels. `coverage` is how often an
interval of subset simulation holds, over many seeds: the network is replaced by straight lines between the points of
the grid, which makes a run cheap.

The gap of a search is what is missing from its similarity to the smallest one on the grid, divided by the range of
similarities on the grid; both among the points that keep the class. It is negative where the search is below the grid.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

import standfast
from standfast.algorithms.searches.base import Outcome, differentiate_outcome, searches
from standfast.metrics import MisinterpretationProbability, WorstCase
from standfast.metrics.probe import Call, Probe
from standfast.neighbourhoods import (
    Brightness,
    Compose,
    LinfBall,
    Rotation,
    Transformation,
    Translation,
)

EXPLAINERS = ("saliency", "input_x_gradient", "gradcam")
ONE = {"rotation by 10 degrees": (Rotation(10), 10_000)}
MORE = {
    "translation by 2 pixels": (Translation(2), 100),
    "rotation by 10 degrees, then brightness by 0.2": (
        Compose([Rotation(10), Brightness(0.2)]),
        100,
    ),
    "translation by 2 pixels, then rotation by 10 degrees": (
        Compose([Translation(2), Rotation(10)]),
        22,
    ),
}


@dataclass(frozen=True)
class Truth:
    """Similarities and margins `(N, G)` of N images on a grid of G points."""

    similarity: Tensor
    margin: Tensor

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest similarity among the points that keep the class, `(N,)` each."""
        kept = self.margin < 0
        lowest = torch.where(kept, self.similarity, torch.inf).amin(1)
        return lowest, torch.where(kept, self.similarity, -torch.inf).amax(1)


class Bench:
    """The network, the images, and the grids, which are kept in files."""

    def __init__(self, images: int, cache: Path | None, network: str = "lenet5-mnist") -> None:
        self.inputs = standfast.data.bundled("digits")[:images].inputs
        if "tanh" in network:
            self.inputs = torch.nn.functional.pad(self.inputs, (2, 2, 2, 2))
        self.model = standfast.Model(standfast.zoo.load(network), bounds=(0.0, 1.0))
        self.cache = None if cache is None else cache / network

    def make_probe(self, neighbourhood: Transformation, explainer: str) -> Probe:
        region = neighbourhood.around(self.inputs, self.model.bounds)
        own = standfast.explainers.get(explainer)
        return Probe(
            Call(self.model, own, self.inputs),
            "pearson",
            absolute=True,
            explain="predicted",
            region=region,
        )

    def measure_grid(
        self, label: str, neighbourhood: Transformation, explainer: str, side: int
    ) -> Truth:
        file = None
        if self.cache is not None:
            file = self.cache / f"{label}-{explainer}-{side}-{len(self.inputs)}.pt".replace(
                " ", "_"
            ).replace(":", "_")
            if file.exists():
                return Truth(*torch.load(file, weights_only=True))
        with self.model.session():
            probe = self.make_probe(neighbourhood, explainer)
            assert probe.region is not None
            lines = [
                torch.linspace(float(low), float(high), side)
                for low, high in zip(*self.box(probe), strict=True)
            ]
            points = torch.cartesian_prod(*lines).reshape(-1, len(lines))
            seen = [
                probe.query(points, torch.full((len(points),), row))
                for row in range(len(self.inputs))
            ]
        found = (
            torch.stack([one.similarity for one in seen]),
            torch.stack([one.margin for one in seen]),
        )
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save(found, file)
        return Truth(*found)

    def box(self, probe: Probe) -> tuple[Tensor, Tensor]:
        """The ranges of the parameters, which are the same for all images."""
        assert probe.region is not None
        return probe.region.lower[0], probe.region.upper[0]

    def run_direct(self, neighbourhood: Transformation, explainer: str, evaluations: int) -> Tensor:
        """The smallest similarities that scipy's DIRECT finds, `(N,)`; a point that leaves the class costs 2 and J."""
        best = torch.full((len(self.inputs),), torch.nan)
        with self.model.session():
            probe = self.make_probe(neighbourhood, explainer)
            bounds = list(zip(*(end.tolist() for end in self.box(probe)), strict=True))
            for row in range(len(self.inputs)):
                queries: list[float] = []

                def query(
                    point: np.ndarray, row: int = row, queries: list[float] = queries
                ) -> float:
                    if len(queries) >= evaluations:
                        return 10.0
                    seen = probe.query(
                        torch.tensor(point, dtype=torch.float32)[None], torch.tensor([row])
                    )
                    margin = float(seen.margin)
                    queries.append(float(seen.similarity) if margin < 0 else 2.0 + margin)
                    return queries[-1]

                scipy.optimize.direct(query, bounds, maxfun=evaluations, locally_biased=True)
                best[row] = min(queries)
        return best


def summarise(label: str, truth: Truth, found: Tensor, stated: Tensor | None = None) -> str:
    lowest, highest = truth.ends
    gap = (found - lowest) / (highest - lowest)
    line = f"| {label} | {100 * gap.median():.3f} | {100 * gap.max():.2f} | {int((gap < 0.01).sum())} of {len(gap)} |"
    if stated is None or not bool(stated.isfinite().any()):
        return line + " |  |"
    own = stated / (highest - lowest)
    covered = int((gap <= own + 1e-6).sum())
    return f"{line} {100 * own.median():.2f} ({100 * own.max():.1f}) | {covered} of {len(gap)} |"


def compare_searches(
    bench: Bench,
    evaluations: int,
    cases: dict[str, tuple[Transformation, int]],
    names: list[str],
    explainers: list[str],
) -> None:
    """The searches, and DIRECT, in tables for Markdown."""
    budget = WorstCase.plan_budget(evaluations)
    for label, (neighbourhood, side) in cases.items():
        for explainer in explainers:
            truth = bench.measure_grid(label, neighbourhood, explainer, side)
            print(
                f"\n{label}, {explainer}; range of the similarity: median {rangeof(truth):.3f}\n",
                flush=True,
            )
            print(
                "| search | gap, median % | largest % | below 1% | stated gap, median (largest) % | covers |"
            )
            print("| --- | --- | --- | --- | --- | --- |", flush=True)
            for name in names:
                worst = WorstCase(neighbourhood, search=name, budget=budget)
                found = worst(
                    bench.model, explainer, bench.inputs, generator=torch.Generator().manual_seed(0)
                )
                print(summarise(name, truth, found.similarity, found.gap), flush=True)
            direct = bench.run_direct(neighbourhood, explainer, evaluations)
            print(summarise("scipy DIRECT", truth, direct), flush=True)


def rangeof(truth: Truth) -> float:
    lowest, highest = truth.ends
    return float((highest - lowest).median())


def compare_probabilities(bench: Bench, seeds: int, explainers: list[str]) -> None:
    """How often the interval of ln P contains the grid's value, for events with P of about 0.3, 0.03 and 0.003."""
    label, (neighbourhood, side) = next(iter(ONE.items()))
    options = {
        "monte_carlo": {"method": "monte_carlo", "samples": 1000},
        "subset": {"particles": 50, "first": 16.0, "moves": 2},
    }
    print(
        "\n| explainer | P | method | within the interval | censored | evaluations |"
        "\n| --- | --- | --- | --- | --- | --- |"
    )
    for explainer in explainers:
        truth = bench.measure_grid(label, neighbourhood, explainer, side)
        for share in (0.3, 0.03, 0.003):
            # one threshold for an image each would be a metric each: the median image sets it
            kept = truth.margin < 0
            threshold = float(truth.similarity.quantile(share, dim=1).median())
            exact = (kept & (truth.similarity < threshold)).double().mean(1)
            known = exact > 5 / side  # fewer points do not tell P
            for method, own in options.items():
                inside = total = censored = spent = 0
                for seed in range(seeds):
                    metric = MisinterpretationProbability(neighbourhood, threshold=threshold, **own)
                    generator = torch.Generator().manual_seed(seed)
                    found = metric(bench.model, explainer, bench.inputs, generator=generator)
                    ln = exact.log()
                    within = (found.low <= ln) & (ln <= found.high)
                    inside, total = inside + int(within[known].sum()), total + int(known.sum())
                    censored += int(found.censored[known].sum())
                    spent += int(found.model_evaluations[known].sum())
                print(
                    f"| {explainer} | {exact[known].median():.4f} | {method} | {inside} of {total} | {censored}"
                    f" | {spent / max(total, 1):.0f} |",
                    flush=True,
                )


def measure_coverage(bench: Bench, seeds: int, explainers: list[str]) -> None:
    """Subset simulation with few particles, on the grid's values with straight lines between them."""
    label, (neighbourhood, side) = next(iter(ONE.items()))
    print(
        "\n| explainer | P | within the interval | below it | above it |\n| --- | --- | --- | --- | --- |"
    )
    for explainer in explainers:
        truth = bench.measure_grid(label, neighbourhood, explainer, side)
        region = neighbourhood.around(bench.inputs, bench.model.bounds)
        low, high = float(region.lower[0]), float(region.upper[0])

        def look_up(
            table: Tensor, x: Tensor, problem: Tensor, low: float = low, high: float = high
        ) -> Tensor:
            place = (x[:, 0] - low) / (high - low) * (side - 1)
            left = place.floor().clamp(0, side - 2).long()
            return torch.lerp(table[problem, left], table[problem, left + 1], place - left)

        fine = torch.linspace(low, high, 40 * side, dtype=torch.float64).float()[:, None]
        for share in (0.3, 0.03, 0.003):
            threshold = float(truth.similarity.quantile(share, dim=1).median())

            def score(
                x: Tensor,
                problem: Tensor,
                rows: Tensor,
                threshold: float = threshold,
                truth: Truth = truth,
            ) -> Tensor:
                similarity = look_up(truth.similarity[rows], x, problem)
                return torch.stack(
                    [-look_up(truth.margin[rows], x, problem), threshold - similarity], 1
                )

            rows = torch.arange(len(bench.inputs))
            exact = torch.stack(
                [
                    (score(fine, row.expand(len(fine)), rows) >= 0).all(1).double().mean()
                    for row in rows
                ]
            )
            rows = rows[exact > 5 / side]
            ln = exact[rows].log()
            inside = below = above = 0
            for seed in range(seeds):
                found = standfast.algorithms.SubsetSimulation(
                    particles=50, first=16.0, moves=2
                ).run(
                    lambda x, problem, rows=rows: score(x, problem, rows),
                    region.select(rows),
                    generator=torch.Generator().manual_seed(seed),
                    indexed=True,
                )
                least, most = found.interval().unbind(1)
                inside += int(((least <= ln) & (ln <= most)).sum())
                below, above = below + int((ln < least).sum()), above + int((ln > most).sum())
            total = seeds * len(rows)
            cells = (
                explainer,
                f"{exact[rows].median():.4f}",
                f"{inside} of {total} ({inside / total:.1%})",
                below,
                above,
            )
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def compare_on_waves(names: list[str], seeds: int) -> None:
    """Sums of waves over two to four parameters, whose optimum a dense grid has; 20 problems for each seed."""

    def outcome(x: Tensor, problem: Tensor) -> Outcome:
        phase = torch.arange(1, x.shape[1] + 1) + 0.7 * problem[:, None]
        value = (torch.sin(9 * x + phase) + 0.4 * torch.sin(23 * x - phase)).sum(1)
        return Outcome(value, torch.full_like(value, -1.0))

    def gradient(x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        with torch.enable_grad():
            leaf = x.clone().requires_grad_(True)
            return differentiate_outcome(outcome(leaf, problem), leaf, feasible)

    print(
        "\n| search | parameters | evaluations | below 1% | largest gap % |\n| --- | --- | --- | --- | --- |"
    )
    for size, side, budget in ((2, 301, 200), (3, 61, 600), (4, 21, 1500)):
        region = LinfBall(0.5).around(torch.full((20, size), 0.3))
        points = torch.cartesian_prod(*[torch.linspace(-0.2, 0.8, side)] * size)
        grid = torch.stack(
            [outcome(points, torch.full((len(points),), row)).value for row in range(len(region))]
        )
        low, high = grid.aminmax(dim=1)
        for name in names:
            runs = [
                searches[name]().run(outcome, region, budget, seed, gradient)
                for seed in range(seeds)
            ]
            gap = torch.cat([(high - run.value) / (high - low) for run in runs])
            print(
                f"| {name} | {size} | {budget} | {int((gap < 0.01).sum())} of {len(gap)} | {100 * gap.max():.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=["searches", "more", "probability", "coverage", "waves"]
    )
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--searches", nargs="*", default=searches.names())
    parser.add_argument("--explainers", nargs="*", default=list(EXPLAINERS))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--network", default="lenet5-mnist")
    options = parser.parse_args()
    bench = Bench(options.images, options.cache, options.network)
    if "searches" in options.parts:
        compare_searches(bench, options.evaluations, ONE, options.searches, options.explainers)
    if "more" in options.parts:
        few = Bench(max(1, options.images // 4), options.cache, options.network)
        compare_searches(few, options.evaluations, MORE, options.searches, options.explainers[:1])
    if "probability" in options.parts:
        compare_probabilities(bench, options.seeds, options.explainers[:2])
    if "coverage" in options.parts:
        measure_coverage(bench, 50 * options.seeds, options.explainers[:2])
    if "waves" in options.parts:
        compare_on_waves(options.searches, options.seeds)


if __name__ == "__main__":
    main()
