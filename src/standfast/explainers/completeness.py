"""Completeness: whether attributions add up to the change of the target's logit from the baseline.

Integrated gradients, DeepLIFT, DeepSHAP, GradientSHAP in expectation, KernelSHAP and Shapley values are made so that

    sum over features of a_i = f_t(x) - mean over baselines b of f_t(b).

Sources: Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks", ICML 2017, Proposition 1 (completeness);
Shrikumar, Greenside and Kundaje, "Learning important features through propagating activation differences", ICML 2017,
Sec. 3.1 ("summation to delta").

The gap is the difference of the two sides. It says how far an explanation is an approximation:

- Integrated gradients have a gap if the integral has too few steps.
- DeepLIFT and DeepSHAP take the gradient of functions that they have no rule for: the gates of an LSTM (which is one
  function), the softmax of an attention and its products, layer normalisation.
- GradientSHAP is random; its gap is its sampling error.
- KernelSHAP and Shapley sampling have no gap for any network, by their constraint and by telescoping sums.
- Gradients alone are not meant to add up to anything.

If a feature is a segment of the input, each position of the map shows the segment's value, which counts once.

`completeness_gap` measures the gap. DeepLIFT and DeepSHAP know all logits that this needs. So they check the first
inputs that they explain of each module by themselves, and warn once (`warn_of_gap`). So do integrated gradients and the
additive explainers of Captum and shap, which predict their baseline once more for it (`predict_mean`).
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from standfast.errors import check, warn_user
from standfast.explainers.background import References, resolve_background
from standfast.explainers.base import Explainer
from standfast.explainers.perturbation.segmented import SegmentedExplainer
from standfast.model import Model
from standfast.similarity.rows import row_sum

_SLACK = 1e-3  # in logits: rounding of float32 sums over thousands of features
_ROUNDING = 1e-4  # share of the absolute sum: rounding where large attributions cancel
_TOLERANCE = 0.05  # share of the change of the logit
_CHECKED_ROWS = 64  # rows of each module that an explainer checks by itself
#: how many rows each explainer (by its `repr`) has checked, for each module
_CHECKED: WeakKeyDictionary[nn.Module, dict[str, int]] = WeakKeyDictionary()
#: by how much the attributions of an explainer (by its `repr`) miss the change of the logit, for each module
_GAPS: WeakKeyDictionary[nn.Module, dict[str, float]] = WeakKeyDictionary()
#: layers that DeepLIFT's rule of differences does not reach
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
    """Attributions that should be complete do not add up to the change of the logit."""


def completeness_gap(
    model: Model,
    explainer: Explainer,
    attributions: Tensor,
    x: Tensor,
    baseline: References | None = None,
    *,
    targets: Tensor | int | None = None,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """The sum of each input's attributions minus the change of its logit from the baseline: float64 `(N,)`.

    Warns with `CompletenessWarning` if a gap is larger than `tolerance` times the change plus a thousandth of a logit.
    Costs one forward pass of each input and each reference.

    Args:
        model: the model that was explained.
        explainer: made the attributions. It is not called; its name and its segments are used.
        attributions: `(N, ...)`, for `x`.
        x: inputs within the model's bounds.
        baseline: that of the explainer: a number, one for each channel, or reference inputs `(B, ...)`, over whose
            logits the mean is taken; None for that of explainers without one.
        targets: the classes that were explained, as in `Explainer.__call__`.
        tolerance: a share of at least 0; infinity for no warning.

    Raises:
        ArgumentError: attributions of another shape than `x`, a baseline out of bounds, a negative tolerance.

    >>> from standfast.explainers import DeepLift, InputXGradient
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> gap = completeness_gap(model, DeepLift(), DeepLift()(model, x), x)
    >>> bool(gap.abs().max() < 1e-6)
    True
    >>> sums = InputXGradient()(model, x)
    >>> completeness_gap(model, InputXGradient(), sums, x, tolerance=float("inf")).shape
    torch.Size([3])
    """
    check(isinstance(tolerance, int | float) and tolerance >= 0, "tolerance", "a share of at least 0", repr(tolerance))
    x = model.check_inputs(x, "x")
    fits = isinstance(attributions, Tensor) and attributions.shape == x.shape
    got = tuple(attributions.shape) if isinstance(attributions, Tensor) else type(attributions).__name__
    check(fits, "attributions", f"a tensor of the shape of x, {tuple(x.shape)}", got)
    with torch.no_grad():
        classes = model.check_targets(targets, x)
        logits = model.logits(x).double().gather(1, classes[:, None])[:, 0]
        references = model.logits(resolve_background(model, x, baseline)).double().mean(0)
        change = logits - references[classes]
        gap = _sum_features(explainer, attributions.to(x.device, torch.float64), x) - change
    missing = gap.abs() > (tolerance * change.abs() if tolerance < math.inf else change.new_tensor(tolerance)) + _SLACK
    if bool(missing.any()):
        share = float((gap.abs() / change.abs().clamp(min=_SLACK))[missing].median())
        warnings.warn(
            f"{explainer.label}: the attributions of {int(missing.sum())} of {len(x)} inputs do not add up to the"
            f" change of the logit from the baseline: they miss {share:z.0%} of it in the median (tolerance"
            f" {tolerance:.0%})",
            CompletenessWarning,
            stacklevel=2,
        )
    return gap


def predict_mean(model: Model, logits: Tensor, references: Tensor) -> Tensor:
    """The mean logits `(K,)` at `references` `(B, ...)`, like `logits` `(N, K)`; NaN if the module fails on them.

    For use inside `model.session()`. The explanation may not have needed them, so it is no error if they fail.
    """
    found = torch.full_like(logits[:1], torch.nan)
    with contextlib.suppress(Exception), torch.no_grad():
        (found,) = model.map_rows(lambda rows: (model.forward(rows.clone()),), references, evaluations=0)
    return found.double().mean(0)


def warn_of_gap(
    explainer: Explainer,
    model: Model,
    attributions: Tensor,
    logits: Tensor,
    at_baseline: Tensor | Callable[[], Tensor | None],
    targets: Tensor | None,
    share: float = 0.0,
) -> None:
    """Warn once for each explainer and module if attributions do not add up; explainers call it on their own results.

    It checks the first 64 rows that an explainer explains of a module. That costs a sum over the attributions and no
    forward pass. It warns with `CompletenessWarning` if a gap is larger than 5% of the change of the logit, plus a
    thousandth of a logit and a ten thousandth of the attributions' absolute sum, for rounding.

    Args:
        explainer: made the attributions, which are of features, not of segments.
        model: its module was explained.
        attributions: of a chunk, `(N, ...)`.
        logits: at the chunk's inputs, `(N, K)`.
        at_baseline: logits at the baseline, or their mean over several, `(K,)`; or a function of nothing that
            predicts them, which is called only while there are rows to check; None if the sum is not known.
        targets: the classes explained `(N,)`, or None for the predicted ones.
        share: of the rows that may have such a gap without a warning.
    """
    checked, own = _CHECKED.setdefault(model.module, {}), repr(explainer)
    rows = min(len(attributions), _CHECKED_ROWS - checked.get(own, 0))
    if rows <= 0:
        return
    checked[own] = checked.get(own, 0) + rows
    known = at_baseline if isinstance(at_baseline, Tensor) else at_baseline()
    if known is None:
        return
    with torch.no_grad():
        classes = logits[:rows].argmax(1) if targets is None else targets[:rows]
        change = logits[:rows].double().gather(1, classes[:, None])[:, 0] - known.double()[classes]
        made = attributions[:rows].detach().double().flatten(1)
        gap = (row_sum(made) - change).abs()
        part = gap / change.abs().clamp(min=_SLACK)  # finite where nothing changes
        missing = gap > _TOLERANCE * change.abs() + _SLACK + _ROUNDING * row_sum(made.abs())
        record_gap(explainer, model, float((part * missing).median()))
        if float(missing.double().mean()) <= share:
            return
    checked[own] = _CHECKED_ROWS
    without = {type(part).__name__ for part in model.module.modules() if isinstance(part, _WITHOUT_RULE)}
    found = f" (this one has {', '.join(sorted(without))})" if without else ""
    warn_user(
        # it does not say for how many inputs: a chunk may have copies of its last input
        f"{explainer.label}: on {type(model.module).__name__} attributions do not add up to the change of the"
        f" logit from the baseline: where they miss more than {_TOLERANCE:.0%} of it, they miss about"
        f" {float(part[missing].median()):.0%}. {explainer.gap_cause}{found}",
        CompletenessWarning,
    )


def record_gap(explainer: Explainer, model: Model, share: float) -> None:
    """Note by which share of the change of the logit the attributions of an explainer miss it; the largest counts."""
    known = _GAPS.setdefault(model.module, {})
    known[repr(explainer)] = max(share, known.get(repr(explainer), 0.0))


def forget_gap(explainer: Explainer, model: Model) -> None:
    """Forget what an explainer's attributions missed so far, so that the next inputs are checked again."""
    _GAPS.get(model.module, {}).pop(repr(explainer), None)
    _CHECKED.get(model.module, {}).pop(repr(explainer), None)


def find_gap(explainer: Explainer, model: Model) -> float:
    """By which share of the change of the logit attributions that should add up to it missed it, in the median.

    0 where they add up, and NaN for an explainer that does not claim that, or has not checked it.
    """
    return _GAPS.get(model.module, {}).get(repr(explainer), math.nan)


def _sum_features(explainer: Explainer, attributions: Tensor, x: Tensor) -> Tensor:
    """The sum over the features of each input, `(N,)`."""
    if not isinstance(explainer, SegmentedExplainer):
        return row_sum(attributions.flatten(1))
    labels, counts = explainer.label_places(x)
    sizes = torch.zeros(len(x), max(counts), device=x.device, dtype=torch.float64)
    sizes = sizes.scatter_add(1, labels, torch.ones_like(labels, dtype=torch.float64)).gather(1, labels)
    by_place = attributions.flatten(1)
    if by_place.shape != labels.shape:  # all channels of a position show the same value
        by_place = attributions.flatten(2).mean(1)
    return row_sum(by_place / sizes)
