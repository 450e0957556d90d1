"""Explainers of other packages: the adapters return their results, for any batch, and leave no traces."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast import explainers as hx
from standfast.errors import ArgumentError, MissingExtraError, ModelError, UnknownNameError
from standfast.explainers import Background, Explainer
from standfast.explainers.completeness import CompletenessWarning


def package(name: str) -> Any:
    """Import shap, lime or quantus, whose imports give warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def batch(kind: str, count: int = 5, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPES[kind], generator=torch.Generator().manual_seed(seed))


def shift(x: Tensor) -> Tensor:
    return (x - 0.4) / 0.3


def net(
    kind: str, preprocess: Callable[[Tensor], Tensor] | None = shift, **options: Any
) -> standfast.Model:
    return standfast.Model(small_net(SHAPES[kind]), (0.0, 1.0), preprocess, device="cpu", **options)


def draws(
    model: nn.Module, inputs: np.ndarray, targets: np.ndarray, level: float = 0.5
) -> np.ndarray:
    """A function in Quantus's style that draws from all three generators."""
    noise = np.random.randn(*inputs.shape) + torch.randn(inputs.shape).numpy() + random.random()  # noqa: NPY002
    return inputs * (1 + level * noise) + targets.reshape(-1, *[1] * (inputs.ndim - 1))


def cases() -> dict[str, tuple[str, Callable[[], Explainer]]]:
    references = Background(batch("flat", 3, seed=9))
    return {
        "shap gradient": ("image", lambda: hx.from_shap("GradientExplainer", nsamples=10)),
        "shap deep": (
            "image",
            lambda: hx.from_shap("DeepExplainer", background=batch("image", 3, seed=9)),
        ),
        "shap kernel": (
            "flat",
            lambda: hx.from_shap("KernelExplainer", background=references, nsamples=40),
        ),
        "like shap": ("flat", lambda: hx.from_shap(ReseedingExplainer)),
        "lime image": (
            "image",
            lambda: hx.from_lime("image", num_samples=30, segmentation_fn=quarters),
        ),
        "lime tabular": (
            "flat",
            lambda: hx.from_lime("tabular", num_samples=40, training_data=batch("flat", 50)),
        ),
        "quantus": ("series", lambda: hx.from_quantus(draws)),
    }


class ReseedingExplainer:
    """A stand-in for shap's newer classes; as theirs do, it seeds NumPy's generator from the clock."""

    def __init__(self, model: Callable[[np.ndarray], np.ndarray], masker: np.ndarray) -> None:
        np.random.seed(None)  # noqa: NPY002
        self.model = model

    def __call__(self, rows: np.ndarray, max_evals: int = 500) -> Any:
        noise = np.random.randn(*rows.shape)  # noqa: NPY002
        return type("Explanation", (), {"values": self.model(rows)[:, None] * rows + noise})


