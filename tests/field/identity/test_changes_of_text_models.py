"""Which changes of a model of texts, and of its tokenizer, make another job; each changes one thing."""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planned_jobs import list_identities, plan_texts
from torch import Tensor, nn

import standfast
from standfast.data import WordVectors
from standfast.neighbourhoods import Casing

tokenizers = pytest.importorskip("tokenizers")

#: whole words only: the pieces of words are met by typos alone
TEXTS = ["the film was a great and moving story", "a dull plot and some very boring actors"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
PIECES = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]


class Bag(nn.Module):
    """The mean of word vectors, and a line."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head, self.scale = nn.Embedding(120, 8), nn.Linear(8, 2), 1.0

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        out: Tensor = self.head((self.words(ids) * present[..., None]).sum(1).tanh()) * self.scale
        return out


def make_tokenizer(pieces: list[str] = PIECES, **options: Any) -> Any:
    entries = ["[UNK]", "[PAD]", "[MASK]", *WORDS, *pieces]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(entries))}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", **options)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=1, pad_token="[PAD]")
    return tokenizer


def adjust(change: Callable[[Any], object]) -> Any:
    tokenizer = make_tokenizer()
    change(tokenizer)
    return tokenizer


def lower(tokenizer: Any) -> None:
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()


def split_otherwise(tokenizer: Any) -> None:
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()


def plan(
    model: nn.Module | None = None, tokenizer: Any = None, around: Any = None, **options: Any
) -> set[str]:
    reader = standfast.TextModel(
        Bag().eval() if model is None else model,
        make_tokenizer() if tokenizer is None else tokenizer,
        **options,
    )
    return list_identities(plan_texts(reader, TEXTS, around))


@pytest.fixture(scope="module")
def unchanged() -> set[str]:
    """The identities before a change."""
    return plan()


#: the tokenizer after the change, and whether it is noticed; most change no token of the texts themselves
TOKENIZERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "the same one again": (make_tokenizer, False),
    "other pieces of words": (lambda: make_tokenizer(PIECES[::-1]), True),
    "one piece less": (lambda: make_tokenizer(PIECES[:-1]), True),
    "how long words are that it knows": (lambda: make_tokenizer(max_input_chars_per_word=9), True),
    "how pieces are marked": (lambda: make_tokenizer(continuing_subword_prefix="@@"), True),
    "small letters": (lambda: adjust(lower), True),
    "where it splits": (lambda: adjust(split_otherwise), True),
    "a token more": (lambda: adjust(lambda t: t.add_tokens(["##zzz"])), True),
    "a special token more": (lambda: adjust(lambda t: t.add_special_tokens(["[NEW]"])), True),
    "how many tokens it reads": (lambda: adjust(lambda t: t.enable_truncation(64)), True),
    "the token for padding": (
        lambda: adjust(lambda t: t.enable_padding(pad_id=0, pad_token="[UNK]")),
        True,
    ),
    "on which side it pads": (
        lambda: adjust(lambda t: t.enable_padding(direction="left", pad_id=1, pad_token="[PAD]")),
        False,
    ),
    "that it has been used": (lambda: adjust(lambda t: t.encode_batch(TEXTS)), False),
}


@pytest.mark.parametrize("change", TOKENIZERS)
def test_a_change_of_a_tokenizer(change: str, unchanged: set[str]) -> None:
    make, noticed = TOKENIZERS[change]
    assert (plan(tokenizer=make()) != unchanged) == noticed


def set_scale(bag: Bag) -> None:
    bag.scale = 2.0


def set_word(bag: Bag) -> None:
    with torch.no_grad():
        bag.words.weight[-1, 0] += 1e-6  # of no word


def make_bag(change: Callable[[Bag], object] = lambda bag: None) -> nn.Module:
    bag = Bag().eval()
    change(bag)
    return bag


#: the arguments after the change, and whether it is noticed
MODELS: dict[str, tuple[Callable[[], dict[str, Any]], bool]] = {
    "the same network again": (lambda: {"model": make_bag()}, False),
    "an attribute": (lambda: {"model": make_bag(set_scale)}, True),
    "the last digit of a weight of no word": (lambda: {"model": make_bag(set_word)}, True),
    "what stands for removed words": (lambda: {"removal": "delete"}, True),
    "maps of sentences": (lambda: {"granularity": "sentence"}, True),
    "maps of tokens, of which each word is one": (lambda: {"granularity": "token"}, False),
    "the neighbourhood": (lambda: {"around": Casing()}, True),
    "the task": (lambda: {"task": "multi_label"}, True),
}


@pytest.mark.parametrize("change", MODELS)
def test_a_change_of_a_model(change: str, unchanged: set[str]) -> None:
    make, noticed = MODELS[change]
    assert (plan(**make()) != unchanged) == noticed


def test_what_only_shows_values_changes_nothing(
    unchanged: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    with np.printoptions(precision=2):
        assert plan() == unchanged


def make_vectors(words: list[str]) -> WordVectors:
    vectors = torch.zeros(len(words) + 2, 8)
    vectors[1:] = torch.arange(float(vectors[1:].numel())).reshape(-1, 8) % 7
    return WordVectors(("<pad>", "<unknown>", *words), vectors)


@pytest.mark.parametrize(
    ("words", "noticed"),
    [(WORDS, False), ([*WORDS, "storm"], True), ([*WORDS[:-1], "wasp"], True)],
    ids=["the same", "one more", "another one"],
)
def test_a_change_of_a_vocabulary_of_whole_words(words: list[str], noticed: bool) -> None:
    before = plan(tokenizer=make_vectors(WORDS))
    assert (plan(tokenizer=make_vectors(words)) != before) == noticed


def test_a_tokenizer_of_transformers_counts_by_its_rules_and_not_by_where_it_is_from(
    tmp_path: Path,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")

    def make(**options: Any) -> Any:
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=make_tokenizer(), **special, **options
        )

    before = plan(tokenizer=make())
    used = make()
    used(TEXTS, padding=True, truncation=True, max_length=5)
    assert plan(tokenizer=used) == before
    make().save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("a model card")
    assert plan(tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path)) == before
    assert plan(tokenizer=make(padding_side="left")) == before
    assert not plan(tokenizer=make(model_max_length=64)) & before
    assert not plan(tokenizer=make(truncation_side="left")) & before


def test_a_model_of_texts_is_asked_for_copies_of_its_neighbourhood() -> None:
    reader = standfast.TextModel(Bag().eval(), make_tokenizer())
    answers = plan_texts(reader, TEXTS).manifest["answers"]
    assert [set(entry) - {"identity"} for entry in answers.values()] == [
        {"inputs"},
        {"copies of the neighbourhood"},
    ]
    assert len(set(list(answers.values())[1]["copies of the neighbourhood"].split())) > 10
