"""Layers with a part of their weights masked: a different mask for every row of a batch, without a second model.

Masking an output channel of a convolution is the same as replacing that channel of its output by the bias. Masking an
input feature of a linear layer is the same as multiplying that input by zero. So one hook on the layer evaluates as
many masked models as there are rows in the batch. For everything that only runs the module forward and backward (a
prediction, a gradient) this is exact. An explainer that reads the weights needs weights that really are zero:
`masked_weights`.

The two agree up to rounding, except for a layer whose weight is used outside of its own call (as in attention), or
whose first axis is not the batch. `find_gateable` tells for which layers they agree.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, UnknownNameError, check
from standfast.function_calls import run_eagerly
from standfast.model import ROW_ALIGNMENT, Model, module_name
from standfast.tensors import send

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED)

#: of each module and layer, for each shape of inputs: whether gates do what masked weights do
_GATEABLE: WeakKeyDictionary[
    nn.Module, WeakKeyDictionary[nn.Module, dict[tuple[int, ...], bool]]
] = WeakKeyDictionary()
_OWNERS: ContextVar[Tensor | None] = ContextVar("owners", default=None)


def weight_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Convolutions (also transposed ones) and linear layers by name, in the order of `named_modules`.

    >>> list(weight_layers(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))))
    ['0', '3']
    """
    return {
        name or "module": layer
        for name, layer in module.named_modules()
        if isinstance(layer, (*CONVOLUTIONS, nn.Linear))
    }


def group_count(layer: nn.Module) -> int:
    """Groups of weights that are masked together: output channels of a convolution, inputs of a linear layer."""
    if isinstance(layer, CONVOLUTIONS):
        return int(layer.out_channels)
    return int(layer.in_features)  # type: ignore[arg-type]


def select_layers(module: nn.Module, wanted: str | tuple[str, ...]) -> dict[str, nn.Module]:
    """The layers that `wanted` means, by name, in the module's order (or in the order of the names).

    >>> list(select_layers(nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(8, 2)), "conv"))
    ['0']
    >>> list(select_layers(nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 2)), "first"))
    ['1']

    Raises:
        ArgumentError: the module has no layer of that kind or name.
    """
    layers = weight_layers(module)
    # a layer may have the name "first", and is meant then
    if wanted == "first" and "first" not in layers:
        usable = _select_kind(module, layers, wanted)
        first_name = next(iter(usable))
        return {first_name: usable[first_name]}
    if isinstance(wanted, str) and wanted in ("all", "conv"):
        return _select_kind(module, layers, wanted)
    if isinstance(wanted, str):
        return _select_names(layers, (wanted,), [*layers, "all", "conv", "first"])
    return _select_names(layers, wanted, list(layers))


def _select_kind(
    module: nn.Module, layers: Mapping[str, nn.Module], wanted: str
) -> dict[str, nn.Module]:
    """The layers of a kind with at least two channels, by name: convolutions, or linear ones as well."""
    kinds: tuple[type[nn.Module], ...] = CONVOLUTIONS
    if wanted != "conv":
        kinds = (*CONVOLUTIONS, nn.Linear)
    usable: dict[str, nn.Module] = {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, kinds) and group_count(layer) > 1
    }
    if not usable:
        what = "a convolution" if wanted == "conv" else "a convolution or a linear layer"
        expected = f"{wanted!r} only for a module with {what} of at least two channels"
        existing = ", ".join(
            f"{name} ({type(layer).__name__}, {group_count(layer)})"
            for name, layer in layers.items()
        )
        existing = existing or "neither convolutions nor linear layers"
        got = f"{wanted!r} for a {module_name(module)} with {existing}"
        raise ArgumentError("layers", expected, got)
    return usable


def _select_names(
    layers: Mapping[str, nn.Module], names: Sequence[str], choices: Sequence[str]
) -> dict[str, nn.Module]:
    """The layers of these names, which all have at least two channels."""
    for name in names:
        if name not in layers:
            raise UnknownNameError("layers", name, choices)
        channels = group_count(layers[name])
        got = f"{name!r}, which has {channels}"
        check(channels > 1, "layers", "layers of at least two channels", got)
    return {name: layers[name] for name in names}


