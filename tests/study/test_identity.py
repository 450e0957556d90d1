"""What the result of a job depends on: every change is noticed, and what changes nothing is not."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import Explainer, from_callable, get
from standfast.metrics import MaxSensitivity, Metric
from standfast.metrics import get as get_metric
from standfast.neighbourhoods import LinfBall
from standfast.question.grid import Grid, LoadedModel, ModelSource, Samples
from standfast.reference import CellCodes, make_reference
from standfast.study.answers import AnswerNumbers
from standfast.study.executors import Processes
from standfast.study.identity import Description
from standfast.study.own_code import read_own_modules
from standfast.study.plan import make_plan
from standfast.study.run import run_grid
from standfast.study.store import Store

INPUTS = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A module with everything that neither its text nor its state shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(12.0).reshape(3, 4) % 5 - 2)
            self.layer.bias.zero_()
        self._temperature = 1.0
        self.register_buffer("shift", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * self._temperature + self.shift


def make_grid(
    model: nn.Module | standfast.Model | None = None,
    explainer: Any = "saliency",
    metric: Metric | str = "max_sensitivity:samples=2",
    inputs: Tensor = INPUTS,
    **options: Any,
) -> Grid:
    model = Net().eval() if model is None else model
    ready = (
        model
        if isinstance(model, standfast.Model)
        else standfast.Model(model, (0.0, 1.0), device="cpu")
    )
    own = get_metric(metric, neighbourhood=LinfBall(0.1)) if isinstance(metric, str) else metric
    made = get(explainer) if isinstance(explainer, str) else explainer
    made = made if isinstance(made, Explainer) else from_callable(made)
    return Grid(
        {"d": Samples(inputs)},
        {"m": LoadedModel(ready)},
        {"e": made},
        {"s": own},
        device="cpu",
        **options,
    )


def find_identities(grid: Grid, earlier: dict[str, Any] | None = None) -> set[str]:
    return {job.identity for job in make_plan(grid, earlier=earlier).jobs}


def halve(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output / 2


def set_weight(net: Net) -> None:
    with torch.no_grad():
        net.layer.weight[0, 0] += 1e-6


CHANGES: dict[str, Callable[[Net], object]] = {
    "a private attribute": lambda net: setattr(net, "_temperature", 2.0),
    "a buffer that is not stored": lambda net: net.shift.add_(1.0),
    "the last digit of a weight": set_weight,
    "a hook": lambda net: net.register_forward_hook(halve),
    "a hook of a part": lambda net: net.layer.register_forward_hook(halve),
    "a method of one object": lambda net: setattr(
        net, "forward", types.MethodType(lambda self, x: self.layer(x), net)
    ),
    "a parametrization": lambda net: nn.utils.parametrizations.weight_norm(net.layer),
    "a part of another kind": lambda net: setattr(
        net, "layer", nn.Sequential(net.layer, nn.Tanh())
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_model_is_noticed(change: str) -> None:
    before = find_identities(make_grid())
    assert find_identities(make_grid()) == before
    net = Net().eval()
    CHANGES[change](net)
    assert not find_identities(make_grid(net)) & before


def test_a_function_of_arrays_is_what_it_answers() -> None:
    def make(scale: float) -> standfast.Model:
        return standfast.Model.from_callable(
            lambda x: np.stack([x.sum(1), scale * x[:, 0]], 1), (0.0, 1.0), output="logit"
        )

    first, same, other = (find_identities(make_grid(make(s), "occlusion")) for s in (1.0, 1.0, 1.1))
    assert first == same
    assert not first & other


def test_bounds_preprocessing_seed_and_data_are_noticed() -> None:
    def identities(**options: Any) -> set[str]:
        return find_identities(
            make_grid(
                standfast.Model(Net().eval(), **{"bounds": (0.0, 1.0), "device": "cpu", **options})
            )
        )

    before = identities()
    assert not identities(bounds=(0.0, 2.0)) & before
    assert not identities(preprocess=lambda x: x - 0.5) & before
    assert not find_identities(make_grid(seed=1)) & before
    assert not find_identities(make_grid(inputs=INPUTS + 1e-6)) & before


def test_what_stands_for_removed_cells_of_a_frame_is_noticed() -> None:
    """Also where all cells of a frame are numbers: noise for these ends at the range of the reference."""
    rows = torch.arange(27.0, dtype=torch.float64).reshape(9, 3).remainder(7)

    def identities(categories: tuple[bool, ...] | None, edge: float = -math.inf) -> set[str]:
        model = standfast.Model.from_callable(
            lambda x: x, (0.0, 30.0), output="logit", dtype=torch.float64
        )
        codes = (
            None
            if categories is None
            else CellCodes(("a", "b", "c"), categories, (edge,) * 3, (0.0,) * 3, (6.0,) * 3)
        )
        model.reference = make_reference(rows, codes)
        return find_identities(make_grid(model, "occlusion", inputs=rows[:4]))

    plain = identities(None)
    assert not identities((False, False, False)) & plain
    assert not identities((True, False, False)) & (plain | identities((False, False, False)))
    assert not identities((False, False, False), 0.5) & plain


def test_answers_that_are_rounded_otherwise_keep_the_identity_and_so_does_a_study_that_grows() -> (
    None
):
    plan = make_plan(make_grid(inputs=INPUTS[:3], samples_per_job=1))
    first = {job.identity for job in plan.jobs}
    stored: dict[str, Any] = plan.manifest["answers"]
    for entry in stored.values():
        for name in set(entry) - {"identity"}:
            entry[name] = " ".join(
                str(float(number) * (1 + 1e-5)) for number in entry[name].split()
            )
        entry["identity"] = "of another machine"
    moved = make_plan(make_grid(samples_per_job=1), earlier=plan.manifest)
    assert not {job.identity for job in moved.jobs} & first  # they are those of the other machine
    grown = find_identities(make_grid(samples_per_job=1), moved.manifest)
    assert grown == {job.identity for job in moved.jobs}
    assert (
        len(
            find_identities(make_grid(inputs=INPUTS[:3], samples_per_job=1), moved.manifest) & grown
        )
        == 3
    )
    for entry in stored.values():
        for name in set(entry) - {"identity"}:
            entry[name] = " ".join(str(float(number) * 1.01) for number in entry[name].split())
    assert not find_identities(make_grid(samples_per_job=1), plan.manifest) & grown


# Configurations


@dataclass(frozen=True)
class Before(MaxSensitivity):
    pass


@dataclass(frozen=True)
class After(MaxSensitivity):
    added: float = 0.5


def test_an_option_at_its_default_does_not_count_and_a_version_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def content(metric: Metric) -> Any:
        described: list[Any] = Description(metric).content
        return [described[0], described[1], described[-1]]  # without the text of these two classes

    ball = LinfBall(0.1)
    assert content(Before(ball)) == content(After(ball))
    assert content(After(ball, added=0.6)) != content(After(ball))
    assert (
        content(Before(ball, samples=4)) == content(After(ball, samples=4)) != content(Before(ball))
    )
    monkeypatch.setattr(After, "version", 2)
    assert content(Before(ball)) != content(After(ball))


@pytest.mark.parametrize(
    "made",
    [
        get("integrated_gradients", steps=7),
        get_metric("max_sensitivity", neighbourhood=LinfBall(0.2)),
    ],
)
def test_a_registered_name_counts_and_neither_its_module_nor_its_class(made: Any) -> None:
    found = Description(made)
    assert not found.own
    assert type(made).__name__ not in str(found.content)
    assert "standfast" not in str(found.content)
    assert made.name in str(found.content)


def test_functions_count_by_their_text_what_they_enclose_and_their_maps() -> None:
    def scaled(by: float) -> Any:
        return lambda module, x, targets: x * by

    assert (
        Description(scaled(1.0)).digest
        == Description(scaled(1.0)).digest
        != Description(scaled(2.0)).digest
    )
    table = np.zeros(5000)
    before = Description(table).digest
    table[2500] = 1.0
    assert Description(table).digest != before

    factor = [1.0]

    def explain(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        return x * HELPERS["scale"](factor[0])

    first = find_identities(make_grid(explainer=explain))
    assert find_identities(make_grid(explainer=explain)) == first
    HELPERS["scale"] = lambda value: value + 1
    try:
        assert not find_identities(make_grid(explainer=explain)) & first
    finally:
        HELPERS["scale"] = float


HELPERS: dict[str, Callable[[float], float]] = {"scale": float}


@pytest.mark.filterwarnings("ignore:.*quantiz")  # torch is going to remove it
def test_a_quantized_module_has_an_identity() -> None:
    """Its state has types, and pairs of a quantized weight and a bias."""
    theirs = pytest.importorskip("torch.ao.quantization")

    def quantized(weight: float) -> str:
        layer = nn.Linear(4, 2)
        nn.init.constant_(layer.weight, weight)
        nn.init.constant_(layer.bias, 0.0)
        return Description(theirs.quantize_dynamic(nn.Sequential(layer), {nn.Linear})).digest

    assert quantized(1.0) == quantized(1.0) != quantized(2.0)


def test_modules_of_the_user_count_with_all_that_they_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is imported by a name that is computed; and not for what is registered."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "part_of_mine.py").write_text("SCALE = 1\n")
    code = "import importlib\nother = importlib.import_module('part' + '_of_mine')\n"
    (tmp_path / "mine_for_identity.py").write_text(
        f"{code}def explain(module, x, targets):\n    return x * other.SCALE\n"
    )
    importlib.invalidate_caches()
    module = importlib.import_module("mine_for_identity")
    before, ours = Description(module.explain).digest, Description(get("saliency")).digest
    assert {"mine_for_identity", "part_of_mine"} <= read_own_modules().keys()
    (tmp_path / "part_of_mine.py").write_text("SCALE = 20\n")
    assert Description(module.explain).digest == before  # what is in memory is as it was
    importlib.reload(sys.modules["part_of_mine"])
    assert Description(module.explain).digest != before
    assert Description(get("saliency")).digest == ours


def test_a_module_that_comes_later_into_a_folder_of_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that nobody has changed for a while are not listed again."""
    monkeypatch.syspath_prepend(tmp_path)
    name = "comes_later_into_a_folder"
    long_ago = time.time() - 60
    os.utime(tmp_path, (long_ago, long_ago))
    assert name not in read_own_modules([name])
    (tmp_path / f"{name}.py").write_text("SCALE = 1\n")
    importlib.invalidate_caches()
    assert name in read_own_modules([name])
    (tmp_path / f"{name}.py").unlink()
    importlib.invalidate_caches()
    assert name not in read_own_modules([name])


