"""The least change of the free features that changes a prediction: attacks and their result."""

from standfast.algorithms.distortion.augmented_lagrangian import AugmentedLagrangian
from standfast.algorithms.distortion.base import Attack, attacks, get_attack
from standfast.algorithms.distortion.carlini_wagner import CarliniWagner
from standfast.algorithms.distortion.decoupled_direction import DecoupledDirection
from standfast.algorithms.distortion.fast_minimum_norm import FastMinimumNorm
from standfast.algorithms.distortion.gradient_sign import GradientSign, IteratedGradient
from standfast.algorithms.distortion.minimal import MinimalDistortion, estimate_lower_limit

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
    "get_attack",
]
