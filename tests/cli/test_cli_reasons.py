"""`standfast reasons`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import standfast
from standfast.cli import app


def test_cards_have_the_numbers_of_the_rows_that_were_asked_for(tmp_path: Path) -> None:
    options = ["--explainer", "saliency", "--draws", "10", "--out", str(tmp_path / "card.json")]
    found = CliRunner().invoke(
        app,
        [
            "reasons",
            "--model",
            "lenet5-mnist",
            "--data",
            "digits",
            "--row",
            "5",
            "--row",
            "3",
            *options,
        ],
    )
    assert found.exit_code == 0, found.output
    assert "digits, sample 5, model LeNet5" in found.output
    cards = {
        number: json.loads((tmp_path / f"card-{number}.json").read_text()) for number in (3, 5)
    }
    assert [(card["data"], card["sample"]) for card in cards.values()] == [
        ("digits", 3),
        ("digits", 5),
    ]


def test_an_image_is_named_by_its_file(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "photos"
    folder.mkdir()
    digits = standfast.data.bundled("digits")[:2]
    for name, pixels in zip(("a.png", "b.png"), digits.inputs[:, 0], strict=True):
        image.fromarray((255 * pixels).round().byte().numpy()).save(folder / name)
    options = ["--explainer", "saliency", "--draws", "2", "--out", str(tmp_path / "card.json")]
    found = CliRunner().invoke(
        app,
        ["reasons", "--model", "lenet5-mnist", "--data", str(folder), "--row", "1", *options],
    )
    assert found.exit_code == 0, found.output
    assert "photos, b.png, model LeNet5" in found.output
    card = json.loads((tmp_path / "card.json").read_text())
    assert (card["sample"], card["name"]) == (1, "b.png")
