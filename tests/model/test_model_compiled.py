"""Compiled, exported, half-precision and channels-last models give what the model itself gives."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
from light import light_explainer, light_metric
from torch import Tensor, nn

import standfast
from standfast.algorithms import certified_distortion, searches
from standfast.errors import ArgumentError, ModelError
from standfast.explainers import from_shap
from standfast.function_calls import run_eagerly
from standfast.metrics import AttributionAttack, WorstCase
from standfast.neighbourhoods import Rotation
from standfast.question.grid import LoadedModel, Samples
from standfast.study.identity import Description, describe_model
from standfast.study.store import tensor_digest
from standfast.testing import small_transformer

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    # while torch compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]

#: those that find their layers, which an exported program does not have
OF_LAYERS = {"gradcam", "guided_gradcam", "fullgrad"}


def make_module() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, nn.Linear(54, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def make_inputs() -> Tensor:
    return torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))


def compile_module(module: nn.Module) -> nn.Module:
    # "aot_eager" differentiates ahead of time, as "inductor" does, and needs no C++ compiler
    return torch.compile(module, backend="aot_eager")  # type: ignore[return-value]


def export_module(module: nn.Module) -> nn.Module:
    program = torch.export.export(
        module, (make_inputs(),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    return program.module()


def classify(module: nn.Module) -> standfast.Model:
    return standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64)


@pytest.fixture(scope="module", params=[compile_module, export_module])
def pair(request) -> tuple[standfast.Model, standfast.Model]:
    """A model of the module itself, and one of the compiled or exported module, which has run once."""
    own, made = classify(make_module()), classify(request.param(make_module()))
    standfast.explainers.get("saliency")(made, make_inputs())
    return own, made


def is_exported(model: standfast.Model) -> bool:
    return isinstance(model.module, torch.fx.GraphModule)


@pytest.mark.parametrize(
    "name", [n for n in standfast.explainers.names() if not n.startswith("attention_")]
)
def test_explainers(pair, name):
    own, made = pair
    explainer = light_explainer(name)
    if is_exported(made) and name in OF_LAYERS:
        with pytest.raises((ArgumentError, ModelError), match="without any|needs a convolution"):
            explainer(made, make_inputs())
        return
    expected = explainer(own, make_inputs())
    torch.testing.assert_close(explainer(made, make_inputs()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_metrics(pair, name):
    _, made = pair
    metric = light_metric(name)
    if is_exported(made) and name == "parameter_sensitivity_consistency":
        with pytest.raises(ArgumentError, match="neither convolutions nor linear layers"):
            metric(made, "input_x_gradient", make_inputs())
        return
    expected, found = (metric(model, "input_x_gradient", make_inputs()) for model in pair)
    assert found.status == expected.status
    assert found.model_evaluations.tolist() == expected.model_evaluations.tolist()
    torch.testing.assert_close(
        found.value.double(), expected.value.double(), rtol=1e-3, atol=1e-3, equal_nan=True
    )


@pytest.mark.parametrize(
    "metric",
    [
        WorstCase(standfast.LinfBall(0.1), search="gradient", budget=120),
        AttributionAttack(standfast.LinfBall(0.1), steps=5),
    ],
)
def test_second_derivatives(pair, metric):
    """The network with softplus is differentiated twice, also where compiled code could not do so."""
    expected, found = (metric(model, "input_x_gradient", make_inputs()).value for model in pair)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_flags_are_restored(pair):
    _, made = pair
    modes = [module.training for module in made.module.modules()]
    made.module.training = True
    try:
        made.predict(make_inputs())
        assert made.module.training
    finally:
        made.module.training = modes[0]
    assert [module.training for module in made.module.modules()] == modes


def test_a_compiled_function_within_the_module():
    module = make_module()
    compiled = torch.compile(module[3:], backend="aot_eager")
    inside = classify(nn.Sequential(module[:3], compiled))
    standfast.explainers.get("saliency")(inside, make_inputs())
    for name in ("lrp", "guided_backprop", "gradcam"):
        expected = standfast.explainers.get(name)(classify(make_module()), make_inputs())
        torch.testing.assert_close(
            standfast.explainers.get(name)(inside, make_inputs()), expected, rtol=1e-4, atol=1e-5
        )


def test_rows_that_fit_are_counted_without_compiling():
    calls = []
    module = make_module()
    plain = standfast.Model(make_module(), (0.0, 1.0), device="cpu")
    expected = plain.row_budget(make_inputs(), count=10**6)
    module.compile(backend=lambda graph, _inputs: calls.append("compiled") or graph.forward)
    # without a batch size, or else nothing is counted
    compiled = standfast.Model(module, (0.0, 1.0), device="cpu")
    assert compiled.row_budget(make_inputs(), count=10**6) == expected
    assert not calls


def test_the_stance_ends_with_the_block():
    calls = []

    def backend(graph, _inputs):
        calls.append("compiled")
        return graph.forward

    function = torch.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(ZeroDivisionError), run_eagerly():
        function(torch.ones(2))
        assert not calls
        raise ZeroDivisionError
    function(torch.ones(2))
    assert calls


def test_the_stance_lasts_until_the_last_thread_ends():
    """Thread A starts, B starts, A ends: B is still eager. Then B ends."""
    calls = []

    def backend(graph, _inputs):
        calls.append("compiled")
        return graph.forward

    function = torch.compile(lambda x: x + 2, backend=backend)
    began, ended = threading.Event(), threading.Event()

    def first() -> None:
        with run_eagerly():
            began.set()
            ended.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(60)
    with run_eagerly():
        ended.set()
        thread.join()
        function(torch.ones(2))
        assert not calls
    function(torch.ones(2))
    assert calls


def export_training(module: nn.Module) -> nn.Module:
    return torch.export.export(module.train(), (torch.rand(4, 12),)).module()


def test_a_program_in_training_mode_is_refused():
    module = nn.Sequential(nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 3))
    with pytest.raises(
        ArgumentError, match=r"export it in evaluation mode.*batch_norm, dropout in training mode"
    ):
        classify(nn.Sequential(nn.Flatten(), export_training(module)))
    classify(torch.export.export(module.eval(), (torch.rand(4, 12),)).module())


def test_a_program_that_is_the_same_in_both_modes_is_accepted():
    classify(
        export_training(
            nn.Sequential(nn.BatchNorm1d(12, track_running_stats=False), nn.Dropout(0.0))
        )
    )


@pytest.mark.parametrize("name", ["GuidedBackprop", "Deconvolution", "DeepLift", "LayerGradCam"])
def test_explainers_with_hooks_refuse_programs(name):
    explainer = standfast.explainers.get(
        f"captum:{name}", **({"layer": "0"} if name == "LayerGradCam" else {})
    )
    with pytest.raises(
        ArgumentError, match=f"module with layers for captum.{name}.*exported by torch.export"
    ):
        explainer(classify(export_module(make_module())), make_inputs(), 0)
    traced = classify(torch.fx.symbolic_trace(make_module()))  # which has its layers
    expected = explainer(classify(make_module()), make_inputs(), 0)
    torch.testing.assert_close(explainer(traced, make_inputs(), 0), expected)


def test_hooks_are_refused_for_torchscript_and_by_the_other_adapters():
    scripted = classify(torch.jit.trace(make_module(), make_inputs()))
    with pytest.raises(ArgumentError, match="compiled to TorchScript"):
        standfast.explainers.get("captum:GuidedBackprop")(scripted, make_inputs(), 0)

    class DeepExplainer:
        def __init__(self, model, data):
            pass

        def shap_values(self, x):
            return x

    with pytest.raises(ArgumentError, match="module with layers"):
        from_shap(DeepExplainer)(classify(export_module(make_module())), make_inputs(), 0)


def test_other_packages_without_hooks_explain_programs():
    explainer = standfast.explainers.get("captum:Saliency")
    expected = explainer(classify(make_module()), make_inputs(), 0)
    found = explainer(classify(export_module(make_module())), make_inputs(), 0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_a_call_leaves_the_identity_of_a_compiled_model(nested):
    torch.compiler.reset()  # code that is compiled already would not be changed by the call
    compiled = compile_module(nn.Linear(4, 3))
    module = nn.Sequential(nn.Flatten(), compiled) if nested else compiled
    before = Description(module).digest
    module(torch.rand(2, 4))
    assert Description(module).digest == before
    plain = nn.Linear(4, 3)
    plain.load_state_dict(compiled._orig_mod.state_dict())
    assert before != Description(nn.Sequential(nn.Flatten(), plain) if nested else plain).digest
    with torch.no_grad():
        compiled._orig_mod.bias.add_(1)
    assert Description(module).digest != before


class _Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0]


def test_a_module_without_second_derivatives_is_named():
    """The kernel of torch's fast attention has none; the function that calls it is replaced, the kernel is not."""
    torch.manual_seed(0)
    model = classify(nn.Sequential(_Attention(), nn.Flatten(), nn.Linear(144, 3)))
    WorstCase(standfast.LinfBall(0.1), search="random", budget=20)(model, "saliency", make_inputs())
    with pytest.raises(ModelError, match=r"differentiated twice.*use a search without gradients"):
        WorstCase(standfast.LinfBall(0.1), search="gradient", budget=60)(
            model, "saliency", make_inputs()
        )
    with pytest.raises(ModelError, match="differentiated twice"):
        AttributionAttack(standfast.LinfBall(0.1), steps=5)(model, "saliency", make_inputs())
    found = WorstCase(standfast.LinfBall(0.1), search="auto", budget=60)(
        model, "saliency", make_inputs()
    )
    assert not found.followed_gradients.any()


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_channels_last(name):
    metric = light_metric(name)
    modules = make_module(), make_module().to(memory_format=torch.channels_last)
    x = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    inputs = x, x.to(memory_format=torch.channels_last)
    expected, found = (
        metric(classify(module), "input_x_gradient", own)
        for module, own in zip(modules, inputs, strict=True)
    )
    assert found.status == expected.status
    torch.testing.assert_close(
        found.value.double(), expected.value.double(), rtol=1e-3, atol=1e-3, equal_nan=True
    )


