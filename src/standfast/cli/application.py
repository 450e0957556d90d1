"""What all commands have in common: the application, how they print, what Ctrl-C does, and arguments of several."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from standfast.cli.kinds import KINDS
from standfast.errors import find_version, make_printable


def echo(text: object = "", err: bool = False, nl: bool = True) -> None:
    """Print a text, in which what could steer a terminal, such as a file's name may have, is shown and not sent."""
    typer.echo(make_printable(str(text)), err=err, nl=nl)


FROM_THE_BEGINNING = "the same command starts again from the beginning"
FROM_THERE = "what is done is stored, and the same command continues from there"


@contextlib.contextmanager
def interruptible(how_to_go_on: str) -> Iterator[None]:
    """After Ctrl-C, print how to go on, and end with exit code 130. Also a decorator of commands."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not error.args:  # else it was said already (`evaluate`)
            # a blank line first, as the terminal shows ^C on the current one
            echo(f"\ninterrupted; {how_to_go_on}", err=True)
        raise typer.Exit(130) from None


class _Commands(typer.core.TyperGroup):
    """The commands. Ctrl-C ends in one sentence, also before one of them has begun."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments."""
        # also while the arguments are read, which imports the registries
        with interruptible(FROM_THE_BEGINNING):
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with interruptible(FROM_THE_BEGINNING):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help="How far can the explanations of a trained classifier be trusted?",
    epilog="Start with: standfast demo. For a model of your own: standfast init.",
    no_args_is_help=True,
    # errors of the library are told in one line by `main`
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        # here, as no other command needs them
        import platform
        from importlib.metadata import version

        echo(
            f"standfast {find_version() or 'unknown'}\ntorch {version('torch')}\npython {platform.python_version()}"
        )
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the versions, and exit."
        ),
    ] = False,
) -> None:
    """How far can the explanations of a trained classifier be trusted?"""


Format = enum.StrEnum("Format", ["csv", "latex", "parquet", "json"])
CacheAction = enum.StrEnum("CacheAction", ["show", "clear"])
SpeakingSide = enum.StrEnum("SpeakingSide", ["both", "for"])
Preset = enum.StrEnum("Preset", ["quick", "standard", "paper"])
KindName = enum.StrEnum("KindName", list(KINDS))  # type: ignore[misc]
Stored = Annotated[str, typer.Argument(help="A folder, or an fsspec address, of stored results.")]
Out = Annotated[Path, typer.Option(help="Folder for the results and the report.")]
Address = Annotated[
    str | None,
    typer.Option(
        help="Folder or fsspec address of the results; results/<name of the file> by default."
    ),
]
Workers = Annotated[
    str | None, typer.Option(help="How many, or auto, instead of what the file says.")
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="How long all of it may take, instead of what the file says; what is not given is chosen."
    ),
]
DemoMinutes = Annotated[
    float | None,
    typer.Option(help="How long all of it may take: fewer digits are evaluated, and it says so."),
]
Seed = Annotated[int, typer.Option(help="Of all random numbers.")]
# of a model and its data; what is said of them is short where `standfast init` says more
TrainingRows = Annotated[str | None, typer.Option(help="Of a table: a file of training rows.")]
Weights = Annotated[str | None, typer.Option(help="Of a module:function.")]
Label = Annotated[str | None, typer.Option(help="Of a table: the column that has the classes.")]
Bounds = Annotated[str | None, typer.Option(help="Valid values of an input, as 0,1.")]
Task = Annotated[str | None, typer.Option(help="What the model answers, if no classes.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run code in a .pt2 or pickled file, or of a module elsewhere."),
]
Samples = Annotated[int, typer.Option(help="Digits to evaluate, 1 to 300.", min=1, max=300)]


def count_workers(workers: str | None) -> int | str | None:
    # negative numbers as well, for the error that is about numbers
    if workers is not None and re.fullmatch(r"-?[0-9]+", workers):
        return int(workers)
    return workers
