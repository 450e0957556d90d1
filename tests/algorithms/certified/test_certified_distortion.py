"""Certified lower bounds: exact for affine classifiers, and never above what flips a network."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused
from scipy.optimize import minimize
from torch import Tensor, nn

import standfast
from standfast.algorithms.certified.bound import certified_distortion
from standfast.algorithms.certified.linear_relaxation import (
    PermittedInputs,
    bound_margins,
    bound_values,
)
from standfast.algorithms.certified.network_rules import MaxPool, pool_windows
from standfast.algorithms.certified.network_trace import TracedNetwork, trace_network
from standfast.errors import ModelError

TIGHT = 1e-4
# the copy it makes is no matter here
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def model_of(
    module: nn.Module, bounds: tuple[float, float] = (0.0, 1.0), **options: Any
) -> standfast.Model:
    return standfast.Model(module, bounds=bounds, device="cpu", **options)


def affine(seed: int, features: int, classes: int) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(features, classes).double()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding="same"), nn.BatchNorm2d(4)
        self.conv1, self.conv2 = (
            nn.Conv2d(4, 4, 3, padding=2, dilation=2),
            nn.Conv2d(4, 4, (2, 3), padding="same", groups=2),
        )
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = F.leaky_relu(x - self.conv2(torch.relu(self.conv1(x))), 0.1)
        return self.fc(x.mean((2, 3)))


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(3)
    pooled = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=1, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Dropout(),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        nn.LeakyReLU(0.2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 10),
        nn.ReLU(),
        nn.Linear(10, 3),
    )
    series = nn.Sequential(
        nn.Conv1d(2, 4, 3, stride=2, padding=1),
        nn.MaxPool1d(2, ceil_mode=True),
        nn.ReLU(),
        nn.ConstantPad1d(1, 0.0),
        nn.Conv1d(4, 4, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    dense = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)
    )
    cases: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "pooled": (pooled, (1, 7, 7)),
        "series": (series, (2, 13)),
        "dense": (dense, (6,)),
        "residual": (Residual(), (2, 5, 5)),
    }
    for module, _ in cases.values():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.running_mean, -0.5, 0.5)
                nn.init.uniform_(layer.running_var, 0.5, 1.5)
            elif hasattr(layer, "weight"):
                layer.weight.data *= 1.7  # larger than initialised, so that flips are near
    return cases


def traced(model: standfast.Model, x: Tensor) -> TracedNetwork:
    with model.session():
        return trace_network(model.forward, model.module, x[:1])


def points(x: Tensor, free: Tensor, radius: Tensor, norm: float, count: int, seed: int) -> Tensor:
    """Permitted points of one input `(1, ...)`: in the middle of the ball, on its surface and at its corners."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, *x.shape[1:], generator=g) * free
    if norm == math.inf:
        sides = torch.where(
            torch.rand(count, generator=g)[:, None] < 0.5, noise.sign().flatten(1), noise.flatten(1)
        )
        noise = (sides.clamp(-1, 1) * radius).reshape(noise.shape)
    else:
        keep = torch.rand(noise.shape, generator=g) < torch.rand(count, generator=g).reshape(
            -1, *[1] * (x.ndim - 1)
        )
        noise = noise * keep
        noise = (
            noise.flatten(1) / noise.flatten(1).norm(dim=1, keepdim=True).clamp(min=1e-9) * radius
        ).reshape(noise.shape)
    return (x + noise).clamp(0, 1)


