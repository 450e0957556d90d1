"""The drops that a study has stored, with all explainers aligned by sample: up to a common share, and the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from standfast.results import MetricResults
from standfast.results.controls import is_random
from standfast.statistics.corruption.gate import Gate, apply_gate
from standfast.statistics.corruption.summary import CorruptionSummary, Curves, summarise
from standfast.tensors import Array

#: how many samples of one explainer are read at most
MOST_SAMPLES = 10_000
#: the drop of the number that needs no gate
TAU = 0.5
#: with fewer samples, skewness and kurtosis say little: their standard errors are about sqrt(6 / n) and sqrt(24 / n)
FINE = 50


@dataclass(frozen=True)
class Drops:
    """The drops of the first repeat for one data set and model.

    Attributes:
        curves: by explainer, in the study's order; row i is the same sample for all, NaN if it was not evaluated.
        samples: the numbers of the samples, `(n,)`.
    """

    curves: Mapping[str, Curves]
    samples: Array

    @cached_property
    def random(self) -> str | None:
        """The explainer with random maps; None if the study has none."""
        return next((name for name in self.curves if is_random(name)), None)

    @cached_property
    def gates(self) -> dict[str, Gate]:
        """By explainer, without the random one, up to the share of positions that both replace.

        Empty if there is no random one, or no drops with the most relevant first.
        """
        if self.random is None or self.curves[self.random].top is None:
            return {}
        reference = self.curves[self.random]
        return {
            name: apply_gate(curves, reference)
            for name, curves in self.curves.items()
            if name != self.random
        }

    def may_be_read(self, name: str) -> bool:
        """Whether the fine numbers of an explainer may be read: its gate is passed, or there are no gates."""
        if not self.gates:
            return True
        return name in self.gates and self.gates[name].passed

    @cached_property
    def absolute(self) -> dict[str, CorruptionSummary]:
        """All numbers by explainer, from all of its own samples, with intervals."""
        return {name: summarise(curves, tau=TAU) for name, curves in self.curves.items()}

    @cached_property
    def fewest(self) -> int:
        """The number of complete samples of the explainer that has the fewest of them, and has any."""
        counts = []
        for curves in self.curves.values():
            counts.append(int(curves.find_complete().sum()))
        return min((count for count in counts if count), default=0)


def load_drops(results: MetricResults) -> Drops | None:
    """The stored drops; None if no explainer has any."""
    orders = results.options.get("order") or ()
    drops = [f"drop_{order}" for order in orders]
    names = ("corrupted_share", "fractions", *drops)
    rows: dict[str, dict[int, dict[str, Array]]] = {}
    for explainer in results.present:
        stored = results.lines(explainer, names, MOST_SAMPLES)
        arrays_of = {shown.sample: shown.arrays for shown in stored}
        if arrays_of:
            rows[explainer] = arrays_of
    if not rows:
        return None
    all_samples = set().union(*rows.values())
    samples = np.array(sorted(all_samples), dtype=int)
    first_explainer = next(iter(rows.values()))
    example = next(iter(first_explainer.values()))
    # NaN for samples that an explainer has not met, but the shares are the same for all
    missing = {
        name: array if name == "fractions" else np.full(array.shape, np.nan)
        for name, array in example.items()
    }
    curves = {}
    for explainer, arrays_of in rows.items():
        aligned = [arrays_of.get(int(sample), missing) for sample in samples]
        curves[explainer] = Curves.from_stored(aligned)
    return Drops(curves, samples)
