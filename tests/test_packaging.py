"""What somebody gets who installs standfast: a quick and quiet import, types, a whole wheel, a citation."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from ruamel.yaml import YAML

import standfast

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tests" / "stand_ins" / "user_script.py"


#: prints what is loaded by the import, and then by explainers and models; the rest prints nothing
IMPORTS = """
import sys
import standfast
print(set(sys.modules))
import torch
model = standfast.Model(torch.nn.Linear(4, 2), (0, 1), device="cpu")
standfast.explainers.get("lrp")(model, torch.rand(2, 4))
model.row_budget(torch.rand(2, 4), count=10**6)
standfast.LinfBall
print(set(sys.modules))
assert set(standfast.__all__) <= set(dir(standfast))
for name in standfast.__all__:
    value = getattr(standfast, name)
    assert getattr(standfast, name) is value and vars(standfast)[name] is value
from standfast import *
from standfast.report import Results as same
assert Results is same and standfast.report.Results is same
"""


@pytest.fixture(scope="module")
def imports() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", IMPORTS]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_import_brings_nothing_that_was_not_asked_for(
    imports: subprocess.CompletedProcess[str],
) -> None:
    loaded = {name.partition(".")[0] for name in eval(imports.stdout.splitlines()[0])}
    assert "standfast" in loaded
    heavy = (
        "torch altair captum numpy numba scipy matplotlib skimage polars pyarrow pandas pydantic typer rich fsspec "
        "ruamel PIL"
    )
    assert (
        loaded
        & set(f"{heavy} jinja2 pooch vl_convert safetensors sklearn torchvision timm".split())
        == set()
    )


def test_explainers_and_models_come_without_tables_charts_and_the_compiler(
    imports: subprocess.CompletedProcess[str],
) -> None:
    loaded = eval(imports.stdout.splitlines()[1])
    heavy = (
        "altair polars pyarrow pandas scipy matplotlib pydantic typer skimage numba torch._dynamo"
    )
    assert "torch" in loaded
    assert loaded & set(heavy.split()) == set()


@pytest.mark.parametrize("chosen", [None, "active"])
def test_threads_that_wait_do_not_spin_unless_the_user_says_so(chosen: str | None) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if chosen is not None:
        environment["OMP_WAIT_POLICY"] = chosen
    code = "import standfast, os; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (chosen or "passive")


def test_every_public_name_is_listed_and_comes_silently(
    imports: subprocess.CompletedProcess[str],
) -> None:
    assert (imports.returncode, len(imports.stdout.splitlines()), imports.stderr) == (0, 2, "")


def test_modules_are_attributes_and_nonsense_is_not() -> None:
    for module in pkgutil.iter_modules(standfast.__path__):
        if module.name == "__main__":
            continue
        assert getattr(standfast, module.name) is importlib.import_module(
            f"standfast.{module.name}"
        ) or (module.name in standfast.__all__)
    for name in ("metric", "_hidden", "__wrapped__"):
        assert not hasattr(standfast, name)
    with pytest.raises(AttributeError, match="module 'standfast' has no attribute 'metric'"):
        _ = standfast.metric  # type: ignore[attr-defined]


def test_a_broken_installation_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "polars.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'polars'\", name='polars')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import standfast; standfast.metrics"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert "ModuleNotFoundError: No module named 'polars'" in done.stderr


def test_a_script_of_a_user_runs_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "radius"


def test_the_script_of_a_user_is_type_checked_always() -> None:
    assert (
        "tests/stand_ins/user_script.py"
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    )


@pytest.mark.slow
def test_a_strict_user_needs_no_stubs(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import standfast\n\nstandfast.LinfBall(radius='a')\nstandfast.nonsense\nstandfast.metrics.nonsense\n"
        "x: int = standfast.__version__\n"
    )
    # the package as a user has it: found where it is installed, and without our configuration
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(tmp_path / "c"),
    ]
    done = subprocess.run(
        [*command, str(SCRIPT), str(wrong)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    found = sorted(
        re.findall(r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    )
    expected = [
        ("3", "arg-type"),
        ("4", "attr-defined"),
        ("5", "attr-defined"),
        ("6", "assignment"),
    ]
    assert found == [("wrong", *each) for each in expected], done.stdout + done.stderr


METADATA = """\
Requires-Python: >=3.11
License-Expression: Apache-2.0
Description-Content-Type: text/markdown
"""


def test_what_is_wrong_with_a_wheel_is_named(tmp_path: Path) -> None:
    """Of one that is written by hand; `make wheel` checks those that are built."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("needs the sources")
    script = runpy.run_path(str(ROOT / "scripts" / "check_wheel.py"))
    left_out = {"standfast/py.typed", "standfast/report/templates/charts.js"}
    added = {"tests/test_x.py", "papers/base.py", "standfast_board/site.py"}
    files = script["package_files"]()
    assert left_out < files
    about = {
        "METADATA": METADATA,
        "entry_points.txt": "[console_scripts]\nstandfast = standfast.cli:main\n",
        "LICENSE": "",
    }

    def find_problems(names: set[str]) -> set[str]:
        wheel = tmp_path / "standfast-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in about.items():
                archive.writestr(f"standfast-1.0.dist-info/{name}", text)
            for name in names:
                archive.writestr(name, "text")
        return set(script["check_wheel"](wheel))

    assert find_problems(files) == set()
    assert find_problems((files - left_out) | added) == {
        *(f"{name} is missing" for name in left_out),
        *(f"{name} should not be there" for name in added),
        "standfast/py.typed is needed",
    }


