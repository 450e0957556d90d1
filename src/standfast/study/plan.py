"""`make_plan`: from a grid to jobs. A job is (data, model, explainer, metric, chunk of samples, repeat).

The way: each model meets its data and is asked for its answers (`meeting`); all samples of an explainer and a metric
become a pool; pools are cut into jobs of some twenty seconds (`jobs`); the manifest says what was planned (`manifest`).

The identity of a job is a hash of everything that determines its result (`identity`), so the store can tell which jobs
are done. Its random numbers come from the seed of the study, the repeat, and the content of each sample, and not from
the explainer or the chunk. So all explainers meet the same noise, and results do not depend on the cut.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from standfast.display import say_step
from standfast.errors import StandfastError
from standfast.explainers import Explainer
from standfast.metrics.base import Metric
from standfast.model import ROW_ALIGNMENT
from standfast.question.grid import Grid
from standfast.study.answers import (
    AnswerNumbers,
    ask_explainer,
    ask_nearby,
    ask_reader,
    find_composition,
)
from standfast.study.identity import Description
from standfast.study.jobs import (
    SECONDS,
    Job,
    ModelOnData,
    Pool,
    choose_sizes,
    cut_pools,
    expected_work,
)
from standfast.study.manifest import describe_grid
from standfast.study.meeting import AnswerMemory, Meeting
from standfast.study.own_code import read_own_modules
from standfast.study.store import digest

#: a row is not expected to take less than so many seconds, with what is done beside it
_LEAST_PACE = 2e-5
#: about how many times as fast as the processors, where models are planned, a card is
_SPEED_OF_CARD = 50
#: asking an explainer of the user's takes so many seconds beside its explanations, about
_SECONDS_OF_ASKING = 0.2
#: and it makes so many of them
_EXPLANATIONS_ASKED = 2


@dataclass(frozen=True, eq=False)
class PlannedGrid(Grid):
    """A grid with what workers need to prove that they do the jobs that were planned.

    Attributes:
        planned_answers: what each model answered when the jobs were planned, by `(data, model)`.
        code: the digests of the user's modules then.
    """

    planned_answers: Mapping[tuple[str, str], AnswerNumbers] = field(
        default_factory=dict, repr=False
    )
    code: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def extend(cls, grid: Grid, **learned: Any) -> PlannedGrid:
        """The grid with what planning learned: `planned_answers`, `code` and `isolated`."""
        # all fields, so that a new one of `Grid` is not forgotten
        parts = {part.name: getattr(grid, part.name) for part in fields(Grid)}
        # outputs may be as large as images, and nobody needs them any more
        tried = {pair: trial._replace(outputs=None) for pair, trial in grid.tried.items()}
        return cls(**{**parts, "tried": tried, **learned})


@dataclass(frozen=True, eq=False)
class Plan:
    """The jobs of a grid, in the order in which they should be done, and the manifest of the grid.

    Attributes:
        question: a hash of everything that is evaluated. It does not depend on how samples are cut into jobs, unless
            the grid says so.
    """

    grid: PlannedGrid
    jobs: list[Job]
    manifest: dict[str, Any] = field(repr=False)
    question: str = ""
    _pools: Sequence[Pool] = field(default=(), repr=False)

    def continue_from(self, earlier: Mapping[str, Any]) -> Plan:
        """The plan with jobs of the same sizes as in the manifest of earlier results that answer the same question.

        It is for earlier results that are found by `question`, and so only after the plan is made. Where they are known
        before, `make_plan(earlier=...)` also keeps the earlier answers.
        """
        return self._cut_anew({**self.manifest["sizes"], **earlier.get("sizes", {})})

    def with_shorter_jobs(
        self, seconds: float, earlier: Mapping[str, Any], workers: int = 1
    ) -> Plan:
        """The plan with jobs as `make_plan` makes them for so many seconds, without asking the models again."""
        earlier_sizes = earlier.get("sizes", {})
        return self._cut_anew(choose_sizes(self._pools, earlier_sizes, workers, seconds))

    # the identities change with the cut, so the manifest has to list the new ones
    def _cut_anew(self, sizes: Mapping[str, int]) -> Plan:
        jobs = cut_pools(self._pools, sizes)
        manifest = {**self.manifest, "sizes": dict(sizes), "jobs": [job.identity for job in jobs]}
        return replace(self, jobs=jobs, manifest=manifest)


def make_plan(
    grid: Grid,
    about: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    workers: int = 1,
    seconds: float = SECONDS,
) -> Plan:
    """Make all jobs of a grid. Every model is built once, checked with its data, and asked for its answers.

    Without `samples_per_job` a job gets as many samples as take about 20 seconds, by the time that the model has taken
    for its answers, and fit into memory.

    Args:
        grid: what to evaluate.
        about: the title and other facts, for the manifest.
        earlier: the manifest of results that the plan may continue. Where its models answered the same but for
            rounding, its jobs keep their identities and sizes.
        workers: how many share the jobs; then a short study has smaller ones.
        seconds: how long a job may take, about; at most 20.

    Raises:
        ArgumentError: inputs or targets do not fit a model; a metric holds values for another number of samples, or
            names extras that the data do not have; an explainer holds label maps for single samples.
        ModelError: a model answers differently each time, or depending on the other inputs of the batch.
    """
    earlier = earlier or {}
    configurations = _Configurations(grid)
    memory = AnswerMemory(earlier.get("answers", {}))
    has_user_code = configurations.has_user_code
    about_models: dict[str, dict[str, Any]] = {}
    planned_answers: dict[tuple[str, str], AnswerNumbers] = {}
    pools: list[Pool] = []
    # one model after the other, as they may be large
    combinations = list(grid.combinations())
    for number, (data, model_name) in enumerate(combinations, start=1):
        if len(combinations) > 1:
            say_step(f"{model_name} on {data}, {number} of {len(combinations)}")
        meeting = Meeting.begin(grid, data, model_name)
        has_user_code = has_user_code or meeting.has_user_code
        answers = meeting.ask()
        planned_answers[data, model_name] = answers
        # without versions, so that after an upgrade the earlier answers of the same model are there to compare
        network_digest = digest(meeting.content.without_versions)
        answers_digest = memory.remember(answers, data, model_name, network_digest)
        about_models[model_name] = meeting.describe(answers_digest)
        pair = _make_pair(grid, configurations, meeting, answers_digest)
        explanations = _ask_explainers(grid, configurations, meeting, memory)
        copies_digests = _ask_copies(grid, meeting, memory)
        pace = _choose_pace(meeting, answers.pace, grid.device)
        pools += _make_pools(grid, meeting, pair, explanations, copies_digests, pace)
    sizes = choose_sizes(pools, earlier.get("sizes", {}), workers, seconds)
    jobs = cut_pools(pools, sizes)
    code = read_own_modules() if has_user_code else {}
    jobs_and_answers = {
        "sizes": sizes,
        "code": dict(code),
        "answers": memory.answers,
        "jobs": [job.identity for job in jobs],
    }
    manifest = describe_grid(grid, about_models, about) | jobs_and_answers
    # as if each pool were one job, so that the question does not depend on the cut
    whole_pools = [pool.cut(pool.count)[0].identity for pool in pools]
    # the user's own number of samples is asked for, and so a part of the question
    question = digest([grid.samples_per_job, whole_pools])
    isolated = configurations.isolated
    planned_grid = PlannedGrid.extend(
        grid, planned_answers=planned_answers, code=code, isolated=isolated
    )
    return Plan(planned_grid, jobs, manifest, question, pools)


class _Configurations:
    """What the explainers and metrics of a grid consist of.

    Attributes:
        explainers, metrics: the digest of each, by name and by label.
        user_explainers: the names of explainers with code of the user's.
        isolated: the names of explainers that are not bundled, which run in workers of their own. Bundled is what has
            no code but that of standfast, and of packages that it needs or has an adapter for.
        has_user_code: whether code of the user's is a part of any explainer or metric.
    """

    def __init__(self, grid: Grid) -> None:
        explainers = {name: Description(explainer) for name, explainer in grid.explainers.items()}
        # the metrics and the sanity checks
        metrics = {label: Description(metric) for label, metric in grid.measured.items()}
        self.explainers = {name: content.digest for name, content in explainers.items()}
        self.metrics = {label: content.digest for label, content in metrics.items()}
        self.user_explainers = {name for name, content in explainers.items() if content.own}
        self.isolated = tuple(name for name, content in explainers.items() if not content.bundled)
        has_user_metrics = any(content.own for content in metrics.values())
        self.has_user_code = bool(self.user_explainers) or has_user_metrics


def _make_pair(
    grid: Grid, configurations: _Configurations, meeting: Meeting, answers_digest: str
) -> ModelOnData:
    """What all jobs of a model on a data set share."""
    # only the kind of the device counts, because results depend on it; "auto" leaves it to the worker
    device = grid.device.partition(":")[0]
    reference = meeting.describe_reference()
    extras = meeting.samples.extras
    return ModelOnData(
        data=meeting.data,
        model=meeting.name,
        # with versions, as another version of standfast or torch may give other results
        digest=digest([meeting.content.whole, answers_digest, device, *reference]),
        samples=meeting.samples,
        inputs=meeting.inputs,
        metrics={label: metric.bind(extras=extras) for label, metric in grid.measured.items()},
        metric_digests=configurations.metrics,
    )


@dataclass(frozen=True)
class _Explanations:
    """What is known of the explanations of one explainer for one model.

    Attributes:
        digests: of the explainer, and of its maps where it is identified by them.
        seconds: that a slow explanation takes beside the passes of the model.
    """

    digests: list[str]
    seconds: float


def _ask_explainers(
    grid: Grid, configurations: _Configurations, meeting: Meeting, memory: AnswerMemory
) -> dict[str, _Explanations]:
    """What is known of each explainer, by its name.

    Some are identified by the maps that they make, and not only by their code: those of the user's, and those that read
    the inside of a black box.
    """
    # an explainer is asked with these: the model of the first samples, their inputs, and what is explained of them
    model_and_samples = meeting.parts[0].model, meeting.first_inputs, meeting.first_targets
    is_black_box = find_composition(meeting.model) is not None
    explanations: dict[str, _Explanations] = {}
    for name, explainer in grid.explainers.items():
        digests = [configurations.explainers[name]]
        seconds = 0.0
        maps: AnswerNumbers | None = None
        if name in configurations.user_explainers:
            began = time.perf_counter()
            maps = ask_explainer(explainer, *model_and_samples)
            took = time.perf_counter() - began
            # asking it also starts a process, which says nothing of its pace
            seconds = max(0.0, took - _SECONDS_OF_ASKING) / _EXPLANATIONS_ASKED
        elif explainer.reads_inside and is_black_box:
            maps = ask_reader(explainer, *model_and_samples)
        if maps is not None:
            digests.append(memory.remember(maps, meeting.data, meeting.name, digests[0]))
        explanations[name] = _Explanations(digests, seconds)
    return explanations


def _ask_copies(grid: Grid, meeting: Meeting, memory: AnswerMemory) -> dict[str, list[str]]:
    """What a black box answers to some copies of the inputs, as metrics make them: its own code does not tell.

    Returns:
        By the label of each metric with a neighbourhood a hash of the answers to some of its copies.
    """
    if find_composition(meeting.model) is None:
        return {}
    answers_in: dict[str, AnswerNumbers] = {}
    copies_digests: dict[str, list[str]] = {}
    for label, metric in grid.measured.items():
        neighbourhood = metric.neighbourhood_in_use
        if neighbourhood is None:
            continue
        around = Description(neighbourhood).digest
        # several metrics may share a neighbourhood
        if around not in answers_in:
            # of texts the first length alone: with a hundred of them it would take minutes
            first = meeting.parts[0].model
            answers_in[around] = ask_nearby(first, neighbourhood, meeting.first_inputs)
        what = digest([around, meeting.content.without_versions])
        remembered = memory.remember(answers_in[around], meeting.data, meeting.name, what)
        copies_digests[label] = [remembered]
    return copies_digests


def _choose_pace(meeting: Meeting, pace: float, device: str) -> float:
    """Seconds that a worker on `device` takes for a forward pass of one row, by the `pace` of the model here."""
    if math.isinf(pace):  # the model fails, and the jobs say why
        return _LEAST_PACE
    runs_on_card = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if runs_on_card and meeting.model.device.type == "cpu":
        pace /= _SPEED_OF_CARD
    return max(pace, _LEAST_PACE)


def _make_pools(
    grid: Grid,
    meeting: Meeting,
    pair: ModelOnData,
    explanations: Mapping[str, _Explanations],
    copies_digests: Mapping[str, list[str]],
    pace: float,
) -> list[Pool]:
    """The samples of a data set for one model, once for each metric and explainer.

    Args:
        grid: whose parts they are.
        meeting: of the model and the data.
        pair: the data and the digests that their jobs share, without the model, as pools keep it.
        explanations: by the names of the explainers.
        copies_digests: of the answers to copies of the inputs, by label.
        pace: seconds that the model takes for a row.
    """
    classes = meeting.model.classes
    movable_by = {label: _find_movable(metric, meeting) for label, metric in grid.measured.items()}
    pools: list[Pool] = []
    for repeat, label, metric in _list_evaluations(grid):
        count = len(meeting.samples)
        samples_per_job = grid.samples_per_job
        # a metric that compares samples with each other, as the sanity checks do, has one job: with the first
        # `samples_together` samples, and without the rest
        if metric.samples_together is not None:
            count = samples_per_job = min(count, metric.samples_together)
        # `bind` returns the metric with what it takes from the data, or for an explainer; `Pool.metric` stays as it was
        # configured, since each job binds it to its own samples
        costed = metric.bind(inputs=meeting.inputs)
        maps_per_sample = costed.cost(classes).explanations
        for name in grid.explainers_of(metric):
            explainer = grid.explainers[name]
            work = expected_work(costed, explainer, classes)
            pool = Pool(
                pair=pair,
                explainer=name,
                label=label,
                repeat=repeat,
                # in this order, as it is a part of the identity of stored jobs
                explanation_digests=[
                    *explanations[name].digests,
                    *copies_digests.get(label, []),
                    *_describe_bound(metric, explainer),
                ],
                seed=grid.seed,
                movable=movable_by[label],
                metric=metric,
                count=count,
                filling=_count_filling(metric, explainer),
                work=work,
                seconds=work * pace + maps_per_sample * explanations[name].seconds,
                samples_per_job=samples_per_job,
            )
            pools.append(pool)
    return pools


def _list_evaluations(grid: Grid) -> list[tuple[int, str, Metric]]:
    """The number of the repeat, the label and the metric of all that is evaluated; the sanity checks come first."""
    evaluations: list[tuple[int, str, Metric]] = []
    if grid.sanity is not None:
        evaluations.append((0, grid.sanity.name, grid.sanity))
    for repeat in range(grid.repeats):
        evaluations += [(repeat, label, metric) for label, metric in grid.metrics.items()]
    return evaluations


def _find_movable(metric: Metric, meeting: Meeting) -> Tensor | None:
    """Which samples have any input but themselves in the neighbourhood of a metric, bool `(N,)`; None if not known."""
    neighbourhood = metric.neighbourhood_in_use
    if neighbourhood is None:
        return None
    try:
        return neighbourhood.find_movable(meeting.inputs, meeting.model.bounds).cpu()
    except StandfastError:  # it does not fit the inputs, as each job will say
        return None


def _count_filling(metric: Metric, explainer: Explainer) -> int:
    """How many samples of a metric that takes turns fill half of the smallest padded batch; 1 for other metrics."""
    if not metric.takes_turns:
        return 1
    return math.ceil(ROW_ALIGNMENT / explainer.rows_per_input)


def _describe_bound(metric: Metric, explainer: Explainer) -> list[str]:
    """The digest of the metric bound to this explainer, as a list of one; an empty list where that changes nothing."""
    bound = metric.bind(explainer=explainer)
    if bound is metric:
        is_other = False
    else:
        is_other = Description(bound).content != Description(metric).content
    if is_other:
        return [Description(bound).digest]
    return []
