"""`evaluate` runs metrics for explainers on inputs, `run_study` runs a study; the result gives frames and a report.

`estimate` says what `evaluate` would cost.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from standfast.data import Dataset
from standfast.errors import ArgumentError, UnknownOptionError, as_number, check, warn_user
from standfast.metrics.base import Preset
from standfast.question.arguments import (
    DEFAULT_NEIGHBOURHOOD,
    Arguments,
    ExplainersLike,
    MetricsLike,
    ModelLike,
    NeighbourhoodsLike,
)
from standfast.question.calls import record_call
from standfast.question.grid import Grid
from standfast.report import Results, load_results
from standfast.report.sentences import describe_failures
from standfast.study.cache import results_folder, run_kept
from standfast.study.executors import Executor, local
from standfast.study.executors.base import UNLIMITED
from standfast.study.forecast.choice import Choice, advise, check_minutes, describe_choice
from standfast.study.forecast.estimate import Estimate, format_costs
from standfast.study.forecast.limited import LimitedRun, TimeLimit
from standfast.study.forecast.trials import estimate_plan
from standfast.study.import_paths import importing_from
from standfast.study.plan import Plan, make_plan
from standfast.study.progress import show_trials, watch
from standfast.study.run import GridOrigin, RunSummary, run_grid
from standfast.study.store import Store

if TYPE_CHECKING:
    from standfast.study.file.spec import Study


def evaluate(
    model: ModelLike | Mapping[str, ModelLike],
    explainers: ExplainersLike,
    inputs: Tensor | Dataset | Any,
    metrics: MetricsLike,
    *,
    reference: Tensor | Any = None,
    neighbourhood: NeighbourhoodsLike | None = None,
    preset: Preset | None = None,
    controls: bool | ExplainersLike = True,
    sanity: bool | int = True,
    targets: Tensor | int | None = None,
    decision: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    repeats: int = 1,
    samples_per_job: int | None = None,
    workers: int | str = 1,
    executor: Executor | None = None,
    minutes: float | None = None,
    about: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Results:
    """Evaluate every metric for every explainer on `inputs`.

    Args:
        model: the model; or a module alone. Its bounds are then those of the data set; for a tensor they are
            taken as [0, 1] if the inputs look like it, with a warning. For a data frame, a fitted estimator or
            pipeline. Several models, such as one that was trained again, in a mapping from names.
        explainers: one, a list, or a mapping from the names for the report. Each is a registered name, a name of
            another package (`"captum:Saliency"`), an explainer, or a function
            `fn(module, inputs, targets) -> attributions`; for a data frame `fn(estimator, frame, targets)`.
        inputs: `(N, ...)` within the model's bounds; or a data set, for metrics that use its `extras`. Its labels
            are used for the accuracy of the model alone. Or a data frame of pandas or polars, as the model takes it.
        metrics: configured metrics or their names, as `standfast.metrics.get` takes them (`"aopc"`,
            `"quantus:Sparseness"`); one, a list, or a mapping from labels to them.
        reference: training rows, for what explainers and metrics put in place of values (`Model`), and for a data frame
            also for the default neighbourhood. By default the inputs themselves, if they are at least 8 rows.
        neighbourhood: for the metrics that are given by name and have one, such as `"worst_case"`. With a list of
            several, each of these metrics is evaluated in each of them, and its label says in which. By default each
            pixel of images `(N, 1, H, W)` or `(N, 3, H, W)` changes by up to 8/255 of its range, each feature of other
            tensors by a tenth of its range. Of a data frame, numbers change by up to 2% of their value
            (`Table.default_changes`), and `absolute=False` is the default: maps are compared with their signs. Of
            texts, one of ten longer words has a typing error. The answer begins with it, and so does a line before the
            progress.
        preset: for the metrics that are given by name: `"quick"` for an answer in seconds, `"standard"` for the
            defaults, `"paper"` for what the publications used. `"aopc:preset=quick"` is for one metric only. Configured
            metrics keep their options; there is a warning if no metric is given by name. Do not compare values of
            different presets. By default `"standard"`; with `minutes` what fits.
        controls: control explainers: names and so on, as for `explainers`. Metrics that say something about the model
            (`Metric.controls`) evaluate them beside the others, and the report says which explainers do better than all
            of them; of measures of stability the copy of the input is a reference. True for `random`, `input_copy`,
            `edges` (but not of a table), and `randomised` of the first explainer (`docs/controls.md`); each costs as
            much as an explainer. False for none.
        sanity: check whether each explainer depends on the input and the model (`docs/sanity.md`); one that does not
            cannot be best. The first 100 samples are checked, or as many as a number here says.
        targets: classes `(N,)`, or None for the model's own predictions. With a `decision`, sides: 1 where it is made.
        decision: what you decide by the probability of one class or label, such as `"P(default) > 0.35"` or
            `"P(2) < 0.1"`; the class by the name that the estimator or the data set has for it, or by its number. What
            is explained is then the decision, and it is kept on the same side of the cut-off
            (`standfast.tasks.Decision`). What its sides are called may stand before it, as in `"declined: P(default) >
            0.35"` or `"declined, else approved: P(default) > 0.35"`. By default the class that the model predicts.
        seed: of all random numbers.
        out: a folder or an fsspec address for the results. Results that are there already are not computed again, so an
            interrupted evaluation can be continued. By default they are in the user's cache folder, where the same call
            finds them, too: `standfast cache` says where, and deletes them. `Results.store` has the place.
        repeats: how often everything is done, each time with other random numbers.
        samples_per_job: the number of samples between two writes, on which results do not depend; None for as many as
            fit in memory and take about 20 seconds.
        workers: the number of processes on this computer; `"auto"` for one for each GPU, or else for each core. A
            script that uses several needs `if __name__ == "__main__":`, as always with processes in Python.
        executor: another place to do the jobs, or limits of time and memory for each, such as
            `Processes(2, limits=Limits(timeout=600))`; see `standfast.study.executors`.
        minutes: how long all of it may take, about; None for as long as it takes. After a trial of ten seconds at
            most, a table says what everything costs, what is chosen, and what is left out. What the arguments say
            stays as it is; chosen are the number of samples (the first ones), the options of metrics that are given
            by name without them or a preset, and as the last resort default controls and checks are left out. The
            same call again, or with more minutes, continues: first with more samples, and when all are done with more
            expensive options, which is new work. The results say what was left out.
        about: the title, the model, the data and other facts for the report. By default the model and the data have the
            names of the module's class and of the data set; what `about` says of them, up to the first comma, is used
            instead.
        progress: show a progress bar with the time left, once that is known; without a terminal, a line every ten
            seconds.

    If a job fails, its traceback is stored, and the other jobs continue. A warning says which explainers failed by
    which metrics, and why. After Ctrl-C a sentence says how to go on, and `KeyboardInterrupt` is raised.

    Raises:
        ArgumentError: an argument does not fit, an unknown name among them; a metric by name needs a neighbourhood, and
            the bounds of the inputs give no range for the default; a module alone, and the inputs show no bounds;
            `minutes` are too few for one sample.
        ModelError: the module fails on the inputs, or does not return logits.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> def brightness(module, inputs, targets):
    ...     return inputs
    >>> metrics = ["worst_case:budget=20", standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), 5, normalise=True)]
    >>> found = standfast.evaluate(model, ["saliency", brightness], digits, metrics, progress=False)
    >>> found.frame().shape[0], found.failures
    (12, [])
    >>> print(str(found).splitlines()[0])
    Neighbourhood: each pixel by up to 8/255 of its range or 10% of its range. By
    >>> found.best(), found.sanity["digits", "LeNet5", "saliency"].state  # two samples pass no check
    ({}, 'undecided')
    """
    # before anything is prepared, as `minutes` is the time of the whole call
    began = time.monotonic()
    minutes = check_minutes(minutes)
    seed, repeats = as_number(seed), as_number(repeats)
    if samples_per_job is not None:
        samples_per_job = as_number(samples_per_job)
    check(type(seed) is int, "seed", "a whole number", repr(seed))
    check(
        about is None or isinstance(about, Mapping),
        "about",
        "a mapping from names, or None",
        repr(about),
    )
    facts = dict(about or {})
    for name, fact in facts.items():
        try:
            json.dumps({name: fact})
        except (TypeError, ValueError):
            expected = "a text, a number, or a list or mapping of them"
            raise ArgumentError(f"about[{name!r}]", expected, type(fact).__name__) from None
    arguments = Arguments(
        model=model,
        explainers=explainers,
        inputs=inputs,
        metrics=metrics,
        reference=reference,
        neighbourhood=neighbourhood,
        preset=preset,
        controls=controls,
        sanity=sanity,
        targets=targets,
        decision=decision,
        seed=seed,
        repeats=repeats,
        samples_per_job=samples_per_job,
        about=facts,
    )
    # from what the user gave, before anything is chosen, so that the line can be typed again
    call = record_call(arguments, _list_further(out=out, workers=workers))
    origin = GridOrigin(facts, call=call)
    is_kept = out is not None or results_folder() is not None
    with telling_of_interruptions(progress, is_kept), watch(progress) as report_progress:
        grid = arguments.ask().make_grid()
        if progress:
            _tell_default(grid)
        chosen = executor or local(workers, device=grid.device)
        # jobs are cut as an earlier run has cut them, so that what it stored is found
        earlier = None
        if out is not None:
            earlier = Store(out).earlier_manifest()
        plan = make_plan(grid, facts, earlier, chosen.at_once)

        def run(plan: Plan, store: Store) -> RunSummary:
            if minutes is None:
                return run_grid(
                    grid, store, plan=plan, executor=chosen, origin=origin, progress=report_progress
                )
            limited = LimitedRun(
                grid,
                store,
                TimeLimit(minutes, began),
                chosen,
                find_origin=lambda choice: origin,
                tell=_print_choice if progress else None,
                progress=report_progress,
            )
            return limited.run(plan)

        if out is None:
            store, summary, let_go = run_kept(plan, run)
        else:
            store = Store(out)
            summary = run(plan, Store(out))
            let_go = None
    results = load_results(store, summary)
    # a temporary folder is needed as long as its results
    if let_go is not None:
        weakref.finalize(results, let_go)
    _warn_of_failures(results)
    return results


def _list_further(out: str | Path | None, workers: int | str) -> dict[str, Any]:
    """The arguments, beside those that decide what is computed, that another call should have as well."""
    further: dict[str, Any] = {}
    if out is not None:
        further["out"] = str(out)
    if workers != 1:
        further["workers"] = workers
    return further


@contextlib.contextmanager
def telling_of_interruptions(show: bool, is_kept: bool) -> Iterator[None]:
    """After Ctrl-C, print how to go on, and raise the error again, with these words.

    Args:
        show: print them.
        is_kept: whether results are stored where the same call finds them.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        how_to_go_on = "the same call starts again from the beginning"
        if is_kept:
            how_to_go_on = "what is done is stored, and the same call continues from there"
        words = f"interrupted; {how_to_go_on}"
        error.args = (words,)
        if show:
            print(f"\n{words}", file=sys.stderr, flush=True)
        raise


