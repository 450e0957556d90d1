"""Rates of all metrics that repeat passes, as shares of bare loops; of this version, and of an older one.

    OMP_NUM_THREADS=1 python benchmarks/speed/shares.py [--repeats 3] [--rows 128]
    OMP_NUM_THREADS=1 python benchmarks/speed/shares.py --before OLD/src --only auto:500 block:500 --samples 1 8

Each row of the table is one metric with input x gradient on the bundled LeNet-5, and one number of samples. Corruption
curves have the series and the network of `benchmarks/speed/corruption.py`. A rate is evaluations per second of
processor time of one thread. A round measures the bare loop just before and after the metric, in the same process, in
batches of `--rows`. The share is the metric's rate over that of the bare loop. Numbers are medians over rounds.

- The bare loop makes a pass forward and backward for each evaluation; for AOPC and corruption curves, which explain a
  sample once, it makes a pass forward.
- "Same passes" is for searches that ask for directions: this bare loop also makes a gradient of second order for each
  direction.
- `--before` names the `src` folder of an older version. It is measured by the same code in a process of its own, and
  rounds of both versions take turns. What the older version cannot do is "-".
- All processes keep freed memory, as `Model` has them do, so that the bare loop has the same memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import corruption
import torch
from bare_model import Pass, load_lenet, measure_pass

import standfast
from standfast.metrics import Metric
from standfast.metrics.probe import Probe

BALL = standfast.LinfBall(0.3)
SEARCHES = ("random", "genetic", "block", "sign", "gradient", "auto")
AIMS = ((1, 0.75), (8, 0.9))  # numbers of samples, and the share that searches are to reach
#: the same for small budgets, where a search of a few samples does not fill a batch
SMALL = {
    ("auto", 500): ((1, 0.3), (4, None), (8, 0.6), (24, None)),
    ("auto", 2000): ((1, 0.3), (4, None), (8, 0.6), (24, None)),
    ("block", 500): ((1, 0.6), (4, None), (8, None), (24, None)),
    ("block", 2000): ((1, 0.75), (4, None), (8, None), (24, None)),
}
DIRECTED = ("sign", "gradient", "auto")  # searches that ask for directions
COLUMNS = ("evaluations/s", "share", "same passes")
# glibc keeps freed memory from the start: by itself it begins to do so at some time, and rates before and after differ.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**26)}


@dataclass(frozen=True)
class Work:
    """What a row of the table measures.

    Attributes:
        name: for `--only`.
        samples: how many digits or series.
        aim: the share that is wanted, if there is an aim.
        make: the metric; None for corruption curves.
        passes: the bare passes to compare with; "second" besides "both" counts directions apart.
    """

    name: str
    samples: int
    aim: float | None
    make: Callable[[], Metric] | None
    passes: tuple[Pass, ...] = ("both",)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.samples}"


def list_works() -> list[Work]:
    """The rows of the table."""
    get = standfast.metrics.get
    event = {"neighbourhood": BALL, "threshold": 0.5, "floor": -8.0, "budget": 10_000}
    works = [
        Work("probability", n, None, partial(get, "misinterpretation_probability", **event))
        for n in (1, 8)
    ]
    for search in SEARCHES:
        make = partial(get, "worst_case", neighbourhood=BALL, search=search, budget=5000)
        passes: tuple[Pass, ...] = ("both", "second") if search in DIRECTED else ("both",)
        works += [Work(search, n, aim, make, passes) for n, aim in AIMS]
    for (search, budget), aims in SMALL.items():
        make = partial(get, "worst_case", neighbourhood=BALL, search=search, budget=budget)
        passes = ("both", "second") if search in DIRECTED else ("both",)
        works += [Work(f"{search}:{budget}", n, aim, make, passes) for n, aim in aims]
    works += [
        Work("data_senc", n, 0.9, partial(get, "data_sensitivity_consistency", masks=5000))
        for n in (1, 8)
    ]
    for layer in ("features.conv2", "classifier.fc2"):
        make = partial(get, "parameter_sensitivity_consistency", layers=(layer,), masks=5000)
        works.append(Work(f"parameter_senc:{layer}", 1, 0.9, make))
    works.append(Work("corruption_curve", 60, 0.9, None, ("forward",)))
    works.append(Work("aopc", 60, None, partial(get, "aopc"), ("forward",)))
    return works


@contextmanager
def count_directions() -> Iterator[Callable[[], int]]:
    """Within the context, the evaluations of all probes that asked for directions are counted."""
    count, gradient = 0, Probe.gradient

    def ask(self: Probe, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        before = int(self.evaluations.sum())
        found = gradient(self, *args, **kwargs)
        count += int(self.evaluations.sum()) - before
        return found

    with mock.patch.object(Probe, "gradient", ask):
        yield lambda: count


def measure_digits(work: Work, rows: int) -> dict[str, float]:
    """The rate of a metric on digits and its shares, by the name of the column."""
    assert work.make is not None
    model, inputs = load_lenet(work.samples, rows, "cpu")
    batch, metric = inputs[:1].repeat(rows, 1, 1, 1), work.make()
    before = [measure_pass(model.module, batch, kind) for kind in work.passes]
    with count_directions() as directions:
        start = time.process_time()
        result = metric(model, "input_x_gradient", inputs)
        seconds = time.process_time() - start
    after = [measure_pass(model.module, batch, kind) for kind in work.passes]
    first, *second = ((a + b) / 2 for a, b in zip(before, after, strict=True))
    count = int(result.model_evaluations.sum())
    found = {"evaluations/s": count / seconds, "share": count * first / seconds}
    if second:
        found["same passes"] = ((count - directions()) * first + directions() * second[0]) / seconds
    return found


def measure_series(work: Work, rows: int) -> dict[str, float]:
    """The same for corruption curves of random series."""
    generator = torch.Generator().manual_seed(0)
    inputs, maps = torch.randn(
        2, work.samples, corruption.CHANNELS, corruption.STEPS, generator=generator
    )
    everything = (-float("inf"), float("inf"))
    model = standfast.Model(corruption.make_network(32), everything, device="cpu", batch_size=rows)
    metric = corruption.CorruptionCurve(fractions=corruption.FRACTIONS[:-1])
    measure_bare = partial(corruption.measure_bare_rate, model, inputs, 40 * work.samples, rows)
    before = measure_bare()
    _, rate = corruption.measure_corruption_rate(model, inputs, maps, metric)
    return {"evaluations/s": rate, "share": 2 * rate / (before + measure_bare())}


def serve(rows: int) -> None:
    """Measure the rows whose titles come from stdin, and write what was found to stdout, a line of JSON for each."""
    torch.set_num_threads(1)
    works = {work.title: work for work in list_works()}
    for line in sys.stdin:
        work = works[line.strip()]
        try:
            answer: dict[str, Any] = (measure_series if work.make is None else measure_digits)(
                work, rows
            )
        except Exception as error:  # an older version may lack a search or a metric
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Version:
    """A process that measures one version of standfast.

    Args:
        title: of its columns.
        source: its `src` folder; None for the version that is imported here.
        rows: in a batch.
    """

    def __init__(self, title: str, source: Path | None, rows: int) -> None:
        self.title = title
        environment = dict(os.environ, OMP_NUM_THREADS="1", **KEPT_MEMORY)
        if source is not None:
            environment["PYTHONPATH"] = str(source.resolve(strict=True))
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", "--rows", str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def measure(self, work: Work) -> dict[str, float]:
        """The columns of one round; empty where the version cannot do this."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(work.title, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            print(f"{self.title}, {work.title}: {answer['error']}", file=sys.stderr, flush=True)
            return {}
        return answer


