"""Coarse to fine: corruption curves."""
