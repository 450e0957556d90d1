"""SAFARI's Tables 8 and 9: what their tables read from results, the photos, and tiny runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import standfast
from papers.base import make_table
from papers.photos import load_photos
from papers.safari.cifar import ARCHITECTURE_PART, EXPLAINERS
from papers.safari.imagenet import IMAGENET_PART, STAND_IN, make_stand_in
from papers.safari.mobilenet_v2 import MobileNetV2
from papers.safari.parts import HEADINGS, QUANTITIES
from papers.test_tables import outcomes
from standfast.data.root import MissingDataError
from standfast.study.file.spec import StudyError, study_from
from standfast.zoo import architectures

MODELS = ("ResNet20", "MobileNetV2", "VGG16", "DLA")
HAT, TILDE, LOG_HAT, LOG_TILDE = HEADINGS
WIDE = "Wide ResNet-50-2"


def cells(
    model: str, heading: str, means: dict[str, float], *, spread: float = 0.01, **more: Any
) -> pl.DataFrame:
    """Rows of `Results.samples` of one model and configured metric: eight samples around a mean for each explainer."""
    label, column, _ = QUANTITIES[heading]
    noise = np.random.default_rng(len(model) + 7 * HEADINGS.index(heading)).normal(
        size=(len(means), 8)
    )
    shared = {"data": "d", "model": model, "label": label, "repeat": 0, "status": "ok", **more}
    parts = [
        pl.DataFrame({"explainer": name, "sample": range(8), column: mean + spread * noise[place]})
        for place, (name, mean) in enumerate(means.items())
    ]
    return pl.concat(parts).with_columns(
        pl.lit(value).alias(name) for name, value in shared.items()
    )


def test_a_full_run_takes_files_of_standfast_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ARCHITECTURE_PART.study is not None
    small, content = (ARCHITECTURE_PART.study(scale) for scale in ("small", "full"))
    names = [next(iter(model)) for model in small["models"].values()]
    assert names == ["resnet20-cifar10", "vgg16w8-cifar10", "dla34w2-cifar10"]
    content = {**content, "data": {"d": {"function": f"{__name__}:noise", "trust": True}}}
    wanted = list(content["models"].values())
    assert [each.get("architecture") for each in wanted] == ["resnet20", None, "vgg16", "dla"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match=r"resnet20-cifar10-natural\.safetensors"):
        study_from(content).grid()
    (tmp_path / "models").mkdir()  # that is where the command puts its weights
    for each in wanted:
        make = architectures[each["architecture"]] if "architecture" in each else MobileNetV2
        save_file(make(num_classes=10).state_dict(), each["weights"])
    assert list(study_from(content).grid().models) == list(MODELS)


def noise() -> torch.Tensor:
    return torch.rand(100, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_mobilenet_has_the_published_size_and_inverted_residuals() -> None:
    """Sandler et al., Table 1; the last layer is linear; the input is added if the shape stays the same."""
    with torch.device("meta"):
        assert sum(part.numel() for part in MobileNetV2(num_classes=1000).parameters()) == 3_504_872
    torch.manual_seed(0)
    model: Any = MobileNetV2(width_multiplier=0.125).eval()
    for number, stride in ((2, 1), (4, 2), (5, 1)):
        block = model.features[number]
        channels = block.expand.conv.in_channels
        x = 20 * torch.rand(2, channels, 8, 8)
        hidden = block.expand.norm(functional.conv2d(x, block.expand.conv.weight)).clamp(0, 6)
        hidden = functional.conv2d(
            hidden, block.depthwise.conv.weight, stride=stride, padding=1, groups=hidden.shape[1]
        )
        hidden = block.depthwise.norm(hidden).clamp(0, 6)
        out = block.project.norm(functional.conv2d(hidden, block.project.conv.weight))
        residual = stride == 1 and out.shape[1] == channels
        torch.testing.assert_close(block(x), out + x if residual else out)
        assert (out < 0).any()


# ---- Table 8: what it reads ----


def test_table_8_has_a_row_for_each_model_and_explainer_and_the_papers_numbers() -> None:
    frame = cells("VGG16", LOG_HAT, dict.fromkeys(EXPLAINERS, -10.0)).with_columns(
        pl.lit(True).alias("bound")
    )
    frame = pl.concat([frame, cells("DLA", HAT, {"GradCAM": 0.5})], how="diagonal")
    table = make_table(ARCHITECTURE_PART, frame)
    assert table.rows["model, explainer"].to_list() == [
        *(f"VGG16, {name}" for name in EXPLAINERS),
        "DLA, GradCAM",
    ]
    log_hat = table.rows["ln P F-hat value bounded (paper)"].to_list()
    assert log_hat[:4] == ["−14.42", "−53.48", "−47.52", "−44.25"]
    assert table.rows["worst F-tilde True similarity (paper)"].to_list()[2:] == [
        "0.8637",
        "0.8358",
        "0.2113",
    ]
    assert table.rows["ln P F-hat value bounded_bound"].to_list() == [True] * 4 + [False]
    assert table.rows["worst F-hat similarity"].to_list()[-1] == pytest.approx(0.5, abs=0.01)
    paper = [column.paper for column in ARCHITECTURE_PART.columns]
    assert [len(numbers) for numbers in paper] == [16] * 4
    assert [numbers["MobileNetV2, Integrated Gradients"] for numbers in paper] == [
        0.1167,
        0.7885,
        -34.99,
        -62.19,
    ]
    assert [numbers["DLA, DeepLift"] for numbers in paper] == [0.0930, 0.7983, -9.77, -36.40]


def test_table_8_verdicts() -> None:
    def ranked(*values: float) -> dict[str, float]:
        return dict(zip(EXPLAINERS, values, strict=True))

    frames = [
        *(cells(model, HAT, ranked(0.1, 0.5, 0.2, 0.3)) for model in MODELS),
        *(cells(model, LOG_HAT, ranked(-9, -30, -20, -10)) for model in ("ResNet20", "VGG16")),
        cells("DLA", LOG_HAT, ranked(-9, -30, -35, -10)),
        *(
            cells(model, TILDE, ranked(0.8, 0.9, 0.1, 0.7), found=True)
            for model in ("ResNet20", "MobileNetV2", "DLA")
        ),
        cells("VGG16", TILDE, ranked(0.6, 0.9, 0.95, 0.7), found=True),
        cells("VGG16", TILDE, ranked(-5.0, -5.0, 5.0, 5.0), found=False).with_columns(
            sample=pl.col("sample") + 8
        ),
        *(cells(model, LOG_TILDE, ranked(-20, -20, -20, -20), spread=0.0) for model in MODELS),
    ]
    table = make_table(ARCHITECTURE_PART, pl.concat(frames, how="diagonal"))
    assert outcomes(table, "Integrated Gradients is the most robust") == {
        **{f"{HAT} {model}": True for model in MODELS},
        f"{LOG_HAT} ResNet20": True,
        f"{LOG_HAT} VGG16": True,
        f"{LOG_HAT} DLA": False,
        f"{LOG_HAT} MobileNetV2": None,
    }
    assert outcomes(table, "for all architectures") == {HAT: True, LOG_HAT: False}
    cam = outcomes(table, "GradCAM is the most robust")
    assert [cam[f"{TILDE} {model}"] for model in MODELS] == [True, True, False, True]
    assert [cam[f"{LOG_TILDE} {model}"] for model in MODELS] == [None] * 4, "all at the floor"
    assert outcomes(table, "in most cases")["both"] is None, "three of eight hold, one does not"
    assert outcomes(table, "varies with the architecture") == {TILDE: True, LOG_TILDE: None}
    (note,) = table.notes
    assert note.startswith("class changes found by the search for F-tilde: ResNet20 100%")
    assert note.endswith("VGG16 50%")


@pytest.mark.parametrize(("clear", "expected"), [(5, True), (4, None), (0, False)])
def test_most_cases_are_more_than_half(clear: int, expected: bool | None) -> None:
    """Of eight: four architectures, two columns."""
    frames = []
    for number, (model, heading) in enumerate(
        (model, heading) for heading in (TILDE, LOG_TILDE) for model in MODELS
    ):
        shift = -1.0 if number < clear else 1.0 if number >= 5 or clear == 0 else 0.0
        means = {**dict.fromkeys(EXPLAINERS, 0.0), "GradCAM": shift}
        frames.append(cells(model, heading, means, spread=0.01 if shift else 0.0, found=True))
    table = make_table(ARCHITECTURE_PART, pl.concat(frames, how="diagonal"))
    assert outcomes(table, "in most cases")["both"] is expected


# ---- Table 9 ----


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with three photos: the coordinates of each pixel as its colours, of several sizes and forms."""
    root = tmp_path / "imagenet_sample" / "images"
    root.mkdir(parents=True)
    for name, (width, height) in {
        "a.png": (300, 256),
        "b.png": (256, 400),
        "c.png": (512, 640),
    }.items():
        columns, rows = np.meshgrid(np.arange(width) / width, np.arange(height) / height)
        pixels = np.stack([columns, rows, np.full_like(rows, 0.5)], axis=-1)
        Image.fromarray((255 * pixels).round().astype(np.uint8)).save(root / name)
    (root / "notes.txt").write_text("no photo")
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    return root


