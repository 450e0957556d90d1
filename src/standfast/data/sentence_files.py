"""Texts as sequences of word vectors, those of the bundled sentences of film reviews.

Hutto and Gilbert, VADER: a parsimonious rule-based model for sentiment analysis of social media text, ICWSM 2014. There
are 10,605 sentences from rotten tomatoes, which Pang and Lee collected (A sentimental education, ACL 2004). Each was
rated by 20 people or more from -4, very negative, to 4, very positive. The package vaderSentiment 2.5 has the file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.errors import check

CLASSES = ("negative", "positive")
PADDING, UNKNOWN = "<pad>", "<unknown>"  # the words number 0 and 1
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[!?]")


def split_words(text: str) -> list[str]:
    """The words of a text in lower case, and its exclamation and question marks; other marks are left out.

    >>> split_words("It's GOOD, isn't it?")
    ["it's", 'good', "isn't", 'it', '?']
    """
    plain = html.unescape(text).replace("’", "'")
    return _WORD.findall(plain.lower())


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """A vocabulary and a vector for each of its words.

    Args:
        words: the words, by number. Number 0 stands for no word, number 1 for all words that are not among them.
        vectors: float32 `(V, dim)`; that of number 0 is zero.

    Raises:
        ArgumentError: another number of vectors, or a vector of number 0 that is not zero.

    >>> known = WordVectors(("<pad>", "<unknown>", "good"), torch.tensor([[0.0], [0.5], [1.0]]))
    >>> known.find_numbers(["Good film", "good"])
    tensor([[2, 1],
            [2, 0]])
    >>> known.mark_unknown("Good film")
    ('good', '<film>')
    >>> known
    WordVectors(3 words, dim 1)
    """

    words: tuple[str, ...]
    vectors: Tensor

    def __post_init__(self) -> None:
        fits = self.vectors.ndim == 2 and len(self.vectors) == len(self.words) >= 2
        check(
            fits,
            "vectors",
            f"a vector for each of {len(self.words)} words",
            tuple(self.vectors.shape),
        )
        check(
            not self.vectors[0].any(),
            "vectors",
            "zeros for word number 0",
            self.vectors[0].tolist(),
        )

    def __repr__(self) -> str:
        return f"WordVectors({len(self.words)} words, dim {self.vectors.shape[1]})"

    def find_numbers(self, texts: Sequence[str], length: int | None = None) -> Tensor:
        """The numbers of the words of texts, int64 `(N, T)`, with 0 at the ends of short texts.

        Args:
            texts: at least one text, each with at least one word.
            length: T; by default the number of words of the longest text. The ends of longer texts are cut off.
        """
        number_of = _number(self.words)
        rows: list[list[int]] = []
        for text in texts:
            # number 1 stands for all words that are not known
            numbers = [number_of.get(word, 1) for word in split_words(text)]
            rows.append(numbers[:length])
        check(len(rows) > 0 and all(rows), "texts", "texts of at least one word", "an empty text")
        width = length or max(map(len, rows))
        filled_rows = []
        for row in rows:
            missing = width - len(row)
            filled_rows.append(row + [0] * missing)
        return torch.tensor(filled_rows)

    @property
    def padding(self) -> int:
        """The number that stands for no word."""
        return 0

    def find_words(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The numbers of the words of a text, and where each begins and ends in it.

        >>> WordVectors(("<pad>", "<unknown>", "good"), torch.zeros(3, 1)).find_words("Good film")
        ([2, 1], [(0, 4), (5, 9)])
        """
        number_of = _number(self.words)
        numbers = []
        spans = []
        for match in _WORD.finditer(text):
            word = match.group().replace("’", "'").lower()
            numbers.append(number_of.get(word, 1))
            spans.append(match.span())
        return numbers, spans

    def embed(self, texts: Sequence[str], length: int | None = None) -> Tensor:
        """The vectors of the words of texts: `(N, dim, T)`, zeros where a text has ended; see `find_numbers`."""
        numbers = self.find_numbers(texts, length)
        vectors = self.vectors[numbers]
        return vectors.transpose(1, 2).contiguous()

    def mark_unknown(self, text: str) -> tuple[str, ...]:
        """The words of a text; those that have no vector of their own are in angle brackets."""
        number_of = _number(self.words)
        marked = []
        for word in split_words(text):
            marked.append(word if word in number_of else f"<{word}>")
        return tuple(marked)

    def make_dataset(self, name: str, texts: Sequence[str], labels: Tensor) -> Dataset:
        """Texts as a data set of two classes, with their words as `tokens`.

        Args:
            name: of the data set.
            texts: N texts.
            labels: int64 `(N,)`: 0, negative, or 1, positive.
        """
        largest = float(self.vectors.abs().max())
        bound = max(1.0, largest)
        tokens = tuple(map(self.mark_unknown, texts))
        return Dataset(name, self.embed(texts), labels, CLASSES, (-bound, bound), tokens=tokens)


@cache
def _number(words: tuple[str, ...]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}


@cache
def word_vectors() -> WordVectors:
    """The words of 9,510 such sentences, with vectors of length 1 that were learned with `transformer-sentences`.

    Do not change the tensor.

    >>> known = word_vectors()
    >>> known.embed(["a great film"]).shape
    torch.Size([1, 32, 3])
    """
    with (
        (files("standfast.data") / "assets" / "words.npz").open("rb") as file,
        np.load(file) as stored,
    ):
        words = bytes(stored["words"]).decode().split("\n")
        vectors = torch.from_numpy(stored["vectors"]).to(torch.float32)
    return WordVectors(tuple(words), vectors)
