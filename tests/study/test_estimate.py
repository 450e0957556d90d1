"""What `standfast.estimate` and a dry run say of the costs, and what they spend to find out."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import types
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from light import light_metric
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.metrics import Cost, Metric, Probe, Result
from standfast.question.grid import Grid, LoadedModel, ModelSource, Samples
from standfast.study.forecast import trials as cost
from standfast.study.plan import make_plan

#: the sanity checks would be lines of their own
estimate = partial(standfast.estimate, sanity=False)


class Clock:
    """Time that passes when a model runs: a row takes a millisecond, whatever the computer does."""

    def __init__(self) -> None:
        self.rows = 0

    def perf_counter(self) -> float:
        return self.rows / 1000


class Timed(nn.Module):
    def __init__(self, net: nn.Module, clock: Clock) -> None:
        super().__init__()
        self.net, self.clock = net, clock

    def forward(self, x: Tensor) -> Tensor:
        self.clock.rows += len(x)
        out: Tensor = self.net(x)
        return out


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cost, "time", types.SimpleNamespace(perf_counter=made.perf_counter))
    return made


def timed_model(clock: Clock, shape: tuple[int, ...] = SHAPES["flat"]) -> standfast.Model:
    return standfast.Model(Timed(small_net(shape), clock), (0.0, 1.0), device="cpu", batch_size=64)


def make_grid(
    model: standfast.Model, inputs: Tensor, *metrics: Metric, explainers: Any = None, **more: Any
) -> Grid:
    explainers = explainers or {"saliency": standfast.explainers.get("saliency")}
    labelled = {metric.name: metric for metric in metrics}
    return Grid({"x": Samples(inputs)}, {"m": LoadedModel(model)}, explainers, labelled, **more)


def draw(count: int, shape: tuple[int, ...] = SHAPES["flat"]) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True)
class Repeated(Metric):
    """Queries `samples` copies, `factor` times as many as it expects; no query is wider than a batch."""

    name = "repeated"
    direction = "higher"
    presets = {"quick": {"samples": 100}}  # noqa: RUF012
    budget_option = "budget"

    samples: int = 10_000
    factor: int = 1
    budget: int | None = None

    def cost(self, classes: int | None = None) -> Cost:
        return Cost(predictions=0, explanations=min(self.samples + 1, self.budget or sys.maxsize))

    def evaluate(self, call: Any) -> Result:
        probe = Probe(call, similarity="cosine")
        value = probe.query(call.inputs).similarity
        for _ in range(self.factor * self.samples - 1):
            if int(probe.evaluations.max()) != self.budget:
                value = probe.query(call.inputs).similarity
        return Result(**probe.common_fields(self), value=value)


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_trials_to_the_end_count_what_results_report(name: str) -> None:
    shape = SHAPES["image"]
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)
    options: dict[str, Any] = {"samples_per_job": 2, "controls": False}
    found = estimate(
        model,
        "input_x_gradient",
        draw(2, shape),
        light_metric(name),
        seconds=math.inf,
        **options,
    )
    result = standfast.evaluate(
        model,
        "input_x_gradient",
        draw(2, shape),
        light_metric(name),
        progress=False,
        sanity=False,
        **options,
    ).samples
    assert found.evaluations == result["model_evaluations"].sum()
    assert found.seconds > 0


@dataclass(frozen=True)
class Prepared(Repeated):
    """Runs the model 2,000 times between the samples themselves and its queries."""

    name = "prepared"

    def evaluate(self, call: Any) -> Result:
        Probe(call, similarity="cosine")
        for _ in range(2_000):
            call.model.forward(call.inputs)
        return super().evaluate(call)


@pytest.mark.parametrize(
    ("metric", "limit", "evaluations", "seconds", "most"),
    [
        pytest.param(Repeated(20), 1.0, 21, None, 1.5, id="run to its end"),
        pytest.param(Repeated(), 2.0, 10_001, 160, 10, id="stopped, and its pilot run"),
        pytest.param(
            Repeated(factor=3), 6.0, 30_000, 480, 30, id="a pilot that takes more than expected"
        ),
        pytest.param(
            Repeated(factor=3, budget=12_000), 6.0, 12_000, None, 30, id="no more than the budget"
        ),
        pytest.param(Repeated(), 0.1, 10_001, 160, 10, id="the pilot takes too long, too"),
        # a batch of 16 rows takes 16 ms, and a trial 3 s
        pytest.param(
            Prepared(), 3.0, 10_001, 32 + 160, 65, id="what a metric prepares is paid once"
        ),
    ],
)
def test_what_is_known_of_a_trial_is_scaled_to_the_last_second(
    metric: Metric, limit: float, evaluations: int, seconds: float | None, most: float, clock: Clock
) -> None:
    """16 rows take 16 ms, so 10,000 queries 160 s, and 100 of the pilot 1.6 s. A trial has a third of the time."""
    model, inputs = timed_model(clock), draw(16)
    clock.rows = 0
    found = estimate(
        model, "saliency", inputs, metric, samples_per_job=16, seconds=3 * limit, controls=False
    )
    assert clock.rows < 1000 * most
    assert found.evaluations == pytest.approx(
        16 * evaluations, rel=0.0 if evaluations % 10_000 else 0.02
    )
    if metric == Repeated(20):
        clock.rows = 0
        metric(model, "saliency", inputs)
        seconds = clock.rows / 1000
    if seconds is not None:
        assert found.seconds == pytest.approx(seconds, rel=0.02)


class Slow:
    """An explanation by many rows of the model: what a metric pays once must not be paid for every evaluation."""

    def __call__(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        for _ in range(100):
            module(inputs)
        return inputs * 2


def test_explanations_are_not_reckoned_for_every_evaluation(clock: Clock) -> None:
    """A corruption curve explains once, and predicts many copies."""
    model, inputs = timed_model(clock), draw(16)
    metric, slow = (
        standfast.metrics.CorruptionCurve(samples=100),
        standfast.explainers.from_callable(Slow()),
    )
    found = estimate(model, slow, inputs, metric, samples_per_job=16, seconds=2.0, controls=False)
    clock.rows = 0
    metric(model, slow, inputs)
    assert found.seconds == pytest.approx(clock.rows / 1000, rel=0.2)


def test_jobs_that_are_left_are_added_up(clock: Clock) -> None:
    explainers = {
        "a": standfast.explainers.get("saliency"),
        "b": standfast.explainers.get("gradcam:layer=net.1"),
    }
    model, inputs = timed_model(clock, SHAPES["image"]), draw(24, SHAPES["image"])
    plan = make_plan(
        make_grid(model, inputs, Repeated(20), explainers=explainers, samples_per_job=16, repeats=2)
    )
    first, second = cost.estimate_plan(plan, {job.identity for job in plan.jobs[:2]}).lines
    assert (first.explainer, first.jobs, first.done, first.evaluations) == (
        "a",
        4,
        1,
        (24 + 8) * 21,
    )
    assert (second.explainer, second.jobs, second.done, second.evaluations) == (
        "b",
        4,
        1,
        (24 + 8) * 21,
    )
    done = cost.estimate_plan(plan, {job.identity for job in plan.jobs})
    assert (done.evaluations, done.seconds, math.isnan(done.memory)) == (0, 0.0, True)


def test_a_trial_that_fails_has_no_time_and_the_others_have(clock: Clock) -> None:
    def broken(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("no")

    found = estimate(timed_model(clock), {"good": "saliency", "bad": broken}, draw(4), Repeated(20))
    good, bad = found.lines
    assert (good.explainer, bad.explainer, math.isnan(bad.seconds)) == ("good", "bad", True)
    assert found.seconds == good.seconds > 0
    assert found.frame().height == 2


class Forward(nn.Module):
    """Has no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net(SHAPES["flat"])

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            raise RuntimeError("no backward pass")
        out: Tensor = self.net(x)
        return out


