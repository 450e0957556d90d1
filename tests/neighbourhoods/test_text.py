"""Swapped tokens: their probabilities, texts that stay texts, and tables of typos and casings."""

from __future__ import annotations

import itertools
import json
import random
from functools import partial
from typing import Any

import pytest
import torch
from refusals import assert_refused
from scipy import stats
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.metrics.base import plain
from standfast.neighbourhoods import Compose, TokenSwaps, case_table, typo_table
from standfast.study.file.options import neighbourhood_from, to_plain
from standfast.tensors import Streams
from standfast.zoo import EmbeddedText, padded_batch

WORDS, DIM = 12, 4
SYNONYMS = {1: (2, 3, 4), 5: [6], 7: (8, 0, 7), 0: (1,)}


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM, padding_idx=0)
        self.head = nn.Linear(DIM, 2)

    def read(self, embedded: Tensor, present: Tensor) -> Tensor:
        there = present[..., None].to(embedded)
        logits: Tensor = self.head(torch.tanh((embedded * there).sum(1)))
        return logits


@pytest.fixture(scope="module")
def text() -> EmbeddedText:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BagOfWords().eval()
    return EmbeddedText(model, model.words, BagOfWords.read, padding=0)


def make_swaps(text: EmbeddedText, rate: float = 0.3, **options: Any) -> TokenSwaps:
    return TokenSwaps(text.embedding.weight.detach(), options.pop("table", SYNONYMS), rate, **{"padding": 0, **options})


def read_tokens(text: EmbeddedText, embedded: Tensor) -> Tensor:
    """By the distance to all embeddings: `(M, T)`; each position holds one of them exactly."""
    weight = text.embedding.weight.detach()
    distance = (embedded.transpose(1, 2)[:, :, None] - weight).abs().amax(3)
    assert float(distance.amin(2).max()) == 0
    return distance.argmin(2)


def test_candidates_have_their_probabilities(text: EmbeddedText) -> None:
    tokens = padded_batch([[1, 5, 7, 9, 1], [5]], padding=0)
    region = make_swaps(text).around(text.embed(tokens), text.bounds())
    points = region.sample(20_000, Streams([0, 1], torch.device("cpu")))
    found = read_tokens(text, region.perturb(points[0], torch.zeros(20_000, dtype=torch.int64)))
    kept = [0.7, 0.1, 0.1, 0.1]
    for place, ids, expected in ((0, [1, 2, 3, 4], kept), (1, [5, 6], [0.7, 0.3]), (2, [7, 8], [0.7, 0.3])):
        observed = [int((found[:, place] == token).sum()) for token in ids]
        assert sum(observed) == 20_000
        assert stats.chisquare(observed, [20_000 * p for p in expected]).pvalue > 1e-3
    assert bool((found[:, 3] == 9).all())
    # positions are independent
    table = [[int(((found[:, 0] == a) & (found[:, 4] == b)).sum()) for a in (1, 2, 3, 4)] for b in (1, 2, 3, 4)]
    assert stats.chi2_contingency(table).pvalue > 1e-3
    other = read_tokens(text, region.perturb(points[1], torch.ones(20_000, dtype=torch.int64)))
    assert bool((other[:, 1:] == 0).all())  # padding


def test_the_text_itself_and_single_swaps(text: EmbeddedText) -> None:
    inputs = text.embed(torch.tensor([[1, 5, 9], [7, 2, 1]]))
    for x in (inputs, inputs.double()):
        region = make_swaps(text).around(x)
        assert region.shape == (3,)
        assert not region.differentiable
        assert torch.equal(region.perturb(region.centre, torch.arange(2)), x)
    points = torch.tensor([[0.71, 0.69, 1.0], [1.0, 1.0, 0.95], [0.85, 0.71, 0.0], [0.75, 0.71, 0.85]])
    problem = torch.tensor([0, 1, 0, 1])
    found = region.perturb(points.double(), problem)
    assert found.dtype == torch.float64
    assert read_tokens(text, found.float()).tolist() == [[2, 5, 9], [8, 2, 4], [3, 6, 9], [8, 2, 3]]
    for row in range(4):
        assert torch.equal(region.perturb(points[row : row + 1].double(), problem[row : row + 1])[0], found[row])


def test_metrics_return_texts(text: EmbeddedText) -> None:
    model = standfast.Model(text, text.bounds(), device="cpu")
    inputs = text.embed(padded_batch([[1, 5, 7, 9, 1], [5, 1, 10]], padding=0))
    swaps = make_swaps(text, 0.75)
    worst = standfast.metrics.WorstCase(
        swaps, event="changed_explanation", similarity="pearson", search="random", budget=300, absolute=False
    )
    found = worst(model, "input_x_gradient", inputs)
    changed = read_tokens(text, found.inputs)
    assert bool((changed[1, 3:] == 0).all())
    allowed = [{1, 2, 3, 4}, {5, 6}, {7, 8}, {9}, {1, 2, 3, 4}]
    assert all(token in ids for token, ids in zip(changed[0].tolist(), allowed, strict=True))
    # the worst of all 64 texts that keep the class
    every = text.embed(torch.tensor(list(itertools.product(*allowed))))
    every = every[model.predict(every) == found.targets[0]]
    explain = standfast.explainers.get("input_x_gradient")
    maps, clean = explain(model, every, found.targets[0]), explain(model, inputs[:1])
    alike = [stats.pearsonr(one.flatten(), clean.flatten()).statistic for one in maps.double()]
    assert float(found.value[0]) == pytest.approx(min(alike), abs=1e-5)


