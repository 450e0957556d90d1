"""SAFARI: Fig. 2 and 7 (iterations and population of the genetic algorithm), Fig. 3 and 8 (subset simulation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Scale, if_small
from papers.reading import (
    Verdict,
    add_label_words,
    all_above,
    all_hold,
    group_by_outcome,
    mean_interval,
    paired_differences,
)
from papers.safari.parts import (
    OURS,
    RECTIFIERS,
    log_probability_column,
    make_boundary_data,
    make_probability,
    make_study,
    make_worst_case,
    read_arrays,
    split_labels,
)
from standfast.study.results import Results

_NEGLIGIBLE = 0.02  # difference in PCC; our reading of "no significant improvement" and "converged"
_ACCURATE = 0.5  # difference in ln P; our reading of "high accuracy"


def _is_at_most(values: Sequence[float] | np.ndarray[Any, Any], limit: float) -> bool | None:
    """Whether the mean is at most the limit, by its interval."""
    _, low, high = mean_interval(np.asarray(values, dtype=float))
    return True if high <= limit else False if low > limit else None


def _gain(frame: pl.DataFrame, event: str, more: str, less: str, by: str, column: str) -> np.ndarray[Any, Any]:
    """How much closer `more` is to the event than `less`, on the same samples."""
    sign = -1.0 if event == "F-hat" else 1.0
    return sign * paired_differences(frame.filter(pl.col("event") == event), more, less, column, by)


# ---- Fig. 2, first row: iterations ----

_ITERATIONS = (0, 50, 100, 200, 300, 400, 500)
_POPULATION: dict[Scale, int] = {"small": 50, "full": 1000}


def _read_traces(results: Results) -> pl.DataFrame:
    """One row for each sample and iteration number, with the best similarity and margin up to this iteration."""
    frame = add_label_words(results.samples, "event", "population")
    found = []
    populations = {(row["job"], row["sample"]): int(row["population"]) for row in frame.iter_rows(named=True)}
    for (job, sample), arrays in read_arrays(results, "trace_evaluations", "trace_similarity", "trace_margin").items():
        evaluations = arrays["trace_evaluations"]
        for iterations in _ITERATIONS if len(evaluations) else ():
            # the evaluation of the first population does not count as an iteration
            reached = evaluations <= populations[job, sample] * (iterations + 1)
            last = max(0, int(reached.sum()) - 1)
            found.append(
                {
                    "job": job,
                    "sample": sample,
                    "iterations": str(iterations),
                    "pcc": float(arrays["trace_similarity"][last]),
                    "best_margin": float(arrays["trace_margin"][last]),
                }
            )
    types = {
        "job": pl.String,
        "sample": pl.Int64,
        "iterations": pl.String,
        "pcc": pl.Float64,
        "best_margin": pl.Float64,
    }
    return pl.DataFrame(found, schema=types).join(frame, on=["job", "sample"], how="left")


def _iteration_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    converged, satisfied = {}, {}
    for event in ("F-hat", "F-tilde"):
        converged[event] = _is_at_most(_gain(frame, event, "500", "300", "iterations", "pcc"), _NEGLIGIBLE)
        last = frame.filter(pl.col("event") == event, pl.col("iterations") == "500")["best_margin"]
        met = last < 0 if event == "F-hat" else last >= 0
        satisfied[event] = bool(met.all()) if len(met) else None
    text = f"PCC has converged after 300 iterations (200 more gain at most {_NEGLIGIBLE}, our reading)"
    return [
        *group_by_outcome(text, converged),
        *group_by_outcome("constraint J is satisfied after 500 iterations", satisfied),
    ]


ITERATION_PART = Part(
    name="safari-iterations",
    title="Worst PCC and its margin J by iterations of the genetic algorithm: mean [95% interval]",
    study=lambda scale: make_study(
        "The genetic algorithm by iterations (Fig. 2, first row)",
        scale,
        3 if scale == "small" else 10,
        samples_per_job=3,
        metrics={
            f"{event}, {size}": make_worst_case(event, size * (_ITERATIONS[-1] + 1), {"genetic": {"population": size}})
            for event in ("F-hat", "F-tilde")
            for size in [_POPULATION[scale]]
        },
    ),
    columns=tuple(
        Column(f"{heading} {event}", column, where={"event": event}, decimals=2)
        for event in ("F-hat", "F-tilde")
        for heading, column in (("PCC", "pcc"), ("J", "best_margin"))
    ),
    departures=lambda scale: if_small(scale, "population 50 (1000), 3 digits") + f"{OURS}; several digits (one)",
    prepare=_read_traces,
    verdicts=_iteration_verdicts,
    rows=("iterations",),
)

# ---- Fig. 2, second row: population ----

_POPULATIONS = (50, 100, 200, 500, 1000)
_EQUAL: dict[Scale, tuple[int, int]] = {"small": (10, 6000), "full": (500, 500_000)}  # iterations, evaluations


def _populations(scale: Scale) -> dict[str, Any]:
    iterations, evaluations = _EQUAL[scale]
    return {
        f"{event}, {size}, {equal}": make_worst_case(event, count, {"genetic": {"population": size}})
        for event in ("F-hat", "F-tilde")
        for equal in ("iterations", "evaluations")
        for size in _POPULATIONS
        for count in [size * (iterations + 1) if equal == "iterations" else evaluations]
    }


def _population_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    frame = frame.with_columns(pl.col("equal").alias("label"))  # so the rows of a pair differ only in the population
    flat, iterations = {}, {}
    for event in ("F-hat", "F-tilde"):
        equal, other = (frame.filter(pl.col("equal") == name) for name in ("iterations", "evaluations"))
        flat[event] = _is_at_most(_gain(equal, event, "1000", "500", "population", "similarity"), _NEGLIGIBLE)
        pair = [("1000", "100") if event == "F-hat" else ("100", "1000")]
        iterations[event] = all_above(other.filter(pl.col("event") == event), pair, "similarity", "population")
    return [
        *group_by_outcome(f"population size over 500 makes no significant improvement (at most {_NEGLIGIBLE})", flat),
        *group_by_outcome(
            "iterations are more important than population size (100 beats 1000 at equal evaluations)", iterations
        ),
    ]


POPULATION_PART = Part(
    name="safari-population",
    title="Worst PCC by population, at equal iterations and at equal evaluations: mean [95% interval]",
    study=lambda scale: make_study(
        "The genetic algorithm by population (Fig. 2, second row)",
        scale,
        2 if scale == "small" else 10,
        samples_per_job=2,
        metrics=_populations(scale),
    ),
    columns=(
        *(
            Column(f"{event}, equal {equal}", "similarity", where={"event": event, "equal": equal}, decimals=2)
            for event in ("F-hat", "F-tilde")
            for equal in ("iterations", "evaluations")
        ),
        *(
            Column(f"J F-tilde, equal {equal}", "margin", where={"event": "F-tilde", "equal": equal}, decimals=2)
            for equal in ("iterations", "evaluations")
        ),
    ),
    departures=lambda scale: (
        if_small(scale, "10 iterations or 6000 evaluations (500 iterations), 2 digits")
        + f"{OURS}; several digits (one); we chose the populations, because those of the figure cannot be read from it"
    ),
    prepare=split_labels("event", "population", "equal"),
    verdicts=_population_verdicts,
    rows=("population",),
)

# ---- Fig. 3: subset simulation against thresholds and moves ----

_METHODS = {"gaussian": "gaussian", "random walk": "random_walk"}
_FIGURE3: dict[Scale, dict[str, Any]] = {
    "small": {
        "F-hat": (0.5, 0.6),
        "F-tilde": (0.5, 0.6),
        "moves": (1, 5, 20),
        "particles": 100,
        "samples": 5000,
        "repeats": 4,
    },
    "full": {
        "F-hat": (0.2, 0.3, 0.4, 0.5, 0.6),
        "F-tilde": (0.4, 0.5, 0.6, 0.65, 0.7),
        "moves": (1, 5, 25, 100, 250),
        "particles": 1000,
        "samples": 10_000_000,
        "repeats": 10,
    },
}


def _curve_metrics(scale: Scale) -> dict[str, Any]:
    own, found = _FIGURE3[scale], {}
    for event in ("F-hat", "F-tilde"):
        for threshold in own[event]:
            name, common = f"{event}, {threshold}", {"threshold": threshold}
            found[f"{name}, Monte Carlo"] = make_probability(
                event, method="monte_carlo", samples=own["samples"], **common
            )
            for method, proposal in _METHODS.items():
                for moves in own["moves"]:
                    options = {"particles": own["particles"], "quantile": 0.1, "moves": moves, "proposal": proposal}
                    found[f"{name}, {method}, {moves}"] = make_probability(event, **common, **options)
    return found


def _against_truth(results: Results) -> pl.DataFrame:
    """Rows of subset simulation with ln P by Monte Carlo over all repeats, its standard error, and the difference.

    There is no difference for a run that ended on a plateau or below the floor.
    """
    frame = add_label_words(results.samples, "event", "threshold", "method", "moves")
    frame = frame.with_columns(pl.concat_str("event", "threshold", "method", separator=", ").alias("label"))
    plain = frame.filter(pl.col("method") == "Monte Carlo", pl.col("status") == "ok")
    share = pl.when(pl.col("censored")).then(0.0).otherwise(pl.col("log_probability").exp())
    keys = ["data", "sample", "event", "threshold"]
    variance = pl.when(pl.col("censored")).then(0.0).otherwise((share * pl.col("std_error")) ** 2)
    truth = plain.group_by(keys).agg(share.mean().alias("share"), (variance.sum().sqrt() / pl.len()).alias("spread"))
    truth = truth.filter(pl.col("share") > 0).with_columns(
        pl.col("share").log().alias("truth"), (pl.col("spread") / pl.col("share")).alias("truth_error")
    )
    found = frame.filter(pl.col("method") != "Monte Carlo").join(truth, on=keys, how="left", maintain_order="left")
    error = pl.when(pl.col("censored")).then(None).otherwise(pl.col("log_probability") - pl.col("truth"))
    # the figure is about the estimates themselves, with their few particles: those not resolved are no bounds here
    return found.drop("bound", strict=False).with_columns(
        error.alias("error"), error.abs().alias("absolute_error"), pl.col("censored").cast(pl.Float64).alias("lost")
    )


def _curve_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    if not len(frame):
        return []
    moves = sorted(frame["moves"].drop_nulls().unique().to_list(), key=int)
    accurate, better = {}, {}
    for method in _METHODS:
        own = frame.filter(pl.col("method") == method)
        most = own.filter(pl.col("moves") == moves[-1])
        outcomes: list[bool | None] = []
        for _, group in most.group_by("label", maintain_order=True):
            if not group["truth"].is_not_null().any():
                continue
            errors = group["error"].drop_nulls().to_numpy()
            if 2 * len(errors) < len(group):  # most runs have no estimate
                outcomes.append(False)
                continue
            _, low, high = mean_interval(errors)
            reach = _ACCURATE - 1.96 * float(group["truth_error"][0])  # minus the error of Monte Carlo
            beyond = 2 * _ACCURATE - reach
            within = low >= -reach and high <= reach
            outcomes.append(True if within else False if low > beyond or high < -beyond else None)
        accurate[method] = all_hold(outcomes)
        better[method] = all_above(own, [(moves[0], moves[-1])], "absolute_error", "moves")
    return [
        *group_by_outcome(f"SS overlaps with SMC (with most moves, within {_ACCURATE} of ln P, our reading)", accurate),
        *group_by_outcome("with increased MH steps the accuracy of SS is significantly improved", better),
    ]


def _curve_columns() -> tuple[Column, ...]:
    methods = [(method, {"method": method}) for method in _METHODS]
    return (
        *(
            log_probability_column(f"ln P, {method}", "log_probability", where=where, censored="censored")
            for method, where in methods
        ),
        Column("ln P, Monte Carlo", "truth", where={"method": "gaussian"}, decimals=2),
        Column("its standard error", "truth_error", where={"method": "gaussian"}, decimals=2),
        *(Column(f"error, {method}", "error", where=where, decimals=2) for method, where in methods),
        *(Column(f"without estimate, {method}", "lost", where=where, decimals=2) for method, where in methods),
        *(Column(f"seconds, {method}", "seconds", where=where, decimals=1) for method, where in methods),
    )


def _with_seconds(results: Results) -> pl.DataFrame:
    return _against_truth(results).join(results.jobs.select("job", "seconds"), on="job", how="left")


CURVE_PART = Part(
    name="safari-curves",
    title="ln P by threshold of PCC and moves M, two kinds of moves, over repeated runs: mean [95% interval]",
    study=lambda scale: make_study(
        "Subset simulation against Monte Carlo (Fig. 3)",
        scale,
        1,
        data=make_boundary_data(1),
        repeats=_FIGURE3[scale]["repeats"],
        metrics=_curve_metrics(scale),
    ),
    columns=_curve_columns(),
    departures=lambda scale: (
        if_small(scale, "100 particles (1000), up to 20 moves (250), 20000 samples of Monte Carlo (10^8), 4 runs (10)")
        + f"{RECTIFIERS}; another digit, near the boundary between classes, so that Monte Carlo finds events"
    ),
    prepare=_with_seconds,
    verdicts=_curve_verdicts,
    rows=("event", "threshold", "moves"),
)
