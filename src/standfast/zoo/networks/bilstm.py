"""A bidirectional LSTM for series.

Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997; in both directions as in Graves and
Schmidhuber, Framewise phoneme classification with bidirectional LSTM, Neural Networks 18, 2005. The sizes are those of
Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. C: bidirectional
LSTMs of 64, 128 and 64 units, each followed by a dense layer of as many units, and a dense layer of 256; ReLU. The
paper does not say how a series becomes a vector; here features are averaged over time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import as_number, check
from standfast.zoo.networks.layers import make_dense_head


class BiLSTM(nn.Module):
    """Bidirectional LSTMs, each with a dense layer, and two linear layers: (N, in_channels, steps) to (N, num_classes).

    For any number of steps. Every ReLU is a module of its own that runs once. An LSTM is one function, whose gates
    cannot be seen from outside. So backward rules of explainers (DeepLIFT, guided backpropagation) reach the ReLUs
    only, and use the gradient of the LSTMs; DeepLIFT's attributions need not add up. LRP raises an error.

    On a GPU, cuDNN's LSTM has no backward pass in eval mode, and no second derivative. So torch's own kernels are used
    in eval mode if gradients are enabled.

    Args:
        num_classes: of the logits.
        in_channels: of the series.
        units: of each LSTM, in each direction, and of the dense layer after it.
        patch: number of steps that are read at once; zeros complete the last patch. The time decreases by this factor.
        dropout: after each dense layer, in [0, 1).
        hidden: units of the last dense layer.

    >>> model = BiLSTM(units=(4, 8), hidden=16, patch=4)
    >>> model(torch.zeros(2, 4, 30)).shape
    torch.Size([2, 2])
    >>> sum(parameter.numel() for parameter in BiLSTM().parameters())
    400386
    """

    def __init__(
        self,
        num_classes: int = 2,
        in_channels: int = 4,
        *,
        units: Sequence[int] = (64, 128, 64),
        patch: int = 1,
        dropout: float = 0.0,
        hidden: int = 256,
    ) -> None:
        super().__init__()
        fine = len(units) >= 1 and all(type(as_number(unit)) is int and unit >= 1 for unit in units)
        check(fine, "units", "whole numbers of at least 1, one for each LSTM", units)
        check(patch >= 1, "patch", "at least 1", patch)
        check(0 <= dropout < 1, "dropout", "a share in [0, 1)", dropout)
        check(hidden >= 1, "hidden", "at least 1", hidden)
        self.patch = patch
        self.lstms, self.dense = nn.ModuleList(), nn.ModuleList()
        features = in_channels * patch
        for unit in units:
            self.lstms.append(nn.LSTM(features, unit, batch_first=True, bidirectional=True))
            layers: OrderedDict[str, nn.Module] = OrderedDict(
                fc=nn.Linear(2 * unit, unit), relu=nn.ReLU(), drop=nn.Dropout(dropout)
            )
            self.dense.append(nn.Sequential(layers))
            features = unit
        self.classifier = make_dense_head(features, hidden, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of series (N, in_channels, steps)."""
        # a series is read in whole patches
        missing = -inputs.shape[2] % self.patch
        series = F.pad(inputs, (0, missing)).unfold(2, self.patch, self.patch)
        features = series.transpose(1, 2).flatten(2)  # (N, time, channels x patch)
        for lstm, dense in zip(self.lstms, self.dense, strict=True):
            features = dense(self._read(lstm, features))
        logits: Tensor = self.classifier(features.mean(1))
        return logits

    def _read(self, lstm: nn.Module, features: Tensor) -> Tensor:
        """The outputs (N, time, 2 units) of an LSTM."""
        # cuDNN has no second derivative in evaluation mode
        slow_cuda = features.is_cuda and torch.is_grad_enabled() and not self.training
        flags = torch.backends.cudnn.flags(enabled=False) if slow_cuda else nullcontext()
        with flags, _without_onednn():
            out: Tensor = lstm(features)[0]
        return out


@contextmanager
def _without_onednn() -> Iterator[None]:
    """On some CPUs oneDNN's LSTM has other last bits with a graph than without, and in batches of another size."""
    onednn: Any = torch.backends.mkldnn
    before = onednn.enabled
    onednn.enabled = False
    try:
        yield
    finally:
        onednn.enabled = before
