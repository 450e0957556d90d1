"""The line that does a next step, and how it is broken for a terminal."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise

from standfast.errors import make_printable
from standfast.report.step_calls import write_call, write_race, write_training
from standfast.report.step_commands import write_study_step
from standfast.results import NextStep, StoredResults

#: what every session has, or imports
_IMPORTED = ("standfast", "torch")
#: what a line may be a call of; within it, as for an option, none of these is called
_OUTERMOST = (
    "standfast.evaluate",
    "standfast.choose",
    "standfast.run_study",
    "standfast.training.classifier.train_classifier",
)
#: what may be called within a line, beside classes of these rooms with options
_WITHIN = ("torch.Generator", "torch.Generator().manual_seed")
_ROOMS = ("explainers", "metrics", "neighbourhoods", "similarity", "tasks", "training.schemes")
_NAMES_OF_ROOMS = "|".join(map(re.escape, _ROOMS))
_CLASS = re.compile(rf"standfast\.(({_NAMES_OF_ROOMS})\.)?[A-Z]\w*")
#: the parts of values, of arguments, and of names that are not called
_PLAIN_PARTS = (
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.UnaryOp,
    ast.USub,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.keyword,
    ast.expr_context,
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def write_line(results: StoredResults, step: NextStep) -> str | None:
    """The line of a step; None where it cannot be written such that it runs and does nothing else."""
    study = results.manifest.get("study")
    if isinstance(study, Mapping) and study:
        line = write_study_step(results, study, step)
    elif step.kind == "training":
        line = write_training(results)
    elif step.kind == "race":
        line = write_race(results, step)
    else:
        line = write_call(results, step)
    if line is None or not _is_one_line(line):
        return None
    if is_command(line) or is_harmless(line):
        return line
    return None


def _is_one_line(line: str) -> bool:
    """Whether a line is one, and shows all that is in it: no control characters, which a terminal would obey."""
    return "\n" not in line and make_printable(line) == line


def is_command(line: str) -> bool:
    """Whether a line is for a shell, and not for Python."""
    return line.startswith("standfast ")


def is_harmless(line: str) -> bool:
    """Whether a line of Python evaluates, or trains, and nothing else: results, with their call, may be a stranger's.

    >>> is_harmless("standfast.evaluate(model, [standfast.explainers.LRP(epsilon=0.1)], inputs[:8], metrics)")
    True
    >>> is_harmless("standfast.evaluate(model, [standfast.files.os.system('true')], inputs, metrics)")
    False
    >>> is_harmless("standfast.evaluate(model, explainers, inputs, metrics, seed=standfast.run_study('other.yaml'))")
    False
    """
    try:
        outermost = ast.parse(line, mode="eval").body
        if not isinstance(outermost, ast.Call) or ast.unparse(outermost.func) not in _OUTERMOST:
            return False
        arguments = [*outermost.args, *outermost.keywords]
        nodes = [node for argument in arguments for node in ast.walk(argument)]
        return all(map(_is_harmless_part, nodes))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _is_harmless_part(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in _WITHIN or _CLASS.fullmatch(called) is not None
    return isinstance(node, _PLAIN_PARTS)


def list_session_names(line: str) -> list[str]:
    """What a line of Python takes from the session of the user, in the order in which it stands there.

    >>> list_session_names("standfast.evaluate(model, ['inputs'], inputs[:80], metrics, reference=reference)")
    ['model', 'inputs', 'metrics', 'reference']
    """
    nodes = []
    for node in ast.walk(ast.parse(line)):
        if isinstance(node, ast.Name):
            nodes.append(node)
    nodes.sort(key=lambda node: node.col_offset)
    names = dict.fromkeys(node.id for node in nodes)
    return [name for name in names if name not in _IMPORTED]


def wrap_line(line: str, width: int, indent: str = "    ") -> list[str]:
    """A line of code in several that are not longer than the width, where they can be broken, and run as they are.

    A call is broken behind commas and opening brackets, and a command before options.

    >>> wrap_line("standfast.evaluate(model, ['saliency', 'lrp'], inputs[:80])", 40)
    ["standfast.evaluate(model, ['saliency',", "    'lrp'], inputs[:80])"]
    >>> wrap_line("standfast run study.yaml --set samples=80", 30)
    ['standfast run study.yaml \\\\', '    --set samples=80']
    """
    if is_command(line):
        parts = _split_at_options(line)
    else:
        parts = _split_code(line)
    end = " \\" if is_command(line) else ""
    lines: list[str] = []
    current = ""
    for part in parts:
        room = width - len(end)
        if current.strip() and len((current + part).rstrip()) > room:
            lines.append(current.rstrip() + end)
            current = indent
        current += part
    return [*lines, current.rstrip()]


def _split_at_options(command: str) -> list[str]:
    """A command before its options, and each option with its value."""
    words: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--"):
            words.append([])
        words[-1].append(word)
    return [f"{shlex.join(part)} " for part in words]


def _split_code(code: str) -> list[str]:
    """Code in parts that end with a comma and a space, or with an opening bracket, that are in no text."""
    quoted = [range(*match.span()) for match in _QUOTED.finditer(code)]
    ends = [match.end() for match in re.finditer(r", |[({]|(?<!\w)\[", code)]
    cuts = []
    for end in ends:
        if not any(end - 1 in text for text in quoted):
            cuts.append(end)
    return [code[start:stop] for start, stop in pairwise([0, *cuts, len(code)])]
