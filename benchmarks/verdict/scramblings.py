"""How often gradient x input of scrambled weights passes the sanity checks, by luck: many scramblings of each model.

    python benchmarks/verdict/scramblings.py [--scramblings 60] [--samples 100] [--models blobs lenet ...]

`sanity_army.py` has three scramblings of each model, which are too few for a rate. What is printed are the seeds that
pass, their share with its 95% interval of Clopper and Pearson, and how many more do not fail.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from army_models import KINDS, Subject, make_subject, train
from torch import Tensor, nn

from standfast.explainers import RandomisedExplainer, get
from standfast.metrics.sanity import SanityChecks
from standfast.results.sanity import decide_checks
from standfast.statistics.proportions import proportion_interval

SIDE = 16
#: where the bright spot of each of four classes is, before it is shifted by up to two pixels
CORNERS = torch.tensor([[4, 4], [4, 11], [11, 4], [11, 11]])


def draw_spot(rows: Tensor, columns: Tensor, width: float) -> Tensor:
    """Images `(N, SIDE, SIDE)` of a round spot at the places `(N,)`."""
    axis = torch.arange(float(SIDE))
    vertical = torch.exp(-0.5 * ((axis - rows[:, None]) / width).square())
    horizontal = torch.exp(-0.5 * ((axis - columns[:, None]) / width).square())
    return vertical[:, :, None] * horizontal[:, None, :]


def draw_blobs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of noise with a bright spot in one of four corners, which is the class, and a weak one anywhere."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    noise = 0.25 * torch.rand(count, SIDE, SIDE, generator=generator)
    places = CORNERS[labels] + torch.randint(-2, 3, (count, 2), generator=generator)
    distractors = torch.randint(2, 14, (count, 2), generator=generator)
    spots = 0.7 * draw_spot(*places.T, width=1.8) + 0.35 * draw_spot(*distractors.T, width=1.0)
    return (noise + spots).clamp(0, 1)[:, None], labels


def make_blob_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * (SIDE // 2) ** 2, 4),
    )


def blobs(folder: Path, pool: int) -> Subject:
    module = make_blob_network()
    train(folder / "blobs.pt", module, draw_blobs(400, 0), 30)
    return make_subject(make_blob_network, module, draw_blobs(pool, 1), pool, (0.0, 1.0))


def draw_reported_blobs() -> tuple[Tensor, Tensor]:
    """Images of the same kind, of a report of a scrambling that passed. Their generator had drawn other data before."""
    generator = torch.Generator().manual_seed(0)
    for classes in (2, 3):
        torch.randint(classes, (700,), generator=generator)
        torch.randn(700, 12, generator=generator)
    torch.randint(3, (700,), generator=generator)
    torch.randn(700, 1, 48, generator=generator)
    torch.randint(6, 42, (700,), generator=generator)
    labels = torch.randint(4, (500,), generator=generator)
    images = 0.25 * torch.rand(500, 1, SIDE, SIDE, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        moves = [torch.randint(-2, 3, (1,), generator=generator) for _ in range(2)]
        corner = CORNERS[label, :, None] + torch.stack(moves)
        image += 0.7 * draw_spot(*corner, width=1.8)
        distractor = torch.randint(2, 14, (2,), generator=generator)[:, None]
        image += 0.35 * draw_spot(*distractor, width=1.0)
    return images.clamp(0, 1), labels


def make_reported_network() -> nn.Module:
    """The network of the report, untrained: it was made after three others."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        nn.Linear(12, 2)
        nn.Linear(12, 24), nn.Linear(24, 3)
        nn.Conv1d(1, 12, 5), nn.Conv1d(12, 16, 5), nn.Linear(16, 3)
        return make_blob_network()


def reported(folder: Path, pool: int) -> Subject:
    """The network of `tests/field/test_scrambled_weights.py`, with the images on which it was reported."""
    images, labels = draw_reported_blobs()
    module = make_reported_network()
    optimiser = torch.optim.Adam(module.parameters(), lr=5e-3)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(images), labels).backward()
        optimiser.step()
    return make_subject(make_blob_network, module, (images[100:], labels[100:]), pool, (0.0, 1.0))


MODELS: dict[str, Callable[[Path, int], Subject]] = {
    "blobs": blobs,
    "reported": reported,
    "lenet": KINDS["images"]["lenet"],
    "cancer": KINDS["tables"]["cancer"],
    "logistic": KINDS["tables"]["logistic"],
    "clusters": KINDS["tables"]["clusters"],
    "products": KINDS["tables"]["products"],
    "CBF": KINDS["series"]["CBF"],
    "topics max": KINDS["text"]["topics max"],
}


def decide_scrambling(subject: Subject, seed: int) -> str:
    """What the checks decide on gradient x input of one scrambling."""
    explainer = RandomisedExplainer(get("input_x_gradient"), seed=seed)
    rows = SanityChecks(samples=len(subject.inputs), labels=subject.labels)(
        subject.model, explainer, subject.inputs
    )
    return decide_checks(rows.frame()).state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scramblings", type=int, default=60)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sanity_army")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.models:
        start = time.perf_counter()
        try:
            subject = MODELS[name](options.folder / "models", options.samples)
        except Exception as error:  # data that this machine lacks
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}")
            continue
        # the checks themselves scramble with the seeds from 0 on
        states = {
            seed: decide_scrambling(subject, seed) for seed in range(100, 100 + options.scramblings)
        }
        passed = [seed for seed, state in states.items() if state == "passed"]
        undecided = sum(state == "undecided" for state in states.values())
        low, high = proportion_interval(len(passed), len(states), 0.95)
        print(
            f"{name:12s} passed {len(passed)} of {len(states)} [{low:.1%}, {high:.1%}] {passed},"
            f" undecided {undecided}, {time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
