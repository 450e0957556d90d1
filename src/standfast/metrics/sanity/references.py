"""What metrics give for maps that have nothing in common, or little: their natural zero."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from standfast.metrics.base import Metric
from standfast.metrics.sanity.pairs import cut_pairs, exchange, pair_samples, sum_first, sum_pairs
from standfast.metrics.sanity.samples import ExplainedSamples

Pairs = tuple[Tensor, Tensor]


def compare_references(
    metrics: Mapping[str, Metric], samples: ExplainedSamples, scrambled: Tensor | None
) -> dict[str, Tensor]:
    """For each metric its value for pairs of maps of several kinds, `(N,)` each, under the kind and its label.

    Args:
        metrics: by label.
        samples: with their maps.
        scrambled: maps of scrambled models, `(n, ...)`.
    """
    values: dict[str, Tensor] = {}
    for label, metric in metrics.items():
        for kind, pairs in _choose_pairs(samples, scrambled).items():
            if scrambled is not None and kind == "scrambled":
                others = scrambled
            else:
                others = samples.maps
            of_samples = _compare_kind(metric, kind, pairs, samples, others)
            if of_samples is not None:
                values[f"{kind} {label}"] = samples.probe.scatter_to_all(of_samples)
    return values


def _choose_pairs(samples: ExplainedSamples, scrambled: Tensor | None) -> dict[str, Pairs]:
    """The pairs of samples of each kind; those of scrambled maps have the same sample twice."""
    classes = samples.classes
    numbers = torch.arange(len(samples), device=samples.rows.device)
    kinds = {"unrelated": pair_samples(classes)}
    if bool((classes != classes[:1]).any()):  # else the same pairs would stand under two names
        kinds["same class"] = pair_samples(classes, same=True)
    kinds["identical"] = (numbers, numbers)
    if scrambled is not None:
        kinds["scrambled"] = (numbers, numbers)
    return kinds


def _compare_kind(
    metric: Metric, kind: str, pairs: Pairs, samples: ExplainedSamples, others: Tensor
) -> Tensor | None:
    """The mean value of the pairs of each sample `(n,)`; None if the metric does not compare maps."""
    both_ways = metric.compares_in_order and kind in ("unrelated", "same class")
    first, second = exchange(*pairs) if both_ways else pairs
    parts = []
    for part in cut_pairs(first, others):
        one_of_pair = samples.maps[first[part]]
        values = metric.compare_unrelated(one_of_pair, others[second[part]])
        if values is not None:
            parts.append(values.double())
    if not parts:
        return None
    of_pairs = torch.cat(parts)
    if kind == "unrelated":
        _warn_of_misuse(metric, float(of_pairs.mean()), samples)
    if both_ways:  # each sample has the pairs in which it stands first, as in the metric itself
        sums, weights = sum_first(of_pairs, first, len(samples))
    else:
        sums, weights = sum_pairs(of_pairs, first, second, len(samples))
    return sums / weights


def _warn_of_misuse(metric: Metric, unrelated: float, samples: ExplainedSamples) -> None:
    misuse = metric.describe_misuse(unrelated)
    if misuse:
        samples.model.warn_once(f"{samples.explainer.label}: {misuse}")
