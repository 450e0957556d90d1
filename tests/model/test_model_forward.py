"""Models that are run by a function: keyword arguments, further inputs, outputs that are no tensor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from light import light_explainer
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ArgumentError, ModelError
from standfast.gating import find_gateable, select_layers
from standfast.model import ForwardWrapper
from standfast.study.answers import ask_model
from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from


class Conditioned(nn.Module):
    """Wants its image by name, together with an age, and answers with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.module = nn.Linear(4 * 36 + 1, 3)  # a child of the same name as the wrapper's

    def forward(self, *, image: Tensor, age: Tensor) -> dict[str, Tensor]:
        seen = self.flatten(self.relu(self.conv(image)))
        return {"logits": self.module(torch.cat([seen, age.expand(len(seen), 1)], 1)), "seen": seen}


class Plain(nn.Module):
    """The same with the age inside, from images to logits."""

    def __init__(self, inner: Conditioned) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(image=x, age=AGE)["logits"]


AGE = torch.tensor([[0.7]])


def at_age(module: nn.Module, x: Tensor) -> Tensor:
    logits: Tensor = module(image=x, age=AGE.to(x))["logits"]
    return logits


def scaled(x: Tensor) -> Tensor:
    return (x - 0.2) / 0.6


@pytest.fixture
def inner() -> Conditioned:
    torch.manual_seed(0)
    return Conditioned()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_every_explainer_sees_the_same_model(inner: Conditioned, x: Tensor) -> None:
    ours = standfast.Model(inner, (0.0, 1.0), scaled, device="cpu", forward=at_age)
    plain = standfast.Model(Plain(inner), (0.0, 1.0), scaled, device="cpu")
    assert torch.equal(ours.logits(x), plain.logits(x))
    # which need attention
    for name in (name for name in hx.names() if not name.startswith("attention_")):
        maps = [light_explainer(name)(model, x) for model in (ours, plain)]
        torch.testing.assert_close(*maps, msg=lambda text, name=name: f"{name}: {text}")
    for adapter in (
        hx.from_captum("Saliency"),
        hx.from_callable(lambda m, x, t: m(x)[:, :1, None, None] * x),
    ):
        torch.testing.assert_close(adapter(ours, x), adapter(plain, x))


def test_layers_keep_their_names(inner: Conditioned, x: Tensor) -> None:
    ours = standfast.Model(inner, (0.0, 1.0), device="cpu", forward=at_age)
    names = [name for name, _ in ours.module.named_modules()]
    assert names == ["", "(wrapped)", "conv", "relu", "flatten", "module"]
    assert dict(ours.module.named_parameters()).keys() == dict(inner.named_parameters()).keys()
    plain = standfast.Model(Plain(inner), (0.0, 1.0), device="cpu")
    torch.testing.assert_close(
        hx.GradCAM(layer="conv")(ours, x), hx.GradCAM(layer="inner.conv")(plain, x)
    )
    layers = select_layers(ours.module, "all")
    assert list(layers) == ["conv", "module"]
    with ours.session():
        assert find_gateable(ours, x, layers) == {"conv", "module"}
    ours.module.train()
    state = [m.training for m in inner.modules()]
    ours.predict(x)
    assert [m.training for m in inner.modules()] == state == [True] * 5


def test_a_bare_layer_may_be_wrapped() -> None:
    model = standfast.Model(
        nn.Linear(4, 2), (0.0, 1.0), device="cpu", forward=lambda m, x: 2 * m(x)
    )
    x = torch.rand(3, 4)
    expected = 2 * model.module.module.weight[1].detach()
    torch.testing.assert_close(hx.Saliency(absolute=False)(model, x, 1), expected.expand(3, -1))
    assert list(select_layers(model.module, "all")) == ["(wrapped)"]


def test_the_function_is_part_of_what_a_model_is(inner: Conditioned, x: Tensor) -> None:
    def later(module: nn.Module, x: Tensor) -> Tensor:
        return module(image=x, age=2 * AGE)["logits"]

    one, same, other = (
        standfast.Model(inner, (0.0, 1.0), device="cpu", forward=f) for f in (at_age, at_age, later)
    )
    asked = ask_model(one, x)
    assert (
        asked.find_difference(ask_model(same, x)),
        asked.find_difference(ask_model(other, x)),
    ) == ("", "inputs")
    assert not torch.equal(one.logits(x), other.logits(x))


