"""Models of hubs by name: `timm:vit_base_patch16_224`, `torchvision:resnet50`. Needs the extra `hub`, and a network.

The weights come with the hub's own preprocessing, which is put in front of the module: inputs are images in [0, 1] of
the size that the model was trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ArgumentError, HoldfastError, MissingExtraError, UnknownNameError


class Normalised(nn.Module):
    """A module after `(x - mean) / std` for each channel.

    >>> module = Normalised(nn.Identity(), (0.5,), (0.25,))
    >>> module(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images `(N, C, H, W)` in [0, 1]."""
        out: Tensor = self.module((x - self.mean) / self.std)
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
    return Normalised(module, tuple(config["mean"]), tuple(config["std"]))


def _torchvision(name: str) -> nn.Module:
    models: Any = _package("torchvision").models
    if name not in models.list_models():
        raise UnknownNameError("torchvision model", name, models.list_models())
    weights = models.get_model_weights(name).DEFAULT
    scaling = weights.transforms()
    if not hasattr(scaling, "mean"):
        raise ArgumentError("model", "a classifier of images", name)
    return Normalised(models.get_model(name, weights=weights), tuple(scaling.mean), tuple(scaling.std))


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision beside a torch it was not built for raises the latter
        raise MissingExtraError(f"{name} ({type(error).__name__}: {error})", "hub") from error


HUBS: dict[str, Callable[[str], nn.Module]] = {"timm": _timm, "torchvision": _torchvision}
