"""Explainers that read the attention weights of transformers."""
