"""Reference points that an input is compared with: one, or a set of inputs in a form that configurations can hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers.base import Baseline, check_baseline, make_baseline
from holdfast.model import Classifier
from holdfast.records import TensorOption

_EXPECTED = "a finite number, one for each channel, or reference inputs (a Background or a tensor (B, ...))"


@dataclass(frozen=True, init=False)
class Background(TensorOption):
    """Reference inputs as an option of a frozen configuration: compared, hashed and written down by their digest.

    Args:
        inputs: `(B, ...)`, B of at least 1, floating point and finite; copied. That they lie within the classifier's
            bounds and have its inputs' shape is checked when something is explained.

    Attributes:
        shape: of the reference inputs, `(B, ...)`.
        digest: of their values.

    Raises:
        ArgumentError: something else than such inputs.

    >>> a, b = (Background(torch.zeros(5, 1, 8, 8)) for _ in range(2))
    >>> a == b, len(a), a.shape
    (True, 5, (5, 1, 8, 8))
    >>> a == Background(torch.ones(5, 1, 8, 8))
    False
    """

    def __init__(self, inputs: Tensor) -> None:
        check(isinstance(inputs, Tensor), "background", "reference inputs as a tensor (B, ...)", type(inputs).__name__)
        fine = inputs.is_floating_point() and inputs.ndim >= 2 and inputs.numel() > 0
        got = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        check(fine, "background", "reference inputs of shape (B, ...), floating point", got)
        check(bool(torch.isfinite(inputs).all()), "background", "finite reference inputs", "NaN or infinity")
        super().__init__(inputs, f"{inputs.dtype} {tuple(inputs.shape)} ".encode())

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def inputs(self) -> Tensor:
        """The reference inputs themselves, `(B, ...)` on the CPU; not to be written to."""
        return self.tensor


#: what an explainer takes for its option `background`
References = Baseline | Background | Tensor


def check_background(background: References) -> Baseline | Background:
    """The same in a form that a frozen configuration can hold; raises `ArgumentError` for what is none.

    >>> check_background([0.0, 0.5])
    (0.0, 0.5)
    >>> check_background(torch.zeros(3, 4)).shape
    (3, 4)
    """
    if isinstance(background, Tensor):
        return Background(background)
    if isinstance(background, Background):
        return background
    try:
        check_baseline(background)
    except ArgumentError as error:
        raise ArgumentError("background", _EXPECTED, error.got) from None
    return background if isinstance(background, int | float) else tuple(background)


def count_references(background: References) -> int:
    """How many reference points there are."""
    return len(background) if isinstance(background, Background | Tensor) else 1


def resolve_background(classifier: Classifier, x: Tensor, background: References) -> Tensor:
    """The reference points `(B, ...)`, shaped, typed and placed as the inputs `x` `(N, ...)`, within the bounds.

    Raises:
        ArgumentError: they are of another shape than the inputs, or leave the classifier's bounds.
    """
    background = check_background(background)
    if isinstance(background, Background):
        shape = tuple(x.shape[1:])
        check(background.shape[1:] == shape, "background", f"reference inputs of shape (B, *{shape})", background.shape)
        rows = _place(background, x.dtype, x.device)
    else:
        try:
            rows = make_baseline(background, x).expand(1, *x.shape[1:])
        except ArgumentError as error:
            raise ArgumentError("background", error.expected, error.got) from None
    return classifier.check_inputs(rows, "background")


@lru_cache(maxsize=8)
def _place(background: Background, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Moved once, not for every chunk; never written to."""
    return background.inputs.to(device, dtype)
