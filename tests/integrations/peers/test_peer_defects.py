"""Defects that we found in other packages: nothing registered here has them, nor will anything that is added later.

This does not test the code of the peers. Such defects are: a value depends on the other samples of its batch, random
numbers do not come from the generator, an option has no effect. `tests/metrics/test_contract.py` tests the general
contract; here are the particular mistakes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.explainers import Explainer
from standfast.metrics import Metric, Result
from standfast.metrics.base import metrics
from standfast.neighbourhoods import NormBall, neighbourhoods
from standfast.presentation import presentation_of
from standfast.study.grid import Grid, LoadedModel, Samples
from standfast.study.run import Progress, run_grid
from standfast.study.store import Store

METRICS = standfast.metrics.names()
EXPLAINED = [name for name in standfast.explainers.names() if not name.startswith(("attention_", "transformer_"))]

#: explainers that take long by default, with less of what takes it
QUICK: dict[str, dict[str, Any]] = {
    "extremal_perturbations": {"steps": 4},
    "kernel_shap": {"samples": 40},
    "lime": {"samples": 40},
    "rise": {"samples": 60},
    "shapley_sampling": {"permutations": 4},
}


class Watched:
    """A small network that records the batches of its first layer: how many rows each has, and which.

    It uses hooks and no layer of its own: some explainers go through the layers of a network and know only PyTorch's.
    """

    def __init__(self, keep: bool = False) -> None:
        self.module = small_net((1, 8, 8))
        self.rows: list[int] = []
        self.seen: list[Tensor] = []

        def note(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            self.rows.append(len(args[0]))
            if keep:
                self.seen.append(args[0].detach().clone())

        next(self.module.children()).register_forward_pre_hook(note)


def model(module: nn.Module | None = None, upper: float = 1.0) -> standfast.Model:
    return standfast.Model(module or small_net((1, 8, 8)), (0.0, upper), device="cpu", batch_size=16)


def inputs(count: int = 3) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.6 + 0.2


def example(name: str) -> Metric:
    """The metric's own; with an event that is rare, and with draws instead of gradients that a function has not."""
    found = metrics[name].example()
    if name == "misinterpretation_probability":
        return dataclasses.replace(found, threshold=0.3)  # type: ignore[call-arg]
    return found


def explainer(name: str) -> Explainer:
    return standfast.explainers.get(name, **QUICK.get(name, {}))


def values(metric: Metric, result: Result) -> Tensor:
    return result.value.double()


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(nan=-7.0), b.nan_to_num(nan=-7.0))


# a metric whose value depends on the batch (maps divided by the largest value of all of them)


@pytest.mark.parametrize("name", METRICS)
def test_a_value_does_not_depend_on_a_loud_neighbour_in_the_batch(name: str) -> None:
    metric, network, x = example(name), model(upper=1000.0), inputs()
    loud = torch.cat([x, 1000 * x[:1]])  # a network of ReLU: its maps are a thousand times as large
    alone = metric(network, "input_x_gradient", x)
    together = metric(network, "input_x_gradient", loud)
    assert same(values(metric, together)[:3], values(metric, alone))
    assert together.status[:3] == alone.status


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_map_does_not_depend_on_a_loud_neighbour_in_the_batch(name: str) -> None:
    network, x = model(upper=1000.0), inputs()
    maps = explainer(name)(network, torch.cat([x, 1000 * x[:1]]))
    assert same(maps[:3], explainer(name)(network, x))


# sensitivity without a seed: random numbers from the global generators


@contextlib.contextmanager
def elsewhere(seed: int) -> Iterator[None]:
    """The global generators in another state."""
    arrays, plain = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        yield
    np.random.set_state(arrays)  # noqa: NPY002
    random.setstate(plain)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_does_not_draw_from_the_global_generators(name: str) -> None:
    metric, network, x = example(name), model(), inputs()
    found = []
    for seed in (1, 2):
        with elsewhere(seed):
            found.append(values(metric, metric(network, "input_x_gradient", x)))
    assert same(*found)


@pytest.mark.parametrize("name", EXPLAINED)
def test_an_explainer_does_not_draw_from_the_global_generators(name: str) -> None:
    network, x = model(), inputs()
    found = []
    for seed in (1, 2):
        with elsewhere(seed):
            found.append(explainer(name)(network, x))
    assert same(*found)


# n_steps that is ignored: an option that changes nothing

#: counts that change nothing in the example of a metric, and why
IDLE = {
    ("attribution_attack", "restarts"): "the best of more restarts may be the same",
    ("data_sensitivity_consistency", "resamples"): "of the interval of a whole data set, in the report",
    ("parameter_sensitivity_consistency", "resamples"): "of the interval of a whole data set, in the report",
}


