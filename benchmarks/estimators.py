"""Estimators of rare probabilities beside each other: the tables and the figure of docs/estimators.md.

    python benchmarks/estimators.py            everything (half an hour of one core); writes the page and its figure
    python benchmarks/estimators.py --quick    a tenth of the runs on four problems (a few minutes); only prints

`--part exact|widths|model` runs one part, `--runs` scales the numbers of runs (30: as they are), `--tables` runs
nothing and writes the page from what there is. Every run is seeded by its name and kept in a cache file
(`build/estimators.jsonl`), one line each: a command that was stopped goes on where it was. Delete the file after
changing an estimator.
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
from estimator_cases import BLOCK, CASES, ESTIMATORS, MONTE_CARLO, QUICK, monte_carlo_hits, plan, seed_of

ROOT = Path(__file__).resolve().parents[1]
PAGE, CACHE = ROOT / "docs" / "estimators.md", ROOT / "build" / "estimators.jsonl"
PARTS, FULL = ("exact", "widths", "model"), 30
Key = tuple[str, str, int]


class Cache:
    """Runs by case, estimator and number; a line of JSON each, written as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Key, dict[str, Any]] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # cut off by a kill
                continue
            self.runs[record["case"], record["estimator"], record["run"]] = record
        if text and not text.endswith("\n"):
            with path.open("a") as file:
                file.write("\n")

    def add(self, key: Key, values: dict[str, Any]) -> None:
        record = dict(zip(("case", "estimator", "run"), key, strict=True)) | values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.runs[key] = record


def tasks(parts: tuple[str, ...], runs: int, only: tuple[str, ...] | None = None) -> list[Key]:
    """What is to be run, evenly: after half of the time every row has about half of its runs."""
    found: dict[Key, float] = {}
    for part in parts:
        for case, estimator, planned in plan(part):
            count = math.ceil(planned * runs / FULL)
            if only is None or case in only:
                found.update({(case, estimator, run): (run + 0.5) / count for run in range(count)})
    return sorted(found, key=lambda key: found[key])


def execute(todo: list[Key], cache: Cache) -> None:
    """The runs that the cache does not have."""
    cases = {case.name: case for case in CASES}
    left = [key for key in todo if key not in cache.runs]
    for done, (name, estimator, run) in enumerate(left):
        case, start = cases[name], time.process_time()
        if estimator == MONTE_CARLO:
            values: dict[str, Any] = {"hits": monte_carlo_hits([case], run)[name], "evaluations": BLOCK}
        else:
            problem = case.build()
            values = vars(ESTIMATORS[estimator](problem, seed_of(name, estimator, run)))
            values = values | {"truth": problem.truth}
        cache.add((name, estimator, run), values | {"seconds": round(time.process_time() - start, 3)})
        print(f"\r{done + 1}/{len(left)} {name}: {estimator}".ljust(100)[:100], end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then write the tables and the figure, or print the tables."""
    import estimator_figure
    import estimator_page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    parser.add_argument("--page", type=Path, default=None, help="the page to write (docs/estimators.md)")
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts = PARTS if options.part is None else (options.part,)
    runs = options.runs or (FULL // 10 if options.quick else FULL)
    cache, todo = Cache(options.cache), tasks(parts, runs, QUICK if options.quick else None)
    if not options.tables:
        execute(todo, cache)
    page = options.page or (None if options.quick else PAGE)
    shown = todo if page is None else tasks(PARTS, runs)  # a page holds all parts that there are runs of
    results = [cache.runs[key] for key in shown if key in cache.runs]
    summaries = estimator_page.summarise(results)
    estimator_page.publish(summaries, results, page)
    if page is not None:
        page.with_suffix(".svg").write_text(estimator_figure.draw(summaries))


if __name__ == "__main__":
    main()