def attacked(
    model: standfast.Model, x: Tensor, y: int, rival: int, free: Tensor, radius: float, norm: float
) -> Tensor:
    """Projected gradient descent on one margin from several starts."""
    start = points(x, free, torch.tensor(radius), norm, 12, seed=rival)
    z = start.clone()
    with model.session():
        for step in range(25):
            leaf = z.detach().requires_grad_(True)
            logits = model.forward(leaf)
            (g,) = torch.autograd.grad((logits[:, y] - logits[:, rival]).sum(), leaf)
            g = g * free
            size = radius * 0.5 * (1 - step / 25)
            if norm == math.inf:
                z = x + (z - size * g.sign() - x).clamp(-radius, radius) * free
            else:
                d = (
                    z
                    - size
                    * g
                    / g.flatten(1).norm(dim=1).clamp(min=1e-12).reshape(-1, *[1] * (x.ndim - 1))
                    - x
                ) * free
                z = x + d * (radius / d.flatten(1).norm(dim=1).clamp(min=1e-12)).clamp(
                    max=1
                ).reshape(-1, *[1] * (x.ndim - 1))
            z = z.clamp(0, 1)
    return z


@pytest.mark.parametrize("norm", [2, "inf"])
def test_affine_classifiers_without_binding_bounds_are_exact(norm: Any) -> None:
    worst = 0.0
    for seed in range(20):
        module = affine(seed, 12, 4)
        model, x = model_of(module, (-1e3, 1e3)), torch.randn(8, 12, dtype=torch.float64)
        free = torch.rand(8, 12) < 0.6
        free[:, 0] = True
        lower = certified_distortion(model, x, free=free, norm=norm, tolerance=TIGHT).lower
        logits = module(x).detach()
        y = logits.argmax(1)
        w = (module.weight[y][:, None] - module.weight).detach() * free[:, None]
        size = w.norm(dim=2) if norm == 2 else w.abs().sum(2)
        exact = ((logits.gather(1, y[:, None]) - logits) / size).nan_to_num(torch.inf).amin(1)
        assert bool((lower <= exact * (1 + 1e-9)).all())
        worst = max(worst, float((1 - lower / exact).max()))
    assert worst < 2 * TIGHT


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_convolution_as_large_as_the_input_is_an_affine_classifier(dimensions: int) -> None:
    torch.manual_seed(0)
    kernel = (2, 3, 2)[:dimensions]
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1](2, 3, kernel)  # type: ignore[operator]
    module = nn.Sequential(layer, nn.Flatten()).double()
    x = torch.full((1, 2, *kernel), 0.5, dtype=torch.float64)
    logits, y = module(x).detach()[0], int(module(x).argmax())
    w = layer.weight.detach().flatten(1)
    rivals = [j for j in range(3) if j != y]
    exact = min(float((logits[y] - logits[j]) / (w[y] - w[j]).norm()) for j in rivals)
    lower = certified_distortion(model_of(module, (-9.0, 9.0)), x, norm=2, tolerance=TIGHT).lower
    assert float(lower) == pytest.approx(exact, rel=2 * TIGHT)


