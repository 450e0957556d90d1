"""What to do next where a verdict leaves something open: a few steps, each with what it would cost.

A step is proposed only where the results support it:

- *samples*: an explainer is undecided, and its interval says how many more samples would decide it;
- *rest*: a limit of time has left out samples of the call, and something is undecided: the same call goes on with them;
- *question*: an explainer passes all that was asked, and a kind of question was not asked;
- *neighbourhood*: explainers do not hold in a neighbourhood that is unlike what such inputs undergo. What is proposed
  asks another question, and is never the same one with a smaller reach: numbers of a table move as far as before where
  categories stay;
- *explainer*: an explainer does not hold, and a smoother one of its family was not tried;
- *race*: several explainers were asked, none may be shown, and no better candidate is known: those that are usual for
  the model race with several settings (`standfast.choose`);
- *training*: no map of a network holds, so that the network is what has to change.

The last four are proposed only where no explainer may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import polars as pl

from standfast.neighbourhoods import (
    JPEG,
    Amplitude,
    Brightness,
    GaussianNoise,
    LinfBall,
    Neighbourhood,
    TableChanges,
    TimeShift,
    TimeStretch,
)
from standfast.neighbourhoods.naming import read_stored
from standfast.neighbourhoods.tables import Feature
from standfast.results.formatting import round_roughly
from standfast.results.given_call import GivenCall, read_call
from standfast.results.quality import judge_stability
from standfast.results.summary import MetricSummary, Summary
from standfast.results.verdict import Kind, Verdict
from standfast.tensors import is_image

StepKind = Literal["samples", "rest", "question", "neighbourhood", "explainer", "race", "training"]
#: more than these are no help
MOST_STEPS = 3
#: a step whose cost is not known comes after all others, and among them in this order
_ORDER: tuple[StepKind, ...] = get_args(StepKind)
#: pixels that each move by more than this share of their range are another picture, and no camera makes it
_SEEN_CHANGE = 8 / 255
#: what photographs and series undergo, as measured in `docs/natural-changes.md`
_OF_IMAGES: tuple[Neighbourhood, ...] = (Brightness(0.2), JPEG((30, 90)), GaussianNoise(0.1))
_OF_SERIES: tuple[Neighbourhood, ...] = (Amplitude(10), TimeShift(3), TimeStretch(3))
#: how far a number of a table moves where nobody says what its precision is
_PRECISION = "2%"
#: so many times the number that decides half of such cases decides seven of ten (`Ground.needed_range`)
_MOST_TIMES = 4
#: about how many explainers race where nobody names them (`standfast.race.candidates`)
_RACING = 9
#: with fewer samples a race decides little
_FEWEST_RACING = 60
#: what a race looks at at least, as a share of all explainers on all samples by all metrics, with its confirmation
_SHARE_OF_RACE = 0.4
#: about how many times as long the usual explainers take as those of a user: some have many gradients
_TIMES_OF_RACING = 6.0
#: metrics that ask the kinds of questions
METRIC_OF: Mapping[Kind, str] = {"stability": "worst_case", "faithfulness": "aopc"}


@dataclass(frozen=True)
class Relative:
    """An explainer of the same family that is less rough.

    Attributes:
        text: as `evaluate` takes it.
        times: about how many times as long it takes.
    """

    text: str
    times: float


#: by the registered name of an explainer; docs/how-to/if-none-holds.md has what was measured
SMOOTHER: Mapping[str, Relative] = {
    "saliency": Relative("smoothgrad", 17),
    "input_x_gradient": Relative("smoothgrad:times_input=true", 17),
    "integrated_gradients": Relative("smoothgrad:times_input=true", 0.6),
    "deeplift": Relative("lrp_epsilon_plus", 1),
    "lrp": Relative("lrp_epsilon_plus", 1),
}


@dataclass(frozen=True)
class Unstable:
    """An explainer that does not hold, or is not shown to.

    Attributes:
        explainer: its name.
        labels: of the measures of stability by which it is not good.
        is_certain: whether the verdict refuses it for that.
    """

    explainer: str
    labels: tuple[str, ...]
    is_certain: bool


@dataclass(frozen=True)
class NextStep:
    """One thing to do, as facts; `standfast.Results.next_steps` has it in words, with the line to run.

    Attributes:
        kind: see the module.
        explainers: those that it may decide, or that it is about.
        evaluated: those that are evaluated for that.
        seconds: about what it takes, from what the same work took here; None if nothing like it was done.
        samples: how many of the data set are evaluated.
        more: between which numbers of further samples would decide; None for other kinds of steps.
        missing: the kinds of questions that were not asked.
        changes: the neighbourhoods that are nearer to what the inputs undergo.
        labels: of the metrics that it is about.
        instead: the text of the explainer to try.
        minutes: the limit of time that the line has, of a step of a race; None for none.
        left: how many of the samples a limit of time has left out; 0 for other kinds of steps.
    """

    kind: StepKind
    explainers: tuple[str, ...]
    evaluated: tuple[str, ...] = ()
    seconds: float | None = None
    samples: int = 0
    more: tuple[int, int] | None = None
    missing: tuple[Kind, ...] = ()
    changes: tuple[Neighbourhood, ...] = ()
    labels: tuple[str, ...] = ()
    instead: str = ""
    minutes: int | None = None
    left: int = 0

    @property
    def is_another_question(self) -> bool:
        """Whether an answer to it is none to what was asked here."""
        return self.kind == "neighbourhood"

    @property
    def worth(self) -> float:
        """How many explainers it may decide in a second; 0 if the seconds are not known. A race chooses one."""
        if self.seconds is None:
            return 0.0
        if self.kind != "race":
            decided = len(self.explainers)
        else:
            decided = 1
        return decided / max(self.seconds, 1.0)


@dataclass(frozen=True)
class Situation:
    """What is known of a data set and a model: the summary, the verdict, and what the work has taken.

    Attributes:
        summary: of all results.
        verdict: on this data set and model.
        manifest: of the results.
        jobs: one row for each job, as of `StoredResults`.
    """

    summary: Summary
    verdict: Verdict
    manifest: Mapping[str, Any]
    jobs: pl.DataFrame

    @property
    def samples(self) -> int:
        """How many samples were evaluated."""
        return self.summary.samples.get(self.verdict.data, 0)

    @property
    def limited_samples(self) -> Mapping[str, Sequence[int]]:
        """With a limit of time, how many samples of each data set were evaluated, and how many the call had."""
        limit = self.manifest.get("limit") or {}
        return limit.get("samples") or {}

    @property
    def given_samples(self) -> int:
        """How many samples the call had: more than were evaluated, where a limit of time has left out some."""
        counts = self.limited_samples.get(self.verdict.data)
        return self.samples if counts is None else int(counts[1])

    @cached_property
    def call(self) -> GivenCall:
        """How `evaluate` was called."""
        return read_call(self.manifest)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The explainers without the controls."""
        return tuple(name for name in self.summary.explainers if name not in self.summary.controls)

    @property
    def metrics(self) -> list[MetricSummary]:
        """The metrics on this data set and model."""
        return self.summary.select(self.verdict.data, self.verdict.model)

    @property
    def about_data(self) -> Mapping[str, Any]:
        """What the manifest says of the data."""
        return (self.manifest.get("data") or {}).get(self.verdict.data) or {}

    @property
    def about_model(self) -> Mapping[str, Any]:
        """What the manifest says of the model."""
        return (self.manifest.get("models") or {}).get(self.verdict.model) or {}

    @property
    def are_kept(self) -> bool:
        """Whether the results are in a folder of the user's, where the same call finds what is done."""
        return "out" in self.call.options or bool(self.manifest.get("study"))

    @property
    def refused(self) -> set[str]:
        """The explainers that may not be shown, whatever else is measured."""
        return {ground.explainer for ground in self.verdict.refuse}

    @cached_property
    def unstable(self) -> list[Unstable]:
        """The explainers that do not hold, or are not shown to, and that nothing else certainly speaks against."""
        unstable: list[Unstable] = []
        for ground in (*self.verdict.refuse, *self.verdict.undecided):
            labels = self._list_unstable_labels(ground.explainer)
            is_refused = not ground.is_open
            is_refused_otherwise = is_refused and not set(ground.labels) & set(labels)
            if labels and not is_refused_otherwise:
                unstable.append(Unstable(ground.explainer, labels, is_refused))
        return unstable

    def _list_unstable_labels(self, explainer: str) -> tuple[str, ...]:
        """The measures of stability by which an explainer is not good, whatever the checks say of it."""
        labels: list[str] = []
        for metric in self.metrics:
            row = metric.find_row(explainer)
            if row is None or row.references is None or row.sanity == "failed":
                continue
            if judge_stability(row.spec, row.estimate, row.references) in ("bad", "undecided"):
                labels.append(metric.label)
        return tuple(labels)

    @cached_property
    def paces(self) -> dict[tuple[str, str], float]:
        """The seconds of a sample, over all repeats, by explainer and label; of the checks, too."""
        of_pair = (pl.col("data") == self.verdict.data) & (pl.col("model") == self.verdict.model)
        done = self.jobs.filter(
            of_pair & (pl.col("status") == "done") & pl.col("seconds").is_not_null()
        )
        totals = done.group_by("explainer", "label").agg(pl.col("seconds").sum())
        count = max(self.samples, 1)
        return {
            (explainer, label): seconds / count for explainer, label, seconds in totals.iter_rows()
        }

    def time(
        self, explainers: Sequence[str], samples: int, labels: Sequence[str] | None = None
    ) -> float | None:
        """The seconds of so many samples for some explainers; None if nothing of it was measured.

        Args:
            explainers: their names.
            samples: how many.
            labels: of the metrics; None for all of them, and the checks.
        """
        paces = [
            pace
            for (explainer, label), pace in self.paces.items()
            if explainer in explainers and (labels is None or label in labels)
        ]
        if paces:
            return samples * sum(paces)
        return None

    def knows(self, explainer: str) -> bool:
        """Whether an explainer, as `evaluate` takes it, is among those of the results already."""
        stored = (self.manifest.get("explainers") or {}).values()
        name = explainer.partition(":")[0]
        names = [about.get("name") for about in stored if isinstance(about, Mapping)]
        return name in names


