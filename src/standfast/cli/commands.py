"""The command line: it reads the arguments, calls the library, and prints where the results are."""

from __future__ import annotations

import contextlib
import enum
import io
import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from standfast.cli.kinds import KINDS, describe_names
from standfast.display import show_activity
from standfast.errors import ArgumentError, StandfastError, find_version, make_printable
from standfast.errors import check as check_argument

if TYPE_CHECKING:
    import polars as pl

    from standfast.report import Results


def _echo(text: object = "", err: bool = False, nl: bool = True) -> None:
    """Print a text, in which what could steer a terminal, such as a file's name may have, is shown and not sent."""
    typer.echo(make_printable(str(text)), err=err, nl=nl)


_FROM_THE_BEGINNING = "the same command starts again from the beginning"
_FROM_THERE = "what is done is stored, and the same command continues from there"


@contextlib.contextmanager
def _interruptible(how_to_go_on: str) -> Iterator[None]:
    """After Ctrl-C, print how to go on, and end with exit code 130. Also a decorator of commands."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not error.args:  # else it was said already (`evaluate`)
            # a blank line first, as the terminal shows ^C on the current one
            _echo(f"\ninterrupted; {how_to_go_on}", err=True)
        raise typer.Exit(130) from None


class _Commands(typer.core.TyperGroup):
    """The commands. Ctrl-C ends in one sentence, also before one of them has begun."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments."""
        # also while the arguments are read, which imports the registries
        with _interruptible(_FROM_THE_BEGINNING):
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _interruptible(_FROM_THE_BEGINNING):
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

        _echo(
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
Samples = Annotated[int, typer.Option(help="Digits to evaluate, 1 to 300.", min=1, max=300)]


@app.command(epilog="Example: standfast demo --out demo")
@_interruptible(_FROM_THERE)
def demo(
    out: Out = Path("demo"), seed: Seed = 0, samples: Samples = 24, minutes: DemoMinutes = None
) -> None:
    """Evaluate six explainers of the bundled digit classifier, and write a report.

    This takes one to two minutes on two idle cores, and several times as long on busy ones.

    After an interruption, the same command continues.
    """
    with show_activity("loading the libraries"):
        from standfast.cli.demo import run_demo, write_session
    report, results = run_demo(out, seed, samples, minutes)
    text = str(results)
    _echo(f"\n{text}\n")
    if results.next_steps():
        _echo(f"To run these lines:\n\n{write_session()}\n")
    _echo(f"report: {report}")
    if failures := len(results.failures):
        _echo(
            f"{failures} jobs failed; the report lists them, and the same command tries them again",
            err=True,
        )
        # a script has to notice that numbers are missing
        raise typer.Exit(1)


@app.command(epilog="Example: standfast verify results/study")
def verify(
    results: Annotated[
        str,
        typer.Argument(
            help="A folder, or an fsspec address, of stored results; or an evidence pack."
        ),
    ],
) -> None:
    """Read every file of stored results or of an evidence pack, and compare each with its SHA-256.

    What a pack says of requirements is decided again from the numbers in it, and its tables are made again. What only a
    signature or a noted digest protects: docs/how-to/evidence.md.

    Exit codes: 0 all files are as they were written, 1 something is damaged, missing or added.
    """
    # each command imports what it needs, so that `--help` takes no seconds
    from standfast.evidence.pack import is_pack
    from standfast.results import verify_results
    from standfast.results.formatting import format_count
    from standfast.study.store import MANIFEST, Store, advise_without_manifest

    if is_pack(results):
        _verify_pack(results)
        return
    verification = verify_results(results)
    for name, problem in verification.damaged.items():
        _echo(f"damaged: {name}: {problem}", err=True)
    _echo(f"{format_count(verification.files, 'file')}: {len(verification.damaged)} damaged")
    if verification.others:
        _echo(f"not checked, since they are not of results: {', '.join(verification.others)}")
    _echo(f"planned jobs: {verification.missing} not run yet, {verification.failed} failed")
    if not verification.fine:
        advice = "delete what is damaged, and run the study again: it keeps finished jobs, and does the others"
        if MANIFEST in verification.damaged:
            advice = f"{MANIFEST}: {advise_without_manifest(Store(results))}"
        _echo(advice, err=True)
        raise typer.Exit(1)


def _verify_pack(path: str) -> None:
    """`standfast verify` for an evidence pack."""
    from standfast.evidence import verify_pack

    verification = verify_pack(path)
    for name, problem in verification.problems.items():
        _echo(f"{name}: {problem}", err=True)
    _echo(f"{verification.files} files: {len(verification.problems)} problems")
    for name in verification.unconfirmed:
        _echo(f"not decided again, since its baseline is not here: {name}")
    for label in verification.uncheckable:
        _echo(
            f"summary.csv: rows not made again, since their arrays are not in the pack (--arrays): {label}"
        )
    _echo(f"digest of the pack: {verification.digest}")
    if not verification.fine:
        raise typer.Exit(1)


@app.command(epilog="Example: standfast evidence results/study --out pack")
def evidence(
    results: Stored,
    out: Annotated[Path, typer.Option(help="A new folder for the pack.")],
    arrays: Annotated[
        bool,
        typer.Option("--arrays", help="Also the stored inputs, maps and curves of each sample."),
    ] = False,
) -> None:
    """Make an evidence pack: report, numbers, configuration, software, digests, model card and crosswalk.

    The report in it shows pictures of some inputs, also without --arrays.
    """
    from standfast.evidence import make_pack
    from standfast.report import load_results

    opened = load_results(results)
    written = make_pack(opened, out, arrays)
    _echo(f"evidence pack: {out} ({written.files} files)")
    _echo(f"digest of the pack: {written.digest}")
    _warn_of_gaps(opened)


@app.command(epilog="Example: standfast replay pack --jobs 10")
def replay(
    pack: Annotated[Path, typer.Argument(help="A folder with an evidence pack.")],
    base: Annotated[
        Path, typer.Option(help="The folder that the study's paths and functions are relative to.")
    ] = Path(),
    jobs: Annotated[int, typer.Option(help="How many, drawn at random.", min=1)] = 5,
    seed: Annotated[
        int | None, typer.Option(help="Of the choice of jobs; a new one if not given.")
    ] = None,
) -> None:
    """Evaluate some jobs of an evidence pack again, and compare the numbers.

    This runs the functions that the pack names: do it only with a pack and with code that you trust.

    Exit codes: 0 all agree, 1 some differ, or the model, data or code are others.
    """
    from standfast.evidence import replay as run_replay

    outcome = run_replay(pack, base, jobs, seed, tell=_echo)
    for change in outcome.changed:
        # the reason stands before the numbers that it makes doubtful
        _echo(f"not the same here: {change}", err=True)
    counts = {
        word: list(outcome.jobs.values()).count(word)
        for word in dict.fromkeys(outcome.jobs.values())
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing to compare"
    _echo(
        f"{len(outcome.jobs)} of {outcome.planned} jobs evaluated again (seed {outcome.seed}): {summary}"
    )
    if not outcome.fine:
        raise typer.Exit(1)


@app.command(
    epilog="Example: standfast run study.yaml --dry-run, and then: standfast run study.yaml --workers auto"
)
@_interruptible(_FROM_THERE)
def run(
    study: Annotated[Path, typer.Argument(help="A study file.", show_default=False)],
    out: Address = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be done, and about how long it takes."),
    ] = False,
    executor: Annotated[
        str | None, typer.Option(help="local, ray or slurm, instead of what the file says.")
    ] = None,
    workers: Workers = None,
    minutes: Minutes = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="For the metrics, instead of what the file says; with --out, results of different presets stay apart."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A value instead of what the file says, as samples=80; KEY+=VALUE adds one, as explainers+=smoothgrad."
            " May be given several times.",
        ),
    ] = None,
    html: Annotated[
        bool, typer.Option("--report/--no-report", help="Write the report at the end.")
    ] = True,
) -> None:
    """Run a study, and print its table and verdict. Started again, it continues, and tries again what failed.

    Exit codes: 0 all jobs are done, 1 some failed, 2 the study file is wrong or a file cannot be written, 130
    interrupted.
    """
    with show_activity("loading the libraries"):
        from standfast.evaluation import default_folder, executor_of, run_study
        from standfast.report.sentences import describe_failures
        from standfast.study.executors import InProcess, Processes
        from standfast.study.file.spec import load_study
        from standfast.study.lease import has_run
        from standfast.study.store import Store

    named_preset = None
    if preset is not None:
        named_preset = preset.value
    loaded = load_study(study, named_preset, changes or ())
    target = out or str(default_folder(loaded))
    chosen = executor_of(loaded, executor, _count(workers))
    # a job may have killed that run, and would kill this one, too
    if isinstance(chosen, InProcess) and not dry_run and has_run(Store(target).folder):
        _echo("the last run did not end, so this one does its jobs in a process of its own")
        chosen = Processes(1)
    if dry_run:
        from standfast.cli.dry_runs import dry_run as describe

        with _interruptible(_FROM_THE_BEGINNING):
            limit = loaded.minutes if minutes is None else minutes
            describe(loaded, target, limit)
        return
    command = _spell_run(study, preset, out, changes or (), minutes)
    results = run_study(loaded, out, executor=chosen, minutes=minutes, command=command)
    run = results.run
    # `run_study` has just run it
    assert run is not None
    _echo(
        f"{run.planned} jobs: {run.earlier} were done before, {run.done} now, {len(run.failed)} failed"
    )
    _tell_shared(results.manifest)
    _echo(f"\n{results}\n")
    _echo(f"results: {target}")
    if html:
        _echo(f"report: {results.to_html(_place_report(target, study))}")
    if run.failed:
        _tell_failures(describe_failures(results.summary), len(run.failed))
        raise typer.Exit(1)


