"""The backward rules of DeepLift, as modes that replace the backward pass of the functions that the module calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from standfast.errors import ModelError
from standfast.function_calls import (
    FunctionMode,
    find_tensors,
    is_decomposed,
    remember_autocast,
    split_names,
)

_RECTIFIERS = frozenset({"relu", "relu_"})
# elementwise functions: each output depends on one input
_ELEMENTWISE = _RECTIFIERS | split_names(
    "elu elu_ leaky_relu leaky_relu_ gelu silu mish selu celu softplus sigmoid sigmoid_ tanh tanh_ hardtanh"
    " relu6 hardsigmoid hardswish log_sigmoid"
)
# piecewise linear functions, and those of them that `smooth_relu` replaces by smooth ones
_PIECEWISE_LINEAR = _RECTIFIERS | split_names("leaky_relu leaky_relu_ hardtanh relu6 hardsigmoid")
_REPLACED = _RECTIFIERS | split_names("relu6 hardtanh")
MAX_POOLS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "max_pool1d": F.max_pool1d_with_indices,
    "max_pool2d": F.max_pool2d_with_indices,
    "max_pool3d": F.max_pool3d_with_indices,
    "adaptive_max_pool1d": F.adaptive_max_pool1d_with_indices,
    "adaptive_max_pool2d": F.adaptive_max_pool2d_with_indices,
    "adaptive_max_pool3d": F.adaptive_max_pool3d_with_indices,
}


class RuledMode(FunctionMode):
    """A mode whose backward passes follow rules while `follows_rules`, and else are true gradients."""

    follows_rules = False

    @contextlib.contextmanager
    def follow_rules(self) -> Iterator[None]:
        """Let backward passes inside follow the rules."""
        self.follows_rules = True
        try:
            yield
        finally:
            self.follows_rules = False

    def divide(self, out: Tensor, rule: Rule, *sources: Tensor, unsaved: int = 0) -> Tensor:
        """The values of `out`; backward passes by the rules go to the sources, and true gradients through `out`.

        Args:
            out: a result.
            rule: see `Rule`.
            sources: where the gradient goes.
            unsaved: the first of them, which the rule does not get. Saved ones must not be overwritten by the module.
        """
        return _Ruled.apply(out, self, rule, unsaved, *sources)  # type: ignore[no-untyped-call,no-any-return]


#: from the gradient by a result and its saved sources to the gradient by each source, in operations with derivatives
Rule = Callable[..., Sequence[Tensor | None]]


class _Ruled(Function):
    """Returns `out`; the backward pass is that of `RuledMode.divide`."""

    @staticmethod
    def forward(
        ctx: Any, out: Tensor, mode: RuledMode, rule: Rule, unsaved: int, *sources: Tensor
    ) -> Tensor:
        ctx.mode, ctx.rule, ctx.count, ctx.autocast = (
            mode,
            rule,
            len(sources),
            remember_autocast(out),
        )
        ctx.save_for_backward(*sources[unsaved:])
        ctx.set_materialize_grads(False)
        return out.clone()  # the module may overwrite it

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        # true gradients go on through `out`, and not to the sources
        if g is None or not ctx.mode.follows_rules:
            return g, None, None, None, *[None] * ctx.count
        with ctx.autocast():
            return None, None, None, None, *ctx.rule(g, *ctx.saved_tensors)


def _propagate_pool(
    g: Tensor,
    change: Tensor,
    out: Tensor,
    out_b: Tensor,
    places: Tensor,
    places_b: Tensor,
    epsilon: float,
) -> Tensor:
    """What the rule for max-pooling passes back, given the gradient `g` by the output.

    It distributes the change of each maximum, divided by the changes of its inputs. The part above the baseline's
    maximum goes to the position of the input's maximum, the rest to the position of the baseline's maximum.
    """

    def scatter_to(values: Tensor, where: Tensor) -> Tensor:
        positions = change[0, 0].numel()
        flat = values.new_zeros((*change.shape[:2], positions))
        return flat.scatter_add(2, where.expand_as(values).flatten(2), values.flatten(2)).view_as(
            change
        )

    top = torch.maximum(out, out_b)
    unchanged = change.abs() <= epsilon
    of_input = scatter_to(g * (top - out_b), places)
    of_baseline = scatter_to(g * (out - top), places_b)
    shared = of_input + of_baseline
    if change.requires_grad:  # the unused branch of `where` still needs a finite gradient
        change = torch.where(unchanged, 1.0, change)
    return torch.where(unchanged, scatter_to(g, places), shared / change)


def compute_slope(change: Tensor, difference: Tensor, local: Tensor, epsilon: float) -> Tensor:
    """`difference / change`, and the derivative `local` where the change is at most `epsilon` (0 in float16)."""
    return torch.where(change.abs() <= epsilon, local, difference / change)


def trace_slope(
    slope: Tensor,
    change: Tensor,
    difference: Tensor,
    near: Tensor,
    beside: Callable[[], Tensor] | None,
) -> Tensor:
    """Exactly the values of `slope`, with the derivative of `difference / change`.

    For a small change, rounding of the order eps / change^2 dominates the derivative of the slope. But the slope is
    also the mean of f' between z_b and z. So its derivative is the mean of t f''(z_b + t change) over t in [0, 1],
    which a single point at t = 2/3 gives to the second order.

    Args:
        slope, change, difference: the slope between z_b and z, `z - z_b` and `f(z) - f(z_b)`.
        near: where the change is small.
        beside: gives f' at `z_b + 2/3 change`; None for a piecewise linear function, whose slope is constant there.
    """
    # 0.75 times 2/3 is 1/2, the mean of t over [0, 1]
    nearby = slope if beside is None else 0.75 * beside()
    traced = torch.where(near, nearby, difference / torch.where(near, 1.0, change))
    return slope + (traced - traced.detach())


class DifferenceRule(RuledMode):
    """DeepLift's Rescale rule: in the backward pass, slopes between the baseline's and the input's activations.

    First enter it around a forward pass of equal rows of the baseline, of which the first `rows` are kept: this stores
    the input and output of every activation. Then use `replay()` around the forward pass of the inputs.

    With `attached=True` the slopes stay in the graph of the inputs. Backward passes inside of `follow_rules()` use the
    slopes, others the true derivatives. So a result that was passed back by slopes can itself be differentiated.
    """

    def __init__(self, epsilon: float, rows: int = 1) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.rows = rows
        self._units: list[tuple[str, Tensor, Any]] = []
        self._next: int | None = None
        self._attached = self._smooth = False

    @contextlib.contextmanager
    def replay(self, attached: bool = False) -> Iterator[None]:
        """Compare activations with the stored ones, in the same order."""
        self._next = 0
        self._attached = attached
        self.follows_rules = not attached
        self._smooth = bool(torch.relu(torch.zeros(1)) > 0)  # inside of `smooth_relu`
        with self:
            yield

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        if is_decomposed(name, func):
            raise ModelError(
                f"{self.who}: expected a program exported without run_decompositions, got one with {name!r}"
            )
        if name not in _ELEMENTWISE and name not in MAX_POOLS:
            return func(*args, **kwargs)
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = take_inplace_flag(name, args, kwargs)
        if name in MAX_POOLS:
            kwargs.pop("return_indices", None)
            pool = MAX_POOLS[name]
            result = self._pool(name, z, lambda z: pool(z, *args, **kwargs))
        else:
            source = z.clone() if in_place else z
            result = self._activate(name, source, lambda z: func(z, *args, **kwargs))
        if in_place:
            return z.copy_(result)
        return result

    def _recall_unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
        """The stored input and output of the baseline, for the activation that runs now."""
        assert self._next is not None
        is_recorded = self._next < len(self._units)
        before, z_b, out_b = "nothing", z, z
        if is_recorded:
            before, z_b, out_b = self._units[self._next]
        if before != name or z_b.shape[1:] != z.shape[1:]:
            raise ModelError(
                f"deeplift: expected the module to run the same activations for inputs and baseline, got"
                f" {name} of {tuple(z.shape[1:])} for {before} of {tuple(z_b.shape[1:])}"
            )
        self._next += 1
        return z_b, out_b

    def _record_unit(self, name: str, z: Tensor, *found: Tensor) -> Tensor:
        """Keep the rows of the baseline; returns the output, which is the first of what was found."""
        kept = tuple(values[: self.rows].clone() for values in found)
        values = z.detach()[: self.rows].clone()
        kept_values = kept if len(kept) > 1 else kept[0]
        self._units.append((name, values, kept_values))
        return found[0]

    def _is_attached(self, z: Tensor) -> bool:
        return self._attached and self._next is not None and z.requires_grad

    def _activate(self, name: str, z: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        attached = self._is_attached(z)
        with torch.set_grad_enabled(attached):
            out = function(z.clone())
        if self._next is None:
            return self._record_unit(name, z, out)
        z_b, out_b = self._recall_unit(name, z)
        rectifies = name in _RECTIFIERS and not self._smooth
        with torch.no_grad():
            # the derivative of a rectifier, which torch takes as 0 at 0
            if rectifies:
                local = (z > 0).to(z.dtype)
            else:
                local = differentiate(function, z.detach())
        if not attached:
            return self._apply_slope(z, out, local, z_b, out_b)
        change = z - z_b
        with torch.no_grad():
            slope = compute_slope(change, out - out_b, local, self.epsilon)
        linear = name in _PIECEWISE_LINEAR and not (self._smooth and name in _REPLACED)
        # there the rounding, eps / change^2, is about as large as the error of the expansion, change^2
        smallest = self.epsilon if linear else torch.finfo(z.dtype).eps ** 0.25
        near = change.abs() <= smallest

        def differentiate_beside() -> Tensor:
            return differentiate(function, z_b + change * (2 / 3), create_graph=True)

        beside = None if linear else differentiate_beside
        traced = trace_slope(slope, change, out - out_b, near, beside)
        return self._rule(z, out, torch.mul, traced)

    def _pool(
        self, name: str, z: Tensor, function: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> Tensor:
        attached = self._is_attached(z)
        with torch.set_grad_enabled(attached):
            out, switches = function(z)
        if self._next is None:
            return self._record_unit(name, z, out, switches)
        z_b, (out_b, places_b) = self._recall_unit(name, z)
        return self._apply_pool(z, z_b, (out, out_b, switches, places_b))

    def _apply_slope(
        self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor
    ) -> Tensor:
        with torch.no_grad():
            slope = compute_slope(z - z_b, out - out_b, local, self.epsilon)
        return self._rule(z, out, torch.mul, slope)

    def _apply_pool(self, z: Tensor, z_b: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        followed = z if self._is_attached(z) else z.detach()
        change = followed - z_b
        return self._rule(
            z, pooled[0], partial(_propagate_pool, epsilon=self.epsilon), change, *pooled
        )

    def _rule(
        self, z: Tensor, out: Tensor, propagate: Callable[..., Tensor], *saved: Tensor
    ) -> Tensor:
        """The output, whose backward pass gives `z` what `propagate(gradient, *saved)` returns."""

        def rule(g: Tensor, *saved: Tensor) -> list[Tensor | None]:
            return [propagate(g, *saved), *[None] * len(saved)]

        return self.divide(out, rule, z, *saved, unsaved=1)


class PairedRule(DifferenceRule):
    """The same rule for many references: inputs are forwarded once, and each backward pass may use other references.

    First enter it around `rows` references, then use `replay()` around the inputs. Before a backward pass, set
    `which`: the number of the reference of each row of the inputs, int64 `(rows of inputs,)`.
    """

    which: Tensor

    def _recall_unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
        z_b, out_b = super()._recall_unit(name, z)
        if len(z) != len(self.which) or len(z_b) != self.rows:
            raise ModelError(
                f"deep_shap: expected activations with a row for each input as first axis, got {name} of"
                f" {tuple(z.shape)} for {len(self.which)} inputs"
            )
        return z_b, out_b

    def _apply_slope(
        self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor
    ) -> Tensor:
        # a copy, since the module may overwrite the input
        return self._rule(
            z, out, self._propagate_paired_slope, z.detach().clone(), out, local, z_b, out_b
        )

    def _apply_pool(self, z: Tensor, z_b: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        return self._rule(
            z, pooled[0], self._propagate_paired_pool, z.detach().clone(), z_b, *pooled
        )

    def _propagate_paired_slope(
        self, g: Tensor, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor
    ) -> Tensor:
        z_b, out_b = (part.index_select(0, self.which) for part in (z_b, out_b))
        return g * compute_slope(z - z_b, out - out_b, local, self.epsilon)

    def _propagate_paired_pool(
        self,
        g: Tensor,
        z: Tensor,
        z_b: Tensor,
        out: Tensor,
        out_b: Tensor,
        places: Tensor,
        places_b: Tensor,
    ) -> Tensor:
        z_b, out_b, places_b = (part.index_select(0, self.which) for part in (z_b, out_b, places_b))
        return _propagate_pool(g, z - z_b, out, out_b, places, places_b, self.epsilon)


def differentiate(
    function: Callable[[Tensor], Tensor], z: Tensor, create_graph: bool = False
) -> Tensor:
    with torch.enable_grad():
        leaf = z if create_graph else z.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(
            function(leaf.clone()).sum(), leaf, create_graph=create_graph
        )
    return slope


def take_inplace_flag(name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes into its first argument, which is not in `args`; removes the flag from the arguments."""
    if kwargs.pop("inplace", False):
        return True
    if name == "relu" and args and args[0]:
        args.clear()
        return True
    return name.endswith("_") and not name.startswith("__")


def find_carriers(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among `values`, also within lists, that require a gradient: relevance can flow back through them."""
    return [value for value in find_tensors(values) if value.requires_grad]
