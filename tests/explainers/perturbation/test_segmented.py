"""`segmentation`: the segments of which input perturbed copies have; `per_channel`: segments of single channels."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from games import shapley_values
from torch import nn

import standfast
from standfast.errors import ArgumentError
from standfast.metrics.probe import Call, Probe
from standfast.segments import segment

SIZE = {
    "lime": {"samples": 40},
    "kernel_shap": {"samples": 40},
    "shapley_sampling": {"permutations": 2},
}


def perturb(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of the inputs in mixed order, and the number of each copy's origin."""
    origin = torch.tensor([2, 0, 1, 1, 2, 0, 0])
    noise = torch.rand(len(origin), *inputs.shape[1:], generator=torch.Generator().manual_seed(0))
    return (inputs[origin] + 0.3 * (2 * noise - 1)).clamp(0, 1), origin


@pytest.mark.parametrize(
    ("name", "explain", "rows"), [("lime", "predicted", 7), ("shapley_sampling", "origin", 100_000)]
)
def test_fixed_segments_are_those_of_the_origin(
    name: str, explain: str, rows: int, digits: standfast.data.Dataset, lenet: standfast.Model
) -> None:
    inputs = digits.inputs[:3]
    model = standfast.Model(lenet.module, bounds=(0.0, 1.0), device="cpu", batch_size=rows)
    maps = {}
    for segmentation in ("each", "fixed"):
        explainer = standfast.explainers.get(
            name, **SIZE[name], segments="quickshift", segmentation=segmentation
        )
        with model.session():
            probe = Probe(
                Call(model, explainer, inputs), standfast.similarity.get("pearson"), explain=explain
            )
            x, origin = perturb(inputs)
            maps[segmentation] = probe.query(x, origin, keep_maps=True).maps
            targets = probe.targets
    given = segment(inputs, "quickshift").labels
    changed = 0
    for row, whose in enumerate(origin.tolist()):
        target = int(targets[whose]) if explain == "origin" else None
        for segmentation, segments in (("fixed", given[whose]), ("each", "quickshift")):
            own = standfast.explainers.get(name, **SIZE[name], segments=segments)
            expected = own(model, x[row : row + 1], target)[0]
            assert torch.allclose(maps[segmentation][row], expected, atol=1e-6), (segmentation, row)
        changed += not torch.equal(segment(x[row : row + 1], "quickshift").labels[0], given[whose])
    assert changed == len(origin), "noise this strong should change the segments of every copy"


def test_other_words_are_refused() -> None:
    with pytest.raises(ArgumentError, match="segmentation: expected .*each.*fixed.*, got 'origin'"):
        standfast.explainers.get("lime", segmentation="origin")


# ---- segments of single channels ----


