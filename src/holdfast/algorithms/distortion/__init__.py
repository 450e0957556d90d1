"""The least change of the free features that changes a prediction: `minimal_distortion` and its attacks."""

from holdfast.algorithms.distortion.augmented_lagrangian import AugmentedLagrangian
from holdfast.algorithms.distortion.base import Attack, attacks
from holdfast.algorithms.distortion.carlini_wagner import CarliniWagner
from holdfast.algorithms.distortion.decoupled_direction import DecoupledDirection
from holdfast.algorithms.distortion.fast_minimum_norm import FastMinimumNorm
from holdfast.algorithms.distortion.gradient_sign import GradientSign, IteratedGradient
from holdfast.algorithms.distortion.minimal import MinimalDistortion, estimate_lower_limit, minimal_distortion

__all__ = [
    "Attack",
    "AugmentedLagrangian",
    "CarliniWagner",
    "DecoupledDirection",
    "FastMinimumNorm",
    "GradientSign",
    "IteratedGradient",
    "MinimalDistortion",
    "attacks",
    "estimate_lower_limit",
    "minimal_distortion",
]
