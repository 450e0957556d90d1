"""The text explainers of Captum and shap beside ours, on a small trained BERT with a real tokenizer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from small_texts import SPECIALS, read_reviews, train_bert, train_tokenizer, wrap_tokenizer
from torch import Tensor

import standfast

TEXTS = [
    "A dull film.",
    "An unbelievably great and moving picture, isn't it?",
    "dreadful",
    read_reviews()[0][7],
]


def sum_words(tokens: Tensor, encoded: Any, words: list[str], text: str) -> list[float]:
    """Numbers of tokens, of which each belongs to the word that ends next, by the places in the string."""
    found, last = [], 0
    for word in words:
        end = text.index(word, last) + len(word)
        inside = [last < own <= end for _, own in encoded.offsets]
        found.append(float(tokens[torch.tensor(inside)].sum()))
        last = end
    return found


@pytest.mark.parametrize("removal", ["mask", "pad"])
@pytest.mark.parametrize("kind", ["wordpiece", "bytes"])
def test_integrated_gradients_are_those_of_captum(kind: str, removal: str) -> None:
    """`LayerIntegratedGradients` of each text alone, from special tokens and, between them, masks or padding."""
    captum = pytest.importorskip("captum.attr", reason="needs captum")
    network, tokenizer = train_bert(kind), train_tokenizer(kind)
    put = tokenizer.token_to_id(SPECIALS[kind][2 if removal == "mask" else 1])
    model = standfast.TextModel(network, tokenizer, removal=removal, device="cpu")
    explainer = standfast.explainers.get("integrated_gradients", steps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explained = standfast.explain(model, explainer, TEXTS, targets=1)
    peer = captum.LayerIntegratedGradients(
        lambda ids: network(ids, attention_mask=torch.ones_like(ids)).logits,
        network.bert.embeddings.word_embeddings,
    )
    for text, own in zip(TEXTS, explained, strict=True):
        encoded = tokenizer.encode(text)
        ids = torch.tensor([encoded.ids])
        special = torch.tensor([encoded.special_tokens_mask]).bool()
        base = torch.where(special, ids, put)
        tokens = peer.attribute(ids, base, target=1, n_steps=8).sum(2)[0].double()
        expected = sum_words(tokens, encoded, [word for word, _ in own], text)
        np.testing.assert_allclose(
            [value for _, value in own],
            expected,
            rtol=1e-3,
            atol=1e-6 + 1e-4 * max(map(abs, expected)),
        )


def test_gradient_times_input_is_that_of_captum() -> None:
    captum = pytest.importorskip("captum.attr", reason="needs captum")
    network, tokenizer = train_bert(), train_tokenizer("wordpiece")
    model = standfast.TextModel(network, tokenizer, device="cpu")
    layer = network.bert.embeddings.word_embeddings
    peer = captum.LayerGradientXActivation(lambda ids: network(ids).logits, layer)
    for text, own in zip(
        TEXTS, standfast.explain(model, "input_x_gradient", TEXTS, targets=0), strict=True
    ):
        encoded = tokenizer.encode(text)
        tokens = peer.attribute(torch.tensor([encoded.ids]), target=0).sum(2)[0].detach().double()
        expected = sum_words(tokens, encoded, [word for word, _ in own], text)
        np.testing.assert_allclose([value for _, value in own], expected, rtol=1e-3, atol=1e-5)


def test_shapley_values_are_those_of_shap() -> None:
    """shap's KernelSHAP over all coalitions of words, which it does not know as strings: we write these here."""
    shap = pytest.importorskip("shap", reason="needs shap")
    network, tokenizer = train_bert(), train_tokenizer("wordpiece")
    model = standfast.TextModel(network, tokenizer, removal="mask", device="cpu")
    for text in ("the film isn't so good", "unbelievably dull and bad"):
        words = text.split()

        def ask(kept: Any, words: list[str] = words) -> Any:
            strings = [
                " ".join(word if own else "[MASK]" for word, own in zip(words, row, strict=True))
                for row in kept
            ]
            encoded = [tokenizer.encode(string).ids for string in strings]
            with torch.no_grad():
                return np.array(
                    [network(torch.tensor([ids])).logits[0, 1].item() for ids in encoded]
                )

        (own,) = standfast.explain(
            model, standfast.explainers.get("kernel_shap", samples=200), [text], targets=1
        )
        assert [word for word, _ in own] == words
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = shap.KernelExplainer(ask, np.zeros((1, len(words))))
            expected = peer.shap_values(
                np.ones((1, len(words))), nsamples=200, l1_reg=False, silent=True
            )[0]
        np.testing.assert_allclose([value for _, value in own], expected, rtol=1e-3, atol=1e-4)


def test_shap_explains_by_its_own_words() -> None:
    """`shap.Explainer(f, shap.maskers.Text(tokenizer))` as an explainer of a study: its tokens summed to words."""
    shap = pytest.importorskip("shap", reason="needs shap")
    network, tokenizer = train_bert(), wrap_tokenizer("wordpiece")
    model = standfast.TextModel(network, tokenizer, device="cpu")
    masker = shap.maskers.Text(tokenizer)

    def explain_by_shap(predict: Any, texts: list[str], classes: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shap.Explainer(predict, masker)(texts, max_evals=60)

    texts = TEXTS[1:2]
    explained = standfast.explain(model, explain_by_shap, texts, targets=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = shap.Explainer(
            lambda strings: model.logits([*map(str, strings)]).softmax(1).numpy(), masker
        )(texts, max_evals=60)
    for text, own, values in zip(texts, explained, found.values, strict=True):
        encoded = train_tokenizer("wordpiece").encode(text)
        expected = sum_words(
            torch.from_numpy(values[:, 1]).double(), encoded, [word for word, _ in own], text
        )
        np.testing.assert_allclose([value for _, value in own], expected, rtol=1e-3, atol=1e-5)
    assert max(abs(value) for own in explained for _, value in own) > 1e-2
