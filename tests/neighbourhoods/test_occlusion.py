"""A patch: whole pixels, shares of pixels counted on a fine grid, and colours."""

from __future__ import annotations

import pytest
import torch

from standfast.neighbourhoods import Occlusion

BOUNDS = (
    torch.tensor([-1.0, 0.0, 0.0]).reshape(3, 1, 1),
    torch.tensor([1.0, 1.0, 2.0]).reshape(3, 1, 1),
)


@pytest.mark.parametrize(
    "place",
    [
        (3.0, 3.5, 2.5),
        (2.4, 1.1, 6.3),
        (4.0, 0.0, 8.0),
        (20.0, 2.0, 2.0),
        (0.3, 2.5, 4.6),
        (0.0, 3.0, 3.0),
    ],
)
@pytest.mark.parametrize("fill", ["mean", "lower", "upper"])
def test_pixels_are_mixed_by_area(place: tuple[float, float, float], fill: str) -> None:
    low, high = (bound.double() for bound in BOUNDS)
    image = low + (high - low) * torch.rand(1, 3, 6, 8, dtype=torch.float64)
    region = Occlusion(20, fill).around(image, BOUNDS)  # type: ignore[arg-type]
    found = region.perturb(torch.tensor([place], dtype=torch.float64), torch.tensor([0]))
    fine = 100
    size, top, left = place
    rows, columns = (torch.arange(pixels * fine) / fine + 0.5 / fine for pixels in (6, 8))
    covered = ((rows - top).abs() < size / 2)[:, None] & ((columns - left).abs() < size / 2)[
        None, :
    ]
    share = covered.double().reshape(6, fine, 8, fine).mean((1, 3))
    colour = {"mean": image.mean((2, 3), keepdim=True), "lower": low, "upper": high}[fill]
    assert (found - (image * (1 - share) + colour * share)).abs().max() < 0.03
    if size % 1 == 0 and (top - size / 2) % 1 == 0 and (left - size / 2) % 1 == 0:
        assert torch.equal(found, torch.where(share > 0.5, colour, image))


def test_all_places_are_drawn() -> None:
    image = torch.rand(2, 1, 6, 8)
    region = Occlusion((1, 2), "upper").around(image, (0.0, 1.0))
    assert region.lower.tolist() == [[1.0, 0.0, 0.0]] * 2
    assert region.upper.tolist() == [[2.0, 6.0, 8.0]] * 2
    points = region.sample(300, region.streams(0))
    found = region.perturb(points.flatten(0, 1), torch.arange(2).repeat_interleave(300))
    touched = (found.reshape(2, 300, 6, 8) != image).any(1)
    assert touched.all()
