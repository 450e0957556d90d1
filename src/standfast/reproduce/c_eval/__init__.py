"""Figures of c-Eval."""
