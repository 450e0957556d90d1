"""What values of stability are acceptable: reference points of two bundled networks, one of them adversarially trained.

    python benchmarks/verdict/acceptable.py --digits 24 --budget 100

Prints a Markdown table for each metric: a row for each explainer and network, with the value at changed inputs, the
judgement, and what the same explainer reaches for identical maps, other inputs of the same class, scrambled weights,
and unrelated maps.
"""

from __future__ import annotations

import argparse

import torch

import standfast

NETWORKS = {"plain": "lenet5-mnist", "adversarial": "lenet5-mnist-pgd"}
EXPLAINERS = ("saliency", "input_x_gradient", "gradcam", "guided_backprop")


def write(value: float | None) -> str:
    """A number of the table."""
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    """Evaluate both networks and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--digits", type=int, default=24)
    parser.add_argument("--radius", type=float, default=0.1)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    digits = standfast.data.bundled("digits")[: options.digits]
    ball = standfast.LinfBall(options.radius)
    metrics = [
        standfast.metrics.get(
            "worst_case", neighbourhood=ball, budget=options.budget, search="block"
        ),
        standfast.metrics.get("max_sensitivity", neighbourhood=ball, normalise=True),
    ]
    rows: dict[str, list[str]] = {}
    for network, weights in NETWORKS.items():
        model = standfast.Model(standfast.zoo.load(weights), bounds=digits.bounds)
        found = standfast.evaluate(model, list(EXPLAINERS), digits, metrics, progress=False)
        for row in found.summary.rows:
            if row.references is None:
                continue
            known = row.references
            values = (
                row.value,
                known.identical,
                known.same_class,
                known.scrambled,
                known.unrelated,
            )
            numbers = " | ".join(write(value) for value in values)
            says = row.sanity if row.sanity != "passed" else "yes"
            rows.setdefault(row.label, []).append(
                f"| {row.explainer} | {network} | {numbers} | {row.quality} | {says} |"
            )
    for label, lines in rows.items():
        print(f"\n{label}, {options.digits} digits, radius {options.radius:g}\n")
        print(
            "| explainer | network | changed inputs | identical | same class | scrambled | unrelated | judgement "
            "| says something |"
        )
        print("| --- | --- " + "| ---: " * 5 + "| --- | --- |")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
