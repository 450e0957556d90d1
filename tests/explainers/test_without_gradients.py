"""Logits that do not depend on the input in a way that can be differentiated: refused, and never zeros."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from small_transformers import SmallViT
from torch import Tensor, nn
from torch.autograd import Function

import standfast
from standfast import explainers as hx
from standfast.function_calls import check_has_gradients

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "no_grad": torch.clone,  # within a block
    "detach": torch.detach,
    "round": lambda z: (8 * z).round(),
    "decimals": lambda z: z.round(decimals=1),
    "floor": lambda z: (8 * z).clone().floor_(),
    "ceil": lambda z: (8 * z).ceil(),
    "trunc": lambda z: (8 * z).trunc(),
    "sign": lambda z: (z - 0.1).sign(),
    "div": lambda z: torch.div(z, 0.1, rounding_mode="floor"),
    "argmax": lambda z: F.one_hot(z.argmax(-1), z.shape[-1]).to(z.dtype),
    "compare": lambda z: (z > 0.1).to(z.dtype),
}
#: those that say so by another error: that they have no rule for the function
NO_RULE = ("lrp", "deep_taylor")
GRADIENTS = [
    name
    for name in hx.names()
    if ":" not in name
    and name not in hx.explainers.packages
    and hx.explainers[name].needs.gradients
]


class Frozen(nn.Module):
    """Features that are passed on in a way without gradients, or computed without."""

    def __init__(self, way: str, branch: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.branch = way, branch
        self.features, self.head, self.beside = (
            nn.Conv2d(3, 4, 3),
            nn.Linear(144, 3),
            nn.Linear(192, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.way != "no_grad"):
            z = WAYS[self.way](F.relu(self.features(x)).flatten(1))
        return self.head(z) + self.beside(x.flatten(1)) if self.branch else self.head(z)  # type: ignore[no-any-return]


class Detached(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, z: Tensor) -> Tensor:
        return WAYS[self.way](z)


def make(module: nn.Module) -> tuple[standfast.Model, Tensor]:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    return standfast.Model(module, (0.0, 1.0), device="cpu"), x


@pytest.mark.parametrize("way", ["no_grad", "round"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_every_explainer_by_gradients(name: str, way: str) -> None:
    model, x = make(SmallViT() if name.startswith("attention") else Frozen(way))
    if isinstance(model.module, SmallViT):
        x = x[:, :, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]
        head = model.module.head
        model.module.head = nn.Sequential(Detached("detach" if way == "no_grad" else way), head)
    words = (
        "no gradients"
        if way != "round" or not name.startswith(NO_RULE)
        else "no gradients|rule|got 'round'"
    )
    with pytest.raises(standfast.ModelError, match=words):
        hx.get(name)(model, x, 1)


@pytest.mark.parametrize("way", WAYS)
def test_every_way(way: str) -> None:
    model, x = make(Frozen(way))
    for name in ("saliency", "gradcam", "guided_gradcam", "fullgrad"):
        with pytest.raises(standfast.ModelError, match="no gradients"):
            hx.get(name)(model, x, 1)


@pytest.mark.parametrize("way", ["no_grad", "argmax", "div"])
def test_attacks(way: str) -> None:
    """Metrics that attack the model themselves, for an explainer that needs no gradients."""
    model, x = make(Frozen(way))
    for metric in ("c_eval", "near_affinity"):
        with pytest.raises(standfast.ModelError, match="no gradients"):
            standfast.metrics.get(metric)(model, "occlusion:window=4,stride=4", x)


def test_searches_by_gradients() -> None:
    """Grad-CAM itself needs no gradients by the input; a search for its worst case does."""
    torch.manual_seed(0)
    behind = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    model, x = make(nn.Sequential(Detached("round"), *behind))
    inner = standfast.Model(behind, (0.0, 8.0), device="cpu")
    cam = hx.GradCAM(relu=False)
    assert torch.equal(cam(model, x, 1), cam(inner, (8 * x).round(), 1))
    metric = standfast.metrics.get(
        "worst_case:search=gradient,budget=40", neighbourhood=standfast.LinfBall(0.1)
    )
    with pytest.raises(standfast.ModelError, match="no gradients"):
        metric(model, cam, x)


@pytest.mark.parametrize("way", ["no_grad", "detach", "argmax", "round"])
def test_a_branch_with_gradients_is_explained(way: str) -> None:
    model, x = make(Frozen(way, branch=True))
    expected = model.module.beside.weight[1].reshape(3, 8, 8).expand_as(x)
    torch.testing.assert_close(hx.Saliency(absolute=False)(model, x, 1), expected)


class Round(Function):
    """A straight-through estimator, whose node has the name of torch's own."""

    @staticmethod
    def forward(ctx: object, z: Tensor) -> Tensor:
        return z.round()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0]


