"""Tokenizers trained on the bundled film reviews, and tiny language models by configuration, all seeded."""

from __future__ import annotations

import html
import math
import warnings
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

#: the special tokens of each kind of tokenizer: unknown, padding, mask, beginning, end
SPECIALS = {
    "wordpiece": ("[UNK]", "[PAD]", "[MASK]", "[CLS]", "[SEP]"),
    "bytes": ("<unk>", "<pad>", "<mask>", "<s>", "</s>"),
    "pieces": ("<unk>", "<pad>", "<mask>", "<s>", "</s>"),
}
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
SIZE, LONGEST = 600, 128  # of the vocabulary, about, and of a text in tokens


def transformers() -> Any:
    """The package, or the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers", reason="needs transformers")


@cache
def read_reviews() -> tuple[tuple[str, ...], Tensor]:
    """The 200 bundled sentences as they were written, and their labels, int64 `(200,)`: 1 is positive."""
    lines = (files("standfast.data") / "assets" / "sentences.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t", 1) for line in lines]
    return tuple(html.unescape(text) for _, text in rows), torch.tensor(
        [int(float(rating) > 0) for rating, _ in rows]
    )


@cache
def train_tokenizer(kind: str, end: bool = True) -> Any:
    """A tokenizer of the package `tokenizers`, without transformers; the same one in every process.

    "wordpiece" is uncased as BERT's, "bytes" is a byte-level BPE as GPT-2's and Llama 3's, "pieces" a unigram model
    that marks spaces, as sentencepiece does. All put a special token at the beginning and, with `end`, one at the
    end. The answers "yes" and "no" are one token each.
    """
    tk = pytest.importorskip("tokenizers", reason="needs tokenizers")
    unknown, padding, mask, first, last = SPECIALS[kind]
    specials = [padding, unknown, first, last, mask]  # the padding is number 0
    answers = ["yes no no yes Yes No"] * 40
    texts = [*read_reviews()[0], *answers]
    if kind == "wordpiece":
        tokenizer = tk.Tokenizer(tk.models.WordPiece(unk_token=unknown))
        tokenizer.normalizer = tk.normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = tk.decoders.WordPiece()
        words = split(tokenizer, texts)
        letters = sorted({letter for word in words for letter in word})
        ends = [f"##{word[-size:]}" for word in words for size in range(2, 5) if len(word) > size]
        pieces = [*letters, *(f"##{letter}" for letter in letters)]
        pieces += [piece for piece, _ in count([*words, *ends]).items() if piece not in letters][
            :SIZE
        ]
        vocabulary = {piece: number for number, piece in enumerate([*specials, *pieces])}
        tokenizer.model = tk.models.WordPiece(vocabulary, unk_token=unknown)
    elif kind == "bytes":
        tokenizer = tk.Tokenizer(tk.models.BPE())
        tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tk.decoders.ByteLevel()
        alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
        options = {"vocab_size": SIZE, "special_tokens": specials, "show_progress": False}
        tokenizer.train_from_iterator(
            texts, tk.trainers.BpeTrainer(**options, initial_alphabet=alphabet)
        )
    else:
        tokenizer = tk.Tokenizer(tk.models.Unigram())
        tokenizer.pre_tokenizer = tk.pre_tokenizers.Metaspace()
        tokenizer.decoder = tk.decoders.Metaspace()
        words = split(tokenizer, texts)
        places = [
            (word, start, end)
            for word in words
            for start in range(len(word))
            for end in range(start + 1, start + 9)
        ]
        found = count([word[start:end] for word, start, end in places if end <= len(word)])
        kept = {piece: number for piece, number in found.items() if len(piece) == 1}
        kept |= dict(list(found.items())[:SIZE])
        scores = [(piece, math.log(number / len(places))) for piece, number in kept.items()]
        tokenizer.model = tk.models.Unigram(
            [*((piece, 0.0) for piece in specials), *scores], unk_id=1
        )
    tokenizer.add_special_tokens(specials)
    ends_by_number = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single=f"{first} $A {last}" if end else f"{first} $A", special_tokens=ends_by_number
    )
    return tokenizer


def split(tokenizer: Any, texts: list[str]) -> list[str]:
    """What a tokenizer makes pieces of: the words of texts, as it normalises and marks them."""
    clean = [
        tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text for text in texts
    ]
    return [word for text in clean for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def count(pieces: list[str]) -> dict[str, int]:
    """How often each piece occurs, from the most frequent on; of equally frequent ones by their letters."""
    return dict(sorted(Counter(pieces).items(), key=lambda pair: (-pair[1], pair[0])))


@cache
def wrap_tokenizer(kind: str) -> Any:
    """The same tokenizer as transformers has it."""
    unknown, padding, mask, first, last = SPECIALS[kind]
    ends = (
        {"cls_token": first, "sep_token": last}
        if kind == "wordpiece"
        else {"bos_token": first, "eos_token": last}
    )
    return transformers().PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(kind),
        unk_token=unknown,
        pad_token=padding,
        mask_token=mask,
        model_max_length=LONGEST,
        **ends,
    )


def make_network(architecture: str, kind: str, seed: int = 0, **options: Any) -> Any:
    """A tiny network of transformers by configuration, with seeded weights, which are larger than usual.

    Args:
        architecture: such as "BertForSequenceClassification" or "LlamaForCausalLM".
        kind: of the tokenizer, whose vocabulary it has.
        seed: of its weights.
        options: of its configuration.
    """
    package = transformers()
    size = train_tokenizer(kind).get_vocab_size()
    settings = SIZES | {"vocab_size": size, "pad_token_id": 0, "max_position_embeddings": LONGEST}
    family = architecture.partition("For")[0]
    config = getattr(package, f"{family}Config")(**settings | {"initializer_range": 0.3} | options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(package, architecture)(config).eval()


def encode(kind: str, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Token ids and mask, int64 `(N, T)`, padded at the end, by the tokenizer alone."""
    found = [train_tokenizer(kind).encode(text).ids for text in texts]
    width = max(map(len, found))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in found])
    return ids, torch.tensor([[int(place < len(row)) for place in range(width)] for row in found])


@cache
def train_bert(kind: str = "wordpiece", steps: int = 60) -> Any:
    """A `BertForSequenceClassification` that has learned the bundled reviews, in a second. Do not change it.

    It is right for four in five of these, or more; they are too few for other reviews.
    """
    texts, labels = read_reviews()
    network = make_network(
        "BertForSequenceClassification", kind, num_labels=2, initializer_range=0.1
    )
    ids, mask = encode(kind, list(texts))
    network.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=0.01)
        for _ in range(steps):
            rows = torch.randperm(len(texts))[:16]
            loss = F.cross_entropy(
                network(ids[rows], attention_mask=mask[rows]).logits, labels[rows]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval().requires_grad_(False)
