"""`show`: maps over their inputs, or a single `Result` with the sample that says most against the explainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from standfast.errors import check
from standfast.report.plots.canvas import ESTIMATE, escape_text, import_pyplot, label_ticks
from standfast.report.plots.maps import Maps, draw_maps
from standfast.report.presentation.drawing import ALIGNED, read_swaps
from standfast.report.wording import describe_parameters
from standfast.results import format_number, registered_spec
from standfast.value_spec import ValueSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from standfast.metrics.result import Result

#: the arrays of a result that are pictures: clean inputs and their maps, perturbed inputs and theirs
PICTURES = ("origins", "origin_maps", "inputs", "maps")


def show(
    subject: Any,
    maps: Maps | None = None,
    *,
    features: Sequence[str] | None = None,
    tokens: Sequence[Sequence[str]] | None = None,
    titles: Sequence[str] | None = None,
    most: int = 8,
) -> list[Axes]:
    """Draw with matplotlib: explanations over the inputs that they explain, or the result of one metric.

    Of inputs and maps: a row for each sample, a column for each explainer. Images `(C, H, W)` are grey behind a map
    that is red where it is positive and blue where it is negative, next to the input itself. Series `(C, T)` are lines,
    one below the other, on the colour of their relevance. Tables `(F,)` are bars, the largest first. Text has a bar
    for each word, whose relevance is summed over the embedding where there is one. Positions of images and series where
    a map is NaN in all channels are hatched.

    Of a `Result`: a point for each sample, in the order of the values, with its interval. Where inputs and maps are
    stored, the sample with the worst value follows: the input and its map, the perturbed input and its map if there is
    one, and, where the metric moved that map back to the positions of the input, the map moved back.

    Args:
        subject: a `Result`; or inputs `(N, ...)`, or a single sample if `maps` are for a single one; or a `Dataset`,
            which brings features and tokens along.
        maps: attributions, shaped like the inputs; or a mapping from the names of explainers to them. None for a
            result.
        features: names of the columns of a table or of the channels of a series.
        tokens: the words of each sample, for texts `(W,)` and embedded texts `(dim, T)`.
        titles: a title for each sample of inputs.
        most: draw at most this many samples of inputs.

    Returns:
        The axes, in rows.

    Raises:
        ArgumentError: shapes do not match, or `maps` are missing, or given with a result.
        MissingExtraError: matplotlib is not installed (`pip install 'standfast[plot]'`).

    >>> import standfast, torch
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    >>> maps = {name: standfast.explainers.get(name)(model, digits.inputs) for name in ("saliency", "lrp")}
    >>> len(standfast.show(digits, maps))  # in each row the digit and two maps
    6
    >>> len(standfast.show(standfast.metrics.AOPC(steps=4)(model, "saliency", digits.inputs)))
    1
    """
    # a report is drawn without metrics, and a result is one of them
    from standfast.metrics.result import Result

    if isinstance(subject, Result):
        check(maps is None, "maps", "none with a result, which brings its own", type(maps).__name__)
        return _draw_result(subject, features, tokens)
    check(
        maps is not None,
        "maps",
        "attributions of the inputs, or a mapping from names to them",
        "none",
    )
    assert maps is not None
    return draw_maps(subject, maps, features=features, tokens=tokens, titles=titles, most=most)


def _draw_result(
    result: Result, features: Sequence[str] | None, tokens: Sequence[Sequence[str]] | None
) -> list[Axes]:
    spec = registered_spec(result.metric, result.options)
    plt = import_pyplot()
    _, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    rows = spec.select_valid(result.frame())
    _draw_values(axes, result, spec, rows)
    worst = find_worst(spec, rows)
    stored = result.tensors()
    if worst is None or not set(PICTURES[:2]) <= stored.keys():
        return [axes]
    row = rows.filter(sample=worst).row(0, named=True)
    pictures = {
        name: np.asarray(stored[name][worst].detach().cpu())
        for name in (*PICTURES, ALIGNED[0])
        if name in stored
    }
    inputs = [pictures["origins"]]
    maps = [pictures["origin_maps"]]
    titles = [f"sample {worst}"]
    if set(PICTURES) <= pictures.keys():
        inputs.append(pictures["inputs"])
        maps.append(pictures["maps"])
        titles.append(_describe_change(result, spec, row, inputs[0].shape))
        if ALIGNED[0] in pictures:
            # the map moved back belongs to the positions of the clean input
            inputs.append(inputs[0])
            maps.append(pictures[ALIGNED[0]])
            titles.append("map moved back\n(hatched: not seen)")
    words = None
    if tokens is not None:
        words = [tokens[worst]] * len(inputs)
    if words is not None and len(words) > 1:
        words[1] = _swap_words(words[0], row)
    drawn = draw_maps(
        np.stack(inputs), {"map": np.stack(maps)}, features=features, tokens=words, titles=titles
    )
    return [axes, *drawn]


def _describe_change(
    result: Result, spec: ValueSpec, row: Mapping[str, Any], shape: Sequence[int]
) -> str:
    """The title of a perturbed input: the value, and the parameters of the perturbation, one a line."""
    value = format_number(float(row[spec.column]), spec.decimals)
    parameters = describe_parameters(row, result.options, shape)
    lines = [f"perturbed, value {value}", *parameters.split(", ")]
    return "\n".join(filter(None, lines))


def _swap_words(words: Sequence[str], row: Mapping[str, Any]) -> list[str]:
    """The words of a perturbed text; a deleted one is in brackets."""
    changed_words = list(words)
    for position, new_word in read_swaps(row).items():
        changed_words[position] = new_word or f"({words[position]} deleted)"
    return changed_words


def find_worst(spec: ValueSpec, rows: Any) -> int | None:
    """The sample with the worst value, or, where no value is better, with the largest; None without values."""
    if not len(rows):
        return None
    largest_first = spec.direction != "higher"
    ordered = rows.sort(spec.column, descending=largest_first, maintain_order=True)
    return int(ordered["sample"][0])


def _draw_values(axes: Any, result: Result, spec: ValueSpec, rows: Any) -> None:
    """A point for each sample, in the order of the values, with its interval; a line at the median."""
    values = spec.values(rows)
    bounds = spec.bounds(rows)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    positions = np.arange(len(order))
    # only the value itself has an interval
    has_intervals = spec.column == "value" and {"low", "high"} <= set(rows.columns)
    if has_intervals and rows["low"].null_count() < len(rows):
        ends = [rows[name].fill_null(np.nan).to_numpy()[order] for name in ("low", "high")]
        low, high = ends
        finite_low = low[np.isfinite(low)]
        if len(finite_low):
            floor = finite_low.min()
        else:
            floor = ordered.min()
        bottom = np.where(np.isneginf(low), floor, low)
        axes.vlines(positions, bottom, high, color="0.6", lw=1.2)
    is_bound = bounds[order]
    axes.plot(positions[~is_bound], ordered[~is_bound], "o", ms=5, color=ESTIMATE, label="a sample")
    if is_bound.any():
        if spec.censored_side == "upper":
            side, shape = "at most", "v"
        else:
            side, shape = "at least", "^"
        label = f"{side} this value"
        axes.plot(
            positions[is_bound],
            ordered[is_bound],
            shape,
            ms=6,
            mec=ESTIMATE,
            mfc="white",
            label=label,
        )
    if len(ordered):
        middle = float(np.median(ordered))
        name = f"median {format_number(middle, spec.decimals)}"
        axes.axhline(middle, color="#D55E00", lw=1.2, label=name)
        axes.legend(fontsize=8, frameon=False)
    axes.set_xlabel("samples, in the order of their values")
    better = ""
    if spec.direction:
        better = f"\n({spec.direction} is better)"
    axes.set_ylabel(escape_text(spec.axis) + better)
    label_ticks(axes.yaxis, spec)
    skipped = len(result) - len(rows)
    left_out = f", {skipped} left out" if skipped else ""
    axes.set_title(
        escape_text(f"{result.metric}: {len(rows)} of {len(result)} samples{left_out}"), fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)
