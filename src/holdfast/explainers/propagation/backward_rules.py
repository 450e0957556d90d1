"""Explainers with backward rules of their own: guided backpropagation, deconvolution, DeepLift, epsilon-LRP.

The rules replace the backward pass of the functions that the module calls (`TorchFunctionMode`), not hooks or
attributes of its layers. So functional calls, layers used twice and in-place layers all work, and nothing has
to be undone on the user's module. Their backward passes are no gradients; so none of them is differentiable in the
input but DeepLift, whose slopes can be followed back to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

from holdfast.errors import ModelError, check
from holdfast.explainers.base import (
    Baseline,
    Explainer,
    check_baseline,
    compute_gradient,
    compute_input_gradient,
    make_baseline,
    make_leaf,
    select_logits,
)
from holdfast.explainers.completeness import warn_of_gap
from holdfast.explainers.gradients.surrogates import ReluReplacement
from holdfast.explainers.propagation.difference_rules import DifferenceRule
from holdfast.explainers.propagation.relevance_rules import EpsilonRule
from holdfast.model import ROW_ALIGNMENT, Classifier


class _GuidedRelu(Function):
    """ReLU that sends back only positive gradients, and those only where it was active."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z > 0)
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (active,) = ctx.saved_tensors
        return gradients[0].clamp(min=0) * active  # type: ignore[no-any-return]


