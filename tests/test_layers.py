"""The layers of the design: each imports only from the ones above it. And the rules of the house for files."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import standfast

ROOT = Path(standfast.__file__).parent
CHECKOUT = Path(__file__).parents[1]

# the floors, from the top; a room imports only from floors above its own, and from rooms before it on the same floor
LAYERS = (
    (
        "display",
        "errors",
        "files",
        "needs",
        "records",
        "registry",
        "tensors",
        "input_types",
        "function_calls",
        "segments",
    ),
    ("value_spec", "cells", "neighbourhoods", "similarity", "tasks"),
    ("reference", "model", "gating"),
    ("frames", "texts"),
    ("explainers",),
    ("statistics", "algorithms"),
    ("metrics", "testing"),
    ("data", "zoo", "training"),
    ("question",),
    ("study",),
    ("results",),
    ("report",),
    ("evaluation", "reason_cards", "race"),
    ("checks", "evidence", "pytest_plugin", "integrations", "cli", "__main__"),
)
RANK = {name: rank for rank, name in enumerate(name for names in LAYERS for name in names)}
# whom a layer must not see although it stands below: algorithms know nothing of explanations or models, the report
# never loads a model, stored results are read without the metrics that made them
FORBIDDEN = {
    "algorithms": {"similarity", "model", "explainers"},
    "statistics": {"similarity", "model", "explainers", "algorithms"},
    "segments": {"similarity", "model", "explainers", "algorithms"},
    "results": {"similarity", "model", "explainers", "algorithms", "metrics", "data", "zoo"},
    "report": {"model", "explainers", "metrics", "data", "zoo"},
    "data": {"model", "explainers", "algorithms", "metrics"},
    "zoo": {"explainers", "algorithms", "metrics"},
    "model": {"similarity"},
}
# what a layer may ask for in a function, so that it is not loaded with the layer: an old manifest does not say how the
# numbers of a metric are read, and its class does; `show` draws the result of a metric, too
ASKED_LATER = {"results": {"metrics"}, "report": {"metrics"}}


@cache
def parse(file: Path) -> ast.Module:
    """A file as a tree: most rules look at all files of the source."""
    return ast.parse(file.read_text())


@cache
def walk(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parse(file)))


@pytest.fixture(autouse=True, scope="module")
def keep_the_trees() -> Iterator[None]:
    """They are many objects, not to be searched for garbage again and again; other tests do without them."""
    gc.disable()
    yield
    parse.cache_clear()
    walk.cache_clear()
    gc.enable()


def imported_layers(file: Path) -> set[str]:
    names: set[str] = set()
    for node in walk(file):
        if isinstance(node, ast.ImportFrom) and node.module == "standfast":
            names |= {alias.name for alias in node.names if alias.name in RANK}
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith("standfast.")
        ):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("standfast.")}
    return names


def files() -> list[tuple[str, Path]]:
    found = [
        (f.relative_to(ROOT).parts[0].removesuffix(".py"), f) for f in sorted(ROOT.rglob("*.py"))
    ]
    return [(layer, file) for layer, file in found if layer != "__init__"]


def test_every_file_belongs_to_a_layer() -> None:
    assert {layer for layer, _ in files()} == set(RANK)


def test_layers_import_only_from_above() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for layer, file in files()
        for name in imported_layers(file)
        if RANK[name] > RANK[layer]
        or name in FORBIDDEN.get(layer, set()) - ASKED_LATER.get(layer, set())
    ]
    assert wrong == []


def test_there_are_few_floors() -> None:
    assert 12 <= len(LAYERS) <= 14


def test_the_engine_knows_no_study_file() -> None:
    """Jobs, workers and stores are the same whether a question comes from Python or from a file."""
    engine = [
        file
        for file in (ROOT / "study").rglob("*.py")
        if "file" not in file.relative_to(ROOT / "study").parts
    ]
    modules = {_module_of(file, ROOT, "standfast") for file in ROOT.rglob("*.py")}
    files_of_studies = {module for module in modules if module.startswith("standfast.study.file")}
    assert len(files_of_studies) > 10
    assert [
        f"{file.name}: {found}"
        for file in engine
        if (found := _imported(file, modules) & files_of_studies)
    ] == []


def test_nothing_forbidden_is_loaded_with_a_layer() -> None:
    """Imports are followed to the end, with the packages that a module is in: all that is loaded with the layer."""
    modules = {_module_of(file, ROOT, "standfast"): file for file in ROOT.rglob("*.py")}
    arrows = {module: _loaded_at_once(file, set(modules)) for module, file in modules.items()}
    wrong = []
    for layer, forbidden in FORBIDDEN.items():
        members = {module for module in modules if module.split(".")[1:2] == [layer]}
        assert members
        loaded = {module: _follow({module}, arrows) for module in members}
        for module, reached in loaded.items():
            rooms = {name.split(".")[1] for name in reached if "." in name}
            wrong += [f"{module} loads {room}" for room in sorted(rooms & forbidden)]
    assert wrong == []


#: prints what is loaded with results, and then with reports
LOADED = """
import sys, standfast.results
print(*(name for name in sys.modules if name.startswith('standfast.')))
import standfast.report
print(*(name for name in sys.modules if name.startswith('standfast.')))
"""


def test_results_and_reports_are_loaded_without_metrics() -> None:
    """What Python says of it, in a process of its own."""
    absent_with = {
        "results": {"metrics", "report", "explainers", "model", "similarity"},
        "report": {"metrics", "explainers", "model", "data", "zoo"},
    }
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for (room, absent), line in zip(absent_with.items(), done.stdout.splitlines(), strict=True):
        names = line.split()
        assert f"standfast.{room}" in names
        assert {name.split(".")[1] for name in names} & absent == set()


def _loaded_at_once(file: Path, modules: set[str]) -> set[str]:
    """The modules that are imported when a module is, and the packages that they are in."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(parse(file).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                node.module,
                *(f"{node.module}.{alias.name}" for alias in node.names),
            } & modules
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names} & modules
        else:
            nodes += ast.iter_child_nodes(node)
    parts = [name.split(".") for name in names]
    return {".".join(each[:count]) for each in parts for count in range(1, len(each) + 1)}


