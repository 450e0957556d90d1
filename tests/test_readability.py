"""How easy the source is to read, as numbers that may get better and not worse.

Three things make a reader go back: a line that says several things, a local whose name says where a value came from
and not what it is, and a function that branches more often than can be kept in mind. Each room has a ceiling. Where a
room gets better, lower its ceiling; a new room begins with those of `NEW_ROOM`. `python tests/test_readability.py`
prints the table of today.
"""

from __future__ import annotations

import ast
import gc
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import standfast

ROOT = Path(standfast.__file__).parent
#: names that say where a value came from, or nothing
VAGUE = {
    "asked",
    "each",
    "found",
    "given",
    "held",
    "here",
    "known",
    "made",
    "own",
    "place",
    "places",
    "seen",
}
VAGUE |= {"some", "told", "wanted"}
#: names of the library that a metric's file may import: in the middle one, and in the one with most
MEDIAN_NAMES = 22
MOST_NAMES = 40
#: branches of a function, beyond which it is cut into steps with names
MOST_BRANCHES = 15
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.comprehension,
)
#: parts of a tree that add nothing to what has to be read: whether a name is read or set, and the sign of an operator
SILENT = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)


class Ceiling(NamedTuple):
    """What a room may have at most.

    Attributes:
        density: nodes of the syntax tree in a line of code.
        vague: pairs of a function and a local in it with a name that says nothing.
    """

    density: float
    vague: int


NEW_ROOM = Ceiling(6.5, 0)
CEILINGS: dict[str, Ceiling] = {
    "files beside the rooms": Ceiling(5.9, 0),
    "algorithms": Ceiling(6.9, 0),
    "cells": Ceiling(6.2, 0),
    "checks": Ceiling(5.7, 0),
    "cli": Ceiling(4.9, 0),
    "data": Ceiling(6.2, 0),
    "evidence": Ceiling(5.9, 0),
    "explainers": Ceiling(5.8, 0),
    "frames": Ceiling(6.4, 0),
    "integrations": Ceiling(5.3, 0),
    "metrics": Ceiling(5.8, 0),
    "model": Ceiling(5.2, 0),
    "neighbourhoods": Ceiling(6.5, 0),
    "question": Ceiling(5.8, 0),
    "race": Ceiling(5.5, 0),
    "reason_cards": Ceiling(5.7, 0),
    "report": Ceiling(6.0, 0),
    "results": Ceiling(6.0, 0),
    "similarity": Ceiling(7.0, 0),
    "statistics": Ceiling(6.7, 0),
    "study": Ceiling(5.8, 0),
    "tasks": Ceiling(5.7, 0),
    "texts": Ceiling(6.0, 0),
    "training": Ceiling(5.9, 0),
    "zoo": Ceiling(5.3, 0),
}
#: functions with more branches, and why they are not cut into steps
REASONS = {
    "similarity/profile.py _add_overlaps": "loops that numba compiles as a whole; a call in each step would cost time",
    "explainers/base.py attribute_all": "one way for all explainers, whose errors are told apart where they arise",
}


@dataclass(frozen=True)
class Reading:
    """What was counted in files.

    Attributes:
        lines: of code, without docstrings, comments and blank lines.
        nodes: of the syntax trees, without docstrings.
        vague: the function and the name of each vague local.
        branches: of each function.
    """

    lines: int
    nodes: int
    vague: tuple[str, ...]
    branches: dict[str, int]

    @property
    def density(self) -> float:
        return self.nodes / max(1, self.lines)


def read(file: Path) -> Reading:
    text = file.read_text()
    tree = ast.parse(text)
    every_node = list(ast.walk(tree))
    docstrings = list(find_docstrings(every_node))
    hidden_lines = {
        line for doc in docstrings for line in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)
    }
    hidden_nodes = {id(node) for doc in docstrings for node in ast.walk(doc)}
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in hidden_lines and line.strip() and not line.strip().startswith("#")
    ]
    nodes = [
        node for node in every_node if id(node) not in hidden_nodes and not isinstance(node, SILENT)
    ]
    name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
    vague: list[str] = []
    branches: dict[str, int] = {}
    for function in nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            title = f"{name} {function.name}"
            inside = list(ast.walk(function))
            vague += [f"{title} {local}" for local in sorted(find_locals(inside) & VAGUE)]
            branches[title] = max(branches.get(title, 0), count_branches(inside))
    return Reading(len(code), len(nodes), tuple(vague), branches)


