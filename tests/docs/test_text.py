"""Text classifiers from their embeddings on: the model itself, and tokens removed by padding."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.zoo import EmbeddedText, TransformersText, padded_batch, token_relevance


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
    explainer = standfast.explainers.get(
        "kernel_shap", samples=30, segments="pixels", baseline=text.baseline()
    )
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
    noise = radius * torch.where(
        torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0
    )
    moved = x + noise
    assert torch.equal(text.present(moved), text.present(x))
    assert bool(strict.present(moved).all())
    with torch.no_grad():
        bare = text((x + noise)[1:2, :, :3])
        torch.testing.assert_close(text(moved)[1:2], bare)
        assert not torch.allclose(strict(moved)[1:2], bare, atol=1e-3)
    # also for a model that leaves it to the embeddings
    careless = EmbeddedText(
        text.model, text.embedding, lambda m, e, p: e.sum(1)[:, :2], padding=0, radius=radius
    )
    torch.testing.assert_close(careless(moved)[1], moved[1, :2, :3].sum(1))
    nearest = (
        (text.embedding.weight[1:].detach() - text.embedding.weight[0].detach()).abs().amax(1).min()
    )
    assert text.separation == pytest.approx(float(nearest) / 2)


def test_what_does_not_fit() -> None:
    text = reader()
    model = text.model
    with pytest.raises(ArgumentError, match="tokens: expected ids from 0 to 28, got 3 to 29"):
        text.embed(torch.tensor([[3, 29]]))
    with pytest.raises(ArgumentError, match=r"tokens: expected token ids \(N, T\), whole numbers"):
        text.embed(torch.rand(1, 3))
    with pytest.raises(
        ModelError, match=r"expected embeddings of shape \(N, 8, tokens\), got \(1, 3, 8\)"
    ):
        text(torch.rand(1, 3, 8))
    with pytest.raises(ArgumentError, match="radius: expected a number from 0 to 0"):
        reader(radius=2 * text.separation)
    with pytest.raises(
        ArgumentError, match="radius: expected a number from 0 to 0 without padding"
    ):
        EmbeddedText(model, model.words, Reader.read, radius=0.1)
    for call, message in (
        (lambda: EmbeddedText(model, model.words, Reader.read, padding=29), "padding"),
        (lambda: EmbeddedText(model, nn.ReLU(), Reader.read), "embedding"),
        (lambda: text.bounds(margin=-1), "margin"),
        (lambda: padded_batch([[1], []], 0), "texts of at least one token"),
        (
            lambda: TransformersText(nn.ReLU()),
            "model: expected a sequence classifier of transformers",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


def bert() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
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
    result = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.01), samples=3)(
        model, "saliency", x
    )
    assert set(result.status) == {"ok"}
