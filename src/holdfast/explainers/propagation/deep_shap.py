"""DeepSHAP: DeepLift's attributions, averaged over a set of reference inputs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers.background import References, check_background, count_references, resolve_background
from holdfast.explainers.base import Explainer, make_leaf, select_logits
from holdfast.explainers.completeness import warn_of_gap
from holdfast.explainers.propagation.difference_rules import PairedRule
from holdfast.model import ROW_ALIGNMENT, Classifier, padded, padding_of
from holdfast.records import set_fields

# rows that one input is counted for, of all that its backward passes have
_MOST_ROWS = 8


@dataclass(frozen=True)
class DeepSHAP(Explainer):
    """`mean over b of (x - b) * m(x, b)`: DeepLift's multipliers `m` (Rescale rule), averaged over reference inputs.

    Lundberg and Lee, A unified approach to interpreting model predictions, NeurIPS 2017, Section 4.2; over a set of
    references and not their mean as in Chen, Lundberg and Lee, Explaining a series of models by propagating Shapley
    values, Nature Communications 13, 2022. Attributions add up to `f_t(x) - mean f_t(b)` for networks of linear layers,
    elementwise activations (not PReLU) and max-pooling. Gates of an LSTM, softmax and products of an attention, and
    layer normalisation pass back their gradient, so that the sum misses a part, of which a `CompletenessWarning` tells;
    see `DeepLift`, of which this is the mean. Inputs and attributions `(N, ...)`.

    An input's activations do not depend on the reference, nor a reference's on the input: both are forwarded once for a
    chunk. Only the multipliers are of a pair; all pairs go through the backward pass in large flat batches, cut where
    they exceed the classifier's row budget.

    Args:
        background: reference points: a set of inputs (`Background`, or a tensor `(B, ...)`); or a number, or one for
            each channel, which is `DeepLift` with that baseline.
        epsilon: a unit that moves by less from the reference passes back its gradient instead; above 0.

    Raises:
        ArgumentError: on a call, a background that does not fit the inputs or the bounds.
        ModelError: on a call, the module folds several inputs, or time steps, into the first axis of an activation.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> classifier, x, b = Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4), torch.rand(5, 4)
    >>> change = classifier.logits(x)[:, 1] - classifier.logits(b)[:, 1].mean()
    >>> torch.allclose(DeepSHAP(b)(classifier, x, 1).sum(1), change, atol=1e-6)
    True
    """

    background: References = 0.0
    epsilon: float = 1e-10
    name: ClassVar[str] = "deep_shap"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        set_fields(self, background=check_background(self.background))
        fine = isinstance(self.epsilon, int | float) and 0 < self.epsilon < float("inf")
        check(fine, "epsilon", "a finite number above 0", repr(self.epsilon))

    @property
    def rows_per_input(self) -> int:
        """Less than one for each reference: an input is forwarded once, and chunks of few inputs would not pay for
        the references' forward pass."""
        return min(count_references(self.background), _MOST_ROWS)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        x = x.detach()
        references = resolve_background(classifier, x, self.background)
        size = classifier.row_budget(x, len(references), "backward")
        starts = range(0, len(x), size)
        maps = [torch.zeros_like(x[start : start + size]) for start in starts]
        logits: list[Tensor] = []
        at_references: list[Tensor] = []
        for part in torch.split(references, size):  # as many as fit into memory at once
            rule = PairedRule(self.epsilon, rows=len(part))
            with torch.no_grad(), rule.record():
                at_part = classifier.forward(padded(part, padding_of(len(part), size)).clone())
            at_references.append(at_part[: len(part)].double())
            logits = []
            for i, start in enumerate(starts):
                classes = None if targets is None else targets[start : start + size]
                pairs = _Pairs(classifier, rule, x[start : start + size], classes, part, size)
                maps[i] = pairs.add_to(maps[i])
                logits.append(pairs.logits)
                del pairs  # its graph, before the next one is recorded
        made, at_inputs = torch.cat(maps) / len(references), torch.cat(logits)
        warn_of_gap(self, classifier, made, at_inputs, torch.cat(at_references).mean(0), targets)
        return made, at_inputs


class _Pairs:
    """Some inputs, forwarded, which meet some references.

    Few inputs are forwarded several times, up to the fewest rows that are forwarded anyway; their copies share the
    references, and in each round of the backward pass every row meets another one.
    """

    def __init__(
        self,
        classifier: Classifier,
        rule: PairedRule,
        x: Tensor,
        targets: Tensor | None,
        references: Tensor,
        size: int,
    ) -> None:
        self.rule, self.x, self.references = rule, x, references
        total, roomy = len(references), size >= ROW_ALIGNMENT
        self.copies = min(total, max(1, 2 * ROW_ALIGNMENT // len(x))) if roomy else 1
        padding = padding_of(self.copies * len(x), size) if roomy else 0
        first = padded(torch.arange(self.copies, device=x.device).repeat_interleave(len(x)), padding)
        rounds = torch.arange(0, total, self.copies, device=x.device)
        self.which = (rounds[:, None] + first).clamp(max=total - 1)  # the last round may be no full one
        self.together = max(1, size // len(first))
        self.leaf = make_leaf(padded(x.repeat(self.copies, *[1] * (x.ndim - 1)), padding), create_graph=False)
        rule.which = first
        with torch.enable_grad():
            with rule.replay():
                logits = classifier.forward(self.leaf.clone())
            classes = None if targets is None else padded(targets.repeat(self.copies), padding)
            self.score = select_logits(logits, classes).sum()
        self.logits = logits.detach()[: len(x)]

    def add_to(self, maps: Tensor) -> Tensor:
        """`maps + sum over b of (x - b) * m(x, b)`, added one reference after the other, however they are batched."""
        if not self.score.requires_grad:
            return maps
        start = 0
        for rounds in torch.split(self.which, self.together):
            slopes = self._run_rounds(rounds)[:, : self.copies * len(self.x)].reshape(-1, *self.x.shape)
            for slope, reference in zip(slopes, self.references[start : start + len(slopes)], strict=False):
                maps = maps + slope * (self.x - reference)
            start += len(slopes)
        return maps

    def _run_rounds(self, rounds: Tensor) -> Tensor:
        """The backward passes of these rounds `(rounds, rows)`, as one large batch; also of one, for the same bits."""
        try:
            with warnings.catch_warnings():  # of operations that vmap takes one by one
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return torch.func.vmap(self._compute_multipliers)(rounds)
        except RuntimeError:  # a backward pass of the module's own that cannot be batched
            return torch.stack([self._compute_multipliers(which) for which in rounds])

    def _compute_multipliers(self, which: Tensor) -> Tensor:
        self.rule.which = which
        (found,) = torch.autograd.grad(self.score, self.leaf, retain_graph=True, allow_unused=True)
        return torch.zeros_like(self.leaf) if found is None else found
