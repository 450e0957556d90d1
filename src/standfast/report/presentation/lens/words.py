"""Names and explanations of what a report shows of an attack on attributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from standfast.similarity.diverse import resolve_k

_ATTACKS = {
    "top_k": "Steps along the sign of the gradient reduce the attribution of the positions that had the most of it "
    "(Ghorbani, Abid and Zou, 2019).",
    "mass_centre": "Steps along the sign of the gradient move the map's centre of mass (Ghorbani, Abid and Zou, 2019).",
    "target": "Steps along the sign of the gradient increase the attribution within a box (Ghorbani, Abid and Zou, "
    "2019).",
    "lens": "Steps along the sign of the gradient move attribution out of the windows around the positions that had "
    "the most of it, not only off these positions. Ours; meant to reduce LENS-precision and LENS-recall.",
    "random_sign": "Every feature moves by the radius, up or down at random, drawn for each input. The attack uses no "
    "gradient, so its effect is that of noise. If it reduces a similarity as far as another attack, that attack is no "
    "stronger than noise.",
    "universal": "Every feature moves by the radius, up or down at random, by the same draw for all inputs. The attack "
    "uses no gradient, so its effect is that of noise.",
}


def similarities_of(options: Mapping[str, Any]) -> list[str]:
    """The names of the similarities that were asked for, which are columns of the frame."""
    return [str(name) for name in options.get("similarities") or ()]


def name_similarity(similarity: str) -> str:
    """A LENS similarity or an intersection as the paper writes it; any other similarity by its name.

    >>> [name_similarity(name) for name in ("lens_precision:k=100,w=2,diverse=true", "topk_intersection:k=0.05", "mse")]
    ['2-LENS-prec@100-div', 'top-5% intersection', 'mse']
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
    """The k largest positions in words; as a number where the shape of the inputs is known.

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


def overlap_by_chance(shape: tuple[int, ...], k: int, w: int) -> float:
    """The mean LENS-precision, and recall, of two unrelated maps, whose top k are two sets drawn at random.

    A window with n positions, cut off at the border, has none of the k drawn from P with probability
    C(P - n, k) / C(P, k). This is averaged over all positions; for w = 0 the result is k / P.

    >>> [round(overlap_by_chance((1, 28, 28), 78, w), 4) for w in (0, 1)]
    [0.0995, 0.592]
    """
    sides, total = shape[1:] if len(shape) > 1 else shape, positions_of(shape)
    members = np.ones(1, dtype=int)
    for side in sides:
        place = np.arange(side)
        members = np.outer(members, np.minimum(place + w, side - 1) - np.maximum(place - w, 0) + 1).ravel()
    free, how_often = np.unique(members, return_counts=True)
    none = [np.log1p(-n / (total - np.arange(k))).sum() if n <= total - k else -np.inf for n in free]
    return float(1 - (np.exp(none) * how_often).sum() / total)


def explain_terms(options: Mapping[str, Any]) -> dict[str, str]:
    """Terms of the guide; of the attacks only the one that was run."""
    name, settings = attack_of(options)
    guided = name not in ("random_sign", "universal")
    return {
        "Top-k intersection": "Share of the k positions with the largest attributions that are also among the k "
        "largest after the attack. Attributions are absolute where `absolute` holds, and channels are added. A "
        "position that moved to the next pixel counts as lost. Of equal attributions the upper left one comes first; "
        "if fewer than k attributions differ from zero, the others are arbitrary. A similarity takes a tenth of the "
        "positions unless its name has a number. Curves, pictures and the sentence on shifts take the metric's own "
        "`k`.",
        "LENS-precision and LENS-recall (`w-LENS-prec@k`, `w-LENS-recall@k`)": "Locality-sensitive forms of the "
        "intersection. Precision is the share of the top k before that lie within w positions, along each axis, of one "
        "of the top k after. Recall is the share of the top k after that lie within w of one before. At w = 0 both are "
        "the intersection, and they never fall as w grows. Larger k and w also increase them for unrelated maps. The "
        "charts show what two sets drawn at random would reach; a value near that says nothing for the explainer.",
        "Above chance": "(mean - chance) / (1 - chance). Chance is the mean similarity of unrelated maps with the same "
        "values, at random places among those where a map is not 0. 0 is the level of unrelated maps, 1 that of equal "
        "maps. If unrelated maps have more than 0.95, there is no such number.",
        "Diverse (`-div`)": "The k positions are picked one by one, the largest first, none within w of one picked "
        "before, so that they cover all important parts instead of one. Where fewer fit, shares refer to as many as "
        "there are. The windows of diverse positions soon cover the whole input, and then any two maps are similar. "
        "The lines under the pictures say how much they cover.",
        "A shift of a pixel or two": "Apparent fragility is the share of the top k that is no longer in the top k "
        "after the attack. By the mean of LENS-precision and LENS-recall, a part of it lies within one (two) "
        "positions. This part was a shift, which the intersection cannot distinguish from a different map.",
        f"Attack (`{name}{settings}`)": _ATTACKS.get(name, "")
        + (
            " It is a search with a limited budget. Its result is the best point of all starts and steps "
            "at which the class is kept. It *proves fragility and never robustness*: a good value may only mean that "
            "the search was weak, and an attack that aims at another similarity might reduce that one further."
            if guided
            else " The class may be lost, see below."
        ),
        "Class kept (`label_kept`)": "Whether the perturbed input is still in the class. Where it is not, the model is "
        "the reason for the change of the map, and the sample does not count. Where no other input of the class was "
        "found, the clean input is compared with itself and counts as unchanged.",
        "Which to believe": "In the authors' survey on pictures of flowers, 70% of the answers agreed with "
        "3-LENS-precision and not with the top-k intersection (Kamath et al., AAAI 2024, Table 1). The survey was "
        "about images only. If a shift by one position matters to you, as in a short series or a table, use the "
        "intersection.",
    }
