"""What takes the place of values of a table: its reference, with closed forms on linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn

import standfast
from standfast import Model
from standfast.errors import ArgumentError
from standfast.explainers import (
    LIME,
    RISE,
    DeepLift,
    DeepSHAP,
    GradientSHAP,
    IntegratedGradients,
    KernelSHAP,
    Occlusion,
    ShapleySampling,
)
from standfast.metrics import AOPC, CorruptionCurve, LogOdds
from standfast.reference import MOST_ROWS, make_reference

LOWER, UPPER = torch.tensor([18.0, 0.0, -5.0]), torch.tensor([90.0, 1e5, 5.0])
WEIGHTS = torch.tensor([[0.02, -1e-5, 0.3], [0.0, 0.0, 0.0]])


def draw_rows(count: int, seed: int = 0) -> Tensor:
    """Rows of ages, incomes, and a number around 0."""
    return LOWER + (UPPER - LOWER) * torch.rand(
        count, 3, generator=torch.Generator().manual_seed(seed)
    )


def linear(reference: Tensor | None = None, bounds: tuple[Any, Any] = (LOWER, UPPER)) -> Model:
    module = nn.Linear(3, 2, bias=False)
    module.weight.data.copy_(WEIGHTS)
    return Model(module, bounds, device="cpu", reference=reference)


def change(x: Tensor, other: Tensor) -> Tensor:
    return WEIGHTS[0] * (x - other)


SINGLE = [
    Occlusion(output="logit"),
    IntegratedGradients(steps=4),
    DeepLift(),
    LIME(output="logit", ridge=0.0, samples=60),
]
AVERAGED = [
    KernelSHAP(),
    ShapleySampling(permutations=2),
    GradientSHAP(samples=MOST_ROWS),
    DeepSHAP(),
]


@pytest.mark.parametrize("explainer", SINGLE, ids=lambda e: e.label)
def test_a_single_baseline_of_a_table_is_the_median(
    explainer: standfast.explainers.Explainer,
) -> None:
    rows, x = draw_rows(41), draw_rows(5, seed=1)
    found = explainer(linear(rows), x, 0)
    torch.testing.assert_close(found, change(x, rows.median(0).values), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("explainer", AVERAGED, ids=lambda e: e.label)
def test_shapley_values_of_a_table_average_over_rows(
    explainer: standfast.explainers.Explainer,
) -> None:
    rows, x = draw_rows(100), draw_rows(5, seed=1)
    model = linear(rows)
    chosen = model.reference.rows
    assert len(chosen) == MOST_ROWS
    assert all((rows == row).all(1).any() for row in chosen)
    torch.testing.assert_close(
        explainer(model, x, 0), change(x, chosen.mean(0)), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kind", [KernelSHAP, ShapleySampling])
def test_a_background_is_averaged_over(kind: Any) -> None:
    background, x = draw_rows(7, seed=2), draw_rows(20, seed=1)
    model = linear(draw_rows(50))
    found = kind(background=background)(model, x, 0)
    torch.testing.assert_close(found, change(x, background.mean(0)), rtol=1e-3, atol=1e-4)
    # by probability, f is not linear: the values of a row add up to the change of the mean
    found = kind(background=background, output="probability")(model, x, 0)
    scores = [model.logits(each).softmax(1)[:, 0] for each in (x, background)]
    torch.testing.assert_close(found.sum(1), scores[0] - scores[1].mean(), rtol=1e-3, atol=1e-5)
    assert torch.equal(
        found[3:5], kind(background=background, output="probability")(model, x[3:5], 0)
    )
    one = kind(background=background[:1])(model, x, 0)
    assert torch.equal(one, kind(baseline=background[0].tolist())(model, x, 0))


def test_a_background_of_images_is_averaged_over() -> None:
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (0.0, 1.0), device="cpu")
    background, x = torch.rand(3, 1, 4, 4), torch.rand(2, 1, 4, 4)
    weight = model.module[1].weight[0].detach().reshape(1, 4, 4)  # type: ignore[index, union-attr, operator]
    found = KernelSHAP(segments="pixels", background=background, samples=400)(model, x, 0)
    torch.testing.assert_close(found, weight * (x - background.mean(0)), rtol=1e-3, atol=1e-4)


def test_a_background_and_a_baseline_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match="baseline"):
        KernelSHAP(baseline=0.0, background=draw_rows(3))
    with pytest.raises(ArgumentError, match="background"):
        ShapleySampling(background=0.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="background"):
        KernelSHAP(background=draw_rows(3)[:, :2])(linear(), draw_rows(2), 0)


@pytest.mark.parametrize("explainer", [*SINGLE, *AVERAGED, RISE(samples=20)], ids=lambda e: e.label)
def test_without_a_reference_it_is_the_value_nearest_to_0_within_the_bounds(
    explainer: standfast.explainers.Explainer,
) -> None:
    x, nearest = draw_rows(3), [18.0, 0.0, 0.0]
    option = "background" if isinstance(explainer, GradientSHAP | DeepSHAP) else "baseline"
    explicit = type(explainer)(**{**vars(explainer), option: nearest})
    torch.testing.assert_close(explainer(linear(), x, 0), explicit(linear(), x, 0))
    unbounded = linear(bounds=(-torch.inf, torch.inf))
    zero = type(explainer)(**{**vars(explainer), option: 0.0})
    assert torch.equal(explainer(unbounded, x, 0), zero(unbounded, x, 0))


@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 8)])
def test_images_and_series_keep_0(shape: tuple[int, ...]) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    model, x = Model(module, (0.0, 1.0), device="cpu"), torch.rand(9, *shape)
    for kind in (Occlusion, KernelSHAP, LIME, IntegratedGradients):
        assert torch.equal(kind()(model.with_reference(x), x, 0), kind(baseline=0.0)(model, x, 0))
    for metric in (LogOdds(), AOPC(replacement="constant", steps=3)):
        explicit = type(metric)(**{**vars(metric), "baseline": 0.0})
        values = [each(model.with_reference(x), "saliency", x).value for each in (metric, explicit)]
        assert torch.equal(*values)


def test_a_given_baseline_is_kept() -> None:
    x = draw_rows(3)
    found = Occlusion(output="logit", baseline=0.0)(linear(draw_rows(41)), x, 0)
    torch.testing.assert_close(found, change(x, torch.zeros(3)))


def test_the_reference_does_not_depend_on_the_order_of_rows() -> None:
    rows = draw_rows(90)
    one, other = make_reference(rows), make_reference(rows.flip(0))
    for name in ("rows", "baseline", "mean", "sd"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert one.count == 90


def test_a_reference_has_to_fit() -> None:
    for wrong in (torch.zeros(3, 3), torch.rand(4, 3, 2), draw_rows(2).numpy()):
        with pytest.raises(ArgumentError, match="reference"):
            linear(wrong)
    first = Model.from_callable(lambda rows: rows[:, 0], (0.0, 1.0), reference=torch.rand(3, 2))
    with pytest.raises(ArgumentError, match="reference"):
        Occlusion()(first, torch.rand(2, 3), 0)


def test_metrics_replace_columns_by_values_of_rows() -> None:
    """A model that notices values which no row has gives NaN, and the sample would have no value."""
    codes = torch.tensor([[20.0, 1e4, 1.0], [30.0, 2e4, 2.0], [40.0, 5e4, 3.0]]).repeat(4, 1)

    class Strict(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            known = torch.stack([(x[:, k, None] == codes[:, k]).any(1) for k in range(3)], 1).all(1)
            score = (x * WEIGHTS[0]).sum(1)
            return torch.stack([score, -score], 1).where(known[:, None], torch.nan)

    model = Model(Strict(), (-torch.inf, torch.inf), device="cpu", reference=codes)
    for metric in (AOPC(), AOPC(replacement="constant"), LogOdds(fraction=0.5)):
        value = metric(model, "input_x_gradient", codes[:3]).value
        assert torch.isfinite(value).all(), metric


def test_noise_of_a_table_has_the_scale_of_its_columns() -> None:
    rows, seen = draw_rows(200), []

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return x @ WEIGHTS.T + torch.tensor([0.0, 1.0])

    model = Model(Watched(), (-torch.inf, torch.inf), device="cpu", reference=rows)
    CorruptionCurve(samples=200, fractions=(1.0,))(model, "input_copy", draw_rows(1, seed=1).abs())
    noise = torch.cat(seen)
    noise = noise[(noise != noise[:1]).all(1)][:, :2]
    assert len(noise) > 100
    torch.testing.assert_close(noise.mean(0), rows[:, :2].mean(0), rtol=0.25, atol=0.0)
    torch.testing.assert_close(noise.std(0), rows[:, :2].std(0), rtol=0.25, atol=0.0)


@pytest.fixture(scope="module")
def boosted() -> tuple[HistGradientBoostingClassifier, Tensor]:
    """Trees on raw columns: age and income decide, the third column does not."""
    rows = draw_rows(400)
    labels = (rows[:, 0] > 50) ^ (rows[:, 1] > 6e4)
    model = HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(
        rows.numpy(), labels.numpy()
    )
    return model, rows


def explain(found: standfast.results.Results, explainer: str) -> np.ndarray[Any, Any]:
    """The values of one explainer by log-odds."""
    frame = found.frame()
    return frame.filter(frame["explainer"] == explainer)["value"].to_numpy()


def test_evaluate_takes_the_rows_that_it_gets(
    boosted: tuple[HistGradientBoostingClassifier, Tensor],
) -> None:
    """Results are those of a model with these rows as its reference, not those of 0, and the model stays as it is."""
    fitted, rows = boosted
    bounds = (LOWER, UPPER)
    x = rows[:24]
    model = Model.from_callable(fitted.predict_proba, bounds)

    def run(model: Model, x: Tensor = x) -> standfast.results.Results:
        options: dict[str, Any] = {"controls": False, "progress": False}
        explainers = {"occlusion": "occlusion", "kernel_shap": "kernel_shap:samples=6"}
        return standfast.evaluate(model, explainers, x, LogOdds(fraction=0.4), **options)

    own = run(model)
    given = run(Model.from_callable(fitted.predict_proba, bounds, reference=x))
    other = run(Model.from_callable(fitted.predict_proba, bounds, reference=rows[:50] * 0 + LOWER))
    assert model.reference is None
    for name in ("occlusion", "kernel_shap"):
        assert np.array_equal(explain(own, name), explain(given, name), equal_nan=True)
        assert not np.array_equal(explain(own, name), explain(other, name), equal_nan=True)
    assert own.jobs["choices"].str.contains("median of 24 rows").any()
    assert set(own.jobs["job"]) == set(given.jobs["job"])
    assert not set(own.jobs["job"]) & set(other.jobs["job"])
    # so few rows are no reference
    few = run(model, x=x[:2])
    assert few.jobs["choices"].is_null().all()


def test_results_do_not_depend_on_the_jobs(
    boosted: tuple[HistGradientBoostingClassifier, Tensor],
) -> None:
    fitted, rows = boosted
    model = Model.from_callable(fitted.predict_proba, (LOWER, UPPER))
    values = [
        standfast.evaluate(
            model,
            ["occlusion"],
            rows[:12],
            LogOdds(),
            controls=False,
            progress=False,
            samples_per_job=size,
        ).frame()["value"]
        for size in (3, 12)
    ]
    assert values[0].equals(values[1], null_equal=True)
