"""Which explainer holds under which change, and what a norm ball says instead: tables for eight data sets, two networks
for two of them.

python benchmarks/natural_changes/tables.py --out results/natural [--only MNIST CIFAR-10] [--samples N] [--budget N]

A cell is the median, over samples, of the worst similarity (Pearson's correlation of absolute maps, moved back where
the change moves positions) that a search finds within the change, among inputs that keep the class; of noise, the worst
of random draws. The searches need no gradients, so that all explainers have the same one; only for the norm ball there
is a second column, in which the search follows gradients for explainers that have some.

Marks: `*` the best mean rank, `=` not demonstrably worse (Wilcoxon's signed-rank tests with Holm's correction at 5%,
after Friedman's). No mark in a column: no difference is demonstrated. Below the table, for each change: the share of
the change that keeps the class (the same draws for all explainers), the rank correlation of the explainers' order with
that of the two columns of the norm ball, and which pairs of explainers both tests put in opposite orders.

Results are stored in `--out`, one folder for each data set; a second start goes on after them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import standfast
from standfast import neighbourhoods as near
from standfast.algorithms.searches.base import FEW
from standfast.metrics import WorstCase
from standfast.neighbourhoods import Neighbourhood, Transformation
from standfast.statistics.comparison import Comparison, compare
from standfast.statistics.ranking import measure_agreement
from standfast.training.classifier import accuracy, initialize, train_classifier
from standfast.zoo import architectures

# a clone has papers/ beside this folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.base import spread_evenly

GRADIENTS = "with gradients"
_DRAWS = 200  # of each change for each sample, for the share that keeps the class

Loaded = tuple[standfast.Model, Tensor, str]


@dataclass(frozen=True)
class Setting:
    """A data set with what is compared on it.

    Attributes:
        load: returns the model, inputs that it classifies rightly (as many as are asked for), and a sentence about
            the network.
        explainers: by the names in the table.
        changes: by the names in the table, the norm ball first.
        samples, budget: of the worst case.
    """

    load: Callable[[int], Loaded]
    explainers: Mapping[str, Any]
    changes: Callable[[Tensor], Mapping[str, Neighbourhood]]
    samples: int
    budget: int


# ---- images ----


def choose_right(model: standfast.Model, inputs: Tensor, labels: Tensor, count: int) -> Tensor:
    """The first `count` inputs that the model puts into their class."""
    right = (model.predict(inputs) == labels).nonzero().flatten()
    return inputs[right[:count]]


def load_images(network: str, data: str, count: int) -> Loaded:
    """A network of the zoo, and images evenly spread over a test set."""
    model = standfast.Model(standfast.zoo.load(network), bounds=(0.0, 1.0), batch_size=256)
    found = standfast.data.load(data)
    found = found.take(spread_evenly(len(found), 2 * count))
    assert found.labels is not None
    about = f"`{network}`, test accuracy {standfast.zoo.card(network)['test_accuracy']:.1%}"
    return model, choose_right(model, found.inputs, found.labels, count), about


def ball_changes(radius: float) -> Mapping[str, Neighbourhood]:
    """The norm ball, searched in the same way for all explainers, and with gradients where there are some."""
    return {
        f"norm ball {radius:g}": near.LinfBall(radius),
        f"the same, {GRADIENTS}": near.LinfBall(radius),
    }


def image_changes(radius: float) -> Callable[[Tensor], Mapping[str, Neighbourhood]]:
    """The changes of photos beside a norm ball of this radius."""
    turned, light = near.Rotation(10.0), near.Brightness(0.2)
    return lambda inputs: {
        **ball_changes(radius),
        "rotation 10 degrees": turned,
        "translation 2 pixels": near.Translation(2.0),
        "brightness 0.2": light,
        "blur up to 1 pixel": near.GaussianBlur(1.0),
        "noise up to 0.1, drawn": near.GaussianNoise(0.1),
        "JPEG 30 to 90": near.JPEG((30.0, 90.0)),
        "rotation, brightness, blur": near.Compose((turned, light, near.GaussianBlur(1.0))),
    }


_GRADIENTS: Mapping[str, Any] = {
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "DeepLIFT": "deeplift",
    "guided backprop": "guided_backprop",
}
_IMAGES: Mapping[str, Any] = {
    **_GRADIENTS,
    "integrated gradients": "integrated_gradients:steps=4",
    "Grad-CAM": "gradcam",
}
_ATTENTION: Mapping[str, Any] = {
    **{
        name: _IMAGES[name]
        for name in ("saliency", "input x gradient", "integrated gradients", "Grad-CAM")
    },
    "attention rollout": "attention_rollout",
    "attention relevance": "attention_relevance",
    "AttnLRP": "attn_lrp",
}


# ---- series ----


def load_series(name: str, count: int) -> Loaded:
    """A small convolutional network, trained here on a set of the UCR archive, and series of its test set."""
    train, test = (standfast.data.load(f"ucr:{name}:{split}") for split in ("train", "test"))
    assert train.labels is not None
    assert test.labels is not None
    generator = torch.Generator().manual_seed(0)
    module: nn.Module = architectures["series_cnn"](
        num_classes=len(train.classes),
        in_channels=1,
        width=32,
        kernel_size=9,
        dropout=0.0,
        hidden=32,
    )
    initialize(module, generator)
    train_classifier(
        module,
        train.inputs,
        train.labels,
        epochs=400,
        batch_size=16,
        learning_rate=3e-3,
        generator=generator,
    ).eval()
    model = standfast.Model(module, bounds=train.bounds, batch_size=256)
    right = choose_right(model, test.inputs, test.labels, count)
    share = accuracy(module, test.inputs, test.labels)
    return (
        model,
        right,
        f"SeriesCNN(width=32, kernel_size=9), trained here, test accuracy {share:.1%}",
    )


def series_changes(inputs: Tensor) -> Mapping[str, Neighbourhood]:
    """The changes of series beside a norm ball of a tenth of a standard deviation; the sets are standardised."""
    shift = max(1.0, round(0.03 * inputs.shape[-1]))
    return {
        **ball_changes(0.1),
        "stretch 3%": near.TimeStretch(3.0),
        f"shift {shift:g} steps": near.TimeShift(shift),
        "drift 0.2 std": near.Drift(0.2),
        "jitter 0.1 std, drawn": near.Jitter(0.1),
        "stretch and drift": near.Compose((near.TimeStretch(3.0), near.Drift(0.2))),
    }


# ---- tables ----


@dataclass(frozen=True)
class Table:
    """A table of scikit-learn, standardised by its training rows.

    Attributes:
        train, test: rows `(N, F)`, with the classes `(N,)`.
        names: of the columns.
        units: the mean and the standard deviation of each column, by which rows are standardised.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    names: tuple[str, ...]
    units: tuple[tuple[float, ...], tuple[float, ...]]


