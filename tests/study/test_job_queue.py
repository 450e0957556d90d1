"""Which worker gets which job: an isolated explainer shares its workers with no other, and few workers are needed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from standfast.errors import StandfastError
from standfast.study.executors.base import UNLIMITED, Crew, CrewMember, Lost, Said
from standfast.study.executors.job_queue import JobQueue
from standfast.study.executors.ray import _Actor, _RayCrew
from standfast.study.jobs import Job
from standfast.study.store import JobFiles, Store


def make_jobs(counts: dict[str, int]) -> list[Job]:
    """So many jobs of each explainer."""
    names = [name for name, count in counts.items() for _ in range(count)]
    return [
        Job(f"{name}{number}", "d", "m", name, "metric", 0, 0, 1, 1.0)
        for number, name in enumerate(names)
    ]


@dataclass(eq=False)
class Pretended(CrewMember):
    """A worker that only notes its jobs."""

    history: list[str] = field(default_factory=list)
    stopped: bool = False

    def assign(self, job: Job) -> None:
        assert not self.stopped
        self.history.append(job.explainer)

    def stop(self, patience: float = 0.0) -> None:
        self.stopped = True


class PretendedCrew(Crew[Pretended]):
    """Workers that start, end jobs and die in a random order."""

    def __init__(
        self, isolated: tuple[str, ...], size: int, seed: int, deaths: int, folder: Path
    ) -> None:
        grid: Any = SimpleNamespace(isolated=isolated)
        super().__init__(grid, Store(folder), size, deaths + 2, UNLIMITED)
        self.random, self.deaths = random.Random(seed), deaths
        self.everybody: list[Pretended] = []

    def start(self, number: int) -> None:
        worker = Pretended(number)
        self.members.append(worker)
        self.everybody.append(worker)

    def poll(self, seconds: float | None) -> list[tuple[Pretended, Said]]:
        waiting = [member for member in self.members if not member.ready or member.job]
        assert waiting, "nobody works, and jobs wait"
        assert len(self.members) <= self.size
        member = self.random.choice(waiting)
        if member.job is None:
            return [(member, None)]
        if self.deaths and self.random.random() < 0.3:
            self.deaths -= 1
            return [(member, Lost("it died"))]
        return [(member, JobFiles(member.job.identity, failed=False, table=b""))]


@pytest.mark.parametrize("seed", range(60))
def test_no_worker_of_an_isolated_explainer_does_a_job_of_another(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    names = ["saliency", "lrp", "a", "b", "c"]
    jobs = make_jobs({name: chance.randrange(6) for name in names} | {"a": 3})
    chance.shuffle(jobs)
    size = chance.randrange(1, 5)
    isolated = ("a", "b", "c")
    crew = PretendedCrew(isolated, size, seed, chance.randrange(3), tmp_path)
    done = [outcome.job.identity for outcome in crew.serve(jobs)]
    assert sorted(done) == sorted(job.identity for job in jobs)
    for worker in crew.everybody:
        assert worker.stopped
        owners = [name for name in worker.history if name in isolated]
        assert len(set(owners)) <= 1
        if owners:  # whatever it did before, from then on it belongs to that explainer
            assert set(worker.history[worker.history.index(owners[0]) :]) == {owners[0]}


@pytest.mark.parametrize(("size", "most"), [(1, 3), (2, 4), (4, 8)])
def test_few_workers_are_started(size: int, most: int, tmp_path: Path) -> None:
    """One for each isolated explainer, the first of which have done others, and some that help at the end."""
    jobs = make_jobs({"saliency": 20, "a": 10, "b": 10, "c": 10})
    crew = PretendedCrew(("a", "b", "c"), size, 0, 0, tmp_path)
    assert len(list(crew.serve(jobs))) == len(jobs)
    assert len(crew.everybody) <= most


class NobodyStarts(PretendedCrew):
    """Workers that are lost before they are ready, but for some of the first."""

    ready = 0

    def poll(self, seconds: float | None) -> list[tuple[Pretended, Said]]:
        if self.ready:
            self.ready -= 1
            return super().poll(seconds)
        return [(self.members[0], Lost("it died", "no memory"))]


@pytest.mark.parametrize("ready", [0, 2])
def test_workers_that_never_start_end_the_run(ready: int, tmp_path: Path) -> None:
    crew = NobodyStarts((), 2, 0, 0, tmp_path)
    crew.ready = ready
    with pytest.raises(
        StandfastError, match=r"6 in a row were lost before they could start.*it died \(no memory\)"
    ):
        list(crew.serve(make_jobs({"saliency": 9})))
    assert all(worker.stopped for worker in crew.everybody)


def test_ray_says_when_no_worker_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("standfast.study.executors.ray._SECONDS_OF_SILENCE", 0.0)
    crew = object.__new__(_RayCrew)
    crew.ray = SimpleNamespace(wait=lambda waiting, **_: ([], waiting))
    crew.members, crew.last_words = [_Actor(0, crew.ray, None, awaited="a reference")], 0.0
    assert crew.poll(None) == []
    assert "no worker has started" in caplog.text
    caplog.clear()
    (crew.members[0].job,) = make_jobs({"saliency": 1})
    assert crew.poll(None) == []
    assert not caplog.text  # a job may take long


@pytest.mark.parametrize("seed", range(5))
def test_without_isolated_explainers_workers_are_kept_and_jobs_are_in_order(
    seed: int, tmp_path: Path
) -> None:
    jobs = make_jobs({"saliency": 10, "lrp": 10})
    crew = PretendedCrew((), 2, seed, 0, tmp_path)
    list(crew.serve(jobs))
    assert len(crew.everybody) == 2
    queue = JobQueue(())
    queue.add(jobs)
    taken = [queue.take(None, ()) for _ in jobs]
    assert taken == jobs
    assert (queue.take(None, ()), len(queue)) == (None, 0)


def test_a_job_that_lost_its_worker_comes_first() -> None:
    first, second, own = make_jobs({"saliency": 2, "mine": 1})
    queue = JobQueue(("mine",))
    queue.add([own, first, second])
    assert queue.take(None, ()) is first
    queue.put_back(first)
    assert queue.take("mine", ()) is own
    assert queue.take("mine", ()) is None  # though jobs of others wait
    assert len(queue) == 2
    assert queue.take(None, ("mine",)) is first


class OneSlot(PretendedCrew):
    """A cluster with room for one worker: the others start when its place is free."""

    def poll(self, seconds: float | None) -> list[tuple[Pretended, Said]]:
        running = [member for member in self.members if member.ready]
        if not running:
            return [(self.members[0], None)]
        working = [member for member in running if member.job is not None]
        assert working, "the only worker that runs does nothing, and the others wait for its place"
        job = working[0].job
        assert job is not None
        return [(working[0], JobFiles(job.identity, failed=False, table=b""))]


@pytest.mark.parametrize("size", [2, 4])
def test_a_spent_worker_gives_its_place_to_those_that_wait_for_it(
    size: int, tmp_path: Path
) -> None:
    jobs = make_jobs({"saliency": 1, "a": 3, "b": 3})
    crew = OneSlot(("a", "b"), size, 0, 0, tmp_path)
    done = [outcome.job.identity for outcome in crew.serve(jobs)]
    assert sorted(done) == sorted(job.identity for job in jobs)
