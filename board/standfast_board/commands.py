"""The command `standfast-board`: it reads the arguments, calls the package, and prints what was made."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from standfast import StandfastError
from standfast_board.site import build_site
from standfast_board.submission import make_submission, read_submission
from standfast_board.verification import verify_submission

app = typer.Typer(
    help="Results of several studies, compared where they are comparable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Base = Annotated[
    Path, typer.Option(help="The folder that paths and functions of the studies are relative to.")
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        help="A digest, or its first 16 digits or more: of a submission whose functions may be run."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Of the choice of jobs; a new one if not given.")]


@app.command(
    epilog="Example: standfast-board submit results/study --out study.json.gz --by 'A. Person'"
)
def submit(
    results: Annotated[
        str, typer.Argument(help="A folder, or an fsspec address, of stored results.")
    ],
    out: Annotated[Path, typer.Option(help="The file: .json, or .json.gz for a compressed one.")],
    name: Annotated[
        str, typer.Option(help="What a board calls it; the title of the study by default.")
    ] = "",
    by: Annotated[str, typer.Option(help="Who submits it, as a board shows it.")] = "",
    note: Annotated[str, typer.Option(help="Anything that a reader should know.")] = "",
) -> None:
    """Write the results of a study as one file for a board: configuration, digests, and the numbers of each sample.

    Inputs, maps and weights are not in it.
    """
    made = make_submission(results, out, name, by, note)
    failed, missing = len(made.results.failures), made.results.missing
    done = made.results.planned - failed - missing
    typer.echo(f"submission: {out} ({done} of {made.results.planned} jobs)\ndigest: {made.digest}")
    if failed or missing:
        typer.echo(
            f"warning: {failed} jobs failed and {missing} were not run: their numbers are missing",
            err=True,
        )


@app.command(
    epilog="Example: standfast-board build submissions/ --out site --verify 5 --base studies"
)
def build(
    submissions: Annotated[
        list[Path], typer.Argument(help="Files of `standfast-board submit`, or folders of them.")
    ],
    out: Annotated[
        Path, typer.Option(help="A new folder for the site, or that of an earlier one.")
    ],
    title: Annotated[str, typer.Option(help="Of the first page.")] = "Which explanations hold?",
    verify: Annotated[
        int, typer.Option(help="How many jobs of each submission to evaluate again.", min=0)
    ] = 0,
    base: Base = Path(),
    trust: Trust = None,
    seed: Seed = None,
) -> None:
    """Write a static site that compares submissions where they are comparable. It never gives an overall score.

    Nothing in a submission is run. With --verify jobs are evaluated again with data and models that are here; a
    submission that names functions, or things of other packages, needs --trust, because these are then run.

    Exit codes: 0 the site is written, 1 it is written, and some file is no submission or some submission differs.
    """
    found = build_site(submissions, out, title, verify, base, trust or (), seed, typer.echo)
    differs = sum(state.state == "differs" for state in found.states.values())
    typer.echo(
        f"submissions: {len(found.submissions)}, boards: {found.boards}, {found.folder / 'index.html'}"
    )
    if found.problems or differs:
        typer.echo(
            f"not on a board: {len(found.problems)}, with other numbers than reported: {differs}",
            err=True,
        )
        raise typer.Exit(1)


@app.command(epilog="Example: standfast-board verify study.json.gz --jobs 10 --base studies")
def verify(
    submission: Annotated[Path, typer.Argument(help="A file of `standfast-board submit`.")],
    jobs: Annotated[int, typer.Option(help="How many, drawn at random.", min=1)] = 5,
    base: Base = Path(),
    trust: Trust = None,
    seed: Seed = None,
) -> None:
    """Evaluate some jobs of a submission again with data and models that are here, and compare every number.

    Exit codes: 0 all that were drawn agree, 1 some differ, or nothing could be compared.
    """
    found = verify_submission(
        read_submission(submission), jobs, base, trust or (), seed, typer.echo
    )
    typer.echo(f"{found.text} (seed {found.seed})")
    if found.state != "verified":
        raise typer.Exit(1)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {' '.join(str(message).split())}", err=True)


def main() -> None:
    """Entry point. Errors are printed in one line, with exit code 2; warnings in one line, too."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="standfast-board")
    except (StandfastError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
