"""`choose`: which explainer to use, of several and of their settings; found on a few samples, confirmed on others."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from standfast.data import Dataset
from standfast.errors import as_number, check
from standfast.evaluation import telling_of_interruptions
from standfast.explainers import Explainer
from standfast.files import write_atomically
from standfast.question.arguments import (
    Arguments,
    ExplainersLike,
    MetricsLike,
    ModelLike,
    NeighbourhoodsLike,
)
from standfast.question.calls import record_call
from standfast.question.frames import FrameReader
from standfast.question.inputs import Inputs
from standfast.question.texts import TextReader
from standfast.race.candidates import list_candidates
from standfast.race.contest import Contest, Held, RaceOptions
from standfast.race.jobs import Means
from standfast.report import Results
from standfast.report.next_steps import NextSteps
from standfast.report.race_steps import describe_race_steps
from standfast.report.races import describe_choice, format_race
from standfast.results.formatting import to_ascii
from standfast.results.races import Race
from standfast.study.cache import results_folder
from standfast.study.executors import local
from standfast.study.forecast.choice import check_minutes
from standfast.study.forecast.limited import TimeLimit
from standfast.study.progress import watch
from standfast.tensors import is_image

#: where nobody names metrics: a search for the worst case, and whether the prediction rests on what is marked
_STABILITY = "worst_case"
_OF_IMAGES = "aopc"
_OF_OTHERS = "corruption_curve"


@dataclass(frozen=True, repr=False)
class RaceOutcome:
    """What `choose` returns. `print` says what was chosen, and shows the race.

    Attributes:
        race: how it went, as numbers.
        explainer: that was chosen; None if none was.
        results: of the samples of the race.
        confirmation: of the leader on the samples that the race did not use, and of the runner-up if the leader fails;
            None if nobody was left.
        command: the words of the command that held the race; empty for a call in Python.
    """

    race: Race
    explainer: Explainer | None
    results: Results
    confirmation: Results | None
    command: tuple[str, ...] = ()

    @property
    def chosen(self) -> str | None:
        """The name of the explainer that was chosen and confirmed; None if none was, and `why` says why."""
        return self.race.chosen

    @property
    def why(self) -> str:
        """Why this one was chosen, or why none, in sentences."""
        return describe_choice(self.race)

    def next_steps(self) -> NextSteps:
        """What to do where none was chosen, or where the race told nothing apart: at most three lines that run.

        `print` shows them in sentences, with what they cost.
        """
        return describe_race_steps(self.race, self.command)

    def frame(self) -> pl.DataFrame:
        """A row for each explainer: when it left and why, its value, and how far it was behind (`Race.frame`)."""
        return self.race.frame()

    def __str__(self) -> str:
        steps = self.next_steps()
        if steps:
            return f"{format_race(self.race)}\n\n{to_ascii(str(steps))}"
        return format_race(self.race)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.chosen}, of {len(self.race.entrants)})"

    def to_json(self, path: str | Path) -> Path:
        """Write the race as JSON (`Race.plain`)."""
        text = json.dumps(self.race.plain(), indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(Path(path), text.encode())
        return Path(path)

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report of the race as a page; that of the confirmation is `confirmation.to_html()`."""
        return self.results.to_html(path)


