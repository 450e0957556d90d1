"""Explainers with backward rules: DeepLIFT, epsilon-LRP, deep Taylor decomposition, guided backpropagation."""
