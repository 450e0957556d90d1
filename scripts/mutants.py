"""Change the code in small ways, and see whether the tests notice.

    make mutants                                     300 mutants, drawn with seed 0
    python scripts/mutants.py --count 30 --seed 1    fewer, and others
    python scripts/mutants.py --only 17 block.py:42  some of them again, in full view
    python scripts/mutants.py --only 17 --tests tests/similarity -k kendall    against these tests only

The changes are those of cosmic-ray, which is installed in an environment of its own (`--tools`). A place in the code is
drawn first, and then one of the changes that are possible there: otherwise two thirds would be other arithmetic
operators. Annotations are left out. First every test file is run once, to learn which tests reach which lines, and in
what time; that is kept in `build/mutants/reach.json` until a file changes. Then each mutant meets the tests that reach
its line, the fastest first, until one fails or `--seconds` of tests have passed. Everything is imported and collected
once: each mutant lives in a fork, in which the functions get their changed code. If more than functions changes, or
functions are compiled, the fork is of a process that has imported only torch, and imports the module from the changed
text. No file is changed.

A mutant is killed if a test fails, if the module cannot be imported, or if the tests take several times as long. With
`--tests` no time is limited: the arguments after it are those of pytest.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import contextlib
import difflib
import functools
import gc
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
#: what is changed, and the tests that have to notice it; doctests of the changed files are among them
TARGETS = (
    "algorithms",
    "similarity",
    "metrics",
    "study/store.py",
    "study/seals.py",
    "study/answers.py",
    "study/identity.py",
    "study/own_code",
    "study/guard.py",
)
TESTS = (
    *("tests/similarity", "tests/algorithms", "tests/metrics"),
    *("tests/study/test_studies.py", "tests/study/test_store.py", "tests/study/test_identity.py"),
    "tests/golden/test_golden.py",
)
#: seconds of processor time after which a test is not used, because many mutants would run it
SLOWEST = 3.0
#: so many tests, and seconds of them, a mutant meets before the others
_FIRST, _FIRST_SECONDS = 10, 2.0
#: compares the defaults of all classes, without running a line of theirs
_DEFAULTS = "tests/golden/test_golden.py::test_no_default_changes_under_the_same_version"
_KILLED, _SURVIVED, _UNREACHED = "killed", "survived", "no test reaches it"


@dataclass(frozen=True)
class Place:
    """Where a change is possible, and which: cosmic-ray's operators with their numbers in the file."""

    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    changes: tuple[tuple[str, int], ...]


@dataclass
class Mutant:
    """One change, and what became of it."""

    number: int
    file: str
    line: int
    operator: str
    occurrence: int
    difference: str
    outcome: str = ""
    by: str = ""
    seconds: float = 0.0


def target_files() -> list[Path]:
    """The files that are changed."""
    found = [SOURCE / "standfast" / name for name in TARGETS]
    return [
        file for path in found for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]


def test_files() -> list[Path]:
    """The files whose tests are used."""
    found = [ROOT / name for name in TESTS if (ROOT / name).exists()]
    return [
        file
        for path in found
        for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
    ]


# ---------------------------------------------------------------------------------------------------------------------
# mutants


