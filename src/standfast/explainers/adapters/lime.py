"""Explainers from the package `lime` of LIME's authors: for images and for tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.explainers.adapters.base import (
    ArrayFunction,
    ForeignExplainer,
    check_common,
    check_option_names,
    find_class,
    get_class,
    hide_progress_bars,
    make_array_function,
    split_options,
)
from standfast.model import Model, Output

#: number of samples that is assumed if the signature of the call has no default
_SAMPLES = 1000


@dataclass(frozen=True)
class LimePackageExplainer(ForeignExplainer):
    """An explainer that calls an object of the package `lime`; made by `from_lime`."""

    method: Any
    output: Output = "probability"
    rows: int = 1
    call_options: Mapping[str, Any] = field(default_factory=dict)
    one_at_a_time: bool | None = True
    seed: int = 0
    name: ClassVar[str] = "lime_package"
    package: ClassVar[str] = "lime"

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        images = _takes_images(self.method)
        channels = rows.shape[1]
        wanted = "images (N, 1, H, W) or (N, 3, H, W)" if images else "flat features (N, F)"
        fine = rows.ndim == 4 and channels in (1, 3) if images else rows.ndim == 2
        check(fine, "inputs", f"{wanted} for {self.label}", f"shape {tuple(rows.shape)}")
        predict = make_array_function(model, tuple(rows.shape[1:]), self.output == "probability")
        maps = []
        for row, target in zip(rows, targets.tolist(), strict=True):
            key = int(np.random.randint(1 << 31))  # noqa: NPY002 (the generator is seeded by the row's content)
            with _seed_object(self.method, key), hide_progress_bars():
                maps.append(
                    self._explain_image(row, predict, target) if images else self._explain_row(row, predict, target)
                )
        return torch.stack(maps)

    def _explain_image(self, row: Tensor, predict: ArrayFunction, target: int) -> Tensor:
        """Explain an image in lime's format, `(H, W, 3)`; of a gray image the model sees the first channel only."""
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
    output: Output = "probability",
    rows_per_input: int | None = None,
    seed: int = 0,
    **options: Any,
) -> LimePackageExplainer:
    """An explainer from `lime.lime_image.LimeImageExplainer` or `lime.lime_tabular.LimeTabularExplainer`.

    For images `(N, 1, H, W)` or `(N, 3, H, W)`, every pixel has its segment's coefficient, in all channels. For flat
    features `(N, F)`, each feature has its own coefficient (by lime's default, that of being in its quartile).

    Each input is explained alone, with random numbers seeded by its content; they replace the object's own
    `random_state` during the call. Samples that lime draws may leave the model's bounds. standfast's own `LIME` is
    much faster.

    Args:
        method: an object, a class, or `"image"` or `"tabular"`.
        output: what the linear model approximates: `"probability"`, as lime expects, or `"logit"`.
        rows_per_input: rows forwarded for one input; by default `num_samples`.
        seed: of the random numbers.
        options: of the constructor of a class (`training_data`, a tensor or an array, for tables), or of
            `explain_instance` (`num_samples`, `segmentation_fn`, `hide_color`, ...), as their signatures say.

    Raises:
        MissingExtraError: `method` is a name, and lime is not installed.
        ArgumentError: an option that neither the constructor nor `explain_instance` has; an object of another package;
            in the call, inputs that the object cannot explain.

    Source: Ribeiro, Singh and Guestrin, "Why should I trust you?" Explaining the predictions of any model, KDD
    2016, and their package.

    >>> class Tabular:  # what lime's objects look like
    ...     mode = "classification"
    ...     def explain_instance(self, data_row, predict_fn, labels=(1,), top_labels=None, num_features=10):
    ...         return type("Explanation", (), {"local_exp": {labels[0]: [(1, 0.5)]}})
    >>> model = Model(torch.nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu")
    >>> from_lime(Tabular())(model, torch.ones(1, 2))
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
    for ours in ("self", "image", "data_row", "classifier_fn", "predict_fn", "labels", "top_labels"):
        in_call.pop(ours, None)
    in_constructor = dict(signature(method).parameters) if isinstance(method, type) else {}
    title = get_class(method).__name__
    check_option_names(options, {**in_constructor, **in_call}, title)
    constructor_options, call_options = split_options(options, in_constructor)
    if isinstance(method, type):
        required = [name for name, parameter in in_constructor.items() if parameter.default is Parameter.empty]
        missing = [name for name in required if name not in constructor_options]
        check(not missing, ", ".join(missing), f"a value for {title}", "none")
        method = method(**{key: _to_array(value) for key, value in constructor_options.items()})
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
    """Replace the object's generators by a seeded one inside, and restore all of its attributes afterwards."""
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
