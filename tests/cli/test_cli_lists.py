"""`standfast list`: a line for each name, the same everywhere."""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from standfast.cli import app, kinds
from standfast.cli.kinds import KINDS, describe_names, first_part, first_sentence
from standfast.registry import Registry


def shown(*arguments: str) -> list[str]:
    """The lines on standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app(["list", *arguments], standalone_mode=False)
    return out.getvalue().splitlines()


def test_kinds() -> None:
    assert [line.split()[0] for line in shown()] == list(KINDS)
    assert shown("--names") == list(KINDS)
    assert all(len(line.split()) > 2 for line in shown())


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_a_line(kind: str) -> None:
    names = KINDS[kind].load().names()
    assert shown(kind, "--names") == names
    lines = shown(kind)
    assert [line.split()[0] for line in lines] == names
    for name, line in zip(names, describe_names(KINDS[kind]), strict=True):
        assert len(line.about) > 15, name
        assert line.about[0].isalnum(), f"{name}: {line.about} begins with a formula"
        assert "partial(" not in line.about
        assert "`" not in line.about


def test_what_is_needed() -> None:
    def needs(kind: str) -> dict[str, str]:
        return {line.name: line.needs for line in describe_names(KINDS[kind])}

    assert "convolution" in needs("explainers")["gradcam"]
    assert needs("explainers")["lime"] == ""
    assert needs("explainers")["saliency"] == "gradients"
    reach = "8/255 of a pixel's range, 2% of a number in a data frame"
    assert (
        needs("metrics")["worst_case"] == f"option neighbourhood (in evaluate by default {reach})"
    )
    assert "regions" in needs("metrics")["relevance_localisation"]
    assert needs("searches")["gradient"] == "gradients"
    assert needs("schemes")["calibrated"] == "the data set's extra f_norm"
    assert needs("similarities")["lens_recall"].startswith("positions")
    line = next(line for line in shown("explainers") if line.startswith("gradcam "))
    assert line.endswith(
        "[needs gradients; a convolution or a transformer, or layer=NAME; images or series]"
    )


def test_a_plugin_is_listed_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = Registry("thing")
    registry.add("own", dict)
    monkeypatch.setitem(
        vars(registry), "plugins", {"theirs": EntryPoint("theirs", "nosuch.module:thing", "g")}
    )
    monkeypatch.setattr(kinds, "THINGS", registry, raising=False)
    kind = kinds.Kind("thing", "things", "standfast.cli.kinds:THINGS", "")
    assert [line.about for line in describe_names(kind)][
        1
    ] == "From the plug-in nosuch.module:thing."


def test_first_sentence() -> None:
    assert (
        first_sentence("A `b`: c (Vu et al. 2021, Eq. 3). More.")
        == "A b: c (Vu et al. 2021, Eq. 3)."
    )
    assert first_sentence("Without an end\nover lines\n\nAnd more.") == "Without an end over lines"
    assert first_part("Says.\n\nMore.\n\nAttributes:\n    a: b\n") == "Says.\n\nMore."
    assert first_part("Says.\n\n>>> 1 + 1\n2") == "Says."
