"""A vision transformer for small images, with patches of pixels or with early convolutions.

Dosovitskiy et al., An image is worth 16x16 words: transformers for image recognition at scale, ICLR 2021. Patches
become tokens by a linear layer. A class token is put before them, and learned positions are added. A linear layer reads
the class token after the last encoder layer. With `stem`, convolutions of stride 2 replace the patches of pixels: Xiao
et al., Early convolutions help transformers see better, NeurIPS 2021. Such a network learns more from few images.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from standfast.errors import as_number, check
from standfast.zoo.networks.encoder import EncoderLayer
from standfast.zoo.networks.layers import make_conv_block

_PATCH = 4  # pixels, the side of a patch


class VisionTransformer(nn.Module):
    """Patches, encoder layers, a class token: (N, in_channels, side, side) to logits (N, num_classes).

    Patches have 4 x 4 pixels. The tokens of `patch_embed` are a grid of `side / 4` rows and columns, in reading order
    after the class token. The two linear layers of each encoder layer have an inner width of `2 * width`.
    Layers have names such as `patch_embed.proj`, `blocks.5.norm1`, `blocks.5.attention` and `head`. Every activation is
    a module of its own that runs once, and there is no dropout. All derivatives exist.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        side: of the images, in pixels, a multiple of 4.
        width: of the tokens.
        layers: encoder layers.
        heads: in each layer; a divisor of the width.
        stem: channels of at most two 3x3 convolutions before the tokens, each with stride 2. Empty for patches of
            pixels.

    Raises:
        ArgumentError: an option is out of range.

    >>> model = VisionTransformer(width=32, layers=2, heads=2)
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in VisionTransformer().parameters())
    460906
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        *,
        side: int = 32,
        width: int = 96,
        layers: int = 6,
        heads: int = 3,
        stem: Sequence[int] = (),
    ) -> None:
        super().__init__()
        for option, value in (("width", width), ("layers", layers)):
            check(value >= 1, option, "at least 1", value)
        check(side >= 1 and side % _PATCH == 0, "side", f"a multiple of {_PATCH}", side)
        check(heads >= 1 and width % heads == 0, "heads", f"a divisor of the width {width}", heads)
        fine = all(type(as_number(channels)) is int and channels >= 1 for channels in stem)
        check(
            fine and len(stem) <= 2,
            "stem",
            "channels of at most 2 convolutions, each at least 1",
            stem,
        )
        self.patch_embed = _make_patch_embedding(in_channels, width, stem)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (side // _PATCH) ** 2, width))
        self.blocks = nn.ModuleList(
            EncoderLayer(width, heads, 2 * width, activation=nn.GELU) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        self.side = side
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the class token and the positions; other layers draw their own."""
        # layers of torch draw their own weights
        for parameter in (self.cls_token, self.pos_embed):
            nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, side, side)."""
        patches = self.patch_embed(inputs).flatten(2).transpose(1, 2)  # (N, patches, width)
        tokens = (
            torch.cat([self.cls_token.expand(len(inputs), -1, -1), patches], dim=1) + self.pos_embed
        )
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(self.norm(tokens)[:, 0])
        return logits


def _make_patch_embedding(in_channels: int, width: int, stem: Sequence[int]) -> nn.Sequential:
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    patch = _PATCH
    for number, channels in enumerate(stem, 1):
        parts[f"stem{number}"] = make_conv_block(in_channels, channels, stride=2)
        # each convolution halves the image, so the patch has half of the pixels
        in_channels, patch = channels, patch // 2
    parts["proj"] = nn.Conv2d(in_channels, width, kernel_size=patch, stride=patch)
    return nn.Sequential(parts)
