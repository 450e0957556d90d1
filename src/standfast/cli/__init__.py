"""The command line: `standfast demo`, `standfast run study.yaml`, ... `standfast --help` shows all commands."""

from standfast.cli.commands import app, main

__all__ = ["app", "main"]
