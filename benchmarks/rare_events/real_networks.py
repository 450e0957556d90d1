"""Probabilities on real networks, several runs of each cell: do the intervals hold, and how wide are they?

python benchmarks/rare_events/real_networks.py --out cells.jsonl [--inputs 10] [--runs 10]
python benchmarks/rare_events/real_networks.py --out cells.jsonl --table

A cell is an input, an event, a radius and an explainer. Each run is appended to the file, and a second start goes on
after it. The pooled estimate of a cell is the logarithm of the mean of P over its runs; a run that did not reach the
event counts as 0 in it. Cells that no run reached have none, and are counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import standfast
from standfast.metrics import MisinterpretationProbability

EVENTS = ("changed_explanation", "changed_class")
Cell = tuple[str, str, float, str, int]


def run_cells(options: argparse.Namespace) -> None:
    """Compute the runs that the file lacks; all inputs of a setting share batches."""
    found_runs = read_runs(options.out)
    same = {"data": options.data, "settings": options.settings}
    if any(row.get(name) != value for row in found_runs for name, value in same.items()):
        raise SystemExit(
            f"{options.out} has runs with other --data or --settings; give another --out"
        )
    done = {(r["model"], r["explainer"], r["radius"], r["event"], r["run"]) for r in found_runs}
    inputs = standfast.data.load(options.data)[: options.inputs].inputs
    for run, explainer, radius, event in itertools.product(
        range(options.runs), options.explainers, options.radii, options.events
    ):
        if (options.model, explainer, radius, event, run) in done:
            continue
        model = standfast.Model(
            standfast.zoo.load(options.model), bounds=(0.0, 1.0), device=options.device
        )
        metric = MisinterpretationProbability(
            standfast.LinfBall(radius), event=event, **json.loads(options.settings)
        )
        start = time.process_time()
        found = metric(
            model, explainer, inputs, generator=torch.Generator().manual_seed(1000 + run)
        )
        seconds = time.process_time() - start
        with options.out.open("a") as file:
            for i in range(len(inputs)):
                row: dict[str, Any] = {
                    "model": options.model,
                    "explainer": explainer,
                    "radius": radius,
                    "event": event,
                }
                row |= {**same, "run": run, "input": i, "seconds": seconds / len(inputs)}
                for name in ("log_probability", "std_error", "low", "high", "censored", "resolved"):
                    row[name] = getattr(found, name)[i].item()
                row["evaluations"] = found.model_evaluations[i].item()
                file.write(json.dumps(row) + "\n")


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The runs that the file has."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_table(path: Path) -> None:
    """One line for each setting, and a summary of all cells with at least two runs."""
    cells: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for row in read_runs(path):
        cells[row["model"], row["explainer"], row["radius"], row["event"], row["input"]].append(row)
    settings: dict[Cell | tuple[Any, ...], list[dict[str, float]]] = defaultdict(list)
    for cell, runs in cells.items():
        if len(runs) > 1:
            settings[cell[:4]].append(summarise_cell(runs))
    columns = (
        "model explainer radius event reached_cells runs ln_P all_intervals_hold intervals_that_hold width resolved"
        " spread evaluations"
    )
    print("| " + " | ".join(columns.split()).replace("_", " ") + " |")
    print("|" + " --- |" * 13)
    for setting, found in settings.items():
        print("| " + " | ".join(map(str, setting)) + " | " + describe_cells(found))
    print("| all | | | | " + describe_cells(list(itertools.chain(*settings.values()))))


def summarise_cell(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The pooled estimate of a cell, whether every run's interval holds it, and the runs' spread."""
    values = np.array([-math.inf if r["censored"] else r["log_probability"] for r in runs])
    low, high = (np.array([r[name] for r in runs]) for name in ("low", "high"))
    errors = np.array([r["std_error"] for r in runs])
    pooled = float(np.logaddexp.reduce(values) - math.log(len(runs)))
    reached, holds = np.isfinite(values).all(), (low <= pooled) & (pooled <= high)
    return {
        "runs": len(runs),
        "pooled": pooled,
        "holds": float(holds.all()),
        "holding": float(holds.sum()),
        "width": float(np.median(high - low)),
        "resolved": float(np.mean([r["resolved"] for r in runs])),
        "spread": float(values.std(ddof=1) / math.sqrt(np.mean(errors**2)))
        if reached
        else math.nan,
        "evaluations": float(np.mean([r["evaluations"] for r in runs])),
    }


def describe_cells(cells: list[dict[str, float]]) -> str:
    """The columns of the table for some cells."""
    reached = [cell for cell in cells if math.isfinite(cell["pooled"])]
    if not reached:
        return f"{len(cells)}, no run reached the event |" + " |" * 8
    column = {name: np.array([cell[name] for cell in reached]) for name in cells[0]}
    pooled, width = column["pooled"], column["width"]
    spread = column["spread"][np.isfinite(column["spread"])]
    return (
        f"{len(reached)} of {len(cells)} | {column['runs'].mean():.1f} | {pooled.min():.1f} to {pooled.max():.1f} |"
        f" {column['holds'].mean():.0%} | {column['holding'].sum() / column['runs'].sum():.1%} |"
        f" {np.median(width):.1f} | {column['resolved'].mean():.0%} |"
        f" {f'{np.sqrt((spread**2).mean()):.2f}' if len(spread) else '-'} | {column['evaluations'].mean():,.0f} |"
    )


def main() -> None:
    """Compute runs, or print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--model", default="lenet5-mnist")
    parser.add_argument("--data", default="mnist:test")
    parser.add_argument("--inputs", type=int, default=10)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--explainers", nargs="+", default=["input_x_gradient", "integrated_gradients", "gradcam"]
    )
    parser.add_argument("--radii", nargs="+", type=float, default=[0.3, 0.1])
    parser.add_argument("--events", nargs="+", default=EVENTS)
    parser.add_argument("--settings", default="{}", help="further options of the metric, as JSON")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print_table(options.out) if options.table else run_cells(options)


if __name__ == "__main__":
    main()
