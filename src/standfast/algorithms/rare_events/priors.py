"""The distributions that perturbed inputs are drawn from: what the rare-event algorithms need of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods import Region
from standfast.tensors import Streams


class Prior(Protocol):
    """P distributions on tensors of one shape, each the image of a standard normal one.

    Metrics use `standfast.neighbourhoods.Region`; its methods say what each returns.
    """

    def __len__(self) -> int: ...
    @property
    def shape(self) -> torch.Size: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def box(self) -> tuple[Tensor, Tensor] | None: ...
    def streams(self, seed: int) -> Streams: ...
    def select(self, rows: Sequence[int] | Tensor) -> Prior: ...
    def from_gaussian(self, z: Tensor) -> Tensor: ...
    def to_gaussian(self, x: Tensor) -> Tensor: ...
    def log_weight(self, x: Tensor) -> Tensor | None: ...
    def log_density(self, x: Tensor) -> Tensor: ...
    def sample_gaussian(self, count: int, streams: Streams) -> Tensor: ...
    def sample(self, count: int, streams: Streams) -> Tensor: ...


def UnitBox(dimension: int) -> Region:
    """The uniform distribution on `[0, 1]^dimension`, in float64.

    >>> UnitBox(3).sample(5, Streams([0], torch.device("cpu"))).shape
    torch.Size([1, 5, 3])
    """
    check(dimension >= 1, "dimension", "a whole number of at least 1", dimension)
    zeros = torch.zeros(1, dimension, dtype=torch.float64)
    return Region(centre=zeros + 0.5, lower=zeros, upper=zeros + 1.0)


@dataclass(frozen=True)
class StandardNormal:
    """The standard normal distribution in `dimension` dimensions, in float64.

    >>> StandardNormal(3).sample(5, Streams([0], torch.device("cpu"))).shape
    torch.Size([1, 5, 3])
    """

    dimension: int

    def __post_init__(self) -> None:
        check(self.dimension >= 1, "dimension", "a whole number of at least 1", self.dimension)

    def __len__(self) -> int:
        return 1

    @property
    def shape(self) -> torch.Size:
        """Shape of one point."""
        return torch.Size((self.dimension,))

    @property
    def dtype(self) -> torch.dtype:
        """The type of the points."""
        return torch.float64

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return torch.device("cpu")

    @property
    def box(self) -> None:
        """None: all values are possible."""
        return None

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

    def log_weight(self, x: Tensor) -> Tensor | None:
        """None: the map is exact."""
        return None

    def log_density(self, x: Tensor) -> Tensor:
        """Log density up to a constant, `(1, n)`."""
        return -0.5 * (x * x).sum(2)

    def sample_gaussian(self, count: int, streams: Streams) -> Tensor:
        """Points `(1, count, dimension)`."""
        return streams.normal((count, *self.shape), self.dtype)

    def sample(self, count: int, streams: Streams) -> Tensor:
        """Points `(1, count, dimension)`."""
        return self.sample_gaussian(count, streams)