def test_affine_classifiers_within_bounds_meet_the_quadratic_programme() -> None:
    bounded = 0
    for seed in range(12):
        module = affine(seed, 6, 3)
        model, x = model_of(module), torch.rand(1, 6, dtype=torch.float64) ** 3
        free = torch.rand(1, 6) < 0.8
        free[:, :2] = True
        result = certified_distortion(model, x, free=free, tolerance=TIGHT)
        y, found = int(module(x).argmax()), [math.inf]
        start, low = x[0].numpy(), np.where(free[0], 0, x[0])
        high = np.where(free[0], 1, x[0])
        for rival in {0, 1, 2} - {y}:
            w = (module.weight[y] - module.weight[rival]).detach().numpy()
            b = (module.bias[y] - module.bias[rival]).item()
            if np.minimum(w * low, w * high).sum() + b > 0:
                continue  # out of reach
            solved = minimize(
                lambda z, at=start: ((z - at) ** 2).sum(),
                np.where(w > 0, low, high),
                jac=lambda z, at=start: 2 * (z - at),
                bounds=list(zip(low, high, strict=True)),
                constraints={
                    "type": "ineq",
                    "fun": lambda z, w=w, b=b: -(w @ z + b),
                    "jac": lambda z, w=w: -w,
                },
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            found.append(math.sqrt(solved.fun))
            bounded += bool(((solved.x < 1e-9) & (start > 1e-6)).any())
        exact = min(found)
        assert bool(result.unbounded) == math.isinf(exact)
        if math.isfinite(exact):
            assert float(result.lower) == pytest.approx(exact, rel=3 * TIGHT)
    assert bounded > 0


def test_affine_classifiers_within_bounds_meet_the_largest_box() -> None:
    for seed in range(12):
        module = affine(seed, 6, 3)
        model, x = model_of(module), torch.rand(4, 6, dtype=torch.float64) ** 3
        lower = certified_distortion(model, x, norm=math.inf, tolerance=TIGHT).lower
        logits = module(x).detach()
        y = logits.argmax(1)
        w = (module.weight[y][:, None] - module.weight).detach()

        def least(
            radius: Tensor, x: Tensor = x, w: Tensor = w, logits: Tensor = logits, y: Tensor = y
        ) -> Tensor:
            below, above = -torch.minimum(radius[:, None], x), torch.minimum(radius[:, None], 1 - x)
            drop = torch.where(w > 0, w * below[:, None], w * above[:, None]).sum(2)
            margin = logits.gather(1, y[:, None]) - logits + drop
            return margin.scatter(1, y[:, None], torch.inf).amin(1)

        low, high = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        unreachable = least(high) > 0
        for _ in range(60):
            middle = (low + high) / 2
            good = least(middle) > 0
            low, high = torch.where(good, middle, low), torch.where(good, high, middle)
        expected = torch.where(unreachable, torch.inf, low)
        torch.testing.assert_close(lower, expected, rtol=3 * TIGHT, atol=0)


@pytest.mark.parametrize("norm", [2, math.inf])
@pytest.mark.parametrize("name", ["pooled", "series", "dense", "residual"])
def test_no_permitted_point_below_the_bound_flips_or_falls_below_its_margin(
    name: str, norm: float
) -> None:
    module, shape = networks()[name]
    model = model_of(module, preprocess=lambda x: (x - 0.4) / 0.5)
    torch.manual_seed(5)
    x = torch.rand(2, *shape)
    free = torch.rand(2, *shape) < 0.7
    y = model.predict(x)
    lower = certified_distortion(model, x, free=free, norm=norm).lower
    assert bool((lower > 0).all())
    assert bool(torch.isfinite(lower).any())
    network = traced(model, x)
    for n in range(2):
        reach = free[n].double().norm() if norm == 2 else free[n].double().max()
        # also far beyond what is certified, where the lines are crude but must still hold
        for radius in (float(torch.minimum(lower[n], reach)) * 0.999, 0.2, 1.0):
            at = x[n : n + 1].double().flatten(1)
            mask = free[n : n + 1].flatten(1).double()
            box = (torch.clamp(-at, min=-radius) * mask, torch.clamp(1 - at, max=radius) * mask)
            ball = torch.tensor([radius], dtype=torch.float64) if norm == 2 else None
            bounds = bound_values(network, PermittedInputs(at, *box, ball), "crown", 2**-24)
            proved = bound_margins(network, PermittedInputs(at, *box, ball), bounds, y[n : n + 1])[
                0
            ]
            tried = [
                points(x[n : n + 1], free[n], torch.tensor(radius * (1 - 1e-6)), norm, 600, seed=n)
            ]
            for rival in {0, 1, 2} - {int(y[n])}:
                tried.append(
                    attacked(
                        model, x[n : n + 1], int(y[n]), rival, free[n], radius * (1 - 1e-6), norm
                    )
                )
            z = torch.cat(tried)
            logits = model.logits(z)
            margin = logits[:, y[n], None] - logits
            rival_margins = margin.double().index_fill(1, y[n : n + 1], torch.inf)
            assert bool((rival_margins >= proved).all())
            if radius <= float(lower[n]):
                assert bool((model.predict(z) == y[n]).all())
            # every step's values, not only the last
            steps = network.values(z.double())
            for value, low, high in zip(steps, bounds.lower, bounds.upper, strict=True):
                assert bool(((value >= low - 1e-7) & (value <= high + 1e-7)).all())


@pytest.mark.parametrize("name", ["pooled", "series", "dense", "residual"])
def test_the_bounds_hold_for_any_rounding_error_of_the_steps(name: str) -> None:
    module, shape = networks()[name]
    model = model_of(module)
    torch.manual_seed(8)
    x = torch.rand(1, *shape)
    network, y = traced(model, x), model.predict(x)
    at = x.double().flatten(1)
    radius = 0.02
    permitted = PermittedInputs(at, (-at).clamp(min=-radius), (1 - at).clamp(max=radius), None)
    bounds = bound_values(network, permitted, "crown", unit=1e-4)
    proved = bound_margins(network, permitted, bounds, y)[0]
    z = points(
        x,
        torch.ones(shape, dtype=torch.bool),
        torch.tensor(radius * (1 - 1e-6)),
        math.inf,
        2000,
        seed=0,
    ).double()
    values, least = [z], math.inf
    for node, error in zip(network.nodes[1:], bounds.errors[1:], strict=True):
        value = node.rule.apply(*(values[s] for s in node.sources))
        if error is not None:
            assert float(error.max()) > 0
            value = value + error * torch.randn_like(value).sign()
        values.append(value)
    margin = values[-1][:, y] - values[-1]
    least = float((margin - proved)[:, torch.isfinite(proved)].min())
    assert least >= 0
    exact = bound_margins(network, permitted, bound_values(network, permitted, "crown"), y)[0]
    assert bool((exact >= proved).all())


@pytest.mark.parametrize("name", ["pooled", "series", "dense", "residual"])
def test_float32_rounds_by_less_than_the_rules_allow(name: str) -> None:
    module, shape = networks()[name]
    model = model_of(module)
    x = torch.rand(64, *shape)
    network = traced(model, x)
    exact = network.values(x.double())
    for node, value in zip(network.nodes[1:], exact[1:], strict=True):
        assert node.rule is not None
        # representable, so only this step rounds
        sources = [exact[s].float().double() for s in node.sources]
        error = node.rule.rounding([s.abs() for s in sources], 2**-24, 0.0)
        assert value.shape == (64, *node.shape)
        assert error is None or float(error.max()) < 1e-3
    torch.testing.assert_close(exact[-1], model.logits(x).double(), rtol=1e-4, atol=1e-5)
    at = x[:1].double().flatten(1)
    point = PermittedInputs(at, 0 * at, 0 * at, None)
    bounds = bound_values(network, point, "crown", 2**-24)
    logits = model.logits(x[:1])
    assert bool(((logits >= bounds.lower[-1]) & (logits <= bounds.upper[-1])).all())
    assert float((bounds.upper[-1] - bounds.lower[-1]).max()) < 1e-3


@pytest.mark.parametrize("norm", [2, math.inf])
def test_backward_bounds_are_no_worse_than_intervals(norm: float) -> None:
    gains = []
    for module, shape in networks().values():
        model = model_of(module)
        torch.manual_seed(1)
        x = torch.rand(3, *shape)
        crown = certified_distortion(model, x, norm=norm).lower
        interval = certified_distortion(model, x, norm=norm, method="interval").lower
        assert bool((crown >= interval * 0.99).all())
        gains.append(float((crown / interval).max()))
    assert max(gains) > 1.3


def test_tiny_networks_are_bounded_below_the_exact_distortion_and_not_by_much() -> None:
    side = torch.linspace(0, 1, 251)
    grid = torch.cartesian_prod(side, side)
    ratios: dict[float, list[float]] = {2: [], math.inf: []}
    for seed in range(25):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
        module[0].weight.data *= 3
        model, x = model_of(module), torch.rand(1, 2)
        flips = grid[model.predict(grid) != model.predict(x)]
        if len(flips) == 0:
            continue
        for norm, own in ratios.items():
            result = certified_distortion(model, x, norm=norm)
            # the nearest grid point that flips: at most a cell further than the exact one, never nearer
            found = float(torch.linalg.vector_norm((flips - x).double(), norm, 1).min())
            assert float(result.lower) <= found
            if found > 0.05:
                own.append(float(result.lower) / found)
    for own in ratios.values():
        assert len(own) > 8
        assert sorted(own)[len(own) // 2] > 0.6


def test_a_ball_within_a_box_has_its_exact_minimum() -> None:
    torch.manual_seed(0)
    for case in range(40):
        n = 5
        a = torch.randn(1, n, dtype=torch.float64)
        below, above = -torch.rand(1, n, dtype=torch.float64), torch.rand(1, n, dtype=torch.float64)
        below[0, case % n], above[0, case % n] = 0.0, 0.0
        centre, radius = (
            torch.randn(1, n, dtype=torch.float64),
            torch.rand(1, dtype=torch.float64) * 1.5,
        )
        got = float(PermittedInputs(centre, below, above, radius).minimum(a, torch.tensor([0])))
        weights, limit = a[0].numpy(), float(radius)
        solved = minimize(
            lambda d, w=weights: w @ d,
            np.zeros(n),
            jac=lambda d, w=weights: w,
            bounds=list(zip(below[0].numpy(), above[0].numpy(), strict=True)),
            constraints={
                "type": "ineq",
                "fun": lambda d, r=limit: r * r - d @ d,
                "jac": lambda d: -2 * d,
            },
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        exact = float(solved.fun + weights @ centre[0].numpy())
        assert got <= exact + 1e-7
        assert got >= exact - 1e-3 * abs(solved.fun)


def test_holding_more_raises_the_bound_and_holding_all_makes_it_infinite() -> None:
    module, shape = networks()["pooled"]
    model = model_of(module)
    torch.manual_seed(2)
    x = torch.rand(3, *shape)
    order = torch.rand(1, *shape)
    bounds = [
        certified_distortion(model, x, free=order <= share).lower for share in (1.0, 0.7, 0.4, 0.1)
    ]
    for less, more in itertools.pairwise(bounds):
        assert bool((more >= less * 0.985).all())
    assert bool((bounds[-1] > 1.3 * bounds[0]).all())
    nothing = certified_distortion(model, x, free=torch.zeros(1, *shape, dtype=torch.bool))
    assert bool(nothing.unbounded.all())
    assert bool(torch.isinf(nothing.lower).all())


def test_a_mask_of_one_channel_is_that_of_all() -> None:
    module, shape = networks()["residual"]
    model = model_of(module)
    torch.manual_seed(2)
    x, mask = torch.rand(2, *shape), torch.rand(2, 1, *shape[1:]) < 0.5
    one = certified_distortion(model, x, free=mask).lower
    assert torch.equal(one, certified_distortion(model, x, free=mask.expand_as(x)).lower)
    assert not torch.equal(one, certified_distortion(model, x).lower)


def test_targets_that_are_not_predicted_get_nothing() -> None:
    module, shape = networks()["dense"]
    model = model_of(module)
    x = torch.rand(2, *shape)
    other = (model.predict(x) + 1) % 3
    assert certified_distortion(model, x, other).lower.tolist() == [0.0, 0.0]
    held = torch.zeros(shape, dtype=torch.bool)
    assert certified_distortion(model, x, other, free=held).lower.tolist() == [0.0, 0.0]


def test_inputs_do_not_see_each_other() -> None:
    module, shape = networks()["pooled"]
    model = model_of(module)
    torch.manual_seed(4)
    x, free = torch.rand(3, *shape), torch.rand(3, *shape) < 0.8
    together = certified_distortion(model, x, free=free).lower
    alone = torch.cat(
        [certified_distortion(model, x[n : n + 1], free=free[n : n + 1]).lower for n in range(3)]
    )
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=0)


def test_parameters_and_modes_are_as_before() -> None:
    module, shape = networks()["pooled"]
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    certified_distortion(model_of(module), torch.rand(1, *shape), method="interval")
    assert module.training
    assert all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


class Branching(nn.Module):
    def __init__(self, ask: bool) -> None:
        super().__init__()
        self.fc, self.ask = nn.Linear(4, 2), ask

    def forward(self, x: Tensor) -> Tensor:
        if self.ask:
            return self.fc(x) if bool(self.fc(x).sum() > 0) else -self.fc(x)
        return self.fc(x) + self.fc(x).argmax(1, keepdim=True)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2)), r"1 \(Sigmoid\): sigmoid"),
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(1), nn.Linear(2, 2)), r"1 \(Softmax\): softmax"),
        (nn.Sequential(nn.LeakyReLU(-0.5), nn.Linear(4, 2)), "slope -0.5"),
        (Branching(True), "Branching"),
        (Branching(False), "argmax"),
    ],
)
def test_what_has_no_relaxation_is_named(module: nn.Module, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        certified_distortion(model_of(module), torch.rand(2, 4))


class Sizes(nn.Module):
    """Another function for other inputs, which no function call gives away."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * (1.0 if float(np.asarray(x.detach())[0, 0]) < 0.5 else -2.0)


def test_code_that_branches_on_values_is_noticed() -> None:
    x = torch.tensor([[0.1] * 4, [0.9] * 4])
    with pytest.raises(ModelError):
        certified_distortion(model_of(Sizes(), batch_size=1), x)


def test_arguments_are_checked() -> None:
    def make(**options: object) -> object:
        return certified_distortion(model_of(nn.Linear(4, 2)), torch.rand(2, 4), **options)

    assert_refused(make, norm=[1, True], method=["ibp"], tolerance=[0.0])
    assert_refused(make, free=[torch.ones(4), torch.ones(3, dtype=torch.bool)])


def test_the_residual_network_of_the_zoo_is_supported() -> None:
    torch.manual_seed(0)
    module = standfast.zoo.ResNet18(num_classes=3, width=1)
    model, x = model_of(module), torch.rand(1, 3, 32, 32)
    free = torch.zeros(1, 1, 32, 32, dtype=torch.bool)
    free[..., 10:13, 10:13] = True
    lower = certified_distortion(model, x, free=free, method="interval").lower
    assert float(lower) > 0


def test_the_lines_of_a_pooling_hold_and_are_exact_where_one_candidate_beats_all() -> None:
    torch.manual_seed(0)
    space, out = torch.Size([5, 5]), torch.Size([3, 3])
    rule = MaxPool(pool_windows(space, out, [3, 3], [2, 2], [1, 1], [1, 1]), space, out)
    for spread in (2.0, 0.3, 1e-6):
        centre, half = (
            torch.randn(20, 2, *space).double(),
            spread * torch.rand(20, 2, *space).double(),
        )
        lines = rule.lines(centre - half, centre + half)
        z = centre + half * (2 * torch.rand(400, 20, 2, *space).double() - 1)
        z[200:] = centre + half * torch.randn(200, 20, 2, *space).double().sign()  # the corners
        expected = F.max_pool2d(z.flatten(0, 1), 3, 2, 1).unflatten(0, (400, 20))
        a = torch.zeros(18, 20, 2, 9, dtype=torch.float64)  # each unit alone
        a = (
            a.flatten(2)
            .scatter(2, torch.arange(18)[:, None, None].expand(18, 20, 1), 1.0)
            .reshape(18, 20, 2, 9)
        )
        for sign in (1.0, -1.0):
            for unit in range(18):
                slopes, constants = rule.backward(
                    sign * a[unit].reshape(20, 2, *out), lines, torch.Size([2, *space])
                )
                line = (slopes * z).flatten(2).sum(2) + constants
                gap = sign * expected.flatten(2)[:, :, unit] - line
                assert float(gap.min()) > -1e-12
                if spread == 1e-6:
                    assert float(gap.max()) < 1e-5
