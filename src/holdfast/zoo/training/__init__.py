"""Training: schemes, objectives, the loop, calibration, tuning."""
