"""The command of every paper, such as `python -m papers.safari table3 --scale small`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from papers.base import SCALES, Scale, reproduce, reproductions, write_studies
from papers.files import PREFIXES
from papers.printing import print_table
from standfast.cli.dry_runs import dry_run
from standfast.errors import StandfastError
from standfast.study.file.spec import study_from


def load_tables(*papers: str) -> None:
    """Register the tables of these papers."""
    for paper in papers:
        import_module(f"papers.{paper}.tables")


def main(paper: str) -> None:
    """Run the command of a paper with the arguments of the command line, and exit."""
    load_tables(paper)
    prefix = f"{PREFIXES[paper]}-"
    names = {
        name.removeprefix(prefix): name for name in reproductions.names() if name.startswith(prefix)
    }
    parser = argparse.ArgumentParser(
        f"python -m papers.{paper}",
        description="Run a published table or figure as a study, and print our numbers beside the paper's.",
        epilog="tables:\n"
        + "\n".join(f"  {table:12} {reproductions[name].title}" for table, name in names.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", choices=names, metavar="NAME", help="which table or figure; see below"
    )
    parser.add_argument(
        "--scale", choices=SCALES, default="small", help="small is for a laptop, full for a GPU"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/papers"), help="folder for the results"
    )
    parser.add_argument("--workers", type=number_or_auto, help="how many processes, or auto")
    parser.add_argument(
        "--study", type=Path, help="write study files for `python -m standfast run` here"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the jobs, their cost, and what is missing"
    )
    asked = parser.parse_args()
    try:
        sys.exit(
            _run(names[asked.name], asked, f"{parser.prog} {asked.name} --scale {asked.scale}")
        )
    except StandfastError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command continues")


def number_or_auto(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _run(name: str, asked: argparse.Namespace, command: str) -> int:
    if asked.study is not None:
        print(*write_studies(name, asked.scale, asked.study), sep="\n")
        return 0
    print(reproductions[name].title)
    if asked.dry_run:
        return 1 if dry_run_reproduction(name, asked.scale, asked.out) else 0
    show = partial(print_table, scale=asked.scale)
    tables = reproduce(
        name, asked.scale, asked.out, workers=asked.workers, show=show, command=command
    )
    print(f"results: {asked.out}")
    return 1 if any(table.failures for table in tables) else 0


def dry_run_reproduction(name: str, scale: Scale, out: Path) -> list[str]:
    """Print what a run of each study would do, and return the names of those that cannot run here.

    For these it prints what is missing. Measurements have no study, and are not tried.
    """
    missing = []
    for part in reproductions[name].parts:
        if part.study is None:
            print(f"{part.name}: a measurement, which a dry run leaves out")
            continue
        try:
            dry_run(study_from(part.study(scale), out), out / f"{part.name}-{scale}")
        except StandfastError as error:
            missing.append(part.name)
            made = "a run makes these files first: " if part.make_files is not None else ""
            print(f"{part.name}: cannot run here yet: {made}{error}")
    return missing
