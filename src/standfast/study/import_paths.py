"""`importing_from`: the user's modules are found beside a study, here and where its jobs run."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def importing_from(paths: Sequence[str]) -> Iterator[None]:
    """These folders come first when something is imported inside; `sys.path` is afterwards as it was."""
    before = list(sys.path)
    sys.path[:0] = paths
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
