"""SAFARI: Table 9, explainers on a Wide ResNet-50-2 for ImageNet.

The photos are in `imagenet_sample/images` under the data root (`STANDFAST_DATA`).

A full run uses the network of timm (extra `hub`). A small run only shows that the computation works: its network is an
untrained stand-in (`make_stand_in`), and its numbers cannot be compared with the paper's.
"""

from __future__ import annotations

import polars as pl
import torch
from torch import nn

from papers.files import read_numbers
from papers.reading import Verdict, group_by_outcome
from papers.safari.parts import HAT, HEADINGS, judge_order, make_columns, make_part
from standfast.zoo.hub import Normalised
from standfast.zoo.networks.resnet import ResNet18

STAND_IN, _WIDE = "UNTRAINED STAND-IN", "Wide ResNet-50-2"
_FULLGRAD, _EXTREMAL = "FullGrad", "Extremal Perturbations"
_OTHERS = ("Gradient x Input", "Integrated Gradients", "GradCAM", _FULLGRAD)


def make_stand_in(width: int = 4, num_classes: int = 1000) -> nn.Module:
    """An UNTRAINED narrow ResNet-18: images (N, 3, H, W) in [0, 1] to logits (N, num_classes).

    It includes the normalisation of images of a hub's network. Weights are drawn from torch's generator. The batch
    normalisations are calibrated on noise, so that features neither vanish nor grow.
    """
    module = ResNet18(num_classes, width=width)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        logits = module.train()(torch.randn(16, 3, 64, 64))
        # else most images have the same class
        module.get_parameter("classifier.fc.bias").sub_(logits.mean(0))
    return Normalised(module, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).eval()


def _judge(frame: pl.DataFrame) -> list[Verdict]:
    """Judge the paper's sentences, only for the paper's network."""
    own = frame.filter(pl.col("model") == _WIDE)
    if not len(own):
        return []
    both = [(_FULLGRAD, name) for name in ("Gradient x Input", "GradCAM")]
    last = [(name, _EXTREMAL) for name in _OTHERS]
    return [
        *group_by_outcome(
            "FullGrad combines the advantages of Gradient x Input and GradCAM (above both for F-hat, our reading)",
            judge_order(own, both, HAT),
        ),
        *group_by_outcome(
            "Extremal Perturbations are not robust (below all others, our reading)",
            judge_order(own, last, HEADINGS),
        ),
    ]


def _warn_of_stand_in(frame: pl.DataFrame) -> list[str]:
    if STAND_IN not in frame["model"].to_list():
        return []
    return [
        f"{STAND_IN}: THESE NUMBERS CANNOT BE COMPARED WITH THE PAPER'S; no sentence of the paper is judged"
    ]


IMAGENET_PART = make_part(
    "table9",
    f"Robustness of explainers, {_WIDE}, ImageNet: mean [95% interval]",
    make_columns(HEADINGS, read_numbers("safari/table9.csv", keys=2)),
    notes=_warn_of_stand_in,
    verdicts=_judge,
    rows=("model", "explainer"),
)
