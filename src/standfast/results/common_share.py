"""Explainers that replace different shares of positions are compared by the mean drop up to a common share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from standfast.errors import check
from standfast.results.metric_results import MetricResults, Part
from standfast.statistics.curves import compute_area_up_to
from standfast.tensors import Array
from standfast.value_spec import CommonShare, ValueSpec

#: the columns with the common share of each sample, and with the mean drop up to it
SHARE = "common_share"
DROP = "common_drop"
_KEYS = ("explainer", "repeat", "sample")


def make_comparable(views: Sequence[MetricResults]) -> tuple[ValueSpec, list[pl.DataFrame]] | None:
    """Values that make explainers comparable where the stored value of one explainer alone does not.

    What shows, ranks or tests the values of several explainers reads these instead. Controls are compared, too.

    Args:
        views: of one configured metric, one for each data set and model.

    Returns:
        How to read the new values, and the frame of each view with the columns `SHARE` and `DROP`. None if stored
        values are comparable, for a single explainer, and where the drops of any sample are not stored.
    """
    common = views[0].spec.common_share if views else None
    several = any(len(view.present) > 1 for view in views)
    if common is None or not several:
        return None
    frames = []
    for view in views:
        frame = measure_up_to_common_share(view, common)
        if frame is None:
            return None
        frames.append(frame)
    caution = (
        "Explainers are compared up to the share of positions that all of them replace in a sample "
        f"(median {_describe_shares(frames)}). {common.caution}"
    )
    spec = replace(
        views[0].spec,
        title=common.title,
        axis=common.axis,
        column=DROP,
        caution=caution.strip(),
    )
    return spec, frames


def _describe_shares(frames: Sequence[pl.DataFrame]) -> str:
    """The smallest and the largest median share of all frames, or one where they are the same in print."""
    medians = []
    for frame in frames:
        shares = frame[SHARE].drop_nulls().to_numpy()
        if len(shares):
            medians.append(float(np.median(shares)))
    smallest = min(medians, default=0.0)
    largest = max(medians, default=0.0)
    ends = dict.fromkeys((f"{smallest:.1%}", f"{largest:.1%}"))
    return " to ".join(ends)


def measure_up_to_common_share(results: MetricResults, common: CommonShare) -> pl.DataFrame | None:
    """The rows, with what each explainer loses up to the share of positions that all of them replace.

    Two columns are added, null where a sample does not count: `SHARE`, the smallest last share of the explainers that
    have a value for this sample and repeat and replace anything in it (0 if none does); and `DROP`, the mean drop up to
    there, that is, the area up to the share divided by the share. None if the drops of a sample that counts are not
    stored.
    """
    parts = list(results.parts((common.share, common.drop)))
    if not parts:
        return None
    counted = _find_arrays(results, parts)
    if counted["position"].has_nulls():
        return None
    order = counted["position"].to_numpy()
    _check_curves(parts, common)
    shares = _stack(parts, common.share)[order]
    drops = _stack(parts, common.drop)[order]
    ends = _find_smallest(counted, shares[:, -1])
    areas = compute_area_up_to(shares, drops, ends)
    # where nothing is replaced, nothing is lost
    means = areas / np.where(ends > 0, ends, 1.0)
    columns = counted.select(_KEYS).with_columns(
        pl.Series(SHARE, ends),
        pl.Series(DROP, means),
    )
    return results.frame.join(columns, on=_KEYS, how="left", maintain_order="left")


def _check_curves(parts: Sequence[Part], common: CommonShare) -> None:
    """Raise `ArgumentError` unless arrays are numbers `(N, K)` of one K above 0: a file may have any."""
    stored = [arrays[name] for *_, arrays in parts for name in (common.share, common.drop)]
    are_numbers = all(array.ndim == 2 and array.dtype.kind in "fiu" for array in stored)
    are_alike = False
    if are_numbers:
        lengths = {array.shape[1] for array in stored}
        are_alike = len(lengths) == 1 and 0 not in lengths
    argument = f"arrays {common.share} and {common.drop}"
    shapes = sorted({f"{array.dtype} {array.shape}" for array in stored})
    check(are_alike, argument, "numbers of shape (N, K), with one K for all", "; ".join(shapes))


def _stack(parts: Sequence[Part], name: str) -> Array:
    """An array of all parts, one below the other."""
    return np.concatenate([arrays[name] for *_, arrays in parts])


def _find_smallest(counted: pl.DataFrame, last_shares: Array) -> Array:
    """The smallest last share of each sample and repeat, over the explainers that replace anything; else 0."""
    # an explainer that replaces nothing would leave nothing to compare
    counting = np.where(last_shares > 0, last_shares, np.inf)
    rows = counted.with_columns(pl.Series("last", counting))
    smallest = rows.select(pl.col("last").min().over("repeat", "sample"))
    ends = smallest["last"].to_numpy()
    return np.where(np.isfinite(ends), ends, 0.0)


def _find_arrays(results: MetricResults, parts: Sequence[Part]) -> pl.DataFrame:
    """The rows that count, by their keys, with the place of their arrays among those of all parts; null without any."""
    stored = []
    for explainer, repeat, start, arrays in parts:
        count = len(next(iter(arrays.values())))
        samples = pl.DataFrame({"sample": range(start, start + count)})
        rows = samples.with_columns(
            explainer=pl.lit(explainer),
            repeat=pl.lit(repeat, pl.Int64),
        )
        stored.append(rows)
    positions = pl.concat(stored).with_row_index("position")
    valid = results.spec.select_valid(results.frame).select(_KEYS)
    return valid.join(positions, on=_KEYS, how="left", maintain_order="left")
