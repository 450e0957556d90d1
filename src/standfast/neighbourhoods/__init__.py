"""Where a perturbed input may lie, and how it is distributed there: norm balls and transformations.

`base` has what they share, `norm_balls` the balls, `transformations` what declares parameters of its own. Those of
images are `geometry`, `light`, `blur`, `noise`, `compression`, `occlusion` and `corruptions`. Those of series are in
`series`, those of rows in `tables`; `naming` has labels, and neighbourhoods from stored options.
"""

from standfast.neighbourhoods.base import (
    Bounds,
    Distribution,
    Neighbourhood,
    Region,
    check_neighbourhood,
    neighbourhoods,
)
from standfast.neighbourhoods.blur import DefocusBlur, GaussianBlur, MotionBlur
from standfast.neighbourhoods.compression import JPEG, Pixelate
from standfast.neighbourhoods.corruptions import Corruption
from standfast.neighbourhoods.geometry import Perspective, Rotation, Scale, Shear, Translation
from standfast.neighbourhoods.light import Brightness, Contrast, Gamma, Hue, Saturation
from standfast.neighbourhoods.noise import GaussianNoise, ImpulseNoise, ShotNoise, SpeckleNoise
from standfast.neighbourhoods.norm_balls import L2Ball, LinfBall, NormBall
from standfast.neighbourhoods.occlusion import Occlusion
from standfast.neighbourhoods.plausibility import measure_plausibility
from standfast.neighbourhoods.series import (
    Amplitude,
    Drift,
    DroppedSamples,
    Jitter,
    TimeShift,
    TimeStretch,
    TimeWarp,
    WindowCrop,
)
from standfast.neighbourhoods.tables import Feature, TableChanges
from standfast.neighbourhoods.text import (
    Casing,
    Deletion,
    Punctuation,
    TextChange,
    TokenSwaps,
    Typos,
)
from standfast.neighbourhoods.transformations import (
    Compose,
    Range,
    Transformation,
    TransformedRegion,
    Warp,
    parameter,
)

__all__ = [
    "JPEG",
    "Amplitude",
    "Bounds",
    "Brightness",
    "Casing",
    "Compose",
    "Contrast",
    "Corruption",
    "DefocusBlur",
    "Deletion",
    "Distribution",
    "Drift",
    "DroppedSamples",
    "Feature",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "Hue",
    "ImpulseNoise",
    "Jitter",
    "L2Ball",
    "LinfBall",
    "MotionBlur",
    "Neighbourhood",
    "NormBall",
    "Occlusion",
    "Perspective",
    "Pixelate",
    "Punctuation",
    "Range",
    "Region",
    "Rotation",
    "Saturation",
    "Scale",
    "Shear",
    "ShotNoise",
    "SpeckleNoise",
    "TableChanges",
    "TextChange",
    "TimeShift",
    "TimeStretch",
    "TimeWarp",
    "TokenSwaps",
    "Transformation",
    "TransformedRegion",
    "Translation",
    "Typos",
    "Warp",
    "WindowCrop",
    "check_neighbourhood",
    "measure_plausibility",
    "neighbourhoods",
    "parameter",
]
