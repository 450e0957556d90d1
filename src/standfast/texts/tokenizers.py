"""Tokenizers of transformers and of tokenizers, asked in one way; and which word each token belongs to."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from standfast.errors import ArgumentError, check
from standfast.tensors import Array
from standfast.texts.words import Written

#: what is expected of a tokenizer
TOKENIZERS = "a fast tokenizer of transformers, or a Tokenizer of tokenizers, that gives the places of its tokens"
#: what is expected where a conversation is to be written
NO_CHAT = "one with a chat template (tokenizer.chat_template), or AnswerModel(chat=False) for a plain prompt"
#: how tokens are called that stand for no token, and for a hidden one, where a tokenizer does not say
_PADDING = ("[PAD]", "<pad>", "<|pad|>")
_MASKS = ("[MASK]", "<mask>")


class Tokens(NamedTuple):
    """The tokens of a string.

    Attributes:
        ids: of all tokens, special ones included.
        spans: where each begins and ends in the string.
        special: whether it is no part of the string.
    """

    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]
    special: Sequence[bool]


class Tokenizer(ABC):
    """What is asked of a tokenizer.

    Attributes:
        padding: the id that stands for no token; None if there is none.
        mask, blank: the strings of the tokens for a hidden word and for none; None where there is no such token.
        own_padding: whether padding is a token of its own, and not, for example, what ends texts.
        most: the largest number of tokens that the model takes; None if it is not known.
        keeps_end: whether too long texts lose their beginning, and not their end.
    """

    padding: int | None = None
    own_padding: bool = True
    mask: str | None = None
    blank: str | None = None
    most: int | None = None
    keeps_end: bool = False

    @abstractmethod
    def read(self, texts: list[str], special: bool = True) -> list[Tokens]:
        """The tokens of strings, none cut off.

        Args:
            texts: the strings.
            special: add the tokens that the tokenizer puts around a text; those written in the strings stay.
        """

    def write(self, ids: Sequence[int]) -> str:
        """The string of tokens, without special ones.

        Raises:
            ArgumentError: the tokenizer writes no strings.
        """
        raise ArgumentError(
            "tokenizer",
            "one that makes strings of tokens, for an answer",
            type(self.stored).__name__,
        )

    def write_chat(self, messages: list[dict[str, str]]) -> str:
        """The string of a conversation, up to where the model answers.

        Raises:
            ArgumentError: there is no template for it, or that fails.
        """
        raise ArgumentError("tokenizer", NO_CHAT, "one without")

    @property
    @abstractmethod
    def stored(self) -> object:
        """What the user's tokenizer is: as it would be stored, without where it came from; or the object itself."""

    def describe(self) -> list[object]:
        """All that the tokens of a string depend on."""
        options = [self.padding, self.own_padding, self.mask, self.blank, self.most, self.keeps_end]
        return [self.stored, options]


