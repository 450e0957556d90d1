"""SenC (sensitivity consistency): Fig. 4 (parameters), Fig. 5 (data), and each data set on its own.

The paper's estimator is biased (docs/senc-bias.md). So every table has the paper's and the centred estimator. The
paper's sentences are judged by both estimators. Every table also has controls: the random explainer, as in the paper,
and a copy of the input, its edges, and an explainer on the model with shuffled weights (docs/controls.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from papers.base import Claim, Column, Part, Reproduction, Scale, reproductions
from standfast.report.verdicts import describe_controls
from standfast.statistics.comparison import compare_with_controls

_GRADIENT = ("saliency", "guided backprop", "integrated gradients", "DeepLift", "LRP")
_EXPLAINERS: dict[str, Any] = {
    "saliency": "saliency",  # the paper's vanilla backpropagation
    "guided backprop": "guided_backprop",
    "integrated gradients": {"name": "integrated_gradients", "steps": 8},
    "LRP": "lrp",
    "Grad-CAM": "gradcam",
    "DeepLift": "deeplift",
}
_CONTROLS: dict[str, Any] = {
    "input copy": "input_copy",
    "edges": "edges",
    "randomised saliency": "randomised:saliency",
    "random": "random",
}
_COLUMNS = (Column("paper's estimator", "rho_paper"), Column("centred", "rho"))


@dataclass(frozen=True)
class _Setting:
    """A data set with our network, and the sizes of a small run: samples and masks, for data and for parameters."""

    data: str
    model: str
    title: str
    network: str
    small_data: tuple[int, int]
    small_parameters: tuple[int, int]
    layers: str | list[str]
    without: tuple[str, ...] = ()  # explainers that have no rules for a layer of the network


_MNIST = _Setting("mnist:test", "lenet5-mnist", "MNIST", "LeNet-5, 99.4% (98.5%)", (40, 1000), (12, 500), "all")
_CIFAR10 = _Setting(
    "cifar10:test",
    "resnet18w16-cifar10",
    "CIFAR-10",
    "a ResNet-18 of a quarter of the width, trained on a part of the training set (a full ResNet-18, 93.2%)",
    (12, 300),
    (4, 100),
    [  # as in the paper: the first convolution, the first stage, the last layer
        "stem.conv",
        "stage1.block1.conv1",
        "stage1.block1.conv2",
        "stage1.block2.conv1",
        "stage1.block2.conv2",
        "classifier.fc",
    ],
)
_GTSRB = _Setting(
    "gtsrb:test",
    "cnn-gtsrb",
    "GTSRB",
    "a small convolutional network, 83% (MobileNetV3, 97.7%)",
    (24, 500),
    (8, 200),
    ["features.conv1", "features.conv2", "classifier.fc"],
)


def _study(setting: _Setting, kind: str, scale: Scale) -> dict[str, Any]:
    if kind == "data":
        samples, masks = setting.small_data if scale == "small" else (1000, 5000)
        metric: dict[str, Any] = {"name": "data_sensitivity_consistency", "masks": masks}
    else:
        samples, masks = setting.small_parameters if scale == "small" else (100, 10_000)
        metric = {"name": "parameter_sensitivity_consistency", "masks": masks, "layers": setting.layers}
    return {
        "title": f"Sensitivity consistency of {kind}, {setting.title}",
        "samples": samples,
        "samples_per_job": 4 if scale == "small" else 20,
        "data": {setting.title: setting.data},
        "models": {setting.model: setting.model},
        "explainers": {name: e for name, e in (_EXPLAINERS | _CONTROLS).items() if name not in setting.without},
        "metrics": {f"{kind} SenC": metric},
    }


def _part(setting: _Setting, kind: str, paper: Mapping[str, float | str], claims: tuple[Claim, ...]) -> Part:
    samples = {"data": (setting.small_data, 1000, 5000), "parameters": (setting.small_parameters, 100, 10_000)}[kind]

    def departures(scale: Scale) -> str:
        size = (
            f"{samples[0][0]} samples ({samples[1]}), {samples[0][1]} masks ({samples[2]}), "
            if scale == "small"
            else ""
        )
        order = "the first samples of the test set (random ones)"
        return f"{size}{order}, {setting.network}; integrated gradients with 8 steps; our explainers (Captum's)"

    return Part(
        name=f"senc-{setting.title.lower().replace('-', '')}-{kind}",
        title=f"SenC of {kind}, {setting.title}: mean rho [95% interval]",
        study=lambda scale: _study(setting, kind, scale),
        columns=_COLUMNS,
        paper=paper,
        claims=claims,
        departures=departures,
        notes=_notes,
    )


def _notes(frame: pl.DataFrame) -> list[str]:
    """The band of the null hypothesis, how often each explainer is outside, and which are better than the controls."""
    if not len(frame) or "p_value" not in frame.columns:
        return []
    low, high = (float(frame[name].drop_nulls().to_numpy().mean()) for name in ("null_low", "null_high"))
    shares = []
    for name in frame["explainer"].unique(maintain_order=True):
        p_values = frame.filter(pl.col("explainer") == name)["p_value"].drop_nulls().to_numpy()
        shares.append(f"{name} {float((p_values < 0.05).mean()):.0%}")
    table = frame.pivot("explainer", index="sample", values="rho", aggregate_function="mean")
    names = [name for name in table.columns if name != "sample" and table[name].is_finite().any()]
    values = table.select(pl.col(names).cast(pl.Float64).fill_null(float("nan"))).to_numpy()
    tests = compare_with_controls(values, names, [name for name in names if name in _CONTROLS], "higher")
    return [
        f"null band of the centred rho at one sample, on average: [{low:z.2f}, {high:z.2f}]",
        f"samples with p < 0.05 (5% under the null): {', '.join(shares)}",
        f"centred rho, paired with the controls: {describe_controls(tests, 2) or 'no controls'}",
    ]


def _claim_all_above(limit: float, last: str) -> Claim:
    def holds(means: Mapping[str, float]) -> bool | None:
        known = [means[name] for name in _GRADIENT if means.get(name, float("nan")) == means.get(name)]
        return min(known) > limit and means[last] < min(known) if known and last in means else None

    return Claim(f"every method except {last} is above {limit}, {last} is last", holds)


def _claim_first(name: str) -> Claim:
    def holds(means: Mapping[str, float]) -> bool | None:
        known = {n: mean for n, mean in means.items() if mean == mean and n not in _CONTROLS}
        return max(known, key=lambda n: known[n]) == name if name in known else None

    return Claim(f"{name} is first", holds)


def _claim_at_chance(*names: str) -> Claim:
    def holds(means: Mapping[str, float]) -> bool | None:
        values = [means.get(name, float("nan")) for name in names]
        return None if any(value != value for value in values) else all(abs(value) < 0.1 for value in values)

    return Claim(f"{' and '.join(names)} at the level of random explanations (below 0.1)", holds)


def _claim_above_random(*names: str) -> Claim:
    def holds(means: Mapping[str, float]) -> bool | None:
        values = [means.get(name, float("nan")) for name in names]
        return None if any(v != v for v in values) else all(v > abs(means["random"]) + 0.05 for v in values)

    return Claim(f"{' and '.join(names)} clearly above random explanations", holds)


_RANDOM = _claim_at_chance("random")
_ABOVE = dict.fromkeys(("saliency", "guided backprop", "integrated gradients", "DeepLift"), "> 0.6")
_MIDDLE = dict.fromkeys(("saliency", "LRP", "DeepLift"), "0.2 to 0.3")
_PARTS: dict[str, Part] = {
    "mnist data": _part(
        _MNIST, "data", {**_ABOVE, "LRP": 0.609, "random": "about 0"}, (_claim_all_above(0.6, "Grad-CAM"), _RANDOM)
    ),
    "cifar10 data": _part(
        _CIFAR10,
        "data",
        {"LRP": -0.012, "Grad-CAM": 0.052, "DeepLift": 0.351, "random": "about 0"},
        (_claim_first("DeepLift"), _claim_at_chance("LRP", "Grad-CAM"), _RANDOM),
    ),
    "gtsrb data": _part(
        _GTSRB,
        "data",
        {"random": "about 0"},
        (_claim_above_random("guided backprop", "integrated gradients", "DeepLift"), _RANDOM),
    ),
    "mnist parameters": _part(
        _MNIST,
        "parameters",
        {**_MIDDLE, "guided backprop": 0.29, "integrated gradients": 0.32, "Grad-CAM": 0.14, "random": "about 0"},
        (_claim_first("integrated gradients"), _RANDOM),
    ),
    "cifar10 parameters": _part(
        _CIFAR10,
        "parameters",
        {
            "guided backprop": 0.02,
            "integrated gradients": 0.07,
            "Grad-CAM": 0.01,
            "DeepLift": "> 0.1",
            "LRP": "about 0",
        },
        (_claim_first("DeepLift"), _claim_above_random("DeepLift"), _RANDOM),
    ),
    "gtsrb parameters": _part(
        _GTSRB, "parameters", {"random": "about 0"}, (_claim_above_random("integrated gradients", "DeepLift"), _RANDOM)
    ),
}

for _data, _title in (("mnist", "MNIST"), ("cifar10", "CIFAR-10"), ("gtsrb", "GTSRB")):
    reproductions.add(
        f"senc-{_data}",
        Reproduction(
            f"SenC on {_title}: data and parameters", (_PARTS[f"{_data} data"], _PARTS[f"{_data} parameters"])
        ),
    )
for _figure, _kind in (("figure4", "parameters"), ("figure5", "data")):
    reproductions.add(
        f"senc-{_figure}",
        Reproduction(
            f"SenC, Fig. {_figure[-1]}: {_kind}",
            tuple(_PARTS[f"{data} {_kind}"] for data in ("mnist", "cifar10", "gtsrb")),
        ),
    )