def find_places(file: Path) -> list[Place]:
    """All places of a file where cosmic-ray knows a change, without annotations."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast_from_path

    nodes = list(ast_nodes(get_ast_from_path(file)))
    annotations = [_range_of(node) for node in _annotations(ast.parse(file.read_text()))]
    found: dict[tuple[Any, Any], list[tuple[str, int]]] = defaultdict(list)
    for name in plugins.operator_names():
        kind = plugins.get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        positions = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            if not any(first <= tuple(start) < last for first, last in annotations):
                found[tuple(start), tuple(end)].append((name, occurrence))
    name = str(file.relative_to(ROOT))
    return [
        Place(name, start, end, tuple(changes)) for (start, end), changes in sorted(found.items())
    ]


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        yield from (part for part in found if isinstance(part, ast.expr))


def _range_of(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def draw(count: int, seed: int) -> list[Mutant]:
    """A random sample of places, with a random change of each; kept in a file, since it takes half a minute.

    Whether a place is drawn depends on the seed and on the text of its line. So an edit elsewhere changes no mutant.
    """
    sources = b"".join(file.read_bytes() for file in target_files())
    cache = (
        ROOT
        / f"build/mutants/sample-{count}-{seed}-{hashlib.sha256(sources).hexdigest()[:16]}.json"
    )
    if cache.exists():
        return [Mutant(**entry) for entry in json.loads(cache.read_text())]
    places: list[tuple[str, Place]] = []
    for file in target_files():
        lines, equal = file.read_text().splitlines(), Counter[tuple[str, int]]()
        for place in find_places(file):
            line = lines[place.start[0] - 1].strip(), place.start[1]
            equal[line] += 1
            description = json.dumps([seed, place.file, *line, equal[line]])
            places.append((hashlib.sha256(description.encode()).hexdigest(), place))
    found: list[Mutant] = []
    for drawn, place in sorted(places, key=lambda entry: entry[0]):
        if len(found) == count:
            break
        name, occurrence = place.changes[int(drawn[-8:], 16) % len(place.changes)]
        try:
            changed = changed_text(place.file, name, occurrence)
        except AttributeError:  # cosmic-ray cannot change `except module.Error`
            continue
        text = (ROOT / place.file).read_text()
        changes = difflib.unified_diff(text.splitlines(), changed.splitlines(), lineterm="", n=0)
        difference = "\n".join(
            line for line in changes if not line.startswith(("---", "+++", "@@"))
        )
        found.append(Mutant(len(found), place.file, place.start[0], name, occurrence, difference))
    print(f"{len(places)} places in {len(target_files())} files, {len(found)} drawn", flush=True)
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps([asdict(mutant) for mutant in found]))
    return found


def changed_text(file: str, operator: str, occurrence: int) -> str:
    """The text of a file with one change."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    text = mutate_code((ROOT / file).read_text(), plugins.get_operator(operator)(), occurrence)
    assert text is not None
    return str(text)


class _Changed(MetaPathFinder):
    """Imports one module from a changed text."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        code, loader = self.text, SourceFileLoader(name, spec.origin)
        loader.get_code = lambda _: compile(code, loader.path, "exec", dont_inherit=True)  # type: ignore[method-assign]
        spec.loader = loader
        return spec


def module_name(file: str) -> str:
    """The module of a file: `src/standfast/metrics/base.py` is `standfast.metrics.base`."""
    parts = list((ROOT / file).relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# ---------------------------------------------------------------------------------------------------------------------
# forks


def in_fork(work: Callable[[], Any], seconds: float, show: bool = False) -> tuple[str, Any]:
    """What `work` returns in a fork of this process, as JSON; or why it did not: `"slow"`, or the signal."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setpgid(0, 0)
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2))
        if not show:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
        try:
            content = json.dumps(work()).encode()
            with os.fdopen(writer, "wb") as stream:
                stream.write(content)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(3)
    os.close(writer)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    timer_before = signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(int(30 * seconds) + 60)  # a test may wait for ever without any work
    try:
        with os.fdopen(reader, "rb") as stream:
            content = stream.read()
        _, status = os.waitpid(child, 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, timer_before)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # processes that a test has left behind
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return "", json.loads(content)
    return ("slow" if code in (-signal.SIGXCPU, -signal.SIGKILL) else f"exit {code}"), None


def run_tests(arguments: list[str], plugins: list[Any]) -> int:
    """Run pytest in this process."""
    import pytest

    os.chdir(ROOT)
    return int(
        pytest.main(
            [
                "-x",
                "-q",
                "--assert=plain",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:benchmark",
                *arguments,
            ],
            plugins=plugins,
        )
    )


