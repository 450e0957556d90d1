"""`standfast explain NAME`."""

from __future__ import annotations

import dataclasses
import re

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

import standfast
from standfast.cli import app
from standfast.cli.explanations import explain_kind, find_kinds
from standfast.cli.kinds import KINDS
from standfast.errors import ArgumentError
from standfast.study.file.spec import study_from

EVERYTHING = [(kind, name) for kind in KINDS for name in KINDS[kind].load().names()]
BASE = {
    "data": {"digits": "digits"},
    "models": {"lenet5": "lenet5-mnist"},
    "explainers": ["random"],
    "metrics": ["aopc"],
    "neighbourhood": {"linf": 0.1},
}


@pytest.mark.parametrize(("kind", "name"), EVERYTHING)
def test_every_name_can_be_explained(kind: str, name: str) -> None:
    text = explain_kind(name, KINDS[kind])
    assert text.startswith(f"{name} ({KINDS[kind].one})\n\n")
    assert "`" not in text.partition("\nSource:")[0]
    assert "Args:" not in text
    assert ">>>" not in text
    examples = text.partition("\nExample:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    for example in map(str.strip, examples):
        if kind == "neighbourhoods":
            assert KINDS[kind].load()[name].__name__ in example or name in example
        elif ": " in example.partition("(")[0]:  # of a study file
            content = {**BASE, **YAML(typ="safe").load(example)}
            if kind != "architectures":  # whose weights are not there
                study_from(content)
        elif kind in ("explainers", "similarities", "searches", "attacks", "attribution_attacks"):
            assert eval(example, {"standfast": standfast}) is not None
        else:
            assert name in example


def test_the_options_of_a_class_are_all_there() -> None:
    for kind in ("metrics", "explainers", "searches", "attacks", "neighbourhoods", "schemes"):
        registry = KINDS[kind].load()
        for name in registry.names():
            options = (
                explain_kind(name, KINDS[kind]).partition("\nOptions:\n")[2].partition("\n\n")[0]
            )
            shown = re.findall(r"^  (\w+): .+(?: = .+| \(must be given\))$", options, re.MULTILINE)
            assert sorted(shown) == sorted(
                f.name for f in dataclasses.fields(registry[name]) if f.init
            ), name


def test_names_of_other_packages() -> None:
    pytest.importorskip("captum", reason="needs the extra peers")
    assert find_kinds("captum:Saliency") == ["explainers"]
    assert find_kinds("captum:infidelity") == ["metrics"]
    with pytest.raises(ArgumentError):
        find_kinds("captum:Nosuch")


def test_unknown_names_and_names_of_several_things() -> None:
    with pytest.raises(ArgumentError, match=r"got 'worst_cse' \(did you mean 'worst_case'\?\)"):
        find_kinds("worst_cse")
    done = CliRunner().invoke(app, ["explain", "random"])
    assert re.findall(r"^random \((\w+)\)$", done.output, re.MULTILINE) == ["explainer", "search"]