HALF = pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"]
)
#: and a module in float32 that runs under autocast, with the channels last
HALF_OR_MIXED = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, "mixed"], ids=str)
#: for what takes long, and does not depend on which digits are missing: one of them, and the others with the slow tests
ONE_OF_THEM = pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.float16, "mixed")),
    ],
    ids=str,
)
#: how far a map's cosine may be from 1, and a value from the same one in float32: eight and eleven bits
MISSING = {torch.bfloat16: 0.01, torch.float16: 0.001, "mixed": 0.01}
APART = {torch.bfloat16: 0.15, torch.float16: 0.04, "mixed": 0.15}


def mix(module: nn.Module, batch_size: int = 16) -> standfast.Model:
    module = module.to(memory_format=torch.channels_last)
    return standfast.Model(
        module, (0.0, 1.0), device="cpu", batch_size=batch_size, mixed_precision="bfloat16"
    )


def halve(
    dtype: torch.dtype | str, attention: bool = False
) -> tuple[standfast.Model, standfast.Model, Tensor]:
    """A model in half or mixed precision, one in float32 with the same weights, and the same inputs for both.

    The network has no max-pooling, whose winner depends on the last digit, and logits that differ by more than that.
    """

    def make() -> nn.Module:
        module = small_transformer((1, 12, 12)) if attention else make_module()
        if not attention:
            module[2] = nn.AvgPool2d(2)  # type: ignore[operator]
            for parameter in module.parameters():
                parameter.data.mul_(2)
        return module if dtype == "mixed" else module.to(dtype)

    if dtype == "mixed":
        return mix(make()), classify(make()), make_inputs()
    return classify(make()), classify(make().float()), make_inputs().to(dtype)


