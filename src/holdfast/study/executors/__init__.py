"""Where jobs are done: this process, several, a Ray cluster, or Slurm."""

from holdfast.study.executors.base import Executor, Outcome
from holdfast.study.executors.processes import InProcess, Processes, local
from holdfast.study.executors.ray import Ray
from holdfast.study.executors.slurm import Slurm

__all__ = ["Executor", "InProcess", "Outcome", "Processes", "Ray", "Slurm", "local"]
