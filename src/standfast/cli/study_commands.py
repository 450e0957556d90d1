"""Commands that evaluate, and that check what was evaluated: studies, requirements, packs and training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from standfast.cli.application import (
    FROM_THE_BEGINNING,
    FROM_THERE,
    Address,
    DemoMinutes,
    Minutes,
    Out,
    Preset,
    Samples,
    Seed,
    Stored,
    Workers,
    count_workers,
    echo,
    interruptible,
)
from standfast.display import show_activity
from standfast.errors import ArgumentError

if TYPE_CHECKING:
    from standfast.report import Results

commands = typer.Typer()


@commands.command(epilog="Example: standfast demo --out demo")
@interruptible(FROM_THERE)
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
    echo(f"\n{text}\n")
    if results.next_steps():
        echo(f"To run these lines:\n\n{write_session()}\n")
    echo(f"report: {report}")
    if failures := len(results.failures):
        echo(
            f"{failures} jobs failed; the report lists them, and the same command tries them again",
            err=True,
        )
        # a script has to notice that numbers are missing
        raise typer.Exit(1)


@commands.command(epilog="Example: standfast verify results/study")
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
        echo(f"damaged: {name}: {problem}", err=True)
    echo(f"{format_count(verification.files, 'file')}: {len(verification.damaged)} damaged")
    if verification.others:
        echo(f"not checked, since they are not of results: {', '.join(verification.others)}")
    echo(f"planned jobs: {verification.missing} not run yet, {verification.failed} failed")
    if not verification.fine:
        advice = "delete what is damaged, and run the study again: it keeps finished jobs, and does the others"
        if MANIFEST in verification.damaged:
            advice = f"{MANIFEST}: {advise_without_manifest(Store(results))}"
        echo(advice, err=True)
        raise typer.Exit(1)


def _verify_pack(path: str) -> None:
    """`standfast verify` for an evidence pack."""
    from standfast.evidence import verify_pack

    verification = verify_pack(path)
    for name, problem in verification.problems.items():
        echo(f"{name}: {problem}", err=True)
    echo(f"{verification.files} files: {len(verification.problems)} problems")
    for name in verification.unconfirmed:
        echo(f"not decided again, since its baseline is not here: {name}")
    for label in verification.uncheckable:
        echo(
            f"summary.csv: rows not made again, since their arrays are not in the pack (--arrays): {label}"
        )
    echo(f"digest of the pack: {verification.digest}")
    if not verification.fine:
        raise typer.Exit(1)


@commands.command(epilog="Example: standfast evidence results/study --out pack")
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
    echo(f"evidence pack: {out} ({written.files} files)")
    echo(f"digest of the pack: {written.digest}")
    _warn_of_gaps(opened)


@commands.command(epilog="Example: standfast replay pack --jobs 10")
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

    outcome = run_replay(pack, base, jobs, seed, tell=echo)
    for change in outcome.changed:
        # the reason stands before the numbers that it makes doubtful
        echo(f"not the same here: {change}", err=True)
    counts = {
        word: list(outcome.jobs.values()).count(word)
        for word in dict.fromkeys(outcome.jobs.values())
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing to compare"
    echo(
        f"{len(outcome.jobs)} of {outcome.planned} jobs evaluated again (seed {outcome.seed}): {summary}"
    )
    if not outcome.fine:
        raise typer.Exit(1)


@commands.command(
    epilog="Example: standfast run study.yaml --dry-run, and then: standfast run study.yaml --workers auto"
)
@interruptible(FROM_THERE)
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
    chosen = executor_of(loaded, executor, count_workers(workers))
    # a job may have killed that run, and would kill this one, too
    if isinstance(chosen, InProcess) and not dry_run and has_run(Store(target).folder):
        echo("the last run did not end, so this one does its jobs in a process of its own")
        chosen = Processes(1)
    if dry_run:
        from standfast.cli.dry_runs import dry_run as describe

        with interruptible(FROM_THE_BEGINNING):
            limit = loaded.minutes if minutes is None else minutes
            describe(loaded, target, limit)
        return
    command = _spell_run(study, preset, out, changes or (), minutes)
    results = run_study(loaded, out, executor=chosen, minutes=minutes, command=command)
    run = results.run
    # `run_study` has just run it
    assert run is not None
    echo(
        f"{run.planned} jobs: {run.earlier} were done before, {run.done} now, {len(run.failed)} failed"
    )
    _tell_shared(results.manifest)
    echo(f"\n{results}\n")
    echo(f"results: {target}")
    if html:
        echo(f"report: {results.to_html(_place_report(target, study))}")
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
        echo(
            f"{', '.join(shared)} shared a process; --workers 2 gives each of them processes of its own"
        )


@commands.command(
    epilog="Example: standfast check policy.yaml --write junit=check.xml --write markdown=check.md",
)
@interruptible(FROM_THERE)
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
        executor=executor_of(loaded, workers=count_workers(workers)),
        minutes=minutes,
        tell=lambda look: (
            echo(f"{look.samples} samples: {look.outcome}") if until_decided else None
        ),
    )
    echo(str(decisions))
    results = out or str(default_folder(loaded))
    echo(f"results: {results}")
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


@commands.command(epilog="Example: standfast baseline results/study --out baseline/2026-10")
def baseline(
    results: Stored,
    out: Annotated[Path, typer.Option(help="A new folder.")],
) -> None:
    """Freeze results as a reference, for requirements such as {no_worse_than: baseline/2026-10, by: 0.05}."""
    from standfast.checks import freeze_baseline
    from standfast.report import load_results

    opened = load_results(results)
    echo(f"baseline: {freeze_baseline(opened, out)}")
    _warn_of_gaps(opened)


def _warn_of_gaps(results: Results) -> None:
    """Say how many jobs failed or were not run, so that their numbers are not there."""
    counts = {"failed": len(results.failures), "were not run": results.missing}
    words = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
    if words:
        echo(f"warning: of {results.planned} jobs {words}, so their numbers are missing", err=True)


def _tell_failures(sentences: Sequence[str], count: int, report: str = "the report") -> None:
    """Print why jobs failed, and how to continue."""
    # five sentences are enough to see what is wrong
    for line in (f"{count} jobs failed:", *(f"  {sentence}" for sentence in sentences[:5])):
        echo(line, err=True)
    echo(f"tracebacks are in {report}; the same command tries only these jobs again", err=True)


@commands.command(
    epilog="Example: standfast train --model lenet5 --data mnist --scheme pgd:radius=0.3 --options epochs=5"
)
@interruptible(FROM_THERE)
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
        echo("this model exists already, with the same options")
    echo(
        f"accuracy: train {trained.card['train_accuracy']:.2%}, test {trained.card['test_accuracy']:.2%}"
    )
    echo(f"weights: {trained.weights}\nin a study beside it: {trained.study_entry()}")


@commands.command(epilog="Example: standfast schema --out study.schema.json")
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
        echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        echo(f"schema: {out}")
