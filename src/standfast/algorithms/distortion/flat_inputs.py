"""A direction to leave an input at which the margin has no gradient.

A task may compare an output with that of the clean input itself, such as a cosine, which is largest there. Then the
margin J has its minimum at the input x: its gradient is zero, and what a network computes of it is rounding error. All
attacks begin with this gradient. They would go in an arbitrary direction, and as the gradient is tiny, its linearised
boundary lies thousands of times too far away.

So there the gradient of a *chord* takes its place. Near x the margin is `J(x) + delta' H delta / 2`, so the nearest
boundary lies in the direction of the largest curvature. In several runs in parallel:

1. a random direction v, and the least size h of a step along it that changes J by a hundredth;
2. steps of the power method on H: the next v is the gradient of J at `x + h v`;
3. the same from v and from -v, with steps of the size `D = h sqrt(-J(x) / (J(x + h v) - J(x)))`, where J would be 0 if
   it were quadratic. Far from x, and near bounds, its shape is another one;
4. the first point along v that changes the answer, among sizes around D.

The run with the nearest point gives the gradient at the input: that of a plane which rises from J(x) to 0 along this
chord. For the maximum norm, steps go along the signs of v.

A margin is flat if the gradient at the input explains less than a tenth of the rise along the chord. That of a linear
function explains all of it.

Cost, for each input of such a task: a gradient and 24 other evaluations, then 48 and 72 where a step changes J at all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.algorithms.distortion.geometry import Norm, dual_norm_of, norm_of
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.tensors import Streams

_RUNS = 4  # random directions, each with its opposite
_STEPS = 4  # of the power method
# how many sizes of the first step are tried, each double the one before; and at once
_SIZES = 24
_TOGETHER = 8
_SMALLEST = 2.0**-14  # the first of them, as a share of the largest value of the input
_CHANGE = 0.01  # the first step changes the margin by this share of it: far above rounding, and near the input
# how many sizes around the estimated distance are tried, from a half to four times of it
_AROUND = 8
_UNKNOWN = 8.0  # the distance where none of these changes the answer, as a multiple of the estimate
_EXPLAINED = 0.1  # a gradient that explains less of the rise along a chord counts as zero


def bridge_flat_inputs(space: FreeSpace, nearest: Nearest, streams: Streams) -> None:
    """Give the flat inputs of `space` the gradients of chords, and offer the ends of chords to `nearest`."""
    margin, gradient = space.margin_gradient(space.x, space.rows)
    directions = streams.normal((_RUNS, space.x.shape[1]), space.x.dtype)
    directions = directions * space.free[:, None]
    step, moves = _find_first_step(space, directions[:, 0], margin)
    rows = moves.nonzero().flatten()
    count = len(rows)
    if not count:
        return
    owner = rows.repeat_interleave(_RUNS)
    starts = directions[rows].flatten(0, 1)
    climbed = _climb(space, starts, step[owner], owner)
    curved = climbed.reshape(count, _RUNS, -1)
    # near bounds, and further away, the margin differs between the two sides
    sides = torch.cat([curved, -curved], 1)
    flat_sides = sides.flatten(0, 1)
    owner = rows.repeat_interleave(2 * _RUNS)
    estimate = _estimate_distance(space, flat_sides, step[owner], margin[owner], owner)
    ends = _climb(space, flat_sides, estimate, owner)
    crossings = _find_crossing(space, nearest, ends, estimate, owner)
    least = crossings.reshape(count, -1).min(1)
    distance = least.values
    row_numbers = torch.arange(count, device=rows.device)
    best = ends.reshape(sides.shape)[row_numbers, least.indices]
    depth = margin[rows].abs()
    rise_of_gradient = distance * dual_norm_of(gradient[rows], space.norm)
    flat = rise_of_gradient < _EXPLAINED * depth
    # the plane with this slope rises from J(x) to 0 along the chord
    rise_of_best = distance * dual_norm_of(best, space.norm)
    slope = depth / rise_of_best.clamp(min=1e-30)
    chords = slope[:, None] * best
    space.replace_gradients(rows[flat], chords[flat])


def _find_first_step(space: FreeSpace, directions: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """The least size of a step along `directions` `(N, d)` that changes the margin a little, and whether one does."""
    room_above = space.upper - space.x
    room_below = space.x - space.lower
    room = torch.maximum(room_above, room_below).amax(1).clamp(max=1.0)
    largest = torch.where(space.free, space.x, 0.0).abs().amax(1)
    # an input of zeros has no scale of its own: that of the bounds stands for it
    unit = torch.where(largest > 0, largest, room) * _SMALLEST
    powers = 2.0 ** torch.arange(_SIZES, dtype=unit.dtype, device=unit.device)
    sizes = unit[:, None] * powers
    changed = []
    owner = space.rows.repeat_interleave(_TOGETHER)
    margin = margin[owner]
    for first in range(0, _SIZES, _TOGETHER):
        next_sizes = sizes[:, first : first + _TOGETHER].flatten()
        points = _take_step(space, directions[owner], next_sizes, owner)
        change = (space.margin(points, owner) - margin).abs()
        has_changed = change.isfinite() & (change >= _CHANGE * margin.abs())
        changed.append(has_changed.reshape(-1, _TOGETHER))
    moves = torch.cat(changed, 1)
    first_place = moves.to(torch.int64).argmax(1, keepdim=True)
    return sizes.gather(1, first_place)[:, 0], moves.any(1)


def _climb(space: FreeSpace, directions: Tensor, step: Tensor, owner: Tensor) -> Tensor:
    """Directions `(M, d)` of large curvature, by the power method from `directions`."""
    for _ in range(_STEPS):
        points = _take_step(space, directions, step, owner)
        _, gradient = space.margin_gradient(points, owner)
        lost = (gradient == 0).all(1, keepdim=True)  # as on the flat side of a rectifier
        directions = torch.where(lost, directions, gradient)
    return _direct(directions, space.norm)


def _estimate_distance(
    space: FreeSpace, directions: Tensor, step: Tensor, margin: Tensor, owner: Tensor
) -> Tensor:
    """At which distances `(M,)` along `directions` the answer would change if the margin were quadratic."""
    points = _take_step(space, directions, step, owner)
    rise = space.margin(points, owner) - margin
    depth = margin.abs()
    # at most 1 / _CHANGE steps away, also where the margin does not rise
    steps_squared = depth / rise.clamp(min=_CHANGE**2 * depth)
    return step * steps_squared.sqrt()


def _find_crossing(
    space: FreeSpace, nearest: Nearest, directions: Tensor, estimate: Tensor, owner: Tensor
) -> Tensor:
    """At which distances `(M,)` along `directions` the answer changes; an estimate where no point has changed it."""
    shares = torch.logspace(-1, 2, _AROUND, base=2.0, dtype=estimate.dtype, device=estimate.device)
    distance = _UNKNOWN * estimate
    # from the largest to the smallest, so that the nearest crossing is the one that stays
    for share in shares.flip(0):
        size = share * estimate
        points = _take_step(space, directions, size, owner)
        margin = space.margin(points, owner)
        _, flips = nearest.offer(points, margin, owner)
        distance = torch.where(flips, size, distance)
    return distance


def _take_step(space: FreeSpace, directions: Tensor, sizes: Tensor, owner: Tensor) -> Tensor:
    """The points at the ends of steps of `sizes` `(M,)` along `directions` `(M, d)`, within the bounds."""
    steps = sizes[:, None] * _direct(directions, space.norm)
    return space.clip(space.x[owner] + steps, owner)


def _direct(directions: Tensor, norm: Norm) -> Tensor:
    """Steps of size 1 in the norm along `directions` `(M, d)`."""
    if norm == "inf":
        return directions.sign()
    length = norm_of(directions, 2).clamp(min=1e-30)
    return directions / length[:, None]
