"""The words for corruption curves in a report: names, sentences, and how to read the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from standfast.report.presentation.coarse_to_fine.drops import TAU, Drops
from standfast.results.formatting import format_number


def describe_replacement(options: Mapping[str, Any]) -> str:
    """The replacement in words.

    >>> describe_replacement({"replacement": "constant"})
    'a constant'
    """
    kind = str(options.get("replacement", "gaussian"))
    return {
        "gaussian": "normal noise, clipped to the valid range of an input",
        "constant": "a constant",
        "sample": "the values of reference inputs at the same positions",
    }.get(kind, f"the values that `{kind}` returns")


def format_share(k: float) -> str:
    """A share in percent.

    >>> format_share(0.05), format_share(0.125)
    ('5%', '12.5%')
    """
    return f"{100 * k:g}%"


def describe_gate(drops: Drops) -> str:
    """Which explainers pass the gate, and which fail it although their area is larger; or why there is no gate."""
    if drops.random is None:
        return (
            "The gate could not be applied: the study has no explainer `random`. Read fine numbers with care: the "
            "drops of maps that say nothing also have a peak, at 0."
        )
    if not drops.gates:
        return (
            "The gate was not applied: there are no drops with the most relevant positions first, or only random maps."
        )
    failed = [name for name, gate in drops.gates.items() if not gate.passed]
    if not failed:
        return (
            "All pass the gate: up to the share of positions that both replace, their area is demonstrably larger "
            f"than that of {drops.random}. {drops.random} is grey, because its fine numbers have no meaning."
        )
    grey = f"Grey, because their fine numbers do not count: {', '.join([*failed, drops.random])}."
    if all(math.isnan(drops.gates[name].low) for name in failed):
        return f"{grey} There are too few samples to tell an area from that of {drops.random}.{_warn_of_length(drops)}"
    return (
        f"{grey} Up to the share of positions that both replace, their area is not demonstrably larger than that of "
        f"{drops.random}, so the shape of the distribution has no meaning.{_warn_of_length(drops)}"
    )


def _warn_of_length(drops: Drops) -> str:
    if not drops.above_by_length:
        return ""
    return (
        f" The whole AUC top of {', '.join(drops.above_by_length)} is larger, but that may be due to the number of "
        "positive positions alone."
    )


def explain_terms(options: Mapping[str, Any]) -> dict[str, str]:
    """The terms of a corruption curve, and what they mean."""
    drop = (
        "A growing share k of the positions with positive relevance is replaced, the most relevant first (*top*) or "
        f"the least relevant first (*bottom*), by {describe_replacement(options)}. The drop is the lost share of the "
        "class's probability: 1 if all of it is lost, 0 if nothing is, and below 0 if it has grown. The area is the "
        "area under the drop over the share of *all* positions that were replaced; after the last point the curve "
        "stays constant. It measures faithfulness to the model."
    )
    terms = {"Drop and its area": drop}
    terms["AUC top, AUC bottom, F1"] = (
        "The coarse numbers: the areas under the *mean* drop over the mean share of corrupted positions, and `F1`, "
        "which combines them: the harmonic mean of AUC top and 1 minus AUC bottom, at most 1. The paper prints it "
        "without the factor 2, so that it is at most 0.5: `F1 as printed`. Where few positions are positive, both "
        "areas come mostly from the constant end of the curve, and are close to each other."
    )
    terms["Same share"] = (
        "A map with more positive positions has a larger area for that reason alone, because its curve goes on where "
        "others stay constant. `same share` is the mean drop only up to the share of positions that every explainer "
        "replaces, controls included, so that all explainers are compared for as many replaced positions. Medians, "
        "ranks and tests use the mean drop of each sample up to the share in this sample (`common_drop`, "
        "`common_share`); the table of coarse numbers uses the mean curve over all samples."
    )
    terms["Drops by share"] = (
        "The distribution over samples, with one row for each k. It is best if all of it is far to the right, at 1, "
        "from a small k on. Two peaks: the map finds what matters in some samples and not in others, which the mean "
        "does not show. All of it at 0: the map does not find it in any sample. The rows say more than any number "
        "computed from them."
    )
    terms["Coarse before fine"] = (
        "Whether a map finds what matters in *every* sample is visible in the shape of that distribution: a skewness "
        "below 0 (a tail to the left) and a kurtosis above 0 (a sharp peak) are best *if the peak is at 1*. The drops "
        "of a map that finds nothing also have a peak, at 0: in the paper's own Table E.I, KernelSHAP has the worst "
        "areas and the best kurtosis. So both numbers are grey unless the area up to the share of positions that both "
        "replace is demonstrably larger than that of `random` maps (the *gate*: a 95% interval of the paired "
        "difference, by bootstrap and by Student's t, lies above 0). Random maps are positive in half of their "
        "positions. By the whole area, even random maps that are positive everywhere would pass. An explainer that "
        "passes the gate may still have its peak elsewhere than at 1: look at the drops by share."
    )
    terms["Numbers without a gate"] = (
        f"The share of samples with a drop of at least {format_number(TAU, 1)}, and the lower quartile of the drops: "
        "three quarters of the samples lose at least that much. A peak at 0 cannot make them large. Higher "
        "is better in both."
    )
    terms["Areas and scales"] = (
        "`AUC skew` is 1 minus the area under the rescaled skewness over k, `AUC kurt` the area under the rescaled "
        "kurtosis; higher is better in both. `absolute scale`: rescaled to [0, 1] by a fixed function, so that values "
        "of different studies can be compared. `compared scale`: rescaled by the least and the largest value of the "
        "compared explainers, as published; such a value depends on the other explainers in the table."
    )
    if str(options.get("replacement", "gaussian")) != "constant":
        terms["Paired replacements"] = (
            "A sample gets the same replacements under every explainer and in both orders. They depend on the sample "
            "and the seed only: one field of values over the whole input for each random draw (`samples`). `std_error` "
            "is the standard error due to these draws."
        )
    return terms
