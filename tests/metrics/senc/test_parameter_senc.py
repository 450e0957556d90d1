"""Parameter SenC against a slow re-implementation of Algorithm 2, known orders, and a null that holds."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.gating import group_count, weight_layers
from standfast.metrics import DataSensitivityConsistency, ParameterSensitivityConsistency
from standfast.metrics.senc import masking
from standfast.metrics.senc import parameter_sensitivity_consistency as senc

SHAPE = (1, 8, 8)


def model(batch_size: int = 16, seed: int = 0) -> standfast.Model:
    return standfast.Model(
        small_net(SHAPE, seed=seed), (0.0, 1.0), device="cpu", batch_size=batch_size
    )


def inputs(count: int = 3) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def metric(**options: Any) -> ParameterSensitivityConsistency:
    return ParameterSensitivityConsistency(
        **{"masks": 40, "permutations": 99, "resamples": 50, **options}
    )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The masks that a metric draws, in order."""
    kept: list[Tensor] = []
    draw = senc.draw_masks
    monkeypatch.setattr(senc, "draw_masks", lambda *args: kept.append(draw(*args)) or kept[-1])
    return kept


def algorithm_2(
    model: standfast.Model, explainer: str, x: Tensor, layer: str, masks: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """One sample, one layer, mask after mask, in copies of the model: sensitivities of prediction and explanation, by
    each estimator."""
    explain = standfast.explainers.get(explainer)
    target = model.predict(x)
    probability = model.logits(x).double().softmax(1)[0, target]
    e = explain(model, x, target).flatten().numpy()
    weights = []
    for mask in masks:
        copied = copy.deepcopy(model.module)
        at = weight_layers(copied)[layer]
        weight = at.weight.data.clone()
        if isinstance(at, nn.Linear):
            weight[:, ~mask] = 0  # of input features
        else:
            weight[~mask] = 0  # of output channels
        at.weight.data = weight
        other = standfast.Model(copied, model.bounds, device="cpu")
        e_masked = explain(other, x, target).flatten().numpy()
        alike = scipy.stats.spearmanr(e, e_masked).statistic if np.ptp(e_masked) else 0.0
        p_masked = other.logits(x).double().softmax(1)[0, target]
        weights.append([float(1 - (probability - p_masked).abs()), float(alike)])
    w = torch.tensor(weights, dtype=torch.float64)
    m = masks.double()
    found = {"paper": (w[:, 0] @ m, w[:, 1] @ m)}
    w, m = w - w.mean(0), m - m.mean(0)
    return {**found, "centred": (w[:, 0] @ m, w[:, 1] @ m)}


def test_masks_of_all_layers_have_numbers_of_their_own() -> None:
    numbers = torch.stack([masking._number_calls(layer, torch.arange(100)) for layer in range(70)])
    assert len(numbers.unique()) == 7000
    assert int(numbers.min()) > 0


@pytest.mark.parametrize(
    "explainer",
    [
        "saliency",
        "integrated_gradients:steps=4",
        "gradcam",
        "lrp",
        # gated as saliency is, and with masked weights as LRP is
        pytest.param("guided_backprop", marks=pytest.mark.slow),
        pytest.param("deeplift", marks=pytest.mark.slow),
    ],
)
def test_equals_algorithm_2(explainer: str, drawn: list[Tensor]) -> None:
    network, x = model(), inputs(2)
    results = {
        name: metric(masks=25, estimator=name)(network, explainer, x)
        for name in ("centred", "paper")
    }
    chosen = [[masks[i if len(masks) > 1 else 0] for masks in drawn[:3]] for i in range(2)]
    assert all(torch.equal(*masks) for masks in zip(drawn[:3], drawn[3:], strict=True))
    oracle = [
        [
            algorithm_2(network, explainer, x[i : i + 1], layer, masks)
            for layer, masks in zip("046", own, strict=True)
        ]
        for i, own in enumerate(chosen)
    ]
    for (estimator, result), i in itertools.product(results.items(), range(2)):
        assert result.layers == ("0", "4", "6")
        assert result.method == ("masked weights" if explainer in ("lrp", "deeplift") else "gated")
        rhos, published = [], []
        for place, (own, slow) in enumerate(zip(chosen[i], oracle[i], strict=True)):
            found = [
                s[i, place, : own.shape[1]]
                for s in (result.prediction_sensitivity, result.explanation_sensitivity)
            ]
            for ours, theirs in zip(found, slow[estimator], strict=True):
                assert torch.allclose(ours, theirs, atol=2e-4)
            # of a group that no mask drops, or none keeps, only the published sum says something
            varies = own.any(0) & ~own.all(0) if estimator == "centred" else torch.ones_like(own[0])
            rhos.append(scipy.stats.spearmanr(*(s[varies].numpy() for s in found)).statistic)
            # equal sums are a tie whatever their order of summation
            published.append(
                scipy.stats.spearmanr(*(s.numpy().round(10) for s in slow["paper"])).statistic
            )
            assert torch.isnan(result.prediction_sensitivity[i, place, own.shape[1] :]).all()
        assert result.layer_rho[i].tolist() == pytest.approx(rhos, abs=1e-9)
        assert result.value[i].item() == pytest.approx(np.mean(rhos), abs=1e-9)
        assert result.layer_rho_paper[i].tolist() == pytest.approx(published, abs=1e-6)
        assert result.rho_paper[i].item() == pytest.approx(np.mean(published), abs=1e-6)


def test_both_ways_agree_and_so_do_repeated_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same masks; 40 masks of 6 channels hold some twice, which are looked at once."""
    network, x = model(), inputs(1)
    masks = torch.rand(1, 40, 6, generator=torch.Generator().manual_seed(2)) < 0.6
    monkeypatch.setattr(senc, "draw_masks", lambda *_: masks)
    gated = metric(layers="conv")(network, "saliency", x)
    monkeypatch.setattr(senc, "find_gateable", lambda *_: set())
    truly = metric(layers="conv")(network, "saliency", x)
    assert (gated.methods, truly.methods) == (("gated",), ("masked weights",))
    # masks that all samples share are not pooled
    assert (gated.pooled().count, truly.pooled().count) == (
        1,
        0,
    )
    assert torch.allclose(gated.prediction_sensitivity, truly.prediction_sensitivity, atol=1e-6)
    assert torch.allclose(gated.explanation_sensitivity, truly.explanation_sensitivity, atol=1e-4)
    different = len(torch.unique(masks[0], dim=0))
    assert gated.model_evaluations.tolist() == truly.model_evaluations.tolist() == [different + 1]
    monkeypatch.setattr(masking, "_REPEATING", 0)
    every = metric(layers="conv")(network, "saliency", x)
    assert every.model_evaluations.tolist() == [41]
    assert torch.equal(every.explanation_sensitivity, truly.explanation_sensitivity)


class Sum(nn.Module):
    """Two classes, the second of logit zero: the first's probability falls with every part that is taken away."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, 1, bias=False)
        self.layer.weight.data = torch.linspace(0.1, 0.5, features)[None] / features

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return torch.cat([out, 0 * out], 1)


def test_a_linear_model_and_its_opposite() -> None:
    """The largest part matters most to both, or least to an explanation that shows a missing part on top."""
    model = standfast.Model(Sum(9), (0.0, 1.0), device="cpu")
    x = torch.ones(2, 9) * torch.tensor([[1.0], [0.5]])
    options = metric(masks=4000)
    result = options(model, "input_x_gradient", x)
    assert (result.value > 0.98).all()
    assert (result.p_value < 0.02).all()
    assert (result.top3 == 1).all()
    order = result.prediction_sensitivity[0, 0].argsort()
    assert order.tolist() == list(range(9))

    def opposite(module: nn.Module, x: Tensor, _targets: Tensor) -> Tensor:
        parts = x * module.layer.weight
        return torch.where(parts == 0, 9.0, parts)

    result = options(model, standfast.explainers.from_callable(opposite), x)
    assert result.method == "masked weights"
    assert (result.value < -0.98).all()


@pytest.mark.parametrize("count", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_random_explanations_are_consistent_with_nothing(count: int) -> None:
    x = inputs(count)
    result = metric(masks=60, layers="conv")(model(64), "random", x)
    assert (result.model_evaluations == 61).all()  # fresh noise for equal masks
    assert scipy.stats.kstest(result.p_value.numpy() - 0.005, "uniform").pvalue > 0.01
    assert abs(result.value.mean().item()) < 4 * result.value.std().item() / count**0.5
    both = metric(masks=60)(model(64), "random", x)
    assert scipy.stats.kstest(both.p_value.numpy(), "uniform").pvalue > 0.01
    inside = (both.value >= both.null_low) & (both.value <= both.null_high)
    # a share of 95 % and its error
    assert abs(inside.double().mean() - 0.95) <= 4 * (0.95 * 0.05 / count) ** 0.5
    # a band of a normal distribution is 3.92 standard deviations wide, which so many values show up to this error
    width = (both.null_high - both.null_low).mean() / both.value.std()
    assert abs(width / 3.92 - 1) <= 4 / (2 * count) ** 0.5
    published = metric(masks=60, estimator="paper", layers="conv")(
        model(64), "input_x_gradient", x[:20]
    )
    assert torch.allclose(published.rho_paper, published.value)


def test_a_tolerance_stops_early_on_the_same_masks() -> None:
    x = inputs(3)
    early = metric(layers=("4",), masks=1500, tolerance=0.25, resamples=100)(
        model(64), "input_x_gradient", x
    )
    assert (early.masks_used < 1500).any()
    assert (early.model_evaluations == early.masks_used + 1).all()
    reach = (early.layer_interval - early.layer_rho[:, :, None]).abs().amax((1, 2))
    assert ((reach <= 0.25) | (early.masks_used == 1500)).all()
    row = int((early.masks_used < 1500).nonzero()[0, 0])
    same = metric(layers=("4",), masks=int(early.masks_used[row]), resamples=100)
    again = same(model(64), "input_x_gradient", x[row : row + 1])
    assert again.value.item() == early.value[row].item()
    assert again.p_value.item() == early.p_value[row].item()


@pytest.mark.parametrize("explainer", ["saliency", "lrp"])
def test_a_layer_gets_the_same_whichever_others_are_chosen(explainer: str) -> None:
    network, x = model(), inputs()
    every = metric()(network, explainer, x)
    some = metric(layers=("6", "0"))(network, explainer, x)
    assert torch.equal(some.layer_rho, every.layer_rho[:, [2, 0]])
    assert torch.equal(metric(layers="6")(network, explainer, x).layer_rho, every.layer_rho[:, 2:])
    assert torch.allclose(some.value, some.layer_rho.mean(1))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("gateable", [True, False])
def test_the_model_is_as_it_was_when_an_explainer_breaks_off(
    gateable: bool, error: type[BaseException]
) -> None:
    calls = [0]

    @dataclasses.dataclass(frozen=True)
    class Breaks(standfast.explainers.Saliency):
        def attribute(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
            calls[0] += 1
            found = super().attribute(*args, **options)
            if calls[0] == 6:
                raise error
            return found

    Breaks.gateable = gateable
    network = model(8)
    before = [
        (id(p), p.data_ptr(), p.requires_grad, p.detach().clone())
        for p in network.module.parameters()
    ]
    with pytest.raises(error):
        metric()(network, Breaks(), inputs())
    assert calls[0] == 6
    for p, (name, place, wanted, bits) in zip(network.module.parameters(), before, strict=True):
        assert (id(p), p.data_ptr(), p.requires_grad) == (name, place, wanted)
        assert torch.equal(p, bits)
    assert network.module.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.module.modules())


class Dead(nn.Module):
    """A layer whose output nobody uses, one that attention reads by its weight, and one as usual."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0 * self.dead(x)
        return self.head(torch.tanh(self.attention(x, x, x)[0]).mean(1))  # type: ignore[no-any-return]


def test_layers_of_both_kinds_and_one_that_does_not_matter() -> None:
    torch.manual_seed(0)
    model = standfast.Model(Dead(), (0.0, 1.0), device="cpu")
    result = metric()(model, "input_x_gradient", torch.rand(3, 5, 4))
    assert result.layers == ("dead", "attention.out_proj", "head")
    assert result.methods == ("gated", "masked weights", "gated")
    assert result.method == "gated and masked weights"
    assert torch.isnan(result.layer_rho[:, 0]).all()
    assert torch.allclose(result.value, result.layer_rho[:, 1:].mean(1))
    alone = metric(layers="dead")(model, "saliency", torch.rand(2, 5, 4))
    assert alone.status == ("degenerate", "degenerate")
    assert torch.isnan(alone.value).all()


def test_what_an_explanation_that_never_changes_gets() -> None:
    """By both metrics: it is degenerate, and has no interval."""
    network, x, constant = model(), inputs(), torch.arange(64.0).reshape(SHAPE)
    explainer = standfast.explainers.from_callable(lambda module, x, y: constant.expand_as(x))
    data = DataSensitivityConsistency("grid", masks=40, permutations=9, resamples=9)
    for kind in (metric(), data):
        for estimator in ("centred", "paper"):
            result = dataclasses.replace(kind, estimator=estimator)(network, explainer, x)
            assert result.status == ("degenerate",) * 3
            assert torch.isnan(torch.stack([result.low, result.high])).all()
            if estimator == "centred":
                assert (result.p_value == 1).all()
                assert torch.isnan(
                    torch.stack([result.top1, result.null_low, result.null_high])
                ).all()


class Deaf(nn.Module):
    """Always the same logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return 0 * self.layer(x) + torch.arange(3.0)


@pytest.mark.parametrize("estimator", ["centred", "paper"])
def test_what_a_prediction_that_never_changes_gets(estimator: str) -> None:
    model, x = standfast.Model(Deaf(), (0.0, 1.0), device="cpu"), torch.rand(3, 9)
    explainer = standfast.explainers.from_callable(
        lambda module, x, y: x * module.layer.weight.sum(0)
    )
    for result in (
        metric(estimator=estimator)(model, explainer, x),
        DataSensitivityConsistency(estimator=estimator, masks=40, permutations=9, resamples=9)(
            model, explainer, x
        ),
    ):
        assert result.status == ("degenerate",) * 3
        assert torch.isnan(torch.stack([result.low, result.high])).all()


class Branches(nn.Module):
    """Two layers that see the input, and a third that moves the prediction, but no gradient by the input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.beside = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x))) + self.beside(
            torch.linspace(0.2, 1, 5).expand(len(x), 5)
        )


def test_a_layer_where_the_explanation_never_changes_does_not_hide_the_others() -> None:
    torch.manual_seed(0)
    model, x = standfast.Model(Branches(), (0.0, 1.0), device="cpu"), torch.rand(4, 6)

    def explain(module: nn.Module, x: Tensor, _targets: Tensor) -> Tensor:
        return x * (module.second.weight @ module.first.weight)[0].detach()

    explainer = standfast.explainers.from_callable(explain)
    result = metric(masks=200)(model, explainer, x)
    telling = metric(masks=200, layers=("first", "second"))(model, explainer, x)
    assert result.layers == ("first", "second", "beside")
    assert result.status == telling.status == ("ok",) * 4
    assert (result.layer_rho[:, 2] == 0).all()
    assert (result.layer_p_value[:, 2] == 1).all()
    assert torch.isnan(result.layer_top1[:, 2]).all()
    # it has no top-1 and says nothing about chance; its rho and null are 0, without any width
    for name in ("top1", "top3", "p_value"):
        assert torch.equal(getattr(result, name), getattr(telling, name)), name
    for name in ("value", "low", "high", "null_low", "null_high"):
        assert torch.allclose(getattr(result, name), getattr(telling, name) * 2 / 3), name
    assert torch.isfinite(telling.null_low).all()


def test_frame_and_arrays() -> None:
    result = metric()(model(), "saliency", inputs())
    frame = result.frame()
    wanted = {
        "value",
        "low",
        "high",
        "p_value",
        "null_low",
        "null_high",
        "rho_paper",
        "top1",
        "top3",
        "method",
        "rho_0",
    }
    assert wanted <= set(frame.columns)
    assert frame["rho_4"].to_list() == result.layer_rho[:, 1].tolist()
    assert (frame["low"] <= frame["value"]).all()
    assert result.prediction_sensitivity.shape == (3, 3, group_count(model().module[4]))
    assert all(len(values) == 3 for values in result.tensors().values())


def test_arguments() -> None:
    kind = ParameterSensitivityConsistency
    assert kind(layers=["a", "b"]).layers == ("a", "b")  # type: ignore[arg-type]
    assert kind(layers=("a", "b"), masks=50).cost().evaluations == 101
    assert kind(masks=50).cost().evaluations == 251
    assert_refused(
        kind,
        layers=[(), ("a", "a"), 3],
        masks=[3],
        keep=[1.0],
        estimator=["mean"],
        explain=["other"],
    )
    assert_refused(kind, tolerance=[0.0], permutations=[0])
    with pytest.raises(
        standfast.ArgumentError, match=r"0, 4, 6, all, conv, first, got 'cnv' \(did you mean"
    ):
        metric(layers="cnv")(model(), "saliency", inputs())
    flat = standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu")
    with pytest.raises(
        standfast.ArgumentError,
        match="layers: expected 'conv' only for a module with a convolution",
    ):
        metric(layers="conv")(flat, "saliency", torch.rand(2, 12))


def test_explaining_the_class_predicted_under_the_mask(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    model, x = lenet, digits.inputs[:2]
    predicted = metric(keep=0.2, explain="predicted", layers="conv")(model, "input_x_gradient", x)
    seed = metric(keep=0.2, layers="conv")(model, "input_x_gradient", x)
    assert torch.equal(
        predicted.prediction_sensitivity.nan_to_num(), seed.prediction_sensitivity.nan_to_num()
    )
    assert not torch.equal(
        predicted.explanation_sensitivity.nan_to_num(), seed.explanation_sensitivity.nan_to_num()
    )
    absolute = metric(absolute=True, layers="conv")(model, "input_x_gradient", x)
    assert torch.isfinite(absolute.value).all()
