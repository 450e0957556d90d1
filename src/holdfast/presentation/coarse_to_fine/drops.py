"""The drops that a study has stored, all explainers aligned by sample; and who passes the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.metrics.coarse_to_fine.gate import Gate, apply_gate, compared
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary, Curves, summarise
from holdfast.presentation.base import View, read_flags
from holdfast.statistics.paired import Array

#: samples behind the figures of one explainer
TRACED = 10_000
#: of the quantities that a peak at zero cannot fool
TAU, Q = 0.5, 0.25


@dataclass(frozen=True)
class Drops:
    """What there is of one data set and model, of the first repeat.

    Attributes:
        curves: by explainer, in the study's order; row i is the same sample in all, NaN where it was not evaluated.
        samples: the numbers of the samples, `(n,)`.
        no_positive: by explainer, how many of its samples have no positive relevance.
        others: repeats that are stored, too, and not looked at.
    """

    curves: Mapping[str, Curves]
    samples: Array
    no_positive: Mapping[str, int]
    others: int = 0

    @cached_property
    def random(self) -> str | None:
        """The explainer whose maps are random; None where the study has none."""
        return next((name for name in self.curves if is_random(name)), None)

    @cached_property
    def gates(self) -> dict[str, Gate]:
        """By explainer, all but the random one; empty where there is none, or no drops of the most relevant."""
        if self.random is None or self.curves[self.random].top is None:
            return {}
        reference = self.curves[self.random]
        return {name: apply_gate(each, reference) for name, each in self.curves.items() if name != self.random}

    @cached_property
    def to_common(self) -> dict[str, Gate]:
        """The same of the areas up to the share of positions that both reach, whoever has more positive ones."""
        if not self.gates:
            return {}
        reference = self.curves[str(self.random)]
        return {name: apply_gate(self.curves[name], reference, to_common=True) for name in self.gates}

    @cached_property
    def longer(self) -> list[str]:
        """Who passes the gate, but not where as many positions are replaced as under random maps."""
        return [name for name, found in self.gates.items() if found.passed and not self.to_common[name].passed]

    def counts(self, name: str) -> bool:
        """Whether fine numbers of an explainer may be read: its gate is passed, or could not be applied."""
        return not self.gates or (name in self.gates and self.gates[name].passed)

    @cached_property
    def absolute(self) -> dict[str, CorruptionSummary]:
        """All numbers by explainer, of all of its own samples, with intervals."""
        return {name: summarise(each, tau=TAU, q=Q) for name, each in self.curves.items()}

    @cached_property
    def compared(self) -> dict[str, CorruptionSummary]:
        """The same with the fine ones rescaled over the explainers that have any, of the samples all these have."""
        some = {name: each for name, each in self.curves.items() if each.complete().any()}
        return compared(some, tau=TAU, q=Q) if len(some) > 1 else {}

    def top(self, name: str) -> Array:
        """The drops of an explainer's complete samples, most relevant first, `(n, K)`."""
        curves = self.curves[name]
        return np.asarray(curves.of(curves.complete()).top)


def is_random(name: str) -> bool:
    """Whether an explainer of that name is the one of random maps.

    >>> is_random("random"), is_random("random:seed=1"), is_random("randomised saliency")
    (True, True, False)
    """
    return name.partition(":")[0].strip().lower() == "random"


def drops_of(view: View) -> Drops | None:
    """What is stored of a view; None where no explainer has any drops."""
    names = ("corrupted_share", "fractions", *(f"drop_{order}" for order in view.options.get("order") or ()))
    rows: dict[str, dict[int, Mapping[str, Array]]] = {}
    flagged: dict[str, int] = {}
    for explainer in view.present:
        found: dict[int, Mapping[str, Array]] = {
            int(row["sample"]): arrays for row, arrays in view.lines(explainer, names, TRACED)
        }
        if found:
            rows[explainer] = found
            flagged[explainer] = _flagged(view, explainer, found)
    if not rows:
        return None
    samples = np.array(sorted(set().union(*rows.values())), dtype=int)
    like = next(iter(next(iter(rows.values())).values()))
    missing = {name: array if name == "fractions" else np.full(array.shape, np.nan) for name, array in like.items()}
    curves = {
        explainer: Curves.stored(found.get(int(sample), missing) for sample in samples)
        for explainer, found in rows.items()
    }
    repeats = view.frame["repeat"].n_unique()
    return Drops(curves, samples, flagged, repeats - 1)


def _flagged(view: View, explainer: str, found: Mapping[int, Any]) -> int:
    rows = view.of(explainer)
    first = rows.filter(rows["repeat"] == view.frame["repeat"].min())
    return int((read_flags(first, "no_positive") & np.isin(first["sample"].to_numpy(), list(found))).sum())
