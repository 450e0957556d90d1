"""Text classifiers from their embeddings on: the model itself, tokens removed by padding, and the example."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.zoo import EmbeddedText, TransformersText, padded_batch, token_relevance

EXAMPLES = Path(__file__).parents[2] / "examples"


class Reader(nn.Module):
    """Attention between tokens and a mean over them; 29 words, of which number 0 is padding."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(29, dim, padding_idx=0)
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def read(self, embedded: Tensor, present: Tensor) -> Tensor:
        """Logits of embeddings `(N, T, dim)`, of which `present` `(N, T)` are there."""
        there = present[..., None].to(embedded)
        x = embedded * there
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5
        x = (x + scores.masked_fill(~present[:, None], -1e4).softmax(2) @ self.value(x)) * there
        logits: Tensor = self.head(x.sum(1) / there.sum(1).clamp(min=1))
        return logits

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of token ids `(N, T)`."""
        return self.read(self.words(ids), ids != 0)


def reader(radius: float = 0.0) -> EmbeddedText:
    """Untrained, so that every token counts."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Reader().eval()
    return EmbeddedText(model, model.words, Reader.read, padding=0, radius=radius)


def ids(*texts: list[int]) -> Tensor:
    return padded_batch(texts, padding=0)


TEXTS = ([3, 9, 1, 14, 20], [5, 2, 7], [8, 8, 1, 1, 26])


def test_the_model_is_the_users() -> None:
    text = reader()
    model = standfast.Model(text, text.bounds(), device="cpu", batch_size=32)
    x = text.embed(ids(*TEXTS))
    assert x.shape == (3, 8, 5)
    assert not x.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(model.logits(x), text.model(ids(*TEXTS)))
        torch.testing.assert_close(text(text.embed(ids(TEXTS[1]))), text.model(ids(*TEXTS))[1:2])
    assert text.present(x).tolist() == [[True] * 5, [True] * 3 + [False] * 2, [True] * 5]
    lower, upper = text.bounds(margin=0.5)
    weight = text.embedding.weight.detach()
    torch.testing.assert_close((upper - lower)[:, 0], 2 * (weight.amax(0) - weight.amin(0)))
    assert text.baseline() == (0.0,) * 8
    assert [name for name, _ in text.named_children()] == ["model"]
    assert sum(p is text.embedding.weight for p in text.parameters()) == 1
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(text(leaf)[:, 1].sum(), leaf)
    maps = standfast.explainers.get("saliency", absolute=False)(model, x, 1)
    torch.testing.assert_close(maps, gradient)
    assert bool((maps[1, :, 3:] == 0).all())  # padding
    torch.testing.assert_close(token_relevance(maps), gradient.sum(1))


def test_shapley_values_of_tokens_by_leaving_them_out() -> None:
    """KernelSHAP with the padding as baseline, against all subsets of tokens, each a text without the others."""
    text = reader()
    model = standfast.Model(text, text.bounds(), device="cpu")
    tokens = ids(TEXTS[0])
    explainer = standfast.explainers.get("kernel_shap", samples=30, segments="pixels", baseline=text.baseline())
    maps = explainer(model, text.embed(tokens), 1)
    assert bool((maps[0] == maps[0, :1]).all())
    many = list(itertools.product([0, 1], repeat=5))
    with torch.no_grad():
        worth = dict(zip(many, text.model(tokens * torch.tensor(many))[:, 1].tolist(), strict=True))
    for player in range(5):
        value = 0.0
        for mask in (m for m in many if not m[player]):
            size = sum(mask)
            weight = math.factorial(size) * math.factorial(4 - size) / math.factorial(5)
            joined = tuple(1 if place == player else on for place, on in enumerate(mask))
            value += weight * (worth[joined] - worth[mask])
        assert maps[0, 0, player].item() == pytest.approx(value, abs=1e-4)


def test_a_ball_leaves_padding_alone() -> None:
    """Within the radius a padded text says what the bare one says, and its other tokens are still there."""
    radius = 0.9 * reader().separation
    text, strict = reader(radius), reader()
    x = text.embed(ids(*TEXTS))
    noise = radius * torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0)
    moved = x + noise
    assert torch.equal(text.present(moved), text.present(x))
    assert bool(strict.present(moved).all())
    with torch.no_grad():
        bare = text((x + noise)[1:2, :, :3])
        torch.testing.assert_close(text(moved)[1:2], bare)
        assert not torch.allclose(strict(moved)[1:2], bare, atol=1e-3)
    # also for a model that leaves it to the embeddings
    careless = EmbeddedText(text.model, text.embedding, lambda m, e, p: e.sum(1)[:, :2], padding=0, radius=radius)
    torch.testing.assert_close(careless(moved)[1], moved[1, :2, :3].sum(1))
    nearest = (text.embedding.weight[1:].detach() - text.embedding.weight[0].detach()).abs().amax(1).min()
    assert text.separation == pytest.approx(float(nearest) / 2)