@cache
def read_table(name: str) -> Table:
    """`breast_cancer` or `wine`; two thirds of the rows are for training."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    found = getattr(datasets, f"load_{name}")()
    parts = train_test_split(
        found.data, found.target, test_size=1 / 3, random_state=0, stratify=found.target
    )
    rows, labels = (tuple(torch.tensor(part) for part in pair) for pair in (parts[:2], parts[2:]))
    mean, std = rows[0].mean(0), rows[0].std(0)
    train, test = (((part - mean) / std).float() for part in rows)
    units = (tuple(mean.tolist()), tuple(std.tolist()))
    return Table((train, labels[0]), (test, labels[1]), tuple(map(str, found.feature_names)), units)


def load_table(name: str, count: int) -> Loaded:
    """A network of two hidden layers, trained here, and rows of the test part."""
    table = read_table(name)
    generator = torch.Generator().manual_seed(0)
    classes = int(table.train[1].max()) + 1
    module = nn.Sequential(
        nn.Linear(len(table.names), 32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )
    initialize(module, generator)
    train_classifier(
        module,
        *table.train,
        epochs=60,
        batch_size=32,
        learning_rate=3e-3,
        weight_decay=0.05,
        generator=generator,
    ).eval()
    everything = torch.cat([table.train[0], table.test[0]])
    model = standfast.Model(
        module, bounds=(everything.amin(0), everything.amax(0)), batch_size=1024
    )
    about = f"a network of 32 and 16 hidden units, trained here, test accuracy {accuracy(module, *table.test):.1%}"
    return model, choose_right(model, *table.test, count), about


def table_changes(name: str) -> Callable[[Tensor], Mapping[str, Neighbourhood]]:
    """The changes of rows beside a norm ball of a tenth of a standard deviation."""

    def make(inputs: Tensor) -> Mapping[str, Neighbourhood]:
        table = read_table(name)
        own: dict[str, Any] = {"columns": table.names, "units": table.units}
        special: dict[str, Neighbourhood]
        if name == "wine":  # two columns are integers
            integers = {"magnesium": {"by": 10, "step": 1}, "proline": {"by": 100, "step": 1}}
            special = {"magnesium 10, proline 100": near.TableChanges(integers, **own)}
        else:  # a mean is at most the mean of the three largest values
            properties = [
                column.removeprefix("mean ") for column in table.names if column.startswith("mean ")
            ]
            rules = tuple(f"`mean {each}` <= `worst {each}`" for each in properties)
            special = {"10%, with rules": near.TableChanges("10%", rules=rules, **own)}
        return {
            **ball_changes(0.1),
            "2% of each value": near.TableChanges("2%", **own),
            "10% of each value": near.TableChanges("10%", **own),
            **special,
            "copula 0.1": near.TableChanges(
                "any", prior="copula", size=0.1, data=table.train[0], **own
            ),
        }

    return make


_TABLES: Mapping[str, Any] = {
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "DeepLIFT": "deeplift",
    "integrated gradients": "integrated_gradients:steps=16",
    "LIME": "lime:samples=100,segments=pixels,output=logit",
    "KernelSHAP": "kernel_shap:samples=100,segments=pixels",
}

# ---- all ----

SETTINGS: Mapping[str, Setting] = {
    "MNIST": Setting(
        lambda n: load_images("lenet5-mnist", "mnist:test", n), _IMAGES, image_changes(0.1), 20, 100
    ),
    "CIFAR-10": Setting(
        lambda n: load_images("resnet20-cifar10", "cifar10:test", n),
        _IMAGES,
        image_changes(0.03),
        12,
        25,
    ),
    "MNIST, transformer": Setting(
        lambda n: load_images("vit-mnist", "mnist:test", n), _ATTENTION, image_changes(0.1), 20, 100
    ),
    "CIFAR-10, transformer": Setting(
        lambda n: load_images("vit-cifar10", "cifar10:test", n),
        _ATTENTION,
        image_changes(0.03),
        12,
        25,
    ),
    "GTSRB": Setting(
        lambda n: load_images("cnn-gtsrb", "gtsrb:test", n), _IMAGES, image_changes(0.03), 24, 40
    ),
    **{
        name: Setting(lambda n, name=name: load_series(name, n), _IMAGES, series_changes, 20, 60)
        for name in ("GunPoint", "ECG200", "CBF")
    },
    **{
        title: Setting(
            lambda n, name=name: load_table(name, n), _TABLES, table_changes(name), 20, 100
        )
        for title, name in {"breast cancer": "breast_cancer", "wine": "wine"}.items()
    },
}


# ---- running and reading ----


def measure_kept(model: standfast.Model, change: Neighbourhood, inputs: Tensor) -> float:
    """The share of draws of a change, over all inputs, that keep the class."""
    region = change.around(inputs, model.bounds)
    problem = torch.arange(len(inputs)).repeat_interleave(_DRAWS)
    points = region.sample(_DRAWS, region.streams(0)).flatten(0, 1)
    clean = model.predict(inputs)
    kept = [
        model.predict(region.perturb(points[rows], problem[rows])) == clean[problem[rows]]
        for rows in torch.arange(len(points)).split(1024)
    ]
    return float(torch.cat(kept).float().mean())


def make_metric(label: str, change: Neighbourhood, inputs: Tensor, budget: int) -> WorstCase:
    """The worst case of a change by a search that needs no gradients, so that all explainers have the same one.

    Of noise it is the worst of random draws: its parameters include one uniform number for each entry, and a search
    would find noise that is possible, but that nobody's camera ever makes.
    """
    if isinstance(change, near.GaussianNoise | near.Jitter):
        return WorstCase(change, budget=budget, search="random")
    # with few parameters `auto` is the grid search
    few = isinstance(change, Transformation) and change.count_parameters(inputs.shape[1:]) <= FEW
    return WorstCase(change, budget=budget, search="auto" if few or GRADIENTS in label else "block")


def run_setting(name: str, setting: Setting, out: Path, samples: int, budget: int) -> None:
    """Compute what the folder lacks, and print the table."""
    start = time.process_time()
    model, inputs, about = setting.load(samples)
    changes = setting.changes(inputs)
    found = standfast.evaluate(
        model,
        setting.explainers,
        inputs,
        {label: make_metric(label, change, inputs, budget) for label, change in changes.items()},
        controls=False,
        out=out / name,
        samples_per_job=len(inputs),
        about={"title": f"Natural changes: {name}", "model": about},
        progress=False,
    )
    comparisons = read_comparisons(found.samples, list(setting.explainers), list(changes))
    kept = {label: measure_kept(model, change, inputs) for label, change in changes.items()}
    print(f"\n## {name}\n\n{about}. {len(inputs)} inputs, {budget} evaluations for each.\n")
    print("\n".join(format_table(comparisons, kept)))
    print("\n".join(["", *describe_reversals(comparisons)]))
    print(f"\n{time.process_time() - start:.0f} s of CPU time in this start", flush=True)


def read_comparisons(
    samples: pl.DataFrame, explainers: Sequence[str], labels: Sequence[str]
) -> dict[str, tuple[Comparison, np.ndarray[Any, Any]]]:
    """For each change, the paired tests of the explainers, and their values (samples, explainers)."""
    found = {}
    for label in labels:
        own = samples.filter(pl.col("label") == label, pl.col("status") == "ok", pl.col("found"))
        wide = own.pivot(on="explainer", index="sample", values="value").sort("sample")
        values = wide.select(explainers).to_numpy().astype(float)
        found[label] = compare(values, explainers, "higher"), values
    return found


def format_table(
    comparisons: Mapping[str, tuple[Comparison, np.ndarray[Any, Any]]], kept: Mapping[str, float]
) -> list[str]:
    """The table in Markdown: a row for each explainer, a column for each change."""
    labels = list(comparisons)
    lines = ["| explainer | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels)]
    names = comparisons[labels[0]][0].names
    for place, name in enumerate(names):
        cells = []
        for comparison, values in comparisons.values():
            winners = comparison.winner_set if comparison.decided else ()
            mark = "" if place not in winners else " \\*" if place == comparison.order[0] else " ="
            cells.append(f"{np.nanmedian(values[:, place]):.2f}{mark}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(
        "| *share that keeps the class* | "
        + " | ".join(f"{kept[label]:.0%}" for label in labels)
        + " |"
    )
    orders = measure_agreement(
        np.array([c.mean_ranks for c, _ in comparisons.values()]), labels
    ).correlations
    for place, words in enumerate(("norm ball", f"norm ball {GRADIENTS}")):
        agreement = ["–" if place == other else f"{r:.2f}" for other, r in enumerate(orders[place])]
        lines.append(f"| *order as in the {words}* | " + " | ".join(agreement) + " |")
    lines.append(
        "| *samples* | " + " | ".join(str(c.count) for c, _ in comparisons.values()) + " |"
    )
    return lines


def describe_reversals(
    comparisons: Mapping[str, tuple[Comparison, np.ndarray[Any, Any]]],
) -> list[str]:
    """Which pairs the tests put in one order in a norm ball, and in the other under a change."""
    balls, changes = list(comparisons)[:2], list(comparisons)[2:]
    lines = []
    for ball in balls:
        first = comparisons[ball][0]
        for label in changes:
            comparison = comparisons[label][0]
            pairs = [
                f"{first.names[i]} over {first.names[j]}"
                for i in range(len(first.names))
                for j in range(len(first.names))
                if first.significant[j, i] and first.effects[j, i] > 0
                if comparison.significant[i, j] and comparison.effects[i, j] > 0
            ]
            if pairs:
                where = ball if ball == balls[0] else f"{balls[0]} {GRADIENTS}"
                lines.append(f"- {label}, against the {where}: {', '.join(pairs)}")
    return lines or ["No pair of explainers is in opposite orders by both tests."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/natural"))
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--budget", type=int)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    for name in options.only:
        setting = SETTINGS[name]
        run_setting(
            name,
            setting,
            options.out,
            options.samples or setting.samples,
            options.budget or setting.budget,
        )


if __name__ == "__main__":
    main()
