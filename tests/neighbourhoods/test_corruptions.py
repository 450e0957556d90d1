"""Named corruptions: the formulas of the original, written again from its description, at whole severities."""

from __future__ import annotations

import io
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import assert_refused
from scipy import ndimage, stats
from skimage import color
from torch import Tensor

from standfast.neighbourhoods import Corruption
from standfast.neighbourhoods.blur import make_disks
from standfast.neighbourhoods.distortions import enlarge, find_sources

LOW, HIGH = -1.0, 3.0
#: of the original, as its code writes them: constants of severities 1 to 5
LEVELS, DISTORTIONS = json.loads(
    (Path(__file__).parent / "corruption_constants.json").read_text()
).values()


def corrupt(name: str, constant: object, x: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One image `(H, W, 3)` in [0, 1]; noise from the quantiles of `uniform`."""
    if name == "gaussian_noise":
        return np.clip(x + constant * stats.norm.ppf(uniform), 0, 1)
    if name == "speckle_noise":
        return np.clip(x + x * constant * stats.norm.ppf(uniform), 0, 1)
    if name == "shot_noise":
        return np.clip(stats.poisson.ppf(uniform, x * constant) / constant, 0, 1)
    if name == "impulse_noise":
        return np.where(uniform < constant / 2, 0.0, np.where(uniform > 1 - constant / 2, 1.0, x))
    if name == "gaussian_blur":
        return ndimage.gaussian_filter(x, (constant, constant, 0), mode="nearest")
    if name == "contrast":
        mean = x.mean(axis=(0, 1), keepdims=True)
        return np.clip((x - mean) * constant + mean, 0, 1)
    if name in ("brightness", "saturate"):
        hsv = color.rgb2hsv(x)
        if name == "brightness":
            hsv[..., 2] = np.clip(hsv[..., 2] + constant, 0, 1)
        else:
            hsv[..., 1] = np.clip(hsv[..., 1] * constant[0] + constant[1], 0, 1)
        return np.clip(color.hsv2rgb(hsv), 0, 1)
    image = Image.fromarray(np.rint(x * 255).astype(np.uint8))
    if name == "pixelate":
        small = int(x.shape[1] * constant), int(x.shape[0] * constant)
        image = image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)
    else:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=constant)
        image = Image.open(file)
    return np.asarray(image) / 255


def perturb(
    kind: Corruption, shares: Tensor, severity: float, further: Tensor | None = None
) -> np.ndarray:
    region = kind.around(LOW + (HIGH - LOW) * shares, (LOW, HIGH))
    points = torch.cat([torch.tensor([[severity]], dtype=torch.float64), region.centre[:, 1:]], 1)
    if further is not None and points.shape[1] > 1:
        points[:, 1:] = further
    found = region.perturb(points, torch.tensor([0]))[0]
    return ((found - LOW) / (HIGH - LOW)).permute(1, 2, 0).numpy()


@pytest.mark.parametrize("images", LEVELS)
@pytest.mark.parametrize("name", LEVELS["imagenet"])
def test_whole_severities_are_the_originals(name: str, images: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(1, 3, 20, 16, generator=generator, dtype=torch.float64)
    uniform = torch.rand(1, 3, 20, 16, generator=generator, dtype=torch.float64)
    kind = Corruption(name, severity=5, images=images)  # type: ignore[arg-type]
    for severity, constant in enumerate(LEVELS[images][name], 1):
        arranged = [each[0].permute(1, 2, 0).numpy() for each in (shares, uniform)]
        expected = corrupt(name, constant, *arranged)
        alone = Corruption(name, severity=(severity, severity), images=images)  # type: ignore[arg-type]
        assert np.abs(perturb(alone, shares, severity, uniform.flatten(1)) - expected).max() < 1e-6
        # the same within a wider range; only a Gaussian ends later there
        assert np.abs(perturb(kind, shares, severity, uniform.flatten(1)) - expected).max() < 1e-3


def zoom(x: np.ndarray, factor: float) -> np.ndarray:
    """`(H, W, C)`, larger about its middle."""
    middle = (np.array(x.shape[:2]) - 1) / 2
    places = [m + (i - m) / factor for m, i in zip(middle, np.indices(x.shape[:2]), strict=True)]
    return np.stack(
        [ndimage.map_coordinates(c, places, order=1, mode="nearest") for c in x.transpose(2, 0, 1)],
        2,
    )


def make_plasma(ranks: np.ndarray, decay: float, size: int) -> np.ndarray:
    """The diamond-square algorithm, point by point; `ranks` of the points of the field in the order of its rows."""
    field = np.zeros((size, size))
    draw = 2 * np.concatenate([[0.5], ranks]).reshape(size, size) - 1
    step, wibble = size, 100.0
    while step >= 2:
        half = step // 2
        for y in range(half, size, step):
            for x in range(half, size, step):
                near = [
                    field[(y + a) % size, (x + b) % size]
                    for a in (-half, half)
                    for b in (-half, half)
                ]
                field[y, x] = sum(near) / 4 + wibble**2 * draw[y, x]
        for y in range(0, size, half):
            for x in range((y + half) % step, size, step):
                near = [
                    field[(y + a) % size, (x + b) % size]
                    for a, b in ((half, 0), (-half, 0), (0, half), (0, -half))
                ]
                field[y, x] = sum(near) / 4 + wibble**2 * draw[y, x]
        step, wibble = half, wibble / decay
    field -= field.min()
    return field / field.max()


def distort(name: str, constant: tuple[float, ...], x: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """One image `(H, W, 3)` in [0, 1], from the formulas and loops of the original."""
    height, width = x.shape[:2]
    if name == "zoom_blur":
        factors = np.arange(1, *constant)
        return (x + sum(zoom(x, factor) for factor in factors)) / (len(factors) + 1)
    if name == "fog":
        thickness, decay = constant
        field = make_plasma(ranks, decay, 32)[:height, :width, None]
        return np.clip((x + thickness * field) * x.max() / (x.max() + thickness), 0, 1)
    if name == "glass_blur":
        sigma, distance, iterations = constant
        blurred = ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest")
        steps = np.floor(distance * (2 * ranks - 1)).astype(int).reshape(-1, 2, height, width)
        for number in range(iterations):
            for h in range(height - distance, distance, -1):
                for w in range(width - distance, distance, -1):
                    dy, dx = steps[number, :, h, w]
                    # as in the original: the sides are views, so this is no swap
                    blurred[h, w], blurred[h + dy, w + dx] = blurred[h + dy, w + dx], blurred[h, w]
        return ndimage.gaussian_filter(blurred, (sigma, sigma, 0), mode="nearest")
    if name == "snow":
        mean, scale, factor, threshold, radius, sigma, kept = constant
        angle, ranks = math.radians(ranks[0]), ranks[1:]
        layer = zoom((mean + scale * stats.norm.ppf(ranks)).reshape(height, width, 1), factor)[
            ..., 0
        ]
        layer = np.clip(np.where(layer < threshold, 0, layer), 0, 1)
        # a line of the same standard deviation as their half of a Gaussian
        i = np.arange(2 * radius + 1)
        length = round(
            math.sqrt(12 * np.cov(i, aweights=np.exp(-(i**2) / (2 * sigma**2)), ddof=0)), 2
        )
        points = 2 * math.ceil(length) + 1
        y, xs = np.indices(layer.shape)
        places = length * ((np.arange(points) + 0.5) / points - 0.5)
        moved = [(y - t * math.sin(angle), xs + t * math.cos(angle)) for t in places]
        wide = np.pad(layer, 40, mode="edge")
        layer = np.mean(
            [ndimage.map_coordinates(wide, np.array(m) + 40, order=1) for m in moved], 0
        )[..., None]
        grey = (x @ [0.299, 0.587, 0.114])[..., None]
        whiter = kept * x + (1 - kept) * np.maximum(x, grey * 1.5 + 0.5)
        return np.clip(whiter + layer + np.rot90(layer, k=2), 0, 1)
    amplitude, sigma, corner = constant
    side, uniform = min(height, width), 2 * ranks - 1
    middle, half = np.array([width // 2, height // 2]), side // 3
    before = np.array([middle + half, [middle[0] + half, middle[1] - half], middle - half])
    after = before + corner * side * uniform[:6].reshape(3, 2)
    affine = np.linalg.solve(np.column_stack([before, np.ones(3)]), after).T  # (x, y, 1) to (x, y)
    fields = uniform[6:].reshape(2, height, width)
    if amplitude:
        fields = [
            ndimage.gaussian_filter(f, sigma * side, mode="reflect", truncate=3) for f in fields
        ]
    y, xs = np.indices((height, width))
    moved = np.stack([xs + amplitude * side * fields[0], y + amplitude * side * fields[1]]).reshape(
        2, -1
    )
    back = np.linalg.solve(affine[:, :2], moved - affine[:, 2:]).reshape(2, height, width)
    return np.stack(
        [
            ndimage.map_coordinates(c, back[::-1], order=1, mode="reflect")
            for c in x.transpose(2, 0, 1)
        ],
        2,
    )


@pytest.mark.parametrize("images", DISTORTIONS)
@pytest.mark.parametrize("name", DISTORTIONS["imagenet"])
def test_distortions_are_the_formulas_of_the_original(name: str, images: str) -> None:
    generator = torch.Generator().manual_seed(1)
    shares = torch.rand(1, 3, 20, 18, generator=generator, dtype=torch.float64)
    arranged = shares[0].permute(1, 2, 0).numpy()
    kind = Corruption(name, severity=5, images=images)  # type: ignore[arg-type]
    count = kind.count_parameters((3, 20, 18)) - 1
    further = torch.rand(1, count, generator=generator, dtype=torch.float64)
    if name == "snow":
        further[0, 0] = -110.0
    for severity, constant in enumerate(DISTORTIONS[images][name], 1):
        alone = Corruption(name, severity=(severity, severity), images=images)  # type: ignore[arg-type]
        own = further[:, : alone.count_parameters((3, 20, 18)) - 1]
        # 244 pixels, where images have 224
        if name == "elastic_transform" and images == "imagenet":
            constant = tuple(share * 244 / 224 for share in constant)
        expected = distort(name, constant, arranged.copy(), own[0].numpy())
        assert np.abs(perturb(alone, shares, severity, own) - expected).max() < 1e-6
        # the others end a Gaussian later in a wider range, or sample a
        if name in (
            "zoom_blur",
            "fog",
            "glass_blur",
        ):
            found = perturb(kind, shares, severity, further)  # line at more points
            assert np.abs(found - expected).max() < (1e-6 if name != "glass_blur" else 1e-3)
    assert np.abs(perturb(kind, shares, 0.0, further) - arranged).max() < 1e-12


def test_zoomed_images_differ_from_the_originals_by_little_more_than_a_pixel() -> None:
    """The original cuts out whole pixels; on a ramp the values of pixels are their places."""
    for size in (32, 224):
        ramp = np.arange(size, dtype=float)
        for factor in np.arange(1.01, 1.31, 0.01):
            cut = math.ceil(size / factor)
            first = (size - cut) // 2
            theirs = ndimage.zoom(ramp[first : first + cut], factor, order=1)
            theirs = theirs[(len(theirs) - size) // 2 :][:size]
            found = enlarge(torch.from_numpy(ramp).reshape(1, 1, 1, -1), torch.tensor([factor]))
            assert np.abs(found[0, 0, 0].numpy() - theirs).max() < 1.2


def test_glass_between_whole_constants() -> None:
    """Half an iteration moves half of the pixels; distances up to 1.5 are -2 to 1, the outer ones half as often."""
    ranks = torch.rand(
        1, 2, 120, 120, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    half = find_sources(ranks, torch.tensor([1.0]), torch.tensor([0.5])).reshape(120, 120)
    own = torch.arange(120 * 120).reshape(120, 120)
    assert float((half != own)[2:120, 2:120].double().mean()) == pytest.approx(
        0.5 * 3 / 4, abs=0.02
    )
    # the last pixel in the order takes its value before all others, so its source is its step
    ranks = torch.rand(
        6000, 2, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    source = find_sources(ranks, torch.full((6000,), 1.5), torch.ones(6000))[:, 3 * 5 + 3]
    for step in (source // 5 - 3, source % 5 - 3):
        assert np.allclose(torch.bincount(step + 2) / 6000, [1 / 6, 1 / 3, 1 / 3, 1 / 6], atol=0.03)


def test_moments_of_snow_and_of_elastic_displacements() -> None:
    """Flakes are a normal distribution above a threshold; a Gaussian leaves 1 / (4 pi sigma^2) of the variance."""
    black = torch.zeros(1, 1, 100, 100, dtype=torch.float64)
    region = Corruption("snow", (2, 2), "cifar10").around(black, (0.0, 1.0))
    points = region.sample(4, region.streams(0))[0]
    kept, normal = 0.9, stats.norm(0.1, 0.2)
    flakes = 0.1 * normal.sf(0.5) + 0.2**2 * normal.pdf(0.5)
    found = float(region.perturb(points, torch.zeros(4, dtype=torch.int64)).mean())
    assert found == pytest.approx((1 - kept) * 0.5 + 2 * flakes, rel=0.04)
    ramp = torch.arange(100, dtype=torch.float64).expand(1, 1, 100, 100)
    region = Corruption("elastic_transform", (5, 5), "cifar10").around(ramp, (0.0, 99.0))
    points = region.sample(4, region.streams(0))[0]
    points[:, 1:7] = 0.5  # no affine map
    moved = (region.perturb(points, torch.zeros(4, dtype=torch.int64)) - ramp)[..., 10:-10]
    assert float(moved.std()) == pytest.approx(
        10 / math.sqrt(3) / (2 * 3 * math.sqrt(math.pi)), rel=0.1
    )


def test_elastic_maps_move_back() -> None:
    """A smooth image as its own map comes back to the clean one where both are seen."""
    x = torch.linspace(0, 3, 40, dtype=torch.float64)
    image = (0.5 + 0.4 * torch.sin(x[:, None] + 0.5) * torch.cos(1.3 * x[None, :]))[None, None]
    for severity, images, least in [
        (1, "imagenet", 0.7),
        (2, "imagenet", 0.5),
        (4, "cifar10", 0.8),
    ]:
        kind = Corruption("elastic_transform", severity, images)  # type: ignore[arg-type]
        region = kind.around(image, (0.0, 1.0))
        assert region.aligns
        points = region.sample(2, region.streams(0))[0]
        points[:, 0] = severity
        problem = torch.zeros(2, dtype=torch.int64)
        perturbed = region.perturb(points, problem)
        maps, seen = region.align_maps(perturbed, points, problem)
        assert least < float(seen.double().mean()) < 1
        assert float((maps - image).abs()[seen].mean()) < 0.003
        assert float((perturbed - image).abs()[seen].mean()) > 0.02
    assert not Corruption("zoom_blur").aligns
    assert not Corruption("elastic_transform", align=False).around(image, (0.0, 1.0)).aligns
    small = Corruption("elastic_transform", 4, "cifar10").around(image[..., :6, :6], (0.0, 1.0))
    maps = torch.rand(1, 1, 6, 6, dtype=torch.float64).requires_grad_()
    points = small.sample(1, small.streams(1))[0].requires_grad_()
    back = small.transformation.align_maps
    assert torch.autograd.gradcheck(lambda m, p: back(m, p)[0], (maps, points), fast_mode=True)


def test_severities_in_between_are_interpolated() -> None:
    shares = torch.rand(1, 1, 5, 6, dtype=torch.float64)
    kind = Corruption("contrast", severity=5)
    mean = float(shares.mean())
    for severity, factor in [(0.0, 1.0), (0.75, 0.55), (1.25, 0.375), (3.8, 0.12), (5.0, 0.05)]:
        expected = mean + factor * (shares[0].permute(1, 2, 0).numpy() - mean)
        assert np.abs(perturb(kind, shares, severity) - expected).max() < 1e-9


def test_brightness_of_black_and_of_grey_images() -> None:
    black = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    assert np.allclose(perturb(Corruption("brightness", 5), black, 3.0), 0.3)
    grey = torch.full((1, 1, 2, 2), 0.9, dtype=torch.float64)
    assert np.allclose(perturb(Corruption("brightness", 5), grey, 1.0), 1.0)
    assert np.allclose(perturb(Corruption("brightness", 5, "cifar10"), grey, 1.0), 0.95)


def test_blurs_have_the_spread_of_the_originals() -> None:
    """The standard deviation of a bright point: of ImageMagick's half Gaussian, and of the disk with a soft edge."""

    def spread(name: str, images: str, severity: int) -> float:
        point = torch.zeros(1, 1, 61, 61, dtype=torch.float64)
        point[..., 30, 30] = 1.0
        kind = Corruption(name, (severity, severity), images)  # type: ignore[arg-type]
        further = torch.zeros(1, dtype=torch.float64) if name == "motion_blur" else None
        blurred = perturb(kind, point, severity, further)[..., 0]
        return float((blurred.sum(0) * np.arange(-30, 31) ** 2).sum() ** 0.5)

    motions = {
        "imagenet": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
        "cifar10": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    }
    disks = {
        "imagenet": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
        "cifar10": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    }
    for images in motions:
        for severity in range(1, 6):
            radius, sigma = motions[images][severity - 1]
            i = np.arange(2 * radius + 1)
            weights = np.exp(-(i**2) / (2 * sigma**2))
            expected = math.sqrt(np.cov(i, aweights=weights, ddof=0))
            # bilinear weights of points between pixels add up to 1/4 to the variance
            assert abs(spread("motion_blur", images, severity) ** 2 - expected**2) < 0.27
            radius, soft = disks[images][severity - 1]
            steps = np.arange(-max(8, math.ceil(radius)), max(8, math.ceil(radius)) + 1)
            disk = ((steps[:, None] ** 2 + steps[None, :] ** 2) <= radius**2).astype(float)
            edge = np.exp(
                -((np.arange(3 if radius <= 8 else 5) - (1 if radius <= 8 else 2)) ** 2)
                / (2 * soft**2)
            )
            for axis in (0, 1):
                disk = ndimage.convolve1d(disk, edge / edge.sum(), axis=axis, mode="mirror")
            expected = math.sqrt((disk.sum(0) * steps**2).sum() / disk.sum())
            assert spread("defocus_blur", images, severity) == pytest.approx(expected, abs=0.01)
    assert make_disks(torch.tensor([3.0]), 4).sum() == pytest.approx(1.0)


def test_bad_arguments() -> None:
    assert_refused(Corruption, name=["gausian_noise"])
    assert_refused(
        lambda inputs: Corruption("saturate").around(inputs, (0, 1)),
        inputs=[torch.rand(1, 1, 2, 2)],
    )
    assert_refused(
        lambda bounds: Corruption("shot_noise").around(torch.rand(1, 1, 2, 2), bounds),
        bounds=[None],
    )
    assert_refused(partial(Corruption, "elastic_transform"), align=[1])
