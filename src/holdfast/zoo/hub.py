"""Models of hubs by name: `timm:vit_base_patch16_224`, `torchvision:resnet50`. Needs the extra `hub`, and a network.

The weights come with the hub's own preprocessing, which is put in front of the module: inputs are images in [0, 1] of
the size that the model was trained on, its `input_size`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ArgumentError, HoldfastError, MissingExtraError, ModelError, UnknownNameError


class Normalised(nn.Module):
    """A module after `(x - mean) / std` for each channel.

    Args:
        input_size: (C, H, W), the size that the module was trained on; None where it is not known. Images of other
            sizes are the module's own affair, other numbers of channels are refused.

    >>> module = Normalised(nn.Identity(), (0.5,), (0.25,), input_size=(1, 1, 1))
    >>> module(torch.ones(1, *module.input_size)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        module: nn.Module,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        input_size: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.input_size = input_size
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images `(N, C, H, W)` in [0, 1].

        Raises:
            ModelError: images of another number of channels, or of a size that the module asserts not to be its own.
        """
        shape, size = tuple(x.shape), self.input_size or (len(self.mean), "H", "W")
        expected = f"module: expected images of shape (N, {', '.join(map(str, size))}), got {shape}"
        if x.ndim != 4 or shape[1] != len(self.mean):  # one channel would be broadcast to all
            raise ModelError(expected)
        try:
            out: Tensor = self.module((x - self.mean) / self.std)
        except AssertionError as error:  # a vision transformer's, of its size
            raise ModelError(f"{expected}: {error}") from error
        return out


def from_hub(name: str) -> nn.Module:
    """The pretrained model of a hub, in eval mode, on the CPU; its inputs are in [0, 1].

    Raises:
        MissingExtraError: the hub's package is not installed.
        ArgumentError: no hub, or no model, of that name.
        HoldfastError: the weights cannot be had.
    """
    hub, _, model = name.partition(":")
    if hub not in HUBS:
        raise UnknownNameError("hub", hub, HUBS)
    try:
        with torch.random.fork_rng(devices=[]):
            return HUBS[hub](model).eval()
    except (OSError, RuntimeError) as error:  # no network, a broken download
        if isinstance(error, HoldfastError | ImportError):
            raise
        raise HoldfastError(f"model {name}: its weights cannot be had: {type(error).__name__}: {error}") from error


def _timm(name: str) -> nn.Module:
    timm: Any = _package("timm")
    if not timm.is_model(name):
        raise UnknownNameError("timm model", name, timm.list_models(pretrained=True))
    module: nn.Module = timm.create_model(name, pretrained=True)
    config = timm.data.resolve_data_config({}, model=module)
    return Normalised(module, tuple(config["mean"]), tuple(config["std"]), tuple(config["input_size"]))


def _torchvision(name: str) -> nn.Module:
    models: Any = _package("torchvision").models
    if name not in models.list_models():
        raise UnknownNameError("torchvision model", name, models.list_models())
    weights = models.get_model_weights(name).DEFAULT
    scaling = weights.transforms()
    if not hasattr(scaling, "mean"):
        raise ArgumentError("model", "a classifier of images", name)
    height, width = scaling.crop_size * 2 if len(scaling.crop_size) == 1 else scaling.crop_size
    size = (len(scaling.mean), height, width)
    return Normalised(models.get_model(name, weights=weights), tuple(scaling.mean), tuple(scaling.std), size)


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision beside a torch it was not built for raises the latter
        raise MissingExtraError(f"{name} ({type(error).__name__}: {error})", "hub") from error


HUBS: dict[str, Callable[[str], nn.Module]] = {"timm": _timm, "torchvision": _torchvision}
