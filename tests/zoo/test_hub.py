"""Models of hubs, with stand-ins for the packages: there is no network, and torchvision cannot be imported here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from standfast import zoo
from standfast.errors import MissingExtraError, ModelError, StandfastError, UnknownNameError
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
    mean, std = (
        torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1),
        torch.tensor([0.2, 0.2, 0.1]).reshape(3, 1, 1),
    )
    with torch.random.fork_rng():
        expected = net().eval()((x - mean) / std)
    assert torch.allclose(module(x), expected)
    loaded = zoo.from_timm(module.module, device="cpu", batch_size=32)  # type: ignore[arg-type]
    assert torch.allclose(loaded.logits(x), expected)


def test_random_weights_need_no_download_and_are_always_the_same(
    timm: SimpleNamespace, tmp_path: Path
) -> None:
    state = torch.random.get_rng_state()
    first, second = (zoo.load("timm:tiny", pretrained=False) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    x, trained = torch.rand(2, 3, 2, 2), zoo.load("timm:tiny")
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), trained(x))
    ours = [zoo.load("lenet5-mnist", pretrained=False)(torch.ones(1, 1, 28, 28)) for _ in range(2)]
    assert torch.equal(*ours)
    assert not torch.equal(ours[0], zoo.load("lenet5-mnist")(torch.ones(1, 1, 28, 28)))
    (tmp_path / "hub_random.py").write_text(
        "import torch\ndef load():\n    return torch.rand(2, 3, 2, 2)\n"
    )
    study = {
        "data": {"noise": {"function": "hub_random:load"}},
        "models": {"random": {"timm:tiny": {"pretrained": False}}, "trained": "timm:tiny"},
        "explainers": ["saliency"],
        "metrics": ["log_odds"],
    }
    grid = study_from(study, tmp_path).grid()
    built = {
        name: source.model(grid.data["noise"], "cpu").module(x)
        for name, source in grid.models.items()
    }
    assert torch.equal(built["random"], first(x))
    assert torch.equal(built["trained"], trained(x))
    assert grid.models["random"].about == {"name": "timm:tiny", "pretrained": False}
    assert grid.models["trained"].about == {"name": "timm:tiny"}


def test_a_torchvision_model_has_its_normalisation_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_images_of_another_kind_are_refused() -> None:
    module = Normalised(nn.Conv2d(3, 2, 1), (0.5,) * 3, (0.5,) * 3, (3, 224, 224))
    # a convolutional network accepts other sizes
    assert module(torch.rand(1, 3, 64, 64)).shape == (
        1,
        2,
        64,
        64,
    )
    # no part of the weights
    assert not {key for key in module.state_dict() if "mean" in key or "std" in key}
    for shape in ((2, 1, 224, 224), (3, 224, 224), (2, 4, 224, 224)):
        with pytest.raises(
            ModelError, match=r"expected images of shape \(N, 3, 224, 224\), got \("
        ):
            module(torch.rand(shape))

    class Transformer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[-1] == 224, "Input height (32) doesn't match model (224)."
            return x.mean((2, 3))

    fixed = Normalised(Transformer(), (0.5,) * 3, (0.5,) * 3, (3, 224, 224))
    with pytest.raises(
        ModelError, match=r"images of shape \(N, 3, 224, 224\), got \(1, 3, 32, 32\): Input height"
    ):
        fixed(torch.rand(1, 3, 32, 32))


def test_errors_name_what_is_missing(
    timm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UnknownNameError, match="timm model: expected one of large, tiny, got 'tinny' .did you mean"
    ):
        zoo.load("timm:tinny")

    def offline(name: str, pretrained: bool = False) -> nn.Module:
        raise OSError("no route to host")

    timm.create_model = offline
    with pytest.raises(
        StandfastError, match="model timm:tiny: its weights cannot be loaded: OSError: no route"
    ):
        zoo.load("timm:tiny")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'standfast\[hub\]'"):
        zoo.load("timm:tiny")
    with pytest.raises(UnknownNameError, match="model"):
        zoo.load("tim:tiny")
