"""Deep Taylor decomposition: relevance propagation by the z+ rule, and by the z^B rule in the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from standfast.explainers.propagation.backward_rules import RelevanceExplainer
from standfast.explainers.propagation.taylor_rules import TaylorRule


@dataclass(frozen=True)
class DeepTaylor(RelevanceExplainer):
    """The relevance of the target's logit, passed back from unit to unit in proportion to their positive contributions.

    Montavon, Lapuschkin, Binder, Samek and Müller, Explaining nonlinear classification decisions with deep Taylor
    decomposition, Pattern Recognition 65, 2017. The relevance of each unit is expanded at a root point within the
    domain of its inputs; this gives one rule for each domain. Linear layers and convolutions with inputs `a` of at
    least 0 follow the z+ rule. The first ones, whose input is `l <= x <= h`, follow the z^B rule:

        R_i = sum over j of a_i w_ij+ R_j / (sum over i of a_i w_ij+),
        R_i = sum over j of q_ij R_j / (sum over i of q_ij), where q_ij = x_i w_ij - l_i w_ij+ - h_i w_ij-.

    Averages and sums distribute relevance in proportion to their terms. Max-pooling passes it to the largest value.
    Activations with `f(0) = 0`, and softplus, pass it on. The rules are for functions and not for layers, as in `LRP`.
    So functional calls, flattening, series, residual sums and layers that run twice work. Inputs and attributions
    `(N, ...)`.

    The paper treats scores above 0. A negative logit gives the same proportions with the opposite sign. So all values
    of a map have the sign of the logit, or are 0. They add up to the logit, with one exception: a unit without positive
    contributions cannot pass its relevance on, and the sum misses it. Where the paper leaves something open:

    - Biases get no relevance. With biases of at most 0, as the paper requires, each active rectifier has a positive
      contribution; with other biases it may have none.
    - Inputs of hidden layers may be negative, for example after a tanh. The z+ rule then takes all positive products,
      `a_i+ w_ij+ + a_i- w_ij-`. Sums and averages distribute to the terms that have the sign of the sum.
    - Batch normalisation, and other scaling by constants, is merged into the linear layer before it: its weights take
      the sign of the scale, and a shift is a bias. Without such a layer before it, a scaled value passes on all of its
      relevance.
    - With a preprocessing, relevance is that of the preprocessed input, which must keep its shape. `l` and `h` are the
      preprocessed bounds.

    Cost: one forward pass, and in the backward pass another forward and backward pass of each linear layer (two for the
    first layer and for negative inputs). That is about twice the time of a gradient.

    Raises:
        ArgumentError: on a call, the model has infinite bounds.
        ModelError: on a call, the module uses a function without a rule (such as an attention), which is named; or the
            preprocessed input lies outside of the preprocessed bounds.

    >>> import torch
    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> lower, upper = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2, bias=False)
    >>> module = torch.nn.Sequential(lower, torch.nn.ReLU(), upper)
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> relevance, logits = DeepTaylor()(model, x), model.logits(x).amax(1)
    >>> torch.allclose(relevance.sum(1), logits, atol=1e-6), bool((relevance * logits[:, None] >= 0).all())
    (True, True)
    """

    name: ClassVar[str] = "deep_taylor"

    @property
    def needs_bounds(self) -> bool:
        return True

    def make_rule(self, inputs: Tensor, low: Tensor, high: Tensor) -> TaylorRule:
        return TaylorRule(inputs, low, high)