def _spell_run(
    study: Path,
    preset: Preset | None,
    out: str | None,
    changes: Sequence[str],
    minutes: float | None,
) -> str:
    """The line that runs the same again, for the results."""
    words = ["standfast", "run", str(study)]
    if preset:
        words += ["--preset", preset.value]
    if out:
        words += ["--out", out]
    for change in changes:
        words += ["--set", change]
    if minutes is not None:
        words += ["--minutes", f"{minutes:g}"]
    return shlex.join(words)


def _place_report(target: str, study: Path) -> Path:
    """Where a report is written: beside the results, or in the current folder where these are elsewhere."""
    local = target.removeprefix("file://")
    is_remote = "://" in local
    if is_remote:
        # a browser opens local files only
        return Path(f"{study.stem}-report.html")
    return Path(local) / "report" / "index.html"


def _tell_shared(manifest: Mapping[str, Any]) -> None:
    """Say which explainers of the user's could have harmed each other."""
    isolated = manifest["environment"].get("isolated", {})
    shared = [name for name, has_own_workers in isolated.items() if not has_own_workers]
    if len(shared) > 1:
        _echo(
            f"{', '.join(shared)} shared a process; --workers 2 gives each of them processes of its own"
        )


@app.command(
    epilog="Example: standfast check policy.yaml --write junit=check.xml --write markdown=check.md",
)
@_interruptible(_FROM_THERE)
def check(
    policy: Annotated[
        Path, typer.Argument(help="A study file with requirements.", show_default=False)
    ],
    out: Address = None,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Evaluate twice as many samples until all requirements are decided.",
        ),
    ] = False,
    most_samples: Annotated[
        int | None, typer.Option(help="With --until-decided, of each data set.", min=1)
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option(
            help="FORMAT=FILE, with the formats text, json, junit and markdown; may be repeated."
        ),
    ] = None,
    workers: Workers = None,
    minutes: Minutes = None,
) -> None:
    """Run a study and decide its requirements: pass, fail or undecided, each with its interval.

    Exit codes: 0 all requirements pass, 1 some fail, 2 the file is wrong or a job failed, 3 none fails and some are
    undecided, 130 interrupted.
    """
    from standfast.checks import check as run_check
    from standfast.checks.formats import FORMATS
    from standfast.evaluation import default_folder, executor_of
    from standfast.study.file.spec import load_study

    # before the run, so that a wrong format is not found after hours
    targets = [_split_target(text, list(FORMATS)) for text in write or ()]
    loaded = load_study(policy)
    decisions = run_check(
        loaded,
        out,
        until_decided=until_decided,
        most_samples=most_samples,
        executor=executor_of(loaded, workers=_count(workers)),
        minutes=minutes,
        tell=lambda look: (
            _echo(f"{look.samples} samples: {look.outcome}") if until_decided else None
        ),
    )
    _echo(str(decisions))
    results = out or str(default_folder(loaded))
    _echo(f"results: {results}")
    if decisions.failed:
        # an error of the engine is no failed requirement, so it is told apart
        _tell_failures(
            decisions.errors,
            decisions.failed,
            f"the report, which `standfast report {results}` writes",
        )
    for form, path in targets:
        # a folder of the CI may not be there yet
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FORMATS[form](decisions), encoding="utf-8")
    if decisions.exit_code:
        raise typer.Exit(decisions.exit_code)