def counts(kind: Any) -> list[str]:
    """Options that are whole numbers of things to do: not seeds, not switches."""
    fields = [f.name for f in dataclasses.fields(kind) if f.init]
    return [name for name in fields if type(getattr(kind, name)) is int and name not in ("seed", "norm")]


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in METRICS for option in counts(example(name))])
def test_no_count_of_a_metric_is_ignored(name: str, option: str) -> None:
    one = example(name)
    if (name, option) in IDLE or not one.has_effect(option, one.options()):
        return
    two = dataclasses.replace(one, **{option: 2 * getattr(one, option)})
    found = []
    for metric in (one, two):
        watched = Watched()
        result = metric(model(watched.module), "input_x_gradient", inputs())
        numbers = {n: v.tolist() for n, v in vars(result).items() if isinstance(v, Tensor) and v.ndim == 1}
        found.append((sum(watched.rows), repr(numbers)))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in EXPLAINED for option in counts(explainer(name))]
)
def test_no_count_of_an_explainer_is_ignored(name: str, option: str) -> None:
    one = explainer(name)
    two = dataclasses.replace(one, **{option: 2 * getattr(one, option)})  # type: ignore[type-var]
    found, rows = [], []
    for chosen in (one, two):
        watched = Watched()
        found.append(chosen(model(watched.module), inputs()))
        rows.append(sum(watched.rows))
    assert not torch.equal(*found)
    assert rows[1] > 1.3 * rows[0]


# noise that is one-sided


@pytest.mark.parametrize("distribution", ["uniform", "truncated_normal"])
@pytest.mark.parametrize(
    "name", [name for name in neighbourhoods.names() if issubclass(neighbourhoods[name], NormBall)]
)
def test_the_noise_of_a_neighbourhood_goes_both_ways(name: str, distribution: Any) -> None:
    ball, x = neighbourhoods[name](0.1, distribution=distribution), torch.full((1, 1, 8, 8), 0.5)
    region = ball.around(x, (torch.tensor(0.0), torch.tensor(1.0)))
    steps = region.sample(400, region.streams(0)) - x[:, None]
    assert_two_sided(steps.flatten(), 400 * 64)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_in_a_neighbourhood_looks_both_ways(name: str) -> None:
    metric = example(name)
    if not any(field.name == "neighbourhood" for field in dataclasses.fields(metric)) or metric.name == "worst_case":
        return  # without draws, or a search that goes where it is worse
    watched, x = Watched(keep=True), torch.full((1, 1, 8, 8), 0.5)
    metric(model(watched.module), "input_x_gradient", x)
    first = torch.cat(watched.seen)[:, 0]
    steps = (first - 0.5)[(first != 0.5).flatten(1).any(1)][:10]  # the first draws; later ones follow the event
    assert len(steps) == 10
    assert_two_sided(steps.flatten(), 640)


@pytest.mark.parametrize("name", [n for n in EXPLAINED if "noise" in vars(explainer(n))])
def test_the_noise_of_an_explainer_goes_both_ways(name: str) -> None:
    noisy = dataclasses.replace(explainer(name), noise=0.1)  # type: ignore[type-var]
    watched, x = Watched(keep=True), torch.full((1, 1, 8, 8), 0.5)
    noisy(model(watched.module), x)
    seen = torch.cat(watched.seen)
    if name == "gradient_shap":  # its points lie between the baseline 0 and the noisy input
        centred = torch.cat([p - p.mean() for p in seen if p.std() > 0])
        assert_two_sided(centred.flatten(), centred.numel())
        return
    steps = (seen - 0.5)[(seen != 0.5).flatten(1).any(1)]
    assert_two_sided(steps.flatten(), steps.numel())


def assert_two_sided(steps: Tensor, count: int) -> None:
    """As many go up as down, within four standard errors, and as far."""
    assert steps.numel() == count
    up = (steps > 0).double().mean()
    assert abs(up - 0.5) < 4 * 0.5 / count**0.5
    assert abs(steps.double().mean()) < 4 * steps.double().std() / count**0.5


# an all-zero map that ends the run


