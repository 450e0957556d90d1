"""Flip bits in stored results, and count what is noticed.

    python benchmarks/reliability.py                 400 flips in each kind of file
    python benchmarks/reliability.py --flips 4000

Each flip changes one bit of one file at random, reads it as the report does, and puts the file back. "Noticed" is an
error that names the file. "Unnoticed, no effect" is a flip after which everything that was read is as before, and
"wrong" is a flip after which something else was read without an error.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast.study.results import load_results
from holdfast.study.store import Store


def make_results(folder: Path) -> None:
    """Sixty jobs with tables and arrays, and the compacted rows."""
    digits = holdfast.data.bundled("digits")[:30]
    classifier = holdfast.Classifier(holdfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    metric = holdfast.metrics.WorstCase(holdfast.LinfBall(0.1), "changed_explanation", search="random", budget=5)
    explainers = ["saliency", "input_x_gradient"]
    holdfast.evaluate(classifier, explainers, digits.inputs, [metric], out=folder, samples_per_job=1, progress=False)


def flip_bits(file: Path, read: Callable[[], object], flips: int, seed: int) -> Counter[str]:
    """How often a flipped bit of `file` was noticed by `read`."""
    before, whole, dice = repr(read()), file.read_bytes(), random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(flips):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.write_bytes(content)
        try:
            found["unnoticed, no effect" if repr(read()) == before else "wrong"] += 1
        except holdfast.HoldfastError:
            found["noticed"] += 1
    file.write_bytes(whole)
    return found


def main() -> None:
    """Print a row for each kind of file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "results"
        make_results(folder)
        store, job = Store(folder), load_results(folder).jobs["job"][0]
        kinds: dict[str, tuple[Path, Callable[[], object]]] = {
            "manifest": (folder / "manifest.json", store.manifest),
            "table of a job": (folder / "jobs" / f"{job}.parquet", lambda: store.read(job)[1].to_dicts()),
            "arrays of a job": (
                folder / "artefacts" / f"{job}.safetensors",
                lambda: {name: array.tobytes() for name, array in store.read_artefacts(job).items()},
            ),
            "compacted rows": (
                next((folder / "compact").glob("samples-*")),
                lambda: load_results(folder).samples.to_dicts(),
            ),
        }
        print("| file | flips | noticed | unnoticed, no effect | wrong |\n| --- | --- | --- | --- | --- |")
        for name, (file, read) in kinds.items():
            flips = arguments.flips if name != "compacted rows" else max(1, arguments.flips // 10)
            found = flip_bits(file, read, flips, arguments.seed)
            print(f"| {name} | {flips} | {found['noticed']} | {found['unnoticed, no effect']} | {found['wrong']} |")


if __name__ == "__main__":
    main()
