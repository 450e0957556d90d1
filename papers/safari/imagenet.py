"""SAFARI: Table 9, explainers on a Wide ResNet-50-2 for ImageNet.

The photos are in `imagenet_sample/images` under the data root (`STANDFAST_DATA`).

A full run uses the network of timm (extra `hub`). A small run only shows that the computation works: its network is an
untrained stand-in (`make_stand_in`), and its numbers cannot be compared with the paper's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor, nn

from papers.base import Part, Reproduction, Scale, call_function, if_small, reproductions
from papers.photos import CROP, FOLDER
from papers.reading import Outcomes, Verdict, group_by_outcome
from papers.safari.events import HAT, HEADINGS, is_more_robust, make_columns, make_metrics
from standfast.zoo.hub import Normalised
from standfast.zoo.networks.layers import make_conv_block, make_mean_head

RADIUS = 0.03  # the paper does not state it; this is the radius for CIFAR-10

# ---- the stand-in ----


class _Bottleneck(nn.Module):
    """`relu(f(x) + shortcut(x))`, where `f` has 1x1, 3x3 and 1x1 convolutions, with half the width inside.

    Zagoruyko and Komodakis, Wide residual networks, BMVC 2016: twice the inner width of a ResNet-50.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = _conv_norm(in_channels, channels, stride)
        self.reduce = make_conv_block(in_channels, channels // 2, kernel_size=1)
        self.spatial = make_conv_block(channels // 2, channels // 2, stride=stride)
        self.expand = _conv_norm(channels // 2, channels)
        self.relu = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.relu(self.expand(self.spatial(self.reduce(inputs))) + self.shortcut(inputs))
        return features


def _conv_norm(in_channels: int, channels: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False)
    return nn.Sequential(OrderedDict(conv=convolution, norm=nn.BatchNorm2d(channels)))


def make_stand_in(width: int = 16, num_classes: int = 1000) -> nn.Module:
    """An UNTRAINED wide residual network: images (N, 3, H, W) in [0, 1] to logits (N, num_classes).

    It has the stem and the four stages of a Wide ResNet-50-2, but one block per stage (not 3, 4, 6 and 3), with `width`
    times 1, 2, 4 and 8 channels (not 256 times). It includes the normalisation of images of a hub's network. Weights
    are drawn from torch's generator. The batch normalisations are calibrated on noise, so that features neither vanish
    nor grow.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=make_conv_block(3, width, kernel_size=7, stride=2), pool=nn.MaxPool2d(3, stride=2, padding=1)
    )
    channels = width
    for stage in range(4):
        layers[f"stage{stage + 1}"] = _Bottleneck(channels, width * 2**stage, stride=1 if stage == 0 else 2)
        channels = width * 2**stage
    layers["classifier"] = make_mean_head(channels, num_classes)
    module = nn.Sequential(layers)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = 1.0
        module.train()(torch.randn(16, 3, 64, 64))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return Normalised(module, mean, std).eval()


# ---- the study ----

_STAND_IN, _WIDE = "UNTRAINED STAND-IN", "Wide ResNet-50-2"
_SIDE: dict[Scale, int] = {"small": 64, "full": CROP}
_IMAGES: dict[Scale, int] = {"small": 3, "full": 20}
#: steps of integrated gradients, and of extremal perturbations
_STEPS: dict[Scale, tuple[int, int]] = {"small": (4, 10), "full": (16, 50)}
_SIZES: dict[Scale, tuple[dict[str, Any], dict[str, Any]]] = {
    "small": ({"evaluations": 40}, {"particles": 20, "quantile": 0.25, "moves": 1, "floor": -10.0}),
    "full": ({"evaluations": 5000}, {"particles": 200, "quantile": 0.1, "moves": 10, "floor": -100.0}),
}

_FULLGRAD, _EXTREMAL = "FullGrad", "Extremal Perturbations"
_PAPER = {
    "Gradient x Input": (0.159, 0.463, -4.595, -100.0),
    "Integrated Gradients": (0.191, 0.515, -39.235, -100.0),
    "GradCAM": (0.233, 0.944, -98.725, -76.688),
    _FULLGRAD: (0.315, 0.799, -100.0, -75.716),
    _EXTREMAL: (0.126, 0.957, -4.321, -32.612),
}


def _study(scale: Scale) -> dict[str, Any]:
    steps, optimised = _STEPS[scale]
    small = {"function": f"{__name__}:make_stand_in", "batch_size": 64}
    return {
        "title": f"Explainers on a {_WIDE} for ImageNet (Table 9)"
        + (f": a test of the computation, with an {_STAND_IN.lower()}" if scale == "small" else ""),
        "samples": _IMAGES[scale],
        "samples_per_job": _IMAGES[scale] if scale == "small" else 1,
        "data": {"ImageNet": call_function("papers.photos:load_photos", count=_IMAGES[scale], side=_SIDE[scale])},
        "models": {_STAND_IN: small} if scale == "small" else {_WIDE: "timm:wide_resnet50_2"},
        "neighbourhood": {"linf": RADIUS},
        "explainers": {
            "Gradient x Input": "input_x_gradient",
            "Integrated Gradients": {"name": "integrated_gradients", "steps": steps},
            "GradCAM": "gradcam",
            _FULLGRAD: "fullgrad",
            _EXTREMAL: {"name": "extremal_perturbations", "areas": [0.1], "steps": optimised},
        },
        "metrics": make_metrics(*_SIZES[scale]),
    }


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Judge the paper's sentences, only for the paper's network."""
    own = frame.filter(pl.col("model") == _WIDE) if "model" in frame.columns else frame
    if not len(own):
        return []

    def judge(pairs: Sequence[tuple[str, str]], headings: Sequence[str]) -> Outcomes:
        return {heading: is_more_robust(own, heading, pairs) for heading in headings}

    both = [(_FULLGRAD, name) for name in ("Gradient x Input", "GradCAM")]
    last = [(name, _EXTREMAL) for name in _PAPER if name != _EXTREMAL]
    text = "FullGrad combines the advantages of Gradient x Input and GradCAM (above both for F-hat, our reading)"
    return [
        *group_by_outcome(text, judge(both, HAT)),
        *group_by_outcome(
            "Extremal Perturbations are not robust (below all others, our reading)", judge(last, list(HEADINGS))
        ),
    ]


def _notes(frame: pl.DataFrame) -> list[str]:
    if "model" in frame.columns and _STAND_IN in frame["model"].to_list():
        return [
            f"{_STAND_IN}: THESE NUMBERS CANNOT BE COMPARED WITH THE PAPER'S, which are printed only to show the form"
            " of a full run's table; no sentence of the paper is judged"
        ]
    return []


def _departures(scale: Scale) -> str:
    worst, subset = _SIZES[scale]
    steps, optimised = _STEPS[scale]
    network = (
        f"a narrow untrained network of four blocks ({_WIDE}, 81.60% top-1), {_IMAGES[scale]} photos (20) of"
        f" {_SIDE[scale]}x{_SIDE[scale]} pixels ({CROP}x{CROP})"
    )
    return (
        (f"{network}, " if scale == "small" else "timm's weights, whose accuracy may differ (81.60% top-1); ")
        + f"radius {RADIUS} (not stated for ImageNet; CIFAR-10's); the first photos by name in {FOLDER} (random);"
        f" worst cases by block search of {worst['evaluations']} evaluations (GA, 500000); subset simulation in"
        f" Gaussian space, particles: {subset['particles']} (1000), moves: {subset['moves']} (250)"
        + if_small(scale, f", ln P down to {subset['floor']:g} (-100)").removesuffix(", ")
        + f"; integrated gradients with {steps} steps, extremal perturbations of one area, 0.1, with {optimised} steps"
        " (not stated); FullGrad without the bias of the images' normalisation, which is inside the module; sol_F-tilde"
        " only where a class change was found"
    )


IMAGENET_PART = Part(
    name="safari-imagenet",
    title=f"Robustness of explainers, {_WIDE}, ImageNet: mean [95% interval]",
    study=_study,
    columns=make_columns({f"{model}, {name}": row for model in (_STAND_IN, _WIDE) for name, row in _PAPER.items()}),
    departures=_departures,
    notes=_notes,
    verdicts=_verdicts,
    rows=("model", "explainer"),
)

reproductions.add("safari-table9", Reproduction("SAFARI, Table 9: a network for ImageNet", (IMAGENET_PART,)))
