"""AttnLRP of answers: relevance starts as the logits of the explained tokens, and adds up where nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_answers import SENTENCES, BagOfWords, make_llama, make_prompt, make_tokenizer
from torch import Tensor, nn

import standfast
from standfast.errors import ModelError
from standfast.texts.answer_network import read_answer

WEIGHTS = {"Ann": 1.5, "built": 0.75, "old": -0.5, "river": 0.25, "red": 0.4, "stone": -1.2}


def explain(
    network: nn.Module, prompt: standfast.Prompt, explainer: str = "attn_lrp"
) -> list[float]:
    model = standfast.AnswerModel(network, make_tokenizer(), device="cpu")
    return [value for _, value in standfast.explain(model, explainer, prompt)]


def read_ids(text: str) -> list[int]:
    ids: list[int] = make_tokenizer()(text, add_special_tokens=False)["input_ids"]
    return ids


class WordsAdded(BagOfWords):
    """The same model with a product of matrices in the place of a running sum, which has no rule."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        count = input_ids.shape[1]
        earlier = torch.tril(torch.ones(count, count))
        sums = (self.words(input_ids) * attention_mask[..., None]).transpose(1, 2) @ earlier.T
        zeros = torch.zeros(*input_ids.shape, len(self.words.weight))
        before, after = zeros[..., : self.answer], zeros[..., self.answer + 1 :]
        return torch.cat([before, sums.transpose(1, 2), after], 2)


def test_relevance_of_an_additive_model_is_its_weights() -> None:
    """The logit of the answer is the sum of the weights of all words, and each word gets its own."""
    worth = [
        sum(WEIGHTS.get(word, 0.0) for word in sentence.replace(".", " .").split())
        for sentence in SENTENCES
    ]
    assert explain(WordsAdded(WEIGHTS), make_prompt()) == pytest.approx(worth, abs=1e-6)
    # the second token of the answer comes after "Ann", which adds to its logit and is not of the context
    twice = explain(WordsAdded(WEIGHTS), make_prompt(answer="Ann Ann"))
    assert twice == pytest.approx([2 * weight for weight in worth], abs=1e-6)
    second = explain(WordsAdded(WEIGHTS), make_prompt(answer="Ann Ann", statement="Ann"))
    assert second == pytest.approx(worth, abs=1e-6)


class TargetLogits(nn.Module):
    """The sum of the logits of an answer, from the embeddings `(N, dim, T)` of a prompt and the answer."""

    def __init__(self, network: Any, answer: list[int]) -> None:
        super().__init__()
        self.network, self.answer = network, answer

    def forward(self, embeddings: Tensor) -> Tensor:
        logits = self.network(inputs_embeds=embeddings.transpose(1, 2)).logits
        first = logits.shape[1] - len(self.answer) - 1
        total = sum(logits[:, first + place, token] for place, token in enumerate(self.answer))
        return torch.stack([total, 0 * total], 1)


@pytest.mark.parametrize("seed", [0, 3])
def test_relevance_of_a_llama_is_that_of_its_target_logits(seed: int) -> None:
    """As AttnLRP explains a module of embeddings that returns the sum of these logits, without texts and answers."""
    network, answer = make_llama(seed=seed), read_ids("by Ann")
    context = " ".join(SENTENCES)
    ids = read_ids(f"user : Context: {context}\n\nQuery: Who built the bridge ? Answer : by Ann")
    with torch.no_grad():
        embeddings = network.model.embed_tokens(torch.tensor([ids])).transpose(1, 2)
    module = TargetLogits(network, answer)
    bare = standfast.Model(module, (-100.0, 100.0), device="cpu")
    relevance = standfast.explainers.get("attn_lrp")(bare, embeddings, 0)[0].sum(0).tolist()
    start = len(read_ids("user : Context:"))
    expected: list[float] = []
    for sentence in SENTENCES:
        count = len(read_ids(sentence))
        expected.append(sum(relevance[start : start + count]))
        start += count
    found = explain(network, make_prompt(answer="by Ann"))
    assert found == pytest.approx(expected, abs=1e-4)
    assert max(map(abs, found)) > 1e-2


def test_the_score_stays_the_log_probability() -> None:
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    usual = read_answer(logits, (1, 2, 3), (0, 2), None)
    at_logits = read_answer(logits, (1, 2, 3), (0, 2), None, at_logits=True)
    torch.testing.assert_close(usual, at_logits, rtol=0, atol=1e-6)
    (gradient,) = torch.autograd.grad(at_logits[:, 0].sum(), logits)
    expected = torch.zeros_like(logits)
    expected[:, 0, 1] = expected[:, 2, 3] = 1.0
    assert torch.equal(gradient, expected)


def test_evaluate_takes_it_with_its_controls() -> None:
    model = standfast.AnswerModel(make_llama(), make_tokenizer(), device="cpu")
    found = standfast.evaluate(
        model, ["attn_lrp"], [make_prompt(answer="by Ann")], "aopc", sanity=False, progress=False
    )
    assert found.failures == []
    assert set(found.samples["status"]) == {"ok"}


def test_lrp_of_layers_alone_is_refused_in_one_sentence() -> None:
    with pytest.raises(ModelError, match="lrp: expected a module made of functions with a rule"):
        explain(make_llama(), make_prompt(), "lrp")
