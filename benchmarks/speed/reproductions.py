"""What the reproductions at full scale would cost here, or what they lack.

    python benchmarks/speed/reproductions.py [NAME ...]

Every study is read, and planned with its data and models. Its hours are the planned work (forward passes of one input,
by the options alone: `Job.work`) over the rate at which its models forward 64 inputs with one thread, in CPU time. So
they are rough: probabilities of frequent events take fewer evaluations than planned, and what is not the model is left
out.
`python -m papers.PAPER NAME --scale full --dry-run` tries out every metric instead: minutes for each study.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from standfast.errors import StandfastError
from standfast.question.grid import ModelSource, Samples
from standfast.study.file.spec import study_from
from standfast.study.meeting import inputs_for
from standfast.study.plan import make_plan

# a clone has papers/ beside this folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.base import reproductions
from papers.command import load_tables
from papers.files import PREFIXES

ROWS = 64


def measure_row(samples: Samples, source: ModelSource) -> float:
    """CPU seconds of a forward pass of one input, in batches of 64."""
    model = source.model(samples, "cpu")
    inputs, _ = inputs_for(model, samples)
    batch = inputs[:1].expand(ROWS, *inputs.shape[1:]).contiguous()
    with model.session(), torch.no_grad():
        model.forward(batch[:16])
        began = time.process_time()
        model.forward(batch)
        return (time.process_time() - began) / ROWS


def main() -> None:
    """Print a row for each study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[])
    load_tables(*PREFIXES)
    names = parser.parse_args().names or reproductions.names()
    torch.set_num_threads(1)
    print("| study | of | jobs | million passes | hours of one thread | what is missing |")
    print("| --- | --- | ---: | ---: | ---: | --- |", flush=True)
    users: dict[str, list[str]] = {}
    for name in names:
        for part in reproductions[name].parts:
            users.setdefault(part.name, []).append(name)
    for part_name, using in users.items():
        part = next(part for part in reproductions[using[0]].parts if part.name == part_name)
        about = f"| {part_name} | {', '.join(using)} |"
        if part.study is None:
            print(f"{about} | | | a measurement, no study |", flush=True)
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                plan = make_plan(study_from(part.study("full"), Path(folder)).grid())
        except StandfastError as error:
            text = " ".join(str(error).split())
            print(f"{about} | | | {text[:300]} |", flush=True)
            continue
        work: Counter[tuple[str, str]] = Counter()
        for job in plan.jobs:
            work[job.data, job.model] += job.work  # type: ignore[assignment]
        grid = plan.grid
        seconds = sum(
            n * measure_row(grid.data[data], grid.models[model])
            for (data, model), n in work.items()
        )
        passes = sum(work.values()) / 1e6
        print(f"{about} {len(plan.jobs):,} | {passes:,.1f} | {seconds / 3600:,.1f} | |", flush=True)


if __name__ == "__main__":
    main()
