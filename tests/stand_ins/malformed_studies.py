"""Study files with something wrong: `MALFORMED` by name, each with what the error must say.

`prepare` writes the files beside them that they name.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from ruamel.yaml import YAML
from safetensors.torch import save_file
from torch import nn

MODULE = """\
import torch
from torch import nn


def load(n=4):
    return torch.rand(n, 1, 28, 28), torch.arange(n) % 10


def build(width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def broken(**options):
    raise RuntimeError("the disk\\nis on fire")


def text():
    return "no model"


def angry():
    return Angry()


class Angry(nn.Module):
    def forward(self, x):
        raise KeyError("not today")


def explain(module, inputs, targets):
    return inputs


LIMIT = 3
"""


def study(**sections: str) -> str:
    """A study that is fine but for the sections given; an empty one is left out. Sections begin at lines 1, 2, ..."""
    content = {
        "data": "{digits: digits}",
        "models": "{lenet: lenet5-mnist}",
        "samples": "2",
        "neighbourhood": "{linf: 0.1}",
        "explainers": "[saliency]",
        "metrics": "[max_sensitivity]",
        **sections,
    }
    return "".join(f"{key}: {value}\n" for key, value in content.items() if value)


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.target, "w"))


def prepare(folder: Path) -> None:
    """Write the files that the studies name into `folder`."""
    (folder / "malformed_module.py").write_text(MODULE)
    (folder / "malformed_syntax.py").write_text("def load(:\n")
    (folder / "malformed_import.py").write_text("import there_is_no_such_module\n")
    x = np.full((4, 1, 28, 28), 0.5, dtype=np.float32)
    np.savez(folder / "good.npz", inputs=x, labels=np.arange(4))
    np.savez(folder / "names.npz", pictures=x)
    np.savez(folder / "wild.npz", inputs=3 * x)
    np.savez(folder / "uneven.npz", inputs=x, labels=np.arange(3))
    np.savez(folder / "high.npz", inputs=x, labels=np.full(4, 99))
    np.save(folder / "nan.npy", np.full_like(x, np.nan))
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(folder / "whole.npy", np.ones((4, 5), dtype=np.int64))
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (folder / "broken.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{nonsens")
    (folder / "notes.txt").write_text("nothing to see")
    for name, sizes in (("uneven", (8, 9)), ("empty", ()), ("corrupt", (8,))):
        (folder / f"{name}_images").mkdir()
        for size in sizes:
            Image.new("L", (size, size)).save(folder / f"{name}_images" / f"{size}.png")
    (folder / "corrupt_images" / "bad.png").write_bytes(b"\x89PNG and no more")
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 9), nn.ReLU(), nn.Linear(9, 10))
    save_file(net.state_dict(), folder / "wide.safetensors")
    torch.save(net.state_dict(), folder / "weights.pt")
    torch.save(Evil(folder / "executed"), folder / "evil.pt")
    (folder / "evil_old.pt").write_bytes(pickle.dumps(Evil(folder / "executed")))
    program = torch.export.export(net, (torch.rand(2, 1, 28, 28),))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    (folder / "static.pt2").write_bytes(buffer.getvalue())


def _read() -> dict[str, tuple[str, str]]:
    """The studies of the file beside this one."""
    wrap = {
        "data": lambda entry: study(data=f"{{digits: digits, mine: {entry}}}"),
        "model": lambda entry: study(models=f"\n  lenet: lenet5-mnist\n  mine: {entry}"),
        "metric": lambda options: study(
            metrics=f"\n  - max_sensitivity\n  - worst_case: {options}"
        ),
        "study": lambda sections: study(**sections),
        "text": lambda text: (
            "# " + "x" * 500_000 + "\n" if text == "a comment without end" else text
        ),
    }
    entries = YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml"))
    found = {}
    for name, entry in entries.items():
        kind = next(iter(entry))
        found[name] = (wrap[kind](entry[kind]) + entry.get("then", ""), entry["says"])
    return found


#: name -> (the file, what the error must say)
MALFORMED = _read()
