"""One sample as metrics of other packages see it: alone, their generators seeded, what they ask for counted."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.explainers import Explainer
from holdfast.explainers.adapters.base import seed_generators
from holdfast.explainers.base import PreprocessedModule, join_preprocessing
from holdfast.model import Classifier


class Sample:
    """One sample as the peers see it, and the counters of what they ask for.

    Attributes:
        inputs, maps: of the sample, `(1, ...)`.
        targets: its class, int64 `(1,)`.
        classes: how many there are.
        module: what they predict with.
        looks: predictions and explanations that they asked for.
        error: what the user's explainer or model raised in between, if anything.
    """

    def __init__(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor,
        maps: Tensor,
        classes: int,
    ) -> None:
        self.classifier, self.explainer = classifier, explainer
        self.inputs, self.targets, self.maps, self.classes = inputs, targets, maps, classes
        self.module = join_preprocessing(classifier)
        self.looks, self.explaining = 0, False
        self.error: Exception | None = None

    def explain(self, x: Tensor, targets: Tensor, module: nn.Module | None = None) -> Tensor:
        """Attributions of `x` `(M, ...)` towards `targets` `(M,)`, for the peers' own version of the module if any."""
        self.looks += len(x)
        self.explaining = True
        try:
            with torch.inference_mode(False):
                return self._explain(x.detach().to(self.inputs), targets, module)
        except Exception as error:
            self.error = error
            raise
        finally:
            self.explaining = False

    def _explain(self, x: Tensor, targets: Tensor, module: nn.Module | None) -> Tensor:
        classifier, explainer = self.classifier, self.explainer
        if module is not None and module is not self.module:
            classifier = self._of(module, x)
        with classifier.session():
            maps, _ = classifier.map_rows(
                lambda rows, classes: explainer.attribute(classifier, rows, classes),
                x,
                targets.to(x.device, torch.int64).expand(len(x)),
                rows_per_input=explainer.rows_per_input,
                kind="backward",
            )
        return maps.detach()

    def _of(self, module: nn.Module, x: Tensor) -> Classifier:
        """The classifier with a changed copy of its module, as tests by randomisation make them."""
        own = self.classifier
        rows = own.row_budget(x, self.explainer.rows_per_input, "backward")
        if isinstance(module, PreprocessedModule):  # layers keep the names that explainers know
            return Classifier(module.module, own.bounds, module.preprocess, own.device, rows)
        return Classifier(module, own.bounds, None, own.device, rows)


@contextlib.contextmanager
def alone(sample: Sample, seed: int) -> Iterator[None]:
    """Inside, the peer draws from seeded generators, its warnings are not shown, and its predictions are counted."""
    with seed_generators(seed, sample.inputs.device), _counting(sample), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _counting(sample: Sample) -> Iterator[None]:
    """Count what is predicted with the module; explanations count themselves."""

    def note(module: nn.Module, args: tuple[Any, ...], out: object) -> None:
        if not sample.explaining and isinstance(out, Tensor):
            sample.looks += len(out)

    handle = sample.module.register_forward_hook(_Shared(note))
    try:
        yield
    finally:
        handle.remove()


class _Shared:
    """A hook that copies of the module share with it."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.note = note

    def __call__(self, *args: Any) -> None:
        self.note(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self
