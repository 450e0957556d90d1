"""Every standfast metric as a metric of Quantus, so that `quantus.evaluate` can run them together with its own.

    import quantus
    from standfast.integrations.quantus import metric

    metrics = {"Max-Sensitivity": quantus.MaxSensitivity(), "worst case": metric("worst_case", bounds=(0, 1), ...)}
    quantus.evaluate(metrics, {"Saliency": explain}, model, x_batch, y_batch, explain_func_kwargs={})

The classes are made from the registry of metrics, including plug-ins. No code of Quantus is copied (its licence is the
LGPL). One call of `explain_func` explains each chunk of perturbed inputs that fits into memory.

These options of Quantus have an effect:

- `explain_func` and `explain_func_kwargs`.
- `a_batch`, the maps of the inputs. It is enough without `explain_func` for metrics that explain only the inputs.
- `s_batch`, the masks of metrics that need masks; other metrics ignore it.
- `device`, `abs`, `return_aggregate`, `aggregate_func`, and `batch_size`, which changes no result.

These are refused:

- `softmax=True` and `model_predict_kwargs`: our metrics use the module's logits, and have their own options for
  probabilities.
- `normalise=True`: Quantus divides by the largest value of the batch, so the score of a sample would depend on the
  other samples. Some of our metrics, such as `max_sensitivity`, have an option of this name; it is allowed there.
- `custom_batch`.
- `channel_first=False`, which Quantus also refuses for torch modules.

Metrics that need gradients of the explanation do not work, because explanation functions return arrays. This is
`attribution_attack`, except for its attacks `random_sign` and `universal`.

The score is the metric's `value`. It is NaN for a sample that could not be evaluated (`standfast.metrics.Result`); such
a sample is left out of the aggregate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import MissingExtraError, ModelError, UnknownNameError, check
from standfast.explainers import Explainer
from standfast.explainers import get as get_explainer
from standfast.metrics import Metric, Result
from standfast.metrics import names as metric_names
from standfast.metrics.base import metrics
from standfast.model import Bound, Model
from standfast.tensors import Array, content_keys


def metric(name: str | Metric, bounds: tuple[Bound, Bound], **options: Any) -> Any:
    """A configured metric for Quantus.

    Args:
        name: the name of a registered metric, such as `"worst_case"`; or a configured metric of standfast.
        bounds: valid values of an input, `(lower, upper)`: numbers, or tensors that broadcast against a sample.
        options: the arguments of `metric_class(name)`; options of the metric only if `name` is a name.

    Returns:
        An object of `metric_class(name)`.

    Raises:
        UnknownNameError: there is no such metric.
        ArgumentError: an option is invalid.
        MissingExtraError: Quantus is not installed.
    """
    if isinstance(name, Metric):
        return _make_class(type(name))(bounds, configured=name, **options)
    return metric_class(name)(bounds, **options)


def metric_class(name: str) -> type[Any]:
    """The subclass of `quantus.metrics.base.Metric` for a registered metric of standfast.

    Its constructor has the arguments `bounds`; the options of our metric; `seed` (default 0), for all random numbers;
    and Quantus's `abs` (False), `return_aggregate` (False), `aggregate_func` (the mean of the values that are not NaN),
    `default_plot_func`, `disable_warnings` (False) and `display_progressbar` (False). After a call, `results` has the
    complete result of our metric for each batch.

    Raises:
        UnknownNameError: there is no such metric.
        MissingExtraError: Quantus is not installed.
    """
    return _make_class(metrics[name])


def __getattr__(name: str) -> Any:
    """The class for a metric by the name of our class, such as `standfast.integrations.quantus.WorstCase`."""
    if not name.startswith("_"):
        for registered in metric_names():
            if metrics[registered].__name__ == name:
                return metric_class(registered)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def explain_function(explainer: Explainer | str, bounds: tuple[Bound, Bound]) -> Callable[..., Array]:
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
        classes = torch.as_tensor(np.asarray(targets), device=wrapped.device).to(torch.int64).expand(len(x))
        with wrapped.session():
            maps, _ = chosen.attribute_all(wrapped, x, classes)
        return np.asarray(maps.detach().cpu().numpy())

    return explain


@dataclass(frozen=True)
class _GivenMap:
    """A map that the user gave for an input and a class, with the module's logits for this input."""

    attributions: Tensor
    target: int
    logits: Tensor

    def fits(self, target: int, logits: Tensor) -> bool:
        """Whether the map is for this class and this module: other logits mean that the module's weights changed."""
        return target == self.target and torch.allclose(logits, self.logits, rtol=1e-5, atol=1e-7)


