"""What `estimate` says of texts of many lengths, each of which is a batch of its own."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import pytest

import standfast
from standfast.study.forecast import trials

TEXT = "a great film with good actors and some music that stays with you all night"
OPTIONS: dict[str, Any] = {"sanity": False, "controls": False}
METRIC = "worst_case:budget=8,search=random"


def make_counted() -> tuple[list[int], standfast.TextModel]:
    """A model, and how many rows its network gets in each batch."""
    network = standfast.zoo.load("transformer-sentences")
    batches: list[int] = []
    network.register_forward_hook(lambda module, inputs, outputs: batches.append(len(outputs)))
    return batches, standfast.TextModel(network, standfast.data.word_vectors(), device="cpu")


@pytest.mark.parametrize("lengths", [range(3, 15), [8] * 12], ids=["many lengths", "one length"])
def test_a_text_of_another_length_fills_a_batch_alone(
    monkeypatch: pytest.MonkeyPatch, lengths: Sequence[int]
) -> None:
    """The clock counts rows, a tenth of a second for each, and no trial of the metric fits into the time."""
    texts = [" ".join(TEXT.split()[:count]) for count in lengths]
    batches, model = make_counted()
    clock = types.SimpleNamespace(perf_counter=lambda: sum(batches) / 10)
    monkeypatch.setattr(trials, "time", clock)
    explainer = "input_x_gradient"
    estimated = standfast.estimate(model, explainer, texts, METRIC, seconds=20.0, **OPTIONS)
    rows_of_run, model = make_counted()
    standfast.evaluate(model, explainer, texts, METRIC, progress=False, **OPTIONS)
    run = sum(rows_of_run) / 10
    # of single explanations the rest of their batch is lost, which a search fills in part
    assert run / 3 <= estimated.seconds <= 3 * run
