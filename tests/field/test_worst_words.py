"""Worst cases among words, against the enumeration of all texts: the default search misses none that it can afford."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import standfast
from standfast.neighbourhoods import TokenSwaps
from standfast.tensors import Array

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[MASK]",
    "a",
    "the",
    "dull",
    "boring",
    "flat",
    "film",
    "movie",
    "but",
    "great",
    "good",
    "fine",
    "music",
    "plot",
    "is",
    "not",
    "very",
    "slow",
    "bad",
    "happy",
    "sad",
    "end",
]
IDS = {word: number for number, word in enumerate(VOCABULARY)}
MASK = IDS["[MASK]"]
TABLE = {
    "dull": ["boring", "flat"],
    "film": ["movie"],
    "great": ["good", "fine"],
    "slow": ["bad", "sad"],
    "plot": ["music"],
    "very": ["not"],
    "happy": ["good", "fine"],
    "music": ["plot"],
    "end": ["film"],
}
WORDS = (
    "a",
    "the",
    "dull",
    "film",
    "great",
    "slow",
    "plot",
    "very",
    "happy",
    "music",
    "end",
    "is",
    "but",
)


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(len(VOCABULARY), 6)
        self.head = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        logits: Tensor = self.head((self.words(ids) * present[..., None]).sum(1))
        return logits


def make_model(network: nn.Module) -> standfast.TextModel:
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[PAD]", "[MASK]", "[UNK]"])
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    return standfast.TextModel(network, tokenizer, removal="mask")


def explain_by_hand(network: nn.Module, text: tuple[str, ...]) -> tuple[int, Array]:
    """The class of a text, and how much the probability of this class falls when each word is masked."""
    ids = [IDS[word] for word in text]
    masked = [[*ids[:place], MASK, *ids[place + 1 :]] for place in range(len(ids))]
    with torch.no_grad():
        shares = network(
            torch.tensor([ids, *masked]), torch.ones(len(ids) + 1, len(ids), dtype=torch.bool)
        ).softmax(1)
    label = int(shares[0].argmax())
    return label, (shares[0, label] - shares[1:, label]).abs().numpy()


def draw_texts() -> list[tuple[str, ...]]:
    """Texts of nine words with 30 to 700 combinations."""
    chance, texts = random.Random(1), []
    for _ in range(12):
        words = tuple(chance.choice(WORDS) for _ in range(9))
        if 30 <= len(list(list_combinations(words))) <= 700:
            texts.append(words)
    return texts


def list_combinations(words: tuple[str, ...]) -> itertools.product[tuple[str, ...]]:
    return itertools.product(*[[word, *TABLE.get(word, [])] for word in words])


@pytest.mark.parametrize("words", draw_texts(), ids=" ".join)
def test_the_worst_words_are_found(words: tuple[str, ...]) -> None:
    network = BagOfWords().eval()
    label, clean_map = explain_by_hand(network, words)
    explained = [explain_by_hand(network, text) for text in list_combinations(words)]
    lowest = min(
        float(np.corrcoef(clean_map, found)[0, 1]) for other, found in explained if other == label
    )
    model = make_model(network)
    rows = model.encode([" ".join(words)])
    metric = standfast.metrics.WorstCase(TokenSwaps(table=TABLE, rate=0.3), budget=1000)
    worst = metric(model.make_model(rows), "occlusion", rows)
    assert float(worst.value[0]) == pytest.approx(lowest, abs=1e-5)
    assert worst.exact is not None
    assert bool(worst.exact[0])
    assert float(worst.gap[0]) == 0.0
    assert int(worst.model_evaluations[0]) < 1000  # as many as there are combinations, and a few
