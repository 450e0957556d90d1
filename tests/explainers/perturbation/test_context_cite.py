"""ContextCite: the lasso against scikit-learn, the method against its definition, and additive models."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_answers import (
    SENTENCES,
    BagOfWords,
    CopyingModel,
    make_llama,
    make_prompt,
    make_tokenizer,
)
from torch import Tensor, nn

import standfast
from standfast.explainers.perturbation.lasso import fit_lasso
from standfast.neighbourhoods.text import GONE


def fit_with_scikit_learn(design: Any, response: Any, penalty: float) -> Any:
    scaler, lasso = StandardScaler(), Lasso(alpha=penalty, tol=1e-12, max_iter=100_000)
    make_pipeline(scaler, lasso).fit(design, response)
    return lasso.coef_ / scaler.scale_


@pytest.mark.parametrize(("rows", "columns"), [(32, 5), (64, 10), (24, 36)])
@pytest.mark.parametrize("penalty", [0.01, 0.2, 3.0])
def test_the_lasso_is_that_of_scikit_learn(rows: int, columns: int, penalty: float) -> None:
    random = np.random.default_rng(0)
    design = random.integers(0, 2, (rows, columns)).astype(float)
    design[:, 2] = 1.0  # a source that is always there
    weights = random.normal(size=columns) * (random.random(columns) < 0.4)
    responses = np.stack([design @ weights + random.normal(size=rows) for _ in range(3)], 1)
    penalties = np.array([penalty, 2 * penalty, penalty / 2])
    found = fit_lasso(design, responses, penalties)
    for number in range(3):
        expected = fit_with_scikit_learn(design, responses[:, number], penalties[number])
        np.testing.assert_allclose(found[:, number], expected, rtol=0, atol=1e-6)
    alone = fit_lasso(design, responses[:, 1:2], penalties[1:2])
    assert np.array_equal(alone[:, 0], found[:, 1])
    assert not found[2].any()


def test_without_a_penalty_it_is_least_squares() -> None:
    random = np.random.default_rng(1)
    design, weights = random.integers(0, 2, (64, 6)).astype(float), random.normal(size=(6, 1))
    np.testing.assert_allclose(
        fit_lasso(design, design @ weights + 3, np.zeros(1)), weights, atol=1e-7
    )
    assert not fit_lasso(design, design @ weights, np.array([100.0])).any()


@pytest.mark.parametrize("answer", ["Ann", "by Ann. it is old"])
def test_it_is_the_published_method(answer: str) -> None:
    """Log-odds of the answer's probability a token, by scikit-learn's lasso, on the same ablations."""
    model = standfast.AnswerModel(make_llama(seed=2), make_tokenizer(), device="cpu")
    prompt = make_prompt(answer=answer)
    explainer = standfast.explainers.ContextCite(samples=40, segments="pixels", penalty=0.02)
    kept = explainer.draw_coalitions(5, torch.device("cpu")).masks[1:]
    rows = model.encode([prompt])
    bound = model.make_model(rows, prompts=[prompt]).for_sample(
        {"prompt": torch.tensor([[prompt.number]])}, 0
    )
    log_shares = bound.logits(torch.where(kept, rows, float(GONE)))[:, 0].double().numpy()
    log_odds = log_shares - np.log1p(-np.exp(log_shares))
    tokens = len(model.write(prompt).answer)
    expected = tokens * fit_with_scikit_learn(kept.double().numpy(), log_odds / tokens, 0.02)
    found = [value for _, value in standfast.explain(model, explainer, prompt)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert 0.3 < float(kept.double().mean()) < 0.7


def test_an_additive_model_is_found_exactly() -> None:
    """The log-odds are sums of weights, and without a penalty these are the attributions."""
    weights = {"Ann": 1.5, "old": -0.5, "river": 0.25, "red": 0.4, "stone": -1.2}
    model = standfast.AnswerModel(BagOfWords(weights), make_tokenizer(), device="cpu")
    worth = [
        sum(weights.get(word, 0.0) for word in text.replace(".", " .").split())
        for text in SENTENCES
    ]
    found = [
        value
        for _, value in standfast.explain(model, "context_cite:penalty=0,samples=32", make_prompt())
    ]
    assert found == pytest.approx(worth, abs=1e-3)
    sparse = [
        value
        for _, value in standfast.explain(
            model, "context_cite:penalty=0.2,samples=4096", make_prompt()
        )
    ]
    # each is shrunk by the penalty over the deviation of its column, which is a half
    assert sparse == pytest.approx(
        [np.sign(each) * max(abs(each) - 0.4, 0) for each in worth], abs=0.05
    )


class Table(nn.Module):
    """Two classes, with log-odds that are linear in the features."""

    def forward(self, x: Tensor) -> Tensor:
        log_odds = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]).to(x)
        return torch.stack([log_odds / 2, -log_odds / 2], 1)


@pytest.mark.parametrize("task", ["classification", "regression:tolerance=1"])
def test_other_tasks(task: str) -> None:
    model = standfast.Model(Table(), (0.0, 1.0), device="cpu", task=task)
    x = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.5, 0.0, 1.0, 0.25]])
    found = standfast.explainers.get("context_cite", penalty=0.0)(model, x, 0)
    share = 1.0 if task == "classification" else 0.5
    expected = share * x * torch.tensor([1.0, -2.0, 0.5, 0.0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_probability_itself_can_be_fitted() -> None:
    model = standfast.Model(Table(), (0.0, 1.0), device="cpu")
    x = torch.ones(1, 4)
    found = standfast.explainers.get(
        "context_cite", penalty=0.0, output="probability", samples=256
    )(model, x, 0)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)))
    design = torch.cat([masks, torch.ones(16, 1)], 1)
    exact = torch.linalg.lstsq(design, model.logits(masks).softmax(1)[:, :1]).solution[:4, 0]
    torch.testing.assert_close(found[0], exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("sharpness", [5.0, 25.0, 60.0])
def test_the_log_odds_of_a_sure_answer_are_those_of_its_logits(sharpness: float) -> None:
    """A probability of 1 - 1e-9 is 1 in single precision, and its log-odds had been those of the smallest number."""
    model = standfast.AnswerModel(CopyingModel(sharpness), make_tokenizer(), device="cpu")
    values = [value for _, value in standfast.explain(model, "context_cite", make_prompt())]
    # one sentence adds the sharpness to the log-odds; the coefficient is shrunk by the penalty over a half
    shrunk = sharpness - 0.01 / 0.5
    assert values == pytest.approx([0.0, shrunk, 0.0, 0.0, 0.0], abs=2e-3)
