"""Results are not used again after the user's code has changed, however Python reaches it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from standfast.study.identity import Known, fingerprint
from standfast.study.user_code import UserCode

EXPLAIN = "def explain(module, inputs, targets):\n    return {}\n"

#: code before `explain`, what `explain` returns (nothing: the code has it), and what the module or file beside it has;
#: the edit replaces 2.0 by 3.0
EDITS = {
    "a constant": ("POWER = 2.0\n", "inputs ** POWER"),
    "a constant of a class": ("class Config:\n    POWER = 2.0\n", "inputs ** Config.POWER"),
    "an attribute of a class of the helper": (
        "from helper import Config\n",
        "inputs ** Config.POWER",
        "class Config:\n    POWER = 2.0\n",
    ),
    "a default": ("def power(by=2.0):\n    return by\n", "inputs ** power()"),
    "a function behind lru_cache": (
        "from functools import lru_cache\n@lru_cache\ndef power():\n    return 2.0\n",
        "inputs ** power()",
    ),
    "a value of an enum": ("import enum\nclass Power(enum.Enum):\n    HIGH = 2.0\n", "inputs ** Power.HIGH.value"),
    "an instance of the module": (
        "class Config:\n    def __init__(self, power):\n        self.power = power\nCONFIG = Config(2.0)\n",
        "inputs ** CONFIG.power",
    ),
    "an instance with slots": (
        "class Config:\n    __slots__ = ('power',)\n    def __init__(self, power):\n        self.power = power\n"
        "CONFIG = Config(2.0)\n",
        "inputs ** CONFIG.power",
    ),
    "a partial": ("from functools import partial\nraised = partial(pow, exp=2.0)\n", "raised(inputs)"),
    "a namespace": ("from types import SimpleNamespace\nC = SimpleNamespace(power=2.0)\n", "inputs ** C.power"),
    "a named tuple": ("from collections import namedtuple\nC = namedtuple('C', 'power')(2.0)\n", "inputs ** C.power"),
    "a function of the helper": ("import helper\n", "inputs ** helper.power()", "def power():\n    return 2.0\n"),
    "a module within a package": (
        "import parts.inner\n",
        "inputs ** parts.inner.power()",
        "parts/inner: def power():\n    return 2.0\n",
    ),
    "a relative import of a package": (
        "from parts import power\n",
        "inputs ** power()",
        "parts/inner: def power():\n    return 2.0\n",
    ),
    "an import within the function": (
        "def explain(module, inputs, targets):\n    import helper\n    return inputs ** helper.POWER\n",
        "",
        "POWER = 2.0\n",
    ),
    "an import of an import": (
        "from parts.outer import raised\n",
        "raised(inputs)",
        "parts/inner: def power():\n    return 2.0\n",
    ),
    "globals()": ("POWER = 2.0\n", "inputs ** globals()['POWER']"),
    "getattr of a module": ("import helper\n", "inputs ** getattr(helper, 'PO' + 'WER')", "POWER = 2.0\n"),
    "a star import": ("from helper import *\n", "inputs ** POWER", "POWER = 2.0\n"),
    "a property": (
        "class Config:\n    @property\n    def power(self):\n        return 2.0\nCONFIG = Config()\n",
        "inputs ** CONFIG.power",
    ),
    "a class method": (
        "class Config:\n    @classmethod\n    def power(cls):\n        return 2.0\n",
        "inputs ** Config.power()",
    ),
    "a metaclass": (
        "class Kind(type):\n    POWER = 2.0\nclass Config(metaclass=Kind):\n    pass\n",
        "inputs ** Config.POWER",
    ),
    "a decorator": ("def raised(function):\n    return lambda *a: function(*a) ** 2.0\n@raised\n", "inputs"),
    "a dictionary of functions": ("KINDS = {'high': lambda x: x ** 2.0}\n", "KINDS['high'](inputs)"),
    "a value that is set later": ("class C:\n    pass\nC.power = 2.0\n", "inputs ** C.power"),
    "a dictionary that is updated later": ("C = {}\nC.update(power=2.0)\n", "inputs ** C['power']"),
    "a function within a function": (
        "def make():\n    power = 2.0\n    def inner(x):\n        return x ** power\n    return inner\nf = make()\n",
        "f(inputs)",
    ),
    "a base class in the helper": (
        "from helper import Base\nclass Own(Base):\n    pass\n",
        "Own().run(inputs)",
        "class Base:\n    def run(self, x):\n        return x ** 2.0\n",
    ),
    "a data class": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    power: float = 2.0\n",
        "inputs ** C().power",
    ),
    "a function that calls itself": (
        "def power(by):\n    return 2.0 if by in {'low', 'high'} else power('low')\n",
        "inputs ** power('')",
    ),
    "a data file": (
        "import json, pathlib\nC = json.loads((pathlib.Path(__file__).parent / 'powers.json').read_text())\n",
        "inputs ** C['power']",
        'powers.json: {"power": 2.0}',
    ),
    "a data file in a folder": (
        "import json, pathlib\nHERE = pathlib.Path(__file__).parent\n"
        "C = json.loads((HERE / 'parts' / 'p.ckpt').read_text())\n",
        "inputs ** C['power']",
        'parts/p.ckpt: {"power": 2.0}',
    ),
    "a data file that is opened to be read": (
        "import json\ndef read(path, mode):\n    return json.load(open(path, mode))\n",
        "inputs ** json.load(open('powers.json', 'r'))['power']",
        'powers.json: {"power": 2.0}',
    ),
    "import_module": (
        "import importlib\nhelper = importlib.import_module('helper')\n",
        "inputs ** helper.POWER",
        "POWER = 2.0\n",
    ),
    "a condition": ("import sys\nif sys.platform:\n    POWER = 2.0\nelse:\n    POWER = 1.0\n", "inputs ** POWER"),
}


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def write(folder: Path, module: str, helper: str) -> None:
    """Write the module of the user, with what lies beside it."""
    (folder / "parts").mkdir(parents=True)
    texts = {"mine.py": module, "helper.py": "", "parts/__init__.py": "from .inner import power\n"}
    texts |= {
        "parts/inner.py": "",
        "parts/outer.py": "from . import inner\ndef raised(x):\n    return x ** inner.power()\n",
    }
    name, colon, text = helper.partition(": ")
    if colon and name.endswith((".json", ".ckpt")):
        texts[name] = text
    elif colon and "/" in name:
        texts[f"{name}.py"] = text
    else:
        texts["helper.py"] = helper
    if not texts["parts/inner.py"]:
        texts["parts/inner.py"] = "def power():\n    return 1.0\n"
    for path, text in texts.items():
        (folder / path).write_text(text, encoding="utf-8")


def load(folder: Path) -> ModuleType:
    """Import `mine` from a folder as a new process would."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("mine", "helper", "parts")]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module("mine")
    finally:
        sys.path.remove(str(folder))


