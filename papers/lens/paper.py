"""Numbers of the LENS paper, typed from its tables.

Kamath, Mittal, Deshpande and Balasubramanian, "Rethinking robustness of model attributions" (AAAI 2024). Its figures
print no numbers; some of them are in tables. `SURVEY` (Tables 1 and 9) is a survey of people: it is quoted, not
compared with our numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

#: the columns of Tables 4 and 7, in order
HEADINGS = (
    "top-k intersection",
    "1-LENS-recall@k",
    "1-LENS-prec@k",
    "top-k-div",
    "1-LENS-recall@k-div",
    "1-LENS-prec@k-div",
)
ATTACKS = ("top-k", "mass center", "random")
TRAININGS = ("natural", "PGD", "IG-SUM-NORM")

#: data set: perturbation: top-k intersection, Spearman's rho, Kendall's tau; IG, naturally trained
TABLE3: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "MNIST": {"random": (0.7500, 0.5347, 0.4337), "universal random": (0.5855, 0.4831, 0.4063)},
    "Fashion-MNIST": {"random": (0.5385, 0.6791, 0.5152), "universal random": (0.5280, 0.7154, 0.5688)},
    "GTSRB": {"random": (0.8216, 0.9433, 0.8136), "universal random": (0.9293, 0.9887, 0.9243)},
}

#: data set: "training, attack": the six numbers; IG
TABLE4: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "MNIST": {
        "natural, top-k": (0.4635, 0.6209, 0.9427, 0.1680, 0.6592, 0.8126),
        "natural, mass center": (0.5779, 0.7146, 0.9572, 0.1708, 0.6183, 0.7191),
        "natural, random": (0.7384, 0.8790, 0.9808, 0.2046, 0.6774, 0.8140),
        "PGD, top-k": (0.5378, 0.6127, 0.9690, 0.2300, 0.6567, 0.8114),
        "PGD, mass center": (0.6077, 0.7133, 0.9700, 0.1907, 0.5894, 0.6801),
        "PGD, random": (0.6867, 0.8220, 0.9835, 0.1751, 0.6726, 0.7995),
        "IG-SUM-NORM, top-k": (0.6406, 0.7817, 0.9736, 0.2327, 0.6701, 0.7995),
        "IG-SUM-NORM, mass center": (0.7075, 0.8387, 0.9695, 0.2002, 0.6293, 0.7294),
        "IG-SUM-NORM, random": (0.7746, 0.9129, 0.9846, 0.1783, 0.6788, 0.8142),
    },
    "Fashion-MNIST": {
        "natural, top-k": (0.3841, 0.9118, 0.9361, 0.2132, 0.8404, 0.8857),
        "natural, mass center": (0.5624, 0.9333, 0.9370, 0.2961, 0.8034, 0.8277),
        "natural, random": (0.5378, 0.9377, 0.9500, 0.2716, 0.8337, 0.8825),
        "PGD, top-k": (0.7440, 0.9571, 0.9696, 0.3770, 0.8486, 0.8608),
        "PGD, mass center": (0.8543, 0.9659, 0.9721, 0.4323, 0.8249, 0.8357),
        "PGD, random": (0.8816, 0.9863, 0.9892, 0.3806, 0.8451, 0.8695),
        "IG-SUM-NORM, top-k": (0.6953, 0.9608, 0.9697, 0.3671, 0.8437, 0.8655),
        "IG-SUM-NORM, mass center": (0.8630, 0.9666, 0.9752, 0.4485, 0.8278, 0.8437),
        "IG-SUM-NORM, random": (0.8733, 0.9837, 0.9900, 0.3459, 0.8444, 0.8766),
    },
}

#: data set: "training, explainer": the six numbers; random sign. As printed, LRP of the PGD network on MNIST has the
#: same first three numbers as the natural network. The -div columns are named 1-LENS in the heading, 3-LENS in the
#: caption
TABLE7: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "MNIST": {
        "natural, Simple Gradient": (0.6548, 0.8872, 0.9355, 0.2431, 0.8724, 0.8942),
        "natural, Image x Gradient": (0.6887, 0.8590, 0.9791, 0.1640, 0.6725, 0.7735),
        "natural, LRP": (0.6887, 0.8590, 0.9791, 0.1640, 0.6725, 0.7733),
        "natural, DeepLIFT": (0.6896, 0.8602, 0.9792, 0.1642, 0.6725, 0.7724),
        "natural, GradSHAP": (0.6950, 0.8629, 0.9792, 0.1646, 0.6716, 0.7707),
        "natural, IG": (0.6978, 0.8636, 0.9795, 0.1654, 0.6717, 0.7705),
        "PGD, Simple Gradient": (0.4456, 0.7544, 0.9712, 0.1798, 0.8034, 0.8719),
        "PGD, Image x Gradient": (0.5355, 0.8102, 0.9853, 0.1620, 0.6788, 0.8037),
        "PGD, LRP": (0.6887, 0.8590, 0.9791, 0.2786, 0.8669, 0.9557),
        "PGD, DeepLIFT": (0.5387, 0.8111, 0.9855, 0.1626, 0.6795, 0.8056),
        "PGD, GradSHAP": (0.6831, 0.9164, 0.9835, 0.1611, 0.6684, 0.7619),
        "PGD, IG": (0.6729, 0.9359, 0.9847, 0.1671, 0.6641, 0.7573),
    },
    "Fashion-MNIST": {
        "natural, Simple Gradient": (0.5216, 0.8421, 0.8614, 0.2691, 0.8718, 0.8820),
        "natural, Image x Gradient": (0.5840, 0.9160, 0.9317, 0.2570, 0.8357, 0.8719),
        "natural, LRP": (0.5840, 0.9160, 0.9317, 0.2570, 0.8357, 0.8719),
        "natural, DeepLIFT": (0.5821, 0.9165, 0.9311, 0.2560, 0.8370, 0.8716),
        "natural, GradSHAP": (0.6075, 0.9208, 0.9377, 0.2641, 0.8391, 0.8717),
        "natural, IG": (0.6279, 0.9281, 0.9443, 0.2736, 0.8387, 0.8713),
        "PGD, Simple Gradient": (0.6036, 0.8374, 0.9362, 0.2974, 0.8202, 0.8696),
        "PGD, Image x Gradient": (0.6561, 0.9236, 0.9648, 0.3118, 0.8472, 0.8820),
        "PGD, LRP": (0.6561, 0.9236, 0.9648, 0.3118, 0.8472, 0.8820),
        "PGD, DeepLIFT": (0.6628, 0.9255, 0.9662, 0.3124, 0.8496, 0.8838),
        "PGD, GradSHAP": (0.6678, 0.9428, 0.9625, 0.3023, 0.8573, 0.8723),
        "PGD, IG": (0.7103, 0.9638, 0.9809, 0.3242, 0.8583, 0.8751),
    },
}

#: Tables 5 (Flower, 128 x 128, 2-LENS) and 6 (ImageNet, 227 x 227, 3-LENS): IG, naturally trained, k = 1000
TABLE5_NATURAL: Mapping[str, tuple[float, ...]] = {
    "top-k": (0.1789, 0.4091, 0.5128, 0.2355, 0.9482, 0.9560),
    "mass center": (0.4248, 0.7196, 0.6664, 0.2645, 0.9360, 0.9420),
    "random": (0.8206, 0.9709, 0.9747, 0.4613, 0.9741, 0.9778),
}
TABLE6: Mapping[str, tuple[float, ...]] = {
    "top-k": (0.0544, 0.2822, 0.3189, 0.0684, 0.7303, 0.7458),
    "mass center": (0.0869, 0.3994, 0.2082, 0.0914, 0.7221, 0.7114),
    "random": (0.3133, 0.8463, 0.8460, 0.2157, 0.8713, 0.8689),
}

#: Table 9, whose first row is Table 1: the attack, the shares of people (percent) who agree with 3-LENS-prec@k and with
#: top-k, and the top-1000 intersection and 3-LENS-prec@1000 of the images that they saw; IG, Flower
SURVEY: tuple[tuple[str, float, float, float, float], ...] = (
    ("top-k", 70.37, 29.63, 0.343, 0.928),
    ("top-k", 81.48, 18.52, 0.0805, 0.521),
    ("random", 93.55, 6.45, 0.357, 0.7965),
)


def quote_survey() -> str:
    """A note that quotes the survey."""
    shares = "; ".join(f"{attack} {lens:g}% against {top:g}%" for attack, lens, top, _, _ in SURVEY)
    return (
        "the paper's survey of people, which is not repeated here (Tables 1 and 9; share that agrees with 3-LENS-prec@k"
        f" against top-k, by the attack on the map): {shares}"
    )
