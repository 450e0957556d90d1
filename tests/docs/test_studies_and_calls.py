"""The section of the documentation that puts a study file beside a call: both ask the same, and the table is whole."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import standfast
from standfast.study.file.spec import Study, study_from

PAGE = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From a study file to a call, and back\n")[2].partition("\n## ")[0]
COORDINATES = ["data", "model", "explainer", "label", "metric", "repeat", "sample"]


def find_block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.M | re.S)
    return str(block)


@pytest.fixture(scope="module")
def found() -> tuple[standfast.report.Results, standfast.report.Results]:
    """The results of the file and of the call."""
    study = study_from(YAML(typ="safe").load(find_block("yaml")))
    names: dict[str, Any] = {"standfast": standfast}
    exec(find_block("python"), names)
    return standfast.run_study(study, "memory://two-ways", progress=False), names["found"]


def test_both_have_the_same_jobs_and_numbers(found: tuple[Any, Any]) -> None:
    study, call = found
    columns = [*COORDINATES, "value", "status"]
    rows = [each.samples.select(columns).sort(COORDINATES).rows() for each in found]
    assert len(rows[0]) == 4 * (3 + 2)  # a measure of stability takes no edges
    assert rows[0] == rows[1]
    jobs = [
        each.jobs.select("data", "model", "explainer", "label", "start", "stop").sort(
            "explainer", "label"
        )
        for each in found
    ]
    assert jobs[0].equals(jobs[1])
    for part in ("metrics", "explainers", "controls", "seed", "repeats", "samples_per_job"):
        assert study.manifest[part] == call.manifest[part], part
    assert study.manifest["about"]["title"] == call.manifest["about"]["title"]


def list_column(number: int) -> str:
    rows = [line.strip("|").split(" | ") for line in SECTION.splitlines() if line.startswith("|")]
    return "\n".join(row[number] for row in rows[2:])


@pytest.mark.parametrize("key", Study.model_fields)
def test_the_table_has_every_key_of_a_file(key: str) -> None:
    assert re.search(rf"\b{key}\b", list_column(0)), f"docs/studies.md: no row for {key}"


@pytest.mark.parametrize("argument", inspect.signature(standfast.evaluate).parameters)
def test_the_table_has_every_argument_of_a_call(argument: str) -> None:
    same_names = re.findall(
        r"`(\w+)`", next(line for line in SECTION.splitlines() if "the same names" in line)
    )
    assert (
        argument in same_names
        or re.search(rf"\b{argument}=", list_column(1))
        or argument == "inputs"
    )
