"""Explainers with rules give the map of the module itself, or say what they cannot see."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_transformers import SmallViT
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import standfast
from standfast.errors import ModelError, SecondDerivativeError, StandfastError
from standfast.explainers import AttnLRP, LRPComposite
from standfast.explainers.adapters.packages import ADAPTERS
from standfast.function_calls import FunctionMode
from standfast.metrics import AttributionAttack, WorstCase
from standfast.study.answers import ask_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    # by torch's run_decompositions
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]

#: those that differentiate the module, and know no functions
PLAIN = ("saliency", "smoothgrad", "integrated_gradients", "input_x_gradient", "gradient_shap")
WITH_RULES = [
    name
    for name in standfast.explainers.names()
    if name not in (*ADAPTERS, *PLAIN, "extremal_perturbations")
    and type(standfast.explainers.get(name)).needs.gradients
]


class Swish(torch.autograd.Function):
    """SiLU, as a function with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradients[0] * s * (1 + x * (1 - s))


@functools.cache
def make_operator() -> Callable[[Tensor], Tensor]:
    """SiLU as another library's operator that is called `silu`, as torch's is."""

    @torch.library.custom_op("standfast_tests::silu", mutates_args=())
    def silu(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def backward(ctx: Any, g: Tensor) -> Tensor:
        s = torch.sigmoid(ctx.x)
        return g * s * (1 + ctx.x * (1 - s))

    silu.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0])
    )
    return silu  # type: ignore[no-any-return]


@functools.cache
def script_swish() -> Any:
    return torch.jit.script(F.silu)


class Images(nn.Module):
    """Of images `(N, 3, 12, 8)`, with a batch normalisation that shifts and scales, a SiLU, a max-pooling and ReLUs."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.convolution, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        with torch.no_grad():
            self.norm.running_mean.normal_(0, 0.4)
            self.norm.running_var.uniform_(0.5, 2)
            self.norm.weight.uniform_(0.5, 1.5)
            self.norm.bias.uniform_(0.1, 0.5)
        self.activation = activation
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(90, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.max_pool2d(self.activation(self.norm(self.convolution(x))), 2))


class Transformer(SmallViT):
    """Of the same images, with another function after the first block."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__(fused=False, depth=2)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        tokens = self.blocks[0](torch.cat([self.special.expand(x.shape[0], -1, -1), tokens], 1))
        return self.head(self.norm(self.blocks[1](self.activation(tokens)))[:, 0])


def make_inputs() -> Tensor:
    return torch.rand(3, 3, 12, 8, generator=torch.Generator().manual_seed(1))


