"""Bounds of a network's logits over a ball around an input, by backward linear relaxation.

A linear function of a layer's values is carried back through the layers, each replaced by lines that bound it, until
it is a linear function of the input that lies below the first one; its minimum over the permitted inputs is known.
With one-unit functions this bounds what enters each rectifier and pooling, layer after layer, since their lines need
it; with margins it certifies. Zhang, Weng, Chen, Hsieh and Daniel, "Efficient neural network robustness certification
with general activation functions" (NeurIPS 2018), Theorem 3.2 and Corollary 3.3 ("CROWN"). Departures: pooling (see
`MaxPool`); the permitted inputs are a ball within a box, not a ball alone; bounds are intersected with interval ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.algorithms.certified.network_rules import Affine, Bent, MaxPool, Sum, dot
from holdfast.algorithms.certified.network_trace import Network

Method = Literal["crown", "interval"]
_NUMBERS = 1 << 20  # float64 numbers in the widest layer's coefficients at once: 8 MB, about a cache's worth
_ROUNDS = 12  # for the multiplier of a ball within a box; a bound after any number of them
_WIDEN = 1e-11  # relative, for what float64 rounds in the bounds themselves


@dataclass(frozen=True)
class Permitted:
    """Where the inputs `(N, n)` may go: between `centre + below` and `centre + above`, as far as `radius` in L2.

    `below <= 0 <= above`, both zero for held features; `radius` `(N,)` is None where the box is all there is.
    """

    centre: Tensor
    below: Tensor
    above: Tensor
    radius: Tensor | None

    def minimum(self, a: Tensor, owner: Tensor) -> Tensor:
        """Lower bounds `(rows,)` of `a . x` over the inputs that row `owner` may become, for coefficients `(rows, n)`.

        Exact for boxes. For a ball within a box it is the Lagrangian dual of the ball's constraint, a bound for every
        multiplier m: `sum_i min over the box of a_i d_i + m d_i^2 / 2`, minus `m radius^2 / 2`. Starting from the
        ball's own m = |a| / radius, the m that would be right if the features now at the box's edge were all that
        will be falls to the best one in finitely many rounds, of which a few are done.
        """
        start = dot(a, _of(self.centre, owner))
        below, above = _of(self.below, owner), _of(self.above, owner)
        if self.radius is not None:
            a, below, above = _packed(a, below, above)
        best = torch.where(a > 0, a * below, a * above).sum(1)
        if self.radius is None:
            return start + best
        radius = self.radius[owner]
        free = a * (above > below)
        square = free * free
        m = square.sum(1).sqrt() / radius
        for _ in range(_ROUNDS):
            m = m.clamp(min=1e-200)
            d = torch.minimum(torch.maximum(-free / m[:, None], below), above)
            bound = (free * d).sum(1) + m / 2 * ((d * d).sum(1) - radius**2)
            best = torch.maximum(best, bound)
            inside = (d > below) & (d < above)
            room = radius**2 - torch.where(inside, 0.0, d * d).sum(1)
            rest = torch.where(inside, square, 0.0).sum(1)
            update = torch.where(room > 0, (rest / room.clamp(min=1e-300)).sqrt(), 0.0)
            if bool((update >= m * (1 - 1e-4)).all()):
                break
            m = torch.minimum(m, update)
        return start + best


@dataclass(frozen=True)
class Bounds:
    """Bounds `(N, *shape)` of the values of every step, and the lines of the bent ones."""

    lower: list[Tensor]
    upper: list[Tensor]
    lines: list[tuple[Tensor, ...] | None]
    errors: list[Tensor | None]  # what rounding adds, at most


def bound_values(
    network: Network, permitted: Permitted, method: Method, unit: float = 0.0, product: float = 0.0
) -> Bounds:
    """Bounds of every step's values over the permitted inputs, as arithmetic of unit roundoff `unit` computes them.

    Each step is its exact function of the values before it, plus an error of at most `Rule.rounding`; the bounds hold
    for all such errors.
    """
    shape = network.nodes[0].shape
    inputs = (permitted.centre + permitted.below, permitted.centre + permitted.above)
    bounds = Bounds([inputs[0].reshape(-1, *shape)], [inputs[1].reshape(-1, *shape)], [None], [None])
    bent = {s for node in network.nodes if isinstance(node.rule, Bent) for s in node.sources}
    for index, node in enumerate(network.nodes[1:], 1):
        assert node.rule is not None
        low = [bounds.lower[s] for s in node.sources]
        high = [bounds.upper[s] for s in node.sources]
        lower, upper = _widened(*node.rule.interval(low, high))
        sizes = [torch.maximum(a.abs(), b.abs()) for a, b in zip(low, high, strict=True)]
        error = node.rule.rounding(sizes, unit, product)
        if error is not None:
            lower, upper = lower - error, upper + error
        bounds.errors.append(error)
        bounds.lower.append(lower)
        bounds.upper.append(upper)
        bounds.lines.append(node.rule.lines(low[0], high[0]) if isinstance(node.rule, Bent) else None)
        # what comes from a rectifier has its bounds from what entered it
        if method == "crown" and index in bent and not isinstance(node.rule, Bent):
            _tighten(network, permitted, bounds, index)
    return bounds


def margins(network: Network, permitted: Permitted, bounds: Bounds, targets: Tensor) -> Tensor:
    """Lower bounds `(N, classes)` of `logit_target - logit_j` over the permitted inputs; infinite for the target."""
    last, classes = len(network.nodes) - 1, network.nodes[-1].shape[0]
    out = torch.full((len(targets), classes), torch.inf, dtype=torch.float64, device=targets.device)
    rival = torch.ones_like(out, dtype=torch.bool).scatter_(1, targets[:, None], False)
    pairs = rival.nonzero()
    for owner, unit in _chunks(network, pairs):
        a = torch.zeros(len(owner), classes, dtype=torch.float64, device=targets.device)
        a.scatter_(1, unit[:, None], -1.0).scatter_(1, targets[owner][:, None], 1.0)
        out[owner, unit] = _below(network, permitted, bounds, last, a, owner)
    # the intervals of the logits, where they are better
    apart = bounds.lower[-1].gather(1, targets[:, None]) - bounds.upper[-1]
    return torch.where(rival, torch.maximum(out, apart), out)


def _tighten(network: Network, permitted: Permitted, bounds: Bounds, index: int) -> None:
    """Replace the intervals of the units whose sign is open by backward bounds, where those are better."""
    node = network.nodes[index]
    lower, upper = bounds.lower[index].flatten(1), bounds.upper[index].flatten(1)
    error = bounds.errors[index]
    noise = _WIDEN * torch.maximum(lower.abs(), upper.abs()) + (0.0 if error is None else error.flatten(1))
    # what held features decide has nothing to gain
    wanted = _wanted(network, index, lower, upper) & (upper - lower > 4 * noise)
    for owner, unit in _chunks(network, wanted.nonzero()):
        a = torch.zeros(len(owner), lower.shape[1], dtype=torch.float64, device=lower.device)
        a.scatter_(1, unit[:, None], 1.0)
        a = a.reshape(-1, *node.shape)
        if node.straight:  # one linear function, from both sides
            a, constant, slack = _backward(network, bounds, index, a, owner)
            low = permitted.minimum(a, owner) + constant - slack
            high = constant + slack - permitted.minimum(-a, owner)
        else:
            low = _below(network, permitted, bounds, index, a, owner)
            high = -_below(network, permitted, bounds, index, -a, owner)
        low, high = _widened(low, high)
        lower[owner, unit] = torch.maximum(low, lower[owner, unit])
        upper[owner, unit] = torch.minimum(high, upper[owner, unit])
    bounds.lower[index], bounds.upper[index] = (part.reshape(-1, *node.shape) for part in (lower, upper))


def _wanted(network: Network, index: int, lower: Tensor, upper: Tensor) -> Tensor:
    """The units whose bounds matter: all before a pooling, also through a rectifier; else those of open sign."""
    after, pooled = {index}, False
    for position, node in enumerate(network.nodes[index + 1 :], index + 1):
        if after & set(node.sources) and isinstance(node.rule, Bent):
            after.add(position)
            pooled = pooled or isinstance(node.rule, MaxPool)
    # a pooling compares its candidates
    return torch.ones_like(lower, dtype=torch.bool) if pooled else (lower < 0) & (upper > 0)


def _below(network: Network, permitted: Permitted, bounds: Bounds, index: int, a: Tensor, owner: Tensor) -> Tensor:
    """Lower bounds `(rows,)` of `sum(a * values)` of the step `index`."""
    a, constant, error = _backward(network, bounds, index, a, owner)
    return permitted.minimum(a, owner) + constant - error


def _backward(network: Network, bounds: Bounds, index: int, a: Tensor, owner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The linear function of the input below `sum(a * values)`: coefficients `(rows, n)`, constants `(rows,)`.

    Last, what rounding may take off it, `(rows,)`.
    """
    constant, slack = a.new_zeros(len(a)), a.new_zeros(len(a))
    pending = {index: a}
    for position in range(index, 0, -1):
        if position not in pending:
            continue
        a = pending.pop(position)
        node = network.nodes[position]
        shape = network.nodes[node.sources[0]].shape
        error = bounds.errors[position]
        if error is not None:
            slack = slack + dot(a.abs(), _of(error, owner))
        if isinstance(node.rule, Affine):
            if node.rule.offset is not None:
                constant = constant + dot(a, node.rule.offset[None])
            parts = [node.rule.adjoint(a, shape)]
        elif isinstance(node.rule, Sum):
            parts = [a, node.rule.sign * a]
        else:
            assert isinstance(node.rule, Bent)
            lines = bounds.lines[position]
            assert lines is not None
            a, shift = node.rule.backward(a, tuple(_of(line, owner) for line in lines), shape)
            constant, parts = constant + shift, [a]
        for source, part in zip(node.sources, parts, strict=True):
            pending[source] = pending[source] + part if source in pending else part
    return pending[0].flatten(1), constant, slack


def _packed(a: Tensor, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Only the features with a coefficient, where they are few: early convolutions see a small patch."""
    count = int((a != 0).sum(1).max())
    if 4 * count > a.shape[1]:
        return a, below, above
    places = a.abs().topk(max(count, 1)).indices
    below, above = (side.expand_as(a).gather(1, places) for side in (below, above))
    return a.gather(1, places), below, above


def _of(values: Tensor, owner: Tensor) -> Tensor:
    """`values[owner]` for ascending owners, as one row where they are all the same."""
    if int(owner[0]) == int(owner[-1]):
        return values[int(owner[0])][None]
    return values[owner]


def _chunks(network: Network, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Owners and units, so many at once as memory allows."""
    if not len(pairs):
        return
    widest = max(node.shape.numel() for node in network.nodes)
    for chunk in torch.split(pairs, max(8, _NUMBERS // widest)):
        yield chunk[:, 0], chunk[:, 1]


def _widened(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    slack = _WIDEN * torch.maximum(lower.abs(), upper.abs())
    return lower - slack, upper + slack
