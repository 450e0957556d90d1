"""Whether a card gives what the CPU gives: all golden cases on both, and what else must hold on a card.

    python benchmarks/on_a_card/right.py --device cuda --out right.json [--deterministic] [--tiny]

Sections, whose tasks are done by several processes that share the card:

- `cases`: those of `tests/golden`, without TF32. Each runs on the CPU; and on the device twice with the same seed, with
  another batch size, and with the CPU's random numbers. What depends on nothing but rounding has a tolerance by kind
  (`agreement.TOLERANCES`). What draws random numbers on the device, or searches, must keep status, finite values and
  intervals around the value.
- `contract`: the checks of `standfast.testing`.
- `networks`: `standfast.evaluate` on bundled networks, on the CPU and on the device.
- `memory`: a model that runs out of memory gets smaller batches, and gives the same numbers.
- `workers`: two processes that share the device give the table of one.
- `mixed`: maps and values in bfloat16 and with channels-last weights, beside those in float32.
- `deterministic`, with the option: the cases that did not repeat their bits, with torch's deterministic algorithms.

The JSON file has a record for each task. A record has `problems`, which must not be, and notes.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import math
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "stand_ins"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))

from agreement import TOLERANCES, Arrays, find_broken_claims, measure_difference
from pool import Record, Task, run_tasks

import golden
import standfast
from standfast import testing
from standfast.tensors import Streams, available_cpus

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0
SECONDS_BETWEEN_FILES = 5.0
#: with `--tiny`, every so many of the tasks of a section
STRIDE = 20
#: how the names of cases begin that take longest
LONG = (
    "studies",
    "metrics: attribution_attack",
    "metrics: misinterpretation_probability",
    "metrics: c_eval",
)
EXPLAINERS = ["saliency", "input_x_gradient", "smoothgrad:samples=4"]
METRICS = ["aopc", "log_odds", "max_sensitivity", "worst_case:budget=100"]
NETWORKS = ("lenet5-mnist", "resnet20-cifar10", "vit-mnist", "transformer-sentences", "cnn-waves")


@dataclass(frozen=True)
class Options:
    """How tasks are done: where, and whether with torch's deterministic algorithms."""

    device: str
    deterministic: bool = False


# Cases


@cache
def list_cases() -> dict[str, tuple[str, golden.Case]]:
    """Group and case by name."""
    return {
        f"{group}: {name}": (group, case)
        for group in golden.GROUPS
        for name, case in golden.GROUPS[group]()
    }