def masked_weight(layer: nn.Module, mask: Tensor) -> Tensor:
    """The layer's weight with the groups that `mask` `(m,)` drops set to zero.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 5.0]]))
    >>> masked_weight(layer, torch.tensor([True, False]))
    tensor([[3., 0.]])
    """
    weight = layer.weight
    assert isinstance(weight, Tensor)
    keep = mask.to(weight.device)
    if isinstance(layer, _TRANSPOSED):  # (in, out / groups, ...), the inputs ordered by group
        per_group = weight.shape[0] // layer.groups
        keep = keep.reshape(layer.groups, -1).repeat_interleave(per_group, 0)
    elif isinstance(layer, CONVOLUTIONS):
        keep = keep[:, None]
    if isinstance(layer, CONVOLUTIONS):
        further_axes = weight.ndim - 2
        keep = keep.reshape(*keep.shape, *[1] * further_axes)
    return torch.where(keep, weight.detach(), 0.0)


@contextlib.contextmanager
def masked_weights(layer: nn.Module) -> Iterator[Callable[[Tensor], None]]:
    """Inside, the function that this yields masks the layer's weight; afterwards the weight has its values again.

    The parameter stays the same object, so layers that share it are masked with it. Only its values are replaced, and
    they are restored even after an exception.

    Raises:
        ArgumentError: the weight is not stored, but computed at every call (as by weight normalisation).

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> before = layer.weight.clone()
    >>> with masked_weights(layer) as use:
    ...     use(torch.tensor([False, False]))
    ...     layer(torch.ones(1, 2))
    tensor([[0.]], grad_fn=<MmBackward0>)
    >>> bool((layer.weight == before).all())
    True
    """
    # what is computed at every call, as by weight normalisation, would replace the masked values again
    if not isinstance(layer._parameters.get("weight"), nn.Parameter):
        expected = "a layer that stores its weight as a parameter (a layer that computes it can only be gated)"
        raise ArgumentError("layer", expected, type(layer).__name__)
    parameter = layer._parameters["weight"]
    assert parameter is not None
    original = parameter.data

    def use(mask: Tensor) -> None:
        # from the original values, not from those of the mask before
        parameter.data = original
        parameter.data = masked_weight(layer, mask)

    try:
        with run_eagerly():
            yield use
    finally:
        try:
            parameter.data = original
        finally:  # also after a Ctrl-C in the line above
            parameter.data = original


@contextlib.contextmanager
def rows_of(owners: Tensor) -> Iterator[None]:
    """Inside, row i of a batch that the module forwards belongs to row `owners[i]` of the chunk that is explained.

    For explainers that forward other rows than those of the chunk: points on a path, noisy copies.
    """
    token = _OWNERS.set(owners)
    try:
        yield
    finally:
        _OWNERS.reset(token)


