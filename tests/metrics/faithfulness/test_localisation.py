"""Relevance localisation: by hand, by a slow re-implementation, by chance, and in studies by the name of an extra."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from standfast.metrics import LocalisationResult, RelevanceLocalisation
from standfast.metrics.faithfulness.localisation import Regions, expand_regions, localise_relevance
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report.presentation import presentation_of
from standfast.study.file.spec import study_from
from standfast.study.plan import make_plan
from standfast.study.run import run_grid
from standfast.study.store import Store

STEPS, CHANNELS = 24, 3


def waves(count: int = 6) -> standfast.data.Dataset:
    return standfast.data.synthetic_waves(count, steps=STEPS, channels=CHANNELS, block=6)


def linear(data: standfast.data.Dataset, seed: int = 0) -> standfast.Model:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Flatten(), nn.Linear(data.inputs[0].numel(), 3))
    return standfast.Model(module, data.bounds, device="cpu", batch_size=64)


def given(maps: torch.Tensor) -> Any:
    """An explainer that returns the map of the input that is equal to a row of `inputs` by its first entry."""

    def explain(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return maps[inputs.flatten(1)[:, 0].round().long()]

    return standfast.explainers.from_callable(explain, name="given")


def numbered(count: int, *shape: int) -> torch.Tensor:
    """Inputs that say their number with their first entry."""
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(5))
    x.view(count, -1)[:, 0] = torch.arange(count)
    return x


def evaluated(maps: torch.Tensor, regions: torch.Tensor, **options: Any) -> LocalisationResult:
    x = numbered(*maps.shape)
    module = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 3))
    model = standfast.Model(module, (0.0, float(max(1, len(x)))), device="cpu", batch_size=32)
    result = RelevanceLocalisation(regions, **options)(model, given(maps), x)
    assert isinstance(result, LocalisationResult)
    return result


def by_hand(relevance: np.ndarray, inside: np.ndarray) -> tuple[float, float, bool]:
    """One sample, straight from the formulas."""
    positive = sum(float(r) for r in relevance if r > 0)
    if positive == 0:
        return 0.0, 0.0, False
    mass = sum(float(r) for r, m in zip(relevance, inside, strict=True) if m and r > 0) / positive
    turns = sorted(range(len(relevance)), key=lambda place: (-float(relevance[place]), place))
    size = int(inside.sum())
    return mass, sum(bool(inside[place]) for place in turns[:size]) / size, bool(inside[turns[0]])


# the numbers


def test_three_numbers_of_a_map_that_can_be_counted() -> None:
    maps = torch.tensor([[[4.0, 2.0, 2.0, -9.0, 0.0, 0.0]], [[1.0, 5.0, -1.0, 2.0, 2.0, 0.0]]])
    regions = torch.tensor(
        [[True, False, True, True, False, False], [False, False, False, True, True, False]]
    )
    result = evaluated(maps, regions)
    assert result.value.tolist() == [6 / 8, 4 / 10]
    assert result.rank_accuracy.tolist() == [2 / 3, 1 / 2]  # of equals, the first comes first
    assert result.pointing_hit.tolist() == [True, False]
    assert result.chance.tolist() == [0.5, 2 / 6]
    assert result.region_size.tolist() == [3, 2]
    assert result.positive_share.tolist() == [0.5, 4 / 6]
    assert result.status == ("ok", "ok")
    assert result.model_evaluations.tolist() == [1, 1]


@pytest.mark.parametrize("unit", ["entry", "pixel"])
@pytest.mark.parametrize("absolute", [False, True])
def test_agrees_with_the_formulas_taken_literally(unit: str, absolute: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(7, 3, 4, 5, generator=generator).round(decimals=1)  # with ties
    regions = torch.rand(7, 3, 4, 5, generator=generator) < 0.3
    result = evaluated(maps, regions, unit=unit, absolute=absolute)
    for row in range(7):
        relevance, inside = (maps[row].abs() if absolute else maps[row]).double(), regions[row]
        if unit == "pixel":
            relevance, inside = relevance.sum(0).float(), inside.any(0)
        mass, rank, hit = by_hand(relevance.flatten().numpy(), inside.flatten().numpy())
        assert float(result.value[row]) == pytest.approx(mass, rel=1e-12)
        assert float(result.rank_accuracy[row]) == rank
        assert bool(result.pointing_hit[row]) == hit
        assert float(result.chance[row]) == pytest.approx(float(inside.float().mean()))


def test_random_maps_are_at_chance() -> None:
    """All three have the share of the mask for their expectation, whatever the distribution of the values."""
    generator = torch.Generator().manual_seed(3)
    inside = torch.zeros(4000, 40, dtype=torch.bool)
    inside[:, 3:11] = True
    for maps in (
        torch.randn(4000, 40, generator=generator),
        torch.rand(4000, 40, generator=generator).log().square(),
    ):
        found = localise_relevance(maps, inside)
        for values in (found["value"], found["rank_accuracy"], found["pointing_hit"].double()):
            assert abs(float(values.mean()) - 0.2) < 4 * float(values.std()) / 4000**0.5


def test_scale_changes_nothing_even_where_sums_would_overflow() -> None:
    maps, inside = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[False, True, False]])
    for scale in (1.0, 1e-40, 1e38):
        assert float(localise_relevance(maps * scale, inside)["value"]) == pytest.approx(
            0.5, rel=1e-4
        )
    assert float(localise_relevance(maps.double() * (1e308 / 3), inside)["value"]) == pytest.approx(
        0.5
    )


def test_maps_that_name_nothing_are_flagged_and_count_with_zero() -> None:
    maps = torch.tensor([[[-1.0, -2.0, -3.0]], [[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]]])
    result = evaluated(maps, torch.tensor([[True, False, False]]))
    assert result.status == ("ok", "ok", "ok")
    assert result.no_positive.tolist() == [True, True, False]
    assert result.value.tolist() == pytest.approx([0, 0, 1 / 3])
    assert result.rank_accuracy.tolist() == [0, 0, 1]
    assert result.pointing_hit.tolist() == [False, False, True]
    details = presentation_of(RelevanceLocalisation.name).details(result.frame(), {})
    # hits; without any
    assert [(each.value, each.total) for each in details if each.total] == [
        (1, 3),
        (2, 3),
    ]


def test_masks_that_tell_nothing_are_degenerate() -> None:
    regions = torch.tensor([[False] * 4, [True] * 4, [True, False, False, False]])
    result = evaluated(torch.rand(3, 1, 4) + 0.1, regions)
    assert result.status == ("degenerate", "degenerate", "ok")
    assert result.trivial_region.tolist() == [True, True, False]
    assert result.value.isnan().tolist() == [True, True, False]
    assert result.chance.tolist() == [0.0, 1.0, 0.25]


# regions


def test_masks_without_channels_hold_for_all_of_them() -> None:
    x = torch.zeros(4, 3, 5)
    spatial = torch.rand(4, 5) < 0.5
    whole = spatial[:, None].expand(4, 3, 5)
    for regions in (spatial, spatial[:, None], whole):
        assert torch.equal(expand_regions(regions, x), whole)
    assert torch.equal(expand_regions(spatial[:1], x), spatial[:1, None].expand(4, 3, 5))
    image = torch.rand(2, 4, 5) < 0.5
    assert torch.equal(expand_regions(image, torch.zeros(2, 3, 4, 5))[:, 2], image)
    assert torch.equal(expand_regions(spatial, torch.zeros(4, 5)), spatial)


@pytest.mark.parametrize(
    "shape", [(3, 3, 5), (4, 2, 5), (4, 3, 4), (4, 5, 3), (4, 3), (4, 1, 1, 5)]
)
def test_masks_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    words = r"regions: expected shape \(4, 3, 5\) or \(4, 1, 5\) or \(4, 5\), or 1 for the 4 samples, got"
    with pytest.raises(standfast.ArgumentError, match=words):
        expand_regions(torch.ones(*shape, dtype=torch.bool), torch.zeros(4, 3, 5))


def test_what_is_no_region_and_no_option_is_refused() -> None:
    assert_refused(
        RelevanceLocalisation, regions=[torch.tensor([[0.0, 0.5]]), torch.tensor([True]), 7, ""]
    )
    assert_refused(partial(RelevanceLocalisation, "blocks"), unit=["pixels"], absolute=[1])


def test_a_configuration_with_masks_is_a_value() -> None:
    regions = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    a, b = RelevanceLocalisation(regions), RelevanceLocalisation(regions.int())
    assert a == b
    assert hash(a) == hash(b)
    assert a != RelevanceLocalisation(~regions)
    regions[0] = ~regions[0]  # the caller's, not ours any more
    assert a == b
    assert a.options()["regions"]["shape"] == [3, 4]
    assert dataclasses.replace(a, absolute=True).regions == a.regions


def test_a_function_of_the_inputs_gives_regions(
    digits: standfast.data.Dataset, lenet: standfast.Model
) -> None:
    def ink(inputs: torch.Tensor) -> torch.Tensor:
        return inputs > 0.5

    x = digits.inputs[:5]
    by_function = RelevanceLocalisation(ink)(lenet, "input_x_gradient", x)
    by_tensor = RelevanceLocalisation(x > 0.5)(lenet, "input_x_gradient", x)
    assert torch.equal(by_function.value, by_tensor.value)
    assert by_function.options["regions"].endswith("ink")
    with pytest.raises(
        standfast.ArgumentError, match="regions: expected a function that returns regions, got int"
    ):
        RelevanceLocalisation(lambda inputs: 1)(lenet, "input_x_gradient", x)  # type: ignore[arg-type,return-value]


def test_a_name_alone_is_refused_where_nobody_can_look_it_up() -> None:
    data = waves()
    with pytest.raises(
        standfast.ArgumentError, match="regions: expected regions; a name has a meaning only"
    ):
        RelevanceLocalisation("blocks")(linear(data), "saliency", data.inputs)


# through evaluate and studies


def test_evaluate_of_a_data_set_finds_regions_by_their_name(tmp_path: Path) -> None:
    data = waves()
    model = linear(data)
    explainers = ["input_x_gradient", "random"]
    named = standfast.evaluate(
        model,
        explainers,
        data,
        [RelevanceLocalisation("blocks")],
        out=tmp_path,
        progress=False,
        samples_per_job=4,
        controls=False,
        sanity=False,
    )
    assert named.failures == []
    metric = RelevanceLocalisation(data.extras["blocks"])
    for name in explainers:
        alone = metric(model, name, data.inputs, generator=torch.Generator().manual_seed(0))
        rows = named.samples.filter(explainer=name).sort("sample")
        assert rows["value"].to_list() == alone.value.tolist()
        assert rows["pointing_hit"].to_list() == alone.pointing_hit.tolist()
        assert rows["chance"].to_list() == [12 / 72] * 6
    manifest = Store(tmp_path).manifest()
    assert manifest["metrics"]["relevance_localisation"]["options"]["regions"] == "blocks"
    # the regions given outright are the same jobs, if the data have the same name
    again = standfast.evaluate(
        model,
        explainers,
        data.inputs,
        [metric],
        out=tmp_path,
        progress=False,
        samples_per_job=4,
        controls=False,
        sanity=False,
        about={"data": data.name},
    )
    assert (again.run.earlier, again.run.done) == (4, 0)


def test_other_regions_are_other_jobs() -> None:
    data = waves()
    grid = Grid(
        {"waves": Samples(data.inputs, bounds=data.bounds, extras=data.extras)},
        {"m": LoadedModel(linear(data))},
        {"s": standfast.explainers.get("saliency")},
        {"where": RelevanceLocalisation("blocks")},
        samples_per_job=2,
    )
    first = [job.identity for job in make_plan(grid).jobs]
    blocks = data.extras["blocks"].clone()
    blocks[3, 0, 0] ^= True
    changed = {"waves": dataclasses.replace(grid.data["waves"], extras={"blocks": blocks})}
    other = [job.identity for job in make_plan(dataclasses.replace(grid, data=changed)).jobs]
    assert [a == b for a, b in zip(first, other, strict=True)] == [True, False, True]


def test_regions_that_are_not_there_or_do_not_fit_are_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    data = waves()
    model = linear(data)
    cases = [
        (
            {"regions": "blobs"},
            r"regions: expected the name of an extra of the data set \(blocks, f_norm",
        ),
        ({"regions": "frequencies"}, "regions: expected the region of each sample, bool"),
        (
            {"regions": data.extras["blocks"][:4]},
            r"regions: expected shape \(6, 3, 24\) or \(6, 1, 24\) or \(6, 24\)",
        ),
    ]
    for options, words in cases:
        with pytest.raises(standfast.ArgumentError, match=words):
            standfast.evaluate(
                model,
                ["saliency"],
                data,
                [RelevanceLocalisation(**options)],
                out=tmp_path,
                progress=False,
            )
    with pytest.raises(
        standfast.ArgumentError, match=r"the name of an extra of the data set \(which has none\)"
    ):
        standfast.evaluate(
            model, ["saliency"], data.inputs, [RelevanceLocalisation("blocks")], out=tmp_path
        )
    assert not (tmp_path / "manifest.json").exists()


MODULE = """
import torch
from torch import nn
import standfast
from standfast.question.grid import Samples

