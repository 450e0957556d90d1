"""Tasks in several processes that share one device, until the time is over."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

#: a section and a name
Task = tuple[str, str]
#: what was found; with `"last"`, the process must not do another task
Record = dict[str, Any]


def run_tasks(
    do: Callable[[Task], Record], tasks: Sequence[Task], processes: int, seconds: float
) -> Iterator[tuple[Task, Record | None]]:
    """Do the tasks, roughly in this order, and yield each when it is done; None for those that were not finished.

    A process that dies, or whose record says so, is replaced: some errors of a card cannot be left behind.

    Args:
        do: a function of a module, so that it can be sent to another process.
        tasks: what is done.
        processes: how many processes.
        seconds: after which all processes are killed.
    """
    end, waiting = time.monotonic() + seconds, deque(tasks)
    workers = [_Worker(do) for _ in range(min(processes, len(tasks)))]
    try:
        for worker in workers:
            worker.give(waiting)
        while busy := {worker.connection: worker for worker in workers if worker.task is not None}:
            ready = wait(list(busy), max(0.0, end - time.monotonic()))
            if not ready:  # the time is over
                break
            for connection in ready:
                worker = busy[connection]  # type: ignore[index]
                task, record = worker.take()
                yield task, record
                if record.get("last"):
                    worker.process.kill()
                    workers.remove(worker)
                    worker = _Worker(do)
                    workers.append(worker)
                worker.give(waiting)
        for task in [*(worker.task for worker in workers if worker.task is not None), *waiting]:
            yield task, None
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


class _Worker:
    """A process, the connection to it, and the task that it has."""

    def __init__(self, do: Callable[[Task], Record]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, do))
        self.process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, waiting: deque[Task]) -> None:
        self.task = waiting.popleft() if waiting else None
        if self.task is not None:
            self.connection.send(self.task)

    def take(self) -> tuple[Task, Record]:
        assert self.task is not None
        try:
            record: Record = self.connection.recv()
        except (EOFError, OSError):
            record = {"problems": ["the process died"], "last": True}
        return self.task, record


def _serve(connection: Connection, do: Callable[[Task], Record]) -> None:
    try:
        while True:
            connection.send(do(connection.recv()))
    except (EOFError, OSError):  # nobody is there any more
        return
