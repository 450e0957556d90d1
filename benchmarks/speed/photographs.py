"""Rate and peak memory of every metric at 224 x 224, on ResNet-50 and ViT-B/16 with random weights.

    python benchmarks/speed/photographs.py                                   both networks, all metrics, saliency
    python benchmarks/speed/photographs.py --networks vit_b16 --explainers saliency integrated_gradients:steps=4
    python benchmarks/speed/photographs.py --part rows                       memory of a row of each network
    python benchmarks/speed/photographs.py --part estimates                  what is estimated, and what then happens

Each network has a process of its own. Budgets are tiny: some batches for each metric. Times are CPU time of one
thread, so other processes hardly matter. The columns:

- rows / evaluation: rows that the module forwarded for each evaluation that the metric counts.
- share: the time in which a bare loop makes the metric's evaluations, over the time of the metric. The loop makes an
  explanation by `rows_per_input` passes forward and backward, and any other evaluation by one pass forward. An
  evaluation of an attack (c-Eval and its relatives) is a pass forward and backward.
- of its rows: the time in which a bare loop forwards the rows that the module really forwarded, with a backward pass
  where gradients were on, over the time of the metric. What is missing to 1 is not spent in the module.
- memory: the peak of the process above what it had before, in MB, and as a multiple of that of a bare pass forward and
  backward of 16 rows.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import standfast
from standfast.metrics import Metric
from standfast.study.forecast.trials import measure_peak

ROWS = 16
CPU = torch.device("cpu")
NETWORKS = {
    "resnet50": ("ResNetForImageClassification", "ResNetConfig"),
    "vit_b16": ("ViTForImageClassification", "ViTConfig"),
    "swin_t": ("SwinForImageClassification", "SwinConfig"),
    "convnext_t": ("ConvNextForImageClassification", "ConvNextConfig"),
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PROCESSOR = {"image_mean": MEAN, "image_std": STD, "size": {"height": 224, "width": 224}}
BALL = standfast.LinfBall(4 / 255)
#: metrics whose evaluations are those of an attack, with gradients
ATTACKS = ("attribution_attack", "c_eval", "c_eval_plot", "near_affinity")
#: not the default, whose first stage takes up to a gradient for each of 1000 classes where the weights are random
ATTACK = "alma:steps=3"


def make_metrics(network: str) -> dict[str, tuple[int, Metric]]:
    """Of each metric a configuration of a few batches, and how many images it gets."""
    get = standfast.metrics.get
    layers = {
        "resnet50": (
            "module.resnet.embedder.embedder.convolution",
            "module.resnet.encoder.stages.3.layers.2.layer.2.convolution",
        ),
        "vit_b16": (
            "module.vit.embeddings.patch_embeddings.projection",
            "module.vit.layers.11.mlp.fc1",
        ),
    }
    regions = torch.zeros(ROWS, 224, 224, dtype=torch.bool)
    regions[:, 56:168, 56:168] = True
    return {
        "worst_case": (1, get("worst_case", neighbourhood=BALL, search="random", budget=34)),
        "worst_case, gradient": (
            ROWS,
            get("worst_case", neighbourhood=BALL, search="gradient", budget=4),
        ),
        "misinterpretation_probability": (
            1,
            get(
                "misinterpretation_probability",
                neighbourhood=BALL,
                particles=16,
                first=2.0,
                moves=1,
                budget=48,
            ),
        ),
        "max_sensitivity": (1, get("max_sensitivity", neighbourhood=BALL, samples=32)),
        "local_lipschitz": (1, get("local_lipschitz", neighbourhood=BALL, samples=32)),
        "attribution_attack": (
            ROWS,
            get("attribution_attack", neighbourhood=BALL, steps=1, restarts=1),
        ),
        "c_eval": (ROWS, get("c_eval", attack=ATTACK)),
        "c_eval_plot": (ROWS, get("c_eval_plot", attack=ATTACK, fractions=(0.5,))),
        "near_affinity": (ROWS, get("near_affinity", attack=ATTACK, fractions=(0.5,))),
        "data_sensitivity_consistency": (
            1,
            get("data_sensitivity_consistency", masks=32, permutations=99, resamples=50),
        ),
        "parameter_sensitivity_consistency": (
            1,
            get(
                "parameter_sensitivity_consistency",
                layers=layers.get(network, "all"),
                masks=16,
                permutations=99,
                resamples=50,
            ),
        ),
        "corruption_curve": (1, get("corruption_curve", samples=1)),
        "aopc": (1, get("aopc", steps=32, samples=1)),
        "log_odds": (ROWS, get("log_odds")),
        "relevance_localisation": (ROWS, get("relevance_localisation", regions=regions)),
    }


def build(network: str) -> nn.Module:
    """The architecture of the hub with random weights, for images in [0, 1]."""
    import transformers

    kind, config = NETWORKS[network]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = getattr(transformers, kind)(getattr(transformers, config)(num_labels=1000))
    for parameter in module.eval().parameters():
        parameter.requires_grad_(False)
    wrapped: nn.Module = standfast.zoo.from_transformers(module, PROCESSOR, device="cpu").module
    return wrapped


@dataclass
class Counter:
    """Rows that a module forwards, with and without gradients."""

    plain: int = 0
    differentiated: int = 0

    @contextmanager
    def count(self, module: nn.Module) -> Iterator[Counter]:
        def note(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if torch.is_grad_enabled() and args[0].requires_grad:
                self.differentiated += len(args[0])
            else:
                self.plain += len(args[0])

        handle = module.register_forward_pre_hook(note)
        try:
            yield self
        finally:
            handle.remove()


@dataclass
class Bare:
    """CPU seconds of a row, forward and forward-backward, of a bare loop in batches of 16; the median of some turns."""

    module: nn.Module
    x: Tensor
    forward: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)

    def measure(self) -> None:
        began = time.process_time()
        with torch.no_grad():
            self.module(self.x)
        middle = time.process_time()
        self.run_backward()
        self.forward.append((middle - began) / len(self.x))
        self.both.append((time.process_time() - middle) / len(self.x))

    def run_backward(self) -> None:
        leaf = self.x.detach().requires_grad_(True)
        torch.autograd.grad(self.module(leaf).amax(1).sum(), leaf)

    def seconds(self, plain: float, differentiated: float) -> float:
        """How long the loop takes for so many rows, by the two turns next to now."""
        near = slice(-2, None)
        means = [sum(turns[near]) / len(turns[near]) for turns in (self.forward, self.both)]
        return plain * means[0] + differentiated * means[1]


def measure_memory(work: Callable[[], Any]) -> tuple[float, Any]:
    """The peak of the process above what it has now, in MB, and what `work` returns."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    before = 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
    with measure_peak(CPU) as peak:
        found = work()
    return (peak[0] - before) / 1e6, found


