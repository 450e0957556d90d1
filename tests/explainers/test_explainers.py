"""Explainers equal Captum's and closed forms, and have the properties that all explainers promise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import captum.attr as ca
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused
from torch import Tensor, nn

from standfast import explainers as hx
from standfast.errors import ArgumentError, ModelError, UnknownNameError
from standfast.explainers.adapters.captum import CaptumExplainer
from standfast.explainers.base import compute_path_gradients
from standfast.model import Model

CONSTANT = ["saliency", "smoothgrad", "integrated_gradients", "guided_backprop", "deeplift", "lrp"]
CONSTANT += [
    "smoothgrad_variance",
    "gradient_shap",
    "deep_shap",
    "deep_taylor",
    "fullgrad",
    "attn_lrp",
]
GRADIENT_FAMILY = [
    "saliency",
    "input_x_gradient",
    "guided_backprop",
    "deconvolution",
    "lrp",
    "gradcam",
]
GRADIENT_FAMILY += ["guided_gradcam", "deep_taylor", "fullgrad", "attn_lrp"]
NO_BACKWARD = [
    "random",
    "gradcam",
    "callable",
    "lime",
    "kernel_shap",
    "context_cite",
]  # explainers without a backward pass through the whole module
NO_BACKWARD += ["shapley_sampling", "occlusion", "rise", "input_copy", "edges"]
NO_TARGET = ("random", "input_copy", "edges")  # controls that ignore the class
ALL = {
    "saliency": hx.Saliency(),
    "saliency_signed": hx.Saliency(absolute=False),
    "input_x_gradient": hx.InputXGradient(),
    "integrated_gradients": hx.IntegratedGradients(steps=11),
    "ig_of_gray": hx.IntegratedGradients(steps=4, baseline=0.3),
    "smoothgrad": hx.SmoothGrad(samples=5),
    "smoothgrad_times": hx.SmoothGrad(samples=3, absolute=True, times_input=True),
    "smoothgrad_squared": hx.SmoothGrad(samples=4, statistic="mean_square"),
    "smoothgrad_variance": hx.SmoothGrad(samples=4, times_input=True, statistic="variance"),
    "gradient_shap": hx.GradientSHAP(background=0.2, samples=6),
    "guided_backprop": hx.GuidedBackprop(),
    "deconvolution": hx.Deconvolution(),
    "deeplift": hx.DeepLift(),
    "deep_shap": hx.DeepSHAP(),
    "lrp": hx.LRP(),
    "attn_lrp": hx.AttnLRP(gamma=0.1, convolution_gamma=0.25),
    "deep_taylor": hx.DeepTaylor(),
    "gradcam": hx.GradCAM(),
    "guided_gradcam": hx.GuidedGradCAM(),
    "fullgrad": hx.FullGrad(),
    "fullgrad_layer": hx.FullGrad(rescale="layer"),
    "lime": hx.LIME(samples=40, ridge=0.01),
    "context_cite": hx.ContextCite(samples=30),
    "kernel_shap": hx.KernelSHAP(samples=30),
    "shapley_sampling": hx.ShapleySampling(permutations=5),
    "occlusion": hx.Occlusion(window=4, stride=3),
    "rise": hx.RISE(samples=40),
    "extremal_perturbations": hx.ExtremalPerturbations(steps=10),
    "random": hx.RandomExplainer(),
    "input_copy": hx.InputCopy(),
    "edges": hx.Edges(),
    "randomised": hx.RandomisedExplainer(hx.InputXGradient()),
    "callable": hx.from_callable(
        lambda m, x, t: m(x).sum() * 0 + x * t.reshape(-1, *[1] * (x.ndim - 1))
    ),
    "captum": hx.from_captum(ca.Saliency, abs=False),
    "captum_samples": hx.from_captum(
        ca.GradientShap, n_samples=3, baselines=torch.zeros(2, 1, 12, 12)
    ),
}


def cnn() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, 5)),
    )


def series_net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        *(
            nn.Conv1d(3, 6, 5),
            nn.ReLU(),
            nn.Conv1d(6, 4, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 14, 4),
        )
    )


def mlp() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))


class Functional(nn.Module):
    """The CNN's layers, with functional rectifiers, pooling and flattening; some in place, and a step on the input."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        x.sub_(0.0)
        a = F.max_pool2d(F.relu(self.layers[0](x)), 2)
        a = torch.relu_(self.layers[3](a)).flatten(1)
        a = self.layers[6](a)
        a.relu_()
        return self.layers[8](a)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.norm.running_mean.uniform_()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        a = self.relu(self.first(x))
        b = self.norm(self.second(a))
        b += a
        return self.last(self.relu(b).mean((2, 3)))