@pytest.mark.slow
def test_wheel_and_sdist_are_whole(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="needs hatchling")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("needs the sources")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = sorted(str(file) for file in tmp_path.iterdir())
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    check = [sys.executable, str(ROOT / "scripts" / "check_wheel.py")]
    done = subprocess.run([*check, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("complete") == 2
    # and what it prints for a wheel that is incomplete
    broken = tmp_path / "broken" / Path(files[0]).name
    broken.parent.mkdir()
    with zipfile.ZipFile(files[0]) as whole, zipfile.ZipFile(broken, "w") as part:
        for name in whole.namelist():
            if not name.endswith(("py.typed", "charts.js")):
                part.writestr(name, whole.read(name))
        for name in ("tests/test_x.py", "papers/base.py", "standfast_board/site.py"):
            part.writestr(name, "")
    done = subprocess.run([*check, str(broken)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    printed = done.stdout.splitlines()
    for each in (
        "standfast/py.typed is missing",
        "standfast/report/templates/charts.js is missing",
        "tests/test_x.py should not be there",
        "papers/base.py should not be there",
        "standfast_board/site.py should not be there",
    ):
        assert f"{broken.name}: {each}" in printed
    with tarfile.open(files[1]) as archive:
        assert not [
            name for name in archive.getnames() if "__pycache__" in name or "/.venv" in name
        ]


def test_the_type_checker_needs_no_other_room() -> None:
    """mypy ends with an error where a folder that it is told to check is missing."""
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert [path for path in checked if path.startswith(("papers", "board"))] == []


@pytest.mark.slow
def test_the_library_stands_without_papers_and_board(tmp_path: Path) -> None:
    """A checkout without these rooms builds the wheel, which imports, and passes tests."""
    pytest.importorskip("hatchling", reason="needs hatchling")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a checkout")
    checkout, wheels, installed = (tmp_path / name for name in ("checkout", "wheels", "installed"))
    for name in listed.stdout.splitlines():
        if not name.startswith(("papers/", "board/")) and (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, checkout / name)
    run = partial(subprocess.run, cwd=checkout, capture_output=True, text=True, check=False)
    done = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)])
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
        archive.extractall(installed)
    assert {name for name in folders if not name.endswith(".dist-info")} == {"standfast"}
    code = (
        "import standfast; print(standfast.__file__); standfast.evaluate, standfast.metrics.names()"
    )
    done = run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(installed)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(installed))
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    files = ["tests/test_layers.py", "tests/test_records.py", "tests/metrics/senc"]
    done = run([*tests, *files], env={**os.environ, "PYTHONPATH": str(checkout / "src")})
    assert done.returncode == 0, done.stdout


