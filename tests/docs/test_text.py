"""Text classifiers from their embeddings on: the model itself, tokens removed by padding, and the example."""

from __future__ import annotations

import importlib.util
import itertools
import math
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import holdfast
from holdfast.errors import ArgumentError, ModelError
from holdfast.zoo import EmbeddedText, from_text_transformers, padded_batch, text_classifier, token_relevance

EXAMPLE = Path(__file__).parents[2] / "examples" / "text.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    found = importlib.util.spec_from_file_location("text_example", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def reader(example: ModuleType, radius: float = 0.0) -> EmbeddedText:
    """Untrained, so that every token counts."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = example.Reader(dim=8).eval()
    return EmbeddedText(model, model.words, example.Reader.read, padding=0, radius=radius)


def ids(*texts: list[int]) -> Tensor:
    return padded_batch(texts, padding=0)


TEXTS = ([3, 9, 1, 14, 20], [5, 2, 7], [8, 8, 1, 1, 26])


def test_the_model_is_the_users(example: ModuleType) -> None:
    text = reader(example)
    classifier = text_classifier(text, device="cpu", batch_size=32)
    x = text.embed(ids(*TEXTS))
    assert x.shape == (3, 8, 5)
    assert not x.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(classifier.logits(x), text.model(ids(*TEXTS)))
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
    maps = holdfast.explainers.get("saliency", absolute=False)(classifier, x, 1)
    torch.testing.assert_close(maps, gradient)
    assert bool((maps[1, :, 3:] == 0).all())  # padding
    torch.testing.assert_close(token_relevance(maps), gradient.sum(1))


def test_shapley_values_of_tokens_by_leaving_them_out(example: ModuleType) -> None:
    """KernelSHAP with the padding as baseline, against all subsets of tokens, each a text without the others."""
    text = reader(example)
    classifier = text_classifier(text, device="cpu")
    tokens = ids(TEXTS[0])
    explainer = holdfast.explainers.get("kernel_shap", samples=30, segments="pixels", baseline=text.baseline())
    maps = explainer(classifier, text.embed(tokens), 1)
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


def test_a_ball_leaves_padding_alone(example: ModuleType) -> None:
    """Within the radius a padded text says what the bare one says, and its other tokens are still there."""
    radius = 0.9 * reader(example).separation
    text, strict = reader(example, radius), reader(example)
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


def test_what_does_not_fit(example: ModuleType) -> None:
    text = reader(example)
    model = text.model
    with pytest.raises(ArgumentError, match="tokens: expected ids from 0 to 28, got 3 to 29"):
        text.embed(torch.tensor([[3, 29]]))
    with pytest.raises(ArgumentError, match=r"tokens: expected token ids \(N, T\), whole numbers"):
        text.embed(torch.rand(1, 3))
    with pytest.raises(ModelError, match=r"expected embeddings of shape \(N, 8, tokens\), got \(1, 3, 8\)"):
        text(torch.rand(1, 3, 8))
    with pytest.raises(ArgumentError, match="radius: expected a number from 0 to 0"):
        reader(example, radius=2 * text.separation)
    with pytest.raises(ArgumentError, match="radius: expected a number from 0 to 0 without padding"):
        EmbeddedText(model, model.words, example.Reader.read, radius=0.1)
    with pytest.raises(ArgumentError, match="padding"):
        EmbeddedText(model, model.words, example.Reader.read, padding=29)
    with pytest.raises(ArgumentError, match="embedding"):
        EmbeddedText(model, nn.ReLU(), example.Reader.read)
    with pytest.raises(ArgumentError, match="margin"):
        text.bounds(margin=-1)
    with pytest.raises(ArgumentError, match="texts of at least one token"):
        padded_batch([[1], []], 0)
    with pytest.raises(ArgumentError, match="model: expected a sequence classifier of transformers"):
        from_text_transformers(nn.ReLU())


def test_the_example(example: ModuleType, tmp_path: Path) -> None:
    """Trained on reviews whose relevant words are known; explanations by leaving words out find them."""
    text = example.build_embedded_text()
    classifier = text_classifier(text, device="cpu")
    texts, labels = example.reviews(60, seed=1)
    inputs = text.embed(example.tokens(texts))
    assert float((classifier.predict(inputs) == labels).float().mean()) > 0.95
    explainer = holdfast.explainers.get("kernel_shap", samples=100, segments="pixels", baseline=text.baseline())
    relevance = token_relevance(explainer(classifier, inputs[:20]))
    hits, telling, other = 0, [], []
    for words, values in zip(texts[:20], relevance.abs(), strict=True):
        places = {n for n, word in enumerate(words) if word in (*example.GOOD, *example.BAD, "not")}
        hits += int(values.argmax()) in places
        telling += [float(values[n]) for n in places]
        other += [float(values[n]) for n in range(len(words)) if n not in places]
    # by chance a quarter of the texts would be hit: 15 or more of 20 with probability 4e-6
    assert hits >= 15
    assert sum(telling) / len(telling) > 3 * sum(other) / len(other)
    found = example.evaluate(samples=2, budget=40)
    assert found.failures == []
    assert len(found.frame()) == (2 * 4 + 8) * 2  # one of three metrics evaluates four controls as well
    assert set(found.frame()["status"]) == {"ok"}


def bert() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(
        **sizes, vocab_size=30, max_position_embeddings=12, num_labels=3, initializer_range=0.5
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.BertForSequenceClassification(config).eval()


def test_sequence_classifiers_of_transformers() -> None:
    model = bert()
    text = from_text_transformers(model)
    classifier = text_classifier(text, device="cpu", batch_size=32)
    tokens = ids(*TEXTS)
    with torch.no_grad():
        expected = model(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    x = text.embed(tokens)
    torch.testing.assert_close(classifier.logits(x), expected, rtol=1e-4, atol=1e-5)
    assert text.padding == 0
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(text(leaf).gather(1, expected.argmax(1)[:, None]).sum(), leaf)
    maps = holdfast.explainers.get("input_x_gradient")(classifier, x)
    torch.testing.assert_close(maps, x * gradient, rtol=1e-3, atol=1e-6)
    result = holdfast.metrics.MaxSensitivity(holdfast.LinfBall(0.01), samples=3)(classifier, "saliency", x)
    assert set(result.status) == {"ok"}
