"""DeepSHAP: the mean of DeepLift's attributions over a set of reference inputs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.background import BackgroundOption, count_references, resolve_background
from standfast.explainers.base import (
    Explainer,
    Explanation,
    explainers,
    make_leaf,
    run_watched,
    select_scores,
)
from standfast.explainers.completeness import warn_of_gap
from standfast.explainers.propagation.difference_rules import PairedRule
from standfast.function_calls import check_has_gradients
from standfast.model import ROW_ALIGNMENT, Model, count_padding, pad_rows
from standfast.needs import Needs
from standfast.records import Positive

# the largest number of rows that one input is counted as, though its backward passes may have more
_MOST_ROWS = 8


@explainers.register("deep_shap")
@dataclass(frozen=True)
class DeepSHAP(Explainer):
    """DeepLift, averaged over reference inputs.

    `mean over b of (x - b) * m(x, b)`, with DeepLift's multipliers `m` (Rescale rule).

    Lundberg and Lee, A unified approach to interpreting model predictions, NeurIPS 2017, Section 4.2. The mean is over
    a set of references, as in Chen, Lundberg and Lee, Explaining a series of models by propagating Shapley values,
    Nature Communications 13, 2022; the first paper takes one reference, their mean. Attributions add up to
    `f_t(x) - mean f_t(b)` for networks of linear layers, elementwise activations (not PReLU) and max-pooling. The gates
    of an LSTM, the softmax and products of an attention, and layer normalisation have no rule and pass back their
    gradient. Then the sum misses a part, and a `CompletenessWarning` says so (see `DeepLift`). Inputs and attributions
    `(N, ...)`.

    Cost: inputs and references are each forwarded once for a chunk, since their activations do not depend on each
    other. Only the multipliers belong to a pair of input and reference. The backward passes of all pairs run in large
    flat batches, within the model's row budget.

    Args:
        background: reference points: a set of inputs (`Background`, or a tensor `(B, ...)`); or a number, or one for
            each channel, which gives `DeepLift` with that baseline. By default 0, and for tables rows of the model's
            reference.
        epsilon: a unit that differs from the reference by less than this passes back its gradient; above 0.

    Raises:
        ArgumentError: an option out of range; on a call, a background that does not fit the inputs or the bounds.
        ModelError: on a call, the module folds several inputs or time steps into the first axis of an activation.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> model, x, b = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4), torch.rand(5, 4)
    >>> change = model.logits(x)[:, 1] - model.logits(b)[:, 1].mean()
    >>> torch.allclose(DeepSHAP(b)(model, x, 1).sum(1), change, atol=1e-6)
    True
    """

    background: BackgroundOption = None
    epsilon: Positive = 1e-10
    name = "deep_shap"
    has_signs = True
    measures = "contribution"
    removal_options = ("background",)
    needs = Needs(gradients=True)

    @property
    def rows_per_input(self) -> int:
        """At most 8, also for more references: in chunks of few inputs, the references' forward pass costs too much."""
        return min(count_references(self.background), _MOST_ROWS)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        x = x.detach()
        references = resolve_background(model, x, self.background)
        size = model.row_budget(x, len(references), "backward")
        starts = range(0, len(x), size)
        maps = [torch.zeros_like(x[start : start + size]) for start in starts]
        logits: list[Tensor] = []
        at_references: list[Tensor] = []
        for part in torch.split(references, size):  # as many as fit into memory at once
            rule = PairedRule(self.epsilon, rows=len(part))
            with torch.no_grad(), rule:
                padding = count_padding(len(part), size)
                at_part = model.forward(pad_rows(part, padding).clone())
            at_references.append(at_part[: len(part)].double())
            logits = []
            for i, start in enumerate(starts):
                classes = None if targets is None else targets[start : start + size]
                pairs = _Pairs(model, rule, x[start : start + size], classes, part, size)
                maps[i] = pairs.add_to(maps[i])
                logits.append(pairs.logits)
                del pairs  # its graph, before the next one is recorded
        mean = torch.cat(maps) / len(references)
        at_inputs = torch.cat(logits)
        warn_of_gap(self, model, mean, at_inputs, torch.cat(at_references).mean(0), targets)
        return mean, at_inputs


class _Pairs:
    """Inputs that have been forwarded, paired with references for the backward passes.

    There is a least number of rows that are forwarded in any case. If there are fewer inputs, they are repeated, and
    their copies take different references. In each round of the backward pass, each row is paired with one reference.
    """

    def __init__(
        self,
        model: Model,
        rule: PairedRule,
        x: Tensor,
        targets: Tensor | None,
        references: Tensor,
        size: int,
    ) -> None:
        self.rule = rule
        self.x = x
        self.references = references
        total = len(references)
        aligned = size >= ROW_ALIGNMENT
        self.copies = 1
        if aligned:
            self.copies = min(total, max(1, 2 * ROW_ALIGNMENT // len(x)))
        padding = count_padding(self.copies * len(x), size) if aligned else 0
        first = pad_rows(
            torch.arange(self.copies, device=x.device).repeat_interleave(len(x)), padding
        )
        rounds = torch.arange(0, total, self.copies, device=x.device)
        # the last round may have too few references
        self.which = (rounds[:, None] + first).clamp(max=total - 1)
        self.together = max(1, size // len(first))
        self.leaf = make_leaf(
            pad_rows(x.repeat(self.copies, *[1] * (x.ndim - 1)), padding), create_graph=False
        )
        rule.which = first
        with torch.enable_grad():
            with rule.replay():
                logits = run_watched(rule, "deep_shap", model, self.leaf.clone())
            if targets is None:
                classes = None
            else:
                other_axes = [1] * (targets.ndim - 1)
                targets_of_copies = targets.repeat(self.copies, *other_axes)
                classes = pad_rows(targets_of_copies, padding)
            self.score = select_scores(model, logits, classes).sum()
        check_has_gradients(self.score, self.leaf)
        self.logits = logits.detach()[: len(x)]

    def add_to(self, maps: Tensor) -> Tensor:
        """`maps + sum over b of (x - b) * m(x, b)`, in the order of the references for any batch size."""
        start = 0
        for rounds in torch.split(self.which, self.together):
            slopes = self._run_rounds(rounds)[:, : self.copies * len(self.x)].reshape(
                -1, *self.x.shape
            )
            # not strict: the last round may have more rows than there are references left
            for slope, reference in zip(
                slopes, self.references[start : start + len(slopes)], strict=False
            ):
                maps = maps + slope * (self.x - reference)
            start += len(slopes)
        return maps

    def _run_rounds(self, rounds: Tensor) -> Tensor:
        """The multipliers of these rounds `(rounds, rows)`, by one batched backward pass.

        A single round is batched too, so that its bits are the same.
        """
        try:
            with warnings.catch_warnings():  # that vmap runs some operations one by one
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return torch.func.vmap(self._compute_multipliers)(rounds)
        except RuntimeError:  # the module has a backward pass of its own that cannot be batched
            return torch.stack([self._compute_multipliers(which) for which in rounds])

    def _compute_multipliers(self, which: Tensor) -> Tensor:
        """The multipliers of all rows, with the references `which` `(rows,)`."""
        self.rule.which = which
        return torch.autograd.grad(
            self.score, self.leaf, retain_graph=True, materialize_grads=True
        )[0]
