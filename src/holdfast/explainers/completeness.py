"""Whether attributions add up to what they should explain: the change of the target's logit from the baseline.

Integrated gradients, DeepLIFT, DeepSHAP, GradientSHAP in expectation, KernelSHAP and Shapley values are built such that

    sum over features of a_i = f_t(x) - mean over baselines b of f_t(b)

(completeness: Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks", ICML 2017, Proposition 1;
"summation to delta": Shrikumar, Greenside and Kundaje, "Learning important features through propagating activation
differences", ICML 2017, Sec. 3.1). What is left of the sum says how much of an explanation is an approximation.
Integrals have too few steps; DeepLIFT takes the gradient of functions that it has no rule for: the gates of an LSTM,
which are within one function, the softmax of an attention and its products, layer normalisation. GradientSHAP is
random: its gap is its sampling error. Gradients alone do not add up to anything, and are not for this. Where a feature
is a segment of the input, each of its places shows the segment's value, which counts once.

`completeness_gap` measures it. DeepLIFT and DeepSHAP, which know all the logits that takes, look at the first inputs
that they explain of a module by themselves (`warn_of_gap`), and warn once. KernelSHAP and Shapley sampling add up
whatever the network is, by their constraint and by telescoping sums, so there is nothing to look at; the integral of
integrated gradients converges, and how far it has is for the caller to ask.
"""

from __future__ import annotations

import math
import warnings
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from holdfast.errors import check
from holdfast.explainers.background import References, resolve_background
from holdfast.explainers.base import Explainer
from holdfast.explainers.perturbation.segmented import SegmentedExplainer, label_features
from holdfast.model import Classifier
from holdfast.similarity.rows import row_sum

_SLACK = 1e-3  # logits; what float32 may leave of sums over thousands of features
_ROUNDING = 1e-4  # and of their absolute values, where large ones cancel
_TOLERANCE = 0.05  # a share of the change of the logit
_CHECKED_ROWS = 64  # rows that an explainer looks at by itself, of each module
#: how many it has looked at, by the module and what the explainer is
_CHECKED: WeakKeyDictionary[nn.Module, dict[str, int]] = WeakKeyDictionary()
#: parts that rules of differences (DeepLIFT's) do not reach, as far as layers tell
_WITHOUT_RULE = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.Softmax,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.PReLU,
    nn.GLU,
)


class CompletenessWarning(UserWarning):
    """Attributions of an explainer that should be complete do not add up to the change of the logit."""


