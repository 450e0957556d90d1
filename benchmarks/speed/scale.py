"""The rate of queries by batch size, input size, network size and number of workers, on a CPU or a GPU.

    python benchmarks/speed/scale.py                       all parts; the table and the picture
    python benchmarks/speed/scale.py --parts batch input   some of them
    python benchmarks/speed/scale.py --device cuda         the same on a GPU, for another row of the tables

A query is what most metrics repeat: predict and explain (saliency) a perturbed copy, and compare the maps. The bare
rate is that of a loop of forward-backward passes of the same batches; the share is our rate over it, from the same run.
Weights are random. On a CPU, one thread is used unless `--threads` says otherwise, and the rates of one process count
CPU time, so that other processes do not matter; those of several workers count time on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import torch
from bare_model import measure_bare_rate, wait_for
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import standfast
from standfast.metrics import Call, Probe
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report.charts import COLOURS
from standfast.study.executors import Executor, Processes, Ray
from standfast.study.run import run_grid
from standfast.study.store import Store
from standfast.zoo.networks.lenet import LeNet5
from standfast.zoo.networks.resnet import ResNet18
from standfast.zoo.networks.resnet20 import ResNet20

PICTURE = Path("results/scale.png")
PARTS = ("batch", "input", "network", "workers")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with batch normalisation, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *self._convolution(channels, width, 1, 1),
            nn.ReLU(),
            *self._convolution(width, width, 3, stride),
            nn.ReLU(),
            *self._convolution(width, 4 * width, 1, 1),
        )
        same = channels == 4 * width and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(*self._convolution(channels, 4 * width, 1, stride))
        )
        self.relu = nn.ReLU()

    @staticmethod
    def _convolution(channels: int, width: int, size: int, stride: int) -> tuple[nn.Module, ...]:
        convolution = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        return convolution, nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


def make_resnet50(classes: int = 1000) -> nn.Module:
    """ResNet-50 for images of 224 x 224 (He et al. 2016), with the stride in the 3x3 convolutions."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    layers.append(nn.MaxPool2d(3, 2, padding=1))
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if block == 0 and stage else 1))
            channels = 256 << stage
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


@dataclass(frozen=True)
class Network:
    """A network and the shape of its inputs."""

    make: Callable[[], nn.Module]
    shape: tuple[int, int, int]


NETWORKS = {
    "LeNet-5, 28": Network(LeNet5, (1, 28, 28)),
    "ResNet-20, 32": Network(ResNet20, (3, 32, 32)),
    "ResNet-18, 32": Network(ResNet18, (3, 32, 32)),
    "ResNet-50, 224": Network(make_resnet50, (3, 224, 224)),
}


@dataclass(frozen=True)
class Row:
    """One measurement: rows per second of the bare model and of our queries."""

    part: str
    name: str
    size: float
    bare: float
    ours: float

    @property
    def share(self) -> float:
        return self.ours / self.bare


def build(network: Network, device: str, rows: int) -> tuple[standfast.Model, Tensor]:
    """The model with random weights, and one input."""
    torch.manual_seed(0)
    module = network.make().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    model = standfast.Model(module, (0.0, 1.0), device=device, batch_size=rows)
    return model, torch.rand(1, *network.shape).to(model.device)


def measure(
    part: str, name: str, size: float, network: Network, rows: int, options: argparse.Namespace
) -> Row:
    """Both rates in turn: `options.repeats` times, each for about `options.seconds`; medians."""
    model, x = build(network, options.device, rows)
    copies = (x + 0.01 * torch.rand(rows, *network.shape, device=x.device)).clamp(0, 1)
    origin = torch.zeros(rows, dtype=torch.int64, device=x.device)
    with model.session():
        probe = Probe(
            Call(model, standfast.explainers.get("saliency"), x), "pearson", explain="predicted"
        )

        def query() -> float:
            return _rate(lambda: probe.query(copies, origin), rows, options.seconds, x.device)

        def bare() -> float:
            passes = max(1, int(options.seconds * speed / rows))
            return measure_bare_rate(model.module, copies, rows, passes)

        probe.query(copies, origin)
        measure_bare_rate(model.module, copies, rows, 1)
        speed = measure_bare_rate(model.module, copies, rows, 1)
        pairs = [(bare(), query()) for _ in range(options.repeats)]
    found = Row(
        part, name, size, *(statistics.median(column) for column in zip(*pairs, strict=True))
    )
    print_row(found, model.device)
    return found


def _rate(work: Callable[[], object], rows: int, seconds: float, device: torch.device) -> float:
    count, began = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - began < seconds:
        work()
        count += rows
    wait_for(device)
    return count / (time.perf_counter() - began)


def print_row(row: Row, device: torch.device) -> None:
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} thread(s)"
    )
    print(
        f"| {name} | {row.part} | {row.name} | {row.bare:,.4g} | {row.ours:,.4g} | {row.share:.2f} |",
        flush=True,
    )


def count_operations(network: Network) -> float:
    """Floating-point operations of one forward pass of one input."""
    module, counter = network.make().eval(), FlopCounterMode(display=False)
    with counter, torch.no_grad():
        module(torch.zeros(1, *network.shape))
    return float(counter.get_total_flops())