def _follow(starts: set[str], arrows: dict[str, set[str]]) -> set[str]:
    """Everything that can be reached along arrows, with the starts."""
    reached: set[str] = set()
    waiting = set(starts)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= arrows.get(name, set()) - reached
    return reached


def test_nothing_imports_papers_or_the_board() -> None:
    """These rooms use the library, and can be deleted."""
    wrong = []
    rooms = {"papers", "board", "standfast_board"}
    for file in [
        *ROOT.rglob("*.py"),
        *(CHECKOUT / "tests").rglob("*.py"),
        CHECKOUT / "conftest.py",
    ]:
        text = file.read_text()
        if not any(room in text for room in rooms):  # to parse all of them takes long
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.partition(".")[0] for name in names} & rooms:
                wrong.append(str(file.relative_to(CHECKOUT)))
    assert wrong == []


def test_metrics_know_nothing_of_their_presentation() -> None:
    """No charts, no data frames: only `Result.frame()` makes one, and what overrides it."""
    wrong = []
    for file in sorted((ROOT / "metrics").rglob("*.py")):
        for node in walk(file):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if "polars" in names and file.name != "result.py":
                wrong.append(f"{file.relative_to(ROOT)} imports polars")
    assert wrong == []


def test_charts_are_made_from_plain_numbers() -> None:
    allowed = {*LAYERS[0], "statistics", "results", "report"}
    files = sorted((ROOT / "report" / "charts").glob("*.py"))
    assert {name for file in files for name in imported_layers(file)} <= allowed
    wrong = [
        node.module
        for file in files
        for node in walk(file)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("standfast.report")
        and not (node.module or "").startswith("standfast.report.charts")
    ]
    assert wrong == []


@pytest.mark.parametrize("house", ["metrics", "report/presentation"])
def test_rooms_of_papers_do_not_import_each_other(house: str) -> None:
    rooms = {
        folder.name for folder in (ROOT / house).iterdir() if (folder / "__init__.py").is_file()
    }
    assert "safari" in rooms
    wrong = []
    for file in sorted((ROOT / house).glob("*/*.py")):
        for node in walk(file):
            parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            at, others = len(Path(house).parts) + 1, rooms - {file.parent.name}
            if parts[:at] == ["standfast", *Path(house).parts] and set(parts[at : at + 1]) & others:
                wrong.append(f"{file.relative_to(ROOT)} imports {node.module}")
    assert wrong == []


@pytest.mark.parametrize(
    ("folder", "package"),
    [(ROOT, "standfast"), (CHECKOUT / "benchmarks", ""), (CHECKOUT / "scripts", "")],
)
def test_no_import_circles(folder: Path, package: str) -> None:
    """Among the modules of a folder, by all imports: also those inside functions, and modules named in a string."""
    modules = {_module_of(file, folder, package): file for file in folder.rglob("*.py")}
    assert len(modules) > 1
    arrows = {name: _imported(file, set(modules)) - {name} for name, file in modules.items()}
    assert _circles(arrows) == []


