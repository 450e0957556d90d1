"""A transformer encoder for texts as sequences of word vectors, and the bundled classifier of sentences.

Vaswani et al., Attention is all you need, NeurIPS 2017: a linear layer brings word vectors to the width of the encoder;
sines and cosines of the positions are added; the mean over the words is read by a linear layer.
"""

from __future__ import annotations

from torch import Tensor, nn

from standfast.data.sentence_files import word_vectors
from standfast.texts.embedded import EmbeddedText
from standfast.zoo.networks.encoder import EncoderLayer
from standfast.zoo.networks.series_transformer import encode_positions

#: how near to the padding, in each channel, a vector counts as padding; word vectors have length 1 in 32 dimensions
PADDING_RADIUS = 0.05


class TextTransformer(nn.Module):
    """From word vectors (N, T, in_channels), and which words are present, bool (N, T), to logits (N, num_classes).

    Two encoder layers of width 48 with 4 heads and dropout 0.3, for texts of any length. It is the `rest` of an
    `EmbeddedText`. Absent words get no attention and do not count in the mean over the words. Every activation is a
    module of its own that runs once.

    Args:
        num_classes: of the logits.
        in_channels: of the word vectors.

    >>> import torch
    >>> model = TextTransformer()
    >>> model(torch.zeros(2, 5, 32), torch.ones(2, 5, dtype=torch.bool)).shape
    torch.Size([2, 2])
    """

    def __init__(self, num_classes: int = 2, in_channels: int = 32) -> None:
        super().__init__()
        width = 48
        dropout = 0.3
        self.project = nn.Linear(in_channels, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderLayer(width, 4, 2 * width, dropout, activation=nn.GELU) for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, embedded: Tensor, present: Tensor) -> Tensor:
        """Logits (N, num_classes) of word vectors (N, T, in_channels); `present` is bool (N, T)."""
        tokens = self.project(embedded)
        tokens = self.drop(tokens + encode_positions(tokens))
        for block in self.blocks:
            tokens = block(tokens, present)
        there = present[..., None].to(tokens)
        # a text without any word has a mean of 0
        count = there.sum(1).clamp(min=1)
        mean = (self.norm(tokens) * there).sum(1) / count
        logits: Tensor = self.head(mean)
        return logits


def make_sentence_classifier() -> EmbeddedText:
    """The architecture of `transformer-sentences`: from the vectors of `standfast.data.word_vectors` on.

    Vectors within 0.05 of zero in each channel count as padding.
    """
    vectors = word_vectors().vectors
    embedding = nn.Embedding(len(vectors), vectors.shape[1], _weight=vectors, _freeze=True)
    return EmbeddedText(
        TextTransformer(), embedding, TextTransformer.__call__, padding=0, radius=PADDING_RADIUS
    )
