"""A classifier of sentence pairs, such as premise and hypothesis, is given pairs as tokenizers take them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5161, 8)  # as many as `word_vectors` has
        self.head = nn.Linear(8, 2)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        return self.head((self.words(ids) * present[..., None]).sum(1))


PAIRS: dict[str, list[Any]] = {
    "tuples": [("a dull film", "a great film"), ("no", "yes")],
    "lists": [["a dull film", "a great film"]],
    "the second one": ["a text", ("no", "yes")],
    "rows": [{"premise": "a dull film", "hypothesis": "a great film"}],
}


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_pairs_are_refused_with_the_way_that_takes_them(pairs: list[Any]) -> None:
    torch.manual_seed(0)
    model = standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")
    with pytest.raises(
        ArgumentError, match=r"no pairs of sentences \(TransformersText\(model\)\.embed"
    ) as error:
        model.logits(pairs)
    assert "token_types" in str(error.value)
    with pytest.raises(ArgumentError, match="no pairs of sentences"):
        standfast.evaluate(model, ["saliency"], pairs, ["aopc"])


def test_other_values_are_no_pairs() -> None:
    model = standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")
    for value in (("one",), (1, 2), None, 3.0):
        with pytest.raises(ArgumentError, match="texts of at least one word"):
            model.logits([value])
