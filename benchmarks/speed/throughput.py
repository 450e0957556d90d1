"""The speed of subset simulation relative to a loop of passes of the bare model, and of searches on boosted trees.

    python benchmarks/speed/throughput.py [--seeds 1] [--rows 128] [--repeats 5]
    python benchmarks/speed/throughput.py --trees --search random --search genetic --search block \\
        --samples 4 --samples 64

The second command is for 100 boosted trees of scikit-learn on the breast cancer set: worst cases with occlusion, and
KernelSHAP alone. It prints the rows that `predict_proba` got per CPU second, as a share of its own rate in calls of
8192 rows, and the share of the time that was spent within it.

The first command runs subset simulation and the bare loop in turn, several times, at the same batch size, with input x
gradient on the bundled model. Printed is the rate of subset simulation over that of the bare loop. Subset simulation
includes predictions with explanation, similarities and proposals. Rates of the searches on this model, and of all other
metrics, are those of `shares.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from bare_model import compare_rates, describe_ratios, load_lenet, make_bare_loop

import standfast
from standfast.metrics import MisinterpretationProbability, WorstCase


def measure_subset_rate(model: standfast.Model, x: torch.Tensor) -> float:
    """Evaluations per second of subset simulation."""
    metric = MisinterpretationProbability(standfast.LinfBall(0.3), threshold=0.5, floor=-8.0)
    start = time.perf_counter()
    result = metric(model, "input_x_gradient", x)
    return int(result.model_evaluations.sum()) / (time.perf_counter() - start)


class TimedTrees:
    """Boosted trees of the breast cancer set that count their rows and their CPU time.

    Attributes:
        inputs: all rows, standardised, `(569, 30)`.
        trees: the fitted estimator.
        model: of its `predict_proba`, counted.
    """

    def __init__(self) -> None:
        from sklearn.datasets import load_breast_cancer
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows, labels = load_breast_cancer(return_X_y=True)
        rows = ((rows - rows.mean(0)) / rows.std(0)).astype("float32")
        self.trees = HistGradientBoostingClassifier(random_state=0).fit(rows, labels)
        self.inputs = torch.from_numpy(rows)
        bounds = self.inputs.amin(0), self.inputs.amax(0)
        self.model = standfast.Model.from_callable(self.predict_proba, bounds)
        self.rows, self.calls, self.seconds = 0, 0, 0.0

    def predict_proba(self, rows: Any) -> Any:
        """The estimator's, counted."""
        start = time.process_time()
        found = self.trees.predict_proba(rows)
        self.rows, self.calls, self.seconds = (
            self.rows + len(rows),
            self.calls + 1,
            self.seconds + time.process_time(),
        )
        self.seconds -= start
        return found

    def compare(self, title: str, run: Callable[[], object]) -> str:
        """A row of the table for what `run` does."""
        many = self.inputs.repeat(15, 1)[:8192].numpy()
        self.trees.predict_proba(many)
        start = time.process_time()
        for _ in range(10):
            self.trees.predict_proba(many)
        bare = (time.process_time() - start) / (10 * len(many))
        run()  # coalitions and the like are drawn once
        self.rows, self.calls, self.seconds = 0, 0, 0.0
        start = time.process_time()
        run()
        seconds = time.process_time() - start
        share, inside = self.rows * bare / seconds, self.seconds / seconds
        return f"| {title} | {self.rows / self.calls:.0f} | {self.rows / seconds:.0f} | {share:.2f} | {inside:.2f} |"


def compare_trees(searches: list[str], samples: list[int], budget: int) -> None:
    """Print the table for boosted trees."""
    trees = TimedTrees()
    explainers = {
        "occlusion": standfast.explainers.get("occlusion"),
        "kernel_shap": standfast.explainers.get("kernel_shap", segments="pixels", samples=300),
    }
    print(
        "| what | samples | rows of a call | rows a second | share of the bare rate | of the time in predict_proba |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for count in samples:
        x = trees.inputs[:count]
        for name, explainer in explainers.items():
            print(trees.compare(f"{name} | {count}", lambda: explainer(trees.model, x)), flush=True)  # noqa: B023
        for search in searches:
            metric = WorstCase(
                standfast.LinfBall(0.1), search=search, similarity="spearman", budget=budget
            )
            run = lambda: metric(trees.model, "occlusion", x)  # noqa: B023, E731
            print(trees.compare(f"worst case, {search} | {count}", run), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--search", action="append", default=[])
    parser.add_argument("--samples", action="append", type=int, default=[])
    parser.add_argument("--budget", type=int, default=5000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--trees", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.trees:
        compare_trees(options.search, options.samples or [4, 64], options.budget)
        return
    model, x = load_lenet(options.seeds, options.rows, options.device)
    bare = make_bare_loop(model, x, options.rows)
    ratios = compare_rates(lambda: measure_subset_rate(model, x), bare, options.repeats)
    print(
        f"{options.seeds} seeds, {options.rows} rows, {model.device}, {torch.get_num_threads()} threads:"
        f" subset simulation runs at {describe_ratios(ratios)} of the bare rate"
    )


if __name__ == "__main__":
    main()
