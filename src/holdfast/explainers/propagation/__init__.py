"""Explainers with backward rules: DeepLIFT, LRP, deep Taylor, guided backpropagation."""