def test_the_citation_names_the_papers_of_the_metrics() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = YAML(typ="safe").load(text)
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (str(cited["version"]), cited["license"]) == (project["version"], project["license"])
    for reference in cited["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()
        assert all(
            {"family-names", "given-names"} == author.keys() for author in reference["authors"]
        )
    known = [
        standfast.metrics.metrics[name].bibtex
        for name in (
            "worst_case",
            "data_sensitivity_consistency",
            "c_eval",
            "attribution_attack",
            "corruption_curve",
        )
    ]
    assert len(cited["references"]) == len(known) == 5
    for bibtex in known:
        title = re.search(r"title\s*=\s*\{(.*)\},?\n", bibtex)
        plain = title[1].replace("{", "").replace("}", "")
        found = [reference for reference in cited["references"] if reference["title"] == plain]
        assert len(found) == 1, plain
        first = re.search(r"author\s*=\s*\{(\w+)", bibtex)
        year = re.search(r"year\s*=\s*\{(\d+)\}", bibtex)
        assert (found[0]["authors"][0]["family-names"], found[0]["year"]) == (
            first[1],
            int(year[1]),
        )


def pins(file: str) -> dict[str, Version]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines())
    return {
        name.lower().replace("_", "-"): Version(v)
        for name, _, v in (line.partition("==") for line in lines if line)
    }


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(*extras: str) -> dict[str, Requirement]:
    """What the package and these extras ask for, by name; without our own extras among them."""
    lines = project()["dependencies"] if not extras else []
    lines = [
        *lines,
        *(line for extra in extras for line in project()["optional-dependencies"][extra]),
    ]
    return {r.name.lower(): r for r in map(Requirement, lines) if r.name != "standfast"}


def test_lower_bounds_are_what_is_tested() -> None:
    lowest, newest = pins("constraints-minimum.txt"), pins("constraints.txt")
    optional = [
        requirements(extra)
        for extra in project()["optional-dependencies"]
        if extra not in ("dev", "docs")
    ]
    for name, requirement in [
        *requirements().items(),
        *(item for each in optional for item in each.items()),
    ]:
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        if name in newest:
            assert requirement.specifier.contains(newest[name]), name
        if name in lowest and name != "torch":  # see constraints-minimum.txt
            assert (
                lowest[name].release[: len(Version(bound.version).release)]
                == Version(bound.version).release
            ), name
    assert requirements().keys() <= lowest.keys() & newest.keys()


def test_the_lock_has_hashes_of_all_pinned_versions_but_torch() -> None:
    locked: dict[str, str] = {}
    for part in re.split(r"\n(?=[a-z])", (ROOT / "constraints.lock").read_text().lower())[1:]:
        name, version = re.match(r"([\w.-]+)==([^\s\\;]+)", part).groups()  # type: ignore[union-attr]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", part), name
        locked[re.sub("[-_.]+", "-", name)] = version
    pinned = {
        re.sub("[-_.]+", "-", name.lower()): version
        for name, version in pins("constraints.txt").items()
    }
    assert {name: Version(version) for name, version in locked.items()} == {
        name: version for name, version in pinned.items() if name != "torch"
    }


def test_actions_are_named_by_commit() -> None:
    used = re.findall(
        r"uses: *(\S+)", "".join(file.read_text() for file in (ROOT / ".github").rglob("*.yml"))
    )
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in used), used


def test_the_least_torch_can_run_compiled_models_as_they_were_written() -> None:
    """`torch.compiler.set_stance` came with torch 2.6."""
    (bound,) = requirements()["torch"].specifier
    assert Version(bound.version) >= Version("2.6")


