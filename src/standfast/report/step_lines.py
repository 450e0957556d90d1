"""The line that does a next step, and how it is broken for a terminal."""

from __future__ import annotations

import ast
import re

from standfast.report.step_calls import write_call, write_training
from standfast.report.step_commands import write_study_step
from standfast.results import NextStep, StoredResults

#: what every session has, or imports
_IMPORTED = ("standfast", "torch")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def write_line(results: StoredResults, step: NextStep) -> str | None:
    """The line of a step; None where it cannot be written such that it runs."""
    study = results.manifest.get("study")
    if study:
        return write_study_step(results, study, step)
    return write_training(results) if step.kind == "training" else write_call(results, step)


def list_session_names(line: str) -> list[str]:
    """What a line of Python takes from the session of the user, in the order in which it stands there.

    >>> list_session_names("standfast.evaluate(model, ['inputs'], inputs[:80], metrics, reference=reference)")
    ['model', 'inputs', 'metrics', 'reference']
    """
    nodes = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)]
    nodes.sort(key=lambda node: node.col_offset)
    names = dict.fromkeys(node.id for node in nodes)
    return [name for name in names if name not in _IMPORTED]


def wrap_line(line: str, width: int, indent: str = "    ") -> list[str]:
    """A line of code in several that are not longer than the width, where they can be broken, and run as they are.

    A call is broken behind commas, and a command before options.

    >>> wrap_line("standfast.evaluate(model, ['saliency', 'lrp'], inputs[:80])", 40)
    ["standfast.evaluate(model, ['saliency',", "    'lrp'], inputs[:80])"]
    >>> wrap_line("standfast run study.yaml --set samples=80", 30)
    ['standfast run study.yaml \\\\', '    --set samples=80']
    """
    is_command = line.startswith("standfast ")
    parts = re.split(r" (?=--)", line) if is_command else _split_at_commas(line)
    end = " \\" if is_command else ""
    lines: list[str] = []
    current = ""
    for part in parts:
        longer = f"{current} {part}" if current.strip() else current + part
        if current.strip() and len(longer) + len(end) > width:
            lines.append(current + end)
            current = indent + part
        else:
            current = longer
    return [*lines, current]


def _split_at_commas(code: str) -> list[str]:
    """Code between those commas that are in no text."""
    quoted = [range(*found.span()) for found in _QUOTED.finditer(code)]
    cuts = [found.end() for found in re.finditer(", ", code) if not any(found.start() in text for text in quoted)]
    return [code[start:stop].rstrip() for start, stop in zip([0, *cuts], [*cuts, len(code)], strict=True)]