def load(n=9):
    made = standfast.data.synthetic_waves(n, steps=24, channels=3, block=6)
    return made.take([8, 2, 5, 1, 7, 0]) if n == 9 else made

def samples():
    made = load()
    return Samples(made.inputs, made.labels, made.bounds, extras=made.extras)

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 2))
"""


def content(**changed: Any) -> dict[str, Any]:
    return {
        "data": {"waves": {"function": "localised:load", "samples": 4, "bounds": [-9, 9]}},
        "models": {"m": {"function": "localised:build"}},
        "explainers": ["input_x_gradient"],
        "metrics": [{"relevance_localisation": {"regions": "blocks"}}],
        "samples_per_job": 3,
        "controls": False,
        **changed,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "localised.py").write_text(MODULE)
    return tmp_path


@pytest.mark.parametrize("function", ["load", "samples"])
def test_a_study_keeps_masks_with_their_samples(folder: Path, function: str) -> None:
    """The samples are a permutation of a set, cut to the first ones, in jobs of several; regions go with each."""
    entry = {
        "function": f"localised:{function}",
        "samples": 4,
        "bounds": [-9, 9],
        "targets": "predicted",
    }
    study = study_from(content(data={"waves": entry}), folder)
    grid = study.grid()
    run_grid(grid, store := Store(folder / "out"))
    rows = standfast.load_results(folder / "out").samples.sort("sample")
    chosen = standfast.data.synthetic_waves(9, steps=24, channels=3, block=6).take([8, 2, 5, 1])
    model = grid.models["m"].model(grid.data["waves"], "cpu")
    alone = RelevanceLocalisation(chosen.extras["blocks"])(model, "input_x_gradient", chosen.inputs)
    assert rows["value"].to_list() == alone.value.tolist()
    assert len(set(rows["value"].to_list())) == 4
    assert (
        study.plain()["metrics"]["relevance_localisation"]["relevance_localisation"]["regions"]
        == "blocks"
    )
    assert store.manifest()["metrics"]["relevance_localisation"]["options"]["regions"] == "blocks"


def test_digests_tell_masks_apart() -> None:
    a = torch.zeros(2, 6, dtype=torch.bool)
    assert Regions(a) != Regions(a.reshape(3, 4))
