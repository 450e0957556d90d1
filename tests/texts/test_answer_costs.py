"""What `estimate` says of answers, whose contexts are remembered, beside the passes that a run takes."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from small_answers import SENTENCES, CopyingModel, make_prompt, make_tokenizer
from torch import Tensor, nn

import standfast
from standfast.study.forecast import trials
from standfast.texts.remembered import RememberedOutputs

#: passes that look at a model and its answers before there are jobs: with padding, without a context, with gradients
_BEFORE_JOBS = 12
OPTIONS: dict[str, Any] = {"sanity": False, "controls": False}


class CountedPasses(nn.Module):
    """A network whose rows are counted: each takes a tenth of a second, whatever the computer does."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        #: of each batch; numbers and names as attributes would be settings, with which it is another model
        self.batches: list[tuple[int, ...]] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        self.batches.append(tuple(input_ids.shape))
        return self.network(input_ids, attention_mask=attention_mask)

    def count_rows(self) -> int:
        return sum(batch[0] for batch in self.batches)

    def perf_counter(self) -> float:
        return self.count_rows() / 10


def list_prompts(count: int = 3) -> list[standfast.Prompt]:
    """Prompts of ten sentences, so that there are more contexts than any metric asks for."""
    sentences = [*SENTENCES, *(sentence.replace("is", "was") for sentence in SENTENCES)]
    return [make_prompt([*sentences[number:], *sentences[:number]]) for number in range(count)]


def make_counted(monkeypatch: pytest.MonkeyPatch) -> tuple[CountedPasses, standfast.AnswerModel]:
    network = CountedPasses(CopyingModel())
    clock = types.SimpleNamespace(perf_counter=network.perf_counter)
    monkeypatch.setattr(trials, "time", clock)
    return network, standfast.AnswerModel(network, make_tokenizer(), device="cpu")


def count_passes_of_run(explainers: Any, metrics: Any) -> int:
    """The passes of a run in which nothing is known before, without those that look at the model first."""
    network = CountedPasses(CopyingModel())
    model = standfast.AnswerModel(network, make_tokenizer(), device="cpu")
    standfast.evaluate(model, explainers, list_prompts(), metrics, progress=False, **OPTIONS)
    return network.count_rows()


@pytest.mark.parametrize(
    ("explainer", "metric"),
    [
        ("occlusion", "aopc"),
        ("occlusion", "groundedness"),
        ("context_cite", "linear_datamodeling_score"),
        ("input_x_gradient", "linear_datamodeling_score"),
    ],
)
def test_an_estimate_is_the_passes_of_a_run(
    monkeypatch: pytest.MonkeyPatch, explainer: str, metric: str
) -> None:
    _network, model = make_counted(monkeypatch)
    estimated = standfast.estimate(model, explainer, list_prompts(), metric, seconds=1e4, **OPTIONS)
    passes = count_passes_of_run(explainer, metric)
    assert not estimated.unknown
    assert passes - _BEFORE_JOBS <= 10 * estimated.seconds <= 1.1 * passes


def test_contexts_that_several_share_are_counted_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """So an estimate is at most too large: what a run shares depends on its order and its workers."""
    _network, model = make_counted(monkeypatch)
    explainers, metrics = ["occlusion", "context_cite"], ["aopc", "linear_datamodeling_score"]
    estimated = standfast.estimate(
        model, explainers, list_prompts(), metrics, seconds=1e4, **OPTIONS
    )
    passes = count_passes_of_run(explainers, metrics)
    assert passes <= 10 * estimated.seconds <= 3 * passes


def test_a_prediction_is_timed_by_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no trial fits, an explanation costs what its rows cost, each a tenth of a second."""
    _network, model = make_counted(monkeypatch)
    estimated = standfast.estimate(
        model,
        "context_cite",
        list_prompts(),
        "linear_datamodeling_score",
        seconds=1e-6,
        **OPTIONS,
    )
    assert estimated.frame()["basis"].to_list() == ["model"]
    assert estimated.seconds == pytest.approx(3 * (64 + 65) / 10, rel=0.05)


def test_what_a_trial_asks_is_forgotten_and_the_rest_is_not() -> None:
    memory = RememberedOutputs()
    memory.add("prompt", {b"row": torch.zeros(4)})
    before = memory.taken
    with memory.set_aside():
        assert dict(memory.find("prompt")) == {}
        memory.add("prompt", {b"other": torch.zeros(4)})
    assert list(memory.find("prompt")) == [b"row"]
    assert memory.taken == before