def completeness_gap(
    classifier: Classifier,
    explainer: Explainer,
    attributions: Tensor,
    x: Tensor,
    baseline: References = 0.0,
    *,
    targets: Tensor | int | None = None,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """The sum of each input's attributions minus the change of its logit from the baseline: float64 `(N,)`.

    Warns with `CompletenessWarning` where that is more than `tolerance` times the change, and than a thousandth of a
    logit. Costs one forward pass of each input and each reference.

    Args:
        classifier: the one that was explained.
        explainer: the one that made the attributions: for its name and its segments; it is not called.
        attributions: `(N, ...)`, for `x`.
        x: inputs within the classifier's bounds.
        baseline: the explainer's: a number, one for each channel, or reference inputs `(B, ...)`, over whose logits the
            mean is taken.
        targets: the classes that were explained, as in `Explainer.__call__`.
        tolerance: a share of at least 0; infinity for no warning.

    Raises:
        ArgumentError: attributions that are not shaped like `x`, a baseline out of bounds, a negative tolerance.

    >>> from holdfast.explainers import DeepLift, InputXGradient
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> classifier, x = Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> gap = completeness_gap(classifier, DeepLift(), DeepLift()(classifier, x), x)
    >>> bool(gap.abs().max() < 1e-6)
    True
    >>> sums = InputXGradient()(classifier, x)
    >>> completeness_gap(classifier, InputXGradient(), sums, x, tolerance=float("inf")).shape
    torch.Size([3])
    """
    check(isinstance(tolerance, int | float) and tolerance >= 0, "tolerance", "a share of at least 0", repr(tolerance))
    x = classifier.check_inputs(x, "x")
    fits = isinstance(attributions, Tensor) and attributions.shape == x.shape
    got = tuple(attributions.shape) if isinstance(attributions, Tensor) else type(attributions).__name__
    check(fits, "attributions", f"a tensor of the shape of x, {tuple(x.shape)}", got)
    with torch.no_grad():
        classes = classifier.check_targets(targets, x)
        logits = classifier.logits(x).double().gather(1, classes[:, None])[:, 0]
        references = classifier.logits(resolve_background(classifier, x, baseline)).double().mean(0)
        change = logits - references[classes]
        gap = _sum_features(explainer, attributions.to(x.device, torch.float64), x) - change
    missing = gap.abs() > (tolerance * change.abs() if tolerance < math.inf else change.new_tensor(tolerance)) + _SLACK
    if bool(missing.any()):
        share = float((gap.abs() / change.abs().clamp(min=_SLACK))[missing].median())
        warnings.warn(
            f"{explainer.label}: the attributions of {int(missing.sum())} of {len(x)} inputs do not add up to the"
            f" change of the logit from the baseline: they miss {share:.0%} of it in the median (tolerance"
            f" {tolerance:.0%})",
            CompletenessWarning,
            stacklevel=2,
        )
    return gap


def warn_of_gap(
    explainer: Explainer,
    classifier: Classifier,
    attributions: Tensor,
    logits: Tensor,
    at_baseline: Tensor,
    targets: Tensor | None,
) -> None:
    """Warn, once for each explainer and module, where attributions do not add up; for explainers, of what they made.

    The first 64 rows that an explainer meets of a module are looked at, at the cost of a sum over their attributions
    and of no forward pass. The attributions are left alone. Warns with `CompletenessWarning` as `completeness_gap` does
    by default; also where one miss is more than a ten thousandth of the attributions' absolute sum, which rounding may
    be where they cancel.

    Args:
        explainer: whose attributions of features they are.
        classifier: its module is what was explained.
        attributions: of a chunk `(N, ...)`.
        logits: at its inputs, `(N, K)`.
        at_baseline: logits at the baseline, or their mean over several, `(K,)`.
        targets: the classes explained `(N,)`, or None for the predicted ones.
    """
    looks, own = _CHECKED.setdefault(classifier.module, {}), repr(explainer)
    rows = min(len(attributions), _CHECKED_ROWS - looks.get(own, 0))
    if rows <= 0:
        return
    looks[own] = looks.get(own, 0) + rows
    with torch.no_grad():
        classes = logits[:rows].argmax(1) if targets is None else targets[:rows]
        change = logits[:rows].double().gather(1, classes[:, None])[:, 0] - at_baseline.double()[classes]
        made = attributions[:rows].detach().double().flatten(1)
        gap = (row_sum(made) - change).abs()
        share = gap / change.abs().clamp(min=_SLACK)  # finite where nothing changes
        missing = gap > _TOLERANCE * change.abs() + _SLACK + _ROUNDING * row_sum(made.abs())
        if not bool(missing.any()):
            return
    looks[own] = _CHECKED_ROWS
    there = {type(part).__name__ for part in classifier.module.modules() if isinstance(part, _WITHOUT_RULE)}
    found = f" (this one has {', '.join(sorted(there))})" if there else ""
    warnings.warn(
        # of how many is not said: a chunk may have copies of its last input
        f"{explainer.label}: on {type(classifier.module).__name__} attributions do not add up to the change of the"
        f" logit from the baseline: where they miss more than {_TOLERANCE:.0%} of it, they miss about"
        f" {float(share[missing].median()):.0%}. Of functions without a rule the gradient is taken: gates of LSTMs,"
        f" softmax and products of activations (attention), layer normalisation{found}",
        CompletenessWarning,
        stacklevel=2,
    )


def _sum_features(explainer: Explainer, attributions: Tensor, x: Tensor) -> Tensor:
    """Over the features of each input, `(N,)`."""
    if not isinstance(explainer, SegmentedExplainer):
        return row_sum(attributions.flatten(1))
    labels, counts = label_features(x, explainer.segments)  # (N, places)
    sizes = torch.zeros(len(x), max(counts), device=x.device, dtype=torch.float64)
    sizes = sizes.scatter_add(1, labels, torch.ones_like(labels, dtype=torch.float64)).gather(1, labels)
    by_place = attributions.flatten(2).mean(1) if x.ndim > 2 else attributions  # all channels of a place show the same
    return row_sum(by_place / sizes)
