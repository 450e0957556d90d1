"""Figures of SenC."""
