"""Distributions with known probabilities, as priors of the rare-event algorithms. Metrics use the regions of inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods import Region
from standfast.tensors import Streams


def UnitBox(dimension: int) -> Region:
    """The uniform distribution on `[0, 1]^dimension`, in float64.

    >>> UnitBox(3).sample(5, Streams([0], torch.device("cpu"))).shape
    torch.Size([1, 5, 3])
    """
    check(dimension >= 1, "dimension", "a whole number of at least 1", dimension)
    zeros = torch.zeros(1, dimension, dtype=torch.float64)
    return Region(centre=zeros + 0.5, lower=zeros, upper=zeros + 1.0)


class StandardNormal(Region):
    """The standard normal distribution in `dimension` dimensions, in float64.

    >>> StandardNormal(3).sample(5, Streams([0], torch.device("cpu"))).shape
    torch.Size([1, 5, 3])
    """

    def __init__(self, dimension: int) -> None:
        check(dimension >= 1, "dimension", "a whole number of at least 1", dimension)
        zeros = torch.zeros(1, dimension, dtype=torch.float64)
        super().__init__(centre=zeros, lower=zeros - torch.inf, upper=zeros + torch.inf)

    def streams(self, seed: int) -> Streams:
        """The one random stream."""
        return Streams([seed], self.device)

    def select(self, rows: Sequence[int] | Tensor) -> StandardNormal:
        """The one distribution, for any rows."""
        return self

    def from_gaussian(self, z: Tensor) -> Tensor:
        """The identity."""
        return z

    def to_gaussian(self, x: Tensor) -> Tensor:
        """The identity."""
        return x

    def log_density(self, x: Tensor) -> Tensor:
        """Log density up to a constant, `(1, n)`."""
        return -0.5 * (x * x).sum(2)

    def sample(self, count: int, streams: Streams) -> Tensor:
        """Points `(1, count, dimension)`."""
        return self.sample_gaussian(count, streams)
