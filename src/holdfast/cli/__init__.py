"""The command line: `holdfast demo`, `holdfast run study.yaml`, ... `holdfast --help` shows all commands."""

from holdfast.cli.commands import app, main

__all__ = ["app", "main"]
