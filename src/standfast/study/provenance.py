"""Versions, machine and git revision: what a manifest records about how its numbers were made."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from standfast.errors import find_version
from standfast.tensors import available_cpus

_PACKAGES = (
    *("captum", "numpy", "scipy", "polars", "safetensors", "quantus", "ray", "submitit"),
    *("shap", "lime", "scikit-learn", "lightgbm", "xgboost", "catboost"),
)


def environment(folder: Path | None = None) -> dict[str, Any]:
    """Versions, hardware, and the git revision of `folder` (by default, the current folder)."""
    cuda = torch.cuda.is_available()
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "standfast": find_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "packages": _find_packages(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _processor(),
        "cores": available_cpus(),
        "gpu": gpus if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "git": git_revision(folder or Path()),
    }


def _find_packages() -> dict[str, str]:
    """The names and versions of those packages that are installed."""
    versions = {name: find_version(name) for name in _PACKAGES}
    return {name: version for name, version in versions.items() if version}


def git_revision(folder: Path) -> str | None:
    """The revision that is checked out in `folder`, followed by `+changes` if files differ; None without git."""
    if not _may_be_checkout(folder):
        return None
    command = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        # 40 digits, however short git would make them
        "--abbrev=40",
        # the revision itself, and no tag near it
        "--exclude=*",
        "--dirty=+changes",
    ]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        # without git, outside of a checkout, or on a disk that is too slow: the study goes on
        return None


def _may_be_checkout(folder: Path) -> bool:
    """Whether git could find a checkout from a folder on: to ask it takes longer than to look."""
    if "GIT_DIR" in os.environ:
        return True
    inner = folder.resolve()
    return any((outer / ".git").exists() for outer in (inner, *inner.parents))


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None
    )
