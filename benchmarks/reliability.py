"""Flip bits in stored results, and give every option values that make no sense; count what is noticed.

    python benchmarks/reliability.py                 400 flips in each kind of file, and the options
    python benchmarks/reliability.py --flips 4000

Each flip changes one bit of one file at random, reads it as the report does, and puts the file back. "Noticed" is an
error that names the file. "Unnoticed, no effect" is a flip after which everything that was read is as before, and
"wrong" is a flip after which something else was read without an error.

Every option of every metric and explainer, and of `Classifier`, then gets fifteen values of other kinds: texts, complex
numbers, NaN, 10^30, lists, functions. "Refused" is an error of holdfast that names the option; "accepted" has a meaning
for some options (None, True, -1); an error of another package or of Python is "foreign", and is listed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

import holdfast
from holdfast.metrics.base import metrics
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


#: what no option, or few of them, can mean
ODD: tuple[object, ...] = (
    *("high", b"x", "\ud800", 1j, float("nan"), float("inf"), -1, 10**30, None, True),
    *([], {}, object(), torch.tensor(1.0), lambda: 0),
)


def give_odd_values() -> tuple[Counter[tuple[str, str]], list[str]]:
    """How often an option was refused, accepted, or led to a foreign error, by kind; and the foreign errors."""
    ball = holdfast.LinfBall(0.1)
    makers: list[tuple[str, str, Callable[..., object], list[str]]] = []
    for name in holdfast.metrics.names():
        kind = metrics[name]
        options = [field.name for field in dataclasses.fields(kind) if field.init]
        given = {"neighbourhood": ball} if "neighbourhood" in options else {}
        makers.append(("metrics", name, functools.partial(_make, kind, given), options))
    for name in holdfast.explainers.names():
        try:
            example = holdfast.explainers.get(name)
        except holdfast.HoldfastError:  # it needs a package that is not installed
            continue
        if dataclasses.is_dataclass(example):
            options = [field.name for field in dataclasses.fields(example) if field.init]
            makers.append(("explainers", name, functools.partial(holdfast.explainers.get, name), options))
    makers += [("balls", kind.__name__, kind, ["radius"]) for kind in (holdfast.LinfBall, holdfast.L2Ball)]
    given = {"module": torch.nn.Linear(4, 3), "bounds": (0.0, 1.0), "device": "cpu"}
    makers.append(("Classifier", "", functools.partial(_make, holdfast.Classifier, given), [*given, "batch_size"]))
    found: Counter[tuple[str, str]] = Counter()
    foreign = []
    for group, name, make, options in makers:
        for option in options:
            for value in ODD:
                try:
                    make(**{option: value})
                except holdfast.HoldfastError:
                    found[group, "refused"] += 1
                except Exception as error:
                    found[group, "foreign"] += 1
                    foreign.append(f"{name}.{option} = {value!r:.40}: {type(error).__name__}: {error}")
                else:
                    found[group, "accepted"] += 1
    return found, foreign


def _make(kind: Callable[..., object], given: dict[str, object], **options: object) -> object:
    return kind(**{**given, **options})


def main() -> None:
    """Print a row for each kind of file, and one for each kind of object."""
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counted, foreign = give_odd_values()
    print("\n| options of | values | refused | accepted | foreign |\n| --- | --- | --- | --- | --- |")
    for group in dict.fromkeys(group for group, _ in counted):
        refused, accepted, others = (counted[group, what] for what in ("refused", "accepted", "foreign"))
        print(f"| {group} | {refused + accepted + others} | {refused} | {accepted} | {others} |")
    print("\n".join(foreign))


if __name__ == "__main__":
    main()
