"""Commands for a model of the user's: what there is to choose from, reasons, a race, and a new study."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from standfast.cli.application import (
    FROM_THERE,
    Bounds,
    KindName,
    Label,
    Seed,
    SpeakingSide,
    Task,
    TrainingRows,
    Trust,
    Weights,
    Workers,
    count_workers,
    echo,
    interruptible,
)
from standfast.cli.kinds import KINDS, describe_names
from standfast.display import show_activity
from standfast.errors import ArgumentError
from standfast.errors import check as check_argument

commands = typer.Typer()


@commands.command(
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
                echo(word)
            else:
                echo(f"{word:{width}}  {listed.about}")
        return
    listed_kind = KINDS[kind]
    if names:
        for name in listed_kind.load().names():
            echo(name)
        return
    lines = describe_names(listed_kind)
    width = max(len(line.name) for line in lines)
    for line in lines:
        echo(line.format(width))
    # on standard error, so that the output stays one line for each name
    if listed_kind.elsewhere:
        echo(f"also: {listed_kind.elsewhere}", err=True)
    echo(f"more about one of them: standfast explain {lines[0].name}", err=True)


@commands.command(epilog="Example: standfast explain worst_case")
def explain(
    name: Annotated[str, typer.Argument(help="Of anything that `standfast list` shows.")],
) -> None:
    """Explain a name: what it is, its options, an example and the source."""
    import shutil

    from standfast.cli.explanations import explain_name

    echo(explain_name(name, width=min(100, shutil.get_terminal_size((100, 24)).columns)))


@commands.command(
    epilog="Example: standfast reasons --model pipeline.joblib --data customers.csv --row 17 --trust --out card.html"
)
@interruptible(FROM_THERE)
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
    reference: TrainingRows = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(help="Of a column: its unit, as income=EUR; may be given several times."),
    ] = None,
    weights: Weights = None,
    label: Label = None,
    bounds: Bounds = None,
    task: Task = None,
    draws: Annotated[int, typer.Option(help="At most so many variations.", min=1)] = 400,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="How long all of it may take: fewer rows, and fewer models of --retrain."
        ),
    ] = None,
    counter_examples: Annotated[
        int,
        typer.Option(
            help="With --measurement: search, for each reason, a small change after which it is not named, in so many"
            " changes, such as 500.",
            min=0,
        ),
    ] = 0,
    seed: Seed = 0,
    trust: Trust = False,
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
    chosen_rows = read_rows(
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
    cards = find_reasons(
        chosen_rows.model,
        chosen_rows.explainer,
        chosen_rows.inputs,
        reference=chosen_rows.reference,
        top=top,
        demand=demand,
        measurement=measurement,
        retrained=chosen_rows.retrained,
        retrain=retrain or None,
        models=models,
        labels=chosen_rows.labels,
        others=other or [],
        decision=decision,
        speaking="for" if speaking == SpeakingSide["for"] else "both",
        draws=draws,
        counter_examples=counter_examples,
        units=units,
        seed=seed,
        minutes=minutes,
    )
    # the user knows rows by their own numbers and names
    cards = name_rows(cards, row or [], data, chosen_rows.names)
    echo(str(cards))
    if out is not None:
        for path in cards.write(out):
            echo(f"card: {path}")


@commands.command(epilog="Example: standfast advice")
def advice() -> None:
    """Say what to do if no explainer holds, and no next step helps."""
    page = Path(__file__).parent / "templates" / "advice.txt"
    echo(page.read_text(encoding="utf-8").strip())


@commands.command(
    epilog="Example: standfast choose --model lenet5-mnist --data digits --minutes 5. Of a study: standfast choose"
    " study.yaml"
)
@interruptible(FROM_THERE)
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
    reference: TrainingRows = None,
    weights: Weights = None,
    label: Label = None,
    bounds: Bounds = None,
    task: Task = None,
    seed: Seed = 0,
    workers: Workers = None,
    trust: Trust = False,
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
        "workers": count_workers(workers),
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
    echo(str(replace(choice, command=write_command(study, named_options))))
    if out is not None:
        local = out.removeprefix("file://")
        if "://" not in local:
            where = Path(local) / "report" / "index.html"
        else:
            where = Path("race-report.html")
        echo(f"report: {choice.to_html(where)}")
    # "none" is an answer, but no explainer to go on with
    if choice.chosen is None:
        raise typer.Exit(1)


@commands.command(
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
    trust: Trust = False,
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
        echo(line, err=line.startswith("warning: "))
    text, left_out = write_study(setting, study)
    # on standard error, as it is no part of the answer
    for name, reason in left_out.items():
        echo(f"left out, because it fails on this model: {name}: {reason}", err=True)
    # it may have been written since the check above
    write_atomically(study, text.encode(), new=True)
    echo(f"study: {study}\nnext: standfast run {study} --dry-run")
