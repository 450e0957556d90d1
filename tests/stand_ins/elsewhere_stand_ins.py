"""What zennit and pytorch_grad_cam look like from outside, for where they cannot be imported (both need torchvision).

Written from their documented interfaces, with just enough inside to compute known explanations.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Composite:
    """Registers rules with a module and removes them: here, that of the ReLU is guided backpropagation's."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def register(self, module: nn.Module) -> None:
        for layer in module.modules():
            if isinstance(layer, nn.ReLU):
                self.handles.append(layer.register_full_backward_hook(lambda m, given, out: (given[0].clamp(min=0),)))

    def remove(self) -> None:
        while self.handles:
            self.handles.pop().remove()


class GuidedBackprop(Composite):
    """Changes the gradient of ReLUs alone, as that of zennit does."""


class NeedsOptions(Composite):
    def __init__(self, epsilon: float) -> None:
        super().__init__()


class Gradient:
    """`attributor(input, attr_output) -> (output, attributions)`, the composite registered for the call."""

    def __init__(self, model: nn.Module, composite: Composite | None = None, attr_output: Any = None) -> None:
        self.model, self.composite = model, composite

    def __call__(self, input: Tensor, attr_output: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        if self.composite is not None:
            self.composite.register(self.model)
        try:
            return self.forward(input, attr_output)
        finally:
            if self.composite is not None:
                self.composite.remove()

    def forward(self, x: Tensor, attr_output: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        x = x.view_as(x)
        x.requires_grad = True
        out = self.model(x)
        (gradient,) = torch.autograd.grad((out,), (x,), grad_outputs=(attr_output(out),))
        return out, gradient


class SmoothGrad(Gradient):
    """Averages over noise from torch's global generator."""

    def __init__(
        self,
        model: nn.Module,
        composite: Composite | None = None,
        attr_output: Any = None,
        noise_level: float = 0.1,
        n_iter: int = 20,
    ) -> None:
        super().__init__(model, composite)
        self.noise_level, self.n_iter = noise_level, n_iter

    def forward(self, x: Tensor, attr_output: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        found = [super().forward(x + self.noise_level * torch.randn_like(x), attr_output)[1]]
        for _ in range(self.n_iter - 1):
            found.append(super().forward(x + self.noise_level * torch.randn_like(x), attr_output)[1])
        return self.model(x), torch.stack(found).mean(0)


class Hooks:
    """Keeps activations and gradients of the target layers until it is released."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.activations: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.handles = [layer.register_forward_hook(self.keep) for layer in layers]

    def keep(self, _layer: nn.Module, _given: Any, out: Tensor) -> None:
        self.activations.append(out)
        if out.requires_grad:
            out.register_hook(lambda gradient: self.gradients.insert(0, gradient.detach()))

    def release(self) -> None:
        for handle in self.handles:
            handle.remove()


class GradCAM:
    """`cam(input_tensor, targets) -> (n, H, W)`: rectified, resized, each map scaled to [0, 1]."""

    def __init__(self, model: nn.Module, target_layers: list[nn.Module], reshape_transform: Any = None) -> None:
        self.model = model.eval()
        self.target_layers = target_layers
        self.arrange = reshape_transform or (lambda values: values)
        self.activations_and_grads = Hooks(target_layers)

    def weights(self, gradient: Tensor) -> Tensor:
        return gradient.mean((2, 3), keepdim=True)

    def __call__(self, input_tensor: Tensor, targets: list[Any], aug_smooth: bool = False) -> np.ndarray:
        hooks = self.activations_and_grads
        hooks.activations.clear()
        hooks.gradients.clear()
        out = self.model(input_tensor)
        self.model.zero_grad()
        sum(target(row) for target, row in zip(targets, out, strict=True)).backward()
        maps = []
        pairs = zip(hooks.activations, hooks.gradients, strict=True)
        for activation, gradient in ((self.arrange(a), self.arrange(g)) for a, g in pairs):
            cam = (self.weights(gradient) * activation).sum(1, keepdim=True).clamp(min=0).detach()
            size = input_tensor.shape[2:]
            cam = nn.functional.interpolate(cam, size, mode="bilinear", align_corners=False)[:, 0]
            cam = cam - cam.amin((1, 2), keepdim=True)
            maps.append(cam / (1e-7 + cam.amax((1, 2), keepdim=True)))
        return torch.stack(maps).mean(0).numpy()


class RandomCAM(GradCAM):
    """Random weights, from NumPy's global generator."""

    def weights(self, gradient: Tensor) -> Tensor:
        drawn = np.random.uniform(-1, 1, size=gradient.shape[:2])  # noqa: NPY002
        return torch.as_tensor(drawn, dtype=gradient.dtype)[..., None, None]


def modules() -> dict[str, Any]:
    """For `sys.modules`, by name."""
    composites = SimpleNamespace(EpsilonPlusFlat=Composite, NeedsOptions=NeedsOptions)
    return {
        "zennit": SimpleNamespace(),
        "zennit.composites": composites,
        "zennit.attribution": SimpleNamespace(Gradient=Gradient, SmoothGrad=SmoothGrad),
        "pytorch_grad_cam": SimpleNamespace(GradCAM=GradCAM, GradCAMPlusPlus=GradCAM, RandomCAM=RandomCAM),
    }
