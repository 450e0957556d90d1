"""Bounds of a network's logits over a ball around an input, by backward linear relaxation.

A linear function of a layer's values is carried back through the layers. Each nonlinear layer is replaced by lines that
bound it. The result is a linear function of the input that is a lower bound of the first one, and its minimum over the
permitted inputs is known. Applied to single units, layer after layer, this bounds the inputs of each rectifier and
pooling, which determine the lines. Applied to margins, it certifies the class.

Source: Zhang, Weng, Chen, Hsieh and Daniel, "Efficient neural network robustness certification with general activation
functions" (NeurIPS 2018), Theorem 3.2 and Corollary 3.3 ("CROWN"). Departures: pooling (`MaxPool`); the permitted
inputs are a ball within a box, not a ball alone; the bounds are intersected with interval bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from standfast.algorithms.certified.network_rules import Affine, MaxPool, Nonlinear, Sum, dot
from standfast.algorithms.certified.network_trace import TracedNetwork

Method = Literal["crown", "interval"]
# float64 numbers in the widest layer's coefficients at once: 8 MB, about the size of a cache
_NUMBERS = 1 << 20
_ROUNDS = 12  # of the search for the multiplier of a ball within a box; the bound is valid after any number of rounds
# relative widening of the bounds, for the rounding of their own computation in float64
_WIDEN = 1e-11


@dataclass(frozen=True)
class PermittedInputs:
    """The permitted inputs `(N, n)`: from `centre + below` to `centre + above`, and within the L2 distance `radius`.

    `below <= 0 <= above`; both are zero for features that are held fixed. `radius` is `(N,)`, or None for boxes alone.
    """

    centre: Tensor
    below: Tensor
    above: Tensor
    radius: Tensor | None

    def minimum(self, a: Tensor, owner: Tensor) -> Tensor:
        """Lower bounds `(rows,)` of `a . x` over the permitted inputs x of sample `owner`; coefficients `(rows, n)`.

        Exact for boxes. For a ball within a box this is the Lagrangian dual of the ball's constraint, which is a lower
        bound for every multiplier m: `sum_i min over the box of a_i d_i + m d_i^2 / 2`, minus `m radius^2 / 2`.
        The first m is that of the ball alone, |a| / radius. Each round computes the m that is optimal if exactly the
        features now at the edge of the box stay there. These m decrease to the optimum in finitely many rounds; we do
        at most `_ROUNDS`.
        """
        start = dot(a, _rows_of(self.centre, owner))
        below = _rows_of(self.below, owner)
        above = _rows_of(self.above, owner)
        if self.radius is not None:
            a, below, above = _pack(a, below, above)
        # a linear function is smallest at a corner of the box
        lowest_terms = torch.where(a > 0, a * below, a * above)
        best = lowest_terms.sum(1)
        if self.radius is None:
            return start + best
        radius = self.radius[owner]
        free = a * (above > below)
        square = free * free
        m = square.sum(1).sqrt() / radius
        for _ in range(_ROUNDS):
            m = m.clamp(min=1e-200)
            # the minimiser of a d + m d^2 / 2 within the box
            minimiser = -free / m[:, None]
            d = torch.minimum(torch.maximum(minimiser, below), above)
            d_square = d * d
            excess = d_square.sum(1) - radius**2
            bound = (free * d).sum(1) + m / 2 * excess
            # the dual is a lower bound for any m, so the largest one counts
            best = torch.maximum(best, bound)
            inside = (d > below) & (d < above)
            room = radius**2 - torch.where(inside, 0.0, d_square).sum(1)
            rest = torch.where(inside, square, 0.0).sum(1)
            multiplier = (rest / room.clamp(min=1e-300)).sqrt()
            update = torch.where(room > 0, multiplier, 0.0)
            has_settled = update >= m * (1 - 1e-4)
            if bool(has_settled.all()):
                break
            m = torch.minimum(m, update)
        return start + best


@dataclass(frozen=True)
class Bounds:
    """Bounds `(N, *shape)` of the values of every step, and the lines of the nonlinear steps."""

    lower: list[Tensor]
    upper: list[Tensor]
    lines: list[tuple[Tensor, ...] | None]
    errors: list[Tensor | None]  # upper bounds of the rounding errors


def bound_values(
    network: TracedNetwork,
    permitted: PermittedInputs,
    method: Method,
    unit: float = 0.0,
    product: float = 0.0,
) -> Bounds:
    """Bounds of every step's values over the permitted inputs, for arithmetic with unit roundoff `unit`.

    The value of a step is its exact function of the values before it, plus an error of at most `Rule.rounding`.
    The bounds hold for all such errors.
    """
    shape = network.nodes[0].shape
    lowest = (permitted.centre + permitted.below).reshape(-1, *shape)
    highest = (permitted.centre + permitted.above).reshape(-1, *shape)
    bounds = Bounds([lowest], [highest], [None], [None])
    before_nonlinear: set[int] = set()
    for node in network.nodes:
        if isinstance(node.rule, Nonlinear):
            before_nonlinear.update(node.sources)
    for index, node in enumerate(network.nodes[1:], 1):
        assert node.rule is not None
        low = [bounds.lower[s] for s in node.sources]
        high = [bounds.upper[s] for s in node.sources]
        # the bounds are computed in float64, which rounds, too
        lower, upper = _widen(*node.rule.interval(low, high))
        sizes = []
        for lowest_value, highest_value in zip(low, high, strict=True):
            sizes.append(torch.maximum(lowest_value.abs(), highest_value.abs()))
        error = node.rule.rounding(sizes, unit, product)
        if error is not None:
            lower, upper = lower - error, upper + error
        bounds.errors.append(error)
        bounds.lower.append(lower)
        bounds.upper.append(upper)
        if isinstance(node.rule, Nonlinear):
            # the output of a rectifier is already bounded by the tightened bounds of its input
            bounds.lines.append(node.rule.lines(low[0], high[0]))
            continue
        bounds.lines.append(None)
        if method == "crown" and index in before_nonlinear:
            _tighten(network, permitted, bounds, index)
    return bounds


def bound_margins(
    network: TracedNetwork, permitted: PermittedInputs, bounds: Bounds, targets: Tensor
) -> Tensor:
    """Lower bounds `(N, classes)` of `logit_target - logit_j` over the permitted inputs; infinite for the target."""
    last = len(network.nodes) - 1
    classes = network.nodes[-1].shape[0]
    device = targets.device
    shape = (len(targets), classes)
    out = torch.full(shape, torch.inf, dtype=torch.float64, device=device)
    rival = torch.ones(shape, dtype=torch.bool, device=device)
    rival.scatter_(1, targets[:, None], False)
    pairs = rival.nonzero()
    for owner, unit in _chunks(network, pairs):
        target = targets[owner]
        # the target's logit less that of the rival
        a = torch.zeros(len(owner), classes, dtype=torch.float64, device=device)
        a.scatter_(1, unit[:, None], -1.0)
        a.scatter_(1, target[:, None], 1.0)
        out[owner, unit] = _lower_bound(network, permitted, bounds, last, a, owner)
    # the intervals of the logits may give a higher bound
    lowest_of_target = bounds.lower[-1].gather(1, targets[:, None])
    from_intervals = lowest_of_target - bounds.upper[-1]
    return torch.where(rival, torch.maximum(out, from_intervals), out)


def _tighten(
    network: TracedNetwork, permitted: PermittedInputs, bounds: Bounds, index: int
) -> None:
    """Intersect the intervals of the units whose bounds matter with backward bounds."""
    node = network.nodes[index]
    lower = bounds.lower[index].flatten(1)
    upper = bounds.upper[index].flatten(1)
    error = bounds.errors[index]
    noise = _WIDEN * torch.maximum(lower.abs(), upper.abs())
    if error is not None:
        noise = noise + error.flatten(1)
    # a unit that no free feature changes has an interval of the width of the rounding errors, which cannot shrink
    can_shrink = upper - lower > 4 * noise
    to_tighten = _find_units_to_tighten(network, index, lower, upper) & can_shrink
    for owner, unit in _chunks(network, to_tighten.nonzero()):
        shape = (len(owner), lower.shape[1])
        a = torch.zeros(shape, dtype=torch.float64, device=lower.device)
        a.scatter_(1, unit[:, None], 1.0)
        a = a.reshape(-1, *node.shape)
        if node.affine:  # the same linear function is the lower and the upper bound
            a, constant, slack = _carry_back(network, bounds, index, a, owner)
            low = permitted.minimum(a, owner) + constant - slack
            high = constant + slack - permitted.minimum(-a, owner)
        else:
            low = _lower_bound(network, permitted, bounds, index, a, owner)
            high = -_lower_bound(network, permitted, bounds, index, -a, owner)
        low, high = _widen(low, high)
        lower[owner, unit] = torch.maximum(low, lower[owner, unit])
        upper[owner, unit] = torch.minimum(high, upper[owner, unit])
    bounds.lower[index] = lower.reshape(-1, *node.shape)
    bounds.upper[index] = upper.reshape(-1, *node.shape)


def _find_units_to_tighten(
    network: TracedNetwork, index: int, lower: Tensor, upper: Tensor
) -> Tensor:
    """Mask of the units whose bounds matter.

    These are all units if a pooling follows, directly or after a rectifier; else the units whose sign is not decided.
    """
    after = {index}
    pooled = False
    for position, node in enumerate(network.nodes[index + 1 :], index + 1):
        if after & set(node.sources) and isinstance(node.rule, Nonlinear):
            after.add(position)
            pooled = pooled or isinstance(node.rule, MaxPool)
    # a pooling compares its candidates, so their bounds matter whatever their sign
    if pooled:
        return torch.ones_like(lower, dtype=torch.bool)
    return (lower < 0) & (upper > 0)


def _lower_bound(
    network: TracedNetwork,
    permitted: PermittedInputs,
    bounds: Bounds,
    index: int,
    a: Tensor,
    owner: Tensor,
) -> Tensor:
    """Lower bounds `(rows,)` of `sum(a * values)` of the step `index`."""
    a, constant, error = _carry_back(network, bounds, index, a, owner)
    return permitted.minimum(a, owner) + constant - error


def _carry_back(
    network: TracedNetwork, bounds: Bounds, index: int, a: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A linear function of the input that is a lower bound of `sum(a * values)` of the step `index`.

    Returns its coefficients `(rows, n)`, its constants `(rows,)`, and an upper bound `(rows,)` of the rounding errors.
    """
    constant = a.new_zeros(len(a))
    slack = a.new_zeros(len(a))
    pending = {index: a}
    for position in range(index, 0, -1):
        if position not in pending:
            continue
        a = pending.pop(position)
        node = network.nodes[position]
        shape = network.nodes[node.sources[0]].shape
        error = bounds.errors[position]
        if error is not None:
            slack = slack + dot(a.abs(), _rows_of(error, owner))
        if isinstance(node.rule, Affine):
            if node.rule.offset is not None:
                constant = constant + dot(a, node.rule.offset[None])
            parts = [node.rule.adjoint(a, shape)]
        elif isinstance(node.rule, Sum):
            parts = [a, node.rule.sign * a]
        else:
            assert isinstance(node.rule, Nonlinear)
            lines = bounds.lines[position]
            assert lines is not None
            lines_of_rows = tuple(_rows_of(line, owner) for line in lines)
            a, shift = node.rule.backward(a, lines_of_rows, shape)
            constant = constant + shift
            parts = [a]
        # a step that feeds two branches gets the coefficients of both
        for source, part in zip(node.sources, parts, strict=True):
            if source in pending:
                part = pending[source] + part
            pending[source] = part
    return pending[0].flatten(1), constant, slack


def _pack(a: Tensor, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keep only features with a nonzero coefficient, if they are few: units of early convolutions see a small patch."""
    features = a.shape[1]
    count = int((a != 0).sum(1).max())
    if 4 * count > features:
        return a, below, above
    kept = a.abs().topk(max(count, 1)).indices
    kept_below = below.expand_as(a).gather(1, kept)
    kept_above = above.expand_as(a).gather(1, kept)
    return a.gather(1, kept), kept_below, kept_above


def _rows_of(values: Tensor, owner: Tensor) -> Tensor:
    """`values[owner]` for owners in ascending order; a single row if all owners are equal."""
    first = int(owner[0])
    last = int(owner[-1])
    if first == last:
        return values[first][None]
    return values[owner]


def _chunks(network: TracedNetwork, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Owners and units of `pairs`, as many at once as fit into memory."""
    if not len(pairs):
        return
    widest = max(node.shape.numel() for node in network.nodes)
    at_once = max(8, _NUMBERS // widest)
    for chunk in torch.split(pairs, at_once):
        yield chunk[:, 0], chunk[:, 1]


def _widen(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    slack = _WIDEN * torch.maximum(lower.abs(), upper.abs())
    return lower - slack, upper + slack
