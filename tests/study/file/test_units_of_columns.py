"""Units of columns in a study file, which cards have beside values; a wrong name is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

import standfast
from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from

MODEL = """
import torch

def build():
    layer = torch.nn.Linear(2, 2)
    layer.load_state_dict({"weight": torch.tensor([[0.0, 0.0], [3.0, -2.0]]), "bias": torch.zeros(2)})
    return layer
"""
STUDY = """
data: {rows: {path: rows.csv, label: paid}}
models: {net: {function: "own_units_model:build"}}
explainers: [input_x_gradient]
metrics: [{reasons: {draws: 3, top: 1}}]
controls: false
sanity: false
"""


def write_study(folder: Path, units: str = "") -> Path:
    """A study of two rows of two columns."""
    (folder / "rows.csv").write_text("income,debt,paid\n0.5,0.25,0\n0.75,0.5,1\n")
    (folder / "own_units_model.py").write_text(MODEL)
    file = folder / "study.yaml"
    file.write_text(STUDY.strip() + "\n" + units)
    return file


def test_units_stand_beside_values(tmp_path: Path) -> None:
    file = write_study(tmp_path, "units:\n  income: kEUR\n")
    found = standfast.run_study(file, out=tmp_path / "results", progress=False)
    card = found.reasons(0)
    assert card.columns == {"income": "0.5 kEUR", "debt": "0.25"}
    assert [reason.words for reason in card.reasons] == ["income 0.5 kEUR"]
    # who reads the results may say otherwise
    assert found.reasons(0, units={"income": "k$"}).columns["income"] == "0.5 k$"
    stored = standfast.load_results(tmp_path / "results")
    assert stored.reasons(0).columns == card.columns


def test_units_are_no_part_of_the_jobs(tmp_path: Path) -> None:
    results = tmp_path / "results"
    standfast.run_study(write_study(tmp_path), out=results, progress=False)
    file = write_study(tmp_path, "units: {debt: EUR}\n")
    found = standfast.run_study(file, out=results, progress=False)
    assert found.run is not None
    assert found.run.done == 0
    assert found.reasons(0).columns["debt"] == "0.25 EUR"


def test_an_unknown_column_is_told_with_its_line(tmp_path: Path) -> None:
    file = write_study(tmp_path, "units:\n  debt: EUR\n  incom: EUR\n")
    with pytest.raises(StudyError) as error:
        standfast.run_study(file, out=tmp_path / "results", progress=False)
    said = str(error.value)
    line = file.read_text().splitlines().index("  incom: EUR") + 1
    assert f"units.incom (line {line}): " in said
    assert "expected a column (income, debt), got 'incom' (did you mean 'income'?)" in said


def test_units_are_texts(tmp_path: Path) -> None:
    file = write_study(tmp_path, "units: {income: 3}\n")
    with pytest.raises(StudyError, match=r"units \(line 7\): expected a text, got 3"):
        standfast.run_study(file, out=tmp_path / "results", progress=False)


def test_units_are_in_the_plain_study() -> None:
    words = {
        "data": {"d": "digits"},
        "models": {"m": "lenet5-mnist"},
        "explainers": ["lrp"],
        "metrics": [{"reasons": {"draws": 3}}],
    }
    assert "units" not in study_from(words).plain()
    with_units = study_from({**words, "units": {"income": "EUR"}})
    assert study_from(with_units.plain()).units == {"income": "EUR"}
