"""Sentences of film reviews: words, vectors, the archive, the bundled extract, the model."""

from __future__ import annotations

import hashlib
import io
import tarfile
from importlib.resources import files
from pathlib import Path

import pooch
import pytest
import torch

from standfast import data, zoo
from standfast.data import sentence_files as module
from standfast.errors import ArgumentError
from standfast.training.classifier import accuracy

LINES = [
    "1\t2.25\tA  great film, isn't it?",
    "2\t-1.5\tToo long &amp; too loud!",
    "3\t0.0\tNeither",
    "4\t2.5\tA  great film, isn't it?",  # again
    *(f"{number}\t{(-1) ** number}\tgood film number {number}" for number in range(5, 25)),
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    (tmp_path / module.FOLDER).mkdir()
    return tmp_path / module.FOLDER


def pack(content: bytes, name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def write(root: Path, lines: list[str]) -> None:
    inner = pack("\n".join(lines).encode(), f"hutto_ICWSM_2014/{module.FILE}")
    (root / module.ARCHIVE).write_bytes(pack(inner, module.INNER))


def test_a_file_of_ratings(root: Path) -> None:
    """Every tenth sentence of those that count is to test."""
    write(root, LINES)
    texts, ratings = module.read_sentences("train")
    assert texts[:2] == ("A  great film, isn't it?", "Too long &amp; too loud!")
    assert ratings[:2].tolist() == [2.25, -1.5]  # of sentences that come twice the first
    assert "Neither" not in texts
    test_texts, test_ratings = module.read_sentences("test")
    assert test_texts == ("good film number 12", "good film number 22")
    assert len(texts) == 20
    sentences = data.load("movie_sentences:test")
    assert sentences.labels.tolist() == (test_ratings > 0).long().tolist() == [1, 1]
    assert sentences.tokens == (("good", "film", "number", "12"), ("good", "film", "number", "<22>"))
    assert data.load("movie_sentences:train").inputs.shape == (20, 32, 6)


def test_files_that_do_not_fit(root: Path) -> None:
    with pytest.raises(data.MissingDataError, match=r"no vaderSentiment-2.5.tar.gz in .*pip"):
        data.movie_sentences()
    with pytest.raises(ArgumentError, match="split: expected train or test, got 'dev'"):
        data.movie_sentences("dev")
    (root / module.ARCHIVE).write_bytes(pack(b"", "other"))
    with pytest.raises(ArgumentError, match="expected the source archive of vaderSentiment 2.5"):
        data.movie_sentences()
    write(root, ["1\t2.25\tfine", "2\tgood film"])
    with pytest.raises(ArgumentError, match="expected lines of number, rating and text.*got line 2"):
        data.movie_sentences()


def test_a_download_is_verified(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def retrieve(url: str, checksum: str, fname: str, path: Path) -> str:
        asked.append((url, checksum))
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(data.MissingDataError, match="could not download https.*no network"):
        data.movie_sentences(download=True)
    assert asked == [(module.URL + module.ARCHIVE, f"sha256:{module.SHA256}")]


def test_word_vectors_by_hand() -> None:
    words = data.WordVectors(("<pad>", "<unknown>", "dull", "film"), torch.tensor([[0.0, 0], [1, 0], [2, 0], [0, 3]]))
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
    torch.testing.assert_close(known.vectors[1:].norm(dim=1), torch.ones(len(known.words) - 1), rtol=0, atol=1e-3)
    filled = (sentences.inputs != 0).any(1).sum(1).tolist()
    assert filled == [len(words) for words in sentences.tokens or ()]


def test_the_bundled_sentences_are_from_the_test_set() -> None:
    try:
        texts, ratings = module.read_sentences("test")
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    content = (files("standfast.data") / "assets" / "sentences.tsv").read_text("utf-8")
    rated = dict(zip(texts, ratings.tolist(), strict=True))
    for line in content.splitlines():
        rating, text = line.split("\t")
        assert float(rating) == pytest.approx(rated[text], abs=1e-4)
    test = data.load("movie_sentences:test")
    claimed = zoo.card("transformer-sentences")["test_accuracy"]
    measured = accuracy(zoo.load("transformer-sentences"), test.inputs, test.labels)
    assert measured == pytest.approx(claimed, abs=2.5 / len(test))


def test_the_classifier_of_sentences() -> None:
    """Its card, and its accuracy on the bundled sentences, within four standard errors of the test set's."""
    name, sentences = "transformer-sentences", data.load("sentences")
    card, network = zoo.card(name), zoo.load(name)
    weights = (files("standfast.zoo") / "weights" / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == card["weights_sha256"]
    expected = card["test_accuracy"]
    assert expected >= 0.75
    error = (expected * (1 - expected) / 200) ** 0.5
    assert accuracy(network, sentences.inputs, sentences.labels) == pytest.approx(expected, abs=4 * error)
    # a sentence with padding is the same sentence, and perturbed padding is padding
    short = (sentences.inputs != 0).any(1).sum(1)[0]
    with torch.no_grad():
        padded, bare = network(sentences.inputs[:1]), network(sentences.inputs[:1, :, :short])
        torch.testing.assert_close(padded, bare)
        moved = sentences.inputs[:1].clone()
        moved[:, :, short:] += 0.04
        torch.testing.assert_close(network(moved), bare)
