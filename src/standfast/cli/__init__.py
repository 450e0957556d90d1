"""The command line: `standfast demo`, `standfast run study.yaml`, ... `standfast --help` shows all commands.

The commands are loaded when one is run, so that Ctrl-C ends in a sentence also while they are loaded.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standfast.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point."""
    try:
        from standfast.cli.commands import main as run_command

        run_command()
    except KeyboardInterrupt:  # before a command had begun, which would say more
        print("\ninterrupted; the same command starts again from the beginning", file=sys.stderr)
        sys.exit(130)


def __getattr__(name: str) -> object:
    """The commands, at their first use."""
    if name != "app":
        raise AttributeError(f"module 'standfast.cli' has no attribute {name!r}")
    from standfast.cli.commands import app

    return app
