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
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers.background import References, background_of
from holdfast.explainers.base import Explainer
from holdfast.explainers.segmented import SegmentedExplainer, features_of
from holdfast.model import Classifier
from holdfast.similarity.rows import row_sum

_SLACK = 1e-3  # logits; what float32 may leave of sums over thousands of features


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
    tolerance: float = 0.05,
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
        references = classifier.logits(background_of(classifier, x, baseline)).double().mean(0)
        change = logits - references[classes]
        gap = _sums(explainer, attributions.to(x.device, torch.float64), x) - change
    missing = gap.abs() > (tolerance * change.abs() if tolerance < math.inf else change.new_tensor(tolerance)) + _SLACK
    if bool(missing.any()):
        share = float((gap.abs() / change.abs())[missing].median())
        warnings.warn(
            f"{explainer.label}: the attributions of {int(missing.sum())} of {len(x)} inputs do not add up to the"
            f" change of the logit from the baseline: they miss {share:.0%} of it in the median (tolerance"
            f" {tolerance:.0%})",
            CompletenessWarning,
            stacklevel=2,
        )
    return gap


def _sums(explainer: Explainer, attributions: Tensor, x: Tensor) -> Tensor:
    """Over the features of each input, `(N,)`."""
    if not isinstance(explainer, SegmentedExplainer):
        return row_sum(attributions.flatten(1))
    labels, counts = features_of(x, explainer.segments)  # (N, places)
    sizes = torch.zeros(len(x), max(counts), device=x.device, dtype=torch.float64)
    sizes = sizes.scatter_add(1, labels, torch.ones_like(labels, dtype=torch.float64)).gather(1, labels)
    by_place = attributions.flatten(2).mean(1) if x.ndim > 2 else attributions  # all channels of a place show the same
    return row_sum(by_place / sizes)
