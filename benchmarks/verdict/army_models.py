"""Small trained models with test samples of images, series, tables and text, for `sanity_army.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn

import standfast
from standfast.training.classifier import accuracy, initialize, train_classifier
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.series_cnn import SeriesCNN

Arrays = tuple[Tensor, Tensor]
INFINITE = (-torch.inf, torch.inf)


@dataclass(frozen=True)
class Subject:
    """A model, an untrained one of the same architecture, and test samples with labels."""

    model: standfast.Model
    untrained: standfast.Model
    inputs: Tensor
    labels: Tensor
    classes: int
    baseline: float | tuple[float, ...] = 0.0
    segments: dict[str, Any] = field(default_factory=dict)


def train(place: Path, module: nn.Module, data: Arrays, epochs: int, rate: float = 3e-3) -> None:
    """Train once; later calls load the weights."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        generator = torch.Generator().manual_seed(0)
        initialize(module, generator)
        train_classifier(module, *data, epochs=epochs, learning_rate=rate, generator=generator)
        torch.save(module.state_dict(), place)
    module.load_state_dict(torch.load(place, weights_only=True))


def make_subject(
    make: Callable[[], nn.Module],
    trained: nn.Module,
    test: Arrays,
    pool: int,
    bounds: Any,
    **options: Any,
) -> Subject:
    untrained = initialize(make(), torch.Generator().manual_seed(9)).eval()
    inputs, labels = test[0][:pool].contiguous(), test[1][:pool]
    share = accuracy(trained, inputs, labels)
    classes = trained(inputs[:8]).shape[1]
    print(
        f"accuracy {share:.2f} on {len(inputs)} samples of {tuple(inputs.shape[1:])}, {classes} classes"
    )
    models = [
        standfast.Model(each.eval(), bounds=bounds, device="cpu") for each in (trained, untrained)
    ]
    return Subject(*models, inputs, labels, classes, **options)


def bundled(weights: str, data: str, folder: Path, pool: int) -> Subject:
    test = standfast.data.load(data)
    module, options = standfast.zoo.load(weights), {}
    if data == "sentences":
        options = {"baseline": (0.0,) * 32, "segments": {"segments": "pixels"}}
    make = partial(standfast.zoo.load, weights)
    return make_subject(make, module, (test.inputs, test.labels), pool, test.bounds, **options)


def make_image_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 100),
        nn.ReLU(),
        nn.Linear(100, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def image_mlp(folder: Path, pool: int) -> Subject:
    data, test = standfast.data.load("mnist:train"), standfast.data.load("digits")
    module = make_image_mlp()
    train(folder / "image_mlp.pt", module, (data.inputs[:15000], data.labels[:15000]), 6)
    return make_subject(make_image_mlp, module, (test.inputs, test.labels), pool, (0.0, 1.0))


def make_series_mlp(steps: int, channels: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(steps * channels, 48), nn.ReLU(), nn.Linear(48, classes)
    )


def make_series_cnn(steps: int, channels: int, classes: int) -> nn.Module:
    return SeriesCNN(classes, channels, width=16, kernel_size=7, dropout=0.1, hidden=24)


def make_bilstm(steps: int, channels: int, classes: int) -> nn.Module:
    return BiLSTM(classes, channels, units=(24,), patch=4, hidden=24)


def series(
    name: str, make: Callable[..., nn.Module], epochs: int, folder: Path, pool: int
) -> Subject:
    """The first 200 of both splits, in a random order, are for the test; of the others, 3,000 are for training."""
    splits = [standfast.data.load(f"ucr:{name}:{split}") for split in ("train", "test")]
    inputs, labels = (
        torch.cat([each.inputs for each in splits]),
        torch.cat([each.labels for each in splits]),
    )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs, labels = inputs[order], labels[order]
    make = partial(make, inputs.shape[2], inputs.shape[1], int(labels.max()) + 1)
    module = make()
    train(folder / f"series {name}.pt", module, (inputs[200:3200], labels[200:3200]), epochs)
    bounds = (float(inputs.min()) - 1, float(inputs.max()) + 1)
    return make_subject(make, module, (inputs[:200], labels[:200]), pool, bounds)


def load_breast() -> Arrays:
    """The rows in a random order; 30 columns of different scales, two classes."""
    table, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(table))
    return torch.tensor(table[order], dtype=torch.float32), torch.tensor(labels[order])


