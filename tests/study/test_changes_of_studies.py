"""All changes of the benchmark: no old number is given for what is new, and nothing is computed needlessly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "reliability" / "study_changes.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["tensors", "arrays", "frames", "texts"])
def test_all_changes(kind: str) -> None:
    for package in {"frames": ["shap"], "arrays": ["shap"], "texts": ["transformers"]}.get(
        kind, []
    ):
        pytest.importorskip(package)
    run = subprocess.run(
        [sys.executable, str(BENCHMARK), kind], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