def test_the_order_of_a_set_does_not_count() -> None:
    """It is another one in each process for texts, and for these numbers the order in which they came."""
    first, second = {0, 8}, {8, 0}
    assert list(first) != list(second)
    assert Description({"s": first}).digest == Description({"s": second}).digest
    assert Description({"s": {0, 16}}).digest != Description({"s": first}).digest


@pytest.mark.slow
def test_a_function_is_the_same_in_every_process() -> None:
    code = """
from standfast.study.identity import Description
def explain(module, x, targets):
    return x
print(Description({"f": explain, "s": {"a", "b", "c", "d"}}).digest)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in "12"
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert first == second
    assert len(first.strip()) == 16


def test_objects_that_contain_each_other_are_described() -> None:
    first, second = types.SimpleNamespace(), types.SimpleNamespace()
    first.other, second.other = second, first
    assert Description(first).digest == Description(first).digest


# Workers


@dataclass(frozen=True, eq=False)
class Other(ModelSource):
    """Another model each time, as of a builder that draws from NumPy's generator."""

    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    def model(self, samples: Samples, device: str) -> standfast.Model:
        net = Net().eval()
        net._temperature = float(np.random.default_rng().uniform(1, 2))
        return standfast.Model(net, (0.0, 1.0), device="cpu")


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("apart", [False, True])
def test_a_worker_with_another_model_than_the_planned_one_says_so(
    apart: bool, tmp_path: Path
) -> None:
    grid = dataclasses.replace(make_grid(), models={"m": Other()})
    executor = Processes(1) if apart else None
    summary = run_grid(grid, Store(tmp_path), executor=executor)
    assert len(summary.failed) == summary.planned
    records, _ = Store(tmp_path).read_all([job.identity for job in summary.failed])
    assert all("Seed all generators" in record["error"] for record in records)


