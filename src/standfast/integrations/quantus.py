"""Our metrics in `quantus.evaluate`, and our explainers for Quantus's own metrics. Neither needs Quantus installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from standfast.errors import check
from standfast.explainers import Explainer, from_quantus
from standfast.explainers import get as get_explainer
from standfast.metrics import Metric, Result
from standfast.metrics import get as get_metric
from standfast.model import Bound, Model
from standfast.tensors import Array

#: options of a call that other values would give another meaning, and the values that have none
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "softmax": (None, False),
    "channel_first": (None, True),
    "model_predict_kwargs": (None, {}),
    "custom_batch": (None,),
}


@dataclass
class QuantusMetric:
    """A metric of standfast that is called as those of Quantus are, and so has a place in `quantus.evaluate`.

    Args:
        metric: a configured metric, or the name of a registered one.
        bounds: valid values of an input, `(lower, upper)`: numbers, or tensors that broadcast against a sample.
        seed: of all random numbers.

    Attributes:
        result: of the last call, with the status of each sample.

    Raises:
        UnknownNameError: there is no such metric.

    >>> metric = QuantusMetric("aopc:steps=2", bounds=(0.0, 1.0))
    >>> def explain(model, inputs, targets, **options):
    ...     return inputs
    >>> scores = metric(nn.Linear(4, 2), np.eye(4, dtype="float32"), np.zeros(4, dtype=int), explain_func=explain)
    >>> len(scores)
    4
    """

    metric: Metric | str
    bounds: tuple[Bound, Bound]
    seed: int = 0
    result: Result | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.metric = get_metric(self.metric)

    def __call__(
        self,
        model: nn.Module,
        x_batch: Array,
        y_batch: Array,
        *,
        explain_func: Callable[..., Any] | None = None,
        explain_func_kwargs: Mapping[str, Any] | None = None,
        device: str | None = None,
        **options: Any,
    ) -> list[float]:
        """One value for each sample; NaN where it could not be evaluated.

        All maps come from `explain_func`, those of the inputs included: `a_batch` is not used. Neither are `s_batch`,
        because masks are an option of our metrics, and `batch_size`, on which no value depends.

        Args:
            model: from inputs to logits.
            x_batch: `(N, C, ...)`, within the bounds.
            y_batch: classes, `(N,)`.
            explain_func: `(model, inputs, targets, **options) -> array`; it must treat each row alone.
            explain_func_kwargs: options of that function.
            device: where the module runs; by default as `standfast.Model` chooses it.
            options: Quantus's other ones.

        Raises:
            ArgumentError: no function; inputs out of bounds; probabilities, channels that come last, or options of the
                prediction, which our metrics do not take.
        """
        check(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
        got = type(explain_func).__name__
        check(
            callable(explain_func),
            "explain_func",
            "a function (model, inputs, targets, **options)",
            got,
        )
        assert explain_func is not None
        for name, harmless_values in _WITHOUT_EFFECT.items():
            value = options.get(name)
            has_no_effect = any(
                value is harmless or value == harmless for harmless in harmless_values
            )
            check(has_no_effect, name, f"{harmless_values[-1]!r}, or none", value)
        wrapped = Model(model, self.bounds, device=device or "auto")
        inputs = torch.as_tensor(np.asarray(x_batch), dtype=wrapped.dtype)
        inputs = wrapped.check_inputs(inputs, "x_batch")
        targets = torch.as_tensor(np.asarray(y_batch)).to(torch.int64)
        explainer = from_quantus(partial(explain_func, **(explain_func_kwargs or {})))
        generator = torch.Generator().manual_seed(self.seed)
        assert isinstance(self.metric, Metric)
        result = self.metric(wrapped, explainer, inputs, targets, generator=generator)
        self.result = result
        values = result.value.to(torch.float64).tolist()
        # Quantus has no status for a sample, so NaN stands for those without a value
        return [
            value if status == "ok" else float("nan")
            for value, status in zip(values, result.status, strict=True)
        ]


def explain_function(
    explainer: Explainer | str, bounds: tuple[Bound, Bound]
) -> Callable[..., Array]:
    """A standfast explainer as an `explain_func` of Quantus: `(model, inputs, targets, **_) -> array`.

    Inputs that Quantus perturbs may lie outside the bounds. The bounds are for explainers with a baseline.
    """
    chosen = get_explainer(explainer)
    last: list[Model] = []  # kept between calls for its calibrated batch sizes

    def explain(model: nn.Module, inputs: Any, targets: Any, **more: Any) -> Array:
        if not last or last[0].module is not model:
            last[:] = [Model(model, bounds)]
        wrapped = last[0]
        x = torch.as_tensor(np.asarray(inputs), dtype=wrapped.dtype, device=wrapped.device)
        classes = (
            torch.as_tensor(np.asarray(targets), device=wrapped.device)
            .to(torch.int64)
            .expand(len(x))
        )
        with wrapped.session():
            maps, _ = chosen.attribute_all(wrapped, x, classes)
        return np.asarray(maps.detach().cpu().numpy())

    return explain
