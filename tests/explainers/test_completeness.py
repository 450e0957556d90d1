"""The warnings of DeepLIFT and DeepSHAP if attributions do not add up; nothing else changes."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.errors import ModelError
from standfast.explainers import (
    DeepLift,
    DeepSHAP,
    Explainer,
    GradientSHAP,
    IntegratedGradients,
    Saliency,
)
from standfast.explainers import completeness as module_of
from standfast.explainers.completeness import CompletenessWarning
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.series_transformer import SeriesTransformer


class Squared(nn.Module):
    """Logits (0, half the square of the sum): the gradient times the input is twice the change from 0."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.flatten(1).sum(1)
        return torch.stack([torch.zeros_like(total), 0.5 * total.square()], dim=1)


def model(module: nn.Module, batch_size: int = 64) -> standfast.Model:
    return standfast.Model(module, (-math.inf, math.inf), device="cpu", batch_size=batch_size)


def series(rows: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(rows, 2, 24, generator=torch.Generator().manual_seed(seed))


def randomise(kind: str) -> nn.Module:
    """Set weights twice as large as usual, so that the functions are clearly nonlinear."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: nn.Module = (
            BiLSTM(in_channels=2, units=(6,), hidden=8, patch=2)
            if kind == "bilstm"
            else SeriesTransformer(in_channels=2, stem=(8, 8), layers=1, feedforward=16)
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
@pytest.mark.parametrize(
    "explainer", [DeepLift(), DeepSHAP(series(3, seed=9))], ids=["deeplift", "deep_shap"]
)
def test_gates_and_attention_warn_once_for_a_module(kind: str, explainer: Explainer) -> None:
    module, part = randomise(kind), "LSTM" if kind == "bilstm" else "LayerNorm"
    words = f"{explainer.label}: on {type(module).__name__} attributions do not add up .*this one has {part}"
    with pytest.warns(CompletenessWarning, match=words) as caught:
        first = explainer(model(module), series())
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # it has warned already; the bits are the same
        assert torch.equal(explainer(model(module), series()), first)
        explainer(model(module, 3), series())
    with pytest.warns(CompletenessWarning):  # another module
        explainer(model(randomise(kind)), series())


def test_the_missing_share_in_closed_form() -> None:
    """The sum is twice the change, so the gap is 100% of it."""
    with pytest.warns(
        CompletenessWarning,
        match=r"deeplift: on Squared .* more than 5% of it, they miss about 100%\.",
    ):
        DeepLift()(model(Squared()), series() + 1, 1)


def test_the_share_is_finite_if_the_logit_does_not_change() -> None:
    """s (s - 1) is 0 at s = 1 and at s = 0; the gradient times the input is 1."""

    class Returning(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            total = x.flatten(1).sum(1)
            return torch.stack([torch.zeros_like(total) - 1, total * (total - 1)], dim=1)

    x, classifier = torch.full((2, 4), 0.25), model(Returning())
    with pytest.warns(CompletenessWarning, match=r"miss about 100000%"):
        assert DeepLift()(classifier, x, 1).sum(1).tolist() == [1.0, 1.0]


def test_the_gap_is_that_of_the_mean_over_references() -> None:
    """The mean over b of gradient times difference is s (s - mean b); it should be (s^2 - mean b^2) / 2."""
    x, references = (
        torch.full((2, 1, 4), 1.0),
        torch.stack([torch.full((1, 4), 0.5), torch.full((1, 4), -0.25)]),
    )
    s, b = 4.0, torch.tensor([2.0, -1.0])
    made, due = s * (s - float(b.mean())), 0.5 * (s**2 - float(b.square().mean()))
    share = (made - due) / due
    with pytest.warns(CompletenessWarning, match=f"they miss about {share:.0%}"):
        DeepSHAP(references)(model(Squared()), x, 1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 16), (12,)], ids=["image", "series", "flat"])
def test_networks_that_add_up_do_not_warn(shape: tuple[int, ...]) -> None:
    x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0))
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=512)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeepLift(baseline=0.5)(model, x)
        DeepSHAP(x[:5])(model, x)
        for baseline, targets in ((0.0, None), (0.25, 0), (0.5, 1)):
            IntegratedGradients(steps=100, baseline=baseline)(model, x, targets)
        # its gap is sampling noise, and nothing is claimed
        GradientSHAP(x[:5], samples=4)(model, x, 1)


def test_multipliers_and_graphs_are_not_checked() -> None:
    """Multipliers need not add up; attributions with a graph are not checked either."""
    classifier = model(Squared())
    with warnings.catch_warnings(), classifier.session():
        warnings.simplefilter("error")
        DeepLift(times_input=False)(classifier, series() + 1, 1)
        x = (series() + 1).requires_grad_(True)
        maps, _ = DeepLift().attribute(
            classifier, x, torch.ones(8, dtype=torch.int64), create_graph=True
        )
        assert maps.requires_grad


def test_a_deleted_module_leaves_nothing_behind(hide_warnings: None) -> None:
    before = len(module_of._CHECKED)
    DeepLift()(model(Squared()), series() + 1, 1)
    gc.collect()
    assert len(module_of._CHECKED) <= before


def test_the_warning_tells_the_median_share_of_rows_that_miss() -> None:
    classifier, x = model(randomise("transformer")), series()
    with pytest.warns(CompletenessWarning) as caught:
        sums = DeepLift()(classifier, x, 1).flatten(1).double().sum(1)
    logits = classifier.logits(torch.cat([x, torch.zeros_like(x[:1])])).double()[:, 1]
    change = logits[:-1] - logits[-1]
    share = (sums - change).abs() / change.abs()
    assert f"they miss about {float(share[share > 0.05].median()):.0%}" in str(caught[0].message)


# Integrated gradients, whose baseline is predicted for the check


class Fourth(nn.Module):
    """Logits (0, the fourth power of the sum)."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.flatten(1).sum(1)
        return torch.stack([torch.zeros_like(total), total**4], dim=1)


class Jump(nn.Module):
    """Logits (0, x_0 + x_1 + 3 [x_1 > 0.5]): the gradient does not see the step."""

    def forward(self, x: Tensor) -> Tensor:
        logit = x.sum(1) + 3 * (x[:, 1] > 0.5).to(x.dtype)
        return torch.stack([torch.zeros_like(logit), logit], dim=1)


def test_the_share_that_an_integral_misses_in_closed_form() -> None:
    """Of s^4, one step (the midpoint) misses one half: 4 (s / 2)^3 s = s^4 / 2; of s^2 / 2 it misses nothing."""
    few = IntegratedGradients(steps=1)
    with pytest.warns(
        CompletenessWarning, match=r"gradients: on Fourth .* they miss about 50%\. More steps"
    ):
        few(model(Fourth()), series() + 1, 1)
    x = torch.tensor([[1.0, 1.0], [0.2, 0.9]])
    with pytest.warns(CompletenessWarning, match=r"on Jump .* they miss about (60|73)%"):
        IntegratedGradients(steps=200)(model(Jump()), x, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IntegratedGradients(steps=1)(model(Squared()), series() + 1, 1)


def test_few_rows_that_miss_are_no_warning_of_an_integral() -> None:
    """A row in four crosses the step; four in seven are more than half."""
    x = torch.tensor([[1.0, 0.0]] * 12 + [[1.0, 1.0]] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IntegratedGradients()(model(Jump()), x, 1)
    with pytest.warns(CompletenessWarning):
        IntegratedGradients()(model(Jump()), x.flip(0)[:7], 1)


def test_the_baseline_is_predicted_only_while_rows_are_checked() -> None:
    class Counting(Squared):
        rows = 0

        def forward(self, x: Tensor) -> Tensor:
            self.rows += len(x)
            return super().forward(x)

    module = Counting()
    explainer, rows = IntegratedGradients(steps=3), []
    for _ in range(6):
        module.rows = 0
        explainer(model(module, 1024), series(16) + 1, 1)
        rows.append(module.rows)
    plain = rows[-1]
    # 64 rows are checked, with a padded batch of the baseline each time
    assert rows == [plain + 16] * 4 + [plain] * 2


def test_a_baseline_that_fails_does_not_stop_an_integral() -> None:
    """The points of Gauss and Legendre never reach the baseline itself."""

    class Positive(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if bool((x == 0).all(1).any()):
                raise ValueError("no zeros")
            return torch.stack([x.sum(1), -x.sum(1)], dim=1)

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.allclose(IntegratedGradients()(model(Positive()), x, 0), x)


class Cubes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x**3


def test_a_control_with_shuffled_weights_is_not_checked_and_takes_no_checks_away() -> None:
    few = IntegratedGradients(steps=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), Cubes(), nn.Linear(8, 2))
    x = 3 * torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        standfast.explainers.get("randomised", explainer=few)(model(net), x, 1)
    with pytest.warns(CompletenessWarning, match="integrated_gradients: on Sequential"):
        few(model(net), x, 1)


# Columns of tables without a gradient


class Codes(nn.Module):
    """Logits from the code of a category in column 1, as an embedding, and from the other columns."""

    def __init__(self, how: str = "embedding") -> None:
        super().__init__()
        self.how, self.table = how, nn.Embedding(5, 1)
        self.table.weight.data.copy_(torch.tensor([[0.0], [2.0], [-1.0], [4.0], [0.5]]))

    def forward(self, x: Tensor) -> Tensor:
        code = x[:, 1]
        values = {
            "embedding": lambda: self.table(code.long())[:, 0],
            "one hot": lambda: (
                nn.functional.one_hot(code.long(), 5).to(x.dtype) @ self.table.weight[:, 0]
            ),
            "rounded": lambda: code.round(),
            "threshold": lambda: (code > 2).to(x.dtype),
        }[self.how]()
        logit = x[:, 0].square() + values + 0 * x[:, 2]
        return torch.stack([-logit, logit], dim=1)


CODES = torch.tensor([[0.5, 1.0, 0.0], [1.0, 2.0, 0.5], [-1.0, 3.0, 1.0], [2.0, 4.0, 0.2]])
BY_GRADIENTS = [
    "saliency",
    "input_x_gradient",
    "integrated_gradients",
    "gradient_shap:samples=4",
    "captum:Saliency",
]


@pytest.mark.parametrize("how", ["embedding", "one hot", "rounded", "threshold"])
@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_a_column_without_a_gradient_is_named_once(name: str, how: str) -> None:
    explainer, module = standfast.explainers.get(name), Codes(how)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = explainer(model(module), CODES[:1], 1)  # a single row shows no other value
        maps = explainer(model(module), CODES, 1)
    told = [str(each.message) for each in caught if "column" in str(each.message)]
    assert [text.partition(", but")[0] for text in told] == [
        f"{explainer.label}: the gradient by column 1 is exactly 0"
    ]
    assert torch.equal(maps[:, 1], torch.zeros(4))
    assert torch.equal(maps[:1], first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer(model(module), CODES, 1)  # it has said so


def test_other_columns_and_explainers_are_not_named() -> None:
    class Ramp(nn.Module):
        """Flat at both values that the rows have, steep between them."""

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 0], 10 * x[:, 1].clamp(-0.1, 0.1)], dim=1)

    both = torch.tensor([[1.0, 1.0], [2.0, -1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # its map sees the ramp
        standfast.explainers.get("integrated_gradients", steps=500)(model(Ramp()), both, 1)
        standfast.explainers.get("occlusion")(model(Codes()), CODES, 1)
        # maps are 0, other rows are equal
        standfast.explainers.get("input_x_gradient")(model(Squared()), 0 * CODES, 1)
        dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        nn.init.constant_(dead[0].bias, -100.0)
        standfast.explainers.get("saliency")(model(dead), CODES, 1)  # nothing changes the logit
    with pytest.warns(UserWarning, match="saliency: the gradient by column 1 is exactly 0"):
        standfast.explainers.get("saliency")(model(Ramp()), both, 1)


# Modules that refuse the points of an explainer


class Strict(nn.Module):
    """Accepts the codes 1 to 3 alone; `kind` is the error of all other values."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        if not bool(torch.isin(x[:, 0].detach(), torch.tensor([1.0, 2.0, 3.0])).all()):
            raise self.kind("no such code")
        return self.layer(x)


VISITORS = [
    "smoothgrad",
    "integrated_gradients",
    "gradient_shap",
    "occlusion",
    "kernel_shap:segments=pixels",
    "lime",
]


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
@pytest.mark.parametrize("name", [*VISITORS, "shapley_sampling", "captum:ShapleyValueSampling"])
def test_a_module_that_refuses_other_points_names_the_cause(
    name: str, kind: type[Exception]
) -> None:
    x = torch.tensor([[1.0, 0.3, 0.2], [2.0, 0.4, 0.1], [3.0, 0.1, 0.6]])
    model = standfast.Model(Strict(kind), (0.0, torch.tensor([3.0, 1.0, 1.0])), device="cpu")
    explainer = standfast.explainers.get(name)
    words = (
        f"^{explainer.label}: Strict runs on the inputs, but not on .*bounds.*codes.*no such code"
    )
    with pytest.raises(ModelError, match=words) as caught:
        explainer(model, x)
    assert isinstance(caught.value.__cause__, kind) or kind is RuntimeError
    assert torch.isfinite(standfast.explainers.get("saliency")(model, x)).all()


def test_other_errors_stay_what_they_are() -> None:
    model = standfast.Model(Strict(KeyError), (0.0, 5.0), device="cpu")
    with pytest.raises(KeyError):  # the inputs themselves have no such code
        standfast.explainers.get("smoothgrad")(model, torch.full((2, 3), 5.0))

    def fails(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("of the user's function")

    with pytest.raises(ValueError, match="^of the user's function"):
        standfast.explainers.get(fails)(model, torch.ones(2, 3))


def test_rows_that_a_module_refuses_do_not_stop_the_look_at_columns() -> None:
    """A column of a one-hot pair cannot change alone."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            if not bool((x[:, :2].sum(1) == 1).all()):
                raise ValueError("one-hot expected")
            return self.head(torch.cat([x[:, :2].round(), x[:, 2:]], 1))

    x = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.7], [1.0, 0.0, 0.9]])
    maps = Saliency()(standfast.Model(Pair(), (0.0, 1.0), device="cpu"), x)
    assert (maps[:, :2] == 0).all()
    assert (maps[:, 2] > 0).all()
