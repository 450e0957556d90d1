"""Explainers made of activations: class activation maps and full gradients."""
