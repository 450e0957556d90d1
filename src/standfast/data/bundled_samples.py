"""Small samples of real data that are part of the package."""

from __future__ import annotations

import html
from importlib.resources import files

import numpy as np
import torch

from standfast.data.dataset import Dataset
from standfast.data.sentence_files import word_vectors
from standfast.errors import UnknownNameError


def bundled(name: str) -> Dataset:
    """Load a sample of real data from the package; nothing is downloaded.

    "digits": the first 30 digits of each class of the MNIST test set; inputs (300, 1, 28, 28) in [0, 1]. Every ten
    samples, from the start, contain each class once, in the order 0 to 9.

    "sentences": 100 sentences of film reviews of each class with at most 24 words; inputs (200, 32, 24), the vectors
    of `word_vectors`. Every two samples contain each class once.

    Raises:
        UnknownNameError: there is no such sample.

    >>> digits = bundled("digits")
    >>> digits[:10].labels.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if name not in SAMPLES:
        raise UnknownNameError("bundled data set", name, SAMPLES)
    return SAMPLES[name]()


def _read_digits() -> Dataset:
    with (
        (files("standfast.data") / "assets" / "digits.npz").open("rb") as file,
        np.load(file) as stored,
    ):
        # in place, so that no second copy is made
        inputs = torch.from_numpy(stored["inputs"]).to(torch.float32).div_(255)
        labels = torch.from_numpy(stored["labels"]).to(torch.int64)
        classes = tuple(str(label) for label in stored["classes"])
    return Dataset("digits", inputs, labels, classes)


def film_reviews() -> tuple[list[str], torch.Tensor]:
    """The 200 sentences of `bundled("sentences")` as strings, and their labels, int64: 0, negative, or 1, positive.

    >>> texts, labels = film_reviews()
    >>> len(texts), labels[:2].tolist()
    (200, [0, 1])
    """
    content = (files("standfast.data") / "assets" / "sentences.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in content.splitlines()]
    return [html.unescape(text) for _, text in rows], torch.tensor(
        [int(float(rating) > 0) for rating, _ in rows]
    )


def _read_sentences() -> Dataset:
    return word_vectors().make_dataset("sentences", *film_reviews())


SAMPLES = {"digits": _read_digits, "sentences": _read_sentences}