def run(network: str, part: str, options: argparse.Namespace) -> None:
    """A part for one network, in a process of its own."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = build(network)
    torch.manual_seed(1)
    {"rates": measure_rates, "rows": measure_rows, "estimates": measure_estimates}[part](
        network, module, options
    )


def measure_rates(network: str, module: nn.Module, options: argparse.Namespace) -> None:
    bare = Bare(module, torch.rand(ROWS, 3, 224, 224))
    bare.measure()  # warms up
    bare.forward.clear(), bare.both.clear()
    usual, _ = measure_memory(bare.measure)
    print(
        f"{network}: a bare row takes {bare.forward[0]:.3f} s forward and {bare.both[0]:.3f} s with the gradient;"
        f" 16 rows with their gradients take {usual:,.0f} MB",
        flush=True,
    )
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    for kind in ("forward", "backward"):
        model.row_budget(bare.x, 1, kind, 1 << 20)
    cells = 0
    for name, (images, metric) in make_metrics(network).items():
        for label in options.explainers:
            if options.metrics and metric.name not in options.metrics:
                continue
            explainer = standfast.explainers.get(label)
            inputs = bare.x[:images]
            with Counter().count(module) as counter:

                def work(
                    metric: Metric = metric, inputs: Tensor = inputs, explainer: Any = explainer
                ) -> Any:
                    began = time.process_time()
                    generator = torch.Generator().manual_seed(0)
                    result = metric(model, explainer, inputs, generator=generator)
                    return result, time.process_time() - began

                memory, (result, seconds) = measure_memory(work)
            cells += 1
            if cells % 4 == 0:
                bare.measure()
            evaluations = int(result.model_evaluations.sum())
            cost = metric.cost()
            explanations = images * cost.explanations if cost.predictions else evaluations
            others = evaluations - explanations
            rows = explainer.rows_per_input * explanations
            wanted = (
                bare.seconds(0, rows + others)
                if metric.name in ATTACKS
                else bare.seconds(others, rows)
            )
            made = bare.seconds(counter.plain, counter.differentiated)
            forwarded = counter.plain + counter.differentiated
            print(
                f"| {network} | {label} | `{name}` | {images} | {evaluations:,}"
                f" | {forwarded / (rows + others):.2f} | {seconds:.1f} | {wanted / seconds:.2f} |"
                f" {made / seconds:.2f} | {memory:,.0f} | {memory / usual:.1f} |",
                flush=True,
            )


def measure_rows(network: str, module: nn.Module, options: argparse.Namespace) -> None:
    """Memory of a row: forward, with a gradient, and with a gradient of a gradient, as attacks on maps make."""

    def forward(x: Tensor) -> None:
        with torch.no_grad():
            module(x)

    def backward(x: Tensor) -> None:
        leaf = x.detach().requires_grad_(True)
        torch.autograd.grad(module(leaf).amax(1).sum(), leaf)

    def twice(x: Tensor) -> None:
        from standfast.explainers.attention.attention_calls import PlainAttention

        with standfast.explainers.smooth_relu(10.0), PlainAttention():
            leaf = x.detach().requires_grad_(True)
            (grad,) = torch.autograd.grad(module(leaf).amax(1).sum(), leaf, create_graph=True)
            torch.autograd.grad(grad.abs().sum(), leaf)

    weights = 4 * sum(parameter.numel() for parameter in module.parameters()) / 1e6
    cells = []
    for work in (forward, backward, twice):
        x = torch.rand(8, 3, 224, 224)
        work(x[:1])
        few, many = (measure_memory(partial(work, x[:rows]))[0] for rows in (4, 8))
        row = (many - few) / 4
        cells.append(f"{row:,.0f} | {int((24_000 - weights - 1000) / max(row, 1)):,}")
    print(f"| {network} | {weights:,.0f} | {' | '.join(cells)} |", flush=True)


def measure_estimates(network: str, module: nn.Module, options: argparse.Namespace) -> None:
    """Evaluations, seconds and memory: estimated, and what then happened."""
    get = standfast.metrics.get
    layers = dict(make_metrics(network))["parameter_sensitivity_consistency"][1].layers  # type: ignore[attr-defined]
    metrics: dict[str, tuple[int, Metric]] = {
        "worst_case": (1, get("worst_case", neighbourhood=BALL, search="random", budget=160)),
        "worst_case, gradient": (
            ROWS,
            get("worst_case", neighbourhood=BALL, search="gradient", budget=12),
        ),
        "max_sensitivity": (1, get("max_sensitivity", neighbourhood=BALL, samples=128)),
        "attribution_attack": (
            ROWS,
            get("attribution_attack", neighbourhood=BALL, steps=6, restarts=1),
        ),
        "c_eval": (ROWS, get("c_eval", attack="alma:steps=6")),
        "data_sensitivity_consistency": (1, get("data_sensitivity_consistency", masks=160)),
        "parameter_sensitivity_consistency": (
            1,
            get(
                "parameter_sensitivity_consistency",
                layers=layers,
                masks=64,
                permutations=99,
                resamples=50,
            ),
        ),
        "corruption_curve": (1, get("corruption_curve")),
        "aopc": (1, get("aopc", steps=100, samples=2)),
    }
    for name, (images, metric) in metrics.items():
        if options.metrics and metric.name not in options.metrics:
            continue
        for label in options.explainers:
            inputs = torch.rand(images, 3, 224, 224, generator=torch.Generator().manual_seed(3))
            model = standfast.Model(module, (0.0, 1.0), device="cpu")
            for kind in ("forward", "backward"):
                model.row_budget(inputs, 1, kind, 1 << 20)
            explainer = standfast.explainers.get(label)
            began = time.process_time()
            with process_clock():
                found = standfast.estimate(
                    model, {label: explainer}, inputs, {name: metric}, controls=False
                )
            trial = time.process_time() - began
            began = time.process_time()
            with measure_peak(CPU) as peak:
                result = metric(
                    model, explainer, inputs, generator=torch.Generator().manual_seed(0)
                )
            seconds = time.process_time() - began
            used = int(result.model_evaluations.sum())
            print(
                f"| {network} | {label} | `{name}` | {used:,} | {found.evaluations / used:.2f} | {seconds:.0f} |"
                f" {found.seconds / seconds:.2f} | {peak[0] / 1e9:.2f} | {found.memory / peak[0]:.2f} | {trial:.0f} |",
                flush=True,
            )


@contextmanager
def process_clock() -> Iterator[None]:
    """Estimates count CPU time here, as everything in this file does."""
    from unittest import mock

    with mock.patch("standfast.study.forecast.trials.time.perf_counter", time.process_time):
        yield


HEADINGS = {
    "rates": "| network | explainer | metric | images | evaluations | rows / evaluation | s | share | of its rows |"
    " MB | x bare |",
    "rows": "| network | weights, MB | forward: MB a row | rows in 24 GB | gradient: MB a row | rows | twice: MB a row"
    " | rows |",
    "estimates": "| network | explainer | metric | evaluations | estimated / used | s | estimated / used | memory, GB |"
    " estimated / used | s of the trial |",
}


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=HEADINGS, default="rates")
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=["resnet50", "vit_b16"])
    parser.add_argument("--explainers", nargs="*", default=["saliency"])
    parser.add_argument("--metrics", nargs="*", default=[])
    options = parser.parse_args()
    print(HEADINGS[options.part], flush=True)
    for network in options.networks:
        process = multiprocessing.get_context("spawn").Process(
            target=run, args=(network, options.part, options)
        )
        process.start()
        process.join()


if __name__ == "__main__":
    main()
