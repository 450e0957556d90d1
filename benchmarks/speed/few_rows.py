"""What few inputs cost, which are padded to 16 rows, and in which batches a row has the same bits.

    python benchmarks/speed/few_rows.py [--network lenet5] [--rows 1 8 16 32] [--repeats 7]
    python benchmarks/speed/few_rows.py --bits [--network lite0]

Costs: a call of saliency for so many inputs, in bare forward-backward passes for each of them. A bare pass is one of 16
rows. Processor time of one thread; calls and passes take turns; the median of the quotients.

Bits: how many rows have other logits, and how many another gradient of a logit, in batches of so many rows than in
batches of 16.

`lenet5` is bundled. `lite0` is the trained EfficientNet-lite0, for photos of 224 x 224
(`papers/natural_changes/photos.py` says what it needs). `convolutions` and `perceptron` have random weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from bare_model import measure_pass, read_clock

import standfast

NETWORKS = ("lenet5", "lite0", "convolutions", "perceptron")
USUAL = 16
MOST = 64
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 64)


def load_network(name: str, rows: int) -> tuple[nn.Module, Tensor]:
    """A network in evaluation mode with frozen weights, and so many inputs of it within [0, 1]."""
    torch.manual_seed(0)
    if name == "lenet5":
        digits = standfast.data.bundled("digits").inputs
        module, inputs = standfast.zoo.load("lenet5-mnist"), digits.repeat(2, 1, 1, 1)
    elif name == "lite0":
        from papers.natural_changes.photos import load_lite0
        from papers.photos import load_photos

        module, inputs = load_lite0(), load_photos(rows, 224)
    elif name == "convolutions":
        module = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
            *(nn.Flatten(), nn.Linear(1024, 10)),
        )
        inputs = torch.rand(rows, 3, 64, 64)
    else:
        module = nn.Sequential(
            nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
        )
        inputs = torch.rand(rows, 13)
    return module.eval().requires_grad_(False), inputs[:rows]


def print_costs(name: str, counts: list[int], repeats: int) -> None:
    """Print how many bare passes a row saliency takes for each number of inputs."""
    module, inputs = load_network(name, max(*counts, USUAL))
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    saliency = standfast.explainers.get("saliency")
    targets = model.predict(inputs)
    quotients: dict[int, list[float]] = {count: [] for count in counts}
    for number in range(repeats + 1):
        for count in counts:
            bare = measure_pass(module, inputs[:USUAL], "both", 1)
            start = read_clock(model.device)
            saliency(model, inputs[:count], targets[:count])
            quotient = (read_clock(model.device) - start) / (count * bare)
            if number:  # the first round warms up
                quotients[count].append(quotient)
    print(f"| network | {' | '.join(str(count) for count in counts)} |")
    print(f"| --- |{' ---: |' * len(counts)}")
    print(
        f"| {name} | {' | '.join(f'{statistics.median(quotients[count]):.2f}' for count in counts)} |"
    )


def differentiate(module: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of a batch, and the gradients of each row's largest one."""
    leaf = batch.clone().requires_grad_(True)
    logits = module(leaf)
    (gradient,) = torch.autograd.grad(logits.amax(1).sum(), leaf)
    return logits.detach(), gradient


def differentiate_in_batches(module: nn.Module, inputs: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The logits and the gradients of as many inputs as fill batches of this size."""
    whole = len(inputs) // size * size
    batches = [differentiate(module, batch) for batch in inputs[:whole].split(size)]
    return torch.cat([logits for logits, _ in batches]), torch.cat(
        [gradient for _, gradient in batches]
    )


def count_different(rows: Tensor, others: Tensor) -> int:
    """How many rows differ from the others in any bit that is a number."""
    return int((rows != others[: len(rows)]).flatten(1).any(1).sum())


def print_bits(name: str) -> None:
    """Print how many rows differ from those in batches of 16, for each size of a batch."""
    module, inputs = load_network(name, 2 * USUAL if name == "lite0" else MOST)
    logits, gradients = differentiate_in_batches(module, inputs, USUAL)
    print("| network | batch | rows | other logits | another gradient |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for size in SIZES:
        if size > len(inputs):
            break
        own_logits, own_gradients = differentiate_in_batches(module, inputs, size)
        differing = count_different(own_logits, logits), count_different(own_gradients, gradients)
        print(
            f"| {name} | {size} | {len(own_logits)} | {differing[0]} | {differing[1]} |", flush=True
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=NETWORKS, default="lenet5")
    parser.add_argument("--bits", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.bits:
        print_bits(options.network)
    else:
        print_costs(options.network, options.rows, options.repeats)


if __name__ == "__main__":
    main()
