"""Data SenC against oracles: a linear model, a slow reading of Algorithm 1, noise; and what its options do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy.stats import kstest, spearmanr
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.algorithms.masks.random_masks import draw_masks
from standfast.explainers.baselines import RandomExplainer
from standfast.metrics import DataSensitivityConsistency
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report.presentation.senc.data_sensitivity_consistency import lay_out
from standfast.segments import LabelMap, segment
from standfast.statistics.pooling import pool_inputs
from standfast.study.plan import make_plan
from standfast.tensors import Streams, content_keys

QUICK: dict[str, Any] = {"masks": 60, "permutations": 99, "resamples": 50}


def rand(*shape: int, seed: int = 1) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def model(shape: tuple[int, ...], **options: Any) -> standfast.Model:
    return standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=32, **options)


# the linear model: prediction sensitivity has the order of w_k x_k, since all of them speak for the class and the
# probability falls with each that is dropped. Gradient x input is w * x * M: dropping feature k sends it from its rank
# to the lowest, so it changes the ranking more, the higher w_k x_k is. A map with the opposite order of features is
# changed more by the lower w_k x_k. (The map of opposite sign is not: Spearman of -a and -b is that of a and b.)

FEATURES = 12


def linear() -> tuple[standfast.Model, Tensor]:
    weight = 0.1 * 1.25 ** torch.arange(FEATURES)
    module = nn.Linear(FEATURES, 2)
    with torch.no_grad():
        module.weight.copy_(torch.stack([torch.zeros(FEATURES), weight]))
        module.bias.zero_()
    order = torch.stack(
        [torch.randperm(FEATURES, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    )
    # other inputs, other orders of w_k x_k
    contribution = 0.05 * (1 + order.to(torch.float32))
    return standfast.Model(module, (0.0, 10.0), device="cpu", batch_size=512), contribution / weight


def test_linear_model_is_consistent_with_its_own_contributions() -> None:
    model, x = linear()
    result = DataSensitivityConsistency(masks=20_000, permutations=499, resamples=100)(
        model, "input_x_gradient", x
    )
    assert result.status == ("ok",) * 3
    assert (result.value > 0.98).all()
    assert (result.p_value <= 0.002).all()
    assert (result.low > 0.9).all()
    assert (result.top1 == 1).all()
    assert (result.top3 == 1).all()
    contribution = model.module.weight[1] * x
    for row in range(3):
        assert spearmanr(result.prediction_sensitivity[row], contribution[row].detach())[0] > 0.98


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_p_values_of_random_explanations_are_uniform(count: int) -> None:
    network, x = model((12,)), rand(count, 12)
    metric = DataSensitivityConsistency(masks=200, permutations=199, resamples=2)
    result = metric(network, "random", x)
    assert kstest(result.p_value.numpy(), "uniform").pvalue > 0.01
    assert result.value.mean().abs() < 4 * result.value.std() / count**0.5
    inside = (result.value >= result.null_low) & (result.value <= result.null_high)
    # a share of 95 % and its error
    assert abs(inside.double().mean() - 0.95) <= 4 * (0.95 * 0.05 / count) ** 0.5
    # a band of a normal distribution is 3.92 standard deviations wide, which so many values show up to this error
    width = (result.null_high - result.null_low).mean() / result.value.std()
    assert abs(width / 3.92 - 1) <= 4 / (2 * count) ** 0.5
    # all inputs together: unrelated as well, and the median of rho is 0
    together = result.pooled()
    assert together.count == count
    assert together.p_value == pytest.approx(
        pool_inputs(result.value.numpy(), result.p_value.numpy(), 199).p_value
    )
    assert together.p_value > 0.01
    assert together.median.low <= 0 <= together.median.high  # type: ignore[operator]


def test_random_explainer_makes_fresh_noise_of_equal_inputs() -> None:
    """Most masks leave this input as it is; the noise must not say so."""
    x = torch.zeros(1, 12)
    x[0, :2] = 0.7
    result = DataSensitivityConsistency(**{**QUICK, "masks": 2000})(model((12,)), "random", x)
    assert result.explanation_sensitivity.abs().max() < 4 * (2000 * 0.16 / 11) ** 0.5
    noise = RandomExplainer()
    pair = x.expand(2, -1)
    assert not torch.equal(*noise.noise(pair, torch.tensor([0, 1])))
    assert torch.equal(*noise.noise(pair, torch.tensor([3, 3])))


# a slow reading of Algorithm 1


def slowly(
    metric: DataSensitivityConsistency, model: standfast.Model, x: Tensor, explain: str
) -> tuple[list[Any], list[Any], list[float]]:
    """Both sensitivities and rho of each sample, a mask at a time, with the masks that the metric draws."""
    cut = segment(x, metric.segments)  # type: ignore[arg-type]
    masks = draw_masks(
        metric.masks,
        cut.count,
        metric.keep,
        Streams(content_keys(x, 0).tolist(), torch.device("cpu")),
    )
    baseline = torch.as_tensor(metric.baseline or 0.0)
    baseline = baseline.reshape(-1, *[1] * (x.ndim - 2)) if baseline.ndim else baseline

    def look(point: Tensor, wanted: int | None) -> tuple[Tensor, Any]:
        leaf = point[None].clone().requires_grad_(True)
        logits = model.module.eval()(leaf)
        chosen = int(logits.argmax()) if wanted is None else wanted
        (gradient,) = torch.autograd.grad(logits[0, chosen], leaf)
        return logits.detach()[0].double().softmax(0), (gradient * leaf).detach().flatten().numpy()

    found: tuple[list[Any], list[Any], list[float]] = ([], [], [])
    for row, point in enumerate(x):
        probability, explanation = look(point, None)
        target, m = int(probability.argmax()), int(cut.count[row])
        w, v, kept = [], [], masks[row, :, :m].double().numpy()
        for mask in masks[row]:
            on = torch.zeros(cut.labels[row].shape)
            for k in range(m):
                on[cut.labels[row] == k] = float(mask[k])
            p, e = look(point * on + baseline * (1 - on), target if explain == "origin" else None)
            w.append(1 - abs(float(probability[target] - p[target])))
            v.append(spearmanr(explanation, e)[0])
        sums = []
        for weights in (np.array(w), np.array(v)):
            if metric.estimator == "centred":
                weights, centred = weights - weights.mean(), kept - kept.mean(0)
            else:
                centred = kept
            sums.append(sum(weights[i] * centred[i] for i in range(len(weights))))
        for out, value in zip(found, (*sums, spearmanr(*sums)[0]), strict=True):
            out.append(value)
    return found


@pytest.mark.parametrize("estimator", ["centred", "paper"])
@pytest.mark.parametrize("name", ["image", "colour", "series", "flat"])
def test_equals_algorithm_1(name: str, estimator: str) -> None:
    shape = {**SHAPES, "colour": (3, 8, 8)}[name]
    baseline: Any = (0.2,) * shape[0] if name == "colour" else 0.3 if name == "series" else 0.0
    explain: Any = "predicted" if name == "series" else "origin"
    metric = DataSensitivityConsistency(
        "grid" if name == "image" else "auto",
        masks=40,
        keep=0.7,
        baseline=baseline,
        estimator=estimator,  # type: ignore[arg-type]
        explain=explain,
        permutations=9,
        resamples=5,
    )
    network, x = model(shape), rand(3, *shape)
    result = metric(network, "input_x_gradient", x)
    prediction, explanation, rho = slowly(metric, network, x, explain)
    for row, (a, b, r) in enumerate(zip(prediction, explanation, rho, strict=True)):
        m = int(result.features[row])
        assert np.allclose(result.prediction_sensitivity[row, :m], a, atol=1e-5)
        assert np.allclose(result.explanation_sensitivity[row, :m], b, atol=1e-4)
        assert result.prediction_sensitivity[row, m:].isnan().all()
        assert result.value[row].item() == pytest.approx(r, abs=1e-6)
    assert (result.model_evaluations == 41).all()
    assert (result.masks_used == 40).all()


# options


def test_early_stop_is_a_shorter_run_of_the_same_and_each_sample_s_own() -> None:
    network, x = model((12,)), rand(4, 12)
    options: dict[str, Any] = {"permutations": 99, "resamples": 200}
    metric = DataSensitivityConsistency(masks=2000, tolerance=0.35, **options)
    result = metric(network, "saliency", x)
    used = result.masks_used
    assert used.min() < used.max()
    assert torch.equal(result.model_evaluations, used + 1)
    for row in range(4):
        alone = metric(network, "saliency", x[row : row + 1])
        short = DataSensitivityConsistency(masks=int(used[row]), **options)(
            network, "saliency", x[row : row + 1]
        )
        for name in ("value", "low", "high", "p_value", "null_low", "prediction_sensitivity"):
            assert torch.equal(getattr(alone, name)[0], getattr(result, name)[row]), name
            assert torch.equal(getattr(short, name)[0], getattr(result, name)[row]), name
        if used[row] < 2000:
            assert (
                max(result.value[row] - result.low[row], result.high[row] - result.value[row])
                <= 0.35
            )


def test_masked_parts_take_the_baseline() -> None:
    seen = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((3, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return self.net(x)

    model = standfast.Model(Watched(), (0.0, 1.0), device="cpu", batch_size=16)
    x = rand(2, 3, 8, 8) * 0.4
    labels = torch.arange(64).reshape(8, 8) // 16
    baseline = (0.5, 0.6, 0.7)
    metric = DataSensitivityConsistency(labels, baseline=baseline, keep=0.5, **QUICK)
    metric(model, "saliency", x)
    seen.clear()  # the first call also checks that the model gives the same logits again
    metric(model, "saliency", x)
    rows = torch.cat(seen[1:])
    off = torch.tensor(baseline)[:, None, None]
    for row in rows[:60]:
        for k in range(4):
            part = row[:, labels == k]
            assert torch.equal(part, x[0][:, labels == k]) or torch.equal(
                part, off[:, 0].expand_as(part)
            )
    assert 0.4 < (rows[:60] == off).double().mean() < 0.6


def test_absolute_and_predicted() -> None:
    network, x = model((12,)), rand(4, 12)
    options = {"keep": 0.6, **QUICK}  # other classes are predicted at many of the masked inputs
    plain = DataSensitivityConsistency(**options)(network, "input_x_gradient", x)
    absolute = DataSensitivityConsistency(absolute=True, **options)(network, "input_x_gradient", x)
    predicted = DataSensitivityConsistency(explain="predicted", **options)(
        network, "input_x_gradient", x
    )
    for other in (absolute, predicted):
        assert torch.equal(plain.prediction_sensitivity, other.prediction_sensitivity)
        assert not torch.equal(plain.explanation_sensitivity, other.explanation_sensitivity)
    metric = DataSensitivityConsistency(explain="predicted", **options)
    for row, slow in enumerate(slowly(metric, network, x, "predicted")[1]):
        assert np.allclose(predicted.explanation_sensitivity[row], slow, atol=1e-4)


# label maps of each sample, in studies


def maps_of(count: int) -> Tensor:
    return torch.stack([torch.arange(64).reshape(8, 8) // (8 + i) for i in range(count)])


@pytest.mark.parametrize("per_job", [3, 8])
def test_a_study_cuts_label_maps_with_the_samples(per_job: int) -> None:
    network, x = model((1, 8, 8)), rand(8, 1, 8, 8)
    metric = DataSensitivityConsistency(maps_of(8), **QUICK)
    direct = metric(network, "saliency", x, generator=torch.Generator().manual_seed(0)).frame()
    assert direct["features"].to_list() == [8, 8, 7, 6, 6, 5, 5, 5]
    found = standfast.evaluate(
        network, ["saliency"], x, [metric], progress=False, samples_per_job=per_job, controls=False
    )
    assert found.failures == []
    assert found.samples.sort("sample").select(direct.columns).equals(direct)


def test_label_maps_for_another_number_of_samples_are_refused() -> None:
    network, x = model((1, 8, 8)), rand(8, 1, 8, 8)
    metric = DataSensitivityConsistency(maps_of(4), **QUICK)  # as many as a job has samples
    with pytest.raises(
        standfast.ArgumentError, match=r"\(8, 8, 8\), one for each sample, got \(4, 8, 8\)"
    ):
        standfast.evaluate(network, ["saliency"], x, [metric], progress=False)


def test_label_maps_are_part_of_the_identity_of_the_jobs_they_are_used_in() -> None:
    x, maps = rand(8, 1, 8, 8), maps_of(8)
    other = maps.clone()
    other[6] = maps[0]

    def jobs(labels: Tensor) -> list[str]:
        grid = Grid(
            {"data": Samples(x)},
            {"model": LoadedModel(model((1, 8, 8)))},
            {"saliency": standfast.explainers.get("saliency")},
            {"senc": DataSensitivityConsistency(labels, **QUICK)},
            samples_per_job=4,
        )
        return [job.identity for job in make_plan(grid).jobs]

    first, second = jobs(maps), jobs(other)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert jobs(maps[0]) != jobs(maps[1])


def test_an_explainer_holds_no_label_maps_of_samples() -> None:
    """It would take them for those of the masked copies."""

    @dataclasses.dataclass(frozen=True)
    class Segmented(standfast.explainers.Saliency):
        segments: Any = None

    network, x = model((1, 8, 8)), rand(8, 1, 8, 8)
    metric = DataSensitivityConsistency("grid", **QUICK)
    one, each = (Segmented(segments=LabelMap(labels)) for labels in (maps_of(1)[0], maps_of(8)))
    assert metric(network, one, x).status == ("ok",) * 8
    for call in (
        lambda: metric(network, each, x),
        lambda: standfast.evaluate(network, {"each": each}, x, [metric], progress=False),
    ):
        with pytest.raises(
            standfast.ArgumentError, match=r"segments: expected one map of shape \(8, 8\) for all"
        ):
            call()


def test_what_cannot_be_compared_is_said() -> None:
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=16)
    x = rand(3, 1, 8, 8)
    x[1] = 0  # masking changes nothing, whatever is off
    result = DataSensitivityConsistency(**QUICK)(model, "saliency", x)
    assert result.status == ("ok", "degenerate", "ok")
    assert result.grid_fallback[1]
    labels = torch.arange(64).reshape(8, 8) // 16
    skipped = DataSensitivityConsistency(labels, **QUICK)(
        model, "saliency", x, (model.predict(x) + 1) % 4
    )
    assert skipped.value.isnan().all()
    assert skipped.prediction_sensitivity.shape == (3, 4)
    assert (skipped.model_evaluations == 1).all()


def test_options_are_checked() -> None:
    assert_refused(
        DataSensitivityConsistency,
        segments=["slik"],
        masks=[5],
        keep=[1.0],
        estimator=["published"],
    )
    assert_refused(DataSensitivityConsistency, explain=["both"], tolerance=[0.0], permutations=[0])
    assert_refused(DataSensitivityConsistency, baseline=[float("nan")])


def test_baseline_lies_within_the_bounds() -> None:
    metric = DataSensitivityConsistency(baseline=-0.5, **QUICK)
    with pytest.raises(
        standfast.ArgumentError, match=r"baseline: expected values within the bounds \[0, 1\]"
    ):
        metric(model((12,)), "saliency", rand(2, 12))
    normalised = standfast.Model(small_net((12,)), (-1.0, 1.0), device="cpu", batch_size=16)
    assert metric(normalised, "saliency", rand(2, 12)).status == ("ok", "ok")
    with pytest.raises(standfast.ArgumentError, match="baseline: expected one number, or 12"):
        DataSensitivityConsistency(baseline=(0.0, 0.1), **QUICK)(
            model((12,)), "saliency", rand(2, 12)
        )


# the report


def test_lay_out() -> None:
    labels = np.array([[0, 1], [1, 2]])
    values = np.array([1.0, 2.0, 6.0, np.nan])
    assert lay_out(values, labels, (3, 2, 2)).tolist() == [[[1, 2], [2, 6]]]
    assert lay_out(values, labels, (3, 2, 2), published=True).sum() == pytest.approx(-1.0)
