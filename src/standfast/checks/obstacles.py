"""What keeps a comparison with a baseline from ever passing, said when the baseline is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from standfast.checks.values import SampleValues
from standfast.report.sentences import say
from standfast.results import ConfiguredMetric, StoredResults
from standfast.statistics.decisions import count_until, estimate_share, spend_level

#: what a requirement asks for where it does not say otherwise: half of the samples, at 95%
_SHARE = 0.5
_LEVEL = 0.95


@dataclass(frozen=True)
class Frozen:
    """The values of one explainer by one metric, as a baseline holds them.

    Attributes:
        data, model, metric, explainer: what they are of; the metric as it was configured.
        values: of the samples.
    """

    data: str
    model: str
    metric: ConfiguredMetric
    explainer: str
    values: SampleValues

    @property
    def can_be_worse(self) -> bool:
        """Whether the metric says which values are better, so that `no_worse_than` is asked of it."""
        return (self.metric.spec.direction or self.metric.direction) is not None

    @property
    def name(self) -> str:
        """What they are of, in words."""
        return f"{self.metric.name} of {self.explainer} ({self.model} on {self.data})"


def find_obstacles(results: StoredResults, frozen: list[Frozen]) -> list[str]:
    """Sentences on what can never pass against these values, whatever comes later; none if all can."""
    controls = results.explainers.controls
    compared = [
        values for values in frozen if values.can_be_worse and values.explainer not in controls
    ]
    # at least one, as levels are divided by it
    decisions = max(1, len(compared))
    sentences = [*_find_missing(compared), *_find_few(compared, decisions), *_find_bounds(compared)]
    return [*sentences, *_find_insane(results)]


def count_fewest(decisions: int = 1) -> int:
    """With how many samples a comparison passes if none of them is worse, one of so many decisions at the first look.

    >>> count_fewest(), count_fewest(20)
    (6, 10)
    """
    level = spend_level(_LEVEL, 1, decisions)
    fewest = count_until(lambda count: estimate_share(count, 0, 0, level).low >= _SHARE, 1)
    assert fewest is not None
    return fewest


def _find_missing(compared: list[Frozen]) -> Iterator[str]:
    for frozen in compared:
        if _count_samples(frozen) == 0:
            reason = f"none of {frozen.values.skipped} samples could be evaluated"
            yield f"{frozen.name}: {reason}, so that no comparison with this baseline is ever decided"


def _find_few(compared: list[Frozen], decisions: int) -> Iterator[str]:
    """Too few samples, where none of them is worse."""
    alone = count_fewest()
    # compared together they share the error, and need more samples
    together = count_fewest(decisions)
    with_few = [frozen for frozen in compared if 0 < _count_samples(frozen) < together]
    # grouped by their number, or each explainer would have a line
    for count, group in groupby(sorted(with_few, key=_count_samples), key=_count_samples):
        names = ", ".join(frozen.name for frozen in group)
        if count < alone:
            words = f"a comparison needs at least {alone}, so that it can never pass"
        else:
            words = f"to compare all {decisions} together needs at least {together}; one alone needs {alone}"
        yield f"{names}: values of {count} sample{'s' * (count > 1)}; {words}"


def _count_samples(frozen: Frozen) -> int:
    return len(frozen.values.samples)


def _find_bounds(compared: list[Frozen]) -> Iterator[str]:
    """Values that are only bounds, or wide intervals: of another model it is not known whether it is worse."""
    for frozen in compared:
        if _count_samples(frozen) == 0:
            continue
        # half of the samples decide, so the middle counts
        widths = frozen.values.high - frozen.values.low
        middle_width = float(np.median(widths))
        if np.isinf(middle_width):
            words = (
                f"{int(np.isinf(widths).sum())} of {len(widths)} values are known only as bounds"
            )
            yield f"{frozen.name}: {words}, so that only the same model can pass; more evaluations of each sample help"
        elif middle_width > 0:
            words = f"half of the intervals are wider than {middle_width:.2g}"
            yield f"{frozen.name}: {words}, so that with a smaller `by` hardly any other model can pass"


def _find_insane(results: StoredResults) -> Iterator[str]:
    """Explainers that pass nothing but a comparison with a baseline."""
    for (data, model, explainer), sanity in results.sanity.items():
        if sanity.reason is not None:
            words = say("reason", sanity.reason.question, sanity.reason.state)
            if sanity.state == "failed":
                state = "fails a sanity check"
            else:
                state = "does not pass the sanity checks yet"
            limits = "it can be no worse than this baseline, but meets no other requirement"
            yield f"{explainer} ({model} on {data}) {state} ({words}): {limits}"
