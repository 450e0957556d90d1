"""Executors do jobs: in this process, in several processes, on a Ray cluster, or on Slurm."""

from standfast.study.executors.base import Executor, JobOutcome, Limits
from standfast.study.executors.processes import InProcess, Processes, local
from standfast.study.executors.ray import Ray
from standfast.study.executors.slurm import Slurm

__all__ = ["Executor", "InProcess", "JobOutcome", "Limits", "Processes", "Ray", "Slurm", "local"]
