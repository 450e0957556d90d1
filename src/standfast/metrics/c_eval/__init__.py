"""c-Eval: how much the input must change while the features of the explanation are held fixed."""
