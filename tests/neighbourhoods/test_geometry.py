"""Changes of geometry: against scipy.ndimage, whole pixels, and maps that move back."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import ndimage
from torch import Tensor

import standfast
from standfast.errors import ArgumentError
from standfast.neighbourhoods import (
    Compose,
    Perspective,
    Rotation,
    Scale,
    Shear,
    Transformation,
    Translation,
)

WARPS: dict[str, tuple[Transformation, list[float]]] = {
    "rotation": (Rotation(40), [23.0]),
    "translation": (Translation(3), [1.3, -2.6]),
    "scale": (Scale((0.5, 2)), [1.37]),
    "shear": (Shear(30), [14.0, -9.0]),
    "perspective": (Perspective(25), [22.0, -17.0]),
}


def perturb(
    kind: Transformation, images: Tensor, parameters: list[float], low: float = 0.0
) -> Tensor:
    points = torch.tensor([parameters], dtype=images.dtype).expand(len(images), -1)
    return kind.around(images, (low, 1.0)).perturb(points, torch.arange(len(images)))


def make_smooth_images(rows: int, height: int, width: int) -> Tensor:
    """A few waves, all of them much longer than a pixel: float64, from 0 to 1."""
    y = torch.arange(height, dtype=torch.float64)[:, None] / 12
    x = torch.arange(width, dtype=torch.float64)[None, :] / 12
    waves = [
        torch.sin(x + row) * torch.cos(0.7 * y - row) + 0.3 * torch.sin(0.5 * x * y / 3 + y)
        for row in range(rows)
    ]
    images = torch.stack(waves)[:, None]
    return (images - images.min()) / (images.max() - images.min())


def map_positions(name: str, parameters: list[float], height: int, width: int) -> np.ndarray:
    """Row and column in the clean image of each pixel of the perturbed one, from the formula, one pixel at a time."""
    a, b = (math.radians(value) for value in (*parameters, 0.0)[:2])
    found = np.zeros((2, height, width))
    for i in range(height):
        for j in range(width):
            x, y = j - (width - 1) / 2, i - (height - 1) / 2
            # content turns counter-clockwise, so it came from the clockwise side
            if name == "rotation":
                source = (math.cos(a) * x - math.sin(a) * y, math.sin(a) * x + math.cos(a) * y)
            elif name == "translation":
                source = (x - parameters[0], y - parameters[1])
            elif name == "scale":
                source = (x / parameters[0], y / parameters[0])
            elif name == "shear":
                source = tuple(np.linalg.solve([[1, math.tan(a)], [math.tan(b), 1]], [x, y]))
            else:  # the point of the turned picture on the ray through (x, y), from two vectors of the picture in space
                distance = 2.0 * max(height, width)
                right = np.array([math.cos(a), 0.0, -math.sin(a)])
                down = np.array([math.sin(a) * math.sin(b), math.cos(b), math.cos(a) * math.sin(b)])
                # u right + v down + (0, 0, distance) = s (x, y, distance)
                u, v, _ = np.linalg.solve(
                    np.stack([right, down, -np.array([x, y, distance])], 1), [0.0, 0.0, -distance]
                )
                source = (u, v)
            found[:, i, j] = source[1] + (height - 1) / 2, source[0] + (width - 1) / 2
    return found


@pytest.mark.parametrize("name", WARPS)
@pytest.mark.parametrize(
    ("fill", "rule"), [("border", "nearest"), ("reflection", "reflect"), ("lower", "grid-constant")]
)
def test_images_are_scipys(name: str, fill: str, rule: str) -> None:
    kind, parameters = WARPS[name]
    kind = replace(kind, fill=fill)  # type: ignore[call-arg]
    images = torch.rand(
        2, 2, 9, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    source = map_positions(name, parameters, 9, 12)
    expected = [
        [
            ndimage.map_coordinates(channel, source, order=1, mode=rule, cval=-0.5)
            for channel in image
        ]
        for image in images.numpy()
    ]
    got = perturb(kind, images, parameters, low=-0.5)
    assert np.abs(got.numpy() - np.array(expected)).max() < 1e-10


def test_rotation_is_scipys_and_counter_clockwise() -> None:
    image = torch.rand(1, 1, 11, 11, dtype=torch.float64)
    expected = ndimage.rotate(image[0, 0].numpy(), 17.0, reshape=False, order=1, mode="nearest")
    assert np.abs(perturb(Rotation(20), image, [17.0])[0, 0].numpy() - expected).max() < 1e-10
    assert torch.allclose(
        perturb(Rotation(90), image, [90.0]), torch.rot90(image, 1, (2, 3)), atol=1e-12
    )


def test_identity_is_exact_for_large_images_in_single_precision() -> None:
    image = torch.rand(1, 3, 224, 224)
    for kind, _ in WARPS.values():
        region = kind.around(image, (0.0, 1.0))
        assert torch.equal(region.perturb(region.centre, torch.tensor([0])), image)
        maps, seen = region.align_maps(image, region.centre, torch.tensor([0]))
        assert torch.equal(maps, image)
        assert seen.all()


@pytest.mark.parametrize("name", WARPS)
def test_a_map_that_moves_with_a_smooth_image_is_the_same_after_it_moved_back(name: str) -> None:
    kind, parameters = WARPS[name]
    images = make_smooth_images(3, 40, 48)
    region = kind.around(images, (0.0, 1.0))
    points = torch.tensor([parameters], dtype=torch.float64).expand(3, -1)
    perturbed = region.perturb(points, torch.arange(3))
    maps, seen = region.align_maps(perturbed**2, points, torch.arange(3))
    assert 0.3 < seen.double().mean() <= 1.0
    for image, moved, taken_back, visible in zip(images, perturbed, maps, seen, strict=True):
        clean = (image**2)[visible]
        assert 1 - np.corrcoef(clean, taken_back[visible])[0, 1] < 1e-3
        assert 1 - np.corrcoef(clean, (moved**2)[visible])[0, 1] > 5e-3  # as it is, it differs


def test_seen_positions_of_a_shift() -> None:
    region = Translation(3).around(torch.rand(1, 1, 4, 6), (0.0, 1.0))
    for shift, columns in [(0.4, 6), (0.6, 5), (2.0, 4), (-2.0, 4)]:
        maps, seen = region.align_maps(
            torch.rand(1, 1, 4, 6), torch.tensor([[shift, 0.0]]), torch.tensor([0])
        )
        assert seen.sum() == 4 * columns
        assert seen[0, 0, 0, 0] == (shift > 0)
        assert torch.isfinite(maps).all()


def test_compose_moves_maps_back_through_all_parts() -> None:
    images = make_smooth_images(2, 40, 40)
    kind = Compose((Rotation(20), Translation(3), Scale(0.2)))
    region = kind.around(images, (0.0, 1.0))
    points = torch.tensor([[12.0, 1.5, -2.5, 1.1]], dtype=torch.float64).expand(2, -1)
    maps, seen = region.align_maps(
        region.perturb(points, torch.arange(2)) ** 2, points, torch.arange(2)
    )
    assert 0.3 < seen.double().mean() < 1.0
    assert 1 - np.corrcoef((images**2)[seen], maps[seen])[0, 1] < 1e-3


@pytest.mark.parametrize("kind", [Rotation(20), Compose((Perspective(15), Scale(0.2)))])
def test_the_worst_case_of_an_equivariant_network_and_explainer_is_a_similarity_of_one(
    kind: Transformation,
) -> None:
    """The network adds up squares of pixels, so its map, gradient times input, moves with the image."""

    class Squares(torch.nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            total = inputs.square().mean((1, 2, 3))
            return torch.stack([total, torch.zeros_like(total)], dim=1)

    images, model = make_smooth_images(2, 40, 48).float(), standfast.Model(Squares(), (0.0, 1.0))
    metric = standfast.metrics.WorstCase(kind, similarity="pearson", search="random", budget=30)
    assert (metric(model, "input_x_gradient", images).value > 1 - 1e-3).all()
    parts = [replace(part, align=False) for part in getattr(kind, "parts", (kind,))]  # type: ignore[call-arg]
    as_they_are = standfast.metrics.WorstCase(
        Compose(parts), similarity="pearson", search="random", budget=30
    )
    assert (as_they_are(model, "input_x_gradient", images).value < 0.99).all()


def test_gradients_of_maps_moved_back() -> None:
    maps = torch.rand(2, 1, 6, 5, dtype=torch.float64, requires_grad=True)
    for kind, parameters in WARPS.values():
        points = torch.tensor([parameters], dtype=torch.float64).repeat(2, 1).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda m, p, k=kind: k.align_maps(m, p)[0], (maps, points), fast_mode=True
        )


def test_bad_arguments() -> None:
    assert_refused(partial(Perspective, 5), distance=[0.5])
    assert_refused(
        lambda bounds: Rotation(5, fill="lower").around(torch.rand(1, 1, 3, 3), bounds),
        bounds=[None],
    )
    with pytest.raises(ArgumentError, match="pixels: expected a shift of less than the 4 pixels"):
        Translation(4).around(torch.rand(1, 1, 4, 6))