def _split_target(text: str, formats: list[str]) -> tuple[str, Path]:
    """`junit=check.xml` as a format and a file."""
    form, equals, path = text.partition("=")
    if not (equals and path and form in formats):
        raise ArgumentError("--write", f"FORMAT=FILE, with a format of {', '.join(formats)}", text)
    return form, Path(path)


@app.command(epilog="Example: standfast baseline results/study --out baseline/2026-10")
def baseline(
    results: Stored,
    out: Annotated[Path, typer.Option(help="A new folder.")],
) -> None:
    """Freeze results as a reference, for requirements such as {no_worse_than: baseline/2026-10, by: 0.05}."""
    from standfast.checks import freeze_baseline
    from standfast.report import load_results

    opened = load_results(results)
    _echo(f"baseline: {freeze_baseline(opened, out)}")
    _warn_of_gaps(opened)


def _warn_of_gaps(results: Results) -> None:
    """Say how many jobs failed or were not run, so that their numbers are not there."""
    counts = {"failed": len(results.failures), "were not run": results.missing}
    words = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
    if words:
        _echo(f"warning: of {results.planned} jobs {words}, so their numbers are missing", err=True)


def _count(workers: str | None) -> int | str | None:
    # negative numbers as well, for the error that is about numbers
    if workers is not None and re.fullmatch(r"-?[0-9]+", workers):
        return int(workers)
    return workers


