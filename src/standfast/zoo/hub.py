"""Models of hubs by name: `timm:vit_base_patch16_224`, `torchvision:resnet50`, `transformers:FOLDER`.

They need the extra `hub`, and a network connection except for a folder of `transformers` and for random weights
(`pretrained=False`). The weights come with the hub's own preprocessing, which is put before the module. So inputs are
images in [0, 1] of the size that the model was trained on, its `input_size`. For models that you have loaded yourself
see `from_timm` and `from_transformers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import (
    ArgumentError,
    MissingExtraError,
    ModelError,
    StandfastError,
    UnknownNameError,
    check,
)
from standfast.model import ForwardWrapper, Model


class Normalised(nn.Module):
    """A module whose inputs are normalised first: `(x - mean) / std` for each channel.

    Args:
        module: from normalised images to logits.
        mean: one number for each channel.
        std: one number for each channel.
        input_size: (C, H, W), the size that the module was trained on; None if it is not known. The module may accept
            images of other sizes; another number of channels is an error.

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
            ModelError: images with another number of channels, or of a size that the module refuses.
        """
        size = self.input_size or (len(self.mean), "H", "W")
        expected = f"module: expected images of shape (N, {', '.join(map(str, size))}), got {tuple(x.shape)}"
        # a single channel would be broadcast to all
        if x.ndim != 4 or x.shape[1] != len(self.mean):
            raise ModelError(expected)
        try:
            out: Tensor = self.module((x - self.mean) / self.std)
        except (AssertionError, ValueError) as error:  # vision transformers check the size
            raise ModelError(f"{expected}: {error}") from error
        return out


def from_hub(name: str, pretrained: bool = True) -> nn.Module:
    """The model of a hub, in eval mode, on the CPU; its inputs are in [0, 1].

    Args:
        name: `"hub:model"`.
        pretrained: with its trained weights; otherwise random ones, always the same, of which nothing is downloaded.

    Raises:
        MissingExtraError: the hub's package is not installed.
        ArgumentError: there is no hub or no model of that name.
        StandfastError: the weights cannot be loaded.
    """
    hub, _, model = name.partition(":")
    if hub not in HUBS:
        raise UnknownNameError("hub", hub, HUBS)
    try:
        with torch.random.fork_rng(devices=[]):
            if not pretrained:
                torch.manual_seed(0)
            return HUBS[hub](model, pretrained).eval()
    except (OSError, RuntimeError) as error:  # no network, a broken download
        # our own errors are in words already
        if isinstance(error, StandfastError | ImportError):
            raise
        raise StandfastError(
            f"model {name}: its weights cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def from_timm(model: nn.Module, **options: Any) -> Model:
    """A model of timm as a `Model` of images in [0, 1].

    The normalisation of its configuration (`timm.data.resolve_data_config`) is put before it, so that gradients are by
    the image in [0, 1]. Layers keep their names, with `module.` before them.

    Args:
        model: from `timm.create_model`.
        options: of `Model`: `device`, `batch_size`.

    Raises:
        MissingExtraError: timm cannot be imported.
    """
    return Model(_normalise_timm(import_package("timm"), model), (0.0, 1.0), **options)


def _load_timm(name: str, pretrained: bool) -> nn.Module:
    timm: Any = import_package("timm")
    # timm's own error names no model that is near
    if not timm.is_model(name):
        raise UnknownNameError("timm model", name, timm.list_models(pretrained=True))
    return _normalise_timm(timm, timm.create_model(name, pretrained=pretrained))


def _normalise_timm(timm: Any, module: nn.Module) -> Normalised:
    config = timm.data.resolve_data_config({}, model=module)
    return Normalised(
        module, tuple(config["mean"]), tuple(config["std"]), tuple(config["input_size"])
    )


def from_transformers(model: nn.Module, processor: Any, **options: Any) -> Model:
    """An image classifier of Hugging Face's transformers as a `Model` of images in [0, 1].

    The processor's arithmetic on 8-bit values (rescaling, normalisation) is put before the model, so that gradients are
    by the image in [0, 1]. Images are not resized or cropped: they should have the module's `input_size`. The model is
    called with `pixel_values`, and the `logits` of its output are used. Layers keep their names, with `module.` before
    them.

    Args:
        model: for example from `AutoModelForImageClassification.from_pretrained`.
        processor: its image processor, or the content of its `preprocessor_config.json`.
        options: of `Model`: `device`, `batch_size`.

    Raises:
        ArgumentError: a processor without a mean and a standard deviation for each channel.

    >>> from types import SimpleNamespace
    >>> class Tiny(nn.Module):
    ...     def forward(self, pixel_values):
    ...         return SimpleNamespace(logits=pixel_values.mean((2, 3)))
    >>> processor = {"image_mean": [0.5, 0.5], "image_std": [0.25, 0.5], "size": {"height": 4, "width": 4}}
    >>> from_transformers(Tiny(), processor, device="cpu").logits(torch.ones(1, 2, 4, 4))
    tensor([[2., 1.]])
    """
    return Model(_add_processing(model, processor), (0.0, 1.0), **options)


def _add_processing(model: nn.Module, processor: Any) -> Normalised:
    """The model with its processor's arithmetic before it."""

    def read_option(name: str, default: Any = None) -> Any:
        if isinstance(processor, Mapping):
            value = processor.get(name)
        else:
            value = getattr(processor, name, None)
        return default if value is None else value

    mean = _check_channels(read_option("image_mean"), "image_mean")
    std = _check_channels(read_option("image_std"), "image_std")
    check(
        len(mean) == len(std),
        "processor",
        "as many numbers in image_std as in image_mean",
        f"{len(std)}",
    )
    if not read_option("do_normalize", True):
        # a processor may have a mean and not use it
        mean, std = (0.0,) * len(mean), (1.0,) * len(std)
    # the processor expects values in [0, 255], which are 255 times ours
    factor = 255 * 1.0
    if read_option("do_rescale", True):
        factor = 255 * read_option("rescale_factor", 1 / 255)
    mean = tuple(value / factor for value in mean)
    std = tuple(value / factor for value in std)
    # without a crop the size of the image is that of the module
    is_cropped = read_option("do_center_crop", False)
    height, width = _read_size(read_option("crop_size" if is_cropped else "size"))
    shape = None
    if height is not None and width is not None:
        shape = (len(mean), height, width)
    return Normalised(ForwardWrapper(model, forward_pixels), mean, std, shape)


