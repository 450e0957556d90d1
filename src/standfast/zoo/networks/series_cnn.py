"""A convolutional network for series.

Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. C: three
convolutions of 128 channels, kernel 11 and stride 1, each with a rectifier and dropout 0.2, and a dense layer of 128.
The paper does not say how a series becomes a vector. Here features are averaged over time, as in the network of Turbe
et al. (2023), from which it is derived.
"""

from __future__ import annotations

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import make_dense_head, make_series_convolutions


class SeriesCNN(nn.Module):
    """Convolutions, a mean over time and two linear layers: (N, in_channels, steps) to logits (N, num_classes).

    For any number of steps. Every ReLU is a module of its own that runs once, and no function is called outside a
    module, so that DeepLIFT's attributions are complete. Layers have names such as `features.conv3` (the last
    convolution) and `classifier.fc2`.

    Args:
        num_classes: of the logits.
        in_channels: of the series.
        width: channels of every convolution.
        kernel_size: odd; padded equally on both sides.
        stride: of the first convolution.
        dropout: after each convolution, in [0, 1).
        hidden: units of the dense layer.

    >>> import torch
    >>> model = SeriesCNN(width=8, hidden=16)
    >>> model(torch.zeros(2, 4, 500)).shape
    torch.Size([2, 2])
    >>> sum(parameter.numel() for parameter in SeriesCNN().parameters())
    383234
    """

    def __init__(
        self,
        num_classes: int = 2,
        in_channels: int = 4,
        *,
        width: int = 128,
        kernel_size: int = 11,
        stride: int = 1,
        dropout: float = 0.2,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        for option, value in (("width", width), ("stride", stride), ("hidden", hidden)):
            check(value >= 1, option, "at least 1", value)
        check(
            kernel_size >= 1 and kernel_size % 2 == 1,
            "kernel_size",
            "an odd number of at least 1",
            kernel_size,
        )
        check(0 <= dropout < 1, "dropout", "a share in [0, 1)", dropout)
        kernels = (kernel_size,) * 3
        strides = (stride, 1, 1)
        self.features = make_series_convolutions(
            in_channels, (width,) * 3, kernels, strides, dropout=dropout
        )
        self.classifier = make_dense_head(
            width, hidden, num_classes, pool=nn.AdaptiveAvgPool1d(1), flatten=nn.Flatten()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of series (N, in_channels, steps)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
