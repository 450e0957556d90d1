"""c-Eval: minimal distortions while features are held fixed."""
