"""What the protection from other explainers costs: CPU time of studies, with an older version and with this one.

    git worktree add --detach OLD COMMIT
    python benchmarks/reliability/study_throughput.py --old OLD [--part workers|tiny|own] [--turns 5]

The two versions take turns, each run in a new process. A number is the median of the quotients of neighbouring runs,
new by old, with the smallest and the largest, and that of the sums of all runs. CPU time is that of all processes
together, with imports of the workers.

    workers   LeNet-5, four bundled explainers, worst case and AOPC, two workers
    tiny      1,000 jobs of a few milliseconds with a bundled explainer, in one process: the costs of each job
    own       as `workers`, with three explainers of the user's in place of three bundled ones
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import from_callable, get
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.study.executors import Executor, InProcess, Processes
from standfast.study.run import run_grid
from standfast.study.store import Store

BUNDLED = ("saliency", "input_x_gradient", "lrp", "gradcam")


def explain_first(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient."""
    leaf = inputs.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(module(leaf).gather(1, targets[:, None]).sum(), leaf)
    return gradient


def explain_second(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Its size."""
    return explain_first(module, inputs, targets).abs()


def explain_third(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Its product with the input."""
    return explain_first(module, inputs, targets) * inputs


def make_grid(samples: int, own: bool) -> Grid:
    """A study as users have them."""
    digits = standfast.data.bundled("digits")[:samples]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), digits.bounds, device="cpu")
    explainers = {name: get(name) for name in BUNDLED[: 1 if own else None]}
    if own:
        functions = {"first": explain_first, "second": explain_second, "third": explain_third}
        explainers |= {name: from_callable(function) for name, function in functions.items()}
    metrics = {
        "worst": WorstCase(standfast.LinfBall(0.1), search="random", budget=500),
        "aopc": standfast.metrics.AOPC(),
    }
    paths = (str(Path(__file__).parent),)
    return Grid(
        {"digits": Samples(digits.inputs)},
        {"lenet": LoadedModel(model)},
        explainers,
        metrics,
        paths=paths,
    )


def make_tiny_grid(jobs: int) -> Grid:
    """Jobs that do next to nothing."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)).eval()
    model = standfast.Model(network, (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(jobs, 1, 4, 4)
    metric = MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    explainers = {"saliency": get("saliency")}
    return Grid(
        {"x": Samples(inputs)},
        {"m": LoadedModel(model)},
        explainers,
        {"m": metric},
        samples_per_job=1,
    )


def read_cpu() -> float:
    """Seconds of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


PARTS: dict[str, tuple[Callable[[], Grid], Callable[[], Executor]]] = {
    "workers": (lambda: make_grid(24, own=False), lambda: Processes(2, threads=1)),
    "own": (lambda: make_grid(24, own=True), lambda: Processes(2, threads=1)),
    "tiny": (lambda: make_tiny_grid(1000), InProcess),
}


def run_once(part: str) -> None:
    """Print the CPU seconds of one run."""
    torch.set_num_threads(1)
    make_part, make_executor = PARTS[part]
    grid, executor = make_part(), make_executor()
    with tempfile.TemporaryDirectory() as folder:
        began = read_cpu()
        summary = run_grid(grid, Store(Path(folder)), executor=executor)
        seconds = read_cpu() - began
    assert not summary.failed
    assert summary.done == summary.planned
    print(f"{seconds:.3f} {summary.planned}")


def measure(source: Path, part: str) -> tuple[float, int]:
    """The CPU seconds and the number of jobs of a run with the version in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--once", part]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, jobs = ended.stdout.split()
    return float(seconds), int(jobs)


def compare(old: Path, part: str, turns: int) -> None:
    """Print the quotients of a part."""
    new = Path(__file__).parents[2]
    quotients: list[float] = []
    totals = {old: 0.0, new: 0.0}
    for turn in range(turns):
        order = (old, new) if turn % 2 else (new, old)
        runs = {source: measure(source, part) for source in order}
        quotients.append(runs[new][0] / runs[old][0])
        for source in order:
            totals[source] += runs[source][0]
        told = ", ".join(
            f"{name} {runs[source][0]:.2f} s" for name, source in (("old", old), ("new", new))
        )
        print(
            f"{part}: {told} ({runs[new][1]} jobs, {time.strftime('%H:%M')})",
            file=sys.stderr,
            flush=True,
        )
    middle = statistics.median(quotients)
    spread = f"{min(quotients):.3f} to {max(quotients):.3f}"
    mean, sums = totals[new] / turns, totals[new] / totals[old]
    print(
        f"{part}: {middle:.3f} ({spread}) times the CPU time, sums {sums:.3f}, {mean:.1f} s a run",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="a checkout of an older version")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="by default all; may be repeated"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--once", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        run_once(options.once)
        return
    if options.old is None:
        parser.error("--old: a checkout of an older version")
    for part in options.part or PARTS:
        compare(options.old.resolve(), part, options.turns)


if __name__ == "__main__":
    main()
