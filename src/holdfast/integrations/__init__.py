"""Interfaces to other packages: holdfast's metrics as theirs, and theirs as holdfast's (`peers`).

Each module needs the package that it is named after.
"""
