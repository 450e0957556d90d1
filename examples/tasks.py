"""Models that are no classifiers, end to end: each is trained in seconds, evaluated, and has a report.

    python examples/tasks.py                          all of them: about five minutes of one core
    python examples/tasks.py regression detection     some
    python examples/tasks.py --out reports            the folder of the reports

The models: the ink of a digit (regression), whether a digit has a loop and whether it is even (two labels), a segmenter
and a detector of squares and discs, boosted trees for the progress of diabetes (a regressor without gradients), and an
encoder of digits beside one of words (zero-shot classification). scikit-learn is needed for the trees.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import standfast
from standfast.data import Dataset
from standfast.tasks import Detection, MultiLabel, Regression, Segmentation, zero_shot

SIDE = 24
KINDS = ("square", "disc")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EXPLAINERS = ("saliency", "input_x_gradient", "integrated_gradients:steps=16", "occlusion")


@dataclass(frozen=True)
class Example:
    """A trained model with samples, and how good it is."""

    model: standfast.Model
    data: Dataset | Tensor
    quality: str
    explainers: tuple[str, ...] = EXPLAINERS
    radius: float = 0.05


def fit(module: nn.Module, loss: Callable[[], Tensor], steps: int) -> nn.Module:
    """Train by Adam on what `loss` returns."""
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return module.eval()


def encoder(outputs: int) -> nn.Sequential:
    """A small network for digits."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, outputs))


def regression(steps: int) -> Example:
    """The ink of a digit, in percent of the page."""
    digits = standfast.data.bundled("digits")
    ink = 100 * digits.inputs.mean((1, 2, 3))
    network = encoder(1)
    fit(network, lambda: (network(digits.inputs)[:, 0] - ink).square().mean(), steps)
    error = (network(digits.inputs)[:, 0] - ink).abs().mean().item()
    model = standfast.Model(network, bounds=(0.0, 1.0), task=Regression(tolerance=2.0))
    return Example(model, digits[:12], f"mean error {error:.2f} of {ink.std():.2f} percent")


def labels(steps: int) -> Example:
    """Whether a digit has a loop, and whether it is even."""
    digits = standfast.data.bundled("digits")
    loop = torch.isin(digits.labels, torch.tensor([0, 6, 8, 9]))
    wanted = torch.stack([loop, digits.labels % 2 == 0], 1).float()
    network = encoder(2)
    criterion = nn.BCEWithLogitsLoss()
    fit(network, lambda: criterion(network(digits.inputs), wanted), steps)
    right = ((network(digits.inputs) > 0) == wanted.bool()).double().mean().item()
    model = standfast.Model(network, bounds=(0.0, 1.0), task=MultiLabel())
    return Example(model, digits[:12], f"{right:.1%} of labels right")


