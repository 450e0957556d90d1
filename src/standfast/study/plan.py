"""From a grid to jobs. A job is (data, model, explainer, metric, chunk of samples, repeat).

Its identity is a hash of everything that determines its result, so the store can tell which jobs are done. Its random
numbers come from the seed of the study, the repeat, and the content of each sample, and not from the explainer or the
chunk. So all explainers meet the same noise, and results do not depend on how samples are cut into jobs.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from standfast.display import say_step
from standfast.errors import StandfastError
from standfast.explainers import Explainer
from standfast.metrics.base import Metric, plain
from standfast.model import ROW_ALIGNMENT, Model, module_name
from standfast.question.grid import MOST_ANSWERS, Grid, ModelSource, Part, Samples
from standfast.segments import check_one_for_all
from standfast.study.identity import (
    Answers,
    Description,
    answer_rows,
    ask_explainer,
    ask_inputs,
    ask_model,
    ask_nearby,
    ask_reader,
    describe_model,
    find_composition,
)
from standfast.study.own_code import read_own_modules
from standfast.study.store import digest, tensor_digest
from standfast.tasks import read_common_words

#: a job takes about so many seconds, if the samples allow it, and at least so many where workers share a short study
_SECONDS, _LEAST_SECONDS = 20.0, 2.0
#: so many jobs for each of several workers keep all of them busy until nearly the end
_JOBS_PER_WORKER = 4
#: a job whose metric does not say what it costs has at most so many samples
_UNKNOWN = 4
#: about how many perturbed copies of a sample are held at once, and how many numbers those of a job may have: 1 GB
_COPIES, _ELEMENTS = 128, 1 << 28
#: a row is not expected to take less than this, with what is done beside it
_LEAST_PACE = 2e-5
#: about how many times as fast as the processors, where models are planned, a card is
_CARD = 50
#: asking an explainer of the user's takes about so long beside its explanations, of which it makes two
_ASKING, _ASKED = 0.2, 2
#: forward and backward together take about as long as three passes forward
_PASSES_WITH_GRADIENT = 3


@dataclass(frozen=True)
class Job:
    """One unit of work: a few samples of one data set, for one model, explainer, metric and repeat.

    Attributes:
        identity: the hash by which the store knows the job.
        label: of the configured metric.
        start, stop: the range of samples.
        work: about what the model does for the job, in forward passes of one row.
    """

    identity: str
    data: str
    model: str
    explainer: str
    label: str
    repeat: int
    start: int
    stop: int
    work: float


@dataclass(frozen=True, eq=False)
class _Source:
    """A model on a data set: what the identities of its jobs are made of.

    Attributes:
        samples, inputs: the data set, and its inputs as the model takes them.
        metrics: what is evaluated, by label, with the extras of the data set.
        described: digests of the metrics as they were configured.
    """

    samples: Samples
    inputs: Tensor
    metrics: Mapping[str, Metric]
    described: Mapping[str, str]
    # the jobs of all metrics and explainers have the same samples, whose digests are computed once
    _sample_digests: dict[tuple[int, int], list[str | None]] = field(default_factory=dict)
    _metric_digests: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def digest_samples(self, start: int, stop: int) -> list[str | None]:
        """The digests of the inputs and the targets of some samples."""
        samples = start, stop
        if samples not in self._sample_digests:
            targets_digest = None
            if self.samples.targets is not None:
                targets_digest = tensor_digest(self.samples.targets[start:stop])
            self._sample_digests[samples] = [
                tensor_digest(self.samples.inputs[start:stop]),
                targets_digest,
            ]
        return self._sample_digests[samples]

    def digest_metric(self, label: str, start: int, stop: int) -> str:
        """The digest of a metric with what it holds for some samples, such as masks."""
        cut_metric = label, start, stop
        if cut_metric not in self._metric_digests:
            metric = self.metrics[label]
            sliced = metric.bind(inputs=self.inputs, rows=slice(start, stop))
            holds_no_samples = sliced is metric
            self._metric_digests[cut_metric] = (
                self.described[label] if holds_no_samples else Description(sliced).digest
            )
        return self._metric_digests[cut_metric]


@dataclass(frozen=True, eq=False)
class _Pool:
    """The samples of a data set, for one model, explainer, metric and repeat, which are cut into jobs.

    The identity of a job is made of the samples and the metric, and of `combination`, `explained_by` and `seed`.

    Attributes:
        data, model, explainer, label: names, the last one of the metric.
        repeat: its number.
        combination: the digest of model and data.
        explained_by: the digests of the explainer, with what the metric does otherwise for it.
        seed: of the grid.
        movable: which samples have anything else in the metric's neighbourhood, bool `(N,)`; None where it has none.
        count: the number of samples.
        filling: how many samples fill a batch of the smallest size, if the metric takes turns; else 1. A job of fewer
            would take about as long.
        work: about what the model does for a sample, in forward passes of one row.
        seconds: about how long that takes.
        given: the samples of a job, if they are given.
    """

    source: _Source
    data: str
    model: str
    explainer: str
    label: str
    repeat: int
    combination: str
    explained_by: list[str]
    seed: int
    movable: Tensor | None
    metric: Metric
    count: int
    filling: int
    work: float
    seconds: float
    given: int | None

    @property
    def key(self) -> str:
        """A hash of all that its jobs have in common, but for the repeat and the seed."""
        names = [self.data, self.model, self.explainer, self.label]
        return digest(
            [*names, self.combination, self.explained_by, self.source.described[self.label]]
        )

    def choose_size(self, seconds: float) -> int:
        """How many samples a job gets that takes so many seconds."""
        affordable = int(seconds / self.seconds)
        size = max(1, min(self.count, self._count_that_fits(), max(affordable, self.filling)))
        jobs = math.ceil(self.count / size)
        return math.ceil(self.count / jobs)  # jobs of about the same size

    def _count_that_fits(self) -> int:
        """How many samples of a job fit into memory, with their perturbed copies."""
        says_no_cost = type(self.metric).cost is Metric.cost
        if says_no_cost:
            return _UNKNOWN
        evaluations = max(self.metric.cost(None).evaluations, 1)
        copies = min(evaluations, _COPIES)
        return _ELEMENTS // (copies * self.source.inputs[0].numel())

    def cut(self, size: int) -> list[Job]:
        """Jobs of so many samples; the last one may have fewer."""
        return [
            self._make_job(start, min(start + size, self.count))
            for start in range(0, self.count, size)
        ]

    def _make_job(self, start: int, stop: int) -> Job:
        consists_of: list[object] = [
            self.combination,
            self.source.digest_samples(start, stop),
            self.data,
            self.model,
            start,
            self.repeat,
            self.seed,
            self.label,
            self.source.digest_metric(self.label, start, stop),
            self.explainer,
            self.explained_by,
        ]
        still_samples = (
            [] if self.movable is None else (~self.movable[start:stop]).nonzero()[:, 0].tolist()
        )
        if still_samples:  # which earlier versions called stable, so that their jobs are others
            consists_of.append(still_samples)
        identity = digest(consists_of)
        names = self.data, self.model, self.explainer, self.label
        return Job(identity, *names, self.repeat, start, stop, (stop - start) * self.work)


@dataclass(frozen=True, eq=False)
class PlannedGrid(Grid):
    """A grid with what workers need to prove that they do the jobs that were planned.

    Attributes:
        planned: what each model answered when the jobs were planned, by `(data, model)`.
        code: the digests of the user's modules then.
    """

    planned: Mapping[tuple[str, str], Answers] = field(default_factory=dict, repr=False)
    code: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def extend(cls, grid: Grid, **learned: Any) -> PlannedGrid:
        """The grid with what planning learned: `planned`, `code` and `isolated`."""
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
    _pools: Sequence[_Pool] = field(default=(), repr=False)

    def continue_from(self, earlier: Mapping[str, Any]) -> Plan:
        """The plan with jobs of the same sizes as in the manifest of earlier results that answer the same question."""
        return self._cut_anew({**self.manifest["sizes"], **earlier.get("sizes", {})})

    def with_shorter_jobs(
        self, seconds: float, earlier: Mapping[str, Any], workers: int = 1
    ) -> Plan:
        """The plan with jobs as `make_plan` makes them for so many seconds, without asking the models again."""
        return self._cut_anew(
            _choose_sizes(self._pools, earlier.get("sizes", {}), workers, min(seconds, _SECONDS))
        )

    def _cut_anew(self, sizes: Mapping[str, int]) -> Plan:
        jobs = _cut(self._pools, sizes)
        manifest = {**self.manifest, "sizes": dict(sizes), "jobs": [job.identity for job in jobs]}
        return replace(self, jobs=jobs, manifest=manifest)


def make_plan(
    grid: Grid,
    about: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    workers: int = 1,
    seconds: float = _SECONDS,
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
    described = _Described(grid)
    remembered = _Remembered(earlier or {})
    pools: list[_Pool] = []
    about_models: dict[str, dict[str, Any]] = {}
    planned: dict[tuple[str, str], Answers] = {}
    own_code = described.own
    # one model after the other, as they may be large
    combinations = list(grid.combinations())
    for number, (data, model_name) in enumerate(combinations, start=1):
        if len(combinations) > 1:
            say_step(f"{model_name} on {data}, {number} of {len(combinations)}")
        meeting = _Meeting.begin(grid, data, model_name)
        own_code = own_code or meeting.has_own_code
        answers = meeting.ask()
        planned[data, model_name] = answers
        answers_digest = remembered.remember(answers, data, model_name, digest(meeting.network))
        about_models[model_name] = meeting.describe(answers_digest)
        # only the kind of the device counts, because results depend on it; "auto" leaves it to the worker
        device = grid.device.partition(":")[0]
        combination = digest(
            [meeting.content, answers_digest, device, *meeting.describe_reference()]
        )
        pace = _choose_pace(meeting, answers.pace, grid.device)
        pools += _make_pools(grid, described, meeting, remembered, combination, pace)
    sizes = _choose_sizes(pools, remembered.sizes, workers, min(seconds, _SECONDS))
    jobs = _cut(pools, sizes)
    code = read_own_modules() if own_code else {}
    planned_grid = PlannedGrid.extend(grid, planned=planned, code=code, isolated=described.isolated)
    question = digest([grid.samples_per_job, [pool.cut(pool.count)[0].identity for pool in pools]])
    manifest = _manifest(planned_grid, about_models, jobs, about, remembered.answers, sizes)
    return Plan(planned_grid, jobs, manifest, question, pools)


class _Described:
    """What the explainers and metrics of a grid consist of.

    Attributes:
        explainers, metrics: the digest of each, by name and by label.
        own_explainers: the names of explainers of the user's.
        isolated: the names of explainers with code that is not ours.
        own: whether any of them is code of the user's.
    """

    def __init__(self, grid: Grid) -> None:
        explainers = {name: Description(explainer) for name, explainer in grid.explainers.items()}
        metrics = {label: Description(metric) for label, metric in grid.measured.items()}
        self.explainers = {name: description.digest for name, description in explainers.items()}
        self.metrics = {label: description.digest for label, description in metrics.items()}
        self.own_explainers = {name for name, description in explainers.items() if description.own}
        self.isolated = tuple(
            name for name, description in explainers.items() if not description.bundled
        )
        self.own = bool(self.own_explainers) or any(
            description.own for description in metrics.values()
        )


@dataclass(frozen=True, eq=False)
class _Meeting:
    """A model that meets a data set.

    Attributes:
        data, name: of the data and of the model.
        inputs, targets: of the samples, as the model takes them.
        content: what the model consists of; the last entry are versions.
        parts: the first samples, as the model runs them together.
        outputs: for the first of the parts, where they are known already.
    """

    data: str
    name: str
    source: ModelSource
    samples: Samples
    model: Model
    inputs: Tensor
    targets: Tensor | None
    content: Sequence[Any]
    parts: Sequence[Part]
    outputs: Tensor | None

    @classmethod
    def begin(cls, grid: Grid, data: str, name: str) -> _Meeting:
        """The model, built and checked with the data.

        Raises:
            ArgumentError: inputs or targets do not fit it; an explainer holds label maps for single samples.
        """
        samples, source = grid.data[data], grid.models[name]
        tried = grid.tried.get((data, name))
        model = source.model(samples, "cpu") if tried is None else tried.model
        inputs, targets = inputs_for(model, samples, None if tried is None else tried.inputs)
        model.warn_of_units(inputs)
        for explainer in grid.explainers.values():
            check_one_for_all(explainer, inputs)
        # before forward runs, which may change attributes
        content = describe_model(model, source.about)
        parts = samples.split(model, slice(0, MOST_ANSWERS))
        outputs = None if tried is None else tried.outputs
        return cls(data, name, source, samples, model, inputs, targets, content, parts, outputs)

    @property
    def network(self) -> Sequence[Any]:
        """What the model consists of, without versions: the same after an upgrade."""
        return self.content[:-1]

    @property
    def has_own_code(self) -> bool:
        """Whether code of the user's is a part of the model."""
        return bool(self.content[4])

    @property
    def first_inputs(self) -> Tensor:
        """The inputs of the first part."""
        return self.parts[0].take(self.inputs)

    @property
    def first_targets(self) -> Tensor | None:
        """The targets of the first part."""
        return None if self.targets is None else self.targets[self.parts[0].rows]

    def ask(self) -> Answers:
        """What the model answers.

        Raises:
            ModelError: it answers differently each time, or depending on the other inputs of the batch.
        """
        first = self.parts[0].model
        outputs = answer_rows(first, self.first_inputs) if self.outputs is None else self.outputs
        first.check_repeatable(self.first_inputs, in_batches=True, outputs=outputs)
        answers = [ask_model(first, self.first_inputs, outputs)]
        answers += [ask_inputs(part.model, part.take(self.inputs)) for part in self.parts[1:]]
        return Answers.join(answers)

    def describe(self, answers: str) -> dict[str, Any]:
        """What the manifest says of the model, of whose answers there is a hash."""
        model = self.model
        return {
            "module": module_name(model.module),
            "parameters": sum(p.numel() for p in model.module.parameters()),
            "task": repr(model.task),
            "kept": model.task.kept,
            "of classes": model.task.classes,
            "words": vars(model.task.words),
            "same within": model.task.same_within
            if math.isfinite(model.task.same_within)
            else None,
            "digest": digest([self.content, answers]),
            "network": digest([self.network, answers]),
            **self.source.about,
        }

    def describe_reference(self) -> list[Any]:
        """What results depend on of the values that replace others."""
        reference = self.model.with_reference(self.inputs).reference
        if reference is None:
            return []
        rows = [tensor_digest(reference.rows), tensor_digest(reference.baseline)]
        return rows if reference.codes is None else [*rows, Description(reference.codes).content]