def by_batch(options: argparse.Namespace) -> Iterator[Row]:
    for rows in (16, 32, 64, 128, 256, 512, 1024):
        yield measure(
            "batch", f"LeNet-5, {rows} rows", rows, NETWORKS["LeNet-5, 28"], rows, options
        )


def by_input(options: argparse.Namespace) -> Iterator[Row]:
    for side in (28, 56, 112, 224):
        network = Network(lambda: ResNet18(width=16), (3, side, side))
        yield measure(
            "input", f"ResNet-18 of width 16, {side} x {side}", side, network, options.rows, options
        )


def by_network(options: argparse.Namespace) -> Iterator[Row]:
    for name, network in NETWORKS.items():
        yield measure("network", name, count_operations(network), network, options.rows, options)


def by_workers(options: argparse.Namespace) -> Iterator[Row]:
    """Jobs of a study a second; the bare rate is that of one worker, times the number of workers."""
    torch.manual_seed(0)
    model = standfast.Model(LeNet5().eval(), (0.0, 1.0), device=options.device, batch_size=64)
    grid = Grid(
        {"noise": Samples(torch.rand(options.jobs, 1, 28, 28))},
        {"lenet": LoadedModel(model)},
        {"saliency": standfast.explainers.get("saliency")},
        {
            "worst": standfast.metrics.WorstCase(
                standfast.LinfBall(0.1), search="random", budget=4000
            )
        },
        samples_per_job=1,
        device=model.device.type,
    )
    kinds: dict[str, Callable[[int], Executor]] = {
        "local": lambda count: Processes(count, threads=1)
    }
    try:
        import ray  # noqa: F401
    except ImportError:
        print("ray is not installed")
    else:
        kinds["ray"] = lambda count: Ray(address=None, workers=count, threads=1)
    for kind, make in kinds.items():
        one, count = 0.0, 1
        while count <= options.workers:
            rate = 4000 * _measure_jobs(grid, make(count))
            one = one or rate
            found = Row("workers", f"{kind}, {count}", count, count * one, rate)
            print_row(found, model.device)
            yield found
            count *= 2


def _measure_jobs(grid: Grid, executor: Executor) -> float:
    """Jobs per second between the first and the last result, so that the start of workers does not count."""
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        seen = 0

        def note(progress: object) -> None:
            nonlocal seen
            done = progress.done  # type: ignore[attr-defined]
            if done > seen:
                seen = done
                times.append(time.perf_counter())

        run_grid(grid, Store(Path(folder)), executor=executor, progress=note)
    return (len(times) - 1) / (times[-1] - times[0])


def draw(rows: list[Row], device: str) -> None:
    """One panel for each part, on logarithmic axes."""
    labels = {
        "batch": "rows of a batch (LeNet-5)",
        "input": "side of the image (ResNet-18 of width 16)",
        "network": "operations of a forward pass",
        "workers": "workers (LeNet-5)",
    }
    parts = [part for part in labels if any(row.part == part for row in rows)]
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(parts), figsize=(3.1 * len(parts), 2.9), squeeze=False)
        for panel, part in zip(panels[0], parts, strict=True):
            own = [row for row in rows if row.part == part]
            groups = {
                name: [r for r in own if r.name.startswith(name)] for name in ("local", "ray")
            }
            named = {k: v for k, v in groups.items() if v} or {"standfast": own}
            for (name, group), colour in zip(named.items(), COLOURS, strict=False):
                panel.loglog(
                    [r.size for r in group], [r.ours for r in group], "o-", color=colour, label=name
                )
            first = next(iter(named.values()))
            ideal = "one worker times n" if part == "workers" else "bare model"
            panel.loglog(
                [r.size for r in first], [r.bare for r in first], "--", color="0.5", label=ideal
            )
            panel.set_xlabel(labels[part])
            if part != "network":
                sizes = [row.size for row in first]
                panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
                panel.xaxis.set_minor_formatter(NullFormatter())
            low, high = panel.get_ylim()
            if high < 10 * low:  # too short for ticks at powers of ten
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6)))
                panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.legend(frameon=False, fontsize=7)
        panels[0][0].set_ylabel(f"rows a second ({device})")
        figure.tight_layout()
        PICTURE.parent.mkdir(exist_ok=True)
        figure.savefig(PICTURE, dpi=130)
        plt.close(figure)
    print(f"picture: {PICTURE}")


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--rows", type=int, default=None, help="of a batch; by default 16, or 256 on a GPU"
    )
    parser.add_argument("--workers", type=int, default=2, help="at most")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = standfast.Model(nn.Linear(2, 2), (0.0, 1.0), device=options.device).device
    options.rows = options.rows or (256 if device.type == "cuda" else 16)
    print(
        "| device | part | case | bare | standfast | share |\n| --- | --- | --- | ---: | ---: | ---: |"
    )
    parts = {"batch": by_batch, "input": by_input, "network": by_network, "workers": by_workers}
    rows: list[Row] = []
    for name, part in parts.items():
        alone = device.type == "cpu" and name != "workers"
        clock = time.process_time if alone and options.threads == 1 else time.perf_counter
        with mock.patch.object(time, "perf_counter", clock):
            rows += part(options) if name in options.parts else ()
    if rows:
        draw(rows, device.type)


if __name__ == "__main__":
    main()
