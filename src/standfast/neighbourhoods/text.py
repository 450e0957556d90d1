"""Changes of texts that make other texts: other words, slips of the keyboard, case, punctuation, words left out.

Inside of standfast a text is a row `(W,)` of numbers, one code for each word of the original text (`encode_word`). A
change puts other words, or none, in the places of some; what the model reads is the string that comes of it. So maps of
an original and of a changed text have the same positions, and are compared word by word.

Each position has one uniform number u as its parameter. With rate r and K candidates for its word, the word stays for
`u < 1 - r`, and becomes candidate number `floor(K (u - (1 - r)) / r)` else. So each candidate has probability `r / K`,
exactly, and the positions are independent. A word without candidates stays.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import string
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, MissingExtraError, check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.choices import Choices
from standfast.neighbourhoods.transformations import ParameterLimits, Transformation
from standfast.records import Count, Fraction, FrozenMapping, set_fields
from standfast.tensors import Array, send

#: words, and those that may stand in their place
SwapTable = Mapping[str, Sequence[str]]
#: the codes of a place after the end of a text, and of a word that is left out, in a sentence and at its end
NO_WORD = 0
GONE = 1
GONE_AT_END = 2
#: the number of codes; each is exact in double precision
CODES = 2**52
#: a word of a passage, with apostrophes and hyphens inside, or a mark
_WORD_OF_PASSAGE = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_MOST_LISTED = 1000  # words that may come of a word, where another change follows


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        text: the word, or a punctuation mark; or a passage, with blanks, where a model explains such units.
        gap: what stands before it, such as a blank.
        ends: whether a sentence ends with it, where sentences are explained.
        fixed: whether no change touches it, as a part of a word.
    """

    text: str
    gap: str = ""
    ends: bool = False
    fixed: bool = False


# A code is a hash of the word, so it is the same in all processes and whatever the other words are. This is where
# words are looked up by their codes.
_WORDS: dict[int, Word] = {
    NO_WORD: Word(""),
    GONE: Word(""),
    GONE_AT_END: Word("", ends=True),
}


@lru_cache(maxsize=1 << 20)
def encode_word(word: Word) -> int:
    """The code of a word, a whole number below 2^52, which `decode_word` knows from now on.

    >>> decode_word(encode_word(Word("film", " ")))
    Word(text='film', gap=' ', ends=False, fixed=False)
    """
    if not word.text:
        return GONE_AT_END if word.ends else GONE
    content = "\0".join(map(str, word)).encode()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    # codes below 8 are no words, such as NO_WORD and GONE
    code = number % (CODES - 8) + 8
    stored_word = _WORDS.setdefault(code, word)
    # once in 10^15 pairs
    assert stored_word == word, f"two words have one code: {stored_word} and {word}"
    return code


def decode_word(code: float) -> Word:
    """The word of a code.

    Raises:
        ArgumentError: no text that was read has this code.
    """
    # int() would make a code of any fraction
    word = _WORDS.get(int(code)) if code == code // 1 else None
    if word is None:
        raise ArgumentError("inputs", "codes of words, as TextModel makes them", f"{code:.17g}")
    return word