def _make_pools(
    grid: Grid,
    described: _Described,
    meeting: _Meeting,
    answers: _Remembered,
    combination: str,
    pace: float,
) -> list[_Pool]:
    """The samples of a data set for one model, once for each metric and explainer.

    Args:
        grid: whose parts they are.
        described: its explainers and metrics.
        meeting: of the model and the data.
        answers: remembers what explainers and models answer.
        combination: the digest of model and data.
        pace: seconds that the model takes for a row.
    """
    explained_by, slowness = _ask_explainers(grid, described, meeting, answers)
    nearby = _ask_nearby(grid, meeting, answers)
    extras = meeting.samples.extras
    bound = {label: metric.bind(extras=extras) for label, metric in grid.measured.items()}
    source = _Source(meeting.samples, meeting.inputs, bound, described.metrics)
    movable_by = {label: _find_movable(metric, meeting) for label, metric in grid.measured.items()}
    pools: list[_Pool] = []
    for repeat, label, metric in _list_evaluations(grid):
        together = metric.samples_together
        count = len(meeting.samples) if together is None else min(len(meeting.samples), together)
        costed = metric.bind(inputs=meeting.inputs)
        explanations = costed.cost(meeting.model.classes).explanations
        for name in grid.explainers_of(metric):
            work = expected_work(costed, grid.explainers[name], meeting.model.classes)
            explainer_parts = [*explained_by[name], *nearby.get(label, [])]
            explainer_parts += _describe_pair(metric, grid.explainers[name])
            pool = _Pool(
                source=source,
                data=meeting.data,
                model=meeting.name,
                explainer=name,
                label=label,
                repeat=repeat,
                combination=combination,
                explained_by=explainer_parts,
                seed=grid.seed,
                movable=movable_by[label],
                metric=metric,
                count=count,
                filling=_count_filling(metric, grid.explainers[name]),
                work=work,
                seconds=work * pace + explanations * slowness[name],
                given=grid.samples_per_job if together is None else count,
            )
            pools.append(pool)
    return pools


