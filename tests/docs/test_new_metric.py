"""`scripts/new_metric.py` writes a metric that works, and enters its name in every list that the tests know."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    "src",
    "tests",
    "docs",
    "scripts",
    "mkdocs.yml",
    "pyproject.toml",
    "conftest.py",
    "README.md",
)
#: what fails for a metric that is not in every list
TESTS = (
    "tests/metrics/faithfulness/test_positive_share.py",
    "tests/metrics/test_seeds_and_constant_maps.py",
    "tests/docs/test_docs_metrics.py",
    "tests/docs/test_black_boxes.py",
    "tests/docs/test_docs_numbers.py",
    "tests/report/presentation/test_presentations.py",
    "tests/report/presentation/test_verdicts.py",
)


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=copy,
        env=environment,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with a new metric."""
    folder = tmp_path_factory.mktemp("copy")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / part, folder / part)
    done = run(folder, "scripts/new_metric.py", "positive_share")
    assert done.returncode == 0, done.stderr
    written = done.stdout.split()
    assert len(written) == len(set(written)) <= 18
    return folder


def test_the_new_metric_keeps_the_contract(copy: Path) -> None:
    code = (
        "import standfast; from standfast.testing import check_metric; "
        "check_metric(standfast.metrics.get('positive_share'), ['flat'])"
    )
    done = run(copy, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_its_name_is_in_every_list(copy: Path) -> None:
    chosen = (
        "positive_share or slow_implementation or tables_of_presets or index_names or page_lists"
    )
    done = run(copy, "-m", "pytest", *TESTS, "-k", chosen, "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout


def test_it_is_formatted_and_marked(copy: Path) -> None:
    """Every place that the author has to fill in says TODO; nothing is written twice."""
    page = (copy / "docs" / "metrics" / "positive_share.md").read_text()
    assert page.count("TODO") >= 5
    assert "@" not in page.partition("```bibtex")[0]
    again = run(copy, "scripts/new_metric.py", "positive_share")
    assert again.returncode == 1
    assert "src/standfast/metrics/faithfulness/positive_share.py" in again.stderr
    assert "there already" in again.stderr


@pytest.mark.parametrize(
    ("asks", "before", "after", "evidence"),
    [
        ("stable", "reasons", "attribution_attack", "drawn"),
        ("model", "c_eval_plot", "near_affinity", "faithful"),
        ("faithful", "positive_share", "corruption_curve", "faithful"),
        ("known", "relevance_localisation", "", "plausible"),
    ],
)
def test_it_stands_among_the_metrics_of_its_question(
    copy: Path, tmp_path: Path, asks: str, before: str, after: str, evidence: str
) -> None:
    """Above the last one of these, which the text below the table names."""
    folder = tmp_path / "copy"
    shutil.copytree(
        copy, folder, ignore=shutil.ignore_patterns("__pycache__", "golden", "zoo", "data")
    )
    done = run(folder, "scripts/new_metric.py", "one_more", "--asks", asks)
    assert done.returncode == 0, done.stderr
    index = (folder / "docs" / "metrics" / "index.md").read_text()
    listed = re.findall(r"^\| .*\]\((\w+)\.md\) \| (?:higher|lower|depends|does)", index, re.M)
    place = listed.index("one_more")
    assert listed[place - 1] == before
    assert listed[place + 1 :][:1] == [after] * bool(after)
    source = (folder / "src" / "standfast" / "metrics" / "faithfulness" / "one_more.py").read_text()
    assert f'    evidence = "{evidence}"' in source


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Positive-Share"], "words in small letters"),
        (
            ["other_share", "--room", "nowhere"],
            "expected one of c_eval, coarse_to_fine, faithfulness",
        ),
        (["other_share", "--asks", "everything"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_named(copy: Path, arguments: list[str], words: str) -> None:
    done = run(copy, "scripts/new_metric.py", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_entry_without_a_place_leaves_everything_as_it_was(copy: Path) -> None:
    glossary = copy / "docs" / "glossary.md"
    text = glossary.read_text()
    glossary.write_text(text.replace("## Metrics\n", "## Numbers\n"))
    done = run(copy, "scripts/new_metric.py", "another_share")
    glossary.write_text(text)
    assert done.returncode == 1
    assert "no place for" in done.stderr
    assert (
        "another_share" not in (copy / "src" / "standfast" / "metrics" / "__init__.py").read_text()
    )
    assert not (copy / "docs" / "metrics" / "another_share.md").exists()
