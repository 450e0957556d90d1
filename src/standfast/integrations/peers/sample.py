"""One sample for a metric of another package: on its own, with seeded generators, and its evaluations counted."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from standfast.explainers import Explainer
from standfast.explainers.base import PreprocessedModule, join_preprocessing
from standfast.model import Model
from standfast.tensors import seed_generators


class Sample:
    """One sample for a peer, and the count of the model evaluations that the peer requests.

    Attributes:
        inputs, maps: the input and its map, each `(1, ...)`.
        targets: its class, int64 `(1,)`.
        classes: the number of classes.
        module: the module with which the peer predicts.
        evaluations: how many predictions and explanations the peer requested.
        error: the error that the user's explainer or model raised, if any.
    """

    def __init__(
        self,
        model: Model,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor,
        maps: Tensor,
        classes: int,
    ) -> None:
        self.model = model
        self.explainer = explainer
        self.inputs = inputs
        self.targets = targets
        self.maps = maps
        self.classes = classes
        self.module = join_preprocessing(model)
        self.evaluations = 0
        self.explaining = False
        self.error: Exception | None = None

    def explain(self, x: Tensor, targets: Tensor, module: nn.Module | None = None) -> Tensor:
        """Attributions of `x` `(M, ...)` for classes `(M,)`; `module` is a copy that the peer changed, if any."""
        self.evaluations += len(x)
        self.explaining = True
        try:
            with torch.inference_mode(False):
                return self._explain(x.detach().to(self.inputs), targets, module)
        except Exception as error:
            # kept, as the peer may catch it
            self.error = error
            raise
        finally:
            self.explaining = False

    def _explain(self, x: Tensor, targets: Tensor, module: nn.Module | None) -> Tensor:
        model = self.model
        if module is not None and module is not self.module:
            model = self._model_of(module, x)
        with model.session():
            classes = targets.to(x.device, torch.int64).expand(len(x))
            maps, _ = self.explainer.attribute_all(model, x, classes)
        return maps.detach()

    def _model_of(self, module: nn.Module, x: Tensor) -> Model:
        """A model with a changed copy of the module; tests that randomise weights make such copies."""
        clean_model = self.model
        bounds = clean_model.bounds
        device = clean_model.device
        options: dict[str, Any] = {"task": clean_model.task, "output": clean_model.output}
        rows = clean_model.row_budget(x, self.explainer.rows_per_input, "backward")
        if isinstance(module, PreprocessedModule):  # its layers keep the names that explainers use
            model = Model(module.module, bounds, module.preprocess, device, rows, **options)
        else:
            model = Model(module, bounds, None, device, rows, **options)
        model.reference = clean_model.reference
        return model


@contextlib.contextmanager
def isolate(sample: Sample, seed: int) -> Iterator[None]:
    """Inside the block, global generators are seeded, warnings are hidden, and predictions are counted."""
    with (
        seed_generators(seed, sample.inputs.device),
        _count_predictions(sample),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _count_predictions(sample: Sample) -> Iterator[None]:
    """Count the rows that the module predicts; `Sample.explain` counts explanations."""

    def count(module: nn.Module, args: tuple[Any, ...], out: object) -> None:
        if not sample.explaining and isinstance(out, Tensor):
            sample.evaluations += len(out)

    handle = sample.module.register_forward_hook(_SharedHook(count))
    try:
        yield
    finally:
        handle.remove()


class _SharedHook:
    """A hook that is not copied with its module, so that copies of the module also call it."""

    def __init__(self, count: Callable[..., None]) -> None:
        self.count = count

    def __call__(self, *args: Any) -> None:
        self.count(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> _SharedHook:
        return self
