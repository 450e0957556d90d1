"""Reference points that an input is compared with: a baseline, or a set of reference inputs (a background)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.explainers.base import (
    Baseline,
    Explainer,
    check_baseline,
    choose_baseline,
    make_baseline,
    record_choice,
)
from standfast.model import Model
from standfast.records import Background

_EXPECTED = (
    "a finite number, one for each channel, or reference inputs (a Background or a tensor (B, ...))"
)

#: the types of the option `background` of explainers and metrics
References = Baseline | Background | Tensor


def check_background(
    background: References | None, name: str = "background"
) -> Baseline | Background | None:
    """The reference points in a form that a frozen configuration can hold: a number, a tuple, a `Background` or None.

    Raises:
        ArgumentError: it is none of these.

    >>> check_background([0.0, 0.5])
    (0.0, 0.5)
    >>> check_background(torch.zeros(3, 4)).shape
    (3, 4)
    """
    if isinstance(background, Tensor):
        return Background(background)
    if isinstance(background, Background | None):
        return background
    try:
        return check_baseline(background)
    except ArgumentError as error:
        raise ArgumentError(name, _EXPECTED, error.got) from None


BackgroundOption = Annotated[References | None, check_background]


def count_references(background: References | None) -> int:
    """The number of reference points; 1 where the data decide."""
    if isinstance(background, Background | Tensor):
        return len(background)
    return 1


def resolve_background(model: Model, x: Tensor, background: References | None) -> Tensor:
    """The reference points `(B, ...)` with the sample shape, dtype and device of the inputs `x` `(N, ...)`.

    None stands for rows of the model's reference for a table, and for the default of `choose_baseline` without one.

    Raises:
        ArgumentError: they have another shape than the inputs, or lie outside of the model's bounds.
    """
    background, reference = check_background(background), model.reference_for(x)
    if background is None and reference is not None:
        record_choice("background", f"{len(reference.rows)} of {reference.count} rows")
        return reference.rows.to(x)
    if isinstance(background, Background):
        shape = tuple(x.shape[1:])
        check(
            background.shape[1:] == shape,
            "background",
            f"reference inputs of shape (B, *{shape})",
            background.shape,
        )
        rows = _place(background, x.dtype, x.device)
    else:
        try:
            baseline = choose_baseline(model, x, background)
            rows = baseline.expand(1, *x.shape[1:])
        except ArgumentError as error:
            raise ArgumentError("background", error.expected, error.got) from None
    # a digest, so that the model does not keep each set of rows that it has seen
    content = background.digest if isinstance(background, Background) else background
    key = ("background", content, x.shape[1:])
    if key in model.fitting:
        return rows.to(model.dtype).clamp(*model.bounds)
    checked = model.check_inputs(rows, "background")
    model.fitting.add(key)
    return checked


@lru_cache(maxsize=8)
def _place(background: Background, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The reference inputs on a device, moved there once for all chunks. Do not write to them."""
    return background.inputs.to(device, dtype)


def measure_outside(configured: Explainer, x: Tensor) -> float:
    """The share of the features of `x` `(N, ...)` whose baseline lies far from all of its values; NaN without one.

    Far is more than the range of the values beyond them. Channels of images and series are looked at as a whole.

    Args:
        configured: an explainer, which may have something in the place of removed features.
        x: the data.

    >>> from standfast.explainers import Occlusion
    >>> ages = torch.tensor([[30.0, 0.2], [60.0, 0.4], [50.0, 0.1]])
    >>> measure_outside(Occlusion(baseline=0.0), ages), measure_outside(Occlusion(baseline=(45.0, 0.0)), ages)
    (0.0, 0.0)
    >>> measure_outside(Occlusion(baseline=-5.0), ages)
    1.0
    """
    removals = (getattr(configured, option) for option in configured.removal_options)
    replacement = next((value for value in removals if value is not None), None)
    options = getattr(configured, "options", None)  # of an explainer of another package
    if replacement is None and isinstance(options, Mapping):
        replacement = options.get("baselines")
    if isinstance(replacement, Background | Tensor):
        rows = replacement.inputs if isinstance(replacement, Background) else replacement
    elif isinstance(replacement, int | float | tuple | list):
        rows = make_baseline(replacement, x).expand(x.shape)[:1]
    else:
        return float("nan")
    if rows.shape[1:] != x.shape[1:]:
        return float("nan")
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    low = x.amin(axes)
    high = x.amax(axes)
    values = rows.to(x).amin(axes)
    far = high - low
    is_below = values < low - far
    is_above = rows.to(x).amax(axes) > high + far
    outside = is_below | is_above
    return float(outside.double().mean())
