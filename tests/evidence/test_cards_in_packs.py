"""Cards of decisions are in a pack with arrays, and are made again when it is verified."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import standfast
from standfast.evidence import make_pack, verify_pack
from standfast.evidence.pack import _seal


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards") / "results"
    digits = standfast.data.bundled("digits")[:8]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    metric = standfast.metrics.Reasons(standfast.LinfBall(0.02), top=4, draws=10)
    standfast.evaluate(
        model,
        "saliency",
        digits,
        [metric],
        out=folder,
        sanity=False,
        controls=False,
        progress=False,
    )
    return folder


@pytest.fixture(scope="module")
def pack(results: Path) -> Path:
    """With arrays, so with cards."""
    folder = results.parent / "pack"
    assert make_pack(results, folder, arrays=True).fine
    return folder


def test_the_weakest_and_the_strongest_decisions_have_cards(results: Path, pack: Path) -> None:
    cards = sorted((pack / "cards").glob("*.json"))
    assert len(cards) == 6
    shown = [json.loads(path.read_text())["same"] for path in cards]
    values = sorted(standfast.load_results(results).samples["value"].to_list())
    assert shown == pytest.approx([*values[:3], *values[-3:]])


def test_no_inputs_are_shown_without_arrays(results: Path, tmp_path: Path) -> None:
    make_pack(results, tmp_path / "pack")
    assert not (tmp_path / "pack" / "cards").exists()


def test_a_card_that_the_draws_do_not_give_is_found(pack: Path, tmp_path: Path) -> None:
    """Somebody changes a card, and seals the pack again."""
    shutil.copytree(pack, tmp_path / "pack")
    path = sorted((tmp_path / "pack" / "cards").glob("*.json"))[0]
    card = json.loads(path.read_text())
    card["same"] = 1.0
    path.write_text(json.dumps(card))
    about = json.loads((tmp_path / "pack" / "evidence.json").read_text())
    content = path.read_bytes()
    about["files"][f"cards/{path.name}"] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    del about["seal"]
    (tmp_path / "pack" / "evidence.json").write_bytes(_seal(about))
    assert list(verify_pack(tmp_path / "pack").problems) == [f"cards/{path.name}"]
