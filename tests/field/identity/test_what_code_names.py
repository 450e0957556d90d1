"""A function or a class of the user's counts with the helpers, constants and modules that it names."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planned_jobs import import_again
from sklearn.tree import DecisionTreeRegressor

from standfast.study.file.spec import load_study
from standfast.study.identity import Description
from standfast.study.own_code import Reach, read_own_modules
from standfast.study.plan import make_plan

SCRIPT = """
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from standfast.similarity import Similarity
from standfast.study.identity import Description

@cache
def find_power():
    return POWER

def shape(maps):  # a helper of the script, which the class below uses
    return maps.abs().flatten(1) ** find_power()

class Base(Similarity):
    low, high, range = LOW, 0.6, (0.0, 1.0)

@dataclass(frozen=True)
class Share(Base):
    name = "share"

    def compare(self, a, b):
        from settings_of_script import SCALE  # imported when it is called
        spec = importlib.util.spec_from_file_location("p", str(Path(__file__).parent / "place_of_script.py"))
        return SCALE * torch.minimum(shape(a), shape(b)).sum(1)

digest = Description(Share()).digest
"""
FILES = {
    "script.py": "POWER, LOW, OTHER = 1, 0.4, 0\n" + SCRIPT,
    "settings_of_script.py": "from more_settings_of_script import SCALE\n",
    "more_settings_of_script.py": "SCALE = 1.0\n",
    "place_of_script.py": "SHIFT = 1\n",
}
#: what is replaced in which file, and whether it is noticed
EDITS = {
    "a constant that a helper of a helper names": (
        "script.py",
        "POWER, LOW, OTHER = 1,",
        "POWER, LOW, OTHER = 3,",
        True,
    ),
    "a constant of the class that it is based on": ("script.py", "1, 0.4, 0", "1, 0.3, 0", True),
    "a helper": ("script.py", "maps.abs()", "maps.square()", True),
    "a module that is imported by one that is imported when it is called": (
        "more_settings_of_script.py",
        "1.0",
        "3.0",
        True,
    ),
    "a module that is loaded from its place": ("place_of_script.py", "1", "2", True),
    "a constant that it does not name": ("script.py", "0.4, 0\n", "0.4, 7\n", False),
}


def describe_script(folder: Path, files: dict[str, str], patch: pytest.MonkeyPatch) -> str:
    """The digest of the class of a script that is run in a folder of its own."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with patch.context() as inside:
        inside.syspath_prepend(folder)
        digest: str = runpy.run_path(str(folder / "script.py"), run_name="__main__")["digest"]
    return digest


