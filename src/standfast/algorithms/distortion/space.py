"""Inputs of which some features may change, as flat vectors: margins at points, and the nearest point so far."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from standfast.algorithms.distortion.geometry import Norm, norm_of
from standfast.algorithms.subject import Subject
from standfast.errors import ModelError
from standfast.function_calls import compute_gradient
from standfast.tasks import Classification
from standfast.tensors import Streams, holds_everywhere

MANY = 128  # up to so many rivals, a gradient for each costs little more than to estimate which ones matter
# how many directional derivatives estimate a norm, and how many share a forward pass
DIRECTIONS = 64
_TOGETHER = 8
_SAFETY = 1.65  # sqrt(64 / q) for the quantile q of chi^2 with 64 degrees of freedom at 1e-6


class FreeSpace:
    """N inputs `(N, ...)` and the features `free` `(N, ...)` of each that may change, within the bounds.

    Only the free features are variables: fixed ones cannot move and have no gradient, so that norms, steps and moments
    are those of the smaller space. (c-Eval, Sec. III: blocking the fixed features only after the step converges badly.)

    For use inside `model.session()`. Points are flat, `(M, d)`; `rows` `(M,)` are the inputs that they belong to. For
    one point of every input, `rows` is the attribute of that name itself: then nothing is copied to be put in order.
    """

    def __init__(
        self, model: Subject, inputs: Tensor, targets: Tensor, free: Tensor, norm: Norm
    ) -> None:
        self.model = model
        self.targets = targets
        self.norm = norm
        #: the class that a point must leave; of another task than classification, the first of `_as_classes`
        if model.task.classes:
            self.classes = targets
        else:
            self.classes = torch.zeros(len(inputs), dtype=torch.int64).to(inputs.device)
        self.shape = inputs.shape[1:]
        self.x = inputs.flatten(1)
        self.free = free.flatten(1)
        lower, upper = (bound.expand(inputs.shape).flatten(1) for bound in model.bounds)
        # features that are not free have their own value as both bounds
        self.lower = torch.where(self.free, lower, self.x)
        self.upper = torch.where(self.free, upper, self.x)
        self.rows = torch.arange(len(inputs), device=inputs.device)
        self._all_free = holds_everywhere(self.free)
        #: whether the margin of the task is that of classes, which is differentiated here
        self._has_class_margin = type(model.task).margin is Classification.margin
        self.evaluations = torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)
        self.gradients = torch.zeros_like(self.evaluations)
        #: what stands for the gradient at inputs where the margin is flat, and which these are
        self.chords = torch.zeros_like(self.x)
        self.flat = torch.zeros_like(self.rows, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.x)

    def select(self, rows: Tensor) -> FreeSpace:
        """Some of the inputs, with counts of their own."""
        return FreeSpace(
            self.model, self.unflatten(self.x[rows]), self.targets[rows], self.free[rows], self.norm
        )

    def _of_inputs(self, values: Tensor, rows: Tensor) -> Tensor:
        """The values `(M, ...)` of the inputs `rows` `(M,)`, from those of all `(N, ...)`; do not write to them."""
        # all of them need no copy
        if rows is self.rows:
            return values
        return values[rows]

    def _as_classes(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `(M, K)` from outputs `(M, ...)`, and the class of each `(M,)`, which another one must exceed.

        Of another task than classification, the class has the logit 0, and the others are its rivals.
        """
        if self.model.task.classes:
            return outputs, targets
        rivals = self.model.task.rivals(outputs, targets)
        zero = torch.zeros_like(rivals[:, :1])
        logits = torch.cat([zero, rivals], 1)
        classes = zero[:, 0].long()
        return logits, classes

    def order_rivals(self, streams: Streams) -> tuple[Tensor, Tensor]:
        """All classes but the target, in the order in which their linearised boundaries are worth a gradient.

        For few classes this is the order of the logits. For more than `MANY` the norms of all gradients are estimated
        from directional derivatives, at which one costs little more for all classes than for one: in a direction `v`
        of standard normal numbers, `(v . g)^2` has the mean `||g||^2`. So the classes come in the order of
        their estimated linearised distances. An estimate from S directions is `||g||^2 chi^2_S / S`. So a norm is at
        most `_SAFETY` times its estimate with a probability of `1 - 1e-6`.

        Returns:
            The classes `(N, K - 1)`, and lower bounds of their distances, which never fall along a row; 0 for few
            classes, and where the module cannot be differentiated twice.
        """

        def chunk(x: Tensor, targets: Tensor) -> tuple[Tensor]:
            logits, classes = self._as_classes(self.model.forward(x), targets)
            return (logits.scatter(1, classes[:, None], -torch.inf),)

        with torch.no_grad():
            (others,) = self.model.map_rows(chunk, self.unflatten(self.x), self.targets)
        self.evaluations += 1
        # the last one is the class itself
        order = others.argsort(dim=1, descending=True, stable=True)
        order = order[:, :-1]
        unknown = torch.zeros(order.shape, dtype=self.x.dtype, device=self.x.device)
        if order.shape[1] <= MANY:
            return order, unknown
        try:
            margin, square = self._estimate_slopes(streams)
        except ModelError:
            return order, unknown
        norm = square.sqrt() * _SAFETY
        # the 1-norm is at most the 2-norm times the root of the number of entries
        if self.norm == "inf":
            entries = self.free.sum(1, keepdim=True).to(norm.dtype)
            norm = norm * entries.sqrt()
        # a class whose slope is zero is reached nowhere, and NaN means that nothing is known
        distance = -margin / norm.clamp(min=1e-30)
        least = torch.where(norm > 0, distance, torch.inf)
        least = least.nan_to_num(nan=0.0, posinf=torch.inf)
        own_class = self.classes[:, None]
        least = least.scatter(1, own_class, torch.inf)
        ordered = least.sort(dim=1, stable=True)
        order = ordered.indices[:, :-1]
        last = ordered.indices[:, -1:]
        # beside other infinite distances it need not be the last one
        is_class_itself = order == own_class
        return torch.where(is_class_itself, last, order), ordered.values[:, :-1]

    def _estimate_slopes(self, streams: Streams) -> tuple[Tensor, Tensor]:
        """The margins of all classes `(N, K)`, and the squared norms of their gradients, estimated."""

        def chunk(x: Tensor, targets: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
            # fused attention has no second derivative
            with (
                torch.enable_grad(),
                sdpa_kernel(SDPBackend.MATH),
            ):
                leaf = x.detach().requires_grad_(True)
                logits, classes = self._as_classes(self.model.forward(leaf.clone()), targets)
                weight = torch.zeros_like(logits, requires_grad=True)
                (pulled,) = torch.autograd.grad(logits, leaf, weight, create_graph=True)
                total = torch.zeros_like(logits)
                for direction in directions.unbind(1):  # derivatives of all logits in one direction
                    v = direction.reshape(x.shape)
                    (slope,) = torch.autograd.grad(pulled, weight, v, retain_graph=True)
                    slope_of_class = slope.gather(1, classes[:, None])
                    total = total + (slope - slope_of_class).square()
            logits = logits.detach()
            logit_of_class = logits.gather(1, classes[:, None])
            return logits - logit_of_class, total

        total = None
        margin = self.x
        for _ in range(DIRECTIONS // _TOGETHER):
            shape = (_TOGETHER, self.x.shape[1])
            v = streams.normal(shape, self.x.dtype) * self.free[:, None]
            margin, part = self.model.map_rows(
                chunk,
                self.unflatten(self.x),
                self.targets,
                v,
                kind="backward",
                evaluations=_TOGETHER,
            )
            total = part if total is None else total + part
            self.evaluations += _TOGETHER
            self.gradients += _TOGETHER
        assert total is not None
        return margin, total / DIRECTIONS

    def margin(self, points: Tensor, rows: Tensor) -> Tensor:
        """`max_{j != y} f_j - f_y` `(M,)`: above 0 the answer has changed. NaN counts as no change."""

        def chunk(x: Tensor, targets: Tensor) -> tuple[Tensor]:
            outputs = self.model.forward(x)
            return (self.model.task.margin(outputs, targets),)

        targets = self._of_inputs(self.targets, rows)
        with torch.no_grad():
            (margin,) = self.model.map_rows(chunk, self.unflatten(points), targets)
        self._add_one(self.evaluations, rows)
        return margin.nan_to_num(nan=-torch.inf)

    def margin_gradient(
        self, points: Tensor, rows: Tensor, rival: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The margin `(M,)`, of the class `rival` `(M,)` alone if given, and its gradient by free features `(M, d)`."""
        if rival is None:
            return self._differentiate(_margins, points, rows)
        return self._differentiate(_margins, points, rows, rival)

    def loss_gradient(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The margin `(M,)`, and the gradient `(M, d)` of the cross-entropy of the target by the free features."""
        return self._differentiate(
            partial(torch.nn.functional.cross_entropy, reduction="sum"), points, rows
        )

    def _differentiate(
        self, function: Callable[..., Tensor], points: Tensor, rows: Tensor, *rivals: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The margin, and the gradient of the sum of `function(logits, targets, *rivals)`."""
        returns_margin = function is _margins and (bool(rivals) or self._has_class_margin)

        def chunk(x: Tensor, targets: Tensor, *rival: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_(True)
                # a module whose first layer works in place must not change the leaf
                outputs = self.model.forward(leaf.clone())
                logits, classes = self._as_classes(outputs, targets)
                values = function(logits, classes, *rival)
                gradient = compute_gradient(
                    values, leaf, check_graph=partial(self._check_outputs, outputs)
                )
            if returns_margin:  # a rival's own one, or the true one
                return values.detach(), gradient
            return self.model.task.margin(outputs.detach(), targets), gradient

        columns = [self.unflatten(points), self._of_inputs(self.targets, rows), *rivals]
        margin, gradient = self.model.map_rows(chunk, *columns, kind="backward")
        return self._count(margin, gradient, points, rows)

    def _check_outputs(self, outputs: Tensor, values: Tensor, leaf: Tensor) -> None:
        """Look at the graph that leads to the outputs `(M, ...)`, and not at what the task makes of them."""
        self.model.check_gradients(outputs, leaf)

    def replace_gradients(self, rows: Tensor, gradients: Tensor) -> None:
        """At the inputs `rows` `(n,)` themselves, where the margin is flat, return these gradients `(n, d)`."""
        self.chords[rows] = gradients
        self.flat[rows] = True

    def _count(
        self, margin: Tensor, gradient: Tensor, points: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        self._add_one(self.evaluations, rows)
        self._add_one(self.gradients, rows)
        gradient = gradient.flatten(1)
        if not self._all_free:
            free = self._of_inputs(self.free, rows)
            gradient = torch.where(free, gradient, 0.0)
        gradient = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if self.model.task.peaks:
            is_input = (points == self.x[rows]).all(1)
            at_flat_input = self.flat[rows] & is_input
            gradient = torch.where(at_flat_input[:, None], self.chords[rows], gradient)
        return margin.nan_to_num(nan=-torch.inf), gradient

    def _add_one(self, counts: Tensor, rows: Tensor) -> None:
        """Add one to the counts `(N,)` for each point of the inputs `rows` `(M,)`."""
        if rows is self.rows:
            counts.add_(1)
        else:
            counts.index_add_(0, rows, torch.ones_like(rows))

    def unflatten(self, points: Tensor) -> Tensor:
        """Points `(M, d)` in the shape of the inputs."""
        return points.reshape(-1, *self.shape)

    def clip(self, points: Tensor, rows: Tensor) -> Tensor:
        """The points `(M, d)` within the bounds, with fixed features as they were."""
        lower = self._of_inputs(self.lower, rows)
        upper = self._of_inputs(self.upper, rows)
        return torch.minimum(torch.maximum(points, lower), upper)

    def size(self, points: Tensor, rows: Tensor) -> Tensor:
        """The distortions `(M,)` of points `(M, d)`."""
        x = self._of_inputs(self.x, rows)
        return norm_of(points - x, self.norm)


class Nearest:
    """The nearest point found so far at which the prediction of each input has changed."""

    def __init__(self, space: FreeSpace) -> None:
        self.space = space
        self.points = space.x.clone()
        self.distortion = torch.full(
            (len(space),), torch.inf, dtype=space.x.dtype, device=space.x.device
        )
        #: the largest distortion of a point that did not change the prediction
        self.searched = torch.zeros_like(self.distortion)
        self._searches: list[Tensor] = []

    @property
    def found(self) -> Tensor:
        """Which inputs have a point, bool `(N,)`."""
        return self.distortion.isfinite()

    def record(self, distortions: Tensor) -> None:
        """Note what separate searches found, `(N, k)`, infinite for nothing.

        Separate searches do not use the points that others have found.
        """
        self._searches.extend(distortions.unbind(1))

    @property
    def second(self) -> Tensor:
        """The second smallest of the separate searches' distortions `(N,)`; infinite where fewer than two found one."""
        if len(self._searches) < 2:
            return torch.full_like(self.distortion, torch.inf)
        ordered = torch.stack(self._searches).sort(dim=0).values
        return torch.maximum(ordered[1], self.distortion)

    def offer(self, points: Tensor, margin: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Take points `(M, d)` into account, by their margins `(M,)`; an input may have several.

        Returns:
            The points' distortions and whether they change the prediction, both `(M,)`.
        """
        size = self.space.size(points, rows)
        flips = margin > 0
        if rows is self.space.rows:
            self._offer_one_each(points, size, flips)
            return size, flips
        kept = torch.where(flips, 0.0, size).nan_to_num(nan=0.0)
        self.searched.scatter_reduce_(0, rows, kept, "amax")
        worth = torch.where(flips, size, torch.inf)
        least = torch.full_like(self.distortion, torch.inf).scatter_reduce_(0, rows, worth, "amin")
        is_least = worth == least[rows]
        is_nearer = worth < self.distortion[rows]
        chosen = flips & is_least & is_nearer
        # of the points that are chosen for an input the first; `none` stands for no point
        none = len(rows)
        numbers = torch.arange(none, device=rows.device)
        number_if_chosen = torch.where(chosen, numbers, none)
        first = torch.full_like(self.space.rows, none)
        first.scatter_reduce_(0, rows, number_if_chosen, "amin")
        better = first < none
        first = first.clamp(max=none - 1)
        self.points = torch.where(better[:, None], points[first], self.points)
        self.distortion = torch.where(better, size[first], self.distortion)
        return size, flips

    def _offer_one_each(self, points: Tensor, size: Tensor, flips: Tensor) -> None:
        """As `offer`, for one point `(N, d)` of every input: there is no nearest one to choose."""
        kept = torch.where(flips, 0.0, size).nan_to_num(nan=0.0)
        self.searched = torch.maximum(self.searched, kept)
        better = flips & (size < self.distortion)
        self.points = torch.where(better[:, None], points, self.points)
        self.distortion = torch.where(better, size, self.distortion)

    def evaluate(self, points: Tensor, rows: Tensor) -> None:
        """Evaluate points `(n, S, d)` of the inputs `rows` `(n,)` at once, and keep the nearest that change."""
        owner = rows.repeat_interleave(points.shape[1])
        flat = points.flatten(0, 1)
        margin = self.space.margin(flat, owner)
        self.offer(flat, margin, owner)


def _margins(logits: Tensor, classes: Tensor, rival: Tensor | None = None) -> Tensor:
    logit = logits.gather(1, classes[:, None])[:, 0]
    if rival is not None:
        logit_of_rival = logits.gather(1, rival[:, None])[:, 0]
        return logit_of_rival - logit
    others = logits.scatter(1, classes[:, None], -torch.inf)
    return others.amax(1) - logit
