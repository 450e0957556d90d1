"""How samples are cut into jobs, and what the identity of a job is made of.

A pool is all samples of a data set, for one model, explainer, metric and repeat. It is cut into jobs of a few samples
each, so that several workers can share it, and so that an interruption loses little. Results do not depend on the cut.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor

from standfast.explainers import Explainer
from standfast.metrics.base import Metric
from standfast.question.grid import Samples
from standfast.study.identity import Description
from standfast.study.store import digest, tensor_digest

#: a job takes about so many seconds, if the samples allow it
SECONDS = 20.0
#: and at least so many, where workers share a short study
_LEAST_SECONDS = 2.0
#: so many jobs for each of several workers keep all of them busy until nearly the end
_JOBS_PER_WORKER = 4
#: samples of a job whose metric does not say what it costs, at most
_SAMPLES_OF_UNKNOWN_COST = 4
#: about how many perturbed copies of a sample are held at once
_COPIES_AT_ONCE = 128
#: how many numbers the copies of a job may have: 1 GB
_MOST_NUMBERS = 1 << 28
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


def job_seed(seed: int, repeat: int) -> int:
    """The seed of a repeat; the first repeat has the seed of the study.

    >>> job_seed(7, 0), job_seed(7, 1) != job_seed(7, 2)
    (7, True)
    """
    if repeat == 0:
        return seed
    digest_of_both = hashlib.sha256(f"{seed}/{repeat}".encode()).digest()
    # 7 bytes fit into a whole number of 64 bits with a sign
    return int.from_bytes(digest_of_both[:7], "big")


def expected_work(metric: Metric, explainer: Explainer, classes: int | None) -> float:
    """About what a model of so many classes does for one sample, in forward passes of one row."""
    cost = metric.cost(classes)
    return cost.explanations * count_passes(explainer) + cost.predictions


def count_passes(explainer: Explainer) -> int:
    """About how long an explanation of an input takes, in forward passes of one row."""
    if explainer.needs.gradients:
        return explainer.rows_per_input * _PASSES_WITH_GRADIENT
    return explainer.rows_per_input


@dataclass(frozen=True, eq=False)
class ModelOnData:
    """A data set with a model, and the digests that its jobs share. It holds no model, since models may be large.

    Attributes:
        data, model: names.
        digest: of what the model consists of and answers, and of where it runs.
        samples, inputs: the data set, and its inputs as the model takes them.
        metrics: what is evaluated, by label, with the extras of the data set.
        metric_digests: of the metrics as they were configured, by label.
    """

    data: str
    model: str
    digest: str
    samples: Samples
    inputs: Tensor
    metrics: Mapping[str, Metric]
    metric_digests: Mapping[str, str]
    # the jobs of all metrics and explainers have the same samples, whose digests are computed once
    _digests_of_samples: dict[tuple[int, int], list[str | None]] = field(default_factory=dict)
    _digests_of_cut_metrics: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def digest_samples(self, start: int, stop: int) -> list[str | None]:
        """The digests of the inputs and the targets of some samples."""
        key = start, stop
        if key not in self._digests_of_samples:
            targets_digest = None
            if self.samples.targets is not None:
                targets_digest = tensor_digest(self.samples.targets[start:stop])
            inputs_digest = tensor_digest(self.samples.inputs[start:stop])
            self._digests_of_samples[key] = [inputs_digest, targets_digest]
        return self._digests_of_samples[key]

    def digest_metric(self, label: str, start: int, stop: int) -> str:
        """The digest of a metric with what it holds for some samples, such as masks."""
        key = label, start, stop
        if key not in self._digests_of_cut_metrics:
            metric = self.metrics[label]
            cut_metric = metric.bind(inputs=self.inputs, rows=slice(start, stop))
            # metrics that hold nothing for single samples return themselves
            holds_no_samples = cut_metric is metric
            if holds_no_samples:
                self._digests_of_cut_metrics[key] = self.metric_digests[label]
            else:
                self._digests_of_cut_metrics[key] = Description(cut_metric).digest
        return self._digests_of_cut_metrics[key]


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples of a data set, for one model, explainer, metric and repeat, which are cut into jobs.

    `_make_job` says what the identity of a job is made of.

    Attributes:
        pair: the data set and the model.
        explainer, label: names, the second one of the metric.
        repeat: its number.
        explanation_digests: of the explainer, and where they count, of its maps, of the model's answers to copies in
            the metric's neighbourhood, and of what the metric does otherwise for this explainer.
        seed: of the grid.
        movable: which samples have any input but themselves in the metric's neighbourhood, bool `(N,)`; None where that
            is not known.
        metric: as it was configured.
        count: the number of samples.
        filling: the fewest samples that are worth a job, for a metric that takes turns, which makes about one map per
            sample at a time. With fewer, most rows of the smallest batch are padding, and a job takes about as long.
            1 for other metrics.
        work: about what the model does for a sample, in forward passes of one row.
        seconds: about how long that takes.
        samples_per_job: how many a job has, if that is not to be chosen.
    """

    pair: ModelOnData
    explainer: str
    label: str
    repeat: int
    explanation_digests: list[str]
    seed: int
    movable: Tensor | None
    metric: Metric
    count: int
    filling: int
    work: float
    seconds: float
    samples_per_job: int | None

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Of the data, the model, the explainer and the metric."""
        return self.pair.data, self.pair.model, self.explainer, self.label

    @property
    def key(self) -> str:
        """A hash of all that its jobs have in common, but for the repeat and the seed."""
        metric_digest = self.pair.metric_digests[self.label]
        return digest([*self.names, self.pair.digest, self.explanation_digests, metric_digest])

    def choose_size(self, seconds: float) -> int:
        """How many samples a job gets that takes so many seconds."""
        affordable = int(seconds / self.seconds)
        wished = max(affordable, self.filling)
        size = max(1, min(self.count, self._count_that_fits(), wished))
        # equal jobs end at the same time, where workers share them
        jobs = math.ceil(self.count / size)
        return math.ceil(self.count / jobs)  # jobs of about the same size

    def _count_that_fits(self) -> int:
        """How many samples of a job fit into memory, with their perturbed copies."""
        # then nothing is known of its memory either
        says_no_cost = type(self.metric).cost is Metric.cost
        if says_no_cost:
            return _SAMPLES_OF_UNKNOWN_COST
        # evaluations beyond these wait, so memory does not grow with them
        evaluations = max(self.metric.cost(None).evaluations, 1)
        copies = min(evaluations, _COPIES_AT_ONCE)
        return _MOST_NUMBERS // (copies * self.pair.inputs[0].numel())

    def cut(self, size: int) -> list[Job]:
        """Jobs of so many samples; the last one may have fewer."""
        starts = range(0, self.count, size)
        jobs = []
        for start in starts:
            jobs.append(self._make_job(start, min(start + size, self.count)))
        return jobs

    def _make_job(self, start: int, stop: int) -> Job:
        # in this order, which is a part of the identity of stored jobs
        consists_of: list[object] = [
            self.pair.digest,
            self.pair.digest_samples(start, stop),
            self.pair.data,
            self.pair.model,
            start,
            self.repeat,
            self.seed,
            self.label,
            self.pair.digest_metric(self.label, start, stop),
            self.explainer,
            self.explanation_digests,
        ]
        still_samples = self._list_still_samples(start, stop)
        if still_samples:
            # earlier versions called such samples stable, so those jobs must not be found again; all other jobs keep
            # the identities that they had, since nothing is added for them
            consists_of.append(still_samples)
        work = (stop - start) * self.work
        return Job(digest(consists_of), *self.names, self.repeat, start, stop, work)

    def _list_still_samples(self, start: int, stop: int) -> list[int]:
        """Which samples of a job have no input but themselves in the metric's neighbourhood."""
        if self.movable is None:
            return []
        still: list[int] = (~self.movable[start:stop]).nonzero()[:, 0].tolist()
        return still


