"""Explainers that use gradients by the input."""