def find_docstrings(nodes: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    for node in nodes:
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            is_constant = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_constant and ast.get_docstring(node, clean=False) is not None:
                yield first


def find_locals(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that are set anywhere among the nodes of a function."""
    names = [node for node in nodes if isinstance(node, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def count_library_names(text: str) -> int:
    """How many names a file imports from the library: what its reader has to know."""
    names: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("standfast"):
            names.update((str(node.module), alias.name) for alias in node.names)
    return len(names)


def count_branches(nodes: Sequence[ast.AST]) -> int:
    total = 1
    for node in nodes:
        if isinstance(node, BRANCHES):
            total += 1
        if isinstance(node, ast.comprehension):
            total += len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.Match):
            total += len(node.cases)
    return total


@cache
def read_rooms() -> dict[str, Reading]:
    """What was counted in each folder of the source, and in the files beside them."""
    files_of_rooms: dict[str, list[Reading]] = {}
    gc.disable()  # the trees are many objects, and each is gone before the next
    try:
        for file in sorted(ROOT.rglob("*.py")):
            parts = file.relative_to(ROOT).parts
            room = parts[0] if len(parts) > 1 else "files beside the rooms"
            files_of_rooms.setdefault(room, []).append(read(file))
    finally:
        gc.enable()
    return {room: join(readings) for room, readings in files_of_rooms.items()}


def join(readings: list[Reading]) -> Reading:
    branches: dict[str, int] = {}
    for reading in readings:
        branches |= reading.branches
    return Reading(
        sum(reading.lines for reading in readings),
        sum(reading.nodes for reading in readings),
        tuple(pair for reading in readings for pair in reading.vague),
        branches,
    )


def test_no_room_is_denser_than_it_was() -> None:
    too_dense = {
        room: round(reading.density, 2)
        for room, reading in read_rooms().items()
        if reading.density > CEILINGS.get(room, NEW_ROOM).density
    }
    assert too_dense == {}


def test_no_room_has_more_vague_names_than_it_had() -> None:
    too_vague = {
        room: reading.vague
        for room, reading in read_rooms().items()
        if len(reading.vague) > CEILINGS.get(room, NEW_ROOM).vague
    }
    assert too_vague == {}


def test_functions_that_branch_often_are_named_with_a_reason() -> None:
    branches = join(list(read_rooms().values())).branches
    often = {function for function, count in branches.items() if count > MOST_BRANCHES}
    assert often - set(REASONS) == set()


def test_a_metric_needs_no_more_names_than_it_did() -> None:
    texts = [file.read_text() for file in (ROOT / "metrics").rglob("*.py")]
    counts = [count_library_names(text) for text in texts if "@metrics.register(" in text]
    assert len(counts) > 10
    assert statistics.median(counts) <= MEDIAN_NAMES
    assert max(counts) <= MOST_NAMES


def test_lists_name_what_is_there() -> None:
    rooms = read_rooms()
    assert set(CEILINGS) <= set(rooms)
    assert set(REASONS) <= set(join(list(rooms.values())).branches)


def test_what_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(
        '"""A docstring, which does not count."""\n\n'
        "# nor does a comment\n"
        "def choose(values):\n"
        '    """Nor does this one."""\n'
        "    found = [value for value in values if value and value > 1]\n"
        "    return found if found else None\n"
    )
    reading = read(file)
    assert reading.lines == 3
    assert reading.vague == ("example.py choose found",)
    assert reading.branches == {
        "example.py choose": 1 + 1 + 1 + 1 + 1
    }  # comprehension, its if, its and, the expression
    # the module, the function with its arguments and the argument; an assignment with its name, and a comprehension
    # (an element, a generator with a name and a source, an `and` of a name and a comparison with two parts);
    # a return, and an expression with three parts
    assert reading.nodes == 1 + 3 + 2 + (2 + 3 + 5) + 1 + 4


if __name__ == "__main__":
    for title, counted in read_rooms().items():
        density = int(counted.density * 10 + 1) / 10
        print(f'    "{title}": Ceiling({density}, {len(counted.vague)}),')
    functions = join(list(read_rooms().values())).branches
    for title in sorted(
        title
        for title, count in functions.items()
        if count > MOST_BRANCHES and title not in REASONS
    ):
        print(f'        "{title}",')
