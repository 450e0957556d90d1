"""The Metropolis moves of subset simulation: how a particle's next position is proposed.

`GaussianMoves` are the default. They work in Gaussian space. In turns, they change all features a little, and replace a
block of features by new random values:

- all features: `z' = sqrt(1 - b^2) z + b xi` (preconditioned Crank-Nicolson, Cotter et al. 2013; Papaioannou et al.
  2015 for subset simulation). This preserves the prior in any dimension, so only the level rejects moves.
- a block of neighbouring positions of an image or a series: `z' = xi` within a random rectangle, `z' = z` outside it.
  The map of a network with rectifiers jumps where a unit switches. A small move of size b of all pixels switches a
  number of units that is proportional to b, but it forgets only b^2 / 2 of the position. For a block both are
  proportional to its share of the pixels. Each part of the image has its own block size, since a level that hardly
  depends on the border would otherwise decide how large blocks in the middle are. Where a block lies does not depend on
  the particle, so the prior is preserved.

Features without an order (inputs of one axis) have no blocks. There a few features often decide, and a block that
misses them is accepted without changing anything that matters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from standfast.algorithms.rare_events.priors import StandardNormal
from standfast.neighbourhoods import Region
from standfast.tensors import Streams, broadcast_rows

_JITTER = 0.7  # the logarithm of a block's side varies by that much
_PARTS = 16  # parts of an image or a series whose blocks have a size of their own, about
_SHORTEST = 0.5  # positions of the longest axis; each block has at least one
_SHARED_STEPS = 5.0  # to the steps of a part, so many with the acceptance of all parts are added: few say little
_FROZEN = 0.1  # share of the features that may have forgotten less than what counts as forgotten


class Moves:
    """What all kinds of moves share: a size, adapted to a target acceptance, and what particles forget.

    Args:
        state: the first particles, `(P, n, *shape)`.
        kinds: how many kinds of moves take turns.
        size: the first size.
        largest: the largest size, one for each problem or one for all.

    Attributes:
        size: of each problem's steps of all features, `(P,)`. It is one for all particles of a problem, and is adapted
            in steps that shrink within a level, which keeps the bias of adaptation small.
        kind: of the current step; it is the same for all problems.
        memory: ln of the correlation with the positions at the beginning of the level, `(P,)`. For moves of all
            features it is an average over features. For blocks, which may leave some features where they are, it is
            what nine tenths of the features have at least forgotten.
    """

    target = 0.0

    def __init__(self, state: Tensor, kinds: int, size: float, largest: Tensor | float) -> None:
        self.size = torch.full((len(state),), size, device=state.device)
        if not isinstance(largest, Tensor):
            largest = self.size.new_full((), largest)
        self.largest = largest.to(self.size.dtype).expand(len(state))
        self.kinds = kinds
        self.kind = kinds - 1
        self.begin_level(state)

    def begin_level(self, state: Tensor) -> None:
        """Start to count steps, and what they forget of these positions `(P, n, *shape)`."""
        self.steps = [0] * self.kinds
        self.lost = torch.zeros_like(self.size)  # by moves of all features
        self.lost_in_blocks = torch.zeros_like(state[:, 0], dtype=self.size.dtype)

    def begin_move(self) -> None:
        """Start a move of all particles, which `propose` and `record` may take chunk by chunk."""
        self.kind = (self.kind + 1) % self.kinds
        self.tried = 0
        self.accepted = torch.zeros_like(self.size)
        self.square = torch.zeros_like(self.lost_in_blocks)

    def propose(self, state: Tensor, streams: Streams) -> tuple[Tensor, Tensor | float]:
        """Proposed states, and the log of the probability of the reverse step over that of the step, `(P, n)`."""
        raise NotImplementedError

    def record(self, step: Tensor, accept: Tensor) -> None:
        """Count the steps `(P, n, *shape)` that were accepted, `(P, n)`; `step` is overwritten."""
        self.tried += accept.shape[1]
        self.accepted += accept.sum(1)
        is_accepted = broadcast_rows(accept, step)
        square = step.square_().mul_(is_accepted).sum(1)
        self.square += square.to(self.square.dtype)

    def end_move(self) -> Tensor:
        """Adapt the size to the share of accepted steps, and return this share, `(P,)`."""
        rate = self.accepted / self.tried
        self.steps[self.kind] += 1
        # gains that shrink within a level keep the bias of adaptation small
        gain = 1 / math.sqrt(self.steps[self.kind])
        self.adapt(rate, gain)
        # half the mean square of the steps, in units of the prior's, is forgotten
        square = self.square / self.tried
        # ln 0 is not finite: positions that are drawn anew count as 99% forgotten
        if self.kind == 0:
            forgotten = square.flatten(1).mean(1) / 2
            self.lost -= torch.log1p(-forgotten.clamp(max=0.99))
        else:
            forgotten = square / 2
            self.lost_in_blocks -= torch.log1p(-forgotten.clamp(max=0.99))
        return rate

    def adapt(self, rate: Tensor, gain: float) -> None:
        """Change the size of this kind of moves by the share of accepted steps, `(P,)`."""
        surplus = rate - self.target
        size = self.size * torch.exp(gain * surplus)
        self.size = torch.minimum(size, self.largest)

    @property
    def memory(self) -> Tensor:
        """See the class."""
        of_features = self.lost_in_blocks.flatten(1).sort(1).values
        frozen = int(_FROZEN * of_features.shape[1])
        return -self.lost - of_features[:, frozen]

    def select(self, index: Tensor) -> None:
        """Keep these problems only."""
        self.size = self.size[index]
        self.largest = self.largest[index]


class GaussianMoves(Moves):
    """Moves of all features (kind 0) and, for images and series, of blocks (kind 1), in Gaussian space.

    A block is a rectangle in the axes after the channels, with all channels. The image has about 16 parts, and
    each has its own block size, adapted to the acceptance of its blocks. A block's part follows from its random offset.

    Args:
        state: the first particles, `(P, n, *shape)`.

    Attributes:
        share: of the positions that a block of each part covers, `(P, parts)`, in (0, 1].
    """

    target = 0.35  # Papaioannou et al. 2015

    def __init__(self, state: Tensor) -> None:
        self.grid = state.shape[3:]
        self.parts = plan_parts(self.grid)
        shape = (len(state), math.prod(self.parts))
        self.share = torch.ones(shape, device=state.device)
        # without positions there are no blocks
        kinds = 2 if self.grid else 1
        super().__init__(state, kinds=kinds, size=0.8, largest=1.0)

    def begin_move(self) -> None:
        """Start a move of all particles, which `propose` and `record` may take chunk by chunk."""
        super().begin_move()
        self.tried_in_part, self.accepted_in_part = (
            torch.zeros_like(self.share),
            torch.zeros_like(self.share),
        )

    def propose(self, state: Tensor, streams: Streams) -> tuple[Tensor, Tensor | float]:
        """Proposed states; steps and their reverse are equally probable."""
        noise = streams.normal(state.shape[1:], state.dtype)
        if self.kind == 0:
            width = broadcast_rows(self.size.to(state.dtype), state)
            # (1 - b^2) + b^2 = 1: the step keeps the variance of the prior
            kept = torch.sqrt(1 - width**2)
            return kept * state + width * noise, 0.0
        particles = state.shape[1]
        inside, self.part = draw_blocks(self.share, self.parts, particles, self.grid, streams)
        return torch.where(inside[:, :, None], noise, state), 0.0

    def record(self, step: Tensor, accept: Tensor) -> None:
        """Count the accepted steps, and of blocks also those of each part."""
        super().record(step, accept)
        if self.kind == 1:
            accepted = accept.to(self.share.dtype)
            self.tried_in_part.scatter_add_(1, self.part, torch.ones_like(accepted))
            self.accepted_in_part.scatter_add_(1, self.part, accepted)

    def adapt(self, rate: Tensor, gain: float) -> None:
        """Change the size of moves of all features, or those of all parts' blocks."""
        if self.kind == 0:
            super().adapt(rate, gain)
            return
        # few blocks of a part say little about it: all parts' acceptance counts as some more of them
        accepted = self.accepted_in_part + _SHARED_STEPS * rate[:, None]
        tried = self.tried_in_part + _SHARED_STEPS
        surplus = accepted / tried - self.target
        smallest = (_SHORTEST / max(self.grid)) ** len(self.grid)
        share = self.share * torch.exp(gain * surplus)
        self.share = share.clamp(smallest, 1.0)

    def select(self, index: Tensor) -> None:
        """Keep these problems only."""
        super().select(index)
        self.share = self.share[index]


