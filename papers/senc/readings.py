"""Two other readings of the paper's Algorithm 1, for papers/senc/README.md. No metric uses them.

Line 10 of the algorithm, with images as masks and a sum over masks, and RISE, on which the masks are modelled, allow
readings other than Eq. 1 to 4. Source: Tan, "Evaluating Sensitivity Consistency of Explanations" (WACV 2025), Sec. 3.2;
Petsiuk, Das and Saenko, "RISE" (BMVC 2018), Eq. 6.
"""

from __future__ import annotations

import torch
from torch import Tensor


def divide_by_mask_sums(weights: Tensor, masks: Tensor) -> Tensor:
    """Sensitivities `S_k = sum_i w_i M_ik / sum_i M_ik`, as RISE divides: the mean weight of the masks that keep k.

    Args:
        weights: `(R, K)`, one for each mask.
        masks: bool or 0/1, `(R, K, m)`.

    Returns:
        float64 `(R, m)`; NaN for a feature that no mask keeps.

    >>> divide_by_mask_sums(torch.tensor([[1.0, 3.0]]), torch.tensor([[[1, 1], [1, 0]]]))
    tensor([[2., 1.]], dtype=torch.float64)
    """
    kept = masks.to(torch.float64)
    return (weights.to(torch.float64)[:, None] @ kept)[:, 0] / kept.sum(1)


def average_over_masks(
    prediction: Tensor, explanation: Tensor, masks: Tensor, sizes: Tensor
) -> Tensor:
    """The mean over masks of Spearman's rho, over pixels, of the sums up to this mask (Algorithm 1, lines 7 to 10).

    Args:
        prediction, explanation: weights `(K,)`.
        masks: bool or 0/1, `(K, m)`.
        sizes: pixels of each feature, `(m,)`.

    Returns:
        A float64 scalar. Masks after which all pixels of a sum are equal have no rho and do not count.

    >>> masks = torch.tensor([[1, 0, 1], [0, 1, 1]])
    >>> average_over_masks(torch.tensor([0.9, 0.5]), torch.tensor([0.8, 0.3]), masks, torch.tensor([4, 2, 2]))
    tensor(1., dtype=torch.float64)
    """
    kept, sizes = masks.to(torch.float64), sizes.to(torch.float64)
    ranks = [
        _rank_pixels((w.to(torch.float64)[:, None] * kept).cumsum(0), sizes)
        for w in (prediction, explanation)
    ]
    centred = [rank - (rank * sizes).sum(1, keepdim=True) / sizes.sum() for rank in ranks]
    squares = [(each.square() * sizes).sum(1) for each in centred]
    product = (centred[0] * centred[1] * sizes).sum(1)
    varies = (squares[0] > 0) & (squares[1] > 0)
    return (product[varies] / (squares[0] * squares[1])[varies].sqrt()).mean()


def _rank_pixels(values: Tensor, sizes: Tensor) -> Tensor:
    """Midranks of pixels `(K, m)`, where feature k has `sizes[k]` pixels of the same value."""
    below = values[:, :, None] > values[:, None]
    equal = values[:, :, None] == values[:, None]
    return below.to(sizes.dtype) @ sizes + (equal.to(sizes.dtype) @ sizes + 1) / 2
