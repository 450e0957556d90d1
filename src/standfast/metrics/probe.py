"""`Probe`: queries a model and an explainer at perturbed copies of clean inputs, and counts what it does.

A query gives the class margin at a perturbed input, and how similar its explanation is to that of the clean input (its
origin). The probe shares the forward pass between prediction and explanation, and cuts the work into chunks that fit
into memory. It counts model evaluations, and records which samples cannot be evaluated and why. Metrics read this
record with `usable`, and change it with `skip` and `charge`; nobody writes to the probe's fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from standfast.errors import check
from standfast.explainers import Explainer, InputCopy
from standfast.explainers.gradients.second_order import SecondOrderMode
from standfast.explainers.shared_passes import recall_passes
from standfast.function_calls import check_has_gradients
from standfast.metrics.result import Status
from standfast.model import Model
from standfast.neighbourhoods import Region
from standfast.similarity import Similarity, is_degenerate
from standfast.similarity import get as get_similarity
from standfast.similarity.rows import are_finite, extremes, is_constant, working_dtype
from standfast.tasks import Scale, measure_margin, measure_score
from standfast.tensors import broadcast_rows, draw_seed, holds_everywhere, send, widen_half

_MAP_ELEMENTS = 1 << 22  # numbers in the maps that are compared at once: 16 MB

Explain = Literal["predicted", "origin"]


@dataclass(frozen=True)
class Call:
    """What a metric is called with; `Metric.evaluate` gets it checked.

    Attributes:
        model, explainer: what is evaluated.
        inputs: `(N, C, H, W)`, `(N, C, T)` or `(N, F)`.
        targets: classes int64 `(N,)`, or the answers of another task `(N, k)`; None for the predicted ones.
        generator: of all random numbers; None for the same seed in every call.
    """

    model: Model
    explainer: Explainer
    inputs: Tensor
    targets: Tensor | None = None
    generator: torch.Generator | None = None

    @cached_property
    def seed(self) -> int:
        """The seed of a metric that draws random numbers, drawn from the generator once."""
        return draw_seed(self.generator)


class _ConfiguredMetric(Protocol):
    @property
    def name(self) -> str: ...

    def options(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Measurement:
    """What a query found at M perturbed inputs. NaN where the logits or the explanation were not finite.

    Attributes:
        margin: `J(x')`, `>= 0` where the answer has changed; of classes `max_{i != y} f_i(x') - f_y(x')` (SAFARI,
            Eq. 1). `(M,)`
        similarity: of the explanation to that of the origin, `(M,)`; None where it was not asked for.
        distance: `||g(x') - g(x)||_2`, `(M,)`; None where it was not asked for.
        maps, predicted: signed explanations `(M, ...)`, and classes `(M,)`, or what else `Task.read_answer` makes of
            the outputs; None where they were not asked for.
    """

    margin: Tensor
    similarity: Tensor | None = None
    distance: Tensor | None = None
    maps: Tensor | None = None
    predicted: Tensor | None = None


class Probe:
    """Queries perturbed copies of P clean inputs, which are called their origins. For use in `Metric.evaluate`.

    When a probe is made, it predicts and explains each origin once. An origin is skipped, with a status that says why,
    where the logits or the explanation are not finite, where the model does not predict the target class, and where a
    text is too short. It is also skipped where a similarity has to compare the explanation, and this is constant.
    Queries of skipped origins are allowed; what they return does not count.

    Args:
        call: the model, in a session as it is in `Metric.evaluate`; the explainer; the P origins and their targets.
        similarity: of two attribution maps, as `standfast.similarity.get` takes it: a name or a `Similarity`. None for
            a metric that compares no maps.
        absolute: compare absolute attributions.
        explain: the class explained at a perturbed input: the one of its `"origin"`, or the one `"predicted"` there.
        margin: from `"logit"`s or from `"probability"`s.
        region: the neighbourhoods of the P origins. Queries are then at its points, from which it makes the perturbed
            copies; where it moves positions, the maps of the copies are moved back before they are compared.
        needs_maps: False for a value that depends on predictions alone. Maps can still be asked for, but no origin is
            skipped for its map, and margins and gradients are the same for all explainers.

    Raises:
        UnknownNameError: no similarity has that name.
        ModelError: the module does not give the same inputs the same logits again.

    Attributes:
        targets: the classes explained, `(P,)`, or the answers of another task `(P, k)`.
        maps: signed explanations of the origins, `(P, ...)`.
        logits: of the origins, `(P, C)`, or the outputs of another task `(P, ...)`.
        margin: J of the origins, `(P,)`; see `Measurement`.
        reference: what the maps of copies are compared with: `maps`, or their absolute values.
        status: for each origin `"ok"`, or why it is not evaluated.
        evaluations: model evaluations for each origin so far, int64 `(P,)`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> with model.session():
    ...     probe = Probe(Call(model, standfast.explainers.get("saliency"), digits.inputs), "pearson")
    ...     same = probe.query(digits.inputs)
    ...     darker = probe.query(0.9 * digits.inputs[[0, 0, 1]], origin=torch.tensor([0, 0, 1]))
    >>> [round(value, 3) for value in same.similarity.tolist()], darker.similarity.shape
    ([1.0, 1.0], torch.Size([3]))
    >>> probe.status, probe.evaluations.tolist()
    (('ok', 'ok'), [4, 3])
    """

    def __init__(
        self,
        call: Call,
        similarity: str | Similarity | None = None,
        *,
        absolute: bool = False,
        explain: Explain = "origin",
        margin: Scale = "logit",
        region: Region | None = None,
        needs_maps: bool = True,
    ) -> None:
        inputs = call.inputs
        targets = call.targets
        self.model, self.explainer = call.model, call.explainer
        self.region = region
        self.needs_maps = needs_maps
        self.similarity = None
        if similarity is not None:
            self.similarity = get_similarity(similarity)
        self.absolute = absolute
        self.explain = explain
        self.margin_kind = margin
        self.model.check_repeatable(inputs)
        #: origins that have too few words for their maps to be compared, bool `(P,)`; None where there are none
        self._short = self._find_short(inputs)
        maps, logits = self._explain_all(inputs, targets, self._short)
        if targets is None:
            self.targets = self.model.task.answer(logits)
        else:
            self.targets = targets
        self.maps = maps
        self.logits = logits
        self._fixed = self.explainer.fixed_part(inputs)
        self.reference = self._prepare(maps)
        #: what is compared of it: the reference itself, or one value per position where the similarity asks for that
        self._compared = self._of_maps(self.reference)
        self.margin = self._measure_margin(logits, self.targets)
        self._example, self._has_ascended = inputs[:1], False
        self._evaluations = torch.ones(len(inputs), dtype=torch.int64, device=inputs.device)
        self._degenerate = torch.zeros_like(self._evaluations)
        self._nonfinite = torch.zeros_like(self._evaluations)
        self._status: list[Status] = ["ok"] * len(inputs)
        self._skip_unusable()

    def _skip_unusable(self) -> None:
        """Skip the origins that cannot be evaluated; the first reason is the one that is kept."""
        if self._short is not None:
            why: Status = "no_answer" if self.model.refusal else "degenerate"
            self.skip(self._short, why)
        finite = _finite(self.logits)
        if self.needs_maps:
            finite = finite & _finite(self.maps)
        self.skip(~finite, "nonfinite")
        task = self.model.task
        if task.classes:
            # J >= 0: another class is at least as large (SAFARI, Eq. 1)
            self.skip(self.margin >= 0, "misclassified")
        else:
            self.skip(~task.exists(self.logits, self.targets), "no_answer")
        if self.region is not None:
            self.skip(~self.region.find_movable(), "unvaried")
        # a correlation with a constant map says nothing; a distance from one does, if it is not 0
        similarity = self.similarity
        if not self.needs_maps or similarity is None:
            return
        if similarity.larger_is_closer or similarity.ordinal:
            self.skip_constant(self._compared)

    def _find_short(self, inputs: Tensor) -> Tensor | None:
        """Inputs that are predicted alone, and not explained, bool `(P,)`: too short, or all that a model refuses."""
        if self.model.black_box is None:
            return None
        if self.model.refusal:
            return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        return self.model.black_box.find_short(inputs)

    def _explain_all(
        self, x: Tensor, targets: Tensor | None, short: Tensor | None, fixed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Maps and logits of inputs `(M, ...)`; those that are `short`, bool `(M,)`, are predicted alone: maps of 0."""
        if short is None or not bool(short.any()):
            return self.explainer.attribute_all(self.model, x, targets, fixed)
        (logits,) = self.model.map_rows(lambda rows: (self.model.forward(rows),), x)
        maps = torch.zeros_like(x)
        rows = (~short).nonzero()[:, 0]
        if len(rows):
            # nothing is explained of an input that is too short
            of_rows = []
            for values in (targets, fixed):
                of_rows.append(None if values is None else values[rows])
            explained, logits[rows] = self.explainer.attribute_all(self.model, x[rows], *of_rows)
            maps = maps.to(explained.dtype)
            maps[rows] = explained
        return maps, logits

    @property
    def status(self) -> tuple[Status, ...]:
        """For each origin `"ok"`, or why it is not evaluated."""
        return tuple(self._status)

    @property
    def evaluations(self) -> Tensor:
        """Model evaluations for each origin so far, int64 `(P,)`: inputs predicted, explained or both."""
        return self._evaluations

    @property
    def rows_per_query(self) -> int:
        """Rows that the module is given to explain one copy."""
        return self.explainer.count_rows_of(self._example)

    def usable(self) -> Tensor:
        """The numbers of the origins that can be evaluated, int64, ascending."""
        rows = [row for row, status in enumerate(self._status) if status == "ok"]
        return send(rows, self.targets.device, torch.int64)

    def skip(self, which: Tensor, why: Status = "degenerate") -> None:
        """Skip the origins where `which` holds, bool `(P,)`. One that is skipped already keeps its reason."""
        for row, skipped in enumerate(which.tolist()):
            if skipped and self._status[row] == "ok":
                self._status[row] = why

    def skip_constant(self, values: Tensor, among: Tensor | None = None) -> None:
        """Skip, as `"degenerate"`, the origins whose `values` `(P, ...)`, of a map or its parts, are equal.

        Args:
            values: `(P, ...)`.
            among: bool `(P,)`, the origins that may be skipped; None for all. A metric of changes skips a constant map
                that does not change: nothing was explained there, and the value 0 would be the best there is.
        """
        constant = is_degenerate(values.nan_to_num())
        if among is not None:
            constant = constant & among
        self.skip(constant)

    def scatter_to_all(self, values: Tensor) -> Tensor:
        """Values of the n usable origins `(n, ...)` among those of all `(P, ...)`.

        Floating-point numbers become float64, with NaN for the other origins. Bool and whole numbers keep their type,
        with False or 0.
        """
        dtype = torch.float64 if values.is_floating_point() else values.dtype
        fill = torch.nan if values.is_floating_point() else 0
        whole = torch.full(
            (len(self._status), *values.shape[1:]), fill, dtype=dtype, device=values.device
        )
        whole[self.usable()] = values.to(dtype)
        return whole

    def choose_block_size(self, inputs: Tensor, count: int) -> int:
        """How many of `count` copies, of the shape of `inputs` `(1 or more, ...)`, to explain before comparing them.

        So many whole chunks that their maps take about 16 MB; at least one chunk.
        """
        chunk = self.model.inputs_per_chunk(
            inputs, self.explainer.count_rows_of(inputs), "backward", count
        )
        return max(_MAP_ELEMENTS // inputs[0].numel() // chunk, 1) * chunk

    def charge(self, origin: Tensor, evaluations: Tensor | int = 1) -> None:
        """Count model evaluations, `(M,)` or one number, that were made for the origins numbered `origin` `(M,)`."""
        if not isinstance(evaluations, Tensor):
            evaluations = torch.full_like(origin, evaluations)
        counts = evaluations.to(torch.int64).expand(len(origin))
        self._evaluations.index_add_(0, origin, counts)

    def common_fields(self, metric: _ConfiguredMetric, **of_usable: Tensor) -> dict[str, Any]:
        """Fields of a `Result`: what the metric and the probe know, and values of the usable origins `(n, ...)`.

        These are scattered to all origins, as by `scatter_to_all`.
        """
        task = self.model.task
        return {
            "metric": metric.name,
            "options": metric.options(),
            "status": self.status,
            "targets": task.describe(self.targets),
            "answer": None if task.switches else task.read_answer(self.logits, self.targets),
            "model_evaluations": self._evaluations,
            "degenerate": self._degenerate,
            "nonfinite": self._nonfinite,
            **{name: self.scatter_to_all(values) for name, values in of_usable.items()},
        }

    def _origin(self, x: Tensor, origin: Tensor | None) -> Tensor:
        if origin is not None:
            return origin
        fits = len(x) == len(self.targets)
        expected = "the number of each copy's origin"
        check(fits, "origin", expected, f"None for {len(x)} copies")
        return torch.arange(len(x), device=x.device)

    def _prepare(self, maps: Tensor) -> Tensor:
        if self.absolute:
            return maps.abs()
        return maps

    def _of_maps(self, maps: Tensor) -> Tensor:
        if self.similarity is None:
            return maps
        return self.similarity.of_maps(maps)

    def query(
        self,
        x: Tensor,
        origin: Tensor | None = None,
        want_distance: bool = False,
        keep_maps: bool = False,
        compare: bool = True,
    ) -> Measurement:
        """Predict and explain perturbed copies; each counts as one model evaluation of its origin.

        Args:
            x: the copies, `(M, ...)`, or the region's points; as many as you like: they are cut into chunks that fit
                into memory.
            origin: the number of the origin of each copy, int64 `(M,)`; None for one copy of every origin, in order.
            want_distance: measure the distance between the maps too.
            keep_maps: return the maps and the predicted classes too.
            compare: False for a caller that compares the maps in another way.

        Returns:
            Margins and, if the probe has a similarity, similarities; NaN where the model was not finite.
        """
        origin = self._origin(x, origin)
        size = self.choose_block_size(self._example, len(x))
        blocks = [slice(start, start + size) for start in range(0, len(x), size)]
        parts = [
            self._query(x[block], origin[block], want_distance, keep_maps, compare)
            for block in blocks
        ]
        if len(parts) == 1:
            return parts[0]
        # in the order of the fields of a measurement
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        joined = [None if column[0] is None else torch.cat(column) for column in columns]
        return Measurement(*joined)  # type: ignore[arg-type]

    def _query(
        self, x: Tensor, origin: Tensor, want_distance: bool, keep_maps: bool, compare: bool
    ) -> Measurement:
        """`query` for as many rows as their maps may be held at once."""
        targets = self.targets[origin]
        explained = self.choose_explained(targets)
        fixed = None
        if self._fixed is not None:
            fixed = self._fixed[origin]
        short = None
        if self._short is not None:
            short = self._short[origin]
        with recall_passes():
            signed, logits = self._explain_all(self.perturb(x, origin), explained, short, fixed)
        maps = self._prepare(signed)
        compared = self._of_maps(maps)
        values = compared.flatten(1)
        low, high = extremes(values.to(working_dtype(compared)))
        if compared is maps:
            has_finite_maps = are_finite(low, high)
        else:
            has_finite_maps = _finite(maps)
        finite = _finite(logits) & has_finite_maps
        constant = is_constant(low, high, torch.finfo(compared.dtype).eps) & finite
        self.count(origin, constant, ~finite)
        visible = None
        region = self._aligned_region
        if region is not None and (compare or want_distance):
            # moved back by interpolation, a NaN would spread to its neighbours
            finite_maps = torch.where(broadcast_rows(finite, signed), signed, 0.0)
            maps, visible = region.align_maps(finite_maps, x, origin)
            maps = self._prepare(maps)
            compared = self._of_maps(maps)
        alike = None
        if compare and self.similarity is not None:
            if not holds_everywhere(finite):  # some similarities cannot compare NaN
                compared = torch.where(broadcast_rows(finite, compared), compared, 0.0)
            alike = torch.where(finite, self._compare(compared, origin, visible), torch.nan)
        margin = self._measure_margin(logits, targets)
        distance = None
        if want_distance:
            whole = self.reference[origin]
            # a position that only one of the inputs shows has no distance
            if visible is None:
                difference = maps - whole
            else:
                difference = (maps - whole) * visible
            distance = torch.where(finite, difference.flatten(1).norm(dim=1), torch.nan)
        return Measurement(
            # a margin must not depend on a map that the value ignores
            torch.where(finite if self.needs_maps else _finite(logits), margin, torch.nan),
            alike,
            distance,
            signed if keep_maps else None,
            self.model.task.read_answer(logits, targets) if keep_maps else None,
        )

    @property
    def _aligned_region(self) -> Region | None:
        """The region, if it moves positions: then maps of its points are moved back."""
        if self.region is not None and self.region.aligns:
            return self.region
        return None

    def perturb(self, points: Tensor, origin: Tensor) -> Tensor:
        """The copies `(M, ...)` at the region's points of the origins numbered `origin` `(M,)`."""
        if self.region is None:
            return points
        return self.region.perturb(points, origin)

    @cached_property
    def _compare_whole(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The similarity of what is compared `(M, ...)` to that of the origins with these numbers `(M,)`."""
        assert self.similarity is not None
        return self.similarity.prepare(self._compared)

    def _compare(self, compared: Tensor, origin: Tensor, visible: Tensor | None) -> Tensor:
        """Similarities to the origins, of the positions that are `visible`; of all if None."""
        if visible is None:
            return self._compare_whole(compared, origin)
        assert self.similarity is not None
        if visible.ndim != compared.ndim:
            visible = visible[:, 0]
        return self.similarity.compare_masked(self._compared[origin], compared, visible)

    def similarity_to(self, origin: Tensor, maps: Tensor) -> Tensor:
        """The similarity, `(M,)`, of prepared maps `(M, ...)` to those of the origins numbered `origin` `(M,)`."""
        return self._compare_whole(self._of_maps(maps), origin)

    def choose_explained(self, targets: Tensor) -> Tensor | None:
        """What is explained at copies of origins with these answers `(M, ...)`; None for what is predicted there."""
        if self.explain == "origin" or not self.model.task.switches:
            return targets
        return None

    def measure_score(self, outputs: Tensor, origin: Tensor, scale: Scale) -> Tensor:
        """The score, float64 `(M,)`, of the answers of the origins numbered `origin` `(M,)` at outputs `(M, ...)`."""
        return measure_score(self.model.task, outputs, self.targets[origin], scale)

    def _measure_margin(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """The margin J `(M,)` of outputs `(M, ...)` from their answers `(M, ...)`."""
        return measure_margin(self.model.task, outputs, answers, self.margin_kind)

    def query_class(self, x: Tensor, origin: Tensor | None = None) -> Measurement:
        """Predict perturbed copies without explaining them; arguments and margins are those of `query`."""
        origin = self._origin(x, origin)

        def chunk(x: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.model.forward(self.perturb(x, origin))
            return self._measure_margin(logits, self.targets[origin]), _finite(logits)

        with torch.no_grad():
            margin, finite = self.model.map_rows(chunk, x, origin, like=self._example)
        self.count(origin, torch.zeros_like(finite), ~finite)
        return Measurement(torch.where(finite, margin, torch.nan))

    def gradient(
        self,
        objective: Callable[..., Tensor],
        x: Tensor,
        origin: Tensor,
        *columns: Tensor,
        beta: float = 10.0,
    ) -> Tensor:
        """Gradients, `(M, ...)`, of an objective by perturbed copies; 0 where there is none.

        The maps of a network with ReLU have no useful derivative, so softplus takes its place here. Each copy counts as
        one model evaluation.

        Args:
            objective: a function of `maps, margin, origin, *columns` that returns one number for each row, `(M,)`. It
                gets the maps as they are compared: absolute, if the probe compares absolute attributions.
            x: the copies, `(M, ...)`, or the region's points; the gradients are by these.
            origin: the number of the origin of each copy, int64 `(M,)`.
            columns: further arguments of the objective, `(M, ...)`, cut into chunks as `x` is.
            beta: the sharpness of softplus.
        """

        # gradients must not depend on an explainer that the value ignores
        explainer = self.explainer if self.needs_maps else InputCopy()

        def chunk(x: Tensor, origin: Tensor, *columns: Tensor) -> tuple[Tensor]:
            targets = self.targets[origin]
            with torch.enable_grad():
                # which runs compiled modules eagerly
                with SecondOrderMode(beta, not self._has_ascended) as mode:
                    leaf = x.detach().requires_grad_(True)
                    copies = self.perturb(leaf, origin)
                    maps, logits = explainer.attribute(
                        self.model, copies, self.choose_explained(targets), create_graph=True
                    )
                # looking at a graph takes as long as a layer of a small network
                if not self._has_ascended:
                    mode.check_smooth(logits, get_gradient_edge(copies).node)
                    check_has_gradients(logits, leaf)
                    self._has_ascended = True
                # the user's model does not run in what follows: many small operations, and the mode would look at each.
                # (A checkpointed layer runs once more in the backward pass, where torch turns the mode off. So it has
                # its own ReLU there, and these directions are less exact.)
                maps = widen_half(maps)
                region = self._aligned_region
                # where it is not seen, the map gets the origin's values, without a gradient
                if region is not None:
                    maps, visible = region.align_maps(maps, leaf, origin)
                    maps = torch.where(visible, maps, self.maps[origin])
                margin = measure_margin(
                    self.model.task, logits, targets, self.margin_kind, guide=True
                )
                goal = objective(self._prepare(maps), margin, origin, *columns)
                if not goal.requires_grad:
                    return (torch.zeros_like(x),)
                (gradient,) = torch.autograd.grad(goal.sum(), leaf, materialize_grads=True)
            return (gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0),)

        # a graph of second order holds about twice what a backward pass does
        rows = 2 * explainer.rows_per_input
        (gradients,) = self.model.map_rows(
            chunk, x, origin, *columns, like=self._example, rows_per_input=rows, kind="backward"
        )
        self.charge(origin)
        return gradients

    def count(self, origin: Tensor, constant: Tensor, nonfinite: Tensor) -> None:
        """Count a query of each of the origins numbered `origin` `(M,)`, with its outcome, bool `(M,)` each.

        For metrics that run the model themselves; `query` and `query_class` count by themselves.
        """
        self.charge(origin)
        for total, occurred in ((self._degenerate, constant), (self._nonfinite, nonfinite)):
            if not holds_everywhere(~occurred):
                total.index_add_(0, origin, occurred.to(torch.int64))


def score_kept_class(margin: Tensor) -> Tensor:
    """`-J`, `>= 0` where the class is kept; below 0 also at `J = 0`, where the class has changed."""
    return exclude_zero(-margin)


def exclude_zero(score: Tensor) -> Tensor:
    """A threshold must be crossed, and a score of exactly 0 only touches it: this makes it just below 0."""
    return torch.where(score == 0, -torch.finfo(score.dtype).tiny, score)


def _finite(values: Tensor) -> Tensor:
    """Whether all values of a row are finite, bool `(N,)`.

    Checks the smallest and the largest value only, which is faster.
    """
    return are_finite(*extremes(values.flatten(1)))
