"""Models: a user's module or function, with all that standfast needs to run it safely and fast.

`model.py` is what a user holds. `batches.py` says how rows go through a module, `suspicions.py` what may be wrong with
it, `failures.py` what to say when it fails; `black_box.py` makes modules of functions of arrays, and `modules.py` knows
what wraps a module, what it is called, and its mode.
"""

from standfast.model.batches import ROW_ALIGNMENT, Kind, count_padding, pad_rows
from standfast.model.black_box import BlackBox, Composition, Output, find_black_box
from standfast.model.failures import check_finite
from standfast.model.model import Model
from standfast.model.modules import (
    ForwardWrapper,
    describe_no_module,
    is_state_dict,
    module_name,
    resolve_device,
)
from standfast.tensors import Bound

__all__ = [
    "ROW_ALIGNMENT",
    "BlackBox",
    "Bound",
    "Composition",
    "ForwardWrapper",
    "Kind",
    "Model",
    "Output",
    "check_finite",
    "count_padding",
    "describe_no_module",
    "find_black_box",
    "is_state_dict",
    "module_name",
    "pad_rows",
    "resolve_device",
]
