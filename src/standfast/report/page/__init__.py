"""The page: stored results as one HTML file that needs no other."""
