"""SAFARI: Fig. 2 and 7 (iterations and population of the genetic algorithm), Fig. 3 and 8 (subset simulation)."""

from __future__ import annotations

from typing import Any

import polars as pl

from papers.base import Column, Scale
from papers.files import study_file
from papers.reading import (
    Outcomes,
    Verdict,
    add_label_words,
    all_above,
    all_hold,
    group_by_outcome,
    is_at_least,
    is_within,
    mean_interval,
    paired_differences,
)
from papers.safari.parts import log_probability_column, make_part, read_arrays
from standfast.report import Results

EVENTS = {"F-hat": "changed_explanation", "F-tilde": "changed_class"}
_NEGLIGIBLE = 0.02  # difference in PCC; our reading of "no significant improvement" and "converged"
_ACCURATE = 0.5  # difference in ln P; our reading of "high accuracy"


def _gains_little(
    frame: pl.DataFrame, event: str, more: str, less: str, by: str, column: str
) -> bool | None:
    """Whether `more` is on average at most negligibly closer to the event than `less`, on the same samples."""
    difference = paired_differences(frame.filter(pl.col("event") == event), more, less, column, by)
    loss = difference if event == "F-hat" else -difference
    return is_at_least(mean_interval(loss), -_NEGLIGIBLE)


# ---- Fig. 2, first row: iterations ----

_ITERATIONS = (0, 50, 100, 200, 300, 400, 500)


def _read_traces(results: Results) -> pl.DataFrame:
    """One row for each sample and iteration number, with the best similarity and margin up to this iteration."""
    frame = add_label_words(results.samples, "event", "population")
    populations = {
        (row["job"], row["sample"]): int(row["population"]) for row in frame.iter_rows(named=True)
    }
    rows = []
    for (job, sample), arrays in read_arrays(
        results, "trace_evaluations", "trace_similarity", "trace_margin"
    ).items():
        evaluations = arrays["trace_evaluations"]
        for iterations in _ITERATIONS if len(evaluations) else ():
            # the evaluation of the first population does not count as an iteration
            reached = evaluations <= populations[job, sample] * (iterations + 1)
            last = max(0, int(reached.sum()) - 1)
            best = {
                "pcc": arrays["trace_similarity"][last],
                "best_margin": arrays["trace_margin"][last],
            }
            rows.append({"job": job, "sample": sample, "iterations": str(iterations), **best})
    types = {"job": pl.String, "sample": pl.Int64, "iterations": pl.String}
    traces = pl.DataFrame(rows, schema={**types, "pcc": pl.Float64, "best_margin": pl.Float64})
    return traces.join(frame, on=["job", "sample"], how="left")


def _judge_iterations(frame: pl.DataFrame) -> list[Verdict]:
    converged: Outcomes = {}
    satisfied: Outcomes = {}
    for event in EVENTS:
        converged[event] = _gains_little(frame, event, "500", "300", "iterations", "pcc")
        last = frame.filter(pl.col("event") == event, pl.col("iterations") == "500")["best_margin"]
        met = last < 0 if event == "F-hat" else last >= 0
        satisfied[event] = bool(met.all()) if len(met) else None
    text = (
        f"PCC has converged after 300 iterations (200 more gain at most {_NEGLIGIBLE}, our reading)"
    )
    return [
        *group_by_outcome(text, converged),
        *group_by_outcome("constraint J is satisfied after 500 iterations", satisfied),
    ]


ITERATION_PART = make_part(
    "figure2-iterations",
    "Worst PCC and its margin J by iterations of the genetic algorithm: mean [95% interval]",
    tuple(
        Column(f"{heading} {event}", column, where={"event": event}, decimals=2)
        for event in EVENTS
        for heading, column in (("PCC", "pcc"), ("J", "best_margin"))
    ),
    prepare=_read_traces,
    verdicts=_judge_iterations,
    rows=("iterations",),
)

# ---- Fig. 2, second row: population ----


def _judge_populations(frame: pl.DataFrame) -> list[Verdict]:
    # so the rows of a pair differ only in the population
    frame = frame.with_columns(pl.col("equal").alias("label"))
    equal, other = (frame.filter(pl.col("equal") == name) for name in ("iterations", "evaluations"))
    flat: Outcomes = {}
    iterations: Outcomes = {}
    for event in EVENTS:
        flat[event] = _gains_little(equal, event, "1000", "500", "population", "similarity")
        pair = ("1000", "100") if event == "F-hat" else ("100", "1000")
        iterations[event] = all_above(
            other.filter(pl.col("event") == event), [pair], "similarity", "population"
        )
    return [
        *group_by_outcome(
            f"population size over 500 makes no significant improvement (at most {_NEGLIGIBLE})",
            flat,
        ),
        *group_by_outcome(
            "iterations are more important than population size (100 beats 1000 at equal evaluations)",
            iterations,
        ),
    ]


POPULATION_PART = make_part(
    "figure2-population",
    "Worst PCC by population, at equal iterations and at equal evaluations: mean [95% interval]",
    tuple(
        Column(
            f"{heading}{event}, equal {equal}",
            column,
            where={"event": event, "equal": equal},
            decimals=2,
        )
        for heading, column, event in (
            ("", "similarity", "F-hat"),
            ("", "similarity", "F-tilde"),
            ("J ", "margin", "F-tilde"),
        )
        for equal in ("iterations", "evaluations")
    ),
    prepare=lambda results: add_label_words(results.samples, "event", "population", "equal"),
    verdicts=_judge_populations,
    rows=("population",),
)

# ---- Fig. 3: subset simulation against thresholds and moves ----