def standardise(inputs: Tensor) -> Tensor:
    return (inputs - inputs.mean(0)) / inputs.std(0)


def make_clusters(columns: int, classes: int) -> Arrays:
    informative = columns * 2 // 3
    x, y = make_classification(
        3000,
        columns,
        n_informative=informative,
        n_redundant=0,
        n_classes=classes,
        n_clusters_per_class=2,
        random_state=3,
    )
    return standardise(torch.tensor(x, dtype=torch.float32)), torch.tensor(y)


def make_products() -> Arrays:
    """Six columns, of which five count; the class is the sign of a sum of products."""
    x = torch.randn(3000, 6, generator=torch.Generator().manual_seed(5))
    score = (
        x[:, 0] * x[:, 1] + x[:, 2] + 0.7 * x[:, 3].square() - 0.7 + 0.8 * torch.sin(2 * x[:, 4])
    )
    return x, (score > 0).long()


def table(
    name: str,
    load: Callable[[], Arrays],
    hidden: int,
    activation: Any,
    epochs: int,
    folder: Path,
    pool: int,
) -> Subject:
    x, y = load()
    x = standardise(x)
    columns, classes = x.shape[1], int(y.max()) + 1

    def make() -> nn.Module:
        if not hidden:
            return nn.Linear(columns, classes)
        layers = [nn.Linear(columns, hidden), activation(), nn.Linear(hidden, hidden), activation()]
        return nn.Sequential(*layers, nn.Linear(hidden, classes))

    module = make()
    train(folder / f"table {name}.pt", module, (x[200:], y[200:]), epochs)
    baseline = tuple(x[200:].median(0).values.tolist())
    return make_subject(make, module, (x[:200], y[:200]), pool, INFINITE, baseline=baseline)


def trees(load: Callable[[], Arrays], folder: Path, pool: int) -> Subject:
    """Boosted trees on raw columns, and others that have learned shuffled labels."""
    x, y = load()
    mixed = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    models = []
    for labels in (y, mixed):
        fitted = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(
            x[200:].numpy(), labels[200:].numpy()
        )
        models.append(standfast.Model.from_callable(fitted.predict_proba, bounds=INFINITE))
    share = float((models[0].predict(x[:pool]) == y[:pool]).double().mean())
    print(
        f"accuracy {share:.2f} on {pool} samples of {tuple(x.shape[1:])}, {int(y.max()) + 1} classes"
    )
    baseline = tuple(x[200:].median(0).values.tolist())
    return Subject(*models, x[:pool], y[:pool], int(y.max()) + 1, baseline)


class WordNetwork(nn.Module):
    """From word vectors `(N, 32, T)` to logits: the mean or the maximum over the words that are present."""

    def __init__(self, classes: int, largest: bool) -> None:
        super().__init__()
        self.words = nn.Conv1d(32, 48, 3 if largest else 1, padding=1 if largest else 0)
        self.relu, self.largest = nn.ReLU(), largest
        self.head = nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        there = (x.detach().abs().amax(1, keepdim=True) > 0.05).to(x)
        features = self.relu(self.words(x)) * there
        pooled = features.amax(2) if self.largest else features.sum(2) / there.sum(2).clamp(min=1)
        logits: Tensor = self.head(pooled)
        return logits


def draw_texts(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random words, 8 to 24 in each text: their numbers `(N, 24)`, 0 where the text has ended, and the lengths."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(
        2, len(standfast.data.word_vectors().words), (count, 24), generator=generator
    )
    lengths = torch.randint(8, 25, (count, 1), generator=generator)
    return numbers * (torch.arange(24) < lengths), lengths