def _find_movable(metric: Metric, meeting: _Meeting) -> Tensor | None:
    """Which samples have anything else in the neighbourhood of a metric, bool `(N,)`; None where it has none."""
    neighbourhood = metric.neighbourhood_in_use
    if neighbourhood is None:
        return None
    try:
        return neighbourhood.find_movable(meeting.inputs, meeting.model.bounds).cpu()
    except StandfastError:  # it does not fit the inputs, as each job will say
        return None


def _count_filling(metric: Metric, explainer: Explainer) -> int:
    """How many samples of a metric that takes turns fill the rows that a model runs at least; 1 for other metrics."""
    if not metric.takes_turns:
        return 1
    return math.ceil(ROW_ALIGNMENT / explainer.rows_per_input)


def _describe_pair(metric: Metric, explainer: Explainer) -> list[str]:
    """The digest of what a metric is for an explainer, where it is another one than for the rest; else nothing."""
    paired = metric.bind(explainer=explainer)
    is_other = paired is not metric and Description(paired).content != Description(metric).content
    return [Description(paired).digest] if is_other else []


def _choose_sizes(
    pools: Sequence[_Pool], earlier_sizes: Mapping[str, int], workers: int, limit: float
) -> dict[str, int]:
    """How many samples the jobs of each pool get, by its key; as in earlier results, or by the time that they take."""
    total = sum(pool.seconds * pool.count for pool in pools)
    if workers > 1:
        limit = max(_LEAST_SECONDS, min(limit, total / (workers * _JOBS_PER_WORKER)))
    cut_freely = [pool for pool in pools if pool.metric.samples_together is None]
    return {
        pool.key: pool.given or earlier_sizes.get(pool.key) or pool.choose_size(limit)
        for pool in cut_freely
    }


