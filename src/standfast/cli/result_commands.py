"""Commands that show stored results."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from standfast.cli.application import CacheAction, Format, Stored, echo
from standfast.errors import check as check_argument

if TYPE_CHECKING:
    import polars as pl

    from standfast.report import Results

commands = typer.Typer()


@commands.command(epilog="Example: standfast show results/study --verbose")
def show(
    results: Stored,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Also intervals, counts, and notes on tests, controls and checks."
        ),
    ] = False,
) -> None:
    """Print the table of stored results, and what to conclude from it."""
    from standfast.report import load_results

    echo(load_results(results).to_text(verbose))


@commands.command(
    epilog="Example: standfast report results/study --out report.html --figures figures"
)
def report(
    results: Stored,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; RESULTS/report/index.html by default.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure here, as SVG and PDF.")
    ] = None,
) -> None:
    """Build the report of stored results."""
    from standfast.report import load_results, write_figures

    opened = load_results(results)
    # a report beside results at an address could not be opened
    if out is None:
        if "://" in results:
            out = Path("report.html")
        else:
            out = Path(results) / "report" / "index.html"
    echo(f"report: {opened.to_html(out)}")
    if figures is not None:
        echo(f"figures: {len(write_figures(opened, figures))} files in {figures}")


@commands.command(epilog="Example: standfast export results/study --out table.tex")
def export(
    results: Stored,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; standard output by default.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="By default, from the ending of --out, or else csv.")
    ] = None,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary",
            help="Medians with intervals (for LaTeX and JSON always) instead of all samples.",
        ),
    ] = False,
) -> None:
    """Write stored results as CSV, Parquet, a LaTeX table for the package booktabs, or JSON with verdicts."""
    from standfast.files import write_atomically
    from standfast.report import exports, load_results

    endings = {
        ".csv": Format.csv,
        ".tex": Format.latex,
        ".parquet": Format.parquet,
        ".json": Format.json,
    }
    if format is None:
        expected = f"a format, or --out with one of the endings {', '.join(endings)}"
        check_argument(out is None or out.suffix in endings, "--format", expected, out)
        if out is None:
            format = Format.csv
        else:
            format = endings[out.suffix]
    opened = load_results(results)
    frame = exports.summary(opened) if summary else opened.samples
    if format is Format.parquet:
        # a terminal cannot show a binary file
        check_argument(out is not None, "--out", "a file to write Parquet to", "none")
        content = io.BytesIO()
        frame.write_parquet(content)
        text = ""
    else:
        text = _write_text(opened, frame, format)
        content = io.BytesIO(text.encode())
    if out is None:
        # a file gets the text as it is
        # a terminal must not be steered by a name
        write = echo if sys.stdout.isatty() else typer.echo
        write(text, nl=False)
    else:
        write_atomically(out, content.getvalue())
        echo(f"{format.value}: {out}")


def _write_text(results: Results, frame: pl.DataFrame, format: Format) -> str:
    """Results in a format that is a text."""
    from standfast.report import exports

    if format is Format.latex:
        return exports.to_latex(results)
    if format is Format.json:
        return exports.to_json(results)
    return exports.to_csv(frame)


@commands.command(epilog="Example: standfast cache clear")
def cache(
    action: Annotated[
        CacheAction, typer.Argument(help="show, or clear to delete all of them.")
    ] = CacheAction.show,
) -> None:
    """Show where the results of `evaluate` without a folder are kept, and how large they are; or delete them.

    They have inputs, maps and values. Nothing else is deleted: no data sets, and no results in folders of your own.
    """
    from standfast.cli.dry_runs import format_size
    from standfast.study.cache import delete_entry, list_entries, results_folder

    folder = results_folder()
    if folder is None:
        echo("nothing is kept, because STANDFAST_CACHE is off")
        return
    entries = list_entries(folder)
    size = format_size(sum(entry.size for entry in entries))
    if action is CacheAction.clear:
        for entry in entries:
            delete_entry(entry.path)
        echo(f"deleted: {len(entries)} evaluations, {size}")
    else:
        echo(f"{folder}: {len(entries)} evaluations, {size}")
