"""Changes of texts: their probabilities, what they make, and that everything else stays."""

from __future__ import annotations

import itertools
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from standfast.errors import ArgumentError, MissingExtraError
from standfast.metrics.base import plain
from standfast.neighbourhoods import (
    Casing,
    Compose,
    Deletion,
    Punctuation,
    TextChange,
    TokenSwaps,
    Typos,
)
from standfast.neighbourhoods.text import NO_WORD, Word, decode_word, encode_word
from standfast.study.file.options import neighbourhood_from, to_plain
from standfast.tensors import Streams
from standfast.texts import encode_texts, split_words, write_text

SYNONYMS = {"dull": ["boring", "flat", "slow"], "film": "movie", "great": ["good", "great"]}


def read(*texts: str) -> Tensor:
    return encode_texts([split_words(text) for text in texts])


def words_of(row: Tensor) -> list[str]:
    return [decode_word(code).text for code in row.tolist()]


def test_candidates_have_their_probabilities() -> None:
    region = TokenSwaps(table=SYNONYMS, rate=0.3).around(read("dull film , dull", "film"))
    count = 20_000
    points = region.sample(count, Streams([0, 1], torch.device("cpu")))
    found = region.perturb(points[0], torch.zeros(count, dtype=torch.int64))
    texts = [[decode_word(code).text for code in place] for place in found.T.tolist()]
    dull = ["dull", *SYNONYMS["dull"]]
    for place, words, expected in (
        (0, dull, [0.7, 0.1, 0.1, 0.1]),
        (1, ["film", "movie"], [0.7, 0.3]),
    ):
        observed = [texts[place].count(word) for word in words]
        assert sum(observed) == count
        assert stats.chisquare(observed, [count * p for p in expected]).pvalue > 1e-3
    assert set(texts[2]) == {","}
    pairs = [
        [sum(pair == (a, b) for pair in zip(texts[0], texts[3], strict=True)) for a in dull]
        for b in dull
    ]
    assert stats.chi2_contingency(pairs).pvalue > 1e-3  # positions are independent
    other = region.perturb(points[1], torch.ones(count, dtype=torch.int64))
    assert bool((other[:, 1:] == NO_WORD).all())  # what is behind the end stays


def test_a_change_keeps_gaps_capitals_and_the_number_of_places() -> None:
    rows = read("Dull  film,\nGREAT: dull")
    region = TokenSwaps(table={"dull": ["flat"], "great": ["fine"]}, rate=0.5).around(rows)
    changed = region.perturb(
        torch.full((1, rows.shape[1]), 0.9, dtype=torch.float64), torch.tensor([0])
    )
    assert write_text(changed[0].tolist()).text == "Flat  film,\nFINE: flat"
    same = region.perturb(
        torch.full((1, rows.shape[1]), 0.4, dtype=torch.float64), torch.tensor([0])
    )
    assert torch.equal(same, rows)
    named = TokenSwaps(table=SYNONYMS).name_swaps(rows, changed)
    assert [json.loads(each) for each in named] == [{"0": "Flat", "3": "FINE", "5": "flat"}]


def count_slips(word: str, other: str) -> int:
    """The smallest number of letters left out, inserted, replaced, or of neighbours swapped (by the recursion)."""
    cost: dict[tuple[int, int], int] = {}
    for i, j in itertools.product(range(len(word) + 1), range(len(other) + 1)):
        ways = [i + j] if 0 in (i, j) else []
        if i and j:
            ways += [
                cost[i - 1, j] + 1,
                cost[i, j - 1] + 1,
                cost[i - 1, j - 1] + (word[i - 1] != other[j - 1]),
            ]
        if i > 1 and j > 1 and (word[i - 2], word[i - 1]) == (other[j - 1], other[j - 2]):
            ways.append(cost[i - 2, j - 2] + 1)
        cost[i, j] = min(ways)
    return cost[len(word), len(other)]


@pytest.mark.parametrize("word", ["film", "Boring", "naïve", "aaaa"])
def test_typos_are_one_slip_away(word: str) -> None:
    found = [each for each in Typos().candidates(word) if each != word]
    assert len(found) > len(word)
    assert {count_slips(word.lower(), each.lower()) for each in found} == {1}
    assert all(
        each[:1].isupper()
        for each in found
        if word[0].isupper() and each[:1].lower() == word[0].lower()
    )


