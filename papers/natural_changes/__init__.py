"""FASS: how stable explanations are under the usual changes of photos."""
