"""Explainers from the package `lime` of LIME's authors: for images and for tables."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.adapters.base import ForeignExplainer, find_class, make_array_function
from standfast.explainers.base import Measure
from standfast.model import Model, Output

_CLASSES = {"image": "LimeImageExplainer", "tabular": "LimeTabularExplainer"}
#: number of samples that is assumed if the signature of the call has no default
_SAMPLES = 1000


@dataclass(frozen=True)
class LimePackageExplainer(ForeignExplainer):
    """An explainer that calls an object of the package `lime`; made by `from_lime`."""

    output: Output = "probability"
    name = "lime_package"
    has_signs = True
    package = "lime"
    home = "lime"
    entry = "explain_instance"
    built_on = ()
    passed = ("classifier_fn", "predict_fn", "labels", "top_labels")

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        """Of numbers that are cut into no ranges, the coefficient is a slope, in standard deviations of the column."""
        has_slopes = hasattr(self.method, "discretizer") and self.method.discretizer is None
        return "direction" if has_slopes else "contribution"

    @classmethod
    def count_rows(
        cls, method: Any, known: Mapping[str, Parameter], options: Mapping[str, Any]
    ) -> int:
        default = known["num_samples"].default if "num_samples" in known else _SAMPLES
        return int(options.get("num_samples", default))

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        images = "image" in signature(self.method.explain_instance).parameters
        channels = rows.shape[1]
        if images:
            expected = "images (N, 1, H, W) or (N, 3, H, W)"
        else:
            expected = "flat features (N, F)"
        if images:
            fine = rows.ndim == 4 and channels in (1, 3)
        else:
            fine = rows.ndim == 2
        check(fine, "inputs", f"{expected} for {self.label}", f"shape {tuple(rows.shape)}")
        predict = make_array_function(model, tuple(rows.shape[1:]), self.output == "probability")

        def predict_images(many: Any) -> Any:
            """Logits of images `(N, H, W, 3)`; of gray ones the model sees the first channel only."""
            channels_first = np.moveaxis(np.asarray(many), -1, 1)
            return predict(channels_first[:, :channels])

        maps = []
        for row, target in zip(rows, targets.tolist(), strict=True):
            # with `top_labels` lime would explain the classes of the largest probabilities instead of the target
            options = {"labels": (target,), "top_labels": None, **self.call_options}
            key = int(np.random.randint(1 << 31))  # noqa: NPY002 (the generator is seeded by the row's content)
            # lime writes a progress bar to standard error
            with (
                _seed_object(self.method, key),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                if images:
                    image = (
                        row.expand(3, *row.shape[1:]).permute(1, 2, 0).double().numpy(force=True)
                    )
                    explanation = self.method.explain_instance(image, predict_images, **options)
                    segments = explanation.segments
                    count = int(explanation.segments.max()) + 1
                else:
                    options = {"num_features": len(row), **options}
                    explanation = self.method.explain_instance(
                        row.double().numpy(force=True), predict, **options
                    )
                    segments = np.arange(len(row))
                    count = len(row)
            # lime leaves out features beyond `num_features`
            weights = np.zeros(count)
            for feature, weight in explanation.local_exp[target]:
                weights[feature] = weight
            maps.append(
                torch.as_tensor(weights[segments], dtype=row.dtype, device=row.device).expand_as(
                    row
                )
            )
        return torch.stack(maps)


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
        title = _CLASSES.get(method, method)
        expected = f"{', '.join([*_CLASSES, *_CLASSES.values()])}, a class or an object of lime"
        check(title in _CLASSES.values(), "method", expected, repr(method))
        program = "lime.lime_image" if "Image" in title else "lime.lime_tabular"
        method = find_class("lime", program, title)
    method = LimePackageExplainer.find_method(method)
    adapter = LimePackageExplainer.make(method, options, rows_per_input, True, seed, output=output)
    if isinstance(method, type):
        arguments = {}
        for name, value in adapter.constructor_options.items():
            if isinstance(value, Tensor):
                value = value.detach().cpu().numpy()
            arguments[name] = value
        adapter = replace(adapter, method=method(**arguments), constructor_options={})
    mode = getattr(adapter.method, "mode", "classification")
    check(mode == "classification", "method", "an explainer of classifiers", f"mode {mode!r}")
    return adapter


@contextlib.contextmanager
def _seed_object(method: Any, seed: int) -> Iterator[None]:
    """Replace the object's generators by a seeded one inside, and restore all of its attributes afterwards."""
    holders: tuple[Any, ...] = (
        method,
        getattr(method, "base", None),
        getattr(method, "discretizer", None),
    )
    before = []
    for holder in holders:
        if hasattr(holder, "random_state"):
            before.append((holder, dict(vars(holder))))
    shared = np.random.RandomState(seed)
    try:
        for holder, _ in before:
            holder.random_state = shared
        yield
    finally:
        for holder, attributes in before:
            vars(holder).clear()
            vars(holder).update(attributes)
