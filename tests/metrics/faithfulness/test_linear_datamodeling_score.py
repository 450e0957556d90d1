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
from standfast.metrics.faithfulness.linear_datamodeling_score import (
    correlate_ranks,
    draw_kept,
    estimate_without_bias,
    find_interval,
    find_usual_interval,
)
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


def test_the_usual_interval_is_that_of_bonett_and_wright() -> None:
    value = torch.tensor([0.6, 0.0, 1.0, -1.0], dtype=torch.float64)
    low, high = find_usual_interval(value, 40)
    error = np.sqrt((1 + 0.36 / 2) / 37)
    assert float(low[0]) == pytest.approx(np.tanh(np.arctanh(0.6) - stats.norm.ppf(0.975) * error))
    assert float(high[1]) == pytest.approx(np.tanh(stats.norm.ppf(0.975) / np.sqrt(37)))
    assert (low[2:].tolist(), high[2:].tolist()) == ([1.0, -1.0], [1.0, -1.0])


def estimate_slowly(a: np.ndarray, b: np.ndarray) -> float:
    count = len(a)
    both = stats.spearmanr(a, b).statistic, stats.kendalltau(a, b).statistic
    return float(((count + 1) * both[0] - 3 * both[1]) / (count - 2))


def test_the_estimate_without_bias_is_that_of_a_slow_jackknife() -> None:
    """With ties, too."""
    random = np.random.default_rng(0)
    a = np.stack([random.normal(size=20), random.integers(0, 5, 20).astype(float)])
    b = a + random.normal(size=(2, 20))
    estimates, errors = estimate_without_bias(torch.tensor(a), torch.tensor(b))
    for row in range(2):
        left_out = [
            estimate_slowly(np.delete(a[row], place), np.delete(b[row], place))
            for place in range(20)
        ]
        error = np.sqrt(np.square(left_out - np.mean(left_out)).sum() * 19 / 20)
        assert float(estimates[row]) == pytest.approx(estimate_slowly(a[row], b[row]), abs=1e-12)
        assert float(errors[row]) == pytest.approx(error, abs=1e-12)


def test_the_interval_of_the_opposite_is_the_opposite() -> None:
    random = np.random.default_rng(1)
    a = torch.tensor(random.normal(size=(4, 24)))
    b = a + torch.tensor([[0.05], [0.3], [1.0], [9.0]]) * torch.tensor(random.normal(size=(4, 24)))
    value = correlate_ranks(a, b)
    low, high = find_interval(a, b, value)
    low_of_turned, high_of_turned = find_interval(a, -b, -value)
    torch.testing.assert_close(low_of_turned, -high)
    torch.testing.assert_close(high_of_turned, -low)
    assert bool((low <= value).all())
    assert bool((value <= high).all())
    usual_low, usual_high = find_usual_interval(value, 24)
    assert bool((low <= usual_low).all())
    assert bool((high >= usual_high).all())


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


def measure_coverage(noise: float, models: int, count: int = 64) -> tuple[float, float]:
    """How often the interval, and the usual one, hold the score of all 1,024 ablations of ten regions."""
    random = np.random.default_rng(0)
    kept = (np.arange(1024)[:, None] >> np.arange(10)) & 1
    covered: list[float] = []
    covered_by_usual: list[float] = []
    for _ in range(models):
        weights = random.normal(size=10)
        scores = kept @ weights + noise * random.normal(size=1024)
        predictions = kept @ (weights + noise / 2 * random.normal(size=10))
        of_all = stats.spearmanr(scores, predictions)[0]
        drawn = random.integers(0, 1024, (60, count))
        drawn_predictions = torch.tensor(predictions[drawn])
        drawn_scores = torch.tensor(scores[drawn])
        value = correlate_ranks(drawn_predictions, drawn_scores)
        low, high = find_interval(drawn_predictions, drawn_scores, value)
        covered += ((low <= of_all) & (of_all <= high)).tolist()
        low, high = find_usual_interval(value, count)
        covered_by_usual += ((low <= of_all) & (of_all <= high)).tolist()
    return float(np.mean(covered)), float(np.mean(covered_by_usual))


@pytest.mark.parametrize(("noise", "of_usual"), [(1.0, 0.98), (0.2, 0.94), (0.05, 0.55)])
def test_its_interval_covers_the_score_of_all_ablations(noise: float, of_usual: float) -> None:
    """Scores of 0.7, 0.986 and 0.999; the usual interval misses most of the last ones."""
    covered, covered_by_usual = measure_coverage(noise, models=15)
    assert covered > 0.94
    assert covered_by_usual < of_usual


@pytest.mark.slow
@pytest.mark.parametrize("count", [32, 64, 128])
@pytest.mark.parametrize("noise", [2.0, 0.5, 0.1, 0.02])
def test_its_interval_covers_at_all_heights(noise: float, count: int) -> None:
    """From 0.4 to 0.9998."""
    covered, _ = measure_coverage(noise, models=60, count=count)
    # of 32 ablations, half of the samples at 0.9998 have no pair out of order
    assert covered > (0.88 if count == 32 else 0.94)


def test_no_pair_out_of_order_is_told_by_an_interval_without_a_width() -> None:
    a = torch.arange(20.0, dtype=torch.float64)[None]
    low, high = find_interval(a, 2 * a, correlate_ranks(a, 2 * a))
    assert (float(low), float(high)) == (1.0, 1.0)
    nothing = torch.zeros(1, 20, dtype=torch.float64)
    ends = find_interval(a, nothing, correlate_ranks(a, nothing))
    assert all(bool(end.isnan()) for end in ends)