FindStep = Callable[[Situation], NextStep | None]


def find_next_steps(situation: Situation) -> tuple[NextStep, ...]:
    """The steps in the order of what they may decide for the time that they take; the first three are enough."""
    steps = [step for find in _FINDERS if (step := find(situation)) is not None]
    steps.sort(key=lambda step: (-step.worth, _ORDER.index(step.kind)))
    return tuple(steps)


def _find_samples(situation: Situation) -> NextStep | None:
    """More samples, where it is known how many would decide."""
    needed_of = {
        ground.explainer: ground.needed for ground in situation.verdict.undecided if ground.needed
    }
    if not needed_of:
        return None
    done = 0 if situation.are_kept else situation.samples  # what has to be done again

    def count_decided(needed: int) -> float:
        """How many explainers are decided for each sample that is evaluated."""
        decided = [name for name, other in needed_of.items() if other <= needed]
        return len(decided) / (done + _MOST_TIMES * needed)

    chosen = max(needed_of.values(), key=count_decided)
    decided = []
    for name in situation.candidates:
        if needed_of.get(name, chosen + 1) <= chosen:
            decided.append(name)
    least = min(needed_of[name] for name in decided)
    most = _MOST_TIMES * chosen
    evaluated = tuple(name for name in situation.candidates if name not in situation.refused)
    timed = [*evaluated, *situation.summary.controls]
    return NextStep(
        "samples",
        tuple(decided),
        evaluated,
        seconds=situation.time(timed, done + round_roughly(most)),
        samples=situation.samples + round_roughly(most),
        more=(least, most),
    )


