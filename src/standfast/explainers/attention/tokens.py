"""Where the tokens of a transformer lie in its input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from standfast.errors import ModelError, check

#: tokens beside those of positions (classes, registers) that are believed without an option that says so
_MOST_SPECIAL = 16
Grid = Sequence[int]


def check_grid(grid: Grid | None, name: str) -> tuple[int, ...] | None:
    """The grid as a tuple, or `None`; raises `ArgumentError` unless it is whole numbers of at least 1."""
    if grid is None:
        return None
    fine = isinstance(grid, list | tuple) and len(grid) > 0
    if fine:
        for length in grid:
            fine = fine and type(length) is int and length >= 1
    check(fine, name, "None, or whole numbers of at least 1 such as (14, 14)", repr(grid))
    return tuple(grid)


GridOption = Annotated[Grid | None, check_grid]


def find_token_grid(
    tokens: int, shape: Sequence[int], wanted: Grid | None, convolved: Grid | None, who: str
) -> tuple[int, ...]:
    """The grid `(h, w)` or `(t,)` of the positions among `tokens`; the other tokens are special ones.

    It is, in this order: the grid that the user names; that of the last convolution before the first attention; the
    finest grid of equal patches that divide the input and of which there are not more than tokens.

    Args:
        tokens: how many there are, special ones (class, distillation, registers) included.
        shape: of one input: `(C, H, W)`, `(C, T)`, or `(F,)`, of which every feature is a position.
        wanted: the user's, or None.
        convolved: that of a convolution, or None.
        who: the name of the explainer, for messages.

    Raises:
        ArgumentError: the user's grid does not fit, or leaves out patches that a convolution makes.
        ModelError: no grid, or one that leaves more than 16 special tokens.

    >>> find_token_grid(197, (3, 224, 224), None, None, "attention_rollout")
    (14, 14)
    """
    # a vector of features has one axis, without channels
    has_channels = len(shape) > 1
    spatial = tuple(shape[1:]) if has_channels else tuple(shape)
    patches = None
    if convolved is not None and len(convolved) == len(spatial):
        patches = tuple(convolved)
    if wanted is not None:
        _check_grid(wanted, tokens, spatial, patches)
        return tuple(wanted)
    candidates = [] if patches is None else [patches]
    divisor = math.gcd(*spatial) if has_channels else 1
    for size in range(1, divisor + 1):
        if divisor % size == 0:
            candidates.append(tuple(length // size for length in spatial))
    for grid in candidates:
        if _leaves_few(tokens, grid):
            return grid
    raise ModelError(
        f"{who}: expected tokens that are patches of an input of shape {tuple(shape)} (and at most {_MOST_SPECIAL}"
        f" others), got {tokens} tokens; its option `grid` can say how many rows and columns of patches there are"
    )


def _leaves_few(tokens: int, grid: Sequence[int]) -> bool:
    """Whether the tokens are those of a grid, and a few special ones."""
    special = tokens - math.prod(grid)
    return 0 <= special <= _MOST_SPECIAL


def _check_grid(
    grid: Grid, tokens: int, spatial: Sequence[int], patches: Sequence[int] | None
) -> None:
    """Raise `ArgumentError` for a user's grid of other axes, or of too many or too few positions."""
    positions = math.prod(grid)
    fits = len(grid) == len(spatial) and positions <= tokens
    expected = f"{len(spatial)} numbers with a product of at most {tokens}, the number of tokens"
    check(fits, "grid", expected, repr(grid))
    if patches is not None and _leaves_few(tokens, patches):  # else patches would be left out
        least = math.prod(patches)
        expected = f"{len(spatial)} numbers with a product of at least {least}, since patches are {patches}"
        check(positions >= least, "grid", expected, repr(grid))


def arrange_tokens(tokens: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Tokens `(N, T, K)` as a grid `(N, K, *grid)`; special tokens, which come first, are left out.

    >>> import torch
    >>> arrange_tokens(torch.arange(5.0).reshape(1, 5, 1), (2, 2))
    tensor([[[[1., 2.],
              [3., 4.]]]])
    """
    inputs, count, features = tokens.shape
    special = count - math.prod(grid)
    kept = tokens[:, special:]
    return kept.transpose(1, 2).reshape(inputs, features, *grid)
