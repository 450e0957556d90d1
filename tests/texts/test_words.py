"""Texts as words, as rows of codes and as strings again; and the words of tokens, against a slow loop."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.neighbourhoods.text import CODES, GONE, NO_WORD, Word, encode_word
from standfast.texts import TokenBatch, encode_texts, split_words, sum_sentences, write_text
from standfast.texts.tokenizers import TokenizedText, Tokens, assign_tokens
from standfast.texts.words import mark_sentences


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's a well-made film!", ["It's", "a", "well-made", "film", "!"]),
        ("« C’est l'été », dit-il.", ["«", "C’est", "l'été", "»", ",", "dit-il", "."]),
        ("映画は good", ["映", "画", "は", "good"]),
        ("हिन्दी फ़िल्म", ["हिन्दी", "फ़िल्म"]),
        ("فيلم رائع،", ["فيلم", "رائع", "،"]),
        ("e-mail me: a_b@c.org 😀", ["e-mail", "me", ":", "a_b", "@", "c", ".", "org", "😀"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert [word.text for word in split_words(text)] == words


@settings(deadline=None)
@given(st.text(max_size=60).filter(lambda text: text.strip() != ""))
def test_a_row_is_the_text_but_for_blanks_at_its_ends(text: str) -> None:
    row = encode_texts([split_words(text)])
    assert bool((row < CODES + 8).all())
    written = write_text(row[0].tolist())
    assert written.text == text.strip()
    assert [written.text[a:b] for a, b in zip(written.starts, written.ends, strict=True)] == [
        word.text for word in split_words(text)
    ]


def test_codes_do_not_depend_on_other_words_and_processes() -> None:
    own = "from standfast.neighbourhoods.text import Word, encode_word; print(encode_word(Word('film', ' ')))"
    there = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True)
    assert int(there.stdout) == encode_word(Word("film", " "))
    assert encode_word(Word("film", " ")) != encode_word(Word("film"))
    assert encode_word(Word("", " ")) == GONE


def test_sums_over_sentences() -> None:
    words = mark_sentences(split_words("Dull film. Great story?! Yes"))
    rows = encode_texts([words])
    maps = torch.arange(1.0, 1 + rows.shape[1])[None]
    assert sum_sentences(maps, rows)[0].tolist() == [6.0] * 3 + [22.0] * 4 + [8.0]


def slow_owners(
    spans: list[tuple[int, int]], starts: list[int], ends: list[int]
) -> list[list[int]]:
    """For each token the words of which it has a character; else the next word that there is, or the last."""
    there = [k for k in range(len(starts)) if ends[k] > starts[k]]
    found = []
    for start, end in spans:
        own = [k for k in there if any(starts[k] <= place < ends[k] for place in range(start, end))]
        after = [k for k in there if ends[k] > start]
        found.append(own or after[:1] or there[-1:])
    return found


@st.composite
def written_texts(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Codes of words, some left out, and a cut of their string into tokens at any places."""
    words = draw(
        st.lists(st.sampled_from(["a", "dull", "film", "boring", "!", ""]), min_size=1, max_size=7)
    )
    gaps = draw(
        st.lists(st.sampled_from(["", " ", "  "]), min_size=len(words), max_size=len(words))
    )
    codes = [encode_word(Word(word, gap)) for word, gap in zip(words, gaps, strict=True)]
    length = len(write_text(codes).text)
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=12)) | {0, length})
    return codes, list(itertools.pairwise(cuts))


@settings(deadline=None, max_examples=300)
@given(written_texts())
def test_tokens_belong_to_words_as_a_slow_loop_says(
    drawn: tuple[list[int], list[tuple[int, int]]],
) -> None:
    codes, spans = drawn
    written = write_text(codes)
    values = torch.arange(1.0, len(spans) + 3, dtype=torch.float64)[None]
    tokens = Tokens(
        range(len(spans) + 2), [(0, 0), *spans, (0, 0)], [True, *[False] * len(spans), True]
    )
    reading = assign_tokens(tokens, written, 0, None)
    there = written.ends > written.starts
    found = TokenBatch([0], [reading], len(spans) + 2, None).sum_tokens(
        values, True, there[None], len(codes)
    )[0]
    expected = np.zeros(len(codes))
    owners = slow_owners(spans, written.starts.tolist(), written.ends.tolist())
    for number, own in enumerate(owners if there.any() else []):
        for word in own:
            expected[word] += values[0, number + 1].item() / len(own)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert (reading.first, reading.last) == ((1, 1 + len(spans)) if there.any() else (1, 1))


def test_a_text_of_too_many_tokens_loses_its_end_or_its_beginning() -> None:
    written = write_text([encode_word(Word(word, " ")) for word in ("a", "b", "c", "d")])
    spans = [(0, 0), (0, 1), (2, 3), (4, 5), (6, 7), (0, 0)]
    tokens = Tokens([90, 1, 2, 3, 4, 91], spans, [True, False, False, False, False, True])
    short: dict[bool, TokenizedText] = {
        end: assign_tokens(tokens, written, 0, 4, keeps_end=end) for end in (False, True)
    }
    assert short[False].ids.tolist() == [90, 1, 2, 91]
    assert short[True].ids.tolist() == [90, 3, 4, 91]
    assert short[True].owners[:, 0].tolist() == [2, 3]
    assert NO_WORD not in short[True].ids


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("7.5 of 10. Great", [".", "Great"]),
        ('He said "dull." Then he left', ['"', "left"]),
        ("好看。不错！", ["。", "！"]),
        ("Well... no?! Yes", [".", "!", "Yes"]),
    ],
)
def test_where_sentences_end(text: str, last: list[str]) -> None:
    assert [word.text for word in mark_sentences(split_words(text)) if word.ends] == last


@pytest.mark.parametrize(
    "text",
    [
        "I \u2764\ufe0f it",
        "a \U0001f469\u200d\U0001f4bb works",
        "می\u200cخواهم بروم الان",
        "\U0001f44d\U0001f3fd so good",
    ],
)
def test_what_only_changes_a_character_is_no_word(text: str) -> None:
    assert len(split_words(text)) == 3