def quarters(image: np.ndarray) -> np.ndarray:
    rows, columns = np.indices(image.shape[:2])
    return 2 * (rows >= image.shape[0] // 2) + (columns >= image.shape[1] // 2)


@pytest.mark.parametrize("name", cases())
def test_results_do_not_depend_on_the_batch_and_nothing_is_left_behind(name: str) -> None:
    """A row's map does not depend on its chunk; model and generators are restored."""
    for other in ("shap", "lime"):
        if name.startswith(other):
            package(other)
    kind, made = cases()[name]
    model, x = net(kind), batch(kind)
    model.module.train()
    for parameter in model.module.parameters():
        parameter.grad = torch.ones_like(parameter)
    weights = {key: value.clone() for key, value in model.module.state_dict().items()}
    targets = torch.tensor([0, 1, 1, 3, 0])
    explainer = made()  # packages draw random numbers when they are imported
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    maps = explainer(model, x, targets)
    after = torch.random.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert (before[1] == after[1]).all()
    assert before[2] == after[2]
    assert maps.shape == x.shape
    assert maps.flatten(1).std(1).min() > 0
    assert not torch.equal(maps[0] / maps[0].abs().max(), maps[1] / maps[1].abs().max())
    assert model.module.training
    assert all(p.requires_grad and bool((p.grad == 1).all()) for p in model.module.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in model.module.state_dict().items())
    assert not any(m._forward_hooks or m._backward_hooks for m in model.module.modules())
    small = net(kind, batch_size=3)
    assert torch.equal(made()(small, x.flip(0), targets.flip(0)).flip(0), maps)
    assert torch.equal(made()(small, x[1:2], targets[1:2]), maps[1:2])
    predicted = made()(model, x)
    assert torch.equal(predicted, made()(model, x, model.predict(x)))


def test_another_seed_gives_another_explanation() -> None:
    model, x = net("series"), batch("series")
    one, same, other = (hx.from_quantus(draws, seed=seed)(model, x) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_rows_that_draw_are_explained_once_and_alone() -> None:
    """Each row with its own noise; a function that draws nothing is called once for a chunk."""
    sizes: list[int] = []

    def noise(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sizes.append(len(inputs))
        return np.random.randn(*inputs.shape)  # noqa: NPY002

    def nothing(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sizes.append(len(inputs))
        return inputs

    classifier, x = net("flat", batch_size=16), batch("flat", 3)
    maps = hx.from_quantus(noise)(classifier, x)
    # a chunk, padded to 16 rows, in which random numbers were drawn; then the three different rows
    assert sizes == [16, 1, 1, 1]
    assert len({tuple(row) for row in maps.tolist()}) == 3
    sizes.clear()
    hx.from_quantus(noise, one_at_a_time=True)(classifier, x)
    assert sizes == [1, 1, 1]
    sizes.clear()
    hx.from_quantus(noise, one_at_a_time=False)(classifier, x)
    hx.from_quantus(nothing)(classifier, x)
    assert sizes == [16, 16]
    sizes.clear()
    both = hx.from_quantus(noise, one_at_a_time=True)(
        classifier, x[:1].expand(2, -1), torch.tensor([0, 1])
    )
    assert sizes == [1, 1]  # one content, two targets
    assert torch.equal(both[0], both[1])


# ---------------------------------------------------------------- shap


def plain(
    module: nn.Module, preprocess: Callable[[Tensor], Tensor]
) -> Callable[[np.ndarray], np.ndarray]:
    """The model as a function of flat rows, without standfast."""
    return lambda rows: (
        module(preprocess(torch.as_tensor(rows, dtype=torch.float32))).detach().numpy()
    )


def test_kernel_shap_equals_that_of_the_package() -> None:
    shap = package("shap")
    model, x = net("flat"), batch("flat", 2)
    references = batch("flat", 3, seed=9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.KernelExplainer(plain(model.module, shift), references.numpy())
        # 12 features have 4094 coalitions, all of which are used, so nothing is random
        expected = theirs.shap_values(x.numpy(), nsamples=5000, l1_reg=0, silent=True)
    ours = hx.from_shap(shap.KernelExplainer, background=references, nsamples=5000, l1_reg=0)
    maps = ours(model, x, torch.tensor([2, 0]))
    torch.testing.assert_close(
        maps, torch.as_tensor(expected[[0, 1], :, [2, 0]]).float(), rtol=1e-3, atol=1e-5
    )
    logits, empty = model.logits(x), model.logits(references).mean(0)
    torch.testing.assert_close(
        maps.sum(1), torch.stack([logits[0, 2] - empty[2], logits[1, 0] - empty[0]])
    )
    assert ours.rows_per_input == 5000 * 3
    likely = hx.from_shap(
        "KernelExplainer", background=references, output="probability", nsamples=500, l1_reg=0
    )
    share = model.logits(x).softmax(1)[:, 1] - model.logits(references).softmax(1)[:, 1].mean()
    torch.testing.assert_close(likely(model, x, 1).sum(1), share)


def test_deep_and_gradient_shap_equal_those_of_the_package() -> None:
    shap = package("shap")
    model, x = net("image"), batch("image", 2)
    references = batch("image", 4, seed=9)
    ours = hx.from_shap(shap.DeepExplainer, background=references)
    torch.testing.assert_close(
        ours(model, x, torch.tensor([3, 1])),
        hx.DeepSHAP(background=references)(model, x, torch.tensor([3, 1])),
        rtol=1e-4,
        atol=1e-5,
    )
    assert ours.rows_per_input == 8
    module = model.module.eval()
    torch.manual_seed(0)
    bare = standfast.Model(module, (0.0, 1.0), device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.GradientExplainer(module, references)
        expected = theirs.shap_values(x[:1], nsamples=30, rseed=3)[..., 2]
    gradient = hx.from_shap(shap.GradientExplainer, background=references, nsamples=30, rseed=3)
    torch.testing.assert_close(
        gradient(bare, x[:1], 2), torch.as_tensor(expected).float(), rtol=1e-4, atol=1e-6
    )
    assert gradient.rows_per_input == 30
    # a ready object, which explains all classes
    ready = hx.from_shap(theirs, nsamples=30, rseed=3)
    torch.testing.assert_close(
        ready(bare, x[:1], 2), torch.as_tensor(expected).float(), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ArgumentError, match="model's own module"):
        ready(net("image"), x)


@pytest.mark.slow
def test_additive_shap_of_a_linear_model() -> None:
    """`w_i (x_i - mean of the references)`, by each of shap's explainers."""
    package("shap")  # its import compiles for many seconds
    module = nn.Linear(12, 3)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    x, references = batch("flat", 3), batch("flat", 4, seed=9)
    expected = module.weight[1].detach() * (x - references.mean(0))
    for name, options in (
        ("PermutationExplainer", {"max_evals": 60}),
        ("ExactExplainer", {}),
        ("KernelExplainer", {"nsamples": 5000, "l1_reg": 0}),
    ):
        few = x[:1] if name == "ExactExplainer" else x
        maps = hx.from_shap(name, background=references, **options)(model, few, 1)
        torch.testing.assert_close(maps, expected[: len(few)], rtol=1e-3, atol=1e-5)
        assert torch.equal(
            hx.from_shap(name, background=references, **options)(model, few[:1], 1), maps[:1]
        )


def test_shap_errors() -> None:
    shap = package("shap")
    with pytest.raises(ArgumentError, match="method"):
        hx.from_shap(nn.ReLU)
    with pytest.raises(
        UnknownNameError, match="shap class: .*'KernalExplainer' .did you mean 'KernelExplainer'"
    ):
        hx.from_shap("KernalExplainer")
    with pytest.raises(ArgumentError, match="n_samples: expected an option of GradientExplainer"):
        hx.from_shap(shap.GradientExplainer, n_samples=3)
    with pytest.raises(ArgumentError, match="output"):
        hx.from_shap(shap.KernelExplainer, output="score")
    with pytest.raises(ArgumentError, match="background"):
        hx.from_shap(shap.DeepExplainer, background=batch("image", 2) * 3)(
            net("image"), batch("image")
        )


# ---------------------------------------------------------------- lime


def test_lime_for_images_equals_that_of_the_package() -> None:
    package("lime")
    from lime.lime_image import LimeImageExplainer

    model, x = net("image"), batch("image", 1)
    given = {"num_samples": 40, "segmentation_fn": quarters, "hide_color": 0}
    maps = hx.from_lime(LimeImageExplainer(random_state=3), **given)(model, x, 2)
    assert maps[0].unique().numel() == 4
    tied = torch.as_tensor(quarters(np.zeros((8, 8, 3))))
    assert all(maps[0, 0][tied == segment].unique().numel() == 1 for segment in range(4))
    # four segments have 2^4 masks; if all occur often enough, the weighted ridge has one solution
    many = hx.from_lime("image", **given | {"num_samples": 3000})(model, x, 2)
    ours = hx.LIME(samples=3000, segments=tied)(model, x, 2)
    torch.testing.assert_close(many, ours, rtol=0.1, atol=0.02 * float(ours.abs().max()))
    gray = hx.from_lime("image", num_samples=20)
    with pytest.raises(ArgumentError, match=r"images \(N, 1, H, W\) or \(N, 3, H, W\)"):
        gray(net("flat"), batch("flat"))


def test_lime_for_tables() -> None:
    package("lime")
    from lime.lime_tabular import LimeTabularExplainer

    train, x = batch("flat", 200, seed=4), batch("flat", 2)
    weights = torch.zeros(3, 12)
    weights[1, 2], weights[1, 7] = 8.0, -4.0
    module = nn.Linear(12, 3)
    module.weight.data, module.bias.data = weights, torch.zeros(3)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    object_ = LimeTabularExplainer(train.numpy(), random_state=1, discretize_continuous=False)
    state = object_.random_state.get_state()[1].copy()
    explainer = hx.from_lime(object_, num_samples=500, output="logit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lime warns that logits do not add up to 1
        maps = explainer(model, x, 1)
    # coefficients of standardised features: the slope times the standard deviation
    expected = weights[1] * train.std(0, unbiased=False)
    torch.testing.assert_close(maps, expected.expand(2, -1), rtol=0.05, atol=0.01)
    assert (object_.random_state.get_state()[1] == state).all()
    assert object_.class_names is None
    assert explainer.rows_per_input == 500
    with pytest.raises(ArgumentError, match=r"flat features \(N, F\)"):
        explainer(net("image"), batch("image"))
    with pytest.raises(
        ArgumentError, match="training_data: expected a value for LimeTabularExplainer"
    ):
        hx.from_lime("tabular")
    with pytest.raises(ArgumentError, match="an explainer of classifiers, got mode 'regression'"):
        hx.from_lime(LimeTabularExplainer(train.numpy(), mode="regression"))
    with pytest.raises(ArgumentError, match="samples: expected an option of LimeTabularExplainer"):
        hx.from_lime(object_, samples=3)
    with pytest.raises(ArgumentError, match="method"):
        hx.from_lime(nn.ReLU())


# ---------------------------------------------------------------- captum


class Branches(nn.Module):
    """Two branches that are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 2, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.a(x).relu(), self.b(x).relu()], 1).mean((2, 3)))  # type: ignore[no-any-return]


def test_captum_needs_the_name_of_one_layer() -> None:
    model = standfast.Model(Branches(), (0.0, 1.0), device="cpu")
    with pytest.raises(
        ArgumentError, match="layer: expected the name of one layer .* got 2 side by side"
    ):
        hx.from_captum("LayerGradCam")(model, torch.rand(3, 3, 12, 8), 1)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtraError, match=r"captum .*pip install 'standfast\[explainers\]'"):
        hx.from_captum("Saliency")


# ---------------------------------------------------------------- quantus


def test_functions_in_the_style_of_quantus() -> None:
    classifier, x = net("image"), batch("image")

    def first(
        model: nn.Module, inputs: np.ndarray, targets: np.ndarray, *, factor: float
    ) -> np.ndarray:
        assert isinstance(inputs, np.ndarray)
        assert not model.training
        logits = model(torch.as_tensor(inputs)).detach().numpy()
        return (
            factor * logits[np.arange(len(targets)), targets].reshape(-1, 1, 1, 1) * inputs[:, :1]
        )

    explainer = hx.from_quantus(first, factor=2.0)
    targets = torch.tensor([0, 3, 3, 1, 2])
    expected = 2 * classifier.logits(x).gather(1, targets[:, None]).reshape(-1, 1, 1, 1) * x
    torch.testing.assert_close(explainer(classifier, x, targets), expected)
    assert explainer.label == "first"
    with pytest.raises(
        ModelError, match="wide: expected maps of the same shape as the inputs that the function"
    ):
        hx.from_quantus(lambda m, i, t: i[:, :, :3], name="wide")(classifier, x)
    with pytest.raises(ArgumentError, match="one_at_a_time"):
        hx.from_quantus(first, one_at_a_time="yes")
    with pytest.raises(ArgumentError, match="rows_per_input"):
        hx.from_quantus(first, rows_per_input=0)


def test_the_function_explain_of_quantus() -> None:
    quantus = package("quantus")
    model, x = net("image"), batch("image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maps = hx.from_quantus(quantus.explain, method="IntegratedGradients", device="cpu")(
            model, x, 1
        )
    # Quantus's default: ten steps of Captum's, by the trapezoid rule, with a black baseline
    theirs = hx.from_captum("IntegratedGradients", n_steps=10, method="riemann_trapezoid")(
        model, x, 1
    )
    torch.testing.assert_close(maps, theirs, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- by name, and in studies


def test_by_name() -> None:
    package("shap")
    model, x = net("image"), batch("image")
    saliency = hx.get("captum:Saliency", abs=False)
    torch.testing.assert_close(saliency(model, x), hx.Saliency(absolute=False)(model, x))
    assert hx.get("shap:DeepExplainer", background=0.5).rows_per_input == 2
    with pytest.raises(
        UnknownNameError, match="captum class: .*'Salience' .did you mean 'Saliency'"
    ):
        hx.get("captum:Salience")
    with pytest.raises(ArgumentError, match="steps: expected an option of IntegratedGradients"):
        hx.get("captum:IntegratedGradients", steps=3)
    with pytest.raises(
        ArgumentError, match="sliding_window_shapes: expected a value for Occlusion, got none"
    ):
        hx.get("captum:Occlusion")


def test_a_study_takes_explainers_of_other_packages(tmp_path: Any) -> None:
    package("shap")
    (tmp_path / "elsewhere_data.py").write_text(
        "import torch\nfrom torch import nn\ndef load(): return torch.rand(2, 1, 8, 8)\n"
        "def build(): return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))\n"
    )
    np.save(tmp_path / "references.npy", batch("image", 2).numpy())
    content = {
        "data": {"noise": {"function": "elsewhere_data:load"}},
        "models": {"net": {"function": "elsewhere_data:build"}},
        "explainers": {
            "captum:Saliency": {"captum:Saliency": {"abs": False}},
            "ig": {"captum:IntegratedGradients": {"n_steps": 4}},
            "cells": {
                "captum:Occlusion": {"sliding_window_shapes": [1, 4, 4], "strides": [1, 4, 4]}
            },
            "deep": {"shap:DeepExplainer": {"background": {"path": "references.npy"}}},
            "cam": "captum:LayerGradCam",
        },
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 2}}],
        "controls": False,
        "sanity": False,
    }
    import jsonschema

    from standfast.study.file.schema import json_schema
    from standfast.study.file.spec import study_from

    jsonschema.validate(content, json_schema())
    study = study_from(content, tmp_path)
    again = study_from(study.plain(), tmp_path)
    assert again.plain() == study.plain()
    assert study.plain()["explainers"]["ig"] == {"captum:IntegratedGradients": {"n_steps": 4}}
    found = standfast.run_study(study, tmp_path / "results", progress=False)
    assert found.failures == []
    assert set(found.samples["explainer"]) == set(content["explainers"])
    listed = study_from(
        content | {"explainers": ["captum:Saliency", {"captum:Saliency": {"abs": False}}, "lrp"]},
        tmp_path,
    )
    assert list(listed.explainers) == ["captum:Saliency", "captum:Saliency: abs=False", "lrp"]


# Completeness, and hooks that do not see functions


class Functional(nn.Module):
    """The layers of a sequence of linear layers and ReLUs, the ReLUs called as functions."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second, self.last = layers[0], layers[2], layers[4]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.second(nn.functional.relu(self.first(x)))))


def pair(seed: int = 0) -> tuple[standfast.Model, standfast.Model]:
    """The same network, with ReLUs as layers and as functions."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
        )
    return tuple(
        standfast.Model(net, (0.0, 1.0), device="cpu") for net in (layers, Functional(layers))
    )


TABLE, REFERENCES = (torch.rand(n, 6, generator=torch.Generator().manual_seed(n)) for n in (12, 20))


@pytest.mark.parametrize(
    ("name", "options", "references"),
    [
        ("DeepLift", {}, torch.zeros(1, 6)),
        ("DeepLift", {"baselines": 0.5}, torch.full((1, 6), 0.5)),
        ("DeepLift", {"baselines": REFERENCES[:1]}, REFERENCES[:1]),
        ("DeepLiftShap", {"baselines": REFERENCES}, REFERENCES),
    ],
)
def test_hooks_of_captum_that_miss_functions_are_told(
    name: str, options: dict[str, Any], references: Tensor
) -> None:
    layers, functions = pair()
    explainer = hx.from_captum(getattr(pytest.importorskip("captum.attr"), name), **options)
    due = layers.logits(TABLE)[:, 1] - layers.logits(references)[:, 1].mean()
    assert torch.allclose(explainer(layers, TABLE, 1).sum(1), due, atol=1e-5)  # without a warning
    with pytest.warns(
        CompletenessWarning, match=rf"captum.{name}: on Functional .* torch.relu \(deeplift does\)"
    ):
        maps = explainer(functions, TABLE, 1)
    assert float((maps.sum(1) - due).abs().max()) > 0.05 * float(due.abs().max())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("IntegratedGradients", {}),
        ("IntegratedGradients", {"multiply_by_inputs": False}),  # need not add up
        ("DeepLift", {"multiply_by_inputs": False}),
        ("GradientShap", {"baselines": REFERENCES}),  # nor does a sample
        ("ShapleyValueSampling", {"n_samples": 2, "baselines": 0.25}),
        ("KernelShap", {"n_samples": 12}),
        ("FeatureAblation", {}),
        ("InputXGradient", {}),
    ],
)
def test_explainers_of_captum_that_add_up_or_need_not_do_not_warn(
    name: str, options: dict[str, Any]
) -> None:
    explainer = hx.get(f"captum:{name}", **options)
    for model in pair()[: 1 if "Deep" in name else 2]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CompletenessWarning)
            explainer(model, TABLE)


def test_a_few_steps_of_captum_are_told() -> None:
    captum = pytest.importorskip("captum.attr")
    with pytest.warns(
        CompletenessWarning, match="captum.IntegratedGradients: .* integrals need steps"
    ):
        hx.from_captum(captum.IntegratedGradients, n_steps=2, method="riemann_left")(
            pair()[0], TABLE, 1
        )


@pytest.mark.parametrize(
    ("name", "own"),
    [("captum:GuidedBackprop", hx.GuidedBackprop()), ("captum:Deconvolution", hx.Deconvolution())],
)
def test_hooks_on_relus_refuse_functions(name: str, own: Explainer) -> None:
    layers, functions = pair()
    explainer = hx.get(name)
    assert torch.allclose(explainer(layers, TABLE, 1), own(layers, TABLE, 1), atol=1e-6)
    with pytest.raises(ModelError, match=r"layers nn.ReLU, since hooks .* got torch.relu"):
        explainer(functions, TABLE, 1)
    assert torch.equal(own(functions, TABLE, 1), own(layers, TABLE, 1))


def test_the_check_of_shap_points_to_what_works() -> None:
    package("shap")
    layers, functions = pair()
    deep = hx.from_shap("DeepExplainer", background=REFERENCES)
    due = layers.logits(TABLE)[:, 1] - layers.logits(REFERENCES)[:, 1].mean()
    assert torch.allclose(deep(layers, TABLE, 1).sum(1), due, atol=1e-5)
    with pytest.raises(
        ModelError, match=r"^shap.DeepExplainer: expected values that add up .*deep_shap"
    ):
        deep(functions, TABLE, 1)
    assert torch.allclose(
        hx.get("deep_shap", background=REFERENCES)(functions, TABLE, 1).sum(1), due, atol=1e-5
    )
    unchecked = hx.from_shap("DeepExplainer", background=REFERENCES, check_additivity=False)
    with pytest.warns(CompletenessWarning, match="shap.DeepExplainer: on Functional"):
        unchecked(functions, TABLE, 1)


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("PermutationExplainer", "ExactExplainer")
]


@pytest.mark.parametrize("name", ["KernelExplainer", "SamplingExplainer", *SLOW])
@pytest.mark.parametrize("count", [20, 120])
def test_explainers_of_shap_that_add_up_do_not_warn(name: str, count: int) -> None:
    """shap takes a sample of more than 100 references, so that their mean is not what values add up from."""
    package("shap")
    options = {"KernelExplainer": {"nsamples": 30}, "SamplingExplainer": {"nsamples": 60}}.get(
        name, {}
    )
    spread = torch.rand(count, 6, generator=torch.Generator().manual_seed(5)).square()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompletenessWarning)
        hx.from_shap(name, background=spread, **options)(pair()[1], TABLE[:2], 1)
