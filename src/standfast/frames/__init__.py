"""Data frames as they are: columns with text, order, dates and missing cells, for models that take such frames.

Inside of standfast a row is one number for each of the user's columns. `Table` makes these numbers of a frame, and
frames of them; `make_model` makes a `Model` of a fitted estimator or pipeline, which gets frames of the original types.
"""

from standfast.frames.columns import Column
from standfast.frames.model import FrameFunction, find_frame_function, make_model
from standfast.frames.table import Table, is_frame

__all__ = ["Column", "FrameFunction", "Table", "find_frame_function", "is_frame", "make_model"]
