"""What the search for a worst case finds, and the way there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Trace
from standfast.metrics.probe_objective import PerturbedResult
from standfast.metrics.safari.events import Event


@dataclass(frozen=True)
class WorstCaseResult(PerturbedResult):
    """The worst perturbed input of each sample.

    Attributes:
        similarity: of the explanations at the clean input and at the worst input. `(N,)`
        found: an input that meets the constraint was found: its class is kept, or changed, as the event demands. For
            `changed_explanation` the clean input meets it, so where the neighbourhood contains the clean input, it is
            False only for skipped samples. Where it is False, `similarity` and `value` are those of an input that does
            not count. `(N,)` bool
        misinterpreted: the worst input is an event in the sense of Eq. 3, with its threshold. `(N,)` bool
        followed_gradients: the search used gradients, and not inputs alone; see `search="auto"`. `(N,)` bool
        gap: an estimate of how much worse than `value` the true worst case may be, `(N,)`, from a search that has one
            (`"grid"`, and `"auto"` for a few parameters). It holds as far as explanations change nowhere faster than
            they were seen to, so it is not a bound; NaN from other searches, infinite where `found` is False and where
            the budget was too small to vary each parameter. Where `exact` holds it is 0, and no estimate.
        sens_max: largest `||g(x') - g(x)||_2` among all candidates (Table 1); NaN without tracking. `(N,)`
        sens_lips: largest `||g(x') - g(x)||_2 / ||x' - x||_2` among them; NaN without tracking. `(N,)`
        trace: best similarity and margin so far against the search's evaluations, for the samples of `traced`.
        traced: numbers of the samples that the rows of the trace belong to.
        plausibility: of the worst inputs, from 0 to 1, where the neighbourhood can say, as one of tables with training
            rows can: a small number means that few of these rows are as far from the others; NaN for skipped samples.
            `(N,)`
        drafts: how many rough maps were made (`search="draft"`), `(N,)`; None where there were none. They count in
            `model_evaluations` as what they cost: if a rough map takes 5 rows of the module and another one 33, 33
            rough maps count as 5. What `degenerate` and `nonfinite` count are other maps.
        exact: all inputs that the neighbourhood can make were evaluated, so this is the true worst case, `(N,)` bool;
            None where parameters are numbers within ranges, such as angles. Where `found` is False as well, there is no
            input that meets the constraint.

    The other attributes are those of `PerturbedResult`, for the worst inputs.
    """

    similarity: Tensor
    found: Tensor
    misinterpreted: Tensor
    followed_gradients: Tensor
    gap: Tensor
    sens_max: Tensor
    sens_lips: Tensor
    trace: WorstCaseTrace
    traced: Tensor = field(metadata={"per_sample": False})
    plausibility: Tensor | None = None
    exact: Tensor | None = None
    drafts: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Clean and worst inputs, their explanations, and the trace, NaN for skipped samples."""
        steps = len(self.trace.evaluations)
        lines = {}
        for name, values in (("similarity", self.trace.similarity), ("margin", self.trace.margin)):
            line = torch.full(
                (len(self), steps), torch.nan, dtype=torch.float64, device=self.origins.device
            )
            if steps:
                line[self.traced] = values.double()
            lines[f"trace_{name}"] = line
        return {
            **super().tensors(),
            "trace_evaluations": self.trace.evaluations.expand(len(self), steps),
            **lines,
        }


@dataclass(frozen=True)
class WorstCaseTrace:
    """The best input so far of n samples, after some of the search's evaluations.

    Attributes:
        evaluations: for each sample so far, `(T,)`.
        similarity, margin: of the best input, `(n, T)`; NaN where the event does not use it.
    """

    evaluations: Tensor
    similarity: Tensor
    margin: Tensor


def read_trace(event: Event, trace: Trace) -> WorstCaseTrace:
    """The search's values and violations as similarities and margins."""
    nan = torch.full_like(trace.value, torch.nan)
    if event.name == "misclassification":
        return WorstCaseTrace(trace.evaluations, nan, trace.value)
    if event.similarity.larger_is_closer == (event.name == "changed_explanation"):
        sign = -1.0
    else:
        sign = 1.0
    if event.name == "changed_explanation":
        margin = trace.violation
    else:
        margin = -trace.violation
    return WorstCaseTrace(trace.evaluations, sign * trace.value, margin)


def make_empty_trace(inputs: Tensor) -> WorstCaseTrace:
    """The trace where no sample was searched."""
    nothing = torch.zeros((0, 0), device=inputs.device)
    return WorstCaseTrace(torch.zeros(0, dtype=torch.int64), nothing, nothing)