@dataclass(frozen=True)
class TextChange(Transformation):
    """The base of changes of texts: a class says which `candidates` a word has. Inputs are codes of words, `(N, W)`.

    Where a unit is a passage of several words (`standfast.AnswerModel`), its candidates are it with one of its words
    changed. So at most one word of each passage changes, with probability `rate`.

    Args:
        rate: the probability that a word with candidates changes, above 0 and below 1.

    Raises:
        ArgumentError: in `around`, inputs that are no codes of words.
    """

    takes = "any"
    differentiable = False
    #: words with more letters have no candidates; None where a long word has no more of them than a short one
    longest: ClassVar[int | None] = None

    rate: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        uniform = self.distribution == "uniform"
        check(
            uniform,
            "distribution",
            "uniform, so that candidates have their probabilities",
            self.distribution,
        )

    @abstractmethod
    def candidates(self, word: str) -> Iterable[str]:
        """What may stand in the place of a word; an empty text leaves it out. The word itself does not count."""

    @property
    def aligns(self) -> bool:
        """Maps keep their positions, but words that are left out are not compared."""
        return True

    @property
    def chooses(self) -> bool:
        """Always: each position chooses a word."""
        return True

    def count_parameters(self, shape: Sequence[int]) -> int:
        """W: one uniform number for each position."""
        return shape[-1]

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        check(
            inputs.ndim == 2,
            "inputs",
            "codes of words (N, W), as TextModel makes them",
            tuple(inputs.shape),
        )
        for code in torch.unique(inputs).tolist():
            decode_word(code)

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> ParameterLimits:
        """From 0, which keeps the word, to 1."""
        self.check_fit(inputs, bounds)
        zeros = inputs.new_zeros(inputs.shape)
        return ParameterLimits(zeros, zeros, zeros + 1, zeros + torch.inf)

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """At each position the word itself, and its candidates.

        After other changes of texts, the word that they may make of it that has most candidates counts: points for so
        many meet each candidate of a word with fewer, too.
        """
        codes, number_of_code = torch.unique(inputs, return_inverse=True)
        countable = []
        counts = []
        for code in codes.tolist():
            count = _count_candidates(self, tuple(before), int(code))
            countable.append(count is not None)
            counts.append(count or 0)
        is_countable = send(countable, inputs.device, torch.bool)
        others = send(counts, inputs.device, torch.int64)[number_of_code]

        def find_points(numbers: Tensor) -> Tensor:
            # middles of equal parts of the interval in which the word changes
            middle = (numbers - 0.5) / others.clamp(min=1)[:, None]
            changes = (1 - self.rate) + middle * self.rate
            return torch.where(numbers > 0, changes, 0.0)

        ordered = torch.zeros(inputs.shape[1], dtype=torch.bool, device=inputs.device)
        return Choices(
            others + 1,
            torch.zeros_like(others),
            ordered,
            find_points,
            is_countable[number_of_code].all(1),
        )

    def find_movable(self, inputs: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Those with a word that has candidates. No word's candidates are kept."""
        codes, number_of_code = torch.unique(inputs, return_inverse=True)
        has_candidates = []
        for code in codes.tolist():
            first = next(_find_others(self, int(code)), None)
            has_candidates.append(first is not None)
        is_movable = send(has_candidates, inputs.device, torch.bool)
        return is_movable[number_of_code].any(1)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The texts with some words changed."""
        options = _list_options(self, inputs)
        position = (parameters.double() - (1 - self.rate)) / self.rate
        last = (options.counts - 1).clamp(min=0)
        number = (position * options.counts).floor().long().clamp(min=0)
        candidates = options.pick(torch.minimum(number, last)).to(inputs)
        is_changed = (position >= 0) & (options.counts > 0)
        return torch.where(is_changed, candidates, inputs)

    def find_compared(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        return find_present(inputs) & find_present(self.transform(inputs, parameters, bounds))

    def name_swaps(self, inputs: Tensor, perturbed: Tensor) -> list[str]:
        """The new words by position; an empty text for a word that is left out."""
        swaps = []
        for before, after in zip(inputs.tolist(), perturbed.tolist(), strict=True):
            new_words: dict[int, str] = {}
            for position, (old, new) in enumerate(zip(before, after, strict=True)):
                if new != old:
                    new_words[position] = decode_word(new).text
            swaps.append(json.dumps(new_words))
        return swaps


def count_too_long(change: TextChange, codes: Tensor) -> int:
    """How many different words of codes `(N, W)` have no candidates, because they are too long."""
    if change.longest is None:
        return 0
    words: set[str] = set()
    for code in torch.unique(codes).tolist():
        words.update(_list_words(decode_word(code).text))
    return sum(len(word) > change.longest for word in words)


def find_present(codes: Tensor) -> Tensor:
    """Where words stand: bool, of the shape of the codes."""
    return codes > GONE_AT_END


@lru_cache(maxsize=1 << 18)
def _count_candidates(
    change: TextChange, before: tuple[Transformation, ...], code: int
) -> int | None:
    """How many candidates a word has at most after other changes; None where too much may have come of it to list."""
    codes = {code}
    for earlier in before:
        if not isinstance(earlier, TextChange) or len(codes) > _MOST_LISTED:
            return None
        others: set[int] = set()
        for word in codes:
            others.update(map(int, _list_candidates(earlier, word)))
        # an earlier change may also leave the word as it is
        codes |= others
    if len(codes) > _MOST_LISTED:
        return None
    return max(len(_list_candidates(change, word)) for word in codes)


@dataclass(frozen=True, eq=False)
class _Options:
    """The candidates of the words of texts `(..., W)`.

    They are in one row and not in a table of words and candidates, which one long word would make wide for all.

    Attributes:
        candidates: the codes of the candidates of all different words, one word after another.
        starts, counts: of the word at each place, where its candidates begin, and how many there are, `(..., W)`.
    """

    candidates: Tensor
    starts: Tensor
    counts: Tensor

    def pick(self, number: Tensor | int) -> Tensor:
        """The code of the candidate of this number at each place; any code where the word has fewer."""
        last = len(self.candidates) - 1
        index = (self.starts + number).clamp(max=last)
        return self.candidates[index]


def _list_options(change: TextChange, inputs: Tensor) -> _Options:
    """The candidates of the words of codes `(..., W)`."""
    codes, number_of_code = torch.unique(inputs, return_inverse=True)
    candidates = [_list_candidates(change, int(code)) for code in codes.tolist()]
    counts = np.array([len(words) for words in candidates], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    # so that there is one to pick where no word has any
    listed = np.concatenate([*candidates, np.zeros(1)])
    device = inputs.device
    return _Options(
        send(torch.from_numpy(listed), device),
        send(torch.from_numpy(starts), device)[number_of_code],
        send(torch.from_numpy(counts), device)[number_of_code],
    )


def _find_others(change: TextChange, code: int) -> Iterator[str]:
    """The candidates of a word one by one, some perhaps twice; of a passage it with another word in one place."""
    word = decode_word(code)
    if code <= GONE_AT_END or word.fixed:
        return
    if _is_passage(word.text):
        yield from _change_one_word(change, word.text)
    else:
        yield from _change_word(change, word.text)


def _change_word(change: TextChange, word: str) -> Iterator[str]:
    """What else may stand in the place of a word; nothing for one that is too long."""
    if change.longest is not None and len(word) > change.longest:
        return
    for candidate in change.candidates(word):
        if candidate != word:
            yield candidate


def _change_one_word(change: TextChange, passage: str) -> Iterator[str]:
    """The passage with one of its words changed, in all ways."""
    for word in _WORD_OF_PASSAGE.finditer(passage):
        before = passage[: word.start()]
        after = passage[word.end() :]
        for candidate in _change_word(change, word[0]):
            if candidate:
                changed = before + candidate + after
            else:
                # a word that is left out takes the blank before it along
                changed = before.rstrip() + after
            if changed.strip():
                yield changed.strip()


def _is_passage(text: str) -> bool:
    """Whether a text is a unit of several words, such as a sentence that a model of answers reads."""
    return any(map(str.isspace, text))


def _list_words(text: str) -> list[str]:
    """The words of a passage, or the word itself."""
    if _is_passage(text):
        return _WORD_OF_PASSAGE.findall(text)
    return [text]


@lru_cache(maxsize=1 << 18)
def _list_candidates(change: TextChange, code: int) -> Array:
    """The codes of the candidates of a word, in the order in which the change names them."""
    word = decode_word(code)
    codes = []
    for other in dict.fromkeys(_find_others(change, code)):
        codes.append(encode_word(word._replace(text=other)))
    return np.array(codes, dtype=np.float64)


@neighbourhoods.register("token_swaps")
@dataclass(frozen=True)
class TokenSwaps(TextChange):
    """Texts in which some words are swapped for others of a table, such as synonyms.

    Args:
        rate: the probability that a word with candidates is swapped.
        table: for each word those that may stand in its place. A word in lower case is also found where it begins with
            a capital letter or is written in capitals, and so are then those in its place. `"wordnet"` for the synonyms
            of WordNet, through the package nltk, if its data are there.

    >>> row = torch.tensor([[encode_word(Word("Dull")), encode_word(Word("film", " "))]], dtype=torch.float64)
    >>> region = TokenSwaps(table={"dull": ["boring", "flat"]}, rate=0.5).around(row)
    >>> changed = region.perturb(torch.tensor([[0.8, 0.9]], dtype=torch.float64), torch.tensor([0]))
    >>> [decode_word(code).text for code in changed[0].tolist()]
    ['Flat', 'film']
    """

    version: ClassVar[int] = 2

    table: SwapTable | Literal["wordnet"] = "wordnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.table, Mapping):
            lists: dict[str, tuple[str, ...]] = {}
            for word, others in self.table.items():
                if isinstance(others, str):
                    lists[str(word)] = (others,)
                else:
                    lists[str(word)] = tuple(map(str, others))
            check(len(lists) > 0, "table", "at least one word with others", "an empty table")
            several = [word for word in lists if len(word.split()) != 1]
            check(not several, "table", "single words", ", ".join(map(repr, several[:3])))
            set_fields(self, table=FrozenMapping(lists))
        else:
            expected = "a mapping from words to lists of others, or 'wordnet'"
            check(self.table == "wordnet", "table", expected, repr(self.table))

    def describe(self) -> str:
        """The rate."""
        return f"given other words in {100 * self.rate:.3g}% of the places that have candidates"

    def candidates(self, word: str) -> Iterable[str]:
        if not isinstance(self.table, Mapping):
            return _find_synonyms(word)
        if word in self.table:
            return self.table[word]
        if not word[:1].isupper():
            return []
        others = self.table.get(word.lower(), ())
        # a single capital letter, such as "I", is no word in capitals
        if len(word) > 1 and word.isupper():
            return [other.upper() for other in others]
        return [other[:1].upper() + other[1:] for other in others]


@lru_cache(maxsize=1 << 16)
def _find_synonyms(word: str) -> list[str]:
    """The single words that share a meaning with a word, by WordNet, in alphabetical order."""
    try:
        wordnet = importlib.import_module("nltk.corpus").wordnet
        groups = wordnet.synsets(word)
    except ImportError as error:
        raise MissingExtraError("TokenSwaps('wordnet') (nltk)", "text") from error
    except LookupError as error:
        got = "none (python -m nltk.downloader wordnet)"
        raise ArgumentError(
            "table", "the data of WordNet for nltk, or a table of words", got
        ) from error
    # WordNet joins the words of a phrase by underscores
    names = {name for group in groups for name in group.lemma_names() if name.isalpha()}
    return sorted(names - {word, word.lower()})


#: the keys beside each letter
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _list_near_keys(line: int, column: int) -> str:
    """The keys left and right of a key, and above and below it."""
    row = _ROWS[line]
    left = row[max(0, column - 1) : column]
    right = row[column + 1 : column + 2]
    keys = left + right
    for other in (line - 1, line + 1):
        if 0 <= other < len(_ROWS):
            keys += _ROWS[other][column : column + 1]
    return keys


def _map_near_keys() -> dict[str, str]:
    near_keys: dict[str, str] = {}
    for line, row in enumerate(_ROWS):
        for column, key in enumerate(row):
            near_keys[key] = _list_near_keys(line, column)
    return near_keys


_NEAR = _map_near_keys()


@neighbourhoods.register("typos")
@dataclass(frozen=True)
class Typos(TextChange):
    """Texts in which some words are one slip wrong.

    A slip leaves out a letter, doubles it, swaps two neighbours, or hits a key beside the right one. Each letter has
    about ten slips, so words of more than 256 letters, such as a picture in a text, are never written wrongly.

    Args:
        rate: the probability that a word is written wrongly.
        shortest: the number of letters of a word that may be; most short words are one slip apart from others.

    >>> list(Typos(shortest=2).candidates("at"))
    ['t', 'aat', 'ta', 'st', 'qt', 'zt', 'a', 'att', 'ar', 'ay', 'ag']
    """

    longest = 256

    shortest: Count = 4

    def describe(self) -> str:
        """The rate."""
        return f"written with typing errors in {100 * self.rate:.3g}% of the longer words"

    def candidates(self, word: str) -> Iterable[str]:
        if not word.isalpha() or len(word) < self.shortest:
            return
        for position, letter in enumerate(word):
            before = word[:position]
            after = word[position + 1 :]
            yield before + after
            yield before + letter + letter + after
            if after:
                yield before + after[0] + letter + after[1:]
            near = _NEAR.get(letter.lower(), "")
            if letter.isupper():
                near = near.upper()
            for other in near:
                yield before + other + after


@neighbourhoods.register("casing")
@dataclass(frozen=True)
class Casing(TextChange):
    """Texts in which some words have other cases: small letters, capitals, or a capital at the beginning.

    >>> list(Casing().candidates("film"))
    ['film', 'FILM', 'Film']
    """

    def describe(self) -> str:
        """The rate."""
        return f"given another case in {100 * self.rate:.3g}% of the words"

    def candidates(self, word: str) -> Iterable[str]:
        capitalised = word[:1].upper() + word[1:].lower()
        return word.lower(), word.upper(), capitalised


@neighbourhoods.register("punctuation")
@dataclass(frozen=True)
class Punctuation(TextChange):
    """Texts in which some punctuation marks are others or left out, and some words are followed by one more.

    >>> list(Punctuation().candidates(".")), list(Punctuation().candidates("film"))
    (['', ',', '!', '?', ';'], ['film,', 'film.', 'film!', 'film?', 'film;'])
    """

    _marks: ClassVar[str] = ",.!?;"

    def describe(self) -> str:
        """The rate."""
        return f"given other punctuation at {100 * self.rate:.3g}% of the words and marks"

    def candidates(self, word: str) -> Iterable[str]:
        if word in string.punctuation:
            return ["", *(mark for mark in self._marks if mark != word)]
        return [word + mark for mark in self._marks]


@neighbourhoods.register("deletion")
@dataclass(frozen=True)
class Deletion(TextChange):
    """Texts in which some words are left out; their places are not compared.

    >>> list(Deletion().candidates("film"))
    ['']
    """

    def describe(self) -> str:
        """The rate."""
        return f"shortened by {100 * self.rate:.3g}% of the words"

    def candidates(self, word: str) -> Iterable[str]:
        return [""]
