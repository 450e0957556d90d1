"""The warnings of DeepLIFT and DeepSHAP if attributions do not add up; nothing else changes."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import holdfast
from conftest import small_net
from holdfast.explainers import DeepLift, DeepSHAP, Explainer
from holdfast.explainers import completeness as module_of
from holdfast.explainers.completeness import CompletenessWarning, completeness_gap
from holdfast.zoo.networks.bilstm import BiLSTM
from holdfast.zoo.networks.series_transformer import SeriesTransformer


class Squared(nn.Module):
    """Logits (0, half the square of the sum): the gradient times the input is twice the change from 0."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.flatten(1).sum(1)
        return torch.stack([torch.zeros_like(total), 0.5 * total.square()], dim=1)


def model(module: nn.Module, batch_size: int = 64) -> holdfast.Classifier:
    return holdfast.Classifier(module, (-math.inf, math.inf), device="cpu", batch_size=batch_size)


def series(rows: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(rows, 2, 24, generator=torch.Generator().manual_seed(seed))


def randomise(kind: str) -> nn.Module:
    """Set weights twice as large as usual, so that the functions are clearly nonlinear."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: nn.Module = (
            BiLSTM(in_channels=2, units=(6,), hidden=8, patch=2)
            if kind == "bilstm"
            else SeriesTransformer(in_channels=2, stem=(8, 8), layers=1, heads=2, feedforward=16, hidden=8)
        )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    return module


@pytest.fixture
def hide_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompletenessWarning)
        yield


@pytest.mark.parametrize("kind", ["bilstm", "transformer"])
@pytest.mark.parametrize("explainer", [DeepLift(), DeepSHAP(series(3, seed=9))], ids=["deeplift", "deep_shap"])
def test_gates_and_attention_warn_once_for_a_module(kind: str, explainer: Explainer) -> None:
    module, part = randomise(kind), "LSTM" if kind == "bilstm" else "LayerNorm"
    words = f"{explainer.label}: on {type(module).__name__} attributions do not add up .*this one has {part}"
    with pytest.warns(CompletenessWarning, match=words) as caught:
        first = explainer(model(module), series())
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(explainer(model(module), series()), first)  # it has warned already; the bits are the same
        explainer(model(module, 3), series())
    with pytest.warns(CompletenessWarning):  # another module
        explainer(model(randomise(kind)), series())


def test_another_explainer_warns_too() -> None:
    module = Squared()
    for explainer in (DeepLift(), DeepSHAP(0.0), DeepSHAP(series(2) + 1)):
        with pytest.warns(CompletenessWarning):
            explainer(model(module), series() + 1, 1)


def test_the_missing_share_in_closed_form() -> None:
    """The sum is twice the change, so the gap is 100% of it."""
    with pytest.warns(CompletenessWarning, match=r"deeplift: on Squared .* more than 5% of it, they miss about 100%\."):
        DeepLift()(model(Squared()), series() + 1, 1)


def test_the_share_is_finite_if_the_logit_does_not_change() -> None:
    """s (s - 1) is 0 at s = 1 and at s = 0; the gradient times the input is 1."""

    class Returning(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            total = x.flatten(1).sum(1)
            return torch.stack([torch.zeros_like(total) - 1, total * (total - 1)], dim=1)

    x, classifier = torch.full((2, 4), 0.25), model(Returning())
    with pytest.warns(CompletenessWarning, match=r"miss about 100000%"):
        maps = DeepLift()(classifier, x, 1)
    with pytest.warns(CompletenessWarning, match=r"miss 100000% of it"):
        assert completeness_gap(classifier, DeepLift(), maps, x, targets=1).tolist() == [1.0, 1.0]


def test_the_gap_is_that_of_the_mean_over_references() -> None:
    """The mean over b of gradient times difference is s (s - mean b); it should be (s^2 - mean b^2) / 2."""
    x, references = torch.full((2, 1, 4), 1.0), torch.stack([torch.full((1, 4), 0.5), torch.full((1, 4), -0.25)])
    s, b = 4.0, torch.tensor([2.0, -1.0])
    made, due = s * (s - float(b.mean())), 0.5 * (s**2 - float(b.square().mean()))
    share = (made - due) / due
    with pytest.warns(CompletenessWarning, match=f"they miss about {share:.0%}"):
        DeepSHAP(references)(model(Squared()), x, 1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 16), (12,)], ids=["image", "series", "flat"])
def test_networks_that_add_up_do_not_warn(shape: tuple[int, ...]) -> None:
    x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0))
    classifier = holdfast.Classifier(small_net(shape), (0.0, 1.0), device="cpu", batch_size=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeepLift(baseline=0.5)(classifier, x)
        DeepSHAP(x[:5])(classifier, x)


def test_only_the_first_inputs_are_checked() -> None:
    """Only 64 rows: a module whose attributions stop adding up later gives no warning."""

    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bent = False

        def forward(self, x: Tensor) -> Tensor:
            total = x.flatten(1).sum(1)
            return torch.stack([torch.zeros_like(total), total.square() if self.bent else total], dim=1)

    for before, expected in ((63, 1), (64, 0)):
        module = Changing()
        with model(module).session():
            DeepLift().attribute(model(module), series(before), torch.ones(before, dtype=torch.int64))
        module.bent = True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DeepLift()(model(module), series() + 1, 1)
        assert len(caught) == expected


def test_multipliers_and_graphs_are_not_checked() -> None:
    """Multipliers need not add up; attributions with a graph are not checked either."""
    classifier = model(Squared())
    with warnings.catch_warnings(), classifier.session():
        warnings.simplefilter("error")
        DeepLift(times_input=False)(classifier, series() + 1, 1)
        x = (series() + 1).requires_grad_(True)
        maps, _ = DeepLift().attribute(classifier, x, torch.ones(8, dtype=torch.int64), create_graph=True)
        assert maps.requires_grad


def test_no_additional_forward_pass() -> None:
    """Input and baseline for DeepLIFT, input and references for DeepSHAP, and no more."""

    class Counting(Squared):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x)

    for explainer in (DeepLift(), DeepSHAP(series(3))):
        module = Counting()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompletenessWarning)
            for _ in range(2):  # with the check, and after the checks have ended
                module.calls, classifier = 0, model(module)
                with classifier.session():
                    explainer.attribute(classifier, series() + 1, None)
                assert module.calls == 2


def test_a_deleted_module_leaves_nothing_behind(hide_warnings: None) -> None:
    before = len(module_of._CHECKED)
    DeepLift()(model(Squared()), series() + 1, 1)
    gc.collect()
    assert len(module_of._CHECKED) <= before


def test_the_warning_agrees_with_the_gap(hide_warnings: None) -> None:
    """`completeness_gap` gives the same sums."""
    classifier, x = model(randomise("transformer")), series()
    gap = completeness_gap(classifier, DeepLift(), DeepLift()(classifier, x, 1), x, targets=1, tolerance=math.inf)
    logits = classifier.logits(torch.cat([x, torch.zeros_like(x[:1])])).double()[:, 1]
    share = gap.abs() / (logits[:-1] - logits[-1]).abs()
    missing = share > 0.05
    other = model(randomise("transformer"))
    words = f"they miss about {float(share[missing].median()):.0%}"
    with other.session(), pytest.warns(CompletenessWarning, match=words):
        DeepLift().attribute(other, x, torch.ones(8, dtype=torch.int64))
