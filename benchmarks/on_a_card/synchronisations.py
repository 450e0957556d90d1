"""How often the host waits for the model's device: for every search, metric and explainer.

    python benchmarks/on_a_card/synchronisations.py [--device cuda] [--out FILE] [--only NAME ...] [--places]

Each is run on a tiny network several times: with little and with much work, or in large and in small batches where
there is no such choice; for one and for four samples. Without a card, `waits.py` counts; with one, its driver
does. The columns:

- start: waits that do not depend on the work;
- round: more waits for each further round, a batch of inputs that are predicted or explained;
- sample: more waits for each further sample, beside those of further rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import standfast
from standfast.algorithms.searches.base import searches
from standfast.explainers.attention.attention_maps import AttentionExplainer
from standfast.metrics.base import metrics
from standfast.testing import small_net, small_transformer

sys.path.insert(0, str(Path(__file__).parent))
from waits import Waits, count_waits

SHAPE = (1, 8, 8)
SAMPLES = 4
LARGE, SMALL = 4096, 16  # rows of a batch
BALL = standfast.LinfBall(0.1)
ATTACKS = "fmn:steps=2,second=2,polish=1", "fmn:steps=6,second=6,polish=2"
#: for each metric the options of little and of much work, where batches of another size say too little
WORK: dict[str, tuple[dict[str, Any], ...]] = {
    "attribution_attack": ({"steps": 2}, {"steps": 6}),
    "c_eval": ({"attack": ATTACKS[0]}, {"attack": ATTACKS[1]}),
    "c_eval_plot": tuple({"attack": attack, "fractions": (0.2,)} for attack in ATTACKS),
    "near_affinity": tuple({"attack": attack, "fractions": (0.3,)} for attack in ATTACKS),
    "misinterpretation_probability": (
        {"threshold": 0.3, "floor": -3.0, "moves": 2, "first": 2.0},
        {"threshold": 0.3, "floor": -6.0, "moves": 2, "first": 2.0},
    ),
}
#: explainers that take long by default, with less of what takes it
QUICK: dict[str, dict[str, Any]] = {
    "extremal_perturbations": {"steps": 3},
    "rise": {"samples": 60},
    "shapley_sampling": {"permutations": 3},
    "lime": {"samples": 60},
    "kernel_shap": {"samples": 60},
}
Run = Callable[[standfast.Model, torch.Tensor], object]


@dataclass
class Row:
    """What was counted for one search, metric or explainer.

    Attributes:
        kind, name: of what was run.
        start, per_round, per_sample: waits; see above.
        rounds, rows: of the run with much work and all samples.
        places: its waits by kind and place.
    """

    kind: str
    name: str
    start: float
    per_round: float
    per_sample: float
    rounds: int
    rows: int
    places: dict[str, int]


def list_runs(budgets: tuple[int, int] = (200, 800)) -> Iterator[tuple[str, str, Run, Run]]:
    """Kind, name, a run with little and one with much work; of searches with these budgets."""
    for name in searches:
        yield "search", name, _make_search(name, budgets[0]), _make_search(name, budgets[1])
    for name in standfast.metrics.names():
        little, much = (_make_metric(name, options) for options in WORK.get(name, ({}, {})))
        yield "metric", name, little, much if name in WORK else little
    for name in standfast.explainers.names():
        explainer = standfast.explainers.get(name, **QUICK.get(name, {}))
        yield "explainer", name, explainer, explainer


def measure(kind: str, name: str, little: Run, much: Run, device: str = "cpu") -> Row:
    """The row of one of them."""
    attends = kind == "explainer" and isinstance(standfast.explainers.get(name), AttentionExplainer)
    x = torch.rand(SAMPLES, *SHAPE, generator=torch.Generator().manual_seed(1))

    def count(run: Run, samples: int, batch: int) -> Waits:
        net = (small_transformer if attends else small_net)(SHAPE)
        model = standfast.Model(net, (0.0, 1.0), device=device, batch_size=batch)
        with count_waits(model) as waits:
            run(model, x[:samples])
        return waits

    if kind == "explainer":
        count(much, SAMPLES, LARGE)  # what is computed once for a process
    whole, longer = count(much, SAMPLES, LARGE), count(much, 1, LARGE)
    if little is much:
        one, per_round = longer, _divide(count(much, SAMPLES, SMALL), whole)
    else:
        one = count(little, 1, LARGE)
        per_round = _divide(longer, one)
    further = whole.total - longer.total - per_round * (whole.rounds - longer.rounds)
    start = one.total - per_round * one.rounds
    places = {f"{kind} {place}": count for (kind, place), count in whole.seen.most_common()}
    places |= {f"driver {place}": count for place, count in whole.told.most_common()}
    return Row(
        kind, name, start, per_round, further / (SAMPLES - 1), whole.rounds, whole.rows, places
    )


def _divide(more: Waits, less: Waits) -> float:
    """The further waits for each further round."""
    return (
        (more.total - less.total) / (more.rounds - less.rounds)
        if more.rounds > less.rounds
        else 0.0
    )


def _make_search(name: str, budget: int) -> Run:
    options = {"population": 12} if name == "genetic" else {}
    around = standfast.neighbourhoods.Rotation(20.0) if name == "grid" else BALL
    metric = standfast.metrics.WorstCase(around, search=searches[name](**options), budget=budget)
    return lambda model, x: metric(model, "input_x_gradient", x)


def _make_metric(name: str, options: dict[str, Any]) -> Run:
    metric = dataclasses.replace(metrics[name].example(), **options)
    return lambda model, x: metric(model, "input_x_gradient", x)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of searches, metrics and explainers"
    )
    parser.add_argument("--places", action="store_true", help="print where they wait")
    options = parser.parse_args()
    rows, total = [], Counter[str]()
    print(f"{'':10} {'':32} {'start':>6} {'round':>7} {'sample':>7} {'rounds':>7} {'rows':>7}")
    for kind, name, little, much in list_runs():
        if options.only and name not in options.only:
            continue
        try:
            row = measure(kind, name, little, much, options.device)
        except Exception as error:  # the others are still of use
            print(f"{kind:10} {name:32} {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        rows.append(row)
        numbers = f"{row.start:6.1f} {row.per_round:7.2f} {row.per_sample:7.2f} {row.rounds:7} {row.rows:7}"
        print(f"{kind:10} {name:32} {numbers}", flush=True)
        total.update(row.places)
        if options.places:
            for place, count in row.places.items():
                print(f"{'':12}{count:6} {place}")
    print("\nThe most frequent places of all:")
    for place, count in total.most_common(25):
        print(f"{count:6} {place}")
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    sys.exit(main())