def test_what_does_not_fit() -> None:
    text = reader()
    model = text.model
    with pytest.raises(ArgumentError, match="tokens: expected ids from 0 to 28, got 3 to 29"):
        text.embed(torch.tensor([[3, 29]]))
    with pytest.raises(ArgumentError, match=r"tokens: expected token ids \(N, T\), whole numbers"):
        text.embed(torch.rand(1, 3))
    with pytest.raises(ModelError, match=r"expected embeddings of shape \(N, 8, tokens\), got \(1, 3, 8\)"):
        text(torch.rand(1, 3, 8))
    with pytest.raises(ArgumentError, match="radius: expected a number from 0 to 0"):
        reader(radius=2 * text.separation)
    with pytest.raises(ArgumentError, match="radius: expected a number from 0 to 0 without padding"):
        EmbeddedText(model, model.words, Reader.read, radius=0.1)
    for call, message in (
        (lambda: EmbeddedText(model, model.words, Reader.read, padding=29), "padding"),
        (lambda: EmbeddedText(model, nn.ReLU(), Reader.read), "embedding"),
        (lambda: text.bounds(margin=-1), "margin"),
        (lambda: padded_batch([[1], []], 0), "texts of at least one token"),
        (lambda: TransformersText(nn.ReLU()), "model: expected a sequence classifier of transformers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


@pytest.fixture(scope="module")
def example() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        found = importlib.import_module("text")
    del sys.modules["text"]
    return found


def test_the_example(example: ModuleType) -> None:
    """Words that an explanation names matter: without the two of most relevance the logit drops more than by chance."""
    model, sentences = example.load()
    found = example.evaluate(model, sentences[:1], budget=4)
    assert found.failures == []
    assert set(found.frame()["status"]) == {"ok"}
    many = sentences[:40]
    relevance = token_relevance(standfast.explainers.get("integrated_gradients", steps=16)(model, many.inputs))
    before = model.logits(many.inputs).gather(1, many.labels[:, None])[:, 0]

    def leave_out(places: Tensor) -> Tensor:
        """How much the logit of the label drops without the words at `places` `(N, 2)`."""
        without = many.inputs.scatter(2, places[:, None].expand(-1, many.inputs.shape[1], -1), 0.0)
        return before - model.logits(without).gather(1, many.labels[:, None])[:, 0]

    shortest = min(map(len, many.tokens or ()))
    by_chance = torch.rand(len(many), shortest, generator=torch.Generator().manual_seed(0)).topk(2).indices
    more = (leave_out(relevance.topk(2).indices) > leave_out(by_chance)).sum()
    assert int(more) >= 32  # of 40; if both were equally good, with probability 9e-5


def test_typing_errors_are_texts(example: ModuleType) -> None:
    """Padding stays, short words stay, and every vector is that of a word."""
    sentences = standfast.data.load("sentences")[:6]
    swaps = example.make_typos(sentences, rate=0.9)
    region = swaps.around(sentences.inputs)
    written = region.perturb(torch.full((6, 24), 0.999), torch.arange(6))
    vectors = standfast.data.word_vectors().vectors
    distance = (written.transpose(1, 2)[:, :, None] - vectors).abs().amax(3)
    nearest, numbers = distance.min(2)
    assert float(nearest.max()) == 0
    for words, row in zip(sentences.tokens or (), numbers.tolist(), strict=True):
        assert row[len(words) :] == [0] * (24 - len(words))
        for word, number in zip(words, row, strict=False):
            assert number == 1 if len(word) > 3 else number > 0


def bert() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": 30, "max_position_embeddings": 12, "num_labels": 3}
    config = transformers.BertConfig(**sizes, initializer_range=0.5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.BertForSequenceClassification(config).eval()


def test_sequence_classifiers_of_transformers() -> None:
    network = bert()
    text = TransformersText(network)
    model = standfast.Model(text, text.bounds(), device="cpu", batch_size=32)
    tokens = ids(*TEXTS)
    with torch.no_grad():
        expected = network(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    x = text.embed(tokens)
    torch.testing.assert_close(model.logits(x), expected, rtol=1e-4, atol=1e-5)
    assert text.padding == 0
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(text(leaf).gather(1, expected.argmax(1)[:, None]).sum(), leaf)
    maps = standfast.explainers.get("input_x_gradient")(model, x)
    torch.testing.assert_close(maps, x * gradient, rtol=1e-3, atol=1e-6)
    result = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.01), samples=3)(model, "saliency", x)
    assert set(result.status) == {"ok"}