def export(module: nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(
        module, (make_inputs(),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )


FORMS: dict[str, Callable[[type[nn.Module]], nn.Module]] = {
    "scripted": lambda kind: torch.jit.trace(kind().eval(), make_inputs()),
    "frozen": lambda kind: torch.jit.freeze(torch.jit.trace(kind().eval(), make_inputs())),
    "part": lambda kind: kind(torch.jit.script(nn.SiLU())),
    "function": lambda kind: kind(script_swish()),
    "autograd": lambda kind: kind(Swish.apply),
    "operator": lambda kind: kind(make_operator()),
    "checkpoint": lambda kind: kind(lambda x: checkpoint(F.silu, x, use_reentrant=False)),
    "exported": lambda kind: export(kind().eval()).module(),
    "decomposed": lambda kind: export(kind().eval()).run_decompositions().module(),
}


@functools.cache
def classify(kind: type[nn.Module], form: str = "") -> standfast.Model:
    return classify_module(FORMS[form](kind) if form else kind())


def classify_module(module: nn.Module, **options: Any) -> standfast.Model:
    return standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64, **options)


@functools.cache
def expect(kind: type[nn.Module], explainer: standfast.explainers.Explainer) -> Tensor:
    return explainer(classify(kind), make_inputs(), 1)


def get_explainers() -> list[Any]:
    """Of the composites of LRP, which share their code, two with all of their rules."""
    more = [
        LRPComposite("gamma", "z_plus", "flat"),
        LRPComposite("alpha2_beta1", "epsilon", "box"),
        AttnLRP(0.1, 0.2),
    ]
    names = [
        "saliency",
        "integrated_gradients",
        *(n for n in WITH_RULES if not n.startswith(("lrp_", "deep_taylor"))),
    ]
    own = [standfast.explainers.get(name) for name in names]
    return [pytest.param(each, id=f"{each.label}{i}") for i, each in enumerate([*own, *more])]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("explainer", get_explainers())
def test_the_map_is_that_of_the_module_or_refused(explainer, form):
    """`torch.compile` is tested with all explainers in `model/test_model_compiled.py`."""
    of_tokens = explainer.label.startswith("attention_")
    if of_tokens and form == "decomposed":
        pytest.skip(
            "takes ten seconds to make; an attention in it is refused as other functions without rules are"
        )
    kind = Transformer if of_tokens else Images
    expected = expect(kind, explainer)
    refused = None
    try:
        found = explainer(classify(kind, form), make_inputs(), 1)
    except StandfastError as error:
        refused = error
    if refused is None:
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    else:
        assert explainer.label not in PLAIN
        of_layers = explainer.label in ("gradcam", "guided_gradcam", "fullgrad")
        assert form != "exported" or of_layers or of_tokens


def test_code_besides_the_path_from_the_input_is_allowed():
    class Beside(Images):
        def forward(self, x: Tensor) -> Tensor:
            # in the graph, but not of the input
            factor = self.activation(torch.ones(1, requires_grad=True))
            return self.head(F.max_pool2d(self.norm(self.convolution(factor * x)), 2))

    maps = [
        standfast.explainers.get("guided_backprop")(
            classify_module(Beside(activation)), make_inputs(), 1
        )
        for activation in (Swish.apply, F.silu)
    ]
    torch.testing.assert_close(*maps)


def run_views(x: Tensor) -> Tensor:
    y = x * 1.0
    part = y[:, :2]
    part.mul_(2.0)
    y.add_(1.0)
    return torch.cat([part, y], 1)  # the graph of `part` is made again, because `y` was changed


def run_hooks(x: Tensor) -> Tensor:
    layer = nn.Linear(8, 8).requires_grad_(False)
    layer.register_full_backward_hook(lambda *_: None)
    return layer(x)


@pytest.mark.parametrize(
    "function", [run_views, run_hooks, lambda x: x.relu_(), lambda x: x.unbind(1)[0]]
)
def test_what_torch_itself_does_counts_as_seen(function):
    leaf = torch.rand(3, 8, requires_grad=True)
    with FunctionMode() as mode:
        result = mode.run_module("a test", function, leaf.clone())
    assert torch.autograd.grad(result.sum(), leaf)[0].any()


def test_another_thread_is_not_seen():
    def run(x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append(x * 2))
        thread.start()
        thread.join()
        return found[0] + 1

    leaf = torch.rand(3, 8, requires_grad=True)
    with FunctionMode() as mode, pytest.raises(ModelError, match="MulBackward0"):
        mode.run_module("a test", run, leaf.clone())


@pytest.mark.parametrize(
    "call",
    [
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, False, 0.1, 1e-3),
        lambda x, m, v, w, b: F.batch_norm(
            x, running_var=v, running_mean=m, bias=b, weight=w, eps=1e-3
        ),
        lambda x, m, v, w, b: torch.batch_norm(x, w, b, m, v, False, 0.1, 1e-3, True),
        lambda x, m, v, w, b: torch.ops.aten.batch_norm(x, w, b, m, v, False, 0.1, 1e-3, True),
        lambda x, m, v, w, b: torch.ops.aten.batch_norm.default(
            x, w, b, m, v, False, 0.1, 1e-3, True
        ),
    ],
)
@pytest.mark.parametrize("name", ["lrp_epsilon_plus", "deep_taylor"])
def test_every_form_of_batch_normalisation_is_merged(name, call):
    """Equal to a network without it, whose layer before it has the scale and the shift."""

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.first, self.last = nn.Conv1d(2, 4, 3), nn.Linear(4, 3)
            self.numbers = nn.Parameter(torch.rand(4, 4) + 0.2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(call(self.first(x), *self.numbers)).mean(2))

    class Merged(Called):
        def forward(self, x: Tensor) -> Tensor:
            mean, variance, weight, bias = self.numbers
            scale = weight / (variance + 1e-3).sqrt()
            z = F.conv1d(
                x, self.first.weight * scale[:, None, None], (self.first.bias - mean) * scale + bias
            )
            return self.last(torch.relu(z).mean(2))

    x = torch.rand(3, 2, 7, generator=torch.Generator().manual_seed(4))
    explainer = standfast.explainers.get(name)
    maps = [explainer(classify_module(m()), x, 1) for m in (Called, Merged)]
    torch.testing.assert_close(*maps, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*look like probabilities")
@pytest.mark.parametrize("name", ["lrp", "lrp_epsilon_plus", "attn_lrp"])
@pytest.mark.parametrize("last", ["log_softmax", "logsumexp", "sigmoid"])
def test_a_last_step_that_is_no_logit_is_named(name, last):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            z = self.linear(x)
            made = {"log_softmax": lambda: F.log_softmax(z, 1), "sigmoid": lambda: torch.sigmoid(z)}
            return made[last]() if last in made else z - z.logsumexp(1, keepdim=True)

    with pytest.raises(ModelError, match=f"return the logits: remove the {last}"):
        standfast.explainers.get(name)(classify_module(Last()), torch.rand(2, 5), 1)


def make_rectifiers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("whole", [True, False])
def test_relus_that_cannot_be_smooth_end_a_search_with_gradients(whole):
    module = (
        torch.jit.script(make_rectifiers())
        if whole
        else nn.Sequential(torch.jit.script(make_rectifiers()[:2]), make_rectifiers()[2:])
    )
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(5))
    scripted = classify_module(module)
    ball = standfast.LinfBall(0.1)
    for metric in (WorstCase(ball, search="gradient", budget=40), AttributionAttack(ball, steps=2)):
        with pytest.raises(SecondDerivativeError, match="TorchScript"):
            metric(scripted, "input_x_gradient", x)
    own = classify_module(make_rectifiers())
    blind = [
        WorstCase(ball, search=s, budget=40)(c, "input_x_gradient", x).value
        for s, c in (("auto", scripted), ("block", own))
    ]
    torch.testing.assert_close(*blind, rtol=1e-4, atol=1e-5)


