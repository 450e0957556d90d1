"""The type of numbers that a module takes, read from its parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

#: layers of torch whose weights meet no inputs: they are looked up by whole numbers
_LOOKED_UP = (nn.Embedding, nn.EmbeddingBag)


def find_input_types(module: nn.Module) -> tuple[torch.dtype, ...]:
    """The types of numbers that a module may take as inputs, the likeliest first.

    The likeliest is that of the first layer of torch that computes with numbers, such as a convolution. A parameter
    beside the layers, such as a temperature, or a table of embeddings says less. Complex weights meet complex numbers
    of their own precision, which a transform makes of real inputs. Whole numbers and flags, as of quantised weights,
    say nothing. Without parameters, buffers tell the type, or else it is torch's default.

    >>> find_input_types(nn.Sequential(nn.Embedding(2, 3).half(), nn.Linear(3, 3).double()))
    (torch.float64, torch.float16)
    >>> find_input_types(nn.Flatten())
    (torch.float32,)
    """
    parameters_of_layers: list[Tensor] = []
    for layer in _list_layers(module):
        parameters_of_layers += layer.parameters(recurse=False)
    of_layers = _list_types(parameters_of_layers)
    of_parameters = _list_types(module.parameters())
    types = [*of_layers, *of_parameters]
    if not types:
        types = [*_list_types(module.buffers()), torch.get_default_dtype()]
    # dicts keep their order, and the first is the likeliest
    return tuple(dict.fromkeys(types))


def _list_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of torch that compute with their weights."""
    layers = [
        part for part in module.modules() if type(part).__module__.startswith("torch.nn.modules.")
    ]
    return [layer for layer in layers if not isinstance(layer, _LOOKED_UP)]


def _list_types(tensors: Iterable[Tensor]) -> list[torch.dtype]:
    """The types of real numbers, and those of the parts of complex numbers."""
    kinds = [tensor.dtype for tensor in tensors]
    # of one byte: quantised
    real = [kind for kind in kinds if kind.is_floating_point and kind.itemsize > 1]
    return [*real, *(kind.to_real() for kind in kinds if kind.is_complex)]
