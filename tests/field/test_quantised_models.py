"""Networks with quantised layers, which have no gradients, and whose dynamic kind looks at the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ModelError, NoGradientsError
from standfast.function_calls import check_has_gradients

# torch is going to remove this package, and says so in many ways
pytestmark = pytest.mark.filterwarnings("ignore")
quantization = pytest.importorskip(
    "torch.ao.quantization", reason="torch has no quantisation of its own any more"
)


def make_dynamic(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(*layers).eval()
    return quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)


def make_static(x: Tensor) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    static = nn.Sequential(quantization.QuantStub(), layers, quantization.DeQuantStub()).eval()
    static.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(static)
    prepared(x)
    return quantization.convert(prepared)


@pytest.fixture
def inputs() -> Tensor:
    return torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def engine() -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this processor has no kernels for quantised layers")
    torch.backends.quantized.engine = "fbgemm"


BY_GRADIENTS = [
    "saliency",
    "input_x_gradient",
    "integrated_gradients:steps=4",
    "smoothgrad:samples=4",
]
BY_GRADIENTS += ["deeplift", "lrp"]


@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_dynamic_layers_have_no_gradients(name: str, inputs: Tensor, engine: None) -> None:
    network = make_dynamic(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 3))
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    with pytest.raises(NoGradientsError, match="Are its layers quantised"):
        standfast.explainers.get(name)(model, inputs)
    assert bool(standfast.explainers.get("occlusion")(model, inputs).any())


def test_grad_cam_behind_a_quantised_head(inputs: Tensor, engine: None) -> None:
    """The convolution is not quantised, but nothing flows back to it."""
    network = make_dynamic(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    with pytest.raises(NoGradientsError, match="no gradients by layer '0'.*quantised"):
        standfast.explainers.get("gradcam")(model, inputs)


def test_a_quantised_branch_beside_another_is_refused(inputs: Tensor, engine: None) -> None:
    """Gradients of the other branch alone would be those of another function."""
    branch = make_dynamic(nn.Linear(64, 3))
    leaf = inputs.flatten(1).requires_grad_(True)
    with pytest.raises(NoGradientsError, match="quantised"):
        check_has_gradients((branch(leaf) + leaf[:, :3]).sum(), leaf)
    beside = branch(torch.rand(4, 64, requires_grad=True))
    check_has_gradients((beside + leaf[:, :3]).sum(), leaf)  # of other values than these


@pytest.mark.parametrize("name", [*BY_GRADIENTS, "deep_shap"])
def test_static_layers_have_no_gradients(name: str, inputs: Tensor, engine: None) -> None:
    model = standfast.Model(make_static(inputs), bounds=(0.0, 1.0), device="cpu")
    with pytest.raises(NoGradientsError, match="its logits have no gradients"):
        standfast.explainers.get(name)(model, inputs)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5161, 16)  # as many as `word_vectors` has
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        return (self.head(self.words(ids)) * present[..., None]).sum(1)


def test_a_reader_of_texts_with_dynamic_layers(engine: None) -> None:
    torch.manual_seed(0)
    reader = Words().eval()
    texts = ["a great film, really", "dull"]
    assert standfast.TextModel(reader, standfast.data.word_vectors(), device="cpu").logits(
        texts
    ).shape == (2, 2)
    reader.head = quantization.quantize_dynamic(reader.head, {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ModelError, match=r"dynamic quantization \(head\.0, head\.2\)"):
        standfast.TextModel(reader, standfast.data.word_vectors(), device="cpu").logits(texts)