# ---------------------------------------------------------------------------------------------------------------------
# which tests reach which lines


class _TooSlowError(Exception):
    pass


class _Recorder:
    """A pytest plugin: the lines that each test reaches, with those of the fixtures that it shares, and its time."""

    def __init__(self, most: float) -> None:
        import coverage

        files = [str(file) for file in target_files()]
        self.coverage = coverage.Coverage(
            data_file=None, include=files, config_file=False, messages=False
        )
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.fixtures: dict[str, list[str]] = {}
        self.context = [""]
        self.most = most

    def _enter(self, name: str) -> None:
        self.context.append(name)
        self.coverage.switch_context(name)

    def _leave(self) -> None:
        self.context.pop()
        self.coverage.switch_context(self.context[-1])

    def plugin(self) -> Any:
        import pytest

        recorder = self

        class Plugin:
            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item: Any) -> Any:
                recorder.fixtures[item.nodeid] = list(getattr(item, "fixturenames", []))
                recorder._enter(item.nodeid)
                began = time.process_time()
                signal.setitimer(signal.ITIMER_PROF, SLOWEST, 1.0)
                try:
                    return (yield)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0.0)
                    recorder._leave()
                    recorder.seconds[item.nodeid] = time.process_time() - began
                    if sum(recorder.seconds.values()) > recorder.most:
                        item.session.shouldstop = "enough tests of this file"

            @pytest.hookimpl(wrapper=True)
            def pytest_fixture_setup(self, fixturedef: Any) -> Any:
                shared = fixturedef.scope != "function"
                if shared:
                    recorder._enter(f"fixture {fixturedef.argname}")
                try:
                    return (yield)
                finally:
                    if shared:
                        recorder._leave()

            def pytest_runtest_logreport(self, report: Any) -> None:
                if not report.passed:
                    recorder.failed.add(report.nodeid)

        return Plugin()

    def result(self) -> dict[str, Any]:
        """The tests that passed, by their names, with seconds and with lines by file."""
        reached: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        data = self.coverage.get_data()
        for file in data.measured_files():
            name = str(Path(file).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    reached[context][name].add(line)
        found = {}
        for test, seconds in self.seconds.items():
            if test in self.failed or seconds >= SLOWEST:
                continue
            lines: dict[str, set[int]] = defaultdict(set)
            for context in (test, *(f"fixture {name}" for name in self.fixtures[test])):
                for name, here in reached.get(context, {}).items():
                    lines[name] |= here
            if lines:
                found[test] = {
                    "seconds": seconds,
                    "lines": {name: sorted(here) for name, here in lines.items()},
                }
        return {"tests": found, "left_out": sorted(set(self.seconds) - set(found))}


def record(files: list[Path], most: float) -> dict[str, Any]:
    """Run files of tests, and say what its tests reach; after so many seconds the rest of them is left out."""

    def too_slow(*_: object) -> None:
        raise _TooSlowError

    signal.signal(signal.SIGPROF, too_slow)
    recorder = _Recorder(most)
    recorder.coverage.start()
    run_tests(
        ["--maxfail=1000", *(str(file.relative_to(ROOT)) for file in files)], [recorder.plugin()]
    )
    recorder.coverage.stop()
    return recorder.result()


def find_reach(cache: Path, most: float) -> dict[str, dict[str, Any]]:
    """Every usable test with what it reaches."""
    known: dict[str, Any] = json.loads(cache.read_text()) if cache.exists() else {}
    sources = b"".join(file.read_bytes() for file in target_files())
    tests: dict[str, dict[str, Any]] = {}
    left_out, began = 0, time.monotonic()
    units = {str(file.relative_to(ROOT)): [file] for file in test_files()}
    units["doctests"] = [file for file in target_files() if ">>>" in file.read_text()]
    for name, files in units.items():
        key = hashlib.sha256(sources + b"".join(file.read_bytes() for file in files)).hexdigest()
        if known.get(name, {}).get("key") != key:
            why, found = in_fork(functools.partial(record, files, most), 900)
            if found is None:
                print(f"{name}: not used ({why})", flush=True)
                continue
            known[name] = {"key": key, **found}
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(known))
        tests |= known[name]["tests"]
        left_out += len(known[name]["left_out"])
    seconds = time.monotonic() - began
    print(
        f"{len(tests)} tests reach the code; {left_out} do not, or are too slow ({seconds:.0f} s)",
        flush=True,
    )
    return tests


