"""What a report calls the parts of a corruption curve, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.presentation.base import format_number
from holdfast.presentation.coarse_to_fine.drops import TAU, Drops


def replaced_by(options: Mapping[str, Any]) -> str:
    """The replacement in words.

    >>> replaced_by({"replacement": "constant"})
    'a constant'
    """
    kind = str(options.get("replacement", "gaussian"))
    return {
        "gaussian": "normal noise, clipped to the valid range of an input",
        "constant": "a constant",
        "sample": "the entries of reference inputs at the same place",
    }.get(kind, f"what `{kind}` returns")


def percent(k: float) -> str:
    """A share as a row of ridges names it.

    >>> percent(0.05), percent(0.125)
    ('5%', '12.5%')
    """
    return f"{100 * k:g}%"


def gate_sentence(drops: Drops) -> str:
    """Who passes the gate, and who by the number of its positive positions; or why it could not be applied."""
    if drops.random is None:
        return (
            "The gate could not be applied: the study has no explainer `random`. Read fine numbers with care: maps "
            "that say nothing have peaked drops, too, at 0."
        )
    if not drops.gates:
        return "The gate was not applied: there are no drops of the most relevant positions, or only random maps."
    failed = [name for name, gate in drops.gates.items() if not gate.passed]
    if not failed:
        return (
            f"All pass the gate: their AUC top is demonstrably larger than that of {drops.random}, which is grey, as "
            f"its shape says nothing.{_longer(drops)}"
        )
    grey = f"Grey, as it does not count: {', '.join([*failed, drops.random])}."
    if all(math.isnan(drops.gates[name].low) for name in failed):
        return f"{grey} There are too few samples to tell an AUC top from that of {drops.random}.{_longer(drops)}"
    return (
        f"{grey} The AUC top is not demonstrably larger than that of {drops.random}, so the shape of the distribution "
        f"says nothing.{_longer(drops)}"
    )


def _longer(drops: Drops) -> str:
    if not drops.longer:
        return ""
    return (
        f" Caution: {', '.join(drops.longer)} may pass by the number of positive positions alone: where as many are "
        f"replaced as under {drops.random}, the area is not demonstrably larger."
    )


def guide(options: Mapping[str, Any]) -> dict[str, str]:
    """Terms."""
    drop = (
        "Of the positions with positive relevance a growing share k is replaced, the most relevant first (*top*) or "
        f"the least (*bottom*), by {replaced_by(options)}. The drop is the share of the class's probability that is "
        "lost: 1 is all of it, 0 nothing, and below 0 it has grown. The area is that under the drop over the share of "
        "*all* positions that were replaced, and held constant after the last. It measures faithfulness to the model."
    )
    terms = {"Drop and its area": drop}
    terms["AUC top, AUC bottom, F1"] = (
        "The coarse numbers: areas under the *mean* drop over the mean share of corrupted positions, and how both go "
        "together: `F1` is the harmonic mean of AUC top and 1 less AUC bottom, 1 at best. The paper prints it without "
        "its factor 2, so that 0.5 is the best: `F1 as printed`. Where few positions are positive, both areas are "
        "mostly the end of the curve, held on, and close to each other. The ranking is by each sample's own area, "
        "whose mean is not quite AUC top."
    )
    terms["Ridge lines"] = (
        "The distribution over samples, a row for each k. Best: all of it far to the right, at 1, from a small k on. "
        "Two humps: the map names what matters in some samples and fails in others, which the mean does not show. All "
        "of it at 0: it names nothing. A look into the rows tells more than any number made of them."
    )
    terms["Coarse before fine"] = (
        "Whether a map finds what matters in *every* sample is in the shape of that distribution: skewness below 0 (a "
        "tail to the left) and a kurtosis above 0 (a sharp peak) are best *if the peak is at 1*. A map that finds "
        "nothing has drops that are peaked, too, at 0: in the paper's own Table E.I KernelSHAP has the worst areas and "
        "the best kurtosis. So both are grey unless the area is demonstrably larger than that of `random` maps (the "
        "*gate*: a 95% BCa interval of the paired difference above 0). Passing it does not make a peak sit at 1: look "
        "at the ridge lines. Random maps are positive in half of their positions; a map with more of them has a larger "
        "area by that alone, as its curve goes on where theirs is held. `same share` compares the areas only up "
        "to the share of positions that both replace."
    )
    terms["What a peak at zero cannot fool"] = (
        f"The share of samples with a drop of at least {format_number(TAU, 1)}, and the lower quartile of the drops: "
        "three quarters of the samples lose at least that much. More is better in both, with no gate."
    )
    terms["Areas and scales"] = (
        "`AUC skew` is 1 less the area under the rescaled skewness over k, `AUC kurt` the area under the rescaled "
        "kurtosis; in both more is better. `absolute`: rescaled to [0, 1] by a fixed function, so that values of "
        "different studies can be compared. `compared`: by the least and the largest of the compared explainers, as "
        "published; then a value depends on who else is in the table."
    )
    if str(options.get("replacement", "gaussian")) != "constant":
        terms["Paired replacements"] = (
            "A sample gets the same replacements under every explainer, and for both orders: they come from the sample "
            "and the seed, one field over the whole input for each of the `draws`. `std_error` is what they leave open."
        )
    return terms
