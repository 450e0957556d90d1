"""How near minimal-distortion attacks come to the minimum, with how many gradients, compared with other libraries.

    python benchmarks/c_eval/minimal_distortion.py [--model lenet5-mnist] [--samples 100] [--fixed 0.0] [--cw] [--peers]
    python benchmarks/c_eval/minimal_distortion.py --classes

It uses MNIST test digits, or the images or series that the bundled `--model` was trained on (from STANDFAST_DATA), and
the 2-norm. `--cw` adds Carlini and Wagner's attack with 9 times 1000 gradients. The last line says how often the limit
of `estimate_lower_limit` was at or below the smallest distortion that any attack found. `--classes` compares with the
closed form for affine models with many classes. `--peers` adds the attacks of Foolbox and of the adversarial library,
if they are installed (`pip install --no-deps foolbox eagerpy GitPython gitdb smmap adv-lib`); these have no fixed
features. Ratios are to the smallest distortion that any attack found, for each digit.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import standfast
from standfast.metrics.c_eval.fixed_features import fix_pixels, mark_free

Found = tuple[Tensor, float]
#: the default, the default without its second search, others at as many gradients as the default, and longer ones
ATTACKS = (
    "fmn",
    "fmn:second=0",
    "fmn:steps=57,second=0",
    "alma:steps=190",
    "ddn:steps=190",
    "iga",
    "gsa",
    "fmn:steps=100,rivals=4,second=300",
    "alma:steps=700",
    "ddn:steps=700",
)


def run_ours(model: standfast.Model, x: Tensor, free: Tensor, attack: str) -> Found:
    """Distortions (infinite where no other class was found), and the mean number of gradients for a digit."""
    found = standfast.algorithms.get_attack(attack).minimise(model, x, None, free)
    return torch.where(found.found, found.distortion, torch.inf), float(
        found.gradient_evaluations.double().mean()
    )


def list_peers(
    module: nn.Module, x: Tensor, y: Tensor, steps: int = 1000
) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Minimum-norm attacks of other libraries, with their own defaults except for the steps, at a gradient each."""

    def measure(points: Tensor, gradients: float) -> Found:
        flips = module(points).argmax(1) != y
        return torch.where(flips, (points - x).flatten(1).norm(dim=1), torch.inf), gradients

    try:
        import foolbox
    except ImportError as error:
        print(f"no Foolbox: {error}")
    else:
        model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
        for name, attack in (
            ("Foolbox FMN", foolbox.attacks.L2FMNAttack(steps=steps)),
            ("Foolbox DDN", foolbox.attacks.DDNAttack(steps=steps)),
        ):
            yield name, lambda attack=attack: measure(attack(model, x, y, epsilons=None)[1], steps)
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
    yield "adv-lib FMN", lambda: measure(library.fmn(module, x, y, norm=2, steps=steps), steps)
    yield "adv-lib DDN", lambda: measure(library.ddn(module, x, y, steps=steps), steps)
    yield (
        "adv-lib ALMA",
        lambda: measure(library.alma(module, x, y, distance="l2", num_steps=steps), steps),
    )
    yield (
        "adv-lib FAB",
        lambda: measure(library.fab(module, x, y, norm=2, n_iter=steps // 10), steps),
    )


def load_samples(model: str, count: int) -> tuple[Tensor, tuple[float, float]]:
    """Inputs of the kind that a bundled model was trained on, and their range."""
    sets = {
        "waves": "waves:test",
        "gtsrb": "gtsrb:test",
        "cifar10": "cifar10:test",
        "fashion": "fashion_mnist:test",
    }
    name = next((source for part, source in sets.items() if part in model), "mnist:test")
    x = standfast.data.load(name)[:count].inputs
    return x, (float(x.min()), float(x.max())) if "waves" in name else (0.0, 1.0)


def compare_classes() -> None:
    """Affine models with gradients of very different size: the share and the size of wrong minima."""
    print("| classes | gradients | more than 1% above the minimum | largest ratio to the minimum |")
    print("| --- | --- | --- | --- |")
    for classes in (50, 200, 1000):
        generator = torch.Generator().manual_seed(0)
        ratios, gradients = [], []
        for _ in range(2):
            spread = torch.randn(classes, 1, generator=generator, dtype=torch.float64).exp()
            layer = nn.Linear(20, classes).double()
            with torch.no_grad():
                layer.weight.copy_(
                    torch.randn(classes, 20, generator=generator, dtype=torch.float64) * spread
                )
                layer.bias.copy_(torch.randn(classes, generator=generator, dtype=torch.float64))
            x = torch.rand(200, 20, generator=generator, dtype=torch.float64)
            found = standfast.algorithms.get_attack("fmn").minimise(
                standfast.Model(layer, (-1e6, 1e6), device="cpu"), x, None, None
            )
            with torch.no_grad():
                logits = layer(x)
                y = logits.argmax(1, keepdim=True)
                slopes = (layer.weight[None] - layer.weight[y[:, 0]][:, None]).norm(dim=2)
                exact = ((logits.gather(1, y) - logits) / slopes).scatter(1, y, torch.inf).amin(1)
            ratios.append(found.distortion / exact)
            gradients.append(found.gradient_evaluations.double())
        ratio = torch.cat(ratios)
        wrong, mean = float((ratio > 1.01).double().mean()), float(torch.cat(gradients).mean())
        print(f"| {classes} | {mean:.0f} | {wrong:.1%} | {ratio.max():.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="lenet5-mnist", help="a bundled model")
    parser.add_argument(
        "--classes", action="store_true", help="only the affine models with many classes"
    )
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument(
        "--fixed", type=float, default=0.0, help="share of the pixels that is fixed, the brightest"
    )
    parser.add_argument("--cw", action="store_true")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    if options.classes:
        compare_classes()
        return
    x, bounds = load_samples(options.model, options.samples)
    module = standfast.zoo.load(options.model).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    model = standfast.Model(module, bounds, device="cpu", batch_size=256)
    free = torch.ones_like(x, dtype=torch.bool)
    if options.fixed:
        free = mark_free(fix_pixels(x.sum(1), options.fixed), x)
    runs: dict[str, Callable[[], Found]] = {
        name: lambda name=name: run_ours(model, x, free, name)  # type: ignore[misc]
        for name in (*ATTACKS, *(["cw"] if options.cw else []))
    }
    if options.peers and not options.fixed:
        runs |= dict(list_peers(module, x, model.predict(x)))
    found = {}
    for name, run in runs.items():
        begin = time.perf_counter()
        found[name] = (*run(), time.perf_counter() - begin)
        print(f"{name}: {found[name][2]:.0f} s", flush=True)
    best = torch.stack([c for c, _, _ in found.values()]).amin(0)
    print(
        "\n| attack | gradients | found | median c | mean ratio | median ratio | within 1% | time, of fmn's |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (c, gradients, seconds) in found.items():
        ratio, there = c / best, c.isfinite()
        cells = [
            f"{gradients:.0f}",
            f"{there.double().mean():.0%}",
            f"{c.median():.4f}",
            f"{ratio[there].mean():.4f}",
        ]
        cells += [f"{ratio.median():.4f}", f"{(ratio < 1.01).double().mean():.0%}"]
        print(f"| {name} | {' | '.join(cells)} | {seconds / found['fmn'][2]:.1f} |")
    ours = standfast.algorithms.get_attack("fmn").minimise(model, x, None, free)
    covered, width = (
        (ours.low <= best * (1 + 1e-6)).double().mean(),
        (ours.low / ours.distortion).median(),
    )
    gap = (ours.second / ours.distortion - 1).median()
    print(
        f"\nThe limit of fmn is at or below the best of all for {covered:.0%}; it is {width:.2f} c in the median, and"
        f" the second best search is {gap:.1%} above c."
    )


if __name__ == "__main__":
    main()
