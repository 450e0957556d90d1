"""Changes of texts on the embeddings of their tokens: words are swapped for others of a given table.

An input is `(dim, T)`: the embeddings of T tokens, as `standfast.zoo.EmbeddedText` takes them. Each position has one
uniform number u as its parameter. With rate r and the K candidates of the token that stands there, the token stays for
`u < 1 - r`, and becomes candidate number `floor(K (u - (1 - r)) / r)` else. So each candidate has probability `r / K`,
exactly, and the positions are independent. A token without candidates stays. All results are texts: every position
holds the embedding of a token.

The table may have synonyms, typos (`typo_table`) or other casings (`case_table`). A norm ball on the embeddings, in
contrast, has points that are no texts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from standfast.errors import ArgumentError, as_number, check, is_number
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import Limits, Transformation
from standfast.records import Background, FrozenMapping, set_fields
from standfast.tensors import content_keys

#: token ids, and those that may stand in their place
SwapTable = Mapping[int, tuple[int, ...]]
#: the words of the token ids 0, 1, ..., or the ids of words
Vocabulary = Sequence[str] | Mapping[str, int]

_MARKS = ("##", "▁", "Ġ")  # what tokenisers write before a word, or before the rest of one


@neighbourhoods.register("token_swaps")
@dataclass(frozen=True)
class TokenSwaps(Transformation):
    """Texts in which some tokens are swapped for others; inputs are embeddings `(N, dim, T)`.

    Args:
        embedding: the embeddings of all tokens, `(V, dim)`: the weight of the model's embedding layer.
        table: for each token id the ids that may stand in its place, such as synonyms.
        rate: the probability that a token with candidates is swapped, above 0 and below 1.
        padding: the token that stands for no token. Its positions never change, and no token becomes padding.
        words: the words of all tokens, for reports: in the order of their ids, or with their ids. Those that may stand
            in the place of others are stored. Without them, reports show ids.

    Raises:
        ArgumentError: ids out of range; inputs that are not embeddings of tokens.

    >>> _ = torch.manual_seed(0)
    >>> weight = torch.randn(5, 2)
    >>> swaps = TokenSwaps(weight, {1: (2, 3)}, rate=0.5)
    >>> region = swaps.around(weight[torch.tensor([[1, 4, 1]])].transpose(1, 2))
    >>> swapped = region.perturb(torch.tensor([[0.4, 0.9, 0.9]]), torch.tensor([0]))
    >>> torch.equal(swapped[0].T, weight[[1, 4, 3]])
    True
    """

    takes: ClassVar = "any"
    differentiable: ClassVar = False

    embedding: Background | Tensor
    table: SwapTable
    rate: float = 0.1
    padding: int | None = None
    words: Vocabulary | Mapping[int, str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(is_number(self.rate) and 0 < self.rate < 1, "rate", "a number above 0 and below 1", repr(self.rate))
        uniform = self.distribution == "uniform"
        check(uniform, "distribution", "uniform, so that candidates have their probabilities", self.distribution)
        words = "the embeddings of all tokens, floating point (V, dim)"
        if isinstance(self.embedding, Tensor):
            fits = self.embedding.ndim == 2 and self.embedding.is_floating_point()
            check(fits, "embedding", words, f"{self.embedding.dtype} of shape {tuple(self.embedding.shape)}")
            set_fields(self, embedding=Background(self.embedding))
        check(isinstance(self.embedding, Background), "embedding", words, type(self.embedding).__name__)
        check(isinstance(self.table, Mapping), "table", "a mapping from token ids to lists of them", repr(self.table))
        set_fields(self, table=FrozenMapping({_read_id(key): _read_ids(ids) for key, ids in self.table.items()}))
        fits = self.padding is None or (type(self.padding) is int and self.padding >= 0)
        check(fits, "padding", "a token id or None", repr(self.padding))
        if self.words is not None:
            used = {other for ids in self.table.values() for other in ids}
            named = {number: word for number, word in _read_words(self.words).items() if number in used}
            set_fields(self, words=FrozenMapping(named))
        if self._vectors.digest:  # those of a study are read later
            check(len(self._vectors.shape) == 2, "embedding", words, f"shape {self._vectors.shape}")
            _make_plan(self)

    @property
    def _vectors(self) -> Background:
        assert isinstance(self.embedding, Background)
        return self.embedding

    def describe(self) -> str:
        """The rate."""
        return (
            f"given other words: each token that has candidates is swapped with a probability of {100 * self.rate:.3g}%"
        )

    def count_parameters(self, shape: Sequence[int]) -> int:
        """T: one uniform number for each position."""
        return shape[-1]

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """From 0, which keeps the token, to 1.

        Raises:
            ArgumentError: inputs of another shape, or that are not embeddings of tokens.
        """
        dim = self._vectors.shape[1]
        fits = inputs.ndim == 3 and inputs.shape[1] == dim
        check(fits, "inputs", f"embeddings of shape (N, {dim}, tokens)", tuple(inputs.shape))
        plan = _make_plan(self)
        unknown = plan.find_tokens(inputs) < 0
        if bool(unknown.any()):
            row, place = unknown.nonzero()[0].tolist()
            raise ArgumentError(
                "inputs", "embeddings of tokens, as in embedding", f"others, at row {row}, token {place}"
            )
        swapped = self._vectors.inputs[plan.used].to(inputs.device)[..., None]
        inside = bool(((swapped >= bounds[0]) & (swapped <= bounds[1])).all())
        check(inside, "bounds", "the embeddings of all candidates within the bounds", "some outside")
        zeros = inputs.new_zeros(len(inputs), inputs.shape[2])
        return Limits(zeros, zeros, zeros + 1, zeros + torch.inf)

    def name_swaps(self, inputs: Tensor, perturbed: Tensor) -> list[str]:
        """The new words by position; `#5` for token 5 where its word is not known."""
        plan, words = _make_plan(self), {} if self.words is None else _read_words(self.words)
        texts = zip(plan.find_tokens(inputs).tolist(), plan.find_tokens(perturbed).tolist(), strict=True)
        return [
            json.dumps({place: words.get(b, f"#{b}") for place, (a, b) in enumerate(zip(*text, strict=True)) if a != b})
            for text in texts
        ]

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """The texts with some tokens swapped."""
        plan = _make_plan(self)
        tokens = plan.find_tokens(inputs)
        counts, candidates = plan.counts.to(inputs.device), plan.candidates.to(inputs.device)
        count = torch.where(tokens >= 0, counts[tokens], 0)
        position = (parameters.double() - (1 - self.rate)) / self.rate
        swaps = (position >= 0) & (count > 0)
        which = (position * count).floor().long().clamp(min=0)
        which = torch.minimum(which, (count - 1).clamp(min=0))
        new = torch.where(swaps, candidates[tokens.clamp(min=0), which], 0)
        vectors = self._vectors.inputs.to(inputs)[new].transpose(1, 2)
        return torch.where(swaps[:, None], vectors, inputs)


class _Plan(NamedTuple):
    """`counts` `(V,)` and `candidates` `(V, K)` of each token; `keys` of all embeddings, sorted, and their tokens."""

    counts: Tensor
    candidates: Tensor
    used: Tensor
    keys: Tensor
    tokens: Tensor

    def find_tokens(self, inputs: Tensor) -> Tensor:
        """The tokens `(M, T)` whose embeddings stand in `inputs` `(M, dim, T)`; -1 where there is no such token."""
        rows = inputs.transpose(1, 2)
        own = content_keys(rows.flatten(0, 1), 0)
        keys = self.keys.to(inputs.device)
        place = torch.searchsorted(keys, own).clamp(max=len(keys) - 1)
        found = torch.where(keys[place] == own, self.tokens.to(inputs.device)[place], -1)
        return found.reshape(rows.shape[:2])


@lru_cache(maxsize=8)
def _make_plan(swaps: TokenSwaps) -> _Plan:
    vectors = swaps._vectors.inputs
    size = len(vectors)
    known = [key for key in swaps.table if key >= size]
    known += [token for ids in swaps.table.values() for token in ids if token >= size]
    check(not known, "table", f"token ids from 0 to {size - 1}", known[:5])
    check(swaps.padding is None or swaps.padding < size, "padding", f"a token id from 0 to {size - 1}", swaps.padding)
    kept = {
        token: [other for other in dict.fromkeys(ids) if other not in (token, swaps.padding)]
        for token, ids in swaps.table.items()
        if token != swaps.padding
    }
    longest = max((len(ids) for ids in kept.values()), default=0)
    check(longest > 0, "table", "at least one token with another that may stand in its place", "none")
    counts = torch.zeros(size, dtype=torch.int64)
    candidates = torch.zeros(size, longest, dtype=torch.int64)
    for token, ids in kept.items():
        counts[token] = len(ids)
        candidates[token, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    used = torch.tensor(sorted({other for ids in kept.values() for other in ids}))
    # of tokens with equal embeddings the first one
    keys, tokens = content_keys(vectors, 0).sort(stable=True)
    return _Plan(counts, candidates, used, keys, tokens)


def typo_table(vocabulary: Vocabulary, shortest: int = 4) -> dict[int, tuple[int, ...]]:
    """For each word the words that one slip makes of it: a letter more, less or another, or two neighbours swapped.

    Only words of letters count, so that numbers and special tokens stay. Marks of tokenisers before a word (`##`, `▁`,
    `Ġ`) have to be the same. Words that differ in case alone are not typos (`case_table`).

    Args:
        vocabulary: the words in the order of their ids, or a mapping from words to ids.
        shortest: the number of letters that both words have at least, since most short words are one slip apart.

    Returns:
        The ids of the other words, ascending, for each id that has any.

    >>> typo_table(["<pad>", "form", "from", "farm", "1995", "1996", "forms", "to", "too"])
    {1: (2, 3, 6), 2: (1,), 3: (1,), 6: (1,)}
    """
    words = [(number, *_split_mark(word)) for word, number in _read_vocabulary(vocabulary)]
    buckets: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for number, mark, word in words:
        if word.isalpha() and len(word) >= shortest:
            # two words are at most one slip apart only if they are equal after leaving out a letter of one or of both
            for part in {word, *(word[:place] + word[place + 1 :] for place in range(len(word)))}:
                buckets[mark, part].append((number, word))
    found: dict[int, set[int]] = defaultdict(set)
    for bucket in buckets.values():
        for number, word in bucket:
            found[number] |= {other for other, text in bucket if other != number and _is_slip(word, text)}
    return {number: tuple(sorted(found[number])) for number in sorted(found) if found[number]}


def case_table(vocabulary: Vocabulary) -> dict[int, tuple[int, ...]]:
    """For each word the words that differ from it in case only.

    Args:
        vocabulary: the words in the order of their ids, or a mapping from words to ids.

    Returns:
        The ids of the other words, ascending, for each id that has any.

    >>> case_table({"Us": 0, "us": 1, "US": 2, "them": 3})
    {0: (1, 2), 1: (0, 2), 2: (0, 1)}
    """
    groups: dict[str, set[int]] = defaultdict(set)
    entries = _read_vocabulary(vocabulary)
    for word, number in entries:
        groups[word.casefold()].add(number)
    others = ((number, groups[word.casefold()] - {number}) for word, number in entries)
    return {number: tuple(sorted(ids)) for number, ids in sorted(others) if ids}


def _is_slip(word: str, other: str) -> bool:
    if word.casefold() == other.casefold():
        return False
    long, short = (word, other) if len(word) >= len(other) else (other, word)
    if len(long) > len(short) + 1:
        return False
    start = next((place for place, (a, b) in enumerate(zip(long, short, strict=False)) if a != b), len(short))
    if len(long) > len(short):
        return long[start + 1 :] == short[start:]
    swapped = long[start + 1 : start + 2] + long[start : start + 1] + long[start + 2 :]
    return long[start + 1 :] == short[start + 1 :] or swapped == short[start:]


def _split_mark(word: str) -> tuple[str, str]:
    mark = next((mark for mark in _MARKS if word.startswith(mark)), "")
    return mark, word[len(mark) :]


def _read_vocabulary(vocabulary: Vocabulary) -> list[tuple[str, int]]:
    def pairs() -> Iterator[tuple[object, object]]:
        if isinstance(vocabulary, Mapping):
            yield from vocabulary.items()
        elif not isinstance(vocabulary, str):
            yield from ((word, number) for number, word in enumerate(vocabulary))

    found = [(word, as_number(number)) for word, number in pairs()]
    fits = len(found) > 0 and all(isinstance(word, str) and type(number) is int for word, number in found)
    check(fits, "vocabulary", "words, or a mapping from words to ids", type(vocabulary).__name__)
    return found  # type: ignore[return-value]


def _read_words(words: Vocabulary | Mapping[int, str]) -> dict[int, str]:
    """The word of each id."""
    if isinstance(words, Mapping) and all(isinstance(word, str) for word in words.values()):
        return {_read_id(number): str(word) for number, word in words.items()}
    return {number: word for word, number in _read_vocabulary(words)}  # type: ignore[arg-type]


def _read_id(value: object) -> int:
    """A token id; a file of text may have it as text."""
    number = as_number(value)
    if isinstance(number, str) and number.isdigit():
        number = int(number)
    check(type(number) is int and number >= 0, "table", "token ids, whole numbers of at least 0", repr(value))
    return int(number)


def _read_ids(values: object) -> tuple[int, ...]:
    listed = isinstance(values, list | tuple | set | frozenset)
    check(listed, "table", "a list of token ids for each token", repr(values))
    return tuple(map(_read_id, sorted(values) if isinstance(values, set | frozenset) else values))  # type: ignore[call-overload]
