"""Networks with random weights for the measurements on a card, and a file of results that is always whole."""

from __future__ import annotations

import inspect
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

import standfast
from standfast.zoo.networks.resnet import ResNet18
from standfast.zoo.networks.vit import VisionTransformer

NETWORKS = ("resnet50", "vit_b16", "lenet5")
PRECISIONS = ("bfloat16", "float32")
BOUNDS = (0.0, 1.0)


@dataclass(frozen=True)
class Network:
    """A module with frozen weights, the shape of its inputs, and where it comes from."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    source: str

    def make_model(self, precision: str, device: str, rows: int) -> standfast.Model:
        """The model in that precision; with bfloat16, its convolutions have the memory format channels-last."""
        if precision == "float32":
            return standfast.Model(self.module, BOUNDS, device=device, batch_size=rows)
        module = self.module.to(memory_format=torch.channels_last)
        return standfast.Model(
            module, BOUNDS, device=device, batch_size=rows, mixed_precision="bfloat16"
        )

    def draw(self, count: int, seed: int, device: torch.device) -> Tensor:
        """`count` random inputs."""
        return torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(seed)).to(
            device
        )


def build(name: str, tiny: bool) -> Network:
    """The network with random weights from a fixed seed; LeNet-5 has the bundled ones.

    Args:
        name: one of `NETWORKS`.
        tiny: for images of 8 x 8: a narrow ResNet-18 and a small transformer in the places of the large networks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name == "lenet5":
            found = Network(
                name,
                standfast.zoo.load("lenet5-mnist"),
                (1, 28, 28),
                "standfast.zoo, bundled weights",
            )
        elif tiny:
            options = {"side": 8, "width": 16, "layers": 2, "heads": 2}
            module = ResNet18(width=4) if name == "resnet50" else VisionTransformer(**options)
            found = Network(
                name, module, (3, 8, 8), f"tiny: standfast.zoo, {type(module).__name__}"
            )
        else:
            found = Network(name, *_build_large(name))
        for layer in found.module.modules():
            # as the head of torchvision's transformer
            if isinstance(layer, nn.Linear) and not layer.weight.any():
                nn.init.normal_(layer.weight, std=0.02)
    found.module.eval().requires_grad_(False)
    return found


def _build_large(name: str) -> tuple[nn.Module, tuple[int, ...], str]:
    """ResNet-50 or ViT-B/16 of torchvision; without it, the networks of the benchmarks on a CPU."""
    shape = (3, 224, 224)
    try:
        import torchvision
    except ImportError:
        if name == "resnet50":
            from scale import make_resnet50

            return make_resnet50(), shape, "benchmarks/speed/scale.py"
        import photographs

        return photographs.build(name), shape, "transformers"
    module: nn.Module = getattr(torchvision.models, {"vit_b16": "vit_b_16"}.get(name, name))(
        weights=None
    )
    return module, shape, f"torchvision {torchvision.__version__}"


def can_mix_precisions() -> bool:
    """Whether this version of standfast has mixed precision."""
    return "mixed_precision" in inspect.signature(standfast.Model).parameters


class Record:
    """A JSON file of results. It is written anew after each result, and replaced in one step.

    Args:
        path: of the file; None for no file.
        device: of the measurements.
    """

    def __init__(self, path: Path | None, device: torch.device) -> None:
        self.path = path
        on_card = device.type == "cuda"
        self.content: dict[str, Any] = {
            "device": torch.cuda.get_device_name(device)
            if on_card
            else f"CPU, {torch.get_num_threads()} thread(s)",
            "torch": torch.__version__,
            "float32": {
                "matmul": torch.get_float32_matmul_precision(),
                "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
            },
        }

    def add(self, part: str, entry: dict[str, Any]) -> None:
        """Append an entry to a list of the file."""
        self.content.setdefault(part, []).append(entry)
        self.write()

    def write(self) -> None:
        """Write everything; NaN and infinity become null."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(self.path.name + ".draft")
        draft.write_text(json.dumps(_make_plain(self.content), indent=1), encoding="utf-8")
        draft.replace(self.path)


def _make_plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _make_plain(inner) for key, inner in value.items()}
    return [_make_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
