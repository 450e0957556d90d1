"""Which changes between two runs of a small study are noticed, for studies of tensors, data frames and texts.

    python benchmarks/reliability/study_changes.py                      all of them, about a quarter of an hour
    python benchmarks/reliability/study_changes.py frames --only tree   those whose name has "tree"

Each study is run, changed in one way, and run again with the results of the first run beside it. If a job of the first
run is used again, the study is run a third time, without these: a change is *stale* if the numbers of the second run
are others than those. Else it is noticed, if the second run has computed something. What changes no result must not
compute anything. Prints a line for each change that is not as it should be, and a table of the kinds; the exit status
is 1 if there is such a change.

Needs no data set. Linux or macOS; scikit-learn, shap, tokenizers and transformers for frames and texts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import changes_of_arrays
import changes_of_frames
import changes_of_tensors
import changes_of_texts
from changes import AGAIN, NAMED, NOTHING, Change, Expected, Scene

KINDS = {
    "tensors": changes_of_tensors,
    "arrays": changes_of_arrays,
    "frames": changes_of_frames,
    "texts": changes_of_texts,
}
SERVER = Path(__file__).with_name("script_server.py")


class Server:
    """A process that runs scripts."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SERVER)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def run(
        self, folder: Path, script: str, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What the script of a folder has left.

        Raises:
            RuntimeError: it ended with an error, or a job has failed.
        """
        variables = {"STANDFAST_CACHE": str(folder / "out"), **(environment or {})}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(
            json.dumps({"folder": str(folder), "script": script, "environment": variables}) + "\n"
        )
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "error" in answer or answer.get("failures"):
            raise RuntimeError(str(answer.get("error") or answer["failures"])[-2000:])
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Outcome:
    """What happened after a change.

    Attributes:
        found: `"noticed"`; `"kept"`: nothing was computed, and the numbers are right; or `"stale"`: old numbers are
            given for what is new.
        moves_numbers: whether the change made other numbers than before.
    """

    kind: str
    name: str
    expected: Expected
    found: str
    moves_numbers: bool

    @property
    def is_right(self) -> bool:
        """Whether it is what the documentation promises."""
        if self.expected == AGAIN:
            return self.found == "noticed"
        if self.expected == NOTHING:
            return self.found == "kept" and not self.moves_numbers
        return self.found in ("stale", "kept", "noticed")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts; an empty text deletes its file."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text)
        else:
            path.unlink()


def begin(server: Server, folder: Path, scene: Scene) -> dict[str, Any]:
    """Write the files of a scene, and run it for the first time."""
    folder.mkdir(parents=True)
    write_files(folder, scene.files)
    if "make.py" in scene.files:
        server.run(folder, "make.py")
    return server.run(folder, "script.py")


def apply(server: Server, folder: Path, change: Change) -> Path:
    """Change the files of a folder, which may be another folder then."""
    write_files(folder, change.files)
    if "make.py" in change.files:
        server.run(folder, "make.py")
    if "TOUCHED" in change.environment:
        for path in folder.rglob("*"):
            if "out" not in path.relative_to(folder).parts:
                os.utime(path, (1, 1))
    if not change.moved:
        return folder
    moved = folder.with_name("moved") / folder.name
    moved.parent.mkdir()
    return folder.rename(moved)


def judge(server: Server, folder: Path, change: Change, before: dict[str, Any]) -> tuple[str, bool]:
    """What the second run does, and whether its numbers should be others than those of the first."""
    after = server.run(folder, "script.py", change.environment)
    if after["earlier"] == 0:
        return "noticed", after["values"] != before["values"]
    shutil.rmtree(folder / "out")
    fresh = server.run(folder, "script.py", change.environment)
    if fresh["values"] != after["values"]:
        return "stale", True
    is_kept = after["earlier"] == after["planned"]
    return "kept" if is_kept else "noticed", fresh["values"] != before["values"]


def try_scene(server: Server, kind: str, title: str, scene: Scene, only: str) -> Iterator[Outcome]:
    """Try the changes of a scene whose names have a text, each from the same first run."""
    names = {name: f"{title}: {name}".removesuffix(": ") for name in scene.changes}
    wanted = [name for name in scene.changes if only in names[name]]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as place:
        folder, snapshot = Path(place, "work"), Path(place, "first")
        before = begin(server, folder, scene)
        shutil.copytree(folder, snapshot)
        for name in wanted:
            change = scene.changes[name]
            changed = apply(server, folder, change)
            try:
                found, moves_numbers = judge(server, changed, change, before)
            except RuntimeError as error:
                found, moves_numbers = f"failed: {error}", False
            yield Outcome(kind, names[name], change.expected, found, moves_numbers)
            shutil.rmtree(changed)
            shutil.rmtree(folder.with_name("moved"), ignore_errors=True)
            shutil.copytree(snapshot, folder)


def describe(outcome: Outcome) -> str:
    """A line about a change that is not as promised, or as it is said that it cannot be noticed."""
    moved = "" if outcome.moves_numbers else ", the numbers are the same"
    return f"{outcome.kind}: {outcome.name}: expected that it {outcome.expected}; {outcome.found}{moved}"


def print_table(outcomes: list[Outcome]) -> None:
    """How many changes of each kind were noticed, and how many were not."""
    titles = (
        "changes",
        "noticed",
        "kept, right",
        "stale, named",
        "stale",
        "without effect",
        "needlessly computed",
    )
    print("         ", "  ".join(titles))
    for kind in [*KINDS, "all"]:
        of_kind = [outcome for outcome in outcomes if kind in ("all", outcome.kind)]
        with_effect = [outcome for outcome in of_kind if outcome.expected != NOTHING]
        without_effect = [outcome for outcome in of_kind if outcome.expected == NOTHING]
        found = Counter(outcome.found for outcome in with_effect)
        stale = Counter(outcome.expected for outcome in with_effect if outcome.found == "stale")
        needless = sum(outcome.found != "kept" for outcome in without_effect)
        counts = (found["noticed"], found["kept"], stale[NAMED], stale[AGAIN])
        numbers = (len(with_effect), *counts, len(without_effect), needless)
        cells = [f"{number:>{len(title)}}" for number, title in zip(numbers, titles, strict=True)]
        print(f"{kind:9}", "  ".join(cells))


def main() -> None:
    """Try all changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], default=[*KINDS])
    parser.add_argument("--only", default="", help="a part of the names of changes")
    parser.add_argument("--verbose", action="store_true", help="print all changes")
    arguments = parser.parse_args()
    outcomes = []
    server = Server()
    for kind in arguments.kinds:
        for title, scene in KINDS[kind].list_scenes().items():
            for outcome in try_scene(server, kind, title, scene, arguments.only):
                outcomes.append(outcome)
                if arguments.verbose or not outcome.is_right or outcome.expected == NAMED:
                    print(describe(outcome), flush=True)
    server.close()
    print_table(outcomes)
    sys.exit(not all(outcome.is_right for outcome in outcomes))


if __name__ == "__main__":
    main()
