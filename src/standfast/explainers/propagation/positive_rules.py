"""The rules of relevance for attention weights of Chefer, Gur and Wolf (CVPR 2021), as a mode.

Backward passes carry relevance `R`. With `q(z) = R / z`, and 0 where `z` is 0:

- linear layers and convolutions pass on by positive contributions alone, `p_ij = x_i+ w_ij+ + x_i- w_ij-` (Eq. 3):
  `R_i = sum_j p_ij q_j(sum_i p_ij)`;
- activations, normalisation, softmax, and shifts and scalings by constants pass relevance on unchanged;
- other linear functions of one value follow `R_i = x_i d/dx_i of sum_j z_j q_j(z_j)` (Eq. 2, without a stabiliser);
- functions of two values that depend on the input, `u` and `v`, give each of them the same, `R^u` and `R^v`, and then
  rescale these, since their sums differ from that of `R` (Eq. 8 to 10): `R^u |sum R^u| / (|sum R^u| + |sum R^v|) *
  sum R / sum R^u`. For a product, where both sums are that of `R`, this is one half. The sums are over one input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from standfast.errors import ModelError
from standfast.explainers.propagation.attention_rules import (
    NORMALISATIONS,
    PRODUCTS,
    RelevanceMode,
    adds_first,
    divide,
)
from standfast.explainers.propagation.relevance_rules import (
    AVERAGES,
    QUOTIENTS,
    WEIGHTED,
    read_weighted_call,
    replace_carriers,
)
from standfast.function_calls import split_names

_SUMS = split_names("add __add__ __radd__ sub __sub__ __rsub__ rsub")
_SCALINGS = QUOTIENTS | split_names("mul __mul__ __rmul__")
_PASSING = NORMALISATIONS | split_names("softmax batch_norm neg __neg__")


class PositiveRule(RelevanceMode):
    """Inside, modules run such that backward passes within `follow_rules()` carry this relevance.

    Args:
        explainer: its name, for messages.
        rows: the inputs of the batch, which are the first axis of what is summed.
    """

    def __init__(self, explainer: str, rows: int) -> None:
        super().__init__(explainer, attached=True)  # for the true gradients by the attention weights
        self.rows = rows

    def activate(self, name: str, function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        """Relevance passes unchanged."""
        return self._pass(function(z), z)

    def apply(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], carrying: list[Tensor]
    ) -> Any:
        """Call a function that has a rule."""
        alone = len(carrying) == 1
        if alone and name in WEIGHTED and kwargs.get("input", *args[:1]) is carrying[0]:
            return self._keep_positive(func, args, kwargs)
        by_constant = alone and (
            name in _SUMS or (name in _SCALINGS and (name not in QUOTIENTS or args[0] is carrying[0]))
        )
        if alone and (name in _PASSING or by_constant):
            return self._pass(func(*args, **kwargs), carrying[0])
        if name in AVERAGES or (name in PRODUCTS and not adds_first(name, args, carrying)):
            if len(carrying) > 2:
                return NotImplemented
            return self._share(func, args, kwargs, carrying)
        if name in _SUMS and len(carrying) == 2:
            return self._add(func, args, kwargs, carrying)
        return NotImplemented

    def _bind(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Callable[..., Tensor]:
        """The call as a function of the values that relevance can flow into."""

        def call(*values: Tensor) -> Tensor:
            rest = iter(values)
            new = replace_carriers([args, kwargs], lambda old: old if self.is_constant(old) else next(rest))
            return func(*new[0], **new[1])  # type: ignore[no-any-return]

        return call

    def _pass(self, out: Tensor, source: Tensor) -> Tensor:
        """Each value of the result has one source, which gets its relevance."""
        return self.route(out, source.expand(out.shape))

    def _share(
        self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], carrying: list[Tensor]
    ) -> Tensor:
        """In proportion to the contributions; half of that to each of two factors."""
        call = self._bind(func, args, kwargs)

        def rule(relevance: Tensor, *sources: Tensor) -> list[Tensor]:
            shares = pull(call, sources, lambda out: divide(relevance, out))
            return [source * share / len(sources) for source, share in zip(sources, shares, strict=True)]

        return self.divide(func(*args, **kwargs), rule, *carrying)

    def _add(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], carrying: list[Tensor]) -> Tensor:
        for value in carrying:
            if len(value) != self.rows:
                raise ModelError(
                    f"{self.explainer}: expected sums of values with a row for each input as first axis, got shape"
                    f" {tuple(value.shape)} for {self.rows} inputs"
                )

        call = self._bind(func, args, kwargs)

        def rule(relevance: Tensor, *sources: Tensor) -> list[Tensor]:
            shares = pull(call, sources, lambda out: divide(relevance, out))
            parts = [source * share for source, share in zip(sources, shares, strict=True)]
            sums = [_sum_rows(part) for part in parts]
            whole = divide(_sum_rows(relevance), sums[0].abs() + sums[1].abs())
            return [part * _align(whole * own.sign(), part) for part, own in zip(parts, sums, strict=True)]

        return self.divide(func(*args, **kwargs), rule, *carrying)

    def _keep_positive(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """In proportion to positive contributions."""
        layer = read_weighted_call("linear", func, args, kwargs)
        above, below = layer.weight.clamp(min=0), layer.weight.clamp(max=0)

        def call(up: Tensor, down: Tensor) -> Tensor:
            return layer.call(up, above, None) + layer.call(down, below, None)

        def rule(relevance: Tensor, x: Tensor) -> list[Tensor]:
            parts = x.clamp(min=0), x.clamp(max=0)
            shares = pull(call, parts, lambda out: divide(relevance, out))
            return [parts[0] * shares[0] + parts[1] * shares[1]]

        return self.divide(func(*args, **kwargs), rule, layer.source)


def pull(
    call: Callable[..., Tensor], sources: Sequence[Tensor], weigh: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    """The gradients of `sum_j z_j s_j` by each source, with `z = call(*sources)` and the constants `s = weigh(z)`.

    They are differentiable in the sources if gradients are enabled.
    """
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        values = [
            source.view_as(source) if twice and source.requires_grad else source.detach().requires_grad_(True)
            for source in sources
        ]
        out = call(*values)
        with torch.set_grad_enabled(twice):
            weights = weigh(out)
        return torch.autograd.grad(out, values, weights, create_graph=twice)


def _sum_rows(values: Tensor) -> Tensor:
    return values.flatten(1).sum(1)


def _align(rows: Tensor, values: Tensor) -> Tensor:
    return rows.reshape(-1, *[1] * (values.ndim - 1))
