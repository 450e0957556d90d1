"""SAFARI's Tables 8 and 9: the networks, the studies, what their tables read from results, and tiny runs."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from safetensors.torch import load as load_safetensors
from safetensors.torch import save_file
from torch import nn

import standfast
from papers.base import Table, make_table, reproductions
from papers.photos import load_photos
from papers.printing import print_table
from papers.safari.cifar import ARCHITECTURE_PART, NETWORKS, PAPER_ROWS, load_trained
from papers.safari.events import HEADINGS
from papers.safari.imagenet import IMAGENET_PART, make_stand_in
from standfast import zoo
from standfast.data.root import MissingDataError, data_root
from standfast.study.file.spec import StudyError, study_from
from standfast.training.classifier import accuracy
from standfast.zoo.networks.names import architectures

SMALL = [name for name, _ in NETWORKS.values() if name in zoo.names()]
EXPLAINERS = ("Gradient x Input", "Integrated Gradients", "GradCAM", "DeepLift")
WIDE, STAND_IN = "Wide ResNet-50-2", "UNTRAINED STAND-IN"


# ---- synthetic results ----


def cells(model: str, heading: str, means: dict[str, float], *, spread: float = 0.01, **more: Any) -> pl.DataFrame:
    """Rows of `Results.samples` of one model and configured metric: eight samples around a mean for each explainer."""
    label, column, _ = HEADINGS[heading]
    noise = np.random.default_rng(len(model) + 7 * list(HEADINGS).index(heading)).normal(size=(len(means), 8))
    shared = {"data": "d", "model": model, "label": label, "repeat": 0, "status": "ok", **more}
    parts = [
        pl.DataFrame({"explainer": name, "sample": range(8), column: mean + spread * noise[place]})
        for place, (name, mean) in enumerate(means.items())
    ]
    return pl.concat(parts).with_columns(pl.lit(value).alias(name) for name, value in shared.items())


def outcomes(table: Table, words: str) -> dict[str, bool | None]:
    """Of the sentence with these words: by heading."""
    return {heading: holds for text, where, holds in table.verdicts if words in text for heading in where.split(", ")}


# ---- Table 8: the networks ----


@pytest.mark.parametrize("name", SMALL)
def test_the_small_networks_and_their_cards(name: str) -> None:
    model, card = zoo.load(name), zoo.card(name)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert not any(part.training for part in model.modules())
    assert sum(parameter.numel() for parameter in model.parameters()) == card["parameters"] < 350_000
    assert {"data", "scheme", "epochs", "seed", "versions", "script", "licence", "storage"} <= card.keys()
    content = (files("standfast.zoo") / "weights" / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == card["weights_sha256"]
    assert len(content) < 700_000
    stored = load_safetensors(content)
    assert stored.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():  # nothing is lost on the way
        assert torch.equal(tensor, stored[key].to(tensor.dtype))
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all(norm.num_batches_tracked == card["epochs"] * 313 for norm in norms)  # of 64 of 20,000 images


def test_the_small_networks_are_those_that_they_stand_for() -> None:
    assert len(SMALL) >= 1
    for own, (small, architecture) in NETWORKS.items():
        if small in zoo.names():
            assert type(zoo.load(small)) is architectures[architecture], own  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", SMALL)
def test_the_small_networks_know_test_images(name: str) -> None:
    """The card's accuracy is on 10,000 images; 600 of them agree up to four standard deviations."""
    try:
        test = standfast.data.load("cifar10:test")[:600]
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert accuracy(zoo.load(name), test.inputs, test.labels) == pytest.approx(
        zoo.card(name)["test_accuracy"], abs=0.07
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_accuracy_on_the_card_is_that_on_the_test_set(name: str) -> None:
    try:
        test = standfast.data.load("cifar10:test")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    measured = accuracy(zoo.load(name), test.inputs, test.labels)
    assert measured == pytest.approx(zoo.card(name)["test_accuracy"], abs=3.5 / len(test))  # for other processors


def test_published_networks_come_from_files_of_standfast_train(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = architectures["resnet20"](num_classes=10)
    file = tmp_path / "resnet20-cifar10-natural.safetensors"
    save_file(module.state_dict(), file)
    inputs = torch.rand(3, 3, 32, 32)
    assert torch.equal(load_trained("resnet20", str(file)).eval()(inputs), module.eval()(inputs))


def test_a_full_run_says_which_files_it_needs_and_what_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ARCHITECTURE_PART.study is not None
    monkeypatch.chdir(tmp_path)
    study = study_from({**ARCHITECTURE_PART.study("full"), "data": {"d": {"function": f"{__name__}:noise"}}})
    with pytest.raises(StudyError) as caught:
        study.grid()
    message = " ".join(str(caught.value).split())
    for name, (_, architecture) in NETWORKS.items():
        assert f"models.{name}" in message
        assert f"models/{architecture}-cifar10-natural.safetensors is missing" in message
        assert f"`standfast train --model {architecture} --data cifar10" in message
    # that is where the command puts its weights
    (tmp_path / "models").mkdir()
    torch.manual_seed(1)
    for _, architecture in NETWORKS.values():
        made = architectures[architecture](num_classes=10)
        save_file(made.state_dict(), tmp_path / "models" / f"{architecture}-cifar10-natural.safetensors")
    assert list(study.grid().models) == list(NETWORKS)


def noise() -> torch.Tensor:
    return torch.rand(100, 3, 32, 32, generator=torch.Generator().manual_seed(0))


# ---- the studies ----


@pytest.mark.parametrize("part", [ARCHITECTURE_PART, IMAGENET_PART], ids=lambda part: part.name)
def test_studies_are_valid_and_full_ones_larger(part: Any) -> None:
    small, full = (study_from(part.study(scale)) for scale in ("small", "full"))
    for study in (small, full):
        assert list(study.metrics) == ["worst F-hat", "worst F-tilde", "ln P F-hat", "ln P F-tilde"]
        for entry in study.metrics.values():
            assert entry.value is not None
            assert entry.value.neighbourhood == standfast.LinfBall(0.03)
    work = [
        sum(entry.value.expected_evaluations() for entry in study.metrics.values()) * study.samples  # type: ignore
        for study in (small, full)
    ]
    assert work[1] > 10 * work[0]
    assert part.departures("small") != part.departures("full")


def test_full_sizes() -> None:
    assert ARCHITECTURE_PART.study is not None
    assert IMAGENET_PART.study is not None
    full = ARCHITECTURE_PART.study("full")
    assert list(full["models"]) == ["ResNet20", "MobileNetV2", "VGG16", "DLA"]
    assert full["metrics"]["worst F-hat"]["search"] == {"genetic": {"population": 1000}}
    assert full["metrics"]["ln P F-tilde"]["floor"] == -100.0
    wide = IMAGENET_PART.study("full")
    assert wide["samples"] == 20
    assert wide["models"] == {WIDE: "timm:wide_resnet50_2"}
    assert wide["data"]["ImageNet"]["options"] == {"count": 20, "side": 224}
    assert list(wide["explainers"])[3:] == ["FullGrad", "Extremal Perturbations"]
    assert {"safari-table8", "safari-table9"} <= set(reproductions.names())


# ---- Table 8: what it reads ----


def test_table_8_has_a_row_for_each_model_and_explainer_and_the_papers_numbers() -> None:
    frame = cells("VGG16", "ln P_F-hat", dict.fromkeys(EXPLAINERS, -10.0)).with_columns(pl.lit(True).alias("bound"))
    frame = pl.concat([frame, cells("DLA", "sol_F-hat (PCC)", {"GradCAM": 0.5})], how="diagonal")
    table = make_table(ARCHITECTURE_PART, frame)
    assert table.rows["model, explainer"].to_list() == [*(f"VGG16, {name}" for name in EXPLAINERS), "DLA, GradCAM"]
    assert table.rows["ln P F-hat value bounded (paper)"].to_list()[:4] == [
        "−14.42", "−53.48", "−47.52", "−44.25"
    ]  # fmt: skip
    assert table.rows["worst F-tilde True similarity (paper)"].to_list()[2:] == ["0.8637", "0.8358", "0.2113"]
    assert table.rows["ln P F-hat value bounded_bound"].to_list() == [True] * 4 + [False]
    assert table.rows["worst F-hat similarity"].to_list()[-1] == pytest.approx(0.5, abs=0.01)
    # all of the paper's
    assert len(PAPER_ROWS) == 16
    assert PAPER_ROWS["MobileNetV2, Integrated Gradients"] == (0.1167, 0.7885, -34.99, -62.19)
    assert PAPER_ROWS["DLA, DeepLift"] == (0.0930, 0.7983, -9.77, -36.40)


def test_table_8_verdicts() -> None:
    def ranked(*values: float) -> dict[str, float]:
        return dict(zip(EXPLAINERS, values, strict=True))

    hat, tilde = "sol_F-hat (PCC)", "sol_F-tilde (PCC)"
    frames = [
        *(cells(model, hat, ranked(0.1, 0.5, 0.2, 0.3)) for model in NETWORKS),
        *(cells(model, "ln P_F-hat", ranked(-9, -30, -20, -10)) for model in ("ResNet20", "VGG16")),
        cells("DLA", "ln P_F-hat", ranked(-9, -30, -35, -10)),
        *(cells(model, tilde, ranked(0.8, 0.9, 0.1, 0.7), found=True) for model in ("ResNet20", "MobileNetV2", "DLA")),
        cells("VGG16", tilde, ranked(0.6, 0.9, 0.95, 0.7), found=True),
        cells("VGG16", tilde, ranked(-5.0, -5.0, 5.0, 5.0), found=False).with_columns(sample=pl.col("sample") + 8),
        *(cells(model, "ln P_F-tilde", ranked(-20, -20, -20, -20), spread=0.0) for model in NETWORKS),
        cells("ResNet20", "ln P_F-tilde", ranked(0, 0, -9, 0)).filter(pl.col("sample") < 0),
    ]
    table = make_table(ARCHITECTURE_PART, pl.concat(frames, how="diagonal"))
    first = outcomes(table, "Integrated Gradients is the most robust")
    assert first == {
        **{f"{hat} {model}": True for model in NETWORKS},
        "ln P_F-hat ResNet20": True,
        "ln P_F-hat VGG16": True,
        "ln P_F-hat DLA": False,
        "ln P_F-hat MobileNetV2": None,
    }
    assert outcomes(table, "for all architectures") == {hat: True, "ln P_F-hat": False}
    cam = outcomes(table, "GradCAM is the most robust")
    assert [cam[f"{tilde} {model}"] for model in NETWORKS] == [True, True, False, True]
    assert [cam[f"ln P_F-tilde {model}"] for model in NETWORKS] == [None] * 4, "all at the floor"
    assert outcomes(table, "in most cases")["both"] is None, "three of eight hold, one does not"
    assert outcomes(table, "varies with the architecture") == {tilde: True, "ln P_F-tilde": None}
    notes = {note.split(": ")[0]: note.split(": ")[1] for note in table.notes}
    assert notes[f"most robust by the mean, {tilde}"] == (
        "ResNet20 GradCAM, MobileNetV2 GradCAM, DLA GradCAM, VGG16 Gradient x Input"
    )
    assert "ResNet20 Gradient x Input and Integrated Gradients and" in notes["most robust by the mean, ln P_F-tilde"]
    assert notes["class changes found by the search for F-tilde"].endswith("VGG16 50%")


@pytest.mark.parametrize(("clear", "expected"), [(5, True), (4, None), (0, False)])
def test_most_cases_are_more_than_half(clear: int, expected: bool | None) -> None:
    """Of eight: four architectures, two columns."""
    places = [(model, heading) for heading in ("sol_F-tilde (PCC)", "ln P_F-tilde") for model in NETWORKS]
    frames = []
    for number, (model, heading) in enumerate(places):
        others = dict.fromkeys(EXPLAINERS, 0.0)
        shift = -1.0 if number < clear else 1.0 if number >= 5 or clear == 0 else 0.0
        spread = 0.01 if shift else 0.0
        frames.append(cells(model, heading, {**others, "GradCAM": shift}, spread=spread, found=True))
    assert (
        outcomes(make_table(ARCHITECTURE_PART, pl.concat(frames, how="diagonal")), "in most cases")["both"] is expected
    )


# ---- Table 9 ----


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with three photos: the coordinates of each pixel as its colours, of several sizes and forms."""
    root = tmp_path / "imagenet_sample" / "images"
    root.mkdir(parents=True)
    for name, (width, height) in {"a.png": (300, 256), "b.png": (256, 400), "c.png": (512, 640)}.items():
        columns, rows = np.meshgrid(np.arange(width) / width, np.arange(height) / height)
        pixels = np.stack([columns, rows, np.full_like(rows, 0.5)], axis=-1)
        Image.fromarray((255 * pixels).round().astype(np.uint8)).save(root / name)
    (root / "notes.txt").write_text("no photo")
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    return root


def test_photos_are_the_middle_of_files_by_name(folder: Path) -> None:
    found = load_photos(3, 224)
    assert found.shape == (3, 3, 224, 224)
    assert (float(found.min()), float(found.max())) >= (0.0, 0.0)
    columns = (torch.arange(224) + 38) / 300  # (300 - 224) / 2
    assert (found[0, 0] - columns).abs().max() < 0.003
    assert (found[0, 1] - ((torch.arange(224) + 16) / 256)[:, None]).abs().max() < 0.003
    assert (found[1, 1] - ((torch.arange(224) + 88) / 400)[:, None]).abs().max() < 0.003
    # brought from 512 to 256 first
    assert (found[2, 0] - (torch.arange(224) + 16.5) / 256).abs().max() < 0.006
    small = load_photos(2, 32)
    assert small.shape == (2, 3, 32, 32)
    inner = torch.nn.functional.avg_pool2d(found[:2], 7)
    assert (small - inner)[..., 2:-2, 2:-2].abs().max() < 0.006


def test_missing_photos_end_with_a_reason(folder: Path) -> None:
    with pytest.raises(MissingDataError, match=r"4 photos are needed in .*imagenet_sample/images, found 3"):
        load_photos(4, 64)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert IMAGENET_PART.study is not None
    with pytest.raises(
        StudyError, match=r"data.ImageNet.function(.|\n)*3\s+photos\s+are\s+needed(.|\n)*STANDFAST_DATA\s+can\s+name"
    ):
        study_from(IMAGENET_PART.study("small")).grid()


def test_the_stand_in_has_the_interface_and_explains() -> None:
    torch.manual_seed(0)
    module = make_stand_in(width=8)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    again = make_stand_in(width=8)
    assert torch.equal(torch.get_rng_state(), state)
    x = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    x = (x + nn.functional.interpolate(torch.rand(6, 3, 4, 4), 64)) / 2
    assert not any(part.training for part in module.modules())
    assert module(x).shape == (6, 1000)
    assert torch.equal(module(x), again(x))
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu", batch_size=16)
    assert len(set(model.predict(x).tolist())) > 1, "photos get different classes"
    blocks = [part for part in module.modules() if hasattr(part, "spatial")]
    assert len(blocks) == 4
    for block in blocks:
        assert block.spatial.conv.out_channels * 2 == block.expand.conv.out_channels  # type: ignore[union-attr]
    for name in ("gradcam", "fullgrad", "input_x_gradient"):
        assert bool((standfast.explainers.get(name)(model, x).flatten(1).std(1) > 0).any()), name


def test_the_stand_in_is_loud_and_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("Gradient x Input", "Integrated Gradients", "GradCAM", "FullGrad", "Extremal Perturbations")
    values = dict(zip(names, (0.2, 0.2, 0.2, 0.5, 0.1), strict=True))
    stood = make_table(IMAGENET_PART, cells(STAND_IN, "sol_F-hat (PCC)", values))
    assert stood.verdicts == []
    print_table(stood, "small")
    printed = capsys.readouterr().out
    assert "CANNOT BE COMPARED WITH THE PAPER'S" in printed
    assert stood.rows["model, explainer"].to_list()[3] == "UNTRAINED STAND-IN, FullGrad"
    assert "radius 0.03 (not stated for ImageNet" in printed
    real = make_table(IMAGENET_PART, cells(WIDE, "sol_F-hat (PCC)", values))
    assert not any("NOTHING" in note for note in real.notes)
    assert outcomes(real, "FullGrad combines") == {"sol_F-hat (PCC)": True, "ln P_F-hat": None}
    assert outcomes(real, "Extremal Perturbations")["sol_F-hat (PCC)"] is True
    swapped = {**values, "FullGrad": 0.05}
    other = make_table(IMAGENET_PART, cells(WIDE, "sol_F-hat (PCC)", swapped))
    assert outcomes(other, "FullGrad combines")["sol_F-hat (PCC)"] is False
    assert outcomes(other, "Extremal Perturbations")["sol_F-hat (PCC)"] is False
    for table in (stood, real):
        assert table.rows["worst F-hat similarity (paper)"].to_list() == ["0.159", "0.191", "0.233", "0.315", "0.126"]


# ---- real, and tiny ----


def tiny(study: dict[str, Any], **more: Any) -> dict[str, Any]:
    metrics = {}
    for label, entry in study["metrics"].items():
        size = {"budget": 16} if "budget" in entry else {"particles": 16, "moves": 1, "quantile": 0.5, "floor": -1.0}
        metrics[label] = {**entry, **size}
    return {**study, "metrics": metrics, "samples_per_job": 2, **more}


def test_a_tiny_run_of_table_9(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert IMAGENET_PART.study is not None
    study = IMAGENET_PART.study("small")
    explainers = {name: study["explainers"][name] for name in ("Gradient x Input", "GradCAM", "FullGrad")}
    extremal = {**study["explainers"]["Extremal Perturbations"], "steps": 2}
    data = {"ImageNet": {**study["data"]["ImageNet"], "options": {"count": 2, "side": 32}}}
    models = {STAND_IN: {**study["models"][STAND_IN], "options": {"width": 4}}}
    changed = {"samples": 2, "data": data, "models": models}
    shown = tiny(study, explainers={**explainers, "Extremal Perturbations": extremal}, **changed)
    found = standfast.run_study(shown, tmp_path / "results", progress=False)
    assert found.failures == []
    frame = found.results.samples
    assert frame["explainer"].n_unique() == 4
    assert frame.filter(pl.col("label") == "ln P F-hat")["log_probability"].drop_nulls().max() <= 0.0  # type: ignore
    print_table(make_table(IMAGENET_PART, frame), "small")
    assert "CANNOT BE COMPARED" in capsys.readouterr().out


@pytest.mark.skipif(not (data_root() / "cifar10").is_dir() or not SMALL, reason="needs CIFAR-10")
def test_a_tiny_run_of_table_8(tmp_path: Path) -> None:
    assert ARCHITECTURE_PART.study is not None
    study = ARCHITECTURE_PART.study("small")
    assert [entry["name"] for entry in study["models"].values()] == SMALL
    name = "VGG16" if "VGG16" in study["models"] else next(iter(study["models"]))
    changed = tiny(study, samples=2, models={name: study["models"][name]})
    found = standfast.run_study(changed, tmp_path, progress=False)
    assert found.failures == []
    table = make_table(ARCHITECTURE_PART, found.results.samples)
    assert table.rows["model, explainer"].to_list() == [f"{name}, {explainer}" for explainer in EXPLAINERS]
    frame = found.frame("worst F-hat").filter(explainer="DeepLift")
    assert table.rows["worst F-hat similarity"][3] == pytest.approx(frame["similarity"].mean())
    # the worst case of the class held is no better than that of the clean input, which is like itself
    assert (frame["similarity"] <= 1).all()
    assert (frame["margin"] < 0).all()