class RandomWalk(Moves):
    """The paper's moves: uniform around each feature, cut off at the box's faces as in the authors' code.

    The acceptance ratio is that of Eq. 23 with numerator and denominator exchanged, which is the correct form. The
    width is adapted for all particles together, not for each from its own history.
    """

    target = 0.234  # SAFARI's choice

    def __init__(self, prior: Region, state: Tensor) -> None:
        # the first step is as wide as the prior, feature by feature
        scale = state.std(dim=1, keepdim=True)
        self.prior = prior
        self.bounded = not isinstance(prior, StandardNormal)
        super().__init__(state, kinds=1, size=1.0, largest=self._widest(scale))
        self.scale = scale

    def propose(self, state: Tensor, streams: Streams) -> tuple[Tensor, Tensor | float]:
        """Proposed states, and the log of the probability of the reverse step over that of the step, `(P, n)`."""
        reach = broadcast_rows(self.size.to(state.dtype), state) * self.scale
        noise = streams.uniform(state.shape[1:], state.dtype)
        if not self.bounded:
            return state + reach * (2 * noise - 1), 0.0
        lower, upper = (face[:, None] for face in self.prior.box)

        def find_ends(x: Tensor) -> tuple[Tensor, Tensor]:
            low = torch.maximum(x - reach, lower)
            high = torch.minimum(x + reach, upper)
            return low, high

        low, high = find_ends(state)
        proposed = torch.lerp(low, high, noise)
        back_low, back_high = find_ends(proposed)
        # a feature whose box has no width stays where it is
        roomy = upper > lower
        width = torch.where(roomy, high - low, 1.0)
        back_width = torch.where(roomy, back_high - back_low, 1.0)
        # proposals are uniform within [low, high], so their densities are the inverse widths (Eq. 23, turned over)
        ratio = width / back_width
        return proposed, ratio.log().flatten(2).sum(2)

    def record(self, step: Tensor, accept: Tensor) -> None:
        """Count the accepted steps, in units of the prior's standard deviation."""
        scale = self.scale.clamp(min=1e-30)
        super().record(step / scale, accept)

    def select(self, index: Tensor) -> None:
        """Keep these problems only."""
        super().select(index)
        self.scale = self.scale[index]
        self.prior = self.prior.select(index)

    def _widest(self, scale: Tensor) -> Tensor | float:
        """The largest width `(P,)`. Above it the proposal no longer changes, and adaptation would not recover."""
        if not self.bounded:
            return torch.inf
        lower, upper = self.prior.box
        room = (upper - lower).flatten(1)
        scale = scale[:, 0].flatten(1)
        has_room = (room > 0) & (scale > 0)
        reach = torch.where(has_room, room / scale.clamp(min=1e-30), 0.0)
        return reach.amax(1).clamp(min=1.0)


