"""Time, peak memory and size of the report of a large study, from made-up results.

    python benchmarks/studies/report_size.py --samples 2000 --explainers 8

Values are random, and no model runs. The six metrics are four of the library, one of them with pictures, and two that
are not installed.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import numpy as np
import polars as pl

from standfast.report import Results, build_html

BALL = {"norm": "LinfBall", "radius": 0.1, "distribution": "uniform", "sigma": None}
OPTIONS = {
    "neighbourhood": BALL,
    "similarity": "pearson",
    "threshold": None,
    "event": "changed_explanation",
}
METRICS = {
    "worst case": ("worst_case", OPTIONS),
    "probability": ("misinterpretation_probability", OPTIONS),
    "max-sensitivity": ("max_sensitivity", {"neighbourhood": BALL}),
    "AOPC": ("aopc", {"score": "probability"}),
    "one of a plug-in": ("plugged_in", {"k": 1}),
    "another": ("plugged_in", {"k": 2}),
}
JOB = 100  # samples of a job
SHAPE = (1, 28, 28)


def make_rows(metric: str, place: int, rng: np.random.Generator, samples: int) -> pl.DataFrame:
    """The rows of one explainer by one metric."""
    values = rng.normal(0.1 * place, 0.3, samples)
    columns: dict[str, Any] = {
        "sample": np.arange(samples),
        "status": ["ok"] * samples,
        "targets": rng.integers(0, 10, samples),
        "model_evaluations": np.full(samples, 500),
        "degenerate": np.zeros(samples, dtype=int),
        "nonfinite": np.zeros(samples, dtype=int),
    }
    if metric == "worst_case":
        values = np.tanh(values)
        columns |= {
            "similarity": values,
            "margin": np.full(samples, -1.0),
            "found": np.ones(samples, dtype=bool),
        }
        columns |= {"misinterpreted": values < 0.4, "predicted": columns["targets"]}
    if metric == "misinterpretation_probability":
        values = np.maximum(-20.0, -8 + 10 * values)
        columns |= {"log_probability": values, "low": values - 0.5, "high": values + 0.5}
        columns |= {
            "censored": values <= -20,
            "bound": values <= -20,
            "stalled": np.zeros(samples, dtype=bool),
        }
    return pl.DataFrame(columns | {"value": values})


def make_results(samples: int, explainers: int) -> Results:
    """A study of one data set and one model."""
    rng, frames, jobs, arrays = np.random.default_rng(0), [], [], {}
    for label, (metric, _) in METRICS.items():
        for place in range(explainers):
            where = {
                "data": "d",
                "model": "m",
                "explainer": f"explainer {place}",
                "label": label,
                "metric": metric,
            }
            starts = range(0, samples, JOB)
            for start in starts:
                name = f"{label} {place} {start}"
                stop = min(start + JOB, samples)
                stored = metric == "worst_case" and start == 0
                jobs.append(
                    {
                        **where,
                        "job": name,
                        "repeat": 0,
                        "start": start,
                        "stop": stop,
                        "status": "done",
                        "seconds": 1.0,
                    }
                    | {"artefacts": stored}
                )
                if stored:
                    names = ("origins", "inputs", "origin_maps", "maps")
                    arrays[name] = {each: rng.random((stop, *SHAPE)) for each in names}
            rows = make_rows(metric, place, rng, samples)
            own = [pl.lit(value).alias(key) for key, value in where.items()]
            job = pl.Series([f"{label} {place} {start // JOB * JOB}" for start in range(samples)])
            frames.append(rows.select(*own, pl.lit(0).alias("repeat"), pl.all(), job.alias("job")))
    manifest = {
        "data": {
            "d": {
                "samples": samples,
                "input_shape": list(SHAPE),
                "bounds": [[0.0, 0.0], [1.0, 1.0]],
            }
        },
        "models": {"m": {"module": "LeNet5"}},
        "explainers": {f"explainer {place}": {"name": f"e{place}"} for place in range(explainers)},
        "metrics": {
            label: {"metric": name, "options": own} for label, (name, own) in METRICS.items()
        },
    }
    return Results.in_memory(
        manifest, pl.concat(frames, how="diagonal_relaxed"), jobs, len(jobs), arrays
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--explainers", type=int, default=8)
    given = parser.parse_args()
    results = make_results(given.samples, given.explainers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    page = build_html(results)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{len(results.samples):,} rows: {seconds:.1f} s ({busy:.1f} s of CPU), {len(page) / 1e6:.1f} MB"
    )
    print(
        f"peak memory {peak / 1024:,.0f} MiB, {(peak - before) / 1024:,.0f} MiB more than the results"
    )


if __name__ == "__main__":
    main()