def plant_topics(count: int, seed: int, topics: int) -> Arrays:
    """Random words, of which three to six are from the 60 words next to the one that stands for the class."""
    vectors = standfast.data.word_vectors().vectors
    near = (vectors[2:] @ vectors[2 : 2 + 300 * topics : 300].T).topk(60, dim=0).indices + 2
    numbers, lengths = draw_texts(count, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    labels = torch.randint(topics, (count,), generator=generator)
    chosen = near[torch.randint(60, (count, 6), generator=generator), labels[:, None]]
    places = (torch.rand(count, 6, generator=generator) * lengths).long()
    kept = torch.randint(3, 7, (count, 1), generator=generator)
    for each in range(6):
        row = (each < kept[:, 0]).nonzero()[:, 0]
        numbers[row, places[row, each]] = chosen[row, each]
    return vectors[numbers].transpose(1, 2).contiguous(), labels


def text(
    name: str, topics: int, make: Callable[[], nn.Module], epochs: int, folder: Path, pool: int
) -> Subject:
    """Topics, or the sentiment that the bundled transformer reads in random words; tested on film reviews."""
    sentences = standfast.data.load("sentences")
    if topics:
        data, test = plant_topics(4000, 0, topics), plant_topics(200, 10, topics)
    else:
        vectors, teacher = (
            standfast.data.word_vectors().vectors,
            standfast.zoo.load("transformer-sentences").eval(),
        )
        inputs = vectors[draw_texts(6000, 0)[0]].transpose(1, 2).contiguous()
        with torch.no_grad():
            data, test = (inputs, teacher(inputs).argmax(1)), (sentences.inputs, sentences.labels)
    module = make()
    train(folder / f"text {name}.pt", module, data, epochs)
    options = {"baseline": (0.0,) * 32, "segments": {"segments": "pixels"}}
    return make_subject(make, module, test, pool, sentences.bounds, **options)


def make_word_lstm() -> nn.Module:
    return BiLSTM(4, 32, units=(24,), hidden=24)


KINDS: dict[str, dict[str, Callable[[Path, int], Subject]]] = {
    "images": {
        "lenet": partial(bundled, "lenet5-mnist", "digits"),
        "mlp": image_mlp,
        "tanh lenet": partial(bundled, "lenet5-tanh-mnist-plain", "digits32"),
        "fashion": partial(bundled, "lenet5-fashion-mnist", "fashion_mnist:test"),
        "signs": partial(bundled, "cnn-gtsrb", "gtsrb:test"),
    },
    "tables": {
        "cancer": partial(table, "cancer", load_breast, 32, nn.ReLU, 40),
        "cancer trees": partial(trees, load_breast),
        "clusters": partial(table, "clusters", partial(make_clusters, 9, 3), 48, nn.ReLU, 30),
        "logistic": partial(table, "logistic", load_breast, 0, None, 60),
        "products": partial(table, "products", make_products, 32, nn.Tanh, 40),
    },
    "series": {
        "CBF": partial(series, "CBF", make_series_cnn, 30),
        "pens": partial(series, "PenDigits", make_series_mlp, 30),
        "devices": partial(series, "ElectricDevices", make_series_cnn, 20),
        "heart": partial(series, "TwoLeadECG", make_series_mlp, 60),
        "lstm": partial(series, "ItalyPowerDemand", make_bilstm, 60),
    },
    "text": {
        "topics mean": partial(text, "topics mean", 4, partial(WordNetwork, 4, False), 12),
        "topics max": partial(text, "topics max", 3, partial(WordNetwork, 3, True), 12),
        "sentiment": partial(text, "sentiment", 0, partial(WordNetwork, 2, False), 12),
        "transformer": partial(bundled, "transformer-sentences", "sentences"),
        "topics lstm": partial(text, "topics lstm", 4, make_word_lstm, 8),
    },
}
