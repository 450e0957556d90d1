"""Layer-wise relevance propagation with a rule for each kind of layer: composites, named as in the package zennit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from standfast.explainers.base import explainers
from standfast.explainers.propagation.backward_rules import RelevanceExplainer
from standfast.explainers.propagation.composite_rules import CompositeRule, LayerRule, RuleName
from standfast.records import AtLeastZero


@explainers.register("lrp_composite")
@dataclass(frozen=True)
class LRPComposite(RelevanceExplainer):
    """Layer-wise relevance propagation with one rule for convolutions and one for linear layers.

    The rules are `"epsilon"`, `"z_plus"`, `"taylor"`, `"alpha2_beta1"`, `"gamma"`, `"flat"` and, for the layers that
    read the input, `"box"`. `standfast.explainers.propagation.composite_rules` has their formulas and sources.
    Kohlbrenner et al., "Towards best practice in explaining neural network decisions with LRP" (IJCNN 2020), compare
    composites. The subclasses `LRP...` are those that the package zennit (Anders et al. 2021) offers by the same names,
    with the same numbers.

    Relevance starts as the target's logit (zennit's examples start with 1). Sums, averages and products with constant
    matrices follow the epsilon rule. Max-pooling passes relevance to the largest value. Activations with `f(0) = 0`,
    softplus, and shifts and scalings of single values pass it on; a value that is scaled by 0 gets none. A batch
    normalisation is merged into the layer before it; without such a layer it passes relevance on. The rules are for
    functions and not for layers, as in `LRP`. So functional calls, flattening, series, residual sums and layers that
    run twice work. Inputs and attributions `(N, ...)`; an attribution does not depend on the other inputs of the batch.
    With a preprocessing, relevance is that of the preprocessed input.

    Biases take part in the denominators, so they absorb relevance. Cost: one forward pass, and in the backward pass two
    to nine passes through each weighted layer, depending on the rule.

    Args:
        convolution, dense: the rules of convolutions and of linear layers.
        first: the rule of the layers that read the input, moved or scaled; None if they follow the other two options.
        epsilon: the stabiliser of all rules, at least 0.
        gamma: of the rule `"gamma"`, at least 0.

    Raises:
        ArgumentError: an option out of range; on a call with the box rule, the model has infinite bounds.
        ModelError: on a call, the module uses a function without a rule (such as an attention), which is named.

    >>> import torch
    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> lower, upper = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 2, bias=False)
    >>> module = torch.nn.Sequential(lower, torch.nn.ReLU(), upper)
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> maps = LRPComposite(dense="gamma")(model, x, 1)
    >>> torch.allclose(maps.sum(1), model.logits(x)[:, 1], atol=1e-4)
    True
    """

    convolution: LayerRule = "z_plus"
    dense: LayerRule = "epsilon"
    first: RuleName | None = None
    epsilon: AtLeastZero = 1e-6
    gamma: AtLeastZero = 0.25
    name = "lrp_composite"
    version = 3
    #: whether linear layers that read the input have the rule of other linear layers
    only_first_convolution: ClassVar[bool] = False

    @property
    def needs_bounds(self) -> bool:
        return self.first == "box"

    def make_rule(self, inputs: Tensor, low: Tensor, high: Tensor) -> CompositeRule:
        rules = (self.convolution, self.dense, self.first)
        return CompositeRule(
            rules, self.epsilon, self.gamma, inputs, (low, high), self.only_first_convolution
        )


@explainers.register("lrp_epsilon_plus")
@dataclass(frozen=True)
class LRPEpsilonPlus(LRPComposite):
    """LRP with the z-plus rule in convolutions and the epsilon rule in linear layers.

    The z-plus rule passes relevance on through positive contributions only. The package zennit calls this composite
    `EpsilonPlus`. Kohlbrenner et al. (IJCNN 2020) compare such composites; `LRPComposite` names the formulas.
    """

    name = "lrp_epsilon_plus"


@explainers.register("lrp_epsilon_alpha2_beta1")
@dataclass(frozen=True)
class LRPEpsilonAlpha2Beta1(LRPComposite):
    """LRP with the alpha-beta rule (2 and 1) in convolutions and the epsilon rule in linear layers.

    The alpha-beta rule weights positive contributions by 2 and negative ones by -1. The package zennit calls this
    composite `EpsilonAlpha2Beta1`. Kohlbrenner et al. (IJCNN 2020) compare such composites; `LRPComposite` names the
    formulas.
    """

    convolution: LayerRule = "alpha2_beta1"
    name = "lrp_epsilon_alpha2_beta1"


@explainers.register("lrp_epsilon_plus_flat")
@dataclass(frozen=True)
class LRPEpsilonPlusFlat(LRPEpsilonPlus):
    """`lrp_epsilon_plus`, but with the flat rule in the layers that read the input.

    The flat rule divides relevance equally among all inputs of a unit, so maps are smoother. The package zennit calls
    this composite `EpsilonPlusFlat`; `LRPComposite` names the formulas.
    """

    first: RuleName | None = "flat"
    name = "lrp_epsilon_plus_flat"


@explainers.register("lrp_epsilon_alpha2_beta1_flat")
@dataclass(frozen=True)
class LRPEpsilonAlpha2Beta1Flat(LRPEpsilonAlpha2Beta1):
    """`lrp_epsilon_alpha2_beta1`, but with the flat rule in the layers that read the input.

    The flat rule divides relevance equally among all inputs of a unit, so maps are smoother. The package zennit calls
    this composite `EpsilonAlpha2Beta1Flat`; `LRPComposite` names the formulas.
    """

    first: RuleName | None = "flat"
    name = "lrp_epsilon_alpha2_beta1_flat"


@explainers.register("lrp_epsilon_gamma_box")
@dataclass(frozen=True)
class LRPEpsilonGammaBox(LRPComposite):
    """LRP with the gamma rule in convolutions, the epsilon rule in linear layers and the box rule at the input.

    The gamma rule favours positive contributions. The box rule is for convolutions of inputs between known bounds:
    those of the model, which must be finite. A linear layer at the input has the epsilon rule. The package zennit calls
    this composite `EpsilonGammaBox`; `LRPComposite` names the formulas.
    """

    convolution: LayerRule = "gamma"
    first: RuleName | None = "box"
    name = "lrp_epsilon_gamma_box"
    only_first_convolution = True


@explainers.register("deep_taylor")
@dataclass(frozen=True)
class DeepTaylor(LRPComposite):
    """The relevance of the target's logit, passed back from unit to unit in proportion to their positive contributions.

    Montavon, Lapuschkin, Binder, Samek and Müller, Explaining nonlinear classification decisions with deep Taylor
    decomposition, Pattern Recognition 65, 2017. The relevance of each unit is expanded at a root point within the
    domain of its inputs; this gives one rule for each domain. Linear layers and convolutions with inputs `a` of at
    least 0 follow the z+ rule. The first ones, whose input is `l <= x <= h`, follow the z^B rule:

        R_i = sum over j of a_i w_ij+ R_j / (sum over i of a_i w_ij+),
        R_i = sum over j of q_ij R_j / (sum over i of q_ij), where q_ij = x_i w_ij - l_i w_ij+ - h_i w_ij-.

    These are the rules `"taylor"` and `"box"` of `LRPComposite`, which says what other functions do. For a network of
    rectifiers, maxima and averages, all values of a map have the sign of the logit, or are 0. They add up to the logit,
    with one exception: a unit without positive contributions, one that its bias alone has made active, cannot pass its
    relevance on. Biases get no relevance. Inputs of hidden layers may be negative, as after a tanh. The z+ rule then
    takes all positive products, `a_i+ w_ij+ + a_i- w_ij-`. Sums and averages of such values follow the epsilon rule.
    The bounds of the model must be finite.

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

    convolution: LayerRule = "taylor"
    dense: LayerRule = "taylor"
    first: RuleName | None = "box"
    epsilon: float = 1e-9
    name = "deep_taylor"
    # all values have the sign of the logit
    has_signs = False
    version = 4
