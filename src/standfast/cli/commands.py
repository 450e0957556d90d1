"""The command line: it reads the arguments, calls the library, and prints where the results are."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from standfast.cli import model_commands, result_commands, study_commands
from standfast.cli.application import app, echo
from standfast.errors import StandfastError

__all__ = ["app", "main"]

# help shows them in this order
for group in (study_commands, result_commands, model_commands):
    app.registered_commands += group.commands.registered_commands


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line, without the place in the code."""
    echo(f"warning: {' '.join(str(message).split())}", err=True)


def main() -> None:
    """Entry point. Errors of the library are printed in one line, with exit code 2; warnings in one line, too."""
    warnings.showwarning = _show_warning
    try:
        # the name is fixed, because a script of `python -m standfast` would otherwise complete the command python
        # exceptions come here, instead of a traceback by the package
        app(standalone_mode=True, prog_name="standfast")
    except StandfastError as error:
        echo(f"error: {error}", err=True)
        sys.exit(2)
    except (
        MemoryError,
        OSError,
    ) as error:
        # such as a folder that cannot be written, a full disk, or no answer
        message = str(error) or "there is not enough memory"
        echo(f"error: {message}", err=True)
        sys.exit(2)
