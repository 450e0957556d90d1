"""How long `preset="quick"` takes for each metric: two explainers and their controls on 24 digits, LeNet-5, one thread.

    OMP_NUM_THREADS=1 python benchmarks/verdict/quick_preset.py

Arguments name the metrics to try. Prints a row for each, with CPU time and evaluations for each sample; and what the
sanity checks add to the worst case and AOPC of each explainer, with controls. Needs no data set.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings

import torch

import standfast


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    digits = standfast.data.bundled("digits")[:24]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds, device="cpu")

    def measure(
        explainer: str, metric: str | list[str], controls: bool, sanity: bool = True
    ) -> tuple[float, float]:
        """Seconds, and evaluations for each sample."""
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = standfast.evaluate(
                model,
                explainer,
                digits,
                metric,
                preset="quick",
                controls=controls,
                sanity=sanity,
                out=folder,
                progress=False,
            )
        assert not found.failures, found.failures
        return time.process_time() - began, float(found.samples["model_evaluations"].mean())

    measure("integrated_gradients", "log_odds", True)  # what is loaded and compiled once
    print("| metric | evaluations | saliency and controls | integrated gradients | together |")
    print("| --- | ---: | ---: | ---: | ---: |")
    total = 0.0
    # the digits have no regions
    own = [name for name in standfast.metrics.names() if name != "relevance_localisation"]
    for metric in sys.argv[1:] or own:
        first, evaluations = measure("saliency", metric, True)
        second, _ = measure("integrated_gradients", metric, False)
        total += first + second
        times = f"{first:.1f} s | {second:.1f} s | {first + second:.1f} s"
        print(f"| `{metric}` | {evaluations:,.0f} | {times} |", flush=True)
    print(f"| all | | | | {total:.0f} s |")
    for explainer in ("saliency", "input_x_gradient", "integrated_gradients"):
        without, _ = measure(explainer, ["worst_case", "aopc"], True, sanity=False)
        checked, _ = measure(explainer, ["worst_case", "aopc"], True)
        print(f"checks of {explainer}: {checked - without:.2f} s beside {without:.2f} s")


if __name__ == "__main__":
    main()
