"""Sets and windows as the script of LENS's authors has them, to compare with the paper's numbers like for like.

The script (`eval_with_lens_attribution_attack.py` of github.com/ksandeshk/LENS, commit 7903c2b) differs from the
definitions of Kamath, Mittal, Deshpande and Balasubramanian (AAAI 2024) in six things:

- Windows are intervals of flat indices, row by row. So at the left and right border they continue on the other side of
  the image, one row further. Index 0 is in no window.
- The candidates for diverse positions are the largest values only: 6, 15 or 25 times k of them for w = 1, 2, 3.
- The second of the diverse positions is left out: its window is excluded, but it is not in the set.
- Position 0 is in no diverse set.
- Of equal values the last index comes first: it takes the end of an ascending sort. Its sort is not stable, so among
  many zeros the script's own order is arbitrary; here the order is exactly the last index first.
- Shares refer to k, also where fewer than k positions were chosen. (There the script stops with an error.)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from standfast.similarity.rows import order_rows
from standfast.tensors import send

#: the paper's definitions, or the steps of the authors' script
Protocol = Literal["paper", "authors"]
#: candidates for diverse positions by the window, as multiples of k; "heuristic values" of the scripts
CANDIDATES = {1: 6, 2: 15, 3: 25}


def choose_as_authors(a: Tensor, k: int, w: int, diverse: bool) -> Tensor:
    """The k largest positions, or the diverse ones, as the authors' script chooses them.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating.
        k: how many.
        w: half width of the windows of diverse positions, 1 to 3.
        diverse: whether positions exclude their windows.

    Returns:
        A bool mask of the shape of `a`, with fewer than k positions where the candidates do not suffice; all False for
        a map with a NaN or an infinity.

    >>> choose_as_authors(torch.tensor([[1.0, 2.0, 9.0, 3.0, 5.0, 3.0, 4.0, 3.0]]), 2, 1, diverse=True).nonzero()[:, 1]
    tensor([2, 6])
    """
    x = a.detach().flatten(1)
    device = x.device
    positions = x.shape[1]
    count = k
    if diverse:
        count = CANDIDATES[w] * k
    count = min(count, positions)
    # ascending order of the values, turned round: of equal ones the last index comes first
    order = order_rows(x + 0.0).flip(1)[:, :count]
    rows = torch.arange(len(x), device=device)
    chosen = torch.zeros(len(x), positions, dtype=torch.bool, device=device)
    if not diverse:
        chosen[rows[:, None], order] = True
    else:
        numbers = torch.arange(count, device=device).expand_as(order)
        rank = torch.full((len(x), positions), count, device=device)
        rank.scatter_(1, order, numbers)
        offsets = send(_offsets(a.shape[1:], w), device)

        def find_first() -> tuple[Tensor, Tensor]:
            """The candidate that comes first, and whether there is one."""
            first_rank = rank.amin(1)
            first = order.gather(1, first_rank.clamp(max=count - 1)[:, None])
            return first[:, 0], first_rank < count

        def exclude(head: Tensor) -> None:
            near = head[:, None] + offsets
            inside = (near > 0) & (near < positions)
            # the head itself is in its window
            itself = head[:, None].clamp(min=1)
            near = torch.where(inside, near, itself)
            rank.scatter_(1, near, count)

        head, left = find_first()
        chosen[rows[left], head[left]] = True
        exclude(head)
        head, left = find_first()  # the second, whose window is excluded and which is left out
        for _ in range(k - 1):
            exclude(head)
            rank[:, 0] = count
            head, left = find_first()
            chosen[rows[left], head[left]] = True
        chosen[:, 0] = False
    finite = torch.isfinite(x.amin(1)) & torch.isfinite(x.amax(1))
    return (chosen & finite[:, None]).view(a.shape)


def dilate_as_authors(mask: Tensor, w: int) -> Tensor:
    """The union of the windows of a set `(N, H, W)` or `(N, T)`, bool, as intervals of flat indices without index 0.

    >>> mask = torch.tensor([[[False, False, True], [False, False, False], [False, False, False]]])
    >>> dilate_as_authors(mask, 1).int()
    tensor([[[0, 1, 1],
             [1, 1, 1],
             [1, 0, 0]]], dtype=torch.int32)
    """
    flat = mask.flatten(1)
    dilated = torch.zeros_like(flat)
    positions = flat.shape[1]
    for offset in _offsets(mask.shape[1:], w).tolist():
        low = max(0, offset)
        high = min(positions, positions + offset)
        if low < high:
            dilated[:, low:high] |= flat[:, low - offset : high - offset]
    dilated[:, 0] = False
    return dilated.view(mask.shape)


def _offsets(shape: torch.Size, w: int) -> Tensor:
    """Differences of the flat indices in a window to that of its middle."""
    reach = torch.arange(-w, w + 1)
    if len(shape) == 2:
        width = shape[-1]
        return (reach[:, None] * width + reach).flatten()
    return reach
