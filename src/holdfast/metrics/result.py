"""What every metric's result has: per-sample tensors, a status for each sample, and a tidy frame of both."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import polars as pl
from torch import Tensor

#: what became of a sample: evaluated, or why not
STATUSES = ("ok", "misclassified", "degenerate", "nonfinite")


@dataclass(frozen=True)
class Result:
    """Per-sample results of one metric for one explainer.

    Attributes:
        metric: name of the metric.
        options: its configuration, as plain values.
        status: for each sample, `"ok"`; or why it was not evaluated: `"misclassified"` (the model does not predict
            the given target at the seed), `"degenerate"` (the seed's explanation is constant, nothing is like or
            unlike it), `"nonfinite"` (NaN or infinity in the seed's logits or explanation). `(N,)`
        targets: the classes explained, `(N,)`.
        model_evaluations: inputs predicted and explained for each sample, int `(N,)`.
        degenerate: how many of them had a constant explanation (a correlation of 0 by definition), int `(N,)`.
        nonfinite: how many had NaN or infinity in logits or explanation (never counted as the event), int `(N,)`.
    """

    metric: str
    options: dict[str, Any]
    status: tuple[str, ...]
    targets: Tensor
    model_evaluations: Tensor
    degenerate: Tensor
    nonfinite: Tensor

    def __len__(self) -> int:
        return len(self.status)

    def tensors(self) -> dict[str, Tensor]:
        """What is worth storing beside the frame: pictures, traces, curves; each with the samples first."""
        return {}

    def frame(self) -> pl.DataFrame:
        """One row per sample: its number, status, and every field that has one number for each sample."""
        columns: dict[str, Any] = {"sample": list(range(len(self))), "status": list(self.status)}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            per_sample = field.metadata.get("per_sample", True)
            if per_sample and isinstance(value, Tensor) and value.shape == (len(self),):
                columns[field.name] = value.tolist()
        return pl.DataFrame(columns)
