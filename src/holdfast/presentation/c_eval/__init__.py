"""c-Eval: minimal distortions with explanations held fixed."""
