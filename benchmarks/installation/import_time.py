"""How long `import standfast` takes in addition to `import torch`, and which heavy modules it imports.

    python benchmarks/installation/import_time.py [--runs 7]

Every run is a new interpreter that has imported torch before the time is measured. The smallest wall time and processor
time of all runs are printed. The last lines show what a first use adds, since modules are imported when they are
needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

HEAVY = (
    "altair",
    "captum",
    "fsspec",
    "jinja2",
    "matplotlib",
    "numba",
    "pandas",
    "PIL",
    "polars",
    "pooch",
    "pyarrow",
    "pydantic",
    "rich",
    "scipy",
    "skimage",
    "typer",
)

CODE = """
import json, sys, time
{before}
wall, processor = time.perf_counter(), time.process_time()
{statement}
times = [time.perf_counter() - wall, time.process_time() - processor]
print(json.dumps([*times, [name for name in {heavy!r} if name in sys.modules]]))
"""

CASES = (
    ("", "import torch"),
    ("import torch", "import standfast"),
    ("import torch", "import standfast; standfast.Model; standfast.explainers"),
    ("import torch", "import standfast; standfast.metrics"),
    ("import torch", "from standfast import *"),
    ("import torch", "import standfast.cli"),
)


def measure(before: str, statement: str, runs: int) -> tuple[float, float, list[str]]:
    """The smallest wall time and processor time, in seconds, and the heavy modules that were imported."""
    code = CODE.format(before=before, statement=statement, heavy=HEAVY)
    found = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout))
    return min(f[0] for f in found), min(f[1] for f in found), found[0][2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    print(f"{'statement':58} {'wall, s':>8} {'cpu, s':>8}  heavy modules")
    for before, statement in CASES:
        wall, processor, heavy = measure(before, statement, runs)
        print(f"{statement:58} {wall:8.3f} {processor:8.3f}  {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main()
