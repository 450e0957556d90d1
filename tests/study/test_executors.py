"""Wherever jobs are done, the results are the same, also when workers are lost on the way."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from quick_processes import QuickContext, start_workers_quickly
from ray_cluster import RayCluster
from refusals import assert_refused

import standfast
from standfast.explainers import Explainer, from_callable
from standfast.metrics import Cost, LocalLipschitz, MaxSensitivity, Metric, Probe, Result, WorstCase
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report import Results, load_results
from standfast.study.executors import Executor, InProcess, Limits, Processes, Ray, Slurm
from standfast.study.executors.base import Outcomes
from standfast.study.executors.processes import local
from standfast.study.executors.slurm import SlurmTask
from standfast.study.jobs import Job
from standfast.study.plan import make_plan
from standfast.study.progress import Progress
from standfast.study.run import RunSummary, run_grid
from standfast.study.store import Store
from standfast.testing import small_net

BALL = standfast.LinfBall(0.1)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explainers without end are not waited for when the jobs are planned."""
    monkeypatch.setattr("standfast.study.answers._SECONDS", 1.0)


def fussy(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Does not explain inputs whose first pixel is black; importable, so that other processes find it."""
    if bool((x[:, 0, 0, 0] == 0).any()):
        raise ValueError("a black corner")
    return x * 2


def deadly(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Takes its process down, as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def once_deadly(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The first worker that explains dies; the file named in the environment says that it has."""
    marker = Path(os.environ["STANDFAST_TEST_MARKER"])
    if not marker.exists() and multiprocessing.current_process().name.startswith("standfast-"):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x * 2


def slow(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A batch takes longer than it is silent of its progress (`quick_progress`)."""
    time.sleep(0.01)
    return x * 2


def endless(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Does not end in a worker, whose number becomes a file in the folder that is named in the environment."""
    if multiprocessing.current_process().name.startswith("standfast-"):
        Path(os.environ["STANDFAST_TEST_MARKER"], str(os.getpid())).touch()
        time.sleep(300)
    return x * 2


def spoil(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Changes the weights in a worker."""
    if multiprocessing.parent_process() is not None:
        with torch.no_grad():
            next(module.parameters()).add_(1.0)
    return x * 2


@dataclass(frozen=True)
class Queries(Metric):
    """Asks for one copy of each sample at a time, ten times."""

    name = "queries"
    direction = "higher"

    def cost(self, classes: int | None = None) -> Cost:
        return Cost(predictions=0, explanations=11)

    def evaluate(self, call: Any) -> Result:
        probe = Probe(call, similarity="cosine")
        values = [probe.query(call.inputs).similarity for _ in range(10)]
        return Result(**probe.common_fields(self), value=values[-1])


def a_grid(
    explainers: dict[str, Explainer] | None = None, count: int = 6, repeats: int = 2
) -> Grid:
    torch.manual_seed(0)
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = 0.2 + 0.6 * torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    inputs[0, 0, 0, 0] = 0.0
    metrics: dict[str, Metric] = {
        "worst": WorstCase(BALL, budget=40),
        "max": MaxSensitivity(BALL, samples=8),
        "slope": LocalLipschitz(BALL, samples=8),
    }
    explainers = explainers or {
        "grad": standfast.explainers.get("saliency"),
        "mine": from_callable(fussy),
    }
    return Grid(
        {"noise": Samples(inputs)},
        {"net": LoadedModel(model)},
        explainers,
        metrics,
        repeats=repeats,
        samples_per_job=2,
        device="cpu",
        paths=(str(Path(__file__).parent),),
    )


def run(
    folder: Path, executor: Executor, grid: Grid | None = None, **more: Any
) -> tuple[RunSummary, Results]:
    summary = run_grid(grid or a_grid(), Store(folder), executor=executor, **more)
    return summary, load_results(folder)


def assert_same(found: Results, expected: Results) -> None:
    """Frames and arrays, to the last bit."""
    assert found.samples.equals(expected.samples)
    same = ["job", "status", "error", "start", "stop", "artefacts"]
    assert found.jobs.select(same).equals(expected.jobs.select(same))
    for job in expected.jobs.filter(pl.col("artefacts"))["job"]:
        ours, theirs = found.artefacts(job), expected.artefacts(job)
        assert ours.keys() == theirs.keys()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Results:
    summary, results = run(tmp_path_factory.mktemp("here"), InProcess())
    assert summary.planned == 2 * 3 * 2 * 3
    assert {job.explainer for job in summary.failed} == {"mine"}
    assert len(summary.failed) == 2 * 3  # one chunk, three metrics, two repeats
    return results


def test_a_worker_that_starts_from_nothing_gives_the_bits_of_this_process(tmp_path: Path) -> None:
    """The only one here that loads the libraries itself and does jobs: this takes it seconds."""
    grid = a_grid({"mine": from_callable(fussy)}, count=4, repeats=1)
    summary, results = run(tmp_path / "there", Processes(1), grid)
    assert (summary.done, len(summary.failed)) == (3, 3)
    assert_same(results, run(tmp_path / "here", InProcess(), grid)[1])


@pytest.mark.usefixtures("quick_workers")
def test_two_processes_give_the_bits_of_one(expected: Results, tmp_path: Path) -> None:
    summary, results = run(tmp_path, Processes(2))
    assert len(summary.failed) == 6
    assert_same(results, expected)
    error = "ValueError: a black corner"
    assert [each["error"] for each in results.failures] == [error] * 6
    assert all("in fussy" in trace for trace in (each["traceback"] for each in results.failures))


@pytest.fixture
def quick_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here and in workers, the share of a job is told a hundred times a second, and not twice."""
    settings = {"standfast.study.worker._SECONDS_BETWEEN_SHARES": 0.01}
    for name, value in settings.items():
        monkeypatch.setattr(name, value)
    start_workers_quickly(monkeypatch, settings)


@pytest.mark.usefixtures("quick_progress")
@pytest.mark.parametrize("make", [InProcess, partial(Processes, 1)])
def test_progress_moves_within_a_job_and_its_errors_are_no_failures(
    make: Callable[[], Executor], tmp_path: Path
) -> None:
    """Two jobs of 11 queries one after the other, each of which is a batch."""
    grid = replace(
        a_grid({"slow": from_callable(slow)}, count=2),
        metrics={"queries": Queries()},
    )
    seen: list[Progress] = []

    def tell(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == 2:
            raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        run(tmp_path, make(), grid, progress=tell)
    assert set(Store(tmp_path).statuses().values()) == {"done"}
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    within = [progress for progress in seen if 0 < progress.share < 1 and progress.share != 0.5]
    assert len(within) >= 2
    assert all(progress.current == "queries: slow" for progress in within)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize(
    ("retries", "names", "failed"),
    [(0, ["once"], ["once"]), (None, ["deadly", "once", "spoil"], ["deadly"])],
)
def test_a_job_that_loses_its_workers_is_a_failure_and_the_others_are_done(
    retries: int | None,
    names: list[str],
    failed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One explainer takes every worker down, and another one the first that it meets, which is replaced.

    A third one changes the weights that it has there, which are not those here.
    """
    monkeypatch.setenv("STANDFAST_TEST_MARKER", str(tmp_path / "died"))
    functions = {"deadly": deadly, "once": once_deadly, "spoil": spoil}
    explainers = {name: from_callable(functions[name]) for name in names}
    grid = a_grid(explainers, count=2, repeats=1)
    grid = replace(grid, metrics={"max": MaxSensitivity(BALL, samples=2)})
    source = grid.models["net"]
    assert isinstance(source, LoadedModel)
    before = [parameter.clone() for parameter in source.ready.module.parameters()]
    summary, results = run(tmp_path / "store", Processes(1, limits=Limits(retries=retries)), grid)
    assert all(map(torch.equal, source.ready.module.parameters(), before))
    assert (tmp_path / "died").exists()
    times = ", 2 times" if retries is None else ""
    assert sorted(job.explainer for job in summary.failed) == failed
    assert results.missing == 0
    for failure in results.failures:
        assert (
            failure["error"]
            == f"WorkerDied: the worker process ended with signal 9 (SIGKILL) during this job{times}"
        )
        assert "memory" in failure["traceback"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_what_cannot_be_sent_to_a_process_is_refused_with_what_to_do(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.rand(2, 4),)).module()
    exported = LoadedModel(standfast.Model(program, (0.0, 1.0), device="cpu", batch_size=2))
    saliency = {"s": standfast.explainers.get("saliency")}
    for grid in (
        a_grid({"lambda": from_callable(lambda module, x, targets: x)}),
        Grid(
            {"x": Samples(torch.rand(2, 4))},
            {"m": exported},
            saliency,
            {"max": MaxSensitivity(BALL, samples=2)},
        ),
    ):
        with pytest.raises(
            standfast.StandfastError,
            match="can be sent to another process, got .* exported program needs a study file that names its file",
        ):
            run(tmp_path, Processes(2), grid)


@pytest.mark.usefixtures("quick_workers")
def test_no_process_outlives_an_interruption(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Processes(1), progress=stop)
    assert multiprocessing.active_children() == []
    assert 3 <= len(Store(tmp_path).statuses()) < 36


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    """What stands for Ray, which need not be installed."""
    cluster = RayCluster(pytest.importorskip("cloudpickle", reason="needs cloudpickle"))
    monkeypatch.setitem(sys.modules, "ray", cluster)
    return cluster


def test_what_all_ray_workers_had_is_done_again_when_they_are_lost(
    ray: RayCluster, expected: Results, tmp_path: Path
) -> None:
    def lose(progress: Progress) -> None:
        if progress.done >= 8 and not ray.lost:
            ray.lost = {actor.node for actor in ray.actors}

    summary, results = run(tmp_path, Ray(workers=2), progress=lose)
    assert ray.lost
    assert {actor.node for actor in ray.killed} >= ray.lost
    assert len(summary.failed) == 6
    assert_same(results, expected)


def test_a_ray_worker_whose_job_takes_too_long_is_ended(ray: RayCluster, tmp_path: Path) -> None:
    ray.never_ends = lambda task: any(
        isinstance(job, Job) and job.start == 0 for job in task.arguments
    )
    executor = Ray(workers=1, limits=Limits(timeout=0.05))
    summary, results = run(tmp_path, executor, one_bad_job(fussy))
    assert (summary.done, len(summary.failed)) == (2, 1)
    error = results.failures[0]["error"]
    assert re.fullmatch(r"TimeoutError: the job ran for \d\.\d s, and the limit is 0.05 s", error)
    assert ray.actors[0] in ray.killed


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes on this computer."""
    pytest.importorskip("ray", reason="needs ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray.cluster_utils import Cluster

        quick = {
            "health_check_period_ms": 1000,
            "health_check_failure_threshold": 8,
            "health_check_initial_delay_ms": 0,
            "memory_monitor_refresh_ms": 0,  # where other processes fill the memory, Ray would start workers for ever
        }
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
        found = Cluster(initialize_head=True, head_node_args=head)
        found.add_node(num_cpus=1)
        found.wait_for_nodes()
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # ray's own
def test_a_ray_node_that_is_killed_half_way_changes_nothing(
    cluster: Any, expected: Results, tmp_path: Path
) -> None:
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    killed = threading.Event()

    def kill(progress: Progress) -> None:
        if progress.done >= 8 and not killed.is_set():
            killed.set()
            cluster.remove_node(second, allow_graceful=False)

    summary, results = run(tmp_path, Ray(cluster.address), progress=kill)
    assert killed.is_set()
    assert len(summary.failed) == 6
    assert_same(results, expected)


def in_time(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "took too long"
        time.sleep(0.05)


@pytest.fixture
def tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm tasks, which submitit pickles, are run in this process, as they take seconds to start."""
    submitit = pytest.importorskip("submitit", reason="needs submitit")
    cloudpickle = pytest.importorskip("cloudpickle", reason="needs cloudpickle")
    debug = submitit.local.debug.DebugExecutor
    submit = debug._internal_process_submissions

    def submit_pickled(executor: Any, submissions: Any) -> Any:
        return submit(executor, cloudpickle.loads(cloudpickle.dumps(submissions)))

    monkeypatch.setattr(debug, "_internal_process_submissions", submit_pickled)
    make = submitit.AutoExecutor
    monkeypatch.setattr(submitit, "AutoExecutor", lambda folder, cluster: make(folder, "debug"))


@pytest.mark.usefixtures("tasks_here")
@pytest.mark.filterwarnings("ignore")  # submitit's own
def test_slurm_tasks_share_the_jobs(tmp_path: Path) -> None:
    """Of an explainer of ours, which needs no process beside the task."""
    grid = a_grid({"grad": standfast.explainers.get("saliency")}, count=2)
    summary, results = run(tmp_path / "store", Slurm(2, tmp_path / "logs", "local"), grid)
    assert (summary.done, summary.failed) == (6, [])
    assert_same(results, run(tmp_path / "here", InProcess(), grid)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_slurm_tasks_share_the_jobs_of_functions(expected: Results, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs submitit")
    summary, results = run(tmp_path / "store", Slurm(2, tmp_path / "logs", "local"))
    assert len(summary.failed) == 6
    assert_same(results, expected)


class Nobody(Executor):
    """Leaves the jobs to others."""

    name = "nobody"

    def run(self, grid: Grid, store: Store, jobs: Any, tell: Any = None) -> Outcomes:
        yield from ()


def test_what_was_left_to_others_does_not_count_as_done(tmp_path: Path) -> None:
    summary, results = run(tmp_path, Nobody())
    assert (summary.planned, summary.done, summary.failed, results.missing) == (36, 0, [], 36)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.filterwarnings("ignore")
def test_a_preempted_slurm_task_is_requeued_as_it_is(tmp_path: Path) -> None:
    submitit = pytest.importorskip("submitit", reason="needs submitit")
    grid = a_grid(repeats=1)
    store, jobs = Store(tmp_path), make_plan(grid).jobs
    first = SlurmTask(grid, store, tuple(jobs[:4]))
    assert first() == 4
    requeued = SlurmTask(grid, store, tuple(jobs)).checkpoint()
    assert isinstance(requeued, submitit.helpers.DelayedSubmission)
    failed = sum(status == "failed" for status in store.statuses().values())
    assert requeued.function() == len(jobs) - 4 + failed
    assert len(store.statuses()) == len(jobs)


def test_executors_refuse_nonsense(tmp_path: Path) -> None:
    assert_refused(Ray, workers=[0], cpus_per_worker=[0])
    assert_refused(Slurm, tasks=[-1], cluster=["pbs"])
    assert_refused(local, workers=[0])
    assert_refused(Limits, timeout=[0, True, float("inf")], memory_gb=[-1.0], retries=[-1])
    with pytest.raises(
        standfast.ArgumentError, match="out: expected a place that all machines reach"
    ):
        run_grid(
            a_grid(), Store("memory://results"), executor=Slurm(folder=tmp_path, cluster="local")
        )


def test_one_worker_without_limits_is_this_process() -> None:
    assert isinstance(local(1), InProcess)
    assert isinstance(local(1, limits=Limits(timeout=3)), Processes)
    two = local(2, threads=3)
    assert isinstance(two, Processes)
    assert (two.workers, two.threads) == (2, 3)


def test_only_the_studys_own_modules_travel(tmp_path: Path) -> None:
    from standfast.study.executors.base import _modules_in

    here = Path(__file__).parent
    assert __name__ in {module.__name__ for module in _modules_in([str(here)])}
    # an environment beneath the study's folder is not the study's
    found = {module.__name__ for module in _modules_in([str(here.parents[1]), "/"])}
    assert not found & {"torch", "standfast", "pytest"}


def test_what_the_command_line_says_of_workers_counts(tmp_path: Path) -> None:
    from standfast.evaluation import executor_of
    from standfast.study.file.spec import study_from

    metric = {"max_sensitivity": {"neighbourhood": {"linf": 0.1}, "samples": 2}}
    parts = {
        "data": {"d": "digits"},
        "models": {"m": "lenet5-mnist"},
        "explainers": ["saliency"],
        "metrics": [metric],
    }
    study = study_from({**parts, "samples": 1})
    ray, slurm = executor_of(study, "ray", 1), executor_of(study, "slurm", 1)
    assert isinstance(ray, Ray)
    assert isinstance(slurm, Slurm)
    assert (ray.workers, slurm.tasks) == (1, 1)
    with pytest.raises(standfast.ArgumentError, match="workers"):
        executor_of(study, None, 0)
    with pytest.raises(standfast.ArgumentError, match="executor"):
        executor_of(study, "")


BESIDE = """
import sys

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no words")

def explain(module, inputs, targets):
    return inputs

def leave(module, inputs, targets):
    sys.exit(0)

def fail_oddly(module, inputs, targets):
    raise Odd

def fail_with_half_a_pair(module, inputs, targets):
    raise ValueError("half \\ud800 of a pair")
"""


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("executor", ["{workers: 1}", "{workers: 1, timeout: 600}"])
def test_functions_beside_the_study_file_and_odd_failures_in_this_process_and_another(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from standfast.cli import app

    (tmp_path / "beside_the_study.py").write_text(BESIDE)
    names = ("explain", "leave", "fail_oddly", "fail_with_half_a_pair")
    explainers = "".join(f"  - {name}: {{function: 'beside_the_study:{name}'}}\n" for name in names)
    (tmp_path / "own.yaml").write_text(
        "data: {digits: digits}\nsamples: 2\nsamples_per_job: 2\nmodels: {lenet: lenet5-mnist}\n"
        f"explainers:\n{explainers}neighbourhood: {{linf: 0.1}}\nmetrics:\n  - max_sensitivity: {{samples: 2}}\n"
        f"executor: {executor}\nsanity: false\ncontrols: false\n"
    )
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "own.yaml"), "--no-report"])
    assert ran.exit_code == 1, ran.output
    assert "4 jobs: 0 were done before, 1 now, 3 failed" in ran.output
    shared = "explain, leave, fail_oddly, fail_with_half_a_pair shared a process; --workers 2 gives each of them"
    assert (shared in ran.output) == (executor == "{workers: 1}")
    found = load_results(elsewhere / "results" / "own")
    errors = {each["explainer"]: each["error"] for each in found.failures}
    assert errors == {
        "leave": "SystemExit: 0",
        "fail_oddly": "Odd (its message cannot be shown: RuntimeError)",
        "fail_with_half_a_pair": "ValueError: half \\ud800 of a pair",
    }
    assert found.samples["explainer"].unique().to_list() == ["explain"]


def sleepy(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Does not end for inputs whose first pixel is black, and has started processes, one of them with its session."""
    if bool((x[:, 0, 0, 0] == 0).any()):
        if marker := os.environ.get("STANDFAST_TEST_MARKER"):
            code = [sys.executable, "-c", "import time; time.sleep(300)"]
            children = [subprocess.Popen(code), subprocess.Popen(code, start_new_session=True)]
            Path(marker).write_text(" ".join(str(child.pid) for child in children))
        time.sleep(300)
    return x * 2


def greedy(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Takes 1 GB for inputs whose first pixel is black, and keeps it."""
    if bool((x[:, 0, 0, 0] == 0).any()):
        _TAKEN.append(torch.ones(1000, 2**18))
        time.sleep(300)
    return x * 2


_TAKEN: list[torch.Tensor] = []


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For explainers without end, which give no answers when the jobs are planned, however long they are waited for."""
    monkeypatch.setattr("standfast.study.answers._SECONDS", 0.2)


def one_bad_job(explain: Callable[..., torch.Tensor]) -> Grid:
    """Three jobs, of which the first meets an input whose first pixel is black."""
    grid = a_grid({"mine": from_callable(explain)}, repeats=1)
    return replace(grid, metrics={"max": MaxSensitivity(BALL, samples=2)})


@pytest.mark.usefixtures("quick_workers", "little_patience")
@pytest.mark.parametrize(
    ("explain", "limits", "words"),
    [
        (
            sleepy,
            Limits(timeout=1.0),
            r"TimeoutError: the job ran for \d\.\d s, and the limit is 1 s",
        ),
        (
            greedy,
            Limits(memory_gb=1.2),
            r"MemoryError: the worker took .* GB, and the limit is 1\.2 GB",
        ),
    ],
)
def test_a_job_that_exceeds_a_limit_fails_and_the_others_are_done(
    explain: Callable[..., torch.Tensor],
    limits: Limits,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = tmp_path / "child"
    monkeypatch.setenv("STANDFAST_TEST_MARKER", str(marker))
    summary, results = run(tmp_path / "store", local(1, limits=limits), one_bad_job(explain))
    assert (summary.done, len(summary.failed)) == (2, 1)
    (error,) = (each["error"] for each in results.failures)
    assert re.fullmatch(words, error), error
    if explain is sleepy:  # the processes that the job has started are ended with it
        children = [int(number) for number in marker.read_text().split()]
        in_time(
            lambda: (
                not any(
                    map(is_running, children[: 2 if Path("/proc/self/environ").exists() else 1])
                )
            ),
            5,
        )


def is_running(process: int) -> bool:
    """Whether a process exists and is no zombie that waits for its parent."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # without /proc
        return True


def test_after_a_lost_run_the_command_line_works_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from standfast.cli import app

    chosen: list[Executor] = []

    def keep(*_: Any, executor: Executor, **__: Any) -> Any:
        chosen.append(executor)
        raise standfast.StandfastError("enough")

    (tmp_path / "s.yaml").write_text(
        "data: {d: digits}\nsamples: 1\nmodels: {m: lenet5-mnist}\nexplainers: [saliency]\n"
        "metrics:\n  - max_sensitivity: {neighbourhood: {linf: 0.1}}\n"
    )
    monkeypatch.setattr("standfast.evaluation.run_study", keep)
    for lost in (False, True):
        if lost:
            Store(tmp_path / "r").folder.write("running.json", b"")
        CliRunner().invoke(app, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "r")])
    assert [type(executor) for executor in chosen] == [InProcess, Processes]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_ends_a_job_that_takes_too_long(cluster: Any, tmp_path: Path) -> None:
    ray = Ray(cluster.address, workers=1, limits=Limits(timeout=2.0, memory_gb=0.1))
    summary, results = run(tmp_path, ray, one_bad_job(sleepy))
    assert (summary.done, len(summary.failed)) == (2, 1)
    assert re.fullmatch(
        r"TimeoutError: the job ran for \d\.\d s, and the limit is 2 s",
        results.failures[0]["error"],
    )


@pytest.mark.usefixtures("quick_workers", "little_patience")
def test_a_task_of_slurm_ends_a_job_that_takes_too_long(tmp_path: Path) -> None:
    """What a task does, in this process."""
    pytest.importorskip("cloudpickle", reason="needs cloudpickle")
    grid, store = one_bad_job(sleepy), Store(tmp_path)
    jobs = make_plan(grid).jobs
    task = SlurmTask(grid, store, tuple(jobs), Limits(timeout=1.0, memory_gb=6.0))
    assert task() == 3
    statuses = [store.statuses()[job.identity] for job in jobs]
    assert statuses == ["failed", "done", "done"]
    record, _ = store.read(jobs[0].identity, failed=True)
    assert "the limit is 1 s" in record["error"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_slurm_ends_a_job_that_takes_too_long(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs submitit")
    slurm = Slurm(1, tmp_path / "logs", "local", limits=Limits(timeout=2.0, memory_gb=6.0))
    assert slurm.options == {"mem_gb": 7.0}
    summary, results = run(tmp_path / "store", slurm, one_bad_job(sleepy))
    assert (summary.done, len(summary.failed)) == (2, 1)
    assert "the limit is 2 s" in results.failures[0]["error"]


def do_endless_jobs(folder: str) -> None:
    """What the process does that gets SIGTERM."""
    with pytest.MonkeyPatch.context() as patch:
        start_workers_quickly(patch)
        run(Path(folder), Processes(2), a_grid({"endless": from_callable(endless)}))


def test_sigterm_leaves_no_worker_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How workers end that have not loaded their libraries yet is seen in a slow test."""
    (numbers := tmp_path / "numbers").mkdir()
    monkeypatch.setenv("STANDFAST_TEST_MARKER", str(numbers))
    process = QuickContext().Process(do_endless_jobs, (str(tmp_path / "results"),), "study")
    process.start()
    in_time(lambda: len(list(numbers.iterdir())) == 2)
    process.terminate()
    process.join(30)
    assert process.exitcode == -signal.SIGTERM
    workers = [int(file.name) for file in numbers.iterdir()]
    in_time(lambda: not any(map(is_running, workers)), 20)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_sigterm_while_workers_start_leaves_none_behind(tmp_path: Path) -> None:
    def find_processes() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(entry.name)
        return found

    mark = f"STANDFAST_TEST_MARK={tmp_path.name}".encode()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "if __name__ == '__main__':\n"
        "    from test_executors import Processes, a_grid, run\n"
        "    run(sys.argv[2], Processes(2), a_grid(count=40))\n"
    )
    (tmp_path / "script.py").write_text(code)
    command = [
        sys.executable,
        tmp_path / "script.py",
        str(Path(__file__).parent),
        str(tmp_path / "results"),
    ]
    folders = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "STANDFAST_TEST_MARK": tmp_path.name, "PYTHONPATH": folders}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    # the workers have begun to start
    in_time(lambda: len(find_processes()) >= 3 or process.poll() is not None)
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    # workers that were still loading their libraries notice when they have
    in_time(lambda: not find_processes())
