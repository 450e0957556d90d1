"""Deep Taylor decomposition: relevance propagation by the z+ rule, and by the z^B rule where the input comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ModelError, check
from holdfast.explainers.base import Explainer, compute_gradient, make_leaf, select_logits
from holdfast.explainers.propagation.backward_rules import preprocess_copy
from holdfast.explainers.propagation.taylor_rules import TaylorRule
from holdfast.model import Classifier


@dataclass(frozen=True)
class DeepTaylor(Explainer):
    """The target's logit, handed down from unit to unit in proportion to what speaks for each: relevance.

    Montavon, Lapuschkin, Binder, Samek and Müller, Explaining nonlinear classification decisions with deep Taylor
    decomposition, Pattern Recognition 65, 2017: each unit's relevance is expanded at a root point within the domain of
    its inputs, which gives one rule for each domain. Linear layers and convolutions whose inputs `a` are at least 0
    follow the z+ rule, the first ones, which see the input `l <= x <= h`, the z^B rule:

        R_i = sum over j of a_i w_ij+ R_j / (sum over i of a_i w_ij+),
        R_i = sum over j of q_ij R_j / (sum over i of q_ij), where q_ij = x_i w_ij - l_i w_ij+ - h_i w_ij-.

    Averages and sums share out in proportion to their terms, max-pooling to the winner, activations with `f(0) = 0`
    pass relevance on. By functions and not by layers, as `LRP`, of which these are other rules: functional calls,
    flattening, series and residual sums work, and layers that run twice. Inputs and attributions `(N, ...)`.

    Maps add up to the logit, and nowhere have the sign that the logit has not: the paper's are of scores above 0; a
    negative logit gives the same proportions with the sign reversed. Only a unit that nothing speaks for has nobody to
    hand its relevance to; then the sum falls short of the logit. Where the paper leaves it open:

    - Biases take no part. Those of at most 0, which the paper wants, leave no active rectifier without a product above
      0; others can.
    - Inputs of hidden layers may be negative, after a tanh, say: the z+ rule then takes all products above 0,
      `a_i+ w_ij+ + a_i- w_ij-`. Sums and averages share out by terms of the sum's sign.
    - Batch normalisation, and other scaling by constants, is one with the linear layer before it, whose weights count
      with the sign of the scale; what was shifted is a bias. Elsewhere a scaled value hands on all that it has.
    - With a preprocessing, relevance is that of the preprocessed input (which must keep its shape), and `l` and `h` are
      what it makes of the classifier's bounds.

    Costs one forward pass, and on the way back one more forward and backward through each linear layer, two for the
    first one and where inputs are negative: about twice the time of a gradient.

    Raises:
        ArgumentError: on a call, the classifier has infinite bounds.
        ModelError: on a call, the module uses a function without a rule (an attention, say), named in the message; or
            preprocess leads out of what it makes of the bounds.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> lower, upper = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2, bias=False)
    >>> module = torch.nn.Sequential(lower, torch.nn.ReLU(), upper)
    >>> classifier, x = Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> relevance, logits = DeepTaylor()(classifier, x), classifier.logits(x).amax(1)
    >>> torch.allclose(relevance.sum(1), logits, atol=1e-6), bool((relevance * logits[:, None] >= 0).all())
    (True, True)
    """

    name: ClassVar[str] = "deep_taylor"
    differentiable: ClassVar[bool] = False

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        lower, upper = (end.expand(x.shape[1:])[None] for end in classifier.bounds)
        finite = bool((torch.isfinite(lower) & torch.isfinite(upper)).all())
        check(finite, "bounds", "finite bounds of the classifier, which the rule for its inputs needs", "infinite ones")
        shown = preprocess_copy(self.name, classifier, x)
        if classifier.preprocess is not None:
            ends = [preprocess_copy(self.name, classifier, end) for end in (lower, upper)]
            lower, upper = torch.minimum(*ends), torch.maximum(*ends)
            slack = 1e-4 * (upper - lower)
            if bool(((shown < lower - slack) | (shown > upper + slack)).any()):
                raise ModelError(
                    f"{self.name}: expected preprocess to keep inputs between what it makes of the bounds (as a"
                    " normalisation does), got values outside"
                )
        with torch.enable_grad():
            leaf = make_leaf(shown, create_graph=False)
            inputs, rule = leaf.clone(), TaylorRule()  # a module that starts in place must not write into the leaf
            rule.begin(inputs, lower.expand_as(inputs), upper.expand_as(inputs))
            with rule:
                logits = classifier.module(inputs)
            scores = select_logits(logits, targets)
            return compute_gradient(scores * scores.detach(), leaf), logits.detach()