def test_swapped_words_are_stored_by_position(text: EmbeddedText) -> None:
    weight, words = text.embedding.weight.detach(), [f"word {number}" for number in range(WORDS)]
    named = make_swaps(text, words=words)
    assert named == make_swaps(text)  # results do not depend on the words
    assert set(dict(named.words or {})) == {other for ids in SYNONYMS.values() for other in ids}
    before, after = weight[torch.tensor([[1, 5, 9]])].transpose(1, 2), weight[torch.tensor([[3, 5, 9]])].transpose(1, 2)
    assert [json.loads(each) for each in named.name_swaps(before, after)] == [{"0": "word 3"}]
    assert [json.loads(each) for each in make_swaps(text).name_swaps(before, after)] == [{"0": "#3"}]
    assert make_swaps(text, words=json.loads(json.dumps(plain(named)))["words"]).words == named.words  # as stored
    assert make_swaps(text, words={word: number for number, word in enumerate(words)}).words == named.words
    assert Compose((named,)).name_swaps(before, after) == named.name_swaps(before, after)
    assert standfast.LinfBall(0.1).name_swaps(before, after) is None
    metric = standfast.metrics.WorstCase(
        named, event="changed_explanation", similarity="pearson", search="random", budget=20
    )
    inputs = text.embed(padded_batch([[1, 5, 7, 9, 1]], padding=0))
    found = metric(standfast.Model(text, text.bounds()), "input_x_gradient", inputs)
    (stored,) = found.frame()["swapped_words"]
    changed = read_tokens(text, found.inputs)[0].tolist()
    old = read_tokens(text, inputs)[0].tolist()
    assert json.loads(stored) == {str(i): words[b] for i, (a, b) in enumerate(zip(old, changed, strict=True)) if a != b}


def test_typos_are_those_of_the_edit_distance() -> None:
    """Against the dynamic programme of the distance with swaps of neighbours, on random words."""

    def distance(a: str, b: str) -> int:
        rows = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
        for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
            change = rows[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, change)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
        return rows[len(a), len(b)]

    source = random.Random(0)
    words = sorted({"".join(source.choices("abcA", k=source.randint(2, 6))) for _ in range(90)})
    expected = {}
    for number, word in enumerate(words):
        near = [n for n, other in enumerate(words) if distance(word, other) == 1]
        near = [n for n in near if words[n].lower() != word.lower() and min(len(words[n]), len(word)) >= 3]
        if near:
            expected[number] = tuple(near)
    assert typo_table(words, shortest=3) == expected
    assert len(expected) > 30
    vocabulary = {"##form": 10, "##from": 3, "from": 4, "From": 5, "Ġfrom": 6, "Ġform": 7, "[form]": 8, "99999": 1}
    assert typo_table(vocabulary) == {3: (10,), 6: (7,), 7: (6,), 10: (3,)}
    assert case_table(vocabulary) == {4: (5,), 5: (4,)}


def test_in_a_composition_and_in_a_study_file(text: EmbeddedText) -> None:
    weight = text.embedding.weight.detach()
    twice = Compose((TokenSwaps(weight, {1: (5,)}, 0.5), TokenSwaps(weight, {5: (6,)}, 0.5)))
    region = twice.around(text.embed(torch.tensor([[1, 5]])), text.bounds())
    found = region.perturb(torch.tensor([[0.9, 0.9, 0.9, 0.1]]), torch.tensor([0]))
    assert read_tokens(text, found).tolist() == [[6, 5]]
    assert make_swaps(text) == make_swaps(text)
    assert "probability of 30%" in make_swaps(text).describe()
    stored = neighbourhood_from(
        {"token_swaps": {"embedding": {"path": "words.npy"}, "table": {1: [2, 3]}, "rate": 0.2}}
    )
    assert isinstance(stored, TokenSwaps)
    assert stored.table[1] == (2, 3)
    assert neighbourhood_from(to_plain(stored)) == stored


def test_what_does_not_fit(text: EmbeddedText) -> None:
    assert_refused(partial(make_swaps, text), rate=[1.0], table=[{1: (WORDS,)}, {-1: (1,)}, {1: 2}, {0: (1,)}, 3])
    assert_refused(partial(make_swaps, text), padding=[WORDS, "<pad>"], distribution=["truncated_normal"])


def test_inputs_that_do_not_fit(text: EmbeddedText) -> None:
    swaps, inputs = make_swaps(text), text.embed(torch.tensor([[1, 5, 9]]))
    with pytest.raises(ArgumentError, match="inputs: expected embeddings of tokens, .* got others, at row 0, token 1"):
        swaps.around(inputs + torch.tensor([0.0, 0.1, 0.0]))
    with pytest.raises(ArgumentError, match=r"inputs: expected embeddings of shape \(N, 4, tokens\)"):
        swaps.around(inputs.transpose(1, 2))
    with pytest.raises(ArgumentError, match="bounds: expected the embeddings of all candidates within the bounds"):
        swaps.around(inputs, (inputs.amin((0, 2))[:, None], inputs.amax((0, 2))[:, None]))
    with pytest.raises(ArgumentError, match=r"embedding: expected the embeddings of all tokens, .*got torch.int64"):
        TokenSwaps(torch.zeros(3, 4, dtype=torch.int64), {})
    with pytest.raises(ArgumentError, match="vocabulary: expected words"):
        typo_table("word")