def _print_choice(grid: Grid, estimate: Estimate, choice: Choice | str) -> None:
    """Print what everything costs, and what was chosen for a limited time; or why nothing is added."""
    if isinstance(choice, str):
        print(choice, file=sys.stderr, flush=True)
        return
    text = f"{format_costs(estimate)}\n{describe_choice(grid, choice)}"
    print(text, file=sys.stderr, flush=True)


def _tell_default(grid: Grid) -> None:
    """Print which neighbourhood was taken because none was given."""
    if DEFAULT_NEIGHBOURHOOD in grid.about:
        print(f"neighbourhood: {grid.about[DEFAULT_NEIGHBOURHOOD]}", file=sys.stderr, flush=True)


def _warn_of_failures(results: Results) -> None:
    """Warn of the jobs that failed now: which explainers, by which metrics, and why."""
    if results.run is not None and results.run.failed:
        lines = [f"{len(results.run.failed)} of {results.run.planned} jobs failed:"]
        lines += [f"  {line}" for line in describe_failures(results.summary)]
        warn_user("\n".join([*lines, "  (.failures has the tracebacks)"]))


def estimate(
    model: ModelLike,
    explainers: ExplainersLike,
    inputs: Tensor | Dataset,
    metrics: MetricsLike,
    *,
    minutes: float = 10.0,
    seconds: float = 10.0,
    progress: bool = True,
    **options: Any,
) -> Estimate:
    """Estimate what `evaluate` would cost: evaluations, time and memory for every metric and explainer.

    The time of single predictions and explanations is measured, and every metric is tried with every explainer on the
    first samples, as far as that fits into `seconds`; the table says what was not tried. A cost that depends on what is
    found, as for a probability, is known to about a factor of two, or not at all. `standfast run --dry-run` prints the
    same for a study.

    Args:
        model, explainers, inputs, metrics: as for `evaluate`.
        minutes: say what `evaluate(..., minutes=minutes)` would choose.
        seconds: how long all trials together may take, about. If the trial of a metric does not end in its share, a
            cheaper configuration is tried for twice as long.
        progress: show what is tried; without a terminal, in a line every ten seconds.
        options: `neighbourhood`, `preset`, `controls`, `sanity`, `targets`, `repeats` and `samples_per_job`, as for
            `evaluate`.

    Returns:
        The costs for one worker: `evaluations`, `seconds`, `memory` (in bytes; a lower bound where a trial was
        stopped), and `frame()` with a row for each metric and explainer. `print` shows a table, and what is done in so
        many minutes.

    Raises:
        ArgumentError: an argument does not fit.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:8]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> costs = standfast.estimate(model, ["saliency", "gradcam"], digits.inputs, ["aopc"], sanity=False)
    >>> costs.evaluations, costs.seconds > 0
    (24048, True)
    """
    # the first four have arguments of their own, so a hint names only the options
    argument_names = [argument.name for argument in fields(Arguments)]
    for option, value in options.items():
        if option not in argument_names:
            raise UnknownOptionError("estimate", option, value, argument_names[4:])
    checked_minutes = check_minutes(minutes)
    check(checked_minutes is not None, "minutes", "a number above 0", "None")
    assert checked_minutes is not None
    with show_trials(progress) as tell:
        grid = Arguments(model, explainers, inputs, metrics, **options).ask().make_grid()
        forecast = estimate_plan(make_plan(grid), set(), tell, seconds)
        return replace(forecast, advice=advise(grid, forecast, checked_minutes))


