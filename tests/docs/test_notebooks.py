"""The notebooks run, at a small size, and say what they should."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import notebook_cells  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_SMALL", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    namespace: dict[str, Any] = {}
    shown = notebook_cells.run(path, namespace)
    code = [place for place, cell in enumerate(notebook_cells.cells(path)) if cell.kind == "code"]
    assert set(shown) <= set(code)
    assert len(shown) >= 4, "a notebook without output"
    assert namespace["SMALL"] is True


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own_image_model", "time_series", "training_schemes"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_plain_text_that_jupytext_reads_alike(path: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="needs the extra docs")
    cells = jupytext.read(path, fmt="py:percent").cells
    ours = notebook_cells.cells(path)
    assert [(cell.cell_type, cell.source.strip()) for cell in cells] == [(c.kind, c.source.strip()) for c in ours]


def test_what_a_cell_shows(tmp_path: Path) -> None:
    path = tmp_path / "few.py"
    path.write_text(
        "# ---\n# title\n# ---\n\n# %% [markdown]\n# # Few\n#\n# words\n"
        '\n# %%\nx = 1\nprint("a < b")\nx + 1\n\n# %%\nx;\n\n# %%\n{"k": x}\n'
    )
    assert [cell.kind for cell in notebook_cells.cells(path)] == ["markdown", "code", "code", "code"]
    assert notebook_cells.cells(path)[0].source == "# Few\n\nwords"
    shown = notebook_cells.run(path)
    assert sorted(shown) == [1, 3]
    assert "a &lt; b" in shown[1]
    assert "2" in shown[1]
    assert "{&#x27;k&#x27;: 1}" in shown[3]


def test_an_error_names_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("# %%\n1\n\n# %%\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        notebook_cells.run(path)
    assert caught.traceback[-1].path == "bad.py, cell 1" or "bad.py, cell 1" in str(caught.traceback[-1].path)