class _DeconvolutionRelu(Function):
    """ReLU that sends back only positive gradients, wherever it was active."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clamp(min=0)


@dataclass(frozen=True)
class _RectifiedGradient(Explainer):
    """The gradient with another backward rule at every ReLU."""

    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True
    rectifier: ClassVar[type[Function]]

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with ReluReplacement(self.rectifier.apply):
            return compute_input_gradient(classifier, x, targets, create_graph=False)


@dataclass(frozen=True)
class GuidedBackprop(_RectifiedGradient):
    """The gradient, but every ReLU sends back `max(g, 0) * 1[z > 0]` instead of `g * 1[z > 0]`.

    Springenberg, Dosovitskiy, Brox and Riedmiller, Striving for simplicity: the all convolutional net, ICLR
    workshop 2015. Inputs and attributions `(N, ...)`; one forward and one backward pass for each input.
    Equals Captum's, and reaches functional ReLUs as well. A module without ReLU gives the plain gradient.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> GuidedBackprop()(Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)).shape
    torch.Size([3, 4])
    """

    name: ClassVar[str] = "guided_backprop"
    rectifier: ClassVar[type[Function]] = _GuidedRelu


@dataclass(frozen=True)
class Deconvolution(_RectifiedGradient):
    """The gradient, but every ReLU sends back `max(g, 0)` instead of `g * 1[z > 0]`.

    Zeiler and Fergus, Visualizing and understanding convolutional networks, ECCV 2014. Inputs and
    attributions `(N, ...)`; one forward and one backward pass for each input. Equals Captum's, and reaches
    functional ReLUs.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> Deconvolution()(Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)).shape
    torch.Size([3, 4])
    """

    name: ClassVar[str] = "deconvolution"
    rectifier: ClassVar[type[Function]] = _DeconvolutionRelu


@dataclass(frozen=True)
class DeepLift(Explainer):
    """`(x - b) * m`: the gradient, with slopes from the baseline: `(f(z) - f(z_b)) / (z - z_b)` for `f'(z)`.

    Shrikumar, Greenside and Kundaje, Learning important features through propagating activation differences, ICML
    2017: the Rescale rule, for elementwise activations and max-pooling; everything else passes back its gradient.
    Attributions add up to `f_t(x) - f_t(b)` for networks of linear layers, such activations and max-pooling. Inputs and
    attributions `(N, ...)`.

    Elsewhere they are an approximation. An LSTM or GRU is one function, whose gates are not seen from outside; of an
    attention, the softmax and the products of queries with keys and of weights with values have no rule; nor has layer
    normalisation, whose scale depends on the input. All of them pass back their gradient at the input. Where the sum
    of the attributions (with `times_input`) misses more than 5% of the change of the logit, a `CompletenessWarning`
    says so, once for a module; `completeness_gap` measures it.

    Equals Captum's, with three exceptions. Where one activation feeds another (a ReLU a max-pooling),
    Captum's hooks on the tensor between them clash, and its attributions need not add up. Its gradient for
    pooled units that do not move is that of the batch's first sample, ours the sample's own. Where pooling
    windows overlap, it loses contributions that we add up. The baseline is forwarded once for a chunk, not
    once for each input, so that an input costs one forward and one backward pass.

    With `create_graph`, the attributions can be differentiated by the input: `m` depends on it through the slopes, and
    through whatever else the gradient does. That costs the same passes, with a larger graph. For rectifiers alone the
    derivative is zero but for units on the other side of their kink than the baseline's; so differentiate within
    `smooth_relu`.

    Args:
        baseline: `b`: a number, or one for each channel.
        times_input: multiply by `x - b`; `False` returns `m`.
        epsilon: a unit that moves by less from the baseline passes back its gradient instead; above 0.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> classifier, x = Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> change = (classifier.logits(x) - classifier.logits(0 * x))[:, 1]
    >>> torch.allclose(DeepLift()(classifier, x, 1).sum(1), change, atol=1e-6)
    True
    """

    baseline: Baseline = 0.0
    times_input: bool = True
    epsilon: float = 1e-10
    name: ClassVar[str] = "deeplift"
    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_baseline(self.baseline)
        fine = isinstance(self.epsilon, int | float) and 0 < self.epsilon < float("inf")
        check(fine, "epsilon", "a finite number above 0", repr(self.epsilon))

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        leaf = make_leaf(x, create_graph)
        baseline = make_baseline(self.baseline, x)
        rule = DifferenceRule(self.epsilon)
        with torch.no_grad(), rule.record():
            at_baseline = classifier.forward(baseline.expand(2 * ROW_ALIGNMENT, *x.shape[1:]).contiguous())[0]
        if not create_graph:
            with rule.replay():
                slopes, logits = compute_input_gradient(classifier, x, targets, create_graph=False)
            if not self.times_input:
                return slopes, logits
            maps = slopes * (x.detach() - baseline)
            warn_of_gap(self, classifier, maps, logits, at_baseline, targets)
            return maps, logits
        with torch.enable_grad():
            with rule.replay(attached=True):
                logits = classifier.forward(leaf.clone())
            with rule.follow_slopes():
                slopes = compute_gradient(select_logits(logits, targets), leaf, create_graph=True)
            return slopes * (leaf - baseline) if self.times_input else slopes, logits


@dataclass(frozen=True)
class LRP(Explainer):
    """Layer-wise relevance propagation: `R_i = sum over j of a_i w_ij R_j / (z_j + epsilon sign z_j)`.

    Bach et al., On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance
    propagation, PLoS ONE 10(7), 2015. It starts from the target's logit. Linear layers, convolutions, batch
    normalisation, sums, averages and max-pooling (to the winner) follow the rule, biases keep their share;
    activations with `f(0) = 0` pass relevance on. As in Captum, whose rule it is by default, but by functions
    and not by layers: so functional calls, flattening, series and residual sums work too. Inputs and
    attributions `(N, ...)`; one forward and one backward pass for each input.

    With a preprocessing, relevance is that of the preprocessed input (which must keep its shape): a shift of
    the pixel scale is no evidence.

    Args:
        epsilon: stabiliser, at least 0; relevance of units near zero is absorbed by larger ones.

    Raises:
        ModelError: on a call, the module uses a function without a rule (an attention, say); names it.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> lower, upper = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2, bias=False)
    >>> module = torch.nn.Sequential(lower, torch.nn.ReLU(), upper)
    >>> classifier, x = Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> torch.allclose(LRP()(classifier, x, 1).sum(1), classifier.logits(x)[:, 1], atol=1e-6)
    True
    """

    epsilon: float = 1e-9
    name: ClassVar[str] = "lrp"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        fine = isinstance(self.epsilon, int | float) and 0 <= self.epsilon < float("inf")
        check(fine, "epsilon", "a finite number of at least 0", repr(self.epsilon))

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with torch.enable_grad():
            leaf = make_leaf(preprocess_copy(self.name, classifier, x), create_graph=False)
            with EpsilonRule(self.epsilon):
                logits = classifier.module(leaf.clone())
            scores = select_logits(logits, targets)
            return compute_gradient(scores * scores.detach(), leaf), logits.detach()


def preprocess_copy(name: str, classifier: Classifier, x: Tensor) -> Tensor:
    """What the module is given for `x` `(N, ...)`, a copy, for the explainer of this name, whose map is of that."""
    shown = x.detach().clone()
    if classifier.preprocess is not None:
        with torch.no_grad():
            shown = classifier.preprocess(shown)
        if shown.shape != x.shape:
            raise ModelError(
                f"{name}: expected preprocess to keep the shape {tuple(x.shape)}, got {tuple(shown.shape)}"
            )
    return shown