def leave_hook(module: nn.Module) -> None:
    module.register_forward_hook(halve)


def leave_weights(module: nn.Module) -> None:
    with torch.no_grad():
        next(module.parameters()).mul_(2)


LEFT: dict[str, Callable[[nn.Module], object]] = {
    "hooks": leave_hook,
    "weights": leave_weights,
    "mode": lambda module: module.train(),
    "requires_grad": lambda module: next(module.parameters()).requires_grad_(False),
    "answers": lambda module: setattr(module, "_temperature", 3.0),
}


@functools.cache
def measure_saliency_alone() -> list[float]:
    """What results say of saliency where no other explainer was there."""
    metric = get_metric("max_sensitivity", samples=2, neighbourhood=LinfBall(0.1))
    model = standfast.Model(Net().eval(), (0.0, 1.0), device="cpu")
    frame = standfast.evaluate(
        model, ["saliency"], INPUTS, metric, controls=False, sanity=False, progress=False
    ).frame()
    values: list[float] = frame["value"].to_list()
    return values


@pytest.mark.parametrize("what", LEFT)
def test_what_an_explainer_leaves_behind_is_undone_and_said(what: str, tmp_path: Path) -> None:
    net = Net().eval()
    model = standfast.Model(net, (0.0, 1.0), device="cpu")

    def spoil(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        LEFT[what](net)
        return x

    metric = get_metric("max_sensitivity", samples=2, neighbourhood=LinfBall(0.1))
    before = net(INPUTS)
    said = (
        contextlib.nullcontext()
        if what in ("mode", "requires_grad")
        else pytest.warns(UserWarning, match="has changed the model")
    )
    with said:  # nothing is said of what a call puts back by itself
        both = standfast.evaluate(
            model,
            {"spoil": spoil, "saliency": "saliency"},
            INPUTS,
            metric,
            out=tmp_path / "both",
            controls=False,
            sanity=False,
            progress=False,
        )
    assert torch.equal(net(INPUTS), before)
    found = both.frame()
    values = found.filter(found["explainer"] == "saliency")["value"].to_list()
    assert values == measure_saliency_alone()


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    ],
)
def test_what_an_explainer_changes_for_the_whole_process_is_undone_and_said(
    change: Callable[[], object], read: Callable[[], object]
) -> None:
    before = read()

    def spoil(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        change()
        return x

    metric = get_metric("max_sensitivity", samples=2, neighbourhood=LinfBall(0.1))
    model = standfast.Model(Net().eval(), (0.0, 1.0), device="cpu")
    with pytest.warns(UserWarning, match="'spoil' has changed torch's"):
        standfast.evaluate(
            model, {"spoil": spoil}, INPUTS, metric, controls=False, sanity=False, progress=False
        )
    assert read() == before


def test_an_explainer_that_draws_at_random_draws_the_same_in_each_run() -> None:
    def draw(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        return torch.rand_like(x) + float(np.random.rand())  # noqa: NPY002

    metric = get_metric("max_sensitivity", samples=2, neighbourhood=LinfBall(0.1))
    model = standfast.Model(Net().eval(), (0.0, 1.0), device="cpu")
    state, found = torch.get_rng_state(), []
    for _ in range(2):
        each = standfast.evaluate(
            model,
            {"draw": draw},
            INPUTS,
            metric,
            controls=False,
            sanity=False,
            progress=False,
            samples_per_job=1,
        )
        found.append(each.frame()["value"].to_list())
    assert found[0] == found[1]
    assert len(set(found[0])) == len(INPUTS)
    assert torch.equal(torch.get_rng_state(), state)


def test_answers_are_compared_where_both_have_them() -> None:
    few, many = (
        AnswerNumbers({"inputs": (1.0, 2.0)}),
        AnswerNumbers({"inputs": (1.0, 2.0, 5.0), "maps": (1.0,)}),
    )
    assert few.find_difference(few) == ""
    assert few.find_difference(many) == "maps"
    assert AnswerNumbers({"inputs": (1.0, 2.0 + 1e-6)}).find_difference(few) == ""
    assert AnswerNumbers.from_plain(many.plain) == many


def cut(
    earlier: dict[str, Any] | None = None, workers: int = 1, **options: Any
) -> list[tuple[int, int]]:
    plan = make_plan(make_grid(**options), earlier=earlier, workers=workers)
    return [(job.start, job.stop) for job in plan.jobs]


def test_a_job_gets_the_samples_of_twenty_seconds_and_keeps_them_when_a_study_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = torch.rand(30, 4)
    assert cut(inputs=many) == [(0, 30)]
    # an explanation is three passes, and there are three of them
    monkeypatch.setattr("standfast.study.plan._choose_pace", lambda *args: 20 / (10.5 * 9))
    # the same reference for rows that are added
    model = standfast.Model(Net().eval(), (0.0, 1.0), device="cpu", reference=many[:5])
    grid = make_grid(model, inputs=many[:20])
    assert [(job.start, job.stop) for job in make_plan(grid).jobs] == [(0, 10), (10, 20)]
    stored = make_plan(grid).manifest
    assert cut(workers=2, inputs=many[:20]) == [(start, start + 2) for start in range(0, 20, 2)]
    monkeypatch.setattr("standfast.study.plan._choose_pace", lambda *args: 1e3)
    assert cut(inputs=many[:3]) == [(0, 1), (1, 2), (2, 3)]
    assert cut(stored, model=model, inputs=many) == [(0, 10), (10, 20), (20, 30)]
    assert find_identities(make_grid(model, inputs=many), stored) > find_identities(grid, stored)
    assert cut(stored, model=model, inputs=many[:20], samples_per_job=15) == [(0, 15), (15, 20)]


def test_a_job_fits_in_memory_and_an_unknown_metric_gets_few_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "standfast.study.jobs._MOST_NUMBERS", 5 * 3 * 4
    )  # of five samples with three copies of four numbers
    assert cut(inputs=torch.rand(10, 4)) == [(0, 5), (5, 10)]
    monkeypatch.undo()

    class Unknown(MaxSensitivity):
        cost = Metric.cost

    assert cut(metric=Unknown(LinfBall(0.1), samples=2), inputs=torch.rand(8, 4)) == [
        (0, 4),
        (4, 8),
    ]


@pytest.mark.parametrize("explainer", ["integrated_gradients", "saliency", "smoothgrad"])
@pytest.mark.parametrize("search", ["auto", "block"])
def test_only_jobs_that_auto_searches_with_drafts_are_new(
    explainer: str, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a metric does otherwise for an explainer is a part of their jobs alone."""
    metric = get_metric("worst_case", neighbourhood=LinfBall(0.1), search=search, budget=20)
    # on a busy machine, the time would say each time anew how many samples a job has
    grid = make_grid(explainer=explainer, metric=metric, samples_per_job=2)
    identities = find_identities(grid)
    monkeypatch.setattr(type(metric), "bind", Metric.bind)
    identities_without_drafts = find_identities(grid)
    assert (identities != identities_without_drafts) == (
        explainer == "integrated_gradients" and search == "auto"
    )
