"""Sentences of film reviews: words, vectors, the bundled extract, the model."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest
import torch

from standfast import data, zoo
from standfast.data import sentence_files as module
from standfast.errors import ArgumentError
from standfast.training.classifier import accuracy


def test_word_vectors_by_hand() -> None:
    words = data.WordVectors(
        ("<pad>", "<unknown>", "dull", "film"), torch.tensor([[0.0, 0], [1, 0], [2, 0], [0, 3]])
    )
    texts = ["Dull FILM!", "a film’s film"]
    assert words.find_numbers(texts).tolist() == [[2, 3, 1], [1, 1, 3]]
    assert words.find_numbers(texts, length=2).tolist() == [[2, 3], [1, 1]]
    assert words.embed(texts, length=4)[0].T.tolist() == [[2, 0], [0, 3], [1, 0], [0, 0]]
    assert words.mark_unknown(texts[1]) == ("<a>", "<film's>", "film")
    made = words.make_dataset("mine", texts, torch.tensor([0, 1]))
    assert (made.bounds, made.classes) == ((-3.0, 3.0), ("negative", "positive"))
    with pytest.raises(ArgumentError, match="texts: expected texts of at least one word"):
        words.embed(["..."])
    with pytest.raises(ArgumentError, match="vectors: expected zeros for word number 0"):
        data.WordVectors(words.words, words.vectors + 1)
    with pytest.raises(ArgumentError, match="vectors: expected a vector for each of 4 words"):
        data.WordVectors(words.words, words.vectors[:3])


def test_the_bundled_sentences() -> None:
    sentences, known = data.bundled("sentences"), data.word_vectors()
    assert sentences.inputs.shape == (200, 32, 24)
    assert sentences.labels.tolist() == [0, 1] * 100
    assert known.words[:2] == (module.PADDING, module.UNKNOWN)
    assert len(set(known.words)) == len(known.words) == len(known.vectors)
    torch.testing.assert_close(
        known.vectors[1:].norm(dim=1), torch.ones(len(known.words) - 1), rtol=0, atol=1e-3
    )
    filled = (sentences.inputs != 0).any(1).sum(1).tolist()
    assert filled == [len(words) for words in sentences.tokens or ()]


def test_the_classifier_of_sentences() -> None:
    """Its card, and its accuracy on the bundled sentences, within four standard errors of the test set's."""
    name, sentences = "transformer-sentences", data.load("sentences")
    card, network = zoo.card(name), zoo.load(name)
    weights = (files("standfast.zoo") / "weights" / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == card["weights_sha256"]
    expected = card["test_accuracy"]
    assert expected >= 0.75
    error = (expected * (1 - expected) / 200) ** 0.5
    assert accuracy(network, sentences.inputs, sentences.labels) == pytest.approx(
        expected, abs=4 * error
    )
    # a sentence with padding is the same sentence, and perturbed padding is padding
    short = (sentences.inputs != 0).any(1).sum(1)[0]
    with torch.no_grad():
        padded, bare = network(sentences.inputs[:1]), network(sentences.inputs[:1, :, :short])
        torch.testing.assert_close(padded, bare)
        moved = sentences.inputs[:1].clone()
        moved[:, :, short:] += 0.04
        torch.testing.assert_close(network(moved), bare)
