"""Every metric at full size on a card, and what a large study costs there.

    python benchmarks/on_a_card/full.py --device cuda --out full.json     about half a minute
    python benchmarks/on_a_card/full.py --device cpu --tiny               the same code, tiny networks

First every registered metric evaluates 8 random images with ResNet-50 and with ViT-B/16, in a small configuration:
time, memory, and the error if there is one. Then the price of a study of 1,000 images x 8 explainers x 5 metrics with
ResNet-50, in hours of this card. It is extrapolated from rates measured here:

- an evaluation that explains takes as long as with `saliency`, as measured with 8 samples, times the time of a map of
  the explainer over that of a saliency map;
- other evaluations take as long as measured; each explainer makes its maps of the images;
- explainers that can be differentiated meet the search `auto`, the others `block`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from bare_model import read_clock
from fast import EXPLAINER, TINY_ROW_SECONDS, Case, measure_work, prepare
from networks import PRECISIONS, Record, can_mix_precisions

import standfast
from standfast.metrics import Metric
from standfast.study.forecast.trials import measure_peak

SAMPLES = 8
#: not the default attack, which takes up to a gradient for each class; one layer instead of all; a few levels
SMALLER: dict[str, dict[str, Any]] = {
    **{name: {"attack": "alma:steps=3"} for name in ("c_eval", "c_eval_plot", "near_affinity")},
    "parameter_sensitivity_consistency": {"layers": "first"},
    "misinterpretation_probability": {"first": 1.0, "floor": -3.0},
}
IMAGES = 1000
EXPLAINERS = (
    *("saliency", "input_x_gradient", "guided_backprop", "gradcam", "deeplift", "lrp"),
    "integrated_gradients:steps=32",
    "lime:samples=200",
)
#: the metrics of the study, and the works of `fast.py` that give their rates
STUDY = {
    "worst_case": ("auto", "block"),
    "misinterpretation_probability": ("probability",),
    "data_sensitivity_consistency": ("data_senc",),
    "corruption_curve": ("corruption_curve",),
    "c_eval": ("c_eval",),
}


def make_metrics() -> dict[str, Metric]:
    """A small configuration of every metric."""
    found: dict[str, Metric] = {}
    for name in standfast.metrics.names():
        example = standfast.metrics.metrics[name].example()
        found[name] = dataclasses.replace(example, **SMALLER.get(name, {}))
    return found


def run_metric(case: Case, metric: Metric) -> dict[str, Any]:
    """Time, evaluations and memory of a metric, or its error."""
    inputs = case.draw(SAMPLES, 0)
    try:
        with measure_peak(case.device) as peak:
            start = read_clock(case.device)
            result = metric(case.model, EXPLAINER, inputs)
            taken = read_clock(case.device) - start
    except Exception as error:  # the other metrics are still worth their time
        return {"error": f"{type(error).__name__}: {error}"}
    evaluations = int(result.model_evaluations.sum())
    return {
        "seconds": taken,
        "evaluations": evaluations,
        "memory": peak[0],
        "status": sorted(set(result.status)),
    }


def measure_map(case: Case, label: str) -> float:
    """Seconds of one map, of as many images as fill a batch."""
    explainer = standfast.explainers.get(label)
    images = max(SAMPLES, case.bare.rows // explainer.rows_per_input)
    inputs = case.draw(images, 3)
    explainer(case.model, inputs)  # warms up
    start = read_clock(case.device)
    explainer(case.model, inputs)
    return (read_clock(case.device) - start) / images


def measure_rates(
    case: Case, seconds: float, record: Record
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a map of each explainer, and of an evaluation of each work; NaN where it fails."""
    maps, works = dict.fromkeys(EXPLAINERS, math.nan), {}
    for label in EXPLAINERS:
        try:
            maps[label] = measure_map(case, label)
        except Exception as error:  # the price of the others is still known
            record.add("errors", {"explainer": label, "error": f"{type(error).__name__}: {error}"})
    for name in (name for names in STUDY.values() for name in names):
        row = measure_work(case, name, SAMPLES, seconds)
        works[name] = row["seconds"] / row["evaluations"]
    record.content["seconds of a map"], record.content["seconds of an evaluation"] = maps, works
    record.write()
    return maps, works