def choose_sizes(
    pools: Sequence[Pool], earlier_sizes: Mapping[str, int], workers: int, limit: float
) -> dict[str, int]:
    """How many samples the jobs of each pool get, by its key; as in earlier results, or by the time that they take.

    Args:
        pools: which are cut.
        earlier_sizes: those of earlier results, by key.
        workers: how many share the jobs.
        limit: how many seconds a job may take, about; at most `SECONDS`. With several workers it is at least
            `_LEAST_SECONDS`, even if this is more than `limit`.
    """
    total = sum(pool.seconds * pool.count for pool in pools)
    limit = min(limit, SECONDS)
    if workers > 1:
        # small jobs keep all workers busy; too small ones cost more than they take
        limit = max(_LEAST_SECONDS, min(limit, total / (workers * _JOBS_PER_WORKER)))
    sizes: dict[str, int] = {}
    for pool in pools:
        # a metric that needs its samples together has one job: its pool holds no others
        if pool.metric.samples_together is None:
            key = pool.key
            # earlier sizes win, because jobs are found again only if samples are cut in the same way
            sizes[key] = pool.samples_per_job or earlier_sizes.get(key) or pool.choose_size(limit)
    return sizes


def cut_pools(pools: Sequence[Pool], sizes: Mapping[str, int]) -> list[Job]:
    """The jobs of all pools. Those of a model and a data set that have the same samples follow each other."""
    jobs: list[Job] = []
    # pools of a pair follow each other, as they are made in this order
    for _, pools_of_pair in groupby(pools, key=lambda pool: id(pool.pair)):
        jobs_of_pair: list[Job] = []
        for pool in pools_of_pair:
            jobs_of_pair += pool.cut(pool.samples_per_job or sizes[pool.key])
        # all metrics of a range of samples before the next range, so that passes that they share are remembered
        jobs += sorted(jobs_of_pair, key=lambda job: (job.repeat, job.start))
    return jobs
