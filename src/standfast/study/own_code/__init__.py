"""Which code is the user's own, and what it consists of.

What code does cannot be found out by reading it. What it consists of can: a function names helpers, constants and
modules, and what these name in turn belongs to it, too. `Reach` follows these names. It looks at code objects, so that
also functions count that were typed into a notebook, and at files only to see what they would import later.
"""

from standfast.study.own_code.modules import is_own, name_module, read_own_modules
from standfast.study.own_code.reach import Reach, find_package_version, read_closure

__all__ = [
    "Reach",
    "find_package_version",
    "is_own",
    "name_module",
    "read_closure",
    "read_own_modules",
]