def test_a_model_without_gradients_is_tried_with_what_needs_none() -> None:
    model = standfast.Model(Forward(), (0.0, 1.0), device="cpu")
    found = estimate(model, {"good": "random", "bad": "saliency"}, draw(4), Repeated(20))
    assert [math.isnan(line.seconds) for line in found.lines] == [False, True]


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, "a", None, True])
def test_seconds_are_a_number_above_0(seconds: Any) -> None:
    with pytest.raises(standfast.ArgumentError, match="seconds: expected a number above 0, got"):
        estimate(
            standfast.Model(small_net(SHAPES["flat"]), (0.0, 1.0)),
            "saliency",
            draw(2),
            "aopc",
            seconds=seconds,
        )


def test_what_a_metric_remembers_of_a_model_is_no_gain_of_the_next_trial(clock: Clock) -> None:
    """c-Eval keeps the distortions without fixed features for the next explainers."""
    metric, inputs = standfast.metrics.CEval(attack="fmn:steps=5,polish=1"), draw(4)
    names = ["saliency", "input_x_gradient"]
    found = estimate(timed_model(clock), names, inputs, metric, seconds=math.inf, controls=False)
    model = timed_model(clock)
    clock.rows = 0
    metric(model, "saliency", inputs)
    assert [line.seconds for line in found.lines] == pytest.approx(
        [clock.rows / 1000] * 2, rel=0.02
    )