@contextlib.contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Products and convolutions in float32, not in TF32."""
    places = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = False
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.allow_tf32 = value


@contextlib.contextmanager
def draw_on_the_cpu() -> Iterator[Counter[str]]:
    """The streams of samples draw on the CPU, so that each device gets the same numbers; counts the draws."""
    plain = {name: getattr(Streams, name) for name in ("normal", "uniform", "refill")}
    make, drawn = Streams.__init__, Counter[str]()

    def make_on_the_cpu(self: Streams, seeds: Any, device: torch.device) -> None:
        make(self, seeds, torch.device("cpu"))
        self.device = device

    def draw(name: str, self: Streams, *arguments: Any, **options: Any) -> Any:
        drawn[name] += 1
        device, self.device = self.device, torch.device("cpu")
        try:
            found = plain[name](self, *arguments, **options)
        finally:
            self.device = device
        return [each.to(device) for each in found] if isinstance(found, list) else found.to(device)

    try:
        Streams.__init__ = make_on_the_cpu  # type: ignore[method-assign]
        for name in plain:
            setattr(Streams, name, partialmethod(partial(draw, name)))
        yield drawn
    finally:
        Streams.__init__ = make  # type: ignore[method-assign]
        for name, method in plain.items():
            setattr(Streams, name, method)


def run_case(
    case: golden.Case, device: str, batch_size: int = golden.BATCH_SIZES[0]
) -> Arrays | str:
    """The arrays of a case, or the kind of error with which the library refuses it."""
    golden.DEVICE = device
    try:
        found = case.run(batch_size)
    except (standfast.ArgumentError, standfast.ModelError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return {name: golden.as_array(values) for name, values in found.items()}


def compare_case(name: str, options: Options) -> Record:
    """A case on the CPU and on the device."""
    group, case = list_cases()[name]
    with draw_on_the_cpu() as drawn:
        wanted = run_case(case, "cpu")
    found, again = run_case(case, options.device), run_case(case, options.device)
    if isinstance(wanted, str) or isinstance(found, str) or isinstance(again, str):
        words = [each if isinstance(each, str) else "a result" for each in (wanted, found, again)]
        alike = len({each.partition(":")[0] for each in words}) == 1
        return {
            "problems": []
            if alike
            else [f"on the CPU {words[0]}, on the device {words[1]}, then {words[2]}"]
        }
    repeat, _ = measure_difference(again, found)
    if options.deterministic:
        return {"problems": [], "repeat": repeat}
    if drawn:
        with draw_on_the_cpu():
            same = run_case(case, options.device)
    else:
        same = found
    other = run_case(case, options.device, golden.BATCH_SIZES[1])
    if isinstance(same, str) or isinstance(other, str):
        return {"problems": [f"refused only at times: {same if isinstance(same, str) else other}"]}
    difference, where = measure_difference(same, wanted)
    batch, batch_where = measure_difference(other, found)
    tolerance = math.inf if case.searches else TOLERANCES[group]
    problems = find_broken_claims(found, wanted) + find_broken_claims(other, wanted)
    if difference > tolerance:
        problems.append(f"{where} differs from the CPU by {difference:.2g}")
    if batch > tolerance:
        problems.append(f"{batch_where} differs by {batch:.2g} with another batch size")
    kind = "searches" if case.searches else "draws" if drawn else "rounds"
    own, _ = measure_difference(found, wanted)
    record = {
        "problems": problems,
        "kind": kind,
        "difference": difference,
        "where": where,
        "own_numbers": own,
    }
    return {**record, "repeat": repeat, "batch": batch}


# The contract


def list_contract() -> list[str]:
    """Checks as `kind/name/check` or `kind/name/shape`."""
    checks = [
        check.__name__ for check in testing.METRIC_CHECKS if check is not testing.check_description
    ]
    metrics = [
        f"metric/{name}/{check}"
        for name in golden.own_names(standfast.metrics.metrics)
        for check in checks
    ]
    explainers = golden.own_names(standfast.explainers.explainers)
    similarities = golden.own_names(standfast.similarity.similarities)
    both = [
        (kind, name)
        for kind, names in (("explainer", explainers), ("similarity", similarities))
        for name in names
    ]
    return [
        *metrics,
        *(f"{kind}/{name}/{shape}" for kind, name in both for shape in testing.SHAPES),
    ]


def check_contract(name: str, options: Options) -> Record:
    """A check of `standfast.testing` on the device; what is refused there must be refused on the CPU, too."""
    kind, subject, what = name.split("/")

    def check(device: str) -> str:
        try:
            if kind == "metric":
                metric = standfast.metrics.metrics[subject].example()
                getattr(testing, what)(metric, testing.SHAPES["image"], device)
            elif kind == "explainer":
                explainer = standfast.explainers.get(subject, **golden.QUICK.get(subject, {}))
                testing.check_explainer(explainer, [what], device)
            else:
                testing.check_similarity(standfast.similarity.get(subject), [what], device)
        except AssertionError as error:
            return f"AssertionError: {error}"
        except standfast.StandfastError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    found = check(options.device)
    if found and found.partition(":")[0] == check("cpu").partition(":")[0]:
        return {"problems": [], "note": f"also on the CPU: {found}"}
    searches = what == "check_batch_independence" and golden.needs_search(subject)
    if found and searches:  # a search takes another path after the smallest difference
        return {"problems": [], "note": f"a search: {found}"}
    return {"problems": [found] if found else []}


# Studies


def make_network(name: str, device: str) -> tuple[standfast.Model, Tensor]:
    """A bundled network and four inputs; pictures in colour are made of digits, since no others come with it."""
    kind = name.partition("-")[2]
    source = {"sentences": "sentences", "waves": "waves:test"}.get(kind, "digits")
    data = standfast.data.load(source)[:4]
    inputs = (
        F.pad(data.inputs, (2, 2, 2, 2)).expand(-1, 3, -1, -1) if kind == "cifar10" else data.inputs
    )
    bounds = (float(inputs.min()), float(inputs.max())) if kind == "waves" else data.bounds
    return standfast.Model(standfast.zoo.load(name), bounds, device=device, batch_size=128), inputs


def compare_network(name: str, options: Options) -> Record:
    """The table of a small evaluation on the CPU and on the device."""
    tables = {}
    for device in ("cpu", options.device):
        model, inputs = make_network(name, device)
        ball = standfast.LinfBall(0.05)
        found = standfast.evaluate(
            model,
            EXPLAINERS,
            inputs,
            METRICS,
            neighbourhood=ball,
            preset="quick",
            controls=False,
            progress=False,
        )
        if found.failures:
            return {"problems": [f"on {device}: {found.failures[0]['error']}"]}
        ranks = {(each.explainer, each.label): each.mean_rank for each in found.summary.rows}
        rows = found.table().select("explainer", "metric", "value").rows()
        tables[device] = {row[:2]: (row[2], ranks.get(row[:2])) for row in rows}
    cells = {cell: [*tables["cpu"][cell], *tables[options.device][cell]] for cell in tables["cpu"]}
    return {"problems": [], "table": [[*cell, *values] for cell, values in cells.items()]}


def compare_workers(_: str, options: Options) -> Record:
    """A study by one process and by two that share the device."""
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist"), (0.0, 1.0), device=options.device, batch_size=64
    )
    inputs = standfast.data.bundled("digits")[:8].inputs
    metrics = {
        "AOPC": "aopc",
        "sensitivity": standfast.metrics.MaxSensitivity(standfast.LinfBall(0.05), samples=5),
    }
    one, two = (
        standfast.evaluate(
            model, EXPLAINERS, inputs, metrics, controls=False, workers=workers, progress=False
        )
        for workers in (1, 2)
    )
    if one.failures or two.failures:
        return {"problems": [[*one.failures, *two.failures][0]["error"]]}
    difference, where = measure_difference(golden.summarise(two), golden.summarise(one))
    problems = (
        [f"{where} differs by {difference:.2g}"] if difference > TOLERANCES["studies"] else []
    )
    return {"problems": problems, "difference": difference}


class Hungry(nn.Module):
    """A network that does not get the memory for more than so many rows: on a CPU, it only says so."""

    def __init__(self, module: nn.Module, rows: int, allowed: int) -> None:
        super().__init__()
        self.module, self.rows, self.allowed = module, rows, allowed

    def forward(self, x: Tensor) -> Tensor:
        """Logits of `x` `(N, ...)`."""
        if x.device.type == "cpu" and len(x) > self.rows:
            raise torch.OutOfMemoryError("a stand-in")
        if x.device.type != "cpu":
            torch.empty(len(x) * self.allowed // self.rows, dtype=torch.uint8, device=x.device)
        logits: Tensor = self.module(x)
        return logits


def compare_memory(_: str, options: Options) -> Record:
    """Maps and worst cases of a model that runs out of memory, beside those of small batches."""
    rows, allowed = 40, 2**31
    if options.device != "cpu":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(options.device).total_memory
        torch.cuda.set_per_process_memory_fraction(allowed / total)
    inputs = standfast.data.bundled("digits")[:200].inputs
    metric = standfast.metrics.WorstCase(standfast.LinfBall(0.1), search="random", budget=40)
    found, sizes = [], []
    for batch_size in (16, 200, "auto"):
        module = Hungry(standfast.zoo.load("lenet5-mnist"), rows, allowed)
        model = standfast.Model(module, (0.0, 1.0), device=options.device, batch_size=batch_size)  # type: ignore[arg-type]
        maps = standfast.explainers.get("saliency")(model, inputs)
        values = metric(model, "saliency", inputs[:20]).value
        found.append({"maps": golden.as_array(maps), "value": golden.as_array(values)})
        sizes.append(model.batch_size)
    problems = [] if sizes[1] <= rows else [f"a batch size of {sizes[1]}: memory did not run out"]
    for other in found[1:]:
        difference, where = measure_difference(other, found[0])
        problems += (
            [f"{where} differs by {difference:.2g}"] if difference > TOLERANCES["metrics"] else []
        )
    return {"problems": problems, "batch_sizes": sizes, "last": options.device != "cpu"}


# Mixed precision


def list_mixed() -> list[str]:
    """Explainers and metrics as `kind/name/network`, if models take the option."""
    if "mixed_precision" not in inspect.signature(standfast.Model).parameters:
        return []
    explainers = golden.own_names(standfast.explainers.explainers)
    maps = [f"explainer/{name}/{network}" for name in explainers for network in golden.NETWORKS]
    return maps + [f"metric/{name}/conv" for name in golden.own_names(standfast.metrics.metrics)]


def compare_mixed(name: str, options: Options) -> Record:
    """A map or a value in bfloat16 with channels-last weights, and in float32."""
    kind, subject, network = name.split("/")
    inputs, found = golden.make_inputs(network), []
    for mixed in ({}, {"mixed_precision": "bfloat16"}):
        module = golden.set_weights(golden.NETWORKS[network][0]())
        module = module.to(memory_format=torch.channels_last) if mixed else module
        model = standfast.Model(module, (0.0, 1.0), device=options.device, batch_size=16, **mixed)
        try:
            if kind == "explainer":
                found.append(
                    standfast.explainers.get(subject, **golden.QUICK.get(subject, {}))(
                        model, inputs
                    )
                )
            else:
                metric = standfast.metrics.metrics[subject].example()
                found.append(metric(model, "input_x_gradient", inputs).value)
        except standfast.StandfastError as error:
            found.append(f"{type(error).__name__}: {error}")
    refusals = [each for each in found if isinstance(each, str)]
    if refusals:
        return {"problems": refusals if len(refusals) == 1 else []}
    problems = (
        []
        if found[1].dtype in (torch.float32, torch.float64)
        else [f"the result is {found[1].dtype}"]
    )
    a, b = (golden.as_array(each) for each in found)
    if (np.isfinite(a) & ~np.isfinite(b)).any():
        problems.append("not finite where float32 is")
    if kind == "metric":
        return {"problems": problems, "difference": measure_difference({"": b}, {"": a})[0]}
    if problems or not a.std() or not b.std():
        return {"problems": problems}
    return {"problems": problems, "correlation": float(np.corrcoef(a.ravel(), b.ravel())[0, 1])}


# Doing and showing

LISTS: dict[str, Callable[[], list[str]]] = {
    "networks": lambda: list(NETWORKS),
    "memory": lambda: ["lenet5-mnist"],
    "workers": lambda: ["lenet5-mnist"],
    "cases": lambda: list(list_cases()),
    "contract": list_contract,
    "mixed": list_mixed,
}
DO: dict[str, Callable[[str, Options], Record]] = {
    "networks": compare_network,
    "memory": compare_memory,
    "workers": compare_workers,
    "cases": compare_case,
    "contract": check_contract,
    "mixed": compare_mixed,
    "deterministic": compare_case,
}


def do(options: Options, task: Task) -> Record:
    """Do a task, in a process that does others before and after it."""
    torch.set_num_threads(1)
    section, name = task
    start = time.perf_counter()
    if options.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with contextlib.nullcontext() if section == "networks" else exact_arithmetic():
                record = DO[section](name, options)
        except Exception as error:  # whatever the device raises is a finding
            trace = traceback.format_exc(limit=-4)
            record = {"problems": [f"{type(error).__name__}: {error}"], "trace": trace}
            record["last"] = "CUDA error" in str(error) or "device-side" in str(error)
    if options.deterministic:
        words = [str(each.message) for each in said if "deterministic" in str(each.message)]
        record["without_deterministic_kernel"] = sorted({each.partition(" ")[0] for each in words})
    return {**record, "seconds": time.perf_counter() - start}


def choose_tasks(sections: list[str], tiny: bool) -> list[Task]:
    """What is done, in this order: what takes long, then a mixture, so that a run that is cut off has some of all."""
    tasks = []
    for section in sections:
        names = LISTS[section]()
        stride = min(STRIDE, len(names) or 1) if tiny else 1
        tasks += [(section, name) for name in names[::stride]]

    def place(task: Task) -> tuple[bool, float]:
        section, name = task
        return section in ("cases", "contract", "mixed") and not name.startswith(
            LONG
        ), golden.hash_text(name)

    return sorted(tasks, key=place)


class Report:
    """The records so far, in a file that is always whole, and as text.

    Attributes:
        records: by section and name; None for what was not run.
    """

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.start, self.written = path, time.monotonic(), -math.inf
        self.device = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        self.records: dict[str, dict[str, Record | None]] = {}

    def add(self, task: Task, record: Record | None) -> None:
        """Keep a record, and show it if it has a problem."""
        section, name = task
        self.records.setdefault(section, {})[name] = record
        for problem in [] if record is None else record["problems"]:
            print(f"PROBLEM {section} {name}: {problem[:600]}", flush=True)
        if time.monotonic() - self.written > SECONDS_BETWEEN_FILES:
            self.write()

    def write(self) -> None:
        """Write the file, and say how far everything is."""
        self.written = time.monotonic()
        seconds = self.written - self.start
        content = {
            "part": "right",
            "device": self.device,
            "torch": torch.__version__,
            "seconds": seconds,
        }
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({**content, "records": self.records}, indent=1))
        part.replace(self.path)
        done = ", ".join(f"{section} {len(records)}" for section, records in self.records.items())
        print(f"{seconds:6.1f} s: {done}", flush=True)

    def sort_by(self, section: str, note: str, **having: str) -> list[tuple[float, str, Record]]:
        """Value of a note, name and record, the largest value first; of the records that have these values, too."""
        records = [
            (name, record)
            for name, record in self.records.get(section, {}).items()
            if record is not None
        ]
        chosen = [(name, r) for name, r in records if note in r and having.items() <= r.items()]
        return sorted(
            ((r[note], name, r) for name, r in chosen), key=lambda row: row[0], reverse=True
        )

    def count_problems(self) -> int:
        """How many tasks have problems; prints it for each section."""
        total = 0
        for section, records in self.records.items():
            done = [record for record in records.values() if record is not None]
            wrong, seconds = (
                sum(bool(r["problems"]) for r in done),
                sum(r.get("seconds", 0.0) for r in done),
            )
            print(
                f"{section}: {len(done)} done ({seconds:.0f} s of processes), {wrong} with problems, ",
                end="",
            )
            print(f"{len(records) - len(done)} not run")
            total += wrong
        return total

    def show(self) -> None:
        """Print what is worth reading of the notes."""
        for kind in ("rounds", "draws", "searches"):
            rows = self.sort_by("cases", "difference", kind=kind)
            print(
                f"\nThe CPU and the device with the same random numbers, {kind}, the worst ten of {len(rows)}:"
            )
            for value, name, record in rows[:10]:
                print(
                    f"  {value:.2g} {name}: {record['where']} (with its own: {record['own_numbers']:.2g})"
                )
        for section, words in (("cases", ""), ("deterministic", ", with deterministic algorithms")):
            rows = self.sort_by(section, "repeat")
            moved = [row for row in rows if row[0] > 0]
            print(f"\nOther bits the second time{words}: {len(moved)} of {len(rows)}")
            for value, name, record in moved:
                print(f"  {value:.2g} {name} {record.get('without_deterministic_kernel', '')}")
        print("\nOther batch sizes, the largest differences:")
        for value, name, record in self.sort_by("cases", "batch")[:10]:
            print(f"  {value:.2g} {name} ({record['kind']})")
        for name, record in self.records.get("networks", {}).items():
            print(
                f"\n{name}: explainer, metric; value and rank on the CPU; value and rank on the device"
            )
            for explainer, metric, *numbers in (record or {}).get("table", []):
                print(
                    f"  {explainer}, {metric}; "
                    + " ".join("-" if n is None else f"{n:.5g}" for n in numbers)
                )
        print("\nThe lowest correlations of maps in bfloat16 with those in float32:")
        for value, name, _ in self.sort_by("mixed", "correlation")[:-11:-1]:
            print(f"  {value:.4f} {name}")


def main() -> None:
    """Do the tasks, write the file and print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("right.json"))
    parser.add_argument("--tiny", action="store_true", help="a small part of the tasks")
    parser.add_argument(
        "--only", nargs="+", choices=list(LISTS), default=list(LISTS), help="sections"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="repeat with torch's deterministic algorithms"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="after which nothing more is done"
    )
    parser.add_argument("--processes", type=int, default=min(16, available_cpus()))
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    report, start = Report(chosen.out, chosen.device), time.monotonic()

    def run(tasks: list[Task], options: Options, share: float) -> None:
        left = max(0.0, start + share * chosen.seconds - time.monotonic())
        for task, record in run_tasks(partial(do, options), tasks, chosen.processes, left):
            report.add(task, record)
        report.write()

    run(choose_tasks(chosen.only, chosen.tiny), Options(chosen.device), 0.8)
    if chosen.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        moved = [
            ("deterministic", name)
            for value, name, _ in report.sort_by("cases", "repeat")
            if value > 0
        ]
        run(moved, Options(chosen.device, deterministic=True), 0.9)
    counter = ROOT / "benchmarks" / "on_a_card" / "synchronisations.py"
    if counter.is_file():
        out = chosen.out.with_name("synchronisations.json")
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, str(counter), "--device", chosen.device, "--out", str(out)],
                timeout=max(0.1 * chosen.seconds, start + chosen.seconds - time.monotonic()),
                check=False,
            )
    report.show()
    sys.exit(report.count_problems() > 0)


if __name__ == "__main__":
    main()