def test_straight_through_estimators_have_gradients() -> None:
    z = torch.rand(3, requires_grad=True)
    for rounded in (
        Round.apply(z),
        z + (z.round() - z).detach(),
        torch.fake_quantize_per_tensor_affine(z, 0.1, 0, 0, 9),
    ):
        check_has_gradients(rounded.sum(), z)
    for step in (z.round(), z.detach() + torch.zeros(3, requires_grad=True), z.sgn()):
        with pytest.raises(standfast.ModelError, match="no gradients"):
            check_has_gradients(step.sum(), z)


def test_the_graph_is_looked_at_once_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as several rows of a small network; all chunks of a metric have the same graph."""
    walks: list[Tensor] = []

    def count(scores: Tensor, x: Tensor) -> None:
        walks.append(x)
        check_has_gradients(scores, x)

    monkeypatch.setattr("standfast.model.model.check_has_gradients", count)
    model, x = make(Frozen("no_grad", branch=True))
    model.batch_size = 16
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=40)
    for explainer in ("saliency", "integrated_gradients:steps=4"):
        walks.clear()
        metric(model, explainer, x)
        assert len(walks) == 1
    standfast.algorithms.get_attack("ddn:steps=5").minimise(model, x, None, None)
    assert len(walks) == 2
    model.module = Frozen("round")  # outside of a session it may be changed
    with pytest.raises(standfast.ModelError, match="no gradients"):
        hx.get("saliency")(model, x, 1)


class Forgetful(nn.Module):
    """A module whose logits do not depend on later batches in a way that can be differentiated."""

    def __init__(self, way: str, calls: int) -> None:
        super().__init__()
        self.way, self.calls = way, calls
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls -= 1
        # a graph, but none that leads to the input
        keeps = torch.zeros(3, requires_grad=self.way == "elsewhere")
        return self.head(x.flatten(1) if self.calls >= 0 else x.flatten(1).detach()) + keeps  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["nowhere", "elsewhere"])
def test_a_graph_that_a_later_batch_lacks_is_noticed(way: str) -> None:
    x = torch.rand(48, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    for explainer in ("saliency", "smoothgrad:samples=2"):
        model = standfast.Model(Forgetful(way, calls=2), (0.0, 1.0), device="cpu", batch_size=16)
        with pytest.raises(standfast.ModelError, match="no gradients"):
            hx.get(explainer)(model, x)
    # two passes for the answers, and steps of the attack
    model = standfast.Model(Forgetful(way, calls=4), (0.0, 1.0), device="cpu")
    with pytest.raises(standfast.ModelError, match="no gradients"):
        standfast.algorithms.get_attack("ddn:steps=9").minimise(model, x[:4], None, None)


@pytest.mark.parametrize("way", ["no_grad", "round"])
def test_auto_search_goes_on_without_gradients(way: str) -> None:
    """As black-box search does, where the event or the explainer needs no gradients of the model."""
    torch.manual_seed(0)
    model, x = standfast.Model(Frozen(way), (0.0, 1.0), device="cpu"), torch.rand(2, 3, 8, 8)
    ball = standfast.LinfBall(0.1)
    for event, explainer in (
        ("misclassification", "occlusion"),
        ("changed_explanation", "input_copy"),
    ):
        found = standfast.metrics.WorstCase(ball, event=event, budget=40)(model, explainer, x)
        assert found.value.isfinite().all()
        assert (found.model_evaluations > 30).all()  # it did not stop at the first pass
