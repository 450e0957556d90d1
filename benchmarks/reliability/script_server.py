"""Run the scripts of `study_changes.py`, each in a copy of this process, in which the packages are imported already.

It reads one request in a line of JSON, `{"folder", "script", "environment"}`, and answers in one line what the script
has left in `found`. A copy knows no module of the user's but those that the script imports: so this file imports
nothing of the benchmark.
"""

from __future__ import annotations

import contextlib
import json
import locale
import os
import runpy
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import torch

#: what most scripts import, so that each takes a second and not ten
PACKAGES = (
    "pandas",
    "sklearn.compose",
    "sklearn.ensemble",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "shap",
    "tokenizers",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "standfast.evaluation",
    "standfast.study.file.spec",
    "standfast.report",
)


def read_results(found: Any) -> dict[str, Any]:
    """How many jobs were there before, how many there are, and all values."""
    columns = [
        name for name in ("explainer", "label", "repeat", "sample") if name in found.samples.columns
    ]
    samples = found.samples.sort(columns)
    return {
        "planned": found.run.planned,
        "earlier": found.run.earlier,
        "failures": [str(failure.get("error") or failure)[-300:] for failure in found.failures[:1]],
        "values": [repr(value) for value in samples["value"].to_list()],
        "statuses": sorted(set(samples["status"].to_list())),
    }


def run_here(request: dict[str, Any]) -> dict[str, Any]:
    """Run a script as Python would, in this process."""
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    if "LC_ALL" in request["environment"]:
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, "")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.path.insert(0, request["folder"])
    sys.argv = [request["script"]]
    left = runpy.run_path(request["script"], run_name="__main__")
    return read_results(left["found"]) if "found" in left else {}


def run_in_copy(request: dict[str, Any]) -> dict[str, Any]:
    """What a script has left, or the error that it ended with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer: dict[str, Any]
        try:
            os.close(read)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            answer = run_here(request)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        with os.fdopen(write, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    said: dict[str, Any] = json.loads(text) if text else {"error": "it ended without an answer"}
    return said


def main() -> None:
    """Answer requests until there are none."""
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    del sys.path[0]  # the folder of this file
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            import_module(name)
    # it remembers which packages are installed ones
    import_module("standfast.study.own_code").read_own_modules()
    for line in sys.stdin:
        print(json.dumps(run_in_copy(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