def _list_evaluations(grid: Grid) -> list[tuple[int, str, Metric]]:
    """The number of the repeat, the label and the metric of all that is evaluated; the sanity checks come first."""
    evaluations = [
        (repeat, label, metric)
        for repeat in range(grid.repeats)
        for label, metric in grid.metrics.items()
    ]
    return (
        evaluations if grid.sanity is None else [(0, grid.sanity.name, grid.sanity), *evaluations]
    )


def _ask_explainers(
    grid: Grid, described: _Described, meeting: _Meeting, remembered: _Remembered
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """What the identity of each explainer is made of, and the seconds that a slow explanation of it takes.

    Some are compared by their maps, too: those of the user's, and those that read the inside of a black box.
    """
    explained_by = {name: [own_digest] for name, own_digest in described.explainers.items()}
    slowness = dict.fromkeys(grid.explainers, 0.0)
    first_samples = meeting.parts[0].model, meeting.first_inputs, meeting.first_targets
    for name, explainer in grid.explainers.items():
        if name in described.own_explainers:
            began = time.perf_counter()
            maps = ask_explainer(explainer, *first_samples)
            slowness[name] = max(0.0, time.perf_counter() - began - _ASKING) / _ASKED
        elif explainer.reads_inside and find_composition(meeting.model) is not None:
            maps = ask_reader(explainer, *first_samples)
        else:
            continue
        explained_by[name].append(
            remembered.remember(maps, meeting.data, meeting.name, described.explainers[name])
        )
    return explained_by, slowness


def _ask_nearby(grid: Grid, meeting: _Meeting, remembered: _Remembered) -> dict[str, list[str]]:
    """What a black box that says what it consists of answers to copies of the inputs, as metrics make them.

    Returns:
        By the label of each metric with a neighbourhood a hash of the answers to some of its copies.
    """
    if find_composition(meeting.model) is None:
        return {}
    answers_of: dict[str, Answers] = {}
    nearby: dict[str, list[str]] = {}
    for label, metric in grid.measured.items():
        neighbourhood = metric.neighbourhood_in_use
        if neighbourhood is None:
            continue
        around = Description(neighbourhood).digest
        if around not in answers_of:
            # of texts the first length alone: with a hundred of them it would take minutes
            first = meeting.parts[0].model
            answers_of[around] = ask_nearby(first, neighbourhood, meeting.first_inputs)
        what = digest([around, meeting.network])
        nearby[label] = [remembered.remember(answers_of[around], meeting.data, meeting.name, what)]
    return nearby


def _choose_pace(meeting: _Meeting, pace: float, device: str) -> float:
    """Seconds that a worker on `device` takes for a forward pass of one row, by the `pace` here."""
    if math.isinf(pace):  # the model fails, and the jobs say why
        return _LEAST_PACE
    on_card = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return max(pace / (_CARD if on_card and meeting.model.device.type == "cpu" else 1), _LEAST_PACE)


def _cut(pools: Sequence[_Pool], sizes: Mapping[str, int]) -> list[Job]:
    """The jobs of all pools. Those of a model and a data set that have the same samples follow each other."""
    jobs: list[Job] = []
    for _, pools_of_source in groupby(pools, key=lambda pool: id(pool.source)):
        jobs_of_source: list[Job] = []
        for pool in pools_of_source:
            jobs_of_source += pool.cut(pool.given or sizes[pool.key])
        jobs += sorted(jobs_of_source, key=lambda job: (job.repeat, job.start))
    return jobs


class _Remembered:
    """The answers of this plan, for the manifest; in the place of those that differ from earlier ones by rounding only.

    Args:
        earlier: the manifest of earlier results.
    """

    def __init__(self, earlier: Mapping[str, Any]) -> None:
        self.earlier: Mapping[str, Mapping[str, str]] = earlier.get("answers", {})
        self.answers: dict[str, dict[str, str]] = {}
        self.sizes: Mapping[str, int] = earlier.get("sizes", {})

    def remember(self, asked: Answers, data: str, model: str, what: str) -> str:
        """A hash of the answers, or of the earlier ones of the same thing (`what`, a hash) if they are the same.

        A study that has grown has more inputs: then those that both know are compared.
        """
        key = digest([data, model, what])
        stored = self.earlier.get(key, {})
        before = Answers.from_plain(
            {name: text for name, text in stored.items() if name != "identity"}
        )
        is_same = bool(before.numbers) and not before.find_difference(asked)
        if not is_same:
            identity = digest(asked.plain)
            self.answers[key] = {"identity": identity, **asked.plain}
            return identity
        # the longer answers can be compared with more samples later
        longer = before if len(before) > len(asked) else asked
        self.answers[key] = {"identity": stored["identity"], **longer.plain}
        return stored["identity"]


def expected_work(metric: Metric, explainer: Explainer, classes: int | None) -> float:
    """About what a model of so many classes does for one sample, in forward passes of one row."""
    cost = metric.cost(classes)
    return cost.explanations * count_passes(explainer) + cost.predictions


def count_passes(explainer: Explainer) -> int:
    """About how long an explanation of an input takes, in forward passes of one row."""
    if explainer.needs.gradients:
        return explainer.rows_per_input * _PASSES_WITH_GRADIENT
    return explainer.rows_per_input


def inputs_for(
    model: Model, samples: Samples, checked: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The inputs and targets in the model's type and on its device.

    Args:
        model: which takes them.
        samples: whose they are.
        checked: the inputs, if they were checked with the model before.

    Raises:
        ArgumentError: they do not fit the model.
    """
    inputs = model.check_inputs(samples.inputs.to(model.dtype)) if checked is None else checked
    if samples.targets is None:
        return inputs, None
    part = samples.split(model)[0]  # a task makes answers of targets, wherever they are used
    part.model.check_targets(samples.targets[part.rows], part.take(inputs))
    return inputs, samples.targets.to(inputs.device)


def job_seed(seed: int, repeat: int) -> int:
    """The seed of a repeat; the first repeat has the seed of the study.

    >>> job_seed(7, 0), job_seed(7, 1) != job_seed(7, 2)
    (7, True)
    """
    if repeat == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{repeat}".encode()).digest()[:7], "big")


def describe_grid(grid: Grid) -> dict[str, Any]:
    """The part of the manifest that is known before a model is built: nothing about the models, and no jobs."""
    return _manifest(grid, {name: {} for name in grid.models}, [], None, {}, {})


def _manifest(
    grid: Grid,
    models: Mapping[str, Any],
    jobs: list[Job],
    about: Mapping[str, Any] | None,
    answers: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    data = {name: _describe_samples(samples) for name, samples in grid.data.items()}
    words = read_common_words(models.values())
    metrics = {
        label: {
            "metric": metric.name,
            "direction": metric.direction,
            "values": metric.describe_values(words),
            "controls": metric.controls,
            "citation": metric.bibtex or metric.citation,
            "options": metric.options(),
        }
        for label, metric in grid.metrics.items()
    }
    return {
        "seed": grid.seed,
        "repeats": grid.repeats,
        "samples_per_job": grid.samples_per_job,
        "sizes": dict(sizes),
        "device": grid.device,
        "data": data,
        "models": dict(models),
        "pairs": [list(pair) for pair in grid.combinations()],
        "explainers": {name: plain(explainer) for name, explainer in grid.explainers.items()},
        "signs": {name: explainer.has_signs for name, explainer in grid.explainers.items()},
        "measures": {
            name: [explainer.measures, explainer.scale_of_values]
            for name, explainer in grid.explainers.items()
        },
        "controls": [
            name
            for name, explainer in grid.explainers.items()
            if explainer.control or name in grid.controls
        ],
        "metrics": metrics,
        "sanity": None if grid.sanity is None else grid.sanity.options(),
        "misfits": grid.misfits(),
        "about": {**grid.about, **(about or {})},
        "code": dict(grid.code) if isinstance(grid, PlannedGrid) else {},
        "answers": dict(answers),
        "jobs": [job.identity for job in jobs],
    }


def _describe_samples(samples: Samples) -> dict[str, Any]:
    """What the manifest says of a data set."""
    lower, upper = map(torch.as_tensor, samples.bounds)
    content: dict[str, Any] = {
        "samples": len(samples),
        "input_shape": list(samples.inputs.shape[1:]),
        "bounds": [
            [float(lower.min()), float(lower.max())],
            [float(upper.min()), float(upper.max())],
        ],
        "targets": "predicted" if samples.targets is None else "given",
        "digest": tensor_digest(samples.inputs),
    }
    if samples.targets is not None:
        content["targets_digest"] = tensor_digest(samples.targets)
    extras = {name: tensor_digest(values) for name, values in samples.extras.items()}
    labels = extras.pop("labels", None)  # which the accuracy alone depends on
    if extras:
        content["extras"] = extras
    if labels is not None:
        content["labels_digest"] = labels
    if samples.features is not None:
        content["features"] = list(samples.features)
    if samples.tokens is not None:
        content["tokens"] = [list(words) for words in samples.tokens]
    if samples.sample_names is not None:
        content["sample_names"] = list(samples.sample_names)
    return {**content, **samples.about}
