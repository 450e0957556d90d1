"""Noise of images: Gaussian, speckle, shot and impulse.

The first parameter is how strong the noise is. After it comes one number in [0, 1] for each entry of the image. The
quantile function of the noise maps this number to the noise of the entry. So a perturbed image is a function of the
parameters, with nothing random in it: searches look for the worst noise, and probabilities are over uniform numbers.
All strengths are shares of the range of the inputs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import (
    Range,
    Transformation,
    expand,
    from_shares,
    parameter,
    to_shares,
)

#: above this mean the Poisson distribution is taken as continuous: its steps are below a hundredth of its deviation
_MANY = 1e4


@dataclass(frozen=True)
class Noise(Transformation):
    """The base of noise: a strength, and one uniform number for each entry."""

    takes = "any"
    needs_range = True

    def count_ranks(self, shape: Sequence[int]) -> int:
        """One for each entry."""
        return math.prod(shape)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        strength = expand(parameters[:, 0], inputs)
        uniform = parameters[:, 1:].reshape(inputs.shape)
        return self.add_noise(inputs, strength, uniform, bounds)

    @abstractmethod
    def add_noise(
        self, inputs: Tensor, strength: Tensor, uniform: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The inputs with the noise that the uniform numbers, of their shape, stand for; `strength` broadcasts."""


def map_to_normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones; at 0 and 1 they are finite, -5.3 and 5.3.

    >>> map_to_normal(torch.tensor([0.0, 0.5, 0.8413447]))
    tensor([-5.2947,  0.0000,  1.0000])
    """
    # 1 - 2^-24 is the largest number of single precision below 1; the quantiles of 0 and 1 are infinite
    least = 2.0**-24
    normal: Tensor = torch.special.ndtri(uniform.clamp(least, 1 - least))
    return normal


@neighbourhoods.register("gaussian_noise")
@dataclass(frozen=True)
class GaussianNoise(Noise):
    """Independent normal noise on every entry, clipped to the bounds.

    Source: Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations"
    (ICLR 2019).

    Args:
        scale: standard deviation as a share of the range, from the smallest to the largest; one number r stands for
            0 to r.

    >>> import torch
    >>> region = GaussianNoise(0.2).around(torch.full((1, 1, 1, 2), 0.5), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.1, 0.5, 0.8413447]]), torch.tensor([0]))
    tensor([[[[0.5000, 0.6000]]]])
    """

    phrase = "covered with Gaussian noise of scale {scale} of the range of values"

    scale: Range = parameter("scale of the noise [share of the range]", default=0.1, low=0, high=10)

    def add_noise(
        self, inputs: Tensor, strength: Tensor, uniform: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        lower, upper = bounds
        return inputs + (upper - lower) * strength * map_to_normal(uniform)


@neighbourhoods.register("speckle_noise")
@dataclass(frozen=True)
class SpeckleNoise(Noise):
    """Normal noise that is proportional to the value of each entry, counted from the lower bound.

    Source: Hendrycks and Dietterich, as for `GaussianNoise`.

    Args:
        scale: standard deviation as a share of the value, from the smallest to the largest; one number r stands for
            0 to r.

    >>> import torch
    >>> region = SpeckleNoise(0.5).around(torch.tensor([[[[0.0, 0.4]]]]), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.5, 0.1586553, 0.1586553]]), torch.tensor([0]))
    tensor([[[[0.0000, 0.2000]]]])
    """

    phrase = "covered with speckle noise of scale {scale} of each value"

    scale: Range = parameter("scale of the noise [share of the value]", default=0.2, low=0, high=10)

    def add_noise(
        self, inputs: Tensor, strength: Tensor, uniform: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        return inputs + (inputs - bounds[0]) * strength * map_to_normal(uniform)


@neighbourhoods.register("shot_noise")
@dataclass(frozen=True)
class ShotNoise(Noise):
    """Counts of photons instead of brightness: an entry of share u becomes N / c, for a Poisson number N of mean c u.

    Here c is the number of photons of the upper bound. The strength is 1 / sqrt(c), the standard deviation of an entry
    at the upper bound, so that strength 0 is the clean image. For a mean above 10,000 photons, N is taken as
    continuous. Counts are whole, so there are no gradients.

    Source: Hendrycks and Dietterich, as for `GaussianNoise`.

    Args:
        scale: 1 / sqrt(c), from the smallest to the largest; one number r stands for 0 to r.

    >>> import torch
    >>> region = ShotNoise(0.5).around(torch.tensor([[[[0.0, 0.5, 0.5]]]]), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.5, 0.9, 0.1, 0.9]]), torch.tensor([0]))  # 4 photons at most brightness
    tensor([[[[0.0000, 0.0000, 1.0000]]]])
    """

    phrase = "covered with shot noise of scale {scale} of the range at full brightness"
    differentiable = False

    scale: Range = parameter(
        "scale of the noise at full brightness [share of the range]", default=0.1, low=0, high=10
    )

    def add_noise(
        self, inputs: Tensor, strength: Tensor, uniform: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The quantiles of the counts, times the square of the scale."""
        # below 0 the square root would be NaN
        shares = to_shares(inputs, bounds).clamp(0, 1)
        photon = (strength**2).expand_as(shares)
        z = map_to_normal(uniform)
        # if there are many photons
        # the expansion of Cornish and Fisher, whose third term is the skewness of a Poisson number
        correction = photon * (z**2 - 1) / 6
        noisy = shares + shares.sqrt() * strength * z + correction
        mean = shares / photon.clamp(min=1e-30)
        # black has no photons, and noise of scale 0 has infinitely many
        counted = (mean > 0) & (mean <= _MANY)
        photons = find_poisson_quantile(mean[counted], uniform[counted])
        noisy[counted] = photons * photon[counted]
        # an entry without noise is the input itself, to the last bit
        is_noisy = (strength > 0) & (shares > 0)
        return torch.where(is_noisy, from_shares(noisy, bounds), inputs)