# on processors that multiply in bfloat16, DeepLIFT's sums are no better than its digits
@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
@HALF_OR_MIXED
@pytest.mark.parametrize("name", standfast.explainers.names())
def test_maps_in_half_precision(name, dtype):
    half, single, inputs = halve(dtype, name.startswith("attention_"))
    explainer, targets = light_explainer(name), torch.tensor([0, 1, 2])
    found, expected = explainer(half, inputs, targets), explainer(single, inputs.float(), targets)
    assert found.dtype == torch.float32
    alike = torch.cosine_similarity(found.flatten(1), expected.flatten(1))
    assert alike.min() > 1 - MISSING[dtype]
    torch.testing.assert_close(found.norm(), expected.norm(), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", ["deeplift", "deep_shap", "deep_taylor"])
def test_small_numbers_in_float16(name):
    """Units that hardly differ from the baseline, and small relevance: constants of float32 are 0 or too large here."""
    explainer, inputs = standfast.explainers.get(name), make_inputs().half()
    found = explainer(classify(make_module().half()), inputs, 1)
    expected = explainer(classify(make_module().half().float()), inputs.float(), 1)
    assert torch.cosine_similarity(found.flatten(1), expected.flatten(1)).min() > 0.999


@ONE_OF_THEM
@pytest.mark.parametrize("name", standfast.metrics.names())
def test_metrics_in_half_precision(name, dtype):
    half, single, inputs = halve(dtype)
    metric = light_metric(name)
    found, expected = (
        metric(half, "input_x_gradient", inputs),
        metric(single, "input_x_gradient", inputs.float()),
    )
    assert found.status == expected.status == ("ok",) * 3
    apart = (found.value - expected.value).abs() / expected.value.abs().clamp(min=1)
    assert apart.max() < APART[dtype]
    if dtype == torch.bfloat16:
        other = standfast.Model(half.module.module, (0.0, 1.0), device="cpu", batch_size=16)
        # for any batch size
        assert torch.equal(metric(other, "input_x_gradient", inputs).value, found.value)


@ONE_OF_THEM
@pytest.mark.parametrize("search", searches.names())
def test_searches_in_half_precision(search, dtype):
    half, single, inputs = halve(dtype)
    kind = Rotation(20) if search == "grid" else standfast.L2Ball(0.5)
    metric = WorstCase(kind, search=search, budget=24)
    found, expected = metric(half, "gradcam", inputs), metric(single, "gradcam", inputs.float())
    # the last digit may turn the search of one sample
    assert (found.value - expected.value).abs().median() < 0.1
    assert found.inputs.dtype == torch.float32


@ONE_OF_THEM
def test_evaluate_in_half_precision(dtype):
    """Every metric, with the files and the table of a study; the values are those of the metric alone."""
    half, _, inputs = halve(dtype)
    metrics = {name: light_metric(name) for name in standfast.metrics.names()}
    found = standfast.evaluate(half, ["gradcam"], inputs[:2], metrics, progress=False, controls=())
    assert not found.failures
    frame, name = found.frame(), "relevance_localisation"  # which draws no random numbers
    own = frame.filter(frame["label"] == name)["value"]
    assert own.to_list() == pytest.approx(metrics[name](half, "gradcam", inputs[:2]).value.tolist())


@HALF_OR_MIXED
def test_half_precision_has_an_identity_of_its_own(dtype):
    """A study must not take its results for those of the same weights in float32."""
    half, single, _ = halve(dtype)
    assert describe_model(half, {}) == describe_model(halve(dtype)[0], {})
    assert describe_model(half, {}) != describe_model(single, {})
    if dtype == "mixed":
        return
    assert tensor_digest(torch.ones(2, dtype=dtype)) != tensor_digest(torch.ones(2))
    assert tensor_digest(torch.ones(2, dtype=dtype)) != tensor_digest(torch.zeros(2, dtype=dtype))


@HALF
def test_certified_bounds_count_the_rounding_of_half_precision(dtype):
    """So they are nearer to 0 than in float32."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    inputs = torch.rand(3, 4).to(dtype)
    found = certified_distortion(classify(module), inputs).lower
    expected = certified_distortion(classify(module.float()), inputs.float()).lower
    assert (found < expected * (1 - torch.finfo(dtype).eps)).all()
    assert found.max() > 0.5 * expected.max()


def test_a_model_that_returns_half_precision():
    """As one with autocast in its forward does."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_module()

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x)

    model = classify(Mixed())
    assert model.logits(make_inputs()).dtype == torch.float32
    metric = WorstCase(standfast.LinfBall(0.1), budget=30)
    assert metric(model, "gradcam", make_inputs()).value.isfinite().all()


