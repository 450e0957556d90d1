"""How near minimal-distortion attacks come to the minimum, with how many gradients, compared with other libraries.

    python benchmarks/minimal_distortion.py [--samples 100] [--fixed 0.0] [--cw] [--peers]

It uses MNIST test digits (from HOLDFAST_DATA), the bundled LeNet-5 and the 2-norm. `--cw` adds Carlini and Wagner's
attack with 9 times 1000 gradients. `--peers` adds the attacks of Foolbox and of the adversarial library, if they are
installed (`pip install --no-deps foolbox eagerpy GitPython gitdb smmap adv-lib`); these have no fixed features. Ratios
are to the smallest distortion that any attack found, for each digit.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import holdfast
from holdfast.metrics.c_eval.fixed_features import fix_pixels, mark_free

Found = tuple[Tensor, float]


def run_ours(classifier: holdfast.Classifier, x: Tensor, free: Tensor, attack: str) -> Found:
    """Distortions (infinite where no other class was found), and the mean number of gradients for a digit."""
    found = holdfast.algorithms.minimal_distortion(classifier, x, None, free, attack=attack)
    return torch.where(found.found, found.distortion, torch.inf), float(found.gradient_evaluations.double().mean())


def list_peers(module: nn.Module, x: Tensor, y: Tensor) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Minimum-norm attacks of other libraries, with their own defaults except for the steps."""

    def measure(points: Tensor, gradients: float) -> Found:
        flips = module(points).argmax(1) != y
        return torch.where(flips, (points - x).flatten(1).norm(dim=1), torch.inf), gradients

    try:
        import foolbox
    except ImportError as error:
        print(f"no Foolbox: {error}")
    else:
        model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
        for name, attack, gradients in (
            ("Foolbox FMN", foolbox.attacks.L2FMNAttack(steps=1000), 1000),
            ("Foolbox DDN", foolbox.attacks.DDNAttack(steps=1000), 1000),
        ):
            yield name, lambda attack=attack, n=gradients: measure(attack(model, x, y, epsilons=None)[1], n)
    for unused in ("torchvision", "visdom"):  # adv-lib imports them, but not for its attacks
        if unused not in sys.modules:
            stand_in = types.ModuleType(unused)
            stand_in.models = stand_in.transforms = stand_in.Visdom = object  # type: ignore[attr-defined]
            sys.modules[unused] = stand_in
    try:
        import adv_lib.attacks as library
    except ImportError as error:
        print(f"no adversarial library: {error}")
        return
    yield "adv-lib FMN", lambda: measure(library.fmn(module, x, y, norm=2, steps=1000), 1000)
    yield "adv-lib DDN", lambda: measure(library.ddn(module, x, y, steps=1000), 1000)
    yield "adv-lib ALMA", lambda: measure(library.alma(module, x, y, distance="l2", num_steps=1000), 1000)
    yield "adv-lib FAB", lambda: measure(library.fab(module, x, y, norm=2, n_iter=100), 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--fixed", type=float, default=0.0, help="share of the pixels that is fixed, the brightest")
    parser.add_argument("--cw", action="store_true")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    x = holdfast.data.load("mnist:test")[: options.samples].inputs
    module = holdfast.zoo.load("lenet5-mnist").eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    classifier = holdfast.Classifier(module, (0.0, 1.0), device="cpu", batch_size=256)
    free = torch.ones_like(x, dtype=torch.bool)
    if options.fixed:
        free = mark_free(fix_pixels(x[:, 0], options.fixed), x)
    runs: dict[str, Callable[[], Found]] = {
        name: lambda name=name: run_ours(classifier, x, free, name)  # type: ignore[misc]
        for name in ("fmn", "fmn:steps=100,rivals=6", "iga", "gsa", *(["cw"] if options.cw else []))
    }
    if options.peers and not options.fixed:
        runs |= dict(list_peers(module, x, classifier.predict(x)))
    found = {}
    for name, run in runs.items():
        begin = time.perf_counter()
        found[name] = (*run(), time.perf_counter() - begin)
        print(f"{name}: {found[name][2]:.0f} s", flush=True)
    best = torch.stack([c for c, _, _ in found.values()]).amin(0)
    print("\n| attack | gradients | found | median c | mean ratio | median ratio | time, of fmn's |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (c, gradients, seconds) in found.items():
        ratio, there = c / best, c.isfinite()
        cells = [f"{gradients:.0f}", f"{there.double().mean():.0%}", f"{c.median():.4f}", f"{ratio[there].mean():.4f}"]
        cells += [f"{ratio.median():.4f}", f"{seconds / found['fmn'][2]:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