@pytest.mark.parametrize("name", METRICS)
def test_an_all_zero_map_does_not_end_the_run(name: str) -> None:
    def vanishing(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        x = x if x.requires_grad else x.requires_grad_(True)
        chosen = module(x).gather(1, targets[:, None]).sum()
        (found,) = torch.autograd.grad(chosen, x, create_graph=True)
        flat = (x.detach().flatten(1).mean(1) < 0.2).reshape(-1, 1, 1, 1)
        return torch.where(flat, 0.0, x * found)

    silent = standfast.explainers.from_callable(vanishing, differentiable=True)
    metric, network, x = example(name), model(), inputs()
    dark = torch.cat([x[:1] * 0.1, x[1:]])
    result = metric(network, silent, dark)
    assert result.status[0] in ("ok", "degenerate")
    if result.status[0] == "ok":
        assert values(metric, result)[0].isfinite()
    alone = metric(network, silent, dark[1:])
    assert same(values(metric, result)[1:], values(metric, alone))


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_model_that_says_the_same_of_everything_has_a_finite_map(name: str) -> None:
    module = small_net((1, 8, 8))
    last = module[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    maps = explainer(name)(model(module), inputs())
    assert torch.isfinite(maps).all()
    # controls and these two do not measure a difference
    if not (explainer(name).control or name in ("extremal_perturbations", "rise")):
        assert maps.abs().max() < 1e-5


# one flipped sample that turns a mean into NaN


@pytest.mark.parametrize("name", METRICS)
def test_a_flipped_sample_does_not_turn_a_mean_into_nan(name: str) -> None:
    metric, network, x = example(name), model(), inputs()
    right = network.predict(x)
    wrong = right.clone()
    wrong[1] = (wrong[1] + 1) % 4
    reading = presentation_of(metric.name).reading(metric.options())
    counted = reading.select_valid(metric(network, "input_x_gradient", x, wrong).frame())
    whole = reading.select_valid(metric(network, "input_x_gradient", x, right).frame())
    kept = whole.filter(whole["sample"] != 1)
    assert counted["sample"].to_list() == kept["sample"].to_list()
    assert reading.values(counted).tolist() == reading.values(kept).tolist()
    assert np.isfinite(reading.values(counted)).all()


@pytest.mark.parametrize("name", METRICS)
def test_a_perturbed_input_that_flips_does_not_either(name: str) -> None:
    """The explained class changes within the neighbourhood: an outcome, not a missing value."""

    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((1, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            out = self.net(x)
            return torch.cat([out[:, :2] + 50 * (x.flatten(1).mean(1, keepdim=True) - 0.5), out[:, 2:]], 1)

    metric, network, x = example(name), model(Fickle()), inputs()
    result = metric(network, "input_x_gradient", x)
    usable = torch.tensor([status == "ok" for status in result.status])
    assert usable.any()
    assert values(metric, result)[usable].isfinite().all()


# a maximum batch size that splits only perturbations, not inputs


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_keeps_the_batch_size_over_many_inputs(name: str) -> None:
    watched = Watched()
    metrics[name].example()(model(watched.module), "input_x_gradient", inputs(17))
    assert max(watched.rows) <= 16


@pytest.mark.parametrize("name", EXPLAINED)
def test_an_explainer_keeps_the_batch_size_over_many_inputs(name: str) -> None:
    watched = Watched()
    explainer(name)(model(watched.module), inputs(17))
    assert max(watched.rows) <= 16


# progress bars that count the wrong thing


@pytest.mark.parametrize("samples_per_job", [1, 2])
def test_progress_counts_jobs_up_to_their_number(samples_per_job: int) -> None:
    chosen = {name: example(name) for name in ("aopc", "max_sensitivity", "log_odds")}
    grid = Grid(
        {"x": Samples(inputs())},
        {"m": LoadedModel(model())},
        {"a": standfast.explainers.get("saliency"), "b": standfast.explainers.get("gradcam")},
        chosen,
        samples_per_job=samples_per_job,
    )
    store, seen = Store(f"memory://progress-{samples_per_job}"), list[Progress]()
    summary = run_grid(grid, store, progress=seen.append)
    jobs = 2 * 3 * -(-3 // samples_per_job)
    assert [p.done for p in seen] == list(range(jobs + 1))
    assert {p.total for p in seen} == {jobs} == {summary.planned}
    assert [p.share for p in seen] == sorted(p.share for p in seen)
    assert seen[-1].share == pytest.approx(1.0)
    assert 0 < seen[1].share < 1
    again = list[Progress]()
    run_grid(grid, store, progress=again.append)
    assert [(p.done, p.total, p.earlier) for p in again] == [(0, 0, jobs)]


@pytest.mark.parametrize("name", METRICS)
def test_the_expected_cost_is_not_far_from_what_is_counted(name: str) -> None:
    """The share of a progress bar and the estimate of a dry run are by `expected_evaluations`."""
    metric = example(name)
    counted = metric(model(), "input_x_gradient", inputs()).model_evaluations.double().mean().item()
    assert 0.2 < counted / metric.expected_evaluations() < 5
