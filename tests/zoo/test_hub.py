"""Models of hubs, with stand-ins for the packages: there is no network, and torchvision cannot be imported here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import standfast
from standfast import zoo
from standfast.errors import ArgumentError, MissingExtraError, ModelError, StandfastError, UnknownNameError
from standfast.study.file.spec import study_from
from standfast.zoo.hub import Normalised


def net(name: str = "tiny", **options: Any) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1), "input_size": (3, 2, 2)}
    stand_in = SimpleNamespace(
        is_model=lambda name: name == "tiny",
        list_models=lambda pretrained=False: ["tiny", "large"],
        create_model=lambda name, pretrained=False: (
            net() if pretrained else nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
        ),
        data=SimpleNamespace(resolve_data_config=lambda arguments, model: config),
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    return stand_in


def test_a_timm_model_has_its_normalisation_before_it(timm: SimpleNamespace) -> None:
    x = torch.rand(2, 3, 2, 2)
    state = torch.random.get_rng_state()
    module = zoo.load("timm:tiny")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not module.training
    mean, std = torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1), torch.tensor([0.2, 0.2, 0.1]).reshape(3, 1, 1)
    with torch.random.fork_rng():
        assert torch.allclose(module(x), net().eval()((x - mean) / std))


def test_random_weights_need_no_download_and_are_always_the_same(timm: SimpleNamespace, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    first, second = (zoo.load("timm:tiny", pretrained=False) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    x, trained = torch.rand(2, 3, 2, 2), zoo.load("timm:tiny")
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), trained(x))
    ours = [zoo.load("lenet5-mnist", pretrained=False)(torch.ones(1, 1, 28, 28)) for _ in range(2)]
    assert torch.equal(*ours)
    assert not torch.equal(ours[0], zoo.load("lenet5-mnist")(torch.ones(1, 1, 28, 28)))
    (tmp_path / "hub_random.py").write_text("import torch\ndef load():\n    return torch.rand(2, 3, 2, 2)\n")
    study = {
        "data": {"noise": {"function": "hub_random:load"}},
        "models": {"random": {"timm:tiny": {"pretrained": False}}, "trained": "timm:tiny"},
        "explainers": ["saliency"],
        "metrics": ["log_odds"],
    }
    grid = study_from(study, tmp_path).grid()
    built = {name: source.model(grid.data["noise"], "cpu").module(x) for name, source in grid.models.items()}
    assert torch.equal(built["random"], first(x))
    assert torch.equal(built["trained"], trained(x))
    assert grid.models["random"].about == {"name": "timm:tiny", "pretrained": False}
    assert grid.models["trained"].about == {"name": "timm:tiny"}


def test_a_torchvision_model_has_its_normalisation_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = SimpleNamespace(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25], crop_size=[2])
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: scaling))
    models = SimpleNamespace(
        list_models=lambda: ["tiny"],
        get_model=lambda name, weights: net() if weights else None,
        get_model_weights=lambda name: weights,
    )
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    x = torch.rand(2, 3, 2, 2)
    module = zoo.load("torchvision:tiny")
    assert module.input_size == (3, 2, 2)
    with torch.random.fork_rng():
        assert torch.allclose(module(x), net().eval()((x - 0.5) / 0.25))


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "input_size": (3, 224, 224)}


class WideStandIn(nn.Module):
    """A stand-in for a Wide ResNet-50-2: takes images of the size in its configuration or another, and records them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, kernel_size=7, stride=16)
        self.fc = nn.Linear(8, 1000)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.detach())
        logits: torch.Tensor = self.fc(torch.relu(self.conv(x)).mean((2, 3)))
        return logits


@pytest.fixture
def wide_resnet(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Record what timm is asked to create."""
    asked: list[tuple[str, bool]] = []

    def create_model(name: str, pretrained: bool = False) -> nn.Module:
        asked.append((name, pretrained))
        return WideStandIn()

    timm = SimpleNamespace(
        is_model=lambda name: name == "wide_resnet50_2",
        list_models=lambda pretrained=False: ["wide_resnet50_2"],
        create_model=create_model,
        data=SimpleNamespace(resolve_data_config=lambda arguments, model: IMAGENET | {"crop_pct": 0.875}),
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    return asked


def test_a_wide_resnet_of_timm_takes_images_in_0_1(wide_resnet: list[tuple[str, bool]]) -> None:
    """From its name to attributions: trained weights, bounds of images, gradients through the normalisation."""
    module = zoo.load("timm:wide_resnet50_2")
    assert wide_resnet == [("wide_resnet50_2", True)]
    assert isinstance(module, Normalised)
    assert not any(part.training for part in module.modules())
    assert module.input_size == (3, 224, 224)
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=8)
    assert model.preprocess is None
    images = torch.rand(2, *module.input_size, generator=torch.Generator().manual_seed(0))
    logits = model.logits(images)
    assert logits.shape == (2, 1000)
    inner = module.module
    assert isinstance(inner, WideStandIn)
    mean, std = (torch.tensor(IMAGENET[key]).reshape(3, 1, 1) for key in ("mean", "std"))
    torch.testing.assert_close(inner.seen[-1][:2], (images - mean) / std)
    leaf = ((images - mean) / std).requires_grad_(True)
    (outside,) = torch.autograd.grad(inner(leaf)[:, 5].sum(), leaf)
    found = standfast.explainers.get("saliency", absolute=False)(model, images, 5)
    torch.testing.assert_close(found, outside / std, rtol=1e-3, atol=1e-6)
    with pytest.raises(ArgumentError, match="within the bounds .0, 1., got values in .2, 2"):
        model.logits(torch.full_like(images, 2.0))
    assert {
        key for key in module.state_dict() if "mean" in key or "std" in key
    } == set()  # it is not part of the weights


def test_images_of_another_kind_are_refused(wide_resnet: list[tuple[str, bool]]) -> None:
    module = zoo.load("timm:wide_resnet50_2")
    assert module(torch.rand(1, 3, 64, 64)).shape == (1, 1000)  # a convolutional network accepts other sizes
    for shape in ((2, 1, 224, 224), (3, 224, 224), (2, 4, 224, 224)):
        with pytest.raises(ModelError, match=r"expected images of shape \(N, 3, 224, 224\), got \("):
            module(torch.rand(shape))

    class Transformer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[-1] == 224, "Input height (32) doesn't match model (224)."
            return x.mean((2, 3))

    fixed = Normalised(Transformer(), (0.5,) * 3, (0.5,) * 3, (3, 224, 224))
    with pytest.raises(ModelError, match=r"images of shape \(N, 3, 224, 224\), got \(1, 3, 32, 32\): Input height"):
        fixed(torch.rand(1, 3, 32, 32))


def test_errors_name_what_is_missing(timm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="timm model: expected one of large, tiny, got 'tinny' .did you mean"):
        zoo.load("timm:tinny")

    def offline(name: str, pretrained: bool = False) -> nn.Module:
        raise OSError("no route to host")

    timm.create_model = offline
    with pytest.raises(StandfastError, match="model timm:tiny: its weights cannot be loaded: OSError: no route"):
        zoo.load("timm:tiny")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'standfast\[hub\]'"):
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
    found = standfast.run_study(study_from(study, tmp_path), tmp_path / "results", progress=False)
    assert found.failures == []
    assert found.manifest["models"]["vit"]["name"] == "timm:tiny"