SHAPES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "images": (cnn, (1, 12, 12)),
    "series": (series_net, (3, 20)),
    "flat": (mlp, (7,)),
}


def batch(shape: tuple[int, ...], count: int = 10, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def make(kind: str = "images", **options: Any) -> Model:
    return Model(SHAPES[kind][0](), bounds=(0.0, 1.0), device="cpu", **options)


def captum_maps(method: Any, x: Tensor, /, **options: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method.attribute(x.clone().requires_grad_(True), **options).detach()


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=tolerance * float(b.abs().max()))


# ---------------------------------------------------------------- against Captum


class Copy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def apart(module: nn.Module) -> nn.Module:
    """Captum's DeepLift is wrong if one activation feeds another: its hooks on that tensor interfere."""
    return nn.Sequential(*(m for layer in module for m in (layer, Copy()))).eval()


@pytest.mark.parametrize("kind", SHAPES)
def test_equal_captum(kind: str) -> None:
    model, x = make(kind), batch(SHAPES[kind][1])
    module = model.module.eval()
    t = torch.arange(10) % 3
    pairs: list[tuple[hx.Explainer, Tensor]] = [
        (hx.Saliency(), captum_maps(ca.Saliency(module), x, target=t)),
        (hx.Saliency(absolute=False), captum_maps(ca.Saliency(module), x, target=t, abs=False)),
        (hx.InputXGradient(), captum_maps(ca.InputXGradient(module), x, target=t)),
        (hx.GuidedBackprop(), captum_maps(ca.GuidedBackprop(module), x, target=t)),
        (hx.Deconvolution(), captum_maps(ca.Deconvolution(module), x, target=t)),
    ]
    for baseline in (0.0, 0.4):
        deeplift = ca.DeepLift(apart(module))
        # one by one, since Captum's max-pooling rule mixes the samples of a batch
        maps = [
            captum_maps(deeplift, x[i : i + 1], baselines=baseline, target=int(t[i]))
            for i in range(10)
        ]
        pairs.append((hx.DeepLift(baseline=baseline), torch.cat(maps)))
    raw = captum_maps(ca.DeepLift(apart(module), multiply_by_inputs=False), x[:1], target=0)
    close(hx.DeepLift(times_input=False)(model, x[:1], 0), raw)
    theirs = captum_maps(ca.IntegratedGradients(module), x, baselines=0.2, target=t, n_steps=9)
    pairs.append((hx.IntegratedGradients(steps=9, baseline=0.2), theirs))
    for ours, theirs in pairs:
        assert float(theirs.abs().max()) > 0
        close(ours(model, x, t), theirs)


class NoFlatten(nn.Module):
    """A network without `nn.Flatten`, which Captum's LRP does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = cnn()

    def forward(self, x: Tensor) -> Tensor:
        for i in range(5):
            x = self.layers[i](x)
        for i in range(6, 9):
            x = self.layers[i](x.flatten(1))
        return x


@pytest.mark.parametrize("epsilon", [1e-9, 0.05])
@pytest.mark.parametrize("kind", ["images", "flat"])
def test_lrp_equals_captum(kind: str, epsilon: float) -> None:
    from captum.attr._utils.lrp_rules import EpsilonRule

    module = NoFlatten() if kind == "images" else mlp()
    if kind == "images":
        module.layers[5] = nn.Dropout()
    model, x = Model(module.eval(), bounds=(0.0, 1.0), device="cpu"), batch(SHAPES[kind][1])
    ours = hx.LRP(epsilon=epsilon)(model, x, 2)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.MaxPool2d):
            layer.rule = EpsilonRule(epsilon)
    close(ours, captum_maps(ca.LRP(module), x, target=2), 1e-4)


# ---------------------------------------------------------------- closed forms


def linear(bias: bool = False) -> tuple[Model, Tensor, Tensor]:
    torch.manual_seed(5)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3, bias=bias))
    return (
        Model(module, bounds=(0.0, 1.0), device="cpu"),
        module[1].weight.detach(),
        batch((3, 4), 6),
    )


def test_linear_model_is_exact() -> None:
    model, w, x = linear(bias=True)
    t = torch.tensor([0, 1, 2, 2, 1, 0])
    w = w[t].reshape(6, 3, 4)
    close(hx.Saliency()(model, x, t), w.abs())
    close(hx.InputXGradient()(model, x, t), w * x)
    close(hx.LRP()(model, x, t), w * x)  # the bias keeps its share
    close(hx.LRP(epsilon=0.0)(model, x, t), w * x)
    z = model.logits(x).gather(1, t[:, None])[:, :, None]
    close(hx.LRP(epsilon=0.5)(model, x, t), w * x * z / (z + 0.5 * z.sign()))
    baseline = torch.tensor([0.1, 0.5, 0.9]).reshape(3, 1)
    for explainer in (
        hx.IntegratedGradients(steps=3, baseline=(0.1, 0.5, 0.9)),
        hx.DeepLift(baseline=(0.1, 0.5, 0.9)),
    ):
        close(explainer(model, x, t), w * (x - baseline))
    close(hx.SmoothGrad(samples=7)(model, x, t), w)


def test_deeplift_is_complete_with_overlapping_pools_and_other_activations() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        *(
            nn.Conv2d(1, 4, 3),
            nn.Tanh(),
            nn.MaxPool2d(3, stride=1, padding=1),
            nn.Conv2d(4, 4, 3),
            nn.GELU(),
        ),
        *(
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
            nn.Linear(36, 8),
            nn.ELU(inplace=True),
            nn.Linear(8, 3),
        ),
    ).double()
    model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), batch((1, 12, 12)).double()
    change = (model.logits(x) - model.logits(torch.zeros_like(x)))[:, 1]
    torch.testing.assert_close(hx.DeepLift()(model, x, 1).flatten(1).sum(1), change)


def test_lrp_conserves_relevance_through_residual_sums() -> None:
    module = Residual().double().eval()
    module.norm.running_mean.zero_()
    for layer in (module.first, module.second, module.norm, module.last):
        layer.bias.data.zero_()
    model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), batch((1, 8, 8)).double()
    relevance = hx.LRP(epsilon=1e-12)(model, x, 2)
    torch.testing.assert_close(relevance.flatten(1).sum(1), model.logits(x)[:, 2])
    # no bias, rectifiers only
    torch.testing.assert_close(relevance, hx.InputXGradient()(model, x, 2))


def test_the_noise_of_smoothgrad_follows_its_seed_and_the_bounds() -> None:
    """Its statistics are tested beside those of GradientSHAP."""
    model, x = make(), batch((1, 12, 12), 4)
    assert not torch.equal(hx.SmoothGrad(seed=1)(model, x, 3), hx.SmoothGrad(seed=2)(model, x, 3))
    wide = Model(model.module, bounds=(-1.0, 3.0), device="cpu")
    close(hx.SmoothGrad(6, 0.05, seed=7)(wide, x, 3), hx.SmoothGrad(6, 0.2, seed=7)(model, x, 3))


def test_random_maps_are_standard_normal() -> None:
    model, x = make(), batch((1, 12, 12), 200)
    maps = hx.RandomExplainer()(model, x).flatten()
    assert abs(float(maps.mean())) < 5 / len(maps) ** 0.5
    assert abs(float(maps.var()) - 1) < 5 * (2 / len(maps)) ** 0.5
    assert abs(float((maps.abs() < 0.6744898).float().mean()) - 0.5) < 5 * 0.5 / len(maps) ** 0.5
    other = hx.RandomExplainer(seed=1)(model, x).flatten()
    assert abs(float(torch.corrcoef(torch.stack([maps, other]))[0, 1])) < 5 / len(maps) ** 0.5


# ---------------------------------------------------------------- properties of all explainers


@pytest.mark.parametrize("name", ALL)
def test_default_target_is_the_predicted_class(name: str) -> None:
    model, x = make(), batch((1, 12, 12)) * torch.linspace(0, 1, 10).reshape(-1, 1, 1, 1)
    with torch.no_grad():
        model.module[8].weight.mul_(torch.linspace(0.5, 3, 5)[:, None])
    predicted = model.predict(x)
    assert torch.equal(ALL[name](model, x), ALL[name](model, x, predicted))
    if name not in NO_TARGET:
        assert not torch.equal(ALL[name](model, x), ALL[name](model, x, (predicted + 1) % 5))


@pytest.mark.parametrize("name", ["integrated_gradients", "smoothgrad_times"])
def test_steps_of_one_input_are_split_with_predicted_targets(name: str) -> None:
    x = batch((1, 12, 12), 5)
    whole = ALL[name](make(batch_size=512), x)
    for size in (8, 24):
        assert torch.equal(ALL[name](make(batch_size=size), x), whole)
    largest: list[int] = []
    model = make(batch_size=8)
    with CountRows(model.module, largest):
        ALL[name](model, x)
    assert max(largest) == 16
    points = batch((3, 1, 12, 12), 20)
    few, many = make(batch_size=16), make(batch_size=512)
    x = batch((1, 12, 12), 20, seed=1)  # more inputs than fit into one chunk
    with few.session(), many.session():
        ours, logits = compute_path_gradients(few, x, points, None, False)
        theirs, expected = compute_path_gradients(many, x, points, None, False)
    assert torch.equal(ours, theirs)
    assert torch.equal(logits, expected)


class CountRows:
    """Collect the number of rows of each forward pass in a list."""

    def __init__(self, module: nn.Module, rows: list[int]) -> None:
        self.handle = module.register_forward_hook(lambda m, args, out: rows.append(len(args[0])))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self.handle.remove()


@pytest.mark.parametrize("name", ALL)
def test_attribute_forwards_each_row_once(name: str) -> None:
    model, x, rows = make(batch_size=512), batch((1, 12, 12), 16), []
    backward: list[int] = []
    explainer = ALL[name]
    with model.session(), CountRows(model.module, rows):
        handle = model.module[0].register_full_backward_hook(lambda *a: backward.append(1))
        with torch.no_grad():
            maps, logits = explainer.attribute(model, x, None)
        handle.remove()
    assert not maps.requires_grad
    assert not logits.requires_grad
    torch.testing.assert_close(logits, model.logits(x))
    if name in GRADIENT_FAMILY:
        assert rows == [16]
        # the backward pass of Grad-CAM stops at its layer
        assert len(backward) == (name != "gradcam")
    elif "ig" in name or name.startswith(("integrated", "smooth", "gradient_shap")):
        assert rows == [16 * explainer.rows_per_input]
        assert len(backward) == 1
    elif name in ("deeplift", "deep_shap"):
        assert rows == [16, 16]
        assert len(backward) == 1


def state(module: nn.Module) -> Any:
    return [
        (
            layer.training,
            sorted(layer.__dict__),
            *(len(value) for key, value in sorted(layer.__dict__.items()) if key.endswith("hooks")),
            [
                (p.requires_grad, p.grad, p._version, p.data_ptr())
                for p in layer.parameters(recurse=False)
            ],
        )
        for layer in module.modules()
    ]


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_left_behind(name: str) -> None:
    model, x = make(), batch((1, 12, 12))
    model.module.train()
    model.module[3].eval()
    model.module[6].weight.requires_grad_(False)
    # an attribute of the user's, with the name of Captum's
    model.module[3].rule = marker = object()
    before, copy, random_state = state(model.module), x.clone(), torch.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    with torch.no_grad():
        first = ALL[name](model, x)
        assert not torch.is_grad_enabled()
    assert torch.equal(first, ALL[name](model, x))
    with torch.inference_mode():
        assert torch.equal(first, ALL[name](model, x.clone()))
    assert torch.equal(x, copy)
    assert not x.requires_grad
    assert state(model.module) == before
    assert model.module[3].rule is marker
    assert torch.equal(random_state, torch.get_rng_state())
    assert numpy_state == np.random.get_state()[1].tolist()  # noqa: NPY002

    def fail(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    t = model.predict(x)
    for register in ("register_forward_hook", "register_full_backward_hook"):
        handle = getattr(model.module[4], register)(fail)
        before = state(model.module)
        with model.session():
            inside = state(model.module)
            if register == "register_forward_hook" or name not in NO_BACKWARD:
                with pytest.raises(ZeroDivisionError):
                    ALL[name].attribute(model, x, t)
            assert state(model.module) == inside
        assert state(model.module) == before
        handle.remove()
    assert torch.equal(torch.relu(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("name", ALL)
def test_preprocess_is_applied(name: str) -> None:
    x = batch((1, 12, 12))
    plain, scaled = make(), Model(cnn(), (0.0, 2.0), preprocess=lambda z: z / 2, device="cpu")
    explainer = ALL[name]
    if name == "captum_samples":
        pytest.skip("its noise is on the scale of the inputs")
    if name == "ig_of_gray":
        explainer, twin = hx.IntegratedGradients(4, 0.6), hx.IntegratedGradients(4, 0.3)
    elif name == "gradient_shap":
        explainer, twin = hx.GradientSHAP(0.6, samples=6), hx.GradientSHAP(0.3, samples=6)
    else:
        twin = explainer
    ours, theirs = explainer(scaled, 2 * x), twin(plain, x)
    if name in (
        "saliency",
        "saliency_signed",
        "smoothgrad",
        "guided_backprop",
        "deconvolution",
        "captum",
    ):
        ours = ours * 2
    if name in ("smoothgrad_squared", "guided_gradcam"):
        ours = ours * (4 if name == "smoothgrad_squared" else 2)
    if name in ("callable", "input_copy", "edges"):
        ours = ours / 2
    if name == "random":
        assert not torch.equal(ours, theirs)
    else:
        close(ours, theirs)


@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith("captum")])
def test_functions_and_steps_in_place(name: str) -> None:
    explainer = twin = ALL[name]
    if name.endswith("gradcam"):
        explainer, twin = (hx.get(name, layer=layer) for layer in ("layers.3", "3"))
    x = batch((1, 12, 12))
    functional = Model(Functional(cnn()), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    close(explainer(functional, x, 1), twin(make(), x, 1))
    residual = Model(Residual(), bounds=(0.0, 1.0), device="cpu")
    x = batch((1, 8, 8))
    assert ALL[name](residual, x).shape == x.shape


@pytest.mark.parametrize("name", CONSTANT)
def test_logits_that_ignore_the_input(name: str) -> None:
    """Zeros where the gradients are 0; an error where there are none, which would look the same."""

    class Constant(nn.Module):
        cut = False

        def forward(self, x: Tensor) -> Tensor:
            kept = x.detach() if self.cut else x * 0.0
            return kept[:, :2] + torch.tensor([0.0, 1.0])

    x, module = batch((7,)), Constant()
    model = Model(module, (0.0, 1.0), device="cpu", batch_size=64)
    if name != "deep_taylor":  # whose map starts with the logit, and not with its gradient
        assert torch.equal(ALL[name](model, x), torch.zeros_like(x))
    module.cut = True
    with pytest.raises(ModelError, match=r"logits have no gradients.*torch.no_grad, detach"):
        ALL[name](model, x)


def test_non_finite_logits_are_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x[:, :2] - 0.5)

    x = torch.tensor([[0.9, 0.8], [0.1, 0.9]])
    for explainer in (hx.Saliency(), hx.RandomExplainer()):
        with pytest.raises(ModelError, match="finite logits, got NaN or infinity for 1 of 2"):
            explainer(Model(Broken(), (0.0, 1.0), device="cpu"), x, torch.tensor([1, 1]))


# ---------------------------------------------------------------- second derivatives


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", [n for n, e in ALL.items() if e.differentiable])
def test_create_graph_gives_the_second_derivative(name: str, kind: str) -> None:
    module = SHAPES[kind][0]().double()
    model, x = Model(module, (0.0, 1.0), device="cpu"), batch(SHAPES[kind][1], 3).double()
    explainer = ALL[name]
    if name == "gradcam":
        if kind == "flat":
            pytest.skip("no convolution")
        explainer = hx.GradCAM(relu=False)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(9), dtype=x.dtype)
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(8), dtype=x.dtype)
    t = torch.tensor([0, 1, 2])
    with model.session(), hx.smooth_relu(beta=5.0):
        leaf = x.clone().requires_grad_(True)
        maps, logits = explainer.attribute(model, leaf, t, create_graph=True)
        (gradient,) = torch.autograd.grad((maps * weights).sum(), leaf, retain_graph=True)
        assert torch.autograd.grad(logits.sum(), leaf)[0].abs().max() > 0
        h = 1e-5
        there, back = (explainer.attribute(model, x + s * h * direction, t)[0] for s in (1, -1))
        torch.testing.assert_close(explainer.attribute(model, x, t)[0], maps.detach())
    numeric = ((there - back) * weights).flatten(1).sum(1) / (2 * h)
    assert float(numeric.abs().min()) > 1e-8
    torch.testing.assert_close(
        (gradient * direction).flatten(1).sum(1), numeric, rtol=1e-4, atol=1e-7
    )


def test_create_graph_needs_an_input_with_gradients_and_a_differentiable_explainer() -> None:
    model, x = make(), batch((1, 12, 12), 2)
    with model.session():
        for name, explainer in ALL.items():
            if explainer.differentiable:
                with pytest.raises(ArgumentError, match="requires gradients"):
                    explainer.attribute(model, x, None, create_graph=True)
            else:
                with pytest.raises(ArgumentError, match="no derivative"):
                    explainer.attribute(
                        model, x.clone().requires_grad_(True), None, create_graph=True
                    )
            assert name


def test_differentiable_callable() -> None:
    explainer = hx.from_callable(lambda module, x, t: x**3, differentiable=True)
    model, x = make("flat"), batch((7,), 4).requires_grad_(True)
    with model.session():
        maps, _ = explainer.attribute(model, x, None, create_graph=True)
    close(torch.autograd.grad(maps.sum(), x)[0], 3 * x.detach() ** 2)


# ---------------------------------------------------------------- smooth rectifiers


@pytest.mark.parametrize(
    "rectify",
    [
        *(
            nn.ReLU(),
            nn.ReLU(inplace=True),
            F.relu,
            torch.relu,
            torch.relu_,
            Tensor.relu,
            Tensor.relu_,
        ),
        *(lambda z: F.relu(z, True), lambda z: F.relu(input=z, inplace=True), F.relu_),
    ],
)
def test_smooth_relu_replaces_and_restores(rectify: Callable[[Tensor], Tensor]) -> None:
    z = torch.linspace(-2, 2, 9)
    own = z.clone()
    with hx.smooth_relu(beta=3.0):
        out = rectify(own)
    close(out, torch.log1p(torch.exp(3 * z)) / 3)
    plain = z.clone()
    assert torch.equal(rectify(plain), z.clamp(min=0))
    assert torch.equal(own, z) == torch.equal(plain, z)  # in-place functions still work in place
    assert torch.equal(own, out) == torch.equal(plain, z.clamp(min=0))
    with pytest.raises(ZeroDivisionError), hx.smooth_relu(3.0):
        raise ZeroDivisionError
    assert torch.equal(rectify(z.clone()), z.clamp(min=0))
    for beta in (0, -1.0, float("inf"), "1"):
        with pytest.raises(ArgumentError, match="beta"), hx.smooth_relu(beta):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize("inplace", [True, False])
def test_gradients_through_smooth_relu(inplace: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace), nn.Linear(5, 2)).double()
    smooth = nn.Sequential(net[0], nn.Softplus(beta=4.0), net[2])
    x = torch.rand(4, 3, dtype=torch.float64)
    with hx.smooth_relu(beta=4.0):
        ours = hx.Saliency()(Model(net, (0.0, 1.0), device="cpu"), x, 1)
    torch.testing.assert_close(ours, hx.Saliency()(Model(smooth, (0.0, 1.0), device="cpu"), x, 1))


@pytest.mark.parametrize(
    "rectify", [nn.ReLU6(), nn.ReLU6(inplace=True), F.relu6, lambda z: F.hardtanh(z, 0.0, 6.0)]
)
def test_relu6_is_replaced_by_the_difference_of_two(rectify: Callable[[Tensor], Tensor]) -> None:
    z = torch.linspace(-2, 8, 11, dtype=torch.float64)
    with hx.smooth_relu(beta=3.0):
        close(
            rectify(z.clone()),
            (torch.log1p(torch.exp(3 * z)) - torch.log1p(torch.exp(3 * (z - 6)))) / 3,
        )
    close(rectify(z.clone()), z.clamp(0, 6))

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            left = rectify(10 * x - 2)  # from -2 to 8
            return torch.stack([left @ torch.arange(-3.0, 4.0, dtype=x.dtype), x.sum(1)], 1)

    x = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    coming = torch.arange(-3.0, 4.0).expand(5, 7)
    active = (10 * x > 2) & (10 * x < 8)
    model = Model(Net(), (0.0, 1.0), device="cpu")
    close(hx.GuidedBackprop()(model, x, 0), 10 * coming.clamp(min=0) * active)
    close(hx.Deconvolution()(model, x, 0), 10 * coming.clamp(min=0) * (10 * x < 8))


def test_a_hard_tanh_is_not_replaced() -> None:
    z = torch.linspace(-2, 2, 9)
    with hx.smooth_relu(beta=3.0):
        assert torch.equal(F.hardtanh(z), z.clamp(-1, 1))
        assert torch.equal(F.hardtanh_(z.clone(), -0.5, 0.5), z.clamp(-0.5, 0.5))


# ---------------------------------------------------------------- adapters


def test_from_callable_checks_results() -> None:
    model, x = make(), batch((1, 12, 12), 6)
    for bad, message in (
        (
            lambda m, x, t: x.sum(1),
            r"maps of the same shape as the inputs that the function was given, \(16, 1, 12",
        ),
        (lambda m, x, t: None, "got NoneType"),
        (lambda m, x, t: x / 0, "finite attributions, got NaN or infinity for 6 of 6"),
    ):
        with pytest.raises(ModelError, match=message):
            hx.from_callable(bad, name="bad")(model, x)
    array = hx.from_callable(lambda m, x, t: x.numpy().astype(np.float64))
    assert torch.equal(array(model, x), x)
    spoil = hx.from_callable(lambda m, x, t: x.mul_(3))
    assert torch.equal(spoil(model, x), 3 * batch((1, 12, 12), 6))
    assert torch.equal(x, batch((1, 12, 12), 6))
    with pytest.raises(ArgumentError, match="rows_per_input"):
        hx.from_callable(lambda m, x, t: x, rows_per_input=0)
    with pytest.raises(ArgumentError, match="function"):
        hx.from_callable(3)  # type: ignore[arg-type]
    assert hx.from_callable(array.attribute).label == "attribute"


def test_from_captum_equals_captum() -> None:
    model, x = make(), batch((1, 12, 12), 6)
    module = model.module
    for method, options in (
        (ca.Saliency, {"abs": False}),
        (ca.IntegratedGradients, {"n_steps": 7, "multiply_by_inputs": False}),
        (ca.GuidedBackprop, {}),
        (ca.Occlusion, {"sliding_window_shapes": (1, 4, 4), "strides": 4}),
    ):
        built = {k: v for k, v in options.items() if k == "multiply_by_inputs"}
        called = {k: v for k, v in options.items() if k not in built}
        theirs = captum_maps(method(module, **built), x, target=1, **called)
        close(hx.from_captum(method, **options)(model, x, 1), theirs)
    one = hx.from_captum(ca.DeepLift, one_at_a_time=True)
    spaced = Model(apart(module), (0.0, 1.0), device="cpu")
    close(one(spaced, x, 1), hx.DeepLift()(model, x, 1))
    cam = hx.from_captum(ca.LayerGradCam, layer="3", relu_attributions=True)
    close(cam(model, x, 1), hx.GradCAM()(model, x, 1))
    ready = hx.from_captum(
        ca.NoiseTunnel(ca.Saliency(module)), nt_samples=3, nt_type="smoothgrad", stdevs=0.0
    )
    close(ready(model, x, 1), hx.Saliency()(model, x, 1))
    assert ready.rows_per_input == 3
    other = make()
    with pytest.raises(ArgumentError, match="model's own module"):
        ready(other, x, 1)


def test_from_captum_rows_and_errors() -> None:
    def rows(method: Any, **options: Any) -> int:
        return hx.from_captum(method, **options).rows_per_input

    assert rows(ca.IntegratedGradients) == 50
    assert rows(ca.IntegratedGradients, n_steps=5) == 5
    assert rows(ca.GradientShap, baselines=0) == 5
    assert rows(ca.FeatureAblation) == 1
    assert rows(ca.FeatureAblation, perturbations_per_eval=4) == 4
    assert rows(ca.DeepLift) == 2
    assert rows(ca.Saliency, rows_per_input=9) == 9
    sampled = hx.from_captum(ca.GradientShap, baselines=0)
    assert isinstance(sampled, CaptumExplainer)
    assert sampled.one_at_a_time
    with pytest.raises(ArgumentError, match="absolute: expected an option of Saliency: abs"):
        hx.from_captum(ca.Saliency, absolute=True)
    with pytest.raises(ArgumentError, match="layer"):
        hx.from_captum(ca.Saliency, layer="3")
    with pytest.raises(ArgumentError, match="method"):
        hx.from_captum(ca.NoiseTunnel)
    with pytest.raises(ArgumentError, match="method"):
        hx.from_captum(nn.ReLU)


# ---------------------------------------------------------------- names and errors


def test_get() -> None:
    assert hx.names() == sorted(hx.names())
    assert set(hx.names()) >= {
        *GRADIENT_FAMILY,
        "integrated_gradients",
        "smoothgrad",
        "deeplift",
        "random",
    }
    for name in hx.names():
        assert hx.get(name) == hx.get(name)
        assert hx.get(name).label.partition(":")[0] == name  # "randomised:saliency"
        assert hash(hx.get(name)) == hash(hx.get(name))
    assert hx.get("saliency:absolute=False") == hx.Saliency(absolute=False)
    assert hx.get("integrated_gradients: steps=64, baseline=0") == hx.IntegratedGradients(
        steps=64, baseline=0
    )
    assert hx.get("gradcam:layer=features.conv2", relu=False) == hx.GradCAM(
        "features.conv2", relu=False
    )
    ready = hx.Saliency()
    assert hx.get(ready) is ready
    with pytest.raises(UnknownNameError, match="did you mean 'deeplift'"):
        hx.get("deeplit")
    with pytest.raises(
        ArgumentError, match="step: expected an option of integrated_gradients: steps"
    ):
        hx.get("integrated_gradients", step=3)
    with pytest.raises(ArgumentError, match="expected no options"):
        hx.get("input_x_gradient:steps=3")
    for bad in ("saliency:absolute", "saliency:=3"):
        with pytest.raises(ArgumentError, match="option=value"):
            hx.get(bad)
    with pytest.raises(ArgumentError, match="options"):
        hx.get(ready, absolute=True)
    with pytest.raises(ArgumentError, match="a name, an Explainer .from_captum.* or a function"):
        hx.get(3)  # type: ignore[arg-type]


def test_options_out_of_range() -> None:
    path = partial(hx.get, "integrated_gradients")
    assert_refused(path, steps=[0, 2.5], baseline=["black"])
    assert_refused(partial(hx.get, "smoothgrad"), samples=[0], noise=[-1], seed=["x"])
    assert_refused(partial(hx.get, "lrp"), epsilon=[-1])
    assert_refused(partial(hx.get, "deeplift"), epsilon=[0], baseline=["x"])
    assert_refused(partial(hx.get, "random"), seed=[1.5])
    assert_refused(partial(hx.get, "gradcam"), interpolation=["cubic"])


def test_errors_name_the_cause() -> None:
    images = make()
    with pytest.raises(ArgumentError, match="baseline: expected one number, or 1"):
        hx.DeepLift(baseline=(0.0, 1.0))(images, batch((1, 12, 12)))
    with pytest.raises(ArgumentError, match="bounds"):
        hx.SmoothGrad()(Model(mlp(), (0.0, float("inf")), device="cpu"), batch((7,)))
    shrinking = Model(mlp(), (0.0, 1.0), preprocess=lambda x: x[:, :7], device="cpu")
    with pytest.raises(ModelError, match="lrp: expected preprocess to keep the shape"):
        hx.LRP()(shrinking, batch((9,)))
    with pytest.raises(ArgumentError, match="inputs"):
        hx.Saliency()(images, batch((1, 12, 12)) + 3)
    with pytest.raises(ArgumentError, match="targets"):
        hx.Saliency()(images, batch((1, 12, 12)), 7)