def test_a_stopped_trial_leaves_the_model_as_it_was(clock: Clock) -> None:
    shape = SHAPES["image"]
    model, metric = timed_model(clock, shape), standfast.metrics.ParameterSensitivityConsistency()
    before = metric.example()(model, "saliency", draw(3, shape))
    estimate(model, ["saliency", "guided_backprop", "lrp"], draw(3, shape), metric, seconds=0.01)
    assert model.module.training
    assert all(p.requires_grad for p in model.module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.module.modules())
    after = metric.example()(model, "saliency", draw(3, shape))
    assert torch.equal(before.value, after.value)


@dataclass(frozen=True)
class Large(Repeated):
    """Holds 160 MB."""

    name = "large"

    def evaluate(self, call: Any) -> Result:
        held = torch.ones(40_000_000)
        result = super().evaluate(call)
        return replace(result, value=result.value + 0 * held[0])


@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read from /proc")
def test_memory_is_the_peak_of_the_process(clock: Clock) -> None:
    model, inputs = timed_model(clock), draw(4)

    def measure(metric: standfast.metrics.Metric) -> float:
        # what earlier tests have freed would be used again
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return estimate(model, "saliency", inputs, metric).memory

    small, large, again = measure(Repeated(20)), measure(Large(20)), measure(Repeated(20))
    assert 1.3e8 < large - small < 2.2e8
    assert abs(again - small) < 5e7


def test_progress_weighs_jobs_by_explanations_and_predictions() -> None:
    """An explainer's rows count for each explanation, not for copies that are only predicted."""
    model = standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu", batch_size=16)
    curve, many = (
        standfast.metrics.CorruptionCurve(samples=1),
        standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=21),
    )
    explainer = standfast.explainers.get("integrated_gradients", steps=10)
    work = {
        job.label: job.work
        for job in make_plan(
            make_grid(model, draw(2), curve, many, explainers={"ig": explainer})
        ).jobs
    }
    assert curve.cost().evaluations == many.cost().evaluations == 22
    rows = explainer.rows_per_input
    assert rows >= 10
    assert work == {"corruption_curve": 2 * (3 * rows + 21), "max_sensitivity": 2 * 3 * rows * 22}


def test_all_layers_of_a_model_are_counted(clock: Clock) -> None:
    model = timed_model(clock, SHAPES["image"])
    metric = standfast.metrics.ParameterSensitivityConsistency(masks=3_000)
    found = estimate(
        model, "saliency", draw(1, SHAPES["image"]), metric, seconds=0.02, controls=False
    )
    layers = metric.bind(module=model.module).layers
    assert len(layers) == 3
    assert found.evaluations == 1 + 3 * 3_000
    refused = estimate(
        timed_model(clock), "saliency", draw(1), replace(metric, layers="conv"), controls=False
    )
    assert "layers" in refused.lines[0].error
    assert "trials failed, and their jobs will: " in repr(refused)


