"""`JobQueue`: the jobs that wait for workers. An isolated explainer shares its workers with no other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from standfast.study.jobs import Job

#: the explainer to which a worker belongs; None for all that are not isolated, which share workers
Owner = str | None


class JobQueue:
    """Jobs that wait for a worker, in order; those of each isolated explainer by themselves.

    A new worker costs some seconds, so few are needed: jobs of explainers that are not isolated come first, and then
    each worker stays with one explainer, and helps another worker with its own only when nothing else is left.

    Args:
        isolated: the names of explainers whose workers do no other jobs.
    """

    def __init__(self, isolated: Collection[str]) -> None:
        self.isolated = frozenset(isolated)
        self.waiting: dict[Owner, deque[Job]] = {None: deque()}

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def find_owner(self, job: Job) -> Owner:
        """The explainer to which a worker belongs as soon as it has done this job."""
        if job.explainer in self.isolated:
            return job.explainer
        return None

    def add(self, jobs: Sequence[Job]) -> None:
        """Put jobs at the end."""
        for job in jobs:
            self.waiting.setdefault(self.find_owner(job), deque()).append(job)

    def put_back(self, job: Job) -> None:
        """Put a job at the beginning that was taken before."""
        self.waiting[self.find_owner(job)].appendleft(job)

    def count_beyond(self, working: Mapping[Owner, int]) -> int:
        """How many jobs wait beyond the next one of each worker that has a job now.

        Args:
            working: how many such workers belong to each explainer.
        """
        return sum(
            max(0, len(jobs) - working.get(owner, 0)) for owner, jobs in self.waiting.items()
        )

    def take(self, owner: Owner, busy: Collection[Owner]) -> Job | None:
        """The next job for a worker, which waits no more; None if it may do none of those that wait.

        Args:
            owner: the explainer to which the worker belongs.
            busy: those to which the other workers belong.
        """
        if owner is None:
            allowed = list(self.waiting)
        else:
            allowed = [owner]
        offered = [name for name in allowed if self.waiting[name]]
        if not offered:
            return None
        # without another worker of that explainer, so that each stays with one as long as there is enough to do
        alone = [name for name in offered if name is None or name not in busy]
        if alone:
            chosen = alone[0]
        else:
            # the longest queue needs help most
            chosen = max(offered, key=lambda name: len(self.waiting[name]))
        return self.waiting[chosen].popleft()