def price(
    metric: Metric, label: str, classes: int, maps: Mapping[str, float], works: Mapping[str, float]
) -> float:
    """Hours of the study's images with this metric and explainer."""
    names, differentiable = STUDY[metric.name], standfast.explainers.get(label).differentiable
    evaluation = works[names[0] if differentiable else names[-1]]
    cost = metric.cost(classes)
    if cost.predictions:
        seconds = cost.explanations * maps[label] + cost.predictions * evaluation
    else:
        seconds = cost.explanations * evaluation * maps[label] / maps[EXPLAINER]
    return IMAGES * seconds / 3600


def print_prices(
    case: Case, maps: Mapping[str, float], works: Mapping[str, float], record: Record
) -> None:
    """A table of hours by metric and preset, with and without LIME; an explainer that failed is left out."""
    classes = case.model.classes or 2
    known = [label for label in EXPLAINERS if not math.isnan(maps[label])]
    print(
        f"\n{IMAGES:,} images x {len(known)} explainers, {record.content['device']}, {case.precision}"
    )
    print(
        "| metric | preset | evaluations of an image | hours | without LIME |\n| --- | --- | ---: | ---: | ---: |"
    )
    for preset in ("quick", "standard"):
        totals = [0.0, 0.0]
        for name in STUDY:
            needs = {"neighbourhood": standfast.LinfBall(0.03)} if name in list(STUDY)[:2] else {}
            metric = standfast.metrics.get(name, preset=preset, **needs)
            hours = {label: price(metric, label, classes, maps, works) for label in known}
            both = [
                sum(hours.values()),
                sum(own for label, own in hours.items() if not label.startswith("lime")),
            ]
            totals = [total + own for total, own in zip(totals, both, strict=True)]
            print(
                f"| {name} | {preset} | {metric.cost(classes).evaluations:,} | {both[0]:,.2f} | {both[1]:,.2f} |"
            )
            record.add("hours", {"metric": name, "preset": preset, **hours})
        print(f"| all five | {preset} | | {totals[0]:,.2f} | {totals[1]:,.2f} |", flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true", help="tiny networks and budgets")
    parser.add_argument(
        "--networks", nargs="+", choices=("resnet50", "vit_b16"), default=("resnet50", "vit_b16")
    )
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--rows", nargs="+", type=int, help="of a batch, to choose from")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.precision = options.precision or (
        "bfloat16" if can_mix_precisions() and not options.tiny else "float32"
    )
    options.rows = options.rows or ([16] if options.tiny else [128])
    options.row_seconds = TINY_ROW_SECONDS if options.tiny else 0.5
    record = Record(options.out, torch.device(options.device))
    record.content["options"] = {name: str(value) for name, value in vars(options).items()}
    first = None
    for network in options.networks:
        case = prepare(network, options.precision, options, record)
        first = first or case
        print(
            "| network | metric | evaluations | s | memory, MB | note |\n| --- | --- | ---: | ---: | ---: | --- |"
        )
        for name, metric in make_metrics().items():
            found = run_metric(case, metric)
            record.add("metrics", {"network": network, "metric": name, **found})
            if "error" in found:
                print(f"| {network} | {name} | - | - | - | {found['error']} |", flush=True)
                continue
            cells = [
                f"{found['evaluations']:,}",
                f"{found['seconds']:.2f}",
                f"{found['memory'] / 1e6:,.0f}",
            ]
            print(
                f"| {network} | {name} | {' | '.join(cells)} | {', '.join(found['status'])} |",
                flush=True,
            )
    assert first is not None
    print_prices(first, *measure_rates(first, options.row_seconds, record), record)


if __name__ == "__main__":
    main()
