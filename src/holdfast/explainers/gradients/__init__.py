"""Explainers made of input gradients."""
