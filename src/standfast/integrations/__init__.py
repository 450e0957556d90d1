"""Interfaces to other packages: standfast's metrics as theirs, and theirs as standfast's (`peers`).

Each module needs the package that it is named after.
"""
