"""What a report calls the parts of an attack on attributions, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.similarity.diverse import resolve_k

_ATTACKS = {
    "top_k": "Steps along the sign of the gradient take attribution away from the positions that had the most of it "
    "(Ghorbani, Abid and Zou, 2019).",
    "mass_center": "Steps along the sign of the gradient move the map's centre of mass (Ghorbani, Abid and Zou, 2019).",
    "target": "Steps along the sign of the gradient raise the attribution within a box (Ghorbani, Abid and Zou, 2019).",
    "lens": "Steps along the sign of the gradient push attribution out of the windows around the positions that had "
    "the most of it, not only off them. Ours; meant to lower LENS-precision and LENS-recall.",
    "random_sign": "Every feature moves by the radius, up or down by lot, drawn for each input. It follows nothing: "
    "what it moves, noise moves. A similarity that it lowers as far as an attack does says little of attacks.",
    "universal": "Every feature moves by the radius, up or down by lot, by the same draw for all inputs. It follows "
    "nothing: what it moves, noise moves.",
}


def similarities_of(options: Mapping[str, Any]) -> list[str]:
    """The names of the similarities that were asked for, which are columns of the frame."""
    return [str(name) for name in options.get("similarities") or ()]


def called(similarity: str) -> str:
    """A similarity as the paper writes it; any other by its name.

    >>> called("lens_precision:k=100,w=2,diverse=true"), called("topk_intersection:k=0.05"), called("pearson")
    ('2-LENS-prec@100-div', 'top-5% intersection', 'pearson')
    """
    name, _, rest = similarity.partition(":")
    kind = {"lens_precision": "prec", "lens_recall": "recall", "lens_spearman": "Spearman", "lens_kendall": "Kendall"}
    if name != "topk_intersection" and name not in kind:
        return similarity
    given = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in rest.split(",") if part)}
    k, w = _count(given.pop("k", "k")), given.pop("w", "1")
    diverse = "-div" if given.pop("diverse", "false").lower() == "true" else ""
    if name == "topk_intersection":
        text = f"top-{k}{diverse} intersection"
        given |= {"w": w} if diverse and w != "1" else {}
    elif name in ("lens_precision", "lens_recall"):
        text = f"{w}-LENS-{kind[name]}@{k}{diverse}"
    else:
        text = f"{w}-LENS-{kind[name]}"
    return f"{text} ({', '.join(f'{key}={value}' for key, value in given.items())})" if given else text


def _count(k: str) -> str:
    """Shares as percentages."""
    return f"{100 * float(k):g}%" if "." in k or "e" in k.lower() else k


def attack_of(options: Mapping[str, Any]) -> tuple[str, str]:
    """The attack's name, and its settings in brackets after a blank, if it has any.

    >>> attack_of({"attack": "top_k:t=200"}), attack_of({"attack": {"name": "lens", "k": None, "w": 2}})
    (('top_k', ' (t=200)'), ('lens', ' (w=2)'))
    """
    attack = options.get("attack", "top_k")
    if isinstance(attack, Mapping):
        name = str(attack.get("name", "?"))
        given = [f"{key}={value}" for key, value in attack.items() if key != "name" and value is not None]
        return name, f" ({', '.join(given)})" if given else ""
    name, _, rest = str(attack).partition(":")
    return name, f" ({rest})" if rest else ""


def positions_of(shape: tuple[int, ...]) -> int:
    """How many positions maps of inputs of that shape have: pixels, steps of a series, or features.

    >>> positions_of((3, 28, 28)), positions_of((2, 30)), positions_of((9,))
    (784, 30, 9)
    """
    return math.prod(shape[1:]) if len(shape) > 1 else math.prod(shape)


def unit_of(shape: tuple[int, ...] | None) -> str:
    """What a position is: a pixel, a step of a series, a feature; a position where the shape is not known."""
    return "position" if shape is None else {1: "feature", 2: "step", 3: "pixel"}.get(len(shape), "position")


def top_of(options: Mapping[str, Any], shape: tuple[int, ...] | None = None) -> str:
    """The k largest positions in words, as a number where the shape of the inputs is known.

    >>> top_of({"k": None}), top_of({"k": None}, (1, 28, 28)), top_of({"k": 50})
    ('top 10% of the positions', 'top 78 pixels', 'top 50 positions')
    """
    k = options.get("k")
    if shape is not None:
        k = resolve_k(k, positions_of(shape))
        return f"top {k} {unit_of(shape)}s" if k > 1 else f"top {unit_of(shape)}"
    if isinstance(k, int):
        return f"top {k} positions" if k > 1 else "top position"
    return f"top {100 * (0.1 if k is None else k):g}% of the positions"


def by_chance(shape: tuple[int, ...], k: int, w: int) -> float:
    """What LENS-precision, and recall, of two unrelated maps is on average, whose top k are scattered by lot.

    A position with n positions in its window, cut off at the border, has none of k drawn from P in it with probability
    C(P - n, k) / C(P, k). Averaged over all positions; for w = 0 this is k / P.

    >>> round(by_chance((1, 28, 28), 78, 0), 4), round(by_chance((1, 28, 28), 78, 1), 2), by_chance((1, 4), 4, 2)
    (0.0995, 0.59, 1.0)
    """
    sides, total = shape[1:] if len(shape) > 1 else shape, positions_of(shape)
    members = np.ones(1, dtype=int)
    for side in sides:
        place = np.arange(side)
        members = np.outer(members, np.minimum(place + w, side - 1) - np.maximum(place - w, 0) + 1).ravel()
    free, how_often = np.unique(members, return_counts=True)
    none = [np.log1p(-n / (total - np.arange(k))).sum() if n <= total - k else -np.inf for n in free]
    return float(1 - (np.exp(none) * how_often).sum() / total)


def meanings(options: Mapping[str, Any]) -> dict[str, str]:
    """Terms of the guide; of the attacks only the one that was run."""
    name, settings = attack_of(options)
    followed = name not in ("random_sign", "universal")
    return {
        "Top-k intersection": "Share of the k positions with the largest attributions that are among the k largest "
        "after the attack too, by absolute attributions where `absolute` holds, channels added. A position that moved "
        "to the next pixel counts as lost. Of equal attributions the upper left one comes first: where fewer than k "
        "are not zero, the rest says nothing. A similarity takes a tenth of the positions unless its name has a "
        "number; curves, pictures and the sentence on shifts take the metric's own `k`.",
        "LENS-precision and LENS-recall (`w-LENS-prec@k`, `w-LENS-recall@k`)": "Locality-sensitive forms of it. "
        "Precision: the share of the top k before that lie within w positions, along each axis, of one of the top k "
        "after. Recall: the share of the top k after that lie within w of one before. At w = 0 both are the "
        "intersection, and they never fall as w grows. Windows are not free: the more positions and the wider, the "
        "more unrelated maps meet as well. The charts say what two sets scattered by lot would reach; a value near "
        "that says nothing for the explainer.",
        "Diverse (`-div`)": "The k positions are picked one by one, the largest first, none within w of one picked "
        "before, so that they spread over all important parts instead of crowding in one. Where fewer fit, shares are "
        "of as many as there are. Diverse windows soon cover the whole input, and then every two maps are alike: see "
        "under the pictures how much they cover.",
        "A shift of a pixel or two": "Apparent fragility is the share of the top k that the attack drove out. "
        " The part of it that lies within one (two) positions, by the mean of LENS-precision and LENS-recall, was "
        "a shift, which the intersection cannot tell from another map.",
        f"Attack (`{name}{settings}`)": _ATTACKS.get(name, "")
        + (
            " It is found by search with a limited budget, of all starts and steps the point that reached most, and "
            "the class is kept. It *proves fragility and never robustness*: a good value may only mean that the search "
            "was weak, and a similarity that the attack does not aim at might be driven lower by one that does."
            if followed
            else " The class may be lost, see below."
        ),
        "Class kept (`label_kept`)": "Whether the disturbed input is still in the class. Where it is not, the change "
        "of the map is no fault of the explainer, and the sample counts nowhere. Where no other input of the class was "
        "found, the input itself stands and counts as unmoved.",
        "Which to believe": "That people side with LENS is the authors' own finding (Kamath et al., AAAI 2024, "
        "Table 1): in their survey on pictures of flowers 70% of the answers agreed with 3-LENS-precision rather than "
        "with the top-k intersection. It was about images; where one position more or less matters to you, as in a "
        "short series or a table, read the intersection.",
    }
