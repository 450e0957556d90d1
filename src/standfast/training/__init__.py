"""Training of classifiers: the loop, objectives, schemes and calibration."""

from standfast.training import classifier, schemes

__all__ = ["classifier", "schemes"]