@contextlib.contextmanager
def gate(layer: nn.Module, masks: Tensor) -> Iterator[None]:
    """Inside, the layer processes row i of every batch as if it had only the weights that `masks[i]` keeps.

    Args:
        layer: one of `weight_layers`, whose first axis is the batch (see `find_gateable`).
        masks: bool `(N, m)`, m groups of weights; True is kept. The module must forward N rows, or other rows within
            `rows_of`, which says to which of the N they belong.

    Raises:
        ArgumentError: masks that do not fit the layer.
        ModelError: in the forward pass, for another number of rows.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 5.0]]))
    >>> with gate(layer, torch.tensor([[True, False], [False, True]])):
    ...     layer(torch.ones(2, 2)).detach()
    tensor([[3.],
            [5.]])
    """
    groups = group_count(layer)
    has_shape = masks.ndim == 2 and masks.shape[1] == groups
    fits = has_shape and masks.dtype == torch.bool
    check(
        fits,
        "masks",
        f"bool of shape (N, {groups})",
        f"{masks.dtype} of shape {tuple(masks.shape)}",
    )

    def keep(like: Tensor, axis: int) -> Tensor:
        owners = _OWNERS.get()
        # by default row i of the batch is row i of the chunk
        rows = masks if owners is None else masks[owners]
        has_channels = like.ndim >= 2 and like.shape[axis] == groups
        if like.shape[0] != len(rows) or not has_channels:
            raise ModelError(
                f"gating: expected {len(rows)} rows with {groups} channels at the masked {type(layer).__name__}, got"
                f" shape {tuple(like.shape)}; an explainer that forwards rows of its own must name their owners"
                " (standfast.gating.rows_of)"
            )
        shape = [len(rows)] + [1] * (like.ndim - 1)
        shape[axis] = groups
        return rows.reshape(shape)

    def after(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor:
        rest = torch.zeros((), dtype=out.dtype, device=out.device)
        if isinstance(layer.bias, Tensor):
            further_axes = out.ndim - 2
            rest = layer.bias.reshape(-1, *[1] * further_axes)
        return torch.where(keep(out, 1), out, rest)

    def before(_layer: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        x = args[0] if args else kwargs["input"]
        zero = torch.zeros((), dtype=x.dtype, device=x.device)
        x = torch.where(keep(x, x.ndim - 1), x, zero)
        if args:
            return ((x, *args[1:]), kwargs)
        return (args, {**kwargs, "input": x})

    handle = None
    eager = contextlib.ExitStack()
    try:
        eager.enter_context(run_eagerly())
        # before other hooks, so that they see the output of masked weights
        if isinstance(layer, CONVOLUTIONS):
            handle = layer.register_forward_hook(after, prepend=True)
        else:
            handle = layer.register_forward_pre_hook(before, with_kwargs=True)
        yield
    finally:
        eager.close()
        if handle is not None:
            handle.remove()


@torch.no_grad()
def find_gateable(model: Model, like: Tensor, layers: Mapping[str, nn.Module]) -> set[str]:
    """Names of the layers for which `gate` does what `masked_weights` does. For use inside `model.session()`.

    This is tried on random inputs of the shape of `like` `(N, ...)`: whether the layer is called with a row for each
    input, and whether the logits under two masks are those of masked weights. It takes six forwarded rows for each
    layer, once for each module and shape: what is found is remembered as long as the module lives.
    """
    shape = tuple(like.shape[1:])
    # weakly, so that a module that nobody needs any more can go
    known_layers = _GATEABLE.setdefault(model.module, WeakKeyDictionary())
    new = {
        name: layer for name, layer in layers.items() if shape not in known_layers.get(layer, {})
    }
    if new:
        # the same for every call, so that it is decided in the same way each time
        x = _random_inputs(model, like)
        pair = x[:2]
        reference = model.forward(pair.clone())
        # with two numbers of rows, because one that is a constant of the layer could equal the first by chance
        shapes = [_row_counts(model, rows, new) for rows in (x, torch.cat([x, x]))]
        for name, layer in new.items():
            few, many = (row_counts[name] for row_counts in shapes)
            called = (
                len(few) == len(many) > 0 and set(few) == {len(x)} and set(many) == {2 * len(x)}
            )
            agrees = called and _agrees(model, pair, layer, reference)
            known_layers.setdefault(layer, {})[shape] = agrees
    return {name for name, layer in layers.items() if known_layers[layer][shape]}


def _random_inputs(model: Model, like: Tensor) -> Tensor:
    # bounds may be infinite
    lower, upper = (b.clamp(-1e3, 1e3) for b in model.bounds)
    generator = torch.Generator().manual_seed(0)
    shape = (ROW_ALIGNMENT, *like.shape[1:])
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return lower + (upper - lower) * uniform.to(like.device, like.dtype)


def _row_counts(model: Model, x: Tensor, layers: Mapping[str, nn.Module]) -> dict[str, list[int]]:
    """The length of the first axis of each layer's output, at each of its calls."""
    rows_of_layer: dict[str, list[int]] = {name: [] for name in layers}
    handles = []

    def watch(name: str) -> None:
        def note(_layer: nn.Module, _args: Any, out: Tensor) -> None:
            if out.ndim >= 2:
                row_count = out.shape[0]
            else:
                row_count = -1
            rows_of_layer[name].append(row_count)

        handles.append(layers[name].register_forward_hook(note))

    try:
        for name in layers:
            watch(name)
        with run_eagerly():
            model.forward(x.clone())
    finally:
        for handle in handles:
            handle.remove()
    return rows_of_layer


def _agrees(model: Model, x: Tensor, layer: nn.Module, reference: Tensor) -> bool:
    generator = torch.Generator().manual_seed(1)
    uniform = torch.rand((len(x), group_count(layer)), generator=generator)
    masks = send(uniform < 0.5, x.device)
    try:
        with gate(layer, masks):
            expected = model.forward(x.clone())
    except ModelError:
        return False
    if not isinstance(layer._parameters.get("weight"), nn.Parameter):
        return True  # a weight that is computed at every call cannot be masked for comparison
    # the two agree up to rounding, so half of the digits are asked for
    largest = reference.abs().amax().clamp(min=1e-30)
    close = 4 * torch.finfo(model.precision).eps ** 0.5 * largest
    with masked_weights(layer) as use:
        # the first and the last row have different masks, so one mask for all rows is noticed
        for row in (0, len(x) - 1):
            use(masks[row])
            difference = model.forward(x.clone())[row] - expected[row]
            if not bool((difference.abs() <= close).all()):
                return False
    return True
