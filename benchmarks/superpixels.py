"""How long our SLIC and quickshift take, beside those of scikit-image, which are compiled.

    OMP_NUM_THREADS=1 python benchmarks/superpixels.py [--repeats 5]

Digits 28 x 28 and colour images 224 x 224 (smooth random fields), with the options of `segments`. Each image is cut by
both in turn, and the labels must be equal. Printed is the least processor time for an image of each kind.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import skimage.segmentation
import torch

import standfast
from standfast.superpixels import Image, Labels, convert_to_lab, quickshift, slic

Cut = Callable[[], Labels]


def make_images() -> dict[str, Image]:
    """A digit, and a random photo in CIELAB, both with values in [0, 1]: scikit-image rescales what is not."""
    digit = standfast.data.bundled("digits").inputs[0].double()
    noise = torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lab = convert_to_lab(standfast.similarity.smooth(noise, 5).numpy())
    return {"digit": (digit / digit.max()).numpy(), "photo": (lab - lab.min()) / (lab.max() - lab.min())}


def pairs(image: Image) -> dict[str, tuple[Cut, Cut]]:
    """Ours and theirs by method."""
    count, kernel = max(image[0].size // 50, 9), max(1.0, min(image.shape[1:]) / 56)
    weight = 0.3 if len(image) == 1 else 0.1
    ratio = 50.0 if len(image) == 1 else 20.0
    options = {"convert2lab": False, "channel_axis": 0}
    theirs = partial(skimage.segmentation.quickshift, image, ratio, kernel, 4 * kernel, rng=0, **options)
    return {
        "slic": (
            partial(slic, image, count, weight),
            partial(skimage.segmentation.slic, image, count, weight, start_label=0, **options),
        ),
        "quickshift": (partial(quickshift, image, ratio, kernel, 4 * kernel), theirs),
    }


def seconds(cut: Cut) -> float:
    start = time.process_time()
    cut()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for name, image in make_images().items():
        for method, (ours, theirs) in pairs(image).items():
            assert np.array_equal(ours(), theirs()), "they do not agree"
            found = np.array([[seconds(ours), seconds(theirs)] for _ in range(repeats)]).min(0) * 1e3
            print(
                f"{name}, {method}: {found[0]:.1f} ms, scikit-image {found[1]:.1f} ms: {found[0] / found[1]:.1f} times"
            )


if __name__ == "__main__":
    main()
