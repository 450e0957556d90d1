"""Training of models: the loop, objectives, schemes, calibration, and the search for options."""
