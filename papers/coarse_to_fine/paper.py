"""Table E.I of "Revisiting the robustness of post-hoc interpretability methods" (2024), as printed, and its names."""

from __future__ import annotations

from collections.abc import Mapping

#: IG, DeepLIFT, DeepSHAP, GradientSHAP, KernelSHAP, Shapley value sampling
SIX = ("IG", "DL", "DS", "GS", "KS", "SVS")
NETWORKS = ("CNN", "BiLSTM", "Transformer")

#: headings by the names of our columns
STARRED = {
    "starred_auc_top": "AUC_top*",
    "starred_f1": "F1*",
    "starred_auc_skewness": "AUCSkew*",
    "starred_auc_kurtosis": "AUCKurt*",
}

#: mean and standard deviation over the data without noise and with noise of 20, 15 and 10 dB, with five repeats each
_TABLE_E1: dict[str, dict[str, str]] = {
    "starred_auc_top": {
        "CNN": "0.73±0.07 0.72±0.11 0.95±0.05 0.73±0.06 0.00±0.00 0.99±0.02",
        "BiLSTM": "0.72±0.03 0.31±0.10 0.38±0.12 0.49±0.05 0.00±0.00 1.00±0.00",
        "Transformer": "0.74±0.13 0.75±0.16 0.84±0.25 0.64±0.21 0.00±0.00 0.95±0.06",
    },
    "starred_f1": {
        "CNN": "0.55±0.03 0.61±0.09 1.00±0.00 0.52±0.03 0.00±0.00 0.74±0.03",
        "BiLSTM": "0.72±0.04 0.31±0.09 0.39±0.11 0.49±0.04 0.00±0.00 1.00±0.00",
        "Transformer": "0.74±0.15 0.73±0.14 0.81±0.25 0.61±0.20 0.00±0.00 0.97±0.06",
    },
    "starred_auc_skewness": {
        "CNN": "0.70±0.05 0.69±0.07 0.95±0.05 0.68±0.06 0.00±0.00 0.99±0.01",
        "BiLSTM": "0.66±0.04 0.37±0.07 0.44±0.08 0.47±0.04 0.00±0.00 1.00±0.00",
        "Transformer": "0.48±0.15 0.58±0.19 0.72±0.33 0.45±0.15 0.00±0.00 0.93±0.13",
    },
    "starred_auc_kurtosis": {
        "CNN": "0.08±0.07 0.09±0.12 0.71±0.21 0.07±0.08 0.97±0.07 0.76±0.16",
        "BiLSTM": "0.09±0.06 0.04±0.03 0.03±0.02 0.00±0.01 0.99±0.02 0.65±0.23",
        "Transformer": "0.10±0.13 0.30±0.26 0.56±0.42 0.19±0.11 0.57±0.40 0.64±0.30",
    },
}


def read_cells(column: str) -> dict[str, str]:
    """The cells of a column of the paper, by our rows, "network, explainer".

    >>> read_cells("starred_f1")["CNN, DS"]
    '1.00 ± 0.00'
    """
    return {
        f"{network}, {name}": cell.replace("±", " ± ")
        for network, row in _TABLE_E1[column].items()
        for name, cell in zip(SIX, row.split(), strict=True)
    }


def read_means(column: str, network: str) -> Mapping[str, float]:
    """The paper's means for a network, by explainer.

    >>> read_means("starred_auc_top", "CNN")["SVS"]
    0.99
    """
    return {name: float(cell.split("±")[0]) for name, cell in zip(SIX, _TABLE_E1[column][network].split(), strict=True)}
