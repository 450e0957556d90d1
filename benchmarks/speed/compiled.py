"""What compiling, exporting, channels-last and bfloat16 gain: predictions and explanations a second, and a metric's.

    python benchmarks/speed/compiled.py [--model lenet5-mnist] [--side 28] [--channels 1] [--rows 128]
        [--backend inductor]

Rows of the table are forms of one model. "Forward" and "explained" are rows a second of `model.logits` and of
input x gradient at batches of `--rows`; "metric" is evaluations a second of data SenC with 1000 masks. With one thread
of a CPU, times are processor times. The time to compile is the first call's, and is not in the rates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import standfast
from standfast.metrics import DataSensitivityConsistency


def read_clock(device: torch.device) -> float:
    """The time in seconds, after all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (
        time.process_time()
        if device.type == "cpu" and torch.get_num_threads() == 1
        else time.perf_counter()
    )


def make_forms(
    load: Callable[[], nn.Module], x: Tensor, backend: str
) -> dict[str, Callable[[], tuple[nn.Module, Tensor]]]:
    """Functions that make the model in each form, with the inputs that it wants."""

    def export() -> nn.Module:
        return torch.export.export(
            load(), (x[:2],), dynamic_shapes=({0: torch.export.Dim("n")},)
        ).module()

    last = torch.channels_last
    return {
        "as it is": lambda: (load(), x),
        f"torch.compile, {backend}": lambda: (torch.compile(load(), backend=backend), x),  # type: ignore[return-value]
        "torch.export": lambda: (export(), x),
        "channels-last": lambda: (load().to(memory_format=last), x.to(memory_format=last)),
        "bfloat16": lambda: (load().bfloat16(), x.bfloat16()),
        f"bfloat16, {backend}": lambda: (
            torch.compile(load().bfloat16(), backend=backend),
            x.bfloat16(),
        ),
    }


def measure(work: Callable[[], int], device: torch.device, seconds: float = 2.0) -> float:
    """The best rate of several calls that return how many rows they ran; other processes only make it smaller."""
    rates: list[float] = []
    begin = time.perf_counter()
    while len(rates) < 5 or time.perf_counter() - begin < seconds:
        start = read_clock(device)
        count = work()
        rates.append(count / (read_clock(device) - start))
    return max(rates)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="lenet5-mnist")
    parser.add_argument("--side", type=int, default=28)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    x = torch.rand(
        options.rows, options.channels, options.side, options.side, device=options.device
    )

    def load() -> nn.Module:
        module: nn.Module = standfast.zoo.load(options.model).to(options.device).eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module

    metric = DataSensitivityConsistency(segments="grid", masks=1000)
    explainer = standfast.explainers.get("input_x_gradient")
    print(f"{options.model}, {options.rows} rows, {options.device}, {options.threads} threads\n")
    print(
        "| form | first call, s | forward, rows/s | explained, rows/s | metric, evaluations/s | times as fast |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    base: list[float] = []
    for name, make in make_forms(load, x, options.backend).items():
        module, inputs = make()
        model = standfast.Model(module, (0.0, 1.0), device=options.device, batch_size=options.rows)
        start = time.perf_counter()
        model.logits(inputs)
        explainer(model, inputs)
        metric(model, explainer, inputs[:1])
        first = time.perf_counter() - start

        def predict(model: standfast.Model = model, inputs: Tensor = inputs) -> int:
            return len(model.logits(inputs))

        def explain(model: standfast.Model = model, inputs: Tensor = inputs) -> int:
            with model.session():
                return len(explainer.attribute_all(model, inputs, None)[0])

        def evaluate(model: standfast.Model = model, inputs: Tensor = inputs) -> int:
            return int(metric(model, explainer, inputs[:4]).model_evaluations.sum())

        rates = [measure(work, model.device) for work in (predict, explain, evaluate)]
        base = base or rates
        shares = ", ".join(f"{rate / own:.2f}" for rate, own in zip(rates, base, strict=True))
        print(
            f"| {name} | {first:.1f} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {shares} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
