"""The overhead of a study, the speed with a second worker, and how good estimates are.

    python benchmarks/studies/throughput.py --part overhead   10,000 tiny jobs: overhead of a job, time to open results
    python benchmarks/studies/throughput.py --part workers    a compute-bound study with one and with two workers
    python benchmarks/studies/throughput.py --part costs      `standfast.estimate` against what then happens, by metric
    python benchmarks/studies/throughput.py --part presets    options and estimated costs of all presets of all metrics

Overhead is the time of a job minus that of the same call of the metric without a study, in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
from torch import nn

import standfast
from standfast.metrics.base import PRESETS
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.question.metric_labels import name_metrics
from standfast.study.executors import Executor, InProcess, Processes
from standfast.study.forecast.trials import measure_peak
from standfast.study.run import run_grid
from standfast.study.store import Store

LOCALISATION = "relevance_localisation"  # it needs regions


def measure_overhead(jobs: int) -> None:
    torch.manual_seed(0)
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), (0.0, 1.0), device="cpu", batch_size=64
    )
    inputs = torch.rand(jobs, 1, 4, 4)
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    explainer = standfast.explainers.get("saliency")
    metric(model, explainer, inputs[:1])
    start = time.perf_counter()
    for row in range(jobs):
        metric(model, explainer, inputs[row : row + 1], generator=torch.Generator().manual_seed(0))
    bare = time.perf_counter() - start
    grid = Grid(
        {"x": Samples(inputs)},
        {"m": LoadedModel(model)},
        {"s": explainer},
        {"m": metric},
        samples_per_job=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        start = time.perf_counter()
        run_grid(grid, store)
        whole = time.perf_counter() - start
        start = time.perf_counter()
        results = standfast.load_results(folder)
        opening = time.perf_counter() - start
        start = time.perf_counter()
        run_grid(grid, store)
        second = time.perf_counter() - start
    assert results.samples.height == jobs
    print(
        f"{jobs} jobs: {whole:.1f} s, of which the metric alone {bare:.1f} s:"
        f" {(whole - bare) / jobs * 1e3:.2f} ms overhead a job"
    )
    print(
        f"results open in {opening:.2f} s; a second run, with nothing left to do, takes {second:.2f} s"
    )


def measure_costs(samples: int, preset: str, explainer: str, names: list[str]) -> None:
    """Print a table of estimates and of what the metrics then take. CPU time, so that other processes do not count."""
    torch.set_num_threads(1)
    digits = standfast.data.bundled("digits")[:samples]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), digits.bounds, device="cpu")
    regions = standfast.metrics.RelevanceLocalisation(digits.inputs > 0.5)
    print("| metric | evaluations | estimated | seconds | estimated | MB | estimated |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with mock.patch.object(time, "perf_counter", time.process_time):
        for name in names or standfast.metrics.names():
            metric = regions if name == LOCALISATION else name
            ball = standfast.LinfBall(0.3)
            options = {
                "neighbourhood": ball,
                "preset": preset,
                "samples_per_job": samples,
                "controls": False,
            }
            told = standfast.estimate(model, explainer, digits.inputs, metric, **options)
            (configured,) = name_metrics([metric], ball, preset).values()
            with measure_peak(model.device) as peak:
                began = time.process_time()
                result = configured(model, explainer, digits.inputs)
                seconds = time.process_time() - began
            count = int(result.model_evaluations.sum())
            cells = (count, told.evaluations / count, seconds, told.seconds / seconds)
            memory = f"{peak[0] / 1e6:.0f} | {told.memory / peak[0]:.2f}"
            print(
                "| {} | {:,} | {:.2f} | {:.2f} | {:.2f} | {} |".format(name, *cells, memory),
                flush=True,
            )


def list_presets(samples: int, explainer: str) -> None:
    """Print the table of docs/metrics/index.md: what a sample costs by preset, in CPU time of one thread."""
    torch.set_num_threads(1)
    digits = standfast.data.bundled("digits")[:samples]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), digits.bounds, device="cpu")
    print("| metric | preset | options | evaluations | seconds |")
    print("| --- | --- | --- | ---: | ---: |")
    with mock.patch.object(time, "perf_counter", time.process_time):
        for name in standfast.metrics.names():
            for preset in PRESETS:
                declared = standfast.metrics.metrics[name].presets.get(preset, {})
                if preset != "standard" and not declared:
                    continue
                metric = (
                    standfast.metrics.RelevanceLocalisation(digits.inputs > 0.5)
                    if name == LOCALISATION
                    else name
                )
                options = {
                    "neighbourhood": standfast.LinfBall(0.3),
                    "preset": preset,
                    "samples_per_job": samples,
                    "controls": False,
                }
                told = standfast.estimate(model, explainer, digits.inputs, metric, **options)
                words = (
                    ", ".join(f"`{option}={value!r}`" for option, value in declared.items())
                    or "the defaults"
                )
                count, seconds = told.evaluations / samples, told.seconds / samples
                print(
                    f"| {name} | {preset} | {words} | {count:,.0f} | {seconds:,.2g} |", flush=True
                )


def measure_workers(samples: int, repeats: int) -> None:
    digits = standfast.data.bundled("digits")[:samples]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    metric = standfast.metrics.WorstCase(standfast.LinfBall(0.3), search="random", budget=2000)
    explainers = {name: standfast.explainers.get(name) for name in ("saliency", "deeplift")}
    grid = Grid(
        {"digits": Samples(digits.inputs)},
        {"lenet": LoadedModel(model)},
        explainers,
        {"worst": metric},
        samples_per_job=2,
    )
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, executor in (
            ("one worker, one thread", Processes(1, threads=1)),
            ("one worker, all threads", InProcess()),
            ("two workers, one thread each", Processes(2, threads=1)),
        ):
            seconds.setdefault(name, []).append(_run_once(grid, executor))
    base = min(seconds["one worker, one thread"])
    for name, times in seconds.items():
        print(
            f"{name}: {min(times):.1f} s, {base / min(times):.2f} times the rate of one worker with one thread"
        )


def _run_once(grid: Grid, executor: Executor) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return run_grid(grid, Store(Path(folder)), executor=executor).seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", choices=("overhead", "workers", "costs", "presets", "all"), default="all"
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--preset", default="standard", help="of the metrics whose costs are estimated"
    )
    parser.add_argument("--explainer", default="saliency")
    parser.add_argument("--metrics", nargs="*", default=[], help="by default, all")
    options = parser.parse_args()
    if options.part in ("overhead", "all"):
        measure_overhead(options.jobs)
    if options.part in ("workers", "all"):
        measure_workers(options.samples, options.repeats)
    if options.part in ("costs", "all"):
        measure_costs(4, options.preset, options.explainer, options.metrics)
    if options.part in ("presets", "all"):
        list_presets(4, options.explainer)