def _tell_failures(sentences: Sequence[str], count: int, report: str = "the report") -> None:
    """Print why jobs failed, and how to continue."""
    # five sentences are enough to see what is wrong
    for line in (f"{count} jobs failed:", *(f"  {sentence}" for sentence in sentences[:5])):
        _echo(line, err=True)
    _echo(f"tracebacks are in {report}; the same command tries only these jobs again", err=True)


@app.command(
    epilog="Example: standfast train --model lenet5 --data mnist --scheme pgd:radius=0.3 --options epochs=5"
)
@_interruptible(_FROM_THERE)
def train(
    model: Annotated[
        str,
        typer.Option(
            help="Architecture, with options such as its width, as series_cnn:width=32,stride=2;"
            " `standfast list architectures` shows them."
        ),
    ] = "lenet5",
    data: Annotated[
        str, typer.Option(help="Data set; NAME:train is trained on, NAME:test measured on.")
    ] = "mnist",
    scheme: Annotated[
        str,
        typer.Option(
            help="With options, as pgd:radius=0.3,steps=7; `standfast list schemes` shows them."
        ),
    ] = "natural",
    options: Annotated[
        str,
        typer.Option(
            help="The defaults are epochs=10,batch_size=128,learning_rate=0.002,weight_decay=0.01,seed=0,augment=none,"
            "optimizer=adamw,precision=auto,device=auto."
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder for the weights and the card.")] = Path(
        "models"
    ),
    download: Annotated[bool, typer.Option("--download", help="Fetch missing data.")] = False,
) -> None:
    """Train a classifier by a scheme. After an interruption, the same command continues after the last complete epoch.

    Exit codes: 0 done, 2 an option or the data is wrong, 130 interrupted.
    """
    from standfast.cli.train import TrainingPlan, fit
    from standfast.registry import parse_options
    from standfast.study.file.options import configure

    # options of a text become numbers here, and are checked like those of a study file
    plan = configure(
        TrainingPlan,
        "train",
        {"model": model, "data": data, "scheme": scheme, **parse_options(options, "options")},
    )
    trained = fit(plan, out, download=download, show=True)
    if trained.was_there:
        _echo("this model exists already, with the same options")
    _echo(
        f"accuracy: train {trained.card['train_accuracy']:.2%}, test {trained.card['test_accuracy']:.2%}"
    )
    _echo(f"weights: {trained.weights}\nin a study beside it: {trained.study_entry()}")


@app.command(epilog="Example: standfast schema --out study.schema.json")
def schema(
    out: Annotated[
        Path | None, typer.Option(help="The file to write; standard output by default.")
    ] = None,
) -> None:
    """Print the JSON schema of study files, with which editors complete and check them.

    In VS Code, put `# yaml-language-server: $schema=study.schema.json` on the file's first line.
    """
    from standfast.files import write_atomically
    from standfast.study.file.schema import json_schema

    text = json.dumps(json_schema(), indent=1) + "\n"
    if out is None:
        # nothing is added, so that the output can be redirected into a file
        _echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        _echo(f"schema: {out}")


@app.command(epilog="Example: standfast show results/study --verbose")
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

    _echo(load_results(results).to_text(verbose))


@app.command(epilog="Example: standfast report results/study --out report.html --figures figures")
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
    _echo(f"report: {opened.to_html(out)}")
    if figures is not None:
        _echo(f"figures: {len(write_figures(opened, figures))} files in {figures}")


@app.command(epilog="Example: standfast export results/study --out table.tex")
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
        write = _echo if sys.stdout.isatty() else typer.echo
        write(text, nl=False)
    else:
        write_atomically(out, content.getvalue())
        _echo(f"{format.value}: {out}")


def _write_text(results: Results, frame: pl.DataFrame, format: Format) -> str:
    """Results in a format that is a text."""
    from standfast.report import exports

    if format is Format.latex:
        return exports.to_latex(results)
    if format is Format.json:
        return exports.to_json(results)
    return exports.to_csv(frame)


@app.command(epilog="Example: standfast cache clear")
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
        _echo("nothing is kept, because STANDFAST_CACHE is off")
        return
    entries = list_entries(folder)
    size = format_size(sum(entry.size for entry in entries))
    if action is CacheAction.clear:
        for entry in entries:
            delete_entry(entry.path)
        _echo(f"deleted: {len(entries)} evaluations, {size}")
    else:
        _echo(f"{folder}: {len(entries)} evaluations, {size}")


@app.command(
    "list", epilog="Example: standfast list metrics. In a script: standfast list metrics --names"
)
def list_names(
    kind: Annotated[KindName | None, typer.Argument(help="All kinds if left out.")] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Print the names alone, one on each line.")
    ] = False,
) -> None:
    """List what can be named: a line for each name, and what it needs.

    The output is the same in a terminal, in a file and in a pipe: one line for each name.
    """
    if kind is None:
        width = max(map(len, KINDS))
        for word, listed in KINDS.items():
            if names:
                _echo(word)
            else:
                _echo(f"{word:{width}}  {listed.about}")
        return
    listed_kind = KINDS[kind]
    if names:
        for name in listed_kind.load().names():
            _echo(name)
        return
    lines = describe_names(listed_kind)
    width = max(len(line.name) for line in lines)
    for line in lines:
        _echo(line.format(width))
    # on standard error, so that the output stays one line for each name
    if listed_kind.elsewhere:
        _echo(f"also: {listed_kind.elsewhere}", err=True)
    _echo(f"more about one of them: standfast explain {lines[0].name}", err=True)


