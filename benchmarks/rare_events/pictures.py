"""The three pictures of docs/rare-failures.md: python benchmarks/rare_events/pictures.py (about a minute).

Everything is seeded; the same command draws the same pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from standfast.algorithms import RareEventEstimate, StandardNormal, SubsetSimulation
from standfast.algorithms.rare_events.subset_sampling import plan_first, plan_wide
from standfast.report.charts import COLOURS, INK

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "references"))
from traps import TRAPS, meatball

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
BLUE, ORANGE, GREEN = COLOURS[:3]
SHOWN = 1500  # points of a panel
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


def record(
    score: Callable[[Tensor], Tensor], seed: int, particles: int = 1000, first: float = 32.0
) -> tuple[RareEventEstimate, list[Tensor]]:
    """An estimate, and the particles: the first ones, then those that moved within each level."""
    calls: list[Tensor] = []

    def recording(z: Tensor) -> Tensor:
        calls.append(z.clone())
        return score(z)

    generator = torch.Generator().manual_seed(seed)
    simulation = SubsetSimulation(particles, first=first, error=None)
    found = simulation.run(recording, StandardNormal(2), generator=generator)
    left, levels = iter(calls), [calls[0]]
    next(left)
    plan = plan_wide(simulation, plan_first(simulation, 2))
    for number, threshold in enumerate(found.levels[0].threshold.tolist()[:-1]):
        _, moves = plan[min(number + 1, len(plan) - 1)]
        moved = torch.cat([next(left) for _ in range(moves)])
        levels.append(moved[score(moved) >= threshold])
    return found, levels


def shade_event(axes: Axes, score: Callable[[Tensor], Tensor], title: str) -> None:
    """Colour the event's region, and prepare the axes."""
    grid = torch.linspace(-7, 7, 281)
    x, y = torch.meshgrid(grid, grid, indexing="xy")
    inside = score(torch.stack([x.flatten(), y.flatten()], dim=1).double()).reshape(x.shape) >= 0
    axes.contourf(x, y, inside.float(), levels=[0.5, 1.5], colors=[ORANGE], alpha=0.3)
    axes.set(xlim=(-7, 7), ylim=(-7, 7), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, loc="left", color=INK)


def draw_points(axes: Axes, points: Tensor, colour: object, alpha: float = 0.6) -> None:
    """A random part of the points."""
    chosen = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(1))[:SHOWN]]
    axes.scatter(chosen[:, 0], chosen[:, 1], s=3, color=colour, alpha=alpha, linewidths=0)


def draw_levels() -> None:
    """Plain random points miss a rare event; particles reach it level by level."""
    score: Callable[[Tensor], Tensor] = lambda z: (z[:, 0] + z[:, 1]) / 2**0.5 - 4.75  # noqa: E731
    found, levels = record(score, 1, first=1, particles=300)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.9), layout="constrained")
    shade_event(left, score, "1,500 random changes: no failure")
    draw_points(left, torch.randn(SHOWN, 2, generator=torch.Generator().manual_seed(2)), INK)
    shade_event(right, score, "particles, level by level")
    shades = plt.get_cmap("viridis")
    for number in range(0, len(levels), 4):
        draw_points(right, levels[number][: SHOWN // 5], shades(number / len(levels)))
    print("levels: ln P", float(found.log_probability))
    save(figure, "rare-levels")


def draw_trap() -> None:
    """A run with few particles follows the wrong way; one that begins with many finds both."""
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.9), layout="constrained")
    for axes, first in zip(panels, (1.0, 32.0), strict=True):
        for trial in range(20):
            found, levels = record(meatball, trial, first=first)
            # on the left a run that is sure of the wrong answer, on the right one that is resolved
            if bool(found.resolved) and (first > 1 or float(found.log_probability) < -17):
                break
        shade_event(axes, meatball, f"{len(levels[0]):,} particles at first")
        draw_points(axes, levels[0], INK, 0.25)
        draw_points(axes, torch.cat(levels[len(levels) // 2 :]), BLUE)
        low, high = found.interval()[0].tolist()
        text = f"ln P = {float(found.log_probability):.1f}, 95% interval {low:.1f} to {high:.1f}\nthe truth: -11.4"
        axes.text(-7, -7.3, text, color=INK, va="top")
        print("trap:", first, "seed", trial, text.replace("\n", "; "))
    save(figure, "rare-trap")


def draw_intervals() -> None:
    """Twenty runs with few particles, and twenty with the default settings."""
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.2), sharey=True, layout="constrained")
    trap = TRAPS[1]
    for axes, particles in zip(panels, (150, 1000), strict=True):
        for run in range(20):
            found, _ = record(trap.score, 100 + run, particles=particles)
            low, high = found.interval()[0].tolist()
            colour, marker, line = (BLUE, "o", "-") if bool(found.resolved) else (ORANGE, "s", ":")
            axes.plot([run, run], [low, high], color=colour, linewidth=2, linestyle=line)
            axes.plot(run, float(found.log_probability), marker, color=colour, markersize=4)
        axes.axhline(trap.log_probability, color=INK, linewidth=1)
        axes.set(xlabel="20 runs", xticks=[], xlim=(-0.7, 19.7))
        axes.set_title(f"particles={particles}", loc="left", color=INK)
    panels[0].set_ylabel("ln P (line: the truth)")
    panels[1].plot([], [], "o-", color=BLUE, label="resolved", linewidth=2)
    panels[1].plot([], [], "s:", color=ORANGE, label="not resolved", linewidth=2)
    panels[1].legend(frameon=False, loc="lower right")
    save(figure, "rare-intervals")


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture of docs/figures."""
    figure.savefig(
        FOLDER / f"{name}.png", dpi=110, bbox_inches="tight", metadata={"Software": None}
    )
    plt.close(figure)


def main() -> None:
    """Draw all three."""
    with plt.rc_context(STYLE):
        draw_levels()
        draw_trap()
        draw_intervals()


if __name__ == "__main__":
    main()
