"""Explainers that use activations inside the network: class activation maps and full gradients."""
