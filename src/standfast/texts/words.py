"""Texts as rows of word codes, and rows as strings again."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.files import find_room
from standfast.neighbourhoods.text import NO_WORD, Word, decode_word, encode_word
from standfast.tensors import Array

#: marks within a word that belong to it, and marks with which a sentence ends
_INNER = "'’-_"
_LAST = ".!?…。！？"
_LAST_WITHOUT_BLANK = "。！？"
#: what joins two characters, such as those of an emoji
_JOINER = "\u200d"
#: of the code of a word
_BYTES = 8
#: scripts without blanks between words, of which each character is a word
_SINGLE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def split_words(text: str) -> list[Word]:
    """The words and punctuation marks of a text, which together are the text, but for blanks at its ends.

    A word is a run of letters, digits and marks on letters, with apostrophes and hyphens inside; in scripts that have
    no blanks between words, a single character. What only changes how a character looks belongs to it.

    >>> [word.text for word in split_words("It isn't dull -- well-made!")]
    ['It', "isn't", 'dull', '-', '-', 'well-made', '!']
    >>> [(word.gap, word.text) for word in split_words(" a  film")]
    [('', 'a'), ('  ', 'film')]
    """
    return [Word(text[start:end], text[last:start]) for last, start, end in _find_words(text)]


def _find_words(text: str) -> Iterator[tuple[int, int, int]]:
    """For each word where the one before ends, where it begins, and where it ends."""
    kinds = "".join(map(_find_kind, text))
    position = last = len(text) - len(text.lstrip())
    while position < len(text):
        if kinds[position] == " ":
            position += 1
            continue
        start, position = position, position + 1
        if kinds[start] == "a":
            while position < len(text) and (
                kinds[position] in "a+"
                or (text[position] in _INNER and kinds[position + 1 : position + 2] == "a")
            ):
                position += 1
        else:
            while position < len(text) and (
                kinds[position] == "+" or text[position - 1] == _JOINER
            ):
                position += 1
        yield last, start, position
        last = position


def _find_kind(letter: str) -> str:
    """`" "` for a blank, `"a"` for a part of a word, `"+"` for a mark on what is before, `"."` for what is alone."""
    if letter.isspace():
        return " "
    category = unicodedata.category(letter)
    if category[0] == "M" or category == "Cf" or "EMOJI MODIFIER" in unicodedata.name(letter, ""):
        return "+"
    if category[0] in "LN":
        if ord(letter) > 0xE00 and unicodedata.name(letter, "").startswith(_SINGLE):
            return "."
        return "a"
    return "."


def mark_sentences(words: Sequence[Word]) -> list[Word]:
    """The words, of which the last one of each sentence says that it ends there.

    A sentence ends with a full stop, an exclamation or a question mark that a blank follows, or a text.

    >>> [word.ends for word in mark_sentences(split_words("Dull. But it ends."))]
    [False, True, False, False, False, True]
    """
    marked: list[Word] = []
    closed = False
    for word, after in zip(words, [*words[1:], None], strict=True):
        # such as a quote behind the mark
        follows = closed and not word.gap and not word.text.isalnum()
        closed = word.text in _LAST or follows
        ends = after is None or (closed and (bool(after.gap) or word.text in _LAST_WITHOUT_BLANK))
        marked.append(word._replace(ends=ends))
    return marked


def encode_texts(texts: Sequence[Sequence[Word]]) -> Tensor:
    """The codes of the words of texts, float64 `(N, W)`; 0 after the end of a text.

    Raises:
        ArgumentError: a text without a word, or one that is so long that the rows of all become too large (see
            `standfast.files.find_room`).
    """
    check(
        len(texts) > 0 and all(map(len, texts)),
        "texts",
        "texts of at least one word",
        "an empty one",
    )
    longest = max(map(len, texts))
    letters = sum(len(word.text) for words in texts for word in words)
    fits = len(texts) * longest * _BYTES <= find_room(letters)
    expected = "texts of which none is much longer than the others"
    check(fits, "texts", expected, f"{len(texts):,} texts, of which one has {longest:,} words")
    rows = torch.full((len(texts), longest), float(NO_WORD), dtype=torch.float64)
    for row, words in zip(rows, texts, strict=True):
        codes = [encode_word(word) for word in words]
        row[: len(words)] = torch.tensor(codes, dtype=torch.float64)
    return rows


class Written(NamedTuple):
    """A row of codes as a string.

    Attributes:
        text: the string.
        starts, ends: where each word begins and ends in it, `(W,)`; equal for a word that is left out.
    """

    text: str
    starts: Array
    ends: Array


def write_text(codes: Sequence[float] | Array) -> Written:
    """The string of a row of codes.

    >>> row = encode_texts([split_words("a dull film")])[0]
    >>> row[0] = 1  # the first word is left out
    >>> write_text(row.tolist())
    Written(text='dull film', starts=array([0, 0, 5]), ends=array([0, 4, 9]))
    """
    text = ""
    starts = list[int]()
    ends = list[int]()
    for code in codes:
        word = decode_word(code)
        if word.text and text:
            text += word.gap
        starts.append(len(text))
        text += word.text
        ends.append(len(text))
    return Written(text, np.array(starts), np.array(ends))


def sum_sentences(maps: Tensor, codes: Tensor) -> Tensor:
    """Maps of words `(N, W)` with, at each word, the sum over its sentence, as the codes `(N, W)` mark sentences."""
    ends = torch.tensor(
        [[decode_word(code).ends for code in row] for row in codes.tolist()], device=maps.device
    )
    number = ends.long().cumsum(1) - ends.long()  # of the sentence of each word
    sums = torch.zeros_like(maps).scatter_add(1, number, maps)
    return sums.gather(1, number)
