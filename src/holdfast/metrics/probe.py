"""`Probe`: one look at a perturbed input. Its class margin, and how alike its explanation is to the seed's.

Every metric that disturbs inputs asks a probe; it shares the forward pass between prediction and explanation, cuts
the work into chunks, and counts evaluations and what went wrong for each seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.explainers.gradients.surrogates import smooth_relu
from holdfast.model import Classifier
from holdfast.similarity import Similarity, degenerate
from holdfast.tensors import rows_to

_MAP_ELEMENTS = 1 << 22  # numbers in the maps that are compared at once: 16 MB

Explain = Literal["predicted", "seed"]
Margin = Literal["logit", "probability"]

#: what the options mean that all who look have in common, for the report
COMPARED = {
    "Signs (`absolute`)": (
        "With `absolute = True` maps are compared without their signs, as the SAFARI authors do: a map that turns into "
        "its negative counts as unchanged."
    ),
    "Which class is explained (`explain`)": (
        "`predicted`: at the moved input, the class predicted there, so when the class flips two explanations of "
        "different classes are compared. `seed`: always the original class."
    ),
}


class _Configured(Protocol):
    @property
    def name(self) -> str: ...

    def options(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Measurement:
    """What a probe saw at M perturbed inputs; NaN where the model or the explanation was not finite.

    Attributes:
        margin: `J(x') = max_{i != y} f_i(x') - f_y(x')`, `>= 0` where the class has changed (SAFARI, Eq. 1). `(M,)`
        similarity: of the explanation to the seed's, `(M,)`; None where it was not asked for.
        distance: `||g(x') - g(x)||_2`, `(M,)`; None where it was not asked for.
        maps, predicted: signed explanations `(M, ...)` and classes `(M,)`; None where they were not asked for.
    """

    margin: Tensor
    similarity: Tensor | None = None
    distance: Tensor | None = None
    maps: Tensor | None = None
    predicted: Tensor | None = None


class Probe:
    """Looks at perturbed copies of P seeds. For use inside `classifier.session()`.

    Args:
        classifier, explainer: what is disturbed.
        inputs: the P seeds, checked.
        targets: classes `(P,)`, or None for the predicted ones.
        similarity: of two attribution maps; None where only distances are asked for.
        absolute: compare absolute attributions.
        explain: the class explained at a perturbed input: the one predicted there, or the seed's.
        margin: from logits or from probabilities.
    """

    def __init__(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        similarity: Similarity | None,
        absolute: bool = True,
        explain: Explain = "predicted",
        margin: Margin = "logit",
    ) -> None:
        self.classifier, self.explainer, self.similarity = classifier, explainer, similarity
        self.absolute, self.explain, self.margin_kind = absolute, explain, margin
        seeds = len(inputs)
        columns = [inputs] if targets is None else [inputs, targets]

        def explain_seeds(x: Tensor, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
            return explainer.attribute(classifier, x, classes)

        maps, logits = classifier.map_rows(
            explain_seeds, *columns, rows_per_input=explainer.rows_per_input, kind="backward"
        )
        self.targets = logits.argmax(1) if targets is None else targets
        self.maps, self.logits = maps, logits
        self.fixed = explainer.fixed_part(inputs)
        self.reference = self._prepare(maps)
        #: what is compared of it: the reference itself, or one value per position where the similarity asks for that
        self.compared = self._of_maps(self.reference)
        self.margin = class_margin(logits, self.targets, margin)
        self.evaluations = torch.ones(seeds, dtype=torch.int64, device=inputs.device)
        self.degenerate = torch.zeros_like(self.evaluations)
        self.nonfinite = torch.zeros_like(self.evaluations)
        finite = _finite(logits) & _finite(maps)
        # a correlation with a constant map says nothing; a distance from one does
        constant = degenerate(self.compared.nan_to_num())
        if similarity is None or not (similarity.larger_is_closer or similarity.ordinal):
            constant = torch.zeros_like(constant)
        self.status = tuple(
            "nonfinite" if not f else "misclassified" if j >= 0 else "degenerate" if c else "ok"
            for f, j, c in zip(finite.tolist(), self.margin.tolist(), constant.tolist(), strict=True)
        )

    def usable(self) -> Tensor:
        """Numbers of the seeds that can be evaluated, int64."""
        rows = [row for row, status in enumerate(self.status) if status == "ok"]
        return torch.tensor(rows, device=self.targets.device, dtype=torch.int64)

    def shared(self, metric: _Configured) -> dict[str, Any]:
        """What every `Result` begins with, as its arguments: the metric, and what the probe knows of each seed."""
        return {
            "metric": metric.name,
            "options": metric.options(),
            "status": self.status,
            "targets": self.targets,
            "model_evaluations": self.evaluations,
            "degenerate": self.degenerate,
            "nonfinite": self.nonfinite,
        }

    def _prepare(self, maps: Tensor) -> Tensor:
        return maps.abs() if self.absolute else maps

    def _of_maps(self, maps: Tensor) -> Tensor:
        return maps if self.similarity is None else self.similarity.of_maps(maps)

    def look(
        self, x: Tensor, seed: Tensor, want_distance: bool = False, keep_maps: bool = False, compare: bool = True
    ) -> Measurement:
        """Predict and explain `x` `(M, ...)`, perturbed copies of the seeds numbered `seed` `(M,)`.

        Without `compare` there is no similarity: for whoever compares the maps in another way.
        """
        chunk = self.classifier.inputs_per_chunk(x, self.explainer.rows_per_input, "backward")
        size = max(_MAP_ELEMENTS // x[0].numel() // chunk, 1) * chunk
        parts = [
            self._look(x[start : start + size], seed[start : start + size], want_distance, keep_maps, compare)
            for start in range(0, len(x), size)
        ]
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Measurement(*(None if c[0] is None else torch.cat(c) for c in columns))  # type: ignore[arg-type]

    def _look(self, x: Tensor, seed: Tensor, want_distance: bool, keep_maps: bool, compare: bool) -> Measurement:
        """As many rows as their maps may be held at once: compared together, they cost fewer small operations."""
        targets, reference = self.targets[seed], self.compared[seed]
        explained = self.explain == "seed"

        def chunk(x: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
            wanted = more[0] if explained else None
            if self.fixed is None:
                return self.explainer.attribute(self.classifier, x, wanted)
            return self.explainer.attribute_copies(self.classifier, x, wanted, more[-1])

        columns = [x, targets] if explained else [x]
        columns += [] if self.fixed is None else [self.fixed[seed]]
        signed, logits = self.classifier.map_rows(
            chunk, *columns, rows_per_input=self.explainer.rows_per_input, kind="backward"
        )
        maps = self._prepare(signed)
        finite = _finite(logits) & _finite(maps)
        compared = self._of_maps(maps)
        self.count(seed, degenerate(compared) & finite, ~finite)
        alike = None
        if compare and self.similarity is not None:
            alike = self.similarity(reference, torch.where(rows_to(finite, compared), compared, 0.0))
            alike = torch.where(finite, alike, torch.nan)
        margin = class_margin(logits, targets, self.margin_kind)
        distance = None
        if want_distance:
            whole = reference if self.compared is self.reference else self.reference[seed]
            distance = torch.where(finite, (maps - whole).flatten(1).norm(dim=1), torch.nan)
        return Measurement(
            torch.where(finite, margin, torch.nan),
            alike,
            distance,
            signed if keep_maps else None,
            logits.argmax(1) if keep_maps else None,
        )

    def similarity_to(self, seed: Tensor, maps: Tensor) -> Tensor:
        """Of prepared maps `(M, ...)` to those of their seeds, `(M,)`."""
        assert self.similarity is not None
        return self.similarity(self.compared[seed], self._of_maps(maps))

    def look_at_class(self, x: Tensor, seed: Tensor) -> Measurement:
        """Predict only: for plain misclassification, which needs no explanation."""

        def chunk(x: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.classifier.forward(x)
            return class_margin(logits, self.targets[seed], self.margin_kind), torch.isfinite(logits).all(1)

        with torch.no_grad():
            margin, finite = self.classifier.map_rows(chunk, x, seed)
        self.count(seed, torch.zeros_like(finite), ~finite)
        return Measurement(torch.where(finite, margin, torch.nan))

    def gradient(
        self, objective: Callable[..., Tensor], x: Tensor, seed: Tensor, *columns: Tensor, beta: float = 10.0
    ) -> Tensor:
        """Gradients by `x` `(M, ...)` of `objective(maps, margin, seed, *columns)` `(M,)`; 0 where there is none.

        On the model with softplus of sharpness `beta` for ReLU, whose maps could not be differentiated; `maps` are
        prepared for comparison, `columns` are cut as `x` is. Each row counts as a look.
        """

        def chunk(x: Tensor, seed: Tensor, *columns: Tensor) -> tuple[Tensor]:
            targets = self.targets[seed]
            with torch.enable_grad(), smooth_relu(beta):
                leaf = x.detach().requires_grad_(True)
                maps, logits = self.explainer.attribute(
                    self.classifier, leaf, targets if self.explain == "seed" else None, create_graph=True
                )
                margin = class_margin(logits, targets, self.margin_kind)
                goal = objective(self._prepare(maps), margin, seed, *columns)
                if not goal.requires_grad:
                    return (torch.zeros_like(x),)
                (found,) = torch.autograd.grad(goal.sum(), leaf, allow_unused=True)
            return (torch.zeros_like(x) if found is None else found.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0),)

        # a graph of second order holds about twice what a backward pass does
        rows = 2 * self.explainer.rows_per_input
        (found,) = self.classifier.map_rows(chunk, x, seed, *columns, rows_per_input=rows, kind="backward")
        self.evaluations.index_add_(0, seed, torch.ones_like(seed))
        return found

    def count(self, seed: Tensor, constant: Tensor, nonfinite: Tensor) -> None:
        """Note a look at each of the seeds numbered `seed` `(M,)`, and what came of it, bool `(M,)`."""
        self.evaluations.index_add_(0, seed, torch.ones_like(seed))
        self.degenerate.index_add_(0, seed, constant.to(torch.int64))
        self.nonfinite.index_add_(0, seed, nonfinite.to(torch.int64))


def class_margin(logits: Tensor, targets: Tensor, kind: Margin = "logit") -> Tensor:
    """`max_{i != y} f_i - f_y` `(N,)`, `>= 0` where class y is not predicted (SAFARI, Eq. 1).

    >>> class_margin(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([-1.])
    """
    # in float32 a confident model's probability rounds to 1, and J to a plateau at -1
    values = logits if kind == "logit" else logits.double().softmax(1)
    own = values.gather(1, targets[:, None])
    others = values.scatter(1, targets[:, None], -torch.inf)
    return others.amax(1) - own[:, 0]


def _finite(values: Tensor) -> Tensor:
    """Whether all of each row is finite; the extremes tell, at less cost than a look at every value."""
    flat = values.flatten(1)
    return torch.isfinite(flat.amin(1)) & torch.isfinite(flat.amax(1))


def check_probe_options(absolute: bool, explain: str, margin: str) -> None:
    """The options that all metrics with a probe share."""
    check(isinstance(absolute, bool), "absolute", "True or False", absolute)
    check(explain in ("predicted", "seed"), "explain", "'predicted' or 'seed'", repr(explain))
    check(margin in ("logit", "probability"), "margin", "'logit' or 'probability'", repr(margin))
