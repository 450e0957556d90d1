"""Whoever is shown a card can find out which model, data and software it is about."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import standfast
from standfast.neighbourhoods import LinfBall
from standfast.study.store import digest, tensor_digest

ROWS = torch.tensor([[0.6, 0.3, 0.1]])


def make_model(weight: float) -> standfast.Model:
    layer = nn.Linear(3, 2)
    layer.load_state_dict(
        {"weight": torch.tensor([[0.0, 0, 0], [weight, -2, 1]]), "bias": torch.zeros(2)}
    )
    return standfast.Model(layer, bounds=(0.0, 1.0), device="cpu")


def explain(weight: float = 3.0, **options: Any) -> standfast.reason_cards.ReasonCards:
    return standfast.reasons(
        make_model(weight),
        "input_x_gradient",
        ROWS,
        draws=3,
        top=1,
        measurement=LinfBall(0.01),
        progress=False,
        **options,
    )


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_a_card_has_the_digests_of_its_manifest(tmp_path: Path) -> None:
    found = explain(retrained=[make_model(3.1), make_model(3.2)], out=tmp_path / "cards")
    digests = found.card().digests
    given = json.loads((tmp_path / "cards" / "given" / "manifest.json").read_text())
    again = json.loads((tmp_path / "cards" / "retrained" / "manifest.json").read_text())
    (model,) = given["models"].values()
    assert digests["model"] == model["digest"]
    assert digests["data"] == tensor_digest(ROWS)
    assert digests["retrained models"] == digest(
        [about["digest"] for about in again["models"].values()]
    )
    assert digests["software"].startswith(
        f"standfast {importlib.metadata.version('standfast')}, python 3."
    )
    assert f"torch {torch.__version__}" in digests["software"]
    page = found.to_html(tmp_path / "card.html").read_text()
    footer = page[page.index("<footer>") :]
    assert all(value in footer for value in digests.values())
    assert json.loads(found.to_json(tmp_path / "card.json").read_text())["digests"] == digests
    assert digests["model"] in found.to_text()


def test_other_models_and_explainers_have_other_digests() -> None:
    first, second = explain(3.0).card().digests, explain(3.5).card().digests
    assert first["model"] != second["model"]
    assert first["data"] == second["data"]
    assert first["explainer"] == second["explainer"]
