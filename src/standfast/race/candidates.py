"""Which explainers race where nobody names them: those that suit the model and the inputs, with several settings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from torch import nn

from standfast.errors import StandfastError
from standfast.explainers import get as get_explainer
from standfast.model import Model
from standfast.question.frames import FrameReader
from standfast.question.grid import LoadedModel, Samples
from standfast.question.inputs import Inputs
from standfast.question.texts import TextReader

#: of gradients, of any inputs: cheap first
_GRADIENTS = (
    "saliency",
    "input_x_gradient",
    "integrated_gradients:steps=16",
    "integrated_gradients:steps=64",
)
#: averages over noisy copies, of images and series: how many, and how noisy
_SMOOTHED = (
    "smoothgrad:samples=16,noise=0.1",
    "smoothgrad:samples=16,noise=0.2",
    "smoothgrad:samples=32,noise=0.1,times_input=true",
)
_OF_TEXTS = ("kernel_shap:samples=100", "kernel_shap:samples=400", "occlusion")
_OF_FRAMES = (
    "kernel_shap:samples=100",
    "kernel_shap:samples=400",
    "shapley_sampling:permutations=8",
    "occlusion",
)
_OF_COLUMNS = (
    "kernel_shap:segments=pixels,samples=100",
    "kernel_shap:segments=pixels,samples=400",
    "occlusion",
)
_OF_BLACK_BOXES = (
    "kernel_shap:samples=100",
    "kernel_shap:samples=400",
    "lime:samples=200,output=logit",
    "occlusion",
)


def list_candidates(inputs: Inputs) -> list[str]:
    """The names of explainers, with their options, that suit the inputs and explain the first of them.

    Args:
        inputs: with one data set and one model.
    """
    ((_, samples),) = inputs.samples.items()
    ((_, source),) = inputs.models.items()
    device = "cpu" if isinstance(source, LoadedModel) else "auto"
    model = source.model(samples, device)
    first = samples.find_first(model)
    rows = first.take(samples.inputs)
    return [
        name
        for name in _list_usual(samples, first.model)
        if _explains(inputs, name, first.model, rows)
    ]


def _list_usual(samples: Samples, model: Model) -> Sequence[str]:
    """Those that are usual for such samples and such a model."""
    if isinstance(samples.reader, FrameReader):
        if find_spec("shap") is None:
            return _OF_FRAMES
        return ("tree_shap", "tree_shap:background=reference", *_OF_FRAMES)
    if isinstance(samples.reader, TextReader):
        return (*_GRADIENTS, *_OF_TEXTS)
    is_table = samples.inputs.ndim == 2
    if not model.differentiable:
        return _OF_COLUMNS if is_table else _OF_BLACK_BOXES
    if is_table:
        return (*_GRADIENTS, *_OF_COLUMNS)
    has_convolutions = any(
        isinstance(layer, nn.Conv1d | nn.Conv2d) for layer in model.module.modules()
    )
    of_layers = ("gradcam", "lrp_epsilon_plus") if has_convolutions else ()
    return (*_GRADIENTS, *_SMOOTHED, *of_layers)


def _explains(inputs: Inputs, name: str, model: Model, rows: object) -> bool:
    """Whether an explainer explains some inputs."""
    try:
        explainer = inputs.fit_explainer(name)
        explainer(model, rows, progress=False)  # type: ignore[arg-type]
    except (StandfastError, ImportError):
        return False
    return get_explainer(name).control is False
