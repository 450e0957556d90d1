"""Why adversarial training can make explanations fragile: thresholds in the first layer of LeNet-5.

    python benchmarks/reliability/adversarial_maps.py [--digits 40]

For each network and radius, with uniform noise on the digits, it prints:

- the share of the first convolution's units that switch, on the whole image and on empty background;
- the correlation of maps with those of the clean digits, on the whole image and on the strokes;
- the share of a map's mass on pixels that were empty.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

import standfast

NETWORKS = (
    "lenet5-mnist-plain",
    "lenet5-mnist-hessian",
    "lenet5-mnist-pgd",
    "lenet5-mnist-pgd-linf01",
)
EXPLAINERS = ("saliency", "input_x_gradient", "integrated_gradients", "gradcam", "deeplift")
# strokes are pixels above the first value, empty pixels are below the second
STROKE, EMPTY = (
    0.5,
    0.1,
)


def measure_switching(module: torch.nn.Module, x: Tensor, noisy: Tensor) -> tuple[float, float]:
    """Shares of the first layer's units that noise switches: of all units, and of those that see empty pixels only."""
    with torch.no_grad():
        switched = (module.features.conv1(x) > 0) != (module.features.conv1(noisy) > 0)
    blank = (F.max_pool2d(x, 5, stride=1, padding=2) <= EMPTY).expand_as(switched)
    return switched.float().mean().item(), switched[blank].float().mean().item()


def main() -> None:
    """Print a table for each network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--digits", type=int, default=40)
    x = standfast.data.mnist("test")[: parser.parse_args().digits].inputs
    pearson = standfast.similarity.get("pearson")
    for name in NETWORKS:
        module = standfast.zoo.load(name)
        model = standfast.Model(module, bounds=(0.0, 1.0))
        targets = model.forward(x.to(model.device)).argmax(1)
        biases = ", ".join(f"{bias:.2f}" for bias in module.features.conv1.bias.tolist())
        print(f"\n{name}; biases of the first layer: {biases}")
        print(
            "| radius | units that switch, on background | explainer | PCC | in the strokes | mass on empty pixels |"
        )
        print("| --- | --- | --- | --- | --- | --- |")
        generator = torch.Generator().manual_seed(0)
        for radius in (0.1, 0.3):
            low, high = (x - radius).clamp(min=0.0), (x + radius).clamp(max=1.0)
            noisy = torch.lerp(low, high, torch.rand(x.shape, generator=generator))
            everywhere, background = measure_switching(module, x, noisy)
            for name in EXPLAINERS:
                maps, perturbed = (
                    standfast.explainers.get(name)(model, z, targets).abs().cpu()
                    for z in (x, noisy)
                )
                whole = pearson(maps, perturbed).mean()
                strokes = pearson(maps * (x > STROKE), perturbed * (x > STROKE)).mean()
                empty = (
                    (perturbed * (x <= EMPTY)).flatten(1).sum(1) / perturbed.flatten(1).sum(1)
                ).mean()
                shares = f"{everywhere:.2f}, {background:.2f}"
                print(
                    f"| {radius} | {shares} | {name} | {whole:.2f} | {strokes:.2f} | {empty:.2f} |"
                )


if __name__ == "__main__":
    main()