@pytest.mark.parametrize("kind", EDITS)
def test_every_edit_is_noticed(kind: str, tmp_path: Path) -> None:
    code, returned, *beside = EDITS[kind]
    module, helper = code + EXPLAIN.format(returned) if returned else code, "".join(beside)
    found = []
    for folder, power in (("first", "2.0"), ("moved", "2.0"), ("edited", "3.0")):
        write(tmp_path / folder, module.replace("2.0", power), helper.replace("2.0", power))
        found.append(fingerprint(load(tmp_path / folder).explain))  # the folder is not on the path any more
    assert found[0] == found[1]  # the same code in another folder
    assert found[1] != found[2]


@pytest.mark.parametrize("edited", ["inner", "outer", "last"])
def test_a_module_that_is_imported_twice_does_not_end_the_search(edited: str, tmp_path: Path) -> None:
    """`outer` and `last` both import `inner`; whichever is read first, the others count, too."""
    found = []
    for folder, number in (("first", 2), ("edited", 3)):
        write(tmp_path / folder, "from parts import last, inner, outer\n" + EXPLAIN.format("inputs"), "")
        (tmp_path / folder / "parts" / "last.py").write_text("from . import inner\n")
        with (tmp_path / folder / "parts" / f"{edited}.py").open("a") as stream:
            stream.write(f"POWER = {number}\n")
        found.append(fingerprint(load(tmp_path / folder).explain))
    assert found[0] != found[1]


def test_comments_formatting_and_what_runs_only_as_a_script_do_not_count(tmp_path: Path) -> None:
    text = "POWER = 2.0\n" + EXPLAIN.format("inputs ** POWER")
    again = "# of the paper\nPOWER = (\n    2.0\n)\n" + EXPLAIN.format("inputs**POWER")
    again += "if __name__ == '__main__':\n    print(explain)\n"
    found = []
    for folder, module in (("first", text), ("again", again)):
        write(tmp_path / folder, module, "")
        found.append(fingerprint(load(tmp_path / folder).explain))
    assert found[0] == found[1]


