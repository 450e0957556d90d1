"""LIME by its authors' package: objects for images and for tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers.adapters.base import (
    ArrayFunction,
    ForeignExplainer,
    check_common,
    check_option_names,
    find_class,
    hide_progress_bars,
    make_array_function,
)
from holdfast.model import Classifier

#: the package's default number of samples where the call's signature does not tell
_SAMPLES = 1000


@dataclass(frozen=True)
class LimePackageExplainer(ForeignExplainer):
    """An object of the package `lime`; made by `from_lime`."""

    method: Any
    output: Literal["logit", "probability"] = "probability"
    rows: int = 1
    call_options: Mapping[str, Any] = field(default_factory=dict)
    one_at_a_time: bool | None = True
    seed: int = 0
    name: ClassVar[str] = "lime_package"

    @property
    def label(self) -> str:
        return f"lime.{type(self.method).__name__}"

    def explain(self, classifier: Classifier, rows: Tensor, targets: Tensor) -> Tensor:
        images = _takes_images(self.method)
        channels = rows.shape[1]
        wanted = "images (N, 1, H, W) or (N, 3, H, W)" if images else "flat features (N, F)"
        fine = rows.ndim == 4 and channels in (1, 3) if images else rows.ndim == 2
        check(fine, "inputs", f"{wanted} for {self.label}", f"shape {tuple(rows.shape)}")
        predict = make_array_function(classifier, tuple(rows.shape[1:]), self.output == "probability")
        maps = []
        for row, target in zip(rows, targets.tolist(), strict=True):
            key = int(np.random.randint(1 << 31))  # noqa: NPY002 (the generator is seeded by the row's content)
            with _seed_object(self.method, key), hide_progress_bars():
                maps.append(
                    self._explain_image(row, predict, target) if images else self._explain_row(row, predict, target)
                )
        return torch.stack(maps)

    def _explain_image(self, row: Tensor, predict: ArrayFunction, target: int) -> Tensor:
        """An image as lime wants it, `(H, W, 3)`; gray ones are given to the model by their first channel."""
        image = row.expand(3, *row.shape[1:]).permute(1, 2, 0).double().cpu().numpy()
        count = len(row)

        def predict_images(many: Any) -> Any:
            return predict(np.moveaxis(np.asarray(many), -1, 1)[:, :count])

        given = {"labels": (target,), "top_labels": None}
        found = self.method.explain_instance(image, predict_images, **given, **self.call_options)
        weights = np.zeros(int(found.segments.max()) + 1)
        for segment, weight in found.local_exp[target]:
            weights[segment] = weight
        return torch.as_tensor(weights[found.segments], dtype=row.dtype, device=row.device).expand_as(row)

    def _explain_row(self, row: Tensor, predict: ArrayFunction, target: int) -> Tensor:
        options = {"num_features": len(row), **self.call_options}
        given = {"labels": (target,), "top_labels": None}
        found = self.method.explain_instance(row.double().cpu().numpy(), predict, **given, **options)
        out = torch.zeros_like(row)
        for feature, weight in found.local_exp[target]:
            out[feature] = weight
        return out


def from_lime(
    method: Any,
    /,
    *,
    output: Literal["logit", "probability"] = "probability",
    rows_per_input: int | None = None,
    seed: int = 0,
    **options: Any,
) -> LimePackageExplainer:
    """An explainer from `lime.lime_image.LimeImageExplainer` or `lime.lime_tabular.LimeTabularExplainer`.

    For images `(N, 1, H, W)` or `(N, 3, H, W)`, every pixel, in all channels, has its segment's coefficient; for flat
    features `(N, F)`, each feature has its own (with lime's default, that of being in its quartile). Each input is
    explained alone, with random numbers seeded by its content: the object's own `random_state` is set aside for the
    call. What lime draws is not kept within the classifier's bounds. holdfast's own `LIME` is far faster.

    Args:
        method: an object, a class, or `"image"` or `"tabular"`.
        output: what the linear model approximates: `"probability"`, as lime expects, or `"logit"`.
        rows_per_input: rows forwarded for one input; by default `num_samples`.
        seed: of the random numbers.
        options: of the constructor of a class (`training_data`, a tensor or an array, for tables), or of
            `explain_instance` (`num_samples`, `segmentation_fn`, `hide_color`, ...), told apart by their signatures.

    Raises:
        MissingExtraError: a name, and lime is not installed.
        ArgumentError: an option that neither has; nothing of lime; in the call, inputs that it cannot explain.

    Source: Ribeiro, Singh and Guestrin, "Why should I trust you?" Explaining the predictions of any classifier, KDD
    2016, and their package.

    >>> class Tabular:  # what lime's objects look like
    ...     mode = "classification"
    ...     def explain_instance(self, data_row, predict_fn, labels=(1,), top_labels=None, num_features=10):
    ...         return type("Explanation", (), {"local_exp": {labels[0]: [(1, 0.5)]}})
    >>> classifier = Classifier(torch.nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu")
    >>> from_lime(Tabular())(classifier, torch.ones(1, 2))
    tensor([[0.0000, 0.5000]])
    """
    if isinstance(method, str):
        known = {"image": ("lime_image", "LimeImageExplainer"), "tabular": ("lime_tabular", "LimeTabularExplainer")}
        names = known | {name: (module, name) for module, name in known.values()}
        check(method in names, "method", f"one of {', '.join(names)}, a class or an object of lime", repr(method))
        module, name = names[method]
        method = find_class("lime", f"lime.{module}", name, "explainers")
    fine = callable(getattr(method, "explain_instance", None))
    check(fine, "method", "a class or an object of lime_image or lime_tabular", repr(method))
    in_call = dict(signature(method.explain_instance).parameters)
    for taken in ("self", "image", "data_row", "classifier_fn", "predict_fn", "labels", "top_labels"):
        in_call.pop(taken, None)
    in_constructor = dict(signature(method).parameters) if isinstance(method, type) else {}
    title = method.__name__ if isinstance(method, type) else type(method).__name__
    check_option_names(options, {**in_constructor, **in_call}, title)
    call_options = {key: value for key, value in options.items() if key not in in_constructor}
    if isinstance(method, type):
        built = {key: _to_array(value) for key, value in options.items() if key in in_constructor}
        missing = [n for n, p in in_constructor.items() if p.default is Parameter.empty and n not in built]
        check(not missing, ", ".join(missing), f"a value for {title}", "none")
        method = method(**built)
    if getattr(method, "mode", "classification") != "classification":
        raise ArgumentError("method", "an explainer of classifiers", f"mode {method.mode!r}")
    default = in_call["num_samples"].default if "num_samples" in in_call else _SAMPLES
    rows = call_options.get("num_samples", default) if rows_per_input is None else rows_per_input
    check(output in ("logit", "probability"), "output", "'logit' or 'probability'", repr(output))
    check_common(rows, True, seed)
    return LimePackageExplainer(method, output, rows, call_options, True, seed)


def _takes_images(method: Any) -> bool:
    return "image" in signature(method.explain_instance).parameters


def _to_array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


@contextlib.contextmanager
def _seed_object(method: Any, seed: int) -> Iterator[None]:
    """Its own generators replaced by one that is seeded; afterwards it holds what it held, noted classes included."""
    holders: tuple[Any, ...] = (method, getattr(method, "base", None), getattr(method, "discretizer", None))
    before = [(holder, dict(vars(holder))) for holder in holders if hasattr(holder, "random_state")]
    shared = np.random.RandomState(seed)
    try:
        for holder, _ in before:
            holder.random_state = shared
        yield
    finally:
        for holder, held in before:
            vars(holder).clear()
            vars(holder).update(held)
