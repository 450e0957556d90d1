"""Searches for the worst point of a region."""
