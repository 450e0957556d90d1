"""From which of the user's columns scikit-learn's transformers make theirs, as far as they tell it.

`ColumnTransformer` says which columns a part gets, and where its results are. What a part makes of one column belongs
to that column, whatever it does. Where this tells less, all columns that reach a transformer are possible.

Trying says what a column does depend on, and this says on what it may depend. So this gives a one-hot column to its
owner where its category is in no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: for each column, the numbers of the user's columns that it may depend on
Origins = list[frozenset[int]]


def trace_origins(transformers: Sequence[Any], labels: Sequence[Any], width: int) -> Origins | None:
    """The user's columns on which each encoded column may depend; None where the transformers do not tell.

    Args:
        transformers: fitted, in their order.
        labels: of the user's columns, as the frame has them.
        width: the number of encoded columns.

    >>> trace_origins([], ["age", "town"], 2)
    [frozenset({0}), frozenset({1})]
    """
    origins: Origins = [frozenset([number]) for number in range(len(labels))]
    traced = _trace_steps(transformers, origins, labels, width)
    if traced is not None and len(traced) == width:
        return traced
    return None


def _trace_steps(
    transformers: Sequence[Any], origins: Origins, labels: Sequence[Any] | None, width: int | None
) -> Origins | None:
    """Through transformers one after another; `width` is what the last one makes, if known."""
    for position, transformer in enumerate(transformers):
        is_last = position == len(transformers) - 1
        # of the results of a transformer, scikit-learn takes columns by their order
        labels_before = labels if position == 0 else None
        width_after = width if is_last else None
        traced = _trace(transformer, origins, labels_before, width_after)
        if traced is None:
            return None
        origins = traced
    return origins


def _trace(
    transformer: Any, origins: Origins, labels: Sequence[Any] | None, width: int | None
) -> Origins | None:
    """The origins of what one transformer makes of columns with these origins; `width` is their number, if known."""
    # by names, so that scikit-learn is not imported
    kinds = {base.__name__ for base in type(transformer).__mro__}
    if transformer is None or transformer == "passthrough":
        return origins
    if "Pipeline" in kinds:
        return _trace_steps([step for _, step in transformer.steps], origins, labels, width)
    if "ColumnTransformer" in kinds:
        return _trace_parts(transformer, origins, labels)
    if "FeatureUnion" in kinds:
        return _trace_union(transformer, origins, labels)
    if hasattr(transformer, "get_support"):
        return [origins[number] for number in transformer.get_support(indices=True)]
    return _trace_results(transformer, origins, width)


def _trace_results(transformer: Any, origins: Origins, width: int | None) -> Origins | None:
    """The columns of which a single transformer makes each of its own: all that it gets, unless it says more."""
    width = _count_results(transformer) if width is None else width
    # of a single column all results are its own
    counts = None
    if len(origins) > 1:
        counts = _count_by_column(transformer, len(origins))
    if counts is not None:
        repeated: Origins = []
        for origin, count in zip(origins, counts, strict=True):
            repeated.extend([origin] * count)
        return repeated
    if width is None:
        return None
    return [frozenset().union(*origins)] * width


def _trace_parts(
    transformer: Any, origins: Origins, labels: Sequence[Any] | None
) -> Origins | None:
    """Through the parts of a `ColumnTransformer`, each of which gets some columns and fills a slice of the results."""
    fitted_labels = list(getattr(transformer, "feature_names_in_", range(len(origins))))
    # of a frame, columns are found by their names
    if labels is not None and set(labels) == set(fitted_labels):
        origins = [origins[list(labels).index(label)] for label in fitted_labels]
    slices = transformer.output_indices_
    width = max((part.stop for part in slices.values()), default=0)
    results: Origins = [frozenset()] * width
    for name, part, columns in transformer.transformers_:
        filled = slices.get(name, slice(0, 0))
        numbers = _find_numbers(columns, fitted_labels)
        count = filled.stop - filled.start
        if count == 0:
            continue
        if numbers is None:
            return None
        traced = _trace(part, [origins[number] for number in numbers], None, count)
        if traced is None or len(traced) != count:
            return None
        results[filled] = traced
    return results


def _find_numbers(columns: Any, labels: list[Any]) -> list[int] | None:
    """Which columns a part of a `ColumnTransformer` gets, by number; None for a form that is not known."""
    # a slice by names includes its end, which scikit-learn alone knows
    if isinstance(columns, slice):
        ends = (columns.start, columns.stop)
        is_by_label = any(isinstance(end, str) for end in ends)
        if is_by_label:
            return None
        return list(range(len(labels)))[columns]
    if isinstance(columns, str | int):
        names = [columns]
    else:
        names = list(columns)
    # a mask; True and False are numbers, too
    if names and all(isinstance(name, bool | np.bool_) for name in names):
        return np.flatnonzero(names).tolist()
    if all(isinstance(name, str) for name in names):
        if set(names) <= set(labels):
            return [labels.index(name) for name in names]
        return None
    return [int(name) for name in names]


def _trace_union(union: Any, origins: Origins, labels: Sequence[Any] | None) -> Origins | None:
    """Through the parts of a `FeatureUnion`, each of which gets all columns."""
    results: Origins = []
    for _, part in union.transformer_list:
        if part == "drop":
            continue
        traced = _trace(part, origins, labels, None)
        if traced is None:
            return None
        results.extend(traced)
    return results


def _count_by_column(transformer: Any, width: int) -> list[int] | None:
    """How many columns a transformer makes of each, if it treats each column alone and says so."""
    kinds = {base.__name__ for base in type(transformer).__mro__}
    if "OneHotEncoder" in kinds:
        return _count_one_hot(transformer)
    is_identity = "FunctionTransformer" in kinds and transformer.func is None
    if is_identity or "OneToOneFeatureMixin" in kinds:
        same_width = _count_results(transformer) == width
        return [1] * width if same_width else None
    return None


def _count_one_hot(encoder: Any) -> list[int]:
    """The columns that a `OneHotEncoder` makes of each: rare categories share one, and one may be dropped."""
    counts = [len(categories) for categories in encoder.categories_]
    rare = getattr(encoder, "infrequent_categories_", None)
    for number, categories in enumerate(rare or []):
        if categories is not None and len(categories):
            counts[number] -= len(categories) - 1
    dropped = encoder.drop_idx_
    if dropped is not None:
        counts_left = []
        for count, index in zip(counts, dropped, strict=True):
            counts_left.append(count - (index is not None))
        counts = counts_left
    return counts


def _count_results(transformer: Any) -> int | None:
    """The number of columns that a transformer makes; None where it does not tell."""
    try:
        return len(transformer.get_feature_names_out())
    except Exception:  # it may have no such method, or none that knows
        return None
