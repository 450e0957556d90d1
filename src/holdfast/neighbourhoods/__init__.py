"""Where a perturbed input may lie, and how it is distributed there: norm balls and transformations.

`base` has what they share, `norm_balls` the balls, `transformations` what has parameters of its own.
"""

from holdfast.neighbourhoods.base import (
    Bounds,
    Distribution,
    Neighbourhood,
    Region,
    check_neighbourhood,
    neighbourhoods,
)
from holdfast.neighbourhoods.geometry import Perspective, Rotation, Scale, Shear, Translation
from holdfast.neighbourhoods.light import Brightness, Contrast, Gamma, Hue, Saturation
from holdfast.neighbourhoods.norm_balls import L2Ball, LinfBall, NormBall
from holdfast.neighbourhoods.series import (
    Amplitude,
    Drift,
    DroppedSamples,
    Jitter,
    TimeShift,
    TimeStretch,
    TimeWarp,
    WindowCrop,
)
from holdfast.neighbourhoods.transformations import Compose, Transformation, Warp

__all__ = [
    "Amplitude",
    "Bounds",
    "Brightness",
    "Compose",
    "Contrast",
    "Distribution",
    "Drift",
    "DroppedSamples",
    "Gamma",
    "Hue",
    "Jitter",
    "L2Ball",
    "LinfBall",
    "Neighbourhood",
    "NormBall",
    "Perspective",
    "Region",
    "Rotation",
    "Saturation",
    "Scale",
    "Shear",
    "TimeShift",
    "TimeStretch",
    "TimeWarp",
    "Transformation",
    "Translation",
    "Warp",
    "WindowCrop",
    "check_neighbourhood",
    "neighbourhoods",
]
