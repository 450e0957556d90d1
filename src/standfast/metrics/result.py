"""What every metric's result has: per-sample tensors, a status for each sample, and a tidy frame of both."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import polars as pl
import torch
from torch import Tensor

from standfast.records import set_fields
from standfast.tensors import send

#: what happened to a sample: it was evaluated, or why not
Status = Literal["ok", "misclassified", "no_answer", "degenerate", "nonfinite", "unvaried"]
STATUSES: tuple[Status, ...] = get_args(Status)
#: what the frame of every metric begins with
COMMON_COLUMNS = ("sample", "status", "value", "low", "high")


@dataclass(frozen=True, repr=False)
class Result:
    """The results of one metric for one explainer, a number for each of N samples.

    A metric that has more to report returns a subclass, a frozen dataclass, with more fields. A field of the subclass
    that is a tensor with one number for each sample becomes a column of `frame()`, unless it is declared as
    `field(metadata={"per_sample": False})`. The fields that `stored` names are kept beside the frame.

    Attributes:
        metric: the name of the metric.
        options: its configuration, as plain values.
        status: for each sample `"ok"`, or why it was not evaluated: `"misclassified"` (the model does not predict the
            given target at the clean input), `"no_answer"` (the model answers nothing that could be explained, such as
            no box, or does not take the prompt), `"degenerate"` (the explanation of the clean input is constant, or
            that of a text of fewer than three words, so nothing can be compared with it), `"nonfinite"` (NaN or
            infinity in its logits or explanation), `"unvaried"` (nothing but the input itself lies in its
            neighbourhood). `(N,)`
        targets: the classes explained, int64 `(N,)`.
        model_evaluations: how many inputs were predicted, explained or both for each sample, int64 `(N,)`.
        degenerate: how many of them had a constant explanation (a correlation of 0 by definition), int64 `(N,)`.
        nonfinite: how many had NaN or infinity in logits or explanation (never counted as the event), int64 `(N,)`.
        value: the number of each sample, `(N,)`. Numbers in floating point are NaN where the status is not `"ok"`, and
            where the metric has none for the sample, such as a ratio of two searches that found nothing.
        low, high: the ends of a 95% interval of `value`, `(N,)`, NaN where the status is not `"ok"`; None for a metric
            without one.
        answer: what the answer of each sample is, `(N,)`, where it is a number: a predicted value, a cosine, an overlap
            (`Task.read_answer`); None for classes.
        choices: what the explainer has chosen by itself, by the name of its option: the layer of Grad-CAM, with the
            grid of its positions.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = standfast.metrics.AOPC(steps=20, samples=2)(model, "saliency", digits.inputs)
    >>> result.frame().columns[:8]
    ['sample', 'status', 'value', 'low', 'high', 'targets', 'model_evaluations', 'degenerate']
    """

    #: names of the tensors `(N, ...)` that a study stores beside the frame: pictures, curves
    stored: ClassVar[tuple[str, ...]] = ()

    metric: str
    options: dict[str, Any]
    status: tuple[Status, ...]
    targets: Tensor
    model_evaluations: Tensor
    degenerate: Tensor
    nonfinite: Tensor
    value: Tensor
    low: Tensor | None = field(default=None, kw_only=True)
    high: Tensor | None = field(default=None, kw_only=True)
    answer: Tensor | None = field(default=None, kw_only=True)
    choices: dict[str, str] = field(default_factory=dict, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            # a dataclass keeps a `__repr__` of the class; its own would print every tensor
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """What a metric fills in for samples that it skips must not be read as a value."""
        skipped = torch.tensor([status != "ok" for status in self.status], dtype=torch.bool)
        if not bool(skipped.any()):
            return
        for name in ("value", "low", "high"):
            values = getattr(self, name)
            if values is not None and values.is_floating_point():
                blank = values.masked_fill(send(skipped, values.device), torch.nan)
                set_fields(self, **{name: blank})

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        counts = {}
        for status in STATUSES:
            if status in self.status:
                counts[status] = self.status.count(status)
        skipped = ", ".join(
            f"{count} {status}" for status, count in counts.items() if status != "ok"
        )
        values = []
        for value in self.frame()["value"].to_list():
            if value is not None:
                values.append(value)
        middle = ""
        if values:
            middle = f", median {statistics.median(values):z.4g}"
        if len(self) == 1:
            samples = "1 sample"
        else:
            samples = f"{len(self)} samples"
        if skipped:
            samples += f" ({skipped})"
        return f"{type(self).__name__}({self.metric}, {samples}{middle})"

    def tensors(self) -> dict[str, Tensor]:
        """Arrays that a study stores beside the frame, by name; each `(N, ...)`. By default those of `stored`."""
        return {
            name: getattr(self, name).contiguous()
            for name in self.stored
            if getattr(self, name) is not None
        }

    def columns(self) -> dict[str, Any]:
        """The further columns of the frame: by default every other field with one number for each sample."""
        columns: dict[str, Any] = {}
        for declared in dataclasses.fields(self):
            values = getattr(self, declared.name)
            per_sample = declared.metadata.get("per_sample", True)
            if declared.name in COMMON_COLUMNS or not per_sample or not isinstance(values, Tensor):
                continue
            if values.shape == (len(self),):
                columns[declared.name] = values.tolist()
        return columns

    def frame(self) -> pl.DataFrame:
        """One row per sample.

        The columns `sample`, `status`, `value`, `low` and `high` are the same for every metric, so frames of several
        metrics can be put below each other. The last three are null where the sample was not evaluated, where it has
        no number (NaN), and where the metric has no interval. The columns of `columns` follow.
        """
        evaluated = [status == "ok" for status in self.status]
        common: dict[str, Any] = {"sample": list(range(len(self))), "status": list(self.status)}
        for name in ("value", "low", "high"):
            values = getattr(self, name)
            numbers: list[float | None] = [None] * len(self)
            if values is not None:
                pairs = zip(values.tolist(), evaluated, strict=True)
                numbers = [number if fine else None for number, fine in pairs]
            common[name] = pl.Series(name, numbers, dtype=pl.Float64).fill_nan(None)
        return pl.DataFrame({**common, **self.columns()})
