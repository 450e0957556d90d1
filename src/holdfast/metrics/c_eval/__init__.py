"""c-Eval: how much the input must change while the explanation is held fixed."""
