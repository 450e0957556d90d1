"""What is taken where no neighbourhood is said: of images 8 of 255 levels, of other tensors a tenth of the range."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import standfast
from conftest import small_net
from standfast.metrics import WorstCase
from standfast.neighbourhoods import LinfBall, Rotation, TableChanges
from standfast.neighbourhoods.naming import describe_change
from standfast.question.arguments import Arguments
from standfast.question.grid import Samples
from standfast.question.tensors import Tensors
from standfast.study.plan import make_plan

IMAGE, SERIES, ROWS = (1, 8, 8), (1, 16), (5,)


def make_tensors(shape: tuple[int, ...], *bounds: tuple[Any, Any]) -> Tensors:
    inputs = torch.full((2, *shape), 0.5)
    return Tensors(
        {f"data {place}": Samples(inputs, bounds=own) for place, own in enumerate(bounds)}, {}
    )


@pytest.mark.parametrize(
    ("shape", "bounds", "radius", "words"),
    [
        (IMAGE, (0.0, 1.0), 8 / 255, "each pixel by up to 8/255 of its range"),
        ((3, 8, 8), (-1.0, 1.0), 16 / 255, "each pixel by up to 8/255 of its range"),
        ((3, 8, 8), (0.0, 255.0), 8.0, "each pixel by up to 8/255 of its range"),
        ((2, 8, 8), (0.0, 1.0), 0.1, "each feature by up to 0.1, a tenth of its range"),
        ((1, 4, 8, 8), (0.0, 1.0), 0.1, "each feature by up to 0.1, a tenth of its range"),
        (SERIES, (-1.0, 1.0), 0.2, "each feature by up to 0.2, a tenth of its range"),
        (ROWS, (0.0, 3.0), 0.3, "each feature by up to 0.3, a tenth of its range"),
    ],
)
def test_of_tensors(
    shape: tuple[int, ...], bounds: tuple[float, float], radius: float, words: str
) -> None:
    assert make_tensors(shape, bounds).default_neighbourhood() == (
        LinfBall(radius),
        f"{words}, because none was given",
    )


def test_of_images_whose_channels_have_different_ranges() -> None:
    """As of photographs that were normalised before: no pixel moves by more than 8 levels."""
    mean, std = (
        torch.tensor(numbers)[:, None, None]
        for numbers in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    images = make_tensors((3, 8, 8), ((0 - mean) / std, (1 - mean) / std))
    ball, words = images.default_neighbourhood()
    assert ball.radius == pytest.approx(8 / 255 / 0.229, rel=1e-5)  # type: ignore[attr-defined]
    assert (
        words
        == "each pixel by up to 8/255 of the smallest range of a channel, because none was given"
    )


def test_beside_it_where_there_is_time() -> None:
    images = make_tensors(IMAGE, (0.0, 1.0))
    balls, words = zip(*images.default_neighbourhoods(), strict=True)
    assert balls == (LinfBall(8 / 255), LinfBall(4 / 255))
    assert words[1] == "each pixel by up to 4/255 of its range, because none was given"
    rows = make_tensors(ROWS, (0.0, 1.0))
    assert rows.default_neighbourhoods() == [rows.default_neighbourhood()]


@pytest.mark.parametrize("bounds", [[(-torch.inf, torch.inf)], [(0.0, 1.0), (0.0, 2.0)]])
def test_no_range_or_several(bounds: list[tuple[float, float]]) -> None:
    with pytest.raises(
        standfast.ArgumentError, match="neighbourhood: expected a neighbourhood, .* got None"
    ):
        make_tensors(IMAGE, *bounds).default_neighbourhood()


def list_jobs(metrics: Any, **options: Any) -> list[str]:
    model = standfast.Model(small_net(IMAGE), (0.0, 1.0), device="cpu")
    images = torch.linspace(0, 1, 128).reshape(2, *IMAGE)
    options = {"sanity": False, "controls": False, "samples_per_job": 2, **options}
    grid = Arguments(model, ["saliency"], images, metrics, **options).ask().make_grid()
    return [job.identity for job in make_plan(grid).jobs]


def test_the_default_is_an_ordinary_option() -> None:
    """Who says the same has the same jobs; who says something else has others, and keeps them."""
    by_default = list_jobs({"w": "worst_case"})
    assert by_default == list_jobs({"w": WorstCase(LinfBall(8 / 255))})
    assert by_default == list_jobs({"w": "worst_case"}, neighbourhood=LinfBall(radius=8 / 255))
    assert by_default != list_jobs({"w": WorstCase(LinfBall(0.1))})


def test_words() -> None:
    assert describe_change(LinfBall(0.1)) == "each feature by up to 0.1"
    assert describe_change(LinfBall(0.1), "pixel", 1.0) == "each pixel by up to 10% of its range"
    assert (
        describe_change(LinfBall(1e-9), "pixel", 1.0) == "each pixel by up to 1e-07% of its range"
    )
    assert describe_change(LinfBall(0.0), "pixel", 1.0) == "each pixel by up to 0% of its range"
    assert describe_change(Rotation(10)) == "rotated by -10 to 10 degrees"
    cases = {
        "every column by up to 2% of its value": TableChanges("2%"),
        "a by -1 to 3": TableChanges({"a": (-1, 3)}, columns=("a", "b")),
        "a, b, c and 2 more columns by up to 1": TableChanges(
            dict.fromkeys("abcde", 1.0), columns=tuple("abcde")
        ),
        "a by up to 1, such that a <= b": TableChanges(
            {"a": 1.0}, columns=("a", "b"), rules=("a <= b",)
        ),
        "b by up to 1, other categories of a": TableChanges(
            {"a": {"categories": [0, 1]}, "b": 1.0},
            columns=("a", "b"),
            data=torch.tensor([[0.0, 1.0], [1.0, 2.0]]),
        ),
    }
    assert {describe_change(changes): changes for changes in cases.values()} == cases


@pytest.mark.parametrize(
    ("balls", "beginning"),
    [
        (
            None,
            "Neighbourhood: each pixel by up to 8/255 of its range, because none was given. 1 explainer of",
        ),
        (
            [8 / 255, 4 / 255],
            "Neighbourhood: each pixel by up to 8/255 of its range or 4/255 of its range. 1 explainer of",
        ),
        ([0.1, 0.2, 0.3], "Neighbourhood: inputs changed in 3 ways. 1 explainer of"),
    ],
)
def test_an_answer_begins_with_the_neighbourhood(balls: list[float] | None, beginning: str) -> None:
    model = standfast.Model(small_net(IMAGE), (0.0, 1.0), device="cpu")
    found = standfast.evaluate(
        model,
        "saliency",
        torch.linspace(0, 1, 128).reshape(2, *IMAGE),
        "max_sensitivity:samples=2",
        neighbourhood=None if balls is None else list(map(LinfBall, balls)),
        controls=False,
        sanity=False,
        progress=False,
    )
    assert " ".join(str(found).split()).startswith(beginning)


def test_an_answer_without_a_neighbourhood_begins_as_ever() -> None:
    model = standfast.Model(small_net(IMAGE), (0.0, 1.0), device="cpu")
    images = torch.linspace(0, 1, 128).reshape(2, *IMAGE)
    found = standfast.evaluate(
        model, "saliency", images, "aopc:steps=2", controls=False, sanity=False, progress=False
    )
    assert str(found).startswith("1 explainer of Sequential on 2 samples of inputs")


def test_grad_cam_holds_better_where_nobody_sees_the_change() -> None:
    """A tenth of the range is 25 grey levels, which is another picture."""
    digits = standfast.data.bundled("digits")[10:14]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds, device="cpu")
    medians = [
        standfast.evaluate(
            model,
            "gradcam",
            digits,
            "worst_case:budget=40",
            neighbourhood=neighbourhood,
            controls=False,
            sanity=False,
            progress=False,
        )
        .frame()["value"]
        .median()
        for neighbourhood in (None, LinfBall(0.1))
    ]
    assert medians[0] > medians[1] + 0.2  # type: ignore[operator]
