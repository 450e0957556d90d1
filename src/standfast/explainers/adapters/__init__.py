"""Explainers of other packages, and callables, behind our interface."""
