"""Options of the similarities that know positions, and what the probe compares of maps of inputs."""

from __future__ import annotations

import pickle

import pytest
import torch
from refusals import assert_refused
from torch import Tensor

import standfast
from conftest import SHAPES, small_net
from standfast import similarity as sim
from standfast.errors import ArgumentError
from standfast.metrics import WorstCase
from standfast.metrics.probe import Call, Probe
from standfast.neighbourhoods import LinfBall
from standfast.study.file.options import similarity_from

OF_POSITIONS = [n for n in sim.names() if hasattr(sim.get(n), "channels")]
COLOUR = (3, 8, 8)


def pair(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed))
    return a, 0.6 * a + 0.8 * b


def inputs(shape: tuple[int, ...], count: int = 6) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def model(shape: tuple[int, ...]) -> standfast.Model:
    return standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)


def test_which_know_positions() -> None:
    assert [
        "centre_of_mass",
        *("lens_distance", "lens_kendall", "lens_precision", "lens_recall", "lens_spearman"),
        "topk_intersection",
    ] == OF_POSITIONS
    assert all(sim.get(n).channels is None for n in OF_POSITIONS)
    assert [n for n in sim.names() if sim.get(n).ordinal] == ["lens_distance"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topk_intersection:k=9,diverse=true,w=2", sim.TopKIntersection(k=9, diverse=True, w=2)),
        ("lens_precision:k=9,w=2", sim.LensPrecision(k=9, w=2)),
        ("lens_recall:k=9,w=2,diverse=true", sim.LensRecall(k=9, w=2, diverse=True)),
        ("lens_precision:k=0.2,channels=max", sim.LensPrecision(k=0.2, channels="max")),
        ("lens_distance:k=(9, 20, 0.5),w=(0, 2)", sim.LensDistance(k=(9, 20, 0.5), w=(0, 2))),
        (
            "lens_distance: k=(9, 2e-1), w=2, channels=sum",
            sim.LensDistance(k=[9, 0.2], w=2, channels="sum"),  # type: ignore[arg-type]
        ),
        ("lens_spearman:w=2", sim.LensSpearman(w=2)),
        ("lens_kendall:w=2,channels=max", sim.LensKendall(w=2, channels="max")),
        ("centre_of_mass:channels=sum", sim.CentreOfMass(channels="sum")),
    ],
)
def test_options(text: str, expected: sim.Similarity) -> None:
    entry, (a, b) = sim.get(text), pair(5, *COLOUR)
    assert entry == expected == sim.get(expected.name)
    assert entry.name == text
    assert not torch.equal(entry(a, b), sim.get(text.partition(":")[0])(a, b))
    assert torch.equal(pickle.loads(pickle.dumps(entry))(a, b), entry(a, b))
    assert entry.of_maps(a).shape == (5, 8, 8)
    assert similarity_from(text) == text  # as in a study file


def test_options_that_suit_no_map_fail_at_once() -> None:
    for text, argument in (
        *(
            ("lens_precision:k=0", "k"),
            ("topk_intersection:k=1.5", "k"),
            ("lens_recall:k=true", "k"),
        ),
        *(
            ("lens_precision:k=(10, 100)", "k"),
            ("lens_distance:k=(10, 0)", "k"),
            ("lens_precision:diverse=1", "diverse"),
        ),
        *(
            ("lens_precision:w=-1", "w"),
            ("lens_spearman:w=1.5", "w"),
            ("lens_distance:w=(1, True)", "w"),
        ),
        *(("lens_kendall:channels=mean", "channels"), ("centre_of_mass:channels=1", "channels")),
        *(("lens_distance:alpha=1", "alpha"), ("lens_spearman:k=3", "k")),
    ):
        with pytest.raises(ArgumentError) as caught:
            sim.get(text)
        assert caught.value.argument == argument


def test_arguments() -> None:
    a, b = pair(2, 5, 5)
    for kind in (sim.TopKIntersection, sim.LensPrecision, sim.LensRecall, sim.LensDistance):
        assert_refused(kind, w=[-1, 1.0], diverse=[1], channels=["mean"])
        assert_refused(lambda k, kind=kind: kind(k)(a, b), k=[26])
        assert_refused(lambda a, kind=kind: kind()(a, a), a=[a.view(2, 1, 1, 5, 5)])
    assert_refused(lambda k: sim.lens_profile(a, b, k, [1]), k=[[], 3, [3, 99]])
    assert_refused(lambda w: sim.lens_profile(a, b, [1], w), w=[[1, -1]])
    for function in (lambda a: sim.top_k(a, 3), lambda a: sim.smooth(a, 1), sim.mass_centre):
        assert_refused(function, a=[a[None]])
    assert_refused(lambda mask: sim.dilate(mask, 1), mask=[a, a[:, None] > 0])


