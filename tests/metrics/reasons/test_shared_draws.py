"""Draws of several explainers: they go on until the reasons of all explainers together are decided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

import standfast
from standfast.metrics import Reasons
from standfast.reason_cards.shared_draws import SharedDraws
from standfast.statistics.reasons import Foresight, schedule_looks
from standfast.study.identity import Description

WEIGHTS = torch.tensor([6.0, 5.0, 1.0, 0.1, 0.1, 0.1])
POINT = torch.full((1, 6), 0.5)


def make_model() -> standfast.Model:
    layer = nn.Linear(6, 2)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, 1.0]))
    return standfast.Model(layer, (0.0, 1.0), device="cpu")


def name_always(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return inputs * WEIGHTS


def name_rarely(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Leaves out the first feature where it is smaller than at the clean input, in half of all draws."""
    maps = inputs * WEIGHTS
    maps[inputs[:, 0] < POINT[0, 0], 0] = 0.0
    return maps


def ask(**options: Any) -> standfast.reason_cards.ReasonCards:
    return standfast.reasons(
        make_model(),
        name_always,
        POINT,
        top=2,
        others=[name_rarely],
        measurement=standfast.LinfBall(0.02),
        progress=False,
        alone=False,
        **options,
    )


def test_draws_go_on_where_an_explainer_alone_is_decided_at_the_first_look() -> None:
    """One of two names the first reason always, the other in half of all draws: in three quarters it is named."""
    looks = schedule_looks(400, reasons=2)
    card = ask().card()
    states = {reason.feature: reason.state for reason in card.reasons}
    assert states == {0: "falls", 1: "holds"}
    assert card.draws in looks[1:]
    # no more draws than there may be
    few = ask(draws=looks[0]).card()
    assert few.draws == looks[0]
    assert {reason.feature: reason.state for reason in few.reasons} == {0: "undecided", 1: "holds"}


def test_a_single_explainer_ends_where_its_reasons_are_decided() -> None:
    model, ball = make_model(), standfast.LinfBall(0.02)
    looks = schedule_looks(400, reasons=2)
    alone: Any = Reasons(ball, top=2)(model, name_always, POINT)
    assert alone.drawn.tolist() == [looks[0]]
    longer: Any = Reasons(ball, top=2, fewest=looks[0] + 1)(model, name_always, POINT)
    assert longer.drawn.tolist() == [looks[1]]
    assert (longer.holding.tolist(), longer.looks.tolist()) == ([2], [2])


def test_results_that_are_stored_without_the_option_are_found() -> None:
    assert Description(Reasons(top=2)).digest == Description(Reasons(top=2, fewest=1)).digest
    assert Description(Reasons(top=2)).digest != Description(Reasons(top=2, fewest=50)).digest


def make_results(looks: dict[int, tuple[int, ...]]) -> Any:
    """Results of explainers that have looked so often at each sample."""
    rows = [
        {"sample": sample, "status": "ok", "varied": 1.0, "looks": count}
        for sample, counts in looks.items()
        for count in counts
    ]
    view = SimpleNamespace(frame=pl.DataFrame(rows))
    return SimpleNamespace(pairs=[("d", "m")], metric_results=lambda *names: view)


def make_card(sample: int, *foreseen: Foresight | None) -> Any:
    reasons = [SimpleNamespace(state="undecided", foreseen=seen) for seen in foreseen]
    decided = SimpleNamespace(state="holds", foreseen=None)
    return SimpleNamespace(sample=sample, reasons=[decided, *reasons])


@pytest.mark.parametrize(
    ("foreseen", "counts", "fewest"),
    [
        ([Foresight(60, 50, 80)], (1, 3), 92),
        ([Foresight(100, 50, None)], (1, 3), 192),
        ([Foresight(None, 60, None)], (2, 2), 192),
        ([Foresight(3000, 1000, None)], (1, 4), 400),
        ([None], (1, 1), 400),
        ([Foresight(60, 50, 80)], (4, 4), None),
        ([], (1, 1), None),
    ],
)
def test_how_many_draws_are_made(
    foreseen: list[Foresight | None], counts: tuple[int, int], fewest: int | None
) -> None:
    cards = [make_card(0), make_card(1, *foreseen)]
    results = make_results({0: (1, 1), 1: counts})
    # of four reasons: looks at 44, 92, 192 and 400
    shared = SharedDraws(Reasons(), 4)
    assert shared.goes_on(results, cards) == (fewest is not None)
    assert shared.fewest == (fewest or 44)
    for unshared in (None, 78):
        assert not SharedDraws(Reasons(), unshared).goes_on(results, cards)


def test_no_draws_begin_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 44.0, 64.0, 0.0, 44.0])
    monkeypatch.setattr("standfast.reason_cards.shared_draws.time.monotonic", lambda: next(clock))
    results, cards = make_results({0: (1, 1)}), [make_card(0, Foresight(60, 60, None))]
    # the first 44 draws have taken 44 seconds, so that 92 end after 136
    shared = SharedDraws(Reasons(), 4, ends=136.0)
    assert shared.goes_on(results, cards)
    assert shared.fewest == 92
    # these have taken 20 seconds, so that 192 would take 42
    assert shared.goes_on(make_results({0: (2, 2)}), cards)
    assert shared.fewest == 192
    assert not SharedDraws(Reasons(), 4, ends=135.0).goes_on(results, cards)
