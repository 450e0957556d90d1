"""The layers of the design: each imports only from the ones above it. And the rules of the house for files."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import holdfast

ROOT = Path(holdfast.__file__).parent

# from the top: a layer may import from itself and from those before it
LAYERS = (
    ("errors", "registry"),
    ("tensors", "segments"),
    ("neighbourhood",),
    ("similarity",),
    ("model",),
    ("gating",),
    ("explainers",),
    ("algorithms",),
    ("charts",),
    ("metrics",),
    ("data",),
    ("zoo",),
    ("study",),
    ("report",),
    ("progress",),
    ("evaluation",),
    ("export",),
    ("integrations",),
    ("reproduce",),
    ("demo", "dry_run", "fit"),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# whom a layer must not see although it stands below: algorithms know nothing of explanations or models, the report
# never loads a model
FORBIDDEN = {
    "algorithms": {"similarity", "model", "explainers"},
    "charts": {"similarity", "model", "explainers", "algorithms"},
    "segments": {"similarity", "model", "explainers", "algorithms", "charts"},
    "report": {"model", "explainers", "algorithms", "data", "zoo"},
    "data": {"model", "explainers", "algorithms", "metrics"},
    "zoo": {"explainers", "algorithms", "metrics"},
    "model": {"similarity"},
}


def imported_layers(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "holdfast":
            names |= {alias.name for alias in node.names if alias.name in RANK}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("holdfast.")}
    return names


def files() -> list[tuple[str, Path]]:
    found = [(f.relative_to(ROOT).parts[0].removesuffix(".py"), f) for f in sorted(ROOT.rglob("*.py"))]
    return [(layer, file) for layer, file in found if layer != "__init__"]


def test_every_file_belongs_to_a_layer() -> None:
    assert {layer for layer, _ in files()} == set(RANK)


def test_layers_import_only_from_above() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for layer, file in files()
        for name in imported_layers(file)
        if RANK[name] > RANK[layer] or name in FORBIDDEN.get(layer, set())
    ]
    assert wrong == []


def test_files_are_short_and_well_named() -> None:
    assert [str(f) for _, f in files() if f.stem in ("utils", "helpers", "common", "misc")] == []
    assert [str(f) for _, f in files() if len(f.read_text().splitlines()) > 420] == []


def test_import_is_quiet_and_light() -> None:
    code = (
        "import sys, holdfast; "
        "print([m for m in ('matplotlib', 'captum', 'torchvision', 'timm', 'jinja2', 'typer', 'skimage', 'numba')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