def channel_classifier() -> standfast.Model:
    """Series of two channels and five steps, in double precision."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    return standfast.Model(module, bounds=(-5.0, 5.0), device="cpu")


@pytest.mark.parametrize(
    ("name", "options"), [("shapley_sampling", {"permutations": 720}), ("kernel_shap", {})]
)
def test_windows_of_single_channels_are_players(name: str, options: dict[str, Any]) -> None:
    """Against the definition. Windows of 2 steps: (0, 1), (2, 3), (4) of each channel, six players."""
    model, x = channel_classifier(), torch.randn(2, 2, 5, dtype=torch.float64)
    places = [[(c, t) for t in steps] for c in range(2) for steps in ((0, 1), (2, 3), (4,))]
    explainer = standfast.explainers.get(name, **options, segments=3, per_channel=True)
    found = explainer(model, x, 1)
    for row in range(2):

        def value(kept: frozenset[int], row: int = row) -> float:
            copy = torch.zeros(1, 2, 5, dtype=torch.float64)
            for player in kept:
                for c, t in places[player]:
                    copy[0, c, t] = x[row, c, t]
            with torch.no_grad():
                return float(model.module(copy)[0, 1])

        expected = shapley_values(value, 6)
        for player, own in enumerate(places):
            for c, t in own:
                assert float(found[row, c, t]) == pytest.approx(expected[player], abs=1e-8)


@pytest.mark.parametrize("name", SIZE)
def test_entries_are_the_features_of_the_flattened_input(name: str) -> None:
    """Segments of pixels by channel do what the same explainer does on the input as flat features."""
    model, x = channel_classifier(), torch.randn(3, 2, 5, dtype=torch.float64)
    flat = standfast.Model(model.module[1:], bounds=(-5.0, 5.0), device="cpu")  # type: ignore[index]
    explainer = standfast.explainers.get(name, **SIZE[name], segments="pixels", per_channel=True)
    expected = explainer(flat, x.flatten(1), 0).reshape(x.shape)
    assert torch.allclose(explainer(model, x, 0), expected, atol=1e-12)
    assert (expected[:, 0] != expected[:, 1]).any()


def test_superpixels_of_a_photo_are_split_into_channels() -> None:
    torch.manual_seed(1)
    coarse = [torch.rand(1, 3, cells, cells) for cells in (3, 5)]
    x = torch.cat([nn.functional.interpolate(each, (24, 20), mode="bilinear") for each in coarse])
    module = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 2))
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    weight = (module[1].weight[0].reshape(1, *x.shape[1:]) * x).detach()
    maps = standfast.explainers.get("shapley_sampling:permutations=1,segments=10,per_channel=True")(
        model, x, 0
    )
    together = segment(x, 10)
    assert len(set(together.count.tolist())) == 2, (
        "the photos should differ in their numbers of segments"
    )
    for row in range(2):
        for label in range(int(together.count[row])):
            inside = together.labels[row] == label
            for channel in range(3):  # exact in a linear model
                values = maps[row, channel][inside]
                assert torch.allclose(
                    values, weight[row, channel][inside].sum().expand_as(values), atol=1e-5
                )


def test_the_metric_decides_whether_channels_are_parted() -> None:
    model, x = channel_classifier(), torch.randn(16, 2, 5, dtype=torch.float64)
    curve = standfast.metrics.CorruptionCurve

    def run(unit: Any, per_channel: Any) -> torch.Tensor:
        explainer = standfast.explainers.get("kernel_shap", segments=3, per_channel=per_channel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return curve(samples=1, unit=unit)(model, explainer, x).drop_top

    assert torch.equal(run("entry", "auto"), run("entry", True))
    assert torch.equal(run("pixel", "auto"), run("pixel", False))
    assert not torch.equal(run("entry", True), run("entry", False))
    assert not torch.equal(run("pixel", True), run("pixel", False))


@pytest.mark.parametrize(
    ("explainer", "unit", "words"),
    [
        (
            "kernel_shap:segments=3,per_channel=False",
            "entry",
            "kernel_shap: .* same value in all 2 channels, but",
        ),
        (
            "occlusion:window=2",
            "entry",
            r"occlusion: .*always those of the first channel first; replace pixels",
        ),
        ("kernel_shap:segments=3", "entry", None),
        ("occlusion:window=2", "pixel", None),
        ("input_x_gradient", "entry", None),
    ],
)
def test_maps_that_are_coarser_than_what_is_replaced_are_told(
    explainer: str, unit: Any, words: str | None
) -> None:
    model, x = channel_classifier(), torch.randn(3, 2, 5, dtype=torch.float64)
    metric = standfast.metrics.CorruptionCurve(fractions=(0.5, 1.0), samples=1, unit=unit)
    if words is None:
        metric(model, explainer, x)  # warnings are errors
        return
    with pytest.warns(UserWarning, match=words):
        metric(model, explainer, x)


def test_per_channel_is_checked() -> None:
    with pytest.raises(ArgumentError, match="per_channel: expected True.*'auto', got 'yes'"):
        standfast.explainers.get("kernel_shap", per_channel="yes")
