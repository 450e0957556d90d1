"""Where a perturbed input may lie, and how it is distributed there: norm balls and transformations.

`base` has what they share, `norm_balls` the balls, `transformations` what has parameters of its own. Those of images
share `images`: `geometry`, `light`, `blur`, `noise`, `compression`, `occlusion` and `corruptions`.
"""

from holdfast.neighbourhoods.base import (
    Bounds,
    Distribution,
    Neighbourhood,
    Region,
    check_neighbourhood,
    neighbourhoods,
)
from holdfast.neighbourhoods.blur import DefocusBlur, GaussianBlur, MotionBlur
from holdfast.neighbourhoods.compression import JPEG, Pixelate
from holdfast.neighbourhoods.corruptions import Corruption
from holdfast.neighbourhoods.geometry import Perspective, Rotation, Scale, Shear, Translation
from holdfast.neighbourhoods.light import Brightness, Contrast, Gamma, Hue, Saturation
from holdfast.neighbourhoods.noise import GaussianNoise, ImpulseNoise, ShotNoise, SpeckleNoise
from holdfast.neighbourhoods.norm_balls import L2Ball, LinfBall, NormBall
from holdfast.neighbourhoods.occlusion import Occlusion
from holdfast.neighbourhoods.transformations import Compose, Transformation, Warp

__all__ = [
    "JPEG",
    "Bounds",
    "Brightness",
    "Compose",
    "Contrast",
    "Corruption",
    "DefocusBlur",
    "Distribution",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "Hue",
    "ImpulseNoise",
    "L2Ball",
    "LinfBall",
    "MotionBlur",
    "Neighbourhood",
    "NormBall",
    "Occlusion",
    "Perspective",
    "Pixelate",
    "Region",
    "Rotation",
    "Saturation",
    "Scale",
    "Shear",
    "ShotNoise",
    "SpeckleNoise",
    "Transformation",
    "Translation",
    "Warp",
    "check_neighbourhood",
    "neighbourhoods",
]
