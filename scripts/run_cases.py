"""Run scripts that show a defect of studies, and say of each whether it is mended.

    python scripts/run_cases.py FOLDER                 all scripts in a folder
    python scripts/run_cases.py FOLDER --only 04 11

A script runs the command that its environment names, makes its own files, and prints what happens. Its number says
what to look for in that: a defect is mended when no old or mixed number is left, or when words say why.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FAILING = """seed: 0
samples: 2
device: cpu
data: [digits]
models: [lenet5-mnist]
explainers: [saliency, {function: "broken:explain"}]
metrics: [{max_sensitivity: {samples: 3, neighbourhood: {linf: 0.1}}}]
"""


def have_equal_tables(said: str) -> bool:
    """Whether the exported tables, the last of which is of new results, are the same."""
    _, *tables = re.split(r"^.*\bstatus,value.*\n", said, flags=re.MULTILINE)
    rows = [re.findall(r"^.*\bok,.*$", table, flags=re.MULTILINE) for table in tables]
    return len(rows) > 1 and bool(rows[0]) and all(each == rows[0] for each in rows)


def is_done_again(said: str) -> bool:
    """Whether two runs after changes have found no job that was done."""
    return said.count(" 0 were done before") == 4


def have_equal_lists(said: str) -> bool:
    """Whether the last two lists of numbers, of continued and of new results, are the same."""
    found = re.findall(r"\[[^]]*\d[^]]*\]", said)
    return len(found) > 2 and found[-1] == found[-2]


def is_one_model(said: str) -> bool:
    """Whether all processes had the same model, or an error says that they had not."""
    return len(set(re.findall(r"sum of weights (\S+)", said))) == 1 or "error: " in said


def is_unaffected(said: str) -> bool:
    """Whether the numbers are the same after each explainer, or are not there."""
    found = [part.splitlines()[1:] for part in said.split("good after")[1:]]
    return bool(found[0]) and all(rows in ([], found[0]) for rows in found)


def has(*words: str, without: tuple[str, ...] = ("Traceback",)) -> Callable[[str], bool]:
    """A judge that wants some words, and no others."""
    return lambda said: (
        all(word in said for word in words) and not any(word in said for word in without)
    )


JUDGES: dict[str, Callable[[str], bool]] = {
    "01": have_equal_tables,
    "02": have_equal_lists,
    "03": is_one_model,
    "04": has("damaged: looks.json", without=("n = 400",)),
    "05": has("Net ok", "patched ok"),
    "06": has("another run works here"),
    "07": is_unaffected,
    "09": has(
        "bytes follow", "weights is a FIFO: rc", without=("rc 124", "Traceback", "MemoryError")
    ),
    "10": has("evidence pack", without=("<script",)),
    "11": has("damaged: jobs/", without=("^[", "^G", "Traceback", "Errno")),
    "12": is_done_again,
}


def run_case(script: Path, command: str, failed: Path) -> str:
    """What a script prints."""
    start = [sys.executable] if script.suffix == ".py" else ["sh"]
    variables = {**os.environ, "HOLDFAST": command}
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder, script.name)
        # as models were called
        copied.write_text(script.read_text().replace("Classifier(", "Model("))
        done = subprocess.run(
            [*start, str(copied), *([str(failed)] if script.name.startswith("11") else [])],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    return done.stdout.decode(errors="replace")


def make_failed_job(folder: Path, command: str) -> Path:
    """Results with a job that failed."""
    (folder / "broken.py").write_text(
        "def explain(model, inputs, targets):\n    raise ValueError('no')\n"
    )
    (folder / "study.yaml").write_text(FAILING)
    subprocess.run(
        [command, "run", "study.yaml", "--out", "results", "--no-report"],
        cwd=folder,
        capture_output=True,
    )
    return folder / "results"


def main() -> None:
    """Run the scripts, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", help="numbers of scripts")
    parser.add_argument("--command", default=str(Path(sys.executable).with_name("standfast")))
    parser.add_argument("--show", action="store_true", help="print what the scripts print")
    arguments = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as work:
        failed = make_failed_job(Path(work), arguments.command)
        for script in sorted(arguments.folder.glob("[0-9]*")):
            number = script.name[:2]
            if arguments.only and number not in arguments.only:
                continue
            said = run_case(script, arguments.command, failed)
            mended = JUDGES[number](said)
            fine = fine and mended
            print(f"{'ok' if mended else 'FAIL':<5} {script.name}", flush=True)
            if arguments.show:
                print(said)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
