"""Max sensitivity against Captum's and Quantus's: same model, inputs and number of perturbations, in one run.

    python benchmarks/peers.py [--samples 50] [--digits 32] [--repeats 3]

Values are compared with Captum's for the same perturbations. Quantus draws its own, so only its speed is compared, at
the best of several batch sizes. Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from captum.attr import Saliency
from captum.metrics import sensitivity_max

import holdfast as hf
from holdfast.metrics import MaxSensitivity, sensitivity


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--digits", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import quantus

    samples, radius = options.samples, 0.02
    digits = hf.data.bundled("digits")[: options.digits]
    classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), digits.bounds, device="cpu")
    module = classifier.module.eval()
    x, targets = digits.inputs, classifier.predict(digits.inputs)
    explainer = hf.explainers.get("saliency")

    noise = torch.empty(len(x), samples, *x.shape[1:]).uniform_(-radius, radius)
    perturbed = (x[:, None] + noise).clamp(0, 1)
    theirs = sensitivity_max(
        Saliency(module).attribute,
        x,
        lambda inputs: perturbed.flatten(0, 1),
        n_perturb_samples=samples,
        target=targets,
    )
    ours = sensitivity(classifier, explainer, x, perturbed, targets, normalise=True)
    print(f"largest relative difference to Captum: {((ours - theirs).abs() / theirs).max().item():.1e}")

    metric = MaxSensitivity(hf.LinfBall(radius), samples=samples, normalise=True)

    def captum_at(most: int) -> Callable[[], object]:
        return lambda: sensitivity_max(
            Saliency(module).attribute,
            x,
            perturb_radius=radius,
            n_perturb_samples=samples,
            target=targets,
            max_examples_per_batch=most,
        )

    def quantus_at(size: int) -> Callable[[], object]:
        run = quantus.MaxSensitivity(
            nr_samples=samples, lower_bound=radius, disable_warnings=True, display_progressbar=False
        )

        def explain(model: torch.nn.Module, inputs: object, targets: object, **_: object) -> object:
            attributions = Saliency(model).attribute(
                torch.as_tensor(inputs, dtype=torch.float32), target=torch.as_tensor(targets)
            )
            return attributions.numpy()

        return lambda: run(
            model=module, x_batch=x.numpy(), y_batch=targets.numpy(), explain_func=explain, batch_size=size
        )

    metric(classifier, explainer, x, targets)
    candidates: dict[str, list[Callable[[], object]]] = {
        "holdfast": [lambda: metric(classifier, explainer, x, targets)],
        "captum": [captum_at(most) for most in (64, 128, 256, len(x) * samples)],
        "quantus": [quantus_at(size) for size in (8, 32, 128)],
    }
    times: dict[str, float] = {}
    for name, runs in candidates.items():
        for run in runs:
            run()
        times[name] = min(statistics.median(seconds(run) for _ in range(options.repeats)) for run in runs)
    for name in ("captum", "quantus"):
        print(f"holdfast is {times[name] / times['holdfast']:.2f} times as fast as {name} at its best batch size")


if __name__ == "__main__":
    main()
