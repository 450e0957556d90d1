"""Comparison of the searches for a worst case, on the bundled digits and model.

    python benchmarks/worst_case/searches.py --radius 0.3 --event changed_explanation \\
        --search block:5000 --search genetic:100000 --search gradient:5000 --search random:5000 --json out.json

`--search` takes `name:evaluations` or `name:evaluations:option=value,...`, say `genetic:100000:population=200`.
All searches get the same digits. Evaluations are predictions with explanation of the search alone, for each digit;
rough explanations count as what they cost. Rows are those that the module is given in all, and seconds those of the
processor. How much drafts help:

    python benchmarks/worst_case/searches.py --radius 0.0314 --first 20 --digits 40 --explainer integrated_gradients \\
        --search auto:200:drafts=False --search draft:200
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from pathlib import Path
from typing import Any

import torch

from standfast.algorithms import searches
from standfast.data import bundled
from standfast.metrics.safari.events import EVENTS
from standfast.metrics.safari.worst_case import WorstCase
from standfast.model import Model
from standfast.neighbourhoods import LinfBall
from standfast.zoo import load

DEFAULTS = [
    "random:5000",
    "genetic:100000:population=200",
    "block:5000",
    "gradient:5000",
    "auto:2500",
]


def parse_search(text: str) -> tuple[str, int, dict[str, Any]]:
    """`name:evaluations[:option=value,...]`; the evaluations are those of the search alone."""
    name, evaluations, *rest = text.split(":")
    pairs = (pair.split("=") for pair in ",".join(rest).split(",") if pair)
    return name, int(evaluations), {key: ast.literal_eval(value) for key, value in pairs}


class RowCounter:
    """Counts the rows that a module is given."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.total = 0
        module.register_forward_pre_hook(self._count)

    def _count(self, _module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.total += len(inputs[0])


def main() -> None:
    """Run, print a table, and write a JSON file if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--search", action="append", help=f"default: {' '.join(DEFAULTS)}")
    parser.add_argument("--event", choices=EVENTS, default="changed_explanation")
    parser.add_argument("--radius", type=float, default=0.3)
    parser.add_argument("--digits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first digit")
    parser.add_argument("--explainer", default="input_x_gradient")
    parser.add_argument("--similarity", default="pearson")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    digits = bundled("digits")[options.first : options.first + options.digits]
    module = load("lenet5-mnist")
    model = Model(module, bounds=(0.0, 1.0), batch_size=256)
    given_rows = RowCounter(module)
    what = "margin" if options.event == "misclassification" else f"{options.similarity} similarity"
    print(
        f"{options.event}, radius {options.radius:g}, {options.explainer}: {what} of each digit; ! = event not found"
    )
    rows = []
    for text in options.search or DEFAULTS:
        name, evaluations, settings = parse_search(text)
        metric = WorstCase(
            LinfBall(options.radius),
            event=options.event,
            similarity=options.similarity,
            search=searches[name](**settings),
            budget=WorstCase.plan_budget(evaluations),
        )
        generator = torch.Generator().manual_seed(options.seed)
        began, rows_before = time.process_time(), given_rows.total
        result = metric(model, options.explainer, digits.inputs, generator=generator)
        seconds, module_rows = time.process_time() - began, given_rows.total - rows_before
        values = result.margin if options.event == "misclassification" else result.similarity
        found = result.found.tolist()
        cells = " ".join(
            f"{v:7.3f}{' ' if f else '!'}" for v, f in zip(values.tolist(), found, strict=True)
        )
        averages = f"median {values.quantile(0.5):.3f}  mean {values.mean():.3f}"
        print(f"{text:32s} {cells}  {averages}  {module_rows:,} rows  {seconds:.0f} s", flush=True)
        rows.append(
            {
                "search": text,
                "values": values.tolist(),
                "found": found,
                "evaluations": result.model_evaluations.tolist(),
                "module_rows": module_rows,
                "seconds": seconds,
            }
        )
    if options.json:
        settings = {
            key: value for key, value in vars(options).items() if key not in ("json", "search")
        }
        options.json.write_text(json.dumps({"options": settings, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
