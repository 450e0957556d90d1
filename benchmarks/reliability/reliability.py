"""Change stored results, hand over files with code in them, and give every option odd values; count what happens.

    python benchmarks/reliability/reliability.py                 400 flips in each kind of file, and the options
    python benchmarks/reliability/reliability.py --flips 4000
    python benchmarks/reliability/reliability.py --flips 10 --files-only

Each flip changes one bit of one file at random, reads it as the report does, and puts the file back. "Noticed" is an
error that names the file. "Unnoticed, no effect" is a flip after which everything that was read is as before, and
"wrong" is a flip after which something else was read without an error.

A tampering changes the content of a JSON or Parquet file as somebody would who opens it and saves it again. "Noticed"
means that `verify` names it, and "wrong" that other numbers are read without an error.

Files with code are pickles of three kinds, alone, within torch files and NumPy files, and in the place of stored
results, and tags of YAML that make objects. "Executed" means that the code has run, and "taken" that the file was
accepted. Names with HTML and scripts are "executed" if they stand in the report as they are.

Every option of every metric and explainer, and of `Model`, then gets fifteen values of other kinds: texts, complex
numbers, NaN, 10^30, lists, functions. "Refused" is an error of standfast that names the option; "accepted" has a
meaning for some options (None, True, -1); an error of another package or of Python is "foreign", and is listed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import io
import json
import os
import pickle
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import standfast
from standfast.checks import check, freeze_baseline
from standfast.checks.baseline import read_baseline
from standfast.checks.sequence import read_decisions
from standfast.evidence import make_pack, verify_pack
from standfast.metrics.base import metrics
from standfast.report import build_html, load_results
from standfast.results import verify_results
from standfast.study.file.spec import load_study
from standfast.study.store import Store, pack_failure

STUDY = {
    "samples": 30,
    "samples_per_job": 1,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "input_x_gradient"],
    "metrics": [{"worst_case": {"neighbourhood": {"linf": 0.1}, "search": "random", "budget": 5}}],
    "requirements": [{"metric": "worst_case", "at_least": 0.5}],
}


def make_results(folder: Path) -> None:
    """Sixty jobs with tables, arrays and decisions, the compacted rows, and a failure under a name of its own."""
    check(STUDY, folder, progress=False)
    store = Store(folder)
    record, _ = store.read(find_job(folder))
    store.put(pack_failure({**record, "job": "failed"}, "Error: none", "none"))


def find_job(folder: Path) -> str:
    """A job that has arrays."""
    return str(load_results(folder).jobs.filter("artefacts")["job"][0])


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
        except standfast.StandfastError:
            found["noticed"] += 1
    file.write_bytes(whole)
    return found


Change = Callable[[Any], Any]


def change_last(wanted: type, new: Change) -> Change:
    """A change of the last value of a type in what JSON says; of the last text where there is none."""

    def change(content: Any) -> Any:
        places = list(_find_values(content, wanted)) or list(_find_values(content, str))
        owner, key = places[-1]
        owner[key] = new(owner[key])
        return content

    return change


def _find_values(content: Any, wanted: type) -> Iterator[tuple[Any, Any]]:
    for key, value in list(content.items() if isinstance(content, dict) else enumerate(content)):
        if isinstance(value, wanted):
            yield content, key
        if isinstance(value, dict | list):
            yield from _find_values(value, wanted)


JSON_CHANGES: dict[str, Change] = {
    "a number": change_last(int, lambda value: value + 1),
    "a text": change_last(str, lambda value: f"{value}x"),
    "a list without its last entry": change_last(list, lambda value: value[:-1] or [0]),
    "a list with an entry twice": change_last(list, lambda value: [*value, *value[:1], 1]),
    "a key more": lambda content: {**content, "more": 1},
    "without a key": lambda content: dict(list(content.items())[:-1]),
    "without its seal": lambda content: {
        key: value for key, value in content.items() if key != "seal"
    },
    "another seal": lambda content: {**content, "seal": "standfast-sha256-" + "0" * 64},
    "other spaces": lambda content: content,
    "a list around it": lambda content: [content],
}
TABLE_CHANGES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "other values": lambda frame: frame.with_columns(pl.selectors.float() + 1),
    "without a row": lambda frame: frame[:-1],
    "a row twice": lambda frame: pl.concat([frame, frame[:1]]),
    "without a column": lambda frame: frame[:, :-1],
    "another type": lambda frame: frame.with_columns(pl.selectors.float().cast(pl.Float32)),
}


def tamper(results: Path, work: Path) -> Counter[str]:
    """How many tamperings of results, of a pack and of a baseline are noticed, and read wrongly."""
    pack, baseline = work / "pack", work / "baseline"
    Store(results).folder.delete("jobs/failed.failed.parquet")
    make_pack(results, pack)
    freeze_baseline(results, baseline)
    job = find_job(results)
    numbers = repr(load_results(results).samples.to_dicts())
    frozen = read_baseline(baseline).frame
    roots: dict[Path, tuple[Callable[[Path], bool], Callable[[Path], object]]] = {
        results: (
            lambda copy: verify_results(copy).fine,
            lambda copy: repr(load_results(copy).samples.to_dicts()),
        ),
        pack: (
            lambda copy: verify_pack(copy).fine,
            lambda copy: repr(load_results(copy / "results").samples.to_dicts()),
        ),
        baseline: (
            lambda copy: read_baseline(copy).frame.equals(frozen),
            lambda copy: numbers if read_baseline(copy).frame.equals(frozen) else None,
        ),
    }
    tries = [
        (results, name, change)
        for name in ("manifest.json", "looks.json")
        for change in JSON_CHANGES.items()
    ]
    tries += [
        (pack, name, change)
        for name in ("evidence.json", "check.json")
        for change in JSON_CHANGES.items()
    ]
    tables = [
        (results, f"jobs/{job}.parquet"),
        (results, "compact/jobs.parquet"),
        (pack, "samples.parquet"),
    ]
    tables += [(baseline, "values.parquet")]
    tries += [(root, name, change) for root, name in tables for change in TABLE_CHANGES.items()]  # type: ignore[misc]
    found: Counter[str] = Counter(tried=len(tries))
    for root, name, (what, change) in tries:
        copy = work / "copy"
        shutil.copytree(root, copy)
        file = copy / name
        if name.endswith(".json"):
            file.write_text(json.dumps(change(json.loads(file.read_text())), indent=2))
        else:
            change(pl.read_parquet(file)).write_parquet(
                file, metadata=pl.read_parquet_metadata(file)
            )
        verify, read = roots[root]
        try:
            fine = verify(copy)
        except standfast.StandfastError:
            fine = False
        try:
            wrong = read(copy) != numbers
        except standfast.StandfastError:
            wrong = False
        found["noticed"] += not fine
        found["wrong"] += wrong
        if fine or wrong:
            print(f"{root.name}/{name}, {what}: {'not noticed' * fine} {'read wrongly' * wrong}")
        shutil.rmtree(copy)
    return found


def _check_file(store: Store, name: str) -> object:
    """The rows, where `verify` finds nothing wrong with a file that is read only if it is intact."""
    if problem := store.check_files()[name]:
        raise standfast.StandfastError(problem)
    return load_results(store).samples.to_dicts()


def _verify(pack: Path) -> str:
    """The digest of a pack in which nothing is wrong."""
    found = verify_pack(pack)
    if not found.fine:
        raise standfast.StandfastError(str(found.problems))
    return found.digest


class Code:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, file: Path, way: int) -> None:
        self.file, self.way = file, way

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        text = str(self.file)
        return (
            (os.mkdir, (text,)),
            (eval, (f"open({text!r}, 'w')",)),
            (os.system, (f"touch {text}",)),
        )[self.way]


TAGS = (
    "!!python/object/apply:os.mkdir ['{}']",
    "!!python/object/apply:os.system ['touch {}']",
    "!!python/object/new:os.mkdir ['{}']",
    "!!python/object/apply:builtins.eval [\"open('{}', 'w')\"]",
    "!!python/object/apply:subprocess.check_output [['touch', '{}']]",
    "!!python/name:os.system",
    "!!python/module:this",
)
NAMES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "--><svg onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href='javascript:alert(1)'>a</a>",
)


def inject_code(folder: Path, results: Path) -> dict[str, Counter[str]]:
    """How often code in a file was executed, and the file taken, by kind of file."""
    mark, study = folder / "executed", folder / "study.yaml"
    if os.name == "posix":  # the code does what it should, if somebody runs it
        pickle.loads(pickle.dumps(Code(mark, 0)))
        mark.rmdir()
    job = find_job(results)

    def load(model: str = "lenet5-mnist", data: str = "digits") -> object:
        study.write_text(
            f"data:\n  d: {data}\nsamples: 1\nmodels:\n  m: {model}\nexplainers: [saliency]\n"
            "metrics: [{max_sensitivity: {neighbourhood: {linf: 0.1}}}]\n"
        )
        grid = load_study(study).grid()
        return [
            source.model(samples, "cpu")
            for source in grid.models.values()
            for samples in grid.data.values()
        ]

    def weights(content: bytes) -> object:
        (folder / "w.pt").write_bytes(content)
        return load("{architecture: lenet5, weights: w.pt}")

    def arrays(name: str, content: bytes) -> object:
        (folder / name).write_bytes(content)
        return load(data="{path: " + name + "}")

    def stored(part: str, content: bytes) -> object:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(results, copy)
        (copy / part).write_bytes(content)
        return build_html(copy), Store(copy).read(job), Store(copy).read_artefacts(job)

    load()  # a study like those below, without code in it
    tries: list[tuple[str, Callable[[], object]]] = []
    for way in range(3):
        code = Code(mark, way)
        torch.save({"a": code}, buffer := io.BytesIO())
        tries.append(("torch files", functools.partial(weights, buffer.getvalue())))
        torch.save({"a": code}, buffer := io.BytesIO(), _use_new_zipfile_serialization=False)
        tries.append(("torch files", functools.partial(weights, buffer.getvalue())))
        listed = np.empty(1, dtype=object)
        listed[0] = code
        for name, save in (("x.npy", np.save), ("x.npz", np.savez)):
            buffer = io.BytesIO()
            save(buffer, listed) if save is np.save else save(buffer, inputs=listed)  # type: ignore[operator]
            tries.append(("NumPy files", functools.partial(arrays, name, buffer.getvalue())))
        for protocol in (0, 2, 5):
            content = pickle.dumps(code, protocol)
            tries.append(("pickles", functools.partial(weights, content)))
            tries.append(("pickles", functools.partial(arrays, "x.npy", content)))
        for part in ("manifest.json", f"jobs/{job}.parquet", f"artefacts/{job}.safetensors"):
            tries.append(("stored results", functools.partial(stored, part, pickle.dumps(code))))
    tries += [("tags of YAML", functools.partial(load, tag.format(mark))) for tag in TAGS]
    found: dict[str, Counter[str]] = {}
    for kind, work in tries:
        counted = found.setdefault(kind, Counter())
        counted["tried"] += 1
        try:
            work()
            counted["taken"] += 1
        except Exception as error:
            counted["foreign"] += not isinstance(error, standfast.StandfastError)
        if mark.exists():
            counted["executed"] += 1
            shutil.rmtree(mark) if mark.is_dir() else mark.unlink()
    digits = standfast.data.bundled("digits")[:2]
    classifier = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    explainers = dict.fromkeys(NAMES, "saliency")
    report = standfast.evaluate(
        classifier, explainers, digits.inputs, ["aopc:steps=2"], progress=False
    )
    executable = _Executable()
    executable.feed(build_html(report))
    found["names"] = Counter(tried=len(NAMES), taken=len(NAMES), executed=executable.found)
    return found


class _Executable(HTMLParser):
    """Counts what a browser would run of `NAMES`: attributes, and scripts that are no data."""

    found, script = 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.script = tag == "script" and dict(attrs).get("type") != "application/json"
        self.found += sum(
            "alert(1)" in (value or "")
            for name, value in attrs
            if name[:2] == "on" or tag in ("iframe", "a")
        )

    def handle_data(self, data: str) -> None:
        self.found += self.script and "alert(1)" in data

    def handle_endtag(self, tag: str) -> None:
        self.script = False


#: what no option, or few of them, can mean
ODD: tuple[object, ...] = (
    *("high", b"x", "\ud800", 1j, float("nan"), float("inf"), -1, 10**30, None, True),
    *([], {}, object(), torch.tensor(1.0), lambda: 0),
)


def give_odd_values() -> tuple[Counter[tuple[str, str]], list[str]]:
    """How often an option was refused, accepted, or led to a foreign error, by kind; and the foreign errors."""
    ball = standfast.LinfBall(0.1)
    makers: list[tuple[str, str, Callable[..., object], list[str]]] = []
    for name in standfast.metrics.names():
        kind = metrics[name]
        options = [field.name for field in dataclasses.fields(kind) if field.init]
        given = {"neighbourhood": ball} if "neighbourhood" in options else {}
        makers.append(("metrics", name, functools.partial(_make, kind, given), options))
    for name in standfast.explainers.names():
        try:
            example = standfast.explainers.get(name)
        except standfast.StandfastError:  # it needs a package that is not installed
            continue
        if dataclasses.is_dataclass(example):
            options = [field.name for field in dataclasses.fields(example) if field.init]
            makers.append(
                ("explainers", name, functools.partial(standfast.explainers.get, name), options)
            )
    makers += [
        ("balls", kind.__name__, kind, ["radius"])
        for kind in (standfast.LinfBall, standfast.L2Ball)
    ]
    given = {"module": torch.nn.Linear(4, 3), "bounds": (0.0, 1.0), "device": "cpu"}
    makers.append(
        ("Model", "", functools.partial(_make, standfast.Model, given), [*given, "batch_size"])
    )
    found: Counter[tuple[str, str]] = Counter()
    foreign = []
    for group, name, make, options in makers:
        for option in options:
            for value in ODD:
                try:
                    make(**{option: value})
                except standfast.StandfastError:
                    found[group, "refused"] += 1
                except Exception as error:
                    found[group, "foreign"] += 1
                    foreign.append(
                        f"{name}.{option} = {value!r:.40}: {type(error).__name__}: {error}"
                    )
                else:
                    found[group, "accepted"] += 1
    return found, foreign


def _make(kind: Callable[..., object], given: dict[str, object], **options: object) -> object:
    return kind(**{**given, **options})


def main() -> None:
    """Print a row for each kind of file, and one for each kind of object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files-only", action="store_true", help="flips and tamperings alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "results"
        make_results(folder)
        store, job = Store(folder), find_job(folder)
        kinds: dict[str, tuple[Path, Callable[[], object]]] = {
            "manifest": (folder / "manifest.json", store.manifest),
            "table of a job": (
                folder / "jobs" / f"{job}.parquet",
                lambda: store.read(job)[1].to_dicts(),
            ),
            "arrays of a job": (
                folder / "artefacts" / f"{job}.safetensors",
                lambda: {
                    name: array.tobytes() for name, array in store.read_artefacts(job).items()
                },
            ),
            "failure of a job": (
                folder / "jobs" / "failed.failed.parquet",
                lambda: store.read("failed", failed=True)[1].to_dicts(),
            ),
            "decisions": (folder / "looks.json", lambda: read_decisions(load_results(folder))),
            "compacted rows": (
                folder / "compact" / "jobs.parquet",
                lambda: _check_file(store, "compact/jobs.parquet"),
            ),
        }
        make_pack(folder, pack := Path(temporary) / "evidence")
        for name in ("evidence.json", "samples.parquet", "check.json", "report.html"):
            kinds[f"{name} of a pack"] = (pack / name, lambda: _verify(pack))
        print(
            "| file | flips | noticed | unnoticed, no effect | wrong |\n| --- | --- | --- | --- | --- |"
        )
        for name, (file, read) in kinds.items():
            slow = name == "compacted rows" or name.endswith("pack")
            flips = (
                min(arguments.flips, max(10, arguments.flips // 10)) if slow else arguments.flips
            )
            found = flip_bits(file, read, flips, arguments.seed)
            print(
                f"| {name} | {flips} | {found['noticed']} | {found['unnoticed, no effect']} | {found['wrong']} |"
            )
        (Path(temporary) / "work").mkdir()
        changed = tamper(folder, Path(temporary) / "work")
        print(
            f"\n{changed['tried']} tamperings: {changed['noticed']} noticed, {changed['wrong']} read wrongly"
        )
        if arguments.files_only:
            return
        print("\n| files with code | tried | executed | taken | refused with a foreign error |")
        print("| --- | --- | --- | --- | --- |")
        (Path(temporary) / "code").mkdir()
        for kind, found in inject_code(Path(temporary) / "code", folder).items():
            numbers = " | ".join(
                str(found[what]) for what in ("tried", "executed", "taken", "foreign")
            )
            print(f"| {kind} | {numbers} |")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counted, foreign = give_odd_values()
    print(
        "\n| options of | values | refused | accepted | foreign |\n| --- | --- | --- | --- | --- |"
    )
    for group in dict.fromkeys(group for group, _ in counted):
        refused, accepted, others = (
            counted[group, what] for what in ("refused", "accepted", "foreign")
        )
        print(f"| {group} | {refused + accepted + others} | {refused} | {accepted} | {others} |")
    print("\n".join(foreign))


if __name__ == "__main__":
    main()
