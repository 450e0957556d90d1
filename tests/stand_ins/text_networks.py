"""Small networks of token ids, and tokenizers of our own, whose answers are known exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

#: the vocabulary of the tokenizers: a piece that begins with a hash continues a word
PIECES = (
    "<pad>",
    "<start>",
    "<end>",
    "a",
    "dull",
    "film",
    "great",
    "bor",
    "#ing",
    "story",
    ",",
    "?",
    "flat",
    "yes",
    "no",
)


class PieceTokenizer:
    """A tokenizer in the way of `standfast.data.word_vectors()`: longest pieces first, `?` for what is not known.

    Args:
        before, after: special tokens around each text.
    """

    padding = 0

    def __init__(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        self.before, self.after = list(before), list(after)

    def find_words(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of the tokens, and where each begins and ends; special ones have no characters."""
        ids, spans = list(self.before), [(0, 0)] * len(self.before)
        for found in re.finditer(r"\w+|[^\w\s]", text):
            place = found.start()
            while place < found.end():
                mark = "#" if place > found.start() else ""
                ends = range(found.end(), place, -1)
                known = (end for end in ends if mark + text[place:end].lower() in PIECES)
                end = next(known, found.end())
                piece = mark + text[place:end].lower()
                ids.append(PIECES.index(piece) if piece in PIECES else PIECES.index("?"))
                spans.append((place, end))
                place = end
        return ids + self.after, spans + [(len(text), len(text))] * len(self.after)


class BagOfWords(nn.Module):
    """Logits (0, sum of one number for each token): linear in the tokens, so everything about it is known."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.numbers = nn.Embedding(len(PIECES), 4)
        self.numbers.weight.data = torch.randn(len(PIECES), 4, generator=generator)
        self.head = nn.Linear(4, 1, bias=False)
        self.head.weight.data = torch.randn(1, 4, generator=generator)

    @property
    def weights(self) -> list[float]:
        """The number of each token."""
        found: list[float] = (self.numbers.weight @ self.head.weight[0]).tolist()
        return found

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        """Logits `(N, 2)` of ids `(N, T)`."""
        score = self.head((self.numbers(ids) * present[..., None]).sum(1))
        return torch.cat([torch.zeros_like(score), score], 1)


class Recurrent(nn.Module):
    """Logits after each token, `(N, T, len(PIECES))`, that depend on it and on all tokens before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(PIECES), 6)
        self.mix = nn.GRU(6, 8, batch_first=True)
        self.head = nn.Linear(8, len(PIECES))
        generator = torch.Generator().manual_seed(3)
        for parameter in self.parameters():
            parameter.data = 0.7 * torch.randn(parameter.shape, generator=generator)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        """Logits of ids `(N, T)`."""
        found: Tensor = self.head(self.mix(self.words(ids))[0])
        return found
