"""Which metrics see the difference between an explainer and a control? The table of docs/controls.md, and medians.

    STANDFAST_DATA=... python benchmarks/reliability/controls_by_metric.py [digits] [series] [table] [transformer]
        [--samples 20] [--out FOLDER] [--metrics "c_eval;aopc"]

Three data sets: the bundled digits with LeNet-5, and as `transformer` with vit-mnist; GunPoint of the UCR archive with
a small convolutional network; and the table of breast cancer cells of scikit-learn with a perceptron. The networks of
the last two are trained here, in seconds.
Every metric has its quick preset. For each metric the table has the median over samples of some explainers and of the
controls, and whether the tests show an explainer to be better than every control. Seeded; results in FOLDER are kept.
About ten minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

import standfast
from standfast.report import Results
from standfast.results import SummaryRow
from standfast.results.formatting import SIGNS, to_ascii
from standfast.statistics.ranking import compare_controls
from standfast.zoo.networks.series_cnn import SeriesCNN

EXPLAINERS = ("saliency", "integrated_gradients:steps=8", "input_x_gradient")
#: of the vision transformer
ATTENTION = (*EXPLAINERS[:2], "gradcam", "attention_rollout", "attention_relevance", "attn_lrp")
CONTROLS = ("input_copy", "edges", "randomised:saliency", "randomised:input_x_gradient", "random")
SHORT = {
    "integrated_gradients:steps=8": "integrated gradients",
    "input_x_gradient": "input x gradient",
}
SHORT |= {"input_copy": "input copy", "randomised:saliency": "randomised saliency"}
SHORT |= {"randomised:input_x_gradient": "randomised input x gradient"}
METRICS = (
    "data_sensitivity_consistency:masks=300",
    "parameter_sensitivity_consistency:masks=100",
    "c_eval",
    "c_eval_plot",
    "near_affinity",
    "corruption_curve",
    "aopc",
    "log_odds",
    "attribution_attack:attack=random_sign",
    "worst_case:budget=200",
    "misinterpretation_probability:first=4.0,particles=50,moves=2,budget=1500",
    "max_sensitivity:normalise=True",
    "local_lipschitz",
)


def fit(module: nn.Module, x: Tensor, y: Tensor, steps: int, rate: float) -> nn.Module:
    """Train a network on all of `x` at once; the same on every run."""
    module.train()
    optimiser = torch.optim.Adam(module.parameters(), rate)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return module.eval()


def load_digits(count: int) -> tuple[standfast.Model, Tensor, float]:
    digits = standfast.data.bundled("digits")[:count]
    return (
        standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0)),
        digits.inputs,
        0.1,
    )


def load_transformer(count: int) -> tuple[standfast.Model, Tensor, float]:
    digits = standfast.data.bundled("digits")[:count]
    return standfast.Model(standfast.zoo.load("vit-mnist"), bounds=(0.0, 1.0)), digits.inputs, 0.1


def load_series(count: int) -> tuple[standfast.Model, Tensor, float]:
    train, test = (standfast.data.load(f"ucr:GunPoint:{part}") for part in ("train", "test"))
    torch.manual_seed(0)
    module = SeriesCNN(2, 1, width=16)
    module.features = module.features[:6]  # two of its three convolutions
    module = fit(module, train.inputs, train.labels, 150, 3e-3)
    report_accuracy(module, test.inputs, test.labels)
    return standfast.Model(module, bounds=(-5.0, 5.0)), test.inputs[:count].clamp(-5, 5), 0.1


def load_table(count: int) -> tuple[standfast.Model, Tensor, float]:
    """Breast cancer cells with a perceptron that is trained here, and a radius in standard deviations."""
    from sklearn.datasets import load_breast_cancer

    values, labels = load_breast_cancer(return_X_y=True)
    x, y = torch.as_tensor(values, dtype=torch.float32), torch.as_tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    x = ((x - x[:400].mean(0)) / x[:400].std(0)).clamp(-5, 5)
    torch.manual_seed(0)
    layers = (nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    module = fit(nn.Sequential(*layers), x[:400], y[:400], 100, 3e-3)
    report_accuracy(module, x[400:], y[400:])
    return standfast.Model(module, bounds=(-5.0, 5.0)), x[400 : 400 + count], 0.1


def report_accuracy(module: nn.Module, x: Tensor, y: Tensor) -> None:
    with torch.no_grad():
        print(f"test accuracy {float((module(x).argmax(1) == y).double().mean()):.3f}")


DATA = {
    "digits": load_digits,
    "series": load_series,
    "table": load_table,
    "transformer": load_transformer,
}


def write_cell(row: SummaryRow | None) -> str:
    """The median with its interval, with three decimals where it is small; a bound is marked as one."""
    if row is None or row.estimate is None:
        return "-"
    middle = row.estimate
    sign = to_ascii(SIGNS[middle.bound])
    decimals = 3 if abs(middle.value) < 0.1 else 2
    numbers = [
        f"{each:.{decimals}f}"
        for each in (middle.value, middle.low, middle.high)
        if each is not None
    ]
    return sign + numbers[0] + (f" [{', '.join(numbers[1:])}]" if len(numbers) == 3 else "")


def write_table(found: Results) -> list[str]:
    """The lines of the tables of one data set, in Markdown."""
    ((data, model),) = found.pairs
    rows = {(row.label, row.explainer): row for row in found.summary.rows}
    names = found.explainers
    lines = [
        "| metric | better | "
        + " | ".join(SHORT.get(name, name) for name in names)
        + " | beat every control |"
    ]
    lines.append("| --- " * (len(names) + 3) + "|")
    specs = {label: metric.spec for label, metric in found.metrics.items()}
    tests = compare_controls(found.compared_samples, specs, names.controls)
    for label, spec in specs.items():
        cells = [write_cell(rows.get((label, name))) for name in names]
        own = tests.get((data, model, label), [])
        beats = [
            SHORT.get(test.explainer, test.explainer) for test in own if test.verdict == "beats"
        ]
        worse = [
            f"{SHORT.get(test.explainer, test.explainer)} (worse than {SHORT.get(test.control, test.control)})"
            for test in own
            if test.verdict == "worse"
        ]
        said = ", ".join(beats) or "none"
        said += f"; {', '.join(worse)}" if worse else ""
        direction = spec.direction or "-"
        lines.append(f"| {label} | {direction} | {' | '.join(cells)} | {said} |")
    return lines


def write_pairs(found: Results) -> list[str]:
    """For each metric and control, whether each explainer is better (+), worse (-), or neither is shown (0)."""
    specs = {label: metric.spec for label, metric in found.metrics.items()}
    controls = found.explainers.controls
    marks = {"beats": "+", "worse": "-", "undecided": "0"}
    lines = ["| metric | " + " | ".join(SHORT.get(name, name) for name in controls) + " |"]
    lines.append("| --- " * (len(controls) + 1) + "|")
    for label in specs:
        cells = []
        for control in controls:
            others = [name for name in controls if name != control]
            rows = found.compared_samples.filter(
                (pl.col("label") == label) & ~pl.col("explainer").is_in(others)
            )
            tests = compare_controls(rows, specs, [control])
            cells.append(
                "".join(marks[test.verdict] for own in tests.values() for test in own) or "none"
            )
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", choices=[*DATA, []], default=[])
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/controls"))
    parser.add_argument("--metrics", default=";".join(METRICS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.data or DATA:
        model, inputs, radius = DATA[name](given.samples)
        controls = [each for each in CONTROLS if each != "edges" or inputs.ndim > 2]
        found = standfast.evaluate(
            model,
            [*(ATTENTION if name == "transformer" else EXPLAINERS), *controls],
            inputs,
            given.metrics.split(";"),
            neighbourhood=standfast.LinfBall(radius),
            preset="quick",
            samples_per_job=10,
            out=given.out / name,
            progress=False,
        )
        print(f"\n{name}: {len(inputs)} samples\n")
        print("\n".join(write_table(found)))
        print("\n" + "\n".join(write_pairs(found)), flush=True)
        for line in found.failures:
            print(line["label"], line["explainer"], str(line["error"])[-300:])


if __name__ == "__main__":
    main()
