"""`background_curve`: how many background rows are enough for two people to name the same reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from standfast.data import Dataset
from standfast.errors import as_number, check, check_integer, is_number
from standfast.metrics.probe import Call
from standfast.metrics.reasons.backgrounds import Agreements, Backgrounds
from standfast.metrics.reasons.places import Speaking, count_first
from standfast.question.arguments import ExplainerLike, ModelLike
from standfast.reason_cards.asked import Asked
from standfast.statistics.clusters import clustered_interval
from standfast.statistics.reasons import MOST_DECIDED

_LEVEL = 0.95


@dataclass(frozen=True)
class BackgroundSize:
    """What is known of backgrounds of one size.

    Attributes:
        rows: of a background.
        same: in which share of pairs of such backgrounds the same reasons are named, with the same signs.
        low, high: its 95% interval.
        pairs: of backgrounds.
        decisions: that each pair explained.
        with_replacement: whether rows were drawn with replacement, as there are fewer than two backgrounds have.
    """

    rows: int
    same: float
    low: float
    high: float
    pairs: int
    decisions: int
    with_replacement: bool


@dataclass(frozen=True)
class BackgroundCurve:
    """How often two backgrounds of a size name the same reasons, by the size.

    Attributes:
        sizes: the smallest first.
        usual: how many rows the explainer takes as it is configured.
        top: how many features are reasons, k.
        demand: the share that is enough.
    """

    sizes: tuple[BackgroundSize, ...]
    usual: int
    top: int
    demand: float

    def frame(self) -> pl.DataFrame:
        """A row for each size: rows, same, low, high, pairs, decisions, with_replacement."""
        return pl.DataFrame([vars(size) for size in self.sizes])

    @property
    def enough(self) -> int | None:
        """The fewest rows from which on the demand is shown to be met; None if none of these sizes is enough."""
        enough: int | None = None
        for size in reversed(self.sizes):
            if size.low < self.demand:
                break
            enough = size.rows
        return enough

    def recommend(self) -> str:
        """How many rows are enough, in one sentence.

        >>> few, many = BackgroundSize(8, 0.5, 0.36, 0.64, 50, 1, False), BackgroundSize(32, 1, 0.93, 1, 50, 1, False)
        >>> BackgroundCurve((few, many), usual=8, top=4, demand=0.9).recommend()
        '32 rows are enough: two such backgrounds name the same 4 reasons in 100% (93% to 100%) of 50 pairs.'
        >>> BackgroundCurve((few,), usual=8, top=4, demand=0.9).recommend()
        'Up to 8 rows are not enough: two such backgrounds name the same 4 reasons in 50% (36% to 64%) of 50 pairs.'
        """
        enough = self.enough
        if enough is None:
            shown = self.sizes[-1]
        else:
            shown = next(size for size in self.sizes if size.rows == enough)
        reasons = "first reason" if self.top == 1 else f"{self.top} reasons"
        measured = (
            f"two such backgrounds name the same {reasons} in {shown.same:.0%} ({shown.low:.0%} to {shown.high:.0%})"
            f" of {shown.pairs} pairs."
        )
        if enough is not None:
            return f"{enough} rows are enough: {measured}"
        if shown.same >= self.demand:
            return f"{shown.rows} rows may be enough, and more pairs would show it: {measured}"
        return f"Up to {shown.rows} rows are not enough: {measured}"

    def __str__(self) -> str:
        lines = [self.recommend()]
        for size in self.sizes:
            usual = ", as the explainer takes" if size.rows == self.usual else ""
            drawn = ", drawn with replacement" if size.with_replacement else ""
            share = f"{size.same:.0%} ({size.low:.0%} to {size.high:.0%})"
            lines.append(f"{size.rows:>6} rows: {share}{usual}{drawn}")
        return "\n".join(lines)


def background_curve(
    model: ModelLike,
    explainer: ExplainerLike,
    inputs: Tensor | Dataset | Any,
    *,
    reference: Tensor | Any = None,
    sizes: Sequence[float] = (0.25, 0.5, 1, 2, 4),
    top: int | None = None,
    demand: float = 0.9,
    decision: str | None = None,
    targets: Tensor | int | None = None,
    speaking: Speaking = "both",
    pairs: int = 50,
    seed: int = 0,
) -> BackgroundCurve:
    """Find out how many background rows are enough.

    An explainer that averages over rows names other reasons with other rows. For each size, pairs of backgrounds are
    drawn from all rows of the reference, and both explain all inputs. Enough are so many rows that both name the same
    reasons. Nothing else differs, neither the model nor the seed of the explainer.

    Args:
        model, explainer, inputs, reference, decision, targets: as for `standfast.reasons`. The explainer takes rows, as
            `kernel_shap` and `"tree_shap:background=reference"` do.
        sizes: as multiples of what the explainer takes now: 32 rows, or as many as its own `background=` has.
        top: how many features are reasons, k, at most 20; None for 4 of a row or a text.
        demand: the share of pairs with the same reasons that is enough.
        speaking: `"for"` to take only features that speak for the answer.
        pairs: of backgrounds of each size. With 36, 0.9 can be shown at best.
        seed: of the draws.

    Returns:
        The curve. `print` shows it, and `frame()` has a row for each size.

    Raises:
        ArgumentError: an argument does not fit; the explainer uses no rows of a background.
        ModelError: the model fails.

    >>> import standfast
    >>> layer = torch.nn.Linear(4, 2)
    >>> _ = torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    >>> rows = torch.rand(400, 4, generator=torch.Generator().manual_seed(0))
    >>> model = standfast.Model(layer, bounds=(0.0, 1.0))
    >>> curve = background_curve(model, "kernel_shap", rows[:1], reference=rows, sizes=(0.25, 1, 4), top=1, pairs=20)
    >>> curve.frame()["rows"].to_list(), curve.frame()["pairs"].to_list()
    ([8, 32, 128], [20, 20, 20])
    """
    _check_numbers(sizes, demand, pairs)
    read_inputs = Asked(model, explainer, inputs, reference, decision, targets).read()
    fitted = read_inputs.fit_explainer(explainer)
    ((samples, source),) = zip(
        read_inputs.samples.values(), read_inputs.models.values(), strict=True
    )
    first_part, *further_parts = samples.split(source.model(samples, "cpu"))
    check(
        not further_parts,
        "inputs",
        "samples that the model takes together",
        "texts of several lengths",
    )
    own_model = first_part.model
    own_inputs = own_model.check_inputs(samples.inputs)
    if samples.targets is None:
        own_targets = None
    else:
        own_targets = samples.targets.to(own_inputs.device)
    number_of_reasons = _check_top(top, own_inputs)
    with torch.inference_mode(False), own_model.naming(own_inputs), own_model.session():
        call = Call(own_model, fitted, own_inputs, own_targets)
        backgrounds = Backgrounds(call, number_of_reasons, speaking)
        check(backgrounds.explained > 0, "inputs", "one that can be explained at least", "none")
        expected = (
            "one that uses background rows, such as kernel_shap or tree_shap:background=reference"
        )
        check(
            backgrounds.is_used, "explainer", expected, f"{fitted.label}, whose maps depend on none"
        )
        numbers = sorted({max(1, round(size * backgrounds.usual)) for size in sizes})
        compared = [backgrounds.compare(number, pairs, as_number(seed)) for number in numbers]
    measured = tuple(_measure(agreements) for agreements in compared)
    return BackgroundCurve(measured, backgrounds.usual, number_of_reasons, demand)


def _check_numbers(sizes: Any, demand: Any, pairs: Any) -> None:
    """Raise `ArgumentError` for numbers out of their ranges."""
    is_list = isinstance(sizes, list | tuple) and len(sizes) > 0
    are_sizes = is_list and all(is_number(size) and 0 < size < math.inf for size in sizes)
    check(are_sizes, "sizes", "a list of numbers above 0", repr(sizes))
    check(is_number(demand) and 0 < demand < 1, "demand", "a number between 0 and 1", repr(demand))
    check_integer(pairs, "pairs")


def _check_top(top: int | None, inputs: Tensor) -> int:
    """How many features are reasons.

    Raises:
        ArgumentError: so many that no two backgrounds name all of them.
    """
    check_integer(top, "top", also=(None,))
    counted = count_first(inputs.shape[1:], top)
    check(counted <= MOST_DECIDED, "top", f"at most {MOST_DECIDED} reasons", counted)
    return counted


def _measure(agreements: Agreements) -> BackgroundSize:
    """The share with its interval; each pair is a cluster, since it explains all inputs with the same rows."""
    pairs = len(agreements.hits)
    draws = torch.full((pairs,), agreements.inputs).numpy()
    low, high = clustered_interval(agreements.hits, draws, _LEVEL)
    return BackgroundSize(
        rows=agreements.size,
        same=float(agreements.hits.sum() / draws.sum()),
        low=low,
        high=high,
        pairs=pairs,
        decisions=agreements.inputs,
        with_replacement=agreements.with_replacement,
    )
