"""The linear datamodeling score: additive models, a slow implementation, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from small_answers import SENTENCES, BagOfWords, CopyingModel, make_prompt, make_tokenizer

import standfast
from conftest import small_net
from standfast.errors import ArgumentError
from standfast.explainers import from_callable
from standfast.metrics import LinearDatamodelingScore
from standfast.metrics.faithfulness.linear_datamodeling_score import draw_kept, find_interval
from standfast.metrics.replaced_copies import make_sample_keys
from standfast.neighbourhoods.text import GONE


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_it_equals_a_slow_implementation(score: str) -> None:
    x = torch.rand(3, 3, 8, generator=torch.Generator().manual_seed(0))
    model = standfast.Model(small_net((3, 8)), (0.0, 1.0), device="cpu")
    maps = standfast.explainers.get("input_x_gradient")(model, x).double().sum(1)
    result = LinearDatamodelingScore(ablations=20, region=2, baseline=0.25, score=score)(
        model, "input_x_gradient", x
    )
    kept = draw_kept(make_sample_keys(x, 0), 20, 4)
    classes = model.predict(x)
    for row in range(3):
        scores, sums = [], []
        for mask in kept[row].tolist():
            copy = x[row : row + 1].clone()
            for region, keeps in enumerate(mask):
                if not keeps:
                    copy[:, :, 2 * region : 2 * region + 2] = 0.25
            logits = model.logits(copy).double()[0]
            scores.append(float((logits if score == "logit" else logits.softmax(0))[classes[row]]))
            sums.append(sum(float(maps[row, 2 * k : 2 * k + 2].sum()) for k in range(4) if mask[k]))
        assert result.scores[row].tolist() == pytest.approx(scores, abs=1e-6)
        expected = stats.spearmanr(np.round(sums, 6), np.round(scores, 6)).statistic
        assert float(result.value[row]) == pytest.approx(expected, abs=1e-6)
    assert result.model_evaluations.tolist() == [21] * 3


def test_each_region_is_kept_with_probability_a_half() -> None:
    kept = draw_kept(torch.arange(50), 40, 10)
    assert float(kept.double().mean()) == pytest.approx(0.5, abs=0.02)
    assert len({tuple(row) for row in kept[0].tolist()}) > 30
    assert torch.equal(draw_kept(torch.tensor([7]), 40, 10)[0], kept[7])


def test_the_interval_is_that_of_bonett_and_wright() -> None:
    value = torch.tensor([0.6, 0.0, 1.0, -1.0], dtype=torch.float64)
    low, high = find_interval(value, 40)
    error = np.sqrt((1 + 0.36 / 2) / 37)
    assert float(low[0]) == pytest.approx(np.tanh(np.arctanh(0.6) - stats.norm.ppf(0.975) * error))
    assert float(high[1]) == pytest.approx(np.tanh(stats.norm.ppf(0.975) / np.sqrt(37)))
    assert (low[2:].tolist(), high[2:].tolist()) == ([1.0, -1.0], [1.0, -1.0])


@pytest.mark.slow
def test_the_interval_covers_the_correlation() -> None:
    """Of normal pairs, whose rank correlation is known: `6 / pi asin(r / 2)`."""
    random, inside = np.random.default_rng(0), 0
    true = 6 / np.pi * np.arcsin(0.7 / 2)
    for _ in range(2000):
        a = random.normal(size=64)
        b = 0.7 * a + np.sqrt(1 - 0.49) * random.normal(size=64)
        low, high = find_interval(torch.tensor([stats.spearmanr(a, b).statistic]), 64)
        inside += float(low) <= true <= float(high)
    assert 0.92 < inside / 2000 < 0.98


def test_an_additive_model_of_answers_has_1() -> None:
    """The weights of a bag of words, with which the log-odds of the answer are a sum."""
    weights = {"Ann": 1.5, "old": -0.5, "river": 0.25, "red": 0.4, "stone": -1.2}
    model = standfast.AnswerModel(BagOfWords(weights), make_tokenizer(), device="cpu")
    bound, rows = model.bind(make_prompt())
    worth = [
        sum(weights.get(word, 0.0) for word in text.replace(".", " .").split())
        for text in SENTENCES
    ]

    def know(module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.tensor([worth], dtype=inputs.dtype).expand(len(inputs), -1)

    metric = LinearDatamodelingScore(baseline=float(GONE))
    result = metric(bound, from_callable(know), rows)
    assert float(result.value) == pytest.approx(1.0, abs=1e-6)
    turned = metric(bound, from_callable(lambda *call: -know(*call)), rows)
    assert float(turned.value) == pytest.approx(-1.0, abs=1e-6)
    chance = metric(bound, "random", rows)
    assert abs(float(chance.value)) < 0.99
    assert float(chance.low) < float(chance.value) < float(chance.high)


def test_explainers_of_a_copying_model_beat_chance() -> None:
    model = standfast.AnswerModel(CopyingModel(), make_tokenizer(), device="cpu")
    options = {"sanity": False, "controls": ["random"], "progress": False}
    found = standfast.evaluate(
        model, ["context_cite"], [make_prompt()], "linear_datamodeling_score", **options
    )
    values = found.frame().sort("explainer")["value"].to_list()
    assert values[0] > 0.8 > values[1]


def test_a_model_that_does_not_react_has_no_number() -> None:
    model = standfast.AnswerModel(BagOfWords({}), make_tokenizer(), device="cpu")
    bound, rows = model.bind(make_prompt())
    result = LinearDatamodelingScore(baseline=float(GONE))(bound, "random", rows)
    assert bool(result.value.isnan().all())


def test_wrong_options() -> None:
    with pytest.raises(ArgumentError, match="region: expected None where segments are given"):
        LinearDatamodelingScore(region=2, segments="grid")
    with pytest.raises(ArgumentError, match="ablations"):
        LinearDatamodelingScore(ablations=4)


@pytest.mark.parametrize(("noise", "least", "most"), [(1.0, 0.92, 0.98), (0.2, 0.83, 0.94)])
def test_its_interval_covers_the_score_of_all_ablations(
    noise: float, least: float, most: float
) -> None:
    """In 95% of the cases, and in fewer close to 1, as its docstring says; of ten regions there are 1,024 ablations."""
    random = np.random.default_rng(0)
    kept = (np.arange(1024)[:, None] >> np.arange(10)) & 1
    covered = []
    for _ in range(20):
        weights = random.normal(size=10)
        scores = kept @ weights + noise * random.normal(size=1024)
        predictions = kept @ (weights + noise / 2 * random.normal(size=10))
        of_all = stats.spearmanr(scores, predictions)[0]
        drawn = random.integers(0, 1024, (60, 64))
        found = [stats.spearmanr(scores[rows], predictions[rows])[0] for rows in drawn]
        low, high = find_interval(torch.tensor(found, dtype=torch.float64), 64)
        covered += ((low <= of_all) & (of_all <= high)).tolist()
    assert least < np.mean(covered) < most