def describe(rounds: list[dict[str, float]]) -> list[str]:
    """A cell for each column: the median over rounds, "-" where there is none."""
    cells = []
    for column, form in zip(COLUMNS, (",.0f", ".2f", ".2f"), strict=True):
        values = [each[column] for each in rounds if column in each]
        cells.append(f"{statistics.median(values):{form}}" if values else "-")
    return cells


def main() -> None:
    """Measure and print."""
    works = list_works()
    names = sorted({work.name for work in works})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--samples", type=int, nargs="+", help="only rows with so many")
    parser.add_argument("--before", type=Path, metavar="SRC")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.rows)
        return
    versions = [Version("before", options.before, options.rows)] if options.before else []
    versions.append(Version("now", None, options.rows))
    columns = [f"{version.title}: {column}" for version in versions for column in COLUMNS]
    print(f"| work | samples | {' | '.join(columns)} | aim |")
    print(f"| --- | --- |{' ---: |' * (len(columns) + 1)}", flush=True)
    for work in works:
        if work.name in options.only and work.samples in (options.samples or [work.samples]):
            rounds = [
                [version.measure(work) for version in versions] for _ in range(options.repeats)
            ]
            cells = [cell for own in zip(*rounds, strict=True) for cell in describe(list(own))]
            aim = "-" if work.aim is None else f"{work.aim:.2f}"
            print(f"| {work.name} | {work.samples} | {' | '.join(cells)} | {aim} |", flush=True)


if __name__ == "__main__":
    main()