def run_study(
    study: Study | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    executor: Executor | None = None,
    minutes: float | None = None,
    command: str | None = None,
    progress: bool = True,
) -> Results:
    """Run a study. Jobs that an earlier run has done are not done again.

    Args:
        study: a study file, its content as a mapping, or the result of `load_study`.
        out: a folder or an fsspec address for the results; by default, `results/<name of the file>`.
        executor: does the jobs; None for the executor of the study.
        minutes: how long all of it may take (`evaluate`), instead of what the study says.
        command: the command that reproduces the results, for the report; a command says itself what failed.
        progress: show a progress bar.

    A warning says which explainers failed by which metrics, and why, unless there is a `command`.

    Raises:
        ArgumentError: `study` is something else; the minutes are too few for one sample.
        StudyError: something in the file does not fit.

    >>> import standfast
    >>> ball = {"linf": 0.1}
    >>> found = standfast.run_study(
    ...     {
    ...         "data": {"digits": "digits"},
    ...         "samples": 2,
    ...         "models": {"lenet": "lenet5-mnist"},
    ...         "explainers": ["saliency", "gradcam"],
    ...         "metrics": [{"max_sensitivity": {"neighbourhood": ball, "samples": 5}}],
    ...     },
    ...     out="memory://example",
    ...     progress=False,
    ... )
    >>> found.frame().shape[0], found.failures
    (6, [])
    """
    # it needs pydantic and YAML, which `evaluate` does without
    from standfast.study.file.spec import Study, load_study, study_from

    began = time.monotonic()
    minutes = check_minutes(minutes)
    expected = "a study file, its content as a mapping, or the result of load_study"
    check(isinstance(study, Study | Mapping | str | Path), "study", expected, type(study).__name__)
    if isinstance(study, Mapping):
        study = study_from(study)
    elif not isinstance(study, Study):
        study = load_study(study)
    if out is None:
        # only for the default folder: two files of one name in different folders would share it
        _check_own(default_folder(study), study)
    if command:
        about = {"title": study.title, "command": command}
    else:
        about = {"title": study.title}
    address = out or default_folder(study)
    store = Store(address)
    if minutes is None:
        minutes = study.minutes

    telling: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if command is None:  # a command says itself how to go on
        telling = telling_of_interruptions(progress, is_kept=True)
    with telling, watch(progress) as report_progress:
        grid = study.grid()
        if progress:
            _tell_default(grid)
        chosen = executor or executor_of(study)

        def find_origin(choice: Choice | None) -> GridOrigin:
            content = study.plain()
            if choice is not None:
                extras = {label: grid.free.extras[label].metric for label in choice.extras}
                content = study.plain_with(choice.settings, choice.controls, choice.checked, extras)
            # the full path, by which another file of the same name is told apart
            name = str(Path(study.name).resolve())
            return GridOrigin(about, content, name, study.base)

        if minutes is None:
            run = run_grid(
                grid, store, executor=chosen, origin=find_origin(None), progress=report_progress
            )
        else:
            with importing_from(grid.paths):
                plan = make_plan(grid, about, store.earlier_manifest(), chosen.at_once)
                limited = LimitedRun(
                    grid,
                    store,
                    TimeLimit(minutes, began),
                    chosen,
                    find_origin=find_origin,
                    tell=_print_choice if progress else None,
                    progress=report_progress,
                )
                run = limited.run(plan)
    results = load_results(address, run)
    if command is None:
        _warn_of_failures(results)
    return results


