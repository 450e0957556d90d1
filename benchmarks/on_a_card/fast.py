"""How fast metrics and searches are on a card: shares of bare loops of the same run, and peak memory.

    python benchmarks/on_a_card/fast.py --device cuda --out fast.json                     at most 150 seconds
    python benchmarks/on_a_card/fast.py --device cuda --only random block --samples 8     some rows
    python benchmarks/on_a_card/fast.py --device cpu --tiny                               the same code, tiny networks

Networks have random weights and random inputs; the classes that they predict are the targets, and maps are those of
`saliency`. A bare loop runs the same module in the same precision, memory format and batch size, and waits for the
device around some passes: forward, forward and backward to the input, or with a gradient of the gradient (softplus for
ReLU). It is measured just before and after each metric; its time is the median of all turns.

- The share is the time in which the bare loop makes the passes that the work needs, over the time of the work. An
  evaluation is a pass forward and backward where it explains, or follows the gradient of a margin; forward where it
  only predicts; of second order where a search asks for a direction through the explanation.
- LIME and KernelSHAP are compared with bare forward passes of as many rows. Their time includes the superpixels. A
  note has it without, beside Captum's, which gets them; so has data SenC.
- Budgets are chosen by the bare rate, so that each row takes `--row-seconds`, but has at least three rounds. Where
  the budget asks for it, random search has smaller blocks than by default, the genetic search a smaller population,
  searches with gradients fewer restarts and the simulation fewer particles: rounds are rather too small than too large.
- Memory is the peak of torch's allocator; on a CPU, of the process. `estimate` says what `standfast.estimate` expects.
- A time is the processor time on a CPU with one thread, else time on the clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "other_libraries"))

from bare_model import Pass, measure_pass, read_clock
from networks import NETWORKS, PRECISIONS, Network, Record, build, can_mix_precisions
from torch import Tensor

import standfast
from standfast.metrics import Metric
from standfast.metrics.probe import Probe
from standfast.segments import segment
from standfast.study.forecast.trials import measure_peak

BALL = standfast.LinfBall(8 / 255)
EXPLAINER = "saliency"
ONE_OR_MORE = (1, 8)
ALL_SAMPLES = (1, 8, 64)
#: networks and works without a goal, or with fewer rows
NO_GOALS = ("lenet5",)
# in float32, where bfloat16 is measured, too
OTHER_PRECISION = (
    "random",
    "gradient",
    "probability",
)
ESTIMATED = ("random", "gradient", "corruption_curve", "attribution_attack")  # at eight samples
COPIES_GOAL = 1 / 1.2  # LIME and KernelSHAP take at most 1.2 times as long as bare passes
TURNS = 3  # of a bare loop before and after each work,
TURN_SHARE = 0.04  # each of which takes this share of a row's time
TINY_ROW_SECONDS = 0.02
ROWS_SHARE = 0.9  # of the time for rows, so that some is left for profiles
FULL = 64  # rows with which a batch is about as fast as any


def make_search(name: str) -> Callable[[int], Metric]:
    """`worst_case` by this search, for a budget; at least three rounds."""

    def make(budget: int) -> Metric:
        if name == "random":
            search = f"random:block={min(256, max(8, budget // 4))}"
        elif name == "genetic":
            search = f"genetic:population={min(1000, max(8, budget // 5))}"
        elif name in ("gradient", "sign"):
            most = {"gradient": 8, "sign": 16}[name]
            search = f"{name}:restarts={min(most, max(2, budget // 8))}"
        else:
            search = name
        return standfast.metrics.get("worst_case", neighbourhood=BALL, search=search, budget=budget)

    return make


def make_probability(budget: int) -> Metric:
    """A simulation of an event that never happens, so that it ends at the floor, after moves in two levels."""
    event: dict[str, Any] = {
        "neighbourhood": BALL,
        "threshold": -0.999,
        "floor": -1.9,
        "first": 1.0,
    }
    return standfast.metrics.get(
        "misinterpretation_probability", **event, moves=2, particles=max(10, budget // 5)
    )


def make_senc(name: str, **options: Any) -> Callable[[int], Metric]:
    """A sensitivity consistency with as many masks."""
    return lambda budget: standfast.metrics.get(name, masks=max(10, budget - 1), **options)


def make_aopc(budget: int) -> Metric:
    return standfast.metrics.get("aopc", steps=min(100, budget), samples=max(1, budget // 100))


def make_curve(budget: int) -> Metric:
    return standfast.metrics.get("corruption_curve", samples=max(1, budget // 20))


def make_attack(budget: int) -> Metric:
    return standfast.metrics.get(
        "attribution_attack", neighbourhood=BALL, steps=max(3, (budget // 3 - 1) // 2)
    )


def make_c_eval(budget: int) -> Metric:
    """The attack `alma`: the first stage of the default one takes up to a gradient for each class."""
    return standfast.metrics.get("c_eval", attack=f"alma:steps={max(3, budget // 2)}")


@dataclass(frozen=True)
class Work:
    """What is measured.

    Attributes:
        make: the metric for about so many evaluations of each sample.
        width: rows of each sample that a round has at once, about.
        least: evaluations of each sample for three rounds.
        goals: shares, by the number of samples.
        samples: for which it is measured.
        passes: what evaluations need; the first where nothing else is seen, "second" where directions are asked for.
        longer: how many times as long as other rows.
    """

    make: Callable[[int], Metric]
    width: int
    least: int
    goals: Mapping[int, float]
    samples: tuple[int, ...] = ONE_OR_MORE
    passes: tuple[Pass, ...] = ("both",)
    longer: float = 1.0

    def plan_evaluations(self, samples: int, bare: Bare, seconds: float) -> int:
        """Evaluations of each sample that take about so many seconds; few rows take as long as a full batch."""
        row = statistics.mean(bare.seconds(kind) for kind in self.passes)
        filled = min(1.0, self.width * samples / min(FULL, bare.rows))
        return max(self.least, round(self.longer * seconds * filled / row / samples))


BLACK_BOX, WHITE_BOX, ALWAYS = (
    {1: 0.75, 8: 0.9, 64: 0.9},
    {8: 0.5, 64: 0.5},
    {1: 0.9, 8: 0.9, 64: 0.9},
)
DIRECTED: tuple[Pass, ...] = ("both", "second")
WORKS = {
    "random": Work(make_search("random"), 128, 40, BLACK_BOX, ALL_SAMPLES),
    "genetic": Work(make_search("genetic"), 500, 40, BLACK_BOX),
    # the size of its rounds grows with the budget
    "block": Work(make_search("block"), 64, 60, BLACK_BOX, longer=3.5),
    "sign": Work(make_search("sign"), 16, 20, WHITE_BOX, passes=DIRECTED),
    "gradient": Work(make_search("gradient"), 8, 20, WHITE_BOX, ALL_SAMPLES, DIRECTED),
    "auto": Work(make_search("auto"), 8, 80, WHITE_BOX, passes=DIRECTED),
    "probability": Work(make_probability, 128, 50, ALWAYS, ALL_SAMPLES),
    # beside superpixels
    "data_senc": Work(make_senc("data_sensitivity_consistency"), 128, 48, ALWAYS, longer=3),
    "parameter_senc": Work(
        make_senc("parameter_sensitivity_consistency", layers="first"), 128, 48, ALWAYS
    ),
    "corruption_curve": Work(make_curve, 128, 60, ALWAYS, passes=("forward",)),
    "aopc": Work(make_aopc, 128, 60, ALWAYS, passes=("forward",)),
    "attribution_attack": Work(make_attack, 3, 24, WHITE_BOX, passes=DIRECTED),
    "c_eval": Work(make_c_eval, 1, 6, WHITE_BOX),
}
COPIES = ("lime", "kernel_shap")


@dataclass
class Bare:
    """Bare loops of a model: seconds of a row by the kind of the pass, the median of the last turns."""

    forward: Callable[[Tensor], Tensor]
    x: Tensor
    turn: float  # seconds of a turn, about
    turns: dict[Pass, list[float]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.x)

    def measure(self, kind: Pass) -> None:
        """Some turns; the first call warms up."""
        # as searches do: it needs the memory
        x = self.x[: max(1, self.rows // 2)] if kind == "second" else self.x
        if kind not in self.turns:
            measure_pass(self.forward, x, kind, 1)
            self.turns[kind] = [measure_pass(self.forward, x, kind, 1)]
        passes = max(1, round(self.turn / (self.seconds(kind) * len(x))))
        self.turns[kind] += [measure_pass(self.forward, x, kind, passes) for _ in range(TURNS)]

    def seconds(self, kind: Pass) -> float:
        return statistics.median(self.turns[kind][-2 * TURNS :])


@dataclass
class Case:
    """A network in one precision, with its model and its bare loop."""

    network: Network
    precision: str
    model: standfast.Model
    bare: Bare
    warm: set[str] = field(default_factory=set)  # works that have run

    @property
    def device(self) -> torch.device:
        return self.model.device

    def draw(self, samples: int, seed: int) -> Tensor:
        return self.network.draw(samples, seed, self.device)


def prepare(name: str, precision: str, options: argparse.Namespace, record: Record) -> Case:
    """Build a network, and choose the number of rows with which a pass forward and backward is fastest."""
    network, found = build(name, options.tiny), []
    for rows in options.rows:
        model = network.make_model(precision, options.device, rows)
        x = network.draw(rows, 2, model.device)
        if precision == "bfloat16":
            x = x.to(memory_format=torch.channels_last)
        bare = Bare(model.module, x, TURN_SHARE * options.row_seconds)
        try:
            bare.measure("both")
        except torch.OutOfMemoryError:
            break
        found.append(Case(network, precision, model, bare))
    best = min(found, key=lambda case: case.bare.seconds("both"))
    for kind in ("forward", "second"):
        best.bare.measure(kind)
    tried = {case.bare.rows: 1e3 * case.bare.seconds("both") for case in found}
    entry = {kind: 1e3 * best.bare.seconds(kind) for kind in best.bare.turns}
    print(
        f"{name}, {precision}: batches of {best.bare.rows}; ms of a row: {_describe(entry)}",
        flush=True,
    )
    where = {
        "network": name,
        "precision": precision,
        "source": network.source,
        "rows": best.bare.rows,
    }
    record.add("bare", {**where, "milliseconds": entry, "forward and backward by rows": tried})
    return best


def _describe(numbers: Mapping[Any, float]) -> str:
    return ", ".join(f"{name} {number:.3g}" for name, number in numbers.items())


@contextmanager
def count_queries() -> Iterator[dict[Pass, int]]:
    """Within the context, the evaluations of all probes: those that ask for directions, and those that only predict."""
    counts: dict[Pass, int] = {"second": 0, "forward": 0}

    def predict(self: Probe, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        counts["forward"] += len(x)
        return query_class(self, x, *args, **kwargs)

    def follow(self: Probe, objective: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        counts["second"] += len(x)
        return gradient(self, objective, x, *args, **kwargs)

    gradient, query_class = Probe.gradient, Probe.query_class
    with mock.patch.multiple(Probe, gradient=follow, query_class=predict):
        yield counts


def expect_evaluations(metric: Metric, classes: int | None, result: Any) -> int:
    """How many evaluations of a sample the metric makes, if it does not end early."""
    if metric.name == "misinterpretation_probability":
        return 1 + 5 * metric.particles  # type: ignore[attr-defined]  # draws, and two moves in each of two levels
    if metric.name == "aopc":  # a small image has fewer regions than steps
        return 1 + metric.samples * int(result.steps.max())  # type: ignore[attr-defined]
    if metric.name == "c_eval":  # each of two searches begins with the input and its gradient
        return metric.cost(classes).evaluations + 4
    return metric.cost(classes).evaluations


def measure_work(
    case: Case, name: str, samples: int, seconds: float, estimate: bool = False
) -> dict[str, Any]:
    """A row: the share of a work, its evaluations, time and memory; and the memory that is estimated, if asked for."""
    work, bare, model = WORKS[name], case.bare, case.model
    metric = work.make(work.plan_evaluations(samples, bare, seconds))
    inputs = case.draw(samples, 0)
    if case.device.type != "cpu":  # kernels are chosen anew for each size of a batch
        metric(model, EXPLAINER, case.draw(samples, 1))
    elif name not in case.warm:
        work.make(work.least)(model, EXPLAINER, case.draw(samples, 1))
        case.warm.add(name)
    for kind in work.passes:
        bare.measure(kind)
    with count_queries() as counts, measure_peak(case.device) as peak:
        start = read_clock(case.device)
        result = metric(model, EXPLAINER, inputs, generator=torch.Generator().manual_seed(0))
        taken = read_clock(case.device) - start
    for kind in work.passes:
        bare.measure(kind)
    evaluations = int(result.model_evaluations.sum())
    if name == "c_eval":
        evaluations += int(result.empty_evaluations.sum())
    passes = {**counts, "both": 0}
    passes[work.passes[0]] += evaluations - sum(counts.values())
    wanted = samples * expect_evaluations(metric, model.classes, result)
    notes = (
        []
        if abs(evaluations - wanted) <= 0.1 * wanted
        else [f"{wanted:,} evaluations were expected"]
    )
    if name == "data_senc":
        start = read_clock(case.device)
        segment(inputs[:1])
        notes.append(
            f"of the time, superpixels take {samples * (read_clock(case.device) - start):.2f} s"
        )
    skipped = samples - result.status.count("ok")
    notes += [f"{skipped} samples skipped"] if skipped else []
    row = {
        "evaluations": evaluations,
        "passes": passes,
        "seconds": taken,
        "bare_seconds": sum(count * bare.seconds(kind) for kind, count in passes.items() if count),
        "memory": peak[0],
        "note": "; ".join(notes),
    }
    if estimate:
        found = standfast.estimate(
            *(model, EXPLAINER, inputs, metric),
            controls=False,
            samples_per_job=samples,
            seconds=seconds / 4,
        )
        row["estimated_memory"] = found.memory
    return row


def measure_copies(case: Case, name: str, seconds: float) -> dict[str, Any]:
    """A row: an explainer of perturbed copies for one image, beside bare forward passes of as many rows, and Captum."""
    try:
        import surrogates
    except ImportError as error:
        return {"note": f"not compared: {error}"}
    samples = max(200, round(seconds / 4 / case.bare.seconds("forward")))
    setting = surrogates.Setting(case.model, case.draw(1, 0), samples, name)
    ((explainer, kind),) = setting.explainers.items()
    given = dataclasses.replace(explainer, segments=setting.labels[0])
    rows = round(setting.count_rows(explainer))

    def measure(rate: Callable[[], float]) -> float:
        rate()  # warms up, and solves for the number of segments
        return statistics.median(1 / rate() for _ in range(TURNS))

    with measure_peak(case.device) as peak:
        taken = measure(partial(setting.measure_ours, explainer))
    bare = measure(partial(setting.measure_bare, rows))
    cut = measure(partial(setting.measure_ours, given))
    note = f"{cut / bare:.2f} times the bare passes if the superpixels are given"
    row = {
        "evaluations": rows,
        "seconds": taken,
        "seconds_without_superpixels": cut,
        "bare_seconds": bare,
    }
    row |= {"memory": peak[0], "note": note}
    try:
        surrogates.Setting(case.model, setting.x, 16, name).measure_captum(kind)  # warms up
        theirs = 1 / setting.measure_captum(kind)
    except Exception as error:  # such as a package that it needs
        return {**row, "note": f"{note}; Captum: {type(error).__name__}: {error}"}
    return {
        **row,
        "captum_seconds": theirs,
        "note": f"{note}; Captum takes {theirs / cut:.1f} times as long",
    }


def profile(case: Case, name: str, samples: int, seconds: float) -> dict[str, Any]:
    """Where the time of a work goes: tables of operations, and the share of the time without a running kernel."""
    if name in COPIES:
        explainer, inputs = standfast.explainers.get(name), case.draw(1, 0)
        run = lambda: explainer(case.model, inputs)  # noqa: E731
    else:
        work = WORKS[name]
        metric, inputs = (
            work.make(work.plan_evaluations(samples, case.bare, seconds)),
            case.draw(samples, 0),
        )
        run = lambda: metric(case.model, EXPLAINER, inputs)  # noqa: E731
    on_card = case.device.type == "cuda"
    kinds = torch.profiler.ProfilerActivity
    run()
    with torch.profiler.profile(activities=[kinds.CPU, *([kinds.CUDA] if on_card else [])]) as seen:
        start = read_clock(case.device)
        run()
        taken = read_clock(case.device) - start
    averages, tables = seen.key_averages(), {}
    for order in (
        ("self_cuda_time_total", "self_cpu_time_total") if on_card else ("self_cpu_time_total",)
    ):
        tables[order] = averages.table(sort_by=order, row_limit=15, max_name_column_width=60)
        print(
            f"{case.network.name}, {case.precision}, {name}, {samples}: {order}\n{tables[order]}",
            flush=True,
        )
    kernels = [
        event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6
    return {
        "seconds": taken,
        "idle": 1 - busy / taken if on_card else None,
        "kernels": len(kernels),
        "tables": tables,
    }


def list_rows(options: argparse.Namespace) -> list[tuple[str, str, str, int]]:
    """Network, precision, work and number of samples of each row, the most important ones first."""
    rows = []
    for precision in options.precisions:
        fewer = precision != options.precisions[0]
        for network in options.networks:
            for name, work in WORKS.items():
                counts = (8,) if fewer else work.samples
                if name in options.only and (not fewer or name in OTHER_PRECISION):
                    rows += [
                        (network, precision, name, count)
                        for count in counts
                        if count in options.samples
                    ]
            if not fewer and 1 in options.samples:
                rows += [(network, precision, name, 1) for name in COPIES if name in options.only]
    return rows


def find_goal(network: str, name: str, samples: int) -> float | None:
    if network in NO_GOALS:
        return None
    return COPIES_GOAL if name in COPIES else WORKS[name].goals.get(samples)


def describe(row: Mapping[str, Any]) -> str:
    """The row of the table."""
    if "share" not in row:
        cells = [*("-",) * 7]
    else:
        goal = "-" if row["goal"] is None else f"{row['goal']:.2f}"
        reached = {None: "-", True: "yes", False: "no"}[row["reached"]]
        estimate = row.get("estimated_memory")
        relative = "-" if estimate is None else f"{estimate / row['memory']:.2f}"
        cells = [
            f"{row['evaluations']:,}",
            f"{row['seconds']:.2f}",
            f"{row['share']:.2f}",
            goal,
            reached,
        ]
        cells += [f"{row['memory'] / 1e6:,.0f}", relative]
    names = [row["network"], row["precision"], row["work"], str(row["samples"])]
    return f"| {' | '.join([*names, *cells, row['note']])} |"


HEADING = (
    "| network | precision | work | samples | evaluations | s | share | goal | reached | memory, MB | estimate / memory"
    " | note |"
)


def measure_rows(options: argparse.Namespace, record: Record) -> None:
    """All rows, until the time is over; then the profiles of the works that are furthest from their goals."""
    end = time.monotonic() + ROWS_SHARE * options.seconds
    cases: dict[tuple[str, str], Case] = {}
    measured = []
    for network, precision, name, samples in list_rows(options):
        where = {"network": network, "precision": precision, "work": name, "samples": samples}
        if time.monotonic() > end:
            record.add("not run", where)
            continue
        try:
            if (network, precision) not in cases:
                cases[network, precision] = prepare(network, precision, options, record)
                print(HEADING + "\n" + "| --- " * HEADING.count(" | ") + "| --- |", flush=True)
            case = cases[network, precision]
            if name in COPIES:
                found = measure_copies(case, name, options.row_seconds)
            else:
                estimate = samples == 8 and name in ESTIMATED and precision == options.precisions[0]
                found = measure_work(case, name, samples, options.row_seconds, estimate)
        except Exception as error:  # the other rows are still worth their time
            found = {"note": f"{type(error).__name__}: {error}"}
        row = {**where, **found}
        if "seconds" in found:
            goal, share = (
                find_goal(network, name, samples),
                found["bare_seconds"] / found["seconds"],
            )
            row |= {
                "share": share,
                "goal": goal,
                "reached": None if goal is None else share >= goal,
            }
            measured.append(row)
        print(describe(row), flush=True)
        record.add("rows", row)
    for entry in record.content.get("not run", ()):
        print("not run: " + ", ".join(map(str, entry.values())), flush=True)
    aimed = sorted(
        (row for row in measured if row["goal"]),
        key=lambda row: row["share"] / row["goal"],
        reverse=True,
    )
    # of each work the last, which is its worst
    worst = {row["work"]: row for row in aimed}.values()
    for row in sorted(worst, key=lambda row: row["share"] / row["goal"])[: options.profiles]:
        case = cases[row["network"], row["precision"]]
        found = profile(case, row["work"], row["samples"], options.row_seconds / 6)
        record.add(
            "profiles",
            {key: row[key] for key in ("network", "precision", "work", "samples")} | found,
        )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*WORKS, *COPIES]
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true", help="tiny networks and budgets")
    parser.add_argument("--seconds", type=float, default=150.0, help="for everything, about")
    parser.add_argument("--row-seconds", type=float, help="of a row, about")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=PRECISIONS,
        help="the first has all rows, others have a few",
    )
    parser.add_argument("--samples", nargs="+", type=int, choices=ALL_SAMPLES, default=ALL_SAMPLES)
    parser.add_argument("--rows", nargs="+", type=int, help="of a batch, to choose from")
    parser.add_argument(
        "--profiles", type=int, default=3, help="how many rows are profiled at the end"
    )
    options = parser.parse_args()
    options.row_seconds = options.row_seconds or (TINY_ROW_SECONDS if options.tiny else 0.7)
    options.precisions = options.precisions or list(
        PRECISIONS if not options.tiny else reversed(PRECISIONS)
    )
    options.rows = options.rows or ([16] if options.tiny else [128, 256])
    return options


def main() -> None:
    """Measure, print and write."""
    options = parse_options()
    warnings.simplefilter("ignore")
    record = Record(options.out, torch.device(options.device))
    if "bfloat16" in options.precisions and not can_mix_precisions():
        print("bfloat16 is left out: this version of standfast has no mixed precision", flush=True)
        options.precisions = [
            precision for precision in options.precisions if precision != "bfloat16"
        ]
    record.content["options"] = {name: str(value) for name, value in vars(options).items()}
    record.write()
    measure_rows(options, record)


if __name__ == "__main__":
    main()
