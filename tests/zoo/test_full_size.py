"""`examples/imagenet_full.yaml` with random weights: the whole grid on tiny networks, and some of it at full size."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from standfast.study.file.spec import study_from
from standfast.study.forecast.estimate import Estimate, EstimateLine
from standfast.study.forecast.trials import estimate_plan
from standfast.study.plan import make_plan

STUDY = Path(__file__).parents[2] / "examples" / "imagenet_full.yaml"
#: the four networks of the study: configuration in transformers, and what makes it tiny, for images of 32 x 32
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet-50": (
        "ResNetConfig",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "layer_type": "bottleneck",
        },
    ),
    "ViT-B/16": (
        "ViTConfig",
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "image_size": 32,
            "patch_size": 8,
        },
    ),
    "Swin-T": (
        "SwinConfig",
        {
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 2,
            "image_size": 32,
            "patch_size": 4,
        },
    ),
    "ConvNeXt-T": ("ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
}


def write_network(folder: Path, name: str, tiny: bool) -> dict[str, Any]:
    """A folder with the configuration of a network, and its entry in a study: random weights, no download."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    kind, options = NETWORKS[name]
    own = folder / name.replace("/", "")
    getattr(transformers, kind)(
        **(options if tiny else {}), num_labels=10 if tiny else 1000
    ).save_pretrained(own)
    side = 32 if tiny else 224
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": side, "width": side},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    (own / "preprocessor_config.json").write_text(json.dumps(processor))
    config = json.loads((own / "config.json").read_text())
    config["architectures"] = [f"{kind.removesuffix('Config')}ForImageClassification"]
    (own / "config.json").write_text(json.dumps(config))
    return {f"transformers:{own}": {"pretrained": False}}


def read_study(
    folder: Path, network: str, images: int, tiny: bool, file: Path = STUDY
) -> dict[str, Any]:
    """An example with one network with random weights and with noise for photos."""
    side = 32 if tiny else 224
    (folder / "full_size_noise.py").write_text(
        f"import torch\ndef load():\n    return torch.rand({images}, 3, {side}, {side})\n"
    )
    study: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text())
    assert network in study["models"]
    del study["samples"], study["executor"]
    return {
        **study,
        "data": {"noise": {"function": "full_size_noise:load", "bounds": [0, 1]}},
        "models": {network: write_network(folder, network, tiny)},
    }


def shrink(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a study with a tenth of their tries, draws, masks and steps; presets stay."""

    def divide(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: divide(part) for name, part in value.items()}
        return value // 10 if type(value) is int and value >= 50 else value

    return {label: divide(metric) for label, metric in metrics.items()}


def estimate(study: Mapping[str, Any], folder: Path, seconds: float = 15.0) -> Estimate:
    return estimate_plan(
        make_plan(study_from({**study, "sanity": False, "controls": False}, folder).grid()),
        set(),
        seconds=seconds,
    )


def check_lines(lines: Sequence[EstimateLine], count: int) -> None:
    """That so many lines were estimated, without an error."""
    assert [(line.explainer, line.label, line.error) for line in lines if line.error] == []
    assert len(lines) == count
    # what a probability costs is random, and may not be seen in the time
    assert all(line.seconds > 0 or line.basis == "unknown" for line in lines)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_explainers_of_the_study_on_tiny_networks(network: str, tmp_path: Path) -> None:
    """Every explainer with a metric, for two images."""
    study = read_study(tmp_path, network, 2, tiny=True)
    study["metrics"] = shrink({"max sensitivity": study["metrics"]["max sensitivity"]})
    check_lines(estimate(study, tmp_path).lines, len(study["explainers"]))


@pytest.mark.parametrize(
    "network",
    [
        # a network of convolutions and one of attention; the others are of the same layers
        *("ResNet-50", "ViT-B/16"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Swin-T", "ConvNeXt-T")),
    ],
)
def test_the_metrics_of_the_study_on_tiny_networks(network: str, tmp_path: Path) -> None:
    """Every metric with an explainer, for two images."""
    study = read_study(tmp_path, network, 2, tiny=True)
    study |= {"explainers": ["saliency"], "metrics": shrink(study["metrics"])}
    check_lines(estimate(study, tmp_path).lines, len(study["metrics"]))


@pytest.mark.parametrize(("name", "network"), [("vit", "ViT-B/16"), ("resnet", "ResNet-50")])
def test_the_explainers_of_one_kind_of_network(name: str, network: str, tmp_path: Path) -> None:
    study = read_study(
        tmp_path, network, 2, tiny=True, file=STUDY.with_name(f"imagenet_full_{name}.yaml")
    )
    assert study["metrics"] == YAML(typ="safe", pure=True).load(STUDY.read_text())["metrics"]
    lines = estimate(
        {**study, "metrics": {"log-odds": study["metrics"]["log-odds"]}}, tmp_path
    ).lines
    assert [(line.explainer, line.error) for line in lines if line.error] == []
    assert len(lines) == len(study["explainers"])


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_the_study_at_full_size(network: str, tmp_path: Path) -> None:
    """A metric of queries, one of second derivatives and one of masked weights: each runs, and fits 24 GB with room."""
    study = read_study(tmp_path, network, 2, tiny=False)
    some = {
        name: study["metrics"][name]
        for name in ("max sensitivity", "attack on the map", "parameter SenC")
    }
    # in less time no metric is tried on a slow machine, and then its memory is not known
    found = estimate({**study, "explainers": ["saliency"], "metrics": some}, tmp_path, seconds=90)
    assert [(line.label, line.error) for line in found.lines if line.error] == []
    assert found.evaluations >= 2 * (51 + 109 + 1001)
    assert 1e9 < found.memory < 12e9