@app.command(epilog="Example: standfast explain worst_case")
def explain(
    name: Annotated[str, typer.Argument(help="Of anything that `standfast list` shows.")],
) -> None:
    """Explain a name: what it is, its options, an example and the source."""
    import shutil

    from standfast.cli.explanations import explain_name

    _echo(explain_name(name, width=min(100, shutil.get_terminal_size((100, 24)).columns)))


@app.command(
    epilog="Example: standfast reasons --model pipeline.joblib --data customers.csv --row 17 --trust --out card.html"
)
@_interruptible(_FROM_THERE)
def reasons(
    model: Annotated[
        str, typer.Option(help="As of `standfast init`: a name, a file, or module:function.")
    ],
    data: Annotated[
        str,
        typer.Option(help="As of `standfast init`: a name, a file, a folder, or module:function."),
    ],
    row: Annotated[
        list[int] | None,
        typer.Option(
            help="The number of a row, from 0; may be given several times. By default all."
        ),
    ] = None,
    explainer: Annotated[
        str | None, typer.Option(help="A name; by default one that suits the model.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="How many reasons; by default 4 of a row or a text, a tenth of an image or a series.",
            min=1,
        ),
    ] = None,
    demand: Annotated[
        float,
        typer.Option(
            help="The probability with which a reason has to be named again.", min=0.0, max=1.0
        ),
    ] = 0.9,
    decision: Annotated[
        str | None,
        typer.Option(
            help="What is decided by a probability, such as 'P(default) > 0.35', with names of its sides:"
            " 'declined: P(default) > 0.35', or 'declined, else approved: P(default) > 0.35'."
        ),
    ] = None,
    measurement: Annotated[
        bool | None,
        typer.Option(
            "--measurement/--no-measurement",
            help="Vary the input within the default neighbourhood. By default not for tables.",
        ),
    ] = None,
    other: Annotated[
        list[str] | None, typer.Option(help="Another explainer that would do as well.")
    ] = None,
    retrained: Annotated[
        list[str] | None,
        typer.Option(
            help="A model that was trained again, as --model; may be given several times."
        ),
    ] = None,
    retrain: Annotated[
        bool,
        typer.Option(
            "--retrain",
            help="Train a pipeline again, on rows of --reference (by default of --data) that are drawn with"
            " replacement; they have the column that it learns.",
        ),
    ] = False,
    models: Annotated[
        int | None,
        typer.Option(
            help="How many models --retrain trains; by default as many as decide on all reasons, 200 at most unless"
            " --demand needs more.",
            min=1,
        ),
    ] = None,
    speaking: Annotated[
        SpeakingSide,
        typer.Option(
            help="for: only what speaks for the decision, such as the reasons for declining; both: what speaks for it"
            " or against it."
        ),
    ] = SpeakingSide.both,
    reference: Annotated[
        str | None, typer.Option(help="Of a table: a file of training rows.")
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(help="Of a column: its unit, as income=EUR; may be given several times."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Of a module:function.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Of a table: the column that has the classes.")
    ] = None,
    bounds: Annotated[str | None, typer.Option(help="Valid values of an input, as 0,1.")] = None,
    task: Annotated[str | None, typer.Option(help="What the model answers, if no classes.")] = None,
    draws: Annotated[int, typer.Option(help="At most so many variations.", min=1)] = 400,
    counter_examples: Annotated[
        int,
        typer.Option(
            help="With --measurement: search, for each reason, a small change after which it is not named, in so many"
            " changes, such as 500.",
            min=0,
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run code in a .pt2 or pickled file, or of a module elsewhere."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A file for the card: .html, or .json. Of several rows each gets its number in the name."
        ),
    ] = None,
) -> None:
    """Say which reasons of a decision can be stated: those that are named again when nothing that matters differs.

    It explains the rows again and again, with other seeds and backgrounds and, with --measurement, slightly changed.
    """
    from standfast.cli.new_study import read_bounds
    from standfast.cli.reasons import name_rows, read_rows, read_units
    from standfast.reason_cards import reasons as find_reasons

    # before the model is loaded, so that a wrong text is found at once
    within = None
    if bounds is not None:
        within = list(read_bounds(bounds))
    units = read_units(unit or [])
    asked = read_rows(
        model,
        data,
        row or [],
        explainer=explainer,
        trust=trust,
        retrained=retrained or [],
        retrain=retrain,
        weights=weights,
        label=label,
        bounds=within,
        task=task,
        reference=reference,
    )
    found = find_reasons(
        asked.model,
        asked.explainer,
        asked.inputs,
        reference=asked.reference,
        top=top,
        demand=demand,
        measurement=measurement,
        retrained=asked.retrained,
        retrain=retrain or None,
        models=models,
        labels=asked.labels,
        others=other or [],
        decision=decision,
        speaking="for" if speaking == SpeakingSide["for"] else "both",
        draws=draws,
        counter_examples=counter_examples,
        units=units,
        seed=seed,
    )
    # the user knows rows by their own numbers and names
    found = name_rows(found, row or [], data, asked.names)
    _echo(str(found))
    if out is not None:
        for path in found.write(out):
            _echo(f"card: {path}")


@app.command(epilog="Example: standfast advice")
def advice() -> None:
    """Say what to do if no explainer holds, and no next step helps."""
    page = Path(__file__).parent / "templates" / "advice.txt"
    _echo(page.read_text(encoding="utf-8").strip())


@app.command(
    epilog="Example: standfast choose --model lenet5-mnist --data digits --minutes 5. Of a study: standfast choose"
    " study.yaml"
)
@_interruptible(_FROM_THERE)
def choose(
    study: Annotated[
        Path | None,
        typer.Argument(
            help="A study file, with one model and one data set; or --model and --data."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="As of `standfast init`: a name, a file, or module:function.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="As of `standfast init`: a name, a file, a folder, or module:function."),
    ] = None,
    explainer: Annotated[
        list[str] | None,
        typer.Option(
            help="One that races, with options as in smoothgrad:samples=16,noise=0.2; given twice or more. By default"
            " those that suit the model and the data, with several settings."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="As worst_case:budget=200; may be given several times. By default one of stability and one of"
            " faithfulness."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="The label or the name of the metric that ranks.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="The largest share of the cost of evaluating everything; 0.25 by default."
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(help="The largest probability that the best one leaves; 0.05 by default."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="How long all of it may take; what is not given is chosen.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Take so many of the data, from its start.", min=1)
    ] = None,
    decision: Annotated[
        str | None,
        typer.Option(help="What is decided by a probability, such as 'P(default) > 0.35'."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Of a table: a file of training rows.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Of a module:function.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Of a table: the column that has the classes.")
    ] = None,
    bounds: Annotated[str | None, typer.Option(help="Valid values of an input, as 0,1.")] = None,
    task: Annotated[str | None, typer.Option(help="What the model answers, if no classes.")] = None,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    workers: Workers = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run code in a .pt2 or pickled file, or of a module elsewhere."
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder for the results, as results/choose; by default they are in the cache."
        ),
    ] = None,
) -> None:
    """Choose an explainer: several race, and the one that is left is confirmed on samples that the race did not use.

    Losers leave early, so this costs about a quarter of evaluating all of them. "None" is an answer, and it says why.
    Started again, it continues.

    Exit codes: 0 one is chosen, 1 none is, 2 an argument or the study file is wrong, 130 interrupted.
    """
    with show_activity("loading the libraries"):
        from standfast.cli.choose import choose_from_files, choose_in_study, write_command

    options = {
        "by": by,
        "budget": budget,
        "level": level,
        "minutes": minutes,
        "workers": _count(workers),
        "out": out,
    }
    if study is not None:
        # a study has all of these already
        of_files = {"--model": model, "--data": data, "--explainer": explainer, "--metric": metric}
        given_options = [option for option, value in of_files.items() if value is not None]
        check_argument(
            not given_options,
            "study",
            "a study file alone, or --model and --data",
            " and ".join(given_options),
        )
        choice = choose_in_study(study, options)
    else:
        check_argument(
            model is not None and data is not None,
            "study",
            "a study file, or --model and --data",
            "neither",
        )
        # mypy does not see the check above
        assert model is not None
        assert data is not None
        sources = {
            "weights": weights,
            "label": label,
            "task": task,
            "reference": reference,
            "trust": trust,
        }
        question = {"explainers": explainer, "metrics": metric, "decision": decision, "seed": seed}
        choice = choose_from_files(
            model, data, samples, {**sources, "bounds": bounds}, {**question, **options}
        )
    named_options = {
        "model": model,
        "data": data,
        "samples": samples,
        "explainer": explainer,
        "metric": metric,
        "decision": decision,
        "reference": reference,
        "weights": weights,
        "label": label,
        "bounds": bounds,
        "task": task,
        # 0 is the default, which nobody needs to repeat
        "seed": seed or None,
        "trust": trust,
        "by": by,
        "budget": budget,
        "level": level,
        "minutes": minutes,
        "out": out,
    }
    _echo(str(replace(choice, command=write_command(study, named_options))))
    if out is not None:
        local = out.removeprefix("file://")
        if "://" not in local:
            where = Path(local) / "report" / "index.html"
        else:
            where = Path("race-report.html")
        _echo(f"report: {choice.to_html(where)}")
    # "none" is an answer, but no explainer to go on with
    if choice.chosen is None:
        raise typer.Exit(1)


@app.command(
    epilog="Example: standfast init. Without questions: standfast init --model mymodel:build --data mydata.npz"
)
def init(
    study: Annotated[Path, typer.Argument(help="The new study file.")] = Path("study.yaml"),
    model: Annotated[
        str,
        typer.Option(
            help="A name (`standfast list models`), a TorchScript (.pt) or torch.export (.pt2) file, a pickled pipeline"
            " (.joblib, .pkl), a folder of transformers with a model of texts and its tokenizer, or module:function"
            " that returns the model. The Python file lies beside the study file.",
            prompt="Model (a name, a file, or module:function)",
        ),
    ] = "lenet5-mnist",
    data: Annotated[
        str,
        typer.Option(
            help="A name (`standfast list datasets`), a file of arrays or a table, a folder of images, or"
            " module:function that returns inputs, or (inputs, labels).",
            prompt="Data (a name, a file, a folder, or module:function)",
        ),
    ] = "digits",
    weights: Annotated[
        str | None,
        typer.Option(help="Of a module:function: a .safetensors file, or a torch file of tensors."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="The column of a .csv table that has the classes; by default one called label, labels, y, class or"
            " target."
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            help="Valid values of an input, as 0,1; those of the data set if it has some."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="What the model answers, if no classes: binary, multi_label, regression:tolerance=2.5, ...; or your"
            " decision, as 'P(default) > 0.35'."
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run code in a .pt2 or pickled file, or of a module elsewhere."
        ),
    ] = False,
) -> None:
    """Write a commented study file for a model and data, and check that they fit.

    It asks for a model and data that are not given. The model and all explainers are run once, on one
    sample; explainers that fail are left out. Change in the file what you like.
    """
    from standfast.cli.new_study import (
        read_bounds,
        read_source,
        read_task,
        try_setting,
        write_study,
    )
    from standfast.cli.tables import choose_form
    from standfast.files import write_atomically

    # a study file may have been changed by hand
    if study.exists():
        raise ArgumentError("study", "the name of a new file", str(study))
    folder = study.parent.resolve()
    # paths in a study are relative to it
    file = None
    if weights is not None:
        file = os.path.relpath(weights, folder)
    of_model = read_source(model, "--model", folder, trust, weights=file, task=read_task(task))
    within = None
    if bounds is not None:
        within = list(read_bounds(bounds))
    of_data = read_source(data, "--data", folder, trust, label=label, bounds=within)
    setting = try_setting(of_model, choose_form(of_model, of_data, folder), folder)
    for line in setting.describe():
        _echo(line, err=line.startswith("warning: "))
    text, left_out = write_study(setting, study)
    # on standard error, as it is no part of the answer
    for name, reason in left_out.items():
        _echo(f"left out, because it fails on this model: {name}: {reason}", err=True)
    # it may have been written since the check above
    write_atomically(study, text.encode(), new=True)
    _echo(f"study: {study}\nnext: standfast run {study} --dry-run")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line, without the place in the code."""
    _echo(f"warning: {' '.join(str(message).split())}", err=True)


def main() -> None:
    """Entry point. Errors of the library are printed in one line, with exit code 2; warnings in one line, too."""
    warnings.showwarning = _show_warning
    try:
        # the name is fixed, because a script of `python -m standfast` would otherwise complete the command python
        # exceptions come here, instead of a traceback by the package
        app(standalone_mode=True, prog_name="standfast")
    except StandfastError as error:
        _echo(f"error: {error}", err=True)
        sys.exit(2)
    except (
        MemoryError,
        OSError,
    ) as error:
        # such as a folder that cannot be written, a full disk, or no answer
        message = str(error) or "there is not enough memory"
        _echo(f"error: {message}", err=True)
        sys.exit(2)