@pytest.mark.parametrize("change", EDITS)
def test_a_script_is_edited(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, before, after, noticed = EDITS[change]
    assert before in FILES[file]
    first = describe_script(tmp_path / "first", FILES, monkeypatch)
    changed = {**FILES, file: FILES[file].replace(before, after, 1)}
    second = describe_script(tmp_path / "second", changed, monkeypatch)
    assert (first != second) == noticed


def test_a_module_imported_when_a_function_is_called_counts_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    caller = "def compare(a, b):\n    from named_later import POWER\n    return POWER\n"

    def describe(power: float) -> list[str]:
        texts = {"named_later.py": f"POWER = {power}\n", "caller_of_mine.py": caller}
        module = import_again(tmp_path, texts, "caller_of_mine")
        before = Description(module.compare).digest
        assert module.compare(1, 2) == power
        return [before, Description(module.compare).digest]

    first, second = describe(1.0), describe(3.0)
    assert first[0] == first[1] != second[0] == second[1]
    assert "named_later" in read_own_modules()


def test_modules_are_found_wherever_python_would_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files, in packages, in folders that share a name on the path, and past what is no folder."""
    texts = {
        "beside/caller_on_path.py": """def call():
    import alone_on_path, package_on_path.inner, shared_on_path.left, shared_on_path.right, beside_on_path, not_on_path
""",
        "beside/beside_on_path.py": "",
        "one/alone_on_path.py": "",
        "one/package_on_path/__init__.py": "",
        "one/package_on_path/inner.py": "",
        "one/shared_on_path/left.py": "",
        "two/shared_on_path/right.py": "",
        "two/not_on_path.txt": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    places = [
        str(tmp_path / place) for place in ("missing", "two/not_on_path.txt", "one", "two", "one")
    ]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    monkeypatch.syspath_prepend(tmp_path / "beside")
    caller = importlib.import_module("caller_on_path")
    # what lies beside the caller is not on the path any more
    monkeypatch.setattr(sys, "path", sys.path[1:])
    monkeypatch.setitem(sys.modules, "caller_on_path", caller)
    named = {name for name in read_own_modules() if "_on_path" in name}
    parts = {"package_on_path.inner", "shared_on_path.left", "shared_on_path.right"}
    assert named == {"caller_on_path", "beside_on_path", "alone_on_path", "package_on_path", *parts}


def make_module(text: str) -> ModuleType:
    """A module without a file, as of what is typed into an interpreter."""
    module = ModuleType("typed_by_me")
    exec(textwrap.dedent(text), vars(module))
    return module


ENCLOSED = """
def make(p):
    class K:
        def g(self):
            return p
    return K
"""
PATTERN = "import re\nWORD = re.compile('a')\ndef f(x):\n    return WORD"
#: code that was typed in before and after
TYPED = {
    "a name": ("def f(x):\n    return abs(x)", "def f(x):\n    return sum(x)"),
    "a number": ("def f(x):\n    return x + 1", "def f(x):\n    return x + 2"),
    "a constant": ("P = 1\ndef f(x):\n    return x ** P", "P = 3\ndef f(x):\n    return x ** P"),
    "a pattern": (PATTERN, PATTERN.replace("'a'", "'b'")),
    "a method": (
        "class f:\n    def g(self):\n        return 1",
        "class f:\n    def g(self):\n        return 2",
    ),
    "what a class encloses": (f"{ENCLOSED}f = make(1)", f"{ENCLOSED}f = make(2)"),
}


@pytest.mark.parametrize(("before", "after"), TYPED.values(), ids=TYPED)
def test_code_without_a_text_counts_by_what_the_interpreter_knows(before: str, after: str) -> None:
    first, again, second = (
        Description(make_module(text).f).digest for text in (before, before, after)
    )
    assert first == again != second


def fit_tree(depth: int) -> Any:
    values = np.arange(40.0).reshape(20, 2)
    return DecisionTreeRegressor(max_depth=depth, random_state=0).fit(values, values[:, 0] ** 2)


def test_objects_of_other_packages_count_by_what_they_hold() -> None:
    def describe(thing: Any) -> list[Any]:
        reach = Reach()
        reach.add(thing, "thing")
        return reach.content

    assert describe(fit_tree(2)) == describe(fit_tree(2)) != describe(fit_tree(3))
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert describe(table) == describe(table.copy()) != describe(table.assign(b=["x", "z"]))
    assert describe(re.compile("a")) != describe(re.compile("b"))
    generator = np.random.default_rng(0)
    before = describe(generator)
    generator.random()
    assert describe(generator) == before  # else the same call would never be found again
    endless: list[Any] = []
    endless.append(endless)
    assert describe(endless) == []


FIT = """
import numpy as np

class Rule:
    classes_ = np.array(["no", "yes"])

    def predict_proba(self, X):
        z = (X["income"] - X["debt"]).to_numpy() / 1000 + (X["job"] == "clerk").to_numpy() * 0.5
        z = np.where((X["job"] == "farmer").to_numpy(), FARMER, z)
        p = 1 / (1 + np.exp(-z))
        return np.stack([1 - p, p], 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

def fit():
    return Rule()
"""
STUDY = """
samples: 4
sanity: false
controls: false
samples_per_job: 4
data: {rows: {table: rows.csv, types: {job: category}}}
models: {m: {function: "fit_of_study:fit"}}
explainers: [occlusion]
metrics: [{worst_case: {similarity: spearman, budget: 30}}]
neighbourhood: {table: {changes: {income: "5%", job: category}}}
"""


def test_the_file_of_a_function_of_a_study_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    random = np.random.default_rng(0)
    numbers = {
        "income": random.normal(3000, 500, 60).round(),
        "debt": random.normal(2000, 500, 60).round(),
    }
    frame = pd.DataFrame({**numbers, "job": random.choice(["clerk", "nurse", "farmer"], 60)})
    frame.loc[:3, "job"] = ["clerk", "nurse", "clerk", "nurse"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "s.yaml").write_text(STUDY)

    def plan(farmer: str) -> set[str]:
        (tmp_path / "fit_of_study.py").write_text(FIT.replace("FARMER", farmer))
        sys.modules.pop("fit_of_study", None)
        return {job.identity for job in make_plan(load_study(tmp_path / "s.yaml").grid()).jobs}

    before = plan("z")
    assert plan("z") == before
    assert not plan("X['debt'].to_numpy() / 500 - 4.2") & before
    assert not plan("z * 1") & before  # the same answers, by other code