def test_the_number_of_classes_counts(clock: Clock) -> None:
    """Of 300 classes, 64 directional derivatives find those that matter; the trial ends long before the search does."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = {
            count: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, count))
            for count in (2, 300)
        }

    @dataclass(frozen=True, eq=False)
    class FreshSource(ModelSource):
        """Makes a new model each time, as study files do; it does not know its number of classes yet."""

        count: int
        about: Any = field(default_factory=dict)

        def model(self, samples: Any, device: str) -> standfast.Model:
            return standfast.Model(
                Timed(nets[self.count], clock), (0.0, 1.0), device="cpu", batch_size=64
            )

    metric, inputs = standfast.metrics.CEval(), draw(32, (20,))
    models: dict[str, ModelSource] = {"two": FreshSource(2), "many": FreshSource(300)}
    saliency = {"saliency": standfast.explainers.get("saliency")}
    grid = Grid({"x": Samples(inputs)}, models, saliency, {"c": metric}, samples_per_job=32)
    plan = make_plan(grid)
    assert [job.work / 32 for job in plan.jobs] == pytest.approx(
        [metric.cost(2).evaluations, metric.cost(300).evaluations], rel=0.01
    )
    found = cost.estimate_plan(plan, set(), seconds=0.2)
    assert clock.rows < 10_000
    for line, source in zip(found.lines, models.values(), strict=True):
        used, model = list[int](), source.model(grid.data["x"], "cpu")
        # `model_evaluations` leaves out the search without fixed features, which explainers share
        with model.watch(used.append):
            metric(model, "saliency", inputs)
        assert line.evaluations == pytest.approx(sum(used), rel=0.15)


def test_many_pairs_share_the_time(clock: Clock) -> None:
    """Three explainers, of which each would take minutes: all trials together take what one may."""
    explainers = {name: name for name in ("saliency", "input_x_gradient", "smoothgrad")}
    model = timed_model(clock)
    clock.rows = 0
    found = estimate(
        model, explainers, draw(16), Repeated(), samples_per_job=16, seconds=10.0, controls=False
    )
    assert clock.rows < 2 * 10_000
    assert all(line.seconds > 100 for line in found.lines)


class Heavy:
    """An explanation by many rows of the model, each of which takes its time."""

    def __call__(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        for _ in range(1000):
            module(inputs)
        return inputs * 2


def test_what_is_not_tried_is_marked_and_has_the_time_of_its_explanations(clock: Clock) -> None:
    """An explanation of 16 samples takes 16 s: it is measured, and the metric is not tried."""
    heavy = standfast.explainers.from_callable(Heavy())
    found = estimate(
        timed_model(clock),
        heavy,
        draw(16),
        Repeated(50),
        samples_per_job=16,
        seconds=10,
        controls=False,
    )
    (line,) = found.lines
    assert line.basis == "explanations"
    assert line.seconds == pytest.approx(51 * 16, rel=0.05)
    assert " a\n" in str(found)


@dataclass(frozen=True)
class Rare(Repeated):
    """Only a trial shows what it costs."""

    name = "rare"
    has_random_cost = True


def test_a_random_cost_that_was_not_seen_is_not_known(clock: Clock) -> None:
    heavy = standfast.explainers.from_callable(Heavy())
    options: dict[str, Any] = {"samples_per_job": 16, "controls": False}
    found = estimate(
        timed_model(clock), heavy, draw(16), [Rare(50), Repeated(50)], seconds=10, **options
    )
    assert [line.basis for line in found.lines] == ["unknown", "explanations"]
    assert found.unknown == ["rare"]
    assert found.seconds == found.lines[1].seconds
    assert "not known" in str(found)
    seen = estimate(timed_model(clock), "saliency", draw(16), Rare(50), seconds=10, **options)
    assert seen.unknown == []


def test_pilots_show_what_was_not_known(clock: Clock) -> None:
    model = timed_model(clock)
    plan = make_plan(make_grid(model, draw(16), Rare(10_000), samples_per_job=16))
    found = cost.estimate_plan(plan, set(), seconds=0.01)
    assert found.unknown == ["rare"]
    tried = cost.try_unknown(plan, found, 30.0)
    assert tried.unknown == []
    assert tried.lines[0].basis == "pilot"
    assert tried.seconds == pytest.approx(160, rel=0.05)


def test_a_trial_that_sees_little_is_not_believed(clock: Clock) -> None:
    """Many metrics share a second, so each trial ends within one of its first batches of copies."""

    def take_time(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Five milliseconds for each row."""
        clock.rows += 5 * len(inputs)
        return inputs * 2

    model = standfast.Model(small_net(SHAPES["flat"]), (0.0, 1.0), device="cpu", batch_size=64)
    sleepy = standfast.explainers.from_callable(take_time)
    metrics = {f"m{number}": Repeated(1000 + number) for number in range(6)}
    found = estimate(
        model, sleepy, draw(16), metrics, samples_per_job=16, seconds=2.0, controls=False
    )
    for line in found.lines:
        assert 0.3 < line.seconds / (16 * 1001 * 0.005) < 3