def test_functions_without_a_kink_are_differentiated_twice():
    ball, x = standfast.LinfBall(0.1), make_inputs()
    metric = WorstCase(ball, search="gradient", budget=40)
    found, expected = (
        metric(classify(Images, form), "input_x_gradient", x).value for form in ("autograd", "")
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_frozen_torchscript_runs_and_keeps_what_it_is():
    frozen = FORMS["frozen"](Images)
    assert not hasattr(frozen, "training")
    wrapped = classify_module(frozen, forward=lambda module, x: module(x))
    own = classify(Images)
    for name in ("occlusion", "saliency"):
        explainer = standfast.explainers.get(name)
        torch.testing.assert_close(
            explainer(wrapped, make_inputs(), 1), explainer(own, make_inputs(), 1)
        )
    torch.testing.assert_close(wrapped.logits(make_inputs()), own.logits(make_inputs()))


def test_the_identity_of_frozen_torchscript_has_its_weights():
    """A frozen module has no parameters: its weights are constants of its code."""

    def freeze(seed: int) -> Any:
        torch.manual_seed(seed)
        frozen = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(4, 2)).eval()))
        return ask_model(
            standfast.Model(frozen, (0.0, 1.0), device="cpu"), torch.linspace(0, 1, 8).reshape(2, 4)
        )

    assert freeze(0) == freeze(0) != freeze(1)


# while torch exports
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_branch_of_a_program_is_not_seen():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.cond(x.shape[0] > 2, torch.relu, torch.tanh, (self.first(x),)))

    program = torch.export.export(
        Branches().eval(), (torch.rand(3, 5),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    branches = classify_module(program.module())
    for name in ("guided_backprop", "deeplift", "lrp"):
        with pytest.raises(ModelError, match=f"{name}: .*[cC]ond"):
            standfast.explainers.get(name)(branches, torch.rand(3, 5), 1)


def test_the_inputs_themselves_are_a_result():
    leaf = torch.rand(3, 8, requires_grad=True)
    with FunctionMode() as mode:
        assert mode.run_module("a test", lambda x: x, leaf.clone()).shape == (3, 8)


@pytest.mark.parametrize("name", ["attention_rollout", "attention_relevance"])
def test_an_attention_that_is_not_seen_is_not_left_out(name):
    """The one before all others: without gradients of the input, no graph would lead to it."""
    module = SmallViT(fused=False, depth=2).eval()
    module.blocks[0] = torch.jit.trace(module.blocks[0], torch.rand(2, 7, 12))
    with pytest.raises(ModelError, match="TorchScript"):
        standfast.explainers.get(name)(classify_module(module), make_inputs(), 1)