def plan_parts(grid: torch.Size) -> tuple[int, ...]:
    """Into how many parts each axis is divided, so that there are about 16 in all.

    >>> plan_parts(torch.Size([28, 28])), plan_parts(torch.Size([140])), plan_parts(torch.Size([]))
    ((4, 4), (16,), ())
    """
    if not grid:
        return ()
    parts_of_axis = round(_PARTS ** (1 / len(grid)))
    return tuple(min(length, parts_of_axis) for length in grid)


def draw_blocks(
    share: Tensor, parts: tuple[int, ...], count: int, grid: torch.Size, streams: Streams
) -> tuple[Tensor, Tensor]:
    """`count` random blocks for each problem, bool `(P, count, *grid)`, and the part of each, `(P, count)`.

    Their sides vary by a factor of two in both directions, and are at least one position long. Blocks may stick out (so
    that positions at the edge are drawn as often as the others), which makes large ones smaller.

    Args:
        share: of the positions that a block of each part covers, about; `(P, prod(parts))`, in (0, 1].
        parts: into how many parts each axis is divided.
    """
    axes = len(grid)
    numbers = streams.uniform((count, 1 + 2 * axes), torch.float32)
    uniform = 2 * numbers[..., :1] - 1
    stretch = torch.exp(_JITTER * uniform)
    roundings = numbers[..., 1 : 1 + axes]
    offsets = numbers[..., 1 + axes :]
    part = torch.zeros((), dtype=torch.int64, device=share.device)
    for axis, divided in enumerate(parts):
        last = divided - 1
        part_of_axis = (offsets[..., axis] * divided).long().clamp(max=last)
        part = part * divided + part_of_axis
    share_of_block = share.gather(1, part)[..., None]
    if axes <= 2:
        own_side = share_of_block ** (1 / axes)
    else:
        # a power of 1/3 would have other last bits in another batch
        own_side = torch.exp(torch.log(share_of_block) / axes)
    inside = torch.ones((), dtype=torch.bool, device=share.device)
    for axis, length in enumerate(grid):
        rounding = roundings[..., axis, None]
        offset = offsets[..., axis, None]
        side = (own_side * stretch * length + rounding).floor().clamp(1, length)
        first = (offset * (length + side - 1)).floor() - (side - 1)
        positions = torch.arange(length, device=share.device)
        within = (positions >= first) & (positions < first + side)
        # the other axes of the grid have one entry here
        shape_in_grid = [1] * axes
        shape_in_grid[axis] = length
        inside = inside & within.reshape(*within.shape[:2], *shape_in_grid)
    return inside, part
