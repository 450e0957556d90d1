"""The contract of transformations, over everything registered, and ranges."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import stats
from torch import Tensor

from golden import NEIGHBOURHOODS
from standfast.errors import ArgumentError
from standfast.neighbourhoods import (
    JPEG,
    Compose,
    Contrast,
    Gamma,
    GaussianNoise,
    Rotation,
    Transformation,
    Translation,
    neighbourhoods,
)
from standfast.neighbourhoods.transformations import Parameter, Range, parameter
from standfast.tensors import Streams

GREY, COLOUR = (1, 5, 8), (3, 6, 4)
SERIES = ((1, 9), (3, 8))
RANGE = torch.tensor(-1.0), torch.tensor(2.0)
#: bounds of each channel of a colour image, as for normalised inputs
RANGES = (
    torch.tensor([-2.1, -2.0, 0.0]).reshape(3, 1, 1),
    torch.tensor([2.2, 0.4, 1.0]).reshape(3, 1, 1),
)


@dataclass(frozen=True)
class Example:
    """One configuration of a registered transformation, as a study file gives it, and inputs that it takes."""

    options: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...] = (GREY, COLOUR)
    #: how far the clean input may be from itself at the identity's parameters, as a share of the range
    tolerance: float = 1e-6

    def list_bounds(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float64
    ) -> tuple[Tensor, Tensor]:
        low, high = RANGES if len(shape) == 3 and shape[0] == 3 else RANGE
        return low.to(dtype), high.to(dtype)

    def draw_inputs(self, shape: tuple[int, ...], rows: int = 3) -> Tensor:
        """Values within the bounds, `(rows, *shape)`, float64, the same at every call."""
        shares = torch.rand(
            rows, *shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64
        )
        low, high = self.list_bounds(shape)
        return low + (high - low) * shares


#: further examples, beside the options of the golden numbers
MORE: dict[str, list[Example]] = {
    "rotation": [Example({"degrees": [5, 30], "fill": "reflection"})],
    "translation": [Example({"pixels": [0, 1.5], "fill": "lower"})],
    "perspective": [Example({"degrees": 20, "distance": 1.5})],
    "gamma": [Example({"exponent": [0.5, 2]})],
    # quality 100 rounds to bytes, and halves the resolution of colours
    "jpeg": [Example({"quality": [30, 90]}, (GREY,), 0.01)],
    "occlusion": [Example({"size": [1, 2], "fill": "lower"})],
    "corruption": [
        Example({"name": "contrast", "severity": [1, 3]}),
        Example({"name": "brightness", "severity": 5}, (COLOUR,)),
        Example({"name": "saturate", "images": "cifar10"}, (COLOUR,)),
        Example({"name": "motion_blur", "images": "cifar10"}, (GREY,)),
        Example({"name": "shot_noise"}, (GREY,)),
        Example({"name": "zoom_blur", "severity": [2, 3]}, (COLOUR,)),
        Example({"name": "glass_blur"}, ((1, 9, 8),)),
        Example({"name": "snow", "severity": [0, 3]}),
        Example({"name": "elastic_transform", "images": "cifar10", "severity": 4}, (COLOUR,)),
    ],
    "time_shift": [Example({"fill": f}, SERIES[:1]) for f in ("zeros", "reflection")],
    "dropped_samples": [Example({"percent": 60, "fill": "zeros"}, SERIES[:1])],
}
TOLERANCES = {"jpeg": 1.0, "pixelate": 0.5 / 255 + 1e-6}


def first_example(name: str) -> Example:
    """The options of the golden numbers, and inputs of the kind that they take."""
    options, shape = NEIGHBOURHOODS[name]
    images = (COLOUR,) if neighbourhoods[name].channels else (GREY, COLOUR)
    return Example(
        options, {1: (shape,), 2: SERIES, 3: images}[len(shape)], TOLERANCES.get(name, 1e-6)
    )


EXAMPLES = {
    name: [first_example(name), *MORE.get(name, [])]
    for name in NEIGHBOURHOODS
    if name not in ("linf", "l2")
}
CASES = [
    pytest.param(name, example, shape, id=f"{name}-{number}-{'x'.join(map(str, shape))}")
    for name, examples in EXAMPLES.items()
    for number, example in enumerate(examples)
    for shape in example.shapes
]
#: one case of each transformation
FIRST = [
    pytest.param(name, examples[0], examples[0].shapes[-1], id=name)
    for name, examples in EXAMPLES.items()
]


def make(name: str, example: Example) -> Transformation:
    kind = neighbourhoods[name](**example.options)
    assert isinstance(kind, Transformation)
    return kind


def make_streams(rows: int) -> Streams:
    return Streams(list(range(rows)), torch.device("cpu"))


COMPOSITIONS = [
    Compose((Rotation(10), Translation(1))),
    Compose((Gamma((0.5, 2)), GaussianNoise(0.1))),
    Compose((Contrast(0.4), JPEG((30, 90)))),
]


@pytest.mark.parametrize(("name", "example", "shape"), CASES)
def test_the_identity_gives_the_input_back(
    name: str, example: Example, shape: tuple[int, ...]
) -> None:
    kind = make(name, example)
    for dtype in (torch.float32, torch.float64):
        inputs, bounds = example.draw_inputs(shape).to(dtype), example.list_bounds(shape, dtype)
        identity = kind.limit_parameters(inputs, bounds).identity
        assert identity.shape == (len(inputs), kind.count_parameters(shape))
        found = kind.transform(inputs, identity, bounds)
        assert found.dtype == dtype
        assert ((found - inputs).abs() / (bounds[1] - bounds[0])).max() <= example.tolerance


@pytest.mark.parametrize(("name", "example", "shape"), CASES)
def test_perturbed_inputs(name: str, example: Example, shape: tuple[int, ...]) -> None:
    """Within the bounds; of the same bits whatever the batch, and for the same seed; inputs stay as they are."""
    kind = make(name, example)
    inputs = example.draw_inputs(shape).float()
    before = inputs.clone()
    bounds = example.list_bounds(shape, torch.float32)
    region = kind.around(inputs, bounds)
    points = region.sample(4, make_streams(3))
    assert points.shape == (3, 4, kind.count_parameters(shape))
    assert region.contains(points).all()
    assert torch.equal(region.sample(4, make_streams(3)), points)
    problem = torch.arange(3).repeat_interleave(4)
    perturbed = region.perturb(points.flatten(0, 1), problem)
    assert perturbed.shape == (12, *shape)
    assert perturbed.dtype == inputs.dtype
    assert ((perturbed >= bounds[0]) & (perturbed <= bounds[1])).all()
    assert not torch.allclose(perturbed[::4], inputs, atol=1e-3)
    order = torch.tensor([7, 0, 11])
    assert torch.equal(
        region.perturb(points.flatten(0, 1)[order], problem[order]), perturbed[order]
    )
    for p in range(3):
        chosen = region.select([p])
        assert torch.equal(
            chosen.perturb(points[p, :1], torch.tensor([0])), perturbed[4 * p : 4 * p + 1]
        )
    assert torch.equal(inputs, before)


@pytest.mark.parametrize(("name", "example", "shape"), FIRST)
def test_the_map_from_normal_numbers(name: str, example: Example, shape: tuple[int, ...]) -> None:
    region = make(name, example).around(example.draw_inputs(shape), example.list_bounds(shape))
    z = region.sample_gaussian(20, make_streams(3))
    points = region.from_gaussian(z)
    assert region.contains(points).all()
    assert torch.allclose(
        region.from_gaussian(region.to_gaussian(points)), points, rtol=1e-4, atol=1e-4
    )
    outside = region.project(points + 1e3)
    assert region.contains(outside).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "example", "shape"), FIRST)
def test_half_precision_has_the_bits_of_float32(
    name: str, example: Example, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    kind, inputs = neighbourhoods[name](**example.options), example.draw_inputs(shape, 2).to(dtype)
    bounds = tuple(bound.to(dtype) for bound in example.list_bounds(shape))

    def draw(inputs: Tensor, bounds: Any) -> Tensor:
        region = kind.around(inputs, bounds)
        points = region.sample(3, Streams([1, 2], inputs.device)).flatten(0, 1)
        return region.perturb(points, torch.tensor([0, 0, 0, 1, 1, 1]))

    found = draw(inputs, bounds)
    assert found.dtype == torch.float32
    assert torch.equal(found, draw(inputs.float(), [bound.float() for bound in bounds]))


@pytest.mark.parametrize(("name", "example", "shape"), CASES)
def test_gradients_are_those_of_finite_differences(
    name: str, example: Example, shape: tuple[int, ...]
) -> None:
    kind = make(name, example)
    if not kind.differentiable:
        return
    inputs = example.draw_inputs(shape, rows=2)
    bounds = example.list_bounds(shape)
    points = kind.around(inputs, bounds).sample(1, make_streams(2))[:, 0].requires_grad_()
    assert torch.autograd.gradcheck(
        lambda p: kind.transform(inputs, p, bounds), (points,), fast_mode=True
    )


@pytest.mark.parametrize(("name", "example", "shape"), FIRST)
def test_words_and_stored_options(name: str, example: Example, shape: tuple[int, ...]) -> None:
    kind = make(name, example)
    assert kind.describe()[0].islower()
    assert not kind.describe().endswith(".")
    names = kind.name_parameters(shape)
    assert names
    assert set(names) <= set(range(kind.count_parameters(shape)))
    assert neighbourhoods[name](**json.loads(json.dumps(asdict(kind), default=dict))) == kind
    assert hash(kind) == hash(make(name, example))
    assert type(kind).__name__ in repr(kind)
    points = kind.around(example.draw_inputs(shape), example.list_bounds(shape)).centre
    assert list(kind.read_parameters(points, shape)) == list(names.values())


@pytest.mark.parametrize("kind", COMPOSITIONS)
def test_compositions(kind: Compose) -> None:
    shape = (1, 4, 5)
    inputs = Example({}).draw_inputs(shape)
    bounds = RANGE[0].double(), RANGE[1].double()
    limits = kind.limit_parameters(inputs, bounds)
    expected, first = inputs, 0
    region = kind.around(inputs, RANGE)
    points = region.sample(1, make_streams(3))[:, 0]
    for part in kind.parts:
        count = part.count_parameters(shape)
        expected = part.transform(expected, points[:, first : first + count], bounds).clamp(*bounds)
        first += count
    assert first == kind.count_parameters(shape) == limits.lower.shape[1]
    assert torch.equal(region.perturb(points, torch.arange(3)), expected)
    assert kind.differentiable == all(part.differentiable for part in kind.parts)
    if kind.differentiable:
        points = points.requires_grad_()
        assert torch.autograd.gradcheck(
            lambda p: kind.transform(inputs, p, bounds), (points,), fast_mode=True
        )


def test_normal_parameters_and_the_ranks_of_noise() -> None:
    """The strength is normal around the identity; the ranks stay uniform, also as parts of a composition."""
    images = torch.full((1, 1, 2, 3), 0.5, dtype=torch.float64)
    noise = GaussianNoise(0.4, distribution="truncated_normal")
    for kind, first in [(noise, 0), (Compose((Rotation(8), noise)), 1)]:
        region = kind.around(images, (0.0, 1.0))
        points = region.sample(4000, make_streams(1))[0].numpy()
        # four scales: hardly cut
        assert stats.kstest(points[:, first], stats.halfnorm(scale=0.1).cdf).pvalue > 1e-3
        assert stats.kstest(points[:, first + 1 :].ravel(), stats.uniform.cdf).pvalue > 1e-3
        if first:
            assert stats.kstest(points[:, 0], stats.uniform(-8, 16).cdf).pvalue > 1e-3
        z = region.to_gaussian(torch.from_numpy(points)[None])
        assert torch.allclose(region.from_gaussian(z)[0], torch.from_numpy(points), atol=1e-4)
        density = region.log_density(torch.from_numpy(points)[None])[0].numpy()
        assert np.allclose(density, -0.5 * (points[:, first] / 0.1) ** 2)
    region = Compose((Rotation(8), noise), distribution="truncated_normal").around(
        images, (0.0, 1.0)
    )
    points = region.sample(4000, make_streams(1))[0].numpy()
    assert stats.kstest(points[:, 0], stats.truncnorm(-2, 2, scale=4).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, (7.0, 13.0)), ((8, 9), (8.0, 9.0)), ([8, 8], (8.0, 8.0)), (0, (10.0, 10.0))],
)
def test_ranges(value: object, expected: tuple[float, float]) -> None:
    assert Parameter(("size",), identity=10.0).read(value, "option") == expected


@pytest.mark.parametrize(
    "value", [-1, True, "3", (2, 1), (1, 2, 3), (1, float("nan")), float("inf"), None, (0, 21), 12]
)
def test_bad_ranges(value: object) -> None:
    with pytest.raises(
        ArgumentError, match="option: expected a number of at least 0, r for 10 - r to 10"
    ):
        Parameter(("size",), identity=10.0, low=0, high=20).read(value, "option")


def test_all_follows_from_what_a_class_declares() -> None:
    @dataclass(frozen=True)
    class Fading(Transformation):
        phrase = "faded by {share} of {what}"
        takes = "any"
        share: Range = parameter(
            "fading of {what} [share]", "more of it", default=0.5, low=0, high=1
        )
        what: str = "all"

        def transform(
            self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
        ) -> Tensor:
            return inputs

    fading = Fading(0.25)
    assert fading.share == (0.0, 0.25)
    assert fading.describe() == "faded by 0 to 0.25 of all"
    assert Fading((0.5, 0.5), "this").describe() == "faded by 0.5 of this"
    assert fading.name_parameters((4,)) == {0: "fading of all [share]", 1: "more of it"}
    limits = fading.limit_parameters(torch.zeros(2, 4), RANGE)
    assert [each.tolist() for each in limits] == [
        [[end, end]] * 2 for end in (0.0, 0.0, 0.25, math.inf)
    ]
    with pytest.raises(
        ArgumentError,
        match="share: expected a number of at least 0, r for 0 to r, or .*, from 0 to 1",
    ):
        Fading(2.0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_outside_of_what_an_option_declares_are_refused(name: str) -> None:
    options, hints = EXAMPLES[name][0].options, get_type_hints(neighbourhoods[name])
    for field in fields(neighbourhoods[name]):
        declared, wrong = field.metadata.get("parameter"), list[object]()
        if isinstance(declared, Parameter):
            wrong = ["far", (1, 2, 3), (declared.identity + 0.5, declared.identity)]
            wrong += [(declared.low - 1, declared.identity)] if math.isfinite(declared.low) else []
            wrong += (
                [(declared.identity, declared.high + 1)] if math.isfinite(declared.high) else []
            )
        elif get_origin(hints[field.name]) is Literal:
            wrong = ["nothing", 1]
        rest = {option: value for option, value in options.items() if option != field.name}
        assert_refused(partial(neighbourhoods[name], **rest), **{field.name: wrong})


@pytest.mark.parametrize(("name", "example", "shape"), FIRST)
def test_inputs_that_do_not_fit_are_refused(
    name: str, example: Example, shape: tuple[int, ...]
) -> None:
    kind = make(name, example)
    takes = "images" if name == "corruption" else kind.takes
    unfit = {"images": [(4, 5), (2, 3, 6)], "series": [(4, 5), (2, 1, 4, 4), (2, 3, 1)], "any": []}[
        takes
    ]
    unfit += [(2, 2, 6, 6)] if kind.channels else []
    assert_refused(
        lambda inputs: kind.around(inputs, (0, 1)), inputs=[torch.zeros(*each) for each in unfit]
    )
    if kind.needs_range or getattr(kind, "fill", "") in ("lower", "upper"):
        assert_refused(
            lambda bounds: kind.around(torch.zeros(2, *shape), bounds), bounds=[None, (0, 0)]
        )
