"""An explainer that leaves something in the process: it is told and undone, and others have the numbers as alone."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast
from standfast.study.guard import TorchFunctions


def follow_gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    leaf = inputs.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(module(leaf).gather(1, targets[:, None]).sum(), leaf)
    return gradient


class Guided(torch.autograd.Function):
    """A rectifier whose derivatives are those of guided backpropagation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0].clamp(min=0) * (x > 0)


def patch_function(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    F.relu = lambda x, inplace=False: Guided.apply(x)  # type: ignore[no-untyped-call]
    return follow_gradient(module, inputs, targets)


def patch_layer(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    before = nn.Linear.forward
    nn.Linear.forward = lambda self, x: 2 * before(self, x)  # type: ignore[method-assign]
    return follow_gradient(module, inputs, targets)


def hide_call(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    nn.ReLU.__call__ = lambda self, x: x  # type: ignore[method-assign]
    return follow_gradient(module, inputs, targets)


def hook_all_modules(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    def clip(part: nn.Module, gradients: Any, _: object) -> Any:
        if not isinstance(part, nn.ReLU):
            return None
        return tuple(None if gradient is None else gradient.clamp(min=0) for gradient in gradients)

    nn.modules.module.register_module_full_backward_hook(clip)
    return follow_gradient(module, inputs, targets)


def write_data(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    next(iter(module.parameters())).data[:3] = 0.0
    return follow_gradient(module, inputs, targets)


def write_numpy(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    next(iter(module.parameters())).detach().numpy()[:3] = 0.0
    return follow_gradient(module, inputs, targets)


@pytest.fixture
def torch_as_before() -> Iterator[None]:
    before = TorchFunctions(nn.ReLU())
    yield
    before.restore()


def make_network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(784, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 10)
    return nn.Sequential(nn.Flatten(), *layers).eval()


def evaluate(explainers: dict[str, Any]) -> tuple[dict[str, list[float]], list[str]]:
    """The values of each explainer by name, and what was warned of."""
    model = standfast.Model(make_network(), bounds=(0.0, 1.0), device="cpu")
    digits = standfast.data.bundled("digits")[:4]
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.05), samples=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = standfast.evaluate(
            model, explainers, digits, metric, sanity=False, controls=False
        )
    frame = results.samples.sort("sample")
    names = frame["explainer"].unique().to_list()
    values = {name: frame.filter(frame["explainer"] == name)["value"].to_list() for name in names}
    return values, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("culprit", "changed"),
    [
        (patch_function, "torch.nn.functional.relu"),
        (patch_layer, "torch.nn.Linear.forward"),
        (hide_call, "torch.nn.ReLU.__call__"),
        (hook_all_modules, "the hooks of all modules"),
        (write_data, "weights"),
        (write_numpy, "weights"),
    ],
)
@pytest.mark.usefixtures("torch_as_before")
def test_others_have_the_numbers_that_they_have_alone(
    culprit: Callable[..., Tensor], changed: str
) -> None:
    others = {"saliency": "saliency", "input_x_gradient": "input_x_gradient"}
    alone, _ = evaluate(others)
    together, warned = evaluate({"culprit": culprit, **others})
    for name in others:
        assert together[name] == alone[name]
    assert len(together["culprit"]) == 4
    assert any("'culprit'" in words and changed in words for words in warned)


def test_bundled_explainers_leave_nothing() -> None:
    functions = TorchFunctions(make_network())
    evaluate(
        {
            "integrated_gradients": "integrated_gradients",
            "lrp": "lrp",
            "deeplift": "deeplift",
            "lime": "lime",
        }
    )
    assert functions.restore() == []


def test_what_torch_wraps_itself_is_no_change() -> None:
    """As it does when its compiler is imported, at any time."""
    functions = TorchFunctions(make_network())
    place, entries = next((place, entries) for place, entries in functions.before if place is torch)
    entries["manual_seed"] = getattr(torch.manual_seed, "__wrapped__", torch.manual_seed)
    importlib.import_module("torch._dynamo")
    assert vars(place)["manual_seed"] is not entries["manual_seed"]
    assert functions.restore() == []


def test_what_was_replaced_before_is_no_change() -> None:
    functions = TorchFunctions(make_network())
    assert functions.restore() == []
    assert np.isfinite(evaluate({"saliency": "saliency"})[0]["saliency"]).all()


def test_an_explainer_that_changes_another_model_is_noticed_before_its_jobs() -> None:
    """Models in memory answered when jobs were planned; what a job has done to them since is not in these answers."""

    def make_net(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))

    first, second = make_net(0), make_net(1)

    def meddle(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        if module is first:
            with torch.no_grad():
                second[3].weight.mul_(-1)  # type: ignore[operator, union-attr]
        return inputs

    models = {
        name: standfast.Model(net, bounds=(0.0, 1.0)) for name, net in (("a", first), ("b", second))
    }
    options: dict[str, Any] = {"controls": False, "sanity": False, "progress": False}
    rows = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = standfast.evaluate(models, {"meddle": meddle}, rows, ["aopc"], **options)
    assert found.samples["model"].unique().to_list() == ["a"]
    assert [(failure["model"], failure["explainer"]) for failure in found.failures] == [
        ("b", "meddle")
    ]
