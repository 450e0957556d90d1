"""Defects that we found in other packages: nothing registered here has them, nor will anything that is added later.

This does not test the code of the peers. Such defects are: a value depends on the other samples of its batch, random
numbers do not come from the generator, an option has no effect. `tests/metrics/test_contract.py` tests the general
contract; here are the particular mistakes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.explainers import Explainer
from standfast.metrics import Metric
from standfast.metrics.base import has_neighbourhood, metrics
from standfast.neighbourhoods import NormBall, neighbourhoods

METRICS = standfast.metrics.names()
EXPLAINED = [name for name in standfast.explainers.names() if not name.startswith("attention_")]

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


def model(module: nn.Module | None = None) -> standfast.Model:
    return standfast.Model(module or small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=16)


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


# n_steps that is ignored: an option that changes nothing

#: counts that change nothing in the example of a metric, and why
IDLE = {
    ("attribution_attack", "restarts"): "the best of more restarts may be the same",
    (
        "data_sensitivity_consistency",
        "resamples",
    ): "of the interval of a whole data set, in the report",
    (
        "parameter_sensitivity_consistency",
        "resamples",
    ): "of the interval of a whole data set, in the report",
    ("reasons", "fewest"): "the first look has more draws than two",
}


def counts(kind: Any) -> list[str]:
    """Options that are whole numbers of things to do: not seeds, not switches."""
    fields = [f.name for f in dataclasses.fields(kind) if f.init]
    return [
        name for name in fields if type(getattr(kind, name)) is int and name not in ("seed", "norm")
    ]


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in METRICS for option in counts(example(name))]
)
def test_no_count_of_a_metric_is_ignored(name: str, option: str) -> None:
    one = example(name)
    if (name, option) in IDLE or not one.has_effect(option, one.options()):
        return
    two = dataclasses.replace(one, **{option: 2 * getattr(one, option)})
    found = []
    for metric in (one, two):
        watched = Watched()
        result = metric(model(watched.module), "input_x_gradient", inputs())
        numbers = {
            n: v.tolist() for n, v in vars(result).items() if isinstance(v, Tensor) and v.ndim == 1
        }
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
    if not has_neighbourhood(name) or metric.name == "worst_case":
        return  # without draws, or a search that goes where it is worse
    watched, x = Watched(keep=True), torch.full((1, 1, 8, 8), 0.5)
    metric(model(watched.module), "input_x_gradient", x)
    first = torch.cat(watched.seen)[:, 0]
    # the first draws; later ones follow the event
    steps = (first - 0.5)[(first != 0.5).flatten(1).any(1)][:10]
    assert len(steps) == 10
    assert_two_sided(steps.flatten(), 640)


@pytest.mark.parametrize("name", [n for n in EXPLAINED if "noise" in vars(explainer(n))])
def test_the_noise_of_an_explainer_goes_both_ways(name: str) -> None:
    noisy = dataclasses.replace(explainer(name), noise=0.1)  # type: ignore[type-var]
    if name == "gradient_shap":  # its points lie between the baseline 0 and the noisy input
        noisy = dataclasses.replace(noisy, background=0.5)  # type: ignore[call-arg, type-var]
    watched, x = Watched(keep=True), torch.full((1, 1, 8, 8), 0.5)
    noisy(model(watched.module), x)
    seen = torch.cat(watched.seen)
    steps = (seen - 0.5)[(seen != 0.5).flatten(1).any(1)]
    assert_two_sided(steps.flatten(), steps.numel())


def assert_two_sided(steps: Tensor, count: int) -> None:
    """As many go up as down, within four standard errors, and as far."""
    assert steps.numel() == count
    up = (steps > 0).double().mean()
    assert abs(up - 0.5) < 4 * 0.5 / count**0.5
    assert abs(steps.double().mean()) < 4 * steps.double().std() / count**0.5


# an all-zero map that ends the run


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
def test_a_perturbed_input_that_flips_does_not_either(name: str) -> None:
    """The explained class changes within the neighbourhood: an outcome, not a missing value."""

    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((1, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            out = self.net(x)
            return torch.cat(
                [out[:, :2] + 50 * (x.flatten(1).mean(1, keepdim=True) - 0.5), out[:, 2:]], 1
            )

    metric, network, x = example(name), model(Fickle()), inputs()
    result = metric(network, "input_x_gradient", x)
    usable = torch.tensor([status == "ok" for status in result.status])
    assert usable.any()
    assert result.value[usable].isfinite().all()


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
