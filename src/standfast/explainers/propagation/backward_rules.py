"""Explainers with backward rules of their own: guided backpropagation, deconvolution, DeepLift, epsilon-LRP.

The rules replace the backward pass of the functions that the module calls (see `standfast.function_calls`). They do not
use hooks on layers. So functional calls, layers that run twice and in-place layers all work.

What these backward passes compute is not a gradient. So the explainers are not differentiable in the input, except
DeepLift, whose slopes depend on the input in a known way.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from standfast.errors import ModelError, check
from standfast.explainers.base import (
    BaselineOption,
    Explainer,
    Explanation,
    Measure,
    choose_baseline,
    compute_input_gradient,
    explainers,
    make_leaf,
    run_watched,
    select_scores,
)
from standfast.explainers.completeness import warn_of_gap
from standfast.explainers.gradients.surrogates import (
    GradientRule,
    guide_gradient,
    replace_relu_gradient,
)
from standfast.explainers.propagation.difference_rules import DifferenceRule
from standfast.explainers.propagation.relevance_rules import EpsilonRule
from standfast.function_calls import FunctionMode, compute_gradient
from standfast.model import ROW_ALIGNMENT, Model
from standfast.needs import Needs
from standfast.records import AtLeastZero, Positive


@dataclass(frozen=True)
class _RectifiedGradient(Explainer):
    """The gradient with another backward rule at every ReLU."""

    needs = Needs(gradients=True, other="ReLUs, or else it is the plain gradient")
    gateable = True
    rule: ClassVar[GradientRule]

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        with replace_relu_gradient(type(self).rule) as mode:
            forward = partial(run_watched, mode, self.label, model)
            return compute_input_gradient(model, x, targets, create_graph=False, forward=forward)


@explainers.register("guided_backprop")
@dataclass(frozen=True)
class GuidedBackprop(_RectifiedGradient):
    """The gradient, but every ReLU passes back only what is positive and where it was active.

    A ReLU passes back `max(g, 0) * 1[z > 0]` instead of `g * 1[z > 0]`.

    Springenberg, Dosovitskiy, Brox and Riedmiller, Striving for simplicity: the all convolutional net, ICLR workshop
    2015. Inputs and attributions `(N, ...)`; one forward and one backward pass for each input. Equals Captum's, and
    also reaches functional ReLUs. For a module without ReLU, such as one of tanh or softplus, it is the plain gradient.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> GuidedBackprop()(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)).shape
    torch.Size([3, 4])
    """

    name = "guided_backprop"
    has_signs = True
    plain_gradient = True
    measures = "direction"
    rule: ClassVar[GradientRule] = staticmethod(guide_gradient)


@explainers.register("deconvolution")
@dataclass(frozen=True)
class Deconvolution(_RectifiedGradient):
    """The gradient, but every ReLU passes back all that is positive.

    A ReLU passes back `max(g, 0)` instead of `g * 1[z > 0]`.

    Zeiler and Fergus, Visualizing and understanding convolutional networks, ECCV 2014. Inputs and attributions
    `(N, ...)`; one forward and one backward pass for each input. Equals Captum's, and also reaches functional ReLUs.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> Deconvolution()(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)).shape
    torch.Size([3, 4])
    """

    name = "deconvolution"
    has_signs = True
    plain_gradient = True
    measures = "direction"
    rule: ClassVar[GradientRule] = staticmethod(lambda gradient, active: gradient.clamp(min=0))


@explainers.register("deeplift")
@dataclass(frozen=True)
class DeepLift(Explainer):
    """What each feature's difference from a baseline adds to the logit, passed back through the layers.

    `(x - b) * m`: the gradient `m` with slopes `(f(z) - f(z_b)) / (z - z_b)` in place of derivatives `f'(z)`.

    Shrikumar, Greenside and Kundaje, Learning important features through propagating activation differences, ICML
    2017. It is the Rescale rule, for elementwise activations and max-pooling; everything else passes back its gradient.
    Attributions add up to `f_t(x) - f_t(b)` for networks of linear layers, such activations and max-pooling. Inputs and
    attributions `(N, ...)`.

    For other networks the sum is an approximation, because these parts have no rule and pass back their gradient:

    - an LSTM or a GRU, which is one function, so that its gates cannot be seen from outside;
    - the softmax of an attention, and its products of queries with keys and of weights with values;
    - layer normalisation, whose scale depends on the input.

    If the sum of the attributions (with `times_input`) misses more than 5% of the change of the logit, a
    `CompletenessWarning` says so, once for each module.

    Equals Captum's, with three exceptions. If one activation feeds another (a ReLU before a max-pooling), Captum's
    hooks on the tensor between them interfere, and its attributions need not add up. For pooled units that do not
    change, Captum takes the gradient of the batch's first sample, standfast that of the sample itself. Where pooling
    windows overlap, Captum loses contributions that standfast adds up.

    Cost: one forward and one backward pass for each input. The baseline is forwarded once for each chunk.

    With `create_graph`, the attributions can be differentiated by the input, since the slopes `m` depend on it. That
    costs the same passes, with a larger graph. In a network of rectifiers this derivative is zero, except for units
    that are on the other side of their kink than at the baseline. So differentiate within `smooth_relu`.

    Args:
        baseline: `b`: a number, or one for each channel. By default 0, and for tables the baseline of the model's
            reference.
        times_input: multiply by `x - b`; `False` returns `m`.
        epsilon: a unit that differs from the baseline by less than this passes back its gradient; above 0.

    Raises:
        ArgumentError: an option out of range.
        ModelError: on a call, the module runs other activations for the baseline than for the inputs.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> change = (model.logits(x) - model.logits(0 * x))[:, 1]
    >>> torch.allclose(DeepLift()(model, x, 1).sum(1), change, atol=1e-6)
    True
    """

    baseline: BaselineOption = None
    times_input: bool = True
    epsilon: Positive = 1e-10
    name = "deeplift"
    has_signs = True
    removal_options = ("baseline",)
    needs = Needs(gradients=True)
    differentiable = True

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        """Without the difference from the baseline they are slopes."""
        return "contribution" if self.times_input else "slope"

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        leaf = make_leaf(x, create_graph)
        baseline = choose_baseline(model, x, self.baseline)
        rule = DifferenceRule(self.epsilon)
        rule.who = self.name
        forward = partial(run_watched, rule, self.label, model)
        with torch.no_grad(), rule:
            at_baseline = model.forward(
                # as many equal rows as the smallest batch has, since fewer rows round differently (`ROW_ALIGNMENT`)
                baseline.expand(2 * ROW_ALIGNMENT, *x.shape[1:]).contiguous()
            )[0]
        if not create_graph:
            with rule.replay():
                slopes, logits = compute_input_gradient(
                    model, x, targets, create_graph=False, forward=forward
                )
            if not self.times_input:
                return slopes, logits
            maps = slopes * (x.detach() - baseline)
            warn_of_gap(self, model, maps, logits, at_baseline, targets)
            return maps, logits
        with torch.enable_grad():
            with rule.replay(attached=True):
                logits = forward(leaf.clone())
            with rule.follow_rules():
                slopes = compute_gradient(
                    select_scores(model, logits, targets), leaf, create_graph=True
                )
            if self.times_input:
                return slopes * (leaf - baseline), logits
            return slopes, logits


class RelevanceExplainer(Explainer):
    """An explainer that passes relevance back by rules for functions, beginning with the score that is explained.

    Each output of the module begins with its share of it: of a class, its logit; of the side 0 of one logit z, -z; of a
    mean over pixels, the part of each pixel.
    """

    needs = Needs(gradients=True, other="layers that have a rule")
    has_signs = True

    @property
    def needs_bounds(self) -> bool:
        """Whether a rule needs the range of the inputs."""
        return False

    @abstractmethod
    def make_rule(self, inputs: Tensor, low: Tensor, high: Tensor) -> FunctionMode:
        """The mode for one pass of these inputs, which lie between `low` and `high` if there is a rule for that."""

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        if self.needs_bounds:
            inputs, low, high = preprocess_within(self.name, model, x)
        else:
            inputs = preprocess_copy(self.name, model, x)
            low = high = torch.zeros_like(inputs[:1])
        with torch.enable_grad():
            leaf = make_leaf(inputs, create_graph=False)
            inputs = leaf.clone()  # an in-place first layer must not write into the leaf
            with self.make_rule(inputs, low.expand_as(inputs), high.expand_as(inputs)) as rule:
                outputs = rule.run_module(self.label, model.undecided.run, inputs)
            logits = model.decide(outputs)
            scores = select_scores(model, logits, targets)
            # each output begins with its share of the score, so that the map of a linear module is its gradient x input
            slopes = compute_gradient(scores, outputs, retain_graph=True)
            # others may be infinite, as of a class that is masked
            counted = outputs.masked_fill(slopes == 0, 0.0)
            # its gradient by an output is slope times output, which is that output's share
            relevance = (slopes * counted.detach() * counted).flatten(1).sum(1)
            return compute_gradient(relevance, leaf), logits.detach()


@explainers.register("lrp")
@dataclass(frozen=True)
class LRP(RelevanceExplainer):
    """Layer-wise relevance propagation with the epsilon rule (epsilon-LRP).

    `R_i = sum over j of a_i w_ij R_j / (z_j + epsilon sign z_j)` for the relevance `R` of units with activations `a`.

    Bach et al., On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance propagation,
    PLoS ONE 10(7), 2015. It is epsilon-LRP in all layers. On a network of rectifiers, max-pooling and linear layers
    that is gradient times input. `LRPComposite` has other rules (gamma, alpha-beta, z-plus, box, flat) and composites
    of them.

    Relevance starts as the target's logit, or as what another task explains: each output begins with its share of the
    score. Linear layers, convolutions, batch normalisation, sums, averages and max-pooling (to the largest value)
    follow the rule; biases keep their share. Activations with `f(0) = 0`, and softplus, pass relevance on. This is
    Captum's default rule, but for functions and not for layers. So functional calls, flattening, series and residual
    sums work too. Inputs and attributions `(N, ...)`; one forward and one backward pass for each input.

    With a preprocessing, relevance is that of the preprocessed input, which must keep its shape. So a shift of the
    pixel scale does not count as evidence.

    Args:
        epsilon: the stabiliser, at least 0. It absorbs relevance of units with a small `|z_j|`.

    Raises:
        ArgumentError: `epsilon` out of range.
        ModelError: on a call, the module uses a function without a rule (such as an attention), which is named; or the
            preprocessing changes the shape.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> lower, upper = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2, bias=False)
    >>> module = torch.nn.Sequential(lower, torch.nn.ReLU(), upper)
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> torch.allclose(LRP()(model, x, 1).sum(1), model.logits(x)[:, 1], atol=1e-6)
    True
    """

    epsilon: AtLeastZero = 1e-9
    name = "lrp"
    version = 2

    def make_rule(self, inputs: Tensor, low: Tensor, high: Tensor) -> EpsilonRule:
        return EpsilonRule(self.epsilon)


def preprocess_copy(name: str, model: Model, x: Tensor) -> Tensor:
    """A copy of `x` `(N, ...)` after the model's preprocessing, for an explainer whose map is of that.

    Args:
        name: the explainer, for messages.
        model: in a session.
        x: inputs.

    Raises:
        ModelError: the preprocessing changes the shape.
    """
    copy = x.detach().clone()
    if model.preprocess is not None:
        with torch.no_grad():
            copy = model.preprocess(copy)
        check_same_shape(name, copy, x)
    return copy


def check_same_shape(name: str, preprocessed: Tensor, x: Tensor) -> None:
    """Raise `ModelError` for the explainer `name` unless preprocessing has kept the shape of `x`."""
    if preprocessed.shape != x.shape:
        got = tuple(preprocessed.shape)
        raise ModelError(
            f"{name}: expected preprocess to keep the shape {tuple(x.shape)}, got {got}"
        )


def preprocess_within(name: str, model: Model, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A copy of `x` `(N, ...)` after the model's preprocessing, and the ends of its range `(1, ...)`.

    Args:
        name: the explainer, for messages.
        model: in a session.
        x: inputs.

    Raises:
        ArgumentError: the model has infinite bounds.
        ModelError: the preprocessing changes the shape, or does not keep inputs within the preprocessed bounds.
    """
    lower, upper = (end.expand(x.shape[1:])[None] for end in model.bounds)
    finite = bool((torch.isfinite(lower) & torch.isfinite(upper)).all())
    check(
        finite,
        "bounds",
        "finite bounds of the model, which the rule for its inputs needs",
        "infinite ones",
    )
    inputs = preprocess_copy(name, model, x)
    if model.preprocess is not None:
        ends = [preprocess_copy(name, model, end) for end in (lower, upper)]
        lower = torch.minimum(*ends)
        upper = torch.maximum(*ends)
        # rounding of the preprocessing must not refuse inputs at the ends of the bounds
        slack = 1e-4 * (upper - lower)
        if bool(((inputs < lower - slack) | (inputs > upper + slack)).any()):
            raise ModelError(
                f"{name}: expected preprocess to keep inputs within the preprocessed bounds (as a"
                " normalisation does), got values outside of them"
            )
    return inputs, lower, upper
