"""Volumes `(N, C, D, H, W)`: explained, changed in the plane of their slices, evaluated and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.neighbourhoods import Compose, GaussianBlur, Rotation, Translation
from standfast.neighbourhoods.base import Neighbourhood
from standfast.neighbourhoods.light import Brightness, Contrast


@pytest.fixture(scope="module")
def model() -> standfast.Model:
    torch.manual_seed(0)
    layers = [
        nn.Conv3d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(2),
        nn.Flatten(),
        nn.Linear(32, 3),
    ]
    return standfast.Model(nn.Sequential(*layers), bounds=(0.0, 1.0), device="cpu")


@pytest.fixture(scope="module")
def volumes() -> Tensor:
    return torch.rand(3, 1, 5, 8, 8, generator=torch.Generator().manual_seed(1))


PLANAR = [
    Rotation(30.0),
    Translation(0.2),
    GaussianBlur(1.5),
    Contrast((0.5, 1.5)),
    Compose((Rotation(20.0), Brightness(0.2))),
]


@pytest.mark.parametrize("change", PLANAR, ids=lambda change: type(change).__name__)
def test_slices_change_as_images_do(change: Neighbourhood, volumes: Tensor) -> None:
    region = change.around(volumes, (0.0, 1.0))
    points = region.sample(4, region.streams(0)).flatten(0, 1)
    problem = torch.arange(3).repeat_interleave(4)
    changed = region.perturb(points, problem)
    assert changed.shape == (12, 1, 5, 8, 8)
    maps = torch.rand(12, 1, 5, 8, 8, generator=torch.Generator().manual_seed(2))
    moved, seen = region.align_maps(maps, points, problem)
    for depth in range(5):
        if isinstance(change, Contrast):  # its mean is that of the whole volume
            continue
        images = change.around(volumes[:, :, depth], (0.0, 1.0))
        torch.testing.assert_close(images.perturb(points, problem), changed[:, :, depth])
        back, visible = images.align_maps(maps[:, :, depth], points, problem)
        torch.testing.assert_close(back, moved[:, :, depth])
        assert torch.equal(visible.expand_as(back), seen.expand_as(moved)[:, :, depth])
    grey = change.around(volumes, (torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)))
    assert torch.equal(grey.perturb(points, problem), changed)


@pytest.mark.parametrize(
    "change", [*PLANAR, standfast.LinfBall(0.1)], ids=lambda change: type(change).__name__
)
def test_worst_cases_of_volumes(
    change: Neighbourhood, model: standfast.Model, volumes: Tensor
) -> None:
    result = standfast.metrics.WorstCase(change, budget=40)(model, "saliency", volumes)
    assert set(result.status) == {"ok"}
    assert (result.similarity <= 1).all()
    alone = standfast.metrics.WorstCase(change, budget=40)(model, "saliency", volumes[1:2])
    assert torch.equal(alone.similarity, result.similarity[1:2])


def test_explainers_of_volumes(model: standfast.Model, volumes: Tensor) -> None:
    refused = []
    for name in standfast.explainers.names():
        explainer = standfast.explainers.get(name)
        try:
            maps = explainer(model, volumes)
        except standfast.StandfastError:
            refused.append(name)
            continue
        assert maps.shape == volumes.shape
        assert maps.isfinite().all()
    assert {*refused} <= {
        "extremal_perturbations",
        "attention_rollout",
        "attention_relevance",
        "transformer_attribution",
    }
    leaf = volumes.clone().requires_grad_(True)
    own = model.logits(volumes).argmax(1)
    (gradient,) = torch.autograd.grad(model.module(leaf).gather(1, own[:, None]).sum(), leaf)
    saliency = standfast.explainers.get("saliency", absolute=False)
    torch.testing.assert_close(saliency(model, volumes), gradient, rtol=1e-4, atol=1e-6)


def test_similarities_with_windows_of_two_dimensions_refuse_volumes() -> None:
    a, b = torch.rand(2, 3, 1, 5, 8, 8)
    assert standfast.similarity.get("pearson")(a, b).shape == (3,)
    assert standfast.similarity.get("ssim")(a, a).tolist() == pytest.approx([1.0] * 3)
    with pytest.raises(standfast.ArgumentError, match="a: expected shape"):
        standfast.similarity.get("lens_recall")(a, b)


def test_a_report_of_volumes(model: standfast.Model, volumes: Tensor, tmp_path: Path) -> None:
    found = standfast.evaluate(
        model,
        ["saliency", "gradcam"],
        volumes,
        ["worst_case:budget=20", "corruption_curve:preset=quick"],
        progress=False,
    )
    assert found.failures == []
    page = found.to_html(tmp_path / "volumes.html").read_text()
    assert "slices 2, 3, 4 of 5" in page
