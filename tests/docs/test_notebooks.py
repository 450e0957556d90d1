"""The notebooks run, at a small size, and say what they should."""

from __future__ import annotations

import html
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
    monkeypatch.setenv("STANDFAST_SMALL", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)


#: the longest ones; `make docs` runs all of them at full size
LONG = ("credit", "training_schemes")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in LONG else ())
        for path in NOTEBOOKS
    ],
)
def test_notebook_runs_and_ends_in_a_decision(path: Path) -> None:
    namespace: dict[str, Any] = {}
    shown = notebook_cells.run(path, namespace)
    code = [place for place, cell in enumerate(notebook_cells.cells(path)) if cell.kind == "code"]
    assert set(shown) <= set(code)
    assert len(shown) >= 4, "a notebook without output"
    assert namespace["SMALL"] is True
    found = namespace["found"]
    for data, model in found.pairs:
        assert html.escape(str(found.verdict(data, model))) in "".join(shown.values())
    if path.stem != "training_schemes":  # which is about numbers
        assert sum(text.count("data:image/png") for text in shown.values()) >= 2, (
            "no pictures of data and results"
        )
        assert any("<table" in text for text in shown.values()), "no table of results"
    # a list of axes below a figure would be noise
    assert not any("Axes" in text for text in shown.values())


@pytest.mark.usefixtures("small")
def test_the_table_is_made_where_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    namespace: dict[str, Any] = {}
    notebook_cells.run(ROOT / "notebooks" / "tabular.py", namespace)
    assert namespace["names"][0] == "measurement 0"


def test_there_is_one_for_each_kind_of_data() -> None:
    names = ["credit", "own_image_model", "tabular", "text", "time_series", "training_schemes"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_plain_text_that_jupytext_reads_alike(path: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="needs the extra docs")
    cells = jupytext.read(path, fmt="py:percent").cells
    ours = notebook_cells.cells(path)
    assert [(cell.cell_type, cell.source.strip()) for cell in cells] == [
        (c.kind, c.source.strip()) for c in ours
    ]


def test_what_a_cell_shows(tmp_path: Path) -> None:
    path = tmp_path / "few.py"
    path.write_text(
        "# ---\n# title\n# ---\n\n# %% [markdown]\n# # Few\n#\n# words\n"
        '\n# %%\nx = 1\nprint("a < b")\nx + 1\n\n# %%\nx;\n\n# %%\n{"k": x}\n'
    )
    assert [cell.kind for cell in notebook_cells.cells(path)] == [
        "markdown",
        "code",
        "code",
        "code",
    ]
    assert notebook_cells.cells(path)[0].source == "# Few\n\nwords"
    shown = notebook_cells.run(path)
    assert sorted(shown) == [1, 3]
    assert "a &lt; b" in shown[1]
    assert "2" in shown[1]
    assert "{&#x27;k&#x27;: 1}" in shown[3]
