"""Comparison of estimators of rare probabilities: the tables of papers/safari/estimators.md, and their figure.

    python benchmarks/rare_events/estimators.py            everything (half an hour of one core); writes the page
    python benchmarks/rare_events/estimators.py --quick    a tenth of the runs on four problems (minutes); only prints

`--part exact|model` runs one part. `--runs` scales the numbers of runs (30 leaves them as they are). `--tables`
runs nothing and writes the page from the stored runs. The seed of a run depends on its name. Every run is stored as a
line of a cache file (`build/estimators.jsonl`), so a command that was stopped continues where it was. Delete the file
after changing an estimator.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from cases import (
    BLOCK,
    CASES,
    ESTIMATORS,
    MONTE_CARLO,
    QUICK,
    count_monte_carlo_hits,
    list_runs,
    make_seed,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE, CACHE = ROOT / "papers" / "safari" / "estimators.md", ROOT / "build" / "estimators.jsonl"
FIGURE = ROOT / "docs" / "estimators.svg"  # of `PAGE`; that of another page stands beside it
PARTS, FULL = ("exact", "model"), 30
Key = tuple[str, str, int]


class Cache:
    """Runs by case, estimator and number, each stored as a line of JSON as soon as it has finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Key, dict[str, Any]] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # an incomplete line of a process that was killed
                continue
            self.runs[record["case"], record["estimator"], record["run"]] = record
        if text and not text.endswith("\n"):
            with path.open("a") as file:
                file.write("\n")

    def add(self, key: Key, values: dict[str, Any]) -> None:
        """Store one run, in memory and in the file."""
        record = dict(zip(("case", "estimator", "run"), key, strict=True)) | values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.runs[key] = record


def list_tasks(parts: tuple[str, ...], runs: int, only: tuple[str, ...] | None = None) -> list[Key]:
    """The runs to make, in an order in which all rows of a table advance equally fast."""
    found: dict[Key, float] = {}
    for part in parts:
        for case, estimator, planned in list_runs(part):
            count = math.ceil(planned * runs / FULL)
            if only is None or case in only:
                found.update({(case, estimator, run): (run + 0.5) / count for run in range(count)})
    return sorted(found, key=lambda key: found[key])


def run_tasks(todo: list[Key], cache: Cache) -> None:
    """Make the runs that are not in the cache."""
    cases = {case.name: case for case in CASES}
    left = [key for key in todo if key not in cache.runs]
    for done, (name, estimator, run) in enumerate(left):
        case, start = cases[name], time.process_time()
        if estimator == MONTE_CARLO:
            values: dict[str, Any] = {
                "hits": count_monte_carlo_hits([case], run)[name],
                "evaluations": BLOCK,
            }
        else:
            problem = case.build()
            values = vars(ESTIMATORS[estimator](problem, make_seed(name, estimator, run)))
            values = values | {"truth": problem.truth}
        cache.add(
            (name, estimator, run), values | {"seconds": round(time.process_time() - start, 3)}
        )
        print(
            f"\r{done + 1}/{len(left)} {name}: {estimator}".ljust(100)[:100],
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then write the tables and the figure, or print the tables."""
    import figure
    import tables

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", action="store_true", help="run nothing, use stored runs")
    parser.add_argument(
        "--page", type=Path, default=None, help="the page to write (papers/safari/estimators.md)"
    )
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts = PARTS if options.part is None else (options.part,)
    runs = options.runs or (FULL // 10 if options.quick else FULL)
    cache, todo = Cache(options.cache), list_tasks(parts, runs, QUICK if options.quick else None)
    if not options.tables:
        run_tasks(todo, cache)
    page = options.page or (None if options.quick else PAGE)
    # a page holds all parts that there are runs of
    shown = todo if page is None else list_tasks(PARTS, runs)
    results = [cache.runs[key] for key in shown if key in cache.runs]
    summaries = tables.summarise(results)
    tables.publish(summaries, page)
    if page is not None:
        target = FIGURE if page == PAGE else page.with_suffix(".svg")
        target.write_text(figure.draw(summaries))


if __name__ == "__main__":
    main()