def test_what_does_not_fit(inner: Conditioned, x: Tensor) -> None:
    with pytest.raises(ArgumentError, match="forward: expected a callable"):
        standfast.Model(inner, (0.0, 1.0), forward="logits")  # type: ignore[arg-type]
    whole = standfast.Model(
        inner, (0.0, 1.0), device="cpu", forward=lambda m, x: [m(image=x, age=AGE), 0]
    )
    with pytest.raises(
        ModelError, match="expected a tensor, got a list of a dict with logits: a tensor of shape"
    ):
        whole.logits(x)
    assert isinstance(whole.module, ForwardWrapper)


def test_a_study_names_the_function(tmp_path: Path) -> None:
    (tmp_path / "forwarded.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(4, 3)\n"
        "    def forward(self, *, features):\n        return {'logits': self.linear(features)}\n"
        "def load(): return torch.rand(3, 4)\n"
        "def logits(module, x): return module(features=x)['logits']\n"
        "nothing = 3\n"
    )
    study = {
        "data": {"noise": {"function": "forwarded:load"}},
        "models": {"net": {"function": "forwarded:Net", "forward": "forwarded:logits"}},
        "explainers": ["saliency"],
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 2}}],
        "controls": False,
        "sanity": False,
    }
    found = standfast.run_study(study_from(study, tmp_path), tmp_path / "results", progress=False)
    assert found.failures == []
    assert study_from(study, tmp_path).plain()["models"]["net"]["forward"] == "forwarded:logits"
    for wrong, words in (
        ("forwarded:nothing", "a function .module, inputs"),
        ("forwarded:logit", "'logits'"),
    ):
        study["models"] = {"net": {"function": "forwarded:Net", "forward": wrong}}
        with pytest.raises(StudyError, match=rf"models.net.forward: expected .*{words}"):
            study_from(study, tmp_path).grid()


def test_outputs_with_attributes() -> None:
    class Answers(nn.Module):
        def forward(self, pixel_values: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=pixel_values.flatten(1)[:, :2])

    model = standfast.Model(
        Answers(), (0.0, 1.0), device="cpu", forward=lambda module, x: module(pixel_values=x).logits
    )
    assert model.predict(torch.tensor([[[[0.1, 0.8]]]])).tolist() == [1]


def test_modules_that_copy_a_module_to_several_cards_are_taken_off() -> None:
    inner = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    assert standfast.Model(nn.DataParallel(inner), (0.0, 1.0), device="cpu").module is inner


@pytest.mark.parametrize("where", ["module", "preprocess"])
def test_what_writes_into_its_input_changes_no_number(where: str) -> None:
    def make(in_place: bool) -> standfast.Model:
        torch.manual_seed(1)
        layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)]
        if where == "module":
            layers.insert(0, nn.ReLU(inplace=in_place))
            preprocess = None
        else:
            preprocess = (lambda x: x.sub_(0.5).abs_()) if in_place else (lambda x: (x - 0.5).abs())
        return standfast.Model(nn.Sequential(*layers).eval(), (-1.0, 1.0), preprocess, "cpu", 16)

    given = 2 * torch.rand(40, 4, generator=torch.Generator().manual_seed(2)) - 1
    x = given.clone()
    for name in ("occlusion", "rise", "lime", "saliency", "lrp", "captum:Saliency"):
        found, expected = (hx.get(name)(make(in_place), x) for in_place in (True, False))
        assert torch.equal(found, expected), name
    ball = standfast.LinfBall(0.3)
    for metric in (
        standfast.metrics.MaxSensitivity(ball),
        standfast.metrics.WorstCase(ball, budget=60),
    ):
        seed = torch.Generator().manual_seed(3)
        found, expected = (
            metric(make(each), "saliency", x[:8], generator=seed.manual_seed(3))
            for each in (True, False)
        )
        torch.testing.assert_close(
            (found.value, found.inputs),
            (expected.value, expected.inputs),
            rtol=0,
            atol=0,
            equal_nan=True,
        )
    assert torch.equal(x, given)


def test_a_model_runs_where_tensors_count_no_writes() -> None:
    model = standfast.Model(
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)).eval(), (-1.0, 1.0), device="cpu"
    )
    x = 2 * torch.rand(5, 4, generator=torch.Generator().manual_seed(2)) - 1
    given = x.clone()
    with torch.inference_mode():
        inside = model.logits(x)
    assert torch.equal(inside, model.logits(x))
    assert torch.equal(x, given)
    assert model.overwrites