@pytest.mark.parametrize("name", OF_POSITIONS)
def test_colour_images_are_compared_pixel_by_pixel(name: str) -> None:
    a, b = pair(5, *COLOUR)
    similarity = sim.get(name)
    assert torch.equal(similarity(a, b), similarity(a.abs().sum(1), b.abs().sum(1)))
    assert torch.equal(similarity.of_maps(a.abs()), sim.per_position(a))
    assert similarity.of_maps(a[:, :, 0]).shape == (5, 8)
    assert similarity.of_maps(a[:, 0, 0]).shape == (5, 8)
    if name == "topk_intersection":
        assert torch.equal(similarity(a, b), sim.LensPrecision(w=0)(a, b))


@pytest.mark.parametrize("shape", [COLOUR, *SHAPES.values()])
@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    "name", ["topk_intersection:k=5", "lens_precision:k=5,channels=max", "lens_spearman", "ssim"]
)
def test_the_probe_compares_positions(name: str, absolute: bool, shape: tuple[int, ...]) -> None:
    network, similarity, x = model(shape), sim.get(name), inputs(shape)
    explainer = standfast.explainers.get("input_x_gradient")
    seed = torch.tensor([0, 1, 2, 3, 4, 5, 5, 0])
    moved = (
        x[seed] + 0.1 * torch.randn(8, *shape, generator=torch.Generator().manual_seed(2))
    ).clamp(0, 1)
    with network.session():
        probe = Probe(
            Call(network, explainer, x), similarity, absolute=absolute, explain="predicted"
        )
        seen = probe.query(moved, seed, want_distance=True)
    before, after = explainer(network, x)[seed], explainer(network, moved)
    if absolute:
        before, after = before.abs(), after.abs()
    distance = (before - after).flatten(1).norm(dim=1)  # of whole maps, channels and all
    within_a_graph = probe.similarity_to(seed, after)
    if hasattr(similarity, "channels") and len(shape) > 1:
        reduce = {None: lambda m: m.sum(1), "max": lambda m: m.abs().amax(1)}[similarity.channels]
        before, after = reduce(before), reduce(after)
    assert seen.similarity is not None
    assert seen.distance is not None
    torch.testing.assert_close(seen.similarity, similarity(before, after), atol=1e-5, rtol=0)
    torch.testing.assert_close(within_a_graph, similarity(before, after), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.distance, distance, atol=1e-5, rtol=1e-5)


def test_a_constant_reference_is_skipped_by_what_compares_orders() -> None:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]]))
        layer.bias.zero_()
    model = standfast.Model(layer, (0.0, 1.0), device="cpu")
    x = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]])
    expected = {
        "lens_distance": "degenerate",
        "lens_recall": "degenerate",
        "centre_of_mass": "ok",
        "mse": "ok",
    }
    for name, status in expected.items():
        worst = WorstCase(
            LinfBall(0.05),
            "changed_explanation",
            similarity=name,
            threshold=0.5,
            search="random",
            budget=9,
        )
        assert worst(model, "input_x_gradient", x).status == (status, "ok")


def test_what_is_compared_decides_whether_a_copy_counts_as_degenerate() -> None:
    """The channels of a map differ, and their sum is the same everywhere: nothing is left to compare."""

    def explain(module: torch.nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        flat = x[:, :1] - x[:, :1].mean((2, 3), keepdim=True)
        return torch.where(x.amax((1, 2, 3), keepdim=True) > 0.9, x, torch.cat([flat, -flat], 1))

    network = model((2, 6, 6))
    origin = 0.1 + 0.5 * inputs((2, 6, 6), 1)
    origin[0, 0, 0, 0] = 0.95
    with network.session():
        probe = Probe(
            Call(network, standfast.explainers.get(explain), origin), similarity="lens_recall:k=3"
        )
        assert probe.status == ("ok",)
        probe.query(origin * 0.5)
        assert probe.common_fields(WorstCase(LinfBall(0.1), "changed_class"))[
            "degenerate"
        ].tolist() == [1]


def test_the_worst_case_of_the_centre_of_mass_by_its_gradient() -> None:
    network, x = model(COLOUR), inputs(COLOUR, 3)
    found = {}
    for search in ("gradient", "random"):
        worst = WorstCase(
            LinfBall(0.1),
            "changed_explanation",
            similarity="centre_of_mass",
            search=search,
            budget=60,
        )
        found[search] = worst(
            network, "saliency", x, generator=torch.Generator().manual_seed(0)
        ).similarity
    assert (found["gradient"] > 0).all()
    assert found["gradient"].mean() > found["random"].mean()
