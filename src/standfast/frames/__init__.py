"""Data frames as they are: columns with text, order, dates and missing cells, for models that take such frames.

Inside of standfast a row is one number for each of the user's columns. `Table` makes these numbers of a frame, and
frames of them; `make_model` makes a `Model` of a fitted estimator or pipeline, which gets frames of the original types.
"""

from standfast.frames.columns import Column as Column
from standfast.frames.model import FrameFunction as FrameFunction
from standfast.frames.model import find_frame_function as find_frame_function
from standfast.frames.model import make_model as make_model
from standfast.frames.table import Table as Table
from standfast.frames.table import is_frame as is_frame
