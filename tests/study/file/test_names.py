"""One grammar for names in a study file: the same forms for data, models, explainers and metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML

import standfast
from standfast.metrics.safari.sensitivity import MaxSensitivity
from standfast.study.file.document import StudyError
from standfast.study.file.names import DATA, EXPLAINERS, METRICS, MODELS
from standfast.study.file.schema import json_schema
from standfast.study.file.spec import Study, load_study, study_from

MODULE = """
from dataclasses import dataclass

import torch
from torch import nn

import standfast

def load(n=2): return torch.full((n, 1, 28, 28), 0.5)
def build(width=4): return nn.Sequential(nn.Flatten(), nn.Linear(784, width))
def explain(module, inputs, targets): return inputs * torch.linspace(0, 1, 784).view(28, 28)

@dataclass(frozen=True)
class Explains(standfast.explainers.Saliency):
    factor: float = 1.0

@dataclass(frozen=True)
class Measures(standfast.metrics.MaxSensitivity):
    factor: float = 1.0

ready = Measures(standfast.LinfBall(0.3))
def measure(samples=3): return standfast.metrics.MaxSensitivity(standfast.LinfBall(0.2), samples=samples)
LIMIT = 3
"""


@dataclass(frozen=True)
class Section:
    """A section of the file: a registered name, one of a package, and two options of the first with other values."""

    name: str
    package: str
    option: str
    values: tuple[Any, Any]
    function: str
    options: dict[str, Any]


SECTIONS = {
    "data": Section("digits", "ucr:GunPoint:test", "samples", (3, 4), "load", {"n": 5}),
    "models": Section("lenet5-mnist", "timm:resnet18", "batch_size", (3, 4), "build", {"width": 5}),
    "explainers": Section(
        "smoothgrad", "captum:Saliency", "samples", (3, 4), "Explains", {"factor": 2.0}
    ),
    "metrics": Section(
        "max_sensitivity", "captum:sensitivity_max", "samples", (3, 4), "Measures", {"factor": 2.0}
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    (folder / "module_of_names.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def study(section: str, content: Any, folder: Path) -> Study:
    parts = {
        "data": ["digits"],
        "models": ["lenet5-mnist"],
        "explainers": ["lrp"],
        "metrics": ["max_sensitivity"],
    }
    return study_from(
        {**parts, "samples": 1, "neighbourhood": {"linf": 0.1}, section: content}, folder
    )


def forms(about: Section) -> dict[str, tuple[Any, str, dict[str, Any]]]:
    """What may stand in a section, the label that it gets, and what its plain form has."""
    name, (option, (value, other)) = about.name, (about.option, about.values)
    function = {"function": f"module_of_names:{about.function}", "options": about.options}
    own, named, plain = {name: {option: value}}, {about.package: {}}, {name: {}}
    return {
        "name": ([name], name, plain),
        "of a package": ([about.package], about.package, named),
        "options beneath": ([own], name, own),
        "no options beneath": ([{name: None}], name, plain),
        "package with options beneath": ([{about.package: {}}], about.package, named),
        "function": ([function], function["function"], function),
        "label in a list": ([{"mine": name}], "mine", plain),
        "label and options in a list": ([{"mine": own}], "mine", own),
        "label and function in a list": ([{"mine": function}], "mine", function),
        "mapping to a name": ({"mine": name}, "mine", plain),
        "mapping to a package": ({"mine": about.package}, "mine", named),
        "mapping to options": ({"mine": own}, "mine", own),
        "mapping to a function": ({"mine": function}, "mine", function),
        "name as label of another": (
            {name: {name: {option: other}}},
            name,
            {name: {option: other}},
        ),
    }


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("form", forms(SECTIONS["data"]))
def test_every_form_in_every_section(
    section: str, form: str, folder: Path, schema: dict[str, Any]
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    content, label, plain = forms(SECTIONS[section])[form]
    found = study(section, content, folder)
    ((own, entry),) = getattr(found, section).items()
    assert own == label
    assert entry.plain.keys() >= plain.keys()
    for key, wanted in plain.items():
        found_here = entry.plain[key]
        assert found_here == wanted or {**found_here, **wanted} == found_here
    assert study_from(found.plain(), folder).plain() == found.plain()
    jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{section}", "$defs": schema["$defs"]}
    ).validate(content)


@pytest.mark.parametrize("section", SECTIONS)
def test_several_entries_in_a_list(section: str, folder: Path) -> None:
    about = SECTIONS[section]
    entries = [
        about.name,
        {"mine": {about.name: {about.option: 3}}},
        {"function": "module_of_names:thing"},
    ]
    assert list(getattr(study(section, entries, folder), section)) == [
        about.name,
        "mine",
        "module_of_names:thing",
    ]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("NAME", "expected a list of SECTION, or a mapping from labels to SECTION, got"),
        ([], "expected at least one"),
        ({}, "expected at least one"),
        ([3], "SECTION[0]: expected"),
        (["NAMEX"], "(did you mean 'NAME'?)"),
        ([{"NAMEX": {"OPTION": 3}}], "SECTION[0].NAMEX: expected"),
        ({"mine": "NAMEX"}, "SECTION.mine: expected"),
        ({"mine": {"NAMEX": {"OPTION": 3}}}, "SECTION.mine.NAMEX: expected"),
        ([{"name": "NAME", "OPTION": 3}], "its name, or its options beneath its name"),
        ({"NAME": {"OPTION": 3}}, "SECTION.NAME.OPTION: expected"),
        ([{"NAME": 3}], "SECTION[0].NAME: expected options of NAME, each with its value, got 3"),
        ([{"NAME": {"OPTIONX": 3}}], "SECTION[0].NAME.OPTIONX: expected"),
        ([{"NAME": {"OPTIONX": 3}}], "(did you mean 'OPTION'?)"),
        ({"mine": {"NAME": {"OPTION": "x"}}}, "SECTION.mine.NAME.OPTION: expected"),
        ([{"mine": {"NAME": {"OPTION": "x"}}}], "SECTION[0].mine.NAME.OPTION: expected"),
        ({3: "NAME"}, "expected a label as text, got 3"),
        (
            [{"function": "no function"}],
            "SECTION[0].function: expected a function, as module:function",
        ),
        (
            ["NAME", "NAME"],
            "SECTION[1]: expected SECTION that differ, or a label of its own for each, got 'NAME', as SECTION[0]",
        ),
        ([{"mine": "NAME"}, {"mine": "NAME"}], "SECTION[1].mine: expected SECTION that differ"),
        ([{"mine": "NAME"}, {"mine": {"NAME": {"OPTION": 3}}}], "got 'mine', as SECTION[0]"),
        ({"mine": {"OPTION": 3}}, "SECTION.mine.OPTION: expected"),
        ([{"NAME": None, "OPTION": 3}], "its name, or its options beneath its name"),
    ],
)
def test_mistakes_are_told_alike(section: str, content: Any, said: str, folder: Path) -> None:
    about = SECTIONS[section]

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {fill(key): fill(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [fill(entry) for entry in value]
        words = {"SECTION": section, "NAME": about.name, "OPTION": about.option}
        for word, meant in words.items() if isinstance(value, str) else ():
            value = value.replace(word, meant)
        return value

    with pytest.raises(StudyError) as caught:
        study(section, fill(content), folder)
    assert fill(said) in " ".join(str(caught.value).split())
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("names", [EXPLAINERS, METRICS], ids=lambda names: names.section)
def test_options_in_the_text_of_a_name(names: Any, folder: Path) -> None:
    about = SECTIONS[names.section]
    (entry,) = getattr(
        study(names.section, [f"{about.name}:{about.option}=3"], folder), names.section
    ).values()
    assert entry.plain[about.name][about.option] == 3
    package, option = {
        "explainers": ("captum:Saliency", "abs"),
        "metrics": ("captum:infidelity", "noise"),
    }[names.section]
    (entry,) = getattr(
        study(names.section, [f"{package}:{option}=0"], folder), names.section
    ).values()
    assert entry.plain[package][option] == 0
    with pytest.raises(StudyError, match="did you mean"):
        study(names.section, [f"{about.name}:{about.option}x=3"], folder)


@pytest.mark.parametrize("names", [DATA, MODELS], ids=lambda names: names.section)
def test_names_of_data_and_models_may_hold_colons(names: Any) -> None:
    assert names.knows(
        {"data": "torchvision:GTSRB:test:size=32", "models": "transformers:org/name"}[names.section]
    )


def test_metrics_of_the_users_module(folder: Path) -> None:
    options = {"options": {"factor": 3, "samples": 7}}
    metrics = {
        "class": {"function": "module_of_names:Measures", **options},
        "object": {"function": "module_of_names:ready"},
        "call": {"function": "module_of_names:measure", "options": {"samples": 9}},
    }
    grid = study("metrics", metrics, folder).grid(check=False)
    assert (grid.metrics["class"].factor, grid.metrics["class"].samples) == (3.0, 7)
    assert grid.metrics["class"].neighbourhood == standfast.LinfBall(0.1)  # the study's own
    assert grid.metrics["object"].neighbourhood == standfast.LinfBall(0.3)
    assert grid.metrics["call"] == MaxSensitivity(standfast.LinfBall(0.2), samples=9)
    for entry, said in (
        (
            {"function": "module_of_names:Measures", "options": {"factr": 2}},
            r"options\.factr: .*did you",
        ),
        (
            {"function": "module_of_names:ready", "options": {"factor": 2}},
            r"options: expected no options",
        ),
        (
            {"function": "module_of_names:LIMIT"},
            r"function: expected a function that returns a metric, got an int",
        ),
        ({"function": "module_of_names:load"}, r"function: expected a Metric, got a Tensor"),
        ({"function": "module_of_names:measur"}, r"function: .*did you mean 'measure'"),
        (
            {"function": "module_of_names:measure", "options": {"n": 2}},
            r"function: .*unexpected keyword argument 'n'",
        ),
    ):
        with pytest.raises(StudyError, match=rf"metrics\.wrong\.{said}"):
            study("metrics", {"wrong": entry}, folder).grid(check=False)


def test_a_study_of_the_users_own_runs(folder: Path, tmp_path: Path) -> None:
    function = "module_of_names:{}".format
    content = {
        "data": [{"mine": {"function": function("load"), "options": {"n": 2}}}],
        "models": [{"mine": {"function": function("build"), "options": {"width": 3}}}],
        "explainers": [{"mine": {"function": function("explain")}}, "saliency"],
        "metrics": [{"mine": {"function": function("measure")}}, "captum:infidelity"],
        "controls": False,
    }
    found = standfast.run_study(study_from(content, folder), tmp_path, progress=False)
    assert found.failures == []
    frame = found.frame()
    assert frame.height == 2 * 2 * 2
    assert set(frame["explainer"]) == {"mine", "saliency"}
    assert set(frame["label"]) == {"mine", "captum:infidelity"}
    assert torch.isfinite(frame["value"].to_torch()).all()


def test_the_examples_and_the_page_on_studies(schema: dict[str, Any], tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(__file__).parents[3]
    (block,) = re.findall(
        r"```yaml\n(title: .*?)```", (root / "docs/studies.md").read_text(), re.DOTALL
    )
    (tmp_path / "page.yaml").write_text(block)
    for file in (*sorted((root / "examples").glob("*.yaml")), tmp_path / "page.yaml"):
        content = YAML(typ="safe", pure=True).load(file.read_text())
        assert [
            error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(content)
        ] == [], file
        assert load_study(file).metrics