def draw_shapes(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images `(N, 1, 24, 24)` with one square or disc on noise; masks, boxes `(N, 4)` and kinds `(N,)`."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(2, (count,), generator=generator)
    size = torch.randint(4, 7, (count, 1, 1), generator=generator)
    centre = torch.randint(7, SIDE - 7, (2, count, 1, 1), generator=generator)
    grid = torch.arange(SIDE)
    down, right = (grid[:, None] - centre[0]).abs(), (grid[None, :] - centre[1]).abs()
    squares, discs = (
        torch.maximum(down, right) <= size,
        down.square() + right.square() <= (size + 0.5).square(),
    )
    masks = torch.where(kinds[:, None, None] == 0, squares, discs)
    noise = 0.3 * torch.rand(count, SIDE, SIDE, generator=generator)
    corner = torch.stack(
        [centre[1] - size, centre[0] - size, centre[1] + size + 1, centre[0] + size + 1], 1
    )
    return torch.where(masks, 0.5 + noise, noise)[:, None], masks, corner[:, :, 0, 0].float(), kinds


class Segmenter(nn.Module):
    """Background, square or disc for each pixel, in a dictionary as those of torchvision."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        wide = {"kernel_size": 5, "padding": 4, "dilation": 2}
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, **wide), nn.ReLU()),
            *(nn.Conv2d(8, 8, **wide), nn.ReLU(), nn.Conv2d(8, 3, 1)),
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The logits of each pixel under `out`."""
        return {"out": self.layers(x)}


def segmentation(steps: int) -> Example:
    """The region of a square or disc."""
    images, masks, _, kinds = draw_shapes(100, seed=0)
    wanted = torch.where(masks, 1 + kinds[:, None, None], 0)
    network = Segmenter()
    criterion = nn.CrossEntropyLoss()
    fit(network, lambda: criterion(network(images)["out"], wanted), steps)
    tests, truth, _, numbers = draw_shapes(50, seed=1)
    found = network(tests)["out"].argmax(1)
    own = found == 1 + numbers[:, None, None]
    overlap = ((own & truth).sum((1, 2)) / (own | truth).sum((1, 2))).mean().item()
    model = standfast.Model(network, bounds=(0.0, 1.0), task=Segmentation(iou=0.5))
    data = Dataset("shapes", tests[:8], numbers[:8], KINDS, extras={"masks": truth[:8].float()})
    return Example(model, data, f"mean IoU {overlap:.2f}")


class Detector(nn.Module):
    """One box for each image, as detectors of torchvision return it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        ]
        self.layers = nn.Sequential(*layers, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 6))

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes `(N, 4)`, and the logits of the two kinds `(N, 2)`."""
        numbers = self.layers(x)
        return SIDE * numbers[:, :4].sigmoid(), numbers[:, 4:]

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        """A dictionary for each image, with its box, label and score."""
        boxes, logits = self.predict(x)
        scores, names = logits.softmax(1).max(1)
        parts = zip(boxes, names, scores, strict=True)
        return [
            {"boxes": box[None], "labels": name[None], "scores": score[None]}
            for box, name, score in parts
        ]


def detection(steps: int) -> Example:
    """The box around a square or disc."""
    images, _, boxes, kinds = draw_shapes(400, seed=0)
    network = Detector()
    criterion = nn.CrossEntropyLoss()

    def loss() -> Tensor:
        found, logits = network.predict(images)
        return (found - boxes).abs().mean() / 4 + criterion(logits, kinds)

    fit(network, loss, 3 * steps)
    tests, _, truth, numbers = draw_shapes(50, seed=1)
    found, logits = network.predict(tests)
    right = (logits.argmax(1) == numbers).double().mean().item()
    error = (found - truth).abs().mean().item()
    model = standfast.Model(network, bounds=(0.0, 1.0), task=Detection(iou=0.5, least=0.5))
    return Example(model, tests[:8], f"{right:.0%} of kinds right, sides off by {error:.1f} pixels")


def trees(steps: int) -> Example:
    """The progress of diabetes after a year, by boosted trees: a regressor without gradients."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import GradientBoostingRegressor

    table = load_diabetes()
    rows = torch.tensor(table.data, dtype=torch.float32)
    fitted = GradientBoostingRegressor(n_estimators=min(steps, 100), random_state=0).fit(
        rows[:300], table.target[:300]
    )
    bounds = rows.amin(0), rows.amax(0)
    model = standfast.Model.from_callable(
        fitted.predict, bounds, reference=rows[:50], task=Regression(tolerance=20.0)
    )
    data = Dataset(
        "diabetes",
        rows[300:312],
        torch.zeros(12).long(),
        ("progress",),
        bounds,
        {},
        table.feature_names,
    )
    quality = f"R2 {fitted.score(rows[300:], table.target[300:]):.2f} on rows that are new"
    return Example(
        model, data, quality, ("shap:TreeExplainer", "occlusion", "kernel_shap:samples=128"), 0.01
    )


class Speller(nn.Module):
    """A vector for a word, from its letters and their places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.letters = nn.Embedding(26 * 6, 32)
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(32, width))

    def forward(self, words: tuple[str, ...]) -> Tensor:
        """Vectors `(words, width)`."""
        numbers = [
            [26 * place + ord(letter) - ord("a") for place, letter in enumerate(word)]
            for word in words
        ]
        sums = torch.stack([self.letters(torch.tensor(each)).sum(0) for each in numbers])
        vectors: Tensor = self.layers(sums)
        return vectors


def texts(steps: int) -> Example:
    """Digits and words in one space, trained on pairs as CLIP is; the words are the classes."""
    digits = standfast.data.bundled("digits")
    images, words = encoder(16), Speller(16)
    both = nn.ModuleList([images, words])
    criterion = nn.CrossEntropyLoss()

    def loss() -> Tensor:
        alike = normalize(images(digits.inputs), dim=1) @ normalize(words(WORDS), dim=1).T
        return criterion(10 * alike, digits.labels)

    fit(both, loss, steps)
    vectors = words(WORDS).detach()
    model = standfast.Model(images, bounds=(0.0, 1.0), task=zero_shot(vectors, temperature=10.0))
    right = (model.predict(digits.inputs) == digits.labels).double().mean().item()
    return Example(model, digits[:12], f"{right:.1%} of words right")


EXAMPLES: dict[str, Callable[[int], Example]] = {
    "regression": regression,
    "labels": labels,
    "segmentation": segmentation,
    "detection": detection,
    "trees": trees,
    "texts": texts,
}
METRICS = {
    "worst case": "worst_case:budget=300",
    "probability": "misinterpretation_probability:preset=quick",
    "c-Eval": "c_eval:preset=quick",
    "SenC": "data_sensitivity_consistency:preset=quick",
    "curve": "corruption_curve:preset=quick",
    "attack": "attribution_attack:preset=quick",
}


def run(
    name: str, out: Path, steps: int = 300, metrics: dict[str, str] | None = None, **options: Any
) -> Any:
    """Train one of the models, evaluate it, and write its report.

    Args:
        name: of the example.
        out: the folder for its results and its report.
        steps: of the training.
        metrics: by label; by default all of `METRICS` that the model can have.
        options: of `standfast.evaluate`.
    """
    example = EXAMPLES[name](steps)
    if metrics is None:
        gradients = example.model.differentiable
        metrics = {
            label: each
            for label, each in METRICS.items()
            if gradients or label not in ("c-Eval", "attack")
        }
    print(f"{name}: {example.quality}; an answer is kept if it is {example.model.task.kept}")
    found = standfast.evaluate(
        example.model,
        list(example.explainers),
        example.data,
        metrics,
        neighbourhood=standfast.LinfBall(example.radius),
        out=out / name,
        about={"title": name.capitalize(), "quality": example.quality},
        **options,
    )
    found.to_html(out / f"{name}.html")
    return found


def main() -> None:
    """The examples that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=list(EXAMPLES), help=f"some of {', '.join(EXAMPLES)}"
    )
    parser.add_argument("--out", type=Path, default=Path("reports"))
    given = parser.parse_args()
    for name in given.names:
        print(run(name, given.out))


if __name__ == "__main__":
    main()
