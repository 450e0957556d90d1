"""Image classifiers of Hugging Face's transformers: the processor's arithmetic is put before the model."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from holdfast import zoo
from holdfast.errors import ArgumentError, HoldfastError, MissingExtraError, ModelError
from holdfast.study.file.spec import study_from

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 16, "width": 16},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": MEAN,
    "image_std": STD,
}


class StandIn(nn.Module):
    """A stand-in with the interface of a model of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(3 * 256, 5)

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        if pixel_values.shape[2:] != (16, 16):
            raise ValueError(f"Input image size {tuple(pixel_values.shape[2:])} doesn't match model (16, 16).")
        return SimpleNamespace(logits=self.classifier(pixel_values.flatten(1)))


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def test_the_processors_arithmetic_is_put_before_the_model() -> None:
    torch.manual_seed(0)
    model, x = StandIn(), rand(4, 3, 16, 16)
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    for processor, expected in (
        (PROCESSOR, (x - mean) / std),
        (SimpleNamespace(**PROCESSOR), (x - mean) / std),
        (PROCESSOR | {"rescale_factor": 1 / 127.5}, (2 * x - mean) / std),
        (PROCESSOR | {"do_rescale": False}, (255 * x - mean) / std),
        (PROCESSOR | {"do_normalize": False}, x),
    ):
        classifier = holdfast.zoo.from_transformers(model, processor, device="cpu")
        torch.testing.assert_close(classifier.logits(x), model(expected).logits.detach(), rtol=1e-4, atol=1e-4)
    assert classifier.module.input_size == (3, 16, 16)
    assert (classifier.bounds[0].item(), classifier.bounds[1].item()) == (0.0, 1.0)
    cropped = PROCESSOR | {"do_center_crop": True, "crop_size": {"height": 12, "width": 10}}
    assert holdfast.zoo.from_transformers(model, cropped).module.input_size == (3, 12, 10)
    edge = PROCESSOR | {"size": {"shortest_edge": 16}}
    assert holdfast.zoo.from_transformers(model, edge).module.input_size is None
    with pytest.raises(ModelError, match=r"expected images of shape \(N, 3, 16, 16\), got .* doesn't match model"):
        classifier.logits(rand(2, 3, 8, 8))
    with pytest.raises(ArgumentError, match="processor: expected an image processor with image_std"):
        holdfast.zoo.from_transformers(model, {"image_mean": MEAN})
    with pytest.raises(ArgumentError, match="as many numbers"):
        holdfast.zoo.from_transformers(model, {"image_mean": MEAN, "image_std": [1.0]})


def test_timm_models_that_are_already_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"mean": MEAN, "std": STD, "input_size": (3, 16, 16)}
    asked: list[nn.Module] = []
    stand_in = SimpleNamespace(
        data=SimpleNamespace(resolve_data_config=lambda options, model: [asked.append(model), config][1])
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), rand(2, 3, 16, 16)
    classifier = holdfast.zoo.from_timm(model, device="cpu", batch_size=32)
    assert asked == [model]
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    torch.testing.assert_close(classifier.logits(x), model((x - mean) / std).detach(), rtol=1e-4, atol=1e-5)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[hub\]"):
        holdfast.zoo.from_timm(model)


def transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny vision transformer with random weights."""
    package = transformers()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = package.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = package.ViTForImageClassification(config)
    folder = tmp_path_factory.mktemp("hub") / "vit"
    package.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    package.utils.logging.enable_progress_bar()
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder


def test_a_vision_transformer_from_its_folder(vit: Path) -> None:
    """Its logits for 8-bit images equal those of the package."""
    package = transformers()
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    state = torch.random.get_rng_state()
    module = zoo.load(f"transformers:{vit}")
    assert torch.equal(state, torch.random.get_rng_state())
    assert module.input_size == (3, 16, 16)
    classifier = holdfast.Classifier(module, (0.0, 1.0), device="cpu")
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    processor = package.AutoImageProcessor.from_pretrained(vit)
    model = package.AutoModelForImageClassification.from_pretrained(vit).eval()
    with torch.no_grad():
        expected = model(**processor(list(images), return_tensors="pt")).logits
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        holdfast.zoo.from_transformers(model, processor, device="cpu").logits(x), expected, rtol=1e-4, atol=1e-5
    )
    gradients = holdfast.explainers.get("saliency", absolute=False)(classifier, x, 2)
    leaf = ((x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)).requires_grad_(True)
    (outside,) = torch.autograd.grad(model(pixel_values=leaf).logits[:, 2].sum(), leaf)
    torch.testing.assert_close(gradients, outside / torch.tensor(STD).reshape(3, 1, 1), rtol=1e-3, atol=1e-6)


def test_random_weights_need_only_the_configuration(vit: Path, tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((vit / name).read_text())
    with pytest.raises(HoldfastError, match="its weights cannot be loaded"):
        zoo.load(f"transformers:{tmp_path}")
    x = rand(2, 3, 16, 16)
    with torch.no_grad():
        torch.rand(1)
        drawn = zoo.load(f"transformers:{tmp_path}", pretrained=False)(x)
        assert torch.equal(drawn, zoo.load(f"transformers:{vit}")(x))  # its weights were drawn with the same seed


def test_a_study_takes_a_model_in_its_folder(vit: Path, tmp_path: Path) -> None:
    (tmp_path / "hub_photos.py").write_text("import torch\ndef load():\n    return torch.rand(2, 3, 16, 16)\n")
    (tmp_path / "mine").symlink_to(vit)
    study = {
        "data": {"noise": {"function": "hub_photos:load"}},
        "models": {"vit": "transformers:mine"},
        "explainers": ["saliency"],
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 2}}],
    }
    found = holdfast.run_study(study_from(study, tmp_path), tmp_path / "results", progress=False)
    assert found.failures == []
    assert found.results.manifest["models"]["vit"]["name"] == "transformers:mine"


def test_weights_that_cannot_be_loaded(vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = transformers()
    with pytest.raises(HoldfastError, match="its weights cannot be loaded"):
        zoo.load(f"transformers:{tmp_path / 'nowhere' / 'at' / 'all'}")
    other = tmp_path / "bert"
    package.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1).save_pretrained(other)
    (other / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    with pytest.raises(ArgumentError, match="model: expected an image classifier of transformers"):
        zoo.load(f"transformers:{other}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[hub\]"):
        zoo.load(f"transformers:{vit}")