def find_poisson_quantile(mean: Tensor, uniform: Tensor) -> Tensor:
    """The smallest k with P(N <= k) >= u for Poisson numbers N of `mean` `(n,)`, from 0 to some 10,000; `(n,)`.

    From a guess by the expansion of Cornish and Fisher, steps by one, with the probabilities of neighbours (their ratio
    is k / mean). In double precision, whatever the data type of the arguments.

    >>> find_poisson_quantile(torch.tensor([2.0, 2.0, 50.0]), torch.tensor([0.1, 0.9, 0.5]))
    tensor([ 0.,  4., 50.])
    """
    rate = mean.double().clamp(min=1e-12)
    # the limits of `map_to_normal`: at 1 the quantile would be infinite
    u = uniform.double().clamp(2.0**-24, 1 - 2.0**-24)
    z = torch.special.ndtri(u)
    correction = (z**2 - 1) / 6
    quantile = rate + rate.sqrt() * z + correction
    count = torch.floor(quantile + 0.5).clamp(min=0)
    below = torch.special.gammaincc(count + 1, rate)  # P(N <= count)
    log_chance = torch.xlogy(count, rate) - rate - torch.lgamma(count + 1)
    chance = torch.exp(log_chance)  # P(N = count)
    # those that are not yet the smallest k with P(N <= k) >= u
    is_too_small = below < u
    is_too_large = (below - chance >= u) & (count > 0)
    left = torch.nonzero(is_too_small | is_too_large)[:, 0]
    while len(left):
        k = count[left]
        total = below[left]
        chance_of_k = chance[left]
        target = u[left]
        r = rate[left]
        up = total < target
        # probabilities of neighbouring counts differ by the factor rate / (k + 1), or k / rate
        next_own = torch.where(up, chance_of_k * r / (k + 1), chance_of_k * k / r)
        total = torch.where(up, total + next_own, total - chance_of_k)
        k = torch.where(up, k + 1, k - 1)
        count[left], below[left], chance[left] = k, total, next_own
        is_too_small = total < target
        is_too_large = (total - next_own >= target) & (k > 0)
        left = left[is_too_small | is_too_large]
    return count.to(mean.dtype)


@neighbourhoods.register("impulse_noise")
@dataclass(frozen=True)
class ImpulseNoise(Noise):
    """Salt and pepper: a share of the entries becomes the lower or the upper bound, half of them each.

    An entry of uniform number u is the lower bound if u < amount / 2 and the upper one if u > 1 - amount / 2. These are
    steps, so there are no gradients.

    Source: Hendrycks and Dietterich, as for `GaussianNoise`.

    Args:
        amount: the share of entries that change, from the smallest to the largest; one number r stands for 0 to r.

    >>> import torch
    >>> region = ImpulseNoise(0.2).around(torch.full((1, 1, 1, 3), 0.3), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.1, 0.04, 0.06, 0.96]]), torch.tensor([0]))
    tensor([[[[0.0000, 0.3000, 1.0000]]]])
    """

    phrase = "covered with salt and pepper on {amount} of the values"
    differentiable = False

    amount: Range = parameter("share of entries replaced", default=0.05, low=0, high=1)

    def add_noise(
        self, inputs: Tensor, strength: Tensor, uniform: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Replace the entries whose numbers are near 0 or 1."""
        peppered = torch.where(uniform < strength / 2, bounds[0], inputs)
        return torch.where(uniform > 1 - strength / 2, bounds[1], peppered)
