"""One prompt that a model cannot answer has a status, and the others are evaluated as without it."""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from small_answers import SENTENCES, CopyingModel, make_prompt, make_tokenizer, number
from torch import Tensor

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.study.file.spec import study_from

OPTIONS: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
METRICS = {
    "aopc": "aopc",
    "lds": "linear_datamodeling_score",
    "grounded": standfast.metrics.Groundedness(cited=1),
    "worst": "worst_case:budget=10",
}
FINE = [make_prompt(), make_prompt(SENTENCES[:4]), make_prompt(SENTENCES[1:])]


class EndingAtGreen(CopyingModel):
    """It ends its answer at once where the prompt has the word "green"."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = super().forward(input_ids, attention_mask)
        has_green = (input_ids == number("green")).any(1)
        logits[..., number("<end>")] += 1e4 * has_green[:, None]
        return logits


def make_model(tokenizer: Any = None) -> standfast.AnswerModel:
    tokenizer = make_tokenizer() if tokenizer is None else tokenizer
    return standfast.AnswerModel(EndingAtGreen(), tokenizer, device="cpu", longest=1)


def make_dropping() -> Any:
    """A chat template that keeps no message with the word "wood"."""
    tokenizer = pickle.loads(pickle.dumps(make_tokenizer()))
    content = "{% if 'wood' not in messages[0]['content'] %}{{ messages[0]['content'] }}{% endif %}"
    tokenizer.chat_template = f"user : {content} ? Answer : "
    return tokenizer


REFUSED: dict[str, tuple[standfast.Prompt, str]] = {
    "too long": (
        make_prompt(SENTENCES * 30),
        "at most the 512 tokens that the model takes, got 974 with an answer of 1",
    ),
    "no answer": (
        make_prompt(["the town is green.", *SENTENCES], answer=None),
        "an answer of at least one word",
    ),
    "another statement": (
        make_prompt(answer=None, statement="Bob"),
        "statement: expected a part of the answer 'Ann', got 'Bob'",
    ),
    "a template that drops it": (
        standfast.Prompt("is it wood", SENTENCES, answer="Ann"),
        "a chat template that writes the documents once",
    ),
}


def list_rows(found: standfast.Results) -> dict[int, list[Any]]:
    """Status and value of each metric, by sample."""
    rows = found.samples.sort("sample", "label", "explainer")
    listed: dict[int, list[Any]] = {}
    for row in rows.iter_rows(named=True):
        listed.setdefault(row["sample"], []).append((row["label"], row["status"], row["value"]))
    return listed


@cache
def evaluate_answered(is_dropping: bool) -> dict[int, list[Any]]:
    """Status and value of each metric of the prompts that are answered, evaluated alone."""
    tokenizer = make_dropping() if is_dropping else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = standfast.evaluate(make_model(tokenizer), "occlusion", FINE, METRICS, **OPTIONS)
    return list_rows(alone)


@pytest.mark.filterwarnings("ignore:the answer is cut")
@pytest.mark.parametrize(("case", "place"), [*((case, 0) for case in REFUSED), ("too long", 1)])
def test_a_prompt_without_an_answer_is_a_status(case: str, place: int) -> None:
    refused, reason = REFUSED[case]
    is_dropping = "template" in case
    tokenizer = make_dropping() if is_dropping else None
    prompts = [*FINE[:place], refused, *FINE[place:]]
    with pytest.warns(UserWarning, match="prompts without an answer") as caught:
        found = standfast.evaluate(make_model(tokenizer), "occlusion", prompts, METRICS, **OPTIONS)
    told = str(caught[0].message if len(caught) == 1 else [str(each.message) for each in caught])
    assert "(1 of 4)" in told
    assert f"number {place}:" in told
    assert reason.replace("'", "") in told.replace("\\'", "").replace("'", "")
    assert found.failures == []
    rows, rows_alone = list_rows(found), evaluate_answered(is_dropping)
    assert {status for _, status, _ in rows[place]} == {"no_answer"}
    assert {value for _, _, value in rows[place]} == {None}
    kept = [rows[sample] for sample in range(4) if sample != place]
    assert kept == [rows_alone[sample] for sample in range(3)]


def test_prompts_that_are_all_refused_are_an_error() -> None:
    long = make_prompt(SENTENCES * 30)
    with pytest.raises(ArgumentError, match="prompt: expected at most the 512 tokens"):
        standfast.evaluate(make_model(), "occlusion", [long, long], "aopc", **OPTIONS)
    with pytest.raises(ArgumentError, match="prompt: expected at most the 512 tokens"):
        standfast.explain(make_model(), "occlusion", [make_prompt(), long])
    silent = make_prompt(["the town is green.", *SENTENCES], answer=None)
    with pytest.raises(ModelError, match="an answer of at least one word"):
        make_model().bind(silent)


@pytest.mark.filterwarnings("ignore:prompts without an answer")
def test_an_estimate_tries_a_prompt_that_is_answered() -> None:
    long = make_prompt(SENTENCES * 30)
    prompts = [long, *FINE]
    options = {key: value for key, value in OPTIONS.items() if key != "progress"}
    estimated = standfast.estimate(make_model(), "occlusion", prompts, "aopc", **options)
    assert estimated.evaluations >= 4 * (1 + 4)


@pytest.mark.filterwarnings("ignore:prompts without an answer")
def test_a_study_goes_on(tmp_path: Path) -> None:
    (tmp_path / "asked_long.py").write_text(
        "from small_answers import *\nimport standfast\n"
        "def load():\n"
        "    prompts = [make_prompt(SENTENCES * 30), make_prompt(), make_prompt(SENTENCES[:4])]\n"
        "    return standfast.texts.Prompts(prompts)\n"
        "def build():\n"
        "    return standfast.AnswerModel(CopyingModel(), make_tokenizer(), device='cpu')\n"
    )
    content = {
        "data": {"asked": {"function": "asked_long:load"}},
        "models": {"copying": {"function": "asked_long:build"}},
        "explainers": ["occlusion"],
        "metrics": ["aopc"],
        "sanity": False,
        "controls": False,
    }
    found = standfast.run_study(study_from(content, tmp_path), tmp_path / "out", progress=False)
    assert found.failures == []
    statuses = found.samples.sort("sample")["status"].to_list()
    assert statuses == ["no_answer", "ok", "ok"]


def test_a_refused_prompt_is_no_number() -> None:
    long = make_prompt(SENTENCES * 30)
    model, prompts = make_model(), [FINE[0], long]
    rows = model.encode(prompts)
    with pytest.warns(UserWarning, match="prompts without an answer"):
        made = model.make_model(rows, prompts=prompts)
    bound = made.for_sample({"prompt": torch.tensor([[long.number]])}, 0)
    assert "512 tokens" in bound.refusal
    assert bool(bound.module(rows[1:]).isnan().all())
    with pytest.raises(ModelError, match="finite logits"):
        bound.logits(rows[1:])
    assert made.for_sample({"prompt": torch.tensor([[FINE[0].number]])}, 0).refusal == ""
