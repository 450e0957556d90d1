"""Metrics, explainers and data from another package: the example of docs/extending.md, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ArgumentError, HoldfastError
from holdfast.registry import Registry
from holdfast.study.results import load_results

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"

STUDY = """
data: {stripes: stripes}
models: {lenet: lenet5-mnist}
explainers: [saliency, {contrast: {gain: 2.0}}]
metrics:
  - blur_consistency: {size: 5}
samples: 3
"""


def install(folder: Path, module: str, points: str) -> None:
    """What pip would leave behind: a module, and the metadata with its entry points."""
    (folder / "blur.py").write_text(module)
    metadata = folder / "blur-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: blur\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


def test_the_page_of_the_docs_works_as_it_stands(tmp_path: Path) -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    assert len(blocks[0].split("class BlurConsistency")[1].splitlines()) <= 30
    imports = "from holdfast.data import Dataset\nfrom holdfast.explainers import Explainer\n"
    points = re.findall(r'\[project\.entry-points\."(.*?)"\]\n(\w+) = "(.*?)"', text)
    assert [group for group, *_ in points] == ["holdfast.metrics", "holdfast.explainers", "holdfast.data"]
    site = tmp_path / "site"
    site.mkdir()
    install(
        site, imports + "\n".join(blocks), "\n".join(f"[{group}]\n{name} = {value}" for group, name, value in points)
    )
    (tmp_path / "study.yaml").write_text(STUDY)
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONWARNINGS": "error"}

    def holdfast(*arguments: str) -> str:
        command = [sys.executable, "-m", "holdfast.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for kind, name in (("metrics", "blur_consistency"), ("explainers", "contrast"), ("datasets", "stripes")):
        assert name in holdfast("list", kind).split()
    schema = holdfast("schema")
    assert "of the blurring window in pixels, an odd number" in schema.replace("\n", " ")
    holdfast("run", "study.yaml")
    results = load_results(tmp_path / "results" / "study")
    kept = results.samples["kept"].to_list()
    assert len(kept) == 6
    assert all(-1 <= value <= 1 for value in kept)
    page = (tmp_path / "results" / "study" / "report" / "index.html").read_text()
    assert "you2026blur" in page
    assert "Blur consistency: kept" in page
    # the report of a computer that does not have the plug-in
    bare = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "report", "results/study", "--out", "bare.html"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert bare.returncode == 0, bare.stderr
    assert "Blur consistency: kept" in (tmp_path / "bare.html").read_text()


def registry_with(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> Registry[type]:
    install(folder, module, "[holdfast.shapes]\nround = blur:Round\nsquare = blur:Square\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "blur", raising=False)
    found: Registry[type] = Registry("shape", "holdfast.shapes", lambda kind: isinstance(kind, type))
    found.add("square", list)
    return found


def test_our_own_names_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "class Round: pass\nclass Square: pass\n")
    assert shapes.names() == ["round", "square"]
    assert shapes["square"] is list
    assert shapes["round"].__name__ == "Round"
    assert "round" in shapes
    with pytest.raises(ArgumentError, match="did you mean 'round'"):
        shapes["roond"]


def test_a_plugin_that_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "raise RuntimeError('not today')\n")
    assert shapes.names() == ["round", "square"]  # listing imports nothing
    said = "shape round: the plug-in blur:Round of blur could not be loaded: RuntimeError: not today"
    with pytest.raises(HoldfastError, match=said):
        shapes["round"]


def test_a_plugin_of_the_wrong_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "Round = 3\n")
    with pytest.raises(ArgumentError, match="shape round: expected a shape, got 3 from the plug-in blur:Round of blur"):
        shapes["round"]
