"""Executors do jobs: in this process, in several processes, on a Ray cluster, or on Slurm."""

from holdfast.study.executors.base import Executor, JobOutcome, Limits
from holdfast.study.executors.processes import InProcess, Processes, local
from holdfast.study.executors.ray import Ray
from holdfast.study.executors.slurm import Slurm

__all__ = ["Executor", "InProcess", "JobOutcome", "Limits", "Processes", "Ray", "Slurm", "local"]
