"""Studies as a user runs them: stored, interrupted, killed and gone on with, from Python and from the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from quick_processes import QuickCommand
from torch import nn
from typer.testing import CliRunner

import standfast
from malformed_studies import MALFORMED, prepare
from standfast.cli import app
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report import Results, load_results
from standfast.report.sentences import describe_misfits
from standfast.results import Verification, verify_results
from standfast.study.forecast.estimate import Estimate, EstimateLine
from standfast.study.plan import Plan, make_plan
from standfast.study.progress import Progress
from standfast.study.run import GridOrigin, run_grid
from standfast.study.store import DamagedFileError, Store, pack, pack_failure

STUDY = """
title: A study of a few digits
samples: {samples}
samples_per_job: 1
data: {{digits: digits}}
models: {{lenet: lenet5-mnist}}
explainers: [saliency, gradcam]
neighbourhood: {{linf: 0.1}}
metrics:
  - worst_case: {{search: random, budget: {budget}}}
  - max_sensitivity: {{samples: 40}}
sanity: {sanity}
controls: false
executor: {{workers: {workers}}}
"""


#: so many jobs are copied into one file, which takes 50 otherwise
MANY = 12


@pytest.fixture(autouse=True, scope="module")
def compact_early() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("standfast.study.run._COMPACT_FROM", MANY)
        yield


def write_study(
    folder: Path,
    samples: int = 3,
    workers: int | str = 1,
    sanity: bool = False,
    budget: int = 20,
) -> Path:
    text = STUDY.format(samples=samples, workers=workers, sanity=str(sanity).lower(), budget=budget)
    file = folder / "digits.yaml"
    file.write_text(text)
    return file


def tiny_grid(count: int, **more: Any) -> Grid:
    torch.manual_seed(0)
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (0.0, 1.0), device="cpu", batch_size=64
    )
    inputs = torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    saliency = standfast.explainers.get("saliency")
    return Grid(
        {"x": Samples(inputs)},
        {"m": LoadedModel(model)},
        {"s": saliency},
        {"max": metric},
        samples_per_job=1,
        **more,
    )


def assert_same(found: Results, expected: Results) -> None:
    """Every number and every array, to the last bit; times are not results."""
    assert found.samples.equals(expected.samples)
    assert found.sanity_rows.equals(expected.sanity_rows)
    assert found.jobs["job"].equals(expected.jobs["job"])
    for job in expected.jobs.filter(pl.col("artefacts"))["job"]:
        ours, theirs = found.artefacts(job), expected.artefacts(job)
        assert ours.keys() == theirs.keys()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def start_from_nothing(arguments: Sequence[object], complaints: Path) -> subprocess.Popen[bytes]:
    """The command as a user starts it, in a session of its own."""
    with complaints.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "standfast.cli", *map(str, arguments)],
            stderr=file,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "STANDFAST_THREADS": "1"},
        )


#: starts the command with a file for its complaints
Start = Callable[[Sequence[object], Path], Any]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process, as starting one takes seconds: its exit code, and what it writes and complains."""
    from standfast.cli import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["standfast", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        written = capsys.readouterr()
        assert "Traceback" not in written.err
        return int(stopped.value.code or 0), written.out, written.err

    return run


def killed_and_gone_on(
    call: Callable[..., tuple[int, str, str]],
    folder: Path,
    kills: int,
    samples: int,
    seed: int,
    start: Start,
) -> None:
    """Kill a study's process `kills` times at random moments, and compare what it ends with to an unbroken run.

    The unbroken run is in this process. The last one has one worker, too, and it is another process, because a run was
    lost before it: the bits must be the same.
    """
    study = write_study(folder, samples, workers=2, sanity=True, budget=200)
    whole, broken = folder / "whole", folder / "broken"
    options = ("--no-report", "--workers", 1)
    assert call("run", study, "--out", whole, *options)[0] == 0
    dice, done = random.Random(seed), 0
    while done < kills:
        process = start(["run", study, "--out", broken, "--no-report"], folder / "complaints")
        before, began = len(Store(broken).statuses()), time.monotonic()
        if dice.random() < 0.8:  # after it has come to work; else wherever it is
            while (
                process.poll() is None
                and len(Store(broken).statuses()) == before
                and time.monotonic() - began < 60
            ):
                time.sleep(0.002)
        time.sleep(dice.uniform(0.0, 0.4))
        if process.poll() is not None:
            break
        if done % 2:
            os.killpg(process.pid, signal.SIGKILL)
        else:  # the workers are not told; they must notice by themselves
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done += 1
    assert done == kills, "the study was over before it was killed often enough"
    jobs = len(Store(whole).statuses())
    code, written, _ = call("run", study, "--out", broken, *options)
    assert code == 0
    assert f"{jobs} jobs:" in written
    assert "0 failed" in written
    assert_same(load_results(broken), load_results(whole))


@pytest.mark.usefixtures("quick_workers")
def test_a_killed_study_ends_with_the_same_bits(call: Any, tmp_path: Path) -> None:
    """By this seed after it has come to work."""
    killed_and_gone_on(call, tmp_path, kills=1, samples=6, seed=3, start=QuickCommand)


@pytest.mark.slow
def test_a_study_killed_twenty_times_ends_with_the_same_bits(call: Any, tmp_path: Path) -> None:
    killed_and_gone_on(call, tmp_path, kills=20, samples=104, seed=1, start=start_from_nothing)


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    grid, store = tiny_grid(8), Store(tmp_path / "stopped")

    def stop(progress: Progress) -> None:
        if progress.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_grid(grid, store, progress=stop)
    files = {f: f.stat().st_mtime_ns for f in (tmp_path / "stopped" / "jobs").iterdir()}
    assert len(files) == 4
    found = load_results(store)
    assert (found.planned, found.missing, found.samples.height) == (8, 4, 4)
    summary = run_grid(grid, store)
    assert (summary.planned, summary.earlier, summary.done, summary.failed) == (8, 4, 4, [])
    assert all(f.stat().st_mtime_ns == at for f, at in files.items())
    run_grid(grid, Store(tmp_path / "whole"))
    assert_same(load_results(store), load_results(tmp_path / "whole"))


def test_a_study_that_grows_keeps_what_it_has(tmp_path: Path) -> None:
    run_grid(tiny_grid(4), Store(tmp_path))
    summary = run_grid(tiny_grid(6, repeats=2), Store(tmp_path))
    assert (summary.planned, summary.earlier) == (12, 4)
    summary = run_grid(tiny_grid(2), Store(tmp_path))  # and one that shrinks shows what it asks for
    assert (summary.planned, summary.earlier, summary.done) == (2, 2, 0)
    assert load_results(tmp_path).samples.height == 2


@pytest.mark.parametrize("mixed", [False, True])
def test_failures_that_fail_otherwise_are_not_read_from_the_compacted_rows(
    tmp_path: Path, mixed: bool
) -> None:
    store = Store(tmp_path)
    jobs = [job.identity for job in make_plan(tiny_grid(MANY)).jobs]
    if mixed:
        run_grid(tiny_grid(MANY), store)
        failed = jobs[:1]
        (tmp_path / "jobs" / f"{jobs[0]}.parquet").unlink()
    else:
        store.write_manifest({"jobs": jobs})
        failed = jobs
    for error in ("Error: first", "Error: second"):
        for job in failed:
            store.put(pack_failure({"job": job, "seconds": 1.0}, error, "where"))
        store.compact(jobs)
        found = load_results(store)
        assert {each["error"] for each in found.failures} == {error}
        assert found.samples.height == len(set(found.samples["job"])) == len(jobs) - len(failed)


def test_compaction_changes_nothing_but_the_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_grid(tiny_grid(MANY), store)
    assert (tmp_path / "compact" / "jobs.parquet").exists()
    compact = load_results(store)
    for file in (tmp_path / "compact").iterdir():
        file.unlink()
    assert_same(compact, load_results(store))
    store.compact(compact.jobs["job"].to_list())
    jobs = sorted((tmp_path / "jobs").iterdir())
    for file in jobs[:-2]:
        file.write_bytes(b"not looked at any more")
    assert_same(load_results(store), compact)
    jobs[0].unlink()  # a job that is gone is not done, whatever the compacted rows say
    assert load_results(store).missing == 1


def test_any_fsspec_address_will_do(tmp_path: Path) -> None:
    address = f"memory://studies/{tmp_path.name}"
    run_grid(tiny_grid(MANY), Store(address))
    run_grid(tiny_grid(MANY), Store(tmp_path / "local"))
    assert_same(load_results(address), load_results(tmp_path / "local"))
    assert load_results(f"file://{tmp_path}/local").samples.height == MANY
    with pytest.raises(
        standfast.ArgumentError, match="address: expected a folder, or an address that fsspec knows"
    ):
        Store("noo://somewhere")
    with pytest.raises(
        standfast.ArgumentError, match="results: expected a folder with a manifest.json"
    ):
        load_results("memory://nothing/there")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with tables, arrays and compacted rows."""
    folder = tmp_path_factory.mktemp("finished")
    run_grid(grid_with_arrays(), Store(folder))
    return folder


def grid_with_arrays() -> Grid:
    metric = standfast.metrics.WorstCase(
        standfast.LinfBall(0.1), "changed_explanation", search="random", budget=4
    )
    return dataclasses.replace(tiny_grid(MANY), metrics={"m": metric})


@pytest.mark.parametrize("kind", ["manifest.json", "jobs/*", "artefacts/*", "compact/*"])
def test_no_flipped_bit_goes_unnoticed(kind: str, finished: Path, tmp_path: Path) -> None:
    """Reading gives the rows that were written, or an error that names the file; `verify` names the file, too."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    file = sorted(folder.glob(kind))[0]
    name = file.relative_to(folder).as_posix()
    store, whole, dice = Store(folder), file.read_bytes(), random.Random(0)
    before = load_results(folder)
    readers = {"jobs": store.read, "artefacts": store.read_artefacts}
    for _ in range(6 if kind.startswith("compact") else 200):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.write_bytes(content)
        if kind.startswith("compact"):  # the rows are then read from the files of the jobs
            assert_same(load_results(folder), before)
            assert store.check_files()[name]
        else:
            read = readers.get(name.partition("/")[0], lambda job: store.manifest())
            with pytest.raises(standfast.StandfastError, match=re.escape(file.name) + "|manifest"):
                read(file.name.partition(".")[0])
    assert name in verify_results(folder).damaged
    file.write_bytes(whole)
    assert verify_results(folder) == Verification(len(list(folder.rglob("*.*"))))


def test_damaged_jobs_are_done_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    before = load_results(folder)
    tables, arrays = (sorted((folder / part).iterdir()) for part in ("jobs", "artefacts"))
    tables[0].write_bytes(tables[0].read_bytes()[:-1])
    shutil.copy(tables[2], tables[1])  # a job's file under another job's name
    arrays[3].unlink()
    shutil.copy(arrays[5], arrays[4])
    names = {path.name.partition(".")[0] for path in (*tables[:2], *arrays[3:5])}
    found = verify_results(folder)
    assert {name.partition("/")[2].partition(".")[0] for name in found.damaged} == names
    with pytest.warns(UserWarning, match="damaged") as warned:
        summary = run_grid(grid_with_arrays(), Store(folder))
    said = str(warned[0].message)
    assert re.search(
        "^4 stored jobs are damaged and are done again; the first: .* is damaged \\(.*\\)$", said
    )
    assert (summary.earlier, summary.done) == (MANY - 4, 4)
    assert verify_results(folder).fine
    assert_same(load_results(folder), before)
    for path in (tables[6], arrays[7]):  # what is in a folder is not ours to remove
        path.unlink()
        path.mkdir()
        assert "directory" in verify_results(folder).damaged[path.relative_to(folder).as_posix()]
        with (
            pytest.warns(UserWarning, match="a stored job is damaged"),
            pytest.raises(standfast.StandfastError, match=f"{path.name} could not be written"),
        ):
            run_grid(grid_with_arrays(), Store(folder))
        path.rmdir()


def test_without_a_damaged_manifest_finished_jobs_are_kept(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    manifest = folder / "manifest.json"
    for content, why in (
        (b"{", "it is no JSON"),
        (manifest.read_bytes()[:-1] + b" }", "does not match its SHA-256"),
    ):
        manifest.write_bytes(content)
        with pytest.raises(
            standfast.StandfastError,
            match=f"{why}.*elete it and run the study again: finished jobs",
        ):
            run_grid(grid_with_arrays(), Store(folder))
    manifest.unlink()
    assert run_grid(grid_with_arrays(), Store(folder)).earlier == MANY
    assert verify_results(folder).fine


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"seed": 0', '"seed": 1'), "does not match its SHA-256"),
        (
            lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "seal"}),
            "not match its SHA-256",
        ),
        (lambda text: "[" * 100_000, "it is no JSON"),
        (lambda text: '{"schema": 2, "jobs": ["\\ud800"]}', "it is no JSON"),
        (lambda text: "[]", "it is no object of JSON"),
        (lambda text: '{"schema": 1}', "results: expected a manifest of schema 2, got schema 1"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(
    change: Callable[[str], str], words: str, finished: Path, tmp_path: Path
) -> None:
    manifest = (finished / "manifest.json").read_text()
    assert change(manifest) != manifest
    (tmp_path / "manifest.json").write_text(change(manifest))
    with pytest.raises(standfast.StandfastError, match=words):
        load_results(tmp_path)


def test_a_failure_gives_way_to_a_success(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(pack_failure({"job": "a", "seconds": 1.0}, "Error: x", "where"))
    assert store.statuses() == {"a": "failed"}
    record, frame = store.read("a", failed=True)
    assert (record["traceback"], frame["traceback"].to_list(), frame["status"].to_list()) == (
        "where",
        ["where"],
        ["failed"],
    )
    store.put(pack({"job": "a"}, pl.DataFrame({"sample": [0]}), {}))
    assert store.statuses() == {"a": "done"}
    store.forget("a")
    assert store.statuses() == {}


def test_a_failure_under_the_name_of_a_success_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(pack_failure({"job": "a", "seconds": 1.0}, "Error: x", "where"))
    (tmp_path / "jobs" / "a.failed.parquet").rename(tmp_path / "jobs" / "a.parquet")
    with pytest.raises(DamagedFileError, match="it is of the job a, which is failed"):
        store.read("a")
    assert list(store.find_damage(["a"])) == ["a"]


def test_a_failure_that_cannot_be_read_is_one_failed_job(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, folder := tmp_path / "copy")
    job = load_results(folder).jobs["job"][0]
    (folder / "jobs" / f"{job}.parquet").rename(folder / "jobs" / f"{job}.failed.parquet")
    found = load_results(folder)
    assert (found.missing, [each["job"] for each in found.failures]) == (0, [job])
    assert "which is done" in found.failures[0]["error"]
    assert found.samples.height == MANY - 1
    assert "failed.parquet is damaged" in found.to_html(tmp_path / "report.html").read_text()
    assert found.to_text()


def test_an_explainer_that_a_metric_cannot_evaluate_has_no_job(tmp_path: Path) -> None:
    ball = standfast.LinfBall(0.1)
    guided = standfast.metrics.get(
        "attribution_attack", neighbourhood=ball, steps=1, restarts=1, k=1
    )
    blind = dataclasses.replace(guided, attack="random_sign")
    white = standfast.metrics.get("worst_case", neighbourhood=ball, search="gradient", budget=5)
    explainers = {name: standfast.explainers.get(name) for name in ("saliency", "guided_backprop")}
    grid = dataclasses.replace(
        tiny_grid(1),
        explainers=explainers,
        metrics={"guided": guided, "blind": blind, "white": white},
    )
    summary = run_grid(grid, Store(tmp_path))
    assert (summary.planned, summary.failed) == (4, [])
    results = load_results(tmp_path)
    pairs = {
        (label, name)
        for label, name in results.samples.select("label", "explainer").unique().iter_rows()
    }
    assert pairs == {(label, "saliency") for label in grid.metrics} | {("blind", "guided_backprop")}
    why = "no results for guided_backprop: the explainer cannot be differentiated"
    assert describe_misfits(results.manifest["misfits"]) == [f"guided: {why}", f"white: {why}"]
    assert f"Left out: white: {why}." in " ".join(str(standfast.load_results(tmp_path)).split())
    # where a metric fits no explainer at all, its jobs fail and say why
    del explainers["saliency"]
    plan = make_plan(dataclasses.replace(grid, explainers=explainers, metrics={"guided": guided}))
    assert (len(plan.jobs), plan.manifest["misfits"]) == (1, {})


def test_the_manifest_says_what_where_and_with_which_versions(tmp_path: Path) -> None:
    run_grid(tiny_grid(2), Store(tmp_path), origin=GridOrigin({"title": "tiny"}))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["data"]["x"]["input_shape"] == [1, 2, 2]
    assert manifest["models"]["m"]["parameters"] == 15
    assert manifest["metrics"]["max"]["options"]["samples"] == 2
    assert manifest["environment"]["torch"] == torch.__version__
    assert manifest["environment"]["cores"] >= 1
    assert manifest["about"] == {"title": "tiny"}
    assert manifest["code"] == {}


def test_run_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path, samples=2)
    first = CliRunner().invoke(app, ["run", str(study)])
    assert first.exit_code == 0, first.output
    assert "8 jobs: 0 were done before, 8 now, 0 failed" in first.output
    assert Path("results/digits/report/index.html").exists()
    again = CliRunner().invoke(app, ["run", str(study), "--no-report"])
    assert "8 jobs: 8 were done before, 0 now, 0 failed" in again.output
    opened = load_results("results/digits")
    assert f"\n{opened}\n" in first.output  # the table and the verdict
    assert f"\n{opened}\n" in again.output
    frame = opened.samples
    assert frame.height == 8
    assert set(frame["model"]) == {"lenet"}


def test_a_dry_run_says_what_would_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    study = write_study(tmp_path, samples=3)
    result = CliRunner().invoke(app, ["run", str(study), "--dry-run"])
    assert result.exit_code == 0, result.output
    evaluations = 3 * 2 * (20 + 41)
    assert f"12 jobs, 0 of them done; about {evaluations:,} model evaluations" in result.output
    assert "worst_case" in result.output
    assert "of memory" in result.output or sys.platform != "linux"
    assert not Path("results").exists()
    CliRunner().invoke(app, ["run", str(study), "--no-report"])
    result = CliRunner().invoke(app, ["run", str(study), "--dry-run"])
    assert "12 jobs, 12 of them done; about 0 model evaluations, 0 s" in result.output


def test_a_dry_run_with_a_limit_says_what_fits_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column has the time of each metric and explainer within the limit; marks say what was not tried."""

    def make_estimate(plan: Plan, *arguments: Any, **options: Any) -> Estimate:
        places = dict.fromkeys((job.data, job.model, job.explainer, job.label) for job in plan.jobs)
        return Estimate(
            tuple(EstimateLine(*place, 3, 0, 3, 100, 60.0, basis="model") for place in places)
        )

    monkeypatch.setattr("standfast.cli.dry_runs.estimate_plan", make_estimate)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    study = write_study(tmp_path, samples=3)
    for options, has_column in (([], False), (["--minutes", "3"], True)):
        result = CliRunner().invoke(app, ["run", str(study), "--dry-run", *options])
        assert result.exit_code == 0, result.output
        assert ("in the limit" in result.output) == has_column
        assert "2.0 min b" in result.output  # two explainers by each metric
        assert "b: not tried; from the time of the model alone" in result.output
    assert "in 3 minutes: 1 of 3 samples" in result.output, result.output
    assert "40.0 s" in result.output  # a third of them


FRAGILE = """
def explain(module, x, targets):
    if x.shape[0] and float(x.sum()) >= 0:
        raise ZeroDivisionError("no explanation today")
    return x
"""


def test_failures_are_said_at_the_end_and_tried_again(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = write_study(tmp_path, samples=2)
    (tmp_path / "fragile_explainer.py").write_text(FRAGILE)
    explainers = "{grad: saliency, mine: {function: 'fragile_explainer:explain'}}"
    study.write_text(study.read_text().replace("[saliency, gradcam]", explainers))
    code, written, said = call("run", study, "--out", tmp_path / "r", "--no-report")
    assert code == 1
    assert "8 jobs: 0 were done before, 4 now, 4 failed" in written
    assert "mine failed for 2 of 2 metrics: ZeroDivisionError: no explanation today" in said
    (tmp_path / "fragile_explainer.py").write_text(FRAGILE.replace(">= 0", "< -1"))
    monkeypatch.delitem(sys.modules, "fragile_explainer", raising=False)  # as in another process
    code, written, said = call("run", study, "--out", tmp_path / "r", "--no-report")
    assert code == 0, said
    assert "8 jobs: 4 were done before, 4 now, 0 failed" in written


@pytest.mark.parametrize("moment", ["while jobs are done", "while a worker starts"])
def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(moment: str, tmp_path: Path) -> None:
    """A worker is interrupted as well; while it imports, nothing of ours runs in it that could ignore it."""
    # whose limit needs a process
    study = write_study(tmp_path, samples=20, workers="1, timeout: 600", budget=200)
    arguments = ["run", study, "--out", tmp_path / "r"]
    complaints = tmp_path / "complaints"
    process = QuickCommand(arguments, complaints, quick_workers=moment == "while jobs are done")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def has_come() -> bool:
        if moment == "while jobs are done" or not children.exists():
            return bool(Store(tmp_path / "r").statuses())
        for child in children.read_text().split():
            # it may end in the meantime
            with contextlib.suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return True
        return False

    began = time.monotonic()
    while not has_come():
        assert time.monotonic() - began < 300
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(60) == 130
    said = complaints.read_text()
    lines = [line for line in said.splitlines() if line and " elapsed" not in line]
    assert lines == [
        "interrupted; what is done is stored, and the same command continues from there"
    ]
    load_results(tmp_path / "r")


def test_two_studies_of_one_name_do_not_take_each_others_place(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_study(tmp_path / folder, samples=1)
    assert CliRunner().invoke(app, ["run", "a/digits.yaml", "--no-report"]).exit_code == 0
    code, _, said = call("run", "b/digits.yaml", "--no-report")
    assert code == 2
    assert "out: expected a folder of its own" in said
    assert str(tmp_path / "a" / "digits.yaml") in said
    again = CliRunner().invoke(app, ["run", "a/digits.yaml", "--no-report"])
    assert "4 were done before" in again.output


def test_plausible_mistakes_end_in_words(call: Any, tmp_path: Path) -> None:
    def refuse(*arguments: object) -> str:
        code, _, said = call(*arguments)
        assert code == 2
        return str(said)

    study = write_study(tmp_path, samples=1)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text('{"schema": 1, "units": []}')
    (tmp_path / "file").write_text("")
    assert "schema 1" in refuse("run", study, "--out", tmp_path / "old")
    assert (tmp_path / "old" / "manifest.json").read_text() == '{"schema": 1, "units": []}'
    assert str(tmp_path / "file") in refuse("run", study, "--out", tmp_path / "file")
    assert "workers: expected" in refuse("run", study, "--workers", "0")
    assert "executor: expected local, ray or slurm" in refuse("run", study, "--executor", "slrm")


UNGUARDED = """
import standfast
digits = standfast.data.bundled("digits")[:2]
model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
standfast.evaluate(model, ["saliency"], digits.inputs, [metric], workers=2, sanity=False, controls=False)
"""


@pytest.mark.usefixtures("quick_workers")
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    """A worker runs the script of its parent again, which would start workers before it has started itself."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    with pytest.raises(standfast.StandfastError) as raised:
        runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
    assert "a worker process ended before it could start" in str(raised.value)
    assert '`if __name__ == "__main__":`' in str(raised.value)


def test_a_dry_run_survives_an_explainer_that_fails_and_odd_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    study = write_study(tmp_path, samples=2)
    (tmp_path / "breaking_explainer.py").write_text(
        "def explain(module, x, targets):\n    raise ValueError('no')\n"
    )
    odd = "{'[/] odd [bold]': saliency, mine: {function: 'breaking_explainer:explain'}}"
    study.write_text(study.read_text().replace("[saliency, gradcam]", odd))
    result = CliRunner().invoke(app, ["run", str(study), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "[/] odd [bold]" in result.output
    said = "trials failed, and their jobs will: worst_case: changed_explanation with mine, and 1 more: ValueError: no"
    assert said in result.output


def test_a_malformed_study_is_one_screen_and_exit_code_2(call: Any, tmp_path: Path) -> None:
    """What each of them says is in `file/test_study_file.py`; this is how the command ends."""
    prepare(tmp_path)
    for name in ("open bracket", "failing model", "many at once"):
        text, expected = MALFORMED[name]
        (tmp_path / "study.yaml").write_text(text)
        code, _, said = call("run", tmp_path / "study.yaml", "--out", tmp_path / "r")
        assert code == 2
        assert said.startswith("error: ")
        assert expected in " ".join(said.split())
        assert len(said.splitlines()) <= 24
        assert not (tmp_path / "r").exists()


def test_the_schema_is_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert result.exit_code == 0
    assert "worst_case" in json.dumps(json.loads(result.output))
    CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "s.json")])
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(result.output)


class Dropping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x.flatten(1)[:, :3], 0.5, training=True)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1.0
        return x.flatten(1)[:, :3] * self.calls


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Dropping(), "two calls: forward draws random numbers"),
        (Counting(), "layers with buffers: itself"),
        (
            nn.Sequential(
                nn.Flatten(), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)
            ),
            r"statistics of the batch \(1 do so\)",
        ),
    ],
)
def test_models_that_answer_differently_are_refused(
    module: nn.Module, words: str, count: int
) -> None:
    grid = tiny_grid(count)
    models = {"m": LoadedModel(standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64))}
    with pytest.raises(standfast.ModelError, match=words):
        make_plan(dataclasses.replace(grid, models=models))
