"""Explainers from the class activation maps of the package `pytorch_grad_cam` (on PyPI `grad-cam`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ModelError, check
from standfast.explainers.adapters.base import ForeignExplainer, check_own_module, hide_progress_bars
from standfast.explainers.base import join_preprocessing
from standfast.explainers.cam.gradcam import find_layers
from standfast.model import Model


@dataclass(frozen=True)
class ClassLogit:
    """The logit of one class, for one row of logits or for many; the package calls this a target."""

    category: int

    def __call__(self, logits: Tensor) -> Tensor:
        return logits[..., self.category]


@dataclass(frozen=True)
class CAMExplainer(ForeignExplainer):
    """An explainer that calls a class activation map of pytorch_grad_cam; made by `from_grad_cam`."""

    layers: tuple[str | None, ...] = (None,)
    name: ClassVar[str] = "grad_cam_package"
    package: ClassVar[str] = "pytorch_grad_cam"
    home: ClassVar[str] = "pytorch_grad_cam"
    built_on = (("model",), ("target_layers",))
    passed = ("targets",)

    @property
    def uses_hooks(self) -> bool:
        return True

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        check(rows.ndim >= 4, "inputs", f"images (N, C, H, W) for {self.label}", f"shape {tuple(rows.shape)}")
        wanted = [ClassLogit(target) for target in targets.tolist()]
        with self._build(model, rows) as cam, hide_progress_bars():
            # it differentiates by a layer's output, while the parameters require no gradients here
            found = cam(input_tensor=rows.requires_grad_(True), targets=wanted, **self.call_options)
        if not isinstance(found, np.ndarray | Tensor):
            raise ModelError(f"{self.label}: expected a map as an array, got {type(found).__name__}")
        maps = torch.as_tensor(found, dtype=rows.dtype, device=rows.device)
        shape = (len(rows), *rows.shape[2:])
        if tuple(maps.shape) != shape:
            raise ModelError(f"{self.label}: expected maps of shape {shape}, got {tuple(maps.shape)}")
        return maps[:, None].expand_as(rows)

    @contextlib.contextmanager
    def _build(self, model: Model, rows: Tensor) -> Iterator[Any]:
        """Build the method on the model, and remove its hooks afterwards; a ready object keeps its hooks."""
        cam = self.method
        try:
            if isinstance(self.method, type):
                layers, options = find_layers(model, self.layers, rows, self.label)
                options |= self.constructor_options
                cam = self.method(model=join_preprocessing(model), target_layers=layers, **options)
            else:
                check_own_module(self.label, cam.model, model)
            yield cam
        finally:
            if cam is not self.method and hasattr(cam, "activations_and_grads"):
                cam.activations_and_grads.release()


def from_grad_cam(
    method: Any,
    /,
    layer: str | Sequence[str] | None = None,
    *,
    rows_per_input: int = 1,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> CAMExplainer:
    """An explainer from a class of pytorch_grad_cam (such as `GradCAMPlusPlus`), or from an object of one.

    A class is built on the model's module for each call, and its hooks are removed afterwards. An object must have
    been built on the model's own module, and the model must have no preprocessing; the hooks of an object
    stay. The package scales each map `(H, W)` to [0, 1]; it is repeated over all channels.

    Args:
        method: a class, its name, or an object.
        layer: the name of the target layer, or several of them; by default that of `GradCAM`, which costs a forward
            pass. Of a concatenation these are its parts, and tokens are arranged as a grid (`reshape_transform`).
        rows_per_input: rows forwarded at once for one input.
        one_at_a_time: explain each input alone, with random numbers seeded by its content; by default only if the
            explanation of a chunk has drawn random numbers.
        seed: of the random numbers. The state of the global generators is restored afterwards.
        options: of the constructor (`reshape_transform` for transformers) or of the call (`eigen_smooth`,
            `aug_smooth`), as their signatures say.

    Raises:
        MissingExtraError: `method` is a name, and the package cannot be imported.
        ArgumentError: an option that neither the constructor nor the call has; an object of another package; in the
            call, there is no such layer, or the inputs are not images.

    Source: Gildenblat and contributors, PyTorch library for CAM methods, 2021.

    >>> from torch import nn
    >>> class Means:  # what the package's classes look like
    ...     def __init__(self, model, target_layers):
    ...         self.model = model
    ...     def __call__(self, input_tensor, targets):
    ...         return input_tensor.detach().mean(1).numpy()
    >>> module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(2, 2))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> from_grad_cam(Means, "0")(model, torch.ones(1, 1, 2, 2))
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """
    method = CAMExplainer.find_method(method)
    layers = (layer,) if layer is None or isinstance(layer, str) else tuple(layer)
    fine = len(layers) > 0 and all(name is None or isinstance(name, str) for name in layers)
    check(fine, "layer", "the name of a layer, or several", repr(layer))
    fine = layer is None or isinstance(method, type)
    check(fine, "layer", "None for a ready object, which has its own", repr(layer))
    return CAMExplainer.make(method, options, rows_per_input, one_at_a_time, seed, layers=layers)
