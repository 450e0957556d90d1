"""What explainers cost, in bare passes: each explanation of a batch beside a forward-backward pass of the same rows.

    python benchmarks/speed/explainers.py [--explainers saliency lrp ...] [--rows 16 128] [--repeats 15]

The bundled LeNet-5 and digits, one CPU thread, processor time. Pass and explanation take turns; the number is the
median of the quotients.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from bare_model import load_lenet, measure_pass, read_clock

import standfast
from standfast.explainers import Explainer

BACKWARD_RULES = (
    *(
        "saliency",
        "guided_backprop",
        "deeplift",
        "lrp",
        "lrp_epsilon_plus",
        "lrp_epsilon_alpha2_beta1",
    ),
    *("lrp_epsilon_gamma_box", "deep_taylor"),
)


def measure_quotient(
    model: standfast.Model, explainer: Explainer, x: torch.Tensor, repeats: int
) -> float:
    """How many forward-backward passes an explanation of `x` takes."""
    found = []
    with model.session():
        for _ in range(repeats + 1):
            bare = len(x) * measure_pass(model.module, x, "both", 1)
            start = read_clock(x.device)
            explainer.attribute(model, x, None)
            found.append((read_clock(x.device) - start) / bare)
    return statistics.median(found[1:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--explainers", nargs="+", default=list(BACKWARD_RULES))
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| explainer | {' | '.join(f'{rows} rows' for rows in options.rows)} |")
    print(f"| --- |{' ---: |' * len(options.rows)}")
    for name in options.explainers:
        quotients = []
        for rows in options.rows:
            model, digits = load_lenet(rows, rows, "cpu")
            x = digits.repeat(-(-rows // len(digits)), 1, 1, 1)[:rows]
            quotients.append(
                measure_quotient(model, standfast.explainers.get(name), x, options.repeats)
            )
        print(f"| {name} | {' | '.join(f'{quotient:.2f}' for quotient in quotients)} |", flush=True)


if __name__ == "__main__":
    main()
