"""The study file: read, checked with errors that name the place, and turned into a grid."""
