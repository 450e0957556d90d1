"""Sentences of film reviews with human ratings of their sentiment, as sequences of word vectors.

Hutto and Gilbert, VADER: a parsimonious rule-based model for sentiment analysis of social media text, ICWSM 2014. There
are 10,605 sentences from rotten tomatoes, which Pang and Lee collected (A sentimental education, ACL 2004). Each was
rated by 20 people or more from -4, very negative, to 4, very positive. The package vaderSentiment 2.5 has the file.
"""

from __future__ import annotations

import html
import io
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.data.root import MissingDataError, data_root, fetch, report_missing
from standfast.errors import ArgumentError, check

CLASSES = ("negative", "positive")
FOLDER = "movie_sentences"
FILE = "movieReviewSnippets_GroundTruth.txt"
ARCHIVE = "vaderSentiment-2.5.tar.gz"
URL = "https://files.pythonhosted.org/packages/85/08/442d5c6754221edb450fb05357c431217d7ae48fcdfcb03c6db0af8e7450/"
SHA256 = "b960c954831f5ca58afee61780cc04ed48e551b91e783bfcbfb2c18bb8081a84"
INNER = "vaderSentiment-2.5/additional_resources/hutto_ICWSM_2014.tar.gz"  # in the archive; FILE is in this one
PADDING, UNKNOWN = "<pad>", "<unknown>"  # the words number 0 and 1
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[!?]")


def split_words(text: str) -> list[str]:
    """The words of a text in lower case, and its exclamation and question marks; other marks are left out.

    >>> split_words("It's GOOD, isn't it?")
    ["it's", 'good', "isn't", 'it', '?']
    """
    return _WORD.findall(html.unescape(text).replace("’", "'").lower())


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
        check(fits, "vectors", f"a vector for each of {len(self.words)} words", tuple(self.vectors.shape))
        check(not self.vectors[0].any(), "vectors", "zeros for word number 0", self.vectors[0].tolist())

    def __repr__(self) -> str:
        return f"WordVectors({len(self.words)} words, dim {self.vectors.shape[1]})"

    def find_numbers(self, texts: Sequence[str], length: int | None = None) -> Tensor:
        """The numbers of the words of texts, int64 `(N, T)`, with 0 at the ends of short texts.

        Args:
            texts: at least one text, each with at least one word.
            length: T; by default the number of words of the longest text. The ends of longer texts are cut off.
        """
        numbers = _number(self.words)
        found = [[numbers.get(word, 1) for word in split_words(text)][:length] for text in texts]
        check(len(found) > 0 and all(found), "texts", "texts of at least one word", "an empty text")
        width = length or max(map(len, found))
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in found])

    def embed(self, texts: Sequence[str], length: int | None = None) -> Tensor:
        """The vectors of the words of texts: `(N, dim, T)`, zeros where a text has ended; see `find_numbers`."""
        return self.vectors[self.find_numbers(texts, length)].transpose(1, 2).contiguous()

    def mark_unknown(self, text: str, length: int | None = None) -> tuple[str, ...]:
        """The words of a text; those that have no vector of their own are in angle brackets."""
        numbers = _number(self.words)
        return tuple(word if word in numbers else f"<{word}>" for word in split_words(text)[:length])

    def make_dataset(self, name: str, texts: Sequence[str], labels: Tensor, length: int | None = None) -> Dataset:
        """Texts as a data set of two classes, with their words as `tokens`.

        Args:
            name: of the data set.
            texts: N texts.
            labels: int64 `(N,)`: 0, negative, or 1, positive.
            length: see `find_numbers`.
        """
        bound = max(1.0, float(self.vectors.abs().max()))
        return Dataset(
            name,
            self.embed(texts, length),
            labels,
            CLASSES,
            (-bound, bound),
            tokens=tuple(self.mark_unknown(text, length) for text in texts),
        )


@cache
def _number(words: tuple[str, ...]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}


@cache
def word_vectors() -> WordVectors:
    """The words of `movie_sentences`, with vectors of length 1 that were learned with `transformer-sentences`.

    Do not change the tensor.

    >>> known = word_vectors()
    >>> known.embed(["a great film"]).shape
    torch.Size([1, 32, 3])
    """
    with (files("standfast.data") / "assets" / "words.npz").open("rb") as file, np.load(file) as stored:
        words = bytes(stored["words"]).decode().split("\n")
        vectors = torch.from_numpy(stored["vectors"]).to(torch.float32)
    return WordVectors(tuple(words), vectors)


def movie_sentences(split: str = "train", download: bool = False) -> Dataset:
    """Sentences of film reviews as word vectors `(N, 32, T)`: N = 9,510 ("train") or 1,056 ("test").

    Label 1 is a mean rating above 0, label 0 one below; sentences with a mean of 0 and repetitions are left out. Every
    tenth sentence is in the test set. The vectors are those of `word_vectors`, and T is the longest sentence's length.

    They are read from the archive `vaderSentiment-2.5.tar.gz` in `movie_sentences/` under `data_root()`. The command
    `pip download --no-deps --no-binary :all: vaderSentiment==2.5` brings it. The package has the MIT licence.

    Args:
        split: "train" or "test".
        download: download the archive (2.5 MB) into `movie_sentences/` if it is missing, and verify its checksum.

    Raises:
        MissingDataError: the archive is missing, and `download` is False or the download failed.
        ArgumentError: the split is unknown, or the archive is another.

    >>> movie_sentences("test").labels.shape  # doctest: +SKIP
    torch.Size([1056])
    """
    texts, ratings = read_sentences(split, download)
    return word_vectors().make_dataset(f"movie_sentences:{split}", texts, (ratings > 0).long())


def read_sentences(split: str = "train", download: bool = False) -> tuple[tuple[str, ...], Tensor]:
    """The texts of `movie_sentences` and their mean ratings, float64 `(N,)` from -4 to 4, without 0."""
    check(split in ("train", "test"), "split", "train or test", repr(split))
    rated: dict[str, float] = {}
    for number, line in enumerate(_read_file(download).splitlines(), 1):
        parts = line.split("\t")
        try:
            rating = float(parts[1])
        except (IndexError, ValueError) as error:
            expected = "lines of number, rating and text, with tabs between"
            raise ArgumentError(FILE, expected, f"line {number}") from error
        if rating != 0 and split_words(parts[-1]):
            rated.setdefault(parts[-1].strip(), rating)
    chosen = [place for place in range(len(rated)) if (place % 10 == 9) == (split == "test")]
    texts, ratings = tuple(rated), torch.tensor(list(rated.values()), dtype=torch.float64)
    return tuple(texts[place] for place in chosen), ratings[chosen]


def _read_file(download: bool) -> str:
    """The text of the file, which is in an archive in the archive."""
    folder = data_root() / FOLDER
    archive = folder / ARCHIVE
    if not archive.is_file():
        if not download:
            command = f"`pip download --no-deps --no-binary :all: vaderSentiment==2.5` in {folder} brings it"
            raise MissingDataError(f"{report_missing(FOLDER, ARCHIVE, [folder])} {command}.")
        fetch(URL + ARCHIVE, f"sha256:{SHA256}", folder)
    try:
        with tarfile.open(archive) as outer:
            inner = _extract(outer, INNER)
        with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
            return _extract(tar, f"hutto_ICWSM_2014/{FILE}").decode("utf-8")
    except (KeyError, tarfile.TarError, UnicodeDecodeError) as error:
        expected = f"the source archive of vaderSentiment 2.5, with {FILE}"
        raise ArgumentError(str(archive), expected, "another") from error


def _extract(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member.read()
