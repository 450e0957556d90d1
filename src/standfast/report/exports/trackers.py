"""Results as named numbers, for trackers of experiments: MLflow, TensorBoard, Weights & Biases.

None of these packages is imported: a sink is an object of the user's, recognised by the method that it has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from standfast.errors import ArgumentError
from standfast.results.summary import SummaryRow


@runtime_checkable
class MetricsSink(Protocol):
    """The module `mlflow` with an active run; the loggers of Lightning."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> Any:
        """Store these numbers."""


@runtime_checkable
class ScalarSink(Protocol):
    """`torch.utils.tensorboard.SummaryWriter`, and classes with the same method."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> Any:
        """Store this number."""


@runtime_checkable
class LogSink(Protocol):
    """A run of Weights & Biases, or the module `wandb` with one."""

    def log(self, data: dict[str, Any], step: int | None = None) -> Any:
        """Store these numbers."""


Sink = MetricsSink | ScalarSink | LogSink


def name_scalars(found: Sequence[SummaryRow]) -> dict[str, float]:
    """Finite numbers by name: `label/explainer/median`, `.../low`, `.../high`, `.../count`, `.../mean_rank`.

    The names begin with the data set and the model where there are several of either. A bound is never called a median:
    a censored median is `.../median_at_most` or `.../median_at_least`. An open end of an interval is left out.
    """
    many_data = len({row.data for row in found}) > 1
    many_models = len({row.model for row in found}) > 1
    named: dict[str, float] = {}
    for row in found:
        where = [row.data] * many_data + [row.model] * many_models + [row.label] + [row.explainer]
        name = "/".join(_clean(part) for part in where if part)
        estimate = row.estimate
        if estimate is None:
            named[f"{name}/count"] = 0.0
            continue
        bound = {None: "", "upper": "_at_most", "lower": "_at_least", "unknown": "_unknown"}[estimate.bound]
        values = {
            f"{row.statistic}{bound}": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "count": float(estimate.count),
            "mean_rank": row.mean_rank,
        }
        named |= {f"{name}/{k}": value for k, value in values.items() if value is not None and math.isfinite(value)}
    return named


def send_scalars(named: Mapping[str, float], sink: Sink, step: int | None = None) -> None:
    """Send the numbers to `sink`.

    Raises:
        ArgumentError: the sink has none of the known methods.
    """
    if isinstance(sink, ScalarSink):
        for name, value in named.items():
            sink.add_scalar(name, value, step)
    elif isinstance(sink, MetricsSink):
        sink.log_metrics(dict(named), step=step)
    elif isinstance(sink, LogSink):
        sink.log(dict(named), step=step)
    else:
        known = "an object with log_metrics (mlflow), add_scalar (TensorBoard's SummaryWriter) or log (a run of wandb)"
        raise ArgumentError("sink", known, type(sink).__name__)


def _clean(text: str) -> str:
    """A part of a name, in characters that all trackers accept; MLflow is the strictest. A slash would begin a group.

    >>> _clean("worst_case: changed_class"), _clean("lenet/5 (Größe)")
    ('worst_case: changed_class', 'lenet_5 _Gr__e_')
    """
    return re.sub(r"[^A-Za-z0-9_\-. :]", "_", text)
