"""Captum's attribution of language models beside ours, on one tiny model, where both define the same thing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from small_answers import SENTENCES, make_llama, make_tokenizer
from small_texts import transformers

import standfast

OURS = "Context : {documents} Query : {question} ? Answer :"


def make_model(network: Any) -> standfast.AnswerModel:
    return standfast.AnswerModel(
        network, make_tokenizer(chat=False), chat=False, template=OURS, device="cpu"
    )


def attribute(
    network: Any, kind: str, target: str, sentences: Sequence[str] = SENTENCES
) -> list[float]:
    """What Captum says of each sentence, of which a missing one is an empty text."""
    attr = pytest.importorskip("captum.attr", reason="needs captum")
    transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        language = attr.LLMAttribution(getattr(attr, kind)(network), make_tokenizer(chat=False))
        template = f"Context : {'{} ' * len(sentences)}Query : Who built the bridge ? Answer :"
        inputs = attr.TextTemplateInput(template, list(sentences), baselines=[""] * len(sentences))
        # with its cache, Captum 0.9 scores later tokens wrongly: this version of transformers writes into the cache
        found = language.attribute(inputs, target=target, use_cached_outputs=False)
    values: list[float] = found.seq_attr.flatten().tolist()
    return values


def test_leave_one_out_is_captums_feature_ablation() -> None:
    network = make_llama(seed=5)
    prompt = standfast.Prompt("Who built the bridge", [" ".join(SENTENCES)], answer="by Ann")
    ours = [value for _, value in standfast.explain(make_model(network), "occlusion", prompt)]
    theirs = attribute(network, "FeatureAblation", "by Ann")
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_shapley_values_are_those_of_captum() -> None:
    """Ours are exact, with all 16 contexts; Captum's are the mean over all 24 orders."""
    network, sentences = make_llama(seed=5), SENTENCES[:4]
    prompt = standfast.Prompt("Who built the bridge", [" ".join(sentences)], answer="by Ann")
    ours = [value for _, value in standfast.explain(make_model(network), "kernel_shap", prompt)]
    theirs = attribute(network, "ShapleyValues", "by Ann", sentences)
    assert ours == pytest.approx(theirs, abs=1e-4)