def test_an_attribute_of_a_layers_class_counts(tmp_path: Path) -> None:
    text = (
        "from torch import nn\nclass Scaled(nn.Module):\n    POWER = 2.0\n"
        "    def forward(self, x):\n        return x.flatten(1) ** self.POWER\n"
    )
    found = []
    for folder, power in (("first", "2.0"), ("moved", "2.0"), ("edited", "3.0")):
        write(tmp_path / folder, text.replace("2.0", power), "")
        found.append(fingerprint(torch.nn.Sequential(load(tmp_path / folder).Scaled())))
    assert found[0] == found[1] != found[2]


def test_the_modules_and_files_that_count_are_listed(tmp_path: Path) -> None:
    module = "from parts.outer import raised\nFILE = 'powers.json'\n" + EXPLAIN.format("raised(inputs)")
    write(tmp_path / "own", module, 'powers.json: {"power": 2.0}')
    code = UserCode()
    fingerprint(load(tmp_path / "own").explain, known=Known(code))
    assert sorted(code.modules) == ["mine", "mine: powers.json", "parts", "parts.inner", "parts.outer"]


def test_a_module_that_was_edited_after_its_import_is_named(tmp_path: Path) -> None:
    write(tmp_path / "own", "from functools import lru_cache\n@lru_cache\n" + EXPLAIN.format("inputs ** 2.0"), "")
    path = tmp_path / "own" / "mine.py"
    loaded = load(tmp_path / "own")
    helper = type("Own", (), {"__module__": "mine"})
    before = UserCode().digest_of(helper)
    path.write_text(path.read_text().replace("2.0", "3.0"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    with pytest.warns(UserWarning, match=r"mine\.py was edited after this process had imported it"):
        stale = UserCode().digest_of(helper)
    sys.modules["mine"] = loaded
    importlib.invalidate_caches()
    load(tmp_path / "own")  # imported again: what runs is what the file says
    fresh = UserCode().digest_of(helper)
    assert len({before, stale, fresh}) == 3


def test_what_a_module_writes_does_not_count(tmp_path: Path) -> None:
    module = "def log():\n    with open('log.txt', 'a') as file:\n        file.write('x')\n" + EXPLAIN.format("inputs")
    write(tmp_path / "own", module, "log.txt: ")
    explain = load(tmp_path / "own").explain
    before = fingerprint(explain)
    (tmp_path / "own" / "log.txt").write_text("one more line")
    assert fingerprint(explain) == before


def test_a_data_file_that_appears_later_counts(tmp_path: Path) -> None:
    write(tmp_path / "own", "NAME = 'powers.json'\n" + EXPLAIN.format("inputs"), "")
    explain = load(tmp_path / "own").explain
    before = fingerprint(explain)
    (tmp_path / "own" / "powers.json").write_text("2")
    assert fingerprint(explain) != before


@pytest.mark.parametrize("bytecode", [True, False])
@pytest.mark.parametrize(
    "module",
    [
        "from functools import lru_cache\n@lru_cache\n" + EXPLAIN.format("inputs ** 2.0"),
        "POWER = 2.0\n" + EXPLAIN.format("inputs ** POWER"),
        "class Options:\n    powers: tuple = (1.0, 2.0)\n" + EXPLAIN.format("inputs ** Options.powers[1]"),
    ],
)
def test_an_edit_before_the_first_look_is_noticed(
    module: str, bytecode: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not bytecode)
    write(tmp_path / "own", module, "")
    load(tmp_path / "own")
    path = tmp_path / "own" / "mine.py"
    path.write_text(path.read_text().replace("2.0", "3.0"))
    with pytest.warns(UserWarning, match=r"mine\.py was edited after this process had imported it"):
        UserCode().digest_of(type("Own", (), {"__module__": "mine"}))


def test_what_only_the_stored_bytecode_tells_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that is computed; and an edit of a comment, with another date, is none."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(tmp_path / "own", "class A:\n    pass\nPOWERS = [2.0]\n" + EXPLAIN.format("inputs ** POWERS[0]"), "")
    load(tmp_path / "own")
    own, path = type("Own", (), {"__module__": "mine"}), tmp_path / "own" / "mine.py"
    text = path.read_text()
    path.write_text("# by hand\n\n" + text)
    before = UserCode().digest_of(own)
    load(tmp_path / "own")
    path.write_text(text.replace("2.0", "3.0"))
    with pytest.warns(UserWarning, match=r"mine\.py was edited after this process had imported it"):
        assert UserCode().digest_of(own) != before


@pytest.mark.parametrize("bytecode", [True, False])
def test_values_that_are_set_on_purpose_are_no_edits(
    bytecode: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file that is older than this process; and counters, and names that are set twice, in any."""
    monkeypatch.setattr(sys, "dont_write_bytecode", not bytecode)
    counted = "COUNT = 0\nMODE = 1\nMODE = 2\ndef count():\n    global COUNT\n    COUNT += 1\n"
    write(tmp_path / "own", counted + EXPLAIN.format("inputs"), "")
    load(tmp_path / "own").count()
    assert UserCode().digest_of(type("Own", (), {"__module__": "mine"}))
    write(tmp_path / "old", "POWER = 2.0\n" + EXPLAIN.format("inputs ** POWER"), "")
    os.utime(tmp_path / "old" / "mine.py", (10**9, 10**9))
    load(tmp_path / "old").POWER = 3.0
    assert UserCode().digest_of(type("Own", (), {"__module__": "mine"}))


def test_classes_that_contain_each_other_and_objects_that_answer_anything_do_no_harm(tmp_path: Path) -> None:
    module = (
        "class Any:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\n"
        "class A:\n    pass\nclass B:\n    other = A\nA.other, A.own, ANY = B, A, Any()\n"
        "def first():\n    return 1\nfirst.__wrapped__ = first\n"
    )
    write(tmp_path / "own", module + EXPLAIN.format("inputs"), "")
    assert fingerprint(load(tmp_path / "own").explain)


def test_a_module_whose_file_is_gone_is_no_reason_to_stop(tmp_path: Path) -> None:
    write(tmp_path / "own", EXPLAIN.format("inputs"), "")
    explain = load(tmp_path / "own").explain
    (tmp_path / "own" / "mine.py").unlink()
    assert fingerprint(explain)


SCRIPT = """
import sys
from dataclasses import dataclass
from functools import lru_cache
import helper
from standfast.study.identity import fingerprint

@lru_cache
def power():
    return 2.0

@dataclass
class Options:
    shift: float = 2.5

OPTIONS = Options()
OPTIONS.shift = 2.25

def setup():
    OPTIONS.scale = 6.0

setup()
inputs = 9.0

def explain(module, inputs, targets):
    return OPTIONS.scale * inputs ** power() + OPTIONS.shift + helper.POWER + find("a")

def find(name):  # it calls itself, and the order of a set is another in every process
    return 1.0 if name in {"a", "b", "c", "d"} else find("a")

class Own:
    def explain(self, module, inputs, targets):
        return OTHER * inputs

from helper import *

def unrelated():
    return 7.0

found = fingerprint(explain)
print(found)
"""


def test_a_script_counts_by_the_statements_that_a_function_needs(tmp_path: Path) -> None:
    seeds = iter(map(str, range(1, 100)))

    def run(script: str, helper: str = "POWER = 1.0\n") -> str:
        (tmp_path / "helper.py").write_text(helper)
        (tmp_path / "script.py").write_text(script)
        command = [sys.executable, "-B", str(tmp_path / "script.py")]
        own = {**os.environ, "PYTHONHASHSEED": next(seeds)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=own).stdout

    first = run(SCRIPT)
    end = "if __name__ == '__main__':\n    inputs = 1.0\n    print('done', file=sys.stderr)\n"
    assert run(SCRIPT.replace("7.0", "8.0").replace("9.0", "8.0") + end) == first
    for text, other in (("2.0", "3.0"), ("2.25", "3.25"), ("@lru_cache\n", ""), ("6.0", "5.0")):
        assert run(SCRIPT.replace(text, other)) != first, text
    assert run(SCRIPT, "POWER = 4.0\n") != first
    shutil.rmtree(tmp_path)


def test_a_script_of_a_package_counts_with_what_it_imports_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `python -m parts.script` runs it: the package's name is in `__spec__` only."""
    write(tmp_path / "own", "", "parts/inner: def power():\n    return 2.0\n")
    load(tmp_path / "own")
    monkeypatch.syspath_prepend(tmp_path / "own")
    path = tmp_path / "own" / "parts" / "script.py"
    path.write_text("from . import inner\ndef explain(module, inputs, targets):\n    return inner.power()\n")
    script = ModuleType("__main__")
    script.__file__, script.__spec__ = str(path), ModuleSpec("parts.script", None)
    script.__package__ = "parts"
    exec(compile(path.read_text(), path, "exec"), vars(script))
    monkeypatch.setitem(sys.modules, "__main__", script)
    code = UserCode()
    assert code.digest_of(script.explain)
    assert sorted(code.modules) == ["__main__", "parts", "parts.inner"]
