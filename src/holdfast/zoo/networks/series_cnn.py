"""A convolutional network for series.

Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. C: three
convolutions of 128 channels and kernel 11, stride 1, each with a rectifier and dropout 0.2, and a dense layer of 128.
How series become vectors is not said; here their features are averaged over time, as in the network of Turbe et al.
(2023) that it comes from, which moreover has a max-pooling of 2 after each convolution: `pool=2`.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from holdfast.errors import check


class SeriesCNN(nn.Module):
    """Convolutions, a mean over time and two linear layers: (N, in_channels, steps) to logits (N, num_classes).

    For any number of steps, as long as the poolings leave one. Every ReLU is a module of its own that runs once, and no
    function is called outside a module, so that DeepLIFT's attributions are complete; layers are addressed as
    `features.conv3` (the last) or `classifier.fc2`.

    Args:
        width: channels of every convolution.
        layers: how many convolutions.
        kernel_size: odd; padded on both sides alike.
        stride: of the first convolution.
        pool: steps of the max-pooling after each rectifier; 1 for none.
        dropout: after each, in [0, 1).
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
        layers: int = 3,
        kernel_size: int = 11,
        stride: int = 1,
        pool: int = 1,
        dropout: float = 0.2,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        for option, value in (("width", width), ("layers", layers), ("stride", stride), ("pool", pool)):
            check(value >= 1, option, "at least 1", value)
        check(kernel_size >= 1 and kernel_size % 2 == 1, "kernel_size", "an odd number of at least 1", kernel_size)
        check(0 <= dropout < 1, "dropout", "a share in [0, 1)", dropout)
        check(hidden >= 1, "hidden", "at least 1", hidden)
        made: OrderedDict[str, nn.Module] = OrderedDict()
        for number in range(1, layers + 1):
            first = number == 1
            made[f"conv{number}"] = nn.Conv1d(
                in_channels if first else width,
                width,
                kernel_size,
                stride=stride if first else 1,
                padding=kernel_size // 2,
            )
            made[f"relu{number}"] = nn.ReLU()
            if pool > 1:
                made[f"pool{number}"] = nn.MaxPool1d(pool)
            made[f"drop{number}"] = nn.Dropout(dropout)
        self.features = nn.Sequential(made)
        self.classifier = nn.Sequential(
            OrderedDict(
                pool=nn.AdaptiveAvgPool1d(1),
                flatten=nn.Flatten(),
                fc1=nn.Linear(width, hidden),
                relu=nn.ReLU(),
                fc2=nn.Linear(hidden, num_classes),
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of series (N, in_channels, steps)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
