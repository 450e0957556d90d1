"""Cells of tables as stored numbers: moments of time, and what a number means in the user's units and names."""