def test_mixed_precision_is_kept_for_another_device_and_refused_where_it_cannot_be():
    """Workers make the model of a certain card again, from the one that is there."""
    x, samples = make_inputs(), Samples(make_inputs())
    model = mix(make_module(), 24)
    again = LoadedModel(model).model(samples, "cpu:0")
    assert again is not model
    assert torch.equal(again.logits(x), model.logits(x))
    assert describe_model(again, {}) == describe_model(model, {})
    assert not torch.equal(classify(make_module()).logits(x), model.logits(x))
    for module in (make_module().bfloat16(), make_module().double()):
        with pytest.raises(ArgumentError, match="mixed_precision"):
            mix(module)
    with pytest.raises(ArgumentError, match="mixed_precision"):
        standfast.Model(make_module(), (0.0, 1.0), mixed_precision="float16")  # type: ignore[arg-type]


@HALF
def test_half_precision_with_preprocessing_and_forward(dtype):
    torch.manual_seed(0)
    module, x = nn.Linear(4, 3).to(dtype), torch.rand(2, 4).to(dtype)

    def double(module: nn.Module, x: Tensor) -> Tensor:
        assert x.dtype == dtype
        return 2 * module(x)

    mean = torch.tensor([0.1, 0.2, 0.3, 0.4])
    # as the user rounds them, and the inputs at their ends
    given = (
        mean.to(dtype) - 1,
        mean.to(dtype) + 1,
    )
    model = standfast.Model(
        module, given, preprocess=lambda x: x - mean, device="cpu", forward=double
    )
    expected = 2 * module.float()(x.float() - mean)
    module.to(dtype)
    torch.testing.assert_close(model.logits(x), expected, rtol=0.02, atol=0.02)
    assert model.check_inputs(given[1][None]).dtype == torch.float32
    with pytest.raises(ArgumentError, match=f"or {dtype} .the module.s."):
        model.logits(x.double())


class LastToken(nn.Module):
    """A stand-in for a decoder: logits of the last token that is not padding, as the identifiers show it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.config = nn.Embedding(9, 3, padding_idx=0), SimpleNamespace(pad_token_id=0)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        last = (input_ids.ne(0) * torch.arange(input_ids.shape[1])).argmax(1)
        return SimpleNamespace(logits=self.words(input_ids)[torch.arange(len(last)), last])


def test_compiled_models_see_the_embeddings() -> None:
    compiled, tokens = (
        torch.compile(LastToken(), backend="eager"),
        torch.tensor([[4, 8, 3], [7, 0, 0]]),
    )
    for _ in range(2):
        compiled(input_ids=tokens, attention_mask=(tokens != 0).long())
    text = standfast.zoo.TransformersText(compiled)
    x = text.embed(tokens)
    assert torch.equal(text(x + 1), torch.stack([x[0, :, 2], x[1, :, 2]]) + 1)
    assert torch.equal(text(x), torch.stack([x[0, :, 2], x[1, :, 0]]))
