"""Training of classifiers: the loop, objectives, schemes and calibration."""