@pytest.mark.parametrize("word", ["is", "1995", ",", "don't"])
def test_no_typos_in_short_words_numbers_and_marks(word: str) -> None:
    assert list(Typos(shortest=4).candidates(word)) == []


@pytest.mark.parametrize(
    ("change", "text", "expected"),
    [
        (Casing(0.5), "a Film", {"a": {"A"}, "Film": {"film", "FILM"}}),
        (
            Punctuation(0.5),
            "film.",
            {"film": {"film,", "film.", "film!", "film?", "film;"}, ".": {"", ",", "!", "?", ";"}},
        ),
        (Deletion(0.5), "a film", {"a": {""}, "film": {""}}),
    ],
)
def test_what_changes_make(change: TextChange, text: str, expected: dict[str, set[str]]) -> None:
    rows = read(text)
    region = change.around(rows)
    for place, word in enumerate(words_of(rows[0])):
        points = torch.zeros(200, rows.shape[1], dtype=torch.float64)
        points[:, place] = torch.linspace(0.5, 0.999, 200)
        found = region.perturb(points, torch.zeros(200, dtype=torch.int64))
        assert {words_of(row)[place] for row in found} == expected[word]


def test_words_that_are_left_out_are_not_compared() -> None:
    rows = read("a dull film", "film")
    for change in (Deletion(0.5), Compose([TokenSwaps(table=SYNONYMS, rate=0.5), Deletion(0.5)])):
        region = change.around(rows)
        points = torch.zeros(2, region.shape[0], dtype=torch.float64)
        points[0, -2] = points[0, 1] = 0.9  # the second word is left out
        maps, compared = region.align_maps(torch.rand(2, 3), points, torch.arange(2))
        assert compared.expand(maps.shape).tolist() == [[True, False, True], [True, False, False]]


def test_sentences_still_end_where_a_mark_is_left_out() -> None:
    end = encode_word(Word(".", ends=True))
    region = Deletion(0.5).around(
        torch.tensor([[encode_word(Word("end")), end]], dtype=torch.float64)
    )
    changed = region.perturb(torch.tensor([[0.0, 0.9]], dtype=torch.float64), torch.tensor([0]))
    assert decode_word(changed[0, 1].item()) == Word("", ends=True)


@pytest.mark.parametrize(
    "change",
    [
        Typos(0.2, shortest=3),
        TokenSwaps(0.3, SYNONYMS),
        Casing(0.4),
        Compose([Typos(), Deletion()]),
    ],
)
def test_options_are_stored_and_read_back(change: Any) -> None:
    assert neighbourhood_from(to_plain(change)) == change
    assert hash(change) == hash(neighbourhood_from(to_plain(change)))
    assert json.dumps(plain(change))


def test_what_does_not_fit() -> None:
    cases: dict[str, Any] = {
        "rate": lambda: Typos(rate=1.0),
        "distribution": lambda: Typos(distribution="truncated_normal"),
        "table": lambda: TokenSwaps(table={}),
        "inputs": lambda: Typos().around(torch.rand(2, 3, 4)),
    }
    for argument, call in cases.items():
        with pytest.raises(ArgumentError) as caught:
            call()
        assert caught.value.argument == argument
    with pytest.raises(ArgumentError, match="codes of words"):
        Typos().around(torch.full((1, 2), 77.0, dtype=torch.float64))
    rows = read("a 1 !")  # without candidates it stays
    assert torch.equal(
        Typos().around(rows).perturb(torch.ones(1, 3).double(), torch.tensor([0])), rows
    )


def test_synonyms_of_wordnet(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = ModuleType("nltk.corpus")
    groups = {"plot": [["plot", "story"], ["plot", "secret_plan", "game"]]}

    def synsets(word: str) -> list[Any]:
        return [
            SimpleNamespace(lemma_names=lambda own=own: own) for own in groups.get(word.lower(), [])
        ]

    corpus.wordnet = SimpleNamespace(synsets=synsets)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nltk.corpus", corpus)
    assert list(TokenSwaps().candidates("plot")) == ["game", "story"]
    assert list(TokenSwaps().candidates("film")) == []
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    with pytest.raises(MissingExtraError):
        TokenSwaps().candidates("unseen")