def forward_pixels(model: nn.Module, x: Tensor) -> Tensor:
    """The logits of an image classifier of transformers for normalised images `(N, C, H, W)`."""
    logits: Tensor = model(pixel_values=x).logits
    return logits


def _check_channels(values: Any, name: str) -> tuple[float, ...]:
    fits = (
        isinstance(values, Sequence)
        and len(values) > 0
        and all(isinstance(value, int | float) for value in values)
    )
    check(
        fits,
        "processor",
        f"an image processor with {name}, a number for each channel",
        repr(values),
    )
    return tuple(float(value) for value in values)


def _read_size(size: Any) -> tuple[int | None, int | None]:
    """Height and width from the configuration of a processor; None if it has the length of one edge only."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping):
        values = size
    else:
        values = {name: getattr(size, name, None) for name in ("height", "width")}
    return values.get("height"), values.get("width")


def _load_transformers(name: str, pretrained: bool) -> nn.Module:
    transformers: Any = import_package("transformers")
    logging = transformers.utils.logging
    had_progress_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name)
        kind = transformers.AutoModelForImageClassification
        if pretrained:
            return _add_processing(kind.from_pretrained(name), processor)
        return _add_processing(
            kind.from_config(transformers.AutoConfig.from_pretrained(name)), processor
        )
    except ValueError as error:  # the model is no image classifier
        raise ArgumentError(
            "model", "an image classifier of transformers", f"{name}: {error}"
        ) from error
    finally:
        if had_progress_bar:
            # the user's setting is put back
            logging.enable_progress_bar()


def _load_torchvision(name: str, pretrained: bool) -> nn.Module:
    models: Any = import_package("torchvision").models
    if name not in models.list_models():
        raise UnknownNameError("torchvision model", name, models.list_models())
    weights = models.get_model_weights(name).DEFAULT
    scaling = weights.transforms()
    if not hasattr(scaling, "mean"):
        raise ArgumentError("model", "a classifier of images", name)
    sides = scaling.crop_size
    # some crops have one side for both
    size = (len(scaling.mean), sides[0], sides[-1])
    if not pretrained:
        weights = None
    module = models.get_model(name, weights=weights)
    return Normalised(module, tuple(scaling.mean), tuple(scaling.std), size)


def import_package(name: str) -> Any:
    """A package of the extra `hub`.

    Raises:
        MissingExtraError: it cannot be imported.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except (
        ImportError,
        RuntimeError,
    ) as error:
        # torchvision built for another torch raises a RuntimeError
        raise MissingExtraError(f"{name} ({type(error).__name__}: {error})", "hub") from error


HUBS: dict[str, Callable[[str, bool], nn.Module]] = {
    "timm": _load_timm,
    "torchvision": _load_torchvision,
    "transformers": _load_transformers,
}