def test_photos_are_the_middle_of_files_by_name(folder: Path) -> None:
    found = load_photos(3, 224)
    assert found.shape == (3, 3, 224, 224)
    columns = (torch.arange(224) + 38) / 300  # (300 - 224) / 2
    assert (found[0, 0] - columns).abs().max() < 0.003
    assert (found[0, 1] - ((torch.arange(224) + 16) / 256)[:, None]).abs().max() < 0.003
    assert (found[1, 1] - ((torch.arange(224) + 88) / 400)[:, None]).abs().max() < 0.003
    # brought from 512 to 256 first
    assert (found[2, 0] - (torch.arange(224) + 16.5) / 256).abs().max() < 0.006
    small = load_photos(2, 32)
    assert small.shape == (2, 3, 32, 32)
    inner = nn.functional.avg_pool2d(found[:2], 7)
    assert (small - inner)[..., 2:-2, 2:-2].abs().max() < 0.006
    with pytest.raises(
        MissingDataError, match=r"4 photos are needed in .*imagenet_sample/images, found 3"
    ):
        load_photos(4, 64)


def test_the_stand_in_has_the_interface_and_explains() -> None:
    torch.manual_seed(0)
    module = make_stand_in()
    x = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    x = (x + nn.functional.interpolate(torch.rand(6, 3, 4, 4), 64)) / 2
    assert not any(part.training for part in module.modules())
    assert module(x).shape == (6, 1000)
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=16)
    assert len(set(model.predict(x).tolist())) > 1, "photos get different classes"
    for name in ("gradcam", "fullgrad", "input_x_gradient"):
        assert bool((standfast.explainers.get(name)(model, x).flatten(1).std(1) > 0).any()), name