def _find_rest(situation: Situation) -> NextStep | None:
    """The samples of the call that a limit of time has left out, unless fewer are enough, or these are too few."""
    left = situation.given_samples - situation.samples
    undecided = tuple(ground.explainer for ground in situation.verdict.undecided)
    if left <= 0 or not undecided:
        return None
    step = _find_samples(situation)
    if step is not None and step.more is not None:
        fewest, _ = step.more
        # then a part of the rest is enough, which the step of more samples has
        is_enough = step.samples <= situation.given_samples
        # then even all of the rest decides nothing
        is_too_few = fewest > left
        if is_enough or is_too_few:
            return None
    return NextStep(
        "rest",
        undecided,
        situation.candidates,
        seconds=_time_rest(situation),
        samples=situation.given_samples,
        left=left,
    )


def _time_rest(situation: Situation) -> float | None:
    """The seconds of what a limit of time has left out of the call, with all its data sets and models.

    Each metric and explainer has done as many samples as its jobs say. The checks are not counted: they have a number
    of samples of their own.
    """
    labels = {metric.label for metric in situation.summary.metrics}
    is_done = pl.col("status") == "done"
    is_timed = pl.col("seconds").is_not_null()
    is_metric = pl.col("label").is_in(labels)
    jobs = situation.jobs.filter(is_done, is_timed, is_metric)
    seconds_of_pool = pl.col("seconds").sum()
    samples_of_job = pl.col("stop") - pl.col("start")
    samples_of_pool = samples_of_job.sum()
    pools = jobs.group_by("data", "model", "explainer", "label", "repeat").agg(
        seconds_of_pool.alias("seconds"),
        samples_of_pool.alias("samples"),
    )
    if pools.is_empty():
        return None
    total_seconds = 0.0
    for data, seconds, samples in pools.select("data", "seconds", "samples").iter_rows():
        _, in_call = situation.limited_samples.get(data, (samples, samples))
        left = max(in_call - samples, 0)
        pace = seconds / samples
        total_seconds += pace * left
    return total_seconds


