"""Training of classifiers: the loop, objectives, schemes, calibration, and the search for options."""
