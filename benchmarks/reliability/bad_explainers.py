"""Let explainers that do everything wrong into one study, and count what becomes of them and of the others.

    python benchmarks/reliability/bad_explainers.py

Each bad explainer is the gradient with one fault. "Failed" means that its jobs are recorded as failed, and "same" that
its numbers are those of the gradient: what it left behind was undone, or did no harm. "Other numbers" are those of a
map that may be meant so, such as a constant one. The good explainers beside them must have the numbers that they have
alone, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

import standfast
from standfast.study.executors import Limits, Processes

#: the body of a function of (module, x, y, g), where g is the gradient; what it returns is the map
FAULTS = {
    "nothing": "return None",
    "text": "return 'a map'",
    "list": "return g.tolist()",
    "numpy": "return g.numpy()",
    "tuple": "return g, g",
    "a function": "return lambda: g",
    "one number": "return g.sum()",
    "one number a sample": "return g.flatten(1).sum(1)",
    "of one sample": "return g[:1].expand(len(g) + 1, -1, -1, -1)",
    "transposed": "return g.movedim(0, -1)",
    "empty": "return g[:0]",
    "larger": "return torch.nn.functional.pad(g, (1, 1, 1, 1))",
    "whole numbers": "return g.mul(100).long()",
    "complex": "return g + 1j",
    "truth values": "return g > 0",
    "sparse": "return g.to_sparse()",
    "on no device": "return g.to('meta')",
    "NaN": "return g * math.nan",
    "infinite": "return g / 0",
    "constant": "return torch.ones_like(g)",
    "another each time": "return torch.rand_like(g)",
    "ValueError": "raise ValueError('no')",
    "KeyError": "return {}['map']",
    "MemoryError": "raise MemoryError",
    "RecursionError": "return explain(module, x, y)",
    "StopIteration": "raise StopIteration",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "a name of its own": "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})",
    "an error of megabytes": "raise ValueError('x' * 30_000_000)",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "segmentation fault": "ctypes.string_at(0)",
    "no end": "time.sleep(1e6)",
    "no end, and no interruption": "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause(); signal.pause()",
    "memory": "return torch.cat([torch.ones(2**29) for _ in range(64)])",
    "a process left": "subprocess.Popen(['sleep', '300']); return g",
    "a thread left": "threading.Thread(target=time.sleep, args=(300,)).start(); return g",
    "no standard output": "os.close(1); os.close(2); return g",
    "another folder": "os.chdir('/'); return g",
    "no gradients any more": "torch.set_grad_enabled(False); return g",
    "float64 by default": "torch.set_default_dtype(torch.float64); return g",
    "inputs changed": "x.detach().zero_(); return g",
    "targets changed": "y.zero_(); return g",
    "hooks left": "module.register_forward_hook(lambda m, a, out: 2 * out); return g",
    "mode changed": "module.train(); return g",
    "weights changed": "next(module.parameters()).data.mul_(1.5); return g",
    "weights frozen": "module.requires_grad_(False); return g",
    "type changed": "module.double(); return g",
    "layer replaced": "setattr(module, list(dict(module.named_children()))[-1], torch.nn.Identity()); return g",
    "method patched": "f = module.forward; module.forward = lambda x: 2 * f(x); return g",
    "generators seeded": "torch.manual_seed(0); random.seed(0); return g",
}
HEAD = """import ctypes, math, os, random, signal, subprocess, sys, threading, time
import torch

def take_gradient(module, x, y):
    x = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(module(x).gather(1, y[:, None]).sum(), x)
    return g
"""
GOOD = ("saliency", "input_x_gradient", "gradcam")


def write_module(folder: Path) -> dict[str, str]:
    """The file of the bad explainers; the name of each one's function."""
    names = {fault: re.sub(r"\W+", "_", f"bad_{fault}") for fault in ("none", *FAULTS)}
    functions = []
    for fault, body in {"none": "return g", **FAULTS}.items():
        lines = (
            f"def {names[fault]}(module, x, y):",
            f"explain = {names[fault]}",
            "g = take_gradient(module, x, y)",
            body,
        )
        functions.append("\n    ".join(lines) + "\n")
    (folder / "bad_explainers.py").write_text("\n\n".join([HEAD, *functions]))
    return names


def run(folder: Path, explainers: list[Any]) -> standfast.Results:
    """A study of a few digits in two processes."""
    study = {
        "data": ["digits"],
        "samples": 4,
        "models": ["lenet5-mnist"],
        "explainers": explainers,
        "neighbourhood": {"linf": 0.1},
        "metrics": [{"max_sensitivity": {"samples": 4}}],
        "sanity": False,
        "controls": False,
    }
    file = folder / "study.yaml"
    file.write_text(json.dumps(study))
    limits = Limits(timeout=20, memory_gb=3)
    return standfast.run_study(
        file, out=folder / f"results-{len(explainers)}", executor=Processes(2, limits=limits)
    )


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        functions = write_module(folder)
        alone = run(folder, list(GOOD)).samples
        bad = [
            {fault: {"function": f"bad_explainers:{function}"}}
            for fault, function in functions.items()
        ]
        found = run(folder, [*bad, *GOOD])
        together = found.samples.filter(pl.col("explainer").is_in(GOOD))
        columns = ["explainer", "sample", "value"]
        fine = alone.sort(columns).select(columns).equals(together.sort(columns).select(columns))
        print(f"good explainers: {'the same bits as alone' if fine else 'OTHER NUMBERS'}")
        failed = {
            str(failure["explainer"]): str(failure["error"]).partition("\n")[0][:90]
            for failure in found.failures
        }
        values = {
            each: found.samples.filter(explainer=each)["value"].to_list() for each in functions
        }
        counts: Counter[str] = Counter()
        for fault in FAULTS:
            what = (
                "failed"
                if fault in failed
                else "same"
                if values[fault] == values["none"]
                else "other numbers"
            )
            what = what if fault in failed or values[fault] else "LOST"
            counts[what] += 1
            print(f"{what:14} {fault:26} {failed.get(fault, '')}")
        print(
            f"{len(FAULTS)} faults: "
            + ", ".join(f"{count} {what}" for what, count in counts.items())
        )


if __name__ == "__main__":
    main()