def lines_of(file: str, line: int) -> set[int]:
    """The lines of the innermost statement at a line; of a compound statement, those of its head."""
    best: ast.stmt | None = None
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            best = node if best is None or node.lineno >= best.lineno else best
    if best is None:
        return {line}
    body = getattr(best, "body", None)
    last = best.end_lineno or best.lineno
    return set(
        range(
            best.lineno, (body[0].lineno - 1 if body and body[0].lineno > best.lineno else last) + 1
        )
    ) | {line}


def tests_for(mutant: Mutant, reach: dict[str, dict[str, Any]]) -> list[str]:
    """The tests that reach the changed statement, the fastest first.

    If it runs at import, or nobody sees it running because it is compiled, those that reach its module.
    """
    lines = lines_of(mutant.file, mutant.line)
    at_import = runs_at_import(mutant.file, mutant.line) or is_compiled(mutant.file)
    found = []
    for test, about in reach.items():
        here = about["lines"].get(mutant.file, [])
        if (at_import and (here or test == _DEFAULTS)) or not lines.isdisjoint(here):
            found.append(test)
    return sorted(found, key=lambda test: float(reach[test]["seconds"]))


def runs_at_import(file: str, line: int) -> bool:
    """Whether a line is outside of all bodies of functions, so that it runs when the module is imported."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if function and node.body[0].lineno <= line <= (node.end_lineno or node.lineno):
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# killing


def meet_tests(mutant: Mutant, tests: list[str]) -> dict[str, str]:
    """Import the changed module and run tests: the first that failed, or empty."""
    failed: list[str] = []

    class Watcher:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    text = changed_text(mutant.file, mutant.operator, mutant.occurrence)
    sys.meta_path.insert(0, _Changed(module_name(mutant.file), text))
    with tempfile.TemporaryDirectory() as folder:  # numba's cache does not know constants apart
        os.environ["NUMBA_CACHE_DIR"] = folder
        code = run_tests(tests, [Watcher()])
    return {"by": failed[0] if failed else "" if code in (0, 5) else "its import"}


def can_be_swapped(mutant: Mutant) -> bool:
    """Whether only the code of functions changes, so that it can be exchanged in a process that has imported all."""
    return not runs_at_import(mutant.file, mutant.line) and not is_compiled(mutant.file)


def is_compiled(file: str) -> bool:
    """Whether some functions of a module are compiled to machine code."""
    return "compile_loops(" in (ROOT / file).read_text()


def swap_code(mutant: Mutant) -> int:
    """Give the functions of a module their changed code, and return how many changed."""
    path = str(ROOT / mutant.file)
    text = changed_text(mutant.file, mutant.operator, mutant.occurrence)
    codes: dict[tuple[str, int], Any] = {}
    waiting = [compile(text, path, "exec", dont_inherit=True)]
    while waiting:
        inside = [part for part in waiting.pop().co_consts if isinstance(part, CodeType)]
        waiting += inside
        codes |= {(part.co_qualname, part.co_firstlineno): part for part in inside}
    changed = 0
    for entry in gc.get_objects():
        # `isinstance` asks lazy objects
        if type(entry) is FunctionType and entry.__code__.co_filename == path:
            old = entry.__code__
            new = codes.get((old.co_qualname, old.co_firstlineno), old)
            if new != old:
                entry.__code__ = new
                changed += 1
    return changed


class _Session:
    """A pytest plugin: once all tests are collected, it does something else with them."""

    def __init__(self, work: Callable[[dict[str, Any]], None]) -> None:
        self.work = work

    def pytest_runtestloop(self, session: Any) -> bool:
        self.work({item.nodeid: item for item in session.items})
        return True


def meet_items(mutant: Mutant, items: list[Any]) -> dict[str, str]:
    """Swap the changed code in, and run collected tests: the first that failed, or empty."""
    from _pytest.runner import runtestprotocol

    if not swap_code(mutant):  # the function was created again, for example by a compiler
        raise RuntimeError("no function of the module in memory has this code")
    for item, following in zip(items, [*items[1:], None], strict=True):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return {"by": str(item.nodeid)}
    return {"by": ""}


def try_mutant(
    mutant: Mutant,
    reach: dict[str, dict[str, Any]],
    seconds: float,
    show: bool,
    items: dict[str, Any] | None = None,
) -> None:
    """Fill in what became of a mutant; with collected tests, its code is swapped in, else its module is imported."""
    tests, began = tests_for(mutant, reach), time.monotonic()
    if items is not None:
        tests = [test for test in tests if test in items]
    if not tests:
        mutant.outcome = _UNREACHED
        return
    taken = list(itertools.accumulate(float(reach[test]["seconds"]) for test in tests))
    first = max(1, min(_FIRST, bisect.bisect(taken, _FIRST_SECONDS)))
    last = max(1, bisect.bisect(taken, seconds))
    # most are killed by the first few, and few files are then imported
    for part in (
        tests[:first],
        tests[first:last],
    ):
        if part and not mutant.by:
            cost = sum(float(reach[test]["seconds"]) for test in part)
            work = functools.partial(meet_tests, mutant, part)
            if items is not None:
                work = functools.partial(meet_items, mutant, [items[test] for test in part])
            # to import everything takes a while, too
            longest = 2 * cost + (20 if items is None else 3)
            why, found = in_fork(work, longest, show)
            # nothing could be swapped: it is tried later in another way
            if items is not None and why == "exit 3":
                return
            mutant.by = why if found is None else found["by"]
    mutant.outcome = _KILLED if mutant.by else _SURVIVED
    mutant.seconds = round(time.monotonic() - began, 1)


def summary(mutants: list[Mutant]) -> str:
    """A table, and the mutants that were not killed."""
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in mutants:
        name = mutant.file.removeprefix("src/standfast/")
        parts[name if name.startswith("study") else name.partition("/")[0]][mutant.outcome] += 1
    lines = ["| code | mutants | killed | share |", "| --- | --- | --- | --- |"]
    for name, found in [*sorted(parts.items()), ("all", sum(parts.values(), Counter()))]:
        lines.append(
            f"| {name} | {found.total()} | {found[_KILLED]} | {found[_KILLED] / max(1, found.total()):.0%} |"
        )
    for mutant in mutants:
        if mutant.outcome != _KILLED:
            lines += [
                "",
                f"{mutant.number}: {mutant.file}:{mutant.line} {mutant.operator}: {mutant.outcome}",
            ]
            lines.append(mutant.difference)
    return "\n".join(lines)


def names(text: str, mutant: Mutant) -> bool:
    """Whether a text of `--only` means this mutant: its number, or the end of its path with its line."""
    return text == str(mutant.number) or f"/{mutant.file}:{mutant.line}".endswith(f"/{text}")


def main() -> None:
    """Draw mutants, and print what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=12.0, help="of tests for each mutant")
    parser.add_argument(
        "--most",
        type=float,
        default=60.0,
        help="seconds of each file of tests; the rest is not used",
    )
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="after which no mutant is begun"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="mutants, by number or FILE:LINE; their tests are shown",
    )
    parser.add_argument(
        "--tests",
        nargs=argparse.REMAINDER,
        help="arguments of pytest: what to run, instead of reach",
    )
    parser.add_argument(
        "--tools", type=Path, default=ROOT / "build/mutants", help="an environment with cosmic-ray"
    )
    arguments = parser.parse_args()
    sys.path += [str(path) for path in arguments.tools.glob("lib/python*/site-packages")]
    sys.path.insert(0, str(SOURCE))
    os.environ.setdefault("MKL_CBWR", "AUTO")  # as the tests want it
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("torch", "numpy", "scipy.stats", "polars", "coverage"):
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)  # type: ignore[attr-defined]
    assert not [name for name in sys.modules if name.startswith("standfast")]
    file = ROOT / "build/mutants/results.json"
    mutants = draw(arguments.count, arguments.seed)
    earlier = {}
    # a run that was interrupted goes on; a change of the code or of the sample starts again
    if file.exists():
        earlier = {
            (m["file"], m["operator"], m["occurrence"], m["difference"]): m
            for m in json.loads(file.read_text())
        }
    only = {
        mutant.number for mutant in mutants if any(names(text, mutant) for text in arguments.only)
    }
    if arguments.only and not only:
        parser.error("--only: no mutant of the sample has this number, or this file and line")
    reach = {} if arguments.tests else find_reach(ROOT / "build/mutants/reach.json", arguments.most)
    began = time.monotonic()
    done: dict[int, Mutant] = {}

    def settle(mutant: Mutant, items: dict[str, Any] | None) -> None:
        """Find out what becomes of a mutant, and store it."""
        if only:
            print(
                f"\n{mutant.number}: {mutant.file}:{mutant.line}\n{mutant.difference}", flush=True
            )
        elif time.monotonic() - began > 60 * arguments.minutes:
            return
        if arguments.tests:
            why, found = in_fork(
                functools.partial(meet_tests, mutant, arguments.tests), 3600, show=True
            )
            mutant.by = why if found is None else found["by"]
            mutant.outcome = _KILLED if mutant.by else _SURVIVED
        else:
            try_mutant(mutant, reach, arguments.seconds * (10 if only else 1), bool(only), items)
        if mutant.outcome:
            print(
                f"{mutant.number} {mutant.file}:{mutant.line} {mutant.outcome} {mutant.by}",
                flush=True,
            )
            store(mutant)

    def store(mutant: Mutant) -> None:
        done[mutant.number] = mutant
        file.write_text(json.dumps([asdict(entry) for _, entry in sorted(done.items())], indent=1))

    def swap_all(mutants: list[Mutant]) -> list[dict[str, Any]]:
        """Collect all tests once, and try these mutants."""

        def work(items: dict[str, Any]) -> None:
            for mutant in mutants:
                settle(mutant, items)

        files = sorted({test.partition("::")[0] for test in reach})
        run_tests(["--capture=no", *files], [_Session(work)])
        return [asdict(mutant) for mutant in done.values()]

    waiting = []
    for mutant in mutants:
        known = earlier.get(
            (mutant.file, mutant.operator, mutant.occurrence, mutant.difference), {}
        )
        if known and (known["outcome"] == _KILLED or only) and mutant.number not in only:
            store(Mutant(**{**known, "number": mutant.number}))
        elif not only or mutant.number in only:
            waiting.append(mutant)
    swapped = [] if only else [mutant for mutant in waiting if can_be_swapped(mutant)]
    if swapped:
        _, found = in_fork(lambda: swap_all(swapped), 10**6, show=True)
        for entry in found or json.loads(file.read_text()):
            done[entry["number"]] = Mutant(**entry)
    for mutant in waiting:
        if mutant.number not in done:
            settle(mutant, None)
    done = dict(sorted(done.items()))
    print("\n" + summary(list(done.values())))


if __name__ == "__main__":
    main()
