"""The command line, thin: it parses, calls the library, and says where the results are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.errors import HoldfastError, UnknownNameError

app = typer.Typer(
    help="How far can the explanations of a trained classifier be trusted to hold fast?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Out = Annotated[Path, typer.Option(help="Folder for the results and the report.")]
Seed = Annotated[int, typer.Option(help="Of every random stream.")]
Samples = Annotated[int, typer.Option(help="Digits to evaluate, 1 to 300.", min=1, max=300)]


@app.command()
def demo(out: Out = Path("demo"), seed: Seed = 0, samples: Samples = 6) -> None:
    """Evaluate six explainers of the bundled digit classifier, a few minutes, and write a report.

    Started again with the same options after an interruption, it goes on where it was.
    """
    from holdfast.demo import run_demo

    try:
        report, failures = run_demo(out, seed, samples)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"report: {report}")
    if failures:
        typer.echo(f"{failures} units failed; the report lists them, and running again tries them again", err=True)
        raise typer.Exit(1)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="A folder of stored results.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; RESULTS/report/index.html by default.")] = None,
) -> None:
    """Build the report of stored results anew."""
    from holdfast.report import Report

    typer.echo(f"report: {Report(results).to_html(out or results / 'report' / 'index.html')}")


@app.command("list")
def list_names(
    kind: Annotated[
        str, typer.Argument(help="explainers, metrics, similarities, neighbourhoods, searches, datasets or models")
    ],
) -> None:
    """List what can be named."""
    import holdfast as hf
    from holdfast.algorithms.search import searches
    from holdfast.neighbourhood import neighbourhoods

    kinds = {
        "explainers": hf.explainers.names,
        "metrics": hf.metrics.names,
        "similarities": hf.similarity.names,
        "neighbourhoods": neighbourhoods.names,
        "searches": searches.names,
        "datasets": hf.data.names,
        "models": hf.zoo.names,
    }
    if kind not in kinds:
        raise UnknownNameError("kind", kind, kinds)
    for name in kinds[kind]():
        typer.echo(name)


def main() -> None:
    """Entry point: errors that are ours end with one line and exit code 2."""
    try:
        app(standalone_mode=True)
    except HoldfastError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