def choose(
    model: ModelLike,
    inputs: Tensor | Dataset | Any,
    explainers: ExplainersLike | None = None,
    metrics: MetricsLike | None = None,
    *,
    by: str | None = None,
    reference: Tensor | Any = None,
    neighbourhood: NeighbourhoodsLike | None = None,
    sanity: bool | int = True,
    targets: Tensor | int | None = None,
    decision: str | None = None,
    budget: float = 0.25,
    level: float = 0.05,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | str = 1,
    minutes: float | None = None,
    progress: bool = True,
) -> RaceOutcome:
    """Choose an explainer: several race, with several settings, and the one that is left is confirmed on other samples.

    First the sanity checks: who fails one leaves. Then, at each of a few numbers of samples, measures of stability: who
    is shown to be unstable leaves; and the metric that ranks: who is shown to be worse than the leader leaves. Those
    behind also leave where the budget does not suffice for all. A third of the samples is kept for the confirmation: an
    ordinary evaluation of the leader with controls. The leader is chosen only if its verdict there is that it may be
    shown, or that it passes all that was asked. Else the runner-up is confirmed on the same samples, if the race could
    not tell the two apart; each then has half of the error, from the beginning.

    Args:
        model: one, as `evaluate` takes it.
        inputs: as `evaluate` takes them; at least 24, and a hundred or more to be useful.
        explainers: two or more, as `evaluate` takes them: names with options (`"smoothgrad:samples=16,noise=0.2"`),
            explainers, functions. By default those that are usual for such a model and such inputs, with several
            settings.
        metrics: as `evaluate` takes them. By default `worst_case`, and `aopc` of images and texts or
            `corruption_curve` of others.
        by: the label or the name of the metric that ranks. By default the first that asks for faithfulness, or else for
            stability.
        reference, neighbourhood, sanity, targets, decision: as for `evaluate`.
        budget: what race and confirmation may cost, as a share of evaluating all explainers on all samples by all
            metrics. Checks and controls come beside it, and the first look is always done.
        level: the largest probability that the best explainer leaves as unstable, or as worse than another one.
        seed: of all random numbers, and of the order of the samples.
        out: a folder or an fsspec address for the results, as for `evaluate`: those of the race, and those of the
            confirmation in `confirmation`. The same call goes on where one has ended.
        workers: as for `evaluate`.
        minutes: how long all of it may take, about; None for as long as it takes. As for `evaluate`, settings of
            metrics that are given by name, and the number of samples, are chosen for it.
        progress: show a progress bar.

    Returns:
        What was chosen, and the race. `print` shows it.

    Raises:
        ArgumentError: fewer than two explainers; no metric that ranks; too few samples, or too little time, for a race
            and a confirmation; another argument does not fit.
        ModelError: the model fails.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:24]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> explainers = ["saliency", "smoothgrad:samples=4", "input_x_gradient"]
    >>> found = standfast.choose(model, digits, explainers, ["aopc:samples=1,steps=20"], progress=False)
    >>> found.race.label, found.race.ladder, len(found.race.confirmation_rows)
    ('aopc', (8, 16), 8)
    """
    began = time.monotonic()
    limit = check_minutes(minutes)
    seed = as_number(seed)
    check(type(seed) is int, "seed", "a whole number", repr(seed))
    options = RaceOptions(by, budget, level, limit)
    arguments = Arguments(
        model=model,
        explainers=() if explainers is None else explainers,
        inputs=inputs,
        metrics=() if metrics is None else metrics,
        reference=reference,
        neighbourhood=neighbourhood,
        sanity=sanity,
        targets=targets,
        decision=decision,
        seed=seed,
    )
    call = record_call(arguments, _list_further(by, budget, level, out, minutes))
    if explainers is None or metrics is None:
        arguments = fill_in(arguments, explainers is None, metrics is None)
    is_kept = out is not None or results_folder() is not None
    with telling_of_interruptions(progress, is_kept), watch(progress) as report_progress:
        question = arguments.ask()
        means = Means(
            local(workers, device=question.device),
            None if limit is None else TimeLimit(limit, began),
            report_progress,
        )
        tell = print_left_out if progress else None
        contest = Contest(question, options, means, {}, out, tell, call)
        return make_outcome(contest, contest.hold())


def _list_further(
    by: str | None, budget: float, level: float, out: str | Path | None, minutes: float | None
) -> dict[str, Any]:
    """The arguments of `choose` alone that are not at their defaults."""
    defaults = RaceOptions()
    further: dict[str, Any] = {
        "by": by,
        "budget": None if budget == defaults.budget else budget,
        "level": None if level == defaults.level else level,
        "out": None if out is None else str(out),
        "minutes": minutes,
    }
    return {name: value for name, value in further.items() if value is not None}


def make_outcome(contest: Contest, ended: Held) -> RaceOutcome:
    """What a race that has ended has chosen."""
    chosen = ended.race.chosen
    explainer = None
    if chosen is not None:
        explainer = contest.question.explainers[chosen]
    return RaceOutcome(ended.race, explainer, ended.results, ended.confirmation)


def fill_in(arguments: Arguments, lacks_explainers: bool, lacks_metrics: bool) -> Arguments:
    """The arguments with explainers and metrics that suit the model and the inputs."""
    inputs = arguments.read_inputs([] if lacks_metrics else list(_list_metrics(arguments.metrics)))
    if lacks_metrics:
        arguments = replace(arguments, metrics=_list_usual_metrics(inputs))
    if lacks_explainers:
        arguments = replace(arguments, explainers=list_candidates(inputs))
    return arguments


def _list_metrics(metrics: Any) -> list[Any]:
    if isinstance(metrics, dict):
        return list(metrics.values())
    if isinstance(metrics, list | tuple):
        return list(metrics)
    return [metrics]


def _list_usual_metrics(inputs: Inputs) -> list[str]:
    """A measure of stability, and one of faithfulness that suits the inputs."""
    ((_, samples),) = inputs.samples.items()
    is_of_words = isinstance(samples.reader, TextReader)
    is_picture = is_image(samples.inputs.shape[1:]) and not isinstance(samples.reader, FrameReader)
    faithfulness = _OF_IMAGES if is_of_words or is_picture else _OF_OTHERS
    return [_STABILITY, faithfulness]


def print_left_out(words: str) -> None:
    """Say what a limited time leaves out."""
    print(f"in the time that there is: {words}", file=sys.stderr, flush=True)
