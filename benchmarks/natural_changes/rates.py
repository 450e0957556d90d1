"""How fast transformations make perturbed images, beside the network that sees them.

    OMP_NUM_THREADS=1 python benchmarks/natural_changes/rates.py [--repeats 3] [--device cpu] [--sizes digits photos]

Three sizes, each with its network: 28 x 28 (LeNet-5), 32 x 32 x 3 (ResNet-20) and 224 x 224 x 3 (ResNet-18 with the
stem for ImageNet). Printed for each transformation: perturbed images per second, and the share of the bare forward rate
that is left if each image is perturbed before it is classified, `1 / (1 + forward rate / rate)`. Each round measures
the forward rate just before and after; the share is the median over rounds. Processor time on a CPU, else wall time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from bare_model import wait_for

from standfast import neighbourhoods as nb
from standfast.zoo import architectures

TRANSFORMATIONS = {
    "rotation": nb.Rotation(10),
    "perspective": nb.Perspective(10),
    "rotation, moved back": nb.Rotation(10),
    "brightness": nb.Brightness(0.2),
    "contrast": nb.Contrast(0.3),
    "gamma": nb.Gamma(0.3),
    "hue": nb.Hue(20),
    "saturation": nb.Saturation(0.5),
    "gaussian_blur": nb.GaussianBlur(2),
    "motion_blur": nb.MotionBlur(5),
    "defocus_blur": nb.DefocusBlur(3),
    "gaussian_noise": nb.GaussianNoise(0.1),
    "shot_noise": nb.ShotNoise(0.1),
    "impulse_noise": nb.ImpulseNoise(0.05),
    "jpeg": nb.JPEG((30, 90)),
    "pixelate": nb.Pixelate(0.5),
    "occlusion": nb.Occlusion(5),
    "corruption: motion_blur": nb.Corruption("motion_blur", (1, 3)),
    "corruption: defocus_blur": nb.Corruption("defocus_blur", (1, 3)),
    "corruption: zoom_blur": nb.Corruption("zoom_blur", (1, 3)),
    "corruption: glass_blur": nb.Corruption("glass_blur", (1, 3)),
    "corruption: fog": nb.Corruption("fog", (1, 3)),
    "corruption: snow": nb.Corruption("snow", (1, 3)),
    "corruption: elastic_transform": nb.Corruption("elastic_transform", (1, 3)),
    "corruption: elastic_transform, moved back": nb.Corruption("elastic_transform", (1, 3)),
}


def make_resnet18() -> nn.Module:
    """ResNet-18 of the zoo, with the stem that images of 224 x 224 have: a quarter of the positions."""
    network = architectures["resnet18"](num_classes=1000)
    network.stem = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False),
            norm=nn.BatchNorm2d(64),
            relu=nn.ReLU(),
            pool=nn.MaxPool2d(3, stride=2, padding=1),
        )
    )
    return network


#: shape, network, rows of a batch on a CPU
SIZES = {
    "digits": ((1, 28, 28), lambda: architectures["lenet5"](num_classes=10), 256),
    "thumbnails": ((3, 32, 32), lambda: architectures["resnet20"](num_classes=10), 64),
    "photos": ((3, 224, 224), make_resnet18, 8),
}


def measure_rate(
    work: Callable[[], object], rows: int, device: torch.device, seconds: float = 0.3
) -> float:
    """Rows per second of `work`, which handles `rows` of them."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    work()
    wait_for(device)
    start, done = clock(), 0
    while clock() - start < seconds:
        work()
        wait_for(device)
        done += rows
    return done / (clock() - start)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    print(
        "| size | transformation | images/s | share of the forward rate that is left |\n| --- | --- | --- | --- |"
    )
    for size in arguments.sizes:
        shape, make_network, rows = SIZES[size]
        rows = rows if device.type == "cpu" else 16 * rows
        network = make_network().eval().to(device)
        images = torch.rand(rows, *shape, device=device)

        def forward(network: nn.Module = network, images: torch.Tensor = images) -> object:
            return network(images)

        bare = [measure_rate(forward, rows, device) for _ in range(arguments.repeats)]
        print(
            f"| {'x'.join(map(str, shape))} | (the network alone) | {statistics.median(bare):,.0f} | |"
        )
        for name, kind in TRANSFORMATIONS.items():
            if shape[0] not in (getattr(kind, "channels", ()) or (1, 3)):
                continue
            region = kind.around(images[:1], (0.0, 1.0))
            points = region.sample(rows, region.streams(0))[0]
            problem = torch.zeros(rows, dtype=torch.int64, device=device)

            def perturb(
                region: nb.Region = region,
                points: torch.Tensor = points,
                problem: torch.Tensor = problem,
            ) -> object:
                return region.perturb(points, problem)

            def align(
                region: nb.Region = region,
                points: torch.Tensor = points,
                problem: torch.Tensor = problem,
            ) -> object:
                return region.align_maps(images, points, problem)  # noqa: B023

            rates, shares = [], []
            for _ in range(arguments.repeats):
                before = measure_rate(forward, rows, device)
                rates.append(measure_rate(align if "moved back" in name else perturb, rows, device))
                other = (before + measure_rate(forward, rows, device)) / 2
                shares.append(1 / (1 + other / rates[-1]))
            share = f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"
            print(
                f"| {'x'.join(map(str, shape))} | {name} | {statistics.median(rates):,.0f} | {share} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
