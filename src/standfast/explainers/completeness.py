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

DeepLIFT and DeepSHAP know all logits that this needs. So they check the first inputs that they explain of each module
by themselves, and warn once (`warn_of_gap`). So do integrated gradients and the
additive explainers of Captum and shap, which predict their baseline once more for it (`predict_mean`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from standfast.errors import warn_user
from standfast.explainers.base import Explainer
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


def predict_mean(model: Model, logits: Tensor, references: Tensor) -> Tensor:
    """The mean outputs `(...)` at `references` `(B, ...)`, like `logits` `(N, ...)`; NaN if the module fails on them.

    For use inside `model.session()`. The explanation may not have needed them, so it is no error if they fail.
    """
    mean_logits = torch.full_like(logits[:1], torch.nan)
    with contextlib.suppress(Exception), torch.no_grad():
        (mean_logits,) = model.map_rows(
            lambda rows: (model.forward(rows.clone()),), references, evaluations=0
        )
    return mean_logits.double().mean(0)


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
    checked = _CHECKED.setdefault(model.module, {})
    name = repr(explainer)
    rows = min(len(attributions), _CHECKED_ROWS - checked.get(name, 0))
    if rows <= 0 or not model.task.linear:
        return
    checked[name] = checked.get(name, 0) + rows
    logits_at_baseline = at_baseline if isinstance(at_baseline, Tensor) else at_baseline()
    if logits_at_baseline is None:
        return
    with torch.no_grad():
        if targets is None:
            classes = model.task.answer(logits[:rows])
        else:
            classes = targets[:rows]
        before = logits_at_baseline.double().expand(rows, *logits_at_baseline.shape)
        change = model.task.score(logits[:rows].double(), classes) - model.task.score(
            before, classes
        )
        flat_maps = attributions[:rows].detach().double().flatten(1)
        gap = (row_sum(flat_maps) - change).abs()
        part = gap / change.abs().clamp(min=_SLACK)  # finite where nothing changes
        rounding = _ROUNDING * row_sum(flat_maps.abs())
        missing = gap > _TOLERANCE * change.abs() + _SLACK + rounding
        record_gap(explainer, model, float((part * missing).median()))
        if float(missing.double().mean()) <= share:
            return
    # one warning for a module: the rows that are left are not checked
    checked[name] = _CHECKED_ROWS
    without = {
        type(part).__name__ for part in model.module.modules() if isinstance(part, _WITHOUT_RULE)
    }
    hint = f" (this one has {', '.join(sorted(without))})" if without else ""
    warn_user(
        # it does not say for how many inputs: a chunk may have copies of its last input
        f"{explainer.label}: on {type(model.module).__name__} attributions do not add up to the change of the"
        f" logit from the baseline: where they miss more than {_TOLERANCE:.0%} of it, they miss about"
        f" {float(part[missing].median()):.0%}. {explainer.gap_cause}{hint}",
        CompletenessWarning,
    )


def record_gap(explainer: Explainer, model: Model, share: float) -> None:
    """Note by which share of the change of the logit the attributions of an explainer miss it; the largest counts."""
    gaps = _GAPS.setdefault(model.module, {})
    title = repr(explainer)
    gaps[title] = max(share, gaps.get(title, 0.0))


def forget_gap(explainer: Explainer, model: Model) -> None:
    """Forget what an explainer's attributions missed so far, so that the next inputs are checked again."""
    _GAPS.get(model.module, {}).pop(repr(explainer), None)
    _CHECKED.get(model.module, {}).pop(repr(explainer), None)


def find_gap(explainer: Explainer, model: Model) -> float:
    """By which share of the change of the logit attributions that should add up to it missed it, in the median.

    0 where they add up, and NaN for an explainer that does not claim that, or has not checked it.
    """
    return _GAPS.get(model.module, {}).get(repr(explainer), math.nan)