_METHODS = {"gaussian": "gaussian", "random walk": "random_walk"}
_THRESHOLDS: dict[Scale, dict[str, tuple[float, ...]]] = {
    "small": {"F-hat": (0.5, 0.6), "F-tilde": (0.5, 0.6)},
    "full": {"F-hat": (0.2, 0.3, 0.4, 0.5, 0.6), "F-tilde": (0.4, 0.5, 0.6, 0.65, 0.7)},
}
_MOVES: dict[Scale, tuple[int, ...]] = {"small": (1, 5, 20), "full": (1, 5, 25, 100, 250)}
#: particles of subset simulation, and samples of Monte Carlo
_SIZES: dict[Scale, tuple[int, int]] = {"small": (100, 5000), "full": (1000, 10_000_000)}


_KINDS = (("error", "error", 2), ("without estimate", "lost", 2), ("seconds", "seconds", 1))


def _make_curves(scale: Scale) -> dict[str, Any]:
    particles, samples = _SIZES[scale]
    metrics = {}
    for event, option in EVENTS.items():
        for threshold in _THRESHOLDS[scale][event]:
            common = {"event": option, "threshold": threshold}
            plain = {**common, "method": "monte_carlo", "samples": samples}
            metrics[f"{event}, {threshold}, Monte Carlo"] = {"misinterpretation_probability": plain}
            subset = {**common, "first": 1.0, "particles": particles, "quantile": 0.1}
            for method, proposal in _METHODS.items():
                for moves in _MOVES[scale]:
                    label = f"{event}, {threshold}, {method}, {moves}"
                    options = {**subset, "moves": moves, "proposal": proposal}
                    metrics[label] = {"misinterpretation_probability": options}
    return {**study_file("safari/studies/figure3.yaml")(scale), "metrics": metrics}


def _compare_with_truth(results: Results) -> pl.DataFrame:
    """Rows of subset simulation with ln P by Monte Carlo over all repeats, its standard error, and the difference.

    There is no difference for a run that ended on a plateau or below the floor.
    """
    frame = add_label_words(results.samples, "event", "threshold", "method", "moves")
    frame = frame.join(results.jobs.select("job", "seconds"), on="job", how="left")
    frame = frame.with_columns(
        pl.concat_str("event", "threshold", "method", separator=", ").alias("label")
    )
    plain = frame.filter(pl.col("method") == "Monte Carlo", pl.col("status") == "ok")
    share = pl.when(pl.col("censored")).then(0.0).otherwise(pl.col("log_probability").exp())
    keys = ["data", "sample", "event", "threshold"]
    variance = pl.when(pl.col("censored")).then(0.0).otherwise((share * pl.col("std_error")) ** 2)
    truth = plain.group_by(keys).agg(
        share.mean().alias("share"), (variance.sum().sqrt() / pl.len()).alias("spread")
    )
    truth = truth.filter(pl.col("share") > 0).with_columns(
        pl.col("share").log().alias("truth"),
        (pl.col("spread") / pl.col("share")).alias("truth_error"),
    )
    found = frame.filter(pl.col("method") != "Monte Carlo").join(
        truth, on=keys, how="left", maintain_order="left"
    )
    error = (
        pl.when(pl.col("censored"))
        .then(None)
        .otherwise(pl.col("log_probability") - pl.col("truth"))
    )
    # the figure is about the estimates themselves, with their few particles: those not resolved are no bounds here
    return found.drop("bound", strict=False).with_columns(
        error.alias("error"),
        error.abs().alias("absolute_error"),
        pl.col("censored").cast(pl.Float64).alias("lost"),
    )


def _judge_curves(frame: pl.DataFrame) -> list[Verdict]:
    if not len(frame):
        return []
    moves = sorted(frame["moves"].drop_nulls().unique().to_list(), key=int)
    accurate: Outcomes = {}
    better: Outcomes = {}
    for method in _METHODS:
        own = frame.filter(pl.col("method") == method)
        known = own.filter(pl.col("moves") == moves[-1], pl.col("truth").is_not_null())
        accurate[method] = all_hold(
            _is_accurate(group) for _, group in known.group_by("label", maintain_order=True)
        )
        better[method] = all_above(own, [(moves[0], moves[-1])], "absolute_error", "moves")
    return [
        *group_by_outcome(
            f"SS overlaps with SMC (with most moves, within {_ACCURATE} of ln P, our reading)",
            accurate,
        ),
        *group_by_outcome(
            "with increased MH steps the accuracy of SS is significantly improved", better
        ),
    ]


def _is_accurate(runs: pl.DataFrame) -> bool | None:
    """Whether the mean error of runs is small, given the error of Monte Carlo; not if most have no estimate."""
    errors = runs["error"].drop_nulls().to_numpy()
    if 2 * len(errors) < len(runs):
        return False
    mean, low, high = mean_interval(errors)
    reach = 1.96 * float(runs["truth_error"][0])
    return is_within((mean, low - reach, high + reach), 0, _ACCURATE)


CURVE_PART = make_part(
    "figure3",
    "ln P by threshold of PCC and moves M, two kinds of moves, over repeated runs: mean [95% interval]",
    (
        *(
            log_probability_column(
                f"ln P, {name}", "log_probability", where={"method": name}, censored="censored"
            )
            for name in _METHODS
        ),
        Column("ln P, Monte Carlo", "truth", where={"method": "gaussian"}, decimals=2),
        Column("its standard error", "truth_error", where={"method": "gaussian"}, decimals=2),
        *(
            Column(f"{kind}, {name}", column, where={"method": name}, decimals=decimals)
            for kind, column, decimals in _KINDS
            for name in _METHODS
        ),
    ),
    study=_make_curves,
    prepare=_compare_with_truth,
    verdicts=_judge_curves,
    rows=("event", "threshold", "moves"),
)