def _module_of(file: Path, root: Path, package: str) -> str:
    parts = [*([package] if package else []), *file.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(file: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    nodes = list(walk(file))
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and "import" in ast.unparse(node.func)
    ]
    asked = {id(argument) for call in calls for argument in call.args}  # of import_module("...")
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inner or ({node.module} & modules)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, _ = node.value.partition(":")
            found |= {module} & modules if colon or id(node) in asked else set()
    return found


def _circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Modules that reach themselves, grouped."""
    reached = {start: _follow(arrows[start], arrows) for start in arrows}
    groups = {
        tuple(sorted({a, *(b for b in reached[a] if a in reached.get(b, ()))}))
        for a in arrows
        if a in reached[a]
    }
    return [list(group) for group in sorted(groups)]


def test_folders_are_small_and_files_well_named() -> None:
    assert [str(f) for _, f in files() if f.stem in ("utils", "helpers", "common", "misc")] == []
    repository = Path(__file__).parents[1]
    roots = [ROOT, *(repository / name for name in ("tests", "benchmarks", "scripts", "examples"))]
    assert all(root.is_dir() for root in roots)
    folders = [folder for root in roots for folder in [root, *root.rglob("*")] if folder.is_dir()]
    assert [str(folder) for folder in folders if len(list(folder.glob("*.py"))) > 20] == []


def test_functions_have_at_most_seven_parameters() -> None:
    """Those that have more are what a user calls with names."""
    allowed = {
        "evaluation.py: evaluate",
        "checks/sequence.py: check",
        "model/model.py: __init__",
        "cli/model_commands.py: init",
        "cli/study_commands.py: run",
        "cli/model_commands.py: choose",
        "cli/model_commands.py: reasons",
        "reason_cards/cards.py: reasons",
        "race/entry.py: choose",
        "reason_cards/background_sizes.py: background_curve",
    }
    wrong = set()
    for _, file in files():
        for node in walk(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [
                    a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                ]
                if len(names) - (names[:1] in (["self"], ["cls"])) > 7:
                    wrong.add(f"{file.relative_to(ROOT)}: {node.name}")
    assert wrong == allowed


def test_classes_have_at_most_fifteen_public_methods() -> None:
    """All but `Model`: what a user calls, and what explainers and metrics ask of a model, are methods of one class.

    And all but `Transformation`, by one: each method is a question that a kind of change may answer in its own way.
    """
    large = set()
    for _, file in files():
        for node in walk(file):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                plain = [
                    part.name
                    for part in methods
                    if not any("property" in ast.unparse(d) for d in part.decorator_list)
                ]
                if len([name for name in plain if not name.startswith("_")]) > 15:
                    large.add(node.name)
    assert large == {"Model", "Transformation"}


def test_no_function_has_the_name_of_its_module() -> None:
    """Importing it into the package would hide the module."""
    assert [
        str(file.relative_to(ROOT))
        for _, file in files()
        for node in parse(file).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == file.stem
    ] == []


def test_tests_are_in_the_folders_of_the_source() -> None:
    tests = Path(__file__).parent
    own = {"references", "stand_ins", "docs", "field", "golden"}  # of no folder of the source
    folders = {f.parent.relative_to(tests) for f in tests.rglob("test_*.py")}
    assert [
        str(f)
        for f in sorted(folders)
        if f.parts and f.parts[0] not in own and not (ROOT / f).is_dir()
    ] == []


def test_tests_have_the_names_of_the_source() -> None:
    """At the top `test_NAME.py` or `test_NAME_*.py` tests `NAME.py`."""
    # rules for all of the source, entry points, and measurements
    own = {
        "layers",
        "readability",
        "packaging",
        "plugins",
        "on_a_card",
        "on_a_card_rates",
        "on_a_card_waits",
    }
    names = [f.stem.removeprefix("test_") for f in Path(__file__).parent.glob("test_*.py")]
    sources = {f.stem for f in ROOT.glob("*.py")}
    assert [
        n
        for n in names
        if n not in own and not any(f"{n}_".startswith(f"{source}_") for source in sources)
    ] == []


def test_tests_of_one_room_are_in_it() -> None:
    """A test file that imports from a single room of its folder of the source, at its top, is in that room."""
    tests, wrong = Path(__file__).parent, []
    for file in sorted(tests.rglob("test_*.py")):
        folder = file.parent.relative_to(tests)
        start = ".".join(("standfast", *folder.parts, ""))
        nodes = [
            node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)
        ]
        names = {
            f"{node.module}.".removeprefix(start).split(".")[0]
            for node in nodes
            if f"{node.module}.".startswith(start)
        }
        whole = [alias.name for node in nodes if node.module == "standfast" for alias in node.names]
        names |= {""} if folder.name in whole else set()
        if (
            folder.parts
            and len(names) == 1
            and "" not in names
            and (ROOT / folder / names.pop()).is_dir()
        ):
            wrong.append(str(file.relative_to(tests)))
    assert wrong == []