def _find_question(situation: Situation) -> NextStep | None:
    """A kind of question that was not asked of explainers that pass all others."""
    partial_groups = situation.verdict.partial_groups
    if partial_groups:
        members = max(partial_groups, key=len)
        names = tuple(partial.explainer for partial in members)
        return _ask(situation, names, members[0].missing)
    minutes = situation.summary.minutes
    if situation.summary.lacks_checks and minutes is not None:
        undecided = tuple(ground.explainer for ground in situation.verdict.undecided)
        # with twice the time, the checks are not left out
        return NextStep(
            "question", undecided, undecided, 60 * minutes, situation.samples, missing=("checks",)
        )
    return None


def _ask(
    situation: Situation, explainers: tuple[str, ...], missing: tuple[Kind, ...]
) -> NextStep | None:
    """The missing kinds of questions; None where their metrics were tried: it takes another one, or other changes."""
    tried = {metric.metric.metric for metric in situation.metrics}
    if any(METRIC_OF.get(kind) in tried for kind in missing):
        return None
    if "stability" in missing and not _has_default_neighbourhood(situation):
        return None
    return NextStep("question", explainers, explainers, samples=situation.samples, missing=missing)


def _has_default_neighbourhood(situation: Situation) -> bool:
    """Whether `evaluate` knows how far to change such inputs."""
    about = situation.about_data
    if "columns" in about:
        return "reference" in situation.call.options
    if about.get("texts"):
        return True
    bounds = about.get("bounds") or []
    return len(bounds) > 0 and all(low == high for low, high in bounds)


def _find_neighbourhood(situation: Situation) -> NextStep | None:
    """Changes that inputs undergo, where explainers do not hold in those that no input undergoes."""
    nearer_of: dict[str, tuple[Neighbourhood, ...]] = {}
    for metric in situation.metrics:
        neighbourhood = metric.metric.options.get("neighbourhood")
        if neighbourhood:
            nearer_of[metric.label] = _find_nearer(neighbourhood, situation.about_data)
    # where others hold or fail already under changes that inputs undergo, that is the answer
    if situation.verdict.show or not all(nearer_of.values()):
        return None
    blamed: set[str] = set()
    for unstable in situation.unstable:
        blamed.update(unstable.labels)
    labels = tuple(label for label in nearer_of if label in blamed)
    if not labels:
        return None
    changes = nearer_of[labels[0]]
    names = tuple(unstable.explainer for unstable in situation.unstable)
    seconds = _time_changes(situation, names, labels, len(changes))
    return NextStep(
        "neighbourhood", names, names, seconds, situation.samples, changes=changes, labels=labels
    )


def _time_changes(
    situation: Situation, explainers: Sequence[str], labels: Sequence[str], changes: int
) -> float | None:
    """The seconds of all metrics, of which some are evaluated once for each change."""
    once = situation.time([*explainers, *situation.summary.controls], situation.samples)
    placed = situation.time(explainers, situation.samples, labels)
    if once is None or placed is None:
        return None
    return once + (changes - 1) * placed


def _find_nearer(stored: Any, about: Mapping[str, Any]) -> tuple[Neighbourhood, ...]:
    """Changes that inputs of a kind undergo; none where the stored neighbourhood is one of them, or not known.

    Args:
        stored: the neighbourhood of a metric.
        about: what the manifest says of the data.
    """
    if "columns" in about:
        return _find_nearer_of_table(stored, about["columns"])
    ball = read_stored(stored)
    shape = about.get("input_shape") or ()
    bounds = about.get("bounds")
    if not isinstance(ball, LinfBall) or not bounds or about.get("tokens"):
        return ()
    width = bounds[1][0] - bounds[0][0]
    is_large = ball.radius > 1.01 * _SEEN_CHANGE * width
    if is_image(shape) and is_large:
        return _OF_IMAGES
    if len(shape) == 2 and is_large:
        return _OF_SERIES
    return ()


