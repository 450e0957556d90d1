"""Explainers that replace different shares of positions are compared by the mean drop up to a common share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from standfast.results.metric_results import MetricResults
from standfast.statistics.curves import compute_area_up_to
from standfast.tensors import Array
from standfast.value_spec import CommonShare, ValueSpec

#: the columns with the common share of each sample, and with the mean drop up to it
SHARE, DROP = "common_share", "common_drop"
_KEYS = ("explainer", "repeat", "sample")
#: explainer, repeat, first sample and arrays of a job, as `MetricResults.parts` gives them
Part = tuple[str, int, int, dict[str, Array]]


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
    if common is None or not any(len(view.present) > 1 for view in views):
        return None
    frames = [frame for view in views if (frame := measure_up_to_common_share(view, common)) is not None]
    if len(frames) < len(views):
        return None
    medians = [float(np.median(shares)) for frame in frames if len(shares := frame[SHARE].drop_nulls())]
    ends = dict.fromkeys(f"{end:.1%}" for end in (min(medians, default=0.0), max(medians, default=0.0)))
    caution = (
        "Explainers are compared up to the share of positions that all of them replace in a sample "
        f"(median {' to '.join(ends)}). {common.caution}"
    )
    spec = replace(views[0].spec, title=common.title, axis=common.axis, column=DROP, caution=caution.strip())
    return spec, frames


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
    if counted["place"].has_nulls():
        return None
    order = counted["place"].to_numpy()
    shares = np.concatenate([arrays[common.share] for *_, arrays in parts])[order]
    drops = np.concatenate([arrays[common.drop] for *_, arrays in parts])[order]

    # the smallest last share of each sample and repeat, over the explainers that replace anything
    last_shares = pl.Series("last", np.where(shares[:, -1] > 0, shares[:, -1], np.inf))
    smallest = counted.with_columns(last_shares).select(pl.col("last").min().over("repeat", "sample"))["last"]
    ends = np.where(np.isfinite(smallest.to_numpy()), smallest.to_numpy(), 0.0)

    means = compute_area_up_to(shares, drops, ends) / np.where(ends > 0, ends, 1.0)
    columns = counted.select(_KEYS).with_columns(pl.Series(SHARE, ends), pl.Series(DROP, means))
    return results.frame.join(columns, on=_KEYS, how="left", maintain_order="left")


def _find_arrays(results: MetricResults, parts: Sequence[Part]) -> pl.DataFrame:
    """The rows that count, by their keys, with the place of their arrays among those of all parts; null without any."""
    stored = []
    for explainer, repeat, start, arrays in parts:
        count = len(next(iter(arrays.values())))
        samples = pl.DataFrame({"sample": range(start, start + count)})
        stored.append(samples.with_columns(explainer=pl.lit(explainer), repeat=pl.lit(repeat, pl.Int64)))
    places = pl.concat(stored).with_row_index("place")
    valid = results.spec.select_valid(results.frame).select(_KEYS)
    return valid.join(places, on=_KEYS, how="left", maintain_order="left")
