"""Groundedness: known falls, random sets, its interval, and an answer that is not grounded."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from small_answers import SENTENCES, BagOfWords, CopyingModel, make_prompt, make_tokenizer
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.errors import ArgumentError
from standfast.explainers import from_callable
from standfast.metrics import Groundedness
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys
from standfast.neighbourhoods.text import GONE
from standfast.tasks import GeneratedAnswer
from standfast.tasks.base import find_lost
from standfast.tensors import hashed_uniform


def test_it_equals_a_slow_implementation() -> None:
    x = torch.rand(3, 3, 16, generator=torch.Generator().manual_seed(0))
    model = standfast.Model(small_net((3, 16)), (0.0, 1.0), device="cpu")
    maps = (
        standfast.explainers.get("input_x_gradient")(model, x)
        .double()
        .sum(1)
        .reshape(3, 8, 2)
        .sum(2)
    )
    metric = Groundedness(cited=3, draws=12, region=2, baseline=0.5)
    result = metric(model, "input_x_gradient", x)
    keys, classes = make_sample_keys(x, 0), model.predict(x)

    def score(row: int, gone: list[int]) -> float:
        copy = x[row : row + 1].clone()
        for region in gone:
            copy[:, :, 2 * region : 2 * region + 2] = 0.5
        return float(model.logits(copy).double().softmax(1)[0, classes[row]])

    for row in range(3):
        cited = sorted(range(8), key=lambda region: -float(maps[row, region]))[:3]
        uniform = hashed_uniform(make_draw_keys(keys[row : row + 1], 12)[0], 8)
        sets = uniform.argsort(1)[:, :3].tolist()
        assert all(len(set(members)) == 3 for members in sets)
        start, fall = score(row, []), score(row, []) - score(row, cited)
        random = np.array([start - score(row, members) for members in sets])
        assert float(result.cited[row]) == pytest.approx(fall, abs=1e-6)
        assert float(result.whole[row]) == pytest.approx(
            start - score(row, list(range(8))), abs=1e-6
        )
        assert float(result.value[row]) == pytest.approx(fall - random.mean(), abs=1e-6)
        width = stats.t.ppf(0.975, 11) * random.std(ddof=1) / np.sqrt(12)
        assert result.low is not None
        assert result.high is not None
        assert float(result.high[row] - result.low[row]) == pytest.approx(2 * width, abs=1e-6)
        assert float(result.beaten[row]) == pytest.approx(np.mean(random < fall))
        assert torch.nonzero(result.cited_regions[row])[:, 0].tolist() == sorted(cited)
    assert result.model_evaluations.tolist() == [15] * 3


def know(values: list[float]) -> Any:
    """An explainer with these attributions."""

    def explain(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.tensor([values], dtype=inputs.dtype).expand(len(inputs), -1)

    return from_callable(explain)


def test_few_sets_are_all_of_them_and_the_number_is_exact() -> None:
    weights = torch.tensor([4.0, 2.0, 1.0, 0.0, 0.0])
    layer = nn.Linear(5, 2, bias=False)
    layer.weight.data = torch.stack([weights, torch.zeros(5)])
    model = standfast.Model(layer, (0.0, 1.0), device="cpu")
    metric = Groundedness(cited=2, draws=10, score="logit")
    result = metric(model, know([5.0, 4.0, 3.0, 2.0, 1.0]), torch.ones(1, 5))
    falls = [float(weights[list(members)].sum()) for members in combinations(range(5), 2)]
    assert len(falls) == 10
    assert float(result.value) == pytest.approx(6 - np.mean(falls))
    assert float(result.low) == float(result.high) == float(result.value)
    assert float(result.beaten) == pytest.approx(0.95)  # the cited set is one of them
    worst = metric(model, know([1.0, 2.0, 3.0, 4.0, 5.0]), torch.ones(1, 5))
    assert float(worst.value) == pytest.approx(-np.mean(falls))
    assert worst.describe().startswith("wrongly cited")
    assert result.describe().startswith(
        "grounded: the score falls by 6 without what is cited, and by 7 without"
    )


@pytest.mark.parametrize("explainer", ["occlusion", "context_cite", "kernel_shap"])
def test_the_sentence_that_is_copied_grounds_the_answer(explainer: str) -> None:
    model = standfast.AnswerModel(CopyingModel(), make_tokenizer(), device="cpu")
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    metric = Groundedness(cited=1)
    found = standfast.evaluate(model, explainer, [make_prompt()], metric, **options)
    row = found.samples.row(0, named=True)
    assert row["grounded"] == 1
    assert row["cited"] == pytest.approx(row["whole"], abs=1e-5)
    assert row["random"] == pytest.approx(row["whole"] / 5, abs=1e-5)
    assert row["value"] == row["low"] == row["high"]


def test_an_answer_that_is_known_without_the_context_is_not_grounded() -> None:
    """The question has the word that counts, and the context has none."""
    model = standfast.AnswerModel(
        BagOfWords({"built": 3.0, "red": 0.01}), make_tokenizer(), device="cpu"
    )
    prompt = make_prompt([sentence for sentence in SENTENCES if "built" not in sentence])
    bound, rows = model.bind(prompt)
    result = Groundedness(cited=1, least=0.1, baseline=float(GONE))(
        bound, know([4.0, 3.0, 2.0, 1.0]), rows
    )
    assert result.status == ("ok",)
    assert result.grounded.tolist() == [0.0]
    assert result.describe().startswith(
        "not grounded: without the whole context the score falls by 0.0"
    )


#: the first tokens, which no answer has
SPECIAL = ("<pad>", "<end>")


class Ignoring(nn.Module):
    """Each next token follows from the last one; all tokens before it shift the logits by chance, and by little."""

    def __init__(self, seed: int, noise: float) -> None:
        super().__init__()
        size, generator = len(make_tokenizer()), torch.Generator().manual_seed(seed)
        self.follows = nn.Embedding(size, size)
        self.shifts = nn.Embedding(size, size)
        self.follows.weight.data = 4 * torch.randn(size, size, generator=generator)
        self.follows.weight.data[:, : len(SPECIAL)] = -50.0
        self.shifts.weight.data = torch.randn(size, size, generator=generator)
        self.noise = noise

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        shifts = self.shifts(input_ids) * attention_mask[..., None]
        logits: Tensor = self.follows(input_ids) + self.noise * shifts.cumsum(1).sin()
        return logits


def judge_generated(network: nn.Module, question: str, metric: Groundedness) -> float:
    """Whether the greedy answer to a question about the sentences is grounded."""
    model = standfast.AnswerModel(network, make_tokenizer(), device="cpu", longest=12)
    bound, rows = model.bind(standfast.Prompt(question, [" ".join(SENTENCES)]))
    result = metric(bound, know([5.0, 4.0, 3.0, 2.0, 1.0]), rows)
    assert result.status == ("ok",)
    return float(result.grounded)


@pytest.mark.filterwarnings("ignore:the answer is cut")
def test_an_answer_that_ignores_its_context_is_not_grounded() -> None:
    """In 95% of the seeds or more. The greedy answer is the likeliest with its context, so it falls without it."""
    usual = Groundedness(cited=1, draws=8, baseline=float(GONE))
    any_fall = Groundedness(cited=1, draws=8, baseline=float(GONE), least=0.0)
    judged: list[float] = []
    flattered: list[float] = []
    for seed in range(40):
        network = Ignoring(seed, noise=0.4)
        judged.append(judge_generated(network, "Who built the bridge", usual))
        if seed < 20:
            flattered.append(judge_generated(network, "Who built the bridge", any_fall))
    assert np.mean(judged) <= 0.05
    assert np.mean(flattered) > 0.6


def test_an_answer_that_is_only_in_the_context_is_grounded() -> None:
    metric = Groundedness(cited=1, draws=8, baseline=float(GONE))
    for name in ("Ann", "Eva", "red", "stone"):
        network = CopyingModel(sharpness=6.0)
        model = standfast.AnswerModel(network, make_tokenizer(), device="cpu")
        sentences = [sentence.replace("Ann", name) for sentence in SENTENCES]
        bound, rows = model.bind(make_prompt(sentences, answer=name))
        result = metric(bound, know([1.0, 5.0, 3.0, 2.0, 0.0]), rows)
        assert result.grounded.tolist() == [1.0]


@pytest.mark.parametrize(("score", "least"), [("probability", None), ("logit", None)])
def test_a_class_is_grounded_where_it_is_another_one_without_all(
    score: Any, least: float | None
) -> None:
    """An intercept decides where nothing is left; that of the third class is the largest."""
    layer = nn.Linear(6, 3)
    layer.weight.data = torch.tensor([[2.0] * 6, [0.0] * 6, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    layer.bias.data = torch.tensor([0.0, 0.0, 0.5])
    model = standfast.Model(layer, (-1.0, 1.0), device="cpu")
    x = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [0.9, -0.9, -0.1, 0.0, 0.0, 0.05]])
    result = Groundedness(cited=1, draws=8, score=score, least=least)(model, "input_x_gradient", x)
    assert model.predict(x).tolist() == [0, 2]
    assert result.grounded.tolist() == [1.0, 0.0]
    assert result.describe(1).endswith("and the answer stays")


def test_a_number_is_grounded_where_it_leaves_its_tolerance() -> None:
    layer = nn.Linear(6, 1)
    layer.weight.data, layer.bias.data = torch.ones(1, 6), torch.zeros(1)
    model = standfast.Model(layer, (0.0, 1.0), device="cpu", task="regression:tolerance=1")
    x = torch.stack([torch.linspace(0.1, 0.9, 6), torch.linspace(0.01, 0.2, 6)])
    result = Groundedness(cited=1, draws=8)(model, "input_x_gradient", x)
    assert result.grounded.tolist() == [1.0, 0.0]


def test_a_statement_is_judged_by_its_own_tokens() -> None:
    """The whole answer has lost little of each token, and its one token from the context nearly all."""
    task = GeneratedAnswer()
    clean = torch.tensor([[-0.1, -0.2, -1.0, 1.0]])
    without = torch.tensor([[-3.0, -0.5, -1.0, 1.0]])
    answer = task.answer(clean)
    assert find_lost(task, clean, without, answer).tolist() == [True]
    assert not bool(task.margin(without, answer) >= 0)
    by_first = GeneratedAnswer(first=1)
    assert find_lost(by_first, clean, without, by_first.answer(clean)).tolist() == [True]


def test_what_moved_has_another_identity_and_nothing_else() -> None:
    assert Groundedness.version == 2
    assert Groundedness().options()["least"] is None


def test_a_random_citation_beats_half_of_the_others() -> None:
    layer = nn.Linear(12, 2)
    model = standfast.Model(layer, (0.0, 1.0), device="cpu")
    x = torch.rand(60, 12, generator=torch.Generator().manual_seed(1))
    result = Groundedness(cited=3, draws=40)(model, "random", x)
    assert float(result.beaten.mean()) == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / 60))
    assert abs(float(result.value.mean())) < 3 * float(result.value.std()) / np.sqrt(60)


def test_inputs_with_too_few_regions_are_skipped() -> None:
    model = standfast.Model(nn.Linear(3, 2), (0.0, 1.0), device="cpu")
    result = Groundedness(cited=3)(model, "input_x_gradient", torch.rand(2, 3))
    assert result.status == ("degenerate", "degenerate")
    assert result.describe() == "nothing can be said (degenerate)"
    with pytest.raises(ArgumentError, match="draws"):
        Groundedness(draws=3)


def test_a_model_that_is_not_finite_without_some_regions_is_not_called_ungrounded() -> None:
    layer = nn.Linear(5, 2, bias=False)

    class Dividing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            lacks_all = x.sum(1, keepdim=True) == 0
            logits: Tensor = torch.where(lacks_all, torch.nan, layer(x))
            return logits

    metric = Groundedness(cited=1, draws=8, score="logit")
    result = metric(
        standfast.Model(Dividing(), (0.0, 1.0), device="cpu"), "input_x_gradient", torch.ones(1, 5)
    )
    assert result.status == ("ok",)
    assert math.isnan(float(result.grounded))
    assert (
        result.describe()
        == "nothing can be said (the model is not finite without some of the regions)"
    )
