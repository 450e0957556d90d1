"""Every holdfast metric as a metric of Quantus, so that `quantus.evaluate` runs them beside its own.

    import quantus
    from holdfast.integrations.quantus import metric

    metrics = {"Max-Sensitivity": quantus.MaxSensitivity(), "worst case": metric("worst_case", bounds=(0, 1), ...)}
    quantus.evaluate(metrics, {"Saliency": explain}, model, x_batch, y_batch, explain_func_kwargs={})

The classes are made from the registry of metrics, plug-ins included; nothing of Quantus is copied (it is under the
LGPL). The batch of perturbed inputs is explained by one call of `explain_func` for each chunk that fits into memory.

What of Quantus's options is honoured: `explain_func` with its `explain_func_kwargs`, `a_batch` (the maps of the inputs
themselves; alone, without `explain_func`, for metrics that explain nothing else), `s_batch` (the masks of metrics that
want some; the others do not look at it), `device`, `abs`, `return_aggregate`, `aggregate_func`, `batch_size` (on which
no result depends).

What makes no sense here, and is refused: `softmax=True` and `model_predict_kwargs`, since our metrics take the
module's logits and have options of their own for probabilities; `normalise=True`, which in Quantus divides by the
largest value of the batch, so that a sample's score depends on its company (but where our metric has an option of that
name, as `max_sensitivity` has, ours is meant); `custom_batch`; `channel_first=False`, which Quantus itself refuses for
torch modules. What needs gradients of the explanation (`attribution_attack` but for its attacks `random_sign` and
`universal`) cannot be had from functions that return arrays.

Scores are the metric's headline. A sample that could not be evaluated (see `holdfast.metrics.Result`) has NaN, and
takes no part in the aggregate.
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

from holdfast.errors import MissingExtraError, ModelError, UnknownNameError, check
from holdfast.explainers import Explainer
from holdfast.explainers import get as get_explainer
from holdfast.metrics import Metric, Result
from holdfast.metrics import names as metric_names
from holdfast.metrics.base import metrics
from holdfast.model import Bound, Classifier
from holdfast.tensors import content_keys

Array = np.ndarray[Any, Any]


def metric(name: str | Metric, bounds: tuple[Bound, Bound], **options: Any) -> Any:
    """A configured metric for Quantus.

    Args:
        name: of a registered metric, such as `"worst_case"`; or a configured one of ours.
        bounds: valid values of an input, `(lower, upper)`: numbers, or tensors that broadcast against a sample.
        options: of the metric, where `name` is a name; and those of `metric_class`.

    Returns:
        An object of `metric_class(name)`.

    Raises:
        UnknownNameError: no such metric.
        ArgumentError: options that do not fit.
        MissingExtraError: Quantus is not installed.
    """
    if isinstance(name, Metric):
        return _class_of(type(name))(bounds, configured=name, **options)
    return metric_class(name)(bounds, **options)


def metric_class(name: str) -> type[Any]:
    """The subclass of `quantus.metrics.base.Metric` for a registered metric of ours.

    Its constructor takes `bounds`; the options of our metric; `seed` (0), of all random numbers; and Quantus's own:
    `abs` (False), `return_aggregate` (False), `aggregate_func` (the mean of what is not NaN), `default_plot_func`,
    `disable_warnings` and `display_progressbar` (both False). After a call its `results` holds our results, a batch
    each, with all that they say beside the headline.

    Raises:
        UnknownNameError: no such metric.
        MissingExtraError: Quantus is not installed.
    """
    return _class_of(metrics[name])


def __getattr__(name: str) -> Any:
    """`holdfast.integrations.quantus.WorstCase` and the like: the classes, by the names that ours have."""
    if not name.startswith("_"):
        for registered in metric_names():
            if metrics[registered].__name__ == name:
                return metric_class(registered)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def explain_function(explainer: Explainer | str, bounds: tuple[Bound, Bound]) -> Callable[..., Array]:
    """An explainer of ours as an `explain_func` of Quantus: `(model, inputs, targets, **_) -> array`.

    Inputs that the metrics of Quantus disturb may lie outside the bounds, which are for explainers with a baseline.
    """
    chosen = get_explainer(explainer)
    last: list[Classifier] = []  # what it found out about memory and speed is worth keeping

    def explain(model: nn.Module, inputs: Any, targets: Any, **more: Any) -> Array:
        if not last or last[0].module is not model:
            last[:] = [Classifier(model, bounds)]
        classifier = last[0]
        x = torch.as_tensor(np.asarray(inputs), dtype=classifier.dtype, device=classifier.device)
        classes = torch.as_tensor(np.asarray(targets), device=classifier.device).to(torch.int64).expand(len(x))
        with classifier.session():
            maps, _ = classifier.map_rows(
                lambda rows, chosen_class: chosen.attribute(classifier, rows, chosen_class),
                x,
                classes,
                rows_per_input=chosen.rows_per_input,
                kind="backward",
            )
        return np.asarray(maps.detach().cpu().numpy())

    return explain


@dataclass(frozen=True)
class _Given:
    """The map of an input for a class, from the module as it is: what it says there tells whether it still is."""

    attributions: Tensor
    target: int
    logits: Tensor

    def fits(self, target: int, logits: Tensor) -> bool:
        """Whether it is the map of this class, from a module that says the same (none whose weights are masked)."""
        return target == self.target and torch.allclose(logits, self.logits, rtol=1e-5, atol=1e-7)


@dataclass(frozen=True)
class _QuantusExplainer(Explainer):
    """Quantus's `explain_func` under the metric's options, and the maps that it was given of the inputs themselves."""

    explain: Callable[[Tensor, Tensor], Tensor] | None
    given: Mapping[int, _Given] = field(default_factory=dict)
    name: ClassVar[str] = "quantus"
    differentiable: ClassVar[bool] = False

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        """See `Explainer`."""
        self._check_graph(create_graph)
        with torch.no_grad():
            logits = classifier.forward(x.detach().clone())
        classes = logits.argmax(1) if targets is None else targets
        known: dict[int, Tensor] = {}
        for row, key in enumerate(content_keys(x, 0).tolist()):
            found = self.given.get(key)
            if found is not None and found.fits(int(classes[row]), logits[row]):
                known[row] = found.attributions
        if len(known) == len(x):
            return torch.stack([known[row] for row in range(len(x))]).to(x), logits
        if self.explain is None:
            got = "a_batch alone, which has the maps of the inputs themselves"
            raise ModelError(f"explain_func: expected a function, as other inputs have to be explained, too; got {got}")
        with torch.enable_grad():
            maps = self.explain(x, classes)
        for row, own in known.items():
            maps[row] = own.to(maps)
        return maps, logits


@cache
def _class_of(kind: type[Metric]) -> type[Any]:
    """The class for one of ours."""
    try:
        enums: Any = import_module("quantus.helpers.enums")
    except ImportError as error:
        raise MissingExtraError(f"holdfast.integrations.quantus ({error})", "peers") from error
    higher = kind.direction == "higher"
    namespace = {
        "__module__": __name__,
        "__doc__": kind.__doc__,
        "kind": kind,
        "name": f"holdfast {kind.name}",
        "data_applicability": {enums.DataType.IMAGE, enums.DataType.TIMESERIES, enums.DataType.TABULAR},
        "model_applicability": {enums.ModelType.TORCH},
        "score_direction": enums.ScoreDirection.HIGHER if higher else enums.ScoreDirection.LOWER,
        "evaluation_category": getattr(enums.EvaluationCategory, kind.category.upper(), enums.EvaluationCategory.NONE),
    }
    return type(kind.__name__, (_base(),), namespace)


@cache
def _base() -> type[Any]:
    """What all classes have in common; made when it is first asked for, as Quantus may be missing."""
    parent: Any = import_module("quantus.metrics.base").Metric

    class HoldfastMetric(parent):  # type: ignore[misc]
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
            if "normalise" in known and configured is None:  # ours: of the sample's own map
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
            """Scores, one for each input, or the aggregate; see the module's docstring."""
            check(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
            check(not softmax, "softmax", "False: holdfast's metrics take logits", softmax)
            kwargs["model_predict_kwargs"] = model_predict_kwargs
            for name in ("model_predict_kwargs", "custom_batch"):
                value = kwargs.pop(name, None)
                none = value is None or (isinstance(value, Mapping) and not value)
                check(none, name, "None: holdfast's metrics have no use for it", type(value).__name__)
            fine = callable(explain_func) or (explain_func is None and a_batch is not None)
            got = "neither" if explain_func is None else type(explain_func).__name__
            check(fine, "explain_func", "a function (model, inputs, targets, ...), or a_batch", got)
            self._explained, self._masks = explain_func is not None, s_batch
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
            """What holds for the whole call: the classifier, all inputs, masks, where in them a batch stands."""
            first = getattr(model, "channel_first", True)
            check(first, "channel_first", "True: Quantus takes torch modules with channels first only", first)
            device = "auto" if getattr(model, "device", None) is None else str(model.device)
            self.classifier = Classifier(model.get_model(), self.bounds, device=device)
            self._inputs = self.classifier.check_inputs(self._tensor(x_batch), "x_batch")
            masks = None if self._masks is None else {"masks": torch.as_tensor(np.asarray(self._masks)) > 0}
            self._here = self.metric if masks is None else self.metric.for_data(masks)
            self._next, self.results = 0, []

        def _tensor(self, values: Array) -> Tensor:
            return torch.as_tensor(values, dtype=self.classifier.dtype, device=self.classifier.device)

        def evaluate_batch(
            self, model: Any, x_batch: Array, y_batch: Array, a_batch: Array | None = None, **_: Any
        ) -> list[float]:
            """The headline of each sample of a batch, NaN where there is none."""
            rows = slice(self._next, self._next + len(x_batch))
            self._next = rows.stop
            inputs, targets = self._inputs[rows], torch.as_tensor(np.asarray(y_batch)).to(torch.int64)
            given: dict[int, _Given] = {}
            if a_batch is not None:
                keys, classes = content_keys(inputs, 0).tolist(), targets.tolist()
                said, maps = self.classifier.logits(inputs), self._maps(a_batch, inputs)
                given = {k: _Given(*values) for k, *values in zip(keys, maps, classes, said, strict=True)}

            def explain(x: Tensor, classes: Tensor) -> Tensor:
                return self._maps(self.explain_batch(model, x.cpu().numpy(), classes.cpu().numpy()), x)

            explainer = _QuantusExplainer(explain if self._explained else None, given)
            result = self._here.for_samples(self._inputs, rows)(
                self.classifier, explainer, inputs, targets, generator=torch.Generator().manual_seed(self.seed)
            )
            self.results.append(result)
            headline = getattr(result, self.kind.headline).to(torch.float64).tolist()
            return [value if s == "ok" else float("nan") for value, s in zip(headline, result.status, strict=True)]

        def _maps(self, maps: Array, x: Tensor) -> Tensor:
            """Maps with the inputs' shape: Quantus allows one channel for all."""
            values = self._tensor(np.array(maps))
            if values.ndim == x.ndim - 1:
                values = values[:, None]
            return values.expand(x.shape).clone()

    return HoldfastMetric


def mean_of_evaluated(scores: Any) -> float:
    """The mean of what is not NaN; NaN where nothing is left.

    >>> mean_of_evaluated([1.0, float("nan"), 2.0])
    1.5
    """
    values = np.asarray(scores, dtype=float)
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
