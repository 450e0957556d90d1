"""GradientSHAP: the mean of gradients at random points between the input and reference points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from standfast.explainers.background import BackgroundOption, resolve_background
from standfast.explainers.base import (
    BATCHES,
    Explanation,
    GradientExplainer,
    Seed,
    compute_path_gradients,
    explainers,
)
from standfast.explainers.gradients.input_gradients import draw_shared_noise, get_bounds_range
from standfast.model import Model
from standfast.records import AtLeastZero, Count
from standfast.tensors import send


@explainers.register("gradient_shap")
@dataclass(frozen=True)
class GradientSHAP(GradientExplainer):
    """Expected gradients: integrated gradients, averaged over random reference inputs.

    `mean over k of (x - b_k) * d f_t(b_k + a_k (x - b_k) + e_k) / d x`.

    Erion, Janizek, Sturmfels, Lundberg and Lee, Improving performance of deep learning models with axiomatic
    attribution priors and expected gradients, Nature Machine Intelligence 3, 2021; the GradientExplainer of Lundberg
    and Lee's SHAP. `b_k` is one of the reference points, and `a_k` in [0, 1) is the position between it and the input.
    The mean estimates the mean of integrated gradients over the background. So attributions add up to
    `f_t(x) - mean f_t(b)` up to the sampling error.

    The random numbers depend on `seed` alone and are the same for all inputs. So the explanation is a deterministic
    function of the input, and differentiable. The target is the class predicted at `x` itself. Inputs and attributions
    `(N, ...)`; `samples + 1` rows for each input, in flat batches.

    Captum and SHAP add their noise to the input, and so also to the factor `x - b_k`. Here it is added to the point
    where the gradient is taken, so that attributions of a linear model are exact also with noise.

    The draws are stratified: one position in each of `samples` equal intervals, and each reference point equally often.
    They are unbiased, with a smaller error than independent ones.

    Args:
        background: reference points: a number, one for each channel, or a set of inputs (`Background`, or a tensor
            `(B, ...)`). By default 0, and for tables rows of the model's reference.
        samples: pairs of a reference point and a position, at least 1.
        noise: standard deviation of `e_k` as a share of the range of the model's bounds, at least 0. Noisy points
            are not clipped to the bounds.
        seed: of the random numbers.

    Raises:
        ArgumentError: an option out of range; on a call, a background that does not fit the inputs or the bounds, or
            noise with infinite bounds.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> GradientSHAP(torch.tensor([[0.0, 0.0], [0.5, 1.0]]), samples=4)(model, torch.ones(1, 2), 0)
    tensor([[ 0.7500, -1.0000]])
    """

    background: BackgroundOption = None
    samples: Count = 20
    noise: AtLeastZero = 0.0
    seed: Seed = 0
    name = "gradient_shap"
    has_signs = True
    measures = "contribution"
    dial = "samples"
    removal_options = ("background",)
    batches = BATCHES

    @property
    def rows_per_input(self) -> int:
        return self.samples + 1

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        references = resolve_background(model, x, self.background)
        which, positions = _draw_points(self.seed, self.samples, len(references), x.device)
        chosen = references.index_select(0, which)
        other_axes = [1] * (x.ndim - 1)
        along = positions.to(x.dtype).reshape(-1, *other_axes)
        with torch.set_grad_enabled(create_graph):
            difference = x[:, None] - chosen
            points = chosen + along * difference
            if self.noise > 0:
                width = self.noise * get_bounds_range(model)
                # another seed than that of the positions
                points = points + width * draw_shared_noise(
                    self.seed + 1, points.shape[1:], x.dtype, x.device
                )
            gradients, logits = compute_path_gradients(model, x, points, targets, create_graph)
            return (difference * gradients).mean(1), logits


@lru_cache(maxsize=32)
def _draw_points(
    seed: int, samples: int, references: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Which reference point, int64, and which position between it and the input, float64; both `(samples,)`.

    Sample k lies in the k-th interval. Its reference point is the k-th (modulo their number) in a random order, so each
    reference point is equally likely for each interval. Drawn on the CPU, so that the points are the same on every
    device.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.arange(samples)
    positions = (numbers + torch.rand(samples, generator=generator, dtype=torch.float64)) / samples
    which = torch.randperm(references, generator=generator)[numbers % references]
    return send(which, device), send(positions, device)