@dataclass(frozen=True)
class _QuantusExplainer(Explainer):
    """Quantus's `explain_func` as an explainer, with the maps that the user gave for the inputs (`a_batch`)."""

    explain: Callable[[Tensor, Tensor], Tensor] | None
    given: Mapping[int, _GivenMap] = field(default_factory=dict)
    name: ClassVar[str] = "quantus"
    differentiable: ClassVar[bool] = False

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Attributions and logits, as `Explainer.attribute`: given maps where they fit, else those of the function."""
        self._check_graph(create_graph)
        with torch.no_grad():
            logits = model.forward(x.detach().clone())
        classes = logits.argmax(1) if targets is None else targets
        known: dict[int, Tensor] = {}
        for row, key in enumerate(content_keys(x, 0).tolist()):
            found = self.given.get(key)
            if found is not None and found.fits(int(classes[row]), logits[row]):
                known[row] = found.attributions
        if len(known) == len(x):
            return torch.stack([known[row] for row in range(len(x))]).to(x), logits
        if self.explain is None:
            raise ModelError(
                "explain_func: expected a function, because this metric also explains other inputs; got only a_batch,"
                " which has the maps of the inputs"
            )
        with torch.enable_grad():
            maps = self.explain(x, classes)
        for row, own in known.items():
            maps[row] = own.to(maps)
        return maps, logits


@cache
def _make_class(kind: type[Metric]) -> type[Any]:
    """Make the class of Quantus for one of our metrics."""
    try:
        enums: Any = import_module("quantus.helpers.enums")
    except ImportError as error:
        raise MissingExtraError(f"standfast.integrations.quantus ({error})", "peers") from error
    namespace = {
        "__module__": __name__,
        "__doc__": kind.__doc__,
        "kind": kind,
        "name": f"standfast {kind.name}",
        "data_applicability": {enums.DataType.IMAGE, enums.DataType.TIMESERIES, enums.DataType.TABULAR},
        "model_applicability": {enums.ModelType.TORCH},
        "evaluation_category": getattr(enums.EvaluationCategory, kind.category.upper(), enums.EvaluationCategory.NONE),
    }
    return type(kind.__name__, (_make_base(),), namespace)


@cache
def _make_base() -> type[Any]:
    """Make the base class of all classes; not at import, because Quantus may be missing."""
    parent: Any = import_module("quantus.metrics.base").Metric

    class StandfastMetric(parent):  # type: ignore[misc]
        kind: ClassVar[type[Metric]]

        def __init__(
            self,
            bounds: tuple[Bound, Bound],
            *,
            configured: Metric | None = None,
            seed: int = 0,
            abs: bool = False,
            normalise: bool = False,
            return_aggregate: bool = False,
            aggregate_func: Callable[..., Any] | None = None,
            default_plot_func: Callable[..., Any] | None = None,
            disable_warnings: bool = False,
            display_progressbar: bool = False,
            **options: Any,
        ) -> None:
            expected = "False: Quantus divides by the largest value of a batch, so scores would depend on it"
            known = inspect.signature(self.kind).parameters
            if "normalise" in known and configured is None:  # our option: it normalises by the sample's own map
                options["normalise"] = normalise
            else:
                check(not normalise, "normalise", expected, normalise)
            for option in options:
                if option not in known or configured is not None:
                    raise UnknownNameError(f"option of {self.kind.name}", option, () if configured else known)
            super().__init__(
                abs=abs,
                normalise=False,
                normalise_func=None,
                normalise_func_kwargs=None,
                return_aggregate=return_aggregate,
                aggregate_func=aggregate_func or mean_of_evaluated,
                default_plot_func=default_plot_func,
                disable_warnings=disable_warnings,
                display_progressbar=display_progressbar,
            )
            self.bounds, self.seed = bounds, seed
            self.metric = self.kind(**options) if configured is None else configured
            scores: Any = import_module("quantus.helpers.enums").ScoreDirection
            self.score_direction = scores.HIGHER if self.metric.direction == "higher" else scores.LOWER
            self.results: list[Result] = []

        def __call__(
            self,
            model: Any,
            x_batch: Array,
            y_batch: Array,
            a_batch: Array | None = None,
            s_batch: Array | None = None,
            channel_first: bool | None = None,
            explain_func: Callable[..., Any] | None = None,
            explain_func_kwargs: dict[str, Any] | None = None,
            model_predict_kwargs: dict[str, Any] | None = None,
            softmax: bool | None = False,
            device: str | None = None,
            batch_size: int = 64,
            **kwargs: Any,
        ) -> Any:
            """The scores, one for each input, or their aggregate. The module's docstring lists the options."""
            check(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
            check(not softmax, "softmax", "False: standfast's metrics take logits", softmax)
            kwargs["model_predict_kwargs"] = model_predict_kwargs
            for name in ("model_predict_kwargs", "custom_batch"):
                value = kwargs.pop(name, None)
                none = value is None or (isinstance(value, Mapping) and not value)
                check(none, name, "None: standfast's metrics do not use it", type(value).__name__)
            fine = callable(explain_func) or (explain_func is None and a_batch is not None)
            got = "neither" if explain_func is None else type(explain_func).__name__
            check(fine, "explain_func", "a function (model, inputs, targets, ...), or a_batch", got)
            self._has_function, self._masks = explain_func is not None, s_batch
            return super().__call__(
                model=model,
                x_batch=x_batch,
                y_batch=np.asarray(y_batch),
                a_batch=a_batch,
                s_batch=None,
                custom_batch=None,
                channel_first=channel_first,
                explain_func=explain_func,
                explain_func_kwargs=None if explain_func_kwargs is None else dict(explain_func_kwargs),
                model_predict_kwargs=None,
                softmax=False,
                device=device,
                batch_size=batch_size,
                **kwargs,
            )

        def custom_preprocess(self, *, model: Any, x_batch: Array, **_: Any) -> None:
            """Prepare the state of one call: the model, all inputs, the masks, and the start of the next batch."""
            first = getattr(model, "channel_first", True)
            check(first, "channel_first", "True: Quantus accepts torch modules only with channels first", first)
            device = "auto" if getattr(model, "device", None) is None else str(model.device)
            self.model = Model(model.get_model(), self.bounds, device=device)
            self._inputs = self.model.check_inputs(self._tensor(x_batch), "x_batch")
            self._prepared = self.metric
            if self.metric.mask_option and self._masks is not None:
                masks = torch.as_tensor(np.asarray(self._masks)) > 0
                self._prepared = self.metric.bind(extras={getattr(self.metric, self.metric.mask_option): masks})
            self._next, self.results = 0, []

        def _tensor(self, values: Array) -> Tensor:
            return torch.as_tensor(values, dtype=self.model.dtype, device=self.model.device)

        def evaluate_batch(
            self, model: Any, x_batch: Array, y_batch: Array, a_batch: Array | None = None, **_: Any
        ) -> list[float]:
            """The value of each sample of a batch; NaN for a sample that could not be evaluated."""
            rows = slice(self._next, self._next + len(x_batch))
            self._next = rows.stop
            inputs, targets = self._inputs[rows], torch.as_tensor(np.asarray(y_batch)).to(torch.int64)
            given: dict[int, _GivenMap] = {}
            if a_batch is not None:
                keys, classes = content_keys(inputs, 0).tolist(), targets.tolist()
                logits, maps = self.model.logits(inputs), self._to_maps(a_batch, inputs)
                given = {k: _GivenMap(*values) for k, *values in zip(keys, maps, classes, logits, strict=True)}

            def explain(x: Tensor, classes: Tensor) -> Tensor:
                return self._to_maps(self.explain_batch(model, x.cpu().numpy(), classes.cpu().numpy()), x)

            explainer = _QuantusExplainer(explain if self._has_function else None, given)
            result = self._prepared.bind(inputs=self._inputs, rows=rows)(
                self.model, explainer, inputs, targets, generator=torch.Generator().manual_seed(self.seed)
            )
            self.results.append(result)
            values = result.value.to(torch.float64).tolist()
            return [value if s == "ok" else float("nan") for value, s in zip(values, result.status, strict=True)]

        def _to_maps(self, maps: Array, x: Tensor) -> Tensor:
            """The maps with the shape of the inputs; Quantus allows one channel for all."""
            values = self._tensor(np.array(maps))
            if values.ndim == x.ndim - 1:
                values = values[:, None]
            return values.expand(x.shape).clone()

    return StandfastMetric


def mean_of_evaluated(scores: Any) -> float:
    """The mean of the scores that are not NaN; NaN if all are.

    >>> mean_of_evaluated([1.0, float("nan"), 2.0])
    1.5
    """
    values = np.asarray(scores, dtype=float)
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
