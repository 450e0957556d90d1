"""The architectures."""