def test_table_9_is_judged_but_for_the_stand_in() -> None:
    names = (
        "Gradient x Input",
        "Integrated Gradients",
        "GradCAM",
        "FullGrad",
        "Extremal Perturbations",
    )
    values = dict(zip(names, (0.2, 0.2, 0.2, 0.5, 0.1), strict=True))
    stood = make_table(IMAGENET_PART, cells(STAND_IN, HAT, values))
    assert stood.verdicts == []
    assert "CANNOT BE COMPARED" in stood.notes[0]
    real = make_table(IMAGENET_PART, cells(WIDE, HAT, values))
    assert real.notes == []
    assert real.rows["worst F-hat similarity (paper)"].to_list() == [
        "0.159",
        "0.191",
        "0.233",
        "0.315",
        "0.126",
    ]
    paper = ["−100", "−100", "−76.688", "−75.716", "−32.612"]
    assert real.rows["ln P F-tilde value bounded (paper)"].to_list() == paper
    assert outcomes(real, "FullGrad combines") == {HAT: True, LOG_HAT: None}
    assert outcomes(real, "Extremal Perturbations")[HAT] is True
    other = make_table(IMAGENET_PART, cells(WIDE, HAT, {**values, "FullGrad": 0.05}))
    assert outcomes(other, "FullGrad combines")[HAT] is False
    assert outcomes(other, "Extremal Perturbations")[HAT] is False


def test_a_tiny_run_of_table_9(folder: Path, tmp_path: Path) -> None:
    assert IMAGENET_PART.study is not None
    study = IMAGENET_PART.study("small")
    few = {"particles": 10, "moves": 1, "quantile": 0.5, "floor": -1.0}
    metrics = {
        label: {name: {**options, **({"budget": 16} if "budget" in options else few)}}
        for label, entry in study["metrics"].items()
        for name, options in entry.items()
    }
    explainers = {
        name: study["explainers"][name] for name in ("Gradient x Input", "GradCAM", "FullGrad")
    }
    explainers["Extremal Perturbations"] = {"extremal_perturbations": {"areas": [0.1], "steps": 1}}
    data = {"ImageNet": {**study["data"]["ImageNet"], "options": {"count": 1, "side": 32}}}
    models = {STAND_IN: {**study["models"][STAND_IN], "options": {"width": 4}}}
    tiny = {
        **study,
        "samples": 1,
        "data": data,
        "models": models,
        "explainers": explainers,
        "metrics": metrics,
    }
    found = standfast.run_study(tiny, tmp_path / "results", progress=False)
    assert found.failures == []
    frame = found.samples
    assert frame["explainer"].n_unique() == 4
    # type: ignore
    assert (
        frame.filter(pl.col("label") == "ln P F-hat")["log_probability"].drop_nulls().max() <= 0.0
    )