def _check_own(folder: Path, study: Study) -> None:
    """Raise `ArgumentError` if the default folder has results of another study file of the same name."""
    store = Store(folder)
    if store.folder.exists("manifest.json"):
        origin = store.manifest().get("origin")
        study_file = str(Path(study.name).resolve())
        check(
            origin in (None, study_file),
            "out",
            f"a folder of its own, since {folder} has results of {origin}",
            "none",
        )


def default_folder(study: Study) -> Path:
    """The folder for the results of a study, if none is given."""
    return Path("results") / (Path(study.name).stem or "study")


def executor_of(
    study: Study, name: str | None = None, workers: int | str | None = None
) -> Executor:
    """The executor of a study; the arguments, if given, replace what the study says."""
    from standfast.study.file.entries import EXECUTORS

    entry = study.executor
    check(name is None or name in EXECUTORS, "executor", "local, ray or slurm", repr(name))
    if name is not None and name != entry.name:
        # what both executors know is kept; the rest belongs to the executor of the file alone
        shared = {"workers", "threads", *vars(UNLIMITED)}
        entry = EXECUTORS[name](**entry.model_dump(include=shared, exclude_unset=True))
    if workers is None:
        changed = entry
    else:
        changed = entry.model_copy(update={"workers": workers})
    return changed.executor(study.device)
