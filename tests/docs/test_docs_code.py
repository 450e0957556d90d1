"""The Python of the documentation runs: every page in a namespace of its own, from the first block to the last.

A block is not run where a comment right above it says so and why: `<!-- not run: reason -->`. Where the reason is that
it needs a package, it runs where that is. A block of YAML whose first line is `# NAME.yaml` is written to that file, so
that Python further down may use it. Pages that have a test of their own are in `ELSEWHERE`; sizes that would
take long are made smaller by `SMALLER`; what a page takes for done is done by `BEFORE`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: pages whose code another test runs
ELSEWHERE = {"docs/extending.md": "tests/test_plugins.py"}
#: what is done at full size on a page, and smaller here, so that the file takes seconds
SMALLER = {
    "README.md": {
        "[10:34]": "[10:12]",
        "texts[:12]": "texts[:4]",
        "budget=500": "budget=20",
        "budget=100": "budget=20",
        '"aopc"': '"aopc:samples=1,steps=5"',
    },
    "docs/c-eval.md": {
        "[:20]": "[:1]",
        "CEval(fraction=0.1)": 'CEval(fraction=0.1, preset="quick")',
        "[standfast.metrics.CEval()]": '["c_eval:preset=quick"]',
    },
    "docs/controls.md": {"[:12]": "[:2]"},
    "docs/how-to/choose.md": {
        "[:120]": "[:24]",
        "budget=100": "budget=5",
        '"aopc"': '"aopc:samples=1,steps=4"',
        "samples=16": "samples=4",
    },
    "docs/index.md": {"[10:34]": "[10:12]", "budget=500": "budget=20"},
    "docs/reading-results.md": {"[10:34]": "[10:12]", '"aopc"': '"aopc:preset=quick"'},
    "docs/metrics/c_eval.md": {
        "[:4]": "[:1]",
        "CEval(fraction=0.1)": 'CEval(fraction=0.1, preset="quick")',
    },
    "docs/metrics/index.md": {"[:4]": "[:2]"},
    "docs/how-to/reasons.md": {
        "smoothgrad:samples=4": "smoothgrad:samples=2",
        "kernel_shap:samples=64": "kernel_shap:samples=16",
        "top=1,": "top=1, draws=12,",
        "LinfBall(4 / 255)": "LinfBall(4 / 255), draws=12",
    },
    "docs/how-to/tabular.md": {
        "budget=30": "budget=10",
        "budget=60": "budget=10",
        "permutations=2": "permutations=1",
        "frame[:3]": "frame[:2]",
        "samples=200": "samples=40",
        "x[:4]": "x[:2]",
    },
    "docs/how-to/speed.md": {'"max_sensitivity"]\n': '"max_sensitivity"], seconds=0.5\n'},
    "docs/how-to/text.md": {
        "texts[:8]": "texts[:2]",
        "budget=60": "budget=10",
        '"AOPC": "aopc"': '"AOPC": "aopc:preset=quick"',
        "particles=50": "particles=10",
    },
    "docs/how-to/tasks.md": {
        "steps: int = 80": "steps: int = 20",
        "[:6]": "[:2]",
        "budget=100": "budget=20",
    },
    "docs/metrics/c_eval_plot.md": {"[:2]": "[:1]", "steps=10": "steps=3"},
    "docs/metrics/misinterpretation_probability.md": {"particles=50": "particles=10"},
    "docs/metrics/near_affinity.md": {"[:4]": "[:1]", "steps=10": "steps=2"},
    "docs/studies.md": {'"max_sensitivity"]\n': '"max_sensitivity"], seconds=0.5\n'},
    "docs/tutorial.md": {
        "[:8]": "[:2]",
        "budget=60": "budget=10",
        "budget: 40": "budget: 8",
        "steps=15": "steps=3",
    },
    "docs/lens.md": {
        'bundled("digits")[:8]': 'bundled("digits")[:2]',
        "steps=50": "steps=3",
        "restarts=2": "restarts=1",
    },
}
#: what has been done by somebody who reads that page
BEFORE = {
    "docs/studies.md": """
import standfast

study = {"data": {"digits": "digits"}, "samples": 2, "models": {"lenet": "lenet5-mnist"}, "explainers": ["saliency"]}
study |= {"metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}, "samples": 3}}]}
standfast.run_study(study, out="results/mnist", progress=False)
"""
}
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<kind>python|yaml)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
_NEEDS = re.compile(r"needs ([a-z_]+)$")
_FILE = re.compile(r"# ([\w-]+\.yaml)\b")


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    line: int
    reason: str | None


def blocks(text: str) -> list[Block]:
    """The blocks of Python and YAML, in order."""
    return [
        Block(m["kind"], m["code"], text.count("\n", 0, m.start("code")) + 1, m["reason"])
        for m in _BLOCK.finditer(text)
    ]


def pages() -> list[str]:
    """The pages with Python to run, by their path."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return [
        name
        for name in names
        if "```python" in (ROOT / name).read_text(encoding="utf-8") and name not in ELSEWHERE
    ]


def smaller(page: str, code: str) -> str:
    """The code with the sizes of `SMALLER`."""
    for full, small in SMALLER.get(page, {}).items():
        code = code.replace(full, small)
    return code


def can_run(block: Block) -> bool:
    needed = _NEEDS.match(block.reason or "")
    if needed is None:
        return block.reason is None
    try:
        importlib.import_module(needed[1])
    except (ImportError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("page", pages())
def test_code_of_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(BEFORE.get(page, ""), {})
    ran = 0
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.kind == "yaml":
            name = _FILE.match(block.code)
            if name:
                Path(name[1]).write_text(smaller(page, block.code), encoding="utf-8")
            continue
        with warnings.catch_warnings():
            if block.reason is not None:  # of the package
                warnings.simplefilter("ignore")
            if not can_run(block):
                continue
            # as many empty lines as are above it on the page, so that a traceback has the page's lines
            exec(
                compile(
                    "\n" * (block.line - 1) + smaller(page, block.code), str(ROOT / page), "exec"
                ),
                namespace,
            )
        ran += 1
    assert ran, f"no block of {page} was run"


def test_blocks_are_found_with_their_reasons_and_lines() -> None:
    text = "a\n```python\n1 / 0\n```\n\n<!-- not run: needs a GPU -->\n```python\nx = 1\n```\n```yaml\n# a.yaml\n```\n"
    found = blocks(text)
    expected = [("python", 3, None), ("python", 8, "needs a GPU"), ("yaml", 11, None)]
    assert [(block.kind, block.line, block.reason) for block in found] == expected


def test_every_block_of_python_is_seen() -> None:
    """None is missed because of how its fence is written."""
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert len([b for b in blocks(text) if b.kind == "python"]) == text.count("```python"), page


def test_sizes_that_are_made_smaller_are_there() -> None:
    for page, sizes in SMALLER.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [size for size in sizes if size not in text] == [], page


def test_pages_tested_elsewhere_are_there() -> None:
    for page, test in ELSEWHERE.items():
        assert (ROOT / page).exists()
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
