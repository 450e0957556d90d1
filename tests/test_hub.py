"""Models of hubs, by stand-ins of the packages: no network here, and torchvision does not import beside this torch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast import zoo
from holdfast.errors import HoldfastError, MissingExtraError, UnknownNameError
from holdfast.study.file.spec import study_from


def net(name: str = "tiny", **options: Any) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1), "input_size": (3, 2, 2)}
    stand_in = SimpleNamespace(
        is_model=lambda name: name == "tiny",
        list_models=lambda pretrained=False: ["tiny", "large"],
        create_model=lambda name, pretrained=False: net(),
        data=SimpleNamespace(resolve_data_config=lambda arguments, model: config),
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    return stand_in


def test_a_timm_model_has_its_normalisation_in_front(timm: SimpleNamespace) -> None:
    x = torch.rand(2, 3, 2, 2)
    state = torch.random.get_rng_state()
    module = zoo.load("timm:tiny")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not module.training
    mean, std = torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1), torch.tensor([0.2, 0.2, 0.1]).reshape(3, 1, 1)
    with torch.random.fork_rng():
        assert torch.allclose(module(x), net().eval()((x - mean) / std))


def test_a_torchvision_model_has_its_normalisation_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = SimpleNamespace(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: scaling))
    models = SimpleNamespace(
        list_models=lambda: ["tiny"], get_model=lambda name, weights: net(), get_model_weights=lambda name: weights
    )
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    x = torch.rand(2, 3, 2, 2)
    with torch.random.fork_rng():
        assert torch.allclose(zoo.load("torchvision:tiny")(x), net().eval()((x - 0.5) / 0.25))


def test_what_is_missing_is_said(timm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UnknownNameError, match="timm model: expected one of large, tiny, got 'tinny' .did you mean 'tiny'"
    ):
        zoo.load("timm:tinny")

    def offline(name: str, pretrained: bool = False) -> nn.Module:
        raise OSError("no route to host")

    timm.create_model = offline
    with pytest.raises(HoldfastError, match="model timm:tiny: its weights cannot be had: OSError: no route to host"):
        zoo.load("timm:tiny")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast\[hub\]'"):
        zoo.load("timm:tiny")
    with pytest.raises(UnknownNameError, match="model"):
        zoo.load("tim:tiny")


def test_a_study_takes_a_hubs_model(timm: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "hub_noise.py").write_text("import torch\ndef load():\n    return torch.rand(2, 3, 2, 2)\n")
    study = {
        "data": {"noise": {"function": "hub_noise:load"}},
        "models": {"vit": "timm:tiny"},
        "explainers": ["saliency"],
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 2}}],
    }
    found = hf.run_study(study_from(study, tmp_path), tmp_path / "results", progress=False)
    assert found.failures == []
    assert found.results.manifest["models"]["vit"]["name"] == "timm:tiny"
