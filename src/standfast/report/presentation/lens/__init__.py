"""LENS: attacks on attribution maps."""
