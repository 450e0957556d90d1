"""An explainer that says only how much something matters: its card says neither for nor against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

import standfast
from standfast.explainers import InputXGradient
from standfast.neighbourhoods import LinfBall
from standfast.report.cards import describe_card

ROWS = torch.tensor([[0.6, 0.5, 0.4, 0.3]])
WEIGHTS = [3.0, -2.0, 0.5, 0.1]


def explain(explainer: Any, **options: Any) -> standfast.reason_cards.ReasonCards:
    """The card of one row by a linear layer, of whose answer the second feature speaks against."""
    layer = nn.Linear(4, 2)
    layer.load_state_dict({"weight": torch.tensor([[0.0] * 4, WEIGHTS]), "bias": torch.zeros(2)})
    model = standfast.Model(layer, bounds=(0.0, 1.0), device="cpu")
    fields: dict[str, Any] = {
        "top": 2,
        "draws": 50,
        "measurement": LinfBall(0.01),
        "progress": False,
        **options,
    }
    return standfast.reasons(model, explainer, ROWS, **fields)


def test_an_explainer_that_declares_none_does_not_speak_for_the_answer(tmp_path: Path) -> None:
    found = explain("saliency")
    card = found.card()
    assert card.has_signs is False
    words = describe_card(card)
    assert [reason.name for reason in words.holding] == ["feature 0", "feature 1"]
    assert all("matters for" in reason.speaks for reason in words.holding)
    assert "with the same sign" not in words.summary
    assert any("saliency says how much each feature matters" in note for note in words.notes)
    page = found.to_html(tmp_path / "card.html").read_text()
    assert 'class="size"' in page
    assert not any(
        text in page
        for text in (
            'rect class="for"',
            'rect class="against"',
            "red, to the right",
            "with its sign",
        )
    )


def test_an_explainer_with_signs_speaks_for_and_against(tmp_path: Path) -> None:
    found = explain("input_x_gradient")
    words = describe_card(found.card())
    assert found.card().has_signs is True
    assert [reason.speaks.split()[3:5] for reason in words.holding] == [
        ["speaks", "for"],
        ["speaks", "against"],
    ]
    assert "with the same sign" in words.summary
    assert 'rect class="against"' in found.to_html(tmp_path / "card.html").read_text()


def test_of_a_function_it_is_said_what_was_seen() -> None:
    def sizes(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (inputs * torch.tensor(WEIGHTS)).abs()

    found = explain(sizes)
    assert found.card().has_signs is None
    notes = describe_card(found.card()).notes
    assert any("No value is below 0" in note for note in notes)


def test_of_one_with_signs_and_one_without_places_alone_count() -> None:
    """Both name features 0 and 1. With its own sign, the one without would never name the reason against."""
    found = explain("input_x_gradient", others=["saliency"])
    card = found.card()
    assert [reason.probability for reason in card.reasons] == [1.0, 1.0]
    assert [reason.sign for reason in card.reasons] == [1, -1]
    assert any("places alone count" in note for note in card.notes)
    turned = explain("saliency", others=["input_x_gradient"]).card()
    assert [reason.probability for reason in turned.reasons] == [1.0, 1.0]


def test_an_explainer_that_never_shows_what_speaks_against_is_noted() -> None:
    """Grad-CAM, say, has signs, but sets to 0 what speaks against the answer."""

    @dataclass(frozen=True)
    class Supporting(InputXGradient):
        name: ClassVar[str] = "supporting"

        def attribute(self, *arguments: Any, **options: Any) -> Any:
            maps, logits = super().attribute(*arguments, **options)
            return maps.clamp(min=0), logits

    card = explain("input_x_gradient", others=[Supporting()]).card()
    assert [reason.sign for reason in card.reasons] == [1, -1]
    assert card.reasons[1].probability < 0.9
    assert any("No number of supporting is negative here" in note for note in card.notes)
    assert not any("no signs" in note for note in card.notes)


def test_results_that_were_stored_without_a_declaration_are_judged_by_what_is_seen(
    tmp_path: Path,
) -> None:
    explain("saliency", out=tmp_path / "cards")
    path = tmp_path / "cards" / "given" / "manifest.json"
    content = json.loads(path.read_text())
    assert content["signs"] == {"saliency": False}
    results = standfast.load_results(tmp_path / "cards" / "given")
    del results.manifest["signs"]
    card = results.reasons(0)
    assert card.has_signs is None
    assert any("No value is below 0" in note for note in describe_card(card).notes)


def test_slopes_and_contributions_are_compared_by_places_alone() -> None:
    """Of a linear layer both name the same features, and of a number below 0 their signs differ rightly."""
    layer = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [2.0, -3.0, 0.5]]))
    model = standfast.Model(layer, bounds=(-1.0, 1.0), device="cpu")
    found = standfast.reasons(
        model,
        "input_x_gradient",
        torch.tensor([[-0.5, -0.6, 0.2]]),
        top=2,
        others=["smoothgrad"],
        measurement=LinfBall(0.01),
        alone=False,
        progress=False,
    )
    card = found.card()
    assert [reason.state for reason in card.reasons] == ["holds", "holds"]
    assert any("what raising a feature does" in note for note in card.notes)
    same = standfast.reasons(
        model,
        "input_x_gradient",
        torch.tensor([[-0.5, -0.6, 0.2]]),
        top=2,
        others=["integrated_gradients:baseline=0"],
        measurement=LinfBall(0.01),
        alone=False,
        progress=False,
    )
    assert not any("places alone" in note for note in same.card().notes)