def test_the_extra_all_has_every_package_but_those_that_need_a_choice() -> None:
    extras = project()["optional-dependencies"]
    (own,) = (Requirement(line) for line in extras["all"] if line.startswith("standfast"))
    every = requirements(*(extra for extra in extras if extra not in ("all", "dev", "docs")))
    found = requirements("all", *own.extras)
    # torchvision, and what needs it, must fit the installed torch; aeon asks for old versions of others
    assert every.keys() - found.keys() == {"aeon", "timm", "torchvision"}
    assert all(found[name].specifier == every[name].specifier for name in found)


def test_every_extra_that_an_error_or_a_page_names_exists() -> None:
    named = set()
    sources = [file.read_text() for file in (ROOT / "src").rglob("*.py")]
    for source in sources:
        if "MissingExtraError" not in source:  # to parse all of them takes long
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "MissingExtraError":
                # one caller hands over a variable
                named.add(getattr(node.args[1], "value", "explainers"))
    pages = [file.read_text() for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    for text in [*pages, *sources]:
        for found in re.findall(r"(?<!f')standfast\[([\w,]+)\]", text):
            named |= set(found.split(","))
    assert named <= project()["optional-dependencies"].keys()
    assert {
        "data",
        "explainers",
        "fast",
        "hub",
        "peers",
        "ray",
        "remote",
        "slurm",
        "timeseries",
    } <= named


@pytest.fixture
def install_size(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "installation"))
    return importlib.import_module("install_size")


def test_an_installation_is_small(install_size: Any) -> None:
    """16 packages, torch among them, and 650 MB beside it, as they are installed here."""
    installed = install_size.find_installed(None)
    direct: dict[str, set[str]] = {name.replace(".", "-"): set() for name in requirements()}
    assert len(direct) <= 16
    beside = install_size.closure(installed, direct) - install_size.closure(
        installed, {"torch": set()}
    )
    assert direct.keys() - {"torch", "jinja2", "fsspec"} <= beside
    assert sum(install_size.megabytes(installed[name]) for name in beside) < 650


PLAIN = """
import importlib, json, pkgutil, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
import standfast
for module in pkgutil.walk_packages(standfast.__path__, "standfast."):
    if module.name != "standfast.pytest_plugin":  # only pytest imports it
        importlib.import_module(module.name)
digits = standfast.data.bundled("digits")[:2]
model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
ball = standfast.LinfBall(0.1)
metrics = [
    standfast.metrics.WorstCase(ball, search="random", budget=40),
    standfast.metrics.WorstCase(ball, search="random", budget=40, similarity="lens_recall:diverse=true,w=1"),
    standfast.metrics.MisinterpretationProbability(ball, particles=16, floor=-7.0),
    standfast.metrics.DataSensitivityConsistency(masks=30),
    "aopc:preset=quick",
    "c_eval:preset=quick",
]
surrogates = ["gradcam", "lime:samples=20", "lime:samples=20,segments=quickshift", "kernel_shap:samples=20"]
for explainers, chosen in ((["saliency"], metrics), (surrogates, ["aopc:preset=quick"])):
    found = standfast.evaluate(
        model, explainers, digits.inputs, chosen, out=sys.argv[2], progress=False, controls=False
    )
    assert set(found.frame()["status"]) == {"ok"}, found.frame()
report = found.to_html(sys.argv[3]).read_text()
assert report.count("<svg") > 3
"""


def test_a_plain_installation_evaluates_stores_and_reports(
    install_size: Any, tmp_path: Path
) -> None:
    """Every module imports and the defaults work where nothing is installed but our dependencies."""
    installed = install_size.find_installed(None)
    own = install_size.closure(
        installed, {name.replace(".", "-"): set() for name in requirements()}
    ) | {"standfast"}
    modules = packages_distributions()
    blocked = [
        name
        for name, brought in modules.items()
        if not own & {canonicalize_name(each) for each in brought}
    ]
    assert not own & {"captum", "matplotlib", "numba", "pandas", "pyarrow", "scikit-learn"}
    code = [sys.executable, "-W", "error", "-c", PLAIN, json.dumps(blocked)]
    done = subprocess.run(
        [*code, str(tmp_path / "results"), str(tmp_path / "report.html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