def _find_nearer_of_table(
    stored: Any, columns: Sequence[Mapping[str, Any]]
) -> tuple[Neighbourhood, ...]:
    """Numbers within their precision, where categories may become others: another category is another case."""
    changes = None
    if isinstance(stored, Mapping):
        changes = stored.get("changes")
    if not isinstance(changes, Mapping):
        return ()
    has_free_category = any(
        isinstance(change, Mapping) and change.get("categories") for change in changes.values()
    )
    if not has_free_category:
        return ()
    numbers = []
    for column in columns:
        if column.get("kind") == "number":
            numbers.append(str(column["name"]))
    reach = {name: (changes.get(name) or {}).get("by") or _PRECISION for name in numbers}
    if reach:
        return (TableChanges({name: Feature(by=by) for name, by in reach.items()}),)
    return ()


def _find_explainer(situation: Situation) -> NextStep | None:
    """A smoother explainer of the same family as one that does not hold, if it was not tried."""
    if situation.verdict.show or situation.about_data.get("texts"):
        return None
    stored = situation.manifest.get("explainers") or {}
    for unstable in situation.unstable:
        name = str((stored.get(unstable.explainer) or {}).get("name"))
        relative = SMOOTHER.get(name)
        if relative is None or situation.knows(relative.text):
            continue
        return NextStep(
            "explainer",
            (unstable.explainer,),
            evaluated=situation.candidates if situation.are_kept else (),
            seconds=_time_relative(situation, unstable.explainer, relative),
            samples=situation.samples,
            labels=unstable.labels,
            instead=relative.text,
        )
    return None


def _time_relative(situation: Situation, explainer: str, relative: Relative) -> float | None:
    """The seconds of a relative of an explainer: what asks for faithfulness predicts, and seldom explains."""
    faithfulness = [
        metric.label for metric in situation.metrics if metric.metric.spec.asks == "faithfulness"
    ]
    others = [
        label for name, label in situation.paces if name == explainer and label not in faithfulness
    ]
    explained = situation.time([explainer], situation.samples, others)
    if explained is None:
        return None
    predicted = situation.time([explainer], situation.samples, faithfulness) or 0.0
    if situation.are_kept:
        beside = 0.0
    else:
        beside = situation.time(situation.summary.controls, situation.samples) or 0.0
    return relative.times * explained + predicted + beside


def _find_race(situation: Situation) -> NextStep | None:
    """A race of the usual explainers, where several were asked, none may be shown, and no better one is known."""
    verdict = situation.verdict
    grounds = (*verdict.refuse, *verdict.undecided)
    is_chance = any(ground.question == "accuracy" for ground in grounds)
    passes_any = bool(verdict.show or verdict.partial)
    if len(situation.candidates) < 2 or not grounds or passes_any or is_chance:
        return None
    has_ranking_metric = any(metric.metric.spec.direction for metric in situation.metrics)
    if not has_ranking_metric or _find_explainer(situation) is not None:
        return None
    samples = max(situation.samples, _FEWEST_RACING)
    names = tuple(ground.explainer for ground in grounds)
    return NextStep("race", names, seconds=_time_race(situation, samples), samples=samples)


def _time_race(situation: Situation, samples: int) -> float | None:
    """The seconds of a race on so many samples, from what the explainers took here."""
    seconds = situation.time(situation.candidates, samples)
    if seconds is None:
        return None
    of_one = seconds / len(situation.candidates)
    return _TIMES_OF_RACING * _RACING * _SHARE_OF_RACE * of_one


def _find_training(situation: Situation) -> NextStep | None:
    """Another training of a network of images, where it is certain of every explainer that maps do not hold."""
    verdict = situation.verdict
    about = situation.about_model
    certain = [unstable for unstable in situation.unstable if unstable.is_certain]
    is_trained_here = bool(about.get("parameters")) and bool(about.get("of classes"))
    is_of_images = is_image(situation.about_data.get("input_shape") or ())
    if verdict.show or verdict.undecided or not certain or not (is_trained_here and is_of_images):
        return None
    names = tuple(unstable.explainer for unstable in certain)
    labels: dict[str, None] = {}
    for unstable in certain:
        labels |= dict.fromkeys(unstable.labels)
    return NextStep("training", names, samples=situation.samples, labels=tuple(labels))


#: each finds one step, or none
_FINDERS: tuple[FindStep, ...] = (
    _find_samples,
    _find_rest,
    _find_question,
    _find_neighbourhood,
    _find_explainer,
    _find_race,
    _find_training,
)