class _OfTransformers(Tokenizer):
    def __init__(self, tokenizer: Any) -> None:
        check(
            bool(getattr(tokenizer, "is_fast", False)),
            "tokenizer",
            TOKENIZERS,
            f"the slow {type(tokenizer).__name__}",
        )
        self.tokenizer = tokenizer
        self.padding = tokenizer.pad_token_id
        self.blank = tokenizer.pad_token
        self.mask = tokenizer.mask_token
        self.own_padding = self.padding not in (
            None,
            tokenizer.eos_token_id,
            tokenizer.unk_token_id,
        )
        if self.padding is None:
            self.padding = tokenizer.eos_token_id
            self.blank = None
        if tokenizer.model_max_length < 10**9:
            self.most = tokenizer.model_max_length
        else:
            self.most = None
        self.keeps_end = tokenizer.truncation_side == "left"

    @property
    def stored(self) -> object:
        special = sorted(self.tokenizer.all_special_tokens)
        return [
            _write_rules(self.tokenizer.backend_tokenizer),
            special,
            _find_class(self.tokenizer),
        ]

    def read(self, texts: list[str], special: bool = True) -> list[Tokens]:
        options = {
            "return_offsets_mapping": True,
            "return_special_tokens_mask": True,
            "verbose": False,
        }
        encoded = self.tokenizer(texts, add_special_tokens=special, **options)
        columns = (encoded["input_ids"], encoded["offset_mapping"], encoded["special_tokens_mask"])
        return [
            Tokens(ids, spans, list(map(bool, marks)))
            for ids, spans, marks in zip(*columns, strict=True)
        ]

    def write(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def write_chat(self, messages: list[dict[str, str]]) -> str:
        check(
            bool(getattr(self.tokenizer, "chat_template", None)),
            "tokenizer",
            NO_CHAT,
            "one without",
        )
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template may refuse a role, or be wrong
            roles = ", ".join(message["role"] for message in messages)
            expected = f"a chat template that takes the roles {roles}"
            raise ArgumentError(
                "tokenizer", expected, f"{type(error).__name__}: {error}"
            ) from error
        return str(text)


class _OfTokenizers(Tokenizer):
    def __init__(self, tokenizer: Any) -> None:
        copy = type(tokenizer).from_str(tokenizer.to_str())  # the user's keeps its options
        padding = copy.padding
        truncation = copy.truncation
        copy.no_padding()
        copy.no_truncation()
        self.tokenizer = copy
        self.most = None
        if truncation is not None:
            self.most = truncation["max_length"]
        self.keeps_end = truncation is not None and truncation["direction"] == "left"
        if padding:
            names = [padding["pad_token"]]
        else:
            names = [n for n in _PADDING if copy.token_to_id(n) is not None]
        if padding:
            self.padding = padding["pad_id"]
        else:
            self.padding = None
            if names:
                self.padding = copy.token_to_id(names[0])
        self.blank = next((name for name in names if copy.token_to_id(name) is not None), None)
        self.mask = next((name for name in _MASKS if copy.token_to_id(name) is not None), None)

    @property
    def stored(self) -> object:
        return [_write_rules(self.tokenizer), _find_class(self.tokenizer)]

    def read(self, texts: list[str], special: bool = True) -> list[Tokens]:
        return [
            Tokens(encoding.ids, encoding.offsets, list(map(bool, encoding.special_tokens_mask)))
            for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=special)
        ]

    def write(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


class _OfWords(Tokenizer):
    """That of an object with `find_words(text) -> (ids, spans)`, and `padding`, such as `WordVectors`."""

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary, self.padding = vocabulary, vocabulary.padding

    @property
    def stored(self) -> object:
        return self.vocabulary

    def read(self, texts: list[str], special: bool = True) -> list[Tokens]:
        numbered = map(self.vocabulary.find_words, texts)
        return [Tokens(ids, spans, [False] * len(ids)) for ids, spans in numbered]


def _write_rules(tokenizer: Any) -> str:
    """A hash of a tokenizer of tokenizers as it is stored, without the padding and truncation that calls set."""
    try:
        return _hash_rules(tokenizer.to_str())
    except Exception:  # steps that are written in Python cannot be stored
        return _hash_rules(json.dumps({"vocabulary": tokenizer.get_vocab(with_added_tokens=True)}))


# it is asked for once for each length of texts, and parsing a vocabulary takes as long as some forward passes
@lru_cache(maxsize=8)
def _hash_rules(stored: str) -> str:
    rules = json.loads(stored)
    for option in ("padding", "truncation"):
        rules.pop(option, None)
    content = json.dumps(rules, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _find_class(tokenizer: Any) -> type | str:
    """The class of a tokenizer, whose code counts; its name where it is from its package, whose rules are written."""
    kind = type(tokenizer)
    is_known = kind.__module__.partition(".")[0] in ("transformers", "tokenizers")
    return kind.__name__ if is_known else kind


def read_tokenizer(tokenizer: Any) -> Tokenizer:
    """A tokenizer of another package, to be asked in one way.

    Raises:
        ArgumentError: it is none, a slow one, or one without a token for padding.
    """
    # threads of their own would be lost, with a warning, when workers are forked; results do not depend on them
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if hasattr(tokenizer, "is_fast"):
        reader: Tokenizer = _OfTransformers(tokenizer)
    elif hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "to_str"):
        reader = _OfTokenizers(tokenizer)
    elif hasattr(tokenizer, "find_words"):
        reader = _OfWords(tokenizer)
    else:
        raise ArgumentError("tokenizer", TOKENIZERS, type(tokenizer).__name__)
    check(
        reader.padding is not None,
        "tokenizer",
        "one with a token for padding (tokenizer.pad_token = ...)",
        "none",
    )
    return reader


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """The tokens of a text, and the words that they belong to.

    Attributes:
        ids: of all tokens, `(T,)`: those before the text, of the text, and after it.
        first, last: the tokens of the text are `ids[first:last]`.
        owners: the first and the last word that each of these has a part of, `(last - first, 2)`.
    """

    ids: Array
    first: int
    last: int
    owners: Array

    def find_token(self, word: int) -> int:
        """The place among all tokens of the first token of a word; 0 if the word is not there."""
        is_of_word = (self.owners[:, 0] <= word) & (word <= self.owners[:, 1])
        tokens_of_word = np.flatnonzero(is_of_word)
        if len(tokens_of_word):
            return self.first + int(tokens_of_word[0])
        return 0


def assign_tokens(
    tokens: Tokens, written: Written, offset: int, most: int | None, keeps_end: bool = False
) -> TokenizedText:
    """Which words the tokens of a string belong to.

    A token belongs to the words that it has characters of. One without a character, such as a mark of a beginning,
    belongs to the next word.

    Args:
        tokens: of a string that contains the text.
        written: the text and the places of its words.
        offset: where the text begins in the string.
        most: the largest number of tokens; those at the end of the text are cut off.
        keeps_end: cut off those at its beginning.
    """
    spans = np.array(tokens.spans, dtype=np.int64).reshape(-1, 2) - offset
    length = len(written.text)
    is_special = np.array(tokens.special, dtype=bool)
    overlaps = (spans[:, 1] > 0) & (spans[:, 0] < length)
    inside = ~is_special & overlaps
    inside &= spans[:, 1] > spans[:, 0]
    positions = np.flatnonzero(inside)
    if len(positions):
        first = int(positions[0])
        last = int(positions[-1]) + 1
    else:  # between what is before the text and what is after it
        before = is_special | (spans[:, 1] <= 0)
        if before.all():
            first = last = (len(before) + 1) // 2
        else:
            first = last = int(np.argmin(before))
    ids = np.array(tokens.ids, dtype=np.int64)
    spans = spans[first:last]
    if most is not None:
        excess = min(max(0, len(ids) - most), last - first)
    else:
        excess = 0
    if excess:
        if keeps_end:
            cut = slice(first, first + excess)
        else:
            cut = slice(last - excess, last)
        ids, spans = (
            np.delete(ids, cut),
            np.delete(spans, slice(cut.start - first, cut.stop - first), axis=0),
        )
        last -= excess
    # of words that are left out, which have no characters, none is found
    lefts = np.searchsorted(written.ends, spans[:, 0], side="right")
    rights = np.searchsorted(written.starts, spans[:, 1], side="left") - 1
    full = np.flatnonzero(written.ends > written.starts)
    if len(full) == 0:
        return TokenizedText(ids, first, first, np.zeros((0, 2), dtype=np.int64))
    lefts = np.clip(lefts, full[0], full[-1])
    rights = np.maximum(np.clip(rights, full[0], full[-1]), lefts)
    return TokenizedText(ids, first, last, np.stack([lefts, rights], axis=1))
