"""Models that a study file names: programs and files of code that are replaced, options, and builders that draw."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from standfast.study.file.spec import load_study
from standfast.study.plan import make_plan

STUDY = """
seed: 0
samples: 2
device: cpu
samples_per_job: 2
data: {digits: digits}
models: {m: MODEL}
explainers: [saliency]
metrics: [{max_sensitivity: {samples: 3, neighbourhood: {linf: 0.1}}}]
"""


def write_study(folder: Path, model: str) -> None:
    (folder / "study.yaml").write_text(STUDY.replace("MODEL", model))


def list_identities(folder: Path) -> set[str]:
    """The identities of the jobs of a study, as a new process would find them."""
    for name in ("net_of_study", "plug_of_study"):
        sys.modules.pop(name, None)
    return {job.identity for job in make_plan(load_study(folder / "study.yaml").grid()).jobs}


class Scaled(nn.Module):
    """A factor that is neither a parameter nor a buffer."""

    def __init__(self, factor: float | Tensor) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.factor = nn.Linear(784, 10), factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(1)) * self.factor)


def script(factor: float) -> torch.jit.ScriptModule:
    return torch.jit.script(Scaled(factor).eval())


def trace(factor: float) -> torch.jit.ScriptModule:
    constant = torch.full((10,), factor)
    return torch.jit.trace(Scaled(constant).eval(), torch.rand(2, 1, 28, 28))  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("make", [script, trace])
def test_a_program_with_another_constant(make: type, tmp_path: Path) -> None:
    """Of TorchScript, in which constants are no weights, and are not in the text of its code either."""
    write_study(tmp_path, "{path: m.pt}")
    make(1.0).save(tmp_path / "m.pt")
    before = list_identities(tmp_path)
    assert list_identities(tmp_path) == before
    make(20.0).save(tmp_path / "m.pt")
    assert not list_identities(tmp_path) & before


NETWORK = """
import importlib, os, torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "".join(["plug", "_of_study"])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(784, 10)

    def forward(self, x):
        factor = importlib.import_module(NAME).FACTOR * float(open(os.path.join(HERE, "data", "factor.txt")).read())
        return torch.tanh(self.layer(x.flatten(1)) * factor)

def build():
    return Net()
"""


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_code_and_data_that_are_found_by_computed_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they change is seen in the answers."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "data").mkdir()
    files = {
        "net_of_study.py": NETWORK,
        "plug_of_study.py": "FACTOR = 1.0\n",
        "data/factor.txt": "1.0",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    write_study(tmp_path, '{function: "net_of_study:build"}')
    before = list_identities(tmp_path)
    assert list_identities(tmp_path) == before
    (tmp_path / "plug_of_study.py").write_text("FACTOR = 20.0\n")
    with_other_code = list_identities(tmp_path)
    assert not with_other_code & before
    (tmp_path / "data" / "factor.txt").write_text("10.0")
    assert not list_identities(tmp_path) & (with_other_code | before)


PRIVATE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, temperature=1.0):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(784, 10)
        self._temperature = temperature

    def forward(self, x):
        return torch.tanh(self.layer(x.flatten(1)) * self._temperature)

def build(temperature=1.0):
    return Net(temperature)
"""


def test_an_option_that_a_model_keeps_in_a_private_attribute(tmp_path: Path) -> None:
    (tmp_path / "net_of_study.py").write_text(PRIVATE)
    identities = []
    for temperature in ("1.0", "1.0", "20.0"):
        write_study(
            tmp_path, f'{{function: "net_of_study:build", options: {{temperature: {temperature}}}}}'
        )
        identities.append(list_identities(tmp_path))
    assert identities[0] == identities[1]
    assert not identities[1] & identities[2]


DRAWN = """
import random
import numpy as np, torch
from torch import nn

def build():
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Tanh())
    module[1].weight.data = torch.from_numpy(np.random.normal(size=(10, 784)) * 0.05).float()
    module[1].bias.data.fill_(random.random())
    return module
"""


def test_a_builder_that_draws_its_weights_draws_the_same_everywhere(tmp_path: Path) -> None:
    """From NumPy's and Python's generators, so that the plan and each worker have the same model."""
    (tmp_path / "net_of_study.py").write_text(DRAWN)
    write_study(tmp_path, '{function: "net_of_study:build"}')
    assert list_identities(tmp_path) == list_identities(tmp_path)
